//! One kernel on one GPU: roofline, tiles, waves.

use crate::{Cluster, Precision};

/// Output tiles of a matrix product and the share of the best rate a tile of that size reaches:
/// small tiles reuse less of what they load.
const TILES: [(f64, f64, f64); 5] = [
    (256.0, 128.0, 1.0),
    (128.0, 256.0, 1.0),
    (128.0, 128.0, 0.94),
    (128.0, 64.0, 0.78),
    (64.0, 64.0, 0.60),
];

/// Share of the tensor-core rate where an inner or outer width is no multiple of 8 elements.
const MISALIGNED: f64 = 0.36;

/// A (batched) matrix product `[m, k] x [k, n]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gemm {
    /// Independent products.
    pub batch: f64,
    /// Rows of the result.
    pub m: f64,
    /// Columns of the result.
    pub n: f64,
    /// Inner dimension.
    pub k: f64,
    /// Bytes of an element of the operands.
    pub operand_bytes: f64,
    /// Bytes read and written per element of the result: 2, or 8 where it is added to a 4-byte sum.
    pub result_bytes: f64,
}

impl Gemm {
    /// A product of 2-byte floats.
    pub fn new(m: f64, n: f64, k: f64) -> Gemm {
        Gemm { batch: 1.0, m, n, k, operand_bytes: 2.0, result_bytes: 2.0 }
    }

    /// Whether rows of the weights begin at multiples of 16 bytes, as tensor cores need. Uneven
    /// numbers of tokens are averages, and padded.
    fn aligned(&self) -> bool {
        let eights = |x: f64| x % 8.0 == 0.0 || x.fract() != 0.0;
        eights(self.n) && eights(self.k)
    }

    /// Floating-point operations, two per multiply-add.
    pub fn flops(&self) -> f64 {
        2.0 * self.batch * self.m * self.n * self.k
    }

    /// Least bytes to and from memory.
    pub fn bytes(&self) -> f64 {
        let operands = (self.m + self.n) * self.k * self.operand_bytes;
        self.batch * (operands + self.m * self.n * self.result_bytes)
    }

    /// Gradient with respect to the first operand: `[m, n] x [n, k]`.
    #[must_use]
    pub fn input_gradient(self) -> Gemm {
        Gemm { n: self.k, k: self.n, ..self }
    }

    /// Gradient with respect to the second operand, added to 4-byte sums: `[k, m] x [m, n]`.
    #[must_use]
    pub fn weight_gradient(self) -> Gemm {
        Gemm { m: self.k, k: self.m, result_bytes: 8.0, ..self }
    }

    /// Seconds on one GPU.
    ///
    /// The better of the tile shapes: full waves over the multiprocessors, a prologue of
    /// `gemm_half_k` elements along the inner dimension, `gemm` of the peak rate; at least the time
    /// of the memory traffic.
    pub fn seconds(&self, cluster: &Cluster, precision: Precision) -> f64 {
        let gpu = &cluster.gpu;
        let eff = &cluster.efficiency;
        let reached = match (precision, gpu.fp8_flops) {
            (Precision::Fp8, Some(flops)) => flops * eff.gemm_fp8,
            _ => gpu.bf16_flops * eff.gemm,
        };
        let sms = f64::from(gpu.sms.max(1));
        let rate = reached * if self.aligned() { 1.0 } else { MISALIGNED };
        let per_sm = rate / sms;
        let compute = TILES
            .iter()
            .map(|&(tm, tn, share)| {
                let tiles = self.batch * (self.m / tm).ceil() * (self.n / tn).ceil();
                let waves = (tiles / sms).ceil();
                waves * 2.0 * tm * tn * (self.k + eff.gemm_half_k) / (per_sm * share)
            })
            .fold(f64::INFINITY, f64::min);
        compute.max(stream_s(self.bytes(), cluster) - eff.kernel_s) + eff.kernel_s
    }
}

/// Seconds of a kernel that only moves bytes.
pub fn stream_s(bytes: f64, cluster: &Cluster) -> f64 {
    bytes / (cluster.gpu.memory_bandwidth * cluster.efficiency.memory) + cluster.efficiency.kernel_s
}

/// Seconds of fused attention of this many floating-point operations and bytes.
pub fn fused_attention_s(flops: f64, bytes: f64, cluster: &Cluster) -> f64 {
    let compute = flops / (cluster.gpu.bf16_flops * cluster.efficiency.attention);
    (compute + cluster.efficiency.kernel_s).max(stream_s(bytes, cluster))
}
