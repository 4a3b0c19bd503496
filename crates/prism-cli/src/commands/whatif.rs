//! `prism whatif`.

use std::path::Path;

use prism_decide::reference;
use prism_engine::profile::{JobFile, SourceFile};
use prism_engine::replay::{Builder, Replayed};
use prism_io::{Loaded, write_atomic};
use prism_report::{WHATIF_REFERENCE_SCHEMA, WhatifReferenceOutput, json_text};

use crate::args::{Format, WhatifArgs};
use crate::context::Context;
use crate::error::{CliError, Outcome, usage};
use crate::input;

use super::whatif_scenarios;

/// Answers what the steps would have taken otherwise.
pub(crate) fn run(args: &WhatifArgs, context: &Context) -> Result<Outcome, CliError> {
    if args.scenario.is_empty() && args.scenarios.is_none() {
        if let Some(flag) = args.draw.given() {
            return Err(usage(
                format!("`{flag}` is about scenarios, and none is given"),
                "add `--scenario`, or leave it out for the reference analysis",
            ));
        }
        if input::is_job_file(&args.trace) {
            return Err(usage(
                format!(
                    "the reference analysis replays recorded steps, but `{}` is a job file",
                    input::name(&args.trace)
                ),
                "ask by `--scenario` how its distribution changes, such as `slow-node x1.2 dp=0`",
            ));
        }
        if input::is_profile(&args.trace) {
            return Err(usage(
                format!(
                    "the reference analysis replays recorded steps, but `{}` is a profile",
                    input::name(&args.trace)
                ),
                "give the trace, or ask by `--scenario` how the profile's distribution changes",
            ));
        }
        return reference_analysis(args, context);
    }
    whatif_scenarios::run(args, context)
}

/// The reference analysis of a trace.
fn reference_analysis(args: &WhatifArgs, context: &Context) -> Result<Outcome, CliError> {
    one_to_stdout(args, context)?;
    let loaded = input::trace(&args.trace, &args.read, context)?;
    let output = analysed(args, loaded, context)?;
    let mut document = output.document(args.per_step, context.printer.verbose());
    // The reader's own were shown when it read.
    document.warnings.retain(|w| !output.warnings.contains(w));
    if let Some(path) = &args.heatmap {
        let heatmap = output.heatmap_csv()?.ok_or_else(|| {
            usage(
                "the slowdown is too small to be decomposed, so there is no heatmap",
                "leave out `--heatmap`",
            )
        })?;
        write_atomic(path, |out| out.write_all(heatmap.as_bytes()))?;
    }
    let file = args.output.as_deref();
    context.deliver(
        file,
        &document,
        || Ok(json_text(&output)?),
        || Ok(output.csv(args.per_step)?),
    )?;
    context.asides(&document);
    Ok(Outcome::Yes)
}

/// Refuses a heatmap and a report that would both be standard output.
fn one_to_stdout(args: &WhatifArgs, context: &Context) -> Result<(), CliError> {
    let is_stdout = |path: &Path| path == Path::new("-");
    let report = match &args.output {
        Some(path) => is_stdout(path),
        None => context.format != Format::Human,
    };
    if report && args.heatmap.as_deref().is_some_and(is_stdout) {
        return Err(usage(
            "`--heatmap -` and the report would both be written to standard output",
            "write one of them to a file",
        ));
    }
    Ok(())
}

fn analysed(
    args: &WhatifArgs,
    loaded: Loaded,
    context: &Context,
) -> Result<WhatifReferenceOutput, CliError> {
    let file = || input::name(&args.trace);
    let replayed = context
        .phase("replay", || Replayed::new(Builder::Reference, &loaded.table))
        .map_err(|source| CliError::Graph { file: file(), source })?;
    let report = context
        .phase("analyse", || reference::analyse(&replayed, &loaded.table.ranks()))
        .map_err(|source| CliError::Reference { file: file(), source })?;
    Ok(WhatifReferenceOutput {
        schema: WHATIF_REFERENCE_SCHEMA.to_owned(),
        sources: loaded.table.sources.iter().map(SourceFile::from).collect(),
        job: JobFile::from(&loaded.table.meta),
        steps_dropped: loaded.dropped.iter().map(|d| d.step).collect(),
        report,
        warnings: loaded.warnings,
    })
}
