//! Checks of the rows together: keys, order, completeness, agreement with the metadata, units.

use std::collections::{BTreeMap, BTreeSet};

use prism_model::OpKind;

use crate::assemble::Placed;
use crate::op_table::JobMeta;
use crate::raw::Raw;
use crate::violation::{Place, Rule, Violations};

/// Starts of a step begin at zero, to this accuracy, in seconds.
const ORIGIN_TOLERANCE_S: f64 = 1e-6;
/// No training step is longer than this, in seconds; in milliseconds, most are.
const LONGEST_STEP_S: f64 = 1e4;
/// Few training steps are longer than this, in seconds.
const LONG_STEP_S: f64 = 1e3;
/// No training step is shorter than this, in seconds.
const SHORTEST_STEP_S: f64 = 1e-6;
/// Few microbatches compute longer than this in one pass through one chunk, in seconds.
const LONG_COMPUTE_S: f64 = 20.0;

/// A step left out of a table, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DroppedStep {
    /// The step's id.
    pub step: i64,
    /// What it lacks.
    pub reason: String,
}

/// Rows to check, sorted by (step, rank, kind, seq), and the file they are from.
pub(crate) struct Checked<'a> {
    pub(crate) rows: &'a [Placed],
    pub(crate) raw: &'a Raw,
    pub(crate) meta: &'a JobMeta,
    /// Steps with broken rows: not judged on completeness.
    pub(crate) spoilt: BTreeSet<i64>,
}

