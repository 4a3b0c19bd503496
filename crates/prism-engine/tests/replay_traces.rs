//! Replay of two recorded jobs against the reference analysis' published answers.
//!
//! The traces are not part of the repository: tests say so and pass where they are absent.

use std::collections::BTreeMap;
use std::path::PathBuf;

use prism_engine::replay::{Builder, Choice, Ideal, Replayed, choose_builder, replace, simulate};
use prism_graph::Op;
use prism_io::{OpTable, ReadOptions, read_op_table};
use prism_model::OpKind;
use serde_json::Value;

fn folder() -> PathBuf {
    let data = std::env::var_os("PRISM_DATA").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data")),
        PathBuf::from,
    );
    data.join("straggler")
}

/// The trace and the published answers, or a visible skip.
fn load(name: &str) -> Option<(OpTable, Value)> {
    let trace = folder().join(format!("trace-{name}.parquet"));
    let answers = folder().join(format!("result-{name}.json"));
    for path in [&trace, &answers] {
        if !path.exists() {
            eprintln!("skipped: {} is missing (set PRISM_DATA)", path.display());
            return None;
        }
    }
    let table = read_op_table(&trace, &ReadOptions::default()).unwrap().table;
    let answers = serde_json::from_str(&std::fs::read_to_string(answers).unwrap()).unwrap();
    Some((table, answers))
}

fn json(name: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(folder().join(name)).unwrap()).unwrap()
}

#[track_caller]
fn assert_close(what: &str, got: f64, expected: f64, relative: f64) {
    let error = (got / expected - 1.0).abs();
    assert!(error <= relative, "{what}: {got} instead of {expected}, off by {error:.2e}");
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

/// The reference analysis averages recorded step times in single precision, in eight partial sums
/// as numpy does for fewer than 128 values.
fn single_precision_mean(values: &[f64]) -> f64 {
    let mut sums = [0.0_f32; 8];
    let whole = values.len() / 8 * 8;
    for eight in values[..whole].chunks(8) {
        for (sum, &v) in sums.iter_mut().zip(eight) {
            *sum += v as f32;
        }
    }
    let pair = |i: usize| sums[i] + sums[i + 1];
    let mut sum = (pair(0) + pair(2)) + (pair(4) + pair(6));
    for &v in &values[whole..] {
        sum += v as f32;
    }
    f64::from(sum / values.len() as f32)
}

fn check_published(name: &str) {
    let Some((table, answers)) = load(name) else { return };
    let report = Replayed::new(Builder::Reference, &table).unwrap().report;
    for key in ["step_t_base", "step_t_nodelay", "step_t_noblk"] {
        let expected = answers[key].as_object().unwrap();
        assert_eq!(expected.len(), report.steps.len(), "{name} {key}");
        for s in &report.steps {
            let got = match key {
                "step_t_base" => s.base_s,
                "step_t_nodelay" => s.no_delay_s,
                _ => s.ideal_s,
            };
            let what = format!("{name} {key} step {}", s.step);
            assert_close(&what, got, number(&expected[&s.step.to_string()]), 1e-8);
            assert_close(&what, s.no_delay_s / s.ideal_s, s.slowdown, 1e-15);
        }
    }
    assert_close("S", report.slowdown, number(&answers["blocking_slowdown"]), 1e-8);
    let base: Vec<f64> = report.steps.iter().map(|s| s.base_s).collect();
    let launch = single_precision_mean(&base) / report.mean_no_delay_s;
    assert_close("launch", launch, number(&answers["launch_slowdown"]), 1e-8);
    assert_close("launch in double precision", report.launch_slowdown, launch, 1e-7);
    for s in &report.steps {
        let id = s.step.to_string();
        let expected = number(&answers["blocking_step_slowdown"][&id]);
        assert_close("S of a step", s.slowdown, expected, 1e-8);
        let expected = number(&answers["launch_step_slowdown"][&id]);
        assert_close("launch slow-down of a step", s.launch_slowdown, expected, 1e-8);
    }
    assert_eq!((report.clamped_transfers, report.clamped_delays), (0, 0));
    assert!(report.with_delay_error.rms_percent < 1e-4, "{:?}", report.with_delay_error);
}

#[test]
fn ar_gives_the_published_figures() {
    check_published("AR");
}

#[test]
fn st_gives_the_published_figures() {
    check_published("ST");
}

/// Mean step time, relative to the ideal, with the recorded work on the selected operations only.
struct WhatIf<'a> {
    replayed: &'a Replayed,
    ideal: Vec<f64>,
    steps: usize,
}

