//! Laws of steps: invariances, and systems whose truth is known.

mod common;

use prism_io::StepLog;
use prism_job::{ReadOptions, RunDefaults, parse_run_plan};
use prism_run::cross::{CrossOptions, System, cross_validate, prior_of_others};
use prism_run::simulate::{Options, simulate};
use prism_run::{Class, Evidence, Separated, Shape, StepModel, fit_prior, separate};
use prism_stats::pooled::ScalePrior;
use prism_stats::stream;
use rand::RngExt;
use rand_distr::{ChiSquared, Distribution, Gamma, Normal, StandardNormal};

/// The truth of simulated systems.
const SCALE: f64 = 1e-3;
const DOF: f64 = 3.0;

/// Runs of one system: a level each, AR(1) cores, a warm-up, an evaluation every 40 steps, stalls.
fn simulated(seed: u64, runs: usize, steps: usize) -> Vec<StepLog> {
    let mut rng = stream(seed, "simulated system", &[]);
    let tau = SCALE * (DOF / ChiSquared::new(DOF).unwrap().sample(&mut rng)).sqrt();
    let base = 5.0 + 10.0 * rng.random::<f64>();
    let (cov, rho) = (0.002 + 0.006 * rng.random::<f64>(), 0.5 * rng.random::<f64>());
    let rate = Gamma::new(0.8, 0.01).unwrap().sample(&mut rng);
    let warm = 0.02 * rng.random::<f64>();
    let evaluations: Vec<usize> = (1..=steps / 40).map(|k| 40 * k).filter(|e| *e < steps).collect();
    (0..runs)
        .map(|r| {
            let level = base * (tau * Distribution::<f64>::sample(&StandardNormal, &mut rng)).exp();
            let first_excess = warm * Normal::new(1.0, 0.3).unwrap().sample(&mut rng);
            let mut z = 0.0;
            let step_s = (0..steps)
                .map(|i| {
                    let e: f64 = StandardNormal.sample(&mut rng);
                    z = rho * z + (1.0 - rho * rho).sqrt() * e;
                    let mut t = level * (1.0 + cov * z);
                    if i < 10 {
                        t *= 1.0 + first_excess;
                    }
                    if evaluations.contains(&i) {
                        t *= 1.03;
                    } else if i >= 10 && rng.random::<f64>() < rate {
                        t *= 1.0 + 0.08 - 0.2 * rng.random::<f64>().ln();
                    }
                    t
                })
                .collect();
            common::log(&format!("s{seed}/{r}"), (0..steps as i64).collect(), step_s, &evaluations)
        })
        .collect()
}

fn separated(logs: &[StepLog]) -> Vec<Separated> {
    logs.iter().map(|l| separate(l).unwrap()).collect()
}

fn systems(from: u64, count: u64) -> Vec<System> {
    (from..from + count)
        .map(|s| System { name: s.to_string(), runs: separated(&simulated(s, 3, 160)) })
        .collect()
}

#[test]
fn the_interval_covers_as_often_as_it_says() {
    let known: Vec<Evidence> =
        systems(1_000_000, 80).iter().map(|s| Evidence::of(&s.runs).unwrap()).collect();
    let prior = fit_prior("simulated", "", &known.iter().collect::<Vec<_>>()).unwrap();
    assert!((prior.shift.scale / SCALE).ln().abs() < 0.5, "{:?}", prior.shift);
    let inside = |system: &System| {
        let model =
            StepModel::new(Evidence::of(&system.runs[..2]).unwrap(), prior.clone()).unwrap();
        let total = model.total(&system.runs[2].shape(), 1 << 13, 1).unwrap().sorted_s;
        let at = |p: f64| prism_stats::quantile_type7(&total, p).unwrap();
        (at(0.05)..=at(0.95)).contains(&system.runs[2].total_s())
    };
    let covered = systems(0, 500).iter().filter(|s| inside(s)).count();
    // Standard error of a coverage of 90 % over 500 systems: 1.3 %.
    assert!((435..=465).contains(&covered), "{covered} of 500");
}

