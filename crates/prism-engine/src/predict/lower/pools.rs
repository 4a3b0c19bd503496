//! Pools of observed values and tables of laws.

use prism_model::{LawChoice, StepVector};
use prism_stats::Law;

use super::super::PredictError;
use super::super::adjust::SpreadOf;
use super::super::effects::{log_mean_exp, microbatch_part, step_parts};
use super::super::options::Draws;
use super::super::sources::{mean_power, member_mean, rounded_spread, tabulate, tabulate_map};
use super::Lowering;
use crate::sample::{Key, Offset, PoolId, Scope, TableId, Value};

/// A pool and where each replica's rows begin in it.
#[derive(Clone)]
pub(super) struct Rows {
    pub(super) pool: PoolId,
    pub(super) offset: Offset,
}

/// A law that may be scaled differently on different replicas.
#[derive(Clone)]
pub(super) struct Scaled {
    variants: Vec<(Variant, Vec<f32>)>,
}

#[derive(Clone, Copy)]
enum Variant {
    Table(TableId),
    Constant(f32),
}

/// Laws as tables.
#[derive(Default)]
pub(super) struct Tables {
    pub(super) step: Vec<Option<Scaled>>,
    pub(super) step_worker: Vec<Option<Scaled>>,
    pub(super) microbatch: Vec<Option<Scaled>>,
    pub(super) residual: Vec<Option<Scaled>>,
    /// By transfer model and member; a constant where nothing varies.
    pub(super) transfer: Vec<Vec<(Option<TableId>, f32)>>,
    pub(super) worker: Option<TableId>,
}

