//! What is done when a job is down.

use prism_job::run::Policy;

use super::constants::Class;
use super::engine::Run;
use crate::outcome::Cause;

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

impl Run<'_, '_> {
    /// Recovers; failures on the way begin it anew.
    pub(super) fn recover(&mut self, mut class: Class) {
        let mut down = Down {
            ready_s: self.t,
            whole: !self.shrinks(class),
            in_memory: self.c.plan.recovery.policy == Policy::InMemory,
        };
        loop {
            let phases = self.phases(class, &mut down);
            if self.pass(phases) || self.given_up() {
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
}
