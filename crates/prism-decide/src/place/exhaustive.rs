//! All orders of a small plan.

use std::collections::BTreeMap;

use super::evaluate::Scratch;
use super::search::{Score, Search};

/// Best and worst of all distinct orders.
pub(super) struct All {
    pub(super) best: Vec<u32>,
    pub(super) worst: Vec<u32>,
    pub(super) orders: u64,
}

/// Walks distinct orders: workers of one type are one; if replicas are exchangeable, orders that differ
/// in their numbering are one too.
struct Walk<'v> {
    stages: usize,
    cells: usize,
    exchangeable: bool,
    /// Workers left of each type.
    left: Vec<usize>,
    /// Label of each type.
    label: Vec<u32>,
    types: Vec<u32>,
    /// Nodes that may still be entered.
    nodes: u64,
    visit: &'v mut dyn FnMut(&[u32]) -> bool,
}

impl Walk<'_> {
    /// Returns `false` when the visitor has had enough.
    fn go(&mut self) -> bool {
        let at = self.types.len();
        if self.nodes == 0 {
            return false;
        }
        self.nodes -= 1;
        if at >= self.stages && at.is_multiple_of(self.stages) && !self.ascending(at) {
            return true;
        }
        if at == self.cells {
            return (self.visit)(&self.types);
        }
        let first = at / self.stages * self.stages;
        for kind in 0..self.left.len() {
            let foreign = at > first && self.label[kind] != self.label[self.types[first] as usize];
            if self.left[kind] == 0 || foreign {
                continue;
            }
            self.left[kind] -= 1;
            self.types.push(kind as u32);
            let more = self.go();
            self.types.pop();
            self.left[kind] += 1;
            if !more {
                return false;
            }
        }
        true
    }

    /// Whether the last whole replica does not come before the one before it.
    fn ascending(&self, at: usize) -> bool {
        let s = self.stages;
        !self.exchangeable || at < 2 * s || self.types[at - s..] >= self.types[at - 2 * s..at - s]
    }
}

/// Visits all distinct orders, or returns `false` if there was no end to them.
fn walk(
    search: &Search<'_>,
    exchangeable: bool,
    nodes: u64,
    visit: &mut dyn FnMut(&[u32]) -> bool,
) -> bool {
    let kinds = search.types.iter().max().map_or(0, |t| *t as usize + 1);
    let (mut left, mut label) = (vec![0; kinds], vec![0; kinds]);
    for (w, &kind) in search.types.iter().enumerate() {
        left[kind as usize] += 1;
        label[kind as usize] = search.labels.map_or(0, |l| l[w]);
    }
    let (stages, cells) = (search.stages, search.cells());
    Walk { stages, cells, exchangeable, left, label, types: Vec::new(), nodes, visit }.go()
}

/// Number of distinct orders, `None` if above the limit.
pub(super) fn count(search: &Search<'_>, exchangeable: bool, limit: u64) -> Option<u64> {
    let mut n = 0_u64;
    let ended = walk(search, exchangeable, limit.saturating_mul(64), &mut |_| {
        n += 1;
        n <= limit
    });
    ended.then_some(n)
}

/// Computes every distinct order on the sampled steps.
pub(super) fn exhaustive(search: &Search<'_>, given: &[u32], exchangeable: bool) -> All {
    let mut factor = vec![1.0; search.types.iter().max().map_or(0, |t| *t as usize + 1)];
    for (w, &kind) in search.types.iter().enumerate() {
        factor[kind as usize] = search.factors[w];
    }
    let mut known: BTreeMap<(usize, Vec<u32>), Vec<f64>> = BTreeMap::new();
    let mut scratch = Scratch::default();
    let mut steps = vec![0.0; search.sampled.samples];
    let (mut best, mut worst) = ((Score::WORST, Vec::new()), (f64::NEG_INFINITY, Vec::new()));
    let mut orders = 0;
    walk(search, exchangeable, u64::MAX, &mut |types| {
        steps.fill(f64::NEG_INFINITY);
        for (r, own) in types.chunks(search.stages).enumerate() {
            let times = known.entry((r, own.to_vec())).or_insert_with(|| {
                let factors: Vec<f64> = own.iter().map(|&t| factor[t as usize]).collect();
                search.sampled.replica(r, &factors, &mut scratch).time_s
            });
            for (s, &t) in steps.iter_mut().zip(times.iter()) {
                *s = s.max(t);
            }
        }
        let score = Score::of(search.objective, &mut steps);
        if orders == 0 || score.beats(best.0, 1e-12) {
            best = (score, types.to_vec());
        }
        if score.objective > worst.0 {
            worst = (score.objective, types.to_vec());
        }
        orders += 1;
        true
    });
    let order = |types: &[u32]| settled(search.types, types, given);
    All { best: order(&best.1), worst: order(&worst.1), orders }
}

/// Workers for cells of which only the type is known: whoever is there already stays if of the type,
/// the others come in the given order; who is left is spare.
pub(super) fn settled(type_of: &[u32], cells: &[u32], given: &[u32]) -> Vec<u32> {
    let mut free: BTreeMap<u32, std::collections::VecDeque<u32>> = BTreeMap::new();
    let mut order = vec![u32::MAX; given.len()];
    for (position, &worker) in given.iter().enumerate() {
        let kind = type_of[worker as usize];
        if cells.get(position) == Some(&kind) {
            order[position] = worker;
        } else {
            free.entry(kind).or_default().push_back(worker);
        }
    }
    for (slot, kind) in order.iter_mut().zip(cells).filter(|(s, _)| **s == u32::MAX) {
        if let Some(worker) = free.get_mut(kind).and_then(std::collections::VecDeque::pop_front) {
            *slot = worker;
        }
    }
    let mut rest: Vec<u32> = free.into_values().flatten().collect();
    let rank = |w: &u32| given.iter().position(|g| g == w);
    rest.sort_by_key(rank);
    let spares = order.iter_mut().filter(|s| **s == u32::MAX);
    for (slot, worker) in spares.zip(rest) {
        *slot = worker;
    }
    order
}
