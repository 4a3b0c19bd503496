//! `prism calibrate-run`, `prism run`, `prism watch`.

mod common;

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use common::{Folder, text};

/// A log of a run: a level, a ripple of half a per cent, a stall, slower from a step on.
fn csv(level_s: f64, stall: usize, slower: Option<usize>) -> String {
    let mut out = "step,step_s\n".to_owned();
    // A plain generator of noise, so that the file is the same everywhere.
    let mut state = 12_345_u64 + stall as u64;
    for i in 0..200 {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let noise = (state >> 33) as f64 / f64::from(1_u32 << 31) - 0.5;
        let mut t = level_s * (1.0 + 0.01 * noise);
        if i == stall {
            t *= 1.5;
        }
        if slower.is_some_and(|s| i >= s) {
            t *= 1.1;
        }
        writeln!(out, "{i},{t:.5}").unwrap();
    }
    out
}

fn with_logs() -> Folder {
    let folder = Folder::empty();
    folder.write("a.csv", &csv(2.0, 60, None));
    folder.write("b.csv", &csv(2.004, 90, None));
    folder.write("slow.csv", &csv(2.002, 40, Some(120)));
    folder.done(&["calibrate-run", "a.csv", "b.csv", "-o", "profile.json", "-qq"]);
    folder
}

const PLAN: &str = r#"[run]
steps = 20_000
gpus = 1024
start = 2026-12-01T00:00:00Z
deadline = "20h"
gpu_hour_usd = 2.0

[run.checkpoint]
interval = "20min"
blocking = "5s"
write = "1min"
load = "30s"

[run.failures]
class = [{ name = "node", domain = "node", mtbf = "60d", replaces = true }]

[run.recovery]
detection = "1min"
restart = "5min"
repair = "1d"
spares = 8
"#;

#[test]
fn what_the_commands_print() {
    let folder = with_logs();
    folder.write("run.toml", PLAN);
    let mut all = String::new();
    all += &folder.transcript(&["calibrate-run", "a.csv", "b.csv"]);
    all +=
        &folder.transcript(&["watch", "slow.csv", "--profile", "profile.json", "--steps", "1000"]);
    let run =
        ["run", "profile.json", "--plan", "run.toml", "--runs", "400", "--analysis-runs", "40"];
    all += &folder.transcript(&run);
    all += &folder.transcript(&[&run[..], &["--analyse", "all", "--format", "markdown"]].concat());
    insta::assert_snapshot!("run", all);
}

#[test]
fn wrong_questions_have_answers() {
    let folder = with_logs();
    folder.write("run.toml", PLAN);
    folder.write("short.csv", "step,step_s\n1,2\n2,2.1\n");
    folder.write("mixed.csv", "step,step_s,system\n1,2,x\n2,2,x\n1,2,y\n2,2,y\n");
    folder.write("profile-9.json", "{\"schema\": \"prism.run-profile/9\"}");
    folder.write("none.json", "{\"schema\": \"prism.place/1\"}");
    let bad = PLAN.replace("steps = 20_000", "steps = 0").replace("\"5s\"", "\"-5s\"");
    folder.write("bad.toml", &bad);
    let questions: [&[&str]; 13] = [
        &["calibrate-run", "short.csv"],
        &["calibrate-run", "mixed.csv"],
        &["calibrate-run", "mixed.csv", "--system", "z"],
        &["calibrate-run", "a.csv", "--prior", "nowhere"],
        &["calibrate-run", "a.csv", "b.csv", "--fit-prior"],
        &["calibrate-run", "a.csv", "b.csv", "--cross-validate"],
        &["run", "profile-9.json", "--plan", "run.toml"],
        &["run", "none.json", "--plan", "run.toml"],
        &["run", "profile.json"],
        &["run", "profile.json", "--plan", "bad.toml"],
        &["run", "profile.json", "--plan", "run.toml", "--failures", "llama"],
        &["run", "profile.json", "--plan", "run.toml", "--throughput-above", "1e6tokens/s"],
        &["watch", "mixed.csv", "--profile", "profile.json"],
    ];
    let mut all = String::new();
    for question in questions {
        let output = folder.run(question);
        assert_eq!(output.status.code(), Some(2), "{question:?}");
        all += &folder.transcript(question);
    }
    insta::assert_snapshot!("wrong-runs", all);
}

