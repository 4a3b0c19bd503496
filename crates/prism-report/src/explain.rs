//! Where the time and its tail come from.

use prism_decide::critical::SegmentKind;
use prism_decide::explain::{Breakdown, By, ExplainReport, Fix, PathReport, TypicalPath};
use prism_decide::select::Layout;
use prism_engine::predict::Estimate;
use prism_engine::profile::{JobFile, SourceFile};
use serde::{Deserialize, Serialize};

use crate::csv_table::number;
use crate::number::{Scale, count};
use crate::whatif::bounds;
use crate::{Document, ReportError, Table, csv_text};

/// Version of [`ExplainOutput`].
pub const EXPLAIN_SCHEMA: &str = "prism.explain/1";

/// Where the time and its tail come from, and what was asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ExplainOutput {
    /// [`EXPLAIN_SCHEMA`].
    pub schema: String,
    /// Files read.
    pub sources: Vec<SourceFile>,
    /// The job's plan.
    pub job: JobFile,
    /// Where its workers run.
    pub layout: Layout,
    /// The figures.
    #[serde(flatten)]
    pub report: ExplainReport,
    /// What to be careful about.
    pub warnings: Vec<String>,
}

impl ExplainOutput {
    /// For people; with the critical paths line by line if asked, and long tables whole if asked.
    pub fn document(&self, paths: bool, whole: bool) -> Document {
        let report = &self.report;
        let mut document = Document::new(format!(
            "Where the time of {} goes: mean step {}, tail p{}",
            self.sources.first().map_or("-", |s| s.name.as_str()),
            crate::seconds(report.path.mean_step_s),
            (report.quantile * 1e11).round() / 1e9,
        ));
        document.table(fixes(&report.fixes, whole));
        document.line(
            "Each change against the job as it is, under the same random numbers; a negative change \
             is a gain. Gains are not additive",
        );
        for breakdown in &report.breakdowns {
            document.table(parts(breakdown));
            document.line(additivity(breakdown));
        }
        document.line(
            "The penalty is what variation costs: the job as it is, less a step in which every \
             operation takes its mean and the workers of a stage are alike. `alone`: added to that \
             step; `removed`: taken from the job as it is; shares are Shapley values, the mean over \
             all orders of adding parts",
        );
        document.table(path_kinds(&report.path, whole));
        document.table(path_stages(&report.path));
        document.table(path_workers(&report.path, whole));
        if paths {
            for path in &report.path.typical {
                document.table(path_lines(path));
            }
        }
        document.line(format!(
            "Intervals are {} % of sampling error ({} samples a coalition, {} critical paths); the \
             error of calibration is not in them{}",
            100.0 * report.confidence,
            count(report.breakdowns.first().map_or(0, |b| b.samples)),
            count(report.path.samples),
            if self.report.fixes.iter().any(|f| f
                .comparison
                .differences
                .iter()
                .any(|d| d.difference_s.total.is_some()))
            {
                ", but for the changes"
            } else {
                ""
            },
        ));
        document.warnings.clone_from(&self.warnings);
        document
    }

    /// One row a breakdown, part and statistic; then one a fix and statistic.
    ///
    /// # Errors
    /// [`ReportError::Csv`].
    pub fn csv(&self) -> Result<String, ReportError> {
        let header = [
            "view",
            "name",
            "statistic",
            "alone_s",
            "removed_s",
            "shapley_s",
            "shapley_lower_s",
            "shapley_upper_s",
            "share",
        ];
        let mut rows = Vec::new();
        for b in &self.report.breakdowns {
            for part in &b.parts {
                for (whole, a) in b.statistics.iter().zip(&part.at) {
                    let mut row = vec![
                        by_name(b.by).to_owned(),
                        part.name.clone(),
                        whole.statistic.to_string(),
                    ];
                    let numbers = [
                        Some(a.alone_s.value),
                        Some(a.removed_s.value),
                        Some(a.shapley_s.value),
                        Some(a.shapley_s.sampling.lower),
                        Some(a.shapley_s.sampling.upper),
                        a.share,
                    ];
                    row.extend(numbers.into_iter().map(number));
                    rows.push(row);
                }
            }
        }
        for fix in &self.report.fixes {
            for d in &fix.comparison.differences {
                let mut row = vec!["fix".to_owned(), fix.what.clone(), d.statistic.to_string()];
                row.extend([None, Some(-d.difference_s.value), None, None, None, None].map(number));
                rows.push(row);
            }
        }
        csv_text(&header, &rows)
    }
}

fn by_name(by: By) -> &'static str {
    match by {
        By::Effect => "effect",
        By::Class => "class of operation",
        By::Kind => "kind of operation",
        _ => "part",
    }
}

