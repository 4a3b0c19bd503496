use super::*;
use crate::law::{Distribution, Law};
use crate::stream::stream;

fn close(got: f64, want: f64, relative: f64) {
    assert!(((got - want) / want).abs() <= relative, "got {got:e}, want {want:e}");
}

/// scipy 1.17.1: `f.sf`, `f.isf`, `t.sf`, `t.ppf`, `chi2.sf`, `chi2.ppf`.
#[test]
fn laws_of_the_statistics_agree_with_scipy() {
    for (f, a, b, want) in [
        (2.5, 3.0, 20.0, 0.088_843_751_937_689_17),
        (1.2, 50.0, 200_000.0, 0.157_280_359_013_545_48),
        (0.3, 4.0, 7.0, 0.869_165_520_118_359_8),
        (40.0, 2.0, 1000.0, 1.941_432_325_624_801_4e-17),
    ] {
        close(f_sf(f, a, b), want, 1e-10);
        close(f_cdf(f, a, b), 1.0 - want, 1e-10);
    }
    for (q, a, b, want) in [
        (0.01, 3.0, 20.0, 4.938_193_382_310_538),
        (0.95, 4.0, 7.0, 0.164_090_152_472_909_3),
        // f.isf loses digits here (it inverts 1 - 1e-10); f.sf(11.1150419169, 5, 114000) is 1e-10.
        (1e-10, 5.0, 114_000.0, 11.115_041_916_9),
    ] {
        close(f_quantile_upper(q, a, b), want, 1e-9);
    }
    close(t_sf(2.0, 5.0), 0.050_969_739_414_929_174, 1e-12);
    close(t_sf(12.0, 3.0), 6.225_079_003_946_681e-4, 1e-12);
    close(t_cdf(1.5, 40.0), 0.929_266_611_560_425_9, 1e-12);
    close(t_two_sided(-2.0, 5.0), 2.0 * 0.050_969_739_414_929_174, 1e-12);
    close(t_quantile(0.975, 4.0), 2.776_445_105_197_793_4, 1e-12);
    close(t_quantile(0.975, 1e5), 1.959_987_707_534_609_5, 1e-11);
    close(t_quantile_upper(0.8, 1.0), -1.376_381_920_471_173_6, 1e-12);
    close(chi_square_sf(10.0, 4.0), 0.040_427_681_994_512_79, 1e-12);
    close(chi_square_sf(500.0, 300.0), 3.359_222_457_579_277_5e-12, 1e-11);
    close(chi_square_cdf(10.0, 4.0), 1.0 - 0.040_427_681_994_512_79, 1e-12);
    close(chi_square_quantile(0.025, 9.0), 2.700_389_499_980_358_4, 1e-12);
    close(normal_sf(1.5), 1.0 - normal_cdf(1.5), 1e-10);
    close(normal_quantile(normal_cdf(-3.0)), -3.0, 1e-11);
}

#[test]
fn arguments_outside_their_domain_give_nan() {
    assert!(normal_quantile(1.5).is_nan() && t_quantile(-0.1, 3.0).is_nan());
    assert!(f_quantile_upper(0.0, 1.0, 1.0).is_nan() && f_sf(f64::NAN, 1.0, 1.0).is_nan());
    assert!(chi_square_quantile(2.0, 3.0).is_nan());
    assert_eq!((f_sf(0.0, 2.0, 3.0), f_sf(f64::INFINITY, 2.0, 3.0)), (1.0, 0.0));
}

const GROUPS: [&[f64]; 3] = [&[3.1, 2.8, 3.5, 3.0], &[3.9, 4.1, 3.3], &[2.2, 2.9, 3.0, 2.7, 3.1]];

#[test]
fn one_way_and_kruskal_wallis_agree_with_scipy() {
    // f_oneway, kruskal
    let table = one_way(&GROUPS).unwrap();
    close(table.groups.f, 7.395_933_014_354_064, 1e-11);
    close(table.groups.p_value, 0.012_593_980_510_720_125, 1e-10);
    assert_eq!((table.groups.dof, table.residual_dof), (2.0, 9.0));
    let ranks = kruskal_wallis(&GROUPS).unwrap();
    close(ranks.statistic, 6.455_399_061_032_862, 1e-12);
    close(ranks.p_value, 0.039_648_604_359_822_42, 1e-11);
    let tied: [&[f64]; 3] = [&[1.0, 2.0, 2.0, 3.0], &[2.0, 3.0, 3.0, 4.0], &[3.0, 3.0, 5.0, 5.0]];
    close(kruskal_wallis(&tied).unwrap().statistic, 5.605_363_984_674_335, 1e-12);
    assert!(kruskal_wallis(&[&[1.0], &[1.0]]).is_err());
    assert!(one_way(&GROUPS[..1]).is_err() && one_way(&[&[1.0], &[2.0]]).is_err());
}

