//! Which tensors a layer keeps for its backward pass.
//!
//! For a layer with dropout, biases and two-matrix feed-forward block the sums are those of
//! Korthikanti et al. 2022 (arXiv 2205.05198, table 2); s tokens, b sequences, h width, a heads, t
//! tensor-parallel ranks:
//!
//! | | bytes |
//! |---|---|
//! | one GPU | sbh(34 + 5as/h) |
//! | tensor parallel | sbh(10 + 24/t + 5as/(ht)) |
//! | and sequence parallel | sbh(34/t + 5as/(ht)) |
//! | and selective recomputation | sbh 34/t |
//! | full recomputation | 2sbh, with sequence parallel 2sbh/t |
//!
//! Other layers follow from the same rule: what a derivative needs is kept, once.

use prism_job::{AttentionKernel, AttentionKind, Job, Mlp, Precision, Recompute};

/// How a tensor is spread over a tensor-parallel group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Split {
    /// By heads or columns.
    Parallel,
    /// Along the sequence under sequence parallelism; otherwise every rank has all of it.
    Sequence,
    /// Every rank has all of it.
    None,
}

/// A tensor that is kept from a microbatch's forward to its backward.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StoredTensor {
    /// What it is.
    pub name: &'static str,
    /// Bytes of a GPU and microbatch.
    pub bytes: f64,
    /// Whether selective recomputation drops it: it belongs to the core of attention.
    pub core: bool,
}

/// The sizes that the tables are built from, per GPU.
pub(crate) struct Sizes<'a> {
    job: &'a Job,
    /// Tokens of a microbatch on a context-parallel rank.
    pub(crate) tokens: f64,
    t: f64,
    /// Bytes of an element of 16-bit arithmetic.
    half: f64,
    /// Bytes of an element of a matrix product's input, kept for the weights' gradient.
    input: f64,
}

