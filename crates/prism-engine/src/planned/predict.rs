//! The law of a planned job's step time, on a cluster like those one is given and over such clusters.

use prism_graph::PlannedStep;
use prism_job::Job;
use prism_job::cost::{StepCosts, costs};
use rayon::prelude::*;

use super::PlannedError;
use super::fleet::Cells;
use super::laws::{CellLaw, Temporal};
use super::lower::{Lowering, Persistent, TILTED, lower};
use super::report::{ClusterLaw, JobDistribution, JobPrediction, distribution};
use super::shared::Shared;
use crate::compose::{
    ComposeError, Composed, MaxOptions, Replicas, Tail, Tilt, importance, order_max,
};
use crate::predict::Probes;
use crate::sample::RunOptions;

/// How to predict a planned job.
#[derive(Clone, Debug, PartialEq)]
pub struct JobOptions {
    /// Samples of one replica; 0 for as many as about a second allows.
    pub samples: usize,
    /// Clusters drawn.
    pub clusters: u32,
    /// Seed.
    pub seed: u64,
    /// Threads; 0 for all.
    pub threads: usize,
    /// Confidence of all intervals.
    pub confidence: f64,
    /// Probabilities whose quantiles are reported.
    pub quantiles: Vec<f64>,
    /// Relative slow-downs whose probability is reported.
    pub slowdowns: Vec<f64>,
    /// Whether every replica is simulated, whatever that costs.
    pub brute_force: bool,
    /// Whether only the law over clusters is wanted: that on one cluster is then the same.
    pub over_clusters_only: bool,
}

impl Default for JobOptions {
    fn default() -> Self {
        JobOptions {
            samples: 0,
            clusters: 32,
            seed: 1,
            threads: 0,
            confidence: 0.95,
            quantiles: vec![0.05, 0.5, 0.95, 0.99],
            slowdowns: vec![0.01, 0.02, 0.05, 0.10, 0.20],
            brute_force: false,
            over_clusters_only: false,
        }
    }
}

/// Operations of one replica times samples that the default allows.
const BUDGET: usize = 500_000_000;
/// Slowest replicas of a cluster that are simulated together.
const TOGETHER: usize = 16;

/// Predicts the step time of a planned job.
///
/// Replicas that wait for each other only at the step's end are combined by order statistics: of the
/// slowest replicas of a cluster, simulated together, and of the rest, of which one is picked at random
/// in every sample. What all replicas share (step effect, congestion, collectives) is drawn once and
/// added to what a sample costs without the replicas' own noise.
///
/// # Errors
/// [`PlannedError`].
pub fn predict_job(job: &Job, options: &JobOptions) -> Result<JobPrediction, PlannedError> {
    check(options)?;
    let costs = costs(job);
    if super::fsdp::is_layered(job) {
        return super::fsdp::predict(job, options);
    }
    Pipeline::new(job, &costs, options)?.predict()
}

fn check(options: &JobOptions) -> Result<(), PlannedError> {
    let bad = |what, rule, got: String| Err(PlannedError::Setting { what, rule, got });
    if options.clusters == 0 {
        return bad("clusters", "at least 1", "0".to_owned());
    }
    if !(options.confidence > 0.0 && options.confidence < 1.0) {
        return bad("confidence", "between 0 and 1", options.confidence.to_string());
    }
    match options.quantiles.iter().find(|p| !(**p > 0.0 && **p < 1.0)) {
        Some(p) => bad("a quantile", "between 0 and 1", p.to_string()),
        None => Ok(()),
    }
}

struct Pipeline<'a> {
    options: &'a JobOptions,
    step: PlannedStep,
    cell: CellLaw,
    temporal: Temporal,
    replicas: u32,
    samples: usize,
    noise_free_s: f64,
}

