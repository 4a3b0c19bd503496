use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::*;

fn close(got: f64, want: f64, relative: f64, what: &str) {
    let error = if want == 0.0 { got.abs() } else { ((got - want) / want).abs() };
    assert!(error <= relative, "{what}: got {got:e}, want {want:e}");
}

/// What scipy says: (x, cdf, sf, logpdf) twice, ppf(.05), ppf(.95), isf(1e-12), mean, std.
struct Oracle {
    law: Law,
    points: [(f64, f64, f64, f64); 2],
    p05: f64,
    p95: f64,
    deep: f64,
    mean: f64,
    sd: f64,
}

/// scipy 1.17.1: `norm(10, 2)`, `gamma(2.5, scale=.4)`, `gamma(2500, scale=.004)`,
/// `lognorm(.3, scale=exp(.1))`, `lognorm(.3, loc=5, scale=exp(.1))`, `t(3.5, 1, .5)`, `t(1e6)`.
fn oracles() -> Vec<Oracle> {
    let skewed = [
        (0.8, 0.140_707_707_789_722_7, 0.859_292_292_210_277_3, -0.071_943_037_319_856_26),
        (2.0, 0.975_988_071_962_000_5, 0.024_011_928_037_999_473, -2.362_688_341_695_416_7),
    ];
    vec![
        Oracle {
            law: Law::normal(10.0, 2.0).unwrap(),
            points: [
                (7.0, 0.066_807_201_268_858_07, 0.933_192_798_731_141_9, -2.737_085_713_764_618),
                (14.0, 0.977_249_868_051_820_8, 0.022_750_131_948_179_195, -3.612_085_713_764_618),
            ],
            p05: 6.710_292_746_097_054,
            p95: 13.289_707_253_902_945,
            deep: 24.068_967_650_602_26,
            mean: 10.0,
            sd: 2.0,
        },
        Oracle {
            law: Law::gamma(2.5, 0.4).unwrap(),
            points: [
                (0.3, 0.086_930_185_455_604_55, 0.913_069_814_544_395_4, -0.549_915_247_276_435_8),
                (2.0, 0.924_764_753_853_487_8, 0.075_235_246_146_512_17, -1.954_235_269_947_613_8),
            ],
            p05: 0.229_095_245_212_353_86,
            p95: 2.214_099_538_703_270_5,
            deep: 13.047_727_242_673_568,
            mean: 1.0,
            sd: 0.632_455_532_033_675_9,
        },
        Oracle {
            law: Law::gamma(2500.0, 0.004).unwrap(),
            points: [
                (9.5, 0.005_602_641_049_478_008, 0.994_397_358_950_522, -2.491_476_628_590_785_2),
                (
                    10.4,
                    0.976_181_001_979_259_4,
                    0.023_818_998_020_740_657,
                    -1.296_971_784_053_052_8,
                ),
            ],
            p05: 9.673_318_980_144_652,
            p95: 10.331_229_037_351_607,
            deep: 11.472_191_203_370_553,
            mean: 10.0,
            sd: 0.2,
        },
        Oracle {
            law: Law::log_normal(0.1, 0.3).unwrap(),
            points: skewed,
            p05: 0.674_720_945_214_861_4,
            p95: 1.810_233_944_599_452_9,
            deep: 9.118_863_203_613_383,
            mean: 1.156_039_570_268_021_7,
            sd: 0.354_763_444_295_987_94,
        },
        Oracle {
            law: Law::shifted_log_normal(5.0, 0.1, 0.3).unwrap(),
            points: skewed.map(|(x, c, s, l)| (x + 5.0, c, s, l)),
            p05: 5.674_720_945_214_862,
            p95: 6.810_233_944_599_453,
            deep: 14.118_863_203_613_383,
            mean: 6.156_039_570_268_022,
            sd: 0.354_763_444_295_987_94,
        },
        Oracle {
            law: Law::student_t(1.0, 0.5, 3.5).unwrap(),
            points: [
                (-1.0, 0.010_460_308_182_701_857, 0.989_539_691_817_298_2, -4.161_042_279_116_806),
                (2.0, 0.936_930_738_712_043_2, 0.063_069_261_287_956_72, -2.011_141_527_805_074),
            ],
            p05: -0.111_216_746_824_800_43,
            p95: 2.111_216_746_824_8,
            deep: 1_582.515_341_899_007_4,
            mean: 1.0,
            sd: 0.763_762_615_825_973_4,
        },
        Oracle {
            law: Law::student_t(0.0, 1.0, 1e6).unwrap(),
            points: [
                (-1.0, 0.158_655_374_916_789_16, 0.841_344_625_083_210_8, -1.418_939_033_204_589_3),
                (2.0, 0.977_249_733_074_340_4, 0.022_750_266_925_659_62, -2.918_936_783_211_339),
            ],
            p05: -1.644_855_150_722_040_6,
            p95: 1.644_855_150_722_040_4,
            deep: 7.034_572_608_411_255,
            mean: 0.0,
            sd: 1.000_001_000_001_5,
        },
    ]
}

