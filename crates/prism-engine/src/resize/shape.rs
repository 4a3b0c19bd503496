//! The graph at another number of stages or microbatches, and which recorded operation each of its
//! operations is like.

use std::collections::{BTreeMap, BTreeSet};

use prism_graph::{Op, OpId, ReplicaSync, StepGraph, StepGraphBuilder};
use prism_model::{Direction, ImpliedDependency, OpKind};

use super::ResizeError;
use super::pipeline::{Pipeline, in_pipeline};

/// A resized graph, without implied dependencies.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) graph: StepGraph,
    /// The recorded operation that each operation is like.
    pub(super) template: Vec<OpId>,
    pub(super) map: Map,
}

/// Where the parts of a resized job come from.
#[derive(Clone, Debug)]
pub(super) struct Map {
    pub(super) stages: (u16, u16),
    pub(super) microbatches: (u32, u32),
}

impl Map {
    /// The recorded stage that a new stage is like: the ends keep theirs, the stages between are
    /// spread over the recorded ones between.
    pub(super) fn stage(&self, new: u16) -> u16 {
        spread(new, self.stages.1, self.stages.0)
    }

    /// The recorded hop (by its first stage) that a new hop is like.
    fn hop(&self, new: u16) -> u16 {
        let (old, now) = (self.stages.0.saturating_sub(1), self.stages.1.saturating_sub(1));
        spread(new, now.max(1), old.max(1))
    }

    /// The recorded position that a new microbatch position is like: warm-up and cool-down keep
    /// theirs, the middle is repeated or cut short.
    pub(super) fn position(&self, new: u32) -> u32 {
        let (old, now) = self.microbatches;
        let least = old.min(now);
        let head = least / 2;
        let tail = least - head;
        if new < head {
            new
        } else if new + tail >= now {
            old - (now - new)
        } else {
            let (from, length) = (old / 4, (old / 2).max(1));
            from + (new - head + head.saturating_sub(from)) % length
        }
    }

    /// Whether a new stage is the first of those that are like its recorded one.
    pub(super) fn copy(&self, new: u16) -> u16 {
        (0..new).filter(|&s| self.stage(s) == self.stage(new)).count() as u16
    }

    /// The new microbatch at the recorded distance from the nearer end of the step.
    fn as_far_from_end(&self, recorded: u32) -> Option<u32> {
        let (old, now) = self.microbatches;
        if recorded < old / 2 {
            return (recorded < now).then_some(recorded);
        }
        now.checked_sub(old - recorded)
    }

    /// The new stage that stands where a recorded one stood, seen from `near`, a recorded stage and
    /// its new one.
    fn stage_of(&self, recorded: u16, near: (u16, u16)) -> Option<u16> {
        let (old, now) = self.stages;
        if recorded == 0 {
            return Some(0);
        }
        if recorded + 1 == old {
            return now.checked_sub(1);
        }
        let at = i32::from(near.1) + i32::from(recorded) - i32::from(near.0);
        u16::try_from(at).ok().filter(|s| *s < now)
    }
}

/// Ends to ends, what lies between evenly to what lies between.
fn spread(new: u16, now: u16, old: u16) -> u16 {
    if new == 0 || old <= 1 {
        0
    } else if now == old {
        new
    } else if new + 1 == now {
        old - 1
    } else if old == 2 {
        0
    } else {
        let (between, wanted) = (u32::from(old) - 2, u32::from(now) - 2);
        1 + ((u32::from(new) - 1) * between / wanted) as u16
    }
}

/// Builds the pipeline at its new size and hangs the other operations on it as they hang on the
/// recorded one.
pub(super) fn reshape(
    graph: &StepGraph,
    implied: &[ImpliedDependency],
    map: Map,
) -> Result<Shape, ResizeError> {
    let old = Pipeline::recognise(graph, implied).ok_or(ResizeError::Pipeline)?;
    let new = old.resized(map.stages.1, map.microbatches.1, |s| map.stage(s));
    let building = Building {
        graph,
        implied,
        new: &new,
        map: &map,
        old_passes: Passes::new(&old)?,
        new_passes: Passes::new(&new)?,
    };
    let (graph, template) = building.build()?;
    Ok(Shape { graph, template, map })
}

/// Passes by sequence number, and back, forward and backward.
struct Passes {
    by_seq: [Vec<(u16, u32)>; 2],
    seq: [BTreeMap<(u16, u32), u32>; 2],
}

