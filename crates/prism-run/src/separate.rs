//! Which steps of a log are what: warm-up, first after a pause, stall, core.

use prism_io::{PauseKind, StepLog};
use prism_model::{STALL_LEAST, STALL_SDS, STALL_WINDOW, WARM_UP_STEPS};
use prism_stats::robust::above_running_median;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::steps::{Shape, StepsError};

/// Fewest rows of a log after its warm-up.
const FEWEST: usize = 20;

/// What a step is.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// One of the first steps after a start.
    WarmUp,
    /// The first step after an evaluation, or of a new block.
    AfterEvaluation,
    /// The first step after a checkpoint for which training stopped.
    AfterCheckpoint,
    /// A step that stands out above its neighbours.
    Stall,
    /// Any other.
    Core,
}

/// A run's steps, told apart.
#[derive(Clone, Debug, PartialEq)]
pub struct Separated {
    /// Name for messages: the file, and the run in it.
    pub name: String,
    /// Step ids, ascending.
    pub step: Vec<i64>,
    /// Step times, seconds; means over `averaged_over` steps.
    pub step_s: Vec<f64>,
    /// What each is.
    pub class: Vec<Class>,
    /// Steps that a time is the mean of.
    pub averaged_over: u32,
    /// Durations of evaluations, seconds, where the log has them.
    pub evaluation_s: Vec<f64>,
    /// Durations of checkpoints, seconds, where the log has them.
    pub checkpoint_s: Vec<f64>,
}

impl Separated {
    /// Positions of a class.
    pub fn of(&self, class: Class) -> impl Iterator<Item = usize> + '_ {
        (0..self.class.len()).filter(move |&i| self.class[i] == class)
    }

    /// Mean of the core steps, seconds.
    pub fn core_mean_s(&self) -> f64 {
        let (mut n, mut sum) = (0_usize, 0.0);
        for i in self.of(Class::Core) {
            n += 1;
            sum += self.step_s[i];
        }
        sum / n as f64
    }

    /// Steps of the run.
    pub fn steps(&self) -> u64 {
        self.step_s.len() as u64 * u64::from(self.averaged_over)
    }

    /// The run's steps and pauses, without its times.
    pub fn shape(&self) -> Shape {
        let at = |class| self.of(class).map(|i| i as u64 * u64::from(self.averaged_over)).collect();
        Shape {
            steps: self.steps(),
            first_step: self.step.first().copied(),
            evaluations: at(Class::AfterEvaluation),
            checkpoints: at(Class::AfterCheckpoint),
        }
    }

    /// All step times together, seconds.
    pub fn total_s(&self) -> f64 {
        self.step_s.iter().sum::<f64>() * f64::from(self.averaged_over)
    }
}

/// The log's name in messages.
fn name_of(log: &StepLog) -> String {
    let parts = [Some(log.source.name.as_str()), log.system.as_deref(), log.run.as_deref()];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" / ")
}

/// Tells the steps of a log apart.
///
/// Warm-up is the first 10 steps of every start; the first step after an evaluation, a checkpoint or of a new
/// block is a class of its own; a stall's ratio to the 21-step running median of the rest exceeds 1 by more
/// than max(6 · 1.4826 · MAD, 2 %); the core is what remains.
///
/// # Errors
/// [`StepsError::TooShort`] with fewer than 20 rows after the warm-up.
pub fn separate(log: &StepLog) -> Result<Separated, StepsError> {
    let name = name_of(log);
    let n = log.step_s.len();
    let warm = WARM_UP_STEPS.div_ceil(log.averaged_over.max(1) as usize);
    let mut class = vec![Class::Core; n];
    let mut durations = [Vec::new(), Vec::new()];
    for pause in &log.pauses {
        let (kind, slot) = match pause.kind {
            PauseKind::Checkpoint => (Class::AfterCheckpoint, Some(1)),
            PauseKind::Evaluation => (Class::AfterEvaluation, Some(0)),
            _ => (Class::AfterEvaluation, None),
        };
        if let (Some(slot), Some(d)) = (slot, pause.duration_s) {
            durations[slot].push(d);
        }
        if pause.after < n && pause.kind != PauseKind::Restart {
            class[pause.after] = kind;
        }
    }
    let starts = log.pauses.iter().filter(|p| p.kind == PauseKind::Restart).map(|p| p.after);
    for start in std::iter::once(0).chain(starts) {
        let end = (start + warm).min(n);
        class[start.min(n)..end].fill(Class::WarmUp);
    }
    let rest: Vec<usize> = (0..n).filter(|&i| class[i] == Class::Core).collect();
    if rest.len() < FEWEST {
        return Err(StepsError::TooShort { name, rows: n, need: FEWEST, warm });
    }
    let times: Vec<f64> = rest.iter().map(|&i| log.step_s[i]).collect();
    let above = above_running_median(&times, STALL_WINDOW, STALL_SDS, STALL_LEAST)
        .map_err(|source| StepsError::Statistics { what: name.clone(), source })?;
    for (k, &i) in rest.iter().enumerate() {
        if above.stands_out(k) {
            class[i] = Class::Stall;
        }
    }
    let [evaluation_s, checkpoint_s] = durations;
    Ok(Separated {
        name,
        step: log.step.clone(),
        step_s: log.step_s.clone(),
        class,
        averaged_over: log.averaged_over.max(1),
        evaluation_s,
        checkpoint_s,
    })
}
