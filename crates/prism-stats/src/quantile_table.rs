//! Quantile functions as tables a vector unit can evaluate in a dozen instructions.
//!
//! A 32-bit word holds a side (bit 31: 0 lower, 1 upper) and a magnitude m of 31 bits; the tail
//! probability of the draw on its side is (m + ½)/2³². The magnitude as a float has an exponent,
//! which names the octave of the tail probability, and on each octave of each side the quantile
//! function is a quadratic in the float. So a draw costs a conversion, two table look-ups (slope and
//! curvature share a word) and two fused multiply-adds, resolves tails down to 2⁻³², and the
//! antithetic partner (the uniform 1 − u) is the same magnitude on the other side.
//!
//! Coefficients are the L² projection of the quantile function on its octave, as far as the shared
//! word allows. The mean of the sampled law is exact up to single precision, and its variance falls
//! short only by the variance of the misfit. A law with a jump in its quantile function (two well separated modes)
//! would be smeared over an octave; [`Jumps`] scales the coordinate of a side so that one jump falls
//! on an octave's edge. [`QuantileTable::accuracy`] says how good a table is: for lognormal laws of
//! log-s.d. 0.005 to 0.3 the relative error of the standard deviation is below 2·10⁻⁴ and the
//! Kolmogorov–Smirnov distance about 10⁻³, nearly all of it next to the median.

use thiserror::Error;

/// Octaves stored per side; octave of float x is entry `exponent(x) mod 32`.
pub const OCTAVES: usize = 32;

/// Coefficients of one side: `[constant, slope and curvature][octave]`; see [`curvature`].
pub type SideCoefficients = [[f32; OCTAVES]; 2];

/// The quadratic coefficient that a slope carries in its lower 16 bits, as the upper 16 bits of a
/// float. The table is fitted with the slope so made, lower bits included, so that nothing is lost.
pub const fn curvature(slope: f32) -> f32 {
    f32::from_bits(slope.to_bits() << 16)
}

const SIDES: [Side; 2] = [Side::Lower, Side::Upper];
const TWO_32: f64 = 4_294_967_296.0;
/// Biased exponents of the first octave, [½, 1), and of the last, [2³⁰, 2³¹).
const FIRST_EXPONENT: i32 = 126;
const LAST_EXPONENT: i32 = 157;

/// Why a quantile table could not be built.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum QuantileTableError {
    /// The quantile function is not finite in single precision somewhere.
    #[error("quantile function is not finite: {value} at {side} tail probability {tail}")]
    NotFinite {
        /// Which tail.
        side: Side,
        /// Tail probability at which it was evaluated.
        tail: f64,
        /// What it returned.
        value: f64,
    },
    /// A jump lies outside the tail it was given for.
    #[error("jump of the {side} side at tail probability {tail} lies outside 2^-31 to 0.5")]
    JumpOutside {
        /// Which tail.
        side: Side,
        /// The probability given.
        tail: f64,
    },
    /// No values to tabulate.
    #[error("no values to tabulate")]
    Empty,
    /// The values are not ascending.
    #[error("values are not ascending at index {index}")]
    NotSorted {
        /// First index whose value is below its predecessor's, or not a number.
        index: usize,
    },
}

impl QuantileTableError {
    /// What the caller can do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NotFinite { .. } => "check the law's parameters, or bound its support",
            Self::JumpOutside { .. } => "give a jump above the median as an upper tail probability",
            Self::Empty => "give at least one observed value",
            Self::NotSorted { .. } => "sort the values with `f64::total_cmp`, without NaN",
        }
    }
}

/// A side of a law, seen from its median.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Below the median.
    Lower,
    /// Above the median.
    Upper,
}

impl std::fmt::Display for Side {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Side::Lower => "lower",
            Side::Upper => "upper",
        })
    }
}

