//! A graph and its duration model become a program of the Monte Carlo kernel.
//!
//! Random numbers are keyed by what they are for: `("microbatch", step, m)` per replica, `("residual",
//! step, kind, stage, chunk, m)` per replica, `("transfer", step, kind, stage, seq)` per replica,
//! `("step-row", step)` for the observed step that step-level values are taken from.

mod adjusted;
mod factors;
mod pools;

use prism_graph::{OpId, StepGraph};
use prism_model::{DurationModel, ImpliedDependency, StepVector, TransferModel};
use prism_stats::Law;

use super::PredictError;
use super::adjust::Adjustments;
use super::options::{Draws, LowerOptions};
use super::sources::{Work, assign_work};
use super::walk::{Durations, walk};
use crate::sample::{Index, Key, Offset, PoolId, Program, QuantileTable, Scope, TableId, Value};
use pools::{Rows, Tables};

/// Lowers a graph with its duration model.
///
/// # Errors
/// [`PredictError`] if the model does not fit the graph, or a law cannot be tabulated.
pub fn lower(
    graph: &StepGraph,
    model: &DurationModel,
    options: &LowerOptions,
) -> Result<Program, PredictError> {
    lower_adjusted(graph, model, options, &Adjustments::default())
}

/// Lowers a graph with its duration model, changed by adjustments.
///
/// All draws are those of [`lower`]: run under one seed, both give the same steps with and without the
/// changes.
///
/// # Errors
/// As [`lower`], and [`PredictError::NothingToRepack`].
pub fn lower_adjusted(
    graph: &StepGraph,
    model: &DurationModel,
    options: &LowerOptions,
    adjust: &Adjustments,
) -> Result<Program, PredictError> {
    let mut lowering = Lowering::new(graph, model, *options, adjust)?;
    walk(graph, &mut lowering, options)?;
    Ok(lowering.program)
}

struct Lowering<'a> {
    graph: &'a StepGraph,
    model: &'a DurationModel,
    options: LowerOptions,
    adjust: &'a Adjustments,
    program: Program,
    work: Vec<Work>,
    /// Index into `model.launch_delay`, by operation.
    delay: Vec<Option<usize>>,
    /// Pools of `exp(step vector)`, by signature.
    step_pools: Vec<PoolId>,
    /// Pools of `exp(spread · microbatch vector)`, by signature; of its residual part alone where
    /// sequences are repacked.
    microbatch_pools: Vec<Rows>,
    /// Pools of `exp(spread · microbatch effect)`, by signature, where sequences are repacked.
    microbatch_means: Vec<Rows>,
    /// Law of a congestion regime's draws.
    uniform: Option<TableId>,
    transfer_pools: Vec<PoolId>,
    work_pools: Vec<Option<PoolId>>,
    delay_pools: Vec<Option<PoolId>>,
    lag_pools: Vec<PoolId>,
    congestion_pool: Option<PoolId>,
    tables: Tables,
    now: Now,
}

/// Values of the step that is being lowered.
#[derive(Default)]
struct Now {
    step: u64,
    row: Option<Index>,
    congestion: Option<Value>,
    /// Base, worker and step effects together, by signature.
    scale: Vec<Value>,
    /// Row of microbatch vectors, by position.
    microbatch_row: Vec<Index>,
    /// Row of a transfer instance, by (model, instance).
    transfer_row: Vec<Vec<Option<Index>>>,
    /// Mean microbatch factor of the step, by signature, where sequences are repacked.
    repacked: Vec<Option<Value>>,
    /// Factor of each congestion regime.
    bursts: Vec<Value>,
    /// Duration of each operation that is kept apart.
    durations: Vec<Option<Value>>,
}

impl<'a> Lowering<'a> {
    fn new(
        graph: &'a StepGraph,
        model: &'a DurationModel,
        options: LowerOptions,
        adjust: &'a Adjustments,
    ) -> Result<Self, PredictError> {
        let work = assign_work(graph, model)?;
        let mut delay = vec![None; graph.ops().len()];
        for (i, v) in model.launch_delay.iter().enumerate() {
            *delay.get_mut(v.op as usize).ok_or(PredictError::UnknownOp { op: v.op })? = Some(i);
        }
        let mut lowering = Lowering {
            graph,
            model,
            options,
            adjust,
            program: Program::new(model.replicas),
            work,
            delay,
            step_pools: Vec::new(),
            microbatch_pools: Vec::new(),
            microbatch_means: Vec::new(),
            uniform: None,
            transfer_pools: Vec::new(),
            work_pools: Vec::new(),
            delay_pools: Vec::new(),
            lag_pools: Vec::new(),
            congestion_pool: None,
            tables: Tables::default(),
            now: Now::default(),
        };
        if adjust.repack.is_some() && !lowering.can_repack() {
            return Err(PredictError::NothingToRepack);
        }
        if !adjust.bursts.is_empty() {
            lowering.uniform = Some(lowering.program.table(QuantileTable::uniform()));
        }
        lowering.add_pools();
        if options.draws == Draws::Parametric {
            lowering.add_tables()?;
        }
        if options.redraw_workers && model.compute.worker_sd_log > 0.0 {
            let sd = model.compute.worker_sd_log;
            lowering.tables.worker = Some(lowering.table(&Law::log_normal(0.0, sd)?, 1.0)?);
        }
        Ok(lowering)
    }

