//! What is said about broken input: one snapshot per way of being broken.
//!
//! After a change of wording, `INSTA_UPDATE=always cargo test -p prism-io --test malformed`
//! rewrites the snapshots; read the difference.

mod common;

use std::io::Write;

use common::{Cells, META_YAML, Sheet, parquet_file, small, text};
use parquet::basic::{LogicalType, TimeUnit};
use parquet::file::properties::WriterProperties;
use prism_io::{IoError, Limits, ReadOptions, read_op_table, read_op_table_bytes};

/// Asserts that reading fails, and how that is said.
fn broken(name: &str, bytes: &[u8]) {
    broken_with(name, bytes, META_YAML);
}

fn broken_with(name: &str, bytes: &[u8], meta: &[u8]) {
    let meta = Some(("meta-small.yaml", meta));
    let read = read_op_table_bytes("trace-small", bytes, meta, &ReadOptions::default());
    insta::assert_snapshot!(name, text(&read.unwrap_err()));
}

fn broken_meta(name: &str, meta: &str) {
    broken_with(name, &Sheet::small().csv(), meta.as_bytes());
}

fn meta_with(from: &str, to: &str) -> String {
    let meta = String::from_utf8(META_YAML.to_vec()).unwrap();
    assert!(meta.contains(from));
    meta.replace(from, to)
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gz.write_all(bytes).unwrap();
    gz.finish().unwrap()
}

// Content that is no table.

#[test]
fn empty() {
    broken("empty-file", b"");
    broken("blank-file", b"\n \n\n");
    broken("header-only-csv", (Sheet::small().header.join(",") + "\n").as_bytes());
    let mut sheet = Sheet::small();
    sheet.rows.clear();
    broken("header-only-parquet", &sheet.parquet());
    broken("empty-gzip", &gzip(b""));
}

#[test]
fn other_formats() {
    broken("zstd", &[0x28, 0xB5, 0x2F, 0xFD, 0, 1, 2]);
    broken("zip", b"PK\x03\x04rest");
    broken("feather", b"ARROW1\0\0rest");
    broken("json", b" {\"traceEvents\": []}");
    broken("utf16", b"\xFF\xFEs\0t\0e\0p\0");
    broken("nested-gzip", &gzip(&gzip(b"step")));
    broken("prose", b"Dear colleague,\nplease find the trace attached.\n");
}

#[test]
fn damaged_gzip() {
    let whole = gzip(&Sheet::small().csv());
    broken("gzip-truncated", &whole[..whole.len() / 2]);
    broken("gzip-header-only", &whole[..4]);
    let mut flipped = whole.clone();
    let at = flipped.len() - 6;
    flipped[at] ^= 1;
    broken("gzip-checksum", &flipped);
}

#[test]
fn limits() {
    let read = |bytes: &[u8], limits| {
        let options = ReadOptions::default().with_limits(limits);
        read_op_table_bytes("trace-small", bytes, Some(("m", META_YAML)), &options).unwrap_err()
    };
    let rows = Limits { rows: 100, ..Limits::default() };
    insta::assert_snapshot!("too-many-rows", text(&read(&Sheet::small().csv(), rows)));
    assert_eq!(
        text(&read(&Sheet::small().parquet(), rows)),
        text(&read(&Sheet::small().csv(), rows))
    );
    let bytes = Limits { bytes: 1 << 20, ..Limits::default() };
    insta::assert_snapshot!("gzip-bomb", text(&read(&gzip(&vec![b'0'; 1 << 24]), bytes)));
}

// Files and folders.

