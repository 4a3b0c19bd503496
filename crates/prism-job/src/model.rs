//! Transformers, as far as their cost goes.

/// A decoder-only transformer.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Name for reports.
    pub name: String,
    /// Width of the residual stream.
    pub hidden_size: u32,
    /// Transformer layers.
    pub layers: u32,
    /// Attention block.
    pub attention: Attention,
    /// Feed-forward block of a dense layer.
    pub mlp: Mlp,
    /// Mixture of experts, which replaces the feed-forward block in some layers.
    pub moe: Option<Moe>,
    /// Vocabulary before padding.
    pub vocab_size: u32,
    /// The vocabulary is padded to a multiple of this on each tensor-parallel rank (Megatron's
    /// `--make-vocab-size-divisible-by`, 128); 1: it is not padded.
    pub vocab_multiple: u32,
    /// Whether the output layer shares the input embedding's weights.
    pub tied_embeddings: bool,
    /// How positions enter.
    pub positions: Positions,
    /// Whether linear layers have biases.
    pub bias: bool,
    /// Dropout in the blocks (costs memory traffic and masks); false in most models since 2022.
    pub dropout: bool,
}

/// How positions enter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Positions {
    /// A table of learned vectors, one per position.
    Learned,
    /// Rotated queries and keys.
    Rotary,
    /// Added to attention scores (`ALiBi`), or none.
    Bias,
}

/// The attention block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attention {
    /// Query heads.
    pub heads: u32,
    /// Key and value heads: `heads` for multi-head, fewer for grouped-query attention.
    pub kv_heads: u32,
    /// Width of a head.
    pub head_dim: u32,
    /// Ordinary, or with compressed keys and values.
    pub kind: AttentionKind,
}

/// Ordinary or latent attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttentionKind {
    /// Multi-head or grouped-query.
    Standard,
    /// Multi-head latent attention (`DeepSeek`-V2, -V3).
    Latent {
        /// Rank of the compressed queries; `None` where they are not compressed.
        q_rank: Option<u32>,
        /// Rank of the compressed keys and values.
        kv_rank: u32,
        /// Part of a head without position.
        nope_dim: u32,
        /// Part of a head with rotary position, shared by the keys of all heads.
        rope_dim: u32,
        /// Width of a value head.
        v_dim: u32,
    },
}

/// A feed-forward block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mlp {
    /// Inner width.
    pub intermediate_size: u32,
    /// Whether it is gated (`SwiGLU`): three matrices rather than two.
    pub gated: bool,
}

/// A mixture of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moe {
    /// Routed experts of a layer.
    pub experts: u32,
    /// Routed experts that a token visits.
    pub top_k: u32,
    /// Experts that every token visits.
    pub shared_experts: u32,
    /// Inner width of an expert.
    pub expert_intermediate_size: u32,
    /// Leading layers that stay dense.
    pub dense_layers: u32,
    /// Of the rest, every how many-th layer has experts.
    pub every: u32,
}

impl Model {
    /// Whether a layer has experts.
    pub fn is_moe_layer(&self, layer: u32) -> bool {
        self.moe.is_some_and(|m| {
            layer >= m.dense_layers && (layer - m.dense_layers).is_multiple_of(m.every.max(1))
        })
    }

    /// Parameters of the attention block of a layer.
    pub fn attention_parameters(&self) -> f64 {
        let h = f64::from(self.hidden_size);
        let a = &self.attention;
        let (heads, kv) = (f64::from(a.heads), f64::from(a.kv_heads));
        match a.kind {
            AttentionKind::Standard => {
                let d = f64::from(a.head_dim);
                let bias = if self.bias { (heads + 2.0 * kv) * d + h } else { 0.0 };
                h * d * (2.0 * heads + 2.0 * kv) + bias
            }
            AttentionKind::Latent { q_rank, kv_rank, nope_dim, rope_dim, v_dim } => {
                let (rank, nope) = (f64::from(kv_rank), f64::from(nope_dim));
                let (rope, v) = (f64::from(rope_dim), f64::from(v_dim));
                let q = q_rank.map_or(h * heads * (nope + rope), |r| {
                    f64::from(r) * (h + 1.0 + heads * (nope + rope))
                });
                q + h * (rank + rope) + rank * (1.0 + heads * (nope + v)) + heads * v * h
            }
        }
    }

    /// Parameters of a feed-forward block.
    pub fn mlp_parameters(&self, mlp: Mlp) -> f64 {
        let (h, f) = (f64::from(self.hidden_size), f64::from(mlp.intermediate_size));
        let matrices = if mlp.gated { 3.0 } else { 2.0 };
        let bias = if self.bias { f * (matrices - 1.0) + h } else { 0.0 };
        matrices * h * f + bias
    }

    /// A routed or shared expert as a feed-forward block.
    pub fn expert(&self) -> Option<Mlp> {
        self.moe
            .map(|m| Mlp { intermediate_size: m.expert_intermediate_size, gated: self.mlp.gated })
    }

    /// Parameters of the two norms of a layer.
    pub fn norm_parameters(&self) -> f64 {
        f64::from(self.hidden_size) * if self.bias { 4.0 } else { 2.0 }
    }

    /// Parameters of a layer: all of them, and those that a token uses.
    pub fn layer_parameters(&self, layer: u32) -> (f64, f64) {
        let base = self.attention_parameters() + self.norm_parameters();
        match (self.moe, self.expert()) {
            (Some(moe), Some(expert)) if self.is_moe_layer(layer) => {
                let one = self.mlp_parameters(expert);
                let router = f64::from(self.hidden_size) * f64::from(moe.experts);
                let shared = base + router + one * f64::from(moe.shared_experts);
                (shared + one * f64::from(moe.experts), shared + one * f64::from(moe.top_k))
            }
            _ => {
                let all = base + self.mlp_parameters(self.mlp);
                (all, all)
            }
        }
    }

    /// Parameters of the input embedding, positions included.
    pub fn embedding_parameters(&self, seq_len: u32) -> f64 {
        let positions = if self.positions == Positions::Learned { f64::from(seq_len) } else { 0.0 };
        f64::from(self.hidden_size) * (f64::from(self.vocab_size) + positions)
    }

    /// Parameters of the output layer and the last norm; the output layer's are 0 where it shares the
    /// embedding's.
    pub fn head_parameters(&self) -> f64 {
        let norm = self.norm_parameters() / 2.0;
        let h = f64::from(self.hidden_size);
        if self.tied_embeddings { norm } else { norm + h * f64::from(self.vocab_size) }
    }

    /// All parameters.
    pub fn parameters(&self, seq_len: u32) -> f64 {
        let layers: f64 = (0..self.layers).map(|l| self.layer_parameters(l).0).sum();
        layers + self.embedding_parameters(seq_len) + self.head_parameters()
    }
}
