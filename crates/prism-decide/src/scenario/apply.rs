//! Edits become a changed model and adjustments.

use std::collections::{BTreeMap, BTreeSet};

use prism_engine::predict::{Adjustments, Burst, Means, Scope, Source, damp, means};
use prism_graph::{Op, OpId, ReplicaSync, evaluate};
use prism_model::{KernelClass, OpKind, Signature};

use super::{Changed, Donors, Edit, Job, Scenario, ScenarioError, swap};
use crate::explain::sources;
use crate::select::Selection;

/// Applies a scenario's edits in order.
///
/// # Errors
/// [`ScenarioError::Apply`] if an edit selects nothing, names what is not there, or makes no sense on
/// this job.
pub fn apply(
    job: &Job<'_>,
    scenario: &Scenario,
    donors: &Donors<'_>,
) -> Result<Changed, ScenarioError> {
    let mut applying = Applying {
        job,
        donors,
        changed: Changed {
            model: job.model.clone(),
            adjust: Adjustments::default(),
            notes: Vec::new(),
        },
    };
    for edit in &scenario.edits {
        applying
            .edit(edit)
            .map_err(|what| ScenarioError::Apply { edit: edit.to_string(), what })?;
    }
    Ok(applying.changed)
}

struct Applying<'a> {
    job: &'a Job<'a>,
    donors: &'a Donors<'a>,
    changed: Changed,
}

