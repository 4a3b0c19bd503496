//! `prism run`.

use std::path::{Path, PathBuf};

use prism_io::sha256_hex;
use prism_job::run::{Every, FailureClass, Policy, RunPlan};
use prism_job::{JobFileError, ReadOptions, Violation, parse_run_plan};
use prism_report::{
    BoundResult, DoneAt, RUN_SCHEMA, RunOutput, RunSetting, ThroughputAbove, TotalHistogram,
    json_text,
};
use prism_run::optimise::best_interval;
use prism_run::policies::{compare, possible};
use prism_run::sensitivity::sensitivity;
use prism_run::simulate::{Options, simulate};
use prism_run::spares::spares;
use prism_run::steps::{Paced, RunSource};
use prism_run::summary::{Estimate, Summary, summarise, throughput_above};
use prism_run::{RunError, Runs, Shape, formula};

use crate::args::{AnalysisArg, Counted, Rate, Relation, RunArgs, RunBound, RunStatistic, SetArgs};
use crate::context::Context;
use crate::error::{CliError, Outcome, usage};
use crate::input;
use crate::steps::{self, StepsFrom};

fn refused(source: RunError) -> CliError {
    CliError::Run { source }
}

/// Predicts a whole run.
pub(crate) fn run(args: &RunArgs, context: &Context) -> Result<Outcome, CliError> {
    let inputs: Vec<&Path> = args.input.iter().chain(&args.plan).map(PathBuf::as_path).collect();
    input::not_an_input(args.output.as_deref(), &inputs)?;
    let mut from = match (&args.input, args.step_time) {
        (Some(path), _) => steps::from_file(path, &job_keys(args), context)?,
        (None, Some(step_s)) => steps::of_time(step_s)?,
        (None, None) => {
            return Err(usage("nothing says how long steps take", "give `--step-time`"));
        }
    };
    if from.job.is_none()
        && let Some((key, _)) = args.set.set.iter().find(|s| !s.0.starts_with("run."))
    {
        return Err(usage(
            format!("`--set {key}=…` is about a job file, and none is given"),
            "keys of the run begin with `run.`",
        ));
    }
    let (plan, plan_source) = plan(args, &from)?;
    let shape = shape(&plan);
    let mut warnings = std::mem::take(&mut from.warnings);
    warnings.extend(from.model.warnings.iter().cloned());
    warnings.extend(from.model.extrapolations(&shape));
    warnings.extend(remarks(&from, &plan));
    let paced = from.model.paced(&shape)?;
    let options = Options { runs: args.runs, seed: context.seed, ..Options::default() };
    let runs = context.phase("simulate", || simulate(&paced, &plan, &options)).map_err(refused)?;
    let mut quantiles = args.quantiles.clone();
    for bound in &args.require {
        if let RunStatistic::Quantile(p) = bound.statistic
            && !quantiles.contains(&p)
        {
            quantiles.push(p);
        }
    }
    quantiles.sort_by(f64::total_cmp);
    let summary =
        summarise(&runs, &quantiles, args.confidence, plan.deadline_s).map_err(refused)?;
    if summary.unfinished > 0 {
        warnings.push(format!(
            "{} of {} runs were given up ({} times their time without stops, or 1,000 failures without getting a step \
             further): what is said of totals, costs and causes are lower bounds",
            summary.unfinished, summary.runs, runs.horizon
        ));
    }
    let mut output = RunOutput {
        schema: RUN_SCHEMA.to_owned(),
        sources: from.source.iter().cloned().chain(plan_source).collect(),
        set: args.replaced().iter().map(|(k, v)| format!("{k}={v}")).collect(),
        seed: context.seed,
        setting: setting(&from, &plan)?,
        done_at: done_at(&summary, &plan),
        histogram: TotalHistogram::of(&sorted(&runs)),
        throughput: throughput(args, &plan, &runs)?,
        interval: None,
        spares: None,
        sensitivity: None,
        policies: Vec::new(),
        analysis_runs: args.analysis_runs,
        requirements: Vec::new(),
        summary,
        warnings,
    };
    analyse(args, &paced, &plan, context, &mut output)?;
    output.requirements =
        args.require.iter().map(|b| judge(b, &output.summary)).collect::<Result<_, _>>()?;
    let mut document = output.document();
    document.hint = hint(args, &plan);
    let file = args.output.as_deref();
    context.deliver(file, &document, || Ok(json_text(&output)?), || Ok(output.csv()?))?;
    context.asides(&document);
    Ok(if output.all_met() { Outcome::Yes } else { Outcome::No })
}

