//! The program-order builder on traces of jobs that really run in program order.

mod common;

use common::{deps, edit, group_of, meta, meta_of, random_work, structure};
use prism_graph::schedule::{Schedule, ScheduleKind};
use prism_graph::{
    Op, OpId, ReplicaSync, StepGraph, StepGraphBuilder, build_program_order, build_reference,
    evaluate, to_op_table,
};
use prism_io::OpTable;
use prism_model::OpKind::{self, *};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

/// What a stage launches together: kinds with their sequence numbers.
type Slot = Vec<(OpKind, u32)>;

/// Megatron's 1F1B with blocking, batched sends and receives: the slots of one stage.
fn one_f_one_b(stages: u16, stage: u16, microbatches: u32) -> Vec<Slot> {
    let mut counts = std::collections::BTreeMap::new();
    let mut slots: Vec<Slot> = Vec::new();
    let mut launch = |kinds: &[OpKind]| {
        let there = |kind: &OpKind| match kind {
            ForwardRecv | BackwardSend => stage > 0,
            ForwardSend | BackwardRecv => stage + 1 < stages,
            _ => true,
        };
        let slot: Slot = kinds
            .iter()
            .copied()
            .filter(there)
            .map(|kind| {
                let next: &mut u32 = counts.entry(kind).or_default();
                *next += 1;
                (kind, *next - 1)
            })
            .collect();
        if !slot.is_empty() {
            slots.push(slot);
        }
    };
    let warm_up = u32::from(stages - 1 - stage).min(microbatches);
    launch(&[ParamsAllGather]);
    for _ in 0..warm_up {
        launch(&[ForwardRecv]);
        launch(&[ForwardCompute]);
        launch(&[ForwardSend]);
    }
    if warm_up < microbatches {
        launch(&[ForwardRecv]);
    }
    for i in warm_up..microbatches {
        launch(&[ForwardCompute]);
        launch(&[ForwardSend, BackwardRecv]);
        launch(&[BackwardCompute]);
        if i + 1 < microbatches {
            launch(&[BackwardSend, ForwardRecv]);
        } else {
            launch(&[BackwardSend]);
        }
    }
    for _ in 0..warm_up {
        launch(&[BackwardRecv]);
        launch(&[BackwardCompute]);
        launch(&[BackwardSend]);
    }
    tail(stage, stages, &mut launch);
    slots
}

fn tail(stage: u16, stages: u16, launch: &mut impl FnMut(&[OpKind])) {
    launch(&[LayernormGradsAllReduce]);
    if stage == 0 || stage + 1 == stages {
        launch(&[EmbeddingGradsAllReduce]);
    }
    launch(&[GradsReduceScatter]);
    launch(&[OptimizerClipMainGrad]);
    launch(&[Optimizer]);
}

