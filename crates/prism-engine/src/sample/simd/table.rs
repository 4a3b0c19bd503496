//! Quantile tables laid out for look-up by permutation.

use prism_stats::quantile_table::{OCTAVES, QuantileTable, SideCoefficients};

/// Biased exponent of the highest octave, [2³⁰, 2³¹).
const LAST_EXPONENT: usize = 157;

/// A quantile table in the forms that the instruction sets look up.
#[derive(Clone, Debug, PartialEq)]
#[repr(C, align(64))]
pub(crate) struct PreparedTable {
    /// `[side][constant, slope][exponent mod 32]`.
    pub(crate) full: [SideCoefficients; 2],
    /// The top sixteen octaves: `[constant, slope][16 * side + exponent mod 16]`.
    pub(crate) middle: [[f32; 32]; 2],
    /// The top eight octaves: `[side][constant, slope][exponent mod 8]`.
    pub(crate) top: [[[f32; 8]; 2]; 2],
    pub(crate) scale: [f32; 2],
    /// Whether a scale differs from 1.
    pub(crate) scaled: bool,
}

impl PreparedTable {
    pub(crate) fn new(table: &QuantileTable) -> Self {
        let full = *table.coefficients();
        let (mut middle, mut top) = ([[0.0; 32]; 2], [[[0.0; 8]; 2]; 2]);
        for (side, coefficients) in full.iter().enumerate() {
            for (part, row) in coefficients.iter().enumerate() {
                for e in LAST_EXPONENT - 15..=LAST_EXPONENT {
                    middle[part][16 * side + e % 16] = row[e % OCTAVES];
                }
                for e in LAST_EXPONENT - 7..=LAST_EXPONENT {
                    top[side][part][e % 8] = row[e % OCTAVES];
                }
            }
        }
        let scale = table.scales();
        Self { full, middle, top, scale, scaled: scale != [1.0, 1.0] }
    }
}