/// Keys of the job itself among those replaced; those of the run are the plan's.
fn job_keys(args: &RunArgs) -> SetArgs {
    let of_job = |(key, _): &&(String, String)| !key.starts_with("run.");
    SetArgs { set: args.set.set.iter().filter(of_job).cloned().collect() }
}

/// The plan: of `--plan`, of the job file, or of the flags alone.
fn plan(args: &RunArgs, from: &StepsFrom) -> Result<(RunPlan, Option<RunSource>), CliError> {
    let replaced = args.replaced();
    let twice = (1..replaced.len()).find(|&i| replaced[..i].iter().any(|o| o.0 == replaced[i].0));
    if let Some(i) = twice {
        let key = &replaced[i].0;
        return Err(usage(format!("`{key}` is given twice"), "by its flag or by `--set`, once"));
    }
    let set: Vec<(String, String)> =
        replaced.into_iter().filter(|(key, _)| key.starts_with("run.")).collect();
    let (name, folder, text, source) = match (&args.plan, &from.job) {
        (Some(path), _) => {
            let text = input::text(path)?;
            let name = input::name(path);
            if !input::is_job_file(path) && !text.contains("[run") {
                return Err(usage(
                    format!("`{name}` has no section `[run]`"),
                    "a plan is TOML; `prism schema job` has its keys, examples/run.toml is a start",
                ));
            }
            let (sha256, bytes) = (sha256_hex(text.as_bytes()), text.len() as u64);
            let folder = path.parent().map(Path::to_owned).unwrap_or_default();
            let source = Some(RunSource { name: name.clone(), sha256, bytes });
            (name, folder, text, source)
        }
        (None, Some((given, _))) if given.text.contains("[run") || set.is_empty() => {
            let folder = given.path.parent().map(Path::to_owned).unwrap_or_default();
            (input::name(&given.path), folder, given.text.clone(), None)
        }
        _ => ("the flags".to_owned(), PathBuf::new(), BARE.to_owned(), None),
    };
    let bare = text == BARE;
    let options = ReadOptions { name, folder, set };
    let plan = parse_run_plan(&text, &options, &from.defaults()).map_err(|e| match e {
        JobFileError::Invalid(all) if bare => by_flags(&all.violations),
        other => other.into(),
    })?;
    Ok((plan, source))
}

/// A section that the flags fill.
const BARE: &str = "[run]\n";

/// What is wrong with a plan that no file gave: which flags would mend it.
fn by_flags(violations: &[Violation]) -> CliError {
    let flag = |v: &Violation| match v.key.as_str() {
        "run.steps" => "--steps N".to_owned(),
        "run.gpus" => "--gpus N".to_owned(),
        "run.failures.preset" => "--failures PRESET".to_owned(),
        "run.checkpoint" | "run.checkpoint.interval" => "--checkpoint-interval 30min".to_owned(),
        "run.recovery.restart" | "run.recovery" => "--set run.recovery.restart=10min".to_owned(),
        key => format!("--set {key}=…"),
    };
    let messages: Vec<&str> = violations.iter().map(|v| v.message.as_str()).collect();
    let mut flags: Vec<String> = violations.iter().map(flag).collect();
    flags.dedup();
    usage(
        messages.join("; "),
        format!("give {}, or a file with a section `[run]` as `--plan`", flags.join(" ")),
    )
}

/// The run's steps and regular pauses, for the law of its steps.
fn shape(plan: &RunPlan) -> Shape {
    Shape { steps: plan.steps, ..Shape::default() }
}

fn sorted(runs: &Runs) -> Vec<f64> {
    prism_stats::quantile::sorted(&runs.totals_s())
}

/// What the plan leaves out that the logs show.
fn remarks(from: &StepsFrom, plan: &RunPlan) -> Vec<String> {
    let e = &from.model.evidence;
    let mean = |v: &[f64]| v.iter().sum::<f64>() / v.len().max(1) as f64;
    let mut out = Vec::new();
    if plan.evaluation.is_none() && (e.after_evaluation.is_some() || !e.evaluation_s.is_empty()) {
        let time = if e.evaluation_s.is_empty() {
            String::new()
        } else {
            format!(" ({:.1} s on average)", mean(&e.evaluation_s))
        };
        out.push(format!(
            "the logs have evaluations{time}, the plan has none: write `[run.evaluation]`"
        ));
    }
    if plan.checkpoint.is_none() && !plan.failures.classes.is_empty() {
        out.push(
            "the plan has failures and no checkpoints: each failure loses all work".to_owned(),
        );
    }
    if plan.failures.classes.is_empty() {
        out.push(
            "the plan has no failures: name a preset or classes in `[run.failures]`".to_owned(),
        );
    }
    out
}

