//! `DualPipe` (`DeepSeek`-V3 technical report, arXiv 2412.19437, section 3.2.1, and the `DualPipe`
//! code's `step`).
//!
//! Microbatches enter at both ends, the even ones at the first stage (chunk 0), the odd ones at the
//! last (chunk 1). The order of stage i is that of stage p - 1 - i with the chunks exchanged. A
//! forward of one direction and a backward of the other run as one overlapped block.

use std::collections::VecDeque;

use crate::planned::{PassKind, PlannedPass, PlannedShape};

/// A stage's order under construction. *Near* is the direction that enters at the nearer end.
struct Stage {
    passes: Vec<PlannedPass>,
    near: u16,
    forwards: [u32; 2],
    backwards: [u32; 2],
    /// Backwards whose weights' part has not run.
    delayed: VecDeque<(u16, u32)>,
}

const NEAR: u16 = 0;
const FAR: u16 = 1;

impl Stage {
    fn next(counts: &mut [u32; 2], chunk: u16) -> u32 {
        let count = &mut counts[usize::from(chunk)];
        *count += 1;
        2 * (*count - 1) + u32::from(chunk)
    }

    fn forward(&mut self, side: u16) {
        let chunk = self.near ^ side;
        let microbatch = Self::next(&mut self.forwards, chunk);
        self.passes.push(PlannedPass::alone(PassKind::Forward, chunk, microbatch));
    }

    fn backward(&mut self, side: u16, split: bool) {
        let chunk = self.near ^ side;
        let microbatch = Self::next(&mut self.backwards, chunk);
        let kind = if split { PassKind::BackwardInput } else { PassKind::Backward };
        self.passes.push(PlannedPass::alone(kind, chunk, microbatch));
        if split {
            self.delayed.push_back((chunk, microbatch));
        }
    }

    fn weight(&mut self) {
        if let Some((chunk, microbatch)) = self.delayed.pop_front() {
            self.passes.push(PlannedPass::alone(PassKind::BackwardWeight, chunk, microbatch));
        }
    }

    /// A forward of one side overlapped with a backward of the other.
    fn pair(&mut self, forward: u16) {
        self.forward(forward);
        self.backward(forward ^ 1, false);
        let at = self.passes.len() - 2;
        for pass in &mut self.passes[at..] {
            pass.paired = true;
        }
    }
}

pub(super) fn passes(shape: &PlannedShape, stage: u16) -> Vec<PlannedPass> {
    let half = u32::from(shape.stages / 2);
    let second_half = stage >= shape.stages / 2;
    // Distance from the nearer end, and from the middle.
    let depth = u32::from(stage.min(shape.stages - 1 - stage));
    let inner = half - 1 - depth;
    let mut s = Stage {
        passes: Vec::new(),
        near: u16::from(second_half),
        forwards: [0; 2],
        backwards: [0; 2],
        delayed: VecDeque::new(),
    };
    warm_up(&mut s, depth, inner);
    for i in 0..=shape.microbatches / 2 - 2 * half + depth {
        if i == 0 && inner == 0 {
            // The middle stages do not overlap their first block: its parts move on sooner.
            s.forward(NEAR);
            s.backward(FAR, false);
        } else {
            s.pair(NEAR);
        }
        s.pair(FAR);
    }
    cool_down(&mut s, depth, inner);
    s.passes
}

/// Forwards of the near side, of both, then backwards of the far side with its forwards.
fn warm_up(s: &mut Stage, depth: u32, inner: u32) {
    for _ in 0..2 * inner {
        s.forward(NEAR);
    }
    for _ in 0..=depth {
        s.forward(NEAR);
        s.forward(FAR);
    }
    for _ in 0..inner {
        s.backward(FAR, true);
        s.weight();
        s.forward(FAR);
    }
}

/// Backwards; the second half of those of both sides is split, its weights' parts fill the bubble.
fn cool_down(s: &mut Stage, depth: u32, inner: u32) {
    for _ in 0..inner {
        s.backward(FAR, false);
        s.pair(FAR);
    }
    let both = 2 * (depth + 1);
    for i in 0..both {
        s.backward(if i % 2 == 0 { FAR } else { NEAR }, i > depth);
    }
    for _ in 0..inner {
        s.weight();
        s.backward(NEAR, true);
    }
    for _ in 0..=depth {
        s.weight();
    }
}
