//! Quantile functions on one grid, so that laws from different methods can be mixed and compared.
//!
//! The grid is even in the normal score z = Φ⁻¹(p), 64 points per unit from 10⁻⁷ to 1 − 10⁻⁷, plus
//! the round probabilities that reports ask for. Between points a curve is linear in the score: a
//! normal law is reproduced exactly, a smooth one to (1/64)²/8 of its second derivative.

use std::sync::OnceLock;

use crate::error::{Result, StatsError, check_open_unit};
use crate::special::{normal_cdf, normal_quantile};

/// Points per unit of the normal score.
const PER_UNIT: i32 = 64;
/// Largest score: P(Z > 5.2) = 1.0·10⁻⁷.
const LAST: i32 = 333;
/// Upper tails that are grid points, and by symmetry their complements.
const ROUND: [f64; 9] = [0.5, 0.25, 0.2, 0.1, 0.05, 0.025, 0.01, 1e-3, 1e-4];

/// A point of the grid.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Level {
    /// Normal score.
    pub score: f64,
    /// Probability below, in (0, 1).
    pub below: f64,
    /// Probability above, accurate where it is small.
    pub above: f64,
}

impl Level {
    /// The level of a probability.
    ///
    /// # Errors
    /// If p is not strictly between 0 and 1.
    pub fn new(p: f64) -> Result<Self> {
        check_open_unit("p", p)?;
        Ok(Self { score: normal_quantile(p), below: p, above: 1.0 - p })
    }

    fn of_score(score: f64) -> Self {
        Self { score, below: normal_cdf(score), above: normal_cdf(-score) }
    }

    /// ln of the probability below, accurate at both ends.
    pub fn ln_below(&self) -> f64 {
        if self.above < 0.5 { (-self.above).ln_1p() } else { self.below.ln() }
    }
}

/// The grid, ascending.
pub fn levels() -> &'static [Level] {
    static GRID: OnceLock<Vec<Level>> = OnceLock::new();
    GRID.get_or_init(|| {
        let even = (-LAST..=LAST)
            .filter(|i| *i != 0)
            .map(|i| Level::of_score(f64::from(i) / f64::from(PER_UNIT)));
        let upper = ROUND.map(|q| Level { score: -normal_quantile(q), below: 1.0 - q, above: q });
        let lower = ROUND[1..].iter().map(|&q| Level {
            score: normal_quantile(q),
            below: q,
            above: 1.0 - q,
        });
        let mut grid: Vec<Level> = even.chain(upper).chain(lower).collect();
        grid.sort_by(|a, b| a.score.total_cmp(&b.score));
        grid
    })
}

/// A quantile function on the [grid](levels). Values may be infinite, as bounds are.
#[derive(Clone, Debug, PartialEq)]
pub struct QuantileCurve {
    values: Vec<f64>,
}

impl QuantileCurve {
    /// The curve of a function of the level. Where it descends, by rounding or sampling, the running
    /// maximum is kept.
    ///
    /// # Errors
    /// If a value is not a number.
    pub fn from_fn(mut quantile: impl FnMut(&Level) -> f64) -> Result<Self> {
        let mut top = f64::NEG_INFINITY;
        let mut values = Vec::with_capacity(levels().len());
        for (index, level) in levels().iter().enumerate() {
            let value = quantile(level);
            if value.is_nan() {
                return Err(StatsError::NotFinite { index, value });
            }
            top = top.max(value);
            values.push(top);
        }
        Ok(Self { values })
    }

    /// The values, one per [level](levels).
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// Value at a normal score; the end values beyond the grid.
    pub fn at_score(&self, score: f64) -> f64 {
        let grid = levels();
        let last = grid.len() - 1;
        let k = grid.partition_point(|l| l.score <= score);
        if k == 0 || k > last {
            return self.values[if k == 0 { 0 } else { last }];
        }
        let share = (score - grid[k - 1].score) / (grid[k].score - grid[k - 1].score);
        interpolate(self.values[k - 1], self.values[k], share)
    }

    /// Quantile p; the end values outside the grid, NaN outside [0, 1].
    pub fn quantile(&self, p: f64) -> f64 {
        if (0.0..=1.0).contains(&p) { self.at_score(normal_quantile(p)) } else { f64::NAN }
    }

