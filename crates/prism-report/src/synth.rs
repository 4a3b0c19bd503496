//! What a synthetic trace was made of.

use prism_engine::profile::JobFile;
use prism_engine::synth::SynthTruth;
use serde::{Deserialize, Serialize};

use crate::csv_table::number;
use crate::number::{count, percent};
use crate::{Document, ReportError, Table, csv_text};

/// Version of [`SynthOutput`].
pub const SYNTH_SCHEMA: &str = "prism.synth/1";

/// A synthetic trace, and the truth behind it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SynthOutput {
    /// [`SYNTH_SCHEMA`].
    pub schema: String,
    /// The trace.
    pub file: String,
    /// Its metadata, where that is a file of its own.
    pub meta_file: Option<String>,
    /// Operations recorded.
    pub rows: usize,
    /// Steps recorded.
    pub steps: usize,
    /// Seed.
    pub seed: u64,
    /// The plan.
    pub job: JobFile,
    /// The profile it was drawn from; none for a known truth.
    pub profile: Option<String>,
    /// The effects that were drawn; none for a profile.
    pub truth: Option<SynthTruth>,
}

impl SynthOutput {
    /// For people.
    pub fn document(&self) -> Document {
        let from = match &self.profile {
            Some(profile) => format!("drawn from {profile}"),
            None => "of a known truth".to_owned(),
        };
        let mut document = Document::new(format!(
            "Synthetic trace {from} in {}: {} operations, {} steps, {} replicas x {} stages, seed {}",
            self.file,
            count(self.rows),
            count(self.steps),
            self.job.dp_size,
            self.job.pp_size,
            self.seed,
        ));
        if let Some(truth) = &self.truth {
            let mut table = Table::new("Effects in log time", &["effect", ">realised s.d."]);
            for (kind, sd) in &truth.realised_sd_log {
                table.row(vec![kind.to_string(), percent(*sd)]);
            }
            document.table(table);
        }
        document
    }

    /// One row an effect.
    ///
    /// # Errors
    /// [`ReportError::Csv`].
    pub fn csv(&self) -> Result<String, ReportError> {
        let truth = self.truth.iter().flat_map(|t| &t.realised_sd_log);
        let rows: Vec<[String; 2]> =
            truth.map(|(kind, sd)| [kind.to_string(), number(Some(*sd))]).collect();
        csv_text(&["effect", "realised_sd_log"], &rows)
    }
}
