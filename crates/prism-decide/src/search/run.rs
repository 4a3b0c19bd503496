//! From bounds to distributions.

use std::ops::ControlFlow;
use std::time::Instant;

use prism_engine::planned::{JobOptions, noise_free_s, predict_job};
use prism_job::Job;
use prism_job::cost::costs;
use rayon::prelude::*;

use super::bound::{is_sharded, mean_work_s};
use super::checkpoint::question;
use super::objective::{mean_step, quantile};
use super::range::{Feasible, range};
use super::space::plan_line;
use super::{
    Checkpoint, Cutoff, PlanCounts, PlanFile, Predicted, Progress, RankedPlan, SearchError,
    SearchOptions, SearchResult, SearchTimes, fast,
};

/// Plans whose noise-free steps are computed between two looks at the clock. No number of threads: what
/// is evaluated must not depend on it.
const STEPS: usize = 256;
/// Plans that are predicted together.
const TOGETHER: usize = 4;
/// The least share by which a noise-free step may be longer than those shown.
const LEAST_MARGIN: f64 = 0.02;
/// Share of the penalty of noise by which it may differ between plans.
const SPREAD: f64 = 1.5;
/// Passes and transfers of a replica times samples that are drawn for a plan.
const BUDGET: usize = 1 << 27;

type Watch<'a> = &'a mut dyn FnMut(&Progress, &Checkpoint) -> ControlFlow<()>;

pub(super) fn search(
    job: &Job,
    options: &SearchOptions,
    from: Option<Checkpoint>,
    watch: Watch<'_>,
) -> Result<SearchResult, SearchError> {
    let mut times = SearchTimes::default();
    let range = range(job, options, &mut times)?;
    let question = question(job, options);
    if let Some(from) = &from {
        from.check(&question, range.counts.considered)?;
    }
    let state = from.unwrap_or_else(|| Checkpoint::new(question));
    let mut search = Search { job, options, plans: range.feasible, state, watch, times };
    let mut counts = range.counts;
    if search.plans.is_empty() {
        return Ok(SearchResult {
            objective: options.objective,
            plans: Vec::new(),
            counts,
            cutoff: None,
            nearest: range.nearest,
            bound_ratio: None,
            best: None,
            times: search.times,
        });
    }
    let (computed, cutoff) = search.steps()?;
    let ranked = search.distributions(computed)?;
    search.count(&mut counts, computed, &ranked);
    Ok(search.result(counts, cutoff, computed, &ranked))
}

struct Search<'a> {
    job: &'a Job,
    options: &'a SearchOptions,
    /// By bound.
    plans: Vec<Feasible>,
    state: Checkpoint,
    watch: Watch<'a>,
    times: SearchTimes,
}

