//! The section `[run]` as it is written: every key optional, nothing derived.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use toml::value::Datetime;

use super::super::quantity::{Dimension, Span, SpanUnit};
use crate::run::{Domain, Moment, Policy, Rates, SlowKind};

/// A training run: its length, what interrupts it, and what is done about it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Run")]
pub(crate) struct RawRun {
    /// Optimizer steps.
    pub(crate) steps: Option<u64>,
    /// Tokens to train on, in place of `steps`, where the tokens of a step are known.
    pub(crate) tokens: Option<f64>,
    /// GPUs; the plan's if left out.
    pub(crate) gpus: Option<u64>,
    /// GPUs of a node; the cluster's if left out.
    pub(crate) gpus_per_node: Option<u32>,
    /// Nodes of a rack; 2 if left out.
    pub(crate) nodes_per_rack: Option<u32>,
    /// Nodes below one switch; those of a rack if left out.
    pub(crate) nodes_per_switch: Option<u32>,
    /// When it starts, such as `2026-03-01T08:00:00Z`; midnight without a time, UTC without an offset.
    pub(crate) start: Option<RawMoment>,
    /// When it should be done: a date, or a duration after the start.
    pub(crate) deadline: Option<RawDeadline>,
    /// Price of a GPU for an hour, US dollars.
    pub(crate) gpu_hour_usd: Option<f64>,
    /// How often state is saved.
    pub(crate) checkpoint: Option<RawCheckpoint>,
    /// Evaluations during training.
    pub(crate) evaluation: Option<RawEvaluation>,
    /// What stops the run; nothing if left out.
    pub(crate) failures: Option<RawFailures>,
    /// What is done when it stops.
    pub(crate) recovery: Option<RawRecovery>,
    /// What slows it down without stopping it; nothing if left out.
    pub(crate) slow: Option<RawSlow>,
    /// Swing of throughput over the day.
    pub(crate) diurnal: Option<RawDiurnal>,
    /// Planned stops.
    pub(crate) maintenance: Option<RawMaintenance>,
}

/// How often state is saved.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Checkpoint")]
pub(crate) struct RawCheckpoint {
    /// Training time from one to the next, rounded to whole steps.
    pub(crate) interval: Option<Span>,
    /// Steps from one to the next, in place of `interval`.
    pub(crate) interval_steps: Option<u64>,
    /// Time for which training stops; 0 if left out.
    pub(crate) blocking: Option<Span>,
    /// Time after the stop until it is durable, while training goes on; 0 if left out.
    pub(crate) write: Option<Span>,
    /// Time to load it after a restart; 0 if left out.
    pub(crate) load: Option<Span>,
}

/// Evaluations during training.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Evaluation")]
pub(crate) struct RawEvaluation {
    /// Steps from one to the next.
    pub(crate) every_steps: Option<u64>,
    /// Time of one.
    pub(crate) duration: Option<Span>,
}

/// What stops the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Failures")]
pub(crate) struct RawFailures {
    /// Preset whose classes come first, such as `llama3-405b`, `rsc-1`, `rsc-2`, `o100k` or `none`.
    pub(crate) preset: Option<String>,
    /// Whether the uncertainty of counted rates is drawn; `fixed` if left out.
    pub(crate) rates: Option<Rates>,
    /// Kinds of failure; one named as a preset's takes its place.
    pub(crate) class: Option<Vec<RawFailureClass>>,
}

/// A kind of failure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "FailureClass")]
pub(crate) struct RawFailureClass {
    /// Name, for reports.
    pub(crate) name: Option<String>,
    /// What fails as one; `node` if left out.
    pub(crate) domain: Option<Domain>,
    /// Failures in a thousand days of a node.
    pub(crate) rate_per_1000_node_days: Option<f64>,
    /// Mean time between failures of one unit of the domain.
    pub(crate) mtbf: Option<Span>,
    /// Failures that were counted; with `gpus` and `duration`.
    pub(crate) count: Option<u64>,
    /// GPUs on which they were counted.
    pub(crate) gpus: Option<u64>,
    /// Time for which they were counted.
    pub(crate) duration: Option<Span>,
    /// Time until it is noticed; the recovery's if left out.
    pub(crate) detection: Option<Span>,
    /// Time of a restart; the recovery's if left out.
    pub(crate) restart: Option<Span>,
    /// Whether the nodes lost need others in their place; true but for domain `job` if left out.
    pub(crate) replaces: Option<bool>,
    /// Time until a lost node is repaired; the recovery's if left out.
    pub(crate) repair: Option<Span>,
}

/// What is done when the run stops.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Recovery")]
pub(crate) struct RawRecovery {
    /// Policy; `restart` if left out.
    pub(crate) policy: Option<Policy>,
    /// Time until a failure is noticed; 0 if left out.
    pub(crate) detection: Option<Span>,
    /// Time of a restart, without loading the checkpoint and the slow first steps.
    pub(crate) restart: Option<Span>,
    /// Nodes in reserve; there is always one more if left out.
    pub(crate) spares: Option<u32>,
    /// Time until a lost node is repaired and joins the reserve.
    pub(crate) repair: Option<Span>,
    /// Time to swap a warm standby in.
    pub(crate) standby_swap: Option<Span>,
    /// Going on with fewer replicas.
    pub(crate) elastic: Option<RawElastic>,
    /// Snapshots in the memory of peers.
    pub(crate) in_memory: Option<RawInMemory>,
}

/// Going on with fewer replicas.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Elastic")]
pub(crate) struct RawElastic {
    /// Replicas that hold all state between them (of HSDP).
    pub(crate) replicas: Option<u32>,
    /// Time to go on without a replica.
    pub(crate) shrink: Option<Span>,
    /// Time for which training stops when a replica comes back.
    pub(crate) regrow: Option<Span>,
    /// Whether the replicas left share the whole global batch; true if left out.
    pub(crate) keep_batch: Option<bool>,
}

