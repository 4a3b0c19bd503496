//! A columnar table of observed operations.

use std::collections::BTreeMap;

use prism_model::OpKind;
use serde::{Deserialize, Serialize};

/// Marks a row of [`OpTable::group`] that belongs to no recorded process group.
pub const NO_GROUP: u32 = u32::MAX;

/// The plan of the job that a trace records, as its metadata states it.
///
/// `world_size = dp * dsp * pp * tp`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobMeta {
    /// Name of the trial.
    pub trial_name: String,
    /// Which run of the trial.
    pub run_id: i64,
    /// Data-parallel replicas.
    pub dp_size: u32,
    /// Further split of the data-parallel dimension (sequence or context parallel), usually 1.
    pub dsp_size: u32,
    /// Pipeline stages.
    pub pp_size: u32,
    /// Tensor-parallel ranks.
    pub tp_size: u32,
    /// Model chunks per stage (virtual pipeline), 1 without interleaving.
    pub vpp_size: u32,
    /// All ranks.
    pub world_size: u32,
}

/// Where a table came from; goes into the provenance of what is computed from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// File name as given, `-` for standard input, or a description for synthetic data.
    pub name: String,
    /// SHA-256 of the content in lower-case hex; empty for synthetic data.
    pub sha256: String,
    /// Size in bytes.
    pub bytes: u64,
}

/// One observed operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OpRow {
    /// Training step id.
    pub step: i64,
    /// Global rank.
    pub rank: u32,
    /// Data-parallel replica, from 0.
    pub dp: u32,
    /// Pipeline stage, from 0.
    pub stage: u16,
    /// Model chunk within the stage, -1 where there is none.
    pub chunk: i16,
    /// Global model chunk, -1 where there is none.
    pub global_chunk: i32,
    /// Microbatch, -1 where there is none.
    pub microbatch: i32,
    /// What the operation does.
    pub kind: OpKind,
    /// Start, seconds since the step's earliest start.
    pub start_s: f64,
    /// Duration, seconds.
    pub duration_s: f64,
    /// End, seconds. Kept apart from `start_s + duration_s`, since single-precision files define
    /// it by a single-precision sum.
    pub end_s: f64,
    /// Order among operations of one kind on one rank in one step, from 0 by start.
    pub seq: u32,
    /// Index into [`OpTable::group_names`], or [`NO_GROUP`].
    pub group: u32,
}

/// Observed operations of a job, one row an operation, stored by column.
///
/// All columns have the same length. Rows are sorted by (step, rank, kind, seq), which is unique.
/// Times are seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct OpTable {
    /// Training step ids.
    pub step: Vec<i64>,
    /// Global ranks.
    pub rank: Vec<u32>,
    /// Data-parallel replicas.
    pub dp: Vec<u32>,
    /// Pipeline stages.
    pub stage: Vec<u16>,
    /// Model chunks within the stage, -1 where there is none.
    pub chunk: Vec<i16>,
    /// Global model chunks, -1 where there is none.
    pub global_chunk: Vec<i32>,
    /// Microbatches, -1 where there is none.
    pub microbatch: Vec<i32>,
    /// Kinds of operation.
    pub kind: Vec<OpKind>,
    /// Starts, seconds since the step's earliest start.
    pub start_s: Vec<f64>,
    /// Durations, seconds.
    pub duration_s: Vec<f64>,
    /// Ends, seconds.
    pub end_s: Vec<f64>,
    /// Order among operations of one kind on one rank in one step.
    pub seq: Vec<u32>,
    /// Process groups: indices into `group_names`, or [`NO_GROUP`].
    pub group: Vec<u32>,
    /// Names of process groups.
    pub group_names: Vec<String>,
    /// The plan.
    pub meta: JobMeta,
    /// Files this came from.
    pub sources: Vec<Source>,
}

impl OpTable {
    /// Number of operations.
    pub fn len(&self) -> usize {
        self.step.len()
    }

    /// Whether the table has no operation.
    pub fn is_empty(&self) -> bool {
        self.step.is_empty()
    }

    /// Row `i`.
    ///
    /// # Panics
    /// If `i` is not below [`OpTable::len`].
    pub fn row(&self, i: usize) -> OpRow {
        OpRow {
            step: self.step[i],
            rank: self.rank[i],
            dp: self.dp[i],
            stage: self.stage[i],
            chunk: self.chunk[i],
            global_chunk: self.global_chunk[i],
            microbatch: self.microbatch[i],
            kind: self.kind[i],
            start_s: self.start_s[i],
            duration_s: self.duration_s[i],
            end_s: self.end_s[i],
            seq: self.seq[i],
            group: self.group[i],
        }
    }

