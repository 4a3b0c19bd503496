//! One run.

use prism_job::run::{Domain, Every, Policy, Rates, RunPlan};
use prism_stats::stream;
use rand_chacha::ChaCha8Rng;

use super::Options;
use super::clock::{Failure, Table, Thinning};
use super::episodes::{Episodes, Swing};
use super::pace::{check, level};
use super::pool::Pool;
use super::work::{Grid, Work};
use crate::outcome::{Cause, RunOutcome};
use crate::{RunError, Steps};

/// Failures after which a run is given up: it gets nowhere.
pub(super) const MOST_FAILURES: u32 = 100_000;

const CHECKPOINT: usize = 0;
const EVALUATION: usize = 1;
const SNAPSHOT: usize = 2;

/// What all runs of a plan share.
pub(super) struct Constants<'a> {
    plan: &'a RunPlan,
    options: &'a Options,
    thinning: Option<&'a Thinning>,
    steps: u32,
    classes: Vec<Class>,
    /// Whether the rate of progress changes while the job runs.
    modulated: bool,
    swing: Option<Swing>,
}

/// What a failure of a class takes.
#[derive(Clone, Copy, Debug)]
struct Class {
    detection_s: f64,
    restart_s: f64,
    repair_s: f64,
    replaces: bool,
    nodes: u32,
    /// Replicas that lose a node; none where the job itself fails.
    replicas: u32,
    /// Whether a snapshot in memory outlives it.
    memory: bool,
}

impl<'a> Constants<'a> {
    pub(super) fn new(
        plan: &'a RunPlan,
        options: &'a Options,
        thinning: Option<&'a Thinning>,
    ) -> Constants<'a> {
        let recovery = &plan.recovery;
        let per_replica = recovery.elastic.map_or(1, |e| {
            u32::try_from(plan.machines.nodes() / u64::from(e.replicas)).unwrap_or(u32::MAX)
        });
        let replicated = recovery.in_memory.is_some_and(|m| m.replicated);
        let classes = plan.failures.classes.iter().map(|c| {
            let nodes = plan.machines.nodes_lost(c.domain);
            Class {
                detection_s: c.detection_s.unwrap_or(recovery.detection_s),
                restart_s: c.restart_s.unwrap_or(recovery.restart_s),
                repair_s: c.repair_s.or(recovery.repair_s).unwrap_or(f64::INFINITY),
                replaces: c.replaces,
                nodes,
                replicas: nodes.div_ceil(per_replica.max(1)),
                memory: match c.domain {
                    Domain::Job => true,
                    Domain::Gpu | Domain::Node => replicated || !c.replaces,
                    Domain::Rack | Domain::Switch => false,
                },
            }
        });
        let start_s = plan.start.map_or(0.0, prism_job::run::Moment::time_of_day_s);
        let swing = plan.diurnal.filter(|d| d.amplitude > 0.0);
        let elastic = recovery.policy == Policy::Elastic;
        Constants {
            plan,
            options,
            thinning,
            steps: u32::try_from(plan.steps).unwrap_or(u32::MAX),
            classes: classes.collect(),
            modulated: swing.is_some() || !plan.slow.classes.is_empty() || elastic,
            swing: swing.map(|d| Swing::new(&d, start_s)),
        }
    }

    /// Checkpoints, evaluations and snapshots at a length of steps.
    fn grids(&self, step_s: f64, after_evaluation_s: f64) -> [Grid; 3] {
        let whole =
            |seconds: f64| (seconds / step_s).round().clamp(1.0, f64::from(u32::MAX)) as u32;
        let mut grids = [Grid::NEVER; 3];
        if let Some(c) = self.plan.checkpoint {
            let every = match c.every {
                Every::Time(interval_s) => whole(interval_s),
                Every::Steps(steps) => u32::try_from(steps).unwrap_or(u32::MAX),
            };
            let written = (c.write_s / step_s).ceil().min(f64::from(u32::MAX)) as u32;
            grids[CHECKPOINT] = Grid { every: every.max(written), pause_s: c.blocking_s };
        }
        if let Some(e) = self.plan.evaluation {
            let every = u32::try_from(e.every_steps).unwrap_or(u32::MAX);
            grids[EVALUATION] = Grid { every, pause_s: e.duration_s + after_evaluation_s };
        }
        if let (Policy::InMemory, Some(m)) =
            (self.plan.recovery.policy, self.plan.recovery.in_memory)
        {
            grids[SNAPSHOT] = Grid { every: whole(m.interval_s), pause_s: m.blocking_s };
        }
        grids
    }
}

/// Memory that one run after another uses.
#[derive(Default)]
pub(super) struct Workspace {
    table: Table,
    filled: bool,
    pool: Pool,
    /// When lost replicas come back, in no order.
    returns_s: Vec<f64>,
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
struct Run<'a, 'c> {
    c: &'a Constants<'c>,
    w: &'a mut Workspace,
    work: Work,
    /// Excess of the first steps after a start.
    warm_up_s: f64,
    rng: ChaCha8Rng,
    episodes: Option<Episodes>,
    /// The next failure.
    next: Failure,
    /// When the next maintenance is due.
    maintenance_s: f64,
    horizon_s: f64,
    /// Now.
    t: f64,
    /// Step after which the job went on last.
    from: u32,
    /// Step of the last durable checkpoint.
    durable: u32,
    /// Warm-up of this start.
    warm_s: f64,
    /// Work done since this start, at the pace without slow-downs, seconds.
    done_s: f64,
    causes_s: [f64; Cause::ALL.len()],
    failures: u32,
    waits: u32,
}

/// A job that is down.
#[derive(Clone, Copy, Debug)]
struct Down {
    /// When all nodes are there, as far as is known.
    ready_s: f64,
    /// Whether all of it is down; otherwise some replicas are up.
    whole: bool,
    /// Whether a snapshot in memory is left.
    in_memory: bool,
}

/// What stops a job that runs.
enum Stop {
    Failure,
    Maintenance,
    Return,
}

impl Run<'_, '_> {
    #[inline]
    fn spend(&mut self, cause: Cause, seconds: f64) {
        self.causes_s[cause as usize] += seconds;
    }

