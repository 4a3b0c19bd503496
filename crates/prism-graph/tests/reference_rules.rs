//! The reference builder's rules, each against what the format's description says.

mod common;

use common::{deps, edit, group_of, meta, meta_of, random_work, structure};
use prism_graph::schedule::{Schedule, ScheduleKind};
use prism_graph::{GraphError, Observed, ReplicaSync, StepGraph, build_reference, to_op_table};
use prism_io::{OpRow, OpTable};
use prism_model::OpKind::{self, *};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

fn table(shape: &Schedule) -> (StepGraph, OpTable) {
    let graph = shape.graph().unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let work = random_work(&graph, 2 * shape.replicas as usize, &mut rng);
    let table = to_op_table(&graph, &[1, 2], &work, None, &meta_of(shape)).unwrap();
    (graph, table)
}

fn one_f_one_b(stages: u16, microbatches: u32) -> Schedule {
    Schedule { replicas: 2, ..Schedule::new(ScheduleKind::OneFOneB, stages, microbatches) }
}

fn interleaved() -> Schedule {
    Schedule { replicas: 2, chunks: 2, ..Schedule::new(ScheduleKind::InterleavedOneFOneB, 2, 4) }
}

/// Two stages, two microbatches: every dependency, written down by hand from the description.
#[test]
fn a_small_pipeline_has_exactly_the_described_dependencies() {
    let (_, table) = table(&one_f_one_b(2, 2));
    let graph = build_reference(&table).unwrap();
    // Stage 0 runs F0 F1 B0 B1, stage 1 runs F0 B0 F1 B1.
    let expected = "
        forward-compute[0]@stage0: params-all-gather[0]@stage0
        forward-compute[1]@stage0: forward-compute[0]@stage0
        backward-compute[0]@stage0: backward-recv[0]@stage0 forward-compute[1]@stage0
        backward-compute[1]@stage0: backward-compute[0]@stage0 backward-recv[1]@stage0
        optimizer[0]@stage0: optimizer-clip-main-grad[0]@stage0
        gc[0]@stage0: backward-compute[1]@stage0
        forward-send[0]@stage0: forward-compute[0]@stage0
        forward-send[1]@stage0: forward-compute[1]@stage0 forward-send[0]@stage0
        backward-recv[0]@stage0: forward-compute[0]@stage0
        backward-recv[1]@stage0: backward-compute[0]@stage0 backward-recv[0]@stage0
        params-all-gather[0]@stage0:
        grads-reduce-scatter[0]@stage0: embedding-grads-all-reduce[0]@stage0 params-all-gather[0]@stage0
        layernorm-grads-all-reduce[0]@stage0: gc[0]@stage0
        embedding-grads-all-reduce[0]@stage0: layernorm-grads-all-reduce[0]@stage0
        optimizer-clip-main-grad[0]@stage0: grads-reduce-scatter[0]@stage0
        forward-compute[0]@stage1: forward-recv[0]@stage1 params-all-gather[0]@stage1
        forward-compute[1]@stage1: backward-compute[0]@stage1 forward-recv[1]@stage1
        backward-compute[0]@stage1: forward-compute[0]@stage1
        backward-compute[1]@stage1: forward-compute[1]@stage1
        optimizer[0]@stage1: optimizer-clip-main-grad[0]@stage1
        gc[0]@stage1: backward-compute[1]@stage1
        forward-recv[0]@stage1:
        forward-recv[1]@stage1: forward-compute[0]@stage1 forward-recv[0]@stage1
        backward-send[0]@stage1: backward-compute[0]@stage1
        backward-send[1]@stage1: backward-compute[1]@stage1 backward-send[0]@stage1
        params-all-gather[0]@stage1:
        grads-reduce-scatter[0]@stage1: embedding-grads-all-reduce[0]@stage1 params-all-gather[0]@stage1
        layernorm-grads-all-reduce[0]@stage1: gc[0]@stage1
        embedding-grads-all-reduce[0]@stage1: layernorm-grads-all-reduce[0]@stage1
        optimizer-clip-main-grad[0]@stage1: grads-reduce-scatter[0]@stage1";
    let expected: Vec<&str> = expected.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    let got: Vec<String> = graph
        .ops()
        .iter()
        .map(|op| {
            let deps = deps(&graph, op.kind, op.seq, op.stage);
            format!("{op}: {}", deps.join(" ")).trim_end().to_owned()
        })
        .collect();
    assert_eq!(got, expected);
    let pair = |a: &str, b: &str| (vec![a.to_owned(), b.to_owned()], ReplicaSync::None);
    assert_eq!(
        group_of(&graph, ForwardSend, 1, 0),
        pair("forward-recv[1]@stage1", "forward-send[1]@stage0")
    );
    assert_eq!(
        group_of(&graph, BackwardRecv, 0, 0),
        pair("backward-recv[0]@stage0", "backward-send[0]@stage1")
    );
    let (members, sync) = group_of(&graph, EmbeddingGradsAllReduce, 0, 0);
    assert_eq!((members.len(), sync), (2, ReplicaSync::None));
    let (members, sync) = group_of(&graph, OptimizerClipMainGrad, 0, 1);
    assert_eq!((members.len(), sync), (2, ReplicaSync::All));
    for kind in [ParamsAllGather, GradsReduceScatter] {
        let (members, sync) = group_of(&graph, kind, 0, 1);
        assert_eq!((members.len(), sync), (1, ReplicaSync::All));
    }
    for kind in [Gc, LayernormGradsAllReduce, Optimizer, ForwardCompute] {
        assert_eq!(graph.group_of(graph.find(kind, 0, 0).unwrap()), None);
    }
    let sinks: Vec<String> =
        graph.sinks().iter().map(|s| graph.ops()[s.0 as usize].to_string()).collect();
    assert_eq!(sinks, ["optimizer[0]@stage0", "optimizer[0]@stage1"]);
}

