//! Follows a run.

use prism_io::PauseKind;
use prism_stats::pooled::ScalePosterior;
use prism_stats::robust::median;

use super::event::{Event, EventKind, WatchSummary};
use super::glr::{Change, Segment};
use super::null::Null;
use crate::separate::{STALL_LEAST, STALL_SDS};
use crate::steps::{StepModel, StepsError};

/// Whitened steps further than this from the run's level are taken for this far.
const CLIP: f64 = 3.0;
/// Steps that must be known before a change of level is looked for.
const KNOWN: f64 = 8.0;
/// A stall is said once so many further steps did not make it a change of level.
const WAIT: usize = 3;
/// Core steps from which on the run's level is judged.
const LEVEL_STEPS: usize = 30;
/// Probability from which on a level is said to be another's.
const LEVEL_ALPHA: f64 = 0.01;
/// Smallest core s.d. that is believed, as a share of the level.
const LEAST_COV: f64 = 1e-5;

/// How to watch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WatchOptions {
    /// False alarms of a changed level that are put up with, in 10,000 steps.
    pub alarms_per_10k: f64,
    /// Steps of the whole run, where known.
    pub steps: Option<u64>,
    /// Seed of the simulation that sets the threshold.
    pub seed: u64,
}

impl Default for WatchOptions {
    fn default() -> Self {
        WatchOptions { alarms_per_10k: 1.0, steps: None, seed: 1 }
    }
}

/// A step that has been seen, in the current stretch.
#[derive(Clone, Copy, Debug)]
struct Seen {
    step: i64,
    /// Deviation from the profile's level, as a share of it.
    deviation: f64,
    /// What the profile expects at the profile's level, seconds.
    expected_s: f64,
    /// Deviation of the step before, where it is known.
    before: Option<f64>,
}

/// A stall that may still turn out to be a change.
#[derive(Clone, Copy, Debug)]
struct Pending {
    step: i64,
    excess: f64,
    extra_s: f64,
    age: usize,
}

/// Follows a run, step by step.
#[derive(Clone, Debug)]
pub struct Watcher {
    model: StepModel,
    options: WatchOptions,
    threshold: f64,
    null: Option<Null>,
    posterior: ScalePosterior,
    base_s: f64,
    cov: f64,
    rho: f64,
    /// Steps since the last start that are still warm-up.
    warm_up: usize,
    after_pause: Option<PauseKind>,
    segment: Segment,
    seen: Vec<Seen>,
    before: Option<f64>,
    /// Deviation of the run's own level; set by its first stretch.
    normal: Option<f64>,
    /// Whether the present stretch is slower than that.
    slower: bool,
    pending: Vec<Pending>,
    level_told: bool,
    drift_next: usize,
    count: u64,
    last: Option<i64>,
    total_s: f64,
    expected_s: f64,
    stalls_s: f64,
    slower_s: f64,
}

impl Watcher {
    /// A watcher for runs of a profile; simulates how often its alarms are false.
    ///
    /// # Errors
    /// [`StepsError::Statistics`]; [`StepsError::Setting`] for a rate of alarms that is not positive.
    pub fn new(model: &StepModel, options: WatchOptions) -> Result<Self, StepsError> {
        if !(options.alarms_per_10k > 0.0 && options.alarms_per_10k <= 100.0) {
            return Err(StepsError::Setting {
                what: "the number of false alarms in 10,000 steps",
                rule: "above 0 and at most 100",
                got: options.alarms_per_10k.to_string(),
            });
        }
        let null = Null::simulated(model, options.seed)?;
        let mut watcher = Watcher::without_threshold(model)?;
        watcher.threshold = null.of(&options);
        watcher.options = options;
        watcher.null = Some(null);
        Ok(watcher)
    }

    /// A watcher that never alarms, for the simulation.
    pub(super) fn without_threshold(model: &StepModel) -> Result<Self, StepsError> {
        let posterior = model.posterior()?.level;
        let base_s = posterior.centre().exp();
        let cov = model.evidence.core_cov.max(LEAST_COV);
        let rho = model.evidence.rho;
        let spread = spread_of(&posterior);
        // The run's level is known as if so many of its steps had been seen.
        let scale = (1.0 - rho) / (cov * (1.0 - rho * rho).sqrt());
        let known = 1.0 / (spread * scale).powi(2);
        Ok(Watcher {
            model: model.clone(),
            options: WatchOptions::default(),
            threshold: f64::INFINITY,
            null: None,
            posterior,
            base_s,
            cov,
            rho,
            warm_up: model.evidence.warm_up_rows,
            after_pause: None,
            segment: Segment::new(known, 0.0),
            seen: Vec::new(),
            before: None,
            normal: None,
            slower: false,
            pending: Vec::new(),
            level_told: false,
            drift_next: 128,
            count: 0,
            last: None,
            total_s: 0.0,
            expected_s: 0.0,
            stalls_s: 0.0,
            slower_s: 0.0,
        })
    }

