//! Single events.

use std::ops::Sub;

use serde::{Serialize, Serializer};

/// A time in whole nanoseconds, written as microseconds, so that what touches in time still does
/// when rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Micros(i64);

impl Micros {
    pub(super) const ZERO: Micros = Micros(0);

    pub(super) fn from_seconds(seconds: f64) -> Micros {
        Micros((seconds * 1e9).round() as i64)
    }
}

impl Sub for Micros {
    type Output = Micros;

    fn sub(self, other: Micros) -> Micros {
        Micros(self.0 - other.0)
    }
}

impl Serialize for Micros {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.0 as f64 / 1e3)
    }
}

/// What a slice says about itself: Kineto's names for communication, else PRISM's own.
#[derive(Default, Serialize)]
pub(super) struct Args {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) op: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) dp: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stage: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rank: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) microbatch: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) chunk: Option<i16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) seq: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) work_us: Option<Micros>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) wait_us: Option<Micros>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) launch_delay_us: Option<Micros>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) slack_us: Option<Micros>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) critical: Option<bool>,
    #[serde(rename = "Collective name", skip_serializing_if = "Option::is_none")]
    pub(super) collective: Option<&'static str>,
    #[serde(rename = "Group size", skip_serializing_if = "Option::is_none")]
    pub(super) group_size: Option<usize>,
    /// Text, as Kineto has it.
    #[serde(rename = "Process Group Ranks", skip_serializing_if = "Option::is_none")]
    pub(super) group_ranks: Option<String>,
}

/// A complete event.
#[derive(Serialize)]
#[serde(tag = "ph", rename = "X")]
pub(super) struct Slice<'a> {
    pub(super) cat: &'static str,
    pub(super) name: &'a str,
    pub(super) pid: u32,
    pub(super) tid: u32,
    pub(super) ts: Micros,
    pub(super) dur: Micros,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cname: Option<&'static str>,
    pub(super) args: Args,
}

/// One end of an arrow, bound to the slice that it lies in.
#[derive(Serialize)]
pub(super) struct Flow {
    pub(super) ph: &'static str,
    pub(super) id: u32,
    pub(super) pid: u32,
    pub(super) tid: u32,
    pub(super) ts: Micros,
    pub(super) cat: &'static str,
    pub(super) name: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bp: Option<&'static str>,
}

/// About a process or a row.
#[derive(Serialize)]
#[serde(tag = "ph", rename = "M")]
pub(super) struct Metadata<'a> {
    name: &'static str,
    pid: u32,
    tid: u32,
    ts: Micros,
    args: About<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum About<'a> {
    Name(&'a str),
    Labels(&'a str),
    SortIndex(i64),
}

impl<'a> Metadata<'a> {
    pub(super) fn labels(pid: u32, labels: &'a str) -> Metadata<'a> {
        let args = About::Labels(labels);
        Metadata { name: "process_labels", pid, tid: 0, ts: Micros::ZERO, args }
    }
}

/// A process's or a row's name.
pub(super) fn named<'a>(what: &'static str, pid: u32, tid: u32, name: &'a str) -> Metadata<'a> {
    Metadata { name: what, pid, tid, ts: Micros::ZERO, args: About::Name(name) }
}

/// A process's or a row's place among the others.
pub(super) fn numbered(what: &'static str, pid: u32, tid: u32, index: i64) -> Metadata<'static> {
    Metadata { name: what, pid, tid, ts: Micros::ZERO, args: About::SortIndex(index) }
}
