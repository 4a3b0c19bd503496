//! Clusters one might be given: persistent speeds of every cell, and which replica is slow.

use prism_graph::{Event, PlannedStep, StepGraph};
use prism_stats::counter::{Key, Stream};
use rayon::prelude::*;

use super::PlannedError;
use super::laws::CellLaw;

/// Persistent factors of the cells of one cluster.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cells {
    /// `[stage][replica]`.
    pub factors: Vec<f32>,
    /// Noise-free time of each replica, seconds.
    pub pilot_s: Vec<f64>,
    /// Replicas, slowest first.
    pub order: Vec<u32>,
}

impl Cells {
    /// The `index`-th cluster of a seed.
    pub(crate) fn draw(
        step: &PlannedStep,
        law: &CellLaw,
        replicas: u32,
        seed: u64,
        index: u64,
    ) -> Result<Cells, PlannedError> {
        let table = law.table()?;
        let stages = step.planned.graph.stages();
        let mut factors = Vec::with_capacity(usize::from(stages) * replicas as usize);
        for stage in 0..stages {
            let key = Key::new("cluster").with(index).with(u64::from(stage));
            let stream = Stream::new(seed, key);
            factors.extend((0..replicas).map(|r| table.value(stream.replica(r).word(0))));
        }
        let pilot_s = pilot(step, &factors, replicas as usize);
        let mut order: Vec<u32> = (0..replicas).collect();
        order.sort_by(|&a, &b| pilot_s[b as usize].total_cmp(&pilot_s[a as usize]).then(a.cmp(&b)));
        Ok(Cells { factors, pilot_s, order })
    }

    /// The middle one of several clusters, by the noise-free time of their slowest replica.
    pub(crate) fn middle(
        step: &PlannedStep,
        law: &CellLaw,
        replicas: u32,
        seed: u64,
        clusters: u32,
    ) -> Result<Cells, PlannedError> {
        let draw = |i| Cells::draw(step, law, replicas, seed, i);
        let count = u64::from(clusters.max(1));
        let mut all = (0..count).into_par_iter().map(draw).collect::<Result<Vec<_>, _>>()?;
        all.sort_by(|a, b| a.slowest_s().total_cmp(&b.slowest_s()));
        Ok(all.swap_remove(((count as f64 - 1.0) * 0.5).round() as usize))
    }

    /// Noise-free time of the slowest replica, seconds.
    pub(crate) fn slowest_s(&self) -> f64 {
        self.order.first().map_or(f64::NAN, |&r| self.pilot_s[r as usize])
    }

    /// Factors of some replicas, `[stage][member]`.
    pub(crate) fn of(&self, members: &[u32]) -> Vec<f32> {
        let n = self.pilot_s.len();
        self.factors
            .chunks(n.max(1))
            .flat_map(|stage| members.iter().map(|&r| stage[r as usize]))
            .collect()
    }
}

/// Time of each replica alone, every operation at its mean times its cell's factor (compute only);
/// seconds. Replicas are lanes.
fn pilot(step: &PlannedStep, factors: &[f32], replicas: usize) -> Vec<f64> {
    let graph: &StepGraph = &step.planned.graph;
    let mut ends: Vec<Vec<f32>> = vec![Vec::new(); graph.ops().len()];
    let mut uses = vec![0_u32; graph.ops().len()];
    for (id, _) in graph.iter() {
        for dep in graph.deps(id) {
            uses[dep.0 as usize] += 1;
        }
    }
    for sink in graph.sinks() {
        uses[sink.0 as usize] += 1;
    }
    let latest = |op, ends: &mut Vec<Vec<f32>>, uses: &mut Vec<u32>| {
        let mut start = vec![0.0_f32; replicas];
        for dep in graph.deps(op) {
            let at = dep.0 as usize;
            start.iter_mut().zip(&ends[at]).for_each(|(s, e)| *s = s.max(*e));
            uses[at] -= 1;
            if uses[at] == 0 {
                ends[at] = Vec::new();
            }
        }
        start
    };
    let run = |op: prism_graph::OpId, mut start: Vec<f32>| {
        let info = &graph.ops()[op.0 as usize];
        let work = step.work_s[op.0 as usize] as f32;
        if info.kind.is_microbatch_compute() {
            let own = &factors[usize::from(info.stage) * replicas..][..replicas];
            start.iter_mut().zip(own).for_each(|(s, f)| *s += work * f);
        } else {
            start.iter_mut().for_each(|s| *s += work);
        }
        start
    };
    let mut ready: Vec<Vec<f32>> = vec![Vec::new(); graph.ops().len()];
    for &event in graph.order() {
        match event {
            Event::Start(op) => {
                let start = latest(op, &mut ends, &mut uses);
                if graph.group_of(op).is_none() {
                    ends[op.0 as usize] = run(op, start);
                } else {
                    ready[op.0 as usize] = start;
                }
            }
            Event::Group(id) => {
                let members = &graph.groups()[id.0 as usize].members;
                let mut together = vec![0.0_f32; replicas];
                for m in members {
                    let own = std::mem::take(&mut ready[m.0 as usize]);
                    together.iter_mut().zip(&own).for_each(|(t, s)| *t = t.max(*s));
                }
                for m in members {
                    ends[m.0 as usize] = run(*m, together.clone());
                }
            }
        }
    }
    let mut last = vec![0.0_f64; replicas];
    for sink in graph.sinks() {
        for (l, e) in last.iter_mut().zip(&ends[sink.0 as usize]) {
            *l = l.max(f64::from(*e));
        }
    }
    last
}
