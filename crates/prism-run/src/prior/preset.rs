//! The prior that ships.

use prism_stats::pooled::{RatePrior, ScalePrior};

use super::{AfterPause, PRIOR_SCHEMA, Prior};

/// Excess of the stalls that do not recur in every run, in core steps.
const MARKS: [f64; 68] = [
    0.0174, 0.0192, 0.0192, 0.0196, 0.0200, 0.0201, 0.0204, 0.0213, 0.0213, 0.0213, 0.0215, 0.0216,
    0.0219, 0.0223, 0.0228, 0.0231, 0.0236, 0.0240, 0.0241, 0.0248, 0.0250, 0.0250, 0.0250, 0.0259,
    0.0261, 0.0261, 0.0266, 0.0268, 0.0280, 0.0289, 0.0289, 0.0300, 0.0301, 0.0318, 0.0336, 0.0352,
    0.0354, 0.0438, 0.0455, 0.0456, 0.0485, 0.0493, 0.0550, 0.0571, 0.0572, 0.0812, 0.0872, 0.0921,
    0.1061, 0.1070, 0.1149, 0.1153, 0.1182, 0.1242, 0.1441, 0.1449, 0.1475, 0.1992, 0.2063, 0.2220,
    0.2472, 0.2630, 0.2951, 0.5323, 0.6086, 0.6461, 0.7914, 1.2098,
];

/// GPT-3 175B and Llama 3.1 405B training, 64 to 10,240 GPUs.
///
/// Fitted by [`super::fit_prior`] to the times of every step of 21 submissions to `MLPerf` Training v3.0 to
/// v5.0 (H100, H200, B200, GB200; 156 to 360 steps a run; `mlcommons/training_results`, Apache-2.0), three runs
/// each, submitted together from dedicated clusters. Runs months apart, on other nodes, or on a shared network
/// may differ more: fit a prior of your own where you have logs.
pub fn mlperf() -> Prior {
    Prior {
        schema: PRIOR_SCHEMA.to_owned(),
        name: "mlperf-llm".to_owned(),
        source: "MLPerf Training v3.0 to v5.0, GPT-3 175B and Llama 3.1 405B, 21 systems x 3 runs"
            .to_owned(),
        systems: 21,
        runs: 63,
        shift: ScalePrior { scale: 5.162e-04, dof: 0.986 },
        warm_up: ScalePrior { scale: 0.0131, dof: 0.786 },
        stalls: RatePrior { shape: 0.730, exposure: 143.3 },
        marks: MARKS.to_vec(),
        after_evaluation: AfterPause { count: 16, mean: 0.00273, sd: 0.02312 },
    }
}
