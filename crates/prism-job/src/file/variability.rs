//! The section `[variability]`.

use super::raw::RawVariability;
use super::resolve::Resolver;
use crate::{Hang, Laggards, MicrobatchSpread, Variability, presets};

pub(super) fn resolve(r: &mut Resolver, raw: &RawVariability) -> Variability {
    let known: Vec<&str> = presets::variabilities().map(|v| v.name).collect();
    let key = "variability.preset";
    let preset = r.preset(raw.preset.as_deref(), key, presets::variability, &known);
    let base = preset.unwrap_or_else(presets::default_variability);
    let mut sd = |value: Option<f64>, base: f64, name: &str| {
        // A s.d. of 3 in log time is a factor of 20 either way: a percentage, not a spread.
        let key = format!("variability.{name}");
        let value = r.at_least(value.unwrap_or(base), &key, 0.0);
        if value > 3.0 {
            let message = format!("`{key}` is a s.d. of log time, and {value} is beyond any");
            r.wrong(&key, "spread", message, Some("0.02 is 2 %".to_owned()));
        }
        value
    };
    let microbatch = raw.microbatch.clone().unwrap_or_default();
    let mut v = Variability {
        gpu_compute_sd: sd(raw.gpu_compute_sd, base.gpu_compute_sd, "gpu_compute_sd"),
        gpu_memory_sd: sd(raw.gpu_memory_sd, base.gpu_memory_sd, "gpu_memory_sd"),
        step_sd: sd(raw.step_sd, base.step_sd, "step_sd"),
        step_worker_sd: sd(raw.step_worker_sd, base.step_worker_sd, "step_worker_sd"),
        residual_sd: sd(raw.residual_sd, base.residual_sd, "residual_sd"),
        transfer_sd: sd(raw.transfer_sd, base.transfer_sd, "transfer_sd"),
        congestion_sd: sd(raw.congestion_sd, base.congestion_sd, "congestion_sd"),
        expert_imbalance_sd: sd(
            raw.expert_imbalance_sd,
            base.expert_imbalance_sd,
            "expert_imbalance_sd",
        ),
        microbatch: MicrobatchSpread {
            sd: sd(microbatch.sd, base.microbatch.sd, "microbatch.sd"),
            skew: microbatch.skew.unwrap_or(base.microbatch.skew),
        },
        ..base
    };
    bounded(r, raw, &mut v);
    v
}

/// Numbers that are no spreads: each within its own bounds.
fn bounded(r: &mut Resolver, raw: &RawVariability, v: &mut Variability) {
    let laggards = raw.laggards.clone().unwrap_or_default();
    let hang = raw.hang.clone().unwrap_or_default();
    let skew = v.microbatch.skew;
    if skew.is_nan() || skew.abs() > 10.0 {
        let message = format!("`variability.microbatch.skew` must be from -10 to 10, not {skew}");
        r.wrong("variability.microbatch.skew", "range", message, None);
    }
    v.burst_probability = r.share(
        raw.burst_probability.unwrap_or(v.burst_probability),
        "variability.burst_probability",
        true,
    );
    v.burst_factor =
        r.at_least(raw.burst_factor.unwrap_or(v.burst_factor), "variability.burst_factor", 1.0);
    v.diurnal_amplitude = r.share(
        raw.diurnal_amplitude.unwrap_or(v.diurnal_amplitude),
        "variability.diurnal_amplitude",
        true,
    );
    v.laggards = Laggards {
        share: r.share(
            laggards.share.unwrap_or(v.laggards.share),
            "variability.laggards.share",
            true,
        ),
        factor: r.at_least(
            laggards.factor.unwrap_or(v.laggards.factor),
            "variability.laggards.factor",
            1.0,
        ),
    };
    v.hang = Hang {
        probability: r.share(
            hang.probability.unwrap_or(v.hang.probability),
            "variability.hang.probability",
            true,
        ),
        factor: r.at_least(hang.factor.unwrap_or(v.hang.factor), "variability.hang.factor", 1.0),
    };
}
