//! The machines.

use prism_model::KernelClass;

/// GPUs, nodes and what joins them.
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    /// Name for reports.
    pub name: String,
    /// GPUs there are; `None` for as many as the plan takes.
    pub gpus: Option<u64>,
    /// The GPU.
    pub gpu: Gpu,
    /// GPUs of a node.
    pub gpus_per_node: u32,
    /// GPUs joined by `NVLink`: a node's, or a rack's.
    pub nvlink_domain: u32,
    /// Links inside the `NVLink` domain.
    pub nvlink: Network,
    /// Links between nodes.
    pub network: Network,
    /// Where the network is wider than one switch: each tier's reach, latency and bandwidth, inner
    /// first.
    pub tiers: Vec<Tier>,
    /// How much of the hardware's figures is reached.
    pub efficiency: Efficiency,
}

/// A GPU's data sheet. Rates are dense (without sparsity).
#[derive(Clone, Debug, PartialEq)]
pub struct Gpu {
    /// Name.
    pub name: String,
    /// Memory, bytes.
    pub memory_bytes: f64,
    /// Memory bandwidth, bytes per second.
    pub memory_bandwidth: f64,
    /// 16-bit tensor-core rate, FLOP per second.
    pub bf16_flops: f64,
    /// 8-bit tensor-core rate, FLOP per second; `None` where there is none.
    pub fp8_flops: Option<f64>,
    /// Streaming multiprocessors, for wave quantisation.
    pub sms: u32,
    /// Where the figures come from.
    pub source: String,
}

/// A kind of link: α–β.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Network {
    /// Bandwidth of one GPU in one direction, bytes per second.
    pub bandwidth: f64,
    /// Latency of one message, seconds.
    pub latency_s: f64,
    /// Whether collectives may reduce in the switch (NVLS, SHARP).
    pub in_network_reduction: bool,
}

/// A level of the network above the node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tier {
    /// GPUs inside it.
    pub gpus: u64,
    /// Latency added to a message that stays inside it, seconds.
    pub latency_s: f64,
    /// Oversubscription: bandwidth of a GPU's messages at this level is divided by this.
    pub oversubscription: f64,
}

/// How much of the data sheet is reached, and what every operation costs besides.
///
/// The parameters that `prism fit-cluster` estimates. GPU parameters hold for a GPU type; network
/// parameters and the fixed overhead for a cluster.
#[derive(
    Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(deny_unknown_fields)]
pub struct Efficiency {
    /// Share of the tensor-core rate that large matrix products reach, in (0, 1].
    pub gemm: f64,
    /// The same for products of 8-bit floats, of the 8-bit rate.
    pub gemm_fp8: f64,
    /// Inner dimension at which a matrix product's prologue takes as long as its work, elements.
    pub gemm_half_k: f64,
    /// Share of the tensor-core rate that fused attention reaches, in (0, 1].
    pub attention: f64,
    /// Share of memory bandwidth that elementwise kernels reach, in (0, 1].
    pub memory: f64,
    /// Least time of a kernel, seconds.
    pub kernel_s: f64,
    /// Host time of a kernel launch, seconds: a layer takes at least its kernels times this.
    pub launch_s: f64,
    /// Host time of a microbatch, seconds.
    pub microbatch_host_s: f64,
    /// Share of the `NVLink` bandwidth that collectives reach, in (0, 1].
    pub nvlink: f64,
    /// Share of the network's bandwidth that collectives reach, in (0, 1].
    pub network: f64,
    /// Fixed time of a collective, seconds.
    pub collective_s: f64,
    /// Fixed time of a step (data loader, logging, synchronisation), seconds.
    pub step_s: f64,
}

impl Cluster {
    /// The bandwidth and latency between GPUs that are `span` GPUs apart at most, per GPU and
    /// direction, before efficiency.
    pub fn link(&self, span: u64) -> Network {
        if span <= u64::from(self.nvlink_domain) {
            return self.nvlink;
        }
        let mut link = self.network;
        for tier in &self.tiers {
            link.latency_s = self.network.latency_s + tier.latency_s;
            link.bandwidth = self.network.bandwidth / tier.oversubscription;
            if span <= tier.gpus {
                break;
            }
        }
        link
    }

    /// Which class a link's transfers belong to; for reports.
    pub fn is_nvlink(&self, span: u64) -> bool {
        span <= u64::from(self.nvlink_domain)
    }

    /// Class of a kernel by its arithmetic intensity.
    pub fn class_of(&self, flops: f64, bytes: f64) -> KernelClass {
        let compute = flops / self.gpu.bf16_flops;
        if compute >= bytes / self.gpu.memory_bandwidth {
            KernelClass::Compute
        } else {
            KernelClass::Memory
        }
    }
}
