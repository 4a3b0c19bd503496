//! AVX2 and FMA: 8 lanes.
//!
//! `vpermps` looks up 8 entries by the low three bits of an index, and the low three bits of the
//! exponent name one of the top eight octaves of a side. All eight lanes of a vector are in those
//! octaves 97 % of the time; the rest is gathered from the full table.

#[allow(clippy::wildcard_imports)]
use std::arch::x86_64::*;
use std::hint::cold_path;

use prism_stats::counter::{MULTIPLIERS, SHIFTS};
use prism_stats::quantile_table::OCTAVES;

use super::Simd;
use super::table::PreparedTable;

/// Floats of one side of a full table.
const SIDE: i32 = 2 * OCTAVES as i32;

#[derive(Clone, Copy)]
pub(crate) struct Avx2;

/// A table by address; its permutation operands stay in memory or registers as the compiler likes.
#[derive(Clone, Copy)]
pub(crate) struct TableRef(*const PreparedTable);

/// x ^ (x >> S).
#[inline(always)]
unsafe fn xor_shift<const S: i32>(x: __m256i) -> __m256i {
    unsafe { _mm256_xor_si256(x, _mm256_srli_epi32::<S>(x)) }
}

#[inline(always)]
unsafe fn times(x: __m256i, m: u32) -> __m256i {
    unsafe { _mm256_mullo_epi32(x, _mm256_set1_epi32(m as i32)) }
}

/// The magnitude of a word as a float, rounded towards zero.
#[inline(always)]
unsafe fn magnitude(word: __m256i) -> __m256 {
    unsafe {
        let m = _mm256_and_si256(word, _mm256_set1_epi32(0x7fff_ffff));
        _mm256_cvtepi32_ps(_mm256_andnot_si256(_mm256_srli_epi32::<24>(m), m))
    }
}

/// Looks up 8 entries by the low three bits of an index.
#[inline(always)]
unsafe fn look(row: &[f32; 8], entry: __m256i) -> __m256 {
    unsafe { _mm256_permutevar8x32_ps(_mm256_load_ps(row.as_ptr()), entry) }
}

/// constant + (slope + curvature · x) · x.
#[inline(always)]
unsafe fn quadratic(constant: __m256, slope: __m256, x: __m256) -> __m256 {
    unsafe {
        let curvature = _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_castps_si256(slope)));
        _mm256_fmadd_ps(_mm256_fmadd_ps(curvature, x, slope), x, constant)
    }
}

/// Evaluates one side in its top eight octaves.
#[inline(always)]
unsafe fn top(t: &PreparedTable, side: usize, x: __m256) -> __m256 {
    unsafe {
        let octave = _mm256_srli_epi32::<23>(_mm256_castps_si256(x));
        let [constant, slope] = &t.top[side];
        quadratic(look(constant, octave), look(slope, octave), x)
    }
}

/// Any octave, by gathers.
#[inline(always)]
unsafe fn full(t: &PreparedTable, word: __m256i, x: __m256) -> __m256 {
    unsafe {
        let octave = _mm256_srli_epi32::<23>(_mm256_castps_si256(x));
        let octave = _mm256_and_si256(octave, _mm256_set1_epi32(OCTAVES as i32 - 1));
        let upper = _mm256_and_si256(_mm256_srai_epi32::<31>(word), _mm256_set1_epi32(SIDE));
        let entry = _mm256_add_epi32(octave, upper);
        let base = t.full.as_ptr().cast::<f32>();
        let constant = _mm256_i32gather_ps::<4>(base, entry);
        quadratic(constant, _mm256_i32gather_ps::<4>(base.add(OCTAVES), entry), x)
    }
}

/// The magnitude in the coordinate of its side.
#[inline(always)]
unsafe fn scaled<const SCALED: bool>(t: &PreparedTable, x: __m256, word: __m256i) -> __m256 {
    if !SCALED {
        return x;
    }
    unsafe {
        let (lower, upper) = (_mm256_set1_ps(t.scale[0]), _mm256_set1_ps(t.scale[1]));
        _mm256_mul_ps(x, _mm256_blendv_ps(lower, upper, _mm256_castsi256_ps(word)))
    }
}

impl Simd for Avx2 {
    const LANES: usize = 8;
    type F = __m256;
    type U = __m256i;
    type Table = TableRef;

