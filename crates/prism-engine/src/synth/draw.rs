//! Draws of a specification's effects, and the durations they give.

use prism_graph::{OpId, ReplicaSync, StepGraph};
use prism_model::{KernelClass, OpKind, Signature};
use prism_stats::{Distribution, Law, stream};
use rand::{Rng, RngExt};

use super::spec::EffectLaw;
use super::{EffectSpec, SynthError, SynthSpec, lane_at};

/// What a stream that is labelled by an operation's kind is for.
const RESIDUAL: u64 = 0;
const TRANSFER: u64 = 1;
const DELAY: u64 = 2;
const POSITION: u64 = 3;

/// An effect as a generator of draws with mean 0.
pub(super) struct Effect {
    sd: f64,
    law: Law,
    centre: f64,
}

impl Effect {
    fn new(spec: EffectSpec) -> Result<Effect, SynthError> {
        let (law, centre) = match spec.law {
            EffectLaw::Normal => (Law::normal(0.0, 1.0)?, 0.0),
            // Variance 1: Student's t with 6 degrees of freedom has 6/4 times its scale squared.
            EffectLaw::HeavyTailed => (Law::student_t(0.0, (4.0_f64 / 6.0).sqrt(), 6.0)?, 0.0),
            EffectLaw::Skewed => (Law::gamma(4.0, 0.5)?, 2.0),
        };
        Ok(Effect { sd: spec.sd_log, law, centre })
    }

    pub(super) fn is_present(&self) -> bool {
        self.sd > 0.0
    }

    fn draw(&self, rng: &mut impl Rng) -> f64 {
        if self.is_present() { self.sd * (self.law.sample(rng) - self.centre) } else { 0.0 }
    }

    /// `n` draws of one stream; zeros if the effect is absent.
    fn draws(&self, n: usize, seed: u64, label: &str, entity: &[u64]) -> Vec<f64> {
        if !self.is_present() {
            return vec![0.0; n];
        }
        let mut rng = stream(seed, label, entity);
        (0..n).map(|_| self.draw(&mut rng)).collect()
    }
}

/// All effects.
pub(super) struct Laws {
    pub(super) worker: Effect,
    pub(super) position: Effect,
    step: Effect,
    window: Effect,
    step_worker: Effect,
    microbatch: Effect,
    residual: Effect,
    worker_spread: Effect,
    congestion: Effect,
    transfer: Effect,
    delay: Effect,
}

/// Compute of one kind, stage and chunk.
pub(super) struct ComputePlan {
    pub(super) signature: Signature,
    /// By microbatch.
    ops: Vec<OpId>,
    base_log: f64,
    pub(super) step_load: f64,
    pub(super) microbatch_load: f64,
}

/// Communication of one kind that starts on one stage, by sequence number.
struct Lane {
    kind: OpKind,
    stage: u16,
    sync: ReplicaSync,
    mean_s: f64,
    /// Participants of each instance.
    instances: Vec<Vec<OpId>>,
}

/// A specification laid out on its graph, with what is drawn once for all steps.
pub(super) struct Plan<'a> {
    pub(super) spec: &'a SynthSpec,
    graph: &'a StepGraph,
    pub(super) laws: Laws,
    pub(super) compute: Vec<ComputePlan>,
    lanes: Vec<Lane>,
    /// Log, `[stage][replica]`.
    pub(super) worker: Vec<Vec<f64>>,
    /// Factor, `[stage][replica]`.
    pub(super) spread: Vec<Vec<f64>>,
    /// Log, `[signature][microbatch]`.
    pub(super) position: Vec<Vec<f64>>,
}

/// Drawn effects of some steps, in log time.
pub(super) struct Effects {
    /// Outliers and windows included, `[t]`.
    pub(super) step: Vec<f64>,
    pub(super) outliers: Vec<bool>,
    pub(super) congestion: Vec<f64>,
    /// `[stage][t][r]`.
    pub(super) step_worker: Vec<Vec<f64>>,
    /// `[m][t][r]`, at loading 1 and before the worker's spread.
    pub(super) microbatch: Vec<Vec<f64>>,
    /// Sum of squared residuals, with the worker's spread, by signature.
    pub(super) residual_squares: Vec<f64>,
}

/// Durations of some steps, `[operation][step][replica]`, seconds, and the effects behind them.
pub(super) struct Drawn {
    pub(super) work: Vec<f64>,
    pub(super) delay: Option<Vec<f64>>,
    pub(super) effects: Effects,
}

