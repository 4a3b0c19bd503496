//! Evaluation and construction of a graph the size of a recorded job: 4 stages, 32 microbatches,
//! 4 replicas, 44 steps; 117,216 operations in all.

use divan::Bencher;
use prism_graph::schedule::{Schedule, ScheduleKind};
use prism_graph::{Observed, build_program_order, build_reference, evaluate, to_op_table};
use prism_io::{JobMeta, OpTable};

const STEPS: usize = 44;

fn shape() -> Schedule {
    Schedule { replicas: 4, ..Schedule::new(ScheduleKind::OneFOneB, 4, 32) }
}

/// Work that differs from operation to operation, without a random generator.
fn work(operations: usize) -> Vec<f64> {
    (0..operations * STEPS * 4).map(|i| 0.5 + (i % 97) as f64 / 97.0).collect()
}

fn table() -> Result<OpTable, prism_graph::GraphError> {
    let graph = shape().graph()?;
    let steps: Vec<i64> = (0..STEPS as i64).collect();
    let meta = JobMeta {
        trial_name: "bench".into(),
        run_id: 0,
        dp_size: 4,
        dsp_size: 1,
        pp_size: 4,
        tp_size: 4,
        vpp_size: 1,
        world_size: 64,
    };
    to_op_table(&graph, &steps, &work(graph.ops().len()), None, &meta)
}

fn main() {
    divan::main();
}

#[divan::bench]
fn step_times(bencher: Bencher) {
    let graph = shape().graph().expect("the shape is possible");
    let work = work(graph.ops().len());
    bencher.bench_local(|| evaluate(&graph, STEPS, &work, None).map(|t| t.step_times(&graph)));
}

#[divan::bench]
fn schedule_graph(bencher: Bencher) {
    bencher.bench_local(|| shape().graph());
}

#[divan::bench]
fn reference_graph(bencher: Bencher) {
    let table = table().expect("the shape is possible");
    bencher.bench_local(|| build_reference(&table));
}

#[divan::bench]
fn program_order_graph(bencher: Bencher) {
    let table = table().expect("the shape is possible");
    bencher.bench_local(|| build_program_order(&table));
}

#[divan::bench]
fn alignment(bencher: Bencher) {
    let table = table().expect("the shape is possible");
    let graph = build_reference(&table).expect("the table is a schedule's");
    bencher.bench_local(|| Observed::align(&graph, &table));
}
