//! Which operations have comparable durations.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::OpKind;

/// The key under which durations are comparable: same kind of work on the same part of the model.
///
/// Two operations of one signature differ only by randomness (and by the effects of a duration
/// model): rank, step, microbatch.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
pub struct Signature {
    /// What the operation does.
    pub kind: OpKind,
    /// Pipeline stage, from 0.
    pub stage: u16,
    /// Model chunk within the stage, -1 where the operation belongs to none.
    pub chunk: i16,
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.kind, self.stage)?;
        if self.chunk > 0 { write!(f, ".{}", self.chunk) } else { Ok(()) }
    }
}
