//! The law of a planned job's step time, on a cluster like those one is given and over such clusters.

use prism_graph::PlannedStep;
use prism_job::Job;
use prism_job::cost::{StepCosts, costs};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::PlannedError;
use super::fleet::Cells;
use super::laws::{CellLaw, Temporal};
use super::lower::{Lowering, Persistent, TILTED, lower};
use crate::compose::{
    ComposeError, Composed, MaxOptions, Replicas, Tail, Tilt, importance, order_max, scaled,
};
use crate::predict::{Histogram, Probes};
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

/// A quantile of step time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct JobQuantile {
    /// Its probability.
    pub p: f64,
    /// Seconds; none where the samples cannot answer.
    pub value_s: Option<f64>,
    /// Lower end of its interval; none where the samples do not bound it.
    pub lower_s: Option<f64>,
    /// Upper end.
    pub upper_s: Option<f64>,
    /// The quantile less the noise-free step, seconds.
    pub penalty_s: Option<f64>,
    /// Whether a tail fitted to the samples was followed beyond them.
    pub extrapolated: bool,
    /// Why there is no value.
    pub refused: Option<String>,
}

/// Probability that a step is slower than the noise-free step by more than some share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct JobSlowdown {
    /// Share: 0.05 is 5 %.
    pub above: f64,
    /// The probability.
    pub probability: f64,
    /// Lower end of its interval.
    pub lower: f64,
    /// Upper end.
    pub upper: f64,
}

/// A law of step time. Times are seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct JobDistribution {
    /// Over what.
    pub over: String,
    /// Mean.
    pub mean_s: f64,
    /// Standard deviation.
    pub sd_s: f64,
    /// Quantiles.
    pub quantiles: Vec<JobQuantile>,
    /// Probabilities of slow-down against the noise-free step.
    pub slowdowns: Vec<JobSlowdown>,
    /// 10,000 equally likely step times in bins.
    pub histogram: Histogram,
    /// How the replicas were combined, and why so.
    pub method: String,
    /// Samples of a replica behind it.
    pub samples: u64,
}

/// How clusters differ.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ClusterLaw {
    /// Clusters drawn.
    pub clusters: u32,
    /// Time of the slowest replica without noise in time, seconds: 5 %, 50 % and 95 % of the clusters.
    pub noise_free_s: [f64; 3],
    /// Step quantiles on the clusters at 5 % and 95 %, by the reported probabilities; none where
    /// refused.
    pub range_s: Vec<[Option<f64>; 2]>,
}

/// What is predicted of a planned job's step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct JobPrediction {
    /// Step time without any noise, every GPU alike, seconds.
    pub noise_free_s: f64,
    /// Data-parallel replicas.
    pub replicas: u32,
    /// Over steps, on the middle one of the clusters drawn.
    pub steps: JobDistribution,
    /// Over clusters one might be given, and steps on them.
    pub over_clusters: JobDistribution,
    /// How clusters differ.
    pub clusters: ClusterLaw,
    /// What the reader must know.
    pub warnings: Vec<String>,
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
            warnings.push("some quantiles follow a fitted tail beyond the samples".to_owned());
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
        let times = self.sorted(1, persistent, self.samples)?;
        // Without ten replicas beyond the median there is no law at all.
        if self.samples < needed(n) / 2 && self.cell.is_constant() {
            let (samples, needed) = (self.samples, needed(n));
            return Err(PlannedError::Samples { samples, replicas: n, needed });
        }
        let plain = order_max(&[Replicas::new(&times, u64::from(n))], &self.max_options());
        if self.cell.is_constant() || n == 1 {
            let method = if n == 1 {
                "one replica: plain Monte Carlo".to_owned()
            } else {
                format!("order statistics: {n} exchangeable replicas wait at the end of the step")
            };
            return Ok((shared.apply(plain?, &self.max_options())?, method));
        }
        let plain_method =
            format!("order statistics: {n} exchangeable replicas wait at the end of the step");
        let answers = plain.as_ref().is_ok_and(|law| self.cell.has_modes() || !wide(law));
        if answers {
            return Ok((shared.apply(plain?, &self.max_options())?, plain_method));
        }
        if self.cell.has_modes() {
            let (samples, needed) = (self.samples, needed(n));
            return match plain {
                Ok(_) | Err(ComposeError::NoData { .. }) => {
                    Err(PlannedError::Samples { samples, replicas: n, needed })
                }
                Err(error) => Err(error.into()),
            };
        }
        let (law, method) = match self.tilted(&times) {
            Ok(tilted) if plain.as_ref().map_or(true, |p| width(&tilted) < width(p)) => {
                let why = "slow cells drawn more often and weighted (importance sampling), in \
                           agreement with plain samples";
                (tilted, format!("{plain_method}; {why}"))
            }
            // Plain samples answer where the tilt does not pay, or misses a cause of the tail.
            Ok(_) if plain.is_ok() => (plain?, plain_method),
            Ok(_)
            | Err(PlannedError::Compose(
                ComposeError::Disagreement { .. } | ComposeError::NoData { .. },
            )) => match plain {
                Ok(plain) => (plain, plain_method),
                Err(ComposeError::NoData { .. }) => {
                    let (samples, needed) = (self.samples, needed(n));
                    return Err(PlannedError::Samples { samples, replicas: n, needed });
                }
                Err(error) => return Err(error.into()),
            },
            Err(error) => return Err(error),
        };
        Ok((shared.apply(law, &self.max_options())?, method))
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
        shared.apply(order_max(&strata, &self.max_options())?, &self.max_options())
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

