//! Robust location and spread, thresholds, outliers and changes of level.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{Result, StatsError, check_open_unit, check_sample};
use crate::htest::{holm, t_two_sided};
use crate::quantile::{sorted, type7_unchecked};

/// Turns a median absolute deviation into the s.d. of a normal law, 1/Φ⁻¹(3/4).
pub const MAD_TO_SD: f64 = 1.4826;

/// Median of values in any order.
///
/// # Errors
/// If there is no value or one is not finite.
pub fn median(values: &[f64]) -> Result<f64> {
    check_sample(values, 1, "a median")?;
    Ok(type7_unchecked(&sorted(values), 0.5))
}

/// Median absolute deviation from the median, not scaled; times [`MAD_TO_SD`] it estimates a s.d.
///
/// # Errors
/// As [`median`].
pub fn mad(values: &[f64]) -> Result<f64> {
    let centre = median(values)?;
    let deviations: Vec<f64> = values.iter().map(|v| (v - centre).abs()).collect();
    median(&deviations)
}

/// Medians of the values around each: of `window` values (odd), fewer at the ends.
///
/// # Errors
/// As [`median`]; if the window is even.
pub fn running_median(values: &[f64], window: usize) -> Result<Vec<f64>> {
    check_sample(values, 1, "a running median")?;
    if window.is_multiple_of(2) {
        let (argument, value) = ("window", window as f64);
        return Err(StatsError::Argument { argument, value, domain: "odd" });
    }
    let half = window / 2;
    let mut scratch = Vec::with_capacity(window);
    Ok((0..values.len())
        .map(|i| {
            let (from, to) = (i.saturating_sub(half), (i + half + 1).min(values.len()));
            scratch.clear();
            scratch.extend_from_slice(&values[from..to]);
            scratch.sort_by(f64::total_cmp);
            type7_unchecked(&scratch, 0.5)
        })
        .collect())
}

/// Values that stand out above the running median.
#[derive(Clone, Debug, PartialEq)]
pub struct Above {
    /// Running median at each value.
    pub median: Vec<f64>,
    /// Ratio of each value to it, less 1.
    pub excess: Vec<f64>,
    /// Excess from which on a value stands out.
    pub limit: f64,
}

impl Above {
    /// Whether the i-th value stands out.
    pub fn stands_out(&self, i: usize) -> bool {
        self.excess[i] > self.limit
    }
}

/// Compares positive values with their running median: a value stands out where its ratio exceeds 1 by more
/// than the larger of k·1.4826·MAD of all such excesses and `least`.
///
/// # Errors
/// As [`running_median`]; if a value is not positive.
pub fn above_running_median(values: &[f64], window: usize, k: f64, least: f64) -> Result<Above> {
    let medians = running_median(values, window)?;
    if let Some(&value) = values.iter().find(|v| **v <= 0.0) {
        return Err(StatsError::Argument { argument: "values", value, domain: "positive" });
    }
    let excess: Vec<f64> = values.iter().zip(&medians).map(|(v, m)| v / m - 1.0).collect();
    let limit = (k * MAD_TO_SD * mad(&excess)?).max(least);
    Ok(Above { median: medians, excess, limit })
}

/// Flags values further than `k·1.4826·MAD` from the median; with a MAD of zero (half of the values
/// equal) everything that differs from the median.
///
/// # Errors
/// As [`median`].
pub fn outliers(values: &[f64], k: f64) -> Result<Vec<bool>> {
    let (centre, limit) = (median(values)?, k * MAD_TO_SD * mad(values)?);
    Ok(values.iter().map(|v| (v - centre).abs() > limit).collect())
}

/// The scale on which Otsu's threshold is sought.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    /// The values.
    Linear,
    /// Their logarithms, for values that span orders of magnitude; all must be positive.
    Log,
}

/// A split of values in two classes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Otsu {
    /// Values at or below it are the lower class: midway, on the scale used, between the largest value
    /// of the lower class and the smallest of the upper.
    pub threshold: f64,
    /// Variance between the classes as a share of the total, in [0, 1]. A single uniform class gives
    /// 0.75 and a normal one 2/π ≈ 0.64; two classes far apart give nearly 1.
    pub separability: f64,
    /// Number of values in the lower class.
    pub below: usize,
    /// Number of values in the upper class.
    pub above: usize,
}