/// A change in seconds with its interval.
fn change(estimate: &Estimate, scale: &Scale) -> String {
    let b = bounds(estimate);
    format!("{} [{}, {}]", scale.show(estimate.value), scale.show(b.lower), scale.show(b.upper))
}

fn fixes(fixes: &[Fix], whole: bool) -> Table {
    const SHOWN: usize = 8;
    let shown = if whole { fixes.len() } else { fixes.len().min(SHOWN) };
    let title = if shown < fixes.len() {
        format!("What to fix, the largest gain first ({shown} of {}; `-v` shows all)", fixes.len())
    } else {
        "What to fix, the largest gain first".to_owned()
    };
    let base = fixes.first().map_or(1.0, |f| f.comparison.differences[0].base_s);
    let finest =
        finest(fixes.iter().flat_map(|f| &f.comparison.differences).map(|d| &d.difference_s));
    let scale = Scale::new(base, finest);
    let mean = format!(">mean, {}", scale.unit);
    let names: Vec<String> = fixes.first().map_or_else(Vec::new, |f| {
        f.comparison
            .differences
            .iter()
            .map(|d| format!(">{}, {}", d.statistic, scale.unit))
            .collect()
    });
    let tail = names.get(1).cloned().unwrap_or(mean.clone());
    let mut table = Table::new(title, &["change", &mean, &tail]);
    for fix in &fixes[..shown] {
        let mut row = vec![fix.what.clone()];
        row.extend(fix.comparison.differences.iter().map(|d| change(&d.difference_s, &scale)));
        table.row(row);
    }
    table
}

fn finest<'a>(estimates: impl Iterator<Item = &'a Estimate>) -> f64 {
    let widths = estimates.map(bounds).map(|b| b.upper - b.lower).filter(|w| *w > 0.0);
    let mut all: Vec<f64> = widths.collect();
    all.sort_by(f64::total_cmp);
    // The median: single parts without any error would ask for too many digits.
    all.get(all.len() / 2).copied().unwrap_or(0.0)
}

fn parts(breakdown: &Breakdown) -> Table {
    let largest = breakdown.statistics.iter().map(|w| w.with_s.abs()).fold(0.0, f64::max);
    let all = breakdown.parts.iter().flat_map(|p| p.at.iter().map(|a| &a.shapley_s));
    let scale = Scale::new(largest, finest(all));
    let title = format!("Penalty by {} ({})", by_name(breakdown.by), scale.unit);
    let tail = breakdown.statistics.get(1).map_or(String::new(), |w| w.statistic.to_string());
    let columns = [
        "part".to_owned(),
        ">mean".to_owned(),
        format!(">{tail} alone"),
        format!(">{tail} removed"),
        format!(">{tail} share"),
        ">share %".to_owned(),
        ">s.d. share %".to_owned(),
        ">core spread share %".to_owned(),
    ];
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let mut table = Table::new(title, &columns);
    let share = |s: Option<f64>| s.map_or("-".to_owned(), |s| format!("{:.1}", 100.0 * s));
    for part in &breakdown.parts {
        let at = |k: usize| &part.at[k.min(part.at.len() - 1)];
        table.row(vec![
            part.name.clone(),
            change(&at(0).shapley_s, &scale),
            scale.show(at(1).alone_s.value),
            scale.show(at(1).removed_s.value),
            change(&at(1).shapley_s, &scale),
            share(at(1).share),
            share(at(2).share),
            share(at(3).share),
        ]);
    }
    let sum = |k: usize, f: &dyn Fn(&prism_decide::explain::Whole) -> &Estimate| {
        breakdown.statistics.get(k).map_or(String::new(), |w| scale.show(f(w).value))
    };
    let mean = breakdown.statistics.first().map_or(String::new(), |w| change(&w.whole_s, &scale));
    let tail = breakdown.statistics.get(1).map_or(String::new(), |w| change(&w.whole_s, &scale));
    table.row(vec![
        "whole (alone, removed: sums)".to_owned(),
        mean,
        sum(1, &|w| &w.sum_alone_s),
        sum(1, &|w| &w.sum_removed_s),
        tail,
        "100".to_owned(),
        "100".to_owned(),
        "100".to_owned(),
    ]);
    table
}

