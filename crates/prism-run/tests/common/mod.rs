//! Public logs as systems of runs.
#![allow(dead_code, reason = "each test file uses a part")]

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;

use prism_io::{LogFormat, Pause, PauseKind, StepLog};
use prism_run::cross::{CrossValidation, System};
use prism_run::separate;

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

/// The MLPerf logs, by system.
pub(crate) fn mlperf_logs() -> Option<Vec<(String, Vec<StepLog>)>> {
    let file = data("mlperf/steps.csv.gz")?;
    let mut reader =
        csv::Reader::from_reader(flate2::read::GzDecoder::new(File::open(file).unwrap()));
    let mut runs: BTreeMap<(String, u32), Vec<(i64, i64, f64)>> = BTreeMap::new();
    for row in reader.records() {
        let row = row.unwrap();
        let system = row.iter().take(4).collect::<Vec<_>>().join("/");
        let entry = runs.entry((system, row[4].parse().unwrap())).or_default();
        entry.push((row[5].parse().unwrap(), row[6].parse().unwrap(), row[9].parse().unwrap()));
    }
    let mut systems: BTreeMap<String, Vec<StepLog>> = BTreeMap::new();
    for ((system, run), mut rows) in runs {
        rows.sort_by_key(|r| r.0);
        let evaluations: Vec<usize> =
            (1..rows.len()).filter(|&i| rows[i].1 != rows[i - 1].1).collect();
        let name = format!("{system}/{run}");
        let (step, step_s) = rows.iter().map(|r| (r.0, r.2)).unzip();
        systems.entry(system).or_default().push(log(&name, step, step_s, &evaluations));
    }
    Some(systems.into_iter().collect())
}

/// The MLPerf systems.
pub(crate) fn mlperf() -> Option<Vec<System>> {
    let to_system = |(name, logs): (String, Vec<StepLog>)| System {
        name,
        runs: logs.iter().map(|l| separate(l).unwrap()).collect(),
    };
    Some(mlperf_logs()?.into_iter().map(to_system).collect())
}

/// Rows of a cross-validation.
pub(crate) fn table(cross: &CrossValidation) -> String {
    let mut out = String::new();
    for r in &cross.runs {
        let p = r.predicted;
        out += &format!(
            "{:<62} {} width {:.2} score {:.2} crps {:.3} err {:+.2}\n",
            r.run,
            if p.covered { "in " } else { "OUT" },
            100.0 * p.width,
            100.0 * p.score,
            100.0 * r.crps,
            100.0 * (r.actual_s / r.median_s - 1.0)
        );
    }
    for (name, s) in [
        ("predicted", cross.predicted),
        ("iid", cross.iid),
        ("student", cross.student),
        ("band", cross.band),
    ] {
        out += &format!(
            "{name}: covers {} width mean {:.3} median {:.3} max {:.3} score {:.3} %\n",
            s.covered,
            100.0 * s.width_mean,
            100.0 * s.width_median,
            100.0 * s.width_max,
            100.0 * s.score
        );
    }
    out + &format!("crps {:.4} %, score to band {:.3}", 100.0 * cross.crps, cross.score_to_band)
}
