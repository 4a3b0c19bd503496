//! What a synthetic job is like.

use prism_graph::schedule::Schedule;
use serde::{Deserialize, Serialize};

use super::SynthError;

/// A job whose truth is known: plan, mean durations, and what is random about them.
///
/// Compute of signature `c` on replica `r` and its stage in step `t`, microbatch `m`, takes
///
/// ```text
/// log d = base(c) + worker(r, stage) + position(c, m) + (window(t) + step(t))·load(c)
///       + step-worker(t, r, stage) + spread(r, stage)·(microbatch(t, r, m)·load(c) + residual)
/// ```
///
/// and a transfer `log x = base + congestion(t) + draw(instance)`, the draw shared by the
/// participants. An effect with s.d. 0 is absent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SynthSpec {
    /// Seed; every draw is a function of it and of what it is for.
    #[serde(default = "one")]
    pub seed: u64,
    /// Plan.
    pub schedule: Schedule,
    /// Which steps are recorded.
    pub steps: SynthSteps,
    /// Mean durations.
    #[serde(default)]
    pub durations: Durations,
    /// Random effects of durations.
    #[serde(default)]
    pub effects: SynthEffects,
    /// Launch delays of forward and backward compute; operations that wait for nothing have none.
    #[serde(default)]
    pub launch_delay: LaunchDelay,
    /// One worker that is slower for good.
    #[serde(default)]
    pub slow_worker: Option<SlowWorker>,
    /// Isolated slow steps.
    #[serde(default)]
    pub outliers: Option<OutlierSteps>,
    /// Added to the log of all compute in the first window of steps.
    #[serde(default)]
    pub early_window_shift_log: f64,
}

const fn one() -> u64 {
    1
}

/// Which step ids are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SynthSteps {
    /// How many.
    pub count: u32,
    /// First id.
    #[serde(default)]
    pub first: i64,
    /// Consecutive steps in a window; 0 for one window.
    #[serde(default)]
    pub window: u32,
    /// From the last id of a window to the first of the next.
    #[serde(default = "hundred")]
    pub gap: i64,
}

const fn hundred() -> i64 {
    100
}

/// Mean durations without random effects, seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Durations {
    /// Forward pass of a microbatch through a chunk.
    pub forward_s: f64,
    /// Backward pass.
    pub backward_s: f64,
    /// Send or receive between stages.
    pub p2p_s: f64,
    /// Collective.
    pub collective_s: f64,
    /// Optimizer update.
    pub optimizer_s: f64,
    /// Garbage collection, usually a marker of no length.
    pub gc_s: f64,
    /// Factor on a stage's compute; 1 for all if empty.
    pub stage_factor: Vec<f64>,
}

impl Default for Durations {
    fn default() -> Self {
        Durations {
            forward_s: 0.1,
            backward_s: 0.2,
            p2p_s: 0.002,
            collective_s: 0.01,
            optimizer_s: 0.02,
            gc_s: 0.0,
            stage_factor: Vec::new(),
        }
    }
}

/// Shape of an effect's law in log time; all have mean 0.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum EffectLaw {
    /// Normal: durations are log-normal.
    #[default]
    Normal,
    /// Student's t with 6 degrees of freedom: heavy tails (excess kurtosis 3).
    HeavyTailed,
    /// Gamma with shape 4, centred: slow draws are rarer and further off (skewness 1).
    Skewed,
}

/// One random effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EffectSpec {
    /// Standard deviation in log time; 0 if the effect is absent.
    pub sd_log: f64,
    /// Its law.
    pub law: EffectLaw,
}

impl EffectSpec {
    /// A normal effect.
    pub const fn normal(sd_log: f64) -> EffectSpec {
        EffectSpec { sd_log, law: EffectLaw::Normal }
    }

    /// Whether there is anything to draw.
    pub fn is_present(&self) -> bool {
        self.sd_log > 0.0
    }
}

/// How strongly signatures respond to a shared effect: `kind x stage`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Loads {
    /// Forward compute.
    pub forward: f64,
    /// Backward compute.
    pub backward: f64,
    /// Factor by stage; 1 for all if empty.
    pub by_stage: Vec<f64>,
}

impl Default for Loads {
    fn default() -> Self {
        Loads { forward: 1.0, backward: 1.0, by_stage: Vec::new() }
    }
}

