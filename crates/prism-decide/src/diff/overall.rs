//! Recorded step times of both sides.

use prism_engine::predict::{Bounds, ResampleUnit};
use prism_stats::quantile::sorted;
use prism_stats::{htest, ks, ks_statistic_two, quantile_type7, resample::Windows};

use super::DiffError;
use super::report::{Overall, StatisticChange, TwoSampleTest};
use super::units::{FEW_UNITS, Steps, compare, moments, pair, unit_of};

/// Step times of one side with the steps they belong to.
pub(super) struct Times<'a> {
    pub(super) steps: &'a Steps,
    /// Seconds.
    pub(super) step_s: &'a [f64],
}

/// Name and, for quantiles, probability.
const STATISTICS: [(&str, Option<f64>); 4] =
    [("mean", None), ("p50", Some(0.5)), ("p95", Some(0.95)), ("sd", None)];

/// Values resampled in all, so that long logs take no longer than short ones many times over.
const BUDGET: usize = 8_000_000;

/// Compares recorded step times.
pub(super) fn overall(
    a: &Times<'_>,
    b: &Times<'_>,
    confidence: f64,
    seed: u64,
) -> Result<Overall, DiffError> {
    for (side, times) in [("A", a), ("B", b)] {
        if times.step_s.len() < 2 {
            return Err(DiffError::TooFewSteps { side, steps: times.step_s.len() });
        }
        let wrong = times.step_s.iter().position(|v| !(v.is_finite() && *v > 0.0));
        if let Some(t) = wrong {
            let (step, value_s) = (times.steps.ids[t], times.step_s[t]);
            return Err(DiffError::StepTime { side, step, value_s });
        }
    }
    let unit = unit_of((a.steps, a.step_s), (b.steps, b.step_s));
    let (own_a, own_b) = (Resampled::new(a, unit), Resampled::new(b, unit));
    let repetitions = (BUDGET / (a.step_s.len() + b.step_s.len())).clamp(200, 1_000);
    // The two sides are independent: each has a stream of its own.
    let (rows_a, rows_b) = (own_a.repeat(repetitions, seed), own_b.repeat(repetitions, !seed));
    let (stats_a, stats_b) = (own_a.all(), own_b.all());
    let units = own_a.units.len().min(own_b.units.len());
    let statistics = STATISTICS
        .iter()
        .enumerate()
        .map(|(k, (name, p))| {
            let logs: Vec<f64> =
                rows_a.iter().zip(&rows_b).map(|(x, y)| (y[k] / x[k]).ln()).collect();
            let ratio = stats_b[k] / stats_a[k];
            StatisticChange {
                statistic: (*name).to_owned(),
                a_s: stats_a[k],
                b_s: stats_b[k],
                ratio: ratio.is_finite().then_some(ratio),
                ratio_interval: if *name == "mean" && units < 2 {
                    single(a, b, ratio, confidence)
                } else {
                    interval(ratio, &logs, units, *p, confidence)
                },
            }
        })
        .collect();
    Ok(Overall {
        a_steps: a.step_s.len(),
        b_steps: b.step_s.len(),
        unit,
        a_units: own_a.units.len(),
        b_units: own_b.units.len(),
        statistics,
        tests: tests(a, b)?,
    })
}

/// Student's interval of a log ratio from bootstrap replicates. Of n units `4p(1 − p)·n` tell of
/// quantile p, as for predictions.
fn interval(
    ratio: f64,
    logs: &[f64],
    units: usize,
    p: Option<f64>,
    confidence: f64,
) -> Option<Bounds> {
    if units < 2 || !(ratio.is_finite() && ratio > 0.0) || logs.iter().any(|l| !l.is_finite()) {
        return None;
    }
    let n = units as f64;
    let most = n - 1.0;
    let freedom = p.map_or(most, |p| (4.0 * p * (1.0 - p) * n - 1.0).clamp(most.min(3.0), most));
    let variance = moments(logs).1 / (logs.len() as f64 - 1.0);
    let half = htest::t_quantile_upper(0.5 * (1.0 - confidence), freedom)
        * (variance * n / (n - 1.0)).sqrt();
    Some(Bounds { lower: ratio * (-half).exp(), upper: ratio * half.exp() })
}

