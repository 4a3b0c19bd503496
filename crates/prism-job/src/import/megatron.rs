//! Megatron-LM's arguments: a command line, or the block that a log prints.

mod arguments;

use arguments::Arguments;

use super::ImportError;
use super::hugging_face::write_model;
use super::text::{Draft, JobText};
use crate::{Attention, AttentionKind, Mlp, Model, Moe, Positions};

/// A job file from Megatron-LM's arguments: a shell line or script with `--flag value` or
/// `--flag=value`, whose variables are filled in where the text sets them, or the `arguments` block of
/// a log (`key ....... value`).
///
/// Defaults are Megatron's: two-byte floats must be asked for, gradients are reduced in four bytes with
/// `--bf16`, reductions overlap only where asked for.
///
/// # Errors
/// [`ImportError`]: no arguments, missing or impossible values, settings that change the cost and that
/// a job file cannot say.
pub fn import_megatron(text: &str) -> Result<JobText, ImportError> {
    let mut args = Arguments::read(text)?;
    let mut notes = Notes::default();
    refuse(&mut args, &mut notes);
    let mut draft = Draft::new();
    let model = model(&mut args, &mut notes, &mut draft)?;
    training(&mut args, &mut draft)?;
    let layers = model.layers;
    parallelism(&mut args, &mut notes, &mut draft, layers)?;
    precision(&mut args, &mut notes, &mut draft);
    recompute(&mut args, &mut notes, &mut draft)?;
    if !notes.unsupported.is_empty() {
        return Err(ImportError::Unsupported(notes.unsupported));
    }
    let ignored = args.unused();
    Ok(draft.finish("Arguments of Megatron-LM.", ignored, notes.warnings))
}

#[derive(Default)]
struct Notes {
    warnings: Vec<String>,
    unsupported: Vec<String>,
}

/// Settings that change what a step costs and that a job file cannot say.
const UNSUPPORTED: [&str; 11] = [
    "pipeline_model_parallel_layout",
    "account_for_embedding_in_pipeline_split",
    "account_for_loss_in_pipeline_split",
    "encoder_tensor_model_parallel_size",
    "encoder_pipeline_model_parallel_size",
    "heterogeneous_layers_config_path",
    "hybrid_override_pattern",
    "is_hybrid_model",
    "cpu_offloading",
    "optimizer_cpu_offload",
    "multimodal_training",
];

/// Settings that move the cost a little and are left out.
const LEFT_OUT: [&str; 7] = [
    "mtp_num_layers",
    "moe_expert_capacity_factor",
    "overlap_moe_expert_parallel_comm",
    "delay_wgrad_compute",
    "window_size",
    "external_cuda_graph",
    "rampup_batch_size",
];

fn refuse(args: &mut Arguments, notes: &mut Notes) {
    for key in UNSUPPORTED {
        if let Some(value) = args.set(key) {
            notes.unsupported.push(format!("{} {value}", args.name(key)));
        }
    }
    for key in LEFT_OUT {
        if let Some(value) = args.set(key) {
            notes.warnings.push(format!("{} {value} is left out", args.name(key)));
        }
    }
    let comm = args.text("cp_comm_type");
    if let Some(kind) = comm.filter(|k| k != "p2p" && k != "['p2p']") {
        notes.warnings.push(format!("context parallelism by {kind} is counted as a ring"));
    }
}

fn model(args: &mut Arguments, notes: &mut Notes, draft: &mut Draft) -> Result<Model, ImportError> {
    let hidden = args.int("hidden_size")?;
    let layers = args.int("num_layers")?;
    let heads = args.int("num_attention_heads")?;
    let (Some(hidden_size), Some(layers), Some(heads)) = (hidden, layers, heads) else {
        let all = [("hidden-size", hidden), ("num-layers", layers), ("num-attention-heads", heads)];
        let missing = all.iter().filter(|a| a.1.is_none());
        return Err(ImportError::Missing(missing.map(|a| format!("`--{}`", a.0)).collect()));
    };
    let gated = args.flag("swiglu");
    let four = hidden_size.saturating_mul(4);
    let width = args.int("ffn_hidden_size")?;
    // Megatron's own default for gated blocks.
    let width = width.unwrap_or(if gated {
        u32::try_from(u64::from(four) * 2 / 3 / 64 * 64).unwrap_or(u32::MAX)
    } else {
        four
    });
    let vocab = args.int("vocab_size")?;
    let padded = args.int("padded_vocab_size")?;
    let positions = positions(args, notes);
    let attention_dropout = args.number("attention_dropout")?.unwrap_or(0.1);
    let dropout = args.number("hidden_dropout")?.unwrap_or(0.1) > 0.0 || attention_dropout > 0.0;
    let model = Model {
        name: "megatron".to_owned(),
        hidden_size,
        layers,
        attention: attention(args, hidden_size, heads)?,
        mlp: Mlp { intermediate_size: width, gated },
        moe: experts(args, notes, width, layers)?,
        vocab_size: vocab.or(padded).unwrap_or(51_200),
        vocab_multiple: args.int("make_vocab_size_divisible_by")?.unwrap_or(128),
        tied_embeddings: !args.flag("untie_embeddings_and_output_weights"),
        positions,
        bias: args.flag_or("add_bias_linear", true),
        dropout,
    };
    write_model(draft, &model, "Megatron arguments");
    if vocab.or(padded).is_none() {
        notes.warnings.push(
            "the vocabulary comes from a tokenizer that is not read: 51,200 is assumed".to_owned(),
        );
    }
    Ok(model)
}

