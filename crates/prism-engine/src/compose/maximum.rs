//! The slowest of many replicas, from samples of one.
//!
//! Replicas that wait for each other only at the end of a step, independent given what they share:
//! P(max ≤ t) = Π Fₖ(t)^nₖ over strata k of persistent speed (DESIGN: order statistics). The quantile
//! at a of the largest of N is the replica's at a^(1/N), whose upper tail is −expm1(ln(a)/N): for
//! N = 8,192 and the median 8.5·10⁻⁵. A confidence interval of the replica's quantile is one of the
//! maximum's, since the map is monotone.

use prism_stats::QuantileCurve;
use prism_stats::curve::{Level, levels};
use prism_stats::interval::quantile_ranks;

use super::choose::Method;
use super::error::{ComposeError, Result};
use super::law::{Bounds, Composed, Diagnostics, Reach};
use super::tail::{SampleTail, Tail};

/// Samples of one replica's time and how many replicas behave so.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Replicas<'a> {
    /// Times in seconds, ascending.
    pub sorted: &'a [f64],
    /// One weight per time, in the same order; empty for equal weights. Only ratios matter.
    pub weights: &'a [f64],
    /// Number of replicas.
    pub count: u64,
}

impl<'a> Replicas<'a> {
    /// `count` replicas whose time has the given equally likely, ascending samples.
    pub fn new(sorted: &'a [f64], count: u64) -> Self {
        Self { sorted, weights: &[], count }
    }
}

/// How a maximum is estimated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MaxOptions {
    /// Confidence of the bounds.
    pub confidence: f64,
    /// Effective number of samples beyond a quantile, below which it is refused.
    pub min_exceedances: f64,
    /// What happens beyond the data.
    pub tail: Tail,
}

impl Default for MaxOptions {
    /// 95 % bounds; ten exceedances, a relative error of 1/√10 of the tail probability; no extrapolation.
    fn default() -> Self {
        Self { confidence: 0.95, min_exceedances: 10.0, tail: Tail::Refuse }
    }
}

/// The law of the largest of all replicas of all strata, given samples of each stratum.
///
/// # Errors
/// [`ComposeError::NoData`] where not even the median can be answered;
/// [`ComposeError::Input`], [`ComposeError::Shape`], [`ComposeError::Stats`] for bad samples.
///
/// ```
/// use prism_engine::compose::{MaxOptions, Replicas, order_max};
/// use prism_stats::{Distribution, Law};
///
/// let law = Law::normal(1.0, 0.02)?;
/// let sorted: Vec<f64> = (0..100_000).map(|i| law.quantile((i as f64 + 0.5) / 1e5)).collect();
/// let step = order_max(&[Replicas::new(&sorted, 64)], &MaxOptions::default())?;
/// assert!((step.quantile(0.5)?.value - 1.0460).abs() < 1e-3);
/// // One in 10⁵ steps is one in 6·10⁶ replica times: 10⁵ samples do not tell.
/// assert!(step.quantile(0.99999).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn order_max(strata: &[Replicas<'_>], options: &MaxOptions) -> Result<Composed> {
    ComposeError::check(
        options.confidence > 0.0 && options.confidence < 1.0,
        "confidence",
        options.confidence,
        "strictly between 0 and 1",
    )?;
    let need = options.min_exceedances;
    ComposeError::check(need >= 1.0 && need.is_finite(), "min_exceedances", need, "at least 1")?;
    let members: u64 = strata.iter().map(|s| s.count).sum();
    ComposeError::check(members > 0, "number of replicas", 0.0, "positive")?;
    let parts = strata
        .iter()
        .filter(|s| s.count > 0)
        .map(|s| Ok((SampleTail::new(s.sorted, s.weights, need, options.tail)?, s.count as f64)))
        .collect::<Result<Vec<_>>>()?;
    let maximum = Maximum { parts };
    let estimate = QuantileCurve::from_fn(|level| maximum.quantile(-level.ln_below()))?;
    let reach = maximum.reach(&estimate, need, options.tail)?;
    let [lower, upper] = maximum.bounds(&estimate, options)?;
    let mut diagnostics = Diagnostics::new(Method::OrderStatistics);
    diagnostics.samples = strata.iter().map(|s| s.sorted.len() as u64).sum();
    diagnostics.members = members;
    diagnostics.effective_samples = maximum.parts.iter().map(|p| p.0.effective()).sum();
    let pressure = |(tail, count): &(SampleTail<'_>, f64)| count / (2.0 * tail.effective());
    let worst = maximum.parts.iter().map(pressure).fold(0.0, f64::max);
    diagnostics.plug_in_bias = std::f64::consts::LN_2 * worst;
    let bounds = Bounds::Confidence(options.confidence);
    Ok(Composed::new([lower, estimate, upper], bounds, reach, diagnostics))
}

struct Maximum<'a> {
    parts: Vec<(SampleTail<'a>, f64)>,
}

