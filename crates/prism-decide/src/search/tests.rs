//! Searches against brute force.

use std::ops::ControlFlow;

use prism_engine::planned::noise_free_s;
use prism_job::{Job, Plan, ReadOptions, Recompute, ScheduleName, ZeroStage, parse_job};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use super::*;

pub(super) fn small_job() -> Job {
    job_of("llama-3.1-8b", 4096, 64, "h100-dgx")
}

fn job_of(model: &str, seq: u32, batch: u32, cluster: &str) -> Job {
    let text = format!(
        "[model]\npreset = '{model}'\n[training]\nseq_len = {seq}\nglobal_batch_size = {batch}\n\
         [parallelism]\ndata_parallel_shard_degree = 16\n[cluster]\npreset = '{cluster}'\n\
         [variability]\npreset = 'dedicated'\n"
    );
    parse_job(&text, &ReadOptions::default()).unwrap().job
}

/// Possible jobs of random plans on random clusters.
pub(super) fn random_jobs(count: usize, seed: u64) -> Vec<Job> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let bases = [
        job_of("gpt3-175b", 2048, 512, "h100-dgx"),
        job_of("llama-3.1-8b", 8192, 256, "a100-dgx"),
        job_of("mixtral-8x7b", 4096, 256, "llama3-roce"),
        job_of("gpt-neox-20b", 2048, 384, "h100-dgx"),
    ];
    let schedules = [
        ScheduleName::OneFOneB,
        ScheduleName::InterleavedOneFOneB,
        ScheduleName::InterleavedOneFOneB,
        ScheduleName::ZbH1,
        ScheduleName::ZbV,
        ScheduleName::GPipe,
    ];
    let mut out = Vec::with_capacity(count);
    while out.len() < count {
        let mut job = bases[rng.random_range(0..bases.len())].clone();
        let mut pick = |of: &[u32]| of[rng.random_range(0..of.len())];
        let pp = pick(&[1, 2, 3, 4, 4, 6, 8, 8, 12, 16]);
        let tp = pick(&[1, 2, 4, 8]);
        let schedule = schedules[pick(&[0, 1, 2, 3, 4, 5]) as usize];
        let virtual_chunks = match schedule {
            ScheduleName::InterleavedOneFOneB => pick(&[2, 3, 4]),
            ScheduleName::ZbV => 2,
            _ => 1,
        };
        let plan = Plan {
            tensor_parallel: tp,
            sequence_parallel: tp > 1 && pick(&[0, 1]) == 1,
            pipeline_parallel: pp,
            context_parallel: pick(&[1, 1, 2]),
            data_parallel_shard: pick(&[1, 1, 2, 4, 8, 16]),
            schedule,
            virtual_chunks,
            zero: [ZeroStage::None, ZeroStage::Optimizer, ZeroStage::Parameters]
                [pick(&[0, 1, 2]) as usize],
            recompute: [Recompute::None, Recompute::Selective, Recompute::Full]
                [pick(&[0, 1, 2]) as usize],
            ..job.plan.clone()
        };
        job.plan = plan;
        job.plan.fsdp.prefetch = pick(&[0, 1, 2]);
        job.plan.overlap.p2p = pick(&[0, 1, 1]) == 1;
        job.plan.overlap.grad_reduce = pick(&[0, 1]) == 1;
        job.plan.overlap.param_gather = pick(&[0, 1]) == 1;
        job.model.tied_embeddings = pick(&[0, 1]) == 1;
        job.training.micro_batch_size = pick(&[1, 2, 4]);
        // Some links so slow that waiting for them rules the step.
        job.cluster.network.latency_s *= f64::from(pick(&[1, 1, 10, 1000]));
        job.cluster.gpus = Some(job.gpus());
        if job.is_possible() && job.microbatches() <= 128 {
            out.push(job);
        }
    }
    out
}

fn quick(job: &Job) -> SearchOptions {
    SearchOptions { samples: 400, clusters: 4, top: 3, distributions: 6, ..SearchOptions::of(job) }
}

fn go(job: &Job, options: &SearchOptions) -> SearchResult {
    let found = search(job, options, None, &mut |_, _| ControlFlow::Continue(())).unwrap();
    SearchResult { times: SearchTimes::default(), ..found }
}

#[test]
fn branch_and_bound_finds_what_going_through_all_does() {
    let job = small_job();
    let options = SearchOptions {
        space: SearchSpace {
            schedules: vec![
                ScheduleName::OneFOneB,
                ScheduleName::InterleavedOneFOneB,
                ScheduleName::ZbH1,
                ScheduleName::ZbV,
            ],
            ..SearchSpace::of(&job)
        },
        ..quick(&job)
    };
    let bounded = go(&job, &options);
    let all = go(&job, &SearchOptions { exhaustive: true, ..options.clone() });
    assert!(bounded.counts.bounded_out > 0, "{:?}", bounded.counts);
    assert_eq!(all.counts.bounded_out, 0);
    assert_eq!(bounded.plans, all.plans);
    assert_eq!(bounded.best, all.best);
    // And all by hand, by the graph.
    let mut steps: Vec<f64> = options
        .space
        .plans(&job, 16)
        .iter()
        .map(|c| c.job(&job))
        .filter(Job::is_possible)
        .filter(|j| prism_graph::memory(j).unwrap().iter().all(prism_graph::StageMemory::fits))
        .map(|j| noise_free_s(&j).unwrap())
        .collect();
    assert_eq!(steps.len(), all.counts.noise_free);
    steps.sort_unstable_by(f64::total_cmp);
    let mut found: Vec<f64> = all.plans.iter().map(|p| p.noise_free_s).collect();
    found.sort_unstable_by(f64::total_cmp);
    for (a, b) in found.iter().zip(&steps) {
        assert!((a / b - 1.0).abs() < 1e-12, "{a} {b}");
    }
}

