//! What can go wrong with files.

use std::fmt;
use std::io;

use parquet::errors::ParquetError;

use crate::step_log::LogFormat;
use crate::violation::{Place, SHOWN_PER_RULE, Violations};

/// Why a file could not be read or written.
///
/// The message names the file; [`IoError::hint`] says what to do about it. Causes from other
/// libraries are kept as [`std::error::Error::source`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IoError {
    /// The operating system refused to read.
    #[error("cannot read `{file}`")]
    Read {
        /// File name as given.
        file: String,
        /// The system's reason.
        source: io::Error,
    },
    /// The operating system refused to write, or the content could not be produced.
    #[error("cannot write `{file}`")]
    Write {
        /// File name as given.
        file: String,
        /// The reason.
        source: io::Error,
    },
    /// The file has no content, or a header and no rows.
    #[error("`{file}` is empty: {what}")]
    Empty {
        /// File name as given.
        file: String,
        /// What is missing.
        what: &'static str,
    },
    /// The file is of a kind that is not read.
    #[error("`{file}` is {what}, not a trace")]
    Foreign {
        /// File name as given.
        file: String,
        /// What it looks like.
        what: Foreign,
    },
    /// The gzip stream is damaged.
    #[error("`{file}` cannot be decompressed as gzip")]
    Gzip {
        /// File name as given.
        file: String,
        /// The decoder's reason.
        source: io::Error,
    },
    /// More rows or bytes than the reader's limits allow.
    #[error("`{file}` has more than {limit} {unit}")]
    TooLarge {
        /// File name as given.
        file: String,
        /// The limit.
        limit: u64,
        /// Of what.
        unit: &'static str,
    },
    /// The Parquet file is damaged or uses what the decoder lacks.
    #[error("`{file}` cannot be read as Parquet")]
    Parquet {
        /// File name as given.
        file: String,
        /// The decoder's reason.
        source: ParquetError,
    },
    /// The Parquet file is so damaged that the decoder gave up by panicking.
    #[error("`{file}` is damaged: the Parquet decoder gave up on it")]
    ParquetPanic {
        /// File name as given.
        file: String,
    },
    /// A column is compressed in a way that is not read.
    #[error("`{file}`: column `{column}` is compressed with {codec}, which is not read")]
    Codec {
        /// File name as given.
        file: String,
        /// The first such column.
        column: String,
        /// Name of the codec.
        codec: String,
    },
    /// Columns are missing, repeated or of the wrong type.
    #[error("`{file}` does not have the columns of a trace{}", list(problems))]
    Columns {
        /// File name as given.
        file: String,
        /// All of them.
        problems: Vec<ColumnProblem>,
    },
    /// Columns of a log of step times are missing, repeated or ambiguous.
    #[error("`{file}` does not have the columns of a log of step times{}", list(problems))]
    StepLogColumns {
        /// File name as given.
        file: String,
        /// All of them.
        problems: Vec<ColumnProblem>,
    },
    /// A file in which nothing tells a log of step times.
    #[error("`{file}` is not a log of step times: {why}")]
    NotAStepLog {
        /// File name as given.
        file: String,
        /// What it is, or what it lacks.
        why: &'static str,
    },
    /// A log of a known format without a step.
    #[error("`{file}` has no step time, read as {format}")]
    NoSteps {
        /// File name as given.
        file: String,
        /// The format.
        format: LogFormat,
    },
    /// Several runs where one is read.
    #[error("`{file}` holds {} runs, one is needed{}", runs.len(), some(runs))]
    SeveralRuns {
        /// File name as given.
        file: String,
        /// The name of each and how many steps it has.
        runs: Vec<String>,
    },
    /// Lines of steps that hold no time without an option.
    #[error(
        "`{file}`: {place}: a step has neither a time nor a time stamp, and `tokens_per_gpu_step` is not given"
    )]
    StepLogOption {
        /// File name as given.
        file: String,
        /// The first such line.
        place: Place,
    },
    /// A Parquet file of a newer schema.
    #[error("`{file}` has schema `{found}`, this version reads `{}`", crate::native::SCHEMA)]
    Schema {
        /// File name as given.
        file: String,
        /// The schema the file names.
        found: String,
    },
    /// The CSV file is damaged.
    #[error("`{file}` cannot be read as CSV")]
    Csv {
        /// File name as given.
        file: String,
        /// The parser's reason.
        source: csv::Error,
    },
    /// A table of speeds without the columns it needs, or with rows that break a rule.
    #[error("`{file}` is not a table of speeds{}", lines(problems))]
    Speeds {
        /// File name as given.
        file: String,
        /// Line and rule of each.
        problems: Vec<String>,
    },
    /// No metadata was given or found.
    #[error("no metadata for `{file}`{}", looked(looked_for))]
    MetaMissing {
        /// The trace's name as given.
        file: String,
        /// The names tried, in order.
        looked_for: Vec<String>,
    },
    /// The metadata is not UTF-8.
    #[error("`{file}` is not UTF-8")]
    MetaUtf8 {
        /// The metadata's name.
        file: String,
        /// Where.
        source: std::str::Utf8Error,
    },
    /// The YAML metadata cannot be read.
    #[error("`{file}` is not metadata of a trace")]
    MetaYaml {
        /// The metadata's name.
        file: String,
        /// The parser's reason.
        source: Box<serde_saphyr::Error>,
    },
    /// The metadata inside a native Parquet file cannot be read.
    #[error(
        "`{file}`: key-value metadata `{}` is not metadata of a trace",
        crate::native::META_KEY
    )]
    MetaJson {
        /// The trace's name as given.
        file: String,
        /// The parser's reason.
        source: serde_json::Error,
    },
    /// The rows or the metadata break rules.
    #[error("{0}")]
    Invalid(Box<Violations>),
    /// An operation of a kind that no file has.
    #[error("cannot write `{file}`: `{kind}` is never recorded, only inferred")]
    NotRecordable {
        /// File name as given.
        file: String,
        /// The kind.
        kind: prism_model::OpKind,
    },
    /// Columns to write differ in length.
    #[error("cannot write `{file}`: column `{column}` has {rows} values, the first {expected}")]
    UnequalColumns {
        /// File name as given.
        file: String,
        /// The first column that differs.
        column: String,
        /// Its values.
        rows: usize,
        /// The first column's values.
        expected: usize,
    },
    /// Every step was incomplete.
    #[error("`{file}`: no step is complete, {dropped} dropped")]
    NoCompleteStep {
        /// File name as given.
        file: String,
        /// How many steps were dropped.
        dropped: usize,
    },
}

