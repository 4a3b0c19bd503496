//! What the targets share: a small job, limits, and what every table that was read must satisfy.

use prism_io::{
    IoError, JobMeta, Limits, Loaded, NO_GROUP, OpRow, OpTable, OpTableBuilder, ReadOptions,
};
use prism_model::OpKind;

/// Metadata of [`small`].
pub const META_YAML: &[u8] =
    b"dp_size: 2\ndsp_size: 1\npp_size: 2\ntp_size: 1\nvpp_size: 1\nworld_size: 4\n";

/// Limits under which no input can take much memory.
pub fn options(allow_incomplete: bool) -> ReadOptions {
    ReadOptions::default()
        .with_allow_incomplete(allow_incomplete)
        .with_limits(Limits { rows: 1 << 14, bytes: 1 << 22 })
}

/// Does not abort when the Parquet decoder panics, which it does on some damaged files: the reader
/// turns that into an error. Every other panic is a finding.
pub fn let_the_decoder_panic() {
    let abort = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let file = info.location().map_or("", |l| l.file());
        if !file.contains("/parquet-") {
            abort(info);
        }
    }));
}

/// A complete trace of two steps of a two-stage job.
pub fn small() -> OpTable {
    let mut b = OpTableBuilder::new(JobMeta {
        trial_name: "fuzz".to_owned(),
        run_id: 0,
        dp_size: 2,
        dsp_size: 1,
        pp_size: 2,
        tp_size: 1,
        vpp_size: 1,
        world_size: 4,
    });
    b.group_names = vec!["dp-0".to_owned(), "dp-1".to_owned()];
    for (step, dp, stage) in
        [5, 6].iter().flat_map(|s| [(0, 0), (1, 0), (0, 1), (1, 1_u16)].map(|(d, p)| (*s, d, p)))
    {
        let p2p = if stage == 0 { OpKind::ForwardSend } else { OpKind::ForwardRecv };
        let kinds = [
            (OpKind::ParamsAllGather, 0.0_f32),
            (OpKind::ForwardCompute, 0.25),
            (p2p, 0.5),
            (OpKind::BackwardCompute, 0.625),
            (OpKind::GradsReduceScatter, 1.0),
            (OpKind::Optimizer, 1.5),
        ];
        for (kind, start) in kinds {
            let compute = kind.is_microbatch_compute();
            let sync = matches!(kind, OpKind::ParamsAllGather | OpKind::GradsReduceScatter);
            let duration = 0.1 + step as f32 / 128.0;
            b.push(OpRow {
                step,
                rank: dp + 2 * u32::from(stage),
                dp,
                stage,
                chunk: if compute || sync { 0 } else { -1 },
                global_chunk: if compute { i32::from(stage) } else { -1 },
                microbatch: if compute { 0 } else { -1 },
                kind,
                start_s: start.into(),
                duration_s: duration.into(),
                end_s: (start + duration).into(),
                seq: 0,
                group: if sync { stage.into() } else { NO_GROUP },
            });
        }
    }
    b.finish()
}

/// Checks what a reader returned: a valid table, or an error that can be printed.
pub fn check(read: Result<Loaded, IoError>) {
    match read {
        Ok(loaded) => check_table(&loaded.table),
        Err(error) => {
            let text = format!("{error}\n{:?}", error.hint());
            assert!(text.len() < 1 << 20, "an error of {} bytes", text.len());
        }
    }
}

fn check_table(t: &OpTable) {
    assert!(!t.is_empty());
    let n = t.len();
    assert!(
        [t.rank.len(), t.dp.len(), t.stage.len(), t.chunk.len(), t.global_chunk.len()]
            .iter()
            .all(|l| *l == n)
    );
    assert!(
        [t.microbatch.len(), t.kind.len(), t.start_s.len(), t.duration_s.len(), t.end_s.len()]
            .iter()
            .all(|l| *l == n)
    );
    let key = |i: usize| (t.step[i], t.rank[i], t.kind[i], t.seq[i]);
    for (i, row) in t.rows().enumerate() {
        assert!(i == 0 || key(i - 1) < key(i), "rows are sorted and unique");
        assert!(row.start_s >= 0.0 && row.duration_s >= 0.0 && row.end_s.is_finite());
        assert!(row.dp < t.meta.dp_size && u32::from(row.stage) < t.meta.pp_size);
        assert!(row.rank < t.meta.world_size);
        assert!(row.group == NO_GROUP || (row.group as usize) < t.group_names.len());
    }
    // Complete: every cell in every step.
    for step in t.steps() {
        let cells: std::collections::BTreeSet<(u32, u16)> =
            t.rows().filter(|r| r.step == step).map(|r| (r.dp, r.stage)).collect();
        assert_eq!(cells.len() as u64, u64::from(t.meta.dp_size) * u64::from(t.meta.pp_size));
    }
}

/// The straggler format's columns as CSV.
pub fn csv(t: &OpTable) -> Vec<u8> {
    let mut text = String::from(
        "dp_rank,stage,rank,step,optype,start_ts,duration,seq_id,mc,mb_id,gmc,end_ts\n",
    );
    for r in t.rows() {
        text += &format!(
            "{},{},{},{},{},{},{},{},{},{},{},{}\n",
            r.dp,
            r.stage,
            r.rank,
            r.step,
            r.kind,
            r.start_s,
            r.duration_s,
            r.seq,
            r.chunk,
            r.microbatch,
            r.global_chunk,
            r.end_s
        );
    }
    text.into_bytes()
}
