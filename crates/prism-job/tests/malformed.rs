//! Malformed job files: every violation at once, each with its place and a hint.

use std::fmt::Write;

use prism_job::{ReadOptions, parse_job};
use proptest::prelude::*;

/// A job file without fault.
const GOOD: &str = r#"schema = "prism.job/1"

[model]
preset = "llama-3.1-70b"

[training]
seq_len = 8192
global_batch_size = 256
micro_batch_size = 1

[parallelism]
tensor_parallel_degree = 8
pipeline_parallel_degree = 4
data_parallel_shard_degree = 4

[cluster]
preset = "h100-dgx"
gpus = 128

[variability]
preset = "dedicated"
"#;

fn rendered(text: &str, set: &[(&str, &str)]) -> String {
    let set = set.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    match parse_job(text, &ReadOptions { set, ..ReadOptions::default() }) {
        Ok(read) => {
            let mut out = "possible".to_owned();
            for warning in read.warnings {
                let _ = write!(out, "\nwarning {}", warning.render("", text));
            }
            out
        }
        Err(error) => {
            for violation in error.violations() {
                if let Some(span) = &violation.span {
                    assert!(
                        text.get(span.clone()).is_some(),
                        "span inside the text: {violation:?}"
                    );
                }
            }
            error.to_string()
        }
    }
}

/// The good file with lines replaced: `from` must be in it.
fn with(edits: &[(&str, &str)]) -> String {
    edits.iter().fold(GOOD.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from} is not in the file");
        text.replace(from, to)
    })
}

#[test]
fn the_base_is_possible() {
    assert!(rendered(GOOD, &[]).starts_with("possible"));
}

#[test]
fn shape() {
    let tp = "tensor_parallel_degree = 8";
    let cases: Vec<(&str, String)> = vec![
        ("empty", String::new()),
        ("no toml", "[model\nhidden_size = = 3\n".to_owned()),
        (
            "the same key twice",
            with(&[(tp, "tensor_parallel_degree = 8\ntensor_parallel_degree = 4")]),
        ),
        ("another schema", with(&[("prism.job/1", "prism.job/9")])),
        ("misspelt key", with(&[(tp, "tensor_paralel_degree = 8")])),
        ("Megatron's key", with(&[(tp, "tensor_model_parallel_size = 8")])),
        ("torchtitan's batch", with(&[("micro_batch_size = 1", "local_batch_size = 8")])),
        ("unknown section", with(&[("[variability]", "[variabilty]")])),
        ("unknown key nothing is near to", with(&[(tp, "zzzzzzzzzzzz = 8")])),
        ("text for a number", with(&[(tp, "tensor_parallel_degree = \"eight\"")])),
        ("negative degree", with(&[(tp, "tensor_parallel_degree = -8")])),
        ("fractional degree", with(&[(tp, "tensor_parallel_degree = 8.5")])),
        ("too large a number", with(&[(tp, "tensor_parallel_degree = 99999999999")])),
        (
            "number for a section",
            with(&[("schema = \"prism.job/1\"", "training = 3"), ("[training]", "[model2]")]),
        ),
        ("unknown schedule", with(&[(tp, "pipeline_parallel_schedule = \"interleaved\"")])),
        ("unknown precision", with(&[(tp, "precision = \"fp16\"")])),
        ("ZeRO 4", with(&[(tp, "zero_stage = 4")])),
        (
            "bandwidth without unit",
            with(&[("gpus = 128", "network = { bandwidth = 400, latency = \"5us\" }")]),
        ),
        ("case of bits", with(&[("gpus = 128", "network = { bandwidth = \"400gbps\" }")])),
        ("latency in bytes", with(&[("gpus = 128", "network = { latency = \"5GB\" }")])),
        ("unknown model", with(&[("llama-3.1-70b", "llama-3.1-7b")])),
        ("unknown cluster", with(&[("h100-dgx", "h100")])),
        ("unknown GPU", with(&[("gpus = 128", "gpu = \"H100-PCIe\"")])),
        ("unknown variability", with(&[("\"dedicated\"", "\"quiet\"")])),
        ("missing sections", "[model]\npreset = \"gpt3-175b\"\n".to_owned()),
        (
            "missing model keys",
            "[model]\nhidden_size = 4096\n[cluster]\npreset = \"eos\"\n".to_owned(),
        ),
        (
            "preset and config",
            with(&[(
                "preset = \"llama-3.1-70b\"",
                "preset = \"llama-3.1-70b\"\nconfig = \"c.json\"",
            )]),
        ),
        (
            "absent config",
            with(&[("preset = \"llama-3.1-70b\"", "config = \"nowhere/config.json\"")]),
        ),
        (
            "unknown keys deep inside",
            with(&[(
                "gpus = 128",
                "gpu = { preset = \"H100-SXM\", hbm = \"80GB\" }\ntiers = [{ gpus = 8, latncy = \"1us\" }]",
            )]),
        ),
        (
            "several at once",
            with(&[
                (tp, "tensor_parallel_degree = 7\nrecompute = \"some\"\nfoo = 1"),
                ("gpus = 128", "gpus = \"many\""),
            ]),
        ),
        (
            "carriage returns and umlauts",
            with(&[("schema", "# größer\r\nschema")]).replace("seq_len = 8192", "seq_len = \"ß\""),
        ),
    ];
    snapshot("shape", &cases);
}

