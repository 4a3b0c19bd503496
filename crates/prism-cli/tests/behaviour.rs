//! What holds of every command, whatever it prints.

mod common;

use std::path::Path;
use std::process::Stdio;

use common::{Folder, text};
use serde_json::Value;

const QUICK: [&str; 5] = ["--samples", "2000", "--bootstrap", "10", "-q"];

fn predict<'a>(input: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let mut all = vec!["predict", input];
    all.extend(QUICK);
    all.extend(more);
    all
}

#[test]
fn a_profile_predicts_what_its_trace_does() {
    let folder = Folder::with_job();
    folder.done(&["calibrate", "job.csv", "-o", "profile.json", "-qq"]);
    for more in [&["--json"][..], &["--json", "--draws", "parametric"]] {
        let mut from_trace = folder.json(&predict("job.csv", more));
        let mut from_profile = folder.json(&predict("profile.json", more));
        assert_eq!(from_trace["input"], "trace");
        assert_eq!(from_profile["input"], "profile");
        for output in [&mut from_trace, &mut from_profile] {
            let object = output.as_object_mut().unwrap();
            object.remove("input");
            object.remove("sources");
        }
        assert_eq!(from_trace, from_profile);
    }
}

#[test]
fn the_profile_is_the_same_in_a_file_and_on_standard_output() {
    let folder = Folder::with_job();
    folder.done(&["calibrate", "job.csv", "-o", "profile.json", "-qq"]);
    let file = folder.read("profile.json");
    assert_eq!(folder.done(&["calibrate", "job.csv", "--json"]), file);
    let output = folder.run(&["calibrate", "job.csv", "-o", "-"]);
    assert_eq!(text(&output.stdout), file);
    assert!(text(&output.stderr).contains("Effects in log time"), "the report steps aside");
}

#[test]
fn threads_and_instruction_sets_change_no_bit() {
    let folder = Folder::with_job();
    let expected = folder.done(&predict("job.csv", &["--json"]));
    for more in [
        ["--json", "--threads", "1"],
        ["--json", "--threads", "2"],
        ["--json", "--threads", "7"],
        ["--json", "--isa", "portable"],
    ] {
        assert_eq!(folder.done(&predict("job.csv", &more)), expected, "{more:?}");
    }
    assert_ne!(folder.done(&predict("job.csv", &["--json", "--seed", "2"])), expected);
}

#[test]
fn settings_come_from_the_environment_too() {
    let folder = Folder::with_job();
    let by_flag = folder.done(&predict("job.csv", &["--json", "--seed", "7"]));
    let mut command = folder.command(&predict("job.csv", &["--json"]));
    let output = command.env("PRISM_SEED", "7").env("PRISM_THREADS", "1").output().unwrap();
    assert_eq!(text(&output.stdout), by_flag);
    let mut command = folder.command(&predict("job.csv", &["--json", "--seed", "7"]));
    let output = command.env("PRISM_SEED", "8").output().unwrap();
    assert_eq!(text(&output.stdout), by_flag, "what is typed wins");
}

#[test]
fn standard_input_is_a_trace_or_a_profile() {
    let folder = Folder::with_job();
    folder.done(&["calibrate", "job.csv", "-o", "profile.json", "-qq"]);
    let expected = folder.json(&predict("job.csv", &["--json"]));
    let trace = folder.read("job.csv");
    let piped = folder
        .run_with_stdin(&predict("-", &["--json", "--meta", "job.meta.yaml"]), trace.as_bytes());
    let from_trace: Value = serde_json::from_slice(&piped.stdout).unwrap();
    let profile = folder.read("profile.json");
    let piped = folder.run_with_stdin(&predict("-", &["--json"]), profile.as_bytes());
    let from_profile: Value = serde_json::from_slice(&piped.stdout).unwrap();
    for key in ["quantiles", "mean", "sd", "histogram", "effects"] {
        assert_eq!(from_trace[key], expected[key], "{key}");
        assert_eq!(from_profile[key], expected[key], "{key}");
    }
    let piped = folder.run_with_stdin(&["replay", "-"], trace.as_bytes());
    assert_eq!(piped.status.code(), Some(2), "metadata cannot be beside standard input");
    assert!(text(&piped.stderr).contains("--meta"), "{}", text(&piped.stderr));
}

