//! All figures of a trace.

use std::collections::{BTreeMap, BTreeSet};

use prism_engine::replay::Replayed;
use prism_graph::Op;
use prism_model::OpKind;

use super::report::{
    Decomposition, Estimate, PartSlowdown, ReferenceReport, WorkerSlowdown, mean_bounds,
};
use super::what_if::{Selection, Side, WhatIf};
use super::{CONFIDENCE, LEAST_SLOWDOWN, ReferenceError, SLOWEST_PERCENT, op_type};

/// The analysis of a replayed trace; `ranks` names the workers by (replica, stage).
///
/// # Errors
/// [`ReferenceError`] if the ideal step takes no time, a worker has no rank, or the replay's parts
/// do not belong together.
pub fn analyse(
    replayed: &Replayed,
    ranks: &BTreeMap<(u32, u16), u32>,
) -> Result<ReferenceReport, ReferenceError> {
    let what_if = WhatIf::new(replayed)?;
    let r = &replayed.report;
    let all = |f: &dyn Fn(usize) -> f64| (0..r.steps.len()).map(f).collect::<Vec<_>>();
    let ratio = |top: &dyn Fn(usize) -> f64, bottom: &dyn Fn(usize) -> f64| {
        Estimate::ratio(&all(top), &all(bottom))
            .ok_or(ReferenceError::NoIdeal { ideal_s: r.mean_ideal_s })
    };
    let slowdown = ratio(&|i| r.steps[i].no_delay_s, &|i| r.steps[i].ideal_s)?;
    let launch_slowdown = ratio(&|i| r.steps[i].base_s, &|i| r.steps[i].no_delay_s)?;
    let decomposition = if slowdown.value < LEAST_SLOWDOWN {
        None
    } else {
        Some(decompose(replayed, &what_if, ranks)?)
    };
    Ok(ReferenceReport {
        builder: r.builder,
        operations: r.operations,
        replicas: r.replicas,
        stages: r.stages,
        mean_base_s: r.mean_base_s,
        mean_base_interval_s: mean_bounds(&all(&|i| r.steps[i].base_s)),
        mean_no_delay_s: r.mean_no_delay_s,
        mean_no_delay_interval_s: mean_bounds(&all(&|i| r.steps[i].no_delay_s)),
        mean_ideal_s: r.mean_ideal_s,
        slowdown,
        launch_slowdown,
        confidence: CONFIDENCE,
        ideal: r.ideal.clone(),
        decomposition,
        steps: r.steps.clone(),
    })
}

/// Step times by what alone has recorded work, and with ideal work on the last stage alone.
struct Scenarios {
    by_op_type: BTreeMap<&'static str, Vec<f64>>,
    by_stage: BTreeMap<u16, Vec<f64>>,
    by_dp: BTreeMap<u32, Vec<f64>>,
    without_last_stage: Vec<f64>,
}

