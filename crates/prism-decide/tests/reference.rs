//! The reference what-if analysis of two recorded jobs against the published answers.
//!
//! The traces are not part of the repository: tests say so and pass where they are absent.

use std::collections::BTreeMap;
use std::path::PathBuf;

use prism_decide::reference::{
    Estimate, Explained, PartSlowdown, ReferenceError, ReferenceReport, Side, WhatIf, analyse,
};
use prism_engine::replay::{Builder, Replayed, replace, simulate};
use prism_graph::Op;
use prism_io::{OpTable, ReadOptions, read_op_table};
use prism_model::OpKind;
use serde_json::Value;

/// What the published figures are reproduced to, relative.
const CLOSE: f64 = 1e-8;
/// The published launch slow-down has a mean in single precision.
const SINGLE: f64 = 1e-7;

fn folder() -> PathBuf {
    let data = std::env::var_os("PRISM_DATA").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data")),
        PathBuf::from,
    );
    data.join("straggler")
}

fn json(name: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(folder().join(name)).unwrap()).unwrap()
}

fn load(name: &str) -> Option<OpTable> {
    let trace = folder().join(format!("trace-{name}.parquet"));
    for path in [trace.clone(), folder().join(format!("result-{name}.json"))] {
        if !path.exists() {
            eprintln!("skipped: {} is missing (set PRISM_DATA)", path.display());
            return None;
        }
    }
    Some(read_op_table(&trace, &ReadOptions::default()).unwrap().table)
}

#[track_caller]
fn assert_close(what: &str, got: f64, expected: f64, relative: f64) {
    let error = (got / expected - 1.0).abs();
    assert!(error <= relative, "{what}: {got} instead of {expected}, off by {error:.2e}");
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

/// Checks every number of a published answer; returns how many there were.
struct Check<'a> {
    report: &'a ReferenceReport,
    published: &'a Value,
    seen: usize,
}

impl Check<'_> {
    fn close(&mut self, what: &str, got: f64, expected: &Value, relative: f64) {
        assert_close(what, got, number(expected), relative);
        self.seen += 1;
    }

    /// One number a step.
    fn steps(&mut self, key: &str, figure: impl Fn(usize) -> f64) {
        let expected = self.published[key].as_object().unwrap();
        assert_eq!(expected.len(), self.report.steps.len(), "{key}");
        for (i, step) in self.report.steps.iter().enumerate() {
            let what = format!("{key} of step {}", step.step);
            self.close(&what, figure(i), &expected[&step.step.to_string()], CLOSE);
        }
    }

    /// One number a part, and one a step and part.
    fn parts(&mut self, key: &str, parts: &BTreeMap<String, &PartSlowdown>) {
        let expected = self.published[key].as_object().unwrap();
        assert!(parts.keys().eq(expected.keys().collect::<std::collections::BTreeSet<_>>()));
        let per_step = self.published[&format!("{key}_per_step")].as_object().unwrap();
        assert_eq!(per_step.len(), self.report.steps.len(), "{key}");
        for (name, part) in parts {
            let what = format!("{key} {name}");
            self.close(&what, part.slowdown.value, &expected[name], CLOSE);
            assert_close(&what, part.mean_s / self.report.mean_ideal_s, part.slowdown.value, 1e-14);
            for (step, &got) in self.report.steps.iter().zip(&part.per_step) {
                let at = &per_step[&step.step.to_string()];
                assert_eq!(at.as_object().unwrap().len(), parts.len(), "{key}");
                self.close(&format!("{what} step {}", step.step), got, &at[name], CLOSE);
            }
        }
    }
}

fn named<K: ToString>(parts: &BTreeMap<K, PartSlowdown>) -> BTreeMap<String, &PartSlowdown> {
    parts.iter().map(|(k, v)| (k.to_string(), v)).collect()
}

fn numbers(value: &Value) -> usize {
    match value {
        Value::Number(_) => 1,
        Value::Array(all) => all.iter().map(numbers).sum(),
        Value::Object(all) => all.values().map(numbers).sum(),
        _ => 0,
    }
}

fn check_explained(what: &str, got: &Explained, published: &Value, metric: &str) {
    for (key, value) in [
        ("trem", got.trem_s),
        ("tadd", got.tadd_s),
        ("tori", got.tori_s),
        ("tideal", got.tideal_s),
        ("rem", got.rem.unwrap().value),
        ("add", got.add.unwrap().value),
        (metric, got.rem.unwrap().value),
    ] {
        assert_close(&format!("{what} {key}"), value, number(&published[key]), CLOSE);
    }
    assert_eq!(numbers(published), 7, "{what}");
}

fn report(table: &OpTable) -> ReferenceReport {
    analyse(&Replayed::new(Builder::Reference, table).unwrap(), &table.ranks()).unwrap()
}

