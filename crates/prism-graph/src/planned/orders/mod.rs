//! Each schedule's order of passes.

mod dual_pipe;
mod one_f_one_b;
mod zb_h1;
mod zb_v;

use prism_job::ScheduleName;

use super::{PlannedPass, PlannedShape};

/// The order of a stage of a valid shape.
pub(super) fn passes(shape: &PlannedShape, stage: u16) -> Vec<PlannedPass> {
    match shape.schedule {
        ScheduleName::ZbH1 => zb_h1::passes(shape, stage),
        ScheduleName::ZbV => zb_v::passes(shape, stage),
        ScheduleName::DualPipe => dual_pipe::passes(shape, stage),
        _ => one_f_one_b::passes(shape, stage),
    }
}
