//! Every row of the cost model's comparison with published step times, and the fits behind the presets.
//!
//! `cargo run --release -p prism-engine --example cost_accuracy`; rows of `vTrain` and the step times of
//! `MLPerf` are read from `$PRISM_DATA` and left out, with a word, where they are missing.

use std::io::Read;

use prism_engine::planned::{
    ClusterFit, Field, JobOptions, LoggedJob, core_of, fit_cluster, fit_job, noise_free_s,
    predict_job,
};
use prism_job::cost::costs;
use prism_job::presets;

#[path = "../tests/published/rows.rs"]
mod rows;

use rows::Row;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    a100()?;
    mlperf()?;
    llama()
}

fn fields(names: &[&str]) -> Vec<Field> {
    names.iter().filter_map(|n| Field::named(n)).collect()
}

fn show_fit(fit: &ClusterFit) {
    for p in &fit.parameters {
        let error = p.standard_error.map_or(String::new(), |e| format!("± {e:.3e}"));
        let (value, known) = (p.value, p.identified);
        println!("  {} {}: {value:.4e} {error} {known:?}{}", p.of, p.name, bound(p.at_bound));
    }
    println!("  rms error {:.2} %", 100.0 * fit.rms);
}

fn bound(at: bool) -> &'static str {
    if at { " (at its bound)" } else { "" }
}

fn error(row: &Row) -> Result<f64> {
    Ok(100.0 * (noise_free_s(&row.job)? / row.seconds - 1.0))
}

/// One calibration for Korthikanti et al. and `vTrain`: a fifth of its rows, its all-reduces, and the
/// two 175B rows, which weigh as much as all of the others.
fn a100() -> Result<()> {
    let mut korthikanti = rows::korthikanti();
    println!("== A100: Korthikanti et al. 2022, table 5");
    if let (Some(vtrain), Some(all_reduces)) = (rows::vtrain(), rows::all_reduces(2.0)) {
        let chosen: Vec<&Row> =
            vtrain.iter().enumerate().filter(|(i, _)| rows::is_fitted(*i)).map(|r| r.1).collect();
        println!("  fitted on {} of {} vTrain rows and the 175B rows", chosen.len(), vtrain.len());
        let weight = (chosen.len() as f64 / 8.0).sqrt();
        let mut points: Vec<_> = chosen.iter().map(|r| r.point(1.0)).collect();
        points.extend(
            korthikanti.iter().filter(|r| r.name.contains("175b")).map(|r| r.point(weight)),
        );
        let names = ["gemm", "gemm_half_k", "memory", "launch_s", "microbatch_host_s", "nvlink"];
        let mut free = fields(&names);
        free.extend(Field::named("collective_s"));
        let fit = fit_cluster(&points, &all_reduces, &free)?;
        show_fit(&fit);
        for row in &mut korthikanti {
            fit.apply(&mut row.job.cluster);
        }
        vtrain_errors(&vtrain, &fit)?;
    }
    let errors = korthikanti.iter().map(error).collect::<Result<Vec<_>>>()?;
    for (row, error) in korthikanti.iter().zip(&errors) {
        println!("  {:32} {:8.2} s {error:+6.2} %", row.name, row.seconds);
    }
    let mean = errors.iter().map(|e| e.abs()).sum::<f64>() / errors.len() as f64;
    println!("  mean absolute error {mean:.2} %");
    Ok(())
}

fn vtrain_errors(rows: &[Row], fit: &ClusterFit) -> Result<()> {
    let mut errors = Vec::new();
    for (i, row) in rows.iter().enumerate().filter(|(i, _)| !rows::is_fitted(*i)) {
        let mut row = row.clone();
        fit.apply(&mut row.job.cluster);
        errors.push((error(&row)?.abs(), i));
    }
    errors.sort_by(|a, b| a.0.total_cmp(&b.0));
    let n = errors.len();
    let mean = errors.iter().map(|e| e.0).sum::<f64>() / n as f64;
    println!(
        "== vTrain, {n} rows held out: mean absolute error {mean:.2} %, median {:.2} %, p90 {:.1} %, \
         worst {:.1} % ({})",
        errors[n / 2].0,
        errors[n * 9 / 10].0,
        errors[n - 1].0,
        rows[errors[n - 1].1].name
    );
    Ok(())
}

