//! What variation is shared out between.

use std::collections::BTreeSet;

use prism_engine::predict::Source;
use prism_graph::StepGraph;
use prism_model::{DurationModel, KernelClass, OpKind, Signature};
use serde::{Deserialize, Serialize};

/// Along which lines variation is shared out.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum By {
    /// By effect of the duration model.
    Effect,
    /// By class of operation: compute, point-to-point, collectives, optimizer, launch delays.
    Class,
    /// By kind of operation; launch delays are a kind of their own.
    Kind,
}

/// One part of the variation: present or absent as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Player {
    pub(super) name: String,
    parts: BTreeSet<Part>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Source(Source),
    Kind(OpKind),
    LaunchDelay,
}

impl Player {
    fn of(name: impl Into<String>, parts: impl IntoIterator<Item = Part>) -> Player {
        Player { name: name.into(), parts: parts.into_iter().collect() }
    }

    /// Several players as one.
    pub(super) fn merged(players: &[Player]) -> Player {
        let names: Vec<&str> = players.iter().map(|p| p.name.as_str()).collect();
        let parts = players.iter().flat_map(|p| p.parts.iter().copied());
        Player::of(names.join(" + "), parts)
    }

    /// Whether a source of variation of a signature is this player's.
    pub(super) fn has(&self, source: Source, signature: Signature) -> bool {
        self.parts.iter().any(|part| match part {
            Part::Source(own) => *own == source,
            Part::LaunchDelay => source == Source::LaunchDelay,
            Part::Kind(kind) => source != Source::LaunchDelay && *kind == signature.kind,
        })
    }
}

/// All players of a job: what its model lets vary.
pub(super) fn players(by: By, graph: &StepGraph, model: &DurationModel) -> Vec<Player> {
    match by {
        By::Effect => sources(graph, model)
            .into_iter()
            .map(|s| Player::of(s.as_str(), [Part::Source(s)]))
            .collect(),
        By::Class => classes(graph, model),
        By::Kind => kinds(graph, model),
    }
}

/// Sources of variation that the model has.
pub(crate) fn sources(graph: &StepGraph, model: &DurationModel) -> Vec<Source> {
    let compute = &model.compute;
    let varies = |class: KernelClass| {
        model.step_work.iter().any(|v| {
            let kind = graph.ops().get(v.op as usize).map(|o| o.kind);
            kind.is_some_and(|k| k.class() == class) && varied(&v.values_s)
        })
    };
    let has = |source: Source| match source {
        Source::Worker => !compute.worker_log.is_empty() && model.replicas > 1,
        Source::Step => compute.step_sd_log > 0.0 || compute.step_law.is_some(),
        Source::StepWorker => compute.step_worker_sd_log > 0.0 || compute.step_worker_law.is_some(),
        Source::Microbatch => compute.microbatch_shared || compute.microbatch_law.is_some(),
        Source::Residual => compute.signatures.iter().any(|s| s.residual_sd_log > 0.0),
        Source::Congestion => !model.congestion.is_empty(),
        Source::Transfer => model.transfers.iter().any(|t| varied(&t.rows_s)),
        Source::Collective => varies(KernelClass::Collective),
        Source::Optimizer => varies(KernelClass::Memory) || varies(KernelClass::Host),
        Source::LaunchDelay => {
            model.launch_delay.iter().any(|v| varied(&v.values_s)) || !model.implied.is_empty()
        }
        _ => false,
    };
    Source::ALL.into_iter().filter(|s| has(*s)).collect()
}

fn varied(values: &[f32]) -> bool {
    values.iter().any(|v| *v != values[0])
}

/// Classes of operations.
fn classes(graph: &StepGraph, model: &DurationModel) -> Vec<Player> {
    let there: BTreeSet<OpKind> = graph.ops().iter().map(|op| op.kind).collect();
    let of = |name: &str, has: &dyn Fn(KernelClass) -> bool| {
        let parts: Vec<Part> =
            there.iter().filter(|k| has(k.class())).map(|k| Part::Kind(*k)).collect();
        (!parts.is_empty()).then(|| Player::of(name, parts))
    };
    let mut out: Vec<Player> = [
        of("compute", &|c| c == KernelClass::Compute),
        of("point-to-point", &|c| c == KernelClass::PointToPoint),
        of("collectives", &|c| c == KernelClass::Collective),
        of("optimizer and host", &|c| matches!(c, KernelClass::Memory | KernelClass::Host)),
    ]
    .into_iter()
    .flatten()
    .collect();
    if sources(graph, model).contains(&Source::LaunchDelay) {
        out.push(Player::of("launch delays", [Part::LaunchDelay]));
    }
    out
}

/// Kinds of operations, both directions of point-to-point together: their congestion is shared.
fn kinds(graph: &StepGraph, model: &DurationModel) -> Vec<Player> {
    let there: BTreeSet<OpKind> = graph.ops().iter().map(|op| op.kind).collect();
    let mut out = Vec::new();
    let p2p: Vec<Part> = there.iter().filter(|k| k.is_p2p()).map(|k| Part::Kind(*k)).collect();
    for kind in &there {
        if !kind.is_p2p() && !matches!(kind, OpKind::Barrier | OpKind::Gc) {
            out.push(Player::of(kind.as_str(), [Part::Kind(*kind)]));
        }
    }
    if !p2p.is_empty() {
        out.push(Player::of("point-to-point", p2p));
    }
    if sources(graph, model).contains(&Source::LaunchDelay) {
        out.push(Player::of("launch delays", [Part::LaunchDelay]));
    }
    out
}
