//! The section `[run]`: what is read, what is written, what is refused.

use std::fmt::Write;

use prism_job::run::{
    Domain, Every, FailureRate, Onset, Policy, Rates, Severity, failure_presets, slow_presets,
};
use prism_job::{ReadOptions, RunDefaults, RunPlan, parse_job, parse_run_plan, to_toml};

/// A run without fault, every key in it.
const GOOD: &str = r#"[run]
steps = 100000
gpus = 16384
gpus_per_node = 8
nodes_per_rack = 2
nodes_per_switch = 32
start = 2026-03-01T08:00:00+02:00
deadline = "2026-05-01"
gpu_hour_usd = 2.5

[run.checkpoint]
interval = "30min"
blocking = "3s"
write = "2min"
load = "1min"

[run.evaluation]
every_steps = 1000
duration = "5min"

[run.failures]
preset = "llama3-405b"
rates = "posterior"

[[run.failures.class]]
name = "software"
domain = "job"
mtbf = "30h"
detection = "10min"

[[run.failures.class]]
name = "leak"
domain = "rack"
count = 3
gpus = 4096
duration = "90d"
repair = "7d"

[run.recovery]
policy = "elastic"
detection = "30s"
restart = "8min"
spares = 16
repair = "3d"
standby_swap = "1min"
elastic = { replicas = 16, shrink = "20s", regrow = "40s", keep_batch = false }
in_memory = { interval = "1min", blocking = "50ms", load = "5s", replicated = false }

[run.slow]
preset = "shared-roce"
slowest = false

[[run.slow.class]]
name = "hot GPU"
domain = "gpu"
per_unit_day = 0.001
mean = "10min"
factors = [1.1, 1.3]

[run.diurnal]
amplitude = 0.01
peak = "4h"

[run.maintenance]
every = "14d"
duration = "4h"
"#;

fn read(text: &str) -> RunPlan {
    match parse_run_plan(text, &ReadOptions::default(), &RunDefaults::default()) {
        Ok(plan) => plan,
        Err(error) => panic!("{error}\n{text}"),
    }
}

fn refused(text: &str, set: &[(&str, &str)]) -> String {
    let set = set.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let options = ReadOptions { set, ..ReadOptions::default() };
    match parse_run_plan(text, &options, &RunDefaults::default()) {
        Ok(_) => "possible".to_owned(),
        Err(error) => {
            for violation in error.violations() {
                let inside = |span: &std::ops::Range<usize>| text.get(span.clone()).is_some();
                assert!(violation.span.as_ref().is_none_or(inside), "{violation:?}");
            }
            error.to_string()
        }
    }
}

#[test]
fn every_key_is_read() {
    let plan = read(GOOD);
    assert_eq!(plan.start.unwrap().to_string(), "2026-03-01T06:00:00Z");
    assert_eq!(plan.deadline_s, Some(60.75 * 86_400.0));
    assert_eq!(plan.checkpoint.unwrap().every, Every::Time(1_800.0));
    assert_eq!(plan.failures.rates, Rates::Posterior);
    assert_eq!(plan.failures.classes.len(), 19);
    // A class of a preset's name takes its place; another comes last.
    let software = plan.failures.classes.iter().position(|c| c.name == "software").unwrap();
    assert_eq!(software, 2);
    let class = &plan.failures.classes[software];
    assert_eq!(class.rate, FailureRate::MeanTimeBetween(108_000.0));
    assert_eq!((class.domain, class.replaces), (Domain::Job, false));
    let leak = plan.failures.classes.last().unwrap();
    assert!(leak.replaces && plan.machines.nodes_lost(leak.domain) == 2);
    let exposure_s = 90.0 * 86_400.0 * 4_096.0 / 16_384.0;
    assert!((leak.job_rate(&plan.machines) * exposure_s - 3.0).abs() < 1e-12);
    assert_eq!(plan.recovery.policy, Policy::Elastic);
    assert_eq!(plan.recovery.in_memory.unwrap().blocking_s, 0.05);
    assert_eq!(plan.slow.classes[0].onset, Onset::PerJobHour(2.0));
    assert_eq!(plan.slow.classes[1].severity, Severity::Values(vec![1.1, 1.3]));
    assert_eq!(plan.diurnal.unwrap().peak_s, 14_400.0);
    assert!(plan.check().is_empty());
}