impl<'a> Pipeline<'a> {
    fn new(job: &Job, costs: &StepCosts, options: &'a JobOptions) -> Result<Self, PlannedError> {
        let step = PlannedStep::new(job, costs, 1)?;
        let noise_free_s = step.seconds()?;
        let ops = step.planned.graph.ops().len();
        let samples = match options.samples {
            0 => {
                let usual = (BUDGET / ops.max(1)).clamp(1 << 13, 1 << 19).next_power_of_two() / 2;
                usual.max(needed(job.plan.data_parallel())).min(1 << 23)
            }
            n => n,
        };
        if samples < 100 {
            let (what, rule) = ("samples", "at least 100");
            return Err(PlannedError::Setting { what, rule, got: samples.to_string() });
        }
        Ok(Pipeline {
            options,
            cell: CellLaw::of(job, costs),
            temporal: Temporal::of(job, costs),
            replicas: job.plan.data_parallel(),
            step,
            samples,
            noise_free_s,
        })
    }

    fn predict(&self) -> Result<JobPrediction, PlannedError> {
        let shared = self.shared()?;
        let over_clusters = self.over_clusters(&shared)?;
        let over = "clusters one might be given, and steps on them";
        let mut all = self.report(over, &over_clusters.0, over_clusters.1);
        let mut warnings = Vec::new();
        let one_law = self.cell.is_constant() || self.options.over_clusters_only;
        let (steps, clusters) = if one_law {
            let mut steps = all.clone();
            "steps".clone_into(&mut steps.over);
            let range = all.quantiles.iter().map(|q| [q.value_s; 2]).collect();
            let clusters =
                ClusterLaw { clusters: 1, noise_free_s: [self.noise_free_s; 3], range_s: range };
            (steps, clusters)
        } else {
            self.on_clusters(&shared)?
        };
        let refused = |d: &JobDistribution| d.quantiles.iter().any(|q| q.refused.is_some());
        let extrapolated = |d: &JobDistribution| d.quantiles.iter().any(|q| q.extrapolated);
        if refused(&steps) || refused(&all) {
            warnings.push(format!(
                "some quantiles are beyond what {} samples of a replica can tell; draw more with \
                 `--samples`",
                self.samples
            ));
        }
        if extrapolated(&steps) || extrapolated(&all) {
            warnings
                .push("some quantiles rest on the replicas' tail beyond their samples".to_owned());
        }
        if self.temporal.is_quiet() && self.cell.is_constant() {
            warnings.push("nothing varies: the variability is all zero".to_owned());
        }
        over.clone_into(&mut all.over);
        Ok(JobPrediction {
            noise_free_s: self.noise_free_s,
            replicas: self.replicas,
            steps,
            over_clusters: all,
            clusters,
            warnings,
        })
    }

    fn run(
        &self,
        replicas: u32,
        persistent: Persistent<'_>,
        (own, shared): (bool, bool),
        samples: usize,
    ) -> Result<Vec<f64>, PlannedError> {
        let how = Lowering {
            replicas,
            persistent,
            temporal: &self.temporal,
            shared,
            own,
            probes: Probes::default(),
        };
        let tape = lower(&self.step, &how)?.compile()?;
        let run = RunOptions {
            seed: self.options.seed,
            samples,
            threads: self.options.threads,
            ..RunOptions::default()
        };
        let out = tape.run(&run)?;
        Ok(out
            .get("step")
            .map_or_else(Vec::new, |o| o.row(0).iter().map(|&x| f64::from(x)).collect()))
    }

    fn sorted(
        &self,
        replicas: u32,
        persistent: Persistent<'_>,
        samples: usize,
    ) -> Result<Vec<f64>, PlannedError> {
        let mut times = self.run(replicas, persistent, (true, false), samples)?;
        times.sort_unstable_by(f64::total_cmp);
        Ok(times)
    }

    fn max_options(&self) -> MaxOptions {
        MaxOptions {
            confidence: self.options.confidence,
            tail: if self.cell.has_modes() || self.temporal.hang.0 > 0.0 {
                Tail::Refuse
            } else {
                Tail::Pareto { share: 0.02 }
            },
            ..MaxOptions::default()
        }
    }

    /// Time without the replicas' own noise, as what they share varies; empty where nothing does but
    /// a factor on the whole step.
    fn shared(&self) -> Result<Shared, PlannedError> {
        let t = &self.temporal;
        if !t.shares_more(self.replicas) {
            return Ok(Shared { step_sd: t.step_sd, around_s: Vec::new(), quiet_s: 0.0 });
        }
        let samples = self.samples.clamp(1 << 13, 1 << 16);
        let around_s = self.run(1, Persistent::Even, (false, true), samples)?;
        // Not the noise-free step: what uneven experts cost on average is in both parts.
        let quiet = self.run(1, Persistent::Even, (false, false), 1)?;
        let quiet_s = quiet.first().copied().unwrap_or(self.noise_free_s);
        Ok(Shared { step_sd: t.step_sd, around_s, quiet_s })
    }

