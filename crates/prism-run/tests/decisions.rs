//! Whole runs against closed forms, and the decisions made on them.

use prism_job::run::{Policy, RunPlan, greyhound_rows};
use prism_job::{ReadOptions, RunDefaults, parse_run_plan};
use prism_run::formula::{daly_s, daly_time_s, expected_ettr};
use prism_run::optimise::best_interval;
use prism_run::policies::{compare, possible};
use prism_run::sensitivity::sensitivity;
use prism_run::simulate::{Options, simulate};
use prism_run::slow::slow_cost;
use prism_run::spares::{binomial_spares, poisson_spares, poisson_tail, spares};
use prism_run::summary::{Estimate, done_by, summarise, throughput_above};
use prism_run::{Cause, Pace, RunError, RunOutcome, Steps};
use rand_chacha::ChaCha8Rng;

struct Same(Pace);

impl Steps for Same {
    fn pace(&self, _: &mut ChaCha8Rng) -> Pace {
        self.0.clone()
    }
}

/// Steps of one length.
fn even(step_s: f64) -> Same {
    Same(Pace {
        core_s: step_s,
        core_cov: 0.0,
        rho: 0.0,
        stall_rate: 0.0,
        stall_marks: [].into(),
        warm_up_s: 0.0,
        after_evaluation_s: 0.0,
    })
}

fn plan(text: &str) -> RunPlan {
    parse_run_plan(&format!("[run]\n{text}"), &ReadOptions::default(), &RunDefaults::default())
        .unwrap_or_else(|e| panic!("{e}"))
}

fn options(runs: u32) -> Options {
    Options { runs, seed: 3, ..Options::default() }
}

fn mean(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let values: Vec<f64> = values.collect();
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0);
    (mean, (variance / n).sqrt())
}

/// Standard errors that a mean strays once in 100,000 times.
const Z: f64 = 4.4;

/// Daly's model is a case of ours: all of a checkpoint blocks, failures strike everything.
#[test]
fn completion_time_is_dalys() {
    for (interval_steps, mtbf_min) in [(20, 30.0), (60, 30.0), (60, 15.0), (10, 120.0)] {
        let plan = plan(&format!(
            "steps = 1200\ngpus = 8\n\
             checkpoint = {{ interval_steps = {interval_steps}, blocking = \"20s\", load = \"30s\" }}\n\
             failures = {{ class = [{{ name = \"a\", domain = \"job\", mtbf = \"{mtbf_min}min\" }}] }}\n\
             recovery = {{ detection = \"10s\", restart = \"80s\" }}"
        ));
        let runs = simulate(&even(10.0), &plan, &options(20_000)).unwrap();
        let (mean, error) = mean(runs.outcomes.iter().map(|o| o.total_s));
        let interval_s = f64::from(interval_steps) * 10.0;
        let exact = daly_time_s(12_000.0, interval_s, 20.0, 120.0, mtbf_min * 60.0).unwrap();
        assert!((mean - exact).abs() < Z * error, "{mean} ± {error}, {exact}");
    }
}

/// RSC-1 on so many nodes; 5 minutes to recover, an hour between checkpoints.
fn rsc(nodes: u64, interval: &str, blocking: &str, steps: u64) -> RunPlan {
    plan(&format!(
        "steps = {steps}\ngpus = {}\n\
         checkpoint = {{ interval = \"{interval}\", blocking = \"{blocking}\" }}\n\
         failures = {{ preset = \"rsc-1\" }}\nrecovery = {{ restart = \"5min\" }}",
        nodes * 8
    ))
}

#[test]
fn the_ratio_of_the_formula_holds_where_little_is_lost() {
    let rate = 6.5 / 1_000.0 / 86_400.0;
    for (nodes, interval, interval_s, blocking_s) in [
        (64, "1h", 3_600.0, 10.0),
        (256, "1h", 3_600.0, 60.0),
        (1_024, "10min", 600.0, 10.0),
        (2_048, "5min", 300.0, 5.0),
    ] {
        let lost = nodes as f64 * rate * (300.0 + 0.5 * interval_s);
        assert!(lost < 0.15);
        let plan = rsc(nodes, interval, &format!("{blocking_s}s"), 200_000);
        let runs = simulate(&even(10.0), &plan, &options(400)).unwrap();
        let (ettr, error) = mean(runs.outcomes.iter().map(RunOutcome::ettr));
        let formula = expected_ettr(nodes as f64, rate, 300.0, blocking_s, interval_s).unwrap();
        assert!(error < 0.005 && (ettr / formula - 1.0).abs() < 0.05, "{ettr} {formula}");
    }
}

