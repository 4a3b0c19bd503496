use rand::{Rng, RngExt};

use super::*;
use crate::law::{Distribution, Law};
use crate::stream::stream;

fn close(got: f64, want: f64, absolute: f64) {
    assert!((got - want).abs() <= absolute, "got {got}, want {want}");
}

#[test]
fn ranks_are_those_of_a_search_over_scipy_binomials() {
    // Largest l with binom.cdf(l-1, n, p) ≤ α/2, smallest u with binom.sf(u-1, n, p) ≤ α/2.
    let cases = [
        (10_000, 0.95, 0.95, Some(9457), Some(9543), 0.951_528_054_654_334_7),
        (43, 0.5, 0.95, Some(15), Some(29), 0.968_460_502_646_848_9),
        (43, 0.95, 0.95, Some(38), None, 0.980_575_699_755_977_8),
        (100, 0.95, 0.9, Some(91), Some(99), 0.934_730_496_509_228_7),
    ];
    for (n, p, confidence, lower, upper, coverage) in cases {
        let got = quantile_ranks(n, p, confidence).unwrap();
        assert_eq!((got.lower, got.upper), (lower, upper), "{n} {p}: {got:?}");
        close(got.coverage, coverage, 1e-10);
    }
    let one = quantile_ranks(1, 0.5, 0.95).unwrap();
    assert_eq!((one.lower, one.upper, one.coverage), (None, None, 1.0));
    assert!(quantile_ranks(0, 0.5, 0.9).is_err() && quantile_ranks(3, 1.0, 0.9).is_err());
}

#[test]
fn a_hundred_million_samples_have_an_interval() {
    let got = quantile_ranks(1 << 27, 0.999, 0.95).unwrap();
    let (n, sd) = (f64::from(1 << 27), (f64::from(1 << 27) * 0.999e-3).sqrt());
    close(got.lower.unwrap() as f64, 0.999 * n - 1.96 * sd, 3.0);
    close(got.upper.unwrap() as f64, 0.999 * n + 1.96 * sd, 3.0);
    close(got.coverage, 0.95, 1e-3);
}

#[test]
fn quantile_intervals_cover_at_the_computed_rate() {
    let law = Law::gamma(2.0, 1.0).unwrap();
    for (n, p) in [(43, 0.5), (200, 0.95)] {
        let runs = 4000;
        let want = quantile_ranks(n, p, 0.9).unwrap().coverage;
        let covered = (0..runs)
            .filter(|&run| {
                let mut rng = stream(run, "quantile-coverage", &[n]);
                let draws: Vec<f64> = (0..n).map(|_| law.sample(&mut rng)).collect();
                let sorted = crate::quantile::sorted(&draws);
                quantile_interval(&sorted, p, 0.9).unwrap().contains(law.quantile(p))
            })
            .count() as f64
            / runs as f64;
        close(covered, want, 4.0 * (want * (1.0 - want) / runs as f64).sqrt());
    }
}

fn pair_coverage(couple: impl Fn(f64, &mut dyn Rng) -> f64, p: f64) -> f64 {
    let runs = 2000;
    (0..runs)
        .filter(|&run| {
            let mut rng = stream(run, "pairs", &[]);
            let pairs: Vec<[f64; 2]> = (0..100)
                .map(|_| {
                    let u: f64 = rng.random();
                    [u, couple(u, &mut rng)]
                })
                .collect();
            quantile_interval_pairs(&pairs, p, 0.9).unwrap().contains(p)
        })
        .count() as f64
        / runs as f64
}

#[test]
fn pair_intervals_cover_whatever_the_coupling() {
    let floor = 0.9 - 3.0 * (0.09f64 / 2000.0).sqrt();
    for p in [0.5, 0.9] {
        assert!(pair_coverage(|u, _| 1.0 - u, p) > floor, "antithetic");
        assert!(pair_coverage(|u, _| u, p) > floor, "equal");
        assert!(pair_coverage(|_, rng| rng.random(), p) > floor, "independent");
        // A coupling that shifts each member to the same side at the quantile.
        assert!(pair_coverage(|u, _| (u + 0.5).fract(), p) > floor, "shifted");
    }
}

