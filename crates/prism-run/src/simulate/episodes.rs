//! What slows a run down as time goes by: fail-slow episodes and the swing over the day.

use std::f64::consts::TAU;

use prism_job::run::{Diurnal, Onset, RunPlan, Severity, SlowClass};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Exp1, StandardNormal};

/// Fail-slow episodes of a run.
#[derive(Debug)]
pub(super) struct Episodes {
    rng: ChaCha8Rng,
    /// Onsets per second of each class in this run.
    rates: Vec<f64>,
    total: f64,
    /// Excess of each class that has one severity for the run.
    excess: Vec<Option<f64>>,
    /// Excesses that last from start to end.
    lasting: Vec<f64>,
    /// End and excess of the episodes going on.
    active: Vec<(f64, f64)>,
    next_s: f64,
    factor: f64,
}

impl Episodes {
    pub(super) fn new(plan: &RunPlan, mut rng: ChaCha8Rng) -> Episodes {
        let (mut rates, mut excess, mut lasting) = (Vec::new(), Vec::new(), Vec::new());
        for class in &plan.slow.classes {
            // The same draws whatever they decide, so that the classes after it keep theirs.
            let exposed = rng.random::<f64>() < class.exposed;
            let one = self::excess(class, &mut rng);
            let none = rng.random::<f64>();
            if let Onset::Share(share) = class.onset {
                let units = plan.machines.units(class.domain) as f64;
                if exposed && share > 0.0 && none >= (1.0 - share).powf(units) {
                    lasting.push(one);
                }
            }
            let rate = class.job_rate(&plan.machines);
            rates.push(if exposed { rate } else { 0.0 });
            excess.push(class.severity_per_run.then_some(one));
        }
        let total = rates.iter().sum();
        let mut episodes = Episodes {
            rng,
            rates,
            total,
            excess,
            lasting,
            active: Vec::new(),
            next_s: 0.0,
            factor: 1.0,
        };
        episodes.next_s = episodes.wait_from(0.0);
        episodes.refresh(plan.slow.slowest);
        episodes
    }

    fn wait_from(&mut self, t: f64) -> f64 {
        if self.total <= 0.0 {
            return f64::INFINITY;
        }
        let wait: f64 = Exp1.sample(&mut self.rng);
        t + wait / self.total
    }

    fn refresh(&mut self, slowest: bool) {
        let all = self.lasting.iter().copied().chain(self.active.iter().map(|a| a.1));
        self.factor = 1.0 + if slowest { all.fold(0.0, f64::max) } else { all.sum() };
    }

    /// Goes to time t: episodes begin and end.
    pub(super) fn advance(&mut self, plan: &RunPlan, t: f64) {
        let mut changed = false;
        while self.next_s <= t {
            let start_s = self.next_s;
            let u = self.rng.random::<f64>() * self.total;
            let mut sum = 0.0;
            let at = self.rates.iter().position(|r| {
                sum += r;
                u < sum
            });
            let at = at.unwrap_or(self.rates.len() - 1);
            let class = &plan.slow.classes[at];
            let z: f64 = StandardNormal.sample(&mut self.rng);
            // Log-normal of the given mean.
            let length_s = class.mean_s * (class.sigma * (z - 0.5 * class.sigma)).exp();
            let excess = match self.excess[at] {
                Some(excess) => excess,
                None => excess(class, &mut self.rng),
            };
            if start_s + length_s > t {
                self.active.push((start_s + length_s, excess));
                changed = true;
            }
            self.next_s = self.wait_from(start_s);
        }
        let before = self.active.len();
        self.active.retain(|a| a.0 > t);
        if changed || self.active.len() != before {
            self.refresh(plan.slow.slowest);
        }
    }

    /// Factor on the time of everything, at least 1.
    pub(super) fn factor(&self) -> f64 {
        self.factor
    }

    /// When the factor may change next.
    pub(super) fn change_s(&self) -> f64 {
        self.active.iter().map(|a| a.0).fold(self.next_s, f64::min)
    }
}

/// Excess of an episode's factor over 1.
fn excess(class: &SlowClass, rng: &mut ChaCha8Rng) -> f64 {
    match &class.severity {
        Severity::LogNormal { median, sigma } => {
            let z: f64 = StandardNormal.sample(rng);
            (median - 1.0) * (sigma * z).exp()
        }
        Severity::Values(values) => values[rng.random_range(0..values.len())] - 1.0,
    }
}

/// The swing over the day, its rate integrated.
#[derive(Clone, Copy, Debug)]
pub(super) struct Swing {
    amplitude: f64,
    /// Radians per second.
    omega: f64,
    /// Radians at the run's start.
    phase: f64,
}

impl Swing {
    pub(super) fn new(diurnal: &Diurnal, start_s: f64) -> Swing {
        let omega = TAU / diurnal.period_s;
        let phase = (start_s - diurnal.peak_s).rem_euclid(diurnal.period_s) * omega;
        Swing { amplitude: diurnal.amplitude, omega, phase }
    }

    /// Seconds of work done from t over a time.
    pub(super) fn work_s(&self, t: f64, length_s: f64) -> f64 {
        let sine = |t: f64| (self.omega * t + self.phase).sin();
        length_s + self.amplitude / self.omega * (sine(t + length_s) - sine(t))
    }

    /// Time that takes so much work from t on: Newton, kept inside the bounds of the rate.
    pub(super) fn time_s(&self, t: f64, work_s: f64) -> f64 {
        let (mut low, mut high) =
            (work_s / (1.0 + self.amplitude), work_s / (1.0 - self.amplitude));
        let mut length_s = work_s;
        for _ in 0..60 {
            let over = self.work_s(t, length_s) - work_s;
            if over > 0.0 {
                high = high.min(length_s);
            } else {
                low = low.max(length_s);
            }
            let rate = 1.0 + self.amplitude * (self.omega * (t + length_s) + self.phase).cos();
            let next = length_s - over / rate;
            let next = if next > low && next < high { next } else { 0.5 * (low + high) };
            if (next - length_s).abs() <= 1e-12 * work_s {
                return next;
            }
            length_s = next;
        }
        length_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_swing_is_its_rates_integral() {
        let diurnal = Diurnal { amplitude: 0.4, period_s: 100.0, peak_s: 30.0 };
        let swing = Swing::new(&diurnal, 10.0);
        for (t, length_s) in [(0.0, 1.0), (17.0, 250.0), (1_000.0, 33.0)] {
            let n = 100_000;
            let rate = |i: i32| {
                let s = t + (f64::from(i) + 0.5) / f64::from(n) * length_s;
                1.0 + 0.4 * (TAU * (s + 10.0 - 30.0) / 100.0).cos()
            };
            let brute = (0..n).map(rate).sum::<f64>() / f64::from(n) * length_s;
            let work_s = swing.work_s(t, length_s);
            assert!((work_s - brute).abs() < 1e-6, "{work_s} {brute}");
            assert!((swing.time_s(t, work_s) - length_s).abs() < 1e-9);
        }
        // A whole day gains nothing.
        assert!((swing.work_s(3.0, 100.0) - 100.0).abs() < 1e-9);
    }
}