impl Loads {
    /// The load of one direction of compute on a stage.
    pub(super) fn of(&self, backward: bool, stage: u16) -> f64 {
        let kind = if backward { self.backward } else { self.forward };
        kind * self.by_stage.get(usize::from(stage)).copied().unwrap_or(1.0)
    }
}

/// All random effects; see [`SynthSpec`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SynthEffects {
    /// Persistent, by replica and stage.
    pub worker: EffectSpec,
    /// Persistent, by signature and microbatch position.
    pub position: EffectSpec,
    /// By step.
    pub step: EffectSpec,
    /// By window of steps, with the step effect's loads.
    pub window: EffectSpec,
    /// What the step effect does to each signature.
    pub step_load: Loads,
    /// By step, replica and stage.
    pub step_worker: EffectSpec,
    /// By step, replica and microbatch, shared by forward and backward on all stages.
    pub microbatch: EffectSpec,
    /// What the microbatch effect does to each signature.
    pub microbatch_load: Loads,
    /// By operation.
    pub residual: EffectSpec,
    /// Persistent, by replica and stage: log of the factor on microbatch and residual effects.
    pub worker_spread: EffectSpec,
    /// By step, on all communication.
    pub congestion: EffectSpec,
    /// By instance of a communication, shared by its participants.
    pub transfer: EffectSpec,
}

impl SynthEffects {
    /// Every effect with its key in files.
    pub fn all(&self) -> [(&'static str, EffectSpec); 10] {
        [
            ("worker", self.worker),
            ("position", self.position),
            ("step", self.step),
            ("window", self.window),
            ("step_worker", self.step_worker),
            ("microbatch", self.microbatch),
            ("residual", self.residual),
            ("worker_spread", self.worker_spread),
            ("congestion", self.congestion),
            ("transfer", self.transfer),
        ]
    }
}

/// Launch delays: log-normal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LaunchDelay {
    /// Mean, seconds; 0 for none.
    pub mean_s: f64,
    /// S.d. of its log.
    pub sd_log: f64,
}

/// A worker that is slower than the others for good.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SlowWorker {
    /// Data-parallel replica.
    pub replica: u32,
    /// Pipeline stage.
    pub stage: u16,
    /// Factor on its compute: 1.2 is 20 % slower.
    pub factor: f64,
}

/// Isolated slow steps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OutlierSteps {
    /// Probability that a step is one.
    pub probability: f64,
    /// Factor on its compute.
    pub factor: f64,
}

/// Most rows that a synthetic trace may have.
const MAX_ROWS: u64 = 1 << 28;

impl SynthSpec {
    /// A plan with default durations, no effects, and consecutive steps from 0.
    pub fn new(schedule: Schedule, steps: u32) -> SynthSpec {
        SynthSpec {
            seed: 1,
            schedule,
            steps: SynthSteps { count: steps, first: 0, window: 0, gap: 100 },
            durations: Durations::default(),
            effects: SynthEffects::default(),
            launch_delay: LaunchDelay::default(),
            slow_worker: None,
            outliers: None,
            early_window_shift_log: 0.0,
        }
    }

    /// Step ids, ascending.
    pub fn step_ids(&self) -> Vec<i64> {
        let SynthSteps { count, first, window, gap } = self.steps;
        let window = if window == 0 { count.max(1) } else { window };
        let jump = i64::from(window) - 1 + gap;
        (0..count).map(|i| first + i64::from(i / window) * jump + i64::from(i % window)).collect()
    }

    /// Window of a step, 0 for the first; steps between two windows belong to the one before.
    pub(super) fn window_of(&self, step: i64) -> i64 {
        let SynthSteps { count, first, window, gap } = self.steps;
        if window == 0 {
            return i64::from(step - first >= i64::from(count));
        }
        (step - first).div_euclid(i64::from(window) - 1 + gap)
    }

