//! `prism validate`.

use prism_engine::profile::{JobFile, SourceFile};
use prism_engine::validate::{ValidateOptions, validate};
use prism_report::{ValidateOutput, json_text};

use crate::args::ValidateArgs;
use crate::context::Context;
use crate::error::{CliError, Outcome};
use crate::input;

/// Validates predictions of a trace.
pub(crate) fn run(args: &ValidateArgs, context: &Context) -> Result<Outcome, CliError> {
    let file = input::name(&args.trace);
    let loaded = input::trace(&args.trace, &args.read, context)?;
    let choice = input::replayed(&args.trace, &loaded, context)?;
    let options = ValidateOptions {
        splits: args.splits,
        samples: args.samples,
        seed: context.seed,
        threads: context.threads,
        exclude: args.exclude_steps.clone(),
        alpha: args.alpha,
    };
    let report = context
        .phase("validate", || validate(&choice.chosen, &options))
        .map_err(|source| CliError::Validate { file, source })?;
    let output = ValidateOutput {
        report,
        sources: loaded.table.sources.iter().map(SourceFile::from).collect(),
        job: JobFile::from(&loaded.table.meta),
        steps_dropped: loaded.dropped.iter().map(|d| d.step).collect(),
    };
    let document = output.document(context.printer.verbose());
    let text = context.render(&document, || Ok(json_text(&output)?), || Ok(output.csv()?))?;
    if let Some(text) = text {
        context.printer.result(&text)?;
    }
    context.asides(&document);
    Ok(Outcome::Yes)
}
