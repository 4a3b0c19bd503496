//! From program to tape: check, lower, order, place, encode.

use std::collections::HashMap;

use super::check::check;
use super::error::SampleError;
use super::lower::{Lowered, Source, Work, lower};
use super::program::{Binary, Node, Offset, Program, Reduction, Scope};
use super::schedule::{Emission, schedule};
use super::simd::PreparedTable;
use super::slots::{Bank, Slots, assign};
use super::tape::{
    GatherSpec, IndexLaw, Ins, OutputSpec, PER_REPLICA, SLOT_BITS, ScalarSource, Tape, op,
};

/// Bytes of slots that should stay in the first-level cache, and in all in the second-level one.
const HOT_BYTES: usize = 56 << 10;
const ALL_BYTES: usize = 320 << 10;

/// Compiles a program.
pub(crate) fn compile(program: &Program) -> Result<Tape, SampleError> {
    let facts = check(program)?;
    let mut low = lower(program, &facts);
    let parts = schedule(&mut low);
    let slots = assign(&low, &parts, program.replicas);
    check_size(program, &slots)?;
    let mut encoder = Encoder::new(program, &low, &slots);
    for (p, part) in parts.iter().enumerate() {
        let start = encoder.tape.ins.len();
        for &emission in part {
            encoder.emit(emission, p % 2 == 1);
        }
        let end = encoder.tape.ins.len();
        encoder.tape.parts.push(start..end);
    }
    let mut tape = encoder.tape;
    tape.width = block_width(&tape);
    tape.refresh_scalars(None);
    tape.refresh_draws(None);
    Ok(tape)
}

fn check_size(program: &Program, slots: &Slots) -> Result<(), SampleError> {
    let [shared, scratch, kept] = slots.count.map(|c| c as usize);
    let all = shared + scratch + kept.saturating_mul(program.replicas as usize);
    // Node numbers and pool offsets share their words with a flag.
    if all >= 1 << SLOT_BITS || program.nodes.len() >= PER_REPLICA as usize {
        return Err(SampleError::TooLarge { slots: all });
    }
    Ok(())
}

/// The widest block whose slots stay in cache: wide blocks spread the cost of an instruction.
fn block_width(tape: &Tape) -> usize {
    let [shared, scratch, kept] = tape.slots.map(|c| c as usize);
    let hot = shared + scratch + kept;
    let all = shared + scratch + kept * tape.replicas as usize;
    let fits = |&w: &usize| hot * w * 4 <= HOT_BYTES && all * w * 4 <= ALL_BYTES;
    [256, 128, 64].into_iter().find(fits).unwrap_or(if all * 256 > 2 * ALL_BYTES { 32 } else { 64 })
}

struct Encoder<'a> {
    program: &'a Program,
    low: &'a Lowered,
    slots: &'a Slots,
    scalar_of: HashMap<(Option<u32>, Option<u32>), u32>,
    draw_of: HashMap<(u64, bool), u32>,
    tape: Tape,
}

impl<'a> Encoder<'a> {
    fn new(program: &'a Program, low: &'a Lowered, slots: &'a Slots) -> Self {
        let per_replica = |id: &u32| low.per_replica[*id as usize];
        let outputs = program.outputs.iter().zip(&low.outputs);
        let tape = Tape {
            replicas: program.replicas,
            width: 64,
            ins: Vec::new(),
            parts: Vec::new(),
            slots: slots.count,
            draws: Vec::new(),
            scalar_sources: Vec::new(),
            scalars: Vec::new(),
            gathers: Vec::new(),
            gather_nodes: Vec::new(),
            offsets: Vec::new(),
            maps: Vec::new(),
            laws: Vec::new(),
            law_of: Vec::new(),
            tables: program.tables.iter().map(PreparedTable::new).collect(),
            pools: program.pools.clone(),
            outputs: outputs
                .map(|((name, _), id)| OutputSpec {
                    name: name.clone(),
                    per_replica: per_replica(id),
                })
                .collect(),
            output_nodes: program.outputs.iter().map(|o| o.1).collect(),
            nodes: program.nodes.clone(),
            made_constants: low.made_constants.clone(),
        };
        Self { program, low, slots, scalar_of: HashMap::new(), draw_of: HashMap::new(), tape }
    }

    fn emit(&mut self, emission: Emission, repeated: bool) {
        let ins = match emission {
            Emission::Node(id) => match &self.low.work[id as usize] {
                Some(work) => Ins { out: self.operand(id), ..self.encode(id, work) },
                None => return,
            },
            Emission::Fold { accumulator, value } => {
                let (op, aux) = match self.low.work[accumulator as usize] {
                    Some(Work::Accumulator { op: Reduction::Sum, block, .. }) => {
                        (op::FOLD_SUM, block)
                    }
                    Some(Work::Accumulator { block, .. }) => (op::FOLD_MAX, block),
                    _ => return,
                };
                let (out, a) = (self.operand(accumulator), self.operand(value));
                Ins { op, out, a, aux, ..Ins::default() }
            }
            Emission::Output { output, value } => {
                let (a, data) = (self.operand(value), u32::from(repeated));
                Ins { op: op::OUTPUT, a, aux: output, data, ..Ins::default() }
            }
        };
        self.tape.ins.push(ins);
    }

    fn operand(&self, id: u32) -> u32 {
        let (bank, slot) = self.slots.of[id as usize];
        ((bank as u32) << SLOT_BITS) | slot
    }

