//! torchtitan's configuration: the JSON it saves, and its TOML of before.

use serde_json::Value;

use super::ImportError;
use super::hugging_face::write_model;
use super::text::{Draft, JobText};
use crate::{Model, presets};

/// A job file from torchtitan's configuration, JSON or TOML.
///
/// `training.local_batch_size` is a rank's sequences of a pass over the pipeline, not a microbatch's;
/// the size of a microbatch is taken from where torchtitan sets it, or left open.
///
/// # Errors
/// [`ImportError`]: neither JSON nor TOML, impossible values, settings that change the cost and that a
/// job file cannot say.
pub fn import_torchtitan(text: &str) -> Result<JobText, ImportError> {
    let root = root(text)?;
    let mut config =
        Config { root, used: Vec::new(), warnings: Vec::new(), unsupported: Vec::new() };
    if !config.root.get("parallelism").or(config.root.get("training")).is_some_and(Value::is_object)
    {
        let cause = "it has neither `training` nor `parallelism`".to_owned();
        return Err(ImportError::Format { format: "torchtitan configuration", cause });
    }
    let mut draft = Draft::new();
    let model = model(&mut config, &mut draft);
    let degrees = Degrees::read(&mut config)?;
    training(&mut config, &mut draft, &degrees)?;
    parallelism(&mut config, &mut draft, &degrees, model.as_ref())?;
    rest(&mut config, &mut draft);
    if !config.unsupported.is_empty() {
        return Err(ImportError::Unsupported(config.unsupported));
    }
    let ignored = config.unused();
    Ok(draft.finish("A configuration of torchtitan.", ignored, config.warnings))
}

fn root(text: &str) -> Result<Value, ImportError> {
    if text.trim_start().starts_with('{') {
        return serde_json::from_str(text)
            .map_err(|e| ImportError::Format { format: "torchtitan JSON", cause: e.to_string() });
    }
    toml::from_str::<Value>(text).map_err(|e| ImportError::Format {
        format: "torchtitan TOML",
        cause: e.message().to_owned(),
    })
}

struct Config {
    root: Value,
    used: Vec<String>,
    warnings: Vec<String>,
    unsupported: Vec<String>,
}

impl Config {
    /// A value that is there and not null.
    fn get(&mut self, key: &str) -> Option<Value> {
        let value = key.split('.').try_fold(&self.root, |v, part| v.get(part))?.clone();
        self.used.push(key.to_owned());
        (!value.is_null()).then_some(value)
    }

    fn int(&mut self, key: &str) -> Result<Option<i64>, ImportError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let number = value.as_i64().filter(|v| *v >= -1 && *v <= i64::from(u32::MAX));
        number.map(Some).ok_or_else(|| ImportError::Value {
            key: key.to_owned(),
            value: value.to_string().chars().take(40).collect(),
        })
    }

    fn text(&mut self, key: &str) -> Option<String> {
        self.get(key)?.as_str().map(str::to_owned)
    }

    fn flag(&mut self, key: &str) -> Option<bool> {
        self.get(key)?.as_bool()
    }

    /// Keys of two levels that nothing asked for.
    fn unused(&self) -> Vec<String> {
        let Value::Object(root) = &self.root else { return Vec::new() };
        let mut out = Vec::new();
        for (section, value) in root {
            match value {
                Value::Object(keys) => {
                    out.extend(keys.keys().map(|k| format!("{section}.{k}")));
                }
                _ => out.push(section.clone()),
            }
        }
        out.retain(|key| !self.used.contains(key));
        out
    }
}

/// More chunks than any job has.
const MOST_CHUNKS: i64 = 65_536;

/// The presets of torchtitan's models.
const FLAVORS: [(&str, &str, &str); 5] = [
    ("llama3", "8B", "llama-3.1-8b"),
    ("llama3", "70B", "llama-3.1-70b"),
    ("llama3", "405B", "llama-3.1-405b"),
    ("deepseek_v3", "671B", "deepseek-v3"),
    ("llama2", "70B", "llama-2-70b"),
];

fn model(config: &mut Config, draft: &mut Draft) -> Option<Model> {
    let name = config.text("model.name").or_else(|| config.text("model_spec.name"));
    let flavor = config.text("model.flavor").or_else(|| config.text("model_spec.flavor"));
    let (name, flavor) = (name.unwrap_or_default(), flavor.unwrap_or_default());
    let found = FLAVORS.iter().find(|f| f.0 == name && f.1.eq_ignore_ascii_case(&flavor));
    let model = found.and_then(|f| presets::model(f.2));
    if let Some(model) = &model {
        write_model(draft, model, &format!("model {name} {flavor}"));
    } else {
        let what = format!("a model; torchtitan's `{name} {flavor}` is no preset here");
        draft.missing("model", "preset", &what);
    }
    model
}

/// Degrees of parallelism; -1 where torchtitan takes what is left.
struct Degrees {
    shard: i64,
    replicate: i64,
    tp: i64,
    cp: i64,
    pp: i64,
    ep: i64,
}

