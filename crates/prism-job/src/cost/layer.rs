//! Forward and backward of one layer for one microbatch on one GPU.

use prism_model::KernelClass;

use super::collective::{CollectiveKind, Group, collective};
use super::kernel::{Gemm, fused_attention_s, stream_s};
use super::pass::{Pass, Passes};
use crate::{Attention, AttentionKernel, AttentionKind, Job, Mlp, Moe, Plan, Precision, Recompute};

/// What a layer's cost depends on besides its own shape.
pub(super) struct Context<'a> {
    pub job: &'a Job,
    /// Tokens of a microbatch on one context-parallel rank.
    pub tokens: f64,
    /// Tensor-parallel ranks.
    pub t: f64,
    /// Context-parallel ranks.
    pub cp: f64,
    /// Mean over query tokens of the key tokens they see, over the sequence length: 1/2 for one causal
    /// document, less where documents are packed.
    pub visible: f64,
}

/// A linear layer's part in tensor parallelism.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Split {
    /// Output columns: its input gradient is reduced.
    Column,
    /// Input rows: its output is reduced.
    Row,
}

impl<'a> Context<'a> {
    pub(super) fn new(job: &'a Job) -> Context<'a> {
        let (plan, training) = (&job.plan, &job.training);
        let cp = f64::from(plan.context_parallel.max(1));
        let tokens = f64::from(training.micro_batch_size) * f64::from(training.seq_len) / cp;
        let t = f64::from(plan.tensor_parallel.max(1));
        Context { job, tokens, t, cp, visible: visible_share(job) }
    }

    fn plan(&self) -> &Plan {
        &self.job.plan
    }

    /// Tokens of what lies between tensor-parallel regions.
    fn spread_tokens(&self) -> f64 {
        if self.plan().sequence_parallel { self.tokens / self.t } else { self.tokens }
    }

    fn hidden(&self) -> f64 {
        f64::from(self.job.model.hidden_size)
    }

    fn stream(&self, pass: &mut Pass, bytes: f64) {
        pass.kernel(KernelClass::Memory, stream_s(bytes, &self.job.cluster), 0.0);
    }

    fn gemm(&self, pass: &mut Pass, gemm: Gemm, precision: Precision) -> f64 {
        let seconds = gemm.seconds(&self.job.cluster, precision);
        pass.kernel(KernelClass::Compute, seconds, gemm.flops());
        seconds
    }

    fn tensor_group(&self) -> Group {
        Group { ranks: u64::from(self.plan().tensor_parallel), stride: 1 }
    }

    /// Seconds of the collective that joins a tensor-parallel region of `[tokens, hidden]`.
    fn join_s(&self, kind: CollectiveKind) -> f64 {
        let bytes = 2.0 * self.tokens * self.hidden();
        collective(kind, bytes, self.tensor_group(), &self.job.cluster).seconds
    }

    /// Enters a tensor-parallel region in the forward pass: a gather under sequence parallelism.
    fn enter(&self, pass: &mut Pass) {
        if self.plan().sequence_parallel {
            pass.tensor_parallel_s += self.exposed(self.join_s(CollectiveKind::AllGather));
        }
    }

    /// Leaves it: a reduction.
    fn leave(&self, pass: &mut Pass) {
        let kind = if self.plan().sequence_parallel {
            CollectiveKind::ReduceScatter
        } else {
            CollectiveKind::AllReduce
        };
        pass.tensor_parallel_s += self.exposed(self.join_s(kind));
    }

    /// The part of a tensor-parallel collective that is not hidden: all of it, or, where it is cut
    /// into pieces that run beside the product they belong to, the first of four pieces.
    fn exposed(&self, seconds: f64) -> f64 {
        if self.plan().overlap.tensor_parallel { seconds / 4.0 } else { seconds }
    }

    /// A linear layer `[tokens, k] x [k, n]`, `k` and `n` as this rank has them.
    fn linear(&self, passes: &mut Passes, n: f64, k: f64, split: Split) {
        self.linear_of(passes, Gemm::new(self.tokens, n, k), split);
    }

    fn linear_of(&self, passes: &mut Passes, gemm: Gemm, split: Split) {
        let precision = self.plan().precision;
        let gemm = match precision {
            Precision::Fp8 => Gemm { operand_bytes: 1.0, ..gemm },
            Precision::Bf16 => gemm,
        };
        if precision == Precision::Fp8 {
            // Operands are cast, and kept transposed for the weight gradient: read 2, write 1 + 1.
            self.stream(&mut passes.forward, gemm.batch * gemm.m * gemm.k * 4.0);
            self.stream(&mut passes.backward, gemm.batch * gemm.m * gemm.n * 4.0);
        }
        self.gemm(&mut passes.forward, gemm, precision);
        self.gemm(&mut passes.backward, gemm.input_gradient(), precision);
        let weight = self.gemm(&mut passes.weight, gemm.weight_gradient(), precision);
        if split == Split::Column && self.t > 1.0 {
            // The input gradient's reduction runs beside the weight gradient.
            let kind = if self.plan().sequence_parallel {
                CollectiveKind::ReduceScatter
            } else {
                CollectiveKind::AllReduce
            };
            passes.backward.tensor_parallel_s += (self.join_s(kind) - weight).max(0.0);
        }
        if split == Split::Row && self.plan().sequence_parallel && self.t > 1.0 {
            passes.backward.tensor_parallel_s +=
                self.exposed(self.join_s(CollectiveKind::AllGather));
        }
    }

    /// Layer norm; `[tokens, hidden]` read and written, twice read backward.
    fn norm(&self, passes: &mut Passes) {
        let elements = self.spread_tokens() * self.hidden();
        self.stream(&mut passes.forward, 4.0 * elements);
        self.stream(&mut passes.backward, 6.0 * elements);
    }

    /// Bias, dropout and residual sum after a block.
    fn residual(&self, passes: &mut Passes) {
        let elements = self.spread_tokens() * self.hidden();
        let mask = if self.job.model.dropout { 1.0 } else { 0.0 };
        self.stream(&mut passes.forward, (6.0 + mask) * elements);
        if self.job.model.dropout {
            self.stream(&mut passes.backward, (4.0 + mask) * elements);
        }
        // The gradient of the residual branch is added.
        self.stream(&mut passes.backward, 6.0 * elements);
    }

    /// All of layer `layer`.
    pub(super) fn layer(&self, layer: u32) -> Passes {
        let model = &self.job.model;
        let mut passes = Passes::default();
        let mut core = Pass::default();
        self.norm(&mut passes);
        self.attention(&mut passes, &mut core, model.attention);
        self.residual(&mut passes);
        self.norm(&mut passes);
        if let (Some(moe), true) = (model.moe, model.is_moe_layer(layer)) {
            self.experts(&mut passes, moe);
        } else {
            self.enter(&mut passes.forward);
            self.mlp(&mut passes, model.mlp);
            self.leave(&mut passes.forward);
        }
        self.residual(&mut passes);
        match self.plan().recompute {
            Recompute::None => {}
            Recompute::Selective => passes.recompute = core,
            Recompute::Full => passes.recompute = passes.forward,
        }
        passes
    }

    /// A dense feed-forward block between entering and leaving the tensor-parallel region.
    fn mlp(&self, passes: &mut Passes, mlp: Mlp) {
        let inner = f64::from(mlp.intermediate_size) / self.t;
        self.mlp_of(passes, Gemm::new(self.tokens, inner, self.hidden()), mlp.gated, true);
    }

    /// A feed-forward block whose first matrix is `up` (one of two where gated); `joined`: with the
    /// tensor-parallel collectives of its own.
    fn mlp_of(&self, passes: &mut Passes, up: Gemm, gated: bool, joined: bool) {
        let elements = up.batch * up.m * up.n;
        let (inputs, wide) = if gated { (2.0, 2.0) } else { (1.0, 1.0) };
        let first = Gemm { n: wide * up.n, ..up };
        let down = Gemm { n: up.k, k: up.n, ..up };
        if joined {
            self.linear_of(passes, first, Split::Column);
        } else {
            self.linear_alone(passes, first);
        }
        self.stream(&mut passes.forward, 2.0 * elements * (inputs + 1.0));
        self.stream(&mut passes.backward, 2.0 * elements * (2.0 * inputs + 1.0));
        if joined {
            self.linear_of(passes, down, Split::Row);
        } else {
            self.linear_alone(passes, down);
        }
    }

    /// A linear layer without tensor-parallel collectives of its own.
    fn linear_alone(&self, passes: &mut Passes, gemm: Gemm) {
        let precision = self.plan().precision;
        self.gemm(&mut passes.forward, gemm, precision);
        self.gemm(&mut passes.backward, gemm.input_gradient(), precision);
        self.gemm(&mut passes.weight, gemm.weight_gradient(), precision);
    }

    /// Router, dispatch, experts, combination. Load is taken as even.
    fn experts(&self, passes: &mut Passes, moe: Moe) {
        let ep = f64::from(self.plan().expert_parallel.max(1));
        let experts = f64::from(moe.experts);
        let tokens = self.tokens;
        let router = Gemm::new(self.spread_tokens(), experts, self.hidden());
        self.linear_alone(passes, router);
        // Permute to experts and back: read and write every copy of a token.
        let copies = self.spread_tokens() * f64::from(moe.top_k);
        for _ in 0..2 {
            self.stream(&mut passes.forward, 4.0 * copies * self.hidden());
            self.stream(&mut passes.backward, 4.0 * copies * self.hidden());
        }
        let group = Group {
            ranks: u64::from(self.plan().expert_parallel),
            stride: u64::from(self.plan().tensor_parallel),
        };
        let bytes = 2.0 * copies * self.hidden();
        let exchange =
            collective(CollectiveKind::AllToAll, bytes, group, &self.job.cluster).seconds;
        passes.forward.expert_parallel_s += 2.0 * exchange;
        passes.backward.expert_parallel_s += 2.0 * exchange;
        self.enter(&mut passes.forward);
        let each = tokens * f64::from(moe.top_k) * ep / experts;
        let up = Gemm {
            batch: experts / ep,
            ..Gemm::new(each, f64::from(moe.expert_intermediate_size) / self.t, self.hidden())
        };
        self.mlp_of(passes, up, self.job.model.mlp.gated, true);
        if moe.shared_experts > 0 {
            let inner =
                f64::from(moe.shared_experts) * f64::from(moe.expert_intermediate_size) / self.t;
            let shared = Gemm::new(tokens, inner, self.hidden());
            self.mlp_of(passes, shared, self.job.model.mlp.gated, false);
        }
        self.leave(&mut passes.forward);
    }

    /// Attention block; `core` gets what selective recomputation computes again.
    fn attention(&self, passes: &mut Passes, core: &mut Pass, attention: Attention) {
        let h = self.hidden();
        self.enter(&mut passes.forward);
        let dims = Dims::of(attention, self.t);
        match attention.kind {
            AttentionKind::Standard => {
                let width = dims.heads * dims.qk + dims.kv_heads * (dims.qk + dims.v);
                self.linear(passes, width, h, Split::Column);
            }
            AttentionKind::Latent { q_rank, kv_rank, rope_dim, nope_dim, .. } => {
                // Down-projections are the same on every tensor-parallel rank.
                let shared = Gemm::new(self.spread_tokens(), 0.0, h);
                let (rank, rope) = (f64::from(kv_rank), f64::from(rope_dim));
                let width = q_rank.map_or(rank + rope, |r| f64::from(r) + rank + rope);
                self.linear_alone(passes, Gemm { n: width, ..shared });
                let queries = dims.heads * dims.qk;
                self.linear(passes, queries, q_rank.map_or(h, f64::from), Split::Column);
                let keys = dims.heads * (f64::from(nope_dim) + dims.v);
                self.linear(passes, keys, rank, Split::Column);
            }
        }
        self.arrange(passes, &dims);
        self.core(passes, core, &dims);
        self.linear(passes, h, dims.heads * dims.v, Split::Row);
        self.leave(&mut passes.forward);
    }

    /// Rotary positions and transposes of queries, keys and values.
    fn arrange(&self, passes: &mut Passes, dims: &Dims) {
        let elements = self.tokens * (dims.heads * dims.qk + dims.kv_heads * (dims.qk + dims.v));
        for pass in [&mut passes.forward, &mut passes.backward] {
            self.stream(pass, 4.0 * elements);
        }
    }

    /// Scores, softmax, weighted values.
    fn core(&self, passes: &mut Passes, core: &mut Pass, dims: &Dims) {
        let seq = f64::from(self.job.training.seq_len);
        let sequences = self.tokens * self.cp / seq;
        match self.plan().attention_kernel {
            AttentionKernel::Flash => {
                let pairs = self.tokens * seq * self.visible * dims.heads;
                let flops = 2.0 * pairs * (dims.qk + dims.v);
                let bytes = 2.0
                    * self.tokens
                    * (dims.heads * (dims.qk + dims.v) + dims.kv_heads * (dims.qk + dims.v));
                let cluster = &self.job.cluster;
                let forward = fused_attention_s(flops, bytes, cluster);
                // Scores are computed again, then four products.
                let backward = fused_attention_s(2.5 * flops, 2.0 * bytes, cluster);
                passes.forward.kernel(KernelClass::Compute, forward, flops);
                passes.backward.kernel(KernelClass::Compute, backward, 2.5 * flops);
                core.kernel(KernelClass::Compute, forward, flops);
                self.ring(passes, dims, forward, backward);
            }
            AttentionKernel::Unfused => {
                let batch = sequences * dims.heads / self.cp;
                let scores = Gemm { batch, ..Gemm::new(seq, seq, dims.qk) };
                let values = Gemm { batch, ..Gemm::new(seq, dims.v, seq) };
                let elements = batch * seq * seq;
                let dropout = self.job.model.dropout;
                let mut forward = Pass::default();
                self.gemm(&mut forward, scores, Precision::Bf16);
                self.stream(&mut forward, 4.0 * elements);
                if dropout {
                    self.stream(&mut forward, 5.0 * elements);
                }
                self.gemm(&mut forward, values, Precision::Bf16);
                for gemm in [scores, values] {
                    self.gemm(&mut passes.backward, gemm.input_gradient(), Precision::Bf16);
                    let other = Gemm { m: gemm.k, k: gemm.m, ..gemm };
                    self.gemm(&mut passes.backward, other, Precision::Bf16);
                }
                if dropout {
                    self.stream(&mut passes.backward, 5.0 * elements);
                }
                self.stream(&mut passes.backward, 6.0 * elements);
                passes.forward.add(&forward);
                core.add(&forward);
            }
        }
    }

    /// Keys and values go around the context-parallel ring while attention runs on the last ones.
    fn ring(&self, passes: &mut Passes, dims: &Dims, forward_s: f64, backward_s: f64) {
        if self.cp <= 1.0 {
            return;
        }
        let (cluster, plan) = (&self.job.cluster, self.plan());
        let bytes = 2.0 * self.tokens * dims.kv_heads * (dims.qk + dims.v);
        let span = u64::from(plan.tensor_parallel) * u64::from(plan.context_parallel);
        let hop = super::collective::send_s(bytes, span, cluster);
        let steps = self.cp - 1.0;
        passes.forward.context_parallel_s += steps * (hop - forward_s / self.cp).max(0.0);
        // Backward, their gradients travel too.
        let both = super::collective::send_s(2.0 * bytes, span, cluster);
        passes.backward.context_parallel_s += steps * (both - backward_s / self.cp).max(0.0);
    }
}

/// Heads and widths on one tensor-parallel rank.
struct Dims {
    heads: f64,
    kv_heads: f64,
    qk: f64,
    v: f64,
}

impl Dims {
    fn of(attention: Attention, t: f64) -> Dims {
        let heads = f64::from(attention.heads) / t;
        match attention.kind {
            AttentionKind::Standard => {
                let d = f64::from(attention.head_dim);
                // Fewer key heads than ranks: each rank keeps a copy.
                let kv_heads = (f64::from(attention.kv_heads) / t).max(1.0);
                Dims { heads, kv_heads, qk: d, v: d }
            }
            AttentionKind::Latent { nope_dim, rope_dim, v_dim, .. } => Dims {
                heads,
                kv_heads: heads,
                qk: f64::from(nope_dim) + f64::from(rope_dim),
                v: f64::from(v_dim),
            },
        }
    }
}

/// Mean share of the sequence that a token attends to.
fn visible_share(job: &Job) -> f64 {
    match job.training.sequences {
        Some(s) if s.packed => {
            // Pairs inside documents: E[L²] / (2 E[L] S).
            let seq = job.training.seq_len;
            s.moment(2, seq) / (2.0 * s.moment(1, seq) * f64::from(seq))
        }
        _ => 0.5,
    }
}
