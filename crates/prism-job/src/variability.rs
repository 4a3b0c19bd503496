//! What varies, as far as it is known before a job runs.

/// Spreads of the crossed effects of `prism_model::DurationModel`: standard deviations of log time
/// unless said otherwise.
#[derive(Clone, Debug, PartialEq)]
pub struct Variability {
    /// Preset it began as, for reports.
    pub preset: String,
    /// Between GPUs, arithmetic-bound kernels (persistent).
    pub gpu_compute_sd: f64,
    /// Between GPUs, memory-bound kernels (persistent).
    pub gpu_memory_sd: f64,
    /// Slow machines.
    pub laggards: Laggards,
    /// A whole step, all workers.
    pub step_sd: f64,
    /// One worker during one step.
    pub step_worker_sd: f64,
    /// One microbatch of one replica, shared by forward and backward on all stages.
    pub microbatch: MicrobatchSpread,
    /// Every compute operation for itself.
    pub residual_sd: f64,
    /// Every collective and transfer for itself.
    pub transfer_sd: f64,
    /// A whole step's communication.
    pub congestion_sd: f64,
    /// Share of steps with a congestion burst.
    pub burst_probability: f64,
    /// Factor on communication in such a step.
    pub burst_factor: f64,
    /// S.d. of a step's fixed overhead (data loader, host, logging), seconds.
    pub overhead_sd_s: f64,
    /// Load of the busiest expert-parallel rank over the mean, less 1, as a s.d. over microbatches.
    pub expert_imbalance_sd: f64,
    /// Amplitude of the daily swing of all compute, a share (0.01 is ±1 %).
    pub diurnal_amplitude: f64,
    /// Rare long stalls of one operation.
    pub hang: Hang,
}

/// Slow machines: a share of nodes that is slower by a factor.
#[derive(
    Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(deny_unknown_fields)]
pub struct Laggards {
    /// Share of nodes, 0 to 1.
    pub share: f64,
    /// Factor on their compute times, at least 1.
    pub factor: f64,
}

/// Spread between microbatches.
#[derive(
    Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(deny_unknown_fields)]
pub struct MicrobatchSpread {
    /// S.d. of the log factor.
    pub sd: f64,
    /// Skewness of the log factor: 0 is symmetric (log-normal); positive has a longer upper tail.
    pub skew: f64,
}

/// Rare long stalls: of each compute operation, independently.
#[derive(
    Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(deny_unknown_fields)]
pub struct Hang {
    /// Probability per compute operation (one microbatch's pass through one stage of one replica).
    pub probability: f64,
    /// Factor on its time.
    pub factor: f64,
}
