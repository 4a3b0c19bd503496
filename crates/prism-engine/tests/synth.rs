//! Synthetic traces: what was drawn is what is recorded.

use std::collections::BTreeMap;

use prism_engine::calibrate::{CalibrateOptions, Selection, calibrate};
use prism_engine::predict::{PredictOptions, predict};
use prism_engine::replay::{Builder, Replayed, recorded_step_times};
use prism_engine::synth::{
    EffectLaw, EffectSpec, LaunchDelay, OutlierSteps, SlowWorker, SynthError, SynthSpec, from_model,
};
use prism_graph::schedule::{Schedule, ScheduleKind};
use prism_model::{EffectKind, OpKind};
use prism_stats::ks::{ks_floor_two, ks_statistic_two};

fn plan(replicas: u32, stages: u16, microbatches: u32) -> Schedule {
    Schedule { replicas, ..Schedule::new(ScheduleKind::OneFOneB, stages, microbatches) }
}

/// A job with every effect.
fn full() -> SynthSpec {
    let mut spec = SynthSpec::new(plan(4, 2, 4), 30);
    spec.steps.window = 10;
    let e = &mut spec.effects;
    e.worker = EffectSpec::normal(0.01);
    e.position = EffectSpec::normal(0.01);
    e.step = EffectSpec::normal(0.02);
    e.window = EffectSpec::normal(0.01);
    e.step_worker = EffectSpec { sd_log: 0.01, law: EffectLaw::HeavyTailed };
    e.microbatch = EffectSpec { sd_log: 0.1, law: EffectLaw::Skewed };
    e.residual = EffectSpec::normal(0.02);
    e.worker_spread = EffectSpec::normal(0.1);
    e.congestion = EffectSpec::normal(0.2);
    e.transfer = EffectSpec::normal(0.3);
    e.step_load.backward = 1.5;
    e.microbatch_load.by_stage = vec![1.2, 0.8];
    spec.launch_delay = LaunchDelay { mean_s: 0.001, sd_log: 0.5 };
    spec.slow_worker = Some(SlowWorker { replica: 2, stage: 1, factor: 1.1 });
    spec.outliers = Some(OutlierSteps { probability: 0.1, factor: 1.3 });
    spec.early_window_shift_log = 0.05;
    spec
}

#[test]
fn a_specification_survives_files_and_defaults() {
    let spec = full();
    let text = serde_json::to_string(&spec).unwrap();
    assert_eq!(serde_json::from_str::<SynthSpec>(&text).unwrap(), spec);
    let short = r#"{
        "schedule": {"kind": "1f1b", "replicas": 2, "stages": 2, "microbatches": 4},
        "steps": {"count": 5},
        "effects": {"microbatch": {"sd_log": 0.2}}
    }"#;
    let short: SynthSpec = serde_json::from_str(short).unwrap();
    let mut expected = SynthSpec::new(plan(2, 2, 4), 5);
    expected.effects.microbatch = EffectSpec::normal(0.2);
    assert_eq!(short, expected);
    let unknown = r#"{"schedule": {"kind": "1f1b", "replicas": 2, "stages": 2, "microbatches": 4},
        "steps": {"count": 5}, "effect": {}}"#;
    assert!(serde_json::from_str::<SynthSpec>(unknown).unwrap_err().to_string().contains("effect"));
}

#[test]
fn all_violations_are_named_at_once() {
    let mut spec = full();
    spec.steps.count = 0;
    spec.durations.forward_s = 0.0;
    spec.durations.stage_factor = vec![1.0; 3];
    spec.effects.step.sd_log = f64::NAN;
    spec.effects.microbatch_load.forward = -1.0;
    spec.slow_worker = Some(SlowWorker { replica: 4, stage: 1, factor: 0.0 });
    spec.outliers = Some(OutlierSteps { probability: 1.5, factor: 1.0 });
    let Err(SynthError::Spec { wrong }) = spec.generate() else { panic!("accepted") };
    let keys = [
        "steps.count",
        "durations.forward_s",
        "durations.stage_factor",
        "effects.step.sd_log",
        "effects.microbatch_load.forward",
        "slow_worker.replica",
        "slow_worker.factor",
        "outliers.probability",
        "steps.window",
    ];
    for key in keys {
        assert!(wrong.iter().any(|w| w.starts_with(key)), "{key} is not in {wrong:?}");
    }
    assert_eq!(wrong.len(), keys.len(), "{wrong:?}");
    let steps = full().step_times(&[1, 3, 3]);
    assert!(matches!(steps, Err(SynthError::Steps { before: 3, after: 3 })));
}

