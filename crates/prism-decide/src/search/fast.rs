//! A planned step's noise-free time without its graph: every stage's passes followed in their order.
//!
//! What waits for what is [`prism_graph::PlannedGraph`]'s; nothing of it is kept but the time at which
//! each activation and gradient arrives.

use prism_graph::{GraphError, PassKind, PlannedPass, PlannedShape};
use prism_job::cost::StepCosts;
use prism_job::{Job, ScheduleName};
use prism_model::Direction;

/// Step time, seconds, of a pipelined job; `None` for `DualPipe`, whose overlapped blocks and shared
/// reductions need the graph.
pub(super) fn step_s(job: &Job, costs: &StepCosts) -> Result<Option<f64>, GraphError> {
    let shape = PlannedShape::of_job(job, 1)?;
    if shape.schedule == ScheduleName::DualPipe {
        return Ok(None);
    }
    let mut run = Run::new(&shape, costs)?;
    run.follow();
    Ok(Some(run.finish()))
}

/// One direction of a chunk.
#[derive(Clone, Copy, Default)]
struct Way {
    /// Whether its input comes from another stage.
    receives: bool,
    /// Where its output goes: chunk slot at the other stage, that stage, seconds, link.
    send: Option<(usize, usize, f64, usize)>,
}

/// A chunk of a stage.
#[derive(Clone, Copy, Default)]
struct Slot {
    forward: Way,
    backward: Way,
    forward_s: f64,
    backward_s: f64,
    input_s: f64,
    weight_s: f64,
    gather_s: f64,
    reduce_s: f64,
}

/// A stage on its way through its passes.
struct Stage {
    passes: Vec<PlannedPass>,
    at: usize,
    /// When the next pass may begin.
    free: f64,
    /// When the last pass ended.
    end: f64,
    /// Arrival that it waits for.
    waits: Option<usize>,
    /// When the last send over each link ended: to the stage after, to the one before, wherever else.
    links: [f64; 4],
    /// When each chunk's parameters are there, and when its last pass ended.
    gates: Vec<f64>,
    ends: Vec<f64>,
}

struct Run<'a> {
    shape: &'a PlannedShape,
    costs: &'a StepCosts,
    slots: Vec<Slot>,
    stages: Vec<Stage>,
    /// Arrivals by direction, chunk slot and microbatch; NaN until then.
    arrivals: Vec<f64>,
    microbatches: usize,
}

impl<'a> Run<'a> {
    fn new(shape: &'a PlannedShape, costs: &'a StepCosts) -> Result<Run<'a>, GraphError> {
        let (p, v) = (usize::from(shape.stages), usize::from(shape.chunks));
        if costs.chunks.len() != shape.pieces() as usize {
            let rule = "costs are of another plan";
            return Err(GraphError::Schedule { rule, got: costs.chunks.len().to_string() });
        }
        let mut slots = Vec::with_capacity(p * v);
        for stage in 0..shape.stages {
            slots.extend((0..shape.chunks).map(|chunk| slot(shape, costs, stage, chunk)));
        }
        let mut stages = Vec::with_capacity(p);
        for stage in 0..shape.stages {
            let passes = shape.passes(stage)?;
            let own = &slots[usize::from(stage) * v..][..v];
            stages.push(Stage::new(shape, passes, own));
        }
        let microbatches = shape.microbatches as usize;
        let arrivals = vec![f64::NAN; 2 * p * v * microbatches];
        Ok(Run { shape, costs, slots, stages, arrivals, microbatches })
    }

    fn arrival(&self, backward: bool, slot: usize, microbatch: u32) -> usize {
        (usize::from(backward) * self.slots.len() + slot) * self.microbatches + microbatch as usize
    }

    /// Every stage as far as it comes, again whenever what it waits for arrives.
    fn follow(&mut self) {
        let mut ready: Vec<usize> = (0..self.stages.len()).rev().collect();
        while let Some(stage) = ready.pop() {
            while self.pass(stage, &mut ready) {}
        }
    }

    /// Runs a stage's next pass; `false` if it has none, or has to wait.
    fn pass(&mut self, s: usize, ready: &mut Vec<usize>) -> bool {
        let chunks = usize::from(self.shape.chunks);
        let stage = &self.stages[s];
        let Some(&pass) = stage.passes.get(stage.at) else { return false };
        let chunk = usize::from(pass.chunk);
        let slot = self.slots[s * chunks + chunk];
        let (seconds, way, backward) = match pass.kind {
            PassKind::Forward => (slot.forward_s, slot.forward, false),
            PassKind::Backward => (slot.backward_s, slot.backward, true),
            PassKind::BackwardInput => (slot.input_s, slot.backward, true),
            PassKind::BackwardWeight => (slot.weight_s, Way::default(), true),
        };
        let mut start = stage.free.max(stage.gates[chunk]);
        if way.receives {
            let from = self.arrival(backward, s * chunks + chunk, pass.microbatch);
            let arrives = self.arrivals[from];
            if arrives.is_nan() {
                self.stages[s].waits = Some(from);
                return false;
            }
            start = start.max(arrives);
        }
        let end = start + seconds;
        let stage = &mut self.stages[s];
        stage.at += 1;
        stage.end = end;
        stage.free = end;
        stage.ends[chunk] = end;
        if let Some((to, peer, hop_s, link)) = way.send {
            let arrives = end.max(stage.links[link]) + hop_s;
            stage.links[link] = arrives;
            if !self.shape.overlap.p2p {
                stage.free = arrives;
            }
            let at = self.arrival(backward, to, pass.microbatch);
            self.arrivals[at] = arrives;
            if self.stages[peer].waits == Some(at) {
                self.stages[peer].waits = None;
                ready.push(peer);
            }
        }
        true
    }

    /// From the last passes to the end of the step.
    fn finish(&self) -> f64 {
        let (shape, costs) = (self.shape, self.costs);
        let chunks = usize::from(shape.chunks);
        let mut ends: Vec<f64> = self
            .stages
            .iter()
            .enumerate()
            .map(|(s, stage)| {
                let reduced = self.reduced(stage, &self.slots[s * chunks..][..chunks]);
                let norms = if shape.norm_all_reduce { costs.layernorm_s[s] } else { 0.0 };
                stage.end.max(reduced) + norms
            })
            .collect();
        let last = ends.len() - 1;
        if shape.tied_embedding && shape.schedule != ScheduleName::ZbV && last > 0 {
            let both = ends[0].max(ends[last]) + costs.embedding_s;
            (ends[0], ends[last]) = (both, both);
        }
        let clipped = ends.iter().copied().fold(0.0, f64::max) + costs.grad_norm_s;
        costs.optimizer_s.iter().map(|o| clipped + (o + costs.step_s)).fold(0.0, f64::max)
    }

    /// When a stage's gradients are reduced.
    fn reduced(&self, stage: &Stage, slots: &[Slot]) -> f64 {
        if !self.shape.data_parallel {
            return 0.0;
        }
        let mut order: Vec<usize> = (0..slots.len()).collect();
        let last = |c: &usize| stage.passes.iter().rposition(|p| usize::from(p.chunk) == *c);
        order.sort_by_cached_key(last);
        order.into_iter().fold(0.0, |done: f64, chunk| {
            let ready = if self.shape.overlap.grad_reduce { stage.ends[chunk] } else { stage.end };
            done.max(ready) + slots[chunk].reduce_s
        })
    }
}

