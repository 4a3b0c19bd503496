//! Checks a program and finds out, per node, what it is and when it can be known.

use super::error::SampleError;
use super::program::{Node, Offset, Program, Scope};

/// Largest pool, and largest number of rows, that 32-bit signed gathers address.
const MAX_ROWS: u64 = 1 << 31;

/// What is known about a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Facts {
    /// Differs between replicas.
    pub(crate) per_replica: bool,
    /// Number of replica-wide reductions it waits for.
    pub(crate) level: u32,
    /// Rows of an index; `None` for numbers.
    pub(crate) rows: Option<u32>,
}

/// Checks every node, pool bound and output, and returns the facts of each node.
pub(crate) fn check(program: &Program) -> Result<Vec<Facts>, SampleError> {
    if program.replicas == 0 {
        return Err(SampleError::NoReplicas);
    }
    let mut facts: Vec<Facts> = Vec::with_capacity(program.nodes.len());
    for (node, n) in program.nodes.iter().enumerate() {
        for id in n.operands() {
            known(node, "node", id as usize, node)?;
        }
        let rows = kind(program, node, n, &facts)?;
        let own = differs(program, node, n)?;
        let inherited = n.operands().iter().any(|&o| facts[o as usize].per_replica);
        let level = n.operands().iter().map(|&o| facts[o as usize].level).max().unwrap_or(0);
        let (per_replica, level) = match n {
            Node::Sync { value, block } => {
                let replicas = program.replicas;
                if *block == 0 || !replicas.is_multiple_of(*block) {
                    return Err(SampleError::BadBlocks { node, block: *block, replicas });
                }
                let reduces = facts[*value as usize].per_replica && *block > 1;
                (inherited && *block < replicas, level + u32::from(reduces))
            }
            Node::Reduce(..) => (false, level + u32::from(inherited)),
            _ => (own || inherited, level),
        };
        facts.push(Facts { per_replica: per_replica && program.replicas > 1, level, rows });
    }
    check_outputs(program, &facts)?;
    Ok(facts)
}

fn known(node: usize, kind: &'static str, id: usize, count: usize) -> Result<(), SampleError> {
    if id < count { Ok(()) } else { Err(SampleError::Unknown { node, kind, id, count }) }
}

fn check_outputs(program: &Program, facts: &[Facts]) -> Result<(), SampleError> {
    if program.outputs.is_empty() {
        return Err(SampleError::NoOutputs);
    }
    let count = program.nodes.len();
    let mut names: Vec<&str> = Vec::with_capacity(program.outputs.len());
    for (name, id) in &program.outputs {
        known(count, "node", *id as usize, count)?;
        number(count, *id, facts)?;
        names.push(name);
    }
    names.sort_unstable();
    match names.windows(2).find(|w| w[0] == w[1]) {
        Some(w) => Err(SampleError::DuplicateOutput { name: w[0].to_owned() }),
        None => Ok(()),
    }
}

fn number(node: usize, id: u32, facts: &[Facts]) -> Result<(), SampleError> {
    match facts[id as usize].rows {
        None => Ok(()),
        Some(_) => Err(SampleError::WrongKind { node, id: id as usize, expected: "a number" }),
    }
}

fn index(node: usize, id: u32, facts: &[Facts]) -> Result<u32, SampleError> {
    facts[id as usize].rows.ok_or(SampleError::WrongKind {
        node,
        id: id as usize,
        expected: "an index",
    })
}

