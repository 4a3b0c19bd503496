//! Rules of the plan: what divides what, and which settings go together.

use super::{Report, divides, nearest_values, try_values};
use crate::{Job, Plan, Precision, ScheduleName};

const TP: &str = "parallelism.tensor_parallel_degree";
const PP: &str = "parallelism.pipeline_parallel_degree";
const CP: &str = "parallelism.context_parallel_degree";
const EP: &str = "parallelism.expert_parallel_degree";
const DP: &str = "parallelism.data_parallel_shard_degree";
const REPLICATE: &str = "parallelism.data_parallel_replicate_degree";
const VPP: &str = "parallelism.virtual_pipeline_degree";
const SCHEDULE: &str = "parallelism.pipeline_parallel_schedule";
const CHUNKS: &str = "parallelism.chunk_layers";
const GLOBAL: &str = "training.global_batch_size";
const MICRO: &str = "training.micro_batch_size";
const LAYERS: &str = "model.num_hidden_layers";

pub(super) fn rules(job: &Job, report: &mut Report) {
    tensor(job, report);
    sequence(job, report);
    batch(job, report);
    chunks(job, report);
    schedule(job, report);
    experts(job, report);
    hardware(job, report);
}

fn tensor(job: &Job, report: &mut Report) {
    let (m, tp) = (&job.model, u64::from(job.plan.tensor_parallel));
    let (heads, kv) = (u64::from(m.attention.heads), u64::from(m.attention.kv_heads));
    let (hidden, ffn) = (u64::from(m.hidden_size), u64::from(m.mlp.intermediate_size));
    let width = m.moe.map_or(ffn, |moe| u64::from(moe.expert_intermediate_size));
    let shares = |t: u64| divides(t, kv) || divides(kv, t);
    // Hints name degrees that keep all of these rules.
    let near = || {
        let splits = |t: u64| [heads, hidden, ffn, width].iter().all(|&n| divides(t, n));
        let values = nearest_values(tp, heads, |t| splits(t) && shares(t));
        (try_values("tensor_parallel_degree", &values, "no degree is possible"), values)
    };
    let place = (TP, &["model.num_attention_heads"][..], "tp-heads");
    report.require(divides(tp, heads), place, || {
        let (hint, values) = near();
        let text = format!("{heads} attention heads do not split into {tp} tensor-parallel ranks");
        (text, hint, values)
    });
    let place = (TP, &["model.num_key_value_heads"][..], "tp-kv-heads");
    report.require(shares(tp), place, || {
        let (hint, values) = near();
        let text = format!(
            "{kv} key and value heads neither split into nor are shared by {tp} tensor-parallel ranks"
        );
        (text, hint, values)
    });
    report.require(divides(tp, hidden), (TP, &["model.hidden_size"], "tp-hidden"), || {
        let (hint, values) = near();
        let text = format!("hidden size {hidden} does not split into {tp} tensor-parallel ranks");
        (text, hint, values)
    });
    report.require(divides(tp, ffn), (TP, &["model.intermediate_size"], "tp-ffn"), || {
        let (hint, values) = near();
        let text =
            format!("intermediate size {ffn} does not split into {tp} tensor-parallel ranks");
        (text, hint, values)
    });
    let place = (TP, &["model.moe_intermediate_size"][..], "tp-expert-ffn");
    report.require(m.moe.is_none() || divides(tp, width), place, || {
        let (hint, values) = near();
        let text = format!("an expert's width {width} does not split into {tp} ranks");
        (text, hint, values)
    });
}

