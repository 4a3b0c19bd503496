//! Any plan that breaks no rule gives runs that end and add up.

use prism_job::{ReadOptions, RunDefaults, parse_run_plan};
use prism_run::simulate::{Options, simulate};
use prism_run::summary::summarise;
use prism_run::{Pace, Steps};
use proptest::prelude::*;
use rand_chacha::ChaCha8Rng;

struct Same(Pace);

impl Steps for Same {
    fn pace(&self, _: &mut ChaCha8Rng) -> Pace {
        self.0.clone()
    }
}

/// A number of any size.
fn size(low: i32, high: i32) -> impl Strategy<Value = f64> {
    (1.0f64..10.0, low..high).prop_map(|(m, e)| m * 10f64.powi(e))
}

fn policy() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["restart", "warm-standby", "elastic", "in-memory"])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn runs_end_and_add_up(
        (steps, nodes, replicas) in (1u32..20_000, 1u64..40, 2u64..9),
        (step_s, interval_s, blocking_s, write_s) in (size(-3, 4), size(-3, 9), size(-6, 3), size(-6, 4)),
        (mtbf_s, rack_s, detection_s, restart_s, repair_s) in (size(1, 9), size(2, 10), size(-3, 3), size(-3, 4), size(0, 6)),
        (spares, swap_s, shrink_s, snapshot_s) in (1u32..40, size(-3, 3), size(-3, 3), size(-3, 5)),
        (every, maintenance_s, amplitude, per_hour) in (1u32..5_000, size(2, 7), 0.0f64..0.95, size(-3, 1)),
        (name, cov, rho, stall_rate) in (policy(), 0.0f64..0.3, -0.9f64..0.95, 0.0f64..0.2),
    ) {
        let gpus = nodes * replicas * 8;
        let spares = spares.min((nodes * replicas) as u32);
        let text = format!(
            "[run]\nsteps = {steps}\ngpus = {gpus}\n\
             checkpoint = {{ interval = \"{interval_s}s\", blocking = \"{blocking_s}s\", write = \"{}s\" }}\n\
             evaluation = {{ every_steps = {every}, duration = \"{detection_s}s\" }}\n\
             maintenance = {{ every = \"{maintenance_s}s\", duration = \"{restart_s}s\" }}\n\
             diurnal = {{ amplitude = {amplitude} }}\n\
             slow = {{ class = [{{ name = \"a\", per_job_hour = {per_hour}, mean = \"{repair_s}s\", factor = 1.5, factor_sigma = 2.0 }}, {{ name = \"b\", share = 0.01, factors = [1.1, 9.0] }}] }}\n\
             failures = {{ class = [{{ name = \"a\", domain = \"job\", mtbf = \"{mtbf_s}s\" }}, {{ name = \"b\", domain = \"rack\", mtbf = \"{rack_s}s\" }}, {{ name = \"c\", domain = \"gpu\", count = 1, gpus = 64, duration = \"{rack_s}s\" }}] }}\n\
             [run.recovery]\npolicy = \"{name}\"\ndetection = \"{detection_s}s\"\nrestart = \"{restart_s}s\"\nrepair = \"{repair_s}s\"\n\
             spares = {spares}\nstandby_swap = \"{swap_s}s\"\n\
             elastic = {{ replicas = {replicas}, shrink = \"{shrink_s}s\", regrow = \"{shrink_s}s\" }}\n\
             in_memory = {{ interval = \"{snapshot_s}s\", load = \"{shrink_s}s\" }}\n",
            write_s.min(interval_s)
        );
        let plan = parse_run_plan(&text, &ReadOptions::default(), &RunDefaults::default());
        let plan = plan.map_err(|e| TestCaseError::fail(format!("{e}\n{text}")))?;
        let pace = Pace {
            core_s: step_s,
            core_cov: cov,
            rho,
            stall_rate,
            stall_marks: [0.5, 40.0].into(),
            warm_up_s: shrink_s,
            after_evaluation_s: swap_s,
        };
        let options = Options { runs: 3, seed: 5, horizon: 4.0 };
        let runs = simulate(&Same(pace), &plan, &options).unwrap();
        for o in &runs.outcomes {
            prop_assert!(o.total_s.is_finite() && o.total_s > 0.0);
            let size: f64 = o.causes_s.iter().map(|c| c.abs()).sum();
            let sum: f64 = o.causes_s.iter().sum();
            prop_assert!((sum - o.total_s).abs() <= 1e-7 * size, "{sum} {} {:?}", o.total_s, o);
            if o.finished {
                let steps_s = f64::from(steps) * o.step_s;
                prop_assert!((o.productive_s() / steps_s - 1.0).abs() < 1e-6, "{o:?}");
            }
            // All but the day's swing takes time, to rounding.
            for cause in prism_run::Cause::ALL {
                let least = -1e-9 * size;
                prop_assert!(cause == prism_run::Cause::Diurnal || o.cause_s(cause) >= least, "{cause} {o:?}");
            }
        }
        prop_assert!(summarise(&runs, &[0.5], 0.9, None).is_ok());
    }
}
