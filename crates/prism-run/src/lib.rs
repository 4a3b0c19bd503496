//! The whole run: step times, stalls, failures and policies give its completion time.
//!
//! | module | question |
//! |---|---|
//! | [`mod@separate`] | Which steps of a log are warm-up, stalls, core? |
//! | [`steps`] | What is the law of a job's steps, from logs of a few runs? |
//! | [`prior`] | What do other systems say about runs that nobody has seen? |
//! | [`cross`] | How good are such predictions, of runs held out? |
//! | [`watch`] | When did a run leave its predicted distribution? |
//! | [`pace`] | How fast does one run go, from its first step to its last? |

pub mod cross;
pub mod pace;
pub mod prior;
pub mod separate;
pub mod steps;
pub mod watch;

pub use pace::{Pace, Steps};
pub use prior::{Prior, fit_prior};
pub use separate::{Class, Separated, separate};
pub use steps::{Evidence, Shape, StepModel, StepsError, Total};
pub use watch::{Event, EventKind, WatchOptions, WatchSummary, Watcher};
