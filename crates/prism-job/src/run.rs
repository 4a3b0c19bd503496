//! A run: how many steps, on how many machines, what interrupts it and what is done about it.
//!
//! All durations are seconds. A plan from anywhere is held against the rules by [`RunPlan::check`]; one
//! that `[run]` of a file gave has passed them.

mod failures;
mod moment;
mod presets;
mod recovery;
mod rules;
mod slow;

pub use failures::{Domain, FailureClass, FailureRate, Failures, Rates};
pub use moment::{Moment, MomentError};
pub use presets::{
    GreyhoundRow, failure_preset, failure_presets, greyhound_rows, slow_preset, slow_presets,
};
pub use recovery::{Elastic, InMemory, Policy, Recovery};
pub use rules::BrokenRunRule;
pub use slow::{Onset, Severity, Slow, SlowClass, SlowKind};

/// A training run from its first step to its last.
#[derive(Clone, Debug, PartialEq)]
pub struct RunPlan {
    /// Optimizer steps.
    pub steps: u64,
    /// Tokens of a step, where they are known.
    pub tokens_per_step: Option<f64>,
    /// What it runs on.
    pub machines: Machines,
    /// When it starts.
    pub start: Option<Moment>,
    /// When it should be done, seconds after the start.
    pub deadline_s: Option<f64>,
    /// Price of a GPU for an hour, US dollars.
    pub gpu_hour_usd: Option<f64>,
    /// Checkpoints; `None` where none are written.
    pub checkpoint: Option<Checkpoint>,
    /// Evaluations; `None` where there are none.
    pub evaluation: Option<Evaluation>,
    /// What stops it.
    pub failures: Failures,
    /// What is done when it stops.
    pub recovery: Recovery,
    /// What slows it down without stopping it.
    pub slow: Slow,
    /// Swing of throughput over the day.
    pub diurnal: Option<Diurnal>,
    /// Planned stops.
    pub maintenance: Option<Maintenance>,
}

/// How many GPUs, and how many of them share a fate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machines {
    /// GPUs of the job.
    pub gpus: u64,
    /// GPUs of a node.
    pub gpus_per_node: u32,
    /// Nodes of a rack.
    pub nodes_per_rack: u32,
    /// Nodes below one switch.
    pub nodes_per_switch: u32,
}

impl Machines {
    /// Nodes of the job, the last one perhaps not full.
    pub fn nodes(&self) -> u64 {
        self.gpus.div_ceil(u64::from(self.gpus_per_node.max(1)))
    }

    /// Units of a domain in the job.
    pub fn units(&self, domain: Domain) -> u64 {
        match domain {
            Domain::Gpu => self.gpus,
            Domain::Node => self.nodes(),
            Domain::Rack => self.nodes().div_ceil(u64::from(self.nodes_per_rack.max(1))),
            Domain::Switch => self.nodes().div_ceil(u64::from(self.nodes_per_switch.max(1))),
            Domain::Job => 1,
        }
    }

    /// Nodes that a failure of one unit of a domain takes away; none for the job's own.
    pub fn nodes_lost(&self, domain: Domain) -> u32 {
        let all = u32::try_from(self.nodes()).unwrap_or(u32::MAX);
        match domain {
            Domain::Gpu | Domain::Node => 1,
            Domain::Rack => self.nodes_per_rack.min(all),
            Domain::Switch => self.nodes_per_switch.min(all),
            Domain::Job => 0,
        }
    }
}

/// How often state is saved, and what that takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Checkpoint {
    /// How often.
    pub every: Every,
    /// Time for which training stops, seconds.
    pub blocking_s: f64,
    /// Time from the end of the stop until the checkpoint is durable, seconds; training goes on
    /// meanwhile, and a failure in it falls back to the checkpoint before.
    pub write_s: f64,
    /// Time to load it after a restart, seconds.
    pub load_s: f64,
}

/// An interval between checkpoints.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Every {
    /// Seconds of training; rounded to whole steps of the run.
    Time(f64),
    /// Steps.
    Steps(u64),
}

/// Evaluations during training.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evaluation {
    /// Steps from one to the next.
    pub every_steps: u64,
    /// Time of one, seconds; training stops.
    pub duration_s: f64,
}

/// Swing of throughput over the day: the rate of progress is `1 + amplitude·cos(2π(t − peak)/period)`,
/// t the time of day.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Diurnal {
    /// Half of the swing, a share of throughput: 0.01 is ±1 %.
    pub amplitude: f64,
    /// Length of a day, seconds.
    pub period_s: f64,
    /// Time of day (UTC; from the run's start where its date is not known) of the highest throughput,
    /// seconds.
    pub peak_s: f64,
}

/// Planned stops: the run is paused without losing work, and restarted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Maintenance {
    /// From the end of one to the start of the next, seconds.
    pub every_s: f64,
    /// Length, seconds; the restart comes on top.
    pub duration_s: f64,
}
