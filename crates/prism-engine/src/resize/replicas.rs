//! A duration model on another number of replicas.
//!
//! Everything a new replica has is a function of the seed, its number and what it is for: more
//! replicas leave the first ones alone.

use prism_graph::StepGraph;
use prism_model::{DurationModel, OpKind, StepVector};
use prism_stats::stream;
use rand::RngExt;

use super::levels::Levels;
use super::workers::{Drawn, WorkerLaw};

/// Kinds whose transfer grows with the data-parallel group.
const OVER_REPLICAS: [OpKind; 3] =
    [OpKind::ParamsAllGather, OpKind::GradsReduceScatter, OpKind::SeparateGradsAllReduce];

/// How the replica axis changes.
pub(super) struct Axis<'a> {
    pub(super) law: &'a WorkerLaw,
    /// Level of usual workers of each signature less its base, log time.
    pub(super) offset_log: &'a [f64],
    pub(super) replicas: u32,
    /// Whether observed replicas are drawn anew too.
    pub(super) fresh: bool,
    /// On the transfers of collectives over replicas.
    pub(super) collective: f64,
    pub(super) seed: u64,
}

/// A replica of the resized job.
struct Replica {
    /// The observed one that it is.
    own: Option<usize>,
    /// The observed ones that it may be like.
    like: Vec<usize>,
    /// The one whose persistent properties it has.
    donor: usize,
    workers: Vec<Drawn>,
}

