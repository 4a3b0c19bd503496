//! Planned jobs: `prism init`, `prism check`, `prism predict job.toml`.

mod common;

use std::path::Path;

use common::{Folder, text};
use serde_json::Value;

/// A small pipelined job.
const JOB: &str = r#"schema = "prism.job/1"

[model]
preset = "llama-3.1-8b"

[training]
seq_len = 4096
global_batch_size = 64

[parallelism]
tensor_parallel_degree = 2
pipeline_parallel_degree = 2
pipeline_parallel_schedule = "1f1b"

[cluster]
preset = "h100-dgx"
gpus = 32

[variability]
preset = "dedicated"
"#;

const HF: &str = r#"{"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32,
  "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
  "vocab_size": 128256, "max_position_embeddings": 131072, "tie_word_embeddings": false}"#;

const MEGATRON: &str = "torchrun pretrain_gpt.py --num-layers 32 --hidden-size 4096 \
  --num-attention-heads 32 --seq-length 4096 --max-position-embeddings 4096 \
  --micro-batch-size 1 --global-batch-size 512 --tensor-model-parallel-size 4 \
  --pipeline-model-parallel-size 2 --bf16 --use-distributed-optimizer --sequence-parallel \
  --lr 1e-4 --swiglu --vocab-size 32000\n";

fn with_job() -> Folder {
    let folder = Folder::empty();
    folder.write("job.toml", JOB);
    folder
}

macro_rules! snapshot {
    ($name:literal, $folder:expr, $($args:expr),+) => {{
        let all: Vec<String> = vec![$($folder.transcript(&$args)),+];
        insta::assert_snapshot!($name, all.join("\n"));
    }};
}

#[test]
fn predict() {
    let folder = with_job();
    let few = ["--samples", "4096", "--clusters", "8"];
    let asked =
        [&["predict", "job.toml", "--require", "p95<1ms", "--require", "mean<9s"][..], &few];
    let clusters =
        [&["predict", "job.toml", "--over", "clusters", "--format", "markdown", "-q"][..], &few];
    let set = ["predict", "job.toml", "--set", "variability.preset=lemon", "--format", "csv"];
    let set = [&set[..], &few].concat();
    let none = ["predict", "job.toml", "--set", "variability.preset=none", "--samples", "1000"];
    snapshot!("predict", folder, asked.concat(), clusters.concat(), set, none);
}

#[test]
fn check() {
    let folder = with_job();
    snapshot!(
        "check",
        folder,
        ["check", "job.toml"],
        ["check", "job.toml", "--format", "csv", "-q", "--set", "parallelism.recompute=full"],
        [
            "check",
            "job.toml",
            "--set",
            "model.preset=llama-3.1-70b",
            "--set",
            "training.seq_len=32768"
        ]
    );
}

#[test]
fn init() {
    let folder = Folder::empty();
    folder.write("config.json", HF);
    folder.write("train.sh", MEGATRON);
    let written = folder.transcript(&["init", "--model", "llama-3.1-70b", "--gpus", "512"]);
    let text = folder.read("job.toml");
    insta::assert_snapshot!("init", format!("{written}\n$ cat job.toml\n{text}"));
    snapshot!(
        "init-import",
        folder,
        ["init", "--from", "hf:config.json", "-o", "-"],
        ["init", "--from", "hf:config.json", "--gpus", "64", "-o", "hf.toml"],
        ["init", "--from", "megatron:train.sh", "-o", "megatron.toml"],
        [
            "init",
            "--from",
            "megatron:train.sh",
            "--gpus",
            "64",
            "--cluster",
            "a100-dgx",
            "-o",
            "-",
            "-q"
        ],
        ["init", "--list", "variabilities"]
    );
}

#[test]
fn what_is_wrong_is_shown_where_it_is() {
    let folder = with_job();
    let bad = JOB
        .replace("tensor_parallel_degree = 2", "tensor_parallel_degree = 7")
        .replace("global_batch_size", "global_batchsize");
    folder.write("misspelt.toml", &bad);
    folder.write("infeasible.toml", &JOB.replace("degree = 2\npipe", "degree = 3\npipe"));
    folder.write("open.toml", &JOB.replace("\"h100-dgx\"", "\"h100-dgx"));
    folder.write("empty.toml", "");
    snapshot!(
        "wrong-jobs",
        folder,
        ["check", "misspelt.toml"],
        ["check", "infeasible.toml"],
        ["check", "infeasible.toml", "--json", "-qq"],
        ["predict", "infeasible.toml"],
        ["predict", "job.toml", "--set", "parallelism.pipeline_parallel_degree=3"],
        ["predict", "job.toml", "--set", "cluster.preset=h10-dgx"],
        ["check", "open.toml"],
        ["check", "empty.toml"],
        ["check", "missing.toml"],
        ["predict", "missing.toml"]
    );
}

