//! Scenarios against hand-made arithmetic and exact evaluation, and the coverage of paired intervals.

use prism_decide::compare::{CompareOptions, Comparison, compare};
use prism_decide::paired::Statistic;
use prism_decide::scenario::{Donor, Donors, Job, Scenario, ScenarioError, apply};
use prism_decide::select::Layout;
use prism_engine::calibrate::{CalibrateOptions, Calibrated, Selection, calibrate};
use prism_engine::predict::{PredictOptions, means, noise_free_step};
use prism_engine::replay::{Builder, Replayed};
use prism_engine::synth::{EffectSpec, SlowWorker, SynthSpec};
use prism_graph::evaluate;
use prism_graph::schedule::{Schedule, ScheduleKind};
use prism_model::KernelClass;

fn spec(stages: u16, microbatches: u32, replicas: u32, steps: u32) -> SynthSpec {
    let plan = Schedule { replicas, ..Schedule::new(ScheduleKind::OneFOneB, stages, microbatches) };
    SynthSpec::new(plan, steps)
}

fn noisy(stages: u16, microbatches: u32, replicas: u32, steps: u32) -> SynthSpec {
    let mut spec = spec(stages, microbatches, replicas, steps);
    spec.effects.step = EffectSpec::normal(0.02);
    spec.effects.step_worker = EffectSpec::normal(0.01);
    spec.effects.microbatch = EffectSpec::normal(0.08);
    spec.effects.residual = EffectSpec::normal(0.02);
    spec.effects.transfer = EffectSpec::normal(0.1);
    spec
}

fn calibrated(spec: &SynthSpec) -> Calibrated {
    let table = spec.generate().unwrap().table;
    let replayed = Replayed::new(Builder::Reference, &table).unwrap();
    calibrate(&replayed, &Selection::all(&replayed), &CalibrateOptions::default()).unwrap()
}

fn job(calibrated: &Calibrated) -> Job<'_> {
    let layout = Layout {
        gpus_per_worker: 2,
        replicas: calibrated.graph.replicas(),
        stages: calibrated.graph.stages(),
        gpus_per_node: 4,
    };
    Job { graph: &calibrated.graph, model: &calibrated.model, layout }
}

fn quick(samples: usize) -> CompareOptions {
    CompareOptions { samples, repetitions: 0, resamples: 50, ..CompareOptions::default() }
}

fn one(calibrated: &Calibrated, text: &str, options: &CompareOptions) -> Comparison {
    let scenario: Scenario = text.parse().unwrap();
    let report = compare(&job(calibrated), &[scenario], &Donors::new(), options).unwrap();
    report.comparisons.into_iter().next().unwrap()
}

fn at(comparison: &Comparison, statistic: Statistic) -> (f64, f64) {
    let d = comparison.differences.iter().find(|d| d.statistic == statistic).unwrap();
    (d.base_s, d.changed_s)
}

/// What becomes of an operation's work on a replica.
type Change<'a> = Box<dyn Fn(&prism_graph::Op, usize, f64) -> f64 + 'a>;

