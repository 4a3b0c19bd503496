//! How laws look in files, before their parameters are checked.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Law;
use crate::error::StatsError;

/// The file form of [`Law`]: an object tagged by `family`. Reading checks every parameter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "family", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum RawLaw {
    /// One value.
    Constant {
        /// The value.
        value: f64,
    },
    /// Gaussian.
    Normal {
        /// Mean.
        mean: f64,
        /// Standard deviation, > 0.
        sd: f64,
    },
    /// Gamma.
    Gamma {
        /// Shape, > 0; no unit.
        shape: f64,
        /// Scale, > 0.
        scale: f64,
    },
    /// The logarithm is Gaussian.
    LogNormal {
        /// Mean of the logarithm.
        log_mean: f64,
        /// Standard deviation of the logarithm, > 0.
        log_sd: f64,
    },
    /// A constant plus a log-normal.
    ShiftedLogNormal {
        /// The constant.
        shift: f64,
        /// Mean of the logarithm of what exceeds it.
        log_mean: f64,
        /// Standard deviation of that logarithm, > 0.
        log_sd: f64,
    },
    /// Student's t.
    StudentT {
        /// Centre.
        location: f64,
        /// Scale, > 0; not the standard deviation.
        scale: f64,
        /// Degrees of freedom, > 0.
        dof: f64,
    },
    /// The observed values.
    Empirical {
        /// The values; written in ascending order, read in any.
        values: Vec<f64>,
    },
}

impl TryFrom<RawLaw> for Law {
    type Error = StatsError;

    fn try_from(raw: RawLaw) -> Result<Self, StatsError> {
        match raw {
            RawLaw::Constant { value } => Self::constant(value),
            RawLaw::Normal { mean, sd } => Self::normal(mean, sd),
            RawLaw::Gamma { shape, scale } => Self::gamma(shape, scale),
            RawLaw::LogNormal { log_mean, log_sd } => Self::log_normal(log_mean, log_sd),
            RawLaw::ShiftedLogNormal { shift, log_mean, log_sd } => {
                Self::shifted_log_normal(shift, log_mean, log_sd)
            }
            RawLaw::StudentT { location, scale, dof } => Self::student_t(location, scale, dof),
            RawLaw::Empirical { values } => Self::empirical(values),
        }
    }
}

impl From<Law> for RawLaw {
    fn from(law: Law) -> Self {
        match law {
            Law::Constant(l) => Self::Constant { value: l.value() },
            Law::Normal(l) => Self::Normal { mean: l.location(), sd: l.scale() },
            Law::Gamma(l) => Self::Gamma { shape: l.shape(), scale: l.scale() },
            Law::LogNormal(l) => Self::LogNormal { log_mean: l.log_mean(), log_sd: l.log_sd() },
            Law::ShiftedLogNormal(l) => Self::ShiftedLogNormal {
                shift: l.shift(),
                log_mean: l.log_mean(),
                log_sd: l.log_sd(),
            },
            Law::StudentT(l) => {
                Self::StudentT { location: l.location(), scale: l.scale(), dof: l.dof() }
            }
            Law::Empirical(l) => Self::Empirical { values: l.into_values() },
        }
    }
}