fn positions(args: &mut Arguments, notes: &mut Notes) -> Positions {
    let rotary = args.flag("use_rotary_position_embeddings");
    match args.text("position_embedding_type").as_deref() {
        Some("rope" | "yarn" | "mrope") => Positions::Rotary,
        Some("none" | "alibi") => Positions::Bias,
        Some("learned_absolute") | None => {
            if rotary {
                Positions::Rotary
            } else {
                Positions::Learned
            }
        }
        Some(other) => {
            notes.warnings.push(format!("positions by {other} are counted as rotary"));
            Positions::Rotary
        }
    }
}

fn attention(args: &mut Arguments, hidden: u32, heads: u32) -> Result<Attention, ImportError> {
    let width = args.int("kv_channels")?;
    let head_dim = match width.or_else(|| hidden.checked_div(heads)) {
        Some(width) if width > 0 => width,
        _ => {
            let value = heads.to_string();
            return Err(ImportError::Value { key: "--num-attention-heads".to_owned(), value });
        }
    };
    let groups = args.int("num_query_groups")?;
    let grouped = args.flag("group_query_attention");
    let kv_heads = groups.filter(|_| grouped).unwrap_or(heads);
    if !args.flag("multi_latent_attention") {
        return Ok(Attention { heads, kv_heads, head_dim, kind: AttentionKind::Standard });
    }
    // Defaults of Megatron's MLATransformerConfig.
    let nope_dim = args.int("qk_head_dim")?.unwrap_or(128);
    let rope_dim = args.int("qk_pos_emb_head_dim")?.unwrap_or(64);
    let kind = AttentionKind::Latent {
        q_rank: args.int("q_lora_rank")?,
        kv_rank: args.int("kv_lora_rank")?.unwrap_or(32),
        nope_dim,
        rope_dim,
        v_dim: args.int("v_head_dim")?.unwrap_or(128),
    };
    Ok(Attention { heads, kv_heads: heads, head_dim: nope_dim.saturating_add(rope_dim), kind })
}

fn experts(
    args: &mut Arguments,
    notes: &mut Notes,
    width: u32,
    layers: u32,
) -> Result<Option<Moe>, ImportError> {
    let Some(experts) = args.int("num_experts")?.filter(|&n| n > 0) else { return Ok(None) };
    let inner = args.int("moe_ffn_hidden_size")?.unwrap_or(width);
    let shared = args.int("moe_shared_expert_intermediate_size")?.unwrap_or(0);
    if inner > 0 && !shared.is_multiple_of(inner) {
        notes.warnings.push("the shared expert's width is rounded up to whole experts".to_owned());
    }
    let freq = args.text("moe_layer_freq");
    let pattern = freq.as_deref().map_or(Some((0, 1)), |text| layer_pattern(text, layers));
    if pattern.is_none() {
        let text = freq.unwrap_or_default();
        notes.unsupported.push(format!("{} {text}", args.name("moe_layer_freq")));
    }
    let (dense_layers, every) = pattern.unwrap_or((0, 1));
    Ok(Some(Moe {
        experts,
        top_k: args.int("moe_router_topk")?.unwrap_or(2),
        shared_experts: shared.div_ceil(inner.max(1)),
        expert_intermediate_size: inner,
        dense_layers,
        every,
    }))
}