    /// The law over clusters: one replica on a cluster of its own in every sample, to the power of N.
    fn over_clusters(&self, shared: &Shared) -> Result<(Composed, String), PlannedError> {
        let persistent =
            if self.cell.is_constant() { Persistent::Even } else { Persistent::Drawn(&self.cell) };
        let n = self.replicas;
        if self.options.brute_force {
            let times = self.sorted(n, persistent, self.samples.min(1 << 14))?;
            let law = order_max(&[Replicas::new(&times, 1)], &self.max_options())?;
            return Ok((shared.apply(law, &self.max_options())?, self.all_simulated()));
        }
        let (law, method) = self.slowest_of_any(persistent)?;
        Ok((shared.apply(law, &self.max_options())?, method))
    }

    /// The slowest of N exchangeable replicas: plain samples, or tilted ones where those reach further.
    fn slowest_of_any(
        &self,
        persistent: Persistent<'_>,
    ) -> Result<(Composed, String), PlannedError> {
        let n = self.replicas;
        let tilts = n > 1 && !self.cell.is_constant() && !self.cell.has_modes();
        // Without ten replicas beyond the median there is no law at all, unless a tilt finds them.
        if !tilts && self.samples < needed(n) / 2 {
            return Err(self.too_few());
        }
        let times = self.sorted(1, persistent, self.samples)?;
        let plain = order_max(&[Replicas::new(&times, u64::from(n))], &self.max_options());
        let method = match n {
            1 => "one replica: plain Monte Carlo".to_owned(),
            n => format!("order statistics: {n} exchangeable replicas wait at the end of the step"),
        };
        if tilts && !plain.as_ref().is_ok_and(|law| !wide(law)) {
            match self.tilted(&times) {
                Ok(law) if plain.as_ref().map_or(true, |p| width(&law) < width(p)) => {
                    let how = "slow cells drawn more often and weighted (importance sampling), in \
                               agreement with plain samples";
                    return Ok((law, format!("{method}; {how}")));
                }
                // Plain samples answer where the tilt does not pay, or misses a cause of the tail.
                Ok(_)
                | Err(PlannedError::Compose(
                    ComposeError::Disagreement { .. } | ComposeError::NoData { .. },
                )) => {}
                Err(error) => return Err(error),
            }
        }
        Ok((self.told(plain)?, method))
    }

    /// A law, or that there are too few samples for one.
    fn told(&self, law: Result<Composed, ComposeError>) -> Result<Composed, PlannedError> {
        law.map_err(|error| match error {
            ComposeError::NoData { .. } => self.too_few(),
            error => error.into(),
        })
    }

    fn too_few(&self) -> PlannedError {
        let (samples, replicas) = (self.samples, self.replicas);
        PlannedError::Samples { samples, replicas, needed: needed(replicas) }
    }

    /// The law over clusters by importance sampling of the cells' persistent factors.
    fn tilted(&self, plain: &[f64]) -> Result<Composed, PlannedError> {
        let stages = usize::from(self.step.planned.graph.stages());
        let tilt = Tilt::stages(stages, &[1.5, 3.0], 0.2)?;
        let how = Lowering {
            replicas: 1,
            persistent: Persistent::Tilted(&self.cell, &tilt),
            temporal: &self.temporal,
            shared: false,
            own: true,
            probes: Probes::default(),
        };
        let tape = lower(&self.step, &how)?.compile()?;
        let run = RunOptions {
            seed: self.options.seed,
            samples: self.samples,
            threads: self.options.threads,
            ..RunOptions::default()
        };
        let out = tape.run(&run)?;
        let column = |name: &str| -> Vec<f64> {
            out.get(name)
                .map_or_else(Vec::new, |o| o.row(0).iter().map(|&x| f64::from(x)).collect())
        };
        let scores: Vec<Vec<f64>> = (0..stages).map(|s| column(&format!("{TILTED}@{s}"))).collect();
        let weights = tilt.weights(&scores)?;
        let count = u64::from(self.replicas);
        // A Pareto tail is fitted to plain samples only.
        let options = MaxOptions { tail: Tail::Refuse, ..self.max_options() };
        Ok(importance(&column("step"), &weights, plain, count, &options)?)
    }

