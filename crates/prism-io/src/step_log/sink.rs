//! What all formats have in common: runs, ascending steps, pauses, rules.

use std::collections::BTreeMap;

use super::PauseKind;
use crate::error::IoError;
use crate::options::Limits;
use crate::violation::{Place, Rule, Violations};

/// Takes what lines say and keeps it in order.
pub(super) struct Sink {
    pub(super) report: Violations,
    pub(super) runs: Vec<Run>,
    /// What was understood, in the order in which it is final; of each run in the order of its steps.
    pub(super) events: Vec<Event>,
    named: BTreeMap<(Option<String>, Option<String>), usize>,
    current: usize,
    limits: Limits,
    steps: u64,
}

/// One run of the log.
#[derive(Default)]
pub(super) struct Run {
    pub(super) name: Option<String>,
    pub(super) system: Option<String>,
    /// The last step.
    last: Option<i64>,
    /// The last step's time as it was written, to know its repetition.
    last_s: Option<f64>,
    /// When the last step ended, by the log's clock, moved past pauses.
    clock: Option<f64>,
    /// Whether a program started since the last step.
    started: bool,
    /// Pauses since the last step.
    pending: Vec<(PauseKind, Option<f64>)>,
    /// The first step, until the second says how many it is the mean of.
    held: Option<Step>,
}

/// One thing of a run.
pub(super) struct Event {
    /// Which run.
    pub(super) run: usize,
    pub(super) what: What,
}

/// What happened.
pub(super) enum What {
    Step(Step),
    Pause { kind: PauseKind, duration_s: Option<f64> },
}

/// A step, or the mean of several that end with it.
#[derive(Clone, Copy)]
pub(super) struct Step {
    pub(super) id: i64,
    /// Its time.
    pub(super) seconds: f64,
    pub(super) averaged_over: u32,
    /// Time since the step before; NaN where it is not known. Divided by `averaged_over`.
    pub(super) wall_s: f64,
}

/// What a line says of a step.
pub(super) struct Read {
    pub(super) step: i64,
    /// Seconds; `None` where the line is wrong and was reported.
    pub(super) step_s: Option<f64>,
    pub(super) over: Over,
    pub(super) wall: Wall,
    pub(super) repeats: Repeats,
}

/// How many steps a time is the mean of.
#[derive(Clone, Copy)]
pub(super) enum Over {
    Steps(u32),
    /// All since the line before.
    SinceLast,
}

/// What the line knows of the clock.
#[derive(Clone, Copy)]
pub(super) enum Wall {
    Unknown,
    /// When it was written, seconds.
    At(f64),
    /// The time since the step before.
    Took(f64),
}

/// What it means that a step is there again.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Repeats {
    /// An error.
    Wrong,
    /// The same line twice, if the time is the same.
    SameTime,
    /// Another rank's line.
    AnyTime,
}

impl Sink {
    pub(super) fn new(file: &str, limits: Limits) -> Self {
        Sink {
            report: Violations::new(file),
            runs: vec![Run::default()],
            events: Vec::new(),
            named: BTreeMap::new(),
            current: 0,
            limits,
            steps: 0,
        }
    }

    fn run(&mut self) -> &mut Run {
        &mut self.runs[self.current]
    }

    /// Goes on with the run of this name, and says which it is.
    pub(super) fn select(&mut self, run: Option<String>, system: Option<String>) -> usize {
        let key = (run, system);
        if let Some(&at) = self.named.get(&key) {
            self.current = at;
        } else {
            // The first name is that of the run that is there from the beginning.
            if !self.named.is_empty() {
                self.runs.push(Run::default());
            }
            self.current = self.runs.len() - 1;
            (self.run().name, self.run().system) = key.clone();
            self.named.insert(key, self.current);
        }
        self.current
    }

    /// Names what runs.
    pub(super) fn system(&mut self, name: &str) {
        self.run().system = Some(name.to_owned());
    }

    /// Notes that a program starts.
    pub(super) fn started(&mut self) {
        let run = self.run();
        if !std::mem::replace(&mut run.started, true) {
            run.clock = None;
        }
    }

    /// Whether the run has steps.
    pub(super) fn has_steps(&self) -> bool {
        self.runs[self.current].last.is_some()
    }

    /// The last step of the run since its program started.
    pub(super) fn last(&self) -> Option<i64> {
        let run = &self.runs[self.current];
        run.last.filter(|_| !run.started)
    }

    /// Goes on with a new run of the same system, after a restart.
    pub(super) fn restart(&mut self) {
        self.flush(self.current);
        let (system, clock) = (self.run().system.clone(), self.run().clock);
        self.current = self.runs.len();
        let pending = vec![(PauseKind::Restart, None)];
        self.runs.push(Run { system, clock, pending, ..Run::default() });
    }

    /// The next step starts at this time at the earliest.
    pub(super) fn clock(&mut self, at: f64) {
        self.run().clock = Some(at);
    }

    /// Keeps this much out of the time to the next step.
    pub(super) fn not_counted(&mut self, seconds: f64) {
        if let Some(clock) = &mut self.run().clock {
            *clock += seconds;
        }
    }

    /// A pause, of which several lines may tell: the longest duration counts.
    pub(super) fn pause(&mut self, kind: PauseKind, duration_s: Option<f64>) {
        self.pause_by(kind, duration_s, f64::max);
    }

    /// A pause that is added to one of its kind before the next step.
    pub(super) fn pause_more(&mut self, kind: PauseKind, duration_s: Option<f64>) {
        self.pause_by(kind, duration_s, |a, b| a + b);
    }