/// A kind of file that is recognised but not read as a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Foreign {
    /// Zstandard.
    Zstd,
    /// A zip archive.
    Zip,
    /// Arrow IPC, also called Feather.
    Arrow,
    /// JSON.
    Json,
    /// Text in UTF-16.
    Utf16,
    /// A gzip file inside a gzip file.
    NestedGzip,
    /// Text whose fields are separated by something else than commas.
    OtherSeparator,
    /// Parquet where a log of step times is read.
    NotALog,
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Foreign::Zstd => "a Zstandard file",
            Foreign::Zip => "a zip archive",
            Foreign::Arrow => "an Arrow IPC (Feather) file",
            Foreign::Json => "JSON",
            Foreign::Utf16 => "UTF-16 text",
            Foreign::NestedGzip => "gzip inside gzip",
            Foreign::OtherSeparator => "text separated by semicolons or tabs",
            Foreign::NotALog => "a Parquet file",
        })
    }
}

/// What is wrong with one column.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ColumnProblem {
    /// Not there, and not derivable from others.
    Missing {
        /// The column's name.
        column: String,
        /// A column of the file with a similar name.
        similar: Option<String>,
    },
    /// There more than once.
    Repeated {
        /// The column's name.
        column: String,
    },
    /// There under several names.
    Ambiguous {
        /// The names found.
        columns: Vec<String>,
    },
    /// Of a type that cannot hold the values.
    Type {
        /// The column's name.
        column: String,
        /// The file's type.
        found: String,
        /// What is read.
        expected: &'static str,
    },
}

impl fmt::Display for ColumnProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ColumnProblem::Missing { column, similar: None } => {
                write!(f, "column `{column}` is missing")
            }
            ColumnProblem::Missing { column, similar: Some(s) } => {
                write!(f, "column `{column}` is missing; `{s}` is similar")
            }
            ColumnProblem::Repeated { column } => write!(f, "column `{column}` is there twice"),
            ColumnProblem::Ambiguous { columns } => {
                write!(f, "columns `{}` say the same thing", columns.join("` and `"))
            }
            ColumnProblem::Type { column, found, expected } => {
                write!(f, "column `{column}` is {found}, expected {expected}")
            }
        }
    }
}

fn list(problems: &[ColumnProblem]) -> String {
    problems.iter().fold(String::new(), |text, p| text + &format!("\n  {p}"))
}

fn lines(problems: &[String]) -> String {
    problems.iter().fold(String::new(), |text, p| text + &format!("\n  {p}"))
}

/// The first of many, one a line.
fn some(names: &[String]) -> String {
    let shown = names.len().min(SHOWN_PER_RULE);
    let mut list = names[..shown].to_vec();
    if shown < names.len() {
        list.push(format!("and {} more", names.len() - shown));
    }
    lines(&list)
}

