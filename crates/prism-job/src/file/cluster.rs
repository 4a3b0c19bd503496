//! The section `[cluster]`.

use super::quantity::Quantity;
use super::raw::{RawCluster, RawEfficiency, RawGpu, RawGpuChoice, RawNetwork, RawTier};
use super::resolve::Resolver;
use crate::presets;
use crate::{Cluster, Efficiency, Gpu, Network, Tier};

/// GPUs of the cluster, where they are given.
pub(super) fn gpus(r: &mut Resolver, raw: &RawCluster) -> Option<u64> {
    let preset = raw.preset.as_deref().and_then(presets::cluster);
    let per_node = raw.gpus_per_node.or(preset.map(|c| c.gpus_per_node)).unwrap_or(8);
    let from_nodes = raw.nodes.map(|n| n.saturating_mul(per_node.into()));
    if raw.gpus == Some(0) || raw.nodes == Some(0) {
        let key = if raw.gpus == Some(0) { "cluster.gpus" } else { "cluster.nodes" };
        r.wrong(key, "positive", format!("`{key}` must be at least 1"), None);
        return None;
    }
    if let (Some(gpus), Some(nodes)) = (raw.gpus, from_nodes)
        && gpus != nodes
    {
        let message = format!("{gpus} GPUs, and nodes with {nodes}");
        let hint = Some("keep one of `gpus` and `nodes`".to_owned());
        r.wrong("cluster.gpus", "gpus-nodes", message, hint);
    }
    raw.gpus.or(from_nodes)
}

/// The cluster; `gpus` are the cluster's where they are known, `taken` the plan's.
pub(super) fn resolve(r: &mut Resolver, raw: RawCluster, gpus: Option<u64>, taken: u64) -> Cluster {
    let known: Vec<&str> = presets::clusters().map(|c| c.name).collect();
    let base = r.preset(raw.preset.as_deref(), "cluster.preset", presets::cluster, &known);
    if base.is_none() && r.distrusts("cluster.preset") {
        r.distrust("cluster");
    }
    let of_gpu = gpu(r, raw.gpu.as_ref(), base.as_ref());
    let b = base.as_ref();
    let gpus_per_node = raw.gpus_per_node.or(b.map(|c| c.gpus_per_node)).unwrap_or(8);
    let nvlink_domain = raw
        .nvlink_domain
        .or(b.filter(|_| raw.gpus_per_node.is_none()).map(|c| c.nvlink_domain))
        .unwrap_or(gpus_per_node);
    let nvlink = b.map(|c| c.nvlink).or(of_gpu.nvlink);
    let nvlink = network(r, raw.nvlink.as_ref(), nvlink, "cluster.nvlink");
    let size = gpus.unwrap_or(taken);
    let network = match (&raw.network, b) {
        (Some(_), _) | (None, Some(_)) => {
            network(r, raw.network.as_ref(), b.map(|c| c.network), "cluster.network")
        }
        // Nothing leaves the domain, so any figure will do.
        (None, None) if size <= u64::from(nvlink_domain) => nvlink,
        (None, None) => {
            let message = "`cluster.network` is missing".to_owned();
            let hint = "write `network = { bandwidth = \"400Gbps\", latency = \"5us\" }`, per GPU and \
                        direction, or a `preset`";
            r.wrong("cluster.network", "missing", message, Some(hint.to_owned()));
            nvlink
        }
    };
    let tiers = match &raw.tiers {
        Some(tiers) => self::tiers(r, tiers),
        None => base.as_ref().map(|c| c.tiers.clone()).unwrap_or_default(),
    };
    let same_gpu = b.is_some_and(|c| c.gpu.name == of_gpu.gpu.name);
    let efficiency = match b {
        Some(c) if same_gpu => Some(c.efficiency),
        _ => of_gpu.efficiency,
    };
    let efficiency = self::efficiency(r, raw.efficiency.as_ref(), efficiency);
    let name = raw.name.or(base.map(|c| c.name)).unwrap_or_else(|| of_gpu.gpu.name.clone());
    let gpu = of_gpu.gpu;
    Cluster { name, gpus, gpu, gpus_per_node, nvlink_domain, nvlink, network, tiers, efficiency }
}

