//! Logs of step times.

use std::path::{Path, PathBuf};

use prism_io::{StepLog, read_step_logs};
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
    context.phase("read", || {
        let mut logs = Vec::new();
        for path in paths {
            logs.extend(read_step_logs(path, &options)?);
        }
        Ok(logs)
    })
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

/// Tells the steps of each log apart.
pub(crate) fn separated(logs: &[StepLog]) -> Result<Vec<Separated>, CliError> {
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
