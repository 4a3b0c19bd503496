//! `prism fit-cluster`, `prism fit-job`, and the variability of a job from a profile.

mod common;

use std::fmt::Write as _;

use common::{Folder, text};

const JOB: &str = r#"[model]
preset = "llama-3.1-8b"

[training]
seq_len = 4096
global_batch_size = 64
micro_batch_size = 1

[parallelism]
tensor_parallel_degree = 2
pipeline_parallel_degree = 2
data_parallel_shard_degree = 4
pipeline_parallel_schedule = "1f1b"

[cluster]
preset = "h100-dgx"
gpus = 16

[cluster.nvlink]
bandwidth = "450GB/s"
latency = "1us"
in_network_reduction = false

[variability]
preset = "none"
"#;

fn with_job() -> Folder {
    let folder = Folder::empty();
    folder.write("job.toml", JOB);
    folder
}

/// Noise-free step, seconds.
fn step_s(folder: &Folder, job: &str, sets: &[&str]) -> f64 {
    let mut args = vec!["check", job, "--json", "-q"];
    for set in sets {
        args.extend(["--set", set]);
    }
    folder.json(&args)["noise_free"]["step_s"].as_f64().unwrap()
}

fn parameter(output: &serde_json::Value, name: &str) -> f64 {
    let all = output["parameters"].as_array().unwrap();
    all.iter().find(|p| p["name"] == name).unwrap()["value"].as_f64().unwrap()
}

#[test]
fn measured_steps_give_back_the_efficiency_they_were_made_with() {
    let folder = with_job();
    let mut csv = "training.global_batch_size,training.micro_batch_size,step_time_ms\n".to_owned();
    for (batch, micro) in [(32, 1), (64, 2), (128, 4), (256, 1)] {
        let sets = [
            format!("training.global_batch_size={batch}"),
            format!("training.micro_batch_size={micro}"),
            "cluster.efficiency.gemm=0.47".to_owned(),
            "cluster.efficiency.step_s=0.2".to_owned(),
        ];
        let seconds = step_s(&folder, "job.toml", &sets.each_ref().map(String::as_str));
        writeln!(csv, "{batch},{micro},{}", seconds * 1e3).unwrap();
    }
    folder.write("points.csv", &csv);
    let args = ["fit-cluster", "job.toml", "--points", "points.csv", "--fit", "gemm,step_s"];
    let fit = folder.json(&[&args[..], &["-o", "fitted.toml", "--json", "-q"]].concat());
    assert!((parameter(&fit, "gemm") / 0.47 - 1.0).abs() < 1e-3, "{fit}");
    assert!((parameter(&fit, "step_s") / 0.2 - 1.0).abs() < 1e-2, "{fit}");
    // What is written is a job file, and its step the measured one.
    let sets = ["cluster.efficiency.gemm=0.47", "cluster.efficiency.step_s=0.2"];
    let truth = step_s(&folder, "job.toml", &sets);
    assert!((step_s(&folder, "fitted.toml", &[]) / truth - 1.0).abs() < 1e-3);
    // The network plays no part on four points of one plan that are explained without it.
    let all = folder.json(&[
        "fit-cluster",
        "job.toml",
        "--points",
        "points.csv",
        "--json",
        "-q",
        "--fit",
        "gemm,gemm_fp8,step_s",
    ]);
    let fp8 = all["parameters"].as_array().unwrap().iter().find(|p| p["name"] == "gemm_fp8");
    assert_eq!(fp8.unwrap()["identified"], "no");
    assert!(all["warnings"][0].as_str().unwrap().contains("gemm_fp8"));
}

