//! Comparisons of jobs whose difference is known.

mod common;

use common::{Failure, Job, spec};
use prism_decide::diff::{
    DIFF_SCHEMA, DiffError, DiffOptions, DiffReport, Finding, diff, diff_steps,
};
use prism_model::{EffectKind, OpKind};

type Outcome = Result<(), Failure>;

/// What happens to an operation of a replica, to its work and its delay.
type Change = fn(&prism_graph::Op, u32, &mut f64, &mut f64);

/// Findings without the step time they explain.
fn quick() -> DiffOptions {
    DiffOptions { samples: 16, repetitions: 0, ..DiffOptions::default() }
}

fn halves(a: &Job, b: &Job, seed: u64, options: &DiffOptions) -> Result<DiffReport, Failure> {
    let (first, second) = a.halves(seed);
    Ok(diff(&a.profile(&first)?, &b.profile(&second)?, options)?)
}

fn names(report: &DiffReport) -> Vec<&str> {
    report.findings().iter().map(|f| f.name.as_str()).collect()
}

/// Splits with a finding, of 40; at a level of 5 % more than 6 have a probability below 0.4 %.
fn assert_quiet(job: &Job) -> Outcome {
    let mut found = 0;
    for seed in 0..40 {
        found += usize::from(!halves(job, job, seed, &quick())?.findings().is_empty());
    }
    assert!(found <= 6, "{found} of 40 halves differ");
    Ok(())
}

#[test]
fn halves_of_one_job_do_not_differ() -> Outcome {
    assert_quiet(&Job::synthetic(&spec(2, 2, 4, 44, 11))?)?;
    let mut windows = spec(2, 2, 4, 48, 12);
    windows.steps.window = 8;
    windows.effects.window.sd_log = 0.02;
    assert_quiet(&Job::synthetic(&windows)?)
}

#[test]
fn halves_of_recorded_jobs_do_not_differ() -> Outcome {
    for name in ["AR", "ST"] {
        if let Some(job) = Job::recorded(name)? {
            assert_quiet(&job)?;
        }
    }
    Ok(())
}

#[test]
fn a_slow_kernel_on_one_rank_is_the_only_finding() -> Outcome {
    let mut calm = spec(4, 2, 8, 44, 21);
    calm.effects.microbatch.sd_log = 0.03;
    let job = Job::synthetic(&calm)?;
    for (kind, dp, stage) in [(OpKind::ForwardCompute, 1, 0), (OpKind::BackwardCompute, 3, 1)] {
        let slow = job.changed(|op, r, work, _| {
            if op.kind == kind && op.stage == stage && r == dp {
                *work *= 1.03;
            }
        })?;
        let report = halves(&job, &slow, 5, &quick())?;
        assert_eq!(names(&report), [format!("{kind} on dp {dp}, stage {stage}")]);
        let f = &report.findings()[0];
        let interval = f.interval.unwrap();
        assert!(interval.lower < 0.03 && 0.03 < interval.upper, "{f:?}");
        assert!(f.p_corrected < 0.05 && f.p_value <= f.p_corrected);
        assert!(f.p_permutation.is_some_and(|p| p < 1e-3), "{f:?}");
    }
    Ok(())
}

#[test]
fn a_slow_kernel_of_a_recorded_job_is_named_first() -> Outcome {
    let Some(job) = Job::recorded("AR")? else { return Ok(()) };
    let slow = job.changed(|op, r, work, _| {
        if op.kind == OpKind::ForwardCompute && op.stage == 2 && r == 2 {
            *work *= 1.03;
        }
    })?;
    for seed in 0..5 {
        let report = halves(&job, &slow, seed, &quick())?;
        let first = report.findings().first().map(|f| f.name.as_str());
        assert_eq!(first, Some("forward-compute on dp 2, stage 2"), "{:?}", names(&report));
    }
    Ok(())
}

#[test]
fn a_change_is_named_at_its_own_level() -> Outcome {
    let job = Job::synthetic(&spec(4, 3, 8, 60, 31))?;
    let cases: [(&str, Change); 5] = [
        ("forward-compute", |op, _, w, _| {
            if op.kind == OpKind::ForwardCompute {
                *w *= 1.05;
            }
        }),
        ("all compute on stage 1", |op, _, w, _| {
            if op.kind.is_microbatch_compute() && op.stage == 1 {
                *w *= 1.05;
            }
        }),
        ("all compute on dp 2, stage 1", |op, r, w, _| {
            if op.kind.is_microbatch_compute() && op.stage == 1 && r == 2 {
                *w *= 1.06;
            }
        }),
        ("params-all-gather", |op, _, w, _| {
            if op.kind == OpKind::ParamsAllGather {
                *w *= 1.5;
            }
        }),
        ("launch delay of backward-compute on dp 1, stage 0", |op, r, _, d| {
            if op.kind == OpKind::BackwardCompute && op.stage == 0 && r == 1 {
                *d += 0.003;
            }
        }),
    ];
    for (name, change) in cases {
        let report = halves(&job, &job.changed(change)?, 3, &quick())?;
        assert_eq!(names(&report), [name]);
    }
    Ok(())
}

