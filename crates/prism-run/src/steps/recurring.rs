//! Stalls that every run had at the same step.

use prism_stats::StatsError;
use prism_stats::pooled::{Group, ScalePosterior, ScalePrior};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How far apart, in rows, stalls of different runs may be to count as the same.
const APART: i64 = 2;
/// Coincidences that chance alone may be expected to make.
const BY_CHANCE: f64 = 0.1;

/// How far the logarithms of one recurring stall's lengths are apart over runs: 0.76, 0.26 and 0.18 on the three
/// systems of `mlperf-llm` that have one.
const SPREAD: ScalePrior = ScalePrior { scale: 0.4, dof: 2.0 };

/// A stall that every run had at about the same step: it belongs to the job, not to chance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Recurring {
    /// First step id at which a run had it.
    pub first: i64,
    /// Last one.
    pub last: i64,
    /// Excess of all its steps, in core steps, by run.
    pub excess: Vec<f64>,
}

impl Recurring {
    /// The logarithm of its excess in another run.
    pub(super) fn posterior(&self) -> Result<ScalePosterior, StatsError> {
        let logs: Vec<f64> = self.excess.iter().map(|e| e.max(1e-6).ln()).collect();
        SPREAD.posterior(&Group::exact(&logs))
    }

    /// Middle of its excess over the runs, in core steps.
    pub fn typical(&self) -> f64 {
        self.excess.iter().sum::<f64>() / self.excess.len().max(1) as f64
    }
}

/// A run's stalls.
pub(super) struct Stalls {
    /// (step id, excess in core steps).
    pub(super) at: Vec<(i64, f64)>,
    /// Rows in which they may have been.
    pub(super) rows: usize,
}

/// Takes stalls that all runs share out of `runs`; `stride` step ids make a row.
///
/// Stalls of any run within 2 rows of each other make a cluster. It recurs if every run has a stall in it, and
/// chance would not make such a cluster: the product over runs of the probability of a stall in that many rows,
/// times the number of such places, is below 0.1.
pub(super) fn recurring(runs: &mut [Stalls], stride: i64) -> Vec<Recurring> {
    if runs.len() < 2 || runs.iter().any(|r| r.at.is_empty()) {
        return Vec::new();
    }
    let reach = APART * stride;
    let mut all: Vec<i64> = runs.iter().flat_map(|r| r.at.iter().map(|s| s.0)).collect();
    all.sort_unstable();
    let rates: Vec<f64> =
        runs.iter().map(|r| events(&r.at, reach) as f64 / r.rows.max(1) as f64).collect();
    let rows = runs.iter().map(|r| r.rows).max().unwrap_or(0) as f64;
    let mut found = Vec::new();
    for cluster in all.chunk_by(|a, b| b - a <= reach) {
        let (Some(&first), Some(&last)) = (cluster.first(), cluster.last()) else { continue };
        let excess: Option<Vec<f64>> = runs.iter().map(|r| inside(&r.at, first, last)).collect();
        let width = ((last - first) / stride + 1 + 2 * APART) as f64;
        let chance: f64 = rates.iter().map(|rate| -(-rate * width).exp_m1()).product::<f64>();
        if let Some(excess) = excess.filter(|_| chance * rows / width < BY_CHANCE) {
            found.push(Recurring { first, last, excess });
        }
    }
    for run in runs {
        run.at.retain(|s| !found.iter().any(|f| (f.first..=f.last).contains(&s.0)));
    }
    found
}

/// Excess of all stalls in a range of steps; none without one.
fn inside(stalls: &[(i64, f64)], first: i64, last: i64) -> Option<f64> {
    let mut there = stalls.iter().filter(|s| (first..=last).contains(&s.0)).peekable();
    there.peek()?;
    Some(there.map(|s| s.1).sum())
}

/// Groups of stalls within `reach` of each other.
fn events(stalls: &[(i64, f64)], reach: i64) -> usize {
    stalls.chunk_by(|a, b| b.0 - a.0 <= reach).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(at: &[(i64, f64)]) -> Stalls {
        Stalls { at: at.to_vec(), rows: 240 }
    }

    #[test]
    fn a_stall_of_every_run_recurs_and_is_taken_out() {
        let mut runs = [
            run(&[(236, 0.03), (237, 0.97)]),
            run(&[(236, 0.09), (237, 1.29)]),
            run(&[(54, 0.12), (235, 0.03), (236, 1.65)]),
        ];
        let found = recurring(&mut runs, 1);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].first, found[0].last), (235, 237));
        assert!((found[0].excess[2] - 1.68).abs() < 1e-12);
        assert_eq!(runs[2].at, [(54, 0.12)]);
        assert!(runs[0].at.is_empty());
    }

    #[test]
    fn a_run_without_it_makes_it_chance() {
        let mut runs = [run(&[(236, 1.0)]), run(&[]), run(&[(236, 1.0)])];
        assert!(recurring(&mut runs, 1).is_empty());
        assert_eq!(runs[0].at.len(), 1);
    }

    #[test]
    fn many_stalls_coincide_by_chance() {
        let every_tenth: Vec<(i64, f64)> = (1..24).map(|i| (10 * i, 0.1)).collect();
        let mut runs = [run(&every_tenth), run(&every_tenth)];
        assert!(recurring(&mut runs, 1).is_empty());
    }
}
