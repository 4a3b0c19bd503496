//! What holds of `prism diff`, whatever it prints.

mod common;

use common::{Folder, text};

const QUICK: [&str; 5] = ["--samples", "256", "--bootstrap", "4", "-q"];

fn diff<'a>(a: &'a str, b: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let mut all = vec!["diff", a, b];
    all.extend(QUICK);
    all.extend(more);
    all
}

/// `job.csv` and the same job with slower backward passes, `slow.csv`.
fn folder() -> Folder {
    let folder = Folder::with_job();
    folder.add_job("slow.csv", &["--duration", "backward=220ms", "--seed", "2"]);
    folder
}

#[test]
fn exit_codes_answer_the_question() {
    let folder = folder();
    for (a, b, more, code) in [
        ("job.csv", "slow.csv", &[][..], 0),
        ("job.csv", "slow.csv", &["--tolerance", "1%"], 1),
        ("job.csv", "slow.csv", &["--tolerance", "50%"], 0),
        ("slow.csv", "job.csv", &["--tolerance", "1%"], 0),
        ("job.csv", "slow.csv", &["--fail-on-findings"], 1),
        ("job.csv", "job.csv", &["--fail-on-findings", "--tolerance", "0.1%"], 0),
        ("job.csv", "missing.csv", &[], 2),
        ("-", "-", &[], 2),
    ] {
        let output = folder.run(&diff(a, b, more));
        assert_eq!(output.status.code(), Some(code), "{a} {b} {more:?}: {}", text(&output.stderr));
    }
}

#[test]
fn a_profile_compares_as_its_trace_does() {
    let folder = folder();
    folder.done(&["calibrate", "slow.csv", "-o", "slow.json", "-qq"]);
    let mut from_trace = folder.json(&diff("job.csv", "slow.csv", &["--json"]));
    let mut from_profile = folder.json(&diff("job.csv", "slow.json", &["--json"]));
    assert_eq!(from_trace["schema"], "prism.diff/1");
    for output in [&mut from_trace, &mut from_profile] {
        output.as_object_mut().unwrap().remove("b_sources");
    }
    assert_eq!(from_trace, from_profile);
}

#[test]
fn every_form_says_the_same() {
    let folder = folder();
    let json = folder.json(&diff("job.csv", "slow.csv", &["--json"]));
    let findings = json["parts"]["findings"].as_array().unwrap();
    assert!(!findings.is_empty());
    let csv = folder.done(&diff("job.csv", "slow.csv", &["--format", "csv"]));
    assert_eq!(csv.lines().count(), 1 + 4 + findings.len());
    let human = folder.done(&diff("job.csv", "slow.csv", &[]));
    let markdown = folder.done(&diff("job.csv", "slow.csv", &["--format", "markdown"]));
    for finding in findings {
        let name = finding["name"].as_str().unwrap();
        assert!(human.contains(name) && markdown.contains(name) && csv.contains(name), "{name}");
    }
    folder.done(&diff("job.csv", "slow.csv", &["--format", "csv", "-o", "report.csv"]));
    assert_eq!(folder.read("report.csv"), csv);
    let again = folder.done(&diff("job.csv", "slow.csv", &["--json", "--threads", "1"]));
    assert_eq!(again, folder.done(&diff("job.csv", "slow.csv", &["--json"])));
}

#[test]
fn step_logs_are_compared_by_step_time() {
    let folder = Folder::with_job();
    let log = |scale: u32| {
        let row = |i: u32| format!("{i},{}\n", scale + i * 7 % 11);
        "iteration,elapsed_ms\n".to_owned() + &(0..40).map(row).collect::<String>()
    };
    folder.write("a.csv", &log(1000));
    folder.write("b.csv", &log(1100));
    let json = folder.json(&["diff", "a.csv", "b.csv", "--json", "-q"]);
    assert!(json["parts"].is_null());
    let mean = &json["overall"]["statistics"][0];
    assert_eq!(mean["statistic"], "mean");
    assert!((mean["a_s"].as_f64().unwrap() - 1.005).abs() < 0.002);
    assert!((mean["ratio"].as_f64().unwrap() - 1.0995).abs() < 0.001);
    let slower = folder.run(&["diff", "a.csv", "b.csv", "--tolerance", "2%", "-q"]);
    assert_eq!(slower.status.code(), Some(1));
    for (args, message) in [
        (&["diff", "a.csv", "job.csv"][..], "is a log of step times"),
        (&["diff", "a.csv", "b.csv", "--fail-on-findings"], "about operations"),
        (&["diff", "a.csv", "b.csv", "--allow-incomplete"], "about operations"),
    ] {
        let output = folder.run(args);
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains(message), "{}", text(&output.stderr));
    }
    folder.write("bad.csv", "step,step_s\n1,1\n1,2\n3,-1\n");
    let output = folder.run(&["diff", "a.csv", "bad.csv"]);
    assert_eq!(output.status.code(), Some(2));
    let errors = text(&output.stderr);
    assert!(errors.contains("steps-ascend") && errors.contains("line 4"), "{errors}");
}
