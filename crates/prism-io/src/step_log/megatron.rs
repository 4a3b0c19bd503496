//! Megatron-LM's text.
//!
//! `training_log` prints, every `--log-interval` iterations and on the last rank,
//! ` iteration        10/    1000 | … | elapsed time per iteration (ms): 1234.5 | …`, newer versions with
//! a time stamp before it. The time is the mean over the iterations since the line before.

use super::PauseKind;
use super::line::{Line, LineFormat, integer_after, timestamp};
use super::sink::{Over, Read, Repeats, Sink, Wall};
use crate::error::IoError;
use crate::violation::Rule;

const TIME: &str = "elapsed time per iteration (ms):";

/// What only a starting program prints.
const STARTS: [&str; 7] = [
    "using world size:",
    "initializing torch distributed",
    "setting random seeds to",
    "-- arguments --",
    "loading checkpoint from",
    "successfully loaded checkpoint",
    "[before the start of training step]",
];

/// Reads Megatron-LM's text.
#[derive(Default)]
pub(super) struct Megatron {
    /// The iteration of the last checkpoint whose beginning was printed.
    saving: Option<i64>,
}

/// Whether a line is one of steps.
pub(super) fn tells(text: &str) -> bool {
    text.contains(TIME) && iteration(text).is_some()
}

/// The iteration of a line of steps: `iteration N/ M` before the time.
fn iteration(text: &str) -> Option<i64> {
    let before = &text[..text.find(TIME)?];
    let (step, rest) = integer_after(before, "iteration")?;
    rest.trim_start().starts_with('/').then_some(step)
}

impl LineFormat for Megatron {
    fn line(&mut self, line: &Line<'_>, sink: &mut Sink) -> Result<(), IoError> {
        let text = line.text();
        if text.contains(TIME) {
            return step(line, &text, sink);
        }
        if STARTS.iter().any(|s| text.contains(s)) {
            sink.started();
        }
        if text.contains("validation loss at") {
            sink.pause(PauseKind::Evaluation, None);
        }
        if let Some((at, _)) = integer_after(&text, "saving checkpoint at iteration") {
            self.saving = Some(at);
            sink.pause(PauseKind::Checkpoint, None);
        } else if text.contains("successfully saved checkpoint")
            && integer_after(&text, "iteration").is_none_or(|(at, _)| Some(at) != self.saving)
        {
            // An asynchronous save says so long after training went on.
            sink.pause(PauseKind::Checkpoint, None);
        }
        for (timer, kind) in
            [("save-checkpoint", PauseKind::Checkpoint), ("evaluate", PauseKind::Evaluation)]
        {
            if let Some(seconds) = timed(&text, timer) {
                sink.pause(kind, Some(seconds));
                sink.not_counted(seconds);
            }
        }
        Ok(())
    }
}

fn step(line: &Line<'_>, text: &str, sink: &mut Sink) -> Result<(), IoError> {
    // A line that was cut has no time yet.
    let Some(token) = line.number_after(text, TIME) else {
        if line.whole {
            sink.report.add(Rule::LogLine, line.place(), || "a step without a time".to_owned());
        }
        return Ok(());
    };
    let Some(step) = iteration(text) else {
        sink.report.add(Rule::LogLine, line.place(), || "a time without `iteration N/`".to_owned());
        return Ok(());
    };
    let step_s = sink.positive("elapsed time per iteration (ms)", token, line.place());
    let read = Read {
        step,
        step_s: step_s.map(|ms| ms * 1e-3),
        over: Over::SinceLast,
        wall: timestamp(text).map_or(Wall::Unknown, Wall::At),
        repeats: Repeats::SameTime,
    };
    sink.step(&read, line.place())
}

/// What a timer counted, seconds: `time (ms) | save-checkpoint: 12.3 | …`, or one line each with the
/// shortest and the longest over ranks, `    save-checkpoint ......: (12.1, 12.3)`.
fn timed(text: &str, timer: &str) -> Option<f64> {
    let old = text.contains("time (ms)");
    let at = if old { text.find(&format!("| {timer}:"))? + 2 } else { 0 };
    let rest = text[at..].trim_start().strip_prefix(timer)?;
    let rest = if old { rest } else { rest.trim_start().strip_prefix("..")? };
    let values = rest[rest.find(':')? + 1..].split('|').next()?;
    let longest = values
        .split([',', '(', ')'])
        .filter_map(|v| v.trim().parse::<f64>().ok())
        .filter(|v| v.is_finite() && *v >= 0.0)
        .reduce(f64::max)?;
    Some(longest * 1e-3)
}
