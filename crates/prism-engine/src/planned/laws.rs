//! From a cluster's variability to the laws of what a job's operations are multiplied by.
//!
//! Every factor has mean 1, so that an operation's mean is what it costs without noise; waiting for the
//! slowest is left to the graph, and inside a cell (a stage of a replica: its tensor- and
//! context-parallel GPUs, which wait for each other at every layer) to [`CellLaw`].

use prism_job::Job;
use prism_job::cost::StepCosts;
use prism_stats::quantile_table::{Jumps, QuantileTableError};
use prism_stats::{Distribution, Law, QuantileTable};

use super::PlannedError;

/// Spread between GPUs above which it is taken as log-normal, so that no factor is negative.
const NORMAL_UP_TO: f64 = 0.1;

/// Persistent factor of a cell: the slowest of its GPUs.
///
/// One GPU is Normal(1, s) (log-normal of the same mean and s.d. of the log from s = 0.1 on); a node is a
/// laggard with some probability, and then all its GPUs are slower by a factor. A GPU that is slow is slow
/// in arithmetic and in memory: the two spreads add up by their shares of the time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CellLaw {
    sd: f64,
    gpus: f64,
    laggard: f64,
    factor: f64,
}

impl CellLaw {
    pub(crate) fn of(job: &Job, costs: &StepCosts) -> CellLaw {
        let v = &job.variability;
        let (mut compute, mut memory) = (0.0, 0.0);
        for c in &costs.chunks {
            for pass in [&c.forward, &c.backward, &c.weight] {
                compute += pass.compute_s;
                memory += pass.memory_s;
            }
        }
        let all = (compute + memory).max(f64::MIN_POSITIVE);
        let sd = (v.gpu_compute_sd * compute + v.gpu_memory_sd * memory) / all;
        let gpus = f64::from(job.plan.tensor_parallel) * f64::from(job.plan.context_parallel);
        let nodes = (gpus / f64::from(job.cluster.gpus_per_node.max(1))).ceil();
        let laggard = if v.laggards.factor > 1.0 {
            -(nodes * (-v.laggards.share).ln_1p()).exp_m1()
        } else {
            0.0
        };
        CellLaw { sd, gpus, laggard, factor: v.laggards.factor }
    }

    pub(crate) fn is_constant(&self) -> bool {
        self.sd == 0.0 && self.laggard == 0.0
    }

    /// Whether the factor has a mode of its own, of laggards: no tail can then be fitted, and shifted
    /// tables would smear the gap.
    pub(crate) fn has_modes(&self) -> bool {
        self.laggard > 0.0
    }

    /// P(one GPU's factor > x).
    fn above_one(&self, x: f64) -> f64 {
        if self.sd == 0.0 {
            return f64::from(u8::from(x < 1.0));
        }
        let law = if self.sd <= NORMAL_UP_TO {
            Law::normal(1.0, self.sd)
        } else {
            Law::log_normal(-0.5 * self.sd * self.sd, self.sd)
        };
        law.map_or(0.0, |l| l.sf(x))
    }

    /// P(cell's factor > x).
    pub(crate) fn above(&self, x: f64) -> f64 {
        let slowest = |x: f64| -(self.gpus * (-self.above_one(x)).ln_1p()).exp_m1();
        if self.laggard == 0.0 {
            return slowest(x);
        }
        (1.0 - self.laggard) * slowest(x) + self.laggard * slowest(x / self.factor)
    }

    /// The x with P(factor > x) = q.
    pub(crate) fn upper(&self, q: f64) -> f64 {
        if self.is_constant() {
            return 1.0;
        }
        let most = self.factor.max(1.0);
        let (mut low, mut high) = if self.sd <= NORMAL_UP_TO {
            (1.0 - 9.0 * self.sd, most * (1.0 + 9.0 * self.sd))
        } else {
            ((-9.0 * self.sd).exp(), most * (9.0 * self.sd).exp())
        };
        low -= 1e-9;
        high += 1e-9;
        for _ in 0..80 {
            let middle = 0.5 * (low + high);
            if self.above(middle) > q { low = middle } else { high = middle }
        }
        0.5 * (low + high)
    }