/// Evaluates all scenarios that need no result of another at once.
fn scenarios(replayed: &Replayed, what_if: &WhatIf<'_>) -> Result<Scenarios, ReferenceError> {
    let graph = &replayed.graph;
    let recorded = graph.ops().iter().map(|op| op.kind).filter(|&k| k != OpKind::Barrier);
    let types: BTreeSet<&str> = recorded.map(op_type).collect();
    let by_type: Vec<_> =
        types.iter().map(|&name| move |op: &Op, _: u32| op_type(op.kind) == name).collect();
    let by_stage: Vec<_> =
        (0..graph.stages()).map(|stage| move |op: &Op, _: u32| op.stage == stage).collect();
    let by_dp: Vec<_> = (0..graph.replicas()).map(|dp| move |_: &Op, r: u32| r == dp).collect();
    let last = last_stage(replayed);
    let in_last = |op: &Op, _: u32| op.stage == last;
    let mut selections: Vec<(Selection<'_>, Side)> = vec![(&in_last, Side::Others)];
    selections.extend(by_type.iter().map(|s| (s as Selection<'_>, Side::Selected)));
    selections.extend(by_stage.iter().map(|s| (s as Selection<'_>, Side::Selected)));
    selections.extend(by_dp.iter().map(|s| (s as Selection<'_>, Side::Selected)));
    let mut times = what_if.step_times(&selections)?.into_iter();
    Ok(Scenarios {
        without_last_stage: times.next().unwrap_or_default(),
        by_op_type: types.into_iter().zip(times.by_ref()).collect(),
        by_stage: (0..graph.stages()).zip(times.by_ref()).collect(),
        by_dp: (0..graph.replicas()).zip(times).collect(),
    })
}

fn last_stage(replayed: &Replayed) -> u16 {
    replayed.graph.stages().saturating_sub(1)
}

fn parts<K: Ord>(
    times: BTreeMap<K, Vec<f64>>,
    what_if: &WhatIf<'_>,
) -> Result<BTreeMap<K, PartSlowdown>, ReferenceError> {
    times.into_iter().map(|(key, times)| Ok((key, what_if.part(&times)?))).collect()
}

fn decompose(
    replayed: &Replayed,
    what_if: &WhatIf<'_>,
    ranks: &BTreeMap<(u32, u16), u32>,
) -> Result<Decomposition, ReferenceError> {
    let scenarios = scenarios(replayed, what_if)?;
    let last_alone = scenarios.by_stage.get(&last_stage(replayed)).map_or(&[][..], Vec::as_slice);
    let last_stage = what_if.explained(&scenarios.without_last_stage, last_alone);
    let by_stage = parts(scenarios.by_stage, what_if)?;
    let by_dp = parts(scenarios.by_dp, what_if)?;
    let by_op_type = parts(scenarios.by_op_type, what_if)?;
    let workers = workers(&by_dp, &by_stage, ranks)?;
    let slowest = slowest(&workers);
    let cells: BTreeSet<(u32, u16)> = slowest.iter().map(|w| (w.dp, w.stage)).collect();
    Ok(Decomposition {
        slowest_ranks: slowest.iter().map(|w| w.rank).collect(),
        slowest_workers: what_if.explain(&|op, replica| cells.contains(&(replica, op.stage)))?,
        last_stage,
        workers,
        by_op_type: by_op_type.into_iter().map(|(name, part)| (name.to_owned(), part)).collect(),
        by_stage,
        by_dp,
    })
}

fn workers(
    by_dp: &BTreeMap<u32, PartSlowdown>,
    by_stage: &BTreeMap<u16, PartSlowdown>,
    ranks: &BTreeMap<(u32, u16), u32>,
) -> Result<Vec<WorkerSlowdown>, ReferenceError> {
    let mut workers = Vec::with_capacity(by_dp.len() * by_stage.len());
    for (&dp, replica) in by_dp {
        for (&stage, column) in by_stage {
            let rank = *ranks.get(&(dp, stage)).ok_or(ReferenceError::NoRank { dp, stage })?;
            let lesser = replica.slowdown.value <= column.slowdown.value;
            let slowdown = if lesser { replica.slowdown } else { column.slowdown };
            let both = replica.per_step.iter().zip(&column.per_step);
            let per_step = both.map(|(a, b)| a.min(*b)).collect();
            workers.push(WorkerSlowdown { rank, dp, stage, slowdown, per_step });
        }
    }
    Ok(workers)
}

/// The slowest workers, the slowest first, the lower rank of equals.
fn slowest(workers: &[WorkerSlowdown]) -> Vec<&WorkerSlowdown> {
    let mut order: Vec<&WorkerSlowdown> = workers.iter().collect();
    order.sort_by(|a, b| b.slowdown.value.total_cmp(&a.slowdown.value).then(a.rank.cmp(&b.rank)));
    order.truncate((SLOWEST_PERCENT * workers.len()).div_ceil(100));
    order
}
