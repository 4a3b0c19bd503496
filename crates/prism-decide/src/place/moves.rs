//! From the given order to the found one, what gives most first.

use super::search::{Search, State, Swap};

/// Most moves that are listed.
const LISTED: usize = 10;
/// Share of the whole gain after which no more are listed.
const ENOUGH: f64 = 0.98;

/// Swaps of positions that lead from one order to another, greedily by what they give on the sampled
/// steps; at most [`LISTED`], and how many workers still move after them.
pub(super) fn moves(search: &mut Search<'_>, given: &[u32], wanted: &[u32]) -> (Vec<Swap>, usize) {
    let mut state = search.state(given.to_vec());
    let start = state.score.objective;
    let end = search.state(wanted.to_vec()).score.objective;
    let mut out = Vec::new();
    while out.len() < LISTED {
        let changes = misplaced(search, &state, wanted);
        if changes.is_empty() || start - state.score.objective >= ENOUGH * (start - end) {
            break;
        }
        // A move that costs is taken too if none gains: a later one needs it.
        let limit = super::search::Score::WORST;
        let Some((at, next)) = search.best(&state, &changes, limit, 0.0) else { break };
        out.extend(&changes[at]);
        state = next;
    }
    let more = misplaced(search, &state, wanted).len();
    (out, more)
}

/// For every cell with another worker than wanted: the swap that brings the right one.
fn misplaced(search: &Search<'_>, state: &State, wanted: &[u32]) -> Vec<Vec<Swap>> {
    let mut at = vec![0; wanted.len()];
    for (position, &worker) in state.order.iter().enumerate() {
        at[worker as usize] = position;
    }
    (0..search.cells())
        .filter(|&c| state.order[c] != wanted[c])
        .map(|c| vec![(c, at[wanted[c] as usize])])
        .collect()
}
