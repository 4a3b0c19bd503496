//! The text of a new job file.

use std::fmt::Write;

use super::choose::{Candidate, Wish};

/// A TOML string.
pub(super) fn quoted(text: &str) -> String {
    let escaped: String = text
        .chars()
        .map(|c| match c {
            '"' | '\\' => format!("\\{c}"),
            c if c.is_control() => format!("\\u{:04X}", c as u32),
            c => c.to_string(),
        })
        .collect();
    format!("\"{escaped}\"")
}

/// A commented job file. `notes` say how its plan was chosen.
pub(super) fn job(wish: &Wish, plan: &Candidate, notes: &[String]) -> String {
    let mut out = String::from(
        "# A job for `prism check` and `prism predict`. `prism schema job` describes every key,\n\
         # `prism init --list models` (gpus, clusters, variabilities) names the presets.\n\
         schema = \"prism.job/1\"\n\n",
    );
    out.push_str(wish.model.trim_end());
    let _ = write!(
        out,
        "\n\n[training]\n\
         seq_len = {}  # tokens\n\
         global_batch_size = {}  # sequences of a step, all replicas\n\
         micro_batch_size = {}  # sequences of a microbatch of one replica\n",
        wish.seq_len, plan.global_batch_size, wish.micro_batch_size
    );
    out.push('\n');
    for note in notes {
        let _ = writeln!(out, "# {note}");
    }
    out.push_str("[parallelism]\n");
    let mut line = |key: &str, value: &str, comment: &str| {
        let _ = writeln!(out, "{key} = {value}  # {comment}");
    };
    let split = if plan.tp > 1 { "with sequence parallelism" } else { "ranks that share a layer" };
    line("tensor_parallel_degree", &plan.tp.to_string(), split);
    line("pipeline_parallel_degree", &plan.pp.to_string(), "stages");
    if let Some(v) = wish.plan.vpp {
        line("virtual_pipeline_degree", &v.to_string(), "model chunks per stage");
    }
    match &wish.plan.schedule {
        Some(s) => line("pipeline_parallel_schedule", &quoted(s), "see `prism schema job`"),
        None if plan.pp > 1 && wish.plan.vpp.is_none() => {
            let others = "gpipe, 1f1b, interleaved-1f1b, zb-h1, zb-v, dualpipe";
            line("pipeline_parallel_schedule", "\"1f1b\"", others);
        }
        None => {}
    }
    if plan.cp > 1 {
        line("context_parallel_degree", &plan.cp.to_string(), "ring attention");
    }
    if plan.ep > 1 {
        line("expert_parallel_degree", &plan.ep.to_string(), "among the data-parallel ranks");
    }
    line("data_parallel_shard_degree", &plan.dp.to_string(), "-1: what is left of the GPUs");
    let zero = "1 optimizer state, 2 and gradients, 3 and parameters (FSDP)";
    line("zero_stage", &wish.plan.zero.unwrap_or(1).to_string(), zero);
    line("recompute", &quoted(&plan.recompute), "none, selective, full");
    line("precision", "\"bf16\"", "bf16, fp8");
    let _ = write!(
        out,
        "\n[parallelism.overlap]\n\
         grad_reduce = true  # gradients are reduced beside backward passes\n\
         param_gather = true  # parameters are gathered beside the first forward passes\n\
         p2p = true  # transfers between stages run beside compute\n\
         tensor_parallel = false  # collectives run beside the products they feed\n\
         \n[cluster]\n\
         preset = {}\n\
         gpus = {}\n\
         \n[variability]\n\
         preset = {}  # any spread can be replaced, such as `gpu_compute_sd = 0.01`\n",
        quoted(&wish.cluster),
        wish.gpus,
        quoted(&wish.variability)
    );
    out
}
