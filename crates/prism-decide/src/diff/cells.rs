//! What both sides have in common, as one value a step.
//!
//! A *cell* is one signature on one replica (or over all replicas, where their numbers differ or all
//! take part in one event); a *block* holds the cells of one part of the step, whose steps move
//! together.

use std::collections::{BTreeMap, BTreeSet};

use prism_engine::calibrate::row_places;
use prism_model::{KernelClass, OpKind, Signature, StepVector, TransferModel};

use super::report::{Measure, Part, Unmatched};
use super::side::{OpName, Side};

/// One signature on one replica.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cell {
    /// The signature; of a transfer that of each member.
    pub(super) members: Vec<Signature>,
    /// Replica; none for all of them.
    pub(super) dp: Option<u32>,
}

impl Cell {
    pub(super) fn signature(&self) -> Option<Signature> {
        self.members.first().copied()
    }
}

/// Cells whose steps move together.
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub(super) part: Part,
    pub(super) effect: Option<prism_model::EffectKind>,
    pub(super) measure: Measure,
    pub(super) cells: Vec<Cell>,
    /// Values of A, `[cell][t]`: mean log duration, seconds, log s.d. or variance.
    pub(super) a: Vec<Vec<f64>>,
    /// Values of B, `[cell][t]`.
    pub(super) b: Vec<Vec<f64>>,
    /// Smallest s.d. that is believed.
    pub(super) least: f64,
}

/// Rounding of profiles, in log time.
const LEAST_LOG: f64 = 1e-6;
/// Rounding of profiles, as a share of the step.
const LEAST_SHARE: f64 = 1e-7;
/// A launch delay that varies less than this share of the step is stored as a constant.
const LEAST_DELAY_SHARE: f64 = 1e-5;
/// Launch delays whose mean is below this share of the step on both sides are not compared.
const NO_DELAY_SHARE: f64 = 1e-4;

impl Block {
    fn new(part: Part, measure: Measure, least: f64) -> Block {
        Block {
            part,
            effect: None,
            measure,
            cells: Vec::new(),
            a: Vec::new(),
            b: Vec::new(),
            least,
        }
    }

    pub(super) fn push(&mut self, cell: Cell, a: Vec<f64>, b: Vec<f64>) {
        self.cells.push(cell);
        self.a.push(a);
        self.b.push(b);
    }

    /// Takes logarithms where all values allow it; else the values stay seconds.
    fn in_log_time(mut self) -> Block {
        let all = || self.a.iter().chain(&self.b).flatten();
        if all().all(|v| *v > 0.0) {
            for v in self.a.iter_mut().chain(&mut self.b).flatten() {
                *v = v.ln();
            }
            self.measure = Measure::Duration;
            self.least = LEAST_LOG;
        }
        self
    }
}

/// All blocks of mean values, and what has no counterpart.
pub(super) fn blocks(a: &Side<'_>, b: &Side<'_>) -> (Vec<Block>, Vec<Unmatched>) {
    let mut unmatched = Vec::new();
    let by_rank = a.model.replicas == b.model.replicas;
    let mut out = vec![compute(a, b, by_rank, &mut unmatched)];
    if a.profile.provenance.builder == b.profile.provenance.builder {
        out.extend(transfers(a, b, by_rank, &mut unmatched));
        out.extend(step_work(a, b, by_rank, &mut unmatched));
        out.extend(launch_delays(a, b, by_rank, &mut unmatched));
    } else {
        unmatched.push(Unmatched {
            side: "both".to_owned(),
            what: format!(
                "transfers, collectives and launch delays: A's graph is of the {} builder, B's of \
                 the {}, which split time otherwise",
                a.profile.provenance.builder, b.profile.provenance.builder
            ),
            signatures: Vec::new(),
        });
    }
    out.retain(|block| !block.cells.is_empty());
    (out, unmatched)
}

/// Keys in both; those of one side are listed.
fn matched<K: Ord + Clone>(
    a: &BTreeSet<K>,
    b: &BTreeSet<K>,
    what: &str,
    signature: impl Fn(&K) -> Signature,
    unmatched: &mut Vec<Unmatched>,
) -> Vec<K> {
    for (side, own, other) in [("A", a, b), ("B", b, a)] {
        let signatures: Vec<Signature> = own.difference(other).map(&signature).collect();
        if !signatures.is_empty() {
            let side = side.to_owned();
            unmatched.push(Unmatched { side, what: what.to_owned(), signatures });
        }
    }
    a.intersection(b).cloned().collect()
}

/// Lanes of all replicas as cells of one signature, or their mean as one cell.
fn push_lanes(
    block: &mut Block,
    members: &[Signature],
    by_rank: bool,
    a: Vec<Vec<f64>>,
    b: Vec<Vec<f64>>,
) {
    let cell = |dp| Cell { members: members.to_vec(), dp };
    if by_rank {
        for (r, (x, y)) in a.into_iter().zip(b).enumerate() {
            block.push(cell(Some(r as u32)), x, y);
        }
    } else {
        block.push(cell(None), mean_lane(&a), mean_lane(&b));
    }
}

