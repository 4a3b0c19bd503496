//! The search against brute force.

use prism_engine::calibrate::{CalibrateOptions, Calibrated, Selection, calibrate};
use prism_engine::predict::LowerOptions;
use prism_engine::replay::{Builder, Replayed};
use prism_engine::sample::RunOptions;
use prism_engine::synth::{EffectSpec, SynthSpec};
use prism_graph::schedule::{Schedule, ScheduleKind};
use prism_stats::counter::{Key, Stream};

use super::evaluate::Scratch;
use super::exhaustive::{count, exhaustive};
use super::local::local;
use super::nominal::{Kernel, Nominal, Origin};
use super::sampled::Sampled;
use super::search::Search;
use super::*;

/// A job with every effect, the last stage longer.
fn job(stages: u16, microbatches: u32, replicas: u32) -> Calibrated {
    let mut schedule = Schedule::new(ScheduleKind::OneFOneB, stages, microbatches);
    schedule.replicas = replicas;
    let mut spec = SynthSpec::new(schedule, 12);
    spec.effects.worker = EffectSpec::normal(0.03);
    spec.effects.step = EffectSpec::normal(0.01);
    spec.effects.step_worker = EffectSpec::normal(0.01);
    spec.effects.microbatch = EffectSpec::normal(0.05);
    spec.effects.residual = EffectSpec::normal(0.02);
    spec.effects.transfer = EffectSpec::normal(0.2);
    spec.launch_delay.mean_s = 0.004;
    spec.launch_delay.sd_log = 0.3;
    spec.durations.stage_factor = vec![1.0; usize::from(stages)];
    if let Some(last) = spec.durations.stage_factor.last_mut() {
        *last = 1.3;
    }
    let table = spec.generate().unwrap().table;
    let replayed = Replayed::new(Builder::Reference, &table).unwrap();
    let options = CalibrateOptions { laws: false, ..CalibrateOptions::default() };
    calibrate(&replayed, &Selection::all(&replayed), &options).unwrap()
}

/// Factors between 1 and 1 + spread.
fn factors(n: usize, spread: f64, seed: u64) -> Vec<f64> {
    let stream = Stream::new(seed, Key::new("test-factors"));
    (0..n as u32).map(|i| 1.0 + spread * f64::from(stream.word(i)) / 4_294_967_296.0).collect()
}

fn nominal(job: &Calibrated) -> Nominal<'_> {
    Nominal::new(&job.graph, &job.model, Origin::Measured, LowerOptions::default()).unwrap().0
}

const SHAPES: [(u16, u32, u32); 5] = [(2, 3, 2), (3, 4, 2), (2, 3, 4), (4, 6, 3), (1, 2, 3)];

/// The steps put together again are the kernel's under any factors, within its single precision.
#[test]
fn steps_put_together_are_the_kernels() {
    for (stages, microbatches, replicas) in SHAPES {
        let job = job(stages, microbatches, replicas);
        let nominal = nominal(&job);
        let run = RunOptions { samples: 100, seed: 5, ..RunOptions::default() };
        let sampled = Sampled::draw(&nominal, &run).unwrap();
        let mut kernel = Kernel::new(&nominal, run).unwrap();
        let cells = usize::from(stages) * replicas as usize;
        for seed in 0..4 {
            let factors = factors(cells, [0.0, 0.1, 0.5, 3.0][seed as usize], seed);
            let types: Vec<u32> = (0..cells as u32).collect();
            let mut search = Search::new(&sampled, Objective::P95, &factors, &types, None);
            let state = search.state(types.clone());
            let (got, expected) = (Search::step_s(&state), kernel.step_s(&factors).unwrap());
            for (g, e) in got.iter().zip(&expected) {
                assert!((g / e - 1.0).abs() < 5e-6, "{stages}x{replicas} {seed}: {g} {e}");
            }
        }
    }
}