#[test]
fn a_requirement_decides_the_exit_code() {
    let folder = Folder::with_job();
    let p95 = folder.json(&predict("job.csv", &["--json"]))["quantiles"]
        .as_array()
        .unwrap()
        .iter()
        .find(|q| q["p"] == 0.95)
        .and_then(|q| q["value"].as_f64())
        .unwrap();
    let code = |requirement: &str| {
        let more = ["-q", "--require", requirement];
        let output = folder.run(&predict("job.csv", &more));
        assert!(output.stdout.is_empty() && output.stderr.is_empty(), "-qq is silent");
        output.status.code()
    };
    assert_eq!(code(&format!("p95<{:.6}s", p95 * 1.001)), Some(0));
    assert_eq!(code(&format!("p95<{:.6}s", p95 * 0.999)), Some(1));
    assert_eq!(code(&format!("p95>{:.6}ms", 1e3 * p95 * 0.999)), Some(0));
    let json = folder.run(&predict("job.csv", &["--json", "--require", "p90<1s"]));
    assert_eq!(json.status.code(), Some(1));
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["requirements"][0]["met"], false);
    assert_eq!(json["requirements"][0]["requirement"], "p90<1s");
}

#[test]
fn samples_are_those_that_were_summarised() {
    let folder = Folder::with_job();
    let report = folder.json(&predict("job.csv", &["--json", "-o", "samples.csv"]));
    let samples: Vec<f64> =
        folder.read("samples.csv").lines().skip(1).map(|l| l.parse().unwrap()).collect();
    assert_eq!(samples.len(), 2000);
    let mean = samples.iter().sum::<f64>() / 2000.0;
    assert!((mean - report["mean"]["value"].as_f64().unwrap()).abs() < 1e-9);
    let piped = folder.run(&predict("job.csv", &["-o", "-"]));
    assert_eq!(text(&piped.stdout), folder.read("samples.csv"));
    assert!(text(&piped.stderr).starts_with("Step time of job.csv"), "the report steps aside");
    folder.done(&predict("job.csv", &["-o", "samples.parquet"]));
    assert!(std::fs::read(folder.path().join("samples.parquet")).unwrap().starts_with(b"PAR1"));
}

#[test]
fn csv_holds_the_bits_of_json() {
    let folder = Folder::with_job();
    let json = folder.json(&predict("job.csv", &["--json"]));
    let csv = folder.done(&predict("job.csv", &["--format", "csv"]));
    let rows: Vec<Vec<&str>> = csv.lines().skip(1).map(|l| l.split(',').collect()).collect();
    let cell = |row: &[&str], i: usize| row[i].parse::<f64>().ok();
    let quantiles = json["quantiles"].as_array().unwrap();
    assert_eq!(rows.iter().filter(|r| r[0] == "quantile").count(), quantiles.len());
    for (row, q) in rows.iter().zip(quantiles) {
        assert_eq!(cell(row, 1), q["p"].as_f64());
        assert_eq!(cell(row, 2), q["value"].as_f64());
        assert_eq!(cell(row, 4), q["sampling"]["lower"].as_f64());
        assert_eq!(cell(row, 5), q["sampling"]["upper"].as_f64());
        assert_eq!(cell(row, 6), q["total"]["lower"].as_f64());
        assert_eq!(cell(row, 7), q["total"]["upper"].as_f64());
    }
    let mean = rows.iter().find(|r| r[0] == "mean").unwrap();
    assert_eq!(cell(mean, 2), json["mean"]["value"].as_f64());
}

