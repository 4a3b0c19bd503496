//! Which graph replays a trace best.

use prism_graph::{GraphError, Observed, StepGraph, build_program_order, build_reference};
use prism_io::OpTable;

use super::{Builder, ReplayComparison, ReplayReport, Split};

/// A trace on the graph that one builder makes of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Replayed {
    /// One replica's step.
    pub graph: StepGraph,
    /// The trace's times in the graph's terms.
    pub observed: Observed,
    /// Work and launch delays.
    pub split: Split,
    /// The figures.
    pub report: ReplayReport,
}

impl Replayed {
    /// Builds the graph and replays the trace on it.
    ///
    /// # Errors
    /// [`GraphError`] if the graph cannot be built or some step does not fit it.
    pub fn new(builder: Builder, table: &OpTable) -> Result<Replayed, GraphError> {
        let graph = match builder {
            Builder::Reference => build_reference(table)?,
            Builder::ProgramOrder => build_program_order(table)?,
            Builder::Planned => {
                let (rule, got) = ("a trace's rules must be of traces", builder.to_string());
                return Err(GraphError::Schedule { rule, got });
            }
        };
        let observed = Observed::align(&graph, table)?;
        let split = Split::new(&graph, &observed)?;
        let report = ReplayReport::new(builder, &graph, &observed, &split)?;
        Ok(Replayed { graph, observed, split, report })
    }
}

/// The graph to calibrate and predict with, and how the builders compare.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// The trace on the chosen builder's graph.
    pub chosen: Replayed,
    /// Both builders' figures.
    pub comparison: ReplayComparison,
}

/// Replays a trace on both builders' graphs and takes the one with the smaller root mean square
/// zero-delay error.
///
/// What launch delay a graph needs to explain the record is largely waiting that the graph does
/// not know, so less of it means a truer graph. If the program-order graph cannot be built, the
/// reference is taken and [`ReplayComparison::program_order_error`] says why.
///
/// # Errors
/// [`GraphError`] if the reference graph cannot be built or some step does not fit it.
pub fn choose_builder(table: &OpTable) -> Result<Choice, GraphError> {
    let reference = Replayed::new(Builder::Reference, table)?;
    let mut comparison = ReplayComparison {
        chosen: Builder::Reference,
        reference: reference.report.clone(),
        program_order: None,
        program_order_error: None,
    };
    let program_order = match Replayed::new(Builder::ProgramOrder, table) {
        Ok(replayed) => replayed,
        Err(error) => {
            comparison.program_order_error = Some(error.to_string());
            return Ok(Choice { chosen: reference, comparison });
        }
    };
    comparison.program_order = Some(program_order.report.clone());
    let rms = |r: &Replayed| r.report.zero_delay_error.rms_percent;
    let better = rms(&program_order) < rms(&reference);
    comparison.chosen = if better { Builder::ProgramOrder } else { Builder::Reference };
    let chosen = if better { program_order } else { reference };
    Ok(Choice { chosen, comparison })
}
