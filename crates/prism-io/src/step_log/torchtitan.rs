//! torchtitan's text.
//!
//! Every `log_freq` steps and at the first, `[rank0]:[titan] 2025-01-02 03:04:05,678 - root - INFO - step:
//! 10  loss: 8.0  grad_norm: 1.2  memory: …  tps: 1,234  tflops: …  mfu: 12.3%`, in colours on a terminal.
//! `tps` is tokens per second and GPU since the line before, as a whole number. Without the number of tokens,
//! times are differences of time stamps, to a millisecond where these have a fraction, to a second otherwise;
//! the first line then only says from where on the next counts, unless `Training starts at step` came before.
//! All ranks may write to one file: only lines of the first rank that is seen are read.

use super::line::{Line, LineFormat, integer_after, timestamp};
use super::sink::{Over, Read, Repeats, Sink, Wall};
use super::{PauseKind, StepLogOptions};
use crate::error::IoError;
use crate::violation::{Place, Rule};

/// Reads torchtitan's text.
pub(super) struct Torchtitan {
    file: String,
    tokens: Option<f64>,
    /// The first step line's prefix of a rank.
    rank: Option<String>,
    /// The last step that is known to have ended.
    last: Option<i64>,
    /// When it ended, by time stamps, moved past pauses.
    since: Option<f64>,
    /// Whether a checkpoint is being saved.
    saving: bool,
}

/// What time stamps say of a step.
enum ByClock {
    /// Nothing, but from where on the next one counts.
    From,
    /// Its time, seconds; `None` where it is wrong and was reported.
    Time(Option<f64>),
}

/// Whether a line is one of steps.
pub(super) fn tells(text: &str) -> bool {
    step_line(text).is_some_and(|(_, rest)| rest.contains("tps:") || text.contains("[titan]"))
}

/// The step of a line of steps, and what follows it.
fn step_line(text: &str) -> Option<(i64, &str)> {
    let at = text.find("step:")?;
    if text[..at].trim_end().ends_with("validate") {
        return None;
    }
    integer_after(&text[at..], "step:").filter(|(_, rest)| rest.contains("loss:"))
}

/// The rank in the prefix `[rank3]:` of a line.
fn rank(text: &str) -> &str {
    let text = text.trim_start();
    match text.find("]:") {
        Some(end) if text.starts_with("[rank") => &text[..end],
        _ => "",
    }
}

impl Torchtitan {
    pub(super) fn new(file: &str, options: &StepLogOptions) -> Self {
        Torchtitan {
            file: file.to_owned(),
            tokens: options.tokens_per_gpu_step,
            rank: None,
            last: None,
            since: None,
            saving: false,
        }
    }

    fn step(
        &mut self,
        line: &Line<'_>,
        (text, step): (&str, i64),
        sink: &mut Sink,
    ) -> Result<(), IoError> {
        let at = line.place();
        let now = timestamp(text);
        // A line without its rate was cut, or is another program's.
        let rate = line.number_after(text, "tps:");
        if rate.is_none() && !line.whole {
            return Ok(());
        }
        let repeated = sink.last() == Some(step);
        if repeated {
            return Ok(());
        }
        if let Some(last) = self.last.filter(|last| step < *last) {
            sink.report.add(Rule::StepsAscend, at, || format!("step {step} follows step {last}"));
            self.last = Some(step);
            return Ok(());
        }
        let steps = self.last.filter(|last| *last < step).map(|last| step.saturating_sub(last));
        let steps = steps.map(|n| u32::try_from(n).unwrap_or(u32::MAX));
        let step_s = match self.tokens {
            Some(tokens) => by_rate(tokens, rate, at, sink),
            None => match self.by_clock(now, steps, at, sink)? {
                ByClock::Time(step_s) => step_s,
                ByClock::From => {
                    (self.last, self.since) = (Some(step), now);
                    return Ok(());
                }
            },
        };
        (self.last, self.since) = (Some(step), now);
        let over = steps.map_or(Over::SinceLast, Over::Steps);
        let wall = now.map_or(Wall::Unknown, Wall::At);
        sink.step(&Read { step, step_s, over, wall, repeats: Repeats::AnyTime }, at)
    }

    /// The time by time stamps.
    ///
    /// # Errors
    /// [`IoError::StepLogOption`] where the line has no time stamp.
    fn by_clock(
        &self,
        now: Option<f64>,
        steps: Option<u32>,
        at: Place,
        sink: &mut Sink,
    ) -> Result<ByClock, IoError> {
        let Some(now) = now else {
            return Err(IoError::StepLogOption { file: self.file.clone(), place: at });
        };
        let (Some(since), Some(steps)) = (self.since, steps) else { return Ok(ByClock::From) };
        let mean = (now - since) / f64::from(steps);
        Ok(ByClock::Time(sink.positive_value("time between stamps", mean, at)))
    }

    /// A validation after the step that was logged last took the time since then.
    fn validated(&mut self, step: i64, now: Option<f64>, sink: &mut Sink) {
        let took = match (self.since, now) {
            (Some(since), Some(now)) if self.last == Some(step) => Some(now - since),
            _ => None,
        };
        sink.pause(PauseKind::Evaluation, took);
        self.not_counted(took, sink);
    }

    fn not_counted(&mut self, took: Option<f64>, sink: &mut Sink) {
        if let Some(took) = took.filter(|t| t.is_finite() && *t >= 0.0) {
            self.since = self.since.map(|s| s + took);
            sink.not_counted(took);
        }
    }
}

/// The time by tokens per second.
fn by_rate(tokens: f64, rate: Option<&str>, at: Place, sink: &mut Sink) -> Option<f64> {
    let Some(rate) = rate else {
        sink.report.add(Rule::LogLine, at, || "a step without `tps`".to_owned());
        return None;
    };
    let rate = sink.positive("tps", &rate.replace(',', ""), at)?;
    sink.positive_value("tokens_per_gpu_step / tps", tokens / rate, at)
}

impl LineFormat for Torchtitan {
    fn line(&mut self, line: &Line<'_>, sink: &mut Sink) -> Result<(), IoError> {
        let text = line.text();
        let of = rank(&text);
        if self.rank.as_ref().is_some_and(|known| known != of) {
            return Ok(());
        }
        if let Some((step, _)) = step_line(&text) {
            self.rank.get_or_insert_with(|| of.to_owned());
            return self.step(line, (&text, step), sink);
        }
        if let Some((step, _)) = integer_after(&text, "Training starts at step") {
            sink.started();
            (self.last, self.since) = (Some(step - 1), timestamp(&text));
            if let Some(now) = self.since {
                sink.clock(now);
            }
        } else if let Some((step, _)) = integer_after(&text, "validate step:") {
            self.validated(step, timestamp(&text), sink);
        } else if text.contains("Finished saving the checkpoint") {
            let ended = text.find("saving the checkpoint").map_or("", |at| &text[at..]);
            let took = line
                .number_after(ended, "in ")
                .filter(|_| std::mem::take(&mut self.saving))
                .and_then(|t| t.parse().ok());
            sink.pause(PauseKind::Checkpoint, took);
            self.not_counted(took, sink);
        } else if text.contains("Saving the checkpoint") {
            self.saving = true;
            sink.pause(PauseKind::Checkpoint, None);
        }
        Ok(())
    }
}
