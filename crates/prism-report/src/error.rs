//! What can go wrong in rendering.

/// Why a result cannot be written out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// The value is not representable in JSON.
    #[error("the result cannot be written as JSON")]
    Json {
        /// What the serialiser says.
        #[from]
        source: serde_json::Error,
    },
    /// The rows do not make a table.
    #[error("the result cannot be written as CSV")]
    Csv {
        /// What the writer says.
        #[from]
        source: csv::Error,
    },
}

impl ReportError {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        Some("use `--format human`, and report this: every result should have this form")
    }
}
