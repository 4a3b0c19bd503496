//! What other systems teach about one with a few runs.

mod fit;
mod preset;

use prism_stats::pooled::{RatePrior, ScalePrior};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::steps::StepsError;
pub use crate::steps::evidence::AfterPause;
pub(crate) use fit::FEWEST;
pub use fit::fit_prior;
pub use preset::mlperf;

/// Version of the file that this crate writes and reads.
pub const PRIOR_SCHEMA: &str = "prism.run-prior/1";

/// How runs of one system differ, over many systems.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Prior {
    /// [`PRIOR_SCHEMA`].
    pub schema: String,
    /// Name, for reports.
    pub name: String,
    /// Where it comes from.
    pub source: String,
    /// Systems it was fitted to.
    pub systems: usize,
    /// Runs of those.
    pub runs: usize,
    /// How far the logarithms of runs' levels are apart.
    pub shift: ScalePrior,
    /// How far the excess of warm-ups is apart, in core steps.
    pub warm_up: ScalePrior,
    /// Stalls per row.
    pub stalls: RatePrior,
    /// Excess of stalls, in core steps.
    pub marks: Vec<f64>,
    /// First step after an evaluation, for systems that logged none.
    pub after_evaluation: AfterPause,
}

impl Prior {
    /// Reads a prior.
    ///
    /// # Errors
    /// [`StepsError::File`].
    pub fn from_json(text: &str) -> Result<Self, StepsError> {
        let what = "a prior of runs";
        let prior: Prior = crate::steps::file(text, PRIOR_SCHEMA, what)?;
        prior.check().map_err(|why| StepsError::File { what, why })?;
        Ok(prior)
    }

    /// What is wrong with it.
    pub(crate) fn check(&self) -> Result<(), String> {
        let positive = [
            ("shift.scale", self.shift.scale),
            ("shift.dof", self.shift.dof),
            ("warm_up.scale", self.warm_up.scale),
            ("warm_up.dof", self.warm_up.dof),
            ("stalls.shape", self.stalls.shape),
            ("stalls.exposure", self.stalls.exposure),
        ];
        if let Some((name, value)) = positive.iter().find(|p| !(p.1.is_finite() && p.1 > 0.0)) {
            return Err(format!("`{name}` is {value}, which is not finite and positive"));
        }
        match self.marks.iter().find(|m| !(m.is_finite() && **m > 0.0)) {
            Some(m) => Err(format!("`marks` has {m}, which is not finite and positive")),
            None => Ok(()),
        }
    }
}
