//! The law of the worker effect, from the workers that were observed.
//!
//! Workers of all stages are one population, after each stage's own level is taken away. Those far
//! from the others are outliers: they are part of the law, as they are; how often is what was seen,
//! weighed against how rare they usually are, since few workers tell little of a rate.
//! The rest is a smoothed bootstrap: an observed worker's effect, the noise of its estimate taken
//! away, with a normal kernel so that many new workers reach beyond the few observed ones; the
//! variance stays that of the effect.

use prism_model::{DurationModel, OpKind};
use prism_stats::htest::normal_quantile;
use prism_stats::stream;
use rand::RngExt;

/// A worker is an outlier beyond this many s.d. of a stage's usual spread,
const OUTLIER_SDS: f64 = 5.0;
/// and at least this far from its stage's level, in log time.
const OUTLIER_LEAST: f64 = 0.05;

/// Share of workers that are outliers where nothing is known: 0.5 % of machines are about 10 % slow
/// (arXiv 2402.15627),
const PRIOR_SHARE: f64 = 0.005;
/// and how many observed workers that is worth.
const PRIOR_WORKERS: f64 = 50.0;

/// An observed worker: its replica and its effect by (kind, chunk).
#[derive(Clone, Debug)]
struct Worker {
    replica: usize,
    effects: Vec<f64>,
}

/// What a new worker is like.
#[derive(Clone, Debug)]
pub(super) struct WorkerLaw {
    /// Level of each recorded signature without outliers, log seconds.
    pub(super) centre_log: Vec<f64>,
    kinds: Vec<(OpKind, i16)>,
    usual: Vec<Worker>,
    outliers: Vec<Worker>,
    /// On usual effects.
    scale: f64,
    /// S.d. of the kernel by kind.
    kernel: Vec<f64>,
    /// S.d. of usual workers, log time.
    pub(super) usual_sd_log: f64,
    /// Whether workers differ at all.
    pub(super) present: bool,
}

/// A drawn worker.
#[derive(Clone, Debug)]
pub(super) struct Drawn {
    effects: Vec<f64>,
    /// The replica of the outlier that it is like.
    pub(super) outlier: Option<usize>,
}

impl WorkerLaw {
    pub(super) fn new(model: &DurationModel) -> WorkerLaw {
        let compute = &model.compute;
        let replicas = model.replicas as usize;
        let mut kinds: Vec<(OpKind, i16)> =
            compute.signatures.iter().map(|s| (s.signature.kind, s.signature.chunk)).collect();
        kinds.sort_unstable();
        kinds.dedup();
        let lanes: Vec<Vec<f64>> = (0..compute.signatures.len())
            .map(|c| {
                let own = compute.worker_log.get(c * replicas..(c + 1) * replicas);
                let base = compute.signatures[c].base_log_s;
                own.unwrap_or(&[]).iter().map(|w| w + base).collect()
            })
            .collect();
        let present = !compute.worker_log.is_empty() && replicas > 1;
        if !present {
            return WorkerLaw {
                centre_log: compute.signatures.iter().map(|s| s.base_log_s).collect(),
                kinds,
                usual: Vec::new(),
                outliers: Vec::new(),
                scale: 0.0,
                kernel: Vec::new(),
                usual_sd_log: 0.0,
                present,
            };
        }
        let far = outlying(model, &lanes);
        let centre_log: Vec<f64> = lanes
            .iter()
            .zip(&far)
            .map(|(lane, far)| {
                let usual = || lane.iter().zip(far).filter(|(_, f)| !**f).map(|(v, _)| *v);
                usual().sum::<f64>() / usual().count().max(1) as f64
            })
            .collect();
        let (mut usual, mut outliers) = (Vec::new(), Vec::new());
        let mut stages: Vec<u16> = compute.signatures.iter().map(|s| s.signature.stage).collect();
        stages.sort_unstable();
        stages.dedup();
        for &stage in &stages {
            for r in 0..replicas {
                let mut effects = vec![0.0; kinds.len()];
                let mut is_far = false;
                for (c, s) in compute.signatures.iter().enumerate() {
                    let key = (s.signature.kind, s.signature.chunk);
                    if s.signature.stage == stage
                        && let Ok(k) = kinds.binary_search(&key)
                    {
                        effects[k] = lanes[c][r] - centre_log[c];
                        is_far |= far[c][r];
                    }
                }
                let worker = Worker { replica: r, effects };
                if is_far { outliers.push(worker) } else { usual.push(worker) }
            }
        }
        let mut law = WorkerLaw {
            centre_log,
            kinds,
            usual,
            outliers,
            scale: 0.0,
            kernel: Vec::new(),
            usual_sd_log: 0.0,
            present,
        };
        law.fit(noise(model), stages.len());
        law
    }