impl Passes {
    fn new(pipeline: &Pipeline) -> Result<Passes, ResizeError> {
        let mut out = Passes { by_seq: [vec![], vec![]], seq: [BTreeMap::new(), BTreeMap::new()] };
        for pass in pipeline.schedule.passes(0)? {
            let d = usize::from(pass.direction == Direction::Backward);
            let key = (pass.chunk, pass.microbatch);
            out.seq[d].insert(key, out.by_seq[d].len() as u32);
            out.by_seq[d].push(key);
        }
        Ok(out)
    }

    fn pass(&self, direction: Direction, seq: u32) -> Option<(u16, u32)> {
        let d = usize::from(direction == Direction::Backward);
        self.by_seq[d].get(seq as usize).copied()
    }

    fn seq(&self, direction: Direction, chunk: u16, microbatch: u32) -> Option<u32> {
        let d = usize::from(direction == Direction::Backward);
        self.seq[d].get(&(chunk, microbatch)).copied()
    }
}

/// A new operation that is not part of the pipeline.
struct Other {
    new: OpId,
    like: OpId,
    stage: u16,
}

struct Building<'a> {
    graph: &'a StepGraph,
    implied: &'a [ImpliedDependency],
    new: &'a Pipeline,
    map: &'a Map,
    old_passes: Passes,
    new_passes: Passes,
}

impl Building<'_> {
    fn build(&self) -> Result<(StepGraph, Vec<OpId>), ResizeError> {
        let pipeline = self.new.graph()?;
        let stages = self.map.stages.1;
        let mut builder = StepGraphBuilder::new(stages, self.graph.replicas());
        let mut template = Vec::new();
        let mut of_pipeline = vec![None; pipeline.ops().len()];
        for (id, op) in pipeline.iter().filter(|(_, op)| in_pipeline(op.kind)) {
            of_pipeline[id.0 as usize] = Some(builder.op(op.clone()));
            template.push(self.like(op)?);
        }
        let mut others = Vec::new();
        for stage in 0..stages {
            let recorded = self.map.stage(stage);
            for (like, op) in self.graph.iter().filter(|(_, op)| !in_pipeline(op.kind)) {
                if op.stage == recorded {
                    let new = builder.op(Op { stage, ..op.clone() });
                    others.push(Other { new, like, stage });
                    template.push(like);
                }
            }
        }
        let kept = |id: OpId| of_pipeline[id.0 as usize];
        for (id, _) in pipeline.iter() {
            let Some(after) = kept(id) else { continue };
            pipeline.deps(id).iter().filter_map(|&b| kept(b)).for_each(|b| builder.dep(b, after));
        }
        for group in pipeline.groups() {
            let members: Vec<OpId> = group.members.iter().filter_map(|&m| kept(m)).collect();
            if !members.is_empty() {
                builder.group(members, ReplicaSync::None);
            }
        }
        self.other_deps(&mut builder, &pipeline, &of_pipeline, &others)?;
        self.other_groups(&mut builder, &others);
        let sinks = self.graph.sinks();
        for other in others.iter().filter(|o| sinks.contains(&o.like)) {
            builder.sink(other.new);
        }
        Ok((builder.build()?, template))
    }

    /// Dependencies on, and of, what is not part of the pipeline.
    fn other_deps(
        &self,
        builder: &mut StepGraphBuilder,
        pipeline: &StepGraph,
        of_pipeline: &[Option<OpId>],
        others: &[Other],
    ) -> Result<(), ResizeError> {
        let mut seen = BTreeSet::new();
        for (id, op) in pipeline.iter() {
            let Some(after) = of_pipeline[id.0 as usize] else { continue };
            let like = self.like(op)?;
            // Of several that are like one recorded operation, the first waits as it did.
            if !seen.insert((op.stage, like)) {
                continue;
            }
            let near = (self.graph.ops()[like.0 as usize].stage, op.stage);
            for before in self.recorded_deps(like) {
                let other = &self.graph.ops()[before.0 as usize];
                if !in_pipeline(other.kind) {
                    let stage = self.map.stage_of(other.stage, near);
                    let found = stage.and_then(|s| builder.find(other.kind, other.seq, s));
                    if let Some(before) = found {
                        builder.dep(before, after);
                    }
                }
            }
        }
        for other in others {
            let near = (self.graph.ops()[other.like.0 as usize].stage, other.stage);
            for before in self.recorded_deps(other.like) {
                let op = &self.graph.ops()[before.0 as usize];
                let place = self.map.stage_of(op.stage, near).zip(self.seq_from_end(op));
                let found = place.and_then(|(stage, seq)| builder.find(op.kind, seq, stage));
                if let Some(before) = found {
                    builder.dep(before, other.new);
                }
            }
        }
        Ok(())
    }

    /// Dependencies of a recorded operation without those that were found in the data.
    fn recorded_deps(&self, op: OpId) -> impl Iterator<Item = OpId> {
        let deps = self.graph.deps(op).iter().copied();
        deps.filter(move |b| !self.implied.iter().any(|d| d.op == op.0 && d.on == b.0))
    }

    /// New sequence number of what stands as far from the step's nearer end as `op`.
    fn seq_from_end(&self, op: &Op) -> Option<u32> {
        let Some(direction) = op.kind.direction() else { return Some(op.seq) };
        let (chunk, microbatch) = self.old_passes.pass(direction, op.seq)?;
        self.new_passes.seq(direction, chunk, self.map.as_far_from_end(microbatch)?)
    }

    /// The recorded operation that a new one of the pipeline is like.
    fn like(&self, op: &Op) -> Result<OpId, ResizeError> {
        let stage = if op.kind.is_p2p() && self.new.schedule.chunks == 1 {
            // The hop of the operation, and its side.
            let lower = matches!(op.kind, OpKind::ForwardSend | OpKind::BackwardRecv);
            let hop = if lower { op.stage } else { op.stage.saturating_sub(1) };
            self.map.hop(hop) + u16::from(!lower)
        } else {
            self.map.stage(op.stage)
        };
        let seq = op.kind.direction().and_then(|d| {
            let (chunk, microbatch) = self.new_passes.pass(d, op.seq)?;
            self.old_passes.seq(d, chunk, self.map.position(microbatch))
        });
        seq.and_then(|seq| self.graph.find(op.kind, seq, stage))
            .ok_or_else(|| ResizeError::NoTemplate { what: op.to_string() })
    }

    /// A group of one stays one on every stage; one across stages is one across the new stages.
    fn other_groups(&self, builder: &mut StepGraphBuilder, others: &[Other]) {
        for group in self.graph.groups() {
            let all: Vec<OpId> = group
                .members
                .iter()
                .flat_map(|&m| others.iter().filter(move |o| o.like == m).map(|o| o.new))
                .collect();
            if group.members.len() > 1 {
                if !all.is_empty() {
                    builder.group(all, group.sync);
                }
            } else {
                for one in all {
                    builder.group(vec![one], group.sync);
                }
            }
        }
    }
}

