//! The law of a composed time, with what is known about its error.

use std::fmt;

use prism_stats::QuantileCurve;
use prism_stats::curve::{Level, levels};

use super::choose::Method;
use super::error::{ComposeError, Result};

/// What the bounds of a law mean.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Bounds {
    /// Each quantile lies inside with this probability, over the samples that were drawn.
    Confidence(f64),
    /// Each quantile of the stated model lies inside, by arithmetic; the inputs are taken as true.
    Rigorous,
}

/// One round of doubling.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Round {
    /// Members simulated.
    pub members: usize,
    /// Largest relative move of a wanted quantile since the round before; infinite in the first.
    pub moved: f64,
}

/// How a law was obtained.
#[derive(Clone, Debug, PartialEq)]
pub struct Diagnostics {
    /// The method.
    pub method: Method,
    /// Samples drawn, of a replica or of the whole; 0 where nothing was drawn.
    pub samples: u64,
    /// What weighted samples are worth at the median of the law, in plain ones.
    pub effective_samples: f64,
    /// Members over which the maximum is taken.
    pub members: u64,
    /// Whether the law is a lower bound by construction: members left out can only delay the step.
    pub one_sided: bool,
    /// Relative bias of P(T ≤ median) from raising an estimated law to a power: N·λ/(2n), λ = ln 2.
    pub plug_in_bias: f64,
    /// Probability that no stratum covers.
    pub uncovered: f64,
    /// Rounds of doubling, where members were pruned.
    pub rounds: Vec<Round>,
    /// |total mass − 1| of a transform.
    pub mass_defect: f64,
    /// Bound on the mass that wrapped around in a transform.
    pub wrapped: f64,
}

impl Diagnostics {
    /// Those of a method, everything else zero.
    pub(crate) fn new(method: Method) -> Self {
        Self {
            method,
            samples: 0,
            effective_samples: 0.0,
            members: 1,
            one_sided: false,
            plug_in_bias: 0.0,
            uncovered: 0.0,
            rounds: Vec::new(),
            mass_defect: 0.0,
            wrapped: 0.0,
        }
    }
}

/// A quantile with its bounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Answer {
    /// Its probability.
    pub p: f64,
    /// The estimate, in seconds.
    pub value: f64,
    /// Lower bound; none where the data give none.
    pub lower: Option<f64>,
    /// Upper bound; none where the data give none.
    pub upper: Option<f64>,
    /// What the bounds mean.
    pub bounds: Bounds,
    /// Whether a fitted tail was followed beyond the data.
    pub extrapolated: bool,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6}", self.value)?;
        let end = |x: Option<f64>| x.map_or_else(|| "?".to_owned(), |v| format!("{v:.6}"));
        write!(f, " [{}, {}]", end(self.lower), end(self.upper))?;
        f.write_str(if self.extrapolated { " extrapolated" } else { "" })
    }
}

/// How far a law reaches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Reach {
    /// Scores between which the data answer.
    pub(crate) from: f64,
    pub(crate) to: f64,
    /// Score above which answers follow a fitted tail.
    pub(crate) extrapolated: f64,
    /// Effective exceedances needed.
    pub(crate) need: f64,
    /// Effective exceedances at a score beyond the reach: proportional to the tail probability.
    pub(crate) at_end: f64,
}

impl Reach {
    pub(crate) const ALL: Self = Self {
        from: f64::NEG_INFINITY,
        to: f64::INFINITY,
        extrapolated: f64::INFINITY,
        need: 0.0,
        at_end: 0.0,
    };
}

/// The law of a composed time.
#[derive(Clone, Debug, PartialEq)]
pub struct Composed {
    pub(crate) estimate: QuantileCurve,
    pub(crate) lower: QuantileCurve,
    pub(crate) upper: QuantileCurve,
    pub(crate) bounds: Bounds,
    pub(crate) reach: Reach,
    diagnostics: Diagnostics,
}

impl Composed {
    pub(crate) fn new(
        [lower, estimate, upper]: [QuantileCurve; 3],
        bounds: Bounds,
        reach: Reach,
        diagnostics: Diagnostics,
    ) -> Self {
        Self { estimate, lower, upper, bounds, reach, diagnostics }
    }

    /// Quantile p with its bounds.
    ///
    /// # Errors
    /// [`ComposeError::NoData`] beyond what the data answer; [`ComposeError::Stats`] if p is not
    /// strictly between 0 and 1.
    pub fn quantile(&self, p: f64) -> Result<Answer> {
        let score = Level::new(p)?.score;
        let reach = &self.reach;
        let grid = levels();
        let (first, last) = (grid[0].score, grid[grid.len() - 1].score);
        let (from, to) = (reach.from.max(first), reach.to.min(last));
        if score < from - 1e-9 || score > to + 1e-9 {
            let share = if score > to { (1.0 - p) / cdf(-to) } else { p / cdf(from) };
            let (from, to) = (cdf(from), cdf(to));
            let have = reach.at_end * share;
            return Err(ComposeError::NoData { p, have, need: reach.need, from, to });
        }
        let end = |x: f64| Some(x).filter(|v| v.is_finite());
        let extrapolated = score > reach.extrapolated + 1e-9;
        Ok(Answer {
            p,
            value: self.estimate.at_score(score),
            lower: end(self.lower.at_score(score)),
            upper: end(self.upper.at_score(score)),
            bounds: self.bounds,
            extrapolated,
        })
    }

