//! Orders of workers and their objective on sampled steps.
//!
//! An *order* names a worker for every position: the cells, replica by replica, then the spares. What
//! an order is worth is exact for the sampled steps; what a change of it is worth is first bounded from
//! below by the cuts of the replicas it touches, and computed only if the bound promises a gain.

use rayon::prelude::*;

use super::evaluate::{ReplicaSteps, Scratch};
use super::objective::Objective;
use super::sampled::Sampled;

/// Most cuts kept for one sample of one replica, in a plan of up to [`MANY`] cells and in a larger one.
const MOST_CUTS: (usize, usize) = (24, 16);
/// Most changes of one list that are computed in a larger plan, those with the lowest bounds.
const MOST_COMPUTED: usize = 8;
/// Cells of a plan that is searched from every start, with restarts.
const MANY: usize = 256;

/// Worth of an order: the objective, then the mean; seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Score {
    pub(super) objective: f64,
    pub(super) mean: f64,
}

impl Score {
    pub(super) const WORST: Score = Score { objective: f64::INFINITY, mean: f64::INFINITY };

    /// Whether this is lower by more than rounding: the objective, or it is as low and the mean lower.
    pub(super) fn beats(self, other: Score, least: f64) -> bool {
        let clear = other.objective * (1.0 - least);
        self.objective < clear
            || (self.objective <= other.objective && self.mean < other.mean * (1.0 - least))
    }

    pub(super) fn of(objective: Objective, steps: &mut [f64]) -> Score {
        let mean = steps.iter().sum::<f64>() / steps.len().max(1) as f64;
        Score { objective: objective.of(steps), mean }
    }
}

/// Two positions that change workers.
pub(super) type Swap = (usize, usize);

/// What is searched.
pub(super) struct Search<'a> {
    pub(super) sampled: &'a Sampled,
    pub(super) objective: Objective,
    pub(super) replicas: usize,
    pub(super) stages: usize,
    /// By worker.
    pub(super) factors: &'a [f64],
    pub(super) types: &'a [u32],
    pub(super) labels: Option<&'a [u32]>,
    /// By `replica * samples + sample`: cuts one after the other.
    cuts: Vec<Vec<f64>>,
    /// Compute by stage on longest paths at factor 1, seconds: how much a stage matters.
    pub(super) weight: Vec<f64>,
    /// Orders and changes computed exactly, and changes bounded.
    pub(super) exact: u64,
    pub(super) bounded: u64,
}

/// An order and its exact worth.
#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) order: Vec<u32>,
    /// `[replica][sample]`, seconds.
    time_s: Vec<Vec<f64>>,
    /// The three slowest replicas of each sample.
    slowest: Vec<[(f64, usize); 3]>,
    pub(super) score: Score,
}

