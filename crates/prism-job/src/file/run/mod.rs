//! The section `[run]`.

mod classes;
mod raw;
mod write;

pub(crate) use raw::RawRun;
pub(super) use write::run as write_run;

use super::document::Document;
use super::quantity::{Quantity, Span};
use super::resolve::Resolver;
use super::violation::{JobFileError, Violations};
use super::{ReadOptions, run::raw::RawDeadline};
use crate::run::{
    Checkpoint, Diurnal, Elastic, Evaluation, Every, InMemory, Machines, Maintenance, Policy,
    Recovery, RunPlan,
};

/// What a run takes where its section does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RunDefaults {
    /// GPUs.
    pub gpus: Option<u64>,
    /// GPUs of a node.
    pub gpus_per_node: Option<u32>,
    /// Tokens of a step.
    pub tokens_per_step: Option<f64>,
}

/// Reads the section `[run]` of a file that may hold nothing else; other sections are held against the
/// format and otherwise left alone. `--set run.key=value` works as for a job.
///
/// ```
/// use prism_job::{ReadOptions, RunDefaults, parse_run_plan};
///
/// let text = r#"
/// [run]
/// steps = 466_560
/// gpus = 16384
/// start = 2026-03-01T00:00:00Z
/// [run.checkpoint]
/// interval = "30min"
/// blocking = "3s"
/// write = "2min"
/// load = "1min"
/// [run.failures]
/// preset = "llama3-405b"
/// [run.recovery]
/// restart = "10min"
/// "#;
/// let plan = parse_run_plan(text, &ReadOptions::default(), &RunDefaults::default()).unwrap();
/// let mtbf_s = 1.0 / plan.failures.job_rate(&plan.machines);
/// assert!((mtbf_s / 3600.0 - 3.09).abs() < 0.01);
/// ```
///
/// # Errors
/// [`JobFileError::Invalid`] with every violation found.
pub fn parse_run_plan(
    text: &str,
    options: &ReadOptions,
    defaults: &RunDefaults,
) -> Result<RunPlan, JobFileError> {
    let refused = |mut violations: Vec<super::Violation>| {
        violations.sort_by_key(|v| (v.span.is_none(), v.span.as_ref().map(|s| s.start)));
        JobFileError::Invalid(Box::new(Violations {
            name: options.name.clone(),
            text: text.to_owned(),
            violations,
            nearest_plans: Vec::new(),
            says_job: false,
        }))
    };
    let mut document = Document::new(text, &options.set);
    if !document.violations.is_empty() {
        return Err(refused(document.violations));
    }
    let raw = document.raw();
    let mut r = Resolver { document };
    let Some(run) = &raw.run else {
        let hint = "write `[run]` with `steps` and `gpus`".to_owned();
        r.wrong("run", "missing", "the section `run` is missing".to_owned(), Some(hint));
        return Err(refused(r.document.violations));
    };
    let plan = resolve(&mut r, run, defaults);
    if r.document.violations.is_empty() { Ok(plan) } else { Err(refused(r.document.violations)) }
}

/// The plan; all that is wrong with it is recorded.
pub(super) fn resolve(r: &mut Resolver, raw: &RawRun, defaults: &RunDefaults) -> RunPlan {
    let machines = machines(r, raw, defaults);
    let deadline_s = deadline(r, raw);
    let (failures, origins) = classes::failures(r, raw.failures.as_ref());
    let (slow, slow_origins) = classes::slow(r, raw.slow.as_ref(), machines.nodes());
    let plan = RunPlan {
        steps: steps(r, raw, defaults),
        tokens_per_step: defaults.tokens_per_step,
        machines,
        start: raw.start.map(|s| s.0),
        deadline_s,
        gpu_hour_usd: raw.gpu_hour_usd,
        checkpoint: checkpoint(r, raw),
        evaluation: raw.evaluation.as_ref().map(|e| Evaluation {
            every_steps: r.need(e.every_steps, "run.evaluation.every_steps", "steps"),
            duration_s: need_span(r, e.duration, "run.evaluation.duration", "5min"),
        }),
        recovery: recovery(r, raw, !failures.classes.is_empty()),
        failures,
        slow,
        diurnal: raw.diurnal.as_ref().map(|d| Diurnal {
            amplitude: r.need(d.amplitude, "run.diurnal.amplitude", "0.01 is ±1 %"),
            period_s: d.period.map_or(86_400.0, Quantity::value),
            peak_s: span(d.peak),
        }),
        maintenance: raw.maintenance.as_ref().map(|m| Maintenance {
            every_s: need_span(r, m.every, "run.maintenance.every", "14d"),
            duration_s: need_span(r, m.duration, "run.maintenance.duration", "4h"),
        }),
    };
    for rule in plan.check() {
        let key = classes::in_file(&rule.key, "run.failures", &origins);
        let key = classes::in_file(&key, "run.slow", &slow_origins);
        let message = rule.message.replace(&rule.key, &key);
        r.wrong(&key, rule.rule, message, rule.hint);
    }
    plan
}

fn span(value: Option<Span>) -> f64 {
    value.map_or(0.0, Quantity::value)
}