fn looked(names: &[String]) -> String {
    if names.is_empty() {
        String::new()
    } else {
        let quoted: Vec<String> = names.iter().map(|n| format!("`{n}`")).collect();
        format!(": looked for {}", quoted.join(", "))
    }
}

impl IoError {
    /// What the user can do about it, where there is more to say than the message does.
    ///
    /// Violations of the rows carry a hint per rule in their own text, hence none here.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            IoError::Read { .. }
            | IoError::Write { .. }
            | IoError::NotRecordable { .. }
            | IoError::UnequalColumns { .. }
            | IoError::Invalid(_) => return None,
            IoError::Empty { .. } => {
                "a trace needs at least one step of operations, a table at least one row"
            }
            IoError::Foreign { what, .. } => match what {
                Foreign::Zstd => "decompress it first: `zstd -d FILE`",
                Foreign::Zip => "unpack it first; gzip is read as it is",
                Foreign::Arrow => "rewrite it as Parquet: `pandas.read_feather(a).to_parquet(b)`",
                Foreign::Json => "a table of operations is Parquet or CSV",
                Foreign::Utf16 => "save it as UTF-8",
                Foreign::OtherSeparator => {
                    "separate fields by commas, and write decimals with a point"
                }
                Foreign::NotALog => "a log of step times is text",
                Foreign::NestedGzip => "decompress it once: `gunzip FILE`",
            },
            IoError::TooLarge { .. } => "split the trace by steps",
            IoError::Gzip { .. } | IoError::Parquet { .. } | IoError::ParquetPanic { .. } => {
                "the file may be truncated: compare its size with the original's"
            }
            IoError::Codec { .. } => {
                "rewrite it with Snappy: `pandas.read_parquet(a).to_parquet(b, compression=\"snappy\")`"
            }
            IoError::Columns { problems, .. } => {
                if problems.iter().any(is_float_id) {
                    "pandas turns integer columns with missing values into floating point: fill or drop them, then `astype(\"int64\")`"
                } else if problems.iter().any(is_tick_time) {
                    "times are floating-point seconds since the step's earliest start"
                } else {
                    "columns are named as in docs/native-trace-schema.md or as in the straggler format"
                }
            }
            IoError::StepLogColumns { .. } => {
                "one column of steps (`step`, `iteration`) and one of times, its unit in its name (`step_s`, `step_time_s`, `step_time_ms`, `elapsed_ms`)"
            }
            IoError::NotAStepLog { .. } => {
                "a log is CSV with columns of steps and times, or text of Megatron-LM, NeMo, torchtitan or MLPerf (`:::MLLOG`)"
            }
            IoError::NoSteps { format, .. } => match format {
                LogFormat::Mllog => {
                    "step times are in `tracked_stats` (`train_step_time`); a trainer's own lines are read if the format is given"
                }
                LogFormat::Torchtitan => {
                    "times are read from the second line of steps on, unless `tokens_per_gpu_step` is given"
                }
                _ => "the format can be given, where the content tells another",
            },
            IoError::SeveralRuns { .. } => "keep one run's lines in a copy of the log",
            IoError::StepLogOption { .. } => {
                "tokens_per_gpu_step = global batch * sequence length / GPUs; then `tps` gives the time"
            }
            IoError::Schema { .. } => "upgrade, or rewrite the file with the older version",
            IoError::Csv { .. } => {
                "fields are separated by commas, the first line names the columns"
            }
            IoError::Speeds { .. } => {
                "one row a measurement: a name (`gpu`), a time (`time_ms`), and `node` where tensor-parallel groups are placed"
            }
            IoError::MetaMissing { .. } => {
                "name the file with `--meta FILE`; it holds trial_name, run_id, dp_size, dsp_size, pp_size, tp_size, vpp_size, world_size"
            }
            IoError::MetaUtf8 { .. } | IoError::MetaYaml { .. } | IoError::MetaJson { .. } => {
                "required: dp_size, pp_size, tp_size, world_size; optional: trial_name, run_id, dsp_size, vpp_size"
            }
            IoError::NoCompleteStep { .. } => {
                "the steps disagree with each other: were rows lost on export?"
            }
        })
    }
}

fn is_float_id(p: &ColumnProblem) -> bool {
    matches!(p, ColumnProblem::Type { found, expected, .. }
        if found.contains("floating") && expected.contains("integer"))
}

fn is_tick_time(p: &ColumnProblem) -> bool {
    matches!(p, ColumnProblem::Type { expected, .. } if expected.contains("floating"))
}
