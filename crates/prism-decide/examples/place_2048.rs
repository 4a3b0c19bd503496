//! Placement on 2,048 workers of 8 GPUs: 16 stages x 128 replicas, 32 microbatches, GPUs as measured.
//!
//! `PRISM_DATA=... cargo run --release -p prism-decide --example place_2048 [1.0,1.0,...,1.3]`
//!
//! The job is synthetic: effects of 0.5 % on steps, workers within steps and microbatches, 1 % residual,
//! 10 % on transfers; its observed vectors are calibrated on 2 replicas and serve all 128. A worker's
//! factor is the largest of 8 GPUs drawn, with a fixed seed, from the medians of 392 V100s running
//! SGEMM (hal-uw/blox-pal, Longhorn). The optional argument is the compute time of each stage.

use std::path::PathBuf;
use std::time::Instant;

use prism_decide::place::{
    Gains, GpuSpeed, Method, Objective, PlaceOptions, Ratio, Workers, place,
};
use prism_engine::calibrate::{CalibrateOptions, Selection, calibrate};
use prism_engine::replay::{Builder, Replayed};
use prism_engine::synth::{EffectSpec, SynthSpec};
use prism_graph::schedule::{Schedule, ScheduleKind};
use prism_graph::{GraphFile, StepGraph};
use prism_io::{SpeedOptions, read_speeds};
use prism_model::DurationModel;
use prism_stats::counter::{Key, Stream, row};

const STAGES: u16 = 16;
const REPLICAS: u32 = 128;
const MICROBATCHES: u32 = 32;
const GPUS: u32 = 8;
const SEED: u64 = 2_048;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let data = std::env::var_os("PRISM_DATA").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data")),
        PathBuf::from,
    );
    let path = data.join("pal/sgemm-longhorn.csv.gz");
    if !path.exists() {
        eprintln!("skipped: {} is missing (set PRISM_DATA)", path.display());
        return Ok(());
    }
    let stage_factor = match std::env::args().nth(1) {
        None => vec![1.0; usize::from(STAGES)],
        Some(text) => text.split(',').map(str::parse).collect::<Result<Vec<f64>, _>>()?,
    };
    let begin = Instant::now();
    let (graph, model) = job(&stage_factor)?;
    println!(
        "job of {REPLICAS} x {STAGES}: {} operations a replica, {:.1} s to make",
        graph.ops().len(),
        begin.elapsed().as_secs_f64()
    );
    let workers = workers(&path)?;
    let mut sorted = workers.factors();
    sorted.sort_by(f64::total_cmp);
    let at = |p: f64| sorted[(p * (sorted.len() - 1) as f64) as usize];
    println!(
        "factors of {} workers: p1 {:.4}, p50 {:.4}, p95 {:.4}, p99 {:.4}, highest {:.4}",
        sorted.len(),
        at(0.01),
        at(0.5),
        at(0.95),
        at(0.99),
        at(1.0)
    );
    // The search alone: next to nothing is checked.
    let few = PlaceOptions {
        samples: 100,
        search_samples: 256,
        random_orders: 1,
        ..PlaceOptions::default()
    };
    let begin = Instant::now();
    place(&graph, &model, Some(&workers), &few)?;
    println!("search, with a check of 100 samples: {:.1} s", begin.elapsed().as_secs_f64());
    for objective in [Objective::P95, Objective::Mean] {
        report(&graph, &model, &workers, objective)?;
    }
    Ok(())
}

/// Places the workers and prints what it gives.
fn report(
    graph: &StepGraph,
    model: &DurationModel,
    workers: &Workers,
    objective: Objective,
) -> Result<(), Failure> {
    let options =
        PlaceOptions { objective, samples: 2_000, search_samples: 256, ..PlaceOptions::default() };
    let begin = Instant::now();
    let placed = place(graph, model, Some(workers), &options)?;
    let seconds = begin.elapsed().as_secs_f64();
    println!(
        "\nlowest {objective:?}: {seconds:.1} s in all (search and check of {} orders)",
        23 + placed.moves.len()
    );
    if let Method::LocalSearch { accepted, computed, bounded, .. } = placed.method {
        println!(
            "  {} search samples, {accepted} swaps taken, {computed} computed, {bounded} bounded; improved: {}",
            placed.search_samples, placed.improved
        );
    }
    show(&placed.gains);
    if objective != Objective::Mean {
        show(&placed.mean);
    }
    for m in &placed.moves {
        println!(
            "  move {} ({:.3}) {} -> {}: gain {}, so far {}",
            m.worker,
            m.factor,
            m.from,
            m.to,
            times(&m.gain),
            times(&m.gain_so_far)
        );
    }
    let changed = placed.cells.iter().filter(|c| c.worker != c.given).count();
    println!("  the placement changes {changed} cells");
    Ok(())
}

