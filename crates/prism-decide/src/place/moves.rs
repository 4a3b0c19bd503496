//! The few moves that give most.

use super::local::changes;
use super::search::{Score, Search, Swap};

/// Most moves that are listed.
const LISTED: usize = 10;
/// Share of the whole gain after which no more are listed.
const ENOUGH: f64 = 0.98;
/// Critical cells of a larger plan whose swaps are compared for one move.
const CELLS_OF_MANY: usize = 2;

/// Moves from the given order, each the best there is after those before it.
pub(super) struct Moves {
    pub(super) swaps: Vec<Swap>,
    /// Order after all of them, and its worth on the sampled steps.
    pub(super) order: Vec<u32>,
    pub(super) score: Score,
}

/// The best moves from the given order, until they give nearly what the wanted order does.
pub(super) fn moves(search: &mut Search<'_>, given: &[u32], wanted: Score) -> Moves {
    let mut state = search.state(given.to_vec());
    let start = state.score.objective;
    let mut swaps = Vec::new();
    while swaps.len() < LISTED {
        if start - state.score.objective >= ENOUGH * (start - wanted.objective) {
            break;
        }
        let mut cells = search.critical(&state);
        if !search.small() {
            cells.truncate(CELLS_OF_MANY);
        }
        let mut all: Vec<Vec<Swap>> = Vec::new();
        for cell in cells {
            all.extend(changes(search, &state, cell));
        }
        let Some((at, next)) = search.best(&state, &all, state.score, 1e-9) else { break };
        swaps.extend(&all[at]);
        state = next;
    }
    Moves { swaps, order: state.order, score: state.score }
}
