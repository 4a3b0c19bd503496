//! `prism predict`.

use std::path::Path;

use prism_engine::calibrate::Selection;
use prism_engine::iid::{self, IidOptions, IidPredictOptions};
use prism_engine::predict::{
    Estimate, PredictError, PredictOptions, PredictReport, Prediction, ResampleUnit, guarantee,
    predict, predict_resized, report_of, resample_units,
};
use prism_engine::profile::{Profile, SourceFile};
use prism_engine::replay::Replayed;
use prism_engine::resize::{ResizeOptions, Resizer};
use prism_engine::sample::Isa;
use prism_graph::StepGraph;
use prism_io::{IoError, write_samples};
use prism_model::EffectKind;
use prism_report::{
    InputKind, ModelKind, Over, PredictOutput, RequirementResult, ResizedOutput, json_text,
};

use crate::args::{
    DrawsArg, Format, Guarantee, IsaArg, ModelArg, OverArg, PredictArgs, Requirement, Statistic,
};
use crate::context::Context;
use crate::error::{CliError, Outcome, usage};
use crate::input::{self, Input};
use crate::job;

use super::predict_job;

/// Samples of a trace or a profile where nothing is said.
const SAMPLES: usize = 10_000;

/// Predicts a distribution of step time.
pub(crate) fn run(args: &PredictArgs, context: &Context) -> Result<Outcome, CliError> {
    let given = match input::any(&args.input, &args.read, context).map_err(expected)? {
        Input::Job(given) => return predict_job::run(&given, args, context),
        other => other,
    };
    check(args, context)?;
    let options = options(args, context);
    let source = Calibration::read(given, args, context)?;
    let failed = |source| CliError::Predict { file: input::name(&args.input), source };
    let graph = source.graph(args)?;
    let resizer = resizer(args, context, &graph, &source.profile).map_err(failed)?;
    let mut prediction = match (&source.replayed, &resizer) {
        (Some(replayed), _) => {
            baseline(replayed, &graph, &source.profile, &options, (args, context))?
        }
        (None, Some(resizer)) => context
            .phase("predict", || predict_resized(resizer, &source.profile.model, &options))
            .map_err(failed)?,
        (None, None) => context
            .phase("predict", || predict(&graph, &source.profile.model, &options))
            .map_err(failed)?,
    };
    if let Some(wanted) = args.guarantee {
        bound(&mut prediction.report, wanted, &graph, &source.profile, &options, context)
            .map_err(failed)?;
    }
    let requirements = args.require.iter().filter_map(|r| judge(r, &prediction.report)).collect();
    if let Some(path) = &args.output {
        let samples: Vec<f64> = prediction.samples_s.iter().map(|&v| f64::from(v)).collect();
        context.phase("write", || write_samples(path, &[("step_s", &samples)]))?;
    }
    if args.over == OverArg::Clusters && !source.workers_differ() {
        prediction.report.warnings.push(
            "the replicas do not differ for good (worker effect dropped): by this model all clusters \
             are alike"
                .to_owned(),
        );
    }
    let mut output = source.output(prediction, requirements, args.over);
    output.resized = resizer.map(|r| ResizedOutput::new(&r, &source.profile.model));
    let mut document = output.document();
    document.hint = Some(source.hint(args));
    let text = context.render(&document, || Ok(json_text(&output)?), || Ok(output.csv()?))?;
    if let Some(text) = text {
        context.printer.result(&text)?;
    }
    context.asides(&document);
    Ok(if output.all_met() { Outcome::Yes } else { Outcome::No })
}

/// A file that is none of the three kinds: names them.
fn expected(error: CliError) -> CliError {
    match error {
        CliError::Io(source @ IoError::Columns { .. }) => CliError::Unknown { source },
        other => other,
    }
}

/// What resizes the job, if another size is asked for.
fn resizer<'a>(
    args: &PredictArgs,
    context: &Context,
    graph: &'a StepGraph,
    profile: &Profile,
) -> Result<Option<Resizer<'a>>, PredictError> {
    let asked = &args.resize;
    if !asked.given() {
        return Ok(None);
    }
    let recorded = graph.replicas();
    let dsp = profile.provenance.job.dsp_size.max(1);
    let ranks = |replicas: u32| replicas.saturating_mul(dsp);
    let options = ResizeOptions {
        seed: context.seed,
        fresh_cluster: asked.fresh_cluster,
        extrapolate: asked.extrapolate,
        ranks: Some((ranks(recorded), ranks(asked.dp.unwrap_or(recorded)))),
    };
    Ok(Some(Resizer::new(graph, &profile.model, &asked.target(), &options)?))
}

