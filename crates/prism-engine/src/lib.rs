//! Durations on a graph give step times.

pub mod calibrate;
pub mod replay;
