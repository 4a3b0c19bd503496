//! Time of one microbatch in one direction, by what it is spent on.

use prism_model::KernelClass;

/// One microbatch through a layer or a chunk of layers in one direction, seconds on one GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, schemars::JsonSchema)]
pub struct Pass {
    /// Arithmetic-bound kernels.
    pub compute_s: f64,
    /// Memory-bound kernels.
    pub memory_s: f64,
    /// Tensor-parallel collectives that nothing hides.
    pub tensor_parallel_s: f64,
    /// Context-parallel exchanges that nothing hides.
    pub context_parallel_s: f64,
    /// Expert-parallel exchanges.
    pub expert_parallel_s: f64,
    /// Kernels launched.
    pub kernels: f64,
    /// Floating-point operations.
    pub flops: f64,
    /// Time added because the host cannot launch fast enough.
    pub host_s: f64,
}

impl Pass {
    /// Adds a kernel.
    pub(super) fn kernel(&mut self, class: KernelClass, seconds: f64, flops: f64) {
        match class {
            KernelClass::Compute => self.compute_s += seconds,
            _ => self.memory_s += seconds,
        }
        self.kernels += 1.0;
        self.flops += flops;
    }

    /// Adds another pass that runs after this one.
    pub fn add(&mut self, other: &Pass) {
        self.compute_s += other.compute_s;
        self.memory_s += other.memory_s;
        self.tensor_parallel_s += other.tensor_parallel_s;
        self.context_parallel_s += other.context_parallel_s;
        self.expert_parallel_s += other.expert_parallel_s;
        self.kernels += other.kernels;
        self.flops += other.flops;
        self.host_s += other.host_s;
    }

    /// Communication that nothing hides, seconds.
    pub fn communication_s(&self) -> f64 {
        self.tensor_parallel_s + self.context_parallel_s + self.expert_parallel_s
    }

    /// All of it, seconds.
    pub fn seconds(&self) -> f64 {
        self.compute_s + self.memory_s + self.communication_s() + self.host_s
    }

    /// Holds the pass back to the host's pace: `launch_s` for each kernel. Where the host is the slower
    /// one, nothing is queued behind a collective, so that its time adds to the host's.
    pub(super) fn paced(mut self, launch_s: f64) -> Pass {
        let host = self.kernels * launch_s;
        self.host_s += (host - self.compute_s - self.memory_s).max(0.0);
        self
    }
}

/// Forward, backward and what belongs to the weights.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Passes {
    pub forward: Pass,
    /// Without the weight gradients and recomputation.
    pub backward: Pass,
    pub weight: Pass,
    /// What the backward pass computes again first.
    pub recompute: Pass,
}

impl Passes {
    pub(super) fn add(&mut self, other: &Passes) {
        self.forward.add(&other.forward);
        self.backward.add(&other.backward);
        self.weight.add(&other.weight);
        self.recompute.add(&other.recompute);
    }
}
