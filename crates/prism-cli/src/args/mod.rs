//! What can be typed.

mod calibrate;
mod check;
mod diff;
mod explain;
mod fit;
mod init;
mod other;
mod place;
mod predict;
mod replay;
mod run;
mod search;
mod synth;
mod trace;
mod validate;
mod values;
mod whatif;

use std::path::{Path, PathBuf};

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};

pub(crate) use calibrate::CalibrateArgs;
pub(crate) use check::CheckArgs;
pub(crate) use diff::DiffArgs;
pub(crate) use explain::ExplainArgs;
pub(crate) use fit::{FitClusterArgs, FitJobArgs};
pub(crate) use init::{InitArgs, ListArg, Origin, PlanArgs};
pub(crate) use other::{CompletionsArgs, ManArgs, SchemaArgs, SchemaName};
pub(crate) use place::{ObjectiveArg, PlaceArgs};
pub(crate) use predict::{DrawsArg, IsaArg, ModelArg, OverArg, PredictArgs};
pub(crate) use replay::ReplayArgs;
pub(crate) use run::{
    AnalysisArg, CalibrateRunArgs, Counted, Rate, RunArgs, RunBound, RunStatistic, StepLogArgs,
    WatchArgs,
};
pub(crate) use search::{PlanObjectiveArg, RangeArgs, SearchArgs};
pub(crate) use synth::{DurationArg, EffectArg, Plan, SynthArgs};
pub(crate) use trace::TimelineArgs;
pub(crate) use validate::ValidateArgs;
pub(crate) use values::{Guarantee, Relation, Requirement, Statistic};
pub(crate) use whatif::WhatifArgs;

/// Turns traces of distributed-training jobs into probability distributions of step time
#[derive(Debug, Parser)]
#[command(
    name = "prism",
    version,
    propagate_version = true,
    max_term_width = 100,
    arg_required_else_help = true,
    after_help = "Exit codes: 0 done; 1 a valid question answered no; 2 usage, configuration or \
                  input; 101 a bug"
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: GlobalArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Split a recorded trace into work, waiting and launch delays, and replay it
    Replay(ReplayArgs),
    /// Estimate the duration model of a trace and write it as a profile
    Calibrate(CalibrateArgs),
    /// Learn the law of a job's steps from logs of its runs
    CalibrateRun(CalibrateRunArgs),
    /// Predict a whole run: when it ends, with what probability, and where its time goes
    Run(RunArgs),
    /// Watch a log of steps against what was predicted of it
    Watch(WatchArgs),
    /// Predict the distribution of step time from a trace, a profile or a job file
    Predict(PredictArgs),
    /// Write a job file from presets or from another program's configuration
    Init(InitArgs),
    /// Fit a cluster's efficiencies to measured step and collective times
    FitCluster(FitClusterArgs),
    /// Fit a job to its step times
    FitJob(FitJobArgs),
    /// Check a job file: is it possible, does it fit, where does its step go
    Check(CheckArgs),
    /// Say which worker should be which (replica, stage) cell
    Place(PlaceArgs),
    /// Find the best plans of a job
    Search(SearchArgs),
    /// Predict held-out steps of a trace and say how far off the predictions are
    Validate(ValidateArgs),
    /// Compare two traces, profiles or step logs: what changed, and what it cost
    Diff(DiffArgs),
    /// Make a synthetic trace, of a known truth or of a profile
    Synth(SynthArgs),
    /// Say what the steps would have taken otherwise
    Whatif(WhatifArgs),
    /// Say where the step time and its tail come from, and what to fix first
    Explain(ExplainArgs),
    /// Write one step as a timeline for Perfetto, and find its critical path
    Trace(TimelineArgs),
    /// Print the JSON schema of an output
    Schema(SchemaArgs),
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
    /// Print a manual page (roff)
    Man(ManArgs),
}

