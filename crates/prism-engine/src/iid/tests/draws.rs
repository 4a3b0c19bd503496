//! Independence, the shared regime, and shared draws, on models made by hand.

use prism_graph::{Op, ReplicaSync, StepGraph, StepGraphBuilder};
use prism_model::OpKind;
use prism_stats::Distribution;

use super::{draws, moments, observations};
use crate::iid::*;

/// A chain of `n` operations of one replica, in one stage.
fn chain(kinds: &[OpKind]) -> StepGraph {
    let mut builder = StepGraphBuilder::new(1, 1);
    let mut last = None;
    for (i, &kind) in kinds.iter().enumerate() {
        let id = builder.op(Op { kind, stage: 0, chunk: 0, microbatch: i as i32, seq: i as u32 });
        if let Some(before) = last {
            builder.dep(before, id);
        }
        last = Some(id);
    }
    builder.sink(last.unwrap());
    builder.build().unwrap()
}

fn chunk0(kind: OpKind) -> Signature {
    Signature { kind, stage: 0, chunk: 0 }
}

#[test]
fn draws_are_independent_their_variances_add() {
    let graph = chain(&[OpKind::ForwardCompute; 50]);
    let pool = Pool::of(observations(300, 1)).unwrap();
    let (law, values) = (pool.law.law.clone(), pool.values_s.clone());
    let gaps: Vec<f32> = (0..40).map(|i| if i < 30 { 0.0 } else { 0.01 * i as f32 }).collect();
    let model = IidModel {
        steps: vec![0, 1],
        replicas: 1,
        kernels: vec![KernelPool { signature: chunk0(OpKind::ForwardCompute), pool }],
        collectives: Vec::new(),
        transfers: Vec::new(),
        regime: Vec::new(),
        launch_delay: vec![GapPool {
            signature: chunk0(OpKind::ForwardCompute),
            values_s: gaps.clone(),
        }],
    };
    let n = 40_000;
    let population = |v: &[f32]| {
        let (mean, variance) = moments(v);
        (mean, variance * (v.len() as f64 - 1.0) / v.len() as f64)
    };
    let (gap_mean, gap_variance) = population(&gaps);
    for kind in [Draws::Empirical, Draws::Parametric] {
        let (mean, variance) = match kind {
            Draws::Empirical => population(&values),
            Draws::Parametric => (law.mean(), law.sd() * law.sd()),
        };
        let (got_mean, got_variance) = moments(&draws(&graph, &model, kind, n, 0));
        let expected = 50.0 * (variance + gap_variance);
        let error = (expected / n as f64).sqrt();
        assert!((got_mean - 50.0 * (mean + gap_mean)).abs() < 4.0 * error, "{kind:?} {got_mean}");
        // A sum of 50 is nearly normal: the s.e. of its variance is √(2/n) of it.
        let error = expected * (2.0 / n as f64).sqrt();
        assert!((got_variance - expected).abs() < 4.0 * error, "{got_variance} {expected}");
    }
}

#[test]
fn communication_of_a_step_shares_the_regime_and_nothing_else_does() {
    let graph = chain(&[OpKind::ForwardSend; 20]);
    let transfer = Pool::of(vec![1.0; 4]).unwrap();
    let regime = vec![0.5f32, 1.0, 1.5];
    let model = IidModel {
        steps: vec![0, 1, 2],
        replicas: 1,
        kernels: Vec::new(),
        collectives: Vec::new(),
        transfers: vec![TransferPools {
            signature: chunk0(OpKind::ForwardSend),
            threshold_s: None,
            separability: 0.0,
            ever_bubble: (0..20).collect(),
            never_bubble: Vec::new(),
            transfer,
        }],
        regime,
        launch_delay: Vec::new(),
    };
    let n = 3_000;
    let samples = draws(&graph, &model, Draws::Empirical, n, 0);
    for level in [10.0f32, 20.0, 30.0] {
        let count = samples.iter().filter(|s| (**s - level).abs() < 1e-3).count() as f64;
        let (mean, sd) = (n as f64 / 3.0, (n as f64 * 2.0 / 9.0).sqrt());
        assert!((count - mean).abs() < 4.0 * sd, "{level}: {count}");
    }
}

#[test]
fn participants_of_a_collective_share_one_draw() {
    // Two stages of four replicas; every stage computes, then a collective over both stages and over
    // nothing, blocks of two, or all replicas. The pools of compute are constant.
    for sync in [ReplicaSync::None, ReplicaSync::Blocks(2), ReplicaSync::All] {
        let mut builder = StepGraphBuilder::new(2, 4);
        let op = |kind, stage| Op { kind, stage, chunk: -1, microbatch: -1, seq: 0 };
        let members: Vec<_> =
            (0..2).map(|s| builder.op(op(OpKind::OptimizerClipMainGrad, s))).collect();
        for &member in &members {
            builder.sink(member);
        }
        builder.group(members.clone(), sync);
        let graph = builder.build().unwrap();
        let values: Vec<f64> = (1..=1_000).map(f64::from).collect();
        let model = IidModel {
            steps: vec![0, 1],
            replicas: 4,
            kernels: Vec::new(),
            collectives: vec![CollectivePool {
                kind: OpKind::OptimizerClipMainGrad,
                chunk: -1,
                stages: vec![0, 1],
                pool: Pool::of(values).unwrap(),
            }],
            transfers: Vec::new(),
            regime: Vec::new(),
            launch_delay: Vec::new(),
        };
        // The step ends with the largest of as many draws as there are instances.
        let instances = match sync {
            ReplicaSync::None => 4.0,
            ReplicaSync::Blocks(_) => 2.0,
            ReplicaSync::All => 1.0,
        };
        let n = 20_000;
        let (mean, _) = moments(&draws(&graph, &model, Draws::Empirical, n, 0));
        // Mean of the largest of k out of 1..=1000: 1000 − Σ (i/1000)^k.
        let expected =
            1_000.0 - (1..1_000).map(|i| (f64::from(i) / 1_000.0).powf(instances)).sum::<f64>();
        let sd = 1_000.0 / 12.0f64.sqrt();
        assert!(
            (mean - expected).abs() < 4.0 * sd / (n as f64).sqrt(),
            "{sync:?} {mean} {expected}"
        );
    }
}
