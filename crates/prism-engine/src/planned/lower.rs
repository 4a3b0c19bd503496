//! A planned step becomes a program of the Monte Carlo kernel.
//!
//! Random numbers are keyed by what they are for, as in [`crate::predict`]: `("microbatch", m)`,
//! `("residual", kind, stage, chunk, m)`, `("transfer", kind, stage, chunk, m)`, `("step-worker",
//! stage)`, `("worker", stage)` per replica; `("step")`, `("congestion")`, `("burst")`, collectives over
//! replicas once for all.

use prism_graph::{GroupId, OpId, PlannedStep, ReplicaSync};
use prism_model::{KernelClass, OpKind};

use super::PlannedError;
use super::laws::{CellLaw, Temporal, factor_table, normal_table, residual_table, skewed_table};
use crate::compose::Tilt;
use crate::predict::{Durations, LowerOptions, Probes, entity, walk};
use crate::sample::{Index, Key, Offset, PoolId, Program, QuantileTable, Scope, TableId, Value};

/// Persistent speeds of the cells.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Persistent<'a> {
    /// All as they cost without noise.
    Even,
    /// Drawn afresh in every sample.
    Drawn(&'a CellLaw),
    /// Drawn afresh in every sample, more often where they are large; see [`Tilt`].
    Tilted(&'a CellLaw, &'a Tilt),
    /// Given, `[stage][replica]`.
    Given(&'a [f32]),
    /// Those of one of some replicas, drawn afresh in every sample: `[stage][row]`, rows.
    Picked(&'a [f32], u32),
}

/// Name of the tilted coordinates among a program's outputs.
pub(crate) const TILTED: &str = "cell";

/// How to lower.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lowering<'a> {
    pub replicas: u32,
    pub persistent: Persistent<'a>,
    pub temporal: &'a Temporal,
    /// Whether what all replicas share (step, congestion, collectives over replicas) is drawn;
    /// otherwise it stays at its mean.
    pub shared: bool,
    /// Whether what replicas do not share is drawn; otherwise it stays at its mean.
    pub own: bool,
    pub probes: Probes,
}

/// Lowers one step of the given replicas.
pub(crate) fn lower(step: &PlannedStep, how: &Lowering<'_>) -> Result<Program, PlannedError> {
    let mut lowered = Lowered::new(step, how)?;
    let options = LowerOptions { probes: how.probes, ..LowerOptions::default() };
    walk(&step.planned.graph, &mut lowered, &options)?;
    Ok(lowered.program)
}

struct Tables {
    worker: Option<TableId>,
    step: Option<TableId>,
    step_worker: Option<TableId>,
    microbatch: Option<TableId>,
    residual: Option<TableId>,
    /// Mean of the residual where it does not vary.
    residual_mean: f32,
    transfer: Option<TableId>,
    congestion: Option<TableId>,
    overhead: Option<TableId>,
    burst: Option<TableId>,
}

struct Lowered<'a> {
    step: &'a PlannedStep,
    how: Lowering<'a>,
    program: Program,
    tables: Tables,
    /// Persistent, step and step x worker factors of each stage.
    scale: Vec<Option<Value>>,
    /// `scale` times an operation's mean, by stage and mean.
    scaled: Vec<((u16, u32), Value)>,
    microbatch: Vec<Option<Value>>,
    congestion: Option<Value>,
    pool: Option<PoolId>,
    row: Option<Index>,
    /// Tilted factor of each stage.
    speeds: Vec<Value>,
    /// Transfer of each group.
    transfer: Vec<Option<Value>>,
}