#[test]
fn the_result_is_ranked_and_says_what_is_not_known() {
    let job = small_job();
    let found = go(&job, &quick(&job));
    let c = found.counts;
    assert_eq!(c.considered, c.illegal + c.too_large + c.bounded_out + c.noise_free);
    assert_eq!(c.predicted, found.plans.len());
    let objectives: Vec<f64> =
        found.plans.iter().map(|p| p.predicted.objective.value.unwrap()).collect();
    assert!(objectives.is_sorted());
    assert!(found.plans.iter().any(|p| p.pareto));
    let best = &found.plans[0];
    // The fastest at p95 is on the front of mean against p95.
    assert!(best.pareto);
    assert!(best.mfu > 0.1 && best.mfu < 1.0 && (0.0..1.0).contains(&best.bubble));
    let winner = found.best.unwrap();
    assert!(winner.is_possible());
    assert_eq!(PlanFile::new(&winner), best.plan);
    for pair in found.plans.windows(2) {
        let (a, b) = (pair[0].predicted.objective, pair[1].predicted.objective);
        assert_eq!(pair[0].tied_with_next, b.lower.unwrap() <= a.upper.unwrap());
    }
}

#[test]
fn threads_change_nothing() {
    let job = small_job();
    let options = quick(&job);
    let within = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| go(&job, &options))
    };
    assert_eq!(within(1), within(3));
}

#[test]
fn a_search_goes_on_where_it_ended() {
    let job = small_job();
    let options = quick(&job);
    let whole = go(&job, &options);
    for stop_after in 0..4 {
        let (mut calls, mut kept) = (0, None);
        let stopped = search(&job, &options, None, &mut |_, state| {
            kept = Some(state.clone());
            calls += 1;
            if calls > stop_after { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let Err(SearchError::Stopped) = stopped else { continue };
        let text = serde_json::to_string(&kept.unwrap()).unwrap();
        let kept: Checkpoint = serde_json::from_str(&text).unwrap();
        let known = kept.predicted.len();
        let mut again = Vec::new();
        let resumed = search(&job, &options, Some(kept.clone()), &mut |_, state| {
            again.push(state.predicted.len());
            ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!(SearchResult { times: SearchTimes::default(), ..resumed.clone() }, whole);
        assert!(resumed.times.distribution.plans + known <= whole.counts.predicted.max(1));
        // Another question is refused.
        let other = SearchOptions { seed: 2, ..options.clone() };
        let refused = search(&job, &other, Some(kept), &mut |_, _| ControlFlow::Continue(()));
        assert!(matches!(refused, Err(SearchError::Question { .. })));
    }
}

#[test]
fn a_model_that_fits_nowhere_names_what_is_nearest() {
    let mut job = job_of("gpt3-175b", 2048, 64, "h100-dgx");
    job.plan.data_parallel_shard = 8;
    let found = go(&job, &SearchOptions { gpus: vec![8], ..quick(&job) });
    assert!(found.plans.is_empty() && found.best.is_none());
    assert!(found.counts.too_large > 0);
    assert!(!found.nearest.is_empty() && found.nearest.iter().all(|n| n.headroom_bytes < 0.0));
    let rooms: Vec<f64> = found.nearest.iter().map(|n| -n.headroom_bytes).collect();
    assert!(rooms.is_sorted());
}

#[test]
fn cost_prefers_the_fewer_gpus_where_scaling_is_poor() {
    let job = small_job();
    let at = |objective, gpus: &[u64]| {
        let options = SearchOptions {
            objective,
            gpus: gpus.to_vec(),
            price_per_gpu_hour: Some(2.0),
            ..quick(&job)
        };
        go(&job, &options)
    };
    let cost = at(PlanObjective::Cost, &[16, 64]);
    let speed = at(PlanObjective::P50, &[16, 64]);
    assert_eq!(speed.plans[0].plan.gpus, 64);
    assert_eq!(cost.plans[0].plan.gpus, 16);
    let best = &cost.plans[0];
    let by_hand = best.predicted.mean.value.unwrap() / 3600.0 * 16.0 * 2.0 * 1e9 / (64.0 * 4096.0);
    assert!((best.predicted.objective.value.unwrap() / by_hand - 1.0).abs() < 1e-12);
}

#[test]
fn settings_out_of_range_are_refused() {
    let job = small_job();
    let usual = quick(&job);
    let wrong = [
        SearchOptions { gpus: vec![], ..usual.clone() },
        SearchOptions { gpus: vec![0], ..usual.clone() },
        SearchOptions { top: 0, ..usual.clone() },
        SearchOptions { samples: 5, ..usual.clone() },
        SearchOptions { confidence: 1.0, ..usual.clone() },
        SearchOptions { price_per_gpu_hour: Some(-1.0), ..usual.clone() },
        SearchOptions {
            space: SearchSpace { micro_batch: vec![0], ..usual.space.clone() },
            ..usual.clone()
        },
    ];
    for options in wrong {
        let refused = search(&job, &options, None, &mut |_, _| ControlFlow::Continue(()));
        assert!(matches!(refused, Err(SearchError::Setting { .. })), "{options:?}");
    }
}
