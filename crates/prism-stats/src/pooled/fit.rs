//! Maximum likelihood of two positive parameters.

use argmin::core::{CostFunction, Error, Executor, State};
use argmin::solver::neldermead::NelderMead;

use crate::error::{Result, StatsError};

struct Cost<F>(F);

impl<F: Fn(f64, f64) -> f64> CostFunction for Cost<F> {
    type Param = Vec<f64>;
    type Output = f64;

    fn cost(&self, p: &Vec<f64>) -> std::result::Result<f64, Error> {
        Ok((self.0)(p[0], p[1]))
    }
}

/// The lowest minimum of `cost` over two logarithms, from several starts, inside a box.
pub(super) fn minimise(
    cost: impl Fn(f64, f64) -> f64,
    starts: &[(f64, f64)],
    bounds: [(f64, f64); 2],
    method: &'static str,
) -> Result<(f64, f64)> {
    let inside = |a: f64, b: f64| {
        let outside = |x: f64, (low, high): (f64, f64)| (low - x).max(x - high).max(0.0);
        let (oa, ob) = (outside(a, bounds[0]), outside(b, bounds[1]));
        let at = (a.clamp(bounds[0].0, bounds[0].1), b.clamp(bounds[1].0, bounds[1].1));
        let value = cost(at.0, at.1);
        if value.is_finite() { value + 1e3 * (oa + ob) } else { f64::MAX }
    };
    let mut best: Option<(f64, f64, f64)> = None;
    for &(a, b) in starts {
        let simplex = vec![vec![a, b], vec![a + 0.5, b], vec![a, b + 0.5]];
        let solver = NelderMead::new(simplex)
            .with_sd_tolerance(1e-9)
            .map_err(|_| StatsError::NoConvergence { method })?;
        let done = Executor::new(Cost(&inside), solver)
            .configure(|state| state.max_iters(500))
            .timer(false)
            .run()
            .map_err(|_| StatsError::NoConvergence { method })?;
        let state = done.state();
        if let Some(p) = state.get_best_param()
            && best.is_none_or(|b| state.get_best_cost() < b.2)
        {
            best = Some((p[0], p[1], state.get_best_cost()));
        }
    }
    let (a, b, _) = best.ok_or(StatsError::NoConvergence { method })?;
    Ok((a.clamp(bounds[0].0, bounds[0].1), b.clamp(bounds[1].0, bounds[1].1)))
}
