//! A lower bound of a plan's noise-free step time, without its graph.
//!
//! Every bound is the length of a chain of operations that wait for each other, so none is above the
//! step: the pipeline's fill, then a stage's whole work, then the drain; or, where microbatches in
//! flight are few, round trips through the stages that follow; or, under interleaving, the first
//! microbatch's way to the model's end, the last stage's work, the last one's way back.

use prism_job::cost::{ChunkCost, StepCosts, pieces_of_stages};
use prism_job::{Job, ScheduleName, ZeroStage};

/// Share left for rounding.
const ROUNDING: f64 = 1e-9;

/// A lower bound of [`prism_engine::planned::noise_free_s`], seconds.
pub(super) fn lower_bound_s(job: &Job, costs: &StepCosts) -> f64 {
    let bound = if is_sharded(job) {
        sharded_s(job, costs)
    } else if job.plan.schedule == ScheduleName::DualPipe {
        dual_pipe_s(job, costs)
    } else {
        Pipeline::new(job, costs).seconds()
    };
    bound * (1.0 - ROUNDING)
}

/// Mean over stages of the time that they compute, seconds.
pub(super) fn mean_work_s(job: &Job, costs: &StepCosts) -> f64 {
    let m = f64::from(job.microbatches());
    let stages = f64::from(job.plan.pipeline_parallel.max(1));
    let all: f64 = costs.chunks.iter().map(|c| c.forward.seconds() + c.backward_s()).sum();
    m * all / stages
}

/// Whether GPUs wait for each other at every layer.
pub(super) fn is_sharded(job: &Job) -> bool {
    let plan = &job.plan;
    plan.zero == ZeroStage::Parameters && plan.pipeline_parallel == 1 && plan.data_parallel() > 1
}

/// The whole model's costs are at most those of its layers one by one: fixed times count once.
fn sharded_s(job: &Job, costs: &StepCosts) -> f64 {
    let m = f64::from(job.microbatches());
    let again = f64::from(u8::from(job.plan.fsdp.reshard_after_forward));
    let gather: f64 = costs.gather_s.iter().sum();
    let reduce: f64 = costs.reduce_s.iter().sum();
    let compute: f64 = costs.chunks.iter().map(|c| c.forward.seconds() + c.backward_s()).sum();
    let network = (1.0 + again) * gather + reduce;
    let layers = if job.plan.fsdp.prefetch == 0 { compute + network } else { compute.max(network) };
    m * layers + most(&costs.optimizer_s) + costs.grad_norm_s + costs.step_s
}

/// Both halves of a block hide the other's communication at best.
fn dual_pipe_s(job: &Job, costs: &StepCosts) -> f64 {
    let m = f64::from(job.microbatches());
    let own = |c: &ChunkCost| {
        let hidden = c.forward.communication_s() + c.backward.communication_s();
        c.forward.seconds() + c.backward_s() - hidden
    };
    let busiest = pieces_of_stages(job)
        .iter()
        .map(|pieces| pieces.iter().filter_map(|&p| costs.chunks.get(p)).map(own).sum::<f64>())
        .fold(0.0, f64::max);
    0.5 * m * busiest + costs.grad_norm_s + most(&costs.optimizer_s) + costs.step_s
}

fn most(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

/// Times of one pass of a piece, seconds.
#[derive(Clone, Copy)]
struct Piece {
    forward: f64,
    /// The whole backward.
    backward: f64,
    /// Its input part.
    input: f64,
}

struct Pipeline<'a> {
    job: &'a Job,
    costs: &'a StepCosts,
    /// Pieces of every stage.
    held: Vec<Vec<usize>>,
    pieces: Vec<Piece>,
    p: usize,
    m: f64,
}

