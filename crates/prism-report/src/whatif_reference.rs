//! The result of the reference what-if analysis.

mod csv;
mod text;

use prism_decide::reference::ReferenceReport;
use prism_engine::profile::{JobFile, SourceFile};
use serde::{Deserialize, Serialize};

/// Version of [`WhatifReferenceOutput`].
pub const WHATIF_REFERENCE_SCHEMA: &str = "prism.whatif-reference/1";

/// What the recorded steps would have taken with less variation.
///
/// | method | gives |
/// |---|---|
/// | [`document`](Self::document) | text for people |
/// | [`csv`](Self::csv) | all figures, one row each |
/// | [`heatmap_csv`](Self::heatmap_csv) | slowdown by worker, one row a replica, one column a stage |
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct WhatifReferenceOutput {
    /// [`WHATIF_REFERENCE_SCHEMA`].
    pub schema: String,
    /// Files read.
    pub sources: Vec<SourceFile>,
    /// The recorded job's plan.
    pub job: JobFile,
    /// Steps that were dropped as incomplete.
    pub steps_dropped: Vec<i64>,
    /// The figures.
    #[serde(flatten)]
    pub report: ReferenceReport,
    /// What to be careful about.
    pub warnings: Vec<String>,
}
