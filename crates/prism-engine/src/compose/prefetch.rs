//! FSDP with gathers ahead of the layers: lags carry over.
//!
//! With depth k the gather of layer l + k starts when every GPU has started layer l:
//!
//! ```text
//! A(l+1) = max(A(l), S(l+1−k)) + g(l+1)        end of the gather, S(l) = A(l) + maxₙ Y(n,l)
//! Y(n,l+1) = max(Y(n,l) + m(l)·fₙ·x − (A(l+1) − A(l)), 0)      lag of GPU n's start behind A
//! T = A(L) + maxₙ (Y(n,L) + m(L)·fₙ·x) + tail
//! ```
//!
//! With k = 1 this is `PyTorch`'s limit of one gather ahead. A lag is not reset at a layer, so that noise
//! averages over layers and no product form exists: the slowest GPUs are simulated and doubled until the
//! quantiles stand still ([`slowest`]). A GPU's random numbers belong to its rank of slowness, so all
//! GPUs simulated is brute force, of which fewer are a lower bound sample by sample.

use prism_stats::{Distribution, Law, QuantileTable};

use super::choose::Method;
use super::error::{ComposeError, Result};
use super::fleet::{PruneOptions, TapeFleet, slowest};
use super::law::Composed;
use crate::sample::{Key, Program, RunOptions, Scope, Tape, Value};

/// One layer of a pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PrefetchLayer {
    /// Compute time on a GPU of factor 1, seconds.
    pub mean: f64,
    /// Gather of its parameters before it can start, seconds.
    pub gather: f64,
    /// Which of the step's laws its noise follows.
    pub law: usize,
}

/// A step: layers in the order in which they run.
#[derive(Clone, Debug, PartialEq)]
pub struct PrefetchStep {
    /// Forward layers, then backward ones, last first.
    pub layers: Vec<PrefetchLayer>,
    /// Laws of the factor that is drawn per GPU and layer.
    pub laws: Vec<Law>,
    /// Gathers ahead, at least 1.
    pub depth: u32,
    /// What follows the slowest GPU's last layer: the last reduce-scatter, the optimizer; seconds.
    pub tail: f64,
}

impl PrefetchStep {
    /// A step of forward layers and their backward layers in reverse, each of which gathers again.
    /// `backward[i]` belongs to `forward[i]`; what is not resharded has no gather there.
    pub fn forward_backward(
        forward: &[PrefetchLayer],
        backward: &[PrefetchLayer],
        laws: Vec<Law>,
        tail: f64,
    ) -> Self {
        let layers = forward.iter().chain(backward.iter().rev()).copied().collect();
        Self { layers, laws, depth: 1, tail }
    }

    fn check(&self) -> Result<()> {
        ComposeError::check(!self.layers.is_empty(), "number of layers", 0.0, "positive")?;
        ComposeError::check(self.depth > 0, "prefetch depth", 0.0, "at least 1")?;
        let time = |v: f64| v >= 0.0 && v.is_finite();
        ComposeError::check(time(self.tail), "tail", self.tail, "finite and at least 0")?;
        for layer in &self.layers {
            let (mean, gather, law) = (layer.mean, layer.gather, layer.law as f64);
            ComposeError::check(time(mean), "mean of a layer", mean, "finite and at least 0")?;
            ComposeError::check(
                time(gather),
                "gather of a layer",
                gather,
                "finite and at least 0",
            )?;
            ComposeError::check(layer.law < self.laws.len(), "law of a layer", law, "listed")?;
        }
        Ok(())
    }

