//! The law of the one-sample distance for finite n.

use std::f64::consts::PI;

use crate::special::{deviance, stirling_error};

/// Above this n the matrix power gives way to the Pelz-Good expansion.
const EXACT_N: usize = 140;

/// From n·d² = 2.2 on, the two one-sided events are disjoint up to 2e-6 relative.
const ONE_SIDED: f64 = 2.2;

/// P(Dₙ ≤ d) for n independent values of the true continuous law.
///
/// Exact (Marsaglia, Tsang and Wang, J. Stat. Software 8(18), 2003) for n ≤ 140; above, the
/// Pelz-Good expansion (J. R. Stat. Soc. B 38, 1976), within 2e-6 absolute of scipy. The upper tail is
/// twice Smirnov's one-sided law, as Simard and L'Ecuyer (J. Stat. Software 39(11), 2011) advise.
pub fn ks_cdf(n: usize, d: f64) -> f64 {
    if d.is_nan() || n == 0 {
        return f64::NAN;
    }
    let size = n as f64;
    if d <= 0.5 / size {
        return 0.0;
    }
    if d >= 1.0 {
        return 1.0;
    }
    if size * d * d >= ONE_SIDED {
        return 1.0 - 2.0 * one_sided_sf(n, d);
    }
    let p = if n <= EXACT_N { matrix_power(n, d) } else { pelz_good(size, d) };
    p.clamp(0.0, 1.0)
}

/// P(Dₙ > d): the p-value of an observed distance d; keeps its digits far in the tail.
pub fn ks_sf(n: usize, d: f64) -> f64 {
    let size = n as f64;
    if n > 0 && d < 1.0 && size * d * d >= ONE_SIDED {
        return 2.0 * one_sided_sf(n, d);
    }
    1.0 - ks_cdf(n, d)
}

/// Smirnov's law of the one-sided distance, P(D⁺ > d), by its finite sum; above 10,000 values by
/// exp(−(6nd+1)²/(18n)) (Miller, J. Am. Stat. Assoc. 51, 1956).
fn one_sided_sf(n: usize, d: f64) -> f64 {
    let size = n as f64;
    if n > 10_000 {
        let t = 6.0 * size * d + 1.0;
        return (-t * t / (18.0 * size)).exp();
    }
    let last = (size * (1.0 - d)).floor() as usize;
    // The term j = 0 is (1 − d)ⁿ/d.
    let mut sum = (size * (-d).ln_1p()).exp() / d;
    for j in 1..=last {
        let j = j as f64;
        let (up, down) = (d + j / size, 1.0 - d - j / size);
        let term = if j == size || down <= 0.0 {
            // Only reached when n(1 − d) is an integer: 0⁰ for j = n, 0 otherwise.
            if j == size { up.powf(j - 1.0) } else { 0.0 }
        } else {
            // C(n,j) upʲ downⁿ⁻ʲ as a binomial probability in Loader's form.
            let log = stirling_error(size)
                - stirling_error(j)
                - stirling_error(size - j)
                - deviance(j, size * up)
                - deviance(size - j, size * down)
                + 0.5 * (size / (2.0 * PI * j * (size - j))).ln();
            log.exp() / up
        };
        sum += term;
    }
    d * sum
}

/// A square matrix with a power-of-ten exponent taken out.
struct Scaled {
    side: usize,
    entries: Vec<f64>,
    exponent: i32,
}

impl Scaled {
    fn multiply(&self, other: &Self) -> Self {
        let side = self.side;
        let mut entries = vec![0.0; side * side];
        for i in 0..side {
            let row = &mut entries[i * side..(i + 1) * side];
            for (k, &a) in self.entries[i * side..(i + 1) * side].iter().enumerate() {
                for (r, b) in row.iter_mut().zip(&other.entries[k * side..(k + 1) * side]) {
                    *r += a * b;
                }
            }
        }
        let mut exponent = self.exponent + other.exponent;
        if entries[(side / 2) * side + side / 2] > 1e140 {
            for e in &mut entries {
                *e *= 1e-140;
            }
            exponent += 140;
        }
        Self { side, entries, exponent }
    }
}

