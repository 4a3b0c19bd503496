//! A replica's step under other workers, and what it depends on.

use super::layout::{Node, Term};
use super::sampled::Sampled;

/// Samples that are computed at once.
const LANES: usize = 32;

/// A replica's step times and how they depend on its workers.
///
/// A step time is the largest over paths of the path's compute by stage times the stages' factors, plus
/// what else is on the path: convex and piecewise linear in the factors. The longest path at one set
/// of factors is a *cut*: a lower bound everywhere, exact where it was found.
#[derive(Clone, Debug)]
pub(super) struct ReplicaSteps {
    /// Step times, one a sample, seconds: what the step would take if only this replica counted.
    pub(super) time_s: Vec<f64>,
    /// Cuts, `[sample][stages + 1]`: compute by stage at factor 1, and the rest; seconds.
    pub(super) cuts: Vec<f64>,
}

/// Memory that evaluations reuse.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    values: Vec<[f64; LANES]>,
}

impl Sampled {
    /// Step times of a replica whose stages have these factors.
    pub(super) fn replica(
        &self,
        replica: usize,
        factors: &[f64],
        scratch: &mut Scratch,
    ) -> ReplicaSteps {
        let width = self.layout.stages + 1;
        let mut out = ReplicaSteps {
            time_s: Vec::with_capacity(self.samples),
            cuts: vec![0.0; self.samples * width],
        };
        scratch.values.resize(self.layout.nodes.len(), [0.0; LANES]);
        let mut first = 0;
        while first < self.samples {
            let count = LANES.min(self.samples - first);
            let block = Block { sampled: self, data: &self.data[replica], first, count };
            block.forward(factors, &mut scratch.values);
            for lane in 0..count {
                let cut = &mut out.cuts[(first + lane) * width..][..width];
                out.time_s.push(block.backtrack(factors, &scratch.values, lane, cut));
            }
            first += count;
        }
        out
    }
}

/// Some samples of a replica.
struct Block<'a> {
    sampled: &'a Sampled,
    data: &'a [f32],
    first: usize,
    count: usize,
}

impl Block<'_> {
    fn row(&self, row: u32) -> &[f32] {
        &self.data[row as usize * self.sampled.samples + self.first..][..self.count]
    }

    fn load(&self, term: Term, values: &[[f64; LANES]]) -> [f64; LANES] {
        match term {
            Term::Slot(slot) => values[slot as usize],
            Term::Row(row) => {
                let mut out = [0.0; LANES];
                for (o, &v) in out.iter_mut().zip(self.row(row)) {
                    *o = f64::from(v);
                }
                out
            }
        }
    }

    fn forward(&self, factors: &[f64], values: &mut [[f64; LANES]]) {
        let layout = &self.sampled.layout;
        for (i, node) in layout.nodes.iter().enumerate() {
            let out = match *node {
                Node::Latest { terms, delay, lagged } => {
                    let mut out = [0.0; LANES];
                    let list = &layout.terms[terms.0 as usize..terms.1 as usize];
                    for (j, &term) in list.iter().enumerate() {
                        let other = self.load(term, values);
                        if j == 0 {
                            out = other;
                        } else {
                            raise(&mut out, &other);
                        }
                    }
                    if let Some(row) = delay {
                        add(&mut out, self.row(row), 1.0);
                    }
                    for &(term, row) in &layout.lagged[lagged.0 as usize..lagged.1 as usize] {
                        let mut other = self.load(term, values);
                        add(&mut other, self.row(row), 1.0);
                        raise(&mut out, &other);
                    }
                    out
                }
                Node::Plus { on, row } => {
                    let mut out = self.load(on, values);
                    add(&mut out, self.row(row), 1.0);
                    out
                }
                Node::Compute { on, row, stage } => {
                    let mut out = self.load(on, values);
                    add(&mut out, self.row(row), factors[stage as usize]);
                    out
                }
            };
            values[i] = out;
        }
    }

    fn at(&self, term: Term, values: &[[f64; LANES]], lane: usize) -> f64 {
        match term {
            Term::Slot(slot) => values[slot as usize][lane],
            Term::Row(row) => self.amount(row, lane),
        }
    }

    fn amount(&self, row: u32, lane: usize) -> f64 {
        f64::from(self.row(row)[lane])
    }

    /// The step time of one sample; its longest path goes into the cut.
    fn backtrack(
        &self,
        factors: &[f64],
        values: &[[f64; LANES]],
        lane: usize,
        cut: &mut [f64],
    ) -> f64 {
        let layout = &self.sampled.layout;
        let mut time = f64::NEG_INFINITY;
        let mut last = None;
        for &(term, tail) in &layout.exits {
            let end = self.at(term, values, lane) + tail.map_or(0.0, |row| self.amount(row, lane));
            if end > time {
                (time, last) = (end, Some(term));
            }
        }
        while let Some(Term::Slot(slot)) = last {
            last = match layout.nodes[slot as usize] {
                Node::Plus { on, .. } => Some(on),
                Node::Compute { on, row, stage } => {
                    cut[stage as usize] += self.amount(row, lane);
                    Some(on)
                }
                Node::Latest { terms, delay, lagged } => {
                    let delay = delay.map_or(0.0, |row| self.amount(row, lane));
                    let (mut latest, mut from) = (f64::NEG_INFINITY, None);
                    for &term in &layout.terms[terms.0 as usize..terms.1 as usize] {
                        let value = self.at(term, values, lane) + delay;
                        if value > latest {
                            (latest, from) = (value, Some(term));
                        }
                    }
                    if terms.0 == terms.1 {
                        latest = delay;
                    }
                    for &(term, row) in &layout.lagged[lagged.0 as usize..lagged.1 as usize] {
                        let value = self.at(term, values, lane) + self.amount(row, lane);
                        if value > latest {
                            (latest, from) = (value, Some(term));
                        }
                    }
                    from
                }
            };
        }
        let Some((rest, by_stage)) = cut.split_last_mut() else { return time };
        *rest = time - by_stage.iter().zip(factors).map(|(a, f)| a * f).sum::<f64>();
        time
    }
}

fn raise(target: &mut [f64; LANES], other: &[f64; LANES]) {
    for (t, &o) in target.iter_mut().zip(other) {
        *t = if o > *t { o } else { *t };
    }
}

fn add(target: &mut [f64; LANES], row: &[f32], factor: f64) {
    for (t, &v) in target.iter_mut().zip(row) {
        *t += factor * f64::from(v);
    }
}
