//! Nonlinear least squares inside bounds, with what the data cannot tell.

/// A parameter and the range it may take.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Name for reports.
    pub name: String,
    /// Where the search begins.
    pub start: f64,
    /// Least value.
    pub low: f64,
    /// Greatest value.
    pub high: f64,
}

/// An estimated parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimated {
    /// Name.
    pub name: String,
    /// Value.
    pub value: f64,
    /// Standard error from the curvature of the sum of squares; infinite where the data say nothing,
    /// NaN where they determine the parameters exactly and leave nothing to judge errors by.
    pub standard_error: f64,
    /// Whether the value lies on one of its bounds.
    pub at_bound: bool,
}

/// Result of [`least_squares`].
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    /// Parameters, in order.
    pub parameters: Vec<Estimated>,
    /// Root mean square of the residuals.
    pub rms: f64,
    /// Residuals at the estimate.
    pub residuals: Vec<f64>,
    /// Iterations taken.
    pub iterations: usize,
    /// Whether the last step was smaller than the tolerance.
    pub converged: bool,
}

/// Why there is no fit.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LeastSquaresError {
    /// A range is empty, or the start lies outside it.
    #[error("parameter `{name}`: {start} is not inside [{low}, {high}]")]
    Range {
        /// Parameter.
        name: String,
        /// Start.
        start: f64,
        /// Least value.
        low: f64,
        /// Greatest value.
        high: f64,
    },
    /// Fewer residuals than parameters.
    #[error("{residuals} residuals cannot determine {parameters} parameters")]
    TooFew {
        /// Residuals.
        residuals: usize,
        /// Parameters.
        parameters: usize,
    },
    /// The model is not finite at the start.
    #[error("residual {index} is not finite at the start")]
    NotFinite {
        /// Residual.
        index: usize,
    },
}

/// Minimises the sum of squares of `residuals` over a box (Levenberg–Marquardt with projection and
/// numerical derivatives; Nocedal and Wright 2006, chapter 10).
///
/// Parameters are searched on the logarithmic scale where their range is positive, so that steps are
/// shares. Standard errors are those of the linearised problem at the estimate, `s² (JᵀJ)⁻¹` over the
/// parameters that lie inside their ranges.
///
/// # Errors
/// [`LeastSquaresError`].
pub fn least_squares(
    parameters: &[Parameter],
    mut residuals: impl FnMut(&[f64]) -> Vec<f64>,
) -> Result<Fit, LeastSquaresError> {
    for p in parameters {
        let inside = p.low < p.high && (p.low..=p.high).contains(&p.start);
        if !inside {
            let (name, start, low, high) = (p.name.clone(), p.start, p.low, p.high);
            return Err(LeastSquaresError::Range { name, start, low, high });
        }
    }
    let scales: Vec<Scale> = parameters.iter().map(Scale::of).collect();
    let mut at: Vec<f64> = parameters.iter().zip(&scales).map(|(p, s)| s.to(p.start)).collect();
    let mut evaluate = |at: &[f64]| {
        let values: Vec<f64> = at.iter().zip(&scales).map(|(x, s)| s.from(*x)).collect();
        residuals(&values)
    };
    let mut now = evaluate(&at);
    if now.len() < parameters.len() {
        let (residuals, parameters) = (now.len(), parameters.len());
        return Err(LeastSquaresError::TooFew { residuals, parameters });
    }
    if let Some(index) = now.iter().position(|r| !r.is_finite()) {
        return Err(LeastSquaresError::NotFinite { index });
    }
    let mut damping = 1e-3;
    let (mut iterations, mut converged) = (0, false);
    while iterations < MAX_ITERATIONS && !converged {
        iterations += 1;
        let jacobian = jacobian(&at, &now, &scales, &mut evaluate);
        let free = free_parameters(&at, &now, &jacobian, &scales);
        let mut improved = false;
        for _ in 0..12 {
            let step = damped_step(&jacobian, &now, &free, damping);
            let trial: Vec<f64> =
                at.iter().zip(&step).zip(&scales).map(|((x, d), s)| s.inside(x + d)).collect();
            let then = evaluate(&trial);
            let (before, after) = (sum_of_squares(&now), sum_of_squares(&then));
            if after < before {
                let moved = at.iter().zip(&trial).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
                converged = before - after <= 1e-10 * before && moved < 1e-4;
                (at, now) = (trial, then);
                damping = (damping / 5.0).max(1e-12);
                improved = true;
                break;
            }
            damping *= 4.0;
        }
        if !improved {
            converged = true;
        }
    }
    let jacobian = jacobian(&at, &now, &scales, &mut evaluate);
    let errors = standard_errors(&jacobian, &now, &at, &scales);
    let estimated = parameters
        .iter()
        .enumerate()
        .map(|(i, p)| Estimated {
            name: p.name.clone(),
            value: scales[i].from(at[i]),
            standard_error: errors[i],
            at_bound: scales[i].at_bound(at[i]),
        })
        .collect();
    let rms = (sum_of_squares(&now) / now.len() as f64).sqrt();
    Ok(Fit { parameters: estimated, rms, residuals: now, iterations, converged })
}

