//! From what a file says to what it means.

use super::document::Document;
use super::nearest::{listed, nearest};
use super::raw::RawJob;
use super::violation::Violation;
use super::{
    JOB_SCHEMA, ReadJob, ReadOptions, RunDefaults, cluster, model, plan, run, variability,
};
use crate::rules::{BrokenRule, nearest_plans};
use crate::{Job, Plan, Training};

/// What is wrong, the possible plans nearest to an impossible one, and whether the file says a job.
type Refusal = (Vec<Violation>, Vec<Plan>, bool);

/// Reads a job file, or says all that is wrong with it.
pub(super) fn read(text: &str, options: &ReadOptions) -> Result<ReadJob, Refusal> {
    let mut document = Document::new(text, &options.set);
    if !document.violations.is_empty() {
        return Err((document.violations, Vec::new(), false));
    }
    let raw = document.raw();
    let mut r = Resolver { document };
    r.schema(&raw);
    let model = model::resolve(&mut r, &raw.model.unwrap_or_default(), &options.folder);
    let training = training(&mut r, raw.training.unwrap_or_default());
    let raw_plan = raw.parallelism.unwrap_or_default();
    let raw_cluster = raw.cluster.unwrap_or_default();
    let gpus = cluster::gpus(&mut r, &raw_cluster);
    let plan = plan::resolve(&mut r, &raw_plan, gpus);
    let cluster = cluster::resolve(&mut r, raw_cluster, gpus, plan.gpus());
    let variability = variability::resolve(&mut r, &raw.variability.unwrap_or_default());
    let name = raw.name.unwrap_or_else(|| model.name.clone());
    let mut job = Job { name, model, training, plan, cluster, variability, run: None };
    let defaults = RunDefaults {
        gpus: Some(job.gpus()),
        gpus_per_node: Some(job.cluster.gpus_per_node),
        tokens_per_step: Some(job.tokens()),
    };
    job.run = raw.run.map(|raw| run::resolve(&mut r, &raw, &defaults));
    r.finish(job)
}

fn training(r: &mut Resolver, raw: super::raw::RawTraining) -> Training {
    let micro_batch_size = raw.micro_batch_size.unwrap_or(1);
    Training {
        seq_len: r.need(raw.seq_len, "training.seq_len", "tokens of a sequence"),
        global_batch_size: r.need(
            raw.global_batch_size,
            "training.global_batch_size",
            "sequences of a step",
        ),
        micro_batch_size,
        sequences: raw.sequences.map(|s| crate::SequenceLengths {
            median: r.need(s.median, "training.sequences.median", "tokens"),
            sigma: r.need(s.sigma, "training.sequences.sigma", "s.d. of the log length"),
            packed: s.packed.unwrap_or(true),
        }),
    }
}

/// The file on its way to a job, with what is wrong so far.
pub(super) struct Resolver<'t> {
    pub(super) document: Document<'t>,
}

