//! The distribution function of weighted samples, tails first.

use super::error::{ComposeError, Result};

/// What to do beyond the data.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Tail {
    /// Nothing is answered there.
    Refuse,
    /// A generalised Pareto law is fitted to the given share of largest samples and followed; answers
    /// are marked as extrapolated. It is biased, and wrong by any amount where the tail has a mode of
    /// its own: for display, not for decisions.
    Pareto {
        /// Share of the samples fitted, 0.02 by default elsewhere.
        share: f64,
    },
}

/// A generalised Pareto tail above a threshold.
#[derive(Clone, Copy, Debug)]
struct Pareto {
    threshold: f64,
    above: f64,
    shape: f64,
    scale: f64,
    /// Tail probability below which it replaces the samples.
    below: f64,
}

impl Pareto {
    /// Probability-weighted moments (Hosking and Wallis, Technometrics 29, 1987) of the excesses of an
    /// ascending tail over its threshold.
    fn fit(tail: &[f64], threshold: f64, above: f64, below: f64) -> Option<Self> {
        let n = tail.len() as f64;
        let excess = |x: f64| x - threshold;
        let a0 = tail.iter().map(|&x| excess(x)).sum::<f64>() / n;
        let a1 = tail
            .iter()
            .enumerate()
            .map(|(i, &x)| (1.0 - (i as f64 + 0.65) / n) * excess(x))
            .sum::<f64>()
            / n;
        let gap = a0 - 2.0 * a1;
        let shape = 2.0 - a0 / gap;
        let scale = 2.0 * a0 * a1 / gap;
        (gap > 0.0 && scale > 0.0).then_some(Self { threshold, above, shape, scale, below })
    }

    fn quantile_upper(&self, above: f64) -> f64 {
        let log = (self.above / above).ln();
        let growth =
            if self.shape.abs() < 1e-9 { log } else { (self.shape * log).exp_m1() / self.shape };
        self.threshold + self.scale * growth
    }

    fn above(&self, x: f64) -> f64 {
        let z = (x - self.threshold) / self.scale;
        let log = if self.shape.abs() < 1e-9 {
            z
        } else {
            (self.shape * z).max(-1.0).ln_1p() / self.shape
        };
        self.above * (-log).exp()
    }
}

/// Ascending samples, possibly weighted, with P(X > the i-th largest) = i/(n+1) (Weibull's plotting
/// position, the expectation of that tail), weights in place of counts; linear between.
#[derive(Clone, Debug)]
pub(crate) struct SampleTail<'a> {
    sorted: &'a [f64],
    /// Per sample, tail probability from it upwards and effective number of samples there; empty for
    /// equal weights.
    weighted: Vec<(f64, f64)>,
    pareto: Option<Pareto>,
}

impl<'a> SampleTail<'a> {
    pub(crate) fn new(sorted: &'a [f64], weights: &[f64], need: f64, tail: Tail) -> Result<Self> {
        let n = sorted.len();
        if n < 2 {
            return Err(ComposeError::Shape { what: "samples of a replica", have: n, need: 2 });
        }
        if let Some(&value) = sorted.iter().find(|x| !x.is_finite()) {
            return Err(ComposeError::Input { what: "a sample", value, rule: "finite" });
        }
        if let Some(w) = sorted.windows(2).find(|w| w[1] < w[0]) {
            return Err(ComposeError::Input {
                what: "a sample",
                value: w[1],
                rule: "in ascending order",
            });
        }
        let mut out = Self { sorted, weighted: cumulate(n, weights)?, pareto: None };
        if let Tail::Pareto { share } = tail {
            ComposeError::check(share > 0.0 && share < 0.5, "share", share, "between 0 and 0.5")?;
            // Samples are followed as long as fifty lie beyond, or as long as answers rest on them.
            let below = 50.0_f64.max(need) / out.effective();
            let start = sorted.partition_point(|&x| out.above(x) > share.max(below));
            if start > 0 && n - start >= 20 {
                let (threshold, above) = (sorted[start - 1], out.above(sorted[start - 1]));
                out.pareto = Pareto::fit(&sorted[start..], threshold, above, below);
            }
        }
        Ok(out)
    }

