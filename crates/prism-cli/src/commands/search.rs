//! `prism search`.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use prism_decide::search::{
    Checkpoint, PlanObjective, SearchError, SearchOptions, SearchResult, SearchSpace, search,
};
use prism_io::write_atomic;
use prism_job::{Job, to_toml};
use prism_report::{SearchOutput, json_text};

use crate::args::{PlanObjectiveArg, RangeArgs, SearchArgs};
use crate::context::Context;
use crate::error::{CliError, Outcome, usage};
use crate::input;

/// How often the checkpoint is written.
const KEEP: Duration = Duration::from_secs(2);

/// Searches the plans of a job.
pub(crate) fn run(args: &SearchArgs, context: &Context) -> Result<Outcome, CliError> {
    input::not_itself(args.write_best.as_deref(), &args.job, "--write-best")?;
    let given = input::job_file(&args.job)?;
    let read = given.job(&args.set)?;
    given.warn(&read.warnings, context);
    let options = options(args, context, &read.job)?;
    let found = find(&read.job, &options, args, context)?;
    if let (Some(path), Some(best)) = (&args.write_best, &found.best) {
        let toml = to_toml(best);
        write_atomic(path, |out| out.write_all(toml.as_bytes()))?;
    }
    let file = input::name(&args.job);
    let output = SearchOutput {
        sources: vec![given.source.clone()],
        set: args.set.texts(),
        model: read.job.model.name.clone(),
        cluster: read.job.cluster.name.clone(),
        variability: read.job.variability.preset.clone(),
        global_batch_size: read.job.training.global_batch_size,
        seq_len: read.job.training.seq_len,
        gpus: options.gpus.clone(),
        price_per_gpu_hour: options.price_per_gpu_hour,
        seed: options.seed,
        confidence: options.confidence,
        warnings: read.warnings.iter().map(|w| given.in_words(w)).collect(),
        ..SearchOutput::new(&found, args.timing)
    };
    let mut document = output.document(context.printer.verbose());
    // Those of the file were shown at their place in it.
    document.warnings.drain(..read.warnings.len().min(document.warnings.len()));
    document.hint = Some(match (&args.write_best, &found.best) {
        (Some(path), Some(_)) => format!("prism predict {}", input::name(path)),
        (None, Some(_)) => format!("prism search {file} --write-best best.toml"),
        (_, None) => {
            "more GPUs, `--zero 3`, or wider `--tp` and `--pp` take less memory".to_owned()
        }
    });
    let path = args.output.as_deref();
    context.deliver(path, &document, || Ok(json_text(&output)?), || Ok(output.csv()?))?;
    context.asides(&document);
    Ok(if found.best.is_some() { Outcome::Yes } else { Outcome::No })
}

fn options(args: &SearchArgs, context: &Context, job: &Job) -> Result<SearchOptions, CliError> {
    if args.price_per_gpu_hour.is_some() && args.objective != PlanObjectiveArg::Cost {
        return Err(usage(
            "`--price-per-gpu-hour` means nothing without `--objective cost`",
            "add `--objective cost`",
        ));
    }
    let usual = SearchOptions::of(job);
    Ok(SearchOptions {
        gpus: if args.gpus.is_empty() { usual.gpus } else { args.gpus.clone() },
        space: space(&args.range, usual.space),
        objective: match args.objective {
            PlanObjectiveArg::P50 => PlanObjective::P50,
            PlanObjectiveArg::P95 => PlanObjective::P95,
            PlanObjectiveArg::Cvar => PlanObjective::Cvar,
            PlanObjectiveArg::Cost => PlanObjective::Cost,
        },
        price_per_gpu_hour: args.price_per_gpu_hour,
        top: args.top,
        distributions: args.distributions.max(args.top),
        exhaustive: args.exhaustive,
        samples: args.samples.unwrap_or(0),
        clusters: args.clusters,
        seed: context.seed,
        confidence: args.confidence,
    })
}

fn space(range: &RangeArgs, usual: SearchSpace) -> SearchSpace {
    fn or<T: Clone>(given: &[T], usual: Vec<T>) -> Vec<T> {
        if given.is_empty() { usual } else { given.to_vec() }
    }
    SearchSpace {
        tensor_parallel: or(&range.tp, usual.tensor_parallel),
        pipeline_parallel: or(&range.pp, usual.pipeline_parallel),
        context_parallel: or(&range.cp, usual.context_parallel),
        expert_parallel: or(&range.ep, usual.expert_parallel),
        micro_batch: or(&range.micro_batch, usual.micro_batch),
        virtual_chunks: or(&range.chunks, usual.virtual_chunks),
        schedules: or(&range.schedules, usual.schedules),
        recompute: or(&range.recompute, usual.recompute),
        zero: or(&range.zero, usual.zero),
        uneven: range.uneven,
    }
}

/// Searches, with progress and a checkpoint.
fn find(
    job: &Job,
    options: &SearchOptions,
    args: &SearchArgs,
    context: &Context,
) -> Result<SearchResult, CliError> {
    let failed =
        |source| CliError::Search { file: input::name(&args.job), source: Box::new(source) };
    let path = args.checkpoint.as_deref();
    let from = path.filter(|p| p.exists()).map(kept).transpose()?;
    let bar = context.counter("rules, memory, bounds");
    let (begin, mut last) = (Instant::now(), None::<Instant>);
    let mut unwritten = None;
    let found = search(job, options, from, &mut |progress, state| {
        if let Some(bar) = &bar {
            bar.set_message(format!("{}: {} of {}", progress.stage, progress.done, progress.of));
        }
        let due = last.is_none_or(|at| at.elapsed() >= KEEP) || progress.done == progress.of;
        let Some(path) = path.filter(|_| due) else { return ControlFlow::Continue(()) };
        last = Some(Instant::now());
        match keep(path, state) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                unwritten = Some(error);
                ControlFlow::Break(())
            }
        }
    });
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    let seconds = begin.elapsed().as_secs_f64();
    context.printer.detail(1, &format!("search: {seconds:.3} s"));
    match (found, unwritten) {
        (Err(SearchError::Stopped), Some(error)) => Err(error),
        (found, _) => found.map_err(failed),
    }
}

fn kept(path: &Path) -> Result<Checkpoint, CliError> {
    let file = input::name(path);
    let failed = |source| CliError::Input { file: file.clone(), source };
    let text = std::fs::read_to_string(path).map_err(failed)?;
    serde_json::from_str(&text).map_err(|e| {
        usage(
            format!("`{file}` is no checkpoint of a search: {e}"),
            "remove it, or name another file with `--checkpoint`",
        )
    })
}

fn keep(path: &Path, state: &Checkpoint) -> Result<(), CliError> {
    let text = json_text(state)?;
    Ok(write_atomic(path, |out| out.write_all(text.as_bytes()))?)
}
