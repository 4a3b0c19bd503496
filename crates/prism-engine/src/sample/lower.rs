//! From nodes to work: what the engine does in one instruction is recognised and fused.
//!
//! The pattern that matters is an operation's end, `max(a, b) + constant · f₁ · f₂ · draw`: with it
//! the draw never leaves the registers. Everything else is one instruction per node.

use prism_stats::Key;

use super::check::Facts;
use super::program::{Binary, Node, Offset, Program, Reduction, Scope};
use super::tape::IndexLaw;

/// Where a fused value comes from.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Source {
    Draw { table: u32, key: Key, scope: Scope },
    Gather { node: u32, pool: u32, index: u32, stride: u32, offset: Offset },
}

impl Source {
    fn of(node: u32, what: &Node) -> Option<Self> {
        match what {
            Node::Draw { table, key, scope } => {
                Some(Source::Draw { table: *table, key: *key, scope: *scope })
            }
            Node::Gather { pool, index, stride, offset } => {
                let (pool, index, stride) = (*pool, *index, *stride);
                Some(Source::Gather { node, pool, index, stride, offset: offset.clone() })
            }
            _ => None,
        }
    }
}

/// What one instruction computes; numbers are node ids.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Work {
    Const,
    ReplicaConst,
    /// `max(start) + scalar · replica_scalar · Π factors · source`.
    Fused {
        source: Source,
        start: Vec<u32>,
        scalar: Option<u32>,
        replica_scalar: Option<u32>,
        factors: Vec<u32>,
    },
    Index {
        law: IndexLaw,
        key: Key,
        scope: Scope,
    },
    MapIndex {
        index: u32,
        map: Vec<u32>,
    },
    Binary(Binary, u32, u32),
    /// `max(a, b) + c`.
    MaxAdd(u32, u32, u32),
    MulAdd(u32, u32, u32),
    Select {
        condition: u32,
        threshold: f32,
        a: u32,
        b: u32,
    },
    Step {
        value: u32,
        threshold: f32,
    },
    Sum(Vec<u32>),
    /// The result of a reduction over blocks of `block` replicas, filled by [`Work`] of `value`.
    Accumulator {
        op: Reduction,
        value: u32,
        block: u32,
    },
    /// A replica's entry of an accumulator.
    LoadBlock {
        accumulator: u32,
        block: u32,
    },
}

impl Work {
    /// Values read by the instruction itself.
    pub(crate) fn operands(&self) -> Vec<u32> {
        match self {
            Work::Const | Work::ReplicaConst | Work::Index { .. } | Work::Accumulator { .. } => {
                Vec::new()
            }
            Work::Fused { source, start, factors, .. } => {
                let index = match source {
                    Source::Draw { .. } => None,
                    Source::Gather { index, .. } => Some(*index),
                };
                start.iter().chain(factors).copied().chain(index).collect()
            }
            Work::MapIndex { index: a, .. } | Work::Step { value: a, .. } => vec![*a],
            Work::Binary(_, a, b) => vec![*a, *b],
            Work::MaxAdd(a, b, c) | Work::MulAdd(a, b, c) => vec![*a, *b, *c],
            Work::Select { condition, a, b, .. } => vec![*condition, *a, *b],
            Work::Sum(values) => values.clone(),
            Work::LoadBlock { accumulator, .. } => vec![*accumulator],
        }
    }

    /// Whether it may wait until a reader needs it, because it ends nothing that others wait for.
    fn movable(&self) -> bool {
        match self {
            Work::Const
            | Work::ReplicaConst
            | Work::Index { .. }
            | Work::MapIndex { .. }
            | Work::Select { .. }
            | Work::Step { .. }
            | Work::LoadBlock { .. }
            | Work::Binary(Binary::Mul, ..) => true,
            Work::Fused { start, .. } => start.is_empty(),
            _ => false,
        }
    }
}

