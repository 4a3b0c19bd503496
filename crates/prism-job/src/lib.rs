//! What the user asks about: a training job that need not exist yet.
//!
//! A [`Job`] is a [`Model`], how it is trained ([`Training`]), its [`Plan`] of parallelism, the
//! [`Cluster`] it runs on and the [`Variability`] of that cluster.
//! [`parse_job`] reads a job file and says all that is wrong with it at once; [`Job::check`] holds a job
//! from anywhere against the same rules; [`presets`] know models, GPUs, clusters and variability by
//! name; [`import_hugging_face`], [`import_megatron`] and [`import_torchtitan`] begin a job file from
//! what other programs write.
//! This crate knows nothing of graphs and samples.

mod cluster;
pub mod cost;
mod file;
mod import;
mod job;
mod model;
mod plan;
pub mod presets;
mod rules;
pub mod run;
mod variability;

pub use cluster::{Cluster, Efficiency, Gpu, Network, Tier};
pub use file::{
    Bandwidth, BandwidthUnit, Dimension, JOB_SCHEMA, JobFileError, Quantity, QuantityError, Rate,
    RateUnit, ReadJob, ReadOptions, RunDefaults, Size, SizeUnit, Span, SpanUnit, Time, TimeUnit,
    Violation, Violations, job_schema, job_schema_text, parse_job, parse_run_plan, read_job,
    to_toml,
};
pub use import::{
    ImportError, ImportedModel, JobText, hugging_face_model, import_hugging_face, import_megatron,
    import_torchtitan,
};
pub use job::{Job, SequenceLengths, Training};
pub use model::{Attention, AttentionKind, Mlp, Model, Moe, Positions};
pub use plan::{
    AttentionKernel, Fsdp, Overlap, Plan, Precision, Recompute, ScheduleName, ZeroStage,
};
pub use rules::{BrokenRule, nearest_plans};
pub use run::RunPlan;
pub use variability::{Hang, Laggards, MicrobatchSpread, Variability};