    /// Table of the factor at the place of a standard normal, shifted up by `shift`.
    pub(crate) fn shifted_table(&self, shift: f64) -> Result<QuantileTable, PlannedError> {
        if shift == 0.0 {
            return Ok(self.table()?);
        }
        let normal = Law::normal(0.0, 1.0)?;
        let at = |z: f64| self.upper(normal.sf(z + shift));
        Ok(QuantileTable::from_quantiles(
            |p| at(normal.quantile(p)),
            |q| at(normal.quantile_upper(q)),
        )?)
    }

    /// The law as a table of its quantiles.
    pub(crate) fn table(&self) -> Result<QuantileTable, QuantileTableError> {
        let jump = (self.laggard > 1e-9 && self.laggard < 0.5).then_some(self.laggard);
        QuantileTable::with_jumps(
            |p| self.upper(1.0 - p),
            |q| self.upper(q),
            Jumps { lower: None, upper: jump },
        )
    }
}

/// What varies from step to step, as s.d.s of log factors; 0 where there is nothing.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Temporal {
    /// A whole step.
    pub step_sd: f64,
    /// A cell in a step.
    pub step_worker_sd: f64,
    /// A microbatch of a replica.
    pub microbatch_sd: f64,
    /// Its skewness (of the log factor).
    pub microbatch_skew: f64,
    /// An operation.
    pub residual_sd: f64,
    /// Mean of the operation's factor: above 1 where uneven expert load always costs.
    pub residual_mean: f64,
    /// A transfer or collective.
    pub transfer_sd: f64,
    /// A step's communication.
    pub congestion_sd: f64,
    /// A step's fixed overhead, seconds.
    pub overhead_sd_s: f64,
    /// Probability and factor of a burst of congestion.
    pub burst: (f64, f64),
    /// Probability and factor of a hang of one operation.
    pub hang: (f64, f64),
}

impl Temporal {
    pub(crate) fn of(job: &Job, costs: &StepCosts) -> Temporal {
        let v = &job.variability;
        let share = expert_share(costs);
        // The busiest of several expert-parallel ranks: |N(0, s)| above the mean load.
        let half_normal = (2.0 / std::f64::consts::PI).sqrt();
        let spread = share * v.expert_imbalance_sd;
        let lengths = length_sd(job, costs);
        Temporal {
            step_sd: v.step_sd.hypot(v.diurnal_amplitude * std::f64::consts::FRAC_1_SQRT_2),
            step_worker_sd: v.step_worker_sd,
            microbatch_sd: v.microbatch.sd.hypot(lengths),
            microbatch_skew: v.microbatch.skew,
            residual_sd: v.residual_sd.hypot(spread * (1.0 - half_normal * half_normal).sqrt()),
            residual_mean: 1.0 + spread * half_normal,
            transfer_sd: v.transfer_sd,
            congestion_sd: v.congestion_sd,
            overhead_sd_s: v.overhead_sd_s,
            burst: (v.burst_probability, v.burst_factor),
            hang: (v.hang.probability, v.hang.factor),
        }
    }

    /// Nothing varies between steps.
    pub(crate) fn is_quiet(&self) -> bool {
        let sds = [
            self.step_sd,
            self.step_worker_sd,
            self.microbatch_sd,
            self.residual_sd,
            self.transfer_sd,
            self.congestion_sd,
            self.overhead_sd_s,
        ];
        sds.iter().all(|s| *s == 0.0) && self.burst.0 == 0.0 && self.hang.0 == 0.0
    }

    /// Whether all replicas share more than a factor on the whole step.
    pub(crate) fn shares_more(&self, replicas: u32) -> bool {
        let collectives = replicas > 1 && self.transfer_sd > 0.0;
        collectives || self.congestion_sd > 0.0 || self.burst.0 > 0.0 || self.overhead_sd_s > 0.0
    }
}

/// Share of the compute passes that waits for expert-parallel exchanges' balance: 0 without experts.
fn expert_share(costs: &StepCosts) -> f64 {
    let (mut experts, mut all) = (0.0, 0.0);
    for c in &costs.chunks {
        all += c.forward.seconds() + c.backward_s();
        if c.expert_parameters > 0.0 {
            let own = c.expert_parameters / (c.expert_parameters + c.parameters).max(1.0);
            experts += own * (c.forward.seconds() + c.backward_s());
        }
    }
    if all > 0.0 { experts / all } else { 0.0 }
}