fn need_span(r: &mut Resolver, value: Option<Span>, key: &str, example: &str) -> f64 {
    r.need(value.map(Quantity::value), key, &format!("such as \"{example}\""))
}

fn machines(r: &mut Resolver, raw: &RawRun, defaults: &RunDefaults) -> Machines {
    if let (Some(gpus), Some(plan)) = (raw.gpus, defaults.gpus)
        && gpus != plan
    {
        let message = format!("`run.gpus` is {gpus}, and the plan takes {plan}");
        let hint = Some("leave it out, or change the plan".to_owned());
        r.wrong("run.gpus", "run-gpus", message, hint);
    }
    let nodes_per_rack = raw.nodes_per_rack.unwrap_or(2);
    Machines {
        gpus: r.need(raw.gpus.or(defaults.gpus), "run.gpus", "GPUs of the job"),
        gpus_per_node: raw.gpus_per_node.or(defaults.gpus_per_node).unwrap_or(8),
        nodes_per_rack,
        nodes_per_switch: raw.nodes_per_switch.unwrap_or(nodes_per_rack),
    }
}

fn steps(r: &mut Resolver, raw: &RawRun, defaults: &RunDefaults) -> u64 {
    match (raw.steps, raw.tokens, defaults.tokens_per_step) {
        (Some(_), Some(_), _) => {
            let hint = Some("keep one of them".to_owned());
            r.wrong("run.tokens", "steps-tokens", "both `steps` and `tokens`".to_owned(), hint);
            1
        }
        (None, Some(tokens), Some(per_step)) => {
            let steps = (tokens / per_step).ceil();
            if !(steps.is_finite() && steps >= 1.0) {
                let message = format!("`run.tokens` must be above 0, not {tokens}");
                r.wrong("run.tokens", "positive", message, None);
                return 1;
            }
            steps as u64
        }
        (None, Some(_), None) => {
            let message = "`run.tokens`: the tokens of a step are not known here".to_owned();
            r.wrong("run.tokens", "tokens", message, Some("write `steps = ...`".to_owned()));
            1
        }
        (steps, None, _) => r.need(steps, "run.steps", "optimizer steps"),
    }
}

fn deadline(r: &mut Resolver, raw: &RawRun) -> Option<f64> {
    match (raw.deadline?, raw.start) {
        (RawDeadline::After(span), _) => Some(span.value()),
        (RawDeadline::At(end), Some(start)) if end > start.0 => Some((end.0 - start.0.0) as f64),
        (RawDeadline::At(end), Some(start)) => {
            let message = format!("the deadline {end} is not after the start {}", start.0);
            r.wrong("run.deadline", "deadline", message, None);
            None
        }
        (RawDeadline::At(_), None) => {
            let hint = Some("write `start = ...`, or a duration such as \"60d\"".to_owned());
            let message = "a date as deadline, and no start".to_owned();
            r.wrong("run.deadline", "deadline", message, hint);
            None
        }
    }
}

fn checkpoint(r: &mut Resolver, raw: &RawRun) -> Option<Checkpoint> {
    let c = raw.checkpoint.as_ref()?;
    let every = match (c.interval, c.interval_steps) {
        (Some(_), Some(_)) => {
            let message = "both `interval` and `interval_steps`".to_owned();
            let hint = Some("keep one of them".to_owned());
            r.wrong("run.checkpoint.interval_steps", "interval", message, hint);
            Every::Steps(1)
        }
        (None, Some(steps)) => Every::Steps(steps),
        (interval, None) => Every::Time(need_span(r, interval, "run.checkpoint.interval", "30min")),
    };
    Some(Checkpoint {
        every,
        blocking_s: span(c.blocking),
        write_s: span(c.write),
        load_s: span(c.load),
    })
}

fn recovery(r: &mut Resolver, raw: &RawRun, fails: bool) -> Recovery {
    let c = raw.recovery.clone().unwrap_or_default();
    let section = "run.recovery";
    let restart_s = match c.restart {
        None if fails => need_span(r, None, &format!("{section}.restart"), "10min"),
        restart => span(restart),
    };
    let elastic = c.elastic.map(|e| Elastic {
        replicas: r.need(e.replicas, &format!("{section}.elastic.replicas"), "replicas"),
        shrink_s: need_span(r, e.shrink, &format!("{section}.elastic.shrink"), "1min"),
        regrow_s: need_span(r, e.regrow, &format!("{section}.elastic.regrow"), "1min"),
        keep_batch: e.keep_batch.unwrap_or(true),
    });
    let in_memory = c.in_memory.map(|m| InMemory {
        interval_s: need_span(r, m.interval, &format!("{section}.in_memory.interval"), "1min"),
        blocking_s: span(m.blocking),
        load_s: need_span(r, m.load, &format!("{section}.in_memory.load"), "10s"),
        replicated: m.replicated.unwrap_or(true),
    });
    Recovery {
        policy: c.policy.unwrap_or(Policy::Restart),
        detection_s: span(c.detection),
        restart_s,
        spares: c.spares,
        repair_s: c.repair.map(Quantity::value),
        standby_swap_s: c.standby_swap.map(Quantity::value),
        elastic,
        in_memory,
    }
}