impl<'a> WhatIf<'a> {
    fn new(replayed: &'a Replayed) -> Self {
        let ideal = Ideal::new(&replayed.graph, &replayed.split);
        WhatIf {
            ideal: ideal.work(&replayed.graph, replayed.observed.samples()),
            steps: replayed.observed.steps().len(),
            replayed,
        }
    }

    fn mean_time(&self, base: &[f64], other: &[f64], select: impl Fn(&Op, u32) -> bool) -> f64 {
        let graph = &self.replayed.graph;
        let work =
            replace(graph, self.steps, base, other, |op, _, replica| select(op, replica)).unwrap();
        let times = simulate(graph, self.steps, &work, None).unwrap();
        times.iter().sum::<f64>() / times.len() as f64
    }

    fn slowdown(&self, select: impl Fn(&Op, u32) -> bool) -> f64 {
        let work = &self.replayed.split.work;
        self.mean_time(&self.ideal, work, select) / self.replayed.report.mean_ideal_s
    }
}

fn check_what_if(name: &str) {
    let Some((table, answers)) = load(name) else { return };
    let replayed = Replayed::new(Builder::Reference, &table).unwrap();
    let what_if = WhatIf::new(&replayed);
    let by = |key: &str| -> BTreeMap<String, f64> {
        let map = answers[key].as_object().unwrap();
        map.iter().map(|(k, v)| (k.clone(), number(v))).collect()
    };
    for (stage, expected) in by("blocking_decompose_by_stage") {
        let stage: u16 = stage.parse().unwrap();
        assert_close("stage", what_if.slowdown(|op, _| op.stage == stage), expected, 1e-8);
    }
    for (dp, expected) in by("blocking_decompose_by_dp_rank") {
        let dp: u32 = dp.parse().unwrap();
        assert_close("replica", what_if.slowdown(|_, replica| replica == dp), expected, 1e-8);
    }
    for (kind, expected) in by("blocking_decompose_by_optype") {
        let selected = |k: OpKind| match kind.as_str() {
            "forward-pp-comm" => matches!(k, OpKind::ForwardSend | OpKind::ForwardRecv),
            "backward-pp-comm" => matches!(k, OpKind::BackwardSend | OpKind::BackwardRecv),
            other => k.as_str() == other,
        };
        assert_close(&kind, what_if.slowdown(|op, _| selected(op.kind)), expected, 1e-8);
    }
    let last = replayed.graph.stages() - 1;
    let published = json(&format!("ms-{name}.json"));
    let work = &replayed.split.work;
    let remaining = what_if.mean_time(work, &what_if.ideal, |op, _| op.stage == last);
    assert_close("last stage mended", remaining, number(&published["trem"]), 1e-8);
    let added = what_if.mean_time(&what_if.ideal, work, |op, _| op.stage == last);
    assert_close("last stage alone", added, number(&published["tadd"]), 1e-8);
}

#[test]
fn ar_what_if_figures_are_the_published_ones() {
    check_what_if("AR");
}

#[test]
fn st_what_if_figures_are_the_published_ones() {
    check_what_if("ST");
}

/// Zero-delay errors in percent: of the reference builder and of the program-order builder.
fn check_errors(name: &str, reference: f64, program_order: f64) {
    let Some((table, _)) = load(name) else { return };
    let Choice { chosen, comparison } = choose_builder(&table).unwrap();
    let error = comparison.reference.zero_delay_error;
    assert!((error.mean_percent - reference).abs() < 0.005, "{name} {error:?}");
    let other = comparison.program_order.as_ref().unwrap();
    let error = other.zero_delay_error;
    assert!((error.mean_percent - program_order).abs() < 0.005, "{name} {error:?}");
    assert!(error.rms_percent < comparison.reference.zero_delay_error.rms_percent);
    assert_eq!(comparison.chosen, Builder::ProgramOrder);
    assert_eq!(chosen.report, *other);
    assert_eq!((other.clamped_transfers, other.clamped_delays), (0, 0));
    assert!(other.with_delay_error.rms_percent < 1e-4, "{:?}", other.with_delay_error);
    let barrier = chosen.graph.find(OpKind::Barrier, 0, chosen.graph.stages() - 1);
    assert!(barrier.is_some_and(|b| chosen.observed.start(b).is_none()));
}

#[test]
fn program_order_replays_both_traces_better() {
    check_errors("AR", -0.67, -0.45);
    check_errors("ST", -1.89, -1.78);
}

#[test]
fn the_comparison_survives_json() {
    let Some((table, _)) = load("ST") else { return };
    let comparison = choose_builder(&table).unwrap().comparison;
    let text = serde_json::to_string(&comparison).unwrap();
    assert!(text.contains(r#""chosen":"program-order""#), "{text}");
    assert_eq!(comparison, serde_json::from_str(&text).unwrap());
}
