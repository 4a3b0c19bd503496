//! For people.

use std::collections::BTreeMap;
use std::fmt::Display;

use prism_decide::reference::{
    Decomposition, Estimate, Explained, LEAST_SLOWDOWN, PartSlowdown, WorkerSlowdown,
};
use prism_engine::predict::Bounds;

use super::WhatifReferenceOutput;
use crate::number::{Scale, count, percent};
use crate::replay::ids;
use crate::{Block, Document, Table, Tone};

/// Rows of a table, or replicas of the heatmap, that are shown without being asked for all.
const SHOWN: usize = 16;
/// Workers that are shown without being asked for all.
const WORKERS_SHOWN: usize = 8;
/// Why there is no interval.
const ONE_STEP: &str = "- (one step)";
/// From no slowdown to the largest.
const SHADES: [char; 5] = [' ', '░', '▒', '▓', '█'];

impl WhatifReferenceOutput {
    /// For people; with each step's figures, and long tables whole, if asked.
    pub fn document(&self, per_step: bool, all: bool) -> Document {
        let r = &self.report;
        let mut document = Document::new(format!(
            "What-if analysis of {}: {} steps, {} replicas x {} stages, {} graph, replayed \
             without launch delays",
            self.sources.first().map_or("-", |s| s.name.as_str()),
            count(r.steps.len()),
            r.replicas,
            r.stages,
            r.builder,
        ));
        document.table(self.figures());
        match &r.decomposition {
            Some(parts) => self.decomposition(parts, all, &mut document),
            None => document.line(format!(
                "The slowdown is below {LEAST_SLOWDOWN}: too little to be decomposed"
            )),
        }
        if per_step {
            document.table(self.steps());
        }
        document.line(format!(
            "Figures are exact for the recorded steps. Intervals are for more steps like them: \
             {} jackknife over {} steps, taken as independent, with the ideal work as known",
            self.level(),
            count(r.steps.len()),
        ));
        document.warnings.clone_from(&self.warnings);
        if !self.steps_dropped.is_empty() {
            document.warnings.push(format!("dropped as incomplete: {}", ids(&self.steps_dropped)));
        }
        document
    }

    fn level(&self) -> String {
        format!("{} %", (self.report.confidence * 1e9).round() / 1e7)
    }

    fn decomposition(&self, parts: &Decomposition, all: bool, document: &mut Document) {
        let mut table = |title: &str, what: &str, mut rows: Vec<(String, Estimate)>| {
            rows.sort_by(|a, b| b.1.value.total_cmp(&a.1.value));
            let interval = format!("{} interval", self.level());
            let mut table = Table::new(title, &[what, ">slowdown", &interval]);
            let left_out = rows.len().saturating_sub(if all { usize::MAX } else { SHOWN });
            rows.truncate(rows.len() - left_out);
            for (name, slowdown) in rows {
                table.row(vec![name, figure(slowdown.value), interval_text(&slowdown)]);
            }
            document.table(table);
            if left_out > 0 {
                document.line(format!("and {left_out} more; `-v` shows all"));
            }
        };
        table(
            "Variation in one kind of operation alone (S_t)",
            "operation",
            rows(&parts.by_op_type),
        );
        table("Variation in one stage alone (S_pp)", "stage", rows(&parts.by_stage));
        table("Variation in one replica alone (S_dp)", "replica", rows(&parts.by_dp));
        let names =
            |w: &WorkerSlowdown| format!("rank {}: replica {}, stage {}", w.rank, w.dp, w.stage);
        let mut workers: Vec<&WorkerSlowdown> = parts.workers.iter().collect();
        workers.sort_by(|a, b| {
            b.slowdown.value.total_cmp(&a.slowdown.value).then(a.rank.cmp(&b.rank))
        });
        workers.truncate(if all { usize::MAX } else { WORKERS_SHOWN });
        let title = format!(
            "Slowest workers (S_w: the lesser of replica and stage), {} of {}",
            workers.len(),
            count(parts.workers.len()),
        );
        table(&title, "worker", workers.iter().map(|w| (names(w), w.slowdown)).collect());
        heatmap(parts, all, document);
        let slowest = format!(
            "the slowest {} of {} workers ({})",
            count(parts.slowest_ranks.len()),
            count(parts.workers.len()),
            rank_names(&parts.slowest_ranks),
        );
        let last = format!("the last stage ({})", self.report.stages.saturating_sub(1));
        document.line(sentence("M_W", &slowest, &parts.slowest_workers));
        document.line(sentence("M_S", &last, &parts.last_stage));
    }

    /// Means and what they say.
    fn figures(&self) -> Table {
        let r = &self.report;
        let scale = Scale::new(r.mean_base_s, r.mean_base_s * 1e-4);
        let interval = format!("{} interval", self.level());
        let mut table = Table::new("", &["", ">", &interval]);
        let times = |bounds: Option<Bounds>| {
            bounds.map_or_else(
                || ONE_STEP.to_owned(),
                |b| format!("{} to {} {}", scale.show(b.lower), scale.show(b.upper), scale.unit),
            )
        };
        for (name, time, interval) in [
            ("mean step, recorded (T_base)", r.mean_base_s, times(r.mean_base_interval_s)),
            (
                "mean step, no launch delays (T_nd)",
                r.mean_no_delay_s,
                times(r.mean_no_delay_interval_s),
            ),
            ("mean step, ideal work (T_id)", r.mean_ideal_s, "the same in every step".to_owned()),
        ] {
            table.row(vec![name.to_owned(), scale.with_unit(time), interval]);
        }
        for (name, slowdown) in [
            ("slowdown S (T_nd / T_id)", &r.slowdown),
            ("slowdown by launch delays (T_base / T_nd)", &r.launch_slowdown),
        ] {
            let cells = vec![name.to_owned(), figure(slowdown.value), interval_text(slowdown)];
            table.toned(cells, Tone::Strong);
        }
        table
    }

