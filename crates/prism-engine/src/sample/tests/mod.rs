//! Tests of the sampler against slower or other ways to the same numbers.

mod data;
mod laws;
mod naive;
mod random_programs;
