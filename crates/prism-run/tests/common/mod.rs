//! Public logs as systems of runs.
#![allow(dead_code, reason = "each test file uses a part")]

use std::collections::BTreeMap;
use std::path::PathBuf;

use prism_io::{LogFormat, Pause, PauseKind, StepLog, StepLogOptions, read_step_logs};
use prism_run::cross::System;
use prism_run::prior;
use prism_run::{
    Event, EventKind, Evidence, Separated, StepModel, WatchOptions, Watcher, separate,
};
use prism_stats::stream;
use rand::RngExt;
use rand_distr::{Distribution, Normal, StandardNormal, StudentT};

/// A file of the data folder; none, said aloud, where it is missing.
pub(crate) fn data(path: &str) -> Option<PathBuf> {
    let root = std::env::var_os("PRISM_DATA").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        PathBuf::from,
    );
    let file = root.join(path);
    if !file.is_file() {
        eprintln!("SKIPPED: {} is missing (set PRISM_DATA)", file.display());
        return None;
    }
    Some(file)
}

/// A log from steps and the places of evaluations.
pub(crate) fn log(name: &str, step: Vec<i64>, step_s: Vec<f64>, evaluations: &[usize]) -> StepLog {
    let pause = |&after: &usize| Pause { kind: PauseKind::Evaluation, after, duration_s: None };
    StepLog {
        step,
        step_s,
        wall_s: Vec::new(),
        pauses: evaluations.iter().map(pause).collect(),
        averaged_over: 1,
        run: None,
        system: None,
        format: LogFormat::Csv,
        source: prism_io::Source { name: name.to_owned(), sha256: String::new(), bytes: 0 },
    }
}

/// Public logs of `MLPerf` submissions, by system.
pub(crate) fn mlperf_logs() -> Option<Vec<(String, Vec<StepLog>)>> {
    let file = data("mlperf/steps.csv.gz")?;
    Some(by_system(read_step_logs(&file, &StepLogOptions::default()).unwrap()))
}

/// Logs of one file by their system.
pub(crate) fn by_system(logs: Vec<StepLog>) -> Vec<(String, Vec<StepLog>)> {
    let mut systems: BTreeMap<String, Vec<StepLog>> = BTreeMap::new();
    for log in logs {
        systems.entry(log.system.clone().unwrap()).or_default().push(log);
    }
    systems.into_iter().collect()
}

/// Those logs, told apart.
pub(crate) fn mlperf() -> Option<Vec<System>> {
    let to_system = |(name, logs): (String, Vec<StepLog>)| System {
        name,
        runs: logs.iter().map(|l| separate(l).unwrap()).collect(),
    };
    Some(mlperf_logs()?.into_iter().map(to_system).collect())
}

/// Level of watched runs, seconds.
pub(crate) const LEVEL_S: f64 = 6.0;

/// Innovations with heavy tails, s.d. 1.
pub(crate) fn heavy() -> impl Distribution<f64> {
    StudentT::new(5.0).unwrap().map(|t: f64| t / (5.0_f64 / 3.0).sqrt())
}

/// A run: core `CoV` and correlation, stalls once in 200 steps, level shift per run, excess from a step on.
pub(crate) fn watched_run(
    seed: u64,
    steps: usize,
    cov: f64,
    rho: f64,
    onset: Option<(usize, f64)>,
) -> StepLog {
    let mut rng = stream(seed, "watched run", &[]);
    let level = LEVEL_S * (1.0 + 0.001 * Normal::new(0.0, 1.0).unwrap().sample(&mut rng));
    let mut z: f64 = StandardNormal.sample(&mut rng);
    let step_s = (0..steps)
        .map(|i| {
            z = rho * z + (1.0 - rho * rho).sqrt() * heavy().sample(&mut rng);
            let slow = onset.filter(|o| i >= o.0).map_or(1.0, |o| 1.0 + o.1);
            let stall = if rng.random::<f64>() < 0.005 {
                0.1 - 0.3 * rng.random::<f64>().ln()
            } else {
                0.0
            };
            level * (slow * (1.0 + cov * z) + stall)
        })
        .collect();
    log(&format!("{seed}"), (0..steps as i64).collect(), step_s, &[])
}

pub(crate) fn calibrated(cov: f64, rho: f64) -> StepModel {
    let runs: Vec<Separated> =
        (0..3).map(|r| separate(&watched_run(900 + r, 600, cov, rho, None)).unwrap()).collect();
    StepModel::new(Evidence::of(&runs).unwrap(), prior::mlperf()).unwrap()
}

pub(crate) fn watch(watcher: &Watcher, log: &StepLog) -> Vec<Event> {
    let mut watcher = watcher.clone();
    let mut pauses = log.pauses.iter().peekable();
    let mut events = Vec::new();
    for (i, (&step, &t)) in log.step.iter().zip(&log.step_s).enumerate() {
        while let Some(p) = pauses.next_if(|p| p.after == i) {
            watcher.pause(p.kind);
        }
        events.extend(watcher.push(step, t));
    }
    let (last, summary) = watcher.finish();
    events.extend(last);
    assert_eq!(summary.steps as usize, log.step.len());
    events
}

pub(crate) fn is_change(e: &Event) -> bool {
    matches!(e.kind, EventKind::Slower | EventKind::Faster | EventKind::Back | EventKind::Eased)
}

/// Watches one public run with a profile of the other two.
pub(crate) fn watch_public(system: &str, run: usize) -> Option<Vec<Event>> {
    let logs = mlperf_logs()?;
    let (_, runs) = logs.iter().find(|s| s.0.contains(system)).unwrap();
    let others: Vec<Separated> =
        (0..3).filter(|&r| r != run).map(|r| separate(&runs[r]).unwrap()).collect();
    let model = StepModel::new(Evidence::of(&others).unwrap(), prior::mlperf()).unwrap();
    let watcher = Watcher::new(&model, WatchOptions::default()).unwrap();
    let events = watch(&watcher, &runs[run]);
    Some(events)
}
