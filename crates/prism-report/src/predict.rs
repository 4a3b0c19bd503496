//! The result of a prediction.

use prism_engine::predict::{Bounds, Draws, Estimate, PredictReport, ResampleUnit, StepGuarantee};
use prism_engine::profile::{JobFile, SourceFile};
use prism_engine::replay::Builder;
use prism_model::{Effect, EffectKind};
use serde::{Deserialize, Serialize};

use crate::ResizedOutput;
use crate::calibrate::{by_size, in_words};
use crate::csv_table::number;
use crate::number::{Scale, count, percent, quantile_name};
use crate::{Block, Document, ReportError, Table, Tone, bars, csv_text};

/// What was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum InputKind {
    /// A recorded trace, calibrated for this prediction.
    Trace,
    /// A stored profile.
    Profile,
}

/// Which model of durations was sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ModelKind {
    /// Crossed effects.
    Effects,
    /// Independent draws per signature: the baseline.
    Iid,
}

/// Over what a distribution is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Over {
    /// Steps on the recorded cluster.
    Steps,
    /// Clusters one might be given.
    Clusters,
}

/// Whether a requirement is met.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RequirementResult {
    /// As it was asked, for instance `p95<8s`.
    pub requirement: String,
    /// What was predicted, seconds.
    pub value_s: f64,
    /// Its limit, seconds.
    pub limit_s: f64,
    /// Whether the prediction meets it.
    pub met: bool,
    /// Whether the interval of the prediction lies on one side of the limit.
    pub clear: bool,
}

/// A predicted distribution of step time, and what it was predicted from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct PredictOutput {
    /// The prediction.
    #[serde(flatten)]
    pub report: PredictReport,
    /// Over what the distribution is.
    pub over_what: Over,
    /// Which model of durations was sampled.
    pub model: ModelKind,
    /// What was given.
    pub input: InputKind,
    /// Files read.
    pub sources: Vec<SourceFile>,
    /// The recorded job's plan.
    pub job: JobFile,
    /// Builder of the graph.
    pub builder: Builder,
    /// Effects of the model, kept and dropped; the baseline has none.
    pub effects: Vec<Effect>,
    /// Requirements that were asked for.
    pub requirements: Vec<RequirementResult>,
    /// What was extrapolated, where the job is asked about at another size than the recorded one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resized: Option<ResizedOutput>,
}

impl PredictOutput {
    /// Whether all requirements are met.
    pub fn all_met(&self) -> bool {
        self.requirements.iter().all(|r| r.met)
    }

    /// For people.
    pub fn document(&self) -> Document {
        let mut document = Document::new(self.summary());
        let scale = self.scale();
        document.table(self.statistics(&scale));
        if let Some(text) = resampled(&self.report) {
            document.blocks.push(Block::Line(text, Tone::Dim));
        }
        self.histogram(&mut document, &scale);
        document.table(self.slowdowns(&scale));
        document.table(self.effects());
        if let Some(resized) = &self.resized {
            resized.add_to(&mut document);
        }
        if let Some(guarantee) = &self.report.guarantee {
            let (text, tone) = guarantee_line(guarantee, &scale);
            document.blocks.push(Block::Line(text, tone));
        }
        for requirement in &self.requirements {
            document.blocks.push(requirement_line(requirement, &scale));
        }
        document.warnings.extend(self.report.warnings.iter().cloned());
        document
    }

    fn summary(&self) -> String {
        let r = &self.report;
        let draws = match r.draws {
            Draws::Empirical => "observed vectors",
            Draws::Parametric => "fitted laws",
        };
        let model = match self.model {
            ModelKind::Effects => "",
            ModelKind::Iid => " i.i.d.",
        };
        format!(
            "Step time of {} over {}: {} replicas x {} stages, {} microbatches; {} samples of{model} \
             {draws} from {} recorded steps, seed {}",
            self.name(),
            r.over,
            r.replicas,
            r.stages,
            r.microbatches,
            count(r.samples),
            count(r.steps),
            r.seed,
        )
    }

    fn name(&self) -> &str {
        match self.sources.first() {
            Some(source) => &source.name,
            None => &self.job.trial_name,
        }
    }

    /// Decimals that show two digits of the narrowest interval.
    fn scale(&self) -> Scale {
        let r = &self.report;
        let widths = r.quantiles.iter().map(|q| &q.estimate).chain([&r.mean]).map(|e| {
            let b = e.total.unwrap_or(e.sampling);
            0.5 * (b.upper - b.lower)
        });
        let finest = widths.filter(|w| w.is_finite() && *w > 0.0).fold(f64::INFINITY, f64::min);
        Scale::new(r.mean.value, if finest.is_finite() { finest } else { 0.0 })
    }

