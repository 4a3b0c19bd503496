//! Deep tails by importance sampling: samples where the tail is, weighted by how likely they are.
//!
//! The tail of a pipeline's time comes from one stage being slow. So a sample draws a component first:
//! the plain law (the defensive share), or one stage's Gaussian log-factor shifted by some standard
//! deviations. With shares αᵢ and shifts μᵢ the likelihood ratio against the whole mixture is
//!
//! ```text
//! w(z) = 1 / Σᵢ αᵢ·exp(μᵢ·z − |μᵢ|²/2)        at most 1/α₀
//! ```
//!
//! (balance heuristic: Veach and Guibas 1995; defensive mixtures: Hesterberg 1995, Owen and Zhou 2000).
//! That weights average to one proves nothing when the tail has a cause that is not tilted: estimates
//! then rest on the few defensive samples. So plain samples must agree wherever both have data
//! ([`agreement`]), and a disagreement is an error.

use prism_stats::Law;
use prism_stats::law::Distribution as _;
use prism_stats::quantile_table::QuantileTable;

use super::choose::Method;
use super::error::{ComposeError, Result};
use super::law::Composed;
use super::maximum::{MaxOptions, Replicas, order_max};
use crate::sample::{Key, Offset, Program, Samples, Scope, Value};

/// A mixture of shifts of independent standard normal factors.
#[derive(Clone, Debug, PartialEq)]
pub struct Tilt {
    factors: usize,
    /// Share and shifts of each component; the first is plain.
    components: Vec<(f64, Vec<f64>)>,
}

impl Tilt {
    /// The plain law with a share, and for every factor and every shift (in standard deviations) a
    /// component that shifts this factor alone, all of one share.
    ///
    /// # Errors
    /// [`ComposeError::Input`] if there is no factor or shift, or the plain share is not in (0, 1).
    pub fn stages(factors: usize, shifts: &[f64], plain_share: f64) -> Result<Self> {
        let n = factors * shifts.len();
        let share = (1.0 - plain_share) / n as f64;
        let one = |f: usize, s: f64| (0..factors).map(|i| if i == f { s } else { 0.0 }).collect();
        let tilted = (0..factors).flat_map(|f| shifts.iter().map(move |&s| (f, s)));
        let components = tilted.map(|(f, s)| (share, one(f, s))).collect();
        Self::new(factors, plain_share, components)
    }

    /// The plain law with a share, and any components (share, shift of every factor); shares sum to 1.
    ///
    /// # Errors
    /// As [`stages`](Self::stages), or if a component has another number of factors, or the shares do not
    /// sum to 1.
    pub fn new(factors: usize, plain_share: f64, components: Vec<(f64, Vec<f64>)>) -> Result<Self> {
        ComposeError::check(factors > 0, "number of factors", 0.0, "positive")?;
        let open = plain_share > 0.0 && plain_share < 1.0;
        ComposeError::check(open, "plain share", plain_share, "strictly between 0 and 1")?;
        ComposeError::check(!components.is_empty(), "number of shifts", 0.0, "positive")?;
        for (share, shifts) in &components {
            ComposeError::check(*share > 0.0, "a component's share", *share, "positive")?;
            if shifts.len() != factors {
                let (what, have) = ("shifts of a component", shifts.len());
                return Err(ComposeError::Shape { what, have, need: factors });
            }
            if let Some(&s) = shifts.iter().find(|s| !s.is_finite()) {
                return Err(ComposeError::Input { what: "a shift", value: s, rule: "finite" });
            }
        }
        let total = plain_share + components.iter().map(|c| c.0).sum::<f64>();
        ComposeError::check((total - 1.0).abs() < 1e-9, "the sum of shares", total, "1")?;
        let plain = std::iter::once((plain_share, vec![0.0; factors]));
        Ok(Self { factors, components: plain.chain(components).collect() })
    }

    /// Likelihood ratio at standard normal coordinates, one per factor.
    pub fn weight(&self, z: &[f64]) -> f64 {
        let density: f64 = self
            .components
            .iter()
            .map(|(share, shifts)| {
                let log: f64 = shifts.iter().zip(z).map(|(s, z)| s * (z - 0.5 * s)).sum();
                share * log.exp()
            })
            .sum();
        1.0 / density
    }

    /// Likelihood ratios of samples, given a column of standard normal coordinates per factor.
    ///
    /// # Errors
    /// [`ComposeError::Shape`] for another number of columns, or columns of different lengths.
    pub fn weights(&self, columns: &[Vec<f64>]) -> Result<Vec<f64>> {
        let (have, need) = (columns.len(), self.factors);
        if have != need {
            return Err(ComposeError::Shape { what: "columns of factors", have, need });
        }
        let need = columns[0].len();
        if let Some(column) = columns.iter().find(|c| c.len() != need) {
            let (what, have) = ("samples of a factor", column.len());
            return Err(ComposeError::Shape { what, have, need });
        }
        let mut z = vec![0.0; self.factors];
        let each = |i: usize| {
            z.iter_mut().zip(columns).for_each(|(z, column)| *z = column[i]);
            self.weight(&z)
        };
        Ok((0..need).map(each).collect())
    }

