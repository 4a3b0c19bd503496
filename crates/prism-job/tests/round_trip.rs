//! Job files that are written read back as the same job, whatever the job.

use prism_job::{
    AttentionKernel, Efficiency, Fsdp, Job, JobFileError, Overlap, Precision, ReadOptions,
    Recompute, ScheduleName, SequenceLengths, ZeroStage, job_schema, job_schema_text, parse_job,
    presets, read_job, to_toml,
};
use proptest::prelude::*;

fn read(text: &str) -> Job {
    match parse_job(text, &ReadOptions::default()) {
        Ok(read) => read.job,
        Err(error) => panic!("{error}\n{text}"),
    }
}

fn small(model: &str, cluster: &str, variability: &str) -> Job {
    read(&format!(
        "[model]\npreset = \"{model}\"\n[training]\nseq_len = 2048\nglobal_batch_size = 16\n\
         [cluster]\npreset = \"{cluster}\"\n[variability]\npreset = \"{variability}\"\n"
    ))
}

#[test]
fn every_preset_round_trips() {
    for model in presets::models() {
        let job = small(model.name, "eos", "dedicated");
        assert_eq!(job.model, presets::model(model.name).unwrap());
        assert_eq!(read(&to_toml(&job)), job, "{}", model.name);
    }
    for cluster in presets::clusters() {
        let job = small("llama-3.1-8b", cluster.name, "dedicated");
        assert_eq!(job.cluster, presets::cluster(cluster.name).unwrap());
        assert_eq!(read(&to_toml(&job)), job, "{}", cluster.name);
    }
    for variability in presets::variabilities() {
        let job = small("llama-3.1-8b", "eos", variability.name);
        assert_eq!(job.variability, presets::variability(variability.name).unwrap());
        assert_eq!(read(&to_toml(&job)), job, "{}", variability.name);
    }
    for gpu in presets::gpus() {
        let text = format!(
            "gpu = \"{}\"\nnetwork = {{ bandwidth = \"123.456Gbps\", latency = \"3us\" }}",
            gpu.name
        );
        let text = format!(
            "[model]\npreset = \"gpt3-175b\"\n[training]\nseq_len = 2048\nglobal_batch_size = 4\n[cluster]\n{text}\n"
        );
        let job = read(&text);
        assert_eq!(job.cluster.gpu, presets::gpu(gpu.name).unwrap().gpu);
        assert_eq!(read(&to_toml(&job)), job, "{}", gpu.name);
    }
}

#[test]
fn defaults_are_those_of_the_schema() {
    let job = small("gpt3-175b", "eos", "none");
    let p = &job.plan;
    assert_eq!(job.gpus(), 1);
    assert_eq!(job.name, "gpt3-175b");
    assert_eq!(
        (p.zero, p.recompute, p.precision),
        (ZeroStage::Optimizer, Recompute::None, Precision::Bf16)
    );
    assert_eq!(
        (p.schedule, p.virtual_chunks, p.sequence_parallel),
        (ScheduleName::OneFOneB, 1, false)
    );
    assert_eq!(p.attention_kernel, AttentionKernel::Flash);
    assert!(p.grad_reduce_fp32);
    let all = Overlap { grad_reduce: true, param_gather: true, p2p: true, tensor_parallel: false };
    assert_eq!(p.overlap, all);
    assert_eq!(p.fsdp, Fsdp { prefetch: 1, reshard_after_forward: true });
    assert_eq!(job.training.micro_batch_size, 1);
}

#[test]
fn schedules_follow_from_chunks_and_chunks_from_schedules() {
    let base = "[model]\npreset = \"megatron-22b\"\n[training]\nseq_len = 2048\nglobal_batch_size = 16\n\
                [cluster]\npreset = \"eos\"\n[parallelism]\npipeline_parallel_degree = 4\n";
    let plan = |more: &str| read(&format!("{base}{more}\n")).plan;
    let p = plan("virtual_pipeline_degree = 3");
    assert_eq!((p.schedule, p.virtual_chunks), (ScheduleName::InterleavedOneFOneB, 3));
    for (name, chunks) in [("zb-v", 2), ("dualpipe", 1), ("zb-h1", 1), ("gpipe", 1)] {
        let p = plan(&format!("pipeline_parallel_schedule = \"{name}\""));
        assert_eq!((p.schedule.to_string().as_str(), p.virtual_chunks), (name, chunks));
    }
    assert!(!plan("zero_stage = 3").fsdp.reshard_after_forward);
    let p = plan("tensor_parallel_degree = 2\ndata_parallel_shard_degree = 4");
    assert!(p.sequence_parallel);
    assert_eq!(p.gpus(), 32);
}

