//! The result of a placement.

use prism_decide::place::{
    Advice, Gains, KeepOrDrop, Method, Objective, Placement, Ratio, Sensitivity, Spare, Worker,
};
use prism_engine::predict::{Bounds, Estimate};
use prism_engine::profile::{JobFile, SourceFile};
use serde::{Deserialize, Serialize};

use crate::csv_table::number;
use crate::number::{Scale, count, percent};
use crate::{Block, Document, ReportError, Table, Tone, csv_text};

/// Version of the output's schema.
pub const PLACE_SCHEMA: &str = "prism.place/1";
/// Changed cells that are shown unless all are asked for.
const SHOWN: usize = 16;

/// Which worker should be which cell; or what one slow worker costs by where it stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct PlaceOutput {
    /// [`PLACE_SCHEMA`].
    pub schema: String,
    /// Files read.
    pub sources: Vec<SourceFile>,
    /// The recorded job's plan.
    pub job: JobFile,
    /// Column of the table of speeds that held the times, if there was one.
    pub time_column: Option<String>,
    /// GPUs of a worker.
    pub gpus_per_worker: u32,
    /// Workers in the order as given; empty if the recorded ones are meant.
    pub workers: Vec<Worker>,
    /// GPUs that no tensor-parallel group could take.
    pub left_over: Vec<String>,
    /// The placement.
    pub placement: Option<Placement>,
    /// What one slow worker costs.
    pub sensitivity: Option<Sensitivity>,
    /// What to be careful about.
    pub warnings: Vec<String>,
}

impl PlaceOutput {
    fn name(&self) -> &str {
        self.sources.first().map_or(&self.job.trial_name, |s| &s.name)
    }

    /// For people; all changed cells if asked.
    pub fn document(&self, whole: bool) -> Document {
        let mut document = match (&self.placement, &self.sensitivity) {
            (Some(placement), _) => self.placed(placement, whole),
            (None, Some(sensitivity)) => self.slowed(sensitivity),
            (None, None) => Document::new(format!("Nothing asked of {}", self.name())),
        };
        document.warnings.clone_from(&self.warnings);
        document
    }

    fn placed(&self, p: &Placement, whole: bool) -> Document {
        let spares = p.spares.len();
        let mut document = Document::new(format!(
            "Placement of {} workers{} on {}: {} replicas x {} stages, lowest {}; {} samples, seed {}",
            count(p.cells.len() + spares),
            if self.gpus_per_worker > 1 {
                format!(" of {} GPUs", self.gpus_per_worker)
            } else {
                String::new()
            },
            self.name(),
            p.replicas,
            p.stages,
            name(p.gains.objective),
            count(p.samples),
            p.seed,
        ));
        let (text, tone) = verdict(p);
        document.blocks.push(Block::Line(text, tone));
        document.table(orders(p));
        document.table(moves(p));
        if let Some(last) = p.moves.last() {
            let share = (last.gain_so_far.value - 1.0) / (p.gains.over_given.value - 1.0);
            document.line(format!(
                "these moves alone take {} of the way to the placement's gain",
                percent(share.min(1.0))
            ));
        }
        document.table(changed(p, whole));
        if !p.spares.is_empty() {
            document.line(format!("left out: {}", listed(&p.spares)));
        }
        document.blocks.push(Block::Line(how(p), Tone::Dim));
        if let Some(answer) = &p.keep_or_drop {
            keep_or_drop(&mut document, answer, p);
        }
        document
    }

    fn slowed(&self, s: &Sensitivity) -> Document {
        let scale = Scale::new(s.baseline.value, half(&s.baseline.sampling));
        let mut document = Document::new(format!(
            "One worker slowed by {} on {}: {} of step time without that is {} [{} to {}]",
            s.slow,
            self.name(),
            name(s.objective),
            scale.with_unit(s.baseline.value),
            scale.show(s.baseline.sampling.lower),
            scale.show(s.baseline.sampling.upper),
        ));
        let objective = format!(">{}", name(s.objective));
        let mut table = Table::new(
            format!(
                "One worker slowed by {}, {} replica{} in turn",
                s.slow,
                s.replicas.len(),
                if s.replicas.len() == 1 { "" } else { "s" }
            ),
            &[">stage", &objective, "interval, sampling", "by replica"],
        );
        for stage in &s.stages {
            let tone = if stage.stage == s.worst_stage { Tone::Strong } else { Tone::Plain };
            let each: Vec<String> = stage.by_replica.iter().map(|r| signed(r.value)).collect();
            table.toned(
                vec![
                    stage.stage.to_string(),
                    signed(stage.ratio.value),
                    between(&stage.ratio.sampling),
                    each.join(", "),
                ],
                tone,
            );
        }
        document.table(table);
        document.line(format!(
            "stage {} is the best place for it, stage {} the worst: {}",
            s.best_stage,
            s.worst_stage,
            times(&s.worst_over_best),
        ));
        document
    }