/// Leading dense layers and frequency from `--moe-layer-freq`: a number, or a list such as
/// `([0]*3+[1]*58)`; `None` for a list that is no run of dense layers before layers with experts.
fn layer_pattern(text: &str, layers: u32) -> Option<(u32, u32)> {
    let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    if let Ok(every) = text.parse::<u32>() {
        return (every > 0).then_some((0, every));
    }
    let mut runs: Vec<(bool, u64)> = Vec::new();
    if text.starts_with('[') && text.contains(',') {
        let inner = text.strip_prefix('[')?.strip_suffix(']')?;
        for item in inner.split(',') {
            runs.push((item.parse::<u8>().ok()? > 0, 1));
        }
    } else {
        for term in text.trim_matches(['(', ')']).split('+') {
            let (item, count) = term.split_once('*').unwrap_or((term, "1"));
            let item = item.strip_prefix('[')?.strip_suffix(']')?;
            runs.push((item.parse::<u8>().ok()? > 0, count.parse::<u32>().ok()?.into()));
        }
    }
    let dense: u64 = runs.iter().take_while(|r| !r.0).map(|r| r.1).sum();
    let total: u64 = runs.iter().map(|r| r.1).sum();
    let sorted = runs.iter().skip_while(|r| !r.0).all(|r| r.0);
    (sorted && total == u64::from(layers) && dense < total).then_some((dense as u32, 1))
}

fn training(args: &mut Arguments, draft: &mut Draft) -> Result<(), ImportError> {
    let keys = [
        ("seq_length", "seq_len", "tokens of a sequence"),
        ("global_batch_size", "global_batch_size", "sequences of a step, over all replicas"),
        ("micro_batch_size", "micro_batch_size", "sequences of a microbatch"),
    ];
    for (theirs, ours, what) in keys {
        match args.int(theirs)? {
            Some(value) => draft.set("training", ours, value, &args.name(theirs)),
            None => draft.missing("training", ours, what),
        }
    }
    Ok(())
}

fn parallelism(
    args: &mut Arguments,
    notes: &mut Notes,
    draft: &mut Draft,
    layers: u32,
) -> Result<(), ImportError> {
    let tp = args.int("tensor_model_parallel_size")?.unwrap_or(1);
    let pp = args.int("pipeline_model_parallel_size")?.unwrap_or(1);
    let cp = args.int("context_parallel_size")?.unwrap_or(1);
    let ep = args.int("expert_model_parallel_size")?.unwrap_or(1);
    let p = "parallelism";
    draft.set(p, "tensor_parallel_degree", tp, &args.name("tensor_model_parallel_size"));
    let sp = args.flag("sequence_parallel");
    // Megatron turns it off itself with one rank.
    draft.set(p, "sequence_parallel", sp && tp > 1, &args.name("sequence_parallel"));
    draft.set(p, "pipeline_parallel_degree", pp, &args.name("pipeline_model_parallel_size"));
    draft.set(p, "context_parallel_degree", cp, &args.name("context_parallel_size"));
    draft.set(p, "expert_parallel_degree", ep, &args.name("expert_model_parallel_size"));
    if let Some(etp) = args.int("expert_tensor_parallel_size")?.filter(|&e| e != tp && ep > 1) {
        notes
            .warnings
            .push(format!("experts are split over {tp} tensor-parallel ranks, not {etp}"));
    }
    let v = virtual_stages(args, pp, layers)?;
    draft.set(p, "virtual_pipeline_degree", v, "Megatron's virtual pipeline");
    if v > 1 {
        draft.word(p, "pipeline_parallel_schedule", "interleaved-1f1b", "several chunks per stage");
    } else {
        draft.word(p, "pipeline_parallel_schedule", "1f1b", "Megatron's schedule");
    }
    uneven(args, draft, pp, v, layers)?;
    let per_replica = u64::from(tp).saturating_mul(pp.into()).saturating_mul(cp.into());
    let world = world_size(args, notes, per_replica)?;
    let dp = args.int("data_parallel_size")?;
    let instances = args.int("num_distributed_optimizer_instances")?.unwrap_or(1).max(1);
    match (world, dp) {
        (Some(world), _) => {
            draft.set("cluster", "gpus", world, "world size");
            draft.missing("cluster", "preset", "a cluster such as \"h100-dgx\"");
            draft.set(p, "data_parallel_shard_degree", -1, "what is left of the GPUs");
        }
        (_, Some(dp)) => {
            let shard = dp / instances;
            draft.set(p, "data_parallel_shard_degree", shard, "data-parallel size");
        }
        _ => draft.missing(p, "data_parallel_shard_degree", "replicas; Megatron derives them"),
    }
    if instances > 1 {
        let from = args.name("num_distributed_optimizer_instances");
        draft.set(p, "data_parallel_replicate_degree", instances, &from);
    }
    sharding(args, notes, draft);
    overlap(args, draft);
    Ok(())
}