impl Resolver<'_> {
    fn schema(&mut self, raw: &RawJob) {
        if let Some(schema) = raw.schema.as_deref().filter(|s| *s != JOB_SCHEMA) {
            let message = format!("schema `{schema}` is none that this version reads");
            self.wrong("schema", "schema", message, Some(format!("write `{JOB_SCHEMA}`")));
        }
    }

    /// Records a violation at a key, and that nothing follows from its value.
    pub(super) fn wrong(
        &mut self,
        key: &str,
        rule: &'static str,
        message: String,
        hint: Option<String>,
    ) {
        if !self.document.is_broken(key) {
            let span = self.document.locate(key);
            self.document.push(key, rule, span, message, hint);
            self.document.broken.push(key.to_owned());
        }
    }

    /// A key's value; without it a violation and a placeholder on which no rule is tried.
    pub(super) fn need<T: Placeholder>(&mut self, value: Option<T>, key: &str, what: &str) -> T {
        value.unwrap_or_else(|| {
            let last = key.rsplit('.').next().unwrap_or(key);
            let hint = Some(format!("write `{last} = ...`, {what}"));
            self.wrong(key, "missing", format!("`{key}` is missing"), hint);
            T::placeholder()
        })
    }

    /// A share: a number of 0 to 1, or without 0.
    pub(super) fn share(&mut self, value: f64, key: &str, zero: bool) -> f64 {
        let fits = value <= 1.0 && (value > 0.0 || (zero && value == 0.0));
        if !fits {
            let bounds = if zero { "from 0 to 1" } else { "above 0 and up to 1" };
            let hint = Some("0.05 is 5 %".to_owned());
            self.wrong(key, "share", format!("`{key}` is a share {bounds}, not {value}"), hint);
        }
        value
    }

    /// A finite number of at least `least`.
    pub(super) fn at_least(&mut self, value: f64, key: &str, least: f64) -> f64 {
        if !(value.is_finite() && value >= least) {
            let message = format!("`{key}` must be a number of at least {least}, not {value}");
            self.wrong(key, "range", message, None);
        }
        value
    }

    /// A preset by name, or a violation that names the nearest.
    pub(super) fn preset<T>(
        &mut self,
        name: Option<&str>,
        key: &str,
        find: impl Fn(&str) -> Option<T>,
        known: &[&str],
    ) -> Option<T> {
        let name = name?;
        let found = find(name);
        if found.is_none() {
            let near = nearest(name, known);
            let hint = if near.is_empty() {
                format!("use one of {}", listed(known))
            } else {
                format!("did you mean {}?", listed(&near))
            };
            let message = format!("`{key}`: there is no preset `{name}`");
            self.wrong(key, "preset", message, Some(hint));
        }
        found
    }

    /// Marks a key as one from which nothing follows.
    pub(super) fn distrust(&mut self, key: &str) {
        self.document.broken.push(key.to_owned());
    }

    /// Whether a key was refused.
    pub(super) fn distrusts(&self, key: &str) -> bool {
        self.document.is_broken(key)
    }

    fn finish(mut self, job: Job) -> Result<ReadJob, Refusal> {
        // A remainder that does not divide is a fault of the plan: the rest of the job is whole.
        let whole = self.document.violations.iter().all(|v| v.rule == "shard-rest");
        let broken = job.check();
        for broken in &broken {
            let uncertain =
                self.distrusts(broken.key) || broken.others.iter().any(|key| self.distrusts(key));
            if !uncertain {
                let violation = self.at(broken);
                self.document.violations.push(violation);
            }
        }
        if self.document.violations.is_empty() {
            let warnings = job.warnings().iter().map(|w| self.at(w)).collect();
            return Ok(ReadJob { job, warnings });
        }
        let of_plan = broken.iter().all(|b| !b.key.starts_with("model."));
        let plans = match (job.cluster.gpus, broken.is_empty()) {
            _ if !whole || !of_plan => Vec::new(),
            (Some(gpus), _) => nearest_plans(&job, gpus),
            (None, false) => nearest_plans(&job, job.gpus()),
            (None, true) => Vec::new(),
        };
        let mut all = self.document.violations;
        all.sort_by_key(|v| (v.span.is_none(), v.span.as_ref().map(|s| s.start)));
        Err((all, plans, whole))
    }

    /// A broken rule at its key in the file; at the first other key that the file has where it lacks
    /// that one.
    fn at(&self, broken: &BrokenRule) -> Violation {
        let keys = std::iter::once(&broken.key).chain(broken.others);
        let present = keys.clone().find(|k| self.document.has(k)).unwrap_or(&broken.key);
        let span = self.document.locate(present);
        let hint = Some(broken.hint.clone()).filter(|h| !h.is_empty());
        self.document.violation(broken.key, broken.rule, span, broken.message.clone(), hint)
    }
}

/// A value of no meaning that takes the place of a missing one.
pub(super) trait Placeholder {
    fn placeholder() -> Self;
}

impl Placeholder for u32 {
    fn placeholder() -> Self {
        1
    }
}

impl Placeholder for u64 {
    fn placeholder() -> Self {
        1
    }
}

impl Placeholder for f64 {
    fn placeholder() -> Self {
        1.0
    }
}

impl Placeholder for String {
    fn placeholder() -> Self {
        String::new()
    }
}
