//! The baseline's model on a graph becomes a program.
//!
//! Random numbers are keyed by what they are for: `("iid-work", step, kind, stage, chunk, seq)` and
//! `("iid-gap", …)` per replica, for a collective those of its first participant and per group of
//! replicas; `("iid-regime", step)` for the observed step whose regime is shared.

use std::collections::BTreeMap;

use prism_graph::{Op, OpId, ReplicaSync, StepGraph};
use prism_model::Signature;
use prism_stats::{Distribution, Law};

use super::pool::{collective_key, participants};
use super::{IidModel, Pool};
use crate::predict::{Draws, Durations, LowerOptions, PredictError, entity, walk};
use crate::sample::{Key, Offset, PoolId, Program, QuantileTable, Scope, Sync, TableId, Value};

/// Lowers a graph with the baseline's model.
///
/// [`LowerOptions::redraw_workers`] has no effect: the baseline knows no workers.
///
/// # Errors
/// [`PredictError`] if the model does not fit the graph, or a law cannot be tabulated.
pub fn lower(
    graph: &StepGraph,
    model: &IidModel,
    options: &LowerOptions,
) -> Result<Program, PredictError> {
    let mut lowering = Lowering::new(graph, model, *options)?;
    walk(graph, &mut lowering, options)?;
    Ok(lowering.program)
}

/// What an operation's duration is drawn from.
#[derive(Clone, Copy)]
enum Source {
    Constant(f32),
    Table(TableId),
    Pool(PoolId, u32),
}

#[derive(Clone, Copy)]
struct Work {
    source: Source,
    communication: bool,
}

struct Lowering<'a> {
    graph: &'a StepGraph,
    model: &'a IidModel,
    options: LowerOptions,
    program: Program,
    /// By operation; none for barriers.
    work: Vec<Option<Work>>,
    gaps: Vec<Option<Source>>,
    regime_pool: Option<PoolId>,
    step: u64,
    regime: Option<Value>,
    /// Draws of collectives of the step at hand, by first participant.
    shared: BTreeMap<OpId, Value>,
    durations: Vec<Option<Value>>,
}

impl<'a> Lowering<'a> {
    fn new(
        graph: &'a StepGraph,
        model: &'a IidModel,
        options: LowerOptions,
    ) -> Result<Self, PredictError> {
        let mut program = Program::new(model.replicas);
        let work = assign(graph, model, options.draws, &mut program)?;
        let gaps = if options.launch_delays {
            gap_sources(graph, model, &mut program)
        } else {
            vec![None; graph.ops().len()]
        };
        let varies = model.regime.iter().any(|f| *f != 1.0);
        let regime_pool = varies.then(|| program.pool(model.regime.clone()));
        let durations = vec![None; graph.ops().len()];
        Ok(Lowering {
            graph,
            model,
            options,
            program,
            work,
            gaps,
            regime_pool,
            step: 0,
            regime: None,
            shared: BTreeMap::new(),
            durations,
        })
    }

    fn key(&self, effect: &str, op: &Op) -> Key {
        entity(Key::new(effect).with(self.step), &op.signature()).with(u64::from(op.seq))
    }

    fn draw(&mut self, source: Source, key: Key, scope: Scope) -> Value {
        match source {
            Source::Constant(value) => self.program.constant(value),
            Source::Table(table) => self.program.draw(table, key, scope),
            Source::Pool(pool, rows) => {
                let row = self.program.index(rows, key, scope);
                self.program.gather(pool, row, 1, Offset::Fixed(0))
            }
        }
    }

    /// One draw for all participants of a collective.
    fn collective(&mut self, op: OpId, source: Source) -> Value {
        let (members, sync) = participants(self.graph, op);
        let first = members.first().copied().unwrap_or(op);
        if let Some(&value) = self.shared.get(&first) {
            return value;
        }
        let key = self.key("iid-work", &self.graph.ops()[first.0 as usize]);
        let value = match sync {
            ReplicaSync::None => self.draw(source, key, Scope::PerReplica),
            ReplicaSync::All => self.draw(source, key, Scope::Shared),
            ReplicaSync::Blocks(block) => {
                // The block's first replica draws; durations are not negative.
                let own = self.draw(source, key, Scope::PerReplica);
                let leads = (0..self.model.replicas).map(|r| f32::from(r % block.max(1) == 0));
                let leads = self.program.replica_constant(leads.collect());
                let led = self.program.mul(own, leads);
                self.program.sync_max(led, Sync::Blocks(block))
            }
        };
        self.shared.insert(first, value);
        value
    }
}