#[test]
fn pair_ranks_are_wider_but_not_by_much() {
    let (iid, pairs) =
        (quantile_ranks(2000, 0.9, 0.95).unwrap(), quantile_ranks_pairs(1000, 0.9, 0.95).unwrap());
    let width = |r: &Ranks| (r.upper.unwrap() - r.lower.unwrap()) as f64;
    let ratio = width(&pairs) / width(&iid);
    assert!(ratio > 1.0 && ratio < 1.75, "{ratio}");
    assert!(pairs.coverage >= 0.95);
    assert_eq!(quantile_ranks_pairs(2, 0.5, 0.95).unwrap().lower, None);
    assert!(quantile_interval_pairs(&[], 0.5, 0.95).is_err());
}

#[test]
fn guarantees_have_the_published_sizes() {
    assert!(matches!(
        tolerance_upper(59, 0.95, 0.95).unwrap(),
        Tolerance::Bound { rank: 59, confidence } if (confidence - (1.0 - 0.95f64.powi(59))).abs() < 1e-12
    ));
    for (n, max) in [(44, 0.895), (32, 0.806), (58, 0.949)] {
        match tolerance_upper(n, 0.95, 0.95).unwrap() {
            Tolerance::NeedMore { n_needed, confidence_of_max } => {
                assert_eq!(n_needed, 59);
                close(confidence_of_max, max, 5e-4);
            }
            bound @ Tolerance::Bound { .. } => panic!("{n} gave {bound:?}"),
        }
    }
    // Published tables (Conover): second largest from 93, third from 124.
    for (n, from_top) in [(92, 0), (93, 1), (123, 1), (124, 2)] {
        let Tolerance::Bound { rank, confidence } = tolerance_upper(n, 0.95, 0.95).unwrap() else {
            panic!("{n} is enough");
        };
        assert_eq!(rank, n - from_top);
        assert!(confidence >= 0.95);
    }
    assert!(tolerance_upper(0, 0.95, 0.95).is_err() && tolerance_upper(5, 0.0, 0.95).is_err());
}

#[test]
fn a_guarantee_holds_as_often_as_it_says() {
    let n = 93;
    let Tolerance::Bound { rank, confidence } = tolerance_upper(n, 0.95, 0.95).unwrap() else {
        panic!("93 values are enough");
    };
    let runs = 4000;
    let held = (0..runs)
        .filter(|&run| {
            let mut rng = stream(run, "guarantee", &[]);
            let draws: Vec<f64> = (0..n).map(|_| rng.random()).collect();
            crate::quantile::sorted(&draws)[rank as usize - 1] >= 0.95
        })
        .count() as f64
        / runs as f64;
    close(held, confidence, 4.0 * (0.05 * 0.95 / runs as f64).sqrt());
}

#[test]
fn mean_and_sd_intervals_agree_with_scipy() {
    // t.interval(.95, 6, mean(v), sem(v)); sqrt(6·var(v, ddof=1)/chi2.ppf([.975, .025], 6))
    let v = [3.1, 2.8, 3.5, 3.0, 3.9, 4.1, 3.3];
    let mean = mean_interval(&v, 0.95).unwrap();
    close(mean.lower, 2.944_014_271_015_039_4, 1e-12);
    close(mean.upper, 3.827_414_300_413_532, 1e-12);
    let sd = sd_interval(&v, 0.95).unwrap();
    close(sd.lower, 0.307_757_89, 1e-8);
    close(sd.upper, 1.051_691_74, 1e-8);
    assert!(mean_interval(&[1.0], 0.95).is_err() && sd_interval(&v, 1.0).is_err());
}

