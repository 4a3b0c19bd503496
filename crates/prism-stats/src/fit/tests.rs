use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::*;

fn draws(law: &Law, n: usize, seed: u64) -> Vec<f64> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    (0..n).map(|_| law.sample(&mut rng)).collect()
}

/// The parameters of a law in the order of its constructor.
fn parameters(law: &Law) -> Vec<f64> {
    match law {
        Law::Normal(l) => vec![l.location(), l.scale()],
        Law::Gamma(l) => vec![l.shape(), l.scale()],
        Law::LogNormal(l) => vec![l.log_mean(), l.log_sd()],
        Law::ShiftedLogNormal(l) => vec![l.shift(), l.log_mean(), l.log_sd()],
        Law::StudentT(l) => vec![l.location(), l.scale(), l.dof()],
        Law::Constant(_) | Law::Empirical(_) => vec![],
    }
}

fn with_parameters(family: Family, p: &[f64]) -> Law {
    match family {
        Family::Normal => Law::normal(p[0], p[1]),
        Family::Gamma => Law::gamma(p[0], p[1]),
        Family::LogNormal => Law::log_normal(p[0], p[1]),
        Family::ShiftedLogNormal => Law::shifted_log_normal(p[0], p[1], p[2]),
        _ => Law::student_t(p[0], p[1], p[2]),
    }
    .unwrap()
}

/// Inverse of a small symmetric positive matrix by Gauss-Jordan elimination.
fn inverse(mut a: Vec<Vec<f64>>) -> Vec<Vec<f64>> {
    let n = a.len();
    for (i, row) in a.iter_mut().enumerate() {
        row.extend((0..n).map(|j| if i == j { 1.0 } else { 0.0 }));
    }
    for i in 0..n {
        let pivot = a[i][i];
        for v in &mut a[i] {
            *v /= pivot;
        }
        let row = a[i].clone();
        for (k, other) in a.iter_mut().enumerate() {
            let factor = other[i];
            if k != i {
                for (x, y) in other.iter_mut().zip(&row) {
                    *x -= factor * y;
                }
            }
        }
    }
    a.into_iter().map(|row| row[n..].to_vec()).collect()
}

/// Standard errors from the Fisher information, the mean of score products over even quantiles, the
/// scores by central differences.
fn standard_errors(law: &Law, n: usize) -> Vec<f64> {
    let p = parameters(law);
    let points = 4000;
    let mut information = vec![vec![0.0; p.len()]; p.len()];
    for i in 0..points {
        let x = law.quantile((f64::from(i) + 0.5) / f64::from(points));
        let score: Vec<f64> = (0..p.len())
            .map(|k| {
                let h = 1e-5 * p[k].abs().max(0.1);
                let moved = |sign: f64| {
                    let mut q = p.clone();
                    q[k] += sign * h;
                    with_parameters(law.family(), &q).ln_pdf(x)
                };
                (moved(1.0) - moved(-1.0)) / (2.0 * h)
            })
            .collect();
        for (r, a) in score.iter().enumerate() {
            for (c, b) in score.iter().enumerate() {
                information[r][c] += a * b / f64::from(points);
            }
        }
    }
    let covariance = inverse(information);
    (0..p.len()).map(|k| (covariance[k][k] / n as f64).sqrt()).collect()
}

#[test]
fn parameters_are_recovered_within_the_fisher_error() {
    let truths = [
        Law::normal(10.0, 2.0).unwrap(),
        Law::gamma(0.7, 3.0).unwrap(),
        Law::gamma(2500.0, 0.004).unwrap(),
        Law::log_normal(-3.0, 0.05).unwrap(),
        Law::log_normal(1.0, 1.2).unwrap(),
        Law::shifted_log_normal(5.0, 0.1, 0.5).unwrap(),
        Law::student_t(3.0, 0.2, 4.0).unwrap(),
    ];
    let n = 4000;
    for (i, truth) in truths.iter().enumerate() {
        let fitted = fit(truth.family(), &draws(truth, n, 100 + i as u64)).unwrap();
        let (got, want) = (parameters(&fitted.law), parameters(truth));
        for ((g, w), se) in got.iter().zip(&want).zip(standard_errors(truth, n)) {
            assert!((g - w).abs() < 4.0 * se, "{truth:?}: {g} where {w} ± {se}");
        }
    }
}

