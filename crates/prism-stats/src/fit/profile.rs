//! One-dimensional profile likelihoods: a grid finds the basin, Brent's method its bottom.

use argmin::core::{CostFunction, Error, Executor, State};
use argmin::solver::brent::BrentOpt;

use crate::error::{Result, StatsError};

struct Profile<F>(F);

impl<F: Fn(f64) -> f64> CostFunction for Profile<F> {
    type Param = f64;
    type Output = f64;

    fn cost(&self, x: &f64) -> std::result::Result<f64, Error> {
        Ok((self.0)(*x))
    }
}

/// The lowest interior local minimum of `cost` on an even grid of `points` over [low, high], refined
/// to about 1e-8; none where the grid has no interior local minimum. A point at which the cost is
/// not finite is no minimum, nor is its neighbour: the cost may fall without limit between them.
pub(super) fn minimise(
    cost: impl Fn(f64) -> f64,
    (low, high): (f64, f64),
    points: usize,
    method: &'static str,
) -> Result<Option<f64>> {
    let step = (high - low) / (points - 1) as f64;
    let grid: Vec<f64> = (0..points).map(|i| low + step * i as f64).collect();
    let costs: Vec<f64> = grid.iter().map(|&x| cost(x)).collect();
    let mut best: Option<usize> = None;
    for i in 1..points - 1 {
        let is_minimum = costs[i - 1..=i + 1].iter().all(|c| c.is_finite())
            && costs[i] <= costs[i - 1]
            && costs[i] <= costs[i + 1]
            && (costs[i] < costs[i - 1] || costs[i] < costs[i + 1]);
        if is_minimum && best.is_none_or(|b| costs[i] < costs[b]) {
            best = Some(i);
        }
    }
    let Some(i) = best else { return Ok(None) };
    let solver = BrentOpt::new(grid[i - 1], grid[i + 1]).set_tolerance(f64::EPSILON.sqrt(), 1e-9);
    let failed = |_| StatsError::NoConvergence { method };
    let result = Executor::new(Profile(cost), solver)
        .configure(|state| state.max_iters(100))
        .timer(false)
        .run()
        .map_err(failed)?;
    Ok(result.state().get_best_param().copied())
}
