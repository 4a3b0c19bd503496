//! A simulator that is slow and plain: every step is drawn, time goes forward in small pieces, every
//! failure class has its own clock. It shares no code with the fast one but the plan.

use prism_job::run::{Domain, Every, Onset, Policy, RunPlan, Severity};
use prism_run::{Cause, Pace};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Exp1, StandardNormal};

/// What became of a run.
pub(crate) struct Outcome {
    pub(crate) total_s: f64,
    pub(crate) causes_s: [f64; Cause::ALL.len()],
    pub(crate) failures: f64,
}

/// Why work stopped.
enum Stop {
    Failure(usize),
    Maintenance,
}

struct Machine<'a> {
    plan: &'a RunPlan,
    pace: &'a Pace,
    rng: ChaCha8Rng,
    t: f64,
    causes_s: [f64; Cause::ALL.len()],
    clocks_s: Vec<f64>,
    maintenance_s: f64,
    /// When each class's next slow-down begins.
    onsets_s: Vec<f64>,
    /// Ends and factors.
    slow: Vec<(f64, f64)>,
    free: u32,
    repairs_s: Vec<f64>,
    returns_s: Vec<f64>,
    failures: f64,
    slice_s: f64,
    /// Work under way that would be lost.
    tentative: [f64; Cause::ALL.len()],
}

impl Machine<'_> {
    fn exponential(&mut self, rate: f64) -> f64 {
        let unit: f64 = Exp1.sample(&mut self.rng);
        if rate > 0.0 { unit / rate } else { f64::INFINITY }
    }

    fn redraw(&mut self, class: usize) {
        let rate = self.plan.failures.classes[class].job_rate(&self.plan.machines);
        self.clocks_s[class] += self.exponential(rate);
    }

    fn next(&self) -> (f64, usize) {
        let all = self.clocks_s.iter().copied().zip(0..);
        all.min_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((f64::INFINITY, 0))
    }

    fn factor(&mut self) -> f64 {
        for class in 0..self.plan.slow.classes.len() {
            while self.onsets_s[class] <= self.t {
                let c = &self.plan.slow.classes[class];
                let (mean_s, sigma) = (c.mean_s, c.sigma);
                let z: f64 = StandardNormal.sample(&mut self.rng);
                let length_s = mean_s * (sigma * z - 0.5 * sigma * sigma).exp();
                let factor = match &c.severity {
                    Severity::LogNormal { median, sigma } => {
                        let z: f64 = StandardNormal.sample(&mut self.rng);
                        1.0 + (median - 1.0) * (sigma * z).exp()
                    }
                    Severity::Values(values) => values[self.rng.random_range(0..values.len())],
                };
                self.slow.push((self.onsets_s[class] + length_s, factor));
                let rate = c.job_rate(&self.plan.machines);
                self.onsets_s[class] += self.exponential(rate);
            }
        }
        let t = self.t;
        self.slow.retain(|s| s.0 > t);
        let factors = self.slow.iter().map(|s| s.1);
        if self.plan.slow.slowest {
            factors.fold(1.0, f64::max)
        } else {
            1.0 + factors.map(|f| f - 1.0).sum::<f64>()
        }
    }

    /// Does some work of a cause, slice by slice.
    fn work(&mut self, cause: Cause, seconds: f64) -> Result<(), Stop> {
        let mut left_s = seconds;
        while left_s > 1e-12 {
            if let Some(at) = self.returns_s.iter().position(|r| *r <= self.t) {
                self.returns_s.swap_remove(at);
                let t = self.t;
                self.returns_s.retain(|r| *r > t);
                let regrow_s = self.plan.recovery.elastic.unwrap().regrow_s;
                self.idle(Cause::Resize, regrow_s).map_err(Stop::Failure)?;
                continue;
            }
            let factor = self.factor();
            let speed = match self.plan.recovery.elastic {
                Some(e) if e.keep_batch => {
                    1.0 - self.returns_s.len() as f64 / f64::from(e.replicas)
                }
                _ => 1.0,
            };
            let day = self.plan.diurnal.map_or(1.0, |d| {
                let at = self.t + 0.5 * self.slice_s - d.peak_s;
                1.0 + d.amplitude * (std::f64::consts::TAU * at / d.period_s).cos()
            });
            let rate = speed * day / factor;
            let (failure_s, class) = self.next();
            let stop_s = failure_s.min(self.maintenance_s.max(self.t));
            let wall_s = self.slice_s.min(left_s / rate).min(stop_s - self.t);
            self.causes_s[Cause::Slow as usize] += wall_s * (1.0 - 1.0 / factor);
            self.causes_s[Cause::Shrunk as usize] += wall_s / factor * (1.0 - speed);
            self.causes_s[Cause::Diurnal as usize] += wall_s / factor * speed * (1.0 - day);
            self.tentative[cause as usize] += wall_s * rate;
            left_s -= wall_s * rate;
            self.t += wall_s;
            if self.t >= stop_s && left_s > 1e-12 {
                self.t = stop_s;
                return Err(if failure_s <= stop_s {
                    Stop::Failure(class)
                } else {
                    Stop::Maintenance
                });
            }
        }
        Ok(())
    }

    /// Waits; a failure ends it.
    fn idle(&mut self, cause: Cause, seconds: f64) -> Result<(), usize> {
        let (failure_s, class) = self.next();
        let end_s = self.t + seconds;
        self.causes_s[cause as usize] += end_s.min(failure_s) - self.t;
        self.t = end_s.min(failure_s);
        if failure_s < end_s { Err(class) } else { Ok(()) }
    }

    /// Nodes from the reserve, and when they are there.
    fn take(&mut self, nodes: u32, at_s: f64, repair_s: f64) -> f64 {
        let back = self.repairs_s.iter().filter(|r| **r <= at_s).count() as u32;
        self.repairs_s.retain(|r| *r > at_s);
        self.free += back;
        for _ in 0..nodes {
            self.repairs_s.push(at_s + repair_s);
        }
        let mut ready_s = at_s;
        for _ in 0..nodes {
            if self.free > 0 {
                self.free -= 1;
                continue;
            }
            self.repairs_s.sort_by(f64::total_cmp);
            ready_s = self.repairs_s.remove(0);
        }
        ready_s
    }
}