    /// The assignment, one row a cell, then the spares; or the stages of a table of slow workers.
    ///
    /// # Errors
    /// [`ReportError::Csv`].
    pub fn csv(&self) -> Result<String, ReportError> {
        match (&self.placement, &self.sensitivity) {
            (Some(placement), _) => assignment_csv(placement),
            (None, Some(sensitivity)) => sensitivity_csv(sensitivity),
            (None, None) => csv_text::<Vec<String>>(&["replica", "stage"], &[]),
        }
    }
}

fn assignment_csv(p: &Placement) -> Result<String, ReportError> {
    let header = ["replica", "stage", "worker", "factor", "given"];
    let cell = |c: &prism_decide::place::Cell| {
        vec![
            c.replica.to_string(),
            c.stage.to_string(),
            c.worker.clone(),
            number(Some(c.factor)),
            c.given.clone(),
        ]
    };
    let mut rows: Vec<Vec<String>> = p.cells.iter().map(cell).collect();
    for spare in &p.spares {
        rows.push(vec![String::new(), String::new(), spare.clone(), String::new(), String::new()]);
    }
    csv_text(&header, &rows)
}

fn sensitivity_csv(s: &Sensitivity) -> Result<String, ReportError> {
    let header = ["stage", "replica", "slow", "ratio", "sampling_lower", "sampling_upper"];
    let mut rows = Vec::new();
    for stage in &s.stages {
        let mut add = |replica: String, r: &Ratio| {
            rows.push(vec![
                stage.stage.to_string(),
                replica,
                number(Some(s.slow)),
                number(Some(r.value)),
                number(Some(r.sampling.lower)),
                number(Some(r.sampling.upper)),
            ]);
        };
        add("mean".to_owned(), &stage.ratio);
        for (replica, ratio) in s.replicas.iter().zip(&stage.by_replica) {
            add(replica.to_string(), ratio);
        }
    }
    csv_text(&header, &rows)
}

fn name(objective: Objective) -> &'static str {
    match objective {
        Objective::P95 => "p95",
        Objective::Mean => "mean",
        Objective::Cvar => "CVaR of the slowest 5 %",
    }
}

fn verdict(p: &Placement) -> (String, Tone) {
    let what = name(p.gains.objective);
    if p.improved {
        let text = format!(
            "The placement is {} faster than the order as given at {what} (paired, {} samples)",
            times(&p.gains.over_given),
            count(p.samples)
        );
        (text, Tone::Good)
    } else {
        let text = format!(
            "No order was found that beats the order as given at {what}: keep it ({} samples that were \
             not searched on)",
            count(p.samples)
        );
        (text, Tone::Caution)
    }
}

/// `1.26x [1.25 to 1.27]`.
fn times(ratio: &Ratio) -> String {
    let digits = digits(half(&ratio.sampling));
    format!(
        "{:.digits$}x [{:.digits$} to {:.digits$}]",
        ratio.value, ratio.sampling.lower, ratio.sampling.upper
    )
}

fn digits(half_width: f64) -> usize {
    if half_width > 0.0 { (1.0 - half_width.log10().floor()).clamp(2.0, 5.0) as usize } else { 3 }
}

fn half(bounds: &Bounds) -> f64 {
    0.5 * (bounds.upper - bounds.lower)
}

fn signed(ratio: f64) -> String {
    format!("{:+.2} %", 100.0 * (ratio - 1.0))
}

fn between(bounds: &Bounds) -> String {
    format!("{} to {}", signed(bounds.lower), signed(bounds.upper))
}