/// Where a quantile function jumps, as tail probabilities in (2⁻³¹, 0.5], at most one per side.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Jumps {
    /// P(X below the gap), for a gap below the median.
    pub lower: Option<f64>,
    /// P(X above the gap), for a gap above the median.
    pub upper: Option<f64>,
}

/// How close the law that a table samples is to the law it was built from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TableAccuracy {
    /// Mean of the sampled law.
    pub mean: f64,
    /// Standard deviation of the sampled law.
    pub sd: f64,
    /// Kolmogorov–Smirnov distance to the given distribution function.
    pub ks: f64,
}

/// A tabulated quantile function; see the [module](self).
#[derive(Clone, Debug, PartialEq)]
#[repr(C, align(64))]
pub struct QuantileTable {
    coefficients: [SideCoefficients; 2],
    scale: [f32; 2],
}

impl QuantileTable {
    /// Tabulates a law given by `lower(p)` = x with P(X ≤ x) = p and `upper(q)` = x with
    /// P(X > x) = q, both asked for probabilities in (0, 0.5].
    ///
    /// # Errors
    /// [`QuantileTableError::NotFinite`].
    pub fn from_quantiles(
        lower: impl Fn(f64) -> f64,
        upper: impl Fn(f64) -> f64,
    ) -> Result<Self, QuantileTableError> {
        Self::with_jumps(lower, upper, Jumps::default())
    }

    /// As [`QuantileTable::from_quantiles`], for a law with gaps.
    ///
    /// # Errors
    /// [`QuantileTableError::NotFinite`], [`QuantileTableError::JumpOutside`].
    pub fn with_jumps(
        lower: impl Fn(f64) -> f64,
        upper: impl Fn(f64) -> f64,
        jumps: Jumps,
    ) -> Result<Self, QuantileTableError> {
        let scale = [alignment(Side::Lower, jumps.lower)?, alignment(Side::Upper, jumps.upper)?];
        let coefficients = [
            fit_side(Side::Lower, f64::from(scale[0]), &GAUSS_12, lower)?,
            fit_side(Side::Upper, f64::from(scale[1]), &GAUSS_12, upper)?,
        ];
        Ok(Self { coefficients, scale })
    }

    /// Tabulates observed values: the law interpolates between the order statistics, placed at
    /// probabilities (i + ½)/n, and stays within the observed range but for the fit's smoothing.
    /// It keeps the sample mean. Where exactness matters draw rows of the sample instead.
    ///
    /// # Errors
    /// [`QuantileTableError::Empty`], [`QuantileTableError::NotSorted`],
    /// [`QuantileTableError::NotFinite`].
    pub fn from_sorted(values: &[f64]) -> Result<Self, QuantileTableError> {
        let n = values.len();
        if n == 0 {
            return Err(QuantileTableError::Empty);
        }
        if let Some(i) =
            (0..n).find(|&i| values[i].is_nan() || (i > 0 && values[i] < values[i - 1]))
        {
            return Err(QuantileTableError::NotSorted { index: i });
        }
        let at = |position: f64| {
            let x = (position - 0.5).clamp(0.0, (n - 1) as f64);
            let i = x as usize;
            let next = values[(i + 1).min(n - 1)];
            values[i] + (x - i as f64) * (next - values[i])
        };
        let rule = dense_rule();
        let coefficients = [
            fit_side(Side::Lower, 1.0, &rule, |p| at(p * n as f64))?,
            fit_side(Side::Upper, 1.0, &rule, |q| at((1.0 - q) * n as f64))?,
        ];
        Ok(Self { coefficients, scale: [1.0, 1.0] })
    }

    /// The law concentrated at one value.
    ///
    /// # Errors
    /// [`QuantileTableError::NotFinite`].
    pub fn constant(value: f64) -> Result<Self, QuantileTableError> {
        Self::from_quantiles(|_| value, |_| value)
    }

