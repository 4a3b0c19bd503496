//! Pipeline schedules as graphs, without a trace.
//!
//! A schedule's graph has the operation kinds and dependency rules of the trace format, so that
//! the table it gives with [`crate::to_op_table`] is rebuilt by [`crate::build_reference`] into
//! the same graph.

use prism_model::{Direction, OpKind};
use serde::{Deserialize, Serialize};

use crate::reference::chain;
use crate::{GraphError, Op, OpId, ReplicaSync, StepGraph, StepGraphBuilder};

/// In which order a stage runs its forward and backward passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[non_exhaustive]
pub enum ScheduleKind {
    /// All forward passes, then all backward passes.
    #[serde(rename = "gpipe")]
    GPipe,
    /// One forward, one backward, after a warm-up of `stages - 1 - stage` forward passes
    /// (`PipeDream`-flush).
    #[serde(rename = "1f1b")]
    OneFOneB,
    /// The same over several model chunks per stage (Megatron's interleaved schedule).
    #[serde(rename = "interleaved-1f1b")]
    InterleavedOneFOneB,
}

/// The shape of a training step's pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Schedule {
    /// Order of the passes.
    pub kind: ScheduleKind,
    /// Data-parallel replicas.
    pub replicas: u32,
    /// Pipeline stages.
    pub stages: u16,
    /// Model chunks per stage: 1 unless interleaved.
    #[serde(default = "one_chunk")]
    pub chunks: u16,
    /// Microbatches per replica and step.
    pub microbatches: u32,
    /// Whether gradients are reduced chunk by chunk while backward passes still run.
    #[serde(default)]
    pub overlap_grad_reduce: bool,
}

const fn one_chunk() -> u16 {
    1
}

/// One pass of one microbatch through one model chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pass {
    /// Forward or backward.
    pub direction: Direction,
    /// Model chunk within the stage.
    pub chunk: u16,
    /// Microbatch.
    pub microbatch: u32,
}

impl Schedule {
    /// One replica, one chunk, no overlap.
    pub fn new(kind: ScheduleKind, stages: u16, microbatches: u32) -> Schedule {
        Schedule { kind, replicas: 1, stages, chunks: 1, microbatches, overlap_grad_reduce: false }
    }

    /// Checks that the shape is possible.
    ///
    /// # Errors
    /// [`GraphError::Schedule`] names the rule that is broken.
    pub fn validate(&self) -> Result<(), GraphError> {
        let interleaved = self.kind == ScheduleKind::InterleavedOneFOneB;
        let ops = u64::from(self.stages) * u64::from(self.chunks) * u64::from(self.microbatches);
        let rules = [
            (self.replicas > 0, "replicas must be positive"),
            (self.stages > 0, "stages must be positive"),
            (self.chunks > 0, "chunks must be positive"),
            (i16::try_from(self.chunks).is_ok(), "chunks must be at most 32767"),
            (self.microbatches > 0, "microbatches must be positive"),
            (ops <= 1 << 26, "stages x chunks x microbatches must be at most 2^26"),
            (interleaved || self.chunks == 1, "only interleaved 1F1B has more than one chunk"),
            (
                !interleaved
                    || self.chunks == 1
                    || self.stages == 0
                    || self.microbatches.is_multiple_of(u32::from(self.stages)),
                "interleaved 1F1B needs a multiple of `stages` microbatches",
            ),
        ];
        match rules.iter().find(|(holds, _)| !holds) {
            None => Ok(()),
            Some((_, rule)) => Err(GraphError::Schedule { rule, got: format!("{self:?}") }),
        }
    }

