//! `prism init`.

mod choose;
mod fill;
mod text;

use std::path::Path;

use prism_io::write_atomic;
use prism_job::{
    ImportError, JobFileError, JobText, Violations, hugging_face_model, import_hugging_face,
    import_megatron, import_torchtitan, parse_job, presets,
};
use prism_report::{
    INIT_SCHEMA, InitOutput, JobSummary, PRESETS_SCHEMA, Preset, PresetsOutput, count, json_text,
};

use crate::args::{InitArgs, ListArg, Origin, PlanArgs};
use crate::context::Context;
use crate::error::{CliError, Outcome, usage};
use crate::input;

use choose::Wish;

/// Cluster where none is named.
const CLUSTER: &str = "h100-dgx";
/// Variability where none is named.
const VARIABILITY: &str = "dedicated";
/// Tokens of a sequence where nothing is said.
const SEQ_LEN: u32 = 4096;

/// What an import leaves open where nothing says how many GPUs there are.
const REPLICAS: &str = "data_parallel_shard_degree";

/// Writes a job file, or lists presets.
pub(crate) fn run(args: &InitArgs, context: &Context) -> Result<Outcome, CliError> {
    if let Some(what) = args.list {
        return list(what, context);
    }
    let drafted = draft(args, context)?;
    let is_stdout = args.output == Path::new("-");
    if !is_stdout && !args.force && args.output.exists() {
        return Err(usage(
            format!("`{}` is there already", args.output.display()),
            "`--force` overwrites it, `-o FILE` writes another one",
        ));
    }
    write_atomic(&args.output, |out| out.write_all(drafted.toml.as_bytes()))?;
    let file = input::name(&args.output);
    let output = InitOutput {
        schema: INIT_SCHEMA.to_owned(),
        file: file.clone(),
        job: parse_job(&drafted.toml, &prism_job::ReadOptions::default())
            .ok()
            .map(|read| JobSummary::new(&read.job)),
        chosen: drafted.chosen,
        missing: drafted.missing,
        ignored: drafted.ignored,
        warnings: drafted.warnings,
    };
    let mut document = output.document();
    document.hint = Some(match &output.job {
        _ if is_stdout => "prism check - reads it from standard input".to_owned(),
        Some(_) => format!("prism check {file}"),
        None => format!("fill in what is missing in {file}, then prism check {file}"),
    });
    let text = context.render(&document, || Ok(json_text(&output)?), || Ok(output.csv()?))?;
    if let Some(text) = text {
        context.printer.result(&text)?;
    }
    context.asides(&document);
    Ok(Outcome::Yes)
}

/// A job file on its way out.
#[derive(Default)]
struct Drafted {
    toml: String,
    chosen: Vec<String>,
    missing: Vec<String>,
    ignored: Vec<String>,
    warnings: Vec<String>,
}

fn draft(args: &InitArgs, context: &Context) -> Result<Drafted, CliError> {
    let Some(from) = &args.from else {
        let Some(model) = &args.model else {
            return Err(usage(
                "a job file needs a model",
                "give `--model PRESET` (`prism init --list models` names them) or `--from \
                 FORMAT:FILE`",
            ));
        };
        let section = format!("[model]\npreset = {}\n", text::quoted(model));
        return preset(args, section, SEQ_LEN, context);
    };
    let content = input::text(&from.file)?;
    let failed = |source: ImportError| CliError::Import { file: input::name(&from.file), source };
    let imported = match from.origin {
        Origin::HuggingFace => import_hugging_face(&content).map_err(failed)?,
        Origin::Megatron => import_megatron(&content).map_err(failed)?,
        Origin::Torchtitan => import_torchtitan(&content).map_err(failed)?,
    };
    if from.origin == Origin::HuggingFace && args.gpus.is_some() {
        let model = hugging_face_model(&content).map_err(failed)?;
        let longest = model.seq_len.unwrap_or(SEQ_LEN);
        let section = fill::section(&imported.toml, "model");
        let mut drafted = preset(args, section, SEQ_LEN.min(longest), context)?;
        drafted.warnings.splice(0..0, model.warnings);
        return Ok(drafted);
    }
    completed(args, imported)
}