    /// The uniform law on \[0, 1).
    pub fn uniform() -> Self {
        let mut coefficients = [[[0.0; OCTAVES]; 2]; 2];
        let unit = (1.0 / TWO_32) as f32;
        coefficients[0][1] = [unit; OCTAVES];
        coefficients[1][0] = [1.0; OCTAVES];
        coefficients[1][1] = [-unit; OCTAVES];
        Self { coefficients, scale: [1.0, 1.0] }
    }

    /// The law of `offset + factor · X`, for a positive factor.
    ///
    /// # Errors
    /// [`QuantileTableError::NotFinite`] where a coefficient leaves single precision.
    pub fn affine(&self, offset: f64, factor: f64) -> Result<Self, QuantileTableError> {
        let mut out = self.clone();
        for side in SIDES {
            for exponent in FIRST_EXPONENT..=LAST_EXPONENT {
                let Some(octave) = Octave::new(exponent, f64::from(self.scale[side as usize]))
                else {
                    continue;
                };
                let entry = exponent as usize % OCTAVES;
                let [constant, slope] = self.coefficients[side as usize];
                let mut series = octave.series(constant[entry], slope[entry]).map(|a| factor * a);
                series[0] += offset;
                let [constant, slope] = octave.coefficients(side, series)?;
                out.coefficients[side as usize][0][entry] = constant;
                out.coefficients[side as usize][1][entry] = slope;
            }
        }
        Ok(out)
    }

    /// Coefficients, `[lower, upper][constant, slope][octave]`: the value at float x of octave e is
    /// `constant + (slope + curvature(slope)·x)·x`, evaluated by two fused multiply-adds.
    pub fn coefficients(&self) -> &[SideCoefficients; 2] {
        &self.coefficients
    }

    /// What the float magnitude is multiplied by before the look-up, `[lower, upper]`, in (½, 1].
    pub fn scales(&self) -> [f32; 2] {
        self.scale
    }

    /// The value drawn by a word: the definition that every vectorised form reproduces bit by bit.
    pub fn value(&self, word: u32) -> f32 {
        let side = (word >> 31) as usize;
        let x = magnitude(word & 0x7fff_ffff) * self.scale[side];
        let octave = (x.to_bits() >> 23) as usize % OCTAVES;
        let [constant, slope] = &self.coefficients[side];
        let slope = slope[octave];
        curvature(slope).mul_add(x, slope).mul_add(x, constant[octave])
    }

    /// Mean, standard deviation and distance to `cdf` of the law that the table samples.
    ///
    /// Moments integrate the pieces exactly; the distance is taken on 64 points per octave, 1,024 in
    /// the top eight.
    pub fn accuracy(&self, cdf: impl Fn(f64) -> f64) -> TableAccuracy {
        let (mut mean, mut ks) = (0.0, 0.0_f64);
        let mut pieces = Vec::with_capacity(2 * OCTAVES * 3);
        for side in SIDES {
            for exponent in FIRST_EXPONENT..=LAST_EXPONENT {
                let Some(octave) = Octave::new(exponent, f64::from(self.scale[side as usize]))
                else {
                    continue;
                };
                for (t, w) in GAUSS_5 {
                    let value = self.piece(side, exponent, octave.at(t));
                    let weight = w * octave.half() / octave.scale / TWO_32;
                    mean += weight * value;
                    pieces.push((weight, value));
                }
                let n = if exponent > LAST_EXPONENT - 8 { 1024 } else { 64 };
                for i in 0..=n {
                    let x = octave.at(2.0 * f64::from(i) / f64::from(n) - 1.0);
                    let tail = octave.tail(x);
                    let u = if side == Side::Lower { tail } else { 1.0 - tail };
                    ks = ks.max((cdf(self.piece(side, exponent, x)) - u).abs());
                }
            }
        }
        let variance: f64 = pieces.iter().map(|(w, v)| w * (v - mean) * (v - mean)).sum();
        TableAccuracy { mean, sd: variance.max(0.0).sqrt(), ks }
    }

