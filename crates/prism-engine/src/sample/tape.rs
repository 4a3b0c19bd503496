//! The compiled form of a program, and its data.

use std::ops::Range;

use prism_stats::counter::Key;
use prism_stats::quantile_table::QuantileTable;

use super::check::{check_constant, check_count, check_gather, valid_rows};
use super::error::SampleError;
use super::program::{Index, Node, PoolId, TableId, Value};
use super::simd::PreparedTable;

/// Set in a [`Ins`] field whose entry has a variant per replica.
pub(crate) const PER_REPLICA: u32 = 1 << 31;
/// Bits of an operand that number the slot; the bank is above them.
pub(crate) const SLOT_BITS: u32 = 28;

/// Operation codes. Fused ones add `3 * starts + factors` to their base.
pub(crate) mod op {
    /// Forms of a fused operation: 0 to 2 starts, 0 to 2 factors.
    pub(crate) const FORMS: u32 = 9;
    pub(crate) const DRAW: u32 = 0;
    /// A draw whose table has a jump.
    pub(crate) const DRAW_SCALED: u32 = DRAW + FORMS;
    pub(crate) const GATHER: u32 = DRAW_SCALED + FORMS;
    pub(crate) const INDEX: u32 = GATHER + FORMS;
    pub(crate) const INDEX_ALIAS: u32 = INDEX + 1;
    pub(crate) const MAP_INDEX: u32 = INDEX + 2;
    pub(crate) const ADD: u32 = INDEX + 3;
    pub(crate) const SUB: u32 = INDEX + 4;
    pub(crate) const MUL: u32 = INDEX + 5;
    pub(crate) const MAX: u32 = INDEX + 6;
    pub(crate) const MIN: u32 = INDEX + 7;
    pub(crate) const MUL_ADD: u32 = INDEX + 8;
    pub(crate) const MAX_ADD: u32 = INDEX + 9;
    pub(crate) const SELECT: u32 = INDEX + 10;
    pub(crate) const STEP: u32 = INDEX + 11;
    pub(crate) const SPLAT: u32 = INDEX + 12;
    pub(crate) const LOAD_BLOCK: u32 = INDEX + 13;
    pub(crate) const FOLD_MAX: u32 = INDEX + 14;
    pub(crate) const FOLD_SUM: u32 = INDEX + 15;
    pub(crate) const OUTPUT: u32 = INDEX + 16;
    pub(crate) const COUNT: usize = OUTPUT as usize + 1;
}

/// One instruction. Operands are bank and slot; what `aux` and `data` mean depends on the code.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Ins {
    pub(crate) op: u32,
    pub(crate) out: u32,
    pub(crate) a: u32,
    pub(crate) b: u32,
    /// Factors of a fused operation, third operand of others.
    pub(crate) f: [u32; 2],
    /// Entry of the scalars.
    pub(crate) scalar: u32,
    /// Draw, gather, map, block size or output.
    pub(crate) aux: u32,
    /// Table of a draw, law of an index.
    pub(crate) data: u32,
}

/// Where a scalar comes from: the product of a constant and a replica constant, either optional.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ScalarSource {
    pub(crate) constant: Option<u32>,
    pub(crate) replica_constant: Option<u32>,
    /// First entry in [`Tape::scalars`].
    pub(crate) first: u32,
}

/// A gather, bound to its pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GatherSpec {
    pub(crate) pool: u32,
    pub(crate) stride: u32,
    /// First entry in [`Tape::offsets`], with [`PER_REPLICA`].
    pub(crate) offset: u32,
}

/// The law of an index.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct IndexLaw {
    pub(crate) rows: u32,
    /// Alias method: below the threshold the row itself, else its alias. Empty where uniform.
    pub(crate) threshold: Vec<u32>,
    pub(crate) alias: Vec<u32>,
}

impl IndexLaw {
    /// Builds the law of `rows` rows, or of weights by Vose's alias method.
    pub(crate) fn new(rows: u32, weights: Option<&[f64]>) -> Self {
        let Some(weights) = weights else {
            return Self { rows, threshold: Vec::new(), alias: Vec::new() };
        };
        let n = weights.len();
        let total: f64 = weights.iter().sum();
        let mut share: Vec<f64> = weights.iter().map(|w| w / total * n as f64).collect();
        let mut alias: Vec<u32> = (0..rows).collect();
        let mut threshold = vec![u32::MAX; n];
        let (mut small, mut large): (Vec<usize>, Vec<usize>) =
            (0..n).partition(|&i| share[i] < 1.0);
        while let (Some(s), Some(&l)) = (small.pop(), large.last()) {
            threshold[s] = (share[s] * 4_294_967_296.0) as u32;
            alias[s] = l as u32;
            share[l] -= 1.0 - share[s];
            if share[l] < 1.0 {
                large.pop();
                small.push(l);
            }
        }
        Self { rows, threshold, alias }
    }
}

