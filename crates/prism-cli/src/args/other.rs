//! Arguments of the commands about the command itself.

use clap::{Args, ValueEnum};
use clap_complete::Shell;

/// Print the JSON schema of an output
#[derive(Clone, Debug, Args)]
pub(crate) struct SchemaArgs {
    /// Which output
    #[arg(value_enum, value_name = "NAME")]
    pub(crate) name: SchemaName,
}

/// An output with a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SchemaName {
    /// `prism replay --json`
    Replay,
    /// `prism calibrate --json`, and what `-o` writes
    Profile,
    /// `prism predict --json`
    Predict,
    /// `prism predict job.toml --json`
    PredictJob,
    /// `prism check --json`
    Check,
    /// `prism init --json`
    Init,
    /// `prism fit-cluster --json`
    FitCluster,
    /// `prism fit-job --json`
    FitJob,
    /// `prism init --list … --json`
    Presets,
    /// `prism calibrate-run --json`, and what `-o` writes
    RunProfile,
    /// What `prism calibrate-run --fit-prior -o` writes
    RunPrior,
    /// `prism calibrate-run --cross-validate --json`
    CrossValidation,
    /// `prism run --json`
    Run,
    /// `prism watch --json`: one line an event, the last the summary
    Watch,
    /// A job file
    Job,
    /// `prism place --json`
    Place,
    /// `prism search --json`
    Search,
    /// `prism validate --json`
    Validate,
    /// `prism diff --json`
    Diff,
    /// `prism synth --json`
    Synth,
    /// `prism trace --json`
    Timeline,
    /// `prism whatif --json`
    WhatifReference,
    /// `prism whatif --scenario … --json`
    Whatif,
    /// `prism explain --json`
    Explain,
}

/// Print a completion script for a shell
#[derive(Clone, Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum, value_name = "SHELL")]
    pub(crate) shell: Shell,
}

/// Print a manual page (roff)
#[derive(Clone, Debug, Args)]
pub(crate) struct ManArgs {
    /// A command's page instead of the main one
    #[arg(value_name = "COMMAND")]
    pub(crate) command: Option<String>,
}
