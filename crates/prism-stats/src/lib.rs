//! Random variables for training-step times: laws, fits, tails, order statistics, confidence bounds,
//! goodness of fit and random streams.
//!
//! Everything is deterministic: whatever draws takes a generator or a seed.
//!
//! | module | question |
//! |---|---|
//! | [`law`] | What is P(X ≤ x), its inverse, its far tail, a draw? |
//! | [`mod@fit`] | Which parameters, and which family, describe these values? |
//! | [`ks`] | How far is a model from observations, and how far would a perfect one be? |
//! | [`quantile`] | What is the quantile of a sample, of a weighted one? |
//! | [`interval`] | Within what bounds, at what confidence? What can be guaranteed? |
//! | [`htest`] | Is an effect there, and how large is its variance? |
//! | [`robust`] | Which values are outliers, where is the threshold, did the level change? |
//! | [`resample`] | How would the answer vary over other windows of steps? |
//! | [`pooled`] | What do many groups teach about one with two values? |
//! | [`autocorr`] | Do neighbouring steps resemble each other? |
//! | [`least_squares`] | Which parameters make a model meet measurements, and which stay unknown? |
//! | [`order`] | How long does the slowest of n take? |
//! | [`spacings`] | Which are the slowest few of a fleet that nobody has drawn? |
//! | [`curve`] | What is a mixture of laws, a law between two bounds? |
//! | [`lattice`] | What is the law of a sum of hundreds? |
//! | [`hermite`] | What is an expectation over a shared normal effect? |
//! | [`counter`] | Which random word belongs to this draw, in the hot path? |
//! | [`quantile_table`] | How is a law drawn from, four times a nanosecond? |
//! | [`mod@stream`] | Which random numbers belong to this entity? |
//!
//! ```
//! use prism_stats::{Distribution, Family, Law, choose, interval, ks, order, quantile, stream};
//!
//! // 200 durations of a kernel, in seconds.
//! let truth = Law::log_normal(-4.6, 0.1)?;
//! let mut rng = stream(1, "example", &[]);
//! let seconds: Vec<f64> = (0..200).map(|_| truth.sample(&mut rng)).collect();
//!
//! // Fit, and judge the fit against the distance a perfect model would have.
//! let choice = choose(&seconds, &Family::PARAMETRIC)?;
//! let sorted = quantile::sorted(&seconds);
//! let distance = ks::ks_statistic(&sorted, &choice.best)?;
//! assert!(distance < ks::ks_floor(200)?.p95);
//!
//! // The p95 with its distribution-free interval encloses the truth.
//! let p95 = interval::quantile_interval(&sorted, 0.95, 0.95)?;
//! assert!(p95.contains(truth.quantile(0.95)) && p95.coverage >= 0.95);
//!
//! // What a synchronisation over 512 of them waits for, in the median.
//! let slowest = order::quantile_of_max(&choice.best, 512, 0.5)?;
//! assert!(slowest > 1.25 * choice.best.mean());
//! # Ok::<(), prism_stats::StatsError>(())
//! ```

pub mod autocorr;
pub mod counter;
pub mod curve;
mod error;
pub mod fit;
pub mod hermite;
pub mod htest;
pub mod interval;
pub mod ks;
pub mod lattice;
pub mod law;
pub mod least_squares;
pub mod order;
pub mod pooled;
pub mod quantile;
pub mod quantile_table;
pub mod resample;
pub mod robust;
mod root;
pub mod spacings;
mod special;
pub mod stream;

pub use autocorr::{Autocorrelation, lag1};
pub use counter::Key;
pub use curve::QuantileCurve;
pub use error::{Result, StatsError};
pub use fit::{Candidate, Choice, Fitted, Reason, choose, choose_by_ks, fit};
pub use interval::{Interval, QuantileInterval, Tolerance, tolerance_upper};
pub use ks::{KsFloor, ks_floor, ks_floor_two, ks_statistic, ks_statistic_two};
pub use lattice::{Lattice, Rounding};
pub use law::{
    Constant, Distribution, Empirical, Family, Gamma, Law, LogNormal, Normal, RawLaw,
    ShiftedLogNormal, StudentT,
};
pub use quantile::{ecdf, quantile_type7};
pub use quantile_table::QuantileTable;
pub use stream::stream;
