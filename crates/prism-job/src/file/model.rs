//! The section `[model]`.

use std::path::Path;

use super::raw::{RawModel, RawPositions};
use super::resolve::Resolver;
use crate::import::hugging_face_model;
use crate::{Attention, AttentionKind, Mlp, Model, Moe, Positions, presets};

/// Longest `config.json` that is read, bytes; published ones have a few thousand.
const LONGEST_CONFIG: u64 = 4 << 20;

pub(super) fn resolve(r: &mut Resolver, raw: &RawModel, folder: &Path) -> Model {
    let base = base(r, raw, folder);
    let known = base.is_some();
    let b = base.as_ref();
    let hidden_size =
        r.need(raw.hidden_size.or(b.map(|m| m.hidden_size)), "model.hidden_size", "a width");
    let layers =
        r.need(raw.num_hidden_layers.or(b.map(|m| m.layers)), "model.num_hidden_layers", "layers");
    let vocab_size =
        r.need(raw.vocab_size.or(b.map(|m| m.vocab_size)), "model.vocab_size", "tokens");
    let attention = attention(r, raw, b, hidden_size);
    let moe = experts(r, raw, b);
    let inner = raw.intermediate_size.or(b.map(|m| m.mlp.intermediate_size));
    let all_experts = moe.is_some_and(|m| m.dense_layers == 0 && m.every == 1);
    // Where every layer has experts, the dense block's width is never used.
    let inner = inner.or(moe.filter(|_| all_experts).map(|m| m.expert_intermediate_size));
    let inner = r.need(inner, "model.intermediate_size", "a feed-forward block's inner width");
    let positions = raw.position_embedding.map(positions).or(b.map(|m| m.positions));
    Model {
        name: raw.name.clone().or(b.map(|m| m.name.clone())).unwrap_or_else(|| "model".to_owned()),
        hidden_size,
        layers,
        attention,
        mlp: Mlp {
            intermediate_size: inner,
            gated: raw.gated_mlp.or(b.map(|m| m.mlp.gated)).unwrap_or(!known),
        },
        moe,
        vocab_size,
        vocab_multiple: raw.vocab_multiple.or(b.map(|m| m.vocab_multiple)).unwrap_or(128),
        tied_embeddings: raw.tie_word_embeddings.or(b.map(|m| m.tied_embeddings)).unwrap_or(false),
        positions: positions.unwrap_or(Positions::Rotary),
        bias: raw.bias.or(b.map(|m| m.bias)).unwrap_or(false),
        dropout: raw.dropout.or(b.map(|m| m.dropout)).unwrap_or(false),
    }
}

fn positions(raw: RawPositions) -> Positions {
    match raw {
        RawPositions::Learned => Positions::Learned,
        RawPositions::Rotary => Positions::Rotary,
        RawPositions::Bias => Positions::Bias,
    }
}

/// The preset's or configuration file's model. Where it is refused, no key of the section is said to
/// be missing.
fn base(r: &mut Resolver, raw: &RawModel, folder: &Path) -> Option<Model> {
    if raw.preset.is_some() && raw.config.is_some() {
        let message = "`model.preset` and `model.config` both give a model".to_owned();
        r.wrong("model.config", "model-source", message, Some("keep one of them".to_owned()));
    }
    let known: Vec<&str> = presets::models().map(|m| m.name).collect();
    let preset = r.preset(raw.preset.as_deref(), "model.preset", presets::model, &known);
    let model = match (&preset, &raw.config) {
        (None, Some(path)) => config(r, folder, path),
        _ => preset,
    };
    if model.is_none() && (r.distrusts("model.preset") || r.distrusts("model.config")) {
        r.distrust("model");
    }
    model
}

fn config(r: &mut Resolver, folder: &Path, path: &str) -> Option<Model> {
    let full = folder.join(path);
    let text = match read(&full) {
        Ok(text) => text,
        Err(error) => {
            let message = format!("cannot read `{path}`: {error}");
            let hint = Some("the path is relative to the job file".to_owned());
            r.wrong("model.config", "model-config", message, hint);
            return None;
        }
    };
    match hugging_face_model(&text) {
        Ok(imported) => Some(imported.model),
        Err(error) => {
            let hint = error.hint();
            r.wrong("model.config", "model-config", format!("`{path}`: {error}"), hint);
            None
        }
    }
}

fn read(path: &Path) -> std::io::Result<String> {
    if std::fs::metadata(path)?.len() > LONGEST_CONFIG {
        return Err(std::io::Error::other("it is longer than 4 MiB"));
    }
    std::fs::read_to_string(path)
}

