//! Recorded times, aligned with a graph.

use std::collections::{BTreeMap, BTreeSet};

use prism_io::OpTable;
use prism_model::OpKind;

use crate::{GraphError, Op, OpId, StepGraph};

/// Start, end and duration of every recorded operation in every step and replica.
///
/// A sample is a (step, replica) pair, at index `step * replicas + replica`; values of one
/// operation are contiguous. Operations that are never recorded (barriers) have no values.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    steps: Vec<i64>,
    replicas: u32,
    recorded: Vec<bool>,
    start: Vec<f64>,
    end: Vec<f64>,
    duration: Vec<f64>,
}

impl Observed {
    /// Sorts a table's rows into the graph's operations.
    ///
    /// # Errors
    /// [`GraphError::Missing`], [`GraphError::Unknown`] or [`GraphError::Repeated`] if some step
    /// of some replica does not have exactly the graph's operations.
    pub fn align(graph: &StepGraph, table: &OpTable) -> Result<Observed, GraphError> {
        let steps = table.steps();
        let replicas = graph.replicas();
        // With at least as many rows as there are values, none is missing unless another one is
        // unknown or repeated.
        if let Some(missing) = first_missing(graph, table, &steps) {
            return Err(missing);
        }
        let samples = steps.len() * replicas as usize;
        let ops = graph.ops().len();
        let mut observed = Observed {
            recorded: graph.ops().iter().map(|op| op.kind != OpKind::Barrier).collect(),
            start: vec![f64::NAN; ops * samples],
            end: vec![f64::NAN; ops * samples],
            duration: vec![f64::NAN; ops * samples],
            steps,
            replicas,
        };
        let mut filled = vec![false; ops * samples];
        let mut lookup = Lookup { graph, steps: &observed.steps, at: 0, step: 0 };
        for row in 0..table.len() {
            let Some((id, step)) = lookup.row(table, row) else {
                return Err(unknown(table, row));
            };
            let sample = step * replicas as usize + table.dp[row] as usize;
            let at = id.0 as usize * samples + sample;
            if std::mem::replace(&mut filled[at], true) {
                let op = graph.ops()[id.0 as usize].clone();
                let (step, replica) = (table.step[row], table.dp[row]);
                return Err(GraphError::Repeated { op, step, replica });
            }
            observed.start[at] = table.start_s[row];
            observed.end[at] = table.end_s[row];
            observed.duration[at] = table.duration_s[row];
        }
        Ok(observed)
    }

    /// Training step ids, ascending.
    pub fn steps(&self) -> &[i64] {
        &self.steps
    }

    /// Data-parallel replicas.
    pub fn replicas(&self) -> u32 {
        self.replicas
    }

    /// Steps times replicas: the length of each operation's values.
    pub fn samples(&self) -> usize {
        self.steps.len() * self.replicas as usize
    }

    /// Operations of the graph, recorded or not.
    pub fn ops(&self) -> usize {
        self.recorded.len()
    }

    /// Starts of `op`, seconds since the step's earliest start; `None` for a barrier.
    pub fn start(&self, op: OpId) -> Option<&[f64]> {
        self.lane(&self.start, op)
    }

    /// Ends of `op`, seconds since the step's earliest start; `None` for a barrier.
    pub fn end(&self, op: OpId) -> Option<&[f64]> {
        self.lane(&self.end, op)
    }

    /// Durations of `op`, seconds, waiting included; `None` for a barrier.
    pub fn duration(&self, op: OpId) -> Option<&[f64]> {
        self.lane(&self.duration, op)
    }

    fn lane<'a>(&self, values: &'a [f64], op: OpId) -> Option<&'a [f64]> {
        let at = op.0 as usize;
        self.recorded[at].then(|| crate::evaluate::lane(values, op, self.samples()))
    }
}

/// If the table has too few rows: an operation that is missing in the first incomplete cell.
fn first_missing(graph: &StepGraph, table: &OpTable, steps: &[i64]) -> Option<GraphError> {
    let recorded = || graph.ops().iter().filter(|op| op.kind != OpKind::Barrier);
    let ops = recorded().count();
    let cells = steps.len().saturating_mul(graph.replicas() as usize);
    if table.len() >= ops.saturating_mul(cells) {
        return None;
    }
    let mut seen: BTreeMap<(i64, u32), BTreeSet<_>> = BTreeMap::new();
    for row in table.rows() {
        seen.entry((row.step, row.dp)).or_default().insert((row.stage, row.kind, row.seq));
    }
    // Too few rows for all cells: one of the first `len + 1` cells is incomplete.
    let cells = steps.iter().flat_map(|&step| (0..graph.replicas()).map(move |dp| (step, dp)));
    for (step, replica) in cells {
        let here = seen.get(&(step, replica));
        let missing = recorded()
            .find(|op| here.is_none_or(|keys| !keys.contains(&crate::step_graph::key(op))));
        if let Some(op) = missing {
            return Some(GraphError::Missing { op: op.clone(), step, replica });
        }
    }
    None
}

fn unknown(table: &OpTable, row: usize) -> GraphError {
    let r = table.row(row);
    GraphError::Unknown {
        op: Op {
            kind: r.kind,
            stage: r.stage,
            chunk: r.chunk,
            microbatch: r.microbatch,
            seq: r.seq,
        },
        step: r.step,
        replica: r.dp,
    }
}

/// Finds operation and step of a row; rows in table order are found without a search.
struct Lookup<'a> {
    graph: &'a StepGraph,
    steps: &'a [i64],
    /// Position in the graph's key order after the row before.
    at: usize,
    /// Step index of the row before.
    step: usize,
}

impl Lookup<'_> {
    fn row(&mut self, table: &OpTable, row: usize) -> Option<(OpId, usize)> {
        if table.dp[row] >= self.graph.replicas() {
            return None;
        }
        if self.steps[self.step] != table.step[row] {
            self.step = self.steps.binary_search(&table.step[row]).ok()?;
        }
        let key = (table.stage[row], table.kind[row], table.seq[row]);
        let key_at = |at: usize| {
            let id = *self.graph.by_key.get(at)?;
            Some((id, crate::step_graph::key(&self.graph.ops()[id.0 as usize])))
        };
        let id = match key_at(self.at) {
            Some((id, k)) if k == key => id,
            _ => {
                self.at = self
                    .graph
                    .by_key
                    .binary_search_by_key(&key, |id| {
                        crate::step_graph::key(&self.graph.ops()[id.0 as usize])
                    })
                    .ok()?;
                self.graph.by_key[self.at]
            }
        };
        self.at += 1;
        Some((id, self.step))
    }
}
