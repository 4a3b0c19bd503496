//! From program to tape: check, lower, order, place, encode.

use std::collections::HashMap;

use super::check::check;
use super::error::SampleError;
use super::lower::{Lowered, Source, Work, lower};
use super::program::{Binary, Node, Offset, Program, Reduction, Scope};
use super::schedule::{Emission, schedule};
use super::simd::PreparedTable;
use super::slots::{Bank, Slots, assign};
use super::tape::{GatherSpec, Ins, OutputSpec, PER_REPLICA, SLOT_BITS, ScalarSource, Tape, op};

/// Bytes of slots that one replica's part may touch, and all parts in all. The former exceeds a
/// first-level cache somewhat: slots are read in order, so that wide blocks win all the same.
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

/// Refuses what 32-bit operands, with their flags, cannot number.
fn check_size(program: &Program, slots: &Slots) -> Result<(), SampleError> {
    let replicas = program.replicas as usize;
    let [shared, scratch, kept] = slots.count.map(|c| c as usize);
    let all = shared.saturating_add(scratch).saturating_add(kept.saturating_mul(replicas));
    let listed = |n: &&Node| {
        let list = matches!(n, Node::Gather { offset: Offset::PerReplica(_), .. });
        list || matches!(n, Node::ReplicaConst(_))
    };
    let entries = program.nodes.iter().filter(listed).count().saturating_mul(replicas);
    let entries = entries.saturating_add(program.nodes.len());
    if all >= 1 << SLOT_BITS || entries >= PER_REPLICA as usize {
        return Err(SampleError::TooLarge { slots: all.max(entries) });
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
        Self { low, slots, scalar_of: HashMap::new(), draw_of: HashMap::new(), tape }
    }

    fn emit(&mut self, emission: Emission, repeated: bool) {
        let low = self.low;
        let work = |id: u32| low.work[id as usize].as_ref();
        let none = Ins::default();
        let ins = match emission {
            Emission::Node(id) => {
                let ins = work(id).and_then(|work| self.encode(id, work));
                ins.map(|ins| Ins { out: self.operand(id), ..ins })
            }
            Emission::Fold { accumulator, value } => match work(accumulator) {
                Some(&Work::Accumulator { op, block, .. }) => {
                    let op = if op == Reduction::Sum { op::FOLD_SUM } else { op::FOLD_MAX };
                    let (out, a) = (self.operand(accumulator), self.operand(value));
                    Some(Ins { op, out, a, aux: block, ..none })
                }
                _ => None,
            },
            Emission::Output { output, value } => {
                let (a, data) = (self.operand(value), u32::from(repeated));
                Some(Ins { op: op::OUTPUT, a, aux: output, data, ..none })
            }
        };
        self.tape.ins.extend(ins);
    }

    fn operand(&self, id: u32) -> u32 {
        let (bank, slot) = self.slots.of[id as usize];
        ((bank as u32) << SLOT_BITS) | slot
    }

    /// The instruction of a node, but for its output; `None` of work that others do for it: sums
    /// have become additions, and accumulators are filled by folds.
    fn encode(&mut self, id: u32, work: &Work) -> Option<Ins> {
        let none = Ins::default();
        Some(match work {
            Work::Const => Ins { op: op::SPLAT, scalar: self.scalar(Some(id), None), ..none },
            Work::ReplicaConst => {
                Ins { op: op::SPLAT, scalar: self.scalar(None, Some(id)), ..none }
            }
            Work::Fused { source, start, scalar, replica_scalar, factors } => {
                let form = (3 * start.len() + factors.len()) as u32;
                let scalar = self.scalar(*scalar, *replica_scalar);
                let slot = |list: &[u32], i: usize| list.get(i).map_or(0, |&x| self.operand(x));
                let (a, b) = (slot(start, 0), slot(start, 1));
                let f = [slot(factors, 0), slot(factors, 1)];
                let (op, aux, data) = self.source(source);
                Ins { op: op + form, a, b, f, scalar, aux, data, ..none }
            }
            Work::Index { law, key, scope } => {
                let op = if law.alias.is_empty() { op::INDEX } else { op::INDEX_ALIAS };
                let (aux, data) = (self.draw(*key, *scope), self.tape.laws.len() as u32);
                self.tape.laws.push(law.clone());
                self.tape.law_of.push((id, data));
                Ins { op, aux, data, ..none }
            }
            Work::MapIndex { index, map } => {
                let aux = self.tape.maps.len() as u32;
                self.tape.maps.push(map.clone());
                Ins { op: op::MAP_INDEX, a: self.operand(*index), aux, ..none }
            }
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
            Work::Select { condition, threshold, a, b } => {
                let scalar = self.threshold(*threshold);
                Ins { op: op::SELECT, scalar, ..self.three(*a, *b, *condition) }
            }
            Work::Step { value, threshold } => {
                let scalar = self.threshold(*threshold);
                Ins { op: op::STEP, scalar, ..self.three(*value, *value, *value) }
            }
            Work::LoadBlock { accumulator, block } => {
                Ins { op: op::LOAD_BLOCK, a: self.operand(*accumulator), aux: *block, ..none }
            }
            Work::Sum(_) | Work::Accumulator { .. } => return None,
        })
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
    fn threshold(&mut self, threshold: f32) -> u32 {
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
    fn source(&mut self, source: &Source) -> (u32, u32, u32) {
        match source {
            Source::Draw { table, key, scope } => (op::DRAW, self.draw(*key, *scope), *table),
            Source::Gather { node, pool, index, stride, offset } => {
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
                self.tape.gather_nodes.push(*node);
                (op::GATHER, self.tape.gathers.len() as u32 - 1, self.operand(*index))
            }
        }
    }
}

/// Banks number the upper bits of an operand.
const _: () = assert!((Bank::Kept as u32) < 4);