    /// The threshold of the change statistic.
    pub fn threshold(&self) -> f64 {
        self.threshold
    }

    /// Something other than training came before the next step.
    pub fn pause(&mut self, kind: PauseKind) {
        if kind == PauseKind::Restart {
            self.warm_up = self.model.evidence.warm_up_rows;
        }
        self.after_pause = Some(kind);
    }

    /// S.d. of a whitened step's noise, as a share of the level.
    fn innovation(&self) -> f64 {
        self.cov * (1.0 - self.rho * self.rho).sqrt()
    }

    /// Deviations of a mean of whitened steps.
    fn to_deviation(&self, mean: f64) -> f64 {
        mean * self.innovation() / (1.0 - self.rho)
    }

    /// Deviation of the present stretch's level.
    fn level(&self) -> f64 {
        self.to_deviation(self.segment.mean())
    }

    /// A whitened step, not further than [`CLIP`] from `mean`.
    fn whitened(&self, seen: &Seen, mean: f64) -> f64 {
        let before = seen.before.unwrap_or_else(|| self.to_deviation(mean));
        let y = (seen.deviation - self.rho * before) / self.innovation();
        mean + (y - mean).clamp(-CLIP, CLIP)
    }

    /// A step.
    pub fn push(&mut self, step: i64, step_s: f64) -> Vec<Event> {
        let expected_s = self.base_s * (1.0 + self.model.profile_at(step));
        self.count += 1;
        self.last = Some(step);
        self.total_s += step_s;
        self.expected_s += expected_s;
        let mut events = Vec::new();
        if self.warm_up > 0 {
            self.warm_up -= 1;
            self.before = None;
            self.after_pause = None;
            return events;
        }
        let after = self.after_pause.take().is_some_and(|k| k != PauseKind::Restart);
        let level = self.level();
        let deviation = step_s / expected_s - 1.0;
        let excess = (deviation - level) / (1.0 + level);
        let limit = (STALL_SDS * self.cov).max(STALL_LEAST);
        if let Some(recurring) = self.model.recurring_at(step) {
            let first = recurring.first;
            if excess > limit {
                let extra_s = excess * expected_s * (1.0 + level);
                events.push(self.event(EventKind::Systematic, first, step, excess, extra_s));
            }
            self.before = None;
            return events;
        }
        if after {
            self.before = None;
            return events;
        }
        let stalled = excess > limit;
        let seen = Seen { step, deviation, expected_s, before: self.before };
        self.before = (!stalled).then_some(deviation);
        self.take(seen);
        self.pending.iter_mut().for_each(|p| p.age += 1);
        if stalled {
            let extra_s = excess * expected_s * (1.0 + level);
            self.pending.push(Pending { step, excess, extra_s, age: 0 });
        }
        events.extend(self.changed(step));
        events.extend(self.settled(step));
        events.extend(self.judged_level(step));
        events.extend(self.drifted(step));
        events
    }

    fn take(&mut self, seen: Seen) {
        let y = self.whitened(&seen, self.segment.mean());
        self.segment.push(y);
        self.seen.push(seen);
        if self.slower {
            let normal = self.normal.unwrap_or(0.0);
            self.slower_s += (seen.deviation - normal) * seen.expected_s;
        }
    }

    /// The change statistic after one more step, for the simulation.
    pub(super) fn statistic_of(&mut self, step: i64, step_s: f64) -> f64 {
        // A profile is nothing the simulated runs have: give the step what will be taken out.
        let with_profile = step_s * (1.0 + self.model.profile_at(step));
        let recurring = self.model.recurring_at(step).is_some();
        self.push(step, with_profile);
        if recurring { 0.0 } else { self.segment.change(KNOWN).map_or(0.0, |c| c.statistic) }
    }

    /// An event without an estimate.
    fn event(&self, kind: EventKind, step: i64, found_at: i64, excess: f64, extra_s: f64) -> Event {
        Event {
            kind,
            step,
            found_at,
            excess,
            excess_interval: None,
            probability: self.stall_probability(excess),
            probability_is_bound: false,
            extra_s,
            extra_to_end_s: None,
        }
    }

