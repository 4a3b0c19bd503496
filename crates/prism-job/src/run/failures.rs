//! What stops a run.

use serde::{Deserialize, Serialize};

use super::Machines;

/// Classes of failures that come independently of each other, each a Poisson process in wall-clock time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Failures {
    /// Preset that the classes began as, for reports.
    pub preset: Option<String>,
    /// Whether the uncertainty of counted rates is drawn.
    pub rates: Rates,
    /// The classes.
    pub classes: Vec<FailureClass>,
}

/// How a rate that was counted is used.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Rates {
    /// The count over its exposure.
    #[default]
    Fixed,
    /// Each run draws its own from the posterior of the rate, Gamma(count + ½, exposure) (Jeffreys'
    /// prior), so that the distribution of runs holds what the counts leave open.
    Posterior,
}

/// What fails as one.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Domain {
    /// A GPU; its node is lost.
    Gpu,
    /// A node.
    Node,
    /// A rack with all its nodes.
    Rack,
    /// A switch with all nodes below it.
    Switch,
    /// The job itself (software): no machine is lost, and the rate does not grow with the job.
    Job,
}

/// One kind of failure.
#[derive(Clone, Debug, PartialEq)]
pub struct FailureClass {
    /// Name, for reports.
    pub name: String,
    /// What fails as one.
    pub domain: Domain,
    /// How often.
    pub rate: FailureRate,
    /// Time until it is noticed, seconds; the recovery's if `None`.
    pub detection_s: Option<f64>,
    /// Time of a restart, seconds; the recovery's if `None`.
    pub restart_s: Option<f64>,
    /// Whether the nodes lost need others in their place.
    pub replaces: bool,
    /// Time until a lost node is repaired, seconds; the recovery's if `None`.
    pub repair_s: Option<f64>,
}

/// How often a kind of failure comes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FailureRate {
    /// Failures in a thousand days of a node.
    PerThousandNodeDays(f64),
    /// Mean time between failures of one unit of the domain, seconds.
    MeanTimeBetween(f64),
    /// Failures that were counted.
    Counted {
        /// How many.
        count: u64,
        /// On how many GPUs.
        gpus: u64,
        /// For how long, seconds.
        duration_s: f64,
    },
}

impl FailureClass {
    /// Failures per second of the whole job.
    pub fn job_rate(&self, machines: &Machines) -> f64 {
        match self.rate {
            FailureRate::PerThousandNodeDays(rate) => rate / 86.4e6 * machines.nodes() as f64,
            FailureRate::MeanTimeBetween(mtbf_s) => machines.units(self.domain) as f64 / mtbf_s,
            FailureRate::Counted { count, .. } => count as f64 / self.exposure_s(machines),
        }
    }

    /// Seconds of this job that show as much as what was observed; infinite where the rate was not
    /// counted.
    pub fn exposure_s(&self, machines: &Machines) -> f64 {
        match self.rate {
            FailureRate::Counted { gpus, duration_s, .. } if self.domain == Domain::Job => {
                duration_s * (gpus.min(1) as f64)
            }
            FailureRate::Counted { gpus, duration_s, .. } => {
                duration_s * gpus as f64 / machines.gpus as f64
            }
            _ => f64::INFINITY,
        }
    }
}

impl Failures {
    /// Failures per second of the whole job, all classes.
    pub fn job_rate(&self, machines: &Machines) -> f64 {
        self.classes.iter().map(|c| c.job_rate(machines)).sum()
    }
}
