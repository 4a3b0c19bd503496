//! The bootstrap over windows of steps, and what to make of its replicates.

use std::collections::BTreeMap;

use rand::RngExt;

use crate::error::{Result, StatsError, check_open_unit, check_sample};
use crate::htest::{normal_cdf, t_quantile_upper};
use crate::interval::Interval;
use crate::quantile::{sorted, type7_unchecked};
use crate::stream::stream;

/// Indices of one i.i.d. bootstrap sample of `n` entries; a function of (seed, replicate).
pub fn iid_indices(n: usize, seed: u64, replicate: u64) -> Vec<usize> {
    let mut rng = stream(seed, "bootstrap-iid", &[replicate]);
    (0..n).map(|_| rng.random_range(0..n)).collect()
}

/// Entries grouped in windows of neighbouring, dependent steps; the unit of resampling.
///
/// ```
/// use prism_stats::resample::Windows;
///
/// let windows = Windows::from_labels(&[7, 7, 9, 9, 9]);
/// let sample = windows.bootstrap(1, 0);
/// // Two windows are drawn; each comes whole and in order.
/// assert!(sample.len() == 4 || sample.len() == 5 || sample.len() == 6);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Windows {
    members: Vec<Vec<usize>>,
}

impl Windows {
    /// Groups the entries `0..labels.len()` by label, windows in the order of their labels, entries of a
    /// window in their own order.
    pub fn from_labels(labels: &[u64]) -> Self {
        let mut groups: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for (i, &label) in labels.iter().enumerate() {
            groups.entry(label).or_default().push(i);
        }
        Self { members: groups.into_values().collect() }
    }

    /// Number of windows.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The entries of each window.
    pub fn members(&self) -> &[Vec<usize>] {
        &self.members
    }

    /// Indices of one bootstrap sample: as many windows as there are, drawn with replacement, each
    /// whole. A function of (seed, replicate). With windows of unequal length the number of entries
    /// varies, as it must for a ratio estimate such as a mean over steps to be consistent.
    pub fn bootstrap(&self, seed: u64, replicate: u64) -> Vec<usize> {
        let mut rng = stream(seed, "bootstrap-windows", &[replicate]);
        let n = self.members.len();
        (0..n).flat_map(|_| self.members[rng.random_range(0..n)].iter().copied()).collect()
    }

    /// All entries but those of one window.
    pub fn without(&self, window: usize) -> Vec<usize> {
        let mut rest: Vec<usize> = self
            .members
            .iter()
            .enumerate()
            .filter(|(i, _)| *i != window)
            .flat_map(|(_, m)| m.iter().copied())
            .collect();
        rest.sort_unstable();
        rest
    }

    /// Leave-one-window-out jackknife of a statistic of the entries.
    ///
    /// Windows weigh equally, so lengths should not differ much; for a quantile the jackknife is not
    /// consistent, use the bootstrap.
    ///
    /// # Errors
    /// If there are fewer than two windows.
    pub fn jackknife(&self, mut statistic: impl FnMut(&[usize]) -> f64) -> Result<Jackknife> {
        let n = self.members.len();
        if n < 2 {
            return Err(StatsError::TooFew { method: "a jackknife (windows)", have: n, need: 2 });
        }
        let mut all: Vec<usize> = self.members.iter().flatten().copied().collect();
        all.sort_unstable();
        let estimate = statistic(&all);
        let left_out: Vec<f64> = (0..n).map(|i| statistic(&self.without(i))).collect();
        let size = n as f64;
        let mean = left_out.iter().sum::<f64>() / size;
        let squares: f64 = left_out.iter().map(|v| (v - mean) * (v - mean)).sum();
        Ok(Jackknife {
            estimate,
            bias: (size - 1.0) * (mean - estimate),
            standard_error: ((size - 1.0) / size * squares).sqrt(),
            windows: n,
        })
    }
}

/// A jackknifed statistic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Jackknife {
    /// The statistic of all entries.
    pub estimate: f64,
    /// Its estimated bias; subtract it to correct.
    pub bias: f64,
    /// Its standard error.
    pub standard_error: f64,
    /// Number of windows.
    pub windows: usize,
}

fn check(replicates: &[f64], confidence: f64) -> Result<()> {
    check_open_unit("confidence", confidence)?;
    check_sample(replicates, 2, "a bootstrap interval")
}

