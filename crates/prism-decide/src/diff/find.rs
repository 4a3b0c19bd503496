//! From many tests to a short list of causes.
//!
//! Contrasts are sets of cells of one block: all of it, a kind, a stage, a signature, a replica, a kind on
//! a replica, a rank, one cell. Each has an estimate ([`super::gls`]) and a t test on independent units
//! of steps. Then, until nothing is left:
//!
//! 1. All remaining contrasts of the report are tested and corrected for their number (Holm).
//! 2. Of those below the level, the one that explains most of the differences between cells (the gain
//!    in the weighted sum of squares) is the next cause, if the permutation test agrees.
//! 3. Its change is taken out of the cells it covers; the causes of one block are fitted together, and
//!    one that the others have made superfluous is dropped.
//!
//! With a changed kind all of its cells differ, but the kind explains them all at once and comes first;
//! with one changed cell its kind and its rank differ as well, but explain less than the cell does.
//! Whatever the order, a report without a true change has a finding with probability at most the level:
//! its first needs a false rejection by Holm. After true causes were taken out, the same holds of
//! what is left.

use std::collections::{BTreeMap, BTreeSet};

use prism_stats::htest::holm;

use super::cells::Block;
use super::gls::Covariance;
use super::report::Scope;
use super::units::{Pair, Steps, Test, compare, pair, permutation};

/// Most causes that are looked for.
const MOST_CAUSES: usize = 100;

/// A block with what its contrasts are estimated from.
pub(super) struct Analysed {
    pub(super) block: Block,
    pub(super) covariance: Covariance,
    /// Means of B less means of A.
    pub(super) difference: Vec<f64>,
}

/// A set of cells that may have changed together.
pub(super) struct Contrast {
    /// Index into the blocks.
    pub(super) block: usize,
    pub(super) cells: Vec<usize>,
    pub(super) scope: Scope,
    weights: Vec<f64>,
    test: Test,
    pair: Pair,
    precision: f64,
    /// Neither found nor refused yet.
    open: bool,
}

/// A cause.
#[derive(Clone, Debug)]
pub(super) struct Cause {
    /// Index into the contrasts.
    pub(super) contrast: usize,
    pub(super) p_value: f64,
    pub(super) p_corrected: f64,
    pub(super) p_permutation: Option<f64>,
    /// Weights of the cells in its estimate, the block's other causes fitted as well.
    pub(super) weights: Vec<f64>,
    /// Its estimate and error under those.
    pub(super) test: Test,
    pub(super) unit: prism_engine::predict::ResampleUnit,
    pub(super) units: (usize, usize),
}

/// Everything that was tested, and what was found.
pub(super) struct Search {
    pub(super) blocks: Vec<Analysed>,
    pub(super) contrasts: Vec<Contrast>,
    pub(super) causes: Vec<Cause>,
    /// p-value of each contrast before anything was taken out, corrected.
    pub(super) p_first: Vec<f64>,
}

/// Level, seed and steps of the search.
pub(super) struct Setting<'a> {
    pub(super) a: &'a Steps,
    pub(super) b: &'a Steps,
    pub(super) alpha: f64,
    pub(super) seed: u64,
}

/// Tests all contrasts of all blocks and finds the causes.
pub(super) fn search(blocks: Vec<Block>, setting: &Setting<'_>) -> Search {
    let blocks: Vec<Analysed> = blocks.into_iter().map(Analysed::new).collect();
    let contrasts: Vec<Contrast> =
        blocks.iter().enumerate().flat_map(|(i, b)| contrasts(i, b, setting)).collect();
    let first: Vec<f64> = contrasts.iter().map(|c| c.test.p_value(c.test.difference)).collect();
    let mut search = Search { blocks, contrasts, causes: Vec::new(), p_first: holm(&first) };
    while search.causes.len() < MOST_CAUSES && search.step(setting) {}
    search
}

impl Analysed {
    fn new(block: Block) -> Analysed {
        let mean = |l: &Vec<f64>| l.iter().sum::<f64>() / l.len().max(1) as f64;
        let difference = block.a.iter().zip(&block.b).map(|(a, b)| mean(b) - mean(a)).collect();
        Analysed { covariance: Covariance::of(&block), difference, block }
    }

