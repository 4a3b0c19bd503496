//! How often the printed intervals hold the truth.
//!
//! ```text
//! cargo run --release -p prism-engine --example coverage [-- PART...]
//! ```
//!
//! Parts: `sampling` (95 % interval of p95 against the model's own p95), `total` (against the
//! truth's, over new steps of the same cluster; `total step`, `total microbatch` or `total window` for
//! jobs that one effect dominates), `guarantee` (one-sided). All by default; 500 repetitions each, some
//! minutes on 2 cores.

use prism_engine::calibrate::{CalibrateOptions, Calibrated, Selection, calibrate};
use prism_engine::predict::{PredictOptions, StepGuarantee, guarantee, predict};
use prism_engine::replay::{Builder, Replayed};
use prism_engine::synth::{EffectSpec, SynthSpec, SynthSteps};
use prism_graph::schedule::{Schedule, ScheduleKind};
use prism_stats::quantile_type7;
use rayon::prelude::*;

type Failure = Box<dyn std::error::Error + Send + Sync>;

const REPETITIONS: u32 = 500;
/// Between the step ids of two repetitions.
const APART: i64 = 10_000_000;

fn main() -> Result<(), Failure> {
    let parts: Vec<String> = std::env::args().skip(1).collect();
    let wanted = |part: &str| parts.is_empty() || parts.iter().any(|p| p == part);
    if wanted("sampling") {
        sampling()?;
    }
    if wanted("total") {
        total(&parts)?;
    }
    if wanted("guarantee") {
        guarantees()?;
    }
    Ok(())
}

/// What dominates the variation of a step.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Step,
    Microbatch,
    Window,
}

fn job(kind: Kind, steps: u32, window: u32) -> SynthSpec {
    let plan = Schedule { replicas: 4, ..Schedule::new(ScheduleKind::OneFOneB, 2, 4) };
    let mut spec = SynthSpec::new(plan, steps);
    spec.steps.window = window;
    let e = &mut spec.effects;
    e.worker = EffectSpec::normal(0.01);
    e.residual = EffectSpec::normal(0.01);
    e.transfer = EffectSpec::normal(0.2);
    let (step, microbatch, of_window) = match kind {
        Kind::Step => (0.03, 0.01, 0.0),
        Kind::Microbatch => (0.0, 0.15, 0.0),
        Kind::Window => (0.01, 0.02, 0.02),
    };
    e.step = EffectSpec::normal(step);
    e.microbatch = EffectSpec::normal(microbatch);
    e.window = EffectSpec::normal(of_window);
    spec
}

fn fit(spec: &SynthSpec) -> Result<(Calibrated, Vec<f64>), Failure> {
    let replayed = Replayed::new(Builder::Reference, &spec.generate()?.table)?;
    let options = CalibrateOptions { laws: false, ..CalibrateOptions::default() };
    let recorded = prism_engine::replay::recorded_step_times(&replayed.graph, &replayed.observed);
    Ok((calibrate(&replayed, &Selection::all(&replayed), &options)?, recorded))
}

/// p95 of the job, from steps that no repetition records.
fn truth(spec: &SynthSpec) -> Result<f64, Failure> {
    let long = SynthSpec {
        steps: SynthSteps { count: 200_000, first: 1 << 38, ..spec.steps },
        ..spec.clone()
    };
    let ids = long.step_ids();
    let times: Result<Vec<Vec<f64>>, Failure> =
        ids.par_chunks(10_000).map(|ids| Ok(long.step_times(ids)?)).collect();
    let mut times = times?.concat();
    times.sort_by(f64::total_cmp);
    Ok(quantile_type7(&times, 0.95)?)
}

fn share(what: &str, hits: usize, n: u32) {
    let p = hits as f64 / f64::from(n);
    let error = (p * (1.0 - p) / f64::from(n)).sqrt();
    println!("  {what}: {:.1} % (standard error {:.1})", 100.0 * p, 100.0 * error);
}

fn sampling() -> Result<(), Failure> {
    println!("Sampling interval of p95 at 95 %, {REPETITIONS} seeds of 10,000 samples");
    for kind in [Kind::Step, Kind::Microbatch] {
        let (fitted, _) = fit(&job(kind, 60, 0))?;
        let options =
            PredictOptions { samples: 1 << 22, repetitions: 0, seed: 999, ..Default::default() };
        let truth =
            predict(&fitted.graph, &fitted.model, &options)?.report.quantiles[2].estimate.value;
        let hits: Result<Vec<bool>, Failure> = (0..REPETITIONS)
            .into_par_iter()
            .map(|seed| {
                let options = PredictOptions {
                    samples: 10_000,
                    repetitions: 0,
                    threads: 1,
                    seed: u64::from(seed) + 5_000,
                    ..Default::default()
                };
                let report = predict(&fitted.graph, &fitted.model, &options)?.report;
                let interval = report.quantiles[2].estimate.sampling;
                Ok(interval.lower <= truth && truth <= interval.upper)
            })
            .collect();
        share(&format!("{kind:?}"), hits?.iter().filter(|h| **h).count(), REPETITIONS);
    }
    Ok(())
}

