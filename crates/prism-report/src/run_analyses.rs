//! What else is looked into of a run: checkpoint interval, spares, failures, policies.

use prism_run::optimise::BestInterval;
use prism_run::policies::PolicyRow;
use prism_run::sensitivity::Sensitivity;
use prism_run::spares::Spares;
use prism_run::summary::Estimate;

use crate::csv_table::number;
use crate::predict::percent_short;
use crate::run::{RunOutput, between};
use crate::watch::{long, long_pair};
use crate::{Document, Table, percent};

impl RunOutput {
    /// Rows of what else was looked into.
    pub(crate) fn analyses_csv(&self, rows: &mut Vec<Vec<String>>) {
        let mut row = |name: String, e: &Estimate| {
            rows.push(vec![
                name,
                number(Some(e.value)),
                number(Some(e.lower)),
                number(Some(e.upper)),
            ]);
        };
        if let Some(best) = &self.interval {
            row("best_interval_s".to_owned(), &best.interval_s);
            row("half_interval_ratio".to_owned(), &best.half);
            row("double_interval_ratio".to_owned(), &best.double);
            row("planned_interval_ratio".to_owned(), &best.planned);
        }
        for s in self.sensitivity.iter().flat_map(|s| &s.classes) {
            let class = s.class.as_deref().unwrap_or("all classes");
            row(format!("without {class}, s"), &s.removed_s);
            row(format!("half of {class}, s"), &s.halved_s);
            row(format!("twice {class}, s"), &s.doubled_s);
        }
        for p in &self.policies {
            row(format!("{}_total_s", p.policy), &p.total_s);
            row(format!("{}_faster", p.policy), &p.faster);
        }
        for s in self.spares.iter().flat_map(|s| &s.rows) {
            row(format!("{} spares, P(a failure waits)", s.spares), &s.wait);
            row(format!("{} spares, total_s", s.spares), &s.total_s);
        }
        if let Some(s) = &self.spares {
            let (value, none) = (number(Some(f64::from(s.needed))), String::new());
            rows.push(vec!["spares_needed".to_owned(), value, none.clone(), none]);
        }
    }
}

pub(crate) fn interval(document: &mut Document, best: &BestInterval) {
    let e = &best.interval_s;
    let edge = if best.at_edge { " (the edge of what was tried)" } else { "" };
    let daly = best.daly_s.map_or(String::new(), |t| format!("; Daly's formula says {}", long(t)));
    document.line(format!(
        "best checkpoint interval {}{edge}, {} with its sampling error{daly}",
        long(e.value),
        long_pair(e.lower, e.upper)
    ));
    let mut table = Table::new("", &["checkpoint interval", ">run is longer by", "interval"]);
    let less = |v: f64| format!("{:+.3} %", 100.0 * (v - 1.0));
    for (name, ratio) in
        [("half of it", &best.half), ("twice it", &best.double), ("the plan's", &best.planned)]
    {
        table.row(vec![name.to_owned(), less(ratio.value), between(ratio, less)]);
    }
    document.table(table);
    document.line(format!(
        "from {} to {} the run is less than 0.1 % longer",
        long(best.flat_s[0]),
        long(best.flat_s[1])
    ));
}

pub(crate) fn spares(s: &Spares) -> Table {
    let title = format!(
        "{} spare nodes for an availability of {} ({:.2} nodes under repair on average)",
        s.needed,
        percent_short(s.level),
        s.under_repair
    );
    let columns =
        [">spares", ">P(a failure waits)", ">in steady state", ">waiting", ">completion time"];
    let mut table = Table::new(title, &columns);
    for r in &s.rows {
        table.row(vec![
            r.spares.to_string(),
            format!("{} ({})", percent(r.wait.value), between(&r.wait, percent)),
            percent(r.wait_analytic),
            long(r.waiting_s.value),
            match r.unfinished {
                0 => long(r.total_s.value),
                n => format!("at least {}: {n} runs given up", long(r.total_s.value)),
            },
        ]);
    }
    table
}

pub(crate) fn sensitivity(s: &Sensitivity) -> Table {
    let title =
        format!("What failures cost, of a mean completion time of {}", long(s.base_s.value));
    let columns =
        ["class", ">a day", ">gone", "interval", ">at half the rate", ">at twice the rate"];
    let mut table = Table::new(title, &columns);
    let mut all: Vec<_> = s.classes.iter().collect();
    all.sort_by(|a, b| a.removed_s.value.total_cmp(&b.removed_s.value));
    for c in all {
        table.row(vec![
            c.class.clone().unwrap_or_else(|| "all classes".to_owned()),
            format!("{:.3}", c.per_day),
            long(c.removed_s.value),
            long_pair(c.removed_s.lower, c.removed_s.upper),
            long(c.halved_s.value),
            long(c.doubled_s.value),
        ]);
    }
    table
}

pub(crate) fn policies(rows: &[PolicyRow]) -> Table {
    let columns =
        ["policy", ">completion time", ">ETTR", ">faster than the first", "interval, paired"];
    let mut table = Table::new("Policies, on the same failures", &columns);
    let times = |v: f64| format!("{v:.4}x");
    for r in rows {
        table.row(vec![
            r.policy.to_string(),
            match r.unfinished {
                0 => long(r.total_s.value),
                n => format!("at least {}: {n} runs given up", long(r.total_s.value)),
            },
            format!("{:.4}", r.ettr.value),
            times(r.faster.value),
            between(&r.faster, times),
        ]);
    }
    table
}
