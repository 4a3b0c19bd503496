//! How long 100,000 runs of 54 days on 16,384 GPUs take to simulate, with the failures of Llama 3 405B.
//!
//! `cargo run --release -p prism-run --example run_scale`

use std::sync::Arc;
use std::time::Instant;

use prism_job::{ReadOptions, RunDefaults, parse_run_plan};
use prism_run::simulate::{Options, simulate};
use prism_run::{Pace, Steps};
use rand_chacha::ChaCha8Rng;

/// Ten seconds a step, with noise and stalls.
struct Ten(Arc<[f64]>);

impl Steps for Ten {
    fn pace(&self, _: &mut ChaCha8Rng) -> Pace {
        Pace {
            core_s: 10.0,
            core_cov: 0.01,
            rho: 0.4,
            stall_rate: 0.005,
            stall_marks: Arc::clone(&self.0),
            warm_up_s: 30.0,
            after_evaluation_s: 0.0,
        }
    }
}

const PLAN: &str = r#"
[run]
steps = 400_000
gpus = 16384
checkpoint = { interval = "30min", blocking = "3s", write = "2min", load = "1min" }
failures = { preset = "llama3-405b" }
recovery = { detection = "1min", restart = "6min" }
"#;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let plan = parse_run_plan(PLAN, &ReadOptions::default(), &RunDefaults::default())?;
    let steps = Ten((1..=64).map(|i| 0.1 * f64::from(i)).collect());
    let options = Options { runs: 100_000, ..Options::default() };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build()?;
    let mut seconds = Vec::new();
    let (mut days, mut failures, mut ettr) = (0.0, 0.0, 0.0);
    for _ in 0..5 {
        let start = Instant::now();
        let runs = pool.install(|| simulate(&steps, &plan, &options))?;
        seconds.push(start.elapsed().as_secs_f64());
        let n = runs.outcomes.len() as f64;
        days = runs.outcomes.iter().map(|o| o.total_s).sum::<f64>() / n / 86_400.0;
        failures = runs.outcomes.iter().map(|o| f64::from(o.failures)).sum::<f64>() / n;
        ettr = runs.outcomes.iter().map(prism_run::RunOutcome::ettr).sum::<f64>() / n;
    }
    seconds.sort_by(f64::total_cmp);
    println!(
        "{} runs of {days:.1} days, {failures:.0} failures each, ETTR {ettr:.3}",
        options.runs
    );
    println!(
        "2 threads: median of 5 {:.2} s, range {:.2} to {:.2} s: {:.0} ns a failure and thread",
        seconds[2],
        seconds[0],
        seconds[4],
        seconds[2] * 2.0 * 1e9 / failures / f64::from(options.runs)
    );
    Ok(())
}
