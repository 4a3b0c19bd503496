//! From decoded columns to rows: derives what a file leaves out, and checks every cell.

use std::collections::{BTreeMap, BTreeSet};

use prism_model::OpKind;

use crate::error::{ColumnProblem, IoError};
use crate::op_table::{JobMeta, NO_GROUP, OpRow};
use crate::raw::{Field, NO_TEXT, Raw, nearest};
use crate::violation::{Rule, Violations};

/// How far a recorded end may be from start plus duration, relative to the end (at least 1 s).
const END_TOLERANCE: f64 = 1e-6;

/// A row and where it was in the file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    pub(crate) row: OpRow,
    pub(crate) at: u32,
}

/// Checked cells as rows, in file order, without the rows that broke a rule.
pub(crate) struct Assembled {
    pub(crate) rows: Vec<Placed>,
    pub(crate) group_names: Vec<String>,
    /// Steps of rows that broke a rule: what else is wrong with them may follow from that.
    pub(crate) spoilt: BTreeSet<i64>,
}

/// Checks the cells and puts them together.
///
/// # Errors
/// [`IoError::Columns`] if a column is missing that can only be derived without interleaving.
pub(crate) fn assemble(
    file: &str,
    raw: &mut Raw,
    meta: &JobMeta,
    report: &mut Violations,
    warnings: &mut Vec<String>,
) -> Result<Assembled, IoError> {
    derivable(file, raw, meta)?;
    let step = raw.int(Field::Step).map(<[i64]>::to_vec).unwrap_or_default();
    let kind = kinds(raw, report);
    let cells = cells(raw, meta, report);
    let seq = narrow::<u32>(raw, Field::Seq, 0, report);
    let chunk = narrow::<i16>(raw, Field::Chunk, -1, report);
    let global_chunk = narrow::<i32>(raw, Field::GlobalChunk, -1, report);
    let microbatch = narrow::<i32>(raw, Field::Microbatch, -1, report);
    let times = times(raw, report);
    let group = raw.text(Field::Group);

    let mut rows = Vec::with_capacity(raw.rows);
    let mut spoilt = BTreeSet::new();
    for i in 0..raw.rows {
        if raw.bad[i] {
            spoilt.insert(step[i]);
            continue;
        }
        let (rank, dp, stage) = (cells.rank[i], cells.dp[i], cells.stage[i]);
        let chunk = chunk.as_ref().map_or_else(|| only_chunk(kind[i]), |c| c[i]);
        let row = OpRow {
            step: step[i],
            rank,
            dp,
            stage,
            chunk,
            global_chunk: global_chunk
                .as_ref()
                .map_or_else(|| global(kind[i], chunk, stage, meta), |g| g[i]),
            microbatch: microbatch.as_ref().map_or(-1, |m| m[i]),
            kind: kind[i],
            start_s: times.start[i],
            duration_s: times.duration[i],
            end_s: times.end[i],
            seq: seq.as_ref().map_or(0, |s| s[i]),
            group: group.map_or(NO_GROUP, |g| g.index[i]),
        };
        rows.push(Placed { row, at: i as u32 });
    }
    if seq.is_none() {
        number(&mut rows);
    }
    if microbatch.is_none() {
        for p in rows.iter_mut().filter(|p| p.row.kind.is_microbatch_compute()) {
            p.row.microbatch = i32::try_from(p.row.seq).unwrap_or(-1);
        }
    }
    let derived: Vec<String> = DERIVABLE
        .into_iter()
        .filter(|f| !raw.has(*f))
        .map(|f| format!("`{}`", raw.name(f)))
        .collect();
    if !derived.is_empty() {
        warnings.push(format!("{file}: derived the missing columns {}", derived.join(", ")));
    }
    let group_names = group.map(|g| g.names.clone()).unwrap_or_default();
    Ok(Assembled { rows, group_names, spoilt })
}

const DERIVABLE: [Field; 7] = [
    Field::Rank,
    Field::Dp,
    Field::Stage,
    Field::Seq,
    Field::Chunk,
    Field::GlobalChunk,
    Field::Microbatch,
];