/// A cut is exact where it was found and a lower bound everywhere else.
#[test]
fn cuts_are_lower_bounds() {
    let job = job(4, 6, 2);
    let nominal = nominal(&job);
    let run = RunOptions { samples: 50, ..RunOptions::default() };
    let sampled = Sampled::draw(&nominal, &run).unwrap();
    let mut scratch = Scratch::default();
    let points: Vec<Vec<f64>> = (0..8).map(|seed| factors(4, 1.0, seed)).collect();
    let steps: Vec<_> = points.iter().map(|f| sampled.replica(1, f, &mut scratch)).collect();
    let mut touching = 0;
    for (i, found) in steps.iter().enumerate() {
        for (j, (factors, exact)) in points.iter().zip(&steps).enumerate() {
            for (cut, time) in found.cuts.chunks(5).zip(&exact.time_s) {
                assert!(cut[..4].iter().all(|a| *a >= 0.0));
                let bound = cut[4] + cut.iter().zip(factors).map(|(a, f)| a * f).sum::<f64>();
                assert!(bound <= time + 1e-9, "{i} {j}: {bound} {time}");
                if i == j {
                    assert!((bound - time).abs() < 1e-9);
                } else if bound > time - 1e-9 {
                    touching += 1;
                }
            }
        }
    }
    assert!(touching > 0 && touching < 8 * 7 * 50, "cuts hold elsewhere sometimes: {touching}");
}

/// All orders by the exhaustive walk, against all orders by the kernel.
#[test]
fn the_best_of_all_orders_is_the_kernels() {
    let job = job(2, 3, 2);
    let nominal = nominal(&job);
    let run = RunOptions { samples: 200, ..RunOptions::default() };
    let sampled = Sampled::draw(&nominal, &run).unwrap();
    let mut kernel = Kernel::new(&nominal, run).unwrap();
    for (seed, objective) in [(1, Objective::P95), (2, Objective::Mean), (3, Objective::Cvar)] {
        let f = factors(4, 0.3, seed);
        let types: Vec<u32> = (0..4).collect();
        let search = Search::new(&sampled, objective, &f, &types, None);
        let all = exhaustive(&search, &types, false);
        assert_eq!(all.orders, 24);
        let mut value = |order: &[u32]| {
            let factors: Vec<f64> = order.iter().map(|&w| f[w as usize]).collect();
            objective.of(&mut kernel.step_s(&factors).unwrap())
        };
        let (mut lowest, mut highest) = (f64::INFINITY, 0.0_f64);
        for code in 0..256_u32 {
            let order: Vec<u32> = (0..4).map(|i| code >> (2 * i) & 3).collect();
            let mut sorted = order.clone();
            sorted.sort_unstable();
            if sorted == types {
                let v = value(&order);
                (lowest, highest) = (lowest.min(v), highest.max(v));
            }
        }
        assert!((value(&all.best) / lowest - 1.0).abs() < 5e-6);
        assert!((value(&all.worst) / highest - 1.0).abs() < 5e-6);
    }
}

/// Distinct orders are multiset permutations, divided by the replicas' where those are alike.
#[test]
fn distinct_orders_are_counted() {
    let job = job(2, 3, 2);
    let nominal = nominal(&job);
    let run = RunOptions { samples: 20, ..RunOptions::default() };
    let sampled = Sampled::draw(&nominal, &run).unwrap();
    let f = [1.0; 6];
    let number = |types: &[u32], labels: Option<&[u32]>, exchangeable| {
        let search = Search::new(&sampled, Objective::P95, &f[..types.len()], types, labels);
        count(&search, exchangeable, 1_000)
    };
    assert_eq!(number(&[0, 1, 2, 3], None, false), Some(24));
    assert_eq!(number(&[0, 1, 2, 3], None, true), Some(12));
    assert_eq!(number(&[0, 0, 1, 1], None, false), Some(6));
    // 00|11, 01|01, 01|10, 10|10: the others are these with replicas changed.
    assert_eq!(number(&[0, 0, 1, 1], None, true), Some(4));
    // Four of six workers in order.
    assert_eq!(number(&[0, 1, 2, 3, 4, 5], None, false), Some(360));
    // Replicas of one label: each pair in two orders, pairs on two replicas.
    assert_eq!(number(&[0, 1, 2, 3], Some(&[0, 0, 1, 1]), false), Some(8));
    let search = Search::new(&sampled, Objective::P95, &f[..4], &[0, 1, 2, 3], None);
    assert_eq!(count(&search, false, 23), None);
}

