//! Fully sharded data parallelism: GPUs wait for each other at every layer.

use prism_job::cost::{ChunkCost, StepCosts, costs};
use prism_job::{Job, ScheduleName, ZeroStage};
use prism_stats::Law;
use prism_stats::counter::{Key, Stream};
use rayon::prelude::*;

use super::PlannedError;
use super::laws::{CellLaw, Temporal};
use super::predict::JobOptions;
use super::report::{ClusterLaw, JobDistribution, JobPrediction, distribution};
use crate::compose::{
    Composed, LayerClass, MaxOptions, PrefetchLayer, PrefetchOptions, PrefetchStep, PruneOptions,
    StrictOptions, over_regimes, prefetch_fsdp, scaled, strict_fsdp,
};

/// Whether a job's replicas wait for each other at layers rather than at the end of the step.
pub(super) fn is_layered(job: &Job) -> bool {
    job.plan.zero == ZeroStage::Parameters
        && job.plan.pipeline_parallel == 1
        && job.plan.data_parallel() > 1
}

/// Most layer passes of a step that are simulated one by one.
const MOST_LAYERS: usize = 20_000;

/// Costs by layer, in model order: embedding with the first, output layer with the last.
fn by_layer(job: &Job) -> StepCosts {
    let mut apart = job.clone();
    apart.plan.virtual_chunks = job.model.layers.max(1);
    apart.plan.chunk_layers = vec![1; job.model.layers as usize];
    apart.plan.schedule = ScheduleName::InterleavedOneFOneB;
    // The host's time is a chunk's, not a layer's.
    let chunks = f64::from(job.plan.chunks().max(1));
    apart.cluster.efficiency.microbatch_host_s *= chunks / f64::from(job.model.layers.max(1));
    costs(&apart)
}

struct Layered<'a> {
    job: &'a Job,
    options: &'a JobOptions,
    costs: StepCosts,
    cell: CellLaw,
    temporal: Temporal,
    law: Law,
    /// Cells that wait for each other.
    members: usize,
    /// Times that follow the last layer, seconds.
    tail_s: f64,
}

/// Predicts a fully sharded job.
pub(super) fn predict(job: &Job, options: &JobOptions) -> Result<JobPrediction, PlannedError> {
    Layered::new(job, options, &|_| {})?.predict()
}

/// Its step without noise at costs as `change` leaves them, seconds.
pub(super) fn noise_free_s(
    job: &Job,
    change: &dyn Fn(&mut StepCosts),
) -> Result<f64, PlannedError> {
    Layered::new(job, &JobOptions::default(), change)?.noise_free_s()
}

impl<'a> Layered<'a> {
    fn new(
        job: &'a Job,
        options: &'a JobOptions,
        change: &dyn Fn(&mut StepCosts),
    ) -> Result<Self, PlannedError> {
        let (mut costs, mut whole) = (by_layer(job), costs(job));
        change(&mut costs);
        change(&mut whole);
        let temporal = Temporal::of(job, &costs);
        // Operation and microbatch effects both last for a layer's pass here.
        let sd = temporal.residual_sd.hypot(temporal.step_worker_sd).max(1e-6);
        let law = Law::log_normal(temporal.residual_mean.ln() - 0.5 * sd * sd, sd)?;
        let tail_s = whole.optimizer_s.iter().copied().fold(0.0, f64::max)
            + whole.grad_norm_s
            + whole.step_s
            + costs.reduce_s.first().copied().unwrap_or(0.0);
        let members = job.plan.data_parallel() as usize;
        let cell = CellLaw::of(job, &costs);
        Ok(Layered { job, options, costs, cell, temporal, law, members, tail_s })
    }
}

