//! Decisions from step-time distributions: what-if, attribution, placement, comparison.
//!
//! Everything here takes a step graph with durations on it, recorded or drawn from a duration model,
//! and knows neither files nor terminals.
//!
//! | module | from | to |
//! |---|---|---|
//! | [`mod@check`] | a planned job | whether it fits, and where its noise-free step goes |
//! | [`critical`] | an evaluated step | its critical path, and everything else's slack |
//! | [`mod@reference`] | a replayed trace | the published what-if analysis, and that of any operations |
//! | [`mod@diff`] | two jobs, or two logs | what changed, and what it cost |
//! | [`explain`] | a job | where its time and the tail come from |
//! | [`scenario`] | a job and edits | the job, changed |
//! | [`compare`] | a job and scenarios | how the distribution of step time changes, with paired intervals |
//! | [`mod@place`] | a job and workers' speeds | which worker should be which cell |
//! | [`mod@search`] | a planned job and a range of plans | the best plans, by their distribution |
//! | [`timeline`] | an evaluated or recorded step | each operation's work, waiting and launch delay |

pub mod check;
pub mod compare;
pub mod critical;
pub mod diff;
pub mod explain;
pub mod paired;
pub mod place;
pub mod reference;
pub mod scenario;
pub mod search;
pub mod select;
pub mod timeline;
