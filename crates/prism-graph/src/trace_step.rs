//! The one recorded step that a graph is built from, by stage.

use prism_io::OpTable;
use prism_model::{Direction, OpKind};

use crate::{GraphError, Op, OpId, StepGraphBuilder};

/// One recorded operation.
#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    pub(crate) op: Op,
    pub(crate) global_chunk: i32,
    pub(crate) start_s: f64,
    pub(crate) end_s: f64,
}

/// Replica 0 of a table's first step: every other step and replica has the same operations.
#[derive(Clone, Debug)]
pub(crate) struct TraceStep {
    /// Ascending by (stage, kind, sequence number): the id of an operation is its index.
    pub(crate) ops: Vec<Recorded>,
    pub(crate) step: i64,
    pub(crate) stages: u16,
    pub(crate) replicas: u32,
    /// Model chunks per stage.
    pub(crate) chunks: i32,
    /// Whether gradients are reduced while the backward passes run.
    pub(crate) overlap: bool,
    /// Whether parameters and gradients are split over more than one rank.
    pub(crate) sharded: bool,
    /// Operations of each stage.
    ranges: Vec<std::ops::Range<usize>>,
}

impl TraceStep {
    pub(crate) fn from_table(table: &OpTable) -> Result<TraceStep, GraphError> {
        let (Some(&step), Some(&last_dp), Some(&last_stage)) =
            (table.step.iter().min(), table.dp.iter().max(), table.stage.iter().max())
        else {
            return Err(GraphError::Empty);
        };
        let mut ops: Vec<Recorded> = table
            .rows()
            .filter(|r| r.step == step && r.dp == 0)
            .map(|r| Recorded {
                op: Op {
                    kind: r.kind,
                    stage: r.stage,
                    chunk: r.chunk,
                    microbatch: r.microbatch,
                    seq: r.seq,
                },
                global_chunk: r.global_chunk,
                start_s: r.start_s,
                end_s: r.end_s,
            })
            .collect();
        ops.sort_by_key(|r| crate::step_graph::key(&r.op));
        let stages = last_stage.saturating_add(1);
        let replicas = last_dp.saturating_add(1);
        let computes = ops.iter().filter(|r| r.op.kind.is_microbatch_compute());
        let chunks = computes.map(|r| i32::from(r.op.chunk) + 1).max().unwrap_or(1).max(1);
        let ranges = (0..stages)
            .map(|s| {
                ops.partition_point(|r| r.op.stage < s)..ops.partition_point(|r| r.op.stage <= s)
            })
            .collect();
        Ok(TraceStep {
            step,
            stages,
            replicas,
            chunks,
            overlap: table.kind.contains(&OpKind::SeparateGradsAllReduce),
            sharded: u64::from(replicas) * u64::from(table.meta.dsp_size) > 1,
            ranges,
            ops,
        })
    }

    /// A builder with all operations, their starts as hints, and the optimizers as sinks.
    pub(crate) fn builder(&self) -> StepGraphBuilder {
        let mut builder = StepGraphBuilder::new(self.stages, self.replicas);
        for recorded in &self.ops {
            let id = builder.op(recorded.op.clone());
            builder.hint(id, recorded.start_s);
            if recorded.op.kind == OpKind::Optimizer {
                builder.sink(id);
            }
        }
        builder
    }

    pub(crate) fn get(&self, id: OpId) -> &Recorded {
        &self.ops[id.0 as usize]
    }

    /// All operations of a stage, ascending by (kind, sequence number).
    pub(crate) fn on_stage(&self, stage: u16) -> impl Iterator<Item = OpId> + '_ {
        self.ranges[stage as usize].clone().map(|i| OpId(i as u32))
    }

    /// The stage's operations of one kind, in order of sequence number.
    pub(crate) fn of_kind(&self, stage: u16, kind: OpKind) -> Vec<OpId> {
        self.on_stage(stage).filter(|&id| self.get(id).op.kind == kind).collect()
    }

    /// The stage's operations of these kinds by (start, sequence number, name).
    pub(crate) fn in_order(&self, stage: u16, kinds: &[OpKind]) -> Vec<OpId> {
        let mut ids: Vec<OpId> =
            self.on_stage(stage).filter(|&id| kinds.contains(&self.get(id).op.kind)).collect();
        ids.sort_by(|&a, &b| {
            let (a, b) = (self.get(a), self.get(b));
            let name = |r: &Recorded| r.op.kind.as_str();
            a.start_s
                .total_cmp(&b.start_s)
                .then(a.op.seq.cmp(&b.op.seq))
                .then_with(|| name(a).cmp(name(b)))
        });
        ids
    }

    /// The stage's computes of both directions in order; an error if a direction has none.
    pub(crate) fn computes(&self, stage: u16) -> Result<Vec<OpId>, GraphError> {
        for kind in [OpKind::ForwardCompute, OpKind::BackwardCompute] {
            if self.of_kind(stage, kind).is_empty() {
                return Err(GraphError::NoCompute { stage, kind, step: self.step });
            }
        }
        Ok(self.in_order(stage, &[OpKind::ForwardCompute, OpKind::BackwardCompute]))
    }

    /// Position in the whole model of the chunk that a compute belongs to.
    pub(crate) fn model_chunk(&self, compute: OpId) -> i32 {
        let recorded = self.get(compute);
        if recorded.global_chunk >= 0 {
            recorded.global_chunk
        } else {
            i32::from(recorded.op.chunk.max(0)) * i32::from(self.stages)
                + i32::from(recorded.op.stage)
        }
    }
}

/// The compute of a direction.
pub(crate) fn compute_of(direction: Direction) -> OpKind {
    match direction {
        Direction::Forward => OpKind::ForwardCompute,
        Direction::Backward => OpKind::BackwardCompute,
    }
}
