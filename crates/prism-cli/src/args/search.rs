//! Arguments of `prism search`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use prism_job::{Recompute, ScheduleName, ZeroStage};

use super::SetArgs;
use super::values::{number, probability, samples};

/// Find the best plans of a job
///
/// Every plan of the range that uses all GPUs is held against the rules and the memory of its GPUs; a
/// lower bound of its step, then its noise-free step, say which plans' distributions are worth
/// predicting. All of them are drawn under one seed. Batch, overlap flags, precision and variability
/// are the job file's.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  prism search job.toml --gpus 1024
  prism search job.toml --gpus 512,1024 --objective cost --price-per-gpu-hour 2.5
  prism search job.toml --schedules 1f1b,zb-v --recompute none --write-best best.toml
  prism search job.toml --checkpoint search.json --json -o plans.json")]
pub(crate) struct SearchArgs {
    /// Job file; `-` for standard input
    #[arg(value_name = "JOB")]
    pub(crate) job: PathBuf,
    #[command(flatten)]
    pub(crate) set: SetArgs,
    /// GPUs to use; several numbers are compared [default: the job's]
    #[arg(long, value_delimiter = ',', value_name = "N,…")]
    pub(crate) gpus: Vec<u64>,
    /// What is minimised
    #[arg(long, value_enum, default_value_t = PlanObjectiveArg::P95, value_name = "WHAT")]
    pub(crate) objective: PlanObjectiveArg,
    /// Price of a GPU-hour, for `--objective cost` [default: GPU-hours are counted]
    #[arg(long, value_parser = number, value_name = "PRICE")]
    pub(crate) price_per_gpu_hour: Option<f64>,
    /// Plans that must be right, and are shown
    #[arg(long, default_value_t = 10, value_name = "N")]
    pub(crate) top: usize,
    /// Most plans whose distribution is predicted
    #[arg(long, default_value_t = 24, value_name = "N")]
    pub(crate) distributions: usize,
    /// Compute every plan's noise-free step, whatever its bound
    #[arg(long)]
    pub(crate) exhaustive: bool,
    #[command(flatten)]
    pub(crate) range: RangeArgs,
    /// Samples of one replica [default: as suits the plan]
    #[arg(long, value_parser = samples, value_name = "N")]
    pub(crate) samples: Option<usize>,
    /// Clusters drawn for every plan
    #[arg(long, default_value_t = 32, value_name = "N")]
    pub(crate) clusters: u32,
    /// Confidence of all intervals
    #[arg(long, default_value = "0.95", value_parser = probability, value_name = "P")]
    pub(crate) confidence: f64,
    /// Keep what was evaluated here, and go on from it if it is there
    #[arg(long, value_name = "FILE")]
    pub(crate) checkpoint: Option<PathBuf>,
    /// Write the job with the best plan here
    #[arg(long, value_name = "FILE")]
    pub(crate) write_best: Option<PathBuf>,
    /// Say how many plans a second were evaluated
    #[arg(long)]
    pub(crate) timing: bool,
    /// Write the result here instead of to standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// Which plans.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Range")]
pub(crate) struct RangeArgs {
    /// Tensor-parallel degrees [default: powers of two inside the `NVLink` domain]
    #[arg(long, value_delimiter = ',', value_name = "N,…")]
    pub(crate) tp: Vec<u32>,
    /// Pipeline stages [default: divisors of the layers]
    #[arg(long, value_delimiter = ',', value_name = "N,…")]
    pub(crate) pp: Vec<u32>,
    /// Context-parallel degrees [default: 1; up to 16 for long sequences]
    #[arg(long, value_delimiter = ',', value_name = "N,…")]
    pub(crate) cp: Vec<u32>,
    /// Expert-parallel degrees [default: divisors of the experts]
    #[arg(long, value_delimiter = ',', value_name = "N,…")]
    pub(crate) ep: Vec<u32>,
    /// Micro batches [default: 1,2,4,8]
    #[arg(long, value_delimiter = ',', value_name = "N,…")]
    pub(crate) micro_batch: Vec<u32>,
    /// Chunks a stage under interleaving [default: 2 to 12]
    #[arg(long, value_delimiter = ',', value_name = "N,…")]
    pub(crate) chunks: Vec<u32>,
    /// Schedules: `gpipe`, `1f1b`, `interleaved-1f1b`, `zb-h1`, `zb-v`, `dualpipe`
    /// [default: `1f1b`, `interleaved-1f1b` and the job's own]
    #[arg(long, value_delimiter = ',', value_parser = schedule, value_name = "NAME,…")]
    pub(crate) schedules: Vec<ScheduleName>,
    /// Recomputation: `none`, `selective`, `full` [default: all]
    #[arg(long, value_delimiter = ',', value_parser = recompute, value_name = "NAME,…")]
    pub(crate) recompute: Vec<Recompute>,
    /// `ZeRO` stages; 3 needs one pipeline stage [default: 0,1,3]
    #[arg(long, value_delimiter = ',', value_parser = zero, value_name = "N,…")]
    pub(crate) zero: Vec<ZeroStage>,
    /// Split layers unevenly where they do not divide into the chunks
    #[arg(long)]
    pub(crate) uneven: bool,
}

/// What a search minimises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PlanObjectiveArg {
    /// Median step time
    P50,
    /// 95 % quantile of step time
    P95,
    /// Mean of the slowest 5 % of steps
    Cvar,
    /// GPU-hours, or their price, of a billion tokens at the mean step time
    Cost,
}

fn schedule(text: &str) -> Result<ScheduleName, String> {
    let all = [
        ScheduleName::GPipe,
        ScheduleName::OneFOneB,
        ScheduleName::InterleavedOneFOneB,
        ScheduleName::ZbH1,
        ScheduleName::ZbV,
        ScheduleName::DualPipe,
    ];
    all.into_iter().find(|s| s.to_string() == text).ok_or_else(|| {
        let names: Vec<String> = all.iter().map(ToString::to_string).collect();
        format!("`{text}` is none of {}", names.join(", "))
    })
}

fn recompute(text: &str) -> Result<Recompute, String> {
    match text {
        "none" => Ok(Recompute::None),
        "selective" => Ok(Recompute::Selective),
        "full" => Ok(Recompute::Full),
        _ => Err(format!("`{text}` is none of none, selective, full")),
    }
}

fn zero(text: &str) -> Result<ZeroStage, String> {
    let stage = u8::from_str(text).map_err(|_| format!("`{text}` is none of 0, 1, 2, 3"))?;
    ZeroStage::try_from(stage)
}
