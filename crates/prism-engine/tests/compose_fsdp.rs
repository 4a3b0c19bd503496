//! FSDP step times against closed forms and brute force.

use prism_engine::compose::{
    Bounds, ComposeError, LayerClass, Method, PrefetchLayer, PrefetchOptions, PrefetchStep,
    PruneOptions, StrictOptions, prefetch_fsdp, strict_fsdp, strict_fsdp_any_fleet,
};
use prism_stats::quantile::sorted;
use prism_stats::{Distribution, Law, stream};

fn lognormal(sigma: f64) -> Law {
    Law::log_normal(-0.5 * sigma * sigma, sigma).unwrap()
}

fn fleet(n: usize, sigma: f64, seed: u64) -> Vec<f64> {
    let mut rng = stream(seed, "fleet", &[]);
    (0..n).map(|_| lognormal(sigma).sample(&mut rng)).collect()
}

fn layers(count: u64, comm: f64) -> Vec<LayerClass> {
    let class = |mean| LayerClass { mean, count, comm, temporal: lognormal(0.05) };
    vec![class(1.0), class(2.0)]
}

#[test]
fn one_gpu_without_waits_is_a_sum() {
    // Fifty layers of a gamma law of shape 20 make one of shape 1,000.
    let temporal = Law::gamma(20.0, 0.05).unwrap();
    let want = Law::gamma(1000.0, 0.05).unwrap();
    let layer = LayerClass { mean: 1.0, count: 50, comm: 0.5, temporal };
    for resolution in [2e-3, 5e-4] {
        let step = strict_fsdp(&[1.0], std::slice::from_ref(&layer), &StrictOptions { resolution });
        let step = step.unwrap();
        for p in [1e-4, 0.05, 0.5, 0.95, 0.999] {
            let (answer, x) = (step.quantile(p).unwrap(), want.quantile(p) + 25.0);
            assert!((answer.value / x - 1.0).abs() < 2e-5, "{p}: {answer} {x}");
            let (low, high) = (answer.lower.unwrap(), answer.upper.unwrap());
            assert!(low <= x && x <= high && high - low < 3.5 * resolution * 50.0, "{p}: {answer}");
            assert_eq!(answer.bounds, Bounds::Rigorous);
        }
        assert!((step.mean() - 75.0).abs() < 1e-3 && (step.sd() / want.sd() - 1.0).abs() < 2e-3);
        assert_eq!(step.diagnostics().method, Method::LogHistogram);
        assert!(step.diagnostics().wrapped < 1e-12 && step.diagnostics().mass_defect < 1e-9);
    }
}

#[test]
fn strict_waits_equal_brute_force() {
    let (factors, layers) = (fleet(150, 0.03, 1), layers(8, 0.25));
    let step = strict_fsdp(&factors, &layers, &StrictOptions::default()).unwrap();
    let n = 4000;
    let mut rng = stream(2, "brute", &[]);
    let mut one = || {
        let mut total = 0.0;
        for layer in &layers {
            for _ in 0..layer.count {
                let slowest =
                    factors.iter().map(|f| f * layer.temporal.sample(&mut rng)).fold(0.0, f64::max);
                total += layer.mean * slowest + layer.comm;
            }
        }
        total
    };
    let brute = sorted(&(0..n).map(|_| one()).collect::<Vec<_>>());
    let mean = brute.iter().sum::<f64>() / f64::from(n);
    assert!((step.mean() - mean).abs() < 4.0 * step.sd() / f64::from(n).sqrt(), "{mean}");
    for p in [0.05, 0.5, 0.95, 0.99] {
        let answer = step.quantile(p).unwrap();
        let error = 4.0 * (p * (1.0 - p) / f64::from(n)).sqrt();
        let at = |q: f64| brute[((q.max(0.0) * f64::from(n)) as usize).min(brute.len() - 1)];
        let (low, high) = (at(p - error), at(p + error));
        assert!(low <= answer.value && answer.value <= high, "{p}: {answer} {low} {high}");
        assert!(answer.lower.unwrap() <= high && low <= answer.upper.unwrap());
    }
}