/// A GPU's parts, as far as they are known.
struct Chosen {
    gpu: Gpu,
    nvlink: Option<Network>,
    efficiency: Option<Efficiency>,
}

fn gpu(r: &mut Resolver, raw: Option<&RawGpuChoice>, base: Option<&Cluster>) -> Chosen {
    let known: Vec<&str> = presets::gpus().map(|g| g.name).collect();
    let (name, sheet) = match raw {
        Some(RawGpuChoice::Name(name)) => (Some(name), None),
        Some(RawGpuChoice::Sheet(sheet)) => (sheet.preset.as_ref(), Some(sheet)),
        None => (None, None),
    };
    let key = if sheet.is_some() { "cluster.gpu.preset" } else { "cluster.gpu" };
    let preset = r.preset(name.map(String::as_str), key, presets::gpu, &known);
    if preset.is_none() && r.distrusts(key) {
        r.distrust("cluster.gpu");
    }
    let (nvlink, efficiency) = preset.as_ref().map(|p| (p.nvlink, p.efficiency)).unzip();
    let start = preset.map(|p| p.gpu).or_else(|| base.map(|c| c.gpu.clone()));
    match (start, sheet) {
        (Some(gpu), None) => Chosen { gpu, nvlink, efficiency },
        (start, Some(sheet)) => {
            // The figures reached with one GPU hold for a variant of it, not for another.
            let base_efficiency = base.filter(|_| name.is_none()).map(|c| c.efficiency);
            let gpu = overridden(r, start.as_ref(), sheet);
            Chosen { gpu, nvlink, efficiency: efficiency.or(base_efficiency) }
        }
        (None, None) => {
            if raw.is_none() {
                let message = "`cluster.gpu` is missing".to_owned();
                let hint = "write `gpu = \"H100-SXM\"` or `preset = \"h100-dgx\"`";
                r.wrong("cluster.gpu", "missing", message, Some(hint.to_owned()));
            }
            r.distrust("cluster");
            Chosen { gpu: overridden(r, None, &RawGpu::default()), nvlink, efficiency }
        }
    }
}

fn overridden(r: &mut Resolver, b: Option<&Gpu>, raw: &RawGpu) -> Gpu {
    let mut number = |value: Option<f64>, base: Option<f64>, key: &str, what: &str| {
        let value = r.need(value.or(base), key, what);
        if value > 0.0 {
            return value;
        }
        r.wrong(key, "positive", format!("`{key}` must be above 0"), None);
        1.0
    };
    let memory_bytes = number(
        raw.memory.map(Quantity::value),
        b.map(|g| g.memory_bytes),
        "cluster.gpu.memory",
        "such as \"80GiB\"",
    );
    let memory_bandwidth = number(
        raw.memory_bandwidth.map(Quantity::value),
        b.map(|g| g.memory_bandwidth),
        "cluster.gpu.memory_bandwidth",
        "such as \"3.35TB/s\"",
    );
    let bf16_flops = number(
        raw.bf16.map(Quantity::value),
        b.map(|g| g.bf16_flops),
        "cluster.gpu.bf16",
        "such as \"989TFLOPS\"",
    );
    let fp8_flops = raw.fp8.map(Quantity::value).or(b.and_then(|g| g.fp8_flops));
    let fp8_flops = fp8_flops.map(|rate| number(Some(rate), None, "cluster.gpu.fp8", "a rate"));
    Gpu {
        name: r.need(raw.name.clone().or(b.map(|g| g.name.clone())), "cluster.gpu.name", "a name"),
        memory_bytes,
        memory_bandwidth,
        bf16_flops,
        fp8_flops,
        sms: r.need(raw.sms.or(b.map(|g| g.sms)), "cluster.gpu.sms", "streaming multiprocessors"),
        source: raw
            .source
            .clone()
            .or(b.map(|g| g.source.clone()))
            .unwrap_or_else(|| "job file".to_owned()),
    }
}