#[test]
fn rules() {
    let tp = "tensor_parallel_degree = 8";
    let pp = "pipeline_parallel_degree = 4";
    let dp = "data_parallel_shard_degree = 4";
    let cases: Vec<(&str, String)> = vec![
        ("heads over TP", with(&[(tp, "tensor_parallel_degree = 7")])),
        (
            "kv heads over TP",
            with(&[(
                "preset = \"llama-3.1-70b\"",
                "preset = \"llama-3.1-70b\"\nnum_attention_heads = 96\nnum_key_value_heads = 12\nhead_dim = 128",
            )]),
        ),
        (
            "heads over kv heads",
            with(&[(
                "preset = \"llama-3.1-70b\"",
                "preset = \"llama-3.1-70b\"\nnum_key_value_heads = 24",
            )]),
        ),
        (
            "width over heads",
            with(&[(
                "preset = \"llama-3.1-70b\"",
                "preset = \"llama-3.1-70b\"\nnum_attention_heads = 48",
            )]),
        ),
        ("zero degree", with(&[(tp, "tensor_parallel_degree = 0")])),
        (
            "sequence over CP",
            with(&[
                ("seq_len = 8192", "seq_len = 8200"),
                (tp, "tensor_parallel_degree = 4\ncontext_parallel_degree = 2"),
            ]),
        ),
        ("sequence over TP", with(&[("seq_len = 8192", "seq_len = 8191")])),
        (
            "SP without TP",
            with(&[
                (tp, "tensor_parallel_degree = 1\nsequence_parallel = true"),
                (dp, "data_parallel_shard_degree = 32"),
            ]),
        ),
        ("batch over DP", with(&[("global_batch_size = 256", "global_batch_size = 250")])),
        (
            "layers over stages",
            with(&[(pp, "pipeline_parallel_degree = 3"), ("gpus = 128", "gpus = 96")]),
        ),
        (
            "chunk list too short",
            with(&[(pp, "pipeline_parallel_degree = 4\nchunk_layers = [20, 20, 40]")]),
        ),
        (
            "chunk list sums wrong",
            with(&[(pp, "pipeline_parallel_degree = 4\nchunk_layers = [20, 20, 20, 19]")]),
        ),
        (
            "empty chunk",
            with(&[(pp, "pipeline_parallel_degree = 4\nchunk_layers = [0, 20, 40, 20]")]),
        ),
        (
            "chunks under 1F1B",
            with(&[(
                pp,
                "pipeline_parallel_degree = 4\nvirtual_pipeline_degree = 2\npipeline_parallel_schedule = \"1f1b\"",
            )]),
        ),
        (
            "interleaving one chunk",
            with(&[(
                pp,
                "pipeline_parallel_degree = 4\npipeline_parallel_schedule = \"interleaved-1f1b\"",
            )]),
        ),
        (
            "interleaving odd microbatches",
            with(&[
                (pp, "pipeline_parallel_degree = 4\nvirtual_pipeline_degree = 5"),
                ("global_batch_size = 256", "global_batch_size = 252"),
            ]),
        ),
        (
            "ZB-V with three chunks",
            with(&[(
                pp,
                "pipeline_parallel_degree = 4\nvirtual_pipeline_degree = 5\npipeline_parallel_schedule = \"zb-v\"",
            )]),
        ),
        (
            "DualPipe with odd stages",
            with(&[
                (pp, "pipeline_parallel_degree = 5\npipeline_parallel_schedule = \"dualpipe\""),
                ("gpus = 128", "gpus = 160"),
            ]),
        ),
        (
            "DualPipe with few microbatches",
            with(&[
                (pp, "pipeline_parallel_degree = 4\npipeline_parallel_schedule = \"dualpipe\""),
                ("global_batch_size = 256", "global_batch_size = 12"),
            ]),
        ),
        (
            "EP of a dense model",
            with(&[(dp, "data_parallel_shard_degree = 4\nexpert_parallel_degree = 4")]),
        ),
        (
            "EP over experts and ranks",
            with(&[
                ("llama-3.1-70b", "mixtral-8x7b"),
                (dp, "data_parallel_shard_degree = 4\nexpert_parallel_degree = 3"),
            ]),
        ),
        (
            "FP8 on A100",
            with(&[
                ("h100-dgx", "a100-dgx"),
                (tp, "tensor_parallel_degree = 8\nprecision = \"fp8\""),
            ]),
        ),
        (
            "FSDP without ZeRO 3",
            with(&[(dp, "data_parallel_shard_degree = 4\nfsdp = { prefetch = 2 }")]),
        ),
        ("other number of GPUs", with(&[("gpus = 128", "gpus = 256")])),
        ("GPUs and nodes differ", with(&[("gpus = 128", "gpus = 128\nnodes = 8")])),
        (
            "rest of no cluster",
            with(&[(dp, "data_parallel_shard_degree = -1"), ("gpus = 128", "")]),
        ),
        (
            "rest does not divide",
            with(&[(dp, "data_parallel_shard_degree = -1"), ("gpus = 128", "gpus = 100")]),
        ),
        ("shard of -2", with(&[(dp, "data_parallel_shard_degree = -2")])),
        (
            "efficiency above 1",
            with(&[("gpus = 128", "gpus = 128\nefficiency = { gemm = 1.2, kernel_s = -1.0 }")]),
        ),
        (
            "variability out of range",
            with(&[(
                "preset = \"dedicated\"",
                "step_sd = -0.1\nresidual_sd = 5.0\nburst_probability = 2.0\nburst_factor = 0.5\nhang = { probability = nan, factor = inf }",
            )]),
        ),
        ("no network", with(&[("preset = \"h100-dgx\"", "gpu = \"H100-SXM\"")])),
        (
            "GPU without figures",
            with(&[("preset = \"h100-dgx\"", "gpu = { name = \"X\", memory = \"0GB\" }")]),
        ),
        (
            "tiers out of order",
            with(&[(
                "gpus = 128",
                "gpus = 128\ntiers = [{ gpus = 64 }, { gpus = 32 }, { gpus = 128, oversubscription = 0.5 }]",
            )]),
        ),
        (
            "latent parts missing",
            with(&[(
                "preset = \"llama-3.1-70b\"",
                "preset = \"llama-3.1-70b\"\nkv_lora_rank = 512",
            )]),
        ),
        (
            "latent parts without rank",
            with(&[("preset = \"llama-3.1-70b\"", "preset = \"llama-3.1-70b\"\nv_head_dim = 128")]),
        ),
        (
            "expert keys of a dense model",
            with(&[(
                "preset = \"llama-3.1-70b\"",
                "preset = \"llama-3.1-70b\"\nnum_experts_per_tok = 2",
            )]),
        ),
        (
            "more visited than there are",
            with(&[("llama-3.1-70b\"", "mixtral-8x7b\"\nnum_experts_per_tok = 9")]),
        ),
        (
            "all layers dense",
            with(&[("llama-3.1-70b\"", "mixtral-8x7b\"\nfirst_k_dense_replace = 32")]),
        ),
        (
            "sequence lengths",
            with(&[("micro_batch_size = 1", "sequences = { median = 0.0, sigma = -1.0 }")]),
        ),
        (
            "five rules at once",
            with(&[
                (tp, "tensor_parallel_degree = 7"),
                (pp, "pipeline_parallel_degree = 3"),
                ("seq_len = 8192", "seq_len = 8191"),
                ("global_batch_size = 256", "global_batch_size = 250"),
            ]),
        ),
        (
            "enormous degrees",
            with(&[
                (tp, "tensor_parallel_degree = 4294967295"),
                (
                    pp,
                    "pipeline_parallel_degree = 4294967295\ncontext_parallel_degree = 4294967295\nvirtual_pipeline_degree = 4294967295",
                ),
                (
                    dp,
                    "data_parallel_shard_degree = 4294967295\ndata_parallel_replicate_degree = 4294967295",
                ),
            ]),
        ),
        (
            "warnings: TP beyond NVLink, padded vocabulary",
            with(&[
                (tp, "tensor_parallel_degree = 16"),
                (dp, "data_parallel_shard_degree = 2"),
                ("llama-3.1-70b\"", "llama-3.1-70b\"\nvocab_size = 50257"),
            ]),
        ),
    ];
    snapshot("rules", &cases);
}