#[test]
fn precision_draws_until_the_interval_is_narrow() {
    let folder = Folder::with_job();
    let args = ["predict", "job.csv", "--precision", "0.2%", "--bootstrap", "0", "-q", "--json"];
    let report = folder.json(&args);
    let p95 = report["quantiles"].as_array().unwrap().iter().find(|q| q["p"] == 0.95).unwrap();
    let number = |v: &Value| v.as_f64().unwrap();
    let half = 0.5 * (number(&p95["sampling"]["upper"]) - number(&p95["sampling"]["lower"]));
    assert!(half <= 0.002 * number(&p95["value"]), "{p95}");
    assert!(report["samples"].as_u64().unwrap() >= 4_096);
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let folder = Folder::with_job();
    folder.done(&["calibrate", "job.csv", "-o", "profile.json", "-qq"]);
    for args in [
        predict("profile.json", &[]),
        predict("profile.json", &["--json"]),
        vec![
            "predict",
            "profile.json",
            "--samples",
            "200000",
            "--bootstrap",
            "0",
            "-qq",
            "-o",
            "-",
        ],
        vec!["calibrate", "job.csv", "--json"],
        vec!["synth", "--plan", "microbatches=4", "--steps", "200", "-qq", "-o", "-"],
        vec!["schema", "profile"],
        vec!["man"],
        vec!["completions", "bash"],
        vec!["--help"],
    ] {
        let mut child = folder
            .command(&args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", text(&output.stderr));
        assert_eq!(text(&output.stderr), "", "{args:?}");
    }
}

#[test]
fn colours_follow_flag_environment_and_terminal() {
    let folder = Folder::with_job();
    let coloured = |more: &[&str], env: &[(&str, &str)]| {
        let mut args = vec!["replay", "job.csv", "-q"];
        args.extend(more);
        let mut command = folder.command(&args);
        command.envs(env.iter().copied());
        command.output().unwrap().stdout.contains(&0x1b)
    };
    assert!(!coloured(&[], &[]), "a pipe is no terminal");
    assert!(coloured(&["--color", "always"], &[("NO_COLOR", "1")]));
    assert!(coloured(&[], &[("CLICOLOR_FORCE", "1")]));
    assert!(!coloured(&[], &[("CLICOLOR_FORCE", "0")]));
    assert!(!coloured(&[], &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]));
    assert!(!coloured(&["--color", "never"], &[("CLICOLOR_FORCE", "1")]));
}