impl<'a> Lowered<'a> {
    fn new(step: &'a PlannedStep, how: &Lowering<'a>) -> Result<Self, PlannedError> {
        let mut program = Program::new(how.replicas);
        let t = how.temporal;
        let mut table = |wanted: bool, table: Result<QuantileTable, PlannedError>| {
            wanted.then_some(table).transpose().map(|t| t.map(|t| program.table(t)))
        };
        let shared = how.shared;
        let own = how.own;
        let varies = own && (t.residual_sd > 0.0 || t.hang.0 > 0.0);
        let tables = Tables {
            worker: match how.persistent {
                Persistent::Drawn(law) => {
                    table(!law.is_constant(), law.table().map_err(PlannedError::from))?
                }
                _ => None,
            },
            step: table(shared && t.step_sd > 0.0, factor_table(t.step_sd))?,
            step_worker: table(own && t.step_worker_sd > 0.0, factor_table(t.step_worker_sd))?,
            microbatch: table(
                own && t.microbatch_sd > 0.0,
                skewed_table(t.microbatch_sd, t.microbatch_skew),
            )?,
            residual: table(varies, residual_table(t))?,
            residual_mean: t.residual_mean as f32,
            transfer: table(t.transfer_sd > 0.0, factor_table(t.transfer_sd))?,
            congestion: table(shared && t.congestion_sd > 0.0, factor_table(t.congestion_sd))?,
            overhead: table(shared && t.overhead_sd_s > 0.0, normal_table(t.overhead_sd_s))?,
            burst: table(shared && t.burst.0 > 0.0, Ok(QuantileTable::uniform()))?,
        };
        let speeds = match how.persistent {
            Persistent::Tilted(law, tilt) => {
                tilt.append_mapped(&mut program, TILTED, |shift| law.shifted_table(shift))?
            }
            _ => Vec::new(),
        };
        Ok(Lowered {
            step,
            how: *how,
            program,
            tables,
            scale: Vec::new(),
            scaled: Vec::new(),
            microbatch: Vec::new(),
            congestion: None,
            pool: None,
            row: None,
            speeds,
            transfer: Vec::new(),
        })
    }

    fn times(&mut self, value: Option<Value>, factor: Value) -> Value {
        match value {
            Some(value) => self.program.mul(value, factor),
            None => factor,
        }
    }

    fn stage_scale(&mut self, stage: u16, step: Option<Value>) -> Option<Value> {
        let mut value = step;
        match self.how.persistent {
            Persistent::Even => {}
            Persistent::Drawn(_) => {
                if let Some(table) = self.tables.worker {
                    let key = Key::new("worker").with(u64::from(stage));
                    let factor = self.program.draw(table, key, Scope::PerReplica);
                    value = Some(self.times(value, factor));
                }
            }
            Persistent::Tilted(..) => {
                if let Some(factor) = self.speeds.get(usize::from(stage)).copied() {
                    value = Some(self.times(value, factor));
                }
            }
            Persistent::Picked(_, rows) => {
                if let (Some(pool), Some(row)) = (self.pool, self.row) {
                    let offset = Offset::Fixed(u32::from(stage) * rows);
                    let factor = self.program.gather(pool, row, 1, offset);
                    value = Some(self.times(value, factor));
                }
            }
            Persistent::Given(factors) => {
                let n = self.how.replicas as usize;
                let own = factors.get(usize::from(stage) * n..).and_then(|f| f.get(..n));
                let factor = self.program.replica_constant(own.unwrap_or_default().to_vec());
                value = Some(self.times(value, factor));
            }
        }
        if let Some(table) = self.tables.step_worker {
            let key = Key::new("step-worker").with(u64::from(stage));
            let factor = self.program.draw(table, key, Scope::PerReplica);
            value = Some(self.times(value, factor));
        }
        value
    }

    fn compute(&mut self, op: OpId, start: Value) -> Value {
        let info = &self.step.planned.graph.ops()[op.0 as usize];
        let mean = self.step.work_s[op.0 as usize] as f32;
        let stage = info.stage;
        let key = (stage, mean.to_bits());
        let base = if let Some((_, value)) = self.scaled.iter().find(|(k, _)| *k == key) {
            *value
        } else {
            let mean = self.program.constant(mean);
            let value = match self.scale.get(usize::from(stage)).copied().flatten() {
                Some(scale) => self.program.mul(mean, scale),
                None => mean,
            };
            self.scaled.push((key, value));
            value
        };
        let m = usize::try_from(info.microbatch).unwrap_or(0);
        let mut factor = self.microbatch(m);
        if let Some(table) = self.tables.residual {
            let key = entity(Key::new("residual"), info.signature()).with(m as u64);
            let draw = self.program.draw(table, key, Scope::PerReplica);
            factor = Some(self.times(factor, draw));
        } else if self.tables.residual_mean != 1.0 {
            let mean = self.program.constant(self.tables.residual_mean);
            factor = Some(self.times(factor, mean));
        }
        match factor {
            Some(factor) => self.program.mul_add(factor, base, start),
            None => self.program.add(start, base),
        }
    }

