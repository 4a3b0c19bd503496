//! Logs of step times, good and bad.

use std::io::Write;

use prism_io::{
    IoError, Limits, LogFormat, Pause, PauseKind, Rule, StepLog, StepLogOptions,
    looks_like_step_log, read_step_log_bytes, read_step_logs_bytes,
};

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

fn read_all(text: &str, options: &StepLogOptions) -> Result<Vec<StepLog>, IoError> {
    read_step_logs_bytes("runs.csv", text.as_bytes(), options)
}

#[test]
fn the_first_step_column_counts() {
    let log = read("step_idx,iteration,step,step_s\n0,10,5,1\n1,20,6,1\n").unwrap();
    assert_eq!(log.step, [5, 6]);
    let log = read("step_idx,iteration,step_s\n0,10,1\n1,20,1\n").unwrap();
    assert_eq!(log.step, [10, 20]);
    let log = read("step_idx,step_s\n0,1\n1,1\n").unwrap();
    assert_eq!((log.step, log.format), (vec![0, 1], LogFormat::Csv));
}

#[test]
fn rows_of_runs_may_be_interleaved() {
    let text = "run,bench,system,round,step,step_s,block,wall_s\n\
        0,b,s,r,1,1.0,x,1.5\n\
        1,b,s,r,1,2.0,x,\n\
        0,b,s,r,2,1.1,x,1.6\n\
        1,b,s,r,2,2.1,y,\n\
        0,b,t,r,1,3.0,z,\n\
        0,b,s,r,3,1.2,y,1.7\n";
    let logs = read_all(text, &StepLogOptions::default()).unwrap();
    let names: Vec<_> =
        logs.iter().map(|l| (l.system.as_deref().unwrap(), l.run.as_deref().unwrap())).collect();
    assert_eq!(names, [("r/s/b", "0"), ("r/s/b", "1"), ("r/t/b", "0")]);
    assert_eq!(logs[0].step_s, [1.0, 1.1, 1.2]);
    assert_eq!(logs[0].wall_s, [1.5, 1.6, 1.7]);
    assert_eq!(logs[1].step_s, [2.0, 2.1]);
    assert!(logs[1].wall_s.is_empty());
    let block = |after| Pause { kind: PauseKind::Block, after, duration_s: None };
    assert_eq!(logs[0].pauses, [block(2)]);
    assert_eq!(logs[1].pauses, [block(1)]);
    assert_eq!(logs[2].pauses, []);

    let error = read(text).unwrap_err();
    assert!(matches!(&error, IoError::SeveralRuns { runs, .. } if runs.len() == 3), "{error}");
    assert!(error.to_string().contains("r/s/b run 1: 2 steps"), "{error}");
    assert!(error.hint().is_some());

    let options = StepLogOptions::default().with_system_columns(["bench", "run"]);
    let logs = read_all(text.replace("0,b,t,r", "7,b,t,r").as_str(), &options).unwrap();
    assert_eq!(logs[2].system.as_deref(), Some("b/7"));
    let options = StepLogOptions::default().with_system_columns(["benches"]);
    let error = read_all(text, &options).unwrap_err().to_string();
    assert!(error.contains("`benches` is missing; `bench` is similar"), "{error}");
}

#[test]
fn rows_that_are_no_steps_are_pauses() {
    use PauseKind::{Block, Checkpoint, Evaluation};
    let text = "step,kind,step_s\n0,val,0\n1,train,1\n2,train,1\n2,val,\n2,test,\n3,train,1\n\
        3,checkpoint,x\n4,warmup,9\n";
    let log = read(text).unwrap();
    assert_eq!(log.step, [1, 2, 3]);
    let pauses: Vec<_> = log.pauses.iter().map(|p| (p.kind, p.after)).collect();
    assert_eq!(pauses, [(Evaluation, 0), (Evaluation, 2), (Checkpoint, 3), (Block, 3)]);
}

