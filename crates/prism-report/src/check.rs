//! Whether a planned job is possible and fits, and where its noise-free step goes.

use prism_decide::check::{Exposed, JobCheck, StageCheck, Work};
use prism_engine::profile::SourceFile;
use prism_graph::MemoryKind;
use prism_job::Job;
use serde::{Deserialize, Serialize};

use crate::csv_table::number;
use crate::number::{GIB, Scale, big, gib, percent};
use crate::{Block, Document, JobSummary, ReportError, Table, Throughput, Tone, csv_text};

/// Version of the output.
pub const CHECK_SCHEMA: &str = "prism.check/1";

/// What a check of a job file finds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct CheckOutput {
    /// [`CHECK_SCHEMA`].
    pub schema: String,
    /// Files read.
    pub sources: Vec<SourceFile>,
    /// Keys that replaced the file's, as `key=value`.
    pub set: Vec<String>,
    /// Whether the file says a job, and the job breaks no rule.
    pub possible: bool,
    /// Whether the job is possible and fits the GPUs' memory.
    pub fits: bool,
    /// What is wrong with the file or its job; empty where it is possible.
    pub violations: Vec<ViolationFile>,
    /// Possible plans near an impossible one.
    pub nearest_plans: Vec<String>,
    /// The job; null where it is impossible, as is all below.
    pub job: Option<JobSummary>,
    /// What the noise-free step means.
    pub noise_free: Option<Throughput>,
    /// FLOP of a step that the model needs, attention counted causal.
    pub model_flops: Option<f64>,
    /// Where the noise-free step goes.
    pub step: Option<StepFile>,
    /// Stage by stage.
    pub stages: Vec<StageFile>,
    /// What the reader must know.
    pub warnings: Vec<String>,
}

/// One thing wrong with a job file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ViolationFile {
    /// Dotted key concerned; empty where the text is no TOML.
    pub key: String,
    /// Code of the rule, such as `tp-heads`.
    pub rule: String,
    /// Line in the file, from 1; null where a `--set` argument is concerned.
    pub line: Option<usize>,
    /// Column in characters, from 1.
    pub column: Option<usize>,
    /// The `--set` argument concerned.
    pub set: Option<String>,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub hint: Option<String>,
}

/// Where a noise-free step goes. `work` (its parts but `recompute_s`), `bubble_s` and
/// `communication_s` add up to the step. Seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct StepFile {
    /// The busiest stage's own work.
    pub work: Work,
    /// The step without any communication less the busiest stage's own work.
    pub bubble_s: f64,
    /// The step less the step without any communication.
    pub communication_s: f64,
    /// What each kind of communication costs by itself; one may hide behind another.
    pub exposed: Vec<Exposed>,
}

/// A pipeline stage. Bytes are of one GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct StageFile {
    /// Pipeline stage.
    pub stage: u16,
    /// Time in passes, with the communication inside them, and in the optimizer, seconds.
    pub busy_s: f64,
    /// Share of the step in which it waits.
    pub idle: f64,
    /// Parameters that a GPU works with, before sharding.
    pub parameters: f64,
    /// Microbatches in flight on each of its chunks.
    pub in_flight: Vec<u32>,
    /// Memory by what it is used for.
    pub memory: Vec<MemoryPart>,
    /// All of it, bytes.
    pub memory_bytes: f64,
    /// The GPU's memory, bytes.
    pub gpu_bytes: f64,
    /// Whether it fits.
    pub fits: bool,
}

/// A part of a GPU's memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct MemoryPart {
    /// What it is used for.
    pub kind: MemoryKind,
    /// Bytes.
    pub bytes: f64,
}

impl From<&StageCheck> for StageFile {
    fn from(s: &StageCheck) -> StageFile {
        let memory = s.memory.parts.iter().map(|&(kind, bytes)| MemoryPart { kind, bytes });
        StageFile {
            stage: s.memory.stage,
            busy_s: s.busy_s,
            idle: s.idle,
            parameters: s.memory.parameters,
            in_flight: s.memory.in_flight.clone(),
            memory: memory.collect(),
            memory_bytes: s.memory.total_bytes(),
            gpu_bytes: s.memory.gpu_bytes,
            fits: s.memory.fits(),
        }
    }
}

