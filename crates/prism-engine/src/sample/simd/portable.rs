//! Plain Rust over small arrays, which the compiler vectorises as far as the target allows.

use prism_stats::counter::{MULTIPLIERS, SHIFTS, position};
use prism_stats::quantile_table::{OCTAVES, curvature, magnitude};

use super::{PreparedTable, Simd, fma};

/// Vectors of N elements.
#[derive(Clone, Copy)]
pub(crate) struct Portable<const N: usize>;

/// A table by address.
#[derive(Clone, Copy)]
pub(crate) struct TableRef(*const PreparedTable);

#[inline(always)]
fn map<const N: usize, T: Copy, R: Copy>(a: [T; N], zero: R, f: impl Fn(T) -> R) -> [R; N] {
    let mut out = [zero; N];
    for i in 0..N {
        out[i] = f(a[i]);
    }
    out
}

#[inline(always)]
fn zip<const N: usize, T: Copy>(a: [T; N], b: [T; N], f: impl Fn(T, T) -> T) -> [T; N] {
    let mut out = a;
    for i in 0..N {
        out[i] = f(a[i], b[i]);
    }
    out
}

#[inline(always)]
fn pick<const N: usize, T: Copy>(
    x: [T; N],
    t: [T; N],
    a: [T; N],
    b: [T; N],
    chosen: impl Fn(T, T) -> bool,
) -> [T; N] {
    let mut out = a;
    for i in 0..N {
        out[i] = if chosen(x[i], t[i]) { a[i] } else { b[i] };
    }
    out
}

/// The value on one side at an unscaled magnitude.
#[inline(always)]
fn value<const SCALED: bool>(table: &PreparedTable, side: usize, magnitude: f32) -> f32 {
    let x = if SCALED { magnitude * table.scale[side] } else { magnitude };
    let octave = (x.to_bits() >> 23) as usize % OCTAVES;
    let [constant, slope] = &table.full[side];
    let slope = slope[octave];
    fma(fma(curvature(slope), x, slope), x, constant[octave])
}

impl<const N: usize> Simd for Portable<N> {
    const LANES: usize = N;
    type F = [f32; N];
    type U = [u32; N];
    type Table = TableRef;

    #[inline(always)]
    unsafe fn load(p: *const f32) -> [f32; N] {
        unsafe { *p.cast() }
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, x: [f32; N]) {
        unsafe { *p.cast() = x }
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> [f32; N] {
        [x; N]
    }
    #[inline(always)]
    unsafe fn add(a: [f32; N], b: [f32; N]) -> [f32; N] {
        zip(a, b, |a, b| a + b)
    }
    #[inline(always)]
    unsafe fn sub(a: [f32; N], b: [f32; N]) -> [f32; N] {
        zip(a, b, |a, b| a - b)
    }
    #[inline(always)]
    unsafe fn mul(a: [f32; N], b: [f32; N]) -> [f32; N] {
        zip(a, b, |a, b| a * b)
    }
    #[inline(always)]
    unsafe fn max(a: [f32; N], b: [f32; N]) -> [f32; N] {
        zip(a, b, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    unsafe fn min(a: [f32; N], b: [f32; N]) -> [f32; N] {
        zip(a, b, |a, b| if a < b { a } else { b })
    }
    #[inline(always)]
    unsafe fn fma(a: [f32; N], b: [f32; N], c: [f32; N]) -> [f32; N] {
        let mut out = c;
        for i in 0..N {
            out[i] = fma(a[i], b[i], c[i]);
        }
        out
    }
    #[inline(always)]
    unsafe fn select_ge(x: [f32; N], t: [f32; N], a: [f32; N], b: [f32; N]) -> [f32; N] {
        pick(x, t, a, b, |x, t| x >= t)
    }

    #[inline(always)]
    unsafe fn load_u(p: *const f32) -> [u32; N] {
        unsafe { *p.cast() }
    }
    #[inline(always)]
    unsafe fn store_u(p: *mut f32, x: [u32; N]) {
        unsafe { *p.cast() = x }
    }
    #[inline(always)]
    unsafe fn splat_u(x: u32) -> [u32; N] {
        [x; N]
    }
    #[inline(always)]
    unsafe fn count_from(first: u32) -> [u32; N] {
        let mut out = [first; N];
        for (i, x) in out.iter_mut().enumerate() {
            *x = x.wrapping_add(i as u32);
        }
        out
    }
    #[inline(always)]
    unsafe fn add_u(a: [u32; N], b: [u32; N]) -> [u32; N] {
        zip(a, b, u32::wrapping_add)
    }
    #[inline(always)]
    unsafe fn mul_u(a: [u32; N], b: [u32; N]) -> [u32; N] {
        zip(a, b, u32::wrapping_mul)
    }
    #[inline(always)]
    unsafe fn mul_high_u(a: [u32; N], b: [u32; N]) -> [u32; N] {
        zip(a, b, |a, b| ((u64::from(a) * u64::from(b)) >> 32) as u32)
    }
    #[inline(always)]
    unsafe fn select_lt_u(x: [u32; N], t: [u32; N], a: [u32; N], b: [u32; N]) -> [u32; N] {
        pick(x, t, a, b, |x, t| x < t)
    }
    #[inline(always)]
    unsafe fn gather(base: *const f32, index: [u32; N]) -> [f32; N] {
        map(index, 0.0, |i| unsafe { *base.add(i as usize) })
    }
    #[inline(always)]
    unsafe fn gather_u(base: *const u32, index: [u32; N]) -> [u32; N] {
        map(index, 0, |i| unsafe { *base.add(i as usize) })
    }

    #[inline(always)]
    unsafe fn hash(x: [u32; N], k1: [u32; N]) -> [u32; N] {
        zip(x, k1, |x, k1| {
            let x = (x ^ (x >> SHIFTS[0]) ^ k1).wrapping_mul(MULTIPLIERS[0]);
            let x = (x ^ (x >> SHIFTS[1])).wrapping_mul(MULTIPLIERS[1]);
            let x = (x ^ (x >> SHIFTS[2])).wrapping_mul(MULTIPLIERS[2]);
            x ^ (x >> SHIFTS[3])
        })
    }
    #[inline(always)]
    unsafe fn position(word: [u32; N]) -> [u32; N] {
        map(word, 0, position)
    }
    #[inline(always)]
    unsafe fn partner(word: [u32; N]) -> [u32; N] {
        map(word, 0, |w| w ^ 0x8000_0000)
    }

    #[inline(always)]
    unsafe fn table(table: &PreparedTable) -> TableRef {
        TableRef(table)
    }
    const AHEAD: bool = false;
    #[inline(always)]
    unsafe fn is_rare<const SCALED: bool>(_: [u32; N]) -> bool {
        false
    }
    #[inline(always)]
    unsafe fn quantile<const SCALED: bool>(table: &TableRef, word: [u32; N], _: bool) -> [f32; N] {
        let table = unsafe { &*table.0 };
        map(word, 0.0, |w| value::<SCALED>(table, (w >> 31) as usize, magnitude(w & 0x7fff_ffff)))
    }
    #[inline(always)]
    unsafe fn quantile_pair<const SCALED: bool>(
        table: &TableRef,
        word: [u32; N],
        _: bool,
    ) -> ([f32; N], [f32; N]) {
        unsafe {
            let own = Self::quantile::<SCALED>(table, word, false);
            (own, Self::quantile::<SCALED>(table, Self::partner(word), false))
        }
    }
}