#[test]
fn paths() {
    let folder = tempfile::tempdir().unwrap();
    let said = |path: &std::path::Path, options: &ReadOptions| {
        let folder = folder.path().display().to_string();
        text(&read_op_table(path, options).unwrap_err()).replace(&folder, "FOLDER")
    };
    let path = folder.path().join("trace-x.parquet");
    let plain = ReadOptions::default();
    insta::assert_snapshot!("missing-file", said(&path, &plain));
    insta::assert_snapshot!("folder", said(folder.path(), &plain));
    std::fs::write(&path, Sheet::small().parquet()).unwrap();
    insta::assert_snapshot!("missing-meta", said(&path, &plain));
    let other = folder.path().join("y.csv.gz");
    std::fs::write(&other, Sheet::small().csv()).unwrap();
    insta::assert_snapshot!("missing-meta-csv", said(&other, &plain));
    let given = plain.with_meta(folder.path().join("nowhere.yaml"));
    insta::assert_snapshot!("missing-given-meta", said(&path, &given));
    let bytes = Sheet::small().csv();
    let error = read_op_table_bytes("-", &bytes, None, &ReadOptions::default()).unwrap_err();
    insta::assert_snapshot!("missing-meta-stdin", text(&error));
}

// Metadata.

#[test]
fn metadata() {
    broken_meta("meta-syntax", "dp_size: [2\npp_size: 2\n");
    broken_meta("meta-empty", "");
    broken_meta("meta-list", "- dp_size\n- 2\n");
    broken_meta("meta-missing-key", &meta_with("tp_size: 2\n", ""));
    broken_meta("meta-text-size", &meta_with("pp_size: 2", "pp_size: two"));
    broken_meta("meta-negative-size", &meta_with("pp_size: 2", "pp_size: -2"));
    broken_meta("meta-huge-size", &meta_with("pp_size: 2", "pp_size: 99999999999"));
    broken_meta("meta-repeated-key", &meta_with("pp_size: 2\n", "pp_size: 2\npp_size: 2\n"));
    broken_with("meta-not-utf8", &Sheet::small().csv(), b"trial_name: caf\xE9\n");
    broken_with("meta-is-the-trace", &Sheet::small().csv(), &Sheet::small().parquet());
}

#[test]
fn metadata_disagrees() {
    broken_meta("meta-product", &meta_with("world_size: 8", "world_size: 16"));
    broken_meta("meta-zero", &meta_with("vpp_size: 1", "vpp_size: 0"));
    let meta = meta_with("dp_size: 2", "dp_size: 4").replace("world_size: 8", "world_size: 16");
    broken_meta("meta-dp-disagrees", &meta);
    let meta = meta_with("pp_size: 2", "pp_size: 1").replace("world_size: 8", "world_size: 4");
    broken_meta("meta-pp-disagrees", &meta);
    broken("chunk-beyond-meta", &Sheet::small().set(3, "mc", "1").set(4, "gmc", "2").csv());
    let meta = meta_with("vpp_size: 1", "vpp_size: 2");
    let sheet = Sheet::small().without_column("mc").without_column("mb_id");
    broken_with("interleaved-without-chunks", &sheet.csv(), meta.as_bytes());
}

// Columns.

#[test]
fn columns() {
    broken("column-missing", &Sheet::small().without_column("start_ts").csv());
    broken("column-misspelt", &Sheet::small().rename("optype", "op_type").csv());
    broken("column-missing-parquet", &Sheet::small().without_column("duration").parquet());
    broken("cells-missing", &Sheet::small().without_column("rank").without_column("stage").csv());
    let twice = Sheet::small().with_column("step", |r| r[3].clone());
    broken("column-twice", &twice.csv());
    let text = String::from_utf8(Sheet::small().csv()).unwrap().replace(',', ";");
    broken("semicolons", text.as_bytes());
}