#[test]
fn estimates_are_unbiased_with_the_fisher_spread() {
    // 60 repetitions: the mean error has a s.d. of se/√60, the spread one of about 10 %.
    let (truth, n, repetitions) = (Law::gamma(6.0, 0.5).unwrap(), 800, 60);
    let errors = standard_errors(&truth, n);
    let fits: Vec<Vec<f64>> = (0..repetitions)
        .map(|i| parameters(&fit(Family::Gamma, &draws(&truth, n, 500 + i)).unwrap().law))
        .collect();
    for (k, want) in parameters(&truth).into_iter().enumerate() {
        let values: Vec<f64> = fits.iter().map(|f| f[k]).collect();
        let (mean, sd) = moments(&values);
        assert!((mean - want).abs() < 4.0 * errors[k] / 60f64.sqrt() + 0.005 * want);
        assert!((sd / errors[k] - 1.0).abs() < 0.4, "{sd} {}", errors[k]);
    }
}

#[test]
fn no_nearby_parameters_are_more_likely() {
    let truths = [
        Law::normal(10.0, 2.0).unwrap(),
        Law::gamma(9.0, 0.5).unwrap(),
        Law::log_normal(0.3, 0.4).unwrap(),
        Law::shifted_log_normal(5.0, 0.1, 0.7).unwrap(),
        Law::student_t(3.0, 0.2, 3.0).unwrap(),
    ];
    for (i, truth) in truths.iter().enumerate() {
        let values = draws(truth, 300, 40 + i as u64);
        let fitted = fit(truth.family(), &values).unwrap();
        let p = parameters(&fitted.law);
        let best = fitted.log_likelihood.unwrap();
        for k in 0..p.len() {
            for factor in [0.97, 0.999, 1.001, 1.03] {
                let mut q = p.clone();
                q[k] *= factor;
                let law = with_parameters(truth.family(), &q);
                let other: f64 = values.iter().map(|&x| law.ln_pdf(x)).sum();
                assert!(other <= best + 1e-7 * best.abs(), "{truth:?} parameter {k} × {factor}");
            }
        }
    }
}

const SAMPLE: [f64; 12] = [2.1, 3.4, 1.7, 2.8, 4.9, 2.2, 3.1, 2.6, 7.3, 2.0, 3.8, 2.4];

#[test]
fn fits_agree_with_scipy() {
    let close = |got: f64, want: f64, relative: f64| {
        assert!(((got - want) / want).abs() < relative, "got {got}, want {want}");
    };
    // scipy 1.17.1: norm.fit; the others by minimising -logpdf(v).sum() to 1e-12 (Nelder-Mead, or
    // a bounded scalar search over the shift).
    let wants: [(Family, &[f64], f64); 5] = [
        (Family::Normal, &[3.191_666_666_666_666_4, 1.504_691_736_609_935], -21.930_319_011_035_59),
        (Family::Gamma, &[5.906_236_27, 0.540_389_26], -19.591_253_424_623_63),
        (
            Family::LogNormal,
            &[1.073_504_824_949_561_8, 0.396_022_485_400_779_5],
            -18.793_908_841_556_16,
        ),
        (
            Family::ShiftedLogNormal,
            &[1.490_709_715_533_639_3, 0.178_818_445_317_253_66, 0.862_108_011_021_472_9],
            -17.392_587_181_954_493,
        ),
        (
            Family::StudentT,
            &[2.652_022_543_594_694_2, 0.718_697_96, 1.831_370_8],
            -20.185_157_811_047_628,
        ),
    ];
    for (family, want, log_likelihood) in wants {
        let fitted = fit(family, &SAMPLE).unwrap();
        for (g, w) in parameters(&fitted.law).into_iter().zip(want) {
            close(g, *w, 1e-6);
        }
        close(fitted.log_likelihood.unwrap(), log_likelihood, 1e-10);
        let aic = 2.0 * want.len() as f64 - 2.0 * log_likelihood;
        close(fitted.aic().unwrap(), aic, 1e-10);
    }
}