impl<'a> Pipeline<'a> {
    fn new(job: &'a Job, costs: &'a StepCosts) -> Pipeline<'a> {
        let pieces = costs
            .chunks
            .iter()
            .map(|c| Piece {
                forward: c.forward.seconds(),
                backward: c.backward_s(),
                input: c.backward.seconds(),
            })
            .collect();
        let held = pieces_of_stages(job);
        Pipeline { job, costs, p: held.len(), held, pieces, m: f64::from(job.microbatches()) }
    }

    fn seconds(&self) -> f64 {
        let begins = self.begins();
        let mut ends: Vec<f64> = (0..self.p).map(|s| begins[s] + self.work(s)).collect();
        match self.job.plan.schedule {
            ScheduleName::ZbH1 => self.split(&begins, &mut ends),
            ScheduleName::ZbV => {}
            schedule => {
                if schedule == ScheduleName::OneFOneB {
                    self.round_trips(&begins, &mut ends);
                }
                self.drain(&mut ends);
                if schedule != ScheduleName::GPipe {
                    ends[0] = ends[0].max(self.there_and_back(&begins));
                }
            }
        }
        self.rest(&ends)
    }

    /// Seconds from the stage of a piece to that of the next.
    fn hop(&self, piece: usize) -> f64 {
        self.costs.between_s(piece % self.p, (piece + 1) % self.p)
    }

    /// When each stage's first forward begins at the earliest.
    fn begins(&self) -> Vec<f64> {
        let plan = &self.job.plan;
        let gathers = self.data_parallel() && plan.zero != ZeroStage::None;
        let mut begins = Vec::with_capacity(self.p);
        for (s, held) in self.held.iter().enumerate() {
            let gather = |piece: &usize| self.costs.gather_s[*piece];
            let gate = match (gathers, plan.overlap.param_gather) {
                (false, _) => 0.0,
                (true, true) => held.first().map_or(0.0, gather),
                (true, false) => held.iter().map(gather).sum(),
            };
            let arrives = match s.checked_sub(1) {
                None => 0.0,
                Some(before) => begins[before] + self.pieces[before].forward + self.hop(before),
            };
            begins.push(gate.max(arrives));
        }
        begins
    }

    fn data_parallel(&self) -> bool {
        let plan = &self.job.plan;
        u64::from(plan.data_parallel()) * u64::from(plan.context_parallel) > 1
    }

    /// A stage's own passes, and the sends that hold them up.
    fn work(&self, stage: usize) -> f64 {
        let of = |piece: &usize| self.pieces[*piece].forward + self.pieces[*piece].backward;
        let work = self.m * self.held[stage].iter().map(of).sum::<f64>();
        if self.job.plan.overlap.p2p || self.job.plan.schedule == ScheduleName::ZbV {
            return work;
        }
        let last = self.pieces.len() - 1;
        let (mut sends, mut longest) = (0.0, 0.0_f64);
        for &piece in &self.held[stage] {
            let onward = if piece < last { self.hop(piece) } else { 0.0 };
            let back = if piece > 0 { self.hop(piece - 1) } else { 0.0 };
            sends += onward + back;
            longest = longest.max(onward).max(back);
        }
        // Nothing waits for the last send.
        work + self.m * sends - longest
    }

    /// 1F1B: a stage begins a forward only when the backward of as many microbatches before as there
    /// are stages left is done.
    fn round_trips(&self, begins: &[f64], ends: &mut [f64]) {
        let mut trip = 0.0;
        for s in (0..self.p).rev() {
            trip += self.pieces[s].forward + self.pieces[s].backward;
            if s + 1 < self.p {
                trip += 2.0 * self.hop(s);
            }
            let in_flight = (self.p - s) as f64;
            let trips = (self.m / in_flight).ceil();
            let left = self.m - 1.0 - (trips - 1.0) * in_flight;
            ends[s] = ends[s].max(begins[s] + trips * trip + left * self.pieces[s].backward);
        }
    }

    /// Every stage's last pass is the last microbatch's backward, which then goes to the stage before.
    fn drain(&self, ends: &mut [f64]) {
        for s in (1..self.p).rev() {
            ends[s - 1] = ends[s - 1].max(ends[s] + self.hop(s - 1) + self.pieces[s - 1].backward);
        }
    }

    /// The first microbatch to the model's end, all that the last stage does until its last forward,
    /// the last microbatch back to the beginning.
    fn there_and_back(&self, begins: &[f64]) -> f64 {
        let last = self.p - 1;
        if self.m < self.p as f64 && self.held[last].len() > 1 {
            return 0.0;
        }
        let there: f64 = self.pieces[last..].iter().map(|p| p.forward).sum::<f64>()
            + (last..self.pieces.len() - 1).map(|p| self.hop(p)).sum::<f64>();
        let back: f64 = self.pieces.iter().map(|p| p.backward).sum::<f64>()
            + (0..self.pieces.len() - 1).map(|p| self.hop(p)).sum::<f64>();
        let chunks = self.held[last].len();
        let both: f64 = self.held[last]
            .iter()
            .enumerate()
            .map(|(c, &piece)| {
                // Passes of the warm-up's forwards and the cool-down's backwards do not lie between.
                let outside = if c + 1 < chunks { self.p as f64 } else { 1.0 };
                (self.m - outside) * (self.pieces[piece].forward + self.pieces[piece].backward)
            })
            .sum();
        begins[last] + there + both + back
    }

    /// ZB-H1: input parts go down the pipeline; weights' parts fill up.
    fn split(&self, begins: &[f64], ends: &mut [f64]) {
        let mut inputs = vec![0.0_f64; self.p];
        for s in (0..self.p).rev() {
            let piece = self.pieces[s];
            let weight = piece.backward - piece.input;
            let before = (self.m - 1.0 - s as f64).max(0.0);
            inputs[s] = begins[s] + self.m * (piece.forward + piece.input) + before * weight;
            if s + 1 < self.p {
                inputs[s] = inputs[s].max(inputs[s + 1] + self.hop(s) + piece.input);
            }
            ends[s] = ends[s].max(inputs[s] + (self.m - before) * weight);
        }
    }

    /// From the last computes to the step's end.
    fn rest(&self, ends: &[f64]) -> f64 {
        let (job, costs) = (self.job, self.costs);
        let plan = &job.plan;
        let norms = plan.sequence_parallel && plan.tensor_parallel > 1;
        let apart = plan.schedule != ScheduleName::ZbV && self.p > 1;
        let mut done = 0.0_f64;
        for (s, end) in ends.iter().enumerate() {
            let reduce = |piece: &usize| costs.reduce_s[*piece];
            let held = self.held[s].iter();
            let reduced = match (self.data_parallel(), plan.overlap.grad_reduce) {
                (false, _) => 0.0,
                (true, true) => held.map(reduce).fold(f64::INFINITY, f64::min),
                (true, false) => held.map(reduce).sum(),
            };
            let mut t = end + reduced;
            if norms {
                t += costs.layernorm_s[s];
            }
            if job.model.tied_embeddings && apart && (s == 0 || s + 1 == self.p) {
                t += costs.embedding_s;
            }
            done = done.max(t);
        }
        done + costs.grad_norm_s + most(&costs.optimizer_s) + costs.step_s
    }
}

#[cfg(test)]
mod tests {
    use prism_engine::planned::noise_free_s;
    use prism_job::cost::costs;

    use super::super::tests::random_jobs;
    use super::*;

    #[test]
    fn the_bound_is_never_above_the_step() {
        let mut ratios = Vec::new();
        for job in random_jobs(800, 5) {
            let Ok(step) = noise_free_s(&job) else { continue };
            let bound = lower_bound_s(&job, &costs(&job));
            assert!(bound <= step, "{bound} > {step}: {:?}", job.plan);
            ratios.push(bound / step);
        }
        ratios.sort_unstable_by(f64::total_cmp);
        let at = |p: f64| ratios[((ratios.len() - 1) as f64 * p) as usize];
        println!(
            "bound / step: {} plans, 5 % {:.4}, median {:.4}",
            ratios.len(),
            at(0.05),
            at(0.5)
        );
        assert!(ratios.len() > 600);
        assert!(at(0.5) > 0.95 && at(0.05) > 0.5, "{} {}", at(0.5), at(0.05));
    }
}
