//! Logs of step times.

use std::path::{Path, PathBuf};

use prism_io::{LogFormat, Pause, PauseKind, StepLog, read_step_logs};
use prism_run::cross::System;
use prism_run::steps::RunSource;
use prism_run::{Separated, separate};

use crate::args::StepLogArgs;
use crate::context::Context;
use crate::error::{CliError, usage};
use crate::input;

/// Reads all runs of some logs.
pub(crate) fn read(
    paths: &[PathBuf],
    args: &StepLogArgs,
    context: &Context,
) -> Result<Vec<StepLog>, CliError> {
    let options = args.options();
    let mut logs = Vec::new();
    context.phase("read", || {
        for path in paths {
            logs.extend(read_step_logs(path, &options).map_err(CliError::Log)?);
        }
        Ok::<(), CliError>(())
    })?;
    for log in &logs {
        plausible(log, args.cumulative, context)?;
    }
    let mut logs = starts_joined(logs, context);
    for log in &mut logs {
        whole_intervals(log);
    }
    Ok(logs)
}

/// Refuses running totals that are read as times, and times that are read as running totals.
fn plausible(log: &StepLog, cumulative: Option<bool>, context: &Context) -> Result<(), CliError> {
    const FEWEST: usize = 20;
    let (name, t) = (&log.source.name, &log.step_s);
    if log.format != LogFormat::Csv || t.len() < FEWEST {
        return Ok(());
    }
    let falls = log.pauses.iter().filter(|p| p.kind == PauseKind::Block).count();
    if cumulative == Some(true) && falls > (t.len() / 20).max(3) {
        return Err(usage(
            format!("the times of `{name}` fall {falls} times: they are no running total"),
            "leave out `--cumulative`",
        ));
    }
    // Of times with any noise, half would fall.
    let rises = t.windows(2).filter(|w| w[1] > w[0]).count();
    if cumulative.is_none() && rises * 20 >= (t.len() - 1) * 19 {
        return Err(usage(
            format!("the times of `{name}` rise from row to row: they look like a running total"),
            "say `--cumulative` if they are one, `--cumulative=false` if not",
        ));
    }
    let between = |w: &[i64]| w[1].saturating_sub(w[0]);
    let apart = between(&log.step[..2]);
    if apart > 1 && log.averaged_over == 1 && log.step.windows(2).all(|w| between(w) == apart) {
        context.printer.warning(&format!(
            "`{name}` has every {apart}th step: its times are taken for those of single steps"
        ));
    }
    Ok(())
}

/// Starts of one job in one file are one run: steps that were done again count once, the last time.
fn starts_joined(logs: Vec<StepLog>, context: &Context) -> Vec<StepLog> {
    let mut out: Vec<StepLog> = Vec::new();
    for log in logs {
        let again = log.run.as_deref().is_some_and(|r| r.starts_with("start "));
        let first = log.step.first().copied();
        let (Some(last), Some(first), true) = (out.last_mut(), first, again) else {
            out.push(log);
            continue;
        };
        if last.source != log.source || last.averaged_over != log.averaged_over {
            out.push(log);
            continue;
        }
        let kept = last.step.partition_point(|s| *s < first);
        context.printer.warning(&format!(
            "`{}` was started anew at step {first}: {} steps that were done again count once",
            log.source.name,
            last.step.len() - kept
        ));
        join(last, log, kept);
    }
    out
}

/// Puts a later start behind the first `kept` steps of an earlier one.
fn join(last: &mut StepLog, log: StepLog, kept: usize) {
    last.step.truncate(kept);
    last.step_s.truncate(kept);
    last.pauses.retain(|p| p.after <= kept);
    last.pauses.push(Pause { kind: PauseKind::Restart, after: kept, duration_s: None });
    last.pauses.extend(log.pauses.into_iter().map(|p| Pause { after: p.after + kept, ..p }));
    if last.wall_s.is_empty() || log.wall_s.is_empty() {
        last.wall_s.clear();
    } else {
        last.wall_s.truncate(kept);
        last.wall_s.extend(log.wall_s);
    }
    last.step.extend(log.step);
    last.step_s.extend(log.step_s);
}

