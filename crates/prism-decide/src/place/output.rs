//! What a placement says.

use prism_engine::predict::Estimate;
use serde::{Deserialize, Serialize};

use super::keep::{KeepOrDrop, keep_or_drop};
use super::objective::{Objective, Paired, Ratio};
use super::solve::{Problem, Solved};
use super::workers::Workers;
use super::{PlaceError, PlaceOptions};

/// How the placement was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// All distinct orders were computed.
    Exhaustive {
        /// How many.
        orders: u64,
    },
    /// Swaps were searched.
    LocalSearch {
        /// Orders that were started from.
        starts: usize,
        /// Swaps that were taken.
        accepted: u64,
        /// Orders and swaps that were computed.
        computed: u64,
        /// Swaps that were bounded.
        bounded: u64,
    },
}

/// Who works in a cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Cell {
    /// Data-parallel replica.
    pub replica: u32,
    /// Pipeline stage.
    pub stage: u16,
    /// The worker.
    pub worker: String,
    /// Its factor.
    pub factor: f64,
    /// Who was here in the order as given.
    pub given: String,
}

/// Random orders.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RandomOrders {
    /// How many.
    pub orders: usize,
    /// Mean of their objectives, seconds.
    pub mean_s: f64,
    /// The lowest, seconds.
    pub lowest_s: f64,
    /// The highest, seconds.
    pub highest_s: f64,
}

/// One objective under the orders that are compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Gains {
    /// What is compared.
    pub objective: Objective,
    /// In the order as given, seconds.
    pub given: Estimate,
    /// In random orders.
    pub random: RandomOrders,
    /// In the worst order that was met, seconds.
    pub worst: Estimate,
    /// In the placement, seconds.
    pub placed: Estimate,
    /// Given over placed.
    pub over_given: Ratio,
    /// Mean of random orders over placed.
    pub over_random: Ratio,
    /// Worst over placed.
    pub over_worst: Ratio,
}

/// One swap of the few that give most.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Move {
    /// A worker.
    pub worker: String,
    /// Its factor.
    pub factor: f64,
    /// Where it was, `r0s1` for replica 0 stage 1, or `spare`.
    pub from: String,
    /// Where it goes.
    pub to: String,
    /// Who was there and takes its place.
    pub other: String,
    /// The other's factor.
    pub other_factor: f64,
    /// Objective before over after this move.
    pub gain: Ratio,
    /// Objective of the given order over after this move.
    pub gain_so_far: Ratio,
}

/// Which worker should be which cell, and what it gives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Placement {
    /// Replicas of the plan.
    pub replicas: u32,
    /// Stages of the plan.
    pub stages: u16,
    /// Whether the placement beats the order as given; if not, it is the order as given.
    pub improved: bool,
    /// How it was found.
    pub method: Method,
    /// Label that a replica's workers share.
    pub same: Option<String>,
    /// Samples that all numbers come from.
    pub samples: usize,
    /// Samples that were searched on, other ones.
    pub search_samples: usize,
    /// Confidence of intervals.
    pub confidence: f64,
    /// Seed.
    pub seed: u64,
    /// The objective.
    pub gains: Gains,
    /// Mean step time under the same orders.
    pub mean: Gains,
    /// The assignment.
    pub cells: Vec<Cell>,
    /// Workers that are left out.
    pub spares: Vec<String>,
    /// Few swaps from the given order, each the best after those before it: what they give without
    /// the rest of the placement.
    pub moves: Vec<Move>,
    /// What to do about the slowest worker, if asked.
    pub keep_or_drop: Option<KeepOrDrop>,
}

/// Step times of all orders that are compared.
struct Checked {
    /// Given, worst, placed, then after each move, then random.
    sets: Vec<Vec<f64>>,
    moves: usize,
}

