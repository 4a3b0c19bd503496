//! Decisions on job files: good and bad questions, as they are seen.

mod common;

use common::{Folder, text};

const JOB: &str = include_str!("../../../examples/llama-8b.toml");
const QUICK: [&str; 3] = ["--samples", "1000", "-q"];

fn folder() -> Folder {
    let folder = Folder::empty();
    folder.write("job.toml", JOB);
    folder
}

fn quick<'a>(args: &[&'a str]) -> Vec<&'a str> {
    [args, &QUICK].concat()
}

macro_rules! snapshot {
    ($name:literal, $folder:expr, $($args:expr),+) => {{
        let all: Vec<String> = vec![$($folder.transcript(&$args)),+];
        insta::assert_snapshot!($name, all.join("\n"));
    }};
}

#[test]
fn whatif() {
    let folder = folder();
    snapshot!(
        "whatif",
        folder,
        [
            "whatif",
            "job.toml",
            "--samples",
            "1000",
            "--scenario",
            "slow: slow-node x1.2 dp=0 stage=last",
            "--scenario",
            "repack over=step"
        ],
        quick(&["whatif", "job.toml", "--scenario", "slow-link x3 stage=0", "--format", "csv"]),
        ["whatif", "job.toml"],
        ["whatif", "job.toml", "--scenario", "scale x2 stage=7"],
        ["whatif", "job.toml", "--scenario", "scale x2", "--bootstrap", "20"],
        ["whatif", "job.toml", "--scenario", "scale x2", "--meta", "meta.yaml"],
        ["whatif", "job.toml", "--scenario", "scale x2", "--set", "parallelism.zero_stage=5"],
        ["whatif", "job.toml", "--scenario", "scale x2", "--replicas", "9"],
        ["whatif", "missing.toml", "--scenario", "scale x2"]
    );
}

#[test]
fn explain() {
    let folder = folder();
    let set = ["--set", "variability.preset=sequence-imbalance"];
    let mut asked = vec!["explain", "job.toml", "--samples", "400", "--path-samples", "40"];
    asked.extend(set);
    snapshot!(
        "explain",
        folder,
        asked,
        ["explain", "job.toml", "--bootstrap", "8"],
        [
            "explain",
            "job.toml",
            "--set",
            "parallelism.zero_stage=3",
            "--set",
            "parallelism.pipeline_parallel_degree=1",
            "--set",
            "parallelism.data_parallel_shard_degree=16"
        ],
        [
            "explain",
            "job.toml",
            "--set",
            "cluster.gpus=65536",
            "--set",
            "parallelism.data_parallel_shard_degree=8192",
            "--set",
            "training.global_batch_size=65536"
        ]
    );
}

#[test]
fn place() {
    let folder = folder();
    let speed = |i: usize| if i == 5 { "12" } else { "10" };
    let rows: Vec<String> = (0..32).map(|i| format!("g{i},n{},{}", i / 8, speed(i))).collect();
    folder.write("speeds.csv", &format!("gpu,node,time_ms\n{}\n", rows.join("\n")));
    folder.write("few.csv", "gpu,node,time_ms\na,n,10\nb,n,10\n");
    let few = ["--samples", "500", "--random-orders", "2"];
    snapshot!(
        "place",
        folder,
        [&["place", "job.toml", "--speeds", "speeds.csv"][..], &few].concat(),
        [&["place", "job.toml", "--format", "csv", "-q"][..], &few].concat(),
        ["place", "job.toml", "--slow", "x1.2", "--samples", "500"],
        [&["place", "job.toml", "--speeds", "few.csv"][..], &few].concat()
    );
}

#[test]
fn trace() {
    let folder = folder();
    snapshot!(
        "trace",
        folder,
        ["trace", "job.toml", "--ideal", "-o", "ideal.json"],
        ["trace", "job.toml", "--quantile", "p95", "--samples", "100", "-o", "p95.json.gz", "-q"],
        [
            "trace",
            "job.toml",
            "--ideal",
            "--set",
            "parallelism.pipeline_parallel_schedule=zb-v",
            "-o",
            "v.json",
            "-q"
        ],
        ["trace", "job.toml", "-o", "step.json"],
        ["trace", "job.toml", "--step", "3", "-o", "step.json"]
    );
    let written: serde_json::Value = serde_json::from_str(&folder.read("v.json")).unwrap();
    assert!(written["traceEvents"].as_array().unwrap().len() > 1_000);
}

#[test]
fn diff() {
    let folder = folder();
    folder.write("longer.toml", &JOB.replace("seq_len = 4096", "seq_len = 4608"));
    folder.write("log.csv", "step,step_s\n1,1.0\n2,1.1\n");
    folder.write("both-ways.toml", &JOB.replace("\"1f1b\"", "\"dualpipe\""));
    snapshot!(
        "diff",
        folder,
        ["diff", "job.toml", "longer.toml", "--samples", "1000", "--tolerance", "2%"],
        ["diff", "job.toml", "job.toml", "--samples", "1000", "--fail-on-findings"],
        ["diff", "job.toml", "log.csv"],
        ["diff", "job.toml", "longer.toml", "--bootstrap", "10"],
        ["diff", "job.toml", "both-ways.toml"]
    );
}

#[test]
fn synth() {
    let folder = folder();
    snapshot!(
        "synth",
        folder,
        ["synth", "--job", "job.toml", "--steps", "40", "-o", "steps.csv"],
        ["synth", "--job", "job.toml", "--effect", "step=1%", "-o", "steps.csv"],
        [
            "synth",
            "--job",
            "job.toml",
            "--set",
            "parallelism.pipeline_parallel_schedule=zb-h1",
            "-o",
            "steps.csv"
        ],
        ["synth", "--job", "steps.csv", "-o", "again.csv"]
    );
    // What was drawn reads as a trace, and its step time is the job's.
    let of_trace = folder.json(&quick(&["predict", "steps.csv", "--bootstrap", "0", "--json"]));
    let scenario = ["whatif", "job.toml", "--scenario", "delay x0", "--json"];
    let of_job = folder.json(&quick(&scenario));
    let mean = of_trace["mean"]["value"].as_f64().unwrap();
    let planned = of_job["comparisons"][0]["differences"][0]["base_s"].as_f64().unwrap();
    assert!((mean / planned - 1.0).abs() < 0.01, "{mean} {planned}");
}

/// The same on any number of threads; flags of job files are refused elsewhere.
#[test]
fn threads_change_no_bit_and_flags_have_their_place() {
    let folder = folder();
    let asked = quick(&["whatif", "job.toml", "--scenario", "scale x1.1 stage=0", "--json"]);
    let expected = folder.done(&asked);
    for threads in ["1", "3"] {
        assert_eq!(folder.done(&[&asked[..], &["--threads", threads]].concat()), expected);
    }
    folder.add_job("job.csv", &[]);
    for flag in [["--set", "model.layers=3"], ["--replicas", "2"]] {
        let output = folder.run(&[&["explain", "job.csv"][..], &flag].concat());
        assert_eq!(output.status.code(), Some(2));
        let error = text(&output.stderr);
        assert!(error.contains(&format!("`{}` is for job files", flag[0])), "{error}");
    }
}
