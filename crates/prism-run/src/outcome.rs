//! What became of simulated runs.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What a run's time went into. The causes of a run add up to its total time.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// Steps that count, without their stalls, at the pace without fail-slow.
    Steps,
    /// Stalls of steps that count.
    Stalls,
    /// Excess of the first steps after each start.
    WarmUp,
    /// Evaluations, and the excess of the steps after them.
    Evaluation,
    /// Training stopped for checkpoints.
    Checkpoint,
    /// Training stopped for snapshots in memory.
    Snapshot,
    /// Until failures were noticed.
    Detection,
    /// Waiting for a spare node.
    Waiting,
    /// Restarts and swaps, without loading.
    Restart,
    /// Loading checkpoints and snapshots.
    Load,
    /// Work that was done and lost.
    Lost,
    /// Leaving out and taking back replicas.
    Resize,
    /// Fewer replicas than planned.
    Shrunk,
    /// Fail-slow.
    Slow,
    /// Swing over the day; the gain of fast hours is negative.
    Diurnal,
    /// Planned stops.
    Maintenance,
}

impl Cause {
    /// All causes, in the order of reports.
    pub const ALL: [Cause; 16] = [
        Cause::Steps,
        Cause::Stalls,
        Cause::WarmUp,
        Cause::Evaluation,
        Cause::Checkpoint,
        Cause::Snapshot,
        Cause::Detection,
        Cause::Waiting,
        Cause::Restart,
        Cause::Load,
        Cause::Lost,
        Cause::Resize,
        Cause::Shrunk,
        Cause::Slow,
        Cause::Diurnal,
        Cause::Maintenance,
    ];
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Cause::Steps => "steps",
            Cause::Stalls => "stalls",
            Cause::WarmUp => "warm-up",
            Cause::Evaluation => "evaluation",
            Cause::Checkpoint => "checkpoint",
            Cause::Snapshot => "snapshot",
            Cause::Detection => "detection",
            Cause::Waiting => "waiting for spares",
            Cause::Restart => "restart",
            Cause::Load => "load",
            Cause::Lost => "lost work",
            Cause::Resize => "resize",
            Cause::Shrunk => "fewer replicas",
            Cause::Slow => "fail-slow",
            Cause::Diurnal => "diurnal",
            Cause::Maintenance => "maintenance",
        })
    }
}

/// What became of one run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunOutcome {
    /// From the first step's start to the last one's end, seconds; where the run was not finished, as
    /// far as it was followed.
    pub total_s: f64,
    /// Whether the last step was done.
    pub finished: bool,
    /// Seconds by cause, in the order of [`Cause::ALL`].
    pub causes_s: [f64; Cause::ALL.len()],
    /// Failures of all classes.
    pub failures: u32,
    /// Recoveries that waited for a spare node.
    pub waits: u32,
    /// The run's mean step, stalls in it, seconds.
    pub step_s: f64,
}

impl RunOutcome {
    /// Seconds of a cause.
    pub fn cause_s(&self, cause: Cause) -> f64 {
        self.causes_s[cause as usize]
    }

    /// Seconds of steps that count: at the pace without fail-slow, stalls in it.
    pub fn productive_s(&self) -> f64 {
        self.cause_s(Cause::Steps) + self.cause_s(Cause::Stalls)
    }

    /// Effective training time ratio: productive time over total time.
    pub fn ettr(&self) -> f64 {
        self.productive_s() / self.total_s
    }

    /// Share of total time in steps that count, stalls counted as loss too.
    pub fn goodput(&self) -> f64 {
        self.cause_s(Cause::Steps) / self.total_s
    }
}

/// Simulated runs, in the order of their numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Runs {
    /// One of each run.
    pub outcomes: Vec<RunOutcome>,
    /// Names of the failure classes.
    pub classes: Vec<String>,
    /// Failures of every class: those of the first run, of the second, and so on.
    pub class_failures: Vec<u32>,
    /// Work lost to every class, seconds, laid out as `class_failures`; adds up to [`Cause::Lost`].
    pub class_lost_s: Vec<f64>,
    /// Optimizer steps of a run.
    pub steps: u64,
    /// GPUs paid for: the job's and those of its spare nodes.
    pub gpus_paid: u64,
    /// Price of a GPU for an hour, US dollars.
    pub gpu_hour_usd: Option<f64>,
    /// Horizon, in times a run takes without stops.
    pub horizon: f64,
}

impl Runs {
    /// Total times, seconds.
    pub fn totals_s(&self) -> Vec<f64> {
        self.outcomes.iter().map(|o| o.total_s).collect()
    }

    /// Runs that were not finished within the horizon.
    pub fn unfinished(&self) -> u64 {
        self.outcomes.iter().filter(|o| !o.finished).count() as u64
    }

    /// GPU hours paid in a time.
    pub fn gpu_hours(&self, total_s: f64) -> f64 {
        self.gpus_paid as f64 * total_s / 3_600.0
    }

    /// Failures of a class, over all runs.
    pub fn failures_of(&self, class: usize) -> u64 {
        let of = self.class_failures.iter().skip(class).step_by(self.classes.len().max(1));
        of.map(|n| u64::from(*n)).sum()
    }

    /// Work lost to a class, seconds, over all runs.
    pub fn lost_to_s(&self, class: usize) -> f64 {
        self.class_lost_s.iter().skip(class).step_by(self.classes.len().max(1)).sum()
    }
}
