//! How well calibration finds a known truth.
//!
//! ```text
//! cargo run --release -p prism-engine --example calibrate_truth [-- PART...]
//! ```
//!
//! Parts: `accuracy` (estimated against realised s.d.), `size` (how often an absent effect is
//! dropped, and how often one that is there is kept), `p95` (of a job whose microbatches share
//! their length over forward, backward and stages). All by default; about two minutes on 2 cores.

use prism_engine::calibrate::{CalibrateOptions, Calibrated, Selection, calibrate};
use prism_engine::predict::{Draws, PredictOptions, predict};
use prism_engine::replay::{Builder, Replayed};
use prism_engine::synth::{EffectLaw, EffectSpec, Synth, SynthEffects, SynthSpec};
use prism_graph::schedule::{Schedule, ScheduleKind};
use prism_model::EffectKind;
use prism_stats::quantile_type7;
use rayon::prelude::*;

/// Effect, estimated over realised s.d., kept.
type Found = (EffectKind, f64, bool);

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Effects that are tested.
const TESTED: [EffectKind; 7] = [
    EffectKind::Worker,
    EffectKind::Position,
    EffectKind::Step,
    EffectKind::StepWorker,
    EffectKind::Microbatch,
    EffectKind::Congestion,
    EffectKind::WorkerSpread,
];

fn main() -> Result<(), Failure> {
    let parts: Vec<String> = std::env::args().skip(1).collect();
    let wanted = |part: &str| parts.is_empty() || parts.iter().any(|p| p == part);
    if wanted("accuracy") {
        accuracy()?;
    }
    if wanted("size") {
        size()?;
    }
    if wanted("p95") {
        p95()?;
    }
    Ok(())
}

fn plan(replicas: u32, stages: u16, microbatches: u32) -> Schedule {
    Schedule { replicas, ..Schedule::new(ScheduleKind::OneFOneB, stages, microbatches) }
}

/// A job with every effect at a realistic size.
fn job(schedule: Schedule, steps: u32, seed: u64) -> SynthSpec {
    let mut spec = SynthSpec::new(schedule, steps);
    spec.seed = seed;
    spec.effects = SynthEffects {
        worker: EffectSpec::normal(0.01),
        position: EffectSpec::normal(0.01),
        step: EffectSpec::normal(0.02),
        step_worker: EffectSpec::normal(0.01),
        microbatch: EffectSpec::normal(0.05),
        residual: EffectSpec::normal(0.02),
        worker_spread: EffectSpec::normal(0.1),
        congestion: EffectSpec::normal(0.2),
        transfer: EffectSpec::normal(0.3),
        ..SynthEffects::default()
    };
    spec
}

fn effect_mut(effects: &mut SynthEffects, kind: EffectKind) -> Option<&mut EffectSpec> {
    Some(match kind {
        EffectKind::Worker => &mut effects.worker,
        EffectKind::Position => &mut effects.position,
        EffectKind::Step => &mut effects.step,
        EffectKind::StepWorker => &mut effects.step_worker,
        EffectKind::Microbatch => &mut effects.microbatch,
        EffectKind::Residual => &mut effects.residual,
        EffectKind::Congestion => &mut effects.congestion,
        EffectKind::WorkerSpread => &mut effects.worker_spread,
        _ => return None,
    })
}

fn fit(synth: &Synth, laws: bool) -> Result<Calibrated, Failure> {
    let replayed = Replayed::new(Builder::Reference, &synth.table)?;
    let options = CalibrateOptions { laws, ..CalibrateOptions::default() };
    Ok(calibrate(&replayed, &Selection::all(&replayed), &options)?)
}

