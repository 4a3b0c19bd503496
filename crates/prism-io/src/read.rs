//! Reading a table of operations from any of the formats.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::assemble::{Assembled, Placed, assemble};
use crate::check::{Checked, DroppedStep};
use crate::error::IoError;
use crate::meta::{self, ReadMeta, meta_candidates};
use crate::native;
use crate::op_table::{JobMeta, OpTable, OpTableBuilder, Source};
use crate::options::ReadOptions;
use crate::raw::{Dialect, Raw};
use crate::source::{self, Content};
use crate::violation::Violations;
use crate::{csv_read, parquet_read};

/// A table as read, and what there is to say about it.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The operations.
    pub table: OpTable,
    /// Steps left out because they were incomplete, ascending.
    pub dropped: Vec<DroppedStep>,
    /// What looked odd but was read all the same.
    pub warnings: Vec<String>,
}

/// Reads a table of operations; `-` is standard input.
///
/// The format is told by content, not by name: Parquet (native, or the straggler format), or CSV
/// with the same columns, either of them also inside gzip. Metadata is inside a native file;
/// otherwise it is YAML, [`ReadOptions::meta`] or else the first of [`meta_candidates`] that
/// exists.
///
/// Every row is checked; see [`crate::Rule`].
///
/// # Errors
/// [`IoError::Invalid`] lists every violation of the content. The other variants say why the
/// content could not be judged.
pub fn read_op_table(path: &Path, options: &ReadOptions) -> Result<Loaded, IoError> {
    let file = source::name(path);
    let bytes = source::slurp(path, options.limits)?;
    let mut beside = |needed: bool| match &options.meta {
        Some(given) => {
            let bytes = source::slurp(given, options.limits)?;
            Ok(Some((source::name(given), bytes)))
        }
        None if needed => find_meta(path, options).map(Some),
        None => Ok(None),
    };
    read(&file, bytes, &mut beside, options)
}

/// Reads a table of operations from memory. `name` stands for the file in messages; `meta` is the
/// name and content of its YAML metadata, which [`ReadOptions::meta`] is not asked for.
///
/// # Errors
/// As [`read_op_table`].
pub fn read_op_table_bytes(
    name: &str,
    bytes: &[u8],
    meta: Option<(&str, &[u8])>,
    options: &ReadOptions,
) -> Result<Loaded, IoError> {
    let mut beside = |needed: bool| match meta {
        Some((name, bytes)) => Ok(Some((name.to_owned(), bytes.to_vec()))),
        None if needed => {
            Err(IoError::MetaMissing { file: name.to_owned(), looked_for: Vec::new() })
        }
        None => Ok(None),
    };
    read(name, bytes.to_vec(), &mut beside, options)
}

fn find_meta(path: &Path, options: &ReadOptions) -> Result<(String, Vec<u8>), IoError> {
    let candidates = if source::is_stdio(path) { Vec::new() } else { meta_candidates(path) };
    match candidates.iter().find(|c| c.is_file()) {
        Some(found) => Ok((source::name(found), source::slurp(found, options.limits)?)),
        None => Err(IoError::MetaMissing {
            file: source::name(path),
            looked_for: candidates.iter().map(|c| source::name(c)).collect(),
        }),
    }
}

/// Gives the metadata file; the argument says whether there must be one.
type Beside<'a> = &'a mut dyn FnMut(bool) -> Result<Option<(String, Vec<u8>)>, IoError>;

fn read(
    file: &str,
    bytes: Vec<u8>,
    beside: Beside<'_>,
    options: &ReadOptions,
) -> Result<Loaded, IoError> {
    let mut report = Violations::new(file);
    let mut warnings = Vec::new();
    let mut sources = vec![source::source(file, &bytes)];
    let (content, bytes) = source::unwrap(file, bytes, options.limits)?;
    let (mut raw, ignored, keys) = match content {
        Content::Parquet => {
            let t = parquet_read::read(file, &bytes.into(), options.limits, &mut report)?;
            (t.raw, t.ignored, t.keys)
        }
        Content::Csv => {
            let t = csv_read::read(file, &bytes, options.limits, &mut report)?;
            (t.raw, t.ignored, BTreeMap::new())
        }
    };
    if raw.rows == 0 {
        return Err(IoError::Empty { file: file.to_owned(), what: "no rows" });
    }
    if !ignored.is_empty() {
        warnings.push(format!("{file}: columns not read: {}", quoted(&ignored)));
    }
    let meta = metadata(file, &raw, &keys, beside, &mut sources, &mut warnings)?;
    meta::check(&meta, &mut report);
    let assembled = assemble(file, &mut raw, &meta, &mut report, &mut warnings)?;
    finish(assembled, &raw, meta, sources, report, warnings, options)
}

