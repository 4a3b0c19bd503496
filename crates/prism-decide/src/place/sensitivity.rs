//! What one slow worker costs, by where it stands.

use prism_engine::predict::{Estimate, LowerOptions};
use prism_engine::sample::RunOptions;
use prism_graph::StepGraph;
use prism_model::DurationModel;
use serde::{Deserialize, Serialize};

use super::PlaceError;
use super::nominal::{Kernel, Nominal, Origin};
use super::objective::{Objective, Paired, Ratio};

/// Most cells that are slowed one by one; of larger plans some replicas stand for all.
const MOST_CELLS: usize = 256;
/// Replicas that stand for all of a larger plan.
const REPLICAS_OF_MANY: usize = 8;

/// How to ask.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SensitivityOptions {
    /// Factor on the compute time of one worker.
    pub slow: f64,
    /// What is looked at.
    pub objective: Objective,
    /// Samples.
    pub samples: usize,
    /// Seed.
    pub seed: u64,
    /// Threads; 0 for all.
    pub threads: usize,
    /// Confidence of intervals.
    pub confidence: f64,
    /// Whether launch delays are there.
    pub launch_delays: bool,
}

/// What one slow worker costs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Sensitivity {
    /// Factor on the compute time of the one worker.
    pub slow: f64,
    /// What is looked at.
    pub objective: Objective,
    /// Objective of the plan as it is, seconds.
    pub baseline: Estimate,
    /// By stage.
    pub stages: Vec<StageSensitivity>,
    /// Replicas whose workers were slowed, one at a time.
    pub replicas: Vec<u32>,
    /// Stage where it costs least.
    pub best_stage: u16,
    /// Stage where it costs most.
    pub worst_stage: u16,
    /// Objective with the slow worker in the worst stage over that in the best, means over replicas.
    pub worst_over_best: Ratio,
}

/// What one slow worker of a stage costs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct StageSensitivity {
    /// The stage.
    pub stage: u16,
    /// Objective with one worker of the stage slowed, relative to the plan as it is: mean over
    /// replicas.
    pub ratio: Ratio,
    /// The same by replica, in the order of [`Sensitivity::replicas`].
    pub by_replica: Vec<Ratio>,
}

/// Slows every worker, one at a time.
///
/// # Errors
/// [`PlaceError`] if the model does not fit the graph or a setting is out of range.
pub fn sensitivity(
    graph: &StepGraph,
    model: &DurationModel,
    options: &SensitivityOptions,
) -> Result<Sensitivity, PlaceError> {
    if !(options.slow.is_finite() && options.slow > 0.0) {
        let (what, rule) = ("the factor of a slow worker", "positive and finite");
        return Err(PlaceError::Setting { what, rule, got: options.slow.to_string() });
    }
    let lowering = LowerOptions { launch_delays: options.launch_delays, ..LowerOptions::default() };
    let (nominal, given) = Nominal::new(graph, model, Origin::Model, lowering)?;
    let (replicas, stages) = (nominal.replicas(), nominal.stages());
    let run = RunOptions {
        seed: options.seed,
        samples: options.samples,
        threads: options.threads,
        ..RunOptions::default()
    };
    let mut kernel = Kernel::new(&nominal, run)?;
    let chosen = spread_out(replicas, stages);
    let mut sets = vec![kernel.step_s(&given)?];
    for stage in 0..stages {
        for &r in &chosen {
            let mut factors = given.clone();
            factors[r * stages + stage] *= options.slow;
            sets.push(kernel.step_s(&factors)?);
        }
    }
    let views: Vec<&[f64]> = sets.iter().map(Vec::as_slice).collect();
    let paired = Paired::new(options.objective, &views, options.confidence, options.seed);
    let n = chosen.len();
    let mean = |v: &[f64], stage: usize| v[1 + stage * n..][..n].iter().sum::<f64>() / n as f64;
    let mut out = Vec::with_capacity(stages);
    for stage in 0..stages {
        let at = 1 + stage * n;
        out.push(StageSensitivity {
            stage: stage as u16,
            ratio: paired.of(|v| mean(v, stage) / v[0])?,
            by_replica: (at..at + n).map(|i| paired.ratio(i, 0)).collect::<Result<_, _>>()?,
        });
    }
    let by_cost =
        |a: &&StageSensitivity, b: &&StageSensitivity| a.ratio.value.total_cmp(&b.ratio.value);
    let best = out.iter().min_by(by_cost).map_or(0, |s| s.stage);
    let worst = out.iter().max_by(by_cost).map_or(0, |s| s.stage);
    let worst_over_best =
        paired.of(|v| mean(v, usize::from(worst)) / mean(v, usize::from(best)))?;
    Ok(Sensitivity {
        slow: options.slow,
        objective: options.objective,
        baseline: options.objective.estimate(&sets[0], options.confidence, options.seed)?,
        stages: out,
        replicas: chosen.iter().map(|&r| r as u32).collect(),
        best_stage: best,
        worst_stage: worst,
        worst_over_best,
    })
}

/// All replicas, or evenly spread ones of a large plan.
fn spread_out(replicas: usize, stages: usize) -> Vec<usize> {
    if replicas * stages <= MOST_CELLS || replicas <= REPLICAS_OF_MANY {
        return (0..replicas).collect();
    }
    (0..REPLICAS_OF_MANY).map(|i| i * replicas / REPLICAS_OF_MANY).collect()
}