#[test]
fn correlations_agree_with_scipy() {
    let x = [1.2, 3.4, 2.2, 5.0, 4.1, 2.2];
    let y = [2.0, 2.9, 2.5, 4.4, 4.9, 1.0];
    close(pearson(&x, &y).unwrap().unwrap(), 0.836_936_023_752_994_1, 1e-13);
    close(spearman(&x, &y).unwrap().unwrap(), 0.840_668_001_696_050_4, 1e-13);
    assert_eq!(pearson(&x, &[1.0; 6]).unwrap(), None);
    assert!(pearson(&x, &y[1..]).is_err() && spearman(&[1.0], &[1.0]).is_err());
    assert_eq!(mid_ranks(&[5.0, 1.0, 5.0, 0.0]), [3.5, 2.0, 3.5, 1.0]);
}

#[test]
fn adjustments_agree_with_scipy_and_r() {
    // false_discovery_control(p); R's p.adjust(p, "holm")
    let p = [0.01, 0.04, 0.03, 0.005, 0.5];
    let close_all = |got: Vec<f64>, want: [f64; 5]| {
        for (g, w) in got.into_iter().zip(want) {
            close(g, w, 1e-14);
        }
    };
    close_all(benjamini_hochberg(&p), [0.025, 0.05, 0.05, 0.025, 0.5]);
    close_all(holm(&p), [0.04, 0.09, 0.09, 0.025, 0.5]);
    close_all(bonferroni(&p), [0.05, 0.2, 0.15, 0.025, 1.0]);
    assert!(holm(&[]).is_empty());
}

/// Sums of squares as differences of corrected totals: another route to the same table.
#[test]
fn two_way_sums_of_squares_add_up() {
    let law = Law::normal(3.0, 1.0).unwrap();
    let mut rng = stream(1, "two-way", &[]);
    let cells: Vec<Vec<Vec<f64>>> = (0..4)
        .map(|i| {
            (0..3)
                .map(|j| (0..2).map(|_| law.sample(&mut rng) + f64::from(i * j)).collect())
                .collect()
        })
        .collect();
    let table = two_way(&cells).unwrap();
    let all: Vec<f64> = cells.iter().flatten().flatten().copied().collect();
    let total: f64 = all.iter().map(|v| v * v).sum();
    let correction = all.iter().sum::<f64>().powi(2) / 24.0;
    let rows: f64 =
        cells.iter().map(|r| r.iter().flatten().sum::<f64>().powi(2) / 6.0).sum::<f64>()
            - correction;
    let columns: f64 = (0..3)
        .map(|j| cells.iter().map(|r| r[j].iter().sum::<f64>()).sum::<f64>().powi(2) / 8.0)
        .sum::<f64>()
        - correction;
    let by_cell: f64 =
        cells.iter().flatten().map(|c| c.iter().sum::<f64>().powi(2) / 2.0).sum::<f64>()
            - correction;
    let interaction = table.interaction.unwrap();
    close(table.rows.sum_of_squares, rows, 1e-10);
    close(table.columns.sum_of_squares, columns, 1e-10);
    close(interaction.sum_of_squares, by_cell - rows - columns, 1e-10);
    close(table.residual_sum_of_squares, total - correction - by_cell, 1e-10);
    assert_eq!(
        [table.rows.dof, table.columns.dof, interaction.dof, table.residual_dof],
        [3.0, 2.0, 6.0, 12.0]
    );
    close(table.rows.f, table.rows.mean_square() / interaction.mean_square(), 1e-14);
    close(interaction.f, interaction.mean_square() / table.residual_variance(), 1e-14);
}

/// A table of row, column, interaction and residual effects of the given s.d.
fn random_table(seed: u64, (a, b, r): (usize, usize, usize), sd: [f64; 4]) -> Vec<Vec<Vec<f64>>> {
    let unit = Law::normal(0.0, 1.0).unwrap();
    let mut rng = stream(seed, "random-table", &[]);
    let rows: Vec<f64> = (0..a).map(|_| sd[0] * unit.sample(&mut rng)).collect();
    let columns: Vec<f64> = (0..b).map(|_| sd[1] * unit.sample(&mut rng)).collect();
    rows.iter()
        .map(|row| {
            columns
                .iter()
                .map(|column| {
                    let both = sd[2] * unit.sample(&mut rng);
                    (0..r).map(|_| row + column + both + sd[3] * unit.sample(&mut rng)).collect()
                })
                .collect()
        })
        .collect()
}

