//! Compute and step effects of a planned job's model.

use std::collections::BTreeMap;

use prism_graph::{OpId, PlannedStep};
use prism_model::{
    ComputeModel, ComputeSignature, DurationModel, Effect, EffectKind, LawChoice, Signature,
};
use prism_stats::Law;

use super::PlannedError;
use super::fleet::Cells;
use super::lanes::{log_normal, normalise, of_table, sd, shuffled};
use super::laws::{Temporal, residual_table, skewed_table};
use super::model::{ModelOptions, strata};
use crate::predict::log_mean_exp;

/// Values that the lanes of all steps may hold together.
const MOST_VALUES: usize = 1 << 23;
/// Fewest and most steps whose values are drawn together.
const STEPS: [usize; 2] = [128, 1_024];
/// Rows of microbatch effects; more where stalls are rare.
const ROWS: [usize; 2] = [4_096, 16_384];
/// Logarithm of a time that takes no time: 10^-17 s.
const NOTHING_LOG: f64 = -39.0;

/// What a model is put together from.
pub(super) struct Assembly<'a> {
    pub(super) step: &'a PlannedStep,
    pub(super) temporal: &'a Temporal,
    cells: Option<&'a Cells>,
    pub(super) seed: u64,
    pub(super) replicas: usize,
    /// Steps whose values are drawn together.
    pub(super) steps: usize,
    rows: usize,
    /// Computes by signature, with their microbatch.
    signatures: Vec<(Signature, Vec<(u32, OpId)>)>,
}

/// An effect's values, and how far their logarithms were moved so that they average 0.
struct Centred {
    values: Vec<f32>,
    /// Mean of the logarithms of factors of mean 1.
    offset: f64,
}

impl Centred {
    /// From logarithms of factors of mean 1.
    fn new(logs: &[f64]) -> Centred {
        let offset = logs.iter().sum::<f64>() / logs.len().max(1) as f64;
        Centred { values: logs.iter().map(|v| (v - offset) as f32).collect(), offset }
    }
}

impl<'a> Assembly<'a> {
    pub(super) fn new(
        step: &'a PlannedStep,
        temporal: &'a Temporal,
        cells: Option<&'a Cells>,
        options: &ModelOptions,
    ) -> Self {
        let graph = &step.planned.graph;
        let replicas = graph.replicas() as usize;
        let mut by_signature: BTreeMap<Signature, Vec<(u32, OpId)>> = BTreeMap::new();
        for (id, op) in graph.iter().filter(|(_, op)| op.kind.is_microbatch_compute()) {
            let microbatch = u32::try_from(op.microbatch).unwrap_or(0);
            by_signature.entry(op.signature()).or_default().push((microbatch, id));
        }
        let mut signatures: Vec<_> = by_signature.into_iter().collect();
        for (_, ops) in &mut signatures {
            ops.sort_unstable();
        }
        let others =
            graph.ops().iter().filter(|op| !op.kind.is_microbatch_compute() && !op.kind.is_p2p());
        let lanes = (signatures.len() + others.count()) * replicas;
        let steps = match options.steps {
            0 => (MOST_VALUES / lanes.max(1)).clamp(STEPS[0], STEPS[1]),
            n => n,
        };
        let hang = temporal.hang.0;
        let rows = if hang > 0.0 {
            ((4.0 / hang).min(1e9) as usize).clamp(ROWS[0], ROWS[1])
        } else {
            ROWS[0]
        };
        Assembly { step, temporal, cells, seed: options.seed, replicas, steps, rows, signatures }
    }

    /// What to say where stalls are rarer than rows can show.
    pub(super) fn missed_hangs(&self) -> Option<String> {
        let p = self.temporal.hang.0;
        (p > 0.0 && p * (self.rows as f64) < 0.5).then(|| {
            format!(
                "stalls of one operation in {:.0} are rarer than the {} rows that durations are drawn \
                 from: they are left out",
                1.0 / p,
                self.rows
            )
        })
    }

    pub(super) fn model(&self) -> Result<DurationModel, PlannedError> {
        let congestion = self.congestion()?;
        Ok(DurationModel {
            steps: (0..self.steps as i64).collect(),
            windows: (0..self.steps as u32).collect(),
            replicas: self.replicas as u32,
            microbatches: self.step.planned.shape.microbatches,
            effects: self.effects(),
            compute: self.compute()?,
            transfers: self.transfers()?,
            step_work: self.step_work(&congestion)?,
            congestion,
            ..DurationModel::default()
        })
    }

