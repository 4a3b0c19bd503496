//! The walk over a step graph that every duration model shares.
//!
//! A model says how long things take ([`Durations`]); the walk says when they start: after what they
//! wait for, with their group, with the replicas of the group.

use prism_graph::{Event, OpId, ReplicaSync, StepGraph};

use super::PredictError;
use super::options::{LowerOptions, Probes};
use crate::sample::{Program, Sync, Value};

/// How long operations take, as nodes of a program.
pub(crate) trait Durations {
    /// The program that is being built.
    fn program(&mut self) -> &mut Program;

    /// Appends what a step shares.
    fn begin_step(&mut self, step: u32);

    /// Whether `ready` accounts for the dependency of `op` on `on` itself.
    fn replaces(&self, _op: OpId, _on: OpId) -> bool {
        false
    }

    /// When `op` may start, given the latest end of what it waits for and all ends so far.
    fn ready(&mut self, op: OpId, latest: Value, ends: &[Option<Value>]) -> Value;

    /// When `op` ends, given when it starts.
    fn end(&mut self, op: OpId, start: Value) -> Value;

    /// Duration of an operation of the step at hand, if it was kept apart (for
    /// [`Probes::stage_compute`]).
    fn duration(&self, op: OpId) -> Option<Value>;
}

/// Appends the steps of a graph and their outputs.
pub(crate) fn walk(
    graph: &StepGraph,
    durations: &mut impl Durations,
    options: &LowerOptions,
) -> Result<(), PredictError> {
    let mut begin = vec![None; usize::from(graph.stages())];
    let mut previous = None;
    for step in 0..options.steps {
        durations.begin_step(step);
        let probes = if step == 0 { options.probes } else { Probes::default() };
        let ends = one_step(graph, durations, &begin, probes);
        let sinks: Vec<Value> = graph.sinks().iter().filter_map(|s| ends[s.0 as usize]).collect();
        let program = durations.program();
        let Some(last) = program.max_of(&sinks) else {
            return Err(PredictError::NoSink);
        };
        let finish = program.max_over_replicas(last);
        let time = match previous {
            None => finish,
            Some(before) => program.sub(finish, before),
        };
        let name = if step == 0 { "step".to_owned() } else { format!("step+{step}") };
        program.output(name, time);
        previous = Some(finish);
        for (stage, slot) in begin.iter_mut().enumerate() {
            let own: Vec<Value> = graph
                .sinks()
                .iter()
                .filter(|s| usize::from(graph.ops()[s.0 as usize].stage) == stage)
                .filter_map(|s| ends[s.0 as usize])
                .collect();
            *slot = program.max_of(&own).or(Some(finish));
        }
    }
    Ok(())
}

/// Appends one step; returns the end of every operation.
fn one_step(
    graph: &StepGraph,
    durations: &mut impl Durations,
    begin: &[Option<Value>],
    probes: Probes,
) -> Vec<Option<Value>> {
    let ops = graph.ops().len();
    let (mut ready, mut ends) = (vec![None; ops], vec![None; ops]);
    let mut waits = Vec::new();
    for &event in graph.order() {
        match event {
            Event::Start(op) => {
                let latest = latest(graph, durations, op, &ends, begin);
                let start = durations.ready(op, latest, &ends);
                ready[op.0 as usize] = Some(start);
                if graph.group_of(op).is_none() {
                    ends[op.0 as usize] = Some(durations.end(op, start));
                }
            }
            Event::Group(id) => {
                let group = &graph.groups()[id.0 as usize];
                let starts: Vec<Value> =
                    group.members.iter().filter_map(|m| ready[m.0 as usize]).collect();
                let program = durations.program();
                let Some(mut together) = program.max_of(&starts) else { continue };
                together = match group.sync {
                    ReplicaSync::None => together,
                    ReplicaSync::All => program.sync_max(together, Sync::All),
                    ReplicaSync::Blocks(b) => program.sync_max(together, Sync::Blocks(b)),
                };
                for (&member, &start) in group.members.iter().zip(&starts) {
                    if probes.waits && is_collective(graph, member) {
                        waits.push((member, durations.program().sub(together, start)));
                    }
                    ends[member.0 as usize] = Some(durations.end(member, together));
                }
            }
        }
    }
    probe(graph, durations, probes, &ends, &waits);
    if probes.timeline {
        for (id, _) in graph.iter() {
            let at = id.0 as usize;
            for (what, value) in [("ready", ready[at]), ("end", ends[at])] {
                if let Some(value) = value {
                    durations.program().output(format!("{what}#{at}"), value);
                }
            }
        }
    }
    ends
}

/// The latest end of what an operation waits for; the step's begin if it waits for nothing.
fn latest(
    graph: &StepGraph,
    durations: &mut impl Durations,
    op: OpId,
    ends: &[Option<Value>],
    begin: &[Option<Value>],
) -> Value {
    let before: Vec<Value> = graph
        .deps(op)
        .iter()
        .filter(|&&on| !durations.replaces(op, on))
        .filter_map(|id| ends[id.0 as usize])
        .collect();
    let stage = usize::from(graph.ops()[op.0 as usize].stage);
    let program = durations.program();
    let latest = program.max_of(&before).or(begin.get(stage).copied().flatten());
    latest.unwrap_or_else(|| program.constant(0.0))
}

fn probe(
    graph: &StepGraph,
    durations: &mut impl Durations,
    probes: Probes,
    ends: &[Option<Value>],
    waits: &[(OpId, Value)],
) {
    let ops = || graph.iter().filter(|(_, op)| op.kind.is_microbatch_compute());
    if probes.stage_compute {
        for stage in 0..graph.stages() {
            let list: Vec<Value> = ops()
                .filter(|(_, op)| op.stage == stage)
                .filter_map(|(id, _)| durations.duration(id))
                .collect();
            let program = durations.program();
            let total = program.sum(&list);
            program.output(format!("compute@{stage}"), total);
        }
    }
    if probes.compute_finish {
        let list: Vec<Value> = ops().filter_map(|(id, _)| ends[id.0 as usize]).collect();
        let program = durations.program();
        if let Some(last) = program.max_of(&list) {
            program.output("compute-finish", last);
        }
    }
    for (id, wait) in waits {
        let op = &graph.ops()[id.0 as usize];
        durations.program().output(wait_name(op), *wait);
    }
}

/// Name of the output with an operation's waiting time.
pub(crate) fn wait_name(op: &prism_graph::Op) -> String {
    format!("wait:{}[{}]@{}", op.kind, op.seq, op.stage)
}

fn is_collective(graph: &StepGraph, id: OpId) -> bool {
    graph.ops()[id.0 as usize].kind.class() == prism_model::KernelClass::Collective
}
