//! One placement problem: all orders where they are few, else a search; then the check.

use prism_engine::sample::RunOptions;
use prism_stats::counter::{Key, Stream, row};

use super::exhaustive::{count, exhaustive, settled};
use super::local::local;
use super::moves::moves;
use super::nominal::{Kernel, Nominal};
use super::objective::Paired;
use super::sampled::Sampled;
use super::search::Search;
use super::{Method, PlaceError, PlaceOptions};

/// Number of the first sample of the check: other samples than those searched on.
const FIRST_CHECKED: u64 = 1 << 24;
/// Bytes that sampled steps of the search may take.
const SEARCH_BYTES: usize = 384 << 20;

/// Workers to place on a plan.
#[derive(Clone, Debug)]
pub(super) struct Problem<'n, 'g> {
    pub(super) nominal: &'n Nominal<'g>,
    /// By worker.
    pub(super) factors: Vec<f64>,
    pub(super) types: Vec<u32>,
    pub(super) labels: Option<Vec<u32>>,
    /// Worker by position: cells, then spares.
    pub(super) given: Vec<u32>,
}

/// A solved problem.
pub(super) struct Solved {
    /// What the search found; the given order if that is not beaten.
    pub(super) order: Vec<u32>,
    pub(super) worst: Vec<u32>,
    pub(super) method: Method,
    /// Samples that were searched on.
    pub(super) search_samples: usize,
    /// The best moves from the given order, one after the other.
    pub(super) moves: Vec<(usize, usize)>,
}

impl Problem<'_, '_> {
    pub(super) fn cells(&self) -> usize {
        self.nominal.replicas() * self.nominal.stages()
    }

    /// Factors by cell under an order.
    pub(super) fn cell_factors(&self, order: &[u32]) -> Vec<f64> {
        order[..self.cells()].iter().map(|&w| self.factors[w as usize]).collect()
    }

    /// The kernel that checks orders, on samples that were not searched on.
    pub(super) fn kernel(&self, options: &PlaceOptions) -> Result<Kernel<'_>, PlaceError> {
        let run = RunOptions {
            seed: options.seed,
            first_sample: FIRST_CHECKED,
            samples: options.samples,
            threads: options.threads,
            ..RunOptions::default()
        };
        Kernel::new(self.nominal, run)
    }

    /// Searches, and checks on fresh samples that what was found beats the given order.
    pub(super) fn solve(&self, options: &PlaceOptions) -> Result<Solved, PlaceError> {
        let affordable = SEARCH_BYTES / Sampled::bytes_per_sample(self.nominal).max(1);
        let search_samples = options.search_samples.min(affordable).max(64);
        let run = RunOptions {
            seed: options.seed,
            samples: search_samples,
            threads: options.threads,
            ..RunOptions::default()
        };
        let sampled = Sampled::draw(self.nominal, &run)?;
        let labels = self.labels.as_deref();
        let mut search =
            Search::new(&sampled, options.objective, &self.factors, &self.types, labels);
        let exchangeable = self.nominal.exchangeable();
        let limit = options.exhaustive_limit;
        let (order, worst, method) = if count(&search, exchangeable, limit).is_some() {
            let all = exhaustive(&search, &self.given, exchangeable);
            (all.best, all.worst, Method::Exhaustive { orders: all.orders })
        } else {
            let found = local(&mut search, &self.given, options.seed);
            let method = Method::LocalSearch {
                starts: found.starts,
                accepted: found.accepted,
                computed: search.exact,
                bounded: search.bounded,
            };
            let mut order = found.best.order;
            if exchangeable {
                order = self.renumbered(&order);
            }
            let kinds: Vec<u32> =
                order[..self.cells()].iter().map(|&w| self.types[w as usize]).collect();
            (settled(&self.types, &kinds, &self.given), found.worst.order, method)
        };
        let wanted = search.state(order.clone()).score;
        let few = moves(&mut search, &self.given, wanted);
        // As good with fewer changes.
        let order = if few.score.objective <= wanted.objective { few.order } else { order };
        let order = match method {
            Method::Exhaustive { .. } => order,
            Method::LocalSearch { .. } => self.refined(&search, order, options)?,
        };
        let mut kernel = self.kernel(options)?;
        let before = kernel.step_s(&self.cell_factors(&self.given))?;
        let after = kernel.step_s(&self.cell_factors(&order))?;
        let paired =
            Paired::new(options.objective, &[&before, &after], options.confidence, options.seed);
        let mut solved =
            Solved { order: self.given.clone(), worst, method, search_samples, moves: Vec::new() };
        if paired.ratio(0, 1)?.above_one() {
            solved.moves = few.swaps;
            solved.order = order;
        }
        Ok(solved)
    }

    /// The same order with replicas numbered so that many workers stay where they are.
    fn renumbered(&self, order: &[u32]) -> Vec<u32> {
        let (replicas, stages) = (self.nominal.replicas(), self.nominal.stages());
        let part = |list: &[u32], r: usize| list[r * stages..(r + 1) * stages].to_vec();
        let mut home = vec![usize::MAX; self.given.len()];
        for (position, &worker) in self.given[..self.cells()].iter().enumerate() {
            home[worker as usize] = position;
        }
        let mut overlaps = Vec::new();
        for new in 0..replicas {
            let mut stay = vec![0_usize; replicas];
            for (s, &worker) in part(order, new).iter().enumerate() {
                let at = home[worker as usize];
                if at != usize::MAX && at % stages == s {
                    stay[at / stages] += 1;
                }
            }
            overlaps.extend(stay.iter().enumerate().map(|(old, &n)| (n, new, old)));
        }
        overlaps.sort_by_key(|&(n, new, old)| (std::cmp::Reverse(n), new, old));
        let (mut number, mut taken) = (vec![usize::MAX; replicas], vec![false; replicas]);
        for (_, new, old) in overlaps {
            if number[new] == usize::MAX && !taken[old] {
                (number[new], taken[old]) = (old, true);
            }
        }
        let mut out = order.to_vec();
        for (new, &old) in number.iter().enumerate() {
            out[old * stages..(old + 1) * stages].copy_from_slice(&part(order, new));
        }
        out
    }

    /// A random order that keeps the constraint: workers of each label shuffled among the positions
    /// that the given order has for it.
    pub(super) fn shuffled(&self, seed: u64, n: u64) -> Vec<u32> {
        let label = |w: u32| self.labels.as_ref().map_or(0, |l| l[w as usize]);
        let mut out = self.given.clone();
        let stream = Stream::new(seed, Key::new("place-random").with(n));
        for last in (1..out.len()).rev() {
            let kind = label(out[last]);
            let below: Vec<usize> = (0..=last).filter(|&p| label(out[p]) == kind).collect();
            let chosen = below[row(stream.word(last as u32), below.len() as u32) as usize];
            out.swap(last, chosen);
        }
        out
    }
}