impl Maximum<'_> {
    /// −ln P(max ≤ x).
    fn miss(&self, x: f64) -> f64 {
        self.parts.iter().map(|(tail, count)| -count * (-tail.above(x)).ln_1p()).sum()
    }

    /// The time at which −ln P(max ≤ x) falls to λ.
    fn quantile(&self, lambda: f64) -> f64 {
        let own =
            |tail: &SampleTail<'_>, share: f64| tail.quantile_upper(-(-lambda * share).exp_m1());
        if let [(tail, count)] = &self.parts[..] {
            return own(tail, 1.0 / count);
        }
        let total: f64 = self.parts.iter().map(|p| p.1).sum();
        // Each stratum alone is a lower bound; an upper one leaves each replica its share of the miss.
        let fold = |each: &dyn Fn(&(SampleTail<'_>, f64)) -> f64| {
            self.parts.iter().map(each).fold(f64::NEG_INFINITY, f64::max)
        };
        let mut low = fold(&|(tail, count)| own(tail, 1.0 / count));
        let mut high = fold(&|(tail, _)| own(tail, 1.0 / total)).max(low);
        for _ in 0..60 {
            let middle = 0.5 * (low + high);
            if middle <= low || middle >= high {
                break;
            }
            if self.miss(middle) > lambda { low = middle } else { high = middle }
        }
        high
    }

    /// What the data are worth at x: (λ/s.d. of its estimate)², the number of exceedances in the tail.
    fn exceedances(&self, x: f64) -> f64 {
        let (mut lambda, mut variance) = (0.0, 0.0);
        for (tail, count) in &self.parts {
            let (above, samples) = tail.evidence(x);
            // A stratum that has nothing beyond x adds to the error, not to the estimate.
            if x <= tail.largest() {
                lambda -= count * (-above).ln_1p();
            }
            variance += (count * above).powi(2) / ((1.0 - above) * samples);
        }
        if variance > 0.0 { lambda * lambda / variance } else { 0.0 }
    }

    fn reach(&self, estimate: &QuantileCurve, need: f64, tail: Tail) -> Result<Reach> {
        let grid = levels();
        let worth: Vec<f64> = estimate.values().iter().map(|&x| self.exceedances(x)).collect();
        let middle = grid.partition_point(|l| l.score < 0.0);
        let enough = |i: &usize| worth[*i] >= need;
        let first = (0..=middle).rev().take_while(enough).last();
        let last = (middle..grid.len()).take_while(enough).last();
        let (Some(first), Some(last)) = (first, last) else {
            let (p, have) = (0.5, worth[middle]);
            return Err(ComposeError::NoData { p, have, need, from: f64::NAN, to: f64::NAN });
        };
        let to = grid[last].score;
        let to = if last + 1 == grid.len() { f64::INFINITY } else { to };
        let from = if first == 0 { f64::NEG_INFINITY } else { grid[first].score };
        let fitted = matches!(tail, Tail::Pareto { .. });
        Ok(Reach {
            from,
            to: if fitted { f64::INFINITY } else { to },
            extrapolated: to,
            need,
            at_end: need,
        })
    }

    /// Bounds on a coarse subset of levels, offsets from the estimate linear between.
    fn bounds(&self, estimate: &QuantileCurve, options: &MaxOptions) -> Result<[QuantileCurve; 2]> {
        let grid = levels();
        let width = -Level::new(0.5 * (1.0 - options.confidence))?.score;
        let ranks = match &self.parts[..] {
            [(tail, count)] => tail.plain().map(|sorted| (sorted, *count)),
            _ => None,
        };
        let mut knots: Vec<(usize, [f64; 2])> = Vec::new();
        for (i, level) in grid.iter().enumerate() {
            if i % 8 != 0 && i + 1 != grid.len() && !is_round(level) {
                continue;
            }
            let (lambda, value) = (-level.ln_below(), estimate.values()[i]);
            let ends = if let Some((sorted, count)) = ranks {
                let above = -(-lambda / count).exp_m1();
                rank_bounds(sorted, above, options.confidence)?
            } else {
                let worth = self.exceedances(value);
                let spread = (width / worth.sqrt()).exp();
                let end = |l: f64| if worth >= 1.0 { self.quantile(l) } else { f64::NAN };
                let (low, high) = (end(lambda * spread), end(lambda / spread));
                let known = self.exceedances(high) >= 1.0;
                [
                    if low.is_nan() { f64::NEG_INFINITY } else { low },
                    if high.is_nan() || !known { f64::INFINITY } else { high },
                ]
            };
            knots.push((i, [ends[0].min(value), ends[1].max(value)]));
        }
        let side = |s: usize| {
            let mut index = 0;
            QuantileCurve::from_fn(|level| {
                let (i, k) = (index, knots.partition_point(|x| x.0 <= index).max(1));
                index += 1;
                let (a, b) = (knots[k - 1], knots[k.min(knots.len() - 1)]);
                if i == a.0 || a.0 == b.0 {
                    return a.1[s];
                }
                let offset = |k: (usize, [f64; 2])| k.1[s] - estimate.values()[k.0];
                let share = (level.score - grid[a.0].score) / (grid[b.0].score - grid[a.0].score);
                let (x, y) = (offset(a), offset(b));
                if !(x.is_finite() && y.is_finite()) {
                    // Where one end is unknown, so is what lies towards it.
                    return if x.is_finite() { y } else { x };
                }
                estimate.values()[i] + x + share * (y - x)
            })
        };
        Ok([side(0)?, side(1)?])
    }
}

fn is_round(level: &Level) -> bool {
    [0.5, 0.9, 0.95, 0.99, 0.999].contains(&level.below)
}

fn rank_bounds(sorted: &[f64], above: f64, confidence: f64) -> Result<[f64; 2]> {
    let p = 1.0 - above;
    if p <= 0.0 || p >= 1.0 {
        return Ok([f64::NEG_INFINITY, f64::INFINITY]);
    }
    let ranks = quantile_ranks(sorted.len() as u64, p, confidence)?;
    let at = |rank: Option<u64>, none: f64| rank.map_or(none, |r| sorted[r as usize - 1]);
    Ok([at(ranks.lower, f64::NEG_INFINITY), at(ranks.upper, f64::INFINITY)])
}
