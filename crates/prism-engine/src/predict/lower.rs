//! A graph and its duration model become a program of the Monte Carlo kernel.
//!
//! Random numbers are keyed by what they are for: `("microbatch", step, m)` per replica, `("residual",
//! step, kind, stage, chunk, m)` per replica, `("transfer", step, kind, stage, seq)` per replica,
//! `("step-row", step)` for the observed step that step-level values are taken from.

use prism_graph::{OpId, StepGraph};
use prism_model::{DurationModel, ImpliedDependency, StepVector, TransferModel};
use prism_stats::Law;

use super::PredictError;
use super::options::{Draws, LowerOptions};
use super::sources::{Work, assign_work, entity, member_mean, tabulate};
use super::walk::{Durations, walk};
use crate::sample::{Index, Key, Offset, PoolId, Program, Scope, TableId, Value};

/// Lowers a graph with its duration model.
///
/// # Errors
/// [`PredictError`] if the model does not fit the graph, or a law cannot be tabulated.
pub fn lower(
    graph: &StepGraph,
    model: &DurationModel,
    options: &LowerOptions,
) -> Result<Program, PredictError> {
    let mut lowering = Lowering::new(graph, model, *options)?;
    walk(graph, &mut lowering, options)?;
    Ok(lowering.program)
}

struct Lowering<'a> {
    graph: &'a StepGraph,
    model: &'a DurationModel,
    options: LowerOptions,
    program: Program,
    work: Vec<Work>,
    /// Index into `model.launch_delay`, by operation.
    delay: Vec<Option<usize>>,
    /// Pools of `exp(step vector)`, by signature.
    step_pools: Vec<PoolId>,
    /// Pools of `exp(spread · microbatch vector)` and where each replica's rows begin; by signature.
    microbatch_pools: Vec<(PoolId, Offset)>,
    transfer_pools: Vec<PoolId>,
    work_pools: Vec<Option<PoolId>>,
    delay_pools: Vec<Option<PoolId>>,
    lag_pools: Vec<PoolId>,
    congestion_pool: Option<PoolId>,
    tables: Tables,
    now: Now,
}

/// Laws as tables.
#[derive(Default)]
struct Tables {
    step: Vec<Option<TableId>>,
    step_worker: Option<TableId>,
    microbatch: Vec<Option<TableId>>,
    residual: Vec<Option<TableId>>,
    /// By transfer model and member; a constant where nothing varies.
    transfer: Vec<Vec<(Option<TableId>, f32)>>,
    worker: Option<TableId>,
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
    /// Microbatch factor, by signature and position (parametric).
    durations: Vec<Option<Value>>,
}

impl<'a> Lowering<'a> {
    fn new(
        graph: &'a StepGraph,
        model: &'a DurationModel,
        options: LowerOptions,
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
            program: Program::new(model.replicas),
            work,
            delay,
            step_pools: Vec::new(),
            microbatch_pools: Vec::new(),
            transfer_pools: Vec::new(),
            work_pools: Vec::new(),
            delay_pools: Vec::new(),
            lag_pools: Vec::new(),
            congestion_pool: None,
            tables: Tables::default(),
            now: Now::default(),
        };
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

    fn add_pools(&mut self) {
        let compute = &self.model.compute;
        let (n, steps, replicas) = (compute.signatures.len(), self.steps(), self.replicas());
        if self.options.draws == Draws::Empirical {
            for c in 0..n {
                if !compute.step_vectors_log.is_empty() {
                    let lane =
                        &compute.step_vectors_log[c * replicas * steps..][..replicas * steps];
                    let pool = lane.iter().map(|v| v.exp()).collect();
                    self.step_pools.push(self.program.pool(pool));
                }
                if self.microbatch_rows() > 0 {
                    self.add_microbatch_pool(c);
                }
            }
        }
        for transfer in &self.model.transfers {
            self.transfer_pools.push(self.program.pool(transfer.rows_s.clone()));
        }
        if !self.model.congestion.is_empty() {
            self.congestion_pool = Some(self.program.pool(self.model.congestion.clone()));
        }
        self.work_pools = self.vector_pools(&self.model.step_work);
        if self.options.launch_delays {
            self.delay_pools = self.vector_pools(&self.model.launch_delay);
            self.lag_pools =
                self.model.implied.iter().map(|d| self.program.pool(d.lag_s.clone())).collect();
        }
    }

