//! What makes a run impossible, whatever it was read from.

use super::{
    Domain, Every, FailureClass, FailureRate, Onset, Policy, RunPlan, Severity, SlowClass,
};

/// A rule that a run breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BrokenRunRule {
    /// Dotted key of the file, such as `run.failures.class.0.mtbf`.
    pub key: String,
    /// Code of the rule, such as `positive`.
    pub rule: &'static str,
    /// What is wrong: a sentence without a full stop.
    pub message: String,
    /// What to do.
    pub hint: Option<String>,
}

struct Report(Vec<BrokenRunRule>);

impl Report {
    fn require(&mut self, holds: bool, key: &str, rule: &'static str, message: String, hint: &str) {
        if !holds {
            let hint = Some(hint.to_owned()).filter(|h| !h.is_empty());
            self.0.push(BrokenRunRule { key: key.to_owned(), rule, message, hint });
        }
    }

    fn positive(&mut self, value: f64, key: &str) {
        let message = format!("`{key}` must be above 0, not {value}");
        self.require(value.is_finite() && value > 0.0, key, "positive", message, "");
    }

    fn time(&mut self, value: f64, key: &str) {
        let message = format!("`{key}` must be at least 0, not {value}");
        self.require(value.is_finite() && value >= 0.0, key, "range", message, "");
    }

    fn times(&mut self, values: &[(Option<f64>, &str)], section: &str) {
        for (value, key) in values {
            if let Some(value) = value {
                self.time(*value, &format!("{section}.{key}"));
            }
        }
    }

    fn share(&mut self, value: f64, key: &str, zero: bool) {
        let fits = value <= 1.0 && (value > 0.0 || (zero && value == 0.0));
        let bounds = if zero { "from 0 to 1" } else { "above 0 and up to 1" };
        let message = format!("`{key}` is a share {bounds}, not {value}");
        self.require(fits, key, "share", message, "0.05 is 5 %");
    }

    fn count(&mut self, value: u64, key: &str) {
        self.require(value > 0, key, "positive", format!("`{key}` must be at least 1"), "");
    }
}

/// More steps or GPUs than any run has; sums of whole numbers stay exact in an `f64` below it.
const MOST: u64 = 1 << 32;

impl RunPlan {
    /// All rules that the run breaks; empty for a possible one.
    pub fn check(&self) -> Vec<BrokenRunRule> {
        let mut report = Report(Vec::new());
        self.size(&mut report);
        self.regular_stops(&mut report);
        for (i, class) in self.failures.classes.iter().enumerate() {
            failure(&mut report, class, &format!("run.failures.class.{i}"));
        }
        let names: Vec<&str> = self.failures.classes.iter().map(|c| c.name.as_str()).collect();
        unique(&mut report, &names, "run.failures.class");
        self.recovery(&mut report);
        for (i, class) in self.slow.classes.iter().enumerate() {
            slow(&mut report, class, &format!("run.slow.class.{i}"));
        }
        let names: Vec<&str> = self.slow.classes.iter().map(|c| c.name.as_str()).collect();
        unique(&mut report, &names, "run.slow.class");
        report.0
    }

    fn size(&self, r: &mut Report) {
        r.count(self.steps, "run.steps");
        for (value, key) in [(self.steps, "run.steps"), (self.machines.gpus, "run.gpus")] {
            let message = format!("`{key}` of {value} is beyond any run");
            r.require(value < MOST, key, "range", message, "");
        }
        r.count(self.machines.gpus, "run.gpus");
        let m = &self.machines;
        r.count(m.gpus_per_node.into(), "run.gpus_per_node");
        r.count(m.nodes_per_rack.into(), "run.nodes_per_rack");
        r.count(m.nodes_per_switch.into(), "run.nodes_per_switch");
        for (value, key) in
            [(self.deadline_s, "run.deadline"), (self.tokens_per_step, "run.tokens")]
        {
            if let Some(value) = value {
                r.positive(value, key);
            }
        }
        if let Some(price) = self.gpu_hour_usd {
            r.time(price, "run.gpu_hour_usd");
        }
    }