impl Checked<'_> {
    fn place(&self, i: usize) -> Place {
        self.raw.place(self.rows[i].at as usize)
    }

    /// Sizes in the metadata are those of the rows.
    pub(crate) fn meta(&self, report: &mut Violations) {
        let sizes = [
            ("dp_size", self.meta.dp_size, "dp", self.rows.iter().map(|p| p.row.dp).max()),
            (
                "pp_size",
                self.meta.pp_size,
                "stage",
                self.rows.iter().map(|p| u32::from(p.row.stage)).max(),
            ),
        ];
        for (key, size, column, max) in sizes {
            let Some(max) = max else { continue };
            if u64::from(max) + 1 != u64::from(size) {
                report.add(Rule::MetaAgrees, Place::Meta, || {
                    format!("{key} is {size}, but {column} in the rows goes from 0 to {max}")
                });
            }
        }
        self.within(report, "rank", "world_size", self.meta.world_size.into(), |p| {
            p.row.rank.into()
        });
        self.within(report, "chunk", "vpp_size", self.meta.vpp_size.into(), |p| p.row.chunk.into());
        let chunks = i64::from(self.meta.vpp_size) * i64::from(self.meta.pp_size);
        self.within(report, "global chunk", "vpp_size * pp_size", chunks, |p| {
            p.row.global_chunk.into()
        });
    }

    /// Reports the rows, once per value, whose value is not below a size.
    fn within(
        &self,
        report: &mut Violations,
        what: &str,
        key: &str,
        size: i64,
        value: impl Fn(&Placed) -> i64,
    ) {
        let mut seen = BTreeSet::new();
        for (i, p) in self.rows.iter().enumerate() {
            let v = value(p);
            if v >= size && seen.insert(v) {
                report.add(Rule::MetaAgrees, self.place(i), || {
                    format!("{what} {v} is not below {key} {size}")
                });
            }
        }
    }

    /// A rank is one cell and a cell one rank. Warns where ranks are not Megatron's.
    pub(crate) fn placement(&self, report: &mut Violations, warnings: &mut Vec<String>) {
        let mut by_rank: BTreeMap<u32, (u32, u16)> = BTreeMap::new();
        let mut by_cell: BTreeMap<(u32, u16), u32> = BTreeMap::new();
        let mut last = None;
        for (i, p) in self.rows.iter().enumerate() {
            let (rank, cell) = (p.row.rank, (p.row.dp, p.row.stage));
            if last == Some((rank, cell)) {
                continue;
            }
            last = Some((rank, cell));
            let first = *by_rank.entry(rank).or_insert(cell);
            if first != cell {
                report.add(Rule::RankPlacement, self.place(i), || {
                    format!("rank {rank} is {}, elsewhere {}", name_cell(cell), name_cell(first))
                });
                continue;
            }
            let first = *by_cell.entry(cell).or_insert(rank);
            if first != rank {
                report.add(Rule::RankPlacement, self.place(i), || {
                    format!("{} is rank {rank}, elsewhere rank {first}", name_cell(cell))
                });
            }
        }
        let m = self.meta;
        let unit = u64::from(m.tp_size) * u64::from(m.dsp_size);
        let odd = by_rank.iter().find(|&(&rank, &(dp, stage))| {
            let cell = u64::from(dp) + u64::from(m.dp_size) * u64::from(stage);
            unit.checked_mul(cell) != Some(u64::from(rank))
        });
        if let Some((rank, cell)) = odd {
            warnings.push(format!(
                "{}: rank {rank} is {}, not where Megatron's order of ranks puts it",
                report.file,
                name_cell(*cell)
            ));
        }
    }

    /// Keys are unique.
    pub(crate) fn keys(&mut self, report: &mut Violations) {
        let mut twice = Vec::new();
        for i in 1..self.rows.len() {
            let (a, b) = (&self.rows[i - 1].row, &self.rows[i].row);
            if (a.step, a.rank, a.kind, a.seq) != (b.step, b.rank, b.kind, b.seq) {
                continue;
            }
            twice.push(b.step);
            report.add(Rule::UniqueKey, self.place(i), || {
                let first = self.place(i - 1);
                format!("step {}, rank {}, {}, seq {}: also {first}", b.step, b.rank, b.kind, b.seq)
            });
        }
        self.spoilt.extend(twice);
    }

    /// Starts ascend with seq.
    pub(crate) fn order(&self, report: &mut Violations) {
        for i in 1..self.rows.len() {
            let (a, b) = (&self.rows[i - 1].row, &self.rows[i].row);
            let together = (a.step, a.rank, a.kind) == (b.step, b.rank, b.kind);
            if together && a.seq != b.seq && b.start_s < a.start_s {
                report.add(Rule::SequenceOrder, self.place(i), || {
                    format!(
                        "step {}, rank {}, {}: seq {} starts at {} s, seq {} before it at {} s",
                        b.step, b.rank, b.kind, b.seq, b.start_s, a.seq, a.start_s
                    )
                });
            }
        }
    }

    /// Steps that lack operations or cells, or have more than most, each with its deviations.
    pub(crate) fn incomplete(&self) -> Vec<Incomplete> {
        let runs = self.runs();
        let usual = usual(&runs);
        let cells = all_cells(&runs);
        let mut out = Vec::new();
        for step in runs.chunk_by(|a, b| a.step == b.step) {
            let id = step[0].step;
            if self.spoilt.contains(&id) {
                continue;
            }
            let mut deviations = missing_cells(step, &cells, self.place(step[0].first));
            for cell in step.chunk_by(|a, b| (a.rank, a.dp, a.stage) == (b.rank, b.dp, b.stage)) {
                self.deviations(cell, &usual, &mut deviations);
            }
            if !deviations.is_empty() {
                out.push(Incomplete { step: id, deviations });
            }
        }
        out
    }

    /// Maximal stretches of rows of one kind on one rank in one step.
    fn runs(&self) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for (i, p) in self.rows.iter().enumerate() {
            let r = &p.row;
            let next = Run {
                step: r.step,
                rank: r.rank,
                dp: r.dp,
                stage: r.stage,
                kind: r.kind,
                first: i,
                count: 1,
            };
            match runs.last_mut() {
                Some(last) if last.same(&next) => last.count += 1,
                _ => runs.push(next),
            }
        }
        runs
    }

    /// What one cell of one step has too little or too much of.
    fn deviations(&self, cell: &[Run], usual: &Usual, out: &mut Vec<(Place, String)>) {
        let stage = cell[0].stage;
        let expected = usual.get(&stage);
        let name = format!("rank {} {}", cell[0].rank, name_cell((cell[0].dp, stage)));
        for run in cell {
            let most = expected.and_then(|e| e.get(&run.kind)).copied().unwrap_or(0);
            let rows = &self.rows[run.first..run.first + run.count as usize];
            let place = self.place(run.first);
            if run.count != most {
                let text = format!("{name}: {} {}, usually {most}", run.count, run.kind);
                out.push((place, text));
            } else if let Some(gap) = (0_u32..).zip(rows).find(|(want, p)| p.row.seq != *want) {
                out.push((place, format!("{name}: {} seq {} is missing", run.kind, gap.0)));
            }
        }
        for (kind, most) in expected.into_iter().flatten() {
            if *most > 0 && !cell.iter().any(|r| r.kind == *kind) {
                out.push((self.place(cell[0].first), format!("{name}: no {kind}, usually {most}")));
            }
        }
    }

    /// Each step begins at zero.
    pub(crate) fn origin(&self, report: &mut Violations, skip: &BTreeSet<i64>) {
        for step in self.rows.chunk_by(|a, b| a.row.step == b.row.step) {
            let id = step[0].row.step;
            let first = step.iter().min_by(|a, b| a.row.start_s.total_cmp(&b.row.start_s));
            let Some(first) = first else { continue };
            let start = first.row.start_s;
            if start > ORIGIN_TOLERANCE_S && !self.spoilt.contains(&id) && !skip.contains(&id) {
                report.add(Rule::StepOrigin, self.raw.place(first.at as usize), || {
                    format!("the earliest operation of step {id} starts at {start} s")
                });
            }
        }
    }

    /// Times look like seconds.
    pub(crate) fn units(&self, report: &mut Violations, warnings: &mut Vec<String>) {
        let span = |step: &[Placed]| {
            let first = step.iter().map(|p| p.row.start_s).fold(f64::INFINITY, f64::min);
            step.iter().map(|p| p.row.end_s).fold(0.0, f64::max) - first
        };
        let mut spans: Vec<f64> =
            self.rows.chunk_by(|a, b| a.row.step == b.row.step).map(span).collect();
        let Some(step) = median(&mut spans) else { return };
        if !(SHORTEST_STEP_S..=LONGEST_STEP_S).contains(&step) {
            report.add(Rule::Seconds, Place::File, || format!("the median step lasts {step} s"));
            return;
        }
        let mut computes: Vec<f64> = self
            .rows
            .iter()
            .filter(|p| p.row.kind.is_microbatch_compute())
            .map(|p| p.row.duration_s)
            .collect();
        let compute = median(&mut computes).unwrap_or(0.0);
        if step > LONG_STEP_S || compute > LONG_COMPUTE_S {
            warnings.push(format!(
                "{}: the median step lasts {step} s and the median pass of a microbatch through a \
                 chunk {compute} s; are these seconds?",
                report.file
            ));
        }
    }
}

