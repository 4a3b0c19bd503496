//! Weights that separate a change of some cells from what all cells do together.
//!
//! The differences of a block's cells, B less A, have covariance
//! `common·11ᵀ + Σ replica·1ᵣ1ᵣᵀ + diag(own)`: steps move all cells together, the microbatches of a
//! replica move all of its cells together (forward and backward, on all stages), and each moves on its
//! own. The best linear unbiased estimate of a change that a set of cells shares is generalised least
//! squares under that covariance: where a common part is large it compares the set with other cells of
//! the same step and replica, where it is small it takes the set as it is.

use std::collections::BTreeMap;

use super::cells::Block;
use super::units::{median, moments};

/// Covariance of the cells of a block in one step.
#[derive(Clone, Debug)]
pub(super) struct Covariance {
    common: f64,
    replica: f64,
    own: Vec<f64>,
    /// Cells of each replica; empty where replicas cannot be told from the whole.
    groups: Vec<Vec<usize>>,
}

/// Least share of the median cell's variance that a cell is taken to have, so that no weight rests on
/// a cell that happened not to vary.
const LEAST_OWN: f64 = 0.25;

/// A centre of values that one of many that differ does not move: the median; the mean of two.
fn centre(mut values: Vec<f64>) -> f64 {
    median(&mut values)
}

/// Variance of the centre of n values of variance 1.
fn centre_variance(n: usize) -> f64 {
    let n = n.max(1) as f64;
    // A median of many has π/2n.
    if n > 2.0 { std::f64::consts::FRAC_PI_2 / n } else { 1.0 / n }
}

fn groups(block: &Block) -> Vec<Vec<usize>> {
    let mut by_replica: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (i, cell) in block.cells.iter().enumerate() {
        let Some(dp) = cell.dp else { return Vec::new() };
        by_replica.entry(dp).or_default().push(i);
    }
    let whole = by_replica.len() < 2 || by_replica.values().any(|g| g.len() < 2);
    if whole { Vec::new() } else { by_replica.into_values().collect() }
}

impl Covariance {
    /// Estimated from what is left of both sides' steps after each side's mean: robustly, by medians
    /// over cells for the common parts.
    pub(super) fn of(block: &Block) -> Covariance {
        let n = block.cells.len();
        let groups = groups(block);
        let less_mean = |l: &Vec<f64>| -> Vec<f64> {
            let mean = moments(l).0;
            l.iter().map(|v| v - mean).collect()
        };
        let (mut own, mut common, mut replica) = (vec![0.0; n], 0.0, 0.0);
        let mut freedom = 0.0;
        for lanes in [&block.a, &block.b] {
            let side: Vec<Vec<f64>> = lanes.iter().map(less_mean).collect();
            let steps = side.first().map_or(0, Vec::len);
            for t in 0..steps {
                let whole = centre(side.iter().map(|l| l[t]).collect());
                common += whole * whole;
                let mut rest: Vec<f64> = side.iter().map(|l| l[t] - whole).collect();
                for group in &groups {
                    let part = centre(group.iter().map(|&c| rest[c]).collect());
                    replica += part * part / groups.len() as f64;
                    for &c in group {
                        rest[c] -= part;
                    }
                }
                own.iter_mut().zip(&rest).for_each(|(o, r)| *o += r * r);
            }
            freedom += steps as f64 - 1.0;
        }
        let freedom = f64::max(freedom, 1.0);
        let floor = block.least * block.least;
        if n == 1 {
            let own = vec![(common / freedom).max(floor)];
            return Covariance { common: 0.0, replica: 0.0, own, groups };
        }
        // Centres took a degree of freedom of each group, or of the whole.
        let size = groups.first().map_or(n, Vec::len);
        let scale = size as f64 / (size as f64 - 1.0) / freedom;
        for o in &mut own {
            *o *= scale;
        }
        let least = LEAST_OWN * median(&mut own.clone());
        for o in &mut own {
            *o = o.max(least).max(floor);
        }
        let mean_own = own.iter().sum::<f64>() / n as f64;
        let count = groups.len().max(1) as f64;
        let replica = if groups.is_empty() {
            0.0
        } else {
            let seen = replica / freedom * count / (count - 1.0);
            (seen - mean_own * centre_variance(size)).max(0.0)
        };
        let noise = mean_own * centre_variance(n) + replica / count;
        Covariance { common: (common / freedom - noise).max(0.0), replica, own, groups }
    }

    /// Inverse of the covariance without the common part times a vector (Sherman and Morrison).
    fn solve_apart(&self, x: &[f64]) -> Vec<f64> {
        let mut out: Vec<f64> = x.iter().zip(&self.own).map(|(x, o)| x / o).collect();
        if self.replica > 0.0 {
            for group in &self.groups {
                let precision: f64 = group.iter().map(|&c| 1.0 / self.own[c]).sum();
                let sum: f64 = group.iter().map(|&c| out[c]).sum();
                let shared = sum / (1.0 / self.replica + precision);
                for &c in group {
                    out[c] -= shared / self.own[c];
                }
            }
        }
        out
    }

