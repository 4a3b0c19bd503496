//! Logs of step times.

use std::path::Path;

use csv::ByteRecord;

use crate::error::{ColumnProblem, Foreign, IoError};
use crate::op_table::Source;
use crate::options::Limits;
use crate::raw::nearest;
use crate::source::{self, Content};
use crate::violation::{Place, Rule, Violations};

/// Step times of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct StepLog {
    /// Step ids, ascending.
    pub step: Vec<i64>,
    /// Step times, seconds, positive.
    pub step_s: Vec<f64>,
    /// Time from the previous step's end to the step's, by the log's clock, seconds; NaN where it is not
    /// known. Empty where the log has no clock.
    pub wall_s: Vec<f64>,
    /// What came between steps, in order.
    pub pauses: Vec<Pause>,
    /// Steps that each time is the mean of, where the log averages over several; otherwise 1.
    pub averaged_over: u32,
    /// Which run of the file, where it has several.
    pub run: Option<String>,
    /// What ran (a system, a job), where the file names it.
    pub system: Option<String>,
    /// What wrote the file.
    pub format: LogFormat,
    /// The file.
    pub source: Source,
}

/// Something other than training between two steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pause {
    /// What.
    pub kind: PauseKind,
    /// Steps of the log that came before it: the pause is right before `step_s[after]`.
    pub after: usize,
    /// How long, seconds; `None` where the log only says that it was there.
    pub duration_s: Option<f64>,
}

/// What a pause was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum PauseKind {
    /// Evaluation or validation.
    Evaluation,
    /// A checkpoint for which training stopped.
    Checkpoint,
    /// The job was started anew.
    Restart,
    /// A new block of steps, of which the log does not say why.
    Block,
}

/// What wrote a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum LogFormat {
    /// A table with a header.
    Csv,
    /// Megatron-LM's text.
    Megatron,
    /// MLPerf's `:::MLLOG` lines.
    Mllog,
    /// NeMo's text.
    Nemo,
    /// torchtitan's text.
    Torchtitan,
}

/// Names of the column of step ids.
const STEP: [&str; 2] = ["step", "iteration"];
/// Names of the column of times, and seconds in its unit.
const TIME: [(&str, f64); 4] =
    [("step_s", 1.0), ("step_time_s", 1.0), ("step_time_ms", 1e-3), ("elapsed_ms", 1e-3)];
/// Columns that only a table of operations has.
const OPERATIONS: [&str; 5] = ["kind", "optype", "start_s", "start_ts", "duration"];

/// Reads a log of step times: CSV, also gzipped, `-` for standard input.
///
/// The columns are `step` or `iteration`, and exactly one of `step_s`, `step_time_s` (seconds),
/// `step_time_ms`, `elapsed_ms` (milliseconds); others are not read. Ids ascend, times are positive.
///
/// # Errors
/// [`IoError::Invalid`] lists every violation with its line; the other variants say why the content
/// could not be judged.
pub fn read_step_log(path: &Path, limits: Limits) -> Result<StepLog, IoError> {
    let bytes = source::slurp(path, limits)?;
    read_step_log_bytes(&source::name(path), &bytes, limits)
}

/// Reads a log of step times from memory; `name` stands for the file in messages.
///
/// ```
/// use prism_io::{Limits, read_step_log_bytes};
///
/// let log = read_step_log_bytes("run.csv", b"step,step_time_ms\n1,250\n2,251.5\n", Limits::default())?;
/// assert_eq!((log.step, log.step_s), (vec![1, 2], vec![0.25, 0.2515]));
/// # Ok::<(), prism_io::IoError>(())
/// ```
///
/// # Errors
/// As [`read_step_log`].
pub fn read_step_log_bytes(name: &str, bytes: &[u8], limits: Limits) -> Result<StepLog, IoError> {
    let own = source::source(name, bytes);
    let (content, bytes) = source::unwrap(name, bytes.to_vec(), limits)?;
    if content != Content::Csv {
        return Err(IoError::Foreign { file: name.to_owned(), what: Foreign::NotALog });
    }
    let mut report = Violations::new(name);
    let (step, step_s) = rows(name, &bytes, limits, &mut report)?;
    if !report.is_empty() {
        return Err(IoError::Invalid(Box::new(report)));
    }
    if step.is_empty() {
        return Err(IoError::Empty { file: name.to_owned(), what: "no rows" });
    }
    Ok(StepLog {
        step,
        step_s,
        wall_s: Vec::new(),
        pauses: Vec::new(),
        averaged_over: 1,
        run: None,
        system: None,
        format: LogFormat::Csv,
        source: own,
    })
}

