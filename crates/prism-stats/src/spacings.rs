//! The slowest members of a large fleet, drawn without drawing the rest.

use rand::Rng;
use rand_distr::{Distribution as _, Exp1, Gamma};

use crate::error::{Result, StatsError};

/// Upper-tail probabilities of the `k` largest of `n` independent draws of any continuous law, largest
/// first, ascending: exact, in k draws.
///
/// The i-th largest has the tail probability Gᵢ/Gₙ₊₁, where G cumulates independent exponentials
/// (Rényi, Acta Math. Hung. 4, 1953); what follows the k-th is one gamma draw. Values are
/// `law.quantile_upper` of these.
///
/// # Errors
/// If k is zero or exceeds n.
pub fn largest_tails<R: Rng + ?Sized>(n: u64, k: u64, rng: &mut R) -> Result<Vec<f64>> {
    if k == 0 || k > n {
        return Err(StatsError::Argument {
            argument: "k",
            value: k as f64,
            domain: "between 1 and n",
        });
    }
    let mut sum = 0.0;
    let mut tails: Vec<f64> = (0..k)
        .map(|_| {
            let gap: f64 = Exp1.sample(rng);
            sum += gap;
            sum
        })
        .collect();
    let rest = Gamma::new((n + 1 - k) as f64, 1.0)
        .map_err(|_| StatsError::NoConvergence { method: "a gamma draw" })?;
    sum += rest.sample(rng);
    for t in &mut tails {
        *t /= sum;
    }
    Ok(tails)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::stream;

    #[test]
    fn order_statistics_of_uniforms_have_their_moments() {
        let (n, k, draws) = (5000, 40, 4000);
        let mut rng = stream(2, "spacings", &[]);
        let mut sums = vec![(0.0, 0.0); k as usize];
        for _ in 0..draws {
            let tails = largest_tails(n, k, &mut rng).unwrap();
            assert!(tails.windows(2).all(|w| w[0] < w[1]));
            for (s, t) in sums.iter_mut().zip(tails) {
                s.0 += t;
                s.1 += t * t;
            }
        }
        for (i, (sum, square)) in sums.iter().enumerate() {
            // Beta(i, n + 1 − i).
            let (a, m) = (i as f64 + 1.0, n as f64 + 1.0);
            let (mean, var) = (a / m, a * (m - a) / (m * m * (m + 1.0)));
            let count = f64::from(draws);
            assert!((sum / count - mean).abs() < 4.5 * (var / count).sqrt(), "{i}");
            // Of a gamma-like law of shape a the variance's own relative s.d. is about √((2 + 6/a)/n).
            let got = square / count - (sum / count).powi(2);
            assert!((got / var - 1.0).abs() < 4.5 * ((2.0 + 6.0 / a) / count).sqrt(), "{i}");
        }
        assert!(largest_tails(3, 4, &mut rng).is_err() && largest_tails(3, 0, &mut rng).is_err());
        assert_eq!(largest_tails(3, 3, &mut rng).unwrap().len(), 3);
    }
}