impl Lowering<'_> {
    pub(super) fn add_pools(&mut self) {
        if self.options.draws == Draws::Empirical {
            self.add_step_pools();
            if self.microbatch_rows() > 0 {
                self.add_microbatch_pools();
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

    /// `exp(step vector)`, `[r][t]`, a pool a signature.
    fn add_step_pools(&mut self) {
        let compute = &self.model.compute;
        if compute.step_vectors_log.is_empty() {
            return;
        }
        let (steps, replicas) = (self.steps(), self.replicas());
        let changed = [SpreadOf::Step, SpreadOf::StepWorker]
            .iter()
            .any(|s| self.adjust.spread.contains_key(s));
        let shared = if changed { step_parts(compute, replicas, steps) } else { Vec::new() };
        for (c, signature) in compute.signatures.iter().enumerate() {
            let lanes = &compute.step_vectors_log[c * replicas * steps..][..replicas * steps];
            let mut pool = Vec::with_capacity(lanes.len());
            for (r, lane) in lanes.chunks(steps).enumerate() {
                let k = |of| self.adjust.spread_of(of, c, r, replicas);
                let (k_step, k_worker) = (k(SpreadOf::Step), k(SpreadOf::StepWorker));
                if k_step == 1.0 && k_worker == 1.0 {
                    pool.extend(lane.iter().map(|v| v.exp()));
                    continue;
                }
                let scaled: Vec<f64> = lane
                    .iter()
                    .zip(&shared)
                    .map(|(v, s)| {
                        let part = signature.step_load * s;
                        k_step * part + k_worker * (f64::from(*v) - part)
                    })
                    .collect();
                let before = log_mean_exp(lane.iter().map(|v| f64::from(*v)));
                let shift = before - log_mean_exp(scaled.iter().copied());
                pool.extend(scaled.iter().map(|v| (v + shift).exp() as f32));
            }
            self.step_pools.push(self.program.pool(pool));
        }
    }

    /// One pool a signature: the rows under every distinct spread, one after the other; each replica
    /// reads from where its own spread's begin. Where sequences are repacked, microbatch and residual
    /// effects have pools of their own.
    fn add_microbatch_pools(&mut self) {
        let compute = &self.model.compute;
        let changed = self.adjust.repack.is_some()
            || [SpreadOf::Microbatch, SpreadOf::Residual]
                .iter()
                .any(|s| self.adjust.spread.contains_key(s));
        let effect = if changed { microbatch_part(compute) } else { Vec::new() };
        for c in 0..compute.signatures.len() {
            if self.adjust.repack.is_some() {
                let microbatch = self.microbatch_pool(c, &effect, Part::Microbatch);
                self.microbatch_means.push(microbatch);
                let rest = self.microbatch_pool(c, &effect, Part::Residual);
                self.microbatch_pools.push(rest);
            } else {
                let both = self.microbatch_pool(c, &effect, Part::Both);
                self.microbatch_pools.push(both);
            }
        }
    }

    fn microbatch_pool(&mut self, c: usize, effect: &[f64], part: Part) -> Rows {
        let compute = &self.model.compute;
        let (n, rows) = (compute.signatures.len(), self.microbatch_rows());
        let load = compute.signatures[c].microbatch_load;
        let mut variants: Vec<[f64; 3]> = Vec::new();
        let mut offsets = Vec::new();
        for r in 0..self.replicas() {
            let k = |of| self.adjust.spread_of(of, c, r, self.replicas());
            let variant = [self.spread(c, r), k(SpreadOf::Microbatch), k(SpreadOf::Residual)];
            let at = variants.iter().position(|v| *v == variant).unwrap_or(variants.len());
            if at == variants.len() {
                variants.push(variant);
            }
            offsets.push(at as u32 * rows);
        }
        let values = || compute.microbatch_vectors_log.chunks(n).map(|row| f64::from(row[c]));
        let mut pool = Vec::with_capacity(variants.len() * rows as usize);
        for [spread, k_microbatch, k_residual] in variants {
            if k_microbatch == 1.0 && k_residual == 1.0 && part == Part::Both {
                pool.extend(values().map(|v| (v * spread).exp() as f32));
                continue;
            }
            let parts = |k_m: f64, k_r: f64| -> Vec<f64> {
                let of = |(v, e): (f64, &f64)| {
                    let (m, rest) = (load * e, v - load * e);
                    let m = if part == Part::Residual { 0.0 } else { k_m * m };
                    let rest = if part == Part::Microbatch { 0.0 } else { k_r * rest };
                    spread * (m + rest)
                };
                values().zip(effect).map(of).collect()
            };
            let scaled = parts(k_microbatch, k_residual);
            let before = log_mean_exp(parts(1.0, 1.0).into_iter());
            let shift = before - log_mean_exp(scaled.iter().copied());
            pool.extend(scaled.iter().map(|v| (v + shift).exp() as f32));
        }
        let single = pool.len() == rows as usize;
        let offset = if single { Offset::Fixed(0) } else { Offset::PerReplica(offsets) };
        Rows { pool: self.program.pool(pool), offset }
    }

    /// Factor on the effects inside a step of a replica, rounded to 5 %.
    pub(super) fn spread(&self, c: usize, r: usize) -> f64 {
        let spread = self.model.compute.worker_spread.get(c * self.replicas() + r);
        rounded_spread(spread.copied().unwrap_or(1.0))
    }

    fn vector_pools(&mut self, vectors: &[StepVector]) -> Vec<Option<PoolId>> {
        let replicas = self.replicas();
        vectors
            .iter()
            .map(|v| (v.values_s.len() > replicas).then(|| self.program.pool(v.values_s.clone())))
            .collect()
    }

    pub(super) fn add_tables(&mut self) -> Result<(), PredictError> {
        let compute = &self.model.compute;
        for (c, s) in compute.signatures.iter().enumerate() {
            let step = self.scaled(compute.step_law.as_ref(), s.step_load, SpreadOf::Step, c)?;
            self.tables.step.push(step);
            let law = compute.step_worker_law.as_ref();
            let worker = self.scaled(law, 1.0, SpreadOf::StepWorker, c)?;
            self.tables.step_worker.push(worker);
            let (law, of) = (compute.microbatch_law.as_ref(), SpreadOf::Microbatch);
            let microbatch = self.scaled(law, s.microbatch_load, of, c)?;
            self.tables.microbatch.push(microbatch);
            let residual = self.scaled(s.residual_law.as_ref(), 1.0, SpreadOf::Residual, c)?;
            self.tables.residual.push(residual);
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

    /// `X^(load·k)` with the mean of `X^load`, `k` each replica's factor on the effect.
    fn scaled(
        &mut self,
        law: Option<&LawChoice>,
        load: f64,
        of: SpreadOf,
        c: usize,
    ) -> Result<Option<Scaled>, PredictError> {
        let Some(choice) = law else { return Ok(None) };
        let replicas = self.replicas();
        let mut factors: Vec<(f64, Vec<f32>)> = Vec::new();
        for r in 0..replicas {
            let k = self.adjust.spread_of(of, c, r, replicas);
            let at = factors.iter().position(|f| f.0 == k).unwrap_or(factors.len());
            if at == factors.len() {
                factors.push((k, vec![0.0; replicas]));
            }
            factors[at].1[r] = 1.0;
        }
        let mut variants = Vec::new();
        for (k, mask) in factors {
            let variant = if k == 1.0 {
                Variant::Table(self.table(&choice.law, load)?)
            } else {
                let wanted = mean_power(&choice.law, load);
                if k == 0.0 {
                    Variant::Constant(wanted as f32)
                } else {
                    let ratio = wanted / mean_power(&choice.law, load * k);
                    let table = tabulate_map(&choice.law, |x| x.max(0.0).powf(load * k) * ratio)?;
                    Variant::Table(self.program.table(table))
                }
            };
            variants.push((variant, mask));
        }
        Ok(Some(Scaled { variants }))
    }

    /// A draw from a law, scaled as each replica's is.
    pub(super) fn draw_scaled(&mut self, law: &Scaled, key: Key, scope: Scope) -> Value {
        let mut total = None;
        for (variant, mask) in &law.variants {
            let value = match *variant {
                Variant::Table(table) => self.program.draw(table, key, scope),
                Variant::Constant(value) => self.program.constant(value),
            };
            if law.variants.len() == 1 {
                return value;
            }
            let mask = self.program.replica_constant(mask.clone());
            total = Some(match total {
                None => self.program.mul(value, mask),
                Some(sum) => self.program.mul_add(value, mask, sum),
            });
        }
        total.unwrap_or_else(|| self.program.constant(1.0))
    }

    pub(super) fn table(&mut self, law: &Law, power: f64) -> Result<TableId, PredictError> {
        Ok(self.program.table(tabulate(law, power)?))
    }

    pub(super) fn microbatch_rows(&self) -> u32 {
        let n = self.model.compute.signatures.len().max(1);
        (self.model.compute.microbatch_vectors_log.len() / n) as u32
    }
}

/// What of a microbatch row a pool holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Both,
    Microbatch,
    Residual,
}