/// Whether content looks like a log of step times: CSV whose first line names a column of steps and
/// one of times, and none that only a table of operations has.
pub fn looks_like_step_log(bytes: &[u8], limits: Limits) -> bool {
    let Ok((Content::Csv, bytes)) = source::unwrap("", bytes.to_vec(), limits) else {
        return false;
    };
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(bytes.as_slice());
    let Ok(header) = reader.byte_headers() else { return false };
    let names = names(header);
    let has = |wanted: &[&str]| names.iter().any(|n| wanted.contains(&n.as_str()));
    has(&STEP) && has(&TIME.map(|t| t.0)) && !has(&OPERATIONS)
}

fn names(header: &ByteRecord) -> Vec<String> {
    header.iter().map(|n| String::from_utf8_lossy(n).trim().to_owned()).collect()
}

/// Where the two columns are, and seconds in the unit of the second.
fn columns(file: &str, names: &[String]) -> Result<(usize, usize, f64), IoError> {
    if let [only] = names
        && only.contains([';', '\t'])
    {
        return Err(IoError::Foreign { file: file.to_owned(), what: Foreign::OtherSeparator });
    }
    let mut problems = Vec::new();
    let mut pick = |wanted: &[&str]| {
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
    };
    let (step, time) = (pick(&STEP), pick(&TIME.map(|t| t.0)));
    match (step, time) {
        (Some(step), Some(time)) if problems.is_empty() => {
            let unit = TIME.iter().find(|t| t.0 == names[time]).map_or(1.0, |t| t.1);
            Ok((step, time, unit))
        }
        _ => Err(IoError::StepLogColumns { file: file.to_owned(), problems }),
    }
}

fn rows(
    file: &str,
    bytes: &[u8],
    limits: Limits,
    report: &mut Violations,
) -> Result<(Vec<i64>, Vec<f64>), IoError> {
    let damaged = |source| IoError::Csv { file: file.to_owned(), source };
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(bytes);
    let names = names(reader.byte_headers().map_err(damaged)?);
    let (at_step, at_time, unit) = columns(file, &names)?;
    let (mut steps, mut times): (Vec<i64>, Vec<f64>) = (Vec::new(), Vec::new());
    let mut before: Option<i64> = None;
    let mut record = ByteRecord::new();
    while reader.read_byte_record(&mut record).map_err(damaged)? {
        if times.len() as u64 >= limits.rows {
            let limit = limits.rows;
            return Err(IoError::TooLarge { file: file.to_owned(), limit, unit: "rows" });
        }
        let place = Place::Line(record.position().map_or(0, csv::Position::line));
        if record.len() != names.len() {
            let (found, width) = (record.len(), names.len());
            report
                .add(Rule::FieldCount, place, || format!("{found} fields, the header has {width}"));
            continue;
        }
        let step = cell::<i64>(&record, (at_step, &names[at_step]), place, report);
        if let Some(step) = step {
            if let Some(b) = before.filter(|b| *b >= step) {
                report.add(Rule::StepsAscend, place, || format!("step {step} follows step {b}"));
            }
            before = Some(step);
        }
        let time = cell::<f64>(&record, (at_time, &names[at_time]), place, report);
        if let Some(v) = time.filter(|v| !v.is_finite()) {
            report.add(Rule::Finite, place, || format!("{} is {v}", names[at_time]));
        } else if let Some(v) = time.filter(|v| *v <= 0.0) {
            report.add(Rule::Positive, place, || format!("{} is {v}", names[at_time]));
        }
        steps.push(step.unwrap_or(0));
        times.push(time.unwrap_or(1.0) * unit);
    }
    Ok((steps, times))
}

/// A number, or a violation.
fn cell<T: std::str::FromStr>(
    record: &ByteRecord,
    (at, name): (usize, &str),
    place: Place,
    report: &mut Violations,
) -> Option<T> {
    let text = String::from_utf8_lossy(record.get(at).unwrap_or_default().trim_ascii());
    if text.is_empty() {
        report.add(Rule::NoNulls, place, || format!("{name} is empty"));
        return None;
    }
    let parsed = text.parse().ok();
    if parsed.is_none() {
        let short: String = text.chars().take(40).collect();
        report.add(Rule::Number, place, || format!("{name} is `{short}`"));
    }
    parsed
}
