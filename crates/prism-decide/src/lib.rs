//! Decisions from step-time distributions: what-if, attribution, placement, comparison.
//!
//! Everything here takes a step graph with durations on it, recorded or drawn from a duration model,
//! and knows neither files nor terminals.
//!
//! | module | from | to |
//! |---|---|---|
//! | [`critical`] | an evaluated step | its critical path, and everything else's slack |
//! | [`mod@reference`] | a replayed trace | the published what-if analysis, and that of any operations |
//! | [`timeline`] | an evaluated or recorded step | each operation's work, waiting and launch delay |

pub mod critical;
pub mod reference;
pub mod timeline;
