//! A whole run.

use prism_run::optimise::BestInterval;
use prism_run::policies::PolicyRow;
use prism_run::sensitivity::Sensitivity;
use prism_run::spares::Spares;
use prism_run::steps::RunSource;
use prism_run::summary::{Estimate, Spread, Summary};
use serde::{Deserialize, Serialize};

use crate::csv_table::number;
use crate::number::quantile_name;
use crate::predict::percent_short;
use crate::run_analyses::{interval, policies, sensitivity, spares};
use crate::watch::{long, long_pair};
use crate::{Block, Document, ReportError, Table, Tone, bars, count, csv_text, percent, seconds};

/// Version of the output of `prism run`.
pub const RUN_SCHEMA: &str = "prism.run/1";

/// What is run, and how long its steps take.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RunSetting {
    /// Steps.
    pub steps: u64,
    /// GPUs.
    pub gpus: u64,
    /// Nodes.
    pub nodes: u64,
    /// Mean core step, seconds.
    pub core_s: f64,
    /// 90 % interval of a run's level, seconds.
    pub level_s: [f64; 2],
    /// Where that is from.
    pub steps_from: String,
    /// Mean time between failures of the job, seconds; null without failures.
    pub mtbf_s: Option<f64>,
    /// Policy of recovery.
    pub policy: String,
    /// The closed form of the effective training time ratio (arXiv 2410.21680), where the plan has what it
    /// takes.
    pub formula_ettr: Option<f64>,
    /// The share N·r·(u₀ + Δ/2) that it is good to first order in.
    pub formula_load: Option<f64>,
    /// When the run starts, where known.
    pub start: Option<String>,
}

/// A quantile of the completion time as a date.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct DoneAt {
    /// Probability.
    pub p: f64,
    /// The date.
    pub at: String,
}

/// P(throughput above a rate).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ThroughputAbove {
    /// As asked.
    pub rate: String,
    /// Steps per second.
    pub steps_per_s: f64,
    /// Probability.
    pub probability: Estimate,
}

/// A bound and whether it holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct BoundResult {
    /// As asked.
    pub bound: String,
    /// What was predicted, seconds or a share.
    pub value: f64,
    /// Its limit.
    pub limit: f64,
    /// Whether it holds.
    pub met: bool,
    /// Whether the interval of the prediction lies on one side of the limit.
    pub clear: bool,
    /// Whether the value is a lower bound, because runs were given up.
    pub at_least: bool,
}

/// Completion times in bins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct TotalHistogram {
    /// Lower end of the first bin, seconds.
    pub from_s: f64,
    /// Upper end of the last bin, seconds.
    pub to_s: f64,
    /// Runs in each bin; the first and the last also count what lies beyond.
    pub counts: Vec<usize>,
}

/// A whole run, predicted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RunOutput {
    /// [`RUN_SCHEMA`].
    pub schema: String,
    /// Files read.
    pub sources: Vec<RunSource>,
    /// Keys of `[run]` that were replaced, as `key=value`.
    pub set: Vec<String>,
    /// Seed.
    pub seed: u64,
    /// What is run.
    pub setting: RunSetting,
    /// What was found.
    pub summary: Summary,
    /// Quantiles of the end as dates, where the start is known.
    pub done_at: Vec<DoneAt>,
    /// Completion times.
    pub histogram: TotalHistogram,
    /// Probabilities of throughput.
    pub throughput: Vec<ThroughputAbove>,
    /// The best interval between checkpoints.
    pub interval: Option<BestInterval>,
    /// Spares.
    pub spares: Option<Spares>,
    /// What each class of failures costs.
    pub sensitivity: Option<Sensitivity>,
    /// Policies side by side.
    pub policies: Vec<PolicyRow>,
    /// Runs of each variant of these analyses.
    pub analysis_runs: u32,
    /// Bounds that were asked for.
    pub requirements: Vec<BoundResult>,
    /// What the reader must know.
    pub warnings: Vec<String>,
}

impl TotalHistogram {
    /// Of totals, seconds, ascending: 60 bins between the 0.5 % and 99.5 % quantile.
    pub fn of(sorted_s: &[f64]) -> Self {
        const BINS: usize = 60;
        let n = sorted_s.len();
        let at = |share: f64| sorted_s.get(((n as f64 * share) as usize).min(n.saturating_sub(1)));
        let (from_s, to_s) = (at(0.005).copied().unwrap_or(0.0), at(0.995).copied().unwrap_or(0.0));
        let mut counts = vec![0; BINS];
        if to_s > from_s {
            for t in sorted_s {
                let bin = (t - from_s) / (to_s - from_s) * BINS as f64;
                counts[(bin.max(0.0) as usize).min(BINS - 1)] += 1;
            }
        }
        TotalHistogram { from_s, to_s, counts }
    }
}

