//! From orders to a graph.

use prism_job::ScheduleName;
use prism_model::{Direction, OpKind};

use super::{PassKind, PlannedPass, PlannedShape};
use crate::reference::chain;
use crate::{GraphError, Op, OpId, ReplicaSync, StepGraph, StepGraphBuilder};

/// A planned step's graph, and what each of its operations stands for.
///
/// | kind | waits for | numbered by |
/// |---|---|---|
/// | params-all-gather | the chunk gathered before | chunk |
/// | forward-, backward-compute, backward-weight | the pass before on its stage; its receive; gathers | `microbatch * chunks + chunk` |
/// | sends | their compute, the send before over the same link | as their compute |
/// | receives | nothing: they are posted early, and start with their send | as their compute |
/// | grads-reduce-scatter | the chunk's last pass (overlapped) or the stage's last; the reduction before | chunk |
/// | layernorm-, embedding-grads-all-reduce, optimizer-clip-main-grad, optimizer | one after the other, after all of the above | 0 |
///
/// Numbers are names, not an order, so that they stay when stages or microbatches are added.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedGraph {
    /// The graph. Its durations are the caller's: a whole backward, an input part and a weights'
    /// part take different times, see [`PlannedGraph::pass`]; a send and its receive each take the
    /// transfer.
    pub graph: StepGraph,
    /// What it was built from.
    pub shape: PlannedShape,
    /// Overlapped blocks, as (forward, backward). A block of duration d is given as the forward's
    /// own time f and d - f for the backward; both directions' transfers start at the block's end.
    pub pairs: Vec<(OpId, OpId)>,
    passes: Vec<Option<PlannedPass>>,
}

impl PlannedGraph {
    /// The pass that an operation runs; `None` unless it is a compute of a microbatch.
    pub fn pass(&self, op: OpId) -> Option<PlannedPass> {
        self.passes.get(op.0 as usize).copied().flatten()
    }

    /// The piece of the model, in model order, that an operation belongs to; `None` where it belongs
    /// to its whole stage.
    pub fn piece(&self, op: OpId) -> Option<u32> {
        let op = self.graph.ops().get(op.0 as usize)?;
        let chunk = u16::try_from(op.chunk).ok()?;
        Some(self.shape.piece(op.stage, chunk))
    }

    /// Where a send or receive leads: the stage at the other end; `None` for every other operation.
    pub fn peer_stage(&self, op: OpId) -> Option<u16> {
        let op = self.graph.ops().get(op.0 as usize)?;
        let chunk = u16::try_from(op.chunk).ok()?;
        let towards = match (op.kind.direction()?, op.kind.is_send(), op.kind.is_recv()) {
            (direction, true, _) => direction,
            (Direction::Forward, _, true) => Direction::Backward,
            (Direction::Backward, _, true) => Direction::Forward,
            _ => return None,
        };
        Some(self.shape.hop(op.stage, chunk, towards)?.0)
    }
}

impl PlannedShape {
    /// The step's graph.
    ///
    /// ```
    /// use prism_graph::{PassKind, PlannedShape, evaluate};
    /// use prism_job::ScheduleName;
    ///
    /// // Forward, input part and weights' part of one second each: a bubble of 3 s.
    /// let planned = PlannedShape::new(ScheduleName::ZbH1, 4, 8).graph()?;
    /// let work: Vec<f64> = planned
    ///     .graph
    ///     .iter()
    ///     .map(|(id, _)| if planned.pass(id).is_some() { 1.0 } else { 0.0 })
    ///     .collect();
    /// let times = evaluate(&planned.graph, 1, &work, None)?.step_times(&planned.graph);
    /// assert_eq!(times, [8.0 * 3.0 + 3.0]);
    /// # Ok::<(), prism_graph::GraphError>(())
    /// ```
    ///
    /// # Errors
    /// As [`PlannedShape::validate`].
    pub fn graph(&self) -> Result<PlannedGraph, GraphError> {
        self.validate()?;
        let mut building = Building {
            shape: self,
            builder: StepGraphBuilder::new(self.stages, self.replicas),
            passes: Vec::new(),
            pairs: Vec::new(),
            reduces: Vec::new(),
        };
        let mut ends = Vec::with_capacity(usize::from(self.stages));
        for stage in 0..self.stages {
            let passes = self.passes(stage)?;
            let computes = building.computes(stage, &passes);
            building.gathers(stage, &passes, &computes);
            let mut end: Vec<OpId> = computes.last().copied().into_iter().collect();
            end.extend(building.reduces(stage, &passes, &computes));
            ends.push(end);
        }
        building.hops();
        building.group_reduces();
        for (stage, end) in (0..self.stages).zip(ends) {
            building.tail(stage, &end);
        }
        building.across_stages(OpKind::EmbeddingGradsAllReduce, ReplicaSync::None);
        building.across_stages(OpKind::OptimizerClipMainGrad, ReplicaSync::All);
        let Building { builder, mut passes, pairs, .. } = building;
        let graph = builder.build()?;
        passes.resize(graph.ops().len(), None);
        Ok(PlannedGraph { graph, shape: *self, pairs, passes })
    }