fn setting(from: &StepsFrom, plan: &RunPlan) -> Result<RunSetting, CliError> {
    let rate = plan.failures.job_rate(&plan.machines);
    let (formula_ettr, formula_load) = closed_form(from, plan, rate);
    Ok(RunSetting {
        steps: plan.steps,
        gpus: plan.machines.gpus,
        nodes: plan.machines.nodes(),
        core_s: from.model.core_s()? * (1.0 + from.model.mean_profile(&shape(plan)).0),
        level_s: [from.model.level_quantile_s(0.05)?, from.model.level_quantile_s(0.95)?],
        steps_from: from.source.as_ref().map_or("--step-time".to_owned(), |s| s.name.clone()),
        mtbf_s: (rate > 0.0).then(|| 1.0 / rate),
        policy: plan.recovery.policy.to_string(),
        formula_ettr,
        formula_load,
        start: plan.start.map(|s| s.to_string()),
    })
}

/// The closed form where a run restarts from checkpoints for which it stops.
fn closed_form(from: &StepsFrom, plan: &RunPlan, rate: f64) -> (Option<f64>, Option<f64>) {
    let Some(checkpoint) = plan.checkpoint.filter(|_| rate > 0.0) else { return (None, None) };
    if plan.recovery.policy != Policy::Restart {
        return (None, None);
    }
    let interval_s = match checkpoint.every {
        Every::Time(t) => t,
        Every::Steps(n) => from.model.core_s().map_or(f64::NAN, |s| s * n as f64),
    };
    // A write under way is lost: work is lost back to half an interval and the write before a failure.
    let restart_s = plan.recovery.detection_s
        + plan.recovery.restart_s
        + checkpoint.load_s
        + checkpoint.write_s;
    let ettr = formula::expected_ettr(1.0, rate, restart_s, checkpoint.blocking_s, interval_s);
    (ettr.ok(), Some(rate * (restart_s + interval_s / 2.0)).filter(|l| l.is_finite()))
}

fn done_at(summary: &Summary, plan: &RunPlan) -> Vec<DoneAt> {
    let Some(start) = plan.start else { return Vec::new() };
    let quantiles = summary.total_s.quantiles.iter();
    quantiles.map(|q| DoneAt { p: q.p, at: start.after(q.value).to_string() }).collect()
}

fn throughput(
    args: &RunArgs,
    plan: &RunPlan,
    runs: &Runs,
) -> Result<Vec<ThroughputAbove>, CliError> {
    let one = |rate: &Rate| {
        let per_step = match (rate.of, plan.tokens_per_step) {
            (Counted::Steps, _) => 1.0,
            (Counted::Tokens, Some(tokens)) => tokens,
            (Counted::Tokens, None) => {
                return Err(usage(
                    format!("`{}` needs the tokens of a step, and nothing says them", rate.text),
                    "give the job file as the input, or the rate in steps",
                ));
            }
        };
        let steps_per_s = rate.per_s / per_step;
        let probability = throughput_above(runs, steps_per_s, args.confidence).map_err(refused)?;
        Ok(ThroughputAbove { rate: rate.text.clone(), steps_per_s, probability })
    };
    args.throughput_above.iter().map(one).collect()
}