#[test]
fn the_ratio_of_the_formula_fails_where_much_is_lost() {
    let rate = 6.5 / 1_000.0 / 86_400.0;
    let ratio = |nodes: u64, interval: &str, interval_s: f64| {
        let plan = rsc(nodes, interval, "0s", 3_000);
        let runs = simulate(&even(10.0), &plan, &options(3_000)).unwrap();
        let (ettr, error) = mean(runs.outcomes.iter().map(RunOutcome::ettr));
        (ettr, error, expected_ettr(nodes as f64, rate, 300.0, 0.0, interval_s).unwrap())
    };
    // 131,072 GPUs, a failure every 13.5 minutes, checkpoints every half hour.
    let (ettr, error, formula) = ratio(16_384, "30min", 1_800.0);
    assert!(formula < 0.0 && ettr > 0.1 && error < 0.02, "{ettr} {formula}");
    // Before it turns negative it is already far off: the published case of 0.676 is one.
    let (ettr, error, formula) = ratio(2_048, "1h", 3_600.0);
    assert!(
        (formula - 0.676).abs() < 0.001 && ettr - formula > 0.03 + Z * error,
        "{ettr} {formula}"
    );
}

#[test]
fn the_best_interval_is_dalys() {
    let text = "steps = 40_000\ngpus = 16384\n\
                checkpoint = { interval = \"2h\", blocking = \"30s\", load = \"1min\" }\n\
                failures = { class = [{ name = \"a\", domain = \"job\", mtbf = \"3h\" }] }\n\
                recovery = { restart = \"4min\" }";
    let best = best_interval(&even(2.0), &plan(text), &options(2_000), 0.999).unwrap();
    let daly = daly_s(30.0, 10_800.0).unwrap();
    assert_eq!(best.daly_s, Some(daly));
    let found = best.interval_s;
    assert!(found.lower < daly && daly < found.upper, "{found:?} {daly}");
    // It is known to within a sixth, which costs next to nothing.
    assert!(found.upper / found.lower < 1.4 && !best.at_edge, "{found:?}");
    let exact = |interval_s: f64| daly_time_s(80_000.0, interval_s, 30.0, 300.0, 10_800.0).unwrap();
    for (off, factor) in [(best.half, 0.5), (best.double, 2.0)] {
        let want = exact(factor * found.value) / exact(found.value);
        let half = 0.5 * (off.upper - off.lower);
        assert!((off.value - want).abs() < 1.5 * half, "{off:?} {want}");
    }
    let [low_s, high_s] = best.flat_s;
    assert!(low_s < found.value && found.value < high_s);
    for end_s in [low_s, high_s] {
        let above = exact(end_s) / exact(daly) - 1.0;
        assert!(above > 0.0002 && above < 0.003, "{end_s}: {above}");
    }
    assert!(best.planned.lower > 1.0);
    let free = plan(&text.replace("blocking = \"30s\"", "write = \"5min\""));
    let best = best_interval(&even(2.0), &free, &options(200), 0.95).unwrap();
    assert!(best.at_edge && (best.interval_s.value - 300.0).abs() < 120.0, "{best:?}");
    assert!(best.daly_s.is_none());
}

#[test]
fn what_cannot_be_optimised_is_said() {
    let no_failures = plan("steps = 5\ngpus = 8\ncheckpoint = { interval = \"1h\" }");
    let error = best_interval(&even(1.0), &no_failures, &options(10), 0.95).unwrap_err();
    assert!(matches!(error, RunError::Missing { .. }) && !error.hint().is_empty());
    let error = simulate(&even(f64::NAN), &no_failures, &options(10)).unwrap_err();
    assert!(matches!(error, RunError::Pace { what: "core_s", .. }));
    let mut broken = no_failures;
    broken.steps = 0;
    let error = simulate(&even(1.0), &broken, &options(10)).unwrap_err();
    assert!(matches!(error, RunError::Plan(ref rules) if rules[0].key == "run.steps"), "{error}");
}