const JOB: &str = "[model]\npreset = \"llama-3.1-8b\"\n[training]\nseq_len = 8192\n\
                   global_batch_size = 128\n[parallelism]\ntensor_parallel_degree = 2\n\
                   [cluster]\npreset = \"h100-dgx\"\nnodes = 4\n";

#[test]
fn a_job_gives_what_the_run_leaves_out() {
    let job = format!("{JOB}[run]\ntokens = 1e12\n");
    let read = parse_job(&job, &ReadOptions::default()).unwrap().job;
    let run = read.run.clone().unwrap();
    assert_eq!((run.machines.gpus, run.machines.gpus_per_node), (32, 8));
    assert_eq!(run.steps, (1e12_f64 / (128.0 * 8192.0)).ceil() as u64);
    assert_eq!(parse_job(&to_toml(&read), &ReadOptions::default()).unwrap().job, read);
    let job = format!("{JOB}[run]\nsteps = 5\ngpus = 64\n");
    let error = parse_job(&job, &ReadOptions::default()).unwrap_err().to_string();
    assert!(error.contains("`run.gpus` is 64, and the plan takes 32"), "{error}");
}

#[test]
fn what_is_written_reads_back_the_same() {
    let round = |run: &str| {
        let text = format!("{JOB}{run}");
        let job = parse_job(&text, &ReadOptions::default()).unwrap_or_else(|e| panic!("{e}")).job;
        let written = to_toml(&job);
        let again = parse_job(&written, &ReadOptions::default());
        assert_eq!(again.unwrap_or_else(|e| panic!("{e}\n{written}")).job, job);
    };
    round(
        &GOOD
            .replace("gpus = 16384", "")
            .replace("replicas = 16", "replicas = 2")
            .replace("spares = 16", "spares = 4"),
    );
    let recovery = "[run.recovery]\nrestart = \"5min\"\n[run.checkpoint]\ninterval_steps = 10\n";
    for preset in failure_presets() {
        round(&format!(
            "[run]\nsteps = 7\n{recovery}[run.failures]\npreset = \"{}\"\n",
            preset.name
        ));
    }
    for preset in slow_presets() {
        round(&format!("[run]\nsteps = 7\n[run.slow]\npreset = \"{}\"\n", preset.name));
    }
}

