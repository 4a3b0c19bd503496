//! Possible plans near an impossible one.

use crate::{Job, Plan, Precision, ScheduleName};

/// A cost of 1.
const UNIT: u32 = 1000;

/// A setting's value and what choosing it costs: 0 for the one asked for.
type Choice<T> = (T, u32);

/// Possible plans for `gpus` GPUs near the job's plan: few settings changed, and by little; up to 3,
/// the nearest first. Model, batch and cluster stay as they are, but for `cluster.gpus`, which becomes
/// `gpus`. Empty where no such plan is found.
///
/// The distance of a degree is the base-2 logarithm of its ratio, plus 1 for being changed at all; a
/// changed schedule or chunk count counts 2. The data-parallel degree follows from the others and
/// counts nothing.
pub fn nearest_plans(job: &Job, gpus: u64) -> Vec<Plan> {
    let p = &job.plan;
    let mut trial = job.clone();
    trial.cluster.gpus = Some(gpus);
    let experts = job.model.moe.map_or(1, |m| m.experts);
    let eps = degrees(p.expert_parallel, experts, gpus);
    let mut search = Search { asked: p, trial, eps, found: Vec::new() };
    let tps = degrees(p.tensor_parallel, job.model.attention.heads, gpus);
    let pps = degrees(p.pipeline_parallel, job.model.layers, gpus);
    let cps = degrees(p.context_parallel, job.training.seq_len, gpus);
    for &(tp, tp_cost) in &tps {
        for &(pp, pp_cost) in &pps {
            for &(cp, cp_cost) in &cps {
                for &(replicate, cost) in &replicas(p.data_parallel_replicate) {
                    search.shape([tp, pp, cp, replicate], tp_cost + pp_cost + cp_cost + cost);
                }
            }
        }
    }
    search.found.into_iter().map(|(_, plan)| plan).collect()
}

/// The plan asked for, a job to try plans in, and the best so far.
struct Search<'a> {
    asked: &'a Plan,
    trial: Job,
    eps: Vec<Choice<u32>>,
    found: Vec<(u32, Plan)>,
}

impl Search<'_> {
    /// Tries the plans of a shape, which costs `base` itself.
    fn shape(&mut self, [tp, pp, cp, replicate]: [u32; 4], base: u32) {
        let p = self.asked;
        let rest = u64::from(tp) * u64::from(pp) * u64::from(cp);
        let gpus = self.trial.cluster.gpus.unwrap_or(0);
        let Some(dp) = shard(gpus, rest.saturating_mul(replicate.into())) else { return };
        for ((schedule, v), schedule_cost) in schedules(p, pp) {
            for i in 0..self.eps.len() {
                let (ep, ep_cost) = self.eps[i];
                let cost = base + schedule_cost + ep_cost;
                if full(&self.found, cost) {
                    continue;
                }
                self.trial.plan = Plan {
                    tensor_parallel: tp,
                    pipeline_parallel: pp,
                    context_parallel: cp,
                    expert_parallel: ep,
                    data_parallel_shard: dp,
                    data_parallel_replicate: replicate,
                    schedule,
                    virtual_chunks: v,
                    sequence_parallel: p.sequence_parallel && tp > 1,
                    chunk_layers: kept_layers(p, pp, v),
                    ..p.clone()
                };
                if self.trial.cluster.gpu.fp8_flops.is_none() {
                    self.trial.plan.precision = Precision::Bf16;
                }
                if self.trial.is_possible() {
                    insert(&mut self.found, cost, &self.trial.plan);
                }
            }
        }
    }
}

/// Whether three plans are known that cost less.
fn full(found: &[(u32, Plan)], cost: u32) -> bool {
    found.len() == 3 && found.last().is_some_and(|last| last.0 <= cost)
}

fn insert(found: &mut Vec<(u32, Plan)>, cost: u32, plan: &Plan) {
    let at = found.partition_point(|f| f.0 <= cost);
    found.insert(at, (cost, plan.clone()));
    found.truncate(3);
}

/// The data-parallel degree that is left, where the rest divides the GPUs.
fn shard(gpus: u64, rest: u64) -> Option<u32> {
    (rest > 0 && gpus.is_multiple_of(rest)).then(|| u32::try_from(gpus / rest).ok()).flatten()
}

/// The degrees that divide both `total` and the GPUs, and the one asked for, with their distance.
fn degrees(wanted: u32, total: u32, gpus: u64) -> Vec<Choice<u32>> {
    let most = u64::from(total).min(gpus).min(4096) as u32;
    let mut out: Vec<Choice<u32>> = (1..=most)
        .filter(|&d| d == wanted || (total.is_multiple_of(d) && gpus.is_multiple_of(d.into())))
        .map(|d| (d, distance(wanted, d)))
        .collect();
    out.sort_by_key(|c| (c.1, c.0));
    out.truncate(12);
    out
}

fn distance(wanted: u32, other: u32) -> u32 {
    if wanted == other {
        return 0;
    }
    let ratio = (f64::from(wanted.max(1)) / f64::from(other)).log2().abs();
    UNIT + (ratio * f64::from(UNIT)).round() as u32
}

fn replicas(wanted: u32) -> Vec<Choice<u32>> {
    if wanted <= 1 { vec![(1, 0)] } else { vec![(wanted, 0), (1, 2 * UNIT)] }
}

/// The schedule asked for with the chunks it needs, and 1F1B.
fn schedules(p: &Plan, pp: u32) -> Vec<Choice<(ScheduleName, u32)>> {
    let asked = (p.schedule, p.virtual_chunks);
    let mut out = vec![(asked, 0)];
    let fitting = match p.schedule {
        ScheduleName::ZbV => (p.schedule, 2),
        ScheduleName::InterleavedOneFOneB => (p.schedule, p.virtual_chunks.max(2)),
        other => (other, 1),
    };
    let interleaved = (ScheduleName::InterleavedOneFOneB, p.virtual_chunks);
    for other in [fitting, interleaved, (ScheduleName::OneFOneB, 1)] {
        let makes_sense = other.1 == 1 || pp > 1;
        if makes_sense && out.iter().all(|o| o.0 != other) {
            out.push((other, 2 * UNIT));
        }
    }
    out
}

/// The listed layers where the plan has as many chunks as are listed.
fn kept_layers(p: &Plan, pp: u32, v: u32) -> Vec<u32> {
    if p.chunk_layers.len() as u64 == u64::from(pp) * u64::from(v) {
        p.chunk_layers.clone()
    } else {
        Vec::new()
    }
}