/// From one and from two systems to the others, beside two simpler models.
fn mlperf() -> Result<()> {
    let rows = rows::mlperf_gpt3();
    let one = fit_cluster(&[rows[0].point(1.0)], &[], &fields(&["gemm_fp8"]))?;
    let points = [rows[0].point(1.0), rows[2].point(1.0)];
    let two = fit_cluster(&points, &[], &fields(&["gemm_fp8", "step_s"]))?;
    println!("== MLPerf GPT-3 175B on Eos: error in % of the median step");
    println!(
        "{:8} {:>8} {:>9} {:>9} {:>9} {:>9}",
        "", "seconds", "(a) one", "(b) two", "bubble", "affine"
    );
    show_fit(&one);
    show_fit(&two);
    // t·(m + (p−1)/v) through n64; t·(m + (p−1)/v) + c through n64 and n512.
    let passes = |row: &Row| f64::from(row.job.microbatches()) + 7.0 / 12.0;
    let bubble = rows[0].seconds / passes(&rows[0]);
    let slope = (rows[0].seconds - rows[2].seconds) / (passes(&rows[0]) - passes(&rows[2]));
    let fixed = rows[2].seconds - slope * passes(&rows[2]);
    for row in &rows {
        let fitted = |fit: &ClusterFit| {
            let mut row = row.clone();
            fit.apply(&mut row.job.cluster);
            error(&row)
        };
        let of = |seconds: f64| 100.0 * (seconds / row.seconds - 1.0);
        println!(
            "{:8} {:8.4} {:+9.2} {:+9.2} {:+9.2} {:+9.2}",
            row.name,
            row.seconds,
            fitted(&one)?,
            fitted(&two)?,
            of(bubble * passes(row)),
            of(slope * passes(row) + fixed)
        );
    }
    spreads(&rows)
}

/// The core's coefficient of variation, fitted on n64 and n512.
fn spreads(rows: &[Row]) -> Result<()> {
    let Some(file) = rows::data("mlperf/steps.csv.gz") else { return Ok(()) };
    let mut text = String::new();
    flate2::read::GzDecoder::new(std::fs::File::open(file)?).read_to_string(&mut text)?;
    let runs = |name: &str| {
        let prefixes = [format!("eos_{name}_ngc23"), format!("eos-dfw_{name}_ngc23")];
        (0..3)
            .map(|run| {
                text.lines()
                    .skip(1)
                    .map(|l| l.split(',').collect::<Vec<_>>())
                    .filter(|f| prefixes.iter().any(|p| f[2].starts_with(p.as_str())))
                    .filter(|f| f[3] == "gpt3" && f[4] == run.to_string() && f[7] != "0")
                    .map(|f| f[9].parse::<f64>().unwrap_or(f64::NAN))
                    .collect::<Vec<f64>>()
            })
            .collect::<Vec<_>>()
    };
    let quiet = |row: &Row| {
        let mut job = row.job.clone();
        job.variability = presets::variability("none").unwrap_or(job.variability);
        job
    };
    let logged: Vec<LoggedJob> =
        [0, 2].map(|i| LoggedJob { job: quiet(&rows[i]), runs_s: runs(&rows[i].name) }).into();
    let options = JobOptions { samples: 4_096, ..JobOptions::default() };
    let fit = fit_job(&logged, &options)?;
    println!(
        "  spread fitted on n64 and n512: steps {:.4} %, fixed overhead {:.2} ms",
        100.0 * fit.step_sd,
        1e3 * fit.overhead_sd_s.unwrap_or(0.0)
    );
    for row in rows {
        let mut job = quiet(row);
        fit.apply(&mut job);
        let law = predict_job(&job, &options)?;
        let cores = runs(&row.name)
            .iter()
            .map(|r| core_of(r))
            .collect::<std::result::Result<Vec<_>, _>>()?;
        let measured =
            cores.iter().map(|c| c.sd_s / c.mean_s).sum::<f64>() / cores.len().max(1) as f64;
        let predicted = law.steps.sd_s / law.steps.mean_s;
        println!(
            "  {:8} core CoV measured {:.3} %, predicted {:.3} %, ratio {:.2}",
            row.name,
            100.0 * measured,
            100.0 * predicted,
            predicted / measured
        );
    }
    Ok(())
}

fn llama() -> Result<()> {
    println!("== Llama 3 405B, causal FLOP, calibrated on 8,192 GPUs");
    let rows = rows::llama_405b();
    let fit = fit_cluster(&[rows[0].0.point(1.0)], &[], &fields(&["gemm"]))?;
    show_fit(&fit);
    for (row, published) in rows {
        let mut row = row;
        fit.apply(&mut row.job.cluster);
        let seconds = noise_free_s(&row.job)?;
        let tflops = costs(&row.job).model_flops / row.job.gpus() as f64 / seconds / 1e12;
        println!(
            "  {:6} published {published} TFLOP/s, predicted {tflops:.1}, MFU {:.1} %",
            row.name,
            tflops / 9.894
        );
    }
    Ok(())
}
