//! Composed laws of a pipeline against brute force: errors in percent of T and of the penalty.
//!
//! ```text
//! cargo run --release -p prism-engine --example scale_methods [log2 of reference replica steps, 24] [its seed, 900]
//! ```
//!
//! The pipeline is 1F1B with 16 stages and 64 microbatches: forward 1, backward 2, transfer 0.05,
//! lognormal noise 0.05 (transfers 0.3), a factor 0.03 per stage and step in the spatial case, each
//! compute operation doubled with probability 1 % in the bimodal one. The reference deals independent
//! replica steps into groups of N and takes their maxima.

use std::time::Instant;

use prism_engine::compose::{
    Composed, LayerClass, MaxOptions, PrefetchLayer, PrefetchOptions, PrefetchStep, PruneOptions,
    Replicas, StrictOptions, Tilt, importance, order_max, prefetch_fsdp, strict_fsdp,
};
use prism_engine::sample::{RunOptions, Samples};
use prism_stats::{Distribution, Law, stream};

#[allow(dead_code)]
#[path = "../tests/scale/mod.rs"]
mod scale;
use scale::{Pipeline, Speed, lognormal};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// The pipeline's time without noise.
const DETERMINISTIC: f64 = 244.4;
const QUANTILES: [f64; 3] = [0.5, 0.95, 0.99];

fn column(samples: &Samples) -> Vec<f64> {
    samples.get("replica").map_or(Vec::new(), |o| o.row(0).iter().map(|&x| x.into()).collect())
}

/// Maxima of groups of N, ascending.
fn grouped(times: &[f32], members: usize) -> Vec<f64> {
    let largest = |c: &[f32]| c.iter().copied().fold(0.0, f32::max);
    let mut out: Vec<f64> = times.chunks_exact(members).map(|c| largest(c).into()).collect();
    out.sort_by(f64::total_cmp);
    out
}

/// Quantile of ascending maxima and half its two-sided one-sigma interval.
fn reference(maxima: &[f64], p: f64) -> (f64, f64) {
    let n = maxima.len() as f64;
    let at = |q: f64| maxima[((q.clamp(0.0, 1.0) * n) as usize).min(maxima.len() - 1)];
    let error = (p * (1.0 - p) / n).sqrt();
    (at(p), 0.5 * (at(p + error) - at(p - error)))
}

fn print_row(case: &str, method: &str, members: usize, law: &Composed, maxima: &[f64]) {
    for p in QUANTILES {
        let (want, error) = reference(maxima, p);
        let penalty = want - DETERMINISTIC;
        match law.quantile(p) {
            Ok(answer) => {
                let off = answer.value - want;
                let half = match (answer.lower, answer.upper) {
                    (Some(a), Some(b)) => format!("{:.2}", 50.0 * (b - a) / penalty),
                    _ => "?".into(),
                };
                println!(
                    "| {case} | {method} | {members} | {p} | {want:.3} | {:+.4} | {:+.2} | {:.2} | {half} |",
                    100.0 * off / want,
                    100.0 * off / penalty,
                    100.0 * error / penalty,
                );
            }
            Err(error) => println!("| {case} | {method} | {members} | {p} | {want:.3} | {error} |"),
        }
    }
}

fn compare(case: &str, spatial: f64, doubled: f64, (log2, seed): (u32, u64)) -> Outcome<()> {
    let speed = || if spatial > 0.0 { Speed::Redrawn(spatial) } else { Speed::Even };
    let one = Pipeline { speed: speed(), doubled, ..Pipeline::new() };
    let tape = one.program().compile()?;
    let start = Instant::now();
    let options = RunOptions { seed, samples: 1 << log2, ..RunOptions::default() };
    let times = tape.run(&options)?.into_outputs().swap_remove(0).into_data();
    eprintln!(
        "{case}: reference of 2^{log2} replica steps in {:.1} s",
        start.elapsed().as_secs_f64()
    );
    let sizes = [64, 1024, 16_384];
    let maxima: Vec<Vec<f64>> = sizes.iter().map(|&n| grouped(&times, n)).collect();
    for log2 in [17, 20, 22] {
        let start = Instant::now();
        let options = RunOptions { seed: 1, samples: 1 << log2, ..RunOptions::default() };
        let mut sample = column(&tape.run(&options)?);
        sample.sort_unstable_by(f64::total_cmp);
        let drawn = start.elapsed().as_secs_f64();
        for (&n, maxima) in sizes.iter().zip(&maxima) {
            match order_max(&[Replicas::new(&sample, n as u64)], &MaxOptions::default()) {
                Ok(law) => print_row(case, &format!("2^{log2}"), n, &law, maxima),
                Err(error) => println!("| {case} | 2^{log2} | {n} | {error} |"),
            }
        }
        let all = start.elapsed().as_secs_f64();
        eprintln!("{case} 2^{log2}: samples {drawn:.3} s, with three maxima {all:.3} s");
    }
    if spatial > 0.0 {
        compare_tilted(
            case,
            spatial,
            doubled,
            &tape.run(&RunOptions { seed: 2, samples: 1 << 16, ..RunOptions::default() })?,
            &sizes,
            &maxima,
        )?;
    }
    Ok(())
}

