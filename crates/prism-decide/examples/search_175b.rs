//! Searches every plan of a 175B model on 1,024 GPUs, and says how fast.
//!
//! `cargo run --release -p prism-decide --example search_175b [all] [exhaustive]`: with `all`, zero-bubble
//! schedules too; with `exhaustive`, no plan is bounded out.

use std::ops::ControlFlow;
use std::time::Instant;

use prism_decide::search::{SearchOptions, SearchSpace, StageTime, search};
use prism_job::{ReadOptions, ScheduleName, parse_job};

const JOB: &str = "
[model]
preset = 'gpt3-175b'
[training]
seq_len = 2048
global_batch_size = 2048
[parallelism]
tensor_parallel_degree = 8
sequence_parallel = true
pipeline_parallel_degree = 8
data_parallel_shard_degree = 16
[parallelism.overlap]
grad_reduce = true
param_gather = true
[cluster]
preset = 'h100-dgx'
[variability]
preset = 'dedicated'
";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let flags: Vec<String> = std::env::args().skip(1).collect();
    let has = |name: &str| flags.iter().any(|f| f == name);
    let job = parse_job(JOB, &ReadOptions::default())?.job;
    let mut space = SearchSpace::of(&job);
    if has("all") {
        space.schedules.extend([ScheduleName::ZbH1, ScheduleName::ZbV]);
    }
    let options = SearchOptions { space, exhaustive: has("exhaustive"), ..SearchOptions::of(&job) };
    let begin = Instant::now();
    let found = search(&job, &options, None, &mut |progress, _| {
        eprintln!("{:6.1} s: {progress:?}", begin.elapsed().as_secs_f64());
        ControlFlow::Continue(())
    })?;
    println!("{:.2} s of wall clock", begin.elapsed().as_secs_f64());
    println!("{:?}\n{:?}, median bound / step {:?}", found.counts, found.cutoff, found.bound_ratio);
    let line = |name: &str, of: StageTime| {
        println!(
            "{name:>14}: {:6} plans in {:8.3} s, {:10.1} a second",
            of.plans,
            of.seconds,
            of.per_second()
        );
    };
    let t = found.times;
    line("rules", t.rules);
    line("memory", t.memory);
    line("bound", t.bound);
    line("noise-free", t.noise_free);
    line("distribution", t.distribution);
    for plan in &found.plans {
        let p95 = plan.predicted.p95;
        println!(
            "{:2} {}: noise-free {:.3} s, mean {:.3} s, p95 {:.3} s [{:.3} to {:.3}], MFU {:.1} %, bubble \
             {:.1} %, free {:.1} GB{}{}",
            plan.rank,
            plan.plan.name,
            plan.noise_free_s,
            plan.predicted.mean.value.unwrap_or(f64::NAN),
            p95.value.unwrap_or(f64::NAN),
            p95.lower.unwrap_or(f64::NAN),
            p95.upper.unwrap_or(f64::NAN),
            100.0 * plan.mfu,
            100.0 * plan.bubble,
            plan.headroom_bytes / 1e9,
            if plan.tied_with_next { ", tied" } else { "" },
            if plan.pareto { ", pareto" } else { "" },
        );
    }
    Ok(())
}
