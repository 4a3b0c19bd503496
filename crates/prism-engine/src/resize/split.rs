//! How work is divided among another number of stages.
//!
//! A trace does not say how many layers a stage has. Stages between the ends are taken to be alike;
//! what the first and the last take more than those (embedding; logits and loss) stays with them, and
//! the rest is divided evenly.

use std::collections::BTreeMap;

use prism_graph::StepGraph;
use prism_model::{DurationModel, OpKind, Signature, StepVector};

use super::shape::Map;

/// Least share of a middle stage that an end is left with.
const LEAST: f64 = 0.05;

/// Seconds by (chunk, stage).
type Times = BTreeMap<(i16, u16), f64>;

/// Factors on what was recorded.
#[derive(Clone, Debug, Default)]
pub(super) struct Split {
    compute_log: BTreeMap<Signature, f64>,
    step_level: BTreeMap<(OpKind, u32, u16), f64>,
}

/// Kinds whose work follows the parameters of a stage.
const BY_PARAMETERS: [OpKind; 5] = [
    OpKind::ParamsAllGather,
    OpKind::GradsReduceScatter,
    OpKind::SeparateGradsAllReduce,
    OpKind::LayernormGradsAllReduce,
    OpKind::Optimizer,
];

impl Split {
    /// Nothing is divided anew.
    pub(super) fn same() -> Split {
        Split::default()
    }

    /// Divides compute (`centre_log`, a level for each recorded signature) and step-level work.
    pub(super) fn new(
        graph: &StepGraph,
        model: &DurationModel,
        centre_log: &[f64],
        map: &Map,
    ) -> Split {
        let mut out = Split::default();
        let mut by_kind: BTreeMap<OpKind, Times> = BTreeMap::new();
        for (s, centre) in model.compute.signatures.iter().zip(centre_log) {
            let key = (s.signature.chunk, s.signature.stage);
            by_kind.entry(s.signature.kind).or_default().insert(key, centre.exp());
        }
        for (kind, times) in &by_kind {
            for ((chunk, stage), time) in divide(times, map) {
                let recorded = (chunk, map.stage(stage));
                let Some(before) = times.get(&recorded) else { continue };
                let signature = Signature { kind: *kind, stage, chunk };
                out.compute_log.insert(signature, (time / before).ln());
            }
        }
        out.step_levels(graph, model, map);
        // A signature's base is the mean over replicas; its level may leave out slow ones.
        for (signature, log) in &mut out.compute_log {
            let recorded = Signature { stage: map.stage(signature.stage), ..*signature };
            let of = |s: &prism_model::ComputeSignature| s.signature == recorded;
            if let Some(c) = model.compute.signatures.iter().position(of) {
                *log += centre_log[c] - model.compute.signatures[c].base_log_s;
            }
        }
        out
    }

    fn step_levels(&mut self, graph: &StepGraph, model: &DurationModel, map: &Map) {
        let mut by_name: BTreeMap<(OpKind, u32, i16), Times> = BTreeMap::new();
        for v in &model.step_work {
            let op = &graph.ops()[v.op as usize];
            if BY_PARAMETERS.contains(&op.kind) {
                let name = (op.kind, op.seq, op.chunk);
                by_name.entry(name).or_default().insert((op.chunk.max(0), op.stage), mean(v));
            }
        }
        for ((kind, seq, _), times) in &by_name {
            if times.len() < usize::from(map.stages.0) {
                continue;
            }
            for ((chunk, stage), time) in divide(times, map) {
                let before = times.get(&(chunk, map.stage(stage))).copied().unwrap_or(0.0);
                if before > 0.0 {
                    self.step_level.insert((*kind, *seq, stage), time / before);
                }
            }
        }
    }

    /// Added to the base of a recorded signature for a new one.
    pub(super) fn compute_log(&self, signature: Signature) -> f64 {
        self.compute_log.get(&signature).copied().unwrap_or(0.0)
    }

    /// Factor on step-level work.
    pub(super) fn step_level(&self, kind: OpKind, seq: u32, stage: u16) -> f64 {
        self.step_level.get(&(kind, seq, stage)).copied().unwrap_or(1.0)
    }
}

fn mean(v: &StepVector) -> f64 {
    let sum: f64 = v.values_s.iter().map(|x| f64::from(*x)).sum();
    sum / v.values_s.len().max(1) as f64
}

/// Times by (chunk, stage) on another number of stages. The first part holds the embedding, the last
/// the loss; the others are alike.
fn divide(times: &Times, map: &Map) -> Times {
    let (old, new) = map.stages;
    let chunks: Vec<i16> = {
        let mut all: Vec<i16> = times.keys().map(|k| k.0).collect();
        all.dedup();
        all
    };
    let (Some(&first_chunk), Some(&last_chunk)) = (chunks.first(), chunks.last()) else {
        return BTreeMap::new();
    };
    let (first, last) = ((first_chunk, 0), (last_chunk, old - 1));
    let middle: Vec<f64> =
        times.iter().filter(|(k, _)| **k != first && **k != last).map(|(_, t)| *t).collect();
    let at = |key: (i16, u16)| times.get(&key).copied().unwrap_or(0.0);
    let usual = if middle.is_empty() {
        at(first).min(at(last))
    } else {
        middle.iter().sum::<f64>() / middle.len() as f64
    };
    let extra = |key: (i16, u16)| if old == 1 && first == last { 0.0 } else { at(key) - usual };
    let share = usual * f64::from(old) / f64::from(new);
    let mut out = BTreeMap::new();
    for &chunk in &chunks {
        for stage in 0..new {
            let mut time = share;
            if (chunk, stage) == (first_chunk, 0) {
                time += extra(first);
            }
            if (chunk, stage) == (last_chunk, new - 1) {
                time += extra(last);
            }
            out.insert((chunk, stage), time.max(LEAST * share));
        }
    }
    out
}
