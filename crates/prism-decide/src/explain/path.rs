//! Where the critical path goes, over sampled steps.

use std::collections::BTreeMap;

use prism_engine::predict::{
    Adjustments, Bounds, Estimate, LowerOptions, PredictError, Probes, Timelines, lower_adjusted,
    timelines,
};
use prism_engine::sample::RunOptions;
use prism_graph::{OpId, StepGraph};
use prism_model::{DurationModel, OpKind};
use prism_stats::htest;
use prism_stats::interval::wilson;
use serde::{Deserialize, Serialize};

use super::ExplainOptions;
use crate::critical::{CriticalPath, SegmentKind, critical_path, slack};
use crate::paired::standard_error;
use crate::scenario::Job;

/// Time on the critical path of one part of the job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct PathShare<K> {
    /// Which part.
    #[serde(flatten)]
    pub part: K,
    /// Probability that the critical path passes through it.
    pub probability: f64,
    /// Its sampling interval (Wilson).
    pub probability_interval: Bounds,
    /// Mean time on the path, seconds: what the mean step would lose first if the part took less.
    pub time_s: Estimate,
}

/// A kind of operation, or its launch delays.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct KindPart {
    /// Kind.
    pub kind: OpKind,
    /// Work or launch delay.
    pub what: SegmentKind,
}

/// A stage.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct StagePart {
    /// Stage.
    pub stage: u16,
}

/// A worker.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct WorkerPart {
    /// Replica.
    pub dp: u32,
    /// Stage.
    pub stage: u16,
    /// First global rank.
    pub rank: u32,
}

/// An operation on a replica.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct OpPart {
    /// Kind.
    pub kind: OpKind,
    /// Order among the stage's operations of its kind.
    pub seq: u32,
    /// Stage.
    pub stage: u16,
    /// Replica.
    pub dp: u32,
}

/// How much later a worker could end without delaying the step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct WorkerSlack {
    /// The worker.
    #[serde(flatten)]
    pub worker: WorkerPart,
    /// Mean over steps of the smallest slack of its compute, seconds.
    pub slack_s: Estimate,
}

/// A line of a critical path report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct PathLine {
    /// Operation.
    #[serde(flatten)]
    pub op: OpPart,
    /// Work or launch delay.
    pub what: SegmentKind,
    /// Time it takes, seconds.
    pub delay_s: f64,
    /// When it ends, seconds since the step's start.
    pub arrival_s: f64,
}

/// The critical path of one sampled step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct TypicalPath {
    /// The quantile it stands for.
    pub quantile: f64,
    /// Number of the sample.
    pub sample: usize,
    /// Step time, seconds.
    pub step_s: f64,
    /// From the step's start to its end.
    pub lines: Vec<PathLine>,
}

/// Where the critical path goes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct PathReport {
    /// Sampled steps.
    pub samples: usize,
    /// Mean step time of these, seconds.
    pub mean_step_s: f64,
    /// By kind, most time first.
    pub kinds: Vec<PathShare<KindPart>>,
    /// By stage, in order.
    pub stages: Vec<PathShare<StagePart>>,
    /// By worker, in order of rank.
    pub workers: Vec<PathShare<WorkerPart>>,
    /// Single operations, most probable first, at most [`ExplainOptions::max_operations`].
    pub operations: Vec<PathShare<OpPart>>,
    /// Slack of every worker.
    pub slack: Vec<WorkerSlack>,
    /// Paths of a median and of a slow step.
    pub typical: Vec<TypicalPath>,
}

/// Sampled steps with all their operations.
///
/// # Errors
/// [`PredictError`] if the model does not fit the graph.
pub fn sampled_steps(
    graph: &StepGraph,
    model: &DurationModel,
    adjust: &Adjustments,
    options: &ExplainOptions,
) -> Result<Timelines, PredictError> {
    let probes = Probes { timeline: true, ..Probes::default() };
    let lowering = LowerOptions { draws: options.draws, probes, ..LowerOptions::default() };
    let tape = lower_adjusted(graph, model, &lowering, adjust)?.compile()?;
    let run = RunOptions {
        seed: options.seed,
        samples: options.path_samples,
        threads: options.threads,
        ..RunOptions::default()
    };
    timelines(graph, &tape, &run)
}

/// The sample whose step time is nearest to a quantile of all of them.
pub fn sample_at(step_s: &[f64], quantile: f64) -> usize {
    let mut sorted = step_s.to_vec();
    sorted.sort_by(f64::total_cmp);
    let wanted = prism_stats::quantile_type7(&sorted, quantile).unwrap_or(f64::NAN);
    let distance = |i: &usize| (step_s[*i] - wanted).abs();
    (0..step_s.len()).min_by(|a, b| distance(a).total_cmp(&distance(b))).unwrap_or(0)
}

