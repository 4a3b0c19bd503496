//! Tables of measurements: one row a measurement, columns by name, texts as written.

use std::path::Path;

use crate::error::IoError;
use crate::op_table::Source;
use crate::options::Limits;
use crate::source::{self, Content};

/// A table of measurements.
#[derive(Clone, Debug, PartialEq)]
pub struct BenchTable {
    /// The file.
    pub source: Source,
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Rows with their lines in the file; as many texts as there are columns, blanks taken off.
    pub rows: Vec<(u64, Vec<String>)>,
}

impl BenchTable {
    /// Where a column is.
    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|c| c == name)
    }
}

/// Reads a table of measurements: CSV with a header, also gzipped, `-` for standard input.
///
/// # Errors
/// [`IoError::Csv`] where rows differ in length, [`IoError::Empty`] without rows.
pub fn read_bench_table(path: &Path, limits: Limits) -> Result<BenchTable, IoError> {
    let bytes = source::slurp(path, limits)?;
    read_bench_table_bytes(&source::name(path), bytes, limits)
}

/// Reads a table of measurements from memory; `file` stands for it in messages.
///
/// ```
/// use prism_io::{Limits, read_bench_table_bytes};
///
/// let csv = b"kind,bytes,seconds\nall-reduce,1e8,8e-4\n".to_vec();
/// let table = read_bench_table_bytes("bench.csv", csv, Limits::default())?;
/// assert_eq!(table.column("bytes"), Some(1));
/// assert_eq!(table.rows[0], (2, vec!["all-reduce".into(), "1e8".into(), "8e-4".into()]));
/// # Ok::<(), prism_io::IoError>(())
/// ```
///
/// # Errors
/// As [`read_bench_table`].
pub fn read_bench_table_bytes(
    file: &str,
    bytes: Vec<u8>,
    limits: Limits,
) -> Result<BenchTable, IoError> {
    let from = source::source(file, &bytes);
    let (content, bytes) = source::unwrap(file, bytes, limits)?;
    if content == Content::Parquet {
        let problems = vec!["it is Parquet, a table of measurements is CSV".to_owned()];
        return Err(IoError::Speeds { file: file.to_owned(), problems });
    }
    let damaged = |source| IoError::Csv { file: file.to_owned(), source };
    let mut reader = csv::ReaderBuilder::new().from_reader(bytes.as_slice());
    let text = |cell: &[u8]| String::from_utf8_lossy(cell).trim().to_owned();
    let columns = reader.byte_headers().map_err(damaged)?.iter().map(text).collect();
    let mut rows = Vec::new();
    for record in reader.byte_records() {
        let record = record.map_err(damaged)?;
        let line = record.position().map_or(0, csv::Position::line);
        rows.push((line, record.iter().map(text).collect()));
    }
    if rows.is_empty() {
        return Err(IoError::Empty { file: file.to_owned(), what: "a header and no rows" });
    }
    Ok(BenchTable { source: from, columns, rows })
}
