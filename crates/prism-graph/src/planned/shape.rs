//! Which schedule, how large, and what overlaps.

use prism_job::{Job, ScheduleName, ZeroStage};
use prism_model::Direction;

use super::{PlannedPass, orders};
use crate::GraphError;
use crate::memory::{Stored, peak};

/// What runs beside compute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlannedOverlap {
    /// A chunk's gradients are reduced after its last backward; otherwise all after all compute.
    pub grad_reduce: bool,
    /// Each chunk waits for its own parameters; otherwise all are gathered before the first forward.
    pub param_gather: bool,
    /// The sender of an activation or gradient goes on while it is transferred.
    pub p2p: bool,
}

/// The shape of a planned step's pipeline.
#[allow(clippy::struct_excessive_bools)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedShape {
    /// Order of the passes.
    pub schedule: ScheduleName,
    /// Pipeline stages.
    pub stages: u16,
    /// Chunks of a stage: any number when interleaved; two for ZB-V and `DualPipe`; otherwise one.
    pub chunks: u16,
    /// Microbatches of a replica and step.
    pub microbatches: u32,
    /// Data-parallel replicas that the graph is evaluated over.
    pub replicas: u32,
    /// What runs beside compute.
    pub overlap: PlannedOverlap,
    /// Whether gradients are reduced over replicas at all. `DualPipe` reduces over its two copies of
    /// a piece in any case.
    pub data_parallel: bool,
    /// Whether parameters are whole on every replica (`ZeRO` 0): the reduction then stands for an
    /// all-reduce, and nothing is gathered.
    pub all_reduce_grads: bool,
    /// Whether the first and the last piece share the embedding.
    pub tied_embedding: bool,
    /// Whether gradients of norms are reduced over the tensor-parallel group.
    pub norm_all_reduce: bool,
}

impl PlannedShape {
    /// One replica with nothing around its pipeline; the schedule's fewest chunks; transfers run
    /// beside compute.
    pub fn new(schedule: ScheduleName, stages: u16, microbatches: u32) -> PlannedShape {
        PlannedShape {
            schedule,
            stages,
            chunks: fixed_chunks(schedule).unwrap_or(1),
            microbatches,
            replicas: 1,
            overlap: PlannedOverlap { p2p: true, ..PlannedOverlap::default() },
            data_parallel: false,
            all_reduce_grads: false,
            tied_embedding: false,
            norm_all_reduce: false,
        }
    }

    /// A job's pipeline, for evaluation over `replicas` of its data-parallel replicas.
    ///
    /// A plan's `virtual_chunks` counts how often the model is cut beyond its stages: 2 under ZB-V,
    /// 1 under `DualPipe`, whose stages hold two chunks of a model cut into as many pieces as there
    /// are stages.
    ///
    /// # Errors
    /// [`GraphError::Schedule`] names the rule that is broken.
    pub fn of_job(job: &Job, replicas: u32) -> Result<PlannedShape, GraphError> {
        let plan = &job.plan;
        let broken = |rule, got: String| Err(GraphError::Schedule { rule, got });
        let Ok(stages) = u16::try_from(plan.pipeline_parallel) else {
            return broken("stages must be at most 65535", plan.pipeline_parallel.to_string());
        };
        let dual = plan.schedule == ScheduleName::DualPipe;
        let cuts = if dual { Some(1) } else { fixed_chunks(plan.schedule).map(u32::from) };
        if cuts.is_some_and(|cuts| cuts != plan.virtual_chunks) {
            let rule = "the schedule has another number of virtual chunks: 2 under ZB-V, any when \
                        interleaved, 1 otherwise";
            return broken(rule, format!("{} under {:?}", plan.virtual_chunks, plan.schedule));
        }
        let chunks = u16::try_from(if dual { 2 } else { plan.virtual_chunks }).unwrap_or(u16::MAX);
        let shape = PlannedShape {
            chunks,
            replicas,
            overlap: PlannedOverlap {
                grad_reduce: plan.overlap.grad_reduce,
                param_gather: plan.overlap.param_gather,
                p2p: plan.overlap.p2p,
            },
            data_parallel: u64::from(plan.data_parallel()) * u64::from(plan.context_parallel) > 1,
            all_reduce_grads: plan.zero == ZeroStage::None,
            tied_embedding: job.model.tied_embeddings,
            norm_all_reduce: plan.sequence_parallel && plan.tensor_parallel > 1,
            ..PlannedShape::new(plan.schedule, stages, job.microbatches())
        };
        shape.validate()?;
        Ok(shape)
    }

