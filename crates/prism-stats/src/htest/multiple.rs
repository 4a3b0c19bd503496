//! Adjusted p-values for many tests at once; compare them with the level as usual.

/// Bonferroni: each p times the number of tests, at most 1. Controls the family-wise error.
pub fn bonferroni(p_values: &[f64]) -> Vec<f64> {
    p_values.iter().map(|p| (p * p_values.len() as f64).min(1.0)).collect()
}

/// Holm's step-down (Scandinavian J. Statistics 6, 1979). Controls the family-wise error under any
/// dependence, and rejects whatever Bonferroni does.
pub fn holm(p_values: &[f64]) -> Vec<f64> {
    let order = ascending(p_values);
    let mut adjusted = vec![0.0; p_values.len()];
    let mut largest = 0.0_f64;
    for (i, &k) in order.iter().enumerate() {
        largest = largest.max(p_values[k] * (p_values.len() - i) as f64).min(1.0);
        adjusted[k] = largest;
    }
    adjusted
}

/// Benjamini and Hochberg's step-up (J. R. Stat. Soc. B 57, 1995). Controls the share of false
/// discoveries under independence or positive dependence.
pub fn benjamini_hochberg(p_values: &[f64]) -> Vec<f64> {
    let order = ascending(p_values);
    let mut adjusted = vec![0.0; p_values.len()];
    let mut smallest = 1.0_f64;
    for (i, &k) in order.iter().enumerate().rev() {
        smallest = smallest.min(p_values[k] * p_values.len() as f64 / (i + 1) as f64);
        adjusted[k] = smallest;
    }
    adjusted
}

fn ascending(p_values: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|&a, &b| p_values[a].total_cmp(&p_values[b]));
    order
}
