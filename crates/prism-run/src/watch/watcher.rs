//! Follows a run.

use prism_io::PauseKind;
use prism_model::{STALL_LEAST, STALL_SDS};
use prism_stats::pooled::ScalePosterior;
use prism_stats::robust::median;

use super::event::{Event, EventKind, WatchSummary};
use super::glr::{Change, LASTED, Segment};
use super::judged::LEVEL_STEPS;
use super::null::Null;
use crate::steps::{StepModel, StepsError};

/// Whitened steps further than this from the run's level are taken for this far.
const CLIP: f64 = 3.0;
/// Steps that must be known of a run's level before a change of it is looked for, …
const KNOWN: f64 = 8.0;
/// … and of a later stretch's.
const KNOWN_LATER: f64 = 3.0;
/// A stall is said once so many further steps did not make it a change of level.
const WAIT: usize = 3;
/// Smallest core s.d. that is believed, as a share of the level.
const LEAST_COV: f64 = 1e-5;

/// How to watch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WatchOptions {
    /// False alarms of a changed level that are put up with, in 10,000 steps.
    pub alarms_per_10k: f64,
    /// Smaller changes are not told, as a share of the level.
    pub least: f64,
    /// Steps of the whole run, where known.
    pub steps: Option<u64>,
    /// Seed of the simulation that sets the threshold.
    pub seed: u64,
}

impl Default for WatchOptions {
    fn default() -> Self {
        WatchOptions { alarms_per_10k: 1.0, least: 0.005, steps: None, seed: 1 }
    }
}

/// A step that has been seen, in the current stretch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) step: i64,
    /// Deviation from the profile's level, as a share of it.
    pub(super) deviation: f64,
    /// What the profile expects at the profile's level, seconds.
    pub(super) expected_s: f64,
    /// Deviation of the step before, where it is known.
    pub(super) before: Option<f64>,
}

/// A stall that may still turn out to be a change.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    step: i64,
    excess: f64,
    extra_s: f64,
    age: usize,
}

/// Follows a run, step by step.
#[derive(Clone, Debug)]
pub struct Watcher {
    pub(super) model: StepModel,
    pub(super) options: WatchOptions,
    pub(super) threshold: f64,
    pub(super) null: Option<Null>,
    pub(super) posterior: ScalePosterior,
    pub(super) base_s: f64,
    pub(super) cov: f64,
    pub(super) rho: f64,
    /// Steps since the last start that are still warm-up.
    pub(super) warm_up: usize,
    pub(super) after_pause: Option<PauseKind>,
    pub(super) segment: Segment,
    pub(super) seen: Vec<Seen>,
    pub(super) before: Option<f64>,
    /// Level of the present stretch over the profile's, with which its noise grows.
    pub(super) scale: f64,
    /// Deviation of the run's own level; set by its first stretch.
    pub(super) normal: Option<f64>,
    /// Excess of the present stretch over that, where it was told; 0 where it is normal.
    pub(super) excess: f64,
    /// Whether the run was slower than the others from its start, which it is then compared with.
    pub(super) slow_from_start: bool,
    /// Statistic of a change that is not told yet, and steps of its stretch at which to look again.
    pub(super) untold: Option<(f64, usize, bool)>,
    /// Deviations of the first core steps.
    pub(super) first: Vec<f64>,
    pub(super) pending: Vec<Pending>,
    pub(super) level_told: bool,
    pub(super) drift_next: usize,
    pub(super) count: u64,
    pub(super) last: Option<i64>,
    pub(super) total_s: f64,
    pub(super) expected_s: f64,
    pub(super) stalls_s: f64,
    pub(super) slower_s: f64,
}

impl Watcher {
    /// A watcher for runs of a profile; simulates how often its alarms are false.
    ///
    /// # Errors
    /// [`StepsError::Statistics`]; [`StepsError::Setting`] for a rate of alarms that is not positive.
    pub fn new(model: &StepModel, options: WatchOptions) -> Result<Self, StepsError> {
        if !(0.0..1.0).contains(&options.least) {
            return Err(StepsError::Setting {
                what: "the smallest change that is told",
                rule: "a share of the level, 0 or more and below 1",
                got: options.least.to_string(),
            });
        }
        if !(options.alarms_per_10k > 0.0 && options.alarms_per_10k <= 100.0) {
            return Err(StepsError::Setting {
                what: "the number of false alarms in 10,000 steps",
                rule: "above 0 and at most 100",
                got: options.alarms_per_10k.to_string(),
            });
        }
        let null = Null::simulated(model, options.seed)?;
        let mut watcher = Watcher::without_threshold(model)?;
        watcher.threshold = null.threshold(options.alarms_per_10k);
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
            // The run's level is its own: how far it is from the others' is another question.
            segment: Segment::new(0.0, 0.0),
            seen: Vec::new(),
            before: None,
            scale: 1.0,
            normal: None,
            excess: 0.0,
            slow_from_start: false,
            untold: None,
            first: Vec::new(),
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
        self.scale * self.cov * (1.0 - self.rho * self.rho).sqrt()
    }

    /// Steps that must be known before a change is looked for.
    fn known(&self) -> f64 {
        if self.normal.is_none() { KNOWN } else { KNOWN_LATER }
    }

    /// Deviations of a mean of whitened steps.
    pub(super) fn to_deviation(&self, mean: f64) -> f64 {
        mean * self.innovation() / (1.0 - self.rho)
    }

    /// Deviation of the present stretch's level.
    pub(super) fn level(&self) -> f64 {
        self.to_deviation(self.segment.mean())
    }

