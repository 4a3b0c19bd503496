//! Change of the mean of unit-variance noise: the generalised likelihood ratio.

/// The newest candidates are tried one by one, …
const DENSE: usize = 64;
/// … older ones this factor apart.
const RATIO: f64 = 1.15;

/// Steps that a new level must have lasted: one or two slow ones are a stall.
pub(super) const LASTED: usize = 3;

/// A stretch of whitened steps with one mean, as far as is known.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    /// Prefix sums: `sums[k]` is that of the first k.
    sums: Vec<f64>,
    /// What is known of the mean before any step: as if so many had been seen …
    prior_count: f64,
    /// … with this mean.
    prior_mean: f64,
}

/// The most likely change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Change {
    /// First index after it.
    pub(super) at: usize,
    /// Square root of twice the log likelihood ratio.
    pub(super) statistic: f64,
    /// Mean after, less mean before.
    pub(super) shift: f64,
}

impl Segment {
    pub(super) fn new(prior_count: f64, prior_mean: f64) -> Self {
        Segment { sums: vec![0.0], prior_count, prior_mean }
    }

    pub(super) fn len(&self) -> usize {
        self.sums.len() - 1
    }

    /// Mean of the first k, the prior in it.
    pub(super) fn mean_to(&self, k: usize) -> f64 {
        let count = k as f64 + self.prior_count;
        if count > 0.0 { (self.sums[k] + self.prior_count * self.prior_mean) / count } else { 0.0 }
    }

    /// Mean of all.
    pub(super) fn mean(&self) -> f64 {
        self.mean_to(self.len())
    }

    pub(super) fn push(&mut self, y: f64) {
        let last = self.sums[self.len()];
        self.sums.push(last + y);
    }

    /// The most likely change with at least `before` observations (the prior counts) before it.
    pub(super) fn change(&self, before: f64) -> Option<Change> {
        let n = self.len();
        let mut best: Option<Change> = None;
        let mut back = LASTED as f64;
        while back as usize <= n {
            let at = n - back as usize;
            let known = at as f64 + self.prior_count;
            if known < before {
                break;
            }
            let after = back.floor();
            let shift = (self.sums[n] - self.sums[at]) / after - self.mean_to(at);
            let statistic = shift.abs() * (after * known / (after + known)).sqrt();
            if best.is_none_or(|b| statistic > b.statistic) {
                best = Some(Change { at, statistic, shift });
            }
            back = if back < DENSE as f64 { back + 1.0 } else { (back * RATIO).floor() };
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_statistic_is_the_likelihood_ratio() {
        let y: [f64; 7] = [0.1, -0.3, 0.2, 1.5, 1.1, 1.8, 1.2];
        let mut segment = Segment::new(0.0, 0.0);
        for v in y {
            segment.push(v);
        }
        let change = segment.change(1.0).unwrap();
        // Sums of squares around one mean, and around two.
        let ss = |v: &[f64]| {
            let m = v.iter().sum::<f64>() / v.len() as f64;
            v.iter().map(|x| (x - m).powi(2)).sum::<f64>()
        };
        let best =
            (1..y.len()).map(|k| (ss(&y) - ss(&y[..k]) - ss(&y[k..])).sqrt()).fold(0.0, f64::max);
        assert_eq!(change.at, 3);
        assert!((change.statistic - best).abs() < 1e-12);
        assert!((change.shift - 1.4).abs() < 1e-12);
    }

    #[test]
    fn a_known_level_needs_no_steps_before() {
        let mut segment = Segment::new(1e9, 0.0);
        for _ in 0..4 {
            segment.push(3.0);
        }
        let change = segment.change(5.0).unwrap();
        assert_eq!(change.at, 0);
        assert!((change.statistic - 6.0).abs() < 1e-6);
        let mut unknown = Segment::new(0.0, 0.0);
        for _ in 0..4 {
            unknown.push(3.0);
        }
        assert!(unknown.change(5.0).is_none());
    }
}