fn network(
    r: &mut Resolver,
    raw: Option<&RawNetwork>,
    base: Option<Network>,
    key: &str,
) -> Network {
    if raw.is_none() && base.is_none() {
        let message = format!("`{key}` is missing");
        let hint = "write a table of `bandwidth`, such as \"400Gbps\" per GPU and direction, and \
                    `latency`, such as \"5us\"";
        r.wrong(key, "missing", message, Some(hint.to_owned()));
    }
    let raw = raw.cloned().unwrap_or_default();
    let bandwidth = raw.bandwidth.map(Quantity::value).or(base.map(|n| n.bandwidth));
    let latency = raw.latency.map(Quantity::value).or(base.map(|n| n.latency_s));
    let bandwidth_key = format!("{key}.bandwidth");
    let bandwidth = r.need(bandwidth, &bandwidth_key, "such as \"400Gbps\", per GPU and direction");
    if bandwidth <= 0.0 {
        r.wrong(&bandwidth_key, "positive", format!("`{bandwidth_key}` must be above 0"), None);
    }
    Network {
        bandwidth,
        latency_s: r.need(latency, &format!("{key}.latency"), "such as \"5us\""),
        in_network_reduction: raw
            .in_network_reduction
            .or(base.map(|n| n.in_network_reduction))
            .unwrap_or(false),
    }
}

fn tiers(r: &mut Resolver, raw: &[RawTier]) -> Vec<Tier> {
    let mut out: Vec<Tier> = Vec::new();
    for (i, tier) in raw.iter().enumerate() {
        let key = |name: &str| format!("cluster.tiers.{i}.{name}");
        let gpus = r.need(tier.gpus, &key("gpus"), "GPUs inside the tier");
        if let Some(inner) = out.last().filter(|inner| inner.gpus >= gpus) {
            let message = format!("a tier of {gpus} GPUs is listed after one of {}", inner.gpus);
            let hint = Some("list the inner tiers first".to_owned());
            r.wrong(&key("gpus"), "tiers", message, hint);
        }
        let over = tier.oversubscription.unwrap_or(1.0);
        out.push(Tier {
            gpus,
            latency_s: tier.latency.map_or(0.0, Quantity::value),
            oversubscription: r.at_least(over, &key("oversubscription"), 1.0),
        });
    }
    out
}

fn efficiency(
    r: &mut Resolver,
    raw: Option<&RawEfficiency>,
    base: Option<Efficiency>,
) -> Efficiency {
    if raw.is_none() && base.is_none() {
        let message = "`cluster.efficiency` is missing: there is no preset for this GPU".to_owned();
        let hint = "write a table of `gemm`, `gemm_half_k`, `attention`, `memory`, `kernel_s`, \
                    `launch_s`, `microbatch_host_s`, `nvlink`, `network`, `collective_s` and `step_s`";
        r.wrong("cluster.efficiency", "missing", message, Some(hint.to_owned()));
    }
    let raw = raw.cloned().unwrap_or_default();
    let mut field = |value: Option<f64>, base: Option<f64>, name: &str, is_share: bool| {
        let key = format!("cluster.efficiency.{name}");
        let what = "there is no preset for this GPU";
        let Some(value) = value.or(base) else { return r.need(None, &key, what) };
        if is_share { r.share(value, &key, false) } else { r.at_least(value, &key, 0.0) }
    };
    Efficiency {
        gemm: field(raw.gemm, base.map(|e| e.gemm), "gemm", true),
        gemm_fp8: field(raw.gemm_fp8, base.map(|e| e.gemm_fp8), "gemm_fp8", true),
        gemm_half_k: field(raw.gemm_half_k, base.map(|e| e.gemm_half_k), "gemm_half_k", false),
        attention: field(raw.attention, base.map(|e| e.attention), "attention", true),
        memory: field(raw.memory, base.map(|e| e.memory), "memory", true),
        kernel_s: field(raw.kernel_s, base.map(|e| e.kernel_s), "kernel_s", false),
        launch_s: field(raw.launch_s, base.map(|e| e.launch_s), "launch_s", false),
        microbatch_host_s: field(
            raw.microbatch_host_s,
            base.map(|e| e.microbatch_host_s),
            "microbatch_host_s",
            false,
        ),
        nvlink: field(raw.nvlink, base.map(|e| e.nvlink), "nvlink", true),
        network: field(raw.network, base.map(|e| e.network), "network", true),
        collective_s: field(raw.collective_s, base.map(|e| e.collective_s), "collective_s", false),
        step_s: field(raw.step_s, base.map(|e| e.step_s), "step_s", false),
    }
}
