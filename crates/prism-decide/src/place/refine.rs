//! A last look at small plans, on the graph itself.
//!
//! The search takes a step for the maximum of its replicas' steps. Where replicas also wait for each
//! other before the end, or a dependency found in the data holds on some of them only, that is not the
//! whole truth. So the order found, the given one and random ones are compared by the kernel, on samples
//! of their own, and the best of them is improved by single swaps.

use prism_engine::sample::RunOptions;

use super::nominal::Kernel;
use super::search::Search;
use super::solve::Problem;
use super::{PlaceError, PlaceOptions};

/// Number of the first sample: others than those searched on, and than those of the check.
const FIRST: u64 = 1 << 23;
/// Most samples of an order.
const SAMPLES: usize = 1_000;
/// Most cells of a plan that is looked at again.
const MOST_CELLS: usize = 64;
/// Most orders that are computed.
const MOST_ORDERS: usize = 600;
/// Least gain of a swap that is taken.
const LEAST: f64 = 1e-4;

impl Problem<'_, '_> {
    /// The order found, or a better one.
    pub(super) fn refined(
        &self,
        search: &Search<'_>,
        found: Vec<u32>,
        options: &PlaceOptions,
    ) -> Result<Vec<u32>, PlaceError> {
        if self.cells() > MOST_CELLS {
            return Ok(found);
        }
        let run = RunOptions {
            seed: options.seed,
            first_sample: FIRST,
            samples: options.samples.min(SAMPLES),
            threads: options.threads,
            ..RunOptions::default()
        };
        let mut kernel = Kernel::new(self.nominal, run)?;
        let mut worth = |order: &[u32]| -> Result<f64, PlaceError> {
            let mut steps = kernel.step_s(&self.cell_factors(order))?;
            Ok(options.objective.of(&mut steps))
        };
        // Of equals the first: the order as given is kept unless another one is better.
        let mut best = (worth(&self.given)?, self.given.clone());
        let random = (0..options.random_orders as u64).map(|n| self.shuffled(options.seed, n));
        let mut computed = 1;
        for order in std::iter::once(found).chain(random) {
            computed += 1;
            let value = worth(&order)?;
            if value < best.0 * (1.0 - LEAST) {
                best = (value, order);
            }
        }
        let positions = self.given.len();
        let mut improved = true;
        while improved {
            improved = false;
            for a in 0..self.cells() {
                for b in a + 1..positions {
                    if computed == MOST_ORDERS {
                        return Ok(best.1);
                    }
                    let factor = |p: usize| self.factors[best.1[p] as usize];
                    if factor(a) == factor(b) || !search.allowed(&best.1, (a, b)) {
                        continue;
                    }
                    let mut order = best.1.clone();
                    order.swap(a, b);
                    computed += 1;
                    let value = worth(&order)?;
                    if value < best.0 * (1.0 - LEAST) {
                        best = (value, order);
                        improved = true;
                    }
                }
            }
        }
        Ok(best.1)
    }
}