    fn replicas(&self) -> usize {
        self.model.replicas as usize
    }

    fn steps(&self) -> usize {
        self.model.steps.len()
    }

    /// Whether microbatches have an effect of their own.
    fn can_repack(&self) -> bool {
        match self.options.draws {
            Draws::Empirical => self.model.compute.microbatch_shared && self.microbatch_rows() > 0,
            Draws::Parametric => self.model.compute.microbatch_law.is_some(),
        }
    }

    fn implied_of(&self, op: OpId) -> impl Iterator<Item = &ImpliedDependency> {
        self.model.implied.iter().filter(move |d| d.op == op.0)
    }

    fn row_offsets(&self) -> Offset {
        Offset::PerReplica((0..self.replicas()).map(|r| (r * self.steps()) as u32).collect())
    }

    fn vector(&mut self, vector: &StepVector, pool: Option<PoolId>) -> Value {
        if let (Some(pool), Some(row)) = (pool, self.now.row) {
            let offset = self.row_offsets();
            return self.program.gather(pool, row, 1, offset);
        }
        let first = vector.values_s.first().copied().unwrap_or(0.0);
        if vector.values_s.iter().all(|v| *v == first) {
            self.program.constant(first)
        } else {
            self.program.replica_constant(vector.values_s.clone())
        }
    }
}

impl Durations for Lowering<'_> {
    fn program(&mut self) -> &mut Program {
        &mut self.program
    }

    /// Its observed row, effects of each signature, microbatch rows.
    fn begin_step(&mut self, step: u32) {
        let key = |effect: &str| Key::new(effect).with(u64::from(step));
        let rows = self.steps() as u32;
        let row = self.program.index(rows, key("step-row"), Scope::Shared);
        self.now = Now { step: u64::from(step), row: Some(row), ..Now::default() };
        if let Some(pool) = self.congestion_pool {
            self.now.congestion = Some(self.program.gather(pool, row, 1, Offset::Fixed(0)));
        }
        for c in 0..self.model.compute.signatures.len() {
            let scale = self.scale(c, row);
            self.now.scale.push(scale);
        }
        let rows = self.microbatch_rows();
        let shared = self.model.compute.microbatch_shared && rows > 0;
        if self.options.draws == Draws::Empirical && shared {
            for m in 0..self.model.microbatches {
                let key = key("microbatch").with(u64::from(m));
                let index = self.program.index(rows, key, Scope::PerReplica);
                self.now.microbatch_row.push(index);
            }
        }
        let instances = |t: &TransferModel| t.ops.len() / t.members.len().max(1);
        self.now.transfer_row =
            self.model.transfers.iter().map(|t| vec![None; instances(t)]).collect();
        self.now.durations = vec![None; self.graph.ops().len()];
        self.now.repacked = vec![None; self.model.compute.signatures.len()];
        self.begin_bursts(step);
    }

    fn replaces(&self, op: OpId, on: OpId) -> bool {
        self.implied_of(op).any(|d| d.on == on.0)
    }

    fn ready(&mut self, op: OpId, latest: Value, ends: &[Option<Value>]) -> Value {
        let mut start = latest;
        if !self.options.launch_delays {
            return start;
        }
        if let Some(i) = self.delay[op.0 as usize] {
            let delay = self.vector(&self.model.launch_delay[i], self.delay_pools[i]);
            let delay = self.adjusted(self.adjust.delay.get(&op), delay);
            start = self.program.add(start, delay);
        }
        for (i, dependency) in self.model.implied.iter().enumerate().filter(|(_, d)| d.op == op.0) {
            let (Some(end), Some(row)) = (ends[dependency.on as usize], self.now.row) else {
                continue;
            };
            let offset = self.row_offsets();
            let lag = self.program.gather(self.lag_pools[i], row, 1, offset);
            let other = self.program.add(end, lag);
            start = self.program.max(start, other);
        }
        start
    }

    fn end(&mut self, op: OpId, start: Value) -> Value {
        if self.is_adjusted(op) {
            return self.adjusted_end(op, start);
        }
        match self.work[op.0 as usize] {
            Work::None => start,
            Work::Step(i) => {
                let work = self.vector(&self.model.step_work[i], self.work_pools[i]);
                self.program.add(start, work)
            }
            Work::Transfer { model, instance, member } => {
                let work = self.transfer(model, instance, member);
                match self.now.congestion {
                    Some(factor) => self.program.mul_add(work, factor, start),
                    None => self.program.add(start, work),
                }
            }
            Work::Compute { c, m } => {
                let scale = self.now.scale[c];
                let Some(factor) = self.compute_factor(c, m) else {
                    self.now.durations[op.0 as usize] = Some(scale);
                    return self.program.add(start, scale);
                };
                if self.options.probes.stage_compute {
                    let duration = self.program.mul(scale, factor);
                    self.now.durations[op.0 as usize] = Some(duration);
                    return self.program.add(start, duration);
                }
                self.program.mul_add(factor, scale, start)
            }
        }
    }

    fn duration(&self, op: OpId) -> Option<Value> {
        self.now.durations[op.0 as usize]
    }
}
