//! Parquet columns, decoded with the low-level column readers.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use parquet::basic::{Compression, ConvertedType, LogicalType, Type as Physical};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::DataType;
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::schema::types::ColumnDescriptor;

use crate::error::{ColumnProblem, IoError};
use crate::native;
use crate::options::Limits;
use crate::page_guard;
use crate::raw::{Class, Field, Layout, Raw, Text, layout};
use crate::violation::{Rule, Violations};

/// Rows decoded at a time.
const BATCH: usize = 1 << 13;

/// A Parquet file's columns and its key-value metadata.
pub(crate) struct ParquetTable {
    pub(crate) raw: Raw,
    pub(crate) ignored: Vec<String>,
    pub(crate) keys: BTreeMap<String, String>,
}

/// Decodes the columns of a trace.
///
/// The decoder is known to panic on some damaged files; such a panic ends here, as an error.
///
/// # Errors
/// [`IoError::Parquet`], [`IoError::ParquetPanic`], [`IoError::Columns`], [`IoError::Codec`],
/// [`IoError::Schema`], [`IoError::TooLarge`]. Nulls and text that is not UTF-8 go into `report`.
pub(crate) fn read(
    file: &str,
    bytes: &Bytes,
    limits: Limits,
    report: &mut Violations,
) -> Result<ParquetTable, IoError> {
    catch_unwind(AssertUnwindSafe(|| decode(file, bytes, limits, report)))
        .unwrap_or_else(|_| Err(IoError::ParquetPanic { file: file.to_owned() }))
}

fn decode(
    file: &str,
    bytes: &Bytes,
    limits: Limits,
    report: &mut Violations,
) -> Result<ParquetTable, IoError> {
    let damaged = |source| IoError::Parquet { file: file.to_owned(), source };
    page_guard::check_footer(bytes).map_err(damaged)?;
    let reader = SerializedFileReader::new(bytes.clone()).map_err(damaged)?;
    let meta = reader.metadata().file_metadata();
    let mut keys = BTreeMap::new();
    for kv in meta.key_value_metadata().into_iter().flatten() {
        if let Some(value) = &kv.value {
            keys.insert(kv.key.clone(), value.clone());
        }
    }
    if let Some(found) = keys.get(native::SCHEMA_KEY).filter(|s| *s != native::SCHEMA) {
        return Err(IoError::Schema { file: file.to_owned(), found: found.clone() });
    }
    let columns = meta.schema_descr().columns();
    let names: Vec<String> = columns.iter().map(|c| c.path().string()).collect();
    let layout = layout(file, &names)?;
    check_types(file, &layout, |at| &columns[at])?;
    let rows = reader.metadata().row_groups().iter().try_fold(0_u64, |sum, group| {
        u64::try_from(group.num_rows()).ok().and_then(|n| sum.checked_add(n))
    });
    let rows = rows.unwrap_or(u64::MAX);
    if rows > limits.rows {
        let limit = limits.rows;
        return Err(IoError::TooLarge { file: file.to_owned(), limit, unit: "rows" });
    }
    check_codecs(file, &reader, &layout)?;
    check_sizes(bytes, &reader, &layout).map_err(damaged)?;

    let mut raw = Raw::new(layout.dialect);
    raw.rows = rows as usize;
    raw.bad = vec![false; raw.rows];
    raw.single = layout.columns.iter().all(|(field, at)| {
        !matches!(field, Field::Start | Field::Duration)
            || columns[*at].physical_type() == Physical::FLOAT
    });
    for &(field, at) in &layout.columns {
        let column = Column { reader: &reader, at, descr: &columns[at], rows: raw.rows };
        column.read(field, &mut raw, report).map_err(damaged)?;
    }
    Ok(ParquetTable { raw, ignored: layout.ignored, keys })
}

fn check_types<'a>(
    file: &str,
    layout: &Layout,
    column: impl Fn(usize) -> &'a ColumnDescriptor,
) -> Result<(), IoError> {
    let mut problems = Vec::new();
    for &(field, at) in &layout.columns {
        let descr = column(at);
        let expected = match field.class() {
            Class::Integer => "an integer",
            Class::Real => "floating point",
            Class::Text => "text",
        };
        if !fits(descr, field.class()) {
            let name = field.name(layout.dialect).to_owned();
            problems.push(ColumnProblem::Type { column: name, found: type_name(descr), expected });
        }
    }
    if problems.is_empty() {
        Ok(())
    } else {
        Err(IoError::Columns { file: file.to_owned(), problems })
    }
}

fn fits(descr: &ColumnDescriptor, class: Class) -> bool {
    if descr.max_rep_level() > 0 || descr.max_def_level() > 1 {
        return false;
    }
    let logical = descr.logical_type_ref();
    let converted = descr.converted_type();
    match class {
        Class::Integer => {
            matches!(descr.physical_type(), Physical::INT32 | Physical::INT64)
                && matches!(logical, None | Some(LogicalType::Integer(_)))
                && (converted == ConvertedType::NONE || is_integer(converted))
        }
        Class::Real => matches!(descr.physical_type(), Physical::FLOAT | Physical::DOUBLE),
        Class::Text => {
            descr.physical_type() == Physical::BYTE_ARRAY
                && matches!(logical, None | Some(LogicalType::String | LogicalType::Enum))
                && matches!(
                    converted,
                    ConvertedType::NONE | ConvertedType::UTF8 | ConvertedType::ENUM
                )
        }
    }
}

