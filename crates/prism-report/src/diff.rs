//! The result of a comparison.

use prism_decide::diff::{
    DiffReport, Finding, Measure, Overall, Parts, StatisticChange, StepChange,
};
use prism_engine::predict::{Bounds, ResampleUnit};
use prism_engine::profile::SourceFile;
use serde::{Deserialize, Serialize};

use crate::csv_table::number;
use crate::number::{Scale, count, p_value, percent, seconds};
use crate::{Document, ReportError, Table, Tone, csv_text};

/// Findings that are shown without being asked for all.
const SHOWN: usize = 12;

/// Whether B is slower than A by more than a tolerance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ToleranceResult {
    /// The tolerance, a share of A's mean step time.
    pub tolerance: f64,
    /// Whether B's mean exceeds A's by more than that, the whole interval included.
    pub slower: bool,
}

/// Two jobs compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct DiffOutput {
    /// The figures.
    #[serde(flatten)]
    pub report: DiffReport,
    /// Files of A.
    pub a_sources: Vec<SourceFile>,
    /// Files of B.
    pub b_sources: Vec<SourceFile>,
    /// Whether a tolerance was kept; none if none was asked for.
    pub tolerance: Option<ToleranceResult>,
}

impl DiffOutput {
    /// For people; with all findings if asked.
    pub fn document(&self, all: bool) -> Document {
        let r = &self.report;
        let name = |sources: &[SourceFile]| {
            sources.first().map_or_else(|| "-".to_owned(), |s| s.name.clone())
        };
        let mut document = Document::new(format!(
            "A = {}, B = {}: {} and {} steps, seed {}",
            name(&self.a_sources),
            name(&self.b_sources),
            count(r.overall.a_steps),
            count(r.overall.b_steps),
            r.seed,
        ));
        if let Some(mean) = r.overall.mean() {
            document.blocks.push(crate::Block::Line(verdict(mean, r), Tone::Strong));
        }
        if let Some(t) = &self.tolerance {
            let (not, tone) = if t.slower { ("", Tone::Bad) } else { ("not ", Tone::Good) };
            let text = format!(
                "B is {not}slower than A by more than {} with {} confidence",
                percent(t.tolerance),
                percent(r.confidence)
            );
            document.blocks.push(crate::Block::Line(text, tone));
        }
        document.table(statistics(&r.overall, r.confidence));
        document.line(tests(&r.overall));
        if let Some(parts) = &r.parts {
            inside(&mut document, parts, r, all);
        }
        document.warnings.clone_from(&r.warnings);
        document
    }

    /// One row a statistic of step time, then one row a finding.
    ///
    /// # Errors
    /// [`ReportError::Csv`].
    pub fn csv(&self) -> Result<String, ReportError> {
        let header = [
            "what",
            "name",
            "measure",
            "a",
            "b",
            "change",
            "change_lower",
            "change_upper",
            "p_corrected",
            "added_to_a_mean_s",
            "added_to_a_mean_s_lower",
            "added_to_a_mean_s_upper",
            "added_to_a_p95_s",
            "removed_from_b_mean_s",
        ];
        let mut rows = Vec::new();
        for s in &self.report.overall.statistics {
            let mut row = vec!["step-time".to_owned(), s.statistic.clone(), "seconds".to_owned()];
            let relative = |v: f64| v - 1.0;
            row.extend(
                [
                    Some(s.a_s),
                    Some(s.b_s),
                    s.ratio.map(relative),
                    s.ratio_interval.map(|i| relative(i.lower)),
                    s.ratio_interval.map(|i| relative(i.upper)),
                ]
                .map(number),
            );
            row.extend(vec![String::new(); 6]);
            rows.push(row);
        }
        for f in self.report.findings() {
            let mut row = vec!["finding".to_owned(), f.name.clone(), measure(f.measure).to_owned()];
            let added = f.added_to_a.as_ref();
            let interval = added.and_then(|c| c.mean_interval_s);
            row.extend(
                [
                    Some(f.a),
                    Some(f.b),
                    Some(f.change),
                    f.interval.map(|i| i.lower),
                    f.interval.map(|i| i.upper),
                    Some(f.p_corrected),
                    added.map(|c| c.mean_s),
                    interval.map(|i| i.lower),
                    interval.map(|i| i.upper),
                    added.map(|c| c.p95_s),
                    f.removed_from_b.as_ref().map(|c| c.mean_s),
                ]
                .map(number),
            );
            rows.push(row);
        }
        csv_text(&header, &rows)
    }
}