    /// Probability of a stall this long in as many steps as were seen.
    fn stall_probability(&self, excess: f64) -> f64 {
        let e = &self.model.evidence;
        let own: Vec<f64> = e.marks().collect();
        let borrowed = &self.model.prior.marks;
        let share = |v: &[f64]| {
            if v.is_empty() {
                return 0.0;
            }
            v.iter().filter(|m| **m >= excess).count() as f64 / v.len() as f64
        };
        let foreign = 1.0 / (own.len() + 1) as f64;
        let longer = foreign * share(borrowed) + (1.0 - foreign) * share(&own);
        // Longer than any that is known: as rare as one more than there are.
        let longer = longer.max(foreign / (borrowed.len() + 1) as f64);
        let rate = self.model.prior.stalls.posterior(e.stalls()).map_or(0.0, |p| p.mean());
        -(-rate * longer * self.count as f64).exp_m1()
    }

    /// Steps still to come.
    fn remaining(&self) -> Option<f64> {
        Some(self.options.steps?.saturating_sub(self.count) as f64)
    }

    /// A change of level, if there is one.
    fn changed(&mut self, now: i64) -> Option<Event> {
        let change = self.segment.change(KNOWN)?;
        if change.statistic < self.threshold {
            return None;
        }
        let event = self.change_event(change, now);
        // What looked like stalls was the beginning of it.
        let onset = self.seen[change.at].step;
        self.pending.retain(|p| p.step < onset);
        self.restart(change.at);
        event
    }

    fn change_event(&mut self, change: Change, now: i64) -> Option<Event> {
        let (old, new) = self.seen.split_at(change.at);
        let before = match self.normal {
            Some(normal) => normal,
            None => {
                let mut sum = Segment::new(0.0, 0.0);
                let mean = self.segment.mean();
                old.iter().for_each(|s| sum.push(self.whitened(s, mean)));
                if old.is_empty() { 0.0 } else { self.to_deviation(sum.mean()) }
            }
        };
        let after: Vec<f64> = new.iter().map(|s| s.deviation).collect();
        let after_level = median(&after).ok()?;
        let excess = (after_level - before) / (1.0 + before);
        // Efficiency of a median of normal noise: π/2.
        let n = new.len() as f64;
        let error = self.cov
            * ((1.0 + self.rho) / (1.0 - self.rho) / n * std::f64::consts::FRAC_PI_2).sqrt();
        let tolerance = (2.0 * error).max(0.002);
        let kind = if self.normal.is_some() && excess.abs() <= tolerance {
            EventKind::Back
        } else if excess > 0.0 {
            EventKind::Slower
        } else {
            EventKind::Faster
        };
        let extra_s: f64 = new.iter().map(|s| (s.deviation - before) * s.expected_s).sum();
        if self.slower {
            // Counted as slower from the last change on: these steps are of the next stretch.
            self.slower_s -= extra_s;
        }
        let onset = new.first()?.step;
        self.normal.get_or_insert(before);
        self.slower = kind == EventKind::Slower;
        if self.slower {
            self.slower_s += extra_s;
        }
        let (probability, bound) = self
            .null
            .as_ref()
            .map_or((f64::NAN, false), |n| n.probability(change.statistic, self.count as f64));
        let to_end = self.remaining().map(|r| r * excess * (1.0 + before) * self.base_s);
        Some(Event {
            kind,
            step: onset,
            found_at: now,
            excess,
            excess_interval: Some((excess - 1.96 * error, excess + 1.96 * error)),
            probability,
            probability_is_bound: bound,
            extra_s: if kind == EventKind::Back { self.slower_s } else { extra_s },
            extra_to_end_s: to_end.filter(|_| kind != EventKind::Back),
        })
    }

    /// A new stretch from index `at` of the old one on.
    fn restart(&mut self, at: usize) {
        self.seen.drain(..at);
        let raw: Vec<f64> = self.seen.iter().map(|s| s.deviation).collect();
        let level = median(&raw).unwrap_or(0.0);
        let mean = level * (1.0 - self.rho) / self.innovation();
        // What the last steps say of the new level, and nothing else.
        let mut segment = Segment::new(0.5, mean);
        for seen in &self.seen {
            segment.push(self.whitened(seen, mean));
        }
        self.segment = segment;
        self.drift_next = 128;
    }

    /// Stalls that did not last.
    fn settled(&mut self, now: i64) -> Vec<Event> {
        let (done, waiting): (Vec<Pending>, Vec<Pending>) =
            self.pending.iter().partition(|p| p.age >= WAIT);
        self.pending = waiting;
        done.iter()
            .map(|p| {
                self.stalls_s += p.extra_s;
                self.event(EventKind::Stall, p.step, now, p.excess, p.extra_s)
            })
            .collect()
    }

