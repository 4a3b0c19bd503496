//! Closed forms: how far a run gets, and how often to save.
//!
//! Each says where it holds. The simulation answers elsewhere, and is tested against these inside their
//! domains.

use crate::error::{RunError, not_negative, positive};

/// Expected effective training time ratio of a long job (arXiv 2410.21680, section on ETTR, with queueing
/// left out):
///
/// ```text
/// (1 − N·r·(u0 + Δ/2)) / (1 + w/Δ)
/// ```
///
/// with N nodes, r failures per node and second, u0 the time of a recovery, w the time that training stops
/// for a checkpoint, and Δ the training time between checkpoints.
///
/// *Holds* for N·r·(u0 + Δ/2) ≪ 1, exponential times between failures and runs of many failures: it counts
/// failures as if recovering took no time in which to fail again, is linear in their rate, and turns
/// negative once N·r·(u0 + Δ/2) > 1, which no run does. There, simulate.
///
/// ```
/// use prism_run::formula::expected_ettr;
///
/// // RSC-1: 2,048 nodes, 6.5 failures in 1,000 node-days, 5 minutes to restart.
/// let rate = 6.5 / 1_000.0 / 86_400.0;
/// let hourly = expected_ettr(2_048.0, rate, 300.0, 0.0, 3_600.0)?;
/// assert!((hourly - 0.676).abs() < 0.0005);
/// # Ok::<(), prism_run::RunError>(())
/// ```
///
/// # Errors
/// If the interval is not above 0, or another argument is negative or not finite.
pub fn expected_ettr(
    nodes: f64,
    rate_per_node_s: f64,
    restart_s: f64,
    write_s: f64,
    interval_s: f64,
) -> Result<f64, RunError> {
    not_negative("nodes", nodes)?;
    not_negative("rate_per_node_s", rate_per_node_s)?;
    not_negative("restart_s", restart_s)?;
    not_negative("write_s", write_s)?;
    positive("interval_s", interval_s)?;
    let lost = nodes * rate_per_node_s * (restart_s + 0.5 * interval_s);
    Ok((1.0 - lost) / (1.0 + write_s / interval_s))
}

/// Interval that makes lost work and checkpoints cost the same: √(2w/(N·r)), Young's (CACM 17, 1974) with
/// the job's MTBF 1/(N·r).
///
/// *Holds* for w ≪ 1/(N·r).
///
/// # Errors
/// If a rate or the number of nodes is not above 0, or the write time negative.
pub fn optimal_interval_s(nodes: f64, rate_per_node_s: f64, write_s: f64) -> Result<f64, RunError> {
    young_s(write_s, mttf_s(nodes, rate_per_node_s)?)
}

/// Mean time to failure of a job on so many nodes, seconds: 1/(N·r).
///
/// *Holds* for failures that are independent of each other and take one node each.
///
/// # Errors
/// If an argument is not above 0.
pub fn mttf_s(nodes: f64, rate_per_node_s: f64) -> Result<f64, RunError> {
    positive("nodes", nodes)?;
    positive("rate_per_node_s", rate_per_node_s)?;
    Ok(1.0 / (nodes * rate_per_node_s))
}

/// Young's interval √(2·w·M) between checkpoints of w seconds at a mean time M between failures.
///
/// # Errors
/// If the MTBF is not above 0 or the write time negative.
pub fn young_s(write_s: f64, mtbf_s: f64) -> Result<f64, RunError> {
    not_negative("write_s", write_s)?;
    positive("mtbf_s", mtbf_s)?;
    Ok((2.0 * write_s * mtbf_s).sqrt())
}

/// Daly's higher-order optimum of the interval (Future Generation Computer Systems 22, 2006, equation
/// 37): √(2wM)·(1 + ⅓·√(w/2M) + w/18M) − w for w < 2M, else M.
///
/// *Holds* for exponential failures, also during checkpoints and restarts.
///
/// # Errors
/// If the MTBF is not above 0 or the write time negative.
pub fn daly_s(write_s: f64, mtbf_s: f64) -> Result<f64, RunError> {
    let young_s = young_s(write_s, mtbf_s)?;
    if write_s >= 2.0 * mtbf_s {
        return Ok(mtbf_s);
    }
    let x = write_s / (2.0 * mtbf_s);
    Ok(young_s * (1.0 + x.sqrt() / 3.0 + x / 9.0) - write_s)
}