    /// A whitened step, not further than [`CLIP`] from `mean`.
    pub(super) fn whitened(&self, seen: &Seen, mean: f64) -> f64 {
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
        let deviation = step_s / expected_s - 1.0;
        let level = if self.seen.is_empty() { deviation } else { self.level() };
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
        if self.normal.is_none() && self.seen.len() < KNOWN as usize {
            // Nothing was known of the run's level that these could have been clipped around.
            self.restart(0);
        }
        if self.first.len() < LEVEL_STEPS {
            self.first.push(seen.deviation);
        }
        if self.excess > 0.0 {
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
        let change = self.segment.change(self.known());
        if recurring { 0.0 } else { change.map_or(0.0, |c| c.statistic) }
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

    /// Steps still to come.
    pub(super) fn remaining(&self) -> Option<f64> {
        Some(self.options.steps?.saturating_sub(self.count) as f64)
    }

    /// A change of level, if there is one.
    fn changed(&mut self, now: i64) -> Option<Event> {
        if let Some(change) =
            self.segment.change(self.known()).filter(|c| c.statistic >= self.threshold)
        {
            if !self.lasts(change) {
                return None;
            }
            self.set_normal(change);
            // What looked like stalls was the beginning of it.
            let onset = self.seen[change.at].step;
            self.pending.retain(|p| p.step < onset);
            self.restart(change.at);
            self.untold = Some((change.statistic, self.seen.len(), false));
        }
        let (statistic, at, told) = self.untold?;
        (self.seen.len() >= at).then(|| self.told(statistic, told, now)).flatten()
    }

    /// Whether as many steps as it takes are of the new level: two long ones beside a slightly slow one are not.
    fn lasts(&self, change: Change) -> bool {
        let before = self.to_deviation(self.segment.mean_to(change.at));
        let shifts: Vec<f64> =
            self.seen[change.at..].iter().map(|s| s.deviation - before).collect();
        let Ok(middle) = median(&shifts) else { return false };
        shifts.iter().filter(|s| **s / middle >= 0.5).count() >= LASTED
    }

    /// The run's own level is that before its first change.
    fn set_normal(&mut self, change: Change) {
        if self.normal.is_some() {
            return;
        }
        let mean = self.segment.mean();
        let mut before = Segment::new(0.0, 0.0);
        for s in &self.seen[..change.at] {
            before.push(self.whitened(s, mean));
        }
        self.normal = Some(self.to_deviation(before.mean()));
    }

    /// Says what a new stretch is, once that is clear; where it was said, only that it is no longer so.
    fn told(&mut self, statistic: f64, told: bool, now: i64) -> Option<Event> {
        let before = self.normal.unwrap_or(0.0);
        let after: Vec<f64> = self.seen.iter().map(|s| s.deviation).collect();
        let excess = (median(&after).ok()? - before) / (1.0 + before);
        let n = after.len() as f64;
        let spread = (1.0 + self.rho) / (1.0 - self.rho) / n;
        // A median of normal noise has π/2 times the variance of its mean.
        let error = self.cov * (spread * std::f64::consts::FRAC_PI_2).sqrt();
        let was = self.excess;
        let near = excess.abs() <= self.options.least.max(2.0 * error);
        if near && was == 0.0 {
            // Too small to be told, or not yet clear: look again when twice as much is known.
            let clear = excess.abs() + 2.0 * error <= self.options.least || n > 512.0;
            self.untold = (!clear).then_some((statistic, 2 * after.len(), false));
            return None;
        }
        // A first estimate is of a few steps: look again when four times as much is known.
        self.untold = (!near && n < 512.0).then_some((statistic, 4 * after.len(), true));
        if told && !near {
            self.excess = excess;
            return None;
        }
        let kind = if near {
            EventKind::Back
        } else if excess < 0.0 {
            EventKind::Faster
        } else if was > 0.0 && excess < was {
            EventKind::Eased
        } else {
            EventKind::Slower
        };
        let extra_s: f64 = self.seen.iter().map(|s| (s.deviation - before) * s.expected_s).sum();
        self.excess = if near { 0.0 } else { excess };
        // Steps since the change were counted as of the stretch before.
        match (was > 0.0, self.excess > 0.0) {
            (true, false) => self.slower_s -= extra_s,
            (false, true) => self.slower_s += extra_s,
            _ => {}
        }
        let (probability, probability_is_bound) = self
            .null
            .as_ref()
            .map_or((f64::NAN, false), |n| n.probability(statistic, self.count as f64));
        let to_end = self.remaining().map(|r| r * excess * (1.0 + before) * self.base_s);
        Some(Event {
            kind,
            step: self.seen.first()?.step,
            found_at: now,
            excess,
            excess_interval: Some((excess - 1.96 * error, excess + 1.96 * error)),
            probability,
            probability_is_bound,
            extra_s: if near { self.slower_s } else { extra_s },
            extra_to_end_s: to_end.filter(|_| !near),
        })
    }

    /// A new stretch from index `at` of the old one on.
    fn restart(&mut self, at: usize) {
        self.seen.drain(..at);
        let raw: Vec<f64> = self.seen.iter().map(|s| s.deviation).collect();
        let level = median(&raw).unwrap_or(0.0);
        self.scale = (1.0 + level).max(0.05);
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
    pub(super) fn settled(&mut self, now: i64) -> Vec<Event> {
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

    /// The end of the log: stalls not yet said, and the whole.
    pub fn finish(mut self) -> (Vec<Event>, WatchSummary) {
        let now = self.last.unwrap_or(0);
        self.pending.iter_mut().for_each(|p| p.age = WAIT);
        let events = self.settled(now);
        let summary = self.summary();
        (events, summary)
    }
}
