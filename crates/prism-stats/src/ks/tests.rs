use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::law::Law;

fn close(got: f64, want: f64, relative: f64, what: &str) {
    assert!(((got - want) / want).abs() <= relative, "{what}: got {got:e}, want {want:e}");
}

/// scipy 1.17.1: `kstwo.cdf(d, n)`, `kstwo.sf(d, n)`.
#[test]
fn the_finite_n_law_agrees_with_scipy() {
    let cases = [
        (1, 0.7, 0.4, 0.6, 1e-12),
        (5, 0.3, 0.336, 0.664, 1e-12),
        (10, 0.27, 0.610_944_132_920_732_5, 0.389_055_867_079_267_5, 1e-11),
        (43, 0.13, 0.574_468_665_551_282_3, 0.425_531_334_448_717_7, 1e-10),
        (43, 0.203, 0.950_312_802_850_127_4, 0.049_687_197_149_872_575, 1e-10),
        (140, 0.08, 0.685_192_500_883_569_4, 0.314_807_499_116_430_63, 1e-10),
        (141, 0.08, 0.689_158_291_207_358_8, 0.310_841_708_792_641_2, 3e-6),
        (500, 0.04, 0.609_749_130_395_025_2, 0.390_250_869_604_974_8, 1e-6),
        (5000, 0.012, 0.536_008_783_330_980_9, 0.463_991_216_669_019_1, 1e-7),
        (20, 0.6, 1.0, 2.048_301_164_971_985e-7, 3e-7),
        (1000, 0.09, 1.0, 1.691_177_598_443_478_7e-7, 1e-6),
        (20_000, 0.01, 0.963_613_960_947_512_7, 0.036_386_039_052_487_27, 1e-5),
        (200_000, 0.004, 0.996_685_787_192_453_4, 0.003_314_212_822_560_255, 2e-5),
    ];
    for (n, d, cdf, sf, tolerance) in cases {
        close(ks_cdf(n, d), cdf, tolerance, &format!("cdf n = {n}, d = {d}"));
        close(ks_sf(n, d), sf, tolerance, &format!("sf n = {n}, d = {d}"));
    }
    assert_eq!((ks_cdf(5, 0.1), ks_cdf(5, 1.0), ks_sf(5, 2.0)), (0.0, 1.0, 0.0));
}

#[test]
fn the_law_ascends_across_its_switches() {
    for n in [3, 43, 140, 141, 400] {
        let mut before = 0.0;
        for i in 1..400 {
            let p = ks_cdf(n, f64::from(i) / 400.0);
            assert!(p >= before - 1e-12, "n = {n}, d = {}", f64::from(i) / 400.0);
            before = p;
        }
    }
}

/// scipy 1.17.1: `kstwo.mean(n)`, `kstwo.ppf(.95, n)`.
#[test]
fn the_floor_agrees_with_scipy() {
    let cases = [
        (1, 0.75, 0.975),
        (5, 0.358_338_597_755_037_2, 0.563_275_198_366_065_3),
        (43, 0.128_734_946_416_946_5, 0.202_825_975_671_668_46),
        (200, 0.060_608_449_321_000_75, 0.095_157_876_018_313_46),
        (2000, 0.019_342_504_843_930_6, 0.030_283_371_115_959_34),
    ];
    for (n, mean, p95) in cases {
        let floor = ks_floor(n).unwrap();
        close(floor.mean, mean, 2e-5, &format!("mean at n = {n}"));
        close(floor.p95, p95, 1e-5, &format!("p95 at n = {n}"));
    }
    assert!(ks_floor(0).is_err());
}

#[test]
fn the_floor_is_what_simulation_gives() {
    let (n, repetitions) = (22, 4000);
    let law = Law::log_normal(0.0, 0.3).unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    let mut distances: Vec<f64> = (0..repetitions)
        .map(|_| {
            let mut draws: Vec<f64> = (0..n).map(|_| law.sample(&mut rng)).collect();
            draws.sort_by(f64::total_cmp);
            ks_statistic(&draws, &law).unwrap()
        })
        .collect();
    let floor = ks_floor(n).unwrap();
    let mean = distances.iter().sum::<f64>() / f64::from(repetitions);
    // The distance has a s.d. of about 0.26/√n.
    let error = 0.26 / (n as f64).sqrt() / f64::from(repetitions).sqrt();
    assert!((mean - floor.mean).abs() < 4.0 * error, "{mean} {}", floor.mean);
    distances.retain(|&d| d > floor.p95);
    let share = distances.len() as f64 / f64::from(repetitions);
    assert!((share - 0.05).abs() < 4.0 * (0.05 * 0.95 / f64::from(repetitions)).sqrt());
}

