//! Whether a planned job fits, and where its step goes when nothing varies.

use prism_engine::planned::{PlannedError, noise_free_with};
use prism_graph::{OpId, PassKind, PlannedStep, StageMemory, memory};
use prism_job::Job;
use prism_job::cost::{Pass, StepCosts, costs};
use prism_model::OpKind;

/// A kind of communication.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Communication {
    /// Activations and their gradients between stages.
    PointToPoint,
    /// Collectives of tensor parallelism, the sum of the norms' gradients with them.
    TensorParallel,
    /// Exchanges of context parallelism.
    ContextParallel,
    /// Exchanges of expert parallelism.
    ExpertParallel,
    /// Gathers of sharded parameters.
    ParameterGather,
    /// Reductions of gradients.
    GradientReduce,
    /// Sum of tied embeddings' gradients.
    Embedding,
    /// Norm of the gradients.
    GradientNorm,
}

impl Communication {
    /// All kinds, in the order in which they are reported.
    pub const ALL: [Communication; 8] = [
        Communication::PointToPoint,
        Communication::TensorParallel,
        Communication::ContextParallel,
        Communication::ExpertParallel,
        Communication::ParameterGather,
        Communication::GradientReduce,
        Communication::Embedding,
        Communication::GradientNorm,
    ];

    /// The name in output.
    pub const fn as_str(self) -> &'static str {
        match self {
            Communication::PointToPoint => "point-to-point",
            Communication::TensorParallel => "tensor parallel",
            Communication::ContextParallel => "context parallel",
            Communication::ExpertParallel => "expert parallel",
            Communication::ParameterGather => "parameter gather",
            Communication::GradientReduce => "gradient reduce",
            Communication::Embedding => "embedding gradients",
            Communication::GradientNorm => "gradient norm",
        }
    }

    /// Makes it free.
    pub fn free(self, costs: &mut StepCosts) {
        let passes = |costs: &mut StepCosts, set: fn(&mut Pass)| {
            for chunk in &mut costs.chunks {
                for pass in [&mut chunk.forward, &mut chunk.backward, &mut chunk.weight] {
                    set(pass);
                }
            }
        };
        match self {
            Communication::PointToPoint => costs.hop_s.fill(0.0),
            Communication::TensorParallel => {
                passes(costs, |p| p.tensor_parallel_s = 0.0);
                costs.layernorm_s.fill(0.0);
            }
            Communication::ContextParallel => passes(costs, |p| p.context_parallel_s = 0.0),
            Communication::ExpertParallel => passes(costs, |p| p.expert_parallel_s = 0.0),
            Communication::ParameterGather => costs.gather_s.fill(0.0),
            Communication::GradientReduce => costs.reduce_s.fill(0.0),
            Communication::Embedding => costs.embedding_s = 0.0,
            Communication::GradientNorm => costs.grad_norm_s = 0.0,
        }
    }
}

/// Step time that a kind of communication costs.
#[derive(
    Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
pub struct Exposed {
    /// The kind.
    pub kind: Communication,
    /// The step less the step in which this kind is free, seconds.
    pub exposed_s: f64,
}

/// Time of the busiest stage's own work, by what it is spent on, seconds.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
pub struct Work {
    /// The stage.
    pub stage: u16,
    /// Arithmetic-bound kernels.
    pub compute_s: f64,
    /// Memory-bound kernels.
    pub memory_s: f64,
    /// Waiting for the host to launch.
    pub host_s: f64,
    /// Optimizer.
    pub optimizer_s: f64,
    /// Fixed time of a step.
    pub fixed_s: f64,
    /// Of the first three, what is computed again in backward passes.
    pub recompute_s: f64,
}

impl Work {
    /// All of it.
    pub fn total_s(&self) -> f64 {
        self.compute_s + self.memory_s + self.host_s + self.optimizer_s + self.fixed_s
    }

    fn add(&mut self, pass: &Pass) {
        self.compute_s += pass.compute_s;
        self.memory_s += pass.memory_s;
        self.host_s += pass.host_s;
    }
}

/// A stage's share in the step.
#[derive(Clone, Debug, PartialEq)]
pub struct StageCheck {
    /// Memory of each of its GPUs.
    pub memory: StageMemory,
    /// Time in passes, with the communication inside them, and in the optimizer, seconds.
    pub busy_s: f64,
    /// Share of the step in which it waits: for other stages, for transfers, for collectives around
    /// the passes.
    pub idle: f64,
}

