//! How often to save.

use prism_job::run::{Every, RunPlan};
use prism_stats::stream;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::simulate::{Options, simulate};
use crate::summary::{Estimate, ratio};
use crate::{RunError, Steps, formula};

/// An interval tried.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Tried {
    /// Seconds of training between checkpoints.
    pub interval_s: f64,
    /// Mean completion time, seconds.
    pub mean_s: f64,
}

/// The best interval between checkpoints, and what it is worth.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BestInterval {
    /// Seconds of training between checkpoints that make the mean completion time least, with the
    /// interval of its sampling error (jackknife over groups of runs).
    pub interval_s: Estimate,
    /// Whether it is the shortest or longest that was tried: the optimum lies at or beyond it.
    pub at_edge: bool,
    /// Intervals that cost less than a thousandth more, seconds.
    pub flat_s: [f64; 2],
    /// Mean completion time at half of it (the shortest possible if that is longer) over that at it,
    /// paired.
    pub half: Estimate,
    /// The same at twice of it.
    pub double: Estimate,
    /// Mean completion time at the plan's interval over that at the best.
    pub planned: Estimate,
    /// Young's interval, for comparison; none where training does not stop for checkpoints.
    pub young_s: Option<f64>,
    /// Daly's interval, likewise.
    pub daly_s: Option<f64>,
    /// All intervals tried.
    pub tried: Vec<Tried>,
}

/// Groups of runs of the jackknife.
const GROUPS: usize = 20;

/// Factor between intervals tried.
const RATIO: f64 = std::f64::consts::SQRT_2;

/// Intervals tried on each side of the first guess.
const REACH: i32 = 7;

/// Least share by which an interval counts as worse.
const FLAT: f64 = 1e-3;

/// Finds the best interval between checkpoints by simulation under common random numbers.
///
/// Intervals a factor of √2 apart are tried. Around the best of them the mean completion time is fitted by
/// `a/x + b·(e^x − 1 − x)/x + c` (checkpoints, lost work, the rest), x the interval over the mean time
/// between failures: the form of [`formula::daly_time_s`], to first order that of any policy that goes
/// back to checkpoints. The least value of the fit is the answer.
///
/// # Errors
/// If the plan has no checkpoints or no failures, runs do not end, or as [`simulate`].
pub fn best_interval(
    steps: &dyn Steps,
    plan: &RunPlan,
    options: &Options,
    confidence: f64,
) -> Result<BestInterval, RunError> {
    let checkpoint = plan.checkpoint.ok_or(RunError::Missing {
        what: "checkpoints",
        hint: "write `[run.checkpoint]` with `interval`, `blocking`, `write` and `load`",
    })?;
    let rate = plan.failures.job_rate(&plan.machines);
    if rate <= 0.0 {
        let hint =
            "without failures the best run saves nothing: name a preset or class of failures";
        return Err(RunError::Missing { what: "failures", hint });
    }
    let step_s = steps.pace(&mut stream(options.seed, "run-pace", &[0])).core_s;
    let shortest_s = step_s.max(checkpoint.write_s);
    let analytic = |s: f64| Some(s).filter(|_| checkpoint.blocking_s > 0.0);
    let daly_s = formula::daly_s(checkpoint.blocking_s, 1.0 / rate)?;
    let mut study = Study { steps, plan, options, mtbf_s: 1.0 / rate, tried: Vec::new() };
    let centre_s = daly_s.max(shortest_s);
    for i in -REACH..=REACH {
        let interval_s = centre_s * RATIO.powi(i);
        if interval_s >= shortest_s * (1.0 - 1e-9) {
            study.at(interval_s)?;
        }
    }
    let fit = study.optimum(None);
    let (best_s, at_edge) = study.inside(&fit);
    let error = study.error(best_s);
    let z = -prism_stats::htest::normal_quantile(0.5 * (1.0 - confidence));
    let best = study.totals(best_s)?;
    let against = |interval_s: f64| ratio(&study.totals(interval_s)?, &best, confidence);
    let planned_s = match checkpoint.every {
        Every::Time(interval_s) => interval_s,
        Every::Steps(n) => n as f64 * step_s,
    };
    Ok(BestInterval {
        interval_s: Estimate {
            value: best_s,
            lower: best_s * (-z * error).exp(),
            upper: best_s * (z * error).exp(),
        },
        at_edge,
        flat_s: study.flat(&fit, best_s),
        half: against((0.5 * best_s).max(shortest_s))?,
        double: against(2.0 * best_s)?,
        planned: against(planned_s.max(shortest_s))?,
        young_s: analytic(formula::young_s(checkpoint.blocking_s, 1.0 / rate)?),
        daly_s: analytic(daly_s),
        tried: study.means(None),
    })
}

