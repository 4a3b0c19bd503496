//! A step as Chrome trace events, in the names of `PyTorch`'s profiler (Kineto).
//!
//! Viewers (Perfetto, `chrome://tracing`) draw each worker as a process with a row a stream, and
//! programs that read Kineto's traces find its fields. Only what is known is written: there are no
//! kernels, shapes or devices. Times are microseconds since the step's start, to the nanosecond.

mod events;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use prism_decide::critical::{Segment, SegmentKind};
use prism_decide::timeline::{OpTimes, StepTimeline, peer_stage, send_recv_pairs};
use prism_engine::profile::JobFile;
use prism_graph::{OpId, StepGraph};
use prism_model::{Direction, OpKind};
use serde::Serialize;

use events::{Args, Flow, Metadata, Micros, Slice, named, numbered};

/// The critical path's process. Process 0 is the idle process to some viewers.
const PATH_PID: u32 = 1;
/// Added to a worker's rank.
const WORKER_PID: u32 = 2;
/// Rows of one stream: the first, and those of operations that overlap the one before.
const ROWS: u32 = 100;

/// What a trace is written from.
#[derive(Clone, Copy, Debug)]
pub struct ChromeTrace<'a> {
    /// The step's graph.
    pub graph: &'a StepGraph,
    /// The step.
    pub timeline: &'a StepTimeline,
    /// Ranks by (replica, stage); workers without one are numbered in that order.
    pub ranks: &'a BTreeMap<(u32, u16), u32>,
    /// The recorded job's plan.
    pub job: &'a JobFile,
}

/// What a trace holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Operations.
    pub operations: usize,
    /// Arrows from sends to receives.
    pub flows: usize,
    /// Sends that, by clock errors, are not recorded at the same time as their receive at all, and
    /// so have no arrow.
    pub flows_left_out: usize,
    /// Operations in a row of their own, since they start before the one before has ended.
    pub overlapping: usize,
}

/// A slice to be put into a row.
struct Placed {
    start: Micros,
    end: Micros,
    op: OpId,
}

/// The row of each operation and replica.
struct Rows {
    replicas: usize,
    tids: Vec<u32>,
}

impl Rows {
    fn of(&self, op: OpId, replica: u32) -> u32 {
        self.tids[op.0 as usize * self.replicas + replica as usize]
    }
}

/// Writes events one after the other.
struct EventList<'a> {
    out: &'a mut dyn Write,
    first: bool,
}

impl EventList<'_> {
    fn put<T: Serialize>(&mut self, event: &T) -> io::Result<()> {
        self.out.write_all(if std::mem::take(&mut self.first) { b"\n" } else { b",\n" })?;
        serde_json::to_writer(&mut *self.out, event).map_err(io::Error::from)
    }
}

/// Number and name of the stream that a kind runs on.
fn stream(kind: OpKind) -> (u32, &'static str) {
    match (kind.direction(), kind.is_send(), kind.is_recv()) {
        (Some(Direction::Forward), true, _) => (2, "forward send"),
        (Some(Direction::Forward), _, true) => (3, "forward receive"),
        (Some(Direction::Backward), true, _) => (4, "backward send"),
        (Some(Direction::Backward), _, true) => (5, "backward receive"),
        _ => match kind {
            OpKind::ParamsAllGather
            | OpKind::GradsReduceScatter
            | OpKind::SeparateGradsAllReduce => (6, "data-parallel communication"),
            OpKind::LayernormGradsAllReduce
            | OpKind::EmbeddingGradsAllReduce
            | OpKind::OptimizerClipMainGrad => (7, "other communication"),
            OpKind::Barrier => (8, "unrecorded waiting"),
            _ => (1, "compute"),
        },
    }
}