/// The matrix of Marsaglia, Tsang and Wang for k = ⌊nd⌋ + 1 and h = k − nd.
fn step_matrix(k: usize, h: f64) -> Scaled {
    let side = 2 * k - 1;
    let mut m = vec![0.0; side * side];
    for i in 0..side {
        for j in 0..side {
            if i + 1 >= j {
                m[i * side + j] = 1.0;
            }
        }
    }
    for i in 0..side {
        m[i * side] -= h.powi(i as i32 + 1);
        m[(side - 1) * side + i] -= h.powi((side - i) as i32);
    }
    if 2.0 * h > 1.0 {
        m[(side - 1) * side] += (2.0 * h - 1.0).powi(side as i32);
    }
    for i in 0..side {
        for j in 0..side {
            for g in 2..=(i + 1).saturating_sub(j) {
                m[i * side + j] /= g as f64;
            }
        }
    }
    Scaled { side, entries: m, exponent: 0 }
}

fn matrix_power(n: usize, d: f64) -> f64 {
    let nd = n as f64 * d;
    let k = nd.floor() as usize + 1;
    let mut base = step_matrix(k, k as f64 - nd);
    let side = base.side;
    let mut identity = vec![0.0; side * side];
    for i in 0..side {
        identity[i * side + i] = 1.0;
    }
    let mut power = Scaled { side, entries: identity, exponent: 0 };
    let mut left = n;
    while left > 0 {
        if left & 1 == 1 {
            power = power.multiply(&base);
        }
        left >>= 1;
        if left > 0 {
            base = base.multiply(&base);
        }
    }
    let mut p = power.entries[(k - 1) * side + k - 1];
    let mut exponent = power.exponent;
    for i in 1..=n {
        p *= i as f64 / n as f64;
        if p < 1e-140 {
            p *= 1e140;
            exponent -= 140;
        }
    }
    p * 10f64.powi(exponent)
}

/// The four terms of the expansion, as written out by Simard and L'Ecuyer.
fn pelz_good(n: f64, d: f64) -> f64 {
    let z = d * n.sqrt();
    let (z2, root) = (z * z, (PI / 2.0).sqrt());
    let (z4, z6) = (z2 * z2, z2 * z2 * z2);
    let (mut k0, mut k1, mut k2, mut k3) = (0.0, 0.0, 0.0, 0.0);
    let (mut k2_even, mut k3_even) = (0.0, 0.0);
    for k in 0..=30_u32 {
        // The sums run over all integers; k and −1−k, and k and −k, give equal terms.
        let half = PI * PI * (f64::from(k) + 0.5).powi(2);
        let e = 2.0 * (-half / (2.0 * z2)).exp();
        let (h2, h3) = (half * half, half * half * half);
        k0 += e;
        k1 += (half - z2) * e;
        k2 += (6.0 * z6 + 2.0 * z4 + half * (2.0 * z4 - 5.0 * z2) + h2 * (1.0 - 2.0 * z2)) * e;
        k3 += (h3 * (5.0 - 30.0 * z2)
            + h2 * (212.0 * z4 - 60.0 * z2)
            + half * (135.0 * z4 - 96.0 * z6)
            - (30.0 * z6 + 90.0 * z4 * z4))
            * e;
        let whole = PI * PI * f64::from(k * k);
        let e = 2.0 * (-whole / (2.0 * z2)).exp();
        k2_even += whole * e;
        k3_even += (3.0 * whole * z2 - whole * whole) * e;
    }
    let k0 = root / z * k0;
    let k1 = root / (6.0 * z4) * k1;
    let k2 = root / (72.0 * z6 * z) * k2 - root / (36.0 * z2 * z) * k2_even;
    let k3 = root / (6480.0 * z6 * z4) * k3 + root / (216.0 * z6) * k3_even;
    k0 + k1 / n.sqrt() + k2 / n + k3 / (n * n.sqrt())
}