#[test]
fn the_run_that_is_predicted_does_not_enter() {
    let before = systems(10, 6);
    let mut after = before.clone();
    let mut log = simulated(10, 3, 160).swap_remove(1);
    for (i, t) in log.step_s.iter_mut().enumerate() {
        *t *= 1.0 + 0.3 * (i as f64).sin().powi(2);
    }
    after[0].runs[1] = separate(&log).unwrap();
    let options = CrossOptions { samples: 1 << 10, ..CrossOptions::default() };
    let of = |s: &[System]| cross_validate(s, options, |_| ()).unwrap().runs;
    let (a, b) = (of(&before), of(&after));
    assert_ne!(a[1].actual_s, b[1].actual_s);
    let bits = |x: f64, y: f64| assert_eq!(x.to_bits(), y.to_bits());
    bits(a[1].predicted.lower_s, b[1].predicted.lower_s);
    bits(a[1].predicted.upper_s, b[1].predicted.upper_s);
    bits(a[1].median_s, b[1].median_s);
    // It is a run that others are predicted from.
    assert_ne!(a[0].predicted.upper_s, b[0].predicted.upper_s);
}

#[test]
fn a_system_is_no_part_of_its_own_prior() {
    let before = systems(20, 6);
    let mut after = before.clone();
    after[3].runs = separated(&simulated(999, 3, 120));
    let evidence = |s: &[System]| -> Vec<Evidence> {
        s.iter().map(|s| Evidence::of(&s.runs).unwrap()).collect()
    };
    let (a, b) = (evidence(&before), evidence(&after));
    assert_eq!(prior_of_others(&a, 3).unwrap(), prior_of_others(&b, 3).unwrap());
    assert_ne!(prior_of_others(&a, 2).unwrap(), prior_of_others(&b, 2).unwrap());
}

#[test]
fn times_ten_give_intervals_times_ten() {
    let logs = simulated(30, 3, 200);
    let mut ten = logs.clone();
    for t in ten.iter_mut().flat_map(|l| &mut l.step_s) {
        *t *= 10.0;
    }
    let prior = prism_run::prior::mlperf();
    let total = |logs: &[StepLog]| {
        let runs = separated(logs);
        let model = StepModel::new(Evidence::of(&runs[..2]).unwrap(), prior.clone()).unwrap();
        model.total(&runs[2].shape(), 4_000, 3).unwrap().sorted_s
    };
    for (a, b) in total(&logs).iter().zip(total(&ten)) {
        assert!((b / a / 10.0 - 1.0).abs() < 1e-9, "{a} {b}");
    }
}

#[test]
fn totals_are_the_same_on_any_number_of_threads() {
    let runs = separated(&simulated(40, 2, 100));
    let model = StepModel::new(Evidence::of(&runs).unwrap(), prism_run::prior::mlperf()).unwrap();
    let shape = Shape { steps: 5_000, evaluations: vec![1_000, 2_000], ..Shape::default() };
    let on = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| model.total(&shape, 10_000, 7).unwrap())
    };
    assert_eq!(on(1), on(3));
}

#[test]
fn a_shared_course_is_found_and_taken_out() {
    // Two runs over one curriculum: ±3 %, as a slow wave; noise of 0.3 %.
    let course = |i: usize| 0.03 * (i as f64 / 25.0).sin();
    let runs: Vec<StepLog> = (0..2)
        .map(|r| {
            let mut rng = stream(50 + r, "course", &[]);
            let noise = Normal::new(1.0, 0.003).unwrap();
            let step_s =
                (0..300).map(|i| 8.0 * (1.0 + course(i)) * noise.sample(&mut rng)).collect();
            common::log(&format!("{r}"), (0..300).collect(), step_s, &[])
        })
        .collect();
    let evidence = Evidence::of(&separated(&runs)).unwrap();
    let profile = evidence.profile.as_ref().unwrap();
    assert!(profile.correlation > 0.95 && profile.p_value <= 0.01);
    assert!((evidence.core_cov / 0.003 - 1.0).abs() < 0.15, "{}", evidence.core_cov);
    assert!(evidence.rho < 0.2, "{}", evidence.rho);
    // A run of half the length is predicted with its half of the course.
    let model = StepModel::new(evidence, prism_run::prior::mlperf()).unwrap();
    let total = model.total(&Shape { steps: 75, ..Shape::default() }, 4_000, 1).unwrap().sorted_s;
    let truth: f64 = (0..75).map(|i| 8.0 * (1.0 + course(i))).sum();
    assert!((total[2_000] / truth - 1.0).abs() < 0.003, "{} {truth}", total[2_000]);
}