/// What [`check()`] finds.
#[derive(Clone, Debug, PartialEq)]
pub struct JobCheck {
    /// Step time without noise, seconds: `work.total_s() + bubble_s + communication_s`.
    pub step_s: f64,
    /// The busiest stage's own work.
    pub work: Work,
    /// The step without any communication less the busiest stage's own work, seconds.
    pub bubble_s: f64,
    /// The step less the step without any communication, seconds.
    pub communication_s: f64,
    /// What each kind costs by itself. Kinds hide behind each other, so these do not add up to
    /// `communication_s`. Those that cost nothing are left out.
    pub exposed: Vec<Exposed>,
    /// Stage by stage.
    pub stages: Vec<StageCheck>,
    /// Costs of the operations.
    pub costs: StepCosts,
}

impl JobCheck {
    /// Whether every stage fits its GPUs.
    pub fn fits(&self) -> bool {
        self.stages.iter().all(|s| s.memory.fits())
    }
}

/// Memory and noise-free step of a job.
///
/// # Errors
/// [`PlannedError::Graph`] if the schedule does not exist at this size.
pub fn check(job: &Job) -> Result<JobCheck, PlannedError> {
    let costs = costs(job);
    let step_s = noise_free_with(job, &|_| {})?;
    let mut exposed = Vec::new();
    for kind in Communication::ALL {
        let without = noise_free_with(job, &|c| kind.free(c))?;
        // What remains below is rounding.
        if step_s - without > 1e-9 * step_s {
            exposed.push(Exposed { kind, exposed_s: step_s - without });
        }
    }
    let quiet = |c: &mut StepCosts| Communication::ALL.iter().for_each(|kind| kind.free(c));
    let alone_s = noise_free_with(job, &quiet)?;
    let mut silent = costs.clone();
    quiet(&mut silent);
    let step = PlannedStep::new(job, &silent, 1)?;
    let alone = busy_s(&step);
    let most = |best: usize, s: usize| if alone[s] > alone[best] { s } else { best };
    let work = work_of((0..alone.len()).fold(0, most), &step, &silent);
    let mut whole = step;
    whole.set_costs(&costs)?;
    let stages = memory(job)?
        .into_iter()
        .zip(busy_s(&whole))
        .map(|(memory, busy_s)| StageCheck { memory, busy_s, idle: 1.0 - busy_s / step_s })
        .collect();
    Ok(JobCheck {
        step_s,
        bubble_s: alone_s - work.total_s(),
        communication_s: step_s - alone_s,
        work,
        exposed,
        stages,
        costs,
    })
}

/// Time in passes and optimizer, by stage.
fn busy_s(step: &PlannedStep) -> Vec<f64> {
    let mut busy = vec![0.0; usize::from(step.planned.shape.stages)];
    for (id, op) in step.planned.graph.iter() {
        if step.planned.pass(id).is_some() || op.kind == OpKind::Optimizer {
            busy[usize::from(op.stage)] += step.work_s[id.0 as usize];
        }
    }
    busy
}

/// A stage's work; nothing communicates.
fn work_of(stage: usize, step: &PlannedStep, costs: &StepCosts) -> Work {
    let mut work = Work { stage: stage as u16, ..Work::default() };
    let own = |op: OpId| usize::from(step.planned.graph.ops()[op.0 as usize].stage) == stage;
    for (id, _) in step.planned.graph.iter().filter(|(id, _)| own(*id)) {
        let piece = step.planned.piece(id).and_then(|p| costs.chunks.get(p as usize));
        let (Some(pass), Some(chunk)) = (step.planned.pass(id), piece) else { continue };
        match pass.kind {
            PassKind::Forward => work.add(&chunk.forward),
            PassKind::BackwardInput => work.add(&chunk.backward),
            PassKind::BackwardWeight => work.add(&chunk.weight),
            PassKind::Backward => {
                work.add(&chunk.backward);
                work.add(&chunk.weight);
            }
        }
        if matches!(pass.kind, PassKind::Backward | PassKind::BackwardInput) {
            work.recompute_s += chunk.recompute_s;
        }
    }
    work.optimizer_s = costs.optimizer_s.get(stage).copied().unwrap_or(0.0);
    work.fixed_s = costs.step_s;
    work
}
