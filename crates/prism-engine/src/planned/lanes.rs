//! Observations that a law could have led to, without the error of a sample: equally likely values in
//! random order.

use prism_stats::{Distribution, Law, QuantileTable, stream};
use rand::seq::SliceRandom;

use super::PlannedError;
use crate::predict::log_mean_exp;

/// Logarithms of a factor of mean 1, one a stratum of equal probability, by rising value.
pub(super) fn log_normal(n: usize, sd: f64) -> Result<Vec<f64>, PlannedError> {
    let normal = Law::normal(0.0, 1.0)?;
    let mut scores: Vec<f64> =
        (0..n).map(|i| normal.quantile((i as f64 + 0.5) / n as f64)).collect();
    // Midpoints spread a little less than the law they stand for.
    let variance = scores.iter().map(|z| z * z).sum::<f64>() / n.max(1) as f64;
    let factor = sd / variance.sqrt().max(f64::MIN_POSITIVE);
    for z in &mut scores {
        *z *= factor;
    }
    normalise(&mut scores);
    Ok(scores)
}

/// As [`log_normal`], of the shape of a table of positive values; with the mean that was taken out.
pub(super) fn of_table(n: usize, table: &QuantileTable) -> (Vec<f64>, f64) {
    let words = (1_u64 << 32) as f64;
    let at = |i: usize| ((i as f64 + 0.5) / n as f64 * words) as u32;
    let mut logs: Vec<f64> =
        (0..n).map(|i| f64::from(table.value(at(i))).max(1e-12).ln()).collect();
    logs.sort_unstable_by(f64::total_cmp);
    let mean = log_mean_exp(logs.iter().copied()).exp();
    normalise(&mut logs);
    (logs, mean)
}

/// Shifts logarithms so that the mean of what they are the logarithms of is 1.
pub(super) fn normalise(logs: &mut [f64]) {
    let shift = log_mean_exp(logs.iter().copied());
    for v in logs {
        *v -= shift;
    }
}

/// Root mean square deviation from the mean.
pub(super) fn sd(values: &[f64]) -> f64 {
    let n = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / n;
    (values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / n).sqrt()
}

/// The values in an order that depends on what they are for.
pub(super) fn shuffled(values: &[f64], seed: u64, effect: &str, entity: &[u64]) -> Vec<f64> {
    let mut out = values.to_vec();
    out.shuffle(&mut stream(seed, effect, entity));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strata_have_the_laws_mean_and_spread() {
        for (n, s) in [(128, 0.01), (1_024, 0.3)] {
            let logs = log_normal(n, s).unwrap();
            assert!(log_mean_exp(logs.iter().copied()).abs() < 1e-12);
            assert!((sd(&logs) - s).abs() < 1e-12);
            let mixed = shuffled(&logs, 1, "step", &[3]);
            assert_ne!(mixed, logs);
            let mut sorted = mixed.clone();
            sorted.sort_by(f64::total_cmp);
            assert_eq!(sorted, logs);
            assert_ne!(mixed, shuffled(&logs, 1, "step", &[4]));
        }
    }

    /// Adjacent values of two shuffled lanes do not go together: the correlation of n pairs scatters by
    /// 1/sqrt(n).
    #[test]
    fn orders_of_two_entities_are_independent() {
        let logs = log_normal(4_096, 1.0).unwrap();
        let (a, b) = (shuffled(&logs, 1, "x", &[0]), shuffled(&logs, 1, "x", &[1]));
        let mean = logs.iter().sum::<f64>() / 4_096.0;
        let product = a.iter().zip(&b).map(|(x, y)| (x - mean) * (y - mean)).sum::<f64>();
        assert!((product / 4_096.0).abs() < 4.0 / 64.0);
    }

    #[test]
    fn a_table_gives_its_quantiles() {
        let law = Law::log_normal(-0.02, 0.2).unwrap();
        let table =
            QuantileTable::from_quantiles(|p| law.quantile(p), |q| law.quantile_upper(q)).unwrap();
        let (exact, logs) = (log_normal(1_024, 0.2).unwrap(), of_table(1_024, &table).0);
        for (a, b) in exact.iter().zip(&logs) {
            assert!((a - b).abs() < 0.01 * 0.2 * (1.0 + a.abs() / 0.2), "{a} {b}");
        }
    }
}
