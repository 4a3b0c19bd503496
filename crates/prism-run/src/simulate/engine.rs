//! One run.

use prism_job::run::{Policy, Rates};
use prism_stats::stream;
use rand_chacha::ChaCha8Rng;

use super::clock::{Failure, Table};
use super::constants::{CHECKPOINT, Class, Constants, EVALUATION, SNAPSHOT};
use super::episodes::Episodes;
use super::pace::{check, level};
use super::pool::Pool;
use super::work::Work;
use crate::outcome::{Cause, RunOutcome};
use crate::{RunError, Steps};

/// Failures in a row without getting a step further after which a run is given up: it gets nowhere.
pub(super) const MOST_STUCK: u32 = 1_000;

/// Memory that one run after another uses.
#[derive(Default)]
pub(super) struct Workspace {
    pub(super) table: Table,
    pub(super) filled: bool,
    pub(super) pool: Pool,
    /// When lost replicas come back, in no order.
    pub(super) returns_s: Vec<f64>,
    /// Failures of each class.
    pub(super) failures: Vec<u32>,
    /// Work lost to each class, seconds.
    pub(super) lost_s: Vec<f64>,
}

/// Simulates a run by its number.
pub(super) fn run(
    steps: &dyn Steps,
    c: &Constants,
    workspace: &mut Workspace,
    number: u64,
) -> Result<RunOutcome, RunError> {
    let seed = c.options.seed;
    let mut rng = stream(seed, "run-pace", &[number]);
    let pace = steps.pace(&mut rng);
    check(&pace, number)?;
    let level = level(&pace, c.steps, &mut rng);
    if !workspace.filled {
        let rates = || stream(seed, "run-rates", &[number]);
        workspace.table.fill(c.plan, c.thinning, rates);
        workspace.filled = c.plan.failures.rates == Rates::Fixed;
    }
    workspace.failures.clear();
    workspace.failures.resize(c.classes.len(), 0);
    workspace.lost_s.clear();
    workspace.lost_s.resize(c.classes.len(), 0.0);
    workspace.returns_s.clear();
    workspace.pool.reset(c.plan.recovery.spares.unwrap_or(0));
    let work = Work::new(level.step_s, c.grids(level.step_s, pace.after_evaluation_s));
    let mut rng = stream(seed, "run-failures", &[number]);
    let next = workspace.table.next(0.0, &mut rng);
    let episodes = (!c.plan.slow.classes.is_empty())
        .then(|| Episodes::new(c.plan, stream(seed, "run-slow", &[number])));
    let alone_s = pace.warm_up_s + work.time_s(0, c.steps);
    let mut run = Run {
        c,
        w: workspace,
        work,
        warm_up_s: pace.warm_up_s,
        rng,
        episodes,
        next,
        maintenance_s: c.plan.maintenance.map_or(f64::INFINITY, |m| m.every_s),
        horizon_s: alone_s * c.options.horizon,
        t: 0.0,
        from: 0,
        durable: 0,
        warm_s: pace.warm_up_s,
        done_s: 0.0,
        causes_s: [0.0; Cause::ALL.len()],
        failures: 0,
        furthest: 0,
        stuck: 0,
        waits: 0,
    };
    let finished = run.follow();
    let mut causes_s = run.causes_s;
    let (total_s, failures, waits) = (run.t, run.failures, run.waits);
    let productive_s = causes_s[Cause::Steps as usize];
    causes_s[Cause::Stalls as usize] = productive_s * level.stalls;
    causes_s[Cause::Steps as usize] = productive_s * (1.0 - level.stalls);
    Ok(RunOutcome { total_s, finished, causes_s, failures, waits, step_s: level.step_s })
}

/// A run on its way.
pub(super) struct Run<'a, 'c> {
    pub(super) c: &'a Constants<'c>,
    pub(super) w: &'a mut Workspace,
    pub(super) work: Work,
    /// Excess of the first steps after a start.
    pub(super) warm_up_s: f64,
    pub(super) rng: ChaCha8Rng,
    pub(super) episodes: Option<Episodes>,
    /// The next failure.
    pub(super) next: Failure,
    /// When the next maintenance is due.
    pub(super) maintenance_s: f64,
    pub(super) horizon_s: f64,
    /// Now.
    pub(super) t: f64,
    /// Step after which the job went on last.
    pub(super) from: u32,
    /// Step of the last durable checkpoint.
    pub(super) durable: u32,
    /// Warm-up of this start.
    pub(super) warm_s: f64,
    /// Work done since this start, at the pace without slow-downs, seconds.
    pub(super) done_s: f64,
    pub(super) causes_s: [f64; Cause::ALL.len()],
    pub(super) failures: u32,
    /// Furthest step that the job went on from.
    pub(super) furthest: u32,
    /// Failures since it got further.
    pub(super) stuck: u32,
    pub(super) waits: u32,
}