#[test]
fn what_cannot_be_asked_of_a_job() {
    let folder = with_job();
    folder.write("prose.txt", "once upon a time\nthere was a job\n");
    folder.write("config.json", HF);
    snapshot!(
        "wrong-job-questions",
        folder,
        ["predict", "job.toml", "--guarantee", "q=0.95,conf=0.95"],
        ["predict", "job.toml", "--model", "iid"],
        ["predict", "job.toml", "--draws", "parametric"],
        ["predict", "job.toml", "--pp", "4"],
        ["predict", "job.toml", "--set", "nonsense"],
        ["predict", "job.toml", "--samples", "10"],
        ["predict", "prose.txt"],
        ["explain", "job.toml"],
        ["init"],
        ["init", "--model", "llama-3.1-70b"],
        ["init", "--model", "llama-3.1-7b", "--gpus", "8", "-o", "x.toml"],
        ["init", "--model", "llama-3.1-8b", "--gpus", "8", "--cluster", "h10", "-o", "x.toml"],
        ["init", "--model", "llama-3.1-8b", "--gpus", "8"],
        ["init", "--model", "llama-3.1-405b", "--gpus", "8", "-o", "x.toml"],
        ["init", "--model", "gpt3-175b", "--gpus", "64", "--pp", "7", "-o", "x.toml"],
        ["init", "--model", "gpt3-175b", "--gpus", "63", "--tp", "7", "--pp", "9", "-o", "x.toml"],
        ["init", "--from", "config.json"],
        ["init", "--from", "hf:prose.txt", "-o", "x.toml"],
        ["init", "--from", "megatron:missing.sh", "-o", "x.toml"],
        ["init", "--from", "hf:config.json", "--tp", "2", "-o", "x.toml"]
    );
}

fn p95(output: &Value) -> f64 {
    let quantiles = output["steps"]["quantiles"].as_array().unwrap();
    quantiles.iter().find(|q| q["p"] == 0.95).unwrap()["value_s"].as_f64().unwrap()
}

/// A job is told by its name or its content, from a file or from standard input.
#[test]
fn a_job_is_recognised_whatever_it_is_called() {
    let folder = with_job();
    folder.write("job.txt", JOB);
    let quick = ["--json", "-q", "--samples", "2000", "--clusters", "4"];
    let named = folder.json(&[&["predict", "job.toml"][..], &quick].concat());
    let content = folder.json(&[&["predict", "job.txt"][..], &quick].concat());
    let piped = folder.run_with_stdin(&[&["predict", "-"][..], &quick].concat(), JOB.as_bytes());
    let piped: Value = serde_json::from_slice(&piped.stdout).unwrap();
    assert_eq!(p95(&named), p95(&content));
    assert_eq!(p95(&named), p95(&piped));
    let checked = folder.run_with_stdin(&["check", "-", "-qq"], JOB.as_bytes());
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked.stderr));
}

#[test]
fn results_depend_on_the_seed_and_not_on_threads() {
    let folder = with_job();
    let run = |more: &[&str]| {
        let quick = ["predict", "job.toml", "--json", "-q", "--samples", "2000", "--clusters", "4"];
        folder.json(&[&quick[..], more].concat())
    };
    assert_eq!(run(&["--threads", "1"]), run(&["--threads", "2"]));
    assert_ne!(p95(&run(&[])), p95(&run(&["--seed", "2"])));
}

/// `--set` is recorded, and means what the same edit of the file means.
#[test]
fn a_set_key_is_the_same_as_an_edit() {
    let folder = with_job();
    folder.write("edited.toml", &JOB.replace("gpus = 32", "gpus = 64"));
    let quick = ["--json", "-q", "--samples", "2000", "--clusters", "4"];
    let set = ["predict", "job.toml", "--set", "cluster.gpus=64"];
    let set = folder.json(&[&set[..], &quick].concat());
    let edited = folder.json(&[&["predict", "edited.toml"][..], &quick].concat());
    assert_eq!(set["set"], serde_json::json!(["cluster.gpus=64"]));
    assert_eq!(edited["set"], serde_json::json!([]));
    assert_eq!(set["steps"], edited["steps"]);
    assert_eq!(set["job"], edited["job"]);
}

