//! Programs to measure.

use std::collections::BTreeMap;

use prism_engine::sample::{
    Index, Key, Offset, PoolId, Program, QuantileTable, Scope, Sync, TableId, Value,
};
use statrs::distribution::{ContinuousCDF, Normal};

/// A lognormal law of mean 1.
pub(crate) fn lognormal(sigma: f64) -> QuantileTable {
    let normal = Normal::standard();
    let at = |z: f64| (sigma * z - 0.5 * sigma * sigma).exp();
    let lower = |p: f64| at(normal.inverse_cdf(p));
    let upper = |q: f64| at(-normal.inverse_cdf(q));
    QuantileTable::from_quantiles(lower, upper).expect("a lognormal law is finite")
}

/// A program and the number of random operations it evaluates per sample.
pub(crate) struct Case {
    pub(crate) program: Program,
    pub(crate) ops: usize,
}

struct Stage {
    /// Remaining operations, last first: (backward, microbatch).
    todo: Vec<(bool, usize)>,
    free_at: f64,
    last: Option<Value>,
}

/// The order of a stage's work under 1F1B, last first.
fn one_f_one_b_order(stage: usize, stages: usize, microbatches: usize) -> Vec<(bool, usize)> {
    let warm = (stages - 1 - stage).min(microbatches);
    let mut order: Vec<_> = (0..warm).map(|m| (false, m)).collect();
    for m in warm..microbatches {
        order.extend([(false, m), (true, m - warm)]);
    }
    order.extend((microbatches - warm..microbatches).map(|m| (true, m)));
    order.reverse();
    order
}

/// A pipeline of 1F1B with point-to-point operations that nothing waits on but the receiver: forward
/// 1, backward 2, transfer 0.05; noise lognormal 0.05, of transfers 0.3; a factor per stage and
/// sample, lognormal 0.03.
pub(crate) fn pipeline(stages: usize, microbatches: usize) -> Case {
    let mut p = Program::new(1);
    let (compute, transfer, spatial) =
        (p.table(lognormal(0.05)), p.table(lognormal(0.3)), p.table(lognormal(0.03)));
    let means = [p.constant(1.0), p.constant(2.0), p.constant(0.05)];
    let factors: Vec<Value> = (0..stages)
        .map(|s| p.draw(spatial, Key::new("spatial").with(s as u64), Scope::Shared))
        .collect();
    let mut arrivals: [Vec<Option<(Value, f64)>>; 2] =
        [vec![None; stages * microbatches], vec![None; stages * microbatches]];
    let mut work: Vec<Stage> = (0..stages)
        .map(|s| {
            let todo = one_f_one_b_order(s, stages, microbatches);
            Stage { todo, free_at: 0.0, last: None }
        })
        .collect();
    let mut ops = 0;
    let cell = |s: usize, m: usize| s * microbatches + m;
    while let Some((start, s)) = next_start(&work, &arrivals, microbatches) {
        let (backward, m) = work[s].todo.pop().expect("a stage that can start has work");
        let way = usize::from(backward);
        let key = Key::new("compute").with(s as u64).with(m as u64).with(way as u64);
        let noise = p.draw(compute, key, Scope::Shared);
        let scale = p.mul(means[way], factors[s]);
        let duration = p.mul(noise, scale);
        let arrived = arrivals[way][cell(s, m)].map(|a| a.0);
        let ready = match (work[s].last, arrived) {
            (Some(a), Some(b)) => Some(p.max(a, b)),
            (a, b) => a.or(b),
        };
        let end = ready.map_or(duration, |r| p.add(r, duration));
        let end_at = start + [1.0, 2.0][way];
        work[s].last = Some(end);
        work[s].free_at = end_at;
        ops += 1;
        let next = if backward { s.checked_sub(1) } else { Some(s + 1).filter(|&n| n < stages) };
        if let Some(next) = next {
            let key = Key::new("transfer").with(s as u64).with(m as u64).with(way as u64);
            let noise = p.draw(transfer, key, Scope::Shared);
            let duration = p.mul(noise, means[2]);
            let arrival = p.add(end, duration);
            arrivals[way][cell(next, m)] = Some((arrival, end_at + 0.05));
            ops += 1;
        }
    }
    let ends: Vec<Value> = work.iter().filter_map(|w| w.last).collect();
    let step = p.max_of(&ends).expect("a pipeline has stages");
    p.output("step", step);
    Case { program: p, ops }
}

/// The stage that can start earliest, by mean durations.
fn next_start(
    work: &[Stage],
    arrivals: &[Vec<Option<(Value, f64)>>; 2],
    microbatches: usize,
) -> Option<(f64, usize)> {
    let stages = work.len();
    let start = |s: usize| {
        let &(backward, m) = work[s].todo.last()?;
        let first = s == if backward { stages - 1 } else { 0 };
        let arrived = arrivals[usize::from(backward)][s * microbatches + m].map(|a| a.1);
        let ready = if first { 0.0 } else { arrived? };
        Some((ready.max(work[s].free_at), s))
    };
    (0..stages).filter_map(start).min_by(|a, b| a.0.total_cmp(&b.0))
}

/// How the durations of [`job`] are drawn.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Model {
    /// Products of a residual, a microbatch and a step factor.
    Parametric,
    /// Rows of observed microbatches and steps.
    Empirical,
}