impl Search<'_> {
    /// Noise-free steps in the order of the bounds, until no other can be among those shown. Returns how
    /// many plans have one.
    fn steps(&mut self) -> Result<(usize, Cutoff), SearchError> {
        let mut done = self.steps_below(0, 0.0)?;
        let best = self.by_step(done)[0];
        let quiet = self.value(best);
        self.predict(&[best])?;
        let noisy = self.predicted(best).map_or(f64::INFINITY, |p| p.objective.rank());
        let penalty = if noisy.is_finite() { (noisy / quiet - 1.0).max(0.0) } else { 0.0 };
        let margin = (SPREAD * penalty).max(LEAST_MARGIN);
        done = self.steps_below(done, margin)?;
        Ok((done, Cutoff { penalty, margin }))
    }

    /// The same for a margin: `done` plans have a step already.
    fn steps_below(&mut self, mut done: usize, margin: f64) -> Result<usize, SearchError> {
        while done < self.plans.len() {
            if !self.options.exhaustive && self.plans[done].bound > self.limit(done, margin) {
                break;
            }
            let batch = done..(done + STEPS).min(self.plans.len());
            self.steps_of(batch.clone())?;
            done = batch.end;
            self.tell("noise-free steps", done, self.plans.len())?;
        }
        Ok(done)
    }

    /// The value that a plan's bound must not exceed.
    fn limit(&self, done: usize, margin: f64) -> f64 {
        let mut values: Vec<f64> = (0..done).map(|i| self.value(i)).collect();
        values.sort_unstable_by(f64::total_cmp);
        values.get(self.options.top - 1).map_or(f64::INFINITY, |v| v * (1.0 + margin))
    }

    fn steps_of(&mut self, batch: std::ops::Range<usize>) -> Result<(), SearchError> {
        let begin = Instant::now();
        let missing: Vec<&Feasible> = self.plans[batch]
            .iter()
            .filter(|plan| !self.state.noise_free_s.contains_key(&plan.index))
            .collect();
        let times: Vec<(u32, f64)> = missing
            .par_iter()
            .map(|plan| Ok((plan.index, step_s(&plan.candidate.job(self.job))?)))
            .collect::<Result<_, SearchError>>()?;
        self.times.noise_free.plans += times.len();
        self.times.noise_free.seconds += begin.elapsed().as_secs_f64();
        self.state.noise_free_s.extend(times);
        Ok(())
    }

    /// Noise-free step of a plan that has one, seconds.
    fn step(&self, plan: usize) -> f64 {
        self.state.noise_free_s.get(&self.plans[plan].index).copied().unwrap_or(f64::INFINITY)
    }

    /// The same in the objective's unit.
    fn value(&self, plan: usize) -> f64 {
        // The unit is proportional to the step.
        let plan_at = &self.plans[plan];
        self.step(plan) * (plan_at.bound / plan_at.bound_s)
    }

    /// Plans that have a noise-free step, the fastest first.
    fn by_step(&self, done: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..done).collect();
        let key = |&i: &usize| (self.value(i), self.plans[i].index);
        order.sort_by(|a, b| {
            let (a, b) = (key(a), key(b));
            a.0.total_cmp(&b.0).then(a.1.cmp(&b.1))
        });
        order
    }

    /// Predicts the fastest plans, until noise-free steps alone are above the objective of those shown.
    /// Returns them by the objective.
    fn distributions(&mut self, done: usize) -> Result<Vec<usize>, SearchError> {
        let order = self.by_step(done);
        let most = self.options.distributions.min(order.len());
        let mut ranked: Vec<usize> = Vec::new();
        for batch in order[..most].chunks(TOGETHER) {
            let last = ranked.get(self.options.top - 1);
            let shown = last.map(|&i| self.objective(i));
            if shown.is_some_and(|shown| self.value(batch[0]) > shown) {
                break;
            }
            self.predict(batch)?;
            ranked.extend(batch);
            ranked.sort_by(|&a, &b| {
                let key = |i| (self.objective(i), self.plans[i].index);
                let (a, b) = (key(a), key(b));
                a.0.total_cmp(&b.0).then(a.1.cmp(&b.1))
            });
            self.tell("distributions", ranked.len(), most)?;
        }
        Ok(ranked)
    }

    fn predicted(&self, plan: usize) -> Option<&Predicted> {
        self.state.predicted.get(&self.plans[plan].index)
    }

    fn objective(&self, plan: usize) -> f64 {
        self.predicted(plan).map_or(f64::INFINITY, |p| p.objective.rank())
    }

    fn predict(&mut self, plans: &[usize]) -> Result<(), SearchError> {
        let begin = Instant::now();
        let missing: Vec<&Feasible> = plans
            .iter()
            .map(|&i| &self.plans[i])
            .filter(|plan| !self.state.predicted.contains_key(&plan.index))
            .collect();
        let all: Vec<(u32, Predicted)> = missing
            .par_iter()
            .map(|plan| Ok((plan.index, predict(&plan.candidate.job(self.job), self.options)?)))
            .collect::<Result<_, SearchError>>()?;
        self.times.distribution.plans += all.len();
        self.times.distribution.seconds += begin.elapsed().as_secs_f64();
        self.state.predicted.extend(all);
        Ok(())
    }

    fn tell(&mut self, stage: &'static str, done: usize, of: usize) -> Result<(), SearchError> {
        match (self.watch)(&Progress { stage, done, of }, &self.state) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(SearchError::Stopped),
        }
    }

    fn count(&self, counts: &mut PlanCounts, computed: usize, ranked: &[usize]) {
        counts.bounded_out = self.plans.len() - computed;
        counts.noise_free = computed;
        counts.predicted = ranked.len();
        let winner = ranked.first().map_or(f64::INFINITY, |&i| self.objective(i));
        let close = |i: &usize| {
            let known = if *i < computed { self.value(*i) } else { self.plans[*i].bound };
            known < winner && !ranked.contains(i)
        };
        counts.undecided = (0..self.plans.len()).filter(close).count();
    }

    fn result(
        self,
        counts: PlanCounts,
        cutoff: Cutoff,
        computed: usize,
        ranked: &[usize],
    ) -> SearchResult {
        let mut ratios: Vec<f64> =
            (0..computed).map(|i| self.plans[i].bound_s / self.step(i)).collect();
        ratios.sort_unstable_by(f64::total_cmp);
        let mut plans: Vec<RankedPlan> =
            ranked.iter().zip(1..).filter_map(|(&i, rank)| self.ranked(i, rank)).collect();
        for i in 1..plans.len() {
            plans[i - 1].tied_with_next =
                plans[i - 1].predicted.objective.overlaps(&plans[i].predicted.objective);
        }
        pareto(&mut plans);
        SearchResult {
            objective: self.options.objective,
            plans,
            counts,
            cutoff: Some(cutoff),
            nearest: Vec::new(),
            bound_ratio: ratios.get(ratios.len() / 2).copied(),
            best: ranked.first().map(|&i| self.plans[i].candidate.job(self.job)),
            times: self.times,
        }
    }

    fn ranked(&self, plan: usize, rank: u32) -> Option<RankedPlan> {
        let found = &self.plans[plan];
        let job = found.candidate.job(self.job);
        let costs = costs(&job);
        let step = self.step(plan);
        let rate = job.gpus() as f64 * job.cluster.gpu.bf16_flops;
        Some(RankedPlan {
            rank,
            plan: PlanFile::new(&job),
            bound_s: found.bound_s,
            noise_free_s: step,
            predicted: *self.predicted(plan)?,
            tied_with_next: false,
            pareto: false,
            headroom_bytes: found.headroom_bytes,
            mfu: costs.model_flops / (step * rate),
            bubble: (1.0 - mean_work_s(&job, &costs) / step).max(0.0),
        })
    }
}

