//! Durations on a graph give step times.
//!
//! | module | from | to |
//! |---|---|---|
//! | [`replay`] | a recorded trace | its own work, waiting, launch delays; exact step times |
//! | [`calibrate`] | a replayed trace | a duration model: tested effects, observed vectors, laws |
//! | [`iid`] | a replayed trace | the baseline: every operation drawn independently, as published |
//! | [`sample`] | a program of draws, sums and maxima | samples, bit-identical on any machine |
//! | [`compose`] | laws of one replica, one layer, one fleet | the law of a step over thousands of GPUs, exact or bounded |
//! | [`profile`] | a calibrated job | a file, and back |
//! | [`synth`] | a known truth, or a profile | a trace |
//! | [`predict`] | a graph and a duration model | the distribution of step time, with intervals |
//! | [`resize`] | a calibrated job | the same at another number of replicas, stages or microbatches |
//! | [`validate`] | a replayed trace | predictions against steps they have not seen |

pub mod calibrate;
pub mod compose;
pub mod iid;
pub mod planned;
pub mod predict;
pub mod profile;
pub mod replay;
pub mod resize;
pub mod sample;
pub mod synth;
pub mod validate;