const fn measure(measure: Measure) -> &'static str {
    match measure {
        Measure::Duration => "duration-ratio",
        Measure::Seconds => "seconds",
        Measure::SdLog => "sd-log-ratio",
    }
}

/// As hyperfine says it; no verdict where the interval holds 1.
fn verdict(mean: &StatisticChange, r: &DiffReport) -> String {
    let (Some(ratio), Some(interval)) = (mean.ratio, mean.ratio_interval) else {
        return "The mean step times cannot be compared: too few independent units".to_owned();
    };
    let steps = format!(
        "at the mean ({} and {} steps, {} confidence)",
        count(r.overall.a_steps),
        count(r.overall.b_steps),
        percent(r.confidence)
    );
    let (ratio, half, word) = if interval.lower > 1.0 {
        (ratio, 0.5 * (interval.upper - interval.lower), "slower")
    } else if interval.upper < 1.0 {
        (1.0 / ratio, 0.5 * (1.0 / interval.lower - 1.0 / interval.upper), "faster")
    } else {
        return format!(
            "No difference shown {steps}: B takes {} of A's time",
            times(ratio, 0.5 * (interval.upper - interval.lower))
        );
    };
    format!("B is {} {word} than A {steps}", times(ratio, half))
}

/// `1.07 ± 0.01 x`, with digits that show the error.
fn times(ratio: f64, half: f64) -> String {
    let decimals = if half > 0.0 && half.is_finite() {
        (1.0 - half.log10().floor()).clamp(2.0, 6.0) as usize
    } else {
        4
    };
    format!("{ratio:.decimals$} ± {half:.decimals$} x")
}

fn statistics(overall: &Overall, confidence: f64) -> Table {
    let interval = format!("{} interval", percent(confidence));
    let columns = ["", ">A", ">B", ">B / A", interval.as_str()];
    let mut table = Table::new("Recorded step time", &columns);
    let sd = overall.statistics.iter().find(|s| s.statistic == "sd");
    let finest = sd.map_or(0.0, |s| s.a_s.min(s.b_s));
    let largest = overall.statistics.iter().map(|s| s.a_s.max(s.b_s)).fold(0.0, f64::max);
    let scale = Scale::new(largest, finest);
    for s in &overall.statistics {
        table.row(vec![
            if s.statistic == "sd" { "s.d.".to_owned() } else { s.statistic.clone() },
            scale.with_unit(s.a_s),
            scale.with_unit(s.b_s),
            s.ratio.map_or_else(|| "-".to_owned(), |r| format!("{r:.4}")),
            s.ratio_interval
                .map_or_else(|| "-".to_owned(), |i| format!("{:.4} to {:.4}", i.lower, i.upper)),
        ]);
    }
    table
}

fn tests(overall: &Overall) -> String {
    let list: Vec<String> =
        overall.tests.iter().map(|t| format!("{} p = {}", t.name, p_value(t.p_value))).collect();
    format!("{}; on {}", list.join(", "), units(overall.unit, (overall.a_units, overall.b_units)))
}

fn units(unit: ResampleUnit, (a, b): (usize, usize)) -> String {
    let what = match unit {
        ResampleUnit::Step => "steps",
        ResampleUnit::Window => "windows of steps",
        ResampleUnit::Block => "blocks of steps",
    };
    format!("{} and {} {what}", count(a), count(b))
}

/// Findings, what they explain, effects, and what has no counterpart.
fn inside(document: &mut Document, parts: &Parts, r: &DiffReport, all: bool) {
    let total = parts.explained.total.mean_s.abs();
    if parts.findings.is_empty() {
        document.line(format!(
            "Inside the step: no change among {} tests at a corrected p below {}",
            count(parts.tests),
            r.alpha
        ));
    } else {
        let shown = if all { parts.findings.len() } else { parts.findings.len().min(SHOWN) };
        let title = format!(
            "What changed: {} tests, corrected p < {}; step time: mean, B's value put into A",
            count(parts.tests),
            r.alpha
        );
        let columns =
            ["", ">A", ">B", ">change", "interval", ">p", ">mean, added to A", ">removed from B"];
        let mut table = Table::new(title, &columns);
        for f in &parts.findings[..shown] {
            table.row(finding(f, total));
        }
        document.table(table);
        if shown < parts.findings.len() {
            document.line(format!("and {} more; `-v` shows all", parts.findings.len() - shown));
        }
        document.table(explained(parts));
        document.line(format!(
            "Recorded change of the mean: {}; single changes need not sum up, where parts overlap they \
             hide each other",
            signed(parts.explained.recorded_mean_s)
        ));
    }
    document.table(effects(parts));
    for u in &parts.unmatched {
        let mut names: Vec<String> = u.signatures.iter().take(6).map(ToString::to_string).collect();
        if u.signatures.len() > names.len() {
            names.push(format!("and {} more", u.signatures.len() - names.len()));
        }
        let whose = match u.side.as_str() {
            "both" => "Not compared".to_owned(),
            side => format!("Only in {side}"),
        };
        let list =
            if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) };
        document.line(format!("{whose}: {}{list}", u.what));
    }
}

