//! What is written can be read back, bit for bit, in every format.

mod common;

use std::path::Path;

use prism_io::{
    JobMeta, NO_GROUP, OpRow, OpTable, OpTableBuilder, ReadOptions, read_op_table,
    read_op_table_bytes, write_meta_yaml, write_op_table, write_op_table_csv,
    write_op_table_straggler,
};
use prism_model::OpKind;
use proptest::prelude::*;

use common::{META_YAML, STEPS, Sheet, small};

/// How the times of a random table relate.
#[derive(Clone, Copy, Debug)]
enum Times {
    Single,
    Double,
    /// Ends that are neither sum.
    Own,
}

#[derive(Clone, Debug)]
struct Shape {
    meta: JobMeta,
    steps: Vec<i64>,
    /// Per kind, its operations in a step.
    counts: Vec<(OpKind, u32)>,
    times: Times,
    groups: Vec<String>,
    seed: u64,
}

fn shape(group_name: &'static str) -> impl Strategy<Value = Shape> {
    let plan = (1..4_u32, 1..3_u32, 1..4_u32, 1..3_u32, 1..3_u32);
    let job = (plan, any::<i64>(), "\\PC*");
    let kinds = prop::sample::subsequence(OpKind::RECORDED.to_vec(), 1..=OpKind::RECORDED.len());
    let steps = prop::collection::btree_set(any::<i64>(), 1..4);
    let times = prop_oneof![Just(Times::Single), Just(Times::Double), Just(Times::Own)];
    let groups = prop::collection::btree_set(group_name, 0..4);
    (job, kinds, steps, times, groups, any::<u64>()).prop_map(
        |(((dp, dsp, pp, tp, vpp), run_id, trial_name), kinds, steps, times, groups, seed)| Shape {
            meta: JobMeta {
                trial_name,
                run_id,
                dp_size: dp,
                dsp_size: dsp,
                pp_size: pp,
                tp_size: tp,
                vpp_size: vpp,
                world_size: dp * dsp * pp * tp,
            },
            steps: steps.into_iter().collect(),
            counts: kinds.into_iter().zip((1..4).cycle()).collect(),
            times,
            groups: groups.into_iter().collect(),
            seed,
        },
    )
}

/// `SplitMix64`: enough to scatter times and ids.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

fn table(shape: &Shape) -> OpTable {
    let m = &shape.meta;
    let mut b = OpTableBuilder::new(m.clone());
    let mut state = shape.seed;
    let mut group_ids: Vec<Option<u32>> = vec![None; shape.groups.len()];
    for &step in &shape.steps {
        // In the order in which the table will be sorted: groups are numbered as they occur.
        for (stage, dp) in (0..m.pp_size).flat_map(|s| (0..m.dp_size).map(move |d| (s, d))) {
            for &(kind, count) in &shape.counts {
                let mut clock = 0.0;
                for seq in 0..count {
                    let (start_s, duration_s, end_s) = time(shape.times, clock, &mut state);
                    clock = start_s + f64::from(next(&mut state) as u32) / 2e9;
                    let pick = next(&mut state) as usize % (shape.groups.len() + 1);
                    let group = match group_ids.get_mut(pick) {
                        None => NO_GROUP,
                        Some(id) => *id.get_or_insert_with(|| {
                            b.group_names.push(shape.groups[pick].clone());
                            b.group_names.len() as u32 - 1
                        }),
                    };
                    let chunk = (next(&mut state) % u64::from(m.vpp_size + 1)) as i16 - 1;
                    b.push(OpRow {
                        step,
                        rank: m.tp_size * m.dsp_size * (dp + m.dp_size * stage),
                        dp,
                        stage: stage as u16,
                        chunk,
                        global_chunk: i32::from(chunk),
                        microbatch: (next(&mut state) % 9) as i32 - 1,
                        kind,
                        start_s,
                        duration_s,
                        end_s,
                        seq,
                        group,
                    });
                }
            }
        }
    }
    b.finish()
}

fn time(times: Times, clock: f64, state: &mut u64) -> (f64, f64, f64) {
    let duration = (next(state) >> 11) as f64 / 9e15 + 1e-3;
    match times {
        Times::Single => {
            let (s, d) = (clock as f32, duration as f32);
            (s.into(), d.into(), (s + d).into())
        }
        Times::Double => (clock, duration, clock + duration),
        Times::Own => (clock, duration, (clock + duration) * (1.0 + 3e-8)),
    }
}

fn without_sources(mut table: OpTable) -> OpTable {
    table.sources.clear();
    table
}

