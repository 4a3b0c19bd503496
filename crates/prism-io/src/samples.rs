//! Writing samples: a column of numbers per name.

use std::io::{self, Write};
use std::path::Path;

use flate2::write::GzEncoder;

use crate::atomic::write_atomic;
use crate::error::IoError;
use crate::parquet_write::{Column, Data, encode};
use crate::source;

/// Writes columns of equal length, atomically: CSV if the name ends in `.csv` or `.csv.gz` or is
/// `-` (standard output), else Parquet.
///
/// # Errors
/// [`IoError::UnequalColumns`], [`IoError::Write`].
pub fn write_samples(path: &Path, columns: &[(&str, &[f64])]) -> Result<(), IoError> {
    let rows = columns.first().map_or(0, |(_, c)| c.len());
    if let Some((name, cells)) = columns.iter().find(|(_, c)| c.len() != rows) {
        return Err(IoError::UnequalColumns {
            file: source::name(path),
            column: (*name).to_owned(),
            rows: cells.len(),
            expected: rows,
        });
    }
    let has =
        |path: &Path, ext: &str| path.extension().is_some_and(|e| e.eq_ignore_ascii_case(ext));
    write_atomic(path, |out| {
        if has(path, "gz") && has(&path.with_extension(""), "csv") {
            let mut gz = GzEncoder::new(out, flate2::Compression::default());
            csv(&mut gz, rows, columns)?;
            gz.finish().map(|_| ())
        } else if has(path, "csv") || source::is_stdio(path) {
            csv(out, rows, columns)
        } else {
            let columns: Vec<Column<'_>> = columns
                .iter()
                .map(|(name, cells)| Column { name, data: Data::Double(cells) })
                .collect();
            out.write_all(&encode(rows, &columns, &[]).map_err(io::Error::other)?)
        }
    })
}

/// What the system said; a `csv::Error` hides it from [`std::error::Error::source`].
pub(crate) fn system_error(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(e) => e,
        other => io::Error::other(format!("{other:?}")),
    }
}

fn csv(out: &mut dyn Write, rows: usize, columns: &[(&str, &[f64])]) -> io::Result<()> {
    let mut writer = csv::Writer::from_writer(out);
    writer.write_record(columns.iter().map(|(name, _)| name)).map_err(system_error)?;
    for row in 0..rows {
        let cells = columns.iter().map(|(_, cells)| format!("{:?}", cells[row]));
        writer.write_record(cells).map_err(system_error)?;
    }
    writer.flush()
}