impl Durations for Lowering<'_> {
    fn program(&mut self) -> &mut Program {
        &mut self.program
    }

    fn begin_step(&mut self, step: u32) -> Result<(), PredictError> {
        self.step = u64::from(step);
        self.shared.clear();
        self.durations.fill(None);
        if let Some(pool) = self.regime_pool {
            let rows = self.model.regime.len() as u32;
            let key = Key::new("iid-regime").with(self.step);
            let row = self.program.index(rows, key, Scope::Shared);
            self.regime = Some(self.program.gather(pool, row, 1, Offset::Fixed(0)));
        }
        Ok(())
    }

    fn ready(&mut self, op: OpId, latest: Value, _ends: &[Option<Value>]) -> Value {
        let Some(source) = self.gaps[op.0 as usize] else { return latest };
        let key = self.key("iid-gap", &self.graph.ops()[op.0 as usize]);
        let gap = self.draw(source, key, Scope::PerReplica);
        self.program.add(latest, gap)
    }

    fn end(&mut self, op: OpId, start: Value) -> Result<Value, PredictError> {
        let Some(work) = self.work[op.0 as usize] else { return Ok(start) };
        let what = &self.graph.ops()[op.0 as usize];
        let value = if work.communication && !what.kind.is_p2p() {
            self.collective(op, work.source)
        } else {
            let key = self.key("iid-work", what);
            self.draw(work.source, key, Scope::PerReplica)
        };
        if self.options.probes.stage_compute && what.kind.is_microbatch_compute() {
            self.durations[op.0 as usize] = Some(value);
        }
        Ok(match self.regime.filter(|_| work.communication) {
            Some(factor) => self.program.mul_add(value, factor, start),
            None => self.program.add(start, value),
        })
    }

    fn duration(&self, op: OpId) -> Option<Value> {
        self.durations[op.0 as usize]
    }
}

/// Pools of the model that were added to a program.
struct Sources<'a> {
    draws: Draws,
    program: &'a mut Program,
    /// By address of the pool in the model.
    known: BTreeMap<*const Pool, Source>,
}

impl Sources<'_> {
    fn of(&mut self, pool: &Pool) -> Result<Source, PredictError> {
        let address = std::ptr::from_ref(pool);
        if let Some(&source) = self.known.get(&address) {
            return Ok(source);
        }
        let source = match (self.draws, &pool.law.law) {
            (_, Law::Constant(_)) => {
                Source::Constant(pool.values_s.first().copied().unwrap_or(0.0))
            }
            (Draws::Empirical, _) => {
                let rows = pool.values_s.len() as u32;
                Source::Pool(self.program.pool(pool.values_s.clone()), rows)
            }
            (Draws::Parametric, law) => Source::Table(self.program.table(tabulate(law)?)),
        };
        self.known.insert(address, source);
        Ok(source)
    }
}

/// Table of a law, cut at 0.
fn tabulate(law: &Law) -> Result<QuantileTable, PredictError> {
    Ok(QuantileTable::from_quantiles(
        |p| law.quantile(p).max(0.0),
        |q| law.quantile_upper(q).max(0.0),
    )?)
}

/// What every operation draws from.
fn assign(
    graph: &StepGraph,
    model: &IidModel,
    draws: Draws,
    program: &mut Program,
) -> Result<Vec<Option<Work>>, PredictError> {
    let mut sources = Sources { draws, program, known: BTreeMap::new() };
    graph
        .iter()
        .map(|(id, op)| {
            if op.kind == prism_model::OpKind::Barrier {
                return Ok(None);
            }
            let pool = pool_of(graph, model, id, op);
            let pool = pool.ok_or_else(|| PredictError::NoWork { op: op.clone() })?;
            let communication = super::pool::is_communication(op.kind);
            Ok(Some(Work { source: sources.of(pool)?, communication }))
        })
        .collect()
}

/// The pool of an operation.
fn pool_of<'a>(graph: &StepGraph, model: &'a IidModel, id: OpId, op: &Op) -> Option<&'a Pool> {
    let signature = op.signature();
    if op.kind.is_p2p() {
        let pools = model.transfers.iter().find(|t| t.signature == signature)?;
        let own = pools.never_bubble.iter().find(|p| p.position == op.seq);
        return Some(own.map_or(&pools.transfer, |p| &p.pool));
    }
    if super::pool::is_communication(op.kind) {
        let key = collective_key(graph, &participants(graph, id).0)?;
        let fits = |c: &&super::CollectivePool| {
            c.kind == key.kind && c.chunk == key.chunk && c.stages == key.stages
        };
        return model.collectives.iter().find(fits).map(|c| &c.pool);
    }
    model.kernels.iter().find(|k| k.signature == signature).map(|k| &k.pool)
}

fn gap_sources(graph: &StepGraph, model: &IidModel, program: &mut Program) -> Vec<Option<Source>> {
    let by_signature: BTreeMap<Signature, Source> = model
        .launch_delay
        .iter()
        .filter_map(|gap| {
            let first = *gap.values_s.first()?;
            let source = if gap.values_s.iter().all(|v| *v == first) {
                Source::Constant(first)
            } else {
                let rows = gap.values_s.len() as u32;
                Source::Pool(program.pool(gap.values_s.clone()), rows)
            };
            Some((gap.signature, source))
        })
        .collect();
    graph.ops().iter().map(|op| by_signature.get(&op.signature()).copied()).collect()
}
