//! The section `[run]`, written out.

use super::super::quantity::Span;
use super::super::write::{Writer, quoted, text};
use crate::run::{Every, FailureClass, FailureRate, Onset, Recovery, RunPlan, Severity, SlowClass};

fn span(out: &mut Writer, key: &str, seconds: f64, comment: &str) {
    out.key(key, &quoted(Span::new(seconds)), comment);
}

fn spans(out: &mut Writer, values: &[(&str, Option<f64>, &str)]) {
    for (key, seconds, comment) in values {
        if let Some(seconds) = seconds {
            span(out, key, *seconds, comment);
        }
    }
}

pub(crate) fn run(out: &mut Writer, p: &RunPlan) {
    out.section("run");
    out.int("steps", p.steps, "optimizer steps");
    out.int("gpus", p.machines.gpus, "");
    out.int("gpus_per_node", p.machines.gpus_per_node, "");
    out.int("nodes_per_rack", p.machines.nodes_per_rack, "");
    out.int("nodes_per_switch", p.machines.nodes_per_switch, "");
    if let Some(start) = p.start {
        out.key("start", &text(&start.to_string()), "");
    }
    spans(out, &[("deadline", p.deadline_s, "after the start")]);
    if let Some(price) = p.gpu_hour_usd {
        out.float("gpu_hour_usd", price, "of one GPU");
    }
    if let Some(c) = p.checkpoint {
        out.section("run.checkpoint");
        match c.every {
            Every::Time(interval_s) => span(out, "interval", interval_s, "of training"),
            Every::Steps(steps) => out.int("interval_steps", steps, ""),
        }
        span(out, "blocking", c.blocking_s, "training stops");
        span(out, "write", c.write_s, "until it is durable; training goes on");
        span(out, "load", c.load_s, "after a restart");
    }
    if let Some(e) = p.evaluation {
        out.section("run.evaluation");
        out.int("every_steps", e.every_steps, "");
        span(out, "duration", e.duration_s, "training stops");
    }
    if let Some(d) = p.diurnal {
        out.section("run.diurnal");
        out.float("amplitude", d.amplitude, "half of the swing, a share of throughput");
        span(out, "period", d.period_s, "");
        span(out, "peak", d.peak_s, "time of day of the highest throughput, UTC");
    }
    if let Some(m) = p.maintenance {
        out.section("run.maintenance");
        span(out, "every", m.every_s, "");
        span(out, "duration", m.duration_s, "the restart comes on top");
    }
    recovery(out, &p.recovery);
    out.section("run.failures");
    if let Some(preset) = &p.failures.preset {
        out.key("preset", &text(preset), "every class below replaces the preset's");
    }
    out.word("rates", &p.failures.rates, "fixed, posterior");
    for class in &p.failures.classes {
        failure(out, class);
    }
    out.section("run.slow");
    if let Some(preset) = &p.slow.preset {
        out.key("preset", &text(preset), "every class below replaces the preset's");
    }
    out.flag("slowest", p.slow.slowest, "of several episodes the worst counts; else they add up");
    for class in &p.slow.classes {
        slow(out, class);
    }
}

fn recovery(out: &mut Writer, c: &Recovery) {
    out.section("run.recovery");
    out.word("policy", &c.policy, "restart, warm-standby, elastic, in-memory");
    span(out, "detection", c.detection_s, "until a failure is noticed");
    span(out, "restart", c.restart_s, "without loading and the slow first steps");
    if let Some(spares) = c.spares {
        out.int("spares", spares, "nodes in reserve");
    }
    let swap = ("standby_swap", c.standby_swap_s, "in place of a restart");
    spans(out, &[("repair", c.repair_s, "of a lost node"), swap]);
    if let Some(e) = c.elastic {
        out.section("run.recovery.elastic");
        out.int("replicas", e.replicas, "that hold all state between them");
        span(out, "shrink", e.shrink_s, "to go on without one");
        span(out, "regrow", e.regrow_s, "when one comes back");
        out.flag("keep_batch", e.keep_batch, "the replicas left share the whole batch");
    }
    if let Some(m) = c.in_memory {
        out.section("run.recovery.in_memory");
        span(out, "interval", m.interval_s, "of training");
        span(out, "blocking", m.blocking_s, "training stops");
        span(out, "load", m.load_s, "after a restart");
        out.flag("replicated", m.replicated, "survives the loss of a node");
    }
}

fn failure(out: &mut Writer, class: &FailureClass) {
    out.table("run.failures.class");
    out.key("name", &text(&class.name), "");
    out.word("domain", &class.domain, "gpu, node, rack, switch, job");
    match class.rate {
        FailureRate::PerThousandNodeDays(rate) => out.float("rate_per_1000_node_days", rate, ""),
        FailureRate::MeanTimeBetween(mtbf_s) => span(out, "mtbf", mtbf_s, "of one unit"),
        FailureRate::Counted { count, gpus, duration_s } => {
            out.int("count", count, "failures");
            out.int("gpus", gpus, "on so many");
            span(out, "duration", duration_s, "for so long");
        }
    }
    out.flag("replaces", class.replaces, "the nodes lost need others in their place");
    spans(
        out,
        &[
            ("detection", class.detection_s, ""),
            ("restart", class.restart_s, ""),
            ("repair", class.repair_s, ""),
        ],
    );
}

fn slow(out: &mut Writer, class: &SlowClass) {
    out.table("run.slow.class");
    out.key("name", &text(&class.name), "");
    out.word("kind", &class.kind, "compute, link");
    out.word("domain", &class.domain, "gpu, node, rack, switch, job");
    match class.onset {
        Onset::PerUnitDay(rate) => out.float("per_unit_day", rate, "episodes"),
        Onset::PerJobHour(rate) => out.float("per_job_hour", rate, "episodes"),
        Onset::Share(share) => out.float("share", share, "of units, from start to end"),
    }
    out.float("exposed", class.exposed, "share of runs that meet it");
    span(out, "mean", class.mean_s, "length of an episode");
    out.float("sigma", class.sigma, "s.d. of its log");
    match &class.severity {
        Severity::LogNormal { median, sigma } => {
            out.float("factor", *median, "median factor on steps");
            out.float("factor_sigma", *sigma, "s.d. of the log of the excess");
        }
        Severity::Values(values) => out.key("factors", &format!("{values:?}"), "equally likely"),
    }
    out.flag("factor_per_run", class.severity_per_run, "one factor for all episodes of a run");
}