/// Shows a number.
type Show<'a> = &'a dyn Fn(f64) -> String;
/// Shows both ends of an interval.
type Pair<'a> = &'a dyn Fn(f64, f64) -> String;

pub(crate) fn between(e: &Estimate, show: impl Fn(f64) -> String) -> String {
    format!("{} to {}", show(e.lower), show(e.upper))
}

impl RunOutput {
    /// Whether all bounds hold.
    pub fn all_met(&self) -> bool {
        self.requirements.iter().all(|r| r.met)
    }

    /// For people.
    pub fn document(&self) -> Document {
        let mut document = Document::new(self.headline());
        document.table(self.results());
        self.bars(&mut document);
        document.table(self.causes());
        self.closed_form(&mut document);
        if self.summary.classes.iter().any(|c| c.failures.value > 0.0) {
            document.table(self.classes());
        }
        self.analyses(&mut document);
        for r in &self.requirements {
            let verdict = if r.met { "holds" } else { "does not hold" };
            let doubt = match (r.at_least, r.clear) {
                (true, _) => "; the value is a lower bound, since runs were given up",
                (false, true) => "",
                (false, false) => "; the interval contains the limit",
            };
            let value = if r.limit > 1.0 { long(r.value) } else { format!("{:.4}", r.value) };
            let tone = if r.met { Tone::Good } else { Tone::Bad };
            document
                .blocks
                .push(Block::Line(format!("{} {verdict}: {value}{doubt}", r.bound), tone));
        }
        document.warnings.clone_from(&self.warnings);
        document
    }

    fn headline(&self) -> String {
        let s = &self.setting;
        let mtbf =
            s.mtbf_s.map_or("no failures".to_owned(), |t| format!("a failure every {}", long(t)));
        format!(
            "{} steps of {} on {} GPUs ({} nodes), {mtbf}, policy {}: {} runs simulated",
            count(s.steps as usize),
            seconds(s.core_s),
            count(s.gpus as usize),
            count(s.nodes as usize),
            s.policy,
            count(self.summary.runs as usize)
        )
    }

    fn results(&self) -> Table {
        let s = &self.summary;
        let level = percent_short(s.confidence);
        let mut table = Table::new("", &["", ">value", &format!("{level} interval, sampling"), ""]);
        let spread = |table: &mut Table, name: &str, spread: &Spread, show: Show, pair: Pair| {
            let mean = &spread.mean;
            let censored = self.summary.unfinished > 0;
            table.row(vec![
                format!("{name}, mean"),
                show(mean.value),
                pair(mean.lower, mean.upper),
                if censored { "at least: not all runs ended".to_owned() } else { String::new() },
            ]);
            for q in &spread.quantiles {
                let interval = match (q.lower, q.upper) {
                    (Some(low), Some(high)) => pair(low, high),
                    _ => "too few runs for one".to_owned(),
                };
                let at = self.done_at.iter().find(|d| d.p == q.p && name == "completion time");
                let note = match at {
                    _ if q.at_least => "at least: not all runs ended".to_owned(),
                    Some(date) => date.at.clone(),
                    None => String::new(),
                };
                table.row(vec![
                    format!("{name}, {}", quantile_name(q.p)),
                    show(q.value),
                    interval,
                    note,
                ]);
            }
        };
        spread(&mut table, "completion time", &s.total_s, &long, &long_pair);
        let share = |v: f64| format!("{v:.4}");
        for (name, e) in [("effective training time (ETTR)", &s.ettr), ("goodput", &s.goodput)] {
            let cells = vec![
                format!("{name}, mean"),
                share(e.mean.value),
                between(&e.mean, share),
                String::new(),
            ];
            table.row(cells);
        }
        if let Some(cost) = &s.cost_usd {
            let whole = |v: f64| count(v.max(0.0).round() as usize);
            let pair = |a: f64, b: f64| format!("{} to {}", whole(a), whole(b));
            spread(&mut table, "cost, USD", cost, &whole, &pair);
        }
        let hours = &s.gpu_hours.mean;
        table.row(vec![
            "GPU hours with spares, mean".to_owned(),
            count(hours.value.max(0.0).round() as usize),
            between(hours, |v| count(v.max(0.0).round() as usize)),
            String::new(),
        ]);
        if let Some(done) = &s.done_by {
            let p = &done.probability;
            table.row(vec![
                format!("P(done in {})", long(done.time_s)),
                percent(p.value),
                between(p, percent),
                String::new(),
            ]);
        }
        for t in &self.throughput {
            table.row(vec![
                format!("P(throughput above {})", t.rate),
                percent(t.probability.value),
                between(&t.probability, percent),
                String::new(),
            ]);
        }
        table
    }

