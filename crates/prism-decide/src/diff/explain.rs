//! How much of the change of step time each cause explains.
//!
//! Step times are predicted from both models under the same random numbers; a cause is put into A's
//! model and taken out of B's. The two differ where causes interact (a slow rank costs nothing while
//! another one is slower), so single changes do not sum to the total: sum, joint change and remainder
//! are reported beside them. Intervals: both sides' steps are resampled, the models and every cause's
//! size re-estimated, and the whole repeated.

use prism_engine::calibrate::Resampler;
use prism_engine::predict::{Bounds, LowerOptions, lower, relabel, resample_units};
use prism_engine::sample::{RunOptions, Tape};
use prism_model::DurationModel;
use prism_stats::{htest, quantile_type7, resample::Windows};
use rayon::prelude::*;

use super::apply::Edit;
use super::report::StepChange;
use super::side::Side;
use super::units::moments;
use super::{DiffError, DiffOptions};

/// A cause with its size, and how the size follows from the steps.
pub(super) struct Sized {
    pub(super) edit: Edit,
    /// Log ratio, or seconds; none where the size is not known.
    pub(super) change: Option<f64>,
    /// One value a step of A, and of B, whose means give the size.
    pub(super) series: (Vec<f64>, Vec<f64>),
    /// Whether the size is half the log of the ratio of means, instead of their difference.
    pub(super) variance: bool,
}

impl Sized {
    /// Size from all steps given by index.
    fn of(&self, rows_a: &[usize], rows_b: &[usize]) -> Option<f64> {
        let mean = |series: &[f64], rows: &[usize]| {
            rows.iter().map(|&t| series[t]).sum::<f64>() / rows.len().max(1) as f64
        };
        let (a, b) = (mean(&self.series.0, rows_a), mean(&self.series.1, rows_b));
        if self.variance { (a > 0.0 && b > 0.0).then(|| 0.5 * (b / a).ln()) } else { Some(b - a) }
    }

    /// The size that resampled steps give, from where all steps gave `change`.
    fn resampled(&self, rows_a: &[usize], rows_b: &[usize]) -> Option<f64> {
        let change = self.change?;
        let all: (Vec<usize>, Vec<usize>) =
            ((0..self.series.0.len()).collect(), (0..self.series.1.len()).collect());
        match (self.of(&all.0, &all.1), self.of(rows_a, rows_b)) {
            (Some(full), Some(now)) => Some(change + now - full),
            _ => Some(change),
        }
    }
}

/// What [`explain`] finds.
pub(super) struct Explanation {
    pub(super) total: StepChange,
    pub(super) sum: StepChange,
    pub(super) joint: StepChange,
    pub(super) remainder: StepChange,
    /// By cause: added to A, removed from B.
    pub(super) single: Vec<(Option<StepChange>, Option<StepChange>)>,
}

/// Mean and p95.
type Figures = [f64; 2];

/// Predicts both sides with and without each cause.
pub(super) fn explain(
    a: &Side<'_>,
    b: &Side<'_>,
    causes: &[Sized],
    options: &DiffOptions,
) -> Result<Explanation, DiffError> {
    let run = RunOptions {
        seed: options.seed,
        samples: options.samples,
        threads: options.threads,
        ..RunOptions::default()
    };
    let lowered = LowerOptions::default();
    let tapes = (
        lower(&a.graph, a.model, &lowered)?.compile()?,
        lower(&b.graph, b.model, &lowered)?.compile()?,
    );
    let sizes: Vec<Option<f64>> = causes.iter().map(|c| c.change).collect();
    let mut own = tapes.clone();
    let full = scenarios((a, a.model), (b, b.model), causes, &sizes, &mut own, &run)?;
    let (units_a, units_b) = (units(a.model), units(b.model));
    let resamplers = (Resampler::new(a.model), Resampler::new(b.model));
    let short = RunOptions { samples: options.repetition_samples, threads: 1, ..run };
    let one = |tapes: &mut (Tape, Tape), k: usize| -> Result<Vec<Figures>, DiffError> {
        let rows_a = units_a.bootstrap(options.seed, k as u64);
        let rows_b = units_b.bootstrap(!options.seed, k as u64);
        let model_a = resamplers.0.repeat(&rows_a, &relabel(&rows_a, &a.model.windows));
        let model_b = resamplers.1.repeat(&rows_b, &relabel(&rows_b, &b.model.windows));
        let sizes: Vec<Option<f64>> =
            causes.iter().map(|c| c.resampled(&rows_a, &rows_b)).collect();
        let all = scenarios((a, &model_a), (b, &model_b), causes, &sizes, tapes, &short)?;
        Ok(all.into_iter().map(|f| f.unwrap_or([0.0; 2])).collect())
    };
    let repeated: Vec<Vec<Figures>> = if options.threads == 1 {
        let mut own = tapes.clone();
        (0..options.repetitions).map(|k| one(&mut own, k)).collect::<Result<_, _>>()?
    } else {
        (0..options.repetitions)
            .into_par_iter()
            .map_init(|| tapes.clone(), one)
            .collect::<Result<_, _>>()?
    };
    let least = units_a.len().min(units_b.len());
    let change = |i: usize| full[i].map(|f| step_change(f, &repeated, i, least, options));
    let always = |i: usize| change(i).unwrap_or_else(nothing);
    let n = causes.len();
    Ok(Explanation {
        total: always(0),
        sum: always(1),
        joint: always(2),
        remainder: always(3),
        single: (0..n).map(|k| (change(4 + k), change(4 + n + k))).collect(),
    })
}

