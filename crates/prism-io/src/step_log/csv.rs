//! Tables of step times.

use std::borrow::Cow;
use std::str::FromStr;

use super::line::{Line, LineFormat};
use super::sink::{Over, Read, Repeats, Sink, Wall};
use super::{PauseKind, StepLogOptions};
use crate::error::{ColumnProblem, Foreign, IoError};
use crate::raw::nearest;
use crate::violation::{Place, Rule};

/// Names of the column of step ids; the first that is there counts.
const STEP: [&str; 3] = ["step", "iteration", "step_idx"];
/// Names of the column of times, and seconds in its unit.
const TIME: [(&str, f64); 4] =
    [("step_s", 1.0), ("step_time_s", 1.0), ("step_time_ms", 1e-3), ("elapsed_ms", 1e-3)];
/// Names of the columns that together name the system.
const SYSTEM: [&str; 4] = ["round", "submitter", "system", "bench"];
/// Columns that only a table of operations has.
const OPERATIONS: [&str; 5] = ["optype", "start_s", "start_ts", "duration", "duration_s"];

/// What a row is, by its column `kind`; `None` for a step.
fn pause_of(kind: &str) -> Option<PauseKind> {
    match kind {
        "train" | "training" | "step" | "log" => None,
        "val" | "valid" | "validation" | "eval" | "evaluation" | "test" => {
            Some(PauseKind::Evaluation)
        }
        "checkpoint" | "save" => Some(PauseKind::Checkpoint),
        _ => Some(PauseKind::Block),
    }
}

/// Reads a table.
pub(super) struct Csv {
    file: String,
    options: StepLogOptions,
    columns: Option<Columns>,
    /// Lines of a row whose quotes are still open, and the number of the first.
    open: Vec<u8>,
    open_at: u64,
    runs: Vec<OfRun>,
}

/// What a run's next row is compared with.
#[derive(Default)]
struct OfRun {
    block: Option<String>,
    /// Step and total of the row before.
    total: Option<(i64, f64)>,
}

/// Where the columns are.
struct Columns {
    names: Vec<String>,
    step: usize,
    time: usize,
    unit: f64,
    run: Option<usize>,
    system: Vec<usize>,
    block: Option<usize>,
    wall: Option<usize>,
    kind: Option<usize>,
}

/// A header's or a row's cells.
type Cells<'a> = Vec<Cow<'a, str>>;

/// Whether a first line is the header of a log of step times.
pub(super) fn tells(line: &[u8], options: &StepLogOptions) -> bool {
    let has = |wanted: &str| names(line).iter().any(|n| n == wanted);
    has_columns(line, options)
        && (options.time_column.is_some() || !OPERATIONS.iter().any(|o| has(o)))
}

/// Whether a first line names a column of steps and one of times.
pub(super) fn has_columns(line: &[u8], options: &StepLogOptions) -> bool {
    let names = names(line);
    let any = |wanted: &[&str]| names.iter().any(|n| wanted.contains(&n.as_str()));
    any(&STEP)
        && match &options.time_column {
            Some((name, _)) => any(&[name]),
            None => any(&TIME.map(|t| t.0)),
        }
}

/// Whether a line is something like names of columns.
pub(super) fn looks_like_header(line: &[u8]) -> bool {
    let text = String::from_utf8_lossy(line);
    text.contains([',', ';', '\t'])
        && text.split([',', ';', '\t']).all(|name| !name.trim().contains(char::is_whitespace))
}

fn names(line: &[u8]) -> Vec<String> {
    records(line).into_iter().next().unwrap_or_default().iter().map(ToString::to_string).collect()
}

/// The records of a line: one, unless it holds carriage returns inside quotes that were not closed.
fn records(line: &[u8]) -> Vec<Cells<'_>> {
    let cell = |b: &[u8]| String::from_utf8_lossy(b.trim_ascii()).into_owned();
    if !line.contains(&b'"') {
        return vec![
            line.split(|b| *b == b',').map(|b| String::from_utf8_lossy(b.trim_ascii())).collect(),
        ];
    }
    let mut reader =
        ::csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(line);
    reader
        .byte_records()
        .map_while(Result::ok)
        .map(|r| r.iter().map(|b| Cow::Owned(cell(b))).collect())
        .collect()
}

impl Csv {
    pub(super) fn new(file: &str, options: &StepLogOptions) -> Self {
        Csv {
            file: file.to_owned(),
            options: options.clone(),
            columns: None,
            open: Vec::new(),
            open_at: 0,
            runs: Vec::new(),
        }
    }