impl Axis<'_> {
    /// Whether an operation's transfer depends on the number of replicas.
    pub(super) fn over_replicas(kind: OpKind) -> bool {
        OVER_REPLICAS.contains(&kind)
    }

    /// The model on the new axis.
    pub(super) fn apply(&self, graph: &StepGraph, model: &DurationModel) -> DurationModel {
        let old = model.replicas as usize;
        let steps = model.steps.len();
        let all: Vec<Replica> =
            (0..self.replicas as usize).map(|r| self.replica(r, old, graph.stages())).collect();
        let donors: Vec<Vec<usize>> =
            all.iter().enumerate().map(|(r, v)| self.rows(r, v, steps)).collect();
        let vectors = |list: &[StepVector], scaled: bool| -> Vec<StepVector> {
            let one = |v: &StepVector| {
                let kind = graph.ops()[v.op as usize].kind;
                let factor =
                    if scaled && Axis::over_replicas(kind) { self.collective } else { 1.0 };
                let mut values = lanes(&v.values_s, old, steps, &all, &donors);
                if factor != 1.0 {
                    for x in &mut values {
                        *x *= factor as f32;
                    }
                }
                StepVector { op: v.op, values_s: values }
            };
            list.iter().map(one).collect()
        };
        let mut fresh = model.clone();
        fresh.replicas = self.replicas;
        fresh.step_work = vectors(&model.step_work, true);
        fresh.launch_delay = vectors(&model.launch_delay, false);
        for (new, d) in fresh.implied.iter_mut().zip(&model.implied) {
            new.lag_s = lanes(&d.lag_s, old, steps, &all, &donors);
        }
        for (new, t) in
            fresh.transfers.iter_mut().zip(&model.transfers).filter(|(_, t)| t.by_replica)
        {
            let instances = if t.by_instance { t.ops.len() / t.members.len().max(1) } else { 1 };
            let cell = t.rows_s.len() / (instances * old).max(1);
            new.rows_s = (0..instances)
                .flat_map(|i| all.iter().map(move |r| (i * old + r.donor) * cell))
                .flat_map(|at| t.rows_s[at..at + cell].iter().copied())
                .collect();
        }
        let compute = &mut fresh.compute;
        compute.observations_log_s = Vec::new();
        compute.step_vectors_log = self.step_vectors(model, &all);
        compute.worker_log = self.worker_log(model, &all);
        compute.worker_spread = model
            .compute
            .worker_spread
            .chunks(old.max(1))
            .flat_map(|lane| all.iter().map(|r| lane[r.donor]))
            .collect();
        fresh
    }

    fn replica(&self, r: usize, old: usize, stages: u16) -> Replica {
        if r < old && !self.fresh {
            return Replica { own: Some(r), like: vec![r], donor: r, workers: Vec::new() };
        }
        let workers: Vec<Drawn> =
            (0..stages).map(|stage| self.law.draw(self.seed, r, stage)).collect();
        let clean = self.law.clean(old);
        let like = match workers.iter().find_map(|w| w.outlier) {
            Some(outlier) => vec![outlier],
            None if clean.is_empty() => (0..old).collect(),
            None => clean,
        };
        let pick = stream(self.seed, "resize-replica", &[r as u64]).random_range(0..like.len());
        Replica { own: None, donor: like[pick], like, workers }
    }

    /// The replica whose step-level values are taken, by observed step.
    fn rows(&self, r: usize, replica: &Replica, steps: usize) -> Vec<usize> {
        if let Some(own) = replica.own {
            return vec![own; steps];
        }
        let mut rng = stream(self.seed, "resize-rows", &[r as u64]);
        (0..steps).map(|_| replica.like[rng.random_range(0..replica.like.len())]).collect()
    }

    /// Worker effects `[c][r]`.
    fn worker_log(&self, model: &DurationModel, all: &[Replica]) -> Vec<f64> {
        let old = model.replicas as usize;
        let compute = &model.compute;
        if compute.worker_log.is_empty() {
            return Vec::new();
        }
        let mut out = Vec::with_capacity(compute.signatures.len() * all.len());
        for (c, s) in compute.signatures.iter().enumerate() {
            for replica in all {
                let signature = s.signature;
                out.push(match (replica.own, replica.workers.get(usize::from(signature.stage))) {
                    (Some(own), _) => compute.worker_log[c * old + own],
                    (None, Some(drawn)) => {
                        self.offset_log[c] + self.law.effect(drawn, signature.kind, signature.chunk)
                    }
                    (None, None) => self.offset_log[c],
                });
            }
        }
        out
    }

    /// Step vectors `[c][r][t]`: what replicas share stays shared; a new replica's own part is that
    /// of any observed replica in any observed step, so that it is independent of all others'.
    fn step_vectors(&self, model: &DurationModel, all: &[Replica]) -> Vec<f32> {
        let Some(levels) = Levels::new(model) else { return Vec::new() };
        let steps = model.steps.len();
        let old = model.replicas as usize;
        let scales = levels.scales();
        let picks: Vec<Vec<(usize, usize)>> = all
            .iter()
            .enumerate()
            .map(|(r, replica)| {
                let mut rng = stream(self.seed, "resize-step-worker", &[r as u64]);
                let mut pick = || {
                    let like = replica.like[rng.random_range(0..replica.like.len())];
                    (like, rng.random_range(0..steps))
                };
                (0..steps).map(|_| pick()).collect()
            })
            .collect();
        let mut out = Vec::with_capacity(model.compute.signatures.len() * all.len() * steps);
        for c in 0..model.compute.signatures.len() {
            let (shared, own) = levels.scale_of(&scales, c);
            for (replica, picks) in all.iter().zip(&picks) {
                if let Some(r) = replica.own {
                    let lane = &model.compute.step_vectors_log[(c * old + r) * steps..][..steps];
                    out.extend_from_slice(lane);
                    continue;
                }
                out.extend(picks.iter().enumerate().map(|(t, &(d, at))| {
                    let rest = own * levels.replica(c, d, at) + levels.stage(c, d, at);
                    (shared * levels.shared(c, t) + rest) as f32
                }));
            }
        }
        out
    }
}

/// Values `[r][t]`, or `[r]` where they are constant over steps, on the new axis.
fn lanes(
    values: &[f32],
    old: usize,
    steps: usize,
    all: &[Replica],
    donors: &[Vec<usize>],
) -> Vec<f32> {
    if values.len() == old {
        return all.iter().map(|r| values[r.donor]).collect();
    }
    let at = |(t, d): (usize, &usize)| values[d * steps + t];
    donors.iter().flat_map(|rows| rows.iter().enumerate().map(at)).collect()
}