/// Interval of the ratio of means where one side is a single unit, so that nothing can be resampled:
/// Student's, which takes the other side's variance between units for both.
fn single(a: &Times<'_>, b: &Times<'_>, ratio: f64, confidence: f64) -> Option<Bounds> {
    let pair = pair((a.steps, a.step_s), (b.steps, b.step_s));
    let half = compare(&pair.a, &pair.b, 0.0).half_width(confidence) / moments(&pair.a).0;
    half.is_finite().then_some(Bounds { lower: (ratio - half).max(0.0), upper: ratio + half })
}

/// Step times by rank, to take statistics of any resample in one pass.
struct Resampled {
    sorted: Vec<f64>,
    rank: Vec<usize>,
    units: Windows,
}

impl Resampled {
    fn new(times: &Times<'_>, unit: ResampleUnit) -> Resampled {
        let mut order: Vec<usize> = (0..times.step_s.len()).collect();
        order.sort_by(|&i, &j| times.step_s[i].total_cmp(&times.step_s[j]));
        let mut rank = vec![0; order.len()];
        order.iter().enumerate().for_each(|(r, &i)| rank[i] = r);
        Resampled {
            sorted: order.iter().map(|&i| times.step_s[i]).collect(),
            rank,
            units: times.steps.units(unit),
        }
    }

    fn all(&self) -> [f64; 4] {
        statistics(&self.sorted)
    }

    fn repeat(&self, repetitions: usize, seed: u64) -> Vec<[f64; 4]> {
        (0..repetitions as u64)
            .map(|k| {
                let mut count = vec![0_u32; self.sorted.len()];
                for t in self.units.bootstrap(seed, k) {
                    count[self.rank[t]] += 1;
                }
                let drawn: Vec<f64> = self
                    .sorted
                    .iter()
                    .zip(&count)
                    .flat_map(|(&v, &c)| std::iter::repeat_n(v, c as usize))
                    .collect();
                statistics(&drawn)
            })
            .collect()
    }
}

/// The figures of [`STATISTICS`], of ascending values.
fn statistics(sorted: &[f64]) -> [f64; 4] {
    let (mean, squares) = moments(sorted);
    let quantile = |p| quantile_type7(sorted, p).unwrap_or(f64::NAN);
    let sd = (squares / (sorted.len() as f64 - 1.0).max(1.0)).sqrt();
    [mean, quantile(0.5), quantile(0.95), sd]
}

/// Welch, Mann-Whitney and Kolmogorov-Smirnov on independent units.
fn tests(a: &Times<'_>, b: &Times<'_>) -> Result<Vec<TwoSampleTest>, DiffError> {
    let pair = pair((a.steps, a.step_s), (b.steps, b.step_s));
    let mut out = Vec::new();
    let test = compare(&pair.a, &pair.b, 0.0);
    let p = test.p_value(test.difference);
    if test.standard_error > 0.0 {
        out.push(TwoSampleTest {
            name: if pair.a.len().min(pair.b.len()) < FEW_UNITS {
                "Student t (mean)".to_owned()
            } else {
                "Welch t (mean)".to_owned()
            },
            statistic: test.difference / test.standard_error,
            p_value: p,
        });
    }
    if let Ok(ranks) = htest::kruskal_wallis(&[&pair.a, &pair.b]) {
        out.push(TwoSampleTest {
            name: "Mann-Whitney (level)".to_owned(),
            statistic: ranks.statistic,
            p_value: ranks.p_value,
        });
    }
    let (x, y) = (sorted(&pair.a), sorted(&pair.b));
    let distance = ks_statistic_two(&x, &y)?;
    out.push(TwoSampleTest {
        name: "Kolmogorov-Smirnov (law)".to_owned(),
        statistic: distance,
        p_value: ks::ks_sf_two(x.len(), y.len(), distance),
    });
    Ok(out)
}
