//! How far a predicted law is from held-out step times.

use prism_stats::{ks_floor, ks_statistic_two, quantile_type7, stream};
use rand::RngExt;
use serde::{Deserialize, Serialize};

use super::ValidateError;

/// Repetitions behind the predicted sample quantile.
const REPETITIONS: usize = 1_000;

/// A difference between predicted and held-out, two ways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Deviation {
    /// Percent of the held-out figure.
    pub percent: f64,
    /// In units of the held-out standard deviation.
    pub sds: f64,
}

/// One prediction against one set of held-out steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Score {
    pub(super) mean: Deviation,
    pub(super) p50: Deviation,
    pub(super) p95: Deviation,
    /// Population p95 of the law against the sample p95: what p95 is before the number of held-out
    /// steps is taken into account.
    pub(super) p95_of_law: Deviation,
    pub(super) sd_ratio: f64,
    pub(super) ks: f64,
    pub(super) ks_floor: f64,
}

/// Scores a predicted law, given as sorted equally likely values, against held-out step times.
///
/// A type-7 sample quantile of m steps is not the population's: for m = 16 its p95 lies between the
/// two slowest steps. So like is compared with like: the prediction of a sample quantile is the
/// median, under the predicted law, of the same sample quantile of m steps.
///
/// # Errors
/// If fewer than two steps are held out.
pub(super) fn score(
    predicted: &[f64],
    held_out: &[f64],
    seed: u64,
) -> Result<Score, ValidateError> {
    let mut test = held_out.to_vec();
    test.sort_by(f64::total_cmp);
    let (mean, sd) = moments(&test);
    let (predicted_mean, predicted_sd) = moments(predicted);
    let deviation = |a: f64, b: f64| Deviation {
        percent: 100.0 * (a / b - 1.0),
        sds: if sd > 0.0 { (a - b) / sd } else { f64::NAN },
    };
    let [p50, p95] = sample_quantiles(predicted, test.len(), seed);
    let (test50, test95) = (quantile_type7(&test, 0.5)?, quantile_type7(&test, 0.95)?);
    Ok(Score {
        mean: deviation(predicted_mean, mean),
        p50: deviation(p50, test50),
        p95: deviation(p95, test95),
        p95_of_law: deviation(quantile_type7(predicted, 0.95)?, test95),
        sd_ratio: predicted_sd / sd,
        ks: ks_statistic_two(predicted, &test)?,
        ks_floor: ks_floor(test.len())?.mean,
    })
}

/// Medians of the type-7 sample p50 and p95 of `m` draws from equally likely sorted values.
fn sample_quantiles(sorted: &[f64], m: usize, seed: u64) -> [f64; 2] {
    let mut rng = stream(seed, "validate-sample-quantile", &[m as u64]);
    let mut draws = vec![0.0; m];
    let (mut p50, mut p95) = (Vec::with_capacity(REPETITIONS), Vec::with_capacity(REPETITIONS));
    for _ in 0..REPETITIONS {
        for d in &mut draws {
            *d = sorted[rng.random_range(0..sorted.len())];
        }
        draws.sort_unstable_by(f64::total_cmp);
        p50.push(quantile_type7(&draws, 0.5).unwrap_or(f64::NAN));
        p95.push(quantile_type7(&draws, 0.95).unwrap_or(f64::NAN));
    }
    [median(p50), median(p95)]
}

pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    quantile_type7(&values, 0.5).unwrap_or(f64::NAN)
}

pub(super) fn moments(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0).max(1.0);
    (mean, variance.sqrt())
}

/// A deviation over several splits.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Errors {
    /// Mean of the signed deviations.
    pub bias: Deviation,
    /// Mean of the absolute deviations.
    pub mean_absolute: Deviation,
    /// S.d. of the signed deviations over splits.
    pub spread: Deviation,
}

