//! Hugging Face's `config.json`.

use serde_json::{Map, Value};

use super::ImportError;
use super::text::{Draft, JobText};
use crate::{Attention, AttentionKind, Mlp, Model, Moe, Positions};

/// The model families whose keys are known.
pub(super) const MODEL_TYPES: [&str; 16] = [
    "llama",
    "mistral",
    "mixtral",
    "qwen2",
    "qwen3",
    "qwen2_moe",
    "qwen3_moe",
    "gemma",
    "deepseek_v2",
    "deepseek_v3",
    "gpt_neox",
    "gpt2",
    "bloom",
    "falcon",
    "opt",
    "olmo2",
];

/// A model from a configuration file.
#[derive(Clone, Debug, PartialEq)]
pub struct ImportedModel {
    /// The model.
    pub model: Model,
    /// Longest sequence it is made for, tokens.
    pub seq_len: Option<u32>,
    /// What was read in another sense than it has there, or left out.
    pub warnings: Vec<String>,
}

/// The model of a `config.json`.
///
/// # Errors
/// [`ImportError`]: no JSON, an unknown family without Llama's keys, missing or impossible values.
pub fn hugging_face_model(json: &str) -> Result<ImportedModel, ImportError> {
    let format = |cause: String| ImportError::Format { format: "config.json", cause };
    let value: Value = serde_json::from_str(json).map_err(|e| format(e.to_string()))?;
    let Value::Object(mut root) = value else {
        return Err(format("it is no object".to_owned()));
    };
    // Models of text and images keep the transformer's keys one level down.
    let inner = match root.get("text_config") {
        Some(Value::Object(inner)) if !root.contains_key("hidden_size") => Some(inner.clone()),
        _ => None,
    };
    let mut warnings = Vec::new();
    if let Some(inner) = inner {
        warnings.push("only the text model of a model of several kinds is read".to_owned());
        root = inner;
    }
    Keys { root, missing: Vec::new(), wrong: None, warnings }.model()
}

/// A job file with the model of a `config.json`; training and cluster are still missing.
///
/// # Errors
/// As [`hugging_face_model`].
pub fn import_hugging_face(json: &str) -> Result<JobText, ImportError> {
    let imported = hugging_face_model(json)?;
    let mut draft = Draft::new();
    write_model(&mut draft, &imported.model, "config.json");
    match imported.seq_len {
        Some(n) => draft.set("training", "seq_len", n, "config.json: the longest it is made for"),
        None => draft.missing("training", "seq_len", "tokens of a sequence"),
    }
    draft.missing("training", "global_batch_size", "sequences of a step, over all replicas");
    Ok(draft.finish("A model of Hugging Face.", Vec::new(), imported.warnings))
}

/// Writes a model's keys into a draft.
pub(super) fn write_model(draft: &mut Draft, m: &Model, from: &str) {
    draft.word("model", "name", &m.name, from);
    let mut int = |key: &str, value: u32| draft.set("model", key, value, from);
    int("hidden_size", m.hidden_size);
    int("num_hidden_layers", m.layers);
    int("intermediate_size", m.mlp.intermediate_size);
    int("num_attention_heads", m.attention.heads);
    int("num_key_value_heads", m.attention.kv_heads);
    int("head_dim", m.attention.head_dim);
    int("vocab_size", m.vocab_size);
    if let AttentionKind::Latent { q_rank, kv_rank, nope_dim, rope_dim, v_dim } = m.attention.kind {
        int("q_lora_rank", q_rank.unwrap_or(0));
        int("kv_lora_rank", kv_rank);
        int("qk_nope_head_dim", nope_dim);
        int("qk_rope_head_dim", rope_dim);
        int("v_head_dim", v_dim);
    }
    if let Some(moe) = m.moe {
        int("num_experts", moe.experts);
        int("num_experts_per_tok", moe.top_k);
        int("num_shared_experts", moe.shared_experts);
        int("moe_intermediate_size", moe.expert_intermediate_size);
        int("first_k_dense_replace", moe.dense_layers);
        int("moe_layer_freq", moe.every);
    }
    draft.set("model", "tie_word_embeddings", m.tied_embeddings, from);
    let positions = match m.positions {
        Positions::Learned => "learned",
        Positions::Rotary => "rotary",
        Positions::Bias => "bias",
    };
    draft.word("model", "position_embedding", positions, from);
    draft.set("model", "gated_mlp", m.mlp.gated, from);
    draft.set("model", "bias", m.bias, from);
    draft.set("model", "dropout", m.dropout, from);
}

