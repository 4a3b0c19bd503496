//! Parametric laws of the effects, for draws beyond what was observed.

use prism_model::{ComputeModel, LawCandidate, LawChoice, TransferModel};
use prism_stats::quantile::sorted;
use prism_stats::{Family, choose, ks_statistic};

/// Families that are tried; `Empirical` is what remains if all are rejected.
const FAMILIES: [Family; 4] =
    [Family::Normal, Family::Gamma, Family::LogNormal, Family::ShiftedLogNormal];

/// Most values a law is fitted to; beyond, every k-th value is.
const MAX_VALUES: usize = 4_096;

/// Chooses a law for the values; `None` without spread or with fewer than 8 values.
pub(super) fn choose_law(values: &[f64]) -> Option<LawChoice> {
    let stride = values.len().div_ceil(MAX_VALUES).max(1);
    let picked: Vec<f64> = values.iter().step_by(stride).copied().collect();
    if picked.len() < 8 || picked.iter().all(|v| *v == picked[0]) {
        return None;
    }
    let choice = choose(&picked, &FAMILIES).ok()?;
    let mut losers: Vec<LawCandidate> = choice
        .candidates
        .iter()
        .filter(|c| c.family != choice.best.family())
        .map(|c| LawCandidate {
            family: c.family.to_string(),
            ks: c.ks,
            aic: c.aic,
            error: c.error.clone(),
        })
        .collect();
    losers.sort_by(|a, b| a.ks.unwrap_or(2.0).total_cmp(&b.ks.unwrap_or(2.0)));
    let ks = ks_statistic(&sorted(&picked), &choice.best).ok()?;
    Some(LawChoice { law: choice.best, n: picked.len(), ks, losers })
}

/// Fits the laws of a compute model from its own vectors.
pub(super) fn fit_compute(model: &mut ComputeModel, steps: usize, replicas: usize) {
    let n = model.signatures.len();
    let rows: Vec<&[f32]> = model.microbatch_vectors_log.chunks(n.max(1)).collect();
    if model.microbatch_shared {
        let norm: f64 = model.signatures.iter().map(|s| s.microbatch_load.powi(2)).sum();
        let factor: Vec<f64> = rows
            .iter()
            .map(|row| {
                let dot: f64 = row
                    .iter()
                    .zip(&model.signatures)
                    .map(|(v, s)| f64::from(*v) * s.microbatch_load)
                    .sum();
                dot / norm
            })
            .collect();
        model.microbatch_law = rescaled(&factor, model.microbatch_sd_log);
        for (c, signature) in model.signatures.iter_mut().enumerate() {
            let residual: Vec<f64> = rows
                .iter()
                .zip(&factor)
                .map(|(row, f)| f64::from(row[c]) - f * signature.microbatch_load)
                .collect();
            signature.residual_law = rescaled(&residual, signature.residual_sd_log);
        }
    } else {
        for (c, signature) in model.signatures.iter_mut().enumerate() {
            let residual: Vec<f64> = rows.iter().map(|row| f64::from(row[c])).collect();
            signature.residual_law = rescaled(&residual, signature.residual_sd_log);
        }
    }
    if model.step_vectors_log.is_empty() {
        return;
    }
    let at = |c: usize, r: usize, t: usize| {
        f64::from(model.step_vectors_log[(c * replicas + r) * steps + t])
    };
    let cells = (n * replicas) as f64;
    let step: Vec<f64> = (0..steps)
        .map(|t| {
            (0..n)
                .flat_map(|c| (0..replicas).map(move |r| (c, r)))
                .map(|(c, r)| at(c, r, t))
                .sum::<f64>()
                / cells
        })
        .collect();
    let worker: Vec<f64> = (0..n)
        .flat_map(|c| (0..replicas).flat_map(move |r| (0..steps).map(move |t| (c, r, t))))
        .map(|(c, r, t)| at(c, r, t) - step[t] * model.signatures[c].step_load)
        .collect();
    model.step_law = rescaled(&step, model.step_sd_log);
    model.step_worker_law = rescaled(&worker, model.step_worker_sd_log);
}

/// Law of `exp(x)` with x scaled to mean 0 and the given s.d.; `None` if that is 0. Of many values
/// some are picked first, so that those that are fitted have the s.d. of all.
fn rescaled(log_values: &[f64], sd: f64) -> Option<LawChoice> {
    let stride = log_values.len().div_ceil(MAX_VALUES).max(1);
    let picked: Vec<f64> = log_values.iter().step_by(stride).copied().collect();
    let mean = super::effects::mean(&picked);
    let own = super::effects::variance(&picked).sqrt();
    if sd <= 0.0 || own.is_nan() || own <= 0.0 {
        return None;
    }
    let scaled: Vec<f64> = picked.iter().map(|v| ((v - mean) * sd / own).exp()).collect();
    choose_law(&scaled)
}

/// Fits a law to each member of each transfer model.
pub(super) fn fit_transfers(transfers: &mut [TransferModel]) {
    for model in transfers {
        let width = model.members.len();
        model.laws = (0..width)
            .map(|k| {
                let values: Vec<f64> =
                    model.rows_s.iter().skip(k).step_by(width).map(|&v| f64::from(v)).collect();
                choose_law(&values)
            })
            .collect();
    }
}
