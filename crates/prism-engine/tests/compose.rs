//! Composed laws at the end of a step against closed forms and brute force.

use prism_engine::compose::{
    Bounds, ComposeError, Composed, HangCounts, MaxOptions, Method, PruneOptions, Replicas,
    Situation, Tail, TapeFleet, Tilt, Waits, agreement, choose, importance, order_max,
    over_normal_effect, over_regimes, scaled, slowest, stratify,
};
use prism_engine::sample::{Key, Program, RunOptions, Scope};
use prism_stats::hermite::normal_nodes;
use prism_stats::quantile::sorted;
use prism_stats::{Distribution, Law, order, stream};
use rand::RngExt;

#[allow(dead_code)]
mod scale;
use scale::{Pipeline, Speed, lognormal, table};

fn draws(law: &Law, seed: u64, n: usize) -> Vec<f64> {
    let mut rng = stream(seed, "draws", &[]);
    sorted(&(0..n).map(|_| law.sample(&mut rng)).collect::<Vec<_>>())
}

fn maximum(sorted: &[f64], count: u64) -> Composed {
    order_max(&[Replicas::new(sorted, count)], &MaxOptions::default()).unwrap()
}

/// Asserts that a quantile is within `z` standard errors of what `reference` samples say.
fn agrees(law: &Composed, reference: &[f64], p: f64, z: f64) {
    let answer = law.quantile(p).unwrap();
    let n = reference.len() as f64;
    let at = |q: f64| reference[((q.clamp(0.0, 1.0) * n) as usize).min(reference.len() - 1)];
    let error = z * (p * (1.0 - p) / n).sqrt();
    let (low, high) = (at(p - error), at(p + error));
    let (lower, upper) = (answer.lower.unwrap(), answer.upper.unwrap());
    // Both intervals are generous; they must meet.
    assert!(lower <= high && low <= upper, "{p}: {answer} against {low} to {high}");
}

#[test]
fn one_synchronisation_follows_the_scale_law() {
    let mut p = Program::new(1);
    let noise = p.table(table(&Law::normal(1.0, 0.02).unwrap()));
    let x = p.draw(noise, Key::new("gpu"), Scope::Shared);
    p.output("x", x);
    let options = RunOptions { samples: 1 << 21, ..RunOptions::default() };
    let run = p.compile().unwrap().run(&options).unwrap();
    let values: Vec<f64> = run.get("x").unwrap().row(0).iter().map(|&v| v.into()).collect();
    let values = sorted(&values);
    for (n, percent) in [(64, 4.7), (1024, 6.5), (8192, 7.6), (65_536, 8.6)] {
        let law = maximum(&values, n);
        let mean = 100.0 * (law.mean() - 1.0);
        assert!((mean - percent).abs() < 0.3, "{n}: {mean}");
        let median = order::quantile_of_max(&Law::normal(1.0, 0.02).unwrap(), n, 0.5).unwrap();
        let answer = law.quantile(0.5).unwrap();
        let width = answer.upper.unwrap() - answer.lower.unwrap();
        assert!((answer.value - median).abs() < width && width < 0.01, "{n}: {answer} {median}");
    }
}

#[test]
fn intervals_of_a_maximum_cover_its_quantile() {
    let law = Law::log_normal(0.0, 0.2).unwrap();
    let (replications, n, members) = (150, 3000, 20);
    let mut covered = [0; 2];
    for r in 0..replications {
        let values = draws(&law, r, n);
        let weights = vec![2.5; n];
        let plain = Replicas::new(&values, members);
        for (c, replicas) in
            covered.iter_mut().zip([plain, Replicas { weights: &weights, ..plain }])
        {
            let step = order_max(&[replicas], &MaxOptions::default()).unwrap();
            let answer = step.quantile(0.5).unwrap();
            let want = order::quantile_of_max(&law, members, 0.5).unwrap();
            assert_eq!(answer.bounds, Bounds::Confidence(0.95));
            *c += u32::from(answer.lower.unwrap() <= want && want <= answer.upper.unwrap());
        }
    }
    // 95 % of 150 with a s.d. of 2.7.
    assert!(covered.iter().all(|&c| c >= 132), "{covered:?}");
}

