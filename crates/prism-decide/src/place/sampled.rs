//! Sampled steps, taken apart so that they can be put together with other workers.

use prism_engine::predict::{LowerOptions, Probes, lower};
use prism_engine::sample::{Key, Offset, Program, RunOptions, Samples, Scope, Tape};
use prism_graph::{Event, OpId, StepGraph, synchronise};
use prism_model::DurationModel;

use super::PlaceError;
use super::layout::{Layout, Row};
use super::nominal::Nominal;
use super::region::{Part, Regions};

/// Most bytes of times that one run of the kernel gives back.
const RUN_BYTES: usize = 128 << 20;

/// Sampled steps at factor 1 of every worker.
#[derive(Clone, Debug)]
pub(super) struct Sampled {
    pub(super) layout: Layout,
    pub(super) samples: usize,
    /// By replica: `[row][sample]`, seconds.
    pub(super) data: Vec<Vec<f32>>,
}

impl Sampled {
    /// Bytes of one sample of all replicas.
    pub(super) fn bytes_per_sample(nominal: &Nominal<'_>) -> usize {
        6 * nominal.graph.ops().len() * nominal.replicas()
    }

    /// Samples a job.
    ///
    /// # Errors
    /// [`PlaceError::Coupled`], or the job cannot be sampled.
    pub(super) fn draw(nominal: &Nominal<'_>, run: &RunOptions) -> Result<Sampled, PlaceError> {
        let (graph, model) = (nominal.graph, &nominal.model);
        let regions = Regions::new(graph, model)?;
        let layout = Layout::new(graph, model, &regions, nominal.lowering.launch_delays);
        let probes = Probes { timeline: true, ..Probes::default() };
        let lowering = LowerOptions { probes, ..nominal.lowering };
        let tape = lower(graph, model, &lowering)?.compile()?;
        let rows = observed_rows(model.steps.len(), run)?;
        let replicas = nominal.replicas();
        let mut data = vec![vec![0.0; layout.rows.len() * run.samples]; replicas];
        let per_sample = 8 * graph.ops().len() * replicas;
        let block = (RUN_BYTES / per_sample.max(1)).clamp(16, run.samples.max(16));
        let mut first = 0;
        while first < run.samples {
            let count = block.min(run.samples - first);
            let part = RunOptions {
                first_sample: run.first_sample + first as u64,
                samples: count,
                ..*run
            };
            let drawn = Drawn::new(nominal, &regions, &tape, &part, &rows[first..first + count])?;
            let tails = drawn.tails();
            for (r, own) in data.iter_mut().enumerate() {
                for (i, row) in layout.rows.iter().enumerate() {
                    let into = &mut own[i * run.samples + first..][..count];
                    drawn.fill(*row, r, &tails, into);
                }
            }
            first += count;
        }
        Ok(Sampled { layout, samples: run.samples, data })
    }
}

/// Which observed step each sample takes its step-level values from: the same draw as in the job's
/// own program.
fn observed_rows(steps: usize, run: &RunOptions) -> Result<Vec<usize>, PlaceError> {
    let mut program = Program::new(1);
    let pool = program.pool((0..steps).map(|t| t as f32).collect());
    let row = program.index(steps as u32, Key::new("step-row").with(0), Scope::Shared);
    let value = program.gather(pool, row, 1, Offset::Fixed(0));
    program.output("row", value);
    let samples = program.compile()?.run(run)?;
    let row = samples.get("row").map_or(&[][..], |o| o.row(0));
    Ok(row.iter().map(|&v| v as usize).collect())
}

/// One run's times.
struct Drawn<'a> {
    graph: &'a StepGraph,
    model: &'a DurationModel,
    regions: &'a Regions,
    delays: bool,
    delay_of: Vec<Option<usize>>,
    samples: Samples,
    /// Output with when each operation is ready and when it ends.
    ready: Vec<usize>,
    end: Vec<usize>,
    rows: &'a [usize],
}

/// Longest times to the step's end, `[operation][sample * replicas + replica]`; -inf where there is
/// no way. Filled for what is after a meeting of replicas and what it waits for.
struct Tails {
    ready: Vec<Option<Vec<f64>>>,
    end: Vec<Option<Vec<f64>>>,
}

