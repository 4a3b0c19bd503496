//! Where the time and its tail come from.
//!
//! Three views of one job: the penalty of variation shared out between effects and between kinds of
//! operations ([`Breakdown`]); where the critical path goes ([`PathReport`]); and which changes would
//! gain most ([`Fix`]).

mod fixes;
mod path;
mod players;
mod shapley;
mod shares;

use prism_engine::predict::Draws;
use serde::{Deserialize, Serialize};

use crate::compare::CompareError;
use crate::paired::Statistic;
use crate::scenario::Job;

pub use fixes::Fix;
pub use path::{
    KindPart, OpPart, PathLine, PathReport, PathShare, StagePart, TypicalPath, WorkerPart,
    WorkerSlack, sample_at, sampled_steps,
};
pub use players::By;
pub(crate) use players::sources;
pub use shares::{Attribution, Breakdown, PartShare, Whole};

/// How to explain.
#[derive(Clone, Debug, PartialEq)]
pub struct ExplainOptions {
    /// How durations are drawn.
    pub draws: Draws,
    /// Samples of each coalition and of each fix.
    pub samples: usize,
    /// Steps whose critical path is followed.
    pub path_samples: usize,
    /// Seed.
    pub seed: u64,
    /// Threads; 0 for all. Results do not depend on it.
    pub threads: usize,
    /// Resamples for sampling intervals.
    pub resamples: usize,
    /// Bootstrap repetitions for the calibration error of fixes; 0 for none.
    pub repetitions: usize,
    /// Confidence of all intervals.
    pub confidence: f64,
    /// The tail quantile.
    pub quantile: f64,
    /// Most parts whose coalitions are all evaluated.
    pub max_parts: usize,
    /// Most single operations listed.
    pub max_operations: usize,
}

impl Default for ExplainOptions {
    fn default() -> Self {
        ExplainOptions {
            draws: Draws::Empirical,
            samples: 2_048,
            path_samples: 400,
            seed: 1,
            threads: 0,
            resamples: 100,
            repetitions: 0,
            confidence: 0.95,
            quantile: 0.95,
            max_parts: 6,
            max_operations: 20,
        }
    }
}

impl ExplainOptions {
    /// Mean, tail quantile, standard deviation, core spread.
    fn statistics(&self) -> Vec<Statistic> {
        vec![
            Statistic::Mean,
            Statistic::Quantile(self.quantile),
            Statistic::Sd,
            Statistic::CoreSpread,
        ]
    }
}

/// Where the time and its tail come from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ExplainReport {
    /// Seed.
    pub seed: u64,
    /// Confidence of all intervals.
    pub confidence: f64,
    /// The tail quantile.
    pub quantile: f64,
    /// How durations were drawn.
    pub draws: Draws,
    /// The penalty shared out, by effect, by class and by kind.
    pub breakdowns: Vec<Breakdown>,
    /// The critical path.
    pub path: PathReport,
    /// Changes by gain, the largest at the tail quantile first.
    pub fixes: Vec<Fix>,
}

/// Explains a job's step time.
///
/// # Errors
/// [`CompareError`] if the model does not fit the graph or there are too few samples.
pub fn explain(job: &Job<'_>, options: &ExplainOptions) -> Result<ExplainReport, CompareError> {
    let least = 100;
    if options.samples < least || options.path_samples < 20 {
        let (what, least, got) = if options.samples < least {
            ("samples", least, options.samples)
        } else {
            ("samples of paths", 20, options.path_samples)
        };
        return Err(CompareError::TooSmall { what, least, got });
    }
    let breakdowns = [By::Effect, By::Class, By::Kind]
        .into_iter()
        .map(|by| shares::breakdown(by, job, options))
        .collect::<Result<_, _>>()?;
    Ok(ExplainReport {
        seed: options.seed,
        confidence: options.confidence,
        quantile: options.quantile,
        draws: options.draws,
        breakdowns,
        path: path::path_report(job, options)?,
        fixes: fixes::fixes(job, options)?,
    })
}