#[test]
fn strata_multiply() {
    let laws =
        [(Law::log_normal(0.0, 0.05).unwrap(), 900), (Law::log_normal(0.1, 0.03).unwrap(), 30)];
    let samples: Vec<_> = (0..2).map(|i| draws(&laws[i].0, i as u64, 200_000)).collect();
    let strata: Vec<_> = (0..2).map(|i| Replicas::new(&samples[i], laws[i].1)).collect();
    let step = order_max(&strata, &MaxOptions::default()).unwrap();
    for p in [0.05, 0.5, 0.9] {
        let want = order::quantile_of_max_over(&laws, p).unwrap();
        let answer = step.quantile(p).unwrap();
        // 95 % bounds at fixed seeds; widened by half for three looks.
        let (low, high) = (answer.lower.unwrap(), answer.upper.unwrap());
        let half = 0.75 * (high - low);
        assert!((answer.value - want).abs() < half, "{p}: {answer} {want}");
        assert!(half < 0.02);
    }
    assert_eq!(step.diagnostics().members, 930);
    assert!((step.diagnostics().plug_in_bias - 2f64.ln() * 900.0 / 4e5).abs() < 1e-12);
}

#[test]
fn a_tail_without_data_is_refused() {
    let values = draws(&Law::normal(1.0, 0.02).unwrap(), 1, 100_000);
    let step = maximum(&values, 1024);
    assert!(step.quantile(0.5).is_ok());
    let error = step.quantile(0.99).unwrap_err();
    let ComposeError::NoData { have, need, to, .. } = &error else { panic!("{error}") };
    // 10⁵ · 9.8·10⁻⁶ samples lie beyond.
    assert!((have - 0.98).abs() < 0.05 && *need == 10.0, "{error}");
    assert!(step.quantile(*to - 1e-6).is_ok() && *to < 0.91 && *to > 0.88, "{to}");
    let none = order_max(&[Replicas::new(&values[..999], 1_000_000)], &MaxOptions::default());
    assert!(matches!(none, Err(ComposeError::NoData { .. })));
    // Followed only on demand, and marked.
    let tail = Tail::Pareto { share: 0.02 };
    let fitted =
        order_max(&[Replicas::new(&values, 1024)], &MaxOptions { tail, ..MaxOptions::default() })
            .unwrap();
    let answer = fitted.quantile(0.99).unwrap();
    assert!(answer.extrapolated && !fitted.quantile(0.5).unwrap().extrapolated);
    let want = order::quantile_of_max(&Law::normal(1.0, 0.02).unwrap(), 1024, 0.99).unwrap();
    assert!((answer.value - want).abs() < 0.015, "{answer} {want}");
    for bad in [&[1.0][..], &[2.0, 1.0], &[1.0, f64::NAN]] {
        assert!(order_max(&[Replicas::new(bad, 3)], &MaxOptions::default()).is_err());
    }
    assert!(order_max(&[], &MaxOptions::default()).is_err());
}

#[test]
fn a_shared_effect_is_averaged_last() {
    let (members, sd) = (512, 0.02);
    let given = |scale: f64, seed| {
        let law = Law::normal(scale, 0.004 * scale).unwrap();
        maximum(&draws(&law, seed, 1 << 18), members)
    };
    let factor = |z: f64| (sd * z - 0.5 * sd * sd).exp();
    let one = given(1.0, 1);
    let by_scale = scaled(&one, sd).unwrap();
    let nodes: Vec<_> = normal_nodes(8)
        .unwrap()
        .into_iter()
        .enumerate()
        .map(|(i, (z, _))| (z, given(factor(z), i as u64)))
        .collect();
    let by_nodes = over_normal_effect(&nodes).unwrap();
    // Brute force: a shared factor and the largest of 512 by its exact law.
    let mut rng = stream(9, "shared", &[]);
    let (shared, own) = (Law::normal(0.0, 1.0).unwrap(), Law::normal(1.0, 0.004).unwrap());
    let reference: Vec<f64> = (0..400_000)
        .map(|_| {
            let u: f64 = rng.random();
            factor(shared.sample(&mut rng))
                * own.quantile_upper(-(u.ln() / members as f64).exp_m1())
        })
        .collect();
    let reference = sorted(&reference);
    for p in [0.01, 0.5, 0.95, 0.99] {
        agrees(&by_scale, &reference, p, 4.0);
        agrees(&by_nodes, &reference, p, 4.0);
        let want = reference[(p * 4e5) as usize];
        let error = (by_nodes.quantile(p).unwrap().value - want).abs();
        assert!(error < 0.001, "{p}: {error}");
    }
    assert!(by_scale.quantile(0.999).is_err());
    // Raising the marginal law to the power would put the median at 1.06 with hardly any spread.
    assert!((by_scale.sd() - 0.02).abs() < 0.001 && by_scale.quantile(0.5).unwrap().value < 1.015);
    assert!(over_normal_effect(&nodes[..1]).is_err());
    assert!(over_normal_effect(&[nodes[1].clone(), nodes[0].clone()]).is_err());
    let regimes = over_regimes(&[(0.9, one.clone()), (0.1, given(1.2, 3))]).unwrap();
    assert!((regimes.sf(1.1) - 0.1).abs() < 1e-3 && regimes.quantile(0.95).unwrap().value > 1.19);
    assert!(over_regimes(&[]).is_err() && scaled(&one, 0.0).is_err());
    let moved = one.affine(2.0, 3.0).unwrap();
    let (a, b) = (one.quantile(0.9).unwrap(), moved.quantile(0.9).unwrap());
    assert!((2.0 + 3.0 * a.value - b.value).abs() < 1e-12 && one.affine(0.0, -1.0).is_err());
}

