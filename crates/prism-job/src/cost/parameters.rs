//! Parameters of a GPU.

use std::ops::{Add, AddAssign};

use crate::{AttentionKind, Job, Mlp};

/// Parameters that a GPU holds of something, by the group over which they are sharded.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Parameters {
    /// Of matrix products outside routed experts.
    pub linear: f64,
    /// Of routed experts.
    pub experts: f64,
    /// Of embeddings, norms, routers and the output layer.
    pub other: f64,
}

impl Add for Parameters {
    type Output = Parameters;
    fn add(self, o: Parameters) -> Parameters {
        Parameters {
            linear: self.linear + o.linear,
            experts: self.experts + o.experts,
            other: self.other + o.other,
        }
    }
}

impl AddAssign for Parameters {
    fn add_assign(&mut self, other: Parameters) {
        *self = *self + other;
    }
}

impl Parameters {
    /// Those that all data-parallel ranks share.
    pub fn dense(&self) -> f64 {
        self.linear + self.other
    }
}

/// One layer, on one tensor- and expert-parallel rank.
pub fn layer_parameters(job: &Job, layer: u32) -> Parameters {
    let model = &job.model;
    let t = f64::from(job.plan.tensor_parallel);
    let mut sum =
        Parameters { linear: attention(job), experts: 0.0, other: model.norm_parameters() };
    match (model.moe, model.expert()) {
        (Some(moe), Some(expert)) if model.is_moe_layer(layer) => {
            let one = feed_forward(job, expert, t);
            sum.other += f64::from(model.hidden_size) * f64::from(moe.experts);
            sum.linear += one * f64::from(moe.shared_experts);
            sum.experts = one * f64::from(moe.experts) / f64::from(job.plan.expert_parallel);
        }
        _ => sum.linear += feed_forward(job, model.mlp, t),
    }
    sum
}

/// Matrices are split; the bias that is added to their sum is not.
fn feed_forward(job: &Job, mlp: Mlp, t: f64) -> f64 {
    let all = job.model.mlp_parameters(mlp);
    let whole = if job.model.bias { f64::from(job.model.hidden_size) } else { 0.0 };
    (all - whole) / t + whole
}

fn attention(job: &Job) -> f64 {
    let model = &job.model;
    let (h, t) = (f64::from(model.hidden_size), f64::from(job.plan.tensor_parallel));
    let heads = f64::from(model.attention.heads) / t;
    match model.attention.kind {
        AttentionKind::Standard => {
            let d = f64::from(model.attention.head_dim);
            // Fewer key and value heads than ranks are copied to all.
            let kv = (f64::from(model.attention.kv_heads) / t).max(1.0);
            let bias = if model.bias { (heads + 2.0 * kv) * d + h } else { 0.0 };
            h * d * (2.0 * heads + 2.0 * kv) + bias
        }
        AttentionKind::Latent { q_rank, kv_rank, nope_dim, rope_dim, v_dim } => {
            // Compression, and the norm after it, are on every rank.
            let (rank, v) = (f64::from(kv_rank), f64::from(v_dim));
            let qk = f64::from(nope_dim) + f64::from(rope_dim);
            let q = q_rank.map_or(h * heads * qk, |r| f64::from(r) * (h + 1.0 + heads * qk));
            let kv =
                h * (rank + f64::from(rope_dim)) + rank * (1.0 + heads * (f64::from(nope_dim) + v));
            q + kv + heads * v * h
        }
    }
}

/// Vocabulary as the job stores it: padded to a multiple of `vocab_multiple` on each rank.
pub(super) fn padded_vocabulary(job: &Job) -> f64 {
    let multiple =
        f64::from(job.model.vocab_multiple.max(1)) * f64::from(job.plan.tensor_parallel.max(1));
    (f64::from(job.model.vocab_size) / multiple).ceil() * multiple
}

/// Embedding and output layer on a tensor-parallel rank, of what holds the model's first piece, its last,
/// both or none. `shared`: a tied output layer uses the embedding that is on the same stage, else a copy.
pub fn end_parameters(job: &Job, first: bool, last: bool, shared: bool) -> Parameters {
    let (model, t) = (&job.model, f64::from(job.plan.tensor_parallel));
    let h = f64::from(model.hidden_size);
    let words = h * padded_vocabulary(job) / t;
    let mut other = 0.0;
    if first {
        // Positions are on every rank.
        other += words + model.embedding_parameters(job.training.seq_len)
            - h * f64::from(model.vocab_size);
    }
    if last {
        let copied = !(model.tied_embeddings && shared);
        other += model.norm_parameters() / 2.0 + if copied { words } else { 0.0 };
    }
    Parameters { other, ..Parameters::default() }
}
