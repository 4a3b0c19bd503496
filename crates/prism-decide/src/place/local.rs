//! Local search from several starts.

use prism_stats::counter::{Key, Stream, row};

use super::search::{Search, State, Swap};

/// Changes bounded at once; results do not depend on threads, so it is fixed.
const BATCH: usize = 512;
/// Cells of a larger plan from which changes start, most critical first.
const CELLS_OF_MANY: usize = 48;
/// Changes bounded in all for a larger plan.
const BUDGET: u64 = 150_000;
/// Restarts of a small plan, from its best order disturbed.
const RESTARTS: u64 = 24;
/// Least relative gain of a change: none to speak of in a small plan, one above rounding in a large.
const LEAST: (f64, f64) = (1e-12, 1e-6);

/// What a search found.
pub(super) struct Found {
    pub(super) best: State,
    /// The worst order that was met.
    pub(super) worst: State,
    pub(super) starts: usize,
    pub(super) accepted: u64,
}

/// Searches from the order as given, from constructed orders and, where the plan is small, from
/// disturbed ones.
pub(super) fn local(search: &mut Search<'_>, given: &[u32], seed: u64) -> Found {
    let mut orders = vec![given.to_vec()];
    orders.extend([slow_together(search, given), slow_by_stage(search, given)]);
    let mut states: Vec<State> = orders.into_iter().map(|o| search.state(o)).collect();
    let spread = search.state(slow_apart(search, given));
    let worst = worst_of(&spread, &states);
    let starts = states.len();
    let mut accepted = 0;
    let small = search.small();
    if !small {
        // The first of equals stays first.
        states.sort_by(|a, b| a.score.objective.total_cmp(&b.score.objective));
        states.truncate(1);
    }
    let mut best: Option<State> = None;
    for state in states {
        let found = descend(search, state, small, &mut accepted);
        if best.as_ref().is_none_or(|b| found.score.beats(b.score, 0.0)) {
            best = Some(found);
        }
    }
    let mut best = best.unwrap_or(spread);
    for restart in 0..if small { RESTARTS } else { 0 } {
        let order = disturbed(search, &best.order, seed, restart);
        let state = search.state(order);
        let found = descend(search, state, small, &mut accepted);
        if found.score.beats(best.score, LEAST.0) {
            best = found;
        }
    }
    Found { best, worst, starts, accepted }
}

fn worst_of(first: &State, others: &[State]) -> State {
    let mut worst = first;
    for state in others {
        if state.score.objective > worst.score.objective {
            worst = state;
        }
    }
    worst.clone()
}

/// Swaps until none helps.
fn descend(search: &mut Search<'_>, start: State, small: bool, accepted: &mut u64) -> State {
    let least = if small { LEAST.0 } else { LEAST.1 };
    let mut state = start;
    'again: loop {
        let mut cells = search.critical(&state);
        if !small {
            cells.truncate(CELLS_OF_MANY);
        }
        for cell in cells {
            for batch in changes(search, &state, cell).chunks(BATCH) {
                if !small && search.bounded > BUDGET {
                    return state;
                }
                if let Some((_, next)) = search.best(&state, batch, state.score, least) {
                    state = next;
                    *accepted += 1;
                    continue 'again;
                }
            }
        }
        return state;
    }
}

/// Changes that could relieve a cell: its worker for a faster one of another replica or a spare, for
/// any of its own replica, or all of the replica's for spares of another label.
pub(super) fn changes(search: &Search<'_>, state: &State, cell: usize) -> Vec<Vec<Swap>> {
    let order = &state.order;
    let worker = order[cell] as usize;
    let replica = cell / search.stages;
    let own = replica * search.stages..(replica + 1) * search.stages;
    let helps = |b: usize| {
        let other = order[b] as usize;
        b != cell
            && search.types[other] != search.types[worker]
            && (own.contains(&b) || search.factors[other] < search.factors[worker])
            && search.allowed(order, (cell, b))
    };
    let mut partners: Vec<usize> = (0..order.len()).filter(|&b| helps(b)).collect();
    // A slow worker costs least where others are slow: those replicas come first, spares before all.
    let slowest: Vec<f64> = (0..search.replicas)
        .map(|r| search.factors_of(order, r).into_iter().fold(0.0, f64::max))
        .collect();
    let rank = |b: usize| slowest.get(b / search.stages).copied().unwrap_or(f64::INFINITY);
    partners.sort_by(|&a, &b| rank(b).total_cmp(&rank(a)).then(a.cmp(&b)));
    let mut out: Vec<Vec<Swap>> = partners.into_iter().map(|b| vec![(cell, b)]).collect();
    out.extend(refills(search, order, replica));
    out.extend(exchanges(search, order, replica));
    out
}

/// A replica's workers for those of a replica of another label: single swaps cannot do it.
fn exchanges<'o>(
    search: &'o Search<'_>,
    order: &'o [u32],
    replica: usize,
) -> impl Iterator<Item = Vec<Swap>> + 'o {
    let stages = search.stages;
    let label = move |r: usize| search.labels.map_or(0, |l| l[order[r * stages] as usize]);
    let others = (0..search.replicas).filter(move |&r| label(r) != label(replica));
    others.map(move |r| (0..stages).map(|s| (replica * stages + s, r * stages + s)).collect())
}

