//! How soon a changed level is found, and how often one is found that is not there: beside a plain z-score and a
//! moving median. Then what public logs say, each run watched with a profile of its system's others.

#[path = "../tests/common/mod.rs"]
mod common;

use common::{calibrated, is_change, watch, watched_run};
use prism_io::StepLog;
use prism_run::{EventKind, StepModel, WatchOptions, Watcher};
use prism_stats::quantile_type7;

/// A plain z-score over so many s.d.: steps at which it alarms.
fn z_score(log: &StepLog, model: &StepModel, sds: f64) -> Vec<i64> {
    let level = model.core_s().unwrap();
    let limit = level * (1.0 + sds * model.evidence.core_cov);
    log.step
        .iter()
        .zip(&log.step_s)
        .skip(10)
        .filter(|(_, t)| **t > limit)
        .map(|(s, _)| *s)
        .collect()
}

/// The median of the last 21 steps over that of all before, beyond a ratio.
fn moving_median(log: &StepLog, ratio: f64) -> Vec<i64> {
    let mut alarms = Vec::new();
    let mut before: Vec<f64> = Vec::new();
    for i in 31..log.step_s.len() {
        before.push(log.step_s[i - 21]);
        let mut window = log.step_s[i - 20..=i].to_vec();
        window.sort_by(f64::total_cmp);
        let mut all = before.clone();
        all.sort_by(f64::total_cmp);
        if window[10] / all[all.len() / 2] > ratio {
            alarms.push(log.step[i]);
        }
    }
    alarms
}

/// Alarms that are at least 30 steps apart.
fn spells(alarms: &[i64]) -> usize {
    alarms.chunk_by(|a, b| b - a < 30).count()
}

/// Delay to the first alarm after the onset, of 40 runs; runs without one count 500.
fn delays(onset: usize, alarms: impl Fn(u64) -> Vec<i64>) -> (f64, f64, usize) {
    let mut all: Vec<f64> = (0..40)
        .map(|s| {
            let first = alarms(s).into_iter().find(|a| *a >= onset as i64);
            first.map_or(500.0, |a| (a - onset as i64 + 1) as f64)
        })
        .collect();
    all.sort_by(f64::total_cmp);
    let missed = all.iter().filter(|d| **d >= 500.0).count();
    (quantile_type7(&all, 0.5).unwrap(), quantile_type7(&all, 0.9).unwrap(), missed)
}

/// False alarms in so many runs of 1,000 steps, per 10,000.
const QUIET: u64 = 100;

fn delays_of(cov: f64, rho: f64) {
    let onset = 300;
    let model = calibrated(cov, rho);
    let watcher = Watcher::new(&model, WatchOptions::default()).unwrap();
    let quiet: Vec<StepLog> = (0..QUIET).map(|s| watched_run(s, 1_010, cov, rho, None)).collect();
    let per_10k = |count: usize| count as f64 / (QUIET as f64 / 10.0);
    let ours: usize =
        quiet.iter().map(|l| watch(&watcher, l).iter().filter(|e| is_change(e)).count()).sum();
    let z_of = |sds: f64| -> usize { quiet.iter().map(|l| spells(&z_score(l, &model, sds))).sum() };
    let median_of = |r: f64| -> usize { quiet.iter().map(|l| spells(&moving_median(l, r))).sum() };
    // The rules as they are used, and as they must be set for as few false alarms.
    let ratio = (1..100).map(|k| 1.0 + 0.001 * f64::from(k)).find(|r| median_of(*r) <= ours.max(1));
    let ratio = ratio.unwrap_or(1.1);
    println!(
        "\ncore CoV {cov}, correlation {rho}, stalls 0.5 % of steps; threshold {:.2}",
        watcher.threshold()
    );
    println!(
        "false alarms in 10,000 steps: change of level {:.1}, z-score of 3 {:.1}, median of 21 over {ratio:.3} {:.1}",
        per_10k(ours),
        per_10k(z_of(3.0)),
        per_10k(median_of(ratio))
    );
    println!("a z-score reaches {:.1} only at {:.0} s.d.", per_10k(ours), {
        (3..2_000).map(f64::from).find(|s| z_of(*s) <= ours.max(1)).unwrap_or(f64::NAN)
    });
    println!("found after so many steps: median, p90, missed of 40");
    for excess in [0.01, 0.02, 0.05, 0.1, 0.2, 0.5] {
        let log = |s: u64| watched_run(s, 800, cov, rho, Some((onset, excess)));
        let ours = delays(onset, |s| {
            let found = watch(&watcher, &log(s));
            found.iter().filter(|e| e.kind == EventKind::Slower).map(|e| e.found_at).collect()
        });
        let z = delays(onset, |s| z_score(&log(s), &model, 3.0));
        let median = delays(onset, |s| moving_median(&log(s), ratio));
        println!(
            "  +{:>2.0} %: {ours:?}; z-score of 3 {z:?}; median of 21 {median:?}",
            100.0 * excess
        );
    }
}

fn main() {
    for (cov, rho) in [(0.002, 0.1), (0.005, 0.2), (0.02, 0.5)] {
        delays_of(cov, rho);
    }
    let Some(logs) = common::mlperf_logs() else { return };
    let (mut alarms, mut steps) = (0, 0);
    for (name, runs) in &logs {
        for (run, log) in runs.iter().enumerate() {
            let Some(events) = common::watch_public(name, run) else { return };
            println!("{name} run {run}");
            for e in &events {
                println!(
                    "  {:?} at {} (found at {}): {:+.2} %, p {:.1e}, {:+.2} s",
                    e.kind,
                    e.step,
                    e.found_at,
                    100.0 * e.excess,
                    e.probability,
                    e.extra_s
                );
            }
            alarms += events.iter().filter(|e| e.kind == EventKind::Slower).count();
            steps += log.step.len();
        }
    }
    println!("slower spells in {steps} steps of public runs: {alarms}");
}