    fn piece(&self, side: Side, exponent: i32, x: f64) -> f64 {
        let octave = exponent as usize % OCTAVES;
        let [constant, slope] = &self.coefficients[side as usize];
        let slope = slope[octave];
        f64::from(constant[octave]) + x * (f64::from(slope) + x * f64::from(curvature(slope)))
    }
}

/// A magnitude below 2³¹ as a float, rounded towards zero.
///
/// Clearing the bits that mirror the leading ones clears the highest bit to be dropped, so that
/// rounding to nearest rounds down: the same value under every rounding convention.
pub const fn magnitude(m: u32) -> f32 {
    (m & !(m >> 24)) as i32 as f32
}

/// One octave of a side in the scaled coordinate.
struct Octave {
    low: f64,
    high: f64,
    scale: f64,
}

impl Octave {
    /// `None` where the scaled coordinate cannot reach the octave.
    fn new(exponent: i32, scale: f64) -> Option<Self> {
        let low = 2.0_f64.powi(exponent - 127);
        let high = (2.0 * low).min(2.0_f64.powi(31) * scale);
        // Unscaled magnitudes are integers: none lies in [1/2, 1).
        let reached = exponent > FIRST_EXPONENT || scale < 1.0;
        (reached && high > low).then_some(Self { low, high, scale })
    }

    fn half(&self) -> f64 {
        0.5 * (self.high - self.low)
    }

    /// The coordinate at t in [-1, 1].
    fn at(&self, t: f64) -> f64 {
        0.5 * (self.low + self.high) + t * self.half()
    }

    /// Tail probability at a coordinate. The half is that of the word's cell; it counts in the
    /// lowest octaves.
    fn tail(&self, x: f64) -> f64 {
        ((x / self.scale + 0.5) / TWO_32).min(0.5)
    }

    /// The Legendre series a₀ + a₁·t + a₂·(3t² − 1)/2 of stored coefficients.
    fn series(&self, constant: f32, slope: f32) -> [f64; 3] {
        let (c, h) = (self.at(0.0), self.half());
        let (linear, quadratic) = (f64::from(slope), f64::from(curvature(slope)));
        let mean = f64::from(constant) + c * linear + quadratic * (c * c + h * h / 3.0);
        [mean, h * (linear + 2.0 * quadratic * c), quadratic * h * h / 1.5]
    }

    /// The storable coefficients closest to a Legendre series, with its mean.
    ///
    /// The curvature has 8 significant bits and the slope must end in them, so both are chosen
    /// together: a curvature off by a few units makes up for the slope's coarseness.
    fn coefficients(&self, side: Side, series: [f64; 3]) -> Result<[f32; 2], QuantileTableError> {
        let (c, h) = (self.at(0.0), self.half());
        let check = |value| finite(side, self.tail(c), value);
        let (steepness, quadratic) = (series[1] / h, 1.5 * series[2] / (h * h));
        let nearest = check(quadratic)?.to_bits() >> 16;
        let mut best = (f64::INFINITY, 0.0_f32, 0.0);
        for low in nearest.saturating_sub(8)..=nearest + 8 {
            let q = f64::from(f32::from_bits(low << 16));
            let wanted = check(steepness - 2.0 * q * c)?.to_bits() >> 16;
            for high in wanted.saturating_sub(1)..=wanted + 1 {
                let slope = f32::from_bits(high << 16 | low & 0xffff);
                let tilt = h * (f64::from(slope) + 2.0 * q * c - steepness);
                let bend = h * h * (q - quadratic);
                let misfit = tilt * tilt / 3.0 + bend * bend * 4.0 / 45.0;
                if misfit < best.0 {
                    best = (misfit, slope, q);
                }
            }
        }
        let (_, slope, q) = best;
        let constant = series[0] - c * f64::from(slope) - q * (c * c + h * h / 3.0);
        Ok([check(constant)?, slope])
    }
}

