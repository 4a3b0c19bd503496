//! One training step as a graph of operations, groups and replicas.
//!
//! A [`StepGraph`] is built from a trace, by the trace format's own rules ([`build_reference`]) or
//! with blocking, batched sends and receives ([`build_program_order`]); from a pipeline
//! [`schedule`] as a trace records it; from a plan's schedule ([`PlannedShape`]); or by hand
//! ([`StepGraphBuilder`]). [`Observed`] holds a trace's times in the
//! graph's terms, [`evaluate()`] computes when everything starts and ends for given durations, and
//! [`to_op_table`] records that as a trace would.
//! [`memory()`] says what a job's stages store.
//! This crate knows nothing of randomness.

mod builder;
mod error;
mod evaluate;
mod file;
mod memory;
mod observed;
mod order;
mod p2p;
mod planned;
mod program_order;
mod reference;
pub mod schedule;
mod step_graph;
mod step_times;
mod synth;
mod trace_step;

pub use builder::StepGraphBuilder;
pub use error::GraphError;
pub use evaluate::{Timeline, evaluate, synchronise};
pub use file::{GraphFile, GroupFile, OpFile};
pub use memory::{
    CONTEXT_BYTES, FRAGMENTATION, MemoryKind, StageMemory, StoredTensor, layer_tensors, memory,
};
pub use observed::Observed;
pub use planned::{PassKind, PlannedGraph, PlannedOverlap, PlannedPass, PlannedShape, PlannedStep};
pub use program_order::build_program_order;
pub use reference::build_reference;
pub use step_graph::{Event, Group, GroupId, Op, OpId, ReplicaSync, StepGraph};
pub use step_times::{ArrayDurations, Durations, StepTimes, step_times, steps_per_block};
pub use synth::to_op_table;
