//! A graph and its duration model become a program of the Monte Carlo kernel.
//!
//! Random numbers are keyed by what they are for: `("microbatch", step, m)` per replica, `("residual",
//! step, kind, stage, chunk, m)` per replica, `("transfer", step, kind, stage, seq)` per replica,
//! `("step-row", step)` for the observed step that step-level values are taken from.

use prism_graph::{OpId, StepGraph};
use prism_model::{DurationModel, ImpliedDependency, OpKind, Signature, StepVector, TransferModel};
use prism_stats::{Distribution, Law};

use super::PredictError;
use super::walk::{Durations, walk};
use crate::sample::{Index, Key, Offset, PoolId, Program, QuantileTable, Scope, TableId, Value};

/// How durations are drawn.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Draws {
    /// Whole observed vectors.
    #[default]
    Empirical,
    /// Fitted laws for compute and point-to-point; step-level values stay observed vectors.
    Parametric,
}

/// What a program computes besides step times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Probes {
    /// Total compute of each stage, per replica: outputs `compute@STAGE`, seconds.
    pub stage_compute: bool,
    /// Waiting of each step-level collective, per replica: outputs `wait:KIND[SEQ]@STAGE`, seconds.
    pub waits: bool,
    /// When each replica's last microbatch compute ends: output `compute-finish`, seconds.
    pub compute_finish: bool,
}

/// How to lower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LowerOptions {
    /// How durations are drawn.
    pub draws: Draws,
    /// Whether launch delays are there.
    pub launch_delays: bool,
    /// Further outputs.
    pub probes: Probes,
    /// Consecutive steps; each stage starts a step when it has ended the one before. Step `k` is
    /// output `step` for k = 0, else `step+k`.
    pub steps: u32,
    /// Draw every replica's worker effect afresh in every sample: the distribution over clusters
    /// one might be given, instead of over steps on the given one.
    pub redraw_workers: bool,
}

impl Default for LowerOptions {
    fn default() -> Self {
        LowerOptions {
            draws: Draws::Empirical,
            launch_delays: true,
            probes: Probes::default(),
            steps: 1,
            redraw_workers: false,
        }
    }
}

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

/// Where an operation's work comes from.
#[derive(Clone, Copy)]
enum Work {
    Compute { c: usize, m: usize },
    Transfer { model: usize, instance: usize, member: usize },
    Step(usize),
    None,
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
    /// Pools of `exp(spread · microbatch vector)`, with the replicas that use each; by signature.
    microbatch_pools: Vec<Vec<(PoolId, f64)>>,
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
                    self.add_microbatch_pools(c);
                }
            }
            for transfer in &self.model.transfers {
                self.transfer_pools.push(self.program.pool(transfer.rows_s.clone()));
            }
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

    /// One pool a distinct spread, rounded to 5 %.
    fn add_microbatch_pools(&mut self, c: usize) {
        let compute = &self.model.compute;
        let n = compute.signatures.len();
        let mut pools: Vec<(PoolId, f64)> = Vec::new();
        for r in 0..self.replicas() {
            let spread = self.spread(c, r);
            if pools.iter().all(|p| (p.1 - spread).abs() > 1e-9) {
                let rows = compute.microbatch_vectors_log.chunks(n);
                let pool = rows.map(|row| (f64::from(row[c]) * spread).exp() as f32).collect();
                pools.push((self.program.pool(pool), spread));
            }
        }
        self.microbatch_pools.push(pools);
    }

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
        match (pool, self.now.row) {
            (Some(pool), Some(row)) => {
                let offset = self.row_offsets();
                self.program.gather(pool, row, 1, offset)
            }
            _ => {
                let first = vector.values_s.first().copied().unwrap_or(0.0);
                if vector.values_s.iter().all(|v| *v == first) {
                    self.program.constant(first)
                } else {
                    self.program.replica_constant(vector.values_s.clone())
                }
            }
        }
    }

    /// Position, microbatch and residual factor of one operation.
    fn compute_factor(&mut self, c: usize, m: usize) -> Result<Option<Value>, PredictError> {
        let compute = &self.model.compute;
        let signature = compute.signatures[c].signature;
        let residual_key =
            entity(Key::new("residual").with(self.now.step), &signature).with(m as u64);
        let mut factor = match self.options.draws {
            Draws::Empirical => self.microbatch_gather(c, m, residual_key),
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
                factor.map(|f| self.spread_out(c, f))
            }
        };
        let microbatches = self.model.microbatches as usize;
        if let Some(position) = compute.position_log.get(c * microbatches + m) {
            let constant = self.program.constant(position.exp());
            factor = Some(match factor {
                Some(f) => self.program.mul(f, constant),
                None => constant,
            });
        }
        Ok(factor)
    }

    /// `1 + spread·(factor − 1)`: a replica's own spread, to first order in the (small) log effect.
    fn spread_out(&mut self, c: usize, factor: Value) -> Value {
        let spreads: Vec<f32> = (0..self.replicas()).map(|r| self.spread(c, r) as f32).collect();
        if spreads.iter().all(|s| *s == 1.0) {
            return factor;
        }
        let rest = self.program.replica_constant(spreads.iter().map(|s| 1.0 - s).collect());
        let spread = self.program.replica_constant(spreads);
        self.program.mul_add(factor, spread, rest)
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
        let pools = self.microbatch_pools[c].clone();
        if let [(pool, _)] = pools[..] {
            return Some(self.program.gather(pool, index, 1, Offset::Fixed(0)));
        }
        // Replicas of different spread gather from different pools: one mask per spread.
        let mut out: Option<Value> = None;
        for (pool, spread) in pools {
            let value = self.program.gather(pool, index, 1, Offset::Fixed(0));
            let mask: Vec<f32> = (0..self.replicas())
                .map(|r| if (self.spread(c, r) - spread).abs() < 1e-9 { 1.0 } else { 0.0 })
                .collect();
            let mask = self.program.replica_constant(mask);
            out = Some(match out {
                None => value,
                Some(other) => self.program.select(mask, 0.5, value, other),
            });
        }
        out
    }

    fn transfer(&mut self, model: usize, instance: usize, member: usize) -> Value {
        let transfer = &self.model.transfers[model];
        let width = transfer.members.len();
        let first = &self.graph.ops()[transfer.ops[instance * width] as usize];
        let key = entity(Key::new("transfer").with(self.now.step), &transfer.members[0])
            .with(u64::from(first.seq));
        match self.options.draws {
            Draws::Empirical => {
                let replicas = self.replicas();
                let axes = (
                    if transfer.by_instance { transfer.ops.len() / width } else { 1 },
                    if transfer.by_replica { replicas } else { 1 },
                );
                let rows = transfer.rows_s.len() / width / (axes.0 * axes.1);
                let row = match self.now.transfer_row[model][instance] {
                    Some(row) => row,
                    None => {
                        let row = self.program.index(rows as u32, key, Scope::PerReplica);
                        self.now.transfer_row[model][instance] = Some(row);
                        row
                    }
                };
                let own = if transfer.by_instance { instance } else { 0 };
                let at = |r: usize| ((own * axes.1 + r) * rows * width + member) as u32;
                let offset = if transfer.by_replica {
                    Offset::PerReplica((0..replicas).map(at).collect())
                } else {
                    Offset::Fixed(at(0))
                };
                self.program.gather(self.transfer_pools[model], row, width as u32, offset)
            }
            Draws::Parametric => {
                let members = &self.tables.transfer[model];
                match members.get(member).copied() {
                    Some((Some(table), _)) => self.program.draw(table, key, Scope::PerReplica),
                    Some((None, constant)) => self.program.constant(constant),
                    None => self.program.constant(member_mean(transfer, member)),
                }
            }
        }
    }
}

