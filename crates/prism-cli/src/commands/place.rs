//! `prism place`.

use std::path::Path;

use prism_decide::place::{
    GpuSpeed, Objective, PlaceOptions, SensitivityOptions, Workers, place, sensitivity,
};
use prism_engine::predict::Draws;
use prism_engine::profile::{Profile, SourceFile};
use prism_engine::replay::Builder;
use prism_io::{SpeedOptions, SpeedTable, read_speeds, write_atomic};
use prism_report::{PLACE_SCHEMA, PlaceOutput, json_text};

use crate::args::{Format, ObjectiveArg, PlaceArgs};
use crate::context::Context;
use crate::error::{CliError, Outcome, usage};
use crate::{input, job};

/// Places workers, or says what a slow one costs.
pub(crate) fn run(args: &PlaceArgs, context: &Context) -> Result<Outcome, CliError> {
    check(args, context)?;
    let mut calibrated =
        job::read(&args.input, &args.read, &args.planned, Draws::Empirical, context)?;
    calibrated.heal(&args.heal, &args.input)?;
    let own = if calibrated.is_planned() {
        calibrated.layout(calibrated.node_size(None)).gpus_per_worker
    } else {
        calibrated.profile.provenance.job.tp_size
    };
    let (profile, mut sources) = (calibrated.profile, calibrated.sources);
    let tp = args.tp.unwrap_or(own);
    let speeds = args.speeds.as_deref().map(|path| read(path, tp, args, context)).transpose()?;
    if let Some(table) = &speeds {
        sources.push(SourceFile::from(&table.source));
    }
    let mut output = PlaceOutput {
        schema: PLACE_SCHEMA.to_owned(),
        sources,
        job: profile.provenance.job.clone(),
        time_column: speeds.as_ref().map(|s| s.time_column.clone()),
        gpus_per_worker: tp,
        workers: Vec::new(),
        left_over: Vec::new(),
        placement: None,
        sensitivity: None,
        warnings: calibrated.notes,
    };
    answer(args, context, &profile, speeds.as_ref(), &mut output)?;
    let mut document = output.document(context.printer.verbose());
    document.hint = Some(hint(args, &output));
    if let Some(path) = &args.output {
        let json = path.extension().is_some_and(|e| e.eq_ignore_ascii_case("json"));
        let text = if json { json_text(&output)? } else { output.csv()? };
        context.phase("write", || write_atomic(path, |out| out.write_all(text.as_bytes())))?;
    }
    let text = context.render(&document, || Ok(json_text(&output)?), || Ok(output.csv()?))?;
    if let Some(text) = text {
        context.printer.result(&text)?;
    }
    context.asides(&document);
    Ok(Outcome::Yes)
}

/// Refuses flags that contradict each other.
fn check(args: &PlaceArgs, context: &Context) -> Result<(), CliError> {
    if args.output.as_deref() == Some(Path::new("-")) && context.format != Format::Human {
        return Err(usage(
            "`-o -` and `--format` both write to standard output",
            "write the assignment to a file, or leave out `--format`",
        ));
    }
    Ok(())
}

fn read(path: &Path, tp: u32, args: &PlaceArgs, context: &Context) -> Result<SpeedTable, CliError> {
    let options = SpeedOptions {
        nodes: tp > 1,
        time_column: args.time_column.clone(),
        node_column: args.node_column.clone(),
        label_column: args.same.clone(),
        ..SpeedOptions::default()
    };
    Ok(context.phase("read speeds", || read_speeds(path, &options))?)
}

/// Fills in what was asked.
fn answer(
    args: &PlaceArgs,
    context: &Context,
    profile: &Profile,
    speeds: Option<&SpeedTable>,
    output: &mut PlaceOutput,
) -> Result<(), CliError> {
    let file = || input::name(&args.input);
    let failed = |source| CliError::Place { file: file(), source: Box::new(source) };
    let graph =
        profile.step_graph().map_err(|source| CliError::Profile { file: file(), source })?;
    let objective = match args.objective {
        ObjectiveArg::P95 => Objective::P95,
        ObjectiveArg::Mean => Objective::Mean,
        ObjectiveArg::Cvar => Objective::Cvar,
    };
    if let Some(slow) = args.slow {
        let options = SensitivityOptions {
            slow,
            objective,
            samples: args.samples(),
            seed: context.seed,
            threads: context.threads,
            confidence: args.confidence,
            launch_delays: true,
        };
        let answer = context.phase("slow down", || sensitivity(&graph, &profile.model, &options));
        output.sensitivity = Some(answer.map_err(failed)?);
        return Ok(());
    }
    let planned = profile.provenance.builder == Builder::Planned;
    let workers = match (speeds, &args.speeds) {
        (Some(table), Some(path)) => Some(measured(table, path, args, planned, output)?),
        _ => None,
    };
    let options = PlaceOptions {
        objective,
        samples: args.samples(),
        random_orders: args.random_orders,
        same: args.same.clone(),
        keep_or_drop: args.drop_or_keep,
        confidence: args.confidence,
        seed: context.seed,
        threads: context.threads,
        ..PlaceOptions::default()
    };
    let placed =
        context.phase("place", || place(&graph, &profile.model, workers.as_ref(), &options));
    output.placement = Some(placed.map_err(failed)?);
    if let Some(workers) = workers {
        output.workers = workers.list;
        output.left_over = workers.left_over;
    }
    Ok(())
}

/// Measured workers, and what there is to say about them.
fn measured(
    table: &SpeedTable,
    path: &Path,
    args: &PlaceArgs,
    planned: bool,
    output: &mut PlaceOutput,
) -> Result<Workers, CliError> {
    let gpus: Vec<GpuSpeed> = table
        .gpus
        .iter()
        .map(|g| GpuSpeed {
            id: g.id.clone(),
            node: g.node.clone(),
            label: g.label.clone(),
            times: g.times.clone(),
        })
        .collect();
    let tp = output.gpus_per_worker;
    let label = args.same.as_deref().unwrap_or_default();
    let workers = Workers::of_gpus(&gpus, tp as usize, label)
        .map_err(|source| CliError::Place { file: input::name(path), source: Box::new(source) })?;
    let own = if planned {
        "persistent speeds drawn for the job"
    } else {
        "recording's own worker effects"
    };
    output.warnings.retain(|w| !w.starts_with("persistent speeds"));
    output.warnings.push(format!(
        "the measured speeds replace the {own}; they are taken to act on all compute alike"
    ));
    if !workers.left_over.is_empty() {
        output.warnings.push(format!(
            "{} GPUs are left over: their nodes do not hold a multiple of {tp}",
            workers.left_over.len()
        ));
    }
    Ok(workers)
}

fn hint(args: &PlaceArgs, output: &PlaceOutput) -> String {
    let file = input::name(&args.input);
    if output.sensitivity.is_some() {
        return format!("prism place {file}");
    }
    let improved = output.placement.as_ref().is_some_and(|p| p.improved);
    if improved && args.output.is_none() {
        format!("prism place {file} -o assignment.csv")
    } else {
        format!("prism place {file} --slow x1.2")
    }
}
