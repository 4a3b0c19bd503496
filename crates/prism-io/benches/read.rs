//! How long it takes to read and write a trace of 117,600 operations, the size of a public one.

use std::hint::black_box;

use divan::Bencher;
use prism_io::{
    JobMeta, NO_GROUP, OpRow, OpTable, OpTableBuilder, ReadOptions, read_op_table, write_op_table,
    write_op_table_csv, write_op_table_straggler,
};
use prism_model::OpKind;

fn main() {
    divan::main();
}

/// 44 steps of 16 cells with 167 operations each, single precision.
fn table() -> OpTable {
    let mut b = OpTableBuilder::new(JobMeta {
        trial_name: "bench".to_owned(),
        run_id: 0,
        dp_size: 4,
        dsp_size: 1,
        pp_size: 4,
        tp_size: 4,
        vpp_size: 1,
        world_size: 64,
    });
    let kinds = [
        (OpKind::ParamsAllGather, 1),
        (OpKind::ForwardCompute, 32),
        (OpKind::ForwardSend, 32),
        (OpKind::BackwardRecv, 32),
        (OpKind::BackwardCompute, 32),
        (OpKind::BackwardSend, 32),
        (OpKind::GradsReduceScatter, 1),
        (OpKind::OptimizerClipMainGrad, 1),
        (OpKind::Optimizer, 4),
    ];
    let mut state = 1_u32;
    for (step, dp, stage) in
        (0..44).flat_map(|s| (0..4).flat_map(move |d| (0..4_u16).map(move |p| (s, d, p))))
    {
        let mut clock = 0.0_f32;
        for (kind, count) in kinds {
            for seq in 0..count {
                // A linear congruential sequence: durations that do not compress.
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let duration = 0.2 + state as f32 / 4.3e10;
                b.push(OpRow {
                    step,
                    rank: 4 * (dp + 4 * u32::from(stage)),
                    dp,
                    stage,
                    chunk: -1,
                    global_chunk: -1,
                    microbatch: seq as i32,
                    kind,
                    start_s: clock.into(),
                    duration_s: duration.into(),
                    end_s: (clock + duration).into(),
                    seq,
                    group: NO_GROUP,
                });
                clock += duration;
            }
        }
    }
    b.finish()
}

/// The public trace of that size, where it is present.
#[divan::bench]
fn public_trace(bencher: Bencher<'_, '_>) {
    let data = std::env::var_os("PRISM_DATA").map_or_else(
        || std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        std::path::PathBuf::from,
    );
    let path = data.join("straggler/trace-AR.parquet");
    if !path.is_file() {
        eprintln!("SKIPPED: {} is missing; set PRISM_DATA", path.display());
        return;
    }
    bencher.bench(|| read_op_table(black_box(&path), &ReadOptions::default()).is_ok());
}

#[divan::bench(args = ["straggler.parquet", "native.parquet", "csv", "csv.gz"])]
fn read(bencher: Bencher<'_, '_>, format: &str) {
    let (folder, path) = written(format);
    bencher.bench(|| read_op_table(black_box(&path), &ReadOptions::default()).is_ok());
    drop(folder);
}

#[divan::bench(args = ["straggler.parquet", "native.parquet", "csv"])]
fn write(bencher: Bencher<'_, '_>, format: &str) {
    let (folder, path) = written(format);
    let table = table();
    bencher.bench(|| write_as(black_box(&table), &path, format));
    drop(folder);
}

fn written(format: &str) -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join(format!("trace-b.{format}"));
    write_as(&table(), &path, format);
    read_op_table(&path, &ReadOptions::default()).expect("what was written can be read");
    (folder, path)
}

fn write_as(table: &OpTable, path: &std::path::Path, format: &str) {
    let result = match format {
        "native.parquet" => write_op_table(path, table),
        "straggler.parquet" => write_op_table_straggler(path, table).map(|_| ()),
        _ => write_op_table_csv(path, table).map(|_| ()),
    };
    result.expect("a temporary folder can be written");
}