/// S.d. of a microbatch's log time that its documents' lengths cause.
///
/// Packed: pairs of tokens inside documents vary, and with them attention's share of the time. Not
/// packed: the whole time follows the mean length of the microbatch's sequences.
fn length_sd(job: &Job, costs: &StepCosts) -> f64 {
    let Some(lengths) = job.training.sequences else { return 0.0 };
    let moment = |k| lengths.moment(k, job.training.seq_len);
    let (m1, m2) = (moment(1), moment(2));
    let micro = f64::from(job.training.micro_batch_size).max(1.0);
    let variance = (m2 - m1 * m1).max(0.0);
    if !lengths.packed {
        return (variance / (m1 * m1) / micro).ln_1p().sqrt();
    }
    // The sum of squares of n lengths, given their sum: what the regression on the sum leaves.
    let documents = (micro * f64::from(job.training.seq_len) / m1).max(1.0);
    let of_squares = moment(4) - m2 * m2;
    let covariance = moment(3) - m2 * m1;
    let explained = if variance > 0.0 { covariance * covariance / variance } else { 0.0 };
    let cv = ((of_squares - explained).max(0.0) / documents).sqrt() / m2;
    costs.attention_share * cv
}

/// Table of a log-normal factor of mean 1.
pub(crate) fn factor_table(sd: f64) -> Result<QuantileTable, PlannedError> {
    let law = Law::log_normal(-0.5 * sd * sd, sd)?;
    Ok(QuantileTable::from_quantiles(|p| law.quantile(p), |q| law.quantile_upper(q))?)
}

/// Table of a normal deviation.
pub(crate) fn normal_table(sd: f64) -> Result<QuantileTable, PlannedError> {
    let law = Law::normal(0.0, sd)?;
    Ok(QuantileTable::from_quantiles(|p| law.quantile(p), |q| law.quantile_upper(q))?)
}

/// Table of a factor of mean 1 whose logarithm has a s.d. and a skewness: `exp(sd·Y)/E exp(sd·Y)`, Y a
/// standardised three-parameter log-normal.
pub(crate) fn skewed_table(sd: f64, skew: f64) -> Result<QuantileTable, PlannedError> {
    if skew.abs() < 1e-6 {
        return factor_table(sd);
    }
    let shape = log_normal_shape(skew.abs());
    let normal = Law::normal(0.0, 1.0)?;
    let (w, sign) = ((shape * shape).exp(), skew.signum());
    let standard =
        move |z: f64| sign * ((shape * sign * z).exp() - w.sqrt()) / (w * (w - 1.0)).sqrt();
    let at = |z: f64| (sd * standard(z)).exp();
    let n = 8_192;
    let mean =
        (0..n).map(|i| at(normal.quantile((f64::from(i) + 0.5) / f64::from(n)))).sum::<f64>()
            / f64::from(n);
    Ok(QuantileTable::from_quantiles(
        |p| at(normal.quantile(p)) / mean,
        |q| at(normal.quantile_upper(q)) / mean,
    )?)
}

/// Log-s.d. s of a log-normal law with this skewness: (e^{s²} + 2)·√(e^{s²} − 1).
fn log_normal_shape(skew: f64) -> f64 {
    let of = |s: f64| {
        let w = (s * s).exp();
        (w + 2.0) * (w - 1.0).sqrt()
    };
    let (mut low, mut high) = (0.0, 2.0);
    for _ in 0..80 {
        let middle = 0.5 * (low + high);
        if of(middle) < skew { low = middle } else { high = middle }
    }
    0.5 * (low + high)
}

