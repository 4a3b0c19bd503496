//! Effects that all members of a step share: P(T ≤ t) = E P(T ≤ t | S).
//!
//! Given S the replicas are independent; averaging first and raising to a power afterwards is wrong by
//! several percent and loses the whole spread of S. Conditional laws are much narrower than the spread
//! over S, so that a few nodes with weights would give a staircase: the conditional quantiles, smooth
//! in S, are interpolated between nodes to a fine rule that reaches six standard deviations.

use prism_stats::QuantileCurve;
use prism_stats::curve::levels;

use super::choose::Method;
use super::error::{ComposeError, Result};
use super::law::{Bounds, Composed, Reach};

/// Spacing and reach of the fine rule over a standard normal effect.
const SPACING: f64 = 1.0 / 32.0;
const REACH: f64 = 6.0;

/// The law of T where T given Z = z has the law of the node at z, Z standard normal.
///
/// Nodes ascend; two to a hundred, such as [`prism_stats::hermite::normal_nodes`]: with eight the
/// outermost lie at ±4.1, so that p99.9 needs no extrapolation. Conditional quantiles are interpolated
/// by cubics through the four nearest nodes.
///
/// # Errors
/// [`ComposeError::Shape`] with fewer than two nodes, [`ComposeError::Input`] if they do not ascend.
pub fn over_normal_effect(nodes: &[(f64, Composed)]) -> Result<Composed> {
    if nodes.len() < 2 {
        return Err(ComposeError::Shape { what: "nodes", have: nodes.len(), need: 2 });
    }
    if let Some(w) =
        nodes.windows(2).find(|w| w[1].0.partial_cmp(&w[0].0) != Some(std::cmp::Ordering::Greater))
    {
        return Err(ComposeError::Input {
            what: "a node",
            value: w[1].0,
            rule: "above the one before",
        });
    }
    let rule = fine_rule();
    let z: Vec<f64> = nodes.iter().map(|n| n.0).collect();
    let weights: Vec<_> = rule.iter().map(|(at, _)| lagrange(&z, *at)).collect();
    let mix = |pick: &dyn Fn(&Composed) -> &QuantileCurve| {
        let curves = weights
            .iter()
            .map(|(first, w)| {
                let mut i = 0;
                QuantileCurve::from_fn(|_| {
                    let values = (0..w.len()).map(|k| pick(&nodes[first + k].1).values()[i]);
                    let out = combine(w, values);
                    i += 1;
                    out
                })
            })
            .collect::<std::result::Result<Vec<_>, _>>()?;
        let parts: Vec<_> = rule.iter().map(|r| r.1).zip(&curves).collect();
        Ok::<_, ComposeError>(QuantileCurve::mixture(&parts)?)
    };
    let curves = [mix(&|c| &c.lower)?, mix(&|c| &c.estimate)?, mix(&|c| &c.upper)?];
    Ok(assemble(curves, nodes.iter().map(|n| (1.0, &n.1))))
}

/// The law of exp(σ·Z − σ²/2)·T₀: a shared lognormal factor of mean 1 on everything in the step.
///
/// # Errors
/// [`ComposeError::Input`] if `log_sd` is not positive.
pub fn scaled(conditional: &Composed, log_sd: f64) -> Result<Composed> {
    ComposeError::check(log_sd > 0.0 && log_sd.is_finite(), "log_sd", log_sd, "positive")?;
    let rule = fine_rule();
    let mix = |curve: &QuantileCurve| {
        let curves = rule
            .iter()
            .map(|(z, _)| curve.map(|x| x * (log_sd * z - 0.5 * log_sd * log_sd).exp()))
            .collect::<std::result::Result<Vec<_>, _>>()?;
        let parts: Vec<_> = rule.iter().map(|r| r.1).zip(&curves).collect();
        Ok::<_, ComposeError>(QuantileCurve::mixture(&parts)?)
    };
    let curves = [mix(&conditional.lower)?, mix(&conditional.estimate)?, mix(&conditional.upper)?];
    Ok(assemble(curves, std::iter::once((1.0, conditional))))
}

/// The law of T under one of several regimes with the given probabilities (their ratios count).
///
/// # Errors
/// [`ComposeError::Stats`] if there is none, or a probability is negative.
pub fn over_regimes(regimes: &[(f64, Composed)]) -> Result<Composed> {
    let mix = |pick: &dyn Fn(&Composed) -> &QuantileCurve| {
        let parts: Vec<_> = regimes.iter().map(|(w, law)| (*w, pick(law))).collect();
        Ok::<_, ComposeError>(QuantileCurve::mixture(&parts)?)
    };
    let curves = [mix(&|c| &c.lower)?, mix(&|c| &c.estimate)?, mix(&|c| &c.upper)?];
    Ok(assemble(curves, regimes.iter().map(|(w, law)| (*w, law))))
}

