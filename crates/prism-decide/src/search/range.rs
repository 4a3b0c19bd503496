//! From all plans of a range to those that run, by their bounds.

use std::time::Instant;

use prism_job::Job;
use prism_job::cost::costs;
use rayon::prelude::*;

use super::bound::lower_bound_s;
use super::error::no_schedule;
use super::fits::headroom_bytes;
use super::space::{Candidate, plan_line};
use super::{
    NearestPlan, PlanCounts, PlanFile, SearchError, SearchOptions, SearchTimes, StageTime,
};

/// Near plans that are named where none runs.
const NEAREST: usize = 3;

/// A plan that runs.
pub(super) struct Feasible {
    /// Its number among all plans of the range.
    pub index: u32,
    pub candidate: Candidate,
    pub headroom_bytes: f64,
    /// Lower bound of the noise-free step, seconds.
    pub bound_s: f64,
    /// The same in the objective's unit.
    pub bound: f64,
}

/// Plans that run, those of the lowest bound first.
pub(super) struct Range {
    pub feasible: Vec<Feasible>,
    pub counts: PlanCounts,
    pub nearest: Vec<NearestPlan>,
}

/// Goes through the range: rules, memory, bounds.
pub(super) fn range(
    job: &Job,
    options: &SearchOptions,
    times: &mut SearchTimes,
) -> Result<Range, SearchError> {
    let begin = Instant::now();
    let all: Vec<Candidate> =
        options.gpus.iter().flat_map(|&gpus| options.space.plans(job, gpus)).collect();
    let mut counts = PlanCounts { considered: all.len(), ..PlanCounts::default() };
    let legal: Vec<(u32, Candidate)> = all
        .into_par_iter()
        .enumerate()
        .filter(|(_, c)| c.job(job).is_possible())
        .map(|(i, c)| (i as u32, c))
        .collect();
    times.rules = since(begin, counts.considered);
    let begin = Instant::now();
    let tried = legal.len();
    let rooms: Vec<Option<f64>> = legal
        .par_iter()
        .map(|(_, c)| match headroom_bytes(&c.job(job)) {
            Ok(room) => Ok(Some(room)),
            Err(e) if no_schedule(&e) => Ok(None),
            Err(e) => Err(SearchError::plan(plan_line(&c.plan, c.micro_batch), e)),
        })
        .collect::<Result<_, _>>()?;
    times.memory = since(begin, tried);
    let possible: Vec<(u32, Candidate, f64)> =
        legal.into_iter().zip(rooms).filter_map(|((i, c), room)| Some((i, c, room?))).collect();
    counts.illegal = counts.considered - possible.len();
    let (fitting, large): (Vec<_>, Vec<_>) = possible.into_iter().partition(|p| p.2 >= 0.0);
    counts.too_large = large.len();
    let nearest = if fitting.is_empty() { nearest(job, options, large) } else { Vec::new() };
    let begin = Instant::now();
    let tried = fitting.len();
    let mut feasible: Vec<Feasible> = fitting
        .into_par_iter()
        .map(|(index, candidate, headroom_bytes)| {
            let planned = candidate.job(job);
            let bound_s = lower_bound_s(&planned, &costs(&planned));
            let bound = options.objective.of_step(bound_s, &planned, options.price_per_gpu_hour);
            Feasible { index, candidate, headroom_bytes, bound_s, bound }
        })
        .collect();
    feasible.sort_by(|a, b| a.bound.total_cmp(&b.bound).then(a.index.cmp(&b.index)));
    times.bound = since(begin, tried);
    Ok(Range { feasible, counts, nearest })
}

pub(super) fn since(begin: Instant, plans: usize) -> StageTime {
    StageTime { plans, seconds: begin.elapsed().as_secs_f64() }
}

/// Possible plans that need the least more memory; where no plan of the range is possible, possible
/// ones outside it.
fn nearest(
    job: &Job,
    options: &SearchOptions,
    mut large: Vec<(u32, Candidate, f64)>,
) -> Vec<NearestPlan> {
    if large.is_empty() {
        let plans = options.gpus.iter().flat_map(|&gpus| {
            let named = prism_job::nearest_plans(job, gpus).into_iter();
            named.map(move |plan| Candidate {
                plan,
                micro_batch: job.training.micro_batch_size,
                gpus,
            })
        });
        return plans
            .filter_map(|c| {
                let planned = c.job(job);
                let headroom_bytes = headroom_bytes(&planned).ok()?;
                Some(NearestPlan { plan: PlanFile::new(&planned), headroom_bytes })
            })
            .take(NEAREST)
            .collect();
    }
    large.sort_by(|a, b| b.2.total_cmp(&a.2).then(a.0.cmp(&b.0)));
    large
        .into_iter()
        .take(NEAREST)
        .map(|(_, c, headroom_bytes)| NearestPlan {
            plan: PlanFile::new(&c.job(job)),
            headroom_bytes,
        })
        .collect()
}