#[test]
fn a_kernel_with_tiny_spread_is_fitted() {
    // CoV 1e-5: the shape is 1e10, where ln(mean) − mean(ln) would have no digit left.
    let values = draws(&Law::normal(1.0, 1e-5).unwrap(), 2000, 9);
    let fitted = fit(Family::Gamma, &values).unwrap();
    assert!((fitted.law.sd() / 1e-5 - 1.0).abs() < 4.0 / 4000f64.sqrt(), "{}", fitted.law.sd());
    let normal = fit(Family::Normal, &values).unwrap();
    let difference = fitted.log_likelihood.unwrap() - normal.log_likelihood.unwrap();
    assert!(difference.abs() < 0.1, "{difference}");
}

#[test]
fn the_unbounded_likelihood_of_the_shift_is_not_followed() {
    let values = draws(&Law::shifted_log_normal(5.0, 0.0, 1.0).unwrap(), 400, 21);
    let Law::ShiftedLogNormal(law) = fit(Family::ShiftedLogNormal, &values).unwrap().law else {
        panic!("another family came back");
    };
    let smallest = values.iter().copied().fold(f64::INFINITY, f64::min);
    assert!(law.shift() < smallest - 1e-3 && (law.shift() - 5.0).abs() < 0.1, "{law:?}");
    // Skewed to the left: the profile rises towards the Normal and has no maximum.
    let mirrored: Vec<f64> = values.iter().map(|v| 100.0 - v).collect();
    let error = fit(Family::ShiftedLogNormal, &mirrored).unwrap_err();
    assert!(matches!(error, StatsError::NoMaximum { .. }), "{error}");
}

#[test]
fn a_t_law_on_lighter_tails_or_on_ties_has_no_maximum() {
    let uniform: Vec<f64> = (0..200).map(f64::from).collect();
    assert!(matches!(fit(Family::StudentT, &uniform), Err(StatsError::NoMaximum { .. })));
    let mut tied = vec![1.0; 30];
    tied.extend([0.3, 0.5, 1.2, 1.9, 4.0]);
    assert!(matches!(fit(Family::StudentT, &tied), Err(StatsError::NoMaximum { .. })));
}

#[test]
fn bad_samples_are_refused_with_what_is_wrong() {
    let text = |family, values: &[f64]| fit(family, values).unwrap_err().to_string();
    assert_eq!(text(Family::Normal, &[1.0]), "1 values, where normal needs at least 2");
    assert_eq!(text(Family::Gamma, &[1.0, f64::NAN]), "value NaN at index 1 is not finite");
    assert_eq!(
        text(Family::LogNormal, &[1.0, 0.0]),
        "value 0 at index 1 is outside the support of log_normal"
    );
    assert_eq!(
        text(Family::Normal, &[2.0, 2.0]),
        "all 2 values equal 2: normal has no maximum-likelihood estimate"
    );
    assert!(fit(Family::StudentT, &[1.0, 2.0, 3.0]).is_err());
    assert!(fit(Family::Constant, &[1.0, 2.0]).is_err());
    assert_eq!(fit(Family::Constant, &[2.0, 2.0]).unwrap().law, Law::constant(2.0).unwrap());
    assert!(fit(Family::Empirical, &[]).is_err());
    assert_eq!(fit(Family::Empirical, &[2.0, 1.0]).unwrap().aic(), None);
}