/// What is held where.
#[derive(Clone, Copy)]
struct State {
    durable: u64,
    snapshot: u64,
    /// A checkpoint being written: step, and the clock of work at which it is durable.
    writing: Option<(u64, f64)>,
}

/// Simulates a run; only failure clocks of finite rate are drawn.
pub(crate) fn run(plan: &RunPlan, pace: &Pace, rng: ChaCha8Rng) -> Outcome {
    let classes = plan.failures.classes.len();
    let mut m = Machine {
        plan,
        pace,
        rng,
        t: 0.0,
        causes_s: [0.0; Cause::ALL.len()],
        clocks_s: vec![0.0; classes],
        maintenance_s: plan.maintenance.map_or(f64::INFINITY, |m| m.every_s),
        onsets_s: Vec::new(),
        slow: Vec::new(),
        free: plan.recovery.spares.unwrap_or(0),
        repairs_s: Vec::new(),
        returns_s: Vec::new(),
        failures: 0.0,
        slice_s: match plan.recovery.policy {
            // Replicas come back within a step.
            Policy::Elastic => pace.core_s / 100.0,
            _ if plan.diurnal.is_some() || !plan.slow.classes.is_empty() => pace.core_s / 8.0,
            _ => f64::INFINITY,
        },
        tentative: [0.0; Cause::ALL.len()],
    };
    (0..classes).for_each(|c| m.redraw(c));
    for class in &plan.slow.classes {
        assert!(!matches!(class.onset, Onset::Share(_)) && class.exposed == 1.0);
        let onset_s = m.exponential(class.job_rate(&plan.machines));
        m.onsets_s.push(onset_s);
    }
    let mut state = State { durable: 0, snapshot: 0, writing: None };
    let (mut step, mut warm) = (0, true);
    let mut core = StandardNormal.sample(&mut m.rng);
    // Work of steps since the last start, by step, so that what is lost can be taken back.
    let mut done_s: Vec<f64> = Vec::new();
    let mut first = 0;
    loop {
        m.tentative = [0.0; Cause::ALL.len()];
        match steps(&mut m, &mut state, &mut step, warm, &mut core, &mut done_s) {
            Ok(()) => break,
            Err(Stop::Maintenance) => {
                let c = plan.checkpoint.unwrap();
                let rest_s = partial(&mut m);
                let length_s = plan.maintenance.unwrap().duration_s + c.blocking_s + c.write_s;
                m.causes_s[Cause::Maintenance as usize] += rest_s + length_s;
                m.t += length_s;
                m.maintenance_s = m.t + plan.maintenance.unwrap().every_s;
                for class in 0..classes {
                    while m.clocks_s[class] < m.t {
                        m.redraw(class);
                    }
                }
                state = State { durable: step, snapshot: step, writing: None };
                if let Err(class) = restart(&mut m, plan.recovery.restart_s, c.load_s) {
                    warm = recover(&mut m, class, &mut state, &mut step, &mut done_s);
                } else {
                    warm = true;
                }
            }
            Err(Stop::Failure(class)) => {
                let rest_s = partial(&mut m);
                m.causes_s[Cause::Lost as usize] += rest_s;
                warm = recover(&mut m, class, &mut state, &mut step, &mut done_s);
            }
        }
        first += 1;
        assert!(first < 100_000, "the run gets nowhere");
    }
    // What counts is what is left of the steps' own times.
    Outcome { total_s: m.t, causes_s: m.causes_s, failures: m.failures }
}

