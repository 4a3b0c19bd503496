//! ZB-H1 (Qi et al. 2023, arXiv 2401.10241, section 2.2).
//!
//! 1F1B whose backward is split. Stage i delays the weights' part by i microbatches, so that every
//! stage stores the `stages` microbatches that the first stage of 1F1B stores, and the input parts
//! run down the pipeline without waiting for the weights' parts.

use crate::planned::{PassKind, PlannedPass, PlannedShape};

pub(super) fn passes(shape: &PlannedShape, stage: u16) -> Vec<PlannedPass> {
    let m = shape.microbatches;
    let warm_up = u32::from(shape.stages - 1 - stage).min(m);
    let delay = u32::from(stage);
    let pass = |kind, microbatch| PlannedPass::alone(kind, 0, microbatch);
    let mut passes: Vec<PlannedPass> = (0..warm_up).map(|k| pass(PassKind::Forward, k)).collect();
    for k in 0..m {
        if warm_up + k < m {
            passes.push(pass(PassKind::Forward, warm_up + k));
        }
        passes.push(pass(PassKind::BackwardInput, k));
        if k >= delay {
            passes.push(pass(PassKind::BackwardWeight, k - delay));
        }
    }
    passes.extend((m.saturating_sub(delay)..m).map(|k| pass(PassKind::BackwardWeight, k)));
    passes
}
