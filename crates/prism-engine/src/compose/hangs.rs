//! Rare events, by their number in a step.
//!
//! An event of probability 10⁻⁵ per operation happens in 4 % of the steps of 4,000 operations, and plain
//! samples spend the other 96 % on nothing. Instead the number of events is fixed, k = 0, 1, 2, …, each
//! stratum is simulated with k events at random places, and P(T > t) = Σ P(K = k)·P(T > t | k) with exact
//! P(K = k).

use prism_stats::curve::Level;

use super::choose::Method;
use super::error::{ComposeError, Result};
use super::law::Composed;
use super::maximum::{MaxOptions, Replicas, order_max};
use crate::sample::{Index, Key, Offset, PoolId, Program, Scope, Value};

/// The law of the number of events in a step.
#[derive(Clone, Debug, PartialEq)]
pub struct HangCounts {
    probability: Vec<f64>,
    uncovered: f64,
}

impl HangCounts {
    /// Poisson with the given mean, up to the number beyond which less than `uncovered` remains.
    ///
    /// # Errors
    /// [`ComposeError::Input`] if the mean is not between 0 and 50, or `uncovered` not in (0, 1).
    pub fn poisson(mean: f64, uncovered: f64) -> Result<Self> {
        ComposeError::check(
            (0.0..=50.0).contains(&mean),
            "mean number of events",
            mean,
            "0 to 50",
        )?;
        Self::collect((-mean).exp(), uncovered, |k| mean / (k + 1.0))
    }

    /// Binomial: each of `sites` operations with probability p.
    ///
    /// # Errors
    /// As [`poisson`](Self::poisson), for the mean `sites`·p.
    pub fn binomial(sites: u64, p: f64, uncovered: f64) -> Result<Self> {
        ComposeError::check((0.0..1.0).contains(&p), "probability of an event", p, "in [0, 1)")?;
        let n = sites as f64;
        ComposeError::check(n * p <= 50.0, "mean number of events", n * p, "0 to 50")?;
        let none = (n * (-p).ln_1p()).exp();
        Self::collect(none, uncovered, |k| (n - k).max(0.0) / (k + 1.0) * p / (1.0 - p))
    }

    fn collect(none: f64, uncovered: f64, ratio: impl Fn(f64) -> f64) -> Result<Self> {
        let rule = "strictly between 0 and 1";
        ComposeError::check(uncovered > 0.0 && uncovered < 1.0, "uncovered", uncovered, rule)?;
        let mut probability = vec![none];
        loop {
            let k = probability.len() as f64 - 1.0;
            let next = probability[k as usize] * ratio(k);
            // Ratios fall: what remains is below a geometric series once they are below one half.
            if ratio(k) < 0.5 && 2.0 * next < uncovered {
                return Ok(Self { probability, uncovered: 2.0 * next });
            }
            probability.push(next);
        }
    }

    /// P(K = k) for every stratum.
    pub fn probabilities(&self) -> &[f64] {
        &self.probability
    }

    /// Bound on the probability of more events than any stratum has.
    pub fn uncovered(&self) -> f64 {
        self.uncovered
    }
}

/// A probability and its standard error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TailProbability {
    /// Estimate of P(T > t).
    pub probability: f64,
    /// Its standard error, by the samples of each stratum.
    pub error: f64,
    /// What no stratum covers: the truth may be larger by this much.
    pub uncovered: f64,
}

impl TailProbability {
    /// Standard error relative to the estimate.
    pub fn relative_error(&self) -> f64 {
        self.error / self.probability
    }
}

/// Samples of a step, by number of events.
#[derive(Clone, Debug, PartialEq)]
pub struct Stratified {
    counts: HangCounts,
    /// Ascending samples per stratum.
    strata: Vec<Vec<f64>>,
}