pub(super) fn mean_lane(lanes: &[Vec<f64>]) -> Vec<f64> {
    let n = lanes.len().max(1) as f64;
    let steps = lanes.first().map_or(0, Vec::len);
    (0..steps).map(|t| lanes.iter().map(|l| l[t]).sum::<f64>() / n).collect()
}

fn compute(a: &Side<'_>, b: &Side<'_>, by_rank: bool, unmatched: &mut Vec<Unmatched>) -> Block {
    let index = |side: &Side<'_>| -> BTreeMap<Signature, usize> {
        let signatures = &side.model.compute.signatures;
        signatures.iter().enumerate().map(|(c, s)| (s.signature, c)).collect()
    };
    let (in_a, in_b) = (index(a), index(b));
    let keys = |m: &BTreeMap<Signature, usize>| m.keys().copied().collect::<BTreeSet<_>>();
    let both = matched(&keys(&in_a), &keys(&in_b), "compute", |s| *s, unmatched);
    let mut block = Block::new(Part::Compute, Measure::Duration, LEAST_LOG);
    for s in both {
        let (x, y) = (compute_lanes(a, in_a[&s]), compute_lanes(b, in_b[&s]));
        push_lanes(&mut block, &[s], by_rank, x, y);
    }
    block
}

/// Mean log duration over microbatches, `[r][t]`.
fn compute_lanes(side: &Side<'_>, c: usize) -> Vec<Vec<f64>> {
    let (steps, replicas) = (side.steps(), side.replicas());
    let m = side.model.microbatches as usize;
    let values = &side.model.compute.observations_log_s[c * m * steps * replicas..];
    let mut out = vec![vec![0.0; steps]; replicas];
    for (i, v) in values[..m * steps * replicas].iter().enumerate() {
        out[i % replicas][i / replicas % steps] += f64::from(*v) / m as f64;
    }
    out
}

fn transfers(
    a: &Side<'_>,
    b: &Side<'_>,
    by_rank: bool,
    unmatched: &mut Vec<Unmatched>,
) -> Vec<Block> {
    let index = |side: &Side<'_>| -> BTreeMap<Vec<Signature>, usize> {
        let transfers = side.model.transfers.iter().enumerate();
        transfers.map(|(i, t)| (t.members.clone(), i)).collect()
    };
    let (in_a, in_b) = (index(a), index(b));
    let keys = |m: &BTreeMap<Vec<Signature>, usize>| m.keys().cloned().collect::<BTreeSet<_>>();
    let first = |k: &Vec<Signature>| k[0];
    let both = matched(&keys(&in_a), &keys(&in_b), "point-to-point groups", first, unmatched);
    let step_s = a.mean_step_s().min(b.mean_step_s());
    let mut block = Block::new(Part::Transfer, Measure::Seconds, LEAST_SHARE * step_s);
    for members in both {
        let lanes = |side: &Side<'_>, i: usize| transfer_lanes(side, &side.model.transfers[i]);
        match (lanes(a, in_a[&members]), lanes(b, in_b[&members])) {
            (Some(x), Some(y)) => push_lanes(&mut block, &members, by_rank, x, y),
            _ => unmatched.push(Unmatched {
                side: "both".to_owned(),
                what: "transfers of which too few are stored to know each step".to_owned(),
                signatures: members,
            }),
        }
    }
    vec![block.in_log_time()]
}

/// Mean transfer over instances and members, seconds, `[r][t]`; none if a step has none stored.
fn transfer_lanes(side: &Side<'_>, transfer: &TransferModel) -> Option<Vec<Vec<f64>>> {
    let (steps, replicas) = (side.steps(), side.replicas());
    let places = row_places(transfer, replicas, steps)?;
    let width = transfer.members.len().max(1);
    let mut sum = vec![vec![0.0; steps]; replicas];
    let mut count = vec![vec![0.0; steps]; replicas];
    for (row, place) in transfer.rows_s.chunks(width).zip(places) {
        let congestion = side.model.congestion.get(place.step).map_or(1.0, |c| f64::from(*c));
        let mean = row.iter().map(|v| f64::from(*v)).sum::<f64>() / width as f64;
        sum[place.replica][place.step] += mean * congestion;
        count[place.replica][place.step] += 1.0;
    }
    let complete = count.iter().flatten().all(|c| *c > 0.0);
    for (s, c) in sum.iter_mut().flatten().zip(count.iter().flatten()) {
        *s /= c;
    }
    complete.then_some(sum)
}

