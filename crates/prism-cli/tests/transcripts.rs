//! Whole commands as they are seen, in snapshots.

mod common;

use common::Folder;

/// Few samples and repetitions, so that tests are fast.
const QUICK: [&str; 4] = ["--samples", "2000", "--bootstrap", "20"];

fn quick<'a>(args: &[&'a str]) -> Vec<&'a str> {
    let mut all = args.to_vec();
    all.extend(QUICK);
    all
}

macro_rules! snapshot {
    ($name:literal, $folder:expr, $($args:expr),+) => {{
        let all: Vec<String> = vec![$($folder.transcript(&$args)),+];
        insta::assert_snapshot!($name, all.join("\n"));
    }};
}

#[test]
fn replay() {
    let folder = Folder::with_job();
    snapshot!("replay", folder, ["replay", "job.csv"], ["replay", "job.csv", "--format", "csv"]);
}

#[test]
fn calibrate() {
    let folder = Folder::with_job();
    snapshot!(
        "calibrate",
        folder,
        ["calibrate", "job.csv", "-o", "profile.json"],
        ["calibrate", "job.csv", "--format", "csv", "--alpha", "0.001"]
    );
}

#[test]
fn predict() {
    let folder = Folder::with_job();
    let guarantee = ["--guarantee", "q=0.95,conf=0.95", "--require", "p95<3s", "--require"];
    let mut asked = quick(&["predict", "job.csv"]);
    asked.extend(guarantee);
    asked.push("mean<1s");
    snapshot!(
        "predict",
        folder,
        asked,
        quick(&["predict", "job.csv", "--over", "clusters", "--format", "markdown", "-q"]),
        quick(&["predict", "job.csv", "--draws", "parametric", "--format", "csv", "-q"]),
        ["predict", "job.csv", "--model", "iid", "--samples", "2000"]
    );
}

#[test]
fn predict_with_too_few_steps_for_a_guarantee() {
    let folder = Folder::empty();
    let plan = "dp=2,pp=2,microbatches=4";
    folder.done(&[
        "synth",
        "--plan",
        plan,
        "--steps",
        "44",
        "--effect",
        "step=2%",
        "-qq",
        "-o",
        "few.parquet",
    ]);
    let asked = ["predict", "few.parquet", "--guarantee", "q=0.95,conf=0.95"];
    let mut without = asked.to_vec();
    without.extend(["--bootstrap", "0", "--samples", "2000", "-q", "--quantile", "p95"]);
    snapshot!("guarantee", folder, quick(&asked), without);
}

#[test]
fn place() {
    let folder = Folder::with_job();
    folder.write("speeds.csv", "gpu,time_ms\na,10\nb,10.1\nc,10\nd,15\ne,10.2\n");
    let few = ["--samples", "1000", "--random-orders", "5"];
    let mut placed = vec!["place", "job.csv", "--speeds", "speeds.csv", "--drop-or-keep"];
    placed.extend(few);
    let mut own = vec!["place", "job.csv", "--format", "csv", "-q"];
    own.extend(few);
    snapshot!(
        "place",
        folder,
        placed,
        own,
        ["place", "job.csv", "--slow", "x1.2", "--samples", "1000"]
    );
}

#[test]
fn validate() {
    let folder = Folder::with_job();
    snapshot!("validate", folder, ["validate", "job.csv", "--splits", "4", "--samples", "500"]);
}

#[test]
fn diff() {
    let folder = Folder::with_job();
    folder.done(&[
        "synth",
        "--plan",
        "dp=2,pp=2,microbatches=4",
        "--steps",
        "60",
        "--effect",
        "worker=3%",
        "--effect",
        "microbatch=10%",
        "--effect",
        "residual=1%",
        "--effect",
        "transfer=5%",
        "--duration",
        "backward=220ms",
        "-qq",
        "-o",
        "slow.csv",
    ]);
    folder.write("before.csv", "step,step_s\n1,1.01\n2,1.02\n3,1.00\n4,1.03\n");
    folder.write("after.csv", "step,step_time_ms\n1,1110\n2,1130\n3,1120\n4,1125\n");
    folder.write("odd.csv", "step,step_s,elapsed_ms\n1,1,1000\n");
    folder.write("bad.csv", "step,step_s\n1,NaN\n1,0\n2,x\n");
    snapshot!(
        "diff",
        folder,
        ["diff", "job.csv", "slow.csv", "--tolerance", "2%"],
        ["diff", "job.csv", "job.csv", "--bootstrap", "4"],
        ["diff", "job.csv", "slow.csv", "--format", "csv", "-q", "--bootstrap", "0"],
        ["diff", "before.csv", "after.csv", "--fail-on-findings"],
        ["diff", "before.csv", "after.csv", "--tolerance", "2%"],
        ["diff", "before.csv", "odd.csv"],
        ["diff", "before.csv", "bad.csv"],
        ["diff", "before.csv", "job.csv"]
    );
}

#[test]
fn synth() {
    let folder = Folder::with_job();
    folder.done(&["calibrate", "job.csv", "-o", "profile.json", "-qq"]);
    snapshot!(
        "synth",
        folder,
        [
            "synth",
            "--plan",
            "pp=2,vpp=2,microbatches=4,schedule=interleaved-1f1b",
            "--effect",
            "microbatch=20%:skewed",
            "--duration",
            "forward=50ms",
            "-o",
            "t.parquet"
        ],
        ["synth", "--profile", "profile.json", "--steps", "10", "-o", "again.csv.gz"]
    );
}

