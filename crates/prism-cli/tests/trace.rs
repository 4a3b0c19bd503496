//! `prism trace`: timelines that viewers can draw.

mod common;

use std::collections::BTreeMap;
use std::path::Path;

use common::{Folder, data, text};
use prism_io::{OpTable, ReadOptions, read_op_table};
use serde_json::Value;

/// Microseconds as whole nanoseconds.
fn ns(value: &Value) -> i64 {
    (value.as_f64().unwrap() * 1e3).round() as i64
}

fn ns_of(seconds: f64) -> i64 {
    (seconds * 1e9).round() as i64
}

struct Timeline {
    events: Vec<Value>,
}

impl Timeline {
    fn parse(json: &str) -> Timeline {
        let whole: Value = serde_json::from_str(json).unwrap();
        assert_eq!(whole["schemaVersion"], 1);
        assert!(whole["deviceProperties"].is_array());
        assert!(whole["distributedInfo"]["world_size"].as_u64().unwrap() > 0);
        Timeline { events: whole["traceEvents"].as_array().unwrap().clone() }
    }

    fn of(&self, ph: &str) -> impl Iterator<Item = &Value> {
        self.events.iter().filter(move |e| e["ph"] == ph)
    }

    /// Slices of workers.
    fn operations(&self) -> impl Iterator<Item = &Value> {
        self.of("X").filter(|e| e["cat"] != "critical_path")
    }

    /// Slices by process and row, in order of time.
    fn rows(&self) -> BTreeMap<(u64, u64), Vec<(i64, i64)>> {
        let mut rows: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for e in self.of("X") {
            let start = ns(&e["ts"]);
            assert!(ns(&e["dur"]) >= 0, "{e}");
            let row = (e["pid"].as_u64().unwrap(), e["tid"].as_u64().unwrap());
            rows.entry(row).or_default().push((start, start + ns(&e["dur"])));
        }
        for slices in rows.values_mut() {
            slices.sort_unstable();
        }
        rows
    }

    fn check_rows(&self) {
        for (row, slices) in self.rows() {
            for pair in slices.windows(2) {
                assert!(pair[0].1 <= pair[1].0, "{row:?}: {pair:?} overlap");
            }
        }
    }

    /// Every process and row that is drawn in has a name.
    fn check_names(&self) {
        let named = |what: &str, pid: u64, tid: u64| {
            self.of("M").any(|m| m["name"] == what && m["pid"] == pid && m["tid"] == tid)
        };
        for (pid, tid) in self.rows().into_keys() {
            assert!(named("process_name", pid, 0) && named("process_sort_index", pid, 0));
            assert!(named("process_labels", pid, 0) && named("thread_name", pid, tid));
        }
    }

    /// Both ends of every arrow are in a slice, the start not after the end; returns how many.
    fn check_flows(&self) -> usize {
        let rows = self.rows();
        let mut ends: BTreeMap<u64, Vec<&Value>> = BTreeMap::new();
        for e in self.of("s").chain(self.of("f")) {
            ends.entry(e["id"].as_u64().unwrap()).or_default().push(e);
            let row = (e["pid"].as_u64().unwrap(), e["tid"].as_u64().unwrap());
            let at = ns(&e["ts"]);
            assert!(rows[&row].iter().any(|&(start, end)| start <= at && at <= end), "{e}");
        }
        for pair in ends.values() {
            let [start, end] = pair.as_slice() else { panic!("{pair:?}") };
            assert_eq!(
                (&start["ph"], &end["ph"], &end["bp"]),
                (&"s".into(), &"f".into(), &"e".into())
            );
            assert!(ns(&start["ts"]) <= ns(&end["ts"]));
            assert_eq!((&start["cat"], &start["name"]), (&end["cat"], &end["name"]));
            assert_ne!(start["pid"], end["pid"], "an arrow leads to another worker");
        }
        ends.len()
    }

    /// The path is end to end and as long as the step; work on it is marked, and has no slack.
    fn check_path(&self, step_s: f64) {
        let path: Vec<&Value> = self.of("X").filter(|e| e["cat"] == "critical_path").collect();
        let mut at = 0;
        for e in &path {
            assert_eq!(ns(&e["ts"]), at, "a gap before {e}");
            at += ns(&e["dur"]);
        }
        assert_eq!(at, ns_of(step_s));
        for e in path.iter().filter(|e| !e["name"].as_str().unwrap().starts_with("launch")) {
            let drawn = self
                .operations()
                .find(|o| o["name"] == e["name"] && o["args"]["dp"] == e["args"]["dp"]);
            let args = &drawn.unwrap()["args"];
            assert_eq!((&args["critical"], ns(&args["slack_us"])), (&Value::Bool(true), 0), "{e}");
        }
        let marked = self.operations().filter(|e| e["args"]["critical"] == true).count();
        assert!(marked > 0 && marked < self.operations().count());
    }

    /// Times are the table's; waiting and work fill a slice.
    fn check_times(&self, table: &OpTable, step: i64) {
        let mut recorded = BTreeMap::new();
        for row in table.rows().filter(|r| r.step == step) {
            let name = format!("{}[{}]@stage{}", row.kind, row.seq, row.stage);
            recorded.insert((name, u64::from(row.dp)), (ns_of(row.start_s), ns_of(row.end_s)));
        }
        let mut seen = 0;
        for e in self.operations().filter(|e| e["args"]["op"] != "barrier") {
            let name = e["name"].as_str().unwrap().to_owned();
            let (start, end) = recorded[&(name, e["args"]["dp"].as_u64().unwrap())];
            assert_eq!((ns(&e["ts"]), ns(&e["ts"]) + ns(&e["dur"])), (start, end), "{e}");
            let spent = ns(&e["args"]["work_us"]) + ns(&e["args"]["wait_us"]);
            assert!((spent - ns(&e["dur"])).abs() <= 2, "{e}");
            seen += 1;
        }
        assert_eq!(seen, recorded.len());
    }
}