/// A program as instructions without an order.
#[derive(Debug)]
pub(crate) struct Lowered {
    /// Per node, then for nodes made here; `None` where dead, absorbed or aliased.
    pub(crate) work: Vec<Option<Work>>,
    /// Whether the value differs between replicas.
    pub(crate) per_replica: Vec<bool>,
    /// Reductions it waits for.
    pub(crate) level: Vec<u32>,
    /// Whether it is placed only when needed.
    pub(crate) lazy: Vec<bool>,
    /// Per output, the node that computes it.
    pub(crate) outputs: Vec<u32>,
    /// Constants made here: (node, value).
    pub(crate) made_constants: Vec<(u32, f32)>,
}

/// Removes dead nodes, resolves what needs no instruction, and fuses.
pub(crate) fn lower(program: &Program, facts: &[Facts]) -> Lowered {
    let mut lowering = Lowering::new(program, facts);
    for id in (0..program.nodes.len()).rev() {
        if lowering.uses[id] > 0 && !lowering.absorbed[id] {
            lowering.visit(id as u32);
        }
    }
    lowering.out.mark_lazy();
    lowering.out
}

impl Lowered {
    fn push(&mut self, work: Work, per_replica: bool, level: u32) -> u32 {
        self.work.push(Some(work));
        self.per_replica.push(per_replica);
        self.level.push(level);
        self.lazy.push(false);
        self.work.len() as u32 - 1
    }

    /// A new instruction whose facts follow from its operands; for use during scheduling.
    pub(crate) fn push_add(&mut self, a: u32, b: u32) -> u32 {
        let per_replica = self.per_replica[a as usize] || self.per_replica[b as usize];
        let level = self.level[a as usize].max(self.level[b as usize]);
        self.push(Work::Binary(Binary::Add, a, b), per_replica, level)
    }

    /// Movable work is lazy if all it reads is lazy. Nodes made here have higher numbers than
    /// those that read them, so this iterates to the fixed point.
    fn mark_lazy(&mut self) {
        for (lazy, work) in self.lazy.iter_mut().zip(&self.work) {
            *lazy = work.as_ref().is_some_and(Work::movable);
        }
        for work in self.work.iter().flatten() {
            // What a reduction reads is placed as soon as it can be.
            if let Work::Accumulator { value, .. } = work {
                self.lazy[*value as usize] = false;
            }
        }
        loop {
            let mut changed = false;
            for id in 0..self.work.len() {
                let Some(work) = &self.work[id] else { continue };
                // An accumulator is complete before any part that reads it.
                let leaf = matches!(work, Work::LoadBlock { .. });
                if self.lazy[id] && !leaf && !work.operands().iter().all(|&o| self.lazy[o as usize])
                {
                    self.lazy[id] = false;
                    changed = true;
                }
            }
            if !changed {
                return;
            }
        }
    }
}

struct Lowering<'a> {
    /// The program's nodes with aliases resolved.
    nodes: Vec<Node>,
    facts: &'a [Facts],
    uses: Vec<u32>,
    absorbed: Vec<bool>,
    replicas: u32,
    out: Lowered,
}

impl<'a> Lowering<'a> {
    fn new(program: &Program, facts: &'a [Facts]) -> Self {
        let (nodes, alias) = resolve_aliases(program, facts);
        let outputs: Vec<u32> = program.outputs.iter().map(|(_, id)| alias[*id as usize]).collect();
        let uses = count_uses(&nodes, &outputs);
        let out = Lowered {
            work: vec![None; nodes.len()],
            per_replica: facts.iter().map(|f| f.per_replica).collect(),
            level: facts.iter().map(|f| f.level).collect(),
            lazy: vec![false; nodes.len()],
            outputs,
            made_constants: Vec::new(),
        };
        let absorbed = vec![false; nodes.len()];
        Self { nodes, facts, uses, absorbed, replicas: program.replicas, out }
    }

