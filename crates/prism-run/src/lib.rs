//! The whole run: step times, stalls, failures and policies give its completion time.
//!
//! | module | question |
//! |---|---|
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

mod error;
pub mod formula;
pub mod optimise;
pub mod outcome;
pub mod pace;
pub mod policies;
pub mod sensitivity;
pub mod simulate;
pub mod slow;
pub mod spares;
pub mod summary;

pub use error::RunError;
pub use outcome::{Cause, RunOutcome, Runs};
pub use pace::{Pace, Steps};