const MAX_ITERATIONS: usize = 200;

/// How a parameter is searched.
struct Scale {
    log: bool,
    low: f64,
    high: f64,
}

impl Scale {
    fn of(p: &Parameter) -> Scale {
        let log = p.low > 0.0;
        let on = |x: f64| if log { x.ln() } else { x };
        Scale { log, low: on(p.low), high: on(p.high) }
    }

    fn to(&self, value: f64) -> f64 {
        if self.log { value.ln() } else { value }
    }

    fn from(&self, x: f64) -> f64 {
        if self.log { x.exp() } else { x }
    }

    fn inside(&self, x: f64) -> f64 {
        x.clamp(self.low, self.high)
    }

    fn at_bound(&self, x: f64) -> bool {
        let slack = 1e-9 * (self.high - self.low);
        x <= self.low + slack || x >= self.high - slack
    }

    /// Derivative of the value with respect to the searched number.
    fn slope(&self, x: f64) -> f64 {
        if self.log { x.exp() } else { 1.0 }
    }
}

fn sum_of_squares(residuals: &[f64]) -> f64 {
    let sum: f64 = residuals.iter().map(|r| r * r).sum();
    if sum.is_finite() { sum } else { f64::INFINITY }
}

/// `[parameter][residual]`, by central differences inside the range.
fn jacobian(
    at: &[f64],
    now: &[f64],
    scales: &[Scale],
    evaluate: &mut impl FnMut(&[f64]) -> Vec<f64>,
) -> Vec<Vec<f64>> {
    (0..at.len())
        .map(|i| {
            let h = 1e-3 * (scales[i].high - scales[i].low).min(1.0);
            let mut moved = at.to_vec();
            moved[i] = scales[i].inside(at[i] + h);
            let up = (evaluate(&moved), moved[i]);
            moved[i] = scales[i].inside(at[i] - h);
            let down = (evaluate(&moved), moved[i]);
            let width = up.1 - down.1;
            (0..now.len())
                .map(|r| {
                    let slope = (up.0[r] - down.0[r]) / width;
                    if slope.is_finite() { slope } else { 0.0 }
                })
                .collect()
        })
        .collect()
}

/// Parameters that may move: not those at a bound that the gradient pushes further out.
fn free_parameters(at: &[f64], now: &[f64], jacobian: &[Vec<f64>], scales: &[Scale]) -> Vec<usize> {
    (0..at.len())
        .filter(|&i| {
            let gradient: f64 = jacobian[i].iter().zip(now).map(|(j, r)| j * r).sum();
            let at_low = at[i] <= scales[i].low && gradient > 0.0;
            let at_high = at[i] >= scales[i].high && gradient < 0.0;
            !(at_low || at_high)
        })
        .collect()
}

fn damped_step(jacobian: &[Vec<f64>], now: &[f64], free: &[usize], damping: f64) -> Vec<f64> {
    let mut normal = gram(jacobian, free);
    for (i, row) in normal.iter_mut().enumerate() {
        row[i] += damping * row[i].max(1e-12);
    }
    let right: Vec<f64> = free
        .iter()
        .map(|&i| -jacobian[i].iter().zip(now).map(|(j, r)| j * r).sum::<f64>())
        .collect();
    let mut step = vec![0.0; jacobian.len()];
    if let Some(factor) = cholesky(&normal) {
        for (&i, d) in free.iter().zip(solve(&factor, &right)) {
            step[i] = d.clamp(-1.0, 1.0);
        }
    }
    step
}

fn gram(jacobian: &[Vec<f64>], rows: &[usize]) -> Vec<Vec<f64>> {
    rows.iter()
        .map(|&i| {
            rows.iter()
                .map(|&j| jacobian[i].iter().zip(&jacobian[j]).map(|(a, b)| a * b).sum())
                .collect()
        })
        .collect()
}

fn standard_errors(jacobian: &[Vec<f64>], now: &[f64], at: &[f64], scales: &[Scale]) -> Vec<f64> {
    let inner: Vec<usize> = (0..at.len()).filter(|&i| !scales[i].at_bound(at[i])).collect();
    let mut errors = vec![f64::INFINITY; at.len()];
    let degrees = now.len().saturating_sub(inner.len());
    let variance = if degrees == 0 { f64::NAN } else { sum_of_squares(now) / degrees as f64 };
    let normal = gram(jacobian, &inner);
    let largest = (0..inner.len()).map(|i| normal[i][i]).fold(0.0, f64::max);
    // Parameters without any influence are left out; the rest must be jointly determined.
    let felt: Vec<usize> = (0..inner.len()).filter(|&i| normal[i][i] > 1e-14 * largest).collect();
    let reduced: Vec<Vec<f64>> =
        felt.iter().map(|&i| felt.iter().map(|&j| normal[i][j]).collect()).collect();
    let Some(factor) = cholesky(&reduced) else { return errors };
    for (k, &i) in felt.iter().enumerate() {
        let unit: Vec<f64> = (0..felt.len()).map(|j| f64::from(u8::from(j == k))).collect();
        let diagonal = solve(&factor, &unit)[k];
        let index = inner[i];
        errors[index] = (variance * diagonal).sqrt() * scales[index].slope(at[index]);
    }
    errors
}

