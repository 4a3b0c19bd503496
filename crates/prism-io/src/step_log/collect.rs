//! Events become logs.

use std::collections::BTreeMap;

use super::feed::Feed;
use super::sink::What;
use super::{LogFormat, Pause, StepLog};
use crate::error::IoError;
use crate::op_table::Source;

/// The runs that have steps, in the order in which they begin.
///
/// # Errors
/// [`IoError::Invalid`] if a line broke a rule, [`IoError::Empty`] or [`IoError::NoSteps`] if none has
/// steps.
pub(super) fn logs(feed: Feed, source: &Source) -> Result<Vec<StepLog>, IoError> {
    let format = feed.format().unwrap_or(LogFormat::Csv);
    let sink = feed.sink;
    if !sink.report.is_empty() {
        return Err(IoError::Invalid(Box::new(sink.report)));
    }
    let mut logs: Vec<StepLog> = sink
        .runs
        .into_iter()
        .map(|run| StepLog {
            step: Vec::new(),
            step_s: Vec::new(),
            wall_s: Vec::new(),
            pauses: Vec::new(),
            averaged_over: 1,
            run: run.name,
            system: run.system,
            format,
            source: source.clone(),
        })
        .collect();
    let mut over: Vec<BTreeMap<u32, u64>> = vec![BTreeMap::new(); logs.len()];
    for event in sink.events {
        let log = &mut logs[event.run];
        match event.what {
            What::Pause { kind, duration_s } => {
                log.pauses.push(Pause { kind, after: log.step.len(), duration_s });
            }
            What::Step(s) => {
                log.step.push(s.id);
                log.step_s.push(s.seconds);
                log.wall_s.push(s.wall_s);
                *over[event.run].entry(s.averaged_over).or_default() += 1;
            }
        }
    }
    for (log, over) in logs.iter_mut().zip(&over) {
        // The smaller one where two are equally frequent.
        log.averaged_over = over.iter().rev().max_by_key(|o| o.1).map_or(1, |o| *o.0);
        if log.wall_s.iter().all(|w| w.is_nan()) {
            log.wall_s.clear();
        }
    }
    logs.retain(|log| !log.step.is_empty());
    if logs.is_empty() {
        let file = source.name.clone();
        return Err(match format {
            LogFormat::Csv => IoError::Empty { file, what: "no rows" },
            _ => IoError::NoSteps { file, format },
        });
    }
    name_starts(&mut logs);
    Ok(logs)
}

/// Names the starts of a text log that has several.
fn name_starts(logs: &mut [StepLog]) {
    if logs.len() < 2 || logs[0].format == LogFormat::Csv {
        return;
    }
    for (at, log) in logs.iter_mut().enumerate() {
        log.run = Some(format!("start {}", at + 1));
    }
}

/// What a message calls a run.
pub(super) fn title(log: &StepLog) -> String {
    let name = match (&log.system, &log.run) {
        (None, None) => "without a name".to_owned(),
        (Some(system), None) => system.clone(),
        (None, Some(run)) => run.clone(),
        (Some(system), Some(run)) => format!("{system} run {run}"),
    };
    format!("{name}: {} steps", log.step.len())
}
