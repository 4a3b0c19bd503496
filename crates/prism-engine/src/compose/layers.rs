//! The slowest of a fleet in one layer, on a logarithmic histogram.
//!
//! GPU n takes m·fₙ·x, x random and fₙ its persistent factor, so P(all done by m·e^u) =
//! exp Σₙ φ(u − ln fₙ) with φ(u) = ln `F_x(e^u)`. With the ln fₙ counted in bins this is a correlation
//! of two arrays, whatever the number of GPUs.

use prism_stats::{Distribution, Lattice, Law, Rounding};

use super::error::{ComposeError, Result};

/// Layers of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerClass {
    /// Compute time of one layer on a GPU of factor 1, seconds.
    pub mean: f64,
    /// Number of such layers in a step, forward and backward counted apart.
    pub count: u64,
    /// Communication of one such layer that nothing hides, seconds.
    pub comm: f64,
    /// Law of the factor that is drawn per GPU and layer; positive.
    pub temporal: Law,
}

impl LayerClass {
    pub(crate) fn check(&self) -> Result<()> {
        let positive = |v: f64| v > 0.0 && v.is_finite();
        ComposeError::check(positive(self.mean), "mean of a layer", self.mean, "positive")?;
        let comm = self.comm;
        ComposeError::check(
            comm >= 0.0 && comm.is_finite(),
            "comm of a layer",
            comm,
            "at least 0",
        )?;
        let low = self.temporal.quantile(1e-12);
        ComposeError::check(low > 0.0, "a lower quantile of the temporal law", low, "positive")
    }
}

/// Logarithms of factors counted in bins of width d, bin j at j·d.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LogHistogram {
    pub(crate) first: i64,
    pub(crate) counts: Vec<f64>,
    pub(crate) width: f64,
}

impl LogHistogram {
    /// Counts `(ln f, count)` entries. Down and up give bounds; nearest splits each entry between its
    /// two neighbours so that the mean of ln f stays.
    pub(crate) fn new(
        entries: impl Iterator<Item = (f64, f64)> + Clone,
        width: f64,
        rounding: Rounding,
    ) -> Self {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for (x, _) in entries.clone() {
            low = low.min(x);
            high = high.max(x);
        }
        let first = (low / width).floor() as i64 - 1;
        let size = ((high / width).ceil() as i64 - first + 2) as usize;
        let mut counts = vec![0.0; size];
        for (x, count) in entries {
            let at = x / width - first as f64;
            match rounding {
                Rounding::Down => counts[at.floor() as usize] += count,
                Rounding::Up => counts[at.ceil() as usize] += count,
                Rounding::Nearest => {
                    let share = at - at.floor();
                    counts[at.floor() as usize] += count * (1.0 - share);
                    counts[at.floor() as usize + 1] += count * share;
                }
            }
        }
        Self { first, counts, width }
    }

    /// Bins that hold something: (ln f, count).
    fn bins(&self) -> impl Iterator<Item = (f64, f64)> + Clone + '_ {
        self.counts
            .iter()
            .enumerate()
            .filter(|(_, c)| **c > 0.0)
            .map(|(i, c)| ((self.first + i as i64) as f64 * self.width, *c))
    }
}

/// ln F(e^u) of a law, finite.
fn ln_cdf(law: &Law, u: f64) -> f64 {
    let x = u.exp();
    let above = law.sf(x);
    if above < 0.5 { (-above).ln_1p() } else { law.cdf(x).ln().max(-1e4) }
}

/// Points of the correlation per bin of the histogram.
const REFINE: usize = 4;
/// Tail of a layer's law that is cut.
const CUT: f64 = 1e-17;

/// The law of the slowest GPU's factor in one layer: −ln P(M ≤ e^u) on a fine grid of u.
#[derive(Clone, Debug)]
pub(crate) struct LayerMaximum {
    first: i64,
    step: f64,
    /// ln P(M ≤ e^u), ascending to 0.
    ln_cdf: Vec<f64>,
}