impl<'a> Drawn<'a> {
    fn new(
        nominal: &'a Nominal<'_>,
        regions: &'a Regions,
        tape: &Tape,
        run: &RunOptions,
        rows: &'a [usize],
    ) -> Result<Drawn<'a>, PlaceError> {
        let (graph, model) = (nominal.graph, &nominal.model);
        let samples = tape.run(run)?;
        let n = graph.ops().len();
        let (mut ready, mut end) = (vec![usize::MAX; n], vec![usize::MAX; n]);
        for (i, output) in samples.outputs().iter().enumerate() {
            for (what, list) in [("ready#", &mut ready), ("end#", &mut end)] {
                let at = output.name().strip_prefix(what).and_then(|t| t.parse::<usize>().ok());
                if let Some(slot) = at.and_then(|at| list.get_mut(at)) {
                    *slot = i;
                }
            }
        }
        if ready.iter().chain(&end).any(|i| *i == usize::MAX) {
            return Err(prism_engine::predict::PredictError::NoTimeline.into());
        }
        let delays = nominal.lowering.launch_delays;
        let mut delay_of = vec![None; n];
        for (i, v) in model.launch_delay.iter().enumerate().filter(|_| delays) {
            if let Some(slot) = delay_of.get_mut(v.op as usize) {
                *slot = Some(i);
            }
        }
        Ok(Drawn { graph, model, regions, delays, delay_of, samples, ready, end, rows })
    }

    fn replicas(&self) -> usize {
        self.model.replicas as usize
    }

    /// Times of one replica, a sample each.
    fn lane(&self, output: usize, replica: usize) -> &[f32] {
        let output = &self.samples.outputs()[output];
        output.row(if output.rows() == 1 { 0 } else { replica })
    }

    /// Value of a step vector, seconds.
    fn value(&self, values: &[f32], replica: usize, sample: usize) -> f32 {
        if values.len() > self.replicas() {
            values[replica * self.model.steps.len() + self.rows[sample]]
        } else {
            values.get(replica).copied().unwrap_or(0.0)
        }
    }

    /// When an operation's group, or itself, starts: `[sample * replicas + replica]`.
    fn begin(&self, op: usize) -> Vec<f64> {
        let (replicas, count) = (self.replicas(), self.rows.len());
        let mut out = vec![f64::NEG_INFINITY; replicas * count];
        let mut raise = |op: usize| {
            for r in 0..replicas {
                for (k, &v) in self.lane(self.ready[op], r).iter().enumerate() {
                    let slot = &mut out[k * replicas + r];
                    *slot = slot.max(f64::from(v));
                }
            }
        };
        match self.graph.group_of(OpId(op as u32)) {
            None => raise(op),
            Some(group) => {
                let group = &self.graph.groups()[group.0 as usize];
                for m in &group.members {
                    raise(m.0 as usize);
                }
                synchronise(&mut out, self.graph.replicas(), group.sync);
            }
        }
        out
    }

    /// Own work, `[sample * replicas + replica]`, seconds.
    fn work(&self, op: usize) -> Vec<f64> {
        let replicas = self.replicas();
        let mut out = self.begin(op);
        for r in 0..replicas {
            for (k, &v) in self.lane(self.end[op], r).iter().enumerate() {
                let slot = &mut out[k * replicas + r];
                *slot = f64::from(v) - *slot;
            }
        }
        out
    }

    /// Own work of one replica, without what other replicas do; right for an operation whose group
    /// does not wait for them.
    fn own_work(&self, op: usize, replica: usize, into: &mut [f32]) {
        let end = self.lane(self.end[op], replica);
        let starts: Vec<&[f32]> = match self.graph.group_of(OpId(op as u32)) {
            None => vec![self.lane(self.ready[op], replica)],
            Some(group) => {
                let members = &self.graph.groups()[group.0 as usize].members;
                members.iter().map(|m| self.lane(self.ready[m.0 as usize], replica)).collect()
            }
        };
        for (k, slot) in into.iter_mut().enumerate() {
            let start = starts.iter().map(|s| s[k]).fold(f32::NEG_INFINITY, f32::max);
            *slot = end[k] - start;
        }
    }

    fn fill(&self, row: Row, replica: usize, tails: &Tails, into: &mut [f32]) {
        let replicas = self.replicas();
        let tail = |of: &[Option<Vec<f64>>], op: u32, into: &mut [f32]| {
            for (k, slot) in into.iter_mut().enumerate() {
                let value = of[op as usize].as_ref().map(|t| t[k * replicas + replica]);
                *slot = value.unwrap_or(f64::NEG_INFINITY) as f32;
            }
        };
        match row {
            Row::Work(op) => self.own_work(op as usize, replica, into),
            Row::Delay(i) => {
                let values = &self.model.launch_delay[i].values_s;
                for (k, slot) in into.iter_mut().enumerate() {
                    *slot = self.value(values, replica, k);
                }
            }
            Row::Lag(i) => {
                let values = &self.model.implied[i].lag_s;
                for (k, slot) in into.iter_mut().enumerate() {
                    *slot = values[replica * self.model.steps.len() + self.rows[k]];
                }
            }
            Row::Ready(op) => into.copy_from_slice(self.lane(self.ready[op as usize], replica)),
            Row::End(op) => into.copy_from_slice(self.lane(self.end[op as usize], replica)),
            Row::TailOfReady(op) => tail(&tails.ready, op, into),
            Row::TailOfEnd(op) => tail(&tails.end, op, into),
        }
    }

    /// Longest times from what is after a meeting of replicas to the step's end.
    fn tails(&self) -> Tails {
        let n = self.graph.ops().len();
        let width = self.replicas() * self.rows.len();
        let mut tails = Tails { ready: vec![None; n], end: vec![None; n] };
        for sink in self.graph.sinks() {
            let at = sink.0 as usize;
            if self.regions.end[at] == Part::After {
                tails.end[at] = Some(vec![0.0; width]);
            }
        }
        let none = || vec![f64::NEG_INFINITY; width];
        for event in self.graph.order().iter().rev() {
            match *event {
                Event::Group(id) => {
                    let group = &self.graph.groups()[id.0 as usize];
                    let members = group.members.iter().map(|m| m.0 as usize);
                    if members.clone().any(|m| self.regions.end[m] != Part::After) {
                        continue;
                    }
                    let mut all = none();
                    for m in members.clone() {
                        self.raise_through(m, &tails, &mut all);
                    }
                    synchronise(&mut all, self.graph.replicas(), group.sync);
                    for m in members {
                        tails.ready[m] = Some(all.clone());
                    }
                }
                Event::Start(id) => {
                    let op = id.0 as usize;
                    if self.regions.ready[op] != Part::After {
                        continue;
                    }
                    if self.graph.group_of(id).is_none() {
                        let mut own = none();
                        self.raise_through(op, &tails, &mut own);
                        tails.ready[op] = Some(own);
                    }
                    self.pass_back(op, &mut tails);
                }
            }
        }
        tails
    }

    /// `into = max(into, work + tail of the end)`.
    fn raise_through(&self, op: usize, tails: &Tails, into: &mut [f64]) {
        let Some(end) = &tails.end[op] else { return };
        for ((slot, work), tail) in into.iter_mut().zip(self.work(op)).zip(end) {
            *slot = slot.max(work + tail);
        }
    }

    /// What an operation waits for learns how long it is from its end through the operation.
    fn pass_back(&self, op: usize, tails: &mut Tails) {
        let replicas = self.replicas();
        let Some(ready) = tails.ready[op].take() else { return };
        let mut raise = |on: usize, value: &dyn Fn(usize, usize) -> f32| {
            let slot = tails.end[on].get_or_insert_with(|| vec![f64::NEG_INFINITY; ready.len()]);
            for (i, (slot, tail)) in slot.iter_mut().zip(&ready).enumerate() {
                *slot = slot.max(f64::from(value(i % replicas, i / replicas)) + tail);
            }
        };
        for &on in &self.regions.deps[op] {
            let delay = self.delay_of[op].map(|i| &self.model.launch_delay[i].values_s);
            raise(on as usize, &|r, k| delay.map_or(0.0, |v| self.value(v, r, k)));
        }
        for &i in self.regions.implied[op].iter().filter(|_| self.delays) {
            let dependency = &self.model.implied[i];
            let steps = self.model.steps.len();
            raise(dependency.on as usize, &|r, k| dependency.lag_s[r * steps + self.rows[k]]);
        }
        tails.ready[op] = Some(ready);
    }
}
