//! How long steps with their regular pauses take, in closed form.

/// A pause after every so many steps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grid {
    /// Steps from one to the next; `u32::MAX` for never.
    pub(super) every: u32,
    /// Seconds.
    pub(super) pause_s: f64,
}

impl Grid {
    pub(super) const NEVER: Grid = Grid { every: u32::MAX, pause_s: 0.0 };

    /// Pauses after the steps from `from` (excluded) to `to` (included).
    #[inline]
    pub(super) fn count(&self, from: u32, to: u32) -> f64 {
        f64::from(to / self.every - from / self.every)
    }

    fn is_on(&self) -> bool {
        self.every != u32::MAX
    }
}

/// Steps of one length with pauses between them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    /// Seconds of a step.
    pub(super) step_s: f64,
    /// Checkpoints, evaluations, snapshots.
    pub(super) grids: [Grid; 3],
    /// How many of the grids, from the first on, are looked at.
    used: usize,
    /// Seconds of a step with its share of pauses.
    mean_s: f64,
    /// All pauses, once each.
    pauses_s: f64,
}

impl Work {
    pub(super) fn new(step_s: f64, grids: [Grid; 3]) -> Work {
        let used = grids.iter().rposition(Grid::is_on).map_or(0, |last| last + 1);
        let share = |g: &Grid| if g.is_on() { g.pause_s / f64::from(g.every) } else { 0.0 };
        let mean_s = step_s + grids.iter().map(share).sum::<f64>();
        let pauses_s = grids.iter().map(|g| g.pause_s).sum();
        Work { step_s, grids, used, mean_s, pauses_s }
    }

    /// Seconds from the end of step `from` and its pauses to that of step `to` and its pauses.
    #[inline]
    pub(super) fn time_s(&self, from: u32, to: u32) -> f64 {
        let steps_s = f64::from(to - from) * self.step_s;
        steps_s + self.grids[..self.used].iter().map(|g| g.count(from, to) * g.pause_s).sum::<f64>()
    }

    /// The last step that is over, with its pauses, `x` seconds after step `from`; at most `last`.
    #[inline]
    pub(super) fn reached(&self, from: u32, x: f64, last: u32) -> u32 {
        // time_s(k) ≤ (k − from)·mean + one of each pause: a start that is never too far.
        let start = ((x - self.pauses_s) / self.mean_s).max(0.0);
        let mut k = from + (start as u32).min(last - from);
        let mut left_s = x - self.time_s(from, k);
        while left_s < 0.0 && k > from {
            // Rounding only.
            k -= 1;
            left_s = x - self.time_s(from, k);
        }
        loop {
            let free = (left_s / self.step_s) as u32;
            let used = &self.grids[..self.used];
            let ahead = used.iter().map(|g| g.every - k % g.every).min().unwrap_or(u32::MAX);
            if free < ahead {
                return (k + free.min(last - k)).min(last);
            }
            if ahead > last - k {
                return last;
            }
            let piece_s = self.time_s(k, k + ahead);
            if piece_s > left_s {
                return k + ahead - 1;
            }
            k += ahead;
            left_s -= piece_s;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Step by step.
    fn brute(work: &Work, from: u32, x: f64, last: u32) -> u32 {
        (from..=last).take_while(|k| work.time_s(from, *k) <= x + 1e-9).last().unwrap_or(from)
    }

    #[test]
    fn reached_is_the_inverse_of_time() {
        let grid = |every, pause_s| Grid { every, pause_s };
        let many = [
            [Grid::NEVER; 3],
            [grid(7, 1.5), Grid::NEVER, Grid::NEVER],
            [grid(7, 0.0), grid(5, 33.3), Grid::NEVER],
            [grid(10, 2.5), grid(25, 100.25), grid(3, 0.125)],
            [Grid::NEVER, grid(4, 61.0), grid(1, 0.3)],
        ];
        for grids in many {
            let work = Work::new(1.7, grids);
            for from in [0, 3, 7, 24, 25] {
                for i in 0..1_500 {
                    let x = f64::from(i) * 0.371;
                    let k = work.reached(from, x, 120);
                    assert_eq!(k, brute(&work, from, x, 120), "{grids:?} {from} {x}");
                }
            }
        }
    }
}