/// With several chunks per stage, nothing says to which chunk and microbatch an operation belongs.
fn derivable(file: &str, raw: &Raw, meta: &JobMeta) -> Result<(), IoError> {
    if meta.vpp_size <= 1 {
        return Ok(());
    }
    let problems: Vec<ColumnProblem> = [Field::Chunk, Field::Microbatch]
        .into_iter()
        .filter(|f| !raw.has(*f))
        .map(|f| ColumnProblem::Missing { column: raw.name(f).to_owned(), similar: None })
        .collect();
    if problems.is_empty() {
        Ok(())
    } else {
        Err(IoError::Columns { file: file.to_owned(), problems })
    }
}

/// The chunk of an operation where stages have one chunk.
fn only_chunk(kind: OpKind) -> i16 {
    let belongs = kind.is_microbatch_compute()
        || matches!(kind, OpKind::ParamsAllGather | OpKind::GradsReduceScatter);
    if belongs { 0 } else { -1 }
}

/// Interleaving deals chunks out to stages in turn.
fn global(kind: OpKind, chunk: i16, stage: u16, meta: &JobMeta) -> i32 {
    if !kind.is_microbatch_compute() || chunk < 0 {
        return -1;
    }
    let global = i64::from(chunk) * i64::from(meta.pp_size) + i64::from(stage);
    i32::try_from(global).unwrap_or(-1)
}

/// Numbers the operations of each (step, rank, kind) by start.
fn number(rows: &mut [Placed]) {
    rows.sort_by(|a, b| {
        let key = |p: &Placed| (p.row.step, p.row.rank, p.row.kind);
        key(a).cmp(&key(b)).then(a.row.start_s.total_cmp(&b.row.start_s))
    });
    let mut last = None;
    let mut seq = 0;
    for p in rows {
        let key = Some((p.row.step, p.row.rank, p.row.kind));
        seq = if key == last { seq + 1 } else { 0 };
        last = key;
        p.row.seq = seq;
    }
}

/// A kind per row; rows of unknown kind are marked and hold a placeholder.
fn kinds(raw: &mut Raw, report: &mut Violations) -> Vec<OpKind> {
    let Some(text) = raw.text(Field::Kind) else { return Vec::new() };
    let known: Vec<Option<OpKind>> = text.names.iter().map(|n| n.parse().ok()).collect();
    // By name: the first row, and how many.
    let mut unknown: BTreeMap<u32, (usize, usize)> = BTreeMap::new();
    let mut bad = Vec::new();
    let mut kinds = Vec::with_capacity(text.index.len());
    for (row, &id) in text.index.iter().enumerate() {
        let kind = if id == NO_TEXT { Some(OpKind::Gc) } else { known[id as usize] };
        if kind.is_none() {
            unknown.entry(id).or_insert((row, 0)).1 += 1;
            bad.push(row);
        }
        kinds.push(kind.unwrap_or(OpKind::Gc));
    }
    for (id, (row, count)) in unknown {
        report.add(Rule::KnownKind, raw.place(row), || {
            let message = unknown_kind(&text.names[id as usize]);
            if count > 1 {
                format!("{message} (also in {} other rows)", count - 1)
            } else {
                message
            }
        });
    }
    for row in bad {
        raw.bad[row] = true;
    }
    kinds
}

fn unknown_kind(name: &str) -> String {
    let shown: String = name.chars().take(60).collect();
    match nearest(name, OpKind::RECORDED.into_iter().map(OpKind::as_str)) {
        Some(like) => format!("unknown kind `{shown}`, did you mean `{like}`?"),
        None => format!("unknown kind `{shown}`"),
    }
}

/// Narrows a column of integers; cells that do not fit, or are below `least`, are marked.
fn narrow<T: TryFrom<i64> + Default>(
    raw: &mut Raw,
    field: Field,
    least: i64,
    report: &mut Violations,
) -> Option<Vec<T>> {
    let cells = raw.int(field)?;
    let mut out = Vec::with_capacity(cells.len());
    let mut wrong = Vec::new();
    for (row, &v) in cells.iter().enumerate() {
        let narrow = if v < least { None } else { T::try_from(v).ok() };
        if narrow.is_none() {
            wrong.push((row, v));
        }
        out.push(narrow.unwrap_or_default());
    }
    let name = raw.name(field);
    for (row, v) in wrong {
        raw.spoil(report, Rule::Range, row, || format!("{name} is {v}"));
    }
    Some(out)
}

/// Where each row's operation ran.
struct Cells {
    rank: Vec<u32>,
    dp: Vec<u32>,
    stage: Vec<u16>,
}

