//! What wrote a log, by its content.

use std::io::Read;

use super::feed::without_mark;
use super::line::{Line, LineFormat};
use super::{LogFormat, StepLogOptions, csv, megatron, mllog, nemo, torchtitan};
use crate::error::IoError;
use crate::options::Limits;
use crate::source::{self, Content};

/// Whether a line is one by which a format is told.
type Tells = fn(&str) -> bool;

/// The formats of text: what tells them, in the order in which they are asked.
///
/// `MLLOG` comes first: its lines lie between those of the trainer that wrote them.
const TEXT: [(LogFormat, Tells); 4] = [
    (LogFormat::Mllog, mllog::tells),
    (LogFormat::Nemo, nemo::tells),
    (LogFormat::Megatron, megatron::tells),
    (LogFormat::Torchtitan, torchtitan::tells),
];

/// The reader of a format.
pub(super) fn reader(
    format: LogFormat,
    file: &str,
    options: &StepLogOptions,
) -> Box<dyn LineFormat> {
    match format {
        LogFormat::Csv => Box::new(csv::Csv::new(file, options)),
        LogFormat::Megatron => Box::new(megatron::Megatron::default()),
        LogFormat::Mllog => Box::new(mllog::Mllog::default()),
        LogFormat::Nemo => Box::new(nemo::Nemo::default()),
        LogFormat::Torchtitan => Box::new(torchtitan::Torchtitan::new(file, options)),
    }
}

/// The format that a line tells: the first by a header, all by a line of steps.
pub(super) fn tells(line: &Line<'_>, first: bool, options: &StepLogOptions) -> Option<LogFormat> {
    if first && csv::tells(line.bytes, options) {
        return Some(LogFormat::Csv);
    }
    let text = line.text();
    TEXT.iter().find(|(_, tells)| tells(&text)).map(|t| t.0)
}

/// Says why a log whose format no line told is none, unless it looks like a table.
///
/// # Errors
/// [`IoError::NotAStepLog`], [`IoError::Empty`].
pub(super) fn not_a_log(
    file: &str,
    first: Option<&[u8]>,
    options: &StepLogOptions,
) -> Result<(), IoError> {
    let not = |why| Err(IoError::NotAStepLog { file: file.to_owned(), why });
    match first {
        None => Err(IoError::Empty { file: file.to_owned(), what: "no content" }),
        Some(line) if matches!(line.trim_ascii().first(), Some(b'{' | b'[')) => {
            not("no line of it is of a format that is read")
        }
        Some(line) if csv::has_columns(line, options) => not("it is a table of operations"),
        Some(line) if csv::looks_like_header(line) => Ok(()),
        Some(_) => not("no line of it is of a format that is read"),
    }
}

/// Whether content, or the beginning of it, looks like a log of step times of any format that
/// [`crate::read_step_logs`] reads without options.
///
/// Tables whose header names a column that only a table of operations has do not.
pub fn looks_like_step_log(bytes: &[u8], limits: Limits) -> bool {
    let unpacked = beginning(bytes, limits);
    let bytes = unpacked.as_deref().unwrap_or(bytes);
    if !matches!(source::kind("", bytes), Ok(Content::Csv)) {
        return false;
    }
    let options = StepLogOptions::default();
    let mut lines = without_mark(bytes)
        .split(|b| matches!(b, b'\n' | b'\r'))
        .filter(|line| !line.trim_ascii().is_empty())
        .map(|bytes| Line { bytes, number: 1, whole: true });
    lines.next().is_some_and(|line| tells(&line, true, &options).is_some())
        || lines.any(|line| tells(&line, false, &options).is_some())
}

/// What gzipped content, which may be cut short, unpacks to; `None` if it is not gzipped.
fn beginning(bytes: &[u8], limits: Limits) -> Option<Vec<u8>> {
    if !bytes.starts_with(source::GZIP) {
        return None;
    }
    let mut out = Vec::new();
    // An error ends it: what came before is the beginning.
    let _ = flate2::read::MultiGzDecoder::new(bytes).take(limits.bytes).read_to_end(&mut out);
    Some(out)
}
