//! The result of a replay.

use prism_engine::profile::{JobFile, SourceFile};
use prism_engine::replay::{Builder, ReplayComparison, ReplayReport};
use serde::{Deserialize, Serialize};

use crate::csv_table::number;
use crate::number::{Scale, count, seconds};
use crate::{Document, ReportError, Table, Tone, csv_text};

/// Version of [`ReplayOutput`].
pub const REPLAY_SCHEMA: &str = "prism.replay/1";

/// Both builders' replays of a trace, and what was replayed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ReplayOutput {
    /// [`REPLAY_SCHEMA`].
    pub schema: String,
    /// Files read.
    pub sources: Vec<SourceFile>,
    /// The recorded job's plan.
    pub job: JobFile,
    /// Steps that were dropped as incomplete.
    pub steps_dropped: Vec<i64>,
    /// The figures.
    #[serde(flatten)]
    pub comparison: ReplayComparison,
    /// What to be careful about.
    pub warnings: Vec<String>,
}

impl ReplayOutput {
    /// The replays, the reference first.
    fn reports(&self) -> impl Iterator<Item = &ReplayReport> {
        std::iter::once(&self.comparison.reference).chain(&self.comparison.program_order)
    }

    /// For people; with each step's figures if asked.
    pub fn document(&self, per_step: bool) -> Document {
        let reference = &self.comparison.reference;
        let mut document = Document::new(format!(
            "Replay of {}: {} steps, {} replicas x {} stages, {} operations per replica and step",
            self.sources.first().map_or("-", |s| s.name.as_str()),
            count(reference.steps.len()),
            reference.replicas,
            reference.stages,
            count(reference.operations),
        ));
        document.table(self.figures());
        document.table(ideal(reference));
        if per_step {
            for report in self.reports() {
                document.table(steps(report));
            }
        }
        document.line(format!(
            "`calibrate` and `predict` use the {} builder: its zero-delay step times are closest \
             to the record",
            self.comparison.chosen
        ));
        document.warnings.clone_from(&self.warnings);
        if let Some(error) = &self.comparison.program_order_error {
            document.warnings.push(format!("no program-order replay: {error}"));
        }
        if !self.steps_dropped.is_empty() {
            document.warnings.push(format!("dropped as incomplete: {}", ids(&self.steps_dropped)));
        }
        document
    }

    /// Both builders' means side by side.
    fn figures(&self) -> Table {
        let mut columns = vec![String::new()];
        for report in self.reports() {
            let used = if report.builder == self.comparison.chosen { " (used)" } else { "" };
            columns.push(format!(">{}{used}", report.builder));
        }
        let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
        let mut table = Table::new("", &columns);
        let largest = self.comparison.reference.mean_base_s;
        let scale = Scale::new(largest, largest * 1e-4);
        let mut row = |name: &str, show: &dyn Fn(&ReplayReport) -> String| {
            let mut cells = vec![name.to_owned()];
            cells.extend(self.reports().map(show));
            table.row(cells);
        };
        let time = |value: f64| scale.with_unit(value);
        row("mean step, recorded", &|r| time(r.mean_base_s));
        row("mean step, no launch delays", &|r| time(r.mean_no_delay_s));
        row("mean step, ideal work", &|r| time(r.mean_ideal_s));
        row("slowdown S (no delays / ideal)", &|r| format!("{:.4}", r.slowdown));
        row("slowdown by launch delays", &|r| format!("{:.4}", r.launch_slowdown));
        row("zero-delay error, mean", &|r| signed(r.zero_delay_error.mean_percent));
        row("zero-delay error, RMS", &|r| plain(r.zero_delay_error.rms_percent));
        row("replay error with delays, RMS", &|r| plain(r.with_delay_error.rms_percent));
        row("dependencies", &|r| count(r.dependencies));
        row("groups", &|r| count(r.groups));
        row("clock errors set to 0", &|r| count(r.clamped_transfers + r.clamped_delays));
        table
    }

