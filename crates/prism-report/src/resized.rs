//! What a resized job took beyond what was recorded.

use prism_engine::resize::{Extrapolation, Resizer, Severity};
use prism_model::DurationModel;
use serde::{Deserialize, Serialize};

use crate::{Block, Document, Table, Tone};

/// A size recorded, and asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SizeChange {
    /// Recorded.
    pub from: u32,
    /// Asked about.
    pub to: u32,
}

/// The sizes of a resized job and what was extrapolated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ResizedOutput {
    /// Data-parallel replicas.
    pub replicas: SizeChange,
    /// Pipeline stages.
    pub stages: SizeChange,
    /// Microbatches per replica and step.
    pub microbatches: SizeChange,
    /// What was taken beyond what was recorded.
    pub extrapolations: Vec<Extrapolation>,
    /// Recorded signatures (kind@stage) that the resized job uses.
    pub signatures_used: Vec<String>,
    /// The others.
    pub signatures_unused: Vec<String>,
}

impl ResizedOutput {
    /// What a resizer does to a model.
    pub fn new(resizer: &Resizer<'_>, model: &DurationModel) -> ResizedOutput {
        let change = |(from, to): (u32, u32)| SizeChange { from, to };
        let (used, unused) = resizer.signatures();
        let names =
            |list: Vec<prism_model::Signature>| list.iter().map(ToString::to_string).collect();
        ResizedOutput {
            replicas: change(resizer.replicas()),
            stages: change(resizer.stages()),
            microbatches: change(resizer.microbatches()),
            extrapolations: resizer.notes(model),
            signatures_used: names(used),
            signatures_unused: names(unused),
        }
    }

    /// A table of what was extrapolated; what is beyond the recorded job is a warning.
    pub(crate) fn add_to(&self, document: &mut Document) {
        let mut table = Table::new(
            "What was extrapolated",
            &["what", ">recorded", ">asked", "on what grounds"],
        );
        for e in &self.extrapolations {
            let tone = match e.severity {
                Severity::Note => Tone::Dim,
                Severity::Warning => Tone::Caution,
                _ => Tone::Plain,
            };
            let cells = [&e.what, &e.from, &e.to, &e.basis].map(Clone::clone).to_vec();
            table.toned(cells, tone);
            if e.severity == Severity::Warning {
                document.warnings.push(format!("{}: {}", e.what, e.basis));
            }
        }
        document.table(table);
        let unused = match self.signatures_unused.as_slice() {
            [] => "none is left out".to_owned(),
            list => format!("left out: {}", list.join(", ")),
        };
        let used = self.signatures_used.len();
        document
            .blocks
            .push(Block::Line(format!("{used} recorded signatures are used; {unused}"), Tone::Dim));
    }
}