fn base_of(folder: &Folder, trace: &str, step: i64) -> f64 {
    let replay = folder.json(&["replay", trace, "--json"]);
    let steps = replay["reference"]["steps"].as_array().unwrap();
    let found = steps.iter().find(|s| s["step"] == step).unwrap();
    found["base_s"].as_f64().unwrap()
}

fn check(folder: &Folder, trace: &str, step: i64) {
    let id = step.to_string();
    let summary = folder.json(&["trace", trace, "--step", &id, "-o", "t.json", "--json", "-q"]);
    assert_eq!((&summary["schema"], &summary["step"]), (&"prism.timeline/1".into(), &step.into()));
    let timeline = Timeline::parse(&folder.read("t.json"));
    timeline.check_rows();
    timeline.check_names();
    assert_eq!(timeline.check_flows() as u64, summary["flows"].as_u64().unwrap());
    let table = read_op_table(&folder.path().join(trace), &ReadOptions::default()).unwrap().table;
    timeline.check_times(&table, step);
    let step_s = summary["step_s"].as_f64().unwrap();
    assert_eq!(ns_of(step_s), ns_of(base_of(folder, trace, step)));
    timeline.check_path(step_s);
    let parts = summary["critical_path"].as_array().unwrap();
    let total: f64 = parts.iter().map(|p| p["time_s"].as_f64().unwrap()).sum();
    assert!((total / step_s - 1.0).abs() < 1e-12, "{total} of {step_s}");
    let sends = table.rows().filter(|r| r.step == step && r.kind.is_send()).count();
    assert_eq!(timeline.check_flows(), sends, "every send has an arrow");
}

#[test]
fn a_recorded_step_is_drawn_as_recorded() {
    check(&Folder::with_job(), "job.csv", 7);
}

#[test]
fn real_steps_are_drawn_as_recorded() {
    let (Some(ar), Some(st)) = (data("trace-AR.parquet"), data("trace-ST.parquet")) else { return };
    let folder = Folder::empty();
    check(&folder, ar.to_str().unwrap(), 821);
    check(&folder, st.to_str().unwrap(), 23);
}

#[test]
fn the_ideal_step_has_no_launch_delays() {
    let folder = Folder::with_job();
    let summary = folder.json(&["trace", "job.csv", "--ideal", "-o", "t.json", "--json"]);
    assert!(summary["step"].is_null());
    let timeline = Timeline::parse(&folder.read("t.json"));
    timeline.check_rows();
    timeline.check_names();
    assert!(timeline.check_flows() > 0);
    timeline.check_path(summary["step_s"].as_f64().unwrap());
    assert!(timeline.operations().all(|e| ns(&e["args"]["launch_delay_us"]) == 0));
}

#[test]
fn the_default_is_the_step_nearest_the_median() {
    let folder = Folder::with_job();
    let summary = folder.json(&["trace", "job.csv", "-o", "t.json", "--json"]);
    let replay = folder.json(&["replay", "job.csv", "--json"]);
    let steps = replay["reference"]["steps"].as_array().unwrap();
    let mut times: Vec<f64> = steps.iter().map(|s| s["base_s"].as_f64().unwrap()).collect();
    let chosen = summary["step_s"].as_f64().unwrap();
    times.sort_by(f64::total_cmp);
    let middle = times.len() / 2;
    let median = f64::midpoint(times[middle - 1], times[middle]);
    let nearest = times.iter().map(|t| (t - median).abs()).fold(f64::INFINITY, f64::min);
    assert!(((chosen - median).abs() - nearest).abs() < 1e-9);
}

#[test]
fn the_same_question_gives_the_same_bytes_compressed_or_not() {
    let folder = Folder::with_job();
    let write = |name: &str, more: &[&str]| -> Vec<u8> {
        let mut args = vec!["trace", "job.csv", "-qq", "-o", name];
        args.extend(more);
        folder.done(&args);
        std::fs::read(folder.path().join(name)).unwrap()
    };
    let plain = write("a.json", &[]);
    let packed = write("a.json.gz", &[]);
    assert_eq!(packed, write("b.json.gz", &["--threads", "1"]));
    assert_eq!(
        (&packed[..2], &packed[4..8]),
        (&[0x1f, 0x8b][..], &[0; 4][..]),
        "no time is stored"
    );
    assert!(packed.len() * 5 < plain.len());
    let output = folder.run(&["trace", "job.csv", "-o", "-"]);
    assert_eq!(output.stdout, plain);
    assert!(text(&output.stderr).contains("Critical path"), "the report steps aside");
}

#[test]
fn what_cannot_be_drawn() {
    let folder = Folder::with_job();
    for (args, why) in [
        (&["--step", "999", "-o", "t.json"][..], "has no step 999"),
        (&["--step", "1", "--ideal", "-o", "t.json"], "cannot be used with"),
        (&["-o", "-", "--json"], "both write to standard output"),
        (&[], "required"),
        (&["-o", "missing/t.json"], "missing/t.json"),
    ] {
        let mut all = vec!["trace", "job.csv"];
        all.extend(args);
        let output = folder.run(&all);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(text(&output.stderr).contains(why), "{args:?}: {}", text(&output.stderr));
    }
    assert!(!Path::new(&folder.path().join("t.json")).exists());
}
