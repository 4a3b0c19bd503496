//! How often a comparison errs, and how often it names the cause.
//!
//! ```text
//! cargo run --release -p prism-decide --example diff_truth [-- PART...]
//! ```
//!
//! Parts: `size` (findings between two random halves of one job), `power` (one injected cause: is it
//! named first, is it named alone), `share` (does "added to A" cover the change of the mean step
//! time). All by default. Recorded traces are used where they are found.

#[path = "../tests/common/mod.rs"]
mod common;

use common::{Failure, Job, spec};
use prism_decide::diff::{DiffOptions, DiffReport, Finding, Part, diff};
use prism_model::{EffectKind, KernelClass, OpKind};
use rayon::prelude::*;

const SPLITS: u64 = 200;

fn main() -> Result<(), Failure> {
    let parts: Vec<String> = std::env::args().skip(1).collect();
    let wanted = |part: &str| parts.is_empty() || parts.iter().any(|p| p == part);
    if wanted("size") {
        size()?;
    }
    if wanted("power") {
        power()?;
    }
    if wanted("share") {
        share()?;
    }
    Ok(())
}

/// Findings only: step times take longer than everything else.
fn quick() -> DiffOptions {
    DiffOptions { samples: 16, repetitions: 0, threads: 1, ..DiffOptions::default() }
}

fn jobs() -> Result<Vec<(String, Job)>, Failure> {
    let mut out = vec![
        ("synthetic, DP 4, PP 4, 44 steps".to_owned(), Job::synthetic(&spec(4, 4, 8, 44, 1))?),
        ("synthetic, DP 8, PP 2, 44 steps".to_owned(), Job::synthetic(&spec(8, 2, 8, 44, 2))?),
        ("synthetic, DP 1, PP 2, 60 steps".to_owned(), Job::synthetic(&spec(1, 2, 4, 60, 3))?),
    ];
    let mut windows = spec(4, 2, 8, 60, 4);
    windows.steps.window = 10;
    windows.effects.window.sd_log = 0.02;
    out.push(("synthetic, 6 windows that differ".to_owned(), Job::synthetic(&windows)?));
    for name in ["AR", "ST"] {
        if let Some(job) = Job::recorded(name)? {
            out.push((format!("recorded {name}"), job));
        }
    }
    Ok(out)
}

fn halves(a: &Job, b: &Job, seed: u64) -> Result<DiffReport, Failure> {
    let (first, second) = a.halves(seed);
    Ok(diff(&a.profile(&first)?, &b.profile(&second)?, &quick())?)
}

fn size() -> Result<(), Failure> {
    println!("Random halves of one job: splits with a finding at alpha 5 %, of {SPLITS}");
    for (name, job) in jobs()? {
        let found: Result<Vec<Vec<String>>, Failure> = (0..SPLITS)
            .into_par_iter()
            .map(|seed| {
                let report = halves(&job, &job, seed)?;
                Ok(report.findings().iter().map(|f| f.name.clone()).collect())
            })
            .collect();
        let found = found?;
        let any = found.iter().filter(|f| !f.is_empty()).count();
        println!("  {name}: {any} ({:.1} %)", 100.0 * any as f64 / SPLITS as f64);
        for f in found.iter().filter(|f| !f.is_empty()).take(6) {
            println!("      {}", f.join("; "));
        }
    }
    Ok(())
}

/// A cause: its name, how it is injected, and how a finding says it.
struct Case {
    name: String,
    job: Job,
    named: Box<dyn Fn(&Finding) -> bool + Sync>,
}

fn slow_kernel(job: &Job, kind: OpKind, dp: u32, stage: u16) -> Result<Case, Failure> {
    let changed = job.changed(|op, r, work, _| {
        if op.kind == kind && op.stage == stage && r == dp {
            *work *= 1.03;
        }
    })?;
    let one = job.replayed.graph.replicas() == 1;
    Ok(Case {
        name: format!("{kind} +3 % on dp {dp}, stage {stage}"),
        job: changed,
        named: Box::new(move |f| {
            let s = &f.scope;
            s.part == Part::Compute
                && s.kind == Some(kind)
                && (s.dp == Some(dp) || one)
                && s.stage == Some(stage)
        }),
    })
}

