//! `prism whatif --scenario`.

use std::collections::BTreeMap;
use std::path::Path;

use prism_decide::compare::{CompareOptions, compare};
use prism_decide::paired::Statistic;
use prism_decide::scenario::{Donor, Donors, Edit, Scenario};
use prism_engine::predict::Draws;
use prism_engine::replay::Builder;
use prism_report::{WHATIF_SCHEMA, WhatifOutput, json_text};

use crate::args::{DrawsArg, TraceArgs, WhatifArgs};
use crate::context::Context;
use crate::error::{CliError, Outcome, usage};
use crate::job::Calibrated;
use crate::planned::PlannedArgs;
use crate::{input, job};

/// Compares scenarios with the job as it is.
pub(super) fn run(args: &WhatifArgs, context: &Context) -> Result<Outcome, CliError> {
    let scenarios = scenarios(args)?;
    let mut options = options(args, context);
    let calibrated = job::read(&args.trace, &args.read, &args.planned, options.draws, context)?;
    options.repetitions =
        calibrated.repetitions(args.draw.bootstrap, options.repetitions, &args.trace)?;
    let others = donors(&scenarios, options.draws, context)?;
    let donors: Donors<'_> = others
        .iter()
        .map(|(name, c)| (name.clone(), Donor { graph: &c.graph, model: &c.profile.model }))
        .collect();
    let gpus_per_node = calibrated.node_size(args.draw.gpus_per_node);
    let layout = calibrated.layout(gpus_per_node);
    let report = context
        .phase("compare", || compare(&calibrated.job(gpus_per_node), &scenarios, &donors, &options))
        .map_err(|source| CliError::Compare {
            file: input::name(&args.trace),
            source: Box::new(source),
        })?;
    let mut sources = calibrated.sources.clone();
    sources.extend(others.into_values().flat_map(|c| c.sources));
    let output = WhatifOutput {
        schema: WHATIF_SCHEMA.to_owned(),
        sources,
        job: calibrated.profile.provenance.job.clone(),
        planned: calibrated.profile.provenance.builder == Builder::Planned,
        layout,
        report,
        warnings: calibrated.notes,
    };
    let mut document = output.document();
    document.hint = Some(format!("prism explain {}", input::name(&args.trace)));
    let file = args.output.as_deref();
    context.deliver(file, &document, || Ok(json_text(&output)?), || Ok(output.csv()?))?;
    context.asides(&document);
    Ok(Outcome::Yes)
}

fn options(args: &WhatifArgs, context: &Context) -> CompareOptions {
    let given = &args.draw;
    let default = CompareOptions::default();
    let mut quantiles = given.quantile.clone();
    quantiles.sort_by(f64::total_cmp);
    quantiles.dedup();
    let statistics = if quantiles.is_empty() {
        default.statistics.clone()
    } else {
        std::iter::once(Statistic::Mean)
            .chain(quantiles.into_iter().map(Statistic::Quantile))
            .collect()
    };
    CompareOptions {
        draws: given.draws.map_or(Draws::Empirical, DrawsArg::into),
        samples: given.samples.unwrap_or(default.samples),
        seed: context.seed,
        threads: context.threads,
        repetitions: given.bootstrap.unwrap_or(default.repetitions),
        confidence: given.confidence.unwrap_or(default.confidence),
        statistics,
        ..default
    }
}

/// All scenarios that were given, on the command line first.
fn scenarios(args: &WhatifArgs) -> Result<Vec<Scenario>, CliError> {
    let parse = |text: &str, place: String| {
        text.parse::<Scenario>().map_err(|source| CliError::Scenario { place, source })
    };
    let mut out: Vec<Scenario> = args
        .scenario
        .iter()
        .map(|text| parse(text, "`--scenario`".to_owned()))
        .collect::<Result<_, _>>()?;
    if let Some(path) = &args.scenarios {
        let file = input::name(path);
        let text = input::text(path)?;
        for (i, line) in text.lines().enumerate() {
            let line = line.split_once('#').map_or(line, |(before, _)| before).trim();
            if !line.is_empty() {
                out.push(parse(line, format!("`{file}` line {}", i + 1))?);
            }
        }
        if out.is_empty() {
            return Err(usage(
                format!("`{file}` has no scenario"),
                "write one a line, for instance `slow-node x1.2 dp=0 stage=last`",
            ));
        }
    }
    for (i, scenario) in out.iter().enumerate() {
        if out[..i].iter().any(|s| s.name == scenario.name) {
            return Err(usage(
                format!("two scenarios are called `{}`", scenario.name),
                "give each a name of its own: `name: edit; edit`",
            ));
        }
    }
    Ok(out)
}

/// Reads the profiles that scenarios swap signatures with.
fn donors(
    scenarios: &[Scenario],
    draws: Draws,
    context: &Context,
) -> Result<BTreeMap<String, Calibrated>, CliError> {
    let mut out = BTreeMap::new();
    for edit in scenarios.iter().flat_map(|s| &s.edits) {
        let Edit::Swap { profile, .. } = edit else { continue };
        if !out.contains_key(profile) {
            let read = TraceArgs { meta: None, allow_incomplete: false };
            let planned = PlannedArgs::default();
            let donor = job::read(Path::new(profile), &read, &planned, draws, context)?;
            out.insert(profile.clone(), donor);
        }
    }
    Ok(out)
}