/// A block a kind: all members of a collective end together, so its replicas are one cell.
fn step_work(
    a: &Side<'_>,
    b: &Side<'_>,
    by_rank: bool,
    unmatched: &mut Vec<Unmatched>,
) -> Vec<Block> {
    let index = |side: &Side<'_>| -> BTreeMap<Signature, Vec<Vec<f64>>> {
        lanes_by_signature(side, &side.model.step_work)
    };
    let (in_a, in_b) = (index(a), index(b));
    let keys = |m: &BTreeMap<Signature, Vec<Vec<f64>>>| m.keys().copied().collect::<BTreeSet<_>>();
    let what = "collectives, optimizer and markers";
    let both = matched(&keys(&in_a), &keys(&in_b), what, |s| *s, unmatched);
    let step_s = a.mean_step_s().min(b.mean_step_s());
    let mut by_kind: BTreeMap<OpKind, Block> = BTreeMap::new();
    for s in both {
        let (x, y) = (&in_a[&s], &in_b[&s]);
        if x.iter().chain(y).flatten().all(|v| *v == 0.0) {
            continue;
        }
        let block = by_kind
            .entry(s.kind)
            .or_insert_with(|| Block::new(Part::StepWork, Measure::Seconds, LEAST_SHARE * step_s));
        let by_rank = by_rank && s.kind.class() != KernelClass::Collective;
        push_lanes(block, &[s], by_rank, x.clone(), y.clone());
    }
    by_kind.into_values().map(Block::in_log_time).collect()
}

/// Mean over the operations of each signature, seconds, `[r][t]`.
fn lanes_by_signature(
    side: &Side<'_>,
    vectors: &[StepVector],
) -> BTreeMap<Signature, Vec<Vec<f64>>> {
    let mut out: BTreeMap<Signature, Vec<Vec<f64>>> = BTreeMap::new();
    for vector in vectors {
        let signature = side.graph.ops()[vector.op as usize].signature();
        let n = side.ops.get(&signature).map_or(1, Vec::len).max(1) as f64;
        let lanes =
            out.entry(signature).or_insert_with(|| vec![vec![0.0; side.steps()]; side.replicas()]);
        for (r, lane) in lanes.iter_mut().enumerate() {
            for (t, v) in lane.iter_mut().enumerate() {
                *v += side.value(vector, r, t) / n;
            }
        }
    }
    out
}

/// Mean launch delay of the operations of each signature. Where both sides found that an operation
/// waits for another one, its lag behind that one is its delay; where one side did, it is left out.
fn launch_delays(
    a: &Side<'_>,
    b: &Side<'_>,
    by_rank: bool,
    unmatched: &mut Vec<Unmatched>,
) -> Vec<Block> {
    let (implied_a, implied_b) = (a.implied(), b.implied());
    let names: BTreeSet<&OpName> = implied_a.keys().chain(implied_b.keys()).collect();
    let differ: BTreeSet<OpName> = names
        .into_iter()
        .filter(|n| {
            let (x, y) = (implied_a.get(*n), implied_b.get(*n));
            x != y || x.is_some_and(Option::is_none)
        })
        .copied()
        .collect();
    if !differ.is_empty() {
        let signatures: BTreeSet<Signature> = differ.iter().map(|n| n.0).collect();
        unmatched.push(Unmatched {
            side: "both".to_owned(),
            what: format!(
                "launch delays of {} operations that wait for another one by A's record or by B's \
                 only",
                differ.len()
            ),
            signatures: signatures.into_iter().collect(),
        });
    }
    let (in_a, in_b) = (delay_lanes(a, &differ), delay_lanes(b, &differ));
    let step_s = a.mean_step_s().min(b.mean_step_s());
    let mut block = Block::new(Part::LaunchDelay, Measure::Seconds, LEAST_DELAY_SHARE * step_s);
    for (s, x) in in_a {
        let Some(y) = in_b.get(&s) else { continue };
        let mean = |lanes: &[Vec<f64>]| {
            let n: usize = lanes.iter().map(Vec::len).sum();
            lanes.iter().flatten().sum::<f64>() / n.max(1) as f64
        };
        if mean(&x).max(mean(y)) > NO_DELAY_SHARE * step_s {
            push_lanes(&mut block, &[s], by_rank, x, y.clone());
        }
    }
    vec![block]
}

/// Mean launch delay over the operations of each signature but the given, seconds, `[r][t]`.
fn delay_lanes(side: &Side<'_>, without: &BTreeSet<OpName>) -> BTreeMap<Signature, Vec<Vec<f64>>> {
    let mut out = BTreeMap::new();
    let delay: BTreeMap<u32, &StepVector> =
        side.model.launch_delay.iter().map(|v| (v.op, v)).collect();
    let lag: BTreeMap<u32, &[f32]> =
        side.model.implied.iter().map(|d| (d.op, d.lag_s.as_slice())).collect();
    for (&signature, ops) in &side.ops {
        let ops: Vec<_> = ops.iter().filter(|op| !without.contains(&side.name(**op))).collect();
        if ops.is_empty() || signature.kind == OpKind::Barrier {
            continue;
        }
        let mut lanes = vec![vec![0.0; side.steps()]; side.replicas()];
        for op in &ops {
            for (r, lane) in lanes.iter_mut().enumerate() {
                for (t, v) in lane.iter_mut().enumerate() {
                    let own = delay.get(&op.0).map_or(0.0, |d| side.value(d, r, t));
                    let lag = lag.get(&op.0).map(|l| f64::from(l[r * side.steps() + t]));
                    *v += own + lag.filter(|l| *l > -1e29).unwrap_or(0.0);
                }
            }
        }
        for v in lanes.iter_mut().flatten() {
            *v /= ops.len() as f64;
        }
        out.insert(signature, lanes);
    }
    out
}