    /// One row a builder; or one a builder and step.
    ///
    /// # Errors
    /// [`ReportError::Csv`].
    pub fn csv(&self, per_step: bool) -> Result<String, ReportError> {
        if per_step {
            return self.csv_steps();
        }
        let header = [
            "builder",
            "used",
            "mean_base_s",
            "mean_no_delay_s",
            "mean_ideal_s",
            "slowdown",
            "launch_slowdown",
            "zero_delay_mean_percent",
            "zero_delay_rms_percent",
            "with_delay_mean_percent",
            "with_delay_rms_percent",
        ];
        let rows: Vec<Vec<String>> = self
            .reports()
            .map(|r| {
                let mut row =
                    vec![r.builder.to_string(), (r.builder == self.comparison.chosen).to_string()];
                let numbers = [
                    r.mean_base_s,
                    r.mean_no_delay_s,
                    r.mean_ideal_s,
                    r.slowdown,
                    r.launch_slowdown,
                    r.zero_delay_error.mean_percent,
                    r.zero_delay_error.rms_percent,
                    r.with_delay_error.mean_percent,
                    r.with_delay_error.rms_percent,
                ];
                row.extend(numbers.into_iter().map(|v| number(Some(v))));
                row
            })
            .collect();
        csv_text(&header, &rows)
    }

    fn csv_steps(&self) -> Result<String, ReportError> {
        let header = [
            "builder",
            "step",
            "base_s",
            "no_delay_s",
            "with_delay_s",
            "ideal_s",
            "slowdown",
            "launch_slowdown",
        ];
        let mut rows = Vec::new();
        for report in self.reports() {
            for s in &report.steps {
                let mut row = vec![report.builder.to_string(), s.step.to_string()];
                let numbers = [
                    s.base_s,
                    s.no_delay_s,
                    s.with_delay_s,
                    s.ideal_s,
                    s.slowdown,
                    s.launch_slowdown,
                ];
                row.extend(numbers.into_iter().map(|v| number(Some(v))));
                rows.push(row);
            }
        }
        csv_text(&header, &rows)
    }
}

/// Ideal work by kind.
fn ideal(report: &ReplayReport) -> Table {
    let mut table = Table::new("Ideal work (reference)", &["operation", ">each"]);
    for (kind, work) in &report.ideal.work_s {
        table.row(vec![kind.to_string(), seconds(*work)]);
    }
    table
}

/// Each step's figures.
fn steps(report: &ReplayReport) -> Table {
    let title = format!("Steps ({})", report.builder);
    let mut table = Table::new(
        title,
        &[
            ">step",
            ">recorded",
            ">no delays",
            ">with delays",
            ">ideal",
            ">slowdown",
            ">launch slowdown",
        ],
    );
    let scale = Scale::new(report.mean_base_s, report.mean_base_s * 1e-4);
    for s in &report.steps {
        let mut cells = vec![s.step.to_string()];
        let times = [s.base_s, s.no_delay_s, s.with_delay_s, s.ideal_s];
        cells.extend(times.into_iter().map(|t| scale.with_unit(t)));
        cells.extend([s.slowdown, s.launch_slowdown].into_iter().map(|v| format!("{v:.4}")));
        table.toned(cells, Tone::Plain);
    }
    table
}

/// A signed number of percent.
fn signed(value: f64) -> String {
    format!("{value:+.3} %")
}

/// A number of percent that cannot be negative.
fn plain(value: f64) -> String {
    if value > 0.0 && value < 5e-4 { format!("{value:.0e} %") } else { format!("{value:.3} %") }
}

/// Step ids, the first few.
pub(crate) fn ids(steps: &[i64]) -> String {
    const SHOWN: usize = 8;
    let mut text: Vec<String> = steps.iter().take(SHOWN).map(ToString::to_string).collect();
    if steps.len() > SHOWN {
        text.push(format!("and {} more", steps.len() - SHOWN));
    }
    let noun = if steps.len() == 1 { "step" } else { "steps" };
    format!("{noun} {}", text.join(", "))
}

/// A builder's replay errors in a sentence.
pub(crate) fn errors_line(
    builder: Builder,
    zero_delay: &prism_engine::replay::ReplayError,
    reference: &prism_engine::replay::ReplayError,
    with_delay: &prism_engine::replay::ReplayError,
) -> String {
    let beside = if builder == Builder::Reference {
        String::new()
    } else {
        format!(
            " (reference {} mean, {} RMS)",
            signed(reference.mean_percent),
            plain(reference.rms_percent)
        )
    };
    format!(
        "{builder} graph; replay without launch delays {} mean, {} RMS{beside}; with them {} RMS",
        signed(zero_delay.mean_percent),
        plain(zero_delay.rms_percent),
        plain(with_delay.rms_percent),
    )
}