fn read_back(path: &Path) -> OpTable {
    let loaded = read_op_table(path, &ReadOptions::default())
        .unwrap_or_else(|e| panic!("{}", common::text(&e)));
    assert!(loaded.dropped.is_empty());
    without_sources(loaded.table)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn native_keeps_every_bit(shape in shape("\\PC*")) {
        let table = table(&shape);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("any name");
        write_op_table(&path, &table).unwrap();
        prop_assert_eq!(read_back(&path), table);
    }

    #[test]
    fn straggler_parquet_keeps_every_bit(shape in shape("\\PC*")) {
        let table = table(&shape);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace-r.parquet");
        let meta = write_op_table_straggler(&path, &table).unwrap();
        prop_assert_eq!(meta, Some(folder.path().join("meta-r.yaml")));
        prop_assert_eq!(read_back(&path), table);
    }

    // An empty name of a group cannot be told from no group in CSV.
    #[test]
    fn csv_keeps_every_bit(shape in shape("\\PC+"), gz in any::<bool>()) {
        let table = table(&shape);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(if gz { "r.csv.gz" } else { "r.csv" });
        let meta = write_op_table_csv(&path, &table).unwrap();
        prop_assert_eq!(meta, Some(folder.path().join("r.meta.yaml")));
        let bytes = std::fs::read(&path).unwrap();
        prop_assert_eq!(bytes.starts_with(&[0x1F, 0x8B]), gz);
        prop_assert_eq!(read_back(&path), table);
    }

    #[test]
    fn yaml_keeps_any_name(name in any::<String>(), run_id in any::<i64>()) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.yaml");
        let mut job = common::meta();
        job.trial_name = name;
        job.run_id = run_id;
        write_meta_yaml(&path, &job).unwrap();
        let yaml = std::fs::read(&path).unwrap();
        let loaded = read_op_table_bytes(
            "t", &Sheet::small().csv(), Some(("m.yaml", &yaml)), &ReadOptions::default()
        ).unwrap();
        prop_assert_eq!(loaded.table.meta, job);
    }

    /// The order of rows and columns in a file says nothing.
    #[test]
    fn order_does_not_matter(
        rows in Just((0..small().len()).collect::<Vec<_>>()).prop_shuffle(),
        columns in Just((0..11_usize).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let sheet = Sheet::small();
        let pick = |r: &Vec<String>| columns.iter().map(|c| r[*c].clone()).collect::<Vec<_>>();
        let shuffled = Sheet {
            header: pick(&sheet.header),
            rows: rows.iter().map(|i| pick(&sheet.rows[*i])).collect(),
        };
        for bytes in [shuffled.csv(), shuffled.parquet()] {
            let loaded = common::read("t", &bytes).unwrap();
            prop_assert_eq!(without_sources(loaded.table), small());
        }
    }

    /// Whatever rows one step of four loses, it is that step which is dropped.
    #[test]
    fn damaged_step_is_dropped(
        step in 0..4_usize,
        lost in prop::collection::vec(any::<prop::sample::Index>(), 1..40),
    ) {
        let t = small();
        let id = STEPS[step];
        let of_step: Vec<usize> = (0..t.len()).filter(|&i| t.step[i] == id).collect();
        let gone: Vec<usize> = lost.iter().map(|i| of_step[i.index(of_step.len())]).collect();
        let mut sheet = Sheet::of(&t);
        let mut i = 0;
        sheet.rows.retain(|_| { i += 1; !gone.contains(&(i - 1)) });
        let whole = gone.len() == of_step.len();
        prop_assume!(!whole);
        let options = ReadOptions::default().with_allow_incomplete(true);
        let meta = Some(("m", META_YAML));
        let loaded = read_op_table_bytes("t", &sheet.csv(), meta, &options).unwrap();
        prop_assert_eq!(loaded.dropped.iter().map(|d| d.step).collect::<Vec<_>>(), vec![id]);
        prop_assert_eq!(without_sources(loaded.table), t.filter_steps(|s| s != id));
        prop_assert!(common::read("t", &sheet.csv()).is_err());
    }
}

/// Columns that a plan without interleaving implies can be left out.
#[test]
fn derives_what_is_left_out() {
    let whole = small();
    for dropped in [
        vec!["rank"],
        vec!["dp_rank", "stage"],
        vec!["seq_id"],
        vec!["mc", "gmc", "mb_id"],
        vec!["rank", "seq_id", "mc", "gmc", "mb_id"],
        vec!["dp_rank", "stage", "seq_id", "mc", "gmc", "mb_id"],
    ] {
        let sheet = dropped.iter().fold(Sheet::small(), |s, c| s.without_column(c));
        for bytes in [sheet.csv(), sheet.parquet()] {
            let loaded = common::read("t", &bytes).unwrap();
            assert_eq!(without_sources(loaded.table), whole, "{dropped:?}");
            let [warning] = loaded.warnings.as_slice() else { panic!("{:?}", loaded.warnings) };
            assert!(dropped.iter().all(|c| warning.contains(c)), "{warning}");
        }
    }
}

