//! What is drawn, against closed forms. Limits are four standard errors unless said otherwise.

use statrs::distribution::{ContinuousCDF, Normal};

use crate::sample::{Key, Offset, Program, QuantileTable, RunOptions, Scope, Sync};

const N: usize = 1 << 18;

fn lognormal(sigma: f64) -> QuantileTable {
    let normal = Normal::standard();
    let at = |z: f64| (sigma * z - 0.5 * sigma * sigma).exp();
    QuantileTable::from_quantiles(|p| at(normal.inverse_cdf(p)), |q| at(-normal.inverse_cdf(q)))
        .unwrap()
}

fn options(antithetic: bool) -> RunOptions {
    RunOptions { seed: 11, samples: N, antithetic, ..RunOptions::default() }
}

fn mean_sd(x: impl Iterator<Item = f32> + Clone) -> (f64, f64) {
    let n = x.clone().count() as f64;
    let mean = x.clone().map(f64::from).sum::<f64>() / n;
    let variance = x.map(|v| (f64::from(v) - mean).powi(2)).sum::<f64>() / (n - 1.0);
    (mean, variance.sqrt())
}

fn correlation(x: &[f32], y: &[f32]) -> f64 {
    let ((mx, sx), (my, sy)) = (mean_sd(x.iter().copied()), mean_sd(y.iter().copied()));
    let sum: f64 = x.iter().zip(y).map(|(&x, &y)| (f64::from(x) - mx) * (f64::from(y) - my)).sum();
    sum / (x.len() as f64 - 1.0) / sx / sy
}

#[test]
fn lognormal_draws() {
    let sigma = 0.3;
    let mut p = Program::new(2);
    let table = p.table(lognormal(sigma));
    let x = p.draw(table, Key::new("x"), Scope::PerReplica);
    p.output("x", x);
    let tape = p.compile().unwrap();
    let sd = (sigma * sigma).exp_m1().sqrt();
    let normal = Normal::standard();
    for antithetic in [false, true] {
        let samples = tape.run(&options(antithetic)).unwrap();
        let x = samples.get("x").unwrap();
        assert!(correlation(x.row(0), x.row(1)).abs() < 4.0 / (N as f64).sqrt());
        for replica in 0..2 {
            let row = x.row(replica);
            let (m, s) = mean_sd(row.iter().copied());
            let n = N as f64;
            assert!((m - 1.0).abs() < 4.0 * sd / n.sqrt(), "mean {m}");
            // Kurtosis of the lognormal: var(s²)/σ⁴ = (κ - 1)/n.
            let w = (sigma * sigma).exp();
            let kurtosis = w.powi(4) + 2.0 * w.powi(3) + 3.0 * w * w - 3.0;
            assert!((s / sd - 1.0).abs() < 4.0 * 0.5 * ((kurtosis - 1.0) / n).sqrt(), "sd {s}");
            let mut sorted = row.to_vec();
            sorted.sort_unstable_by(f32::total_cmp);
            let cdf = |x: f32| normal.cdf((f64::from(x).ln() + 0.5 * sigma * sigma) / sigma);
            let ks = sorted.iter().enumerate().fold(0.0_f64, |ks, (i, &x)| {
                ks.max((cdf(x) - i as f64 / n).abs()).max((cdf(x) - (i + 1) as f64 / n).abs())
            });
            // 1.95 is the 0.1 % point; the table adds at most 2e-3 (its own test).
            assert!(ks < 1.95 / n.sqrt() + 2e-3, "distance {ks}");
        }
    }
}

#[test]
fn antithetic_partners_mirror() {
    let mut p = Program::new(1);
    let table = p.table(QuantileTable::uniform());
    let u = p.draw(table, Key::new("u"), Scope::Shared);
    let index = p.index(1000, Key::new("u"), Scope::Shared);
    let pool = p.pool((0_u16..1000).map(f32::from).collect());
    let row = p.gather(pool, index, 1, Offset::Fixed(0));
    p.output("u", u);
    p.output("row", row);
    let samples = p.compile().unwrap().run(&options(true)).unwrap();
    let (u, row) = (samples.get("u").unwrap().row(0), samples.get("row").unwrap().row(0));
    for group in 0..N / 32 {
        for i in 32 * group..32 * group + 16 {
            assert!((u[i] + u[i + 16] - 1.0).abs() < 1e-6);
            assert_eq!(row[i] + row[i + 16], 999.0);
            // One key, one number: the row follows the uniform.
            assert!((row[i] - (u[i] * 1000.0).floor()).abs() <= 1.0);
        }
    }
    // The mean of a symmetric law is exact in pairs.
    let (mean, _) = mean_sd(u.iter().copied());
    assert!((mean - 0.5).abs() < 1e-6);
}

