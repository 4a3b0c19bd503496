//! `prism explain`.

use prism_decide::explain::{ExplainOptions, explain};
use prism_report::{EXPLAIN_SCHEMA, ExplainOutput, json_text};

use crate::args::ExplainArgs;
use crate::context::Context;
use crate::error::{CliError, Outcome};
use crate::{input, job};

/// Says where the time and its tail come from.
pub(crate) fn run(args: &ExplainArgs, context: &Context) -> Result<Outcome, CliError> {
    let draws = args.draws.into();
    let mut calibrated = job::read(&args.input, &args.read, &args.planned, draws, context)?;
    calibrated.heal(&args.heal, &args.input)?;
    let options = ExplainOptions {
        draws,
        samples: args.samples,
        path_samples: args.path_samples as usize,
        seed: context.seed,
        threads: context.threads,
        repetitions: calibrated.repetitions(args.bootstrap, 0, &args.input)?,
        confidence: args.confidence,
        quantile: args.quantile,
        max_parts: usize::from(args.max_parts),
        ..ExplainOptions::default()
    };
    let gpus_per_node = calibrated.node_size(args.gpus_per_node);
    let report =
        context.phase("explain", || explain(&calibrated.job(gpus_per_node), &options)).map_err(
            |source| CliError::Compare { file: input::name(&args.input), source: Box::new(source) },
        )?;
    let layout = calibrated.layout(gpus_per_node);
    let output = ExplainOutput {
        schema: EXPLAIN_SCHEMA.to_owned(),
        job: calibrated.profile.provenance.job.clone(),
        sources: calibrated.sources,
        layout,
        report,
        warnings: calibrated.notes,
    };
    let mut document = output.document(args.paths, context.printer.verbose());
    let best = output.report.fixes.first().map(|f| f.comparison.scenario.to_string());
    document.hint =
        best.map(|best| format!("prism whatif {} --scenario '{best}'", input::name(&args.input)));
    let file = args.output.as_deref();
    context.deliver(file, &document, || Ok(json_text(&output)?), || Ok(output.csv()?))?;
    context.asides(&document);
    Ok(Outcome::Yes)
}