#[test]
fn laws_agree_with_scipy() {
    for o in oracles() {
        let name = format!("{:?}", o.law);
        for (x, cdf, sf, ln_pdf) in o.points {
            close(o.law.cdf(x), cdf, 1e-10, &name);
            close(o.law.sf(x), sf, 1e-10, &name);
            close(o.law.ln_pdf(x), ln_pdf, 1e-9, &name);
        }
        close(o.law.quantile(0.05), o.p05, 1e-12, &name);
        close(o.law.quantile(0.95), o.p95, 1e-12, &name);
        close(o.law.quantile_upper(1e-12), o.deep, 1e-9, &name);
        close(o.law.mean(), o.mean, 1e-14, &name);
        close(o.law.sd(), o.sd, 1e-12, &name);
    }
}

#[test]
fn quantiles_invert_the_distribution_function_and_ascend() {
    let mut laws: Vec<Law> = oracles().into_iter().map(|o| o.law).collect();
    laws.push(Law::gamma(0.4, 2.0).unwrap());
    laws.push(Law::gamma(3e7, 1e-7).unwrap());
    laws.push(Law::student_t(0.0, 1.0, 0.9).unwrap());
    laws.push(Law::empirical(vec![3.0, 1.0, 2.5, 7.0, 7.5]).unwrap());
    for law in laws {
        let mut before = f64::NEG_INFINITY;
        for i in 1..200 {
            let p = f64::from(i) / 200.0;
            let x = law.quantile(p);
            assert!(x > before, "{law:?} at {p}");
            before = x;
            close(law.cdf(x), p, 1e-9, &format!("{law:?}"));
            close(law.quantile_upper(1.0 - p), x, 1e-9, &format!("{law:?}"));
        }
        if law.family() == Family::Empirical {
            // Close to its largest value the rounding of x itself moves the tail.
            continue;
        }
        for exponent in 1..12 {
            let q = 10f64.powi(-exponent);
            close(law.sf(law.quantile_upper(q)), q, 1e-8, &format!("{law:?}"));
        }
    }
}

#[test]
fn parametric_tails_reach_a_probability_of_1e_minus_250() {
    for o in oracles() {
        let x = o.law.quantile_upper(1e-250);
        close(o.law.sf(x), 1e-250, 1e-6, &format!("{:?}", o.law));
    }
}

/// Trapezoid integral of the density: a second method for the cdf.
#[test]
fn densities_integrate_to_the_distribution_function() {
    for o in oracles() {
        let (a, b) = (o.law.quantile(0.1), o.law.quantile(0.9));
        let n = 4000;
        let h = (b - a) / f64::from(n);
        let inner: f64 = (1..n).map(|i| o.law.ln_pdf(a + h * f64::from(i)).exp()).sum();
        let integral = h * (inner + 0.5 * (o.law.ln_pdf(a).exp() + o.law.ln_pdf(b).exp()));
        close(integral, 0.8, 1e-6, &format!("{:?}", o.law));
    }
}

#[test]
fn samplers_follow_their_law() {
    // With n draws the KS statistic exceeds 1.95/√n with probability 1e-3.
    let n = 20_000;
    for (i, o) in oracles().into_iter().enumerate() {
        let mut rng = ChaCha8Rng::seed_from_u64(7 + i as u64);
        let mut draws: Vec<f64> = (0..n).map(|_| o.law.sample(&mut rng)).collect();
        draws.sort_by(f64::total_cmp);
        let d = crate::ks::ks_statistic(&draws, &o.law).unwrap();
        assert!(d < 1.95 / f64::from(n).sqrt(), "{:?}: {d}", o.law);
    }
    let law = Empirical::new(vec![1.0, 2.0, 2.0, 4.0]).unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let mean = (0..n).map(|_| law.sample(&mut rng)).sum::<f64>() / f64::from(n);
    assert!((mean - law.mean()).abs() < 4.0 * law.sd() / f64::from(n).sqrt());
}