const STAGES: usize = 4;
const MICROBATCHES: usize = 32;
const REPLICAS: u32 = 4;
/// Observed steps and microbatches to draw from.
const STEPS: u32 = 43;
const ROWS: u32 = STEPS * REPLICAS * MICROBATCHES as u32;

struct Job {
    p: Program,
    model: Model,
    residual: TableId,
    step_factor: Value,
    microbatch: Vec<Value>,
    rows: Vec<Index>,
    step_row: Index,
    pools: BTreeMap<(&'static str, usize, usize), PoolId>,
    ops: usize,
}

impl Job {
    fn new(model: Model) -> Self {
        let mut p = Program::new(REPLICAS);
        let (residual, factor) = (p.table(lognormal(0.02)), p.table(lognormal(0.3)));
        let step = p.table(lognormal(0.01));
        let step_factor = p.draw(step, Key::new("step"), Scope::Shared);
        let key = |m: usize| Key::new("microbatch").with(m as u64);
        let microbatch =
            (0..MICROBATCHES).map(|m| p.draw(factor, key(m), Scope::PerReplica)).collect();
        let rows = (0..MICROBATCHES).map(|m| p.index(ROWS, key(m), Scope::PerReplica)).collect();
        let step_row = p.index(STEPS, Key::new("step row"), Scope::Shared);
        Self {
            p,
            model,
            residual,
            step_factor,
            microbatch,
            rows,
            step_row,
            pools: BTreeMap::new(),
            ops: 0,
        }
    }

    /// A pool of some plausible durations.
    fn pool(&mut self, len: u32, mean: f32) -> PoolId {
        self.p.pool(
            (0..len).map(|i| mean * (0.7 + 0.6 * ((i * 7919) % 101) as f32 / 101.0)).collect(),
        )
    }

    /// When an operation is ready: after what it waits for, and its launch delay.
    fn launch(&mut self, after: Value) -> Value {
        if self.model == Model::Parametric {
            return after;
        }
        let pool = self.pool(STEPS * REPLICAS, 0.001);
        let offsets = (0..REPLICAS).map(|r| r * STEPS).collect();
        let delay = self.p.gather(pool, self.step_row, 1, Offset::PerReplica(offsets));
        self.p.add(after, delay)
    }

    /// The end of an operation of mean duration `mean` that is ready at `ready`.
    fn end(
        &mut self,
        ready: Value,
        mean: f32,
        (what, stage, way): (&'static str, usize, usize),
        microbatch: usize,
    ) -> Value {
        self.ops += REPLICAS as usize;
        let duration = if self.model == Model::Empirical {
            let known = self.pools.get(&(what, stage, way)).copied();
            let pool = known.unwrap_or_else(|| self.pool(ROWS, mean));
            self.pools.insert((what, stage, way), pool);
            self.p.gather(pool, self.rows[microbatch], 1, Offset::Fixed(0))
        } else {
            let key = Key::new(what).with(stage as u64).with(way as u64).with(microbatch as u64);
            let noise = self.p.draw(self.residual, key, Scope::PerReplica);
            let base = self.p.constant(mean);
            let x = self.p.mul(base, noise);
            let x = self.p.mul(x, self.step_factor);
            self.p.mul(x, self.microbatch[microbatch])
        };
        self.p.add(ready, duration)
    }
}

/// A job like a recorded one: 4 replicas of 4 stages and 32 microbatches, send and receive as pairs
/// that start together, a gradient reduction over the replicas at the end: 2,660 operations.
pub(crate) fn job(model: Model) -> Case {
    let mut j = Job::new(model);
    let zero = j.p.constant(0.0);
    let mut todo: Vec<Vec<(bool, usize)>> =
        (0..STAGES).map(|s| one_f_one_b_order(s, STAGES, MICROBATCHES)).collect();
    let mut last = [zero; STAGES];
    let mut sent: [Vec<Option<Value>>; 2] =
        [vec![None; STAGES * MICROBATCHES], vec![None; STAGES * MICROBATCHES]];
    while todo.iter().any(|t| !t.is_empty()) {
        for s in 0..STAGES {
            let Some(&(backward, m)) = todo[s].last() else { continue };
            let way = usize::from(backward);
            if s != if backward { STAGES - 1 } else { 0 } {
                let Some(send_ready) = sent[way][s * MICROBATCHES + m] else { continue };
                // Both ends of a transfer start at the latest of the two.
                let receive_ready = j.launch(last[s]);
                let start = j.p.max(send_ready, receive_ready);
                last[s] = j.end(start, 0.002, ("receive", s, way), m);
            }
            todo[s].pop();
            let ready = j.launch(last[s]);
            last[s] = j.end(ready, [0.03, 0.06][way], ("compute", s, way), m);
            let next =
                if backward { s.checked_sub(1) } else { Some(s + 1).filter(|&n| n < STAGES) };
            if let Some(next) = next {
                let ready = j.launch(last[s]);
                sent[way][next * MICROBATCHES + m] = Some(j.end(ready, 0.001, ("send", s, way), m));
            }
        }
    }
    let ends: Vec<Value> = last
        .into_iter()
        .enumerate()
        .map(|(s, end)| {
            let synced = j.p.sync_max(end, Sync::All);
            j.end(synced, 0.05, ("reduce", s, 0), 0)
        })
        .collect();
    let end = j.p.max_of(&ends).expect("a pipeline has stages");
    let step = j.p.max_over_replicas(end);
    j.p.output("step", step);
    Case { program: j.p, ops: j.ops }
}
