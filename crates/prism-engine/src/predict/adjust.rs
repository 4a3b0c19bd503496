//! Changes to durations on top of a duration model: what a scenario needs that no model says.

use std::collections::{BTreeMap, BTreeSet};

use prism_graph::OpId;

/// Which samples of an operation a change applies to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// Whether it applies, by replica.
    pub replicas: Vec<bool>,
    /// Whether it applies to steps drawn as this observed step, by observed step; `None` for all.
    pub steps: Option<Vec<bool>>,
}

impl Scope {
    /// Everything.
    pub fn all(replicas: usize) -> Scope {
        Scope { replicas: vec![true; replicas], steps: None }
    }

    fn is_all(&self) -> bool {
        self.steps.is_none() && self.replicas.iter().all(|r| *r)
    }
}

/// A number that may depend on the replica and on the observed step that a step was drawn as.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cells {
    /// The same everywhere.
    All(f32),
    /// One a replica.
    Replicas(Vec<f32>),
    /// `[r][t]`, with the number of steps.
    Steps(Vec<f32>, usize),
}

impl Cells {
    /// Applies `change` inside the scope.
    fn update(&mut self, scope: &Scope, change: impl Fn(f32, usize) -> f32) {
        let replicas = scope.replicas.len();
        if let (true, Cells::All(value)) = (scope.is_all(), &mut *self) {
            let fresh: Vec<f32> = (0..replicas).map(|r| change(*value, r)).collect();
            let same = fresh.iter().all(|v| *v == fresh[0]);
            *self = if same { Cells::All(fresh[0]) } else { Cells::Replicas(fresh) };
            return;
        }
        if let Cells::All(value) = *self {
            *self = Cells::Replicas(vec![value; replicas]);
        }
        if let (Cells::Replicas(values), Some(steps)) = (&*self, &scope.steps) {
            let spread = values.iter().flat_map(|v| std::iter::repeat_n(*v, steps.len()));
            *self = Cells::Steps(spread.collect(), steps.len());
        }
        match self {
            Cells::All(_) => {}
            Cells::Replicas(values) => {
                for (r, v) in values.iter_mut().enumerate().filter(|(r, _)| scope.replicas[*r]) {
                    *v = change(*v, r);
                }
            }
            Cells::Steps(values, steps) => {
                let steps = *steps;
                for (i, v) in values.iter_mut().enumerate() {
                    let (r, t) = (i / steps, i % steps);
                    let here = scope.steps.as_ref().is_none_or(|s| s[t]);
                    if scope.replicas[r] && here {
                        *v = change(*v, r);
                    }
                }
            }
        }
    }

    /// On a replica, over all steps.
    fn mean(&self, r: usize) -> f64 {
        match self {
            Cells::All(v) => f64::from(*v),
            Cells::Replicas(values) => f64::from(values[r]),
            Cells::Steps(values, steps) => {
                let lane = &values[r * steps..(r + 1) * steps];
                lane.iter().map(|v| f64::from(*v)).sum::<f64>() / lane.len().max(1) as f64
            }
        }
    }

    pub(super) fn is(&self, value: f32) -> bool {
        matches!(self, Cells::All(v) if *v == value)
    }
}

/// `factor · x + offset`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Affine {
    pub(super) factor: Cells,
    /// Seconds.
    pub(super) offset: Cells,
}

impl Affine {
    fn identity() -> Affine {
        Affine { factor: Cells::All(1.0), offset: Cells::All(0.0) }
    }
}

/// A congestion regime: in some steps, operations take longer.
#[derive(Clone, Debug, PartialEq)]
pub struct Burst {
    /// Share of steps.
    pub probability: f64,
    /// Factor on the work of the operations in those steps.
    pub factor: f64,
    /// The operations.
    pub ops: BTreeSet<OpId>,
    /// Names its draws: bursts of one name come in the same steps.
    pub name: String,
}

/// Over what sequences are repacked so that all microbatches have the same load.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Repack {
    /// Each replica's own microbatches.
    Replica,
    /// All microbatches of the step, over all replicas.
    Step,
}

/// An effect whose spread can be changed.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum SpreadOf {
    /// The whole step, on every worker.
    Step,
    /// One worker during one step.
    StepWorker,
    /// One microbatch of one replica.
    Microbatch,
    /// One operation.
    Residual,
}

impl SpreadOf {
    /// All of them.
    pub const ALL: [SpreadOf; 4] =
        [SpreadOf::Step, SpreadOf::StepWorker, SpreadOf::Microbatch, SpreadOf::Residual];
}