/// Work under way that no step came of; the rest is booked.
fn partial(m: &mut Machine) -> f64 {
    let mut rest_s = 0.0;
    for cause in [Cause::Steps, Cause::Checkpoint, Cause::Evaluation, Cause::Snapshot] {
        rest_s += std::mem::take(&mut m.tentative[cause as usize]);
    }
    m.causes_s[Cause::WarmUp as usize] += std::mem::take(&mut m.tentative[Cause::WarmUp as usize]);
    rest_s
}

fn restart(m: &mut Machine, restart_s: f64, load_s: f64) -> Result<(), usize> {
    m.idle(Cause::Restart, restart_s)?;
    m.idle(Cause::Load, load_s)
}

/// Steps until the last one.
fn steps(
    m: &mut Machine,
    state: &mut State,
    step: &mut u64,
    warm: bool,
    core: &mut f64,
    done_s: &mut Vec<f64>,
) -> Result<(), Stop> {
    let (plan, pace) = (m.plan, m.pace);
    let every = |every: Every| match every {
        Every::Steps(steps) => steps,
        Every::Time(_) => panic!("intervals of steps only"),
    };
    let snapshot = plan.recovery.in_memory.filter(|_| plan.recovery.policy == Policy::InMemory);
    let snapshot_steps = snapshot.map(|s| (s.interval_s / pace.core_s).round() as u64);
    // The clock of this start's work, for what is written meanwhile.
    let mut clock_s = 0.0;
    state.writing = None;
    let durable = |state: &mut State, clock_s: f64| {
        if let Some((at, when_s)) = state.writing.filter(|w| w.1 <= clock_s) {
            (state.durable, state.writing) = (at, None);
            let _ = when_s;
        }
    };
    if warm {
        m.work(Cause::WarmUp, pace.warm_up_s)?;
        m.causes_s[Cause::WarmUp as usize] += pace.warm_up_s;
        m.tentative = [0.0; Cause::ALL.len()];
        clock_s += pace.warm_up_s;
    }
    while *step < plan.steps {
        let z: f64 = StandardNormal.sample(&mut m.rng);
        *core = pace.rho * *core + (1.0 - pace.rho * pace.rho).sqrt() * z;
        let mut length_s = pace.core_s * (1.0 + pace.core_cov * *core);
        let mut stall = m.exponential(pace.stall_rate);
        while stall < 1.0 {
            let mark = m.rng.random_range(0..pace.stall_marks.len());
            length_s += pace.core_s * pace.stall_marks[mark];
            stall += m.exponential(pace.stall_rate);
        }
        let mut parts = vec![(Cause::Steps, length_s)];
        let at = *step + 1;
        if let Some(e) = plan.evaluation.filter(|e| at.is_multiple_of(e.every_steps)) {
            parts.push((Cause::Evaluation, e.duration_s + pace.after_evaluation_s));
        }
        if let (Some(s), Some(steps)) = (snapshot, snapshot_steps)
            && at.is_multiple_of(steps)
        {
            parts.push((Cause::Snapshot, s.blocking_s));
        }
        let checkpoint = plan.checkpoint.filter(|c| at.is_multiple_of(every(c.every)));
        if let Some(c) = checkpoint {
            parts.push((Cause::Checkpoint, c.blocking_s));
        }
        for (cause, seconds) in &parts {
            let before: f64 = m.tentative.iter().sum();
            let result = m.work(*cause, *seconds);
            let after: f64 = m.tentative.iter().sum();
            clock_s += after - before;
            durable(state, clock_s);
            result?;
        }
        for (cause, seconds) in parts {
            m.causes_s[cause as usize] += seconds;
        }
        m.tentative = [0.0; Cause::ALL.len()];
        *step = at;
        done_s.push(length_s);
        if let Some(c) = checkpoint {
            state.writing = Some((at, clock_s + c.write_s));
            durable(state, clock_s);
        }
        if snapshot_steps.is_some_and(|s| at.is_multiple_of(s)) {
            state.snapshot = at;
        }
    }
    Ok(())
}