pub(super) fn output(
    problem: &Problem<'_, '_>,
    solved: &Solved,
    workers: &Workers,
    options: &PlaceOptions,
) -> Result<Placement, PlaceError> {
    let checked = check(problem, solved, options)?;
    let names: Vec<String> = workers.list.iter().map(|w| w.name.clone()).collect();
    let stages = problem.nominal.stages();
    let cell = |c: usize| Cell {
        replica: (c / stages) as u32,
        stage: (c % stages) as u16,
        worker: names[solved.order[c] as usize].clone(),
        factor: problem.factors[solved.order[c] as usize],
        given: names[problem.given[c] as usize].clone(),
    };
    let keep_or_drop =
        if options.keep_or_drop { keep_or_drop(problem, solved, &names, options)? } else { None };
    let gains = checked.gains(options.objective, options)?;
    Ok(Placement {
        replicas: problem.nominal.replicas() as u32,
        stages: stages as u16,
        improved: solved.order != problem.given,
        method: solved.method,
        same: options.same.clone(),
        samples: options.samples,
        search_samples: solved.search_samples,
        confidence: options.confidence,
        seed: options.seed,
        mean: match options.objective {
            Objective::Mean => gains.clone(),
            _ => checked.gains(Objective::Mean, options)?,
        },
        gains,
        cells: (0..problem.cells()).map(cell).collect(),
        spares: solved.order[problem.cells()..]
            .iter()
            .map(|&w| names[w as usize].clone())
            .collect(),
        moves: checked.moves(problem, solved, &names, options)?,
        keep_or_drop,
    })
}

fn check(
    problem: &Problem<'_, '_>,
    solved: &Solved,
    options: &PlaceOptions,
) -> Result<Checked, PlaceError> {
    let mut orders = vec![problem.given.clone(), solved.worst.clone(), solved.order.clone()];
    let mut order = problem.given.clone();
    for &(a, b) in &solved.moves {
        order.swap(a, b);
        orders.push(order.clone());
    }
    let random =
        (0..options.random_orders.max(1) as u64).map(|n| problem.shuffled(options.seed, n));
    orders.extend(random);
    let mut kernel = problem.kernel(options)?;
    let sets = orders
        .iter()
        .map(|o| kernel.step_s(&problem.cell_factors(o)))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(Checked { sets, moves: solved.moves.len() })
}

impl Checked {
    fn views(&self) -> Vec<&[f64]> {
        self.sets.iter().map(Vec::as_slice).collect()
    }

    fn gains(&self, objective: Objective, options: &PlaceOptions) -> Result<Gains, PlaceError> {
        let paired = Paired::new(objective, &self.views(), options.confidence, options.seed);
        let random = 3 + self.moves;
        let n = self.sets.len() - random;
        let values: Vec<f64> = (random..self.sets.len()).map(|i| paired.value(i)).collect();
        // The worst that was met on the samples searched on, or on those of the check.
        let mut worst = 1;
        for i in (0..1).chain(random..self.sets.len()) {
            if paired.value(i) > paired.value(worst) {
                worst = i;
            }
        }
        let estimate =
            |i: usize| objective.estimate(&self.sets[i], options.confidence, options.seed);
        let mean = |v: &[f64]| v[random..].iter().sum::<f64>() / n as f64;
        Ok(Gains {
            objective,
            given: estimate(0)?,
            random: RandomOrders {
                orders: n,
                mean_s: values.iter().sum::<f64>() / n as f64,
                lowest_s: values.iter().copied().fold(f64::INFINITY, f64::min),
                highest_s: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            },
            worst: estimate(worst)?,
            placed: estimate(2)?,
            over_given: paired.ratio(0, 2)?,
            over_random: paired.of(|v| mean(v) / v[2])?,
            over_worst: paired.ratio(worst, 2)?,
        })
    }

    fn moves(
        &self,
        problem: &Problem<'_, '_>,
        solved: &Solved,
        names: &[String],
        options: &PlaceOptions,
    ) -> Result<Vec<Move>, PlaceError> {
        let paired =
            Paired::new(options.objective, &self.views(), options.confidence, options.seed);
        let stages = problem.nominal.stages();
        let place = |p: usize| {
            if p < problem.cells() {
                format!("r{}s{}", p / stages, p % stages)
            } else {
                "spare".to_owned()
            }
        };
        let mut order = problem.given.clone();
        let mut out = Vec::with_capacity(self.moves);
        for (i, &(a, b)) in solved.moves.iter().enumerate() {
            // The slower of the two is what one talks about.
            let factor = |p: usize| problem.factors[order[p] as usize];
            let (from, to) = if factor(a) >= factor(b) { (a, b) } else { (b, a) };
            let before = if i == 0 { 0 } else { 2 + i };
            out.push(Move {
                worker: names[order[from] as usize].clone(),
                factor: factor(from),
                from: place(from),
                to: place(to),
                other: names[order[to] as usize].clone(),
                other_factor: factor(to),
                gain: paired.ratio(before, 3 + i)?,
                gain_so_far: paired.ratio(0, 3 + i)?,
            });
            order.swap(a, b);
        }
        Ok(out)
    }
}
