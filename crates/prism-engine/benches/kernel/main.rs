//! Speed of the Monte Carlo kernel, by instruction set.
//!
//! Prints nanoseconds of thread CPU time per operation and sample on one thread, the best of many
//! short runs (which a busy machine disturbs least), then lets divan measure wall time. With
//! `--figures` only the former, as one JSON object per line: `scripts/bench_kernel.py` sets them
//! beside numpy.

mod graphs;
mod recorded;

use divan::counter::ItemsCount;
use prism_engine::sample::{Isa, Program, RunOptions, Samples, Tape, Workspace};
use rustix::time::{ClockId, clock_gettime};

use graphs::{Case, Model, job, pipeline};

fn cpu_seconds(clock: ClockId) -> f64 {
    let t = clock_gettime(clock);
    t.tv_sec as f64 + t.tv_nsec as f64 * 1e-9
}

/// The least CPU seconds of a run, over `repeats` runs.
fn best(tape: &Tape, options: &RunOptions, repeats: usize) -> f64 {
    let (mut workspace, mut samples) = (Workspace::new(), Samples::default());
    let clock = if options.threads == 1 { ClockId::ThreadCPUTime } else { ClockId::Monotonic };
    let mut least = f64::INFINITY;
    for _ in 0..repeats {
        let start = cpu_seconds(clock);
        tape.run_into(options, &mut workspace, &mut samples).expect("available instruction set");
        least = least.min(cpu_seconds(clock) - start);
    }
    divan::black_box(&samples);
    least
}

fn figure(case: &str, isa: Isa, mode: &str, unit: &str, value: f64, json: bool) {
    if json {
        println!(
            r#"{{"case":"{case}","isa":"{isa}","mode":"{mode}","unit":"{unit}","value":{value:.5}}}"#
        );
    } else {
        println!("{case:36} {isa:9} {mode:10} {value:8.4} {unit}");
    }
}

fn print_figures(json: bool) {
    let Case { program, ops } = pipeline(16, 64);
    let tape = program.compile().expect("a valid program");
    for isa in Isa::ALL.into_iter().filter(|i| i.is_available()) {
        for antithetic in [false, true] {
            let samples = if isa == Isa::Portable { 1024 } else { 4096 };
            let options = RunOptions {
                seed: 1,
                samples,
                antithetic,
                threads: 1,
                isa: Some(isa),
                first_sample: 0,
            };
            let repeats = if isa == Isa::Portable { 10 } else { 60 };
            let ns = best(&tape, &options, repeats) * 1e9 / (ops * samples) as f64;
            let mode = if antithetic { "antithetic" } else { "plain" };
            figure("pipeline 16x64", isa, mode, "ns/op-sample", ns, json);
        }
    }
    for (name, model) in
        [("job parametric", Model::Parametric), ("job empirical", Model::Empirical)]
    {
        let Case { program, ops } = job(model);
        job_figures(name, &program, ops, json);
    }
    for (name, program) in recorded::programs().unwrap_or_default() {
        job_figures(name, &program, AR_OPS, json);
    }
}

/// Operations of one step of the trace AR, over its 4 replicas.
const AR_OPS: usize = 2_664;

fn job_figures(name: &str, program: &Program, ops: usize, json: bool) {
    let tape = program.compile().expect("a valid program");
    let isa = Isa::detect();
    let steps = 10_000;
    let one = RunOptions { samples: steps, threads: 1, ..RunOptions::default() };
    let cpu = best(&tape, &one, 15);
    figure(name, isa, "plain", "ns/op-sample", cpu * 1e9 / (ops * steps) as f64, json);
    let case = format!("{name}, 10,000 steps");
    figure(&case, isa, "plain", "ms CPU / 2", cpu * 1e3 / 2.0, json);
    let two = RunOptions { threads: 2, ..one };
    figure(&case, isa, "2 threads", "ms wall", best(&tape, &two, 30) * 1e3, json);
}

#[divan::bench(args = [false, true])]
fn pipeline_on_one_thread(bencher: divan::Bencher, antithetic: bool) {
    let Case { program, ops } = pipeline(16, 64);
    let tape = program.compile().expect("a valid program");
    let options = RunOptions { samples: 1024, antithetic, threads: 1, ..RunOptions::default() };
    let (mut workspace, mut samples) = (Workspace::new(), Samples::default());
    bencher
        .counter(ItemsCount::new(ops * options.samples))
        .bench_local(|| tape.run_into(&options, &mut workspace, &mut samples));
}

#[divan::bench]
fn compile_pipeline(bencher: divan::Bencher) {
    let Case { program, .. } = pipeline(16, 64);
    bencher.bench_local(|| program.compile());
}

fn main() {
    let json = std::env::args().any(|a| a == "--figures");
    print_figures(json);
    if !json {
        divan::main();
    }
}
