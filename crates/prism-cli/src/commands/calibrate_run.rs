//! `prism calibrate-run`.

use std::path::{Path, PathBuf};

use prism_io::{StepLog, write_atomic};
use prism_report::{
    CROSS_SCHEMA, CrossOutput, Document, json_text, prior_csv, prior_document, run_profile_csv,
    run_profile_document,
};
use prism_run::cross::{CrossOptions, cross_validate};
use prism_run::prior::mlperf;
use prism_run::{Evidence, Prior, StepModel, fit_prior};

use crate::args::{CalibrateRunArgs, Format};
use crate::context::Context;
use crate::error::{CliError, Outcome, usage};
use crate::{input, logs};

/// Learns the law of a job's steps, or a prior, or says how good such laws are.
pub(crate) fn run(args: &CalibrateRunArgs, context: &Context) -> Result<Outcome, CliError> {
    if args.output.as_deref() == Some(Path::new("-")) && context.format == Format::Json {
        return Err(usage(
            "`-o -` and `--format json` both write the result to standard output",
            "leave out one of them",
        ));
    }
    let prior_file = Path::new(&args.prior);
    let inputs: Vec<&Path> =
        args.logs.iter().map(PathBuf::as_path).chain(std::iter::once(prior_file)).collect();
    input::not_an_input(args.output.as_deref(), &inputs)?;
    let logs = logs::read(&args.logs, &args.read, context)?;
    if args.cross_validate {
        return crossed(args, &logs, context);
    }
    if args.fit_prior {
        return prior(args, &logs, context);
    }
    profile(args, logs, context)
}

/// The prior that was asked for.
fn chosen_prior(name: &str) -> Result<Prior, CliError> {
    if name == "mlperf-llm" {
        return Ok(mlperf());
    }
    let path = PathBuf::from(name);
    if !path.exists() {
        return Err(usage(
            format!("`{name}` is neither a prior that ships nor a file"),
            "`mlperf-llm` ships; `prism calibrate-run LOG… --fit-prior -o FILE` writes others",
        ));
    }
    let text = input::text(&path)?;
    Prior::from_json(&text).map_err(|source| CliError::RunFile { file: name.to_owned(), source })
}

fn profile(
    args: &CalibrateRunArgs,
    logs: Vec<StepLog>,
    context: &Context,
) -> Result<Outcome, CliError> {
    let logs = logs::chosen(logs, args.system.as_deref(), &args.run)?;
    let prior = chosen_prior(&args.prior)?;
    let runs = logs::separated(&logs)?;
    let mut model = context.phase("calibrate", || StepModel::new(Evidence::of(&runs)?, prior))?;
    model.sources = logs::sources(&logs);
    let mut document = run_profile_document(&model)?;
    let written = args.output.as_deref().filter(|p| *p != Path::new("-"));
    document.hint = Some(match written {
        Some(path) => format!("prism run {} --steps N", input::name(path)),
        None => "the same with `-o run-profile.json`, then `prism run run-profile.json`".to_owned(),
    });
    let json = || Ok(json_text(&model)?);
    done(args, &document, json, || Ok(run_profile_csv(&model)?), context)
}

fn prior(
    args: &CalibrateRunArgs,
    logs: &[StepLog],
    context: &Context,
) -> Result<Outcome, CliError> {
    let systems = logs::systems(logs, context);
    let evidence = systems.iter().map(|s| Evidence::of(&s.runs)).collect::<Result<Vec<_>, _>>()?;
    let name = match args.output.as_deref().and_then(Path::file_stem) {
        Some(stem) => stem.to_string_lossy().into_owned(),
        None => "own logs".to_owned(),
    };
    let source = format!("{} of {}", count(logs.len(), "log"), names(&args.logs));
    let all: Vec<&Evidence> = evidence.iter().collect();
    let prior = context.phase("fit", || fit_prior(&name, &source, &all))?;
    if systems.len() < 8 {
        context.printer.warning(&format!(
            "a prior of {} systems only: how much they agree is hardly known",
            systems.len()
        ));
    }
    let mut document = prior_document(&prior);
    document.hint = args
        .output
        .as_deref()
        .map(|path| format!("prism calibrate-run LOG… --prior {}", input::name(path)));
    done(args, &document, || Ok(json_text(&prior)?), || Ok(prior_csv(&prior)?), context)
}

fn crossed(
    args: &CalibrateRunArgs,
    logs: &[StepLog],
    context: &Context,
) -> Result<Outcome, CliError> {
    let systems = logs::systems(logs, context);
    let options =
        CrossOptions { samples: args.samples, seed: context.seed, ..CrossOptions::default() };
    let bar = context.counter("cross-validate");
    let total = systems.len();
    let result = cross_validate(&systems, options, |done| {
        if let Some(bar) = &bar {
            bar.set_message(format!("{done} of {total} systems"));
        }
    });
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    let output = CrossOutput {
        schema: CROSS_SCHEMA.to_owned(),
        sources: logs::sources(logs),
        seed: options.seed,
        samples: options.samples,
        result: result?,
        warnings: Vec::new(),
    };
    let document = output.document(context.printer.verbose());
    done(args, &document, || Ok(json_text(&output)?), || Ok(output.csv()?), context)
}

/// Writes the file and the report.
fn done(
    args: &CalibrateRunArgs,
    document: &Document,
    json: impl Fn() -> Result<String, CliError>,
    csv: impl FnOnce() -> Result<String, CliError>,
    context: &Context,
) -> Result<Outcome, CliError> {
    if let Some(path) = &args.output {
        let text = json()?;
        context.phase("write", || write_atomic(path, |out| out.write_all(text.as_bytes())))?;
    }
    context.deliver(None, document, json, csv)?;
    context.asides(document);
    Ok(Outcome::Yes)
}

fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

fn names(paths: &[PathBuf]) -> String {
    match paths {
        [] => String::new(),
        [one] => input::name(one),
        [first, ..] => format!("{} …", input::name(first)),
    }
}
