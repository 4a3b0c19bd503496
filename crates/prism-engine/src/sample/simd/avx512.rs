//! AVX-512 (F, BW, DQ, VL): 16 lanes.
//!
//! `vpermt2ps` looks up 32 entries held in two registers. A plain draw uses one such table per degree
//! for the top sixteen octaves of both sides; a lane is outside them once in 65,536 draws, and then
//! the full table is used. An antithetic pair needs both sides anyway and always uses the full one.

use std::hint::cold_path;

use prism_stats::counter::{MULTIPLIERS, SHIFTS};

use super::Simd;
#[allow(clippy::wildcard_imports)]
use super::arch512::*;
use super::table::PreparedTable;

#[derive(Clone, Copy)]
pub(crate) struct Avx512;

/// A table by address; the compiler keeps its permutation operands in registers over a loop.
#[derive(Clone, Copy)]
pub(crate) struct TableRef(*const PreparedTable);

/// x ^ (x >> S).
#[inline(always)]
unsafe fn xor_shift<const S: u32>(x: __m512i) -> __m512i {
    unsafe { _mm512_xor_si512(x, _mm512_srli_epi32::<S>(x)) }
}

#[inline(always)]
unsafe fn times(x: __m512i, m: u32) -> __m512i {
    unsafe { _mm512_mullo_epi32(x, _mm512_set1_epi32(m as i32)) }
}

/// The magnitude of a word as a float, rounded towards zero.
#[inline(always)]
unsafe fn magnitude(word: __m512i) -> __m512 {
    unsafe {
        let m = _mm512_and_si512(word, _mm512_set1_epi32(0x7fff_ffff));
        _mm512_cvt_roundepi32_ps::<{ _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC }>(m)
    }
}

/// Looks up 32 entries by the low five bits of an index.
#[inline(always)]
unsafe fn look(row: &[f32; 32], entry: __m512i) -> __m512 {
    unsafe {
        let (low, high) = (_mm512_load_ps(row.as_ptr()), _mm512_load_ps(row.as_ptr().add(16)));
        _mm512_permutex2var_ps(low, entry, high)
    }
}

/// constant + (slope + curvature · x) · x.
#[inline(always)]
unsafe fn quadratic(constant: __m512, slope: __m512, x: __m512) -> __m512 {
    unsafe {
        let curvature = _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_castps_si512(slope)));
        _mm512_fmadd_ps(_mm512_fmadd_ps(curvature, x, slope), x, constant)
    }
}

/// Evaluates one side in any octave.
#[inline(always)]
unsafe fn side(t: &PreparedTable, side: usize, x: __m512) -> __m512 {
    unsafe {
        let octave = _mm512_srli_epi32::<23>(_mm512_castps_si512(x));
        let [constant, slope] = &t.full[side];
        quadratic(look(constant, octave), look(slope, octave), x)
    }
}

/// Magnitudes in the coordinates of the lower and of the upper side.
#[inline(always)]
unsafe fn both<const SCALED: bool>(t: &PreparedTable, x: __m512) -> (__m512, __m512) {
    if !SCALED {
        return (x, x);
    }
    unsafe {
        let [lower, upper] = t.scale;
        (_mm512_mul_ps(x, _mm512_set1_ps(lower)), _mm512_mul_ps(x, _mm512_set1_ps(upper)))
    }
}

impl Simd for Avx512 {
    const LANES: usize = 16;
    type F = __m512;
    type U = __m512i;
    type Table = TableRef;