/// One repetition: new steps of the same cluster.
struct Repetition {
    lower: f64,
    upper: f64,
    estimate: f64,
    units: usize,
}

fn repeat(spec: &SynthSpec, k: u32) -> Result<Repetition, Failure> {
    let mut spec = spec.clone();
    spec.steps.first = i64::from(k + 1) * APART;
    let (fitted, _) = fit(&spec)?;
    let options =
        PredictOptions { samples: 4_096, threads: 1, seed: u64::from(k), ..Default::default() };
    let report = predict(&fitted.graph, &fitted.model, &options)?.report;
    let q = &report.quantiles[2].estimate;
    let total = q.total.ok_or("no total interval")?;
    let units = report.units.unwrap_or(0);
    Ok(Repetition { lower: total.lower, upper: total.upper, estimate: q.value, units })
}

fn total(parts: &[String]) -> Result<(), Failure> {
    println!("Total interval of p95 at 95 % against the truth, {REPETITIONS} repetitions");
    let kinds = [Kind::Step, Kind::Microbatch, Kind::Window];
    let named = |kind: &Kind| parts.contains(&format!("{kind:?}").to_lowercase());
    let some = kinds.iter().any(named);
    for kind in kinds.into_iter().filter(|kind| !some || named(kind)) {
        let cases: &[(u32, u32)] = match kind {
            Kind::Window => &[(198, 11), (44, 11), (33, 11)],
            _ => &[(200, 0), (44, 0), (32, 0), (198, 11), (44, 11)],
        };
        for &(steps, window) in cases {
            let spec = job(kind, steps, window);
            let truth = truth(&spec)?;
            let all: Result<Vec<Repetition>, Failure> =
                (0..REPETITIONS).into_par_iter().map(|k| repeat(&spec, k)).collect();
            let all = all?;
            let hits = all.iter().filter(|r| r.lower <= truth && truth <= r.upper).count();
            let above = all.iter().filter(|r| r.lower > truth).count();
            let n = f64::from(REPETITIONS);
            let bias = all.iter().map(|r| r.estimate).sum::<f64>() / n / truth - 1.0;
            let sd = (all.iter().map(|r| (r.estimate / truth - 1.0 - bias).powi(2)).sum::<f64>()
                / (n - 1.0))
                .sqrt();
            let width = all.iter().map(|r| r.upper - r.lower).sum::<f64>() / n / truth;
            let units = all.iter().map(|r| r.units as f64).sum::<f64>() / n;
            let windows =
                if window == 0 { "single steps".into() } else { format!("windows of {window}") };
            share(&format!("{kind:?}, {steps} steps, {windows}"), hits, REPETITIONS);
            println!(
                "      bias {:+.2} %, s.d. {:.2} %, half-width {:.2} %, {above} lie above, {units:.1} units",
                100.0 * bias,
                100.0 * sd,
                50.0 * width
            );
        }
    }
    Ok(())
}

fn guarantees() -> Result<(), Failure> {
    println!("One-sided guarantee of p95 at 95 %, {REPETITIONS} repetitions");
    for steps in [32, 44, 59, 93, 200] {
        let spec = job(Kind::Step, steps, 0);
        let truth = truth(&spec)?;
        let hits: Result<Vec<(bool, bool)>, Failure> = (0..REPETITIONS)
            .into_par_iter()
            .map(|k| {
                let mut spec = spec.clone();
                spec.steps.first = i64::from(k + 1) * APART;
                let (fitted, recorded) = fit(&spec)?;
                let options =
                    PredictOptions { threads: 1, seed: u64::from(k), ..Default::default() };
                let given =
                    guarantee(&fitted.graph, &fitted.model, &recorded, 0.95, 0.95, &options)?;
                Ok(match given {
                    StepGuarantee::Guaranteed { bound_s, .. } => (true, bound_s >= truth),
                    StepGuarantee::ConditionalOnModel { bound_s, .. } => {
                        (false, bound_s.is_some_and(|b| b >= truth))
                    }
                })
            })
            .collect();
        let hits = hits?;
        let guaranteed = hits.first().is_some_and(|h| h.0);
        let label = if guaranteed { "guaranteed" } else { "conditional on the model" };
        share(&format!("{steps} steps, {label}"), hits.iter().filter(|h| h.1).count(), REPETITIONS);
    }
    Ok(())
}