/// GPUs from a log's world size, or from the launcher's nodes and processes, where whole replicas fit.
fn world_size(
    args: &mut Arguments,
    notes: &mut Notes,
    per_replica: u64,
) -> Result<Option<u64>, ImportError> {
    let given = args.int("world_size")?.map(u64::from);
    // Of the launcher only plain numbers count: `$1:8` and `gpu` are left alone.
    let mut plain = |key: &str| args.text(key).and_then(|v| v.parse::<u32>().ok());
    let launched = match (plain("nnodes"), plain("nproc_per_node")) {
        (Some(nodes), Some(each)) => Some(u64::from(nodes) * u64::from(each)),
        _ => None,
    };
    let Some(world) = given.or(launched) else { return Ok(None) };
    if per_replica == 0 || world == 0 || world % per_replica != 0 {
        let text = format!("{world} GPUs hold no whole replicas of {per_replica}: left out");
        notes.warnings.push(text);
        return Ok(None);
    }
    Ok(Some(world))
}

fn virtual_stages(args: &mut Arguments, pp: u32, layers: u32) -> Result<u32, ImportError> {
    let stages = args.int("num_virtual_stages_per_pipeline_rank")?;
    let size = args.int("virtual_pipeline_model_parallel_size")?;
    let per_chunk = args.int("num_layers_per_virtual_pipeline_stage")?;
    if let Some(v) = stages.or(size) {
        return Ok(v.max(1));
    }
    let Some(per_chunk) = per_chunk.filter(|&n| n > 0) else { return Ok(1) };
    let per_stage = layers.checked_div(pp).unwrap_or(0);
    if per_stage == 0 || !per_stage.is_multiple_of(per_chunk) {
        let key = args.name("num_layers_per_virtual_pipeline_stage");
        return Err(ImportError::Value { key, value: per_chunk.to_string() });
    }
    Ok(per_stage / per_chunk)
}

/// Layers of each chunk where the first or the last stage has its own number.
fn uneven(
    args: &mut Arguments,
    draft: &mut Draft,
    pp: u32,
    v: u32,
    layers: u32,
) -> Result<(), ImportError> {
    let first = args.int("decoder_first_pipeline_num_layers")?;
    let last = args.int("decoder_last_pipeline_num_layers")?;
    if first.is_none() && last.is_none() {
        return Ok(());
    }
    let others = pp.saturating_sub(u32::from(first.is_some()) + u32::from(last.is_some()));
    let rest = layers.checked_sub(first.unwrap_or(0).saturating_add(last.unwrap_or(0)));
    let middle = match rest {
        Some(rest) if others > 0 && rest.is_multiple_of(others) => rest / others,
        Some(0) if others == 0 => 0,
        _ => {
            let key = args.name("decoder_first_pipeline_num_layers");
            let value = format!("{} with {layers} layers", first.unwrap_or(0));
            return Err(ImportError::Value { key, value });
        }
    };
    let of_stage = |s: u32| match (first, last) {
        (Some(n), _) if s == 0 => n,
        (_, Some(n)) if s + 1 == pp => n,
        _ => middle,
    };
    if u64::from(pp) * u64::from(v) > 65_536 || (0..pp).any(|s| of_stage(s) % v != 0) {
        let key = args.name("decoder_first_pipeline_num_layers");
        return Err(ImportError::Value { key, value: format!("{middle} over {v} chunks") });
    }
    let chunks: Vec<u32> = (0..v).flat_map(|_| (0..pp).map(|s| of_stage(s) / v)).collect();
    draft.set("parallelism", "chunk_layers", format!("{chunks:?}"), "uneven first or last stage");
    Ok(())
}

fn sharding(args: &mut Arguments, notes: &mut Notes, draft: &mut Draft) {
    let fsdp = args.flag("use_megatron_fsdp") || args.flag("use_custom_fsdp");
    let torch = args.flag("use_torch_fsdp2");
    let strategy = args.text("data_parallel_sharding_strategy");
    let stage = match strategy.as_deref().filter(|_| fsdp) {
        _ if torch => 3,
        Some("optim_grads_params") => 3,
        Some("optim_grads") => 2,
        Some("optim") => 1,
        Some("no_shard") => 0,
        Some(other) => {
            notes.unsupported.push(format!("--data-parallel-sharding-strategy {other}"));
            0
        }
        None => u8::from(args.flag("use_distributed_optimizer")),
    };
    // The flag may stand beside a strategy, which rules.
    args.flag("use_distributed_optimizer");
    draft.set("parallelism", "zero_stage", stage, "distributed optimizer or FSDP");
}