#[test]
fn column_types() {
    let sheet = Sheet::small();
    let bytes = sheet
        .parquet_with("step", |cells| Cells::F64(cells.iter().map(|c| c.parse().ok()).collect()));
    broken("type-float-step", &bytes);
    let bytes = sheet.parquet_with("start_ts", |cells| {
        Cells::I64(cells.iter().map(|_| Some(1)).collect(), None)
    });
    broken("type-integer-start", &bytes);
    let bytes = sheet.parquet_with("start_ts", |cells| {
        let logical = LogicalType::timestamp(true, TimeUnit::MICROS);
        Cells::I64(cells.iter().map(|_| Some(1)).collect(), Some(logical))
    });
    broken("type-timestamp", &bytes);
    let bytes =
        sheet.parquet_with("rank", |cells| Cells::Bool(cells.iter().map(|_| Some(true)).collect()));
    broken("type-boolean-rank", &bytes);
    let bytes = sheet.parquet_with("optype", |cells| Cells::List(vec![1; cells.len()]));
    broken("type-list-kind", &bytes);
    let bytes = sheet.parquet_with("seq_id", |cells| Cells::text(cells.iter().copied()));
    broken("type-text-seq", &bytes);
}

// Cells.

#[test]
fn csv_cells() {
    broken("negative-duration", &Sheet::small().set(7, "duration", "-0.25").csv());
    broken("negative-start", &Sheet::small().set(7, "start_ts", "-1e-9").csv());
    broken("nan", &Sheet::small().set(7, "duration", "NaN").csv());
    broken("infinity", &Sheet::small().set(0, "start_ts", "inf").csv());
    broken("overflow", &Sheet::small().set(0, "start_ts", "1e999").csv());
    let sheet = Sheet::small().set(0, "start_ts", "1e308").set(0, "duration", "1.7e308");
    broken("sum-overflow", &sheet.csv());
    broken("decimal-comma", &Sheet::small().set(2, "duration", "\"0,25\"").csv());
    broken("huge-integer", &Sheet::small().set(2, "step", "99999999999999999999").csv());
    broken("fraction", &Sheet::small().set(2, "step", "10.0").csv());
    broken("negative-rank", &Sheet::small().set(2, "rank", "-2").csv());
    broken("huge-stage", &Sheet::small().set(2, "stage", "65536").csv());
    broken("chunk-below", &Sheet::small().set(2, "mc", "-2").csv());
    broken("empty-cell", &Sheet::small().set(5, "seq_id", " ").csv());
    broken("not-utf8", &{
        let mut bytes = Sheet::small().set(1, "optype", "forward-QQ").csv();
        let at = bytes.windows(2).position(|w| w == b"QQ").unwrap();
        bytes[at] = 0xFF;
        bytes
    });
    broken("kind-misspelt", &Sheet::small().set(1, "optype", "Forward_Compute").csv());
    broken("kind-unknown", &Sheet::small().set(1, "optype", "all2all").csv());
    broken("kind-inferred", &Sheet::small().set(1, "optype", "barrier").csv());
    let late = Sheet::small().with_column("end_ts", |r| {
        let end: f64 = r[5].parse::<f64>().unwrap() + r[6].parse::<f64>().unwrap();
        if r[3] == "14" && r[4] == "optimizer" { "2.5".to_owned() } else { end.to_string() }
    });
    broken("end-disagrees", &late.csv());
}

#[test]
fn csv_lines() {
    let whole = Sheet::small().csv();
    broken("last-line-cut", &whole[..whole.len() - 6]);
    let text = String::from_utf8(whole).unwrap();
    broken("extra-field", text.replacen("optimizer", "optimizer,", 1).as_bytes());
    broken("open-quote", text.replacen("optimizer", "\"optimizer", 1).as_bytes());
}

