//! What can be wrong with a sample, a parameter or a request.

use crate::law::Family;

/// Why a statistical computation was refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum StatsError {
    /// A parameter of a law is outside its domain.
    #[error("parameter `{parameter}` of {law} is {value}, which is not {domain}")]
    Parameter {
        /// Name of the law.
        law: &'static str,
        /// Name of the parameter.
        parameter: &'static str,
        /// The offending value.
        value: f64,
        /// The domain it should lie in, in words.
        domain: &'static str,
    },
    /// An argument of a function is outside its domain.
    #[error("argument `{argument}` is {value}, which is not {domain}")]
    Argument {
        /// Name of the argument.
        argument: &'static str,
        /// The offending value.
        value: f64,
        /// The domain it should lie in, in words.
        domain: &'static str,
    },
    /// There are fewer values than the method needs.
    #[error("{have} values, where {method} needs at least {need}")]
    TooFew {
        /// What was asked for.
        method: &'static str,
        /// Number of values given.
        have: usize,
        /// Number of values needed.
        need: usize,
    },
    /// A value is not a finite number.
    #[error("value {value} at index {index} is not finite")]
    NotFinite {
        /// Zero-based position in the input.
        index: usize,
        /// The offending value.
        value: f64,
    },
    /// A value lies where the family has no density.
    #[error("value {value} at index {index} is outside the support of {family}")]
    OutOfSupport {
        /// The family fitted.
        family: Family,
        /// Zero-based position in the input.
        index: usize,
        /// The offending value.
        value: f64,
    },
    /// All values are equal, so a spread cannot be fitted.
    #[error("all {n} values equal {value}: {family} has no maximum-likelihood estimate")]
    NoSpread {
        /// The family fitted.
        family: Family,
        /// Number of values.
        n: usize,
        /// Their common value.
        value: f64,
    },
    /// The likelihood grows without an interior maximum.
    #[error("the likelihood of {family} has no interior maximum on these {n} values")]
    NoMaximum {
        /// The family fitted.
        family: Family,
        /// Number of values.
        n: usize,
    },
    /// An iteration ended without reaching its tolerance.
    #[error("{method} did not converge")]
    NoConvergence {
        /// The method that gave up.
        method: &'static str,
    },
    /// Two inputs that must have one length do not.
    #[error("{left_name} has {left} entries and {right_name} has {right}")]
    LengthMismatch {
        /// Name of the first input.
        left_name: &'static str,
        /// Length of the first input.
        left: usize,
        /// Name of the second input.
        right_name: &'static str,
        /// Length of the second input.
        right: usize,
    },
    /// Values that must ascend do not.
    #[error("values descend at index {index}")]
    NotSorted {
        /// Position of the first value smaller than the one before it.
        index: usize,
    },
    /// A table that must have the same number of entries in every cell does not.
    #[error("cell ({row}, {column}) has {have} values, where the others have {need}")]
    Unbalanced {
        /// Row of the cell.
        row: usize,
        /// Column of the cell.
        column: usize,
        /// Number of values in it.
        have: usize,
        /// Number of values expected.
        need: usize,
    },
}

impl StatsError {
    /// What the caller can do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Parameter { .. } => "use a parameter inside the stated domain",
            Self::Argument { .. } => "use an argument inside the stated domain",
            Self::TooFew { .. } => "record more steps, or choose a method that needs fewer",
            Self::NotFinite { .. } => "drop or repair missing measurements before fitting",
            Self::OutOfSupport { .. } => {
                "use a family with the whole line as support, or check the unit"
            }
            Self::NoSpread { .. } => "use the constant law",
            Self::NoMaximum { .. } => "the shape is near a limit: the Normal fits as well",
            Self::NoConvergence { .. } => "check the data for extreme outliers, or use Empirical",
            Self::LengthMismatch { .. } => "give one entry of each per observation",
            Self::NotSorted { .. } => "sort the values in ascending order first",
            Self::Unbalanced { .. } => "give every cell the same number of values",
        }
    }
}

/// Result of this crate's fallible functions.
pub type Result<T> = std::result::Result<T, StatsError>;

/// Checks that there are at least `need` values and that all are finite.
pub(crate) fn check_sample(values: &[f64], need: usize, method: &'static str) -> Result<()> {
    if values.len() < need {
        return Err(StatsError::TooFew { method, have: values.len(), need });
    }
    match values.iter().position(|v| !v.is_finite()) {
        Some(index) => Err(StatsError::NotFinite { index, value: values[index] }),
        None => Ok(()),
    }
}

/// Checks that values are finite and ascend, and that there is at least one.
pub(crate) fn check_sorted(sorted: &[f64], method: &'static str) -> Result<()> {
    check_sample(sorted, 1, method)?;
    match sorted.windows(2).position(|w| w[1] < w[0]) {
        Some(i) => Err(StatsError::NotSorted { index: i + 1 }),
        None => Ok(()),
    }
}

/// Checks that a probability lies strictly inside (0, 1).
pub(crate) fn check_open_unit(argument: &'static str, value: f64) -> Result<()> {
    if value > 0.0 && value < 1.0 {
        Ok(())
    } else {
        Err(StatsError::Argument { argument, value, domain: "strictly between 0 and 1" })
    }
}
