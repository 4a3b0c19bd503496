//! `prism replay`.

use prism_engine::profile::{JobFile, SourceFile};
use prism_report::{REPLAY_SCHEMA, ReplayOutput, json_text};

use crate::args::ReplayArgs;
use crate::context::Context;
use crate::error::{CliError, Outcome};
use crate::input;

/// Replays a trace on both builders' graphs.
pub(crate) fn run(args: &ReplayArgs, context: &Context) -> Result<Outcome, CliError> {
    let loaded = input::trace(&args.trace, &args.read, context)?;
    let choice = input::replayed(&args.trace, &loaded, context)?;
    let output = ReplayOutput {
        schema: REPLAY_SCHEMA.to_owned(),
        sources: loaded.table.sources.iter().map(SourceFile::from).collect(),
        job: JobFile::from(&loaded.table.meta),
        steps_dropped: loaded.dropped.iter().map(|d| d.step).collect(),
        comparison: choice.comparison,
        warnings: loaded.warnings,
    };
    let mut document = output.document(args.per_step);
    // The reader's own were shown when it read.
    document.warnings.retain(|w| !output.warnings.contains(w));
    document.hint = Some(format!("prism predict {}", input::name(&args.trace)));
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