#[test]
fn parquet_cells() {
    let sheet = Sheet::small();
    let bytes = sheet.parquet_with("duration", |cells| {
        let mut v: Vec<Option<f64>> = cells.iter().map(|c| c.parse().ok()).collect();
        (v[3], v[4], v[5], v[9]) = (None, Some(f64::NAN), Some(f64::INFINITY), Some(-1.0));
        Cells::F64(v)
    });
    broken("parquet-cells", &bytes);
    let bytes = sheet.parquet_with("start_ts", |cells| {
        Cells::F32(cells.iter().map(|_| Some(f32::MAX)).collect())
    });
    broken("parquet-starts-huge", &bytes);
    let bytes = sheet.parquet_with("step", |cells| {
        let mut v: Vec<Option<i64>> = cells.iter().map(|c| c.parse().ok()).collect();
        v[0] = None;
        Cells::I64(v, None)
    });
    broken("parquet-null-step", &bytes);
    let bytes = sheet.parquet_with("optype", |cells| {
        let mut v: Vec<Option<Vec<u8>>> = cells.iter().map(|c| Some(c.bytes().collect())).collect();
        (v[0], v[1], v[2]) = (None, Some(vec![0xFF, 0xFE]), Some(b"optimiser".to_vec()));
        Cells::Bytes(v, None)
    });
    broken("parquet-kinds", &bytes);
    let bytes = sheet.parquet_with("rank", |cells| {
        let mut v: Vec<Option<i64>> = cells.iter().map(|c| c.parse().ok()).collect();
        v[8] = Some(-1);
        Cells::I64(v, Some(LogicalType::integer(64, false)))
    });
    broken("parquet-unsigned", &bytes);
}

// Rows together.

#[test]
fn keys_and_order() {
    let sheet = Sheet::small();
    let seq = |s: &Sheet, row: usize, to: &str| s.clone().set(row, "seq_id", to);
    // Rows 0 and 1 are the two forward computes of step 10 on rank 0.
    assert_eq!((sheet.get(0, "optype"), sheet.get(1, "seq_id")), ("forward-compute", "1"));
    broken("duplicate-key", &seq(&sheet, 1, "0").csv());
    broken("seq-gap", &seq(&sheet, 1, "2").csv());
    broken("seq-order", &seq(&seq(&sheet, 0, "1"), 1, "0").csv());
}

#[test]
fn completeness() {
    let sheet = Sheet::small;
    broken("rank-missing", &sheet().without(|s, r, _, _| s == "11" && r == "4").csv());
    broken(
        "op-missing",
        &sheet()
            .without(|s, r, k, q| s == "14" && r == "0" && k == "forward-send" && q == "1")
            .csv(),
    );
    broken(
        "kind-missing",
        &sheet().without(|s, r, k, _| s == "15" && r == "6" && k == "optimizer").parquet(),
    );
    broken("step-cut", &sheet().without(|s, r, k, _| s == "15" && (r != "0" || k != "gc")).csv());
    let mut more = sheet();
    let mut row = more.rows[0].clone();
    "2".clone_into(&mut row[7]);
    "0.9".clone_into(&mut row[5]);
    more.rows.push(row);
    broken("op-added", &more.csv());
    // Two steps, each lacking what the other has.
    let both = sheet()
        .without(|s, _, _, _| s == "14" || s == "15")
        .without(|s, r, _, _| (s == "10" && r == "2") || (s == "11" && r == "6"));
    let options = ReadOptions::default().with_allow_incomplete(true);
    let read = read_op_table_bytes("trace-small", &both.csv(), Some(("m", META_YAML)), &options);
    insta::assert_snapshot!("no-step-complete", text(&read.unwrap_err()));
}

#[test]
fn placement() {
    broken(
        "rank-in-two-cells",
        &Sheet::small().set(20, "dp_rank", "0").set(20, "stage", "1").csv(),
    );
    let mut sheet = Sheet::small();
    for row in &mut sheet.rows {
        if row[3] == "14" && row[2] == "4" {
            "5".clone_into(&mut row[2]);
        }
    }
    broken("cell-on-two-ranks", &sheet.csv());
    let mut sheet = Sheet::small();
    for row in &mut sheet.rows {
        if row[2] == "6" {
            "9".clone_into(&mut row[2]);
        }
    }
    broken("rank-beyond-world", &sheet.csv());
}

