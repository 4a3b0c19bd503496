//! Quantile tables against the laws they were made from.

use prism_stats::counter::{Key, Stream};
use prism_stats::quantile_table::{Jumps, QuantileTable, QuantileTableError, Side, magnitude};
use statrs::distribution::{ContinuousCDF, Exp, Normal};

fn normal() -> Normal {
    Normal::standard()
}

fn lognormal(sigma: f64) -> QuantileTable {
    let at = move |z: f64| (sigma * z - 0.5 * sigma * sigma).exp();
    let lower = move |p: f64| at(normal().inverse_cdf(p));
    QuantileTable::from_quantiles(lower, move |q| at(-normal().inverse_cdf(q))).unwrap()
}

fn lognormal_cdf(sigma: f64) -> impl Fn(f64) -> f64 {
    move |x: f64| if x <= 0.0 { 0.0 } else { normal().cdf((x.ln() + 0.5 * sigma * sigma) / sigma) }
}

fn lognormal_sd(sigma: f64) -> f64 {
    (sigma * sigma).exp_m1().sqrt()
}

fn close(got: f64, want: f64, tolerance: f64, what: &str) {
    assert!((got - want).abs() <= tolerance, "{what}: {got}, not {want} ± {tolerance}");
}

#[test]
fn lognormal_moments_and_distance() {
    // A quadratic per octave follows narrow laws more closely than wide ones.
    for (sigma, distance) in [(0.005, 1.5e-3), (0.05, 1.5e-3), (0.3, 2e-3), (1.0, 5e-3)] {
        let a = lognormal(sigma).accuracy(lognormal_cdf(sigma));
        // Single precision limits the mean of narrow laws.
        close(a.mean, 1.0, 2e-6 * sigma + 6e-8, &format!("mean at {sigma}"));
        close(a.sd / lognormal_sd(sigma), 1.0, 2e-4, &format!("sd at {sigma}"));
        eprintln!("lognormal {sigma}: {a:?}");
        assert!(a.ks < distance, "distance at {sigma}: {}", a.ks);
    }
}

#[test]
fn normal_tails_to_the_last_word() {
    let table =
        QuantileTable::from_quantiles(|p| normal().inverse_cdf(p), |q| -normal().inverse_cdf(q))
            .unwrap();
    for octave in 1..31 {
        for j in 0..16_u32 {
            let m = (1_u32 << octave) + (j << octave >> 4);
            let tail = (f64::from(m) + 0.5) / 4_294_967_296.0;
            let z = normal().inverse_cdf(tail);
            // Half a percent of a standard deviation, in the lowest octaves of few words a little more.
            let tolerance = if octave < 4 { 0.05 } else { 0.005 };
            close(f64::from(table.value(m)), z, tolerance, &format!("lower {m:x}"));
            close(f64::from(table.value(m | 1 << 31)), -z, tolerance, &format!("upper {m:x}"));
        }
    }
    // The word of no magnitude at all is in no octave, yet has a value beyond the last one.
    assert!(table.value(0) < -5.5 && table.value(0) > -8.0);
    assert!(table.value(1 << 31) > 5.5 && table.value(1 << 31) < 8.0);
}

#[test]
fn sampled_normal_law_passes_kolmogorov_smirnov() {
    let table =
        QuantileTable::from_quantiles(|p| normal().inverse_cdf(p), |q| -normal().inverse_cdf(q))
            .unwrap();
    let n = 1 << 22;
    let stream = Stream::new(20, Key::new("normality"));
    let mut values: Vec<f32> = (0..n).map(|c| table.value(stream.word(c))).collect();
    values.sort_unstable_by(f32::total_cmp);
    let ks = values.iter().enumerate().fold(0.0_f64, |ks, (i, &x)| {
        let f = normal().cdf(f64::from(x));
        let n = f64::from(n);
        ks.max((f - i as f64 / n).abs()).max((f - (i + 1) as f64 / n).abs())
    });
    // 1.63/√n is the 1 % point for the exact law; the table adds its own distance.
    let own = table.accuracy(|x| normal().cdf(x)).ks;
    assert!(ks < 1.63 / f64::from(n).sqrt() + own, "{ks} with {own} of the table");
    let mean = values.iter().map(|&x| f64::from(x)).sum::<f64>() / f64::from(n);
    close(mean, 0.0, 4.0 / f64::from(n).sqrt(), "mean");
}