    /// The samples, where they are equally likely.
    pub(crate) fn plain(&self) -> Option<&'a [f64]> {
        (self.weighted.is_empty() && self.pareto.is_none()).then_some(self.sorted)
    }

    /// The largest sample, or where a fitted tail ends: nowhere.
    pub(crate) fn largest(&self) -> f64 {
        let last = self.sorted.last().copied().unwrap_or(f64::NAN);
        if self.pareto.is_some() { f64::INFINITY } else { last }
    }

    /// What all samples are worth in plain ones.
    pub(crate) fn effective(&self) -> f64 {
        self.weighted.first().map_or(self.sorted.len() as f64, |w| w.1)
    }

    /// Tail probability from sample i upwards.
    fn position(&self, i: usize) -> f64 {
        let n = self.sorted.len();
        self.weighted.get(i).map_or((n - i) as f64 / (n + 1) as f64, |w| w.0)
    }

    /// What the error of P(X > x) is judged by: the tail probability, and the number of samples, or what
    /// weighted ones are worth, in it. At least one sample; at a value that occurs several times those at
    /// the value count, since the quantile stays there for all of their probability.
    pub(crate) fn evidence(&self, x: f64) -> (f64, f64) {
        let n = self.sorted.len();
        let (from, to) =
            (self.sorted.partition_point(|&v| v < x), self.sorted.partition_point(|&v| v <= x));
        let tail = if to - from >= 2 {
            self.position(from)
        } else {
            self.above(x).max(self.position(n - 1))
        };
        if self.weighted.is_empty() {
            return (tail, tail * (n + 1) as f64);
        }
        (tail, self.weighted.get(from).map_or(0.5, |w| w.1))
    }

    /// P(X > x): 0 beyond the largest sample where no tail was fitted.
    pub(crate) fn above(&self, x: f64) -> f64 {
        if let Some(pareto) = &self.pareto {
            let fitted = pareto.above(x.max(pareto.threshold));
            if x > pareto.threshold && fitted < pareto.below {
                return fitted.max(1e-300);
            }
        }
        let n = self.sorted.len();
        let i = self.sorted.partition_point(|&v| v <= x);
        if i == 0 {
            return self.position(0);
        }
        if i == n {
            return if x > self.sorted[n - 1] { 0.0 } else { self.position(n - 1) };
        }
        let (low, high) = (self.sorted[i - 1], self.sorted[i]);
        let share = (x - low) / (high - low);
        self.position(i - 1) + share * (self.position(i) - self.position(i - 1))
    }

    /// The time exceeded with a probability; at most the largest sample where no tail was fitted.
    pub(crate) fn quantile_upper(&self, above: f64) -> f64 {
        if let Some(pareto) = self.pareto.filter(|p| above < p.below) {
            return pareto.quantile_upper(above);
        }
        let n = self.sorted.len();
        let i = if self.weighted.is_empty() {
            // Number of samples from the bottom whose tail is larger.
            let from_top = (above * (n + 1) as f64).floor();
            n - (from_top.min(n as f64) as usize)
        } else {
            self.weighted.partition_point(|w| w.0 > above)
        };
        if i == 0 || i >= n {
            return self.sorted[if i == 0 { 0 } else { n - 1 }];
        }
        let (before, after) = (self.position(i - 1), self.position(i));
        let share = ((before - above) / (before - after)).clamp(0.0, 1.0);
        let (low, high) = (self.sorted[i - 1], self.sorted[i]);
        low + share * (high - low)
    }
}

/// Tail probability and effective number from each sample upwards.
fn cumulate(n: usize, weights: &[f64]) -> Result<Vec<(f64, f64)>> {
    if weights.is_empty() {
        return Ok(Vec::new());
    }
    if weights.len() != n {
        return Err(ComposeError::Shape { what: "weights", have: weights.len(), need: n });
    }
    if let Some(&value) = weights.iter().find(|w| !(w.is_finite() && **w >= 0.0)) {
        return Err(ComposeError::Input { what: "a weight", value, rule: "finite and at least 0" });
    }
    let total: f64 = weights.iter().sum();
    ComposeError::check(total > 0.0, "the sum of weights", total, "positive")?;
    let scale = n as f64 / (n + 1) as f64 / total;
    let mut out = vec![(0.0, 0.0); n];
    let (mut sum, mut square) = (0.0, 0.0);
    for i in (0..n).rev() {
        sum += weights[i];
        square += weights[i] * weights[i];
        out[i] = ((sum * scale).max(1e-300), if square > 0.0 { sum * sum / square } else { 0.0 });
    }
    Ok(out)
}