    /// Scale and kernel, from the variance of usual workers less the noise of their estimates.
    fn fit(&mut self, noise: f64, centres: usize) {
        let n = self.usual.len();
        let freedom = n.saturating_sub(centres);
        if freedom == 0 {
            return;
        }
        let square = |k: usize| self.usual.iter().map(|w| w.effects[k].powi(2)).sum::<f64>();
        let raw: Vec<f64> = (0..self.kinds.len()).map(square).collect();
        let total = raw.iter().sum::<f64>() / raw.len().max(1) as f64;
        let variance = (total / freedom as f64 - noise).max(0.0);
        self.usual_sd_log = variance.sqrt();
        if total <= 0.0 || variance <= 0.0 {
            return;
        }
        // Silverman's rule; the donors' part shrinks so that both together have the variance.
        let width = (1.06 * (freedom as f64).powf(-0.2)).min(1.0);
        self.scale = (variance / (total / n as f64) * (1.0 - width * width)).sqrt();
        self.kernel = raw.iter().map(|r| width * (variance * r / total).sqrt()).collect();
    }

    /// Observed workers that are outliers.
    pub(super) fn outliers(&self) -> usize {
        self.outliers.len()
    }

    /// Probability that a new worker is an outlier; 0 where none was seen.
    pub(super) fn outlier_share(&self) -> f64 {
        if self.outliers.is_empty() {
            return 0.0;
        }
        (self.outliers.len() as f64 + PRIOR_SHARE * PRIOR_WORKERS)
            / (self.workers() as f64 + PRIOR_WORKERS)
    }

    /// Observed workers.
    pub(super) fn workers(&self) -> usize {
        self.usual.len() + self.outliers.len()
    }

    /// Replicas of which no worker is an outlier.
    pub(super) fn clean(&self, replicas: usize) -> Vec<usize> {
        let has = |r: &usize| self.outliers.iter().any(|w| w.replica == *r);
        (0..replicas).filter(|r| !has(r)).collect()
    }

    /// The worker of a stage of a new replica: a function of the seed and of both.
    pub(super) fn draw(&self, seed: u64, replica: usize, stage: u16) -> Drawn {
        let none = Drawn { effects: vec![0.0; self.kinds.len()], outlier: None };
        if !self.present {
            return none;
        }
        let entity = [replica as u64, u64::from(stage)];
        let mut rng = stream(seed, "resize-worker", &entity);
        let (chance, which, donor, u) = (
            rng.random_range(0.0..1.0),
            rng.random_range(0..self.outliers.len().max(1)),
            rng.random_range(0..self.usual.len().max(1)),
            rng.random_range(f64::EPSILON..1.0),
        );
        if let Some(outlier) = self.outliers.get(which).filter(|_| chance < self.outlier_share()) {
            return Drawn { effects: outlier.effects.clone(), outlier: Some(outlier.replica) };
        }
        let Some(donor) = self.usual.get(donor) else { return none };
        let z = normal_quantile(u);
        let kernel = self.kernel.iter().copied().chain(std::iter::repeat(0.0));
        let effects = donor.effects.iter().zip(kernel);
        Drawn { effects: effects.map(|(e, k)| self.scale * e + k * z).collect(), outlier: None }
    }

    /// A drawn worker's effect on one kind of compute, from the level of its signature, log time.
    pub(super) fn effect(&self, drawn: &Drawn, kind: OpKind, chunk: i16) -> f64 {
        self.kinds.binary_search(&(kind, chunk)).map_or(0.0, |k| drawn.effects[k])
    }
}

/// Which workers are far from their stage's others, `[c][r]`; a worker is where any of its
/// signatures is. Of two, the slower is the one that is off.
fn outlying(model: &DurationModel, lanes: &[Vec<f64>]) -> Vec<Vec<bool>> {
    let replicas = model.replicas as usize;
    let mut spreads: Vec<f64> = lanes.iter().map(|lane| sd(lane)).collect();
    spreads.sort_by(f64::total_cmp);
    let usual = spreads.get(spreads.len().saturating_sub(1) / 2).copied().unwrap_or(0.0);
    let limit = (OUTLIER_SDS * usual).max(OUTLIER_LEAST);
    let far: Vec<Vec<bool>> = lanes
        .iter()
        .map(|lane| {
            let mut sorted = lane.clone();
            sorted.sort_by(f64::total_cmp);
            let middle = sorted.get((sorted.len().max(1) - 1) / 2).copied().unwrap_or(0.0);
            lane.iter().map(|v| (v - middle).abs() > limit).collect()
        })
        .collect();
    let stage = |c: usize| model.compute.signatures[c].signature.stage;
    let worker = |c: usize, r: usize| {
        far.iter().enumerate().any(|(other, lane)| stage(other) == stage(c) && lane[r])
    };
    (0..lanes.len()).map(|c| (0..replicas).map(|r| worker(c, r)).collect()).collect()
}

/// Variance that steps and microbatches leave in a worker's estimated effect.
fn noise(model: &DurationModel) -> f64 {
    let compute = &model.compute;
    let replicas = model.replicas as usize;
    let lanes = compute.worker_log.chunks(replicas.max(1));
    let n = lanes.len().max(1) as f64;
    let raw: f64 = lanes.map(|lane| sd(lane).powi(2)).sum::<f64>() / n;
    (raw - compute.worker_sd_log.powi(2)).max(0.0)
}

/// Sample s.d.
fn sd(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n.max(1.0);
    (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0).max(1.0)).sqrt()
}