/// Factors of a fleet, `[stage][replica]`.
fn fleet_factors(stages: usize, replicas: usize) -> Vec<Vec<f32>> {
    let law = lognormal(0.03);
    let mut rng = stream(4, "fleet", &[]);
    (0..stages).map(|_| (0..replicas).map(|_| law.sample(&mut rng) as f32).collect()).collect()
}

#[test]
fn the_slowest_replicas_of_a_known_fleet_are_enough() {
    let (stages, replicas) = (4, 320);
    let factors = fleet_factors(stages, replicas);
    let chosen = |members: &[usize]| -> Vec<Vec<f32>> {
        factors.iter().map(|row| members.iter().map(|&m| row[m]).collect()).collect()
    };
    let pipeline = |rows: &[Vec<f32>]| {
        let replicas = rows[0].len() as u32;
        let speed = Speed::Known(rows);
        Pipeline { stages, microbatches: 8, replicas, speed, ..Pipeline::new() }.program()
    };
    let worst = |r: usize| factors.iter().map(|row| f64::from(row[r])).fold(0.0, f64::max);
    let pilot: Vec<f64> = (0..replicas).map(worst).collect();
    let run = RunOptions { samples: 4096, ..RunOptions::default() };
    for output in ["replica", "step"] {
        let build = |members: &[usize]| pipeline(&chosen(members)).compile();
        let fleet = TapeFleet::new(pilot.clone(), output, run, build);
        let options = PruneOptions {
            start: 6,
            tolerance: 1e-3,
            quantiles: vec![0.5, 0.95],
            ..PruneOptions::default()
        };
        let pruned = slowest(&fleet, &options).unwrap();
        let whole = slowest(&fleet, &PruneOptions { start: replicas, ..options.clone() }).unwrap();
        let (a, b) = (pruned.diagnostics(), whole.diagnostics());
        assert!(a.one_sided && !b.one_sided && a.rounds.len() > 1 && b.rounds.len() == 1);
        assert!(a.rounds.last().unwrap().members < replicas);
        assert_eq!(a.method, Method::SlowestMembers);
        for p in [0.5, 0.95] {
            let (few, all) = (pruned.quantile(p).unwrap().value, whole.quantile(p).unwrap().value);
            // A lower bound: the same draws for the members that both have.
            assert!(few <= all * (1.0 + 1e-9) && few > all * (1.0 - 2e-3), "{p}: {few} {all}");
        }
        let limited =
            PruneOptions { limit: 2, start: 1, tolerance: 1e-9, sampling_error: false, ..options };
        let error = slowest(&fleet, &limited).unwrap_err();
        assert!(matches!(error, ComposeError::NotStable { members: 2, .. }), "{error}");
    }
}

#[test]
fn order_statistics_of_a_pipeline_equal_brute_force() {
    // A small pipeline; the full one is compared in the example `scale_methods`.
    let small = |replicas, speed, doubled| Pipeline {
        stages: 4,
        microbatches: 8,
        replicas,
        speed,
        doubled,
        hangs: 0,
    };
    for (spatial, doubled) in [(0.0, 0.0), (0.03, 0.0), (0.0, 0.01)] {
        let speed = || if spatial > 0.0 { Speed::Redrawn(spatial) } else { Speed::Even };
        let brute = small(64, speed(), doubled).sorted("step", 5, 8192);
        let one = small(1, speed(), doubled).sorted("replica", 6, 1 << 18);
        let law = maximum(&one, 64);
        for p in [0.05, 0.5, 0.95, 0.99] {
            agrees(&law, &brute, p, 3.0);
            let error = law.quantile(p).unwrap().value / brute[(p * 8192.0) as usize] - 1.0;
            assert!(error.abs() < 0.004, "{spatial} {doubled} {p}: {error}");
        }
    }
}

