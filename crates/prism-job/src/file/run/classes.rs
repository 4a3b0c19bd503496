//! Kinds of failure and slow-down: a preset's, and those of the file.

use super::super::quantity::Quantity;
use super::super::resolve::Resolver;
use super::raw::{RawFailureClass, RawFailures, RawSlow, RawSlowClass};
use crate::run::{
    Domain, FailureClass, FailureRate, Failures, Onset, Severity, Slow, SlowClass, SlowKind,
    failure_preset, failure_presets, slow_preset, slow_presets,
};

/// Where each class stands in the file; `None` for a preset's.
pub(super) type Origins = Vec<Option<usize>>;

/// A rule's key as the file has it: rules number all classes, the file only its own.
pub(super) fn in_file(key: &str, section: &str, origins: &Origins) -> String {
    let parts =
        key.strip_prefix(&format!("{section}.class.")).map(|rest| match rest.split_once('.') {
            Some((index, rest)) => (index, format!(".{rest}")),
            None => (rest, String::new()),
        });
    let Some((index, rest)) = parts else { return key.to_owned() };
    match index.parse::<usize>().ok().and_then(|i| origins.get(i)) {
        Some(Some(own)) => format!("{section}.class.{own}{rest}"),
        _ => format!("{section}.preset"),
    }
}

/// Adds the file's classes to a preset's; one of the same name takes the other's place.
fn merge<T>(classes: &mut Vec<T>, own: Vec<T>, name: impl Fn(&T) -> &str) -> Origins {
    let of_preset = classes.len();
    let mut origins: Origins = vec![None; of_preset];
    for (i, class) in own.into_iter().enumerate() {
        let at = classes[..of_preset].iter().position(|c| name(c) == name(&class));
        if let Some(at) = at.filter(|&at| origins[at].is_none()) {
            classes[at] = class;
            origins[at] = Some(i);
        } else {
            classes.push(class);
            origins.push(Some(i));
        }
    }
    origins
}

pub(super) fn failures(r: &mut Resolver, raw: Option<&RawFailures>) -> (Failures, Origins) {
    let Some(raw) = raw else { return (Failures::default(), Vec::new()) };
    let known: Vec<&str> = failure_presets().map(|p| p.name).collect();
    let key = "run.failures.preset";
    let preset = r.preset(raw.preset.as_deref(), key, failure_preset, &known);
    let mut failures = preset.unwrap_or_default();
    failures.rates = raw.rates.unwrap_or_default();
    let own = raw.class.iter().flatten().enumerate();
    let own = own.map(|(i, c)| failure(r, c, &format!("run.failures.class.{i}"))).collect();
    let origins = merge(&mut failures.classes, own, |c| &c.name);
    (failures, origins)
}

/// Exactly one of several keys; their names.
fn only(r: &mut Resolver, key: &str, given: &[(bool, &str)], hint: &str) -> bool {
    let names: Vec<String> = given.iter().filter(|g| g.0).map(|g| format!("`{}`", g.1)).collect();
    match names.len() {
        1 => return true,
        0 => {
            let all: Vec<String> = given.iter().map(|g| format!("`{}`", g.1)).collect();
            let message = format!("`{key}` has none of {}", all.join(", "));
            r.wrong(key, "missing", message, Some(hint.to_owned()));
        }
        _ => {
            let message = format!("`{key}` has {}", names.join(" and "));
            r.wrong(key, "conflict", message, Some("keep one of them".to_owned()));
        }
    }
    false
}

