//! Results as text, tables, CSV and JSON.
//!
//! A command's result is a value of one of the output types: [`ReplayOutput`], [`PredictOutput`],
//! [`ValidateOutput`], [`SynthOutput`], or a profile. Each becomes a [`Document`] for people ([`Document::human`],
//! [`Document::markdown`]), one flat table for other programs ([`csv_text`]), or JSON
//! ([`json_text`]), which is the stable surface. This crate prints nothing and reads nothing.

mod blocks;
mod calibrate;
mod csv_table;
mod document;
mod error;
mod json;
mod number;
mod place;
mod predict;
mod replay;
mod style;
mod synth;
mod validate;

pub use blocks::{bars, sparkline};
pub use calibrate::{calibrate_csv, calibrate_document};
pub use csv_table::csv_text;
pub use document::{Align, Block, Document, Row, Table};
pub use error::ReportError;
pub use json::{json_text, schema_text};
pub use number::{Scale, count, p_value, percent, quantile_name, seconds};
pub use place::{PLACE_SCHEMA, PlaceOutput};
pub use predict::{InputKind, ModelKind, Over, PredictOutput, RequirementResult};
pub use replay::{REPLAY_SCHEMA, ReplayOutput};
pub use style::{Style, Tone};
pub use synth::{SYNTH_SCHEMA, SynthOutput};
pub use validate::ValidateOutput;
