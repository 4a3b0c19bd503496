//! How a duration model is lowered.

/// How durations are drawn.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Draws {
    /// Whole observed vectors.
    #[default]
    Empirical,
    /// Fitted laws for compute, and for point-to-point whose positions and replicas do not differ;
    /// other transfers and step-level values stay observed vectors.
    Parametric,
}

/// What a program computes besides step times.
#[allow(clippy::struct_excessive_bools)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Probes {
    /// Total compute of each stage, per replica: outputs `compute@STAGE`, seconds.
    pub stage_compute: bool,
    /// Waiting of each step-level collective, per replica: outputs `wait:KIND[SEQ]@STAGE`, seconds.
    pub waits: bool,
    /// When each replica's last microbatch compute ends: output `compute-finish`, seconds.
    pub compute_finish: bool,
    /// When each operation is ready and when it ends, per replica: outputs `ready#ID` and `end#ID`,
    /// seconds, by index in the graph.
    pub timeline: bool,
}

/// How to lower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LowerOptions {
    /// How durations are drawn.
    pub draws: Draws,
    /// Whether launch delays are there.
    pub launch_delays: bool,
    /// Further outputs.
    pub probes: Probes,
    /// Consecutive steps; each stage starts a step when it has ended the one before. Step `k` is
    /// output `step` for k = 0, else `step+k`.
    pub steps: u32,
    /// Draw every replica's worker effect afresh in every sample: the distribution over clusters
    /// one might be given, instead of over steps on the given one.
    pub redraw_workers: bool,
}

impl Default for LowerOptions {
    fn default() -> Self {
        LowerOptions {
            draws: Draws::Empirical,
            launch_delays: true,
            probes: Probes::default(),
            steps: 1,
            redraw_workers: false,
        }
    }
}