/// What stops a job that runs.
enum Stop {
    Failure,
    Maintenance,
    Return,
}

impl Run<'_, '_> {
    #[inline]
    pub(super) fn spend(&mut self, cause: Cause, seconds: f64) {
        self.causes_s[cause as usize] += seconds;
    }

    /// Follows the run to its end; whether it was finished.
    fn follow(&mut self) -> bool {
        loop {
            if self.given_up() {
                self.spend(Cause::Lost, self.done_s);
                if let Some(lost_s) = self.w.lost_s.first_mut() {
                    *lost_s += self.done_s;
                }
                return false;
            }
            let need_s = self.warm_s + self.work.time_s(self.from, self.c.steps) - self.done_s;
            let (stop_s, stop) = self.next_stop();
            let got_s = if self.c.modulated {
                self.advance(need_s, stop_s)
            } else if self.t + need_s <= stop_s {
                self.t += need_s;
                need_s
            } else {
                let got_s = stop_s - self.t;
                self.t = stop_s;
                got_s
            };
            if got_s >= need_s {
                self.keep(self.c.steps);
                return true;
            }
            self.done_s += got_s;
            match stop {
                Stop::Failure => self.fail(),
                Stop::Maintenance => self.maintain(),
                Stop::Return => self.take_back(),
            }
        }
    }

    /// Whether the run is not followed any further.
    pub(super) fn given_up(&self) -> bool {
        self.t > self.horizon_s || self.stuck >= MOST_STUCK
    }

    fn next_stop(&self) -> (f64, Stop) {
        let (mut at_s, mut stop) = (self.next.at_s, Stop::Failure);
        if self.maintenance_s < at_s {
            (at_s, stop) = (self.maintenance_s, Stop::Maintenance);
        }
        for back_s in &self.w.returns_s {
            if *back_s < at_s {
                (at_s, stop) = (*back_s, Stop::Return);
            }
        }
        (at_s.max(self.t), stop)
    }

    /// Runs the job until so much work is done or until a time; the work done.
    fn advance(&mut self, need_s: f64, stop_s: f64) -> f64 {
        let speed = self.speed();
        let mut got_s = 0.0;
        loop {
            let (mut factor, mut change_s) = (1.0, stop_s);
            if let Some(episodes) = &mut self.episodes {
                episodes.advance(self.c.plan, self.t);
                factor = episodes.factor();
                change_s = episodes.change_s().min(stop_s);
            }
            let rate = speed / factor;
            let swing = self.c.swing;
            let want_s = (need_s - got_s) / rate;
            let length_s = change_s - self.t;
            let day_s = if length_s.is_finite() {
                swing.map_or(length_s, |s| s.work_s(self.t, length_s))
            } else {
                f64::INFINITY
            };
            let ends = day_s >= want_s;
            let (length_s, day_s) = if ends {
                (swing.map_or(want_s, |s| s.time_s(self.t, want_s)), want_s)
            } else {
                (length_s, day_s)
            };
            self.spend(Cause::Slow, length_s * (1.0 - 1.0 / factor));
            self.spend(Cause::Shrunk, length_s * (1.0 - speed) / factor);
            self.spend(Cause::Diurnal, (length_s - day_s) * rate);
            if ends {
                self.t += length_s;
                return need_s;
            }
            got_s += day_s * rate;
            self.t = change_s;
            if change_s >= stop_s {
                return got_s.min(need_s * (1.0 - f64::EPSILON));
            }
        }
    }

    /// Share of the pace with the replicas there are.
    fn speed(&self) -> f64 {
        let lost = self.w.returns_s.len() as f64;
        match self.c.plan.recovery.elastic.filter(|e| e.keep_batch) {
            Some(e) if lost > 0.0 => 1.0 - lost / f64::from(e.replicas),
            _ => 1.0,
        }
    }

    /// Books the work since the last start, of which all up to a step is kept; the work that is not.
    fn book(&mut self, kept: u32, reached: u32) -> f64 {
        let warm_s = self.warm_s.min(self.done_s);
        let mut booked_s = warm_s;
        self.spend(Cause::WarmUp, warm_s);
        for (at, cause) in [
            (CHECKPOINT, Cause::Checkpoint),
            (EVALUATION, Cause::Evaluation),
            (SNAPSHOT, Cause::Snapshot),
        ] {
            let grid = self.work.grids[at];
            if grid.pause_s > 0.0 {
                let pauses_s = grid.count(self.from, reached) * grid.pause_s;
                self.spend(cause, pauses_s);
                booked_s += pauses_s;
            }
        }
        let kept_s = (f64::from(kept) - f64::from(self.from)) * self.work.step_s;
        self.spend(Cause::Steps, kept_s);
        let rest_s = self.done_s - booked_s - kept_s;
        self.from = kept;
        self.done_s = 0.0;
        self.warm_s = self.warm_up_s;
        rest_s
    }