/// Otsu's threshold (IEEE Trans. Systems, Man and Cybernetics 9, 1979) on the values themselves, every
/// cut between distinct ones tried: the split with the largest variance between classes, the lowest of
/// ties. None if all values are equal.
///
/// # Errors
/// If there are fewer than 2 values, one is not finite or, on the log scale, not positive.
pub fn otsu(values: &[f64], scale: Scale) -> Result<Option<Otsu>> {
    check_sample(values, 2, "a threshold")?;
    if scale == Scale::Log
        && let Some(&value) = values.iter().find(|&&v| v <= 0.0)
    {
        return Err(StatsError::Argument { argument: "values", value, domain: "positive" });
    }
    let on_scale: Vec<f64> = match scale {
        Scale::Linear => sorted(values),
        Scale::Log => sorted(values).iter().map(|v| v.ln()).collect(),
    };
    let n = on_scale.len() as f64;
    let mean = on_scale.iter().sum::<f64>() / n;
    let total: f64 = on_scale.iter().map(|v| (v - mean) * (v - mean)).sum();
    let (mut best, mut at, mut sum) = (0.0, None, 0.0);
    for k in 1..on_scale.len() {
        sum += on_scale[k - 1] - mean;
        if on_scale[k] > on_scale[k - 1] {
            // With centred sums the between-class sum of squares is S²·(1/k + 1/(n − k)).
            let k_f = k as f64;
            let between = sum * sum * (1.0 / k_f + 1.0 / (n - k_f));
            if between > best * (1.0 + 1e-12) {
                (best, at) = (between, Some(k));
            }
        }
    }
    Ok(at.map(|k| {
        let middle = 0.5 * (on_scale[k - 1] + on_scale[k]);
        Otsu {
            threshold: if scale == Scale::Log { middle.exp() } else { middle },
            separability: (best / total).min(1.0),
            below: k,
            above: on_scale.len() - k,
        }
    }))
}

/// One window compared with the rest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LevelChange {
    /// The window's label.
    pub window: u64,
    /// Number of values in it.
    pub n: usize,
    /// Its mean.
    pub level: f64,
    /// The mean of the windows not flagged.
    pub reference: f64,
    /// P-value of no difference, adjusted by Holm for the windows tested together.
    pub p_value: f64,
    /// Whether its level differs.
    pub changed: bool,
}

/// Tests which windows of steps have another level than the rest, such as a slow warm-up.
///
/// `windows` labels each of `values`. The spread is the one pooled *within* windows (N − W degrees of
/// freedom), so a step between windows does not hide itself. Repeatedly, the window with the smallest
/// p-value of a t test against all windows still unflagged is flagged if its Holm-adjusted p is below
/// `alpha`, until none is, or one window is left; each window is then reported against the unflagged
/// ones. Windows come in the order of their labels; empty if there are fewer than two windows or none
/// has two values, or no value differs from its window's mean.
///
/// # Errors
/// If lengths differ, there is no value, one is not finite, or alpha is not in (0, 1).
pub fn level_changes(windows: &[u64], values: &[f64], alpha: f64) -> Result<Vec<LevelChange>> {
    if windows.len() != values.len() {
        return Err(StatsError::LengthMismatch {
            left_name: "windows",
            left: windows.len(),
            right_name: "values",
            right: values.len(),
        });
    }
    check_open_unit("alpha", alpha)?;
    check_sample(values, 1, "a test of levels")?;
    let groups = group(windows, values);
    let dof = values.len() as f64 - groups.len() as f64;
    let within: f64 = groups.iter().map(|g| g.squares).sum();
    if groups.len() < 2 || dof < 1.0 || within <= 0.0 {
        return Ok(Vec::new());
    }
    let spread = (within / dof).sqrt();
    let mut flagged = vec![false; groups.len()];
    loop {
        let p = p_values(&groups, &flagged, spread, dof);
        let standing: Vec<usize> = (0..groups.len()).filter(|&i| !flagged[i]).collect();
        if standing.len() < 2 {
            return Ok(report(&groups, &flagged, &p));
        }
        let adjusted = holm(&standing.iter().map(|&i| p[i]).collect::<Vec<_>>());
        let smallest = (0..standing.len()).min_by(|&a, &b| adjusted[a].total_cmp(&adjusted[b]));
        match smallest {
            Some(k) if adjusted[k] < alpha => flagged[standing[k]] = true,
            _ => {
                let mut p = p;
                for (&i, a) in standing.iter().zip(adjusted) {
                    p[i] = a;
                }
                return Ok(report(&groups, &flagged, &p));
            }
        }
    }
}

