//! Logs of step times, good and bad.

use std::io::Write;

use prism_io::{IoError, Limits, Rule, StepLog, looks_like_step_log, read_step_log_bytes};

fn read(text: &str) -> Result<StepLog, IoError> {
    read_step_log_bytes("run.csv", text.as_bytes(), Limits::default())
}

/// Rules broken, and the first place of each.
fn broken(text: &str) -> Vec<(Rule, String)> {
    match read(text) {
        Err(IoError::Invalid(v)) => {
            v.by_rule.iter().map(|(r, b)| (*r, b.shown[0].place.to_string())).collect()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn units_are_in_the_names() {
    for (name, text, want) in [
        ("step_s", "0.25", 0.25),
        ("step_time_s", "0.25", 0.25),
        ("step_time_ms", "250", 0.25),
        ("elapsed_ms", "250", 0.25),
    ] {
        for step in ["step", "iteration"] {
            let log = read(&format!("note,{step},{name}\nx,7,{text}\ny,9,{text}\n")).unwrap();
            assert_eq!((log.step, log.step_s), (vec![7, 9], vec![want; 2]), "{name}");
        }
    }
}

#[test]
fn gzip_is_read_as_it_is() {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(b"step,step_s\n1,2\n2,3\n").unwrap();
    let packed = packed.finish().unwrap();
    let log = read_step_log_bytes("run.csv.gz", &packed, Limits::default()).unwrap();
    assert_eq!(log.step_s, [2.0, 3.0]);
    assert!(looks_like_step_log(&packed, Limits::default()));
}

#[test]
fn every_violation_has_its_line() {
    let text = "step,step_s\n1,0.5\n2,NaN\n3,-1\n4,0\n4,1\n3,1\nx,1\n9,\n10,1,2\n11,inf\n";
    let place = |line: u32| format!("line {line}");
    let want = [
        (Rule::FieldCount, place(10)),
        (Rule::NoNulls, place(9)),
        (Rule::Number, place(8)),
        (Rule::Finite, place(3)),
        (Rule::Positive, place(4)),
        (Rule::StepsAscend, place(6)),
    ];
    assert_eq!(broken(text), want);
    let Err(IoError::Invalid(v)) = read(text) else { panic!("read") };
    assert_eq!(v.by_rule[&Rule::StepsAscend].count, 2);
    assert_eq!(v.by_rule[&Rule::Finite].count, 2);
    assert_eq!(v.by_rule[&Rule::Positive].count, 2);
    assert!(v.to_string().contains("line 7: step 3 follows step 4"), "{v}");
}

#[test]
fn columns_must_be_there_once() {
    let message = |text: &str| read(text).unwrap_err().to_string();
    let missing = message("stepp,seconds\n1,2\n");
    assert!(
        missing.contains("`step` or `iteration` or `step_idx` is missing; `stepp` is similar"),
        "{missing}"
    );
    assert!(missing.contains("`step_s` or"), "{missing}");
    let two = message("step,step_s,elapsed_ms\n1,2,2000\n");
    assert!(two.contains("`step_s` and `elapsed_ms` say the same thing"), "{two}");
    assert!(message("step,step,step_s\n1,1,2\n").contains("there twice"));
    assert!(message("step;step_s\n1;2\n").contains("semicolons"));
    assert!(message("step,step_s\n").contains("no rows"));
    assert!(message("").contains("empty"));
    for text in ["stepp,seconds\n1,2\n", "step,step_s\n"] {
        assert!(read(text).unwrap_err().hint().is_some());
    }
}

#[test]
fn logs_are_told_from_traces() {
    let looks = |text: &str| looks_like_step_log(text.as_bytes(), Limits::default());
    assert!(looks("step,step_s\n"));
    assert!(looks("iteration,elapsed_ms,loss\n1,2,3\n"));
    assert!(!looks("step,rank,optype,start_ts,duration\n"));
    assert!(!looks("step,rank,kind,start_s,duration_s,step_s\n"));
    assert!(!looks("{\"step\": 1}"));
    assert!(!looks(""));
}
