//! Reads the public logs, where they are present, and compares hand-checked values.

use std::path::PathBuf;

use prism_io::{
    Limits, LogFormat, PauseKind, StepLog, StepLogOptions, looks_like_step_log, read_step_log,
    read_step_logs,
};

/// A file of the public data, or `None` (said on standard error) where it is missing.
fn data(name: &str) -> Option<PathBuf> {
    let data = std::env::var_os("PRISM_DATA").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        PathBuf::from,
    );
    let file = data.join(name);
    if file.is_file() {
        return Some(file);
    }
    eprintln!("SKIPPED: {} is missing; set PRISM_DATA", file.display());
    None
}

fn count(log: &StepLog, kind: PauseKind) -> usize {
    log.pauses.iter().filter(|p| p.kind == kind).count()
}

fn looks(path: &PathBuf) -> bool {
    looks_like_step_log(&std::fs::read(path).unwrap(), Limits::default())
}

#[test]
fn mlperf_table_has_63_runs() {
    let Some(path) = data("mlperf/steps.csv.gz") else { return };
    assert!(looks(&path));
    let logs = read_step_logs(&path, &StepLogOptions::default()).unwrap();
    assert_eq!(logs.len(), 63);
    assert_eq!(logs.iter().map(|l| l.step.len()).sum::<usize>(), 15_692);
    let first = &logs[0];
    assert_eq!(first.system.as_deref(), Some("v3.0/NVIDIA/dgxh100_n64_nemo/gpt3"));
    assert_eq!((first.run.as_deref(), first.step.len()), (Some("0"), 288));
    assert_eq!(first.step_s[..2], [12.16086, 12.03877]);
    assert_eq!(first.wall_s[..2], [12.398, 12.068]);
    // The oldest submissions have one block, those after them 24 of 12 steps.
    assert!(first.pauses.is_empty());
    let system = "v3.1/NVIDIA/eos_n64_ngc23.09_nemo/gpt3";
    let eos = logs.iter().find(|l| l.system.as_deref() == Some(system)).unwrap();
    assert_eq!((eos.pauses.len(), count(eos, PauseKind::Block)), (23, 23));
    assert_eq!((eos.pauses[0].after, eos.pauses[22].after), (12, 276));
    let error = read_step_log(&path, Limits::default()).unwrap_err().to_string();
    assert!(error.contains("63 runs") && error.contains("and 43 more"), "{error}");
}

/// A raw log, checked against the table made of it independently.
fn raw_equals_table(name: &str, system: &str) -> Option<StepLog> {
    let (raw, table) = (data(name)?, data("mlperf/steps.csv.gz")?);
    assert!(looks(&raw));
    let raw = read_step_log(&raw, Limits::default()).unwrap();
    assert_eq!(raw.format, LogFormat::Mllog);
    let table = read_step_logs(&table, &StepLogOptions::default()).unwrap();
    let same = |l: &&StepLog| l.system.as_deref() == Some(system) && l.run.as_deref() == Some("0");
    let table = table.iter().find(same).unwrap();
    assert_eq!(raw.step, table.step);
    // The table has five decimals of the times and three of the clock.
    for (a, b) in raw.step_s.iter().zip(&table.step_s) {
        assert!((a - b).abs() < 0.51e-5, "{a} {b}");
    }
    for (a, b) in raw.wall_s.iter().zip(&table.wall_s) {
        assert!((a - b).abs() < 0.51e-3, "{a} {b}");
    }
    Some(raw)
}

#[test]
fn mllog_of_gpt3_equals_the_table() {
    let Some(log) = raw_equals_table(
        "raw/mllog_gpt3_eos_n64_v3.1_run0.txt.gz",
        "v3.1/NVIDIA/eos_n64_ngc23.09_nemo/gpt3",
    ) else {
        return;
    };
    assert_eq!(log.step.len(), 288);
    assert_eq!(log.step_s[287], 11.047_425_985_336_304);
    assert_eq!((log.pauses.len(), count(&log, PauseKind::Evaluation)), (24, 24));
    let last = log.pauses[23];
    assert_eq!(last.after, 288);
    // 1696469839337 ms to 1696469852163 ms.
    assert!((last.duration_s.unwrap() - 12.826).abs() < 1e-6, "{last:?}");
}

#[test]
fn mllog_of_405b_equals_the_table() {
    let Some(log) = raw_equals_table(
        "raw/mllog_llama31_405b_carina512_v5.0_run0.txt.gz",
        "v5.0/IBM+CoreWeave+NVIDIA/carina_ngpu512_ngc25.04_nemo/llama31_405b",
    ) else {
        return;
    };
    assert_eq!((log.step.len(), log.step_s[0]), (312, 20.460_933_685_302_734));
    assert_eq!((log.pauses.len(), count(&log, PauseKind::Evaluation)), (6, 6));
    assert_eq!(log.system.as_deref(), Some("128xNVIDIA GB200"));
}

#[test]
fn megatron_log_of_52b() {
    let Some(path) = data("raw/megatron_52b_64gpu.log.gz") else { return };
    assert!(looks(&path));
    let log = read_step_log(&path, Limits::default()).unwrap();
    assert_eq!((log.format, log.averaged_over), (LogFormat::Megatron, 1));
    assert_eq!(log.step, (1..=62).collect::<Vec<i64>>());
    for (at, ms) in [(0, 144_915.6), (1, 125_536.8), (61, 125_247.8)] {
        assert!((log.step_s[at] - ms / 1e3).abs() < 1e-9);
    }
    assert_eq!((log.pauses.len(), log.wall_s.len()), (0, 0));
}

#[test]
fn nanogpt_totals_become_steps() {
    let Some(path) = data("modded_nanogpt/steps.csv.gz") else { return };
    let options = StepLogOptions::default()
        .with_time_column("train_time_ms", 1e-3)
        .with_cumulative(true)
        .with_system_columns(["dir"]);
    let logs = read_step_logs(&path, &options).unwrap();
    assert_eq!(logs.len(), 79);
    // In the first group the timer is set to zero after step 10, so that step 11 has no time.
    assert_eq!(logs.iter().map(|l| l.step.len()).sum::<usize>(), 141_190 - 38);
    let first = &logs[0];
    assert_eq!(first.system.as_deref(), Some("2024-12-04_ValueEmbed"));
    assert_eq!(first.step[..11], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12]);
    assert_eq!(first.averaged_over, 1);
    assert!((first.step_s[0] - 31.613).abs() < 1e-9);
    assert!((first.step_s[1] - 0.111).abs() < 1e-9);
    // Validations count as rows: one before the first step, then each 125 steps.
    let evaluations = logs.iter().map(|l| count(l, PauseKind::Evaluation)).sum::<usize>();
    assert_eq!(evaluations, 1_067);
}

#[test]
fn bigscience_table_by_source() {
    let Some(path) = data("bigscience/iterations.csv") else { return };
    let options = StepLogOptions::default().with_system_columns(["source"]);
    let logs = read_step_logs(&path, &options).unwrap();
    let counts: Vec<usize> = logs.iter().map(|l| l.step.len()).collect();
    assert_eq!(counts, [49, 62, 9, 3, 20, 4, 6, 12, 20]);
    assert!((logs[0].step_s[0] - 159.7789).abs() < 1e-9);
}
