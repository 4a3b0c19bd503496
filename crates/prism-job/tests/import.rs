//! Importers, against files as the programs write them.

use prism_job::{
    AttentionKernel, AttentionKind, ImportError, Job, JobText, Positions, Precision, ReadOptions,
    Recompute, ScheduleName, ZeroStage, hugging_face_model, import_hugging_face, import_megatron,
    import_torchtitan, parse_job, presets,
};
use proptest::prelude::*;

/// The job of an imported text with `--set` arguments for what is missing.
fn job(text: &JobText, set: &[(&str, &str)]) -> Job {
    let set = set.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    match parse_job(&text.toml, &ReadOptions { set, ..ReadOptions::default() }) {
        Ok(read) => read.job,
        Err(error) => panic!("{error}\n{}", text.toml),
    }
}

const LLAMA_8B: &str = r#"{"architectures": ["LlamaForCausalLM"], "attention_bias": false,
  "attention_dropout": 0.0, "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 14336,
  "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "llama",
  "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
  "pretraining_tp": 1, "rope_theta": 500000.0, "tie_word_embeddings": false, "vocab_size": 128256}"#;

#[test]
fn configurations_give_the_presets() {
    let configs = [
        ("llama-3.1-8b", LLAMA_8B),
        (
            "mixtral-8x7b",
            r#"{"model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336,
                "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
                "num_local_experts": 8, "num_experts_per_tok": 2, "vocab_size": 32000,
                "head_dim": null, "sliding_window": null}"#,
        ),
        (
            "deepseek-v3",
            r#"{"model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18432,
                "moe_intermediate_size": 2048, "num_hidden_layers": 61, "num_attention_heads": 128,
                "num_key_value_heads": 128, "n_routed_experts": 256, "n_shared_experts": 1,
                "num_experts_per_tok": 8, "first_k_dense_replace": 3, "moe_layer_freq": 1,
                "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
                "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 129280,
                "num_nextn_predict_layers": 1}"#,
        ),
        (
            "gpt-neox-20b",
            r#"{"model_type": "gpt_neox", "hidden_size": 6144, "intermediate_size": 24576,
                "num_hidden_layers": 44, "num_attention_heads": 64, "vocab_size": 50432,
                "max_position_embeddings": 2048, "tie_word_embeddings": false}"#,
        ),
        (
            "bloom-176b",
            r#"{"model_type": "bloom", "hidden_size": 14336, "n_layer": 70,
                "num_attention_heads": 112, "vocab_size": 250880, "hidden_dropout": 0.0}"#,
        ),
    ];
    for (preset, config) in configs {
        let mut imported = hugging_face_model(config).unwrap();
        assert_eq!(imported.warnings.len(), usize::from(preset == "deepseek-v3"), "{preset}");
        imported.model.name = preset.to_owned();
        assert_eq!(imported.model, presets::model(preset).unwrap(), "{preset}");
    }
}

#[test]
fn other_families() {
    let gpt2 = r#"{"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12,
        "n_positions": 1024, "vocab_size": 50257, "resid_pdrop": 0.1, "n_inner": null}"#;
    let found = hugging_face_model(gpt2).unwrap();
    // GPT-2 small has 124,439,808 parameters.
    assert_eq!(found.model.parameters(1024), 124_439_808.0);
    assert_eq!((found.model.positions, found.model.dropout), (Positions::Learned, true));
    let qwen = r#"{"model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144,
        "moe_intermediate_size": 768, "num_hidden_layers": 48, "num_attention_heads": 32,
        "num_key_value_heads": 4, "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8,
        "decoder_sparse_step": 1, "vocab_size": 151936}"#;
    let found = hugging_face_model(qwen).unwrap().model;
    // Qwen3-30B-A3B: 30.5e9.
    assert!((found.parameters(4096) / 30.5e9 - 1.0).abs() < 0.01);
    let falcon = r#"{"model_type": "falcon", "hidden_size": 4544, "num_hidden_layers": 32,
        "num_attention_heads": 71, "multi_query": true, "vocab_size": 65024, "alibi": false}"#;
    assert_eq!(hugging_face_model(falcon).unwrap().model.attention.kv_heads, 1);
    let new = LLAMA_8B.replace("\"llama\"", "\"llama9\"");
    assert_eq!(
        hugging_face_model(&new).unwrap().warnings,
        ["model type `llama9` is read as Llama's"]
    );
}

