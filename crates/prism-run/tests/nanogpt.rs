//! Predictions of repeats of one job: 79 runs in three groups.

mod common;

use prism_io::{StepLog, StepLogOptions, read_step_logs};
use prism_run::prior::mlperf;
use prism_run::{Evidence, Separated, StepModel, separate};
use prism_stats::stream;
use rand::seq::SliceRandom;

/// The groups' runs. The file's clock is a running total in milliseconds, which one group sets back to 0 after
/// its first ten steps.
fn groups() -> Option<Vec<(String, Vec<Separated>)>> {
    let file = common::data("modded_nanogpt/steps.csv.gz")?;
    let options = StepLogOptions::default()
        .with_time_column("train_time_ms", 1e-3)
        .with_cumulative(true)
        .with_system_columns(vec!["dir".to_owned()]);
    let separated = |(name, logs): (String, Vec<StepLog>)| {
        (name, logs.iter().map(|l| separate(l).unwrap()).collect())
    };
    let logs = read_step_logs(&file, &options).unwrap();
    Some(common::by_system(logs).into_iter().map(separated).collect())
}

/// Centre, s.d. and the 90 % interval of the total predicted from some runs.
fn predicted(known: &[Separated], like: &Separated) -> (f64, f64, f64, f64) {
    let model = StepModel::new(Evidence::of(known).unwrap(), mlperf()).unwrap();
    let total = model.total(&like.shape(), 1 << 12, 1).unwrap().sorted_s;
    let n = total.len() as f64;
    let mean = total.iter().sum::<f64>() / n;
    let sd = (total.iter().map(|t| (t - mean).powi(2)).sum::<f64>() / n).sqrt();
    let at = |p: f64| prism_stats::quantile_type7(&total, p).unwrap();
    (mean, sd, at(0.05), at(0.95))
}

fn sd(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    (values.iter().map(|t| (t - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt()
}

#[test]
fn half_of_the_runs_predict_the_other() {
    let Some(groups) = groups() else { return };
    for (name, runs) in &groups {
        let (mut inside, mut all) = (0_usize, 0_usize);
        for half in 0..100 {
            let mut order: Vec<usize> = (0..runs.len()).collect();
            order.shuffle(&mut stream(1, "halves", &[half]));
            let (a, b) = order.split_at(runs.len() / 2);
            let known: Vec<Separated> = a.iter().map(|&i| runs[i].clone()).collect();
            let (_, _, low, high) = predicted(&known, &runs[b[0]]);
            inside += b.iter().filter(|&&i| (low..=high).contains(&runs[i].total_s())).count();
            all += b.len();
        }
        let coverage = inside as f64 / all as f64;
        println!("{name}: {} runs, coverage {coverage:.3}", runs.len());
        assert!(coverage >= 0.8, "{name}: {coverage}");
    }
}

#[test]
fn the_spread_between_runs_is_not_that_of_independent_steps() {
    let Some(groups) = groups() else { return };
    let (_, runs) = groups.iter().find(|g| g.0.contains("ValueEmbed")).unwrap();
    let parity = |p: usize| -> Vec<Separated> { runs.iter().skip(p).step_by(2).cloned().collect() };
    let (mut ratio, mut iid) = (0.0, 0.0);
    for (known, held_out) in [(parity(0), parity(1)), (parity(1), parity(0))] {
        let actual = sd(&held_out.iter().map(Separated::total_s).collect::<Vec<_>>());
        ratio += actual / predicted(&known, &held_out[0]).1 / 2.0;
        let steps = held_out[0].step_s.len();
        let per_step: f64 = (10..steps)
            .map(|i| sd(&known.iter().map(|r| r.step_s[i]).collect::<Vec<_>>()).powi(2))
            .sum();
        iid += actual / per_step.sqrt() / 2.0;
    }
    println!("actual over predicted s.d. {ratio:.2}, over that of independent steps {iid:.2}");
    assert!((0.6..=1.6).contains(&ratio), "{ratio}");
    assert!(iid > 2.0, "{iid}");
}
