//! Results as text, tables, CSV and JSON.
//!
//! A command's result is a value of one of the output types: [`ReplayOutput`], [`PredictOutput`],
//! [`ValidateOutput`], [`DiffOutput`], [`SynthOutput`], or a profile. Each becomes a [`Document`] for people ([`Document::human`],
//! [`Document::markdown`]), one flat table for other programs ([`csv_text`]), or JSON
//! ([`json_text`]), which is the stable surface. This crate prints nothing and reads nothing.

mod blocks;
mod calibrate;
mod calibrate_run;
mod check;
mod chrome_trace;
mod csv_table;
mod diff;
mod document;
mod error;
mod explain;
mod fit;
mod init;
mod json;
mod number;
mod place;
mod planned;
mod predict;
mod predict_job;
mod replay;
mod resized;
mod run;
mod run_analyses;
mod search;
mod style;
mod synth;
mod timeline;
mod validate;
mod watch;
mod whatif;
mod whatif_reference;

pub use blocks::{bars, sparkline};
pub use calibrate::{calibrate_csv, calibrate_document};
pub use calibrate_run::{
    CROSS_SCHEMA, CrossOutput, prior_csv, prior_document, run_profile_csv, run_profile_document,
};
pub use check::{CHECK_SCHEMA, CheckOutput, MemoryPart, StageFile, StepFile, ViolationFile};
pub use chrome_trace::{ChromeTrace, Written};
pub use csv_table::csv_text;
pub use diff::{DiffOutput, ToleranceResult};
pub use document::{Align, Block, Document, Row, Table};
pub use error::ReportError;
pub use explain::{EXPLAIN_SCHEMA, ExplainOutput};
pub use fit::{FIT_CLUSTER_SCHEMA, FIT_JOB_SCHEMA, FitClusterOutput, FitJobOutput, FittedPoint};
pub use init::{INIT_SCHEMA, InitOutput, PRESETS_SCHEMA, Preset, PresetsOutput};
pub use json::{json_line, json_text, schema_text};
pub use number::{Scale, big, count, p_value, percent, quantile_name, seconds};
pub use place::{PLACE_SCHEMA, PlaceOutput};
pub use planned::{
    JobSummary, Throughput, cost_assumption, memory_warning, plan_name, variability_assumption,
};
pub use predict::{InputKind, ModelKind, Over, PredictOutput, RequirementResult};
pub use predict_job::{PREDICT_JOB_SCHEMA, PredictJobOutput};
pub use replay::{REPLAY_SCHEMA, ReplayOutput};
pub use resized::{ResizedOutput, SizeChange};
pub use run::{
    BoundResult, DoneAt, RUN_SCHEMA, RunOutput, RunSetting, ThroughputAbove, TotalHistogram,
};
pub use search::{SEARCH_SCHEMA, SearchOutput};
pub use style::{Style, Tone};
pub use synth::{SYNTH_SCHEMA, SynthOutput};
pub use timeline::{TIMELINE_SCHEMA, TimelineOutput};
pub use validate::ValidateOutput;
pub use watch::{
    WATCH_SCHEMA, WatchEnd, WatchLine, watch_csv, watch_end_document, watch_event_text,
};
pub use whatif::{WHATIF_SCHEMA, WhatifOutput};
pub use whatif_reference::{WHATIF_REFERENCE_SCHEMA, WhatifReferenceOutput};
