//! The fast simulator against the plain one, in distribution, feature by feature.

mod plain;

use prism_job::{ReadOptions, RunDefaults, RunPlan, parse_run_plan};
use prism_run::simulate::{Options, simulate};
use prism_run::{Cause, Pace, RunOutcome, Steps};
use prism_stats::{htest, ks_statistic_two, quantile, stream};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;

/// The same pace for all runs.
struct Same(Pace);

impl Steps for Same {
    fn pace(&self, _: &mut ChaCha8Rng) -> Pace {
        self.0.clone()
    }
}

fn pace() -> Pace {
    Pace {
        core_s: 10.0,
        core_cov: 0.03,
        rho: 0.5,
        stall_rate: 0.0,
        stall_marks: [].into(),
        warm_up_s: 0.0,
        after_evaluation_s: 0.0,
    }
}

fn plan(text: &str) -> RunPlan {
    let text = format!("[run]\nsteps = 400\ngpus = 64\n{text}");
    parse_run_plan(&text, &ReadOptions::default(), &RunDefaults::default())
        .unwrap_or_else(|e| panic!("{e}"))
}

const RUNS: u32 = 3_000;

/// All tests together make about 300 comparisons; each is at 1 in 100,000.
const ALPHA: f64 = 1e-5;

fn moments(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    (mean, values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0) / n)
}

/// Means of the total, of every cause and of the failures, and the law of the total.
fn agree(name: &str, pace: &Pace, plan: &RunPlan) {
    let options = Options { runs: RUNS, seed: 7, ..Options::default() };
    let fast = simulate(&Same(pace.clone()), plan, &options).unwrap().outcomes;
    assert!(fast.iter().all(|o| o.finished), "{name}");
    let slow: Vec<plain::Outcome> = (0..u64::from(RUNS))
        .into_par_iter()
        .map(|i| plain::run(plan, pace, stream(11, "plain", &[i])))
        .collect();
    let z = -htest::normal_quantile(0.5 * ALPHA);
    let close = |what: &str, a: Vec<f64>, b: Vec<f64>| {
        let ((ma, va), (mb, vb)) = (moments(&a), moments(&b));
        let error = (va + vb).sqrt();
        println!("{name}: {what}: {ma:.3} {mb:.3} ± {error:.3}");
        // Rounding where nothing varies.
        assert!(
            (ma - mb).abs() <= z * error + 1e-6 * mb.abs().max(1.0),
            "{name}: {what}: {ma} {mb} ± {error}"
        );
    };
    let of_fast = |f: &dyn Fn(&RunOutcome) -> f64| fast.iter().map(f).collect::<Vec<f64>>();
    let of_slow = |f: &dyn Fn(&plain::Outcome) -> f64| slow.iter().map(f).collect::<Vec<f64>>();
    close("total", of_fast(&|o| o.total_s), of_slow(&|o| o.total_s));
    close("failures", of_fast(&|o| f64::from(o.failures)), of_slow(&|o| o.failures));
    for cause in Cause::ALL {
        let (a, b) = (of_fast(&|o| o.cause_s(cause)), of_slow(&|o| o.causes_s[cause as usize]));
        match cause {
            // The plain one does not tell stalls from steps.
            Cause::Steps => close("productive", of_fast(&RunOutcome::productive_s), b),
            Cause::Stalls => {}
            _ => close(&cause.to_string(), a, b),
        }
    }
    let a = quantile::sorted(&of_fast(&|o| o.total_s));
    let b = quantile::sorted(&of_slow(&|o| o.total_s));
    let ks = ks_statistic_two(&a, &b).unwrap();
    // Two-sample critical value of Kolmogorov and Smirnov.
    let n = f64::from(RUNS);
    let bound = ((2.0 / ALPHA).ln() / 2.0).sqrt() * (2.0 / n).sqrt();
    assert!(ks < bound, "{name}: KS {ks} with n = {n} each, {bound} is exceeded once in {ALPHA}");
    for o in &fast {
        let sum: f64 = o.causes_s.iter().sum();
        assert!((sum - o.total_s).abs() < 1e-9 * o.total_s, "{name}: {sum} {}", o.total_s);
    }
}

