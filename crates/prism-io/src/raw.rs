//! The columns of a file, decoded but not yet checked.

use std::collections::HashMap;

use crate::error::{ColumnProblem, IoError};
use crate::violation::{Place, Rule, Violations};

/// Marks a text cell without a value.
pub(crate) const NO_TEXT: u32 = crate::op_table::NO_GROUP;

/// A column of a table of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    Step,
    Rank,
    Dp,
    Stage,
    Chunk,
    GlobalChunk,
    Microbatch,
    Seq,
    Start,
    Duration,
    End,
    Kind,
    Group,
}

/// What the cells of a column hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Integer,
    Real,
    Text,
}

/// Which names the columns go by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    Straggler,
    Native,
}

impl Field {
    pub(crate) const ALL: [Field; 13] = [
        Field::Step,
        Field::Rank,
        Field::Dp,
        Field::Stage,
        Field::Chunk,
        Field::GlobalChunk,
        Field::Microbatch,
        Field::Seq,
        Field::Start,
        Field::Duration,
        Field::End,
        Field::Kind,
        Field::Group,
    ];

    pub(crate) const fn class(self) -> Class {
        match self {
            Field::Start | Field::Duration | Field::End => Class::Real,
            Field::Kind | Field::Group => Class::Text,
            _ => Class::Integer,
        }
    }

    pub(crate) const fn name(self, dialect: Dialect) -> &'static str {
        let (straggler, native) = match self {
            Field::Step => ("step", "step"),
            Field::Rank => ("rank", "rank"),
            Field::Dp => ("dp_rank", "dp"),
            Field::Stage => ("stage", "stage"),
            Field::Chunk => ("mc", "chunk"),
            Field::GlobalChunk => ("gmc", "global_chunk"),
            Field::Microbatch => ("mb_id", "microbatch"),
            Field::Seq => ("seq_id", "seq"),
            Field::Start => ("start_ts", "start_s"),
            Field::Duration => ("duration", "duration_s"),
            Field::End => ("end_ts", "end_s"),
            Field::Kind => ("optype", "op_kind"),
            Field::Group => ("process_group", "process_group"),
        };
        match dialect {
            Dialect::Straggler => straggler,
            Dialect::Native => native,
        }
    }
}

/// A text column: distinct values and, per row, which one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Text {
    pub(crate) index: Vec<u32>,
    pub(crate) names: Vec<String>,
    seen: HashMap<Vec<u8>, u32>,
    last: Option<(Vec<u8>, u32)>,
}

impl Text {
    /// Appends a cell; `false` if it is not UTF-8 (a cell without a value is appended).
    pub(crate) fn push(&mut self, cell: &[u8]) -> bool {
        if let Some((bytes, id)) = &self.last
            && bytes == cell
        {
            self.index.push(*id);
            return true;
        }
        let id = if let Some(&id) = self.seen.get(cell) {
            id
        } else if let Ok(name) = std::str::from_utf8(cell) {
            let id = self.names.len() as u32;
            self.names.push(name.to_owned());
            self.seen.insert(cell.to_vec(), id);
            id
        } else {
            self.index.push(NO_TEXT);
            return false;
        };
        self.last = Some((cell.to_vec(), id));
        self.index.push(id);
        true
    }

    /// Appends a cell without a value.
    pub(crate) fn push_none(&mut self) {
        self.index.push(NO_TEXT);
    }
}

/// Decoded columns. Columns that the file lacks are empty options; the others have `rows` cells.
/// Rows marked `bad` have cells that broke a rule while decoding and hold placeholders.
#[derive(Clone, Debug)]
pub(crate) struct Raw {
    pub(crate) dialect: Dialect,
    pub(crate) rows: usize,
    /// Line of each row, for text files.
    pub(crate) lines: Option<Vec<u64>>,
    ints: [Option<Vec<i64>>; 8],
    reals: [Option<Vec<f64>>; 3],
    texts: [Option<Text>; 2],
    /// Starts and durations are single precision.
    pub(crate) single: bool,
    pub(crate) bad: Vec<bool>,
    /// Some row's step is unknown: any step may seem incomplete for that reason.
    pub(crate) lost_steps: bool,
}

impl Raw {
    pub(crate) fn new(dialect: Dialect) -> Self {
        Raw {
            dialect,
            rows: 0,
            lines: None,
            ints: Default::default(),
            reals: Default::default(),
            texts: Default::default(),
            single: false,
            bad: Vec::new(),
            lost_steps: false,
        }
    }

    /// Moves a column out.
    pub(crate) fn take_int(&mut self, field: Field) -> Option<Vec<i64>> {
        self.ints.get_mut(field as usize)?.take()
    }

    pub(crate) fn set_int(&mut self, field: Field, cells: Vec<i64>) {
        if let Some(slot) = self.ints.get_mut(field as usize) {
            *slot = Some(cells);
        }
    }

    /// Moves a column out.
    pub(crate) fn take_real(&mut self, field: Field) -> Option<Vec<f64>> {
        self.reals.get_mut((field as usize).wrapping_sub(Field::Start as usize))?.take()
    }