fn sequence(job: &Job, report: &mut Report) {
    let p = &job.plan;
    let place = ("parallelism.sequence_parallel", &[TP][..], "sp-without-tp");
    report.require(!p.sequence_parallel || p.tensor_parallel > 1, place, || {
        let text =
            "sequence parallelism splits among tensor-parallel ranks, and there is one".into();
        let hint = "write `sequence_parallel = false`, or `tensor_parallel_degree` above 1".into();
        (text, hint, vec![])
    });
    let seq = u64::from(job.training.seq_len);
    let tp = if p.sequence_parallel { u64::from(p.tensor_parallel) } else { 1 };
    let cp = u64::from(p.context_parallel);
    // Ring attention balances causal work by giving each rank one chunk from either end.
    let pieces = |tp: u64, cp: u64| tp.saturating_mul(if cp > 1 { 2 * cp } else { 1 });
    let unit = pieces(tp, cp);
    if cp > 1 {
        let place = (CP, &["training.seq_len", TP][..], "cp-seq");
        report.require(divides(unit, seq), place, || {
            let near = nearest_values(cp, seq, |c| divides(pieces(tp, c), seq));
            let hint = try_values("context_parallel_degree", &near, "make `seq_len` a multiple");
            let times = if tp > 1 { ", times tensor-parallel ranks" } else { "" };
            let text = format!(
                "{seq} tokens do not split into {unit} pieces: 2 per context-parallel rank{times}"
            );
            (text, hint, near)
        });
    } else {
        let place = ("training.seq_len", &[TP][..], "sp-seq");
        // Where the heads do not split either, the degree is what has to change.
        let heads = divides(tp, u64::from(job.model.attention.heads));
        report.require(divides(unit, seq) || !heads, place, || {
            let near = nearest_values(seq, u64::from(u32::MAX), |s| divides(unit, s));
            let text = format!("{seq} tokens do not split into {unit} tensor-parallel ranks");
            (text, try_values("seq_len", &near, ""), near)
        });
    }
}

fn batch(job: &Job, report: &mut Report) {
    let (t, p) = (&job.training, &job.plan);
    let (global, micro) = (u64::from(t.global_batch_size), u64::from(t.micro_batch_size));
    let dp = u64::from(p.data_parallel_shard) * u64::from(p.data_parallel_replicate);
    let place = (GLOBAL, &[MICRO, DP, REPLICATE][..], "batch");
    let unit = micro.saturating_mul(dp);
    report.require(divides(unit, global), place, || {
        let most = u64::from(u32::MAX);
        let down = (global / unit * unit, global.div_ceil(unit) * unit);
        let mut near = if global - down.0 <= down.1 - global {
            vec![down.0, down.1]
        } else {
            vec![down.1, down.0]
        };
        near.retain(|g| *g > 0 && *g <= most);
        let text = format!(
            "a global batch of {global} is no multiple of micro batch {micro} x {dp} replicas"
        );
        (text, try_values("global_batch_size", &near, "take fewer replicas"), near)
    });
}

fn chunks(job: &Job, report: &mut Report) {
    let p = &job.plan;
    let layers = u64::from(job.model.layers);
    let chunks = u64::from(p.pipeline_parallel) * u64::from(p.virtual_chunks);
    if p.chunk_layers.is_empty() {
        let place = (PP, &[VPP, LAYERS, CHUNKS][..], "pp-layers");
        let vpp = u64::from(p.virtual_chunks);
        report.require(divides(chunks, layers), place, || {
            let near =
                nearest_values(p.pipeline_parallel.into(), layers, |s| divides(s * vpp, layers));
            let fix = try_values("pipeline_parallel_degree", &near, "take fewer chunks");
            let hint = format!("{fix}, or list `chunk_layers`");
            (format!("{layers} layers do not split evenly into {chunks} chunks"), hint, near)
        });
        return;
    }
    let listed = p.chunk_layers.len() as u64;
    report.require(listed == chunks, (CHUNKS, &[PP, VPP], "chunk-count"), || {
        let (pp, v) = (p.pipeline_parallel, p.virtual_chunks);
        let text =
            format!("`chunk_layers` lists {listed} chunks, and {pp} stages x {v} make {chunks}");
        (text, format!("list {chunks} numbers"), vec![])
    });
    let sum: u64 = p.chunk_layers.iter().map(|&l| u64::from(l)).sum();
    report.require(sum == layers, (CHUNKS, &[LAYERS], "chunk-sum"), || {
        let text = format!("`chunk_layers` adds up to {sum} layers, and the model has {layers}");
        (text, format!("make it add up to {layers}"), vec![])
    });
    let empty = p.chunk_layers.contains(&0);
    report.require(!empty, (CHUNKS, &[], "chunk-empty"), || {
        let text = "a chunk of `chunk_layers` has no layer".into();
        (text, "give every chunk at least 1".into(), vec![])
    });
}

/// Chunks per stage that a schedule cuts the model into; `None` for any number above 1. `DualPipe`
/// cuts it into as many pieces as there are stages, of which each stage holds two.
fn chunks_of(schedule: ScheduleName) -> Option<u32> {
    match schedule {
        ScheduleName::GPipe
        | ScheduleName::OneFOneB
        | ScheduleName::ZbH1
        | ScheduleName::DualPipe => Some(1),
        ScheduleName::ZbV => Some(2),
        ScheduleName::InterleavedOneFOneB => None,
    }
}

