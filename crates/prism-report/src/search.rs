//! The best plans of a job.

use prism_decide::search::{
    Cutoff, Measured, NearestPlan, PlanCounts, PlanFile, PlanObjective, RankedPlan, SearchResult,
    SearchTimes, StageTime,
};
use prism_engine::profile::SourceFile;
use serde::{Deserialize, Serialize};

use crate::csv_table::number;
use crate::number::{Scale, count, percent};
use crate::{Block, Document, ReportError, Table, Tone, csv_text};

/// Version of the output's schema.
pub const SEARCH_SCHEMA: &str = "prism.search/1";
/// Plans that are shown unless all are asked for.
const SHOWN: usize = 10;

/// The plans of a range by what is minimised. Times are seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SearchOutput {
    /// [`SEARCH_SCHEMA`].
    pub schema: String,
    /// Files read.
    pub sources: Vec<SourceFile>,
    /// Keys that replaced the file's, as `key=value`.
    pub set: Vec<String>,
    /// The model.
    pub model: String,
    /// The cluster.
    pub cluster: String,
    /// Preset of the variability.
    pub variability: String,
    /// Sequences of a step.
    pub global_batch_size: u32,
    /// Tokens of a sequence.
    pub seq_len: u32,
    /// Numbers of GPUs that plans could use.
    pub gpus: Vec<u64>,
    /// What was minimised.
    pub objective: PlanObjective,
    /// Price of a GPU-hour; none where GPU-hours were counted.
    pub price_per_gpu_hour: Option<f64>,
    /// Seed of all draws, the same for all plans.
    pub seed: u64,
    /// Confidence of all intervals.
    pub confidence: f64,
    /// Plans whose distribution was predicted, the best first.
    pub plans: Vec<RankedPlan>,
    /// Ranks of those that no other beats at both mean and p95, by their mean.
    pub pareto: Vec<u32>,
    /// What became of all plans.
    pub counts: PlanCounts,
    /// How far noise-free steps were needed; none where no plan runs.
    pub cutoff: Option<Cutoff>,
    /// Median of lower bound over noise-free step.
    pub bound_ratio: Option<f64>,
    /// Where no plan runs: the nearest.
    pub nearest: Vec<NearestPlan>,
    /// Plans and seconds by stage, if asked; they differ from run to run.
    pub times: Option<SearchTimes>,
    /// What to be careful about.
    pub warnings: Vec<String>,
}

impl SearchOutput {
    /// Takes over a result; everything else is empty.
    pub fn new(result: &SearchResult, timing: bool) -> SearchOutput {
        let mut front: Vec<&RankedPlan> = result.plans.iter().filter(|p| p.pareto).collect();
        let mean = |p: &RankedPlan| p.predicted.mean.value.unwrap_or(f64::INFINITY);
        front.sort_by(|a, b| mean(a).total_cmp(&mean(b)));
        SearchOutput {
            schema: SEARCH_SCHEMA.to_owned(),
            sources: Vec::new(),
            set: Vec::new(),
            model: String::new(),
            cluster: String::new(),
            variability: String::new(),
            global_batch_size: 0,
            seq_len: 0,
            gpus: Vec::new(),
            objective: result.objective,
            price_per_gpu_hour: None,
            seed: 0,
            confidence: 0.0,
            pareto: front.iter().map(|p| p.rank).collect(),
            plans: result.plans.clone(),
            counts: result.counts,
            cutoff: result.cutoff,
            bound_ratio: result.bound_ratio,
            nearest: result.nearest.clone(),
            times: timing.then_some(result.times),
            warnings: Vec::new(),
        }
    }

    /// For people; all predicted plans if asked.
    pub fn document(&self, whole: bool) -> Document {
        let gpus: Vec<String> = self.gpus.iter().map(|&n| count(n as usize)).collect();
        let mut document = Document::new(format!(
            "Plans of {} on {} GPUs of {}: batch {} x {} tokens, lowest {}; variability `{}`, seed {}",
            self.model,
            gpus.join(" or "),
            self.cluster,
            count(self.global_batch_size as usize),
            count(self.seq_len as usize),
            self.objective.as_str(),
            self.variability,
            self.seed,
        ));
        match self.plans.first() {
            Some(best) => self.found(best, whole, &mut document),
            None => self.none(&mut document),
        }
        document.blocks.push(Block::Line(self.counts(), Tone::Dim));
        if let Some(times) = &self.times {
            document.blocks.push(Block::Line(speeds(times), Tone::Dim));
        }
        document.warnings.clone_from(&self.warnings);
        document
    }