/// The implied dependencies of a resized graph: those of the recorded operations that its
/// operations are like, where the awaited operation can be told. Also how many could not.
pub(super) fn implied(
    graph: &StepGraph,
    shape: &Shape,
    recorded: &[ImpliedDependency],
) -> (Vec<ImpliedDependency>, usize) {
    let (mut out, mut lost) = (Vec::new(), 0);
    let same_stages = shape.map.stages.0 == shape.map.stages.1;
    for (id, op) in shape.graph.iter() {
        let like = shape.template[id.0 as usize];
        let old = &graph.ops()[like.0 as usize];
        for d in recorded.iter().filter(|d| d.op == like.0) {
            let on = &graph.ops()[d.on as usize];
            let near = (old.stage, op.stage);
            let inner = in_pipeline(op.kind) && in_pipeline(on.kind);
            // Between operations of the pipeline the distance is that of the schedule.
            let known = !inner || same_stages;
            let stage = shape.map.stage_of(on.stage, near).filter(|_| known);
            let seq = if inner {
                (i64::from(op.seq) + i64::from(on.seq) - i64::from(old.seq)).try_into().ok()
            } else if in_pipeline(on.kind) {
                shape.map.as_far_from_end(on.seq)
            } else {
                Some(on.seq)
            };
            let found = stage.zip(seq).and_then(|(s, q)| shape.graph.find(on.kind, q, s));
            match found.filter(|f| !shape.graph.deps(id).contains(f)) {
                Some(on) => {
                    out.push(ImpliedDependency { op: id.0, on: on.0, lag_s: d.lag_s.clone() });
                }
                None => lost += 1,
            }
        }
    }
    (out, lost)
}