/// The keys of a configuration, with what was missing or wrong.
struct Keys {
    root: Map<String, Value>,
    missing: Vec<String>,
    wrong: Option<ImportError>,
    warnings: Vec<String>,
}

/// What differs between families besides the names of keys.
struct Family {
    positions: Positions,
    gated: bool,
    bias: bool,
    tied: bool,
}

const LLAMA: Family =
    Family { positions: Positions::Rotary, gated: true, bias: false, tied: false };

impl Keys {
    fn model(mut self) -> Result<ImportedModel, ImportError> {
        let kind = self.root.get("model_type").and_then(Value::as_str).unwrap_or("").to_owned();
        let family = self.family(&kind)?;
        let hidden = self.need(&["hidden_size", "n_embd", "d_model"]);
        let layers = self.need(&["num_hidden_layers", "n_layer"]);
        let heads = self.need(&["num_attention_heads", "n_head"]);
        let vocab_size = self.need(&["vocab_size"]);
        let attention = self.attention(&kind, hidden, heads);
        let moe = self.experts();
        // GPT-2, BLOOM and Falcon leave a block's width out: four times the model's.
        let four =
            matches!(kind.as_str(), "gpt2" | "bloom" | "falcon").then(|| hidden.saturating_mul(4));
        let width = self.int(&["intermediate_size", "n_inner", "ffn_hidden_size", "ffn_dim"]);
        let width = width.or(four).unwrap_or_else(|| self.need(&["intermediate_size"]));
        let seq_len = self.int(&["max_position_embeddings", "n_positions", "seq_length", "n_ctx"]);
        let dropout = ["hidden_dropout", "resid_pdrop", "dropout"]
            .iter()
            .any(|k| self.root.get(*k).and_then(Value::as_f64).is_some_and(|p| p > 0.0));
        if self.root.get("num_nextn_predict_layers").and_then(Value::as_u64).unwrap_or(0) > 0 {
            self.warnings.push("multi-token prediction layers are left out".to_owned());
        }
        let name = self.root.get("_name_or_path").and_then(Value::as_str).unwrap_or("");
        let name = name.rsplit('/').next().filter(|n| !n.is_empty()).unwrap_or(&kind).to_owned();
        if let Some(wrong) = self.wrong {
            return Err(wrong);
        }
        if !self.missing.is_empty() {
            return Err(ImportError::Missing(self.missing));
        }
        let model = Model {
            name,
            hidden_size: hidden,
            layers,
            attention,
            mlp: Mlp { intermediate_size: width, gated: family.gated },
            moe,
            vocab_size,
            vocab_multiple: 128,
            tied_embeddings: family.tied,
            positions: family.positions,
            bias: family.bias,
            dropout,
        };
        Ok(ImportedModel { model, seq_len, warnings: self.warnings })
    }

    fn family(&mut self, kind: &str) -> Result<Family, ImportError> {
        let gpt = |positions, tied| Family { positions, gated: false, bias: true, tied };
        let mut family = match kind {
            "llama" | "mistral" | "mixtral" | "qwen2" | "qwen3" | "qwen2_moe" | "qwen3_moe"
            | "deepseek_v2" | "deepseek_v3" | "olmo2" => LLAMA,
            "gemma" => Family { tied: true, ..LLAMA },
            "gpt_neox" => gpt(Positions::Rotary, false),
            "gpt2" | "opt" => gpt(Positions::Learned, true),
            "bloom" => gpt(Positions::Bias, true),
            "falcon" => {
                let alibi = self.flag("alibi") == Some(true);
                let positions = if alibi { Positions::Bias } else { Positions::Rotary };
                let bias = self.flag("bias").unwrap_or(false);
                Family { positions, gated: false, bias, tied: true }
            }
            other => {
                let like_llama = [
                    "hidden_size",
                    "num_hidden_layers",
                    "num_attention_heads",
                    "intermediate_size",
                    "vocab_size",
                ];
                if !like_llama.iter().all(|k| self.root.contains_key(*k)) {
                    return Err(ImportError::ModelType(other.to_owned()));
                }
                self.warnings.push(format!("model type `{other}` is read as Llama's"));
                LLAMA
            }
        };
        if let Some(tied) = self.flag("tie_word_embeddings") {
            family.tied = tied;
        }
        if self.flag("attention_bias") == Some(true) && !family.bias {
            self.warnings.push("biases of attention alone are left out".to_owned());
        }
        Ok(family)
    }