    /// The value exceeded with probability q; as [`quantile`](Self::quantile).
    pub fn quantile_upper(&self, q: f64) -> f64 {
        if (0.0..=1.0).contains(&q) { self.at_score(-normal_quantile(q)) } else { f64::NAN }
    }

    /// Normal score of P(X ≤ x); infinite outside the values.
    pub fn score_of(&self, x: f64) -> f64 {
        let grid = levels();
        let k = self.values.partition_point(|&v| v <= x);
        if k == 0 {
            return f64::NEG_INFINITY;
        }
        if k == grid.len() {
            return f64::INFINITY;
        }
        let (low, high) = (self.values[k - 1], self.values[k]);
        let share = if high > low { (x - low) / (high - low) } else { 0.0 };
        interpolate(grid[k - 1].score, grid[k].score, share)
    }

    /// P(X ≤ x).
    pub fn cdf(&self, x: f64) -> f64 {
        normal_cdf(self.score_of(x))
    }

    /// P(X > x).
    pub fn sf(&self, x: f64) -> f64 {
        normal_cdf(-self.score_of(x))
    }

    /// Pieces of the law: (mass, middle value, width), the two ends beyond the grid included.
    fn pieces(&self) -> impl Iterator<Item = (f64, f64, f64)> {
        let (grid, v) = (levels(), &self.values);
        let last = v.len() - 1;
        let inner = (0..last).map(move |i| {
            let mass = if grid[i].score < 0.0 {
                grid[i + 1].below - grid[i].below
            } else {
                grid[i].above - grid[i + 1].above
            };
            (mass, 0.5 * (v[i] + v[i + 1]), v[i + 1] - v[i])
        });
        let ends = [(grid[0].below, v[0], 0.0), (grid[last].above, v[last], 0.0)];
        inner.chain(ends)
    }

    /// Expectation, the ends beyond the grid at the end values.
    pub fn mean(&self) -> f64 {
        self.pieces().map(|(mass, middle, _)| mass * middle).sum()
    }

    /// Standard deviation.
    pub fn sd(&self) -> f64 {
        let mean = self.mean();
        let square = |(mass, middle, width): (f64, f64, f64)| {
            mass * ((middle - mean).powi(2) + width * width / 12.0)
        };
        self.pieces().map(square).sum::<f64>().sqrt()
    }

    /// The curve of an ascending function of the variable.
    ///
    /// # Errors
    /// If a value is not a number.
    pub fn map(&self, f: impl Fn(f64) -> f64) -> Result<Self> {
        let mut values = self.values.iter();
        Self::from_fn(|_| values.next().map_or(f64::NAN, |&v| f(v)))
    }

    /// The mixture of laws with the given weights, not necessarily normalised.
    ///
    /// # Errors
    /// If there is no part, a weight is negative or not finite, or all are zero.
    pub fn mixture(parts: &[(f64, &Self)]) -> Result<Self> {
        let total: f64 = parts.iter().map(|p| p.0).sum();
        if let Some(p) = parts.iter().find(|p| !(p.0 >= 0.0 && p.0.is_finite())) {
            return Err(StatsError::Argument {
                argument: "weight",
                value: p.0,
                domain: "finite and at least 0",
            });
        }
        if total <= 0.0 {
            return Err(StatsError::TooFew { method: "a mixture", have: 0, need: 1 });
        }
        let mut cells: Vec<(f64, f64)> = parts
            .iter()
            .filter(|(weight, _)| *weight > 0.0)
            .flat_map(|(weight, curve)| curve.pieces().map(move |c| (c.1, weight / total * c.0)))
            .collect();
        cells.sort_by(|a, b| a.0.total_cmp(&b.0));
        Self::from_cells(&cells)
    }

