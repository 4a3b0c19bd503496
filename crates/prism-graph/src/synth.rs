//! The table of operations that a graph with given durations would have recorded.

use prism_io::{JobMeta, NO_GROUP, OpRow, OpTable, OpTableBuilder};
use prism_model::OpKind;

use crate::{GraphError, StepGraph, Timeline, evaluate};

/// Evaluates `graph` and records every operation as a trace would.
///
/// `work` and `launch_delay` are flat `[operation][step][replica]` arrays, seconds, for the steps
/// with ids `steps` (ascending). Recorded durations of grouped operations include waiting; starts
/// are relative to the step's earliest. Barriers are not recorded.
///
/// # Errors
/// [`GraphError::Shape`] if an array has the wrong length, [`GraphError::Meta`] if `meta` has other
/// replicas or stages than the graph.
pub fn to_op_table(
    graph: &StepGraph,
    steps: &[i64],
    work: &[f64],
    launch_delay: Option<&[f64]>,
    meta: &JobMeta,
) -> Result<OpTable, GraphError> {
    let agree = |what, meta: u32, graph: u32| {
        if meta == graph { Ok(()) } else { Err(GraphError::Meta { what, meta, graph }) }
    };
    agree("data-parallel size", meta.dp_size, graph.replicas())?;
    agree("pipeline size", meta.pp_size, u32::from(graph.stages()))?;
    let timeline = evaluate(graph, steps.len(), work, launch_delay)?;
    let replicas = graph.replicas() as usize;
    let origin = earliest_starts(graph, &timeline, steps.len());
    let mut table = OpTableBuilder::new(meta.clone());
    for (id, op) in graph.iter().filter(|(_, op)| op.kind != OpKind::Barrier) {
        let (start, end) = (timeline.start(id), timeline.end(id));
        let compute = op.kind.is_microbatch_compute();
        for sample in 0..timeline.samples() {
            let (step, dp) = (sample / replicas, (sample % replicas) as u32);
            let cell = dp + meta.dp_size * u32::from(op.stage);
            table.push(OpRow {
                step: steps[step],
                rank: meta.tp_size * meta.dsp_size * cell,
                dp,
                stage: op.stage,
                chunk: op.chunk,
                global_chunk: if compute {
                    i32::from(op.chunk.max(0)) * i32::from(graph.stages()) + i32::from(op.stage)
                } else {
                    -1
                },
                microbatch: op.microbatch,
                kind: op.kind,
                start_s: start[sample] - origin[step],
                duration_s: end[sample] - start[sample],
                end_s: end[sample] - origin[step],
                seq: op.seq,
                group: NO_GROUP,
            });
        }
    }
    Ok(table.finish())
}

/// Each step's earliest start over all recorded operations and replicas.
fn earliest_starts(graph: &StepGraph, timeline: &Timeline, steps: usize) -> Vec<f64> {
    let mut origin = vec![f64::INFINITY; steps];
    for (id, _) in graph.iter().filter(|(_, op)| op.kind != OpKind::Barrier) {
        let starts = timeline.start(id).chunks(graph.replicas() as usize);
        for (first, start) in origin.iter_mut().zip(starts) {
            *first = start.iter().copied().fold(*first, f64::min);
        }
    }
    origin
}