#[test]
fn set_arguments() {
    let cases: &[(&str, &[(&str, &str)])] = &[
        ("replaces", &[("parallelism.tensor_parallel_degree", "4"), ("cluster.gpus", "64")]),
        (
            "text needs no quotes",
            &[("cluster.network.bandwidth", "400Gbps"), ("model.name", "x y")],
        ),
        ("a table", &[("cluster.network", "{ bandwidth = \"50GB/s\", latency = \"5us\" }")]),
        ("new table on the way", &[("parallelism.overlap.p2p", "false")]),
        ("a broken rule", &[("parallelism.tensor_parallel_degree", "7")]),
        ("unknown key", &[("parallelism.tp", "4")]),
        ("no unit", &[("cluster.network.bandwidth", "400")]),
        ("wrong type", &[("training.seq_len", "long")]),
        ("no dotted key", &[("parallelism..x", "4"), ("", "5")]),
        ("through a number", &[("training.seq_len.x", "4")]),
        ("two keys in one", &[("training.seq_len", "4\nglobal_batch_size = 3")]),
        ("too deep", &[("a.b.c.d.e.f.g.h.i", "4")]),
        ("the later wins", &[("training.seq_len", "x"), ("training.seq_len", "8192")]),
    ];
    let mut out = String::new();
    for (name, set) in cases {
        let _ = writeln!(out, "## {name}\n{}\n", rendered(GOOD, set));
    }
    insta::assert_snapshot!("set", out);
}