fn overlap(args: &mut Arguments, draft: &mut Draft) {
    let o = "parallelism.overlap";
    let grad = args.flag("overlap_grad_reduce");
    draft.set(o, "grad_reduce", grad, &args.name("overlap_grad_reduce"));
    let gather = args.flag("overlap_param_gather");
    draft.set(o, "param_gather", gather, &args.name("overlap_param_gather"));
    let p2p = args.flag_or("overlap_p2p_comm", true);
    draft.set(o, "p2p", p2p, "unless --no-overlap-p2p-communication");
    let tp = args.flag("tp_comm_overlap");
    draft.set(o, "tensor_parallel", tp, &args.name("tp_comm_overlap"));
}

fn precision(args: &mut Arguments, notes: &mut Notes, draft: &mut Draft) {
    let p = "parallelism";
    let fp8 = args.set("fp8").is_some();
    let (bf16, fp16) = (args.flag("bf16"), args.flag("fp16"));
    if !bf16 && !fp16 && !fp8 {
        notes.unsupported.push("4-byte arithmetic (neither --bf16 nor --fp16)".to_owned());
    }
    if fp16 {
        notes
            .warnings
            .push("--fp16 costs what --bf16 costs; its loss scaling is left out".to_owned());
    }
    draft.word(p, "precision", if fp8 { "fp8" } else { "bf16" }, "--bf16, --fp16, --fp8-format");
    // With --bf16 Megatron reduces in 4 bytes unless told not to.
    let asked = args.flag("accumulate_allreduce_grads_in_fp32");
    let fp32 = !args.flag("grad_reduce_in_bf16") && (bf16 || asked);
    draft.set(p, "grad_reduce_fp32", fp32, "--bf16 without --grad-reduce-in-bf16");
    let backend = args.text("attention_backend").unwrap_or_default();
    let backend = backend.rsplit('.').next().unwrap_or("").to_lowercase();
    let flash_flag = args.flag("use_flash_attn");
    let local = args.text("transformer_impl").is_some_and(|i| i == "local") && !flash_flag;
    let unfused = backend == "unfused" || backend == "local" || (local && backend != "flash");
    let kernel = if unfused { "unfused" } else { "flash" };
    draft.word(p, "attention_kernel", kernel, "--attention-backend, --transformer-impl");
}

fn recompute(
    args: &mut Arguments,
    notes: &mut Notes,
    draft: &mut Draft,
) -> Result<(), ImportError> {
    let old = args.flag("recompute_activations");
    let oldest = args.flag("checkpoint_activations");
    let method = args.text("recompute_method");
    let layers = args.int("recompute_num_layers")?;
    let granularity = args.text("recompute_granularity");
    let word = match granularity.as_deref() {
        Some("full") => "full",
        Some("selective") => "selective",
        Some(other) => {
            let key = args.name("recompute_granularity");
            return Err(ImportError::Value { key, value: other.to_owned() });
        }
        None if oldest => "full",
        None if old => "selective",
        None => "none",
    };
    if word == "full" && method.as_deref() == Some("block") {
        let text = format!("--recompute-method block with {} layers", layers.unwrap_or(0));
        notes.unsupported.push(text);
    } else if word == "full" && layers.is_some_and(|n| n > 1) {
        notes.warnings.push("inputs are kept of every layer, not of every few".to_owned());
    }
    if let Some(modules) = args.text("recompute_modules").filter(|m| !m.contains("core_attn"))
        && word == "selective"
    {
        notes
            .warnings
            .push(format!("recomputation of {modules} is counted as the attention core's"));
    }
    draft.word("parallelism", "recompute", word, "--recompute-granularity");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::layer_pattern;

    #[test]
    fn layer_patterns() {
        assert_eq!(layer_pattern("2", 8), Some((0, 2)));
        assert_eq!(layer_pattern("([0]*3+[1]*58)", 61), Some((3, 1)));
        assert_eq!(layer_pattern("[0, 1, 1]", 3), Some((1, 1)));
        assert_eq!(layer_pattern("([1]*3+[0]*2)", 5), None);
        assert_eq!(layer_pattern("([0]*3+[1]*58)", 60), None);
        assert_eq!(layer_pattern("([0]*3", 3), None);
        assert_eq!(layer_pattern("0", 3), None);
    }
}
