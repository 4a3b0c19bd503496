//! FSDP with a wait at every layer: T = Σ over layers of (max over GPUs + communication).
//!
//! Per layer the maximum's law comes from the [log histogram](super::layers), the sum over layers from
//! powers of its Fourier transform. Rounding ln f and the time lattice down and up gives two laws
//! between which the exact one lies at every quantile; rounding to the nearest gives the estimate,
//! whose error is of second order.

use rayon::prelude::*;

use prism_stats::spacings::largest_tails;
use prism_stats::{Distribution, Lattice, Law, QuantileCurve, Rounding, stream};

use super::choose::Method;
use super::error::{ComposeError, Result};
use super::law::{Bounds, Composed, Diagnostics, Reach};
use super::layers::{LayerClass, LayerMaximum, LogHistogram};
use super::shared::over_regimes;

/// How finely layers are resolved.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StrictOptions {
    /// Width of a bin of ln f, and of the time lattice in mean layer times. The bracket is about
    /// 1.6 times as wide, relative to T.
    pub resolution: f64,
}

impl Default for StrictOptions {
    /// 5·10⁻⁴.
    fn default() -> Self {
        Self { resolution: 5e-4 }
    }
}

impl StrictOptions {
    fn check(self) -> Result<()> {
        let r = self.resolution;
        ComposeError::check((1e-6..=0.05).contains(&r), "resolution", r, "between 1e-6 and 0.05")
    }
}

/// The law of a step on the fleet with these persistent factors (one per GPU, about 1).
///
/// # Errors
/// [`ComposeError::Input`] for factors or layers that are not positive; [`ComposeError::Stats`] if a
/// lattice would be too large.
///
/// ```
/// use prism_engine::compose::{LayerClass, StrictOptions, strict_fsdp};
/// use prism_stats::Law;
///
/// // Four GPUs, one 10 % slow, 80 layers of 10 ms with 5 % noise and 1 ms of communication.
/// let layer = LayerClass {
///     mean: 0.010,
///     count: 80,
///     comm: 0.001,
///     temporal: Law::log_normal(-0.00125, 0.05)?,
/// };
/// let step = strict_fsdp(&[1.0, 1.0, 1.0, 1.1], &[layer], &StrictOptions::default())?;
/// let p95 = step.quantile(0.95)?;
/// assert!(p95.value > 0.96 && p95.lower < Some(p95.value) && Some(p95.value) < p95.upper);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn strict_fsdp(
    factors: &[f64],
    layers: &[LayerClass],
    options: &StrictOptions,
) -> Result<Composed> {
    options.check()?;
    ComposeError::check(!factors.is_empty(), "number of GPUs", 0.0, "positive")?;
    if let Some(&f) = factors.iter().find(|f| !(f.is_finite() && **f > 0.0)) {
        return Err(ComposeError::Input {
            what: "a factor",
            value: f,
            rule: "finite and positive",
        });
    }
    let logs: Vec<f64> = factors.iter().map(|f| f.ln()).collect();
    let entries = logs.iter().map(|&x| (x, 1.0));
    let fleet = |rounding| LogHistogram::new(entries.clone(), options.resolution, rounding);
    compose(&fleet, factors.len() as u64, layers, *options)
}

/// Laws of a step over fleets that one might be given.
#[derive(Clone, Debug, PartialEq)]
pub struct FleetSpread {
    /// The law of a step of an unknown fleet: the mixture.
    pub step: Composed,
    /// The law of a step on each fleet drawn.
    pub fleets: Vec<Composed>,
}

impl FleetSpread {
    /// Quantile p over steps, on each fleet, ascending: the distribution over fleets.
    ///
    /// # Errors
    /// As [`Composed::quantile`].
    pub fn quantile_by_fleet(&self, p: f64) -> Result<Vec<f64>> {
        let mut out =
            self.fleets.iter().map(|f| Ok(f.quantile(p)?.value)).collect::<Result<Vec<_>>>()?;
        out.sort_by(f64::total_cmp);
        Ok(out)
    }
}

/// Members of an unknown fleet that are drawn; the others stand at their expected places.
const DRAWN: u64 = 1024;