/// Without noise a scenario is exact arithmetic: the same operations changed by hand and evaluated.
#[test]
fn edits_are_what_they_say() {
    let calibrated = calibrated(&spec(3, 4, 2, 6));
    let (graph, replicas) = (&calibrated.graph, 2_usize);
    let means = means(graph, &calibrated.model);
    let compute = |k: prism_model::OpKind| k.is_microbatch_compute();
    let transfer =
        |k: KernelClass| matches!(k, KernelClass::PointToPoint | KernelClass::Collective);
    let cases: Vec<(&str, Change<'_>)> = vec![
        (
            "scale x1.5 kind=forward-compute stage=1",
            Box::new(|op, _, w| {
                if op.kind == prism_model::OpKind::ForwardCompute && op.stage == 1 {
                    1.5 * w
                } else {
                    w
                }
            }),
        ),
        (
            "set 0.3s kind=backward-compute microbatch=last dp=1",
            Box::new(|op, r, w| {
                let hit =
                    op.kind == prism_model::OpKind::BackwardCompute && op.microbatch == 3 && r == 1;
                if hit { 0.3 } else { w }
            }),
        ),
        (
            "slow-node x2 rank=5",
            Box::new(|op, r, w| {
                // Two GPUs a worker, two replicas: rank 5 is in dp 0 of stage 1.
                if compute(op.kind) && op.stage == 1 && r == 0 { 2.0 * w } else { w }
            }),
        ),
        (
            "slow-node x2 node=1",
            Box::new(|op, _, w| {
                // Four GPUs a node: node 1 holds both workers of stage 1.
                if compute(op.kind) && op.stage == 1 { 2.0 * w } else { w }
            }),
        ),
        (
            "slow-link x50 kind=p2p",
            Box::new(|op, _, w| if op.kind.is_p2p() { 50.0 * w } else { w }),
        ),
        (
            "scale x2; scale x0.25 kind=compute",
            Box::new(|op, _, w| if compute(op.kind) { 0.5 * w } else { 2.0 * w }),
        ),
        (
            "congestion x40 p=1",
            Box::new(|op, _, w| if transfer(op.kind.class()) { 40.0 * w } else { w }),
        ),
        ("freeze", Box::new(|_, _, w| w)),
    ];
    for (text, change) in cases {
        let mut work = means.work_s.clone();
        for (id, op) in graph.iter() {
            for r in 0..replicas {
                let slot = &mut work[id.0 as usize * replicas + r];
                *slot = change(op, r, *slot);
            }
        }
        let exact = evaluate(graph, 1, &work, Some(&means.delay_s)).unwrap().step_times(graph)[0];
        let comparison = one(&calibrated, text, &quick(100));
        let (_, changed) = at(&comparison, Statistic::Mean);
        assert!((changed / exact - 1.0).abs() < 5e-6, "{text}: {changed} instead of {exact}");
    }
}

/// A slow link slows both ends: sends of one stage are receives of the next.
#[test]
fn a_slow_link_has_two_ends() {
    let calibrated = calibrated(&spec(3, 2, 2, 6));
    let job = job(&calibrated);
    let changed = |text: &str| apply(&job, &text.parse().unwrap(), &Donors::new()).unwrap().adjust;
    assert_eq!(
        changed("slow-link x3 kind=forward-send stage=0 dp=1"),
        changed("slow-link x3 kind=forward-recv stage=1 dp=1")
    );
    assert_ne!(changed("slow-link x3 kind=p2p stage=0"), changed("slow-link x3 kind=p2p stage=2"));
}

/// Frozen effects keep the mean and lose the variance; a doubled spread doubles it.
#[test]
fn spreads_change_around_the_same_mean() {
    // One stage and one replica: the step is a sum, so that means and variances are known.
    let calibrated = calibrated(&noisy(1, 8, 1, 200));
    let statistics = vec![Statistic::Mean, Statistic::Sd];
    let options = CompareOptions { statistics, ..quick(40_000) };
    let base = one(&calibrated, "scale x1", &options);
    let ((mean, _), (sd, _)) = (at(&base, Statistic::Mean), at(&base, Statistic::Sd));
    let error = sd / 200.0;
    for text in [
        "freeze effect=microbatch",
        "freeze effect=step",
        "freeze effect=residual",
        "spread x2 effect=microbatch",
        "freeze kind=compute",
    ] {
        let (_, changed) = at(&one(&calibrated, text, &options), Statistic::Mean);
        // Means of 40,000 paired samples: five standard errors of the difference at most.
        assert!((changed - mean).abs() < 7.0 * error, "{text}: {changed} {mean} {error}");
    }
    let sd_of = |text: &str| at(&one(&calibrated, text, &options), Statistic::Sd).1;
    let parts = |names: &[&str]| {
        let edits: Vec<String> = names.iter().map(|n| format!("freeze effect={n}")).collect();
        sd_of(&edits.join("; "))
    };
    let microbatch = parts(&[
        "step",
        "step-worker",
        "residual",
        "transfer",
        "collective",
        "optimizer",
        "launch-delay",
    ]);
    let twice = sd_of("freeze effect=step; freeze effect=residual; spread x2 effect=microbatch");
    assert!((twice / microbatch - 2.0).abs() < 0.05, "{twice} {microbatch}");
    let none = parts(&[
        "step",
        "step-worker",
        "residual",
        "microbatch",
        "transfer",
        "collective",
        "optimizer",
        "launch-delay",
    ]);
    assert!(none < 1e-5 * mean, "{none}");
    // Independent parts add up in quadrature.
    let rest = sd_of("freeze effect=microbatch");
    assert!((microbatch.hypot(rest) / sd - 1.0).abs() < 0.03, "{microbatch} {rest} {sd}");
}

