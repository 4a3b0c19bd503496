//! Writing a table of operations in each of the formats that are read.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use flate2::write::GzEncoder;
use prism_model::OpKind;

use crate::atomic::write_atomic;
use crate::error::IoError;
use crate::meta::meta_candidates;
use crate::native;
use crate::op_table::{JobMeta, OpTable};
use crate::parquet_write::{Column, Data, encode};
use crate::raw::{Dialect, Field};
use crate::samples::system_error;
use crate::source;

/// Writes native Parquet, atomically; `-` is standard output.
///
/// Times that single precision holds exactly, with ends that are single-precision sums, are
/// written as such, so that what is read back has the same bits. [`OpTable::sources`] is not
/// written, and process groups without a row are forgotten.
///
/// # Errors
/// [`IoError::Write`]; [`IoError::NotRecordable`] for operations that only graphs have.
pub fn write_op_table(path: &Path, table: &OpTable) -> Result<(), IoError> {
    let meta = serde_json::to_string(&table.meta)
        .map_err(|e| IoError::Write { file: source::name(path), source: e.into() })?;
    let keys = [(native::SCHEMA_KEY, native::SCHEMA.to_owned()), (native::META_KEY, meta)];
    write_parquet(path, table, Dialect::Native, &keys)
}

/// Writes Parquet in the straggler format and its YAML metadata beside it, each atomically;
/// returns the metadata's path, `None` if the trace went to standard output.
///
/// # Errors
/// As [`write_op_table`].
pub fn write_op_table_straggler(path: &Path, table: &OpTable) -> Result<Option<PathBuf>, IoError> {
    write_parquet(path, table, Dialect::Straggler, &[])?;
    write_meta_beside(path, &table.meta)
}

/// Writes CSV with the straggler format's columns, compressed if the name ends in `.gz`, and its
/// YAML metadata beside it, each atomically; returns the metadata's path, `None` if the trace
/// went to standard output.
///
/// Numbers are written with as many digits as it takes to read the same bits back.
///
/// # Errors
/// As [`write_op_table`].
pub fn write_op_table_csv(path: &Path, table: &OpTable) -> Result<Option<PathBuf>, IoError> {
    recordable(path, table)?;
    write_atomic(path, |out| {
        if path.extension().is_some_and(|e| e.eq_ignore_ascii_case("gz")) {
            let mut gz = GzEncoder::new(out, flate2::Compression::default());
            csv(&mut gz, table)?;
            gz.finish().map(|_| ())
        } else {
            csv(out, table)
        }
    })?;
    write_meta_beside(path, &table.meta)
}

/// Writes YAML metadata, atomically.
///
/// # Errors
/// [`IoError::Write`].
pub fn write_meta_yaml(path: &Path, meta: &JobMeta) -> Result<(), IoError> {
    write_atomic(path, |out| {
        let text = serde_saphyr::to_string(meta).map_err(io::Error::other)?;
        out.write_all(text.as_bytes())
    })
}

fn write_meta_beside(path: &Path, meta: &JobMeta) -> Result<Option<PathBuf>, IoError> {
    if source::is_stdio(path) {
        return Ok(None);
    }
    let beside = meta_candidates(path).into_iter().next();
    if let Some(beside) = &beside {
        write_meta_yaml(beside, meta)?;
    }
    Ok(beside)
}

fn recordable(path: &Path, table: &OpTable) -> Result<(), IoError> {
    match table.kind.iter().find(|k| !OpKind::RECORDED.contains(k)) {
        None => Ok(()),
        Some(kind) => Err(IoError::NotRecordable { file: source::name(path), kind: *kind }),
    }
}

/// How a table's ends follow from its starts and durations.
enum Ends {
    /// Single-precision sums of single-precision numbers.
    Single,
    /// Sums.
    Double,
    /// Neither: they need a column.
    Own,
}

fn ends(t: &OpTable) -> Ends {
    let same = |a: f64, b: f64| a.to_bits() == b.to_bits();
    let single = |v: f64| same(f64::from(v as f32), v);
    let rows = || t.start_s.iter().zip(&t.duration_s).zip(&t.end_s);
    if rows()
        .all(|((&s, &d), &e)| single(s) && single(d) && same(f64::from(s as f32 + d as f32), e))
    {
        Ends::Single
    } else if rows().all(|((&s, &d), &e)| same(s + d, e)) {
        Ends::Double
    } else {
        Ends::Own
    }
}

