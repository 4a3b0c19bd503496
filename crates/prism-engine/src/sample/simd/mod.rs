//! Vector operations, once per instruction set, with the same bits from all.
//!
//! Everything the engine computes goes through [`Simd`]. Integer operations agree by nature; floating
//! ones because each is a single correctly rounded operation (addition, multiplication, fused
//! multiply-add, conversion with a defined rounding) or a comparison whose behaviour on ties is
//! defined here. The portable implementation is generic in its width, so that the logic at 16 lanes
//! is tested on machines without AVX-512.

mod fma;
mod portable;
mod table;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
/// The intrinsics that the AVX-512 code uses.
#[cfg(target_arch = "x86_64")]
mod arch512 {
    pub(super) use std::arch::x86_64::*;
}
#[cfg(test)]
mod modelled;

#[cfg(target_arch = "x86_64")]
pub(crate) use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) use avx512::Avx512;
pub(crate) use fma::fma;
#[cfg(test)]
pub(crate) use modelled::Avx512 as Modelled512;
pub(crate) use portable::Portable;
pub(crate) use table::PreparedTable;

use std::fmt;

/// An instruction set the engine has code for. All give the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Isa {
    /// Plain Rust, left to the compiler.
    Portable,
    /// x86-64 with AVX2 and FMA.
    Avx2,
    /// x86-64 with AVX-512 F, BW, DQ and VL.
    Avx512,
}

impl Isa {
    /// All of them, slowest first.
    pub const ALL: [Isa; 3] = [Isa::Portable, Isa::Avx2, Isa::Avx512];

    /// The fastest one that this processor has.
    pub fn detect() -> Self {
        Self::ALL.into_iter().rev().find(|isa| isa.is_available()).unwrap_or(Isa::Portable)
    }

    /// Whether this processor has it.
    pub fn is_available(self) -> bool {
        match self {
            Isa::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => {
                Isa::Avx2.is_available()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
            }
            #[cfg(not(target_arch = "x86_64"))]
            _ => false,
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Isa::Portable => "portable",
            Isa::Avx2 => "AVX2",
            Isa::Avx512 => "AVX-512",
        })
    }
}

/// Vector operations of one instruction set.
///
/// # Safety
/// Every method requires that the processor has the instruction set, and that the caller is compiled
/// for it (or calls from a function that is) so that the intrinsics are inlined. Pointers must be
/// valid for `LANES` elements and aligned to 64 bytes times `LANES`/16.
pub(crate) trait Simd: Copy {
    /// Elements of a vector; divides 16.
    const LANES: usize;
    /// `LANES` single-precision numbers.
    type F: Copy;
    /// `LANES` 32-bit integers.
    type U: Copy;
    /// A quantile table, made ready.
    type Table: Copy;

    unsafe fn load(p: *const f32) -> Self::F;
    unsafe fn store(p: *mut f32, x: Self::F);
    unsafe fn splat(x: f32) -> Self::F;
    unsafe fn add(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn sub(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F;
    /// `a > b ? a : b`: b if either is not a number.
    unsafe fn max(a: Self::F, b: Self::F) -> Self::F;
    /// `a < b ? a : b`.
    unsafe fn min(a: Self::F, b: Self::F) -> Self::F;
    /// a · b + c, rounded once.
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// `x >= t ? a : b`.
    unsafe fn select_ge(x: Self::F, t: Self::F, a: Self::F, b: Self::F) -> Self::F;

    unsafe fn load_u(p: *const f32) -> Self::U;
    unsafe fn store_u(p: *mut f32, x: Self::U);
    unsafe fn splat_u(x: u32) -> Self::U;
    /// `first`, `first + 1`, … modulo 2³².
    unsafe fn count_from(first: u32) -> Self::U;
    unsafe fn add_u(a: Self::U, b: Self::U) -> Self::U;
    /// Low 32 bits of the product.
    unsafe fn mul_u(a: Self::U, b: Self::U) -> Self::U;
    /// High 32 bits of the unsigned product.
    unsafe fn mul_high_u(a: Self::U, b: Self::U) -> Self::U;
    /// `x < t ? a : b`, unsigned.
    unsafe fn select_lt_u(x: Self::U, t: Self::U, a: Self::U, b: Self::U) -> Self::U;
    /// `base[index]`; every index must be valid and below 2³¹.
    unsafe fn gather(base: *const f32, index: Self::U) -> Self::F;
    /// As `gather`, of integers.
    unsafe fn gather_u(base: *const u32, index: Self::U) -> Self::U;

    /// The rest of [`Stream::word`](prism_stats::counter::Stream::word) for counters to which k0 was
    /// added.
    unsafe fn hash(x: Self::U, k1: Self::U) -> Self::U;
    /// [`position`](prism_stats::counter::position).
    unsafe fn position(word: Self::U) -> Self::U;
    /// The word of the antithetic partner: bit 31 flipped.
    unsafe fn partner(word: Self::U) -> Self::U;

    unsafe fn table(table: &PreparedTable) -> Self::Table;
    /// Whether words are drawn for a whole block before any is looked up. It pays where a look-up
    /// branches often on its words: the branch is then resolved before the work behind it has begun.
    const AHEAD: bool;
    /// Whether any word may need more than the quick look-up.
    unsafe fn is_rare<const SCALED: bool>(word: Self::U) -> bool;
    /// [`QuantileTable::value`](prism_stats::QuantileTable::value) of a word. `SCALED` must be set if
    /// the table is scaled, and `rare` if the word is.
    unsafe fn quantile<const SCALED: bool>(
        table: &Self::Table,
        word: Self::U,
        rare: bool,
    ) -> Self::F;
    /// The values of a word and of its partner.
    unsafe fn quantile_pair<const SCALED: bool>(
        table: &Self::Table,
        word: Self::U,
        rare: bool,
    ) -> (Self::F, Self::F);
}

#[cfg(test)]
mod tests;