impl Degrees {
    fn read(config: &mut Config) -> Result<Self, ImportError> {
        let mut degree = |name: &str, default: i64| -> Result<i64, ImportError> {
            let key = format!("parallelism.{name}");
            let value = config.int(&key)?.unwrap_or(default);
            let least = if name == "data_parallel_shard_degree" { -1 } else { 1 };
            if value < least || value == 0 {
                return Err(ImportError::Value { key, value: value.to_string() });
            }
            Ok(value)
        };
        Ok(Degrees {
            shard: degree("data_parallel_shard_degree", -1)?,
            replicate: degree("data_parallel_replicate_degree", 1)?,
            tp: degree("tensor_parallel_degree", 1)?,
            cp: degree("context_parallel_degree", 1)?,
            pp: degree("pipeline_parallel_degree", 1)?,
            ep: degree("expert_parallel_degree", 1)?,
        })
    }
}

fn training(config: &mut Config, draft: &mut Draft, d: &Degrees) -> Result<(), ImportError> {
    let t = "training";
    match config.int("training.seq_len")? {
        Some(value) => draft.set(t, "seq_len", value, "training.seq_len"),
        None => draft.missing(t, "seq_len", "tokens of a sequence"),
    }
    let local = config.int("training.local_batch_size")?.or(config.int("training.batch_size")?);
    let global = config.int("training.global_batch_size")?.filter(|&g| g > 0);
    match (global, local) {
        (Some(global), _) => {
            draft.set(t, "global_batch_size", global, "training.global_batch_size");
        }
        (None, Some(local)) if d.shard > 0 => {
            let all = local.saturating_mul(d.shard).saturating_mul(d.replicate);
            draft.set(t, "global_batch_size", all, "local_batch_size times replicas");
        }
        _ => draft.missing(t, "global_batch_size", "local_batch_size times data-parallel replicas"),
    }
    let micro = config.int("parallelism.pipeline_parallel_microbatch_size")?;
    let number = config.int("parallelism.num_pp_microbatches")?;
    match (micro, number, local) {
        (Some(micro), ..) if d.pp > 1 => {
            let from = "parallelism.pipeline_parallel_microbatch_size";
            draft.set(t, "micro_batch_size", micro, from);
        }
        (None, Some(n), Some(local)) if d.pp > 1 && n > 0 && local % n == 0 => {
            let from = "local_batch_size over num_pp_microbatches";
            draft.set(t, "micro_batch_size", local / n, from);
        }
        (_, _, local) => {
            let local = local.map_or_else(String::new, |l| format!(" = {l}"));
            let what = if d.pp > 1 {
                format!(
                    "sequences of a microbatch; local_batch_size{local} is a rank's batch, split by \
                     pipeline_parallel_microbatch_size, which is not given"
                )
            } else {
                format!(
                    "sequences of one forward pass; local_batch_size{local} is a rank's batch, the \
                     same only where no pipeline splits it"
                )
            };
            draft.missing(t, "micro_batch_size", &what);
        }
    }
    Ok(())
}

fn parallelism(
    config: &mut Config,
    draft: &mut Draft,
    d: &Degrees,
    model: Option<&Model>,
) -> Result<(), ImportError> {
    let p = "parallelism";
    let degrees = [
        ("data_parallel_shard_degree", d.shard),
        ("data_parallel_replicate_degree", d.replicate),
        ("tensor_parallel_degree", d.tp),
        ("context_parallel_degree", d.cp),
        ("expert_parallel_degree", d.ep),
        ("pipeline_parallel_degree", d.pp),
    ];
    for (key, value) in degrees {
        draft.set(p, key, value, &format!("parallelism.{key}"));
    }
    if d.shard == -1 {
        draft.missing("cluster", "gpus", "GPUs there are; the shard degree takes what is left");
        draft.missing("cluster", "preset", "a cluster such as \"h100-dgx\"");
    }
    let sp = config.flag("parallelism.enable_sequence_parallel").unwrap_or(true);
    draft.set(p, "sequence_parallel", sp && d.tp > 1, "enable_sequence_parallel");
    let asynchronous = config.flag("parallelism.enable_async_tensor_parallel").unwrap_or(false);
    let from = "enable_async_tensor_parallel";
    draft.set("parallelism.overlap", "tensor_parallel", asynchronous, from);
    let sharded = d.shard != 1;
    draft.set(
        p,
        "zero_stage",
        if sharded { 3 } else { 0 },
        "fully_shard where ranks shard, else DDP",
    );
    let reshard = config.text("parallelism.fsdp_reshard_after_forward");
    if sharded {
        let fsdp = "parallelism.fsdp";
        draft.set(fsdp, "prefetch", 1, "fully_shard gathers one layer ahead");
        let value = match reshard.as_deref() {
            Some("always") => true,
            Some("never") => false,
            _ => d.pp == 1,
        };
        draft.set(fsdp, "reshard_after_forward", value, "fsdp_reshard_after_forward");
    }
    pipeline(config, draft, d, model)
}

