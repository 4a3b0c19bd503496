//! AVX-512 instructions in plain Rust, lane by lane, by their definition in the processor manual.
//!
//! The AVX-512 code is compiled a second time over these, so that what it does with the instructions
//! is tested on every machine.

#[derive(Clone, Copy)]
#[repr(C, align(64))]
#[allow(non_camel_case_types)]
pub(crate) struct __m512([f32; 16]);

#[derive(Clone, Copy)]
#[repr(C, align(64))]
#[allow(non_camel_case_types)]
pub(crate) struct __m512i([u32; 16]);

type Mask = u16;

pub(super) const _MM_FROUND_TO_ZERO: i32 = 3;
pub(super) const _MM_FROUND_NO_EXC: i32 = 8;
pub(super) const _CMP_GE_OQ: i32 = 29;

fn floats(f: impl Fn(usize) -> f32) -> __m512 {
    __m512(std::array::from_fn(f))
}

fn words(f: impl Fn(usize) -> u32) -> __m512i {
    __m512i(std::array::from_fn(f))
}

/// From eight 64-bit lanes.
fn longs(f: impl Fn(usize) -> u64) -> __m512i {
    words(|i| (f(i / 2) >> (32 * (i % 2))) as u32)
}

fn long(a: __m512i, i: usize) -> u64 {
    u64::from(a.0[2 * i]) | u64::from(a.0[2 * i + 1]) << 32
}

fn mask(f: impl Fn(usize) -> bool) -> Mask {
    (0..16).fold(0, |m, i| m | Mask::from(f(i)) << i)
}

fn set(m: Mask, i: usize) -> bool {
    m >> i & 1 != 0
}

