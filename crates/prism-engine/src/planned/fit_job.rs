//! What step times alone tell of a job: efficiency, fixed overhead, and the spread from step to step.

use prism_job::{Job, Precision};
use prism_model::{STALL_LEAST, STALL_SDS, STALL_WINDOW, WARM_UP_STEPS};
use prism_stats::robust::{above_running_median, median};

use super::PlannedError;
use super::fit::{ClusterFit, Field, StepPoint, fit_cluster};
use super::predict::{JobOptions, predict_job};

/// The core of a series of step times: without warm-up and stalls.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct Core {
    /// Steps of the core.
    pub steps: usize,
    /// Median, seconds.
    pub median_s: f64,
    /// Mean, seconds.
    pub mean_s: f64,
    /// Standard deviation, seconds.
    pub sd_s: f64,
    /// Steps left out as stalls.
    pub stalls: usize,
    /// Mean ratio of a stall to the running median; none without stalls.
    pub stall_ratio: Option<f64>,
}

/// The core of step times in order, seconds: not the first 10; not the stalls, whose ratio to the
/// 21-step running median exceeds 1 by more than max(6 · 1.4826 · MAD, 2 %).
///
/// # Errors
/// [`PlannedError::Setting`] with fewer than 30 steps or a time that is not positive.
pub fn core_of(step_s: &[f64]) -> Result<Core, PlannedError> {
    if let Some(bad) = step_s.iter().find(|t| !(t.is_finite() && **t > 0.0)) {
        let (what, rule) = ("a step time", "positive");
        return Err(PlannedError::Setting { what, rule, got: bad.to_string() });
    }
    if step_s.len() < WARM_UP_STEPS + 20 {
        let (what, rule) = ("steps of a log", "at least 30");
        return Err(PlannedError::Setting { what, rule, got: step_s.len().to_string() });
    }
    let times = &step_s[WARM_UP_STEPS..];
    let above = above_running_median(times, STALL_WINDOW, STALL_SDS, STALL_LEAST)?;
    let (stalls, core): (Vec<_>, Vec<_>) =
        times.iter().zip(&above.excess).partition(|(_, excess)| **excess > above.limit);
    let core: Vec<f64> = core.into_iter().map(|(t, _)| *t).collect();
    let n = core.len() as f64;
    let mean_s = core.iter().sum::<f64>() / n;
    let sd_s = (core.iter().map(|t| (t - mean_s).powi(2)).sum::<f64>() / (n - 1.0)).sqrt();
    let stall_ratio = (!stalls.is_empty())
        .then(|| stalls.iter().map(|(_, r)| **r + 1.0).sum::<f64>() / stalls.len() as f64);
    Ok(Core {
        steps: core.len(),
        median_s: median(&core)?,
        mean_s,
        sd_s,
        stalls: stalls.len(),
        stall_ratio,
    })
}

/// A job and the runs of it that were logged.
#[derive(Clone, Debug, PartialEq)]
pub struct LoggedJob {
    /// What ran.
    pub job: Job,
    /// Step times of each run in order, seconds.
    pub runs_s: Vec<Vec<f64>>,
}

/// What was fitted.
#[derive(Clone, Debug, PartialEq)]
pub struct JobFit {
    /// Efficiency and overhead.
    pub cluster: ClusterFit,
    /// Core of each job, averaged over its runs.
    pub cores: Vec<Core>,
    /// S.d. of the log factor on whole steps.
    pub step_sd: f64,
    /// S.d. of the fixed overhead, seconds; none where one job alone cannot tell it from the former.
    pub overhead_sd_s: Option<f64>,
    /// Effects that step times do not tell, and that stay as they were.
    pub kept: Vec<&'static str>,
    /// What the reader must know.
    pub notes: Vec<String>,
}

impl JobFit {
    /// A job with what was fitted.
    pub fn apply(&self, job: &mut Job) {
        self.cluster.apply(&mut job.cluster);
        job.variability.step_sd = self.step_sd;
        if let Some(sd) = self.overhead_sd_s {
            job.variability.overhead_sd_s = sd;
        }
    }
}

