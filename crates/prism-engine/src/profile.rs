//! A calibrated job as a file.

use prism_graph::{GraphError, GraphFile, StepGraph};
use prism_io::{JobMeta, OpTable, Source};
use prism_model::DurationModel;
use serde::{Deserialize, Serialize};

use crate::calibrate::{
    CalibrateError, CalibrateOptions, Selection, calibrate, check_job, rebuild,
};
use crate::replay::{Builder, Choice, ReplayError, recorded_step_times};

/// Version of the profile schema that this crate writes and reads.
pub const PROFILE_SCHEMA: &str = "prism.profile/1";

/// A calibrated job: its graph, its duration model, and where they came from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Profile {
    /// [`PROFILE_SCHEMA`].
    pub schema: String,
    /// Where it came from.
    pub provenance: Provenance,
    /// The step graph over the calibrated replicas, implied dependencies included.
    pub graph: GraphFile,
    /// What is random about a step.
    pub model: DurationModel,
    /// Recorded step times, seconds, by step of the model. For guarantees and comparison only: no
    /// part of the model was fitted to them.
    pub recorded_step_s: Vec<f64>,
}

/// Where a profile came from and how well its graph fits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Provenance {
    /// Program and version that wrote it.
    pub created_by: String,
    /// Files read.
    pub sources: Vec<SourceFile>,
    /// Plan of the recorded job.
    pub job: JobFile,
    /// Steps of the trace.
    pub steps_recorded: usize,
    /// Steps that were dropped as incomplete.
    pub steps_dropped: Vec<i64>,
    /// Builder of the graph.
    pub builder: Builder,
    /// Zero-delay replay error of that builder.
    pub zero_delay_error: ReplayError,
    /// Zero-delay replay error of the reference builder.
    pub reference_error: ReplayError,
    /// Replay error with launch delays.
    pub with_delay_error: ReplayError,
    /// Level at which effects were kept.
    pub alpha: f64,
}

/// A file that a profile was computed from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SourceFile {
    /// Name as given.
    pub name: String,
    /// SHA-256, lower-case hex; empty for synthetic data.
    pub sha256: String,
    /// Bytes.
    pub bytes: u64,
}

/// Plan of a recorded job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct JobFile {
    /// Name of the trial.
    pub trial_name: String,
    /// Run of the trial.
    pub run_id: i64,
    /// Data-parallel replicas.
    pub dp_size: u32,
    /// Further split of the data-parallel dimension.
    pub dsp_size: u32,
    /// Pipeline stages.
    pub pp_size: u32,
    /// Tensor-parallel ranks.
    pub tp_size: u32,
    /// Model chunks per stage.
    pub vpp_size: u32,
    /// All ranks.
    pub world_size: u32,
}

impl From<&JobMeta> for JobFile {
    fn from(m: &JobMeta) -> Self {
        JobFile {
            trial_name: m.trial_name.clone(),
            run_id: m.run_id,
            dp_size: m.dp_size,
            dsp_size: m.dsp_size,
            pp_size: m.pp_size,
            tp_size: m.tp_size,
            vpp_size: m.vpp_size,
            world_size: m.world_size,
        }
    }
}

impl From<&Source> for SourceFile {
    fn from(s: &Source) -> Self {
        SourceFile { name: s.name.clone(), sha256: s.sha256.clone(), bytes: s.bytes }
    }
}

/// Why a profile cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// Not JSON, or not of the schema.
    #[error("not a profile: {source}")]
    Parse {
        /// What the parser says, with line and column.
        #[from]
        source: serde_json::Error,
    },
    /// Another schema version.
    #[error("the profile has schema `{found}`, this version reads `{PROFILE_SCHEMA}`")]
    Schema {
        /// The file's.
        found: String,
    },
    /// Its graph.
    #[error("the profile's graph is damaged: {source}")]
    Graph {
        /// What is wrong.
        #[from]
        source: GraphError,
    },
    /// Its model.
    #[error(transparent)]
    Model(#[from] CalibrateError),
    /// Its recorded times.
    #[error("the profile has {found} recorded step times for {steps} steps")]
    RecordedTimes {
        /// Times.
        found: usize,
        /// Steps.
        steps: usize,
    },
}

impl ProfileError {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            ProfileError::Parse { .. } => {
                Some("give a trace, or a profile written by `prism calibrate`")
            }
            ProfileError::Schema { .. } => Some("calibrate the trace again with this version"),
            ProfileError::Graph { .. } | ProfileError::RecordedTimes { .. } => {
                Some("the file was edited or cut; calibrate the trace again")
            }
            ProfileError::Model(e) => e.hint(),
        }
    }
}

/// Calibrates on all steps of a trace whose builder was chosen.
///
/// # Errors
/// [`CalibrateError`].
pub fn profile(
    table: &OpTable,
    choice: &Choice,
    steps_dropped: &[i64],
    options: &CalibrateOptions,
) -> Result<Profile, CalibrateError> {
    let replayed = &choice.chosen;
    let calibrated = calibrate(replayed, &Selection::all(replayed), options)?;
    Ok(Profile {
        schema: PROFILE_SCHEMA.to_owned(),
        provenance: Provenance {
            created_by: concat!("prism ", env!("CARGO_PKG_VERSION")).to_owned(),
            sources: table.sources.iter().map(SourceFile::from).collect(),
            job: JobFile::from(&table.meta),
            steps_recorded: replayed.observed.steps().len(),
            steps_dropped: steps_dropped.to_vec(),
            builder: choice.comparison.chosen,
            zero_delay_error: replayed.report.zero_delay_error,
            reference_error: choice.comparison.reference.zero_delay_error,
            with_delay_error: replayed.report.with_delay_error,
            alpha: options.alpha,
        },
        graph: GraphFile::from(&calibrated.graph),
        recorded_step_s: recorded_step_times(&replayed.graph, &replayed.observed),
        model: calibrated.model,
    })
}

impl Profile {
    /// Reads a profile from JSON, checks it, and computes what files leave out.
    ///
    /// # Errors
    /// [`ProfileError`].
    pub fn from_json(text: &str) -> Result<Profile, ProfileError> {
        let mut profile: Profile = serde_json::from_str(text)?;
        if profile.schema != PROFILE_SCHEMA {
            return Err(ProfileError::Schema { found: profile.schema });
        }
        let (found, steps) = (profile.recorded_step_s.len(), profile.model.steps.len());
        if found != steps {
            return Err(ProfileError::RecordedTimes { found, steps });
        }
        let graph = profile.step_graph()?;
        check_job(&graph, &profile.model)?;
        rebuild(&mut profile.model)?;
        Ok(profile)
    }

    /// The profile as JSON.
    ///
    /// # Errors
    /// If a number is not finite.
    pub fn to_json(&self) -> Result<String, ProfileError> {
        Ok(serde_json::to_string(self)?)
    }

    /// The step graph.
    ///
    /// # Errors
    /// [`ProfileError::Graph`] if it is damaged.
    pub fn step_graph(&self) -> Result<StepGraph, ProfileError> {
        Ok(StepGraph::try_from(&self.graph)?)
    }
}
