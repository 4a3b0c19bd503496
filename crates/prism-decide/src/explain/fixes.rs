//! What to fix first.

use prism_engine::predict::{Repack, Source};
use prism_model::{KernelClass, OpKind};
use serde::{Deserialize, Serialize};

use super::ExplainOptions;
use super::players::sources;
use crate::compare::{CompareError, CompareOptions, Comparison, compare};
use crate::paired::Statistic;
use crate::scenario::{Donors, Edit, Job, Scenario};
use crate::select::Selection;

/// A change that would help, and by how much.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Fix {
    /// In words.
    pub what: String,
    /// Against the job as it is; a gain is a negative difference.
    #[serde(flatten)]
    pub comparison: Comparison,
}

/// A worker counts as slow from this excess over the others of its stage on.
const SLOW: f64 = 0.01;
/// Slow workers that are tried one by one.
const MOST_WORKERS: usize = 3;

/// Tries every fix that the model knows and ranks them by the gain at the tail quantile.
pub(super) fn fixes(job: &Job<'_>, options: &ExplainOptions) -> Result<Vec<Fix>, CompareError> {
    let (words, scenarios): (Vec<String>, Vec<Scenario>) = candidates(job).into_iter().unzip();
    let settings = CompareOptions {
        draws: options.draws,
        samples: options.samples,
        seed: options.seed,
        threads: options.threads,
        repetitions: options.repetitions,
        resamples: options.resamples,
        confidence: options.confidence,
        statistics: vec![Statistic::Mean, Statistic::Quantile(options.quantile)],
        ..CompareOptions::default()
    };
    let report = compare(job, &scenarios, &Donors::new(), &settings)?;
    let mut fixes: Vec<Fix> = words
        .into_iter()
        .zip(report.comparisons)
        .map(|(what, comparison)| Fix { what, comparison })
        .collect();
    let gain = |f: &Fix| f.comparison.differences[1].difference_s.value;
    fixes.sort_by(|a, b| gain(a).total_cmp(&gain(b)));
    Ok(fixes)
}

fn candidates(job: &Job<'_>) -> Vec<(String, Scenario)> {
    let mut out = Vec::new();
    let mut add = |what: String, edit: Edit| {
        let mut scenario = Scenario { name: String::new(), edits: vec![edit] };
        scenario.name = scenario.to_string();
        out.push((what, scenario));
    };
    for (dp, stage, excess) in slow_workers(job).into_iter().take(MOST_WORKERS) {
        let rank = job.layout.rank(dp, stage);
        let mut on = Selection::default();
        // A rank is a number, which always parses.
        if on.set("rank", &rank.to_string()).is_ok() {
            let what = format!(
                "rank {rank} (dp {dp}, stage {stage}): as fast as the others of its stage, now {:.1} % slower",
                100.0 * excess
            );
            add(what, Edit::Heal { on });
        }
    }
    let present = sources(job.graph, job.model);
    for source in &present {
        let words = match source {
            Source::Worker => "all workers of a stage equally fast",
            Source::Step => "no step-to-step variation of compute",
            Source::StepWorker => "no variation of single workers from step to step",
            Source::Microbatch => "all microbatches equally long",
            Source::Residual => "no independent noise of compute",
            Source::Congestion => "no congestion of point-to-point transfers",
            Source::Transfer => "no noise of point-to-point transfers",
            Source::Collective => "no variation of collectives",
            Source::LaunchDelay => "launch delays always at their mean",
            _ => "no variation of the optimizer",
        };
        let on = Selection::default();
        add(words.to_owned(), Edit::Spread { factor: 0.0, effect: Some(*source), on });
    }
    if present.contains(&Source::LaunchDelay) {
        let on = Selection::default();
        add("no launch delays at all".to_owned(), Edit::Delay { factor: 0.0, on });
    }
    if present.contains(&Source::Microbatch) {
        add(
            "sequences repacked evenly over the step".to_owned(),
            Edit::Repack { over: Repack::Step },
        );
    }
    if present.contains(&Source::Worker) {
        add("microbatches sized by replica speed".to_owned(), Edit::Rebalance);
    }
    for kind in collectives(job) {
        let mut on = Selection::default();
        if on.set("kind", kind.as_str()).is_ok() {
            let edit = Edit::Spread { factor: 0.0, effect: None, on };
            add(format!("{kind} always at its mean"), edit);
        }
    }
    out
}

fn collectives(job: &Job<'_>) -> Vec<OpKind> {
    let mut kinds: Vec<OpKind> = job
        .graph
        .ops()
        .iter()
        .map(|op| op.kind)
        .filter(|k| k.class() == KernelClass::Collective)
        .collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

/// Workers that are slower than the median of the others of their stage, the slowest first: replica,
/// stage and excess.
fn slow_workers(job: &Job<'_>) -> Vec<(u32, u16, f64)> {
    let compute = &job.model.compute;
    let replicas = job.model.replicas as usize;
    let mut out = Vec::new();
    if compute.worker_log.is_empty() || replicas < 2 {
        return out;
    }
    for stage in 0..job.graph.stages() {
        for r in 0..replicas {
            let (mut sum, mut n) = (0.0, 0.0);
            for (c, s) in compute.signatures.iter().enumerate() {
                if s.signature.stage != stage {
                    continue;
                }
                let lane = &compute.worker_log[c * replicas..][..replicas];
                let others: Vec<f64> =
                    lane.iter().enumerate().filter(|(i, _)| *i != r).map(|(_, v)| *v).collect();
                if let Ok(median) = prism_stats::robust::median(&others) {
                    sum += lane[r] - median;
                    n += 1.0;
                }
            }
            let excess = if n > 0.0 { f64::exp(sum / n) - 1.0 } else { 0.0 };
            if excess > SLOW {
                out.push((r as u32, stage, excess));
            }
        }
    }
    out.sort_by(|a, b| b.2.total_cmp(&a.2).then((a.0, a.1).cmp(&(b.0, b.1))));
    out
}