    fn compute(&self) -> Result<ComputeModel, PlannedError> {
        let t = self.temporal;
        let residual = self.residual()?;
        let residual_sd = sd(&residual.0);
        let microbatch = if t.microbatch_sd > 0.0 {
            of_table(self.rows, &skewed_table(t.microbatch_sd, t.microbatch_skew)?).0
        } else {
            Vec::new()
        };
        let of_steps = self.step_vectors()?;
        let of_rows = self.row_vectors(&microbatch, &residual.0);
        let mut laws = Laws::default();
        laws.steps(t, of_steps.offset)?;
        laws.rows(&microbatch, &residual.0, of_rows.offset)?;
        let mean_log = residual.1.ln() + of_steps.offset + of_rows.offset;
        let mut position_log = Vec::new();
        let mut signatures = Vec::with_capacity(self.signatures.len());
        let microbatches = self.step.planned.shape.microbatches as usize;
        for (signature, ops) in &self.signatures {
            let logs: Vec<f64> = ops.iter().map(|(_, op)| self.log_s(*op)).collect();
            let base = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let mut lane = vec![0.0_f32; microbatches];
            for ((m, _), log) in ops.iter().zip(&logs) {
                lane[*m as usize] = (log - base) as f32;
            }
            position_log.extend(lane);
            signatures.push(ComputeSignature {
                signature: *signature,
                ops: ops.iter().map(|(_, op)| op.0).collect(),
                positions: if ops.len() == microbatches {
                    Vec::new()
                } else {
                    ops.iter().map(|(m, _)| *m).collect()
                },
                base_log_s: base + mean_log,
                microbatch_load: 1.0,
                step_load: 1.0,
                microbatch_sd_log: t.microbatch_sd,
                residual_sd_log: residual_sd,
                residual_law: laws.residual.clone(),
            });
        }
        if position_log.iter().all(|p| *p == 0.0) {
            position_log.clear();
        }
        let worker_log = self.worker_log();
        Ok(ComputeModel {
            signatures,
            position_log,
            worker_sd_log: sd(&worker_log),
            worker_log,
            step_vectors_log: of_steps.values,
            microbatch_vectors_log: of_rows.values,
            microbatch_shared: t.microbatch_sd > 0.0,
            step_sd_log: t.step_sd,
            step_worker_sd_log: t.step_worker_sd,
            microbatch_sd_log: t.microbatch_sd,
            step_law: laws.step,
            step_worker_law: laws.step_worker,
            microbatch_law: laws.microbatch,
            ..ComputeModel::default()
        })
    }

    fn log_s(&self, op: OpId) -> f64 {
        self.step.work_s[op.0 as usize].ln().max(NOTHING_LOG)
    }

    /// Logarithms of the persistent factors, `[c][r]`; empty if all cells are alike.
    fn worker_log(&self) -> Vec<f64> {
        let Some(cells) = self.cells else { return Vec::new() };
        let of =
            |s: &Signature| &cells.factors[usize::from(s.stage) * self.replicas..][..self.replicas];
        self.signatures
            .iter()
            .flat_map(|(s, _)| of(s).iter().map(|f| f64::from(*f).max(1e-6).ln()))
            .collect()
    }

    /// An operation's own factor: logarithms for a mean of 1, and its mean.
    fn residual(&self) -> Result<(Vec<f64>, f64), PlannedError> {
        let t = self.temporal;
        if t.residual_sd == 0.0 && t.hang.0 == 0.0 {
            return Ok((Vec::new(), t.residual_mean));
        }
        if t.hang.0 == 0.0 {
            return Ok((log_normal(self.rows, t.residual_sd)?, t.residual_mean));
        }
        Ok(of_table(self.rows, &residual_table(t)?))
    }