impl Layered<'_> {
    fn prefetches(&self) -> bool {
        self.job.plan.fsdp.prefetch > 0
    }

    fn layers(&self) -> impl Iterator<Item = (&ChunkCost, f64, f64)> {
        let (gather, reduce) = (&self.costs.gather_s, &self.costs.reduce_s);
        self.costs.chunks.iter().zip(gather).zip(reduce).map(|((c, g), r)| (c, *g, *r))
    }

    fn regather(&self) -> f64 {
        f64::from(u8::from(self.job.plan.fsdp.reshard_after_forward))
    }

    fn predict(&self) -> Result<JobPrediction, PlannedError> {
        let quiet = self.noise_free_s()?;
        let count = u64::from(if self.cell.is_constant() { 1 } else { self.options.clusters });
        let mut fleets = (0..count)
            .into_par_iter()
            .map(|i| {
                let factors = self.factors(i)?;
                let most = factors.iter().copied().fold(0.0, f64::max);
                Ok((most, factors))
            })
            .collect::<Result<Vec<_>, PlannedError>>()?;
        fleets.sort_by(|a, b| a.0.total_cmp(&b.0));
        let wanted: Vec<usize> = if self.prefetches() {
            [0.05, 0.5, 0.95].map(|p| ((count as f64 - 1.0) * p).round() as usize).to_vec()
        } else {
            (0..count as usize).collect()
        };
        let mut laws =
            wanted.iter().map(|&i| self.on_fleet(&fleets[i].1)).collect::<Result<Vec<_>, _>>()?;
        if !self.prefetches() {
            laws.sort_by(|a, b| a.mean().total_cmp(&b.mean()));
        }
        let place = |p: f64| ((laws.len() as f64 - 1.0) * p).round() as usize;
        let (low, middle, high) = (place(0.05), place(0.5), place(0.95));
        let regimes: Vec<_> = laws.iter().map(|l| (1.0 / laws.len() as f64, l.clone())).collect();
        let all = if regimes.len() > 1 { over_regimes(&regimes)? } else { laws[0].clone() };
        let method = self.method();
        let report = |over: &str, law: &Composed| -> JobDistribution {
            distribution(over, law, method.clone(), quiet, self.options)
        };
        let side = |law: &Composed, p: f64| law.quantile(p).ok().map(|a| a.value);
        let range_s = self
            .options
            .quantiles
            .iter()
            .map(|&p| [side(&laws[low], p), side(&laws[high], p)])
            .collect();
        Ok(JobPrediction {
            noise_free_s: quiet,
            replicas: self.job.plan.data_parallel(),
            steps: report("steps on the middle one of the clusters drawn", &laws[middle]),
            over_clusters: report("clusters one might be given, and steps on them", &all),
            clusters: ClusterLaw {
                clusters: count as u32,
                noise_free_s: [low, middle, high].map(|i| laws[i].mean()),
                range_s,
            },
            warnings: self.warnings(),
        })
    }

    fn method(&self) -> String {
        if self.prefetches() {
            format!(
                "slowest GPUs of {} simulated layer by layer, doubled until the quantiles stand still: \
                 gathers run {} ahead",
                self.members, self.job.plan.fsdp.prefetch
            )
        } else {
            format!(
                "log-histogram and Fourier transform over {} members that wait at every layer",
                self.members
            )
        }
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.temporal.microbatch_sd > 0.0 {
            warnings.push(
                "the spread between microbatches is taken as independent between layers".to_owned(),
            );
        }
        if self.temporal.congestion_sd > 0.0 || self.temporal.burst.0 > 0.0 {
            warnings.push("congestion of gathers is not part of this law".to_owned());
        }
        warnings
    }

    /// Persistent factors of all cells of the `index`-th cluster.
    fn factors(&self, index: u64) -> Result<Vec<f64>, PlannedError> {
        if self.cell.is_constant() {
            return Ok(vec![1.0; self.members]);
        }
        let table = self.cell.table()?;
        let key = Key::new("cluster").with(index).with(0);
        let stream = Stream::new(self.options.seed, key);
        Ok((0..self.members)
            .map(|r| f64::from(table.value(stream.replica(r as u32).word(0))).max(1e-3))
            .collect())
    }

    fn on_fleet(&self, factors: &[f64]) -> Result<Composed, PlannedError> {
        let law = if self.prefetches() { self.prefetch(factors)? } else { self.strict(factors)? };
        Ok(if self.temporal.step_sd > 0.0 { scaled(&law, self.temporal.step_sd)? } else { law })
    }

    fn strict(&self, factors: &[f64]) -> Result<Composed, PlannedError> {
        let m = u64::from(self.job.microbatches().max(1));
        let mut classes: Vec<LayerClass> = Vec::new();
        for (chunk, gather, reduce) in self.layers() {
            let passes = [
                (chunk.forward.seconds(), gather),
                (chunk.backward_s(), self.regather() * gather + reduce),
            ];
            for (mean, comm) in passes {
                if let Some(class) = classes.iter_mut().find(|c| c.mean == mean && c.comm == comm) {
                    class.count += m;
                } else {
                    let temporal = self.law.clone();
                    classes.push(LayerClass { mean, count: m, comm, temporal });
                }
            }
        }
        let law = strict_fsdp(factors, &classes, &StrictOptions::default())?;
        Ok(law.affine(self.tail_s, 1.0)?)
    }

    fn step(&self, law: Law) -> PrefetchStep {
        let forward: Vec<PrefetchLayer> = self
            .layers()
            .map(|(c, gather, _)| PrefetchLayer { mean: c.forward.seconds(), gather, law: 0 })
            .collect();
        // Beside each backward layer run its gather and the reduction of the layer after it.
        let backward: Vec<PrefetchLayer> = self
            .layers()
            .map(|(c, gather, reduce)| PrefetchLayer {
                mean: c.backward_s(),
                gather: self.regather() * gather + reduce,
                law: 0,
            })
            .collect();
        let mut one = PrefetchStep::forward_backward(&forward, &backward, vec![law], self.tail_s);
        one.depth = self.job.plan.fsdp.prefetch.max(1);
        let m = self.job.microbatches().max(1) as usize;
        one.layers = std::iter::repeat_n(one.layers, m).flatten().collect();
        one
    }

    fn prefetch(&self, factors: &[f64]) -> Result<Composed, PlannedError> {
        let step = self.step(self.law.clone());
        if step.layers.len() > MOST_LAYERS {
            return Err(PlannedError::TooLarge {
                replicas: self.members as u32,
                ops: step.layers.len(),
            });
        }
        let options = PrefetchOptions {
            samples: match self.options.samples {
                0 => 2_048,
                n => n,
            },
            seed: self.options.seed,
            prune: PruneOptions {
                start: if self.options.brute_force { self.members } else { 64 },
                quantiles: vec![0.5, 0.95],
                max: MaxOptions { confidence: self.options.confidence, ..MaxOptions::default() },
                ..PruneOptions::default()
            },
            ..PrefetchOptions::default()
        };
        Ok(prefetch_fsdp(factors, &step, &options)?)
    }

    /// Every GPU alike and nothing random.
    fn noise_free_s(&self) -> Result<f64, PlannedError> {
        if self.prefetches() {
            let step = self.step(Law::constant(1.0)?);
            let (mut gathered, mut started) = (0.0_f64, Vec::<f64>::new());
            let mut free = 0.0_f64;
            for (l, layer) in step.layers.iter().enumerate() {
                // The gather of a layer starts when the one `depth` before it has started.
                let from = l.checked_sub(step.depth as usize).and_then(|i| started.get(i));
                gathered = gathered.max(from.copied().unwrap_or(0.0)) + layer.gather;
                let start = gathered.max(free);
                started.push(start);
                free = start + layer.mean;
            }
            return Ok(free + step.tail);
        }
        let m = f64::from(self.job.microbatches().max(1));
        let layers: f64 = self
            .layers()
            .map(|(c, gather, reduce)| {
                c.forward.seconds() + c.backward_s() + (1.0 + self.regather()) * gather + reduce
            })
            .sum();
        Ok(m * layers + self.tail_s)
    }
}