#[test]
fn share_intervals_agree_with_scipy() {
    // binomtest(k, n).proportion_ci(.95, "wilson" | "exact")
    let cases = [
        (0, 20, 0.0, 0.161_125_158_052_819_35, 0.0, 0.168_433_470_983_085_48),
        (
            3,
            20,
            0.052_368_745_896_216_62,
            0.360_418_864_740_756_9,
            0.032_070_937_185_544_77,
            0.378_926_826_545_295_64,
        ),
        (20, 20, 0.838_874_841_947_180_8, 1.0, 0.831_566_529_016_914_5, 1.0),
        (
            950,
            1000,
            0.934_686_179_755_749_1,
            0.961_869_737_607_251_1,
            0.934_609_512_084_506_4,
            0.962_664_602_395_339_4,
        ),
        (
            1,
            1_000_000,
            1.765_245_767_453_709e-7,
            5.664_911_804_311_442e-6,
            2.531_780_513_911_381_5e-8,
            5.571_630_655_512_304e-6,
        ),
    ];
    for (k, n, wilson_low, wilson_high, exact_low, exact_high) in cases {
        let w = wilson(k, n, 0.95).unwrap();
        let e = clopper_pearson(k, n, 0.95).unwrap();
        for (got, want) in [
            (w.lower, wilson_low),
            (w.upper, wilson_high),
            (e.lower, exact_low),
            (e.upper, exact_high),
        ] {
            close(got, want, 1e-9 * want.max(1e-3));
        }
    }
    assert!(wilson(3, 2, 0.95).is_err() && clopper_pearson(0, 0, 0.95).is_err());
}

#[test]
fn the_band_covers_the_whole_distribution_function() {
    let (n, runs) = (50, 4000);
    let half = dkw_half_width(n, 0.9).unwrap();
    close(half, (20f64.ln() / 100.0).sqrt(), 1e-15);
    let law = Law::normal(0.0, 1.0).unwrap();
    let covered = (0..runs)
        .filter(|&run| {
            let mut rng = stream(run, "dkw", &[]);
            let draws: Vec<f64> = (0..n).map(|_| law.sample(&mut rng)).collect();
            crate::ks_statistic(&crate::quantile::sorted(&draws), &law).unwrap() <= half
        })
        .count() as f64
        / runs as f64;
    assert!(covered > 0.9 - 3.0 * (0.09 / runs as f64).sqrt() && covered < 0.95, "{covered}");
    assert_eq!(dkw_half_width(1, 0.999).unwrap(), 1.0);
    assert!(dkw_half_width(0, 0.9).is_err());
}

#[test]
fn a_ratio_of_equal_denominators_is_a_scaled_mean() {
    let values = [2.0, 2.5, 1.9, 3.1, 2.2];
    let mean = mean_interval(&values, 0.9).unwrap();
    let ratio = ratio_interval(&values, &[4.0; 5], 0.9).unwrap();
    close(ratio.lower, mean.lower / 4.0, 1e-14);
    close(ratio.upper, mean.upper / 4.0, 1e-14);
    let mut equal = ratio_interval(&values, &values, 0.9).unwrap();
    assert!(equal.contains(1.0) && equal.upper - equal.lower < 1e-14);
    equal.lower = 2.0;
    assert!(!equal.contains(1.0));
    assert!(ratio_interval(&[1.0, 2.0], &[1.0], 0.9).is_err());
    assert!(ratio_interval(&[1.0, 2.0], &[1.0, -1.0], 0.9).is_err());
    assert!(ratio_interval(&[1.0, 2.0], &[0.0, 1.0], 0.9).is_err());
    assert!(ratio_interval(&[1.0], &[1.0], 0.9).is_err());
    assert!(ratio_interval(&[1.0, f64::NAN], &[1.0, 1.0], 0.9).is_err());
}

#[test]
fn intervals_of_ratios_cover_at_the_confidence_asked_for() {
    // Correlated pairs: denominators 1 + 0.1 z, numerators 2 denominators + 0.2 w.
    let truth = 2.0;
    let mut rng = stream(5, "ratio-coverage", &[]);
    let normal = |rng: &mut dyn Rng| crate::htest::normal_quantile(rng.random_range(1e-12..1.0));
    let trials = 4000_u32;
    let covered = (0..trials)
        .filter(|_| {
            let bottom: Vec<f64> = (0..20).map(|_| 1.0 + 0.1 * normal(&mut rng)).collect();
            let top: Vec<f64> = bottom.iter().map(|b| 2.0 * b + 0.2 * normal(&mut rng)).collect();
            ratio_interval(&top, &bottom, 0.9).unwrap().contains(truth)
        })
        .count();
    let share = covered as f64 / f64::from(trials);
    // Three standard errors of the share, and half a percent for a jackknife of 20 values.
    let tolerance = 3.0 * (0.9 * 0.1 / f64::from(trials)).sqrt() + 0.005;
    close(share, 0.9, tolerance);
}
