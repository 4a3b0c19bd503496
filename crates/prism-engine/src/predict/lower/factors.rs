//! Factors of durations: what of base, worker, step, position, microbatch and residual there is.

use super::super::options::Draws;
use super::super::sources::{entity, member_mean};
use super::Lowering;
use crate::sample::{Index, Key, Offset, Scope, Value};

impl Lowering<'_> {
    /// `exp(base + worker + step effects)` of a signature, per replica.
    pub(super) fn scale(&mut self, c: usize, row: Index) -> Value {
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
                if let Some(Some(law)) = self.tables.step.get(c).cloned() {
                    let factor = self.draw_scaled(&law, Key::new("step").with(step), Scope::Shared);
                    value = self.program.mul(value, factor);
                }
                if let Some(Some(law)) = self.tables.step_worker.get(c).cloned() {
                    let key = Key::new("step-worker").with(step).with(stage);
                    let factor = self.draw_scaled(&law, key, Scope::PerReplica);
                    value = self.program.mul(value, factor);
                }
            }
        }
        value
    }

    /// Position, microbatch and residual factor of one operation.
    pub(super) fn compute_factor(&mut self, c: usize, m: usize) -> Option<Value> {
        let compute = &self.model.compute;
        let signature = compute.signatures[c].signature;
        let residual_key =
            entity(Key::new("residual").with(self.now.step), signature).with(m as u64);
        let microbatches = self.model.microbatches as usize;
        let position = compute.position_log.get(c * microbatches + m).map_or(1.0, |p| p.exp());
        let repacked = self.adjust.repack.map(|over| self.repacked(c, over));
        let factor = match self.options.draws {
            Draws::Empirical => {
                let mut factor = self.microbatch_gather(c, m, residual_key);
                if let (Some(rest), Some(mean)) = (factor, repacked) {
                    factor = Some(self.program.mul(rest, mean));
                }
                factor.map(|f| self.at_position(f, position))
            }
            Draws::Parametric => {
                let mut factor = repacked;
                if let (None, Some(Some(law))) = (repacked, self.tables.microbatch.get(c).cloned())
                {
                    let key = Key::new("microbatch").with(self.now.step).with(m as u64);
                    factor = Some(self.draw_scaled(&law, key, Scope::PerReplica));
                }
                if let Some(Some(law)) = self.tables.residual.get(c).cloned() {
                    let draw = self.draw_scaled(&law, residual_key, Scope::PerReplica);
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
        let factor = self.at_position(factor, position);
        if spreads.iter().all(|s| *s == 1.0) {
            return factor;
        }
        let rest = spreads.iter().map(|s| position * (1.0 - s)).collect();
        let rest = self.program.replica_constant(rest);
        let spread = self.program.replica_constant(spreads);
        self.program.mul_add(factor, spread, rest)
    }

    fn at_position(&mut self, value: Value, factor: f32) -> Value {
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
        let rows = self.microbatch_pools[c].clone();
        Some(self.program.gather(rows.pool, index, 1, rows.offset))
    }

    pub(super) fn transfer(&mut self, model: usize, instance: usize, member: usize) -> Value {
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