#[test]
fn rare_hangs_are_stratified() {
    let (stages, microbatches) = (3, 6);
    let sites = 2 * stages * microbatches;
    let rate = 1e-3;
    let counts = HangCounts::poisson(sites as f64 * rate, 1e-8).unwrap();
    let pipeline = |hangs| Pipeline { stages, microbatches, hangs, ..Pipeline::new() };
    let strata =
        stratify(&counts, 1 << 14, |k, n| Ok(pipeline(k).times("replica", 7 + u64::from(k), n)))
            .unwrap();
    // Brute force: the number of events is drawn, then the events.
    let mut rng = stream(3, "events", &[]);
    let n = 400_000;
    let mut events = [0_usize; 8];
    for _ in 0..n {
        let mut u: f64 = rng.random();
        let mut k = 0;
        while k + 1 < counts.probabilities().len() && u >= counts.probabilities()[k] {
            u -= counts.probabilities()[k];
            k += 1;
        }
        events[k] += 1;
    }
    let mut brute: Vec<f64> = Vec::new();
    for (k, &n) in events.iter().enumerate().filter(|e| *e.1 > 0) {
        brute.extend(pipeline(k as u32).times("replica", 100 + k as u64, n));
    }
    let brute = sorted(&brute);
    for t in [26.0, 30.0, 40.0, 47.0] {
        let tail = strata.tail(t);
        let share = 1.0 - brute.partition_point(|&x| x <= t) as f64 / f64::from(n);
        let error = (share.max(1e-5) / f64::from(n)).sqrt().hypot(tail.error);
        assert!((tail.probability - share).abs() < 4.0 * error, "{t}: {tail:?} {share}");
        assert!(tail.relative_error() < 0.1 || tail.probability < 1e-4, "{t}: {tail:?}");
    }
    let law = strata.law(16, &MaxOptions::default()).unwrap();
    assert_eq!(law.diagnostics().method, Method::Stratified);
    // P(no replica of 16 hangs) = exp(−0.576): the median is free of hangs, p95 is not.
    assert!(law.quantile(0.5).unwrap().value < 27.0 && law.quantile(0.95).unwrap().value > 36.0);
    let maxima: Vec<f64> = {
        let mut order: Vec<f64> = brute.clone();
        // Ascending samples dealt at random into sixteens.
        for i in (1..order.len()).rev() {
            order.swap(i, rng.random_range(0..=i));
        }
        order.chunks_exact(16).map(|c| c.iter().copied().fold(0.0, f64::max)).collect()
    };
    let maxima = sorted(&maxima);
    for p in [0.3, 0.7, 0.95, 0.99] {
        agrees(&law, &maxima, p, 4.0);
    }
    assert!(law.quantile(0.999_999_9).is_err());
    let binomial = HangCounts::binomial(36, 1e-3, 1e-8).unwrap();
    let total: f64 = binomial.probabilities().iter().sum();
    assert!((1.0 - total) > 0.0 && 1.0 - total <= binomial.uncovered());
    assert!(
        (binomial.probabilities()[2] / (630.0 * 1e-6 * 0.999_f64.powi(34)) - 1.0).abs() < 1e-12
    );
    assert!(HangCounts::poisson(-1.0, 1e-9).is_err() && HangCounts::binomial(3, 1.0, 0.1).is_err());
    assert!(stratify(&counts, 100, |_, _| Ok(vec![1.0])).is_err());
}

/// A program whose tail is known: the slowest of sixteen stages, each a factor (s.d. 0.03) times noise
/// (0.01), so that P(T > t) follows from one lognormal law.
fn stages_program(tilt: Option<&Tilt>) -> Program {
    let mut p = Program::new(1);
    let noise = p.table(table(&lognormal(0.01)));
    let spatial = p.table(table(&lognormal(0.03)));
    let factors = match tilt {
        Some(tilt) => tilt.append(&mut p, "stage", &[0.03; 16]).unwrap(),
        None => {
            (0..16).map(|i| p.draw(spatial, Key::new("stage").with(i), Scope::Shared)).collect()
        }
    };
    let times: Vec<_> = factors
        .iter()
        .enumerate()
        .map(|(i, &f)| {
            let x = p.draw(noise, Key::new("noise").with(i as u64), Scope::Shared);
            p.mul(x, f)
        })
        .collect();
    let step = p.max_of(&times).unwrap();
    p.output("step", step);
    p
}

