//! Two jobs, or one before and after a change: what changed, and what did it cost?
//!
//! Both sides are calibrated profiles, compared on what the operations took. The unit is the step:
//! the operations of one step are dependent, so each *cell* (signature x replica) gives one value a
//! step, its mean log duration over microbatches. Where a series differs between windows of steps, or
//! from step to step by its neighbours ([`prism_engine::predict::units_of`]), means over windows or
//! blocks are the units. Tested are
//!
//! - compute, transfers, collectives and launch delays: contrasts at all levels from everything to one
//!   cell, each estimated against the common movement of its block (generalised least squares, which
//!   replaces a median over cells: that is ambiguous where half of the cells changed);
//! - spreads of effects: the variance that each step shows of an effect, less what the level below adds
//!   to it, compared like a mean (this takes the place of a Brown-Forsythe test, which would see a
//!   doubled microbatch effect in the step effect too); residuals by their log s.d. within steps.
//!
//! Each test is Welch's t (Student's with fewer than six units on a side), all of them are corrected together by Holm's procedure, and each finding is
//! confirmed by a permutation test of the studentised difference where the number of units allows; one
//! that is not confirmed is not reported. Causes are separated by stepping down: the contrast that
//! explains most is taken out of the cells it covers, the rest is tested again, and causes on the same
//! cells are fitted together.
//!
//! Not compared are positions of microbatches and persistent spreads of workers. Where windows of steps
//! differ, a few windows show large changes only: with four on either side, a kernel's 3 % is lost among
//! a hundred tests.
//!
//! Step time: both sides are predicted under common random numbers; each cause is put into A's model and
//! taken out of B's.

mod apply;
mod cells;
mod error;
mod explain;
mod find;
mod gls;
mod overall;
mod report;
mod side;
mod spread;
mod units;

pub use error::DiffError;
pub use report::{
    DiffReport, EffectChange, Explained, Finding, Measure, Overall, Part, Parts, Scope,
    StatisticChange, StepChange, TwoSampleTest, Unmatched,
};

use prism_engine::calibrate::windows;
use prism_engine::predict::Bounds;
use prism_engine::profile::Profile;
use prism_model::{DurationModel, EffectKind};

use apply::Edit;
use explain::{Explanation, Sized, explain};
use find::{Cause, Search, Setting, search};
use overall::{Times, overall};
use side::Side;
use units::{Steps, moments};

/// Version of the schema.
pub const DIFF_SCHEMA: &str = "prism.diff/1";

/// Causes whose effect on step time is computed; the rest are reported without.
const MOST_EXPLAINED: usize = 12;

/// How to compare.
#[derive(Clone, Debug, PartialEq)]
pub struct DiffOptions {
    /// Level of corrected p-values.
    pub alpha: f64,
    /// Confidence of intervals.
    pub confidence: f64,
    /// Seed.
    pub seed: u64,
    /// Threads; 0 for all. No result depends on it.
    pub threads: usize,
    /// Samples of each predicted distribution.
    pub samples: usize,
    /// Bootstrap repetitions of the explanation; 0 for none.
    pub repetitions: usize,
    /// Samples of each repetition.
    pub repetition_samples: usize,
}

impl Default for DiffOptions {
    fn default() -> Self {
        DiffOptions {
            alpha: 0.05,
            confidence: 0.95,
            seed: 1,
            threads: 0,
            samples: 4_096,
            repetitions: 40,
            repetition_samples: 512,
        }
    }
}

impl DiffOptions {
    fn check(&self) -> Result<(), DiffError> {
        for (what, value) in [("alpha", self.alpha), ("confidence", self.confidence)] {
            if !(value > 0.0 && value < 1.0) {
                let rule = "strictly between 0 and 1";
                return Err(DiffError::Setting { what, value, rule });
            }
        }
        let samples = self.samples.min(self.repetition_samples);
        if samples < 2 {
            let (what, value) = ("samples", samples as f64);
            return Err(DiffError::Setting { what, value, rule: "at least 2" });
        }
        Ok(())
    }
}

