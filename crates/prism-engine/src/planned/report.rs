//! What is reported of a planned job's step time.

use serde::{Deserialize, Serialize};

use super::predict::JobOptions;
use crate::compose::{ComposeError, Composed};
use crate::predict::Histogram;

/// A quantile of step time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct JobQuantile {
    /// Its probability.
    pub p: f64,
    /// Seconds; none where the samples cannot answer.
    pub value_s: Option<f64>,
    /// Lower end of its interval; none where the samples do not bound it.
    pub lower_s: Option<f64>,
    /// Upper end.
    pub upper_s: Option<f64>,
    /// The quantile less the noise-free step, seconds.
    pub penalty_s: Option<f64>,
    /// Whether a tail fitted to the samples was followed beyond them.
    pub extrapolated: bool,
    /// Why there is no value.
    pub refused: Option<String>,
}

/// Probability that a step is slower than the noise-free step by more than some share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct JobSlowdown {
    /// Share: 0.05 is 5 %.
    pub above: f64,
    /// The probability.
    pub probability: f64,
    /// Lower end of its interval.
    pub lower: f64,
    /// Upper end.
    pub upper: f64,
}

/// A law of step time. Times are seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct JobDistribution {
    /// Over what.
    pub over: String,
    /// Mean.
    pub mean_s: f64,
    /// Standard deviation.
    pub sd_s: f64,
    /// Quantiles.
    pub quantiles: Vec<JobQuantile>,
    /// Probabilities of slow-down against the noise-free step.
    pub slowdowns: Vec<JobSlowdown>,
    /// 10,000 equally likely step times in bins.
    pub histogram: Histogram,
    /// How the replicas were combined, and why so.
    pub method: String,
    /// Samples of a replica behind it.
    pub samples: u64,
}

/// How clusters differ.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ClusterLaw {
    /// Clusters drawn.
    pub clusters: u32,
    /// Time of the slowest replica without noise in time, seconds: 5 %, 50 % and 95 % of the clusters.
    pub noise_free_s: [f64; 3],
    /// Step quantiles on the clusters at 5 % and 95 %, by the reported probabilities; none where
    /// refused.
    pub range_s: Vec<[Option<f64>; 2]>,
}

/// What is predicted of a planned job's step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct JobPrediction {
    /// Step time without any noise, every GPU alike, seconds.
    pub noise_free_s: f64,
    /// Data-parallel replicas.
    pub replicas: u32,
    /// Over steps, on the middle one of the clusters drawn.
    pub steps: JobDistribution,
    /// Over clusters one might be given, and steps on them.
    pub over_clusters: JobDistribution,
    /// How clusters differ.
    pub clusters: ClusterLaw,
    /// What the reader must know.
    pub warnings: Vec<String>,
}

/// What is reported of a law.
pub(super) fn distribution(
    over: &str,
    law: &Composed,
    method: String,
    noise_free_s: f64,
    options: &JobOptions,
) -> JobDistribution {
    let quantiles = options
        .quantiles
        .iter()
        .map(|&p| match law.quantile(p) {
            Ok(answer) => JobQuantile {
                p,
                value_s: Some(answer.value),
                lower_s: answer.lower,
                upper_s: answer.upper,
                penalty_s: Some(answer.value - noise_free_s),
                extrapolated: answer.extrapolated,
                refused: None,
            },
            Err(error) => refused(p, &error),
        })
        .collect();
    let slowdowns = options
        .slowdowns
        .iter()
        .map(|&above| {
            let at = noise_free_s * (1.0 + above);
            let (lower, upper) = law.tail_bounds(at);
            JobSlowdown { above, probability: law.sf(at), lower, upper }
        })
        .collect();
    JobDistribution {
        over: over.to_owned(),
        mean_s: law.mean(),
        sd_s: law.sd(),
        quantiles,
        slowdowns,
        histogram: histogram(law),
        method,
        samples: law.diagnostics().samples,
    }
}

fn refused(p: f64, error: &ComposeError) -> JobQuantile {
    JobQuantile {
        p,
        value_s: None,
        lower_s: None,
        upper_s: None,
        penalty_s: None,
        extrapolated: false,
        refused: Some(error.to_string()),
    }
}

/// 40 bins from the 0.1 % to the 99.9 % quantile.
fn histogram(law: &Composed) -> Histogram {
    const BINS: usize = 40;
    const ALL: f64 = 10_000.0;
    let (from_s, to_s) = (law.sample(0.001), law.sample(0.999));
    let width = (to_s - from_s) / BINS as f64;
    let mut counts = Vec::with_capacity(BINS);
    let mut before = 0.0;
    for i in 1..=BINS {
        let to = if i == BINS { 1.0 } else { law.cdf(from_s + width * i as f64) };
        counts.push(((to - before) * ALL).round().max(0.0) as usize);
        before = to;
    }
    Histogram { from_s, to_s, counts }
}