#[test]
fn two_causes_are_told_apart() -> Outcome {
    let job = Job::synthetic(&spec(4, 2, 8, 60, 41))?;
    let slow = job.changed(|op, r, work, _| {
        if op.kind == OpKind::ForwardCompute {
            *work *= 1.05;
        }
        if op.kind.is_microbatch_compute() && op.stage == 1 && r == 3 {
            *work *= 1.10;
        }
    })?;
    let report = halves(&job, &slow, 1, &quick())?;
    let mut found = names(&report);
    found.sort_unstable();
    assert_eq!(found, ["all compute on dp 3, stage 1", "forward-compute"]);
    for (name, truth) in [("forward-compute", 0.05), ("all compute on dp 3, stage 1", 0.10)] {
        let f = report.findings().iter().find(|f| f.name == name).unwrap();
        assert!((f.change - truth).abs() < 0.02, "{f:?}");
    }
    Ok(())
}

#[test]
fn a_doubled_spread_is_named_and_nothing_else() -> Outcome {
    let mut low = spec(4, 2, 8, 60, 51);
    low.effects.microbatch.sd_log = 0.03;
    let case = |change: fn(&mut prism_engine::synth::SynthEffects)| -> Result<_, Failure> {
        let mut high = low.clone();
        change(&mut high.effects);
        let report = halves(&Job::synthetic(&low)?, &Job::synthetic(&high)?, 2, &quick())?;
        let found: Vec<_> = report.findings().iter().map(|f| f.scope.effect).collect();
        assert_eq!(report.findings().len(), 1, "{:?}", names(&report));
        assert!(report.findings()[0].interval.is_some());
        Ok(found[0])
    };
    assert_eq!(case(|e| e.microbatch.sd_log *= 2.0)?, Some(EffectKind::Microbatch));
    assert_eq!(case(|e| e.residual.sd_log *= 2.0)?, Some(EffectKind::Residual));
    Ok(())
}

/// The injected change of the very steps, recorded anew, is what "added to A" must find.
#[test]
fn an_injected_cause_explains_the_change_of_the_mean() -> Outcome {
    let job = Job::synthetic(&spec(2, 2, 8, 60, 61))?;
    let slow = job.changed(|op, _, work, _| {
        if op.kind == OpKind::BackwardCompute {
            *work *= 1.05;
        }
    })?;
    let mean = |j: &Job| j.replayed.report.mean_base_s;
    let truth = mean(&slow) - mean(&job);
    let mut inside = 0;
    for seed in 0..6 {
        let report = halves(&job, &slow, seed, &DiffOptions::default())?;
        // One of twenty halves may show something else besides.
        let f: &Finding = &report.findings()[0];
        assert_eq!(f.name, "backward-compute");
        for change in [&f.added_to_a, &f.removed_from_b] {
            let c = change.as_ref().unwrap();
            // Of a 5 % change the size is known to about a tenth.
            assert!((c.mean_s / truth - 1.0).abs() < 0.3, "{c:?}, truth {truth}");
            let i = c.mean_interval_s.unwrap();
            inside += usize::from(i.lower <= truth && truth <= i.upper);
        }
        let e = &report.parts.as_ref().unwrap().explained;
        if report.findings().len() == 1 {
            assert!((e.joint.mean_s - e.sum.mean_s).abs() < 1e-6 * truth, "one cause");
        }
        let rest = e.total.mean_s - e.joint.mean_s - e.remainder.mean_s;
        assert!(rest.abs() < 1e-9);
    }
    // 12 intervals of 95 %, two by two dependent: fewer than 9 has a probability below 0.1 %.
    assert!(inside >= 9, "{inside} of 12");
    Ok(())
}

#[test]
fn threads_change_no_bit_and_swapping_sides_changes_signs_only() -> Outcome {
    let job = Job::synthetic(&spec(2, 2, 4, 40, 71))?;
    let slow = job.changed(|op, _, work, _| {
        if op.kind == OpKind::ForwardCompute {
            *work *= 1.1;
        }
    })?;
    let (first, second) = job.halves(1);
    let (a, b) = (job.profile(&first)?, slow.profile(&second)?);
    let options = |threads| DiffOptions { threads, repetitions: 8, ..DiffOptions::default() };
    let one = diff(&a, &b, &options(1))?;
    assert_eq!(one, diff(&a, &b, &options(0))?);
    assert_eq!(one.schema, DIFF_SCHEMA);
    let back = diff(&b, &a, &options(1))?;
    assert_eq!(names(&one), names(&back));
    let (f, g) = (&one.findings()[0], &back.findings()[0]);
    assert!(((1.0 + f.change) * (1.0 + g.change) - 1.0).abs() < 1e-9);
    assert!((f.p_value / g.p_value - 1.0).abs() < 1e-6);
    Ok(())
}