#[test]
fn incomplete_steps_are_dropped_only_when_allowed() {
    let folder = Folder::with_job();
    let trace = folder.read("job.csv");
    let cut: Vec<&str> = trace.lines().collect();
    folder.write("cut.csv", &format!("{}\n", cut[..cut.len() - 1].join("\n")));
    let meta = folder.read("job.meta.yaml");
    folder.write("cut.meta.yaml", &meta);
    let refused = folder.run(&["replay", "cut.csv"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("--allow-incomplete"), "{}", text(&refused.stderr));
    let replayed = folder.json(&["replay", "cut.csv", "--allow-incomplete", "--json"]);
    assert_eq!(replayed["steps_dropped"], serde_json::json!([59]));
    assert_eq!(replayed["reference"]["steps"].as_array().unwrap().len(), 59);
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let folder = Folder::empty();
    let make = |name: &str, seed: &str| {
        let plan = "dp=2,pp=2,microbatches=2";
        let effect = "microbatch=10%";
        folder.done(&[
            "synth", "--plan", plan, "--steps", "5", "--effect", effect, "--seed", seed, "-qq",
            "-o", name,
        ]);
        folder.read(name)
    };
    let first = make("a.csv", "1");
    assert_eq!(make("b.csv", "1"), first);
    assert_ne!(make("c.csv", "2"), first);
}

#[test]
fn a_report_in_a_file_is_the_report() {
    let folder = Folder::with_job();
    let report = folder.done(&["replay", "job.csv", "--per-step", "-q"]);
    assert_eq!(folder.done(&["replay", "job.csv", "--per-step", "-q", "-o", "r.txt"]), "");
    assert_eq!(folder.read("r.txt"), report);
    assert!(report.contains("Steps (reference)"));
}

/// Required keys of a schema must be in the output, and the output must have no key beside.
fn assert_keys(schema: &Value, output: &Value) {
    let known = schema["properties"].as_object().unwrap();
    for key in schema["required"].as_array().unwrap() {
        assert!(output.get(key.as_str().unwrap()).is_some(), "{key} is missing");
    }
    for key in output.as_object().unwrap().keys() {
        assert!(known.contains_key(key), "`{key}` is not in the schema");
    }
}

#[test]
fn committed_schemas_are_those_of_the_outputs() {
    let folder = Folder::with_job();
    let synth = ["synth", "--plan", "microbatches=2", "--steps", "3", "-o", "x.csv", "--json"];
    let whatif = [
        "whatif",
        "job.csv",
        "--json",
        "--scenario",
        "repack",
        "--samples",
        "200",
        "--bootstrap",
        "4",
    ];
    let explain = ["explain", "job.csv", "--json", "--samples", "200", "--path-samples", "20"];
    let job = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/llama-8b-fsdp.toml");
    std::fs::copy(job, folder.path().join("job.toml")).unwrap();
    let init = ["init", "--model", "llama-3.1-8b", "--gpus", "8", "--json", "-o", "x.toml"];
    let row = |i: u32| format!("{i},{}\n", 2.0 + 0.01 * f64::from(i % 7));
    folder.write("log.csv", &format!("step,step_s\n{}", (0..60).map(row).collect::<String>()));
    let run = [
        "run",
        "--step-time",
        "2s",
        "--steps",
        "100",
        "--gpus",
        "8",
        "--failures",
        "none",
        "--json",
        "--runs",
        "50",
    ];
    let outputs: [(&str, &[&str]); 17] = [
        ("run-profile", &["calibrate-run", "log.csv", "--json"]),
        ("run", &run),
        ("predict-job", &["predict", "job.toml", "--json", "--samples", "200"]),
        ("check", &["check", "job.toml", "--json"]),
        ("init", &init),
        ("presets", &["init", "--list", "gpus", "--json"]),
        ("replay", &["replay", "job.csv", "--json"]),
        ("profile", &["calibrate", "job.csv", "--json"]),
        ("predict", &["predict", "job.csv", "--json", "--bootstrap", "0"]),
        ("place", &["place", "job.csv", "--json", "--samples", "200"]),
        ("validate", &["validate", "job.csv", "--json", "--splits", "2", "--samples", "200"]),
        ("diff", &["diff", "job.csv", "job.csv", "--json", "--bootstrap", "0"]),
        ("synth", &synth),
        ("timeline", &["trace", "job.csv", "--json", "-o", "timeline.json"]),
        ("whatif-reference", &["whatif", "job.csv", "--json"]),
        ("whatif", &whatif),
        ("explain", &explain),
    ];
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schemas");
    for (name, args) in outputs {
        let file = committed.join(format!("{name}.json"));
        let schema = std::fs::read_to_string(&file).unwrap();
        let update = format!("`prism schema {name} > schemas/{name}.json` updates it");
        assert!(folder.done(&["schema", name]) == schema, "schemas/{name}.json is stale: {update}");
        let output = folder.json(args);
        let version = output["schema"].as_str().unwrap();
        assert_eq!(version, format!("prism.{name}/1"));
        assert_keys(&serde_json::from_str(&schema).unwrap(), &output);
    }
    let job = std::fs::read_to_string(committed.join("job.json")).unwrap();
    assert!(folder.done(&["schema", "job"]) == job, "schemas/job.json is stale");
}

#[test]
fn the_command_describes_itself() {
    let folder = Folder::empty();
    let version = folder.done(&["--version"]);
    assert_eq!(version, format!("prism {}\n", env!("CARGO_PKG_VERSION")));
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(folder.done(&["completions", shell]).contains("calibrate"), "{shell}");
    }
    assert!(folder.done(&["man"]).contains(".TH prism 1"));
    assert!(folder.done(&["man", "predict"]).contains("\\-\\-guarantee"));
}
