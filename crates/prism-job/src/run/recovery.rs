//! What is done when a run stops.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Policy, and what each policy takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Recovery {
    /// What is done.
    pub policy: Policy,
    /// Time until a failure is noticed, seconds.
    pub detection_s: f64,
    /// Time of a restart (scheduling, start of processes, communicators), seconds; loading the
    /// checkpoint and the slow first steps come on top.
    pub restart_s: f64,
    /// Nodes in reserve; `None` where there is always one more.
    pub spares: Option<u32>,
    /// Time until a lost node is repaired and joins the reserve, seconds; `None` where it never does.
    pub repair_s: Option<f64>,
    /// Time to swap a warm standby in, seconds, in place of a restart.
    pub standby_swap_s: Option<f64>,
    /// Going on with fewer replicas.
    pub elastic: Option<Elastic>,
    /// Snapshots in the memory of peers.
    pub in_memory: Option<InMemory>,
}

/// What is done after a failure.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// The job is restarted from its last durable checkpoint.
    #[default]
    Restart,
    /// A lost node is swapped for one that stands by warm; without one, as `Restart`.
    WarmStandby,
    /// The job goes on with the replicas left, and takes the lost one back later.
    Elastic,
    /// The job is restarted from a snapshot in memory where that survived, else from the checkpoint.
    InMemory,
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Policy::Restart => "restart",
            Policy::WarmStandby => "warm-standby",
            Policy::Elastic => "elastic",
            Policy::InMemory => "in-memory",
        })
    }
}

/// Going on with fewer replicas. Only the step in which the failure falls is lost: the other replicas
/// hold all state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Elastic {
    /// Replicas that hold all state between them (of HSDP), each on an equal part of the nodes.
    pub replicas: u32,
    /// Time to go on without a replica, seconds.
    pub shrink_s: f64,
    /// Time for which training stops when a replica comes back, seconds.
    pub regrow_s: f64,
    /// Whether the replicas left share the whole global batch: steps then take
    /// replicas / (replicas − lost) as long. Otherwise steps keep their time and hold fewer sequences.
    pub keep_batch: bool,
}

/// Snapshots in the memory of peers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InMemory {
    /// Seconds of training from one to the next; rounded to whole steps.
    pub interval_s: f64,
    /// Time for which training stops for one, seconds.
    pub blocking_s: f64,
    /// Time to load one after a restart, seconds.
    pub load_s: f64,
    /// Whether each is held on another node too: then the loss of one node leaves it whole. Without,
    /// it outlives only failures that lose no node's memory. The loss of a rack or switch always takes
    /// it along.
    pub replicated: bool,
}