struct Group {
    window: u64,
    n: f64,
    mean: f64,
    squares: f64,
}

fn group(windows: &[u64], values: &[f64]) -> Vec<Group> {
    let mut lists: std::collections::BTreeMap<u64, Vec<f64>> = std::collections::BTreeMap::new();
    for (&w, &v) in windows.iter().zip(values) {
        lists.entry(w).or_default().push(v);
    }
    lists
        .into_iter()
        .map(|(window, list)| {
            let n = list.len() as f64;
            let mean = list.iter().sum::<f64>() / n;
            let squares = list.iter().map(|v| (v - mean) * (v - mean)).sum();
            Group { window, n, mean, squares }
        })
        .collect()
}

/// Each window against the unflagged windows other than itself.
fn p_values(groups: &[Group], flagged: &[bool], spread: f64, dof: f64) -> Vec<f64> {
    (0..groups.len())
        .map(|i| {
            let (mut n, mut sum) = (0.0, 0.0);
            for (j, g) in groups.iter().enumerate() {
                if j != i && !flagged[j] {
                    n += g.n;
                    sum += g.n * g.mean;
                }
            }
            if n == 0.0 {
                return 1.0;
            }
            let error = spread * (1.0 / n + 1.0 / groups[i].n).sqrt();
            t_two_sided((groups[i].mean - sum / n) / error, dof)
        })
        .collect()
}

