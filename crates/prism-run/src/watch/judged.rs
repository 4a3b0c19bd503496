//! What a watcher makes of what it saw: levels, stalls, drift, the whole.

use prism_stats::robust::median;

use super::event::{Event, EventKind, WatchSummary};
use super::watcher::Watcher;

/// Core steps from which on the run's level is judged.
pub(super) const LEVEL_STEPS: usize = 30;
/// Probability from which on a level is said to be another's.
const LEVEL_ALPHA: f64 = 0.01;

impl Watcher {
    /// Probability of a stall this long in as many steps as were seen.
    pub(super) fn stall_probability(&self, excess: f64) -> f64 {
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

    /// Whether the run's level is one of this system's, once.
    pub(super) fn judged_level(&mut self, now: i64) -> Option<Event> {
        if self.level_told || self.first.len() < LEVEL_STEPS {
            return None;
        }
        self.level_told = true;
        // Where a change was found among them, the level is that before it.
        let level = self.normal.unwrap_or_else(|| median(&self.first).unwrap_or(0.0));
        let p = self.level_probability(level, LEVEL_STEPS);
        let first = self.seen.first().map_or(now, |s| s.step);
        let extra_s = level * self.base_s * LEVEL_STEPS as f64;
        if p >= LEVEL_ALPHA {
            return None;
        }
        let measured = self.model.evidence.stall_rows > 0;
        if measured && self.normal.is_none() && level > self.options.least {
            // Slower than the other runs from its start: that is what the run is compared with from now on.
            self.normal = Some(0.0);
            self.slow_from_start = true;
            self.excess = level;
            self.slower_s += self.seen.iter().map(|s| s.deviation * s.expected_s).sum::<f64>();
        }
        Some(Event {
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

    /// Probability of a level as far out as this, the median of so many core steps.
    pub(super) fn level_probability(&self, level: f64, steps: usize) -> f64 {
        let noise = self.model.evidence.mean_variance(steps as f64) * std::f64::consts::FRAC_PI_2;
        let below = self.posterior.cdf(self.base_s.ln() + level.ln_1p(), noise);
        2.0 * below.min(1.0 - below)
    }

    /// The run's level, and how probable one as far out is.
    pub(super) fn level_and_probability(&self) -> (f64, f64) {
        let deviations: Vec<f64> = self.seen.iter().map(|s| s.deviation).collect();
        let present = || median(&deviations).unwrap_or(0.0);
        // A run that is slow from its start has no level of its own but that.
        let own = self.normal.filter(|_| !(self.slow_from_start && self.excess > 0.0));
        let level = own.unwrap_or_else(present);
        (level, self.level_probability(level, deviations.len().max(1)))
    }

    /// A slope over the present stretch, looked for at 128, 256, 512 … steps.
    pub(super) fn drifted(&mut self, now: i64) -> Option<Event> {
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
            extra_to_end_s: rest
                .map(|r| self.base_s * (whole * r + 0.5 * whole / n as f64 * r * r)),
        })
    }

    /// What was seen so far.
    pub fn summary(&self) -> WatchSummary {
        let known = !self.seen.is_empty();
        let (level, p) = self.level_and_probability();
        let now = if self.excess == 0.0 { level } else { self.level() };
        WatchSummary {
            steps: self.count,
            last_step: self.last,
            total_s: self.total_s,
            expected_s: self.expected_s,
            level_s: known.then_some(self.base_s * (1.0 + level)),
            level_probability: known.then_some(p),
            stalls_s: self.stalls_s,
            slower_s: self.slower_s,
            slower_now: self.excess > 0.0,
            remaining_s: self.remaining().map(|r| r * self.base_s * (1.0 + now)),
        }
    }
}
