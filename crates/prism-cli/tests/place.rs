//! `prism place`: what holds of its results, and what it refuses.

mod common;

use common::{Folder, text};
use serde_json::Value;

const SPEEDS: &str = "gpu,node,rail,time_ms\na,n1,x,10\nb,n1,x,10.1\nc,n2,x,10\nd,n2,x,15\n";

fn place<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let mut all = vec!["place", "job.csv", "--samples", "400", "--random-orders", "3", "-q"];
    all.extend(more);
    all
}

fn with_speeds() -> Folder {
    let folder = Folder::with_job();
    folder.write("speeds.csv", SPEEDS);
    folder
}

fn refused(folder: &Folder, args: &[&str], parts: &[&str]) {
    let output = folder.run(args);
    assert_eq!(output.status.code(), Some(2), "{args:?}");
    let error = text(&output.stderr);
    for part in parts {
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[test]
fn threads_change_no_bit_and_the_assignment_is_the_same_everywhere() {
    let folder = with_speeds();
    let asked = place(&["--speeds", "speeds.csv", "--drop-or-keep", "--json"]);
    let expected = folder.done(&asked);
    for threads in ["1", "3"] {
        let mut again = asked.clone();
        again.extend(["--threads", threads]);
        assert_eq!(folder.done(&again), expected);
    }
    let json: Value = serde_json::from_str(&expected).unwrap();
    assert_eq!(json["schema"], "prism.place/1");
    folder.done(&place(&["--speeds", "speeds.csv", "-o", "a.csv"]));
    let csv = folder.done(&place(&["--speeds", "speeds.csv", "--format", "csv"]));
    assert_eq!(folder.read("a.csv"), csv);
    let cells = json["placement"]["cells"].as_array().unwrap();
    assert_eq!(csv.lines().count(), cells.len() + 1);
    for (line, cell) in csv.lines().skip(1).zip(cells) {
        assert_eq!(line.split(',').nth(2), cell["worker"].as_str());
    }
    folder.done(&place(&["--speeds", "speeds.csv", "-o", "a.json"]));
    let written: Value = serde_json::from_str(&folder.read("a.json")).unwrap();
    assert_eq!(written["placement"]["cells"], json["placement"]["cells"]);
    let gain = &json["placement"]["gains"];
    assert!(gain["placed"]["value"].as_f64() <= gain["given"]["value"].as_f64());
}

#[test]
fn a_profile_places_what_its_trace_does() {
    let folder = Folder::with_job();
    folder.done(&["calibrate", "job.csv", "-o", "profile.json", "-qq"]);
    let mut of_profile = place(&["--json"]);
    let of_trace = folder.json(&of_profile);
    of_profile[1] = "profile.json";
    assert_eq!(folder.json(&of_profile)["placement"], of_trace["placement"]);
}

#[test]
fn groups_labels_and_spares() {
    let folder = Folder::with_job();
    let line = |i: usize| {
        let rail = if (4..8).contains(&i) { "y" } else { "x" };
        format!("g{i},n{},{rail},{}\n", i / 2, 10 + (i * 7) % 5)
    };
    let table = (0..12).map(line).collect::<Vec<_>>().concat();
    folder.write("many.csv", &format!("gpu,node,rail,time_ms\n{table}"));
    let args = ["--speeds", "many.csv", "--tp", "2", "--same", "rail", "--json"];
    let json = folder.json(&place(&args));
    assert_eq!(json["gpus_per_worker"], 2);
    let placement = &json["placement"];
    assert_eq!(placement["cells"].as_array().unwrap().len(), 4);
    assert_eq!(placement["spares"].as_array().unwrap().len(), 2);
    for worker in json["workers"].as_array().unwrap() {
        let gpus = worker["gpus"].as_array().unwrap();
        let number = |g: &Value| g.as_str().unwrap()[1..].parse::<u32>().unwrap();
        assert_eq!(gpus.len(), 2);
        assert_eq!(number(&gpus[0]) / 2, number(&gpus[1]) / 2, "one node");
    }
    let rail = |name: &Value| {
        let workers = json["workers"].as_array().unwrap();
        workers.iter().find(|w| w["name"] == *name).unwrap()["label"].clone()
    };
    for replica in placement["cells"].as_array().unwrap().chunks(2) {
        assert_eq!(rail(&replica[0]["worker"]), rail(&replica[1]["worker"]));
    }
}

#[test]
fn one_slow_worker_costs_something_everywhere() {
    let folder = Folder::with_job();
    let args = ["place", "job.csv", "--slow", "x1.3", "--samples", "400", "--json"];
    let json = folder.json(&args);
    let stages = json["sensitivity"]["stages"].as_array().unwrap();
    assert_eq!(stages.len(), 2);
    for stage in stages {
        assert!(stage["ratio"]["sampling"]["lower"].as_f64().unwrap() > 1.0);
        assert_eq!(stage["by_replica"].as_array().unwrap().len(), 2);
    }
}

#[test]
fn what_cannot_be_placed() {
    let folder = with_speeds();
    folder.write("few.csv", "gpu,time\na,1\nb,2\n");
    folder.write("wrong.csv", "gpu,time\na,1\nb,-2\n");
    folder.write("mixed.csv", "gpu,rail,time\na,x,1\nb,y,1\nc,x,1\nd,x,1\n");
    refused(&folder, &place(&["--speeds", "few.csv"]), &["2 workers for 4 cells", "--tp"]);
    refused(&folder, &place(&["--speeds", "wrong.csv"]), &["wrong.csv", "line 3", "`-2`"]);
    refused(&folder, &place(&["--speeds", "mixed.csv", "--same", "rail"]), &["replica 0", "rail"]);
    refused(&folder, &place(&["--speeds", "few.csv", "--tp", "2"]), &["names no node"]);
    refused(&folder, &place(&["--speeds", "speeds.csv", "--same", "row"]), &["no column `row`"]);
    refused(&folder, &place(&["--same", "rail"]), &["--speeds"]);
    refused(&folder, &place(&["--slow", "x0"]), &["x0"]);
    refused(&folder, &["place", "job.csv", "--samples", "5"], &["at least 100"]);
}
