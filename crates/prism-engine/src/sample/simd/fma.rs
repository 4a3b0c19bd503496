//! Fused multiply-add without the instruction.

/// a · b + c, rounded once to single precision.
///
/// Where the target has the instruction this is it. Elsewhere the product is formed exactly in
/// double precision and the sum is rounded *to odd* (Boldo and Melquiond 2008): its last bit is set if
/// anything was lost, which makes the second rounding, to single precision, correct because double
/// precision has more than two extra bits. The form has no branches, so that loops over it vectorise.
#[inline(always)]
pub(crate) fn fma(a: f32, b: f32, c: f32) -> f32 {
    if cfg!(any(target_feature = "fma", target_arch = "aarch64")) {
        a.mul_add(b, c)
    } else {
        fma_by_odd_rounding(a, b, c)
    }
}

#[inline(always)]
pub(crate) fn fma_by_odd_rounding(a: f32, b: f32, c: f32) -> f32 {
    let product = f64::from(a) * f64::from(b);
    let c = f64::from(c);
    let sum = product + c;
    // Knuth's TwoSum: sum + error is exact. Infinities and NaN make the error NaN.
    let virtual_c = sum - product;
    let error = (product - (sum - virtual_c)) + (c - virtual_c);
    // If the sum is even and inexact, its odd neighbour on the error's side is the rounding to odd:
    // one unit further from zero where error and sum have the same sign, else one nearer.
    let bits = sum.to_bits();
    let inexact = u64::from(error < 0.0) | u64::from(error > 0.0);
    let opposed = (error.to_bits() ^ bits) >> 63;
    let move_by = (inexact & !bits & 1).wrapping_mul(1_u64.wrapping_sub(opposed << 1));
    f64::from_bits(bits.wrapping_add(move_by)) as f32
}

#[cfg(test)]
mod tests {
    use super::fma_by_odd_rounding;
    use prism_stats::counter::{Key, Stream};

    fn check(a: f32, b: f32, c: f32) {
        let (got, want) = (fma_by_odd_rounding(a, b, c), a.mul_add(b, c));
        let same = got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan());
        assert!(same, "{a:e} * {b:e} + {c:e}: {got:e}, not {want:e}");
    }

    #[test]
    fn any_bit_patterns() {
        let word = |field, i| f32::from_bits(Stream::new(1, Key::new("fma").with(field)).word(i));
        for i in 0..8_000_000 {
            check(word(0, i), word(1, i), word(2, i));
        }
    }

    /// Sums near a rounding boundary: c cancels most of the product, or is lost in it but for the
    /// last bits.
    #[test]
    fn near_ties_and_cancellation() {
        let stream = |field| Stream::new(2, Key::new("fma").with(field));
        let (sa, sb, sc) = (stream(0), stream(1), stream(2));
        for i in 0..8_000_000 {
            let near_one = |w: u32| f32::from_bits(0x3f80_0000 | (w & 0x007f_ffff));
            let (a, b) = (near_one(sa.word(i)), near_one(sb.word(i)));
            let w = sc.word(i);
            let product = a * b;
            let scale = (((w >> 8) % 60) as f32 - 30.0).exp2();
            let sign = if w & 1 == 0 { 1.0 } else { -1.0 };
            check(a, b, sign * product * scale);
            check(a, b, -f32::from_bits(product.to_bits().wrapping_add((w >> 1) % 5)));
            check(a, b, sign * scale);
        }
    }

    /// Products of few bits, which tie exactly, and results below the normal range.
    #[test]
    fn exact_ties_and_subnormals() {
        let stream = |field| Stream::new(3, Key::new("fma").with(field));
        let (sa, sb, sc) = (stream(0), stream(1), stream(2));
        for i in 0..4_000_000 {
            let few =
                |w: u32| ((w % 4097) as f32 - 2048.0) * (((w >> 16) % 64) as f32 - 32.0).exp2();
            check(few(sa.word(i)), few(sb.word(i)), few(sc.word(i)));
            let tiny = |w: u32| f32::from_bits((w & 0x80ff_ffff) | ((w >> 28) << 23));
            check(tiny(sa.word(i)) * 1e18, tiny(sb.word(i)) * 1e18, tiny(sc.word(i)));
        }
        for x in [0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1.0, f32::MAX] {
            for y in [0.0, -0.0, f32::INFINITY, f32::NAN, -1.0, f32::MIN_POSITIVE] {
                for z in [0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, -1.0, 1e-45] {
                    check(x, y, z);
                }
            }
        }
    }
}