    /// The run is over.
    fn keep(&mut self, last: u32) {
        self.done_s = self.warm_s + self.work.time_s(self.from, last);
        self.book(last, last);
    }

    /// The last step that is over.
    fn reached(&self) -> u32 {
        let worked_s = self.done_s - self.warm_s;
        if worked_s <= 0.0 {
            return self.from;
        }
        self.work.reached(self.from, worked_s, self.c.steps)
    }

    /// Notes the last checkpoint that is durable once the job has reached a step.
    fn note_durable(&mut self, reached: u32) {
        let Some(checkpoint) = self.c.plan.checkpoint else { return };
        let every = self.work.grids[CHECKPOINT].every;
        let mut last = reached / every * every;
        if last > self.from {
            let end_s = self.warm_s + self.work.time_s(self.from, last);
            if end_s + checkpoint.write_s > self.done_s {
                last -= every;
            }
        }
        if last > self.from {
            self.durable = last;
        }
    }

    /// The step at which the job could go on after a failure, having reached one.
    pub(super) fn kept(&self, class: Class, reached: u32) -> u32 {
        match self.c.plan.recovery.policy {
            Policy::Elastic if self.shrinks(class) => reached,
            Policy::InMemory if class.memory => {
                let every = self.work.grids[SNAPSHOT].every;
                (reached / every * every).max(self.from).max(self.durable)
            }
            _ => self.durable,
        }
    }

    /// Whether the replicas left can go on.
    pub(super) fn shrinks(&self, class: Class) -> bool {
        let replicas = self.c.plan.recovery.elastic.map_or(0, |e| e.replicas);
        let lost = self.w.returns_s.len() as u32;
        self.c.plan.recovery.policy == Policy::Elastic
            && class.replicas > 0
            && lost.saturating_add(class.replicas) < replicas
    }

    /// Counts the failure that has come, and draws the next.
    pub(super) fn count(&mut self) -> (usize, Class) {
        let class = self.next.class as usize;
        self.failures += 1;
        self.stuck = if self.from > self.furthest { 0 } else { self.stuck + 1 };
        self.furthest = self.furthest.max(self.from);
        self.w.failures[class] += 1;
        self.next = self.w.table.next(self.next.at_s, &mut self.rng);
        (class, self.c.classes[class])
    }

    pub(super) fn lose(&mut self, class: usize, seconds: f64) {
        self.spend(Cause::Lost, seconds);
        self.w.lost_s[class] += seconds;
    }

    /// A failure stops the job.
    fn fail(&mut self) {
        let (index, class) = self.count();
        let reached = self.reached();
        self.note_durable(reached);
        let kept = self.kept(class, reached);
        let lost_s = self.book(kept, reached);
        self.lose(index, lost_s);
        self.recover(class);
    }

    /// A planned stop: state is saved, nothing is lost but the step under way, and nothing fails.
    fn maintain(&mut self) {
        let Some(maintenance) = self.c.plan.maintenance else { return };
        let reached = self.reached();
        let rest_s = self.book(reached, reached);
        self.durable = reached;
        let save_s = self.c.plan.checkpoint.map_or(0.0, |c| c.blocking_s + c.write_s);
        self.spend(Cause::Maintenance, rest_s + maintenance.duration_s + save_s);
        self.t += maintenance.duration_s + save_s;
        self.maintenance_s = self.t + maintenance.every_s;
        while self.next.at_s < self.t {
            self.next = self.w.table.next(self.next.at_s, &mut self.rng);
        }
        self.recover(Class {
            detection_s: 0.0,
            restart_s: self.c.plan.recovery.restart_s,
            repair_s: 0.0,
            replaces: false,
            nodes: 0,
            replicas: 0,
            memory: false,
        });
    }

    /// A replica comes back.
    fn take_back(&mut self) {
        let now_s = self.t;
        self.w.returns_s.retain(|back_s| *back_s > now_s);
        let regrow_s = self.c.plan.recovery.elastic.map_or(0.0, |e| e.regrow_s);
        let end_s = (self.t + regrow_s).min(self.next.at_s);
        self.spend(Cause::Resize, end_s - self.t);
        self.t = end_s;
    }
}