/// Brute force agrees with the shortcut within the sampling error of both.
#[test]
fn brute_force_agrees() {
    let folder = with_job();
    let quick = ["predict", "job.toml", "--json", "-q", "--samples", "16384", "--clusters", "4"];
    let fast = folder.json(&quick);
    let brute = folder.json(&[&quick[..], &["--brute-force"]].concat());
    assert!(brute["steps"]["method"].as_str().unwrap().contains("simulated together"));
    // The p95 of at least 2,048 steps of s.d. 1.2 % lies within 4 x 0.012 x 2.1 / sqrt(2048).
    assert!((p95(&fast) / p95(&brute) - 1.0).abs() < 2.3e-3, "{} {}", p95(&fast), p95(&brute));
}

#[test]
fn the_result_goes_to_a_file_in_the_form_asked_for() {
    let folder = with_job();
    let args = ["predict", "job.toml", "--samples", "1000", "--json", "-o", "out.json", "-q"];
    assert_eq!(folder.done(&args), "");
    let output: Value = serde_json::from_str(&folder.read("out.json")).unwrap();
    assert_eq!(output["schema"], "prism.predict-job/1");
    assert_eq!(folder.done(&["check", "job.toml", "-o", "check.txt", "-q"]), "");
    assert!(folder.read("check.txt").contains("possible, fits"));
}

/// Exit codes and all violations for programs.
#[test]
fn impossible_plans_answer_no_and_broken_files_are_errors() {
    let folder = with_job();
    let code = |args: &[&str]| folder.run(args).status.code();
    let tp = |n: u32| format!("parallelism.tensor_parallel_degree={n}");
    assert_eq!(code(&["check", "job.toml"]), Some(0));
    assert_eq!(code(&["check", "job.toml", "--set", &tp(7)]), Some(1));
    assert_eq!(code(&["check", "job.toml", "--set", "parallelism.tp=2"]), Some(2));
    assert_eq!(code(&["predict", "job.toml", "--set", &tp(7)]), Some(2));
    let run = folder.run(&["check", "job.toml", "--set", &tp(7), "--json"]);
    let output: Value = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!(output["possible"], false);
    assert!(output["violations"].as_array().unwrap().len() >= 2);
    assert!(!output["nearest_plans"].as_array().unwrap().is_empty());
    assert!(output["job"].is_null());
}

#[test]
fn init_overwrites_only_by_force_and_its_files_are_possible() {
    let folder = Folder::empty();
    let args = ["init", "--model", "mixtral-8x7b", "--gpus", "64", "-q"];
    folder.done(&args);
    let first = folder.read("job.toml");
    assert_eq!(folder.run(&args).status.code(), Some(2));
    folder.done(&[&args[..], &["--force", "--variability", "moe"]].concat());
    assert_ne!(first, folder.read("job.toml"));
    let output = folder.json(&["check", "job.toml", "--json", "-q"]);
    assert_eq!((&output["possible"], &output["fits"]), (&Value::Bool(true), &Value::Bool(true)));
    let piped = folder.done(&["init", "--model", "gpt3-175b", "--gpus", "512", "-o", "-", "-q"]);
    folder.write("piped.toml", &piped);
    folder.done(&["check", "piped.toml", "-qq"]);
}

/// Escape codes only where colour is wanted.
#[test]
fn errors_are_coloured_like_everything_else() {
    let folder = with_job();
    let bad = ["check", "job.toml", "--set", "parallelism.tensor_parallel_degree=7"];
    let plain = text(&folder.run(&bad).stderr);
    assert!(!plain.contains('\u{1b}'));
    let coloured = folder.command(&bad).env("CLICOLOR_FORCE", "1").output().unwrap();
    assert!(text(&coloured.stderr).contains('\u{1b}'));
    let both = folder.command(&bad).env("CLICOLOR_FORCE", "1").env("NO_COLOR", "1").output();
    assert!(!text(&both.unwrap().stderr).contains('\u{1b}'));
}

/// Every example can be checked and predicted.
#[test]
fn the_examples_are_possible_and_fit() {
    let folder = Folder::empty();
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut seen = 0;
    for entry in std::fs::read_dir(examples).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "toml") {
            let path = path.to_str().unwrap();
            if path.ends_with("run.toml") {
                // The plan of a run, without a job.
                let run = ["run", "--step-time", "10s", "--plan", path, "--runs", "20"];
                folder.done(
                    &[&run[..], &["--analysis-runs", "20", "--analyse", "all", "-qq"]].concat(),
                );
                continue;
            }
            folder.done(&["check", path, "-qq"]);
            folder.done(&["predict", path, "-qq", "--clusters", "2"]);
            seen += 1;
        }
    }
    assert!(seen >= 4, "{seen}");
}