    /// One pool a signature: the rows under every distinct spread, one after the other; each replica
    /// reads from where its own spread's begin.
    fn add_microbatch_pool(&mut self, c: usize) {
        let compute = &self.model.compute;
        let (n, rows) = (compute.signatures.len(), self.microbatch_rows());
        let mut spreads: Vec<f64> = Vec::new();
        let mut offsets = Vec::new();
        for r in 0..self.replicas() {
            let spread = self.spread(c, r);
            let at = spreads.iter().position(|s| *s == spread).unwrap_or(spreads.len());
            if at == spreads.len() {
                spreads.push(spread);
            }
            offsets.push(at as u32 * rows);
        }
        let vectors = || compute.microbatch_vectors_log.chunks(n);
        let pool = spreads
            .iter()
            .flat_map(|s| vectors().map(move |row| (f64::from(row[c]) * s).exp() as f32))
            .collect();
        let offset =
            if spreads.len() == 1 { Offset::Fixed(0) } else { Offset::PerReplica(offsets) };
        let pool = self.program.pool(pool);
        self.microbatch_pools.push((pool, offset));
    }

    /// Factor on the effects inside a step of a replica, rounded to 5 %.
    fn spread(&self, c: usize, r: usize) -> f64 {
        let spread = self.model.compute.worker_spread.get(c * self.replicas() + r);
        (spread.copied().unwrap_or(1.0) * 20.0).round() / 20.0
    }

    fn vector_pools(&mut self, vectors: &[StepVector]) -> Vec<Option<PoolId>> {
        let replicas = self.replicas();
        vectors
            .iter()
            .map(|v| (v.values_s.len() > replicas).then(|| self.program.pool(v.values_s.clone())))
            .collect()
    }

    fn add_tables(&mut self) -> Result<(), PredictError> {
        let compute = &self.model.compute;
        for s in &compute.signatures {
            let power = |law: &Option<prism_model::LawChoice>, load: f64| {
                law.as_ref().map(|l| tabulate(&l.law, load)).transpose()
            };
            let (step, microbatch, residual) = (
                power(&compute.step_law, s.step_load)?,
                power(&compute.microbatch_law, s.microbatch_load)?,
                power(&s.residual_law, 1.0)?,
            );
            self.tables.step.push(step.map(|t| self.program.table(t)));
            self.tables.microbatch.push(microbatch.map(|t| self.program.table(t)));
            self.tables.residual.push(residual.map(|t| self.program.table(t)));
        }
        if let Some(law) = &compute.step_worker_law {
            self.tables.step_worker = Some(self.table(&law.law, 1.0)?);
        }
        for transfer in &self.model.transfers {
            let mut members = Vec::new();
            for (k, law) in transfer.laws.iter().enumerate() {
                let table = match law {
                    Some(choice) => Some(self.table(&choice.law, 1.0)?),
                    None => None,
                };
                members.push((table, member_mean(transfer, k)));
            }
            self.tables.transfer.push(members);
        }
        Ok(())
    }

    fn table(&mut self, law: &Law, power: f64) -> Result<TableId, PredictError> {
        Ok(self.program.table(tabulate(law, power)?))
    }

    fn microbatch_rows(&self) -> u32 {
        let n = self.model.compute.signatures.len().max(1);
        (self.model.compute.microbatch_vectors_log.len() / n) as u32
    }