/// The local search, forced, finds the best of all orders: spares and labels included.
#[test]
fn the_local_search_finds_the_best_of_all_orders() {
    for (stages, replicas, spares, seeds) in
        [(2, 2, 0, 0..6), (3, 2, 0, 0..4), (2, 3, 0, 0..4), (2, 4, 0, 0..2), (2, 2, 2, 0..4)]
    {
        let job = job(stages, 4, replicas);
        let nominal = nominal(&job);
        let run = RunOptions { samples: 120, ..RunOptions::default() };
        let sampled = Sampled::draw(&nominal, &run).unwrap();
        let n = usize::from(stages) * replicas as usize + spares;
        for seed in seeds {
            let f = factors(n, 0.4, seed);
            let given: Vec<u32> = (0..n as u32).collect();
            let labels: Vec<u32> = given.iter().map(|w| w / u32::from(stages) % 2).collect();
            for labels in [None, Some(&labels[..])] {
                let objective =
                    [Objective::P95, Objective::Mean, Objective::Cvar][seed as usize % 3];
                let mut search = Search::new(&sampled, objective, &f, &given, labels);
                let all = exhaustive(&search, &given, false);
                let best = search.state(all.best).score;
                let found = local(&mut search, &given, 1).best;
                let what = format!("{stages}x{replicas}+{spares}, seed {seed}, {labels:?}");
                assert!(found.score.objective >= best.objective * (1.0 - 1e-9), "{what}");
                assert!(
                    found.score.objective <= best.objective * (1.0 + 1e-9),
                    "{what}: {:?} {:?} {best:?}",
                    found.order,
                    found.score
                );
            }
        }
    }
}

fn options() -> PlaceOptions {
    PlaceOptions { samples: 600, search_samples: 128, random_orders: 5, ..PlaceOptions::default() }
}

#[test]
fn a_slow_worker_leaves_the_last_stage() {
    let job = job(4, 6, 2);
    let mut f = vec![1.0; 8];
    f[7] = 1.5;
    let workers = Workers::of_factors(&f, 4, 8);
    let placed = place(&job.graph, &job.model, Some(&workers), &options()).unwrap();
    assert!(placed.improved && placed.gains.over_given.above_one());
    let slow = placed.cells.iter().find(|c| c.worker == "r1s3").unwrap();
    assert_ne!(slow.stage, 3);
    assert_eq!(placed.moves.len(), 1, "one swap gives it all");
    assert_eq!(placed.moves[0].worker, "r1s3");
    assert_eq!(placed.cells.iter().filter(|c| c.worker != c.given).count(), 2);
    let gain = placed.moves[0].gain_so_far.value;
    assert!((gain - placed.gains.over_given.value).abs() < 1e-12);
    assert!(matches!(placed.method, Method::Exhaustive { orders: 8 }));
    assert!(placed.gains.over_worst.value >= placed.gains.over_given.value);
}

/// Nothing to gain: the given order comes back, whatever is asked.
#[test]
fn never_worse_than_the_given_order() {
    let job = job(2, 4, 2);
    let alike = Workers::of_factors(&[1.0; 4], 2, 4);
    for objective in [Objective::P95, Objective::Mean, Objective::Cvar] {
        let options = PlaceOptions { objective, ..options() };
        let same = place(&job.graph, &job.model, Some(&alike), &options).unwrap();
        assert!(!same.improved && same.moves.is_empty());
        assert_eq!(same.gains.over_given.value, 1.0);
        for seed in 0..3 {
            let workers = Workers::of_factors(&factors(4, 0.3, seed), 2, 4);
            let placed = place(&job.graph, &job.model, Some(&workers), &options).unwrap();
            assert!(placed.gains.placed.value <= placed.gains.given.value);
            // What was placed is where nothing is left to gain.
            let again: Vec<f64> = placed.cells.iter().map(|c| c.factor).collect();
            let again = Workers::of_factors(&again, 2, 4);
            let again = place(&job.graph, &job.model, Some(&again), &options).unwrap();
            assert!(!again.improved, "{objective:?} {seed}");
        }
    }
}