#[test]
fn the_exponential_law_keeps_its_mean() {
    let exp = Exp::new(1.0).unwrap();
    let table = QuantileTable::from_quantiles(|p| -(-p).ln_1p(), |q| -q.ln()).unwrap();
    let a = table.accuracy(|x| exp.cdf(x));
    close(a.mean, 1.0, 1e-6, "mean");
    close(a.sd, 1.0, 1e-4, "sd");
}

/// Two lognormal modes, the upper with weight w: exact quantiles by bisection.
fn two_modes(weight: f64, factor: f64) -> (impl Fn(f64) -> f64 + Copy, impl Fn(f64) -> f64 + Copy) {
    let sigma = 0.05;
    let z = move |x: f64| x.ln() / sigma;
    let cdf =
        move |x: f64| (1.0 - weight) * normal().cdf(z(x)) + weight * normal().cdf(z(x / factor));
    let sf =
        move |x: f64| (1.0 - weight) * normal().cdf(-z(x)) + weight * normal().cdf(-z(x / factor));
    let bisect = |above: &dyn Fn(f64) -> bool| {
        let (mut low, mut high) = (0.01_f64, 100.0_f64);
        for _ in 0..80 {
            let middle = f64::midpoint(low, high);
            if above(middle) { high = middle } else { low = middle }
        }
        f64::midpoint(low, high)
    };
    (move |p| bisect(&|x| cdf(x) > p), move |q| bisect(&|x| sf(x) < q))
}

#[test]
fn an_aligned_jump_is_kept_and_an_unaligned_one_smeared() {
    let (weight, factor) = (0.01, 2.0);
    let (lower, upper) = two_modes(weight, factor);
    let cdf = |x: f64| {
        let z = |x: f64| x.ln() / 0.05;
        (1.0 - weight) * normal().cdf(z(x)) + weight * normal().cdf(z(x / factor))
    };
    let moment = |k: f64| {
        let m = (0.5 * (0.05 * k).powi(2)).exp();
        (1.0 - weight) * m + weight * m * factor.powf(k)
    };
    let sd = (moment(2.0) - moment(1.0).powi(2)).sqrt();
    let jumps = Jumps { lower: None, upper: Some(weight) };
    let aligned = QuantileTable::with_jumps(lower, upper, jumps).unwrap().accuracy(cdf);
    close(aligned.mean, moment(1.0), 2e-6, "mean");
    close(aligned.sd / sd, 1.0, 1e-3, "sd");
    assert!(aligned.ks < 3e-3, "{}", aligned.ks);
    eprintln!("aligned {aligned:?}, exact sd {sd}");
    let smeared = QuantileTable::from_quantiles(lower, upper).unwrap().accuracy(cdf);
    assert!(smeared.ks > 2.0 * aligned.ks && smeared.sd < 0.995 * sd, "{smeared:?}");
}

#[test]
fn a_jump_of_the_lower_side() {
    let (weight, factor) = (0.8, 3.0);
    let (lower, upper) = two_modes(weight, factor);
    let jumps = Jumps { lower: Some(1.0 - weight), upper: None };
    let table = QuantileTable::with_jumps(lower, upper, jumps).unwrap();
    let n = 1 << 18;
    let stream = Stream::new(4, Key::new("jump"));
    let fast = (0..n).filter(|&c| table.value(stream.word(c)) < 2.0).count();
    let expected = 0.2 * f64::from(n);
    close(fast as f64, expected, 4.0 * (expected * 0.8).sqrt(), "fast draws");
}