/// Lower factor of a positive definite matrix; `None` if it is not.
fn cholesky(a: &[Vec<f64>]) -> Option<Vec<Vec<f64>>> {
    let n = a.len();
    let mut l = vec![vec![0.0; n]; n];
    for i in 0..n {
        for j in 0..=i {
            let dot: f64 = (0..j).map(|k| l[i][k] * l[j][k]).sum();
            if i == j {
                let rest = a[i][i] - dot;
                if rest <= 1e-13 * a[i][i] {
                    return None;
                }
                l[i][i] = rest.sqrt();
            } else {
                l[i][j] = (a[i][j] - dot) / l[j][j];
            }
        }
    }
    Some(l)
}

fn solve(l: &[Vec<f64>], b: &[f64]) -> Vec<f64> {
    let n = l.len();
    let mut y = vec![0.0; n];
    for i in 0..n {
        let dot: f64 = (0..i).map(|k| l[i][k] * y[k]).sum();
        y[i] = (b[i] - dot) / l[i][i];
    }
    for i in (0..n).rev() {
        let dot: f64 = (i + 1..n).map(|k| l[k][i] * y[k]).sum();
        y[i] = (y[i] - dot) / l[i][i];
    }
    y
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameter(name: &str, start: f64, low: f64, high: f64) -> Parameter {
        Parameter { name: name.to_owned(), start, low, high }
    }

    #[test]
    fn a_straight_line_has_the_closed_form() {
        let x: Vec<f64> = (0..20).map(f64::from).collect();
        let y: Vec<f64> = x.iter().map(|x| 3.0 + 0.5 * x + (x * 1.7).sin() * 0.1).collect();
        let fit = least_squares(
            &[parameter("a", 1.0, -10.0, 10.0), parameter("b", 1.0, 0.01, 10.0)],
            |p| x.iter().zip(&y).map(|(x, y)| p[0] + p[1] * x - y).collect(),
        )
        .unwrap();
        let n = x.len() as f64;
        let (mx, my) = (x.iter().sum::<f64>() / n, y.iter().sum::<f64>() / n);
        let sxx: f64 = x.iter().map(|x| (x - mx).powi(2)).sum();
        let sxy: f64 = x.iter().zip(&y).map(|(x, y)| (x - mx) * (y - my)).sum();
        let b = sxy / sxx;
        let a = my - b * mx;
        let rss: f64 = x.iter().zip(&y).map(|(x, y)| (a + b * x - y).powi(2)).sum();
        let se_b = (rss / (n - 2.0) / sxx).sqrt();
        assert!((fit.parameters[0].value - a).abs() < 1e-6, "{fit:?}");
        assert!((fit.parameters[1].value - b).abs() < 1e-7, "{fit:?}");
        assert!((fit.parameters[1].standard_error / se_b - 1.0).abs() < 1e-3, "{fit:?}");
    }

    #[test]
    fn a_parameter_without_influence_is_not_identified() {
        let fit =
            least_squares(&[parameter("a", 1.0, 0.1, 10.0), parameter("b", 1.0, 0.1, 10.0)], |p| {
                (0..5)
                    .map(|i| p[0] * f64::from(i) - 2.0 * f64::from(i) + 0.01 * f64::from(i % 2))
                    .collect()
            })
            .unwrap();
        assert!(fit.parameters[0].standard_error < 0.01);
        assert!(fit.parameters[1].standard_error.is_infinite());
    }

    #[test]
    fn as_many_points_as_parameters_leave_no_error_to_judge() {
        let fit = least_squares(&[parameter("a", 1.0, 0.1, 10.0)], |p| vec![p[0] - 2.0]).unwrap();
        assert!((fit.parameters[0].value - 2.0).abs() < 1e-6);
        assert!(fit.parameters[0].standard_error.is_nan());
    }

    #[test]
    fn bounds_hold_and_are_named() {
        let fit = least_squares(&[parameter("a", 0.5, 0.1, 1.0)], |p| vec![p[0] - 2.0, p[0] - 2.1])
            .unwrap();
        assert_eq!(fit.parameters[0].value, 1.0);
        assert!(fit.parameters[0].at_bound);
        assert!(least_squares(&[parameter("a", 2.0, 0.1, 1.0)], |_| vec![0.0]).is_err());
    }
}
