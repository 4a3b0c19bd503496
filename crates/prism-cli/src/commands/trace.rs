//! `prism trace`.

use std::path::Path;

use prism_decide::timeline::{StepTimeline, median_step};
use prism_engine::profile::{JobFile, SourceFile};
use prism_engine::replay::Replayed;
use prism_graph::GraphError;
use prism_io::write_atomic_gz;
use prism_report::{ChromeTrace, TimelineOutput, Written, json_text};

use crate::args::{Format, TimelineArgs};
use crate::context::Context;
use crate::error::{CliError, Outcome, usage};
use crate::input;

/// Writes one step of a trace as a timeline.
pub(crate) fn run(args: &TimelineArgs, context: &Context) -> Result<Outcome, CliError> {
    if args.output == Path::new("-") && context.format != Format::Human {
        return Err(usage(
            "`-o -` and `--format` both write to standard output",
            "write the timeline to a file, or leave out `--format`",
        ));
    }
    let loaded = input::trace(&args.trace, &args.read, context)?;
    let replayed = input::replayed(&args.trace, &loaded, context)?.chosen;
    let timeline = chosen(args, &replayed)?;
    let job = JobFile::from(&loaded.table.meta);
    let trace = ChromeTrace {
        graph: &replayed.graph,
        timeline: &timeline,
        ranks: &loaded.table.ranks(),
        job: &job,
    };
    let mut written = Written::default();
    context.phase("write", || {
        write_atomic_gz(&args.output, |out| {
            written = trace.write(out)?;
            Ok(())
        })
    })?;
    let sources = loaded.table.sources.iter().map(SourceFile::from).collect();
    let made_from = (sources, job, input::name(&args.output));
    let builder = replayed.report.builder;
    let output = TimelineOutput::new(&replayed.graph, &timeline, builder, &written, made_from);
    let mut document = output.document(context.printer.verbose());
    if args.step.is_none() && !args.ideal {
        document.line("It is the recorded step nearest the median; `--step` takes another");
    }
    let text = context.render(&document, || Ok(json_text(&output)?), || Ok(output.csv()?))?;
    if let Some(text) = text {
        context.printer.result(&text)?;
    }
    context.asides(&document);
    Ok(Outcome::Yes)
}

/// The step that was asked for.
fn chosen(args: &TimelineArgs, replayed: &Replayed) -> Result<StepTimeline, CliError> {
    let failed = |source: GraphError| CliError::Graph { file: input::name(&args.trace), source };
    if args.ideal {
        return StepTimeline::ideal(replayed).map_err(failed);
    }
    let steps = replayed.observed.steps();
    let index = match args.step {
        Some(step) => steps.binary_search(&step).map_err(|near| {
            let first = near.saturating_sub(2);
            let some: Vec<String> =
                steps.iter().skip(first).take(4).map(ToString::to_string).collect();
            usage(
                format!("`{}` has no step {step}", input::name(&args.trace)),
                format!("recorded steps near it: {}", some.join(", ")),
            )
        })?,
        None => median_step(replayed).unwrap_or(0),
    };
    StepTimeline::recorded(replayed, index).map_err(failed)
}
