//! Resized jobs against the same job at that size.

use prism_engine::calibrate::{CalibrateOptions, Calibrated, Selection, calibrate};
use prism_engine::predict::{LowerOptions, PredictOptions, lower, predict, predict_resized};
use prism_engine::replay::{Builder, Replayed};
use prism_engine::resize::{ResizeError, ResizeOptions, Resizer, Target, resize};
use prism_engine::sample::RunOptions;
use prism_engine::synth::{EffectSpec, SynthEffects, SynthSpec};
use prism_graph::schedule::{Schedule, ScheduleKind};
use prism_stats::quantile_type7;
use rayon::prelude::*;

fn job(dp: u32, pp: u16, microbatches: u32, steps: u32, seed: u64) -> SynthSpec {
    let kind = ScheduleKind::OneFOneB;
    let plan = Schedule { replicas: dp, ..Schedule::new(kind, pp, microbatches) };
    let mut spec = SynthSpec::new(plan, steps);
    spec.seed = seed;
    spec.effects = SynthEffects {
        worker: EffectSpec::normal(0.01),
        step: EffectSpec::normal(0.02),
        step_worker: EffectSpec::normal(0.01),
        microbatch: EffectSpec::normal(0.05),
        residual: EffectSpec::normal(0.02),
        transfer: EffectSpec::normal(0.2),
        ..SynthEffects::default()
    };
    spec
}

fn fit(spec: &SynthSpec, replicas: usize) -> Calibrated {
    let replayed = Replayed::new(Builder::Reference, &spec.generate().unwrap().table).unwrap();
    let all = Selection::all(&replayed);
    let selection = Selection { replicas: (0..replicas).collect(), ..all };
    let options = CalibrateOptions { laws: false, ..CalibrateOptions::default() };
    calibrate(&replayed, &selection, &options).unwrap()
}

fn times(trained: &Calibrated, target: Target, options: ResizeOptions, samples: usize) -> Vec<f64> {
    let resized = resize(&trained.graph, &trained.model, &target, &options).unwrap();
    let tape = lower(&resized.graph, &resized.model, &LowerOptions::default()).unwrap();
    let run = RunOptions { seed: options.seed, samples, ..RunOptions::default() };
    let samples = tape.compile().unwrap().run(&run).unwrap();
    samples.get("step").unwrap().row(0).iter().map(|&v| f64::from(v)).collect()
}

