use rand_distr::Distribution as _;

use super::*;
use crate::htest::{f_cdf, t_cdf};
use crate::stream;

#[test]
fn without_noise_the_next_value_is_students_t() {
    let prior = ScalePrior { scale: 0.002, dof: 3.0 };
    let values = [1.0, 1.004, 1.001];
    let posterior = prior.posterior(&Group::exact(&values)).unwrap();
    let (n, mean) = (3.0_f64, 1.005_f64.mul_add(0.0, (1.0 + 1.004 + 1.001) / 3.0));
    let s2 = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0);
    let dof = prior.dof + n - 1.0;
    let scale = ((prior.dof * prior.scale.powi(2) + (n - 1.0) * s2) / dof * (1.0 + 1.0 / n)).sqrt();
    for t in [-6.0, -2.0, -0.5, 0.0, 1.0, 4.0] {
        let got = posterior.cdf(mean + t * scale, 0.0);
        assert!((got - t_cdf(t, dof)).abs() < 1e-6, "{t}: {got} {}", t_cdf(t, dof));
    }
    assert!((posterior.centre() - mean).abs() < 1e-12);
    for p in [1e-3, 0.05, 0.5, 0.9] {
        assert!((posterior.cdf(posterior.quantile(p, 0.0), 0.0) - p).abs() < 1e-9);
    }
    assert!(posterior.quantile(1.0, 0.0).is_nan());
}

#[test]
fn one_value_leaves_the_prior() {
    let prior = ScalePrior { scale: 2.0, dof: 4.0 };
    let posterior = prior.posterior(&Group::exact(&[10.0])).unwrap();
    let scale = 2.0 * 2.0_f64.sqrt();
    for t in [-3.0, 0.5, 2.0] {
        assert!((posterior.cdf(10.0 + t * scale, 0.0) - t_cdf(t, 4.0)).abs() < 1e-6);
    }
}

#[test]
fn noise_of_the_values_is_not_taken_for_spread() {
    // Values whose spread is what their noise makes: the scale stays near the prior's small one.
    let prior = ScalePrior { scale: 1e-3, dof: 2.0 };
    let noisy = Group { values: vec![0.0, 0.1], variances: vec![0.005, 0.005] };
    let exact = Group::exact(&[0.0, 0.1]);
    let inside = |g: &Group| {
        let p = prior.posterior(g).unwrap();
        p.cdf(0.15, 0.0) - p.cdf(-0.05, 0.0)
    };
    assert!(inside(&noisy) > inside(&exact), "{} {}", inside(&noisy), inside(&exact));
    // A next value has its own noise on top.
    let posterior = prior.posterior(&noisy).unwrap();
    assert!(posterior.cdf(0.3, 0.01) < posterior.cdf(0.3, 0.0));
}

#[test]
fn samples_follow_the_cdf() {
    let prior = ScalePrior { scale: 0.01, dof: 1.5 };
    let posterior = prior.posterior(&Group::exact(&[0.0, 0.02])).unwrap();
    let mut rng = stream(5, "pooled", &[]);
    let n = 20_000;
    let draws: Vec<f64> = (0..n).map(|_| posterior.sample(&mut rng, 1e-5)).collect();
    for x in [-0.05, 0.0, 0.01, 0.03, 0.1] {
        let share = draws.iter().filter(|d| **d <= x).count() as f64 / f64::from(n);
        let p = posterior.cdf(x, 1e-5);
        assert!((share - p).abs() < 4.0 * (p * (1.0 - p) / f64::from(n)).sqrt(), "{x}");
    }
}