#[test]
fn bounds_decide_the_exit_code() {
    let folder = with_logs();
    folder.write("run.toml", PLAN);
    let code = |args: &[&str]| folder.run(args).status.code();
    let run = ["run", "profile.json", "--plan", "run.toml", "--runs", "200", "-qq", "--require"];
    assert_eq!(code(&[&run[..], &["p95<10d"]].concat()), Some(0));
    assert_eq!(code(&[&run[..], &["mean<1h"]].concat()), Some(1));
    assert_eq!(code(&[&run[..], &["ettr>0.999"]].concat()), Some(1));
    assert_eq!(code(&[&run[..], &["done>0.01"]].concat()), Some(0));
    let watch = ["watch", "slow.csv", "--profile", "profile.json", "-qq", "--require"];
    assert_eq!(code(&[&watch[..], &["p95<2.1s"]].concat()), Some(1));
    assert_eq!(code(&[&watch[..], &["p95<2.5s"]].concat()), Some(0));
}

#[test]
fn a_restarted_log_is_one_run() {
    let folder = with_logs();
    let mut log = String::new();
    let line = |i: u32| {
        format!(" iteration {i:8}/ 400 | elapsed time per iteration (ms): {}.0 |\n", 2_000 + i % 7)
    };
    (1..=120).for_each(|i| log += &line(i));
    // The lines of a new start were not kept: the counter tells.
    log += "Traceback (most recent call last):\n";
    (101..=200).for_each(|i| log += &line(i));
    folder.write("again.log", &log);
    let output = folder.run(&["calibrate-run", "again.log", "--json"]);
    assert!(
        text(&output.stderr).contains("started anew at step 101: 20 steps"),
        "{}",
        text(&output.stderr)
    );
    let profile: serde_json::Value = serde_json::from_str(&text(&output.stdout)).unwrap();
    let runs = profile["evidence"]["runs"].as_array().unwrap();
    assert_eq!((runs.len(), runs[0]["steps"].as_u64()), (1, Some(200)));
    let end = folder.done(&["watch", "again.log", "--profile", "profile.json", "--json", "-q"]);
    let last: serde_json::Value = serde_json::from_str(end.lines().last().unwrap()).unwrap();
    assert_eq!(last["run"]["steps"], 200);
}

#[test]
fn running_totals_are_told_from_times() {
    let folder = with_logs();
    let mut total = 0.0;
    let mut log = "step,elapsed_ms\n".to_owned();
    for i in 1..60 {
        total += 2_000.0 + f64::from(i % 5);
        writeln!(log, "{i},{total}").unwrap();
    }
    folder.write("total.csv", &log);
    let wrong = |args: &[&str]| {
        let output = folder.run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        text(&output.stderr)
    };
    assert!(wrong(&["calibrate-run", "total.csv"]).contains("--cumulative"));
    assert!(wrong(&["calibrate-run", "a.csv", "--cumulative"]).contains("no running total"));
    let profile = folder.json(&["calibrate-run", "total.csv", "--cumulative", "--json", "-q"]);
    let level = profile["evidence"]["runs"][0]["level_s"].as_f64().unwrap();
    assert!((level - 2.002).abs() < 1e-3, "{level}");
    let profile =
        folder.json(&["calibrate-run", "total.csv", "--cumulative=false", "--json", "-q"]);
    assert!(profile["evidence"]["runs"][0]["level_s"].as_f64().unwrap() > 10.0);
    // Nothing that was read is written over.
    let before = folder.read("a.csv");
    assert!(
        wrong(&["calibrate-run", "a.csv", "b.csv", "-o", "a.csv"]).contains("files that are read")
    );
    assert_eq!(folder.read("a.csv"), before);
    assert!(wrong(&["calibrate-run", "a.csv", "a.csv"]).contains("the same steps"));
}

#[test]
fn runs_that_never_end_meet_no_bound() {
    let folder = with_logs();
    let plan =
        PLAN.replace("mtbf = \"60d\"", "mtbf = \"2h\"").replace("steps = 20_000", "steps = 2_000");
    folder.write("never.toml", &plan);
    let args =
        ["run", "profile.json", "--plan", "never.toml", "--runs", "20", "--require", "p95<400d"];
    let output = folder.run(&args);
    assert_eq!(output.status.code(), Some(1));
    let seen = text(&output.stdout) + &text(&output.stderr);
    assert!(seen.contains("lower bound") && seen.contains("given up"), "{seen}");
    let last = args.len() - 1;
    let from_below = [&args[..last], &["p95>10s"]].concat();
    assert_eq!(folder.run(&from_below).status.code(), Some(0));
    // What is not the run's is not swallowed.
    let foreign = ["run", "--step-time", "2s", "--plan", "never.toml", "--set", "rum.spares=3"];
    assert_eq!(folder.run(&foreign).status.code(), Some(2));
}

