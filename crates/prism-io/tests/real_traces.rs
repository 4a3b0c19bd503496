//! Reads the public straggler traces, where they are present, and compares hand-checked values.

use std::path::PathBuf;

use prism_io::{ReadOptions, read_op_table};
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
