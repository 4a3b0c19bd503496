//! Whether replicas differ in the spread of their durations.

use prism_model::{Effect, EffectKind};

use super::effects::{Estimates, column_means, decide, mean, ratio, untestable, variance};

impl Estimates {
    /// Whether the spread inside cells differs between replicas, and each replica's spread relative
    /// to the signature's, `[c][r]`.
    ///
    /// Levene's test on a cell's sum of absolute deviations: deviations inside a cell sum to zero
    /// and so depend on each other, cells do not. A step's own spread, shared by replicas, is taken
    /// out.
    pub(crate) fn worker_spread(&self, alpha: f64) -> (Effect, Vec<Vec<f64>>) {
        let (t, r, m) = (self.steps(), self.replicas(), self.microbatches());
        let kind = EffectKind::WorkerSpread;
        if r < 2 || m < 2 || t < 2 {
            let why = "needs two replicas, steps and microbatches";
            return (untestable(kind, 0.0, false, why), vec![vec![1.0; r]; self.inner.len()]);
        }
        let mut factors = Vec::new();
        let mut per = Vec::new();
        for c in 0..self.inner.len() {
            let (mut absolute, mut square) = (vec![0.0; t * r], vec![0.0; t * r]);
            for row in self.inner.signature(c).chunks(t * r) {
                for (i, v) in row.iter().enumerate() {
                    absolute[i] += v.abs();
                    square[i] += v * v;
                }
            }
            let between = variance(&column_means(&absolute, r));
            let noise = self.interaction(&absolute) / t as f64;
            let squares = column_means(&square, r);
            let all = mean(&squares);
            let factor: Vec<f64> =
                squares.iter().map(|s| if all > 0.0 { (s / all).sqrt() } else { 1.0 }).collect();
            // A factor is the root of a mean of squares: half the relative error.
            let error = if all > 0.0 {
                0.25 * self.interaction(&square) / (all * all * t as f64)
            } else {
                0.0
            };
            let spread = factor.iter().map(|f| (f - 1.0).powi(2)).sum::<f64>() / r as f64;
            per.push((ratio(between, noise), spread - error * (1.0 - 1.0 / r as f64)));
            factors.push(factor);
        }
        let (df1, df2) = (r as f64 - 1.0, (r as f64 - 1.0) * (t as f64 - 1.0));
        let (yes, no) = ("replicas differ in spread", "replicas have the same spread");
        (decide(kind, alpha, &per, df1, df2, yes, no), factors)
    }

    /// Step x replica interaction variance of a `[t][r]` array.
    fn interaction(&self, cell: &[f64]) -> f64 {
        let columns = column_means(cell, self.replicas());
        let centred: Vec<f64> =
            cell.iter().enumerate().map(|(i, v)| v - columns[i % columns.len()]).collect();
        self.interaction_variance(&centred)
    }
}