#[test]
fn clocks() {
    let mut sheet = Sheet::small();
    for row in &mut sheet.rows {
        row[5] = (row[5].parse::<f64>().unwrap() + 1_700_000_000.0).to_string();
    }
    broken("absolute-starts", &sheet.csv());
    broken("microseconds", &Sheet::small().scale(1e6).csv());
    broken("nanoseconds", &Sheet::small().scale(1e9).parquet());
    broken("too-short", &Sheet::small().scale(1e-9).csv());
    // Milliseconds of a step this short are possible seconds, but not likely ones.
    let loaded = common::read("trace-small", &Sheet::small().scale(1e3).csv()).unwrap();
    assert_eq!(loaded.warnings.len(), 1);
    assert!(loaded.warnings[0].ends_with("are these seconds?"), "{:?}", loaded.warnings);
}

#[test]
fn many_at_once() {
    let mut sheet = Sheet::small();
    for row in &mut sheet.rows {
        if row[4] == "optimizer" {
            "-1".clone_into(&mut row[6]);
        }
        if row[4].ends_with("-compute") {
            "x".clone_into(&mut row[7]);
        }
    }
    let meta = meta_with("world_size: 8", "world_size: 7");
    broken_with("several-rules", &sheet.csv(), meta.as_bytes());
}

// Parquet files as such.

