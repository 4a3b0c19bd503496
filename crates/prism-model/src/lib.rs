//! The words every PRISM crate shares.
//!
//! An operation has an [`OpKind`]; operations whose durations are comparable share a
//! [`Signature`]; operations whose speed follows the same hardware limit share a [`KernelClass`].
//! This crate knows neither files nor graphs.
//!
//! ```
//! use prism_model::{KernelClass, OpKind};
//!
//! let kind: OpKind = "forward-compute".parse().unwrap();
//! assert_eq!(kind, OpKind::ForwardCompute);
//! assert_eq!(kind.class(), KernelClass::Compute);
//! assert!("forward-comput".parse::<OpKind>().is_err());
//! ```

mod core_steps;
mod duration;
mod effect;
mod kind;
mod signature;
mod units;

pub use core_steps::{STALL_LEAST, STALL_SDS, STALL_WINDOW, WARM_UP_STEPS};
pub use duration::{
    ComputeModel, ComputeSignature, DurationModel, ImpliedDependency, LawCandidate, LawChoice,
    Regime, RegimeKind, StepVector, TransferModel,
};
pub use effect::{Effect, EffectKind, EffectTest};
pub use kind::{Direction, KernelClass, OpKind, UnknownOpKind};
pub use signature::Signature;
pub use units::{TimeError, seconds_from_text};