fn statistics(mut times: Vec<f64>) -> [f64; 4] {
    times.sort_by(f64::total_cmp);
    let n = times.len() as f64;
    let mean = times.iter().sum::<f64>() / n;
    let sd = (times.iter().map(|t| (t - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt();
    let at = |p| quantile_type7(&times, p).unwrap();
    [mean, at(0.5), at(0.95), sd]
}

/// Step times of the job at its real size, on clusters drawn anew.
fn truth(spec: &SynthSpec, clusters: u64) -> Vec<f64> {
    let steps: Vec<i64> = (100_000..100_300).collect();
    (0..clusters)
        .into_par_iter()
        .flat_map(|k| {
            SynthSpec { seed: spec.seed + 1_000 + k, ..spec.clone() }.step_times(&steps).unwrap()
        })
        .collect()
}

fn report(name: &str, predicted: [f64; 4], truth: [f64; 4], quiet: f64) -> [f64; 4] {
    let [mean, p50, p95, sd] = truth;
    let of = |k: usize, t: f64| (predicted[k] - t) / sd;
    let penalty = 100.0 * (predicted[0] - mean) / (mean - quiet);
    let out = [of(0, mean), of(1, p50), of(2, p95), predicted[3] / sd];
    println!(
        "{name}: mean {:+.3} p50 {:+.3} p95 {:+.3} sd x{:.3}; penalty {penalty:+.1} %",
        out[0], out[1], out[2], out[3]
    );
    out
}

/// Calibrated on 4 and 8 replicas, asked about 32, against the job on clusters of 32.
#[test]
fn more_replicas() {
    for known in [4, 8] {
        let mut all = [0.0; 4];
        let n = 3;
        for seed in 1..=n {
            let spec = job(32, 4, 8, 60, seed);
            let wide = statistics(truth(&spec, 6));
            let trained = fit(&spec, known);
            let target = Target { dp: Some(32), ..Target::default() };
            let predicted: Vec<f64> = (0..8)
                .into_par_iter()
                .flat_map(|k| {
                    let options = ResizeOptions {
                        seed: 100 + k,
                        fresh_cluster: true,
                        ranks: Some((32, 32)),
                        ..ResizeOptions::default()
                    };
                    times(&trained, target, options, 500)
                })
                .collect();
            let mut quiet = spec.clone();
            quiet.effects = SynthEffects::default();
            let quiet = quiet.step_times(&[0]).unwrap()[0];
            let errors = report(
                &format!("dp {known} -> 32, seed {seed}"),
                statistics(predicted),
                wide,
                quiet,
            );
            check(&[errors], 0.4);
            all.iter_mut().zip(errors).for_each(|(a, e)| *a += e / n as f64);
        }
        check(&[all], 0.225);
    }
}

fn shape_error(from: (u16, u32), to: (u16, u32), seed: u64) -> [f64; 4] {
    // The same layers on other stages: total work of a microbatch stays what it is.
    let scale = f64::from(from.0) / f64::from(to.0);
    let mut small = job(8, from.0, from.1, 60, seed);
    let mut large = job(8, to.0, to.1, 60, seed);
    (small.durations.collective_s, large.durations.collective_s) = (0.0, 0.0);
    let durations = small.durations.clone();
    large.durations.forward_s = durations.forward_s * scale;
    large.durations.backward_s = durations.backward_s * scale;
    large.durations.optimizer_s = durations.optimizer_s * scale;
    let wide = statistics(truth(&large, 6));
    let trained = fit(&small, 8);
    let target = Target { pp: Some(to.0), microbatches: Some(to.1), dp: None };
    let predicted: Vec<f64> = (0..8)
        .into_par_iter()
        .flat_map(|k| {
            let options =
                ResizeOptions { seed: 100 + k, fresh_cluster: true, ..ResizeOptions::default() };
            times(&trained, target, options, 500)
        })
        .collect();
    let mut quiet = large.clone();
    quiet.effects = SynthEffects::default();
    let quiet = quiet.step_times(&[0]).unwrap()[0];
    report(&format!("{from:?} -> {to:?}, seed {seed}"), statistics(predicted), wide, quiet)
}

/// Calibrated on 8 microbatches, asked about 32.
#[test]
fn more_microbatches() {
    check(&(1..=4).map(|seed| shape_error((4, 8), (4, 32), seed)).collect::<Vec<_>>(), 0.4);
}

/// Calibrated on 4 stages, asked about 8.
#[test]
fn more_stages() {
    check(&(1..=4).map(|seed| shape_error((4, 16), (8, 16), seed)).collect::<Vec<_>>(), 0.4);
}

/// Errors of mean and median below `limit` s.d., of p95 below 1.5 times that, spread within 20 %.
///
/// The mean of 60 recorded steps has a standard error of 0.13 s.d.: 0.4 is three of those, 0.225 three
/// of three recordings' mean.
fn check(errors: &[[f64; 4]], limit: f64) {
    for [mean, p50, p95, sd] in errors {
        assert!(mean.abs() < limit && p50.abs() < limit, "{errors:?}");
        assert!(p95.abs() < 1.5 * limit && (sd - 1.0).abs() < 0.2, "{errors:?}");
    }
}

/// More replicas leave the first ones alone: those observed, and those drawn before.
#[test]
fn more_replicas_leave_the_first_alone() {
    let trained = fit(&job(4, 2, 4, 30, 3), 4);
    let at = |dp: u32| {
        let target = Target { dp: Some(dp), ..Target::default() };
        resize(&trained.graph, &trained.model, &target, &ResizeOptions::default()).unwrap().model
    };
    let (eight, many) = (at(8), at(64));
    let n = trained.model.compute.signatures.len();
    for c in 0..n {
        let row = |m: &[f64], r: usize| m[c * r..][..r.min(8)].to_vec();
        assert_eq!(row(&eight.compute.worker_log, 8), row(&many.compute.worker_log, 64));
        assert_eq!(
            row(&eight.compute.worker_log, 8)[..4],
            trained.model.compute.worker_log[c * 4..][..4]
        );
        let lanes = |m: &[f32], r: usize, some: usize| m[c * r * 30..][..some * 30].to_vec();
        let (a, b) = (&eight.compute.step_vectors_log, &many.compute.step_vectors_log);
        assert_eq!(lanes(a, 8, 8), lanes(b, 64, 8));
        assert_eq!(lanes(a, 8, 4), lanes(&trained.model.compute.step_vectors_log, 4, 4));
    }
    // And what is drawn has the spread that was estimated.
    let drawn: Vec<f64> = many.compute.worker_log[4..64].to_vec();
    let sd = (drawn.iter().map(|v| v * v).sum::<f64>() / 60.0).sqrt();
    let ratio = sd / trained.model.compute.worker_sd_log;
    // 60 draws: a standard error of 9 %; means of the stage add a third of the s.d.
    assert!((0.6..1.5).contains(&ratio), "{ratio}");
}

/// The recorded size is the recorded job, draw by draw.
#[test]
fn the_recorded_size_changes_nothing() {
    let trained = fit(&job(4, 4, 8, 30, 4), 4);
    let target = Target { dp: Some(4), pp: Some(4), microbatches: Some(8) };
    let same = resize(&trained.graph, &trained.model, &target, &ResizeOptions::default()).unwrap();
    assert_eq!(same.model, trained.model);
    assert!(same.notes.is_empty() && same.unused.is_empty(), "{:?}", same.notes);
    let options = PredictOptions { samples: 500, repetitions: 10, ..PredictOptions::default() };
    let resizer =
        Resizer::new(&trained.graph, &trained.model, &target, &ResizeOptions::default()).unwrap();
    let resized = predict_resized(&resizer, &trained.model, &options).unwrap();
    assert_eq!(resized, predict(&trained.graph, &trained.model, &options).unwrap());
}

/// Total intervals of a resized job hold that its new replicas are not known.
#[test]
fn intervals_hold_the_unknown_replicas() {
    let trained = fit(&job(4, 2, 4, 40, 5), 4);
    let half = |dp: u32| {
        let target = Target { dp: Some(dp), ..Target::default() };
        let options = ResizeOptions { fresh_cluster: dp > 4, ..ResizeOptions::default() };
        let resizer = Resizer::new(&trained.graph, &trained.model, &target, &options).unwrap();
        let options =
            PredictOptions { samples: 2_000, repetitions: 40, ..PredictOptions::default() };
        let report = predict_resized(&resizer, &trained.model, &options).unwrap().report;
        let total = report.mean.total.unwrap();
        (total.upper - total.lower) / report.mean.value
    };
    assert!(half(8) > half(4), "{} {}", half(8), half(4));
}

/// What is out of range, or cannot be told, is refused by name; `extrapolate` lifts it.
#[test]
fn refusals() {
    let trained = fit(&job(4, 2, 4, 30, 6), 4);
    let ask = |dp, pp, microbatches, extrapolate| {
        let target = Target { dp, pp, microbatches };
        let options = ResizeOptions { extrapolate, ..ResizeOptions::default() };
        resize(&trained.graph, &trained.model, &target, &options)
    };
    let error = ask(Some(513), None, None, false).unwrap_err();
    assert_eq!(
        error,
        ResizeError::Range { what: "replicas", from: 4, to: 513, lowest: 1, highest: 512 }
    );
    assert!(error.hint().unwrap().contains("--extrapolate"));
    assert!(ask(Some(513), None, None, true).unwrap().notes[0].basis.contains("stated range"));
    assert!(matches!(ask(None, Some(9), None, false), Err(ResizeError::Range { .. })));
    assert!(matches!(ask(None, None, Some(33), false), Err(ResizeError::Range { .. })));
    // Two stages do not tell the ends from the layers.
    assert!(matches!(ask(None, Some(4), None, false), Err(ResizeError::Unidentified { .. })));
    let told = ask(None, Some(4), None, true).unwrap();
    assert_eq!(told.graph.stages(), 4);
    assert!(matches!(ask(Some(0), None, None, true), Err(ResizeError::Zero { .. })));
    // Nothing lifts the limit on what is evaluated one by one.
    assert!(matches!(ask(Some(100_000), None, None, true), Err(ResizeError::TooLarge { .. })));
}