/// Fits a job to its step times alone.
///
/// One job: the efficiency of its matrix products from the median, the step effect's s.d. from the core's
/// spread, less what the other effects of the job's variability already make. Two and more jobs on one
/// cluster: the fixed overhead too, and its s.d., which a factor on the whole step is told from by steps
/// of different length.
///
/// # Errors
/// [`PlannedError`].
pub fn fit_job(logged: &[LoggedJob], options: &JobOptions) -> Result<JobFit, PlannedError> {
    if logged.iter().all(|l| l.runs_s.is_empty()) {
        let (what, rule) = ("logs", "at least one");
        return Err(PlannedError::Setting { what, rule, got: "none".to_owned() });
    }
    let cores = logged
        .iter()
        .map(|l| {
            let runs = l.runs_s.iter().map(|run| core_of(run)).collect::<Result<Vec<_>, _>>()?;
            Ok(pooled(&runs))
        })
        .collect::<Result<Vec<_>, PlannedError>>()?;
    let fp8 = logged.iter().any(|l| l.job.plan.precision == Precision::Fp8);
    let mut fields = vec![if fp8 { "gemm_fp8" } else { "gemm" }];
    if logged.len() > 1 {
        fields.push("step_s");
    }
    let fields: Vec<Field> = fields.into_iter().filter_map(Field::named).collect();
    // Medians of steps meet the median of the prediction, so the penalty comes off first.
    let mut points = Vec::with_capacity(logged.len());
    let mut own = Vec::with_capacity(logged.len());
    for (l, core) in logged.iter().zip(&cores) {
        let (share, spread_s) = within(&l.job, options)?;
        own.push(spread_s * core.median_s);
        points.push(StepPoint {
            job: l.job.clone(),
            seconds: core.median_s / (1.0 + share),
            weight: 1.0,
        });
    }
    let cluster = fit_cluster(&points, &[], &fields)?;
    let left: Vec<f64> =
        cores.iter().zip(&own).map(|(c, o)| (c.sd_s * c.sd_s - o * o).max(0.0)).collect();
    let (step_sd, overhead_sd_s) = spreads(&cores, &left);
    let mut notes = Vec::new();
    for ((l, core), o) in logged.iter().zip(&cores).zip(&own) {
        if *o > core.sd_s {
            notes.push(format!(
                "{}: effects of the variability preset alone spread steps by {:.2} %, more than the \
                 {:.2} % measured: lower them",
                l.job.name,
                100.0 * o / core.median_s,
                100.0 * core.sd_s / core.median_s
            ));
        }
    }
    Ok(JobFit {
        cluster,
        cores,
        step_sd,
        overhead_sd_s,
        kept: vec![
            "gpu_compute_sd",
            "gpu_memory_sd",
            "laggards",
            "step_worker_sd",
            "microbatch",
            "residual_sd",
            "transfer_sd",
            "congestion_sd",
            "burst_probability",
            "burst_factor",
            "expert_imbalance_sd",
            "diurnal_amplitude",
            "hang",
        ],
        notes,
    })
}

/// The median's penalty and the s.d. of a step that a job's variability makes without the step effect
/// and overhead, as shares of the noise-free step and of the median.
fn within(job: &Job, options: &JobOptions) -> Result<(f64, f64), PlannedError> {
    let mut quiet = job.clone();
    quiet.variability.step_sd = 0.0;
    quiet.variability.overhead_sd_s = 0.0;
    quiet.variability.diurnal_amplitude = 0.0;
    let options = JobOptions { quantiles: vec![0.5], ..options.clone() };
    let law = predict_job(&quiet, &options)?;
    let middle = law.steps.quantiles.first().and_then(|q| q.value_s).unwrap_or(law.steps.mean_s);
    Ok((middle / law.noise_free_s - 1.0, law.steps.sd_s / middle))
}

/// Runs' cores together: medians and means averaged, variances averaged inside runs.
fn pooled(runs: &[Core]) -> Core {
    let n = runs.len() as f64;
    let average = |of: fn(&Core) -> f64| runs.iter().map(of).sum::<f64>() / n;
    let stalls: usize = runs.iter().map(|r| r.stalls).sum();
    let weighted: f64 = runs.iter().map(|r| r.stalls as f64 * r.stall_ratio.unwrap_or(0.0)).sum();
    Core {
        steps: runs.iter().map(|r| r.steps).sum(),
        median_s: average(|r| r.median_s),
        mean_s: average(|r| r.mean_s),
        sd_s: average(|r| r.sd_s * r.sd_s).sqrt(),
        stalls,
        stall_ratio: (stalls > 0).then(|| weighted / stalls as f64),
    }
}

/// A factor's s.d. b and an addend's s.d. a with a² + (b·median)² closest, in shares, to the variances.
fn spreads(cores: &[Core], left: &[f64]) -> (f64, Option<f64>) {
    let share = |c: &Core, v: f64| v / (c.median_s * c.median_s);
    if cores.len() < 2 {
        let only = cores.first().zip(left.first()).map_or(0.0, |(c, v)| share(c, *v));
        return (only.sqrt(), None);
    }
    // Least squares of left = a² + b²·median², weighted by 1/left² (relative errors of variances).
    let mut sums = [0.0_f64; 5];
    for (c, v) in cores.iter().zip(left) {
        let (x, w) = (c.median_s * c.median_s, 1.0 / (v * v).max(1e-30));
        for (sum, term) in sums.iter_mut().zip([w, w * x, w * x * x, w * v, w * x * v]) {
            *sum += term;
        }
    }
    let [w, wx, wxx, wv, wxv] = sums;
    let determinant = w * wxx - wx * wx;
    let (mut a2, mut b2) = ((wxx * wv - wx * wxv) / determinant, (w * wxv - wx * wv) / determinant);
    if !(a2 > 0.0 && determinant > 0.0) {
        (a2, b2) = (0.0, wxv / wxx);
    } else if b2 <= 0.0 {
        (a2, b2) = (wv / w, 0.0);
    }
    (b2.max(0.0).sqrt(), Some(a2.max(0.0).sqrt()))
}