#[test]
fn beyond_a_course_its_average_goes_on() {
    // A wave of 40 steps: wherever the logs end in it, a long run takes its average step.
    let runs: Vec<StepLog> = (0..2)
        .map(|r| {
            let mut rng = stream(55 + r, "wave", &[]);
            let noise = Normal::new(1.0, 0.003).unwrap();
            let wave = |i: usize| 0.02 * (i as f64 * std::f64::consts::TAU / 40.0).sin();
            let step_s = (0..510).map(|i| 8.0 * (1.0 + wave(i)) * noise.sample(&mut rng)).collect();
            common::log(&format!("{r}"), (0..510).collect(), step_s, &[])
        })
        .collect();
    let evidence = Evidence::of(&separated(&runs)).unwrap();
    assert!(evidence.profile.is_some());
    let model = StepModel::new(evidence, prism_run::prior::mlperf()).unwrap();
    let shape = Shape { steps: 200_000, ..Shape::default() };
    let total = model.total(&shape, 4_000, 1).unwrap();
    assert!(total.warnings.iter().any(|w| w.contains("last half")), "{:?}", total.warnings);
    let (low, high) = (total.sorted_s[200], total.sorted_s[3_800]);
    let truth = 8.0 * 200_000.0;
    assert!(low < truth && truth < high, "{low} {high}");
    assert!((total.sorted_s[2_000] / truth - 1.0).abs() < 0.004, "{}", total.sorted_s[2_000]);
}

#[test]
fn independent_runs_have_no_course() {
    let found = (60..100)
        .filter(|&s| Evidence::of(&separated(&simulated(s, 2, 160))).unwrap().profile.is_some());
    // One in a hundred by chance.
    assert!(found.count() <= 2);
}

#[test]
fn steps_are_told_apart() {
    let mut log = simulated(70, 1, 120).swap_remove(0);
    log.step_s = (0..120).map(|i| 2.0 + 0.002 * f64::from(i % 3)).collect();
    log.step_s[63] = 2.5;
    log.step_s[80] = 2.7;
    let s = separate(&log).unwrap();
    assert_eq!(s.of(Class::WarmUp).collect::<Vec<_>>(), (0..10).collect::<Vec<_>>());
    // The slow step right after an evaluation is no stall.
    assert_eq!(s.of(Class::Stall).collect::<Vec<_>>(), [63]);
    assert_eq!(s.of(Class::AfterEvaluation).collect::<Vec<_>>(), [40, 80]);
}

#[test]
fn profiles_and_priors_survive_their_files() {
    let runs = separated(&simulated(80, 2, 100));
    let model = StepModel::new(Evidence::of(&runs).unwrap(), prism_run::prior::mlperf()).unwrap();
    let text = serde_json::to_string(&model).unwrap();
    assert_eq!(StepModel::from_json(&text).unwrap(), model);
    let bad = text.replace("prism.run-profile/1", "prism.run-profile/9");
    assert!(StepModel::from_json(&bad).unwrap_err().to_string().contains("prism.run-profile/9"));
    let prior = serde_json::to_string(&model.prior).unwrap();
    assert_eq!(prism_run::Prior::from_json(&prior).unwrap(), model.prior);
    let bad = prior.replace("\"dof\":", "\"dof\":-");
    assert!(prism_run::Prior::from_json(&bad).is_err());
}

#[test]
fn steps_worlds_apart_are_refused() {
    let mut runs = separated(&simulated(92, 2, 100));
    // A counter that is a time of day, one that begins at the least number there is, and one of both.
    for offset in [1_000_000_000_000_i64, i64::MAX - 200] {
        runs[1].step = (0..100).map(|i| offset + i).collect();
        let error = Evidence::of(&runs).unwrap_err();
        assert!(error.to_string().contains("apart"), "{error}");
        assert!(error.hint().is_some());
    }
    runs[0].step = (0..100).map(|i| i64::MIN + i).collect();
    assert!(Evidence::of(&runs).is_err());
    // Far from 0 together is no matter, nor is what is asked of any step.
    let same = runs[0].step.clone();
    runs[1].step = same;
    let model = StepModel::new(Evidence::of(&runs).unwrap(), prism_run::prior::mlperf()).unwrap();
    for first_step in [i64::MIN, -1, i64::MAX] {
        let shape = Shape { steps: 50, first_step: Some(first_step), ..Shape::default() };
        assert!(model.total(&shape, 16, 1).unwrap().sorted_s[0] > 0.0);
        assert!(model.profile_at(first_step).is_finite());
    }
}