fn attention(r: &mut Resolver, raw: &RawModel, b: Option<&Model>, hidden: u32) -> Attention {
    let base = b.map(|m| m.attention);
    let heads = raw.num_attention_heads.or(base.map(|a| a.heads));
    let heads = r.need(heads, "model.num_attention_heads", "query heads");
    let kv_heads = raw.num_key_value_heads.or(base.map(|a| a.kv_heads)).unwrap_or(heads);
    let kind = kind(r, raw, base.map(|a| a.kind));
    let head_dim = match (raw.head_dim, kind, base) {
        (Some(width), ..) => width,
        (None, AttentionKind::Latent { nope_dim, rope_dim, .. }, _) => {
            nope_dim.saturating_add(rope_dim)
        }
        (None, _, Some(a)) if raw.hidden_size.is_none() && raw.num_attention_heads.is_none() => {
            a.head_dim
        }
        _ => {
            let whole = heads > 0 && hidden.is_multiple_of(heads);
            if !whole && !r.distrusts("model.hidden_size") && heads > 0 {
                let message = format!("hidden size {hidden} does not split into {heads} heads");
                let hint = Some("write `head_dim = ...`, the width of a head".to_owned());
                r.wrong("model.num_attention_heads", "head-dim", message, hint);
            }
            hidden.checked_div(heads).unwrap_or(1).max(1)
        }
    };
    Attention { heads, kv_heads, head_dim, kind }
}

fn kind(r: &mut Resolver, raw: &RawModel, base: Option<AttentionKind>) -> AttentionKind {
    let (rank, q, nope, rope, v) = match base {
        Some(AttentionKind::Latent { q_rank, kv_rank, nope_dim, rope_dim, v_dim }) => {
            (Some(kv_rank), q_rank, Some(nope_dim), Some(rope_dim), Some(v_dim))
        }
        _ => (None, None, None, None, None),
    };
    let parts = [
        ("model.q_lora_rank", raw.q_lora_rank),
        ("model.qk_nope_head_dim", raw.qk_nope_head_dim),
        ("model.qk_rope_head_dim", raw.qk_rope_head_dim),
        ("model.v_head_dim", raw.v_head_dim),
    ];
    let Some(kv_rank) = raw.kv_lora_rank.or(rank).filter(|&rank| rank > 0) else {
        for (key, _) in parts.iter().filter(|p| p.1.is_some_and(|v| v > 0)) {
            let message = format!("`{key}` belongs to latent attention");
            let hint = Some("write `kv_lora_rank` too, or leave it out".to_owned());
            r.wrong(key, "latent", message, hint);
        }
        return AttentionKind::Standard;
    };
    AttentionKind::Latent {
        q_rank: raw.q_lora_rank.or(q).filter(|&q| q > 0),
        kv_rank,
        nope_dim: r.need(
            raw.qk_nope_head_dim.or(nope),
            "model.qk_nope_head_dim",
            "part of a head without position",
        ),
        rope_dim: r.need(
            raw.qk_rope_head_dim.or(rope),
            "model.qk_rope_head_dim",
            "part of a head with position",
        ),
        v_dim: r.need(raw.v_head_dim.or(v), "model.v_head_dim", "width of a value head"),
    }
}

fn experts(r: &mut Resolver, raw: &RawModel, b: Option<&Model>) -> Option<Moe> {
    let base = b.and_then(|m| m.moe);
    let experts = raw.num_experts.or(base.map(|m| m.experts)).unwrap_or(0);
    if experts == 0 {
        let parts = [
            ("model.num_experts_per_tok", raw.num_experts_per_tok),
            ("model.num_shared_experts", raw.num_shared_experts),
            ("model.moe_intermediate_size", raw.moe_intermediate_size),
            ("model.first_k_dense_replace", raw.first_k_dense_replace),
            ("model.moe_layer_freq", raw.moe_layer_freq),
        ];
        for (key, value) in parts {
            if value.is_some() && !r.distrusts("model.num_experts") {
                let message = format!("`{key}` belongs to a mixture of experts");
                let hint = Some("write `num_experts` too, or leave it out".to_owned());
                r.wrong(key, "moe-dense", message, hint);
            }
        }
        return None;
    }
    let width = raw
        .moe_intermediate_size
        .or(base.map(|m| m.expert_intermediate_size))
        .or(raw.intermediate_size)
        .or(b.map(|m| m.mlp.intermediate_size));
    Some(Moe {
        experts,
        top_k: r.need(
            raw.num_experts_per_tok.or(base.map(|m| m.top_k)),
            "model.num_experts_per_tok",
            "experts that a token visits",
        ),
        shared_experts: raw.num_shared_experts.or(base.map(|m| m.shared_experts)).unwrap_or(0),
        expert_intermediate_size: r.need(
            width,
            "model.moe_intermediate_size",
            "an expert's inner width",
        ),
        dense_layers: raw.first_k_dense_replace.or(base.map(|m| m.dense_layers)).unwrap_or(0),
        every: raw.moe_layer_freq.or(base.map(|m| m.every)).unwrap_or(1),
    })
}