/// Estimated over realised s.d. of each effect.
fn accuracy() -> Result<(), Failure> {
    println!("Estimated over realised s.d.; 20 seeds, mean, least, largest");
    let seeds: Vec<u64> = (1..=20).collect();
    for (name, law, schedule, steps) in [
        ("normal, PP 2, DP 32, 8 microbatches, 200 steps", EffectLaw::Normal, plan(32, 2, 8), 200),
        ("heavy-tailed, same", EffectLaw::HeavyTailed, plan(32, 2, 8), 200),
        ("skewed, same", EffectLaw::Skewed, plan(32, 2, 8), 200),
        ("normal, PP 4, DP 4, 4 microbatches, 44 steps", EffectLaw::Normal, plan(4, 4, 4), 44),
    ] {
        let rows: Result<Vec<Vec<Found>>, Failure> = seeds
            .par_iter()
            .map(|&seed| {
                let mut spec = job(schedule, steps, seed);
                for kind in TESTED.into_iter().chain([EffectKind::Residual]) {
                    if let Some(effect) = effect_mut(&mut spec.effects, kind) {
                        effect.law = law;
                    }
                }
                let synth = spec.generate()?;
                let fitted = fit(&synth, false)?;
                let ratio = |e: &prism_model::Effect| {
                    let truth = synth.truth.realised_sd_log.get(&e.kind)?;
                    Some((e.kind, e.sd_log / truth, e.kept))
                };
                Ok(fitted.model.effects.iter().filter_map(ratio).collect())
            })
            .collect();
        let rows = rows?;
        println!("  {name}");
        for kind in TESTED.into_iter().chain([EffectKind::Residual]) {
            let of = || rows.iter().flatten().filter(|r| r.0 == kind);
            let ratios: Vec<f64> = of().map(|r| r.1).collect();
            let kept = of().filter(|r| r.2).count();
            let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
            let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
            let most = ratios.iter().copied().fold(0.0, f64::max);
            println!("    {kind:14} {mean:.3}  {least:.3}  {most:.3}  kept {kept}");
        }
    }
    Ok(())
}

/// Share of 200 seeds in which an effect of some size is kept, among all other effects.
fn size() -> Result<(), Failure> {
    println!(
        "Kept in 200 seeds at alpha 1 %, all other effects present; PP 2, DP 8, 8 microbatches, 60 steps"
    );
    for (name, law) in [
        ("normal", EffectLaw::Normal),
        ("heavy-tailed residual and microbatch", EffectLaw::HeavyTailed),
    ] {
        println!("  {name}: effect, s.d. = kept");
        for kind in TESTED {
            let sizes = match kind {
                EffectKind::Worker | EffectKind::Position | EffectKind::Microbatch => {
                    [0.0, 0.001, 0.002, 0.004]
                }
                EffectKind::Step => [0.0, 0.002, 0.004, 0.008],
                EffectKind::StepWorker => [0.0, 0.004, 0.008, 0.012],
                _ => [0.0, 0.02, 0.04, 0.08],
            };
            print!("    {kind:14}");
            for sd in sizes {
                let kept: Result<Vec<bool>, Failure> = (1..=200_u64)
                    .into_par_iter()
                    .map(|seed| {
                        let mut spec = job(plan(8, 2, 8), 60, seed);
                        spec.effects.microbatch.law = law;
                        spec.effects.residual.law = law;
                        if let Some(effect) = effect_mut(&mut spec.effects, kind) {
                            *effect = EffectSpec::normal(sd);
                        }
                        let fitted = fit(&spec.generate()?, false)?;
                        Ok(fitted.model.effects.iter().any(|e| e.kind == kind && e.kept))
                    })
                    .collect();
                let count = kept?.iter().filter(|k| **k).count();
                print!("  {sd} = {count}");
            }
            println!();
        }
    }
    Ok(())
}

/// Predicted p95 against the truth's, with a 20 % microbatch effect.
fn p95() -> Result<(), Failure> {
    println!("p95 error, 20 % log s.d. microbatch effect, PP 2, DP 32, 8 microbatches, 200 steps");
    let mut spec = SynthSpec::new(plan(32, 2, 8), 200);
    spec.effects.microbatch = EffectSpec::normal(0.2);
    spec.effects.residual = EffectSpec::normal(0.02);
    spec.effects.transfer = EffectSpec::normal(0.1);
    let long: Vec<i64> = (0..40_000).collect();
    let mut truth = spec.step_times(&long)?;
    truth.sort_by(f64::total_cmp);
    let truth = quantile_type7(&truth, 0.95)?;
    println!("  truth {truth:.4} s");
    for draws in [Draws::Empirical, Draws::Parametric] {
        let mut errors = Vec::new();
        for seed in 1..=5 {
            let synth = SynthSpec { seed, ..spec.clone() }.generate()?;
            let fitted = fit(&synth, true)?;
            let options = PredictOptions {
                draws,
                samples: 40_000,
                repetitions: 0,
                ..PredictOptions::default()
            };
            let times = predict(&fitted.graph, &fitted.model, &options)?.samples_s;
            let mut times: Vec<f64> = times.into_iter().map(f64::from).collect();
            times.sort_by(f64::total_cmp);
            errors.push(100.0 * (quantile_type7(&times, 0.95)? / truth - 1.0));
        }
        println!("  {draws:?}: {errors:+.2?} %");
    }
    Ok(())
}
