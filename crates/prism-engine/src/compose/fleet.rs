//! A known fleet: the slowest members decide.
//!
//! The maximum over some members is at most that over all, so leaving members out gives a lower bound.
//! Members are ranked by their time without noise; the slowest K are simulated together and K is
//! doubled until the wanted quantiles stand still twice in a row. Random numbers belong to members, so that a larger
//! K adds members and changes nothing else: the law can only move up, and the moves carry no noise.

use std::sync::Arc;

use prism_stats::QuantileCurve;

use super::choose::Method;
use super::error::{ComposeError, Result};
use super::law::{Bounds, Composed, Round};
use super::maximum::{MaxOptions, Replicas, order_max};
use crate::sample::{RunOptions, SampleError, Tape};

/// What a simulation of some members returns.
#[derive(Clone, Debug, PartialEq)]
pub enum Joint {
    /// Per sample, the largest of the members.
    Maximum(Vec<f64>),
    /// Per member, samples of its time; sample i of all members is one step. Members are independent
    /// given what the caller holds fixed: the law is then the product of theirs, much sharper.
    Independent(Vec<Vec<f64>>),
}

/// Members of known persistent speed.
pub trait Fleet {
    /// Time of each member without noise, in seconds: the rank of slowness.
    ///
    /// # Errors
    /// Whatever the simulation reports.
    fn pilot(&self) -> Result<Vec<f64>>;

    /// Simulates members, slowest first, with random numbers that belong to the place in that order or
    /// to the member, never to how many are asked for.
    ///
    /// # Errors
    /// Whatever the simulation reports.
    fn simulate(&self, members: &[usize]) -> Result<Joint>;
}

/// When doubling stops.
#[derive(Clone, Debug, PartialEq)]
pub struct PruneOptions {
    /// Members of the first round.
    pub start: usize,
    /// Most members; beyond, [`ComposeError::NotStable`].
    pub limit: usize,
    /// Quantiles that must stand still.
    pub quantiles: Vec<f64>,
    /// Relative move that counts as still.
    pub tolerance: f64,
    /// Whether a move below a quarter of the bounds' half-width counts as still, too.
    pub sampling_error: bool,
    /// How samples become a law.
    pub max: MaxOptions,
}

impl Default for PruneOptions {
    /// From 8 members to any number; p50, p95, p99 still to 10⁻⁴ or within the sampling error.
    fn default() -> Self {
        Self {
            start: 8,
            limit: usize::MAX,
            quantiles: vec![0.5, 0.95, 0.99],
            tolerance: 1e-4,
            sampling_error: true,
            max: MaxOptions::default(),
        }
    }
}

/// Rounds without a move that end the doubling: one could be chance of the ranking.
const CALM: usize = 2;

/// The law of the slowest member's time.
///
/// # Errors
/// [`ComposeError::NotStable`] at the limit of members; what the fleet reports.
pub fn slowest(fleet: &impl Fleet, options: &PruneOptions) -> Result<Composed> {
    ComposeError::check(options.start > 0, "start", 0.0, "positive")?;
    let pilot = fleet.pilot()?;
    let n = pilot.len();
    ComposeError::check(n > 0, "number of members", 0.0, "positive")?;
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|&a, &b| pilot[b].total_cmp(&pilot[a]).then(a.cmp(&b)));
    let limit = options.limit.min(n);
    let (mut members, mut rounds, mut calm) = (options.start.min(limit), Vec::new(), 0);
    let mut before: Option<Vec<f64>> = None;
    loop {
        let mut law = joint_law(fleet.simulate(&order[..members])?, members, &options.max)?;
        let answers =
            options.quantiles.iter().map(|&p| law.quantile(p)).collect::<Result<Vec<_>>>()?;
        let mut still = false;
        let (mut worst, mut worst_p) = (f64::INFINITY, f64::NAN);
        if let Some(before) = &before {
            (still, worst) = (true, 0.0);
            for (answer, old) in answers.iter().zip(before) {
                let moved = (answer.value - old).abs();
                let width = match (answer.lower, answer.upper) {
                    (Some(a), Some(b)) if options.sampling_error => 0.125 * (b - a),
                    _ => 0.0,
                };
                still &= moved <= (options.tolerance * old.abs()).max(width);
                if moved / old.abs() > worst || worst_p.is_nan() {
                    (worst, worst_p) = (moved / old.abs(), answer.p);
                }
            }
        }
        rounds.push(Round { members, moved: worst });
        calm = if still { calm + 1 } else { 0 };
        if calm >= CALM || members == n {
            let diagnostics = law.diagnostics_mut();
            diagnostics.method = Method::SlowestMembers;
            diagnostics.members = n as u64;
            diagnostics.one_sided = members < n;
            diagnostics.rounds = rounds;
            return Ok(law);
        }
        if members >= limit {
            let (p, moved, tolerance) = (worst_p, worst, options.tolerance);
            return Err(ComposeError::NotStable { members, p, moved, tolerance });
        }
        before = Some(answers.iter().map(|a| a.value).collect());
        members = members.saturating_mul(2).min(limit);
    }
}

