//! Arguments of `prism init`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueEnum};

/// Write a job file from presets or from another program's configuration
///
/// Where the plan is left open, the one with the most tokens per second is taken among the possible
/// ones that fit the GPUs' memory; what was chosen is said.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  prism init --model llama-3.1-70b --gpus 512
  prism init --model gpt3-175b --gpus 1024 --cluster a100-dgx --tp 8 --pp 16 -o gpt3.toml
  prism init --from hf:config.json --gpus 64 --cluster h200-dgx
  prism init --from megatron:train.sh --cluster h100-dgx
  prism init --list models")]
pub(crate) struct InitArgs {
    /// Model preset
    #[arg(long, value_name = "PRESET", conflicts_with = "from")]
    pub(crate) model: Option<String>,
    /// Read another program's configuration: `hf:config.json`, `megatron:args.sh` (or a log),
    /// `torchtitan:config.json` (or its TOML); `-` for standard input
    #[arg(long, value_name = "FORMAT:FILE")]
    pub(crate) from: Option<Import>,
    /// List presets instead
    #[arg(long, value_enum, value_name = "WHAT", conflicts_with_all = ["model", "from"])]
    pub(crate) list: Option<ListArg>,
    /// Number of GPUs
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=10_000_000), value_name = "N")]
    pub(crate) gpus: Option<u64>,
    /// Cluster preset [default: h100-dgx]
    #[arg(long, value_name = "PRESET")]
    pub(crate) cluster: Option<String>,
    /// Variability preset [default: dedicated]
    #[arg(long, value_name = "PRESET")]
    pub(crate) variability: Option<String>,
    #[command(flatten)]
    pub(crate) training: TrainingArgs,
    #[command(flatten)]
    pub(crate) plan: PlanArgs,
    /// Write here; `-` for standard output
    #[arg(short, long, default_value = "job.toml", value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// Overwrite the file if it is there
    #[arg(long)]
    pub(crate) force: bool,
}

/// Batch and sequence.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct TrainingArgs {
    /// Tokens of a sequence [default: 4096]
    #[arg(long, value_name = "N")]
    pub(crate) seq_len: Option<u32>,
    /// Sequences of a step, over all replicas [default: about 4 million tokens]
    #[arg(long, value_name = "N")]
    pub(crate) global_batch_size: Option<u32>,
    /// Sequences of a microbatch [default: 1]
    #[arg(long, value_name = "N")]
    pub(crate) micro_batch_size: Option<u32>,
}

/// Parts of the plan.
#[derive(Clone, Debug, Default, PartialEq, Args)]
pub(crate) struct PlanArgs {
    /// Tensor-parallel ranks
    #[arg(long, value_name = "N")]
    pub(crate) tp: Option<u32>,
    /// Pipeline stages
    #[arg(long, value_name = "N")]
    pub(crate) pp: Option<u32>,
    /// Data-parallel replicas
    #[arg(long, value_name = "N")]
    pub(crate) dp: Option<u32>,
    /// Context-parallel ranks
    #[arg(long, value_name = "N")]
    pub(crate) cp: Option<u32>,
    /// Expert-parallel ranks
    #[arg(long, value_name = "N")]
    pub(crate) ep: Option<u32>,
    /// Model chunks per stage
    #[arg(long, value_name = "N")]
    pub(crate) vpp: Option<u32>,
    /// Pipeline schedule: gpipe, 1f1b, interleaved-1f1b, zb-h1, zb-v, dualpipe
    #[arg(long, value_name = "NAME")]
    pub(crate) schedule: Option<String>,
    /// What is sharded over replicas: 0 nothing, 1 optimizer state, 2 and gradients, 3 and
    /// parameters (FSDP) [default: 1]
    #[arg(long, value_name = "STAGE", value_parser = clap::value_parser!(u8).range(..=3))]
    pub(crate) zero: Option<u8>,
    /// Activation recomputation: none, selective, full
    #[arg(long, value_name = "HOW")]
    pub(crate) recompute: Option<String>,
}

/// A list of presets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ListArg {
    /// `model.preset`
    Models,
    /// `cluster.gpu`
    Gpus,
    /// `cluster.preset`
    Clusters,
    /// `variability.preset`
    Variabilities,
}

/// Whose configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    HuggingFace,
    Megatron,
    Torchtitan,
}

/// A configuration file of another program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Import {
    pub(crate) origin: Origin,
    pub(crate) file: PathBuf,
}

impl FromStr for Import {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = "write `hf:FILE`, `megatron:FILE` or `torchtitan:FILE`";
        let Some((format, file)) = text.split_once(':').filter(|(_, file)| !file.is_empty()) else {
            return Err(format!("`{text}` does not say whose configuration it is; {form}"));
        };
        let origin = match format {
            "hf" | "huggingface" => Origin::HuggingFace,
            "megatron" => Origin::Megatron,
            "torchtitan" => Origin::Torchtitan,
            other => return Err(format!("`{other}` is no known format; {form}")),
        };
        Ok(Import { origin, file: file.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_names_its_program_and_file() {
        let from: Import = "megatron:a:b.sh".parse().unwrap();
        assert_eq!(from, Import { origin: Origin::Megatron, file: "a:b.sh".into() });
        for wrong in ["config.json", "hf:", "nemo:x", ":x", ""] {
            assert!(wrong.parse::<Import>().is_err(), "{wrong}");
        }
    }
}
