//! Arguments of `prism whatif`.

use std::path::PathBuf;

use clap::Args;

use super::values::{probability, quantile, repetitions, samples};
use super::{DrawsArg, TraceArgs};
use crate::planned::PlannedArgs;

/// Say what the steps would have taken otherwise
///
/// Without a scenario: the reference what-if analysis of a trace. Each operation's work is either as
/// recorded or its kind's ideal, the mean or median over the whole trace; the graph of the trace
/// format's own rules is replayed without launch delays. Prints the slowdown by kind of operation,
/// pipeline stage, data-parallel replica and worker, and how much of it the slowest workers (`M_W`)
/// and the last stage (`M_S`) explain.
///
/// With scenarios: how the distribution of step time changes, both sides under the same random
/// numbers. A scenario is `name: edit; edit`, or the edits alone.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Edits, each with a selection of what it is applied to:
  scale x1.2            work takes 1.2 times as long
  set 12ms              work takes 12 ms
  delay x0              launch delays are multiplied
  freeze                work always takes its mean; `freeze effect=microbatch`: that effect is gone
  spread x2 effect=E    an effect's spread is doubled around the same mean
  ideal                 work takes one time for each kind of operation
  heal                  workers are as fast as the median of the others of their stage
  slow-node x1.5        compute of the selected workers takes 1.5 times as long
  slow-link x3          transfers that the selected workers take part in take 3 times as long
  congestion x3 p=0.05  in 5 % of the steps, transfers take 3 times as long
  rebalance             microbatches are sized by the speed of their replica
  repack over=step      all microbatches of a step (or `over=replica`) have the same load
  swap profile=FILE     durations of another profile's signature, `from=forward-compute@1`
Selections: kind=forward-compute|compute|p2p|collective|dp-comm|…, stage=0,2-3|last, dp=, rank=,
  node=, microbatch=, step=; what is not given is not asked about
Effects: worker, step, step-worker, microbatch, residual, congestion, transfer, collective,
  optimizer, launch-delay

Examples:
  prism whatif trace.parquet
  prism whatif trace.parquet --scenario 'slow-node x1.2 dp=0 stage=last'
  prism whatif job.toml --scenario 'slow-link x2 stage=0'
  prism whatif profile.json --scenario 'fixed: heal rank=12; delay x0' --scenario 'repack' --json")]
pub(crate) struct WhatifArgs {
    /// Trace (Parquet, or CSV with the same columns, also gzipped), or a profile or job file where
    /// scenarios are given; `-` for standard input
    #[arg(value_name = "INPUT")]
    pub(crate) trace: PathBuf,
    #[command(flatten)]
    pub(crate) read: TraceArgs,
    #[command(flatten)]
    pub(crate) planned: PlannedArgs,
    /// Figures of each step too (reference analysis)
    #[arg(long, conflicts_with_all = ["scenario", "scenarios"])]
    pub(crate) per_step: bool,
    /// Write the slowdown by worker as CSV: a row a replica, a column a stage; `-` for standard
    /// output (reference analysis)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["scenario", "scenarios"])]
    pub(crate) heatmap: Option<PathBuf>,
    /// A scenario, `name: edit; edit`; repeatable
    #[arg(long, value_name = "SCENARIO", help_heading = "Scenarios")]
    pub(crate) scenario: Vec<String>,
    /// A file with a scenario a line; `#` begins a comment
    #[arg(long, value_name = "FILE", help_heading = "Scenarios")]
    pub(crate) scenarios: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) draw: CompareArgs,
    /// Write the report to a file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// How scenarios are compared.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Scenarios")]
pub(crate) struct CompareArgs {
    /// Samples of each side [default: 10000]
    #[arg(long, value_parser = samples, value_name = "N")]
    pub(crate) samples: Option<usize>,
    /// How durations are drawn [default: empirical]
    #[arg(long, value_enum, value_name = "HOW")]
    pub(crate) draws: Option<DrawsArg>,
    /// Quantiles to compare, `0.95` or `p95`; repeatable [default: p50,p95,p99]
    #[arg(long, value_parser = quantile, value_delimiter = ',', value_name = "P")]
    pub(crate) quantile: Vec<f64>,
    /// Confidence of all intervals [default: 0.95]
    #[arg(long, value_parser = probability, value_name = "P")]
    pub(crate) confidence: Option<f64>,
    /// Bootstrap repetitions for the calibration error of differences; 0 for none [default: 100,
    /// none of a job file]
    #[arg(long, value_parser = repetitions, value_name = "N")]
    pub(crate) bootstrap: Option<usize>,
    /// GPUs of a node, for `node=` [default: the job's cluster's, or 8]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..), value_name = "N")]
    pub(crate) gpus_per_node: Option<u32>,
}

impl CompareArgs {
    /// The first flag that was given.
    pub(crate) fn given(&self) -> Option<&'static str> {
        let flags = [
            ("--samples", self.samples.is_some()),
            ("--draws", self.draws.is_some()),
            ("--quantile", !self.quantile.is_empty()),
            ("--confidence", self.confidence.is_some()),
            ("--bootstrap", self.bootstrap.is_some()),
            ("--gpus-per-node", self.gpus_per_node.is_some()),
        ];
        flags.into_iter().find(|(_, given)| *given).map(|(flag, _)| flag)
    }
}
