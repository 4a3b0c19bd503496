//! What all replicas of a step share.

use super::PlannedError;
use crate::compose::{Composed, MaxOptions, Replicas, order_max, scaled};

/// Effects that all replicas of a step share.
pub(super) struct Shared {
    /// S.d. of the log factor on the whole step.
    pub(super) step_sd: f64,
    /// Replica without own noise, by sample, seconds.
    pub(super) around_s: Vec<f64>,
    /// The same without anything that varies, seconds.
    pub(super) quiet_s: f64,
}

impl Shared {
    /// From the law at the shared effects' means to the law over them.
    ///
    /// A factor on the whole step scales the law. Where communication varies too, a step takes what it
    /// takes without own noise, plus the excess that own noise causes, scaled likewise: to first order
    /// the two do not depend on each other.
    pub(super) fn apply(
        &self,
        law: Composed,
        options: &MaxOptions,
    ) -> Result<Composed, PlannedError> {
        if self.around_s.is_empty() {
            return if self.step_sd > 0.0 { Ok(scaled(&law, self.step_sd)?) } else { Ok(law) };
        }
        let n = self.around_s.len();
        // A step's excess is independent of what it shares: places of the excess are visited in an
        // order that has nothing to do with that of the samples.
        let stride = coprime(n);
        let times = |pick: &dyn Fn(f64) -> f64| {
            let mut times: Vec<f64> = self
                .around_s
                .iter()
                .enumerate()
                .map(|(i, around)| {
                    let u = ((i * stride % n) as f64 + 0.5) / n as f64;
                    around + (pick(u) - self.quiet_s) * around / self.quiet_s
                })
                .collect();
            times.sort_unstable_by(f64::total_cmp);
            times
        };
        let composed = |times: &[f64]| order_max(&[Replicas::new(times, 1)], options);
        let mut widened = composed(&times(&|u| law.sample(u)))?.widened_like(&law)?;
        // What would stand here if the replicas' tail ended with their samples.
        let known = law.answered_to();
        if known < 1.0 {
            widened.extrapolate_where_unlike(&composed(&times(&|u| law.sample(u.min(known))))?);
        }
        Ok(widened)
    }
}

/// A stride that visits all of 0..n, about 0.618 n.
fn coprime(n: usize) -> usize {
    let gcd = |mut a: usize, mut b: usize| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let mut stride = ((n as f64 * 0.618_034) as usize).max(1);
    while gcd(stride, n) != 1 {
        stride += 1;
    }
    stride
}
