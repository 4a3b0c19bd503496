//! Quantities with their units.

/// Text that is no time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TimeError {
    /// A number alone.
    #[error("`{0}` has no unit; write `{0}s` or `{0}ms`")]
    NoUnit(String),
    /// A number with something else.
    #[error("unknown unit `{0}`; use `s`, `ms` or `us`")]
    UnknownUnit(String),
    /// No number.
    #[error("`{0}` is not a time such as `8s`")]
    NotATime(String),
}

/// A time of at least 0 with its unit, in seconds, correctly rounded from its text.
///
/// ```
/// use prism_model::seconds_from_text;
///
/// assert_eq!(seconds_from_text("12.5ms"), Ok(0.0125));
/// assert!(seconds_from_text("12").is_err());
/// ```
///
/// # Errors
/// [`TimeError`].
pub fn seconds_from_text(text: &str) -> Result<f64, TimeError> {
    let text = text.trim();
    let split = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (digits, unit) = text.split_at(split);
    let exponent = match unit.trim() {
        "s" => "e0",
        "ms" => "e-3",
        "us" | "µs" => "e-6",
        "" => return Err(TimeError::NoUnit(text.to_owned())),
        other => return Err(TimeError::UnknownUnit(other.to_owned())),
    };
    let value = format!("{digits}{exponent}").parse::<f64>().ok().filter(|v| v.is_finite());
    value.ok_or_else(|| TimeError::NotATime(text.to_owned()))
}
