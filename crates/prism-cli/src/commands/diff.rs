//! `prism diff`.

use std::path::{Path, PathBuf};

use prism_decide::diff::{DiffError, DiffOptions, DiffReport, diff, diff_steps};
use prism_engine::planned::record;
use prism_engine::predict::Draws;
use prism_engine::profile::SourceFile;
use prism_io::{Limits, StepLog, read_step_log};
use prism_report::{DiffOutput, ToleranceResult, json_text};

use crate::args::{DiffArgs, TraceArgs};
use crate::context::Context;
use crate::error::{CliError, Outcome, usage};
use crate::input;
use crate::job::{self, Calibrated};
use crate::planned::PlannedArgs;

/// Steps drawn of a job file.
const RECORDED: usize = 64;

/// Compares two jobs.
pub(crate) fn run(args: &DiffArgs, context: &Context) -> Result<Outcome, CliError> {
    if args.a == Path::new("-") && args.b == Path::new("-") {
        return Err(usage("both inputs are standard input", "give a file for one of them"));
    }
    let logs = (input::is_step_log(&args.a), input::is_step_log(&args.b));
    let output = match logs {
        (true, true) => of_logs(args, context)?,
        (false, false) => of_jobs(args, context)?,
        (a_is_log, _) => {
            let (log, other) = if a_is_log { (&args.a, &args.b) } else { (&args.b, &args.a) };
            return Err(usage(
                format!(
                    "`{}` is a log of step times, `{}` is not",
                    input::name(log),
                    input::name(other)
                ),
                "compare two logs, or two traces or profiles",
            ));
        }
    };
    let mut document = output.document(context.printer.verbose());
    document.hint = hint(args, &output.report);
    let file = args.output.as_deref();
    context.deliver(file, &document, || Ok(json_text(&output)?), || Ok(output.csv()?))?;
    context.asides(&document);
    let slower = output.tolerance.as_ref().is_some_and(|t| t.slower);
    let found = args.fail_on_findings && !output.report.findings().is_empty();
    Ok(if slower || found { Outcome::No } else { Outcome::Yes })
}

/// What to look at next: the prediction that says why.
fn hint(args: &DiffArgs, report: &DiffReport) -> Option<String> {
    report.parts.as_ref()?;
    Some(format!("prism predict {}", input::name(&args.b)))
}

fn options(args: &DiffArgs, context: &Context) -> DiffOptions {
    DiffOptions {
        alpha: args.alpha,
        confidence: args.confidence,
        seed: context.seed,
        threads: context.threads,
        samples: args.samples,
        repetitions: args.bootstrap.unwrap_or(DiffOptions::default().repetitions),
        ..DiffOptions::default()
    }
}

fn failed(args: &DiffArgs) -> impl Fn(DiffError) -> CliError {
    let (a, b) = (input::name(&args.a), input::name(&args.b));
    move |source| CliError::Diff { a: a.clone(), b: b.clone(), source }
}

fn judge(args: &DiffArgs, report: &DiffReport) -> Option<ToleranceResult> {
    let slower = |tolerance| report.overall.slower_than(tolerance);
    args.tolerance.map(|tolerance| ToleranceResult { tolerance, slower: slower(tolerance) })
}

fn of_logs(args: &DiffArgs, context: &Context) -> Result<DiffOutput, CliError> {
    let flags = [
        ("--meta-a", args.meta_a.is_some()),
        ("--meta-b", args.meta_b.is_some()),
        ("--allow-incomplete", args.allow_incomplete),
        ("--fail-on-findings", args.fail_on_findings),
    ];
    if let Some((flag, _)) = flags.iter().find(|(_, given)| *given) {
        return Err(usage(
            format!("`{flag}` is about operations, which logs of step times do not have"),
            format!("leave out `{flag}`"),
        ));
    }
    let read = |path: &PathBuf| -> Result<StepLog, CliError> {
        Ok(context.phase("read", || read_step_log(path, Limits::default()))?)
    };
    let (a, b) = (read(&args.a)?, read(&args.b)?);
    let report = context
        .phase("compare", || {
            let options = options(args, context);
            diff_steps((&a.step, &a.step_s), (&b.step, &b.step_s), &options)
        })
        .map_err(failed(args))?;
    Ok(DiffOutput {
        tolerance: judge(args, &report),
        report,
        a_sources: vec![SourceFile::from(&a.source)],
        b_sources: vec![SourceFile::from(&b.source)],
    })
}

fn of_jobs(args: &DiffArgs, context: &Context) -> Result<DiffOutput, CliError> {
    let planned = [&args.a, &args.b].map(|path| input::is_job_file(path));
    if planned[0] != planned[1] {
        let (job, other) = if planned[0] { (&args.a, &args.b) } else { (&args.b, &args.a) };
        return Err(usage(
            format!("`{}` is a job file, `{}` is not", input::name(job), input::name(other)),
            "compare two job files; whether a job is predicted well, `prism predict` of both says",
        ));
    }
    let (a, a_sources) = calibrated(&args.a, args.meta_a.as_ref(), args, context)?;
    let (b, b_sources) = calibrated(&args.b, args.meta_b.as_ref(), args, context)?;
    let mut settings = options(args, context);
    if planned[0] {
        settings.repetitions = a.repetitions(args.bootstrap, 0, &args.a)?;
    }
    let mut report = context
        .phase("compare", || diff(&a.profile, &b.profile, &settings))
        .map_err(failed(args))?;
    if planned[0] {
        report.warnings = vec![format!(
            "nothing was recorded: of each job {RECORDED} steps were drawn from its variability, under \
             the same noise"
        )];
        report.warnings.extend(a.notes);
        report.warnings.extend(b.notes);
        report.warnings.dedup();
    }
    Ok(DiffOutput { tolerance: judge(args, &report), report, a_sources, b_sources })
}

/// A profile, a trace calibrated to one, or drawn steps of a job file.
fn calibrated(
    path: &Path,
    meta: Option<&PathBuf>,
    args: &DiffArgs,
    context: &Context,
) -> Result<(Calibrated, Vec<SourceFile>), CliError> {
    // `--allow-incomplete` is about whichever of the two is a trace.
    let read = TraceArgs { meta: meta.cloned(), allow_incomplete: args.allow_incomplete };
    let planned = PlannedArgs { steps: RECORDED, ..PlannedArgs::default() };
    let mut job = job::read(path, &read, &planned, Draws::Empirical, context)?;
    if job.is_planned() {
        context
            .phase("draw", || record(&mut job.profile, &job.graph, context.seed))
            .map_err(|source| CliError::Recorded { file: input::name(path), source })?;
    }
    let sources = job.sources.clone();
    Ok((job, sources))
}