    /// Appends the tilted factors to a program, lognormal of mean 1 before tilting with the given
    /// log-s.d., and names them as outputs `{name}@{i}` so that [`Tilt::read`] finds them. The keys of
    /// the draws are `Key::new(name).with(i)`: a plain program with these keys shares the noise.
    ///
    /// # Errors
    /// [`ComposeError::Shape`] for another number of factors; [`ComposeError::Stats`],
    /// [`ComposeError::Table`] for a log-s.d. that is not positive or too large.
    pub fn append(&self, program: &mut Program, name: &str, log_sd: &[f64]) -> Result<Vec<Value>> {
        self.check_factors(log_sd)?;
        let shares = self.components.iter().map(|c| c.0).collect();
        let component = program.weighted_index(
            shares,
            Key::new("tilt component").with_text(name),
            Scope::Shared,
        );
        let shifts = self.components.iter().flat_map(|(_, shifts)| {
            shifts.iter().zip(log_sd).map(|(shift, sd)| (shift * sd).exp() as f32)
        });
        let pool = program.pool(shifts.collect());
        let mut out = Vec::with_capacity(self.factors);
        for (i, &sd) in log_sd.iter().enumerate() {
            let law = Law::log_normal(-0.5 * sd * sd, sd)?;
            let table =
                QuantileTable::from_quantiles(|p| law.quantile(p), |q| law.quantile_upper(q))?;
            let table = program.table(table);
            let plain = program.draw(table, Key::new(name).with(i as u64), Scope::Shared);
            let stride = self.factors as u32;
            let shift = program.gather(pool, component, stride, Offset::Fixed(i as u32));
            let factor = program.mul(plain, shift);
            program.output(format!("{name}@{i}"), factor);
            out.push(factor);
        }
        Ok(out)
    }

    /// Appends tilted factors of any law: `table(s)` is the law of `g(Z + s)`, Z standard normal and g
    /// rising. The coordinates Z + s become outputs `{name}@{i}`, whose columns go to
    /// [`Tilt::weights`].
    ///
    /// # Errors
    /// What `table` reports; [`ComposeError::Table`].
    pub fn append_mapped<E: From<ComposeError>>(
        &self,
        program: &mut Program,
        name: &str,
        table: impl Fn(f64) -> std::result::Result<QuantileTable, E>,
    ) -> std::result::Result<Vec<Value>, E> {
        let mut shifts: Vec<f64> = Vec::new();
        for shift in self.components.iter().flat_map(|(_, of)| of) {
            if !shifts.contains(shift) {
                shifts.push(*shift);
            }
        }
        shifts.sort_by(f64::total_cmp);
        let mut tables = Vec::with_capacity(shifts.len());
        for &shift in &shifts {
            tables.push(program.table(table(shift)?));
        }
        let normal = Law::normal(0.0, 1.0).map_err(ComposeError::from)?;
        let scores =
            QuantileTable::from_quantiles(|p| normal.quantile(p), |q| normal.quantile_upper(q));
        let scores = program.table(scores.map_err(ComposeError::from)?);
        let shares = self.components.iter().map(|c| c.0).collect();
        let key = Key::new("tilt component").with_text(name);
        let component = program.weighted_index(shares, key, Scope::Shared);
        let of_components = self.components.iter().flat_map(|(_, of)| of.iter());
        let pool = program.pool(of_components.map(|s| *s as f32).collect());
        let mut out = Vec::with_capacity(self.factors);
        for i in 0..self.factors {
            let key = Key::new(name).with(i as u64);
            let stride = self.factors as u32;
            let shift = program.gather(pool, component, stride, Offset::Fixed(i as u32));
            let mut factor = program.draw(tables[0], key, Scope::Shared);
            for (pair, table) in shifts.windows(2).zip(&tables[1..]) {
                let shifted = program.draw(*table, key, Scope::Shared);
                let between = 0.5 * (pair[0] + pair[1]) as f32;
                factor = program.select(shift, between, shifted, factor);
            }
            let score = program.draw(scores, key, Scope::Shared);
            let score = program.add(score, shift);
            program.output(format!("{name}@{i}"), score);
            out.push(factor);
        }
        Ok(out)
    }

