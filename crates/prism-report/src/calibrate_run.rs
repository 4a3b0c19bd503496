//! Laws of steps, priors and cross-validations.

use prism_run::cross::{CrossValidation, Summary};
use prism_run::steps::{AfterPause, RunSource};
use prism_run::{Prior, StepModel, StepsError};
use serde::{Deserialize, Serialize};

use crate::csv_table::number;
use crate::{Document, ReportError, Scale, Table, Tone, count, csv_text, seconds};

/// Version of the output of `prism calibrate-run --cross-validate`.
pub const CROSS_SCHEMA: &str = "prism.cross-validation/1";

/// How well runs are predicted from the others of their system.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct CrossOutput {
    /// [`CROSS_SCHEMA`].
    pub schema: String,
    /// Files read.
    pub sources: Vec<RunSource>,
    /// Seed.
    pub seed: u64,
    /// Draws of each total.
    pub samples: usize,
    /// What was found.
    pub result: CrossValidation,
    /// What the reader must know.
    pub warnings: Vec<String>,
}

fn percent(share: f64) -> String {
    if !share.is_finite() {
        return "-".to_owned();
    }
    format!("{:.3}", 100.0 * share)
}

fn after_pause(name: &str, pause: Option<&AfterPause>) -> Option<Vec<String>> {
    let p = pause?;
    Some(vec![
        format!("first step after {name}"),
        format!("{:+.2} % of a step", 100.0 * p.mean),
        format!("mean of {}, s.d. {:.2} %", p.count, 100.0 * p.sd),
    ])
}

/// Names without what all of them begin with, up to a ` / `.
fn short(names: &[&str]) -> Vec<String> {
    let parts: Vec<Vec<&str>> = names.iter().map(|n| n.split(" / ").collect()).collect();
    let shortest = parts.iter().map(Vec::len).min().unwrap_or(1);
    let same = (0..shortest.saturating_sub(1))
        .take_while(|&i| parts.iter().all(|p| p[i] == parts[0][i]))
        .count();
    parts.iter().map(|p| p[same..].join(" / ")).collect()
}

fn runs_table(model: &StepModel) -> Table {
    let e = &model.evidence;
    let names = short(&e.runs.iter().map(|r| r.name.as_str()).collect::<Vec<_>>());
    let columns = ["run", ">steps", ">level s", ">core steps", ">warm-up, steps", ">stalls"];
    let mut table = Table::new("Runs", &columns);
    for (r, name) in e.runs.iter().zip(names) {
        table.row(vec![
            name,
            count(r.steps as usize),
            format!("{:.5}", r.level_s),
            count(r.core_rows * e.averaged_over as usize),
            format!("{:+.2}", r.warm_up),
            r.stalls.len().to_string(),
        ]);
    }
    table
}