/// Widths, signs and annotations of integers, and precision of times, as writers vary them.
#[test]
fn types_may_vary() {
    use common::Cells;
    use parquet::basic::LogicalType;
    let sheet = Sheet::small();
    let whole = small();
    for column in ["dp_rank", "stage", "rank", "step", "seq_id", "mc", "mb_id", "gmc"] {
        let negative = matches!(column, "mc" | "mb_id" | "gmc");
        for (bits, signed) in [(8, true), (16, true), (32, true), (8, false), (32, false)] {
            if negative && !signed {
                continue;
            }
            let logical = Some(LogicalType::integer(bits, signed));
            let bytes = sheet.parquet_with(column, |cells| {
                Cells::I32(cells.iter().map(|c| c.parse().ok()).collect(), logical.clone())
            });
            assert_eq!(without_sources(common::read("t", &bytes).unwrap().table), whole);
        }
        for signed in [true, false] {
            if negative && !signed {
                continue;
            }
            let logical = Some(LogicalType::integer(64, signed));
            let bytes = sheet.parquet_with(column, |cells| {
                Cells::I64(cells.iter().map(|c| c.parse().ok()).collect(), logical.clone())
            });
            assert_eq!(without_sources(common::read("t", &bytes).unwrap().table), whole);
        }
    }
    // Text without annotation, as old writers leave it.
    let bytes = sheet.parquet_with("optype", |cells| {
        Cells::Bytes(cells.iter().map(|c| Some(c.as_bytes().to_vec())).collect(), None)
    });
    assert_eq!(without_sources(common::read("t", &bytes).unwrap().table), whole);
}

/// Ends are sums in the file's precision.
#[test]
fn ends_follow_precision() {
    use common::{Cells, parquet_file};
    let sheet = Sheet::small();
    let single = |columns: &[&str]| {
        let mut all = sheet.parquet_columns();
        for (name, cells) in &mut all {
            if columns.contains(&name.as_str())
                && let Cells::F64(v) = cells
            {
                *cells = Cells::F32(v.iter().map(|c| c.map(|c| c as f32)).collect());
            }
        }
        common::read("t", &parquet_file(&all, &[])).unwrap().table
    };
    let both = single(&["start_ts", "duration"]);
    let mut rounded = 0;
    for r in both.rows() {
        assert_eq!(r.end_s, f64::from(r.start_s as f32 + r.duration_s as f32));
        rounded += usize::from(r.end_s != r.start_s + r.duration_s);
    }
    assert!(rounded > 0, "no end was rounded: the test shows nothing");
    // One of them in double precision makes the sum double.
    for r in single(&["start_ts"]).rows().chain(single(&["duration"]).rows()) {
        assert_eq!(r.end_s, r.start_s + r.duration_s);
    }
}

/// Codecs and encodings as writers vary them.
#[test]
fn pages_may_vary() {
    use parquet::basic::{Compression, GzipLevel};
    use parquet::file::properties::{WriterProperties, WriterVersion};
    let columns = Sheet::small().parquet_columns();
    for compression in
        [Compression::UNCOMPRESSED, Compression::SNAPPY, Compression::GZIP(GzipLevel::default())]
    {
        for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
            for (dictionary, rows) in [(true, 20_000), (false, 20_000), (false, 7)] {
                let properties = WriterProperties::builder()
                    .set_compression(compression)
                    .set_writer_version(version)
                    .set_dictionary_enabled(dictionary)
                    .set_data_page_row_count_limit(rows)
                    .set_write_batch_size(rows);
                let bytes = common::parquet_file_with(properties, &columns, &[]);
                let read = common::read("t", &bytes).unwrap();
                assert_eq!(without_sources(read.table), small());
            }
        }
    }
}

/// The densest honest pages, constant columns without a dictionary, pass the check of sizes.
#[test]
fn constant_columns_are_not_absurd() {
    use common::Cells;
    use parquet::basic::{Compression, GzipLevel};
    use parquet::file::properties::WriterProperties;
    let n = 300_000;
    let columns = [
        ("step", Cells::I64(vec![Some(1); n], None)),
        ("rank", Cells::I32(vec![Some(0); n], None)),
        ("optype", Cells::text(std::iter::repeat_n("gc", n))),
        ("start_ts", Cells::F64(vec![Some(0.0); n])),
        ("duration", Cells::F64(vec![Some(1.0); n])),
    ]
    .map(|(name, cells)| (name.to_owned(), cells));
    let meta = Some(("m", &b"dp_size: 1\npp_size: 1\ntp_size: 1\nworld_size: 1\n"[..]));
    for compression in [Compression::SNAPPY, Compression::GZIP(GzipLevel::try_new(9).unwrap())] {
        let properties =
            WriterProperties::builder().set_compression(compression).set_dictionary_enabled(false);
        let bytes = common::parquet_file_with(properties, &columns, &[]);
        assert!(bytes.len() < n * 30 / 15, "{} bytes: not dense", bytes.len());
        let read = read_op_table_bytes("t", &bytes, meta, &ReadOptions::default()).unwrap();
        assert_eq!(read.table.len(), n);
    }
}

