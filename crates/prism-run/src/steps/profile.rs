//! What runs share step by step.

use std::sync::OnceLock;

use prism_stats::stream;
use rand::RngExt;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Random circular shifts that the shared part is tested against.
const SHIFTS: usize = 499;
/// Level of that test.
const ALPHA: f64 = 0.01;
/// A deviation of the core step that depends on the step, and that the runs share.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Profile {
    /// Deviation from the level by row, as a share of it; row 0 is the model's first step.
    pub deviation: Vec<f64>,
    /// Correlation between runs, row by row.
    pub correlation: f64,
    /// Share of circular shifts that correlate as much.
    pub p_value: f64,
    /// [`Profile::tail`], once it was asked for: a long run asks at every step.
    #[serde(skip)]
    tail: OnceLock<(f64, f64)>,
}

impl PartialEq for Profile {
    fn eq(&self, other: &Self) -> bool {
        (&self.deviation, self.correlation, self.p_value)
            == (&other.deviation, other.correlation, other.p_value)
    }
}

impl Profile {
    /// Deviation at a row; after the last, see [`Profile::tail`].
    pub fn at(&self, row: usize) -> f64 {
        self.deviation.get(row).copied().unwrap_or_else(|| self.tail().0)
    }

    /// What is taken for the rows after the last: the mean of the last half, and how far off that may be (the
    /// s.d. of a number that the difference between that half's two halves was drawn from).
    pub fn tail(&self) -> (f64, f64) {
        *self.tail.get_or_init(|| self.last_half())
    }

    fn last_half(&self) -> (f64, f64) {
        let n = self.deviation.len();
        let mean = |from: usize, to: usize| {
            let part = &self.deviation[from..to];
            part.iter().sum::<f64>() / part.len().max(1) as f64
        };
        let (half, quarter) = (n / 2, n - n.div_ceil(4));
        (mean(half, n), (mean(quarter, n) - mean(half, quarter)).abs() / std::f64::consts::SQRT_2)
    }
}

/// Deviations of the runs by row, NaN where a row is no core step of the run.
pub(super) struct Deviations(pub(super) Vec<Vec<f64>>);

/// The shared part, and what it left.
pub(super) struct Split {
    pub(super) profile: Option<Profile>,
    /// Variance of a core step around level and profile, as a share of the level squared.
    pub(super) variance: f64,
    /// The rest of each run by row, NaN where there is none; its variance is (1 − 1/runs) of that.
    pub(super) rest: Vec<Vec<f64>>,
}

impl Deviations {
    fn rows(&self) -> usize {
        self.0.iter().map(Vec::len).max().unwrap_or(0)
    }

    /// Mean and number of runs at each row.
    fn means(&self) -> Vec<(f64, usize)> {
        (0..self.rows())
            .map(|i| {
                let there = self.0.iter().filter_map(|r| r.get(i)).filter(|v| v.is_finite());
                let (mut n, mut sum) = (0, 0.0);
                for v in there {
                    n += 1;
                    sum += v;
                }
                (if n > 0 { sum / n as f64 } else { f64::NAN }, n)
            })
            .collect()
    }

    fn variance(&self) -> f64 {
        let all = self.0.iter().flatten().filter(|v| v.is_finite());
        let (mut n, mut sum) = (0_usize, 0.0);
        for v in all {
            n += 1;
            sum += v * v;
        }
        sum / n.saturating_sub(self.0.len()).max(1) as f64
    }

    /// Correlation between runs, and the share of random circular shifts that reach it.
    fn shared(&self) -> (f64, f64) {
        let rows = self.0.iter().map(Vec::len).min().unwrap_or(0);
        let series: Vec<Vec<f64>> = self.0.iter().map(|r| standardised(&r[..rows])).collect();
        let runs = series.len() as f64;
        let correlation = |shifts: &[usize]| {
            let mut sum = 0.0;
            for i in 0..rows {
                let total: f64 = series
                    .iter()
                    .zip(shifts)
                    .map(|(s, k)| {
                        let at = i + k;
                        s[if at < rows { at } else { at - rows }]
                    })
                    .sum();
                sum += total * total;
            }
            (sum / (rows as f64 * runs) - 1.0) / (runs - 1.0)
        };
        let observed = correlation(&vec![0; series.len()]);
        let mut reached = 0;
        for k in 0..SHIFTS {
            let mut rng = stream(0, "profile shift", &[k as u64]);
            let shifts: Vec<usize> = series.iter().map(|_| rng.random_range(0..rows)).collect();
            reached += usize::from(correlation(&shifts) >= observed);
        }
        (observed, (1 + reached) as f64 / (1 + SHIFTS) as f64)
    }

    /// Tells the shared part from the rest.
    pub(super) fn split(self) -> Split {
        let variance = self.variance();
        let alone = |d: Deviations| Split { profile: None, variance, rest: d.0 };
        if self.0.len() < 2 || variance <= 0.0 {
            return alone(self);
        }
        let (correlation, p_value) = self.shared();
        if correlation <= 0.0 || p_value > ALPHA {
            return alone(self);
        }
        let correlation = correlation.min(1.0);
        let (signal, noise) = (correlation * variance, (1.0 - correlation) * variance);
        let means = self.means();
        let raw: Vec<f64> = means
            .iter()
            .map(|&(mean, n)| mean * signal / (signal + noise / n.max(1) as f64))
            .collect();
        let rest = self
            .0
            .iter()
            .map(|r| r.iter().zip(&means).map(|(v, (mean, n))| kept(*v, *mean, *n)).collect())
            .collect();
        let (deviation, tail) = (filled(&raw), OnceLock::new());
        let profile = Profile { deviation, correlation, p_value, tail };
        Split { profile: Some(profile), variance: noise, rest }
    }
}

/// The rest of a run at a row; nothing is known of it where the run is alone there.
fn kept(value: f64, mean: f64, runs: usize) -> f64 {
    if runs > 1 { value - mean } else { f64::NAN }
}

/// Mean 0 and variance 1; gaps become 0.
fn standardised(values: &[f64]) -> Vec<f64> {
    let there: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
    let n = there.len().max(1) as f64;
    let mean = there.iter().sum::<f64>() / n;
    let sd =
        (there.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len().max(1) as f64).sqrt();
    let scale = if sd > 0.0 { 1.0 / sd } else { 0.0 };
    values.iter().map(|v| if v.is_finite() { (v - mean) * scale } else { 0.0 }).collect()
}

/// Gaps filled by straight lines between their ends; 0 before the first value.
fn filled(values: &[f64]) -> Vec<f64> {
    let known: Vec<usize> = (0..values.len()).filter(|&i| values[i].is_finite()).collect();
    let between = |i: usize| {
        let k = known.partition_point(|&j| j < i);
        match (k.checked_sub(1).map(|b| known[b]), known.get(k)) {
            (Some(a), Some(&b)) => {
                let t = (i - a) as f64 / (b - a) as f64;
                values[a] + t * (values[b] - values[a])
            }
            (Some(a), None) => values[a],
            (None, _) => 0.0,
        }
    };
    (0..values.len()).map(|i| if values[i].is_finite() { values[i] } else { between(i) }).collect()
}