/// All effects frozen: the noise-free step.
#[test]
fn everything_frozen_is_the_noise_free_step() {
    let calibrated = calibrated(&noisy(3, 4, 2, 20));
    let all = "step-worker step microbatch residual transfer congestion collective optimizer launch-delay";
    let edits: Vec<String> = all.split(' ').map(|e| format!("freeze effect={e}")).collect();
    let comparison = one(&calibrated, &edits.join("; "), &quick(100));
    let quiet = noise_free_step(&calibrated.graph, &calibrated.model, &PredictOptions::default());
    let (_, changed) = at(&comparison, Statistic::Mean);
    assert!((changed / quiet.unwrap() - 1.0).abs() < 1e-6);
}

/// A slow worker healed takes what the job without it does.
#[test]
fn healing_undoes_a_slow_worker() {
    let healthy = noisy(2, 4, 4, 40);
    let mut sick = healthy.clone();
    sick.slow_worker = Some(SlowWorker { replica: 2, stage: 1, factor: 1.6 });
    let (healthy, sick) = (calibrated(&healthy), calibrated(&sick));
    let options = quick(4_000);
    let (expected, _) = at(&one(&healthy, "scale x1", &options), Statistic::Mean);
    let comparison = one(&sick, "heal dp=2 stage=1", &options);
    let (before, after) = at(&comparison, Statistic::Mean);
    assert!(before > 1.2 * expected, "{before} {expected}");
    // The other workers' estimates differ a little from those of a worker that never was slow.
    assert!((after / expected - 1.0).abs() < 0.01, "{after} {expected}");
    assert!(comparison.faster.value > 0.99 && comparison.faster_same_noise.value > 0.999);
}

/// Repacked sequences: replicas without other noise end together, and no work is lost.
#[test]
fn repacking_keeps_the_work_and_evens_it_out() {
    let mut spec = spec(1, 6, 4, 60);
    spec.effects.microbatch = EffectSpec::normal(0.3);
    let calibrated = calibrated(&spec);
    let options = quick(20_000);
    let step = one(&calibrated, "repack over=step", &options);
    let replica = one(&calibrated, "repack over=replica", &options);
    let (before, even) = at(&step, Statistic::Mean);
    let (_, within) = at(&replica, Statistic::Mean);
    // One stage: a replica's compute is its sum of microbatches, repacked or not.
    assert!((within / before - 1.0).abs() < 1e-3, "{within} {before}");
    let means = means(&calibrated.graph, &calibrated.model);
    let exact = evaluate(&calibrated.graph, 1, &means.work_s, None).unwrap();
    let exact = exact.step_times(&calibrated.graph)[0];
    assert!((even / exact - 1.0).abs() < 3e-3, "{even} {exact}");
    assert!(before > 1.05 * even);
}

/// Sizes by speed: a replica that is half as fast gets two thirds of the even share, and all end
/// together at the harmonic mean's time.
#[test]
fn rebalancing_evens_out_slow_replicas() {
    let mut spec = spec(1, 4, 3, 6);
    spec.slow_worker = Some(SlowWorker { replica: 1, stage: 0, factor: 2.0 });
    let calibrated = calibrated(&spec);
    let comparison = one(&calibrated, "rebalance", &quick(100));
    let (before, after) = at(&comparison, Statistic::Mean);
    let compute = 4.0 * (spec.durations.forward_s + spec.durations.backward_s);
    let gain = before - after;
    // Speeds 1, ½, 1 share 3: sizes 1.2, 0.6, 1.2, all done at 1.2 instead of 2.
    assert!((gain / (0.8 * compute) - 1.0).abs() < 0.01, "{gain} {compute}");
    assert!(comparison.notes[0].contains("60.0 to 120.0 %"), "{:?}", comparison.notes);
}

