//! What all runs of a plan share.

use prism_job::run::{Domain, Every, Policy, RunPlan};

use super::Options;
use super::clock::Thinning;
use super::episodes::Swing;
use super::work::Grid;

pub(super) const CHECKPOINT: usize = 0;
pub(super) const EVALUATION: usize = 1;
pub(super) const SNAPSHOT: usize = 2;

/// What all runs of a plan share.
pub(super) struct Constants<'a> {
    pub(super) plan: &'a RunPlan,
    pub(super) options: &'a Options,
    pub(super) thinning: Option<&'a Thinning>,
    pub(super) steps: u32,
    pub(super) classes: Vec<Class>,
    /// Whether the rate of progress changes while the job runs.
    pub(super) modulated: bool,
    pub(super) swing: Option<Swing>,
}

/// What a failure of a class takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Class {
    pub(super) detection_s: f64,
    pub(super) restart_s: f64,
    pub(super) repair_s: f64,
    pub(super) replaces: bool,
    pub(super) nodes: u32,
    /// Replicas that lose a node; none where the job itself fails.
    pub(super) replicas: u32,
    /// Whether a snapshot in memory outlives it.
    pub(super) memory: bool,
}

impl<'a> Constants<'a> {
    pub(super) fn new(
        plan: &'a RunPlan,
        options: &'a Options,
        thinning: Option<&'a Thinning>,
    ) -> Constants<'a> {
        let recovery = &plan.recovery;
        let per_replica = recovery.elastic.map_or(1, |e| {
            u32::try_from(plan.machines.nodes() / u64::from(e.replicas)).unwrap_or(u32::MAX)
        });
        let replicated = recovery.in_memory.is_some_and(|m| m.replicated);
        let classes = plan.failures.classes.iter().map(|c| {
            let nodes = plan.machines.nodes_lost(c.domain);
            Class {
                detection_s: c.detection_s.unwrap_or(recovery.detection_s),
                restart_s: c.restart_s.unwrap_or(recovery.restart_s),
                repair_s: c.repair_s.or(recovery.repair_s).unwrap_or(f64::INFINITY),
                replaces: c.replaces,
                nodes,
                replicas: nodes.div_ceil(per_replica.max(1)),
                memory: match c.domain {
                    Domain::Job => true,
                    Domain::Gpu | Domain::Node => replicated || !c.replaces,
                    Domain::Rack | Domain::Switch => false,
                },
            }
        });
        let start_s = plan.start.map_or(0.0, prism_job::run::Moment::time_of_day_s);
        let swing = plan.diurnal.filter(|d| d.amplitude > 0.0);
        let elastic = recovery.policy == Policy::Elastic;
        Constants {
            plan,
            options,
            thinning,
            steps: u32::try_from(plan.steps).unwrap_or(u32::MAX),
            classes: classes.collect(),
            modulated: swing.is_some() || !plan.slow.classes.is_empty() || elastic,
            swing: swing.map(|d| Swing::new(&d, start_s)),
        }
    }

    /// Checkpoints, evaluations and snapshots at a length of steps.
    pub(super) fn grids(&self, step_s: f64, after_evaluation_s: f64) -> [Grid; 3] {
        let whole =
            |seconds: f64| (seconds / step_s).round().clamp(1.0, f64::from(u32::MAX)) as u32;
        let mut grids = [Grid::NEVER; 3];
        if let Some(c) = self.plan.checkpoint {
            let every = match c.every {
                Every::Time(interval_s) => whole(interval_s),
                Every::Steps(steps) => u32::try_from(steps).unwrap_or(u32::MAX),
            };
            let written = (c.write_s / step_s).ceil().min(f64::from(u32::MAX)) as u32;
            grids[CHECKPOINT] = Grid { every: every.max(written), pause_s: c.blocking_s };
        }
        if let Some(e) = self.plan.evaluation {
            let every = u32::try_from(e.every_steps).unwrap_or(u32::MAX);
            grids[EVALUATION] =
                Grid { every, pause_s: (e.duration_s + after_evaluation_s).max(0.0) };
        }
        if let (Policy::InMemory, Some(m)) =
            (self.plan.recovery.policy, self.plan.recovery.in_memory)
        {
            grids[SNAPSHOT] = Grid { every: whole(m.interval_s), pause_s: m.blocking_s };
        }
        grids
    }
}
