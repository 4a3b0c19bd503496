//! MLPerf's `:::MLLOG` lines.
//!
//! The marker is followed by a JSON object: `time_ms`, `key`, `value`, `metadata`. Step times are in
//! `tracked_stats`, under `train_step_timing` (to v4) or `train_step_time` (v5), seconds. `metadata.step`
//! counts samples in most submissions, so that steps are numbered by their order in the run, from 0; a
//! value of `metadata.step` that was there before is another rank's and is not counted again. A
//! `train_step_time` beside a `throughput` is the mean of a block, not a step.

use std::collections::BTreeSet;

use serde_json::Value;

use super::PauseKind;
use super::line::{Line, LineFormat};
use super::sink::{Over, Read, Repeats, Sink, Wall};
use crate::error::IoError;
use crate::violation::{Place, Rule};

const MARKER: &str = ":::MLLOG";
const TIMES: [&str; 2] = ["train_step_time", "train_step_timing"];

/// Reads MLPerf's lines.
#[derive(Default)]
pub(super) struct Mllog {
    /// Steps of the run so far.
    steps: i64,
    /// Values of `metadata.step` so far, as bits.
    seen: BTreeSet<u64>,
    /// When the evaluation began that has not ended.
    evaluating: Option<f64>,
    /// Whether the run has ended.
    over: bool,
}

/// Whether a line is one of MLPerf's.
pub(super) fn tells(text: &str) -> bool {
    text.contains(MARKER)
}

impl LineFormat for Mllog {
    fn line(&mut self, line: &Line<'_>, sink: &mut Sink) -> Result<(), IoError> {
        let text = line.text();
        let Some(at) = text.find(MARKER) else { return Ok(()) };
        let json = text[at + MARKER.len()..].trim();
        let Ok(entry) = serde_json::from_str::<Value>(json) else {
            if line.whole && TIMES.iter().any(|t| json.contains(t)) {
                sink.report
                    .add(Rule::LogLine, line.place(), || "a step that is not JSON".to_owned());
            }
            return Ok(());
        };
        let key = entry.get("key").and_then(Value::as_str).unwrap_or_default();
        let now = entry.get("time_ms").and_then(Value::as_f64).map(|ms| ms * 1e-3);
        if key == "run_start" {
            self.run_start(sink);
        }
        if self.over {
            return Ok(());
        }
        match key {
            "submission_platform" => {
                if let Some(name) = entry.get("value").and_then(Value::as_str) {
                    sink.system(name);
                }
            }
            "tracked_stats" => return self.stats(&entry, now, line.place(), sink),
            "run_stop" => {
                self.evaluated(None, sink);
                self.over = true;
            }
            _ => self.mark(key, now, sink),
        }
        Ok(())
    }

    fn end(&mut self, sink: &mut Sink) -> Result<(), IoError> {
        self.evaluated(None, sink);
        Ok(())
    }
}

impl Mllog {
    /// A run starts; every rank may say so.
    fn run_start(&mut self, sink: &mut Sink) {
        if sink.has_steps() {
            sink.restart();
            *self = Mllog::default();
        }
    }

    /// The beginning or the end of something.
    fn mark(&mut self, key: &str, now: Option<f64>, sink: &mut Sink) {
        match key {
            "eval_start" => self.evaluating = self.evaluating.or(now),
            "eval_stop" if self.evaluating.is_some() => self.evaluated(now, sink),
            "block_start" => {
                if self.steps > 0 && !sink.paused(PauseKind::Evaluation) {
                    sink.pause(PauseKind::Block, None);
                }
            }
            "run_start" => {}
            _ => return,
        }
        if let Some(now) = now.filter(|_| key != "eval_start") {
            sink.clock(now);
        }
    }

    /// The evaluation ended, at a time that is known or not.
    fn evaluated(&mut self, now: Option<f64>, sink: &mut Sink) {
        if let Some(start) = self.evaluating.take() {
            sink.pause_more(PauseKind::Evaluation, now.map(|now| now - start));
        }
    }

    fn stats(
        &mut self,
        entry: &Value,
        now: Option<f64>,
        at: Place,
        sink: &mut Sink,
    ) -> Result<(), IoError> {
        let stats = entry.get("value");
        if stats.is_some_and(|s| s.get("throughput").is_some()) {
            return Ok(());
        }
        let Some((name, value)) =
            TIMES.iter().find_map(|t| Some((*t, stats.and_then(|s| s.get(t))?)))
        else {
            return Ok(());
        };
        let id = entry.get("metadata").and_then(|m| m.get("step")).and_then(Value::as_f64);
        if id.is_some_and(|id| !self.seen.insert(id.to_bits())) {
            return Ok(());
        }
        // Training went on beside an evaluation.
        self.evaluated(None, sink);
        let step_s = match value.as_f64() {
            Some(v) => sink.positive_value(name, v, at),
            None => sink.positive(name, &value.to_string(), at),
        };
        let step = self.steps;
        self.steps += 1;
        let wall = now.map_or(Wall::Unknown, Wall::At);
        let over = Over::Steps(1);
        sink.step(&Read { step, step_s, over, wall, repeats: Repeats::Wrong }, at)
    }
}
