//! What a watcher says.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What happened.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// One or a few slow steps.
    Stall,
    /// Slow steps that every calibrated run had there.
    Systematic,
    /// Steps are slower from here on.
    Slower,
    /// Steps are still slower than the run's level, but less so from here on.
    Eased,
    /// Steps are faster than the run's level from here on.
    Faster,
    /// Steps are back at the run's level.
    Back,
    /// Steps grow or shrink slowly.
    Drift,
    /// The run's level is not what the other runs let expect.
    Level,
}

/// Something that a watcher found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    /// What.
    pub kind: EventKind,
    /// Step at which it began, as far as that can be told.
    pub step: i64,
    /// Step at which it was found.
    pub found_at: i64,
    /// Excess over the run's level, as a share of it; of a drift, by the end of what was seen; of the level, over
    /// that of the other runs.
    pub excess: f64,
    /// 95 % interval of the excess, where it is an estimate.
    pub excess_interval: Option<(f64, f64)>,
    /// Probability that a run of the profile, in which nothing is wrong, shows such an event or a stronger one
    /// within as many steps as were seen so far.
    pub probability: f64,
    /// Whether that is only an upper bound.
    pub probability_is_bound: bool,
    /// Time that it cost so far, seconds.
    pub extra_s: f64,
    /// Time that it will cost until the end if it lasts, seconds; none where the end is not known.
    pub extra_to_end_s: Option<f64>,
}

impl Event {
    /// Whether it is one that a user must look at: time that is lost and was not to be expected.
    pub fn is_alarm(&self) -> bool {
        use EventKind::{Drift, Level, Slower, Stall};
        matches!(self.kind, Stall | Slower | Drift | Level) && self.excess > 0.0
    }
}

/// What a watcher saw altogether.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WatchSummary {
    /// Steps seen.
    pub steps: u64,
    /// Last step id.
    pub last_step: Option<i64>,
    /// All step times together, seconds.
    pub total_s: f64,
    /// What the profile lets expect of these steps, seconds.
    pub expected_s: f64,
    /// The run's level, seconds; none before there are core steps.
    pub level_s: Option<f64>,
    /// Probability, under the profile, of a level as far from the other runs'.
    pub level_probability: Option<f64>,
    /// Time that stalls cost, seconds.
    pub stalls_s: f64,
    /// Time that slower spells cost, seconds.
    pub slower_s: f64,
    /// Whether the run is in a slower spell now.
    pub slower_now: bool,
    /// Time still to go at the present level, seconds, where the end is known.
    pub remaining_s: Option<f64>,
}
