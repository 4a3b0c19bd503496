//! Step times with recorded work on some operations and ideal work on the others.

use std::ops::Range;

use prism_engine::replay::{MixedWork, Replayed};
use prism_graph::{GraphError, Op, StepGraph, StepTimes, steps_per_block};
use rayon::prelude::*;

use super::ReferenceError;
use super::report::{Estimate, Explained, PartSlowdown, mean};

/// Which side of a selection keeps its recorded work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The selected operations; all others have ideal work.
    Selected,
    /// All others; the selected operations have ideal work.
    Others,
}

/// A replayed trace and its ideal, to be asked what other work would have done.
///
/// | method | kind |
/// |---|---|
/// | [`new`](Self::new) | constructor |
/// | [`step_times`](Self::step_times), [`slowdown`](Self::slowdown), [`explain`](Self::explain) | action |
#[derive(Clone, Debug)]
pub struct WhatIf<'a> {
    replayed: &'a Replayed,
    /// `T_nd`, one a step.
    no_delay: Vec<f64>,
    /// `T_id`, one a step.
    ideal: Vec<f64>,
}

/// Operations by what they are and their replica.
pub type Selection<'s> = &'s (dyn Fn(&Op, u32) -> bool + Sync);

impl<'a> WhatIf<'a> {
    /// Prepares the questions.
    ///
    /// # Errors
    /// [`ReferenceError::NoIdeal`] if the ideal step takes no time.
    pub fn new(replayed: &'a Replayed) -> Result<WhatIf<'a>, ReferenceError> {
        let steps = &replayed.report.steps;
        let ideal: Vec<f64> = steps.iter().map(|s| s.ideal_s).collect();
        match ideal.iter().find(|&&t| !(t > 0.0 && t.is_finite())) {
            Some(&ideal_s) => Err(ReferenceError::NoIdeal { ideal_s }),
            None => Ok(WhatIf {
                replayed,
                no_delay: steps.iter().map(|s| s.no_delay_s).collect(),
                ideal,
            }),
        }
    }

    /// Step times, seconds, one list a selection with one time a step, without launch delays.
    ///
    /// # Errors
    /// [`GraphError::Shape`] if graph and split do not belong together.
    pub fn step_times(
        &self,
        selections: &[(Selection<'_>, Side)],
    ) -> Result<Vec<Vec<f64>>, GraphError> {
        let Replayed { graph, split, report, .. } = self.replayed;
        let scenarios = selections
            .iter()
            .map(|&(select, side)| {
                let recorded = |op: &Op, replica| select(op, replica) == (side == Side::Selected);
                MixedWork::new(graph, split, &report.ideal, recorded)
            })
            .collect::<Result<Vec<_>, _>>()?;
        Ok(run(graph, self.ideal.len(), &scenarios))
    }

    /// What recorded work on the selected operations alone does to the ideal step.
    ///
    /// # Errors
    /// As [`WhatIf::step_times`].
    pub fn slowdown(&self, select: Selection<'_>) -> Result<PartSlowdown, ReferenceError> {
        let times = self.step_times(&[(select, Side::Selected)])?;
        self.part(times.first().map_or(&[], Vec::as_slice))
    }

    /// How much of the slowdown the selected operations explain: what is gone without their
    /// variation, and what it makes alone.
    ///
    /// # Errors
    /// As [`WhatIf::step_times`].
    pub fn explain(&self, select: Selection<'_>) -> Result<Explained, ReferenceError> {
        match self.step_times(&[(select, Side::Others), (select, Side::Selected)])?.as_slice() {
            [removed, added] => Ok(self.explained(removed, added)),
            _ => Ok(self.explained(&[], &[])),
        }
    }

    /// The figures of step times with recorded work on a part alone.
    pub(super) fn part(&self, times: &[f64]) -> Result<PartSlowdown, ReferenceError> {
        let slowdown = Estimate::ratio(times, &self.ideal)
            .ok_or(ReferenceError::NoIdeal { ideal_s: mean(&self.ideal) })?;
        Ok(PartSlowdown {
            slowdown,
            mean_s: mean(times),
            per_step: times.iter().zip(&self.ideal).map(|(t, id)| t / id).collect(),
        })
    }

    /// The figures of step times with ideal work on a part (`removed`) and on all else (`added`).
    pub(super) fn explained(&self, removed: &[f64], added: &[f64]) -> Explained {
        let less =
            |a: &[f64], b: &[f64]| -> Vec<f64> { a.iter().zip(b).map(|(a, b)| a - b).collect() };
        let whole = less(&self.no_delay, &self.ideal);
        Explained {
            rem: Estimate::ratio(&less(&self.no_delay, removed), &whole),
            add: Estimate::ratio(&less(added, &self.ideal), &whole),
            trem_s: mean(removed),
            tadd_s: mean(added),
            tori_s: mean(&self.no_delay),
            tideal_s: mean(&self.ideal),
        }
    }
}

/// Step times of every scenario. Blocks of steps run in parallel, each through all scenarios while
/// its recorded work is in the cache.
fn run(graph: &StepGraph, steps: usize, scenarios: &[MixedWork<'_>]) -> Vec<Vec<f64>> {
    let block = steps_per_block(graph);
    let blocks: Vec<Range<usize>> =
        (0..steps).step_by(block).map(|first| first..steps.min(first + block)).collect();
    let pieces: Vec<Vec<Vec<f64>>> = blocks
        .into_par_iter()
        .map(|block| {
            let mut evaluator = StepTimes::new(graph);
            scenarios
                .iter()
                .map(|scenario| {
                    let mut times = Vec::with_capacity(block.len());
                    evaluator.append(block.clone(), scenario, &mut times);
                    times
                })
                .collect()
        })
        .collect();
    (0..scenarios.len())
        .map(|scenario| pieces.iter().flat_map(|block| block[scenario].iter().copied()).collect())
        .collect()
}
