//! Arguments of `prism predict`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use prism_engine::predict::Draws;
use prism_engine::resize::Target;

use super::values::{Guarantee, Requirement, probability, quantile, repetitions, samples, share};
use super::{SetArgs, TraceArgs};

/// Predict the distribution of step time from a trace, a profile or a job file
///
/// Whether the input is a job file (TOML), a profile (JSON) or a trace is told by its content.
/// Intervals come in two kinds: `sampling` is the error of drawing finitely many samples, `total`
/// adds what other recorded steps could have shown (bootstrap). Of a job nothing was recorded: its
/// costs come from the data sheets and efficiencies of its cluster, its spreads from `[variability]`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  prism predict trace.parquet
  prism predict profile.json --precision 0.1% --json
  prism predict trace.parquet --require 'p95<8s' --guarantee q=0.95,conf=0.95
  prism predict profile.json --over clusters -o samples.parquet
  prism predict profile.json --dp 512 --pp 8 --microbatches 64
  prism predict job.toml --require 'p95<8s'
  prism predict job.toml --set parallelism.pipeline_parallel_degree=8 --over clusters")]
pub(crate) struct PredictArgs {
    /// Trace, profile or job file; `-` for standard input
    #[arg(value_name = "INPUT")]
    pub(crate) input: PathBuf,
    #[command(flatten)]
    pub(crate) read: TraceArgs,
    /// Samples to draw [default: 10000; of a job's replica as many as about a second allows]
    #[arg(long, value_parser = samples, value_name = "N", conflicts_with = "precision")]
    pub(crate) samples: Option<usize>,
    /// Draw until the half-width of the p95's sampling interval is at most this share of it
    #[arg(long, value_parser = share, value_name = "SHARE")]
    pub(crate) precision: Option<f64>,
    /// How durations are drawn [default: empirical; parametric with `--model iid`]
    #[arg(long, value_enum, value_name = "HOW")]
    pub(crate) draws: Option<DrawsArg>,
    /// Model of durations
    #[arg(long, value_enum, default_value_t = ModelArg::Effects, value_name = "MODEL")]
    pub(crate) model: ModelArg,
    /// Over what the distribution is
    #[arg(long, value_enum, default_value_t = OverArg::Steps, value_name = "WHAT")]
    pub(crate) over: OverArg,
    /// Quantiles to report, `0.95` or `p95`; repeatable
    #[arg(
        long,
        value_parser = quantile,
        value_delimiter = ',',
        default_value = "p5,p50,p95,p99",
        value_name = "P"
    )]
    pub(crate) quantile: Vec<f64>,
    /// Slow-downs against the noise-free step whose probability is reported; repeatable
    #[arg(
        long,
        value_parser = share,
        value_delimiter = ',',
        default_value = "1%,2%,5%,10%,20%",
        value_name = "SHARE"
    )]
    pub(crate) slowdown: Vec<f64>,
    /// Confidence of all intervals
    #[arg(long, default_value = "0.95", value_parser = probability, value_name = "P")]
    pub(crate) confidence: f64,
    /// Bootstrap repetitions for the calibration error; 0 for none [default: 100; 0 with
    /// `--model iid`]
    #[arg(long, value_parser = repetitions, value_name = "N")]
    pub(crate) bootstrap: Option<usize>,
    /// An upper bound on a quantile with stated confidence: guaranteed by recorded steps alone
    /// where there are enough, else conditional on the model
    #[arg(long, value_name = "q=Q,conf=C")]
    pub(crate) guarantee: Option<Guarantee>,
    /// Exit with 1 unless this holds: `p95<8s`, `mean<=7.5s`, `sd<300ms`; repeatable
    #[arg(long, value_name = "CONDITION")]
    pub(crate) require: Vec<Requirement>,
    /// Write the samples here: CSV if the name ends in `.csv` or `.csv.gz` or is `-`, else Parquet;
    /// of a job, the result in the form of `--format`
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Instruction set; results do not depend on it
    #[arg(long, value_enum, default_value_t = IsaArg::Auto, value_name = "ISA")]
    pub(crate) isa: IsaArg,
    #[command(flatten)]
    pub(crate) set: SetArgs,
    /// Clusters to draw, of a job [default: 32]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=4_096), value_name = "N")]
    pub(crate) clusters: Option<u32>,
    /// Take the variability of a job from a profile calibrated on another plan or scale
    #[arg(long, value_name = "PROFILE")]
    pub(crate) variability_from: Option<PathBuf>,
    /// Simulate every replica of a job, whatever that costs
    #[arg(long)]
    pub(crate) brute_force: bool,
    #[command(flatten)]
    pub(crate) resize: ResizeArgs,
}

impl PredictArgs {
    /// How durations are drawn; the baseline as published if nothing is said.
    pub(crate) fn draws(&self) -> DrawsArg {
        self.draws.unwrap_or(match self.model {
            ModelArg::Effects => DrawsArg::Empirical,
            ModelArg::Iid => DrawsArg::Parametric,
        })
    }

    /// Bootstrap repetitions; the baseline has none.
    pub(crate) fn bootstrap(&self) -> usize {
        self.bootstrap.unwrap_or(match self.model {
            ModelArg::Effects => 100,
            ModelArg::Iid => 0,
        })
    }
}

/// The job at another size than the recorded one.
///
/// Answered are up to 128 times the recorded replicas, a quarter to 4 times the stages, and an eighth
/// to 8 times the microbatches.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Another size than the recorded one")]
pub(crate) struct ResizeArgs {
    /// Data-parallel replicas, up to 128 times the recorded ones
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..), value_name = "N")]
    pub(crate) dp: Option<u32>,
    /// Pipeline stages, a quarter to 4 times the recorded ones
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..), value_name = "N")]
    pub(crate) pp: Option<u16>,
    /// Microbatches per replica and step, an eighth to 8 times the recorded ones
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..), value_name = "N")]
    pub(crate) microbatches: Option<u32>,
    /// Draw all workers anew; without it the recorded replicas stay what they are
    #[arg(long)]
    pub(crate) fresh_cluster: bool,
    /// Answer beyond the stated range too, with a warning
    #[arg(long)]
    pub(crate) extrapolate: bool,
}

impl ResizeArgs {
    /// Whether the job is another one than the recorded one.
    pub(crate) fn given(&self) -> bool {
        self.fresh_cluster || !self.target().is_empty()
    }

    pub(crate) fn target(&self) -> Target {
        Target { dp: self.dp, pp: self.pp, microbatches: self.microbatches }
    }
}

/// How durations are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DrawsArg {
    /// Whole observed vectors
    Empirical,
    /// Fitted laws for compute and point-to-point
    Parametric,
}

impl From<DrawsArg> for Draws {
    fn from(how: DrawsArg) -> Draws {
        match how {
            DrawsArg::Empirical => Draws::Empirical,
            DrawsArg::Parametric => Draws::Parametric,
        }
    }
}

/// Model of durations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ModelArg {
    /// Crossed effects, each tested
    Effects,
    /// Independent draws per signature, as published: the baseline, of a trace only
    Iid,
}

/// Over what a distribution is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OverArg {
    /// Steps on the recorded cluster
    Steps,
    /// Clusters one might be given: every replica's speed is drawn afresh
    Clusters,
}

/// Instruction set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum IsaArg {
    /// The fastest there is
    Auto,
    /// Plain code
    Portable,
    /// x86-64 with AVX2 and FMA
    Avx2,
    /// x86-64 with AVX-512
    Avx512,
}