fn law_table(model: &StepModel) -> Result<Table, StepsError> {
    let e = &model.evidence;
    let mut table = Table::new("Law of the steps", &["part", "value", "from"]);
    let (low, high) = (model.level_quantile_s(0.05)?, model.level_quantile_s(0.95)?);
    let scale = Scale::new(high, high - low);
    table.row(vec![
        "level of one more run".to_owned(),
        seconds(model.core_s()?),
        format!(
            "90 % interval {} to {}: {} run{}, and {} systems ({})",
            scale.show(low),
            scale.with_unit(high),
            e.runs.len(),
            if e.runs.len() == 1 { "" } else { "s" },
            model.prior.systems,
            model.prior.name
        ),
    ]);
    table.row(vec![
        match e.averaged_over {
            1 => "core CoV".to_owned(),
            k => format!("CoV of means over {k} steps"),
        },
        format!("{} %", percent(e.core_cov)),
        format!("neighbouring steps correlate {:.2}", e.rho),
    ]);
    let course = match &e.profile {
        Some(p) => vec![
            "shared course".to_owned(),
            format!("correlation {:.2}", p.correlation),
            format!("over {} rows, p = {:.3}; taken out of the core", p.deviation.len(), p.p_value),
        ],
        None if e.runs.len() < 2 => vec![
            "shared course".to_owned(),
            "not known".to_owned(),
            "one run cannot tell it from drift".to_owned(),
        ],
        None => vec![
            "shared course".to_owned(),
            "none".to_owned(),
            "runs do not correlate step by step".to_owned(),
        ],
    };
    table.row(course);
    let marks: Vec<f64> = e.marks().collect();
    let mean = marks.iter().sum::<f64>() / marks.len().max(1) as f64;
    table.row(vec![
        "stalls".to_owned(),
        format!("{:.3} in 1,000 steps", 1000.0 * model.stall_rate()?),
        match marks.len() {
            0 => "none seen: rate and lengths are the prior's".to_owned(),
            n => format!("{n} seen, {mean:.2} steps too long on average; Gamma with the prior"),
        },
    ]);
    for r in &e.recurring {
        table.row(vec![
            format!("stall at step {}", span(r.first, r.last)),
            format!("{:+.2} steps", r.typical()),
            "in every run: it belongs to the job".to_owned(),
        ]);
    }
    let pauses = [
        after_pause("an evaluation", e.after_evaluation.as_ref()),
        after_pause("a checkpoint", e.after_checkpoint.as_ref()),
    ];
    pauses.into_iter().flatten().for_each(|row| table.row(row));
    for (name, times) in [("an evaluation", &e.evaluation_s), ("a checkpoint", &e.checkpoint_s)] {
        if !times.is_empty() {
            let mean = times.iter().sum::<f64>() / times.len() as f64;
            table.row(vec![name.to_owned(), seconds(mean), format!("mean of {}", times.len())]);
        }
    }
    Ok(table)
}

fn span(first: i64, last: i64) -> String {
    if first == last { first.to_string() } else { format!("{first} to {last}") }
}

/// A law of steps, for people.
///
/// # Errors
/// [`StepsError::Statistics`].
pub fn run_profile_document(model: &StepModel) -> Result<Document, StepsError> {
    let e = &model.evidence;
    let steps: u64 = e.runs.iter().map(|r| r.steps).sum();
    let mut document = Document::new(format!(
        "{} run{}, {} steps: a core step takes {}",
        e.runs.len(),
        if e.runs.len() == 1 { "" } else { "s" },
        count(steps as usize),
        seconds(model.core_s()?)
    ));
    document.table(runs_table(model));
    document.table(law_table(model)?);
    document.warnings.clone_from(&model.warnings);
    Ok(document)
}

/// One row a run.
///
/// # Errors
/// [`ReportError::Csv`].
pub fn run_profile_csv(model: &StepModel) -> Result<String, ReportError> {
    let header = ["run", "steps", "level_s", "core_rows", "warm_up_steps", "stalls"];
    let rows: Vec<Vec<String>> = model
        .evidence
        .runs
        .iter()
        .map(|r| {
            vec![
                r.name.clone(),
                r.steps.to_string(),
                number(Some(r.level_s)),
                r.core_rows.to_string(),
                number(Some(r.warm_up)),
                r.stalls.len().to_string(),
            ]
        })
        .collect();
    csv_text(&header, &rows)
}

fn prior_rows(prior: &Prior) -> Vec<(&'static str, f64)> {
    vec![
        ("shift.scale", prior.shift.scale),
        ("shift.dof", prior.shift.dof),
        ("warm_up.scale", prior.warm_up.scale),
        ("warm_up.dof", prior.warm_up.dof),
        ("stalls.shape", prior.stalls.shape),
        ("stalls.exposure", prior.stalls.exposure),
        ("after_evaluation.mean", prior.after_evaluation.mean),
        ("after_evaluation.sd", prior.after_evaluation.sd),
    ]
}

/// A prior, for people.
pub fn prior_document(prior: &Prior) -> Document {
    let mut document = Document::new(format!(
        "prior `{}` of {} runs of {} systems",
        prior.name, prior.runs, prior.systems
    ));
    let mut table = Table::new("How runs of one system differ", &["part", ">value", "meaning"]);
    let meanings = [
        "typical s.d. of the logarithm of runs' levels",
        "how much systems agree on it (degrees of freedom)",
        "typical s.d. of warm-ups, in core steps",
        "how much systems agree on it",
        "stalls: as if so many had been seen …",
        "… in so many rows",
        "first step after an evaluation, in core steps: mean over systems",
        "s.d. over systems",
    ];
    for ((name, value), meaning) in prior_rows(prior).into_iter().zip(meanings) {
        table.row(vec![name.to_owned(), format!("{value:.4e}"), meaning.to_owned()]);
    }
    document.table(table);
    document.line(format!("{} stalls to borrow from", prior.marks.len()));
    document
}