    fn seq(&self, chunk: u16, microbatch: u32) -> u32 {
        microbatch * u32::from(self.chunks) + u32::from(chunk)
    }

    /// Whether gradients of a chunk are reduced over more than itself.
    fn reduces(&self) -> bool {
        self.data_parallel || self.schedule == ScheduleName::DualPipe
    }
}

/// A graph under construction.
struct Building<'a> {
    shape: &'a PlannedShape,
    builder: StepGraphBuilder,
    passes: Vec<Option<PlannedPass>>,
    pairs: Vec<(OpId, OpId)>,
    /// Reductions, by stage and chunk.
    reduces: Vec<(u16, u16, OpId)>,
}

impl Building<'_> {
    fn op(
        &mut self,
        kind: OpKind,
        stage: u16,
        seq: u32,
        chunk: Option<u16>,
        mb: Option<u32>,
    ) -> OpId {
        let chunk = chunk.map_or(-1, |c| c as i16);
        let microbatch = mb.map_or(-1, |m| m as i32);
        self.builder.op(Op { kind, stage, chunk, microbatch, seq })
    }

    /// Computes in order, with their sends and receives. Returns the computes.
    fn computes(&mut self, stage: u16, passes: &[PlannedPass]) -> Vec<OpId> {
        let computes: Vec<OpId> = passes
            .iter()
            .map(|pass| {
                let seq = self.shape.seq(pass.chunk, pass.microbatch);
                let (chunk, mb) = (Some(pass.chunk), Some(pass.microbatch));
                let id = self.op(pass.kind.op_kind(), stage, seq, chunk, mb);
                self.passes.resize(id.0 as usize, None);
                self.passes.push(Some(*pass));
                id
            })
            .collect();
        chain(&mut self.builder, &computes);
        // The last send over each link, by direction and peer.
        let mut links: Vec<((Direction, u16), OpId)> = Vec::new();
        let mut at = 0;
        while at < passes.len() {
            let block = at..at + if passes[at].paired { 2 } else { 1 };
            if let [forward, backward] = computes[block.clone()] {
                self.pairs.push((forward, backward));
            }
            for i in block.clone() {
                self.transfers(stage, passes[i], &computes, block.clone(), &mut links);
            }
            at = block.end;
        }
        computes
    }

    /// Receive and send of one pass of a block of passes: the block waits for the receive, the send
    /// for the block's end.
    fn transfers(
        &mut self,
        stage: u16,
        pass: PlannedPass,
        computes: &[OpId],
        block: std::ops::Range<usize>,
        links: &mut Vec<((Direction, u16), OpId)>,
    ) {
        let (from, to, [send_kind, recv_kind]) = match pass.kind {
            PassKind::Forward => (
                Direction::Backward,
                Direction::Forward,
                [OpKind::ForwardSend, OpKind::ForwardRecv],
            ),
            PassKind::Backward | PassKind::BackwardInput => (
                Direction::Forward,
                Direction::Backward,
                [OpKind::BackwardSend, OpKind::BackwardRecv],
            ),
            PassKind::BackwardWeight => return,
        };
        let seq = self.shape.seq(pass.chunk, pass.microbatch);
        let (chunk, mb) = (Some(pass.chunk), Some(pass.microbatch));
        let elsewhere =
            |hop: Option<(u16, u16)>| hop.map(|(peer, _)| peer).filter(|&peer| peer != stage);
        if elsewhere(self.shape.hop(stage, pass.chunk, from)).is_some() {
            let recv = self.op(recv_kind, stage, seq, chunk, mb);
            self.builder.dep(recv, computes[block.start]);
        }
        if let Some(peer) = elsewhere(self.shape.hop(stage, pass.chunk, to)) {
            let send = self.op(send_kind, stage, seq, chunk, mb);
            self.builder.dep(computes[block.end - 1], send);
            match links.iter_mut().find(|(link, _)| *link == (to, peer)) {
                Some((_, last)) => self.builder.dep(std::mem::replace(last, send), send),
                None => links.push(((to, peer), send)),
            }
            if let Some(&next) = computes.get(block.end).filter(|_| !self.shape.overlap.p2p) {
                self.builder.dep(send, next);
            }
        }
    }

    /// Joins every send with its receive. Where a hop stays on its stage, the order of passes is all
    /// there is to it.
    fn hops(&mut self) {
        let shape = self.shape;
        let kinds = [
            (Direction::Forward, OpKind::ForwardSend, OpKind::ForwardRecv),
            (Direction::Backward, OpKind::BackwardSend, OpKind::BackwardRecv),
        ];
        for (direction, send_kind, recv_kind) in kinds {
            for stage in 0..shape.stages {
                for chunk in 0..shape.chunks {
                    let Some((peer, to)) = shape.hop(stage, chunk, direction) else { continue };
                    for microbatch in 0..shape.microbatches {
                        let find = |kind, chunk, stage| {
                            self.builder.find(kind, shape.seq(chunk, microbatch), stage)
                        };
                        let ends = (find(send_kind, chunk, stage), find(recv_kind, to, peer));
                        if let (Some(send), Some(recv)) = ends {
                            self.builder.group(vec![send, recv], ReplicaSync::None);
                        }
                    }
                }
            }
        }
    }

    /// Gathers of parameters, in the order in which the chunks are needed.
    fn gathers(&mut self, stage: u16, passes: &[PlannedPass], computes: &[OpId]) {
        if !self.shape.data_parallel || self.shape.all_reduce_grads {
            return;
        }
        let mut firsts: Vec<(usize, u16)> = (0..self.shape.chunks)
            .filter_map(|chunk| Some((passes.iter().position(|p| p.chunk == chunk)?, chunk)))
            .collect();
        firsts.sort_unstable();
        let mut gathers = Vec::with_capacity(firsts.len());
        for (first, chunk) in firsts {
            let gather =
                self.op(OpKind::ParamsAllGather, stage, u32::from(chunk), Some(chunk), None);
            let user = if self.shape.overlap.param_gather { first } else { 0 };
            self.builder.dep(gather, computes[user]);
            self.builder.group(vec![gather], ReplicaSync::All);
            gathers.push(gather);
        }
        chain(&mut self.builder, &gathers);
    }

    /// Reductions of gradients, in the order in which the chunks are done.
    fn reduces(&mut self, stage: u16, passes: &[PlannedPass], computes: &[OpId]) -> Vec<OpId> {
        if !self.shape.reduces() {
            return Vec::new();
        }
        let mut lasts: Vec<(usize, u16)> = (0..self.shape.chunks)
            .filter_map(|chunk| Some((passes.iter().rposition(|p| p.chunk == chunk)?, chunk)))
            .collect();
        lasts.sort_unstable();
        let mut reduces = Vec::with_capacity(lasts.len());
        for (last, chunk) in lasts {
            let reduce =
                self.op(OpKind::GradsReduceScatter, stage, u32::from(chunk), Some(chunk), None);
            let maker = if self.shape.overlap.grad_reduce { last } else { computes.len() - 1 };
            self.builder.dep(computes[maker], reduce);
            self.reduces.push((stage, chunk, reduce));
            reduces.push(reduce);
        }
        chain(&mut self.builder, &reduces);
        reduces
    }

    /// Each chunk's reduction waits for the replicas, and for the other stage that holds a copy of
    /// its piece.
    fn group_reduces(&mut self) {
        let reduces = std::mem::take(&mut self.reduces);
        let sync = if self.shape.data_parallel { ReplicaSync::All } else { ReplicaSync::None };
        let mut of_piece: Vec<Vec<OpId>> = vec![Vec::new(); self.shape.pieces() as usize];
        for (stage, chunk, reduce) in reduces {
            of_piece[self.shape.piece(stage, chunk) as usize].push(reduce);
        }
        for members in of_piece.into_iter().filter(|members| !members.is_empty()) {
            self.builder.group(members, sync);
        }
    }

    /// From the last compute and reduction to the optimizer.
    fn tail(&mut self, stage: u16, end: &[OpId]) {
        let shape = self.shape;
        let mut ops = Vec::new();
        if shape.norm_all_reduce {
            ops.push(self.op(OpKind::LayernormGradsAllReduce, stage, 0, None, None));
        }
        // Under ZB-V the first stage holds both ends of the model.
        let apart = shape.schedule != ScheduleName::ZbV && shape.stages > 1;
        if shape.tied_embedding && apart && (stage == 0 || stage + 1 == shape.stages) {
            ops.push(self.op(OpKind::EmbeddingGradsAllReduce, stage, 0, None, None));
        }
        ops.push(self.op(OpKind::OptimizerClipMainGrad, stage, 0, None, None));
        let optimizer = self.op(OpKind::Optimizer, stage, 0, None, None);
        ops.push(optimizer);
        for &before in end {
            self.builder.dep(before, ops[0]);
        }
        chain(&mut self.builder, &ops);
        self.builder.sink(optimizer);
    }

    fn across_stages(&mut self, kind: OpKind, sync: ReplicaSync) {
        let members: Vec<OpId> =
            (0..self.shape.stages).filter_map(|stage| self.builder.find(kind, 0, stage)).collect();
        if !members.is_empty() {
            self.builder.group(members, sync);
        }
    }
}
