//! For other programs.

use prism_decide::reference::{Estimate, Explained, PartSlowdown};
use prism_engine::replay::StepReplay;

use super::WhatifReferenceOutput;
use crate::csv_table::number;
use crate::{ReportError, csv_text};

/// A part of the job: operation type, rank, replica, stage; empty where the figure is not of one.
#[derive(Clone, Default)]
struct Part {
    op_type: String,
    rank: String,
    dp: String,
    stage: String,
}

struct Rows {
    cells: Vec<Vec<String>>,
    steps: Vec<i64>,
    per_step: bool,
}

impl Rows {
    fn add(&mut self, figure: &str, part: &Part, step: Option<i64>, value: Option<f64>) {
        self.push(figure, part, step, [value, None, None]);
    }

    fn push(&mut self, figure: &str, part: &Part, step: Option<i64>, values: [Option<f64>; 3]) {
        let mut row = vec![figure.to_owned()];
        let Part { op_type, rank, dp, stage } = part.clone();
        row.extend([op_type, rank, dp, stage]);
        row.push(step.map_or_else(String::new, |s| s.to_string()));
        row.extend(values.map(number));
        self.cells.push(row);
    }

    fn estimate(&mut self, figure: &str, part: &Part, estimate: Option<&Estimate>) {
        let bounds = estimate.and_then(|e| e.interval);
        let values = [estimate.map(|e| e.value), bounds.map(|b| b.lower), bounds.map(|b| b.upper)];
        self.push(figure, part, None, values);
    }

    fn steps(&mut self, figure: &str, part: &Part, values: &[f64]) {
        if self.per_step {
            for (step, &value) in self.steps.clone().into_iter().zip(values) {
                self.add(figure, part, Some(step), Some(value));
            }
        }
    }

    fn part(&mut self, figure: &str, part: &Part, of: &PartSlowdown) {
        self.estimate(figure, part, Some(&of.slowdown));
        self.steps(figure, part, &of.per_step);
    }

    fn explained(&mut self, set: &str, e: &Explained) {
        let none = Part::default();
        self.estimate(&format!("{set}_rem"), &none, e.rem.as_ref());
        self.estimate(&format!("{set}_add"), &none, e.add.as_ref());
        self.add(&format!("{set}_trem_s"), &none, None, Some(e.trem_s));
        self.add(&format!("{set}_tadd_s"), &none, None, Some(e.tadd_s));
        self.add(&format!("{set}_tori_s"), &none, None, Some(e.tori_s));
        self.add(&format!("{set}_tideal_s"), &none, None, Some(e.tideal_s));
    }
}

impl WhatifReferenceOutput {
    /// One row a figure: what it is, of which part of the job and step, its value and interval.
    /// Figures of single steps if asked.
    ///
    /// # Errors
    /// [`ReportError::Csv`].
    pub fn csv(&self, per_step: bool) -> Result<String, ReportError> {
        let r = &self.report;
        let steps = r.steps.iter().map(|s| s.step).collect();
        let mut rows = Rows { cells: Vec::new(), steps, per_step };
        let none = Part::default();
        let each = |f: &dyn Fn(&StepReplay) -> f64| r.steps.iter().map(f).collect::<Vec<_>>();
        for (figure, mean, bounds, each) in [
            ("base_s", r.mean_base_s, r.mean_base_interval_s, each(&|s| s.base_s)),
            ("no_delay_s", r.mean_no_delay_s, r.mean_no_delay_interval_s, each(&|s| s.no_delay_s)),
            ("ideal_s", r.mean_ideal_s, None, each(&|s| s.ideal_s)),
        ] {
            let bounds = [bounds.map(|b| b.lower), bounds.map(|b| b.upper)];
            rows.push(figure, &none, None, [Some(mean), bounds[0], bounds[1]]);
            rows.steps(figure, &none, &each);
        }
        rows.estimate("slowdown", &none, Some(&r.slowdown));
        rows.steps("slowdown", &none, &each(&|s| s.slowdown));
        rows.estimate("launch_slowdown", &none, Some(&r.launch_slowdown));
        rows.steps("launch_slowdown", &none, &each(&|s| s.launch_slowdown));
        self.decomposition_rows(&mut rows);
        let header =
            ["figure", "op_type", "rank", "dp", "stage", "step", "value", "lower", "upper"];
        csv_text(&header, &rows.cells)
    }

    fn decomposition_rows(&self, rows: &mut Rows) {
        let Some(parts) = &self.report.decomposition else { return };
        for (name, part) in &parts.by_op_type {
            let op_type = name.clone();
            rows.part("slowdown_by_op_type", &Part { op_type, ..Part::default() }, part);
        }
        for (stage, part) in &parts.by_stage {
            let stage = stage.to_string();
            rows.part("slowdown_by_stage", &Part { stage, ..Part::default() }, part);
        }
        for (dp, part) in &parts.by_dp {
            let dp = dp.to_string();
            rows.part("slowdown_by_dp", &Part { dp, ..Part::default() }, part);
        }
        for w in &parts.workers {
            let part = Part {
                op_type: String::new(),
                rank: w.rank.to_string(),
                dp: w.dp.to_string(),
                stage: w.stage.to_string(),
            };
            rows.estimate("slowdown_by_worker", &part, Some(&w.slowdown));
            rows.steps("slowdown_by_worker", &part, &w.per_step);
        }
        rows.explained("slowest_workers", &parts.slowest_workers);
        rows.explained("last_stage", &parts.last_stage);
    }

    /// Slowdowns of all workers (`S_w`): one row a replica, one column a stage. `None` where the
    /// slowdown is not decomposed.
    ///
    /// # Errors
    /// [`ReportError::Csv`].
    pub fn heatmap_csv(&self) -> Result<Option<String>, ReportError> {
        let Some(parts) = &self.report.decomposition else { return Ok(None) };
        let mut header = vec!["dp".to_owned()];
        header.extend(parts.by_stage.keys().map(|s| format!("stage_{s}")));
        let header: Vec<&str> = header.iter().map(String::as_str).collect();
        let rows: Vec<Vec<String>> = parts
            .workers
            .chunks(parts.by_stage.len().max(1))
            .map(|row| {
                let mut cells = vec![row.first().map_or_else(String::new, |w| w.dp.to_string())];
                cells.extend(row.iter().map(|w| number(Some(w.slowdown.value))));
                cells
            })
            .collect();
        csv_text(&header, &rows).map(Some)
    }
}