fn write_parquet(
    path: &Path,
    table: &OpTable,
    dialect: Dialect,
    keys: &[(&str, String)],
) -> Result<(), IoError> {
    recordable(path, table)?;
    write_atomic(path, |out| {
        let columns = columns(table, dialect);
        let bytes = encode(table.len(), &columns, keys).map_err(io::Error::other)?;
        out.write_all(&bytes)
    })
}

fn columns(t: &OpTable, dialect: Dialect) -> Vec<Column<'_>> {
    let unsigned = |cells: &[u32]| Data::Int {
        cells: cells.iter().map(|v| v.cast_signed()).collect(),
        bits: 32,
        signed: false,
    };
    let signed = |cells: &[i32]| Data::Int { cells: cells.to_vec(), bits: 32, signed: true };
    let ends = ends(t);
    let time = |cells| match ends {
        Ends::Single => Data::Float(to_single(cells)),
        Ends::Double | Ends::Own => Data::Double(cells),
    };
    let stage = t.stage.iter().map(|v| i32::from(*v)).collect();
    let chunk = t.chunk.iter().map(|v| i32::from(*v)).collect();
    let mut fields = vec![
        (Field::Step, Data::Long(&t.step)),
        (Field::Rank, unsigned(&t.rank)),
        (Field::Dp, unsigned(&t.dp)),
        (Field::Stage, Data::Int { cells: stage, bits: 16, signed: false }),
        (Field::Chunk, Data::Int { cells: chunk, bits: 16, signed: true }),
        (Field::GlobalChunk, signed(&t.global_chunk)),
        (Field::Microbatch, signed(&t.microbatch)),
        (Field::Kind, Data::Text(t.kind.iter().map(|k| k.as_str()).collect())),
        (Field::Start, time(&t.start_s)),
        (Field::Duration, time(&t.duration_s)),
        (Field::Seq, unsigned(&t.seq)),
    ];
    if matches!(ends, Ends::Own) {
        fields.push((Field::End, Data::Double(&t.end_s)));
    }
    if dialect == Dialect::Native || grouped(t) {
        let groups = t.group.iter().map(|g| group_name(t, *g)).collect();
        fields.push((Field::Group, Data::OptionalText(groups)));
    }
    fields.into_iter().map(|(f, data)| Column { name: f.name(dialect), data }).collect()
}

fn to_single(cells: &[f64]) -> Vec<f32> {
    cells.iter().map(|v| *v as f32).collect()
}

fn grouped(t: &OpTable) -> bool {
    t.group.iter().any(|g| group_name(t, *g).is_some())
}

fn group_name(t: &OpTable, group: u32) -> Option<&str> {
    t.group_names.get(usize::try_from(group).ok()?).map(String::as_str)
}

/// Order of the columns in CSV, as the straggler format has them.
const CSV_COLUMNS: [Field; 11] = [
    Field::Dp,
    Field::Stage,
    Field::Rank,
    Field::Step,
    Field::Kind,
    Field::Start,
    Field::Duration,
    Field::Seq,
    Field::Chunk,
    Field::Microbatch,
    Field::GlobalChunk,
];

fn csv(out: &mut dyn Write, t: &OpTable) -> io::Result<()> {
    let mut fields = CSV_COLUMNS.to_vec();
    // Text keeps no precision: ends that are not double-precision sums need their column.
    if t.rows().any(|r| (r.start_s + r.duration_s).to_bits() != r.end_s.to_bits()) {
        fields.push(Field::End);
    }
    if grouped(t) {
        fields.push(Field::Group);
    }
    let mut writer = csv::Writer::from_writer(out);
    writer.write_record(fields.iter().map(|f| f.name(Dialect::Straggler))).map_err(system_error)?;
    for r in t.rows() {
        for field in &fields {
            let cell = match field {
                Field::Step => r.step.to_string(),
                Field::Rank => r.rank.to_string(),
                Field::Dp => r.dp.to_string(),
                Field::Stage => r.stage.to_string(),
                Field::Chunk => r.chunk.to_string(),
                Field::GlobalChunk => r.global_chunk.to_string(),
                Field::Microbatch => r.microbatch.to_string(),
                Field::Seq => r.seq.to_string(),
                Field::Start => format!("{:?}", r.start_s),
                Field::Duration => format!("{:?}", r.duration_s),
                Field::End => format!("{:?}", r.end_s),
                Field::Kind => r.kind.to_string(),
                Field::Group => group_name(t, r.group).unwrap_or_default().to_owned(),
            };
            writer.write_field(cell).map_err(system_error)?;
        }
        writer.write_record(None::<&[u8]>).map_err(system_error)?;
    }
    writer.flush()
}