    /// The order in which a stage runs its passes.
    ///
    /// # Errors
    /// As [`Schedule::validate`], and if there is no such stage.
    pub fn passes(&self, stage: u16) -> Result<Vec<Pass>, GraphError> {
        self.validate()?;
        if stage >= self.stages {
            let rule = "the stage must be below `stages`";
            return Err(GraphError::Schedule { rule, got: format!("stage {stage} of {self:?}") });
        }
        let total = self.microbatches * u32::from(self.chunks);
        let warm_up = self.warm_up(stage).min(total);
        let forward = |k| self.pass(Direction::Forward, k);
        let backward = |k| self.pass(Direction::Backward, k);
        let mut passes: Vec<Pass> = (0..warm_up).map(forward).collect();
        for k in warm_up..total {
            passes.push(forward(k));
            passes.push(backward(k - warm_up));
        }
        passes.extend((total - warm_up..total).map(backward));
        Ok(passes)
    }

    /// Forward passes before the first backward, beyond the one just before it.
    fn warm_up(&self, stage: u16) -> u32 {
        let after = u32::from(self.stages - 1 - stage);
        match self.kind {
            ScheduleKind::GPipe => self.microbatches * u32::from(self.chunks),
            ScheduleKind::InterleavedOneFOneB if self.chunks > 1 => {
                2 * after + u32::from(self.chunks - 1) * u32::from(self.stages)
            }
            ScheduleKind::OneFOneB | ScheduleKind::InterleavedOneFOneB => after,
        }
    }

    /// The k-th pass of a direction on any stage: groups of `stages` microbatches go through one
    /// chunk after the other.
    fn pass(&self, direction: Direction, k: u32) -> Pass {
        if self.chunks == 1 {
            return Pass { direction, chunk: 0, microbatch: k };
        }
        let (stages, chunks) = (u32::from(self.stages), u32::from(self.chunks));
        let (round, within) = (k / (stages * chunks), k % (stages * chunks));
        let chunk = (within / stages) as u16;
        let chunk = match direction {
            Direction::Forward => chunk,
            Direction::Backward => self.chunks - 1 - chunk,
        };
        Pass { direction, chunk, microbatch: round * stages + within % stages }
    }

    /// The step's graph.
    ///
    /// Each stage has: params-all-gather by chunk, its passes with their sends and receives, gc,
    /// layernorm-grads-all-reduce, on the first and last stage embedding-grads-all-reduce,
    /// grads-reduce-scatter by chunk, optimizer-clip-main-grad and optimizer. With
    /// `overlap_grad_reduce` the scatters follow their chunk's last backward and
    /// separate-grads-all-reduce follows the embedding's. One replica has no gathers and scatters.
    /// With several chunks each pass has its receive and send, also where there is nobody to talk
    /// to, as recorded traces have.
    ///
    /// # Errors
    /// As [`Schedule::validate`].
    pub fn graph(&self) -> Result<StepGraph, GraphError> {
        self.validate()?;
        let mut building =
            Building { shape: self, builder: StepGraphBuilder::new(self.stages, self.replicas) };
        for stage in 0..self.stages {
            let passes = self.passes(stage)?;
            let computes = building.computes(stage, &passes);
            building.data_parallel(stage, &passes, &computes);
            building.tail(stage, &computes);
        }
        building.p2p_groups();
        building.across_stages(OpKind::EmbeddingGradsAllReduce, ReplicaSync::None);
        building.across_stages(OpKind::OptimizerClipMainGrad, ReplicaSync::All);
        building.builder.build()
    }
}

/// A graph under construction.
struct Building<'a> {
    shape: &'a Schedule,
    builder: StepGraphBuilder,
}

