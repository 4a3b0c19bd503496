//! Where operations' durations come from, and under which names they are drawn.

use prism_graph::StepGraph;
use prism_model::{DurationModel, OpKind, Signature, TransferModel};
use prism_stats::{Distribution, Law};

use super::PredictError;
use crate::sample::{Key, QuantileTable};

/// Where an operation's work comes from.
#[derive(Clone, Copy)]
pub(super) enum Work {
    Compute { c: usize, m: usize },
    Transfer { model: usize, instance: usize, member: usize },
    Step(usize),
    None,
}

/// The key of a signature's entity: names, never positions in a list.
pub(crate) fn entity(key: Key, signature: Signature) -> Key {
    key.with_text(signature.kind.as_str())
        .with(u64::from(signature.stage))
        .with(i64::from(signature.chunk) as u64)
}

pub(super) fn member_mean(transfer: &TransferModel, member: usize) -> f32 {
    let values = || transfer.rows_s.iter().skip(member).step_by(transfer.members.len().max(1));
    let n = values().count().max(1);
    (values().map(|&v| f64::from(v)).sum::<f64>() / n as f64) as f32
}

/// Table of `X^power` for a positive X; of X itself for power 1.
pub(super) fn tabulate(law: &Law, power: f64) -> Result<QuantileTable, PredictError> {
    tabulate_map(law, |x| if power == 1.0 { x } else { x.max(0.0).powf(power) })
}

/// Table of a rising function of X.
pub(super) fn tabulate_map(
    law: &Law,
    map: impl Fn(f64) -> f64,
) -> Result<QuantileTable, PredictError> {
    let table =
        QuantileTable::from_quantiles(|p| map(law.quantile(p)), |q| map(law.quantile_upper(q)))?;
    Ok(table)
}

/// A replica's factor on the effects inside a step, rounded to 5 %.
pub(super) fn rounded_spread(spread: f64) -> f64 {
    (spread * 20.0).round() / 20.0
}

/// Mean of `X^power` of a positive X, by 4,096 equally likely values.
pub(super) fn mean_power(law: &Law, power: f64) -> f64 {
    const POINTS: usize = 4_096;
    let at = |i: usize| law.quantile((i as f64 + 0.5) / POINTS as f64).max(0.0).powf(power);
    (0..POINTS).map(at).sum::<f64>() / POINTS as f64
}

/// Where each operation's work comes from; every recorded operation must have one place.
pub(super) fn assign_work(
    graph: &StepGraph,
    model: &DurationModel,
) -> Result<Vec<Work>, PredictError> {
    let mut work = vec![Work::None; graph.ops().len()];
    let mut set = |op: u32, value: Work| -> Result<(), PredictError> {
        *work.get_mut(op as usize).ok_or(PredictError::UnknownOp { op })? = value;
        Ok(())
    };
    for (c, signature) in model.compute.signatures.iter().enumerate() {
        for (m, op) in signature.by_position() {
            set(op, Work::Compute { c, m })?;
        }
    }
    for (t, transfer) in model.transfers.iter().enumerate() {
        let width = transfer.members.len().max(1);
        for (i, &op) in transfer.ops.iter().enumerate() {
            set(op, Work::Transfer { model: t, instance: i / width, member: i % width })?;
        }
    }
    for (i, vector) in model.step_work.iter().enumerate() {
        set(vector.op, Work::Step(i))?;
    }
    for (id, op) in graph.iter() {
        if op.kind != OpKind::Barrier && matches!(work[id.0 as usize], Work::None) {
            return Err(PredictError::NoWork { op: op.clone() });
        }
    }
    Ok(work)
}