impl<'a> Plan<'a> {
    pub(super) fn new(spec: &'a SynthSpec, graph: &'a StepGraph) -> Result<Plan<'a>, SynthError> {
        let e = &spec.effects;
        let laws = Laws {
            worker: Effect::new(e.worker)?,
            position: Effect::new(e.position)?,
            step: Effect::new(e.step)?,
            window: Effect::new(e.window)?,
            step_worker: Effect::new(e.step_worker)?,
            microbatch: Effect::new(e.microbatch)?,
            residual: Effect::new(e.residual)?,
            worker_spread: Effect::new(e.worker_spread)?,
            congestion: Effect::new(e.congestion)?,
            transfer: Effect::new(e.transfer)?,
            delay: Effect::new(EffectSpec::normal(spec.launch_delay.sd_log))?,
        };
        let compute = compute_plans(spec, graph);
        let by_worker = |effect: &Effect, label: &str| -> Vec<Vec<f64>> {
            (0..graph.stages())
                .map(|s| {
                    (0..graph.replicas())
                        .map(|r| effect.draws(1, spec.seed, label, &[r.into(), s.into()])[0])
                        .collect()
                })
                .collect()
        };
        let mut worker = by_worker(&laws.worker, "worker");
        if let Some(slow) = spec.slow_worker {
            worker[usize::from(slow.stage)][slow.replica as usize] += slow.factor.ln();
        }
        let spread = by_worker(&laws.worker_spread, "worker-spread");
        let spread = spread.into_iter().map(|s| s.into_iter().map(f64::exp).collect()).collect();
        let position = compute
            .iter()
            .map(|c| {
                let entity = [POSITION, c.signature.stage.into(), chunk(c.signature)];
                laws.position.draws(c.ops.len(), spec.seed, c.signature.kind.as_str(), &entity)
            })
            .collect();
        let lanes = lanes(spec, graph);
        Ok(Plan { spec, graph, laws, compute, lanes, worker, spread, position })
    }

    fn replicas(&self) -> usize {
        self.graph.replicas() as usize
    }

    /// Draws the durations of the steps with these ids.
    pub(super) fn draw(&self, steps: &[i64]) -> Drawn {
        let samples = steps.len() * self.replicas();
        let (stages, microbatches) =
            (usize::from(self.graph.stages()), self.spec.schedule.microbatches as usize);
        let mut drawn = Drawn {
            work: vec![0.0; self.graph.ops().len() * samples],
            delay: (self.spec.launch_delay.mean_s > 0.0)
                .then(|| vec![0.0; self.graph.ops().len() * samples]),
            effects: Effects {
                step: Vec::with_capacity(steps.len()),
                outliers: Vec::with_capacity(steps.len()),
                congestion: Vec::with_capacity(steps.len()),
                step_worker: vec![vec![0.0; samples]; stages],
                microbatch: vec![vec![0.0; samples]; microbatches],
                residual_squares: vec![0.0; self.compute.len()],
            },
        };
        self.constants(samples, &mut drawn.work);
        for (t, &step) in steps.iter().enumerate() {
            self.step(step, &mut drawn.effects);
            for r in 0..self.replicas() {
                self.replica(step, t, r, samples, &mut drawn);
            }
            self.transfers(step, t, samples, &mut drawn);
        }
        drawn
    }

    /// Optimizer and garbage collection.
    fn constants(&self, samples: usize, work: &mut [f64]) {
        for (id, op) in self.graph.iter() {
            let value = match op.kind {
                OpKind::Optimizer => self.spec.durations.optimizer_s,
                OpKind::Gc => self.spec.durations.gc_s,
                _ => continue,
            };
            work[lane_at(id, samples, 0)..][..samples].fill(value);
        }
    }

    /// What a step shares.
    fn step(&self, step: i64, effects: &mut Effects) {
        let (seed, entity) = (self.spec.seed, [step as u64]);
        let mut log = self.laws.step.draws(1, seed, "step", &entity)[0];
        let mut outlier = false;
        if let Some(o) = self.spec.outliers {
            outlier = stream(seed, "outlier", &entity).random::<f64>() < o.probability;
            log += if outlier { o.factor.ln() } else { 0.0 };
        }
        let window = self.spec.window_of(step);
        if window <= 0 {
            log += self.spec.early_window_shift_log;
        }
        // Windows are known by the id they start with, so that they may be made in any portions.
        let period = i64::from(self.spec.steps.window) - 1 + self.spec.steps.gap;
        let start = self.spec.steps.first + window * period;
        log += self.laws.window.draws(1, seed, "window", &[start as u64])[0];
        effects.step.push(log);
        effects.outliers.push(outlier);
        effects.congestion.push(self.laws.congestion.draws(1, seed, "congestion", &entity)[0]);
    }

    /// Compute of one replica in one step.
    fn replica(&self, step: i64, t: usize, r: usize, samples: usize, drawn: &mut Drawn) {
        let (seed, laws) = (self.spec.seed, &self.laws);
        let (cell, entity) = (t * self.replicas() + r, [step as u64, r as u64]);
        let microbatch = laws.microbatch.draws(
            self.spec.schedule.microbatches as usize,
            seed,
            "microbatch",
            &entity,
        );
        for (row, v) in drawn.effects.microbatch.iter_mut().zip(&microbatch) {
            row[cell] = *v;
        }
        let stages = usize::from(self.graph.stages());
        let worker = laws.step_worker.draws(stages, seed, "step-worker", &entity);
        for (row, v) in drawn.effects.step_worker.iter_mut().zip(&worker) {
            row[cell] = *v;
        }
        for (c, plan) in self.compute.iter().enumerate() {
            let s = usize::from(plan.signature.stage);
            let label = plan.signature.kind.as_str();
            let entity = |what| {
                let stage = plan.signature.stage.into();
                [what, step as u64, r as u64, stage, chunk(plan.signature)]
            };
            let residual = laws.residual.draws(plan.ops.len(), seed, label, &entity(RESIDUAL));
            let shared = plan.base_log
                + self.worker[s][r]
                + drawn.effects.step[t] * plan.step_load
                + worker[s];
            for (m, &op) in plan.ops.iter().enumerate() {
                let inner = self.spread[s][r] * residual[m];
                drawn.effects.residual_squares[c] += inner * inner;
                let of_microbatch = self.spread[s][r] * microbatch[m] * plan.microbatch_load;
                let log = shared + self.position[c][m] + of_microbatch + inner;
                drawn.work[lane_at(op, samples, cell)] = log.exp();
            }
            if let Some(delay) = &mut drawn.delay {
                let sd = self.spec.launch_delay.sd_log;
                let logs = laws.delay.draws(plan.ops.len(), seed, label, &entity(DELAY));
                for (&op, log) in plan.ops.iter().zip(logs) {
                    if !self.graph.deps(op).is_empty() {
                        let factor = (log - 0.5 * sd * sd).exp();
                        delay[lane_at(op, samples, cell)] = self.spec.launch_delay.mean_s * factor;
                    }
                }
            }
        }
    }

    /// Communication of one step: one draw an instance and set of replicas that wait for each
    /// other.
    fn transfers(&self, step: i64, t: usize, samples: usize, drawn: &mut Drawn) {
        let congestion = drawn.effects.congestion[t];
        for lane in &self.lanes {
            let block = match lane.sync {
                ReplicaSync::None => 1,
                ReplicaSync::Blocks(b) => (b as usize).max(1),
                ReplicaSync::All => self.replicas(),
            };
            for first in (0..self.replicas()).step_by(block) {
                let entity = [TRANSFER, step as u64, first as u64, lane.stage.into()];
                let draws = self.laws.transfer.draws(
                    lane.instances.len(),
                    self.spec.seed,
                    lane.kind.as_str(),
                    &entity,
                );
                for (instance, draw) in lane.instances.iter().zip(draws) {
                    let value = lane.mean_s * (congestion + draw).exp();
                    let cell = t * self.replicas() + first;
                    for &op in instance {
                        drawn.work[lane_at(op, samples, cell)..][..block].fill(value);
                    }
                }
            }
        }
    }
}