fn times(r: &Ratio) -> String {
    format!("{:.4}x [{:.4} to {:.4}]", r.value, r.sampling.lower, r.sampling.upper)
}

fn show(g: &Gains) {
    println!(
        "  {:?}: placed {:.4} s [{:.4} to {:.4}], given {:.4} s, random {:.4} s ({:.4} to {:.4}), worst met {:.4} s",
        g.objective,
        g.placed.value,
        g.placed.sampling.lower,
        g.placed.sampling.upper,
        g.given.value,
        g.random.mean_s,
        g.random.lowest_s,
        g.random.highest_s,
        g.worst.value
    );
    println!(
        "     gain over given {}, over random {}, over worst {}",
        times(&g.over_given),
        times(&g.over_random),
        times(&g.over_worst)
    );
}

/// Workers of 8 GPUs whose speeds are drawn from those measured.
fn workers(path: &std::path::Path) -> Result<Workers, Failure> {
    let table = read_speeds(
        path,
        &SpeedOptions { time_column: Some("perf".into()), ..SpeedOptions::default() },
    )?;
    let measured: Vec<f64> = table
        .gpus
        .iter()
        .map(|g| prism_stats::robust::median(&g.times))
        .collect::<Result<_, _>>()?;
    println!("{} GPUs measured in {} rows", measured.len(), table.rows);
    let stream = Stream::new(SEED, Key::new("gpu"));
    let cells = REPLICAS * u32::from(STAGES);
    let gpus: Vec<GpuSpeed> = (0..cells * GPUS)
        .map(|i| GpuSpeed {
            id: format!("gpu{i}"),
            node: Some(format!("node{}", i / GPUS)),
            label: None,
            times: vec![measured[row(stream.word(i), measured.len() as u32) as usize]],
        })
        .collect();
    Ok(Workers::of_gpus(&gpus, GPUS as usize, "")?)
}

/// The job: calibrated on two replicas, then all replicas are like the first.
fn job(stage_factor: &[f64]) -> Result<(StepGraph, DurationModel), Failure> {
    let mut schedule = Schedule::new(ScheduleKind::OneFOneB, STAGES, MICROBATCHES);
    schedule.replicas = 2;
    let mut spec = SynthSpec::new(schedule, 24);
    spec.durations.stage_factor = stage_factor.to_vec();
    spec.effects.step = EffectSpec::normal(0.005);
    spec.effects.step_worker = EffectSpec::normal(0.005);
    spec.effects.microbatch = EffectSpec::normal(0.005);
    spec.effects.residual = EffectSpec::normal(0.01);
    spec.effects.transfer = EffectSpec::normal(0.1);
    let table = spec.generate()?.table;
    let replayed = Replayed::new(Builder::Reference, &table)?;
    let options = CalibrateOptions { laws: false, ..CalibrateOptions::default() };
    let small = calibrate(&replayed, &Selection::all(&replayed), &options)?;
    let mut file = GraphFile::from(&small.graph);
    file.replicas = REPLICAS;
    Ok((StepGraph::try_from(&file)?, widened(&small.model)))
}

/// The model with as many replicas as wanted, each like the first.
fn widened(small: &DurationModel) -> DurationModel {
    let (r, t) = (small.replicas as usize, small.steps.len());
    let lanes = |values: &[f32], each: usize| -> Vec<f32> {
        let first = |outer: &[f32]| outer[..each].repeat(REPLICAS as usize);
        values.chunks(r * each).flat_map(first).collect()
    };
    let mut model = small.clone();
    model.replicas = REPLICAS;
    model.compute.worker_log.clear();
    model.compute.worker_spread.clear();
    model.compute.observations_log_s.clear();
    model.compute.step_vectors_log = lanes(&small.compute.step_vectors_log, t);
    for vector in model.step_work.iter_mut().chain(&mut model.launch_delay) {
        let each = if vector.values_s.len() > r { t } else { 1 };
        vector.values_s = lanes(&vector.values_s, each);
    }
    for dependency in &mut model.implied {
        dependency.lag_s = lanes(&dependency.lag_s, t);
    }
    for transfer in model.transfers.iter_mut().filter(|x| x.by_replica) {
        let each = transfer.rows_s.len() / transfer.cells(r);
        transfer.rows_s = lanes(&transfer.rows_s, each);
        transfer.by_replica = true;
    }
    model
}
