//! Nodes in reserve.

use std::collections::VecDeque;

/// A reserve of nodes, and those under repair.
#[derive(Clone, Debug, Default)]
pub(super) struct Pool {
    free: u32,
    /// When nodes under repair are back, ascending.
    repaired_s: VecDeque<f64>,
}

impl Pool {
    pub(super) fn reset(&mut self, free: u32) {
        self.free = free;
        self.repaired_s.clear();
    }

    /// Takes `nodes` at a time, as many having gone into repair; when they are all there.
    pub(super) fn take(&mut self, nodes: u32, at_s: f64, repair_s: f64) -> f64 {
        while self.repaired_s.front().is_some_and(|t| *t <= at_s) {
            self.repaired_s.pop_front();
            self.free += 1;
        }
        let back_s = at_s + repair_s;
        if back_s.is_finite() {
            let at = self.repaired_s.iter().rposition(|t| *t <= back_s).map_or(0, |last| last + 1);
            for _ in 0..nodes {
                self.repaired_s.insert(at, back_s);
            }
        }
        if self.free >= nodes {
            self.free -= nodes;
            return at_s;
        }
        let missing = (nodes - self.free) as usize;
        self.free = 0;
        let ready_s = self.repaired_s.get(missing - 1).copied().unwrap_or(f64::INFINITY);
        self.repaired_s.drain(..missing.min(self.repaired_s.len()));
        ready_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_come_back_in_the_order_of_their_repair() {
        let mut pool = Pool::default();
        pool.reset(2);
        assert_eq!(pool.take(1, 0.0, 100.0), 0.0);
        assert_eq!(pool.take(1, 10.0, 20.0), 10.0);
        // Back at 30 (the second), 100 (the first), and 61 (this one).
        assert_eq!(pool.take(1, 11.0, 50.0), 30.0);
        assert_eq!(pool.take(2, 70.0, 5.0), 75.0);
        assert_eq!(pool.take(1, 200.0, 5.0), 200.0);
    }
}
