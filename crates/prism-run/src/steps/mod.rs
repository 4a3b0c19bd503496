//! The law of a run's steps, from logs of a few runs.
//!
//! | part | how |
//! |---|---|
//! | level | a run's mean core step; how far runs are apart is pooled over systems ([`crate::Prior`]) |
//! | profile | what the runs share step by step (schedules, curricula, clock drift), tested, shrunk |
//! | core | AR(1) around level and profile |
//! | warm-up | the excess of the first 10 steps, all together |
//! | after an evaluation, a checkpoint | mean excess of the first step |
//! | stalls | Poisson with a Gamma rate, marks drawn from those seen, sometimes from other systems' |
//! | recurring stalls | those that every run had at the same step |

mod draw;
mod error;
pub(crate) mod evidence;
mod model;
mod profile;
mod recurring;

pub(crate) use draw::Level;
pub use draw::{Shape, Total};
pub use error::StepsError;
pub use evidence::{AfterPause, Evidence, RunEvidence};
pub use model::{Paced, RUN_PROFILE_SCHEMA, RunSource, StepModel};
pub use profile::Profile;
pub use recurring::Recurring;

/// A file of ours: of the right version first, then whole.
pub(crate) fn file<T: serde::de::DeserializeOwned>(
    text: &str,
    schema: &str,
    what: &'static str,
) -> Result<T, StepsError> {
    let refused = |why| StepsError::File { what, why };
    let value: serde_json::Value =
        serde_json::from_str(text).map_err(|e| refused(e.to_string()))?;
    let found = value.get("schema").and_then(serde_json::Value::as_str);
    if found != Some(schema) {
        let found = found.map_or("none".to_owned(), |s| format!("`{s}`"));
        return Err(refused(format!("its schema is {found}, where `{schema}` is read")));
    }
    serde_json::from_value(value).map_err(|e| refused(e.to_string()))
}