#[test]
fn first_backward_transfers_wait_for_the_compute_two_before() {
    let (_, table) = table(&one_f_one_b(4, 8));
    let graph = build_reference(&table).unwrap();
    // Stage 1 runs F0 F1 F2 B0: two before B0 is F1.
    let expected = ["forward-compute[1]@stage1"];
    assert_eq!(deps(&graph, BackwardRecv, 0, 1), expected);
    let expected = ["backward-compute[0]@stage1", "forward-compute[1]@stage1"];
    assert_eq!(deps(&graph, BackwardSend, 0, 1), expected);
    // Stage 3 runs F0 B0: there is none.
    assert_eq!(deps(&graph, BackwardSend, 0, 3), ["backward-compute[0]@stage3"]);
}

#[test]
fn several_chunks_have_their_own_gathers_and_silent_ends() {
    let (_, table) = table(&interleaved());
    let graph = build_reference(&table).unwrap();
    // Stage 0 runs chunk 0 for microbatches 0 and 1, then chunk 1: F2 is chunk 1's first.
    assert!(deps(&graph, ForwardCompute, 0, 0).contains(&"params-all-gather[0]@stage0".into()));
    assert!(deps(&graph, ForwardCompute, 2, 0).contains(&"params-all-gather[1]@stage0".into()));
    // The last stage's chunk 0 goes on to stage 0's chunk 1.
    let (members, _) = group_of(&graph, ForwardSend, 0, 1);
    assert_eq!(members, ["forward-recv[2]@stage0", "forward-send[0]@stage1"]);
    // Nobody is before chunk 0 of stage 0, nor after chunk 1 of stage 1.
    for (kind, seq, stage) in
        [(ForwardRecv, 0, 0), (ForwardSend, 2, 1), (BackwardRecv, 0, 1), (BackwardSend, 2, 0)]
    {
        let (members, sync) = group_of(&graph, kind, seq, stage);
        assert_eq!((members.len(), sync), (1, ReplicaSync::None), "{kind}[{seq}]@{stage}");
    }
    // A silent receive still belongs to its compute.
    assert!(deps(&graph, ForwardCompute, 0, 0).contains(&"forward-recv[0]@stage0".into()));
}