/// The metadata inside the file, or beside it.
fn metadata(
    file: &str,
    raw: &Raw,
    keys: &BTreeMap<String, String>,
    beside: Beside<'_>,
    sources: &mut Vec<Source>,
    warnings: &mut Vec<String>,
) -> Result<JobMeta, IoError> {
    let inside = if raw.dialect == Dialect::Native { keys.get(native::META_KEY) } else { None };
    let (name, ReadMeta { meta, unknown }) = match (beside(inside.is_none())?, inside) {
        (Some((name, bytes)), _) => {
            sources.push(source::source(&name, &bytes));
            let read = meta::from_yaml(&name, &bytes)?;
            (name, read)
        }
        (None, Some(json)) => (file.to_owned(), meta::from_json(file, json)?),
        (None, None) => {
            return Err(IoError::MetaMissing { file: file.to_owned(), looked_for: Vec::new() });
        }
    };
    if !unknown.is_empty() {
        warnings.push(format!("{name}: keys not read: {}", quoted(&unknown)));
    }
    Ok(meta)
}

fn quoted(names: &[String]) -> String {
    const SHOWN: usize = 10;
    let mut text: Vec<String> = names.iter().take(SHOWN).map(|n| format!("`{n}`")).collect();
    if names.len() > SHOWN {
        text.push(format!("and {} more", names.len() - SHOWN));
    }
    text.join(", ")
}

/// Checks the rows together, drops incomplete steps where that is allowed, and builds the table.
fn finish(
    mut assembled: Assembled,
    raw: &Raw,
    meta: JobMeta,
    sources: Vec<Source>,
    mut report: Violations,
    mut warnings: Vec<String>,
    options: &ReadOptions,
) -> Result<Loaded, IoError> {
    assembled.rows.sort_by_key(|Placed { row: r, .. }| (r.step, r.rank, r.kind, r.seq));
    let mut checked = Checked {
        rows: &assembled.rows,
        raw,
        meta: &meta,
        spoilt: std::mem::take(&mut assembled.spoilt),
    };
    checked.meta(&mut report);
    checked.placement(&mut report, &mut warnings);
    checked.keys(&mut report);
    checked.order(&mut report);
    let incomplete = if raw.lost_steps { Vec::new() } else { checked.incomplete() };
    let drop: BTreeSet<i64> = incomplete.iter().map(|i| i.step).collect();
    if !raw.lost_steps {
        checked.origin(&mut report, &drop);
    }
    checked.units(&mut report, &mut warnings);
    let mut dropped = Vec::new();
    for step in incomplete {
        if options.allow_incomplete {
            dropped.push(step.dropped());
        } else {
            step.report(&mut report);
        }
    }
    if !report.is_empty() {
        return Err(IoError::Invalid(Box::new(report)));
    }
    let table = build(&assembled, meta, sources, &drop);
    if table.is_empty() {
        let dropped = dropped.len();
        return Err(IoError::NoCompleteStep { file: report.file, dropped });
    }
    Ok(Loaded { table, dropped, warnings })
}

/// The table of the steps that are kept. Process groups are numbered as they occur in it.
fn build(
    assembled: &Assembled,
    meta: JobMeta,
    sources: Vec<Source>,
    drop: &BTreeSet<i64>,
) -> OpTable {
    let mut builder = OpTableBuilder::new(meta);
    builder.sources = sources;
    let mut renumbered: Vec<Option<u32>> = vec![None; assembled.group_names.len()];
    for placed in &assembled.rows {
        let mut row = placed.row;
        if drop.contains(&row.step) {
            continue;
        }
        let slot = usize::try_from(row.group).ok().and_then(|g| renumbered.get_mut(g));
        if let Some(slot) = slot {
            let name = &assembled.group_names[row.group as usize];
            row.group = *slot.get_or_insert_with(|| {
                builder.group_names.push(name.clone());
                builder.group_names.len() as u32 - 1
            });
        }
        builder.push(row);
    }
    builder.finish()
}
