//! The whole question.

use prism_stats::{Distribution, Law};

use crate::{Cluster, Model, Plan, RunPlan, Variability};

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
    /// The run, from its first step to its last; `None` where only steps are asked about.
    pub run: Option<RunPlan>,
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

impl SequenceLengths {
    /// Mean of the k-th power of a length, lengths cut at `seq_len` tokens.
    pub fn moment(&self, k: i32, seq_len: u32) -> f64 {
        let (s, seq, k) = (self.sigma, f64::from(seq_len), f64::from(k));
        let log = self.median.ln();
        if s == 0.0 {
            return self.median.min(seq).powf(k);
        }
        let normal = |z: f64| Law::normal(0.0, 1.0).map_or(f64::NAN, |n| n.cdf(z));
        let reach = (seq.ln() - log) / s;
        let below = (k * log + 0.5 * k * k * s * s).exp() * normal(reach - k * s);
        below + seq.powf(k) * normal(-reach)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_of_cut_lengths_are_those_of_many_draws() {
        let lengths = SequenceLengths { median: 900.0, sigma: 1.1, packed: true };
        let law = Law::log_normal(900.0_f64.ln(), 1.1).unwrap();
        let n = 200_000;
        for k in 1..=4 {
            // Equally likely values: the midpoint rule's error is far below the tolerance.
            let brute: f64 = (0..n)
                .map(|i| law.quantile((f64::from(i) + 0.5) / f64::from(n)).min(4096.0).powi(k))
                .sum::<f64>()
                / f64::from(n);
            let exact = lengths.moment(k, 4096);
            assert!((exact / brute - 1.0).abs() < 1e-5, "{k}: {exact} {brute}");
        }
    }
}
