//! A topological order of a graph's events, or the circle that forbids one.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};

use petgraph::Direction;
use petgraph::algo::tarjan_scc;
use petgraph::graph::{DiGraph, NodeIndex};
use prism_model::OpKind;

use crate::{Event, GraphError, Group, GroupId, Op, OpId};

/// The parts of a graph that decide its order.
pub(crate) struct Wiring<'a> {
    pub(crate) ops: &'a [Op],
    pub(crate) dep_offsets: &'a [u32],
    pub(crate) deps: &'a [OpId],
    pub(crate) groups: &'a [Group],
    pub(crate) group_of: &'a [Option<GroupId>],
}

impl Wiring<'_> {
    fn deps(&self, op: usize) -> &[OpId] {
        &self.deps[self.dep_offsets[op] as usize..self.dep_offsets[op + 1] as usize]
    }

    /// For every operation, those that depend on it.
    fn successors(&self) -> Vec<Vec<u32>> {
        let mut successors = vec![Vec::new(); self.ops.len()];
        for op in 0..self.ops.len() {
            for before in self.deps(op) {
                successors[before.0 as usize].push(op as u32);
            }
        }
        successors
    }
}

/// An operation that may start, the one with the earliest hint first.
#[derive(PartialEq)]
struct Ready {
    hint: f64,
    op: u32,
}

impl Eq for Ready {}

