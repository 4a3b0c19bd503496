//! What the tests share: a small complete trace as a sheet of text cells, and Parquet files of it.
#![allow(dead_code, unreachable_pub, missing_docs)]

use std::error::Error as _;
use std::fmt::Write as _;
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{
    BoolType, ByteArray, ByteArrayType, DoubleType, FloatType, Int32Type, Int64Type,
};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;
use prism_io::{IoError, JobMeta, Loaded, NO_GROUP, OpRow, OpTable, OpTableBuilder, ReadOptions};
use prism_model::OpKind;

pub const STEPS: [i64; 4] = [10, 11, 14, 15];

pub fn meta() -> JobMeta {
    JobMeta {
        trial_name: "small".to_owned(),
        run_id: 3,
        dp_size: 2,
        dsp_size: 1,
        pp_size: 2,
        tp_size: 2,
        vpp_size: 1,
        world_size: 8,
    }
}

pub const META_YAML: &[u8] = b"trial_name: small\nrun_id: 3\ndp_size: 2\ndsp_size: 1\npp_size: 2\n\
    tp_size: 2\nvpp_size: 1\nworld_size: 8\n";

/// Kinds and counts of one cell of a two-stage job with two microbatches.
fn cell_ops(stage: u16) -> Vec<(OpKind, u32)> {
    let mut ops = vec![
        (OpKind::ParamsAllGather, 1),
        (OpKind::ForwardCompute, 2),
        (OpKind::BackwardCompute, 2),
        (OpKind::Gc, 1),
        (OpKind::LayernormGradsAllReduce, 1),
        (OpKind::EmbeddingGradsAllReduce, 1),
        (OpKind::GradsReduceScatter, 1),
        (OpKind::OptimizerClipMainGrad, 1),
        (OpKind::Optimizer, 1),
    ];
    ops.extend(if stage == 0 {
        [(OpKind::ForwardSend, 2), (OpKind::BackwardRecv, 2)]
    } else {
        [(OpKind::ForwardRecv, 2), (OpKind::BackwardSend, 2)]
    });
    ops
}

/// A complete trace of four steps, 15 operations per cell, a step lasting about 1 s.
pub fn small() -> OpTable {
    let mut b = OpTableBuilder::new(meta());
    for step in STEPS {
        for (dp, stage) in [(0, 0), (1, 0), (0, 1), (1, 1_u16)] {
            let mut slot = 0.0;
            for (kind, count) in cell_ops(stage) {
                for seq in 0..count {
                    let compute = kind.is_microbatch_compute();
                    let chunked = compute
                        || matches!(kind, OpKind::ParamsAllGather | OpKind::GradsReduceScatter);
                    let start_s = slot * 0.0625;
                    let duration_s = 0.03125 + 0.001 * f64::from(dp) + step as f64 * 1e-5;
                    slot += 1.0;
                    b.push(OpRow {
                        step,
                        rank: 2 * (dp + 2 * u32::from(stage)),
                        dp,
                        stage,
                        chunk: if chunked { 0 } else { -1 },
                        global_chunk: if compute { i32::from(stage) } else { -1 },
                        microbatch: if compute { seq as i32 } else { -1 },
                        kind,
                        start_s,
                        duration_s,
                        end_s: start_s + duration_s,
                        seq,
                        group: NO_GROUP,
                    });
                }
            }
        }
    }
    b.finish()
}

pub const COLUMNS: [&str; 11] = [
    "dp_rank", "stage", "rank", "step", "optype", "start_ts", "duration", "seq_id", "mc", "mb_id",
    "gmc",
];

/// A table of text cells that tests damage in one place.
#[derive(Clone, Debug)]
pub struct Sheet {
    pub header: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

impl Sheet {
    pub fn small() -> Sheet {
        Sheet::of(&small())
    }

    pub fn of(t: &OpTable) -> Sheet {
        let rows = t.rows().map(|r| {
            vec![
                r.dp.to_string(),
                r.stage.to_string(),
                r.rank.to_string(),
                r.step.to_string(),
                r.kind.to_string(),
                r.start_s.to_string(),
                r.duration_s.to_string(),
                r.seq.to_string(),
                r.chunk.to_string(),
                r.microbatch.to_string(),
                r.global_chunk.to_string(),
            ]
        });
        Sheet { header: COLUMNS.map(str::to_owned).to_vec(), rows: rows.collect() }
    }

