//! How much of each GPU's data sheet is reached.

use crate::Efficiency;

/// The efficiency of a GPU type by its preset's name.
pub(super) fn of(gpu: &str) -> Efficiency {
    match gpu {
        "V100-SXM-32GB" => Efficiency { attention: 0.3, kernel_s: 4e-6, ..AMPERE },
        "A100-SXM-40GB" | "A100-SXM-80GB" => AMPERE,
        "MI300X" => Efficiency { gemm: 0.45, attention: 0.35, ..HOPPER },
        _ => HOPPER,
    }
}

/// Estimated by least squares on 281 of the 1,440 iterations of vTrain (Bang et al., arXiv 2312.12391;
/// A100-40GB, one node), the all-reduces of the same study, and the two 175B rows of Korthikanti et al.
/// (arXiv 2205.05198, table 5). `attention` and `network` were not identified by these, and are assumed.
const AMPERE: Efficiency = Efficiency {
    gemm: 0.858,
    gemm_fp8: 0.6,
    gemm_half_k: 310.0,
    attention: 0.5,
    memory: 0.735,
    kernel_s: 4e-6,
    launch_s: 128e-6,
    microbatch_host_s: 0.645e-3,
    nvlink: 0.75,
    network: 0.8,
    collective_s: 61e-6,
    step_s: 0.02,
};

/// `gemm` from the 8,192-GPU row of Llama 3 405B (arXiv 2407.21783, table 4), `gemm_fp8` from one system
/// of `MLPerf` Training 3.1 (`eos_n64`, GPT-3 175B); the rest is assumed.
const HOPPER: Efficiency = Efficiency {
    gemm: 0.571,
    gemm_fp8: 0.522,
    gemm_half_k: 100.0,
    attention: 0.5,
    memory: 0.8,
    kernel_s: 3e-6,
    launch_s: 20e-6,
    microbatch_host_s: 0.0,
    nvlink: 0.75,
    network: 0.8,
    collective_s: 30e-6,
    step_s: 0.05,
};