impl PartialOrd for Ready {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ready {
    fn cmp(&self, other: &Self) -> Ordering {
        self.hint.total_cmp(&other.hint).then(self.op.cmp(&other.op))
    }
}

/// A topological order that follows `hints` (start times; not finite: unknown, then all hints are
/// replaced by longest paths). The same for the same input, whatever the platform.
///
/// # Errors
/// [`GraphError::Cycle`].
pub(crate) fn levelise(wiring: &Wiring<'_>, hints: &[f64]) -> Result<Vec<Event>, GraphError> {
    if hints.iter().all(|h| h.is_finite()) {
        return kahn(wiring, hints);
    }
    let any = kahn(wiring, &vec![0.0; wiring.ops.len()])?;
    kahn(wiring, &typical_starts(wiring, &any))
}

fn kahn(wiring: &Wiring<'_>, hints: &[f64]) -> Result<Vec<Event>, GraphError> {
    let n = wiring.ops.len();
    let successors = wiring.successors();
    let mut waits: Vec<u32> = (0..n).map(|op| wiring.deps(op).len() as u32).collect();
    let mut absent: Vec<u32> = wiring.groups.iter().map(|g| g.members.len() as u32).collect();
    let mut order = Vec::with_capacity(n + wiring.groups.len());
    let ready = |op: u32| Reverse(Ready { hint: hints[op as usize], op });
    let mut heap: BinaryHeap<_> =
        (0..n as u32).filter(|&op| waits[op as usize] == 0).map(ready).collect();
    while let Some(Reverse(Ready { op, .. })) = heap.pop() {
        let id = OpId(op);
        order.push(Event::Start(id));
        let single = [id];
        let ended: &[OpId] = match wiring.group_of[op as usize] {
            None => &single,
            Some(group) => {
                let left = &mut absent[group.0 as usize];
                *left -= 1;
                if *left > 0 {
                    continue;
                }
                order.push(Event::Group(group));
                &wiring.groups[group.0 as usize].members
            }
        };
        for &next in ended.iter().flat_map(|e| &successors[e.0 as usize]) {
            waits[next as usize] -= 1;
            if waits[next as usize] == 0 {
                heap.push(ready(next));
            }
        }
    }
    if order.len() == n + wiring.groups.len() {
        Ok(order)
    } else {
        Err(GraphError::Cycle { ops: circle(wiring, &order) })
    }
}

/// Start times with a forward pass of 1, a backward pass of 2, and short everything else.
fn typical_starts(wiring: &Wiring<'_>, order: &[Event]) -> Vec<f64> {
    let work = |op: usize| match wiring.ops[op].kind {
        OpKind::ForwardCompute | OpKind::BackwardWeight => 1.0,
        OpKind::BackwardCompute => 2.0,
        _ => 0.02,
    };
    let mut start = vec![0.0_f64; wiring.ops.len()];
    let mut end = vec![0.0_f64; wiring.ops.len()];
    for &event in order {
        match event {
            Event::Start(id) => {
                let op = id.0 as usize;
                start[op] = wiring.deps(op).iter().map(|d| end[d.0 as usize]).fold(0.0, f64::max);
                end[op] = start[op] + work(op);
            }
            Event::Group(group) => {
                let members = &wiring.groups[group.0 as usize].members;
                let together = members.iter().map(|m| start[m.0 as usize]).fold(0.0, f64::max);
                for m in members {
                    end[m.0 as usize] = together + work(m.0 as usize);
                }
            }
        }
    }
    start
}

/// The operations of a shortest circle through the first operation that lies on any.
fn circle(wiring: &Wiring<'_>, done: &[Event]) -> Vec<Op> {
    let graph = waiting(wiring, done);
    let on_circle = tarjan_scc(&graph)
        .into_iter()
        .filter(|component| component.len() > 1)
        .flatten()
        .min_by_key(|node| match graph[*node] {
            Event::Start(op) => op.0,
            Event::Group(_) => u32::MAX,
        });
    let Some(first) = on_circle else { return Vec::new() };
    let path = shortest_circle(&graph, first);
    name_path(wiring, &path.iter().map(|&node| graph[node]).collect::<Vec<_>>())
}

/// The events that never happened, with an edge from each to those that wait for it.
fn waiting(wiring: &Wiring<'_>, done: &[Event]) -> DiGraph<Event, ()> {
    let n = wiring.ops.len();
    let mut happened = vec![false; n + wiring.groups.len()];
    for &event in done {
        happened[slot(n, event)] = true;
    }
    let mut graph = DiGraph::new();
    let starts = (0..n as u32).map(|i| Event::Start(OpId(i)));
    let groups = (0..wiring.groups.len() as u32).map(|i| Event::Group(GroupId(i)));
    let nodes: Vec<Option<NodeIndex>> = starts
        .chain(groups)
        .map(|event| (!happened[slot(n, event)]).then(|| graph.add_node(event)))
        .collect();
    let mut edge = |from: Event, to: Event| {
        if let (Some(a), Some(b)) = (nodes[slot(n, from)], nodes[slot(n, to)]) {
            graph.update_edge(a, b, ());
        }
    };
    for op in 0..n {
        let start = Event::Start(OpId(op as u32));
        for before in wiring.deps(op) {
            let end =
                wiring.group_of[before.0 as usize].map_or(Event::Start(*before), Event::Group);
            edge(end, start);
        }
        if let Some(group) = wiring.group_of[op] {
            edge(start, Event::Group(group));
        }
    }
    graph
}

fn slot(ops: usize, event: Event) -> usize {
    match event {
        Event::Start(op) => op.0 as usize,
        Event::Group(group) => ops + group.0 as usize,
    }
}

/// Breadth-first search from `first` back to itself.
fn shortest_circle(graph: &DiGraph<Event, ()>, first: NodeIndex) -> Vec<NodeIndex> {
    let mut from: Vec<Option<NodeIndex>> = vec![None; graph.node_count()];
    let mut queue = VecDeque::from([first]);
    while let Some(node) = queue.pop_front() {
        let mut next: Vec<_> = graph.neighbors_directed(node, Direction::Outgoing).collect();
        next.sort_unstable();
        for to in next {
            if to == first {
                let mut path = vec![node];
                while let Some(&last) = path.last()
                    && last != first
                    && let Some(previous) = from[last.index()]
                {
                    path.push(previous);
                }
                path.reverse();
                return path;
            }
            if from[to.index()].is_none() {
                from[to.index()] = Some(node);
                queue.push_back(to);
            }
        }
    }
    vec![first]
}

/// Operations of a circle of events: a group appears as the member that is waited for.
fn name_path(wiring: &Wiring<'_>, events: &[Event]) -> Vec<Op> {
    let mut ids: Vec<OpId> = Vec::new();
    for (i, &event) in events.iter().enumerate() {
        match event {
            Event::Start(op) => ids.push(op),
            Event::Group(group) => {
                let Event::Start(next) = events[(i + 1) % events.len()] else { continue };
                let waited = wiring
                    .deps(next.0 as usize)
                    .iter()
                    .find(|d| wiring.group_of[d.0 as usize] == Some(group));
                if let Some(&member) = waited
                    && ids.last() != Some(&member)
                {
                    ids.push(member);
                }
            }
        }
    }
    if ids.len() > 1 && ids.first() == ids.last() {
        ids.pop();
    }
    ids.iter().map(|id| wiring.ops[id.0 as usize].clone()).collect()
}
