//! How far from the recorded size is answered.

use prism_graph::StepGraph;

use super::shape::Map;
use super::{Extrapolation, ResizeError, Severity};

/// Most replicas for each recorded one.
const REPLICAS: u32 = 128;
/// Most stages for each recorded one, and the other way round.
const STAGES: u32 = 4;
/// Most microbatches for each recorded one, and the other way round.
const MICROBATCHES: u32 = 8;
/// Most operations over all replicas: every replica is evaluated by itself, at about 300 bytes of
/// observed values an operation.
const MAX_OPS: u64 = 1 << 21;

/// Checks a target against the stated range; with `extrapolate`, what is beyond it is returned.
pub(super) fn check(
    graph: &StepGraph,
    map: &Map,
    replicas: (u32, u32),
    extrapolate: bool,
) -> Result<Vec<Extrapolation>, ResizeError> {
    let stages = (u32::from(map.stages.0), u32::from(map.stages.1));
    let axes = [
        ("replicas", replicas, 1, REPLICAS),
        ("stages", stages, STAGES, STAGES),
        ("microbatches", map.microbatches, MICROBATCHES, MICROBATCHES),
    ];
    let mut beyond = Vec::new();
    for (what, (from, to), down, up) in axes {
        if to == 0 {
            return Err(ResizeError::Zero { what });
        }
        let lowest = if what == "replicas" { 1 } else { from.div_ceil(down) };
        let highest = from.saturating_mul(up);
        if (lowest..=highest).contains(&to) {
            continue;
        }
        if !extrapolate {
            return Err(ResizeError::Range { what, from, to, lowest, highest });
        }
        beyond.push(warning(
            what,
            from,
            to,
            format!("outside of the stated range, {lowest} to {highest}"),
        ));
    }
    let identified = [
        (
            replicas.0 != replicas.1 && replicas.0 == 1,
            "what replicas and their collectives do: it has one",
        ),
        (
            stages.0 != stages.1 && stages.0 < 3 && chunks(graph) < 2,
            "the embedding and the loss from the layers: no stage lies between the ends",
        ),
        (
            map.microbatches.0 != map.microbatches.1 && map.microbatches.0 < stages.0,
            "a full pipeline: it has fewer microbatches than stages",
        ),
    ];
    for (missing, what) in identified {
        if missing && !extrapolate {
            return Err(ResizeError::Unidentified { what });
        }
        if missing {
            beyond.push(Extrapolation {
                what: "identification".to_owned(),
                from: "-".to_owned(),
                to: "-".to_owned(),
                basis: format!("the recorded job does not tell {what}"),
                severity: Severity::Warning,
            });
        }
    }
    Ok(beyond)
}

fn warning(what: &str, from: u32, to: u32, basis: String) -> Extrapolation {
    Extrapolation {
        what: what.to_owned(),
        from: from.to_string(),
        to: to.to_string(),
        basis,
        severity: Severity::Warning,
    }
}

fn chunks(graph: &StepGraph) -> i16 {
    graph.ops().iter().map(|op| op.chunk.max(0) + 1).max().unwrap_or(1)
}

/// Refuses what cannot be evaluated operation by operation.
pub(super) fn check_size(graph: &StepGraph) -> Result<(), ResizeError> {
    let (replicas, ops) = (graph.replicas(), graph.ops().len());
    if u64::from(replicas) * ops as u64 > MAX_OPS {
        return Err(ResizeError::TooLarge { replicas, ops, limit: MAX_OPS });
    }
    Ok(())
}