#[test]
fn short_logs_and_mixed_averages_are_refused() {
    let log = common::log("short", (0..25).collect(), vec![1.0; 25], &[]);
    assert!(separate(&log).unwrap_err().to_string().starts_with("short: 25 rows"));
    let mut runs = separated(&simulated(90, 2, 100));
    runs[1].averaged_over = 5;
    assert!(Evidence::of(&runs).unwrap_err().to_string().contains("over 1 steps"));
    assert!(Evidence::of(&[]).is_err());
    let model = StepModel::new(
        Evidence::of(&separated(&simulated(91, 1, 100))).unwrap(),
        prism_run::prior::mlperf(),
    )
    .unwrap();
    assert!(model.warnings[0].contains("one run"));
    assert!(model.total(&Shape::default(), 100, 1).is_err());
}

/// Every value of a document, by its place.
fn places(value: &serde_json::Value, at: &str, out: &mut Vec<String>) {
    out.push(at.to_owned());
    match value {
        serde_json::Value::Object(map) => {
            map.iter().for_each(|(k, v)| places(v, &format!("{at}/{k}"), out));
        }
        serde_json::Value::Array(list) => {
            list.iter().enumerate().take(2).for_each(|(i, v)| places(v, &format!("{at}/{i}"), out));
        }
        _ => {}
    }
}

#[test]
fn a_damaged_profile_is_refused_or_works() {
    let runs = separated(&simulated(80, 2, 100));
    let model = StepModel::new(Evidence::of(&runs).unwrap(), prism_run::prior::mlperf()).unwrap();
    let whole = serde_json::to_value(&model).unwrap();
    let mut all = Vec::new();
    places(&whole, "", &mut all);
    let wrong = [
        "null",
        "-1",
        "0",
        "1e308",
        "1e-300",
        "\"x\"",
        "[]",
        "{}",
        "[[1,2]]",
        "[1e300]",
        "9e18",
        "9000000000000000000",
        "4000000000",
    ];
    let mut refused = 0;
    for place in &all {
        for value in wrong {
            let mut damaged = whole.clone();
            let value: serde_json::Value = serde_json::from_str(value).unwrap();
            *damaged.pointer_mut(place).unwrap() = value;
            let Ok(model) = StepModel::from_json(&damaged.to_string()) else {
                refused += 1;
                continue;
            };
            let shape = Shape { steps: 200, evaluations: vec![50], ..Shape::default() };
            let _ = model.total(&shape, 8, 1);
            let _ = model.paced(&shape);
        }
    }
    assert!(refused > all.len() * 5, "{refused} of {}", all.len() * wrong.len());
}

#[test]
fn runs_without_failures_take_what_their_steps_take() {
    let runs = separated(&simulated(95, 3, 300));
    let model = StepModel::new(Evidence::of(&runs).unwrap(), prism_run::prior::mlperf()).unwrap();
    let steps = 4_000;
    let shape = Shape { steps, ..Shape::default() };
    let total = model.total(&shape, 6_000, 1).unwrap().sorted_s;
    let text = format!("[run]\nsteps = {steps}\ngpus = 8\n");
    let plan = parse_run_plan(&text, &ReadOptions::default(), &RunDefaults::default()).unwrap();
    let options = Options { runs: 6_000, ..Options::default() };
    let paced = model.paced(&shape).unwrap();
    let simulated =
        prism_stats::quantile::sorted(&simulate(&paced, &plan, &options).unwrap().totals_s());
    // Two ways through the same law; one rounds a start that is faster than the steps after it up to none.
    let ks = prism_stats::ks_statistic_two(&total, &simulated).unwrap();
    let floor = prism_stats::ks_floor_two(6_000, 6_000).unwrap();
    assert!(ks < 1.5 * floor.p95, "{ks} {floor:?}");
    let middle = simulated[3_000] / total[3_000] - 1.0;
    assert!(middle.abs() < 2e-4, "{middle}");
}

#[test]
fn a_prediction_is_the_middle_of_its_runs() {
    let spread = ScalePrior { scale: 0.02, dof: 30.0 };
    let model = StepModel::predicted("x", 5.0, 0.1, spread).unwrap();
    assert!((model.core_s().unwrap() / 5.0 - 1.0).abs() < 1e-9);
    let (low, high) =
        (model.level_quantile_s(0.05).unwrap(), model.level_quantile_s(0.95).unwrap());
    // Student's t with 30 degrees of freedom: 1.697 s.d. to each side.
    assert!(((high / low).ln() / (2.0 * 1.697 * 0.02) - 1.0).abs() < 1e-3, "{low} {high}");
    assert!(StepModel::predicted("x", 0.0, 0.1, spread).is_err());
    assert!(StepModel::predicted("x", 1.0, f64::NAN, spread).is_err());
}