    /// Both sides' series under the given weights.
    fn series(&self, weights: &[f64], setting: &Setting<'_>) -> Pair {
        let (a, b) = (combine(&self.block.a, weights), combine(&self.block.b, weights));
        pair((setting.a, &a), (setting.b, &b))
    }
}

pub(super) fn combine(lanes: &[Vec<f64>], weights: &[f64]) -> Vec<f64> {
    let mut out = vec![0.0; lanes.first().map_or(0, Vec::len)];
    for (lane, &w) in lanes.iter().zip(weights).filter(|(_, w)| **w != 0.0) {
        out.iter_mut().zip(lane).for_each(|(o, v)| *o += w * v);
    }
    out
}

/// Distinct sets of a block's cells, each tested.
fn contrasts(index: usize, analysed: &Analysed, setting: &Setting<'_>) -> Vec<Contrast> {
    sets(&analysed.block)
        .into_iter()
        .filter_map(|cells| {
            let weights = analysed.covariance.weights(&[&cells])?.swap_remove(0);
            let pair = analysed.series(&weights, setting);
            Some(Contrast {
                block: index,
                scope: scope(&analysed.block, &cells),
                test: compare(&pair.a, &pair.b, analysed.block.least),
                precision: analysed.covariance.precision(&cells),
                cells,
                weights,
                pair,
                open: true,
            })
        })
        .collect()
}

/// All of a block, then kinds, stages, signatures, replicas, kinds on replicas, ranks, cells; each set of
/// cells once.
fn sets(block: &Block) -> Vec<Vec<usize>> {
    /// What cells of a set have in common.
    type Common = (Option<prism_model::OpKind>, Option<u16>, Option<i16>, Option<u32>);
    let mut seen: BTreeSet<Vec<usize>> = BTreeSet::new();
    let mut out = Vec::new();
    for level in 0..8 {
        let mut groups: BTreeMap<Common, Vec<usize>> = BTreeMap::new();
        for (i, cell) in block.cells.iter().enumerate() {
            let s = cell.signature();
            let (kind, stage, chunk) = (s.map(|s| s.kind), s.map(|s| s.stage), s.map(|s| s.chunk));
            let key = match level {
                0 => (None, None, None, None),
                1 => (kind, None, None, None),
                2 => (None, stage, None, None),
                3 => (kind, stage, chunk, None),
                4 => (None, None, None, cell.dp),
                5 => (kind, None, None, cell.dp),
                6 => (None, stage, None, cell.dp),
                _ => (kind, stage, chunk, cell.dp),
            };
            groups.entry(key).or_default().push(i);
        }
        for cells in groups.into_values() {
            if seen.insert(cells.clone()) {
                out.push(cells);
            }
        }
    }
    out
}

/// What the cells of a set have in common.
fn scope(block: &Block, cells: &[usize]) -> Scope {
    let chosen = || cells.iter().map(|&c| &block.cells[c]);
    let signatures = || chosen().filter_map(super::cells::Cell::signature);
    Scope {
        part: block.part,
        effect: block.effect,
        kind: common(signatures().map(|s| s.kind)),
        stage: common(signatures().map(|s| s.stage)),
        chunk: common(signatures().map(|s| s.chunk)),
        dp: common(chosen().map(|c| c.dp)).flatten(),
    }
}

/// The value that all have.
fn common<T: PartialEq>(mut values: impl Iterator<Item = T>) -> Option<T> {
    let first = values.next()?;
    values.all(|v| v == first).then_some(first)
}

/// What a contrast still differs by, given what causes take out of each block's cells.
fn rest(contrast: &Contrast, taken: &[Vec<f64>]) -> f64 {
    let out: f64 = contrast.weights.iter().zip(&taken[contrast.block]).map(|(w, t)| w * t).sum();
    contrast.test.difference - out
}

impl Search {
    /// Causes of a block, as indices into `causes`.
    fn of_block(&self, block: usize) -> Vec<usize> {
        let is = |k: &usize| self.contrasts[self.causes[*k].contrast].block == block;
        (0..self.causes.len()).filter(is).collect()
    }