    fn statistics(&self, scale: &Scale) -> Table {
        let r = &self.report;
        let level = percent_short(r.confidence);
        let with_calibration = r.mean.total.is_some();
        let time = format!(">step time [{}]", scale.unit);
        let sampling = format!("{level} interval, sampling");
        let total = format!("{level} interval, total");
        let mut columns = vec!["", time.as_str(), sampling.as_str()];
        if with_calibration {
            columns.push(&total);
        }
        columns.push(">over noise-free");
        let mut table = Table::new("", &columns);
        let mut add = |name: String, e: &Estimate, penalty: Option<f64>, tone: Tone| {
            let mut cells = vec![name, scale.show(e.value), interval(&e.sampling, scale)];
            if with_calibration {
                cells.push(e.total.map_or_else(|| "-".to_owned(), |b| interval(&b, scale)));
            }
            cells.push(
                penalty
                    .map_or_else(String::new, |p| format!("{:+.1} %", 100.0 * p / r.noise_free_s)),
            );
            table.toned(cells, tone);
        };
        for q in &r.quantiles {
            let tone = if q.p == 0.95 { Tone::Strong } else { Tone::Plain };
            add(quantile_name(q.p), &q.estimate, Some(q.penalty_s), tone);
        }
        add("mean".into(), &r.mean, Some(r.mean.value - r.noise_free_s), Tone::Plain);
        add("s.d.".into(), &r.sd, None, Tone::Plain);
        let mut noise_free = vec!["noise-free".to_owned(), scale.show(r.noise_free_s)];
        noise_free.resize(columns.len(), String::new());
        table.toned(noise_free, Tone::Dim);
        table
    }

    fn histogram(&self, document: &mut Document, scale: &Scale) {
        const HEIGHT: usize = 4;
        let h = &self.report.histogram;
        if h.counts.is_empty() || h.from_s >= h.to_s {
            return;
        }
        let mut lines: Vec<String> =
            bars(&h.counts, HEIGHT).into_iter().map(|l| format!("  {l}")).collect();
        let (from, to) = (scale.show(h.from_s), scale.with_unit(h.to_s));
        let gap = h.counts.len().saturating_sub(from.len() + to.len()).max(1);
        lines.push(format!("  {from}{}{to}", " ".repeat(gap)));
        document.blocks.push(Block::Fixed(lines));
    }

    fn slowdowns(&self, scale: &Scale) -> Table {
        let r = &self.report;
        let level = percent_short(r.confidence);
        let mut table = Table::new(
            format!("Steps slower than the noise-free {}", scale.with_unit(r.noise_free_s)),
            &[">by more than", ">probability", &format!("{level} interval, sampling")],
        );
        for s in &r.slowdowns {
            table.row(vec![
                percent_short(s.above),
                percent(s.probability),
                format!("{} to {}", percent(s.sampling.lower), percent(s.sampling.upper)),
            ]);
        }
        table
    }

    fn effects(&self) -> Table {
        let mut table = Table::new("What moves it", &["effect", ">s.d. in log time", ""]);
        let there = || by_size(&self.effects).into_iter().filter(|e| e.kept && e.sd_log > 0.0);
        for effect in there().filter(|e| !self.is_fixed(e.kind)) {
            table.row(vec![
                effect.kind.to_string(),
                percent(effect.sd_log),
                in_words(effect.kind).to_owned(),
            ]);
        }
        for effect in there().filter(|e| self.is_fixed(e.kind)) {
            let cells = vec![
                effect.kind.to_string(),
                percent(effect.sd_log),
                format!("{} (the same in every step)", in_words(effect.kind)),
            ];
            table.toned(cells, Tone::Dim);
        }
        table
    }

    /// Whether an effect has the same value in every sample.
    fn is_fixed(&self, kind: EffectKind) -> bool {
        match kind {
            EffectKind::Position => true,
            EffectKind::Worker | EffectKind::WorkerSpread => self.over_what == Over::Steps,
            _ => false,
        }
    }

