//! An order for the work: parts between replica-wide reductions, each shared work first.
//!
//! Part 2L holds shared work of level L, part 2L + 1 the work that is repeated for every replica.
//! Within a part work keeps the program's order, and lazy work comes right before its first reader,
//! so that few values are alive at once. Sums are accumulated term by term, as terms appear.

use super::lower::{Lowered, Work};
use super::program::Binary;

/// One instruction to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Emission {
    /// Computes a node.
    Node(u32),
    /// Folds a value into its accumulator.
    Fold { accumulator: u32, value: u32 },
    /// Stores a value as an output.
    Output { output: u32, value: u32 },
}

/// Parts in order of execution, shared and per replica alternating.
pub(crate) fn schedule(lowered: &mut Lowered) -> Vec<Vec<Emission>> {
    let mut scheduler = Scheduler::new(lowered);
    scheduler.run();
    scheduler.parts
}

#[derive(Clone, Copy, Default)]
struct SumState {
    total: Option<u32>,
    missing: u32,
}

struct Scheduler<'a> {
    low: &'a mut Lowered,
    emitted: Vec<bool>,
    parts: Vec<Vec<Emission>>,
    level: usize,
    outputs_of: Vec<Vec<u32>>,
    folds_of: Vec<Vec<u32>>,
    sums_of: Vec<Vec<u32>>,
    sums: Vec<SumState>,
}

impl<'a> Scheduler<'a> {
    fn new(low: &'a mut Lowered) -> Self {
        let n = low.work.len();
        let mut this = Self {
            emitted: vec![false; n],
            parts: Vec::new(),
            level: 0,
            outputs_of: vec![Vec::new(); n],
            folds_of: vec![Vec::new(); n],
            sums_of: vec![Vec::new(); n],
            sums: vec![SumState::default(); n],
            low,
        };
        for (output, &id) in this.low.outputs.iter().enumerate() {
            this.outputs_of[id as usize].push(output as u32);
        }
        for (id, work) in this.low.work.iter().enumerate() {
            match work {
                Some(Work::Accumulator { value, .. }) => {
                    this.folds_of[*value as usize].push(id as u32);
                }
                Some(Work::Sum(values)) => {
                    this.sums[id].missing = values.len() as u32;
                    for &v in values {
                        this.sums_of[v as usize].push(id as u32);
                    }
                }
                _ => {}
            }
        }
        this
    }

    fn run(&mut self) {
        let n = self.low.work.len();
        let mut anchors: Vec<(u32, u32)> = (0..n)
            .filter(|&i| self.low.work[i].is_some() && !self.low.lazy[i])
            .map(|i| (self.low.level[i], i as u32))
            .collect();
        anchors.sort_unstable();
        let top = anchors.last().map_or(0, |a| a.0) as usize;
        let mut next = 0;
        for level in 0..=top {
            self.level = level;
            self.parts.extend([Vec::new(), Vec::new()]);
            while let Some(&(_, id)) = anchors.get(next).filter(|a| a.0 as usize == level) {
                self.demand(id);
                next += 1;
            }
        }
        for output in 0..self.low.outputs.len() {
            self.demand(self.low.outputs[output]);
        }
    }

    /// Places a node after everything that it reads.
    fn demand(&mut self, id: u32) {
        let mut stack = vec![id];
        while let Some(&id) = stack.last() {
            if self.emitted[id as usize] {
                stack.pop();
                continue;
            }
            let operands = self.low.work[id as usize].as_ref().map(Work::operands);
            let missing = operands.iter().flatten().find(|&&o| !self.emitted[o as usize]);
            if let Some(&missing) = missing {
                stack.push(missing);
            } else {
                stack.pop();
                self.place(id);
            }
        }
    }

    fn part(&mut self, per_replica: bool) -> &mut Vec<Emission> {
        &mut self.parts[2 * self.level + usize::from(per_replica)]
    }

    fn place(&mut self, id: u32) {
        let silent = matches!(self.low.work[id as usize], Some(Work::Accumulator { .. }));
        if !silent {
            let per_replica = self.low.per_replica[id as usize];
            self.part(per_replica).push(Emission::Node(id));
        }
        self.complete(id);
    }

    /// What follows as soon as a value is there: outputs, folds, and the next term of sums.
    fn complete(&mut self, id: u32) {
        let mut done = vec![id];
        while let Some(value) = done.pop() {
            let i = value as usize;
            self.emitted[i] = true;
            let per_replica = self.low.per_replica[i];
            for output in std::mem::take(&mut self.outputs_of[i]) {
                self.part(per_replica).push(Emission::Output { output, value });
            }
            for accumulator in std::mem::take(&mut self.folds_of[i]) {
                self.part(true).push(Emission::Fold { accumulator, value });
            }
            for sum in std::mem::take(&mut self.sums_of[i]) {
                if self.add_term(sum, value) {
                    done.push(sum);
                }
            }
        }
    }

    /// Adds a term to a sum; whether that was the last one.
    fn add_term(&mut self, sum: u32, value: u32) -> bool {
        let state = self.sums[sum as usize];
        let total = match state.total {
            None => value,
            Some(total) => self.emit_add(total, value, (state.missing == 1).then_some(sum)),
        };
        let missing = state.missing - 1;
        self.sums[sum as usize] = SumState { total: Some(total), missing };
        missing == 0
    }

    /// Emits an addition, the last one of a sum as the sum's own node.
    fn emit_add(&mut self, a: u32, b: u32, own: Option<u32>) -> u32 {
        let id = if let Some(sum) = own {
            self.low.work[sum as usize] = Some(Work::Binary(Binary::Add, a, b));
            sum
        } else {
            self.emitted.push(true);
            for list in [&mut self.outputs_of, &mut self.folds_of, &mut self.sums_of] {
                list.push(Vec::new());
            }
            self.sums.push(SumState::default());
            self.low.push_add(a, b)
        };
        let per_replica = self.low.per_replica[id as usize];
        self.part(per_replica).push(Emission::Node(id));
        id
    }
}
