//! Predictions against steps they have not seen.
//!
//! The recorded steps are split, the model is calibrated on one part and compared with the step
//! times of the other, beside comparators that know nothing of operations. Step totals of the training
//! part are never an input of the model.

mod error;
mod parts;
mod replicas;
mod score;

use prism_stats::stream;
use rand::seq::SliceRandom;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

pub use error::ValidateError;
pub use parts::PartScore;
pub use replicas::ReplicaScore;
pub use score::{Deviation, Errors, PredictorScore};

use crate::calibrate::{CalibrateOptions, Selection, calibrate};
use crate::iid;
use crate::predict::{LowerOptions, Probes, lower};
use crate::replay::{Builder, Replayed, recorded_step_times};
use crate::sample::{RunOptions, Samples};
use parts::Parts;
use score::{Score, moments, score};

/// How to validate.
#[derive(Clone, Debug, PartialEq)]
pub struct ValidateOptions {
    /// Random half splits.
    pub splits: usize,
    /// Samples of each prediction.
    pub samples: usize,
    /// Seed of splits and samples.
    pub seed: u64,
    /// Threads; 0 for all.
    pub threads: usize,
    /// Step ids that are left out altogether.
    pub exclude: Vec<i64>,
    /// Level at which effects are kept.
    pub alpha: f64,
}

impl Default for ValidateOptions {
    fn default() -> Self {
        ValidateOptions {
            splits: 30,
            samples: 4_000,
            seed: 1,
            threads: 0,
            exclude: Vec::new(),
            alpha: 0.01,
        }
    }
}

/// How a prediction did on one kind of split.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SplitReport {
    /// How the steps were split.
    pub split: String,
    /// Splits.
    pub repetitions: usize,
    /// Steps held out in each (the larger half).
    pub held_out: usize,
    /// Our model first, then the comparators.
    pub predictors: Vec<PredictorScore>,
}

/// What validation found. Times are seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ValidateReport {
    /// Version of this report: `prism.validate/1`.
    pub schema: String,
    /// Graph builder in use.
    pub builder: Builder,
    /// Steps used.
    pub steps: usize,
    /// Step ids left out.
    pub excluded: Vec<i64>,
    /// Mean recorded step time.
    pub mean_step_s: f64,
    /// S.d. of recorded step times.
    pub sd_step_s: f64,
    /// Samples of each prediction.
    pub samples: usize,
    /// Seed.
    pub seed: u64,
    /// Random half splits; first half against second half, both ways.
    pub splits: Vec<SplitReport>,
    /// Stage compute and waits, over the random splits.
    pub parts: Vec<PartScore>,
    /// Each replica from the others.
    pub leave_one_replica_out: Vec<ReplicaScore>,
    /// What to be careful about.
    pub warnings: Vec<String>,
}

/// Validates on a replayed trace.
///
/// # Errors
/// [`ValidateError`] if fewer than 8 steps remain, an excluded step is not recorded, or a part cannot
/// be calibrated.
pub fn validate(
    replayed: &Replayed,
    options: &ValidateOptions,
) -> Result<ValidateReport, ValidateError> {
    let ids = replayed.observed.steps();
    if let Some(&step) = options.exclude.iter().find(|s| !ids.contains(s)) {
        return Err(ValidateError::UnknownStep { step });
    }
    let used: Vec<usize> = (0..ids.len()).filter(|&t| !options.exclude.contains(&ids[t])).collect();
    if used.len() < 8 {
        return Err(ValidateError::TooFewSteps { steps: used.len() });
    }
    if options.splits == 0 || options.samples < 100 {
        return Err(ValidateError::Options);
    }
    let totals = recorded_step_times(&replayed.graph, &replayed.observed);
    let random = random_halves(&used, options);
    let half = used.len() / 2;
    let (first, second) = (used[..half].to_vec(), used[half..].to_vec());
    let ordered = vec![(first.clone(), second.clone()), (second, first)];
    let mut parts = Parts::default();
    let splits = vec![
        split_report("random halves", &random, replayed, &totals, options, Some(&mut parts))?,
        split_report("first half and second half", &ordered, replayed, &totals, options, None)?,
    ];
    let used_totals: Vec<f64> = used.iter().map(|&t| totals[t]).collect();
    let (mean_step_s, sd_step_s) = moments(&used_totals);
    Ok(ValidateReport {
        schema: "prism.validate/1".to_owned(),
        builder: replayed.report.builder,
        steps: used.len(),
        excluded: options.exclude.clone(),
        mean_step_s,
        sd_step_s,
        samples: options.samples,
        seed: options.seed,
        splits,
        parts: parts.scores(mean_step_s),
        leave_one_replica_out: replicas::leave_one_out(replayed, &used, options)?,
        warnings: warnings(used.len()),
    })
}