/// A step that is not like the others.
pub(crate) struct Incomplete {
    pub(crate) step: i64,
    /// Never empty.
    deviations: Vec<(Place, String)>,
}

impl Incomplete {
    pub(crate) fn report(self, report: &mut Violations) {
        for (place, text) in self.deviations {
            report.add(Rule::CompleteStep, place, || format!("step {}: {text}", self.step));
        }
    }

    pub(crate) fn dropped(self) -> DroppedStep {
        let more = self.deviations.len().saturating_sub(1);
        let mut reason = self.deviations.into_iter().next().map(|(_, t)| t).unwrap_or_default();
        if more > 0 {
            reason = format!("{reason} (and {more} more)");
        }
        DroppedStep { step: self.step, reason }
    }
}

#[derive(Clone, Copy)]
struct Run {
    step: i64,
    rank: u32,
    dp: u32,
    stage: u16,
    kind: OpKind,
    first: usize,
    count: u32,
}

impl Run {
    fn same(&self, o: &Run) -> bool {
        (self.step, self.rank, self.dp, self.stage, self.kind)
            == (o.step, o.rank, o.dp, o.stage, o.kind)
    }
}

/// How many operations of a kind a cell of a stage usually has in a step.
type Usual = BTreeMap<u16, BTreeMap<OpKind, u32>>;

/// The most frequent count, over steps and replicas; of equally frequent ones, the largest.
fn usual(runs: &[Run]) -> Usual {
    let mut visits: BTreeMap<u16, u64> = BTreeMap::new();
    for cell in runs.chunk_by(|a, b| (a.step, a.rank, a.stage) == (b.step, b.rank, b.stage)) {
        *visits.entry(cell[0].stage).or_default() += 1;
    }
    let mut counts: BTreeMap<(u16, OpKind), BTreeMap<u32, u64>> = BTreeMap::new();
    for run in runs {
        *counts.entry((run.stage, run.kind)).or_default().entry(run.count).or_default() += 1;
    }
    let mut out = Usual::new();
    for ((stage, kind), mut by_count) in counts {
        let present: u64 = by_count.values().sum();
        let absent = visits.get(&stage).map_or(0, |v| v.saturating_sub(present));
        by_count.insert(0, absent);
        let most = by_count.into_iter().max_by_key(|&(count, n)| (n, count)).map_or(0, |(c, _)| c);
        out.entry(stage).or_default().insert(kind, most);
    }
    out
}

/// Replicas and stages that occur anywhere.
fn all_cells(runs: &[Run]) -> (BTreeSet<u32>, BTreeSet<u16>) {
    (runs.iter().map(|r| r.dp).collect(), runs.iter().map(|r| r.stage).collect())
}

/// Cells that a step lacks; at most a few are named.
fn missing_cells(
    step: &[Run],
    (replicas, stages): &(BTreeSet<u32>, BTreeSet<u16>),
    place: Place,
) -> Vec<(Place, String)> {
    const NAMED: usize = 4;
    let present: BTreeSet<(u32, u16)> = step.iter().map(|r| (r.dp, r.stage)).collect();
    let missing = (replicas.len() * stages.len()).saturating_sub(present.len());
    if missing == 0 {
        return Vec::new();
    }
    let pairs = replicas.iter().flat_map(|dp| stages.iter().map(move |stage| (*dp, *stage)));
    let mut out: Vec<(Place, String)> = pairs
        .filter(|cell| !present.contains(cell))
        .take(NAMED)
        .map(|cell| (place, format!("no operation of {}", name_cell(cell))))
        .collect();
    if missing > out.len() {
        out.push((place, format!("no operation of {} more cells", missing - out.len())));
    }
    out
}

fn name_cell((dp, stage): (u32, u16)) -> String {
    format!("(dp {dp}, stage {stage})")
}

/// The middle value (the upper of two).
fn median(values: &mut [f64]) -> Option<f64> {
    let middle = values.len() / 2;
    if values.is_empty() {
        return None;
    }
    Some(*values.select_nth_unstable_by(middle, f64::total_cmp).1)
}