/// Swapping with oneself changes no bit; with a slower job of the same noise, its time is taken over.
#[test]
fn swapped_signatures_bring_their_durations() {
    let own = calibrated(&noisy(2, 4, 2, 30));
    let mut slower = noisy(2, 4, 2, 30);
    slower.durations.forward_s *= 1.5;
    let other = calibrated(&slower);
    let donors = Donors::from([
        ("own".to_owned(), Donor { graph: &own.graph, model: &own.model }),
        ("other".to_owned(), Donor { graph: &other.graph, model: &other.model }),
    ]);
    let compare = |text: &str| {
        let scenario: Scenario = text.parse().unwrap();
        compare(&job(&own), &[scenario], &donors, &quick(3_000)).unwrap().comparisons.remove(0)
    };
    for d in compare("swap profile=own").differences {
        assert_eq!(d.base_s, d.changed_s, "{}", d.statistic);
    }
    let swapped = compare("swap profile=other kind=forward-compute");
    let scaled = compare("scale x1.5 kind=forward-compute");
    let (a, b) = (at(&swapped, Statistic::Mean).1, at(&scaled, Statistic::Mean).1);
    assert!((a / b - 1.0).abs() < 2e-3, "{a} {b}");
    let unknown: Scenario =
        "swap profile=other from=forward-compute@7 kind=forward-compute".parse().unwrap();
    let error = apply(&job(&own), &unknown, &donors).unwrap_err().to_string();
    assert!(error.contains("forward-compute@7") && error.contains("forward-compute@0"), "{error}");
}

/// A regime comes in its share of the steps, and a step's selection in that step's.
#[test]
fn regimes_and_steps_have_their_share() {
    let calibrated = calibrated(&noisy(2, 3, 2, 25));
    let n = 20_000.0_f64;
    let share = |text: &str| {
        let c = one(&calibrated, text, &quick(20_000));
        let d = &c.differences[0];
        assert!(d.changed_s < d.base_s, "{text} makes steps shorter");
        1.0 - c.faster_same_noise.value
    };
    // Transfers at half their time in 30 % of the steps.
    let calm = share("congestion x0.5 p=0.3");
    assert!((calm - 0.7).abs() < 5.0 * (0.21 / n).sqrt(), "{calm}");
    let first = calibrated.model.steps[3];
    let other = share(&format!("scale x0.9 kind=compute step={first}"));
    assert!((other - 0.96).abs() < 5.0 * (0.0384 / n).sqrt(), "{other}");
}

/// What cannot be applied is refused, in words.
#[test]
fn impossible_edits_are_refused() {
    let calibrated = calibrated(&spec(2, 3, 1, 6));
    for (text, says) in [
        ("scale x2 stage=5", "no stage 5"),
        ("scale x2 dp=1", "no dp 1"),
        ("scale x2 rank=99", "no rank 99"),
        ("scale x2 step=12345", "none of the recorded steps"),
        ("slow-node x2 kind=p2p", "none of the selected"),
        ("scale x2 kind=embedding-grads-all-reduce stage=0 microbatch=1", "selects no operation"),
        ("heal dp=0", "do not differ"),
        ("rebalance", "one replica"),
        ("repack", "no effect of their own"),
        ("freeze effect=microbatch step=0", "over all steps"),
        ("swap profile=nowhere", "no profile `nowhere`"),
        ("slow-link x2 kind=compute", "no transfer"),
    ] {
        let scenario: Scenario = text.parse().unwrap();
        let error = apply(&job(&calibrated), &scenario, &Donors::new()).unwrap_err();
        assert!(matches!(error, ScenarioError::Apply { .. }));
        assert!(error.to_string().contains(says), "{text}: {error}");
    }
}

/// Same bits on any number of threads, calibration error included.
#[test]
fn threads_change_no_bit() {
    let calibrated = calibrated(&noisy(2, 4, 2, 20));
    let scenarios: Vec<Scenario> =
        vec!["slow-node x1.2 dp=0 stage=1".parse().unwrap(), "repack".parse().unwrap()];
    let with = |threads| {
        let options =
            CompareOptions { threads, repetitions: 6, samples: 500, resamples: 20, ..quick(500) };
        compare(&job(&calibrated), &scenarios, &Donors::new(), &options).unwrap()
    };
    assert_eq!(with(1), with(3));
    assert!(with(2).comparisons[0].differences[0].difference_s.total.is_some());
}

