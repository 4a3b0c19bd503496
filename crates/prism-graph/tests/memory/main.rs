//! Memory against published formulas, against parameter counts and against time lines.

mod activations;
mod jobs;
mod state;