/// The graph of a job that launches these slots one after the other, by stage. `unite` says
/// whether the operations of a batch complete together.
fn blocking(stages: &[Vec<Slot>], replicas: u32, unite: bool, barrier: bool) -> StepGraph {
    let count = stages.len() as u16;
    let mut b = StepGraphBuilder::new(count, replicas);
    let mut sets: Vec<Vec<OpId>> = Vec::new();
    for (stage, slots) in (0..count).zip(stages) {
        let mut before: Vec<OpId> = Vec::new();
        for slot in slots {
            let ids: Vec<OpId> =
                slot.iter().map(|&(kind, seq)| b.op(op(kind, seq, stage))).collect();
            for &id in &ids {
                for &x in &before {
                    b.dep(x, id);
                }
            }
            if unite && ids.len() > 1 {
                sets.push(ids.clone());
            }
            before = ids;
        }
        let (last, layernorm) =
            (last_backward(&b, stage), find(&b, LayernormGradsAllReduce, stage));
        let gc = b.op(op(Gc, 0, stage));
        b.dep(last, gc);
        b.dep(gc, layernorm);
        b.sink(find(&b, Optimizer, stage));
        for kind in [ParamsAllGather, GradsReduceScatter] {
            b.group(vec![find(&b, kind, stage)], ReplicaSync::All);
        }
    }
    for stage in 0..count {
        for seq in 0.. {
            let Some(send) = b.find(ForwardSend, seq, stage) else { break };
            sets.push(vec![send, b.find(ForwardRecv, seq, stage + 1).unwrap()]);
        }
        for seq in 0.. {
            let Some(send) = b.find(BackwardSend, seq, stage) else { break };
            sets.push(vec![send, b.find(BackwardRecv, seq, stage - 1).unwrap()]);
        }
    }
    for set in merged(sets) {
        b.group(set, ReplicaSync::None);
    }
    let ends = [0, count - 1].map(|s| find(&b, EmbeddingGradsAllReduce, s));
    b.group(ends.to_vec(), ReplicaSync::None);
    let clips = (0..count).map(|s| find(&b, OptimizerClipMainGrad, s)).collect();
    b.group(clips, ReplicaSync::All);
    if barrier {
        let last = count - 1;
        let barrier = b.op(op(Barrier, 0, last));
        b.dep(last_backward(&b, last), barrier);
        b.dep(barrier, find(&b, LayernormGradsAllReduce, last));
        b.group(vec![barrier], ReplicaSync::All);
    }
    b.build().unwrap()
}

fn op(kind: OpKind, seq: u32, stage: u16) -> Op {
    let compute = kind.is_microbatch_compute();
    let sharded = matches!(kind, ParamsAllGather | GradsReduceScatter);
    Op {
        kind,
        stage,
        chunk: if compute || sharded { 0 } else { -1 },
        microbatch: if compute { seq as i32 } else { -1 },
        seq,
    }
}

fn find(b: &StepGraphBuilder, kind: OpKind, stage: u16) -> OpId {
    b.find(kind, 0, stage).unwrap()
}

fn last_backward(b: &StepGraphBuilder, stage: u16) -> OpId {
    (0..).map_while(|seq| b.find(BackwardCompute, seq, stage)).last().unwrap()
}

/// Unites sets that share a member.
fn merged(sets: Vec<Vec<OpId>>) -> Vec<Vec<OpId>> {
    let mut done: Vec<Vec<OpId>> = Vec::new();
    for set in sets {
        let (mut joined, apart): (Vec<_>, Vec<_>) =
            done.into_iter().partition(|d| d.iter().any(|id| set.contains(id)));
        joined.push(set);
        let mut all = joined.concat();
        all.sort_unstable();
        all.dedup();
        done = apart;
        done.push(all);
    }
    done
}

/// A trace of three steps; barriers take no time.
fn record(graph: &StepGraph, seed: u64) -> (OpTable, Vec<f64>) {
    let samples = 3 * graph.replicas() as usize;
    let mut work = random_work(graph, samples, &mut ChaCha8Rng::seed_from_u64(seed));
    for (id, op) in graph.iter() {
        let lane = &mut work[id.0 as usize * samples..][..samples];
        match op.kind {
            Barrier => lane.fill(0.0),
            // What completes together is recorded to end together.
            kind if kind.is_p2p() => lane.fill(0.001),
            _ => {}
        }
    }
    let plan = meta(graph.replicas(), u32::from(graph.stages()), 1);
    (to_op_table(graph, &[4, 5, 9], &work, None, &plan).unwrap(), work)
}

#[test]
fn a_blocking_job_is_rebuilt_exactly() {
    for stages in 2..6_u16 {
        for microbatches in [1, 2, 3, 8] {
            let slots: Vec<_> = (0..stages).map(|s| one_f_one_b(stages, s, microbatches)).collect();
            let graph = blocking(&slots, 2, true, true);
            let (table, _) = record(&graph, u64::from(stages) * 100 + u64::from(microbatches));
            let rebuilt = build_program_order(&table).unwrap();
            let (mut rebuilt, mut graph) = (structure(&rebuilt), structure(&graph));
            // A trace numbers gc's microbatch 0; here it has none.
            rebuilt.ops.retain(|name, _| !name.starts_with("gc"));
            graph.ops.retain(|name, _| !name.starts_with("gc"));
            assert_eq!(rebuilt, graph, "{stages} stages, {microbatches} microbatches");
        }
    }
}