    fn visit(&mut self, id: u32) {
        let node = self.nodes[id as usize].clone();
        let work = match node {
            Node::Const(_) => Work::Const,
            Node::ReplicaConst(_) => Work::ReplicaConst,
            Node::Index { rows, key, scope, weights } => {
                Work::Index { law: IndexLaw::new(rows, weights.as_deref()), key, scope }
            }
            Node::MapIndex { index, map } => Work::MapIndex { index, map },
            Node::Draw { table, key, scope } => bare(Source::Draw { table, key, scope }),
            Node::Gather { pool, index, stride, offset } => {
                bare(Source::Gather { node: id, pool, index, stride, offset })
            }
            Node::Binary(Binary::Add, a, b) => self.visit_add(id, a, b),
            Node::Binary(Binary::Mul, a, b) => {
                self.fuse(id, &[a, b], None).unwrap_or(Work::Binary(Binary::Mul, a, b))
            }
            Node::Binary(op, a, b) => Work::Binary(op, a, b),
            Node::MulAdd(a, b, c) => {
                self.fuse(id, &[a, b], Some(c)).unwrap_or(Work::MulAdd(a, b, c))
            }
            Node::Select { condition, threshold, a, b } => {
                Work::Select { condition, threshold, a, b }
            }
            Node::Step { value, threshold } => Work::Step { value, threshold },
            Node::Sum(values) => Work::Sum(values),
            Node::Sync { value, block } => self.visit_reduction(id, Reduction::Max, value, block),
            Node::Reduce(op, value) => self.visit_reduction(id, op, value, self.replicas),
        };
        self.out.work[id as usize] = Some(work);
    }

    fn visit_add(&mut self, id: u32, a: u32, b: u32) -> Work {
        if let Some(work) = self.fuse(id, &[b], Some(a)).or_else(|| self.fuse(id, &[a], Some(b))) {
            return work;
        }
        for (x, y) in [(a, b), (b, a)] {
            if let Some((p, q)) = self.absorb_max(id, x) {
                return Work::MaxAdd(p, q, y);
            }
        }
        Work::Binary(Binary::Add, a, b)
    }

    fn visit_reduction(&mut self, id: u32, op: Reduction, value: u32, block: u32) -> Work {
        if !self.facts[value as usize].per_replica {
            // Only the sum of a shared value is left: the others are aliases.
            let factor = self.out.push(Work::Const, false, 0);
            self.out.made_constants.push((factor, self.replicas as f32));
            return Work::Binary(Binary::Mul, value, factor);
        }
        let accumulator = Work::Accumulator { op, value, block };
        if block == self.replicas {
            return accumulator;
        }
        let accumulator = self.out.push(accumulator, false, self.facts[id as usize].level);
        Work::LoadBlock { accumulator, block }
    }

    /// The operands of a maximum that only `root` reads, taken into `root`.
    fn absorb_max(&mut self, root: u32, id: u32) -> Option<(u32, u32)> {
        match self.nodes[id as usize] {
            Node::Binary(Binary::Max, a, b) if self.private(root, id) => {
                self.absorbed[id as usize] = true;
                Some((a, b))
            }
            _ => None,
        }
    }

    /// Whether `id` is read by nothing but `root` and lives where `root` does.
    fn private(&self, root: u32, id: u32) -> bool {
        let same = self.facts[id as usize].per_replica == self.facts[root as usize].per_replica;
        self.uses[id as usize] == 1 && same
    }

    /// Work for `start + Π product` if the product has a draw or gather of its own.
    fn fuse(&mut self, root: u32, product: &[u32], start: Option<u32>) -> Option<Work> {
        let (mut factors, inner) = self.flatten(root, product);
        let source =
            |&f: &u32| Source::of(f, &self.nodes[f as usize]).filter(|_| self.private(root, f));
        let (place, source) =
            factors.iter().enumerate().find_map(|(i, f)| Some((i, source(f)?)))?;
        let node = factors.remove(place);
        for id in inner.into_iter().chain([node]) {
            self.absorbed[id as usize] = true;
        }
        let scalar = self.take(&mut factors, |n| matches!(n, Node::Const(_)));
        let replica_scalar = self.take(&mut factors, |n| matches!(n, Node::ReplicaConst(_)));
        while factors.len() > 2 {
            let (Some(a), Some(b)) = (factors.pop(), factors.pop()) else { break };
            factors.push(self.make_product(a, b));
        }
        let start = match start {
            None => Vec::new(),
            Some(s) => self.absorb_max(root, s).map_or_else(|| vec![s], |(a, b)| vec![a, b]),
        };
        Some(Work::Fused { source, start, scalar, replica_scalar, factors })
    }

