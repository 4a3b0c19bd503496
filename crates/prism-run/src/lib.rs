//! The whole run: step times, stalls, failures and policies give its completion time.
//!
//! | module | question |
//! |---|---|
//! | [`pace`] | How fast does one run go, from its first step to its last? |

pub mod pace;

pub use pace::{Pace, Steps};
