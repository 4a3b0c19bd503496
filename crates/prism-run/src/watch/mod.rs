//! A log of steps against what was predicted of it: when did it leave the predicted distribution?
//!
//! A [`Watcher`] is fed steps as they come and answers with [`Event`]s:
//!
//! | event | how it is found |
//! |---|---|
//! | stall | more than max(6 s.d. of the core, 2 %) above the run's level, and not lasting |
//! | slower, eased, back, faster | generalised likelihood ratio of a change of level, at any earlier step |
//! | drift | slope of the run's core, where no change of level explains it |
//! | level | the run's level against how far runs are apart |
//! | systematic | a stall that every calibrated run had at that step: not an alarm |
//!
//! The run's own level is estimated as it goes. Steps are
//! whitened by the profile's AR(1) and clipped, so that stalls and heavy tails make no change of level. The
//! threshold is that which steps drawn from the profile itself pass as often as the user allows
//! ([`WatchOptions::alarms_per_10k`]); the same simulation gives each alarm its probability.

mod event;
mod glr;
mod judged;
mod null;
mod watcher;

pub use event::{Event, EventKind, WatchSummary};
pub use null::Null;
pub use watcher::{WatchOptions, Watcher};
