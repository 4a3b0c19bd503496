//! Durations with a scenario's changes.

use prism_graph::OpId;

use super::super::adjust::{Affine, Cells, Repack};
use super::super::options::Draws;
use super::super::sources::Work;
use super::Lowering;
use crate::sample::{Key, Scope, Value};

impl Lowering<'_> {
    /// Appends the factor of each congestion regime in this step.
    pub(super) fn begin_bursts(&mut self, step: u32) {
        let Some(uniform) = self.uniform else { return };
        for burst in &self.adjust.bursts {
            let key = Key::new("burst").with(u64::from(step)).with_text(&burst.name);
            let draw = self.program.draw(uniform, key, Scope::Shared);
            let (calm, congested) =
                (self.program.constant(1.0), self.program.constant(burst.factor as f32));
            let factor = self.program.select(draw, burst.probability as f32, calm, congested);
            self.now.bursts.push(factor);
        }
    }

    pub(super) fn is_adjusted(&self, op: OpId) -> bool {
        self.adjust.work.contains_key(&op) || self.adjust.bursts.iter().any(|b| b.ops.contains(&op))
    }

    /// When an operation ends whose work is changed.
    pub(super) fn adjusted_end(&mut self, op: OpId, start: Value) -> Value {
        if matches!(self.work[op.0 as usize], Work::None) {
            return start;
        }
        let affine = self.adjust.work.get(&op);
        let mut work = match affine {
            // Nothing of the drawn work is left.
            Some(a) if a.factor.is(0.0) => self.cells(&a.offset),
            _ => {
                let work = self.work_value(op);
                self.adjusted(affine, work)
            }
        };
        for (i, burst) in self.adjust.bursts.iter().enumerate() {
            if burst.ops.contains(&op) {
                work = self.program.mul(work, self.now.bursts[i]);
            }
        }
        if matches!(self.work[op.0 as usize], Work::Compute { .. }) {
            self.now.durations[op.0 as usize] = Some(work);
        }
        self.program.add(start, work)
    }

    /// The work that the model draws.
    fn work_value(&mut self, op: OpId) -> Value {
        match self.work[op.0 as usize] {
            Work::None => self.program.constant(0.0),
            Work::Step(i) => self.vector(&self.model.step_work[i], self.work_pools[i]),
            Work::Transfer { model, instance, member } => {
                let work = self.transfer(model, instance, member);
                match self.now.congestion {
                    Some(factor) => self.program.mul(work, factor),
                    None => work,
                }
            }
            Work::Compute { c, m } => {
                let scale = self.now.scale[c];
                match self.compute_factor(c, m) {
                    Some(factor) => self.program.mul(scale, factor),
                    None => scale,
                }
            }
        }
    }

    /// `factor · value + offset`.
    pub(super) fn adjusted(&mut self, affine: Option<&Affine>, value: Value) -> Value {
        let Some(affine) = affine else { return value };
        let factor = self.cells(&affine.factor);
        if affine.offset.is(0.0) {
            return self.program.mul(value, factor);
        }
        let offset = self.cells(&affine.offset);
        self.program.mul_add(value, factor, offset)
    }

    fn cells(&mut self, cells: &Cells) -> Value {
        match (cells, self.now.row) {
            (Cells::All(value), _) => self.program.constant(*value),
            (Cells::Replicas(values), _) => self.program.replica_constant(values.clone()),
            (Cells::Steps(values, _), Some(row)) => {
                let pool = self.program.pool(values.clone());
                let offset = self.row_offsets();
                self.program.gather(pool, row, 1, offset)
            }
            // A step always has a row.
            (Cells::Steps(..), None) => self.program.constant(1.0),
        }
    }

    /// Mean microbatch factor of a signature over the microbatches that are repacked together.
    pub(super) fn repacked(&mut self, c: usize, over: Repack) -> Value {
        if let Some(value) = self.now.repacked[c] {
            return value;
        }
        let microbatches = self.model.microbatches;
        let mut factors = Vec::new();
        for m in 0..microbatches as usize {
            let factor = match self.options.draws {
                Draws::Empirical => {
                    let rows = self.microbatch_means[c].clone();
                    let index = self.now.microbatch_row[m];
                    self.program.gather(rows.pool, index, 1, rows.offset)
                }
                Draws::Parametric => match self.tables.microbatch[c].clone() {
                    Some(law) => {
                        let key = Key::new("microbatch").with(self.now.step).with(m as u64);
                        self.draw_scaled(&law, key, Scope::PerReplica)
                    }
                    None => self.program.constant(1.0),
                },
            };
            factors.push(factor);
        }
        let mut mean = self.program.sum(&factors);
        let mut count = f64::from(microbatches);
        if over == Repack::Step {
            mean = self.program.sum_over_replicas(mean);
            count *= f64::from(self.model.replicas);
        }
        let share = self.program.constant((1.0 / count) as f32);
        mean = self.program.mul(mean, share);
        self.now.repacked[c] = Some(mean);
        mean
    }
}
