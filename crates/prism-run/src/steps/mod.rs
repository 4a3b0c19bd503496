//! The law of a run's steps, from logs of a few runs.
//!
//! | part | how |
//! |---|---|
//! | level | a run's mean core step; how far runs are apart is pooled over systems ([`crate::Prior`]) |
//! | profile | what the runs share step by step (schedules, curricula, clock drift), tested, shrunk |
//! | core | AR(1) around level and profile |
//! | warm-up | the excess of the first 10 steps, all together |
//! | after an evaluation, a checkpoint | mean excess of the first step |
//! | stalls | Poisson with a Gamma rate, marks drawn from those seen, sometimes from other systems' |
//! | recurring stalls | those that every run had at the same step |

mod draw;
mod error;
pub(crate) mod evidence;
mod model;
mod profile;
mod recurring;

pub(crate) use draw::Level;
pub use draw::{Shape, Total};
pub use error::StepsError;
pub use evidence::{AfterPause, Evidence, RunEvidence};
pub use model::{Paced, RUN_PROFILE_SCHEMA, RunSource, StepModel};
pub use profile::Profile;
pub use recurring::Recurring;
