//! Reads the public straggler traces, where they are present, and compares hand-checked values.

use std::path::PathBuf;

use prism_io::{
    OpTable, ReadOptions, read_op_table, write_op_table, write_op_table_csv,
    write_op_table_straggler,
};
use prism_model::OpKind;

/// The folder of the straggler traces, or `None` (said on standard error) where it is missing.
fn straggler() -> Option<PathBuf> {
    let data = std::env::var_os("PRISM_DATA").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        PathBuf::from,
    );
    let folder = data.join("straggler");
    if folder.is_dir() {
        return Some(folder);
    }
    eprintln!("SKIPPED: {} is missing; set PRISM_DATA", folder.display());
    None
}

#[test]
fn reads_ar() {
    let Some(folder) = straggler() else { return };
    let loaded = read_op_table(&folder.join("trace-AR.parquet"), &ReadOptions::default()).unwrap();
    let t = &loaded.table;
    assert_eq!(t.len(), 117_216);
    assert_eq!(loaded.warnings, Vec::<String>::new());
    assert!(loaded.dropped.is_empty());
    assert_eq!(t.steps().len(), 44);
    assert_eq!((t.meta.dp_size, t.meta.pp_size, t.meta.tp_size), (4, 4, 4));
    assert_eq!(t.meta.world_size, 64);
    assert_eq!(t.meta.trial_name, "AR");
    // Row 5000 of the file: step 21, rank 52, forward-compute, seq 12.
    let i = (0..t.len())
        .find(|&i| {
            (t.step[i], t.rank[i], t.kind[i], t.seq[i]) == (21, 52, OpKind::ForwardCompute, 12)
        })
        .unwrap();
    let r = t.row(i);
    assert_eq!((r.dp, r.stage, r.chunk, r.global_chunk, r.microbatch), (1, 3, 0, 3, 12));
    assert_eq!(r.start_s, f64::from(8.360_435_f32));
    assert_eq!(r.duration_s, f64::from(0.230_871_08_f32));
    assert_eq!(r.end_s, f64::from(8.360_435_f32 + 0.230_871_08_f32));
    assert_eq!(t.sources.len(), 2);
    assert_eq!(t.sources[0].bytes, 1_148_014);
    assert_eq!(t.sources[0].sha256.len(), 64);
}

#[test]
fn reads_st() {
    let Some(folder) = straggler() else { return };
    let loaded = read_op_table(&folder.join("trace-ST.parquet"), &ReadOptions::default()).unwrap();
    assert_eq!(loaded.table.len(), 6_784);
    assert_eq!(loaded.table.steps().len(), 32);
    assert_eq!(loaded.warnings, Vec::<String>::new());
    assert_eq!((loaded.table.meta.dp_size, loaded.table.meta.tp_size), (2, 1));
}

fn sum(t: &OpTable, cells: &[f64], kind: Option<OpKind>) -> f64 {
    t.kind
        .iter()
        .zip(cells)
        .filter(|(k, _)| kind.is_none_or(|kind| **k == kind))
        .map(|(_, c)| c)
        .sum()
}

/// Sums that pandas 2 finds in the same files: `d.duration.astype("f8").sum()` and so on, the ends
/// being `d.start_ts + d.duration` in single precision.
#[test]
fn sums_agree_with_pandas() {
    let Some(folder) = straggler() else { return };
    for (file, starts, durations, ends) in [
        (
            "trace-AR.parquet",
            1_684_647.316_543_340_7,
            33_220.985_254_037_66,
            1_717_868.301_812_529_6,
        ),
        ("trace-ST.parquet", 6_893.271_394_968_033, 662.008_708_784_735_1, 7_555.280_102_433_637),
    ] {
        let t = read_op_table(&folder.join(file), &ReadOptions::default()).unwrap().table;
        for (cells, expected) in
            [(&t.start_s, starts), (&t.duration_s, durations), (&t.end_s, ends)]
        {
            let found = sum(&t, cells, None);
            // 1e5 additions in another order: far below n * 2^-53 = 1.3e-11 relative.
            assert!((found / expected - 1.0).abs() < 1.3e-11, "{file}: {found} {expected}");
        }
    }
    let t = read_op_table(&folder.join("trace-AR.parquet"), &ReadOptions::default()).unwrap().table;
    for (kind, expected) in [
        (OpKind::BackwardCompute, 9_377.994_998_425_245),
        (OpKind::ForwardRecv, 3_419.493_016_028_311),
        (OpKind::Gc, 0.0),
        (OpKind::GradsReduceScatter, 7_246.528_786_718_845),
        (OpKind::LayernormGradsAllReduce, 4.517_963_299_527_764),
    ] {
        let found = sum(&t, &t.duration_s, Some(kind));
        assert!((found - expected).abs() <= 1.3e-11 * expected, "{kind}: {found} {expected}");
    }
}

/// A real trace survives every format, bit for bit.
#[test]
fn every_format_keeps_a_real_trace() {
    let Some(folder) = straggler() else { return };
    let mut whole =
        read_op_table(&folder.join("trace-ST.parquet"), &ReadOptions::default()).unwrap().table;
    whole.sources.clear();
    let out = tempfile::tempdir().unwrap();
    let native = out.path().join("n.parquet");
    let foreign = out.path().join("trace-f.parquet");
    let text = out.path().join("trace-t.csv");
    let packed = out.path().join("trace-p.csv.gz");
    write_op_table(&native, &whole).unwrap();
    write_op_table_straggler(&foreign, &whole).unwrap();
    write_op_table_csv(&text, &whole).unwrap();
    write_op_table_csv(&packed, &whole).unwrap();
    for path in [native, foreign, text, packed] {
        let mut again = read_op_table(&path, &ReadOptions::default()).unwrap().table;
        again.sources.clear();
        assert!(again == whole, "{}", path.display());
    }
}