fn report(groups: &[Group], flagged: &[bool], p: &[f64]) -> Vec<LevelChange> {
    let standing = || groups.iter().zip(flagged).filter(|(_, f)| !**f).map(|(g, _)| g);
    let n: f64 = standing().map(|g| g.n).sum();
    let reference = standing().map(|g| g.n * g.mean).sum::<f64>() / n;
    groups
        .iter()
        .enumerate()
        .map(|(i, g)| LevelChange {
            window: g.window,
            n: g.n as usize,
            level: g.mean,
            reference,
            p_value: (p[i] * if flagged[i] { groups.len() as f64 } else { 1.0 }).min(1.0),
            changed: flagged[i],
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::law::{Distribution, Law};
    use crate::stream::stream;

    #[test]
    fn median_and_mad_resist() {
        let v = [3.0, 1.0, 2.0, 1000.0, 2.5];
        assert_eq!(median(&v).unwrap(), 2.5);
        // Deviations .5, 1.5, .5, 997.5, 0.
        assert_eq!(mad(&v).unwrap(), 0.5);
        assert_eq!(outliers(&v, 3.0).unwrap(), [false, false, false, true, false]);
        assert_eq!(outliers(&[1.0, 1.0, 1.0, 1.1], 6.0).unwrap(), [false, false, false, true]);
        assert!(median(&[]).is_err() && mad(&[f64::NAN]).is_err());
    }

    #[test]
    fn the_scaled_mad_estimates_a_normal_sd() {
        let law = Law::normal(5.0, 2.0).unwrap();
        let mut rng = stream(1, "mad", &[]);
        let v: Vec<f64> = (0..20_000).map(|_| law.sample(&mut rng)).collect();
        // The MAD has an efficiency of 37 %: s.e. = sd·√(1/(2·0.37·n)).
        let error = 2.0 * (1.0f64 / (0.74 * 20_000.0)).sqrt();
        assert!((mad(&v).unwrap() * MAD_TO_SD - 2.0).abs() < 4.0 * error);
    }

    #[test]
    fn otsu_equals_brute_force() {
        let mut rng = stream(2, "otsu", &[]);
        let law = Law::log_normal(0.0, 1.0).unwrap();
        for n in [2, 3, 10, 41] {
            let v: Vec<f64> =
                (0..n).map(|_| (law.sample(&mut rng) * 4.0).round() / 4.0 + 0.1).collect();
            let got = otsu(&v, Scale::Linear).unwrap();
            let mean = |x: &[f64]| x.iter().sum::<f64>() / x.len() as f64;
            let total: f64 = v.iter().map(|x| (x - mean(&v)).powi(2)).sum();
            let split = |t: f64| {
                let (a, b): (Vec<f64>, Vec<f64>) = v.iter().partition(|&&x| x <= t);
                if a.is_empty() || b.is_empty() {
                    return 0.0;
                }
                (a.len() as f64 * (mean(&a) - mean(&v)).powi(2)
                    + b.len() as f64 * (mean(&b) - mean(&v)).powi(2))
                    / total
            };
            let best = v.iter().map(|&t| split(t)).fold(0.0, f64::max);
            let got = got.unwrap();
            assert!((got.separability - best).abs() < 1e-12, "{n}: {got:?} {best}");
            assert!((split(got.threshold) - best).abs() < 1e-12);
            assert_eq!(got.below, v.iter().filter(|&&x| x <= got.threshold).count());
            assert_eq!(got.above, v.len() - got.below);
        }
        assert_eq!(otsu(&[1.0, 1.0], Scale::Linear).unwrap(), None);
        assert!(otsu(&[1.0, 0.0], Scale::Log).is_err());
    }

    #[test]
    fn one_normal_class_has_a_separability_of_two_over_pi() {
        let law = Law::normal(0.0, 1.0).unwrap();
        let n = 20_001;
        let v: Vec<f64> = (1..n).map(|i| law.quantile(f64::from(i) / f64::from(n))).collect();
        let got = otsu(&v, Scale::Linear).unwrap().unwrap();
        assert!((got.separability - 2.0 / std::f64::consts::PI).abs() < 1e-3, "{got:?}");
        // Transfers of 1 ms and waits of 1 s, each with a log-s.d. of 1: told apart on the log scale.
        let mixed: Vec<f64> =
            v.iter().map(|z| z.exp() * 1e-3).chain(v.iter().map(|z| (z / 2.0).exp())).collect();
        let got = otsu(&mixed, Scale::Log).unwrap().unwrap();
        assert!(got.separability > 0.9 && got.threshold > 0.01 && got.threshold < 0.3, "{got:?}");
    }

    #[test]
    fn a_slow_first_window_is_found_and_no_other() {
        let law = Law::normal(1.0, 0.01).unwrap();
        let mut rng = stream(3, "level", &[]);
        let windows: Vec<u64> = (0..40).map(|i| i / 4).collect();
        let values: Vec<f64> = windows
            .iter()
            .map(|&w| law.sample(&mut rng) * if w == 0 { 1.05 } else { 1.0 })
            .collect();
        let got = level_changes(&windows, &values, 0.01).unwrap();
        let changed: Vec<u64> = got.iter().filter(|g| g.changed).map(|g| g.window).collect();
        assert_eq!(changed, [0]);
        assert!((got[0].level / got[0].reference - 1.05).abs() < 0.02);
        assert!(got[0].p_value < 1e-6 && got[0].n == 4);
    }

    #[test]
    fn equal_levels_are_flagged_at_the_stated_rate() {
        let law = Law::normal(1.0, 0.01).unwrap();
        let windows: Vec<u64> = (0..32).map(|i| i / 4).collect();
        let runs = 2000;
        let flagged = (0..runs)
            .filter(|&i| {
                let mut rng = stream(i, "level-null", &[]);
                let values: Vec<f64> = windows.iter().map(|_| law.sample(&mut rng)).collect();
                level_changes(&windows, &values, 0.05).unwrap().iter().any(|g| g.changed)
            })
            .count() as f64;
        // At most 5 %, and not far below: the windows are nearly independent.
        let rate = flagged / runs as f64;
        assert!(rate < 0.05 + 3.0 * 0.0049 && rate > 0.03, "{rate}");
    }

    #[test]
    fn what_cannot_be_tested_gives_nothing() {
        assert!(level_changes(&[1, 1], &[1.0, 2.0], 0.05).unwrap().is_empty());
        assert!(level_changes(&[1, 2], &[1.0, 2.0], 0.05).unwrap().is_empty());
        assert!(level_changes(&[1], &[1.0, 2.0], 0.05).is_err());
        assert!(level_changes(&[1], &[1.0], 1.0).is_err());
    }
}