    pub fn column(&self, name: &str) -> usize {
        self.header.iter().position(|h| h == name).unwrap()
    }

    pub fn get(&self, row: usize, column: &str) -> &str {
        &self.rows[row][self.column(column)]
    }

    #[must_use]
    pub fn set(mut self, row: usize, column: &str, cell: &str) -> Sheet {
        let at = self.column(column);
        cell.clone_into(&mut self.rows[row][at]);
        self
    }

    #[must_use]
    pub fn without_column(mut self, name: &str) -> Sheet {
        let at = self.column(name);
        self.header.remove(at);
        for row in &mut self.rows {
            row.remove(at);
        }
        self
    }

    #[must_use]
    pub fn rename(mut self, from: &str, to: &str) -> Sheet {
        let at = self.column(from);
        to.clone_into(&mut self.header[at]);
        self
    }

    #[must_use]
    pub fn with_column(mut self, name: &str, cell: impl Fn(&[String]) -> String) -> Sheet {
        self.header.push(name.to_owned());
        for row in &mut self.rows {
            let cell = cell(row);
            row.push(cell);
        }
        self
    }

    /// Removes the rows for which `gone` is true of (step, rank, kind, seq).
    #[must_use]
    pub fn without(mut self, gone: impl Fn(&str, &str, &str, &str) -> bool) -> Sheet {
        let at = ["step", "rank", "optype", "seq_id"].map(|c| self.column(c));
        self.rows.retain(|r| !gone(&r[at[0]], &r[at[1]], &r[at[2]], &r[at[3]]));
        self
    }

    #[must_use]
    pub fn scale(mut self, by: f64) -> Sheet {
        for column in ["start_ts", "duration"] {
            let at = self.column(column);
            for row in &mut self.rows {
                row[at] = (row[at].parse::<f64>().unwrap() * by).to_string();
            }
        }
        self
    }

    pub fn csv(&self) -> Vec<u8> {
        let mut text = self.header.join(",") + "\n";
        for row in &self.rows {
            text += &row.join(",");
            text.push('\n');
        }
        text.into_bytes()
    }

    /// Types as the public traces have them, times in double precision.
    pub fn parquet_columns(&self) -> Vec<(String, Cells)> {
        self.header
            .iter()
            .enumerate()
            .map(|(at, name)| {
                let cells = self.rows.iter().map(|r| r[at].as_str());
                let data = match name.as_str() {
                    "optype" => Cells::text(cells),
                    "start_ts" | "duration" | "end_ts" => {
                        Cells::F64(cells.map(|c| c.parse().ok()).collect())
                    }
                    "step" => Cells::I64(cells.map(|c| c.parse().ok()).collect(), None),
                    _ => Cells::I32(cells.map(|c| c.parse().ok()).collect(), None),
                };
                (name.clone(), data)
            })
            .collect()
    }

    pub fn parquet(&self) -> Vec<u8> {
        parquet_file(&self.parquet_columns(), &[])
    }

    /// Parquet with one column replaced.
    pub fn parquet_with(&self, name: &str, cells: impl Fn(&[&str]) -> Cells) -> Vec<u8> {
        let mut columns = self.parquet_columns();
        let at = self.column(name);
        let texts: Vec<&str> = self.rows.iter().map(|r| r[at].as_str()).collect();
        columns[at].1 = cells(&texts);
        parquet_file(&columns, &[])
    }
}

/// Cells of a Parquet column, optional as most writers make them.
#[derive(Clone, Debug)]
pub enum Cells {
    I32(Vec<Option<i32>>, Option<LogicalType>),
    I64(Vec<Option<i64>>, Option<LogicalType>),
    F32(Vec<Option<f32>>),
    F64(Vec<Option<f64>>),
    Bool(Vec<Option<bool>>),
    Bytes(Vec<Option<Vec<u8>>>, Option<LogicalType>),
    /// A list of integers, one per row.
    List(Vec<i32>),
}

impl Cells {
    pub fn text<'a>(cells: impl Iterator<Item = &'a str>) -> Cells {
        let cells = cells.map(|c| Some(c.as_bytes().to_vec())).collect();
        Cells::Bytes(cells, Some(LogicalType::String))
    }