    fn regular_stops(&self, r: &mut Report) {
        if let Some(c) = self.checkpoint {
            match c.every {
                Every::Time(interval_s) => {
                    let key = "run.checkpoint.interval";
                    r.positive(interval_s, key);
                    let message = format!(
                        "a checkpoint takes {} s to write and the next begins after {interval_s} s",
                        c.write_s
                    );
                    let hint = "let each be written before the next: a longer interval";
                    let fits = interval_s.is_nan() || c.write_s.is_nan() || c.write_s <= interval_s;
                    r.require(fits, key, "write-interval", message, hint);
                }
                Every::Steps(steps) => r.count(steps, "run.checkpoint.interval_steps"),
            }
            let times = [
                (Some(c.blocking_s), "blocking"),
                (Some(c.write_s), "write"),
                (Some(c.load_s), "load"),
            ];
            r.times(&times, "run.checkpoint");
        }
        if let Some(e) = self.evaluation {
            r.count(e.every_steps, "run.evaluation.every_steps");
            r.time(e.duration_s, "run.evaluation.duration");
        }
        if let Some(d) = self.diurnal {
            r.share(d.amplitude, "run.diurnal.amplitude", true);
            let message = "an amplitude of 1 stops the run at night".to_owned();
            r.require(
                d.amplitude != 1.0,
                "run.diurnal.amplitude",
                "range",
                message,
                "0.01 is ±1 %",
            );
            r.positive(d.period_s, "run.diurnal.period");
            r.time(d.peak_s, "run.diurnal.peak");
        }
        if let Some(m) = self.maintenance {
            r.positive(m.every_s, "run.maintenance.every");
            r.time(m.duration_s, "run.maintenance.duration");
        }
    }

    fn recovery(&self, r: &mut Report) {
        let c = &self.recovery;
        let times = [
            (Some(c.detection_s), "detection"),
            (Some(c.restart_s), "restart"),
            (c.repair_s, "repair"),
            (c.standby_swap_s, "standby_swap"),
            (c.elastic.map(|e| e.shrink_s), "elastic.shrink"),
            (c.elastic.map(|e| e.regrow_s), "elastic.regrow"),
            (c.in_memory.map(|m| m.blocking_s), "in_memory.blocking"),
            (c.in_memory.map(|m| m.load_s), "in_memory.load"),
        ];
        r.times(&times, "run.recovery");
        if let Some(m) = c.in_memory {
            r.positive(m.interval_s, "run.recovery.in_memory.interval");
        }
        self.policy(r);
        let replaced: Vec<&FailureClass> =
            self.failures.classes.iter().filter(|f| f.replaces).collect();
        let lasting = replaced.iter().find(|f| f.repair_s.or(c.repair_s).is_none());
        if let (Some(spares), Some(class)) = (c.spares, lasting) {
            let message = format!(
                "{spares} spare nodes, and nodes lost to `{}` are never repaired: the run would end up \
                 waiting for ever",
                class.name
            );
            let hint = "write `repair`, such as \"3d\", or leave `spares` out";
            r.require(false, "run.recovery.repair", "repair", message, hint);
        }
        let nodes = self.machines.nodes();
        if let Some(spares) = c.spares {
            let message = format!("{spares} spare nodes for a job of {nodes}");
            let hint = "spares are nodes, not GPUs";
            let fits = u64::from(spares) <= nodes;
            r.require(fits, "run.recovery.spares", "spares", message, hint);
        }
    }