/// Ring all-gathers: a fixed part, 7/8 of the buffer over the link, seven latencies.
#[test]
fn measured_collectives_give_back_link_and_latency() {
    let folder = with_job();
    let mut csv = "kind,bytes,ranks,time_us\n".to_owned();
    for bytes in [1e5, 1e6, 1e7, 1e8, 1e9] {
        let seconds = 25e-6 + 0.875 * bytes / (450e9 * 0.6) + 7e-6;
        writeln!(csv, "all-gather,{bytes},8,{}", seconds * 1e6).unwrap();
    }
    folder.write("nccl.csv", &csv);
    let args = ["fit-cluster", "job.toml", "--collectives", "nccl.csv", "--fit"];
    let fit = folder.json(&[&args[..], &["nvlink,collective_s", "--json", "-q"]].concat());
    assert!((parameter(&fit, "nvlink") / 0.6 - 1.0).abs() < 1e-3, "{fit}");
    assert!((parameter(&fit, "collective_s") / 25e-6 - 1.0).abs() < 1e-3, "{fit}");
}

#[test]
fn what_cannot_be_fitted_is_refused() {
    let folder = with_job();
    folder.write("good.csv", "training.global_batch_size,step_time_s\n32,0.5\n64,0.9\n");
    folder.write("two.csv", "step_time_s,step_time_ms\n1,1000\n");
    folder.write("none.csv", "training.global_batch_size\n32\n");
    folder.write("negative.csv", "step_time_s\n-1\n");
    folder.write("unit.csv", "step_time_s\n900\n");
    folder.write("key.csv", "training.batch,step_time_s\n32,0.5\n");
    folder.write("empty.csv", "step_time_s\n");
    folder.write("kind.csv", "kind,bytes,ranks,time_us\nbroadcast,1e6,8,100\n");
    let points = |file| vec!["fit-cluster", "job.toml", "--points", file];
    let cases: Vec<Vec<&str>> = vec![
        vec!["fit-cluster", "job.toml"],
        [points("good.csv"), vec!["--fit", "gem"]].concat(),
        points("good.csv"),
        points("two.csv"),
        points("none.csv"),
        points("negative.csv"),
        points("unit.csv"),
        points("key.csv"),
        points("empty.csv"),
        [points("good.csv"), vec!["--fit", "gemm", "-o", "job.toml"]].concat(),
        vec!["fit-cluster", "job.toml", "--collectives", "kind.csv"],
    ];
    for case in &cases {
        assert_eq!(folder.run(case).status.code(), Some(2), "{case:?}");
    }
    assert_eq!(folder.read("job.toml"), JOB);
    let all: Vec<String> = cases.iter().map(|case| folder.transcript(case)).collect();
    insta::assert_snapshot!("fit-refusals", all.join("\n"));
}

/// A log of `n` steps around a mean, its deviations those of a fixed sequence of no pattern.
fn log(n: u32, mean_s: f64, sd: f64) -> String {
    let mut csv = "step,step_time_s\n".to_owned();
    for i in 0..n {
        // The golden ratio's multiples are spread evenly; s.d. of a uniform law is 1/√12.
        let u = (f64::from(i) * 0.618_033_988_749_895).fract();
        let time = mean_s * (1.0 + sd * (u - 0.5) * 12.0_f64.sqrt());
        writeln!(csv, "{i},{time}").unwrap();
    }
    csv
}