fn schedule(job: &Job, report: &mut Report) {
    let p = &job.plan;
    let (pp, v) = (u64::from(p.pipeline_parallel), p.virtual_chunks);
    let micro = u64::from(job.microbatches());
    let place = (VPP, &[SCHEDULE][..], "vpp-schedule");
    match chunks_of(p.schedule) {
        Some(n) => report.require(v == n, place, || {
            let text = format!("with schedule `{}` chunks per stage are {n}, not {v}", p.schedule);
            let hint = format!("write `virtual_pipeline_degree = {n}`");
            let more = "or `pipeline_parallel_schedule = \"interleaved-1f1b\"`";
            let hint = if v > 1 { format!("{hint}, {more}") } else { hint };
            (text, hint, vec![n.into()])
        }),
        None => report.require(v > 1 && pp > 1, place, || {
            let text = format!(
                "schedule `{}` needs several stages and several chunks per stage, not {pp} x {v}",
                p.schedule
            );
            let hint = "write `virtual_pipeline_degree` of 2 or more, or `1f1b`";
            let alone = "write `pipeline_parallel_schedule = \"1f1b\"`";
            if pp > 1 { (text, hint.into(), vec![2]) } else { (text, alone.into(), vec![]) }
        }),
    }
    let batch = u64::from(job.training.micro_batch_size) * u64::from(p.data_parallel());
    let interleaved = p.schedule == ScheduleName::InterleavedOneFOneB;
    if interleaved {
        let place = (GLOBAL, &[MICRO, DP, PP, SCHEDULE][..], "interleaved-microbatches");
        report.require(divides(pp, micro), place, || {
            let near: Vec<u64> = nearest_values(micro, u64::from(u32::MAX), |m| divides(pp, m))
                .iter()
                .map(|m| m.saturating_mul(batch))
                .collect();
            let text = format!(
                "{micro} microbatches are no multiple of {pp} stages, as interleaving needs"
            );
            (text, try_values("global_batch_size", &near, ""), near)
        });
    }
    if p.schedule == ScheduleName::DualPipe {
        report.require(pp.is_multiple_of(2), (PP, &[SCHEDULE], "dualpipe-stages"), || {
            let near = nearest_values(pp, u64::from(job.model.layers), |s| s.is_multiple_of(2));
            let hint = try_values("pipeline_parallel_degree", &near, "take another schedule");
            (format!("`dualpipe` needs an even number of stages, not {pp}"), hint, near)
        });
        let place = (GLOBAL, &[MICRO, DP, PP, SCHEDULE][..], "dualpipe-microbatches");
        report.require(micro >= 2 * pp && micro.is_multiple_of(2), place, || {
            let near = vec![(2 * pp).max(micro.next_multiple_of(2)).saturating_mul(batch)];
            let text = format!(
                "`dualpipe` needs an even number of microbatches of at least {} (2 per stage), not {micro}",
                2 * pp
            );
            (text, try_values("global_batch_size", &near, ""), near)
        });
    }
}

fn experts(job: &Job, report: &mut Report) {
    let p = &job.plan;
    let ep = u64::from(p.expert_parallel);
    if ep == 1 {
        return;
    }
    let Some(moe) = job.model.moe else {
        report.require(false, (EP, &["model.num_experts"], "ep-dense"), || {
            let text = format!("a dense model has no experts to spread over {ep} ranks");
            (text, "write `expert_parallel_degree = 1`".into(), vec![1])
        });
        return;
    };
    let experts = u64::from(moe.experts);
    let ranks = u64::from(p.data_parallel()) * u64::from(p.context_parallel);
    report.require(divides(ep, experts), (EP, &["model.num_experts"], "ep-experts"), || {
        let near = nearest_values(ep, experts, |e| divides(e, experts) && divides(e, ranks));
        let hint = try_values("expert_parallel_degree", &near, "");
        (format!("{experts} experts do not split into {ep} expert-parallel ranks"), hint, near)
    });
    report.require(divides(ep, ranks), (EP, &[DP, REPLICATE, CP], "ep-ranks"), || {
        let near = nearest_values(ep, ranks, |e| divides(e, experts) && divides(e, ranks));
        let text = format!(
            "{ep} expert-parallel ranks do not divide the {ranks} data- and context-parallel ones"
        );
        (text, try_values("expert_parallel_degree", &near, ""), near)
    });
}