#[test]
fn the_rebuilt_graph_gives_the_recorded_step_times() {
    let slots: Vec<_> = (0..4).map(|s| one_f_one_b(4, s, 6)).collect();
    let graph = blocking(&slots, 3, true, true);
    let (table, work) = record(&graph, 3);
    let rebuilt = build_program_order(&table).unwrap();
    let samples = 9;
    let mut mapped = vec![0.0; work.len()];
    for (id, op) in graph.iter() {
        let other = rebuilt.find(op.kind, op.seq, op.stage).unwrap();
        mapped[other.0 as usize * samples..][..samples]
            .copy_from_slice(&work[id.0 as usize * samples..][..samples]);
    }
    let expected = evaluate(&graph, 3, &work, None).unwrap().step_times(&graph);
    let got = evaluate(&rebuilt, 3, &mapped, None).unwrap().step_times(&rebuilt);
    assert_eq!(got, expected);
}

/// Stage 1 works through what stage 0 batches: completing the batch together would be a circle.
#[test]
fn a_batch_that_would_wait_for_itself_stays_apart() {
    let mut launched: [Vec<Slot>; 2] = Default::default();
    let program: [&[&[(OpKind, u32)]]; 2] = [
        &[
            &[(ParamsAllGather, 0)],
            &[(ForwardCompute, 0)],
            &[(ForwardSend, 0)],
            &[(ForwardCompute, 1)],
            &[(ForwardSend, 1), (BackwardRecv, 0)],
            &[(BackwardCompute, 0)],
            &[(BackwardRecv, 1)],
            &[(BackwardCompute, 1)],
        ],
        &[
            &[(ParamsAllGather, 0)],
            &[(ForwardRecv, 0)],
            &[(ForwardCompute, 0)],
            &[(ForwardRecv, 1)],
            &[(ForwardCompute, 1)],
            &[(BackwardCompute, 0)],
            &[(BackwardSend, 0)],
            &[(BackwardCompute, 1)],
            &[(BackwardSend, 1)],
        ],
    ];
    for (stage, slots) in program.iter().enumerate() {
        launched[stage] = slots.iter().map(|s| s.to_vec()).collect();
        let mut launch = |kinds: &[OpKind]| launched[stage].push(vec![(kinds[0], 0)]);
        tail(stage as u16, 2, &mut launch);
    }
    let graph = blocking(&launched, 2, false, true);
    let (table, _) = record(&graph, 17);
    let rebuilt = build_program_order(&table).unwrap();
    let (members, _) = group_of(&rebuilt, ForwardSend, 1, 0);
    assert_eq!(members, ["forward-recv[1]@stage1", "forward-send[1]@stage0"]);
    // Both still hold up what follows them.
    let expected = ["backward-recv[0]@stage0", "forward-send[1]@stage0"];
    assert_eq!(deps(&rebuilt, BackwardCompute, 0, 0), expected);
    assert_eq!(structure(&rebuilt).deps, structure(&graph).deps);
}

