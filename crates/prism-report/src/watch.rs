//! What a watched run did.

use prism_run::{Event, EventKind, WatchSummary};
use serde::{Deserialize, Serialize};

use crate::csv_table::number;
use crate::{
    Block, Document, ReportError, RequirementResult, Table, Tone, count, csv_text, p_value, seconds,
};

/// Version of the lines of `prism watch --json`.
pub const WATCH_SCHEMA: &str = "prism.watch/1";

/// A line of `prism watch --json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum WatchLine {
    /// An event.
    Event {
        /// [`WATCH_SCHEMA`].
        schema: String,
        /// It.
        #[serde(flatten)]
        event: Event,
    },
    /// A bound that is broken beyond doubt while the run goes on.
    Broken {
        /// [`WATCH_SCHEMA`].
        schema: String,
        /// The last step seen.
        step: i64,
        /// The bound.
        bound: RequirementResult,
    },
    /// The last line.
    Summary(WatchEnd),
}

/// What there is to say at the end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct WatchEnd {
    /// [`WATCH_SCHEMA`].
    pub schema: String,
    /// The log.
    pub log: String,
    /// What it was held against.
    pub profile: String,
    /// False alarms of a changed level in 10,000 steps that were put up with.
    pub alarms_per_10k: f64,
    /// Threshold of the change statistic that follows.
    pub threshold: f64,
    /// The run.
    pub run: WatchSummary,
    /// Alarms.
    pub alarms: usize,
    /// Events that are none.
    pub others: usize,
    /// Bounds that were asked for.
    pub requirements: Vec<RequirementResult>,
    /// Whether the watch was interrupted.
    pub interrupted: bool,
    /// What the reader must know.
    pub warnings: Vec<String>,
}

fn what(kind: EventKind) -> &'static str {
    match kind {
        EventKind::Stall => "stall",
        EventKind::Systematic => "systematic stall",
        EventKind::Slower => "slower",
        EventKind::Eased => "less slow",
        EventKind::Faster => "faster",
        EventKind::Back => "back to its level",
        EventKind::Drift => "drift",
        EventKind::Level => "level",
    }
}

/// The word that JSON has.
fn code(kind: EventKind) -> String {
    let word = serde_json::to_value(kind).ok();
    word.as_ref().and_then(serde_json::Value::as_str).unwrap_or_default().to_owned()
}

fn tone(kind: EventKind) -> Tone {
    match kind {
        EventKind::Slower | EventKind::Level | EventKind::Drift => Tone::Bad,
        EventKind::Stall | EventKind::Eased => Tone::Caution,
        EventKind::Back | EventKind::Faster => Tone::Good,
        EventKind::Systematic => Tone::Dim,
    }
}

fn signed(seconds_: f64) -> String {
    if seconds_ < 0.0 { format!("-{}", long(-seconds_)) } else { format!("+{}", long(seconds_)) }
}

/// The unit that people use for a time, and seconds in it; none for the short ones.
fn unit(time_s: f64) -> Option<(f64, usize, &'static str)> {
    match time_s.abs() {
        t if t < 120.0 => None,
        t if t < 7_200.0 => Some((60.0, 1, "min")),
        t if t < 172_800.0 => Some((3_600.0, 2, "h")),
        _ => Some((86_400.0, 2, "d")),
    }
}

/// A time in the unit that people use for it.
pub(crate) fn long(time_s: f64) -> String {
    match unit(time_s) {
        None => seconds(time_s),
        Some((per, decimals, name)) => format!("{:.decimals$} {name}", time_s / per),
    }
}

/// Two times in the unit of the longer one.
pub(crate) fn long_pair(low_s: f64, high_s: f64) -> String {
    match unit(low_s.abs().max(high_s.abs())) {
        None => format!("{} to {}", seconds(low_s), seconds(high_s)),
        Some((per, decimals, name)) => {
            format!("{:.decimals$} to {:.decimals$} {name}", low_s / per, high_s / per)
        }
    }
}