/// Analyses that were asked for; with `all`, those that the plan has what it takes for.
fn analyse(
    args: &RunArgs,
    paced: &Paced,
    plan: &RunPlan,
    context: &Context,
    output: &mut RunOutput,
) -> Result<(), CliError> {
    let all = args.analyse.contains(&AnalysisArg::All);
    let options = Options { runs: args.analysis_runs, seed: context.seed, ..Options::default() };
    let mut left_out = Vec::new();
    let mut wanted = |what: AnalysisArg, lacks: Option<&'static str>| {
        let asked = args.analyse.contains(&what);
        if let Some(lacks) = lacks.filter(|_| all && !asked) {
            left_out.push(lacks);
            return false;
        }
        asked || all
    };
    let rate = plan.failures.job_rate(&plan.machines);
    let none = rate <= 0.0;
    let repaired = |c: &FailureClass| {
        c.replaces && c.repair_s.or(plan.recovery.repair_s).is_some_and(|t| t > 0.0)
    };
    let repair = !plan.failures.classes.iter().any(repaired);
    let lacks = |yes: bool, why| yes.then_some(why);
    let no_interval =
        lacks(none || plan.checkpoint.is_none(), "interval (no failures or checkpoints)");
    if wanted(AnalysisArg::Interval, no_interval) {
        let best = context
            .phase("checkpoint interval", || best_interval(paced, plan, &options, args.confidence));
        output.interval = Some(best.map_err(refused)?);
    }
    if wanted(
        AnalysisArg::Spares,
        lacks(none || repair, "spares (no failures that take nodes away for repair)"),
    ) {
        let found = context.phase("spares", || {
            let needed =
                spares(paced, plan, &options, args.availability, &[], args.confidence)?.needed;
            let mut numbers = vec![0, needed / 2, needed.saturating_sub(1), needed, needed + 2];
            numbers.sort_unstable();
            numbers.dedup();
            spares(paced, plan, &options, args.availability, &numbers, args.confidence)
        });
        output.spares = Some(found.map_err(refused)?);
    }
    if wanted(AnalysisArg::Sensitivity, lacks(none, "sensitivity (no failures)")) {
        let found =
            context.phase("sensitivity", || sensitivity(paced, plan, &options, args.confidence));
        output.sensitivity = Some(found.map_err(refused)?);
    }
    let policies = possible(plan);
    let alone = "policies (the plan has what it takes for a restart only)";
    if wanted(AnalysisArg::Policies, lacks(policies.len() < 2, alone)) {
        let found = context
            .phase("policies", || compare(paced, plan, &policies, &options, args.confidence));
        output.policies = found.map_err(refused)?;
    }
    if !left_out.is_empty() {
        output.warnings.push(format!("not looked into: {}", left_out.join(", ")));
    }
    Ok(())
}

/// Holds a bound against the simulated runs.
fn judge(bound: &RunBound, summary: &Summary) -> Result<BoundResult, CliError> {
    let of_mean = |e: &Estimate| (e.value, Some(e.lower), Some(e.upper));
    let (value, lower, upper) = match bound.statistic {
        RunStatistic::Mean => of_mean(&summary.total_s.mean),
        RunStatistic::Ettr => of_mean(&summary.ettr.mean),
        RunStatistic::Goodput => of_mean(&summary.goodput.mean),
        RunStatistic::Done => match &summary.done_by {
            Some(done) => of_mean(&done.probability),
            None => {
                return Err(usage(
                    format!("`{}` needs a deadline", bound.text),
                    "give `--deadline`, or `run.deadline`",
                ));
            }
        },
        RunStatistic::Quantile(p) => {
            let found = summary.total_s.quantiles.iter().find(|q| q.p == p);
            found.map_or((f64::NAN, None, None), |q| (q.value, q.lower, q.upper))
        }
    };
    let limit = bound.limit;
    let of_time = matches!(bound.statistic, RunStatistic::Mean | RunStatistic::Quantile(_));
    let below = matches!(bound.relation, Relation::Less | Relation::LessOrEqual);
    if summary.unfinished > 0 && of_time {
        // The true value is at least this one: nothing from above can be said to hold, nor denied from below.
        let censored = match bound.statistic {
            RunStatistic::Quantile(p) => {
                summary.total_s.quantiles.iter().any(|q| q.p == p && q.at_least)
            }
            _ => true,
        };
        if censored {
            let beyond = value >= limit;
            return Ok(BoundResult {
                bound: bound.text.clone(),
                value,
                limit,
                met: !below && beyond,
                clear: beyond,
                at_least: true,
            });
        }
    }
    let inside = lower.is_none_or(|l| l <= limit) && upper.is_none_or(|u| limit <= u);
    Ok(BoundResult {
        bound: bound.text.clone(),
        value,
        limit,
        met: bound.relation.holds(value, limit),
        clear: !inside,
        at_least: false,
    })
}

fn hint(args: &RunArgs, plan: &RunPlan) -> Option<String> {
    let given = args.input.as_deref().map_or("--step-time …".to_owned(), input::name);
    (args.analyse.is_empty() && !plan.failures.classes.is_empty())
        .then(|| format!("prism run {given} --analyse all"))
}
