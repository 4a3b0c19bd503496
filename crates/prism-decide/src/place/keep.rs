//! Keep a slow worker, replace it, or drop its replica.

use prism_engine::predict::Estimate;
use serde::{Deserialize, Serialize};

use super::dropped::smaller_graph;
use super::objective::{Paired, Ratio};
use super::solve::{Problem, Solved};
use super::{PlaceError, PlaceOptions};

/// What can be done about the slowest worker. Per sample trained: a step of one replica fewer trains
/// fewer samples, by 1 in the number of replicas.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct KeepOrDrop {
    /// The slowest worker of the order as given.
    pub worker: String,
    /// Its factor.
    pub factor: f64,
    /// It stays, at its best place.
    pub kept: Estimate,
    /// Its replica is dropped, the others placed anew.
    pub dropped: Estimate,
    /// Replicas that are then left.
    pub replicas_left: usize,
    /// A spare takes over, all placed anew.
    pub replaced: Estimate,
    /// The spare: a real one, or a worker of median speed that is not there.
    pub spare: Spare,
    /// Time per sample with its replica dropped over that with it kept.
    pub dropped_over_kept: Ratio,
    /// Step time with it replaced over that with it kept.
    pub replaced_over_kept: Ratio,
    /// Which is best per sample trained, among what is there.
    pub advice: Advice,
}

/// Where the replacement comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Spare {
    /// One of the spares given.
    Given,
    /// Nobody: what a worker of median speed would give.
    Imagined,
}

/// What to do about the slowest worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Advice {
    /// Keep it at its best place.
    Keep,
    /// Drop its replica.
    Drop,
    /// Let a spare take over.
    Replace,
}

/// Answers for the slowest worker that the given order uses; `None` if all are alike, or there is one
/// replica only.
pub(super) fn keep_or_drop(
    problem: &Problem<'_, '_>,
    solved: &Solved,
    names: &[String],
    options: &PlaceOptions,
) -> Result<Option<KeepOrDrop>, PlaceError> {
    let (replicas, stages) = (problem.nominal.replicas(), problem.nominal.stages());
    let mut slowest = 0;
    for position in 0..problem.cells() {
        let factor = |p: usize| problem.factors[problem.given[p] as usize];
        if factor(position) > factor(slowest) {
            slowest = position;
        }
    }
    let worker = problem.given[slowest];
    if replicas < 2 || problem.types.iter().all(|t| *t == problem.types[0]) {
        return Ok(None);
    }
    let kept = at_work(problem, solved, worker, options)?;
    let (dropped, left) =
        (without_replica(problem, slowest / stages, worker, options)?, replicas - 1);
    let (replaced, spare) = with_spare(problem, slowest, worker, options)?;
    let confidence = options.confidence;
    let sets = [&kept[..], &dropped, &replaced];
    let paired = Paired::new(options.objective, &sets, confidence, options.seed);
    let per_sample = replicas as f64 / left as f64;
    let dropped_over_kept = paired.of(|v| v[1] / v[0] * per_sample)?;
    let replaced_over_kept = paired.ratio(2, 0)?;
    let replace = spare == Spare::Given && replaced_over_kept.sampling.upper < 1.0;
    let drop = dropped_over_kept.sampling.upper < 1.0;
    let advice = match (drop, replace) {
        (true, true) if dropped_over_kept.value < replaced_over_kept.value => Advice::Drop,
        (_, true) => Advice::Replace,
        (true, false) => Advice::Drop,
        (false, false) => Advice::Keep,
    };
    let estimate = |s: &[f64]| options.objective.estimate(s, confidence, options.seed);
    Ok(Some(KeepOrDrop {
        worker: names[worker as usize].clone(),
        factor: problem.factors[worker as usize],
        kept: estimate(&kept)?,
        dropped: estimate(&dropped)?,
        replicas_left: left,
        replaced: estimate(&replaced)?,
        spare,
        dropped_over_kept,
        replaced_over_kept,
        advice,
    }))
}

