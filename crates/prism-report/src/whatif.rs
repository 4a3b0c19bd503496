//! Scenarios against their base.

use prism_decide::compare::{CompareReport, Comparison, Difference, Probability};
use prism_decide::select::Layout;
use prism_engine::predict::{Bounds, Estimate};
use prism_engine::profile::{JobFile, SourceFile};
use serde::{Deserialize, Serialize};

use crate::csv_table::number;
use crate::number::{Scale, count};
use crate::{Document, ReportError, Table, csv_text};

/// Version of [`WhatifOutput`].
pub const WHATIF_SCHEMA: &str = "prism.whatif/1";

/// Scenarios against their base, and what was asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct WhatifOutput {
    /// [`WHATIF_SCHEMA`].
    pub schema: String,
    /// Files read.
    pub sources: Vec<SourceFile>,
    /// The job's plan.
    pub job: JobFile,
    /// Whether it was planned, not recorded: its variability is given, not estimated.
    #[serde(default)]
    pub planned: bool,
    /// Where its workers run.
    pub layout: Layout,
    /// The figures.
    #[serde(flatten)]
    pub report: CompareReport,
    /// What to be careful about.
    pub warnings: Vec<String>,
}

impl WhatifOutput {
    /// For people.
    pub fn document(&self) -> Document {
        let report = &self.report;
        let mut document = Document::new(format!(
            "What if, on {}: {} scenario{}, {} paired samples each",
            self.sources.first().map_or("-", |s| s.name.as_str()),
            report.comparisons.len(),
            if report.comparisons.len() == 1 { "" } else { "s" },
            count(report.samples),
        ));
        for comparison in &report.comparisons {
            document.line(headline(comparison, report.samples));
            document.table(table(comparison));
            document.line(faster(comparison));
            for note in &comparison.notes {
                document.line(note.clone());
            }
        }
        document.line(self.intervals());
        document.warnings.clone_from(&self.warnings);
        document
    }

    /// What the intervals are of.
    fn intervals(&self) -> String {
        let confidence = 100.0 * self.report.confidence;
        match (self.report.units, self.report.repetitions) {
            (Some(units), n) if n > 1 => format!(
                "Both sides draw the same random numbers. Intervals are {confidence} %: sampling and \
                 calibration error ({n} repetitions on {units} resampled units of recorded steps)"
            ),
            _ if self.planned => format!(
                "Both sides draw the same random numbers. Intervals are {confidence} % of sampling \
                 error: the job's variability is given"
            ),
            _ => format!(
                "Both sides draw the same random numbers. Intervals are {confidence} % of sampling \
                 error alone: with `--bootstrap` they would include the calibration's"
            ),
        }
    }

    /// One row a scenario and statistic.
    ///
    /// # Errors
    /// [`ReportError::Csv`].
    pub fn csv(&self) -> Result<String, ReportError> {
        let header = [
            "scenario",
            "edits",
            "statistic",
            "base_s",
            "changed_s",
            "difference_s",
            "sampling_lower_s",
            "sampling_upper_s",
            "total_lower_s",
            "total_upper_s",
            "relative",
            "faster_same_noise",
            "faster",
        ];
        let mut rows = Vec::new();
        for comparison in &self.report.comparisons {
            for d in &comparison.differences {
                let e = &d.difference_s;
                let mut row = vec![
                    comparison.name.clone(),
                    comparison.scenario.to_string(),
                    d.statistic.to_string(),
                ];
                let numbers = [
                    Some(d.base_s),
                    Some(d.changed_s),
                    Some(e.value),
                    Some(e.sampling.lower),
                    Some(e.sampling.upper),
                    e.total.map(|t| t.lower),
                    e.total.map(|t| t.upper),
                    Some(d.relative.value),
                    Some(comparison.faster_same_noise.value),
                    Some(comparison.faster.value),
                ];
                row.extend(numbers.into_iter().map(number));
                rows.push(row);
            }
        }
        csv_text(&header, &rows)
    }
}

/// The interval to show: the total one where there is one.
pub(crate) fn bounds(estimate: &Estimate) -> Bounds {
    estimate.total.unwrap_or(estimate.sampling)
}

/// `slow is 1.072 ± 0.003 x slower at p95 (paired, 10,000 samples)`.
fn headline(comparison: &Comparison, samples: usize) -> String {
    let tail = comparison.differences.iter().find(|d| d.statistic.to_string() == "p95");
    let Some(d) = tail.or(comparison.differences.first()) else {
        return comparison.name.clone();
    };
    let ratio = 1.0 + d.relative.value;
    let interval = bounds(&d.relative);
    let half = 0.5 * (interval.upper - interval.lower);
    let edits = comparison.scenario.to_string();
    let name = if edits == comparison.name {
        format!("`{edits}`")
    } else {
        format!("`{}` ({edits})", comparison.name)
    };
    let at = d.statistic;
    let paired = format!("(paired, {} samples)", count(samples));
    if comparison.differences.iter().all(|d| d.difference_s.value == 0.0) {
        return format!("{name} changes nothing {paired}");
    }
    if !(1e-3..=1e3).contains(&ratio) {
        return format!("{name} makes {:+.4} % at {at} {paired}", 100.0 * d.relative.value);
    }
    if interval.lower <= 0.0 && interval.upper >= 0.0 {
        return format!(
            "{name} makes no clear difference at {at}: {:+.2} ± {:.2} % {paired}",
            100.0 * d.relative.value,
            100.0 * half
        );
    }
    // As a ratio above 1, either way.
    if ratio >= 1.0 {
        format!("{name} is {ratio:.4} ± {half:.4} x slower at {at} {paired}")
    } else {
        let (gain, spread) = (1.0 / ratio, half / (ratio * ratio));
        format!("{name} is {gain:.4} ± {spread:.4} x faster at {at} {paired}")
    }
}

fn table(comparison: &Comparison) -> Table {
    let mut table = Table::new(
        "",
        &["", ">base", ">scenario", ">change", ">interval", ">change %", ">interval"],
    );
    let largest = comparison.differences.iter().map(|d| d.base_s).fold(0.0, f64::max);
    let finest = comparison
        .differences
        .iter()
        .map(|d| bounds(&d.difference_s))
        .map(|b| b.upper - b.lower)
        .filter(|w| *w > 0.0)
        .fold(f64::INFINITY, f64::min);
    let scale = Scale::new(largest, if finest.is_finite() { finest } else { largest * 1e-3 });
    for d in &comparison.differences {
        table.row(row(d, &scale));
    }
    table
}

fn row(d: &Difference, scale: &Scale) -> Vec<String> {
    let (seconds, share) = (bounds(&d.difference_s), bounds(&d.relative));
    let sign = |v: f64| if v >= 0.0 { "+" } else { "" };
    vec![
        d.statistic.to_string(),
        scale.with_unit(d.base_s),
        scale.with_unit(d.changed_s),
        format!("{}{}", sign(d.difference_s.value), scale.with_unit(d.difference_s.value)),
        format!("{} .. {}", scale.show(seconds.lower), scale.show(seconds.upper)),
        format!("{:+.2} %", 100.0 * d.relative.value),
        format!("{:+.2} .. {:+.2}", 100.0 * share.lower, 100.0 * share.upper),
    ]
}

fn faster(comparison: &Comparison) -> String {
    let show = |p: &Probability| {
        format!("{:.3} [{:.3}, {:.3}]", p.value, p.sampling.lower, p.sampling.upper)
    };
    format!(
        "Faster with probability {} than the same step of the base, {} than another one",
        show(&comparison.faster_same_noise),
        show(&comparison.faster)
    )
}