    fn found(&self, best: &RankedPlan, whole: bool, document: &mut Document) {
        let tied = self.tied();
        let text = if tied > 1 {
            format!("Best: {}; the first {tied} are tied, their intervals overlap", best.plan.name)
        } else {
            format!("Best: {}", best.plan.name)
        };
        document.blocks.push(Block::Line(text, Tone::Good));
        let shown = if whole { self.plans.len() } else { self.plans.len().min(SHOWN) };
        document.table(self.table("", self.plans[..shown].iter()));
        let front: Vec<&RankedPlan> =
            self.pareto.iter().filter_map(|r| self.plans.get(*r as usize - 1)).collect();
        if front.len() > 1 {
            let title = "Mean against p95: plans that no other beats at both";
            document.table(self.table(title, front.into_iter()));
        } else {
            document.line(
                "one plan has both the lowest mean and the lowest p95: there is nothing to trade",
            );
        }
        if self.counts.undecided > 0 {
            document.line(format!(
                "{} more could win if noise favoured them more than it does the best: predict more with \
                 `--distributions`",
                plans(self.counts.undecided)
            ));
        }
    }

    /// Plans at the top whose order is not known.
    fn tied(&self) -> usize {
        1 + self.plans.iter().take_while(|p| p.tied_with_next).count()
    }

    fn none(&self, document: &mut Document) {
        let why = if self.counts.too_large > 0 { "fits into memory" } else { "is possible" };
        document.blocks.push(Block::Line(format!("No plan of the range {why}"), Tone::Bad));
        let mut table = Table::new("Nearest", &["plan", ">memory free [GB]"]);
        for near in &self.nearest {
            table.row(vec![name(&near.plan, &self.gpus), gigabytes(near.headroom_bytes)]);
        }
        document.table(table);
    }

