//! Steps of a calibrated job's own model, recorded as a trace would.

use prism_graph::{Event, OpId, StepGraph, synchronise, to_op_table};
use prism_io::{JobMeta, OpTable};
use prism_model::{DurationModel, ImpliedDependency, OpKind, Signature, StepVector};
use prism_stats::stream;
use rand::{Rng, RngExt};

use super::{SynthError, ascending, lane_at, source};
use crate::calibrate::check_job;
use crate::profile::Profile;

/// What a stream that is labelled by an operation's kind is for.
const ROW: u64 = 0;
const TRANSFER: u64 = 1;

/// Records steps that are drawn from a profile's model: see [`from_model`].
///
/// # Errors
/// As [`from_model`].
pub fn from_profile(profile: &Profile, steps: &[i64], seed: u64) -> Result<OpTable, SynthError> {
    let job = &profile.provenance.job;
    let graph = profile.step_graph().map_err(|e| SynthError::Model { what: e.to_string() })?;
    let (dp, pp) = (graph.replicas(), u32::from(graph.stages()));
    let meta = JobMeta {
        trial_name: job.trial_name.clone(),
        run_id: job.run_id,
        dp_size: dp,
        dsp_size: job.dsp_size,
        pp_size: pp,
        tp_size: job.tp_size,
        vpp_size: job.vpp_size,
        world_size: dp.saturating_mul(pp).saturating_mul(job.dsp_size).saturating_mul(job.tp_size),
    };
    from_model(&graph, &profile.model, &meta, steps, seed)
}

/// Records steps that are drawn from a calibrated model: an observed step for what is drawn with
/// the step (step effects, congestion, collectives, launch delays), an observed row for every
/// microbatch (or operation, if the microbatch effect was dropped) and transfer.
///
/// # Errors
/// [`SynthError::Model`] if the model does not fit the graph, [`SynthError::Steps`] if step ids do
/// not ascend.
pub fn from_model(
    graph: &StepGraph,
    model: &DurationModel,
    meta: &JobMeta,
    steps: &[i64],
    seed: u64,
) -> Result<OpTable, SynthError> {
    ascending(steps)?;
    check_job(graph, model).map_err(|e| SynthError::Model { what: e.to_string() })?;
    if let Some(op) = graph.ops().iter().find(|op| op.kind == OpKind::BackwardWeight) {
        return Err(SynthError::Kind { kind: op.kind });
    }
    let drawing = Drawing { graph, model, seed };
    let (replicas, ops) = (graph.replicas() as usize, graph.ops().len());
    let samples = steps.len() * replicas;
    let (mut work, mut delay) = (vec![0.0; ops * samples], vec![0.0; ops * samples]);
    for (t, &step) in steps.iter().enumerate() {
        let row = stream(seed, "step-row", &[step as u64]).random_range(0..model.steps.len());
        let now = drawing.step(step, row);
        let delays = drawing.delays(row, &now);
        for op in 0..ops {
            let to = lane_at(OpId(op as u32), samples, t * replicas)..;
            work[to.clone()][..replicas].copy_from_slice(&now[op * replicas..][..replicas]);
            delay[to][..replicas].copy_from_slice(&delays[op * replicas..][..replicas]);
        }
    }
    let mut table = to_op_table(graph, steps, &work, Some(&delay), meta)?;
    table.sources = vec![source(format!("synthetic from a profile, seed {seed}"))];
    Ok(table)
}

/// Work of one step for each of the model's own, `[operation][step][replica]`, seconds: what is drawn
/// with the step is that step's, everything else is drawn once.
///
/// # Errors
/// [`SynthError::Model`] if the model does not fit the graph.
pub(crate) fn drawn_work(
    graph: &StepGraph,
    model: &DurationModel,
    seed: u64,
) -> Result<Vec<f64>, SynthError> {
    check_job(graph, model).map_err(|e| SynthError::Model { what: e.to_string() })?;
    let drawing = Drawing { graph, model, seed };
    let (replicas, ops) = (graph.replicas() as usize, graph.ops().len());
    let samples = model.steps.len() * replicas;
    let mut work = vec![0.0; ops * samples];
    for (t, &step) in model.steps.iter().enumerate() {
        let now = drawing.step(step, t);
        for op in 0..ops {
            let to = lane_at(OpId(op as u32), samples, t * replicas)..;
            work[to][..replicas].copy_from_slice(&now[op * replicas..][..replicas]);
        }
    }
    Ok(work)
}

struct Drawing<'a> {
    graph: &'a StepGraph,
    model: &'a DurationModel,
    seed: u64,
}