/// The law of the largest, from a simulation.
fn joint_law(joint: Joint, members: usize, options: &MaxOptions) -> Result<Composed> {
    match joint {
        Joint::Maximum(mut times) => {
            times.sort_unstable_by(f64::total_cmp);
            order_max(&[Replicas::new(&times, 1)], options)
        }
        Joint::Independent(mut rows) => {
            if rows.len() != members {
                let have = rows.len();
                return Err(ComposeError::Shape { what: "rows of members", have, need: members });
            }
            let samples = rows[0].len();
            if let Some(row) = rows.iter().find(|r| r.len() != samples) {
                let (what, have) = ("samples of a member", row.len());
                return Err(ComposeError::Shape { what, have, need: samples });
            }
            // The joint samples bound the law whatever the members' dependence; the product is sharper.
            let mut largest = rows[0].clone();
            for row in &rows[1..] {
                largest.iter_mut().zip(row).for_each(|(m, x)| *m = m.max(*x));
            }
            largest.sort_unstable_by(f64::total_cmp);
            let joint = order_max(&[Replicas::new(&largest, 1)], options)?;
            rows.iter_mut().for_each(|row| row.sort_unstable_by(f64::total_cmp));
            let strata: Vec<_> = rows.iter().map(|row| Replicas::new(row, 1)).collect();
            let product = order_max(&strata, options)?;
            let widen = |bound: &QuantileCurve, pick: fn(f64, f64) -> f64| {
                let mut values = bound.values().iter().zip(product.estimate.values());
                QuantileCurve::from_fn(|_| values.next().map_or(f64::NAN, |(a, b)| pick(*a, *b)))
            };
            let lower = widen(&joint.lower, f64::min)?;
            let upper = widen(&joint.upper, f64::max)?;
            let mut diagnostics = product.diagnostics().clone();
            diagnostics.samples = samples as u64;
            diagnostics.effective_samples = samples as f64;
            let bounds = Bounds::Confidence(options.confidence);
            let curves = [lower, product.estimate.clone(), upper];
            Ok(Composed::new(curves, bounds, product.reach, diagnostics))
        }
    }
}

/// What compiles the tape of some members.
type Build<'a> = dyn Fn(&[usize]) -> std::result::Result<Tape, SampleError> + Send + Sync + 'a;

/// A fleet simulated by tapes: members are the replica axis, slowest first, so that their random
/// numbers stay theirs when more are added.
#[derive(Clone)]
pub struct TapeFleet<'a> {
    build: Arc<Build<'a>>,
    pilot: Vec<f64>,
    output: String,
    options: RunOptions,
}

impl<'a> TapeFleet<'a> {
    /// A fleet whose members take `pilot` seconds without noise. `build` compiles a program whose
    /// replica r is the r-th member of its argument; `output` names the time: one row per replica for
    /// independent members, one row for the maximum over them.
    pub fn new(
        pilot: Vec<f64>,
        output: impl Into<String>,
        options: RunOptions,
        build: impl Fn(&[usize]) -> std::result::Result<Tape, SampleError> + Send + Sync + 'a,
    ) -> Self {
        Self { build: Arc::new(build), pilot, output: output.into(), options }
    }
}

impl std::fmt::Debug for TapeFleet<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TapeFleet")
            .field("members", &self.pilot.len())
            .field("output", &self.output)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl Fleet for TapeFleet<'_> {
    fn pilot(&self) -> Result<Vec<f64>> {
        Ok(self.pilot.clone())
    }

    fn simulate(&self, members: &[usize]) -> Result<Joint> {
        let run = (self.build)(members)?.run(&self.options)?;
        let output = run
            .get(&self.output)
            .ok_or_else(|| ComposeError::NoOutput { name: self.output.clone() })?;
        let row = |r: usize| output.row(r).iter().map(|&x| f64::from(x)).collect::<Vec<_>>();
        if output.rows() == 1 && members.len() != 1 {
            return Ok(Joint::Maximum(row(0)));
        }
        Ok(Joint::Independent((0..output.rows()).map(row).collect()))
    }
}
