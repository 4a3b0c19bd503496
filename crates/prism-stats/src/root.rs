//! A bracketing root finder for the inverses that have no closed form.

/// Largest number of function evaluations before the bracket's best end is returned.
const MAX_EVALUATIONS: usize = 200;

/// Root of `f` between `a` and `b`, where `f` changes sign, by Chandrupatla's method
/// (Advances in Engineering Software 28, 1997): inverse quadratic interpolation where it is safe,
/// bisection elsewhere. Stops at a relative tolerance of about 4 ulp in the argument.
///
/// Where the signs at the ends agree, the end with the smaller magnitude is returned, so that a
/// root just outside a bracket through rounding still gives its neighbour.
pub(crate) fn bracketed(mut f: impl FnMut(f64) -> f64, a: f64, b: f64) -> f64 {
    let (mut x1, mut x2) = (b, a);
    let (mut f1, mut f2) = (f(x1), f(x2));
    if f1.signum() == f2.signum() || f1 == 0.0 || f2 == 0.0 {
        return if f1.abs() < f2.abs() { x1 } else { x2 };
    }
    let mut t = 0.5;
    for _ in 0..MAX_EVALUATIONS {
        let x = x1 + t * (x2 - x1);
        let fx = f(x);
        let (x3, f3);
        if fx.signum() == f1.signum() {
            (x3, f3) = (x1, f1);
        } else {
            (x3, f3) = (x2, f2);
            (x2, f2) = (x1, f1);
        }
        (x1, f1) = (x, fx);
        let (best, f_best) = if f1.abs() < f2.abs() { (x1, f1) } else { (x2, f2) };
        let tolerance = 2.0 * f64::EPSILON * best.abs() + f64::MIN_POSITIVE;
        let limit = tolerance / (x2 - x1).abs();
        if limit > 0.5 || f_best == 0.0 {
            return best;
        }
        let xi = (x1 - x2) / (x3 - x2);
        let phi = (f1 - f2) / (f3 - f2);
        t = if phi * phi < xi && (1.0 - phi) * (1.0 - phi) < 1.0 - xi {
            f1 / (f2 - f1) * f3 / (f2 - f3)
                + (x3 - x1) / (x2 - x1) * f1 / (f3 - f1) * f2 / (f3 - f2)
        } else {
            0.5
        };
        t = t.clamp(limit, 1.0 - limit);
    }
    if f1.abs() < f2.abs() { x1 } else { x2 }
}

/// Root of an increasing `f` on `[start, ∞)`: doubles the reach from `start + reach` until the sign
/// changes, then brackets. Gives infinity where no sign change is found.
pub(crate) fn expanding(mut f: impl FnMut(f64) -> f64, start: f64, reach: f64) -> f64 {
    let (mut low, mut span) = (start, reach);
    for _ in 0..1100 {
        let high = start + span;
        if !high.is_finite() {
            return f64::INFINITY;
        }
        if f(high) >= 0.0 {
            return bracketed(f, low, high);
        }
        low = high;
        span *= 2.0;
    }
    f64::INFINITY
}

#[cfg(test)]
mod tests {
    use super::{bracketed, expanding};

    #[test]
    fn finds_roots_of_smooth_flat_and_steep_functions() {
        assert!((bracketed(|x| x * x - 2.0, 0.0, 2.0) - 2f64.sqrt()).abs() < 1e-15);
        assert!((bracketed(|x| (x - 1.0).powi(3), 0.0, 3.0) - 1.0).abs() < 1e-5);
        assert!((bracketed(|x| x.exp() - 1e8, 0.0, 100.0) - 8.0 * 10f64.ln()).abs() < 1e-13);
        assert!((bracketed(|x| if x < 0.3 { -1.0 } else { 5.0 }, 0.0, 1.0) - 0.3).abs() < 1e-15);
    }

    #[test]
    fn returns_the_nearer_end_without_a_sign_change() {
        assert_eq!(bracketed(|x| x + 1.0, 0.0, 2.0), 0.0);
        assert_eq!(bracketed(|x| -x - 1.0, 0.0, 2.0), 0.0);
    }

    #[test]
    fn expands_until_it_brackets() {
        assert!((expanding(|x| x - 1e6, 0.0, 1.0) - 1e6).abs() < 1e-8);
        assert_eq!(expanding(|_| -1.0, 0.0, 1.0), f64::INFINITY);
    }
}
