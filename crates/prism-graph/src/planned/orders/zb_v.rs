//! ZB-V (Qi et al. 2024, arXiv 2405.15362): two chunks per stage, the second on the way back.
//!
//! With forward, input part and weights' part of equal time a stage is never idle between its first
//! and its last pass, and stores 2 `stages` chunks: what 1F1B stores.

use crate::planned::{PassKind, PlannedPass, PlannedShape};

/// A stage's order under construction.
struct Stage {
    passes: Vec<PlannedPass>,
    /// Passes so far, by kind and chunk; also the next microbatch of each.
    done: [[u32; 2]; 3],
}

const F: usize = 0;
const I: usize = 1;
const W: usize = 2;
const KINDS: [PassKind; 3] = [PassKind::Forward, PassKind::BackwardInput, PassKind::BackwardWeight];

impl Stage {
    fn run(&mut self, kind: usize, chunk: usize) {
        let microbatch = self.done[kind][chunk];
        self.done[kind][chunk] += 1;
        self.passes.push(PlannedPass::alone(KINDS[kind], chunk as u16, microbatch));
    }

    fn backward(&mut self, chunk: usize) {
        self.run(I, chunk);
        self.run(W, chunk);
    }
}

pub(super) fn passes(shape: &PlannedShape, stage: u16) -> Vec<PlannedPass> {
    // The order has its shape from 2p - 1 microbatches on; with fewer, those beyond are left out.
    let m = shape.microbatches.max(2 * u32::from(shape.stages) - 1);
    let (before, after) = (u32::from(stage), u32::from(shape.stages - stage));
    let mut s = Stage { passes: Vec::new(), done: [[0; 2]; 3] };
    // Down the V, until the first microbatch comes back up.
    for _ in 0..2 * after - 1 {
        s.run(F, 0);
    }
    for _ in 0..before {
        s.run(F, 1);
        s.run(F, 0);
    }
    // Forwards of the second chunk, each with a backward of it, until gradients of the first come.
    for _ in 0..after {
        s.run(F, 1);
        s.backward(1);
    }
    // Six passes a microbatch.
    while s.done[F][1] < m {
        if s.done[F][0] < m {
            s.run(F, 0);
        }
        s.backward(0);
        s.run(F, 1);
        s.backward(1);
    }
    // Input parts first: stages before this one wait for them.
    for _ in 0..before {
        s.run(I, 0);
        s.run(I, 1);
    }
    for _ in 0..after {
        s.run(I, 0);
        s.run(W, 0);
    }
    for chunk in [1, 0] {
        while s.done[W][chunk] < s.done[I][chunk] {
            s.run(W, chunk);
        }
    }
    s.passes.retain(|pass| pass.microbatch < shape.microbatches);
    s.passes
}