#[test]
fn other_plans_are_compared_on_what_matches() -> Outcome {
    let a = Job::synthetic(&spec(2, 2, 4, 40, 81))?;
    let b = Job::synthetic(&spec(4, 3, 8, 40, 82))?;
    let all = |j: &Job| (0..j.steps()).collect::<Vec<_>>();
    let (pa, pb) = (a.profile(&all(&a))?, b.profile(&all(&b))?);
    let report = diff(&pa, &pb, &quick())?;
    assert!(report.warnings.iter().any(|w| w.contains("2 replicas")), "{:?}", report.warnings);
    assert!(report.warnings.iter().any(|w| w.contains("2 stages")), "{:?}", report.warnings);
    assert!(report.warnings.iter().any(|w| w.contains("4 microbatches")));
    let parts = report.parts.unwrap();
    let only_b: Vec<_> = parts.unmatched.iter().filter(|u| u.side == "B").collect();
    assert!(only_b.iter().any(|u| u.signatures.iter().any(|s| s.stage == 2)), "{only_b:?}");
    assert!(parts.findings.iter().all(|f| f.scope.dp.is_none()), "ranks are not compared");
    let mut none = pb;
    for s in &mut none.model.compute.signatures {
        s.signature.chunk = 9;
    }
    let refused = diff(&pa, &none, &quick()).unwrap_err();
    assert!(matches!(refused, DiffError::NothingMatches) && refused.hint().is_some());
    Ok(())
}

#[test]
fn step_logs_are_compared_by_their_times() -> Outcome {
    let ids: Vec<i64> = (0..200).collect();
    let times: Vec<f64> = ids.iter().map(|i| 1.0 + 0.01 * (i * 37 % 41) as f64).collect();
    let slower: Vec<f64> = times.iter().map(|t| 1.1 * t).collect();
    let report = diff_steps((&ids, &times), (&ids, &slower), &quick())?;
    for s in &report.overall.statistics {
        assert!((s.ratio.unwrap() - 1.1).abs() < 1e-9, "{s:?}");
        let i = s.ratio_interval.unwrap();
        assert!(i.lower < 1.1 && 1.1 < i.upper, "{s:?}");
    }
    assert!(report.overall.slower_than(0.02) && !report.overall.slower_than(0.1));
    assert!(report.parts.is_none() && report.findings().is_empty());
    assert!(report.overall.tests.iter().all(|t| t.p_value < 1e-3), "{:?}", report.overall.tests);
    let refused = diff_steps((&ids[..1], &times[..1]), (&ids, &times), &quick());
    assert!(matches!(refused, Err(DiffError::TooFewSteps { side: "A", steps: 1 })));
    let wrong = diff_steps((&ids[..2], &[1.0, f64::NAN]), (&ids, &times), &quick());
    assert!(matches!(wrong, Err(DiffError::StepTime { side: "A", step: 1, .. })));
    let alpha = DiffOptions { alpha: 0.0, ..quick() };
    assert!(diff_steps((&ids, &times), (&ids, &times), &alpha).is_err());
    Ok(())
}

#[test]
fn one_window_against_several_has_the_spread_of_the_several() -> Outcome {
    // Three windows at 1.00, 1.02 and 1.04 s, against one at 1.02 s, and one far off.
    let ids: Vec<i64> = (0..30).map(|i| i / 10 * 1_000 + i % 10).collect();
    let jitter = |i: i64| 0.001 * (i * 7 % 5) as f64;
    let times: Vec<f64> =
        ids.iter().map(|&i| 1.0 + 0.02 * (i / 1_000) as f64 + jitter(i)).collect();
    let one: Vec<i64> = (0..10).collect();
    let at = |level: f64| one.iter().map(|&i| level + jitter(i)).collect::<Vec<f64>>();
    for (level, slower) in [(1.02, false), (2.0, true)] {
        let report = diff_steps((&ids, &times), (&one, &at(level)), &quick())?;
        assert_eq!((report.overall.a_units, report.overall.b_units), (3, 1));
        let mean = report.overall.mean().unwrap();
        let i = mean.ratio_interval.unwrap();
        // t(2) at 95 % is 4.303; s.d. of window means 0.02, of a difference 0.02·sqrt(1 + 1/3).
        let half = 4.303 * 0.02 * (4.0_f64 / 3.0).sqrt() / 1.022;
        assert!((0.5 * (i.upper - i.lower) / half - 1.0).abs() < 0.01, "{i:?} {half}");
        assert_eq!(report.overall.slower_than(0.02), slower);
    }
    Ok(())
}
