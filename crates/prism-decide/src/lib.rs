//! Decisions from step-time distributions: what-if, attribution, placement, comparison.
//!
//! Everything here takes a step graph with durations on it, recorded or drawn from a duration model,
//! and knows neither files nor terminals.

pub mod place;