/// Snapshots in the memory of peers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "InMemory")]
pub(crate) struct RawInMemory {
    /// Training time from one to the next, rounded to whole steps.
    pub(crate) interval: Option<Span>,
    /// Time for which training stops for one; 0 if left out.
    pub(crate) blocking: Option<Span>,
    /// Time to load one after a restart.
    pub(crate) load: Option<Span>,
    /// Whether each is held on another node too; true if left out.
    pub(crate) replicated: Option<bool>,
}

/// What slows the run down.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Slow")]
pub(crate) struct RawSlow {
    /// Preset whose classes come first: `shared-roce`, `lemon` or `none`.
    pub(crate) preset: Option<String>,
    /// Whether of several episodes at a time the worst counts; otherwise they add up. True if left out.
    pub(crate) slowest: Option<bool>,
    /// Kinds of slow-down; one named as a preset's takes its place.
    pub(crate) class: Option<Vec<RawSlowClass>>,
}

/// A kind of slow-down.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "SlowClass")]
pub(crate) struct RawSlowClass {
    /// Name, for reports.
    pub(crate) name: Option<String>,
    /// What is slow.
    pub(crate) kind: Option<SlowKind>,
    /// What is slow as one; `node` if left out.
    pub(crate) domain: Option<Domain>,
    /// Episodes of a unit of the domain in a day.
    pub(crate) per_unit_day: Option<f64>,
    /// Episodes of the job in an hour, whatever its size.
    pub(crate) per_job_hour: Option<f64>,
    /// Share of units that are slow from the run's start to its end.
    pub(crate) share: Option<f64>,
    /// Share of runs that meet this kind at all; 1 if left out.
    pub(crate) exposed: Option<f64>,
    /// Mean length of an episode.
    pub(crate) mean: Option<Span>,
    /// S.d. of the log of its length; 1 if left out.
    pub(crate) sigma: Option<f64>,
    /// Median factor on the time of steps, at least 1.
    pub(crate) factor: Option<f64>,
    /// S.d. of the log of the excess (factor - 1); 0 if left out.
    pub(crate) factor_sigma: Option<f64>,
    /// Equally likely factors, in place of `factor`.
    pub(crate) factors: Option<Vec<f64>>,
    /// Whether a run has one factor for all its episodes; false if left out.
    pub(crate) factor_per_run: Option<bool>,
}

/// Swing of throughput over the day.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Diurnal")]
pub(crate) struct RawDiurnal {
    /// Half of the swing, a share of throughput.
    pub(crate) amplitude: Option<f64>,
    /// Length of a day; 24h if left out.
    pub(crate) period: Option<Span>,
    /// Time of day (UTC) of the highest throughput; 0h if left out.
    pub(crate) peak: Option<Span>,
}

/// Planned stops.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Maintenance")]
pub(crate) struct RawMaintenance {
    /// From the end of one to the start of the next.
    pub(crate) every: Option<Span>,
    /// Length.
    pub(crate) duration: Option<Span>,
}

/// A date, with a time or without, as TOML writes it or as text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct RawMoment(pub(crate) Moment);

/// A date, or a duration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum RawDeadline {
    /// A point in time.
    At(Moment),
    /// After the start.
    After(Span),
}

const DATE: &str = "a date such as 2026-03-01 or 2026-03-01T08:00:00Z";

/// Whether text was meant as a date.
fn is_date(text: &str) -> bool {
    text.contains(':') || text.matches('-').count() >= 2
}

struct DeadlineVisitor {
    spans: bool,
}

impl<'de> de::Visitor<'de> for DeadlineVisitor {
    type Value = RawDeadline;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let also = if self.spans { ", or a duration such as \"60d\"" } else { "" };
        write!(f, "{DATE}{also}")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<RawDeadline, E> {
        match text.parse::<Moment>() {
            Ok(moment) => Ok(RawDeadline::At(moment)),
            Err(error) if !self.spans || is_date(text) => Err(E::custom(error)),
            Err(_) => Span::parse(text).map(RawDeadline::After).map_err(E::custom),
        }
    }

    fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<RawDeadline, A::Error> {
        let datetime = Datetime::deserialize(MapAccessDeserializer::new(map))?;
        let text = datetime.to_string();
        let moment = Moment::from_toml(&datetime)
            .ok_or_else(|| de::Error::invalid_value(de::Unexpected::Str(&text), &DATE))?;
        Ok(RawDeadline::At(moment))
    }
}

impl<'de> Deserialize<'de> for RawDeadline {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(DeadlineVisitor { spans: true })
    }
}

impl<'de> Deserialize<'de> for RawMoment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match deserializer.deserialize_any(DeadlineVisitor { spans: false })? {
            RawDeadline::At(moment) => Ok(RawMoment(moment)),
            RawDeadline::After(_) => Err(de::Error::custom(DATE)),
        }
    }
}

impl Serialize for RawMoment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl Serialize for RawDeadline {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            RawDeadline::At(moment) => serializer.collect_str(moment),
            RawDeadline::After(span) => serializer.collect_str(span),
        }
    }
}

impl JsonSchema for RawMoment {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Moment".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": format!("{DATE}; UTC without an offset"),
            "examples": ["2026-03-01", "2026-03-01T08:00:00Z"],
        })
    }
}

impl JsonSchema for RawDeadline {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Deadline".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": format!("{DATE}, or a duration such as {}", SpanUnit::EXAMPLES[0]),
            "examples": ["2026-03-01T08:00:00Z", "60d"],
        })
    }
}