/// Kineto's name of the collective that a kind is.
fn collective(kind: OpKind) -> Option<&'static str> {
    match kind {
        OpKind::ForwardSend | OpKind::BackwardSend => Some("send"),
        OpKind::ForwardRecv | OpKind::BackwardRecv => Some("recv"),
        OpKind::ParamsAllGather => Some("allgather"),
        OpKind::GradsReduceScatter => Some("reduce_scatter"),
        OpKind::SeparateGradsAllReduce
        | OpKind::LayernormGradsAllReduce
        | OpKind::EmbeddingGradsAllReduce => Some("allreduce"),
        _ => None,
    }
}

impl ChromeTrace<'_> {
    /// Writes the whole trace, event by event.
    ///
    /// # Errors
    /// What `out` says.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<Written> {
        let mut list = EventList { out, first: true };
        list.out.write_all(self.head()?.as_bytes())?;
        let rows = self.rows();
        let mut written = Written {
            operations: rows.tids.len(),
            overlapping: rows.tids.iter().filter(|tid| !tid.is_multiple_of(ROWS)).count(),
            ..Written::default()
        };
        self.path(&mut list)?;
        for replica in 0..self.graph.replicas() {
            for stage in 0..self.graph.stages() {
                self.worker(replica, stage, &rows, &mut list)?;
            }
        }
        self.flows(&rows, &mut list, &mut written)?;
        list.out.write_all(b"\n]\n}\n")?;
        Ok(written)
    }

    /// Everything before the events, up to the list's bracket.
    fn head(&self) -> io::Result<String> {
        #[derive(Serialize)]
        struct Distributed {
            rank: u32,
            world_size: u32,
            ranks: Vec<u32>,
        }
        let ranks = self.ranks.values().copied().collect::<BTreeSet<_>>();
        let info = Distributed {
            rank: ranks.first().copied().unwrap_or(0),
            world_size: self.job.world_size,
            ranks: ranks.into_iter().collect(),
        };
        let info = serde_json::to_string(&info).map_err(io::Error::other)?;
        let name = serde_json::to_string(&self.timeline.name).map_err(io::Error::other)?;
        Ok(format!(
            "{{\n\"schemaVersion\": 1,\n\"deviceProperties\": [],\n\"distributedInfo\": {info},\n\
             \"displayTimeUnit\": \"ms\",\n\"traceName\": {name},\n\"traceEvents\": [",
        ))
    }

    fn rank(&self, replica: u32, stage: u16) -> u32 {
        let order = replica * u32::from(self.graph.stages()) + u32::from(stage);
        self.ranks.get(&(replica, stage)).copied().unwrap_or(order)
    }

    fn pid(&self, replica: u32, stage: u16) -> u32 {
        WORKER_PID + self.rank(replica, stage)
    }

    /// The critical path, end to end, first of all processes. A stretch of negative length, which
    /// clock errors make, is not drawn.
    fn path(&self, list: &mut EventList<'_>) -> io::Result<()> {
        list.put(&named("process_name", PATH_PID, 0, "critical path"))?;
        list.put(&Metadata::labels(PATH_PID, &self.timeline.name))?;
        list.put(&numbered("process_sort_index", PATH_PID, 0, -1))?;
        list.put(&named("thread_name", PATH_PID, 1, "work and launch delays"))?;
        let mut free = Micros::ZERO;
        for segment in &self.timeline.path.segments {
            let start = Micros::from_seconds(segment.start_s).max(free);
            let end = Micros::from_seconds(segment.end_s);
            if end <= start {
                continue;
            }
            free = end;
            let op = &self.graph.ops()[segment.op.0 as usize];
            let name = match segment.kind {
                SegmentKind::Work => op.to_string(),
                _ => format!("launch delay of {op}"),
            };
            list.put(&Slice {
                cat: "critical_path",
                name: &name,
                pid: PATH_PID,
                tid: 1,
                ts: start,
                dur: end - start,
                cname: None,
                args: self.path_args(segment),
            })?;
        }
        Ok(())
    }

    fn path_args(&self, segment: &Segment) -> Args {
        let op = &self.graph.ops()[segment.op.0 as usize];
        Args {
            op: Some(op.kind.as_str()),
            dp: Some(segment.replica),
            stage: Some(op.stage),
            rank: Some(self.rank(segment.replica, op.stage)),
            microbatch: (op.microbatch >= 0).then_some(op.microbatch),
            ..Args::default()
        }
    }

    fn worker(
        &self,
        replica: u32,
        stage: u16,
        rows: &Rows,
        list: &mut EventList<'_>,
    ) -> io::Result<()> {
        let (rank, pid) = (self.rank(replica, stage), self.pid(replica, stage));
        let name = format!("dp {replica} stage {stage} (rank {rank})");
        list.put(&named("process_name", pid, 0, &name))?;
        list.put(&Metadata::labels(pid, &format!("dp {replica}, stage {stage}")))?;
        let order = replica * u32::from(self.graph.stages()) + u32::from(stage);
        list.put(&numbered("process_sort_index", pid, 0, i64::from(order)))?;
        let ops = self.graph.iter().filter(|(_, op)| op.stage == stage);
        let mut placed: Vec<(u32, Placed)> =
            ops.map(|(id, _)| (rows.of(id, replica), self.placed(id, replica))).collect();
        placed.sort_by_key(|(tid, p)| (*tid, p.start, p.end, p.op));
        let mut last = None;
        for (tid, p) in placed {
            if last != Some(tid) {
                last = Some(tid);
                let title = stream(self.graph.ops()[p.op.0 as usize].kind).1;
                let overlapping = if tid.is_multiple_of(ROWS) { "" } else { " (overlapping)" };
                list.put(&named("thread_name", pid, tid, &format!("{title}{overlapping}")))?;
                list.put(&numbered("thread_sort_index", pid, tid, i64::from(tid)))?;
            }
            self.slice(replica, pid, tid, &p, list)?;
        }
        Ok(())
    }

    fn placed(&self, op: OpId, replica: u32) -> Placed {
        let times = self.timeline.of(op, replica);
        let start = Micros::from_seconds(times.start_s);
        Placed { start, end: Micros::from_seconds(times.end_s).max(start), op }
    }

    /// Which row each operation is drawn in: its stream's first, unless it starts before the one
    /// before has ended, as operations of one stream do by clock errors.
    fn rows(&self) -> Rows {
        let replicas = self.graph.replicas();
        let mut rows = Rows {
            replicas: replicas as usize,
            tids: vec![0; self.graph.ops().len() * replicas as usize],
        };
        for replica in 0..replicas {
            let mut streams: BTreeMap<(u16, u32), Vec<Placed>> = BTreeMap::new();
            for (id, op) in self.graph.iter() {
                let key = (op.stage, stream(op.kind).0);
                streams.entry(key).or_default().push(self.placed(id, replica));
            }
            for ((_, number), mut placed) in streams {
                placed.sort_by_key(|p| (p.start, p.end, p.op));
                let mut free: Vec<Micros> = Vec::new();
                for p in placed {
                    let row = free.iter().position(|&end| end <= p.start).unwrap_or(free.len());
                    if row == free.len() {
                        free.push(p.end);
                    } else {
                        free[row] = p.end;
                    }
                    rows.tids[p.op.0 as usize * rows.replicas + replica as usize] =
                        number * ROWS + row as u32;
                }
            }
        }
        rows
    }

    fn slice(
        &self,
        replica: u32,
        pid: u32,
        tid: u32,
        placed: &Placed,
        list: &mut EventList<'_>,
    ) -> io::Result<()> {
        let op = &self.graph.ops()[placed.op.0 as usize];
        let critical = self.timeline.path.contains(placed.op, replica);
        let marker = matches!(op.kind, OpKind::Gc | OpKind::Barrier);
        list.put(&Slice {
            cat: if marker { "user_annotation" } else { "kernel" },
            name: &op.to_string(),
            pid,
            tid,
            ts: placed.start,
            dur: placed.end - placed.start,
            cname: critical.then_some("terrible"),
            args: self.args(placed.op, replica, critical),
        })
    }

    fn args(&self, id: OpId, replica: u32, critical: bool) -> Args {
        let op = &self.graph.ops()[id.0 as usize];
        let OpTimes { launch_delay_s, wait_s, work_s, .. } = self.timeline.of(id, replica);
        let slack = self.timeline.slack.of(id, replica);
        let members = self.process_group(id, replica);
        Args {
            op: Some(op.kind.as_str()),
            dp: Some(replica),
            stage: Some(op.stage),
            microbatch: (op.microbatch >= 0).then_some(op.microbatch),
            chunk: (op.chunk >= 0).then_some(op.chunk),
            seq: Some(op.seq),
            rank: None,
            work_us: Some(Micros::from_seconds(work_s)),
            wait_us: Some(Micros::from_seconds(wait_s)),
            launch_delay_us: Some(Micros::from_seconds(launch_delay_s)),
            slack_us: slack.is_finite().then(|| Micros::from_seconds(slack)),
            critical: critical.then_some(true),
            collective: collective(op.kind),
            group_size: members.as_ref().map(Vec::len),
            group_ranks: members.map(|m| format!("{m:?}")),
        }
    }

    /// Ranks that take part, where the graph and the plan leave no doubt: a send and its receive;
    /// all replicas of a stage, if the data-parallel dimension is not split further.
    fn process_group(&self, id: OpId, replica: u32) -> Option<Vec<u32>> {
        let op = &self.graph.ops()[id.0 as usize];
        let mut ranks = match op.kind {
            kind if kind.is_p2p() => {
                let peer = peer_stage(self.graph, id)?;
                vec![self.rank(replica, op.stage), self.rank(replica, peer)]
            }
            OpKind::EmbeddingGradsAllReduce => {
                vec![self.rank(replica, 0), self.rank(replica, self.graph.stage_before(0))]
            }
            OpKind::ParamsAllGather
            | OpKind::GradsReduceScatter
            | OpKind::SeparateGradsAllReduce
                if self.job.dsp_size == 1 =>
            {
                // Two stages may hold copies of the same parameters.
                let members = match self.graph.group_of(id) {
                    Some(g) => self.graph.groups()[g.0 as usize].members.clone(),
                    None => vec![id],
                };
                let stages = members.iter().map(|m| self.graph.ops()[m.0 as usize].stage);
                let of = |stage| (0..self.graph.replicas()).map(move |r| self.rank(r, stage));
                stages.flat_map(of).collect()
            }
            _ => return None,
        };
        ranks.sort_unstable();
        ranks.dedup();
        Some(ranks)
    }

    /// Arrows from sends to receives. Both ends are bound at a time when both operations are under
    /// way, since viewers draw an arrow only forward in time.
    fn flows(
        &self,
        rows: &Rows,
        list: &mut EventList<'_>,
        written: &mut Written,
    ) -> io::Result<()> {
        let pairs = send_recv_pairs(self.graph);
        let mut flow = 0;
        for replica in 0..self.graph.replicas() {
            for &(send, recv) in &pairs {
                let (out, into) = (self.placed(send, replica), self.placed(recv, replica));
                let from = out.start.max(into.start);
                if from > out.end.min(into.end) {
                    written.flows_left_out += 1;
                    continue;
                }
                flow += 1;
                written.flows += 1;
                for (ph, bp, id) in [("s", None, send), ("f", Some("e"), recv)] {
                    let op = &self.graph.ops()[id.0 as usize];
                    list.put(&Flow {
                        ph,
                        id: flow,
                        pid: self.pid(replica, op.stage),
                        tid: rows.of(id, replica),
                        ts: from,
                        cat: "send_recv",
                        name: "send_recv",
                        bp,
                    })?;
                }
            }
        }
        Ok(())
    }
}