/// Reads or derives rank, replica and stage.
fn cells(raw: &mut Raw, meta: &JobMeta, report: &mut Violations) -> Cells {
    let unit = u64::from(meta.tp_size.max(1)) * u64::from(meta.dsp_size.max(1));
    let replicas = u64::from(meta.dp_size.max(1));
    let rank = narrow::<u32>(raw, Field::Rank, 0, report);
    let dp = narrow::<u32>(raw, Field::Dp, 0, report);
    let stage = narrow::<u16>(raw, Field::Stage, 0, report);
    if let (None, Some(dp), Some(stage)) = (&rank, &dp, &stage) {
        let derived = dp.iter().zip(stage).map(|(&dp, &stage)| {
            let cell = u64::from(dp) + replicas * u64::from(stage);
            unit.checked_mul(cell).and_then(|r| i64::try_from(r).ok()).unwrap_or(-1)
        });
        let derived = derived.collect();
        let rank = derive::<u32>(raw, Field::Rank, derived, report);
        return Cells { rank, dp: dp.clone(), stage: stage.clone() };
    }
    let rank = rank.unwrap_or_else(|| vec![0; raw.rows]);
    let cell = |r: &u32| u64::from(*r) / unit;
    let dp = dp.unwrap_or_else(|| rank.iter().map(|r| (cell(r) % replicas) as u32).collect());
    let stage = stage.unwrap_or_else(|| {
        let derived = rank.iter().map(|r| (cell(r) / replicas) as i64).collect();
        derive::<u16>(raw, Field::Stage, derived, report)
    });
    Cells { rank, dp, stage }
}

fn derive<T: TryFrom<i64> + Default>(
    raw: &mut Raw,
    field: Field,
    cells: Vec<i64>,
    report: &mut Violations,
) -> Vec<T> {
    let mut out = Vec::with_capacity(cells.len());
    let name = raw.name(field);
    for (row, v) in cells.into_iter().enumerate() {
        let narrow = T::try_from(v);
        if narrow.is_err() {
            raw.spoil(report, Rule::Range, row, || format!("the derived {name} does not fit"));
        }
        out.push(narrow.unwrap_or_default());
    }
    out
}

/// Times in seconds, a cell per row.
struct Times {
    start: Vec<f64>,
    duration: Vec<f64>,
    end: Vec<f64>,
}

/// Checks times and finds ends: a recorded end if there is one, else start plus duration in the
/// precision of the file.
fn times(raw: &mut Raw, report: &mut Violations) -> Times {
    let column = |field| raw.real(field).map(<[f64]>::to_vec).unwrap_or_default();
    let (start, duration) = (column(Field::Start), column(Field::Duration));
    let single = raw.single;
    let sum = |s: f64, d: f64| if single { f64::from(s as f32 + d as f32) } else { s + d };
    let sums = start.iter().zip(&duration).map(|(s, d)| sum(*s, *d));
    let end: Vec<f64> = match raw.real(Field::End) {
        Some(end) => end.to_vec(),
        None => sums.collect(),
    };
    for row in 0..raw.rows {
        let (s, d, e) = (start[row], duration[row], end[row]);
        let fine = s >= 0.0 && d >= 0.0 && e.is_finite();
        if !fine {
            for (field, v) in [(Field::Start, s), (Field::Duration, d), (Field::End, e)] {
                check_time(raw, report, row, field, v);
            }
        } else if (e - (s + d)).abs() > END_TOLERANCE * e.abs().max(1.0) {
            raw.spoil(report, Rule::EndAgrees, row, || {
                format!("end is {e} s, start {s} s and duration {d} s")
            });
        }
    }
    Times { start, duration, end }
}

/// Reports a time that cannot be. A derived end is only reported if its summands are fine.
fn check_time(raw: &mut Raw, report: &mut Violations, row: usize, field: Field, v: f64) {
    let name = raw.name(field);
    if field == Field::End && !raw.has(Field::End) {
        if !v.is_finite() && !raw.bad[row] {
            raw.spoil(report, Rule::Finite, row, || "start plus duration overflows".to_owned());
        }
    } else if !v.is_finite() {
        raw.spoil(report, Rule::Finite, row, || format!("{name} is {v}"));
    } else if v < 0.0 {
        raw.spoil(report, Rule::NotNegative, row, || format!("{name} is {v} s"));
    }
}