    fn rows(&mut self, bytes: &[u8], number: u64, sink: &mut Sink) -> Result<(), IoError> {
        let records = records(bytes);
        let Some(columns) = self.columns.take() else {
            let Some(header) = records.into_iter().next() else { return Ok(()) };
            let names = header.iter().map(ToString::to_string).collect();
            self.columns = Some(Columns::find(&self.file, names, &self.options)?);
            return Ok(());
        };
        for cells in &records {
            self.row(&columns, cells, Place::Line(number), sink)?;
        }
        self.columns = Some(columns);
        Ok(())
    }

    fn row(
        &mut self,
        columns: &Columns,
        cells: &Cells<'_>,
        at: Place,
        sink: &mut Sink,
    ) -> Result<(), IoError> {
        let (found, width) = (cells.len(), columns.names.len());
        if found != width {
            sink.report
                .add(Rule::FieldCount, at, || format!("{found} fields, the header has {width}"));
            return Ok(());
        }
        let of = self.run(columns, cells, sink);
        if let Some(kind) = columns.kind.and_then(|k| pause_of(&cells[k])) {
            sink.pause(kind, None);
            return Ok(());
        }
        if let Some(block) = columns.block.map(|b| cells[b].as_ref()) {
            let before = self.runs[of].block.replace(block.to_owned());
            if before.is_some_and(|b| b != block) {
                sink.pause(PauseKind::Block, None);
            }
        }
        let step = number::<i64>(cells, columns, columns.step, at, sink);
        let (step_s, over) = if self.options.cumulative {
            match self.difference(columns, cells, of, step, (at, sink)) {
                Some((time, over)) => (time, over),
                None => return Ok(()),
            }
        } else {
            (time(cells, columns, at, sink), 1)
        };
        let wall = columns.wall.map_or(Wall::Unknown, |w| wall(cells, columns, w, at, sink));
        let Some(step) = step else { return Ok(()) };
        let over = Over::Steps(over);
        sink.step(&Read { step, step_s, over, wall, repeats: Repeats::Wrong }, at)
    }

    /// Which run a row is of.
    fn run(&mut self, columns: &Columns, cells: &Cells<'_>, sink: &mut Sink) -> usize {
        let run = columns.run.map(|r| cells[r].to_string());
        let parts: Vec<&str> = columns.system.iter().map(|&s| cells[s].as_ref()).collect();
        let of = sink.select(run, (!parts.is_empty()).then(|| parts.join("/")));
        if self.runs.len() <= of {
            self.runs.resize_with(of + 1, OfRun::default);
        }
        of
    }

    /// The time of a row of running totals, and how many steps it is the mean of; `None` where the row
    /// only says from where on the next counts.
    fn difference(
        &mut self,
        columns: &Columns,
        cells: &Cells<'_>,
        of: usize,
        step: Option<i64>,
        (at, sink): (Place, &mut Sink),
    ) -> Option<(Option<f64>, u32)> {
        let name = &columns.names[columns.time];
        let total = number::<f64>(cells, columns, columns.time, at, sink);
        let (Some(step), Some(total)) = (step, total) else { return Some((None, 1)) };
        if !total.is_finite() || total < 0.0 {
            sink.positive_value(name, total, at);
            return Some((None, 1));
        }
        let Some((step_before, before)) = self.runs[of].total.replace((step, total)) else {
            // Before the first step of all nothing ran, so that its total is its time.
            let first = matches!(step, 0 | 1) && total > 0.0;
            return first.then_some((Some(total * columns.unit), 1));
        };
        if total < before {
            // The timer was set to zero; since when, the table does not say.
            sink.pause(PauseKind::Block, None);
            return None;
        }
        let steps = u32::try_from(step.saturating_sub(step_before)).unwrap_or(1).max(1);
        let rise = || format!("rise of {name} since the run's row before");
        let rise = sink.positive_value(&rise(), total - before, at);
        Some((rise.map(|r| r * columns.unit / f64::from(steps)), steps))
    }
}

impl LineFormat for Csv {
    fn line(&mut self, line: &Line<'_>, sink: &mut Sink) -> Result<(), IoError> {
        let odd = line.bytes.iter().fold(false, |odd, b| odd ^ (*b == b'"'));
        // The header is one line.
        if self.open.is_empty() && (!odd || self.columns.is_none()) {
            return self.rows(line.bytes, line.number, sink);
        }
        // A quoted cell goes on in the next line.
        let closes = !self.open.is_empty() && odd;
        if self.open.is_empty() {
            self.open_at = line.number;
        } else {
            self.open.push(b'\n');
        }
        self.open.extend_from_slice(line.bytes);
        if closes { self.end(sink) } else { Ok(()) }
    }