    /// Probabilities between which the data answer.
    pub fn answers(&self) -> (f64, f64) {
        let grid = levels();
        let (first, last) = (grid[0].score, grid[grid.len() - 1].score);
        (cdf(self.reach.from.max(first)), cdf(self.reach.to.min(last)))
    }

    /// P(T ≤ x) of the estimate; 0 or 1 beyond the data.
    pub fn cdf(&self, x: f64) -> f64 {
        self.estimate.cdf(x)
    }

    /// P(T > x) of the estimate.
    pub fn sf(&self, x: f64) -> f64 {
        self.estimate.sf(x)
    }

    /// Expectation of the estimate, cut at the data's end.
    pub fn mean(&self) -> f64 {
        self.estimate.mean()
    }

    /// Standard deviation of the estimate, cut at the data's end.
    pub fn sd(&self) -> f64 {
        self.estimate.sd()
    }

    /// The time that belongs to a uniform number in (0, 1): for drawing. Beyond the data's reach it is
    /// the plug-in estimate, at most the largest sample.
    pub fn sample(&self, u: f64) -> f64 {
        self.estimate.quantile(u)
    }

    /// The quantile function of the estimate on the whole grid, beyond the data's reach included.
    pub fn curve(&self) -> &QuantileCurve {
        &self.estimate
    }

    /// Bounds on P(T > x): those of the quantiles, read the other way.
    pub fn tail_bounds(&self, x: f64) -> (f64, f64) {
        (self.lower.sf(x), self.upper.sf(x))
    }

    /// The same law with bounds at least as wide, at every probability, as those of another law that
    /// went into it.
    pub(crate) fn widened_like(&self, other: &Self) -> Result<Self> {
        let widen =
            |own: &QuantileCurve, middle: &QuantileCurve, theirs: &QuantileCurve, sign: f64| {
                let mut places = own
                    .values()
                    .iter()
                    .zip(self.estimate.values())
                    .zip(middle.values().iter().zip(theirs.values()));
                QuantileCurve::from_fn(|_| {
                    places.next().map_or(f64::NAN, |((own, mine), (middle, bound))| {
                        let width = (own - mine).hypot(bound - middle);
                        mine + sign * width
                    })
                })
            };
        let mut law = self.clone();
        law.lower = widen(&self.lower, &other.estimate, &other.lower, -1.0)?;
        law.upper = widen(&self.upper, &other.estimate, &other.upper, 1.0)?;
        law.diagnostics.samples = other.diagnostics.samples;
        law.diagnostics.members = other.diagnostics.members;
        Ok(law)
    }

    /// The highest probability that samples answer, not a fitted tail.
    pub(crate) fn answered_to(&self) -> f64 {
        cdf(self.reach.to.min(self.reach.extrapolated))
    }

    /// Marks as extrapolated what lies above the first probability, from the median up, at which another
    /// law that ends with its samples differs by more than an eighth of the bounds' width.
    pub(crate) fn extrapolate_where_unlike(&mut self, other: &Self) {
        let grid = levels();
        let middle = grid.partition_point(|l| l.score < 0.0);
        let differs = |&i: &usize| {
            let width = self.upper.values()[i] - self.lower.values()[i];
            let apart = (self.estimate.values()[i] - other.estimate.values()[i]).abs();
            // Without an upper bound there is nothing to be small against.
            !width.is_finite() || apart > 0.125 * width
        };
        if let Some(first) = (middle..grid.len()).find(differs) {
            self.reach.extrapolated = self.reach.extrapolated.min(grid[first].score);
        }
    }

    /// How the law was obtained.
    pub fn diagnostics(&self) -> &Diagnostics {
        &self.diagnostics
    }

    pub(crate) fn diagnostics_mut(&mut self) -> &mut Diagnostics {
        &mut self.diagnostics
    }

    /// The law of `offset + factor·T`: work that follows, another unit.
    ///
    /// # Errors
    /// If the factor is not positive or either is not finite.
    pub fn affine(&self, offset: f64, factor: f64) -> Result<Self> {
        ComposeError::check(factor > 0.0 && factor.is_finite(), "factor", factor, "positive")?;
        ComposeError::check(offset.is_finite(), "offset", offset, "finite")?;
        let map = |c: &QuantileCurve| c.map(|x| offset + factor * x);
        Ok(Self {
            estimate: map(&self.estimate)?,
            lower: map(&self.lower)?,
            upper: map(&self.upper)?,
            ..self.clone()
        })
    }
}

fn cdf(score: f64) -> f64 {
    // The identity curve: its distribution function is that of the score.
    use prism_stats::{Distribution as _, Normal};
    Normal::new(0.0, 1.0).map_or(f64::NAN, |n| n.cdf(score))
}
