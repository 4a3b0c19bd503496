//! The nearest legal word to a misspelt one.

/// Keys of other programs that mean one of ours.
const ALIASES: &[(&str, &str)] = &[
    ("n_embd", "hidden_size"),
    ("d_model", "hidden_size"),
    ("n_layer", "num_hidden_layers"),
    ("num_layers", "num_hidden_layers"),
    ("layers", "num_hidden_layers"),
    ("n_head", "num_attention_heads"),
    ("heads", "num_attention_heads"),
    ("kv_heads", "num_key_value_heads"),
    ("num_query_groups", "num_key_value_heads"),
    ("ffn_hidden_size", "intermediate_size"),
    ("kv_channels", "head_dim"),
    ("n_routed_experts", "num_experts"),
    ("num_local_experts", "num_experts"),
    ("n_shared_experts", "num_shared_experts"),
    ("moe_router_topk", "num_experts_per_tok"),
    ("seq_length", "seq_len"),
    ("sequence_length", "seq_len"),
    ("max_position_embeddings", "seq_len"),
    ("tensor_model_parallel_size", "tensor_parallel_degree"),
    ("tp", "tensor_parallel_degree"),
    ("pipeline_model_parallel_size", "pipeline_parallel_degree"),
    ("pp", "pipeline_parallel_degree"),
    ("context_parallel_size", "context_parallel_degree"),
    ("cp", "context_parallel_degree"),
    ("expert_model_parallel_size", "expert_parallel_degree"),
    ("ep", "expert_parallel_degree"),
    ("dp", "data_parallel_shard_degree"),
    ("data_parallel_degree", "data_parallel_shard_degree"),
    ("vpp", "virtual_pipeline_degree"),
    ("num_virtual_stages_per_pipeline_rank", "virtual_pipeline_degree"),
    ("enable_sequence_parallel", "sequence_parallel"),
    ("recompute_granularity", "recompute"),
];

/// The legal words nearest to `word`, best first, up to 3; those too far away are left out. An alias
/// from another program counts as a hit.
pub(crate) fn nearest<'a>(word: &str, legal: &[&'a str]) -> Vec<&'a str> {
    // Longer text is no misspelling, and the distance takes time of its square.
    if word.len() > 80 {
        return Vec::new();
    }
    let word = word.to_lowercase().replace('-', "_");
    if let Some((_, ours)) = ALIASES.iter().find(|(theirs, _)| *theirs == word)
        && let Some(hit) = legal.iter().find(|l| *l == ours)
    {
        return vec![hit];
    }
    let mut scored: Vec<(usize, &str)> = legal
        .iter()
        .map(|&l| {
            let plain = l.to_lowercase().replace('-', "_");
            let inside = plain.contains(&word) && word.len() >= 3;
            (if inside { 1 } else { strsim::osa_distance(&word, &plain) }, l)
        })
        .filter(|(d, l)| *d <= (l.len().max(word.len()) / 3).max(1))
        .collect();
    scored.sort_unstable();
    let best = scored.first().map_or(0, |s| s.0);
    scored.into_iter().filter(|s| s.0 <= best + 1).take(3).map(|s| s.1).collect()
}

/// `` `a`, `b` or `c` ``.
pub(crate) fn listed(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|w| format!("`{w}`")).collect();
    match quoted.split_last() {
        None => String::new(),
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspellings_and_foreign_names() {
        let legal = ["hidden_size", "head_dim", "num_hidden_layers", "vocab_size"];
        assert_eq!(nearest("hiden_size", &legal), ["hidden_size"]);
        assert_eq!(nearest("hidden-size", &legal), ["hidden_size"]);
        assert_eq!(nearest("n_embd", &legal), ["hidden_size"]);
        assert!(nearest("zzzzzzzz", &legal).is_empty());
    }
}