/// An output: its name and whether it has a row per replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OutputSpec {
    pub(crate) name: String,
    pub(crate) per_replica: bool,
}

/// A compiled program: instructions, and the data they read.
///
/// A tape is cheap to run again with other data: [`Tape::set_constant`], [`Tape::set_table`],
/// [`Tape::set_pool`] and their kin change numbers without recompiling, and draws stay the same, so
/// that results differ only by what was changed.
#[derive(Clone, Debug)]
pub struct Tape {
    pub(crate) replicas: u32,
    /// Samples per block.
    pub(crate) width: usize,
    pub(crate) ins: Vec<Ins>,
    /// Ranges of `ins`, shared and per replica alternating.
    pub(crate) parts: Vec<Range<usize>>,
    /// Slots per bank: shared, scratch, kept (per replica).
    pub(crate) slots: [u32; 3],
    pub(crate) draws: Vec<Key>,
    pub(crate) scalar_sources: Vec<ScalarSource>,
    pub(crate) scalars: Vec<f32>,
    pub(crate) gathers: Vec<GatherSpec>,
    /// Node of each gather.
    pub(crate) gather_nodes: Vec<u32>,
    pub(crate) offsets: Vec<u32>,
    pub(crate) maps: Vec<Vec<u32>>,
    pub(crate) laws: Vec<IndexLaw>,
    /// Per index node that is computed, its law.
    pub(crate) law_of: Vec<(u32, u32)>,
    pub(crate) tables: Vec<PreparedTable>,
    pub(crate) pools: Vec<Vec<f32>>,
    pub(crate) outputs: Vec<OutputSpec>,
    /// Node of each output.
    pub(crate) output_nodes: Vec<u32>,
    /// The program's nodes: data to change and bounds to check.
    pub(crate) nodes: Vec<Node>,
    /// Constants made by the compiler, by node number.
    pub(crate) made_constants: Vec<(u32, f32)>,
}

impl Tape {
    /// Length of the replica axis.
    pub fn replicas(&self) -> u32 {
        self.replicas
    }

    /// Instructions per sample, counting those per replica once per replica.
    pub fn work(&self) -> usize {
        let each = |(i, part): (usize, &Range<usize>)| {
            part.len() * if i % 2 == 1 { self.replicas as usize } else { 1 }
        };
        self.parts.iter().enumerate().map(each).sum()
    }

    /// Samples per block. Results do not depend on it.
    pub fn block_width(&self) -> usize {
        self.width
    }

    /// Names of the outputs, in the order they were given.
    pub fn output_names(&self) -> impl Iterator<Item = &str> {
        self.outputs.iter().map(|o| o.name.as_str())
    }

    /// Changes a constant.
    ///
    /// # Errors
    /// [`SampleError::NotSettable`], [`SampleError::NotFinite`].
    pub fn set_constant(&mut self, value: Value, to: f32) -> Result<(), SampleError> {
        let node = value.0 as usize;
        check_constant(node, &[to])?;
        match self.nodes.get_mut(node) {
            Some(Node::Const(c)) => *c = to,
            _ => return Err(SampleError::NotSettable { node, expected: "constant" }),
        }
        self.refresh_scalars(Some(value.0));
        Ok(())
    }

    /// Changes a constant per replica.
    ///
    /// # Errors
    /// [`SampleError::NotSettable`], [`SampleError::ReplicaCount`], [`SampleError::NotFinite`].
    pub fn set_replica_constant(&mut self, value: Value, to: &[f32]) -> Result<(), SampleError> {
        let node = value.0 as usize;
        check_constant(node, to)?;
        check_count(node, to.len(), self.replicas)?;
        match self.nodes.get_mut(node) {
            Some(Node::ReplicaConst(c)) => c.copy_from_slice(to),
            _ => return Err(SampleError::NotSettable { node, expected: "replica constant" }),
        }
        self.refresh_scalars(Some(value.0));
        Ok(())
    }

    /// Changes a law.
    ///
    /// # Errors
    /// [`SampleError::Unknown`].
    pub fn set_table(&mut self, id: TableId, table: &QuantileTable) -> Result<(), SampleError> {
        let count = self.tables.len();
        let Some(slot) = self.tables.get_mut(id.0 as usize) else {
            let node = self.nodes.len();
            return Err(SampleError::Unknown { node, kind: "table", id: id.0 as usize, count });
        };
        *slot = PreparedTable::new(table);
        self.refresh_draws(Some(id.0));
        Ok(())
    }

