//! Pipeline schedules of a plan: every schedule, with every hop, gather and reduction.
//!
//! [`crate::schedule`] speaks the language of recorded traces; a [`PlannedShape`] says what will
//! run. Its graph ([`PlannedShape::graph`]) takes durations from the caller, so uneven stages, slow
//! links and noise need nothing here.
//!
//! A *piece* is one of the equal parts that the model is cut into, in model order; a stage holds a
//! piece, or several, as its *chunks*. See [`PlannedShape::piece`].

mod build;
mod orders;
mod pass;
mod shape;
mod step;

pub use build::PlannedGraph;
pub use pass::{PassKind, PlannedPass};
pub use shape::{PlannedOverlap, PlannedShape};
pub use step::PlannedStep;
