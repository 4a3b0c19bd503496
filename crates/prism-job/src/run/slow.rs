//! What slows a run down without stopping it.

use serde::{Deserialize, Serialize};

use super::{Domain, Machines};

/// Fail-slow: parts of the machine that work, slower.
#[derive(Clone, Debug, PartialEq)]
pub struct Slow {
    /// Preset that the classes began as, for reports.
    pub preset: Option<String>,
    /// Kinds of slow-down.
    pub classes: Vec<SlowClass>,
    /// Whether the job waits for the slowest: of several episodes at a time the worst counts.
    /// Otherwise their excesses add up.
    pub slowest: bool,
}

impl Default for Slow {
    fn default() -> Self {
        Slow { preset: None, classes: Vec::new(), slowest: true }
    }
}

/// One kind of slow-down.
#[derive(Clone, Debug, PartialEq)]
pub struct SlowClass {
    /// Name, for reports.
    pub name: String,
    /// What is slow.
    pub kind: SlowKind,
    /// What is slow as one.
    pub domain: Domain,
    /// How often.
    pub onset: Onset,
    /// Share of runs that meet this kind at all, above 0 and up to 1.
    pub exposed: f64,
    /// Mean length of an episode, seconds; no meaning with [`Onset::Share`].
    pub mean_s: f64,
    /// S.d. of the log of an episode's length.
    pub sigma: f64,
    /// By how much the job is slower meanwhile.
    pub severity: Severity,
    /// Whether a run has one severity for all its episodes (its place in the network), or each episode
    /// its own.
    pub severity_per_run: bool,
}

/// What is slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SlowKind {
    /// GPUs or hosts.
    Compute,
    /// Links.
    Link,
}

/// How often a slow-down begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Onset {
    /// Episodes of a unit of the domain in a day.
    PerUnitDay(f64),
    /// Episodes of the job in an hour, whatever its size.
    PerJobHour(f64),
    /// Share of units that are slow from the run's start to its end.
    Share(f64),
}

/// Factor on the time of steps.
#[derive(Clone, Debug, PartialEq)]
pub enum Severity {
    /// 1 plus a log-normal excess.
    LogNormal {
        /// Median of the factor, at least 1.
        median: f64,
        /// S.d. of the log of the excess (factor − 1).
        sigma: f64,
    },
    /// Equally likely factors, each at least 1.
    Values(Vec<f64>),
}

impl SlowClass {
    /// Onsets per second of the whole job; 0 for what lasts from start to end.
    pub fn job_rate(&self, machines: &Machines) -> f64 {
        match self.onset {
            Onset::PerUnitDay(rate) => rate / 86_400.0 * machines.units(self.domain) as f64,
            Onset::PerJobHour(rate) => rate / 3_600.0,
            Onset::Share(_) => 0.0,
        }
    }
}
