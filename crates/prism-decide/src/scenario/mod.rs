//! Scenarios: a job, changed.
//!
//! A [`Scenario`] is a list of [`Edit`]s, applied in order, each on a selection of operations.
//! [`apply`] turns it into a duration model and adjustments; random draws stay what they were, so that
//! a scenario and its base, run under one seed, see the same steps ([`crate::compare`]).
//!
//! | edit | what happens to the selected operations |
//! |---|---|
//! | `scale x1.2` | their work takes 1.2 times as long |
//! | `set 12ms` | their work takes 12 ms |
//! | `delay x0` | their launch delays are multiplied |
//! | `freeze` | they always take their mean; with `effect=…`, that effect is gone and means are kept |
//! | `spread x2 effect=…` | the effect's spread in log time is multiplied, means are kept |
//! | `ideal` | they take one time for each kind: the mean for compute, the median for the rest |
//! | `heal` | the selected workers are as fast as the median of the others of their stage |
//! | `slow-node x1.5` | the compute of the selected workers takes 1.5 times as long |
//! | `slow-link x3` | transfers that the selected workers take part in take 3 times as long |
//! | `congestion x3 p=0.05` | in 5 % of the steps, transfers take 3 times as long |
//! | `rebalance` | microbatches change size between replicas so that all finish together |
//! | `repack over=step` | all microbatches of a step (or `replica`) have the same load |
//! | `swap profile=FILE from=SIGNATURE` | durations come from another profile's signature |

mod apply;
mod parse;
mod swap;

use std::collections::BTreeMap;
use std::fmt;

use prism_engine::predict::{Adjustments, Repack, Source};
use prism_graph::StepGraph;
use prism_model::{DurationModel, Signature};
use serde::{Deserialize, Serialize};

use crate::select::{Layout, Selection};

pub use apply::apply;

/// One change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "edit", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Edit {
    /// Work times a factor.
    Scale {
        /// The factor.
        factor: f64,
        /// On what.
        on: Selection,
    },
    /// Work takes this long.
    Set {
        /// Seconds.
        work_s: f64,
        /// On what.
        on: Selection,
    },
    /// Launch delays times a factor.
    Delay {
        /// The factor.
        factor: f64,
        /// On what.
        on: Selection,
    },
    /// Variation times a factor, around the same mean; 0 freezes. Without an effect, all of an
    /// operation's variation.
    Spread {
        /// The factor.
        factor: f64,
        /// Which effect; none for all of them.
        effect: Option<Source>,
        /// On what.
        on: Selection,
    },
    /// One time for each kind.
    Ideal {
        /// On what.
        on: Selection,
    },
    /// Workers as fast as the median of the others of their stage.
    Heal {
        /// Which.
        on: Selection,
    },
    /// Compute times a factor.
    SlowNode {
        /// The factor.
        factor: f64,
        /// Which workers.
        on: Selection,
    },
    /// Transfers times a factor, at all participants.
    SlowLink {
        /// The factor.
        factor: f64,
        /// Which workers.
        on: Selection,
    },
    /// Transfers times a factor in a share of the steps.
    Congestion {
        /// The factor.
        factor: f64,
        /// Share of steps.
        probability: f64,
        /// On what.
        on: Selection,
    },
    /// Microbatch sizes between replicas by their speed.
    Rebalance,
    /// Microbatches of equal load.
    Repack {
        /// Over what.
        over: Repack,
    },
    /// Durations of another profile.
    Swap {
        /// Name of the profile.
        profile: String,
        /// Its signature; the same kind, stage and chunk if none is given.
        from: Option<Signature>,
        /// On what.
        on: Selection,
    },
}

/// Changes under a name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Scenario {
    /// Name in tables.
    pub name: String,
    /// Changes, applied in this order.
    pub edits: Vec<Edit>,
}

/// A job as decisions see it.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// One replica's step.
    pub graph: &'a StepGraph,
    /// Its durations.
    pub model: &'a DurationModel,
    /// Where it runs.
    pub layout: Layout,
}