    fn attention(&mut self, kind: &str, hidden: u32, heads: u32) -> Attention {
        let kv = self.int(&["num_key_value_heads"]);
        let kv_heads = match (kv, kind) {
            (Some(kv), _) => kv,
            (None, "falcon") if self.flag("new_decoder_architecture") == Some(true) => {
                self.int(&["num_kv_heads"]).unwrap_or(heads)
            }
            (None, "falcon") if self.flag("multi_query") != Some(false) => 1,
            _ => heads,
        };
        let standard = self.int(&["head_dim"]).or_else(|| hidden.checked_div(heads)).unwrap_or(0);
        match self.int(&["kv_lora_rank"]) {
            Some(kv_rank) => {
                let nope_dim = self.need(&["qk_nope_head_dim"]);
                let rope_dim = self.need(&["qk_rope_head_dim"]);
                let v_dim = self.need(&["v_head_dim"]);
                let q_rank = self.int(&["q_lora_rank"]);
                let kind = AttentionKind::Latent { q_rank, kv_rank, nope_dim, rope_dim, v_dim };
                Attention { heads, kv_heads, head_dim: nope_dim.saturating_add(rope_dim), kind }
            }
            None => {
                Attention { heads, kv_heads, head_dim: standard, kind: AttentionKind::Standard }
            }
        }
    }

    fn experts(&mut self) -> Option<Moe> {
        let experts = self.int(&["n_routed_experts", "num_local_experts", "num_experts"])?;
        if experts == 0 {
            return None;
        }
        let width = self.int(&["moe_intermediate_size", "intermediate_size"]).unwrap_or(0);
        let mut shared = self.int(&["n_shared_experts"]).unwrap_or(0);
        if let Some(shared_width) = self.int(&["shared_expert_intermediate_size"])
            && width > 0
            && shared_width > 0
        {
            shared = shared_width.div_ceil(width);
            if !shared_width.is_multiple_of(width) {
                self.warnings
                    .push("the shared expert's width is rounded up to whole experts".into());
            }
        }
        Some(Moe {
            experts,
            top_k: self.need(&["num_experts_per_tok", "num_experts_per_token", "moe_topk"]),
            shared_experts: shared,
            expert_intermediate_size: width,
            dense_layers: self.int(&["first_k_dense_replace"]).unwrap_or(0),
            every: self.int(&["moe_layer_freq", "decoder_sparse_step"]).unwrap_or(1),
        })
    }

    fn flag(&self, key: &str) -> Option<bool> {
        self.root.get(key).and_then(Value::as_bool)
    }

    /// The first of the keys that is there and not null.
    fn int(&mut self, keys: &[&str]) -> Option<u32> {
        let (key, value) =
            keys.iter().find_map(|k| self.root.get(*k).filter(|v| !v.is_null()).map(|v| (k, v)))?;
        let number = value.as_u64().and_then(|v| u32::try_from(v).ok());
        if number.is_none() && self.wrong.is_none() {
            let (key, value) = ((*key).to_owned(), value.to_string().chars().take(40).collect());
            self.wrong = Some(ImportError::Value { key, value });
        }
        number
    }

    fn need(&mut self, keys: &[&str]) -> u32 {
        if let Some(value) = self.int(keys) {
            return value;
        }
        let name = format!("`{}`", keys[0]);
        if self.wrong.is_none() && !self.missing.contains(&name) {
            self.missing.push(name);
        }
        1
    }
}
