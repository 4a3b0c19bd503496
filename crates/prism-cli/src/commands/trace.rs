//! `prism trace`.

use std::collections::BTreeMap;
use std::path::Path;

use prism_decide::explain::{ExplainOptions, sample_at, sampled_steps};
use prism_decide::scenario::{Donors, Scenario, apply};
use prism_decide::timeline::{StepTimeline, mean_step, median_step};
use prism_engine::predict::{Adjustments, Draws};
use prism_engine::profile::{JobFile, SourceFile};
use prism_engine::replay::{Builder, Replayed};
use prism_graph::{GraphError, StepGraph};
use prism_io::write_atomic_gz;
use prism_report::{ChromeTrace, TimelineOutput, Written, json_text, quantile_name};

use crate::args::{Format, TimelineArgs};
use crate::context::Context;
use crate::error::{CliError, Outcome, usage};
use crate::job::Calibrated;
use crate::{input, job};

/// Writes one step of a trace as a timeline.
pub(crate) fn run(args: &TimelineArgs, context: &Context) -> Result<Outcome, CliError> {
    if args.output == Path::new("-") && context.format != Format::Human {
        return Err(usage(
            "`-o -` and `--format` both write to standard output",
            "write the timeline to a file, or leave out `--format`",
        ));
    }
    let made = match args.quantile {
        Some(quantile) => sampled(args, quantile, context)?,
        None if input::is_job_file(&args.trace) => ideal_of_plan(args, context)?,
        None => replayed(args, context)?,
    };
    let trace = ChromeTrace {
        graph: &made.graph,
        timeline: &made.timeline,
        ranks: &made.ranks,
        job: &made.job,
    };
    let mut written = Written::default();
    context.phase("write", || {
        write_atomic_gz(&args.output, |out| {
            written = trace.write(out)?;
            Ok(())
        })
    })?;
    let made_from = (made.sources, made.job, input::name(&args.output));
    let mut output =
        TimelineOutput::new(&made.graph, &made.timeline, made.builder, &written, made_from);
    output.warnings.extend(made.notes);
    let document = output.document(context.printer.verbose());
    let text = context.render(&document, || Ok(json_text(&output)?), || Ok(output.csv()?))?;
    if let Some(text) = text {
        context.printer.result(&text)?;
    }
    context.asides(&document);
    Ok(Outcome::Yes)
}

/// A step and what it belongs to.
struct Made {
    graph: StepGraph,
    timeline: StepTimeline,
    ranks: BTreeMap<(u32, u16), u32>,
    job: JobFile,
    builder: Builder,
    sources: Vec<SourceFile>,
    notes: Vec<String>,
}

/// A recorded or ideal step of a trace.
fn replayed(args: &TimelineArgs, context: &Context) -> Result<Made, CliError> {
    args.planned.check_unused(&args.trace)?;
    if input::is_profile(&args.trace) {
        return Err(usage(
            format!("`{}` is a profile, which holds no recorded steps", input::name(&args.trace)),
            "ask for a step that its model draws: `--quantile p50`",
        ));
    }
    let loaded = input::trace(&args.trace, &args.read, context)?;
    let replayed = input::replayed(&args.trace, &loaded, context)?.chosen;
    Ok(Made {
        timeline: chosen(args, &replayed)?,
        builder: replayed.report.builder,
        graph: replayed.graph,
        ranks: loaded.table.ranks(),
        job: JobFile::from(&loaded.table.meta),
        sources: loaded.table.sources.iter().map(SourceFile::from).collect(),
        notes: Vec::new(),
    })
}

/// A planned job's step with every operation at its mean and all GPUs alike.
fn ideal_of_plan(args: &TimelineArgs, context: &Context) -> Result<Made, CliError> {
    if !args.ideal {
        return Err(usage(
            format!("`{}` is a job file: no step of it was recorded", input::name(&args.trace)),
            "ask for the step without noise (`--ideal`), or one that is drawn (`--quantile p95`)",
        ));
    }
    let calibrated = job::read(&args.trace, &args.read, &args.planned, Draws::Empirical, context)?;
    let mut model = calibrated.profile.model.clone();
    model.compute.worker_log.clear();
    let timeline = mean_step(&calibrated.graph, &model)
        .map_err(|source| CliError::Graph { file: input::name(&args.trace), source })?;
    Ok(made(calibrated, timeline))
}

/// A step that is not recorded, and what it belongs to.
fn made(calibrated: Calibrated, timeline: StepTimeline) -> Made {
    let layout = calibrated.layout(calibrated.node_size(None));
    let workers = (0..layout.replicas).flat_map(|r| (0..layout.stages).map(move |s| (r, s)));
    Made {
        timeline,
        ranks: workers.map(|(r, s)| ((r, s), layout.rank(r, s))).collect(),
        job: calibrated.profile.provenance.job.clone(),
        builder: calibrated.profile.provenance.builder,
        graph: calibrated.graph,
        sources: calibrated.sources,
        notes: calibrated.notes,
    }
}

/// A step that the model draws.
fn sampled(args: &TimelineArgs, quantile: f64, context: &Context) -> Result<Made, CliError> {
    let calibrated = job::read(&args.trace, &args.read, &args.planned, Draws::Empirical, context)?;
    let file = || input::name(&args.trace);
    let (mut model, mut adjust) = (calibrated.profile.model.clone(), Adjustments::default());
    let mut under = String::new();
    if let Some(text) = &args.scenario {
        let scenario: Scenario = text
            .parse()
            .map_err(|source| CliError::Scenario { place: "`--scenario`".to_owned(), source })?;
        let changed =
            apply(&calibrated.job(calibrated.node_size(None)), &scenario, &Donors::new()).map_err(
                |source| CliError::Compare { file: file(), source: Box::new(source.into()) },
            )?;
        (model, adjust) = (changed.model, changed.adjust);
        under = format!(" under `{scenario}`");
    }
    let options = ExplainOptions {
        path_samples: args.samples.unwrap_or(400) as usize,
        seed: context.seed,
        threads: context.threads,
        ..ExplainOptions::default()
    };
    let predicted = context
        .phase("sample", || sampled_steps(&calibrated.graph, &model, &adjust, &options))
        .map_err(|source| CliError::Predict { file: file(), source })?;
    let sample = sample_at(&predicted.step_s, quantile);
    let name = format!("sampled step nearest {}{under}", quantile_name(quantile));
    let timeline = StepTimeline::new(name, None, &calibrated.graph, &predicted.timeline, sample)
        .map_err(|source| CliError::Graph { file: file(), source })?;
    Ok(made(calibrated, timeline))
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