    /// What the causes of a block take out of its cells' differences.
    fn taken(&self, block: usize) -> Vec<f64> {
        let mut out = vec![0.0; self.blocks[block].difference.len()];
        for k in self.of_block(block) {
            let cause = &self.causes[k];
            for &c in &self.contrasts[cause.contrast].cells {
                out[c] += cause.test.difference;
            }
        }
        out
    }

    /// Finds one cause; `false` if there is none left.
    fn step(&mut self, setting: &Setting<'_>) -> bool {
        let taken: Vec<Vec<f64>> = (0..self.blocks.len()).map(|b| self.taken(b)).collect();
        loop {
            let open: Vec<usize> =
                (0..self.contrasts.len()).filter(|&i| self.contrasts[i].open).collect();
            let left: Vec<f64> = open.iter().map(|&i| rest(&self.contrasts[i], &taken)).collect();
            let p: Vec<f64> =
                open.iter().zip(&left).map(|(&i, &d)| self.contrasts[i].test.p_value(d)).collect();
            let corrected = holm(&p);
            let gain = |k: usize| left[k] * left[k] * self.contrasts[open[k]].precision;
            let best = (0..open.len())
                .filter(|&k| corrected[k] < setting.alpha)
                .max_by(|&x, &y| gain(x).total_cmp(&gain(y)).then(y.cmp(&x)));
            let Some(k) = best else { return false };
            self.contrasts[open[k]].open = false;
            let second = self.second_opinion(open[k], &taken, setting);
            if second.is_some_and(|s| s * self.contrasts.len() as f64 > setting.alpha) {
                continue;
            }
            if self.accept(open[k], (p[k], corrected[k], second), setting) {
                return true;
            }
        }
    }

    /// The permutation p-value of a contrast, what was found taken out.
    fn second_opinion(
        &self,
        contrast: usize,
        taken: &[Vec<f64>],
        setting: &Setting<'_>,
    ) -> Option<f64> {
        let c = &self.contrasts[contrast];
        let out = c.test.difference - rest(c, taken);
        let mut pair = c.pair.clone();
        for v in &mut pair.b {
            *v -= out;
        }
        let least = self.blocks[c.block].block.least;
        permutation(&pair, least, self.contrasts.len(), setting.alpha, setting.seed)
    }

    /// Adds a cause and fits its block again; `false` if it cannot be told from the others.
    fn accept(
        &mut self,
        contrast: usize,
        (p_value, p_corrected, p_permutation): (f64, f64, Option<f64>),
        setting: &Setting<'_>,
    ) -> bool {
        let c = &self.contrasts[contrast];
        let block = c.block;
        self.causes.push(Cause {
            contrast,
            p_value,
            p_corrected,
            p_permutation,
            weights: c.weights.clone(),
            test: c.test,
            unit: c.pair.unit,
            units: (c.pair.a.len(), c.pair.b.len()),
        });
        if !self.fit(block, setting) {
            self.causes.pop();
            self.fit(block, setting);
            return false;
        }
        // One that the others have made superfluous goes, never to return.
        let limit = setting.alpha / self.contrasts.len() as f64;
        let newest = self.causes.len() - 1;
        let superfluous = self
            .of_block(block)
            .into_iter()
            .filter(|&k| k != newest)
            .map(|k| (self.causes[k].test.p_value(self.causes[k].test.difference), k))
            .filter(|(p, _)| *p > limit)
            .max_by(|x, y| x.0.total_cmp(&y.0));
        if let Some((_, k)) = superfluous {
            self.causes.remove(k);
            self.fit(block, setting);
        }
        true
    }

    /// Fits all causes of a block together; `false` if they cannot be told apart.
    fn fit(&mut self, block: usize, setting: &Setting<'_>) -> bool {
        let own = self.of_block(block);
        let analysed = &self.blocks[block];
        let sets: Vec<&[usize]> =
            own.iter().map(|&k| self.contrasts[self.causes[k].contrast].cells.as_slice()).collect();
        let Some(weights) = analysed.covariance.weights(&sets) else { return false };
        for (&k, weights) in own.iter().zip(weights) {
            let pair = analysed.series(&weights, setting);
            let cause = &mut self.causes[k];
            cause.test = compare(&pair.a, &pair.b, analysed.block.least);
            cause.unit = pair.unit;
            cause.units = (pair.a.len(), pair.b.len());
            cause.weights = weights;
        }
        true
    }
}
