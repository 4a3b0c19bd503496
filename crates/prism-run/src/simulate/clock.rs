//! The failures of a run: a marked Poisson process in wall-clock time.

use prism_job::run::{FailureRate, Rates, RunPlan};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Exp1, Gamma};

/// Rates of the failure classes, as they are looked at when a failure comes.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    /// Failures per second of all classes; 0 where nothing fails.
    total: f64,
    /// Sums of rates up to each class, the most frequent class first.
    sums: Vec<f64>,
    /// Class of each sum.
    class: Vec<u32>,
    /// Share of a class's failures that happen; empty where all do.
    kept: Vec<f64>,
}

/// Rates of classes relative to the plan's. All runs of one `envelope` share their failures: a factor of
/// half the envelope keeps half of them.
#[derive(Clone, Debug)]
pub(crate) struct Thinning {
    /// Largest factor of any variant.
    pub(crate) envelope: f64,
    /// Factor of each class.
    pub(crate) factors: Vec<f64>,
}

/// A failure to come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failure {
    /// Seconds after the run's start.
    pub(super) at_s: f64,
    /// Its class.
    pub(super) class: u32,
}

impl Failure {
    pub(super) const NEVER: Failure = Failure { at_s: f64::INFINITY, class: 0 };
}

impl Table {
    /// The rates of one run: the plan's, or drawn from what the counts leave open.
    pub(super) fn fill(
        &mut self,
        plan: &RunPlan,
        thinning: Option<&Thinning>,
        mut rng: impl FnMut() -> ChaCha8Rng,
    ) {
        self.sums.clear();
        self.class.clear();
        let classes = &plan.failures.classes;
        let envelope = thinning.map_or(1.0, |t| t.envelope);
        if plan.failures.rates == Rates::Posterior {
            let mut rng = rng();
            self.sums.extend(classes.iter().map(|c| match c.rate {
                // Gamma(count + ½) over the exposure.
                FailureRate::Counted { count, .. } => {
                    let gamma = Gamma::new(count as f64 + 0.5, 1.0 / c.exposure_s(&plan.machines));
                    gamma.map_or(0.0, |g| g.sample(&mut rng))
                }
                _ => c.job_rate(&plan.machines),
            }));
        } else {
            self.sums.extend(classes.iter().map(|c| c.job_rate(&plan.machines)));
        }
        self.class.extend(0..classes.len() as u32);
        let rates = &self.sums;
        self.class.sort_by(|a, b| rates[*b as usize].total_cmp(&rates[*a as usize]));
        let mut total = 0.0;
        let sorted: Vec<f64> = self.class.iter().map(|c| rates[*c as usize] * envelope).collect();
        for (sum, rate) in self.sums.iter_mut().zip(sorted) {
            total += rate;
            *sum = total;
        }
        self.total = total;
        self.kept.clear();
        if let Some(t) = thinning {
            self.kept.extend(t.factors.iter().map(|f| f / t.envelope));
            if self.kept.iter().all(|kept| *kept <= 0.0) {
                self.total = 0.0;
            }
        }
    }

    /// The first failure after a time.
    #[inline]
    pub(super) fn next(&self, after_s: f64, rng: &mut ChaCha8Rng) -> Failure {
        if self.total <= 0.0 {
            return Failure::NEVER;
        }
        let mut at_s = after_s;
        loop {
            let wait: f64 = Exp1.sample(rng);
            at_s += wait / self.total;
            let u = rng.random::<f64>() * self.total;
            let at = self.sums.iter().position(|s| u < *s).unwrap_or(self.sums.len() - 1);
            let class = self.class[at];
            if let Some(kept) = self.kept.get(class as usize) {
                let below = if at == 0 { 0.0 } else { self.sums[at - 1] };
                if (u - below) >= kept * (self.sums[at] - below) {
                    continue;
                }
            }
            return Failure { at_s, class };
        }
    }
}