    /// Each step's figures, and what slows it most.
    fn steps(&self) -> Table {
        let r = &self.report;
        let mut table = Table::new(
            "Steps",
            &[
                ">step",
                ">recorded",
                ">no delays",
                ">ideal",
                ">slowdown",
                ">launch slowdown",
                "slowest operation",
                "stage",
                "replica",
            ],
        );
        let scale = Scale::new(r.mean_base_s, r.mean_base_s * 1e-4);
        for (i, s) in r.steps.iter().enumerate() {
            let mut cells = vec![s.step.to_string()];
            let times = [s.base_s, s.no_delay_s, s.ideal_s];
            cells.extend(times.into_iter().map(|t| scale.with_unit(t)));
            cells.extend([s.slowdown, s.launch_slowdown].into_iter().map(figure));
            cells.extend(match &r.decomposition {
                Some(d) => [worst(&d.by_op_type, i), worst(&d.by_stage, i), worst(&d.by_dp, i)],
                None => ["-", "-", "-"].map(str::to_owned),
            });
            table.row(cells);
        }
        table
    }
}

fn rows<K: Display>(parts: &BTreeMap<K, PartSlowdown>) -> Vec<(String, Estimate)> {
    parts.iter().map(|(k, p)| (k.to_string(), p.slowdown)).collect()
}

/// The part with the largest slowdown in the `step`-th step.
fn worst<K: Display>(parts: &BTreeMap<K, PartSlowdown>, step: usize) -> String {
    let of = |p: &PartSlowdown| p.per_step.get(step).copied().unwrap_or(f64::NAN);
    let worst = parts.iter().reduce(|a, b| if of(b.1) > of(a.1) { b } else { a });
    worst.map_or_else(|| "-".to_owned(), |(name, p)| format!("{name} ({})", figure(of(p))))
}

/// Slowdowns of all workers, a row a replica, a column a stage.
fn heatmap(parts: &Decomposition, all: bool, document: &mut Document) {
    let stages = parts.by_stage.len();
    let excess = |w: &WorkerSlowdown| w.slowdown.value - 1.0;
    let most = parts.workers.iter().map(excess).fold(0.0, f64::max);
    let shade = |w: &WorkerSlowdown| {
        let share = if most > 0.0 { (excess(w) / most).clamp(0.0, 1.0) } else { 0.0 };
        SHADES[(share * (SHADES.len() - 1) as f64).round() as usize]
    };
    let mut rows: Vec<&[WorkerSlowdown]> = parts.workers.chunks(stages.max(1)).collect();
    let left_out = rows.len().saturating_sub(if all { usize::MAX } else { SHOWN });
    if left_out > 0 {
        // The replicas with the slowest workers.
        let slowest = |row: &&[WorkerSlowdown]| row.iter().map(excess).fold(f64::MIN, f64::max);
        rows.sort_by(|a, b| slowest(b).total_cmp(&slowest(a)));
        rows.truncate(SHOWN);
    }
    let mut lines = vec!["S_w by worker: a row a replica, a column a stage".to_owned()];
    let header: Vec<String> = parts.by_stage.keys().map(|s| format!("{s:>7}  ")).collect();
    lines.push(format!("{:>8}{}", "", header.concat()));
    for row in rows {
        let dp = row.first().map_or(0, |w| w.dp);
        let cells: Vec<String> =
            row.iter().map(|w| format!("{:>7.3} {}", w.slowdown.value, shade(w))).collect();
        lines.push(format!("{dp:>8}{}", cells.concat()));
    }
    if left_out > 0 {
        lines.push(format!("and {left_out} replicas with less; `-v` shows all"));
    }
    document.blocks.push(Block::Fixed(lines));
}

/// What ideal work on a set of operations would change.
fn sentence(metric: &str, set: &str, e: &Explained) -> String {
    let (Some(rem), Some(add)) = (&e.rem, &e.add) else {
        return format!("{metric}: none, since there is no slowdown to explain");
    };
    let scale = Scale::new(e.tori_s, e.tori_s * 1e-4);
    let effect = match rem.value {
        v if v < 0.0 => format!("{} of the slowdown would go (the step gets longer)", percent(v)),
        v if v > 1.0 => {
            format!("{} of the slowdown would go (the rest is faster than ideal)", percent(v))
        }
        v => format!("{} of the slowdown would go", percent(v)),
    };
    format!(
        "{metric} = {}{}: with ideal work on {set}, {effect}: {} a step instead of {} (all ideal: \
         {}); recorded work there alone makes {} of it",
        figure(rem.value),
        rem.interval.map_or_else(String::new, |_| format!(" ({})", interval_text(rem))),
        scale.with_unit(e.trem_s),
        scale.with_unit(e.tori_s),
        scale.with_unit(e.tideal_s),
        percent(add.value),
    )
}

/// Ranks, the first few.
fn rank_names(ranks: &[u32]) -> String {
    let mut names: Vec<String> = ranks.iter().take(SHOWN).map(ToString::to_string).collect();
    if ranks.len() > SHOWN {
        names.push(format!("and {} more", ranks.len() - SHOWN));
    }
    format!("{} {}", if ranks.len() == 1 { "rank" } else { "ranks" }, names.join(", "))
}

fn figure(value: f64) -> String {
    format!("{value:.4}")
}

fn interval_text(estimate: &Estimate) -> String {
    estimate.interval.map_or_else(
        || ONE_STEP.to_owned(),
        |b| format!("{} to {}", figure(b.lower), figure(b.upper)),
    )
}