/// An event in one line, and its tone.
pub fn watch_event_text(event: &Event) -> (String, Tone) {
    let percent = 100.0 * event.excess;
    let interval = event.excess_interval.map_or(String::new(), |(low, high)| {
        format!(" [{:+.2}, {:+.2}]", 100.0 * low, 100.0 * high)
    });
    let size = match event.kind {
        EventKind::Stall | EventKind::Systematic => format!("{percent:+.1} %"),
        _ => format!("{percent:+.2} %{interval}"),
    };
    let probability = if event.probability.is_finite() {
        let sign = if event.probability_is_bound { "<" } else { "=" };
        format!(", p {sign} {}", p_value(event.probability).trim_start_matches(['<', ' ']))
    } else {
        String::new()
    };
    let cost = match event.kind {
        EventKind::Back if event.extra_s > 0.0 => {
            format!(", slow spells cost {} so far", long(event.extra_s))
        }
        EventKind::Back => String::new(),
        EventKind::Level => format!(" against what was expected, {} so far", signed(event.extra_s)),
        _ => format!(", {} so far", signed(event.extra_s)),
    };
    let end = event
        .extra_to_end_s
        .map_or(String::new(), |t| format!(", {} until the end if it lasts", signed(t)));
    let found = if event.found_at == event.step {
        String::new()
    } else {
        format!(" (found at {})", event.found_at)
    };
    let text =
        format!("step {}{found}: {} {size}{probability}{cost}{end}", event.step, what(event.kind));
    (text, tone(event.kind))
}

/// Events as one table.
///
/// # Errors
/// [`ReportError::Csv`].
pub fn watch_csv(events: &[Event]) -> Result<String, ReportError> {
    let header = [
        "kind",
        "step",
        "found_at",
        "excess",
        "excess_lower",
        "excess_upper",
        "probability",
        "extra_s",
        "extra_to_end_s",
    ];
    let rows: Vec<Vec<String>> = events
        .iter()
        .map(|e| {
            let probability = Some(e.probability).filter(|p| p.is_finite());
            vec![
                code(e.kind),
                e.step.to_string(),
                e.found_at.to_string(),
                number(Some(e.excess)),
                number(e.excess_interval.map(|i| i.0)),
                number(e.excess_interval.map(|i| i.1)),
                number(probability),
                number(Some(e.extra_s)),
                number(e.extra_to_end_s),
            ]
        })
        .collect();
    csv_text(&header, &rows)
}

/// The end, for people.
pub fn watch_end_document(end: &WatchEnd) -> Document {
    let run = &end.run;
    let mut document = Document::new(format!(
        "{}: {} steps, {} alarm{}{}",
        end.log,
        count(run.steps as usize),
        end.alarms,
        if end.alarms == 1 { "" } else { "s" },
        if end.interrupted { ", interrupted" } else { "" }
    ));
    let mut table = Table::new("", &["", ">time", ""]);
    let over = 100.0 * (run.total_s / run.expected_s - 1.0);
    let mut row = |a: &str, b: String, c: String| table.row(vec![a.to_owned(), b, c]);
    row("all steps", long(run.total_s), format!("{over:+.2} % against the profile's level"));
    if let Some(level) = run.level_s {
        let p = run
            .level_probability
            .map_or(String::new(), |p| format!("p = {} for a run of this profile", p_value(p)));
        row("level of the run", seconds(level), p);
    }
    row("stalls", long(run.stalls_s), String::new());
    let now = if run.slower_now { "and it is slower now" } else { "" };
    row("slower spells", long(run.slower_s.max(0.0)), now.to_owned());
    if let Some(t) = run.remaining_s {
        row("still to go", long(t), "at the present level, without stalls and failures".to_owned());
    }
    document.table(table);
    for r in &end.requirements {
        let verdict = if r.met { "holds" } else { "is broken" };
        let doubt = if r.clear { "" } else { "; its interval contains the bound" };
        let tone = if r.met { Tone::Good } else { Tone::Bad };
        document.blocks.push(Block::Line(
            format!("{} {verdict}: {}{doubt}", r.requirement, seconds(r.value_s)),
            tone,
        ));
    }
    document.warnings.clone_from(&end.warnings);
    document
}
