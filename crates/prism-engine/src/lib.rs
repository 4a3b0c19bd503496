//! Durations on a graph give step times.

pub mod calibrate;
pub mod predict;
pub mod replay;
pub mod sample;