/// Several row groups are one table.
#[test]
fn reads_row_groups() {
    use prism_model::OpKind::ForwardCompute;
    let mut job = common::meta();
    (job.dp_size, job.pp_size, job.tp_size, job.world_size) = (1, 1, 1, 1);
    let mut b = OpTableBuilder::new(job);
    let rows = (1 << 20) + 5;
    for seq in 0..rows {
        let start_s = f64::from(seq) * 1e-3;
        b.push(OpRow {
            step: 1,
            rank: 0,
            dp: 0,
            stage: 0,
            chunk: 0,
            global_chunk: 0,
            microbatch: seq as i32,
            kind: ForwardCompute,
            start_s,
            duration_s: 1e-3,
            end_s: start_s + 1e-3,
            seq,
            group: NO_GROUP,
        });
    }
    let table = b.finish();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("big.parquet");
    write_op_table(&path, &table).unwrap();
    assert!(read_back(&path) == table);
}

/// Every file that was read is in the provenance, with its hash.
#[test]
fn names_its_sources() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace-s.csv");
    write_op_table_csv(&path, &small()).unwrap();
    let loaded = read_op_table(&path, &ReadOptions::default()).unwrap();
    let meta = folder.path().join("meta-s.yaml");
    for (source, file) in loaded.table.sources.iter().zip([&path, &meta]) {
        let bytes = std::fs::read(file).unwrap();
        assert_eq!(source.name, file.display().to_string());
        assert_eq!(source.sha256, prism_io::sha256_hex(&bytes));
        assert_eq!(source.bytes, bytes.len() as u64);
    }
    assert_eq!(loaded.table.sources.len(), 2);
    // FIPS 180-2, appendix B.1.
    assert_eq!(
        prism_io::sha256_hex(b"abc"),
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    );
}

/// `--meta` wins over what is inside or beside the trace.
#[test]
fn given_metadata_overrides() {
    let folder = tempfile::tempdir().unwrap();
    let mut other = common::meta();
    "other".clone_into(&mut other.trial_name);
    let given = folder.path().join("given.yaml");
    write_meta_yaml(&given, &other).unwrap();
    let native = folder.path().join("n.parquet");
    write_op_table(&native, &small()).unwrap();
    let csv = folder.path().join("trace-c.csv");
    write_op_table_csv(&csv, &small()).unwrap();
    for path in [native, csv] {
        let options = ReadOptions::default().with_meta(&given);
        assert_eq!(read_op_table(&path, &options).unwrap().table.meta, other);
        let options = ReadOptions::default();
        assert_eq!(read_op_table(&path, &options).unwrap().table.meta, common::meta());
    }
}

/// Metadata may leave out what has an obvious value, and hold more than is read.
#[test]
fn metadata_is_tolerant() {
    let yaml = b"# converted\ndp_size: 2\npp_size: 2\ntp_size: 2\nworld_size: 8\nqueue: {a: [1]}\n";
    let loaded = read_op_table_bytes(
        "t",
        &Sheet::small().csv(),
        Some(("m.yaml", yaml)),
        &ReadOptions::default(),
    )
    .unwrap();
    let m = loaded.table.meta;
    assert_eq!((m.dsp_size, m.vpp_size, m.run_id, m.trial_name.as_str()), (1, 1, 0, ""));
    assert_eq!(loaded.warnings, ["m.yaml: keys not read: `queue`"]);
}

/// A native table without key-value metadata, as data frames write it, takes YAML beside it; and
/// its columns are read from CSV too.
#[test]
fn native_columns_with_yaml() {
    let mut sheet = Sheet::small();
    for (from, to) in [
        ("dp_rank", "dp"),
        ("optype", "op_kind"),
        ("start_ts", "start_s"),
        ("duration", "duration_s"),
        ("seq_id", "seq"),
        ("mc", "chunk"),
        ("gmc", "global_chunk"),
        ("mb_id", "microbatch"),
    ] {
        sheet = sheet.rename(from, to);
    }
    let loaded = common::read("t", &sheet.csv()).unwrap();
    assert_eq!(without_sources(loaded.table), small());
}

#[test]
fn graph_only_kinds_are_not_written() {
    let mut table = small();
    table.kind[3] = OpKind::Barrier;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    for result in [
        write_op_table(&path, &table),
        write_op_table_csv(&path, &table).map(|_| ()),
        write_op_table_straggler(&path, &table).map(|_| ()),
    ] {
        let message = result.unwrap_err().to_string();
        assert!(message.contains("`barrier` is never recorded"), "{message}");
        assert!(!path.exists());
    }
}
