//! Steps that differ from the rest: reported, and kept.

use prism_model::{Regime, RegimeKind};
use prism_stats::htest;

use super::effects::{mean, variance};

/// Finds outlier steps and an early window that differs.
///
/// `times_s` are zero-delay step times composed from the operations. An outlier exceeds the median
/// by more than max(6·1.4826·MAD, 2 %).
pub(super) fn regimes(steps: &[i64], windows: &[u32], times_s: &[f64], alpha: f64) -> Vec<Regime> {
    let mut out = Vec::new();
    let centre = median(times_s);
    let mad = median(&times_s.iter().map(|t| (t / centre - 1.0).abs()).collect::<Vec<_>>());
    let limit = (6.0 * 1.4826 * mad).max(0.02);
    let is_outlier: Vec<bool> = times_s.iter().map(|t| t / centre - 1.0 > limit).collect();
    let outliers: Vec<usize> = (0..steps.len()).filter(|&i| is_outlier[i]).collect();
    if !outliers.is_empty() {
        let excess = mean(&outliers.iter().map(|&i| times_s[i]).collect::<Vec<_>>()) / centre - 1.0;
        out.push(Regime {
            kind: RegimeKind::Outlier,
            steps: outliers.iter().map(|&i| steps[i]).collect(),
            excess,
            note: format!(
                "{} of {} steps exceed the median by more than {:.1} %",
                outliers.len(),
                steps.len(),
                100.0 * limit
            ),
        });
    }
    out.extend(early_window(steps, windows, times_s, &is_outlier, alpha));
    out
}

/// Compares the first window with the later ones (Welch's t test), outliers left out.
fn early_window(
    steps: &[i64],
    windows: &[u32],
    times_s: &[f64],
    is_outlier: &[bool],
    alpha: f64,
) -> Option<Regime> {
    let pick = |first: bool| -> Vec<f64> {
        (0..steps.len())
            .filter(|&i| (windows[i] == 0) == first && !is_outlier[i])
            .map(|i| times_s[i])
            .collect()
    };
    let (early, late) = (pick(true), pick(false));
    if early.len() < 3 || late.len() < 3 {
        return None;
    }
    let (a, b) = (variance(&early) / early.len() as f64, variance(&late) / late.len() as f64);
    let difference = mean(&early) - mean(&late);
    if a + b <= 0.0 {
        return None;
    }
    let freedom =
        (a + b).powi(2) / (a * a / (early.len() as f64 - 1.0) + b * b / (late.len() as f64 - 1.0));
    let p_value = htest::t_two_sided(difference / (a + b).sqrt(), freedom);
    (p_value < alpha).then(|| Regime {
        kind: RegimeKind::EarlyWindow,
        steps: (0..steps.len()).filter(|&i| windows[i] == 0).map(|i| steps[i]).collect(),
        excess: mean(&early) / median(&late) - 1.0,
        note: format!("the first window differs from later ones (Welch t, p = {p_value:.2e})"),
    })
}

fn median(values: &[f64]) -> f64 {
    let mut v = values.to_vec();
    v.sort_by(f64::total_cmp);
    match v.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => v[n / 2],
        n => 0.5 * (v[n / 2 - 1] + v[n / 2]),
    }
}