    /// The program of GPUs with the given factors, slowest first.
    fn program(&self, factors: &[f64], tables: &[QuantileTable]) -> Program {
        let mut p = Program::new(factors.len() as u32);
        let tables: Vec<_> = tables.iter().map(|t| p.table(t.clone())).collect();
        let factor = p.replica_constant(factors.iter().map(|&f| f as f32).collect());
        let zero = p.constant(0.0);
        let mut gathered = p.constant(self.layers[0].gather as f32);
        let mut lag = zero;
        // When all GPUs have started layer l.
        let mut started: Vec<Value> = Vec::with_capacity(self.layers.len());
        for (l, layer) in self.layers.iter().enumerate() {
            let slowest_start = p.max_over_replicas(lag);
            started.push(p.add(gathered, slowest_start));
            let key = Key::new("prefetch layer").with(l as u64);
            let noise = p.draw(tables[layer.law], key, Scope::PerReplica);
            let mean = p.constant(layer.mean as f32);
            let scale = p.mul(mean, factor);
            let work = p.mul(noise, scale);
            let Some(next) = self.layers.get(l + 1) else {
                let end = p.add(lag, work);
                let slowest_end = p.max_over_replicas(end);
                let end = p.add(gathered, slowest_end);
                let tail = p.constant(self.tail as f32);
                let step = p.add(end, tail);
                p.output("step", step);
                break;
            };
            let free = (l + 1).checked_sub(self.depth as usize).map(|i| started[i]);
            let issued = free.map_or(gathered, |s| p.max(gathered, s));
            let gather = p.constant(next.gather as f32);
            let then = p.add(issued, gather);
            let passed = p.sub(then, gathered);
            let behind = p.sub(lag, passed);
            let end = p.add(behind, work);
            lag = p.max(end, zero);
            gathered = then;
        }
        p
    }
}

/// How the walk is simulated.
#[derive(Clone, Debug, PartialEq)]
pub struct PrefetchOptions {
    /// Steps simulated.
    pub samples: usize,
    /// Seed of all draws.
    pub seed: u64,
    /// Threads; 0 for all.
    pub threads: usize,
    /// How many GPUs, and when enough are.
    pub prune: PruneOptions,
}

impl Default for PrefetchOptions {
    /// 4,096 steps; from 256 GPUs on, until p50, p95 and p99 move by less than 5·10⁻⁵.
    fn default() -> Self {
        let prune = PruneOptions {
            start: 256,
            tolerance: 5e-5,
            sampling_error: false,
            ..PruneOptions::default()
        };
        Self { samples: 4096, seed: 0, threads: 0, prune }
    }
}

/// The law of a step on the fleet with these persistent factors.
///
/// # Errors
/// [`ComposeError::NotStable`] at the limit of GPUs; [`ComposeError::Input`] for a bad step or factor;
/// [`ComposeError::Table`] for a law without finite quantiles.
pub fn prefetch_fsdp(
    factors: &[f64],
    step: &PrefetchStep,
    options: &PrefetchOptions,
) -> Result<Composed> {
    step.check()?;
    ComposeError::check(!factors.is_empty(), "number of GPUs", 0.0, "positive")?;
    if let Some(&f) = factors.iter().find(|f| !(f.is_finite() && **f > 0.0)) {
        return Err(ComposeError::Input {
            what: "a factor",
            value: f,
            rule: "finite and positive",
        });
    }
    let tables = step
        .laws
        .iter()
        .map(|law| QuantileTable::from_quantiles(|p| law.quantile(p), |q| law.quantile_upper(q)))
        .collect::<std::result::Result<Vec<_>, _>>()?;
    let run = RunOptions {
        seed: options.seed,
        samples: options.samples,
        threads: options.threads,
        ..RunOptions::default()
    };
    let build = |members: &[usize]| -> std::result::Result<Tape, _> {
        let chosen: Vec<f64> = members.iter().map(|&i| factors[i]).collect();
        step.program(&chosen, &tables).compile()
    };
    let fleet = TapeFleet::new(factors.to_vec(), "step", run, build);
    let mut law = slowest(&fleet, &options.prune)?;
    law.diagnostics_mut().method = Method::PrefetchWalk;
    Ok(law)
}