#[test]
fn whatif() {
    let folder = Folder::with_job();
    snapshot!(
        "whatif",
        folder,
        ["whatif", "job.csv"],
        ["whatif", "job.csv", "--format", "csv", "-q"],
        ["whatif", "job.csv", "--heatmap", "-", "-qq"]
    );
}

#[test]
fn trace() {
    let folder = Folder::with_job();
    snapshot!(
        "trace",
        folder,
        ["trace", "job.csv", "-o", "step.json.gz"],
        ["trace", "job.csv", "--ideal", "-o", "ideal.json", "--format", "csv"],
        ["trace", "job.csv", "--step", "61", "-o", "step.json"]
    );
}

#[test]
fn files_that_are_not_what_they_should_be() {
    let folder = Folder::with_job();
    folder.write("prose.txt", "once upon a time\nthere was a trace\n");
    folder.write("meta.yaml", "dp_size: 4\npp_size: 2\ntp_size: 1\nworld_size: 8\n");
    folder.write("empty.json", "{}");
    folder.done(&["calibrate", "job.csv", "-o", "profile.json", "-qq"]);
    let other = folder.read("profile.json").replace("prism.profile/1", "prism.profile/9");
    folder.write("newer.json", &other);
    snapshot!(
        "wrong-files",
        folder,
        ["predict", "missing.parquet"],
        ["replay", "missing.parquet"],
        ["predict", "prose.txt"],
        ["predict", "job.csv", "--meta", "meta.yaml"],
        ["replay", "job.csv", "--meta", "job.csv"],
        ["predict", "empty.json"],
        ["predict", "newer.json"],
        ["replay", "profile.json"],
        ["predict", "profile.json", "--meta", "meta.yaml"],
        ["predict", "profile.json", "--allow-incomplete"],
        ["predict", "profile.json", "--model", "iid"],
        ["calibrate", "job.csv", "-o", "missing/profile.json", "-qq"],
        ["predict", "."]
    );
}

#[test]
fn what_cannot_be_asked() {
    let folder = Folder::with_job();
    snapshot!(
        "wrong-questions",
        folder,
        ["predict", "job.csv", "--require", "p95<8"],
        ["predict", "job.csv", "--require", "max<8s"],
        ["predict", "job.csv", "--guarantee", "q=0.95"],
        ["predict", "job.csv", "--guarantee", "q=0.95,conf=2"],
        ["predict", "job.csv", "--guarantee", "q=0.95,conf=0.95", "--over", "clusters"],
        ["predict", "job.csv", "--samples", "5000", "--precision", "1%"],
        ["predict", "job.csv", "--samples", "1"],
        ["predict", "job.csv", "--quantile", "p100"],
        ["predict", "job.csv", "--bootstrap", "1"],
        ["predict", "job.csv", "--json", "--format", "csv"],
        ["predict", "job.csv", "--json", "-o", "-"],
        ["predict", "job.csv", "-q", "-v"],
        ["predict", "job.csv", "--model", "iid", "--over", "clusters"],
        ["predict", "job.csv", "--model", "iid", "--bootstrap", "20"],
        ["predict", "job.csv", "--precision", "0.0000001%", "--bootstrap", "0"],
        ["calibrate", "job.csv", "--json", "-o", "-"],
        ["validate", "job.csv", "--exclude-steps", "3,999"],
        ["validate", "job.csv", "--splits", "0"],
        ["synth", "--plan", "dp=2", "-o", "x.csv"],
        ["synth", "-o", "x.csv"],
        ["synth", "--plan", "microbatches=2", "--effect", "step=300%", "-o", "x.csv"],
        [
            "synth",
            "--plan",
            "microbatches=2",
            "--effect",
            "step=1%",
            "--effect",
            "step=2%",
            "-o",
            "x"
        ],
        ["whatif", "job.csv", "--json", "--heatmap", "-"],
        ["man", "sing"]
    );
}

#[test]
fn whatif_scenarios() {
    let folder = Folder::with_job();
    let quick = ["--samples", "1000", "--bootstrap", "8"];
    let mut asked = vec!["whatif", "job.csv", "--scenario", "slow: slow-node x1.3 dp=0 stage=last"];
    asked.extend(["--scenario", "repack over=step; delay x0"]);
    asked.extend(quick);
    let mut flat = vec!["whatif", "job.csv", "--scenario", "rebalance", "--format", "csv"];
    flat.extend(quick);
    snapshot!(
        "whatif-scenarios",
        folder,
        asked,
        flat,
        ["whatif", "job.csv", "--scenario", "explode x2"],
        ["whatif", "job.csv", "--scenario", "scale x2 stage=7"]
    );
}

#[test]
fn explain() {
    let folder = Folder::with_job();
    let quick = ["--samples", "400", "--path-samples", "40"];
    let mut asked = vec!["explain", "job.csv", "--paths"];
    asked.extend(quick);
    snapshot!("explain", folder, asked);
}

#[test]
fn help() {
    let folder = Folder::empty();
    snapshot!(
        "help",
        folder,
        ["--help"],
        ["replay", "-h"],
        ["calibrate", "-h"],
        ["predict", "-h"],
        ["init", "-h"],
        ["check", "-h"],
        ["place", "-h"],
        ["validate", "-h"],
        ["diff", "-h"],
        ["synth", "-h"],
        ["whatif", "-h"],
        ["explain", "-h"],
        ["trace", "-h"]
    );
}