#[test]
fn of_gathers_of_one_chunk_the_last_is_waited_for() {
    let (_, table) = table(&one_f_one_b(2, 2));
    let table = split_gathers(&table);
    let graph = build_reference(&table).unwrap();
    assert_eq!(deps(&graph, ForwardCompute, 0, 0), ["params-all-gather[1]@stage0"]);
    assert_eq!(deps(&graph, ParamsAllGather, 1, 0), ["params-all-gather[0]@stage0"]);
    let waits = deps(&graph, GradsReduceScatter, 0, 0);
    assert!(waits.contains(&"params-all-gather[1]@stage0".into()), "{waits:?}");
}

/// Every gather becomes two of half the length.
fn split_gathers(table: &OpTable) -> OpTable {
    let mut builder = prism_io::OpTableBuilder::new(table.meta.clone());
    for row in table.rows() {
        if row.kind == ParamsAllGather {
            let half = row.duration_s / 2.0;
            let middle = row.start_s + half;
            builder.push(OpRow { duration_s: half, end_s: middle, ..row });
            builder.push(OpRow { duration_s: half, start_s: middle, seq: 1, ..row });
        } else {
            builder.push(row);
        }
    }
    builder.finish()
}

#[test]
fn overlapped_reduction_hangs_on_each_chunks_last_backward() {
    let shape = Schedule { overlap_grad_reduce: true, ..interleaved() };
    let (_, table) = table(&shape);
    let graph = build_reference(&table).unwrap();
    // Eight backward passes a stage, chunk 1 before chunk 0 in each round of two microbatches.
    let expected = ["backward-compute[5]@stage1", "params-all-gather[1]@stage1"];
    assert_eq!(deps(&graph, GradsReduceScatter, 0, 1), expected);
    let expected = ["backward-compute[7]@stage1", "grads-reduce-scatter[0]@stage1"];
    assert_eq!(deps(&graph, GradsReduceScatter, 1, 1), expected);
    let expected = ["gc[0]@stage1", "grads-reduce-scatter[1]@stage1"];
    assert_eq!(deps(&graph, LayernormGradsAllReduce, 0, 1), expected);
    let expected = ["embedding-grads-all-reduce[0]@stage1"];
    assert_eq!(deps(&graph, SeparateGradsAllReduce, 0, 1), expected);
    let expected = ["separate-grads-all-reduce[0]@stage1"];
    assert_eq!(deps(&graph, OptimizerClipMainGrad, 0, 1), expected);
    let (members, sync) = group_of(&graph, SeparateGradsAllReduce, 0, 1);
    assert_eq!((members.len(), sync), (1, ReplicaSync::All));
}

#[test]
fn one_replica_does_not_scatter() {
    let shape = Schedule { replicas: 1, ..one_f_one_b(2, 2) };
    let (_, table) = table(&shape);
    let graph = build_reference(&table).unwrap();
    let expected = ["embedding-grads-all-reduce[0]@stage0"];
    assert_eq!(deps(&graph, OptimizerClipMainGrad, 0, 0), expected);
    assert!(deps(&graph, ForwardCompute, 0, 0).is_empty());
    // Recorded gathers and scatters of one replica hold up nothing; with a further split of the
    // data-parallel dimension they do.
    let mut sharded = edit(&self::table(&one_f_one_b(2, 2)).1, |row| row.dp == 0);
    let graph = build_reference(&sharded).unwrap();
    assert_eq!(graph.replicas(), 1);
    assert_eq!(deps(&graph, OptimizerClipMainGrad, 0, 0), expected);
    assert!(deps(&graph, ForwardCompute, 0, 0).is_empty());
    sharded.meta.dsp_size = 2;
    let graph = build_reference(&sharded).unwrap();
    let expected = ["grads-reduce-scatter[0]@stage0"];
    assert_eq!(deps(&graph, OptimizerClipMainGrad, 0, 0), expected);
}

/// Renumbers a kind's operations of one stage after some were removed.
fn renumber(row: &mut OpRow, kind: OpKind, stage: u16, by: u32) {
    if row.kind == kind && row.stage == stage {
        row.seq -= by;
    }
}