/// 200 pairs whose true difference is known from 2^19 samples: paired 95 % intervals cover it in at
/// least 92 % (a binomial standard error is 1.5 points), and are at least five times narrower than
/// those of independent samples where a scenario touches one stage.
#[test]
fn paired_intervals_cover_and_are_narrow() {
    let calibrated = calibrated(&noisy(4, 6, 2, 40));
    let text = "scale x1.03 kind=compute stage=1";
    let truth =
        one(&calibrated, text, &CompareOptions { seed: 99, resamples: 20, ..quick(1 << 19) });
    let pairs = 200;
    let mut covered = vec![0; truth.differences.len()];
    let mut widest = vec![0.0_f64; covered.len()];
    let mut widths = vec![0.0; covered.len()];
    for seed in 0..pairs {
        let options = CompareOptions { seed: 1_000 + seed, resamples: 200, ..quick(1_000) };
        let got = one(&calibrated, text, &options);
        for (k, (d, t)) in got.differences.iter().zip(&truth.differences).enumerate() {
            let bounds = d.difference_s.sampling;
            let real = t.difference_s.value;
            covered[k] += usize::from(bounds.lower <= real && real <= bounds.upper);
            let ratio = d.paired_width_ratio.unwrap();
            widest[k] = widest[k].max(ratio);
            widths[k] += ratio / pairs as f64;
        }
    }
    for (k, d) in truth.differences.iter().enumerate() {
        let share = covered[k] as f64 / pairs as f64;
        println!(
            "{}: covers {share:.3}, paired/unpaired width {:.3} (widest {:.3})",
            d.statistic, widths[k], widest[k]
        );
        assert!(share >= 0.92, "{} covers {share}", d.statistic);
    }
    for (width, d) in widths.iter().zip(&truth.differences).take(3) {
        assert!(*width <= 0.2, "{}: {width}", d.statistic);
    }
}

/// Fitted laws obey scenarios as observed vectors do: frozen effects keep the mean and lose their
/// variance, on single replicas too; transfers and repacked sequences as well.
#[test]
fn scenarios_hold_for_fitted_laws() {
    let two = calibrated(&noisy(1, 6, 2, 150));
    let statistics = vec![Statistic::Mean, Statistic::Sd];
    let options = CompareOptions {
        draws: prism_engine::predict::Draws::Parametric,
        statistics,
        ..quick(20_000)
    };
    let (base, sd) = {
        let c = one(&two, "scale x1", &options);
        (at(&c, Statistic::Mean).0, at(&c, Statistic::Sd).0)
    };
    let changed = |text: &str| {
        let c = one(&two, text, &options);
        (at(&c, Statistic::Mean).1, at(&c, Statistic::Sd).1)
    };
    let all = "step step-worker microbatch residual transfer collective optimizer launch-delay";
    let frozen: Vec<String> = all.split(' ').map(|e| format!("freeze effect={e}")).collect();
    let (mean, left) = changed(&frozen.join("; "));
    assert!(left < 1e-5 * mean, "{left}");
    // The maximum over two replicas is above what each takes on average.
    assert!(mean < base && mean > 0.9 * base, "{mean} {base}");
    let (_, even) = changed("freeze effect=microbatch");
    let (one_sided, half) = changed("freeze effect=microbatch dp=0");
    assert!(even < half && half < sd, "{even} {half} {sd}");
    assert!(one_sided < base);
    let (_, wide) = changed("spread x2 effect=microbatch");
    assert!(wide > 1.3 * sd, "{wide} {sd}");
    // Replicas with the same load no longer wait for the longer one.
    let (repacked, _) = changed("repack over=step");
    assert!(repacked < base - 5.0 * sd / 20_000.0_f64.sqrt(), "{repacked} {base}");

    // One replica of two stages: the step's variance has a share of the transfers between them.
    let mut spec = noisy(2, 6, 1, 150);
    spec.effects.transfer = EffectSpec::normal(0.8);
    spec.durations.p2p_s = 0.15;
    let pipeline = calibrated(&spec);
    let sd_of = |text: &str| at(&one(&pipeline, text, &options), Statistic::Sd).1;
    let (without, with) = (sd_of("freeze effect=transfer"), sd_of("scale x1"));
    assert!(without < 0.95 * with, "{without} {with}");
    assert!(sd_of("spread x2 effect=transfer") > 1.05 * with);
}
