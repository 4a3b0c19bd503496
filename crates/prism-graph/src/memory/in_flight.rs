//! What a stage stores over its order of passes.

use crate::planned::{PassKind, PlannedPass};

/// What one microbatch stores on a chunk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Stored {
    /// From the start of its forward to the end of its backward's input part, bytes.
    pub(crate) until_input: f64,
    /// From there on, until the weights' part has run, bytes.
    pub(crate) until_weights: f64,
}

/// The moment at which a stage stores the most.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Peak {
    /// Bytes.
    pub(crate) bytes: f64,
    /// Microbatches on each chunk whose input part has not run, and those that wait for their
    /// weights' part.
    pub(crate) live: Vec<[u32; 2]>,
}

/// Follows a stage's order; the first moment of the most bytes.
pub(crate) fn peak(passes: &[PlannedPass], stored: &[Stored]) -> Peak {
    let mut live = vec![[0_u32; 2]; stored.len()];
    let mut most = Peak { bytes: 0.0, live: live.clone() };
    for pass in passes {
        let [whole, waiting] = &mut live[usize::from(pass.chunk)];
        match pass.kind {
            PassKind::Forward => *whole += 1,
            PassKind::Backward => *whole -= 1,
            PassKind::BackwardInput => {
                *whole -= 1;
                *waiting += 1;
            }
            PassKind::BackwardWeight => *waiting -= 1,
        }
        let bytes = live
            .iter()
            .zip(stored)
            .map(|([whole, waiting], s)| {
                f64::from(*whole) * s.until_input + f64::from(*waiting) * s.until_weights
            })
            .sum();
        if bytes > most.bytes {
            most = Peak { bytes, live: live.clone() };
        }
    }
    most
}