#[test]
fn events_are_lines_of_json() {
    let folder = with_logs();
    let out = folder.done(&["watch", "slow.csv", "--profile", "profile.json", "--json", "-q"]);
    let lines: Vec<serde_json::Value> =
        out.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let kinds: Vec<&str> = lines.iter().filter_map(|l| l["kind"].as_str()).collect();
    assert!(kinds.contains(&"slower") && kinds.contains(&"stall"), "{kinds:?}");
    let slower = lines.iter().find(|l| l["kind"] == "slower").unwrap();
    assert!((118..=122).contains(&slower["step"].as_i64().unwrap()), "{slower}");
    let last = lines.last().unwrap();
    assert_eq!(
        (last["type"].as_str(), last["run"]["steps"].as_u64()),
        (Some("summary"), Some(200))
    );
    assert!(lines.iter().all(|l| l["schema"] == "prism.watch/1"));
    let schema = std::fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schemas/watch.json"),
    );
    assert!(folder.done(&["schema", "watch"]) == schema.unwrap(), "schemas/watch.json is stale");
}

#[test]
fn a_growing_log_is_followed() {
    let folder = with_logs();
    let whole = csv(2.002, 40, Some(120));
    let (first, rest) = whole.split_at(1_000);
    folder.write("live.csv", first);
    let mut args =
        vec!["watch", "live.csv", "--profile", "profile.json", "--follow", "--idle", "2s"];
    args.extend(["--json", "-q"]);
    let child = folder
        .command(&args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    for part in rest.as_bytes().chunks(700) {
        std::thread::sleep(Duration::from_millis(60));
        let file = std::fs::OpenOptions::new().append(true).open(folder.path().join("live.csv"));
        file.unwrap().write_all(part).unwrap();
    }
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let events = |out: &str| -> Vec<String> {
        out.lines().filter(|l| l.contains("\"type\":\"event\"")).map(str::to_owned).collect()
    };
    let followed = events(&text(&output.stdout));
    let read = folder.done(&["watch", "slow.csv", "--profile", "profile.json", "--json", "-q"]);
    assert_eq!(followed, events(&read));
    assert!(!followed.is_empty());
    // Through a pipe, the same.
    let args = ["watch", "-", "--profile", "profile.json", "--follow", "--json", "-q"];
    let piped = folder.run_with_stdin(&args, whole.as_bytes());
    assert_eq!(events(&text(&piped.stdout)), followed);
}

#[test]
fn a_log_is_held_against_a_prediction() {
    let folder = Folder::empty();
    let job = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/llama-8b.toml");
    std::fs::copy(job, folder.path().join("job.toml")).unwrap();
    let predicted = folder.json(&["predict", "job.toml", "--json", "-q"]);
    let step_s = predicted["over_clusters"]["mean_s"].as_f64().unwrap();
    folder.write("predicted.json", &predicted.to_string());
    folder.write("as.csv", &csv(step_s, 60, Some(130)));
    folder.write("other.csv", &csv(3.0 * step_s, 60, None));
    for profile in ["job.toml", "predicted.json"] {
        let out = folder.done(&["watch", "as.csv", "--profile", profile, "--json", "-q"]);
        let lines: Vec<serde_json::Value> =
            out.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        let slower = lines.iter().find(|l| l["kind"] == "slower").unwrap();
        assert!((126..=134).contains(&slower["step"].as_i64().unwrap()), "{profile}: {slower}");
        // A cost model that is right is not called wrong; one of another job is.
        assert!(!lines.iter().any(|l| l["kind"] == "level"), "{profile}: {out}");
        let other = folder.run(&["watch", "other.csv", "--profile", profile]);
        assert!(text(&other.stdout).contains(" level "), "{}", text(&other.stdout));
        assert!(text(&other.stderr).contains("another job"), "{}", text(&other.stderr));
    }
}

#[cfg(unix)]
#[test]
fn a_watch_waits_survives_rotation_and_ends_with_its_summary() {
    let folder = with_logs();
    let args = ["watch", "later.csv", "--profile", "profile.json", "--follow", "--json"];
    let child = folder
        .command(&args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pause = || std::thread::sleep(Duration::from_millis(900));
    pause();
    let whole = csv(2.0, 60, None);
    folder.write("later.csv", &(whole.clone() + "201,nan\nTraceback (most recent call last):\n"));
    pause();
    // Another file of the same name, as logs are rotated.
    std::fs::rename(folder.path().join("later.csv"), folder.path().join("later.old")).unwrap();
    folder.write("later.csv", &whole);
    pause();
    let signalled =
        std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(signalled.unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    let last: serde_json::Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
    assert_eq!(
        (last["interrupted"].as_bool(), last["run"]["steps"].as_u64()),
        (Some(true), Some(400))
    );
    assert!(err.contains("left out") && err.contains("replaced"), "{err}");
}

#[test]
fn flags_say_how_a_log_is_read() {
    let folder = with_logs();
    let mut odd = "iteration,job,took_us\n".to_owned();
    let mut titan = String::new();
    for i in 0..60 {
        writeln!(odd, "{i},x,{}", 2_000_000 + 1_000 * (i % 7)).unwrap();
        let stamp = format!("2026-01-02 03:{:02}:{:02},000", (2 * i) / 60, (2 * i) % 60);
        let tps = 4_096 - (i % 5);
        writeln!(titan, "[titan] {stamp} - root - INFO - step: {}  loss: 8.0  tps: {tps}", i + 1)
            .unwrap();
    }
    folder.write("odd.csv", &odd);
    folder.write("titan.log", &titan);
    let level = |args: &[&str]| -> f64 {
        let profile = folder.json(&[&["calibrate-run", "--json", "-q"], args].concat());
        profile["evidence"]["runs"][0]["level_s"].as_f64().unwrap()
    };
    let read =
        ["odd.csv", "--time-column", "took_us:us", "--system-columns", "job", "--system", "x"];
    assert!((level(&read) - 2.003).abs() < 2e-3);
    // By tokens, and by the log's clock.
    assert!((level(&["titan.log", "--tokens-per-gpu-step", "8192"]) - 2.001).abs() < 1e-3);
    assert!((level(&["titan.log", "--log-format", "torchtitan"]) - 2.0).abs() < 1e-6);
    let output = folder.run(&["calibrate-run", "odd.csv"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--time-column"), "{}", text(&output.stderr));
}

#[test]
fn steps_worlds_apart_are_an_error() {
    let folder = with_logs();
    let far = csv(2.0, 60, None).replace("\n150,", "\n1700000000000,");
    // What follows the jump goes on from it.
    let far: String = far.lines().take(152).fold(String::new(), |all, l| all + l + "\n");
    folder.write("far.csv", &far);
    let output = folder.run(&["calibrate-run", "far.csv"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("from 0 to 1700000000000"), "{}", text(&output.stderr));
}

#[test]
fn the_plan_in_the_help_is_one() {
    let folder = with_logs();
    let help = folder.done(&["run", "--help"]);
    let plan = help.split("says at least:").nth(1).unwrap().split("All keys").next().unwrap();
    folder.write("least.toml", plan);
    let out = folder.json(&[
        "run",
        "profile.json",
        "--plan",
        "least.toml",
        "--runs",
        "20",
        "--json",
        "-q",
    ]);
    assert_eq!(out["setting"]["gpus"], 16_384);
}

#[test]
fn dates_costs_and_rates_agree() {
    let folder = with_logs();
    // 2 s a step, 20,000 steps and nothing else: 40,000 s on 1,024 GPUs at 2 USD an hour.
    folder.write(
        "plain.toml",
        "[run]\nsteps = 20_000\ngpus = 1024\nstart = 2026-12-01T00:00:00Z\ndeadline = 2026-12-01T12:00:00Z\n\
         gpu_hour_usd = 2.0\n",
    );
    let args =
        ["run", "--step-time", "2s", "--plan", "plain.toml", "--runs", "2000", "--json", "-q"];
    let more = ["--throughput-above", "49000steps/d", "--throughput-above", "40000steps/d"];
    let out = folder.json(&[&args[..], &more].concat());
    let at = |pointer: &str| out.pointer(pointer).unwrap().as_f64().unwrap();
    // Half of the runs take less than the prior's stalls make of it: the median is within 0.2 %.
    let median = at("/summary/total_s/quantiles/1/value");
    assert!((median / 40_000.0 - 1.0).abs() < 2e-3, "{median}");
    let hours = at("/summary/gpu_hours/mean/value");
    assert!((at("/summary/cost_usd/mean/value") / (2.0 * hours) - 1.0).abs() < 1e-12);
    assert!((hours / (1_024.0 * at("/summary/total_s/mean/value") / 3_600.0) - 1.0).abs() < 1e-12);
    assert_eq!(at("/summary/done_by/time_s"), 43_200.0);
    assert!(at("/summary/done_by/probability/value") > 0.98);
    // 43,200 steps a day is the pace: above 49,000 is out of reach, 40,000 is not.
    assert!(at("/throughput/0/probability/value") < 0.02);
    assert!(at("/throughput/1/probability/value") > 0.98);
    let done = out["done_at"][1]["at"].as_str().unwrap();
    assert!(done.starts_with("2026-12-01T11:0"), "{done}");
}

#[test]
fn seeds_and_threads() {
    let folder = with_logs();
    folder.write("run.toml", PLAN);
    let run = |more: &[&str]| {
        let args = ["run", "profile.json", "--plan", "run.toml", "--runs", "300", "--json", "-q"];
        folder.done(&[&args[..], more].concat())
    };
    let one = run(&["--threads", "1"]);
    assert_eq!(one, run(&["--threads", "3"]));
    assert_ne!(one, run(&["--seed", "2"]));
}

#[test]
fn a_prior_of_ones_own_logs() {
    let folder = Folder::empty();
    for system in 0..4 {
        std::fs::create_dir(folder.path().join(format!("job{system}"))).unwrap();
        for run in 0..2_u32 {
            let level = f64::from(3 + system) * (1.0 + 0.002 * f64::from(run * (system + 1)));
            let stall = 30 + 20 * run as usize + system as usize;
            folder.write(&format!("job{system}/{run}.csv"), &csv(level, stall, None));
        }
    }
    let logs: Vec<String> = (0..8).map(|i| format!("job{}/{}.csv", i / 2, i % 2)).collect();
    let logs: Vec<&str> = logs.iter().map(String::as_str).collect();
    folder.done(&[&["calibrate-run", "--fit-prior", "-o", "own.json", "-qq"], &logs[..]].concat());
    let own: serde_json::Value = serde_json::from_str(&folder.read("own.json")).unwrap();
    assert_eq!((own["systems"].as_u64(), own["runs"].as_u64()), (Some(4), Some(8)));
    assert_eq!(own["name"], "own");
    let profile =
        folder.json(&["calibrate-run", logs[0], logs[1], "--prior", "own.json", "--json", "-q"]);
    assert_eq!(profile["prior"]["name"], "own");
    let args = [&["calibrate-run", "--cross-validate", "--json", "-q"], &logs[..]].concat();
    let crossed = folder.json(&args);
    assert_eq!(crossed["result"]["runs"].as_array().unwrap().len(), 8);
}

#[test]
fn a_job_files_run_uses_its_section() {
    let folder = Folder::empty();
    let job = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/llama-8b.toml");
    let plan = PLAN.replace("gpus = 1024\n", "").replace("spares = 8", "spares = 2");
    folder.write("job.toml", &(std::fs::read_to_string(job).unwrap() + "\n" + &plan));
    let out = folder.json(&["run", "job.toml", "--runs", "50", "--json", "-q"]);
    assert_eq!(out["setting"]["steps"], 20_000);
    let set = ["run", "job.toml", "--runs", "50", "--json", "-q", "--set", "run.steps=10"];
    assert_eq!(folder.json(&set)["setting"]["steps"], 10);
    // What was predicted of its steps is what predict says.
    folder.done(&["predict", "job.toml", "--json", "-q", "-o", "predicted.json"]);
    folder.write("run.toml", PLAN);
    let args = ["run", "predicted.json", "--plan", "run.toml", "--runs", "50", "--json", "-q"];
    let output = folder.run(&["run", "run.toml"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--plan run.toml"), "{}", text(&output.stderr));
    let from_prediction = folder.json(&args);
    assert_eq!(from_prediction["setting"]["core_s"], out["setting"]["core_s"]);
}