fn failure(r: &mut Resolver, raw: &RawFailureClass, key: &str) -> FailureClass {
    let domain = raw.domain.unwrap_or(Domain::Node);
    let given = [
        (raw.rate_per_1000_node_days.is_some(), "rate_per_1000_node_days"),
        (raw.mtbf.is_some(), "mtbf"),
        (raw.count.is_some(), "count"),
    ];
    let hint =
        "write `mtbf = \"200d\"`, of one unit of the domain, or `count`, `gpus` and `duration`";
    let rate = if !only(r, key, &given, hint) {
        FailureRate::PerThousandNodeDays(0.0)
    } else if let Some(rate) = raw.rate_per_1000_node_days {
        FailureRate::PerThousandNodeDays(rate)
    } else if let Some(mtbf) = raw.mtbf {
        FailureRate::MeanTimeBetween(mtbf.value())
    } else {
        FailureRate::Counted {
            count: raw.count.unwrap_or(0),
            gpus: r.need(raw.gpus, &format!("{key}.gpus"), "GPUs on which it was counted"),
            duration_s: r.need(
                raw.duration.map(Quantity::value),
                &format!("{key}.duration"),
                "such as \"54d\"",
            ),
        }
    };
    if raw.count.is_none() {
        for (given, name) in [(raw.gpus.is_some(), "gpus"), (raw.duration.is_some(), "duration")] {
            if given {
                let message = format!("`{key}.{name}` has a meaning with `count` only");
                r.wrong(&format!("{key}.{name}"), "conflict", message, None);
            }
        }
    }
    FailureClass {
        name: r.need(raw.name.clone(), &format!("{key}.name"), "a name for reports"),
        domain,
        rate,
        detection_s: raw.detection.map(Quantity::value),
        restart_s: raw.restart.map(Quantity::value),
        replaces: raw.replaces.unwrap_or(domain != Domain::Job),
        repair_s: raw.repair.map(Quantity::value),
    }
}

pub(super) fn slow(r: &mut Resolver, raw: Option<&RawSlow>, nodes: u64) -> (Slow, Origins) {
    let Some(raw) = raw else { return (Slow::default(), Vec::new()) };
    let known: Vec<&str> = slow_presets().map(|p| p.name).collect();
    let find = |name: &str| slow_preset(name, nodes);
    let preset = r.preset(raw.preset.as_deref(), "run.slow.preset", find, &known);
    let mut slow = preset.unwrap_or_default();
    slow.slowest = raw.slowest.unwrap_or(true);
    let own = raw.class.iter().flatten().enumerate();
    let own = own.map(|(i, c)| slow_class(r, c, &format!("run.slow.class.{i}"))).collect();
    let origins = merge(&mut slow.classes, own, |c| &c.name);
    (slow, origins)
}

fn slow_class(r: &mut Resolver, raw: &RawSlowClass, key: &str) -> SlowClass {
    let given = [
        (raw.per_unit_day.is_some(), "per_unit_day"),
        (raw.per_job_hour.is_some(), "per_job_hour"),
        (raw.share.is_some(), "share"),
    ];
    let hint = "write `per_job_hour = 0.1`, episodes of the job in an hour";
    let onset = if !only(r, key, &given, hint) {
        Onset::Share(0.0)
    } else if let Some(rate) = raw.per_unit_day {
        Onset::PerUnitDay(rate)
    } else if let Some(rate) = raw.per_job_hour {
        Onset::PerJobHour(rate)
    } else {
        Onset::Share(raw.share.unwrap_or(0.0))
    };
    let lasting = matches!(onset, Onset::Share(_));
    let given = [(raw.factor.is_some(), "factor"), (raw.factors.is_some(), "factors")];
    let severity = if !only(r, key, &given, "write `factor = 1.2`, a fifth slower") {
        Severity::LogNormal { median: 1.0, sigma: 0.0 }
    } else if let Some(median) = raw.factor {
        Severity::LogNormal { median, sigma: raw.factor_sigma.unwrap_or(0.0) }
    } else {
        Severity::Values(raw.factors.clone().unwrap_or_default())
    };
    let mean = raw.mean.map(Quantity::value);
    let mean_s = match mean {
        None if lasting => 0.0,
        mean => r.need(mean, &format!("{key}.mean"), "such as \"24min\""),
    };
    SlowClass {
        name: r.need(raw.name.clone(), &format!("{key}.name"), "a name for reports"),
        kind: raw.kind.unwrap_or(SlowKind::Compute),
        domain: raw.domain.unwrap_or(Domain::Node),
        onset,
        exposed: raw.exposed.unwrap_or(1.0),
        mean_s,
        sigma: raw.sigma.unwrap_or(if lasting { 0.0 } else { 1.0 }),
        severity,
        severity_per_run: raw.factor_per_run.unwrap_or(false),
    }
}