    #[inline(always)]
    unsafe fn load(p: *const f32) -> __m512 {
        unsafe { _mm512_load_ps(p) }
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, x: __m512) {
        unsafe { _mm512_store_ps(p, x) }
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> __m512 {
        unsafe { _mm512_set1_ps(x) }
    }
    #[inline(always)]
    unsafe fn add(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_add_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn sub(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_sub_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn mul(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_mul_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn max(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_max_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn min(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_min_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn fma(a: __m512, b: __m512, c: __m512) -> __m512 {
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    unsafe fn select_ge(x: __m512, t: __m512, a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_GE_OQ>(x, t), b, a) }
    }

    #[inline(always)]
    unsafe fn load_u(p: *const f32) -> __m512i {
        unsafe { _mm512_load_si512(p.cast()) }
    }
    #[inline(always)]
    unsafe fn store_u(p: *mut f32, x: __m512i) {
        unsafe { _mm512_store_si512(p.cast(), x) }
    }
    #[inline(always)]
    unsafe fn splat_u(x: u32) -> __m512i {
        unsafe { _mm512_set1_epi32(x as i32) }
    }
    #[inline(always)]
    unsafe fn count_from(first: u32) -> __m512i {
        unsafe {
            let lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
            _mm512_add_epi32(Self::splat_u(first), lanes)
        }
    }
    #[inline(always)]
    unsafe fn add_u(a: __m512i, b: __m512i) -> __m512i {
        unsafe { _mm512_add_epi32(a, b) }
    }
    #[inline(always)]
    unsafe fn mul_u(a: __m512i, b: __m512i) -> __m512i {
        unsafe { _mm512_mullo_epi32(a, b) }
    }
    #[inline(always)]
    unsafe fn mul_high_u(a: __m512i, b: __m512i) -> __m512i {
        unsafe {
            let even = _mm512_mul_epu32(a, b);
            let odd = _mm512_mul_epu32(_mm512_srli_epi64::<32>(a), _mm512_srli_epi64::<32>(b));
            _mm512_mask_blend_epi32(0xaaaa, _mm512_srli_epi64::<32>(even), odd)
        }
    }
    #[inline(always)]
    unsafe fn select_lt_u(x: __m512i, t: __m512i, a: __m512i, b: __m512i) -> __m512i {
        unsafe { _mm512_mask_blend_epi32(_mm512_cmplt_epu32_mask(x, t), b, a) }
    }
    #[inline(always)]
    unsafe fn gather(base: *const f32, index: __m512i) -> __m512 {
        unsafe { _mm512_i32gather_ps::<4>(index, base.cast()) }
    }
    #[inline(always)]
    unsafe fn gather_u(base: *const u32, index: __m512i) -> __m512i {
        unsafe { _mm512_i32gather_epi32::<4>(index, base.cast()) }
    }

    #[inline(always)]
    unsafe fn hash(x: __m512i, k1: __m512i) -> __m512i {
        unsafe {
            let x = _mm512_xor_si512(xor_shift::<{ SHIFTS[0] }>(x), k1);
            let x = xor_shift::<{ SHIFTS[1] }>(times(x, MULTIPLIERS[0]));
            let x = xor_shift::<{ SHIFTS[2] }>(times(x, MULTIPLIERS[1]));
            xor_shift::<{ SHIFTS[3] }>(times(x, MULTIPLIERS[2]))
        }
    }
    #[inline(always)]
    unsafe fn position(word: __m512i) -> __m512i {
        unsafe {
            let mirror = _mm512_srli_epi32::<1>(_mm512_srai_epi32::<31>(word));
            _mm512_xor_si512(word, mirror)
        }
    }
    #[inline(always)]
    unsafe fn partner(word: __m512i) -> __m512i {
        unsafe { _mm512_xor_si512(word, _mm512_set1_epi32(i32::MIN)) }
    }

    #[inline(always)]
    unsafe fn table(table: &PreparedTable) -> TableRef {
        TableRef(table)
    }
    const AHEAD: bool = false;
    #[inline(always)]
    unsafe fn is_rare<const SCALED: bool>(word: __m512i) -> bool {
        // The top sixteen octaves begin at 2¹⁵; scaling can halve a magnitude.
        let high = if SCALED { 0x7fff_0000 } else { 0x7fff_8000 };
        unsafe { _mm512_testn_epi32_mask(word, _mm512_set1_epi32(high)) != 0 }
    }
    #[inline(always)]
    unsafe fn quantile<const SCALED: bool>(table: &TableRef, word: __m512i, rare: bool) -> __m512 {
        unsafe {
            let t = &*table.0;
            let mut x = magnitude(word);
            if SCALED {
                let (lower, upper) = (_mm512_set1_ps(t.scale[0]), _mm512_set1_ps(t.scale[1]));
                x = _mm512_mul_ps(
                    x,
                    _mm512_mask_blend_ps(_mm512_movepi32_mask(word), lower, upper),
                );
            }
            let bits = _mm512_castps_si512(x);
            if rare {
                cold_path();
                let (x0, x1) = both::<SCALED>(t, magnitude(word));
                let upper = _mm512_movepi32_mask(word);
                return _mm512_mask_blend_ps(upper, side(t, 0, x0), side(t, 1, x1));
            }
            // Low four bits from the exponent, the fifth is the side: `low ? exponent : word >> 27`.
            let entry = _mm512_ternarylogic_epi32::<0xca>(
                _mm512_set1_epi32(15),
                _mm512_srli_epi32::<23>(bits),
                _mm512_srli_epi32::<27>(word),
            );
            let [constant, slope] = &t.middle;
            quadratic(look(constant, entry), look(slope, entry), x)
        }
    }
    #[inline(always)]
    unsafe fn quantile_pair<const SCALED: bool>(
        table: &TableRef,
        word: __m512i,
        _: bool,
    ) -> (__m512, __m512) {
        unsafe {
            let t = &*table.0;
            let (x0, x1) = both::<SCALED>(t, magnitude(word));
            let (lower, upper) = (side(t, 0, x0), side(t, 1, x1));
            let upper_side = _mm512_movepi32_mask(word);
            (
                _mm512_mask_blend_ps(upper_side, lower, upper),
                _mm512_mask_blend_ps(upper_side, upper, lower),
            )
        }
    }
}