fn between(replicates: &[f64], tail: f64, confidence: f64) -> Interval {
    let sorted = sorted(replicates);
    Interval {
        lower: type7_unchecked(&sorted, tail),
        upper: type7_unchecked(&sorted, 1.0 - tail),
        confidence,
    }
}

/// The percentile interval: the central share of the replicates. Too narrow for few windows.
///
/// # Errors
/// If there are fewer than two replicates, one is not finite, or the confidence is not in (0, 1).
pub fn percentile_interval(replicates: &[f64], confidence: f64) -> Result<Interval> {
    check(replicates, confidence)?;
    Ok(between(replicates, 0.5 * (1.0 - confidence), confidence))
}

/// The basic interval: the percentile interval mirrored at the estimate.
///
/// # Errors
/// As [`percentile_interval`].
pub fn basic_interval(estimate: f64, replicates: &[f64], confidence: f64) -> Result<Interval> {
    let percentile = percentile_interval(replicates, confidence)?;
    Ok(Interval {
        lower: 2.0 * estimate - percentile.upper,
        upper: 2.0 * estimate - percentile.lower,
        confidence,
    })
}

/// The s.d. of the replicates times Student's t with `windows` − 1 degrees of freedom, widened by
/// √(W/(W−1)) for the bias of resampling W units: right for a mean even with few windows.
///
/// # Errors
/// As [`percentile_interval`], and if there are fewer than two windows.
pub fn t_interval(
    estimate: f64,
    replicates: &[f64],
    windows: usize,
    confidence: f64,
) -> Result<Interval> {
    check(replicates, confidence)?;
    let (t, widening) = few_windows(windows, confidence)?;
    let n = replicates.len() as f64;
    let mean = replicates.iter().sum::<f64>() / n;
    let squares: f64 = replicates.iter().map(|v| (v - mean) * (v - mean)).sum();
    let half = t * widening * (squares / (n - 1.0)).sqrt();
    Ok(Interval { lower: estimate - half, upper: estimate + half, confidence })
}

/// The expanded percentile interval (Hesterberg, The American Statistician 69, 2015): percentiles taken
/// further out, at Φ(−t·√(W/(W−1))) with Student's t of W − 1 degrees of freedom, so that it keeps the
/// skewness of the replicates and is wide enough for few windows W.
///
/// # Errors
/// As [`t_interval`].
pub fn expanded_percentile_interval(
    replicates: &[f64],
    windows: usize,
    confidence: f64,
) -> Result<Interval> {
    check(replicates, confidence)?;
    let (t, widening) = few_windows(windows, confidence)?;
    Ok(between(replicates, normal_cdf(-t * widening), confidence))
}

