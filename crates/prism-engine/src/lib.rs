//! Durations on a graph give step times.

pub mod sample;