impl Stage {
    fn new(shape: &PlannedShape, passes: Vec<PlannedPass>, slots: &[Slot]) -> Stage {
        let mut gates = vec![0.0; slots.len()];
        let mut free = 0.0;
        if shape.data_parallel && !shape.all_reduce_grads {
            let mut order: Vec<usize> = (0..slots.len()).collect();
            order.sort_by_cached_key(|c| passes.iter().position(|p| usize::from(p.chunk) == *c));
            let mut gathered = 0.0;
            for chunk in order {
                gathered += slots[chunk].gather_s;
                gates[chunk] = gathered;
            }
            if !shape.overlap.param_gather {
                free = gathered;
                gates.fill(0.0);
            }
        }
        let ends = vec![0.0; slots.len()];
        Stage { passes, at: 0, free, end: 0.0, waits: None, links: [0.0; 4], gates, ends }
    }
}

fn slot(shape: &PlannedShape, costs: &StepCosts, stage: u16, chunk: u16) -> Slot {
    let piece = shape.piece(stage, chunk) as usize;
    let cost = &costs.chunks[piece];
    let elsewhere = |direction| shape.hop(stage, chunk, direction).filter(|to| to.0 != stage);
    let way = |onward: Direction, back: Direction| Way {
        receives: elsewhere(back).is_some(),
        send: elsewhere(onward).map(|(peer, to)| {
            let target = usize::from(peer) * usize::from(shape.chunks) + usize::from(to);
            let hop_s = costs.between_s(usize::from(stage), usize::from(peer));
            (target, usize::from(peer), hop_s, link(stage, peer, onward))
        }),
    };
    Slot {
        forward: way(Direction::Forward, Direction::Backward),
        backward: way(Direction::Backward, Direction::Forward),
        forward_s: cost.forward.seconds(),
        backward_s: cost.backward_s(),
        input_s: cost.backward.seconds(),
        weight_s: cost.weight.seconds(),
        gather_s: costs.gather_s[piece],
        reduce_s: costs.reduce_s[piece],
    }
}

/// Each direction has at most two peers: the stage above and the one below (or around).
fn link(stage: u16, peer: u16, direction: Direction) -> usize {
    2 * usize::from(direction == Direction::Backward) + usize::from(peer > stage)
}

#[cfg(test)]
mod tests {
    use prism_graph::PlannedStep;
    use prism_job::cost::costs;

    use super::super::tests::random_jobs;
    use super::*;

    #[test]
    fn it_is_the_graphs_time() {
        let mut checked = 0;
        for job in random_jobs(800, 3) {
            let costs = costs(&job);
            let Ok(step) = PlannedStep::new(&job, &costs, 1) else { continue };
            let graph = step.seconds().unwrap();
            let Some(fast) = step_s(&job, &costs).unwrap() else { continue };
            assert!((fast / graph - 1.0).abs() < 1e-12, "{fast} {graph}: {:?}", job.plan);
            checked += 1;
        }
        assert!(checked > 600, "{checked}");
    }
}