fn orders(p: &Placement) -> Table {
    let finest = half(&p.gains.placed.sampling);
    let scale = Scale::new(p.gains.given.value, if finest.is_finite() { finest } else { 0.0 });
    let columns = |g: &Gains| format!(">{} [{}]", name(g.objective), scale.unit);
    let objective = columns(&p.gains);
    let mut table = Table::new(
        "",
        &["order", &objective, "interval, sampling", "over the placement, paired", ">mean over it"],
    );
    let interval = |e: &Estimate| {
        format!("{} to {}", scale.show(e.sampling.lower), scale.show(e.sampling.upper))
    };
    let (g, m) = (&p.gains, &p.mean);
    let mut row = |what: &str, e: &Estimate, ratio: Option<&Ratio>, mean: Option<&Ratio>, tone| {
        table.toned(
            vec![
                what.to_owned(),
                scale.show(e.value),
                interval(e),
                ratio.map_or_else(String::new, times),
                mean.map_or_else(String::new, |r| format!("{:.4}x", r.value)),
            ],
            tone,
        );
    };
    row("placement", &g.placed, None, None, Tone::Strong);
    row("as given", &g.given, Some(&g.over_given), Some(&m.over_given), Tone::Plain);
    row("worst met", &g.worst, Some(&g.over_worst), Some(&m.over_worst), Tone::Plain);
    let r = &g.random;
    table.row(vec![
        format!("random, mean of {}", r.orders),
        scale.show(r.mean_s),
        format!("{} to {} (range)", scale.show(r.lowest_s), scale.show(r.highest_s)),
        times(&g.over_random),
        format!("{:.4}x", m.over_random.value),
    ]);
    table
}

fn moves(p: &Placement) -> Table {
    let mut table = Table::new(
        "Few moves that give most",
        &["worker", ">factor", "from", "to", "in exchange for", "gain", "gain so far"],
    );
    for m in &p.moves {
        table.row(vec![
            m.worker.clone(),
            format!("{:.3}", m.factor),
            m.from.clone(),
            m.to.clone(),
            format!("{} ({:.3})", m.other, m.other_factor),
            times(&m.gain),
            times(&m.gain_so_far),
        ]);
    }
    table
}

fn changed(p: &Placement, whole: bool) -> Table {
    let changed: Vec<_> = p.cells.iter().filter(|c| c.worker != c.given).collect();
    let shown = if whole { changed.len() } else { changed.len().min(SHOWN) };
    let title = if shown < changed.len() {
        format!("Cells that change: {} of {}, all with -v", count(shown), count(changed.len()))
    } else {
        format!("Cells that change: {} of {}", count(changed.len()), count(p.cells.len()))
    };
    let mut table = Table::new(title, &[">replica", ">stage", "worker", ">factor", "was"]);
    for c in &changed[..shown] {
        table.row(vec![
            c.replica.to_string(),
            c.stage.to_string(),
            c.worker.clone(),
            format!("{:.3}", c.factor),
            c.given.clone(),
        ]);
    }
    table
}

fn listed(names: &[String]) -> String {
    let text = names.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => text,
        more => format!("{text} and {} more", count(more)),
    }
}

fn how(p: &Placement) -> String {
    let same = p.same.as_ref().map_or_else(String::new, |s| format!("; replicas share `{s}`"));
    let on = format!("on {} other samples", count(p.search_samples));
    match p.method {
        Method::Exhaustive { orders } => {
            format!("all {} distinct orders computed {on}{same}", count(orders as usize))
        }
        Method::LocalSearch { starts, accepted, computed, bounded } => format!(
            "local search {on}: {starts} starts, {} swaps taken, {} computed, {} bounded{same}",
            count(accepted as usize),
            count(computed as usize),
            count(bounded as usize)
        ),
    }
}

fn keep_or_drop(document: &mut Document, k: &KeepOrDrop, p: &Placement) {
    let scale = Scale::new(k.kept.value, half(&k.kept.sampling));
    let title = format!(
        "Slowest worker {} (factor {:.3}): {} of step time, and time per sample trained",
        k.worker,
        k.factor,
        name(p.gains.objective)
    );
    let step = format!(">step [{}]", scale.unit);
    let mut table = Table::new(
        title,
        &["what", &step, "interval, sampling", "time per sample, over keeping it"],
    );
    let mut row = |what: String, e: &Estimate, ratio: String| {
        let interval =
            format!("{} to {}", scale.show(e.sampling.lower), scale.show(e.sampling.upper));
        table.row(vec![what, scale.show(e.value), interval, ratio]);
    };
    row("keep it, at its best place".to_owned(), &k.kept, String::new());
    let dropped = format!("drop its replica ({} left)", k.replicas_left);
    row(dropped, &k.dropped, times(&k.dropped_over_kept));
    let spare = match k.spare {
        Spare::Given => "let a spare take over",
        Spare::Imagined => "if there were a spare of median speed",
    };
    row(spare.to_owned(), &k.replaced, times(&k.replaced_over_kept));
    document.table(table);
    let text = match k.advice {
        Advice::Keep => "Keep it: nothing that is there trains faster",
        Advice::Drop => "Drop its replica: fewer samples a step, but more a second",
        Advice::Replace => "Let a spare take over",
    };
    document.blocks.push(Block::Line(text.to_owned(), Tone::Strong));
}