fn finding(f: &Finding, total: f64) -> Vec<String> {
    let level = |v: f64| match f.measure {
        Measure::Duration | Measure::Seconds => seconds(v),
        Measure::SdLog => format!("{v:.4}"),
    };
    let change = |v: f64| match f.measure {
        Measure::Seconds => signed(v),
        _ => signed_percent(v),
    };
    let mut name = f.name.clone();
    if f.measure == Measure::SdLog {
        name.push_str(" (s.d. of log)");
    }
    vec![
        name,
        level(f.a),
        level(f.b),
        change(f.change),
        f.interval.map_or_else(
            || "-".to_owned(),
            |i| format!("{} to {}", change(i.lower), change(i.upper)),
        ),
        p_value(f.p_corrected),
        f.added_to_a.as_ref().map_or_else(|| "-".to_owned(), |c| share(c, total)),
        f.removed_from_b.as_ref().map_or_else(|| "-".to_owned(), |c| share(c, total)),
    ]
}

/// A change of the mean with the half-width of its interval.
fn share(change: &StepChange, total: f64) -> String {
    let half =
        change.mean_interval_s.map_or_else(String::new, |i| format!(" ± {}", seconds(half(i))));
    let part = if total > 0.0 && change.mean_s.abs() > 0.01 * total {
        format!(" ({:.0} %)", 100.0 * change.mean_s.abs() / total)
    } else {
        String::new()
    };
    format!("{}{half}{part}", signed(change.mean_s))
}

fn half(interval: Bounds) -> f64 {
    0.5 * (interval.upper - interval.lower)
}

/// A time with its sign; what is below a nanosecond is none.
fn signed(value_s: f64) -> String {
    let value_s = if value_s.abs() < 1e-9 { 0.0 } else { value_s };
    let sign = if value_s > 0.0 { "+" } else { "" };
    format!("{sign}{}", seconds(value_s))
}

fn signed_percent(share: f64) -> String {
    let sign = if share > 0.0 { "+" } else { "" };
    format!("{sign}{}", percent(share))
}

fn explained(parts: &Parts) -> Table {
    let e = &parts.explained;
    let columns = ["", ">mean", "interval", ">p95", "interval"];
    let mut table = Table::new("Change of the predicted step time, B less A", &columns);
    // Predictions are single precision: a difference of them has no more digits than that.
    let least = 1e-5 * e.total.mean_s.abs().max(e.joint.mean_s.abs());
    let rounded = |v: f64| if v.abs() < least { 0.0 } else { v };
    for (name, c) in [
        ("total", &e.total),
        ("findings, summed one by one", &e.sum),
        ("findings, all at once", &e.joint),
        ("remainder", &e.remainder),
    ] {
        let interval = |i: Option<Bounds>| {
            i.map_or_else(
                || "-".to_owned(),
                |i| format!("{} to {}", signed(i.lower), signed(i.upper)),
            )
        };
        table.row(vec![
            name.to_owned(),
            signed(rounded(c.mean_s)),
            interval(c.mean_interval_s),
            signed(rounded(c.p95_s)),
            interval(c.p95_interval_s),
        ]);
    }
    table
}

fn effects(parts: &Parts) -> Table {
    let columns = ["effect", ">A", ">B", ">p of a change"];
    let mut table = Table::new("S.d. of effects, log time", &columns);
    let sd = |v: Option<f64>| v.map_or_else(|| "dropped".to_owned(), |v| format!("{v:.4}"));
    for e in &parts.effects {
        table.toned(
            vec![
                e.effect.to_string(),
                sd(e.a_sd_log),
                sd(e.b_sd_log),
                e.p_corrected.map_or_else(|| "not tested".to_owned(), p_value),
            ],
            Tone::Dim,
        );
    }
    table
}
