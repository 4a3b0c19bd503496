//! Figures of whole runs: the closed form of ETTR beside simulated runs, Daly's best interval over seeds, fail-slow
//! jobs, recovery policies, each with its spread.

use prism_job::run::RunPlan;
use prism_job::{ReadOptions, RunDefaults, parse_run_plan};
use prism_run::formula::{daly_s, expected_ettr, mttf_s};
use prism_run::optimise::best_interval;
use prism_run::policies::{compare, possible};
use prism_run::simulate::{Options, simulate};
use prism_run::slow::slow_cost;
use prism_run::{Pace, RunOutcome, Steps};
use rand_chacha::ChaCha8Rng;

/// RSC-1: failures of a node in a second.
const RSC_1: f64 = 6.5 / 1_000.0 / 86_400.0;

/// Steps of one length, seconds.
struct Even(f64);

impl Steps for Even {
    fn pace(&self, _: &mut ChaCha8Rng) -> Pace {
        Pace {
            core_s: self.0,
            core_cov: 0.0,
            rho: 0.0,
            stall_rate: 0.0,
            stall_marks: [].into(),
            warm_up_s: 0.0,
            after_evaluation_s: 0.0,
        }
    }
}

type Done = Result<(), Box<dyn std::error::Error>>;

fn plan(text: &str) -> Result<RunPlan, prism_job::JobFileError> {
    parse_run_plan(&format!("[run]\n{text}"), &ReadOptions::default(), &RunDefaults::default())
}

fn options(runs: u32, seed: u64) -> Options {
    Options { runs, seed, ..Options::default() }
}

fn ratios() -> Done {
    for gpus in [16_384.0, 131_072.0] {
        println!(
            "RSC-1 at {gpus} GPUs: a failure every {:.3} h",
            mttf_s(gpus / 8.0, RSC_1)? / 3_600.0
        );
    }
    for recovery_s in [600.0, 180.0] {
        let ettr = expected_ettr(1.0, 1.0 / 1_080.0, recovery_s, 0.0, 1e-6)?;
        println!(
            "a failure every 18 min, {} min of recovery, no lost work: ETTR {ettr:.3}",
            recovery_s / 60.0
        );
    }
    println!("nodes, interval, blocking; share lost to first order; closed form; simulated (s.e.)");
    let cases: [(u64, &str, f64, f64, u64); 7] = [
        (64, "60min", 3_600.0, 10.0, 200_000),
        (256, "60min", 3_600.0, 60.0, 200_000),
        (1_024, "10min", 600.0, 10.0, 200_000),
        (2_048, "5min", 300.0, 5.0, 200_000),
        (2_048, "5min", 300.0, 0.0, 3_000),
        (2_048, "60min", 3_600.0, 0.0, 3_000),
        (16_384, "30min", 1_800.0, 0.0, 3_000),
    ];
    for (nodes, interval, interval_s, blocking_s, steps) in cases {
        let plan = plan(&format!(
            "steps = {steps}\ngpus = {}\n\
             checkpoint = {{ interval = \"{interval}\", blocking = \"{blocking_s}s\" }}\n\
             failures = {{ preset = \"rsc-1\" }}\nrecovery = {{ restart = \"5min\" }}",
            nodes * 8
        ))?;
        let runs =
            simulate(&Even(10.0), &plan, &options(if steps > 10_000 { 400 } else { 3_000 }, 1))?;
        let ettr: Vec<f64> = runs.outcomes.iter().map(RunOutcome::ettr).collect();
        let n = ettr.len() as f64;
        let mean = ettr.iter().sum::<f64>() / n;
        let variance = ettr.iter().map(|e| (e - mean).powi(2)).sum::<f64>() / (n - 1.0);
        let formula = expected_ettr(nodes as f64, RSC_1, 300.0, blocking_s, interval_s)?;
        println!(
            "{nodes}, {interval}, {blocking_s} s; {:.3}; {formula:.4}; {mean:.4} ({:.4})",
            nodes as f64 * RSC_1 * (300.0 + interval_s / 2.0),
            (variance / n).sqrt()
        );
    }
    Ok(())
}

fn intervals() -> Done {
    let plan = plan(
        "steps = 40_000\ngpus = 16384\n\
         checkpoint = { interval = \"2h\", blocking = \"30s\", load = \"1min\" }\n\
         failures = { class = [{ name = \"a\", domain = \"job\", mtbf = \"3h\" }] }\n\
         recovery = { restart = \"4min\" }",
    )?;
    let mut found = Vec::new();
    let mut flat = (0.0, 0.0);
    for seed in 1..=24 {
        let best = best_interval(&Even(2.0), &plan, &options(2_000, seed), 0.95)?;
        found.push(best.interval_s.value);
        flat = (flat.0 + best.flat_s[0] / 24.0, flat.1 + best.flat_s[1] / 24.0);
    }
    found.sort_by(f64::total_cmp);
    println!(
        "best interval over 24 seeds: {:.0} to {:.0} s, median {:.0}; Daly {:.0} s; 0.1 % longer at {:.0} and {:.0} s",
        found[0],
        found[23],
        0.5 * (found[11] + found[12]),
        daly_s(30.0, 10_800.0)?,
        flat.0,
        flat.1
    );
    Ok(())
}

fn fail_slow() -> Done {
    let plan = plan("steps = 17_280\ngpus = 512\nslow = { preset = \"shared-roce\" }")?;
    let found = slow_cost(&simulate(&Even(10.0), &plan, &options(20_000, 1))?, 0.5, 0.95)?;
    println!(
        "shared-roce at 512 GPUs: {:.1} % of jobs hit, slower by {:.1} % [{:.1}, {:.1}] on average, {:.1} % [{:.1}, \
         {:.1}] above +50 %",
        100.0 * found.hit.value,
        100.0 * found.slower.value,
        100.0 * found.slower.lower,
        100.0 * found.slower.upper,
        100.0 * found.above.value,
        100.0 * found.above.lower,
        100.0 * found.above.upper
    );
    Ok(())
}

fn policies() -> Done {
    let text = include_str!("../../../examples/run.toml");
    let plan = parse_run_plan(text, &ReadOptions::default(), &RunDefaults::default())?;
    for row in compare(&Even(10.0), &plan, &possible(&plan), &options(2_000, 1), 0.95)? {
        println!("examples/run.toml: {row}, ETTR {:.4}", row.ettr.value);
    }
    Ok(())
}

fn main() -> Done {
    ratios()?;
    intervals()?;
    fail_slow()?;
    policies()
}
