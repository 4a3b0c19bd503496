//! Properties that hold for every law, sample and level.

use prism_stats::htest::{benjamini_hochberg, bonferroni, holm};
use prism_stats::interval::{
    Tolerance, clopper_pearson, quantile_ranks, quantile_ranks_pairs, tolerance_upper, wilson,
};
use prism_stats::robust::{Scale, otsu};
use prism_stats::{
    Distribution, Family, Law, choose, fit, ks, ks_statistic, ks_statistic_two, order, quantile,
};
use proptest::prelude::*;

/// Laws whose quantiles stay within the range of floating-point numbers.
fn any_law() -> impl Strategy<Value = Law> {
    let positive = || (-6.0..6.0f64).prop_map(f64::exp);
    prop_oneof![
        (-1e3..1e3f64, positive()).prop_map(|(m, s)| Law::normal(m, s)),
        ((-2.0..16.0f64).prop_map(f64::exp), positive()).prop_map(|(k, s)| Law::gamma(k, s)),
        (-10.0..10.0f64, (-8.0..1.0f64).prop_map(f64::exp))
            .prop_map(|(m, s)| Law::log_normal(m, s)),
        (-5.0..5.0f64, -3.0..3.0f64, (-4.0..0.5f64).prop_map(f64::exp))
            .prop_map(|(c, m, s)| Law::shifted_log_normal(c, m, s)),
        (-10.0..10.0f64, positive(), (0.0..12.0f64).prop_map(f64::exp))
            .prop_map(|(m, s, v)| Law::student_t(m, s, v)),
    ]
    .prop_map(|law| law.expect("parameters are inside their domain"))
}

