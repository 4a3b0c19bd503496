//! Jobs as other programs describe them.

mod hugging_face;
mod megatron;
mod text;
mod torchtitan;

pub use hugging_face::{ImportedModel, hugging_face_model, import_hugging_face};
pub use megatron::import_megatron;
pub use text::JobText;
pub use torchtitan::import_torchtitan;

/// A description that cannot be imported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// It is not in the format it should be in.
    #[error("no {format}: {cause}")]
    Format {
        /// The format.
        format: &'static str,
        /// Why.
        cause: String,
    },
    /// A model family that is not known.
    #[error("model type `{0}` is not known")]
    ModelType(String),
    /// Keys that must be there are not.
    #[error("keys are missing: {}", .0.join(", "))]
    Missing(Vec<String>),
    /// A value that is out of its range.
    #[error("`{key}` cannot be `{value}`")]
    Value {
        /// The key or flag.
        key: String,
        /// Its value.
        value: String,
    },
    /// Settings that change the cost and that a job file cannot say.
    #[error("settings that a job file cannot say: {}", .0.join("; "))]
    Unsupported(Vec<String>),
}

impl ImportError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            ImportError::ModelType(_) => Some(format!(
                "known: {}; others are read if they have Llama's keys",
                hugging_face::MODEL_TYPES.join(", ")
            )),
            ImportError::Unsupported(_) => {
                Some("take them out if their cost does not matter here".to_owned())
            }
            ImportError::Format { .. } | ImportError::Missing(_) | ImportError::Value { .. } => {
                None
            }
        }
    }
}