#[test]
fn the_bracket_shrinks_with_the_resolution_and_holds_the_exact_law() {
    let (factors, layers) = (fleet(4096, 0.03, 3), layers(126, 0.0));
    let at = |resolution| strict_fsdp(&factors, &layers, &StrictOptions { resolution }).unwrap();
    let (coarse, fine, exact) = (at(2e-3), at(5e-4), at(5e-5));
    for p in [0.01, 0.5, 0.99, 0.999] {
        let x = exact.quantile(p).unwrap().value;
        let mut widths = Vec::new();
        for (law, bound) in [(&coarse, 4e-5), (&fine, 4e-6)] {
            let answer = law.quantile(p).unwrap();
            let (low, high) = (answer.lower.unwrap(), answer.upper.unwrap());
            assert!(low <= x && x <= high, "{p}: {answer} {x}");
            assert!((answer.value / x - 1.0).abs() < bound, "{p}: {answer} {x}");
            widths.push((high - low) / x);
        }
        assert!(widths[1] < 1.3e-3 && widths[0] / widths[1] > 3.5, "{widths:?}");
    }
    assert!(strict_fsdp(&[], &layers, &StrictOptions::default()).is_err());
    assert!(strict_fsdp(&[1.0, -1.0], &layers, &StrictOptions::default()).is_err());
    assert!(strict_fsdp(&[1.0], &[], &StrictOptions::default()).is_err());
    assert!(strict_fsdp(&[1.0], &layers, &StrictOptions { resolution: 0.0 }).is_err());
    let below_zero = LayerClass { temporal: Law::normal(1.0, 0.5).unwrap(), ..layers[0].clone() };
    assert!(strict_fsdp(&[1.0], &[below_zero], &StrictOptions::default()).is_err());
}

