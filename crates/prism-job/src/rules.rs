//! What makes a job impossible, whatever it was read from.

mod model;
mod nearest;
mod plan;

pub use nearest::nearest_plans;

use crate::Job;

/// A rule that a job breaks, or a warning.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BrokenRule {
    /// Dotted key of the job file whose value should change first.
    pub key: &'static str,
    /// Other keys that take part.
    pub others: &'static [&'static str],
    /// Code of the rule, such as `tp-heads`.
    pub rule: &'static str,
    /// What is wrong: a sentence without a full stop.
    pub message: String,
    /// What to do; it names the nearest possible values where there are any.
    pub hint: String,
    /// The nearest possible values of `key`, the nearest first; empty where the key has no number or
    /// no value would do.
    pub nearest: Vec<u64>,
}

/// Where rules report. Messages are made only where someone will read them, so that a search may
/// check thousands of plans.
pub(crate) struct Report {
    count: usize,
    broken: Option<Vec<BrokenRule>>,
}

/// A broken rule's key, the other keys, and its code.
pub(crate) type Where = (&'static str, &'static [&'static str], &'static str);

/// A broken rule's message, hint and nearest possible values.
pub(crate) type What = (String, String, Vec<u64>);

impl Report {
    /// Checks a rule; `what` is made only if it is broken and the text wanted.
    pub(crate) fn require(&mut self, holds: bool, place: Where, what: impl FnOnce() -> What) {
        if holds {
            return;
        }
        self.count += 1;
        if let Some(broken) = &mut self.broken {
            let (key, others, rule) = place;
            let (message, hint, nearest) = what();
            broken.push(BrokenRule { key, others, rule, message, hint, nearest });
        }
    }
}

impl Job {
    /// All rules that the job breaks; empty for a possible job.
    ///
    /// A possible job allocates nothing.
    pub fn check(&self) -> Vec<BrokenRule> {
        let mut report = Report { count: 0, broken: Some(Vec::new()) };
        self.run_rules(&mut report);
        report.broken.unwrap_or_default()
    }

    /// Whether the job breaks no rule: as [`Job::check`] without the messages.
    pub fn is_possible(&self) -> bool {
        let mut report = Report { count: 0, broken: None };
        self.run_rules(&mut report);
        report.count == 0
    }

    /// What is possible and yet seldom meant.
    pub fn warnings(&self) -> Vec<BrokenRule> {
        let mut report = Report { count: 0, broken: Some(Vec::new()) };
        // A job that breaks rules has no meaning to warn about.
        if self.is_possible() {
            plan::warnings(self, &mut report);
        }
        report.broken.unwrap_or_default()
    }

    fn run_rules(&self, report: &mut Report) {
        if !model::positive(self, report) {
            return;
        }
        model::rules(self, report);
        plan::rules(self, report);
    }
}

/// `true` where `b` divides `a`; 0 divides nothing.
pub(crate) fn divides(b: u64, a: u64) -> bool {
    b != 0 && a.is_multiple_of(b)
}

/// Up to 3 values from 1 to `most` that satisfy `fits`, the nearest to `wanted` first, the smaller of
/// equals first.
pub(crate) fn nearest_values(wanted: u64, most: u64, fits: impl Fn(u64) -> bool) -> Vec<u64> {
    // Beyond this reach a value is not near; the bound keeps broken rules cheap.
    const REACH: u64 = 4096;
    let wanted = wanted.min(most);
    let mut found = Vec::new();
    for step in 0..=REACH {
        let below = wanted.checked_sub(step).filter(|v| *v >= 1 && *v <= most);
        let above = wanted.checked_add(step).filter(|v| step > 0 && *v >= 1 && *v <= most);
        for value in [below, above].into_iter().flatten() {
            if found.len() < 3 && fits(value) {
                found.push(value);
            }
        }
        if found.len() == 3 {
            break;
        }
    }
    found
}

/// `` try 4, 2 or 8 ``; a fallback where there are none.
pub(crate) fn try_values(key: &str, values: &[u64], otherwise: &str) -> String {
    let words: Vec<String> = values.iter().map(u64::to_string).collect();
    match words.split_last() {
        None => otherwise.to_owned(),
        Some((last, [])) => format!("try `{key} = {last}`"),
        Some((last, rest)) => format!("try `{key}` of {} or {last}", rest.join(", ")),
    }
}
