//! Which plan is best for a job.
//!
//! [`search`] goes through all plans of a range ([`SearchSpace`]) that use exactly the GPUs there are:
//! rules, then memory, then a lower bound of the noise-free step, then the noise-free step in the order
//! of the bounds until no other can matter, then the distribution of the best ones. All distributions
//! are drawn under one seed, and draws carry names, so that equal parts of two plans see equal noise.
//!
//! Plans are evaluated side by side on the current `rayon` pool; nothing depends on its threads. [`Checkpoint`] holds all that was evaluated: a search that
//! is given one goes on where that ended, with the same result as in one go.

mod bound;
mod checkpoint;
mod error;
mod fast;
mod fits;
mod objective;
mod output;
mod range;
mod run;
mod space;
#[cfg(test)]
mod tests;

pub use checkpoint::{CHECKPOINT_SCHEMA, Checkpoint, Predicted};
pub use error::SearchError;
pub use objective::{Measured, PlanObjective};
pub use output::{
    Cutoff, NearestPlan, PlanCounts, PlanFile, RankedPlan, SearchResult, SearchTimes, StageTime,
};
pub use space::SearchSpace;

use std::ops::ControlFlow;

use prism_job::Job;

/// How to search.
#[derive(Clone, Debug, PartialEq)]
pub struct SearchOptions {
    /// Numbers of GPUs; a plan uses one of them entirely.
    pub gpus: Vec<u64>,
    /// Which plans.
    pub space: SearchSpace,
    /// What is minimised.
    pub objective: PlanObjective,
    /// Price of a GPU-hour; none to count GPU-hours.
    pub price_per_gpu_hour: Option<f64>,
    /// Plans that must be right: the noise-free step is computed for every plan that could be one of
    /// them.
    pub top: usize,
    /// Most plans whose distribution is predicted.
    pub distributions: usize,
    /// Whether every plan's noise-free step is computed, whatever its bound.
    pub exhaustive: bool,
    /// Samples of one replica; 0 for a number that suits the plan's size.
    pub samples: usize,
    /// Clusters drawn for every plan.
    pub clusters: u32,
    /// Seed of all draws.
    pub seed: u64,
    /// Confidence of all intervals.
    pub confidence: f64,
}

impl SearchOptions {
    /// The usual range for a job, minimising p95, on the plan's own number of GPUs.
    pub fn of(job: &Job) -> SearchOptions {
        SearchOptions {
            gpus: vec![job.gpus()],
            space: SearchSpace::of(job),
            objective: PlanObjective::P95,
            price_per_gpu_hour: None,
            top: 10,
            distributions: 24,
            exhaustive: false,
            samples: 0,
            clusters: 32,
            seed: 1,
            confidence: 0.95,
        }
    }

    fn check(&self) -> Result<(), SearchError> {
        let bad = |what, rule, got: String| Err(SearchError::Setting { what, rule, got });
        if self.gpus.is_empty() || self.gpus.contains(&0) {
            return bad("GPUs", "one or more positive numbers", format!("{:?}", self.gpus));
        }
        if self.top == 0 || self.distributions < self.top {
            let got = format!("{} of {}", self.top, self.distributions);
            return bad("plans shown", "at least 1 and at most those predicted", got);
        }
        if self.clusters == 0 {
            return bad("clusters", "at least 1", "0".to_owned());
        }
        if (1..100).contains(&self.samples) {
            return bad("samples", "at least 100", self.samples.to_string());
        }
        if !(self.confidence > 0.0 && self.confidence < 1.0) {
            return bad("confidence", "between 0 and 1", self.confidence.to_string());
        }
        if let Some(price) = self.price_per_gpu_hour.filter(|p| !(p.is_finite() && *p > 0.0)) {
            return bad("price of a GPU-hour", "positive", price.to_string());
        }
        self.space.check()
    }
}

/// How far a search is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What is being done.
    pub stage: &'static str,
    /// Plans done.
    pub done: usize,
    /// Plans of this stage at most.
    pub of: usize,
}

/// Finds the best plans of a job: its model, batch, cluster and variability under any plan of the
/// range.
///
/// `watch` is called between pieces of work with all that was evaluated so far; it may stop the search.
/// `from` is what such a search had evaluated.
///
/// ```
/// use prism_decide::search::{SearchOptions, search};
///
/// let text = "[model]\npreset = 'llama-3.1-8b'\n[training]\nseq_len = 4096\n\
///             global_batch_size = 64\n[parallelism]\ndata_parallel_shard_degree = 16\n\
///             [cluster]\npreset = 'h100-dgx'\n[variability]\npreset = 'dedicated'\n";
/// let job = prism_job::parse_job(text, &prism_job::ReadOptions::default())?.job;
/// let options = SearchOptions { samples: 500, top: 2, distributions: 2, ..SearchOptions::of(&job) };
/// let found = search(&job, &options, None, &mut |_, _| std::ops::ControlFlow::Continue(()))?;
/// let best = &found.plans[0];
/// assert!(best.bound_s <= best.noise_free_s && best.headroom_bytes > 0.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`SearchError::Setting`] for options out of range, [`SearchError::Question`] and
/// [`SearchError::Damaged`] for a checkpoint of another search, [`SearchError::Stopped`] if `watch`
/// says so, [`SearchError::Plan`] where a plan cannot be evaluated. A range without a plan that runs is
/// no error: the result has none.
pub fn search(
    job: &Job,
    options: &SearchOptions,
    from: Option<Checkpoint>,
    watch: &mut dyn FnMut(&Progress, &Checkpoint) -> ControlFlow<()>,
) -> Result<SearchResult, SearchError> {
    options.check()?;
    run::search(job, options, from, watch)
}