/// Scale that puts a jump on an octave's edge.
fn alignment(side: Side, jump: Option<f64>) -> Result<f32, QuantileTableError> {
    let Some(tail) = jump else { return Ok(1.0) };
    if !(tail > 2.0_f64.powi(-31) && tail <= 0.5) {
        return Err(QuantileTableError::JumpOutside { side, tail });
    }
    let x = tail * TWO_32;
    Ok((x.log2().floor().exp2() / x) as f32)
}

fn finite(side: Side, tail: f64, value: f64) -> Result<f32, QuantileTableError> {
    let narrow = value as f32;
    if narrow.is_finite() {
        Ok(narrow)
    } else {
        Err(QuantileTableError::NotFinite { side, tail, value })
    }
}

/// Projects a quantile function on the quadratics of every octave of one side.
fn fit_side(
    side: Side,
    scale: f64,
    rule: &[(f64, f64)],
    quantile: impl Fn(f64) -> f64,
) -> Result<SideCoefficients, QuantileTableError> {
    let mut out = [[0.0; OCTAVES]; 2];
    for exponent in FIRST_EXPONENT..=LAST_EXPONENT {
        let Some(octave) = Octave::new(exponent, scale) else { continue };
        // The lowest two thirds of the octaves hold a thousandth of the mass: a short rule will do.
        let rule = if exponent < LAST_EXPONENT - 10 { &GAUSS_5[..] } else { rule };
        let mut moment = [0.0; 3];
        for &(t, w) in rule {
            let tail = octave.tail(octave.at(t));
            let value = quantile(tail);
            finite(side, tail, value)?;
            moment[0] += w * value;
            moment[1] += w * value * t;
            moment[2] += w * value * 0.5 * (3.0 * t * t - 1.0);
        }
        let series = [0.5 * moment[0], 1.5 * moment[1], 2.5 * moment[2]];
        let [constant, slope] = octave.coefficients(side, series)?;
        out[0][exponent as usize % OCTAVES] = constant;
        out[1][exponent as usize % OCTAVES] = slope;
    }
    Ok(out)
}

/// Midpoints on a fine grid, for quantile functions with a kink per observation.
fn dense_rule() -> Vec<(f64, f64)> {
    const POINTS: i32 = 1024;
    let step = 2.0 / f64::from(POINTS);
    (0..POINTS).map(|i| ((f64::from(i) + 0.5) * step - 1.0, step)).collect()
}

/// Gauss–Legendre nodes and weights on [-1, 1].
const GAUSS_5: [(f64, f64); 5] = [
    (-0.906_179_845_938_664, 0.236_926_885_056_189_08),
    (-0.538_469_310_105_683, 0.478_628_670_499_366_47),
    (0.0, 0.568_888_888_888_888_9),
    (0.538_469_310_105_683, 0.478_628_670_499_366_47),
    (0.906_179_845_938_664, 0.236_926_885_056_189_08),
];
/// As [`GAUSS_5`], of 12 points.
const GAUSS_12: [(f64, f64); 12] = [
    (-0.981_560_634_246_719_2, 0.047_175_336_386_511_41),
    (-0.904_117_256_370_474_8, 0.106_939_325_995_319_07),
    (-0.769_902_674_194_304_7, 0.160_078_328_543_346_42),
    (-0.587_317_954_286_617_5, 0.203_167_426_723_065_73),
    (-0.367_831_498_998_180_2, 0.233_492_536_538_354_6),
    (-0.125_233_408_511_468_9, 0.249_147_045_813_402_7),
    (0.125_233_408_511_468_9, 0.249_147_045_813_402_7),
    (0.367_831_498_998_180_2, 0.233_492_536_538_354_6),
    (0.587_317_954_286_617_5, 0.203_167_426_723_065_73),
    (0.769_902_674_194_304_7, 0.160_078_328_543_346_42),
    (0.904_117_256_370_474_8, 0.106_939_325_995_319_07),
    (0.981_560_634_246_719_2, 0.047_175_336_386_511_41),
];