/// Intervals tried so far.
struct Study<'a> {
    steps: &'a dyn Steps,
    plan: &'a RunPlan,
    options: &'a Options,
    /// Mean time between failures of the job, seconds.
    mtbf_s: f64,
    /// Interval, and mean completion time of each group of runs.
    tried: Vec<(f64, Vec<f64>)>,
}

/// `a/x + b·(e^x − 1 − x)/x + c`.
#[derive(Clone, Copy, Debug)]
struct Curve {
    a: f64,
    b: f64,
    c: f64,
}

/// `(e^x − 1 − x)/x`, about x/2: the share of work that is lost.
fn lost(x: f64) -> f64 {
    // Beyond, nothing is left to compare.
    x.min(500.0).exp_m1() / x - 1.0
}

impl Curve {
    fn at(&self, x: f64) -> f64 {
        self.a / x + self.b * lost(x) + self.c
    }

    /// Where it falls no more, between two ends: it is convex for a and b above 0.
    fn least(&self, mut low: f64, mut high: f64) -> f64 {
        for _ in 0..200 {
            let x = 0.5 * (low + high);
            // x²·derivative: b·((x − 1)·e^x + 1) − a.
            if self.b * ((x - 1.0) * x.min(500.0).exp() + 1.0) < self.a {
                low = x;
            } else {
                high = x;
            }
        }
        0.5 * (low + high)
    }
}

