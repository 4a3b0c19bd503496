//! Rules of the model and of the numbers that must not be 0.

use super::{Report, divides, nearest_values, try_values};
use crate::{AttentionKind, Job};

/// Whether every size is at least 1; the other rules divide by them.
pub(super) fn positive(job: &Job, report: &mut Report) -> bool {
    let (m, t, p) = (&job.model, &job.training, &job.plan);
    let sizes: [(&'static str, u64); 19] = [
        ("model.hidden_size", m.hidden_size.into()),
        ("model.num_hidden_layers", m.layers.into()),
        ("model.intermediate_size", m.mlp.intermediate_size.into()),
        ("model.num_attention_heads", m.attention.heads.into()),
        ("model.num_key_value_heads", m.attention.kv_heads.into()),
        ("model.head_dim", m.attention.head_dim.into()),
        ("model.vocab_size", m.vocab_size.into()),
        ("training.seq_len", t.seq_len.into()),
        ("training.global_batch_size", t.global_batch_size.into()),
        ("training.micro_batch_size", t.micro_batch_size.into()),
        ("parallelism.data_parallel_shard_degree", p.data_parallel_shard.into()),
        ("parallelism.data_parallel_replicate_degree", p.data_parallel_replicate.into()),
        ("parallelism.tensor_parallel_degree", p.tensor_parallel.into()),
        ("parallelism.context_parallel_degree", p.context_parallel.into()),
        ("parallelism.expert_parallel_degree", p.expert_parallel.into()),
        ("parallelism.pipeline_parallel_degree", p.pipeline_parallel.into()),
        ("parallelism.virtual_pipeline_degree", p.virtual_chunks.into()),
        ("cluster.gpus_per_node", job.cluster.gpus_per_node.into()),
        ("cluster.nvlink_domain", job.cluster.nvlink_domain.into()),
    ];
    let mut all = true;
    for (key, size) in sizes {
        all &= size > 0;
        report.require(size > 0, (key, &[], "positive"), || {
            (format!("`{key}` must be at least 1"), "leave it out for its default".into(), vec![1])
        });
    }
    all
}

pub(super) fn rules(job: &Job, report: &mut Report) {
    attention(job, report);
    experts(job, report);
    if let Some(lengths) = job.training.sequences {
        let fits = lengths.median.is_finite() && lengths.median >= 1.0;
        report.require(fits, ("training.sequences.median", &[], "sequences"), || {
            let text = format!("a median document of {} tokens", lengths.median);
            (text, "write a number of tokens of at least 1".into(), vec![])
        });
        let fits = lengths.sigma.is_finite() && lengths.sigma >= 0.0;
        report.require(fits, ("training.sequences.sigma", &[], "sequences"), || {
            let text = format!("a s.d. of log lengths of {}", lengths.sigma);
            (text, "write a number of at least 0".into(), vec![])
        });
    }
}

fn attention(job: &Job, report: &mut Report) {
    let a = &job.model.attention;
    let (heads, kv) = (u64::from(a.heads), u64::from(a.kv_heads));
    let place = ("model.num_key_value_heads", &["model.num_attention_heads"][..], "kv-heads");
    report.require(divides(kv, heads), place, || {
        let near = nearest_values(kv, heads, |k| divides(k, heads));
        let hint = try_values("num_key_value_heads", &near, "");
        (format!("{heads} query heads cannot be shared by {kv} key and value heads"), hint, near)
    });
    if let AttentionKind::Latent { kv_rank, nope_dim, rope_dim, v_dim, .. } = a.kind {
        let parts = [
            ("model.kv_lora_rank", kv_rank),
            ("model.qk_nope_head_dim", nope_dim),
            ("model.qk_rope_head_dim", rope_dim),
            ("model.v_head_dim", v_dim),
        ];
        for (key, size) in parts {
            report.require(size > 0, (key, &[], "latent"), || {
                let text = format!("latent attention needs `{key}` of at least 1");
                (text, "write `kv_lora_rank = 0` for ordinary attention".into(), vec![])
            });
        }
    }
}

fn experts(job: &Job, report: &mut Report) {
    let Some(moe) = job.model.moe else { return };
    let (experts, k) = (u64::from(moe.experts), u64::from(moe.top_k));
    let place = ("model.num_experts_per_tok", &["model.num_experts"][..], "moe-top-k");
    report.require((1..=experts).contains(&k), place, || {
        let text = format!("a token cannot visit {k} of {experts} experts");
        let near = nearest_values(k, experts, |_| true);
        let hint = try_values("num_experts_per_tok", &near, "a mixture needs experts");
        (text, hint, near)
    });
    let every = ("model.moe_layer_freq", &[][..], "moe-layers");
    report.require(moe.every > 0, every, || {
        ("`model.moe_layer_freq` must be at least 1".into(), "1: every layer".into(), vec![1])
    });
    let width = ("model.moe_intermediate_size", &[][..], "moe-width");
    report.require(moe.expert_intermediate_size > 0, width, || {
        ("an expert has no width".into(), "write `moe_intermediate_size`".into(), vec![])
    });
    let (dense, layers) = (u64::from(moe.dense_layers), u64::from(job.model.layers));
    let place = ("model.first_k_dense_replace", &["model.num_hidden_layers"][..], "moe-layers");
    report.require(dense < layers, place, || {
        let text = format!("all of {layers} layers are dense: none has the model's experts");
        let hint = "write `num_experts = 0` for a dense model".into();
        (text, hint, vec![layers - 1])
    });
}