/// Recovers; whether the next start warms up.
fn recover(
    m: &mut Machine,
    mut class: usize,
    state: &mut State,
    step: &mut u64,
    done_s: &mut Vec<f64>,
) -> bool {
    let plan = m.plan;
    let recovery = plan.recovery;
    let (mut whole, mut in_memory) = (false, recovery.policy == Policy::InMemory);
    let mut ready_s = m.t;
    state.snapshot = state.snapshot.max(state.durable);
    loop {
        m.failures += 1.0;
        m.redraw(class);
        let c = &plan.failures.classes[class];
        let nodes = plan.machines.nodes_lost(c.domain);
        let replicated = recovery.in_memory.is_some_and(|s| s.replicated);
        in_memory &= match c.domain {
            Domain::Job => true,
            Domain::Gpu | Domain::Node => replicated || !c.replaces,
            Domain::Rack | Domain::Switch => false,
        };
        let elastic = recovery.elastic.filter(|_| recovery.policy == Policy::Elastic);
        let per_replica = elastic.map_or(1, |e| plan.machines.nodes() as u32 / e.replicas);
        let hit = nodes.div_ceil(per_replica);
        let shrinks =
            elastic.is_some_and(|e| hit > 0 && m.returns_s.len() as u32 + hit < e.replicas);
        whole |= !shrinks;
        // Fall back to what is left.
        let back = match (whole, in_memory) {
            (false, _) => *step,
            (true, true) => state.snapshot.min(*step),
            (true, false) => state.durable,
        };
        while *step > back {
            let lost_s = done_s.pop().unwrap();
            m.causes_s[Cause::Steps as usize] -= lost_s;
            m.causes_s[Cause::Lost as usize] += lost_s;
            *step -= 1;
        }
        state.snapshot = state.snapshot.min(*step);
        let noticed_s = m.t + c.detection_s.unwrap_or(recovery.detection_s);
        let restart_s = c.restart_s.unwrap_or(recovery.restart_s);
        let mut there_s = noticed_s;
        if c.replaces && recovery.spares.is_some() {
            there_s = m.take(nodes, noticed_s, c.repair_s.or(recovery.repair_s).unwrap());
        }
        if shrinks {
            (0..hit).for_each(|_| m.returns_s.push(there_s + restart_s));
        } else {
            ready_s = ready_s.max(there_s);
            if elastic.is_some() && hit > 0 {
                ready_s = m.returns_s.iter().copied().fold(ready_s, f64::max);
                m.returns_s.clear();
            }
        }
        let wait_s = (ready_s - noticed_s).max(0.0);
        let swaps = recovery.policy == Policy::WarmStandby && c.replaces && wait_s == 0.0;
        let detection_s = c.detection_s.unwrap_or(recovery.detection_s);
        let load_s = if in_memory {
            recovery.in_memory.unwrap().load_s
        } else {
            plan.checkpoint.unwrap().load_s
        };
        let passed = (|| {
            m.idle(Cause::Detection, detection_s)?;
            m.idle(Cause::Waiting, wait_s)?;
            if whole {
                let restart_s = if swaps { recovery.standby_swap_s.unwrap() } else { restart_s };
                restart(m, restart_s, load_s)
            } else {
                m.idle(Cause::Resize, elastic.unwrap().shrink_s)
            }
        })();
        match passed {
            Ok(()) => return whole,
            Err(next) => class = next,
        }
    }
}