    /// Inverse covariance times a vector.
    pub(super) fn solve(&self, x: &[f64]) -> Vec<f64> {
        let mut out = self.solve_apart(x);
        if self.common > 0.0 {
            let ones = self.solve_apart(&vec![1.0; x.len()]);
            let shared = out.iter().sum::<f64>() / (1.0 / self.common + ones.iter().sum::<f64>());
            out.iter_mut().zip(&ones).for_each(|(o, one)| *o -= shared * one);
        }
        out
    }

    /// Weights of the cells in the estimate of each set's change, all sets fitted together, `[set][cell]`;
    /// and the precision of the first. `None` if the sets are not told apart.
    pub(super) fn weights(&self, sets: &[&[usize]]) -> Option<Vec<Vec<f64>>> {
        let n = self.own.len();
        let solved: Vec<Vec<f64>> = sets
            .iter()
            .map(|set| {
                let mut x = vec![0.0; n];
                for &c in *set {
                    x[c] = 1.0;
                }
                self.solve(&x)
            })
            .collect();
        let k = sets.len();
        let mut information = vec![0.0; k * k];
        for i in 0..k {
            for j in 0..k {
                information[i * k + j] = sets[j].iter().map(|&c| solved[i][c]).sum();
            }
        }
        let inverse = invert(information, k)?;
        let row = |i: usize| {
            let combine = |c: usize| (0..k).map(|j| inverse[i * k + j] * solved[j][c]).sum();
            (0..n).map(combine).collect()
        };
        Some((0..k).map(row).collect())
    }

    /// Precision of a set's change if nothing else changed.
    pub(super) fn precision(&self, set: &[usize]) -> f64 {
        let mut x = vec![0.0; self.own.len()];
        for &c in set {
            x[c] = 1.0;
        }
        let solved = self.solve(&x);
        set.iter().map(|&c| solved[c]).sum()
    }
}

/// Inverse of a k x k matrix by Gauss and Jordan with pivoting; `None` if it is singular.
fn invert(mut a: Vec<f64>, k: usize) -> Option<Vec<f64>> {
    let largest = a.iter().fold(0.0_f64, |m, v| m.max(v.abs()));
    let mut inverse: Vec<f64> =
        (0..k * k).map(|i| if i / k == i % k { 1.0 } else { 0.0 }).collect();
    for column in 0..k {
        let pivot = (column..k)
            .max_by(|&i, &j| a[i * k + column].abs().total_cmp(&a[j * k + column].abs()))?;
        if a[pivot * k + column].abs() <= 1e-10 * largest {
            return None;
        }
        for j in 0..k {
            a.swap(column * k + j, pivot * k + j);
            inverse.swap(column * k + j, pivot * k + j);
        }
        let scale = 1.0 / a[column * k + column];
        for j in 0..k {
            a[column * k + j] *= scale;
            inverse[column * k + j] *= scale;
        }
        for i in (0..k).filter(|i| *i != column) {
            let factor = a[i * k + column];
            for j in 0..k {
                a[i * k + j] -= factor * a[column * k + j];
                inverse[i * k + j] -= factor * inverse[column * k + j];
            }
        }
    }
    Some(inverse)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn solving_is_multiplying_by_the_inverse() {
        let own = vec![1.0, 2.0, 0.5, 3.0];
        let groups = vec![vec![0, 2], vec![1, 3]];
        let covariance = Covariance { common: 0.7, replica: 1.3, own, groups };
        let x = [1.0, -2.0, 3.0, 0.5];
        let y = covariance.solve(&x);
        for (i, &x) in x.iter().enumerate() {
            let entry = |j: usize| {
                0.7 + if i % 2 == j % 2 { 1.3 } else { 0.0 }
                    + if i == j { covariance.own[i] } else { 0.0 }
            };
            let back: f64 = (0..4).map(|j| entry(j) * y[j]).sum();
            assert!((back - x).abs() < 1e-12, "{back}");
        }
    }

    #[test]
    fn weights_find_what_changed() {
        // A large common part: a set is compared with the rest, and everything else with itself.
        let covariance =
            Covariance { common: 1e6, replica: 0.0, own: vec![1.0; 4], groups: Vec::new() };
        let w = covariance.weights(&[&[0]]).unwrap();
        assert!((w[0][0] - 1.0).abs() < 1e-12 && (w[0][1] + 1.0 / 3.0).abs() < 1e-5, "{w:?}");
        // Several sets are fitted together: each set's weights see 1 of it and nothing of the others.
        let sets: [&[usize]; 2] = [&[0, 1, 2, 3], &[1, 2]];
        let w = covariance.weights(&sets).unwrap();
        for (i, row) in w.iter().enumerate() {
            for (j, set) in sets.iter().enumerate() {
                let seen: f64 = set.iter().map(|&c| row[c]).sum();
                assert!((seen - f64::from(u8::from(i == j))).abs() < 1e-6, "{i} {j} {seen}");
            }
        }
        assert!(covariance.weights(&[&[0], &[0]]).is_none());
    }
}