/// Simulates every stratum: `simulate(k, n)` returns n times with k events at random places. `samples`
/// are drawn per stratum.
///
/// # Errors
/// [`ComposeError::Shape`] for another number of times; what the simulation reports.
pub fn stratify(
    counts: &HangCounts,
    samples: usize,
    mut simulate: impl FnMut(u32, usize) -> Result<Vec<f64>>,
) -> Result<Stratified> {
    ComposeError::check(samples > 1, "samples per stratum", samples as f64, "at least 2")?;
    let mut strata = Vec::with_capacity(counts.probability.len());
    for k in 0..counts.probability.len() {
        let mut times = simulate(k as u32, samples)?;
        if times.len() != samples {
            let (what, have) = ("times of a stratum", times.len());
            return Err(ComposeError::Shape { what, have, need: samples });
        }
        times.sort_unstable_by(f64::total_cmp);
        strata.push(times);
    }
    Ok(Stratified { counts: counts.clone(), strata })
}

impl Stratified {
    /// P(T > t) with its error.
    pub fn tail(&self, t: f64) -> TailProbability {
        let (mut probability, mut variance) = (0.0, 0.0);
        for (weight, times) in self.counts.probability.iter().zip(&self.strata) {
            let n = times.len() as f64;
            let beyond = n - times.partition_point(|&x| x <= t) as f64;
            let share = beyond / n;
            probability += weight * share;
            // A stratum without a hit is not without error: Laplace's estimate of its spread.
            let spread = (beyond + 1.0) / (n + 2.0);
            variance += weight * weight * spread * (1.0 - spread) / n;
        }
        TailProbability { probability, error: variance.sqrt(), uncovered: self.counts.uncovered }
    }

    /// The law of the largest of `count` such replicas; 1 for a replica's own.
    ///
    /// # Errors
    /// As [`order_max`].
    pub fn law(&self, count: u64, options: &MaxOptions) -> Result<Composed> {
        let mut pairs: Vec<(f64, f64)> = self
            .counts
            .probability
            .iter()
            .zip(&self.strata)
            .flat_map(|(p, times)| times.iter().map(move |&t| (t, p / times.len() as f64)))
            .collect();
        pairs.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        let (sorted, weights): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
        let replicas = Replicas { sorted: &sorted, weights: &weights, count };
        let mut law = order_max(&[replicas], options)?;
        // Beyond the tail of which the uncovered events could be a tenth nothing is said.
        let limit = Level::new(1.0 - (10.0 * self.counts.uncovered * count as f64).min(0.5))
            .map_or(f64::INFINITY, |l| l.score);
        law.reach.to = law.reach.to.min(limit);
        let diagnostics = law.diagnostics_mut();
        diagnostics.method = Method::Stratified;
        diagnostics.uncovered = self.counts.uncovered;
        Ok(law)
    }
}

/// Places of events in a program: each event hits one of the sites, all equally likely.
///
/// A pool of zeros around a single one, gathered at (event's site + offset of the operation), is the
/// operation's indicator: one gather per event and operation. Two events can hit one site; with k events
/// on n sites that has probability about k²/(2n), where a binomial count would exclude it.
#[derive(Clone, Debug)]
pub struct HangSites {
    pool: PoolId,
    events: Vec<Index>,
    sites: u32,
}

impl HangSites {
    /// Draws the sites of `events` events for every sample.
    ///
    /// # Errors
    /// [`ComposeError::Input`] if there is no site.
    pub fn new(program: &mut Program, sites: u32, events: u32, scope: Scope) -> Result<Self> {
        ComposeError::check(sites > 0, "number of sites", 0.0, "positive")?;
        let mut around = vec![0.0; 2 * sites as usize - 1];
        around[sites as usize - 1] = 1.0;
        let pool = program.pool(around);
        let draw = |e| program.index(sites, Key::new("hang site").with(u64::from(e)), scope);
        let events = (0..events).map(draw).collect();
        Ok(Self { pool, events, sites })
    }

    /// How many events hit the site (`0..sites`), as a number; none where there are no events.
    ///
    /// # Errors
    /// [`ComposeError::Input`] for a site that does not exist.
    pub fn hits(&self, program: &mut Program, site: u32) -> Result<Option<Value>> {
        ComposeError::check(
            site < self.sites,
            "site",
            f64::from(site),
            "below the number of sites",
        )?;
        let offset = Offset::Fixed(self.sites - 1 - site);
        let each: Vec<Value> = self
            .events
            .iter()
            .map(|&event| program.gather(self.pool, event, 1, offset.clone()))
            .collect();
        Ok((!each.is_empty()).then(|| program.sum(&each)))
    }
}