/// Table of an operation's own factor: a log-normal of the given mean, longer by `hang` now and then.
pub(crate) fn residual_table(temporal: &Temporal) -> Result<QuantileTable, PlannedError> {
    let sd = temporal.residual_sd;
    let (p, factor) = temporal.hang;
    let mean = temporal.residual_mean;
    if p == 0.0 {
        return if sd == 0.0 {
            Ok(QuantileTable::constant(mean)?)
        } else {
            Ok(factor_table(sd)?.affine(0.0, mean)?)
        };
    }
    let law = Law::log_normal(-0.5 * sd * sd, sd.max(1e-6))?;
    let upper = |q: f64| {
        let x = if q < p {
            factor * law.quantile_upper(q / p)
        } else {
            law.quantile_upper((q - p) / (1.0 - p))
        };
        mean * x
    };
    let jump = (p > 1e-9 && p < 0.5).then_some(p);
    Ok(QuantileTable::with_jumps(|u| upper(1.0 - u), upper, Jumps { lower: None, upper: jump })?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(sd: f64, gpus: f64, laggard: f64, factor: f64) -> CellLaw {
        CellLaw { sd, gpus, laggard, factor }
    }

    /// Mean of a law given by its upper quantiles.
    fn mean(upper: impl Fn(f64) -> f64) -> f64 {
        let n = 20_000;
        (0..n).map(|i| upper((f64::from(i) + 0.5) / f64::from(n))).sum::<f64>() / f64::from(n)
    }

    #[test]
    fn a_cell_is_as_slow_as_the_slowest_of_its_gpus() {
        // E max of 8 normals: 1.42360 s.d.
        let law = cell(0.02, 8.0, 0.0, 1.0);
        assert!((mean(|q| law.upper(q)) - (1.0 + 0.02 * 1.423_600_3)).abs() < 1e-5);
        for q in [0.9, 0.5, 1e-3, 1e-9] {
            assert!((law.above(law.upper(q)) / q - 1.0).abs() < 1e-6, "{q}");
        }
    }

    #[test]
    fn laggards_are_a_second_mode() {
        let law = cell(0.003, 1.0, 0.01, 1.1);
        assert!((law.above(1.05) - 0.01).abs() < 1e-9);
        assert!((mean(|q| law.upper(q)) - (0.99 + 0.01 * 1.1)).abs() < 2e-5);
        let table = law.table().unwrap();
        let accuracy = table.accuracy(|x| 1.0 - law.above(x));
        assert!((accuracy.mean - 1.001).abs() < 1e-4, "{accuracy:?}");
    }

    #[test]
    fn factors_have_mean_one_and_their_spread() {
        let log_sd = |table: &QuantileTable| {
            let at = |i: u32| f64::from(table.value(i.wrapping_mul(0x9E37_79B9))).ln();
            let n = 1 << 16;
            let mean = (0..n).map(at).sum::<f64>() / f64::from(n);
            let moment =
                |k: i32| (0..n).map(|i| (at(i) - mean).powi(k)).sum::<f64>() / f64::from(n);
            (moment(2).sqrt(), moment(3) / moment(2).powf(1.5))
        };
        for (sd, skew) in [(0.01, 0.0), (0.2, 1.0), (0.1, -0.5)] {
            let table = skewed_table(sd, skew).unwrap();
            assert!((table.accuracy(|_| 0.5).mean - 1.0).abs() < 2e-4, "{sd} {skew}");
            let (got, skewness) = log_sd(&table);
            assert!((got / sd - 1.0).abs() < 0.01, "{sd}: {got}");
            assert!((skewness - skew).abs() < 0.05, "{skew}: {skewness}");
        }
    }

    #[test]
    fn hangs_keep_their_probability_and_factor() {
        let temporal = Temporal {
            step_sd: 0.0,
            step_worker_sd: 0.0,
            microbatch_sd: 0.0,
            microbatch_skew: 0.0,
            residual_sd: 0.01,
            residual_mean: 1.0,
            transfer_sd: 0.0,
            congestion_sd: 0.0,
            overhead_sd_s: 0.0,
            burst: (0.0, 1.0),
            hang: (1e-3, 11.0),
        };
        let table = residual_table(&temporal).unwrap();
        let n = 1_u32 << 22;
        let hung = (0..n).filter(|i| table.value(i.wrapping_mul(0x9E37_79B9)) > 5.0).count();
        // Binomial: s.d. 65 of 4,194; the words are stratified, so that it is smaller.
        assert!((hung as f64 / (f64::from(n) * 1e-3) - 1.0).abs() < 0.05, "{hung}");
    }
}
