//! An event simulator of a pipeline that knows no graph: every stage works off its list, messages
//! travel in a queue ordered by time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

/// What a stage does: 'F' forward, 'B' whole backward, 'I' its input part, 'W' its weights' part.
pub(crate) type What = char;

/// A pass of a stage: what, chunk, microbatch, and whether it is the first half of a block that the
/// next entry completes.
pub(crate) type Entry = (What, u16, u32, bool);

/// A pipeline to simulate.
pub(crate) struct Pipeline<'a> {
    /// Every stage's list.
    pub(crate) orders: Vec<Vec<Entry>>,
    /// Which way microbatches take: (stage, chunk) from the model's first piece to its last.
    pub(crate) paths: Vec<Vec<(u16, u16)>>,
    /// Whether a sender waits for its transfers.
    pub(crate) blocking: bool,
    /// Time of a pass.
    pub(crate) pass: &'a dyn Fn(What, u16, u16, u32) -> f64,
    /// Time of a transfer that leaves a stage's chunk: direction ('F' or 'B'), stage, chunk,
    /// microbatch.
    pub(crate) transfer: &'a dyn Fn(What, u16, u16, u32) -> f64,
}

/// When a stage began and ended.
pub(crate) type Span = (f64, f64);

struct State {
    at: usize,
    free: f64,
    first: f64,
    /// Activations ('F') and gradients ('B') that have come in: (direction, chunk, microbatch).
    have: BTreeSet<(What, u16, u32)>,
    done: BTreeSet<(What, u16, u32)>,
    links: BTreeMap<(What, u16), f64>,
}

/// Time, stage and message: a message comes in, or without one the stage becomes free.
type Event = (u64, u16, Option<(What, u16, u32)>);

/// Non-negative seconds, ordered as bits.
fn bits(time: f64) -> u64 {
    assert!(time >= 0.0);
    time.to_bits()
}

impl Pipeline<'_> {
    fn neighbour(&self, stage: u16, chunk: u16, forward: bool) -> Option<(u16, u16)> {
        let path = self.paths.iter().find(|path| path.contains(&(stage, chunk))).unwrap();
        let at = path.iter().position(|&place| place == (stage, chunk)).unwrap();
        let to = if forward { at + 1 } else { at.checked_sub(1)? };
        path.get(to).copied()
    }

    /// Whether a stage has what a pass needs.
    fn ready(&self, state: &State, stage: u16, (what, chunk, mb, _): Entry) -> bool {
        match what {
            'F' => {
                self.neighbour(stage, chunk, false).is_none()
                    || state.have.contains(&('F', chunk, mb))
            }
            'W' => state.done.contains(&('I', chunk, mb)),
            _ => {
                state.done.contains(&('F', chunk, mb))
                    && (self.neighbour(stage, chunk, true).is_none()
                        || state.have.contains(&('B', chunk, mb)))
            }
        }
    }

    /// Runs the pipeline; every stage's span.
    pub(crate) fn run(&self) -> Vec<Span> {
        let mut states: Vec<State> = self
            .orders
            .iter()
            .map(|_| State {
                at: 0,
                free: 0.0,
                first: f64::INFINITY,
                have: BTreeSet::new(),
                done: BTreeSet::new(),
                links: BTreeMap::new(),
            })
            .collect();
        let mut queue: BinaryHeap<Reverse<Event>> =
            (0..self.orders.len() as u16).map(|s| Reverse((0, s, None))).collect();
        while let Some(Reverse((time, stage, message))) = queue.pop() {
            let now = f64::from_bits(time);
            let state = &mut states[usize::from(stage)];
            state.have.extend(message);
            let order = &self.orders[usize::from(stage)];
            if state.free > now || state.at >= order.len() {
                continue;
            }
            let block: Vec<Entry> = order[state.at..]
                .iter()
                .take(1 + usize::from(order[state.at].3))
                .copied()
                .collect();
            if !block.iter().all(|&entry| self.ready(state, stage, entry)) {
                continue;
            }
            state.at += block.len();
            state.first = state.first.min(now);
            let end = block
                .iter()
                .fold(now, |t, &(what, chunk, mb, _)| t + (self.pass)(what, stage, chunk, mb));
            state.free = end;
            for (what, chunk, mb, _) in block {
                assert!(state.done.insert((what, chunk, mb)), "twice");
                if what == 'W' {
                    continue;
                }
                let direction = if what == 'F' { 'F' } else { 'B' };
                let Some((to, peer)) = self.neighbour(stage, chunk, what == 'F') else { continue };
                if to == stage {
                    queue.push(Reverse((bits(end), stage, Some((direction, peer, mb)))));
                    continue;
                }
                let link = state.links.entry((direction, to)).or_insert(0.0);
                *link = link.max(end) + (self.transfer)(direction, stage, chunk, mb);
                queue.push(Reverse((bits(*link), to, Some((direction, peer, mb)))));
                if self.blocking && state.at < order.len() {
                    state.free = state.free.max(*link);
                }
            }
            queue.push(Reverse((bits(state.free), stage, None)));
        }
        for (state, order) in states.iter().zip(&self.orders) {
            assert_eq!(state.at, order.len(), "a stage waits for ever: {:?}", order[state.at]);
        }
        states.iter().map(|s| (s.first, s.free)).collect()
    }
}
