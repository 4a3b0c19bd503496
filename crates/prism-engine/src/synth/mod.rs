//! Synthetic traces of a known truth.
//!
//! A [`SynthSpec`] says what a job's durations are made of; [`SynthSpec::generate`] records steps
//! of it as a trace would, together with the effects that were drawn. [`from_profile`] records
//! steps of a calibrated job's own model.
//!
//! Every draw is a function of the seed and of what it is for (step id, replica, stage, kind,
//! chunk), so that more steps, replicas or stages leave the other draws alone, and steps can be
//! made in any portions.
//!
//! ```
//! use prism_engine::synth::{EffectSpec, SynthSpec};
//! use prism_graph::schedule::{Schedule, ScheduleKind};
//!
//! let plan = Schedule { replicas: 4, ..Schedule::new(ScheduleKind::OneFOneB, 2, 8) };
//! let mut spec = SynthSpec::new(plan, 20);
//! spec.effects.microbatch = EffectSpec::normal(0.2);
//! let synth = spec.generate()?;
//! assert_eq!(synth.table.steps().len(), 20);
//! # Ok::<(), prism_engine::synth::SynthError>(())
//! ```

mod draw;
mod error;
mod model;
mod spec;
mod truth;

pub use error::SynthError;
pub(crate) use model::drawn_work;
pub use model::{from_model, from_profile};
pub use spec::{
    Durations, EffectLaw, EffectSpec, LaunchDelay, Loads, OutlierSteps, SlowWorker, SynthEffects,
    SynthSpec, SynthSteps,
};
pub use truth::SynthTruth;

use prism_graph::{evaluate, to_op_table};
use prism_io::{JobMeta, OpTable, Source};

use draw::Plan;

/// A recorded job whose truth is known.
#[derive(Clone, Debug, PartialEq)]
pub struct Synth {
    /// The record.
    pub table: OpTable,
    /// What was drawn.
    pub truth: SynthTruth,
}

/// Steps that are evaluated at once where no record is kept, as (step, replica) pairs.
const BLOCK_SAMPLES: usize = 8_192;

impl SynthSpec {
    /// Draws all steps and records them as a trace would.
    ///
    /// # Errors
    /// [`SynthError::Spec`] with every violation.
    pub fn generate(&self) -> Result<Synth, SynthError> {
        self.validate()?;
        let graph = self.schedule.graph()?;
        let plan = Plan::new(self, &graph)?;
        let steps = self.step_ids();
        let drawn = plan.draw(&steps);
        let mut table =
            to_op_table(&graph, &steps, &drawn.work, drawn.delay.as_deref(), &self.meta())?;
        table.sources = vec![source(format!("synthetic, seed {}", self.seed))];
        let truth = SynthTruth::new(&plan, &steps, &drawn.effects);
        Ok(Synth { table, truth })
    }

    /// Step times of the given steps of the same job, seconds, without a record: for the
    /// distribution that a prediction should find. Ids need not be those of [`SynthSpec::steps`].
    ///
    /// # Errors
    /// [`SynthError::Spec`] with every violation; [`SynthError::Steps`] if ids do not ascend.
    pub fn step_times(&self, steps: &[i64]) -> Result<Vec<f64>, SynthError> {
        self.validate()?;
        ascending(steps)?;
        let graph = self.schedule.graph()?;
        let plan = Plan::new(self, &graph)?;
        let block = (BLOCK_SAMPLES / graph.replicas().max(1) as usize).max(1);
        let mut out = Vec::with_capacity(steps.len());
        for ids in steps.chunks(block) {
            let drawn = plan.draw(ids);
            let timeline = evaluate(&graph, ids.len(), &drawn.work, drawn.delay.as_deref())?;
            out.extend(timeline.step_times(&graph));
        }
        Ok(out)
    }

    /// The plan as a trace's metadata states it.
    fn meta(&self) -> JobMeta {
        let (dp, pp) = (self.schedule.replicas, u32::from(self.schedule.stages));
        JobMeta {
            trial_name: "synthetic".to_owned(),
            run_id: 0,
            dp_size: dp,
            dsp_size: 1,
            pp_size: pp,
            tp_size: 1,
            vpp_size: u32::from(self.schedule.chunks),
            world_size: dp * pp,
        }
    }
}

fn source(name: String) -> Source {
    Source { name, sha256: String::new(), bytes: 0 }
}

fn ascending(steps: &[i64]) -> Result<(), SynthError> {
    match steps.windows(2).find(|w| w[0] >= w[1]) {
        None => Ok(()),
        Some(w) => Err(SynthError::Steps { before: w[0], after: w[1] }),
    }
}

/// Place of a (step, replica) sample of an operation in a flat `[operation][step][replica]` array.
fn lane_at(op: prism_graph::OpId, samples: usize, sample: usize) -> usize {
    op.0 as usize * samples + sample
}
