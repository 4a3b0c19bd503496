//! The predicted distribution of a planned job.

use prism_engine::planned::{JobDistribution, JobPrediction, JobQuantile};
use prism_engine::profile::SourceFile;
use serde::{Deserialize, Serialize};

use crate::csv_table::number;
use crate::number::{Scale, count, percent, quantile_name};
use crate::predict::{percent_short, requirement_line};
use crate::{
    Block, Document, JobSummary, Over, ReportError, RequirementResult, Table, Throughput, Tone,
    bars, csv_text,
};

/// Version of the output.
pub const PREDICT_JOB_SCHEMA: &str = "prism.predict-job/1";

/// A planned job's predicted step time, and what it was predicted from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct PredictJobOutput {
    /// [`PREDICT_JOB_SCHEMA`].
    pub schema: String,
    /// Files read.
    pub sources: Vec<SourceFile>,
    /// Keys that replaced the file's, as `key=value`.
    pub set: Vec<String>,
    /// Seed of all draws.
    pub seed: u64,
    /// Confidence of all intervals.
    pub confidence: f64,
    /// The job.
    pub job: JobSummary,
    /// What the noise-free step means.
    pub noise_free: Throughput,
    /// Which of the two distributions the requirements were held against.
    pub over_what: Over,
    /// The prediction.
    #[serde(flatten)]
    pub prediction: JobPrediction,
    /// Requirements that were asked for.
    pub requirements: Vec<RequirementResult>,
}

impl PredictJobOutput {
    /// Whether all requirements are met.
    pub fn all_met(&self) -> bool {
        self.requirements.iter().all(|r| r.met)
    }

    /// The distribution that was asked for.
    pub fn asked(&self) -> &JobDistribution {
        match self.over_what {
            Over::Steps => &self.prediction.steps,
            Over::Clusters => &self.prediction.over_clusters,
        }
    }

    /// For people.
    pub fn document(&self) -> Document {
        let scale = self.scale();
        let asked = self.asked();
        let mut document = Document::new(self.summary());
        document.line(format!(
            "noise-free {}: {}",
            scale.with_unit(self.prediction.noise_free_s),
            self.noise_free.in_words()
        ));
        document.table(self.statistics(&scale));
        self.histogram(&mut document, &scale);
        document.table(self.slowdowns(&scale));
        self.clusters(&mut document, &scale);
        document.blocks.push(Block::Line(format!("method: {}", asked.method), Tone::Dim));
        for q in asked.quantiles.iter().filter(|q| q.value_s.is_none()) {
            if let Some(why) = &q.refused {
                document.line(format!("{}: no value, {why}", quantile_name(q.p)));
            }
        }
        for requirement in &self.requirements {
            document.blocks.push(requirement_line(requirement, &scale));
        }
        document.warnings.clone_from(&self.prediction.warnings);
        document
    }

    fn summary(&self) -> String {
        let samples = match self.asked().samples {
            0 => String::new(),
            n => format!("{} samples, ", count(n as usize)),
        };
        format!(
            "Step time of {}; variability `{}`; over {}; {samples}seed {}",
            self.job.in_words(),
            self.job.variability,
            self.asked().over,
            self.seed,
        )
    }

    /// Decimals that show two digits of the narrowest interval.
    fn scale(&self) -> Scale {
        let asked = self.asked();
        let width = |q: &JobQuantile| Some(0.5 * (q.upper_s? - q.lower_s?));
        let finest = asked
            .quantiles
            .iter()
            .filter_map(width)
            .filter(|w| w.is_finite() && *w > 0.0)
            .fold(f64::INFINITY, f64::min);
        Scale::new(asked.mean_s, if finest.is_finite() { finest } else { 0.0 })
    }