/// A replica's workers all replaced by the fastest spares of another label, slow ones where they matter
/// least.
fn refills(search: &Search<'_>, order: &[u32], replica: usize) -> Vec<Vec<Swap>> {
    let Some(labels) = search.labels else { return Vec::new() };
    let own = labels[order[replica * search.stages] as usize];
    let spares = search.cells()..order.len();
    let mut kinds: Vec<u32> = spares.clone().map(|p| labels[order[p] as usize]).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let by_weight = stages_by_weight(search);
    let mut out = Vec::new();
    for kind in kinds.into_iter().filter(|k| *k != own) {
        let mut of_kind: Vec<usize> =
            spares.clone().filter(|&p| labels[order[p] as usize] == kind).collect();
        if of_kind.len() < search.stages {
            continue;
        }
        let factor = |p: &usize| search.factors[order[*p] as usize];
        of_kind.sort_by(|a, b| factor(a).total_cmp(&factor(b)).then(a.cmp(b)));
        let chosen = of_kind[..search.stages].iter().rev();
        out.push(
            by_weight.iter().map(|s| replica * search.stages + s).zip(chosen.copied()).collect(),
        );
    }
    out
}

/// Stages, the one that matters least first.
fn stages_by_weight(search: &Search<'_>) -> Vec<usize> {
    let mut stages: Vec<usize> = (0..search.stages).collect();
    stages.sort_by(|&a, &b| search.weight[a].total_cmp(&search.weight[b]).then(a.cmp(&b)));
    stages
}

/// Fills the cells of the given order anew, label by label: `place` gets the label's replicas and its
/// workers by falling factor, as many as cells, and returns worker by (replica, stage).
fn filled(
    search: &Search<'_>,
    given: &[u32],
    place: impl Fn(&[usize], &[u32]) -> Vec<(usize, usize, u32)>,
) -> Vec<u32> {
    let label = |w: u32| search.labels.map_or(0, |l| l[w as usize]);
    let mut kinds: Vec<u32> = given.iter().map(|&w| label(w)).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let mut order = given.to_vec();
    let mut spares = Vec::new();
    for kind in kinds {
        let replicas: Vec<usize> =
            (0..search.replicas).filter(|r| label(given[r * search.stages]) == kind).collect();
        let mut workers: Vec<u32> = given.iter().copied().filter(|&w| label(w) == kind).collect();
        let factor = |w: &u32| search.factors[*w as usize];
        workers.sort_by(|a, b| factor(b).total_cmp(&factor(a)).then(a.cmp(b)));
        let left_out = workers.len() - replicas.len() * search.stages;
        spares.extend(workers.drain(..left_out));
        for (replica, stage, worker) in place(&replicas, &workers) {
            order[replica * search.stages + stage] = worker;
        }
    }
    spares.sort_unstable();
    order.truncate(search.cells());
    order.extend(spares);
    order
}

/// Slow workers in the same replica, the slowest of it in the stage that matters least.
fn slow_together(search: &Search<'_>, given: &[u32]) -> Vec<u32> {
    let stages = stages_by_weight(search);
    filled(search, given, |replicas, workers| {
        let at = |i: usize| (replicas[i / stages.len()], stages[i % stages.len()]);
        workers.iter().enumerate().map(|(i, &w)| (at(i).0, at(i).1, w)).collect()
    })
}

/// The slowest workers in the stage that matters least, and so on; within stages slow ones in the same
/// replica.
fn slow_by_stage(search: &Search<'_>, given: &[u32]) -> Vec<u32> {
    let stages = stages_by_weight(search);
    filled(search, given, |replicas, workers| {
        let n = replicas.len();
        let at = |i: usize| (replicas[i % n], stages[i / n]);
        workers.iter().enumerate().map(|(i, &w)| (at(i).0, at(i).1, w)).collect()
    })
}

/// The slowest workers in different replicas, in the stage that matters most: a bad order.
fn slow_apart(search: &Search<'_>, given: &[u32]) -> Vec<u32> {
    let mut stages = stages_by_weight(search);
    stages.reverse();
    filled(search, given, |replicas, workers| {
        let n = replicas.len();
        let at = |i: usize| (replicas[i % n], stages[i / n]);
        workers.iter().enumerate().map(|(i, &w)| (at(i).0, at(i).1, w)).collect()
    })
}

/// An order after a few random swaps.
fn disturbed(search: &Search<'_>, order: &[u32], seed: u64, restart: u64) -> Vec<u32> {
    let mut out = order.to_vec();
    let stream = Stream::new(seed, Key::new("place-restart").with(restart));
    let mut swaps = 0;
    if search.labels.is_some() && restart % 2 == 1 {
        let chosen = row(stream.word(1 << 20), search.replicas as u32) as usize;
        let exchanges: Vec<Vec<Swap>> = exchanges(search, order, chosen).collect();
        if !exchanges.is_empty() {
            let n = row(stream.word(1 << 21), exchanges.len() as u32) as usize;
            exchanges[n].iter().for_each(|&(a, b)| out.swap(a, b));
        }
    }
    for i in 0..64 {
        let at = |j: u32| row(stream.word(2 * i + j), out.len() as u32) as usize;
        let swap = (at(0), at(1));
        let differ = search.types[out[swap.0] as usize] != search.types[out[swap.1] as usize];
        if differ && search.allowed(&out, swap) {
            out.swap(swap.0, swap.1);
            swaps += 1;
        }
        if swaps == 2 + restart % 4 {
            break;
        }
    }
    out
}