    /// Whether the run's level is one of this system's, once.
    fn judged_level(&mut self, now: i64) -> Option<Event> {
        if self.level_told || self.normal.is_some() || self.segment.len() < LEVEL_STEPS {
            return None;
        }
        self.level_told = true;
        let (level, p) = self.level_and_probability();
        let first = self.seen.first()?.step;
        let extra_s = level * self.seen.iter().map(|s| s.expected_s).sum::<f64>();
        (p < LEVEL_ALPHA).then(|| Event {
            kind: EventKind::Level,
            step: first,
            found_at: now,
            excess: level,
            excess_interval: None,
            probability: p,
            probability_is_bound: false,
            extra_s,
            extra_to_end_s: self.remaining().map(|r| r * level * self.base_s),
        })
    }

    /// The run's level, and how probable one as far out is.
    fn level_and_probability(&self) -> (f64, f64) {
        let deviations: Vec<f64> = self.seen.iter().map(|s| s.deviation).collect();
        let level = self.normal.unwrap_or_else(|| median(&deviations).unwrap_or(0.0));
        let noise = self.model.evidence.mean_variance(deviations.len() as f64)
            * std::f64::consts::FRAC_PI_2;
        let below = self.posterior.cdf(self.base_s.ln() + level.ln_1p(), noise);
        (level, 2.0 * below.min(1.0 - below))
    }

    /// A slope over the present stretch, looked for at 128, 256, 512 … steps.
    fn drifted(&mut self, now: i64) -> Option<Event> {
        let n = self.seen.len();
        if n < self.drift_next || self.threshold.is_infinite() {
            return None;
        }
        self.drift_next = 2 * n;
        let mean = self.segment.mean();
        let y: Vec<f64> = self.seen.iter().map(|s| self.whitened(s, mean)).collect();
        let middle = (n as f64 - 1.0) / 2.0;
        let (mut cross, mut square) = (0.0, 0.0);
        for (i, v) in y.iter().enumerate() {
            let x = i as f64 - middle;
            cross += x * v;
            square += x * x;
        }
        let slope = cross / square;
        let statistic = slope.abs() * square.sqrt();
        let whole = self.to_deviation(slope) * n as f64;
        let p = 2.0 * prism_stats::htest::normal_sf(statistic);
        // Looked at once per doubling: some ten times in the longest run.
        if p * 10.0 > 0.01 || whole.abs() < 0.002 {
            return None;
        }
        let error = self.to_deviation(1.0 / square.sqrt()) * n as f64;
        let rest = self.remaining();
        Some(Event {
            kind: EventKind::Drift,
            step: self.seen.first()?.step,
            found_at: now,
            excess: whole,
            excess_interval: Some((whole - 1.96 * error, whole + 1.96 * error)),
            probability: (p * 10.0).max(1e-6),
            probability_is_bound: p * 10.0 < 1e-6,
            extra_s: 0.5 * whole * self.base_s * n as f64,
            extra_to_end_s: rest.map(|r| self.base_s * (whole * r + 0.5 * whole / n as f64 * r * r)),
        })
    }

    /// The end of the log: stalls not yet said, and the whole.
    pub fn finish(mut self) -> (Vec<Event>, WatchSummary) {
        let now = self.last.unwrap_or(0);
        self.pending.iter_mut().for_each(|p| p.age = WAIT);
        let events = self.settled(now);
        let summary = self.summary();
        (events, summary)
    }

    /// What was seen so far.
    pub fn summary(&self) -> WatchSummary {
        let known = !self.seen.is_empty();
        let (level, p) = self.level_and_probability();
        let now = if self.slower { self.level() } else { level };
        WatchSummary {
            steps: self.count,
            last_step: self.last,
            total_s: self.total_s,
            expected_s: self.expected_s,
            level_s: known.then(|| self.base_s * (1.0 + level)),
            level_probability: known.then_some(p),
            stalls_s: self.stalls_s,
            slower_s: self.slower_s,
            slower_now: self.slower,
            remaining_s: self.remaining().map(|r| r * self.base_s * (1.0 + now)),
        }
    }
}

/// Half the central 68 % of a run's log level.
fn spread_of(posterior: &ScalePosterior) -> f64 {
    let centre = posterior.centre();
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if posterior.cdf(centre + middle, 0.0) < 0.841_344_746 { low = middle } else { high = middle }
    }
    high.max(1e-9)
}
