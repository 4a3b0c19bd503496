//! The penalty of variation, shared out between its sources.

use prism_engine::predict::{Bounds, Estimate, LowerOptions, PredictError, damp, lower_adjusted};
use prism_engine::sample::Tape;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::ExplainOptions;
use super::players::{By, Player, players};
use super::shapley::{Coalition, Contribution, contributions};
use crate::compare::{bound, step_times};
use crate::paired::{Ordered, Resamples, Statistic, normal_bounds};
use crate::scenario::Job;

/// One part's contributions to one statistic, seconds; intervals are those of sampling.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Attribution {
    /// What the part adds to a step without any variation.
    pub alone_s: Estimate,
    /// What taking the part away from the job as it is gains.
    pub removed_s: Estimate,
    /// Shapley value: the mean over all orders of adding parts. These add up to the whole.
    pub shapley_s: Estimate,
    /// Shapley value as a share of the whole; none where the whole is not clear of 0.
    pub share: Option<f64>,
}

/// One part of the variation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct PartShare {
    /// Effect or kind, or several that are small joined by ` + `.
    pub name: String,
    /// At each statistic of [`Breakdown::statistics`].
    pub at: Vec<Attribution>,
}

/// A statistic's whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Whole {
    /// Which statistic.
    pub statistic: Statistic,
    /// Without any variation, workers alike: every operation takes its mean, seconds.
    pub without_s: f64,
    /// Of the job as it is, seconds.
    pub with_s: f64,
    /// The whole: with less without, seconds.
    pub whole_s: Estimate,
    /// What the parts add each alone, summed, seconds.
    pub sum_alone_s: Estimate,
    /// What taking each away gains, summed, seconds.
    pub sum_removed_s: Estimate,
}

/// The penalty of variation, shared out along one line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Breakdown {
    /// Along which.
    pub by: By,
    /// The whole at each statistic.
    pub statistics: Vec<Whole>,
    /// Parts, the largest Shapley value at the tail quantile first.
    pub parts: Vec<PartShare>,
    /// Samples of each coalition.
    pub samples: usize,
    /// Coalitions evaluated.
    pub coalitions: usize,
}