/// scipy 1.17.1: `ks_2samp(..., method="exact")` through `_attempt_exact_2kssamp(n, m, g, d)`.
#[test]
fn the_two_sample_law_agrees_with_scipy() {
    let cases = [
        (5, 7, 0.6, 1.0 / 6.0, 1e-12),
        (8, 8, 0.5, 0.282_672_882_672_882_6, 1e-12),
        (22, 21, 0.35, 0.105_606_026_271_286, 1e-11),
        (43, 200, 0.2, 0.100_553_868_347_904_92, 1e-11),
        (1000, 1000, 0.0607, 0.048_397_150_791_812_46, 1e-10),
        (30, 1000, 0.2, 0.169_630_562_644_100_73, 1e-11),
    ];
    for (n, m, d, sf, tolerance) in cases {
        close(ks_sf_two(n, m, d), sf, tolerance, &format!("n = {n}, m = {m}"));
        close(ks_sf_two(m, n, d), sf, tolerance, &format!("n = {m}, m = {n}"));
    }
    let asymptotic = ks_sf_two(1001, 1000, 0.0607);
    assert!((asymptotic - 0.0484).abs() < 5e-4, "{asymptotic}");
}

/// Sums over the lattice of scipy 1.17.1's `_attempt_exact_2kssamp`.
#[test]
fn the_two_sample_floor_agrees_with_scipy() {
    let cases = [
        (3, 4, 0.559_523_809_523_809_6, 1.0, 1e-12),
        (8, 8, 0.378_904_428_904_428_9, 0.625, 1e-12),
        (22, 21, 0.245_089_429_774_278_6, 182.0 / 462.0, 1e-10),
        (40, 40, 0.182_362_165_313_656_12, 0.3, 1e-10),
        // 8,600 lattice points: by Simpson's rule.
        (43, 200, 0.140_801_080_136_301, 1913.0 / 8600.0, 5e-4),
    ];
    for (n, m, mean, p95, tolerance) in cases {
        let floor = ks_floor_two(n, m).unwrap();
        close(floor.mean, mean, tolerance, &format!("mean at {n}, {m}"));
        close(floor.p95, p95, tolerance, &format!("p95 at {n}, {m}"));
    }
    assert!(ks_floor_two(0, 3).is_err());
}

#[test]
fn the_two_sample_floor_tends_to_the_one_sample_floor() {
    let (one, two) = (ks_floor(30).unwrap(), ks_floor_two(30, 20_000).unwrap());
    close(two.mean, one.mean, 3e-3, "mean");
    close(two.p95, one.p95, 3e-3, "p95");
}

#[test]
fn statistics_equal_brute_force_under_ties() {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    for _ in 0..200 {
        let mut draw = |n: usize| {
            let mut v: Vec<f64> =
                (0..n).map(|_| f64::from(rng.random_range(0..6_u32)) / 2.0).collect();
            v.sort_by(f64::total_cmp);
            v
        };
        let (a, b) = (draw(7), draw(5));
        let share =
            |v: &[f64], x: f64| v.iter().filter(|&&y| y <= x).count() as f64 / v.len() as f64;
        // Points around every possible value reach both sides of each jump.
        let points: Vec<f64> = (-1..=60).map(|i| f64::from(i) / 20.0 + 0.01).collect();
        let brute = points.iter().map(|&x| (share(&a, x) - share(&b, x)).abs()).fold(0.0, f64::max);
        assert!((ks_statistic_two(&a, &b).unwrap() - brute).abs() < 1e-15);
        let law = Law::constant(1.5).unwrap();
        let brute = points.iter().map(|&x| (share(&a, x) - law.cdf(x)).abs()).fold(0.0, f64::max);
        assert!((ks_statistic(&a, &law).unwrap() - brute).abs() < 1e-15);
    }
}

#[test]
fn a_sample_against_a_normal_agrees_with_scipy() {
    // kstest([-1.2, -.3, .1, .4, .4, 2.2], "norm").statistic = max of |k/6 − Φ| on either side
    let v = [-1.2, -0.3, 0.1, 0.4, 0.4, 2.2];
    let got = ks_statistic(&v, &Law::normal(0.0, 1.0).unwrap()).unwrap();
    close(got, 0.215_421_911_144_380_72, 1e-12, "statistic");
    assert!(ks_statistic(&[2.0, 1.0], &Law::normal(0.0, 1.0).unwrap()).is_err());
    assert!(ks_statistic_two(&[], &[1.0]).is_err());
}