impl LayerMaximum {
    /// The law for a fleet; `range` is where it lies, from [`LayerMaximum::range`].
    pub(crate) fn new(fleet: &LogHistogram, law: &Law, (low, high): (f64, f64)) -> Self {
        let step = fleet.width / REFINE as f64;
        let first = (low / step).floor() as i64;
        let size = ((high / step).ceil() as i64 - first + 1) as usize;
        // φ at every offset that occurs, then the correlation with stride REFINE.
        let bins = fleet.counts.len();
        let base = first - (fleet.first + bins as i64 - 1) * REFINE as i64;
        let phi: Vec<f64> = (0..size + (bins - 1) * REFINE)
            .map(|i| ln_cdf(law, (base + i as i64) as f64 * step))
            .collect();
        let mut out = vec![0.0; size];
        for (j, &count) in fleet.counts.iter().enumerate() {
            if count > 0.0 {
                let shifted = &phi[(bins - 1 - j) * REFINE..][..size];
                out.iter_mut().zip(shifted).for_each(|(o, p)| *o += count * p);
            }
        }
        Self { first, step, ln_cdf: out }
    }

    /// Values of u = ln M between which all of the law lies but a negligible part; with room for a
    /// fleet rounded one bin further.
    pub(crate) fn range(fleet: &LogHistogram, law: &Law) -> (f64, f64) {
        ends(fleet, law, |u| fleet.bins().map(|(x, c)| c * ln_cdf(law, u - x)).sum::<f64>())
    }

    /// (P(M ≤ x), P(M > x)), between grid points rounded so that the law is a bound.
    fn tails(&self, x: f64, rounding: Rounding) -> (f64, f64) {
        let at = x.ln() / self.step - self.first as f64;
        let last = self.ln_cdf.len() - 1;
        let pick = |i: f64| self.ln_cdf[(i.max(0.0) as usize).min(last)];
        let both = |h: f64| (h.exp(), -h.exp_m1());
        if at.is_nan() || at < 0.0 {
            return (0.0, 1.0);
        }
        match rounding {
            // A variable that is smaller has the larger distribution function.
            Rounding::Down => both(pick(at.ceil())),
            Rounding::Up => both(pick(at.floor())),
            Rounding::Nearest => {
                let ((a, b), (c, d)) = (both(pick(at.floor())), both(pick(at.floor() + 1.0)));
                let share = at - at.floor();
                (a + share * (c - a), b + share * (d - b))
            }
        }
    }

    /// The law of `mean`·M on multiples of `step` seconds.
    pub(crate) fn lattice(&self, mean: f64, step: f64, rounding: Rounding) -> Result<Lattice> {
        let end = |i: i64| mean * (i as f64 * self.step).exp();
        let (low, high) = (end(self.first), end(self.first + self.ln_cdf.len() as i64));
        let tails = |t: f64| self.tails(t / mean, rounding);
        Ok(Lattice::from_tails(step, low, high, rounding, tails)?)
    }
}

/// Values of u between which all of the law lies but [`CUT`].
fn ends(fleet: &LogHistogram, law: &Law, sum: impl Fn(f64) -> f64) -> (f64, f64) {
    let total: f64 = fleet.counts.iter().sum();
    let (mut slowest, mut fastest) = (f64::NEG_INFINITY, f64::INFINITY);
    for (x, _) in fleet.bins() {
        slowest = slowest.max(x);
        fastest = fastest.min(x);
    }
    // Above: every GPU at the slowest factor. Below: the slowest GPU alone.
    let top = slowest + law.quantile_upper(CUT / total).ln();
    let bottom = slowest + law.quantile(CUT).max(f64::MIN_POSITIVE).ln();
    let search = |target: f64, exact: bool| {
        let (mut low, mut high) = (bottom.min(fastest + bottom - slowest), top);
        for _ in 0..9 {
            let middle = 0.5 * (low + high);
            if sum(middle) < target { low = middle } else { high = middle }
        }
        if exact { high } else { low }
    };
    let pad = 3.0 * fleet.width;
    (search(CUT.ln(), false) - pad, search(-CUT, true) + pad)
}
