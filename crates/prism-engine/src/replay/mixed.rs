//! Recorded work on some operations, ideal work on the others, without an array of it.

use prism_graph::{Durations, GraphError, Op, OpId, StepGraph};

use super::{Ideal, Split};

/// Recorded work on selected operations and replicas, each kind's ideal on all others; no launch
/// delays.
///
/// The same work as [`super::replace`] makes an array of.
///
/// | method | kind |
/// |---|---|
/// | [`new`](Self::new) | constructor |
/// | [`Durations`] | view |
#[derive(Clone, Debug)]
pub struct MixedWork<'a> {
    split: &'a Split,
    replicas: usize,
    /// By operation.
    ideal_s: Vec<f64>,
    source: Vec<Source>,
    /// By replica, whether recorded; consecutive operations share theirs.
    masks: Vec<Vec<bool>>,
}

#[derive(Clone, Copy, Debug)]
enum Source {
    Recorded,
    Ideal,
    /// Index into the masks.
    ByReplica(u32),
}

impl<'a> MixedWork<'a> {
    /// Recorded work where `recorded(op, replica)` holds.
    ///
    /// # Errors
    /// [`GraphError::Shape`] if the split is of another graph.
    pub fn new(
        graph: &StepGraph,
        split: &'a Split,
        ideal: &Ideal,
        recorded: impl Fn(&Op, u32) -> bool,
    ) -> Result<MixedWork<'a>, GraphError> {
        let (got, expected) = (split.work.len(), graph.ops().len() * split.samples());
        if got != expected || !split.samples().is_multiple_of(graph.replicas() as usize) {
            return Err(GraphError::Shape { what: "split", got, expected });
        }
        let mut mixed = MixedWork {
            split,
            replicas: graph.replicas() as usize,
            ideal_s: Vec::with_capacity(graph.ops().len()),
            source: Vec::with_capacity(graph.ops().len()),
            masks: Vec::new(),
        };
        let mut mask = vec![false; mixed.replicas];
        for op in graph.ops() {
            mixed.ideal_s.push(ideal.work_s.get(&op.kind).copied().unwrap_or(0.0));
            for (replica, chosen) in (0..graph.replicas()).zip(&mut mask) {
                *chosen = recorded(op, replica);
            }
            mixed.source.push(match mask.iter().filter(|&&m| m).count() {
                0 => Source::Ideal,
                n if n == mask.len() => Source::Recorded,
                _ => {
                    if mixed.masks.last() != Some(&mask) {
                        mixed.masks.push(mask.clone());
                    }
                    Source::ByReplica(mixed.masks.len() as u32 - 1)
                }
            });
        }
        Ok(mixed)
    }
}

impl Durations for MixedWork<'_> {
    fn add_work(&self, op: OpId, first: usize, times: &mut [f64]) {
        let (ideal, recorded) =
            (self.ideal_s[op.0 as usize], &self.split.work_of(op)[first..][..times.len()]);
        match self.source[op.0 as usize] {
            Source::Ideal => times.iter_mut().for_each(|t| *t += ideal),
            Source::Recorded => {
                for (t, w) in times.iter_mut().zip(recorded) {
                    *t += w;
                }
            }
            Source::ByReplica(mask) => {
                let mask = self.masks[mask as usize].iter().cycle().skip(first % self.replicas);
                for ((t, &w), &chosen) in times.iter_mut().zip(recorded).zip(mask) {
                    *t += if chosen { w } else { ideal };
                }
            }
        }
    }
}
