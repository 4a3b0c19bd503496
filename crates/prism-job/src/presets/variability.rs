//! Variability by name.

use super::{Listed, same_name};
use crate::{Hang, Laggards, MicrobatchSpread, Variability};

/// The presets there are, in a fixed order.
pub fn variabilities() -> impl Iterator<Item = Listed> {
    PRESETS.iter().map(|&(name, describe, _)| Listed { name, describe })
}

/// The variability of a name; case and `_` for `-` do not matter.
pub fn variability(name: &str) -> Option<Variability> {
    let (name, _, make) = PRESETS.iter().find(|p| same_name(p.0, name))?;
    Some(Variability { preset: (*name).to_owned(), ..make() })
}

/// The preset where none is named.
pub(crate) fn default_variability() -> Variability {
    Variability { preset: DEFAULT.to_owned(), ..dedicated() }
}

const DEFAULT: &str = "dedicated";

type Preset = (&'static str, &'static str, fn() -> Variability);

const PRESETS: &[Preset] = &[
    ("none", "nothing varies", none),
    (
        DEFAULT,
        "a healthy job on its own machines (jobs of the OSDI'25 straggler study, arXiv 2505.05713)",
        dedicated,
    ),
    (
        "power-limited",
        "GPUs whose clocks differ under a power cap (392 V100 of the PAL study)",
        power_limited,
    ),
    ("shared-roce", "a network shared with other jobs (Greyhound, arXiv 2410.12588)", shared_roce),
    ("diurnal", "temperature moves clocks over the day (Llama 3, arXiv 2407.21783)", diurnal),
    ("lemon", "a few nodes are a tenth slower (MegaScale, arXiv 2402.15627)", lemon),
    (
        "sequence-imbalance",
        "sequences of unequal length, unbalanced (OSDI'25 straggler study, arXiv 2505.05713)",
        sequence_imbalance,
    ),
    ("moe", "experts get unequal shares of the tokens (arXiv 2605.20982)", moe),
];

fn none() -> Variability {
    Variability {
        preset: String::new(),
        gpu_compute_sd: 0.0,
        gpu_memory_sd: 0.0,
        laggards: Laggards { share: 0.0, factor: 1.0 },
        step_sd: 0.0,
        step_worker_sd: 0.0,
        microbatch: MicrobatchSpread { sd: 0.0, skew: 0.0 },
        residual_sd: 0.0,
        transfer_sd: 0.0,
        congestion_sd: 0.0,
        burst_probability: 0.0,
        burst_factor: 1.0,
        overhead_sd_s: 0.0,
        expert_imbalance_sd: 0.0,
        diurnal_amplitude: 0.0,
        hang: Hang { probability: 0.0, factor: 1.0 },
    }
}

fn dedicated() -> Variability {
    Variability {
        // Straggler study, s.d. of log compute time of healthy jobs: worker 0.3 %, step 0.6 to
        // 1.8 %, step x worker 0.3 to 0.7 %, microbatch 1.3 to 2.1 %; the middle of each.
        gpu_compute_sd: 0.003,
        step_sd: 0.012,
        step_worker_sd: 0.005,
        microbatch: MicrobatchSpread { sd: 0.017, skew: 0.0 },
        // PAL, 392 V100: PageRank, bound by memory, differs by 0.04 % between GPUs; an SGEMM
        // repeated on one GPU by 0.13 %.
        gpu_memory_sd: 0.0004,
        residual_sd: 0.0013,
        // Assumed: no study gives transfers without their waits. Links of one job's own fabric.
        transfer_sd: 0.03,
        congestion_sd: 0.01,
        ..none()
    }
}

fn power_limited() -> Variability {
    Variability {
        // PAL, 392 V100: SGEMM's spatial CoV is 1.99 %, and its rank correlation with the clock
        // -0.98; memory-bound work does not feel the clock.
        gpu_compute_sd: 0.0199,
        ..dedicated()
    }
}

fn shared_roce() -> Variability {
    Variability {
        // Greyhound, jobs on four nodes: 42 of 107 met congestion, and took 15.5 % longer: 6 % over
        // all jobs. Where communication is 30 % of a step, a tenth of the steps at three times the
        // communication gives 6 %.
        burst_probability: 0.1,
        burst_factor: 3.0,
        // Assumed.
        transfer_sd: 0.1,
        congestion_sd: 0.05,
        ..dedicated()
    }
}

fn diurnal() -> Variability {
    // Llama 3: throughput swings by 1 to 2 % over the day; half of the middle is the amplitude.
    Variability { diurnal_amplitude: 0.0075, ..dedicated() }
}

fn lemon() -> Variability {
    // MegaScale: 0.5 % of the machines are about 10 % slow.
    Variability { laggards: Laggards { share: 0.005, factor: 1.1 }, ..dedicated() }
}

fn sequence_imbalance() -> Variability {
    Variability {
        // Straggler study, jobs with sequences of unequal length: step x worker 7 to 10 %,
        // microbatch 17 to 27 %, p99 over p50 of 1.7 to 2.8: 2.4 to 3.8 s.d. above the median.
        // A Pearson III law of skewness 1 has its p99 3.0 s.d. above the median.
        step_worker_sd: 0.085,
        microbatch: MicrobatchSpread { sd: 0.22, skew: 1.0 },
        ..dedicated()
    }
}

fn moe() -> Variability {
    // Routing Gini 0.105 on real text (multi-head attention): a CoV of experts' loads of 0.105 times
    // the root of pi, 0.19; with four experts a rank half of it.
    Variability { expert_imbalance_sd: 0.09, ..dedicated() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kept() {
        for listed in variabilities() {
            assert_eq!(variability(listed.name).unwrap().preset, listed.name);
        }
        assert_eq!(variability("Shared_RoCE").unwrap().preset, "shared-roce");
        assert!(variability("quiet").is_none());
    }

    /// The derivations written beside the numbers.
    #[test]
    fn derived_numbers_follow_from_their_sources() {
        let roce = variability("shared-roce").unwrap();
        let mean = 0.3 * roce.burst_probability * (roce.burst_factor - 1.0);
        assert!((mean - 42.0 / 107.0 * 0.155).abs() < 0.005);
        let moe = variability("moe").unwrap();
        let cov = 0.105 * std::f64::consts::PI.sqrt() / 2.0;
        assert!((moe.expert_imbalance_sd - cov).abs() < 0.005);
    }
}
