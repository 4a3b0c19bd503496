//! `GPipe`, 1F1B (`PipeDream`-flush) and interleaved 1F1B (Narayanan et al. 2021, arXiv 2104.04473;
//! Megatron-LM's `schedules.py`).

use prism_job::ScheduleName;

use crate::planned::{PassKind, PlannedPass, PlannedShape};

/// A warm-up of forwards, one forward and one backward in turn, the backwards left.
pub(super) fn passes(shape: &PlannedShape, stage: u16) -> Vec<PlannedPass> {
    let forwards = order(shape);
    let backward = |&(chunk, microbatch): &(u16, u32)| {
        PlannedPass::alone(PassKind::Backward, shape.chunks - 1 - chunk, microbatch)
    };
    let warm_up = (warm_up(shape, stage) as usize).min(forwards.len());
    let forward = |&(chunk, microbatch): &(u16, u32)| {
        PlannedPass::alone(PassKind::Forward, chunk, microbatch)
    };
    let mut passes: Vec<PlannedPass> = forwards[..warm_up].iter().map(forward).collect();
    for (f, b) in forwards[warm_up..].iter().zip(&forwards) {
        passes.extend([forward(f), backward(b)]);
    }
    passes.extend(forwards[forwards.len() - warm_up..].iter().map(backward));
    passes
}

/// Forwards before the first backward, beyond the one just before it.
fn warm_up(shape: &PlannedShape, stage: u16) -> u64 {
    let after = u64::from(shape.stages - 1 - stage);
    if shape.schedule == ScheduleName::GPipe {
        u64::from(shape.microbatches)
    } else if shape.chunks == 1 {
        after
    } else {
        2 * after + u64::from(shape.chunks - 1) * u64::from(group(shape))
    }
}

/// Forwards of any stage, as (chunk, microbatch): groups of microbatches go through one chunk after
/// the other. Backwards go the same way through the chunks in reverse.
fn order(shape: &PlannedShape) -> Vec<(u16, u32)> {
    let group = group(shape);
    let mut order = Vec::with_capacity(shape.microbatches as usize * usize::from(shape.chunks));
    for first in (0..shape.microbatches).step_by(group as usize) {
        let last = shape.microbatches.min(first.saturating_add(group));
        for chunk in 0..shape.chunks {
            order.extend((first..last).map(|microbatch| (chunk, microbatch)));
        }
    }
    order
}

/// Microbatches of a group: as few as the stages need to be busy, but so that no smaller group is
/// left over at the end (Megatron refuses one below the number of stages).
fn group(shape: &PlannedShape) -> u32 {
    let (p, m) = (u32::from(shape.stages), shape.microbatches);
    if shape.chunks == 1 {
        return m;
    }
    (p..m).find(|group| m % group == 0 || m % group >= p).unwrap_or(m)
}