/// Refuses flags that mean nothing for a resized job, or without one.
fn check_resize(args: &PredictArgs) -> Result<(), CliError> {
    let asked = &args.resize;
    if !asked.given() {
        return if asked.extrapolate {
            Err(usage(
                "`--extrapolate` is about another size than the recorded one",
                "give `--dp`, `--pp` or `--microbatches`",
            ))
        } else {
            Ok(())
        };
    }
    if args.guarantee.is_some() {
        return Err(usage(
            "`--guarantee` bounds a quantile by recorded steps, which are those of another job than the \
             resized one",
            "use `--require`, or leave out the other size",
        ));
    }
    if args.model == ModelArg::Iid {
        return Err(usage(
            "the baseline `--model iid` knows no other size than the recorded one",
            "use `--model effects`",
        ));
    }
    Ok(())
}

/// Refuses flags that contradict each other or the input.
fn check(args: &PredictArgs, context: &Context) -> Result<(), CliError> {
    let of_jobs = [
        ("--set", !args.set.set.is_empty()),
        ("--clusters", args.clusters.is_some()),
        ("--brute-force", args.brute_force),
        ("--variability-from", args.variability_from.is_some()),
    ];
    if let Some((flag, _)) = of_jobs.iter().find(|(_, given)| *given) {
        return Err(usage(
            format!("`{flag}` is for job files, and `{}` is none", input::name(&args.input)),
            format!("leave out `{flag}`, or give a job file (TOML)"),
        ));
    }
    check_resize(args)?;
    if args.over == OverArg::Clusters && args.guarantee.is_some() {
        return Err(usage(
            "`--guarantee` bounds a quantile over steps on the recorded cluster, `--over clusters` \
             asks about others",
            "leave out one of them",
        ));
    }
    if args.output.as_deref() == Some(Path::new("-")) && context.format != Format::Human {
        return Err(usage(
            "`-o -` and `--format` both write to standard output",
            "write the samples to a file, or leave out `--format`",
        ));
    }
    if args.model == ModelArg::Effects {
        return Ok(());
    }
    let unknown = [
        ("--guarantee", args.guarantee.is_some()),
        ("--precision", args.precision.is_some()),
        ("--bootstrap", args.bootstrap() > 0),
        ("--over clusters", args.over == OverArg::Clusters),
    ];
    match unknown.iter().find(|(_, given)| *given) {
        None => Ok(()),
        Some((flag, _)) => Err(usage(
            format!("the baseline `--model iid` does not know `{flag}`"),
            format!("leave out `{flag}`, or use `--model effects`"),
        )),
    }
}

/// Quantiles, those of requirements too, and slow-downs to report, in order.
pub(super) fn asked(args: &PredictArgs) -> (Vec<f64>, Vec<f64>) {
    let mut quantiles = args.quantile.clone();
    for requirement in &args.require {
        if let Statistic::Quantile(p) = requirement.statistic {
            quantiles.push(p);
        }
    }
    let mut slowdowns = args.slowdown.clone();
    for list in [&mut quantiles, &mut slowdowns] {
        list.sort_by(f64::total_cmp);
        list.dedup();
    }
    (quantiles, slowdowns)
}

fn options(args: &PredictArgs, context: &Context) -> PredictOptions {
    let (quantiles, slowdowns) = asked(args);
    PredictOptions {
        draws: args.draws().into(),
        samples: args.samples.unwrap_or(SAMPLES),
        precision: args.precision,
        seed: context.seed,
        threads: context.threads,
        isa: match args.isa {
            IsaArg::Auto => None,
            IsaArg::Portable => Some(Isa::Portable),
            IsaArg::Avx2 => Some(Isa::Avx2),
            IsaArg::Avx512 => Some(Isa::Avx512),
        },
        repetitions: args.bootstrap(),
        confidence: args.confidence,
        quantiles,
        slowdowns,
        over_clusters: args.over == OverArg::Clusters,
        ..PredictOptions::default()
    }
}

/// Predicts by the published rules.
fn baseline(
    replayed: &Replayed,
    graph: &StepGraph,
    profile: &Profile,
    options: &PredictOptions,
    (args, context): (&PredictArgs, &Context),
) -> Result<Prediction, CliError> {
    let file = || input::name(&args.input);
    let selection = Selection::all(replayed);
    let model = context
        .phase("calibrate baseline", || {
            iid::calibrate(replayed, &selection, &IidOptions::default())
        })
        .map_err(|source| CliError::Calibrate { file: file(), source })?;
    let settings = IidPredictOptions {
        draws: options.draws,
        samples: options.samples,
        seed: options.seed,
        threads: options.threads,
        isa: options.isa,
    };
    let predicted = context.phase("predict", || {
        let samples_s = iid::predict(&replayed.graph, &model, &settings)?;
        let report = report_of(&samples_s, graph, &profile.model, options)?;
        Ok(Prediction { samples_s, report })
    });
    predicted.map_err(|source| CliError::Predict { file: file(), source })
}