impl Study<'_> {
    /// Completion times at an interval.
    fn totals(&self, interval_s: f64) -> Result<Vec<f64>, RunError> {
        let mut plan = self.plan.clone();
        if let Some(checkpoint) = &mut plan.checkpoint {
            checkpoint.every = Every::Time(interval_s);
        }
        let runs = simulate(self.steps, &plan, self.options)?;
        match runs.unfinished() {
            0 => Ok(runs.totals_s()),
            unfinished => Err(RunError::Unfinished {
                unfinished,
                runs: runs.outcomes.len() as u64,
                horizon: runs.horizon,
            }),
        }
    }

    fn at(&mut self, interval_s: f64) -> Result<(), RunError> {
        let totals_s = match self.totals(interval_s) {
            // Far from the optimum a run may get nowhere; that is not where to look.
            Err(RunError::Unfinished { .. }) if !self.tried.is_empty() => return Ok(()),
            totals => totals?,
        };
        let size = totals_s.len().div_ceil(GROUPS);
        let mean = |g: &[f64]| g.iter().sum::<f64>() / g.len() as f64;
        self.tried.push((interval_s, totals_s.chunks(size).map(mean).collect()));
        Ok(())
    }

    /// Mean of each interval, a group left out or none.
    fn means(&self, without: Option<usize>) -> Vec<Tried> {
        let mean = |groups: &[f64]| {
            let kept = groups.iter().enumerate().filter(|g| Some(g.0) != without);
            kept.clone().map(|g| g.1).sum::<f64>() / kept.count() as f64
        };
        let tried = self.tried.iter();
        tried.map(|(interval_s, g)| Tried { interval_s: *interval_s, mean_s: mean(g) }).collect()
    }

    /// The curve around the best of the intervals tried, by least squares.
    fn optimum(&self, without: Option<usize>) -> Curve {
        let all = self.means(without);
        let least = self.means(None).into_iter().min_by(|x, y| x.mean_s.total_cmp(&y.mean_s));
        let centre_s = least.map_or(1.0, |t: Tried| t.interval_s);
        let near = all.iter().filter(|t| (t.interval_s / centre_s).ln().abs() < 3.5 * RATIO.ln());
        // Normal equations, columns and right side relative to the centre, solved by elimination.
        let centre = centre_s / self.mtbf_s;
        let least_s = least.map_or(0.0, |t| t.mean_s);
        let mut m = [[0.0; 4]; 3];
        for t in near {
            let x = t.interval_s / self.mtbf_s;
            let row = [centre / x, lost(x) / lost(centre), 1.0, t.mean_s - least_s];
            for i in 0..3 {
                for j in 0..4 {
                    m[i][j] += row[i] * row[j];
                }
            }
        }
        let [a, b, c] = solve(m);
        Curve { a: a * centre, b: b / lost(centre), c: c + least_s }
    }

    /// The shortest and the longest interval tried.
    fn ends(&self) -> (f64, f64) {
        let ends = self.tried.iter().map(|t| t.0);
        (ends.clone().fold(f64::INFINITY, f64::min), ends.fold(0.0, f64::max))
    }

    /// The least of a curve, inside what was tried; whether it is at an end.
    fn inside(&self, curve: &Curve) -> (f64, bool) {
        let (low_s, high_s) = self.ends();
        let best_s = match (curve.a > 0.0, curve.b > 0.0) {
            (true, true) => curve.least(low_s / self.mtbf_s, high_s / self.mtbf_s) * self.mtbf_s,
            (false, _) => low_s,
            (true, false) => high_s,
        };
        let near = |end_s: f64| (best_s / end_s - 1.0).abs() < 1e-6;
        (best_s, near(low_s) || near(high_s))
    }

    /// Standard error of the log of the optimum: jackknife over groups.
    fn error(&self, best_s: f64) -> f64 {
        let n = self.tried.first().map_or(0, |t| t.1.len());
        let left_out = (0..n).map(|g| (self.inside(&self.optimum(Some(g))).0 / best_s).ln());
        let left_out: Vec<f64> = left_out.collect();
        let mean = left_out.iter().sum::<f64>() / n as f64;
        let squares: f64 = left_out.iter().map(|l| (l - mean) * (l - mean)).sum();
        ((n as f64 - 1.0) / n as f64 * squares).sqrt()
    }

    /// Where the curve is less than a thousandth above its least.
    fn flat(&self, curve: &Curve, best_s: f64) -> [f64; 2] {
        let bound = curve.at(best_s / self.mtbf_s) * (1.0 + FLAT);
        let reach = |mut out_s: f64| {
            let mut in_s = best_s;
            if curve.at(out_s / self.mtbf_s) <= bound {
                return out_s;
            }
            for _ in 0..100 {
                let middle_s = 0.5 * (in_s + out_s);
                if curve.at(middle_s / self.mtbf_s) <= bound {
                    in_s = middle_s;
                } else {
                    out_s = middle_s;
                }
            }
            in_s
        };
        let (low_s, high_s) = self.ends();
        [reach(low_s), reach(high_s)]
    }
}

/// Solves three linear equations, each with its right side behind it.
fn solve(mut m: [[f64; 4]; 3]) -> [f64; 3] {
    for i in 0..3 {
        let pivot = (i..3).max_by(|p, q| m[*p][i].abs().total_cmp(&m[*q][i].abs())).unwrap_or(i);
        m.swap(i, pivot);
        let base = m[i];
        for (at, row) in m.iter_mut().enumerate() {
            if at != i {
                let factor = row[i] / base[i];
                row.iter_mut().zip(base).for_each(|(value, b)| *value -= factor * b);
            }
        }
    }
    [m[0][3] / m[0][0], m[1][3] / m[1][1], m[2][3] / m[2][2]]
}