#[test]
fn totals_become_differences() {
    let options =
        StepLogOptions::default().with_time_column("total_ms", 1e-3).with_cumulative(true);
    let one = |text: &str| read_all(text, &options).unwrap().remove(0);
    // Binary fractions of a thousand milliseconds, so that the differences are exact.
    let log = one("step,total_ms\n1,250\n2,750\n3,1750\n");
    assert_eq!((log.step, log.step_s), (vec![1, 2, 3], vec![0.25, 0.5, 1.0]));
    assert_eq!(log.averaged_over, 1);
    // A run that was not seen from its beginning, one row each ten steps.
    let log = one("step,total_ms\n10,2500\n20,5000\n30,10000\n");
    assert_eq!((log.step, log.step_s), (vec![20, 30], vec![0.25, 0.5]));
    assert_eq!(log.averaged_over, 10);
    // The timer is set to zero after step 2.
    let log = one("step,total_ms\n0,0\n1,250\n2,500\n3,10\n4,510\n");
    assert_eq!((log.step, log.step_s), (vec![1, 2, 4], vec![0.25, 0.25, 0.5]));
    assert_eq!(log.pauses, [Pause { kind: PauseKind::Block, after: 2, duration_s: None }]);

    let bad = read_all("step,total_ms\n1,5\n2,5\n3,-1\n4,nan\n", &options).unwrap_err();
    let IoError::Invalid(v) = &bad else { panic!("{bad}") };
    assert_eq!(v.by_rule[&Rule::Positive].shown[0].place.to_string(), "line 3");
    assert_eq!(v.by_rule[&Rule::Positive].shown[1].place.to_string(), "line 4");
    assert_eq!(v.by_rule[&Rule::Finite].shown[0].place.to_string(), "line 5");
    // A unit in which a time is lost.
    let tiny = StepLogOptions::default().with_time_column("t", 1e-300);
    let bad = read_all("step,t\n1,1e-300\n", &tiny).unwrap_err();
    assert!(bad.to_string().contains("step time, seconds, is 0"), "{bad}");
    let missing = read_all("step,total\n1,5\n", &options).unwrap_err().to_string();
    assert!(missing.contains("`total_ms` is missing; `total` is similar"), "{missing}");
}

#[test]
fn cells_may_be_quoted() {
    let log = read("\"step\",note,step_s\r\n1,\"a, \"\"b\"\"\nc\",0.5\r\n2,,0.25").unwrap();
    assert_eq!(log.step_s, [0.5, 0.25]);
    // The lines of a cell that goes on are counted.
    assert_eq!(
        broken("step,note,step_s\n1,\"a\nb\nc\",0.5\n2,,x\n"),
        [(Rule::Number, "line 5".to_owned())]
    );
    // A quote that is never closed.
    assert_eq!(
        broken("step,note,step_s\n1,\"a,0.5\n2,,x\n"),
        [(Rule::FieldCount, "line 2".to_owned())]
    );
}

#[test]
fn what_is_no_log_is_said_to_be_none() {
    let why = |text: &str| match read(text) {
        Err(IoError::NotAStepLog { why, .. }) => why,
        other => panic!("{other:?}"),
    };
    assert!(why("step,rank,optype,start_ts,duration,step_s\n1,2,x,3,4,5\n").contains("operations"));
    assert!(why("{\"step\": 1}\n").contains("no line"));
    assert!(why("some text, not a table\nmore of it\n").contains("no line"));
    let limits = Limits { rows: 2, ..Limits::default() };
    let error = read_step_log_bytes("x", b"step,step_s\n1,1\n2,1\n3,1\n", limits).unwrap_err();
    assert!(matches!(error, IoError::TooLarge { limit: 2, unit: "rows", .. }), "{error}");
    let limits = Limits { bytes: 8, ..Limits::default() };
    let error = read_step_log_bytes("x", b"no line of a log", limits).unwrap_err();
    assert!(matches!(error, IoError::TooLarge { limit: 8, unit: "bytes", .. }), "{error}");
}