#[test]
fn spares_that_are_needed() {
    // MTBF of a node 154 days and repairs of 4.6 hours.
    assert_eq!(binomial_spares(1_024, 4.6 / (154.0 * 24.0), 0.99).unwrap(), 4);
    assert_eq!(poisson_spares(1.275, 0.99).unwrap(), 4);
    assert_eq!(poisson_spares(0.0, 0.99).unwrap(), 0);
    let (mut binomial, mut p) = (0.0, 0.99_f64.powi(50));
    for k in 0..3 {
        binomial += p;
        p *= f64::from(50 - k) / f64::from(k + 1) * 0.01 / 0.99;
    }
    assert_eq!(binomial_spares(50, 0.01, binomial - 1e-9).unwrap(), 2);
    assert_eq!(binomial_spares(50, 0.01, binomial + 1e-9).unwrap(), 3);
    assert!((poisson_tail(2.0, 2).unwrap() - (1.0 - 3.0 * (-2.0_f64).exp())).abs() < 1e-12);
    assert!(binomial_spares(8, 1.5, 0.9).is_err());
}

#[test]
fn waiting_for_spares_is_that_of_the_poisson_law() {
    let plan = plan(
        "steps = 300_000\ngpus = 2048\ncheckpoint = { interval = \"10min\" }\n\
         failures = { class = [{ name = \"n\", domain = \"node\", mtbf = \"100d\" }, { name = \"s\", domain = \"job\", mtbf = \"3d\" }] }\n\
         recovery = { restart = \"5min\", repair = \"18h\" }",
    );
    let all = spares(&even(10.0), &plan, &options(1_500), 0.99, &[0, 2, 4], 0.9999).unwrap();
    assert!((all.under_repair - 1.92).abs() < 1e-9 && all.needed == 6);
    for row in &all.rows {
        // A run begins with nothing under repair: over 35 days that is worth about 2 % of its waits.
        let (low, high) = (row.wait.lower * 0.99, row.wait.upper * 1.04);
        assert!(low < row.wait_analytic && row.wait_analytic < high, "{row:?}");
    }
    assert_eq!(all.rows[0].wait.value, 1.0);
    assert!(all.rows.windows(2).all(|w| w[1].total_s.value < w[0].total_s.value));
    assert!(all.rows.windows(2).all(|w| w[1].waiting_s.value < w[0].waiting_s.value));
}

const LLAMA: &str = "steps = 60_000\ngpus = 16384\nnodes_per_rack = 2\n\
    checkpoint = { interval = \"30min\", blocking = \"3s\", write = \"2min\", load = \"1min\" }\n\
    failures = { preset = \"llama3-405b\" }\n";

#[test]
fn sensitivities_are_paired_and_add_up() {
    let plan = plan(&format!("{LLAMA}recovery = {{ restart = \"8min\" }}"));
    let steps = even(10.0);
    let found = sensitivity(&steps, &plan, &options(400), 0.95).unwrap();
    assert_eq!(found.classes.len(), 19);
    let all = &found.classes[18];
    assert!(all.class.is_none());
    // Nothing is left but steps and checkpoints.
    let alone_s = 600_000.0 + f64::from(60_000 / 180) * 3.0;
    assert!((found.base_s.value + all.removed_s.value - alone_s).abs() < 1e-3);
    let runs = simulate(&steps, &plan, &options(400)).unwrap();
    let (base, error) = mean(runs.outcomes.iter().map(|o| o.total_s));
    assert!((found.base_s.value - base).abs() < 1.5 * Z * error);
    let sum: f64 = found.classes[..18].iter().map(|c| c.removed_s.value).sum();
    assert!((sum / all.removed_s.value - 1.0).abs() < 0.1, "{sum} {}", all.removed_s.value);
    for class in &found.classes {
        let (less, half, more) = (class.removed_s, class.halved_s, class.doubled_s);
        assert!(less.value <= half.value && half.value <= 0.0 && more.value >= 0.0, "{class:?}");
    }
    // A GPU's failures are 148 of 419, and pairing shows it.
    let gpu = &found.classes[0];
    assert!(gpu.removed_s.upper < 0.0 && gpu.halved_s.upper < 0.0 && gpu.doubled_s.lower > 0.0);
    let share = gpu.removed_s.value / all.removed_s.value;
    assert!((share - 148.0 / 419.0).abs() < 0.05, "{share}");
}

