//! A slow, obvious interpreter of programs, in double precision, one sample at a time.

use prism_stats::counter::{Stream, position, row};

use crate::sample::program::{Binary, Node, Offset, Reduction};
use crate::sample::{Program, Scope};

/// The word of a draw. Pairs share a counter, and the second of a pair has bit 31 flipped.
fn word(seed: u64, key: prism_stats::Key, replica: Option<u32>, sample: u64, pairs: bool) -> u32 {
    let stream = Stream::new(seed, key);
    let stream = replica.map_or(stream, |r| stream.replica(r));
    if !pairs {
        return stream.epoch((sample >> 32) as u32).word(sample as u32);
    }
    let pair = sample / 32 * 16 + sample % 16;
    let flip = if sample % 32 < 16 { 0 } else { 0x8000_0000 };
    stream.epoch((pair >> 32) as u32).word(pair as u32) ^ flip
}

/// The row of a weighted law: its cumulated weights hold every row's share, so only shares are
/// comparable with the alias method; weighted indices are tested apart.
fn draw_row(rows: u32, weights: Option<&[f64]>, word: u32) -> u32 {
    assert!(weights.is_none(), "weighted indices are tested by their shares");
    assert_eq!(row(word, rows), ((u64::from(position(word)) * u64::from(rows)) >> 32) as u32);
    row(word, rows)
}

/// All outputs of one sample: `[output][replica]`.
pub(super) fn evaluate(program: &Program, seed: u64, sample: u64, pairs: bool) -> Vec<Vec<f64>> {
    let replicas = program.replicas as usize;
    let mut values: Vec<Vec<f64>> = Vec::new();
    for node in &program.nodes {
        let row = (0..replicas).map(|r| one(program, node, &values, r, (seed, sample, pairs)));
        let row = row.collect();
        values.push(row);
    }
    program.outputs.iter().map(|(_, id)| values[*id as usize].clone()).collect()
}

fn one(
    program: &Program,
    node: &Node,
    values: &[Vec<f64>],
    r: usize,
    (seed, sample, pairs): (u64, u64, bool),
) -> f64 {
    let v = |id: &u32| values[*id as usize][r];
    let all = |id: &u32| values[*id as usize].iter().copied();
    let random = |key, scope| {
        word(seed, key, (scope == Scope::PerReplica).then_some(r as u32), sample, pairs)
    };
    match node {
        Node::Const(c) => f64::from(*c),
        Node::ReplicaConst(c) => f64::from(c[r]),
        Node::Draw { table, key, scope } => {
            f64::from(program.tables[*table as usize].value(random(*key, *scope)))
        }
        Node::Index { rows, key, scope, weights } => {
            f64::from(draw_row(*rows, weights.as_deref(), random(*key, *scope)))
        }
        Node::MapIndex { index, map } => f64::from(map[v(index) as usize]),
        Node::Gather { pool, index, stride, offset } => {
            let offset = match offset {
                Offset::Fixed(o) => *o,
                Offset::PerReplica(o) => o[r],
            };
            let entry = offset as usize + v(index) as usize * *stride as usize;
            f64::from(program.pools[*pool as usize][entry])
        }
        Node::Binary(op, a, b) => match op {
            Binary::Add => v(a) + v(b),
            Binary::Sub => v(a) - v(b),
            Binary::Mul => v(a) * v(b),
            Binary::Max => v(a).max(v(b)),
            Binary::Min => v(a).min(v(b)),
        },
        Node::MulAdd(a, b, c) => v(a) * v(b) + v(c),
        Node::Select { condition, threshold, a, b } => {
            if v(condition) >= f64::from(*threshold) {
                v(a)
            } else {
                v(b)
            }
        }
        Node::Step { value, threshold } => f64::from(u8::from(v(value) >= f64::from(*threshold))),
        Node::Sync { value, block } => {
            let block = *block as usize;
            all(value).skip(r / block * block).take(block).fold(f64::NEG_INFINITY, f64::max)
        }
        Node::Reduce(Reduction::Max, value) => all(value).fold(f64::NEG_INFINITY, f64::max),
        Node::Reduce(Reduction::Sum, value) => all(value).sum(),
        Node::Sum(list) => list.iter().map(v).sum(),
    }
}