fn sample(size: std::ops::Range<usize>) -> impl Strategy<Value = Vec<f64>> {
    // A grid makes ties common.
    prop::collection::vec((-40..40i32).prop_map(|i| f64::from(i) / 8.0), size)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        rng_seed: prop::test_runner::RngSeed::Fixed(20_260_101),
        ..ProptestConfig::default()
    })]

    #[test]
    fn quantiles_invert_cdf_and_sf(law in any_law(), log_q in -40.0..-0.01f64) {
        let q = log_q.exp();
        let x = law.quantile_upper(q);
        // Rounding x by an ulp moves the tail by its log-derivative times that ulp.
        let slope = (law.ln_pdf(x) - law.sf(x).ln()).exp() * x.abs() * f64::EPSILON;
        prop_assert!((law.sf(x) / q - 1.0).abs() < 1e-8 + 8.0 * slope, "{:?} {} {}", law, q, x);
        let x = law.quantile(q);
        let slope = (law.ln_pdf(x) - law.cdf(x).ln()).exp() * x.abs() * f64::EPSILON;
        prop_assert!((law.cdf(x) / q - 1.0).abs() < 1e-8 + 8.0 * slope, "{:?} {} {}", law, q, x);
    }

    #[test]
    fn distribution_functions_ascend_and_complement(law in any_law(), a in 0.001..0.999f64, b in 0.001..0.999f64) {
        let (low, high) = (law.quantile(a.min(b)), law.quantile(a.max(b)));
        prop_assert!(low <= high);
        prop_assert!(law.cdf(low) <= law.cdf(high) + 1e-15);
        prop_assert!(law.sf(low) + 1e-15 >= law.sf(high));
        prop_assert!((law.cdf(low) + law.sf(low) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn files_keep_every_law(law in any_law()) {
        let text = serde_json::to_string(&law).unwrap();
        prop_assert_eq!(serde_json::from_str::<Law>(&text).unwrap(), law);
    }

    #[test]
    fn the_largest_of_n_has_its_probability(law in any_law(), n in 1..100_000u64, p in 0.001..0.999f64) {
        let x = order::quantile_of_max(&law, n, p).unwrap();
        let slope = n as f64 * (law.ln_pdf(x) - law.cdf(x).ln()).exp() * x.abs() * f64::EPSILON;
        let got = order::cdf_of_max(&[(law.clone(), n)], x);
        prop_assert!((got - p).abs() < 1e-6 + 8.0 * slope, "{:?} {} {} {}", law, n, p, got);
    }

    #[test]
    fn fits_and_choices_never_panic(values in sample(0..40)) {
        for family in Family::PARAMETRIC {
            if let Ok(fitted) = fit(family, &values) {
                prop_assert_eq!(fitted.law.family(), family);
                prop_assert!(fitted.log_likelihood.is_some_and(f64::is_finite));
            }
        }
        match choose(&values, &Family::PARAMETRIC) {
            Ok(choice) => prop_assert_eq!(choice.n, values.len()),
            Err(_) => prop_assert!(values.is_empty()),
        }
    }

    #[test]
    fn empirical_laws_interpolate_their_sample(values in sample(1..30), p in 0.0..1.0f64) {
        let law = Law::empirical(values.clone()).unwrap();
        let sorted = quantile::sorted(&values);
        prop_assert_eq!(law.quantile(p), quantile::quantile_type7(&sorted, p).unwrap());
        prop_assert!((law.quantile_upper(1.0 - p) - law.quantile(p)).abs() < 1e-12);
        let x = law.quantile(p);
        prop_assert!(law.cdf(x) + 1e-12 >= p && law.cdf_below(x) <= p + 1e-12);
        prop_assert!(law.mean() >= sorted[0] && law.mean() <= sorted[sorted.len() - 1]);
    }

    #[test]
    fn distances_are_distances(a in sample(1..30), b in sample(1..30)) {
        let (a, b) = (quantile::sorted(&a), quantile::sorted(&b));
        let d = ks_statistic_two(&a, &b).unwrap();
        prop_assert_eq!(d, ks_statistic_two(&b, &a).unwrap());
        prop_assert!((0.0..=1.0).contains(&d));
        prop_assert_eq!(ks_statistic_two(&a, &a).unwrap(), 0.0);
        let law = Law::empirical(b).unwrap();
        prop_assert!((0.0..=1.0).contains(&ks_statistic(&a, &law).unwrap()));
        let p = ks::ks_sf_two(a.len(), 17, d);
        prop_assert!((-1e-12..=1.0).contains(&p));
    }

    #[test]
    fn ranks_enclose_at_the_level(n in 1..3000u64, p in 0.001..0.999f64, c in 0.5..0.999f64) {
        let ranks = quantile_ranks(n, p, c).unwrap();
        prop_assert!(ranks.coverage >= c - 1e-12);
        prop_assert!(ranks.lower.is_none_or(|l| (1..=n).contains(&l)));
        prop_assert!(ranks.upper.is_none_or(|u| (1..=n).contains(&u)));
        if let (Some(l), Some(u)) = (ranks.lower, ranks.upper) {
            prop_assert!(l < u);
        }
        let pairs = quantile_ranks_pairs(n, p, c).unwrap();
        prop_assert!(pairs.coverage >= c - 1e-12);
        prop_assert!(pairs.lower.is_none_or(|l| (1..=2 * n).contains(&l)));
        prop_assert!(pairs.upper.is_none_or(|u| (1..=2 * n).contains(&u)));
    }

    #[test]
    fn guarantees_are_minimal_and_sufficient(n in 1..2000u64, q in 0.5..0.999f64, c in 0.5..0.999f64) {
        match tolerance_upper(n, q, c).unwrap() {
            Tolerance::Bound { rank, confidence } => {
                prop_assert!((1..=n).contains(&rank) && confidence >= c);
            }
            Tolerance::NeedMore { n_needed, confidence_of_max } => {
                prop_assert!(n_needed > n && confidence_of_max < c);
                let enough = matches!(tolerance_upper(n_needed, q, c).unwrap(), Tolerance::Bound { .. });
                prop_assert!(enough);
                let short = n_needed == 1 || matches!(tolerance_upper(n_needed - 1, q, c).unwrap(), Tolerance::NeedMore { .. });
                prop_assert!(short);
            }
        }
    }

    #[test]
    fn share_intervals_enclose_the_share(n in 1..5000u64, share in 0.0..=1.0f64, c in 0.5..0.999f64) {
        let k = (share * n as f64).round() as u64;
        let observed = k as f64 / n as f64;
        for interval in [wilson(k, n, c).unwrap(), clopper_pearson(k, n, c).unwrap()] {
            prop_assert!(interval.lower <= observed + 1e-12 && observed <= interval.upper + 1e-12);
            prop_assert!((0.0..=1.0).contains(&interval.lower) && (0.0..=1.0).contains(&interval.upper));
        }
    }

    #[test]
    fn adjustments_keep_their_order(p in prop::collection::vec(0.0..1.0f64, 1..20)) {
        let (bh, h, b) = (benjamini_hochberg(&p), holm(&p), bonferroni(&p));
        for i in 0..p.len() {
            prop_assert!(p[i] <= bh[i] + 1e-15 && bh[i] <= h[i] + 1e-15 && h[i] <= b[i] + 1e-15);
        }
    }

    #[test]
    fn thresholds_split_what_varies(values in sample(2..40)) {
        let split = otsu(&values, Scale::Linear).unwrap();
        let varies = values.iter().any(|&v| v != values[0]);
        prop_assert_eq!(split.is_some(), varies);
        if let Some(s) = split {
            prop_assert!(s.separability > 0.0 && s.separability <= 1.0);
            prop_assert_eq!(s.below, values.iter().filter(|&&v| v <= s.threshold).count());
            prop_assert_eq!(s.below + s.above, values.len());
            prop_assert!(s.below > 0 && s.above > 0);
        }
    }
}
