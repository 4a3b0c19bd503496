//! Sends and receives: which positions ever wait, and what a transfer takes.

use std::collections::BTreeMap;

use prism_graph::{Observed, Op, StepGraph};
use prism_model::{Direction, Signature};
use prism_stats::robust::{Otsu, Scale, otsu};

use super::pool::{List, lane};
use super::{Pool, PositionPool, TransferPools};
use crate::calibrate::{CalibrateError, Selection};

/// A direction between two neighbouring stages; the stage that is nearer to the input.
type Link = (Direction, u16);

/// Sends or receives of one signature, split by the threshold.
#[derive(Debug)]
pub(super) struct Split {
    signature: Signature,
    otsu: Option<Otsu>,
    ever_bubble: Vec<u32>,
    never_bubble: BTreeMap<u32, List>,
    transfer: List,
}

impl Split {
    /// All observations that are drawn from.
    pub(super) fn lists(&self) -> impl Iterator<Item = &List> {
        self.never_bubble.values().chain([&self.transfer])
    }

    pub(super) fn lists_mut(&mut self) -> impl Iterator<Item = &mut List> {
        self.never_bubble.values_mut().chain([&mut self.transfer])
    }

    /// As pools.
    pub(super) fn pools(self) -> Result<TransferPools, CalibrateError> {
        let pool = |list: List| Pool::of(list.into_iter().map(|v| v.1));
        Ok(TransferPools {
            signature: self.signature,
            threshold_s: self.otsu.map(|o| o.threshold),
            separability: self.otsu.map_or(0.0, |o| o.separability),
            ever_bubble: self.ever_bubble,
            never_bubble: self
                .never_bubble
                .into_iter()
                .map(|(position, list)| Ok(PositionPool { position, pool: pool(list)? }))
                .collect::<Result<_, CalibrateError>>()?,
            transfer: pool(self.transfer)?,
        })
    }
}

/// The link that an operation uses.
fn link(op: &Op, stages: u16) -> Option<Link> {
    let direction = op.kind.direction()?;
    let towards_output = op.kind.is_send() == (direction == Direction::Forward);
    let before = op.stage.checked_sub(1).unwrap_or(stages.saturating_sub(1));
    Some((direction, if towards_output { op.stage } else { before }))
}

/// Splits all sends and receives, by signature.
pub(super) fn transfers(
    graph: &StepGraph,
    observed: &Observed,
    selection: &Selection,
) -> Result<Vec<Split>, CalibrateError> {
    let mut by_link: BTreeMap<Link, BTreeMap<Signature, BTreeMap<u32, List>>> = BTreeMap::new();
    for (id, op) in graph.iter().filter(|(_, op)| op.kind.is_p2p()) {
        if let (Some(link), Some(durations)) = (link(op, graph.stages()), observed.duration(id)) {
            let signatures = by_link.entry(link).or_default();
            let positions = signatures.entry(op.signature()).or_default();
            positions.entry(op.seq).or_default().extend(lane(durations, selection));
        }
    }
    let mut out = Vec::new();
    for signatures in by_link.into_values() {
        out.extend(split_link(signatures)?);
    }
    out.sort_by_key(|s| s.signature);
    Ok(out)
}

/// Splits the signatures of one link at their common threshold.
fn split_link(
    signatures: BTreeMap<Signature, BTreeMap<u32, List>>,
) -> Result<Vec<Split>, CalibrateError> {
    let positive: Vec<f64> = signatures
        .values()
        .flat_map(BTreeMap::values)
        .flatten()
        .map(|v| v.1)
        .filter(|&v| v > 0.0)
        .collect();
    let otsu = if positive.len() < 2 { None } else { otsu(&positive, Scale::Log)? };
    let threshold = otsu.map_or(f64::INFINITY, |o| o.threshold);
    let below = |positions: &BTreeMap<u32, List>| -> List {
        positions.values().flatten().copied().filter(|v| v.1 <= threshold).collect()
    };
    let of_link: List = signatures.values().flat_map(below).collect();
    Ok(signatures
        .into_iter()
        .map(|(signature, positions)| {
            let own = below(&positions);
            let transfer = if own.is_empty() { of_link.clone() } else { own };
            let waits = |list: &List| list.iter().any(|v| v.1 > threshold);
            let ever_bubble = positions.iter().filter(|(_, l)| waits(l)).map(|(&p, _)| p).collect();
            let never_bubble = positions.into_iter().filter(|(_, l)| !waits(l)).collect();
            Split { signature, otsu, ever_bubble, never_bubble, transfer }
        })
        .collect())
}