#[test]
fn steps_come_in_windows() {
    let mut spec = full();
    spec.steps.first = 5;
    spec.steps.count = 5;
    spec.steps.window = 2;
    spec.steps.gap = 50;
    assert_eq!(spec.step_ids(), [5, 6, 56, 57, 107]);
    spec.steps.window = 0;
    assert_eq!(spec.step_ids(), [5, 6, 7, 8, 9]);
}

/// With no effects every duration is the one that was asked for.
#[test]
fn nothing_random_gives_the_textbook_step() {
    let mut spec = SynthSpec::new(plan(3, 4, 8), 2);
    spec.durations.p2p_s = 0.0;
    spec.durations.collective_s = 0.0;
    spec.durations.optimizer_s = 0.0;
    let synth = spec.generate().unwrap();
    let replayed = Replayed::new(Builder::Reference, &synth.table).unwrap();
    // 1F1B: (m + p - 1)(F + B).
    for t in recorded_step_times(&replayed.graph, &replayed.observed) {
        assert!((t - 11.0 * 0.3).abs() < 1e-9, "{t}");
    }
    assert!(synth.truth.realised_sd_log.is_empty());
}

/// The log of every recorded compute duration is the sum of its effects: what remains of it after
/// the truth is taken away is the residual and the microbatch.
#[test]
fn recorded_durations_are_the_sum_of_the_drawn_effects() {
    let mut spec = full();
    spec.effects.microbatch.sd_log = 0.0;
    spec.effects.residual.sd_log = 0.0;
    spec.effects.step_worker.sd_log = 0.0;
    let synth = spec.generate().unwrap();
    let truth = &synth.truth;
    let steps = synth.table.steps();
    for row in synth.table.rows().filter(|r| r.kind.is_microbatch_compute()) {
        let c = truth
            .signatures
            .iter()
            .position(|s| s.kind == row.kind && s.stage == row.stage && s.chunk == row.chunk)
            .unwrap();
        let backward = row.kind == OpKind::BackwardCompute;
        let t = steps.binary_search(&row.step).unwrap();
        let log = (if backward { 0.2_f64 } else { 0.1 }).ln()
            + truth.worker_log[row.stage as usize][row.dp as usize]
            + truth.position_log[c][row.microbatch as usize]
            + truth.step_log[t] * if backward { 1.5 } else { 1.0 };
        assert!((row.duration_s.ln() - log).abs() < 1e-9);
    }
    let slow = truth.worker_log[1][2] - truth.worker_log[1].iter().sum::<f64>() / 4.0;
    assert!(slow > 0.05 && !truth.outlier_steps.is_empty(), "{slow} {:?}", truth.outlier_steps);
}

/// A draw belongs to its step, replica and stage, whatever else is drawn.
#[test]
fn more_steps_and_replicas_leave_the_other_draws_alone() {
    let spec = full();
    let synth = spec.generate().unwrap();
    assert_eq!(synth, spec.generate().unwrap());
    let mut more = spec.clone();
    more.schedule.replicas = 5;
    more.schedule.microbatches = 6;
    more.steps.count = 40;
    let more = more.generate().unwrap().table;
    let key = |t: &prism_io::OpTable, i: usize| {
        let r = t.row(i);
        (r.step, r.dp, r.stage, r.kind, r.microbatch)
    };
    let durations: BTreeMap<_, f64> = (0..more.len())
        .filter(|&i| more.kind[i].is_microbatch_compute())
        .map(|i| (key(&more, i), more.duration_s[i]))
        .collect();
    let table = &synth.table;
    for i in (0..table.len()).filter(|&i| table.kind[i].is_microbatch_compute()) {
        let other = durations[&key(table, i)];
        assert!((table.duration_s[i] - other).abs() < 1e-9 * other, "{:?}", table.row(i));
    }
    let mut other = spec;
    other.seed = 2;
    assert_ne!(other.generate().unwrap().table.duration_s, synth.table.duration_s);
}

#[test]
fn step_times_are_those_of_the_record() {
    let spec = full();
    let table = spec.generate().unwrap().table;
    let replayed = Replayed::new(Builder::Reference, &table).unwrap();
    let recorded = recorded_step_times(&replayed.graph, &replayed.observed);
    let times = spec.step_times(&spec.step_ids()).unwrap();
    for (a, b) in recorded.iter().zip(&times) {
        assert!((a - b).abs() < 1e-9, "{a} {b}");
    }
    let last = spec.step_times(&[*spec.step_ids().last().unwrap()]).unwrap();
    assert_eq!(last[0], *times.last().unwrap());
}

