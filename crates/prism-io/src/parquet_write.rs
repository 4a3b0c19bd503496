//! Parquet columns, encoded.

use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, FloatType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::Type;

/// Rows of one row group.
const GROUP: usize = 1 << 20;

/// Cells of a column to write.
pub(crate) enum Data<'a> {
    /// 64-bit signed integers.
    Long(&'a [i64]),
    /// Integers of so many bits, signed or not, kept as the bits of 32.
    Int { cells: Vec<i32>, bits: i8, signed: bool },
    /// Single precision.
    Float(Vec<f32>),
    /// Double precision.
    Double(&'a [f64]),
    /// Text, none of it missing.
    Text(Vec<&'a str>),
    /// Text, some of it missing.
    OptionalText(Vec<Option<&'a str>>),
}

/// A column to write.
pub(crate) struct Column<'a> {
    pub(crate) name: &'a str,
    pub(crate) data: Data<'a>,
}

impl Column<'_> {
    fn schema(&self) -> Result<Type, ParquetError> {
        let (physical, logical) = match &self.data {
            Data::Long(_) => (Physical::INT64, None),
            Data::Int { bits, signed, .. } => {
                (Physical::INT32, Some(LogicalType::integer(*bits, *signed)))
            }
            Data::Float(_) => (Physical::FLOAT, None),
            Data::Double(_) => (Physical::DOUBLE, None),
            Data::Text(_) | Data::OptionalText(_) => {
                (Physical::BYTE_ARRAY, Some(LogicalType::String))
            }
        };
        let repetition = match self.data {
            Data::OptionalText(_) => Repetition::OPTIONAL,
            _ => Repetition::REQUIRED,
        };
        Type::primitive_type_builder(self.name, physical)
            .with_repetition(repetition)
            .with_logical_type(logical)
            .build()
    }

    fn write(
        &self,
        from: usize,
        group: &mut SerializedRowGroupWriter<'_, &mut Vec<u8>>,
    ) -> Result<(), ParquetError> {
        let Some(mut out) = group.next_column()? else {
            return Err(ParquetError::General("more columns than the schema has".to_owned()));
        };
        let bytes = |text: &&str| ByteArray::from(*text);
        match &self.data {
            Data::Long(v) => out.typed::<Int64Type>().write_batch(window(v, from), None, None)?,
            Data::Int { cells: v, .. } => {
                out.typed::<Int32Type>().write_batch(window(v, from), None, None)?
            }
            Data::Float(v) => out.typed::<FloatType>().write_batch(window(v, from), None, None)?,
            Data::Double(v) => {
                out.typed::<DoubleType>().write_batch(window(v, from), None, None)?
            }
            Data::Text(v) => {
                let cells: Vec<ByteArray> = window(v, from).iter().map(bytes).collect();
                out.typed::<ByteArrayType>().write_batch(&cells, None, None)?
            }
            Data::OptionalText(v) => {
                let part = window(v, from);
                let levels: Vec<i16> = part.iter().map(|c| i16::from(c.is_some())).collect();
                let cells: Vec<ByteArray> = part.iter().flatten().map(bytes).collect();
                out.typed::<ByteArrayType>().write_batch(&cells, Some(&levels), None)?
            }
        };
        out.close()
    }
}

fn window<T>(cells: &[T], from: usize) -> &[T] {
    let rest = cells.get(from..).unwrap_or_default();
    rest.get(..GROUP).unwrap_or(rest)
}

/// A Parquet file with Snappy compression. All columns have `rows` cells.
///
/// # Errors
/// What the encoder says.
pub(crate) fn encode(
    rows: usize,
    columns: &[Column<'_>],
    keys: &[(&str, String)],
) -> Result<Vec<u8>, ParquetError> {
    let fields = columns.iter().map(|c| c.schema().map(Arc::new)).collect::<Result<Vec<_>, _>>()?;
    let schema = Type::group_type_builder("schema").with_fields(fields).build()?;
    let keys = keys.iter().map(|(k, v)| KeyValue::new((*k).to_owned(), v.clone())).collect();
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_created_by(format!("prism-io {}", env!("CARGO_PKG_VERSION")))
        .set_key_value_metadata(Some(keys))
        .build();
    let mut bytes = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut bytes, Arc::new(schema), Arc::new(properties))?;
    for from in (0..rows).step_by(GROUP) {
        let mut group = writer.next_row_group()?;
        for column in columns {
            column.write(from, &mut group)?;
        }
        group.close()?;
    }
    writer.close()?;
    Ok(bytes)
}