    fn statistics(&self, scale: &Scale) -> Table {
        let (asked, quiet) = (self.asked(), self.prediction.noise_free_s);
        let time = format!(">step time [{}]", scale.unit);
        let interval = format!("{} interval, sampling", percent_short(self.confidence));
        let columns = ["", &time, interval.as_str(), ">penalty", ">over noise-free", ""];
        let mut table = Table::new("", &columns);
        let share = |penalty: f64| format!("{:+.2} %", 100.0 * penalty / quiet);
        for q in &asked.quantiles {
            let tone = if q.p == 0.95 { Tone::Strong } else { Tone::Plain };
            let bounds = match (q.lower_s, q.upper_s) {
                _ if q.value_s.is_none() => String::new(),
                (Some(lower), Some(upper)) => {
                    format!("{} to {}", scale.show(lower), scale.show(upper))
                }
                (Some(lower), None) => format!("at least {}", scale.show(lower)),
                (None, Some(upper)) => format!("at most {}", scale.show(upper)),
                (None, None) => String::new(),
            };
            let cells = vec![
                quantile_name(q.p),
                q.value_s.map_or_else(|| "-".to_owned(), |v| scale.show(v)),
                bounds,
                q.penalty_s.map_or_else(String::new, |p| scale.show(p)),
                q.penalty_s.map_or_else(String::new, share),
                if q.extrapolated { "extrapolated" } else { "" }.to_owned(),
            ];
            table.toned(cells, tone);
        }
        let penalty = asked.mean_s - quiet;
        let none = String::new;
        table.row(vec![
            "mean".into(),
            scale.show(asked.mean_s),
            none(),
            scale.show(penalty),
            share(penalty),
            none(),
        ]);
        table.row(vec!["s.d.".into(), scale.show(asked.sd_s), none(), none(), none(), none()]);
        table
    }

    fn histogram(&self, document: &mut Document, scale: &Scale) {
        const HEIGHT: usize = 4;
        let h = &self.asked().histogram;
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
        let level = percent_short(self.confidence);
        let mut table = Table::new(
            format!(
                "Steps slower than the noise-free {}",
                scale.with_unit(self.prediction.noise_free_s)
            ),
            &[">by more than", ">probability", &format!("{level} interval, sampling")],
        );
        for s in &self.asked().slowdowns {
            table.row(vec![
                percent_short(s.above),
                percent(s.probability),
                format!("{} to {}", percent(s.lower), percent(s.upper)),
            ]);
        }
        table
    }

    /// How far the same job's steps differ between clusters.
    fn clusters(&self, document: &mut Document, scale: &Scale) {
        let c = &self.prediction.clusters;
        let [low, middle, high] = c.noise_free_s;
        if c.clusters < 2 {
            document.line("clusters: all alike by this variability");
            return;
        }
        let mut table = Table::new(
            format!(
                "How {} clusters differ (slowest replica without noise in time: {} to {}, middle {})",
                c.clusters,
                scale.show(low),
                scale.with_unit(high),
                scale.show(middle)
            ),
            &["", &format!(">cluster at 5 % [{}]", scale.unit), ">cluster at 95 %"],
        );
        let show = |v: Option<f64>| v.map_or_else(|| "-".to_owned(), |v| scale.show(v));
        for (q, [fast, slow]) in self.asked().quantiles.iter().zip(&c.range_s) {
            table.row(vec![quantile_name(q.p), show(*fast), show(*slow)]);
        }
        document.table(table);
    }

    /// One row a statistic, for both distributions.
    ///
    /// # Errors
    /// [`ReportError::Csv`].
    pub fn csv(&self) -> Result<String, ReportError> {
        let header = ["over", "statistic", "at", "value", "unit", "lower", "upper", "note"];
        let p = &self.prediction;
        let mut rows = Vec::new();
        let mut add =
            |over: &str, what: &str, numbers: [Option<f64>; 4], unit: &str, note: &str| {
                let [at, value, lower, upper] = numbers.map(number);
                let words = [over, what].map(str::to_owned);
                let rest = [at, value, unit.to_owned(), lower, upper, note.to_owned()];
                rows.push([&words[..], &rest[..]].concat());
            };
        for (over, law) in [("steps", &p.steps), ("clusters", &p.over_clusters)] {
            for q in &law.quantiles {
                let note = match &q.refused {
                    Some(why) => why.as_str(),
                    None if q.extrapolated => "extrapolated",
                    None => "",
                };
                add(over, "quantile", [Some(q.p), q.value_s, q.lower_s, q.upper_s], "s", note);
            }
            add(over, "mean", [None, Some(law.mean_s), None, None], "s", "");
            add(over, "sd", [None, Some(law.sd_s), None, None], "s", "");
            for s in &law.slowdowns {
                let numbers = [Some(s.above), Some(s.probability), Some(s.lower), Some(s.upper)];
                add(over, "slowdown_probability", numbers, "1", "");
            }
        }
        let t = &self.noise_free;
        for (what, value, unit) in [
            ("noise_free", p.noise_free_s, "s"),
            ("tokens_per_s", t.tokens_per_s, "1/s"),
            ("flops_per_gpu", t.flops_per_gpu, "FLOP/s"),
            ("mfu", t.mfu, "1"),
        ] {
            add("", what, [None, Some(value), None, None], unit, "");
        }
        csv_text(&header, &rows)
    }
}