impl Durations for Lowering<'_> {
    fn program(&mut self) -> &mut Program {
        &mut self.program
    }

    /// Its observed row, effects of each signature, microbatch rows.
    fn begin_step(&mut self, step: u32) -> Result<(), PredictError> {
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
        Ok(())
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

    fn end(&mut self, op: OpId, start: Value) -> Result<Value, PredictError> {
        match self.work[op.0 as usize] {
            Work::None => Ok(start),
            Work::Step(i) => {
                let work = self.vector(&self.model.step_work[i], self.work_pools[i]);
                Ok(self.program.add(start, work))
            }
            Work::Transfer { model, instance, member } => {
                let work = self.transfer(model, instance, member);
                Ok(match self.now.congestion {
                    Some(factor) => self.program.mul_add(work, factor, start),
                    None => self.program.add(start, work),
                })
            }
            Work::Compute { c, m } => {
                let scale = self.now.scale[c];
                let Some(factor) = self.compute_factor(c, m)? else {
                    self.now.durations[op.0 as usize] = Some(scale);
                    return Ok(self.program.add(start, scale));
                };
                if self.options.probes.stage_compute {
                    let duration = self.program.mul(scale, factor);
                    self.now.durations[op.0 as usize] = Some(duration);
                    return Ok(self.program.add(start, duration));
                }
                Ok(self.program.mul_add(factor, scale, start))
            }
        }
    }

    fn duration(&self, op: OpId) -> Option<Value> {
        self.now.durations[op.0 as usize]
    }
}
/// The key of a signature's entity: names, never positions in a list.
pub(crate) fn entity(key: Key, signature: &Signature) -> Key {
    key.with_text(signature.kind.as_str())
        .with(u64::from(signature.stage))
        .with(i64::from(signature.chunk) as u64)
}

fn member_mean(transfer: &TransferModel, member: usize) -> f32 {
    let values = || transfer.rows_s.iter().skip(member).step_by(transfer.members.len().max(1));
    let n = values().count().max(1);
    (values().map(|&v| f64::from(v)).sum::<f64>() / n as f64) as f32
}

/// Table of `X^power` for a positive X; of X itself for power 1.
fn tabulate(law: &Law, power: f64) -> Result<QuantileTable, PredictError> {
    let map = |x: f64| if power == 1.0 { x } else { x.max(0.0).powf(power) };
    let table =
        QuantileTable::from_quantiles(|p| map(law.quantile(p)), |q| map(law.quantile_upper(q)))?;
    Ok(table)
}

/// Where each operation's work comes from; every recorded operation must have one place.
fn assign_work(graph: &StepGraph, model: &DurationModel) -> Result<Vec<Work>, PredictError> {
    let mut work = vec![Work::None; graph.ops().len()];
    let mut set = |op: u32, value: Work| -> Result<(), PredictError> {
        *work.get_mut(op as usize).ok_or(PredictError::UnknownOp { op })? = value;
        Ok(())
    };
    for (c, signature) in model.compute.signatures.iter().enumerate() {
        for (m, &op) in signature.ops.iter().enumerate() {
            set(op, Work::Compute { c, m })?;
        }
    }
    for (t, transfer) in model.transfers.iter().enumerate() {
        let width = transfer.members.len().max(1);
        for (i, &op) in transfer.ops.iter().enumerate() {
            set(op, Work::Transfer { model: t, instance: i / width, member: i % width })?;
        }
    }
    for (i, vector) in model.step_work.iter().enumerate() {
        set(vector.op, Work::Step(i))?;
    }
    for (id, op) in graph.iter() {
        if op.kind != OpKind::Barrier && matches!(work[id.0 as usize], Work::None) {
            return Err(PredictError::NoWork { op: op.clone() });
        }
    }
    Ok(work)
}