#[test]
fn refusals() {
    let with = |from: &str, to: &str| {
        assert!(GOOD.contains(from), "{from}");
        GOOD.replace(from, to)
    };
    let steps = "steps = 100000";
    let cases: Vec<(&str, String)> = vec![
        ("no run", "[model]\npreset = \"gpt3-175b\"\n".to_owned()),
        ("empty", "[run]\n".to_owned()),
        ("no steps", with(steps, "")),
        ("no steps, none wanted", with(steps, "steps = 0")),
        ("more than any", with(steps, "steps = 99999999999999")),
        ("tokens of unknown steps", with(steps, "tokens = 1e12")),
        ("steps and tokens", with(steps, "steps = 5\ntokens = 1e12")),
        ("misspelt", with("gpus_per_node", "gpu_per_node")),
        ("no date", with("\"2026-05-01\"", "\"soon\"")),
        ("no such day", with("\"2026-05-01\"", "\"2026-02-30\"")),
        ("number for a date", with("2026-03-01T08:00:00+02:00", "20260301")),
        ("time without a date", with("2026-03-01T08:00:00+02:00", "08:00:00")),
        ("deadline before start", with("\"2026-05-01\"", "2026-01-01")),
        ("date without a start", with("start = 2026-03-01T08:00:00+02:00", "")),
        ("no unit", with("\"30min\"", "1800")),
        ("unknown unit", with("\"30min\"", "\"30minutes\"")),
        ("zero interval", with("\"30min\"", "\"0s\"")),
        (
            "interval twice",
            with("interval = \"30min\"", "interval = \"30min\"\ninterval_steps = 3"),
        ),
        ("no interval", with("interval = \"30min\"", "")),
        ("written too slowly", with("write = \"2min\"", "write = \"2h\"")),
        ("negative time", with("\"3s\"", "\"-3s\"")),
        ("unknown preset", with("llama3-405b", "llama3")),
        ("unknown rates", with("\"posterior\"", "\"drawn\"")),
        ("unknown slow preset", with("shared-roce", "shared-rocee")),
        ("unknown domain", with("\"rack\"", "\"racks\"")),
        ("no rate", with("mtbf = \"30h\"", "")),
        ("two rates", with("mtbf = \"30h\"", "mtbf = \"30h\"\ncount = 3")),
        ("zero time between", with("mtbf = \"30h\"", "mtbf = \"0h\"")),
        ("count without exposure", with("gpus = 4096\nduration = \"90d\"", "")),
        ("exposure without count", with("mtbf = \"30h\"", "mtbf = \"30h\"\ngpus = 5")),
        ("a job replaced", with("mtbf = \"30h\"", "mtbf = \"30h\"\nreplaces = true")),
        ("one name twice", with("\"leak\"", "\"software\"")),
        ("unknown policy", with("\"elastic\"", "\"elastik\"")),
        ("policy without its part", with("elastic = {", "#")),
        (
            "standby without one",
            with("policy = \"elastic\"", "policy = \"warm-standby\"")
                .replace("spares = 16", "spares = 0"),
        ),
        ("spares are nodes", with("spares = 16", "spares = 4096")),
        ("never repaired", with("repair = \"3d\"", "")),
        ("replicas do not divide", with("replicas = 16", "replicas = 7")),
        ("no restart", with("restart = \"8min\"", "")),
        (
            "fails and saves nothing",
            GOOD.split("[run.checkpoint]").next().unwrap().to_owned()
                + "[run.failures]\npreset = \"rsc-1\"\n[run.recovery]\nrestart = \"1min\"\n",
        ),
        ("amplitude", with("amplitude = 0.01", "amplitude = 1.5")),
        ("not a number", with("amplitude = 0.01", "amplitude = nan")),
        ("factors", with("[1.1, 1.3]", "[0.9, inf]")),
        ("no factors", with("[1.1, 1.3]", "[]")),
        ("negative onsets", with("per_unit_day = 0.001", "per_unit_day = -0.001")),
        ("no length", with("mean = \"10min\"", "")),
        (
            "several at once",
            with(steps, "steps = 0").replace("30min", "0s").replace("llama3-405b", "lama3"),
        ),
    ];
    let mut out = String::new();
    for (case, text) in &cases {
        let found = refused(text, &[]);
        assert_ne!(found, "possible", "{case} should be refused");
        let _ = writeln!(out, "## {case}\n{found}\n");
    }
    let _ = writeln!(
        out,
        "## set\n{}\n",
        refused(GOOD, &[("run.checkpoint.interval", "0s"), ("run.stps", "4")])
    );
    insta::assert_snapshot!("refusals", out);
}

#[test]
fn arguments_replace_keys() {
    let set = vec![
        ("run.steps".to_owned(), "12".to_owned()),
        ("run.checkpoint.interval".to_owned(), "15min".to_owned()),
        ("run.start".to_owned(), "2027-01-01".to_owned()),
        ("run.deadline".to_owned(), "60d".to_owned()),
    ];
    let options = ReadOptions { set, ..ReadOptions::default() };
    let plan = parse_run_plan(GOOD, &options, &RunDefaults::default()).unwrap();
    assert_eq!((plan.steps, plan.deadline_s), (12, Some(60.0 * 86_400.0)));
    assert_eq!(plan.checkpoint.unwrap().every, Every::Time(900.0));
    assert_eq!(plan.start.unwrap().to_string(), "2027-01-01T00:00:00Z");
}