    /// One row a statistic: quantiles, mean, s.d., slow-downs, noise-free step, guarantee.
    ///
    /// # Errors
    /// [`ReportError::Csv`].
    pub fn csv(&self) -> Result<String, ReportError> {
        let header = [
            "statistic",
            "at",
            "value",
            "unit",
            "sampling_lower",
            "sampling_upper",
            "total_lower",
            "total_upper",
        ];
        let r = &self.report;
        let estimate = |name: &str, at: Option<f64>, e: &Estimate| {
            vec![
                name.to_owned(),
                number(at),
                number(Some(e.value)),
                "s".to_owned(),
                number(Some(e.sampling.lower)),
                number(Some(e.sampling.upper)),
                number(e.total.map(|b| b.lower)),
                number(e.total.map(|b| b.upper)),
            ]
        };
        let mut rows: Vec<Vec<String>> =
            r.quantiles.iter().map(|q| estimate("quantile", Some(q.p), &q.estimate)).collect();
        rows.push(estimate("mean", None, &r.mean));
        rows.push(estimate("sd", None, &r.sd));
        for s in &r.slowdowns {
            rows.push(vec![
                "slowdown_probability".to_owned(),
                number(Some(s.above)),
                number(Some(s.probability)),
                "1".to_owned(),
                number(Some(s.sampling.lower)),
                number(Some(s.sampling.upper)),
                String::new(),
                String::new(),
            ]);
        }
        let mut single = |name: &str, at: Option<f64>, value: Option<f64>| {
            let mut row = vec![name.to_owned(), number(at), number(value), "s".to_owned()];
            row.resize(header.len(), String::new());
            rows.push(row);
        };
        single("noise_free", None, Some(r.noise_free_s));
        match &r.guarantee {
            Some(StepGuarantee::Guaranteed { q, bound_s, .. }) => {
                single("guaranteed_bound", Some(*q), Some(*bound_s));
            }
            Some(StepGuarantee::ConditionalOnModel { q, bound_s, .. }) => {
                single("bound_conditional_on_model", Some(*q), *bound_s);
            }
            None => {}
        }
        csv_text(&header, &rows)
    }
}

/// What the bootstrap resampled, in words; none without one.
fn resampled(report: &PredictReport) -> Option<String> {
    let unit = match report.resampled? {
        ResampleUnit::Step => "steps",
        ResampleUnit::Window => "windows of steps",
        ResampleUnit::Block => "blocks of consecutive steps",
    };
    let units = report.units.unwrap_or(0);
    Some(format!(
        "total: sampling and calibration error, {} bootstrap repetitions over {units} {unit}",
        count(report.repetitions)
    ))
}

fn interval(bounds: &Bounds, scale: &Scale) -> String {
    format!("{} to {}", scale.show(bounds.lower), scale.show(bounds.upper))
}

/// 95 %, 99.9 %.
pub(crate) fn percent_short(share: f64) -> String {
    format!("{} %", (share * 1e8).round() / 1e6)
}

fn guarantee_line(guarantee: &StepGuarantee, scale: &Scale) -> (String, Tone) {
    match guarantee {
        StepGuarantee::Guaranteed { q, confidence, bound_s, steps, rank } => (
            format!(
                "GUARANTEED: {} <= {} with {} confidence, whatever the model (recorded step {rank} \
                 of {steps} by rising time)",
                quantile_name(*q),
                scale.with_unit(*bound_s),
                percent_short((confidence * 1e4).floor() / 1e4),
            ),
            Tone::Good,
        ),
        StepGuarantee::ConditionalOnModel {
            q,
            confidence,
            bound_s,
            steps,
            steps_needed,
            confidence_of_slowest,
        } => {
            let name = quantile_name(*q);
            let bound = match bound_s {
                Some(bound) => format!(
                    "{name} <= {} with {} confidence",
                    scale.with_unit(*bound),
                    percent_short(*confidence)
                ),
                None => format!("no bound on {name} without bootstrap"),
            };
            (
                format!(
                    "{bound}, conditional on the model: {steps} steps recorded, {steps_needed} \
                     needed for a guarantee (the slowest recorded step gives {})",
                    percent(*confidence_of_slowest)
                ),
                Tone::Caution,
            )
        }
    }
}

pub(crate) fn requirement_line(requirement: &RequirementResult, scale: &Scale) -> Block {
    let verdict = if requirement.met { "met" } else { "not met" };
    let unclear = if requirement.clear { "" } else { "; the interval contains the limit" };
    let tone = if requirement.met { Tone::Good } else { Tone::Bad };
    Block::Line(
        format!(
            "{} {verdict}: {}{unclear}",
            requirement.requirement,
            scale.with_unit(requirement.value_s)
        ),
        tone,
    )
}