pub(super) unsafe fn _mm512_load_ps(p: *const f32) -> __m512 {
    assert!((p as usize).is_multiple_of(64), "aligned load");
    floats(|i| unsafe { *p.add(i) })
}
pub(super) unsafe fn _mm512_store_ps(p: *mut f32, a: __m512) {
    assert!((p as usize).is_multiple_of(64), "aligned store");
    unsafe { *p.cast() = a }
}
pub(super) unsafe fn _mm512_load_si512(p: *const __m512i) -> __m512i {
    assert!((p as usize).is_multiple_of(64), "aligned load");
    unsafe { *p }
}
pub(super) unsafe fn _mm512_store_si512(p: *mut __m512i, a: __m512i) {
    assert!((p as usize).is_multiple_of(64), "aligned store");
    unsafe { *p = a }
}
pub(super) unsafe fn _mm512_set1_ps(x: f32) -> __m512 {
    floats(|_| x)
}
pub(super) unsafe fn _mm512_set1_epi32(x: i32) -> __m512i {
    words(|_| x as u32)
}
#[allow(clippy::too_many_arguments)]
pub(super) unsafe fn _mm512_setr_epi32(
    a: i32,
    b: i32,
    c: i32,
    d: i32,
    e: i32,
    f: i32,
    g: i32,
    h: i32,
    i: i32,
    j: i32,
    k: i32,
    l: i32,
    m: i32,
    n: i32,
    o: i32,
    p: i32,
) -> __m512i {
    let all = [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p];
    words(|i| all[i] as u32)
}
pub(super) unsafe fn _mm512_castps_si512(a: __m512) -> __m512i {
    words(|i| a.0[i].to_bits())
}
pub(super) unsafe fn _mm512_castsi512_ps(a: __m512i) -> __m512 {
    floats(|i| f32::from_bits(a.0[i]))
}
pub(super) unsafe fn _mm512_add_ps(a: __m512, b: __m512) -> __m512 {
    floats(|i| a.0[i] + b.0[i])
}
pub(super) unsafe fn _mm512_sub_ps(a: __m512, b: __m512) -> __m512 {
    floats(|i| a.0[i] - b.0[i])
}
pub(super) unsafe fn _mm512_mul_ps(a: __m512, b: __m512) -> __m512 {
    floats(|i| a.0[i] * b.0[i])
}
/// The second operand if either is not a number or both are zeros.
pub(super) unsafe fn _mm512_max_ps(a: __m512, b: __m512) -> __m512 {
    floats(|i| if a.0[i] > b.0[i] { a.0[i] } else { b.0[i] })
}
pub(super) unsafe fn _mm512_min_ps(a: __m512, b: __m512) -> __m512 {
    floats(|i| if a.0[i] < b.0[i] { a.0[i] } else { b.0[i] })
}
pub(super) unsafe fn _mm512_fmadd_ps(a: __m512, b: __m512, c: __m512) -> __m512 {
    floats(|i| a.0[i].mul_add(b.0[i], c.0[i]))
}
pub(super) unsafe fn _mm512_cmp_ps_mask<const OP: i32>(a: __m512, b: __m512) -> Mask {
    assert_eq!(OP, _CMP_GE_OQ);
    mask(|i| a.0[i] >= b.0[i])
}
/// Lanes of b where the mask is set.
pub(super) unsafe fn _mm512_mask_blend_ps(m: Mask, a: __m512, b: __m512) -> __m512 {
    floats(|i| if set(m, i) { b.0[i] } else { a.0[i] })
}
pub(super) unsafe fn _mm512_mask_blend_epi32(m: Mask, a: __m512i, b: __m512i) -> __m512i {
    words(|i| if set(m, i) { b.0[i] } else { a.0[i] })
}
pub(super) unsafe fn _mm512_and_si512(a: __m512i, b: __m512i) -> __m512i {
    words(|i| a.0[i] & b.0[i])
}
pub(super) unsafe fn _mm512_xor_si512(a: __m512i, b: __m512i) -> __m512i {
    words(|i| a.0[i] ^ b.0[i])
}
pub(super) unsafe fn _mm512_add_epi32(a: __m512i, b: __m512i) -> __m512i {
    words(|i| a.0[i].wrapping_add(b.0[i]))
}
pub(super) unsafe fn _mm512_mullo_epi32(a: __m512i, b: __m512i) -> __m512i {
    words(|i| a.0[i].wrapping_mul(b.0[i]))
}
/// The low halves of 64-bit lanes, multiplied to 64 bits.
pub(super) unsafe fn _mm512_mul_epu32(a: __m512i, b: __m512i) -> __m512i {
    longs(|i| (long(a, i) & 0xffff_ffff) * (long(b, i) & 0xffff_ffff))
}
pub(super) unsafe fn _mm512_srli_epi32<const S: u32>(a: __m512i) -> __m512i {
    words(|i| a.0[i] >> S)
}
pub(super) unsafe fn _mm512_slli_epi32<const S: u32>(a: __m512i) -> __m512i {
    words(|i| a.0[i] << S)
}
pub(super) unsafe fn _mm512_srai_epi32<const S: u32>(a: __m512i) -> __m512i {
    words(|i| ((a.0[i] as i32) >> S) as u32)
}
pub(super) unsafe fn _mm512_srli_epi64<const S: u32>(a: __m512i) -> __m512i {
    longs(|i| long(a, i) >> S)
}
pub(super) unsafe fn _mm512_cmplt_epu32_mask(a: __m512i, b: __m512i) -> Mask {
    mask(|i| a.0[i] < b.0[i])
}
/// Lanes whose AND is zero.
pub(super) unsafe fn _mm512_testn_epi32_mask(a: __m512i, b: __m512i) -> Mask {
    mask(|i| a.0[i] & b.0[i] == 0)
}
/// Sign bits.
pub(super) unsafe fn _mm512_movepi32_mask(a: __m512i) -> Mask {
    mask(|i| a.0[i] >> 31 != 0)
}
/// Bit by bit, the entry of the immediate that the bits of a (highest), b and c number.
pub(super) unsafe fn _mm512_ternarylogic_epi32<const IMM: i32>(
    a: __m512i,
    b: __m512i,
    c: __m512i,
) -> __m512i {
    let one = |x: u32, bit: u32| x >> bit & 1;
    words(|i| {
        (0..32).fold(0, |out, bit| {
            let entry = one(a.0[i], bit) << 2 | one(b.0[i], bit) << 1 | one(c.0[i], bit);
            out | one(IMM as u32, entry) << bit
        })
    })
}
/// Bits 0 to 3 of an index number a lane, bit 4 the table.
pub(super) unsafe fn _mm512_permutex2var_ps(a: __m512, index: __m512i, b: __m512) -> __m512 {
    floats(|i| {
        let k = index.0[i] as usize;
        if k & 16 == 0 { a.0[k & 15] } else { b.0[k & 15] }
    })
}
/// Signed conversion, rounded towards zero.
pub(super) unsafe fn _mm512_cvt_roundepi32_ps<const ROUNDING: i32>(a: __m512i) -> __m512 {
    assert_eq!(ROUNDING, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
    floats(|i| {
        let x = a.0[i] as i32;
        let nearest = x as f32;
        // One unit nearer to zero if rounding to nearest went away from it.
        let away = f64::from(nearest).abs() > f64::from(x).abs();
        f32::from_bits(nearest.to_bits() - u32::from(away))
    })
}
pub(super) unsafe fn _mm512_i32gather_ps<const SCALE: i32>(
    index: __m512i,
    base: *const f32,
) -> __m512 {
    let at = |i: usize| index.0[i] as i32 as isize * SCALE as isize;
    floats(|i| unsafe { *base.cast::<u8>().offset(at(i)).cast() })
}
pub(super) unsafe fn _mm512_i32gather_epi32<const SCALE: i32>(
    index: __m512i,
    base: *const i32,
) -> __m512i {
    let at = |i: usize| index.0[i] as i32 as isize * SCALE as isize;
    words(|i| unsafe { *base.cast::<u8>().offset(at(i)).cast() })
}

/// The magnitudes of the AVX-512 path round as the others do.
#[test]
fn conversion_towards_zero() {
    for m in [0, 1, 0x00ff_ffff, 0x0100_0001, 0x01ff_ffff, 0x7fff_ff80, 0x7fff_ffbf, 0x7fff_ffff] {
        let got = unsafe {
            _mm512_cvt_roundepi32_ps::<{ _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC }>(words(|_| m))
        };
        assert_eq!(got.0[5], prism_stats::quantile_table::magnitude(m), "{m:x}");
    }
}