#[test]
fn unknown_fleets_are_fleets_drawn_whole() {
    // Above and below the number of members that are drawn exactly.
    for (members, fleets) in [(300, 48), (4000, 24)] {
        let (layers, options) = (layers(20, 0.1), StrictOptions { resolution: 1e-3 });
        let spatial = lognormal(0.03);
        let spread =
            strict_fsdp_any_fleet(&spatial, members, fleets, 5, &layers, &options).unwrap();
        let whole: Vec<f64> = (0..u64::from(fleets))
            .map(|i| {
                let factors = fleet(members as usize, 0.03, 100 + i);
                strict_fsdp(&factors, &layers, &options).unwrap().mean()
            })
            .collect();
        let moments = |x: &[f64]| {
            let n = x.len() as f64;
            let mean = x.iter().sum::<f64>() / n;
            (mean, (x.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt())
        };
        let drawn: Vec<f64> =
            spread.fleets.iter().map(prism_engine::compose::Composed::mean).collect();
        let ((m1, s1), (m2, s2)) = (moments(&whole), moments(&drawn));
        let error = (s1 * s1 + s2 * s2).sqrt() / f64::from(fleets).sqrt();
        assert!((m1 - m2).abs() < 4.0 * error, "{members}: {m1} {m2} ± {error}");
        // F of two variances: four of its standard errors in the logarithm.
        let limit = 4.0 / f64::from(fleets - 1).sqrt();
        assert!((s1 / s2).ln().abs() < limit, "{members}: {s1} {s2}");
        assert!((spread.step.mean() - m2).abs() < 1e-6 * m2);
        let by_fleet = spread.quantile_by_fleet(0.95).unwrap();
        assert!(by_fleet.len() == fleets as usize && by_fleet[0] < *by_fleet.last().unwrap());
        let again = strict_fsdp_any_fleet(&spatial, members, fleets, 5, &layers, &options).unwrap();
        assert_eq!(again, spread);
    }
    assert!(
        strict_fsdp_any_fleet(
            &lognormal(0.03),
            0,
            1,
            1,
            &layers(2, 0.0),
            &StrictOptions::default()
        )
        .is_err()
    );
}

#[test]
fn sixty_five_thousand_gpus_cost_what_was_measured_by_brute_force() {
    // docs: over fleets of 65,536 with spatial 0.03 and temporal 0.05, 126 layers forward 1 and backward
    // 2, E[T | fleet] was 484.714 with an s.d. of 0.205 between fleets, and the step's own s.d. 0.522.
    let spread = strict_fsdp_any_fleet(
        &lognormal(0.03),
        65_536,
        16,
        1,
        &layers(126, 0.0),
        &StrictOptions::default(),
    )
    .unwrap();
    let n = 16.0_f64;
    let mean = spread.fleets.iter().map(prism_engine::compose::Composed::mean).sum::<f64>() / n;
    assert!((mean - 484.714).abs() < 4.0 * 0.205 / n.sqrt(), "{mean}");
    assert!((spread.fleets[0].sd() - 0.522).abs() < 0.02, "{}", spread.fleets[0].sd());
}

fn step(count: usize, gather: f64, depth: u32, noise: Law) -> PrefetchStep {
    let forward = vec![PrefetchLayer { mean: 1.0, gather, law: 0 }; count];
    let backward = vec![PrefetchLayer { mean: 2.0, gather, law: 0 }; count];
    let step = PrefetchStep::forward_backward(&forward, &backward, vec![noise], 0.7);
    PrefetchStep { depth, ..step }
}

fn options(samples: usize, prune: PruneOptions) -> PrefetchOptions {
    PrefetchOptions { samples, seed: 3, threads: 0, prune }
}

fn all(n: usize) -> PruneOptions {
    PruneOptions { start: n, quantiles: vec![0.5], ..PruneOptions::default() }
}

#[test]
fn prefetch_without_noise_has_its_closed_form() {
    let value = |gather, depth| {
        let step = step(10, gather, depth, Law::constant(1.0).unwrap());
        let law = prefetch_fsdp(&[1.0, 1.1], &step, &options(64, all(2))).unwrap();
        law.quantile(0.5).unwrap().value
    };
    // Computation hides short gathers: the slowest GPU computes without a pause.
    assert!((value(0.3, 1) - (0.3 + 33.0 + 0.7)).abs() < 1e-4, "{}", value(0.3, 1));
    // Gathers one after the other hide computation; the last layer's is left.
    assert!((value(9.0, 1) - (180.0 + 2.2 + 0.7)).abs() < 1e-3, "{}", value(9.0, 1));
    assert!((value(9.0, 4) - value(9.0, 1)).abs() < 1e-3);
    // A gather of 1.5 is longer than a forward layer and shorter than a backward one: ten forward
    // gathers in a row, then the backward layers from the eleventh gather on.
    assert!((value(1.5, 1) - (11.0 * 1.5 + 22.0 + 0.7)).abs() < 1e-3, "{}", value(1.5, 1));
}

/// The walk by its definition, in double precision, with another generator.
fn walk(factors: &[f64], step: &PrefetchStep, rng: &mut rand_chacha::ChaCha8Rng) -> f64 {
    let mut gathered = step.layers[0].gather;
    let mut start = vec![gathered; factors.len()];
    let mut started = Vec::new();
    for (l, layer) in step.layers.iter().enumerate() {
        started.push(start.iter().copied().fold(0.0, f64::max));
        for (s, f) in start.iter_mut().zip(factors) {
            *s += layer.mean * f * step.laws[layer.law].sample(rng);
        }
        if let Some(next) = step.layers.get(l + 1) {
            let free = (l + 1).checked_sub(step.depth as usize).map_or(0.0, |i| started[i]);
            gathered = gathered.max(free) + next.gather;
            start.iter_mut().for_each(|s| *s = s.max(gathered));
        }
    }
    start.iter().copied().fold(0.0, f64::max) + step.tail
}

#[test]
fn prefetch_equals_its_definition() {
    let factors = fleet(40, 0.03, 7);
    for (gather, depth) in [(0.3, 1), (1.4, 1), (1.4, 2)] {
        let step = step(12, gather, depth, lognormal(0.1));
        let law = prefetch_fsdp(&factors, &step, &options(1 << 14, all(40))).unwrap();
        let mut rng = stream(8, "walk", &[]);
        let n = 4000;
        let brute = sorted(&(0..n).map(|_| walk(&factors, &step, &mut rng)).collect::<Vec<_>>());
        let mean = brute.iter().sum::<f64>() / f64::from(n);
        let error = law.sd() * (1.0 / f64::from(n) + 1.0 / f64::from(1 << 14)).sqrt();
        assert!((law.mean() - mean).abs() < 4.0 * error, "{gather} {depth}: {} {mean}", law.mean());
        for p in [0.05, 0.5, 0.95] {
            let x = law.quantile(p).unwrap().value;
            let share = brute.partition_point(|&b| b <= x) as f64 / f64::from(n);
            // Of both samples; the law's has four times as many.
            let error = (1.25 * p * (1.0 - p) / f64::from(n)).sqrt();
            assert!((share - p).abs() < 4.0 * error, "{gather} {depth} {p}: {share}");
        }
        assert!(!law.diagnostics().one_sided);
    }
}

#[test]
fn the_slowest_gpus_equal_all_gpus() {
    let factors = fleet(4096, 0.03, 9);
    let step = step(16, 0.6, 1, lognormal(0.05));
    let few = prefetch_fsdp(
        &factors,
        &step,
        &options(
            512,
            PruneOptions {
                start: 128,
                quantiles: vec![0.5, 0.95],
                ..PrefetchOptions::default().prune
            },
        ),
    );
    let few = few.unwrap();
    let whole = prefetch_fsdp(&factors, &step, &options(512, all(4096))).unwrap();
    let diagnostics = few.diagnostics();
    assert!(diagnostics.one_sided && diagnostics.rounds.last().unwrap().members < 4096);
    assert_eq!((diagnostics.members, diagnostics.method), (4096, Method::PrefetchWalk));
    for p in [0.5, 0.95] {
        let (a, b) = (few.quantile(p).unwrap().value, whole.quantile(p).unwrap().value);
        assert!(a <= b && a > b * (1.0 - 1e-4), "{p}: {a} {b}");
    }
    let strict = LayerClass { mean: 1.0, count: 16, comm: 0.6, temporal: lognormal(0.05) };
    let layers = [strict.clone(), LayerClass { mean: 2.0, ..strict }];
    let strict = strict_fsdp(&factors, &layers, &StrictOptions::default()).unwrap();
    assert!(strict.quantile(0.5).unwrap().value > 1.1 * few.quantile(0.5).unwrap().value);
    let error = prefetch_fsdp(
        &factors,
        &step,
        &options(
            512,
            PruneOptions { limit: 8, start: 4, sampling_error: false, tolerance: 1e-9, ..all(4) },
        ),
    );
    assert!(matches!(error, Err(ComposeError::NotStable { .. })), "{error:?}");
    let mut bad = step.clone();
    bad.layers[3].law = 1;
    assert!(prefetch_fsdp(&factors, &bad, &options(64, all(1))).is_err());
    bad.depth = 0;
    assert!(prefetch_fsdp(&factors, &bad, &options(64, all(1))).is_err());
}

#[test]
fn threads_do_not_change_a_bit() {
    let factors = fleet(300, 0.03, 11);
    let step = step(6, 0.5, 2, lognormal(0.05));
    let with = |threads| {
        let options = PrefetchOptions { threads, ..options(1000, all(64)) };
        prefetch_fsdp(&factors, &step, &options).unwrap()
    };
    assert_eq!(with(1), with(3));
    let strict = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let options = StrictOptions { resolution: 2e-3 };
        let run = || strict_fsdp_any_fleet(&lognormal(0.03), 2000, 5, 2, &layers(9, 0.0), &options);
        pool.install(run).unwrap()
    };
    assert_eq!(strict(1), strict(3));
}