/// Marks the plans that no other beats at both mean and p95.
fn pareto(plans: &mut [RankedPlan]) {
    let at: Vec<(f64, f64)> =
        plans.iter().map(|p| (p.predicted.mean.rank(), p.predicted.p95.rank())).collect();
    for (plan, own) in plans.iter_mut().zip(&at) {
        let beaten = |other: &(f64, f64)| {
            other.0 <= own.0 && other.1 <= own.1 && (other.0 < own.0 || other.1 < own.1)
        };
        plan.pareto = own.1.is_finite() && !at.iter().any(beaten);
    }
}

/// Noise-free step of a plan, seconds.
fn step_s(job: &Job) -> Result<f64, SearchError> {
    let failed =
        |source| SearchError::plan(plan_line(&job.plan, job.training.micro_batch_size), source);
    if is_sharded(job) {
        return noise_free_s(job).map_err(failed);
    }
    match fast::step_s(job, &costs(job)) {
        Ok(Some(step)) => Ok(step),
        Ok(None) => noise_free_s(job).map_err(failed),
        Err(e) => Err(failed(e.into())),
    }
}

fn predict(job: &Job, options: &SearchOptions) -> Result<Predicted, SearchError> {
    let samples = match options.samples {
        0 => {
            let plan = &job.plan;
            let passes = u64::from(plan.chunks()) * u64::from(job.microbatches()) * 6;
            let usual =
                (BUDGET / (passes as usize).max(1)).clamp(1 << 12, 1 << 15).next_power_of_two();
            // The slowest of many replicas takes as many samples of one.
            usual.max(20 * plan.data_parallel() as usize)
        }
        n => n,
    };
    let job_options = JobOptions {
        samples,
        clusters: options.clusters,
        seed: options.seed,
        threads: 1,
        confidence: options.confidence,
        quantiles: options.objective.quantiles(),
        slowdowns: Vec::new(),
        brute_force: false,
        over_clusters_only: true,
    };
    let prediction = predict_job(job, &job_options).map_err(|source| {
        SearchError::plan(plan_line(&job.plan, job.training.micro_batch_size), source)
    })?;
    let law = &prediction.over_clusters;
    let price = options.price_per_gpu_hour;
    Ok(Predicted {
        mean: mean_step(law, prediction.replicas, options.confidence),
        sd_s: law.sd_s,
        p50: quantile(law, 0.5),
        p95: quantile(law, 0.95),
        objective: options.objective.measure(job, &prediction, price, options.confidence),
    })
}