#[test]
fn a_gpu_can_be_given_whole_or_in_part() {
    let text = |gpu: &str| {
        format!(
            "[model]\npreset = \"llama-3.1-8b\"\n[training]\nseq_len = 2048\nglobal_batch_size = 4\n\
             [cluster]\npreset = \"h100-dgx\"\n{gpu}\n"
        )
    };
    let h100 = presets::gpu("H100-SXM").unwrap();
    let job = read(&text("gpu = { memory = \"94GiB\" }"));
    assert_eq!(job.cluster.gpu.memory_bytes, 94.0 * 1_073_741_824.0);
    assert_eq!(job.cluster.gpu.bf16_flops, h100.gpu.bf16_flops);
    assert_eq!(job.cluster.efficiency, h100.efficiency);
    // Another GPU brings what is reached of it, and the cluster keeps its links.
    let a100 = presets::gpu("A100-SXM-80GB").unwrap();
    let job = read(&text("gpu = \"A100-SXM-80GB\""));
    assert_eq!(job.cluster.gpu, a100.gpu);
    assert_eq!(job.cluster.efficiency, a100.efficiency);
    assert_eq!(job.cluster.nvlink.bandwidth, 450e9);
    let job = read(&text("efficiency = { gemm = 0.5, step_s = 0.25 }"));
    assert_eq!(job.cluster.efficiency, Efficiency { gemm: 0.5, step_s: 0.25, ..h100.efficiency });
}

#[test]
fn a_config_file_lies_beside_the_job() {
    let folder = tempfile::tempdir().unwrap();
    let config = r#"{"model_type": "llama", "hidden_size": 512, "num_hidden_layers": 4,
        "intermediate_size": 1024, "num_attention_heads": 8, "num_key_value_heads": 2,
        "vocab_size": 32000, "tie_word_embeddings": true}"#;
    std::fs::write(folder.path().join("config.json"), config).unwrap();
    let job = folder.path().join("job.toml");
    let text = "[model]\nconfig = \"config.json\"\nnum_hidden_layers = 6\n[training]\nseq_len = 128\n\
                global_batch_size = 8\n[cluster]\npreset = \"h100-dgx\"\n";
    std::fs::write(&job, text).unwrap();
    let model = read_job(&job, &[]).unwrap().job.model;
    assert_eq!((model.hidden_size, model.layers, model.tied_embeddings), (512, 6, true));
    assert_eq!(model.attention.head_dim, 64);
    let set = [("model.config".to_owned(), "other.json".to_owned())];
    let error = read_job(&job, &set).unwrap_err();
    assert!(
        error.to_string().contains("--set model.config=other.json: cannot read `other.json`"),
        "{error}"
    );
    let error = read_job(&folder.path().join("none.toml"), &[]).unwrap_err();
    assert!(matches!(error, JobFileError::Read { .. }) && error.hint().is_some());
}

#[test]
fn the_schema_knows_every_key_of_a_written_file() {
    let schema = job_schema();
    let mut job = small("deepseek-v3", "llama3-roce", "dedicated");
    job.training.sequences = Some(SequenceLengths { median: 500.0, sigma: 1.2, packed: true });
    job.plan.zero = ZeroStage::Parameters;
    let text = to_toml(&job);
    let value: serde_json::Value = toml::from_str(&text).unwrap();
    known(&value, &schema, &schema, "");
    assert_eq!(read(&text), job);
}