impl Applying<'_> {
    fn edit(&mut self, edit: &Edit) -> Result<(), String> {
        if let Some(on) = edit.selection() {
            let model = self.job.model;
            on.check(self.job.graph, model.microbatches, &model.steps, &self.job.layout)?;
        }
        match edit {
            Edit::Scale { factor, on } => {
                self.each(on, |_| true, |adjust, op, scope| adjust.scale_work(op, scope, *factor))
            }
            Edit::Set { work_s, on } => {
                let values = vec![*work_s; self.replicas()];
                self.each(on, |_| true, |adjust, op, scope| adjust.set_work(op, scope, &values))
            }
            Edit::Delay { factor, on } => {
                self.each(on, |_| true, |adjust, op, scope| adjust.scale_delay(op, scope, *factor))
            }
            Edit::Spread { factor, effect: None, on } => {
                self.spread(*factor, on);
                Ok(())
            }
            Edit::Spread { factor, effect: Some(effect), on } => self.effect(*factor, *effect, on),
            Edit::Ideal { on } => {
                self.ideal(on);
                Ok(())
            }
            Edit::Heal { on } => self.heal(on),
            Edit::SlowNode { factor, on } => {
                let compute = |op: &Op| op.kind.is_microbatch_compute();
                self.each(on, compute, |adjust, op, scope| adjust.scale_work(op, scope, *factor))
            }
            Edit::SlowLink { factor, on } => self.slow_link(*factor, on),
            Edit::Congestion { factor, probability, on } => {
                let ops: BTreeSet<OpId> =
                    self.transfers(on).into_iter().map(|(op, _)| op).collect();
                if ops.is_empty() {
                    return Err("no transfer is selected".to_owned());
                }
                no_steps(on, "a regime has its own share of steps")?;
                let name = format!("congestion {on}");
                self.changed.adjust.add_burst(Burst {
                    probability: *probability,
                    factor: *factor,
                    ops,
                    name,
                });
                Ok(())
            }
            Edit::Rebalance => self.rebalance(),
            Edit::Repack { over } => {
                let shared = self.changed.model.compute.microbatch_shared
                    || self.changed.model.compute.microbatch_law.is_some();
                if !shared {
                    return Err("the microbatches have no effect of their own (it was dropped in \
                                calibration), so there is nothing to even out"
                        .to_owned());
                }
                self.changed.adjust.repack(*over);
                Ok(())
            }
            Edit::Swap { profile, from, on } => {
                let Some(donor) = self.donors.get(profile) else {
                    return Err(format!("there is no profile `{profile}`"));
                };
                no_workers(on, "a signature is shared by all replicas")?;
                no_steps(on, "a signature's durations belong to no step")?;
                let layout = self.job.layout;
                // A donor's signature is for operations of its kind.
                let same_kind =
                    |s: &Signature| on.kind.is_some() || from.is_none_or(|f| f.kind == s.kind);
                let selected = |s: &Signature| on.has_signature(s, &layout) && same_kind(s);
                swap::swap(self.job.graph, &mut self.changed.model, donor, *from, selected)
            }
        }
    }

    fn replicas(&self) -> usize {
        self.job.model.replicas as usize
    }

    fn means(&self) -> Means {
        means(self.job.graph, &self.changed.model)
    }

    /// Selected operations that are recorded, each with the replicas and steps it is selected on.
    fn selected(&self, on: &Selection) -> Vec<(OpId, Scope)> {
        let (model, layout) = (self.job.model, &self.job.layout);
        let steps = on.steps(&model.steps);
        let mut by_stage: BTreeMap<u16, Vec<bool>> = BTreeMap::new();
        let mut out = Vec::new();
        for (id, op) in self.job.graph.iter() {
            if op.kind == OpKind::Barrier || !on.has_op(op, model.microbatches, layout) {
                continue;
            }
            let replicas = by_stage.entry(op.stage).or_insert_with(|| {
                (0..model.replicas).map(|r| on.has_worker(r, op.stage, layout)).collect()
            });
            if replicas.contains(&true) {
                out.push((id, Scope { replicas: replicas.clone(), steps: steps.clone() }));
            }
        }
        out
    }

    /// Does the same to every selected operation.
    fn each(
        &mut self,
        on: &Selection,
        also: impl Fn(&Op) -> bool,
        change: impl Fn(&mut Adjustments, OpId, &Scope),
    ) -> Result<(), String> {
        let mut any = false;
        for (op, scope) in self.selected(on) {
            if also(&self.job.graph.ops()[op.0 as usize]) {
                change(&mut self.changed.adjust, op, &scope);
                any = true;
            }
        }
        if any { Ok(()) } else { Err("it applies to none of the selected operations".to_owned()) }
    }

    /// Deviations of each operation's work from its mean, times a factor.
    fn spread(&mut self, factor: f64, on: &Selection) {
        let (means, replicas) = (self.means(), self.replicas());
        for (op, scope) in self.selected(on) {
            let at = op.0 as usize * replicas;
            let mean = self.changed.adjust.mean_work(op, &means.work_s[at..at + replicas]);
            self.changed.adjust.shrink_work(op, &scope, factor, &mean);
        }
    }

    fn effect(&mut self, factor: f64, effect: Source, on: &Selection) -> Result<(), String> {
        no_steps(on, "an effect's spread is over all steps")?;
        if on.microbatch.is_some() {
            return Err("an effect belongs to a signature, not to one microbatch: leave out \
                        `microbatch=`"
                .to_owned());
        }
        if effect == Source::Congestion && *on != Selection::default() {
            return Err("congestion is shared by all transfers of a step: leave out the selection"
                .to_owned());
        }
        if effect == Source::Worker && (on.dp.is_some() || on.rank.is_some() || on.node.is_some()) {
            return Err(
                "the worker effect is the difference between replicas: use `heal` for single \
                        workers"
                    .to_owned(),
            );
        }
        if !sources(self.job.graph, &self.changed.model).contains(&effect) {
            self.changed.notes.push(format!(
                "the model has no {effect} effect to change: it was dropped in calibration, or nothing \
                 of it varies"
            ));
        }
        let layout = self.job.layout;
        let damped = damp(self.job.graph, &self.changed.model, |source, signature, r| {
            let here = source == effect
                && on.has_signature(signature, &layout)
                && on.has_worker(r as u32, signature.stage, &layout);
            if here { factor } else { 1.0 }
        });
        self.changed.model = damped.model;
        self.changed.adjust.multiply_spread(&damped.adjust);
        Ok(())
    }

    /// One time a kind: the mean of compute, the median of the other operations' means.
    fn ideal(&mut self, on: &Selection) {
        let (means, replicas) = (self.means(), self.replicas());
        let mut by_kind: BTreeMap<OpKind, Vec<f64>> = BTreeMap::new();
        for (id, op) in self.job.graph.iter() {
            let at = id.0 as usize * replicas;
            let work = self.changed.adjust.mean_work(id, &means.work_s[at..at + replicas]);
            by_kind.entry(op.kind).or_default().extend(work);
        }
        let ideal: BTreeMap<OpKind, f64> = by_kind
            .into_iter()
            .map(|(kind, values)| {
                let averaged = matches!(
                    kind.class(),
                    KernelClass::Compute | KernelClass::Memory | KernelClass::Host
                );
                let mean = values.iter().sum::<f64>() / values.len() as f64;
                let one = if averaged {
                    mean
                } else {
                    prism_stats::robust::median(&values).unwrap_or(mean)
                };
                (kind, one)
            })
            .collect();
        for (op, scope) in self.selected(on) {
            let kind = self.job.graph.ops()[op.0 as usize].kind;
            let value = vec![ideal.get(&kind).copied().unwrap_or(0.0); replicas];
            self.changed.adjust.set_work(op, &scope, &value);
        }
    }

    /// Selected workers take on the median worker effect, and spread, of the others of their stage.
    fn heal(&mut self, on: &Selection) -> Result<(), String> {
        no_steps(on, "a worker effect holds in all steps")?;
        if on.kind.is_some() || on.microbatch.is_some() {
            return Err(
                "a worker is healed whole: select by `dp`, `stage`, `rank` or `node`".to_owned()
            );
        }
        let (replicas, layout) = (self.replicas(), self.job.layout);
        let compute = &mut self.changed.model.compute;
        if compute.worker_log.is_empty() {
            return Err(
                "the workers do not differ for good (worker effect dropped in calibration), \
                        so there is nothing to heal"
                    .to_owned(),
            );
        }
        for (c, signature) in compute.signatures.iter().enumerate() {
            let sick: Vec<bool> = (0..replicas)
                .map(|r| on.has_worker(r as u32, signature.signature.stage, &layout))
                .collect();
            if !sick.contains(&true) {
                continue;
            }
            for values in [&mut compute.worker_log, &mut compute.worker_spread] {
                if values.is_empty() {
                    continue;
                }
                let lane = &mut values[c * replicas..][..replicas];
                let others: Vec<f64> =
                    lane.iter().zip(&sick).filter(|(_, s)| !**s).map(|(v, _)| *v).collect();
                let median = prism_stats::robust::median(&others).map_err(|_| {
                    format!(
                        "all workers of stage {} are selected, so none is left to take as healthy: \
                         select some, such as `heal rank=12`",
                        signature.signature.stage
                    )
                })?;
                for (v, _) in lane.iter_mut().zip(&sick).filter(|(_, s)| **s) {
                    *v = median;
                }
            }
        }
        Ok(())
    }

    /// Selected transfers with all their partners.
    fn transfers(&self, on: &Selection) -> Vec<(OpId, Scope)> {
        let (graph, replicas) = (self.job.graph, self.replicas());
        let is_transfer = |id: OpId| {
            matches!(
                graph.ops()[id.0 as usize].kind.class(),
                KernelClass::PointToPoint | KernelClass::Collective
            )
        };
        let mut touched: BTreeMap<OpId, Vec<bool>> = BTreeMap::new();
        for (op, scope) in self.selected(on).into_iter().filter(|(op, _)| is_transfer(*op)) {
            let Some(group) = graph.group_of(op) else {
                merge(touched.entry(op).or_default(), &scope.replicas);
                continue;
            };
            let group = &graph.groups()[group.0 as usize];
            let block = match group.sync {
                ReplicaSync::None => 1,
                ReplicaSync::All => replicas,
                ReplicaSync::Blocks(b) => b as usize,
            };
            let together: Vec<bool> = scope
                .replicas
                .chunks(block.max(1))
                .flat_map(|c| vec![c.contains(&true); c.len()])
                .collect();
            for &member in group.members.iter().filter(|m| is_transfer(**m)) {
                merge(touched.entry(member).or_default(), &together);
            }
        }
        let steps = on.steps(&self.job.model.steps);
        touched
            .into_iter()
            .map(|(op, replicas)| (op, Scope { replicas, steps: steps.clone() }))
            .collect()
    }

    fn slow_link(&mut self, factor: f64, on: &Selection) -> Result<(), String> {
        let touched = self.transfers(on);
        if touched.is_empty() {
            return Err("no transfer is selected".to_owned());
        }
        for (op, scope) in touched {
            self.changed.adjust.scale_work(op, &scope, factor);
        }
        Ok(())
    }

    /// Sizes of microbatches by replica so that all replicas end their compute together.
    fn rebalance(&mut self) -> Result<(), String> {
        let (graph, replicas) = (self.job.graph, self.replicas());
        if replicas < 2 {
            return Err("there is one replica, so there is nothing to balance".to_owned());
        }
        let moves = |op: &Op| op.kind.is_microbatch_compute() || op.kind.is_p2p();
        let means = self.means();
        let mut base = means.work_s;
        for (id, _) in graph.iter() {
            let lane = &mut base[id.0 as usize * replicas..][..replicas];
            let mean = self.changed.adjust.mean_work(id, lane);
            lane.copy_from_slice(&mean);
        }
        let mut size = vec![1.0; replicas];
        for _ in 0..8 {
            let mut work = base.clone();
            for (id, _) in graph.iter().filter(|(_, op)| moves(op)) {
                let lane = &mut work[id.0 as usize * replicas..][..replicas];
                lane.iter_mut().zip(&size).for_each(|(v, s)| *v *= s);
            }
            let timeline = evaluate(graph, 1, &work, None).map_err(|e| e.to_string())?;
            let mut finish = vec![0.0_f64; replicas];
            for (id, _) in graph.iter().filter(|(_, op)| op.kind.is_microbatch_compute()) {
                for (f, end) in finish.iter_mut().zip(timeline.end(id)) {
                    *f = f.max(*end);
                }
            }
            size.iter_mut().zip(&finish).for_each(|(s, f)| *s /= f);
            let mean = size.iter().sum::<f64>() / replicas as f64;
            for s in &mut size {
                *s /= mean;
            }
        }
        for (id, _) in graph.iter().filter(|(_, op)| moves(op)) {
            for (r, s) in size.iter().enumerate() {
                let mut scope = Scope::all(replicas);
                scope.replicas.iter_mut().enumerate().for_each(|(i, on)| *on = i == r);
                self.changed.adjust.scale_work(id, &scope, *s);
            }
        }
        let (least, most) =
            size.iter().fold((f64::INFINITY, 0.0_f64), |(a, b), s| (a.min(*s), b.max(*s)));
        self.changed.notes.push(format!(
            "rebalance: microbatch sizes become {:.1} to {:.1} % of the even share; compute and \
             point-to-point are taken to be proportional to size, and sizes to be divisible",
            100.0 * least,
            100.0 * most
        ));
        Ok(())
    }
}

fn merge(target: &mut Vec<bool>, other: &[bool]) {
    target.resize(other.len(), false);
    target.iter_mut().zip(other).for_each(|(t, o)| *t |= o);
}

fn no_steps(on: &Selection, why: &str) -> Result<(), String> {
    if on.step.is_none() { Ok(()) } else { Err(format!("{why}: leave out `step=`")) }
}

fn no_workers(on: &Selection, why: &str) -> Result<(), String> {
    let any = on.dp.is_some() || on.rank.is_some() || on.node.is_some() || on.microbatch.is_some();
    if any { Err(format!("{why}: select by `kind` and `stage` only")) } else { Ok(()) }
}