fn pipeline(
    config: &mut Config,
    draft: &mut Draft,
    d: &Degrees,
    model: Option<&Model>,
) -> Result<(), ImportError> {
    let name = config.text("parallelism.pipeline_parallel_schedule");
    let per_stage = config.int("parallelism.pipeline_parallel_layers_per_stage")?;
    let first = config.int("parallelism.pipeline_parallel_first_stage_less_layers")?.unwrap_or(1);
    let last = config.int("parallelism.pipeline_parallel_last_stage_less_layers")?.unwrap_or(1);
    if d.pp == 1 {
        return Ok(());
    }
    let name = name.unwrap_or_else(|| "1F1B".to_owned());
    let (word, looped) = match name.to_lowercase().as_str() {
        "1f1b" => ("1f1b", false),
        "gpipe" => ("gpipe", false),
        "interleaved1f1b" => ("interleaved-1f1b", true),
        "zbvzerobubble" => ("zb-v", true),
        _ => {
            config.unsupported.push(format!("pipeline_parallel_schedule {name}"));
            ("1f1b", false)
        }
    };
    let p = "parallelism";
    draft.word(p, "pipeline_parallel_schedule", word, "parallelism.pipeline_parallel_schedule");
    for key in ["pipeline_parallel_split_points", "pipeline_parallel_schedule_csv"] {
        let value = config.get(&format!("parallelism.{key}"));
        let empty = |v: &Value| {
            v.as_str().is_some_and(str::is_empty) || v.as_array().is_some_and(Vec::is_empty)
        };
        if value.is_some_and(|v| !empty(&v)) {
            config.unsupported.push(format!("{key}; write `chunk_layers` instead"));
        }
    }
    let layers = model.map(|m| i64::from(m.layers));
    let effective = layers.map(|l| l + first.max(0) + last.max(0));
    // torchtitan takes two chunks per rank with looped schedules unless layers say otherwise.
    let v = match (per_stage.filter(|&n| n > 0), effective) {
        (Some(n), Some(all)) => (all + n - 1) / n / d.pp,
        _ if looped => 2,
        _ => 1,
    };
    draft.set(p, "virtual_pipeline_degree", v, "two with looped schedules, unless layers say else");
    uneven(config, draft, d.pp.saturating_mul(v), effective, (first.max(0), last.max(0)));
    Ok(())
}

/// Layers of each chunk: torchtitan counts the embedding as `first` and the output as `last` layers.
fn uneven(
    config: &mut Config,
    draft: &mut Draft,
    stages: i64,
    effective: Option<i64>,
    (first, last): (i64, i64),
) {
    let fits = effective.filter(|&all| (1..=all.min(MOST_CHUNKS)).contains(&stages));
    let chunks: Vec<i64> = fits.map_or_else(Vec::new, |all| {
        let chunk = |i: i64| {
            all / stages + i64::from(i < all % stages)
                - if i == 0 { first } else { 0 }
                - if i == stages - 1 { last } else { 0 }
        };
        (0..stages).map(chunk).collect()
    });
    if chunks.is_empty() || chunks.iter().any(|&layers| layers < 1) {
        let text = "torchtitan gives the first and last stage fewer layers; write `chunk_layers`";
        config.warnings.push(text.to_owned());
        return;
    }
    let from = "fewer layers beside the embedding and the output";
    draft.set("parallelism", "chunk_layers", format!("{chunks:?}"), from);
}

fn rest(config: &mut Config, draft: &mut Draft) {
    let p = "parallelism";
    let mode = config.text("activation_checkpoint.mode").unwrap_or_else(|| "selective".to_owned());
    match mode.as_str() {
        "none" | "full" => draft.word(p, "recompute", &mode, "activation_checkpoint.mode"),
        "selective" => {
            draft.word(p, "recompute", "selective", "activation_checkpoint.mode");
            config.warnings.push(
                "torchtitan's selective recomputation keeps every second matrix product; it is \
                 counted as recomputing attention"
                    .to_owned(),
            );
        }
        other => config.unsupported.push(format!("activation_checkpoint.mode {other}")),
    }
    let converters = config.get("model.converters").map(|v| v.to_string()).unwrap_or_default();
    let fp8 = converters.contains("float8") || converters.contains("mx");
    draft.word(p, "precision", if fp8 { "fp8" } else { "bf16" }, "model.converters");
    draft.set(p, "grad_reduce_fp32", true, "training.mixed_precision_reduce");
    config.get("training.mixed_precision_reduce");
    if config.text("training.mixed_precision_param").as_deref() == Some("float32") {
        config.unsupported.push("training.mixed_precision_param float32".to_owned());
    }
    if config.flag("training.enable_cpu_offload") == Some(true) {
        config.unsupported.push("training.enable_cpu_offload".to_owned());
    }
    if config.text("training.dtype").as_deref() == Some("bfloat16") {
        config.warnings.push("optimizer state is counted in 4-byte floats".to_owned());
    }
}