impl Command {
    /// Whether `-o -` takes standard output for data, so that the report goes to standard error.
    pub(crate) fn writes_data_to_stdout(&self) -> bool {
        let is_stdout = |path: &Option<PathBuf>| path.as_deref() == Some(Path::new("-"));
        match self {
            Command::Calibrate(args) => is_stdout(&args.output),
            Command::CalibrateRun(args) => is_stdout(&args.output),
            Command::Predict(args) => is_stdout(&args.output),
            Command::Run(args) => is_stdout(&args.output),
            Command::Place(args) => is_stdout(&args.output),
            Command::Check(args) => is_stdout(&args.output),
            Command::FitCluster(args) => is_stdout(&args.output),
            Command::FitJob(args) => is_stdout(&args.output),
            Command::Init(args) => args.list.is_none() && args.output == Path::new("-"),
            Command::Search(args) => is_stdout(&args.output),
            Command::Synth(args) => args.output == Path::new("-"),
            Command::Trace(args) => args.output == Path::new("-"),
            Command::Whatif(args) => is_stdout(&args.heatmap),
            Command::Replay(_)
            | Command::Watch(_)
            | Command::Explain(_)
            | Command::Validate(_)
            | Command::Diff(_)
            | Command::Schema(_)
            | Command::Completions(_)
            | Command::Man(_) => false,
        }
    }
}

/// Settings that every command has.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct GlobalArgs {
    /// Form of the result on standard output
    #[arg(long, global = true, value_enum, default_value_t = Format::Human, value_name = "FORM")]
    pub(crate) format: Format,
    /// Short for `--format json`
    #[arg(long, global = true, conflicts_with = "format")]
    pub(crate) json: bool,
    /// No progress, warnings or hints; twice: no human-readable report either
    #[arg(short, long, global = true, action = ArgAction::Count, conflicts_with = "verbose")]
    pub(crate) quiet: u8,
    /// Say how long each phase took, and show long tables whole; twice: say more
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,
    /// When to write colours
    #[arg(long, global = true, value_enum, default_value_t = Colour::Auto, value_name = "WHEN")]
    pub(crate) color: Colour,
    /// No progress indicator
    #[arg(long, global = true)]
    pub(crate) no_progress: bool,
    /// Seed of all random draws
    #[arg(long, global = true, default_value_t = 1, env = "PRISM_SEED", value_name = "N")]
    pub(crate) seed: u64,
    /// Threads, 0 for all; results do not depend on it
    #[arg(
        long,
        global = true,
        default_value = "0",
        value_parser = values::threads,
        env = "PRISM_THREADS",
        value_name = "N"
    )]
    pub(crate) threads: usize,
}

impl GlobalArgs {
    /// The form of the result.
    pub(crate) fn format(&self) -> Format {
        if self.json { Format::Json } else { self.format }
    }
}

/// Form of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Text for people; may change between versions
    Human,
    /// JSON with a versioned schema, see `prism schema`
    Json,
    /// One flat table
    Csv,
    /// The human text as Markdown
    Markdown,
}

/// When to write colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Colour {
    /// On a terminal, unless `NO_COLOR` is set; anywhere if `CLICOLOR_FORCE` is
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// How a trace is read.
#[derive(Clone, Debug, Args)]
pub(crate) struct TraceArgs {
    /// Metadata of the trace (YAML); without it, `meta-T.yaml` beside `trace-T.parquet` is read
    #[arg(long, value_name = "FILE")]
    pub(crate) meta: Option<PathBuf>,
    /// Drop steps that lack operations instead of refusing the trace
    #[arg(long)]
    pub(crate) allow_incomplete: bool,
}

/// Changes to a job file.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct SetArgs {
    /// Replace a key of the job file, `section.key=value`; repeatable
    #[arg(long, value_parser = values::assignment, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<(String, String)>,
}

impl SetArgs {
    /// As typed.
    pub(crate) fn texts(&self) -> Vec<String> {
        self.set.iter().map(|(key, value)| format!("{key}={value}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_arguments_are_consistent() {
        super::Cli::command().debug_assert();
    }
}