/// An import with what the arguments add.
fn completed(args: &InitArgs, imported: JobText) -> Result<Drafted, CliError> {
    if args.plan != PlanArgs::default() {
        return Err(usage(
            "the plan's flags are for presets: an import brings its own plan",
            "leave them out, and change the file that is written; with `--from hf:FILE` also give \
             `--gpus`",
        ));
    }
    let mut toml = imported.toml;
    let number = |n: Option<u32>| n.map(|n| n.to_string());
    let additions = [
        ("training", "seq_len", number(args.training.seq_len)),
        ("training", "global_batch_size", number(args.training.global_batch_size)),
        ("training", "micro_batch_size", number(args.training.micro_batch_size)),
        ("cluster", "gpus", args.gpus.map(|n| n.to_string())),
        ("cluster", "preset", args.cluster.as_deref().map(text::quoted)),
        ("variability", "preset", args.variability.as_deref().map(text::quoted)),
    ];
    let mut missing = imported.missing;
    for (section, key, value) in additions {
        let Some(value) = value else { continue };
        toml = fill::set(&toml, section, key, &value);
        missing.retain(|m| !m.starts_with(&format!("{section}.{key}:")));
    }
    // With the number of GPUs the replicas follow.
    let replicas = format!("parallelism.{REPLICAS}:");
    if args.gpus.is_some() && missing.iter().any(|m| m.starts_with(&replicas)) {
        toml = fill::set(&toml, "parallelism", REPLICAS, "-1  # what is left of the GPUs");
        missing.retain(|m| !m.starts_with(&replicas));
    }
    let mut warnings = imported.warnings;
    if missing.is_empty()
        && let Err(JobFileError::Invalid(all)) =
            parse_job(&toml, &prism_job::ReadOptions::default())
    {
        warnings.extend(all.violations.iter().map(|v| v.render("", &all.text)));
    }
    let ignored = imported.ignored;
    Ok(Drafted { toml, missing, ignored, warnings, ..Drafted::default() })
}

/// A job of a model on a cluster's GPUs; its plan as wished, or the fastest there is.
fn preset(
    args: &InitArgs,
    model: String,
    seq_len: u32,
    context: &Context,
) -> Result<Drafted, CliError> {
    let Some(gpus) = args.gpus else {
        return Err(usage("a job file needs a number of GPUs", "give `--gpus N`"));
    };
    let mut chosen = Vec::new();
    let mut or = |given: Option<&str>, usual: &str, what: &str| {
        if given.is_none() {
            chosen.push(format!("{what} `{usual}`"));
        }
        given.unwrap_or(usual).to_owned()
    };
    let wish = Wish {
        model,
        gpus,
        cluster: or(args.cluster.as_deref(), CLUSTER, "cluster"),
        variability: or(args.variability.as_deref(), VARIABILITY, "variability"),
        seq_len: args.training.seq_len.unwrap_or(seq_len),
        global_batch_size: args.training.global_batch_size,
        micro_batch_size: args.training.micro_batch_size.unwrap_or(1),
        plan: args.plan.clone(),
    };
    if args.training.seq_len.is_none() {
        chosen.push(format!("sequences of {} tokens", count(seq_len as usize)));
    }
    let choice = context.phase("choose a plan", || choose::choose(&wish))?;
    chosen.extend(choice.chosen);
    Ok(Drafted { toml: choice.toml, chosen, warnings: choice.warnings, ..Drafted::default() })
}

/// Why no job came of what was asked, in one error.
fn refused(all: &Violations) -> CliError {
    let messages: Vec<&str> = all.violations.iter().map(|v| v.message.as_str()).collect();
    let mut hints: Vec<String> = all.violations.iter().filter_map(|v| v.hint.clone()).collect();
    hints.dedup();
    let near = crate::snippet::possible(all);
    let mut hint = hints.join("; ");
    if !near.is_empty() {
        hint = format!("{hint}\n  possible plans near this one: {}", near.join("; "));
    }
    usage(messages.join("\n       "), hint)
}

fn list(what: ListArg, context: &Context) -> Result<Outcome, CliError> {
    let preset =
        |p: presets::Listed| Preset { name: p.name.to_owned(), describe: p.describe.to_owned() };
    let (name, presets): (&str, Vec<Preset>) = match what {
        ListArg::Models => ("models", presets::models().map(preset).collect()),
        ListArg::Gpus => ("gpus", presets::gpus().map(preset).collect()),
        ListArg::Clusters => ("clusters", presets::clusters().map(preset).collect()),
        ListArg::Variabilities => ("variabilities", presets::variabilities().map(preset).collect()),
    };
    let output =
        PresetsOutput { schema: PRESETS_SCHEMA.to_owned(), what: name.to_owned(), presets };
    let document = output.document();
    let text = context.render(&document, || Ok(json_text(&output)?), || Ok(output.csv()?))?;
    if let Some(text) = text {
        context.printer.result(&text)?;
    }
    Ok(Outcome::Yes)
}
