//! What of a search is kept, so that it can go on.

use std::collections::BTreeMap;

use prism_job::Job;
use serde::{Deserialize, Serialize};

use super::{Measured, SearchError, SearchOptions};

/// Version of the checkpoint.
pub const CHECKPOINT_SCHEMA: &str = "prism.search-checkpoint/1";

/// What was predicted of a plan. Times are seconds, over clusters one might be given and steps on
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Predicted {
    /// Mean.
    pub mean: Measured,
    /// Standard deviation.
    pub sd_s: f64,
    /// Median.
    pub p50: Measured,
    /// 95 % quantile.
    pub p95: Measured,
    /// The objective, in its unit.
    pub objective: Measured,
}

/// Evaluated plans of a search, by their number in its fixed order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// [`CHECKPOINT_SCHEMA`].
    pub schema: String,
    /// Fingerprint of the question.
    pub question: String,
    /// Noise-free step times, seconds.
    pub noise_free_s: BTreeMap<u32, f64>,
    /// Predictions.
    pub predicted: BTreeMap<u32, Predicted>,
}

impl Checkpoint {
    pub(super) fn new(question: String) -> Checkpoint {
        Checkpoint { schema: CHECKPOINT_SCHEMA.to_owned(), question, ..Checkpoint::default() }
    }

    /// Refuses a checkpoint of another question, or of plans that are not there.
    pub(super) fn check(&self, question: &str, plans: usize) -> Result<(), SearchError> {
        if self.question != question || self.schema != CHECKPOINT_SCHEMA {
            return Err(SearchError::Question {
                ours: question.to_owned(),
                theirs: self.question.clone(),
            });
        }
        let last = [self.noise_free_s.keys().next_back(), self.predicted.keys().next_back()];
        match last.into_iter().flatten().max() {
            Some(&index) if index as usize >= plans => Err(SearchError::Damaged { index, plans }),
            _ => Ok(()),
        }
    }
}

/// Fingerprint of all that a search's numbers depend on.
pub(super) fn question(job: &Job, options: &SearchOptions) -> String {
    let options = SearchOptions { top: 0, distributions: 0, exhaustive: false, ..options.clone() };
    let text = format!("{} {job:?} {options:?}", env!("CARGO_PKG_VERSION"));
    // FNV-1a, 128 bits.
    let hash = text.bytes().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128, |hash, byte| {
        (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
    });
    format!("{hash:032x}")
}