impl Drawing<'_> {
    fn replicas(&self) -> usize {
        self.model.replicas as usize
    }

    /// Work of one step, `[operation][replica]`, seconds; `row` is the observed step it is drawn
    /// with.
    fn step(&self, step: i64, row: usize) -> Vec<f64> {
        let mut work = vec![0.0; self.graph.ops().len() * self.replicas()];
        for vector in &self.model.step_work {
            for r in 0..self.replicas() {
                work[vector.op as usize * self.replicas() + r] = self.value(vector, r, row);
            }
        }
        for r in 0..self.replicas() {
            self.compute(step, row, r, &mut work);
            self.transfers(step, row, r, &mut work);
        }
        work
    }

    fn value(&self, vector: &StepVector, r: usize, row: usize) -> f64 {
        let steps = self.model.steps.len();
        let constant = vector.values_s.len() == self.replicas();
        f64::from(vector.values_s[if constant { r } else { r * steps + row }])
    }

    fn compute(&self, step: i64, row: usize, r: usize, work: &mut [f64]) {
        let compute = &self.model.compute;
        let (replicas, steps) = (self.replicas(), self.model.steps.len());
        let (n, microbatches) = (compute.signatures.len(), self.model.microbatches as usize);
        let rows = compute.microbatch_vectors_log.len() / n;
        let mut shared = stream(self.seed, "microbatch", &[step as u64, r as u64]);
        let shared: Option<Vec<usize>> = (compute.microbatch_shared && rows > 0)
            .then(|| (0..microbatches).map(|_| shared.random_range(0..rows)).collect());
        for (c, s) in compute.signatures.iter().enumerate() {
            let mut own = self.stream(ROW, step, r, s.signature);
            let at =
                |values: &[f64], default| values.get(c * replicas + r).copied().unwrap_or(default);
            let of_step = compute.step_vectors_log.get((c * replicas + r) * steps + row);
            let scale = s.base_log_s
                + at(&compute.worker_log, 0.0)
                + of_step.map_or(0.0, |v| f64::from(*v));
            let spread = at(&compute.worker_spread, 1.0);
            for (m, op) in s.by_position() {
                let position = compute.position_log.get(c * microbatches + m);
                let mut log = scale + position.map_or(0.0, |p| f64::from(*p));
                if rows > 0 {
                    let drawn = match &shared {
                        Some(list) => list[m],
                        None => own.random_range(0..rows),
                    };
                    log += spread * f64::from(compute.microbatch_vectors_log[drawn * n + c]);
                }
                work[op as usize * replicas + r] = log.exp();
            }
        }
    }

    fn transfers(&self, step: i64, row: usize, r: usize, work: &mut [f64]) {
        let congestion = self.model.congestion.get(row).map_or(1.0, |f| f64::from(*f));
        for transfer in &self.model.transfers {
            let width = transfer.members.len().max(1);
            let instances = if transfer.by_instance { transfer.ops.len() / width } else { 1 };
            let replicas = if transfer.by_replica { self.replicas() } else { 1 };
            let rows = transfer.rows_s.len() / width / (instances * replicas).max(1);
            let Some(first) = transfer.members.first().filter(|_| rows > 0) else { continue };
            let mut rng = self.stream(TRANSFER, step, r, *first);
            for (i, instance) in transfer.ops.chunks(width).enumerate() {
                let cell = (i % instances) * replicas + r % replicas;
                let drawn = cell * rows + rng.random_range(0..rows);
                for (&op, x) in instance.iter().zip(&transfer.rows_s[drawn * width..]) {
                    work[op as usize * self.replicas() + r] = f64::from(*x) * congestion;
                }
            }
        }
    }

    fn stream(&self, what: u64, step: i64, r: usize, signature: Signature) -> impl Rng + use<> {
        let chunk = i64::from(signature.chunk) as u64;
        let entity = [what, step as u64, r as u64, signature.stage.into(), chunk];
        stream(self.seed, signature.kind.as_str(), &entity)
    }

    /// Launch delays of one step, `[operation][replica]`, seconds, with the lags of implied
    /// dependencies folded in: each operation's start less the latest end of what it depends on.
    fn delays(&self, row: usize, work: &[f64]) -> Vec<f64> {
        let replicas = self.replicas();
        let mut delay = vec![0.0; work.len()];
        for vector in &self.model.launch_delay {
            for r in 0..replicas {
                delay[vector.op as usize * replicas + r] = self.value(vector, r, row);
            }
        }
        let mut times = Times { start: vec![0.0; work.len()], end: vec![0.0; work.len()] };
        for &event in self.graph.order() {
            match event {
                Event::Start(op) => self.start(op, row, work, &mut times, &mut delay),
                Event::Group(id) => {
                    let group = &self.graph.groups()[id.0 as usize];
                    let mut together = vec![f64::NEG_INFINITY; replicas];
                    for member in &group.members {
                        let ready = &times.start[member.0 as usize * replicas..];
                        together.iter_mut().zip(ready).for_each(|(t, s)| *t = t.max(*s));
                    }
                    synchronise(&mut together, self.graph.replicas(), group.sync);
                    for at in group.members.iter().map(|m| m.0 as usize * replicas) {
                        for (r, t) in together.iter().enumerate() {
                            times.end[at + r] = t + work[at + r];
                        }
                    }
                }
            }
        }
        delay
    }

    /// Starts an operation in all replicas; its delay becomes its start less the latest end of
    /// what it depends on, implied dependencies included.
    fn start(&self, op: OpId, row: usize, work: &[f64], times: &mut Times, delay: &mut [f64]) {
        let (replicas, steps) = (self.replicas(), self.model.steps.len());
        let at = op.0 as usize * replicas;
        let implied: Vec<&ImpliedDependency> =
            self.model.implied.iter().filter(|d| d.op == op.0).collect();
        for r in 0..replicas {
            let end = |on: u32| times.end[on as usize * replicas + r];
            let latest = |skip_implied: bool| {
                let deps = self.graph.deps(op).iter();
                let kept = deps.filter(|d| !(skip_implied && implied.iter().any(|i| i.on == d.0)));
                kept.map(|d| end(d.0)).reduce(f64::max).unwrap_or(0.0)
            };
            let mut begin = latest(true) + delay[at + r];
            for i in &implied {
                let lag = i.lag_s[r * steps + row];
                if lag > ImpliedDependency::INACTIVE_S {
                    begin = begin.max(end(i.on) + f64::from(lag));
                }
            }
            delay[at + r] = begin - latest(false);
            times.start[at + r] = begin;
            times.end[at + r] = begin + work[at + r];
        }
    }
}

/// Starts and ends of one step, `[operation][replica]`, seconds.
struct Times {
    start: Vec<f64>,
    end: Vec<f64>,
}
