//! GPUs by name, from their data sheets.

use super::{Listed, efficiency, same_name};
use crate::{Efficiency, Gpu, Network};

/// A GPU with its links and what is reached of both.
#[derive(Clone, Debug, PartialEq)]
pub struct GpuPreset {
    /// The data sheet.
    pub gpu: Gpu,
    /// `NVLink` (`Infinity Fabric`) of one GPU.
    pub nvlink: Network,
    /// What is reached.
    pub efficiency: Efficiency,
}

/// The GPUs there are, in a fixed order.
pub fn gpus() -> impl Iterator<Item = Listed> {
    GPUS.iter().map(|g| Listed { name: g.name, describe: g.source })
}

/// The GPU of a name; case and `_` for `-` do not matter.
pub fn gpu(name: &str) -> Option<GpuPreset> {
    let sheet = GPUS.iter().find(|g| same_name(g.name, name))?;
    Some(GpuPreset {
        gpu: Gpu {
            name: sheet.name.to_owned(),
            memory_bytes: sheet.memory_gib * 1_073_741_824.0,
            memory_bandwidth: sheet.memory_bandwidth,
            bf16_flops: sheet.bf16,
            fp8_flops: sheet.fp8,
            sms: sheet.sms,
            source: sheet.source.to_owned(),
        },
        nvlink: Network {
            bandwidth: sheet.nvlink,
            // A store to a neighbour and its flag, as point-to-point tests show it.
            latency_s: 1e-6,
            in_network_reduction: sheet.nvls,
        },
        efficiency: efficiency::of(sheet.name),
    })
}

struct Sheet {
    name: &'static str,
    source: &'static str,
    /// Sheets say GB and mean GiB: an 80 GB A100 reports 81,920 MiB.
    memory_gib: f64,
    memory_bandwidth: f64,
    /// Dense.
    bf16: f64,
    /// Dense.
    fp8: Option<f64>,
    sms: u32,
    /// One direction: half of what sheets say.
    nvlink: f64,
    /// Whether the switch reduces (third-generation `NVSwitch` and later).
    nvls: bool,
}

const GPUS: &[Sheet] = &[
    Sheet {
        name: "V100-SXM-32GB",
        source: "NVIDIA V100 data sheet 2020: 125 TFLOPS (FP16), 900 GB/s, NVLink 300 GB/s",
        memory_gib: 32.0,
        memory_bandwidth: 900e9,
        bf16: 125e12,
        fp8: None,
        sms: 80,
        nvlink: 150e9,
        nvls: false,
    },
    Sheet {
        name: "A100-SXM-40GB",
        source: "NVIDIA A100 data sheet 2020: 312 TFLOPS, 1,555 GB/s, NVLink 600 GB/s",
        memory_gib: 40.0,
        memory_bandwidth: 1555e9,
        bf16: 312e12,
        fp8: None,
        sms: 108,
        nvlink: 300e9,
        nvls: false,
    },
    Sheet {
        name: "A100-SXM-80GB",
        source: "NVIDIA A100 data sheet 2021: 312 TFLOPS, 2,039 GB/s, NVLink 600 GB/s",
        memory_gib: 80.0,
        memory_bandwidth: 2039e9,
        bf16: 312e12,
        fp8: None,
        sms: 108,
        nvlink: 300e9,
        nvls: false,
    },
    Sheet {
        name: "H100-SXM",
        source: "NVIDIA H100 data sheet 2023: 989 TFLOPS dense, FP8 1,979, 3.35 TB/s, NVLink 900 GB/s",
        memory_gib: 80.0,
        memory_bandwidth: 3.35e12,
        bf16: 989.4e12,
        fp8: Some(1978.9e12),
        sms: 132,
        nvlink: 450e9,
        nvls: true,
    },
    Sheet {
        name: "H200-SXM",
        source: "NVIDIA H200 data sheet 2024: 989 TFLOPS dense, FP8 1,979, 141 GB, 4.8 TB/s, \
                 NVLink 900 GB/s",
        memory_gib: 141.0,
        memory_bandwidth: 4.8e12,
        bf16: 989.4e12,
        fp8: Some(1978.9e12),
        sms: 132,
        nvlink: 450e9,
        nvls: true,
    },
    Sheet {
        name: "B200-SXM",
        source: "NVIDIA DGX B200 data sheet 2024, an eighth: FP8 4.5 PFLOPS dense, 180 GB, 8 TB/s, \
                 NVLink 1.8 TB/s",
        memory_gib: 180.0,
        memory_bandwidth: 8e12,
        bf16: 2.25e15,
        fp8: Some(4.5e15),
        sms: 148,
        nvlink: 900e9,
        nvls: true,
    },
    Sheet {
        name: "GB200",
        source: "NVIDIA GB200 NVL72 data sheet 2024, a 72nd: FP8 5 PFLOPS dense, 186 GB, 8 TB/s, \
                 NVLink 1.8 TB/s",
        memory_gib: 186.0,
        memory_bandwidth: 8e12,
        bf16: 2.5e15,
        fp8: Some(5e15),
        sms: 152,
        nvlink: 900e9,
        nvls: true,
    },
    Sheet {
        name: "MI300X",
        source: "AMD Instinct MI300X data sheet 2023: 1,307.4 TFLOPS dense, FP8 2,614.9, 192 GB, \
                 5.3 TB/s, 7 links of 64 GB/s and direction",
        memory_gib: 192.0,
        memory_bandwidth: 5.3e12,
        bf16: 1307.4e12,
        fp8: Some(2614.9e12),
        sms: 304,
        nvlink: 448e9,
        nvls: false,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sheets_are_consistent() {
        for listed in gpus() {
            let preset = gpu(listed.name).unwrap();
            let g = &preset.gpu;
            // Eight-bit rates are twice the 16-bit ones on every GPU that has them.
            if let Some(fp8) = g.fp8_flops {
                assert!((fp8 / g.bf16_flops - 2.0).abs() < 1e-3, "{}", g.name);
            }
            // FLOP per byte of memory traffic: 100 to 400 on all of these.
            let balance = g.bf16_flops / g.memory_bandwidth;
            assert!((100.0..400.0).contains(&balance), "{}: {balance}", g.name);
            let e = preset.efficiency;
            for share in [e.gemm, e.attention, e.memory, e.nvlink, e.network] {
                assert!(share > 0.0 && share <= 1.0, "{}", g.name);
            }
        }
        assert!(gpu("h100_sxm").is_some());
        assert!(gpu("H100").is_none());
    }
}
