//! The kernel on a 1F1B pipeline against a scalar simulation that shares nothing with it.

use prism_engine::sample::{RunOptions, Samples, Workspace};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, LogNormal};

#[path = "../benches/kernel/graphs.rs"]
mod graphs;

const STAGES: usize = 16;
const MICROBATCHES: usize = 64;

/// One step by recursion over (stage, position): forward and backward of 1F1B, double precision.
fn simulate(rng: &mut ChaCha8Rng) -> f64 {
    let law = |sigma: f64| LogNormal::new(-0.5 * sigma * sigma, sigma).unwrap();
    let (compute, transfer, spatial) = (law(0.05), law(0.3), law(0.03));
    let factor: Vec<f64> = (0..STAGES).map(|_| spatial.sample(rng)).collect();
    let mut forward = vec![[None; MICROBATCHES]; STAGES];
    let mut backward = vec![[None; MICROBATCHES]; STAGES];
    forward[0] = [Some(0.0); MICROBATCHES];
    backward[STAGES - 1] = [Some(0.0); MICROBATCHES];
    // Per stage: forwards done, backwards done, time.
    let mut state = vec![(0, 0, 0.0_f64); STAGES];
    loop {
        let mut moved = false;
        for s in 0..STAGES {
            let warm = (STAGES - 1 - s).min(MICROBATCHES);
            let (f, b, time) = state[s];
            // Warm-up forwards, then forward and backward in turn, then backwards.
            let next_forward = f < MICROBATCHES && f - b <= warm;
            let arrival: Option<f64> = match (next_forward, b < MICROBATCHES) {
                (true, _) => forward[s][f],
                (false, true) => backward[s][b],
                (false, false) => continue,
            };
            let Some(arrival) = arrival else { continue };
            moved = true;
            let mean = if next_forward { 1.0 } else { 2.0 };
            let end = time.max(arrival) + mean * factor[s] * compute.sample(rng);
            if next_forward {
                state[s] = (f + 1, b, end);
                if s + 1 < STAGES {
                    forward[s + 1][f] = Some(end + 0.05 * transfer.sample(rng));
                }
            } else {
                state[s] = (f, b + 1, end);
                if s > 0 {
                    backward[s - 1][b] = Some(end + 0.05 * transfer.sample(rng));
                }
            }
        }
        if !moved {
            assert!(state.iter().all(|x| x.0 == MICROBATCHES && x.1 == MICROBATCHES));
            return state.iter().map(|x| x.2).fold(0.0, f64::max);
        }
    }
}

fn mean_sd(x: &[f64]) -> (f64, f64) {
    let n = x.len() as f64;
    let mean = x.iter().sum::<f64>() / n;
    (mean, (x.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt())
}

fn distance(a: &mut [f64], b: &mut [f64]) -> f64 {
    a.sort_unstable_by(f64::total_cmp);
    b.sort_unstable_by(f64::total_cmp);
    let (na, nb) = (a.len() as f64, b.len() as f64);
    a.iter().enumerate().fold(0.0, |ks, (i, x)| {
        let other = b.partition_point(|y| y <= x) as f64 / nb;
        ks.max((i as f64 / na - other).abs()).max(((i + 1) as f64 / na - other).abs())
    })
}

#[test]
fn step_time_of_a_pipeline() {
    let n = 1 << 13;
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut reference: Vec<f64> = (0..n).map(|_| simulate(&mut rng)).collect();
    let graphs::Case { program, ops } = graphs::pipeline(STAGES, MICROBATCHES);
    assert_eq!(ops, 2 * STAGES * MICROBATCHES + 2 * (STAGES - 1) * MICROBATCHES);
    let tape = program.compile().unwrap();
    let (m, s) = mean_sd(&reference);
    for antithetic in [false, true] {
        let options = RunOptions { seed: 5, samples: 1 << 15, antithetic, ..RunOptions::default() };
        let run = tape.run(&options).unwrap();
        let mut x: Vec<f64> = run.get("step").unwrap().row(0).iter().map(|&v| v.into()).collect();
        let (mean, sd) = mean_sd(&x);
        let error = s * (1.0 / f64::from(n) + 1.0 / x.len() as f64).sqrt();
        assert!((mean - m).abs() < 4.0 * error, "mean {mean}, not {m} ± {error}");
        // The step time is close to normal: the s.d. of an s.d. is sd/√(2n).
        let error = s * (0.5 / f64::from(n) + 0.5 / x.len() as f64).sqrt();
        assert!((sd - s).abs() < 4.0 * error, "sd {sd}, not {s} ± {error}");
        let limit = 1.95 * (1.0 / f64::from(n) + 1.0 / x.len() as f64).sqrt();
        let ks = distance(&mut x, &mut reference);
        assert!(ks < limit, "distance {ks}, limit {limit}");
    }
}

/// Counts allocations of the thread that runs the test.
mod counting {
    #![allow(unsafe_code)]
    use std::alloc::{GlobalAlloc, Layout, System};
    use std::cell::Cell;

    thread_local!(pub(crate) static COUNT: Cell<u64> = const { Cell::new(0) });

    struct Counting;

    // SAFETY: passes everything on to the system's allocator.
    unsafe impl GlobalAlloc for Counting {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            COUNT.with(|c| c.set(c.get() + 1));
            unsafe { System.alloc(layout) }
        }
        unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
            unsafe { System.dealloc(p, layout) }
        }
    }

    #[global_allocator]
    static ALLOCATOR: Counting = Counting;
}

#[test]
fn a_second_run_allocates_nothing() {
    for case in [graphs::pipeline(4, 8), graphs::job(graphs::Model::Empirical)] {
        let tape = case.program.compile().unwrap();
        let (mut workspace, mut samples) = (Workspace::new(), Samples::default());
        let mut options = RunOptions { samples: 1000, threads: 1, ..RunOptions::default() };
        tape.run_into(&options, &mut workspace, &mut samples).unwrap();
        let first = samples.clone();
        let before = counting::COUNT.with(std::cell::Cell::get);
        options.first_sample = 1000;
        tape.run_into(&options, &mut workspace, &mut samples).unwrap();
        assert_eq!(counting::COUNT.with(std::cell::Cell::get), before);
        assert_ne!(samples, first);
    }
    // The other model is only measured.
    assert_eq!(
        graphs::job(graphs::Model::Parametric).ops,
        graphs::job(graphs::Model::Empirical).ops
    );
}