fn is_integer(converted: ConvertedType) -> bool {
    matches!(
        converted,
        ConvertedType::INT_8
            | ConvertedType::INT_16
            | ConvertedType::INT_32
            | ConvertedType::INT_64
            | ConvertedType::UINT_8
            | ConvertedType::UINT_16
            | ConvertedType::UINT_32
            | ConvertedType::UINT_64
    )
}

fn is_unsigned(descr: &ColumnDescriptor) -> bool {
    matches!(
        descr.converted_type(),
        ConvertedType::UINT_8
            | ConvertedType::UINT_16
            | ConvertedType::UINT_32
            | ConvertedType::UINT_64
    )
}

/// The type of a column as users call it.
fn type_name(descr: &ColumnDescriptor) -> String {
    if descr.max_rep_level() > 0 {
        return "a list".to_owned();
    }
    if descr.max_def_level() > 1 {
        return "nested".to_owned();
    }
    match (descr.logical_type_ref(), descr.physical_type()) {
        (Some(LogicalType::Timestamp(_)), _) => "a timestamp".to_owned(),
        (Some(LogicalType::Time(_)), _) => "a time of day".to_owned(),
        (Some(LogicalType::Date), _) => "a date".to_owned(),
        (Some(LogicalType::Decimal(_)), _) => "a decimal".to_owned(),
        (Some(LogicalType::String), _) => "text".to_owned(),
        (Some(LogicalType::Float16), _) => "half-precision floating point".to_owned(),
        (_, Physical::BOOLEAN) => "a boolean".to_owned(),
        (_, Physical::INT32 | Physical::INT64) => "an integer".to_owned(),
        (_, Physical::INT96) => "a timestamp".to_owned(),
        (_, Physical::FLOAT | Physical::DOUBLE) => "floating point".to_owned(),
        (_, Physical::BYTE_ARRAY | Physical::FIXED_LEN_BYTE_ARRAY) => "binary".to_owned(),
    }
}

fn check_codecs(
    file: &str,
    reader: &SerializedFileReader<Bytes>,
    layout: &Layout,
) -> Result<(), IoError> {
    for group in reader.metadata().row_groups() {
        for &(field, at) in &layout.columns {
            let Some(chunk) = group.columns().get(at) else { continue };
            let codec = match chunk.compression() {
                Compression::UNCOMPRESSED | Compression::SNAPPY | Compression::GZIP(_) => continue,
                Compression::LZO => "LZO",
                Compression::BROTLI(_) => "Brotli",
                Compression::LZ4 | Compression::LZ4_RAW => "LZ4",
                Compression::ZSTD(_) => "Zstandard",
            };
            return Err(IoError::Codec {
                file: file.to_owned(),
                column: field.name(layout.dialect).to_owned(),
                codec: codec.to_owned(),
            });
        }
    }
    Ok(())
}

/// No page claims more than it can hold.
fn check_sizes(
    bytes: &Bytes,
    reader: &SerializedFileReader<Bytes>,
    layout: &Layout,
) -> Result<(), ParquetError> {
    let outside = || ParquetError::EOF("a column lies outside the file".to_owned());
    for group in reader.metadata().row_groups() {
        let rows = u64::try_from(group.num_rows()).unwrap_or(0);
        for &(_, at) in &layout.columns {
            let Some(chunk) = group.columns().get(at) else { continue };
            let start = chunk.dictionary_page_offset().unwrap_or(chunk.data_page_offset());
            let start = usize::try_from(start).map_err(|_| outside())?;
            let length = usize::try_from(chunk.compressed_size()).map_err(|_| outside())?;
            let end = start.checked_add(length).ok_or_else(outside)?;
            let pages = bytes.get(start..end).ok_or_else(outside)?;
            page_guard::check(pages, chunk.compression(), rows)?;
        }
    }
    Ok(())
}

/// Counts the cells of a column while it is decoded, and remembers which are null.
#[derive(Default)]
struct Nulls {
    cells: usize,
    rows: Vec<usize>,
}

/// One column over all row groups.
struct Column<'a> {
    reader: &'a SerializedFileReader<Bytes>,
    at: usize,
    descr: &'a ColumnDescriptor,
    rows: usize,
}

