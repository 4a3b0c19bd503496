//! One training step as a graph.

mod step_graph;

pub use step_graph::{Event, Group, GroupId, Op, OpId, ReplicaSync, StepGraph};
