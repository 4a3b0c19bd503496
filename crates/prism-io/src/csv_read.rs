//! CSV columns.

use csv::ByteRecord;

use crate::error::{Foreign, IoError};
use crate::options::Limits;
use crate::raw::{Class, Dialect, Field, Raw, Text, layout};
use crate::violation::{Place, Rule, Violations};

/// A CSV file's columns.
pub(crate) struct CsvTable {
    pub(crate) raw: Raw,
    pub(crate) ignored: Vec<String>,
}

/// Decodes the columns of a trace; the first line names them.
///
/// # Errors
/// [`IoError::Csv`], [`IoError::Columns`], [`IoError::TooLarge`], [`IoError::Empty`],
/// [`IoError::Foreign`]. What is wrong with single lines goes into `report`.
pub(crate) fn read(
    file: &str,
    bytes: &[u8],
    limits: Limits,
    report: &mut Violations,
) -> Result<CsvTable, IoError> {
    if bytes.starts_with(&[0xFF, 0xFE]) || bytes.starts_with(&[0xFE, 0xFF]) {
        return Err(IoError::Foreign { file: file.to_owned(), what: Foreign::Utf16 });
    }
    let damaged = |source| IoError::Csv { file: file.to_owned(), source };
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(bytes);
    let names = header(file, reader.byte_headers().map_err(damaged)?)?;
    let width = names.len();
    let layout = layout(file, &names)?;
    let mut cells: Vec<Cells> =
        layout.columns.iter().map(|&(field, at)| Cells::new(field, at)).collect();
    let mut raw = Raw::new(layout.dialect);
    let mut lines = Vec::new();
    let mut record = ByteRecord::new();
    while reader.read_byte_record(&mut record).map_err(damaged)? {
        if lines.len() as u64 >= limits.rows {
            let limit = limits.rows;
            return Err(IoError::TooLarge { file: file.to_owned(), limit, unit: "rows" });
        }
        let line = record.position().map_or(0, csv::Position::line);
        lines.push(line);
        let mut good = record.len() == width;
        if !good {
            report.add(Rule::FieldCount, Place::Line(line), || {
                format!("{} fields, the header has {width}", record.len())
            });
        }
        for column in &mut cells {
            // A line of another width is reported once, not once per cell.
            let cell = if record.len() == width { record.get(column.at) } else { None };
            let fine = match cell {
                Some(cell) => column.push(cell, layout.dialect, line, report),
                None => column.placeholder(),
            };
            raw.lost_steps |= !fine && column.field == Field::Step;
            good &= fine;
        }
        raw.bad.push(!good);
    }
    raw.rows = lines.len();
    raw.lines = Some(lines);
    for column in cells {
        match column.field.class() {
            Class::Integer => raw.set_int(column.field, column.ints),
            Class::Real => raw.set_real(column.field, column.reals),
            Class::Text => raw.set_text(column.field, column.text),
        }
    }
    Ok(CsvTable { raw, ignored: layout.ignored })
}

/// The names of the columns.
fn header(file: &str, header: &ByteRecord) -> Result<Vec<String>, IoError> {
    let names: Vec<String> =
        header.iter().map(|n| String::from_utf8_lossy(n).trim().to_owned()).collect();
    match names.as_slice() {
        [] => Err(IoError::Empty { file: file.to_owned(), what: "no header" }),
        [only] if only.contains([';', '\t']) => {
            Err(IoError::Foreign { file: file.to_owned(), what: Foreign::OtherSeparator })
        }
        _ => Ok(names),
    }
}

/// A column being filled; only the vector of its class is.
struct Cells {
    field: Field,
    at: usize,
    ints: Vec<i64>,
    reals: Vec<f64>,
    text: Text,
}

impl Cells {
    fn new(field: Field, at: usize) -> Self {
        Cells { field, at, ints: Vec::new(), reals: Vec::new(), text: Text::default() }
    }

    /// Appends a cell, or a placeholder where there is none or it breaks a rule; says whether the
    /// cell is good.
    fn push(&mut self, cell: &[u8], dialect: Dialect, line: u64, report: &mut Violations) -> bool {
        // Names of groups may begin with a space; nothing else does on purpose.
        let cell = if self.field == Field::Group { cell } else { cell.trim_ascii() };
        let name = self.field.name(dialect);
        if cell.is_empty() {
            self.placeholder();
            if self.field == Field::Group {
                return true;
            }
            report.add(Rule::NoNulls, Place::Line(line), || format!("{name} is empty"));
            return false;
        }
        let parsed = match self.field.class() {
            Class::Text => {
                if self.text.push(cell) {
                    return true;
                }
                report.add(Rule::Utf8, Place::Line(line), || format!("{name} is not UTF-8"));
                return false;
            }
            Class::Integer => parse(cell).map(|v| self.ints.push(v)),
            Class::Real => parse(cell).map(|v| self.reals.push(v)),
        };
        if parsed.is_some() {
            return true;
        }
        self.placeholder();
        let integer = self.field.class() == Class::Integer;
        let digits = cell.strip_prefix(b"-").unwrap_or(cell);
        let rule = if integer && digits.iter().all(u8::is_ascii_digit) {
            Rule::Range
        } else {
            Rule::Number
        };
        report.add(rule, Place::Line(line), || format!("{name} is `{}`", excerpt(cell)));
        false
    }

    /// Appends what stands for a cell that is not good: returns `false`.
    fn placeholder(&mut self) -> bool {
        match self.field.class() {
            Class::Integer => self.ints.push(0),
            Class::Real => self.reals.push(0.0),
            Class::Text => self.text.push_none(),
        }
        false
    }
}

fn parse<T: std::str::FromStr>(cell: &[u8]) -> Option<T> {
    std::str::from_utf8(cell).ok()?.parse().ok()
}

/// The start of a cell, for a message.
fn excerpt(cell: &[u8]) -> String {
    let text = String::from_utf8_lossy(cell);
    let mut short: String = text.chars().take(40).collect();
    if text.chars().nth(40).is_some() {
        short.push('…');
    }
    short
}
