//! Analyses of variance with random effects.

use serde::{Deserialize, Serialize};

use super::f_sf;
use crate::error::{Result, StatsError, check_sample};

/// One line of a table: an effect, its test and its variance.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    /// Sum of squares.
    pub sum_of_squares: f64,
    /// Degrees of freedom.
    pub dof: f64,
    /// F ratio against the effect's own error term; infinite if that is zero.
    pub f: f64,
    /// P(F > f) without the effect.
    pub p_value: f64,
    /// Unbiased estimate of the effect's variance; negative where there is none to be seen.
    pub variance: f64,
}

impl Effect {
    /// Mean square, sum of squares over degrees of freedom.
    pub fn mean_square(&self) -> f64 {
        self.sum_of_squares / self.dof
    }

    /// The s.d. of the effect, zero where the estimated variance is negative.
    pub fn sd(&self) -> f64 {
        self.variance.max(0.0).sqrt()
    }

    fn new((ss, dof): (f64, f64), (error_ss, error_dof): (f64, f64), per_level: f64) -> Self {
        let (mean_square, error) = (ss / dof, error_ss / error_dof);
        let f = mean_square / error;
        Self {
            sum_of_squares: ss,
            dof,
            f,
            p_value: f_sf(f, dof, error_dof),
            variance: (mean_square - error) / per_level,
        }
    }
}

/// A one-way analysis.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct OneWay {
    /// The groups.
    pub groups: Effect,
    /// Sum of squares within groups.
    pub residual_sum_of_squares: f64,
    /// Degrees of freedom within groups.
    pub residual_dof: f64,
}

/// One-way analysis of variance, groups of any sizes; `groups[i]` holds the values of group i.
///
/// The variance of a random group effect is (MSB − MSW)/n₀ with n₀ = (N − Σnᵢ²/N)/(k − 1) (Searle,
/// Variance Components, 3.6).
///
/// # Errors
/// If there are fewer than two groups, one is empty, no group has two values, or a value is not
/// finite.
pub fn one_way(groups: &[&[f64]]) -> Result<OneWay> {
    if groups.len() < 2 {
        return Err(StatsError::TooFew {
            method: "an analysis of variance (groups)",
            have: groups.len(),
            need: 2,
        });
    }
    let n: usize = groups.iter().map(|g| g.len()).sum();
    for g in groups {
        check_sample(g, 1, "a group of an analysis of variance")?;
    }
    if n == groups.len() {
        return Err(StatsError::TooFew {
            method: "an analysis of variance (values)",
            have: n,
            need: n + 1,
        });
    }
    let size = n as f64;
    let grand = groups.iter().flat_map(|g| g.iter()).sum::<f64>() / size;
    let (mut between, mut within, mut squares) = (0.0, 0.0, 0.0);
    for g in groups {
        let count = g.len() as f64;
        let mean = g.iter().sum::<f64>() / count;
        between += count * (mean - grand) * (mean - grand);
        within += g.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>();
        squares += count * count;
    }
    let (dof, residual_dof) = (groups.len() as f64 - 1.0, size - groups.len() as f64);
    let per_level = (size - squares / size) / dof;
    Ok(OneWay {
        groups: Effect::new((between, dof), (within, residual_dof), per_level),
        residual_sum_of_squares: within,
        residual_dof,
    })
}

/// A two-way crossed analysis with random effects.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TwoWay {
    /// The rows.
    pub rows: Effect,
    /// The columns.
    pub columns: Effect,
    /// Their interaction, tested against the residual; none with one value per cell, where it is the
    /// residual.
    pub interaction: Option<Effect>,
    /// Sum of squares of the residual.
    pub residual_sum_of_squares: f64,
    /// Degrees of freedom of the residual.
    pub residual_dof: f64,
}

impl TwoWay {
    /// Variance of the residual.
    pub fn residual_variance(&self) -> f64 {
        self.residual_sum_of_squares / self.residual_dof
    }
}

/// Two-way crossed analysis of variance of a balanced table, both factors random; `cells[i][j]` holds
/// the values of row i and column j, the same number ≥ 1 in each.
///
/// Rows and columns are tested against the interaction (against the residual, which then holds it,
/// with one value per cell); variances follow from the expected mean squares (Searle, 4.3).
///
/// # Errors
/// If there are fewer than two rows or columns, a cell has another number of values than the first, or
/// a value is not finite.
pub fn two_way(cells: &[Vec<Vec<f64>>]) -> Result<TwoWay> {
    let (a, b, r) = check_table(cells)?;
    let (af, bf, rf) = (a as f64, b as f64, r as f64);
    let mean = |c: &[f64]| c.iter().sum::<f64>() / rf;
    let means: Vec<Vec<f64>> =
        cells.iter().map(|row| row.iter().map(|c| mean(c)).collect()).collect();
    let row_means: Vec<f64> = means.iter().map(|row| row.iter().sum::<f64>() / bf).collect();
    let column_means: Vec<f64> =
        (0..b).map(|j| means.iter().map(|row| row[j]).sum::<f64>() / af).collect();
    let grand = row_means.iter().sum::<f64>() / af;
    let square = |v: f64| v * v;
    let rows = bf * rf * row_means.iter().map(|m| square(m - grand)).sum::<f64>();
    let columns = af * rf * column_means.iter().map(|m| square(m - grand)).sum::<f64>();
    let (mut cross, mut within) = (0.0, 0.0);
    for i in 0..a {
        for j in 0..b {
            cross += rf * square(means[i][j] - row_means[i] - column_means[j] + grand);
            within += cells[i][j].iter().map(|v| square(v - means[i][j])).sum::<f64>();
        }
    }
    let cross = (cross, (af - 1.0) * (bf - 1.0));
    let within = (within, af * bf * (rf - 1.0));
    let residual = if r > 1 { within } else { cross };
    Ok(TwoWay {
        rows: Effect::new((rows, af - 1.0), cross, bf * rf),
        columns: Effect::new((columns, bf - 1.0), cross, af * rf),
        interaction: (r > 1).then(|| Effect::new(cross, within, rf)),
        residual_sum_of_squares: residual.0,
        residual_dof: residual.1,
    })
}

/// Numbers of rows, columns and values per cell.
fn check_table(cells: &[Vec<Vec<f64>>]) -> Result<(usize, usize, usize)> {
    let columns = cells.first().map_or(0, Vec::len);
    let have = cells.len().min(columns);
    if have < 2 {
        let method = "a two-way analysis of variance (rows, columns)";
        return Err(StatsError::TooFew { method, have, need: 2 });
    }
    let need = cells[0][0].len().max(1);
    for (i, row) in cells.iter().enumerate() {
        if row.len() != columns {
            return Err(StatsError::LengthMismatch {
                left_name: "a row",
                left: row.len(),
                right_name: "the first row",
                right: columns,
            });
        }
        for (j, cell) in row.iter().enumerate() {
            if cell.len() != need {
                return Err(StatsError::Unbalanced { row: i, column: j, have: cell.len(), need });
            }
            check_sample(cell, 1, "a cell of an analysis of variance")?;
        }
    }
    Ok((cells.len(), columns, need))
}