/// Shares out the penalty.
///
/// Every coalition of parts is evaluated with the same random numbers. Where there are more parts than
/// `max_parts`, the smallest (by what they add alone and by what removing them gains, at all statistics)
/// are joined into one.
///
/// # Errors
/// [`PredictError`] if the model does not fit the graph.
pub(super) fn breakdown(
    by: By,
    job: &Job<'_>,
    options: &ExplainOptions,
) -> Result<Breakdown, PredictError> {
    let mut parts = players(by, job.graph, job.model);
    let statistics = options.statistics();
    let most = options.max_parts.max(2);
    if parts.len() > most {
        parts = joined(&parts, most, job, options, &statistics)?;
    }
    let n = parts.len();
    let sets: Vec<Coalition> = (0..1 << n).collect();
    let samples = evaluate(&parts, &sets, job, options)?;
    let ordered: Vec<Ordered<'_>> = samples.iter().map(|s| Ordered::new(s)).collect();
    let resamples = Resamples::new(options.samples, options.resamples, options.seed);
    let values = |f: &(dyn Fn(&Ordered<'_>, Statistic) -> f64 + Sync)| -> Vec<Vec<f64>> {
        statistics.iter().map(|s| ordered.iter().map(|o| f(o, *s)).collect()).collect()
    };
    let point = values(&|o: &Ordered<'_>, s| o.of_all(s));
    let replicates: Vec<Vec<Vec<f64>>> =
        resamples.map(|counts| values(&|o: &Ordered<'_>, s| o.of(s, counts)));
    let mut out = Breakdown {
        by,
        statistics: Vec::new(),
        parts: parts.iter().map(|p| PartShare { name: p.name.clone(), at: Vec::new() }).collect(),
        samples: options.samples,
        coalitions: sets.len(),
    };
    for (k, &statistic) in statistics.iter().enumerate() {
        let repeated: Vec<Resampled<'_>> =
            replicates.iter().map(|r| (r[k].as_slice(), contributions(n, &r[k]))).collect();
        add_statistic(&mut out, statistic, &point[k], &repeated, options.confidence);
    }
    let tail = statistics.len().min(2) - 1;
    out.parts.sort_by(|a, b| b.at[tail].shapley_s.value.total_cmp(&a.at[tail].shapley_s.value));
    Ok(out)
}

/// Values of all coalitions under one resample, and the contributions that follow.
type Resampled<'a> = (&'a [f64], Vec<Contribution>);

fn add_statistic(
    out: &mut Breakdown,
    statistic: Statistic,
    v: &[f64],
    repeated: &[Resampled<'_>],
    confidence: f64,
) {
    let n = out.parts.len();
    let all = v.len() - 1;
    let parts = contributions(n, v);
    let whole = |v: &[f64]| v[all] - v[0];
    let estimate = |value: f64, of: &dyn Fn(&Resampled<'_>) -> f64| {
        let replicates: Vec<f64> = repeated.iter().map(of).collect();
        Estimate { value, sampling: normal_bounds(value, &replicates, confidence), total: None }
    };
    let whole_s = estimate(whole(v), &|r| whole(r.0));
    let clear = excludes_zero(&whole_s.sampling);
    for (i, part) in out.parts.iter_mut().enumerate() {
        let shapley_s = estimate(parts[i].shapley, &|r| r.1[i].shapley);
        part.at.push(Attribution {
            alone_s: estimate(parts[i].alone, &|r| r.1[i].alone),
            removed_s: estimate(parts[i].removed, &|r| r.1[i].removed),
            share: clear.then(|| shapley_s.value / whole_s.value),
            shapley_s,
        });
    }
    let sum = |parts: &[Contribution], f: &dyn Fn(&Contribution) -> f64| -> f64 {
        parts.iter().map(f).sum()
    };
    out.statistics.push(Whole {
        statistic,
        without_s: v[0],
        with_s: v[all],
        sum_alone_s: estimate(sum(&parts, &|c| c.alone), &|r| sum(&r.1, &|c| c.alone)),
        sum_removed_s: estimate(sum(&parts, &|c| c.removed), &|r| sum(&r.1, &|c| c.removed)),
        whole_s,
    });
}

fn excludes_zero(bounds: &Bounds) -> bool {
    bounds.lower > 0.0 || bounds.upper < 0.0
}

/// Joins the smallest parts into one, so that `most` are left.
fn joined(
    parts: &[Player],
    most: usize,
    job: &Job<'_>,
    options: &ExplainOptions,
    statistics: &[Statistic],
) -> Result<Vec<Player>, PredictError> {
    let n = parts.len();
    let all: Coalition = (1 << n) - 1;
    let mut sets = vec![0, all];
    sets.extend((0..n).flat_map(|i| [1 << i, all & !(1 << i)]));
    let samples = evaluate(parts, &sets, job, options)?;
    let ordered: Vec<Ordered<'_>> = samples.iter().map(|s| Ordered::new(s)).collect();
    let mut size = vec![0.0_f64; n];
    for &statistic in statistics {
        let v: Vec<f64> = ordered.iter().map(|o| o.of_all(statistic)).collect();
        let whole = (v[1] - v[0]).abs().max(f64::MIN_POSITIVE);
        for (i, s) in size.iter_mut().enumerate() {
            let change = (v[2 + 2 * i] - v[0]).abs().max((v[1] - v[3 + 2 * i]).abs());
            *s = s.max(change / whole);
        }
    }
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|a, b| size[*b].total_cmp(&size[*a]).then(a.cmp(b)));
    let mut out: Vec<Player> = order[..most - 1].iter().map(|i| parts[*i].clone()).collect();
    let rest: Vec<Player> = order[most - 1..].iter().map(|i| parts[*i].clone()).collect();
    out.push(Player::merged(&rest));
    Ok(out)
}

/// Step times with the variation of some parts only, of each coalition.
fn evaluate(
    parts: &[Player],
    sets: &[Coalition],
    job: &Job<'_>,
    options: &ExplainOptions,
) -> Result<Vec<Vec<f32>>, PredictError> {
    let lowering = LowerOptions { draws: options.draws, ..LowerOptions::default() };
    let one = |tape: &mut Option<Tape>, set: &Coalition| -> Result<Vec<f32>, PredictError> {
        let damped = damp(job.graph, job.model, |source, signature, _| {
            let active = parts
                .iter()
                .enumerate()
                .any(|(i, p)| set & (1 << i) != 0 && p.has(source, *signature));
            f64::from(u8::from(active))
        });
        let program = lower_adjusted(job.graph, &damped.model, &lowering, &damped.adjust)?;
        step_times(bound(tape, &program)?, options.seed, options.samples, 1)
    };
    if options.threads == 1 {
        let mut tape = None;
        return sets.iter().map(|s| one(&mut tape, s)).collect();
    }
    sets.par_iter().map_init(|| None, one).collect()
}
