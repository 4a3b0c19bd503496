//! Tests of the sampler against slower or other ways to the same numbers.

mod naive;
mod random_programs;