    /// All rows in order.
    pub fn rows(&self) -> impl Iterator<Item = OpRow> + '_ {
        (0..self.len()).map(|i| self.row(i))
    }

    /// Distinct step ids, ascending.
    pub fn steps(&self) -> Vec<i64> {
        let mut steps = self.step.clone();
        steps.dedup();
        steps.sort_unstable();
        steps.dedup();
        steps
    }

    /// Global ranks by (replica, stage).
    pub fn ranks(&self) -> BTreeMap<(u32, u16), u32> {
        let mut ranks = BTreeMap::new();
        let mut last = None;
        for ((&dp, &stage), &rank) in self.dp.iter().zip(&self.stage).zip(&self.rank) {
            if last != Some((dp, stage)) {
                last = Some((dp, stage));
                ranks.entry((dp, stage)).or_insert(rank);
            }
        }
        ranks
    }

    /// The rows of the steps for which `keep` is true.
    #[must_use]
    pub fn filter_steps(&self, keep: impl Fn(i64) -> bool) -> OpTable {
        let rows: Vec<u32> =
            (0..self.len()).filter(|&i| keep(self.step[i])).map(|i| i as u32).collect();
        self.gather(&rows)
    }

    /// The rows at these positions, in this order.
    pub(crate) fn gather(&self, rows: &[u32]) -> OpTable {
        fn pick<T: Copy>(cells: &[T], rows: &[u32]) -> Vec<T> {
            rows.iter().map(|&i| cells[i as usize]).collect()
        }
        OpTable {
            step: pick(&self.step, rows),
            rank: pick(&self.rank, rows),
            dp: pick(&self.dp, rows),
            stage: pick(&self.stage, rows),
            chunk: pick(&self.chunk, rows),
            global_chunk: pick(&self.global_chunk, rows),
            microbatch: pick(&self.microbatch, rows),
            kind: pick(&self.kind, rows),
            start_s: pick(&self.start_s, rows),
            duration_s: pick(&self.duration_s, rows),
            end_s: pick(&self.end_s, rows),
            seq: pick(&self.seq, rows),
            group: pick(&self.group, rows),
            group_names: self.group_names.clone(),
            meta: self.meta.clone(),
            sources: self.sources.clone(),
        }
    }
}

/// Collects rows into an [`OpTable`].
#[derive(Clone, Debug)]
pub struct OpTableBuilder {
    rows: Vec<OpRow>,
    meta: JobMeta,
    /// Names that [`OpRow::group`] refers to.
    pub group_names: Vec<String>,
    /// Files the rows came from.
    pub sources: Vec<Source>,
}

impl OpTableBuilder {
    /// No rows yet.
    pub fn new(meta: JobMeta) -> Self {
        OpTableBuilder { rows: Vec::new(), meta, group_names: Vec::new(), sources: Vec::new() }
    }

    /// Adds a row.
    pub fn push(&mut self, row: OpRow) {
        self.rows.push(row);
    }

    /// Sorts the rows by (step, rank, kind, seq) and lays them out by column.
    pub fn finish(mut self) -> OpTable {
        self.rows.sort_by_key(|r| (r.step, r.rank, r.kind, r.seq));
        let rows = &self.rows;
        OpTable {
            step: rows.iter().map(|r| r.step).collect(),
            rank: rows.iter().map(|r| r.rank).collect(),
            dp: rows.iter().map(|r| r.dp).collect(),
            stage: rows.iter().map(|r| r.stage).collect(),
            chunk: rows.iter().map(|r| r.chunk).collect(),
            global_chunk: rows.iter().map(|r| r.global_chunk).collect(),
            microbatch: rows.iter().map(|r| r.microbatch).collect(),
            kind: rows.iter().map(|r| r.kind).collect(),
            start_s: rows.iter().map(|r| r.start_s).collect(),
            duration_s: rows.iter().map(|r| r.duration_s).collect(),
            end_s: rows.iter().map(|r| r.end_s).collect(),
            seq: rows.iter().map(|r| r.seq).collect(),
            group: rows.iter().map(|r| r.group).collect(),
            group_names: self.group_names,
            meta: self.meta,
            sources: self.sources,
        }
    }
}