fn few_windows(windows: usize, confidence: f64) -> Result<(f64, f64)> {
    if windows < 2 {
        let method = "an interval corrected for few windows";
        return Err(StatsError::TooFew { method, have: windows, need: 2 });
    }
    let w = windows as f64;
    Ok((t_quantile_upper(0.5 * (1.0 - confidence), w - 1.0), (w / (w - 1.0)).sqrt()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::law::{Distribution, Law};

    #[test]
    fn windows_come_whole_and_reproducibly() {
        let labels = [5, 5, 2, 2, 2, 9];
        let windows = Windows::from_labels(&labels);
        assert_eq!(windows.members(), [vec![2, 3, 4], vec![0, 1], vec![5]]);
        assert_eq!(windows.without(0), [0, 1, 5]);
        let mut counts = [0_u32; 6];
        for replicate in 0..3000 {
            let sample = windows.bootstrap(1, replicate);
            assert_eq!(sample, windows.bootstrap(1, replicate));
            for &i in &sample {
                counts[i] += 1;
            }
        }
        // Members of a window come equally often, each window once per replicate on average.
        assert!(counts[0] == counts[1] && counts[2] == counts[3] && counts[3] == counts[4]);
        for c in counts {
            // Binomial (3, 1/3) per replicate: variance 2/3.
            assert!((f64::from(c) - 3000.0).abs() < 4.0 * (3000.0f64 * 2.0 / 3.0).sqrt());
        }
        assert_ne!(windows.bootstrap(1, 0), windows.bootstrap(2, 0));
        assert!(Windows::from_labels(&[]).bootstrap(1, 0).is_empty());
        assert!(Windows::from_labels(&[]).is_empty());
    }

    #[test]
    fn the_iid_bootstrap_draws_every_entry_alike() {
        let mut counts = [0_u32; 10];
        for replicate in 0..2000 {
            for i in iid_indices(10, 3, replicate) {
                counts[i] += 1;
            }
        }
        for c in counts {
            assert!((f64::from(c) - 2000.0).abs() < 4.0 * (2000.0f64 * 0.9).sqrt(), "{c}");
        }
        assert!(iid_indices(0, 1, 1).is_empty());
    }

    #[test]
    fn the_jackknife_of_a_mean_is_its_standard_error() {
        let v = [3.0, 1.0, 4.0, 1.5, 5.0];
        let windows = Windows::from_labels(&[1, 2, 3, 4, 5]);
        let mean = |i: &[usize]| i.iter().map(|&k| v[k]).sum::<f64>() / i.len() as f64;
        let got = windows.jackknife(mean).unwrap();
        let m = 2.9;
        let want = (v.iter().map(|x| (x - m) * (x - m)).sum::<f64>() / 4.0 / 5.0).sqrt();
        assert!((got.standard_error - want).abs() < 1e-14 && got.bias.abs() < 1e-12);
        // The plug-in variance is biased by −σ²/n: the jackknife finds exactly that.
        let plug_in = |i: &[usize]| {
            let c = mean(i);
            i.iter().map(|&k| (v[k] - c) * (v[k] - c)).sum::<f64>() / i.len() as f64
        };
        let got = windows.jackknife(plug_in).unwrap();
        let unbiased = v.iter().map(|x| (x - m) * (x - m)).sum::<f64>() / 4.0;
        assert!((got.estimate - got.bias - unbiased).abs() < 1e-12);
        assert!(Windows::from_labels(&[1, 1]).jackknife(mean).is_err());
    }

    #[test]
    fn intervals_follow_their_formulas() {
        let replicates: Vec<f64> = (0..=1000).map(|i| f64::from(i) / 1000.0).collect();
        let p = percentile_interval(&replicates, 0.9).unwrap();
        assert!((p.lower - 0.05).abs() < 1e-12 && (p.upper - 0.95).abs() < 1e-12);
        let b = basic_interval(0.4, &replicates, 0.9).unwrap();
        assert!((b.lower + 0.15).abs() < 1e-12 && (b.upper - 0.75).abs() < 1e-12);
        // t.isf(.05, 4) = 2.13185; norm.cdf(-2.13185*sqrt(5/4)) = 0.008575 (scipy 1.17.1)
        let e = expanded_percentile_interval(&replicates, 5, 0.9).unwrap();
        assert!((e.lower - 0.008_574_974_191_188_729).abs() < 1e-6, "{e:?}");
        assert!(t_interval(0.4, &replicates, 1, 0.9).is_err());
        assert!(percentile_interval(&[1.0], 0.9).is_err());
    }

    /// Seven windows of four dependent steps: the corrected intervals cover, the percentile one does not.
    #[test]
    fn intervals_corrected_for_few_windows_cover() {
        let (window, step) = (Law::normal(0.0, 1.0).unwrap(), Law::normal(0.0, 0.5).unwrap());
        let labels: Vec<u64> = (0..28).map(|i| i / 4).collect();
        let windows = Windows::from_labels(&labels);
        let runs = 600_u64;
        let mut covered = [0.0; 3];
        for run in 0..runs {
            let mut rng = stream(run, "coverage", &[]);
            let levels: Vec<f64> = (0..7).map(|_| window.sample(&mut rng)).collect();
            let values: Vec<f64> =
                labels.iter().map(|&l| levels[l as usize] + step.sample(&mut rng)).collect();
            let mean = |i: &[usize]| i.iter().map(|&k| values[k]).sum::<f64>() / i.len() as f64;
            let estimate = mean(&(0..28).collect::<Vec<_>>());
            let replicates: Vec<f64> = (0..200).map(|r| mean(&windows.bootstrap(run, r))).collect();
            let intervals = [
                percentile_interval(&replicates, 0.9).unwrap(),
                t_interval(estimate, &replicates, 7, 0.9).unwrap(),
                expanded_percentile_interval(&replicates, 7, 0.9).unwrap(),
            ];
            for (c, interval) in covered.iter_mut().zip(intervals) {
                *c += f64::from(interval.contains(0.0)) / runs as f64;
            }
        }
        let error = (0.9 * 0.1 / runs as f64).sqrt();
        assert!(covered[0] < 0.9 - 3.0 * error, "{covered:?}");
        assert!((covered[1] - 0.9).abs() < 4.0 * error, "{covered:?}");
        assert!((covered[2] - 0.9).abs() < 4.0 * error, "{covered:?}");
    }
}
