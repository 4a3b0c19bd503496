//! The whole run: step times, stalls, failures and policies give its completion time.
//!
//! | module | question |
//! |---|---|
//! | [`pace`] | How fast does one run go, from its first step to its last? |
//! | [`formula`] | What do closed forms say, and where do they hold? |
//! | [`mod@simulate`] | What becomes of a run: when is it done, where did the time go? |
//! | [`outcome`] | How is that written down? |

mod error;
pub mod formula;
pub mod outcome;
pub mod pace;
pub mod simulate;

pub use error::RunError;
pub use outcome::{Cause, RunOutcome, Runs};
pub use pace::{Pace, Steps};
