//! A job whose workers are told apart from its cells.
//!
//! A calibrated model has an effect for every (replica, stage) cell and signature. How much of a
//! stage's time is its layers and how much its workers cannot be seen from one recording; the
//! convention here is that the *median worker* of each stage has factor 1. A worker's factor is the
//! time-weighted mean over the stage's signatures; what single signatures deviate from it stays with
//! the cell, so that the order as given is the model itself.

use prism_engine::predict::{LowerOptions, lower};
use prism_engine::sample::{RunOptions, Samples, Tape, Workspace};
use prism_graph::StepGraph;
use prism_model::{DurationModel, StepVector};
use prism_stats::robust::median;

use super::PlaceError;

/// Where workers' factors come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// The model's own worker effects.
    Model,
    /// Measured elsewhere; the model's own are removed.
    Measured,
}

/// A job at factor 1 of every worker.
#[derive(Clone, Debug)]
pub(super) struct Nominal<'a> {
    pub(super) graph: &'a StepGraph,
    pub(super) model: DurationModel,
    pub(super) lowering: LowerOptions,
    /// Log effect of each cell without its worker, `[c][r]`.
    pub(super) base_log: Vec<f64>,
}

impl<'a> Nominal<'a> {
    /// Tells workers from cells; with the workers' factors by cell (`replica x stages + stage`), all 1
    /// unless the model's own are asked for.
    ///
    /// # Errors
    /// [`PlaceError::Stats`] if an effect is not finite.
    pub(super) fn new(
        graph: &'a StepGraph,
        model: &DurationModel,
        origin: Origin,
        lowering: LowerOptions,
    ) -> Result<(Nominal<'a>, Vec<f64>), PlaceError> {
        let mut model = model.clone();
        let (replicas, stages) = (model.replicas as usize, usize::from(graph.stages()));
        let signatures = &model.compute.signatures;
        if model.compute.worker_log.is_empty() {
            model.compute.worker_log = vec![0.0; signatures.len() * replicas];
        }
        let mut base_log = vec![0.0; signatures.len() * replicas];
        let mut time = vec![0.0; replicas * stages];
        let mut typical = vec![0.0; stages];
        for (c, signature) in signatures.iter().enumerate() {
            let own = &model.compute.worker_log[c * replicas..][..replicas];
            let middle = median(own)?;
            base_log[c * replicas..][..replicas].fill(middle);
            let stage = usize::from(signature.signature.stage);
            let weight = (signature.base_log_s + middle).exp() * signature.ops.len() as f64;
            typical[stage] += weight;
            for (r, log) in own.iter().enumerate() {
                time[r * stages + stage] += weight * (log - middle).exp();
            }
        }
        let mut factors = vec![1.0; replicas * stages];
        if origin == Origin::Model {
            for (cell, factor) in factors.iter_mut().enumerate() {
                let of_stage = typical[cell % stages];
                if of_stage > 0.0 {
                    *factor = time[cell] / of_stage;
                }
            }
            for (c, signature) in signatures.iter().enumerate() {
                let stage = usize::from(signature.signature.stage);
                for r in 0..replicas {
                    base_log[c * replicas + r] = model.compute.worker_log[c * replicas + r]
                        - factors[r * stages + stage].ln();
                }
            }
        }
        let mut nominal = Nominal { graph, model, lowering, base_log };
        nominal.set(&vec![1.0; replicas * stages]);
        Ok((nominal, factors))
    }

    pub(super) fn replicas(&self) -> usize {
        self.model.replicas as usize
    }

    pub(super) fn stages(&self) -> usize {
        usize::from(self.graph.stages())
    }

    /// Gives every cell a worker of this factor.
    pub(super) fn set(&mut self, factors: &[f64]) {
        let (replicas, stages) = (self.replicas(), self.stages());
        let compute = &mut self.model.compute;
        for (c, signature) in compute.signatures.iter().enumerate() {
            let stage = usize::from(signature.signature.stage);
            for r in 0..replicas {
                let at = c * replicas + r;
                compute.worker_log[at] = self.base_log[at] + factors[r * stages + stage].ln();
            }
        }
    }

    /// Whether replicas have the same law when their workers do: no array of the model differs between
    /// them.
    pub(super) fn exchangeable(&self) -> bool {
        let replicas = self.replicas();
        let model = &self.model;
        let steps = model.steps.len();
        let columns =
            |values: &[f64]| values.chunks(replicas).all(|row| row.iter().all(|v| *v == row[0]));
        let lanes = |values: &[f32]| values.chunks(steps).all(|lane| *lane == values[..steps]);
        let vector = |v: &StepVector| {
            if v.values_s.len() > replicas {
                lanes(&v.values_s)
            } else {
                v.values_s.iter().all(|x| *x == v.values_s[0])
            }
        };
        let blocks = self.graph.groups().iter().all(|g| {
            !matches!(g.sync, prism_graph::ReplicaSync::Blocks(b) if b > 1 && b < model.replicas)
        });
        blocks
            && columns(&self.base_log)
            && columns(&model.compute.worker_spread)
            && model.compute.step_vectors_log.chunks(steps * replicas).all(lanes)
            && model.step_work.iter().chain(&model.launch_delay).all(vector)
            && model.implied.iter().all(|d| lanes(&d.lag_s))
            && !model.transfers.iter().any(|t| t.by_replica)
    }
}

/// Step times of a job under any workers, by the Monte Carlo kernel. The same sample has the same
/// random numbers whoever works where.
pub(super) struct Kernel<'a> {
    nominal: Nominal<'a>,
    tape: Tape,
    run: RunOptions,
    workspace: Workspace,
    samples: Samples,
}

impl<'a> Kernel<'a> {
    pub(super) fn new(nominal: &Nominal<'a>, run: RunOptions) -> Result<Kernel<'a>, PlaceError> {
        let tape = lower(nominal.graph, &nominal.model, &nominal.lowering)?.compile()?;
        let nominal = nominal.clone();
        Ok(Kernel { nominal, tape, run, workspace: Workspace::new(), samples: Samples::default() })
    }

    /// Step times, seconds, with these factors by cell.
    pub(super) fn step_s(&mut self, factors: &[f64]) -> Result<Vec<f64>, PlaceError> {
        self.nominal.set(factors);
        let program = lower(self.nominal.graph, &self.nominal.model, &self.nominal.lowering)?;
        if !self.tape.rebind(program.clone())? {
            self.tape = program.compile()?;
        }
        self.tape.run_into(&self.run, &mut self.workspace, &mut self.samples)?;
        let row = self.samples.get("step").map_or(&[][..], |o| o.row(0));
        Ok(row.iter().map(|&v| f64::from(v)).collect())
    }
}