    fn table<'a>(&self, title: &str, plans: impl Iterator<Item = &'a RankedPlan> + Clone) -> Table {
        let width = |m: &Measured| Some(0.5 * (m.upper? - m.lower?)).filter(|w| *w > 0.0);
        let finest =
            plans.clone().filter_map(|p| width(&p.predicted.p95)).fold(f64::INFINITY, f64::min);
        let longest = plans.clone().map(|p| p.noise_free_s).fold(0.0, f64::max);
        let scale = Scale::new(longest, if finest.is_finite() { finest } else { 0.0 });
        let step = |name: &str| format!(">{name} [{}]", scale.unit);
        let special = match self.objective {
            PlanObjective::P50 | PlanObjective::P95 => None,
            PlanObjective::Cvar => Some(step("CVaR")),
            PlanObjective::Cost if self.price_per_gpu_hour.is_none() => {
                Some(">GPU-hours a billion tokens".to_owned())
            }
            PlanObjective::Cost => Some(">cost of a billion tokens".to_owned()),
        };
        let columns: Vec<String> = [">rank".to_owned(), "plan".to_owned()]
            .into_iter()
            .chain(special.clone())
            .chain([step("noise-free"), step("mean"), step("p50"), step("p95")])
            .chain(["interval, p95", "tied", ">free [GB]", ">MFU", ">idle"].map(str::to_owned))
            .collect();
        let names: Vec<&str> = columns.iter().map(String::as_str).collect();
        let mut table = Table::new(title, &names);
        let show = |x: Option<f64>| x.map_or_else(|| "unknown".to_owned(), |s| scale.show(s));
        for p in plans {
            let own = &p.predicted;
            let mut cells = vec![p.rank.to_string(), name(&p.plan, &self.gpus)];
            if special.is_some() {
                cells.push(match self.objective {
                    PlanObjective::Cost => {
                        own.objective.value.map_or_else(String::new, |v| format!("{v:.2}"))
                    }
                    _ => show(own.objective.value),
                });
            }
            cells.extend([scale.show(p.noise_free_s), show(own.mean.value), show(own.p50.value)]);
            cells.extend([
                show(own.p95.value),
                format!("{} to {}", show(own.p95.lower), show(own.p95.upper)),
                if p.tied_with_next { "with next" } else { "" }.to_owned(),
                gigabytes(p.headroom_bytes),
                percent(p.mfu),
                percent(p.bubble),
            ]);
            table.toned(cells, if p.rank == 1 { Tone::Strong } else { Tone::Plain });
        }
        table
    }

    fn counts(&self) -> String {
        let c = &self.counts;
        let cut = match &self.cutoff {
            Some(cut) if c.bounded_out > 0 => format!(
                " (looked up to {} beyond those shown; noise adds {} to the fastest)",
                percent(cut.margin),
                percent(cut.penalty)
            ),
            _ => String::new(),
        };
        format!(
            "{}: {} impossible, {} too large for memory, {} bounded out{cut}, {} with a noise-free step, {} \
             of them with a distribution",
            plans(c.considered),
            count(c.illegal),
            count(c.too_large),
            count(c.bounded_out),
            count(c.noise_free),
            count(c.predicted),
        )
    }

    /// One row a plan.
    ///
    /// # Errors
    /// [`ReportError::Csv`].
    pub fn csv(&self) -> Result<String, ReportError> {
        let header = [
            "rank",
            "gpus",
            "tp",
            "cp",
            "ep",
            "pp",
            "chunks",
            "schedule",
            "dp_shard",
            "dp_replicate",
            "zero",
            "recompute",
            "micro_batch",
            "microbatches",
            "bound_s",
            "noise_free_s",
            "mean_s",
            "p50_s",
            "p95_s",
            "p95_lower_s",
            "p95_upper_s",
            "objective",
            "objective_lower",
            "objective_upper",
            "tied_with_next",
            "pareto",
            "headroom_bytes",
            "mfu",
            "bubble",
        ];
        let row = |p: &RankedPlan| {
            let (plan, own) = (&p.plan, &p.predicted);
            let recompute = format!("{:?}", plan.recompute).to_lowercase();
            vec![
                p.rank.to_string(),
                plan.gpus.to_string(),
                plan.tensor_parallel.to_string(),
                plan.context_parallel.to_string(),
                plan.expert_parallel.to_string(),
                plan.pipeline_parallel.to_string(),
                plan.virtual_chunks.to_string(),
                plan.schedule.to_string(),
                plan.data_parallel_shard.to_string(),
                plan.data_parallel_replicate.to_string(),
                plan.zero_stage.to_string(),
                recompute,
                plan.micro_batch_size.to_string(),
                plan.microbatches.to_string(),
                number(Some(p.bound_s)),
                number(Some(p.noise_free_s)),
                number(own.mean.value),
                number(own.p50.value),
                number(own.p95.value),
                number(own.p95.lower),
                number(own.p95.upper),
                number(own.objective.value),
                number(own.objective.lower),
                number(own.objective.upper),
                p.tied_with_next.to_string(),
                p.pareto.to_string(),
                number(Some(p.headroom_bytes)),
                number(Some(p.mfu)),
                number(Some(p.bubble)),
            ]
        };
        let rows: Vec<Vec<String>> = self.plans.iter().map(row).collect();
        csv_text(&header, &rows)
    }
}

/// A plan's line, with its GPUs where plans differ in them.
fn name(plan: &PlanFile, gpus: &[u64]) -> String {
    if gpus.len() > 1 { format!("{} GPUs: {}", plan.gpus, plan.name) } else { plan.name.clone() }
}

fn plans(n: usize) -> String {
    format!("{} plan{}", count(n), if n == 1 { "" } else { "s" })
}

fn gigabytes(bytes: f64) -> String {
    format!("{:.1}", bytes / 1e9)
}

fn speeds(times: &SearchTimes) -> String {
    let one = |what: &str, time: &StageTime| {
        format!("{what} {} plans a second", count(time.per_second().round() as usize))
    };
    [
        one("rules", &times.rules),
        one("memory", &times.memory),
        one("bound", &times.bound),
        one("noise-free", &times.noise_free),
        format!("distribution {:.2} plans a second", times.distribution.per_second()),
    ]
    .join(", ")
}
