//! Where values live: the fewest slots such that no live value is overwritten.
//!
//! A slot holds one block of samples. *Shared* slots hold values that all replicas read, *scratch*
//! slots values that live within one part for one replica at a time, and *kept* slots, of which every
//! replica has its own, values that outlive a part.

use super::lower::{Lowered, Work};
use super::schedule::Emission;

/// Which bank of slots an operand is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bank {
    Shared = 0,
    Scratch = 1,
    Kept = 2,
}

/// Slots given to values, and how many there are in each bank.
#[derive(Debug)]
pub(crate) struct Slots {
    /// Per node; the first of several for an accumulator over blocks.
    pub(crate) of: Vec<(Bank, u32)>,
    /// Slots per bank; kept ones per replica.
    pub(crate) count: [u32; 3],
}

/// A moment of the schedule: part and place in it.
type Moment = (usize, usize);

/// Assigns slots to every node that is emitted.
pub(crate) fn assign(low: &Lowered, parts: &[Vec<Emission>], replicas: u32) -> Slots {
    let mut assigner = Assigner::new(low, parts, replicas);
    for (p, part) in parts.iter().enumerate() {
        assigner.walk(p, part);
    }
    assigner.slots
}

struct Assigner<'a> {
    low: &'a Lowered,
    replicas: u32,
    born: Vec<usize>,
    last: Vec<Option<Moment>>,
    free: [Vec<u32>; 3],
    /// Free runs of shared slots longer than one: (length, first).
    free_runs: Vec<(u32, u32)>,
    slots: Slots,
}

impl<'a> Assigner<'a> {
    fn new(low: &'a Lowered, parts: &[Vec<Emission>], replicas: u32) -> Self {
        let n = low.work.len();
        let (mut born, mut last) = (vec![0; n], vec![None; n]);
        for (p, part) in parts.iter().enumerate() {
            for (i, &emission) in part.iter().enumerate() {
                for id in reads(low, emission) {
                    last[id as usize] = Some((p, i));
                }
                match emission {
                    Emission::Node(id) | Emission::Fold { accumulator: id, .. } => {
                        born[id as usize] = p;
                    }
                    Emission::Output { .. } => {}
                }
            }
        }
        let slots = Slots { of: vec![(Bank::Shared, 0); n], count: [0; 3] };
        let (free, free_runs) = (Default::default(), Vec::new());
        Self { low, replicas, born, last, free, free_runs, slots }
    }

    fn walk(&mut self, p: usize, part: &[Emission]) {
        let repeated = p % 2 == 1;
        for &emission in part {
            if let Emission::Fold { accumulator, .. } = emission {
                self.take_run(accumulator);
            }
        }
        let mut ending = Vec::new();
        for (i, &emission) in part.iter().enumerate() {
            let mut dying: Vec<u32> = reads(self.low, emission)
                .into_iter()
                .filter(|&id| self.last[id as usize] == Some((p, i)))
                .collect();
            dying.sort_unstable();
            dying.dedup();
            for id in dying {
                // A shared value is read again for the next replica.
                if repeated && self.slots.of[id as usize].0 == Bank::Shared {
                    ending.push(id);
                } else {
                    self.release(id);
                }
            }
            if let Emission::Node(id) = emission {
                self.take(id);
                if self.last[id as usize].is_none() {
                    self.release(id);
                }
            }
        }
        for id in ending {
            self.release(id);
        }
    }

    fn take(&mut self, id: u32) {
        let i = id as usize;
        let outlives = self.last[i].is_some_and(|(p, _)| p != self.born[i]);
        let bank = match (self.low.per_replica[i], outlives) {
            (false, _) => Bank::Shared,
            (true, false) => Bank::Scratch,
            (true, true) => Bank::Kept,
        };
        let slot = match self.free[bank as usize].pop() {
            Some(slot) => slot,
            None => self.grow(bank, 1),
        };
        self.slots.of[i] = (bank, slot);
    }

    fn grow(&mut self, bank: Bank, by: u32) -> u32 {
        let count = &mut self.slots.count[bank as usize];
        let first = *count;
        *count = count.saturating_add(by);
        first
    }

    /// Slots that an accumulator needs, one per block.
    fn run_length(&self, id: u32) -> u32 {
        match self.low.work[id as usize] {
            Some(Work::Accumulator { block, .. }) => self.replicas / block,
            _ => 1,
        }
    }

    fn take_run(&mut self, id: u32) {
        let length = self.run_length(id);
        if length == 1 {
            return self.take(id);
        }
        let fitting = self.free_runs.iter().position(|r| r.0 == length);
        let first = match fitting {
            Some(i) => self.free_runs.swap_remove(i).1,
            None => self.grow(Bank::Shared, length),
        };
        self.slots.of[id as usize] = (Bank::Shared, first);
    }

    fn release(&mut self, id: u32) {
        let (bank, slot) = self.slots.of[id as usize];
        match self.run_length(id) {
            1 => self.free[bank as usize].push(slot),
            length => self.free_runs.push((length, slot)),
        }
    }
}

/// Values that an emission reads.
fn reads(low: &Lowered, emission: Emission) -> Vec<u32> {
    match emission {
        Emission::Node(id) => {
            low.work[id as usize].as_ref().map(Work::operands).unwrap_or_default()
        }
        Emission::Fold { value, .. } | Emission::Output { value, .. } => vec![value],
    }
}
