//! Whole runs, event by event.
//!
//! Between two events everything is arithmetic: how many steps, checkpoints and evaluations fit into a
//! time, when a swing over the day has done so much work. So the cost of a run is that of its failures.
//!
//! What is assumed:
//!
//! - A run's steps have one mean, drawn with the noise of their whole sum (AR(1) and stalls), so that the
//!   total of a run without failures has its exact law; a failure falls on a step of that mean, and steps
//!   that are repeated take as long.
//! - Failures of each class are a Poisson process in wall-clock time, and strike restarts too: recovering
//!   then begins anew.
//! - A checkpoint is durable `write` after its pause; only one is written at a time, so that the interval
//!   is never shorter than that. Writes under way are lost with the job.
//! - The regular pause after a last step is still taken.
//! - Fail-slow and the swing over the day act on all that a running job does, not on recoveries.
//! - Slow-downs, maintenance and repairs go on while the job is down.

mod clock;
mod constants;
mod engine;
mod episodes;
mod pace;
mod pool;
mod recover;
mod work;

use prism_job::run::RunPlan;
use rayon::prelude::*;

pub(crate) use clock::Thinning;

use crate::{RunError, Runs, Steps, error::positive};
use constants::Constants;
use engine::Workspace;

/// How many runs, and which.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Runs.
    pub runs: u32,
    /// Seed: run i of one seed meets the same failures at the same times whatever is done about them,
    /// so that two plans can be compared run by run.
    pub seed: u64,
    /// A run is given up, unfinished, after so many times what it takes without stops, or 1,000 failures
    /// in a row that left it no step further.
    pub horizon: f64,
}

impl Default for Options {
    fn default() -> Self {
        Options { runs: 10_000, seed: 1, horizon: 50.0 }
    }
}

/// Runs of a block share their memory.
const BLOCK: u32 = 64;

/// Simulates whole runs. The result does not depend on the number of threads.
///
/// ```
/// use prism_job::{ReadOptions, RunDefaults, parse_run_plan};
/// use prism_run::simulate::{Options, simulate};
/// use prism_run::{Pace, Steps};
///
/// /// Ten seconds a step, give or take a percent.
/// struct Even;
///
/// impl Steps for Even {
///     fn pace(&self, _: &mut rand_chacha::ChaCha8Rng) -> Pace {
///         Pace {
///             core_s: 10.0,
///             core_cov: 0.01,
///             rho: 0.0,
///             stall_rate: 0.0,
///             stall_marks: [].into(),
///             warm_up_s: 60.0,
///             after_evaluation_s: 0.0,
///         }
///     }
/// }
///
/// let text = r#"
/// [run]
/// steps = 100_000
/// gpus = 16384
/// checkpoint = { interval = "30min", blocking = "3s", write = "2min", load = "1min" }
/// failures = { preset = "llama3-405b" }
/// recovery = { detection = "1min", restart = "8min" }
/// "#;
/// let plan = parse_run_plan(text, &ReadOptions::default(), &RunDefaults::default()).unwrap();
/// let runs = simulate(&Even, &plan, &Options { runs: 500, ..Options::default() })?;
/// let ettr = runs.outcomes.iter().map(|o| o.ettr()).sum::<f64>() / 500.0;
/// assert!(ettr > 0.84 && ettr < 0.88);
/// # Ok::<(), prism_run::RunError>(())
/// ```
///
/// # Errors
/// If the plan breaks rules, a pace is none, or there are no runs to simulate.
pub fn simulate(steps: &dyn Steps, plan: &RunPlan, options: &Options) -> Result<Runs, RunError> {
    simulate_thinned(steps, plan, options, None)
}

/// [`simulate`] with other rates of failure, coupled to those of the same envelope.
pub(crate) fn simulate_thinned(
    steps: &dyn Steps,
    plan: &RunPlan,
    options: &Options,
    thinning: Option<&Thinning>,
) -> Result<Runs, RunError> {
    let broken = plan.check();
    if !broken.is_empty() {
        return Err(RunError::Plan(broken));
    }
    positive("runs", f64::from(options.runs))?;
    positive("horizon", options.horizon)?;
    let constants = Constants::new(plan, options, thinning);
    let blocks: Vec<Result<Block, RunError>> = (0..options.runs.div_ceil(BLOCK))
        .into_par_iter()
        .map(|b| block(steps, &constants, b * BLOCK..options.runs.min((b + 1) * BLOCK)))
        .collect();
    let size = options.runs as usize;
    let classes = plan.failures.classes.len();
    let spares = u64::from(plan.recovery.spares.unwrap_or(0));
    let mut runs = Runs {
        outcomes: Vec::with_capacity(size),
        classes: plan.failures.classes.iter().map(|c| c.name.clone()).collect(),
        class_failures: Vec::with_capacity(size * classes),
        class_lost_s: Vec::with_capacity(size * classes),
        steps: plan.steps,
        gpus_paid: plan.machines.gpus + spares * u64::from(plan.machines.gpus_per_node),
        gpu_hour_usd: plan.gpu_hour_usd,
        horizon: options.horizon,
    };
    for block in blocks {
        let block = block?;
        runs.outcomes.extend(block.outcomes);
        runs.class_failures.extend(block.class_failures);
        runs.class_lost_s.extend(block.class_lost_s);
    }
    Ok(runs)
}

/// The outcomes of consecutive runs, laid out as in [`Runs`].
#[derive(Default)]
struct Block {
    outcomes: Vec<crate::RunOutcome>,
    class_failures: Vec<u32>,
    class_lost_s: Vec<f64>,
}

fn block(
    steps: &dyn Steps,
    constants: &Constants,
    numbers: std::ops::Range<u32>,
) -> Result<Block, RunError> {
    let mut out = Block::default();
    let mut workspace = Workspace::default();
    for number in numbers {
        let outcome = engine::run(steps, constants, &mut workspace, u64::from(number))?;
        out.outcomes.push(outcome);
        out.class_failures.extend_from_slice(&workspace.failures);
        out.class_lost_s.extend_from_slice(&workspace.lost_s);
    }
    Ok(out)
}