    /// Step plus step x worker effects, `[c][r][t]`; a stage's signatures share them.
    fn step_vectors(&self) -> Result<Centred, PlannedError> {
        let t = self.temporal;
        if t.step_sd == 0.0 && t.step_worker_sd == 0.0 {
            return Ok(Centred { values: Vec::new(), offset: 0.0 });
        }
        let of_step = shuffled(&strata(self.steps, t.step_sd)?, self.seed, "step", &[]);
        let of_worker = strata(self.steps, t.step_worker_sd)?;
        let mut lanes: BTreeMap<u16, Vec<f64>> = BTreeMap::new();
        for stage in 0..self.step.planned.graph.stages() {
            let mut of_stage = Vec::with_capacity(self.replicas * self.steps);
            for r in 0..self.replicas {
                let entity = [u64::from(stage), r as u64];
                let mut lane = shuffled(&of_worker, self.seed, "step-worker", &entity);
                lane.iter_mut().zip(&of_step).for_each(|(v, s)| *v += s);
                normalise(&mut lane);
                of_stage.extend(lane);
            }
            lanes.insert(stage, of_stage);
        }
        let all: Vec<f64> = self
            .signatures
            .iter()
            .flat_map(|(s, _)| lanes.get(&s.stage).into_iter().flatten().copied())
            .collect();
        Ok(Centred::new(&all))
    }

    /// Microbatch plus residual effects, `[row][c]`.
    fn row_vectors(&self, microbatch: &[f64], residual: &[f64]) -> Centred {
        let n = self.signatures.len();
        if microbatch.is_empty() && residual.is_empty() {
            return Centred { values: Vec::new(), offset: 0.0 };
        }
        let shared = shuffled(microbatch, self.seed, "microbatch", &[]);
        let mut all = vec![0.0; n * self.rows];
        for (c, (signature, _)) in self.signatures.iter().enumerate() {
            let chunk = i64::from(signature.chunk) as u64;
            let entity = [u64::from(signature.stage), chunk];
            let own = shuffled(residual, self.seed, signature.kind.as_str(), &entity);
            let at = |of: &[f64], row: usize| of.get(row).copied().unwrap_or(0.0);
            let mut column: Vec<f64> =
                (0..self.rows).map(|row| at(&shared, row) + at(&own, row)).collect();
            normalise(&mut column);
            all.iter_mut().skip(c).step_by(n).zip(column).for_each(|(to, v)| *to = v);
        }
        Centred::new(&all)
    }

    fn effects(&self) -> Vec<Effect> {
        let t = self.temporal;
        let worker = sd(&self.worker_log());
        [
            (EffectKind::Worker, worker),
            (EffectKind::Step, t.step_sd),
            (EffectKind::StepWorker, t.step_worker_sd),
            (EffectKind::Microbatch, t.microbatch_sd),
            (EffectKind::Residual, t.residual_sd),
            (EffectKind::Congestion, t.congestion_sd),
        ]
        .into_iter()
        .map(|(kind, sd_log)| {
            let bursts = kind == EffectKind::Congestion && t.burst.0 > 0.0;
            let kept = sd_log > 0.0 || bursts || (kind == EffectKind::Residual && t.hang.0 > 0.0);
            let reason =
                if kept { "from the job's variability" } else { "the job's variability has none" };
            Effect { kind, sd_log, test: None, kept, reason: reason.to_owned() }
        })
        .collect()
    }
}

/// Laws for parametric draws, with the means of the vectors.
#[derive(Default)]
struct Laws {
    step: Option<LawChoice>,
    step_worker: Option<LawChoice>,
    microbatch: Option<LawChoice>,
    residual: Option<LawChoice>,
}

impl Laws {
    /// The first of the effects carries what the vectors were moved by.
    fn steps(&mut self, t: &Temporal, offset: f64) -> Result<(), PlannedError> {
        let mut mean_log = -offset;
        for (slot, sd) in [(&mut self.step, t.step_sd), (&mut self.step_worker, t.step_worker_sd)] {
            if sd > 0.0 {
                *slot = Some(given(Law::log_normal(mean_log - 0.5 * sd * sd, sd)?));
                mean_log = 0.0;
            }
        }
        Ok(())
    }

    fn rows(
        &mut self,
        microbatch: &[f64],
        residual: &[f64],
        offset: f64,
    ) -> Result<(), PlannedError> {
        let mut mean_log = -offset;
        for (slot, logs) in [(&mut self.microbatch, microbatch), (&mut self.residual, residual)] {
            if !logs.is_empty() {
                let shift = mean_log - log_mean_exp(logs.iter().copied());
                let values = logs.iter().map(|v| (v + shift).exp()).collect();
                *slot = Some(given(Law::empirical(values)?));
                mean_log = 0.0;
            }
        }
        Ok(())
    }
}

/// A law that was not chosen among others.
pub(super) fn given(law: Law) -> LawChoice {
    LawChoice { law, n: 0, ks: 0.0, losers: Vec::new() }
}
