//! Jobs with a duration model: a profile, a trace that is calibrated on the way, or a planned job.

use std::path::Path;

use clap::Args;
use prism_decide::scenario::{Donors, Job, Scenario, apply};
use prism_decide::select::Layout;
use prism_engine::calibrate::CalibrateOptions;
use prism_engine::predict::Draws;
use prism_engine::profile::{Profile, SourceFile, profile};
use prism_engine::replay::{Builder, Choice};
use prism_graph::StepGraph;
use prism_io::Loaded;

use crate::args::TraceArgs;
use crate::context::Context;
use crate::error::{CliError, usage};
use crate::input::{self, Input};
use crate::planned::{self, PlannedArgs};

/// GPUs of a node where nothing is said.
pub(crate) const GPUS_PER_NODE: u32 = 8;

/// A calibrated or planned job and where it came from.
pub(crate) struct Calibrated {
    pub(crate) profile: Profile,
    pub(crate) graph: StepGraph,
    pub(crate) sources: Vec<SourceFile>,
    /// What the reader must know of it.
    pub(crate) notes: Vec<String>,
    /// GPUs of a node of a planned job's cluster.
    pub(crate) gpus_per_node: Option<u32>,
}

/// Reads a profile, calibrates a trace (laws are fitted where draws need them), or models a job file.
pub(crate) fn read(
    path: &Path,
    args: &TraceArgs,
    planned: &PlannedArgs,
    draws: Draws,
    context: &Context,
) -> Result<Calibrated, CliError> {
    let given = input::any(path, args, context)?;
    if let Input::Job(given) = given {
        return planned::model(&given, path, args, planned, context);
    }
    planned.check_unused(path)?;
    let (profile, sources) = of_recording(given, path, draws, context)?;
    let graph = profile
        .step_graph()
        .map_err(|source| CliError::Profile { file: input::name(path), source })?;
    Ok(Calibrated { profile, graph, sources, notes: Vec::new(), gpus_per_node: None })
}

fn of_recording(
    given: Input,
    path: &Path,
    draws: Draws,
    context: &Context,
) -> Result<(Profile, Vec<SourceFile>), CliError> {
    Ok(match given {
        Input::Profile(profile, source) => {
            let mut sources = vec![source];
            sources.extend(profile.provenance.sources.iter().cloned());
            (*profile, sources)
        }
        Input::Job(_) => return Err(CliError::IsJob { file: input::name(path) }),
        Input::Trace(loaded) => {
            let choice = input::replayed(path, &loaded, context)?;
            let made = calibrated(path, &loaded, &choice, draws == Draws::Parametric, context)?;
            let sources = made.provenance.sources.clone();
            (made, sources)
        }
    })
}

/// Workers that are healed before anything is asked.
#[derive(Clone, Debug, Args)]
pub(crate) struct HealArgs {
    /// Take these workers for as fast as the median of the others of their stage, `rank=12` or
    /// `dp=0 stage=3`; repeatable
    #[arg(long, value_name = "WORKERS")]
    pub(crate) heal: Vec<String>,
}

/// Calibrates a trace whose graph was chosen. Fitting laws takes longer than everything else; only
/// parametric draws need them.
pub(crate) fn calibrated(
    path: &Path,
    loaded: &Loaded,
    choice: &Choice,
    laws: bool,
    context: &Context,
) -> Result<Profile, CliError> {
    let dropped: Vec<i64> = loaded.dropped.iter().map(|d| d.step).collect();
    let options = CalibrateOptions { laws, ..CalibrateOptions::default() };
    context
        .phase("calibrate", || profile(&loaded.table, choice, &dropped, &options))
        .map_err(|source| CliError::Calibrate { file: input::name(path), source })
}

impl Calibrated {
    /// Whether the job was planned, not recorded.
    pub(crate) fn is_planned(&self) -> bool {
        self.profile.provenance.builder == Builder::Planned
    }

    /// GPUs of a node: as given, as the job's cluster says, or 8.
    pub(crate) fn node_size(&self, given: Option<u32>) -> u32 {
        given.or(self.gpus_per_node).unwrap_or(GPUS_PER_NODE)
    }

    /// Bootstrap repetitions: as given, or the default of a recorded job. A planned job has none.
    pub(crate) fn repetitions(
        &self,
        given: Option<usize>,
        default: usize,
        path: &Path,
    ) -> Result<usize, CliError> {
        if !self.is_planned() {
            return Ok(given.unwrap_or(default));
        }
        match given {
            None | Some(0) => Ok(0),
            Some(_) => Err(usage(
                format!(
                    "`--bootstrap` resamples recorded steps, and `{}` is a job file: nothing was \
                     recorded",
                    input::name(path)
                ),
                "leave out `--bootstrap`: the job's variability is given, not estimated",
            )),
        }
    }

    /// Heals workers: the job as it would be without their persistent slowness.
    pub(crate) fn heal(&mut self, args: &HealArgs, path: &Path) -> Result<(), CliError> {
        for which in &args.heal {
            let place = || format!("`--heal {which}`");
            let scenario: Scenario = format!("heal {which}")
                .parse()
                .map_err(|source| CliError::Scenario { place: place(), source })?;
            let changed = apply(&self.job(self.node_size(None)), &scenario, &Donors::new())
                .map_err(|source| CliError::Compare {
                    file: input::name(path),
                    source: Box::new(source.into()),
                })?;
            self.profile.model = changed.model;
        }
        Ok(())
    }

    /// Where its workers run.
    pub(crate) fn layout(&self, gpus_per_node: u32) -> Layout {
        let job = &self.profile.provenance.job;
        Layout {
            gpus_per_worker: job.tp_size.saturating_mul(job.dsp_size).max(1),
            replicas: self.graph.replicas(),
            stages: self.graph.stages(),
            gpus_per_node,
        }
    }

    /// As decisions see it.
    pub(crate) fn job(&self, gpus_per_node: u32) -> Job<'_> {
        Job { graph: &self.graph, model: &self.profile.model, layout: self.layout(gpus_per_node) }
    }
}
