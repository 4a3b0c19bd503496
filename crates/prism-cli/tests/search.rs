//! `prism search`: what holds of its results, and what it refuses.

mod common;

use common::{Folder, text};
use serde_json::Value;

const JOB: &str = "schema = 'prism.job/1'\n[model]\npreset = 'llama-3.1-8b'\n[training]\n\
                   seq_len = 4096\nglobal_batch_size = 64\n[cluster]\npreset = 'h100-dgx'\n\
                   gpus = 16\n[variability]\npreset = 'dedicated'\n";

/// A small range, quickly sampled.
const QUICK: [&str; 14] = [
    "search",
    "job.toml",
    "--tp",
    "2,4",
    "--pp",
    "1,2",
    "--top",
    "2",
    "--distributions",
    "3",
    "--samples",
    "400",
    "--clusters",
    "4",
];

fn quick<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let mut all = QUICK.to_vec();
    all.extend(more);
    all
}

fn with_job() -> Folder {
    let folder = Folder::empty();
    folder.write("job.toml", JOB);
    folder
}

#[test]
fn threads_change_no_bit_and_the_schema_is_the_committed_one() {
    let folder = with_job();
    let asked = quick(&["--json"]);
    let expected = folder.done(&asked);
    for threads in ["1", "3"] {
        assert_eq!(folder.done(&quick(&["--json", "--threads", threads])), expected);
    }
    let json: Value = serde_json::from_str(&expected).unwrap();
    assert_eq!(json["schema"], "prism.search/1");
    assert_eq!(json["times"], Value::Null);
    let plans = json["plans"].as_array().unwrap();
    let csv = folder.done(&quick(&["--format", "csv"]));
    assert_eq!(csv.lines().count(), plans.len() + 1);
    folder.done(&quick(&["--format", "csv", "-o", "plans.csv"]));
    assert_eq!(folder.read("plans.csv"), csv);
    let committed = concat!(env!("CARGO_MANIFEST_DIR"), "/../../schemas/search.json");
    assert!(
        std::fs::read_to_string(committed).unwrap() == folder.done(&["schema", "search"]),
        "schemas/search.json is stale: `prism schema search > schemas/search.json` updates it"
    );
}

#[test]
fn the_best_plan_is_written_and_found_again() {
    let folder = with_job();
    let json = folder.json(&quick(&["--json", "--write-best", "best.toml"]));
    let best = &json["plans"][0];
    let (tp, pp) = (&best["plan"]["tensor_parallel"], &best["plan"]["pipeline_parallel"]);
    let chunks = &best["plan"]["virtual_chunks"];
    folder.write("job.toml", &folder.read("best.toml"));
    let (tp, pp, chunks) = (tp.to_string(), pp.to_string(), chunks.to_string());
    let mut only = quick(&["--json"]);
    only[3] = &tp;
    only[5] = &pp;
    let more = ["--chunks", chunks.as_str()];
    only.extend(more);
    let again = folder.json(&only);
    assert_eq!(again["plans"][0]["plan"], best["plan"]);
    assert_eq!(again["plans"][0]["p95"], best["p95"]);
}

#[test]
fn a_checkpoint_gives_the_result_of_one_go() {
    let folder = with_job();
    let whole = folder.done(&quick(&["--json"]));
    let asked = quick(&["--json", "--checkpoint", "kept.json"]);
    assert_eq!(folder.done(&asked), whole);
    // As if it had been stopped: some plans are not there.
    let mut kept: Value = serde_json::from_str(&folder.read("kept.json")).unwrap();
    let predicted = kept["predicted"].as_object_mut().unwrap();
    let first = predicted.keys().next().unwrap().clone();
    predicted.remove(&first);
    folder.write("kept.json", &kept.to_string());
    assert_eq!(folder.done(&asked), whole);
    let output = folder.run(&quick(&["--checkpoint", "kept.json", "--seed", "9"]));
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("of another question"), "{}", text(&output.stderr));
    folder.write("kept.json", "{}");
    let output = folder.run(&asked);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("no checkpoint"), "{}", text(&output.stderr));
}

#[test]
fn what_people_see() {
    let folder = with_job();
    let seen = [
        folder.transcript(&quick(&[])),
        folder.transcript(&quick(&[
            "--objective",
            "cost",
            "--price-per-gpu-hour",
            "2",
            "--gpus",
            "16,32",
            "-q",
            "--format",
            "markdown",
        ])),
        folder.transcript(&quick(&["--gpus", "2", "--micro-batch", "8", "--recompute", "none"])),
    ];
    insta::assert_snapshot!("search", seen.join("\n"));
}

#[test]
fn a_range_without_a_plan_answers_no() {
    let folder = with_job();
    let json =
        folder.run(&quick(&["--gpus", "2", "--micro-batch", "8", "--recompute", "none", "--json"]));
    assert_eq!(json.status.code(), Some(1));
    let json: Value = serde_json::from_str(&text(&json.stdout)).unwrap();
    assert!(json["plans"].as_array().unwrap().is_empty());
    assert!(!json["nearest"].as_array().unwrap().is_empty());
}

#[test]
fn bad_input_is_refused() {
    let folder = with_job();
    let wrong: [(&[&str], &str); 8] = [
        (&["--gpus", "0"], "GPUs must be"),
        (&["--schedules", "2f2b"], "is none of gpipe"),
        (&["--zero", "4"], "4"),
        (&["--recompute", "some"], "is none of none"),
        (&["--samples", "3"], "samples must be at least 100"),
        (&["--price-per-gpu-hour", "2"], "--objective cost"),
        (&["--micro-batch", "0"], "micro batches must be"),
        (&["--set", "training.seq_len"], "section.key=value"),
    ];
    for (args, part) in wrong {
        let output = folder.run(&[&["search", "job.toml"][..], args].concat());
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(text(&output.stderr).contains(part), "{args:?}: {}", text(&output.stderr));
    }
    folder.write("bad.toml", "[model]\npreset = 'no-such'\n");
    let output = folder.run(&["search", "bad.toml"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("no-such"), "{}", text(&output.stderr));
}
