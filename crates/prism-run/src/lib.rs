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
//! | [`formula`] | What do closed forms say, and where do they hold? |
//! | [`mod@simulate`] | What becomes of a run: when is it done, where did the time go? |
//! | [`outcome`] | How is that written down? |
//! | [`summary`] | What is the distribution over runs; is it done by then? |
//! | [`optimise`] | How often to save? |
//! | [`mod@spares`] | How many nodes to hold in reserve? |
//! | [`mod@sensitivity`] | Which failures cost what? |
//! | [`policies`] | What to do when a run stops? |
//! | [`slow`] | What do slow parts cost? |

pub mod cross;
mod error;
pub mod formula;
pub mod optimise;
pub mod outcome;
pub mod pace;
pub mod policies;
pub mod prior;
pub mod sensitivity;
pub mod separate;
pub mod simulate;
pub mod slow;
pub mod spares;
pub mod steps;
pub mod summary;
pub mod watch;

pub use error::RunError;
pub use outcome::{Cause, RunOutcome, Runs};
pub use pace::{Pace, Steps};
pub use prior::{Prior, fit_prior};
pub use separate::{Class, Separated, separate};
pub use steps::{Evidence, Shape, StepModel, StepsError, Total};
pub use watch::{Event, EventKind, WatchOptions, WatchSummary, Watcher};
