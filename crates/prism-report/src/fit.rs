//! What was fitted to measured times.

use prism_engine::planned::{Core, FittedParameter, Identified};
use prism_engine::profile::SourceFile;
use serde::{Deserialize, Serialize};

use crate::csv_table::number;
use crate::{Document, ReportError, Table, csv_text};

/// Version of the output of `prism fit-cluster`.
pub const FIT_CLUSTER_SCHEMA: &str = "prism.fit-cluster/1";
/// Version of the output of `prism fit-job`.
pub const FIT_JOB_SCHEMA: &str = "prism.fit-job/1";

/// A measured time and what the fitted costs say.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct FittedPoint {
    /// Which measurement: file and line.
    pub place: String,
    /// Measured, seconds.
    pub measured_s: f64,
    /// Predicted over measured, less 1.
    pub error: f64,
}

/// Efficiencies fitted to measured steps and collectives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct FitClusterOutput {
    /// [`FIT_CLUSTER_SCHEMA`].
    pub schema: String,
    /// Files read.
    pub sources: Vec<SourceFile>,
    /// Keys that replaced the job file's.
    pub set: Vec<String>,
    /// Parameters.
    pub parameters: Vec<FittedParameter>,
    /// Measurements.
    pub points: Vec<FittedPoint>,
    /// Root mean square of the errors, those beyond 30 % bounded.
    pub rms: f64,
    /// Whether the search converged.
    pub converged: bool,
    /// File with the fitted job; null without `-o`.
    pub file: Option<String>,
    /// What the reader must know.
    pub warnings: Vec<String>,
}

impl FitClusterOutput {
    /// For people.
    pub fn document(&self) -> Document {
        let n = self.points.len();
        let mut errors: Vec<f64> = self.points.iter().map(|p| p.error.abs()).collect();
        errors.sort_by(f64::total_cmp);
        let mean = errors.iter().sum::<f64>() / n.max(1) as f64;
        let middle = match n {
            0 => f64::NAN,
            _ => 0.5 * (errors[n / 2] + errors[(n - 1) / 2]),
        };
        let mut document = Document::new(format!(
            "{} parameters fitted to {n} measurements: mean absolute error {:.2} %, median {:.2} %",
            self.parameters.len(),
            100.0 * mean,
            100.0 * middle
        ));
        document.table(parameters(&self.parameters));
        document.table(worst(&self.points));
        document.warnings.clone_from(&self.warnings);
        document
    }

    /// One row a parameter.
    ///
    /// # Errors
    /// [`ReportError::Csv`].
    pub fn csv(&self) -> Result<String, ReportError> {
        parameters_csv(&self.parameters)
    }
}

/// What step times alone tell of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct FitJobOutput {
    /// [`FIT_JOB_SCHEMA`].
    pub schema: String,
    /// Files read.
    pub sources: Vec<SourceFile>,
    /// Keys that replaced the job files'.
    pub set: Vec<String>,
    /// Job files, in order.
    pub jobs: Vec<String>,
    /// Core of each job's steps.
    pub cores: Vec<Core>,
    /// Efficiency and fixed overhead.
    pub parameters: Vec<FittedParameter>,
    /// S.d. of the log factor on whole steps.
    pub step_sd: f64,
    /// S.d. of the fixed overhead, seconds; null with one job, which cannot tell it from the former.
    pub overhead_sd_s: Option<f64>,
    /// Effects that step times do not tell; they stay as the job file has them.
    pub kept: Vec<String>,
    /// File with the fitted job; null without `-o`.
    pub file: Option<String>,
    /// What the reader must know.
    pub warnings: Vec<String>,
}

impl FitJobOutput {
    /// For people.
    pub fn document(&self) -> Document {
        let steps: usize = self.cores.iter().map(|c| c.steps).sum();
        let mut document =
            Document::new(format!("{} fitted to {steps} steps of the core", self.jobs.join(", ")));
        let mut table =
            Table::new("Core steps", &["job", ">steps", ">median s", ">s.d. %", ">stalls", ">x"]);
        for (job, core) in self.jobs.iter().zip(&self.cores) {
            table.row(vec![
                job.clone(),
                core.steps.to_string(),
                format!("{:.4}", core.median_s),
                format!("{:.3}", 100.0 * core.sd_s / core.mean_s),
                core.stalls.to_string(),
                core.stall_ratio.map_or("-".to_owned(), |r| format!("{r:.2}")),
            ]);
        }
        document.table(table);
        document.table(parameters(&self.parameters));
        document.line(format!("step_sd = {:.5} ({:.3} %)", self.step_sd, 100.0 * self.step_sd));
        match self.overhead_sd_s {
            Some(sd) => document.line(format!("overhead_sd_s = {sd:.5} s")),
            None => document.line(
                "overhead_sd_s is not told from step_sd by one job: give another of a different \
                 step time with `--also`",
            ),
        }
        document.line(format!("not told by step times, kept: {}", self.kept.join(", ")));
        document.warnings.clone_from(&self.warnings);
        document
    }

    /// One row a parameter.
    ///
    /// # Errors
    /// [`ReportError::Csv`].
    pub fn csv(&self) -> Result<String, ReportError> {
        let mut all = self.parameters.clone();
        let spread = |name: &str, value: f64| FittedParameter {
            of: "variability".to_owned(),
            name: name.to_owned(),
            value,
            standard_error: None,
            low: 0.0,
            high: f64::INFINITY,
            at_bound: false,
            identified: Identified::Yes,
        };
        all.push(spread("step_sd", self.step_sd));
        all.extend(self.overhead_sd_s.map(|sd| spread("overhead_sd_s", sd)));
        parameters_csv(&all)
    }
}

fn known(parameter: &FittedParameter) -> String {
    let word = match parameter.identified {
        Identified::Yes => "yes",
        Identified::Weakly => "weakly",
        Identified::No => "no",
    };
    if parameter.at_bound { format!("{word}, at its bound") } else { word.to_owned() }
}

fn parameters(all: &[FittedParameter]) -> Table {
    let columns = ["of", "parameter", ">value", ">s.e.", ">from", ">to", "identified"];
    let mut table = Table::new("Efficiency", &columns);
    for p in all {
        table.row(vec![
            p.of.clone(),
            p.name.clone(),
            format!("{:.4e}", p.value),
            p.standard_error.map_or("-".to_owned(), |e| format!("{e:.1e}")),
            format!("{:e}", p.low),
            format!("{:e}", p.high),
            known(p),
        ]);
    }
    table
}

/// The ten largest errors.
fn worst(points: &[FittedPoint]) -> Table {
    let mut order: Vec<&FittedPoint> = points.iter().collect();
    order.sort_by(|a, b| b.error.abs().total_cmp(&a.error.abs()));
    let title = if points.len() > 10 { "Ten largest errors" } else { "Errors" };
    let mut table = Table::new(title, &["measurement", ">measured s", ">error %"]);
    for p in order.into_iter().take(10) {
        table.row(vec![
            p.place.clone(),
            format!("{:.6}", p.measured_s),
            format!("{:+.2}", 100.0 * p.error),
        ]);
    }
    table
}

fn parameters_csv(all: &[FittedParameter]) -> Result<String, ReportError> {
    let header = ["of", "parameter", "value", "standard_error", "identified"];
    let rows: Vec<Vec<String>> = all
        .iter()
        .map(|p| {
            vec![
                p.of.clone(),
                p.name.clone(),
                number(Some(p.value)),
                number(p.standard_error),
                known(p),
            ]
        })
        .collect();
    csv_text(&header, &rows)
}