/// One row a number.
///
/// # Errors
/// [`ReportError::Csv`].
pub fn prior_csv(prior: &Prior) -> Result<String, ReportError> {
    let rows: Vec<Vec<String>> = prior_rows(prior)
        .into_iter()
        .map(|(name, value)| vec![name.to_owned(), number(Some(value))])
        .collect();
    csv_text(&["part", "value"], &rows)
}

impl CrossOutput {
    /// For people.
    pub fn document(&self, whole: bool) -> Document {
        let c = &self.result;
        let level = 100.0 * c.level;
        let mut document = Document::new(format!(
            "{} of {} runs of {} systems are inside their {level:.0} % interval",
            c.predicted.covered,
            c.runs.len(),
            c.systems
        ));
        document.table(methods(c));
        document.line(format!(
            "CRPS {} %; interval score over that of the best band {:.3} (geometric mean over systems)",
            percent(c.crps),
            c.score_to_band
        ));
        let columns = ["run", ">steps", ">total s", ">error %", ">width %", ">score %", ""];
        let title = if whole { "Runs" } else { "Runs outside" };
        let mut table = Table::new(title, &columns);
        let names = short(&c.runs.iter().map(|r| r.run.as_str()).collect::<Vec<_>>());
        for (r, name) in c.runs.iter().zip(names).filter(|(r, _)| whole || !r.predicted.covered) {
            let cells = vec![
                name,
                r.steps.to_string(),
                format!("{:.2}", r.actual_s),
                format!("{:+.3}", 100.0 * (r.actual_s / r.median_s - 1.0)),
                percent(r.predicted.width),
                percent(r.predicted.score),
                if r.predicted.covered { "" } else { "outside" }.to_owned(),
            ];
            table.toned(cells, if r.predicted.covered { Tone::Plain } else { Tone::Caution });
        }
        document.table(table);
        document.warnings.clone_from(&self.warnings);
        document
    }

    /// One row a run.
    ///
    /// # Errors
    /// [`ReportError::Csv`].
    pub fn csv(&self) -> Result<String, ReportError> {
        let header = [
            "system", "run", "steps", "actual_s", "median_s", "lower_s", "upper_s", "covered",
            "width", "score", "crps",
        ];
        let rows: Vec<Vec<String>> = self
            .result
            .runs
            .iter()
            .map(|r| {
                vec![
                    r.system.clone(),
                    r.run.clone(),
                    r.steps.to_string(),
                    number(Some(r.actual_s)),
                    number(Some(r.median_s)),
                    number(Some(r.predicted.lower_s)),
                    number(Some(r.predicted.upper_s)),
                    r.predicted.covered.to_string(),
                    number(Some(r.predicted.width)),
                    number(Some(r.predicted.score)),
                    number(Some(r.crps)),
                ]
            })
            .collect();
        csv_text(&header, &rows)
    }
}

/// Coverage, width and score of each way to predict.
fn methods(c: &CrossValidation) -> Table {
    let columns =
        ["prediction", ">inside", ">mean width %", ">median %", ">largest %", ">interval score %"];
    let mut table = Table::new(
        "Each run from its system's others, the prior from the other systems; shares of the total",
        &columns,
    );
    let mut row = |name: &str, s: Summary| {
        table.row(vec![
            name.to_owned(),
            format!("{} of {}", s.covered, c.runs.len()),
            percent(s.width_mean),
            percent(s.width_median),
            percent(s.width_max),
            percent(s.score),
        ]);
    };
    row("law of the steps, pooled prior", c.predicted);
    row("N independent steps", c.iid);
    row("Student's t on the other runs", c.student);
    row("best constant band", c.band);
    table
}