#[test]
fn damaged_parquet() {
    let whole = Sheet::small().parquet();
    broken("parquet-magic-only", b"PAR1");
    broken("parquet-cut-1-byte", &whole[..whole.len() - 1]);
    broken("parquet-cut-half", &whole[..whole.len() / 2]);
    broken("parquet-cut-front", &[b"PAR1", &whole[whole.len() / 2..]].concat());
    let mut wrong = whole.clone();
    let at = wrong.len() - 8;
    wrong[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
    broken("parquet-footer-length", &wrong);
    let mut zeroed = whole.clone();
    zeroed[4..200].fill(0);
    broken("parquet-pages-zeroed", &zeroed);
    // Cut anywhere, a file is refused and nothing panics.
    for end in 0..whole.len() {
        assert!(common::read("t", &whole[..end]).is_err(), "cut at {end}");
    }
}

/// Every single-byte change either is refused, or gives the same table, or one that could have
/// been written: what is read is always valid and can be written and read again.
#[test]
fn changed_bytes() {
    let whole = Sheet::small().parquet();
    let folder = tempfile::tempdir().unwrap();
    let original = small();
    let mut accepted = 0;
    for at in 0..whole.len() {
        for flip in [0x01, 0x80, 0xFF] {
            let mut bytes = whole.clone();
            bytes[at] ^= flip;
            let limits = Limits { rows: 1 << 20, bytes: 1 << 24 };
            let options = ReadOptions::default().with_limits(limits);
            let Ok(loaded) = read_op_table_bytes("t", &bytes, Some(("m", META_YAML)), &options)
            else {
                continue;
            };
            accepted += 1;
            let mut table = loaded.table;
            table.sources.clear();
            if table == original {
                continue;
            }
            let path = folder.path().join("again.parquet");
            prism_io::write_op_table(&path, &table).unwrap();
            let mut again = read_op_table(&path, &ReadOptions::default()).unwrap().table;
            again.sources.clear();
            assert_eq!(again, table, "byte {at} ^ {flip}");
        }
    }
    assert!(accepted > 0, "no change was harmless: the test shows nothing");
}

/// The decoder panics on run lengths that do not end. That is an error like any other.
#[test]
fn decoder_panics_are_errors() {
    use parquet::basic::Compression;
    let columns = Sheet::small().parquet_columns();
    let plain = WriterProperties::builder().set_compression(Compression::UNCOMPRESSED);
    let whole = common::parquet_file_with(plain, &columns, &[]);
    let mut panics = Vec::new();
    for at in 4..whole.len() - 400 {
        let mut bytes = whole.clone();
        bytes[at..at + 12].fill(0xFF);
        if let Err(error @ IoError::ParquetPanic { .. }) = common::read("trace-small", &bytes) {
            panics.push(text(&error));
        }
    }
    assert!(!panics.is_empty(), "the decoder does not panic any more: drop the guard");
    panics.dedup();
    assert_eq!(panics.len(), 1);
    insta::assert_snapshot!("parquet-panic", panics[0]);
}

#[test]
fn codec() {
    let mut bytes = Sheet::small().parquet();
    // ColumnMetaData: the path ["step"], then the codec, an enum: Snappy 1, Zstandard 6.
    let snappy = b"\x18\x04step\x15\x02";
    let at = bytes.windows(snappy.len()).position(|w| w == snappy).unwrap();
    bytes[at + snappy.len() - 1] = 12;
    broken("codec", &bytes);
}

#[test]
fn native() {
    let columns = {
        let mut columns = Sheet::small().parquet_columns();
        let native = [
            "dp",
            "stage",
            "rank",
            "step",
            "op_kind",
            "start_s",
            "duration_s",
            "seq",
            "chunk",
            "microbatch",
            "global_chunk",
        ];
        for ((name, _), to) in columns.iter_mut().zip(native) {
            to.clone_into(name);
        }
        columns
    };
    let said = |keys: &[(&str, &str)]| {
        let bytes = parquet_file(&columns, keys);
        let read = read_op_table_bytes("trace-small", &bytes, None, &ReadOptions::default());
        text(&read.unwrap_err())
    };
    let schema = ("prism.schema", "prism.op-table/1");
    insta::assert_snapshot!("native-newer", said(&[("prism.schema", "prism.op-table/2")]));
    insta::assert_snapshot!("native-without-meta", said(&[schema]));
    insta::assert_snapshot!("native-bad-json", said(&[schema, ("prism.meta", "{\"dp_size\": 2,")]));
    let partial = "{\"dp_size\": 2, \"pp_size\": 2, \"tp_size\": 2}";
    insta::assert_snapshot!("native-partial-meta", said(&[schema, ("prism.meta", partial)]));
    let mut job = common::meta();
    job.dp_size = 1;
    job.world_size = 4;
    let json = serde_json::to_string(&job).unwrap();
    insta::assert_snapshot!("native-meta-disagrees", said(&[schema, ("prism.meta", &json)]));
    let partial: Vec<_> =
        columns.iter().filter(|(n, _)| n != "op_kind" && n != "seq").cloned().collect();
    broken("native-columns", &parquet_file(&partial, &[schema]));
}

/// Violations can be examined, not only printed.
#[test]
fn violations_are_data() {
    use prism_io::{Place, Rule};
    let error = common::read("t", &Sheet::small().set(7, "duration", "-1").csv()).unwrap_err();
    let IoError::Invalid(violations) = error else { panic!("{error}") };
    assert_eq!(violations.count(), 1);
    let breaches = &violations.by_rule[&Rule::NotNegative];
    assert_eq!(breaches.count, 1);
    assert_eq!(breaches.shown[0].place, Place::Line(9));

    let bytes = Sheet::small().set(7, "duration", "-1").parquet();
    let IoError::Invalid(violations) = common::read("t", &bytes).unwrap_err() else { panic!() };
    assert_eq!(violations.by_rule[&Rule::NotNegative].shown[0].place, Place::Row(7));

    // The list is capped, the count is not.
    let sheet = Sheet::small();
    let n = sheet.rows.len() as u64;
    let all = sheet.parquet_with("duration", |c| Cells::F64(vec![Some(-1.0); c.len()]));
    let IoError::Invalid(violations) = common::read("t", &all).unwrap_err() else { panic!() };
    assert_eq!(violations.count(), n);
    assert_eq!(violations.by_rule[&Rule::NotNegative].shown.len(), prism_io::SHOWN_PER_RULE);
    assert_eq!(n, small().len() as u64);
}