fn check(name: &str) {
    let Some(table) = load(name) else { return };
    let report = report(&table);
    let published = json(&format!("result-{name}.json"));
    let mut check = Check { report: &report, published: &published, seen: 0 };
    let steps = &report.steps;
    check.steps("step_t_base", |i| steps[i].base_s);
    check.steps("step_t_nodelay", |i| steps[i].no_delay_s);
    check.steps("step_t_noblk", |i| steps[i].ideal_s);
    check.steps("blocking_step_slowdown", |i| steps[i].slowdown);
    check.steps("launch_step_slowdown", |i| steps[i].launch_slowdown);
    check.close("S", report.slowdown.value, &published["blocking_slowdown"], CLOSE);
    let launch = report.launch_slowdown.value;
    check.close("launch", launch, &published["launch_slowdown"], SINGLE);
    let parts = report.decomposition.as_ref().unwrap();
    check.parts("blocking_decompose_by_optype", &named(&parts.by_op_type));
    check.parts("blocking_decompose_by_stage", &named(&parts.by_stage));
    check.parts("blocking_decompose_by_dp_rank", &named(&parts.by_dp));
    // All that is left is the plan.
    let plan = numbers(&published["job_meta"]);
    assert_eq!(check.seen + plan, numbers(&published), "{name}: some figure was not checked");
    // No launch slow-down is large enough to be decomposed.
    assert!(launch < 1.03 && published["launch_decompose_by_stage"].is_null());
    let explained = json(&format!("mw-{name}.json"));
    check_explained("slowest workers", &parts.slowest_workers, &explained, "Mw");
    let explained = json(&format!("ms-{name}.json"));
    check_explained("last stage", &parts.last_stage, &explained, "Ms");
    check_workers(&report, &table);
}

/// `S_w` against its definition.
fn check_workers(report: &ReferenceReport, table: &OpTable) {
    let parts = report.decomposition.as_ref().unwrap();
    let meta = &table.meta;
    assert_eq!(parts.workers.len(), (meta.dp_size * meta.pp_size) as usize);
    let value = |e: &Estimate| e.value;
    for w in &parts.workers {
        assert_eq!(
            w.rank,
            meta.tp_size * meta.dsp_size * (w.dp + meta.dp_size * u32::from(w.stage))
        );
        let (dp, stage) = (&parts.by_dp[&w.dp], &parts.by_stage[&w.stage]);
        assert_eq!(w.slowdown.value, value(&dp.slowdown).min(value(&stage.slowdown)));
        for (i, &s) in w.per_step.iter().enumerate() {
            assert_eq!(s, dp.per_step[i].min(stage.per_step[i]));
        }
    }
    let slowest = parts.workers.iter().map(|w| value(&w.slowdown)).fold(0.0, f64::max);
    let first = parts.workers.iter().find(|w| w.rank == parts.slowest_ranks[0]).unwrap();
    assert_eq!(first.slowdown.value, slowest);
    assert_eq!(parts.slowest_ranks.len(), 1);
}

#[test]
fn ar_gives_every_published_figure() {
    check("AR");
}

#[test]
fn st_gives_every_published_figure() {
    check("ST");
}

#[test]
fn any_selection_is_what_replaced_arrays_give() {
    let Some(table) = load("ST") else { return };
    let replayed = Replayed::new(Builder::Reference, &table).unwrap();
    let what_if = WhatIf::new(&replayed).unwrap();
    let steps = replayed.report.steps.len();
    let ideal = replayed.report.ideal.work(&replayed.graph, replayed.observed.samples());
    let work = &replayed.split.work;
    let brute = |base: &[f64], other: &[f64], select: &dyn Fn(&Op, u32) -> bool| {
        let mixed = replace(&replayed.graph, steps, base, other, |op, _, r| select(op, r)).unwrap();
        simulate(&replayed.graph, steps, &mixed, None).unwrap()
    };
    let odd = |op: &Op, replica: u32| {
        op.kind == OpKind::BackwardCompute && (op.stage + op.seq as u16).is_multiple_of(3)
            || replica == 1 && op.stage == 2
            || op.kind == OpKind::ForwardSend && replica == op.seq % 2
    };
    let times = what_if.step_times(&[(&odd, Side::Selected), (&odd, Side::Others)]).unwrap();
    assert_eq!(times[0], brute(&ideal, work, &odd));
    assert_eq!(times[1], brute(work, &ideal, &odd));
    let explained = what_if.explain(&odd).unwrap();
    let mean = |t: &[f64]| t.iter().sum::<f64>() / t.len() as f64;
    assert_eq!((explained.tadd_s, explained.trem_s), (mean(&times[0]), mean(&times[1])));
    // Everything explains everything, nothing explains nothing.
    let all = what_if.explain(&|_, _| true).unwrap();
    assert_close("rem", all.rem.unwrap().value, 1.0, 1e-12);
    assert_close("add", all.add.unwrap().value, 1.0, 1e-12);
    assert_eq!(what_if.explain(&|_, _| false).unwrap().rem.unwrap().value, 0.0);
    let slow = what_if.slowdown(&|_, _| true).unwrap();
    assert_close("S", slow.slowdown.value, replayed.report.slowdown, 1e-12);
}

#[test]
fn threads_change_no_bit() {
    let Some(table) = load("ST") else { return };
    let with = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| report(&table))
    };
    let one = with(1);
    assert_eq!(one, with(2));
    assert_eq!(one, with(5));
}

#[test]
fn a_worker_without_a_rank_is_an_error() {
    let Some(table) = load("ST") else { return };
    let replayed = Replayed::new(Builder::Reference, &table).unwrap();
    let mut ranks = table.ranks();
    ranks.remove(&(1, 2));
    let error = analyse(&replayed, &ranks).unwrap_err();
    assert_eq!(error, ReferenceError::NoRank { dp: 1, stage: 2 });
    assert!(error.hint().is_some());
}