#[test]
fn policies_are_compared_in_pairs() {
    let recovery = "recovery = { detection = \"30s\", restart = \"8min\", repair = \"1d\", spares = 40, standby_swap = \"1min\", \
        elastic = { replicas = 16, shrink = \"30s\", regrow = \"30s\" }, \
        in_memory = { interval = \"1min\", blocking = \"100ms\", load = \"10s\" } }";
    let plan = plan(&format!("{LLAMA}{recovery}"));
    let all = possible(&plan);
    assert_eq!(all.len(), 4);
    let steps = Same(Pace { warm_up_s: 30.0, ..even(10.0).0 });
    let rows = compare(&steps, &plan, &all, &options(500), 0.95).unwrap();
    assert_eq!((rows[0].faster.value, rows[0].faster.lower), (1.0, 1.0));
    for row in &rows[1..] {
        assert!(row.faster.lower > 1.0, "{row}");
        // Two sets of runs that share nothing would leave more open.
        let width = |e: Estimate| (e.upper - e.lower) / e.value;
        let apart = width(row.total_s).hypot(width(rows[0].total_s));
        assert!(width(row.faster) < apart, "{row}: {} {apart}", width(row.faster));
    }
    assert!(rows[1].to_string().starts_with("warm-standby is 1.0"), "{}", rows[1]);
    // A swap that takes as long as a restart is one.
    let mut same = plan;
    same.recovery.standby_swap_s = Some(same.recovery.restart_s);
    let two = [Policy::Restart, Policy::WarmStandby];
    let rows = compare(&steps, &same, &two, &options(100), 0.95).unwrap();
    assert_eq!(rows[0].total_s, rows[1].total_s);
}

#[test]
fn runs_depend_on_their_number_alone() {
    let plan = plan(&format!(
        "{LLAMA}recovery = {{ restart = \"8min\", repair = \"1d\", spares = 9 }}\n\
         slow = {{ preset = \"shared-roce\" }}\ndiurnal = {{ amplitude = 0.01 }}"
    ));
    let steps = Same(Pace { core_cov: 0.01, rho: 0.3, ..even(10.0).0 });
    let on = |threads: usize, runs: u32| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| simulate(&steps, &plan, &options(runs))).unwrap()
    };
    let (one, three) = (on(1, 300), on(3, 300));
    assert_eq!(one, three);
    assert_eq!(on(2, 70).outcomes, one.outcomes[..70]);
    for (i, o) in one.outcomes.iter().enumerate() {
        let sum: f64 = o.causes_s.iter().sum();
        assert!((sum / o.total_s - 1.0).abs() < 1e-9);
        let of_classes: f64 = one.class_lost_s[i * 18..(i + 1) * 18].iter().sum();
        assert!((of_classes - o.cause_s(Cause::Lost)).abs() < 1e-6);
        let steps_s = 60_000.0 * o.step_s;
        assert!((o.productive_s() / steps_s - 1.0).abs() < 1e-9);
    }
}

/// A rate known from 10 failures is uncertain: failures of a run are negative binomial.
#[test]
fn counted_rates_may_be_drawn() {
    let text = |rates: &str| {
        format!(
            "steps = 100_000\ngpus = 64\ncheckpoint = {{ interval = \"1h\" }}\n\
             failures = {{ rates = \"{rates}\", class = [{{ name = \"a\", domain = \"gpu\", count = 10, gpus = 128, duration = \"10d\" }}] }}\n\
             recovery = {{ restart = \"0s\" }}"
        )
    };
    for (rates, count, extra) in [("fixed", 10.0, 0.0), ("posterior", 10.5, 1.0 / 10.5)] {
        let runs = simulate(&even(1.0), &plan(&text(rates)), &options(20_000)).unwrap();
        let per_second = |o: &RunOutcome| f64::from(o.failures) / o.total_s;
        let (rate, error) = mean(runs.outcomes.iter().map(per_second));
        let want = count / (20.0 * 86_400.0);
        assert!((rate - want).abs() < Z * error, "{rate} {want}");
        // Runs take about 1.16 days: mean 0.58 failures, in a Poisson law of a Gamma rate.
        let n = runs.outcomes.len() as f64;
        let (failures, _) = mean(runs.outcomes.iter().map(|o| f64::from(o.failures)));
        let squares = runs.outcomes.iter().map(|o| (f64::from(o.failures) - failures).powi(2));
        let variance = squares.sum::<f64>() / n;
        let expected = failures + failures * failures * extra;
        // A variance's own error: s.d. of squares over the root of n, about 1.3 here.
        assert!((variance - expected).abs() < Z * 1.3 / n.sqrt() + 0.015, "{variance} {expected}");
    }
}