    /// Checks that the schedule exists at this size.
    ///
    /// # Errors
    /// [`GraphError::Schedule`] names the rule that is broken.
    pub fn validate(&self) -> Result<(), GraphError> {
        let ops = u64::from(self.stages) * u64::from(self.chunks) * u64::from(self.microbatches);
        let dual = self.schedule == ScheduleName::DualPipe;
        let (p, m) = (u32::from(self.stages), self.microbatches);
        let rules = [
            (self.replicas > 0, "replicas must be positive"),
            (self.stages > 0, "stages must be positive"),
            (self.chunks > 0, "chunks must be positive"),
            (i16::try_from(self.chunks).is_ok(), "chunks must be at most 32767"),
            (m > 0, "microbatches must be positive"),
            (ops <= 1 << 26, "stages x chunks x microbatches must be at most 2^26"),
            (
                fixed_chunks(self.schedule).is_none_or(|chunks| chunks == self.chunks),
                "ZB-V and DualPipe have two chunks; only interleaved 1F1B has any number",
            ),
            (
                self.schedule != ScheduleName::InterleavedOneFOneB || self.chunks == 1 || m >= p,
                "interleaved 1F1B needs at least `stages` microbatches",
            ),
            (!dual || p.is_multiple_of(2), "DualPipe needs an even number of stages"),
            (
                !dual || (m.is_multiple_of(2) && u64::from(m) >= 2 * u64::from(p)),
                "DualPipe needs an even number of microbatches, at least twice the stages",
            ),
        ];
        match rules.iter().find(|(holds, _)| !holds) {
            None => Ok(()),
            Some((_, rule)) => Err(GraphError::Schedule { rule, got: format!("{self:?}") }),
        }
    }

    /// The order in which a stage computes.
    ///
    /// # Errors
    /// As [`PlannedShape::validate`], and if there is no such stage.
    pub fn passes(&self, stage: u16) -> Result<Vec<PlannedPass>, GraphError> {
        self.validate()?;
        if stage >= self.stages {
            let rule = "the stage must be below `stages`";
            return Err(GraphError::Schedule { rule, got: format!("stage {stage} of {self:?}") });
        }
        Ok(orders::passes(self, stage))
    }

    /// Pieces that the model is cut into.
    pub fn pieces(&self) -> u32 {
        match self.schedule {
            ScheduleName::DualPipe => u32::from(self.stages),
            _ => u32::from(self.stages) * u32::from(self.chunks),
        }
    }

    /// Which piece of the model, in model order, a stage's chunk is.
    ///
    /// | schedule | piece |
    /// |---|---|
    /// | GPipe, 1F1B, ZB-H1 | `stage` |
    /// | interleaved | `chunk * stages + stage` |
    /// | ZB-V | chunk 0: `stage`; chunk 1: `2 * stages - 1 - stage` |
    /// | `DualPipe` | chunk 0 (even microbatches): `stage`; chunk 1 (odd ones): `stages - 1 - stage` |
    pub fn piece(&self, stage: u16, chunk: u16) -> u32 {
        let (p, s) = (u32::from(self.stages), u32::from(stage));
        match (self.schedule, chunk) {
            (ScheduleName::ZbV, 1) => 2 * p - 1 - s,
            (ScheduleName::DualPipe, 1) => p - 1 - s,
            (ScheduleName::DualPipe, _) => s,
            _ => u32::from(chunk) * p + s,
        }
    }

    /// Where a microbatch goes from a stage's chunk: the stage and chunk of the next piece (forward)
    /// or of the one before (backward); `None` at the model's ends.
    pub fn hop(&self, stage: u16, chunk: u16, direction: Direction) -> Option<(u16, u16)> {
        let piece = self.piece(stage, chunk);
        let to = match direction {
            Direction::Forward => piece.checked_add(1).filter(|&to| to < self.pieces()),
            Direction::Backward => piece.checked_sub(1),
        }?;
        let p = u32::from(self.stages);
        let (stage, chunk) = match self.schedule {
            ScheduleName::ZbV if to >= p => (2 * p - 1 - to, 1),
            ScheduleName::DualPipe if chunk == 1 => (p - 1 - to, 1),
            _ => (to % p, to / p),
        };
        Some((stage as u16, chunk as u16))
    }

    /// Most microbatches (each on one chunk) whose activations a stage stores at once, by chunk: at
    /// the first moment when all its chunks together store the most.
    ///
    /// A microbatch is stored from the start of its forward to the end of its whole backward, or of
    /// the weights' part where that runs apart.
    ///
    /// # Errors
    /// As [`PlannedShape::passes`].
    pub fn stored(&self, stage: u16) -> Result<Vec<u32>, GraphError> {
        let one = Stored { until_input: 1.0, until_weights: 1.0 };
        let peak = peak(&self.passes(stage)?, &vec![one; usize::from(self.chunks)]);
        Ok(peak.live.iter().map(|[whole, waiting]| whole + waiting).collect())
    }
}

/// Chunks of a stage where the schedule fixes them.
fn fixed_chunks(schedule: ScheduleName) -> Option<u16> {
    match schedule {
        ScheduleName::InterleavedOneFOneB => None,
        ScheduleName::ZbV | ScheduleName::DualPipe => Some(2),
        _ => Some(1),
    }
}
