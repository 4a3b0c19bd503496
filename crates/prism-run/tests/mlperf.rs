//! Predictions of held-out runs of public logs of 64 to 10,240 GPUs.

mod common;

use prism_run::cross::{CrossOptions, cross_validate};
use prism_run::{Evidence, fit_prior};

#[test]
fn a_third_run_is_predicted_from_two() {
    let Some(systems) = common::mlperf() else { return };
    let cross = cross_validate(&systems, CrossOptions::default(), |_| ()).unwrap();
    let p = cross.predicted;
    assert_eq!(cross.runs.len(), 63);
    assert!((52..=61).contains(&p.covered), "{}", p.covered);
    assert!(p.width_mean <= 0.011 && p.width_median <= 0.0075 && p.width_max <= 0.04, "{p:?}");
    assert!(p.score <= 0.023, "{}", p.score);
    assert!(cross.crps <= 0.00185, "{}", cross.crps);
    assert!(cross.score_to_band <= 0.88, "{}", cross.score_to_band);
    // What users have today is far off.
    assert!(cross.iid.covered <= 40, "{}", cross.iid.covered);
    assert!(cross.student.width_mean > 1.5 * p.width_mean);
}

#[test]
fn the_preset_is_what_these_logs_give() {
    let Some(systems) = common::mlperf() else { return };
    let evidence: Vec<Evidence> = systems.iter().map(|s| Evidence::of(&s.runs).unwrap()).collect();
    let fitted = fit_prior("mlperf-llm", "", &evidence.iter().collect::<Vec<_>>()).unwrap();
    let preset = prism_run::prior::mlperf();
    let near = |a: f64, b: f64| (a / b - 1.0).abs() < 0.01;
    assert!(
        near(preset.shift.scale, fitted.shift.scale) && near(preset.shift.dof, fitted.shift.dof)
    );
    assert!(near(preset.warm_up.scale, fitted.warm_up.scale));
    assert!(near(preset.warm_up.dof, fitted.warm_up.dof));
    assert!(near(preset.stalls.shape, fitted.stalls.shape));
    assert!(near(preset.stalls.exposure, fitted.stalls.exposure));
    assert_eq!(preset.marks.len(), fitted.marks.len());
    assert!(preset.marks.iter().zip(&fitted.marks).all(|(a, b)| (a - b).abs() < 6e-4));
    assert!((preset.after_evaluation.mean - fitted.after_evaluation.mean).abs() < 1e-4);
    assert_eq!((preset.systems, preset.runs), (fitted.systems, fitted.runs));
}
