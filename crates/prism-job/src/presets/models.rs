//! Models by name.

use super::{Listed, same_name};
use crate::{Attention, AttentionKind, Mlp, Model, Moe, Positions};

/// The models there are, in a fixed order.
pub fn models() -> impl Iterator<Item = Listed> {
    MODELS.iter().map(|m| Listed { name: m.name, describe: m.describe })
}

/// The model of a name; case and `_` for `-` do not matter.
pub fn model(name: &str) -> Option<Model> {
    MODELS.iter().find(|m| same_name(m.name, name)).map(Entry::model)
}

/// Generations of architecture that differ in more than size.
#[derive(Clone, Copy)]
enum Style {
    /// GPT-2's and Megatron's: learned positions, biases, two matrices, tied embeddings.
    Gpt,
    /// Llama's: rotary positions, no biases, gated, untied embeddings.
    Llama,
    /// GPT-NeoX's: rotary positions, biases, two matrices, untied embeddings.
    NeoX,
    /// BLOOM's: `ALiBi`, biases, two matrices, tied embeddings.
    Bloom,
}

struct Entry {
    name: &'static str,
    describe: &'static str,
    style: Style,
    hidden: u32,
    layers: u32,
    heads: u32,
    kv_heads: u32,
    ffn: u32,
    vocab: u32,
    dropout: bool,
    moe: Option<Moe>,
    kind: AttentionKind,
}

impl Entry {
    const fn dense(
        (name, describe): (&'static str, &'static str),
        style: Style,
        [hidden, layers, heads, kv_heads, ffn, vocab]: [u32; 6],
    ) -> Self {
        let kind = AttentionKind::Standard;
        let (dropout, moe) = (false, None);
        Entry {
            name,
            describe,
            style,
            hidden,
            layers,
            heads,
            kv_heads,
            ffn,
            vocab,
            dropout,
            moe,
            kind,
        }
    }

    /// A GPT of the Megatron papers: four times as wide inside, vocabulary 51,200, with dropout.
    const fn megatron(
        name: (&'static str, &'static str),
        [hidden, layers, heads]: [u32; 3],
    ) -> Self {
        let sizes = [hidden, layers, heads, heads, 4 * hidden, 51_200];
        let mut entry = Entry::dense(name, Style::Gpt, sizes);
        entry.dropout = true;
        entry
    }

    const fn with_experts(mut self, moe: Moe) -> Self {
        self.moe = Some(moe);
        self
    }

    fn model(&self) -> Model {
        let (positions, gated, bias, tied) = match self.style {
            Style::Gpt => (Positions::Learned, false, true, true),
            Style::Llama => (Positions::Rotary, true, false, false),
            Style::NeoX => (Positions::Rotary, false, true, false),
            Style::Bloom => (Positions::Bias, false, true, true),
        };
        let head_dim = match self.kind {
            AttentionKind::Latent { nope_dim, rope_dim, .. } => nope_dim + rope_dim,
            AttentionKind::Standard => self.hidden / self.heads,
        };
        let (heads, kv_heads) = (self.heads, self.kv_heads);
        Model {
            name: self.name.to_owned(),
            hidden_size: self.hidden,
            layers: self.layers,
            attention: Attention { heads, kv_heads, head_dim, kind: self.kind },
            mlp: Mlp { intermediate_size: self.ffn, gated },
            moe: self.moe,
            vocab_size: self.vocab,
            vocab_multiple: 128,
            tied_embeddings: tied,
            positions,
            bias,
            dropout: self.dropout,
        }
    }
}

const fn mixtral(width: u32) -> Moe {
    Moe {
        experts: 8,
        top_k: 2,
        shared_experts: 0,
        expert_intermediate_size: width,
        dense_layers: 0,
        every: 1,
    }
}

const DEEPSEEK_V3: Entry = {
    let name = ("deepseek-v3", "DeepSeek-V3 671B (arXiv 2412.19437; its config.json), without MTP");
    let mut entry = Entry::dense(name, Style::Llama, [7168, 61, 128, 128, 18_432, 129_280]);
    entry.kind = AttentionKind::Latent {
        q_rank: Some(1536),
        kv_rank: 512,
        nope_dim: 128,
        rope_dim: 64,
        v_dim: 128,
    };
    entry.with_experts(Moe {
        experts: 256,
        top_k: 8,
        shared_experts: 1,
        expert_intermediate_size: 2048,
        dense_layers: 3,
        every: 1,
    })
};

