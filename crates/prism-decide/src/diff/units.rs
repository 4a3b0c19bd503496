//! Independent units of a series of steps, and tests on them.

use prism_engine::predict::{ResampleUnit, units_of};
use prism_stats::{htest, resample::Windows};

/// Which steps a series belongs to.
#[derive(Clone, Debug)]
pub(super) struct Steps {
    pub(super) ids: Vec<i64>,
    pub(super) windows: Vec<u32>,
}

/// Two series, one a side, as means over independent units.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    pub(super) unit: ResampleUnit,
    pub(super) a: Vec<f64>,
    pub(super) b: Vec<f64>,
}

/// Below this many units on one side both are taken to have one variance.
pub(super) const FEW_UNITS: usize = 6;

/// Outcome of a comparison of two means.
#[derive(Clone, Copy, Debug)]
pub(super) struct Test {
    /// Mean of B less mean of A.
    pub(super) difference: f64,
    pub(super) standard_error: f64,
    pub(super) freedom: f64,
}

impl Test {
    /// Two-sided p-value for a difference.
    pub(super) fn p_value(&self, difference: f64) -> f64 {
        if difference == 0.0 {
            return 1.0;
        }
        htest::t_two_sided(difference / self.standard_error, self.freedom).min(1.0)
    }

    /// Half-width of the interval of the difference.
    pub(super) fn half_width(&self, confidence: f64) -> f64 {
        htest::t_quantile_upper(0.5 * (1.0 - confidence), self.freedom) * self.standard_error
    }
}

/// The coarser of two units; windows are the coarsest.
fn coarser(a: ResampleUnit, b: ResampleUnit) -> ResampleUnit {
    let rank = |u| match u {
        ResampleUnit::Step => 0,
        ResampleUnit::Block => 1,
        ResampleUnit::Window => 2,
    };
    if rank(a) >= rank(b) { a } else { b }
}

impl Steps {
    /// Labels of the units of the series under a given kind of unit.
    fn labels(&self, unit: ResampleUnit) -> Vec<u64> {
        let n = self.ids.len();
        match unit {
            ResampleUnit::Step => (0..n as u64).collect(),
            ResampleUnit::Block => {
                let length = (n as f64).cbrt().ceil().max(1.0) as usize;
                (0..n).map(|t| (t / length) as u64).collect()
            }
            ResampleUnit::Window => self.windows.iter().map(|&w| u64::from(w)).collect(),
        }
    }

    /// The units of the series under a given kind of unit.
    pub(super) fn units(&self, unit: ResampleUnit) -> Windows {
        Windows::from_labels(&self.labels(unit))
    }
}

/// Kind of unit that two series (one value a step) call for: what [`units_of`] says of either side,
/// the coarser of the two, as long as that leaves three units in all and one on each side.
pub(super) fn unit_of(a: (&Steps, &[f64]), b: (&Steps, &[f64])) -> ResampleUnit {
    let of = |(steps, series): (&Steps, &[f64])| units_of(series, &steps.ids, &steps.windows).0;
    let unit = coarser(of(a), of(b));
    let enough = a.0.units(unit).len() + b.0.units(unit).len() >= 3;
    if enough { unit } else { ResampleUnit::Step }
}

/// Means over the units that two series call for.
pub(super) fn pair(a: (&Steps, &[f64]), b: (&Steps, &[f64])) -> Pair {
    let unit = unit_of(a, b);
    let means = |(steps, series): (&Steps, &[f64])| {
        if unit == ResampleUnit::Step {
            return series.to_vec();
        }
        let units = steps.units(unit);
        let of = |m: &Vec<usize>| m.iter().map(|&t| series[t]).sum::<f64>() / m.len() as f64;
        units.members().iter().map(of).collect()
    };
    Pair { unit, a: means(a), b: means(b) }
}

/// Compares two means: Welch's test; with fewer than six units on a side, where a variance of its own
/// is hardly known, Student's with one variance. `least` is the smallest s.d. that is believed.
pub(super) fn compare(a: &[f64], b: &[f64], least: f64) -> Test {
    let (n, m) = (a.len() as f64, b.len() as f64);
    let ((mean_a, square_a), (mean_b, square_b)) = (moments(a), moments(b));
    let floor = least * least;
    let difference = mean_b - mean_a;
    if a.len().min(b.len()) < FEW_UNITS {
        let freedom = (n + m - 2.0).max(1.0);
        let variance = ((square_a + square_b) / freedom).max(floor);
        return Test {
            difference,
            standard_error: (variance * (1.0 / n + 1.0 / m)).sqrt(),
            freedom,
        };
    }
    let (va, vb) = ((square_a / (n - 1.0)).max(floor) / n, (square_b / (m - 1.0)).max(floor) / m);
    let sum = va + vb;
    Test {
        difference,
        standard_error: sum.sqrt(),
        freedom: sum * sum / (va * va / (n - 1.0) + vb * vb / (m - 1.0)),
    }
}