impl CheckOutput {
    /// Of a file that gives no job.
    pub fn impossible(violations: Vec<ViolationFile>, nearest_plans: Vec<String>) -> CheckOutput {
        CheckOutput {
            schema: CHECK_SCHEMA.to_owned(),
            sources: Vec::new(),
            set: Vec::new(),
            possible: false,
            fits: false,
            violations,
            nearest_plans,
            job: None,
            noise_free: None,
            model_flops: None,
            step: None,
            stages: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// Of a possible job.
    pub fn possible(job: &Job, check: &JobCheck, warnings: Vec<String>) -> CheckOutput {
        CheckOutput {
            possible: true,
            fits: check.fits(),
            job: Some(JobSummary::new(job)),
            noise_free: Some(Throughput::new(job, &check.costs, check.step_s)),
            model_flops: Some(check.costs.model_flops),
            step: Some(StepFile {
                work: check.work,
                bubble_s: check.bubble_s,
                communication_s: check.communication_s,
                exposed: check.exposed.clone(),
            }),
            stages: check.stages.iter().map(StageFile::from).collect(),
            warnings,
            ..CheckOutput::impossible(Vec::new(), Vec::new())
        }
    }

    /// For people; `verbose` shows every stage. Violations are shown at their place in the file, by
    /// the caller.
    pub fn document(&self, verbose: bool) -> Document {
        let (Some(job), Some(noise_free), Some(step)) = (&self.job, &self.noise_free, &self.step)
        else {
            return Document::new("No job to check");
        };
        let fit = if self.fits { "fits" } else { "does not fit" };
        let mut document = Document::new(format!("{}: possible, {fit} in memory", job.in_words()));
        document.line(format!(
            "{}, {} tokens and {}FLOP a step",
            parameters(job),
            big(job.tokens),
            spaced(self.model_flops.unwrap_or(0.0))
        ));
        document.line(format!(
            "noise-free step {}: {}",
            crate::seconds(noise_free.step_s),
            noise_free.in_words()
        ));
        document.table(self.memory(verbose));
        self.headroom(&mut document);
        document.table(step_table(step, noise_free.step_s, job.stages > 1));
        document.table(exposed_table(step, noise_free.step_s));
        if job.stages > 1 {
            document.table(self.idle(verbose));
        }
        document.warnings.clone_from(&self.warnings);
        document
    }

    /// The stages to show: those that need the most memory of their kind, or all.
    fn shown(&self, verbose: bool) -> Vec<&StageFile> {
        const MOST: usize = 4;
        if verbose || self.stages.len() <= MOST {
            return self.stages.iter().collect();
        }
        let fullest = self.fullest().map(|s| s.stage);
        let last = self.stages.len() - 1;
        let wanted = |i: usize, s: &StageFile| i <= 1 || i == last || Some(s.stage) == fullest;
        self.stages.iter().enumerate().filter(|(i, s)| wanted(*i, s)).map(|(_, s)| s).collect()
    }

    fn fullest(&self) -> Option<&StageFile> {
        self.stages.iter().max_by(|a, b| a.memory_bytes.total_cmp(&b.memory_bytes))
    }

    /// Parts by stage.
    fn memory(&self, verbose: bool) -> Table {
        let shown = self.shown(verbose);
        let mut columns = vec![String::new()];
        columns.extend(shown.iter().map(|s| format!(">stage {}", s.stage)));
        let names: Vec<&str> = columns.iter().map(String::as_str).collect();
        let rest = self.stages.len() - shown.len();
        let title = if rest > 0 {
            format!("Memory of a GPU [GiB] ({rest} more stages with `-v`)")
        } else {
            "Memory of a GPU [GiB]".to_owned()
        };
        let mut table = Table::new(title, &names);
        let mut kinds: Vec<MemoryKind> =
            shown.iter().flat_map(|s| &s.memory).map(|p| p.kind).collect();
        kinds.sort();
        kinds.dedup();
        // What rounds to nothing everywhere is part of the sum only.
        let seen = |kind: &MemoryKind| {
            shown.iter().flat_map(|s| &s.memory).any(|p| p.kind == *kind && p.bytes >= 0.005 * GIB)
        };
        for kind in kinds.into_iter().filter(seen) {
            let mut cells = vec![kind.as_str().to_owned()];
            cells.extend(shown.iter().map(|s| {
                let part = s.memory.iter().find(|p| p.kind == kind);
                part.map_or_else(String::new, |p| gib(p.bytes))
            }));
            table.row(cells);
        }
        let mut total = vec!["all".to_owned()];
        total.extend(shown.iter().map(|s| gib(s.memory_bytes)));
        let tone = if self.fits { Tone::Strong } else { Tone::Bad };
        table.toned(total, tone);
        table
    }

    fn headroom(&self, document: &mut Document) {
        let Some(fullest) = self.fullest() else { return };
        let spare = fullest.gpu_bytes - fullest.memory_bytes;
        let share = percent(spare.abs() / fullest.gpu_bytes);
        let gpu = gib(fullest.gpu_bytes);
        let (text, tone) = if fullest.fits {
            (format!("headroom {} GiB of {gpu} ({share})", gib(spare)), Tone::Good)
        } else {
            (format!("does not fit: {} GiB over the GPU's {gpu} ({share})", gib(-spare)), Tone::Bad)
        };
        document.blocks.push(Block::Line(format!("stage {}: {text}", fullest.stage), tone));
    }

    /// Waiting by stage.
    fn idle(&self, verbose: bool) -> Table {
        let shown = self.shown(verbose);
        let mut table =
            Table::new("Stages", &["stage", ">busy [s]", ">idle", ">in flight", ">parameters"]);
        let scale = Scale::new(shown.iter().map(|s| s.busy_s).fold(0.0, f64::max), 0.0);
        table.columns[1].0 = format!("busy [{}]", scale.unit);
        for s in shown {
            let in_flight: Vec<String> = s.in_flight.iter().map(u32::to_string).collect();
            table.row(vec![
                s.stage.to_string(),
                scale.show(s.busy_s),
                percent(s.idle),
                in_flight.join(" + "),
                big(s.parameters),
            ]);
        }
        table
    }

    /// One row a figure.
    ///
    /// # Errors
    /// [`ReportError::Csv`].
    pub fn csv(&self) -> Result<String, ReportError> {
        let header = ["figure", "stage", "what", "value", "unit"];
        let mut rows: Vec<Vec<String>> = Vec::new();
        let mut add = |figure: &str, stage: Option<u16>, what: &str, value: f64, unit: &str| {
            let stage = stage.map_or_else(String::new, |s| s.to_string());
            rows.push(vec![
                figure.to_owned(),
                stage,
                what.to_owned(),
                number(Some(value)),
                unit.to_owned(),
            ]);
        };
        add("possible", None, "", f64::from(u8::from(self.possible)), "");
        add("fits", None, "", f64::from(u8::from(self.fits)), "");
        for v in &self.violations {
            add("violation", None, &format!("{}: {}", v.key, v.message), 1.0, "");
        }
        if let (Some(job), Some(t), Some(step)) = (&self.job, &self.noise_free, &self.step) {
            add("parameters", None, "all", job.parameters, "");
            add("parameters", None, "active", job.active_parameters, "");
            add("flops", None, "model", self.model_flops.unwrap_or(0.0), "FLOP");
            add("step", None, "noise-free", t.step_s, "s");
            add("throughput", None, "tokens", t.tokens_per_s, "1/s");
            add("throughput", None, "flops of a gpu", t.flops_per_gpu, "FLOP/s");
            add("mfu", None, "causal", t.mfu, "1");
            add("mfu", None, "full attention", t.mfu_full_attention, "1");
            for (what, value) in parts(step) {
                add("step part", None, what, value, "s");
            }
            for e in &step.exposed {
                add("exposed", None, e.kind.as_str(), e.exposed_s, "s");
            }
        }
        for s in &self.stages {
            add("busy", Some(s.stage), "", s.busy_s, "s");
            add("idle", Some(s.stage), "", s.idle, "1");
            for p in &s.memory {
                add("memory", Some(s.stage), p.kind.as_str(), p.bytes, "B");
            }
            add("memory", Some(s.stage), "all", s.memory_bytes, "B");
            add("memory", Some(s.stage), "gpu", s.gpu_bytes, "B");
        }
        csv_text(&header, &rows)
    }
}

fn parameters(job: &JobSummary) -> String {
    if job.active_parameters < job.parameters {
        format!("{} parameters, {} active", big(job.parameters), big(job.active_parameters))
    } else {
        format!("{} parameters", big(job.parameters))
    }
}

/// A number before a unit that takes the prefix.
fn spaced(value: f64) -> String {
    let text = big(value);
    if text.contains(' ') { text } else { format!("{text} ") }
}

/// Parts of the step that add up to it.
fn parts(step: &StepFile) -> [(&'static str, f64); 7] {
    let w = &step.work;
    [
        ("arithmetic", w.compute_s),
        ("memory-bound kernels", w.memory_s),
        ("waiting for the host", w.host_s),
        ("optimizer", w.optimizer_s),
        ("fixed overhead", w.fixed_s),
        ("pipeline bubble", step.bubble_s),
        ("exposed communication", step.communication_s),
    ]
}

fn step_table(step: &StepFile, step_s: f64, pipelined: bool) -> Table {
    let scale = Scale::new(step_s, 0.0);
    let title = if pipelined {
        format!("Where the step goes (own work of stage {}, the busiest)", step.work.stage)
    } else {
        "Where the step goes".to_owned()
    };
    let mut table = Table::new(title, &["", &format!(">time [{}]", scale.unit), ">of the step"]);
    let mut add = |name: &str, value: f64, tone: Tone| {
        table.toned(vec![name.to_owned(), scale.show(value), percent(value / step_s)], tone);
    };
    // Below a thousandth of a percent a part is not worth a line.
    for (name, value) in parts(step).into_iter().filter(|(_, v)| v.abs() > 1e-5 * step_s) {
        add(name, value, Tone::Plain);
    }
    if step.work.recompute_s > 0.0 {
        add("(recomputation, part of the above)", step.work.recompute_s, Tone::Dim);
    }
    table
}

fn exposed_table(step: &StepFile, step_s: f64) -> Table {
    let scale = Scale::new(step_s, 0.0);
    let time = format!(">step time it costs [{}]", scale.unit);
    let mut table =
        Table::new("Exposed communication, each kind by itself", &["", &time, ">of the step"]);
    for e in &step.exposed {
        table.row(vec![
            e.kind.as_str().to_owned(),
            scale.show(e.exposed_s),
            percent(e.exposed_s / step_s),
        ]);
    }
    table
}