fn warnings(steps: usize) -> Vec<String> {
    let held_out = steps.div_ceil(2);
    if held_out < 20 {
        vec![format!(
            "the p95 of {held_out} held-out steps lies between the two slowest: one slow step decides it"
        )]
    } else {
        Vec::new()
    }
}

/// Training and held-out step indices, each ascending.
type Split = (Vec<usize>, Vec<usize>);

fn random_halves(used: &[usize], options: &ValidateOptions) -> Vec<Split> {
    (0..options.splits)
        .map(|i| {
            let mut order = used.to_vec();
            order.shuffle(&mut stream(options.seed, "validate-split", &[i as u64]));
            let (train, test) = order.split_at(used.len() / 2);
            let sorted = |s: &[usize]| {
                let mut v = s.to_vec();
                v.sort_unstable();
                v
            };
            (sorted(train), sorted(test))
        })
        .collect()
}

/// Scores of one split, in the order of [`PREDICTORS`], and the probed samples.
struct SplitScores {
    scores: Vec<Score>,
    samples: Samples,
}

const PREDICTORS: [&str; 5] = ["prism", "constant", "normal", "ecdf", "iid"];

fn split_report(
    name: &str,
    splits: &[Split],
    replayed: &Replayed,
    totals: &[f64],
    options: &ValidateOptions,
    parts: Option<&mut Parts>,
) -> Result<SplitReport, ValidateError> {
    let one = |(i, split): (usize, &Split)| score_split(i as u64, split, replayed, totals, options);
    let all: Vec<SplitScores> = if options.threads == 1 {
        splits.iter().enumerate().map(one).collect::<Result<_, _>>()?
    } else {
        splits.par_iter().enumerate().map(one).collect::<Result<_, _>>()?
    };
    if let Some(parts) = parts {
        for (scores, (_, held_out)) in all.iter().zip(splits) {
            parts.add(&scores.samples, replayed, held_out);
        }
    }
    let predictors = PREDICTORS
        .iter()
        .enumerate()
        .map(|(k, name)| {
            PredictorScore::of(name, &all.iter().map(|s| s.scores[k]).collect::<Vec<_>>())
        })
        .collect();
    Ok(SplitReport {
        split: name.to_owned(),
        repetitions: splits.len(),
        held_out: splits.iter().map(|s| s.1.len()).max().unwrap_or(0),
        predictors,
    })
}

fn score_split(
    i: u64,
    (train, test): &Split,
    replayed: &Replayed,
    totals: &[f64],
    options: &ValidateOptions,
) -> Result<SplitScores, ValidateError> {
    let calibration = CalibrateOptions { laws: false, alpha: options.alpha };
    let trained = calibrate(replayed, &Selection::steps(replayed, train.clone()), &calibration)?;
    let lowering = LowerOptions {
        probes: Probes { stage_compute: true, waits: true, ..Probes::default() },
        ..LowerOptions::default()
    };
    let tape = lower(&trained.graph, &trained.model, &lowering)?.compile()?;
    let run = RunOptions {
        seed: options.seed.wrapping_add(i),
        samples: options.samples,
        threads: 1,
        ..RunOptions::default()
    };
    let samples = tape.run(&run)?;
    let held_out: Vec<f64> = test.iter().map(|&t| totals[t]).collect();
    let mut known: Vec<f64> = train.iter().map(|&t| totals[t]).collect();
    known.sort_by(f64::total_cmp);
    let (mean, sd) = moments(&known);
    let mut prism: Vec<f64> =
        samples.get("step").map_or(&[][..], |o| o.row(0)).iter().map(|&v| f64::from(v)).collect();
    prism.sort_by(f64::total_cmp);
    let normal: Vec<f64> = (0..options.samples)
        .map(|k| {
            let p = (k as f64 + 0.5) / options.samples as f64;
            mean + sd * prism_stats::htest::normal_quantile(p)
        })
        .collect();
    let iid = iid_times(replayed, train, options, run.seed)?;
    let scores = [prism, vec![mean; 2], normal, known, iid]
        .iter()
        .map(|predicted| score(predicted, &held_out, options.seed.wrapping_add(i)))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(SplitScores { scores, samples })
}

/// Sorted step times predicted by the published rules, from the same steps, seconds.
fn iid_times(
    replayed: &Replayed,
    train: &[usize],
    options: &ValidateOptions,
    seed: u64,
) -> Result<Vec<f64>, ValidateError> {
    let selection = Selection::steps(replayed, train.to_vec());
    let model = iid::calibrate(replayed, &selection, &iid::IidOptions::default())?;
    let settings = iid::IidPredictOptions {
        samples: options.samples,
        seed,
        threads: 1,
        ..iid::IidPredictOptions::default()
    };
    let mut times: Vec<f64> =
        iid::predict(&replayed.graph, &model, &settings)?.into_iter().map(f64::from).collect();
    times.sort_by(f64::total_cmp);
    Ok(times)
}