// Sources: the papers named, and the config.json files that their authors published.
const MODELS: &[Entry] = &[
    Entry::dense(
        ("gpt3-175b", "GPT-3 175B (arXiv 2005.14165, table 2.1)"),
        Style::Gpt,
        [12_288, 96, 96, 96, 49_152, 50_257],
    ),
    Entry::dense(
        ("llama-2-7b", "Llama 2 7B (arXiv 2307.09288; its config.json)"),
        Style::Llama,
        [4096, 32, 32, 32, 11_008, 32_000],
    ),
    Entry::dense(
        ("llama-2-70b", "Llama 2 70B (arXiv 2307.09288; its config.json)"),
        Style::Llama,
        [8192, 80, 64, 8, 28_672, 32_000],
    ),
    Entry::dense(
        ("llama-3.1-8b", "Llama 3.1 8B (arXiv 2407.21783, table 3; its config.json)"),
        Style::Llama,
        [4096, 32, 32, 8, 14_336, 128_256],
    ),
    Entry::dense(
        ("llama-3.1-70b", "Llama 3.1 70B (arXiv 2407.21783, table 3; its config.json)"),
        Style::Llama,
        [8192, 80, 64, 8, 28_672, 128_256],
    ),
    Entry::dense(
        ("llama-3.1-405b", "Llama 3.1 405B (arXiv 2407.21783, table 3; its config.json)"),
        Style::Llama,
        [16_384, 126, 128, 8, 53_248, 128_256],
    ),
    Entry::dense(
        ("mixtral-8x7b", "Mixtral 8x7B (arXiv 2401.04088; its config.json)"),
        Style::Llama,
        [4096, 32, 32, 8, 14_336, 32_000],
    )
    .with_experts(mixtral(14_336)),
    Entry::dense(
        ("mixtral-8x22b", "Mixtral 8x22B (its config.json)"),
        Style::Llama,
        [6144, 56, 48, 8, 16_384, 32_768],
    )
    .with_experts(mixtral(16_384)),
    DEEPSEEK_V3,
    Entry::dense(
        ("gpt-neox-20b", "GPT-NeoX-20B (arXiv 2204.06745; its config.json)"),
        Style::NeoX,
        [6144, 44, 64, 64, 24_576, 50_432],
    ),
    Entry::dense(
        ("bloom-176b", "BLOOM 176B (arXiv 2211.05100; its config.json)"),
        Style::Bloom,
        [14_336, 70, 112, 112, 57_344, 250_880],
    ),
    // arXiv 2104.04473, table 1.
    Entry::megatron(("megatron-1.7b", "GPT 1.7B of arXiv 2104.04473, table 1"), [2304, 24, 24]),
    Entry::megatron(("megatron-3.6b", "GPT 3.6B of arXiv 2104.04473, table 1"), [3072, 30, 32]),
    Entry::megatron(("megatron-7.5b", "GPT 7.5B of arXiv 2104.04473, table 1"), [4096, 36, 32]),
    Entry::megatron(("megatron-18.4b", "GPT 18.4B of arXiv 2104.04473, table 1"), [6144, 40, 48]),
    Entry::megatron(("megatron-39.1b", "GPT 39.1B of arXiv 2104.04473, table 1"), [8192, 48, 64]),
    Entry::megatron(("megatron-76.1b", "GPT 76.1B of arXiv 2104.04473, table 1"), [10_240, 60, 80]),
    Entry::megatron(
        ("megatron-145.6b", "GPT 145.6B of arXiv 2104.04473, table 1"),
        [12_288, 80, 96],
    ),
    Entry::megatron(
        ("megatron-310.1b", "GPT 310.1B of arXiv 2104.04473, table 1"),
        [16_384, 96, 128],
    ),
    // arXiv 2205.05198, table 3.
    Entry::megatron(("megatron-22b", "GPT 22B of arXiv 2205.05198, table 3"), [6144, 48, 64]),
    Entry::megatron(("megatron-175b", "GPT 175B of arXiv 2205.05198, table 3"), [12_288, 96, 96]),
    Entry::megatron(("megatron-530b", "GPT 530B of arXiv 2205.05198, table 3"), [20_480, 105, 128]),
    Entry::megatron(("megatron-1t", "GPT 1T of arXiv 2205.05198, table 3"), [25_600, 128, 160]),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Published totals. Those with four digits count the tensors of the published weights.
    #[test]
    fn parameters_are_the_published_ones() {
        let published = [
            ("gpt3-175b", 2048, 174.6e9),
            ("llama-2-7b", 4096, 6.738e9),
            ("llama-2-70b", 4096, 68.98e9),
            ("llama-3.1-8b", 8192, 8.03e9),
            ("llama-3.1-70b", 8192, 70.55e9),
            ("llama-3.1-405b", 8192, 405.9e9),
            ("mixtral-8x7b", 4096, 46.7e9),
            ("mixtral-8x22b", 4096, 140.6e9),
            ("deepseek-v3", 4096, 671.0e9),
            ("gpt-neox-20b", 2048, 20.55e9),
            ("bloom-176b", 2048, 176.25e9),
            ("megatron-1.7b", 2048, 1.7e9),
            ("megatron-3.6b", 2048, 3.6e9),
            ("megatron-7.5b", 2048, 7.5e9),
            ("megatron-18.4b", 2048, 18.4e9),
            ("megatron-39.1b", 2048, 39.1e9),
            ("megatron-76.1b", 2048, 76.1e9),
            ("megatron-145.6b", 2048, 145.6e9),
            ("megatron-310.1b", 2048, 310.1e9),
            ("megatron-22b", 2048, 22.0e9),
            ("megatron-175b", 2048, 174.6e9),
            ("megatron-530b", 2048, 529.6e9),
            ("megatron-1t", 2048, 1008.0e9),
        ];
        assert_eq!(published.len(), MODELS.len());
        for (name, seq_len, wanted) in published {
            let found = model(name).unwrap().parameters(seq_len);
            // Totals in the Megatron tables have one decimal: 1.65 is printed as 1.7.
            let tolerance = if wanted < 4e9 { 0.03 } else { 0.01 };
            assert!((found / wanted - 1.0).abs() < tolerance, "{name}: {found:e}, not {wanted:e}");
        }
    }

    #[test]
    fn deepseek_uses_37_billion_a_token() {
        let m = model("deepseek-v3").unwrap();
        let layers: f64 = (0..m.layers).map(|l| m.layer_parameters(l).1).sum();
        // The paper's 37e9 leave the input embedding out.
        let active = layers + m.head_parameters();
        assert!((active / 37e9 - 1.0).abs() < 0.02, "{active:e}");
    }

    #[test]
    fn names_are_unique_and_found_in_any_case() {
        let names: Vec<_> = models().map(|m| m.name).collect();
        let mut sorted = names.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), names.len());
        assert_eq!(model("GPT3_175B").unwrap().name, "gpt3-175b");
        assert!(model("gpt5").is_none());
    }
}