#[test]
fn the_slowest_of_too_many_workers_are_left_out() {
    let job = job(2, 4, 2);
    let workers = Workers::of_factors(&[1.0, 1.4, 1.0, 1.0, 1.0, 1.3], 2, 4);
    let placed = place(&job.graph, &job.model, Some(&workers), &options()).unwrap();
    assert_eq!(placed.spares, ["r0s1", "spare1"]);
    let few = Workers::of_factors(&[1.0; 3], 2, 4);
    let error = place(&job.graph, &job.model, Some(&few), &options()).unwrap_err();
    assert!(matches!(error, PlaceError::TooFewWorkers { workers: 3, cells: 4, .. }));
}

#[test]
fn replicas_of_one_label_stay_so() {
    let job = job(2, 4, 3);
    let mut workers = Workers::of_factors(&factors(8, 0.5, 3), 2, 6);
    for (i, worker) in workers.list.iter_mut().enumerate() {
        worker.label = Some(if i / 2 % 2 == 0 { "a" } else { "b" }.to_owned());
    }
    let options = PlaceOptions { same: Some("rail".to_owned()), ..options() };
    let placed = place(&job.graph, &job.model, Some(&workers), &options).unwrap();
    let label = |name: &str| &workers.list.iter().find(|w| w.name == name).unwrap().label;
    for replica in placed.cells.chunks(2) {
        assert_eq!(label(&replica[0].worker), label(&replica[1].worker));
    }
    let free = PlaceOptions { same: None, ..options.clone() };
    let free = place(&job.graph, &job.model, Some(&workers), &free).unwrap();
    assert!(free.gains.placed.value <= placed.gains.placed.value);
    workers.list.swap(1, 2);
    let error = place(&job.graph, &job.model, Some(&workers), &options).unwrap_err();
    assert!(matches!(error, PlaceError::GivenOrder { replica: 0, .. }), "{error}");
}

/// The model's own workers: the given order is the model itself.
#[test]
fn the_given_order_is_the_model() {
    let job = job(2, 4, 2);
    let mut wanted = 0.0;
    for threads in [1, 2, 5] {
        let options = PlaceOptions { threads, ..options() };
        let placed = place(&job.graph, &job.model, None, &options).unwrap();
        let run =
            RunOptions { first_sample: 1 << 24, samples: 600, seed: 1, ..RunOptions::default() };
        let tape = prism_engine::predict::lower(&job.graph, &job.model, &LowerOptions::default());
        let samples = tape.unwrap().compile().unwrap().run(&run).unwrap();
        let mut steps: Vec<f64> =
            samples.get("step").unwrap().row(0).iter().map(|v| f64::from(*v)).collect();
        let p95 = Objective::P95.of(&mut steps);
        assert!((placed.gains.given.value / p95 - 1.0).abs() < 1e-6);
        assert!(wanted == 0.0 || wanted == placed.gains.placed.value, "threads change nothing");
        wanted = placed.gains.placed.value;
    }
}

/// A worker so slow that its replica is better dropped, and one that is not.
#[test]
fn a_replica_is_dropped_only_if_that_trains_faster() {
    let job = job(2, 4, 3);
    let ask = |slow: f64, spare: bool| {
        let mut f = vec![1.0; 6 + usize::from(spare)];
        f[0] = slow;
        let workers = Workers::of_factors(&f, 2, 6);
        let options = PlaceOptions { keep_or_drop: true, ..options() };
        place(&job.graph, &job.model, Some(&workers), &options).unwrap().keep_or_drop.unwrap()
    };
    let little = ask(1.1, false);
    assert_eq!((little.advice, little.spare), (Advice::Keep, Spare::Imagined));
    assert_eq!((little.worker.as_str(), little.replicas_left), ("r0s0", 2));
    let much = ask(3.0, false);
    assert_eq!(much.advice, Advice::Drop);
    let per_sample = much.dropped.value / much.kept.value * 1.5;
    assert!((much.dropped_over_kept.value / per_sample - 1.0).abs() < 1e-12);
    let spare = ask(1.5, true);
    assert_eq!((spare.spare, spare.advice), (Spare::Given, Advice::Replace));
    assert!(spare.replaced_over_kept.sampling.upper < 1.0);
    // Kept means at work, whatever spares there are.
    let kept = ask(1.5, false).kept;
    assert!((spare.kept.value / kept.value - 1.0).abs() < 1e-12);
}
