//! `prism whatif --scenario`, `prism explain`, `prism trace --quantile`: what holds whatever they print.

mod common;

use common::{Folder, text};
use serde_json::Value;

const QUICK: [&str; 5] = ["--samples", "1000", "--bootstrap", "0", "-q"];

fn whatif(folder: &Folder, input: &str, more: &[&str]) -> Value {
    let mut all = vec!["whatif", input, "--json"];
    all.extend(QUICK);
    all.extend(more);
    folder.json(&all)
}

fn mean(output: &Value, scenario: usize) -> (f64, f64) {
    let d = &output["comparisons"][scenario]["differences"][0];
    (d["base_s"].as_f64().unwrap(), d["changed_s"].as_f64().unwrap())
}

/// A trace and its profile answer alike, and the same on any number of threads.
#[test]
fn a_profile_answers_what_its_trace_does() {
    let folder = Folder::with_job();
    folder.done(&["calibrate", "job.csv", "-o", "profile.json", "-qq"]);
    let scenario = ["--scenario", "slow-node x1.3 dp=0 stage=last"];
    let from_trace = whatif(&folder, "job.csv", &scenario);
    let from_profile = whatif(&folder, "profile.json", &scenario);
    assert_eq!(from_trace["comparisons"], from_profile["comparisons"]);
    let threads = whatif(&folder, "job.csv", &[&scenario[..], &["--threads", "1"]].concat());
    assert_eq!(from_trace, threads);
    let explained = ["--json", "--samples", "200", "--path-samples", "20", "-q"];
    let explain = |input| folder.json(&[&["explain", input][..], &explained].concat());
    assert_eq!(explain("job.csv")["breakdowns"], explain("profile.json")["breakdowns"]);
}