    fn microbatch(&mut self, m: usize) -> Option<Value> {
        let table = self.tables.microbatch?;
        if self.microbatch.len() <= m {
            self.microbatch.resize(m + 1, None);
        }
        if self.microbatch[m].is_none() {
            let key = Key::new("microbatch").with(m as u64);
            self.microbatch[m] = Some(self.program.draw(table, key, Scope::PerReplica));
        }
        self.microbatch[m]
    }

    /// Time of a group's transfer: one draw for all its members.
    fn transfer(&mut self, op: OpId, group: Option<GroupId>) -> Value {
        if let Some(value) = group.and_then(|g| self.transfer.get(g.0 as usize).copied().flatten())
        {
            return value;
        }
        let graph = &self.step.planned.graph;
        let mean = self.program.constant(self.step.work_s[op.0 as usize] as f32);
        let mut value = mean;
        let all = group.is_some_and(|g| graph.groups()[g.0 as usize].sync == ReplicaSync::All);
        let drawn = if all { self.how.shared } else { self.how.own };
        if let Some(table) = self.tables.transfer.filter(|_| drawn) {
            let first = group.and_then(|g| graph.groups()[g.0 as usize].members.first().copied());
            let info = &graph.ops()[first.unwrap_or(op).0 as usize];
            let key = entity(Key::new("transfer"), info.signature()).with(u64::from(info.seq));
            let scope = if all { Scope::Shared } else { Scope::PerReplica };
            let draw = self.program.draw(table, key, scope);
            value = self.program.mul(value, draw);
        }
        if let Some(factor) = self.congestion {
            value = self.program.mul(value, factor);
        }
        if let Some(group) = group {
            let at = group.0 as usize;
            if self.transfer.len() <= at {
                self.transfer.resize(at + 1, None);
            }
            self.transfer[at] = Some(value);
        }
        value
    }
}

impl Durations for Lowered<'_> {
    fn program(&mut self) -> &mut Program {
        &mut self.program
    }

    fn begin_step(&mut self, _step: u32) {
        let step =
            self.tables.step.map(|table| self.program.draw(table, Key::new("step"), Scope::Shared));
        if let Persistent::Picked(factors, rows) = self.how.persistent {
            self.pool = Some(self.program.pool(factors.to_vec()));
            self.row = Some(self.program.index(rows, Key::new("picked"), Scope::PerReplica));
        }
        self.scale = (0..self.step.planned.graph.stages())
            .map(|stage| self.stage_scale(stage, step))
            .collect();
        if let Some(table) = self.tables.congestion {
            let draw = self.program.draw(table, Key::new("congestion"), Scope::Shared);
            self.congestion = Some(self.times(self.congestion, draw));
        }
        if let Some(table) = self.tables.burst {
            let (p, factor) = self.how.temporal.burst;
            let u = self.program.draw(table, Key::new("burst"), Scope::Shared);
            let slow = self.program.constant(factor as f32);
            let usual = self.program.constant(1.0);
            let burst = self.program.select(u, (1.0 - p) as f32, slow, usual);
            self.congestion = Some(self.times(self.congestion, burst));
        }
    }

    fn ready(&mut self, _op: OpId, latest: Value, _ends: &[Option<Value>]) -> Value {
        latest
    }

    fn end(&mut self, op: OpId, start: Value) -> Value {
        let graph = &self.step.planned.graph;
        let kind = graph.ops()[op.0 as usize].kind;
        if kind.is_microbatch_compute() {
            return self.compute(op, start);
        }
        match kind.class() {
            KernelClass::Collective | KernelClass::PointToPoint => {
                let work = self.transfer(op, graph.group_of(op));
                self.program.add(start, work)
            }
            _ => {
                let mut work = self.program.constant(self.step.work_s[op.0 as usize] as f32);
                if let Some(table) = self.tables.overhead.filter(|_| kind == OpKind::Optimizer) {
                    // The fixed overhead is part of the optimizer's time, the same everywhere.
                    let draw = self.program.draw(table, Key::new("overhead"), Scope::Shared);
                    work = self.program.add(work, draw);
                }
                self.program.add(start, work)
            }
        }
    }

    fn duration(&self, _op: OpId) -> Option<Value> {
        None
    }
}