#[test]
fn tilted_samples_reach_deep_tails_and_must_agree_with_plain_ones() {
    let tilt = Tilt::stages(16, &[2.0, 4.0], 0.2).unwrap();
    let run = |program: &Program, seed, samples| {
        let options = RunOptions { seed, samples, ..RunOptions::default() };
        program.compile().unwrap().run(&options).unwrap()
    };
    let column = |s: &prism_engine::sample::Samples| -> Vec<f64> {
        s.get("step").unwrap().row(0).iter().map(|&x| x.into()).collect()
    };
    let tilted = run(&stages_program(Some(&tilt)), 1, 1 << 15);
    let times = column(&tilted);
    let weights = tilt.read(&tilted, "stage", &[0.03; 16]).unwrap();
    let plain = column(&run(&stages_program(None), 2, 1 << 15));
    assert!(weights.iter().all(|&w| w > 0.0 && w <= 5.0 + 1e-9));
    let mean = weights.iter().sum::<f64>() / weights.len() as f64;
    assert!((mean - 1.0).abs() < 0.03, "{mean}");
    let check = agreement(&times, &weights, &plain).unwrap();
    assert!(check.thresholds.len() >= 6 && check.worst < 4.5);
    // The largest of 8,192 replicas of 16 stages is that of 131,072 products.
    let sd = 0.03_f64.hypot(0.01);
    let product = Law::log_normal(-0.5 * sd * sd, sd).unwrap();
    let law = importance(&times, &weights, &plain, 8192, &MaxOptions::default()).unwrap();
    for p in [0.5, 0.95, 0.99, 0.999] {
        let want = order::quantile_of_max(&product, 16 * 8192, p).unwrap();
        let answer = law.quantile(p).unwrap();
        let (low, high) = (answer.lower.unwrap(), answer.upper.unwrap());
        assert!((answer.value - want).abs() < high - low && high - low < 0.01, "{answer} {want}");
    }
    // Plain samples of the same number would answer nothing.
    let alone = order_max(&[Replicas::new(&sorted(&plain), 8192)], &MaxOptions::default());
    assert!(matches!(alone, Err(ComposeError::NoData { .. })));
    // Weights of another factor's spread, and a cause that the tilted simulation lacks.
    let wrong = tilt.read(&tilted, "stage", &[0.02; 16]).unwrap();
    let error = importance(&times, &wrong, &plain, 64, &MaxOptions::default()).unwrap_err();
    assert!(matches!(error, ComposeError::Disagreement { .. }), "{error}");
    let mut rng = stream(5, "stall", &[]);
    let stalled: Vec<f64> =
        plain.iter().map(|t| if rng.random::<f64>() < 0.005 { 1.3 * t } else { *t }).collect();
    let error = importance(&times, &weights, &stalled, 64, &MaxOptions::default()).unwrap_err();
    assert!(matches!(error, ComposeError::Disagreement { z, .. } if z > 4.5), "{error}");
    assert!(tilt.read(&tilted, "nothing", &[0.03; 16]).is_err());
    assert!(tilt.read(&tilted, "stage", &[0.03; 3]).is_err());
    assert!(Tilt::stages(16, &[], 0.2).is_err() && Tilt::stages(16, &[2.0], 0.0).is_err());
    assert!(Tilt::new(2, 0.5, vec![(0.5, vec![1.0])]).is_err());
}

#[test]
fn the_method_follows_from_the_situation() {
    let base = Situation {
        members: 64,
        waits: Waits::StepEnd,
        known_fleet: false,
        shared_effect: false,
        rare_events: 0.0,
        tiltable: false,
        samples: 1 << 17,
        quantile: 0.99,
        brute_force: 1 << 20,
    };
    let method = |s: Situation| choose(&s).map(|c| c.method);
    assert_eq!(method(base), Ok(Method::OrderStatistics));
    assert_eq!(method(Situation { shared_effect: true, ..base }), Ok(Method::SharedEffect));
    assert_eq!(method(Situation { known_fleet: true, ..base }), Ok(Method::SlowestMembers));
    let small = Situation { known_fleet: true, samples: 4096, ..base };
    assert_eq!(method(small), Ok(Method::BruteForce));
    let waits = Waits::EveryLayer;
    assert_eq!(method(Situation { waits, ..base }), Ok(Method::LogHistogram));
    let waits = Waits::Ahead(1);
    assert_eq!(method(Situation { waits, ..base }), Ok(Method::PrefetchWalk));
    assert_eq!(method(Situation { rare_events: 0.02, ..base }), Ok(Method::Stratified));
    let large = Situation { members: 8192, ..base };
    let choice = choose(&Situation { tiltable: true, ..large }).unwrap();
    assert_eq!(choice.method, Method::Importance);
    assert!(choice.to_string().starts_with("importance sampling: quantile 0.99 of 8192"));
    assert!(matches!(choose(&large), Err(ComposeError::NoData { .. })));
    assert!(choose(&Situation { members: 0, ..base }).is_err());
}