/// Compares two calibrated jobs.
///
/// # Errors
/// [`DiffError`] if nothing matches, a side has fewer than two steps, or a profile is damaged.
pub fn diff(a: &Profile, b: &Profile, options: &DiffOptions) -> Result<DiffReport, DiffError> {
    options.check()?;
    let (a, b) = (Side::new(a)?, Side::new(b)?);
    let steps = |side: &Side<'_>| Steps {
        ids: side.model.steps.clone(),
        windows: side.model.windows.clone(),
    };
    let (steps_a, steps_b) = (steps(&a), steps(&b));
    let times = |side: &Side<'_>| side.profile.recorded_step_s.clone();
    let (times_a, times_b) = (times(&a), times(&b));
    let overall = overall(
        &Times { steps: &steps_a, step_s: &times_a },
        &Times { steps: &steps_b, step_s: &times_b },
        options.confidence,
        options.seed,
    )?;
    let mut warnings = plan_warnings(&a, &b);
    warnings.extend(window_warnings(&steps_a, &steps_b));
    let parts = parts(&a, &b, (&steps_a, &steps_b), options, &mut warnings)?;
    Ok(DiffReport {
        schema: DIFF_SCHEMA.to_owned(),
        confidence: options.confidence,
        alpha: options.alpha,
        seed: options.seed,
        overall,
        parts: Some(parts),
        warnings,
    })
}

/// Compares two step logs: step ids, ascending, and step times, seconds.
///
/// # Errors
/// [`DiffError`] if a side has fewer than two steps or a time that is not positive.
pub fn diff_steps(
    a: (&[i64], &[f64]),
    b: (&[i64], &[f64]),
    options: &DiffOptions,
) -> Result<DiffReport, DiffError> {
    options.check()?;
    let steps = |ids: &[i64]| Steps { ids: ids.to_vec(), windows: windows(ids) };
    let (steps_a, steps_b) = (steps(a.0), steps(b.0));
    let overall = overall(
        &Times { steps: &steps_a, step_s: a.1 },
        &Times { steps: &steps_b, step_s: b.1 },
        options.confidence,
        options.seed,
    )?;
    Ok(DiffReport {
        schema: DIFF_SCHEMA.to_owned(),
        confidence: options.confidence,
        alpha: options.alpha,
        seed: options.seed,
        overall,
        parts: None,
        warnings: window_warnings(&steps_a, &steps_b),
    })
}

fn plan_warnings(a: &Side<'_>, b: &Side<'_>) -> Vec<String> {
    let mut out = Vec::new();
    let (x, y) = (a.model.replicas, b.model.replicas);
    if x != y {
        out.push(format!(
            "A has {x} replicas, B has {y}: ranks are not compared, signatures are by their mean"
        ));
    }
    let (x, y) = (a.graph.stages(), b.graph.stages());
    if x != y {
        out.push(format!(
            "A has {x} stages, B has {y}: stages of the same number hold other layers"
        ));
    }
    let (x, y) = (a.model.microbatches, b.model.microbatches);
    if x != y {
        out.push(format!(
            "A has {x} microbatches a step, B has {y}: operations are compared one by one, which means \
             little if their sizes differ"
        ));
    }
    out
}

fn window_warnings(a: &Steps, b: &Steps) -> Vec<String> {
    let count = |s: &Steps| s.windows.last().map_or(1, |w| w + 1);
    let one: Vec<&str> =
        [("A", a), ("B", b)].into_iter().filter(|(_, s)| count(s) < 2).map(|(n, _)| n).collect();
    match one.as_slice() {
        [] => Vec::new(),
        sides => vec![format!(
            "{} recorded in one window of steps: how far runs of one job differ from each other is in no \
             interval",
            if sides.len() == 2 {
                "A and B were each"
            } else if sides[0] == "A" {
                "A was"
            } else {
                "B was"
            }
        )],
    }
}

/// What changed inside the step.
fn parts(
    a: &Side<'_>,
    b: &Side<'_>,
    (steps_a, steps_b): (&Steps, &Steps),
    options: &DiffOptions,
    warnings: &mut Vec<String>,
) -> Result<Parts, DiffError> {
    let (mut blocks, unmatched) = cells::blocks(a, b);
    if blocks.iter().all(|block| block.part != Part::Compute) {
        return Err(DiffError::NothingMatches);
    }
    let spreads = spread::blocks(a, b, &blocks);
    blocks.extend(spreads);
    let setting = Setting { a: steps_a, b: steps_b, alpha: options.alpha, seed: options.seed };
    let search = search(blocks, &setting);
    let sized: Vec<Sized> = search.causes.iter().map(|c| sized(a, b, &search, c)).collect();
    let shown = sized.len().min(MOST_EXPLAINED);
    if shown < sized.len() {
        warnings.push(format!(
            "{} findings; the effect on step time is computed for the first {shown}",
            sized.len()
        ));
    }
    let explanation = explain(a, b, &sized[..shown], options)?;
    let mut findings: Vec<Finding> = search
        .causes
        .iter()
        .zip(&sized)
        .map(|(cause, sized)| finding(&search, cause, sized, options.confidence))
        .collect();
    let Explanation { total, sum, joint, remainder, single } = explanation;
    for (finding, (added, removed)) in findings.iter_mut().zip(single) {
        finding.added_to_a = added;
        finding.removed_from_b = removed;
    }
    let cost = |f: &Finding| f.added_to_a.as_ref().map_or(0.0, |c| c.mean_s.abs());
    findings.sort_by(|x, y| cost(y).total_cmp(&cost(x)));
    Ok(Parts {
        tests: search.contrasts.len(),
        findings,
        explained: Explained {
            recorded_mean_s: b.mean_step_s() - a.mean_step_s(),
            total,
            sum,
            joint,
            remainder,
            samples: options.samples,
            repetitions: options.repetitions,
        },
        effects: effects(a.model, b.model, &search),
        unmatched,
        a_builder: a.profile.provenance.builder,
        b_builder: b.profile.provenance.builder,
    })
}