#[test]
fn step_times_alone_give_a_job_that_predicts_them() {
    let folder = with_job();
    let mean = 1.2 * step_s(&folder, "job.toml", &[]);
    folder.write("log.csv", &log(200, mean, 0.01));
    let args = ["fit-job", "job.toml", "--steps", "log.csv", "-o", "fitted.toml"];
    let fit = folder.json(&[&args[..], &["--json", "-q"]].concat());
    assert!((fit["step_sd"].as_f64().unwrap() / 0.01 - 1.0).abs() < 0.05, "{fit}");
    assert!(fit["overhead_sd_s"].is_null(), "one job cannot tell it");
    assert!(fit["kept"].as_array().unwrap().iter().any(|k| k == "gpu_compute_sd"));
    let law = folder.json(&["predict", "fitted.toml", "--json", "-q"]);
    let at = |p: f64| {
        let all = law["steps"]["quantiles"].as_array().unwrap();
        all.iter().find(|q| q["p"] == p).unwrap()["value_s"].as_f64().unwrap()
    };
    assert!((at(0.5) / mean - 1.0).abs() < 2e-3, "{} {mean}", at(0.5));
    // Normal p95 of 1 %: 1.64 %.
    assert!((at(0.95) / mean - 1.0164).abs() < 2e-3, "{}", at(0.95) / mean);

    // A second job of another length tells overhead from efficiency.
    folder.write("long.toml", &JOB.replace("global_batch_size = 64", "global_batch_size = 256"));
    let long = 1.2 * step_s(&folder, "long.toml", &[]);
    folder.write("long.csv", &log(200, long, 0.01));
    let both = folder.json(&[
        "fit-job",
        "job.toml",
        "--steps",
        "log.csv",
        "--also",
        "long.toml=long.csv",
        "--json",
        "-q",
    ]);
    assert!(both["overhead_sd_s"].is_number(), "{both}");

    folder.write("ms.csv", &log(200, 1e3 * mean, 0.01));
    folder.write("short.csv", &log(12, mean, 0.01));
    let all = [
        folder.transcript(&args),
        folder.transcript(&["fit-job", "job.toml", "--steps", "ms.csv"]),
        folder.transcript(&["fit-job", "job.toml", "--steps", "short.csv"]),
        folder.transcript(&["fit-job", "job.toml", "--steps", "log.csv", "-o", "job.toml"]),
    ];
    insta::assert_snapshot!("fit-job", all.join("\n"));
}

/// The example trace's spreads reach a job without any of its own.
#[test]
fn a_profile_gives_a_job_its_variability() {
    let folder = with_job();
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/pipeline.parquet");
    folder.done(&["calibrate", trace, "-o", "profile.json", "-q"]);
    let predict =
        |more: &[&str]| folder.json(&[&["predict", "job.toml", "--json", "-q"][..], more].concat());
    let (quiet, spread) = (predict(&[]), predict(&["--variability-from", "profile.json"]));
    let sd = |law: &serde_json::Value| law["steps"]["sd_s"].as_f64().unwrap();
    assert!(sd(&quiet) < 1e-5 && sd(&spread) > 1e-3, "{} {}", sd(&quiet), sd(&spread));
    let profile: serde_json::Value = serde_json::from_str(&folder.read("profile.json")).unwrap();
    let step_sd = profile["model"]["compute"]["step_sd_log"].as_f64().unwrap();
    let warnings = spread["warnings"].to_string();
    assert!(warnings.contains(&format!("step_sd {:.2} %", 100.0 * step_sd)), "{warnings}");
    for words in ["operations in both: forward-compute", "only in the profile", "still:"] {
        assert!(warnings.contains(words), "{words}: {warnings}");
    }
    let of_trace = folder.run(&["predict", trace, "--variability-from", "profile.json"]);
    assert_eq!(of_trace.status.code(), Some(2));
}

#[test]
fn predictions_say_what_does_not_hold() {
    let folder = with_job();
    let large = folder.run(&[
        "predict",
        "job.toml",
        "--set",
        "parallelism.zero_stage=0",
        "--set",
        "training.seq_len=65536",
    ]);
    assert!(text(&large.stderr).contains("it does not fit: stage 0"), "{}", text(&large.stderr));
    let few = [
        "--set",
        "variability.residual_sd=0.01",
        "--samples",
        "100",
        "--set",
        "parallelism.data_parallel_shard_degree=256",
        "--set",
        "cluster.gpus=1024",
        "--set",
        "training.global_batch_size=2048",
    ];
    let few = folder.run(&[&["predict", "job.toml"][..], &few].concat());
    assert_eq!(few.status.code(), Some(2));
    let told = "100 samples of a replica cannot tell the slowest of 256";
    assert!(text(&few.stderr).contains(told), "{}", text(&few.stderr));
    let section = folder.run(&["predict", "job.toml", "--set", "foo.bar=1"]);
    let said = text(&section.stderr);
    assert!(said.contains("unknown key `foo`") && said.contains("--set foo.bar=1"), "{said}");
    assert!(!said.contains("is missing"), "{said}");
}