fn chunk(signature: Signature) -> u64 {
    i64::from(signature.chunk) as u64
}

fn compute_plans(spec: &SynthSpec, graph: &StepGraph) -> Vec<ComputePlan> {
    let mut by_signature: std::collections::BTreeMap<Signature, Vec<(i32, OpId)>> =
        std::collections::BTreeMap::new();
    for (id, op) in graph.iter().filter(|(_, op)| op.kind.is_microbatch_compute()) {
        by_signature.entry(op.signature()).or_default().push((op.microbatch, id));
    }
    by_signature
        .into_iter()
        .map(|(signature, mut ops)| {
            ops.sort_unstable();
            let backward = signature.kind == OpKind::BackwardCompute;
            let d = &spec.durations;
            let mean = if backward { d.backward_s } else { d.forward_s };
            let stage = usize::from(signature.stage);
            let factor = d.stage_factor.get(stage).copied().unwrap_or(1.0);
            ComputePlan {
                signature,
                ops: ops.into_iter().map(|(_, id)| id).collect(),
                base_log: (mean * factor).ln(),
                step_load: spec.effects.step_load.of(backward, signature.stage),
                microbatch_load: spec.effects.microbatch_load.of(backward, signature.stage),
            }
        })
        .collect()
}

/// Communication by kind and stage of each instance's first participant.
fn lanes(spec: &SynthSpec, graph: &StepGraph) -> Vec<Lane> {
    let is_communication =
        |kind: OpKind| matches!(kind.class(), KernelClass::PointToPoint | KernelClass::Collective);
    let key = |id: &OpId| {
        let op = &graph.ops()[id.0 as usize];
        (op.kind, op.stage, op.seq)
    };
    let mut lanes: std::collections::BTreeMap<(OpKind, u16), Lane> =
        std::collections::BTreeMap::new();
    let mut add = |mut members: Vec<OpId>, sync: ReplicaSync| {
        members.sort_by_key(key);
        let Some((kind, stage, _)) = members.first().map(key) else { return };
        let mean_s = if kind.is_p2p() { spec.durations.p2p_s } else { spec.durations.collective_s };
        lanes
            .entry((kind, stage))
            .or_insert_with(|| Lane { kind, stage, sync, mean_s, instances: Vec::new() })
            .instances
            .push(members);
    };
    for group in graph.groups() {
        add(group.members.clone(), group.sync);
    }
    for (id, op) in graph.iter() {
        if is_communication(op.kind) && graph.group_of(id).is_none() {
            add(vec![id], ReplicaSync::None);
        }
    }
    let mut out: Vec<Lane> = lanes.into_values().collect();
    for lane in &mut out {
        lane.instances.sort_by_key(|members| members.first().map(key));
    }
    out
}
