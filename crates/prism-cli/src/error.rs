//! What can go wrong, and what the user can do about it.

use std::error::Error;
use std::io;

use prism_decide::compare::CompareError;
use prism_decide::diff::DiffError;
use prism_decide::place::PlaceError;
use prism_decide::reference::ReferenceError;
use prism_decide::scenario::ScenarioError;
use prism_decide::search::SearchError;
use prism_engine::calibrate::CalibrateError;
use prism_engine::planned::PlannedError;
use prism_engine::predict::PredictError;
use prism_engine::profile::ProfileError;
use prism_engine::sample::SampleError;
use prism_engine::synth::SynthError;
use prism_engine::validate::ValidateError;
use prism_graph::GraphError;
use prism_io::IoError;
use prism_job::{ImportError, JobFileError};
use prism_report::ReportError;
use prism_run::{RunError, StepsError};

/// The answer to a valid question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Done; where there was a question, yes.
    Yes,
    /// No: exit code 1.
    No,
    /// Stopped by the user; what there was is written: exit code 130.
    Interrupted,
}

/// Why a command failed: exit code 2.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum CliError {
    /// Flags that contradict each other or the input.
    #[error("{message}")]
    Usage { message: String, hint: String },
    /// A file.
    #[error(transparent)]
    Io(#[from] IoError),
    /// An input that cannot be read.
    #[error("cannot read `{file}`")]
    Input { file: String, source: io::Error },
    /// Standard output.
    #[error("cannot write to standard output")]
    Stdout { source: io::Error },
    /// A trace that makes no graph.
    #[error("`{file}` does not make a step graph")]
    Graph { file: String, source: GraphError },
    /// A trace without a what-if analysis.
    #[error("`{file}` cannot be analysed")]
    Reference { file: String, source: ReferenceError },
    /// A trace that makes no model.
    #[error("`{file}` cannot be calibrated")]
    Calibrate { file: String, source: CalibrateError },
    /// A file that is no profile, or another version's.
    #[error("`{file}` cannot be used as a profile")]
    Profile { file: String, source: ProfileError },
    /// A prediction that is refused.
    #[error("no prediction for `{file}`")]
    Predict { file: String, source: PredictError },
    /// A placement that is refused.
    #[error("no placement for `{file}`")]
    Place { file: String, source: Box<PlaceError> },
    /// A search that is refused.
    #[error("no search for `{file}`")]
    Search { file: String, source: Box<SearchError> },
    /// A validation that is refused.
    #[error("`{file}` cannot be validated")]
    Validate { file: String, source: ValidateError },
    /// A scenario that cannot be read.
    #[error("{place} cannot be read")]
    Scenario { place: String, source: ScenarioError },
    /// A comparison of scenarios that is refused.
    #[error("no comparison for `{file}`")]
    Compare { file: String, source: Box<CompareError> },
    /// A comparison that is refused.
    #[error("`{a}` and `{b}` cannot be compared")]
    Diff { a: String, b: String, source: DiffError },
    /// A synthetic trace that cannot be made.
    #[error("no synthetic trace")]
    Synth { source: SynthError },
    /// A planned job whose steps cannot be drawn.
    #[error("no steps can be drawn of `{file}`")]
    Recorded { file: String, source: SynthError },
    /// A job file that gives no job.
    #[error(transparent)]
    Job(#[from] JobFileError),
    /// A file that is neither a job file nor a profile, and no trace either.
    #[error(transparent)]
    Unknown { source: IoError },
    /// A trace or profile where a job file was given.
    #[error("`{file}` is a job file, and this command reads traces and profiles")]
    IsJob { file: String },
    /// A job that is refused.
    #[error("no answer for `{file}`")]
    Planned { file: String, source: PlannedError },
    /// Another program's configuration that makes no job.
    #[error("`{file}` cannot be imported")]
    Import { file: String, source: ImportError },
    /// A log of steps.
    #[error(transparent)]
    Log(IoError),
    /// Logs of steps that make no law.
    #[error(transparent)]
    Steps(#[from] StepsError),
    /// A run that is refused.
    #[error("no answer for this run")]
    Run { source: RunError },
    /// A run profile or a prior that cannot be used.
    #[error("`{file}` cannot be used")]
    RunFile { file: String, source: StepsError },
    /// Threads that cannot be started.
    #[error("cannot start {threads} threads")]
    Threads { threads: usize, source: rayon::ThreadPoolBuildError },
    /// A result that cannot be written out.
    #[error(transparent)]
    Report(#[from] ReportError),
}

impl CliError {
    /// What the user can do about it.
    pub(crate) fn hint(&self) -> Option<String> {
        let hint = match self {
            CliError::Usage { hint, .. } => return Some(hint.clone()),
            CliError::Io(e) => e.hint(),
            CliError::Graph { source, .. } => source.hint(),
            CliError::Reference { source, .. } => source.hint(),
            CliError::Calibrate { source, .. } => source.hint(),
            CliError::Profile { source, .. } => source.hint(),
            CliError::Predict { source, .. } => match source {
                PredictError::Sample(SampleError::IsaUnavailable { .. }) => {
                    Some("use `--isa auto`; every instruction set gives the same numbers")
                }
                other => other.hint(),
            },
            CliError::Place { source, .. } => source.hint(),
            CliError::Search { source, .. } => source.hint(),
            CliError::Validate { source, .. } => source.hint(),
            CliError::Scenario { source, .. } => source.hint(),
            CliError::Compare { source, .. } => source.hint(),
            CliError::Diff { source, .. } => source.hint(),
            CliError::Synth { source } | CliError::Recorded { source, .. } => source.hint(),
            CliError::Report(e) => e.hint(),
            CliError::Job(e) => e.hint(),
            CliError::Unknown { source } => {
                return Some(format!(
                    "{}; a profile is JSON, and a job file ends in `.toml` or has a section such as \
                     `[model]`",
                    source.hint().unwrap_or("a trace is Parquet or CSV")
                ));
            }
            CliError::IsJob { file } => {
                return Some(format!("`prism predict {file}` predicts its step time"));
            }
            CliError::Import { source, .. } => {
                return source.hint().or_else(|| {
                    let read = "`hf:` reads a config.json, `megatron:` arguments or a log's block of \
                                them, `torchtitan:` its JSON or TOML";
                    Some(read.to_owned())
                });
            }
            CliError::Planned { source, .. } => Some(source.hint()),
            CliError::Log(e) => {
                let hint = e.hint().unwrap_or("say what wrote it with `--log-format`");
                return Some(match e {
                    IoError::StepLogColumns { .. } => {
                        format!("{hint}; `--time-column NAME:UNIT` names another column of times")
                    }
                    _ => hint.to_owned(),
                });
            }
            CliError::Run { source } => return Some(source.hint()),
            CliError::Steps(source) | CliError::RunFile { source, .. } => source.hint(),
            CliError::Threads { .. } => Some("lower `--threads`"),
            CliError::Input { .. } | CliError::Stdout { .. } => None,
        };
        hint.map(str::to_owned)
    }

    /// Whether the reader of standard output went away, which is its right.
    pub(crate) fn is_broken_pipe(&self) -> bool {
        let mut cause: Option<&(dyn Error + 'static)> = Some(self);
        while let Some(e) = cause {
            if let Some(io) = e.downcast_ref::<io::Error>() {
                if io.kind() == io::ErrorKind::BrokenPipe {
                    return true;
                }
                // An error inside an `io::Error` is skipped by `source`.
                if let Some(inner) = io.get_ref() {
                    cause = Some(inner);
                    continue;
                }
            }
            cause = e.source();
        }
        false
    }
}

/// A usage error.
pub(crate) fn usage(message: impl Into<String>, hint: impl Into<String>) -> CliError {
    CliError::Usage { message: message.into(), hint: hint.into() }
}