#[test]
fn empirical_moments_and_atoms_are_those_of_the_interpolated_law() {
    let law = Empirical::new(vec![4.0, 1.0, 2.0, 2.0]).unwrap();
    assert_eq!(law.values(), [1.0, 2.0, 2.0, 4.0]);
    // A third each: uniform on [1, 2], the atom 2, uniform on [2, 4].
    close(law.mean(), (1.5 + 2.0 + 3.0) / 3.0, 1e-15, "mean");
    let second: f64 = (7.0 / 3.0 + 4.0 + 28.0 / 3.0) / 3.0;
    close(law.sd(), (second - law.mean() * law.mean()).sqrt(), 1e-14, "sd");
    close(law.cdf(2.0), 2.0 / 3.0, 1e-15, "cdf at the atom");
    close(law.cdf_below(2.0), 1.0 / 3.0, 1e-15, "cdf below the atom");
    close(law.sf(3.0), 1.0 / 6.0, 1e-15, "sf");
    assert_eq!(law.ln_pdf(2.0), f64::INFINITY);
    close(law.ln_pdf(1.5), (1.0f64 / 3.0).ln(), 1e-15, "density");
    assert_eq!((law.cdf(0.0), law.cdf(4.0), law.sf(4.0)), (0.0, 1.0, 0.0));
    let single = Empirical::new(vec![3.0]).unwrap();
    assert_eq!((single.mean(), single.sd(), single.quantile(0.3)), (3.0, 0.0, 3.0));
    assert_eq!((single.cdf(2.9), single.cdf_below(3.0), single.cdf(3.0)), (0.0, 0.0, 1.0));
    assert_eq!(single.ln_pdf(3.0), f64::INFINITY);
}

#[test]
fn arguments_outside_their_domain_give_nan() {
    let mut laws: Vec<Law> = oracles().into_iter().map(|o| o.law).collect();
    laws.push(Law::constant(2.0).unwrap());
    laws.push(Law::empirical(vec![1.0, 2.0]).unwrap());
    for law in laws {
        for p in [-0.1, 1.1, f64::NAN] {
            assert!(law.quantile(p).is_nan() && law.quantile_upper(p).is_nan(), "{law:?}");
        }
        assert!(law.cdf(f64::NAN).is_nan() && law.sf(f64::NAN).is_nan(), "{law:?}");
        assert!(law.ln_pdf(f64::NAN).is_nan(), "{law:?}");
        let (low, high) = law.support();
        assert_eq!((law.quantile(0.0), law.quantile(1.0)), (low, high), "{law:?}");
        assert_eq!((law.quantile_upper(1.0), law.quantile_upper(0.0)), (low, high), "{law:?}");
    }
}

#[test]
fn impossible_parameters_are_refused_by_name() {
    let error = Law::gamma(-1.0, 2.0).unwrap_err();
    assert_eq!(
        error.to_string(),
        "parameter `shape` of gamma is -1, which is not a finite positive number"
    );
    assert!(Law::normal(f64::NAN, 1.0).is_err() && Law::normal(0.0, 0.0).is_err());
    assert!(Law::student_t(0.0, 1.0, f64::INFINITY).is_err());
    assert!(Law::empirical(vec![]).is_err() && Law::empirical(vec![f64::INFINITY]).is_err());
    assert!(Law::constant(f64::NAN).is_err());
    assert!(Law::log_normal(0.0, -1.0).is_err());
    assert!(Law::shifted_log_normal(f64::INFINITY, 0.0, 1.0).is_err());
}

#[test]
fn files_round_trip_and_are_checked() {
    let mut laws: Vec<Law> = oracles().into_iter().map(|o| o.law).collect();
    laws.push(Law::constant(2.0).unwrap());
    laws.push(Law::empirical(vec![2.0, 1.0]).unwrap());
    for law in laws {
        let text = serde_json::to_string(&law).unwrap();
        assert!(text.starts_with(&format!("{{\"family\":\"{}\"", law.family())), "{text}");
        assert_eq!(serde_json::from_str::<Law>(&text).unwrap(), law);
    }
    let refused = |text: &str| serde_json::from_str::<Law>(text).unwrap_err().to_string();
    assert!(refused(r#"{"family":"normal","mean":1,"sd":-2}"#).contains("`sd` of normal is -2"));
    assert!(refused(r#"{"family":"normal","mean":1}"#).contains("missing field `sd`"));
    assert!(refused(r#"{"family":"normal","mean":1,"sd":1,"x":0}"#).contains("unknown field `x`"));
    let schema = serde_json::to_string(&schemars::schema_for!(Law)).unwrap();
    for family in Family::PARAMETRIC {
        assert!(schema.contains(&format!("\"{family}\"")), "{family} is missing from {schema}");
    }
}