/// By how much parts do not add up.
fn additivity(breakdown: &Breakdown) -> String {
    let Some(w) = breakdown.statistics.get(1) else { return String::new() };
    let scale = Scale::new(w.with_s, 0.01 * w.whole_s.value.abs().max(1e-12));
    let whole = w.whole_s.value;
    let off = |v: f64| match whole {
        0.0 => "-".to_owned(),
        x => format!("{:+.0} %", 100.0 * (v / x - 1.0)),
    };
    let verb = if [w.sum_alone_s.value, w.sum_removed_s.value]
        .iter()
        .all(|v| (v - whole).abs() <= 5e-3 * whole.abs())
    {
        "Parts add up here"
    } else {
        "Parts do not add up"
    };
    format!(
        "{verb}: at {} the whole is {}; each alone, they sum to {} ({}); removed one by \
         one, to {} ({})",
        w.statistic,
        scale.with_unit(whole),
        scale.with_unit(w.sum_alone_s.value),
        off(w.sum_alone_s.value),
        scale.with_unit(w.sum_removed_s.value),
        off(w.sum_removed_s.value),
    )
}

fn what(kind: SegmentKind) -> &'static str {
    match kind {
        SegmentKind::LaunchDelay => "launch delay",
        _ => "work",
    }
}

fn path_kinds(path: &PathReport, whole: bool) -> Table {
    const SHOWN: usize = 8;
    let scale = Scale::new(path.mean_step_s, finest(path.kinds.iter().map(|k| &k.time_s)));
    let time = format!(">time on it, {}", scale.unit);
    let mut table = Table::new(
        "Critical path by kind of operation",
        &["operation", "", &time, ">share of step", ">probability"],
    );
    for k in path.kinds.iter().take(if whole { usize::MAX } else { SHOWN }) {
        table.row(vec![
            k.part.kind.to_string(),
            what(k.part.what).to_owned(),
            change(&k.time_s, &scale),
            format!("{:.1} %", 100.0 * k.time_s.value / path.mean_step_s),
            format!("{:.2}", k.probability),
        ]);
    }
    table
}

fn path_stages(path: &PathReport) -> Table {
    let scale = Scale::new(path.mean_step_s, finest(path.stages.iter().map(|k| &k.time_s)));
    let time = format!(">time on it, {}", scale.unit);
    let mut table =
        Table::new("Critical path by stage", &[">stage", &time, ">share of step", ">probability"]);
    for s in &path.stages {
        table.row(vec![
            s.part.stage.to_string(),
            change(&s.time_s, &scale),
            format!("{:.1} %", 100.0 * s.time_s.value / path.mean_step_s),
            format!("{:.2}", s.probability),
        ]);
    }
    table
}

fn path_workers(path: &PathReport, whole: bool) -> Table {
    const SHOWN: usize = 12;
    let scale = Scale::new(path.mean_step_s, finest(path.workers.iter().map(|k| &k.time_s)));
    let (time, slack) =
        (format!(">time on it, {}", scale.unit), format!(">slack of its compute, {}", scale.unit));
    let shown = if whole { path.workers.len() } else { path.workers.len().min(SHOWN) };
    let title = if shown < path.workers.len() {
        format!(
            "Critical path by worker, most time first ({shown} of {}; `-v` shows all)",
            path.workers.len()
        )
    } else {
        "Critical path by worker, most time first".to_owned()
    };
    let mut table = Table::new(title, &[">rank", ">dp", ">stage", &time, ">probability", &slack]);
    let mut order: Vec<usize> = (0..path.workers.len()).collect();
    let key = |i: &usize| path.workers[*i].time_s.value;
    order.sort_by(|a, b| key(b).total_cmp(&key(a)).then(a.cmp(b)));
    for w in order.into_iter().take(shown).map(|i| &path.workers[i]) {
        let spare = path.slack.iter().find(|s| s.worker == w.part);
        table.row(vec![
            w.part.rank.to_string(),
            w.part.dp.to_string(),
            w.part.stage.to_string(),
            change(&w.time_s, &scale),
            format!("{:.2}", w.probability),
            spare.map_or("-".to_owned(), |s| change(&s.slack_s, &scale)),
        ]);
    }
    table
}

fn path_lines(path: &TypicalPath) -> Table {
    let scale = Scale::new(path.step_s, path.step_s * 1e-5);
    let title = format!(
        "Critical path of the sampled step nearest to p{} ({}); every line has slack 0",
        (path.quantile * 1e11).round() / 1e9,
        scale.with_unit(path.step_s)
    );
    let (delay, arrival) = (format!(">takes, {}", scale.unit), format!(">arrival, {}", scale.unit));
    let mut table = Table::new(title, &["operation", "", ">dp", ">stage", &delay, &arrival]);
    for line in &path.lines {
        table.row(vec![
            format!("{}[{}]", line.op.kind, line.op.seq),
            what(line.what).to_owned(),
            line.op.dp.to_string(),
            line.op.stage.to_string(),
            scale.show(line.delay_s),
            scale.show(line.arrival_s),
        ]);
    }
    table
}
