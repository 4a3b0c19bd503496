//! How much of each GPU's data sheet is reached.

use crate::Efficiency;

/// The efficiency of a GPU type by its preset's name.
pub(super) fn of(gpu: &str) -> Efficiency {
    match gpu {
        "V100-SXM-32GB" => Efficiency { attention: 0.3, kernel_s: 4e-6, ..AMPERE },
        "A100-SXM-40GB" | "A100-SXM-80GB" => AMPERE,
        "MI300X" => Efficiency { gemm: 0.6, attention: 0.35, ..HOPPER },
        "B200-SXM" | "GB200" => Efficiency { gemm: 0.75, attention: 0.5, ..HOPPER },
        _ => HOPPER,
    }
}

const AMPERE: Efficiency = Efficiency {
    gemm: 0.8,
    gemm_half_k: 100.0,
    attention: 0.5,
    memory: 0.85,
    kernel_s: 3e-6,
    launch_s: 4e-6,
    microbatch_host_s: 1e-3,
    nvlink: 0.8,
    network: 0.85,
    collective_s: 1e-5,
    step_s: 0.02,
};

const HOPPER: Efficiency =
    Efficiency { gemm: 0.75, gemm_half_k: 150.0, attention: 0.5, memory: 0.85, ..AMPERE };