/// What all replicas of a step share.
struct Shared {
    step_sd: f64,
    /// Replica without own noise, by sample, seconds.
    around_s: Vec<f64>,
    quiet_s: f64,
}

impl Shared {
    /// From the law at the shared effects' means to the law over them.
    ///
    /// A factor on the whole step scales the law. Where communication varies too, a step takes what it
    /// takes without own noise, plus the excess that own noise causes, scaled likewise: to first order
    /// the two do not depend on each other.
    fn apply(&self, law: Composed, options: &MaxOptions) -> Result<Composed, PlannedError> {
        if self.around_s.is_empty() {
            return if self.step_sd > 0.0 { Ok(scaled(&law, self.step_sd)?) } else { Ok(law) };
        }
        let n = self.around_s.len();
        // A step's excess is independent of what it shares: places of the excess are visited in an
        // order that has nothing to do with that of the samples.
        let stride = coprime(n);
        let times = |pick: &dyn Fn(f64) -> f64| {
            let mut times: Vec<f64> = self
                .around_s
                .iter()
                .enumerate()
                .map(|(i, around)| {
                    let u = ((i * stride % n) as f64 + 0.5) / n as f64;
                    around + (pick(u) - self.quiet_s) * around / self.quiet_s
                })
                .collect();
            times.sort_unstable_by(f64::total_cmp);
            times
        };
        let estimate = times(&|u| law.sample(u));
        let composed = order_max(&[Replicas::new(&estimate, 1)], options)?;
        Ok(composed.widened_like(&law)?)
    }
}

/// A stride that visits all of 0..n, about 0.618 n.
fn coprime(n: usize) -> usize {
    let gcd = |mut a: usize, mut b: usize| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let mut stride = ((n as f64 * 0.618_034) as usize).max(1);
    while gcd(stride, n) != 1 {
        stride += 1;
    }
    stride
}

/// What is reported of a law.
pub(super) fn distribution(
    over: &str,
    law: &Composed,
    method: String,
    noise_free_s: f64,
    options: &JobOptions,
) -> JobDistribution {
    let quantiles = options
        .quantiles
        .iter()
        .map(|&p| match law.quantile(p) {
            Ok(answer) => JobQuantile {
                p,
                value_s: Some(answer.value),
                lower_s: answer.lower,
                upper_s: answer.upper,
                penalty_s: Some(answer.value - noise_free_s),
                extrapolated: answer.extrapolated,
                refused: None,
            },
            Err(error) => refused(p, &error),
        })
        .collect();
    let slowdowns = options
        .slowdowns
        .iter()
        .map(|&above| {
            let at = noise_free_s * (1.0 + above);
            let (lower, upper) = law.tail_bounds(at);
            JobSlowdown { above, probability: law.sf(at), lower, upper }
        })
        .collect();
    JobDistribution {
        over: over.to_owned(),
        mean_s: law.mean(),
        sd_s: law.sd(),
        quantiles,
        slowdowns,
        histogram: histogram(law),
        method,
        samples: law.diagnostics().samples,
    }
}

fn refused(p: f64, error: &ComposeError) -> JobQuantile {
    JobQuantile {
        p,
        value_s: None,
        lower_s: None,
        upper_s: None,
        penalty_s: None,
        extrapolated: false,
        refused: Some(error.to_string()),
    }
}

/// 40 bins from the 0.1 % to the 99.9 % quantile.
fn histogram(law: &Composed) -> Histogram {
    const BINS: usize = 40;
    const ALL: f64 = 10_000.0;
    let (from_s, to_s) = (law.sample(0.001), law.sample(0.999));
    let width = (to_s - from_s) / BINS as f64;
    let mut counts = Vec::with_capacity(BINS);
    let mut before = 0.0;
    for i in 1..=BINS {
        let to = if i == BINS { 1.0 } else { law.cdf(from_s + width * i as f64) };
        counts.push(((to - before) * ALL).round().max(0.0) as usize);
        before = to;
    }
    Histogram { from_s, to_s, counts }
}