/// Another job whose signatures may be swapped in.
#[derive(Clone, Copy, Debug)]
pub struct Donor<'a> {
    /// Its step.
    pub graph: &'a StepGraph,
    /// Its durations.
    pub model: &'a DurationModel,
}

/// Donors by name.
pub type Donors<'a> = BTreeMap<String, Donor<'a>>;

/// A scenario applied to a job: what to lower in place of the job's model.
#[derive(Clone, Debug, PartialEq)]
pub struct Changed {
    /// Durations.
    pub model: DurationModel,
    /// Changes on top.
    pub adjust: Adjustments,
    /// What a reader should know of how an edit was carried out.
    pub notes: Vec<String>,
}

/// Why a scenario cannot be read or applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScenarioError {
    /// Text that is no scenario.
    #[error("`{text}`: {what}")]
    Parse {
        /// The part that cannot be read.
        text: String,
        /// Why.
        what: String,
    },
    /// An edit that makes no sense on this job.
    #[error("`{edit}` cannot be applied: {what}")]
    Apply {
        /// The edit.
        edit: String,
        /// Why.
        what: String,
    },
}

impl ScenarioError {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            ScenarioError::Parse { .. } => Some(
                "a scenario is written `name: edit; edit`, an edit `scale x1.2 kind=forward-compute \
                 stage=3 dp=0`; `prism whatif --help` lists the edits",
            ),
            ScenarioError::Apply { .. } => None,
        }
    }
}

impl Edit {
    /// The selection, for edits that have one.
    pub fn selection(&self) -> Option<&Selection> {
        match self {
            Edit::Scale { on, .. }
            | Edit::Set { on, .. }
            | Edit::Delay { on, .. }
            | Edit::Spread { on, .. }
            | Edit::Ideal { on }
            | Edit::Heal { on }
            | Edit::SlowNode { on, .. }
            | Edit::SlowLink { on, .. }
            | Edit::Congestion { on, .. }
            | Edit::Swap { on, .. } => Some(on),
            Edit::Rebalance | Edit::Repack { .. } => None,
        }
    }
}

impl fmt::Display for Edit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let effect = |e: &Option<Source>| e.map_or(String::new(), |e| format!(" effect={e}"));
        let head = match self {
            Edit::Scale { factor, .. } => format!("scale x{factor}"),
            Edit::Set { work_s, .. } => format!("set {work_s}s"),
            Edit::Delay { factor, .. } => format!("delay x{factor}"),
            Edit::Spread { factor, effect: e, .. } if *factor == 0.0 => {
                format!("freeze{}", effect(e))
            }
            Edit::Spread { factor, effect: e, .. } => format!("spread x{factor}{}", effect(e)),
            Edit::Ideal { .. } => "ideal".to_owned(),
            Edit::Heal { .. } => "heal".to_owned(),
            Edit::SlowNode { factor, .. } => format!("slow-node x{factor}"),
            Edit::SlowLink { factor, .. } => format!("slow-link x{factor}"),
            Edit::Congestion { factor, probability, .. } => {
                format!("congestion x{factor} p={probability}")
            }
            Edit::Rebalance => "rebalance".to_owned(),
            Edit::Repack { over: Repack::Step } => "repack over=step".to_owned(),
            Edit::Repack { over: Repack::Replica } => "repack over=replica".to_owned(),
            Edit::Swap { profile, from, .. } => {
                let from = from.map_or(String::new(), |s| format!(" from={s}"));
                format!("swap profile={profile}{from}")
            }
        };
        let on = self.selection().map(ToString::to_string).unwrap_or_default();
        if on.is_empty() { f.write_str(&head) } else { write!(f, "{head} {on}") }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let edits: Vec<String> = self.edits.iter().map(ToString::to_string).collect();
        f.write_str(&edits.join("; "))
    }
}