    /// `exp(base + worker + step effects)` of a signature, per replica.
    fn scale(&mut self, c: usize, row: Index) -> Value {
        let (replicas, steps) = (self.replicas(), self.steps());
        let compute = &self.model.compute;
        let base = compute.signatures[c].base_log_s;
        let redraw = self.tables.worker.is_some();
        let constants = (0..replicas)
            .map(|r| {
                let worker = compute.worker_log.get(c * replicas + r).filter(|_| !redraw);
                (base + worker.copied().unwrap_or(0.0)).exp() as f32
            })
            .collect();
        let stage = u64::from(compute.signatures[c].signature.stage);
        let mut value = self.program.replica_constant(constants);
        if let Some(table) = self.tables.worker {
            // One cluster is drawn per sample: the key has no step.
            let key = Key::new("worker").with(stage);
            let factor = self.program.draw(table, key, Scope::PerReplica);
            value = self.program.mul(value, factor);
        }
        let step = self.now.step;
        match self.options.draws {
            Draws::Empirical => {
                if let Some(&pool) = self.step_pools.get(c) {
                    let offset =
                        Offset::PerReplica((0..replicas).map(|r| (r * steps) as u32).collect());
                    let factor = self.program.gather(pool, row, 1, offset);
                    value = self.program.mul(value, factor);
                }
            }
            Draws::Parametric => {
                if let Some(Some(table)) = self.tables.step.get(c).copied() {
                    let factor =
                        self.program.draw(table, Key::new("step").with(step), Scope::Shared);
                    value = self.program.mul(value, factor);
                }
                if let Some(table) = self.tables.step_worker {
                    let key = Key::new("step-worker").with(step).with(stage);
                    let factor = self.program.draw(table, key, Scope::PerReplica);
                    value = self.program.mul(value, factor);
                }
            }
        }
        value
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

    /// Position, microbatch and residual factor of one operation.
    fn compute_factor(&mut self, c: usize, m: usize) -> Option<Value> {
        let compute = &self.model.compute;
        let signature = compute.signatures[c].signature;
        let residual_key =
            entity(Key::new("residual").with(self.now.step), signature).with(m as u64);
        let microbatches = self.model.microbatches as usize;
        let position = compute.position_log.get(c * microbatches + m).map_or(1.0, |p| p.exp());
        let factor = match self.options.draws {
            Draws::Empirical => {
                let factor = self.microbatch_gather(c, m, residual_key);
                factor.map(|f| self.scaled(f, position))
            }
            Draws::Parametric => {
                let mut factor = None;
                if let Some(Some(table)) = self.tables.microbatch.get(c).copied() {
                    let key = Key::new("microbatch").with(self.now.step).with(m as u64);
                    factor = Some(self.program.draw(table, key, Scope::PerReplica));
                }
                if let Some(Some(table)) = self.tables.residual.get(c).copied() {
                    let draw = self.program.draw(table, residual_key, Scope::PerReplica);
                    factor = Some(match factor {
                        Some(other) => self.program.mul(other, draw),
                        None => draw,
                    });
                }
                factor.map(|f| self.spread_out(c, f, position))
            }
        };
        factor.or_else(|| (position != 1.0).then(|| self.program.constant(position)))
    }

    /// `position·(1 + spread·(factor − 1))`: a replica's own spread, to first order in the (small) log
    /// effect. Written so that the kernel draws, scales and adds in one instruction.
    fn spread_out(&mut self, c: usize, factor: Value, position: f32) -> Value {
        let spreads: Vec<f32> = (0..self.replicas()).map(|r| self.spread(c, r) as f32).collect();
        let factor = self.scaled(factor, position);
        if spreads.iter().all(|s| *s == 1.0) {
            return factor;
        }
        let rest = spreads.iter().map(|s| position * (1.0 - s)).collect();
        let rest = self.program.replica_constant(rest);
        let spread = self.program.replica_constant(spreads);
        self.program.mul_add(factor, spread, rest)
    }

    fn scaled(&mut self, value: Value, factor: f32) -> Value {
        if factor == 1.0 {
            return value;
        }
        let factor = self.program.constant(factor);
        self.program.mul(value, factor)
    }

    fn microbatch_gather(&mut self, c: usize, m: usize, residual_key: Key) -> Option<Value> {
        let rows = self.microbatch_rows();
        if rows == 0 {
            return None;
        }
        let index = match self.now.microbatch_row.get(m) {
            Some(&index) => index,
            None => self.program.index(rows, residual_key, Scope::PerReplica),
        };
        let (pool, offset) = self.microbatch_pools[c].clone();
        Some(self.program.gather(pool, index, 1, offset))
    }

    fn transfer(&mut self, model: usize, instance: usize, member: usize) -> Value {
        let transfer = &self.model.transfers[model];
        let width = transfer.members.len();
        let first = &self.graph.ops()[transfer.ops[instance * width] as usize];
        let key = entity(Key::new("transfer").with(self.now.step), transfer.members[0])
            .with(u64::from(first.seq));
        let apart = transfer.by_instance || transfer.by_replica;
        match self.options.draws {
            Draws::Parametric if !apart => {
                let members = &self.tables.transfer[model];
                match members.get(member).copied() {
                    Some((Some(table), _)) => self.program.draw(table, key, Scope::PerReplica),
                    Some((None, constant)) => self.program.constant(constant),
                    None => self.program.constant(member_mean(transfer, member)),
                }
            }
            _ => {
                let replicas = self.replicas();
                let axes = (
                    if transfer.by_instance { transfer.ops.len() / width } else { 1 },
                    if transfer.by_replica { replicas } else { 1 },
                );
                let rows = transfer.rows_s.len() / width / (axes.0 * axes.1);
                let program = &mut self.program;
                let row = *self.now.transfer_row[model][instance]
                    .get_or_insert_with(|| program.index(rows as u32, key, Scope::PerReplica));
                let own = if transfer.by_instance { instance } else { 0 };
                let at = |r: usize| ((own * axes.1 + r) * rows * width + member) as u32;
                let offset = if transfer.by_replica {
                    Offset::PerReplica((0..replicas).map(at).collect())
                } else {
                    Offset::Fixed(at(0))
                };
                self.program.gather(self.transfer_pools[model], row, width as u32, offset)
            }
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