impl<'a> Search<'a> {
    pub(super) fn new(
        sampled: &'a Sampled,
        objective: Objective,
        factors: &'a [f64],
        types: &'a [u32],
        labels: Option<&'a [u32]>,
    ) -> Search<'a> {
        let (replicas, stages) = (sampled.data.len(), sampled.layout.stages);
        let mut search = Search {
            sampled,
            objective,
            replicas,
            stages,
            factors,
            types,
            labels,
            cuts: vec![Vec::new(); replicas * sampled.samples],
            weight: vec![0.0; stages],
            exact: 0,
            bounded: 0,
        };
        let even = vec![vec![1.0; stages]; replicas];
        for (r, steps) in search.evaluate(&even).iter().enumerate() {
            for cut in steps.cuts.chunks(stages + 1) {
                for (w, a) in search.weight.iter_mut().zip(cut) {
                    *w += a / (replicas * sampled.samples) as f64;
                }
            }
            search.learn(r, steps);
        }
        search
    }

    pub(super) fn cells(&self) -> usize {
        self.replicas * self.stages
    }

    /// Whether there is time for everything.
    pub(super) fn small(&self) -> bool {
        self.cells() <= MANY
    }

    fn evaluate(&self, factors: &[Vec<f64>]) -> Vec<ReplicaSteps> {
        let one = |scratch: &mut Scratch, (r, own): (usize, &Vec<f64>)| {
            self.sampled.replica(r, own, scratch)
        };
        factors.par_iter().enumerate().map_init(Scratch::default, one).collect()
    }

    /// Keeps the cuts that were not known.
    fn learn(&mut self, replica: usize, steps: &ReplicaSteps) {
        let width = self.stages + 1;
        let most = if self.small() { MOST_CUTS.0 } else { MOST_CUTS.1 };
        for (k, cut) in steps.cuts.chunks(width).enumerate() {
            let known = &mut self.cuts[replica * self.sampled.samples + k];
            let (rest, by_stage) = (cut[self.stages], &cut[..self.stages]);
            let same = |c: &[f64]| &c[..self.stages] == by_stage && c[self.stages] >= rest;
            if known.chunks(width).any(same) {
                continue;
            }
            if known.len() >= most * width {
                // The first, found at factor 1, stays.
                known.drain(width..2 * width);
            }
            known.extend_from_slice(cut);
        }
    }

    /// Factors of a replica's stages under an order.
    pub(super) fn factors_of(&self, order: &[u32], replica: usize) -> Vec<f64> {
        let own = &order[replica * self.stages..][..self.stages];
        own.iter().map(|&w| self.factors[w as usize]).collect()
    }

    /// Computes an order.
    pub(super) fn state(&mut self, order: Vec<u32>) -> State {
        let factors: Vec<Vec<f64>> =
            (0..self.replicas).map(|r| self.factors_of(&order, r)).collect();
        let steps = self.evaluate(&factors);
        self.exact += 1;
        for (r, own) in steps.iter().enumerate() {
            self.learn(r, own);
        }
        let time_s: Vec<Vec<f64>> = steps.into_iter().map(|s| s.time_s).collect();
        let mut state = State { order, time_s, slowest: Vec::new(), score: Score::WORST };
        self.settle(&mut state);
        state
    }

    /// Computes what follows from the replicas' times.
    fn settle(&self, state: &mut State) {
        let none = (f64::NEG_INFINITY, usize::MAX);
        state.slowest.clear();
        for k in 0..self.sampled.samples {
            let mut top = [none; 3];
            for (r, own) in state.time_s.iter().enumerate() {
                let mut item = (own[k], r);
                for slot in &mut top {
                    if item.0 > slot.0 {
                        std::mem::swap(slot, &mut item);
                    }
                }
            }
            state.slowest.push(top);
        }
        let mut steps: Vec<f64> = state.slowest.iter().map(|t| t[0].0).collect();
        state.score = Score::of(self.objective, &mut steps);
    }

    /// Whether two workers may change positions.
    pub(super) fn allowed(&self, order: &[u32], (a, b): Swap) -> bool {
        let Some(labels) = self.labels else { return true };
        let same_replica = a / self.stages == b / self.stages && a.max(b) < self.cells();
        same_replica || self.stages == 1 || labels[order[a] as usize] == labels[order[b] as usize]
    }

    /// Replicas that a change touches, and their new factors.
    fn touched(&self, order: &[u32], swaps: &[Swap]) -> Vec<(usize, Vec<f64>)> {
        let mut replicas: Vec<usize> = swaps
            .iter()
            .flat_map(|&(a, b)| [a, b])
            .filter(|p| *p < self.cells())
            .map(|p| p / self.stages)
            .collect();
        replicas.sort_unstable();
        replicas.dedup();
        let mut out: Vec<(usize, Vec<f64>)> =
            replicas.iter().map(|&r| (r, self.factors_of(order, r))).collect();
        let mut set = |position: usize, worker: u32| {
            // A spare's position belongs to no replica that is touched.
            if let Some((_, own)) = out.iter_mut().find(|(r, _)| *r == position / self.stages) {
                own[position % self.stages] = self.factors[worker as usize];
            }
        };
        for &(a, b) in swaps {
            set(a, order[b]);
            set(b, order[a]);
        }
        out
    }

    /// A lower bound of the score after a change; no position may be in it twice.
    pub(super) fn bound(&self, state: &State, swaps: &[Swap], buffer: &mut Vec<f64>) -> Score {
        let touched = self.touched(&state.order, swaps);
        let (samples, width) = (self.sampled.samples, self.stages + 1);
        buffer.clear();
        for k in 0..samples {
            let mut step = others(&state.slowest[k], |r| touched.iter().any(|t| t.0 == r));
            for (r, factors) in &touched {
                for cut in self.cuts[r * samples + k].chunks_exact(width) {
                    let value =
                        cut[width - 1] + cut.iter().zip(factors).map(|(a, f)| a * f).sum::<f64>();
                    step = step.max(value);
                }
            }
            buffer.push(step);
        }
        Score::of(self.objective, buffer)
    }

    /// Bounds of many changes, in order.
    pub(super) fn bounds(&mut self, state: &State, changes: &[Vec<Swap>]) -> Vec<Score> {
        self.bounded += changes.len() as u64;
        let this = &*self;
        changes.par_iter().map_init(Vec::new, |b, c| this.bound(state, c, b)).collect()
    }

    /// The state after a change, computed.
    pub(super) fn changed(&mut self, state: &State, swaps: &[Swap]) -> State {
        let touched = self.touched(&state.order, swaps);
        self.exact += 1;
        let sampled = self.sampled;
        let steps: Vec<(usize, ReplicaSteps)> = touched
            .par_iter()
            .map(|(r, factors)| (*r, sampled.replica(*r, factors, &mut Scratch::default())))
            .collect();
        let mut next = state.clone();
        for (r, own) in steps {
            self.learn(r, &own);
            next.time_s[r] = own.time_s;
        }
        for &(a, b) in swaps {
            next.order.swap(a, b);
        }
        self.settle(&mut next);
        next
    }

    /// Of some changes the one with the lowest score, if it beats `limit`: bounded first, computed
    /// until the best computed one beats all bounds that are left, or (in a larger plan) there were
    /// [`MOST_COMPUTED`].
    pub(super) fn best(
        &mut self,
        state: &State,
        changes: &[Vec<Swap>],
        limit: Score,
        least: f64,
    ) -> Option<(usize, State)> {
        let bounds = self.bounds(state, changes);
        let mut left: Vec<usize> =
            (0..changes.len()).filter(|&i| bounds[i].beats(limit, least)).collect();
        left.sort_by(|&a, &b| {
            let key = |i: usize| (bounds[i].objective, bounds[i].mean);
            let ((oa, ma), (ob, mb)) = (key(a), key(b));
            oa.total_cmp(&ob).then(ma.total_cmp(&mb)).then(a.cmp(&b))
        });
        let mut found: Option<(usize, State)> = None;
        let mut buffer = Vec::new();
        let most = if self.small() { usize::MAX } else { MOST_COMPUTED };
        let mut computed = 0;
        for i in left {
            let limit = found.as_ref().map_or(limit, |(_, s)| s.score);
            if !bounds[i].beats(limit, least) {
                break;
            }
            // Cuts found since may rule it out.
            if !self.bound(state, &changes[i], &mut buffer).beats(limit, least) {
                continue;
            }
            if computed == most {
                break;
            }
            computed += 1;
            let next = self.changed(state, &changes[i]);
            if next.score.beats(limit, least) {
                found = Some((i, next));
            }
        }
        found
    }

    /// Cells on longest paths of slow steps (of all steps, for the mean), most compute first.
    pub(super) fn critical(&self, state: &State) -> Vec<usize> {
        let samples = self.sampled.samples;
        let steps = || state.slowest.iter().map(|t| t[0].0);
        let from = match self.objective {
            Objective::Mean => f64::NEG_INFINITY,
            Objective::P95 | Objective::Cvar => {
                let mut all: Vec<f64> = steps().collect();
                let at = samples * 4 / 5;
                *all.select_nth_unstable_by(at.min(samples - 1), f64::total_cmp).1
            }
        };
        let mut weight = vec![0.0; self.cells()];
        for (k, top) in state.slowest.iter().enumerate().filter(|(_, t)| t[0].0 >= from) {
            let r = top[0].1;
            let factors = self.factors_of(&state.order, r);
            let value = |cut: &&[f64]| {
                cut[self.stages] + cut.iter().zip(&factors).map(|(a, f)| a * f).sum::<f64>()
            };
            let cuts = self.cuts[r * samples + k].chunks(self.stages + 1);
            let Some(cut) = cuts.max_by(|a, b| value(a).total_cmp(&value(b))) else { continue };
            for s in 0..self.stages {
                weight[r * self.stages + s] += cut[s] * factors[s];
            }
        }
        let mut cells: Vec<usize> = (0..self.cells()).filter(|&c| weight[c] > 0.0).collect();
        cells.sort_by(|&a, &b| weight[b].total_cmp(&weight[a]).then(a.cmp(&b)));
        cells
    }

    /// Step times, seconds, by sample.
    #[cfg(test)]
    pub(super) fn step_s(state: &State) -> Vec<f64> {
        state.slowest.iter().map(|t| t[0].0).collect()
    }
}

/// The slowest replica's time that is not left out.
fn others(slowest: &[(f64, usize); 3], left_out: impl Fn(usize) -> bool) -> f64 {
    slowest.iter().find(|(_, r)| !left_out(*r)).map_or(f64::NEG_INFINITY, |t| t.0)
}