#[test]
fn greyhounds_jobs() {
    for (i, row) in greyhound_rows().into_iter().enumerate() {
        let gpus = [8, 32, 512][i];
        let plan =
            plan(&format!("steps = 17_280\ngpus = {gpus}\nslow = {{ preset = \"shared-roce\" }}"));
        let runs = simulate(&even(10.0), &plan, &options(4_000)).unwrap();
        let found = slow_cost(&runs, 0.5, 0.9999).unwrap();
        // Taken over: the share hit (of two days' jobs none that is exposed gets away).
        let hit = f64::from(row.jobs.0) / f64::from(row.jobs.1);
        assert!(found.hit.lower < hit && hit < found.hit.upper, "{found:?}");
        // Calibrated: the mean slow-down.
        let slower = found.slower.value / found.hit.value;
        assert!((slower / row.slower - 1.0).abs() < 0.15, "{slower} {row:?}");
        if gpus == 512 {
            assert!((found.slower.value - 0.346).abs() < 0.05, "{found:?}");
            // The share above +50 %, which the spreads were chosen with in view. Greyhound's fifth of 27 jobs has an error of 8 points.
            assert!((found.above.value - 0.2).abs() < 0.08, "{found:?}");
        }
    }
}

#[test]
fn lemons_last_from_start_to_end() {
    let plan = plan("steps = 100\ngpus = 256\nslow = { preset = \"lemon\" }");
    let runs = simulate(&even(10.0), &plan, &options(20_000)).unwrap();
    let found = slow_cost(&runs, 0.05, 0.99999).unwrap();
    // One of 32 nodes or more.
    let hit = 1.0 - 0.995_f64.powi(32);
    assert!(found.hit.lower < hit && hit < found.hit.upper, "{found:?}");
    assert_eq!(found.hit, found.above);
    assert!((found.slower.value / found.hit.value - 0.1).abs() < 1e-9);
}

#[test]
fn summaries() {
    let text = format!("{LLAMA}gpu_hour_usd = 2.0\nrecovery = {{ restart = \"8min\" }}");
    let runs = simulate(&even(10.0), &plan(&text), &options(1_000)).unwrap();
    let median = 8.1 * 86_400.0;
    let s = summarise(&runs, &[0.05, 0.5, 0.95], 0.95, Some(median)).unwrap();
    assert_eq!((s.runs, s.unfinished), (1_000, 0));
    let share: f64 = s.causes.iter().map(|c| c.share).sum();
    let total: f64 = s.causes.iter().map(|c| c.mean_s.value).sum();
    assert!((share - 1.0).abs() < 1e-9 && (total / s.total_s.mean.value - 1.0).abs() < 1e-9);
    assert!(s.total_s.quantiles.windows(2).all(|w| w[0].value < w[1].value));
    for q in &s.total_s.quantiles {
        assert!(q.lower.unwrap() < q.value && q.value < q.upper.unwrap() && !q.at_least);
    }
    let hours = s.total_s.mean.value / 3_600.0 * 16_384.0;
    assert!((s.gpu_hours.mean.value / hours - 1.0).abs() < 1e-9);
    assert!((s.cost_usd.as_ref().unwrap().mean.value / hours - 2.0).abs() < 1e-9);
    let by = runs.outcomes.iter().filter(|o| o.total_s <= median).count() as f64 / 1_000.0;
    assert_eq!(s.done_by.unwrap().probability.value, by);
    assert_eq!(done_by(&runs, 1.0, 0.95).unwrap().probability.value, 0.0);
    let above = throughput_above(&runs, 60_000.0 / median, 0.95).unwrap();
    assert!((above.value - by).abs() < 0.002);
    let counted: f64 = s.classes.iter().map(|c| c.failures.value).sum();
    assert!((counted - s.failures.mean.value).abs() < 1e-9);
    let json = serde_json::to_string(&s).unwrap();
    assert_eq!(serde_json::from_str::<prism_run::summary::Summary>(&json).unwrap(), s);
}

#[test]
fn runs_that_get_nowhere_end() {
    let plan = plan(
        "steps = 1000\ngpus = 8\ncheckpoint = { interval = \"1h\" }\n\
         failures = { class = [{ name = \"a\", domain = \"job\", mtbf = \"2min\" }] }\n\
         recovery = { restart = \"5min\" }",
    );
    let runs = simulate(&even(10.0), &plan, &options(20)).unwrap();
    assert_eq!(runs.unfinished(), 20);
    let s = summarise(&runs, &[0.5], 0.9, Some(1e9)).unwrap();
    assert!(s.total_s.quantiles[0].at_least && s.done_by.unwrap().probability.value == 0.0);
    for o in &runs.outcomes {
        let sum: f64 = o.causes_s.iter().sum();
        assert!((sum / o.total_s - 1.0).abs() < 1e-9, "{sum} {}", o.total_s);
    }
    let error = best_interval(&even(10.0), &plan, &options(20), 0.95);
    assert!(matches!(error, Err(RunError::Unfinished { .. })), "{error:?}");
}