#[test]
fn a_barrier_needs_replicas_that_wait() {
    let slots: Vec<_> = (0..2).map(|s| one_f_one_b(2, s, 4)).collect();
    let free = blocking(&slots, 3, true, false);
    let (table, _) = record(&free, 23);
    let graph = build_program_order(&table).unwrap();
    assert_eq!(graph.find(Barrier, 0, 1), None, "replicas that do not wait");
    assert_eq!(graph.ops().len(), free.ops().len());
    let single = edit(&table, |row| row.dp == 0);
    let graph = build_program_order(&single).unwrap();
    assert_eq!(graph.find(Barrier, 0, 1), None, "one replica");
    let (table, _) = record(&blocking(&slots, 3, true, true), 23);
    let graph = build_program_order(&table).unwrap();
    let (members, sync) = group_of(&graph, Barrier, 0, 1);
    assert_eq!((members.len(), sync), (1, ReplicaSync::All));
    assert!(deps(&graph, LayernormGradsAllReduce, 0, 1).contains(&"barrier[0]@stage1".into()));
}

/// One odd step or replica, even the first, does not change what counts as a batch.
#[test]
fn batches_are_decided_by_the_majority() {
    let slots: Vec<_> = (0..3).map(|s| one_f_one_b(3, s, 5)).collect();
    let graph = blocking(&slots, 2, true, true);
    let (table, _) = record(&graph, 29);
    let expected = structure(&build_program_order(&table).unwrap());
    let odd = edit(&table, |row| {
        // In the first step of replica 0 all backward receives are recorded 0.2 ms late.
        if row.step == 4 && row.dp == 0 && row.kind == BackwardRecv {
            row.start_s += 2e-4;
            row.duration_s -= 2e-4;
        }
        true
    });
    assert_eq!(structure(&build_program_order(&odd).unwrap()), expected);
}

/// Gathers and scatters on a stream of their own keep the reference rules.
#[test]
fn overlapped_gradient_reduction_runs_beside() {
    let shape = Schedule {
        replicas: 2,
        chunks: 2,
        overlap_grad_reduce: true,
        ..Schedule::new(ScheduleKind::InterleavedOneFOneB, 2, 4)
    };
    let graph = shape.graph().unwrap();
    let work = random_work(&graph, 2, &mut ChaCha8Rng::seed_from_u64(31));
    let table = to_op_table(&graph, &[0], &work, None, &meta_of(&shape)).unwrap();
    let built = build_program_order(&table).unwrap();
    let expected = ["params-all-gather[0]@stage1"];
    assert_eq!(deps(&built, ParamsAllGather, 1, 1), expected);
    let expected = ["backward-compute[5]@stage1"];
    assert_eq!(deps(&built, GradsReduceScatter, 0, 1), expected);
    let expected = ["backward-compute[7]@stage1", "grads-reduce-scatter[0]@stage1"];
    assert_eq!(deps(&built, GradsReduceScatter, 1, 1), expected);
    let waits = deps(&built, LayernormGradsAllReduce, 0, 1);
    assert!(waits.contains(&"grads-reduce-scatter[1]@stage1".into()), "{waits:?}");
    // So do sends and receives that run while a compute does.
    let reference = build_reference(&table).unwrap();
    for kind in [ForwardSend, ForwardRecv, BackwardSend, BackwardRecv] {
        for seq in 0..8 {
            let expected = deps(&reference, kind, seq, 0);
            assert_eq!(deps(&built, kind, seq, 0), expected, "{kind}[{seq}]");
        }
    }
}

/// Whatever the reference rules accept is accepted, or refused by naming a circle.
#[test]
fn any_schedule_builds_or_names_its_circle() {
    let mut rng = ChaCha8Rng::seed_from_u64(37);
    let (mut built, mut refused) = (0, 0);
    for _ in 0..200 {
        let shape = common::random_schedule(&mut rng);
        let graph = shape.graph().unwrap();
        let work = random_work(&graph, 2 * shape.replicas as usize, &mut rng);
        let table = to_op_table(&graph, &[0, 1], &work, None, &meta_of(&shape)).unwrap();
        match build_program_order(&table) {
            Ok(_) => built += 1,
            Err(error) => {
                assert!(error.to_string().starts_with("operations wait for each other: "));
                refused += 1;
            }
        }
    }
    assert!(built > 180, "{built} built, {refused} refused");
}