#[test]
fn observed_values_keep_mean_and_range() {
    let stream = Stream::new(6, Key::new("observed"));
    for n in [1, 2, 7, 43, 5504] {
        let law = lognormal(0.2);
        let mut values: Vec<f64> = (0..n).map(|c| f64::from(law.value(stream.word(c)))).collect();
        values.sort_unstable_by(f64::total_cmp);
        let table = QuantileTable::from_sorted(&values).unwrap();
        let n = f64::from(n);
        let mean = values.iter().sum::<f64>() / n;
        let sd = (values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n).sqrt();
        let a = table.accuracy(|x| values.partition_point(|&v| v <= x) as f64 / n);
        close(a.mean, mean, 1e-3 * sd + 1e-6, &format!("mean of {n}"));
        if n > 40.0 {
            close(a.sd / sd, 1.0, 0.03, &format!("sd of {n}"));
            assert!(a.ks < 1.5 / n + 0.02, "distance of {n}: {}", a.ks);
        }
    }
}

#[test]
fn affine_laws() {
    let table = lognormal(0.3);
    let moved = table.affine(-1.0, 4.0).unwrap();
    let (a, b) = (table.accuracy(|_| 0.0), moved.accuracy(|_| 0.0));
    close(b.mean, 4.0 * a.mean - 1.0, 1e-6, "mean");
    close(b.sd, 4.0 * a.sd, 1e-4, "sd");
    let stream = Stream::new(7, Key::new("affine"));
    for c in 0..10_000 {
        let w = stream.word(c);
        let want = 4.0 * f64::from(table.value(w)) - 1.0;
        close(f64::from(moved.value(w)), want, 4e-3, "value");
    }
}

#[test]
fn constant_and_uniform_laws_are_exact() {
    let (one, uniform) = (QuantileTable::constant(0.1).unwrap(), QuantileTable::uniform());
    let stream = Stream::new(8, Key::new("exact"));
    for c in 0..100_000 {
        let w = stream.word(c);
        assert_eq!(one.value(w), 0.1);
        let position = f64::from(prism_stats::counter::position(w)) / 4_294_967_296.0;
        close(f64::from(uniform.value(w)), position, 1.5e-7, "uniform");
    }
    let a = uniform.accuracy(|x| x);
    close(a.mean, 0.5, 1e-7, "mean");
    close(a.sd, (1.0_f64 / 12.0).sqrt(), 1e-7, "sd");
}

#[test]
fn magnitudes_round_towards_zero() {
    let mut tried = 0;
    for top in 0..31 {
        for low in 0..4096_u32 {
            let spread = low.wrapping_mul(0x9e37_79b9) >> (32 - top.max(1));
            for m in [
                (1 << top) | (spread & ((1 << top) - 1)),
                (2_u32 << top) - 1 - (low & 7) % (1 << top),
            ] {
                let kept = 32 - m.leading_zeros();
                let exact = if kept > 24 { m >> (kept - 24) << (kept - 24) } else { m };
                assert_eq!(f64::from(magnitude(m)), f64::from(exact), "{m:x}");
                tried += 1;
            }
        }
    }
    assert_eq!(tried, 31 * 4096 * 2);
    assert_eq!(magnitude(0), 0.0);
}

#[test]
fn errors_name_the_place() {
    let bad = QuantileTable::from_quantiles(|p| p, |q| if q < 1e-6 { f64::INFINITY } else { q });
    let Err(QuantileTableError::NotFinite { side, tail, .. }) = bad else { panic!("{bad:?}") };
    assert!(side == Side::Upper && tail < 1e-6);
    let jumps = Jumps { lower: Some(0.7), upper: None };
    let bad = QuantileTable::with_jumps(|p| p, |q| q, jumps).unwrap_err();
    assert_eq!(bad, QuantileTableError::JumpOutside { side: Side::Lower, tail: 0.7 });
    assert!(!bad.hint().is_empty());
    assert_eq!(QuantileTable::from_sorted(&[]).unwrap_err(), QuantileTableError::Empty);
    let unsorted = QuantileTable::from_sorted(&[1.0, 3.0, 2.0]).unwrap_err();
    assert_eq!(unsorted, QuantileTableError::NotSorted { index: 2 });
    let nan = QuantileTable::from_sorted(&[f64::NAN]).unwrap_err();
    assert_eq!(nan, QuantileTableError::NotSorted { index: 0 });
}
