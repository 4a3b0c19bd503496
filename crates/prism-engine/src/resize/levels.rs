//! What a step vector holds together, apart: a part that all replicas share, one of a replica, one
//! of a stage of a replica.

use prism_model::{DurationModel, OpKind};

/// Levels of a model's step vectors, in log time; they add up to the vectors.
#[derive(Clone, Debug)]
pub(super) struct Levels {
    steps: usize,
    replicas: usize,
    class_of: Vec<usize>,
    /// `[class][t]`.
    shared: Vec<Vec<f64>>,
    /// `[class][r·T + t]`.
    replica: Vec<Vec<f64>>,
    /// `[c][r·T + t]`.
    stage: Vec<Vec<f64>>,
}

impl Levels {
    /// `None` without step vectors.
    pub(super) fn new(model: &DurationModel) -> Option<Levels> {
        let compute = &model.compute;
        let (steps, replicas) = (model.steps.len(), model.replicas as usize);
        let lane = steps * replicas;
        if compute.step_vectors_log.is_empty() || lane == 0 {
            return None;
        }
        let mut kinds: Vec<OpKind> = Vec::new();
        let class_of: Vec<usize> = compute
            .signatures
            .iter()
            .map(|s| {
                kinds.iter().position(|k| *k == s.signature.kind).unwrap_or_else(|| {
                    kinds.push(s.signature.kind);
                    kinds.len() - 1
                })
            })
            .collect();
        let mut replica = vec![vec![0.0; lane]; kinds.len()];
        let mut sizes = vec![0.0; kinds.len()];
        let mut stage: Vec<Vec<f64>> = Vec::new();
        for (values, &k) in compute.step_vectors_log.chunks(lane).zip(&class_of) {
            sizes[k] += 1.0;
            for (sum, v) in replica[k].iter_mut().zip(values) {
                *sum += f64::from(*v);
            }
            stage.push(values.iter().map(|v| f64::from(*v)).collect());
        }
        let mut shared = Vec::new();
        for (lanes, size) in replica.iter_mut().zip(sizes) {
            for v in lanes.iter_mut() {
                *v /= size;
            }
            let mean = |t: usize| {
                (0..replicas).map(|r| lanes[r * steps + t]).sum::<f64>() / replicas as f64
            };
            shared.push((0..steps).map(mean).collect::<Vec<f64>>());
        }
        for (values, &k) in stage.iter_mut().zip(&class_of) {
            values.iter_mut().zip(&replica[k]).for_each(|(v, r)| *v -= r);
        }
        for (lanes, shared) in replica.iter_mut().zip(&shared) {
            lanes.iter_mut().enumerate().for_each(|(i, v)| *v -= shared[i % steps]);
        }
        Some(Levels { steps, replicas, class_of, shared, replica, stage })
    }

    pub(super) fn shared(&self, c: usize, t: usize) -> f64 {
        self.shared[self.class_of[c]][t]
    }

    pub(super) fn replica(&self, c: usize, r: usize, t: usize) -> f64 {
        self.replica[self.class_of[c]][r * self.steps + t]
    }

    pub(super) fn stage(&self, c: usize, r: usize, t: usize) -> f64 {
        self.stage[c][r * self.steps + t]
    }

    /// Factors that give the shared part, and a replica's, the variance of their effects.
    ///
    /// The mean of R replicas holds a share 1/R of their own effects' variance, and deviations from
    /// it are that much too small: both are put right for replicas that were not among the R.
    pub(super) fn scales(&self) -> Vec<(f64, f64)> {
        let r = self.replicas as f64;
        let square = |v: &[f64]| v.iter().map(|x| x * x).sum::<f64>() / v.len().max(1) as f64;
        let of = |(shared, own): (&Vec<f64>, &Vec<f64>)| {
            if self.replicas < 2 {
                return (1.0, 0.0);
            }
            let (total, own) = (square(shared), square(own));
            let left = if total > 0.0 { (1.0 - own / (r - 1.0) / total).max(0.0) } else { 0.0 };
            (left.sqrt(), (r / (r - 1.0)).sqrt())
        };
        self.shared.iter().zip(&self.replica).map(of).collect()
    }

    pub(super) fn scale_of(&self, scales: &[(f64, f64)], c: usize) -> (f64, f64) {
        scales[self.class_of[c]]
    }
}