fn nothing() -> StepChange {
    StepChange { mean_s: 0.0, mean_interval_s: None, p95_s: 0.0, p95_interval_s: None }
}

fn units(model: &DurationModel) -> Windows {
    Windows::from_labels(&resample_units(model).1)
}

/// Changes of mean and p95: total, sum of the single ones, joint, remainder, then each cause added to
/// A, then each removed from B; none for a cause that a model has no place for.
fn scenarios(
    (a, model_a): (&Side<'_>, &DurationModel),
    (b, model_b): (&Side<'_>, &DurationModel),
    causes: &[Sized],
    sizes: &[Option<f64>],
    (tape_a, tape_b): &mut (Tape, Tape),
    run: &RunOptions,
) -> Result<Vec<Option<Figures>>, DiffError> {
    let before = figures(a, model_a, tape_a, run)?;
    let after = figures(b, model_b, tape_b, run)?;
    let less = |x: Figures, y: Figures| [x[0] - y[0], x[1] - y[1]];
    let (mut added, mut removed) = (Vec::new(), Vec::new());
    let mut joint = model_a.clone();
    for (cause, size) in causes.iter().zip(sizes) {
        let Some(size) = *size else {
            added.push(None);
            removed.push(None);
            continue;
        };
        let mut with = model_a.clone();
        let possible = cause.edit.apply(a, &mut with, size);
        cause.edit.apply(a, &mut joint, size);
        added.push(if possible {
            Some(less(figures(a, &with, tape_a, run)?, before))
        } else {
            None
        });
        let mut without = model_b.clone();
        removed.push(if cause.edit.apply(b, &mut without, -size) {
            Some(less(after, figures(b, &without, tape_b, run)?))
        } else {
            None
        });
    }
    let total = less(after, before);
    let joint =
        if causes.is_empty() { [0.0; 2] } else { less(figures(a, &joint, tape_a, run)?, before) };
    let sum = added.iter().flatten().fold([0.0; 2], |s, f| [s[0] + f[0], s[1] + f[1]]);
    let mut out = vec![Some(total), Some(sum), Some(joint), Some(less(total, joint))];
    out.extend(added);
    out.extend(removed);
    Ok(out)
}

/// Mean and p95 of predicted step times, seconds.
fn figures(
    side: &Side<'_>,
    model: &DurationModel,
    tape: &mut Tape,
    run: &RunOptions,
) -> Result<Figures, DiffError> {
    let program = lower(&side.graph, model, &LowerOptions::default())?;
    if !tape.rebind(program)? {
        *tape = lower(&side.graph, model, &LowerOptions::default())?.compile()?;
    }
    let samples = tape.run(run)?;
    let row = samples.get("step").map_or(&[][..], |o| o.row(0));
    let mut times: Vec<f64> = row.iter().map(|&v| f64::from(v)).collect();
    times.sort_by(f64::total_cmp);
    Ok([moments(&times).0, quantile_type7(&times, 0.95)?])
}

/// A change with the interval that repetitions give it: Student's t with one degree of freedom less
/// than there are units, widened for resampling that few.
fn step_change(
    value: Figures,
    repeated: &[Vec<Figures>],
    at: usize,
    units: usize,
    options: &DiffOptions,
) -> StepChange {
    let interval = |k: usize| {
        if repeated.len() < 2 || units < 2 {
            return None;
        }
        let values: Vec<f64> = repeated.iter().map(|r| r[at][k]).collect();
        let n = units as f64;
        let variance = moments(&values).1 / (values.len() as f64 - 1.0) * n / (n - 1.0);
        let half =
            htest::t_quantile_upper(0.5 * (1.0 - options.confidence), n - 1.0) * variance.sqrt();
        Some(Bounds { lower: value[k] - half, upper: value[k] + half })
    };
    StepChange {
        mean_s: value[0],
        mean_interval_s: interval(0),
        p95_s: value[1],
        p95_interval_s: interval(1),
    }
}