#[test]
fn variances_are_unbiased() {
    let (sd, runs, shape) = ([0.5, 0.3, 0.4, 0.6], 400, (8, 10, 3));
    let tables: Vec<TwoWay> =
        (0..runs).map(|s| two_way(&random_table(s, shape, sd)).unwrap()).collect();
    let check = |name: &str, of: &dyn Fn(&TwoWay) -> f64, want: f64| {
        let values: Vec<f64> = tables.iter().map(of).collect();
        let (mean, variance) = crate::interval::mean_variance(&values);
        let error = (variance / runs as f64).sqrt();
        assert!((mean - want).abs() < 4.0 * error, "{name}: {mean} ± {error}, want {want}");
    };
    check("rows", &|t| t.rows.variance, 0.25);
    check("columns", &|t| t.columns.variance, 0.09);
    check("interaction", &|t| t.interaction.map_or(f64::NAN, |i| i.variance), 0.16);
    check("residual", &TwoWay::residual_variance, 0.36);
    let groups: Vec<f64> = (0..runs)
        .map(|s| {
            let cells = random_table(s, (8, 1, 12), [0.5, 0.0, 0.0, 1.0]);
            // Unequal sizes: the first groups lose values.
            let groups: Vec<&[f64]> =
                cells.iter().enumerate().map(|(i, r)| &r[0][..12 - i]).collect();
            one_way(&groups).unwrap().groups.variance
        })
        .collect();
    let (mean, variance) = crate::interval::mean_variance(&groups);
    assert!((mean - 0.25).abs() < 4.0 * (variance / runs as f64).sqrt(), "{mean}");
}

#[test]
fn absent_effects_are_found_at_the_stated_rate() {
    // An interaction is present; a test against the residual would reject rows far too often.
    let (runs, alpha) = (2000, 0.05);
    let mut rejected = [0.0; 3];
    for s in 0..runs {
        let t = two_way(&random_table(s, (5, 6, 3), [0.0, 0.0, 0.7, 1.0])).unwrap();
        let single = two_way(&random_table(s, (5, 6, 1), [0.0, 1.0, 0.0, 1.0])).unwrap();
        assert!(single.interaction.is_none());
        for (count, p) in
            rejected.iter_mut().zip([t.rows.p_value, t.columns.p_value, single.rows.p_value])
        {
            *count += f64::from(p < alpha) / runs as f64;
        }
    }
    let error = (alpha * (1.0 - alpha) / runs as f64).sqrt();
    for share in rejected {
        assert!((share - alpha).abs() < 4.0 * error, "{rejected:?}");
    }
}

#[test]
fn tables_with_holes_are_refused() {
    let mut cells = random_table(1, (3, 3, 2), [1.0; 4]);
    cells[1][2].pop();
    assert_eq!(
        two_way(&cells).unwrap_err().to_string(),
        "cell (1, 2) has 1 values, where the others have 2"
    );
    cells[1].pop();
    assert!(two_way(&cells).is_err() && two_way(&cells[..1]).is_err() && two_way(&[]).is_err());
}

#[test]
fn permutation_finds_what_enumeration_finds() {
    // Difference of the mean of the first three of six from the rest: 20 splits, all enumerable.
    let values = [2.0, 3.5, 4.0, 1.0, 0.5, 2.5];
    let statistic = |v: &[f64]| v[..3].iter().sum::<f64>() - v[3..].iter().sum::<f64>();
    let observed = statistic(&values);
    let total: f64 = values.iter().sum();
    let (mut extreme, mut splits) = (0, 0);
    for mask in 0..64_u32 {
        if mask.count_ones() == 3 {
            splits += 1;
            let first: f64 =
                (0..6).filter(|i| mask >> i & 1 == 1).map(|i| values[i as usize]).sum();
            if 2.0 * first - total >= observed - 1e-12 {
                extreme += 1;
            }
        }
    }
    let exact = f64::from(extreme) / f64::from(splits);
    let got = permutation_p(&values, 20_000, 5, statistic);
    assert!((got - exact).abs() < 4.0 * (exact * (1.0 - exact) / 20_000.0).sqrt(), "{got} {exact}");
    assert_eq!(got, permutation_p(&values, 20_000, 5, statistic));
}