/// Scenarios from a file and from the command line are one list; comments and blank lines are none.
#[test]
fn scenarios_come_from_files_too() {
    let folder = Folder::with_job();
    folder.write(
        "s.txt",
        "# what to try\n\ntwice: scale x2; delay x2 # all of it\nrepack over=replica\n",
    );
    let output = whatif(&folder, "job.csv", &["--scenario", "delay x0", "--scenarios", "s.txt"]);
    let names: Vec<&str> = output["comparisons"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["delay x0", "twice", "repack over=replica"]);
    let (base, twice) = mean(&output, 1);
    assert!((twice / base - 2.0).abs() < 1e-4, "{twice} {base}");
    folder.write("bad.txt", "scale x2\nscale y2\n");
    let refused = folder.run(&["whatif", "job.csv", "--scenarios", "bad.txt"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("`bad.txt` line 2"), "{}", text(&refused.stderr));
    folder.write("empty.txt", "# nothing\n");
    let refused = folder.run(&["whatif", "job.csv", "--scenarios", "empty.txt"]);
    assert_eq!(refused.status.code(), Some(2));
}

/// Signatures are swapped with those of another file, a trace or a profile.
#[test]
fn signatures_come_from_another_file() {
    let folder = Folder::with_job();
    folder.done(&["calibrate", "job.csv", "-o", "profile.json", "-qq"]);
    let same = whatif(&folder, "job.csv", &["--scenario", "swap profile=profile.json"]);
    let (base, changed) = mean(&same, 0);
    assert_eq!(base, changed);
    let refused =
        folder.run(&["whatif", "job.csv", "--scenario", "swap profile=nowhere.json kind=p2p"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("nowhere.json"));
}

/// What belongs to one of the two analyses is refused by the other.
#[test]
fn flags_of_the_other_analysis_are_refused() {
    let folder = Folder::with_job();
    for args in [
        &["whatif", "job.csv", "--samples", "100"][..],
        &["whatif", "job.csv", "--scenario", "repack", "--per-step"],
        &["whatif", "job.csv", "--scenario", "repack", "--heatmap", "x.csv"],
        &["whatif", "job.csv", "--scenario", "scale x2 stage=9"],
        &["whatif", "job.csv", "--scenario", "repack", "--samples", "10"],
        &["trace", "job.csv", "--scenario", "repack", "-o", "x.json"],
        &["trace", "job.csv", "--quantile", "p95", "--step", "3", "-o", "x.json"],
        &["explain", "job.csv", "--samples", "10"],
        &["explain", "job.csv", "--heal", "rank=99"],
    ] {
        let output = folder.run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", text(&output.stderr));
        assert!(!folder.path().join("x.json").exists());
    }
}

/// A sampled step's timeline is that of the asked quantile, with and without a scenario.
#[test]
fn sampled_timelines_are_of_their_quantile() {
    let folder = Folder::with_job();
    folder.done(&["calibrate", "job.csv", "-o", "profile.json", "-qq"]);
    let step = |quantile: &str, more: &[&str]| -> f64 {
        let args =
            ["trace", "profile.json", "--quantile", quantile, "-o", "t.json", "--json", "-q"];
        folder.json(&[&args[..], more].concat())["step_s"].as_f64().unwrap()
    };
    let (low, high) = (step("p5", &[]), step("p95", &[]));
    let twice = step("p5", &["--scenario", "scale x2; delay x2"]);
    assert!(low < high, "{low} {high}");
    assert!((twice / low - 2.0).abs() < 1e-3, "{twice} {low}");
    let events: Value = serde_json::from_str(&folder.read("t.json")).unwrap();
    assert!(!events["traceEvents"].as_array().unwrap().is_empty());
}

/// The report by part adds up, and a healed worker no longer carries the penalty.
#[test]
fn explanations_add_up() {
    let folder = Folder::with_job();
    let explain = |more: &[&str]| {
        let args =
            ["explain", "job.csv", "--json", "--samples", "400", "--path-samples", "20", "-q"];
        folder.json(&[&args[..], more].concat())
    };
    let output = explain(&[]);
    for b in output["breakdowns"].as_array().unwrap() {
        let whole = b["statistics"][0]["whole_s"]["value"].as_f64().unwrap();
        let parts = b["parts"].as_array().unwrap();
        let sum: f64 =
            parts.iter().map(|p| p["at"][0]["shapley_s"]["value"].as_f64().unwrap()).sum();
        assert!((sum - whole).abs() < 1e-9, "{sum} {whole}");
    }
    let csv = folder.done(&["explain", "job.csv", "--format", "csv", "--samples", "200", "-q"]);
    assert!(csv.starts_with("view,name,statistic,alone_s"));
    assert!(csv.contains("\nfix,"));
}

/// A profile that was edited or damaged is refused before anything is computed from it.
#[test]
fn damaged_profiles_are_refused() {
    let folder = Folder::with_job();
    folder.done(&["calibrate", "job.csv", "-o", "profile.json", "-qq"]);
    let good: Value = serde_json::from_str(&folder.read("profile.json")).unwrap();
    let damages: [(&str, Value, &str); 6] = [
        ("/graph/replicas", 3.into(), "replicas"),
        ("/graph/stages", 60_000.into(), "stages"),
        ("/model/step_work/0/op", 4_000.into(), "operation 4000"),
        ("/model/compute/observations_log_s/2", (-1e30).into(), "observations_log_s"),
        ("/model/compute/signatures/0/base_log_s", 1e6.into(), "compute signature"),
        ("/model/transfers/0/rows_s/0", 1e20.into(), "a transfer"),
    ];
    for (place, value, says) in damages {
        let mut bad = good.clone();
        *bad.pointer_mut(place).unwrap() = value;
        folder.write("bad.json", &bad.to_string());
        for command in [
            &["predict", "bad.json"][..],
            &["explain", "bad.json"],
            &["place", "bad.json"],
            &["place", "bad.json", "--slow", "x1.2"],
            &["whatif", "bad.json", "--scenario", "repack"],
            &["diff", "profile.json", "bad.json"],
            &["trace", "bad.json", "--quantile", "p50", "-o", "t.json"],
        ] {
            let output = folder.run(command);
            let message = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{place} {command:?}: {message}");
            assert!(message.contains(says), "{place} {command:?}: {message}");
        }
    }
    assert!(!folder.path().join("t.json").exists());
}