const CHECKPOINT: &str =
    "checkpoint = { interval_steps = 20, blocking = \"4s\", write = \"45s\", load = \"7s\" }\n";

#[test]
fn noise_and_stalls() {
    let marks: Vec<f64> = vec![0.3, 0.5, 4.0];
    let pace = Pace { stall_rate: 0.02, stall_marks: marks.into(), warm_up_s: 25.0, ..pace() };
    agree("stalls", &pace, &plan(""));
    agree(
        "evaluations",
        &Pace { after_evaluation_s: 3.0, ..pace },
        &plan("evaluation = { every_steps = 30, duration = \"60s\" }"),
    );
}

#[test]
fn failures_and_checkpoints() {
    let failures = "failures = { class = [{ name = \"a\", domain = \"job\", mtbf = \"20min\" }, { name = \"b\", domain = \"node\", mtbf = \"4h\", detection = \"50s\" }] }\n\
                    recovery = { detection = \"20s\", restart = \"100s\" }\n";
    let plan_of = |more: &str| plan(&format!("{CHECKPOINT}{failures}{more}"));
    agree("failures", &Pace { warm_up_s: 15.0, ..pace() }, &plan_of(""));
    let more = "evaluation = { every_steps = 45, duration = \"90s\" }\nmaintenance = { every = \"45min\", duration = \"10min\" }";
    agree("maintenance", &Pace { warm_up_s: 15.0, ..pace() }, &plan_of(more));
}

#[test]
fn policies() {
    let classes = "failures = { class = [{ name = \"job\", domain = \"job\", mtbf = \"2h\" }, { name = \"node\", domain = \"node\", mtbf = \"3h\" }, { name = \"rack\", domain = \"rack\", mtbf = \"8h\" }] }\n";
    let plan_of = |recovery: &str| {
        plan(&format!(
            "{CHECKPOINT}{classes}recovery = {{ detection = \"20s\", restart = \"100s\", repair = \"20min\", {recovery} }}\n"
        ))
    };
    let pace = Pace { warm_up_s: 15.0, ..pace() };
    agree("spares", &pace, &plan_of("spares = 2"));
    agree("no spares", &pace, &plan_of("spares = 0"));
    agree(
        "standby",
        &pace,
        &plan_of("spares = 2, policy = \"warm-standby\", standby_swap = \"12s\""),
    );
    let elastic =
        "policy = \"elastic\", elastic = { replicas = 4, shrink = \"15s\", regrow = \"25s\" }";
    agree("elastic", &pace, &plan_of(elastic));
    agree("elastic, spares", &pace, &plan_of(&format!("spares = 1, {elastic}")));
    let memory = "policy = \"in-memory\", in_memory = { interval = \"50s\", blocking = \"1s\", load = \"3s\" }";
    agree("in memory", &pace, &plan_of(memory));
    agree(
        "in memory, not replicated",
        &pace,
        &plan_of(&memory.replace("load", "replicated = false, load")),
    );
}

#[test]
fn slow_downs() {
    let slow = "slow = { class = [{ name = \"a\", per_job_hour = 1.5, mean = \"12min\", sigma = 0.7, factor = 1.6, factor_sigma = 0.5 }, { name = \"b\", per_unit_day = 2.0, mean = \"5min\", factors = [1.2, 3.0] }] }\n";
    agree("slow", &pace(), &plan(slow));
    agree("slow, adding", &pace(), &plan(&slow.replace("slow = {", "slow = { slowest = false,")));
    let diurnal = "diurnal = { amplitude = 0.3, period = \"1h\", peak = \"10min\" }\n";
    agree("diurnal", &pace(), &plan(diurnal));
    let failures = "failures = { class = [{ name = \"a\", mtbf = \"5h\" }] }\nrecovery = { restart = \"100s\" }\n";
    // What is written is durable after wall-clock time in neither.
    agree("all", &pace(), &plan(&format!("{CHECKPOINT}{slow}{diurnal}{failures}")));
}