    #[inline(always)]
    unsafe fn load(p: *const f32) -> __m256 {
        unsafe { _mm256_load_ps(p) }
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, x: __m256) {
        unsafe { _mm256_store_ps(p, x) }
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> __m256 {
        unsafe { _mm256_set1_ps(x) }
    }
    #[inline(always)]
    unsafe fn add(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_add_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn sub(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_sub_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn mul(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_mul_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn max(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_max_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn min(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_min_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn fma(a: __m256, b: __m256, c: __m256) -> __m256 {
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    unsafe fn select_ge(x: __m256, t: __m256, a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_blendv_ps(b, a, _mm256_cmp_ps::<_CMP_GE_OQ>(x, t)) }
    }

    #[inline(always)]
    unsafe fn load_u(p: *const f32) -> __m256i {
        unsafe { _mm256_load_si256(p.cast()) }
    }
    #[inline(always)]
    unsafe fn store_u(p: *mut f32, x: __m256i) {
        unsafe { _mm256_store_si256(p.cast(), x) }
    }
    #[inline(always)]
    unsafe fn splat_u(x: u32) -> __m256i {
        unsafe { _mm256_set1_epi32(x as i32) }
    }
    #[inline(always)]
    unsafe fn count_from(first: u32) -> __m256i {
        unsafe { _mm256_add_epi32(Self::splat_u(first), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)) }
    }
    #[inline(always)]
    unsafe fn add_u(a: __m256i, b: __m256i) -> __m256i {
        unsafe { _mm256_add_epi32(a, b) }
    }
    #[inline(always)]
    unsafe fn mul_u(a: __m256i, b: __m256i) -> __m256i {
        unsafe { _mm256_mullo_epi32(a, b) }
    }
    #[inline(always)]
    unsafe fn mul_high_u(a: __m256i, b: __m256i) -> __m256i {
        unsafe {
            let even = _mm256_mul_epu32(a, b);
            let odd = _mm256_mul_epu32(_mm256_srli_epi64::<32>(a), _mm256_srli_epi64::<32>(b));
            _mm256_blend_epi32::<0xaa>(_mm256_srli_epi64::<32>(even), odd)
        }
    }
    #[inline(always)]
    unsafe fn select_lt_u(x: __m256i, t: __m256i, a: __m256i, b: __m256i) -> __m256i {
        unsafe {
            let sign = _mm256_set1_epi32(i32::MIN);
            let less = _mm256_cmpgt_epi32(_mm256_xor_si256(t, sign), _mm256_xor_si256(x, sign));
            _mm256_blendv_epi8(b, a, less)
        }
    }
    #[inline(always)]
    unsafe fn gather(base: *const f32, index: __m256i) -> __m256 {
        unsafe { _mm256_i32gather_ps::<4>(base, index) }
    }
    #[inline(always)]
    unsafe fn gather_u(base: *const u32, index: __m256i) -> __m256i {
        unsafe { _mm256_i32gather_epi32::<4>(base.cast(), index) }
    }

    #[inline(always)]
    unsafe fn hash(x: __m256i, k1: __m256i) -> __m256i {
        unsafe {
            let x = _mm256_xor_si256(xor_shift::<{ SHIFTS[0] as i32 }>(x), k1);
            let x = xor_shift::<{ SHIFTS[1] as i32 }>(times(x, MULTIPLIERS[0]));
            let x = xor_shift::<{ SHIFTS[2] as i32 }>(times(x, MULTIPLIERS[1]));
            xor_shift::<{ SHIFTS[3] as i32 }>(times(x, MULTIPLIERS[2]))
        }
    }
    #[inline(always)]
    unsafe fn position(word: __m256i) -> __m256i {
        unsafe {
            let mirror = _mm256_srli_epi32::<1>(_mm256_srai_epi32::<31>(word));
            _mm256_xor_si256(word, mirror)
        }
    }
    #[inline(always)]
    unsafe fn partner(word: __m256i) -> __m256i {
        unsafe { _mm256_xor_si256(word, _mm256_set1_epi32(i32::MIN)) }
    }

    #[inline(always)]
    unsafe fn table(table: &PreparedTable) -> TableRef {
        TableRef(table)
    }
    const AHEAD: bool = true;
    #[inline(always)]
    unsafe fn is_rare<const SCALED: bool>(word: __m256i) -> bool {
        // The top eight octaves begin at 2²³; scaling can halve a magnitude.
        let high = if SCALED { 0x7f00_0000 } else { 0x7f80_0000 };
        unsafe {
            let bits = _mm256_and_si256(word, _mm256_set1_epi32(high));
            let rare = _mm256_cmpeq_epi32(bits, _mm256_setzero_si256());
            _mm256_movemask_ps(_mm256_castsi256_ps(rare)) != 0
        }
    }
    #[inline(always)]
    unsafe fn quantile<const SCALED: bool>(table: &TableRef, word: __m256i, rare: bool) -> __m256 {
        unsafe {
            let t = &*table.0;
            let x = scaled::<SCALED>(t, magnitude(word), word);
            if rare {
                cold_path();
                return full(t, word, x);
            }
            let octave = _mm256_srli_epi32::<23>(_mm256_castps_si256(x));
            let ([c0, s0], [c1, s1]) = (&t.top[0], &t.top[1]);
            let side = _mm256_castsi256_ps(word);
            let constant = _mm256_blendv_ps(look(c0, octave), look(c1, octave), side);
            let slope = _mm256_blendv_ps(look(s0, octave), look(s1, octave), side);
            quadratic(constant, slope, x)
        }
    }
    #[inline(always)]
    unsafe fn quantile_pair<const SCALED: bool>(
        table: &TableRef,
        word: __m256i,
        rare: bool,
    ) -> (__m256, __m256) {
        unsafe {
            let t = &*table.0;
            let x = magnitude(word);
            let (x0, x1) = if SCALED {
                (
                    _mm256_mul_ps(x, _mm256_set1_ps(t.scale[0])),
                    _mm256_mul_ps(x, _mm256_set1_ps(t.scale[1])),
                )
            } else {
                (x, x)
            };
            if rare {
                cold_path();
                let side = _mm256_castsi256_ps(word);
                let (own, other) = (_mm256_blendv_ps(x0, x1, side), _mm256_blendv_ps(x1, x0, side));
                return (full(t, word, own), full(t, Self::partner(word), other));
            }
            let (lower, upper) = (top(t, 0, x0), top(t, 1, x1));
            let side = _mm256_castsi256_ps(word);
            (_mm256_blendv_ps(lower, upper, side), _mm256_blendv_ps(upper, lower, side))
        }
    }
}
