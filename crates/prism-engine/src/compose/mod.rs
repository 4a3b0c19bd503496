//! Step times at scale, without simulating every GPU.
//!
//! A step waits for the slowest of thousands. What follows replaces brute force where the structure
//! allows it, and says how exactly: every result is a [`Composed`] law whose quantiles carry bounds,
//! and which refuses a quantile that its data cannot answer.
//!
//! | who waits for whom | function | bounds |
//! |---|---|---|
//! | exchangeable replicas, at the step's end | [`order_max`] over samples of one replica | confidence |
//! | the same under a shared effect of the step | [`over_normal_effect`], [`over_regimes`], [`scaled`] | confidence |
//! | a known fleet, at the step's end | [`slowest`] over a [`Fleet`] | confidence, one-sided |
//! | all GPUs at every layer (FSDP) | [`strict_fsdp`], [`strict_fsdp_any_fleet`] | rigorous |
//! | all GPUs, one or more gathers ahead | [`prefetch_fsdp`] | confidence, one-sided |
//! | replicas that rarely hang | [`stratify`] | confidence |
//! | replicas, beyond what plain samples reach | [`Tilt`], [`importance`] | confidence |
//!
//! [`choose()`](choose::choose) names the method for a situation and says why. Inputs are numbers, laws
//! and programs; nothing here knows a job. Times are in seconds, or in whatever unit the inputs share.
//!
//! Results are the same bits on any number of threads.

mod choose;
mod error;
mod fleet;
mod hangs;
mod law;
mod layers;
mod maximum;
mod prefetch;
mod shared;
mod strict;
mod tail;
mod tilt;

pub use choose::{Choice, Method, Situation, Waits, choose};
pub use error::{ComposeError, Result};
pub use fleet::{Fleet, Joint, PruneOptions, TapeFleet, slowest};
pub use hangs::{HangCounts, HangSites, Stratified, TailProbability, stratify};
pub use law::{Answer, Bounds, Composed, Diagnostics, Round};
pub use layers::LayerClass;
pub use maximum::{MaxOptions, Replicas, order_max};
pub use prefetch::{PrefetchLayer, PrefetchOptions, PrefetchStep, prefetch_fsdp};
pub use shared::{over_normal_effect, over_regimes, scaled};
pub use strict::{FleetSpread, StrictOptions, strict_fsdp, strict_fsdp_any_fleet};
pub use tail::Tail;
pub use tilt::{Agreement, Tilt, agreement, importance};
