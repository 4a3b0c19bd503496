//! What was written as a timeline, and the step's critical path.

use prism_decide::critical::SegmentKind;
use prism_decide::timeline::StepTimeline;
use prism_engine::profile::{JobFile, SourceFile};
use prism_engine::replay::Builder;
use prism_graph::StepGraph;
use serde::{Deserialize, Serialize};

use crate::csv_table::number;
use crate::number::{Scale, count, percent};
use crate::{Document, ReportError, Table, Written, csv_text};

/// Version of [`TimelineOutput`].
pub const TIMELINE_SCHEMA: &str = "prism.timeline/1";
/// Rows of the critical path that are shown without being asked for all.
const SHOWN: usize = 12;

/// Time on the critical path by kind of operation, stage, and what it goes to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct PathPart {
    /// Kind of operation.
    pub op: String,
    /// Pipeline stage.
    pub stage: u16,
    /// Own work, or the launch delay before it.
    pub kind: SegmentKind,
    /// Stretches of the path.
    pub segments: usize,
    /// Seconds.
    pub time_s: f64,
}

/// A stretch of the critical path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct PathSegment {
    /// The operation: kind, sequence number, stage.
    pub op: String,
    /// Data-parallel replica.
    pub dp: u32,
    /// Pipeline stage.
    pub stage: u16,
    /// Own work, or the launch delay before it.
    pub kind: SegmentKind,
    /// Seconds since the step's start.
    pub start_s: f64,
    /// Seconds since the step's start.
    pub end_s: f64,
}

/// A timeline that was written, and its critical path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct TimelineOutput {
    /// [`TIMELINE_SCHEMA`].
    pub schema: String,
    /// Files read.
    pub sources: Vec<SourceFile>,
    /// The recorded job's plan.
    pub job: JobFile,
    /// The file written; `-` for standard output.
    pub file: String,
    /// What the timeline is of.
    pub name: String,
    /// Training step id, where it is of a recorded step.
    pub step: Option<i64>,
    /// How the graph was built: it says what waits for what.
    pub builder: Builder,
    /// Step time, seconds.
    pub step_s: f64,
    /// Operations written.
    pub operations: usize,
    /// Arrows from sends to receives.
    pub flows: usize,
    /// Time on the critical path, the longest first.
    pub critical_path: Vec<PathPart>,
    /// The critical path, in order of time.
    pub segments: Vec<PathSegment>,
    /// What to be careful about.
    pub warnings: Vec<String>,
}

impl TimelineOutput {
    /// The figures of a timeline that was `written`; what it was made from is the caller's to add.
    pub fn new(
        graph: &StepGraph,
        timeline: &StepTimeline,
        builder: Builder,
        written: &Written,
        (sources, job, file): (Vec<SourceFile>, JobFile, String),
    ) -> TimelineOutput {
        let segments: Vec<PathSegment> = timeline
            .path
            .segments
            .iter()
            .map(|s| {
                let op = &graph.ops()[s.op.0 as usize];
                let (start_s, end_s) = (s.start_s, s.end_s);
                let name = op.to_string();
                PathSegment {
                    op: name,
                    dp: s.replica,
                    stage: op.stage,
                    kind: s.kind,
                    start_s,
                    end_s,
                }
            })
            .collect();
        TimelineOutput {
            schema: TIMELINE_SCHEMA.to_owned(),
            sources,
            job,
            file,
            name: timeline.name.clone(),
            step: timeline.step,
            builder,
            step_s: timeline.step_s,
            operations: written.operations,
            flows: written.flows,
            critical_path: parts(graph, timeline),
            segments,
            warnings: warnings(written),
        }
    }

    /// For people; with all of the path's parts if asked.
    pub fn document(&self, all: bool) -> Document {
        let scale = Scale::new(self.step_s, self.step_s * 1e-4);
        let mut document = Document::new(format!(
            "Timeline of {}, {}: {} on the {} graph, {} operations, {} arrows",
            self.sources.first().map_or("-", |s| s.name.as_str()),
            self.name,
            scale.with_unit(self.step_s),
            self.builder,
            count(self.operations),
            count(self.flows),
        ));
        let title = format!("Critical path, {} stretches end to end", count(self.segments.len()));
        let columns = ["operation", ">stage", "", ">stretches", ">time", ">of the step"];
        let mut table = Table::new(title, &columns);
        let limit = if all { usize::MAX } else { SHOWN };
        for part in self.critical_path.iter().take(limit) {
            table.row(vec![
                part.op.clone(),
                part.stage.to_string(),
                kind_name(part.kind).to_owned(),
                count(part.segments),
                scale.with_unit(part.time_s),
                percent(part.time_s / self.step_s),
            ]);
        }
        document.table(table);
        let rest = self.critical_path.iter().skip(limit);
        let (more, time) = rest.fold((0, 0.0), |(n, t), p| (n + 1, t + p.time_s));
        if more > 0 {
            document
                .line(format!("and {more} more with {}; `-v` shows all", scale.with_unit(time)));
        }
        document.line("One step, exactly: no interval. Other steps have other critical paths");
        document.line(format!("written to {}; open it in https://ui.perfetto.dev", self.file));
        document.warnings.clone_from(&self.warnings);
        document
    }

    /// The critical path, one row a stretch.
    ///
    /// # Errors
    /// [`ReportError::Csv`].
    pub fn csv(&self) -> Result<String, ReportError> {
        let header = ["op", "dp", "stage", "kind", "start_s", "end_s"];
        let rows: Vec<Vec<String>> = self
            .segments
            .iter()
            .map(|s| {
                let mut row = vec![s.op.clone(), s.dp.to_string(), s.stage.to_string()];
                row.push(kind_name(s.kind).to_owned());
                row.extend([s.start_s, s.end_s].map(|t| number(Some(t))));
                row
            })
            .collect();
        csv_text(&header, &rows)
    }
}

fn kind_name(kind: SegmentKind) -> &'static str {
    match kind {
        SegmentKind::Work => "work",
        _ => "launch delay",
    }
}

fn parts(graph: &StepGraph, timeline: &StepTimeline) -> Vec<PathPart> {
    let path = &timeline.path;
    let mut parts: Vec<PathPart> = path
        .by_kind_and_stage(graph)
        .into_iter()
        .map(|((op, stage, kind), time_s)| {
            let is_part = |s: &&prism_decide::critical::Segment| {
                let of = &graph.ops()[s.op.0 as usize];
                (of.kind, of.stage, s.kind) == (op, stage, kind)
            };
            let segments = path.segments.iter().filter(is_part).count();
            PathPart { op: op.to_string(), stage, kind, segments, time_s }
        })
        .collect();
    parts.sort_by(|a, b| b.time_s.total_cmp(&a.time_s));
    parts
}

fn warnings(written: &Written) -> Vec<String> {
    let mut warnings = Vec::new();
    if written.overlapping > 0 {
        warnings.push(format!(
            "{} operations start before the one before them on their stream has ended, and are in \
             rows of their own",
            count(written.overlapping)
        ));
    }
    if written.flows_left_out > 0 {
        warnings.push(format!(
            "{} sends have no arrow: their receive is not at the same time",
            count(written.flows_left_out)
        ));
    }
    warnings
}
