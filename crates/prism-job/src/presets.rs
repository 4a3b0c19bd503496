//! Models, GPUs, clusters and variability by name, each figure with its source.

mod clusters;
mod efficiency;
mod gpus;
mod models;
mod variability;

pub use clusters::{cluster, clusters};
pub use gpus::{GpuPreset, gpu, gpus};
pub use models::{model, models};
pub(crate) use variability::default_variability;
pub use variability::{variabilities, variability};

/// A preset in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Name, as job files write it.
    pub name: &'static str,
    /// What it is and where its figures come from: one line.
    pub describe: &'static str,
}

/// Whether two names are the same but for case and `_` or `-`.
pub(crate) fn same_name(a: &str, b: &str) -> bool {
    let plain = |c: u8| if c == b'_' { b'-' } else { c.to_ascii_lowercase() };
    a.len() == b.len() && a.bytes().map(plain).eq(b.bytes().map(plain))
}