    /// Changes a pool. It may have another length as long as every gather stays within it.
    ///
    /// # Errors
    /// [`SampleError::Unknown`], [`SampleError::OutOfPool`]; the pool is then unchanged.
    pub fn set_pool(&mut self, id: PoolId, values: &[f32]) -> Result<(), SampleError> {
        let count = self.pools.len();
        let Some(slot) = self.pools.get_mut(id.0 as usize) else {
            let node = self.nodes.len();
            return Err(SampleError::Unknown { node, kind: "pool", id: id.0 as usize, count });
        };
        if slot.len() == values.len() {
            slot.copy_from_slice(values);
            return Ok(());
        }
        let before = std::mem::replace(slot, values.to_vec());
        let checked = self.check_gathers();
        if checked.is_err() {
            self.pools[id.0 as usize] = before;
        }
        checked
    }

    /// Changes the number of rows of a uniform index, or the weights of a weighted one.
    ///
    /// # Errors
    /// [`SampleError::NotSettable`], [`SampleError::BadRows`], and what the gathers over the index
    /// then violate; the index is then unchanged.
    pub fn set_rows(&mut self, index: Index, law: Rows<'_>) -> Result<(), SampleError> {
        let node = index.0 as usize;
        let (new_rows, new_weights) = match law {
            Rows::Uniform(rows) => (rows, None),
            Rows::Weights(w) => (u32::try_from(w.len()).unwrap_or(0), Some(w)),
        };
        if !valid_rows(new_rows, new_weights) {
            return Err(SampleError::BadRows { node });
        }
        let Some(Node::Index { rows, weights, .. }) = self.nodes.get_mut(node) else {
            return Err(SampleError::NotSettable { node, expected: "drawn index" });
        };
        if weights.is_some() != new_weights.is_some() {
            let expected = if weights.is_some() { "uniform index" } else { "weighted index" };
            return Err(SampleError::NotSettable { node, expected });
        }
        let before = (std::mem::replace(rows, new_rows), weights.take());
        *weights = new_weights.map(<[f64]>::to_vec);
        let checked = self.check_gathers();
        if checked.is_err() {
            if let Some(Node::Index { rows, weights, .. }) = self.nodes.get_mut(node) {
                (*rows, *weights) = before;
            }
            return checked;
        }
        for &(id, law) in &self.law_of {
            if id == index.0 {
                self.laws[law as usize] = IndexLaw::new(new_rows, new_weights);
            }
        }
        Ok(())
    }

    /// Recomputes the scalars that depend on a node, or all.
    pub(crate) fn refresh_scalars(&mut self, changed: Option<u32>) {
        for source in &self.scalar_sources {
            let depends = |id: Option<u32>| changed.is_none() || (id.is_some() && id == changed);
            if !depends(source.constant) && !depends(source.replica_constant) {
                continue;
            }
            let c = source.constant.map_or(1.0, |id| self.constant(id));
            let first = source.first as usize;
            match source.replica_constant.map(|id| &self.nodes[id as usize]) {
                Some(Node::ReplicaConst(values)) => {
                    for (out, v) in self.scalars[first..].iter_mut().zip(values) {
                        *out = c * v;
                    }
                }
                _ => self.scalars[first] = c,
            }
        }
    }

    fn constant(&self, id: u32) -> f32 {
        match self.nodes.get(id as usize) {
            Some(Node::Const(c)) => *c,
            _ => self.made_constants.iter().find(|m| m.0 == id).map_or(1.0, |m| m.1),
        }
    }

    /// Chooses the instruction of draws from a table, or of all draws: aligned tables need another.
    pub(crate) fn refresh_draws(&mut self, table: Option<u32>) {
        for ins in &mut self.ins {
            if ins.op < op::GATHER && table.is_none_or(|t| t == ins.data) {
                let form = ins.op % op::FORMS;
                let scaled = self.tables[ins.data as usize].scaled;
                ins.op = form + if scaled { op::DRAW_SCALED } else { op::DRAW };
            }
        }
    }

    /// Checks every gather against the present rows and pools.
    fn check_gathers(&self) -> Result<(), SampleError> {
        let mut rows: Vec<u32> = Vec::with_capacity(self.nodes.len());
        for (id, node) in self.nodes.iter().enumerate() {
            rows.push(match node {
                Node::Index { rows, .. } => *rows,
                Node::MapIndex { index, map } => {
                    let needed = rows[*index as usize];
                    if map.len() < needed as usize {
                        let found = map.len();
                        return Err(SampleError::ShortMap { node: id, found, rows: needed });
                    }
                    map.iter().copied().max().unwrap_or(0) + 1
                }
                Node::Select { a, b, .. } => rows[*a as usize].max(rows[*b as usize]),
                Node::Gather { index, .. } => {
                    check_gather(id, node, rows[*index as usize], self.replicas, &self.pools)?;
                    0
                }
                _ => 0,
            });
        }
        Ok(())
    }
}

/// The law of a drawn row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rows<'a> {
    /// Every row of `0..n` alike.
    Uniform(u32),
    /// In proportion to these weights.
    Weights(&'a [f64]),
}