    fn encode(&mut self, id: u32, work: &Work) -> Ins {
        let none = Ins::default();
        match work {
            Work::Const => Ins { op: op::SPLAT, scalar: self.scalar(Some(id), None), ..none },
            Work::ReplicaConst => {
                Ins { op: op::SPLAT, scalar: self.scalar(None, Some(id)), ..none }
            }
            Work::Fused { node, source, start, scalar, replica_scalar, factors } => {
                let form = (3 * start.len() + factors.len()) as u32;
                let scalar = self.scalar(*scalar, *replica_scalar);
                let slot = |list: &[u32], i: usize| list.get(i).map_or(0, |&x| self.operand(x));
                let (a, b) = (slot(start, 0), slot(start, 1));
                let f = [slot(factors, 0), slot(factors, 1)];
                let (op, aux, data) = self.source(*node, *source);
                Ins { op: op + form, a, b, f, scalar, aux, data, ..none }
            }
            Work::Index => self.index(id),
            Work::MapIndex(a) => self.map(id, *a),
            Work::Binary(binary, a, b) => {
                let op = match binary {
                    Binary::Add => op::ADD,
                    Binary::Sub => op::SUB,
                    Binary::Mul => op::MUL,
                    Binary::Max => op::MAX,
                    Binary::Min => op::MIN,
                };
                Ins { op, ..self.three(*a, *b, *b) }
            }
            Work::MaxAdd(a, b, c) => Ins { op: op::MAX_ADD, ..self.three(*a, *b, *c) },
            Work::MulAdd(a, b, c) => Ins { op: op::MUL_ADD, ..self.three(*a, *b, *c) },
            Work::Select(c, a, b) => {
                Ins { op: op::SELECT, scalar: self.threshold(id), ..self.three(*a, *b, *c) }
            }
            Work::Step(a) => {
                Ins { op: op::STEP, scalar: self.threshold(id), ..self.three(*a, *a, *a) }
            }
            Work::LoadBlock { accumulator, block } => {
                Ins { op: op::LOAD_BLOCK, a: self.operand(*accumulator), aux: *block, ..none }
            }
            // Sums were turned into additions; accumulators are filled by folds.
            Work::Sum(_) | Work::Accumulator { .. } => none,
        }
    }

    fn three(&self, a: u32, b: u32, c: u32) -> Ins {
        let f = [self.operand(c), 0];
        Ins { a: self.operand(a), b: self.operand(b), f, ..Ins::default() }
    }

    /// Entry of the product of two optional constants.
    fn scalar(&mut self, constant: Option<u32>, replica_constant: Option<u32>) -> u32 {
        let tape = &mut self.tape;
        *self.scalar_of.entry((constant, replica_constant)).or_insert_with(|| {
            let first = tape.scalars.len() as u32;
            let (count, flag) = match replica_constant {
                Some(_) => (tape.replicas as usize, PER_REPLICA),
                None => (1, 0),
            };
            tape.scalars.resize(tape.scalars.len() + count, 1.0);
            tape.scalar_sources.push(ScalarSource { constant, replica_constant, first });
            first | flag
        })
    }

    /// Entry of a threshold; nothing changes it.
    fn threshold(&mut self, id: u32) -> u32 {
        let threshold = match self.program.nodes[id as usize] {
            Node::Select { threshold, .. } | Node::Step { threshold, .. } => threshold,
            _ => 0.0,
        };
        self.tape.scalars.push(threshold);
        self.tape.scalars.len() as u32 - 1
    }

    /// Entry of a key, flagged where it has a variant per replica.
    fn draw(&mut self, key: prism_stats::Key, scope: Scope) -> u32 {
        let per_replica = scope == Scope::PerReplica;
        let draws = &mut self.tape.draws;
        let entry = *self.draw_of.entry((key.bits(), per_replica)).or_insert_with(|| {
            draws.push(key);
            draws.len() as u32 - 1
        });
        if per_replica { entry | PER_REPLICA } else { entry }
    }

    /// Code base, aux and data of a fused source.
    fn source(&mut self, node: u32, source: Source) -> (u32, u32, u32) {
        match (&self.program.nodes[node as usize], source) {
            (Node::Draw { table, key, scope }, Source::Draw) => {
                (op::DRAW, self.draw(*key, *scope), *table)
            }
            (Node::Gather { pool, stride, offset, .. }, Source::Gather(index)) => {
                let offsets = &mut self.tape.offsets;
                let first = offsets.len() as u32;
                let flag = match offset {
                    Offset::Fixed(offset) => {
                        offsets.push(*offset);
                        0
                    }
                    Offset::PerReplica(list) => {
                        offsets.extend_from_slice(list);
                        PER_REPLICA
                    }
                };
                let spec = GatherSpec { pool: *pool, stride: *stride, offset: first | flag };
                self.tape.gathers.push(spec);
                self.tape.gather_nodes.push(node);
                (op::GATHER, self.tape.gathers.len() as u32 - 1, self.operand(index))
            }
            // A source is what lowering found there.
            _ => (op::DRAW, 0, 0),
        }
    }

    fn index(&mut self, id: u32) -> Ins {
        let Node::Index { rows, key, scope, weights } = &self.program.nodes[id as usize] else {
            return Ins::default();
        };
        let aux = self.draw(*key, *scope);
        let data = self.tape.laws.len() as u32;
        self.tape.laws.push(IndexLaw::new(*rows, weights.as_deref()));
        self.tape.law_of.push((id, data));
        let op = if weights.is_some() { op::INDEX_ALIAS } else { op::INDEX };
        Ins { op, aux, data, ..Ins::default() }
    }

    fn map(&mut self, id: u32, a: u32) -> Ins {
        if let Node::MapIndex { map, .. } = &self.program.nodes[id as usize] {
            self.tape.maps.push(map.clone());
        }
        let aux = self.tape.maps.len() as u32 - 1;
        Ins { op: op::MAP_INDEX, a: self.operand(a), aux, ..Ins::default() }
    }
}

/// Banks number the upper bits of an operand.
const _: () = assert!((Bank::Kept as u32) < 4);