/// Whether a cause's values are variances.
fn is_variance(search: &Search, cause: &Cause) -> bool {
    let contrast = &search.contrasts[cause.contrast];
    contrast.scope.part == Part::Spread && contrast.scope.effect != Some(EffectKind::Residual)
}

/// A cause's size and the series it follows from.
fn sized(a: &Side<'_>, b: &Side<'_>, search: &Search, cause: &Cause) -> Sized {
    let contrast = &search.contrasts[cause.contrast];
    let block = &search.blocks[contrast.block].block;
    let variance = is_variance(search, cause);
    let series = (find::combine(&block.a, &cause.weights), find::combine(&block.b, &cause.weights));
    let change = if variance {
        let (x, y) = (moments(&series.0).0, moments(&series.1).0);
        (x > 0.0 && y > 0.0).then(|| 0.5 * (y / x).ln())
    } else {
        Some(cause.test.difference)
    };
    let cells = contrast.cells.iter().map(|&c| block.cells[c].clone()).collect();
    let what = (contrast.scope.clone(), block.measure);
    Sized { edit: Edit::new(a, b, what, cells, change.unwrap_or(0.0)), change, series, variance }
}

fn finding(search: &Search, cause: &Cause, sized: &Sized, confidence: f64) -> Finding {
    let contrast = &search.contrasts[cause.contrast];
    let block = &search.blocks[contrast.block].block;
    let half = cause.test.half_width(confidence);
    let level = |lanes: &[Vec<f64>]| {
        let means = contrast.cells.iter().map(|&c| moments(&lanes[c]).0);
        means.sum::<f64>() / contrast.cells.len() as f64
    };
    let (a, b) = (level(&block.a), level(&block.b));
    let between = |low: f64, high: f64| Some(Bounds { lower: low, upper: high });
    let difference = cause.test.difference;
    let (a, b, change, interval) = if sized.variance {
        let sd = |v: f64| v.max(0.0).sqrt();
        let ratio = sized.change.map_or(f64::INFINITY, |c| c.exp() - 1.0);
        // The variance of B less that of A has the error of the test; relative to A's it is that of
        // the ratio of variances, to first order.
        let ends = sized.change.map(|_| {
            let end = |d: f64| ((a + d).max(0.0) / a).sqrt() - 1.0;
            Bounds { lower: end(difference - half), upper: end(difference + half) }
        });
        (sd(a), sd(b), ratio, ends)
    } else if block.measure == Measure::Seconds {
        (a, b, difference, between(difference - half, difference + half))
    } else {
        let ends = between((difference - half).exp_m1(), (difference + half).exp_m1());
        (a.exp(), b.exp(), difference.exp_m1(), ends)
    };
    Finding {
        name: contrast.scope.to_string(),
        scope: contrast.scope.clone(),
        measure: block.measure,
        cells: contrast.cells.len(),
        a,
        b,
        change: if change.is_finite() { change } else { b - a },
        interval,
        p_value: cause.p_value,
        p_corrected: cause.p_corrected,
        p_permutation: cause.p_permutation,
        unit: cause.unit,
        units: cause.units,
        added_to_a: None,
        removed_from_b: None,
    }
}

/// Effects of both models with the tests of their spreads.
fn effects(a: &DurationModel, b: &DurationModel, search: &Search) -> Vec<EffectChange> {
    let of = |model: &DurationModel, kind| {
        model.effects.iter().find(|e| e.kind == kind && e.kept).map(|e| e.sd_log)
    };
    let mut kinds: Vec<EffectKind> = a.effects.iter().chain(&b.effects).map(|e| e.kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
        .into_iter()
        .map(|effect| EffectChange {
            effect,
            a_sd_log: of(a, effect),
            b_sd_log: of(b, effect),
            p_corrected: search
                .contrasts
                .iter()
                .zip(&search.p_first)
                .filter(|(c, _)| c.scope.effect == Some(effect))
                .map(|(_, p)| *p)
                .reduce(f64::min),
        })
        .collect()
}
