//! A calibrated job at another number of replicas, stages or microbatches.
//!
//! Nothing is fitted anew: every part of the resized job takes what was observed of the part it is
//! like, and what had to be assumed for that is said ([`Extrapolation`]).
//!
//! * *Replicas.* Those observed are a sample of the replicas one might be given. They stay what they
//!   are (or are drawn anew, [`ResizeOptions::fresh_cluster`]); new ones draw their workers from the
//!   law of the worker effect, slow outliers included. A step's shared part stays shared, a
//!   replica's own part is independent, launch delays and other step-level values are those of an
//!   observed replica in the same step. Collectives over replicas follow the ring's bandwidth law.
//! * *Stages.* Stages between the ends are taken to be alike; what the ends do more stays with them,
//!   the rest is divided evenly. All workers are drawn anew.
//! * *Microbatches.* Warm-up and cool-down positions keep their effects, the middle is repeated.
//!
//! The graph of another number of stages or microbatches is built by the rules that give exactly the
//! recorded one; where there are none, it is refused.

mod error;
mod levels;
mod model;
mod notes;
mod pipeline;
mod range;
mod replicas;
mod shape;
mod split;
mod workers;

#[cfg(test)]
mod tests;

use prism_graph::StepGraph;
use prism_model::{DurationModel, Signature};
use serde::{Deserialize, Serialize};

pub use error::ResizeError;

use crate::calibrate::with_dependencies;
use replicas::Axis;
use shape::{Map, Shape};
use split::Split;
use workers::WorkerLaw;

/// The size that is asked about; `None` for the recorded one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// Data-parallel replicas.
    pub dp: Option<u32>,
    /// Pipeline stages.
    pub pp: Option<u16>,
    /// Microbatches per replica and step.
    pub microbatches: Option<u32>,
}

impl Target {
    /// Whether nothing is asked for.
    pub fn is_empty(&self) -> bool {
        *self == Target::default()
    }
}

/// How to resize.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResizeOptions {
    /// Seed of what is drawn once: workers and rows of new replicas.
    pub seed: u64,
    /// Observed replicas are drawn anew too.
    pub fresh_cluster: bool,
    /// Beyond the stated range warn instead of refusing.
    pub extrapolate: bool,
    /// Ranks of a collective over replicas, recorded and asked, where those are not the replicas: a
    /// further split of the data-parallel dimension, or some of a trace's replicas.
    pub ranks: Option<(u32, u32)>,
}

impl Default for ResizeOptions {
    fn default() -> Self {
        ResizeOptions { seed: 1, fresh_cluster: false, extrapolate: false, ranks: None }
    }
}

/// How much an assumption can hurt.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Severity {
    /// Follows from the model.
    Note,
    /// Assumed; cannot be checked on the recorded job.
    Assumption,
    /// Beyond what the recorded job tells.
    Warning,
}

/// One thing that was taken beyond what was recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Extrapolation {
    /// What.
    pub what: String,
    /// What was recorded.
    pub from: String,
    /// What is predicted.
    pub to: String,
    /// On what grounds.
    pub basis: String,
    /// How much it can hurt.
    pub severity: Severity,
}

/// A resized job.
#[derive(Clone, Debug, PartialEq)]
pub struct Resized {
    /// Its graph.
    pub graph: StepGraph,
    /// Its model. It has no observations of its own: to repeat it on other steps, repeat the
    /// recorded one and [`Resizer::apply`].
    pub model: DurationModel,
    /// What was extrapolated.
    pub notes: Vec<Extrapolation>,
    /// Recorded signatures that operations of the resized job are like.
    pub used: Vec<Signature>,
    /// The others.
    pub unused: Vec<Signature>,
}

/// Resizes a calibrated job.
///
/// # Errors
/// [`ResizeError`] if a size is out of range, or the recorded job does not tell what is asked.
pub fn resize(
    graph: &StepGraph,
    model: &DurationModel,
    target: &Target,
    options: &ResizeOptions,
) -> Result<Resized, ResizeError> {
    let resizer = Resizer::new(graph, model, target, options)?;
    let resized = resizer.apply(model, options.seed)?;
    let (used, unused) = resizer.signatures();
    Ok(Resized {
        notes: resizer.notes(model),
        graph: resizer.resized.clone(),
        model: resized,
        used,
        unused,
    })
}

/// What resizes models of one job: the recorded one, and its bootstrap repetitions.
#[derive(Clone, Debug)]
pub struct Resizer<'a> {
    graph: &'a StepGraph,
    options: ResizeOptions,
    /// (recorded, asked).
    replicas: (u32, u32),
    /// At another number of stages or microbatches.
    shape: Option<std::sync::Arc<Shape>>,
    map: Map,
    /// Implied dependencies that are kept.
    implied: usize,
    resized: StepGraph,
    /// What is out of the stated range, in words.
    beyond: Vec<Extrapolation>,
}