fn snapshot(name: &str, cases: &[(&str, String)]) {
    let mut out = String::new();
    for (case, text) in cases {
        let found = rendered(text, &[]);
        assert!(
            case.starts_with("warnings") || !found.starts_with("possible"),
            "{case} should be refused"
        );
        let _ = writeln!(out, "## {case}\n{found}\n");
    }
    insta::assert_snapshot!(name, out);
}

/// Values that a key may be given, well or ill.
fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<i64>().prop_map(|v| v.to_string()),
        (0u32..40).prop_map(|v| v.to_string()),
        any::<f64>().prop_map(|v| format!("{v:?}")),
        "[a-zA-Z0-9./ -]{0,10}".prop_map(|s| format!("\"{s}\"")),
        Just("true".to_owned()),
        Just("[1, 2]".to_owned()),
        Just("{ a = 1 }".to_owned()),
        Just("\"400Gbps\"".to_owned()),
        Just("1979-05-27".to_owned()),
    ]
}

fn key() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "model.num_attention_heads",
        "model.num_hidden_layers",
        "model.num_experts",
        "model.kv_lora_rank",
        "model.hidden_size",
        "training.seq_len",
        "training.global_batch_size",
        "training.micro_batch_size",
        "training.sequences.median",
        "parallelism.tensor_parallel_degree",
        "parallelism.pipeline_parallel_degree",
        "parallelism.virtual_pipeline_degree",
        "parallelism.context_parallel_degree",
        "parallelism.expert_parallel_degree",
        "parallelism.data_parallel_shard_degree",
        "parallelism.data_parallel_replicate_degree",
        "parallelism.chunk_layers",
        "parallelism.pipeline_parallel_schedule",
        "parallelism.zero_stage",
        "cluster.gpus",
        "cluster.nodes",
        "cluster.gpus_per_node",
        "cluster.nvlink_domain",
        "cluster.gpu",
        "cluster.gpu.memory",
        "cluster.tiers",
        "cluster.network",
        "cluster.network.bandwidth",
        "variability.step_sd",
        "variability.hang",
        "run",
        "run.steps",
        "run.tokens",
        "run.gpus",
        "run.gpus_per_node",
        "run.nodes_per_rack",
        "run.start",
        "run.deadline",
        "run.checkpoint.interval",
        "run.checkpoint.interval_steps",
        "run.failures.preset",
        "run.failures.class",
        "run.recovery.policy",
        "run.recovery.spares",
        "run.recovery.elastic.replicas",
        "run.slow.preset",
        "run.diurnal.amplitude",
        "unknown.key",
    ])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_read_or_refused(text in "[\\PC\n]{0,200}") {
        let _ = rendered(&text, &[]);
    }

    #[test]
    fn any_values_are_read_or_refused(pairs in prop::collection::vec((key(), value()), 1..6)) {
        let set: Vec<(&str, &str)> = pairs.iter().map(|(k, v)| (*k, v.as_str())).collect();
        let _ = rendered(GOOD, &set);
    }

    #[test]
    fn a_damaged_file_is_read_or_refused(at in 0usize..GOOD.len(), with in "[\\PC\n]{0,6}", cut in 0usize..12) {
        let end = (at + cut).min(GOOD.len());
        let text = format!("{}{with}{}", &GOOD[..at], &GOOD[end..]);
        let _ = rendered(&text, &[]);
    }
}
