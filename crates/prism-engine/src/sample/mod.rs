//! Monte Carlo: step times from durations on a graph, a block of samples at a time.
//!
//! A [`Program`] says what is computed for every sample: draws, gathers of observed values, sums,
//! maxima, synchronisation over the replica axis. [`Program::compile`] turns it into a [`Tape`], which
//! runs as often as wanted, with other data if wanted.
//!
//! | builder | action | accessor |
//! |---|---|---|
//! | [`Program::draw`], [`index`](Program::index), [`gather`](Program::gather), [`add`](Program::add), [`max`](Program::max), [`sync_max`](Program::sync_max), [`output`](Program::output), … | [`Program::compile`], [`Tape::run`], [`Tape::run_into`], [`Tape::set_constant`], [`set_table`](Tape::set_table), [`set_pool`](Tape::set_pool), [`set_rows`](Tape::set_rows) | [`Samples::get`], [`Output::row`], [`Tape::isa`], [`Tape::work`] |
//!
//! # Random numbers
//! A draw's uniform number is a function of (seed, sample, [`Key`], replica), by
//! [`prism_stats::counter`]. A key names an effect and a semantic entity, so that adding an operation
//! leaves all other draws alone, two plans under one seed share their noise, and two draws of one key
//! with different laws are one effect with two loadings. The law is a
//! [`QuantileTable`].
//!
//! # Execution
//! The compiler orders the work into parts between replica-wide reductions, keeps few values alive,
//! and fuses `max(a, b) + constant · f₁ · f₂ · draw` into one instruction. A block of samples goes
//! through the whole tape before the next one starts, so that values stay in cache; within a part all
//! work of one replica is done before the next replica's. Threads take blocks from a counter.
//!
//! Results are the same bits on any number of threads, with any split into runs, and on any
//! instruction set: every random number has its name, every operation is one correctly rounded
//! operation, and reductions over replicas go in order of the replicas.

mod check;
mod compile;
mod error;
// Vector code is inlined into functions compiled for the instruction set, or it is slow.
#[allow(unsafe_code, clippy::inline_always)]
mod kernels;
mod lower;
mod program;
mod rebind;
#[allow(unsafe_code)]
mod run;
mod schedule;
#[allow(unsafe_code, clippy::inline_always)]
mod simd;
mod slots;
mod tape;

pub use error::SampleError;
pub use prism_stats::{Key, QuantileTable};
pub use program::{Index, Offset, PoolId, Program, Scope, Sync, TableId, Value};
pub use run::{Output, RunOptions, Samples, Workspace};
pub use simd::Isa;
pub use tape::{Rows, Tape};

#[cfg(test)]
mod tests;