/// Follows the critical path of every sampled step.
pub(super) fn path_report(
    job: &Job<'_>,
    options: &ExplainOptions,
) -> Result<PathReport, PredictError> {
    let sampled = sampled_steps(job.graph, job.model, &Adjustments::default(), options)?;
    let samples = sampled.step_s.len();
    let (mut kinds, mut stages) = (Tally::new(samples), Tally::new(samples));
    let (mut workers, mut operations) = (Tally::new(samples), Tally::new(samples));
    let mut slacks: BTreeMap<WorkerPart, Vec<f64>> = BTreeMap::new();
    for sample in 0..samples {
        let path = critical_path(job.graph, &sampled.timeline, sample)?;
        for segment in &path.segments {
            let op = &job.graph.ops()[segment.op.0 as usize];
            let time = segment.duration_s();
            let dp = segment.replica;
            kinds.add(sample, KindPart { kind: op.kind, what: segment.kind }, time);
            stages.add(sample, StagePart { stage: op.stage }, time);
            workers.add(sample, worker(job, dp, op.stage), time);
            if segment.kind == SegmentKind::Work {
                let part = OpPart { kind: op.kind, seq: op.seq, stage: op.stage, dp };
                operations.add(sample, part, time);
            }
        }
        let spare = slack(job.graph, &sampled.timeline, sample)?;
        for (worker, least) in least_slack(job, &|op, r| spare.of(op, r)) {
            slacks.entry(worker).or_default().push(least);
        }
    }
    let mut kinds = kinds.shares(options)?;
    kinds.sort_by(|a, b| b.time_s.value.total_cmp(&a.time_s.value));
    let mut operations = operations.shares(options)?;
    operations.sort_by(|a, b| b.probability.total_cmp(&a.probability).then(a.part.cmp(&b.part)));
    operations.truncate(options.max_operations);
    let mut workers = workers.shares(options)?;
    workers.sort_by_key(|w| w.part.rank);
    let typical = [0.5, options.quantile]
        .into_iter()
        .map(|q| typical(job, &sampled, q))
        .collect::<Result<_, _>>()?;
    let slack = slacks
        .into_iter()
        .map(|(worker, values)| WorkerSlack { worker, slack_s: mean(&values, options) })
        .collect();
    Ok(PathReport {
        samples,
        mean_step_s: sampled.step_s.iter().sum::<f64>() / samples as f64,
        kinds,
        stages: stages.shares(options)?,
        workers,
        operations,
        slack,
        typical,
    })
}

fn worker(job: &Job<'_>, dp: u32, stage: u16) -> WorkerPart {
    WorkerPart { dp, stage, rank: job.layout.rank(dp, stage) }
}

fn typical(job: &Job<'_>, sampled: &Timelines, quantile: f64) -> Result<TypicalPath, PredictError> {
    let sample = sample_at(&sampled.step_s, quantile);
    let path = critical_path(job.graph, &sampled.timeline, sample)?;
    Ok(TypicalPath { quantile, sample, step_s: sampled.step_s[sample], lines: lines(job, &path) })
}

fn lines(job: &Job<'_>, path: &CriticalPath) -> Vec<PathLine> {
    let line = |s: &crate::critical::Segment| {
        let op = &job.graph.ops()[s.op.0 as usize];
        PathLine {
            op: OpPart { kind: op.kind, seq: op.seq, stage: op.stage, dp: s.replica },
            what: s.kind,
            delay_s: s.duration_s(),
            arrival_s: s.end_s,
        }
    };
    path.segments.iter().map(line).collect()
}

/// The smallest slack of each worker's compute.
fn least_slack(job: &Job<'_>, of: &dyn Fn(OpId, u32) -> f64) -> BTreeMap<WorkerPart, f64> {
    let mut out = BTreeMap::new();
    for (id, op) in job.graph.iter().filter(|(_, op)| op.kind.is_microbatch_compute()) {
        for dp in 0..job.graph.replicas() {
            let least = out.entry(worker(job, dp, op.stage)).or_insert(f64::INFINITY);
            *least = least.min(of(id, dp));
        }
    }
    out
}

/// Time on the path by part and sample.
struct Tally<K> {
    samples: usize,
    times: BTreeMap<K, BTreeMap<usize, f64>>,
}

impl<K: Ord + Copy> Tally<K> {
    fn new(samples: usize) -> Tally<K> {
        Tally { samples, times: BTreeMap::new() }
    }

    fn add(&mut self, sample: usize, part: K, time_s: f64) {
        *self.times.entry(part).or_default().entry(sample).or_insert(0.0) += time_s;
    }

    fn shares(self, options: &ExplainOptions) -> Result<Vec<PathShare<K>>, PredictError> {
        let n = self.samples;
        let share = |(part, times): (K, BTreeMap<usize, f64>)| {
            let count = times.len() as u64;
            let interval = wilson(count, n as u64, options.confidence)?;
            let mut all: Vec<f64> = times.into_values().collect();
            all.resize(n, 0.0);
            Ok(PathShare {
                part,
                probability: count as f64 / n as f64,
                probability_interval: Bounds { lower: interval.lower, upper: interval.upper },
                time_s: mean(&all, options),
            })
        };
        self.times.into_iter().map(share).collect()
    }
}

/// Mean with its sampling interval.
fn mean(values: &[f64], options: &ExplainOptions) -> Estimate {
    let n = values.len().max(1) as f64;
    let value = values.iter().sum::<f64>() / n;
    let half = htest::normal_quantile(0.5 * (1.0 + options.confidence)) * standard_error(values)
        / n.sqrt();
    Estimate { value, sampling: Bounds { lower: value - half, upper: value + half }, total: None }
}
