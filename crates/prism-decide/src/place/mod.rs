//! Which worker should be which (replica, stage) cell.
mod error;
mod nominal;
mod objective;
mod sensitivity;
mod workers;

pub use error::PlaceError;
pub use objective::{Objective, Ratio};
pub use sensitivity::{Sensitivity, SensitivityOptions, StageSensitivity, sensitivity};
pub use workers::{GpuSpeed, Worker, Workers};