    fn all_simulated(&self) -> String {
        format!("brute force: all {} replicas simulated, as asked", self.replicas)
    }

    /// The law on one cluster: its slowest replicas together, the rest by order statistics.
    fn on_cluster(
        &self,
        cells: &Cells,
        shared: &Shared,
        samples: usize,
    ) -> Result<Composed, PlannedError> {
        let n = cells.order.len();
        let together = if self.options.brute_force { n } else { TOGETHER.min(n) };
        let (slow, rest) = cells.order.split_at(together);
        let joint = match self.options.samples {
            0 => (samples / together.max(1)).clamp(1 << 11, 1 << 14),
            wanted => wanted,
        };
        let slow_s = self.sorted(together as u32, Persistent::Given(&cells.of(slow)), joint)?;
        let mut strata = vec![Replicas::new(&slow_s, 1)];
        let rest_s;
        if !rest.is_empty() {
            let factors = cells.of(rest);
            let rows = rest.len() as u32;
            rest_s = self.sorted(1, Persistent::Picked(&factors, rows), samples)?;
            strata.push(Replicas::new(&rest_s, u64::from(rows)));
        }
        let law = self.told(order_max(&strata, &self.max_options()))?;
        shared.apply(law, &self.max_options())
    }

    fn on_clusters(&self, shared: &Shared) -> Result<(JobDistribution, ClusterLaw), PlannedError> {
        let count = u64::from(self.options.clusters);
        let draw = |i| Cells::draw(&self.step, &self.cell, self.replicas, self.options.seed, i);
        let mut all = (0..count).into_par_iter().map(draw).collect::<Result<Vec<_>, _>>()?;
        all.sort_by(|a, b| a.slowest_s().total_cmp(&b.slowest_s()));
        let at = |p: f64| &all[((count as f64 - 1.0) * p).round() as usize];
        let places = [at(0.05), at(0.5), at(0.95)];
        let laws = places
            .iter()
            .enumerate()
            .map(|(i, cells)| {
                let samples = if i == 1 { self.samples } else { (self.samples / 8).max(1 << 12) };
                self.on_cluster(cells, shared, samples)
            })
            .collect::<Result<Vec<_>, _>>()?;
        let n = self.replicas as usize;
        let method = if self.options.brute_force || n <= TOGETHER {
            format!("the cluster's {n} replicas simulated together")
        } else {
            format!(
                "slowest {TOGETHER} replicas of the cluster simulated together, the other {} by order \
                 statistics",
                n - TOGETHER
            )
        };
        let steps = self.report("steps on the middle one of the clusters drawn", &laws[1], method);
        let side = |law: &Composed, p: f64| law.quantile(p).ok().map(|a| a.value);
        let range_s = self
            .options
            .quantiles
            .iter()
            .map(|&p| [side(&laws[0], p), side(&laws[2], p)])
            .collect();
        let clusters = ClusterLaw {
            clusters: self.options.clusters,
            noise_free_s: places.map(Cells::slowest_s),
            range_s,
        };
        Ok((steps, clusters))
    }

    fn report(&self, over: &str, law: &Composed, method: String) -> JobDistribution {
        distribution(over, law, method, self.noise_free_s, self.options)
    }
}

/// Samples of a replica of which some ten lie beyond the median of the slowest of n, and some more.
fn needed(n: u32) -> usize {
    20 * n as usize
}

/// Width of the interval of the p95 of a law; infinite where the samples do not bound it.
fn width(law: &Composed) -> f64 {
    match law.quantile(0.95) {
        Ok(a) if !a.extrapolated => match (a.lower, a.upper) {
            (Some(lower), Some(upper)) => upper - lower,
            _ => f64::INFINITY,
        },
        _ => f64::INFINITY,
    }
}

/// Whether a law's p95 is known to no better than a tenth of its spread.
fn wide(law: &Composed) -> bool {
    width(law) > 0.1 * law.sd()
}