/// Joins diagnostics. A part that answers up to tail s with e exceedances knows every smaller tail to
/// s/e, one sample; the mixture's tail must be known to 1/√e of itself, as a part's own is.
fn assemble<'a>(
    curves: [QuantileCurve; 3],
    parts: impl Iterator<Item = (f64, &'a Composed)>,
) -> Composed {
    let parts: Vec<_> = parts.filter(|p| p.0 > 0.0).collect();
    let first = parts[0].1;
    let total: f64 = parts.iter().map(|p| p.0).sum();
    let mut diagnostics = first.diagnostics().clone();
    diagnostics.method = Method::SharedEffect;
    diagnostics.samples = parts.iter().map(|p| p.1.diagnostics().samples).sum();
    diagnostics.effective_samples = parts.iter().map(|p| p.1.diagnostics().effective_samples).sum();
    let (mut low, mut high, mut fitted, mut need) = (0.0, 0.0, 0.0, 0.0_f64);
    for (weight, law) in &parts {
        let d = law.diagnostics();
        diagnostics.one_sided |= d.one_sided;
        diagnostics.plug_in_bias = diagnostics.plug_in_bias.max(d.plug_in_bias);
        diagnostics.uncovered = diagnostics.uncovered.max(d.uncovered);
        diagnostics.mass_defect = diagnostics.mass_defect.max(d.mass_defect);
        diagnostics.wrapped = diagnostics.wrapped.max(d.wrapped);
        let (from, to) = law.answers();
        let share = weight / total;
        if law.reach.from.is_finite() {
            low += share * from;
        }
        if law.reach.to.is_finite() {
            high += share * (1.0 - to);
        }
        if law.reach.extrapolated.is_finite() {
            fitted += share * (1.0 - level_below(law.reach.extrapolated));
        }
        need = need.max(law.reach.need);
    }
    let score = |p: f64| prism_stats::curve::Level::new(p).map_or(f64::INFINITY, |l| l.score);
    let known = 1.0 / need.max(1.0).sqrt();
    let reach = Reach {
        from: if low > 0.0 { score((known * low).min(0.5)) } else { f64::NEG_INFINITY },
        to: if high > 0.0 { -score((known * high).min(0.5)) } else { f64::INFINITY },
        extrapolated: if fitted > 0.0 { -score((known * fitted).min(0.5)) } else { f64::INFINITY },
        need,
        at_end: need,
    };
    let bounds = parts.iter().map(|p| p.1.bounds).fold(first.bounds, |a, b| match (a, b) {
        (Bounds::Confidence(x), Bounds::Confidence(y)) => Bounds::Confidence(x.min(y)),
        (c @ Bounds::Confidence(_), _) | (_, c @ Bounds::Confidence(_)) => c,
        (rigorous, _) => rigorous,
    });
    Composed::new(curves, bounds, reach, diagnostics)
}

fn level_below(score: f64) -> f64 {
    let grid = levels();
    let k = grid.partition_point(|l| l.score < score - 1e-12).min(grid.len() - 1);
    grid[k].below
}

/// The trapezoidal rule over the standard normal density: geometric convergence.
fn fine_rule() -> Vec<(f64, f64)> {
    let n = (REACH / SPACING) as i32;
    (-n..=n)
        .map(|i| {
            let z = f64::from(i) * SPACING;
            (z, (-0.5 * z * z).exp())
        })
        .collect()
}

/// First node and Lagrange weights of the (up to) four nodes nearest to z. Beyond the outer nodes the
/// line through the last two.
fn lagrange(nodes: &[f64], z: f64) -> (usize, Vec<f64>) {
    let n = nodes.len();
    let outside = z < nodes[0] || z > nodes[n - 1];
    let width = if outside { 2 } else { n.min(4) };
    let k = nodes.partition_point(|&x| x < z);
    let first = k.saturating_sub(width / 2).min(n - width);
    let near = &nodes[first..first + width];
    let weight = |i: usize| {
        (0..width).filter(|&j| j != i).map(|j| (z - near[j]) / (near[i] - near[j])).product::<f64>()
    };
    (first, (0..width).map(weight).collect())
}

/// Weighted sum; infinite where a value that counts is.
fn combine(weights: &[f64], values: impl Iterator<Item = f64>) -> f64 {
    let mut sum = 0.0;
    for (w, v) in weights.iter().zip(values) {
        if v.is_infinite() {
            return v;
        }
        sum += w * v;
    }
    sum
}