#[test]
fn scales_are_recovered() {
    let truth = ScalePrior { scale: 0.003, dof: 4.0 };
    let mut rng = stream(11, "scales", &[]);
    let chi = rand_distr::ChiSquared::new(truth.dof).unwrap();
    let groups: Vec<Group> = (0..600)
        .map(|_| {
            let tau = (truth.dof * truth.scale.powi(2) / chi.sample(&mut rng)).sqrt();
            let noise = 1e-6;
            let law = rand_distr::Normal::new(7.0, (tau * tau + noise).sqrt()).unwrap();
            Group {
                values: (0..3).map(|_| law.sample(&mut rng)).collect(),
                variances: vec![noise; 3],
            }
        })
        .collect();
    let fitted = fit_scales(&groups).unwrap();
    // Scatter over seeds: 4 % of the scale, 20 % of the degrees of freedom.
    assert!((fitted.scale / truth.scale - 1.0).abs() < 0.12, "{fitted:?}");
    assert!((fitted.dof / truth.dof).ln().abs() < 0.6, "{fitted:?}");
}

#[test]
fn without_noise_the_fit_is_that_of_f() {
    let sds: [f64; 6] = [0.001, 0.002, 0.0015, 0.02, 0.004, 0.0008];
    // Three values with a given s.d.
    let groups: Vec<Group> = sds.iter().map(|s| Group::exact(&[-s, 0.0, *s])).collect();
    let fitted = fit_scales(&groups).unwrap();
    // The derivative of the F likelihood in ln scale, by its own density, is zero there.
    let ln_likelihood = |scale: f64| -> f64 {
        sds.iter()
            .map(|s| {
                let f = (s / scale).powi(2);
                let h = 1e-5;
                let density = (f_cdf(f * (1.0 + h), 2.0, fitted.dof)
                    - f_cdf(f * (1.0 - h), 2.0, fitted.dof))
                    / (2.0 * h * f);
                density.ln() - 2.0 * scale.ln()
            })
            .sum()
    };
    let at = ln_likelihood(fitted.scale);
    assert!(at >= ln_likelihood(fitted.scale * 1.03) && at >= ln_likelihood(fitted.scale / 1.03));
}

#[test]
fn rates_are_recovered_and_updated() {
    let mut rng = stream(3, "rates", &[]);
    let law = rand_distr::Gamma::new(0.8, 0.01).unwrap();
    let groups: Vec<RateGroup> = (0..800)
        .map(|_| {
            let exposure = 500.0;
            let mean: f64 = law.sample(&mut rng) * exposure;
            let count = rand_distr::Poisson::new(mean.max(1e-12)).unwrap().sample(&mut rng);
            RateGroup { count: count as u64, exposure }
        })
        .collect();
    let fitted = fit_rates(&groups).unwrap();
    // Standard errors: 6 % of the shape, 4 % of the mean.
    assert!((fitted.shape / 0.8 - 1.0).abs() < 0.2, "{fitted:?}");
    assert!((fitted.shape / fitted.exposure / 0.008 - 1.0).abs() < 0.15, "{fitted:?}");
    let posterior = fitted.posterior(RateGroup { count: 3, exposure: 100.0 }).unwrap();
    let want = (fitted.shape + 3.0) / (fitted.exposure + 100.0);
    assert!((posterior.mean() - want).abs() < 1e-15);
}

#[test]
fn bad_input_is_refused() {
    let prior = ScalePrior { scale: 1.0, dof: 1.0 };
    assert!(prior.posterior(&Group::default()).is_err());
    assert!(prior.posterior(&Group { values: vec![1.0], variances: vec![-1.0] }).is_err());
    assert!(prior.posterior(&Group { values: vec![f64::NAN], variances: vec![0.0] }).is_err());
    assert!(ScalePrior { scale: 0.0, dof: 1.0 }.posterior(&Group::exact(&[1.0])).is_err());
    assert!(fit_scales(&[Group::exact(&[1.0, 2.0])]).is_err());
    assert!(fit_scales(&vec![Group::exact(&[1.0, 1.0]); 5]).is_err());
    let none = RateGroup { count: 0, exposure: 10.0 };
    assert!(fit_rates(&[none; 5]).is_err());
    let prior = RatePrior { shape: 1.0, exposure: 10.0 };
    assert!(prior.posterior(RateGroup { count: 1, exposure: f64::NAN }).is_err());
}