    pub(crate) fn set_real(&mut self, field: Field, cells: Vec<f64>) {
        let at = (field as usize).wrapping_sub(Field::Start as usize);
        if let Some(slot) = self.reals.get_mut(at) {
            *slot = Some(cells);
        }
    }

    /// Moves a column out.
    pub(crate) fn take_text(&mut self, field: Field) -> Option<Text> {
        self.texts.get_mut((field as usize).wrapping_sub(Field::Kind as usize))?.take()
    }

    pub(crate) fn set_text(&mut self, field: Field, cells: Text) {
        let at = (field as usize).wrapping_sub(Field::Kind as usize);
        if let Some(slot) = self.texts.get_mut(at) {
            *slot = Some(cells);
        }
    }

    /// Whether the file has this column, and it was not moved out.
    pub(crate) fn has(&self, field: Field) -> bool {
        let at = field as usize;
        let (start, kind) = (Field::Start as usize, Field::Kind as usize);
        match field.class() {
            Class::Integer => self.ints.get(at).is_some_and(Option::is_some),
            Class::Real => self.reals.get(at.wrapping_sub(start)).is_some_and(Option::is_some),
            Class::Text => self.texts.get(at.wrapping_sub(kind)).is_some_and(Option::is_some),
        }
    }

    /// Where row `i` is in the file.
    pub(crate) fn place(&self, i: usize) -> Place {
        match &self.lines {
            Some(lines) => lines.get(i).map_or(Place::File, |&l| Place::Line(l)),
            None => Place::Row(i as u64),
        }
    }

    /// The name of a column in this file.
    pub(crate) fn name(&self, field: Field) -> &'static str {
        field.name(self.dialect)
    }

    /// Records a violation of one cell and marks its row.
    pub(crate) fn spoil(
        &mut self,
        report: &mut Violations,
        rule: Rule,
        row: usize,
        found: impl FnOnce() -> String,
    ) {
        report.add(rule, self.place(row), found);
        if let Some(bad) = self.bad.get_mut(row) {
            *bad = true;
        }
    }
}

/// Which columns of a file are read, by position.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) dialect: Dialect,
    /// (field, position) of every column that is read.
    pub(crate) columns: Vec<(Field, usize)>,
    /// Names of columns that are not read.
    pub(crate) ignored: Vec<String>,
}

/// Finds the columns of a trace among `names`.
///
/// Needed are step, kind, start, duration, and rank or both dp and stage; what else is missing is
/// derived later, where it can be.
///
/// # Errors
/// [`IoError::Columns`] with everything that is missing or repeated.
pub(crate) fn layout(file: &str, names: &[String]) -> Result<Layout, IoError> {
    let has = |field: Field, d: Dialect| names.iter().any(|n| n == field.name(d));
    let native = has(Field::Kind, Dialect::Native)
        || (!has(Field::Kind, Dialect::Straggler) && has(Field::Start, Dialect::Native));
    let dialect = if native { Dialect::Native } else { Dialect::Straggler };
    let mut columns = Vec::new();
    let mut problems = Vec::new();
    for field in Field::ALL {
        let name = field.name(dialect);
        let mut at = names.iter().enumerate().filter(|(_, n)| *n == name).map(|(i, _)| i);
        if let Some(first) = at.next() {
            columns.push((field, first));
            if at.next().is_some() {
                problems.push(ColumnProblem::Repeated { column: name.to_owned() });
            }
        }
    }
    let found = |field: Field| columns.iter().any(|(f, _)| *f == field);
    let mut needed = vec![Field::Step, Field::Kind, Field::Start, Field::Duration];
    if !found(Field::Rank) {
        needed.extend([Field::Dp, Field::Stage]);
    }
    for field in needed.into_iter().filter(|f| !found(*f)) {
        problems.push(missing(field, dialect, names));
    }
    if !problems.is_empty() {
        return Err(IoError::Columns { file: file.to_owned(), problems });
    }
    let ignored = names
        .iter()
        .enumerate()
        .filter(|(i, _)| !columns.iter().any(|(_, at)| at == i))
        .map(|(i, n)| if n.is_empty() { format!("#{}", i + 1) } else { n.clone() })
        .collect();
    Ok(Layout { dialect, columns, ignored })
}

pub(crate) fn missing(field: Field, dialect: Dialect, names: &[String]) -> ColumnProblem {
    let column = field.name(dialect);
    let known = |n: &str| Field::ALL.iter().any(|f| f.name(dialect) == n);
    let candidates = names.iter().map(String::as_str).filter(|n| !known(n));
    let similar = nearest(column, candidates).map(str::to_owned);
    ColumnProblem::Missing { column: column.to_owned(), similar }
}

/// The candidate that looks most like `word`, if any is close: equal but for case and
/// punctuation, or within a third of its length in edits.
pub(crate) fn nearest<'a>(
    word: &str,
    candidates: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    let plain = |s: &str| -> Vec<char> {
        s.chars().take(64).filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
    };
    let target = plain(word);
    let limit = (target.len() / 3).max(1);
    candidates
        .map(|c| (strsim::generic_levenshtein(&target, &plain(c)), c))
        .filter(|(d, _)| *d <= limit && *d < target.len())
        .min_by_key(|(d, _)| *d)
        .map(|(_, c)| c)
}