    /// Checks everything.
    ///
    /// # Errors
    /// [`SynthError::Spec`] with every violation.
    pub fn validate(&self) -> Result<(), SynthError> {
        let mut rules = Rules::default();
        if let Err(e) = self.schedule.validate() {
            rules.wrong.push(format!("schedule: {e}"));
        }
        let SynthSteps { count, window, gap, first } = self.steps;
        rules.check("steps.count", "must be positive", count, count > 0);
        rules.check("steps.gap", "must be 1 to 2^32", gap, (1..=1 << 32).contains(&gap));
        rules.check("steps.first", "must be 0 to 2^40", first, (0..=1 << 40).contains(&first));
        rules.check("steps.window", "must be at most steps.count", window, window <= count);
        let cells = u64::from(count) * u64::from(self.schedule.replicas);
        let per_cell = u64::from(self.schedule.stages)
            * (6 * u64::from(self.schedule.microbatches) * u64::from(self.schedule.chunks) + 10);
        let rows = cells.saturating_mul(per_cell);
        rules.check("steps x plan", "must be at most 2^28 operations", rows, rows <= MAX_ROWS);
        self.check_durations(&mut rules);
        for (key, effect) in self.effects.all() {
            let rule = "must be 0 to 2";
            let sd = effect.sd_log;
            rules.check(&format!("effects.{key}.sd_log"), rule, sd, (0.0..=2.0).contains(&sd));
        }
        self.check_loads("effects.step_load", &self.effects.step_load, &mut rules);
        self.check_loads("effects.microbatch_load", &self.effects.microbatch_load, &mut rules);
        self.check_incidents(&mut rules);
        if rules.wrong.is_empty() { Ok(()) } else { Err(SynthError::Spec { wrong: rules.wrong }) }
    }

    fn check_durations(&self, rules: &mut Rules) {
        let d = &self.durations;
        for (key, value) in [("forward_s", d.forward_s), ("backward_s", d.backward_s)] {
            let holds = value > 0.0 && value <= 1e6;
            rules.check(&format!("durations.{key}"), "must be in (0, 1e6]", value, holds);
        }
        let others = [
            ("p2p_s", d.p2p_s),
            ("collective_s", d.collective_s),
            ("optimizer_s", d.optimizer_s),
            ("gc_s", d.gc_s),
        ];
        for (key, value) in others {
            let holds = (0.0..=1e6).contains(&value);
            rules.check(&format!("durations.{key}"), "must be in [0, 1e6]", value, holds);
        }
        self.check_stages("durations.stage_factor", &d.stage_factor, rules);
    }

    fn check_loads(&self, key: &str, loads: &Loads, rules: &mut Rules) {
        for (direction, load) in [("forward", loads.forward), ("backward", loads.backward)] {
            let holds = (0.0..=100.0).contains(&load);
            rules.check(&format!("{key}.{direction}"), "must be 0 to 100", load, holds);
        }
        self.check_stages(&format!("{key}.by_stage"), &loads.by_stage, rules);
    }

    fn check_stages(&self, key: &str, factors: &[f64], rules: &mut Rules) {
        let stages = usize::from(self.schedule.stages);
        let fits = factors.is_empty() || factors.len() == stages;
        rules.check(key, "must have one value a stage, or none", factors.len(), fits);
        for &f in factors {
            rules.check(key, "must hold values in (0, 100]", f, f > 0.0 && f <= 100.0);
        }
    }

    fn check_incidents(&self, rules: &mut Rules) {
        let LaunchDelay { mean_s, sd_log } = self.launch_delay;
        rules.check(
            "launch_delay.mean_s",
            "must be 0 to 1e6",
            mean_s,
            (0.0..=1e6).contains(&mean_s),
        );
        rules.check("launch_delay.sd_log", "must be 0 to 2", sd_log, (0.0..=2.0).contains(&sd_log));
        if let Some(SlowWorker { replica, stage, factor }) = self.slow_worker {
            let (replicas, stages) = (self.schedule.replicas, self.schedule.stages);
            rules.check("slow_worker.replica", "must exist", replica, replica < replicas);
            rules.check("slow_worker.stage", "must exist", stage, stage < stages);
            let holds = factor > 0.0 && factor <= 100.0;
            rules.check("slow_worker.factor", "must be in (0, 100]", factor, holds);
        }
        if let Some(OutlierSteps { probability: p, factor }) = self.outliers {
            rules.check("outliers.probability", "must be 0 to 1", p, (0.0..=1.0).contains(&p));
            let holds = factor > 0.0 && factor <= 100.0;
            rules.check("outliers.factor", "must be in (0, 100]", factor, holds);
        }
        let shift = self.early_window_shift_log;
        rules.check("early_window_shift_log", "must be -2 to 2", shift, shift.abs() <= 2.0);
    }
}

/// Collects violations.
#[derive(Default)]
struct Rules {
    wrong: Vec<String>,
}

impl Rules {
    fn check(&mut self, key: &str, rule: &str, got: impl std::fmt::Display, holds: bool) {
        if !holds {
            self.wrong.push(format!("{key} {rule}, not {got}"));
        }
    }
}