impl<'a> Resizer<'a> {
    /// Checks the target and builds the resized graph.
    ///
    /// # Errors
    /// As [`resize`].
    pub fn new(
        graph: &'a StepGraph,
        model: &DurationModel,
        target: &Target,
        options: &ResizeOptions,
    ) -> Result<Resizer<'a>, ResizeError> {
        let map = Map {
            stages: (graph.stages(), target.pp.unwrap_or(graph.stages())),
            microbatches: (model.microbatches, target.microbatches.unwrap_or(model.microbatches)),
        };
        let replicas = (model.replicas, target.dp.unwrap_or(model.replicas));
        let beyond = range::check(graph, &map, replicas, options.extrapolate)?;
        let same = map.stages.0 == map.stages.1 && map.microbatches.0 == map.microbatches.1;
        let (mut shape, mut implied) = (None, model.implied.len());
        let resized = if same {
            with_dependencies(graph, &[], replicas.1)?
        } else {
            let new = shape::reshape(graph, &model.implied, map.clone())?;
            let mut list = shape::implied(graph, &new, &model.implied).0;
            // Two implied dependencies may close a circle that neither closes alone.
            let resized = loop {
                match with_dependencies(&new.graph, &list, replicas.1) {
                    Err(error) if list.is_empty() => return Err(error.into()),
                    Err(_) => list.truncate(list.len() - 1),
                    Ok(graph) => break graph,
                }
            };
            implied = list.len();
            shape = Some(std::sync::Arc::new(new));
            resized
        };
        range::check_size(&resized)?;
        let options = *options;
        Ok(Resizer { graph, options, replicas, shape, map, implied, resized, beyond })
    }

    /// The resized graph.
    pub fn graph(&self) -> &StepGraph {
        &self.resized
    }

    /// The resized model of a model of the recorded job; `seed` draws new replicas.
    ///
    /// # Errors
    /// [`ResizeError`] if an operation is like none that was recorded.
    pub fn apply(&self, model: &DurationModel, seed: u64) -> Result<DurationModel, ResizeError> {
        let law = WorkerLaw::new(model);
        let stages_change = self.map.stages.0 != self.map.stages.1;
        let offset = |c: usize| law.centre_log[c] - model.compute.signatures[c].base_log_s;
        let mut reshaped = None;
        let mut offset_log: Vec<f64> = (0..model.compute.signatures.len()).map(offset).collect();
        if let Some(shape) = &self.shape {
            let split = if stages_change {
                Split::new(self.graph, model, &law.centre_log, &self.map)
            } else {
                Split::same()
            };
            let mut new = model::reshape(self.graph, model, shape, &split, seed)?;
            new.model.implied.truncate(self.implied);
            // Where stages change, the bases are levels of usual workers already.
            offset_log =
                new.like.iter().map(|&c| if stages_change { 0.0 } else { offset_log[c] }).collect();
            reshaped = Some(new.model);
        }
        let fresh = self.options.fresh_cluster || stages_change;
        let source = reshaped.as_ref().unwrap_or(model);
        if !fresh && self.replicas.0 == self.replicas.1 {
            return Ok(source.clone());
        }
        let axis = Axis {
            law: &law,
            offset_log: &offset_log,
            replicas: self.replicas.1,
            fresh,
            collective: self.collective_factor(),
            seed,
        };
        Ok(axis.apply(&self.resized, source))
    }

    /// The bandwidth part of a ring: (n − 1)/n of the bytes pass each rank.
    fn collective_factor(&self) -> f64 {
        let (from, to) = self.ranks();
        let part = |n: u32| (f64::from(n) - 1.0) / f64::from(n);
        let (from, to) = (part(from), part(to));
        if from > 0.0 { to / from } else { 1.0 }
    }

    /// Ranks of a collective over replicas, recorded and asked; at least 1.
    fn ranks(&self) -> (u32, u32) {
        let (from, to) = self.options.ranks.unwrap_or(self.replicas);
        (from.max(1), to.max(1))
    }

    /// Replicas, recorded and asked.
    pub fn replicas(&self) -> (u32, u32) {
        self.replicas
    }

    /// Stages, recorded and asked.
    pub fn stages(&self) -> (u32, u32) {
        (u32::from(self.map.stages.0), u32::from(self.map.stages.1))
    }

    /// Microbatches, recorded and asked.
    pub fn microbatches(&self) -> (u32, u32) {
        self.map.microbatches
    }

    /// Recorded signatures that are used, and those that are not.
    pub fn signatures(&self) -> (Vec<Signature>, Vec<Signature>) {
        let of = |id: prism_graph::OpId| self.graph.ops()[id.0 as usize].signature();
        let mut all: Vec<Signature> =
            self.graph.ops().iter().map(prism_graph::Op::signature).collect();
        all.sort_unstable();
        all.dedup();
        let Some(shape) = &self.shape else { return (all, Vec::new()) };
        let mut used: Vec<Signature> = shape.template.iter().map(|&id| of(id)).collect();
        used.sort_unstable();
        used.dedup();
        let unused = all.into_iter().filter(|s| used.binary_search(s).is_err()).collect();
        (used, unused)
    }
}