    fn pause_by(
        &mut self,
        kind: PauseKind,
        duration_s: Option<f64>,
        join: impl Fn(f64, f64) -> f64,
    ) {
        let duration_s = duration_s.filter(|d| d.is_finite() && *d >= 0.0);
        let pending = &mut self.run().pending;
        match pending.iter_mut().find(|p| p.0 == kind) {
            None => pending.push((kind, duration_s)),
            Some((_, known)) => {
                *known = match (*known, duration_s) {
                    (Some(a), Some(b)) => Some(join(a, b)),
                    (a, b) => a.or(b),
                };
            }
        }
    }

    /// Whether a pause of this kind was read since the last step.
    pub(super) fn paused(&self, kind: PauseKind) -> bool {
        self.runs[self.current].pending.iter().any(|p| p.0 == kind)
    }

    /// A time in its unit, if it is finite and positive; otherwise a violation.
    pub(super) fn positive(&mut self, name: &str, text: &str, at: Place) -> Option<f64> {
        let Ok(v) = text.parse::<f64>() else {
            let short: String = text.chars().take(40).collect();
            self.report.add(Rule::Number, at, || format!("{name} is `{short}`"));
            return None;
        };
        self.positive_value(name, v, at)
    }

    /// As [`Sink::positive`], of a number.
    pub(super) fn positive_value(&mut self, name: &str, v: f64, at: Place) -> Option<f64> {
        let rule = if v.is_finite() { Rule::Positive } else { Rule::Finite };
        if v.is_finite() && v > 0.0 {
            return Some(v);
        }
        self.report.add(rule, at, || format!("{name} is {v}"));
        None
    }

    /// A step.
    ///
    /// # Errors
    /// [`IoError::TooLarge`].
    pub(super) fn step(&mut self, read: &Read, at: Place) -> Result<(), IoError> {
        let step = read.step;
        if let Some(last) = self.run().last.filter(|last| step <= *last) {
            let same_time = self.run().last_s == read.step_s;
            // A trainer's own counter goes back only where the job was started anew, whether the log kept the
            // lines of that start or not.
            let back = step < last && read.repeats == Repeats::SameTime;
            if self.run().started || back {
                self.restart();
            } else if step == last
                && (read.repeats == Repeats::AnyTime
                    || (read.repeats == Repeats::SameTime && same_time))
            {
                return Ok(());
            } else {
                self.report
                    .add(Rule::StepsAscend, at, || format!("step {step} follows step {last}"));
                (self.run().last, self.run().last_s) = (Some(step), read.step_s);
                return Ok(());
            }
        } else if self.run().started && self.run().last.is_some() {
            self.pause(PauseKind::Restart, None);
        }
        // Units can take a time out of what numbers hold.
        let step_s = read.step_s.and_then(|s| self.positive_value("step time, seconds,", s, at));
        self.steps += 1;
        if self.steps > self.limits.rows {
            let (file, limit) = (self.report.file.clone(), self.limits.rows);
            return Err(IoError::TooLarge { file, limit, unit: "rows" });
        }
        self.ascending(&Read { step_s, ..*read });
        Ok(())
    }

    /// A step above the last.
    fn ascending(&mut self, read: &Read) {
        let (current, run) = (self.current, &mut self.runs[self.current]);
        let since =
            run.last.map(|last| u32::try_from(read.step.abs_diff(last)).unwrap_or(u32::MAX));
        let wall = match (read.wall, run.clock) {
            (Wall::Took(t), _) => t,
            // Clocks are set back at times.
            (Wall::At(now), Some(before)) if now >= before => now - before,
            _ => f64::NAN,
        };
        if let Wall::At(now) = read.wall {
            run.clock = Some(now);
        }
        run.started = false;
        (run.last, run.last_s) = (Some(read.step), read.step_s);
        if let (Some(held), Some(since)) = (run.held.take(), since) {
            // Steps count from 1 or 0, so the first line cannot be the mean of more than its number.
            let most = u32::try_from(held.id.max(1)).unwrap_or(u32::MAX);
            self.events.push(Event::step(current, held.over(since.min(most))));
        }
        self.flush_pauses(current);
        let Some(step_s) = read.step_s else { return };
        let one = Step { id: read.step, seconds: step_s, averaged_over: 1, wall_s: wall };
        match (read.over, since) {
            (Over::Steps(n), _) | (Over::SinceLast, Some(n)) => {
                self.events.push(Event::step(current, one.over(n)));
            }
            (Over::SinceLast, None) => self.runs[current].held = Some(one),
        }
    }

    /// Lets go of the pauses that are held back.
    fn flush_pauses(&mut self, run: usize) {
        for (kind, duration_s) in self.runs[run].pending.drain(..) {
            self.events.push(Event { run, what: What::Pause { kind, duration_s } });
        }
    }

    /// Lets go of all that is held back of a run.
    fn flush(&mut self, run: usize) {
        if let Some(held) = self.runs[run].held.take() {
            self.events.push(Event::step(run, held));
        }
        self.flush_pauses(run);
    }

    /// Lets go of all that is held back.
    pub(super) fn end(&mut self) {
        for run in 0..self.runs.len() {
            self.flush(run);
        }
    }
}

impl Event {
    fn step(run: usize, step: Step) -> Self {
        Event { run, what: What::Step(step) }
    }
}

impl Step {
    /// As the mean of so many steps.
    fn over(self, steps: u32) -> Self {
        Step { averaged_over: steps, wall_s: self.wall_s / f64::from(steps), ..self }
    }
}
