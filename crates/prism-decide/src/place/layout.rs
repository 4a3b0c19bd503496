//! A replica's own part of a step as a straight list of maxima and sums.

use prism_graph::{Event, StepGraph};
use prism_model::DurationModel;

use super::region::{Part, Regions};

/// Something an operation waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Term {
    /// A time computed before.
    Slot(u32),
    /// A time, or an amount, that is the same whoever works where: a row of the replica's data.
    Row(u32),
}

/// One computed time.
#[derive(Clone, Copy, Debug)]
pub(super) enum Node {
    /// The latest of some terms (0 of none), plus a delay; then the latest of it and lagged terms.
    Latest { terms: (u32, u32), delay: Option<u32>, lagged: (u32, u32) },
    /// A time plus a row.
    Plus { on: Term, row: u32 },
    /// A time plus a row times the factor of a stage.
    Compute { on: Term, row: u32, stage: u32 },
}

/// What a row of a replica's data holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Row {
    /// Own work of an operation.
    Work(u32),
    /// Its launch delay: index into the model's list.
    Delay(usize),
    /// Lag of an implied dependency: index into the model's list.
    Lag(usize),
    /// When an operation is ready; it lies before any compute.
    Ready(u32),
    /// When it ends; it lies before any compute.
    End(u32),
    /// The longest time from an operation's being ready to the step's end.
    TailOfReady(u32),
    /// The longest time from an operation's end to the step's end, through operations after a meeting
    /// of replicas.
    TailOfEnd(u32),
}

/// The straight list.
#[derive(Clone, Debug, Default)]
pub(super) struct Layout {
    pub(super) nodes: Vec<Node>,
    pub(super) terms: Vec<Term>,
    /// Terms with a lag's row.
    pub(super) lagged: Vec<(Term, u32)>,
    pub(super) rows: Vec<Row>,
    /// Where the own part ends: a time, and the row of its tail; none at the step's end.
    pub(super) exits: Vec<(Term, Option<u32>)>,
    pub(super) stages: usize,
}

/// A layout under construction.
struct Building<'a> {
    graph: &'a StepGraph,
    regions: &'a Regions,
    /// Index into the model's launch delays, by operation.
    delay: Vec<Option<usize>>,
    model: &'a DurationModel,
    delays: bool,
    ready: Vec<Option<Term>>,
    end: Vec<Option<Term>>,
    out: Layout,
}

impl Layout {
    pub(super) fn new(
        graph: &StepGraph,
        model: &DurationModel,
        regions: &Regions,
        delays: bool,
    ) -> Layout {
        let n = graph.ops().len();
        let mut delay = vec![None; n];
        for (i, v) in model.launch_delay.iter().enumerate().filter(|_| delays) {
            if let Some(slot) = delay.get_mut(v.op as usize) {
                *slot = Some(i);
            }
        }
        let out = Layout { stages: usize::from(graph.stages()), ..Layout::default() };
        let (ready, end) = (vec![None; n], vec![None; n]);
        let mut building = Building { graph, regions, delay, model, delays, ready, end, out };
        for &event in graph.order() {
            match event {
                Event::Start(id) => building.start(id.0 as usize),
                Event::Group(id) => building.group(id.0 as usize),
            }
        }
        building.ends();
        building.out
    }
}

impl Building<'_> {
    fn row(&mut self, row: Row) -> u32 {
        self.out.rows.push(row);
        self.out.rows.len() as u32 - 1
    }

    fn node(&mut self, node: Node) -> Term {
        self.out.nodes.push(node);
        Term::Slot(self.out.nodes.len() as u32 - 1)
    }

    /// The end of an operation that is not after a meeting.
    fn end_of(&mut self, op: usize) -> Term {
        if let Some(term) = self.end[op] {
            return term;
        }
        let term = Term::Row(self.row(Row::End(op as u32)));
        self.end[op] = Some(term);
        term
    }

    fn ready_of(&mut self, op: usize) -> Term {
        if let Some(term) = self.ready[op] {
            return term;
        }
        let term = Term::Row(self.row(Row::Ready(op as u32)));
        self.ready[op] = Some(term);
        term
    }

    fn start(&mut self, op: usize) {
        match self.regions.ready[op] {
            Part::After => return self.exits_into(op),
            Part::Own => self.ready[op] = Some(self.latest(op)),
            Part::Before => {}
        }
        if self.graph.group_of(prism_graph::OpId(op as u32)).is_none()
            && self.regions.end[op] == Part::Own
        {
            let on = self.ready_of(op);
            let row = self.row(Row::Work(op as u32));
            let kind = &self.graph.ops()[op];
            let node = if kind.kind.is_microbatch_compute() {
                Node::Compute { on, row, stage: u32::from(kind.stage) }
            } else {
                Node::Plus { on, row }
            };
            self.end[op] = Some(self.node(node));
        }
    }

    /// When an operation is ready.
    fn latest(&mut self, op: usize) -> Term {
        let waits: Vec<Term> =
            self.regions.deps[op].clone().iter().map(|&d| self.end_of(d as usize)).collect();
        let first = self.out.terms.len() as u32;
        self.out.terms.extend(waits);
        let terms = (first, self.out.terms.len() as u32);
        let delay = self.delay[op].map(|i| self.row(Row::Delay(i)));
        let first = self.out.lagged.len() as u32;
        if self.delays {
            for i in self.regions.implied[op].clone() {
                let on = self.end_of(self.model.implied[i].on as usize);
                let lag = self.row(Row::Lag(i));
                self.out.lagged.push((on, lag));
            }
        }
        let lagged = (first, self.out.lagged.len() as u32);
        self.node(Node::Latest { terms, delay, lagged })
    }

    fn group(&mut self, id: usize) {
        let group = &self.graph.groups()[id];
        let part = group.members.first().map_or(Part::Before, |m| self.regions.end[m.0 as usize]);
        let members = group.members.iter().map(|m| m.0 as usize);
        match part {
            Part::Before => {}
            Part::Own => {
                let first = self.out.terms.len() as u32;
                let starts: Vec<Term> = members.clone().map(|m| self.ready_of(m)).collect();
                self.out.terms.extend(starts);
                let terms = (first, self.out.terms.len() as u32);
                let together = self.node(Node::Latest { terms, delay: None, lagged: (0, 0) });
                for m in members {
                    let row = self.row(Row::Work(m as u32));
                    self.end[m] = Some(self.node(Node::Plus { on: together, row }));
                }
            }
            Part::After => {
                for m in members {
                    if self.regions.ready[m] != Part::After {
                        let time = self.ready_of(m);
                        let tail = self.row(Row::TailOfReady(m as u32));
                        self.out.exits.push((time, Some(tail)));
                    }
                }
            }
        }
    }

    /// What is the replica's own and waited for by an operation after a meeting.
    fn exits_into(&mut self, op: usize) {
        let regions = self.regions;
        let waits = regions.deps[op].iter().map(|&d| d as usize);
        let implied = regions.implied[op].iter().map(|&i| self.model.implied[i].on as usize);
        for on in waits.chain(implied).collect::<Vec<_>>() {
            let tail = Row::TailOfEnd(on as u32);
            if regions.end[on] != Part::After && !self.out.rows.contains(&tail) {
                let time = self.end_of(on);
                let tail = self.row(tail);
                self.out.exits.push((time, Some(tail)));
            }
        }
    }

    /// Ends of the step itself.
    fn ends(&mut self) {
        for sink in self.graph.sinks() {
            let at = sink.0 as usize;
            if self.regions.end[at] != Part::After {
                let time = self.end_of(at);
                self.out.exits.push((time, None));
            }
        }
    }
}
