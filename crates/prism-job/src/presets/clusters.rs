//! Clusters by name.

use super::{Listed, gpu, same_name};
use crate::{Cluster, Network, Tier};

/// The clusters there are, in a fixed order.
pub fn clusters() -> impl Iterator<Item = Listed> {
    CLUSTERS.iter().map(|c| Listed { name: c.name, describe: c.describe })
}

/// The cluster of a name, as large as a plan takes; case and `_` for `-` do not matter.
pub fn cluster(name: &str) -> Option<Cluster> {
    let entry = CLUSTERS.iter().find(|c| same_name(c.name, name))?;
    let preset = gpu(entry.gpu)?;
    Some(Cluster {
        name: entry.name.to_owned(),
        gpus: None,
        gpu: preset.gpu,
        gpus_per_node: entry.gpus_per_node,
        nvlink_domain: entry.nvlink_domain,
        nvlink: preset.nvlink,
        network: Network {
            bandwidth: entry.network_gbps * 1e9 / 8.0,
            latency_s: entry.latency_s,
            in_network_reduction: false,
        },
        tiers: entry.tiers.to_vec(),
        efficiency: preset.efficiency,
    })
}

struct Entry {
    name: &'static str,
    describe: &'static str,
    gpu: &'static str,
    gpus_per_node: u32,
    nvlink_domain: u32,
    /// Of one GPU and direction.
    network_gbps: f64,
    /// Of a message between nodes under one leaf switch.
    latency_s: f64,
    tiers: &'static [Tier],
}

const fn tier(gpus: u64, latency_s: f64, oversubscription: f64) -> Tier {
    Tier { gpus, latency_s, oversubscription }
}

/// A `SuperPOD`'s fat tree: a scalable unit of 32 nodes under one layer of leaves, spines over up to
/// 8 of them, cores above; full bisection. A switch and its cables add about half a microsecond.
const SUPERPOD: &[Tier] = &[tier(256, 0.0, 1.0), tier(2048, 1e-6, 1.0), tier(16_384, 2e-6, 1.0)];

const CLUSTERS: &[Entry] = &[
    Entry {
        name: "v100-dgx1",
        describe: "DGX-1 V100: 8 GPUs and 4x100 Gbps EDR a node (NVIDIA DGX-1 data sheet)",
        gpu: "V100-SXM-32GB",
        gpus_per_node: 8,
        nvlink_domain: 8,
        network_gbps: 50.0,
        latency_s: 5e-6,
        tiers: &[],
    },
    Entry {
        name: "a100-dgx",
        describe: "DGX A100 80GB: 8 GPUs and 8x200 Gbps HDR a node, fat tree (NVIDIA DGX A100 data \
                   sheet, DGX SuperPOD reference architecture)",
        gpu: "A100-SXM-80GB",
        gpus_per_node: 8,
        nvlink_domain: 8,
        network_gbps: 200.0,
        latency_s: 5e-6,
        tiers: &[tier(160, 0.0, 1.0), tier(1120, 1e-6, 1.0), tier(16_384, 2e-6, 1.0)],
    },
    Entry {
        name: "h100-dgx",
        describe: "DGX H100: 8 GPUs and 8x400 Gbps NDR a node, fat tree (NVIDIA DGX H100 data sheet, \
                   DGX SuperPOD reference architecture)",
        gpu: "H100-SXM",
        gpus_per_node: 8,
        nvlink_domain: 8,
        network_gbps: 400.0,
        latency_s: 5e-6,
        tiers: SUPERPOD,
    },
    Entry {
        name: "eos",
        describe: "NVIDIA Eos and Eos-DFW: DGX H100, 400 Gbps NDR a GPU, rail-optimised fat tree \
                   (MLPerf Training v3.1 to v4.1 system descriptions)",
        gpu: "H100-SXM",
        gpus_per_node: 8,
        nvlink_domain: 8,
        network_gbps: 400.0,
        latency_s: 5e-6,
        tiers: SUPERPOD,
    },
    Entry {
        name: "llama3-roce",
        describe: "Llama 3's: 8 H100 a node, 400 Gbps RoCE a GPU, pods of 3,072 GPUs, 1:7 \
                   oversubscribed between pods (arXiv 2407.21783, section 3.3.1)",
        gpu: "H100-SXM",
        gpus_per_node: 8,
        nvlink_domain: 8,
        network_gbps: 400.0,
        // RoCE's switches buffer deeper than InfiniBand's.
        latency_s: 6e-6,
        tiers: &[tier(16, 0.0, 1.0), tier(3072, 2e-6, 1.0), tier(24_576, 6e-6, 7.0)],
    },
    Entry {
        name: "h200-dgx",
        describe: "DGX H200: 8 GPUs and 8x400 Gbps NDR a node, fat tree (NVIDIA DGX H200 data sheet)",
        gpu: "H200-SXM",
        gpus_per_node: 8,
        nvlink_domain: 8,
        network_gbps: 400.0,
        latency_s: 5e-6,
        tiers: SUPERPOD,
    },
    Entry {
        name: "b200-dgx",
        describe: "DGX B200: 8 GPUs and 8x400 Gbps a node, fat tree (NVIDIA DGX B200 data sheet)",
        gpu: "B200-SXM",
        gpus_per_node: 8,
        nvlink_domain: 8,
        network_gbps: 400.0,
        latency_s: 5e-6,
        tiers: SUPERPOD,
    },
    Entry {
        name: "gb200-nvl72",
        describe: "GB200 NVL72: 4 GPUs a tray, 72 in an NVLink domain, 400 Gbps a GPU between racks \
                   (NVIDIA GB200 NVL72 data sheet, DGX GB200 reference architecture)",
        gpu: "GB200",
        gpus_per_node: 4,
        nvlink_domain: 72,
        network_gbps: 400.0,
        latency_s: 5e-6,
        tiers: &[tier(576, 0.0, 1.0), tier(4608, 1e-6, 1.0), tier(36_864, 2e-6, 1.0)],
    },
    Entry {
        name: "mi300x",
        describe: "8 MI300X and 8x400 Gbps a node, fat tree (AMD Instinct MI300X platform data sheet)",
        gpu: "MI300X",
        gpus_per_node: 8,
        nvlink_domain: 8,
        network_gbps: 400.0,
        latency_s: 6e-6,
        tiers: SUPERPOD,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cluster_has_its_gpu_and_growing_tiers() {
        for listed in clusters() {
            let c = cluster(listed.name).unwrap();
            assert_eq!(c.nvlink_domain % c.gpus_per_node, 0, "{}", c.name);
            assert!(c.nvlink.bandwidth > 2.0 * c.network.bandwidth, "{}", c.name);
            for pair in c.tiers.windows(2) {
                assert!(pair[0].gpus < pair[1].gpus && pair[0].latency_s <= pair[1].latency_s);
            }
        }
    }

    #[test]
    fn llama3_pods_are_oversubscribed_seven_to_one() {
        let c = cluster("llama3-roce").unwrap();
        assert_eq!(c.link(8).bandwidth, 450e9);
        assert_eq!(c.link(3072).bandwidth, 50e9);
        assert_eq!(c.link(8192).bandwidth, 50e9 / 7.0);
    }
}