/// Step times of the best order in which a worker has a cell: the placement, or if that leaves it out,
/// the best without spares.
fn at_work(
    problem: &Problem<'_, '_>,
    solved: &Solved,
    worker: u32,
    options: &PlaceOptions,
) -> Result<Vec<f64>, PlaceError> {
    let cells = problem.cells();
    if solved.order[..cells].contains(&worker) {
        return problem.kernel(options)?.step_s(&problem.cell_factors(&solved.order));
    }
    let mut spares = problem.given[cells..].to_vec();
    spares.sort_unstable();
    let mut working = problem.clone();
    // The last first, so that the numbers of the others stay.
    for &spare in spares.iter().rev() {
        let given = working.given.clone();
        working = working.with(problem.nominal, given, spare);
    }
    let solved = working.solve(options)?;
    working.kernel(options)?.step_s(&working.cell_factors(&solved.order))
}

/// Step times without a replica and without a worker; the replica's other workers become spares.
fn without_replica(
    problem: &Problem<'_, '_>,
    replica: usize,
    worker: u32,
    options: &PlaceOptions,
) -> Result<Vec<f64>, PlaceError> {
    let stages = problem.nominal.stages();
    let graph = smaller_graph(problem.nominal.graph)?;
    let nominal = problem.nominal.without(replica, &graph);
    let own = replica * stages..(replica + 1) * stages;
    let cells = problem.cells();
    let mut given: Vec<u32> =
        (0..cells).filter(|p| !own.contains(p)).map(|p| problem.given[p]).collect();
    given
        .extend(problem.given[own].iter().chain(&problem.given[cells..]).filter(|w| **w != worker));
    let smaller = problem.with(&nominal, given, worker);
    let solved = smaller.solve(options)?;
    smaller.kernel(options)?.step_s(&smaller.cell_factors(&solved.order))
}

/// Step times with another worker in a worker's place: a spare, or one of median speed.
fn with_spare(
    problem: &Problem<'_, '_>,
    position: usize,
    worker: u32,
    options: &PlaceOptions,
) -> Result<(Vec<f64>, Spare), PlaceError> {
    let cells = problem.cells();
    let fits =
        |w: &u32| problem.labels.as_ref().is_none_or(|l| l[*w as usize] == l[worker as usize]);
    let fastest = problem.given[cells..]
        .iter()
        .filter(|w| fits(w))
        .min_by(|a, b| problem.factors[**a as usize].total_cmp(&problem.factors[**b as usize]));
    let (other, spare) = if let Some(&spare) = fastest {
        let mut given = problem.given.clone();
        given[position] = spare;
        let mut spares = given.split_off(cells);
        spares.retain(|w| *w != spare);
        given.extend(spares);
        (problem.with(problem.nominal, given, worker), Spare::Given)
    } else {
        let mut other = problem.clone();
        other.factors[worker as usize] = 1.0;
        other.types[worker as usize] = u32::MAX;
        (other.compacted(), Spare::Imagined)
    };
    let solved = other.solve(options)?;
    Ok((other.kernel(options)?.step_s(&other.cell_factors(&solved.order))?, spare))
}

impl Problem<'_, '_> {
    /// The same workers but one, on another plan, in another order.
    fn with<'m, 'h>(
        &self,
        nominal: &'m super::nominal::Nominal<'h>,
        given: Vec<u32>,
        gone: u32,
    ) -> Problem<'m, 'h> {
        let keep = |w: u32| w != gone;
        let pick = |w: u32| w - u32::from(w > gone);
        let each = |i: usize| keep(i as u32);
        Problem {
            nominal,
            factors: (0..self.factors.len())
                .filter(|i| each(*i))
                .map(|i| self.factors[i])
                .collect(),
            types: (0..self.types.len()).filter(|i| each(*i)).map(|i| self.types[i]).collect(),
            labels: self
                .labels
                .as_ref()
                .map(|l| (0..l.len()).filter(|i| each(*i)).map(|i| l[i]).collect()),
            given: given.into_iter().filter(|w| keep(*w)).map(pick).collect(),
        }
        .compacted()
    }

    /// Types numbered without gaps.
    fn compacted(mut self) -> Self {
        let mut kinds: Vec<u32> = self.types.clone();
        kinds.sort_unstable();
        kinds.dedup();
        for t in &mut self.types {
            *t = kinds.binary_search(t).map_or(*t, |i| i as u32);
        }
        self
    }
}