/// Mean and sum of squares about it.
pub(super) fn moments(values: &[f64]) -> (f64, f64) {
    let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
    (mean, values.iter().map(|v| (v - mean) * (v - mean)).sum())
}

/// Median; 0 of nothing.
pub(super) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[n / 2],
        n => f64::midpoint(values[n / 2 - 1], values[n / 2]),
    }
}

/// A second opinion that takes no law for granted: the permutation p-value of the studentised
/// difference, with enough permutations for `tests` tests at `alpha`. `None` where the units admit too
/// few distinct permutations, or so many units that the t test needs no second opinion.
pub(super) fn permutation(
    pair: &Pair,
    least: f64,
    tests: usize,
    alpha: f64,
    seed: u64,
) -> Option<f64> {
    const MOST_UNITS: usize = 400;
    let (n, m) = (pair.a.len(), pair.b.len());
    let wanted = 4.0 * tests as f64 / alpha;
    if n + m > MOST_UNITS || ln_choose(n + m, n) < wanted.ln() {
        return None;
    }
    let pooled: Vec<f64> = pair.a.iter().chain(&pair.b).copied().collect();
    let statistic = |values: &[f64]| {
        let test = compare(&values[..n], &values[n..], least);
        (test.difference / test.standard_error).abs()
    };
    Some(htest::permutation_p(&pooled, wanted.min(2e6).ceil() as u32, seed, statistic))
}

fn ln_choose(n: usize, k: usize) -> f64 {
    (1..=k.min(n - k)).map(|i| ((n + 1 - i) as f64 / i as f64).ln()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_compared_by_welch_and_few_units_by_student() {
        // Means 4 and 7.5, sums of squares 40 and 71.5.
        let test = compare(&[1.0, 2.0, 3.0, 4.0, 5.0, 9.0], &[2.0, 4.0, 8.0, 9.0, 10.0, 12.0], 0.0);
        assert!((test.difference - 3.5).abs() < 1e-12);
        let (va, vb) = (8.0 / 6.0, 14.3 / 6.0);
        assert!((test.standard_error - f64::sqrt(va + vb)).abs() < 1e-12);
        let freedom = (va + vb) * (va + vb) / (va * va / 5.0 + vb * vb / 5.0);
        assert!((test.freedom - freedom).abs() < 1e-12);
        let few = compare(&[1.0, 2.0, 3.0], &[2.0, 4.0], 0.0);
        assert_eq!(few.freedom, 3.0);
    }

    #[test]
    fn windows_whose_means_differ_are_the_units() {
        let ids: Vec<i64> = (0..12).collect();
        let windows: Vec<u32> = (0..12).map(|t| t / 4).collect();
        let steps = Steps { ids, windows: windows.clone() };
        let apart: Vec<f64> = windows
            .iter()
            .enumerate()
            .map(|(t, &w)| f64::from(w) + 0.01 * (t % 3) as f64)
            .collect();
        let pair_of = pair((&steps, &apart), (&steps, &apart));
        assert_eq!((pair_of.unit, pair_of.a.len()), (ResampleUnit::Window, 3));
        let alike: Vec<f64> = (0..12).map(|t| f64::from(t * 7 % 5)).collect();
        assert_eq!(pair((&steps, &alike), (&steps, &alike)).a.len(), 12);
    }

    #[test]
    fn a_permutation_agrees_with_a_clear_difference_and_refuses_few_units() {
        let a: Vec<f64> = (0..10).map(|i| f64::from(i % 4)).collect();
        let b: Vec<f64> = a.iter().map(|v| v + 10.0).collect();
        let clear = Pair { unit: ResampleUnit::Step, a: a.clone(), b };
        let p = permutation(&clear, 0.0, 10, 0.05, 1).unwrap();
        assert!(p < 0.005, "{p}");
        let same = Pair { unit: ResampleUnit::Step, a: a.clone(), b: a.clone() };
        assert!(permutation(&same, 0.0, 10, 0.05, 1).unwrap() > 0.9);
        let few = Pair { unit: ResampleUnit::Step, a: a[..3].to_vec(), b: a[..3].to_vec() };
        assert!(permutation(&few, 0.0, 10, 0.05, 1).is_none());
    }
}