    fn bars(&self, document: &mut Document) {
        let h = &self.histogram;
        if h.from_s >= h.to_s {
            return;
        }
        let mut lines: Vec<String> =
            bars(&h.counts, 4).into_iter().map(|l| format!("  {l}")).collect();
        let (from, to) = (long(h.from_s), long(h.to_s));
        let gap = h.counts.len().saturating_sub(from.chars().count() + to.chars().count()).max(1);
        lines.push(format!("  {from}{}{to}", " ".repeat(gap)));
        document.blocks.push(Block::Fixed(lines));
    }

    fn causes(&self) -> Table {
        let columns = ["where the time goes", ">mean", ">share", "interval of the mean"];
        let mut table = Table::new("", &columns);
        for c in self.summary.causes.iter().filter(|c| c.mean_s.value != 0.0) {
            table.row(vec![
                c.cause.to_string(),
                long(c.mean_s.value),
                percent(c.share),
                long_pair(c.mean_s.lower, c.mean_s.upper),
            ]);
        }
        table
    }

    fn closed_form(&self, document: &mut Document) {
        let (Some(formula), Some(load)) = (self.setting.formula_ettr, self.setting.formula_load)
        else {
            return;
        };
        let trust = if load < 0.15 {
            "to first order in that share"
        } else {
            "that share is too large for it: trust the simulation"
        };
        document.blocks.push(Block::Line(
            format!(
                "closed form of ETTR {formula:.4}, where a failure costs {} of the time between two; {trust}",
                percent(load)
            ),
            Tone::Dim,
        ));
    }

    fn classes(&self) -> Table {
        let mut table = Table::new("", &["failures of a run", ">mean", ">work lost, mean"]);
        let mut all: Vec<_> = self.summary.classes.iter().collect();
        all.sort_by(|a, b| b.lost_s.value.total_cmp(&a.lost_s.value));
        for c in all.iter().take(8).filter(|c| c.failures.value > 0.0) {
            table.row(vec![
                c.class.clone(),
                format!("{:.2}", c.failures.value),
                long(c.lost_s.value),
            ]);
        }
        if all.len() > 8 {
            let rest = &all[8..];
            table.row(vec![
                format!("{} other classes", rest.len()),
                format!("{:.2}", rest.iter().map(|c| c.failures.value).sum::<f64>()),
                long(rest.iter().map(|c| c.lost_s.value).sum()),
            ]);
        }
        table
    }

    fn analyses(&self, document: &mut Document) {
        if let Some(best) = &self.interval {
            interval(document, best);
        }
        if let Some(s) = &self.spares {
            document.table(spares(s));
        }
        if let Some(s) = &self.sensitivity {
            document.table(sensitivity(s));
        }
        if !self.policies.is_empty() {
            document.table(policies(&self.policies));
        }
    }

    /// One row a statistic.
    ///
    /// # Errors
    /// [`ReportError::Csv`].
    pub fn csv(&self) -> Result<String, ReportError> {
        let s = &self.summary;
        let mut rows: Vec<Vec<String>> = Vec::new();
        let mut row = |name: String, value: f64, lower: Option<f64>, upper: Option<f64>| {
            rows.push(vec![name, number(Some(value)), number(lower), number(upper)]);
        };
        let mut spread = |name: &str, spread: &Spread| {
            let mean = &spread.mean;
            row(format!("{name}_mean"), mean.value, Some(mean.lower), Some(mean.upper));
            for q in &spread.quantiles {
                row(format!("{name}_{}", quantile_name(q.p)), q.value, q.lower, q.upper);
            }
        };
        spread("total_s", &s.total_s);
        spread("ettr", &s.ettr);
        spread("goodput", &s.goodput);
        spread("gpu_hours", &s.gpu_hours);
        if let Some(cost) = &s.cost_usd {
            spread("cost_usd", cost);
        }
        spread("failures", &s.failures);
        for c in &s.causes {
            let e = &c.mean_s;
            let name = c.cause.to_string().replace([' ', '-'], "_");
            row(format!("cause_{name}_s"), e.value, Some(e.lower), Some(e.upper));
        }
        row("unfinished_runs".to_owned(), s.unfinished as f64, None, None);
        if let Some(d) = &s.done_by {
            let p = &d.probability;
            row("done_by_deadline".to_owned(), p.value, Some(p.lower), Some(p.upper));
        }
        self.analyses_csv(&mut rows);
        csv_text(&["statistic", "value", "lower", "upper"], &rows)
    }
}
