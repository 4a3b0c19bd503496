//! Two replicas of a recorded job predict all four.
//!
//! `cargo run --release --example resize_ar -- trace-AR.parquet` calibrates on every pair of the
//! trace's replicas, resizes to all of them and compares with the recorded steps. New replicas are
//! not known, so the predicted law is that over many draws of them; the range of the mean over draws
//! is printed beside it. One replica of the trace has a slow worker: a pair without it cannot know of
//! it. Therefore pairs of the healthy replicas also predict when the healthy three have ended their
//! last compute.

use std::error::Error;

use prism_engine::calibrate::{CalibrateOptions, Calibrated, Selection, calibrate};
use prism_engine::predict::{LowerOptions, Probes, lower};
use prism_engine::replay::{Replayed, choose_builder, recorded_step_times};
use prism_engine::resize::{ResizeOptions, Target, resize};
use prism_engine::sample::RunOptions;
use prism_io::{ReadOptions, read_op_table};
use prism_stats::{ks_floor, ks_statistic_two, quantile_type7};

/// Draws of the new replicas.
const CLUSTERS: u64 = 20;
/// Steps of each.
const SAMPLES: usize = 2_000;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("give a trace")?;
    let table = read_op_table(path.as_ref(), &ReadOptions::default())?.table;
    let replayed = choose_builder(&table)?.chosen;
    let replicas = replayed.observed.replicas() as usize;
    let slow = slow_replica(&replayed);
    let recorded = recorded_step_times(&replayed.graph, &replayed.observed);
    println!("step time of {replicas} replicas; replica {slow} is slow; errors in recorded s.d.");
    header();
    for (a, b) in pairs(&(0..replicas).collect::<Vec<_>>()) {
        let trained = train(&replayed, &[a, b])?;
        let laws = laws(&trained, (replicas as u32, replicas as u32), "step")?;
        row(&format!("{{{a}, {b}}} -> {replicas}"), &laws, &recorded)?;
    }
    let healthy: Vec<usize> = (0..replicas).filter(|r| *r != slow).collect();
    let finish = finish(&replayed, &healthy);
    println!("\nlast compute of the replicas {healthy:?}");
    header();
    for (a, b) in pairs(&healthy) {
        let trained = train(&replayed, &[a, b])?;
        let laws = laws(&trained, (healthy.len() as u32, replicas as u32), "compute-finish")?;
        row(&format!("{{{a}, {b}}} -> {}", healthy.len()), &laws, &finish)?;
    }
    println!("\nthe same without resizing: all replicas known");
    header();
    let trained = train(&replayed, &(0..replicas).collect::<Vec<_>>())?;
    row("all -> step", &laws(&trained, (replicas as u32, replicas as u32), "step")?, &recorded)?;
    let trained = train(&replayed, &healthy)?;
    row(
        "healthy -> finish",
        &laws(&trained, (healthy.len() as u32, replicas as u32), "compute-finish")?,
        &finish,
    )?;
    Ok(())
}

fn pairs(all: &[usize]) -> Vec<(usize, usize)> {
    all.iter().flat_map(|&a| all.iter().filter(move |b| a < **b).map(move |&b| (a, b))).collect()
}

fn train(replayed: &Replayed, replicas: &[usize]) -> Result<Calibrated, Box<dyn Error>> {
    let all = Selection::all(replayed);
    let selection = Selection { replicas: replicas.to_vec(), ..all };
    let options = CalibrateOptions { laws: false, ..CalibrateOptions::default() };
    Ok(calibrate(replayed, &selection, &options)?)
}

/// Predicted times, one list a draw of the new replicas.
fn laws(
    trained: &Calibrated,
    (replicas, all): (u32, u32),
    output: &str,
) -> Result<Vec<Vec<f64>>, Box<dyn Error>> {
    let target = Target { dp: Some(replicas), ..Target::default() };
    let probes = Probes { compute_finish: true, ..Probes::default() };
    let lowering = LowerOptions { probes, ..LowerOptions::default() };
    let mut out = Vec::new();
    for seed in 1..=CLUSTERS {
        // The recorded collectives are those of all replicas.
        let ranks = Some((all, all));
        let options = ResizeOptions { seed, ranks, ..ResizeOptions::default() };
        let resized = resize(&trained.graph, &trained.model, &target, &options)?;
        let tape = lower(&resized.graph, &resized.model, &lowering)?.compile()?;
        let run = RunOptions { seed, samples: SAMPLES, ..RunOptions::default() };
        let samples = tape.run(&run)?;
        let rows = samples.get(output).ok_or("no such output")?;
        let latest =
            |i: usize| (0..rows.rows()).map(|r| f64::from(rows.row(r)[i])).fold(0.0, f64::max);
        out.push((0..SAMPLES).map(latest).collect());
    }
    Ok(out)
}

fn header() {
    println!(
        "{:<18} {:>9} {:>17} {:>7} {:>7} {:>6} {:>6} {:>6} {:>6}",
        "calibrated", "mean", "(range)", "p50", "p95", "sd", "KS", "floor", "n"
    );
}

fn row(name: &str, laws: &[Vec<f64>], recorded: &[f64]) -> Result<(), Box<dyn Error>> {
    let mut law: Vec<f64> = laws.iter().flatten().copied().collect();
    law.sort_by(f64::total_cmp);
    let mut test = recorded.to_vec();
    test.sort_by(f64::total_cmp);
    let (mean, sd) = moments(&test);
    let (predicted, spread) = moments(&law);
    let error = |v: f64| (v - mean) / sd;
    let means: Vec<f64> = laws.iter().map(|l| error(moments(l).0)).collect();
    let low = means.iter().copied().fold(f64::INFINITY, f64::min);
    let high = means.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let at = |p: f64| -> Result<f64, Box<dyn Error>> {
        Ok((quantile_type7(&law, p)? - quantile_type7(&test, p)?) / sd)
    };
    println!(
        "{name:<18} {:>+9.3} {:>17} {:>+7.2} {:>+7.2} {:>6.2} {:>6.3} {:>6.3} {:>6}",
        error(predicted),
        format!("{low:+.2} to {high:+.2}"),
        at(0.5)?,
        at(0.95)?,
        spread / sd,
        ks_statistic_two(&law, &test)?,
        ks_floor(test.len())?.mean,
        test.len(),
    );
    Ok(())
}

fn moments(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    (mean, (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt())
}

/// The replica with the most compute.
fn slow_replica(replayed: &Replayed) -> usize {
    let replicas = replayed.observed.replicas() as usize;
    let finish: Vec<f64> = (0..replicas).map(|r| finish(replayed, &[r]).iter().sum()).collect();
    (0..replicas).max_by(|&a, &b| finish[a].total_cmp(&finish[b])).unwrap_or(0)
}

/// When the last of some replicas ends its last compute, by step.
fn finish(replayed: &Replayed, some: &[usize]) -> Vec<f64> {
    let replicas = replayed.observed.replicas() as usize;
    let mut out = vec![0.0_f64; replayed.observed.steps().len()];
    for (id, _) in replayed.graph.iter().filter(|(_, op)| op.kind.is_microbatch_compute()) {
        let ends = replayed.observed.end(id).unwrap_or_default();
        for (o, row) in out.iter_mut().zip(ends.chunks(replicas)) {
            *o = some.iter().map(|&r| row[r]).fold(*o, f64::max);
        }
    }
    out
}