    /// Follows the run to its end; whether it was finished.
    fn follow(&mut self) -> bool {
        loop {
            if self.t > self.horizon_s || self.failures >= MOST_FAILURES {
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
    fn kept(&self, class: Class, reached: u32) -> u32 {
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
    fn shrinks(&self, class: Class) -> bool {
        let replicas = self.c.plan.recovery.elastic.map_or(0, |e| e.replicas);
        let lost = self.w.returns_s.len() as u32;
        self.c.plan.recovery.policy == Policy::Elastic
            && class.replicas > 0
            && lost.saturating_add(class.replicas) < replicas
    }

    /// Counts the failure that has come, and draws the next.
    fn count(&mut self) -> (usize, Class) {
        let class = self.next.class as usize;
        self.failures += 1;
        self.w.failures[class] += 1;
        self.next = self.w.table.next(self.next.at_s, &mut self.rng);
        (class, self.c.classes[class])
    }

    fn lose(&mut self, class: usize, seconds: f64) {
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

    /// Recovers; failures on the way begin it anew.
    fn recover(&mut self, mut class: Class) {
        let mut down = Down {
            ready_s: self.t,
            whole: !self.shrinks(class),
            in_memory: self.c.plan.recovery.policy == Policy::InMemory,
        };
        loop {
            let phases = self.phases(class, &mut down);
            if self.pass(phases) || self.t > self.horizon_s || self.failures >= MOST_FAILURES {
                return;
            }
            let index;
            (index, class) = self.count();
            down.whole |= !self.shrinks(class);
            let kept = if down.whole && !down.in_memory {
                self.durable
            } else {
                self.kept(class, self.from)
            };
            // What was held in memory is lost with it.
            let lost_s = f64::from(self.from - kept) * self.work.step_s;
            self.spend(Cause::Steps, -lost_s);
            self.lose(index, lost_s);
            self.from = kept;
            self.warm_s = self.warm_up_s;
        }
    }

    /// What a recovery takes, in order.
    fn phases(&mut self, class: Class, down: &mut Down) -> [(Cause, f64); 4] {
        let recovery = &self.c.plan.recovery;
        let noticed_s = self.t + class.detection_s;
        let mut there_s = noticed_s;
        if class.replaces && recovery.spares.is_some() {
            there_s = self.w.pool.take(class.nodes, noticed_s, class.repair_s);
            self.waits += u32::from(there_s > noticed_s);
        }
        down.in_memory &= class.memory;
        if self.shrinks(class) {
            let back_s = there_s + class.restart_s;
            self.w.returns_s.extend(std::iter::repeat_n(back_s, class.replicas as usize));
        } else {
            down.ready_s = down.ready_s.max(there_s);
            if recovery.policy == Policy::Elastic && class.replicas > 0 {
                // Too few replicas are left: all come back together.
                down.ready_s = self.w.returns_s.iter().copied().fold(down.ready_s, f64::max);
                self.w.returns_s.clear();
            }
        }
        let wait_s = (down.ready_s - noticed_s).max(0.0);
        let (cause, seconds, load_s) = if down.whole {
            (Cause::Restart, self.restart_s(class, wait_s), self.load_s(down.in_memory))
        } else {
            self.warm_s = 0.0;
            (Cause::Resize, recovery.elastic.map_or(0.0, |e| e.shrink_s), 0.0)
        };
        [
            (Cause::Detection, class.detection_s),
            (Cause::Waiting, wait_s),
            (cause, seconds),
            (Cause::Load, load_s),
        ]
    }

    /// A restart, or the swap of a standby that did not have to be waited for.
    fn restart_s(&self, class: Class, wait_s: f64) -> f64 {
        let recovery = &self.c.plan.recovery;
        let swaps = recovery.policy == Policy::WarmStandby && class.replaces && wait_s == 0.0;
        recovery.standby_swap_s.filter(|_| swaps).unwrap_or(class.restart_s)
    }

    fn load_s(&self, in_memory: bool) -> f64 {
        match self.c.plan.recovery.in_memory {
            Some(m) if in_memory => m.load_s,
            _ => self.c.plan.checkpoint.map_or(0.0, |c| c.load_s),
        }
    }

    /// Goes through phases until a failure; whether they were completed.
    #[inline]
    fn pass(&mut self, phases: [(Cause, f64); 4]) -> bool {
        let end_s = self.t + phases.iter().map(|p| p.1).sum::<f64>();
        if self.next.at_s >= end_s {
            for (cause, seconds) in phases {
                self.spend(cause, seconds);
            }
            self.t = end_s;
            return true;
        }
        let mut left_s = self.next.at_s - self.t;
        for (cause, seconds) in phases {
            let spent_s = seconds.min(left_s);
            self.spend(cause, spent_s);
            left_s -= spent_s;
        }
        self.t = self.next.at_s;
        false
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