/// Checks operand kinds and data; the rows of an index, `None` for a number.
fn kind(
    program: &Program,
    node: usize,
    n: &Node,
    facts: &[Facts],
) -> Result<Option<u32>, SampleError> {
    match n {
        Node::Index { rows, weights, .. } => {
            if !valid_rows(*rows, weights.as_deref()) {
                return Err(SampleError::BadRows { node });
            }
            return Ok(Some(*rows));
        }
        Node::MapIndex { index: source, map } => {
            let rows = index(node, *source, facts)?;
            if (map.len() as u64) < u64::from(rows) {
                return Err(SampleError::ShortMap { node, found: map.len(), rows });
            }
            let top = map.iter().copied().max().unwrap_or(0);
            if u64::from(top) >= MAX_ROWS {
                return Err(SampleError::BadRows { node });
            }
            return Ok(Some(top + 1));
        }
        Node::Gather { index: source, .. } => {
            let rows = index(node, *source, facts)?;
            check_gather(node, n, rows, program.replicas, &program.pools)?;
        }
        Node::Select { condition, threshold, a, b } => {
            number(node, *condition, facts)?;
            finite_threshold(node, *threshold)?;
            if facts[*a as usize].rows.is_some() {
                return Ok(Some(index(node, *a, facts)?.max(index(node, *b, facts)?)));
            }
            number(node, *b, facts)?;
        }
        Node::Step { value, threshold } => {
            number(node, *value, facts)?;
            finite_threshold(node, *threshold)?;
        }
        Node::Draw { table, .. } => known(node, "table", *table as usize, program.tables.len())?,
        Node::Const(value) => check_constant(node, &[*value])?,
        Node::ReplicaConst(values) => check_constant(node, values)?,
        _ => {
            for id in n.operands() {
                number(node, id, facts)?;
            }
        }
    }
    Ok(None)
}

fn finite_threshold(node: usize, threshold: f32) -> Result<(), SampleError> {
    if threshold.is_nan() { Err(SampleError::NotFinite { node }) } else { Ok(()) }
}

/// Fails on the first value that is not finite.
pub(crate) fn check_constant(node: usize, values: &[f32]) -> Result<(), SampleError> {
    if values.iter().all(|v| v.is_finite()) { Ok(()) } else { Err(SampleError::NotFinite { node }) }
}

/// Fails where a list has not one entry per replica.
pub(crate) fn check_count(node: usize, found: usize, replicas: u32) -> Result<(), SampleError> {
    let replicas = replicas as usize;
    if found == replicas {
        Ok(())
    } else {
        Err(SampleError::ReplicaCount { node, found, replicas })
    }
}

/// Whether a number of rows, with or without weights, is a law.
pub(crate) fn valid_rows(rows: u32, weights: Option<&[f64]>) -> bool {
    let weighted = weights.is_none_or(|w| {
        w.len() == rows as usize
            && w.iter().all(|x| x.is_finite() && *x >= 0.0)
            && w.iter().sum::<f64>() > 0.0
    });
    rows > 0 && u64::from(rows) <= MAX_ROWS && weighted
}

/// Checks that a gather over an index of `rows` rows stays within its pool for every replica.
pub(crate) fn check_gather(
    node: usize,
    gather: &Node,
    rows: u32,
    replicas: u32,
    pools: &[Vec<f32>],
) -> Result<(), SampleError> {
    let Node::Gather { pool, stride, offset, .. } = gather else { return Ok(()) };
    known(node, "pool", *pool as usize, pools.len())?;
    let start = match offset {
        Offset::Fixed(offset) => *offset,
        Offset::PerReplica(offsets) => {
            check_count(node, offsets.len(), replicas)?;
            offsets.iter().copied().max().unwrap_or(0)
        }
    };
    let last = u64::from(start) + u64::from(rows - 1) * u64::from(*stride);
    let len = pools[*pool as usize].len();
    if last >= (len as u64).min(MAX_ROWS) {
        return Err(SampleError::OutOfPool { node, pool: *pool as usize, last, len });
    }
    Ok(())
}

/// Whether a node differs between replicas by itself.
fn differs(program: &Program, node: usize, n: &Node) -> Result<bool, SampleError> {
    Ok(match n {
        Node::Draw { scope, .. } | Node::Index { scope, .. } => *scope == Scope::PerReplica,
        Node::ReplicaConst(values) => {
            check_count(node, values.len(), program.replicas)?;
            true
        }
        Node::Gather { offset, .. } => matches!(offset, Offset::PerReplica(_)),
        _ => false,
    })
}
