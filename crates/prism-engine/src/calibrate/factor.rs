//! One common factor of correlated residuals.

/// Loadings (standard deviation carried by the common factor) and unique variances.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OneFactor {
    pub(crate) loading: Vec<f64>,
    pub(crate) unique: Vec<f64>,
}

/// Fits `S = loading · loadingᵀ + diag(unique)` to a covariance matrix (row-major, n x n) by
/// iterated principal factors.
///
/// With two variables the split is not identified: equal loadings are assumed.
pub(crate) fn one_factor(covariance: &[f64], n: usize) -> OneFactor {
    let diagonal: Vec<f64> = (0..n).map(|i| covariance[i * n + i]).collect();
    if n < 2 {
        return OneFactor { loading: vec![0.0; n], unique: diagonal };
    }
    if n == 2 {
        let shared = covariance[1].clamp(0.0, diagonal[0].min(diagonal[1]));
        let unique = diagonal.iter().map(|d| d - shared).collect();
        return OneFactor { loading: vec![shared.sqrt(); 2], unique };
    }
    // First communalities: each variable's largest correlation with another one.
    let largest = |i: usize| {
        let r = |j: usize| {
            let scale = (diagonal[i] * diagonal[j]).sqrt();
            if scale > 0.0 { (covariance[i * n + j] / scale).abs() } else { 0.0 }
        };
        (0..n).filter(|&j| j != i).map(r).fold(0.0, f64::max).min(1.0)
    };
    let mut unique: Vec<f64> = (0..n).map(|i| diagonal[i] * (1.0 - largest(i))).collect();
    let mut loading = vec![0.0; n];
    for _ in 0..500 {
        let (value, vector) = leading_eigen(covariance, &unique, n);
        let scale = value.max(0.0).sqrt();
        let mut change = 0.0f64;
        for i in 0..n {
            loading[i] = scale * vector[i];
            let next = (diagonal[i] - loading[i] * loading[i]).max(1e-6 * diagonal[i]);
            change = change.max((next - unique[i]).abs() / diagonal[i].max(f64::MIN_POSITIVE));
            unique[i] = next;
        }
        if change < 1e-10 {
            break;
        }
    }
    OneFactor { loading, unique }
}

/// Leading eigenpair of `S − diag(unique)` by power iteration on a shifted matrix; the vector's
/// sum is not negative.
fn leading_eigen(covariance: &[f64], unique: &[f64], n: usize) -> (f64, Vec<f64>) {
    let entry = |i: usize, j: usize| covariance[i * n + j] - if i == j { unique[i] } else { 0.0 };
    // Gershgorin: the shift makes every eigenvalue non-negative, so the largest one dominates.
    let shift = (0..n)
        .map(|i| {
            (0..n).map(|j| if i == j { 0.0 } else { entry(i, j).abs() }).sum::<f64>() - entry(i, i)
        })
        .fold(0.0, f64::max);
    let mut vector = vec![1.0 / (n as f64).sqrt(); n];
    let mut value = 0.0;
    for _ in 0..1000 {
        let next: Vec<f64> = (0..n)
            .map(|i| (0..n).map(|j| entry(i, j) * vector[j]).sum::<f64>() + shift * vector[i])
            .collect();
        let norm = next.iter().map(|x| x * x).sum::<f64>().sqrt();
        if norm == 0.0 {
            return (0.0, vector);
        }
        let change = (norm - shift - value).abs();
        value = norm - shift;
        vector = next.into_iter().map(|x| x / norm).collect();
        if change < 1e-13 * (value.abs() + shift) {
            break;
        }
    }
    if vector.iter().sum::<f64>() < 0.0 {
        for x in &mut vector {
            *x = -*x;
        }
    }
    (value, vector)
}

/// Bartlett's test of sphericity: the statistic for "no correlation", with its degrees of freedom.
///
/// `observations` is the degrees of freedom behind the covariance. Bartlett (1951).
pub(crate) fn sphericity(covariance: &[f64], n: usize, observations: f64) -> (f64, f64) {
    let mut r: Vec<f64> = (0..n * n)
        .map(|k| {
            let (i, j) = (k / n, k % n);
            let scale = (covariance[i * n + i] * covariance[j * n + j]).sqrt();
            if i == j {
                1.0
            } else if scale > 0.0 {
                covariance[k] / scale
            } else {
                0.0
            }
        })
        .collect();
    let ln_det = ln_det_spd(&mut r, n);
    let p = n as f64;
    let statistic = -(observations - (2.0 * p + 5.0) / 6.0) * ln_det;
    (statistic, p * (p - 1.0) / 2.0)
}

/// Log determinant of a symmetric positive definite matrix by Cholesky, in place; a matrix that
/// is singular to rounding counts as nearly singular.
fn ln_det_spd(a: &mut [f64], n: usize) -> f64 {
    let mut ln_det = 0.0;
    for i in 0..n {
        for j in 0..=i {
            let dot: f64 = (0..j).map(|k| a[i * n + k] * a[j * n + k]).sum();
            let rest = a[i * n + j] - dot;
            a[i * n + j] = if i == j { rest.max(1e-12).sqrt() } else { rest / a[j * n + j] };
        }
        ln_det += 2.0 * a[i * n + i].ln();
    }
    ln_det
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covariance(loading: &[f64], unique: &[f64]) -> Vec<f64> {
        let n = loading.len();
        (0..n * n)
            .map(|k| {
                loading[k / n] * loading[k % n] + if k / n == k % n { unique[k / n] } else { 0.0 }
            })
            .collect()
    }

    #[test]
    fn recovers_an_exact_factor() {
        let (l, u) = ([0.2, 0.1, 0.3, 0.25], [0.01, 0.02, 0.005, 0.03]);
        let fit = one_factor(&covariance(&l, &u), 4);
        for i in 0..4 {
            assert!((fit.loading[i] - l[i]).abs() < 1e-4, "{fit:?}");
            assert!((fit.unique[i] - u[i]).abs() < 1e-4, "{fit:?}");
        }
    }

    #[test]
    fn no_factor_has_loadings_near_zero_and_no_sphericity_statistic() {
        let s = covariance(&[0.0; 3], &[1.0, 2.0, 3.0]);
        assert!(one_factor(&s, 3).loading.iter().all(|l| l.abs() < 1e-3));
        let (statistic, df) = sphericity(&s, 3, 100.0);
        assert!(statistic.abs() < 1e-9 && df == 3.0);
    }

    #[test]
    fn sphericity_of_two_variables_has_the_closed_form() {
        let rho = 0.5f64;
        let (statistic, df) = sphericity(&[1.0, rho, rho, 1.0], 2, 50.0);
        assert_eq!(df, 1.0);
        let expected = -(50.0 - 1.5) * (1.0 - rho * rho).ln();
        assert!((statistic - expected).abs() < 1e-9);
    }
}
