//! Which part of a step depends on who works where.
//!
//! Operations before any compute take no notice of workers. Those after are a replica's own until
//! replicas meet (a collective over the replica axis); from there to the step's end nothing depends on
//! workers again, only on who came last. So a step ends at the latest, over replicas and over the
//! places where a replica's own part ends (*exits*), of the exit's time plus a tail that is the same
//! whoever works where.

use prism_graph::{Event, OpId, ReplicaSync, StepGraph};
use prism_model::DurationModel;

use super::PlaceError;

/// Where an operation, or the start of a group, lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    /// Before any compute.
    Before,
    /// A replica's own.
    Own,
    /// After replicas have met.
    After,
}

/// Parts of a graph.
#[derive(Clone, Debug)]
pub(super) struct Regions {
    /// When an operation is ready, by operation.
    pub(super) ready: Vec<Part>,
    /// When it ends.
    pub(super) end: Vec<Part>,
    /// What each operation waits for, implied dependencies left out.
    pub(super) deps: Vec<Vec<u32>>,
    /// Implied dependencies of each operation: index into the model's list.
    pub(super) implied: Vec<Vec<usize>>,
}

/// Whether a group waits for other replicas.
pub(super) fn crosses(sync: ReplicaSync, replicas: usize) -> bool {
    match sync {
        ReplicaSync::None => false,
        ReplicaSync::All => replicas > 1,
        ReplicaSync::Blocks(b) => b > 1 && replicas > 1,
    }
}

impl Regions {
    /// # Errors
    /// [`PlaceError::Coupled`] if a compute waits for other replicas' computes.
    pub(super) fn new(graph: &StepGraph, model: &DurationModel) -> Result<Regions, PlaceError> {
        let n = graph.ops().len();
        let mut implied = vec![Vec::new(); n];
        for (i, d) in model.implied.iter().enumerate() {
            if let Some(list) = implied.get_mut(d.op as usize) {
                list.push(i);
            }
        }
        let replaced =
            |op: usize, on: OpId| implied[op].iter().any(|&i| model.implied[i].on == on.0);
        let deps = (0..n)
            .map(|op| {
                let all = graph.deps(OpId(op as u32)).iter();
                all.filter(|on| !replaced(op, **on)).map(|on| on.0).collect()
            })
            .collect();
        let mut out =
            Regions { ready: vec![Part::Before; n], end: vec![Part::Before; n], deps, implied };
        for &event in graph.order() {
            match event {
                Event::Start(id) => out.start(graph, model, id)?,
                Event::Group(id) => {
                    let group = &graph.groups()[id.0 as usize];
                    let parts = group.members.iter().map(|m| out.ready[m.0 as usize]);
                    let mut part = parts.max().unwrap_or(Part::Before);
                    if part == Part::Own && crosses(group.sync, graph.replicas() as usize) {
                        part = Part::After;
                    }
                    for m in &group.members {
                        out.end[m.0 as usize] = part;
                    }
                }
            }
        }
        Ok(out)
    }

    fn start(
        &mut self,
        graph: &StepGraph,
        model: &DurationModel,
        id: OpId,
    ) -> Result<(), PlaceError> {
        let at = id.0 as usize;
        let waits = self.deps[at].iter().map(|d| *d as usize);
        let implied = self.implied[at].iter().map(|&i| model.implied[i].on as usize);
        let part = waits.chain(implied).map(|d| self.end[d]).max().unwrap_or(Part::Before);
        self.ready[at] = part;
        if graph.group_of(id).is_some() {
            return Ok(());
        }
        let op = &graph.ops()[at];
        self.end[at] = match (op.kind.is_microbatch_compute(), part) {
            (true, Part::After) => return Err(PlaceError::Coupled { op: op.to_string() }),
            (true, _) => Part::Own,
            (false, part) => part,
        };
        Ok(())
    }
}