/// The realised s.d. of an effect scatters around the specified one by its own sampling error.
#[test]
fn realised_spreads_are_near_the_specified_ones() {
    for law in [EffectLaw::Normal, EffectLaw::HeavyTailed, EffectLaw::Skewed] {
        let mut spec = SynthSpec::new(plan(8, 2, 4), 100);
        let effect = EffectSpec { sd_log: 0.1, law };
        spec.effects.step = effect;
        spec.effects.step_worker = effect;
        spec.effects.microbatch = effect;
        spec.effects.residual = effect;
        spec.effects.worker = effect;
        spec.effects.position = effect;
        spec.effects.congestion = effect;
        let realised = spec.generate().unwrap().truth.realised_sd_log;
        // Independent values behind each; relative error of an s.d. is sqrt((2 + excess) / 4n).
        let counts = [
            (EffectKind::Step, 99.0),
            (EffectKind::StepWorker, 2.0 * 7.0 * 99.0),
            (EffectKind::Microbatch, 3.0 * 799.0),
            (EffectKind::Residual, 4.0 * 3200.0),
            (EffectKind::Worker, 14.0),
            (EffectKind::Position, 12.0),
            (EffectKind::Congestion, 99.0),
        ];
        for (kind, n) in counts {
            let error = (5.0_f64 / (4.0 * n)).sqrt();
            let got = realised[&kind];
            assert!((got / 0.1 - 1.0).abs() < 4.0 * error, "{law:?} {kind} {got}");
        }
    }
}

/// Steps drawn from a model by this crate's plain evaluation have the distribution that the
/// Monte Carlo program of the same model has.
#[test]
fn steps_of_a_model_follow_its_prediction() {
    let mut spec = full();
    spec.effects.worker_spread.sd_log = 0.0;
    let table = spec.generate().unwrap().table;
    for builder in [Builder::Reference, Builder::ProgramOrder] {
        let replayed = Replayed::new(builder, &table).unwrap();
        let options = CalibrateOptions { laws: false, ..CalibrateOptions::default() };
        let k = calibrate(&replayed, &Selection::all(&replayed), &options).unwrap();
        let steps: Vec<i64> = (0..1_500).collect();
        let again = from_model(&k.graph, &k.model, &table.meta, &steps, 3).unwrap();
        assert_eq!(again, from_model(&k.graph, &k.model, &table.meta, &steps, 3).unwrap());
        let fresh = Replayed::new(builder, &again).unwrap();
        let mut recorded = recorded_step_times(&fresh.graph, &fresh.observed);
        recorded.sort_by(f64::total_cmp);
        let options =
            PredictOptions { samples: 6_000, repetitions: 0, ..PredictOptions::default() };
        let mut predicted: Vec<f64> = predict(&k.graph, &k.model, &options)
            .unwrap()
            .samples_s
            .into_iter()
            .map(f64::from)
            .collect();
        predicted.sort_by(f64::total_cmp);
        let distance = ks_statistic_two(&recorded, &predicted).unwrap();
        let floor = ks_floor_two(recorded.len(), predicted.len()).unwrap();
        assert!(distance < 1.5 * floor.p95, "{builder:?} {distance} {floor:?}");
    }
}

#[test]
fn a_model_of_another_graph_is_refused() {
    let table = full().generate().unwrap().table;
    let replayed = Replayed::new(Builder::Reference, &table).unwrap();
    let options = CalibrateOptions { laws: false, ..CalibrateOptions::default() };
    let k = calibrate(&replayed, &Selection::all(&replayed), &options).unwrap();
    let small = plan(4, 1, 2).graph().unwrap();
    let error = from_model(&small, &k.model, &table.meta, &[0], 1).unwrap_err();
    assert!(matches!(error, SynthError::Model { .. }), "{error}");
    let error = from_model(&k.graph, &k.model, &table.meta, &[2, 1], 1).unwrap_err();
    assert!(matches!(error, SynthError::Steps { .. }));
    let mut broken = k.model.clone();
    broken.congestion = vec![1.0];
    let error = from_model(&k.graph, &broken, &table.meta, &[0], 1).unwrap_err();
    assert!(matches!(error, SynthError::Model { .. }), "{error}");
}