    fn end(&mut self, sink: &mut Sink) -> Result<(), IoError> {
        let open = std::mem::take(&mut self.open);
        if open.is_empty() { Ok(()) } else { self.rows(&open, self.open_at, sink) }
    }
}

impl Columns {
    /// Finds them by name.
    ///
    /// # Errors
    /// [`IoError::StepLogColumns`] lists all that is wrong.
    fn find(file: &str, names: Vec<String>, options: &StepLogOptions) -> Result<Self, IoError> {
        if let [only] = names.as_slice()
            && only.contains([';', '\t'])
        {
            return Err(IoError::Foreign { file: file.to_owned(), what: Foreign::OtherSeparator });
        }
        let mut problems = Vec::new();
        let present = |wanted: &str| names.iter().any(|n| n == wanted);
        let steps: Vec<&str> =
            STEP.into_iter().find(|s| present(s)).map_or(STEP.to_vec(), |s| vec![s]);
        let step = pick(&names, &steps, &mut problems);
        let times: Vec<&str> = match &options.time_column {
            Some((name, _)) => vec![name],
            None => TIME.iter().map(|t| t.0).collect(),
        };
        let time = pick(&names, &times, &mut problems);
        let system: Vec<&str> = if options.system_columns.is_empty() {
            SYSTEM.into_iter().filter(|s| present(s)).collect()
        } else {
            options.system_columns.iter().map(String::as_str).collect()
        };
        let system =
            system.iter().filter_map(|s| pick(&names, &[s], &mut problems)).collect::<Vec<_>>();
        let [run, block, wall, kind] = ["run", "block", "wall_s", "kind"]
            .map(|n| present(n).then(|| pick(&names, &[n], &mut problems)).flatten());
        match (step, time) {
            (Some(step), Some(time)) if problems.is_empty() => {
                let known = || TIME.iter().find(|t| t.0 == names[time]).map_or(1.0, |t| t.1);
                let unit = options.time_column.as_ref().map_or_else(known, |t| t.1);
                Ok(Columns { names, step, time, unit, run, system, block, wall, kind })
            }
            _ => Err(IoError::StepLogColumns { file: file.to_owned(), problems }),
        }
    }
}

/// The one column of these names.
fn pick(names: &[String], wanted: &[&str], problems: &mut Vec<ColumnProblem>) -> Option<usize> {
    let found: Vec<usize> =
        (0..names.len()).filter(|&i| wanted.contains(&names[i].as_str())).collect();
    match found.as_slice() {
        [] => problems.push(ColumnProblem::Missing {
            column: wanted.join("` or `"),
            similar: wanted
                .iter()
                .find_map(|w| nearest(w, names.iter().map(String::as_str)))
                .map(str::to_owned),
        }),
        [_] => {}
        [first, others @ ..] if others.iter().all(|&i| names[i] == names[*first]) => {
            problems.push(ColumnProblem::Repeated { column: names[*first].clone() });
        }
        several => problems.push(ColumnProblem::Ambiguous {
            columns: several.iter().map(|&i| names[i].clone()).collect(),
        }),
    }
    found.first().copied()
}

/// A time that is not a total, seconds.
fn time(cells: &Cells<'_>, columns: &Columns, at: Place, sink: &mut Sink) -> Option<f64> {
    let v = number::<f64>(cells, columns, columns.time, at, sink)?;
    Some(sink.positive_value(&columns.names[columns.time], v, at)? * columns.unit)
}

/// A row's `wall_s`; empty where it is not known.
fn wall(cells: &Cells<'_>, columns: &Columns, column: usize, at: Place, sink: &mut Sink) -> Wall {
    if cells[column].is_empty() {
        return Wall::Unknown;
    }
    match number::<f64>(cells, columns, column, at, sink) {
        Some(v) if v.is_infinite() || v < 0.0 => {
            let rule = if v < 0.0 { Rule::NotNegative } else { Rule::Finite };
            sink.report.add(rule, at, || format!("wall_s is {v}"));
            Wall::Unknown
        }
        Some(v) => Wall::Took(v),
        None => Wall::Unknown,
    }
}

/// A number, or a violation.
fn number<T: FromStr>(
    cells: &Cells<'_>,
    columns: &Columns,
    column: usize,
    at: Place,
    sink: &mut Sink,
) -> Option<T> {
    let (text, name) = (&cells[column], &columns.names[column]);
    if text.is_empty() {
        sink.report.add(Rule::NoNulls, at, || format!("{name} is empty"));
        return None;
    }
    let parsed = text.parse().ok();
    if parsed.is_none() {
        let short: String = text.chars().take(40).collect();
        sink.report.add(Rule::Number, at, || format!("{name} is `{short}`"));
    }
    parsed
}
