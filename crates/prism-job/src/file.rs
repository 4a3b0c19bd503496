//! `job.toml`: reading with all violations at once, writing, its schema.

mod cluster;
mod document;
mod model;
mod nearest;
mod plan;
mod quantity;
mod raw;
mod resolve;
mod run;
mod variability;
mod violation;
mod write;

use std::path::{Path, PathBuf};

pub use quantity::{
    Bandwidth, BandwidthUnit, Dimension, Quantity, QuantityError, Rate, RateUnit, Size, SizeUnit,
    Span, SpanUnit, Time, TimeUnit,
};
pub use run::{RunDefaults, parse_run_plan};
pub use violation::{JobFileError, Violation, Violations};
pub(crate) use write::text as toml_text;
pub use write::to_toml;

use crate::Job;

/// Version of the format, the value of the key `schema`.
pub const JOB_SCHEMA: &str = "prism.job/1";

/// How a job file is read besides its text.
#[derive(Clone, Debug, Default)]
pub struct ReadOptions {
    /// Name of the file in messages.
    pub name: String,
    /// Folder to which `model.config` is relative; the working directory if empty.
    pub folder: PathBuf,
    /// Dotted keys and values that replace those of the file, as `--set key=value` gives them. A value
    /// is TOML, or else text.
    pub set: Vec<(String, String)>,
}

/// A job with what is worth a warning.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadJob {
    /// The job; it breaks no rule.
    pub job: Job,
    /// Warnings: possible, and seldom meant.
    pub warnings: Vec<Violation>,
}

/// Reads a job file's text.
///
/// ```
/// use prism_job::{ReadOptions, parse_job};
///
/// let text = r#"
/// [model]
/// preset = "llama-3.1-8b"
/// [training]
/// seq_len = 8192
/// global_batch_size = 128
/// [parallelism]
/// tensor_parallel_degree = 2
/// [cluster]
/// preset = "h100-dgx"
/// nodes = 4
/// "#;
/// let read = parse_job(text, &ReadOptions::default()).unwrap();
/// assert_eq!(read.job.gpus(), 32);
/// assert_eq!(read.job.plan.data_parallel_shard, 16);
///
/// let set = vec![("training.global_batch_size".to_owned(), "100".to_owned())];
/// let error = parse_job(text, &ReadOptions { set, ..ReadOptions::default() }).unwrap_err();
/// assert_eq!(
///     error.violations()[0].message,
///     "a global batch of 100 is no multiple of micro batch 1 x 16 replicas"
/// );
/// ```
///
/// # Errors
/// [`JobFileError::Invalid`] with every violation found.
pub fn parse_job(text: &str, options: &ReadOptions) -> Result<ReadJob, JobFileError> {
    resolve::read(text, options).map_err(|(violations, nearest_plans, says_job)| {
        JobFileError::Invalid(Box::new(Violations {
            name: options.name.clone(),
            text: text.to_owned(),
            violations,
            nearest_plans,
            says_job,
        }))
    })
}

/// Reads a job file. `set` replaces keys, as in [`ReadOptions::set`].
///
/// # Errors
/// [`JobFileError`].
pub fn read_job(path: &Path, set: &[(String, String)]) -> Result<ReadJob, JobFileError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| JobFileError::Read { path: path.to_owned(), source })?;
    let options = ReadOptions {
        name: path.display().to_string(),
        folder: path.parent().map(Path::to_owned).unwrap_or_default(),
        set: set.to_vec(),
    };
    parse_job(&text, &options)
}

/// JSON schema of a job file.
pub fn job_schema() -> serde_json::Value {
    schemars::schema_for!(raw::RawJob).to_value()
}

/// [`job_schema`] as text, as it is committed.
pub fn job_schema_text() -> String {
    let text = serde_json::to_string_pretty(&schemars::schema_for!(raw::RawJob));
    text.unwrap_or_default() + "\n"
}