/// Changes to the durations that a model draws; see [`super::lower_adjusted`].
///
/// Random numbers stay what they were: an adjusted program draws the same step, changed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Adjustments {
    pub(super) work: BTreeMap<OpId, Affine>,
    pub(super) delay: BTreeMap<OpId, Affine>,
    pub(super) bursts: Vec<Burst>,
    pub(super) repack: Option<Repack>,
    /// Factors on the effects in log time, `[c][r]`; absent for 1.
    pub(super) spread: BTreeMap<SpreadOf, Vec<f64>>,
}

impl Adjustments {
    /// Whether nothing is changed.
    pub fn is_empty(&self) -> bool {
        *self == Adjustments::default()
    }

    /// Multiplies an operation's work.
    pub fn scale_work(&mut self, op: OpId, scope: &Scope, factor: f64) {
        scale(self.work.entry(op).or_insert_with(Affine::identity), scope, factor);
    }

    /// Replaces an operation's work by a time for each replica, seconds.
    pub fn set_work(&mut self, op: OpId, scope: &Scope, work_s: &[f64]) {
        set(self.work.entry(op).or_insert_with(Affine::identity), scope, work_s);
    }

    /// Moves an operation's work towards a time for each replica (seconds): `k` of the distance is
    /// left. Keeps the mean if that time is the mean.
    pub fn shrink_work(&mut self, op: OpId, scope: &Scope, k: f64, towards_s: &[f64]) {
        shrink(self.work.entry(op).or_insert_with(Affine::identity), scope, k, towards_s);
    }

    /// Multiplies an operation's launch delay.
    pub fn scale_delay(&mut self, op: OpId, scope: &Scope, factor: f64) {
        scale(self.delay.entry(op).or_insert_with(Affine::identity), scope, factor);
    }

    /// Replaces an operation's launch delay by a time for each replica, seconds.
    pub fn set_delay(&mut self, op: OpId, scope: &Scope, delay_s: &[f64]) {
        set(self.delay.entry(op).or_insert_with(Affine::identity), scope, delay_s);
    }

    /// Adds a congestion regime.
    pub fn add_burst(&mut self, burst: Burst) {
        self.bursts.push(burst);
    }

    /// Gives all microbatches of a replica, or of a step, the same load.
    pub fn repack(&mut self, over: Repack) {
        self.repack = Some(over);
    }

    /// Multiplies an effect in log time by `k(c, r)`, `c` a compute signature and `r` a replica. Means
    /// of durations stay what they were.
    pub fn scale_spread(
        &mut self,
        of: SpreadOf,
        signatures: usize,
        replicas: usize,
        k: impl Fn(usize, usize) -> f64,
    ) {
        let factors = self.spread.entry(of).or_insert_with(|| vec![1.0; signatures * replicas]);
        for (i, f) in factors.iter_mut().enumerate() {
            *f *= k(i / replicas, i % replicas);
        }
    }

    /// Multiplies effects by those of other adjustments.
    pub fn multiply_spread(&mut self, other: &Adjustments) {
        for (of, factors) in &other.spread {
            let own = self.spread.entry(*of).or_insert_with(|| vec![1.0; factors.len()]);
            own.iter_mut().zip(factors).for_each(|(a, b)| *a *= b);
        }
    }

    /// Mean work of an operation with its changes, by replica, given that without them; seconds.
    ///
    /// Congestion regimes are not counted. A change that holds in some observed steps only counts
    /// with their share.
    pub fn mean_work(&self, op: OpId, unchanged_s: &[f64]) -> Vec<f64> {
        let Some(affine) = self.work.get(&op) else { return unchanged_s.to_vec() };
        let at = |r: usize, v: f64| v * affine.factor.mean(r) + affine.offset.mean(r);
        unchanged_s.iter().enumerate().map(|(r, v)| at(r, *v)).collect()
    }

    /// Factor on an effect of a signature and replica.
    pub(super) fn spread_of(&self, of: SpreadOf, c: usize, r: usize, replicas: usize) -> f64 {
        self.spread.get(&of).map_or(1.0, |f| f[c * replicas + r])
    }
}

fn scale(affine: &mut Affine, scope: &Scope, factor: f64) {
    affine.factor.update(scope, |v, _| v * factor as f32);
    affine.offset.update(scope, |v, _| v * factor as f32);
}

fn set(affine: &mut Affine, scope: &Scope, value_s: &[f64]) {
    affine.factor.update(scope, |_, _| 0.0);
    affine.offset.update(scope, |_, r| value_s[r] as f32);
}

fn shrink(affine: &mut Affine, scope: &Scope, k: f64, towards_s: &[f64]) {
    affine.factor.update(scope, |v, _| v * k as f32);
    affine.offset.update(scope, |v, r| (f64::from(v) * k + (1.0 - k) * towards_s[r]) as f32);
}