/// The laws of a step on `fleets` fleets of `members` GPUs whose factors follow a law.
///
/// Of each fleet the 1,024 slowest GPUs are drawn exactly, by Rényi's spacings, the rest counted by the
/// law. Bounds are those of the drawn fleets; that fleets are drawn is in
/// [`FleetSpread::quantile_by_fleet`].
///
/// # Errors
/// As [`strict_fsdp`], and if there is no fleet.
pub fn strict_fsdp_any_fleet(
    spatial: &Law,
    members: u64,
    fleets: u32,
    seed: u64,
    layers: &[LayerClass],
    options: &StrictOptions,
) -> Result<FleetSpread> {
    options.check()?;
    ComposeError::check(fleets > 0, "number of fleets", 0.0, "positive")?;
    ComposeError::check(members > 0, "number of GPUs", 0.0, "positive")?;
    let low = spatial.quantile(1e-9);
    ComposeError::check(low > 0.0, "a lower quantile of the spatial law", low, "positive")?;
    let laws = (0..fleets)
        .into_par_iter()
        .map(|fleet| {
            let mut rng = stream(seed, "fleet", &[u64::from(fleet)]);
            let tails = largest_tails(members, members.min(DRAWN), &mut rng)?;
            let entries = fleet_entries(spatial, members, &tails, options.resolution);
            let fleet = |rounding| {
                // The bulk's bins are bounds themselves: their low and high edges.
                let shift = match rounding {
                    Rounding::Down => 0.0,
                    Rounding::Nearest => 0.5,
                    Rounding::Up => 1.0,
                };
                let width = options.resolution;
                let placed = entries.iter().map(|&(x, c, bin)| (x + bin * shift * width, c));
                LogHistogram::new(placed, width, rounding)
            };
            compose(&fleet, members, layers, *options)
        })
        .collect::<Result<Vec<_>>>()?;
    let parts: Vec<_> = laws.iter().map(|law| (1.0, law.clone())).collect();
    let mut step = over_regimes(&parts)?;
    step.diagnostics_mut().method = Method::LogHistogram;
    Ok(FleetSpread { step, fleets: laws })
}

/// Entries (ln f, count, 1 if it is the low edge of a bin else 0) of a fleet whose slowest are drawn.
fn fleet_entries(spatial: &Law, members: u64, tails: &[f64], width: f64) -> Vec<(f64, f64, f64)> {
    let mut out: Vec<_> =
        tails.iter().map(|&s| (spatial.quantile_upper(s).ln(), 1.0, 0.0)).collect();
    let rest = members - tails.len() as u64;
    let Some(&edge) = tails.last().filter(|_| rest > 0) else { return out };
    let top = out.last().map_or(0.0, |e| e.0);
    let bottom = spatial.quantile(0.01 / members as f64).max(f64::MIN_POSITIVE).ln();
    let (first, last) = ((bottom / width).floor() as i64, (top / width).ceil() as i64);
    let below = |u: f64| spatial.cdf(u.min(top).exp());
    let scale = rest as f64 / (1.0 - edge);
    let mut left = 0.0;
    for bin in first..last {
        let right = below((bin + 1) as f64 * width);
        out.push((bin as f64 * width, scale * (right - left), 1.0));
        left = right;
    }
    out
}

/// The law of a step given the fleet under each rounding.
fn compose(
    fleet: &dyn Fn(Rounding) -> LogHistogram,
    members: u64,
    layers: &[LayerClass],
    options: StrictOptions,
) -> Result<Composed> {
    let count: u64 = layers.iter().map(|l| l.count).sum();
    ComposeError::check(count > 0, "number of layers", 0.0, "positive")?;
    layers.iter().try_for_each(LayerClass::check)?;
    let total: f64 = layers.iter().map(|l| l.count as f64 * l.mean).sum();
    let comm: f64 = layers.iter().map(|l| l.count as f64 * l.comm).sum();
    let step = options.resolution * total / count as f64;
    let mut diagnostics = Diagnostics::new(Method::LogHistogram);
    diagnostics.members = members;
    // Where each temporal law's maximum lies: the same for every rounding.
    let mut ranges: Vec<(&Law, (f64, f64))> = Vec::new();
    let mut curve = |rounding| -> Result<QuantileCurve> {
        let histogram = fleet(rounding);
        let mut maxima: Vec<(&Law, LayerMaximum)> = Vec::new();
        let mut parts = Vec::with_capacity(layers.len());
        for layer in layers.iter().filter(|l| l.count > 0) {
            let known = maxima.iter().position(|m| *m.0 == layer.temporal);
            let at = known.unwrap_or_else(|| {
                let law = &layer.temporal;
                let range = ranges.iter().find(|r| r.0 == law).map(|r| r.1);
                let range = range.unwrap_or_else(|| {
                    ranges.push((law, LayerMaximum::range(&histogram, law)));
                    ranges[ranges.len() - 1].1
                });
                maxima.push((law, LayerMaximum::new(&histogram, law, range)));
                maxima.len() - 1
            });
            parts.push((maxima[at].1.lattice(layer.mean, step, rounding)?, layer.count));
        }
        let sum = Lattice::sum(&parts)?;
        diagnostics.mass_defect = diagnostics.mass_defect.max(sum.mass_defect);
        diagnostics.wrapped = diagnostics.wrapped.max(sum.wrapped);
        let curve = if rounding == Rounding::Nearest {
            sum.law.smooth_curve()?
        } else {
            sum.law.step_curve()?
        };
        Ok(curve.map(|x| x + comm)?)
    };
    let curves = [curve(Rounding::Down)?, curve(Rounding::Nearest)?, curve(Rounding::Up)?];
    let defect = diagnostics.mass_defect.max(diagnostics.wrapped);
    ComposeError::check(defect < 1e-9, "mass lost by the transform", defect, "below 1e-9")?;
    Ok(Composed::new(curves, Bounds::Rigorous, Reach::ALL, diagnostics))
}