    fn policy(&self, r: &mut Report) {
        let c = &self.recovery;
        let missing = match c.policy {
            Policy::WarmStandby if c.standby_swap_s.is_none() => Some("standby_swap"),
            Policy::Elastic if c.elastic.is_none() => Some("elastic"),
            Policy::InMemory if c.in_memory.is_none() => Some("in_memory"),
            _ => None,
        };
        if let Some(part) = missing {
            let message = format!("policy `{}` needs `run.recovery.{part}`", c.policy);
            r.require(false, "run.recovery.policy", "policy", message, "");
        }
        if c.policy == Policy::WarmStandby && c.spares == Some(0) {
            let message = "warm standby without a spare node".to_owned();
            let hint = "at least one node must stand by";
            r.require(false, "run.recovery.spares", "spares", message, hint);
        }
        if let Some(e) = c.elastic {
            let key = "run.recovery.elastic.replicas";
            let nodes = self.machines.nodes();
            let message = format!("{} replicas on {nodes} nodes", e.replicas);
            let hint = "elastic recovery needs at least 2 replicas, each on whole nodes";
            let fits = e.replicas >= 2 && nodes.is_multiple_of(u64::from(e.replicas.max(1)));
            r.require(fits, key, "replicas", message, hint);
        }
        let fails = self.failures.classes.iter().any(|f| f.job_rate(&self.machines) > 0.0);
        if fails && self.checkpoint.is_none() {
            let message =
                "the run can fail and writes no checkpoints: it would begin anew each time";
            let hint = "write a table of `interval`, `blocking`, `write` and `load`";
            r.require(false, "run.checkpoint", "missing", message.to_owned(), hint);
        }
    }
}

fn failure(r: &mut Report, class: &FailureClass, key: &str) {
    match class.rate {
        FailureRate::PerThousandNodeDays(rate) => {
            r.time(rate, &format!("{key}.rate_per_1000_node_days"));
        }
        FailureRate::MeanTimeBetween(mtbf_s) => r.positive(mtbf_s, &format!("{key}.mtbf")),
        FailureRate::Counted { gpus, duration_s, .. } => {
            r.count(gpus, &format!("{key}.gpus"));
            r.positive(duration_s, &format!("{key}.duration"));
        }
    }
    let times = [
        (class.detection_s, "detection"),
        (class.restart_s, "restart"),
        (class.repair_s, "repair"),
    ];
    r.times(&times, key);
    let message = format!("`{}` is of the job: no node is lost that could be replaced", class.name);
    let fits = !(class.replaces && class.domain == Domain::Job);
    let hint = "name the domain that fails, or leave `replaces` out";
    r.require(fits, &format!("{key}.replaces"), "replaces", message, hint);
}

fn slow(r: &mut Report, class: &SlowClass, key: &str) {
    match class.onset {
        Onset::PerUnitDay(rate) => r.time(rate, &format!("{key}.per_unit_day")),
        Onset::PerJobHour(rate) => r.time(rate, &format!("{key}.per_job_hour")),
        Onset::Share(share) => r.share(share, &format!("{key}.share"), true),
    }
    if !matches!(class.onset, Onset::Share(_)) {
        r.positive(class.mean_s, &format!("{key}.mean"));
    }
    r.share(class.exposed, &format!("{key}.exposed"), false);
    let spread = |r: &mut Report, value: f64, name: &str| {
        let key = format!("{key}.{name}");
        let message = format!("`{key}` is a s.d. of a log, from 0 to 3, not {value}");
        r.require((0.0..=3.0).contains(&value), &key, "spread", message, "0.5 is a factor of 1.6");
    };
    spread(r, class.sigma, "sigma");
    let factor = |r: &mut Report, value: f64, name: &str| {
        let key = format!("{key}.{name}");
        let message = format!("`{key}` is a factor on the time of steps, at least 1, not {value}");
        let fits = value.is_finite() && value >= 1.0;
        r.require(fits, &key, "factor", message, "1.2 is a fifth slower");
    };
    match &class.severity {
        Severity::LogNormal { median, sigma } => {
            factor(r, *median, "factor");
            spread(r, *sigma, "factor_sigma");
        }
        Severity::Values(values) => {
            let message = format!("`{key}.factors` is empty");
            r.require(!values.is_empty(), &format!("{key}.factors"), "missing", message, "");
            for value in values {
                factor(r, *value, "factors");
            }
        }
    }
}

fn unique(r: &mut Report, names: &[&str], section: &str) {
    for (i, name) in names.iter().enumerate() {
        if names[..i].contains(name) {
            let message = format!("two classes are named `{name}`");
            let key = format!("{section}.{i}.name");
            r.require(false, &key, "name", message, "give each its own name");
        }
    }
}