#[test]
fn one_key_is_one_number_under_two_laws() {
    let mut p = Program::new(3);
    let (narrow, wide) = (p.table(lognormal(0.1)), p.table(lognormal(0.2)));
    let key = Key::new("microbatch").with(4);
    let a = p.draw(narrow, key, Scope::PerReplica);
    let b = p.draw(wide, key, Scope::PerReplica);
    p.output("a", a);
    p.output("b", b);
    let samples = p.compile().unwrap().run(&options(false)).unwrap();
    for replica in 0..3 {
        let rows = ["a", "b"].map(|n| samples.get(n).unwrap().row(replica));
        for (a, b) in rows[0].iter().zip(rows[1]).take(10_000) {
            // ln b = 2 ln a - 0.02 + 0.01: twice the loading, each with mean 1.
            let want = 2.0 * a.ln() + 0.01 - 0.02;
            assert!((b.ln() - want).abs() < 2e-3, "{a} {b}");
        }
    }
}

#[test]
fn weighted_rows_have_their_shares() {
    let weights = vec![0.0, 1.0, 5.0, 0.5, 3.5, 0.0];
    let total: f64 = weights.iter().sum();
    let mut p = Program::new(1);
    let index = p.weighted_index(weights.clone(), Key::new("donor"), Scope::Shared);
    let pool = p.pool(vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    let x = p.gather(pool, index, 1, Offset::Fixed(0));
    p.output("row", x);
    let tape = p.compile().unwrap();
    for antithetic in [false, true] {
        let samples = tape.run(&options(antithetic)).unwrap();
        for (row, weight) in weights.iter().enumerate() {
            let x = samples.get("row").unwrap().row(0);
            let count = x.iter().filter(|&&x| x as usize == row).count() as f64;
            let expected = N as f64 * weight / total;
            // Pairs may double the variance.
            let limit = 4.0 * (2.0 * expected * (1.0 - weight / total)).sqrt();
            assert!((count - expected).abs() <= limit, "row {row}: {count}, not {expected}");
        }
    }
}

#[test]
fn a_maximum_over_replicas_is_an_order_statistic() {
    let replicas = 16;
    let mut p = Program::new(replicas);
    let table = p.table(QuantileTable::uniform());
    let u = p.draw(table, Key::new("u"), Scope::PerReplica);
    let all = p.sync_max(u, Sync::All);
    let four = p.sync_max(u, Sync::Blocks(4));
    let sum = p.sum_over_replicas(u);
    for (name, value) in [("all", all), ("four", four), ("sum", sum), ("u", u)] {
        p.output(name, value);
    }
    let samples = p.compile().unwrap().run(&options(false)).unwrap();
    // E max of k uniforms is k/(k+1), its variance k/((k+1)²(k+2)).
    let check = |name: &str, row: usize, k: f64| {
        let (m, _) = mean_sd(samples.get(name).unwrap().row(row).iter().copied());
        let sd = (k / ((k + 1.0).powi(2) * (k + 2.0))).sqrt();
        let limit = 4.0 * sd / (N as f64).sqrt();
        assert!((m - k / (k + 1.0)).abs() < limit, "{name} {row}: {m}");
    };
    check("all", 0, 16.0);
    for replica in 0..16 {
        check("four", replica, 4.0);
        check("u", replica, 1.0);
        let block = samples.get("four").unwrap();
        assert_eq!(block.row(replica), block.row(replica / 4 * 4));
    }
    let (m, s) = mean_sd(samples.get("sum").unwrap().row(0).iter().copied());
    let sd = (16.0_f64 / 12.0).sqrt();
    assert!((m - 8.0).abs() < 4.0 * sd / (N as f64).sqrt(), "{m}");
    assert!((s / sd - 1.0).abs() < 4.0 / (2.0 * N as f64).sqrt(), "{s}");
}

/// A regime that persists: congested follows congested with probability 0.8, and calm with 0.1, over
/// four consecutive steps from the stationary law.
#[test]
fn a_markov_regime() {
    let mut p = Program::new(1);
    let table = p.table(QuantileTable::uniform());
    let draw = |p: &mut Program, t: u64| p.draw(table, Key::new("regime").with(t), Scope::Shared);
    let first = draw(&mut p, 0);
    let mut regime = p.step(first, 1.0 - 1.0 / 3.0);
    p.output("0", regime);
    for t in 1..4 {
        let u = draw(&mut p, t);
        let (stay, enter) = (p.step(u, 0.2), p.step(u, 0.9));
        regime = p.select(regime, 0.5, stay, enter);
        p.output(t.to_string(), regime);
    }
    let samples = p.compile().unwrap().run(&options(false)).unwrap();
    let row = |t: usize| samples.outputs()[t].row(0);
    for t in 0..4 {
        let (m, _) = mean_sd(row(t).iter().copied());
        assert!((m - 1.0 / 3.0).abs() < 4.0 * 0.4714 / (N as f64).sqrt(), "step {t}: {m}");
    }
    for lag in 1..4 {
        // The chain's eigenvalue is 0.8 - 0.1.
        let r = correlation(row(0), row(lag));
        assert!((r - 0.7_f64.powi(lag as i32)).abs() < 5.0 / (N as f64).sqrt(), "lag {lag}: {r}");
    }
}