#[test]
fn an_unrecorded_first_receive_shifts_the_matching() {
    let (graph, full) = table(&interleaved());
    let table = edit(&full, |row| {
        let first = row.kind == ForwardRecv && row.stage == 0 && row.seq == 0;
        if !first {
            renumber(row, ForwardRecv, 0, 1);
        }
        !first
    });
    let shifted = build_reference(&table).unwrap();
    // Receive 1 of the full trace (silent) is now receive 0 and still belongs to compute 1.
    assert!(deps(&shifted, ForwardCompute, 1, 0).contains(&"forward-recv[0]@stage0".into()));
    assert!(!deps(&shifted, ForwardCompute, 0, 0).iter().any(|d| d.starts_with("forward-recv")));
    let (members, _) = group_of(&shifted, ForwardSend, 0, 1);
    assert_eq!(members, ["forward-recv[1]@stage0", "forward-send[0]@stage1"]);
    assert_eq!(shifted.ops().len(), graph.ops().len() - 1);
}

#[test]
fn transfers_outside_the_computes_are_never_launched() {
    let shape = one_f_one_b(2, 3);
    let (graph, full) = table(&shape);
    let extra = with_unlaunched(&full);
    let built = build_reference(&extra).unwrap();
    assert_eq!(built.ops().len(), graph.ops().len() + 2);
    // A receive after the last forward: alone, after the receives before it, used by nobody.
    let (members, sync) = group_of(&built, ForwardRecv, 3, 1);
    assert_eq!((members, sync), (vec!["forward-recv[3]@stage1".to_owned()], ReplicaSync::None));
    assert_eq!(deps(&built, ForwardRecv, 3, 1), ["forward-recv[2]@stage1"]);
    // A send before the first backward: alone; the others keep their computes.
    let (members, _) = group_of(&built, BackwardSend, 0, 1);
    assert_eq!(members, ["backward-send[0]@stage1"]);
    let sent = deps(&built, BackwardSend, 1, 1);
    assert_eq!(sent, ["backward-compute[0]@stage1", "backward-send[0]@stage1"]);
    let (members, _) = group_of(&built, BackwardSend, 1, 1);
    assert_eq!(members, ["backward-recv[0]@stage0", "backward-send[1]@stage1"]);
}

/// Adds on stage 1 a receive after everything and a backward send before everything.
fn with_unlaunched(table: &OpTable) -> OpTable {
    let mut builder = prism_io::OpTableBuilder::new(table.meta.clone());
    for mut row in table.rows() {
        if row.kind == BackwardSend && row.stage == 1 {
            if row.seq == 0 {
                let early = OpRow { start_s: 0.0, end_s: 0.0, duration_s: 0.0, ..row };
                builder.push(early);
            }
            row.seq += 1;
        }
        if row.kind == ForwardRecv && row.stage == 1 && row.seq == 2 {
            builder.push(OpRow { start_s: 1e3, end_s: 1e3, duration_s: 0.0, seq: 3, ..row });
        }
        builder.push(row);
    }
    builder.finish()
}

#[test]
fn unrecorded_kinds_are_left_out_of_their_chains() {
    let (_, full) = table(&one_f_one_b(2, 2));
    let without =
        |kinds: &[OpKind]| build_reference(&edit(&full, |row| !kinds.contains(&row.kind))).unwrap();
    let graph = without(&[Gc, EmbeddingGradsAllReduce]);
    let expected = ["backward-compute[1]@stage0"];
    assert_eq!(deps(&graph, LayernormGradsAllReduce, 0, 0), expected);
    let expected = ["layernorm-grads-all-reduce[0]@stage0", "params-all-gather[0]@stage0"];
    assert_eq!(deps(&graph, GradsReduceScatter, 0, 0), expected);
    let graph = without(&[Gc, LayernormGradsAllReduce, EmbeddingGradsAllReduce, ParamsAllGather]);
    assert_eq!(deps(&graph, GradsReduceScatter, 0, 0), ["backward-compute[1]@stage0"]);
    // Without an optimizer, whatever nothing waits for ends the step.
    let graph = without(&[Optimizer, OptimizerClipMainGrad, GradsReduceScatter]);
    let sinks: Vec<String> =
        graph.sinks().iter().map(|s| graph.ops()[s.0 as usize].to_string()).collect();
    let expected = [
        "forward-send[1]@stage0",
        "embedding-grads-all-reduce[0]@stage0",
        "backward-send[1]@stage1",
        "embedding-grads-all-reduce[0]@stage1",
    ];
    assert_eq!(sinks, expected);
}