fn compare_tilted(
    case: &str,
    spatial: f64,
    doubled: f64,
    plain: &Samples,
    sizes: &[usize],
    maxima: &[Vec<f64>],
) -> Outcome<()> {
    let plain = column(plain);
    let tilt = Tilt::stages(16, &[1.5, 3.0], 0.2)?;
    let tilted = Pipeline { speed: Speed::Tilted(spatial, &tilt), doubled, ..Pipeline::new() };
    for log2 in [14, 16, 18] {
        let start = Instant::now();
        let options = RunOptions { seed: 3, samples: 1 << log2, ..RunOptions::default() };
        let run = tilted.program().compile()?.run(&options)?;
        let weights = tilt.read(&run, "speed", &[spatial; 16])?;
        let times = column(&run);
        for (&n, maxima) in sizes.iter().zip(maxima) {
            match importance(&times, &weights, &plain, n as u64, &MaxOptions::default()) {
                Ok(law) => print_row(case, &format!("IS 2^{log2}"), n, &law, maxima),
                Err(error) => println!("| {case} | IS 2^{log2} | {n} | {error} |"),
            }
        }
        eprintln!("{case} IS 2^{log2}: {:.3} s", start.elapsed().as_secs_f64());
    }
    Ok(())
}

/// FSDP at 65,536 GPUs, 126 layers forward and backward.
fn fsdp() -> Outcome<()> {
    let mut rng = stream(1, "example fleet", &[]);
    let spatial = lognormal(0.03);
    let factors: Vec<f64> = (0..65_536).map(|_| spatial.sample(&mut rng)).collect();
    let class = |mean| LayerClass { mean, count: 126, comm: 0.0, temporal: lognormal(0.05) };
    let layers = [class(1.0), class(2.0)];
    for resolution in [2e-3, 1e-3, 5e-4, 1e-4] {
        let start = Instant::now();
        let law = strict_fsdp(&factors, &layers, &StrictOptions { resolution })?;
        let seconds = start.elapsed().as_secs_f64();
        let p99 = law.quantile(0.99)?;
        println!(
            "strict {resolution:.0e}: {:.2} ms, mean {:.4}, p99 {p99}",
            1e3 * seconds,
            law.mean()
        );
    }
    let layer = |mean| PrefetchLayer { mean, gather: 0.3, law: 0 };
    let laws: Vec<Law> = vec![lognormal(0.05)];
    let step = PrefetchStep::forward_backward(&[layer(1.0); 126], &[layer(2.0); 126], laws, 0.0);
    for (start, samples) in [(256, 2048), (4096, 256), (65_536, 64)] {
        let prune =
            PruneOptions { start, quantiles: vec![0.5], ..PrefetchOptions::default().prune };
        let clock = Instant::now();
        let options = PrefetchOptions { samples, seed: 1, threads: 0, prune };
        let law = prefetch_fsdp(&factors, &step, &options)?;
        println!(
            "prefetch, {samples} steps from {start} GPUs: {:.2} s, mean {:.4}, p50 {}, rounds {:?}",
            clock.elapsed().as_secs_f64(),
            law.mean(),
            law.quantile(0.5)?,
            law.diagnostics().rounds,
        );
    }
    Ok(())
}

fn main() -> Outcome<()> {
    let log2 = std::env::args().nth(1).map_or(Ok(24), |a| a.parse())?;
    let seed = std::env::args().nth(2).map_or(Ok(900), |a| a.parse())?;
    let reference = (log2, seed);
    fsdp()?;
    println!(
        "| case | method | N | p | reference | error % of T | % of penalty | reference s.e. | 95 % half-width |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    compare("light", 0.0, 0.0, reference)?;
    compare("light+spatial", 0.03, 0.0, reference)?;
    compare("bimodal", 0.0, 0.01, reference)
}
