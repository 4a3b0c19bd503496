//! The whole question.

use crate::{Cluster, Model, Plan, Variability};

/// A training job: what is trained, how, on what.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Name for reports.
    pub name: String,
    /// The network.
    pub model: Model,
    /// Batch and sequence.
    pub training: Training,
    /// Parallelism.
    pub plan: Plan,
    /// Machines.
    pub cluster: Cluster,
    /// What varies.
    pub variability: Variability,
}

/// Batch and sequence.
#[derive(Clone, Debug, PartialEq)]
pub struct Training {
    /// Tokens of a sequence (the packed length where sequences are packed).
    pub seq_len: u32,
    /// Sequences of an optimizer step, over all replicas.
    pub global_batch_size: u32,
    /// Sequences of a microbatch of one replica.
    pub micro_batch_size: u32,
    /// Lengths of the documents; `None` where every sequence is one document of `seq_len` tokens.
    pub sequences: Option<SequenceLengths>,
}

/// Lengths of documents, in tokens: a log-normal law, cut at the sequence length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SequenceLengths {
    /// Median, tokens.
    pub median: f64,
    /// S.d. of the log length.
    pub sigma: f64,
    /// Whether documents are packed into sequences of `seq_len` tokens (attention stays inside a
    /// document); otherwise each is a sequence of its own length.
    pub packed: bool,
}

impl Job {
    /// GPUs the plan takes.
    pub fn gpus(&self) -> u64 {
        self.plan.gpus()
    }

    /// Microbatches of one replica and step (gradient accumulation), rounded down.
    pub fn microbatches(&self) -> u32 {
        let per_replica =
            u64::from(self.plan.data_parallel()) * u64::from(self.training.micro_batch_size);
        u32::try_from(u64::from(self.training.global_batch_size) / per_replica.max(1))
            .unwrap_or(u32::MAX)
    }

    /// Tokens of an optimizer step.
    pub fn tokens(&self) -> f64 {
        f64::from(self.training.global_batch_size) * f64::from(self.training.seq_len)
    }
}