    /// Likelihood ratios of a run of a program to which [`append`](Self::append) added factors.
    ///
    /// # Errors
    /// [`ComposeError::NoOutput`] if a factor is missing.
    pub fn read(&self, samples: &Samples, name: &str, log_sd: &[f64]) -> Result<Vec<f64>> {
        self.check_factors(log_sd)?;
        let column = |(i, sd): (usize, &f64)| {
            let name = format!("{name}@{i}");
            let Some(output) = samples.get(&name) else {
                return Err(ComposeError::NoOutput { name });
            };
            let score = |f: &f32| f64::from(*f).ln() / sd + 0.5 * sd;
            Ok(output.row(0).iter().map(score).collect())
        };
        let columns = log_sd.iter().enumerate().map(column).collect::<Result<Vec<_>>>()?;
        self.weights(&columns)
    }

    fn check_factors(&self, log_sd: &[f64]) -> Result<()> {
        let (have, need) = (log_sd.len(), self.factors);
        if have == need {
            Ok(())
        } else {
            Err(ComposeError::Shape { what: "log-s.d.s", have, need })
        }
    }
}

/// How well weighted and plain samples agree.
#[derive(Clone, Debug, PartialEq)]
pub struct Agreement {
    /// Per threshold: its value, P(T > threshold) by plain and by weighted samples, and their
    /// difference in standard errors.
    pub thresholds: Vec<[f64; 4]>,
    /// Largest difference in standard errors.
    pub worst: f64,
}

/// Plain exceedances below which a threshold is not compared.
const COMPARED: f64 = 20.0;
/// Difference in standard errors that is an error: with a dozen thresholds one in 10⁴ by chance.
const ALLOWED: f64 = 4.5;

/// Compares P(T > t) by weighted and by independent plain samples at the plain samples' quantiles,
/// from the median to where twenty lie beyond, each three times rarer than the one before.
///
/// # Errors
/// [`ComposeError::Disagreement`] if they differ by more than 4.5 standard errors;
/// [`ComposeError::Shape`] with fewer than 40 plain samples or as many weights as times.
pub fn agreement(times: &[f64], weights: &[f64], plain: &[f64]) -> Result<Agreement> {
    if weights.len() != times.len() || times.is_empty() {
        let (have, need) = (weights.len(), times.len().max(1));
        return Err(ComposeError::Shape { what: "weights", have, need });
    }
    if plain.len() < 40 {
        return Err(ComposeError::Shape { what: "plain samples", have: plain.len(), need: 40 });
    }
    let mut sorted = plain.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let m = sorted.len() as f64;
    let mut out = Agreement { thresholds: Vec::new(), worst: 0.0 };
    let mut share = 0.5;
    while share * m >= COMPARED {
        let threshold = sorted[((1.0 - share) * m) as usize];
        let beyond = m - sorted.partition_point(|&x| x <= threshold) as f64;
        let p = beyond / m;
        let plain_error = (p.max(1.0 / m) * (1.0 - p) / m).sqrt();
        let (weighted, weighted_error) = weighted_tail(times, weights, threshold);
        let z = (weighted - p).abs() / plain_error.hypot(weighted_error);
        if z.is_nan() || z > ALLOWED {
            let plain = p;
            return Err(ComposeError::Disagreement {
                threshold,
                plain,
                plain_error,
                weighted,
                weighted_error,
                z,
            });
        }
        out.worst = out.worst.max(z);
        out.thresholds.push([threshold, p, weighted, z]);
        share /= 3.0;
    }
    Ok(out)
}

/// Mean of w·[T > t] and its standard error.
fn weighted_tail(times: &[f64], weights: &[f64], threshold: f64) -> (f64, f64) {
    let n = times.len() as f64;
    let beyond = || times.iter().zip(weights).filter(|(t, _)| **t > threshold).map(|x| x.1);
    let mean = beyond().sum::<f64>() / n;
    let square = beyond().map(|w| w * w).sum::<f64>() / n;
    (mean, ((square - mean * mean).max(0.0) / n).sqrt())
}

/// The law of the largest of `count` replicas whose times were drawn under a tilt.
///
/// `times[i]` has the likelihood ratio `weights[i]`; `plain` are times of independent, untilted samples,
/// with which they must agree.
///
/// # Errors
/// [`ComposeError::Disagreement`]; as [`order_max`].
pub fn importance(
    times: &[f64],
    weights: &[f64],
    plain: &[f64],
    count: u64,
    options: &MaxOptions,
) -> Result<Composed> {
    agreement(times, weights, plain)?;
    let mut pairs: Vec<(f64, f64)> = times.iter().copied().zip(weights.iter().copied()).collect();
    pairs.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let (sorted, weights): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
    let replicas = Replicas { sorted: &sorted, weights: &weights, count };
    let mut law = order_max(&[replicas], options)?;
    law.diagnostics_mut().method = Method::Importance;
    Ok(law)
}