impl Errors {
    fn of(all: &[Deviation]) -> Errors {
        let each = |f: &dyn Fn(&Deviation) -> f64| all.iter().map(f).collect::<Vec<f64>>();
        let average = |v: &[f64]| v.iter().sum::<f64>() / v.len().max(1) as f64;
        let (percent, sds) = (each(&|d| d.percent), each(&|d| d.sds));
        let absolute = |v: &[f64]| average(&v.iter().map(|x| x.abs()).collect::<Vec<_>>());
        Errors {
            bias: Deviation { percent: average(&percent), sds: average(&sds) },
            mean_absolute: Deviation { percent: absolute(&percent), sds: absolute(&sds) },
            spread: Deviation { percent: moments(&percent).1, sds: moments(&sds).1 },
        }
    }
}

/// How one predictor did, over several splits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct PredictorScore {
    /// `prism`, or a comparator: `constant`, `normal`, `ecdf`, `iid`.
    pub predictor: String,
    /// Mean step time.
    pub mean: Errors,
    /// Median.
    pub p50: Errors,
    /// p95: median, under the prediction, of the type-7 p95 of as many steps as were held out,
    /// against the held-out type-7 p95.
    pub p95: Errors,
    /// The predicted law's own p95 against the held-out type-7 p95.
    pub p95_of_law: Errors,
    /// Predicted over held-out s.d., geometric mean; none for a prediction without spread.
    pub sd_ratio: Option<f64>,
    /// Kolmogorov–Smirnov distance to the held-out steps, mean.
    pub ks: f64,
    /// Distance that a perfect model would have on average.
    pub ks_floor: f64,
}

impl PredictorScore {
    pub(super) fn of(predictor: &str, scores: &[Score]) -> PredictorScore {
        let n = scores.len().max(1) as f64;
        let all = |f: &dyn Fn(&Score) -> Deviation| {
            Errors::of(&scores.iter().map(f).collect::<Vec<Deviation>>())
        };
        let logs: f64 = scores.iter().map(|s| s.sd_ratio.ln()).sum::<f64>() / n;
        PredictorScore {
            predictor: predictor.to_owned(),
            mean: all(&|s| s.mean),
            p50: all(&|s| s.p50),
            p95: all(&|s| s.p95),
            p95_of_law: all(&|s| s.p95_of_law),
            sd_ratio: logs.is_finite().then(|| logs.exp()),
            ks: scores.iter().map(|s| s.ks).sum::<f64>() / n,
            ks_floor: scores.iter().map(|s| s.ks_floor).sum::<f64>() / n,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_perfect_constant_has_no_error_and_no_ratio() {
        let s = score(&[2.0; 10], &[2.0, 2.0, 2.0], 1).unwrap();
        assert_eq!((s.mean.percent, s.p95.percent, s.ks), (0.0, 0.0, 0.0));
        assert!(PredictorScore::of("constant", &[s]).sd_ratio.is_none());
    }

    /// The rule that makes p95 comparable: with one slow step in 20, the p95 of 16 draws is most
    /// often below the slow one, although the law's p95 is at it.
    #[test]
    fn sample_quantile_of_few_steps_is_not_the_laws() {
        let mut law = vec![1.0; 188];
        law.extend(vec![2.0; 12]);
        let [p50, p95] = sample_quantiles(&law, 16, 3);
        assert_eq!(p50, 1.0);
        assert_eq!(quantile_type7(&law, 0.95).unwrap(), 2.0);
        // One slow step among 16: type 7 takes a quarter of the way from rank 15 to rank 16.
        assert_eq!(p95, 1.25);
    }

    #[test]
    fn large_held_out_sets_see_the_laws_quantile() {
        let law: Vec<f64> = (0..=1000).map(f64::from).collect();
        let [p50, p95] = sample_quantiles(&law, 4_000, 3);
        // s.e. of a sample quantile: sqrt(p(1-p)/m)/density.
        assert!((p50 - 500.0).abs() < 4.0 * 1000.0 * (0.25f64 / 4_000.0).sqrt(), "{p50}");
        assert!((p95 - 950.0).abs() < 4.0 * 1000.0 * (0.0475f64 / 4_000.0).sqrt(), "{p95}");
    }
}