fn cases(job: &Job) -> Result<Vec<Case>, Failure> {
    let (dp, pp) = (job.replayed.graph.replicas(), job.replayed.graph.stages());
    let mut out = Vec::new();
    for kind in [OpKind::ForwardCompute, OpKind::BackwardCompute] {
        for (r, s) in [(0, 0), (dp / 2, pp / 2), (dp - 1, pp - 1)] {
            out.push(slow_kernel(job, kind, r, s)?);
        }
    }
    let ops = || job.replayed.graph.ops().iter();
    if let Some(kind) =
        ops().map(|op| op.kind).filter(|k| k.class() == KernelClass::Collective).min()
    {
        out.push(Case {
            name: format!("{kind} +50 %"),
            job: job.changed(|op, _, work, _| {
                if op.kind == kind {
                    *work *= 1.5;
                }
            })?,
            named: Box::new(move |f| f.scope.kind == Some(kind) && f.scope.part == Part::StepWork),
        });
    }
    let added = 0.3 * job.replayed.report.mean_base_s / 100.0;
    let (stage, replica) = (pp - 1, dp - 1);
    out.push(Case {
        name: format!(
            "launch delay of forward-compute +0.3 % of the step on dp {replica}, stage {stage}"
        ),
        job: job.changed(|op, r, _, delay| {
            if op.kind == OpKind::ForwardCompute && op.stage == stage && r == replica {
                *delay += added;
            }
        })?,
        named: Box::new(move |f| {
            f.scope.part == Part::LaunchDelay
                && f.scope.kind == Some(OpKind::ForwardCompute)
                && f.scope.dp.is_none_or(|d| d == replica)
                && f.scope.stage.is_none_or(|s| s == stage)
        }),
    });
    Ok(out)
}

fn power() -> Result<(), Failure> {
    const SEEDS: u64 = 50;
    println!("One injected cause in half B, {SEEDS} random halves: found at all, first, alone");
    for (name, job) in jobs()? {
        println!("  {name}");
        for case in cases(&job)? {
            report_case(&job, &case, SEEDS)?;
        }
    }
    println!("  synthetic, DP 4, PP 4, 44 steps: microbatch effect of 3 % instead of 1.5 %");
    let mut low = spec(4, 4, 8, 44, 7);
    low.effects.microbatch.sd_log = 0.015;
    let mut high = low.clone();
    high.effects.microbatch.sd_log = 0.03;
    let case = Case {
        name: "microbatch spread doubled".to_owned(),
        job: Job::synthetic(&high)?,
        named: Box::new(|f| f.scope.effect == Some(EffectKind::Microbatch)),
    };
    report_case(&Job::synthetic(&low)?, &case, SEEDS)
}

fn report_case(job: &Job, case: &Case, seeds: u64) -> Result<(), Failure> {
    let all: Result<Vec<DiffReport>, Failure> =
        (0..seeds).into_par_iter().map(|seed| halves(job, &case.job, seed)).collect();
    let all = all?;
    let count = |hit: &dyn Fn(&[Finding]) -> bool| all.iter().filter(|r| hit(r.findings())).count();
    let found = count(&|f| f.iter().any(|f| (case.named)(f)));
    let first = count(&|f| f.first().is_some_and(|f| (case.named)(f)));
    let alone = count(&|f| f.len() == 1 && (case.named)(&f[0]));
    println!("    {}: found {found}, first {first}, alone {alone}", case.name);
    let wrong = all.iter().find(|r| !(r.findings().len() == 1 && (case.named)(&r.findings()[0])));
    if let Some(report) = wrong {
        let names: Vec<String> = report.findings().iter().map(|f| f.name.clone()).collect();
        println!("        for instance: {}", names.join("; "));
    }
    Ok(())
}

/// Change of the mean step time of the very steps, against what "added to A" says of it.
fn share() -> Result<(), Failure> {
    const SEEDS: u64 = 40;
    println!("\"Added to A\" against the true change of the mean step time, {SEEDS} random halves");
    for (name, job) in jobs()? {
        println!("  {name}");
        let case = slow_kernel(&job, OpKind::BackwardCompute, 0, 0)?;
        let all = job.changed(|op, _, work, _| {
            if op.kind == OpKind::BackwardCompute {
                *work *= 1.03;
            }
        })?;
        let everywhere = Case {
            name: "backward-compute +3 % everywhere".to_owned(),
            job: all,
            named: Box::new(|f| f.scope.kind == Some(OpKind::BackwardCompute)),
        };
        for case in [case, everywhere] {
            let mean = |job: &Job| job.replayed.report.mean_base_s;
            let truth = mean(&case.job) - mean(&job);
            let rows: Result<Vec<Option<(f64, bool)>>, Failure> = (0..SEEDS)
                .into_par_iter()
                .map(|seed| {
                    let (first, second) = job.halves(seed);
                    let options = DiffOptions { threads: 1, ..DiffOptions::default() };
                    let report =
                        diff(&job.profile(&first)?, &case.job.profile(&second)?, &options)?;
                    let found = report.findings().iter().find(|f| (case.named)(f));
                    let added = found.and_then(|f| f.added_to_a.clone());
                    Ok(added.map(|c| {
                        let inside =
                            c.mean_interval_s.is_some_and(|i| i.lower <= truth && truth <= i.upper);
                        (c.mean_s, inside)
                    }))
                })
                .collect();
            let rows: Vec<(f64, bool)> = rows?.into_iter().flatten().collect();
            let n = rows.len().max(1) as f64;
            println!(
                "    {}: truth {:.3} ms, added to A {:.3} ms on average, inside its interval in {} of {}",
                case.name,
                1e3 * truth,
                1e3 * rows.iter().map(|r| r.0).sum::<f64>() / n,
                rows.iter().filter(|r| r.1).count(),
                rows.len()
            );
        }
    }
    Ok(())
}