    fn schema(&self, name: &str) -> Type {
        let (physical, logical) = match self {
            Cells::I32(_, l) => (Physical::INT32, l.clone()),
            Cells::I64(_, l) => (Physical::INT64, l.clone()),
            Cells::F32(_) => (Physical::FLOAT, None),
            Cells::F64(_) => (Physical::DOUBLE, None),
            Cells::Bool(_) => (Physical::BOOLEAN, None),
            Cells::Bytes(_, l) => (Physical::BYTE_ARRAY, l.clone()),
            Cells::List(_) => (Physical::INT32, None),
        };
        let repetition = match self {
            Cells::List(_) => Repetition::REPEATED,
            _ => Repetition::OPTIONAL,
        };
        Type::primitive_type_builder(name, physical)
            .with_logical_type(logical)
            .with_repetition(repetition)
            .build()
            .unwrap()
    }
}

/// A Parquet file of one row group. Panics on what the encoder refuses: the tests' own mistake.
pub fn parquet_file(columns: &[(String, Cells)], keys: &[(&str, &str)]) -> Vec<u8> {
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY);
    parquet_file_with(properties, columns, keys)
}

/// As [`parquet_file`], with these properties.
pub fn parquet_file_with(
    properties: WriterPropertiesBuilder,
    columns: &[(String, Cells)],
    keys: &[(&str, &str)],
) -> Vec<u8> {
    let fields = columns.iter().map(|(n, c)| Arc::new(c.schema(n))).collect();
    let schema = Type::group_type_builder("schema").with_fields(fields).build().unwrap();
    let keys: Vec<KeyValue> =
        keys.iter().map(|(k, v)| KeyValue::new((*k).to_owned(), (*v).to_owned())).collect();
    let properties = properties.set_key_value_metadata(Some(keys)).build();
    let mut bytes = Vec::new();
    let mut writer =
        SerializedFileWriter::new(&mut bytes, Arc::new(schema), Arc::new(properties)).unwrap();
    let mut group = writer.next_row_group().unwrap();
    for (_, cells) in columns {
        let mut out = group.next_column().unwrap().unwrap();
        macro_rules! write {
            ($kind:ty, $cells:expr) => {{
                let levels: Vec<i16> = $cells.iter().map(|c| i16::from(c.is_some())).collect();
                let values: Vec<_> = $cells.iter().flatten().cloned().collect();
                out.typed::<$kind>().write_batch(&values, Some(&levels), None).unwrap()
            }};
        }
        match cells {
            Cells::I32(v, _) => write!(Int32Type, v),
            Cells::I64(v, _) => write!(Int64Type, v),
            Cells::F32(v) => write!(FloatType, v),
            Cells::F64(v) => write!(DoubleType, v),
            Cells::Bool(v) => write!(BoolType, v),
            Cells::Bytes(v, _) => {
                let v: Vec<Option<ByteArray>> =
                    v.iter().map(|c| c.clone().map(ByteArray::from)).collect();
                write!(ByteArrayType, v)
            }
            Cells::List(v) => {
                let ones = vec![1_i16; v.len()];
                let zeros = vec![0_i16; v.len()];
                out.typed::<Int32Type>().write_batch(v, Some(&ones), Some(&zeros)).unwrap()
            }
        };
        out.close().unwrap();
    }
    group.close().unwrap();
    writer.close().unwrap();
    bytes
}

/// Reads with the small job's metadata.
pub fn read(name: &str, bytes: &[u8]) -> Result<Loaded, IoError> {
    let meta = Some(("meta-small.yaml", META_YAML));
    prism_io::read_op_table_bytes(name, bytes, meta, &ReadOptions::default())
}

/// An error as the command line prints it: message, causes, hint.
pub fn text(error: &IoError) -> String {
    let mut out = error.to_string();
    let mut cause = error.source();
    while let Some(c) = cause {
        write!(out, "\n  cause: {c}").unwrap();
        cause = c.source();
    }
    if let Some(hint) = error.hint() {
        write!(out, "\nhint: {hint}").unwrap();
    }
    out
}
