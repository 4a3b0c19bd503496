//! `prism synth`.

use std::path::{Path, PathBuf};

use prism_engine::predict::Draws;
use prism_engine::profile::{JobFile, Profile};
use prism_engine::synth::{
    Durations, SynthEffects, SynthSpec, SynthSteps, SynthTruth, from_profile,
};
use prism_io::{OpTable, write_op_table, write_op_table_csv};
use prism_report::{SYNTH_SCHEMA, SynthOutput, json_text};

use crate::args::{DurationArg, EffectArg, Format, Plan, SynthArgs, TraceArgs};
use crate::context::Context;
use crate::error::{CliError, Outcome, usage};
use crate::{input, job};

/// Window to window, where `--gap` does not say.
const GAP: u32 = 100;

/// Makes a synthetic trace.
pub(crate) fn run(args: &SynthArgs, context: &Context) -> Result<Outcome, CliError> {
    let to_stdout = args.output == Path::new("-");
    if to_stdout && context.format != Format::Human {
        return Err(usage(
            "`-o -` and `--format` both write to standard output",
            "write the trace to a file, or leave out `--format`",
        ));
    }
    let mut notes = Vec::new();
    let (table, truth) = if let Some(path) = &args.job {
        let (table, of_model) = planned(path, args, context)?;
        notes = of_model;
        (table, None)
    } else {
        args.planned.check_unused(&args.output)?;
        match (&args.plan, &args.profile) {
            (_, Some(profile)) => {
                let (profile, _) = input::profile(profile, context)?;
                (drawn_from(&profile, args, context)?, None)
            }
            (Some(plan), None) => {
                let (table, truth) = generated(plan, args, context)?;
                (table, Some(truth))
            }
            (None, None) => {
                return Err(usage(
                    "no truth to draw from",
                    "give `--plan`, `--profile` or `--job`",
                ));
            }
        }
    };
    let meta_file = context.phase("write", || write(&args.output, &table))?;
    let output = SynthOutput {
        schema: SYNTH_SCHEMA.to_owned(),
        file: input::name(&args.output),
        meta_file: meta_file.as_deref().map(input::name),
        rows: table.len(),
        steps: table.steps().len(),
        seed: context.seed,
        job: JobFile::from(&table.meta),
        profile: args.profile.as_deref().or(args.job.as_deref()).map(input::name),
        truth,
    };
    let mut document = output.document();
    document.warnings.extend(notes);
    if !to_stdout {
        document.hint = Some(format!("prism predict {}", output.file));
    }
    let text = context.render(&document, || Ok(json_text(&output)?), || Ok(output.csv()?))?;
    if let Some(text) = text {
        context.printer.result(&text)?;
    }
    context.asides(&document);
    Ok(Outcome::Yes)
}

/// Writes a trace; the metadata's file where there is one.
fn write(path: &Path, table: &OpTable) -> Result<Option<PathBuf>, CliError> {
    let has =
        |path: &Path, end: &str| path.extension().is_some_and(|e| e.eq_ignore_ascii_case(end));
    if has(path, "csv") || (has(path, "gz") && has(&path.with_extension(""), "csv")) {
        return Ok(write_op_table_csv(path, table)?);
    }
    write_op_table(path, table)?;
    Ok(None)
}

/// Steps of a planned job, and what to know of its model.
fn planned(
    path: &Path,
    args: &SynthArgs,
    context: &Context,
) -> Result<(OpTable, Vec<String>), CliError> {
    if !input::is_job_file(path) {
        return Err(usage(
            format!("`{}` is no job file", input::name(path)),
            "a job file is TOML, see `prism init`; give a profile by `--profile`",
        ));
    }
    let read = TraceArgs { meta: None, allow_incomplete: false };
    let job = job::read(path, &read, &args.planned, Draws::Empirical, context)?;
    Ok((drawn_from(&job.profile, args, context)?, job.notes))
}

/// Steps of a profile's job.
fn drawn_from(profile: &Profile, args: &SynthArgs, context: &Context) -> Result<OpTable, CliError> {
    let first = i64::from(args.first_step);
    let steps: Vec<i64> = (first..first + i64::from(args.steps)).collect();
    if steps.is_empty() {
        return Err(usage("`--steps` is 0", "record at least one step"));
    }
    context
        .phase("draw", || from_profile(profile, &steps, context.seed))
        .map_err(|source| CliError::Synth { source })
}

/// Steps of a known truth.
fn generated(
    plan: &Plan,
    args: &SynthArgs,
    context: &Context,
) -> Result<(OpTable, SynthTruth), CliError> {
    let mut spec = SynthSpec::new(plan.0, args.steps);
    spec.seed = context.seed;
    spec.steps = SynthSteps {
        count: args.steps,
        first: i64::from(args.first_step),
        window: args.window.unwrap_or(0),
        gap: i64::from(args.gap.unwrap_or(GAP)),
    };
    once(args.effect.iter().map(|e| e.name.as_str()), "--effect")?;
    once(args.duration.iter().map(|d| d.operation.as_str()), "--duration")?;
    args.effect.iter().for_each(|e| set_effect(&mut spec.effects, e));
    args.duration.iter().for_each(|d| set_duration(&mut spec.durations, d));
    spec.slow_worker = args.slow_worker.map(|w| w.0);
    let synth =
        context.phase("draw", || spec.generate()).map_err(|source| CliError::Synth { source })?;
    Ok((synth.table, synth.truth))
}

/// Refuses a name that is given twice.
fn once<'a>(names: impl Iterator<Item = &'a str>, flag: &str) -> Result<(), CliError> {
    let mut seen: Vec<&str> = Vec::new();
    for name in names {
        if seen.contains(&name) {
            return Err(usage(format!("`{flag} {name}` is given twice"), "give each once"));
        }
        seen.push(name);
    }
    Ok(())
}

fn set_effect(effects: &mut SynthEffects, effect: &EffectArg) {
    let slot = match effect.name.as_str() {
        "worker" => &mut effects.worker,
        "position" => &mut effects.position,
        "step" => &mut effects.step,
        "step-worker" => &mut effects.step_worker,
        "microbatch" => &mut effects.microbatch,
        "residual" => &mut effects.residual,
        "worker-spread" => &mut effects.worker_spread,
        "congestion" => &mut effects.congestion,
        _ => &mut effects.transfer,
    };
    *slot = effect.spec;
}

fn set_duration(durations: &mut Durations, duration: &DurationArg) {
    let slot = match duration.operation.as_str() {
        "forward" => &mut durations.forward_s,
        "backward" => &mut durations.backward_s,
        "p2p" => &mut durations.p2p_s,
        "collective" => &mut durations.collective_s,
        "optimizer" => &mut durations.optimizer_s,
        _ => &mut durations.gc_s,
    };
    *slot = duration.mean_s;
}
