//! The regime that a step's communication shares.

use super::pool::List;

/// How much slower than average a step's communication was, one an observed step: `exp` of the
/// median over pools of the difference between the step's mean log duration and the pool's.
///
/// Every pool counts once, however many observations it has, and one that is wild does not count.
/// Pools without positive durations do not either.
pub(super) fn factors<'a>(pools: impl Iterator<Item = &'a List>, steps: usize) -> Vec<f64> {
    let mut by_step: Vec<Vec<f64>> = vec![Vec::new(); steps];
    for pool in pools {
        let logs = || pool.iter().filter(|v| v.1 > 0.0).map(|&(t, v)| (t, v.ln()));
        let (mut sum, mut count) = (vec![0.0; steps], vec![0.0; steps]);
        for (t, log) in logs() {
            sum[t] += log;
            count[t] += 1.0;
        }
        let seen: Vec<usize> = (0..steps).filter(|&t| count[t] > 0.0).collect();
        // The average of steps, so that a step with many transfers below the threshold does not
        // set the level.
        let centre = seen.iter().map(|&t| sum[t] / count[t]).sum::<f64>() / seen.len() as f64;
        for t in seen {
            by_step[t].push(sum[t] / count[t] - centre);
        }
    }
    let logs: Vec<f64> =
        by_step.iter().map(|d| prism_stats::robust::median(d).unwrap_or(0.0)).collect();
    let mean = logs.iter().sum::<f64>() / logs.len().max(1) as f64;
    logs.iter().map(|l| (l - mean).exp()).collect()
}

/// Divides every observation by its step's factor.
pub(super) fn remove<'a>(pools: impl Iterator<Item = &'a mut List>, factors: &[f64]) {
    for (t, value) in pools.flatten() {
        *value /= factors[*t];
    }
}