#[test]
fn a_missing_global_chunk_follows_from_stage_and_chunk() {
    let (_, full) = table(&interleaved());
    let without = edit(&full, |row| {
        row.global_chunk = -1;
        true
    });
    let (a, b) = (build_reference(&full).unwrap(), build_reference(&without).unwrap());
    assert_eq!(structure(&a), structure(&b));
}

#[test]
fn incomplete_pipelines_are_refused_by_name() {
    let (_, full) = table(&one_f_one_b(4, 4));
    let error = |keep: &dyn Fn(&OpRow) -> bool| {
        let error = build_reference(&edit(&full, |row| keep(row))).unwrap_err();
        assert!(error.hint().is_some());
        error.to_string()
    };
    let middle = |r: &OpRow| !(r.kind == ForwardRecv && r.stage == 2 && r.seq == 3);
    assert_eq!(error(&middle), "stage 2 has 3 forward-recv for 4 computes of that direction");
    let none = |r: &OpRow| !r.kind.is_p2p();
    assert_eq!(error(&none), "stage 0 has 0 forward-send for 4 computes of that direction");
    let stage = |r: &OpRow| r.stage != 1;
    assert_eq!(error(&stage), "stage 1 has no forward-compute in step 1, replica 0");
    let nothing = |_: &OpRow| false;
    assert_eq!(error(&nothing), "the table has no operations");
}

#[test]
fn observations_must_fit_the_graph() {
    let (graph, full) = table(&one_f_one_b(2, 2));
    let align = |table: &OpTable| Observed::align(&graph, table).unwrap_err();
    let hole = edit(&full, |r| !(r.step == 2 && r.dp == 1 && r.kind == Gc && r.stage == 1));
    assert_eq!(align(&hole).to_string(), "`gc[0]@stage1` is missing in step 2, replica 1");
    let mut far = full.clone();
    *far.dp.last_mut().unwrap() = u32::MAX - 1;
    let built = build_reference(&far).unwrap();
    let error = Observed::align(&built, &far).unwrap_err();
    assert!(matches!(error, GraphError::Missing { step: 1, replica: 2, .. }), "{error}");
    let extra = edit(&full, |r| {
        if r.step == 2 && r.kind == Gc && r.stage == 1 && r.dp == 0 {
            r.seq = 7;
        }
        true
    });
    let message = "`gc[7]@stage1` in step 2, replica 0 is not in the graph";
    assert_eq!(align(&extra).to_string(), message);
    let beyond = edit(&full, |r| {
        r.dp += 1;
        true
    });
    assert!(matches!(align(&beyond), GraphError::Unknown { replica: 2, .. }));
    let twice = edit(&full, |r| {
        if r.kind == Gc {
            r.stage = 0;
        }
        true
    });
    let message = "`gc[0]@stage0` occurs twice in step 1, replica 0";
    assert_eq!(align(&twice).to_string(), message);
    let error = build_reference(&twice).unwrap_err();
    assert_eq!(error.to_string(), "`gc[0]@stage0` occurs twice in one step of one replica");
}

#[test]
fn observations_keep_the_ends_of_the_table() {
    let (graph, mut full) = table(&one_f_one_b(2, 2));
    // Single-precision files define ends by a single-precision sum.
    full.end_s.iter_mut().for_each(|e| *e = f64::from(*e as f32));
    let observed = Observed::align(&graph, &full).unwrap();
    assert_eq!((observed.samples(), observed.replicas(), observed.ops()), (4, 2, 30));
    for row in full.rows() {
        let id = graph.find(row.kind, row.seq, row.stage).unwrap();
        let sample = (row.step - 1) as usize * 2 + row.dp as usize;
        assert_eq!(observed.start(id).unwrap()[sample], row.start_s);
        assert_eq!(observed.end(id).unwrap()[sample], row.end_s);
        assert_eq!(observed.duration(id).unwrap()[sample], row.duration_s);
    }
}

#[test]
fn an_empty_table_is_refused() {
    let empty = prism_io::OpTableBuilder::new(meta(1, 1, 1)).finish();
    assert_eq!(build_reference(&empty).unwrap_err(), GraphError::Empty);
}
