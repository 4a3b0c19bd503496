//! NeMo's text.
//!
//! NeMo 2 prints a line per logged step, `Training epoch 0, iteration 9/99 | … | global_step: 9 | … |
//! train_step_timing in s: 44.07 | …`. NeMo 1 and Lightning draw a progress bar, `Epoch 0: :   1%|… |
//! 10/1000 [… , global_step=9.000, …, train_step_timing in s=11.2]`, one update per carriage return. A bar
//! is drawn several times for one step, first with the values of the step before: the last one counts. It
//! rounds `global_step` (`1.02e+4`), so that large steps are numbered by the bar's own count. The time is
//! that of the step alone, also where not every step is logged.

use super::PauseKind;
use super::line::{Line, LineFormat, integer, integer_after, timestamp};
use super::sink::{Over, Read, Repeats, Sink, Wall};
use crate::error::IoError;
use crate::violation::{Place, Rule};

const TIME: &str = "train_step_timing in s";

/// What only a starting program prints.
const STARTS: [&str; 5] = [
    "GPU available: True",
    "initializing torch distributed",
    "Restoring states from the checkpoint",
    "Sanity Checking",
    "Experiments will be logged at",
];

/// Reads NeMo's text.
#[derive(Default)]
pub(super) struct Nemo {
    /// A bar's step, until it shows another.
    shown: Option<Shown>,
    /// How far `global_step` is ahead of the bar's count.
    ahead: Option<i64>,
}

/// What a bar shows.
struct Shown {
    step: i64,
    step_s: Option<f64>,
    wall: Wall,
    at: Place,
}

/// Whether a line is one of steps.
pub(super) fn tells(text: &str) -> bool {
    text.contains(TIME)
}

impl LineFormat for Nemo {
    fn line(&mut self, line: &Line<'_>, sink: &mut Sink) -> Result<(), IoError> {
        let text = line.text();
        if text.contains(TIME) {
            return self.steps(line, &text, sink);
        }
        let evaluation =
            ["Validation:", "Validation DataLoader", "Validating"].iter().any(|v| text.contains(v))
                && !text.to_ascii_lowercase().contains("sanity");
        let started = STARTS.iter().any(|s| text.contains(s));
        // NeMo 2 says how long training stopped, Lightning only that it saves.
        let took = text.find("Global Checkpoint Save").and_then(|at| save_duration(&text[at..]));
        let saved = took.is_some() || text.contains(", saving model to ");
        if evaluation || started || saved {
            self.settle(sink)?;
        }
        if started {
            self.ahead = None;
            sink.started();
        }
        if evaluation {
            sink.pause(PauseKind::Evaluation, None);
        }
        if saved {
            sink.pause(PauseKind::Checkpoint, took);
            sink.not_counted(took.unwrap_or(0.0));
        }
        Ok(())
    }

    fn end(&mut self, sink: &mut Sink) -> Result<(), IoError> {
        self.settle(sink)
    }
}

impl Nemo {
    fn steps(&mut self, line: &Line<'_>, text: &str, sink: &mut Sink) -> Result<(), IoError> {
        let bar = text.contains(&format!("{TIME}="));
        let sign = if bar { '=' } else { ':' };
        let Some(token) = line.number_after(text, &format!("{TIME}{sign}")) else {
            if line.whole {
                sink.report.add(Rule::LogLine, line.place(), || "a step without a time".to_owned());
            }
            return Ok(());
        };
        let global = line.number_after(text, &format!("global_step{sign}"));
        let step = if bar { self.bar_step(text, global) } else { line_step(text, global) };
        let Some(step) = step else {
            sink.report.add(Rule::LogLine, line.place(), || "a step without a number".to_owned());
            return Ok(());
        };
        if self.shown.as_ref().is_some_and(|s| s.step != step) {
            self.settle(sink)?;
        }
        let at = line.place();
        let step_s = sink.positive(TIME, token, at);
        let wall = timestamp(text).map_or(Wall::Unknown, Wall::At);
        if bar {
            self.shown = Some(Shown { step, step_s, wall, at });
            return Ok(());
        }
        let (over, repeats) = (Over::Steps(1), Repeats::SameTime);
        sink.step(&Read { step, step_s, over, wall, repeats }, at)
    }

    /// The bar's step has its last values.
    fn settle(&mut self, sink: &mut Sink) -> Result<(), IoError> {
        let Some(Shown { step, step_s, wall, at }) = self.shown.take() else { return Ok(()) };
        let (over, repeats) = (Over::Steps(1), Repeats::AnyTime);
        sink.step(&Read { step, step_s, over, wall, repeats }, at)
    }

    /// The step of a bar: `global_step` where it is exact, else from the count `10/1000 [`.
    fn bar_step(&mut self, text: &str, global: Option<&str>) -> Option<i64> {
        let count = text
            .find('[')
            .and_then(|at| text[..at].rsplit('|').next())
            .filter(|t| t.contains('/'))
            .and_then(integer)
            .map(|c| c.0);
        let known = global.filter(|g| !g.contains(['e', 'E'])).and_then(exact);
        if let (Some(known), Some(count)) = (known, count) {
            // The first drawing of a step shows the number before it.
            let ahead = known.saturating_sub(count);
            self.ahead = Some(self.ahead.map_or(ahead, |a| a.max(ahead)));
        }
        known
            .or_else(|| Some(count?.saturating_add(self.ahead.unwrap_or(-1))))
            .or_else(|| exact(global?))
    }
}

/// The duration in `… : Save duration: 4.389s`, seconds.
fn save_duration(text: &str) -> Option<f64> {
    let rest = &text[text.find("Save duration:")? + "Save duration:".len()..];
    let seconds: f64 = rest.trim_start().split('s').next()?.parse().ok()?;
    (seconds.is_finite() && seconds >= 0.0).then_some(seconds)
}

/// The step of a line: `global_step`, else the iteration of the epoch.
fn line_step(text: &str, global: Option<&str>) -> Option<i64> {
    global.and_then(exact).or_else(|| integer_after(text, "iteration").map(|i| i.0))
}

/// A whole number, also as `9.000`.
fn exact(text: &str) -> Option<i64> {
    let v: f64 = text.parse().ok()?;
    (v.fract() == 0.0 && v.abs() < 9e15).then_some(v as i64)
}
