//! What `prism init` wrote, and the presets there are.

use serde::{Deserialize, Serialize};

use crate::{Document, JobSummary, ReportError, Table, csv_text};

/// Version of the output.
pub const INIT_SCHEMA: &str = "prism.init/1";
/// Version of the list.
pub const PRESETS_SCHEMA: &str = "prism.presets/1";

/// A job file that was written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct InitOutput {
    /// [`INIT_SCHEMA`].
    pub schema: String,
    /// The file.
    pub file: String,
    /// The job; null where the file is not complete or not possible yet.
    pub job: Option<JobSummary>,
    /// What was not given, and chosen.
    pub chosen: Vec<String>,
    /// Keys that the file still needs, each with what to write.
    pub missing: Vec<String>,
    /// Settings of the import that mean nothing for the cost of a step.
    pub ignored: Vec<String>,
    /// What the reader must know.
    pub warnings: Vec<String>,
}

impl InitOutput {
    /// For people.
    pub fn document(&self) -> Document {
        let what = match &self.job {
            Some(job) => job.in_words(),
            None => "a job that is not complete yet".to_owned(),
        };
        let file = if self.file == "-" { "standard output" } else { &self.file };
        let mut document = Document::new(format!("Wrote {file}: {what}"));
        if !self.chosen.is_empty() {
            document.line(format!("chosen: {}", self.chosen.join("; ")));
        }
        if !self.ignored.is_empty() {
            document.line(format!(
                "ignored, no part in the cost of a step: {}",
                self.ignored.join(", ")
            ));
        }
        document.warnings = self.missing.iter().map(|m| format!("missing: {m}")).collect();
        document.warnings.extend(self.warnings.iter().cloned());
        document
    }

    /// One row a remark.
    ///
    /// # Errors
    /// [`ReportError::Csv`].
    pub fn csv(&self) -> Result<String, ReportError> {
        let kinds = [
            ("chosen", &self.chosen),
            ("missing", &self.missing),
            ("ignored", &self.ignored),
            ("warning", &self.warnings),
        ];
        let mut rows = vec![["file".to_owned(), self.file.clone()]];
        for (kind, all) in kinds {
            rows.extend(all.iter().map(|text| [kind.to_owned(), text.clone()]));
        }
        csv_text(&["kind", "text"], &rows)
    }
}

/// A preset by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Preset {
    /// As job files write it.
    pub name: String,
    /// What it is and where its figures come from.
    pub describe: String,
}

/// A list of presets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct PresetsOutput {
    /// [`PRESETS_SCHEMA`].
    pub schema: String,
    /// Of what: `models`, `gpus`, `clusters` or `variabilities`.
    pub what: String,
    /// In a fixed order.
    pub presets: Vec<Preset>,
}

impl PresetsOutput {
    /// For people.
    pub fn document(&self) -> Document {
        let mut document = Document::new(format!("Presets: {}", self.what));
        let mut table = Table::new("", &["name", "what it is, and where its figures come from"]);
        for preset in &self.presets {
            table.row(vec![preset.name.clone(), preset.describe.clone()]);
        }
        document.table(table);
        document
    }

    /// One row a preset.
    ///
    /// # Errors
    /// [`ReportError::Csv`].
    pub fn csv(&self) -> Result<String, ReportError> {
        let rows: Vec<[String; 2]> =
            self.presets.iter().map(|p| [p.name.clone(), p.describe.clone()]).collect();
        csv_text(&["name", "describe"], &rows)
    }
}
