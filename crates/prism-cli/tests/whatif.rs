//! `prism whatif`: the reference analysis as a command.

mod common;

use common::{Folder, data, text};
use serde_json::Value;

fn published(name: &str) -> Option<Value> {
    Some(serde_json::from_str(&std::fs::read_to_string(data(name)?).unwrap()).unwrap())
}

#[track_caller]
fn assert_close(what: &str, got: &Value, expected: &Value) {
    let (got, expected) = (got.as_f64().unwrap(), expected.as_f64().unwrap());
    assert!((got / expected - 1.0).abs() < 1e-6, "{what}: {got} instead of {expected}");
}

/// The command's JSON holds the published numbers under its own names.
fn check(job: &str) {
    let (Some(trace), Some(result), Some(mw), Some(ms)) = (
        data(&format!("trace-{job}.parquet")),
        published(&format!("result-{job}.json")),
        published(&format!("mw-{job}.json")),
        published(&format!("ms-{job}.json")),
    ) else {
        return;
    };
    let folder = Folder::empty();
    let got = folder.json(&["whatif", trace.to_str().unwrap(), "--json"]);
    assert_eq!(got["schema"], "prism.whatif-reference/1");
    assert_close("S", &got["slowdown"]["value"], &result["blocking_slowdown"]);
    assert_close("launch", &got["launch_slowdown"]["value"], &result["launch_slowdown"]);
    let steps = got["steps"].as_array().unwrap();
    for (ours, theirs) in [
        ("base_s", "step_t_base"),
        ("no_delay_s", "step_t_nodelay"),
        ("ideal_s", "step_t_noblk"),
        ("slowdown", "blocking_step_slowdown"),
        ("launch_slowdown", "launch_step_slowdown"),
    ] {
        for step in steps {
            assert_close(ours, &step[ours], &result[theirs][&step["step"].to_string()]);
        }
    }
    let parts = &got["decomposition"];
    for (ours, theirs) in [
        ("by_op_type", "blocking_decompose_by_optype"),
        ("by_stage", "blocking_decompose_by_stage"),
        ("by_dp", "blocking_decompose_by_dp_rank"),
    ] {
        for (name, part) in parts[ours].as_object().unwrap() {
            assert_close(name, &part["slowdown"]["value"], &result[theirs][name]);
            let each = &result[format!("{theirs}_per_step")];
            for (step, value) in steps.iter().zip(part["per_step"].as_array().unwrap()) {
                assert_close(name, value, &each[step["step"].to_string()][name]);
            }
        }
    }
    for (ours, theirs) in [("slowest_workers", &mw), ("last_stage", &ms)] {
        for key in ["trem", "tadd", "tori", "tideal"] {
            assert_close(key, &parts[ours][format!("{key}_s")], &theirs[key]);
        }
        for key in ["rem", "add"] {
            assert_close(key, &parts[ours][key]["value"], &theirs[key]);
        }
    }
}

#[test]
fn ar_gives_the_published_figures() {
    check("AR");
}

#[test]
fn st_gives_the_published_figures() {
    check("ST");
}

#[test]
fn csv_and_heatmap_hold_the_figures_of_the_json() {
    let folder = Folder::with_job();
    let json = folder.json(&["whatif", "job.csv", "--json", "--heatmap", "map.csv"]);
    let csv = folder.done(&["whatif", "job.csv", "--format", "csv", "--per-step"]);
    let parts = &json["decomposition"];
    let number = |v: &Value| format!("{:?}", v.as_f64().unwrap());
    let backward = &parts["by_op_type"]["backward-compute"];
    let row = format!(
        "slowdown_by_op_type,backward-compute,,,,,{},{},{}\n",
        number(&backward["slowdown"]["value"]),
        number(&backward["slowdown"]["interval"]["lower"]),
        number(&backward["slowdown"]["interval"]["upper"]),
    );
    assert!(csv.contains(&row), "{row}");
    let (step, value) = (&json["steps"][7]["step"], number(&backward["per_step"][7]));
    let row = format!("slowdown_by_op_type,backward-compute,,,,{step},{value},,\n");
    assert!(csv.contains(&row), "{row}");
    // 5 figures, 8 to 12 kinds, 2 stages, 2 replicas, 4 workers, each also a step; 12 means.
    let with_steps = 5 + parts["by_op_type"].as_object().unwrap().len() + 2 + 2 + 4;
    let steps = json["steps"].as_array().unwrap().len();
    assert_eq!(csv.lines().count(), 1 + with_steps * (1 + steps) + 12);
    let map = folder.read("map.csv");
    let cells: Vec<Vec<&str>> = map.lines().map(|l| l.split(',').collect()).collect();
    assert_eq!(cells[0], ["dp", "stage_0", "stage_1"]);
    for w in parts["workers"].as_array().unwrap() {
        let (dp, stage) = (w["dp"].as_u64().unwrap(), w["stage"].as_u64().unwrap());
        let cell = cells[dp as usize + 1][stage as usize + 1];
        assert_eq!(cell, number(&w["slowdown"]["value"]));
    }
}

#[test]
fn threads_change_no_byte_and_standard_input_is_read() {
    let folder = Folder::with_job();
    let expected = folder.done(&["whatif", "job.csv", "--json", "--threads", "1"]);
    for threads in ["2", "5"] {
        assert_eq!(folder.done(&["whatif", "job.csv", "--json", "--threads", threads]), expected);
    }
    let trace = std::fs::read(folder.path().join("job.csv")).unwrap();
    let meta = "job.meta.yaml";
    let output = folder.run_with_stdin(&["whatif", "-", "--meta", meta, "--format", "csv"], &trace);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), folder.done(&["whatif", "job.csv", "--format", "csv"]));
}

#[test]
fn a_trace_without_slowdown_is_not_decomposed() {
    let folder = Folder::empty();
    let plan = ["synth", "--plan", "dp=2,pp=2,microbatches=4", "--steps", "1", "-o", "even.csv"];
    folder.done(&plan);
    let json = folder.json(&["whatif", "even.csv", "--json"]);
    assert!(json["decomposition"].is_null());
    assert!(json["slowdown"]["interval"].is_null(), "one step has no interval");
    let shown = folder.done(&["whatif", "even.csv"]);
    assert!(shown.contains("too little to be decomposed") && shown.contains("one step"), "{shown}");
    let output = folder.run(&["whatif", "even.csv", "--heatmap", "map.csv"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("too small to be decomposed"));
    assert!(!folder.path().join("map.csv").exists());
}

#[test]
fn a_bad_trace_is_an_error_and_leaves_the_report_alone() {
    let folder = Folder::empty();
    folder.write("prose.txt", "once upon a time\n");
    folder.write("out.json", "before");
    let output = folder.run(&["whatif", "prose.txt", "--json", "-o", "out.json"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(folder.read("out.json"), "before");
}