/// A log of means often begins with step 1 alone: that is no whole interval, and is left out.
fn whole_intervals(log: &mut StepLog) {
    let k = i64::from(log.averaged_over);
    if k < 2 || log.step.len() < 2 || log.step[1].saturating_sub(log.step[0]) >= k {
        return;
    }
    log.step.remove(0);
    log.step_s.remove(0);
    if !log.wall_s.is_empty() {
        log.wall_s.remove(0);
    }
    for p in &mut log.pauses {
        p.after = p.after.saturating_sub(1);
    }
}

/// Where logs came from, each file once.
pub(crate) fn sources(logs: &[StepLog]) -> Vec<RunSource> {
    let mut out: Vec<RunSource> = Vec::new();
    for log in logs {
        let s = &log.source;
        if !out.iter().any(|o| o.name == s.name) {
            out.push(RunSource { name: s.name.clone(), sha256: s.sha256.clone(), bytes: s.bytes });
        }
    }
    out
}

/// The runs that were asked for, of one system.
pub(crate) fn chosen(
    logs: Vec<StepLog>,
    system: Option<&str>,
    runs: &[String],
) -> Result<Vec<StepLog>, CliError> {
    let mut names: Vec<String> = logs.iter().filter_map(|l| l.system.clone()).collect();
    names.sort();
    names.dedup();
    if let Some(wanted) = system {
        if !names.iter().any(|n| n == wanted) {
            return Err(usage(
                format!("no system `{wanted}` in the logs"),
                listed("systems", &names),
            ));
        }
    } else if names.len() > 1 {
        return Err(usage(
            format!("the logs are of {} systems", names.len()),
            format!("choose one with `--system`; {}", listed("systems", &names)),
        ));
    }
    let of_system: Vec<StepLog> =
        logs.into_iter().filter(|l| system.is_none() || l.system.as_deref() == system).collect();
    if runs.is_empty() {
        return Ok(of_system);
    }
    let known: Vec<String> = of_system.iter().filter_map(|l| l.run.clone()).collect();
    if let Some(wrong) = runs.iter().find(|r| !known.contains(r)) {
        return Err(usage(format!("no run `{wrong}` in the logs"), listed("runs", &known)));
    }
    Ok(of_system.into_iter().filter(|l| l.run.as_ref().is_some_and(|r| runs.contains(r))).collect())
}

fn listed(what: &str, names: &[String]) -> String {
    const MOST: usize = 12;
    if names.is_empty() {
        return format!("the logs name no {what}");
    }
    let more = if names.len() > MOST { ", …" } else { "" };
    let shown: Vec<&str> = names.iter().take(MOST).map(String::as_str).collect();
    format!("{what}: {}{more}", shown.join(", "))
}

/// Tells the steps of each log apart. The same log twice is refused: it would count as two runs that agree.
pub(crate) fn separated(logs: &[StepLog]) -> Result<Vec<Separated>, CliError> {
    for (i, log) in logs.iter().enumerate() {
        if let Some(other) = logs[..i].iter().find(|o| o.step_s == log.step_s && o.step == log.step)
        {
            return Err(usage(
                format!("`{}` and `{}` have the same steps", other.source.name, log.source.name),
                "one run given twice would count as two that agree: leave one out",
            ));
        }
    }
    Ok(logs.iter().map(separate).collect::<Result<_, _>>()?)
}

/// The logs by system, in order of their first run; a log that names none belongs to its folder's. Runs that are
/// too short are left out, and said.
pub(crate) fn systems(logs: &[StepLog], context: &Context) -> Vec<System> {
    let mut systems: Vec<System> = Vec::new();
    for log in logs {
        let name = log.system.clone().unwrap_or_else(|| folder(Path::new(&log.source.name)));
        let run = match separate(log) {
            Ok(run) => run,
            Err(e) => {
                context.printer.warning(&format!("left out: {e}"));
                continue;
            }
        };
        match systems.iter_mut().find(|s| s.name == name) {
            Some(system) => system.runs.push(run),
            None => systems.push(System { name, runs: vec![run] }),
        }
    }
    for s in systems.iter().filter(|s| s.runs.len() == 1) {
        context.printer.warning(&format!("`{}` has one run only", s.name));
    }
    systems
}

fn folder(file: &Path) -> String {
    file.parent()
        .and_then(Path::file_name)
        .map_or_else(|| input::name(file), |folder| folder.to_string_lossy().into_owned())
}