#[test]
fn configurations_that_are_refused() {
    let refused = |text: &str| hugging_face_model(text).unwrap_err();
    assert!(matches!(refused("[1]"), ImportError::Format { .. }));
    assert!(matches!(refused("{"), ImportError::Format { .. }));
    let unknown = refused(r#"{"model_type": "mamba", "d_model": 8}"#);
    assert_eq!(unknown.to_string(), "model type `mamba` is not known");
    assert!(unknown.hint().unwrap().contains("llama, mistral"));
    let missing = refused(r#"{"model_type": "llama", "hidden_size": 8}"#);
    assert_eq!(
        missing.to_string(),
        "keys are missing: `num_hidden_layers`, `num_attention_heads`, `vocab_size`, `intermediate_size`"
    );
    let wrong =
        refused(&LLAMA_8B.replace("\"num_hidden_layers\": 32", "\"num_hidden_layers\": -1"));
    assert_eq!(wrong.to_string(), "`num_hidden_layers` cannot be `-1`");
}

#[test]
fn a_configuration_becomes_a_job_file() {
    let text = import_hugging_face(LLAMA_8B).unwrap();
    insta::assert_snapshot!("hugging_face", text.toml);
    assert_eq!(text.missing.len(), 2, "{:?}", text.missing);
    let job = job(&text, &[("training.global_batch_size", "128"), ("cluster.preset", "eos")]);
    assert_eq!(job.training.seq_len, 131_072);
}

const MEGATRON: &str = r#"#!/bin/bash
TP=8
PP=16
SEQ=2048
GPT_ARGS="--num-layers 96 --hidden-size 12288 --num-attention-heads 96"
torchrun --nproc_per_node 8 pretrain_gpt.py \
    --tensor-model-parallel-size ${TP} --pipeline-model-parallel-size $PP \
    --num-layers-per-virtual-pipeline-stage 2 --sequence-parallel \
    $GPT_ARGS --seq-length=$SEQ --max-position-embeddings ${SEQ} \
    --micro-batch-size 1 --global-batch-size 1536 \
    --bf16 --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather \
    --use-flash-attn --recompute-activations --vocab-size 51200 --world-size 1024 \
    --lr 6.0e-5 --min-lr 6.0e-6 --clip-grad 1.0 # and so on
"#;

#[test]
fn a_command_line_of_megatron() {
    let text = import_megatron(MEGATRON).unwrap();
    insta::assert_snapshot!("megatron", text.toml);
    assert_eq!(text.ignored, ["--clip-grad", "--lr", "--max-position-embeddings", "--min-lr"]);
    assert!(text.warnings.is_empty());
    let job = job(&text, &[("cluster.preset", "a100-dgx")]);
    let p = &job.plan;
    assert_eq!((p.tensor_parallel, p.pipeline_parallel, p.virtual_chunks), (8, 16, 3));
    assert_eq!((p.data_parallel_shard, p.schedule), (8, ScheduleName::InterleavedOneFOneB));
    assert_eq!((p.zero, p.recompute), (ZeroStage::Optimizer, Recompute::Selective));
    assert!(p.sequence_parallel && p.overlap.grad_reduce && p.overlap.p2p && p.grad_reduce_fp32);
    let mut model = job.model.clone();
    model.name = "megatron-175b".to_owned();
    assert_eq!(model, presets::model("megatron-175b").unwrap());
}

#[test]
fn a_log_of_megatron() {
    let log = "\
[default0]:------------------------ arguments ------------------------
[default0]:  accumulate_allreduce_grads_in_fp32 .............. True
[default0]:  add_bias_linear ................................. False
[default0]:  attention_backend ............................... AttnBackend.flash
[default0]:  attention_dropout ............................... 0.0
[default0]:  bf16 ............................................ True
[default0]:  context_parallel_size ........................... 2
[default0]:  data_parallel_size .............................. 4
[default0]:  expert_model_parallel_size ...................... 8
[default0]:  ffn_hidden_size ................................. 14336
[default0]:  fp8 ............................................. hybrid
[default0]:  global_batch_size ............................... 256
[default0]:  group_query_attention ........................... True
[default0]:  hidden_dropout .................................. 0.0
[default0]:  hidden_size ..................................... 4096
[default0]:  micro_batch_size ................................ 2
[default0]:  moe_router_topk ................................. 2
[default0]:  mtp_num_layers .................................. None
[default0]:  num_attention_heads ............................. 32
[default0]:  num_experts ..................................... 8
[default0]:  num_layers ...................................... 32
[default0]:  num_query_groups ................................ 8
[default0]:  overlap_p2p_comm ................................ False
[default0]:  padded_vocab_size ............................... 32000
[default0]:  pipeline_model_parallel_size .................... 4
[default0]:  position_embedding_type ......................... rope
[default0]:  recompute_granularity ........................... None
[default0]:  seq_length ...................................... 4096
[default0]:  sequence_parallel ............................... False
[default0]:  swiglu .......................................... True
[default0]:  tensor_model_parallel_size ...................... 1
[default0]:  untie_embeddings_and_output_weights ............. True
[default0]:  use_distributed_optimizer ....................... True
[default0]:  virtual_pipeline_model_parallel_size ............ None
[default0]:  world_size ...................................... 32
[default0]:-------------------- end of arguments ---------------------
";
    let text = import_megatron(log).unwrap();
    let job = job(&text, &[("cluster.preset", "h100-dgx")]);
    let p = &job.plan;
    assert_eq!((p.context_parallel, p.expert_parallel, p.data_parallel_shard), (2, 8, 4));
    assert_eq!((p.precision, p.schedule), (Precision::Fp8, ScheduleName::OneFOneB));
    assert_eq!((p.attention_kernel, p.overlap.p2p), (AttentionKernel::Flash, false));
    let mut model = job.model.clone();
    model.name = "mixtral-8x7b".to_owned();
    assert_eq!(model, presets::model("mixtral-8x7b").unwrap());
}

/// Scripts keep flags in arrays, comment some out, and launch with nodes and processes.
#[test]
fn a_script_with_arrays() {
    let script = r#"
NODES=${SLURM_NNODES:-"4"}
LAUNCH=(
    --nproc_per_node 8
    --nnodes $NODES
    --master_addr localhost
)
MODEL=(
    --num-layers 48 # all of them
    --hidden-size 6144
    --num-attention-heads 64
    --vocab-size 51200
#    --swiglu
    # --untie-embeddings-and-output-weights \
    --attention-backend auto
)
RUN="
    --seq-length 2048 --micro-batch-size 4
    --global-batch-size 64
    --fp16
"
if [ -n "${MORE}" ]; then
    RUN+=(
        --clip-grad 1.0
    )
fi
torchrun ${LAUNCH[@]} pretrain_gpt.py ${MODEL[@]} ${RUN} \
    --tensor-model-parallel-size 8 \
    --use-distributed-optimizer
"#;
    let text = import_megatron(script).unwrap();
    assert_eq!(text.ignored, ["--clip-grad", "--master-addr"]);
    assert_eq!(text.warnings.len(), 1, "{:?}", text.warnings);
    let found = job(&text, &[("cluster.preset", "a100-dgx")]);
    let mut model = found.model.clone();
    model.name = "megatron-22b".to_owned();
    assert_eq!(model, presets::model("megatron-22b").unwrap());
    assert_eq!((found.gpus(), found.plan.data_parallel_shard), (32, 4));
    // Of 16-bit gradients the reduction is in 16 bits.
    assert!(!found.plan.grad_reduce_fp32);
    // A launcher's numbers that cannot be are said and left out.
    let one = script
        .replace("SLURM_NNODES:-\"4\"", "X:-\"1\"")
        .replace("parallel-size 8", "parallel-size 16");
    let text = import_megatron(&one).unwrap();
    assert!(text.warnings.iter().any(|w| w.contains("8 GPUs hold no whole replicas of 16")));
    assert!(text.missing.iter().any(|m| m.starts_with("parallelism.data_parallel_shard_degree")));
}

#[test]
fn megatron_details() {
    let base = "--num-layers 62 --hidden-size 1024 --num-attention-heads 16 --bf16 --seq-length 512 \
                --micro-batch-size 1 --global-batch-size 64 --vocab-size 32000 ";
    let with = |more: &str| import_megatron(&format!("{base}{more}"));
    let set = [("cluster.preset", "h100-dgx"), ("parallelism.data_parallel_shard_degree", "2")];
    let uneven = with(
        "--pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 15 \
         --decoder-last-pipeline-num-layers 15",
    );
    let p = job(&uneven.unwrap(), &set).plan;
    assert_eq!(p.chunk_layers, [15, 16, 16, 15]);
    let p = job(&with("--swiglu --multi-latent-attention --kv-lora-rank 64").unwrap(), &set);
    assert_eq!(p.model.mlp.intermediate_size, 2688);
    let AttentionKind::Latent { q_rank, kv_rank, .. } = p.model.attention.kind else { panic!() };
    assert_eq!((q_rank, kv_rank), (None, 64));
    // One rank has no sequence parallelism in Megatron either; the file says so.
    let text = with("--sequence-parallel").unwrap();
    assert!(!job(&text, &set).plan.sequence_parallel);
    let p = job(&with("--grad-reduce-in-bf16 --use-torch-fsdp2").unwrap(), &set).plan;
    assert_eq!((p.grad_reduce_fp32, p.zero), (false, ZeroStage::Parameters));
    let warned =
        with("--mtp-num-layers 1 --cp-comm-type a2a --recompute-granularity full").unwrap();
    assert_eq!(warned.warnings.len(), 2, "{:?}", warned.warnings);
    assert_eq!(job(&warned, &set).plan.recompute, Recompute::Full);
    for (more, message) in [
        ("--num-query-groups four", "`--num-query-groups` cannot be `four`"),
        ("--tensor-model-parallel-size $TP", "`--tensor-model-parallel-size` cannot be `$TP`"),
        (
            "--pipeline-model-parallel-layout Et*3|L",
            "settings that a job file cannot say: --pipeline-model-parallel-layout Et*3|L",
        ),
        (
            "--recompute-granularity full --recompute-method block --recompute-num-layers 3",
            "settings that a job file cannot say: --recompute-method block with 3 layers",
        ),
        (
            "--pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 7",
            "`--decoder-first-pipeline-num-layers` cannot be `7 with 62 layers`",
        ),
    ] {
        assert_eq!(with(more).unwrap_err().to_string(), message);
    }
    assert!(matches!(import_megatron("hello"), Err(ImportError::Format { .. })));
    let missing = import_megatron("--bf16 --num-layers 3").unwrap_err().to_string();
    assert_eq!(missing, "keys are missing: `--hidden-size`, `--num-attention-heads`");
    let fp32 = base.replace("--bf16", "");
    assert!(import_megatron(&fp32).unwrap_err().to_string().contains("4-byte arithmetic"));
}

const TITAN: &str = r#"
[job]
dump_folder = "./outputs"
[model]
name = "llama3"
flavor = "405B"
converters = ["float8"]
[training]
local_batch_size = 2
seq_len = 8192
steps = 3000
[parallelism]
data_parallel_replicate_degree = 1
data_parallel_shard_degree = -1
tensor_parallel_degree = 8
enable_async_tensor_parallel = true
pipeline_parallel_degree = 1
[activation_checkpoint]
mode = "full"
"#;

#[test]
fn toml_of_torchtitan() {
    let text = import_torchtitan(TITAN).unwrap();
    insta::assert_snapshot!("torchtitan", text.toml);
    assert_eq!(text.ignored, ["job.dump_folder", "training.steps"]);
    // The local batch is no microbatch, and the global batch depends on the GPUs.
    let keys: Vec<_> = text.missing.iter().map(|m| m.split(':').next().unwrap()).collect();
    assert_eq!(
        keys,
        [
            "training.global_batch_size",
            "training.micro_batch_size",
            "cluster.gpus",
            "cluster.preset"
        ]
    );
    let set = [
        ("training.global_batch_size", "128"),
        ("training.micro_batch_size", "2"),
        ("cluster.gpus", "512"),
        ("cluster.preset", "h100-dgx"),
    ];
    let p = job(&text, &set).plan;
    assert_eq!((p.data_parallel_shard, p.zero), (64, ZeroStage::Parameters));
    assert!(p.sequence_parallel && p.fsdp.reshard_after_forward && p.overlap.tensor_parallel);
    assert_eq!((p.precision, p.recompute), (Precision::Fp8, Recompute::Full));
}

#[test]
fn json_of_torchtitan() {
    let base = r#"{"model": {"name": "llama3", "flavor": "8B"},
      "training": {"local_batch_size": 8, "global_batch_size": -1, "seq_len": 4096},
      "parallelism": {"data_parallel_shard_degree": 2, "data_parallel_replicate_degree": 2,
        "tensor_parallel_degree": 1, "pipeline_parallel_degree": 4,
        "pipeline_parallel_schedule": "Interleaved1F1B", "pipeline_parallel_microbatch_size": 2,
        "expert_parallel_degree": 1, "pipeline_parallel_layers_per_stage": null},
      "activation_checkpoint": {"mode": "none"}}"#;
    let cluster = [("cluster.preset", "h100-dgx")];
    let text = import_torchtitan(base).unwrap();
    assert_eq!(text.missing, ["cluster.preset: a cluster such as \"h100-dgx\""]);
    let found = job(&text, &cluster);
    assert_eq!((found.training.global_batch_size, found.training.micro_batch_size), (32, 2));
    // 32 layers and one less at either end over 8 chunks: 34 = 5 + 5 + 6 x 4.
    assert_eq!(found.plan.chunk_layers, [4, 5, 4, 4, 4, 4, 4, 3]);
    assert_eq!((found.plan.virtual_chunks, found.gpus()), (2, 16));
    assert!(!found.plan.fsdp.reshard_after_forward);
    // Newer files count microbatches.
    let newer =
        base.replace("\"pipeline_parallel_microbatch_size\": 2", "\"num_pp_microbatches\": 8");
    assert_eq!(job(&import_torchtitan(&newer).unwrap(), &cluster).training.micro_batch_size, 1);
    // Without either the size is left open.
    let open = base.replace("\"pipeline_parallel_microbatch_size\": 2,", "");
    assert!(import_torchtitan(&open).unwrap().missing[0].starts_with("training.micro_batch_size"));
    let zero = base.replace("Interleaved1F1B", "InterleavedZeroBubble");
    assert_eq!(
        import_torchtitan(&zero).unwrap_err().to_string(),
        "settings that a job file cannot say: pipeline_parallel_schedule InterleavedZeroBubble"
    );
    let wrong = base.replace("\"tensor_parallel_degree\": 1", "\"tensor_parallel_degree\": 0");
    assert_eq!(
        import_torchtitan(&wrong).unwrap_err().to_string(),
        "`parallelism.tensor_parallel_degree` cannot be `0`"
    );
    for bad in ["{", "x = ", "[a]\nb = 1"] {
        assert!(matches!(import_torchtitan(bad), Err(ImportError::Format { .. })), "{bad}");
    }
}

/// Checks that an imported text is a job file but for what is missing or against the rules.
fn whole(text: &JobText) {
    if let Err(error) = parse_job(&text.toml, &ReadOptions::default()) {
        for v in error.violations() {
            assert!(!["toml", "unknown-key", "value"].contains(&v.rule), "{v:?}\n{}", text.toml);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_files_are_read_or_refused(at in 0usize..600, cut in 0usize..30, with in "[\\PC\n]{0,8}", n in any::<i64>()) {
        for (file, import) in [
            (LLAMA_8B, import_hugging_face as fn(&str) -> Result<JobText, ImportError>),
            (MEGATRON, import_megatron),
            (TITAN, import_torchtitan),
        ] {
            let at = at.min(file.len());
            let end = (at + cut).min(file.len());
            for put in [with.clone(), n.to_string()] {
                if let Ok(text) = import(&format!("{}{put}{}", &file[..at], &file[end..])) {
                    whole(&text);
                }
            }
            // Any number in place of a number.
            let digits = file[at..].find(|c: char| c.is_ascii_digit()).map(|d| at + d);
            if let Some(start) = digits {
                let end = file[start..].find(|c: char| !c.is_ascii_digit()).map_or(file.len(), |e| start + e);
                if let Ok(text) = import(&format!("{}{n}{}", &file[..start], &file[end..])) {
                    whole(&text);
                }
            }
        }
    }
}