    fn take(&self, factors: &mut Vec<u32>, wanted: impl Fn(&Node) -> bool) -> Option<u32> {
        let is = |&f: &u32| self.nodes.get(f as usize).is_some_and(&wanted);
        factors.iter().position(is).map(|i| factors.remove(i))
    }

    fn make_product(&mut self, a: u32, b: u32) -> u32 {
        let out = &mut self.out;
        let per_replica = out.per_replica[a as usize] || out.per_replica[b as usize];
        let level = out.level[a as usize].max(out.level[b as usize]);
        out.push(Work::Binary(Binary::Mul, a, b), per_replica, level)
    }

    /// Factors of a product, looking through multiplications that only it reads; these come second.
    fn flatten(&self, root: u32, product: &[u32]) -> (Vec<u32>, Vec<u32>) {
        let (mut factors, mut inner) = (Vec::new(), Vec::new());
        let mut stack: Vec<u32> = product.iter().rev().copied().collect();
        while let Some(id) = stack.pop() {
            match self.nodes[id as usize] {
                Node::Binary(Binary::Mul, a, b) if self.private(root, id) => {
                    inner.push(id);
                    stack.extend([b, a]);
                }
                _ => factors.push(id),
            }
        }
        (factors, inner)
    }
}

/// A draw or gather by itself.
fn bare(source: Source) -> Work {
    let (start, factors) = (Vec::new(), Vec::new());
    Work::Fused { source, start, scalar: None, replica_scalar: None, factors }
}

/// Replaces reductions that change nothing, and sums of one value, by what they read.
fn resolve_aliases(program: &Program, facts: &[Facts]) -> (Vec<Node>, Vec<u32>) {
    let mut alias: Vec<u32> = (0..program.nodes.len() as u32).collect();
    let mut nodes = program.nodes.clone();
    for id in 0..nodes.len() {
        let at = |v: &mut u32| *v = alias[*v as usize];
        match &mut nodes[id] {
            Node::Const(_) | Node::ReplicaConst(_) | Node::Draw { .. } | Node::Index { .. } => {}
            Node::MapIndex { index, .. } | Node::Gather { index, .. } => at(index),
            Node::Binary(_, a, b) => [a, b].into_iter().for_each(at),
            Node::MulAdd(a, b, c) => [a, b, c].into_iter().for_each(at),
            Node::Select { condition, a, b, .. } => [condition, a, b].into_iter().for_each(at),
            Node::Step { value, .. } | Node::Sync { value, .. } | Node::Reduce(_, value) => {
                at(value);
            }
            Node::Sum(values) => values.iter_mut().for_each(at),
        }
        let same = match &nodes[id] {
            Node::Sync { value, block } if *block == 1 || !facts[*value as usize].per_replica => {
                Some(*value)
            }
            Node::Reduce(op, value) if !facts[*value as usize].per_replica => {
                (*op == Reduction::Max || program.replicas == 1).then_some(*value)
            }
            Node::Sum(values) if values.len() == 1 => Some(values[0]),
            _ => None,
        };
        if let Some(value) = same {
            alias[id] = value;
        }
    }
    (nodes, alias)
}

/// Readers of each node among those that outputs need.
fn count_uses(nodes: &[Node], outputs: &[u32]) -> Vec<u32> {
    let mut uses = vec![0; nodes.len()];
    for &id in outputs {
        uses[id as usize] += 1;
    }
    for id in (0..nodes.len()).rev() {
        if uses[id] > 0 {
            for o in nodes[id].operands() {
                uses[o as usize] += 1;
            }
        }
    }
    uses
}
