//! The result of a validation.

use prism_engine::profile::{JobFile, SourceFile};
use prism_engine::validate::{
    Deviation, Errors, PartScore, PredictorScore, ReplicaScore, SplitReport, ValidateReport,
};
use serde::{Deserialize, Serialize};

use crate::csv_table::number;
use crate::number::{Scale, count, seconds};
use crate::{Document, ReportError, Table, Tone, csv_text};

/// Parts that are shown without being asked for all.
const SHOWN: usize = 12;

/// Predictions against held-out steps of a trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ValidateOutput {
    /// The figures.
    #[serde(flatten)]
    pub report: ValidateReport,
    /// Files read.
    pub sources: Vec<SourceFile>,
    /// The recorded job's plan.
    pub job: JobFile,
    /// Steps that were dropped as incomplete.
    pub steps_dropped: Vec<i64>,
}

impl ValidateOutput {
    /// For people; with all parts if asked.
    pub fn document(&self, all: bool) -> Document {
        let r = &self.report;
        let scale = Scale::new(r.mean_step_s, r.sd_step_s);
        let mut document = Document::new(format!(
            "Predictions of {} against steps not seen: {} recorded steps, {} mean, {} s.d.; {} \
             graph, {} samples each, seed {}",
            self.sources.first().map_or("-", |s| s.name.as_str()),
            count(r.steps),
            scale.with_unit(r.mean_step_s),
            scale.with_unit(r.sd_step_s),
            r.builder,
            count(r.samples),
            r.seed,
        ));
        for split in &r.splits {
            document.table(predictors(split));
        }
        document
            .line("Errors: mean absolute over the splits, % of the figure and (in held-out s.d.s)");
        let limit = if all { usize::MAX } else { SHOWN };
        let mut table = parts(&r.parts);
        let left_out = table.rows.len().saturating_sub(limit);
        table.rows.truncate(limit);
        document.table(table);
        if left_out > 0 {
            document.line(format!("and {left_out} more; `-v` shows all"));
        }
        document.table(replicas(&r.leave_one_replica_out));
        document.warnings.clone_from(&r.warnings);
        document
    }

    /// One row a split and predictor.
    ///
    /// # Errors
    /// [`ReportError::Csv`].
    pub fn csv(&self) -> Result<String, ReportError> {
        let header = [
            "split",
            "repetitions",
            "held_out",
            "predictor",
            "mean_error_percent",
            "mean_error_sds",
            "p50_error_percent",
            "p50_error_sds",
            "p95_error_percent",
            "p95_error_sds",
            "p95_bias_percent",
            "p95_bias_sds",
            "sd_ratio",
            "ks",
            "ks_floor",
        ];
        let mut rows = Vec::new();
        for split in &self.report.splits {
            for p in &split.predictors {
                let mut row = vec![
                    split.split.clone(),
                    split.repetitions.to_string(),
                    split.held_out.to_string(),
                    p.predictor.clone(),
                ];
                let pair = |d: &Deviation| [Some(d.percent), Some(d.sds)];
                let numbers = pair(&p.mean.mean_absolute)
                    .into_iter()
                    .chain(pair(&p.p50.mean_absolute))
                    .chain(pair(&p.p95.mean_absolute))
                    .chain(pair(&p.p95.bias))
                    .chain([p.sd_ratio, Some(p.ks), Some(p.ks_floor)]);
                row.extend(numbers.map(number));
                rows.push(row);
            }
        }
        csv_text(&header, &rows)
    }
}

/// All predictors on one kind of split.
fn predictors(split: &SplitReport) -> Table {
    let floor = split.predictors.first().map_or(f64::NAN, |p| p.ks_floor);
    let times = if split.repetitions == 1 { "" } else { " times" };
    let title = format!(
        "{}: {}{times}, {} steps held out; a perfect model's KS is {floor:.3}",
        capitalised(&split.split),
        split.repetitions,
        split.held_out,
    );
    let columns = ["", ">mean", ">p50", ">p95", ">p95 bias", ">s.d. ratio", ">KS (n = held out)"];
    let mut table = Table::new(title, &columns);
    for (i, p) in split.predictors.iter().enumerate() {
        table.toned(row(p), if i == 0 { Tone::Strong } else { Tone::Plain });
    }
    table
}

fn row(p: &PredictorScore) -> Vec<String> {
    let error =
        |e: &Errors| format!("{:.2} % ({:.2})", e.mean_absolute.percent, e.mean_absolute.sds);
    vec![
        p.predictor.clone(),
        error(&p.mean),
        error(&p.p50),
        error(&p.p95),
        format!("{:+.2} % ({:+.2})", p.p95.bias.percent, p.p95.bias.sds),
        p.sd_ratio.map_or_else(|| "-".to_owned(), |r| format!("{r:.2}")),
        format!("{:.3}", p.ks),
    ]
}

fn parts(parts: &[PartScore]) -> Table {
    let mut table = Table::new(
        "Parts of a step that no fit to totals could know",
        &["", ">held out", ">predicted", ">error, % of step", ">error, s.d.s", ">s.d. ratio"],
    );
    for p in parts {
        table.row(vec![
            p.part.clone(),
            seconds(p.held_out_mean_s),
            seconds(p.predicted_mean_s),
            format!("{:.3} %", p.error_percent_of_step),
            ratio(p.error_sds),
            ratio(p.sd_ratio),
        ]);
    }
    table
}

fn replicas(replicas: &[ReplicaScore]) -> Table {
    let mut table = Table::new(
        "Each replica's compute finish, from the other replicas",
        &[
            ">replica",
            ">recorded",
            ">predicted",
            ">error",
            "95 % over clusters",
            "",
            ">s.d. ratio",
            "note",
        ],
    );
    for r in replicas {
        let scale = Scale::new(r.recorded_mean_s, r.recorded_mean_s * 1e-3);
        table.toned(
            vec![
                r.replica.to_string(),
                scale.with_unit(r.recorded_mean_s),
                scale.with_unit(r.predicted_mean_s),
                format!("{:+.2} %", r.mean_error_percent),
                r.over_clusters_s.map_or_else(
                    || "-".to_owned(),
                    |(low, high)| format!("{} to {}", scale.show(low), scale.show(high)),
                ),
                match r.inside {
                    Some(true) => "inside",
                    Some(false) => "outside",
                    None => "-",
                }
                .to_owned(),
                format!("{:.2}", r.sd_ratio),
                if r.outlier { "not of the others' population" } else { "" }.to_owned(),
            ],
            if r.outlier { Tone::Dim } else { Tone::Plain },
        );
    }
    table
}

/// A ratio; none where there is nothing to divide by.
fn ratio(value: f64) -> String {
    if value.is_finite() { format!("{value:.2}") } else { "-".to_owned() }
}

fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |c| c.to_uppercase().chain(chars).collect())
}