/// A calibrated job, and how it came here.
struct Calibration {
    profile: Profile,
    /// The trace on its graph, for a model that is not part of a profile.
    replayed: Option<Box<Replayed>>,
    kind: InputKind,
    sources: Vec<SourceFile>,
}

impl Calibration {
    fn read(given: Input, args: &PredictArgs, context: &Context) -> Result<Calibration, CliError> {
        let loaded = match given {
            Input::Job(_) => return Err(CliError::IsJob { file: input::name(&args.input) }),
            Input::Profile(profile, source) => {
                let mut sources = vec![source];
                sources.extend(profile.provenance.sources.iter().cloned());
                if args.model == ModelArg::Iid {
                    return Err(usage(
                        "`--model iid` is calibrated on a trace, a profile does not hold it",
                        "give the trace that the profile was made from",
                    ));
                }
                let kind = InputKind::Profile;
                return Ok(Calibration { profile: *profile, replayed: None, kind, sources });
            }
            Input::Trace(loaded) => loaded,
        };
        let choice = input::replayed(&args.input, &loaded, context)?;
        let laws = args.model == ModelArg::Effects && args.draws() == DrawsArg::Parametric;
        let profile = job::calibrated(&args.input, &loaded, &choice, laws, context)?;
        let sources = profile.provenance.sources.clone();
        let replayed = (args.model == ModelArg::Iid).then(|| Box::new(choice.chosen));
        Ok(Calibration { profile, replayed, kind: InputKind::Trace, sources })
    }

    fn graph(&self, args: &PredictArgs) -> Result<StepGraph, CliError> {
        self.profile
            .step_graph()
            .map_err(|source| CliError::Profile { file: input::name(&args.input), source })
    }

    /// Whether there is anything by which clusters differ.
    fn workers_differ(&self) -> bool {
        self.profile.model.effects.iter().any(|e| e.kind == EffectKind::Worker && e.kept)
    }

    fn output(
        &self,
        prediction: Prediction,
        requirements: Vec<RequirementResult>,
        over: OverArg,
    ) -> PredictOutput {
        PredictOutput {
            report: prediction.report,
            over_what: match over {
                OverArg::Steps => Over::Steps,
                OverArg::Clusters => Over::Clusters,
            },
            model: if self.replayed.is_some() { ModelKind::Iid } else { ModelKind::Effects },
            input: self.kind,
            sources: self.sources.clone(),
            job: self.profile.provenance.job.clone(),
            builder: self.profile.provenance.builder,
            effects: match self.replayed {
                Some(_) => Vec::new(),
                None => self.profile.model.effects.clone(),
            },
            requirements,
            resized: None,
        }
    }

    fn hint(&self, args: &PredictArgs) -> String {
        let file = input::name(&args.input);
        match self.kind {
            InputKind::Trace => format!("prism calibrate {file} -o profile.json"),
            _ if args.over == OverArg::Steps => format!("prism predict {file} --over clusters"),
            _ => format!("prism predict {file} -o samples.parquet"),
        }
    }
}

/// Adds the guarantee, and what it takes for granted.
fn bound(
    report: &mut PredictReport,
    wanted: Guarantee,
    graph: &StepGraph,
    profile: &Profile,
    options: &PredictOptions,
    context: &Context,
) -> Result<(), PredictError> {
    let (q, confidence) = (wanted.q, wanted.confidence);
    let bound = context.phase("guarantee", || {
        guarantee(graph, &profile.model, &profile.recorded_step_s, q, confidence, options)
    })?;
    report.guarantee = Some(bound);
    let (unit, units) = resample_units(&profile.model);
    let why = match unit {
        ResampleUnit::Step => return Ok(()),
        ResampleUnit::Window => "windows of recorded steps differ in their means",
        ResampleUnit::Block => "adjacent recorded steps are correlated",
    };
    let independent = units.last().map_or(0, |u| u + 1);
    report.warnings.push(format!(
        "a guarantee takes recorded steps for independent, but {why}: {} steps count for {independent} \
         to {}",
        report.steps, report.steps
    ));
    Ok(())
}

/// Holds a requirement against the prediction; `None` if its statistic was not predicted.
fn judge(requirement: &Requirement, report: &PredictReport) -> Option<RequirementResult> {
    let estimate: &Estimate = match requirement.statistic {
        Statistic::Quantile(p) => &report.quantiles.iter().find(|q| q.p == p)?.estimate,
        Statistic::Mean => &report.mean,
        Statistic::Sd => &report.sd,
    };
    let interval = estimate.total.unwrap_or(estimate.sampling);
    Some(super::held(requirement, estimate.value, Some((interval.lower, interval.upper))))
}
