//! Checks of the rows together: keys, order, completeness, agreement with the metadata, units.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use prism_model::OpKind;

use crate::op_table::OpTable;
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
    pub(crate) table: &'a OpTable,
    /// Position in the file of each row.
    pub(crate) at: &'a [u32],
    pub(crate) raw: &'a Raw,
    /// Steps with broken rows: not judged on completeness.
    pub(crate) spoilt: BTreeSet<i64>,
}

impl Checked<'_> {
    fn place(&self, i: usize) -> Place {
        self.raw.place(self.at[i] as usize)
    }

    /// Sizes in the metadata are those of the rows.
    pub(crate) fn meta(&self, report: &mut Violations) {
        let (t, meta) = (self.table, &self.table.meta);
        let stages = t.stage.iter().max().map(|s| u32::from(*s));
        let sizes = [
            ("dp_size", meta.dp_size, "dp", t.dp.iter().max().copied()),
            ("pp_size", meta.pp_size, "stage", stages),
        ];
        // Where rows were lost, too few are left to tell.
        let all = self.spoilt.is_empty() && !self.raw.lost_steps;
        for (key, size, column, max) in sizes {
            let Some(max) = max.filter(|m| *m >= size || (all && m + 1 < size)) else { continue };
            report.add(Rule::MetaAgrees, Place::Meta, || {
                format!("{key} is {size}, but {column} in the rows goes from 0 to {max}")
            });
        }
        self.within(report, "rank", "world_size", meta.world_size.into(), &t.rank);
        self.within(report, "chunk", "vpp_size", meta.vpp_size.into(), &t.chunk);
        let chunks = i64::from(meta.vpp_size) * i64::from(meta.pp_size);
        self.within(report, "global chunk", "vpp_size * pp_size", chunks, &t.global_chunk);
    }

    /// Reports the rows, once per value, whose value is not below a size. A size of zero has been
    /// reported itself.
    fn within<T: Copy + Into<i64>>(
        &self,
        report: &mut Violations,
        what: &str,
        key: &str,
        size: i64,
        cells: &[T],
    ) {
        let mut seen = BTreeSet::new();
        for (i, &cell) in cells.iter().enumerate() {
            let v = cell.into();
            if v >= size && size > 0 && seen.insert(v) {
                report.add(Rule::MetaAgrees, self.place(i), || {
                    format!("{what} {v} is not below {key} {size}")
                });
            }
        }
    }

    /// A rank is one cell and a cell one rank. Warns where ranks are not Megatron's.
    pub(crate) fn placement(&mut self, report: &mut Violations, warnings: &mut Vec<String>) {
        let t = self.table;
        let mut by_rank: BTreeMap<u32, (u32, u16)> = BTreeMap::new();
        let mut by_cell: BTreeMap<(u32, u16), u32> = BTreeMap::new();
        let mut moved = Vec::new();
        let mut last = None;
        for i in 0..t.len() {
            let (rank, cell) = (t.rank[i], (t.dp[i], t.stage[i]));
            if last == Some((rank, cell)) {
                continue;
            }
            last = Some((rank, cell));
            let first = *by_rank.entry(rank).or_insert(cell);
            if first != cell {
                report.add(Rule::RankPlacement, self.place(i), || {
                    format!("rank {rank} is {}, elsewhere {}", name_cell(cell), name_cell(first))
                });
                moved.push(t.step[i]);
                continue;
            }
            let first = *by_cell.entry(cell).or_insert(rank);
            if first != rank {
                report.add(Rule::RankPlacement, self.place(i), || {
                    format!("{} is rank {rank}, elsewhere rank {first}", name_cell(cell))
                });
                moved.push(t.step[i]);
            }
        }
        self.spoilt.extend(moved);
        let m = &t.meta;
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

    /// Whether rows `i - 1` and `i` are of one kind on one rank in one step.
    fn together(&self, i: usize) -> bool {
        let t = self.table;
        (t.step[i - 1], t.rank[i - 1], t.kind[i - 1]) == (t.step[i], t.rank[i], t.kind[i])
    }

    /// Keys are unique.
    pub(crate) fn keys(&mut self, report: &mut Violations) {
        let t = self.table;
        for i in 1..t.len() {
            if self.together(i) && t.seq[i - 1] == t.seq[i] {
                self.spoilt.insert(t.step[i]);
                let (at, first) = (self.place(i), self.place(i - 1));
                report.add(Rule::UniqueKey, at, || {
                    let (step, rank, kind, seq) = (t.step[i], t.rank[i], t.kind[i], t.seq[i]);
                    format!("step {step}, rank {rank}, {kind}, seq {seq}: also {first}")
                });
            }
        }
    }

    /// Starts ascend with seq.
    pub(crate) fn order(&self, report: &mut Violations) {
        let t = self.table;
        for i in 1..t.len() {
            if t.start_s[i] < t.start_s[i - 1] && self.together(i) && t.seq[i - 1] != t.seq[i] {
                let (a, b) = (t.row(i - 1), t.row(i));
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
        let cells = Cells::of(&runs);
        let mut out = Vec::new();
        for step in runs.chunk_by(|a, b| a.step == b.step) {
            let id = step[0].step;
            if self.spoilt.contains(&id) {
                continue;
            }
            let mut deviations = cells.missing(step, self.place(step[0].first));
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
        let t = self.table;
        let mut runs: Vec<Run> = Vec::new();
        for i in 0..t.len() {
            let cell = (t.dp[i], t.stage[i]);
            match runs.last_mut() {
                Some(last) if i > 0 && self.together(i) && (last.dp, last.stage) == cell => {
                    last.count += 1;
                }
                _ => runs.push(Run {
                    step: t.step[i],
                    rank: t.rank[i],
                    dp: cell.0,
                    stage: cell.1,
                    kind: t.kind[i],
                    first: i,
                    count: 1,
                }),
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
            let seq = &self.table.seq[run.first..run.first + run.count as usize];
            let place = self.place(run.first);
            if run.count != most {
                let text = format!("{name}: {} {}, usually {most}", run.count, run.kind);
                out.push((place, text));
            } else if let Some((gap, _)) = (0_u32..).zip(seq).find(|(want, seq)| *want != **seq) {
                out.push((place, format!("{name}: {} seq {gap} is missing", run.kind)));
            }
        }
        for (kind, most) in expected.into_iter().flatten() {
            if *most > 0 && !cell.iter().any(|r| r.kind == *kind) {
                out.push((self.place(cell[0].first), format!("{name}: no {kind}, usually {most}")));
            }
        }
    }

    /// The rows of each step.
    fn steps(&self) -> impl Iterator<Item = Range<usize>> {
        let mut from = 0;
        self.table.step.chunk_by(|a, b| a == b).map(move |step| {
            let rows = from..from + step.len();
            from = rows.end;
            rows
        })
    }

    /// Each step begins at zero.
    pub(crate) fn origin(&self, report: &mut Violations, skip: &BTreeSet<i64>) {
        let t = self.table;
        for rows in self.steps() {
            let id = t.step[rows.start];
            let earliest = rows.min_by(|&a, &b| t.start_s[a].total_cmp(&t.start_s[b]));
            let Some(row) = earliest else { continue };
            let start = t.start_s[row];
            if start > ORIGIN_TOLERANCE_S && !self.spoilt.contains(&id) && !skip.contains(&id) {
                report.add(Rule::StepOrigin, self.place(row), || {
                    format!("the earliest operation of step {id} starts at {start} s")
                });
            }
        }
    }

    /// Times look like seconds.
    pub(crate) fn units(&self, report: &mut Violations, warnings: &mut Vec<String>) {
        let t = self.table;
        let span = |rows: Range<usize>| {
            let first = t.start_s[rows.clone()].iter().copied().fold(f64::INFINITY, f64::min);
            t.end_s[rows].iter().copied().fold(0.0, f64::max) - first
        };
        let Some(step) = median(self.steps().map(span).collect()) else { return };
        if !(SHORTEST_STEP_S..=LONGEST_STEP_S).contains(&step) {
            report.add(Rule::Seconds, Place::File, || format!("the median step lasts {step} s"));
            return;
        }
        let computes = t.kind.iter().zip(&t.duration_s);
        let computes = computes.filter(|(k, _)| k.is_microbatch_compute()).map(|(_, d)| *d);
        let compute = median(computes.collect()).unwrap_or(0.0);
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

/// What cells there are.
struct Cells {
    replicas: BTreeSet<u32>,
    stages: BTreeSet<u16>,
    ranks: BTreeMap<(u32, u16), u32>,
}

impl Cells {
    /// Those that occur in any step.
    fn of(runs: &[Run]) -> Self {
        Cells {
            replicas: runs.iter().map(|r| r.dp).collect(),
            stages: runs.iter().map(|r| r.stage).collect(),
            ranks: runs.iter().map(|r| ((r.dp, r.stage), r.rank)).collect(),
        }
    }

    /// Cells that a step lacks; at most a few are named.
    fn missing(&self, step: &[Run], place: Place) -> Vec<(Place, String)> {
        const NAMED: usize = 4;
        let present: BTreeSet<(u32, u16)> = step.iter().map(|r| (r.dp, r.stage)).collect();
        let missing = (self.replicas.len() * self.stages.len()).saturating_sub(present.len());
        if missing == 0 {
            return Vec::new();
        }
        let stages = || self.stages.iter().copied();
        let pairs = self.replicas.iter().flat_map(|&dp| stages().map(move |stage| (dp, stage)));
        let name = |cell| match self.ranks.get(&cell) {
            Some(rank) => format!("no operation of rank {rank} {}", name_cell(cell)),
            None => format!("no operation of {}", name_cell(cell)),
        };
        let mut out: Vec<(Place, String)> = pairs
            .filter(|cell| !present.contains(cell))
            .take(NAMED)
            .map(|cell| (place, name(cell)))
            .collect();
        if missing > out.len() {
            out.push((place, format!("no operation of {} more cells", missing - out.len())));
        }
        out
    }
}

fn name_cell((dp, stage): (u32, u16)) -> String {
    format!("(dp {dp}, stage {stage})")
}

/// The middle value (the upper of two).
fn median(mut values: Vec<f64>) -> Option<f64> {
    let middle = values.len() / 2;
    if values.is_empty() {
        return None;
    }
    Some(*values.select_nth_unstable_by(middle, f64::total_cmp).1)
}
