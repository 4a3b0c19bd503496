//! JSON and its schemas.

use schemars::JsonSchema;
use serde::Serialize;

use crate::ReportError;

/// A value as indented JSON, with a line end.
///
/// # Errors
/// [`ReportError::Json`] if the value has a map with keys that are not text.
pub fn json_text<T: Serialize>(value: &T) -> Result<String, ReportError> {
    let mut text = serde_json::to_string_pretty(value)?;
    text.push('\n');
    Ok(text)
}

/// A value as JSON on one line, with a line end.
///
/// # Errors
/// As [`json_text`].
pub fn json_line<T: Serialize>(value: &T) -> Result<String, ReportError> {
    let mut text = serde_json::to_string(value)?;
    text.push('\n');
    Ok(text)
}

/// The JSON schema (draft 2020-12) of a type, with a line end.
///
/// # Errors
/// [`ReportError::Json`] if the schema cannot be written.
pub fn schema_text<T: JsonSchema>() -> Result<String, ReportError> {
    json_text(&schemars::schema_for!(T))
}
