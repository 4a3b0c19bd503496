//! `prism check`.

use prism_decide::check::check;
use prism_job::{JobFileError, ReadJob, Violation, Violations};
use prism_report::{CheckOutput, ViolationFile, cost_assumption, json_text};

use crate::args::{CheckArgs, Format};
use crate::context::Context;
use crate::error::{CliError, Outcome};
use crate::input::{self, JobInput};
use crate::snippet;

/// Checks a job file.
pub(crate) fn run(args: &CheckArgs, context: &Context) -> Result<Outcome, CliError> {
    let given = input::job_file(&args.job)?;
    match given.job(&args.set) {
        Ok(read) => possible(&given, &read, args, context),
        Err(CliError::Job(JobFileError::Invalid(all))) => refused(&given, *all, args, context),
        Err(other) => Err(other),
    }
}

fn possible(
    given: &JobInput,
    read: &ReadJob,
    args: &CheckArgs,
    context: &Context,
) -> Result<Outcome, CliError> {
    let job = &read.job;
    let checked = context
        .phase("check", || check(job))
        .map_err(|source| CliError::Planned { file: input::name(&args.job), source })?;
    given.warn(&read.warnings, context);
    let mut warnings: Vec<String> = read.warnings.iter().map(|w| given.in_words(w)).collect();
    warnings.extend(cost_assumption(job));
    let mut output = CheckOutput::possible(job, &checked, warnings);
    output.sources = vec![given.source.clone()];
    output.set = args.set.texts();
    let mut document = output.document(context.printer.verbose());
    // Those of the file were shown at their place in it.
    document.warnings.drain(..read.warnings.len());
    document.hint = Some(if output.fits {
        format!("prism predict {}", input::name(&args.job))
    } else {
        "more stages or tensor-parallel ranks, a higher `zero_stage`, `recompute = \"full\"`, or a \
         smaller `micro_batch_size` take less memory"
            .to_owned()
    });
    let file = args.output.as_deref();
    context.deliver(file, &document, || Ok(json_text(&output)?), || Ok(output.csv()?))?;
    context.asides(&document);
    Ok(if output.fits { Outcome::Yes } else { Outcome::No })
}

/// An impossible plan is an answer; a file that says no job is an error. Either way programs get all
/// of it.
fn refused(
    given: &JobInput,
    all: Violations,
    args: &CheckArgs,
    context: &Context,
) -> Result<Outcome, CliError> {
    if matches!(context.format, Format::Json | Format::Csv) {
        let violations = all.violations.iter().map(|v| of(v, &all.text)).collect();
        let mut output = CheckOutput::impossible(violations, snippet::possible(&all));
        output.sources = vec![given.source.clone()];
        output.set = args.set.texts();
        let file = args.output.as_deref();
        let document = output.document(false);
        context.deliver(file, &document, || Ok(json_text(&output)?), || Ok(output.csv()?))?;
    }
    let says_job = all.says_job;
    let error = CliError::Job(JobFileError::Invalid(Box::new(all)));
    if !says_job {
        return Err(error);
    }
    context.printer.error(&error);
    Ok(Outcome::No)
}

fn of(violation: &Violation, text: &str) -> ViolationFile {
    let place = violation.line_column(text);
    ViolationFile {
        key: violation.key.clone(),
        rule: violation.rule.to_owned(),
        line: place.map(|p| p.0),
        column: place.map(|p| p.1),
        set: violation.set.clone(),
        message: violation.message.clone(),
        hint: violation.hint.clone(),
    }
}