fn hardware(job: &Job, report: &mut Report) {
    let (p, c) = (&job.plan, &job.cluster);
    let place = ("parallelism.precision", &["cluster.gpu"][..], "fp8-gpu");
    report.require(p.precision == Precision::Bf16 || c.gpu.fp8_flops.is_some(), place, || {
        let text = format!("{} has no 8-bit tensor cores", c.gpu.name);
        (text, "write `precision = \"bf16\"`, or take a newer GPU".into(), vec![])
    });
    let place = ("cluster.nvlink_domain", &["cluster.gpus_per_node"][..], "nvlink-domain");
    let (domain, node) = (u64::from(c.nvlink_domain), u64::from(c.gpus_per_node));
    report.require(divides(domain, node) || divides(node, domain), place, || {
        let near = nearest_values(domain, 4096, |d| divides(d, node) || divides(node, d));
        let text = format!("an NVLink domain of {domain} GPUs does not fit nodes of {node}");
        (text, try_values("nvlink_domain", &near, ""), near)
    });
    let Some(gpus) = c.gpus else { return };
    let taken = wide_gpus(p);
    let place = ("cluster.gpus", &["cluster.nodes", TP, PP, CP, DP, REPLICATE][..], "gpus");
    report.require(taken == u128::from(gpus), place, || {
        let per_replica =
            p.gpus_per_replica().saturating_mul(u64::from(p.data_parallel_replicate));
        let fix = format!("write `gpus = {taken}`");
        let hint = if divides(per_replica, gpus) {
            format!("{fix}, or `data_parallel_shard_degree = {}`", gpus / per_replica)
        } else {
            fix
        };
        let text = format!(
            "the plan takes {taken} GPUs (TP {} x CP {} x PP {} x DP {}), and the cluster has {gpus}",
            p.tensor_parallel,
            p.context_parallel,
            p.pipeline_parallel,
            p.data_parallel()
        );
        (text, hint, u64::try_from(taken).into_iter().collect())
    });
}

/// GPUs of a plan, exact even where degrees are absurd.
fn wide_gpus(p: &Plan) -> u128 {
    [p.tensor_parallel, p.context_parallel, p.pipeline_parallel, p.data_parallel_shard]
        .into_iter()
        .chain([p.data_parallel_replicate])
        .fold(1u128, |product, degree| product.saturating_mul(u128::from(degree)))
}

pub(super) fn warnings(job: &Job, report: &mut Report) {
    let (p, c) = (&job.plan, &job.cluster);
    let (tp, domain) = (p.tensor_parallel, c.nvlink_domain);
    report.require(tp <= domain, (TP, &["cluster.nvlink_domain"], "tp-nvlink"), || {
        let text =
            format!("{tp} tensor-parallel ranks span more than the NVLink domain of {domain}");
        (text, "every layer then waits for the network".into(), vec![domain.into()])
    });
    let pad = u64::from(tp) * 128;
    let vocab = u64::from(job.model.vocab_size);
    report.require(
        divides(pad, vocab) || tp == 1,
        ("model.vocab_size", &[TP], "vocab-pad"),
        || {
            let padded = vocab.next_multiple_of(pad);
            let text = format!("a vocabulary of {vocab} is padded to {padded} for {tp} ranks");
            (text, "as Megatron does: a multiple of 128 per rank".into(), vec![padded])
        },
    );
    let (micro, pp) = (u64::from(job.microbatches()), u64::from(p.pipeline_parallel));
    let place = (GLOBAL, &[MICRO, DP, PP][..], "few-microbatches");
    report.require(micro >= pp, place, || {
        let text = format!("{micro} microbatches cannot fill {pp} pipeline stages");
        (text, "take a larger global batch or fewer stages".into(), vec![])
    });
    let place = ("cluster.gpus_per_node", &["cluster.gpus"][..], "part-node");
    let (gpus, node) = (p.gpus(), u64::from(c.gpus_per_node));
    report.require(gpus <= node || divides(node, gpus), place, || {
        (format!("{gpus} GPUs leave a node of {node} partly used"), String::new(), vec![])
    });
}