/// Daly's exact expected time (same paper, equation 20) of `work_s` seconds of work in pieces of
/// `interval_s`, each followed by a checkpoint of `write_s`, with restarts of `restart_s` and exponential
/// failures of mean time `mtbf_s` that also strike checkpoints and restarts:
///
/// ```text
/// M · e^{R/M} · (e^{(τ+w)/M} − 1) · work/τ
/// ```
///
/// *Exact* where the work is a whole number of pieces, each with its checkpoint, that training stops for.
///
/// # Errors
/// If the interval or the MTBF is not above 0, or another argument is negative or not finite.
pub fn daly_time_s(
    work_s: f64,
    interval_s: f64,
    write_s: f64,
    restart_s: f64,
    mtbf_s: f64,
) -> Result<f64, RunError> {
    not_negative("work_s", work_s)?;
    not_negative("write_s", write_s)?;
    not_negative("restart_s", restart_s)?;
    positive("interval_s", interval_s)?;
    positive("mtbf_s", mtbf_s)?;
    let piece = ((interval_s + write_s) / mtbf_s).exp_m1();
    Ok(mtbf_s * (restart_s / mtbf_s).exp() * piece * work_s / interval_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RSC_1: f64 = 6.5 / 1_000.0 / 86_400.0;

    #[test]
    fn published_ratios() {
        let ettr = |interval_s| expected_ettr(2_048.0, RSC_1, 300.0, 0.0, interval_s).unwrap();
        assert!((ettr(3_600.0) - 0.676).abs() < 0.0005);
        assert!((ettr(300.0) - 0.931).abs() < 0.0005);
        // O(100K): a failure every 18 minutes, and no lost work.
        let recovery =
            |restart_s| expected_ettr(1.0, 1.0 / (18.0 * 60.0), restart_s, 0.0, 1e-6).unwrap();
        assert!((recovery(600.0) - 0.44).abs() < 0.005);
        assert!((recovery(180.0) - 0.83).abs() < 0.005);
        assert!(expected_ettr(16_384.0, RSC_1, 300.0, 0.0, 3_600.0).unwrap() < 0.0);
    }

    #[test]
    fn published_times_to_failure() {
        let hours = |gpus: f64| mttf_s(gpus / 8.0, RSC_1).unwrap() / 3_600.0;
        assert!((hours(16_384.0) - 1.80).abs() < 0.005);
        assert!((hours(131_072.0) - 0.225).abs() < 0.0005);
        assert!((54.0 * 24.0 / 419.0 - 3.09_f64).abs() < 0.005);
    }

    /// The optimum of Daly's exact time, found by brute force.
    #[test]
    fn daly_is_the_minimum_of_the_exact_time() {
        for (write_s, mtbf_s) in [(30.0, 11_000.0), (120.0, 3_600.0), (300.0, 1_800.0)] {
            let time =
                |interval_s: f64| daly_time_s(1e6, interval_s, write_s, 600.0, mtbf_s).unwrap();
            let grid = (1..200_000).map(|i| f64::from(i) * 0.1);
            let best = grid.min_by(|a, b| time(*a).total_cmp(&time(*b))).unwrap();
            let daly = daly_s(write_s, mtbf_s).unwrap();
            assert!((daly / best - 1.0).abs() < 0.005, "{write_s} {mtbf_s}: {daly} {best}");
            let young = young_s(write_s, mtbf_s).unwrap();
            assert!(time(daly) <= time(young), "{young}");
        }
        assert_eq!(daly_s(500.0, 200.0).unwrap(), 200.0);
        let rate = 1.0 / 2_048.0 / 11_000.0;
        let young = young_s(30.0, 11_000.0).unwrap();
        assert!((optimal_interval_s(2_048.0, rate, 30.0).unwrap() / young - 1.0).abs() < 1e-12);
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(expected_ettr(8.0, RSC_1, 300.0, 0.0, 0.0).is_err());
        assert!(expected_ettr(8.0, f64::NAN, 300.0, 0.0, 1.0).is_err());
        assert!(mttf_s(0.0, RSC_1).is_err() && young_s(-1.0, 1.0).is_err());
        assert!(!daly_s(1.0, 0.0).unwrap_err().hint().is_empty());
    }
}