impl Building<'_> {
    fn op(&mut self, kind: OpKind, stage: u16, seq: u32, chunk: i16, microbatch: i32) -> OpId {
        self.builder.op(Op { kind, stage, chunk, microbatch, seq })
    }

    /// Computes in order with their sends and receives; returns the computes.
    fn computes(&mut self, stage: u16, passes: &[Pass]) -> Vec<OpId> {
        let mut computes = Vec::with_capacity(passes.len());
        let mut counts = [0_u32; 2];
        let mut previous: [Option<[Option<OpId>; 3]>; 2] = [None, None];
        for pass in passes {
            let d = usize::from(pass.direction == Direction::Backward);
            let seq = counts[d];
            counts[d] += 1;
            let [compute_kind, send_kind, recv_kind] = kinds(pass.direction);
            let (chunk, microbatch) = (pass.chunk as i16, pass.microbatch as i32);
            let compute = self.op(compute_kind, stage, seq, chunk, microbatch);
            let recv = self.records(recv_kind, stage).then(|| {
                let recv = self.op(recv_kind, stage, seq, -1, -1);
                self.builder.dep(recv, compute);
                recv
            });
            let send = self.records(send_kind, stage).then(|| {
                let send = self.op(send_kind, stage, seq, -1, -1);
                self.builder.dep(compute, send);
                send
            });
            if let Some([last_recv, last_send, last_compute]) = previous[d] {
                let waits = [(last_recv, recv), (last_send, send), (last_compute, recv)];
                for (before, after) in waits {
                    if let (Some(before), Some(after)) = (before, after) {
                        self.builder.dep(before, after);
                    }
                }
            }
            previous[d] = Some([recv, send, Some(compute)]);
            computes.push(compute);
        }
        chain(&mut self.builder, &computes);
        let first = passes.iter().position(|p| p.direction == Direction::Backward);
        if let Some(before) = first.and_then(|f| f.checked_sub(2)) {
            for kind in [OpKind::BackwardRecv, OpKind::BackwardSend] {
                if let Some(op) = self.builder.find(kind, 0, stage) {
                    self.builder.dep(computes[before], op);
                }
            }
        }
        computes
    }

    /// Whether the stage has operations of this kind.
    fn records(&self, kind: OpKind, stage: u16) -> bool {
        let after = matches!(kind, OpKind::ForwardSend | OpKind::BackwardRecv);
        let end = if after { self.shape.stages - 1 } else { 0 };
        self.shape.chunks > 1 || stage != end
    }

    /// Gathers, and scatters where they overlap backward passes or not, in one chain.
    fn data_parallel(&mut self, stage: u16, passes: &[Pass], computes: &[OpId]) {
        if self.shape.replicas == 1 {
            return;
        }
        let chunks = self.shape.chunks;
        let mut all = Vec::with_capacity(2 * chunks as usize);
        for chunk in 0..chunks {
            let gather =
                self.op(OpKind::ParamsAllGather, stage, u32::from(chunk), chunk as i16, -1);
            let user =
                passes.iter().position(|p| p.direction == Direction::Forward && p.chunk == chunk);
            if let Some(at) = user {
                self.builder.dep(gather, computes[at]);
            }
            all.push(gather);
        }
        for seq in 0..chunks {
            let chunk = chunks - 1 - seq;
            let scatter =
                self.op(OpKind::GradsReduceScatter, stage, u32::from(seq), chunk as i16, -1);
            let maker = passes
                .iter()
                .rposition(|p| p.direction == Direction::Backward && p.chunk == chunk)
                .filter(|_| self.shape.overlap_grad_reduce);
            if let Some(at) = maker {
                self.builder.dep(computes[at], scatter);
            }
            all.push(scatter);
        }
        chain(&mut self.builder, &all);
        for op in all {
            self.builder.group(vec![op], ReplicaSync::All);
        }
    }

    /// From the last compute to the optimizer.
    fn tail(&mut self, stage: u16, computes: &[OpId]) {
        let sharded = self.shape.replicas > 1;
        let overlap = self.shape.overlap_grad_reduce;
        let scatters: Vec<OpId> = (0..u32::from(self.shape.chunks))
            .filter_map(|seq| self.builder.find(OpKind::GradsReduceScatter, seq, stage))
            .collect();
        let gc = self.op(OpKind::Gc, stage, 0, -1, 0);
        let layernorm = self.op(OpKind::LayernormGradsAllReduce, stage, 0, -1, -1);
        let mut ops: Vec<OpId> = computes.last().copied().into_iter().collect();
        ops.extend([gc, layernorm]);
        if stage == 0 || stage + 1 == self.shape.stages {
            ops.push(self.op(OpKind::EmbeddingGradsAllReduce, stage, 0, -1, -1));
        }
        if sharded && overlap {
            if let Some(&last) = scatters.last() {
                self.builder.dep(last, layernorm);
            }
            let separate = self.op(OpKind::SeparateGradsAllReduce, stage, 0, -1, -1);
            self.builder.group(vec![separate], ReplicaSync::All);
            ops.push(separate);
        } else {
            ops.extend(scatters);
        }
        ops.push(self.op(OpKind::OptimizerClipMainGrad, stage, 0, -1, -1));
        let optimizer = self.op(OpKind::Optimizer, stage, 0, -1, -1);
        ops.push(optimizer);
        chain(&mut self.builder, &ops);
        self.builder.sink(optimizer);
    }

    /// Matches sends with receives; those with nobody to talk to stay alone.
    fn p2p_groups(&mut self) {
        let (stages, chunks) = (self.shape.stages, self.shape.chunks);
        let total = self.shape.microbatches * u32::from(chunks);
        for direction in [Direction::Forward, Direction::Backward] {
            let [_, send_kind, recv_kind] = kinds(direction);
            for stage in 0..stages {
                let (peer, silent) = match direction {
                    Direction::Forward => ((stage + 1) % stages, chunks - 1),
                    Direction::Backward => ((stage + stages - 1) % stages, 0),
                };
                // Between the pipeline's two ends data also moves on to another chunk.
                let wraps = match direction {
                    Direction::Forward => stage + 1 == stages,
                    Direction::Backward => stage == 0,
                };
                let alone = |kind, k| {
                    let pass = self.shape.pass(direction, k);
                    wraps
                        && pass.chunk
                            == if kind == send_kind { silent } else { chunks - 1 - silent }
                };
                let talking = |kind, stage| {
                    (0..total).filter(move |&k| !alone(kind, k)).map(move |k| (kind, k, stage))
                };
                let pairs: Vec<_> =
                    talking(send_kind, stage).zip(talking(recv_kind, peer)).collect();
                let singles: Vec<_> = (0..total)
                    .filter(|&k| alone(send_kind, k))
                    .map(|k| (send_kind, k, stage))
                    .chain(
                        (0..total).filter(|&k| alone(recv_kind, k)).map(|k| (recv_kind, k, peer)),
                    )
                    .collect();
                for (send, recv) in pairs {
                    self.group_of_keys(&[send, recv]);
                }
                for single in singles {
                    self.group_of_keys(&[single]);
                }
            }
        }
    }

    /// A group of the operations that exist among these keys.
    fn group_of_keys(&mut self, keys: &[(OpKind, u32, u16)]) {
        let members: Vec<OpId> = keys
            .iter()
            .filter_map(|&(kind, seq, stage)| self.builder.find(kind, seq, stage))
            .collect();
        if !members.is_empty() {
            self.builder.group(members, ReplicaSync::None);
        }
    }

    fn across_stages(&mut self, kind: OpKind, sync: ReplicaSync) {
        let members: Vec<OpId> =
            (0..self.shape.stages).filter_map(|stage| self.builder.find(kind, 0, stage)).collect();
        self.builder.group(members, sync);
    }
}

/// Compute, send and receive of a direction.
fn kinds(direction: Direction) -> [OpKind; 3] {
    match direction {
        Direction::Forward => [OpKind::ForwardCompute, OpKind::ForwardSend, OpKind::ForwardRecv],
        Direction::Backward => {
            [OpKind::BackwardCompute, OpKind::BackwardSend, OpKind::BackwardRecv]
        }
    }
}