    /// The curve of ascending (value, mass) cells whose masses sum to 1: linear between the middles.
    ///
    /// # Errors
    /// If there is no cell or a value is not a number.
    pub fn from_cells(cells: &[(f64, f64)]) -> Result<Self> {
        if cells.is_empty() {
            return Err(StatsError::TooFew { method: "a law of cells", have: 0, need: 1 });
        }
        let n = cells.len();
        let cumulate = |order: &mut dyn Iterator<Item = usize>| {
            let mut out = vec![0.0; n];
            let mut sum = 0.0;
            for i in order {
                out[i] = sum + 0.5 * cells[i].1;
                sum += cells[i].1;
            }
            out
        };
        let below = cumulate(&mut (0..n));
        let above = cumulate(&mut (0..n).rev());
        let between = |k: usize, share: f64| {
            if k == 0 || k == n {
                cells[k.min(n - 1)].0
            } else {
                interpolate(cells[k - 1].0, cells[k].0, share)
            }
        };
        Self::from_fn(|level| {
            // Whichever tail is the smaller one names the place without cancellation.
            let (k, side, want) = if level.score <= 0.0 {
                (below.partition_point(|&b| b <= level.below), &below, level.below)
            } else {
                (above.partition_point(|&a| a > level.above), &above, level.above)
            };
            if k == 0 || k == n {
                return between(k, 0.0);
            }
            let gap = side[k] - side[k - 1];
            between(k, if gap == 0.0 { 0.0 } else { (want - side[k - 1]) / gap })
        })
    }
}

/// Linear between ascending values; infinite where an end is.
fn interpolate(low: f64, high: f64, share: f64) -> f64 {
    if share <= 0.0 || low == high {
        low
    } else if share >= 1.0 || high == f64::INFINITY {
        high
    } else if low == f64::NEG_INFINITY {
        low
    } else {
        low + share * (high - low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::law::{Distribution, Law};

    fn curve(law: &Law) -> QuantileCurve {
        QuantileCurve::from_fn(|l| {
            if l.score < 0.0 { law.quantile(l.below) } else { law.quantile_upper(l.above) }
        })
        .unwrap()
    }

    #[test]
    fn a_curve_reproduces_its_law() {
        for law in [Law::normal(3.0, 0.2).unwrap(), Law::log_normal(0.0, 0.3).unwrap()] {
            let c = curve(&law);
            for p in [1e-6, 0.013, 0.37, 0.5, 0.95, 0.987, 0.999] {
                let want = law.quantile(p);
                assert!((c.quantile(p) - want).abs() < 2e-5 * law.sd(), "{p}");
                assert!((c.cdf(want) / p - 1.0).abs() < 1e-4, "{p}");
            }
            let want = law.quantile_upper(3e-6);
            assert!((c.quantile_upper(3e-6) - want).abs() < 1e-4 * law.sd());
            assert!((c.sf(want) / 3e-6 - 1.0).abs() < 1e-3);
            assert!((c.mean() - law.mean()).abs() < 1e-4 * law.sd());
            assert!((c.sd() / law.sd() - 1.0).abs() < 1e-3);
        }
    }

    #[test]
    fn a_mixture_has_the_mixed_distribution_function() {
        let laws = [Law::normal(0.0, 1.0).unwrap(), Law::normal(2.5, 0.4).unwrap()];
        let curves = [curve(&laws[0]), curve(&laws[1])];
        let mixed = QuantileCurve::mixture(&[(3.0, &curves[0]), (1.0, &curves[1])]).unwrap();
        for x in [-4.0, -1.0, 0.3, 2.0, 2.7, 4.2] {
            let want = 0.75 * laws[0].sf(x) + 0.25 * laws[1].sf(x);
            // Half a cell of the other part: z/64/2 of the tail at score z.
            assert!((mixed.sf(x) / want - 1.0).abs() < 0.03, "{x}: {} {want}", mixed.sf(x));
        }
        assert!((mixed.mean() - 0.625).abs() < 1e-3);
        assert!(QuantileCurve::mixture(&[]).is_err());
        assert!(QuantileCurve::mixture(&[(-1.0, &curves[0]), (3.0, &curves[1])]).is_err());
    }

    #[test]
    fn round_probabilities_are_grid_points() {
        let mut index = 0.0;
        let c = QuantileCurve::from_fn(|_| {
            index += 1.0;
            index
        })
        .unwrap();
        for p in [1e-4, 0.01, 0.05, 0.5, 0.9, 0.95, 0.99, 0.999] {
            let v = c.quantile(p);
            assert!((v - v.round()).abs() < 1e-6, "{p} {v}");
        }
        assert!(levels().windows(2).all(|w| w[0].score < w[1].score));
        let up = c.map(|x| if x > 500.0 { f64::INFINITY } else { 2.0 * x }).unwrap();
        assert_eq!(up.quantile(0.9999), f64::INFINITY);
        assert!(up.quantile(0.5).is_finite());
    }
}