impl Column<'_> {
    fn read(
        &self,
        field: Field,
        raw: &mut Raw,
        report: &mut Violations,
    ) -> Result<(), ParquetError> {
        let nulls = match field.class() {
            Class::Integer => self.read_ints(field, raw, report)?,
            Class::Real => self.read_reals(field, raw)?,
            Class::Text => self.read_texts(field, raw, report)?,
        };
        // A group is optional; everything else is not.
        if field != Field::Group {
            raw.lost_steps |= field == Field::Step && !nulls.is_empty();
            for row in nulls {
                let name = raw.name(field);
                raw.spoil(report, Rule::NoNulls, row, || format!("{name} is null"));
            }
        }
        Ok(())
    }

    /// Returns the rows that are null, as the others do.
    fn read_ints(
        &self,
        field: Field,
        raw: &mut Raw,
        report: &mut Violations,
    ) -> Result<Vec<usize>, ParquetError> {
        let unsigned = is_unsigned(self.descr);
        let mut cells = Vec::with_capacity(self.rows);
        let mut nulls = Nulls::default();
        let mut wide = Vec::new();
        for group in 0..self.reader.num_row_groups() {
            match self.open(group)? {
                ColumnReader::Int32ColumnReader(r) => self.drain(r, &mut nulls, |v| {
                    cells.push(match v {
                        Some(v) if unsigned => i64::from(v as u32),
                        Some(v) => i64::from(v),
                        None => 0,
                    });
                })?,
                ColumnReader::Int64ColumnReader(r) => self.drain(r, &mut nulls, |v| {
                    let v = v.unwrap_or(0);
                    let too_wide = unsigned && v < 0;
                    if too_wide {
                        wide.push((cells.len(), v.cast_unsigned()));
                    }
                    cells.push(if too_wide { 0 } else { v });
                })?,
                _ => return Err(changed_type()),
            }
        }
        self.complete(cells.len())?;
        raw.lost_steps |= field == Field::Step && !wide.is_empty();
        for (row, v) in wide {
            let name = raw.name(field);
            raw.spoil(report, Rule::Range, row, || format!("{name} is {v}"));
        }
        raw.set_int(field, cells);
        Ok(nulls.rows)
    }

    fn read_reals(&self, field: Field, raw: &mut Raw) -> Result<Vec<usize>, ParquetError> {
        let mut cells = Vec::with_capacity(self.rows);
        let mut nulls = Nulls::default();
        for group in 0..self.reader.num_row_groups() {
            match self.open(group)? {
                ColumnReader::FloatColumnReader(r) => {
                    self.drain(r, &mut nulls, |v| cells.push(v.map_or(0.0, f64::from)))?;
                }
                ColumnReader::DoubleColumnReader(r) => {
                    self.drain(r, &mut nulls, |v| cells.push(v.unwrap_or(0.0)))?;
                }
                _ => return Err(changed_type()),
            }
        }
        self.complete(cells.len())?;
        raw.set_real(field, cells);
        Ok(nulls.rows)
    }

    fn read_texts(
        &self,
        field: Field,
        raw: &mut Raw,
        report: &mut Violations,
    ) -> Result<Vec<usize>, ParquetError> {
        let mut text = Text::default();
        let mut nulls = Nulls::default();
        let mut not_utf8 = Vec::new();
        for group in 0..self.reader.num_row_groups() {
            let ColumnReader::ByteArrayColumnReader(r) = self.open(group)? else {
                return Err(changed_type());
            };
            self.drain(r, &mut nulls, |v| match v {
                Some(v) => {
                    if !text.push(v.data()) {
                        not_utf8.push(text.index.len() - 1);
                    }
                }
                None => text.push_none(),
            })?;
        }
        self.complete(text.index.len())?;
        for row in not_utf8 {
            let name = raw.name(field);
            raw.spoil(report, Rule::Utf8, row, || format!("{name} is not UTF-8"));
        }
        raw.set_text(field, text);
        Ok(nulls.rows)
    }

    fn open(&self, group: usize) -> Result<ColumnReader, ParquetError> {
        self.reader.get_row_group(group)?.get_column_reader(self.at)
    }

    /// Feeds every cell of one row group, in order, to `each`; null cells as `None`.
    fn drain<T: DataType>(
        &self,
        mut reader: ColumnReaderImpl<T>,
        nulls: &mut Nulls,
        mut each: impl FnMut(Option<T::T>),
    ) -> Result<(), ParquetError> {
        let optional = self.descr.max_def_level() > 0;
        let mut levels: Vec<i16> = Vec::new();
        let mut values: Vec<T::T> = Vec::new();
        loop {
            levels.clear();
            values.clear();
            let defs = optional.then_some(&mut levels);
            let (records, _, _) = reader.read_records(BATCH, defs, None, &mut values)?;
            if records == 0 {
                return Ok(());
            }
            if nulls.cells + records > self.rows {
                return self.complete(nulls.cells + records);
            }
            if values.len() == records {
                values.drain(..).for_each(|v| each(Some(v)));
            } else {
                let mut present = values.drain(..);
                for (i, level) in levels.iter().enumerate() {
                    let cell = if *level > 0 { present.next() } else { None };
                    if cell.is_none() {
                        nulls.rows.push(nulls.cells + i);
                    }
                    each(cell);
                }
            }
            nulls.cells += records;
        }
    }

    fn complete(&self, cells: usize) -> Result<(), ParquetError> {
        if cells == self.rows {
            return Ok(());
        }
        Err(ParquetError::General(format!(
            "column `{}` has {cells} values, the file {} rows",
            self.descr.name(),
            self.rows
        )))
    }
}

fn changed_type() -> ParquetError {
    ParquetError::General("a column changes its type between row groups".to_owned())
}