#[test]
fn the_committed_schema_is_this_one() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../schemas/job.json");
    if std::env::var_os("UPDATE_SCHEMAS").is_some() {
        std::fs::write(path, job_schema_text()).unwrap();
    }
    let committed = std::fs::read_to_string(path).unwrap();
    assert!(
        committed == job_schema_text(),
        "schemas/job.json is stale: UPDATE_SCHEMAS=1 writes it"
    );
}

#[test]
fn torchtitan_names_of_schedules_are_read() {
    let text = to_toml(&small("gpt3-175b", "eos", "none"));
    for (theirs, ours) in [("1F1B", "1f1b"), ("GPipe", "gpipe")] {
        let text = text.replace("\"1f1b\"", &format!("\"{theirs}\""));
        assert_eq!(read(&text).plan.schedule.to_string(), ours);
    }
}

/// Checks that every key of a value is a property of its schema.
fn known(
    value: &serde_json::Value,
    schema: &serde_json::Value,
    root: &serde_json::Value,
    at: &str,
) {
    let mut schema = schema;
    loop {
        if let Some(path) = schema.get("$ref").and_then(|r| r.as_str()) {
            schema = root.pointer(path.trim_start_matches('#')).unwrap();
        } else if let Some(choices) = schema.get("anyOf").and_then(|a| a.as_array()) {
            let mut tables =
                choices.iter().filter(|c| c.get("$ref").is_some() || c.get("properties").is_some());
            match tables.next() {
                Some(choice) => schema = choice,
                None => return,
            }
        } else {
            break;
        }
    }
    match value {
        serde_json::Value::Object(map) => {
            for (key, inner) in map {
                let property = schema.pointer(&format!("/properties/{key}"));
                known(
                    inner,
                    property.unwrap_or_else(|| panic!("{at}.{key} is in no schema")),
                    root,
                    key,
                );
            }
        }
        serde_json::Value::Array(items) => {
            for item in items {
                known(item, &schema["items"], root, at);
            }
        }
        _ => {}
    }
}

/// A finite number that a quantity may have, of any size.
fn positive() -> impl Strategy<Value = f64> {
    (1.0f64..10.0, -9i32..18).prop_map(|(m, e)| m * 10f64.powi(e))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_numbers_round_trip(
        (memory, bandwidth, rate, latency) in (positive(), positive(), positive(), 0.0f64..1.0),
        (sd, skew, share, factor) in (0.0f64..3.0, -10.0f64..10.0, 0.0f64..=1.0, 1.0f64..100.0),
        name in "\\PC{0,12}",
        (tp, pp, v, shard) in (0u32..3, 0u32..3, 1u32..3, 1u32..5),
    ) {
        let mut job = small("megatron-22b", "eos", "lemon");
        job.name.clone_from(&name);
        job.model.name.clone_from(&name);
        job.cluster.gpu.memory_bytes = memory;
        job.cluster.gpu.bf16_flops = rate;
        job.cluster.network.bandwidth = bandwidth;
        job.cluster.nvlink.latency_s = latency;
        job.cluster.tiers[0].latency_s = latency;
        job.cluster.efficiency.kernel_s = latency / 1e3;
        job.variability.step_sd = sd;
        job.variability.microbatch.skew = skew;
        job.variability.burst_probability = share;
        job.variability.hang.factor = factor;
        let p = &mut job.plan;
        (p.tensor_parallel, p.pipeline_parallel, p.data_parallel_shard) = (1 << tp, 1 << pp, shard);
        p.sequence_parallel = tp > 0;
        if v > 1 && pp > 0 {
            (p.virtual_chunks, p.schedule) = (v, ScheduleName::InterleavedOneFOneB);
            let chunks = p.chunks();
            p.chunk_layers = (0..chunks).map(|c| 48 / chunks + c % 2 * 2).collect();
            let sum: u32 = p.chunk_layers.iter().sum();
            job.model.layers = sum;
        }
        job.training.global_batch_size = shard * 8;
        job.cluster.gpus = Some(job.gpus());
        prop_assert!(job.check().is_empty(), "{:?}", job.check());
        let text = to_toml(&job);
        prop_assert_eq!(read(&text), job);
    }
}