impl<'a> Sizes<'a> {
    pub(crate) fn new(job: &'a Job) -> Sizes<'a> {
        let tokens = f64::from(job.training.seq_len) * f64::from(job.training.micro_batch_size)
            / f64::from(job.plan.context_parallel);
        let input = if job.plan.precision == Precision::Fp8 { 1.0 } else { 2.0 };
        Sizes { job, tokens, t: f64::from(job.plan.tensor_parallel), half: 2.0, input }
    }

    fn h(&self) -> f64 {
        f64::from(self.job.model.hidden_size)
    }

    fn tensor(&self, name: &'static str, width: f64, bytes: f64, split: Split) -> StoredTensor {
        let ranks = match split {
            Split::Parallel => self.t,
            Split::Sequence if self.job.plan.sequence_parallel => self.t,
            Split::Sequence | Split::None => 1.0,
        };
        StoredTensor { name, bytes: self.tokens * width * bytes / ranks, core: false }
    }

    /// The layer's input: all that full recomputation keeps.
    pub(crate) fn layer_input(&self) -> StoredTensor {
        self.tensor("input of the first norm", self.h(), self.half, Split::Sequence)
    }

    fn mask(&self, name: &'static str) -> Option<StoredTensor> {
        self.job.model.dropout.then(|| self.tensor(name, self.h(), 1.0, Split::Sequence))
    }

    fn attention(&self) -> Vec<StoredTensor> {
        let a = self.job.model.attention;
        let heads = f64::from(a.heads);
        let mut tensors = vec![self.layer_input()];
        tensors.push(self.tensor(
            "input of the projections",
            self.h(),
            self.input,
            Split::Sequence,
        ));
        let out = match a.kind {
            AttentionKind::Standard => {
                let d = f64::from(a.head_dim);
                // Fewer key and value heads than ranks are copied to all.
                let kv = f64::from(a.kv_heads).max(self.t) * d;
                tensors.push(self.tensor("queries", heads * d, self.half, Split::Parallel));
                tensors.push(self.tensor("keys", kv, self.half, Split::Parallel));
                tensors.push(self.tensor("values", kv, self.half, Split::Parallel));
                heads * d
            }
            AttentionKind::Latent { q_rank, kv_rank, nope_dim, rope_dim, v_dim } => {
                let qk = heads * f64::from(nope_dim + rope_dim);
                let mut latent = |before: &'static str, after: &'static str, rank: u32| {
                    let rank = f64::from(rank);
                    tensors.push(self.tensor(before, rank, self.half, Split::Sequence));
                    tensors.push(self.tensor(after, rank, self.input, Split::Sequence));
                };
                if let Some(rank) = q_rank {
                    latent("compressed queries", "normed compressed queries", rank);
                }
                latent("compressed keys and values", "normed compressed keys and values", kv_rank);
                tensors.push(self.tensor("queries", qk, self.half, Split::Parallel));
                tensors.push(self.tensor("keys", qk, self.half, Split::Parallel));
                let v = heads * f64::from(v_dim);
                tensors.push(self.tensor("values", v, self.half, Split::Parallel));
                v
            }
        };
        tensors.extend(self.core(heads, out));
        tensors.extend(self.mask("dropout mask after attention"));
        tensors
    }

    /// The core of attention and its output.
    fn core(&self, heads: f64, out: f64) -> Vec<StoredTensor> {
        let core = |tensor: StoredTensor| StoredTensor { core: true, ..tensor };
        let output = "output of attention";
        match self.job.plan.attention_kernel {
            AttentionKernel::Flash => {
                // The kernel keeps its output; an 8-bit product keeps a copy of its own.
                let mut tensors = vec![self.tensor(output, out, self.half, Split::Parallel)];
                if self.job.plan.precision == Precision::Fp8 {
                    let name = "8-bit output of attention";
                    tensors.push(self.tensor(name, out, self.input, Split::Parallel));
                }
                tensors.push(core(self.tensor("log-sum-exp", heads, 4.0, Split::Parallel)));
                tensors
            }
            AttentionKernel::Unfused => {
                let row = heads * f64::from(self.job.training.seq_len);
                let mut tensors = vec![
                    self.tensor(output, out, self.input, Split::Parallel),
                    core(self.tensor("softmax", row, self.half, Split::Parallel)),
                ];
                if self.job.model.dropout {
                    let mask = self.tensor("softmax dropout mask", row, 1.0, Split::Parallel);
                    let name = "softmax after dropout";
                    tensors.push(core(mask));
                    tensors.push(core(self.tensor(name, row, self.half, Split::Parallel)));
                }
                tensors
            }
        }
    }

    /// A feed-forward block's tensors inside, for `times` visits of a token.
    fn block(&self, mlp: Mlp, times: f64, names: [&'static str; 2]) -> [StoredTensor; 2] {
        let f = times * f64::from(mlp.intermediate_size);
        let into = if mlp.gated { 2.0 } else { 1.0 } * f;
        [
            self.tensor(names[0], into, self.half, Split::Parallel),
            self.tensor(names[1], f, self.input, Split::Parallel),
        ]
    }

    fn feed_forward(&self, layer: u32) -> Vec<StoredTensor> {
        let model = &self.job.model;
        let mut tensors =
            vec![self.tensor("input of the second norm", self.h(), self.half, Split::Sequence)];
        let input = "input of the feed-forward block";
        match (model.moe, model.expert()) {
            (Some(moe), Some(expert)) if model.is_moe_layer(layer) => {
                let k = f64::from(moe.top_k);
                // The router computes in 16 bits whatever the experts do.
                tensors.push(self.tensor(input, self.h(), self.half, Split::Sequence));
                let scores = f64::from(moe.experts);
                tensors.push(self.tensor("router scores", scores, 4.0, Split::Sequence));
                // Every rank of an expert's tensor-parallel group has all tokens routed to it.
                tensors.push(self.tensor(
                    "dispatched tokens",
                    k * self.h(),
                    self.input,
                    Split::None,
                ));
                let names = ["experts before activation", "experts after activation"];
                tensors.extend(self.block(expert, k, names));
                tensors.push(self.tensor(
                    "outputs of experts",
                    k * self.h(),
                    self.half,
                    Split::Sequence,
                ));
                if moe.shared_experts > 0 {
                    let n = f64::from(moe.shared_experts);
                    let names =
                        ["shared experts before activation", "shared experts after activation"];
                    tensors.extend(self.block(expert, n, names));
                }
            }
            _ => {
                tensors.push(self.tensor(input, self.h(), self.input, Split::Sequence));
                tensors.extend(self.block(
                    model.mlp,
                    1.0,
                    ["before activation", "after activation"],
                ));
            }
        }
        tensors.extend(self.mask("dropout mask after the feed-forward block"));
        tensors
    }

    /// All that a layer computes with; nothing is recomputed.
    pub(crate) fn layer(&self, layer: u32) -> Vec<StoredTensor> {
        let mut tensors = self.attention();
        tensors.extend(self.feed_forward(layer));
        tensors
    }

    /// What the embedding keeps: token ids, and a mask.
    pub(crate) fn embedding(&self) -> Vec<StoredTensor> {
        let mut tensors = vec![self.tensor("token ids", 1.0, 8.0, Split::None)];
        tensors.extend(self.mask("dropout mask after the embedding"));
        tensors
    }

    /// What the last norm and the output layer keep for their weights' gradients.
    pub(crate) fn head(&self) -> Vec<StoredTensor> {
        vec![
            self.tensor("input of the last norm", self.h(), self.half, Split::Sequence),
            self.tensor("input of the output layer", self.h(), self.half, Split::Sequence),
        ]
    }

    /// Logits of `bytes` an element.
    pub(crate) fn logits(&self, bytes: f64) -> StoredTensor {
        self.tensor("logits", f64::from(self.job.model.vocab_size), bytes, Split::Parallel)
    }
}

/// The tensors that a layer stores for each microbatch in flight, under the plan's recomputation.
pub fn layer_tensors(job: &Job, layer: u32) -> Vec<StoredTensor> {
    let sizes = Sizes::new(job);
    match job.plan.recompute {
        Recompute::None => sizes.layer(layer),
        Recompute::Selective => sizes.layer(layer).into_iter().filter(|t| !t.core).collect(),
        Recompute::Full => vec![sizes.layer_input()],
    }
}

/// Sum of bytes.
pub(crate) fn total(tensors: &[StoredTensor]) -> f64 {
    tensors.iter().map(|t| t.bytes).sum()
}
