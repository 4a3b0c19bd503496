//! Distribution functions of the test statistics. Arguments outside their domain give NaN.

use crate::law::{t_inverse, t_tails};
use crate::root;
use crate::special::{self, Tail, beta_tails, gamma_inverse, gamma_tails};

/// Standard normal P(Z ≤ z).
pub fn normal_cdf(z: f64) -> f64 {
    special::normal_cdf(z)
}

/// Standard normal P(Z > z).
pub fn normal_sf(z: f64) -> f64 {
    special::normal_cdf(-z)
}

/// Standard normal quantile of p in [0, 1].
pub fn normal_quantile(p: f64) -> f64 {
    if (0.0..=1.0).contains(&p) { special::normal_quantile(p) } else { f64::NAN }
}

/// Student's P(T ≤ t) with `dof` degrees of freedom.
pub fn t_cdf(t: f64, dof: f64) -> f64 {
    t_tails(t, dof).0
}

/// Student's P(T > t).
pub fn t_sf(t: f64, dof: f64) -> f64 {
    t_tails(t, dof).1
}

/// Student's P(|T| > |t|), the two-sided p-value.
pub fn t_two_sided(t: f64, dof: f64) -> f64 {
    2.0 * t_tails(t.abs(), dof).1
}

/// Student's quantile of a lower tail p.
pub fn t_quantile(p: f64, dof: f64) -> f64 {
    t_inverse(dof, Tail::Lower(p))
}

/// Student's quantile of an upper tail q.
pub fn t_quantile_upper(q: f64, dof: f64) -> f64 {
    t_inverse(dof, Tail::Upper(q))
}

/// Chi-square P(X ≤ x) with `dof` degrees of freedom.
pub fn chi_square_cdf(x: f64, dof: f64) -> f64 {
    gamma_tails(0.5 * dof, 0.5 * x).0
}

/// Chi-square P(X > x).
pub fn chi_square_sf(x: f64, dof: f64) -> f64 {
    gamma_tails(0.5 * dof, 0.5 * x).1
}

/// Chi-square quantile of a lower tail p.
pub fn chi_square_quantile(p: f64, dof: f64) -> f64 {
    2.0 * gamma_inverse(0.5 * dof, Tail::Lower(p))
}

/// P(F ≤ f) with `dof1` degrees of freedom above and `dof2` below.
pub fn f_cdf(f: f64, dof1: f64, dof2: f64) -> f64 {
    f_tails(f, dof1, dof2).0
}

/// P(F > f).
pub fn f_sf(f: f64, dof1: f64, dof2: f64) -> f64 {
    f_tails(f, dof1, dof2).1
}

fn f_tails(f: f64, dof1: f64, dof2: f64) -> (f64, f64) {
    if f.is_nan() {
        return (f, f);
    }
    if f <= 0.0 {
        return (0.0, 1.0);
    }
    // x = dof1·f/(dof1·f + dof2), by the ratio that cannot overflow.
    let r = dof2 / (dof1 * f);
    beta_tails(
        0.5 * dof1,
        0.5 * dof2,
        1.0 / (1.0 + r),
        if r.is_finite() { r / (1.0 + r) } else { 1.0 },
    )
}

/// The f that F exceeds with probability q in (0, 1).
pub fn f_quantile_upper(q: f64, dof1: f64, dof2: f64) -> f64 {
    if !(q > 0.0 && q < 1.0 && dof1 > 0.0 && dof2 > 0.0) {
        return f64::NAN;
    }
    // In ln f, on the side of the median where the tail is the smaller one.
    let excess = |l: f64| {
        let (below, above) = f_tails(l.exp(), dof1, dof2);
        if q <= 0.5 {
            q.ln() - above.max(1e-320).ln()
        } else {
            below.max(1e-320).ln() - (1.0 - q).ln()
        }
    };
    if excess(0.0) >= 0.0 {
        -root::expanding(|l| -excess(-l), 0.0, 1.0)
    } else {
        root::expanding(excess, 0.0, 1.0)
    }
    .exp()
}
