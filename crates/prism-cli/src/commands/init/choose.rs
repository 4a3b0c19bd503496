//! Which plan a new job file gets.

use prism_engine::planned::noise_free_s;
use prism_graph::memory;
use prism_job::{Job, JobFileError, ReadOptions, Violations, parse_job};
use prism_report::{count, plan_name};

use crate::args::PlanArgs;
use crate::error::{CliError, usage};

use super::{refused, text};

/// Tokens of a step where no batch is given, at least: what large runs take.
const TOKENS: u64 = 4 << 20;
/// Memory that a chosen plan leaves free, as a share of the GPU's: estimates are not exact.
const SPARE: f64 = 0.05;
/// Most pipeline stages that are tried.
const MOST_STAGES: u32 = 64;

/// What was asked for.
pub(super) struct Wish {
    /// The section `[model]`.
    pub(super) model: String,
    pub(super) gpus: u64,
    pub(super) cluster: String,
    pub(super) variability: String,
    pub(super) seq_len: u32,
    pub(super) global_batch_size: Option<u32>,
    pub(super) micro_batch_size: u32,
    pub(super) plan: PlanArgs,
}

/// What was chosen.
pub(super) struct Choice {
    pub(super) toml: String,
    pub(super) chosen: Vec<String>,
    pub(super) warnings: Vec<String>,
}

/// A plan that may be tried.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Candidate {
    pub(super) tp: u32,
    pub(super) pp: u32,
    pub(super) cp: u32,
    pub(super) ep: u32,
    pub(super) dp: u32,
    pub(super) recompute: String,
    pub(super) global_batch_size: u32,
}

/// The possible plan as wished that fits and computes the most tokens per second.
pub(super) fn choose(wish: &Wish) -> Result<Choice, CliError> {
    let shape = Shape::of(wish)?;
    let candidates = candidates(wish, &shape);
    let found = Survey::of(wish, &candidates);
    let given = wish.plan.tp.is_some() && wish.plan.pp.is_some();
    if let Some((_, candidate, job)) = &found.best {
        let chosen = match (given, &wish.plan.recompute) {
            (true, Some(_)) => Vec::new(),
            (true, None) => vec![format!("recompute `{}`", candidate.recompute)],
            (false, _) => vec![format!(
                "the plan {}: the most tokens/s of {} possible plans tried, {} of which fit",
                plan_name(&job.plan),
                found.possible,
                found.fitting
            )],
        };
        return Ok(finish(wish, candidate, chosen, Vec::new()));
    }
    match &found.least {
        // A plan that was asked for is written even if it does not fit: `prism check` says why.
        Some((share, candidate, _)) if given => {
            let warning = format!(
                "the plan takes {:.0} % of a GPU's memory by estimate: it does not fit with {:.0} % \
                 to spare",
                100.0 * share,
                100.0 * SPARE
            );
            Ok(finish(wish, candidate, Vec::new(), vec![warning]))
        }
        Some((share, _, job)) => Err(usage(
            format!(
                "no plan tried fits {} {} GPUs: the smallest, {}, takes {:.0} % of their memory",
                count(wish.gpus as usize),
                job.cluster.gpu.name,
                plan_name(&job.plan),
                100.0 * share
            ),
            "give more GPUs or `--zero 3`, or give `--tp` and `--pp` to write a plan that does not fit",
        )),
        None => Err(found.why.as_deref().map_or_else(|| indivisible(wish), refused)),
    }
}

fn indivisible(wish: &Wish) -> CliError {
    usage(
        format!("{} GPUs do not split into the degrees that were given", count(wish.gpus as usize)),
        "the product of `--tp`, `--pp`, `--cp` and `--dp` must be `--gpus`",
    )
}

/// What became of the plans that were tried.
#[derive(Default)]
struct Survey<'a> {
    /// Of those that fit, the one with the most tokens per second.
    best: Option<(f64, &'a Candidate, Job)>,
    /// Of the possible ones, the one that takes the least memory, as a share of the GPU's.
    least: Option<(f64, &'a Candidate, Job)>,
    possible: usize,
    fitting: usize,
    /// Why the first impossible one is so.
    why: Option<Box<Violations>>,
}

impl<'a> Survey<'a> {
    fn of(wish: &Wish, candidates: &'a [Candidate]) -> Survey<'a> {
        let mut survey = Survey::default();
        for candidate in candidates {
            match read(wish, candidate) {
                Ok(job) => survey.add(candidate, job),
                Err(all) => {
                    survey.why.get_or_insert(all);
                }
            }
        }
        survey
    }

    fn add(&mut self, candidate: &'a Candidate, job: Job) {
        let Ok(stages) = memory(&job) else { return };
        self.possible += 1;
        let most = stages.iter().map(|s| s.total_bytes() / s.gpu_bytes).fold(0.0, f64::max);
        if self.least.as_ref().is_none_or(|l| most < l.0) {
            self.least = Some((most, candidate, job.clone()));
        }
        if most > 1.0 - SPARE {
            return;
        }
        let Ok(step_s) = noise_free_s(&job) else { return };
        self.fitting += 1;
        let speed = job.tokens() / step_s;
        if self.best.as_ref().is_none_or(|b| speed > b.0) {
            self.best = Some((speed, candidate, job));
        }
    }
}

fn finish(
    wish: &Wish,
    candidate: &Candidate,
    mut chosen: Vec<String>,
    warnings: Vec<String>,
) -> Choice {
    let notes = chosen.iter().map(|c| format!("Chosen: {c}.")).collect::<Vec<_>>();
    let toml = text::job(wish, candidate, &notes);
    if wish.global_batch_size.is_none() {
        chosen.push(format!(
            "a global batch of {} sequences",
            count(candidate.global_batch_size as usize)
        ));
    }
    Choice { toml, chosen, warnings }
}

/// Sizes that limit a plan.
struct Shape {
    layers: u32,
    experts: u32,
    /// Most tensor-parallel ranks that are tried.
    domain: u32,
}

impl Shape {
    /// Of the model and cluster that were asked for, on one GPU.
    fn of(wish: &Wish) -> Result<Shape, CliError> {
        let alone = Candidate {
            tp: 1,
            pp: 1,
            cp: 1,
            ep: 1,
            dp: 1,
            recompute: "none".to_owned(),
            global_batch_size: wish.micro_batch_size,
        };
        let one = Wish {
            model: wish.model.clone(),
            gpus: 1,
            cluster: wish.cluster.clone(),
            variability: wish.variability.clone(),
            plan: PlanArgs::default(),
            ..*wish
        };
        let job = read(&one, &alone).map_err(|all| refused(&all))?;
        // Eight is a node's worth; a rack-wide domain does not make wider tensor parallelism usual.
        let domain = job.cluster.nvlink_domain.min(8);
        let experts = job.model.moe.map_or(1, |m| m.experts);
        Ok(Shape { layers: job.model.layers, experts, domain })
    }
}

fn read(wish: &Wish, candidate: &Candidate) -> Result<Job, Box<Violations>> {
    let toml = text::job(wish, candidate, &[]);
    match parse_job(&toml, &ReadOptions::default()) {
        Ok(read) => Ok(read.job),
        Err(JobFileError::Invalid(all)) => Err(all),
        // A text that is at hand can be read.
        Err(_) => Err(Box::new(Violations {
            name: String::new(),
            text: toml,
            violations: Vec::new(),
            nearest_plans: Vec::new(),
            says_job: false,
        })),
    }
}

/// All plans to try: degrees that were given, or the usual ones.
fn candidates(wish: &Wish, shape: &Shape) -> Vec<Candidate> {
    let powers = |most: u32| (0..20).map(|e| 1_u32 << e).filter(move |&n| n <= most);
    let given = |n: Option<u32>, usual: Vec<u32>| n.map_or(usual, |n| vec![n]);
    let p = &wish.plan;
    let chunks = p.vpp.unwrap_or(1).max(1);
    let stages = (1..=MOST_STAGES.min(shape.layers))
        .filter(|s| u64::from(shape.layers).is_multiple_of(u64::from(*s) * u64::from(chunks)));
    let tps = given(p.tp, powers(shape.domain).collect());
    let pps = given(p.pp, stages.collect());
    let eps = given(p.ep, powers(shape.experts.min(64)).collect());
    let recomputes = match &p.recompute {
        Some(r) => vec![r.clone()],
        None => ["none", "selective", "full"].map(str::to_owned).to_vec(),
    };
    let cp = p.cp.unwrap_or(1);
    let mut out = Vec::new();
    for &tp in &tps {
        for &pp in &pps {
            let rest = u64::from(tp) * u64::from(pp) * u64::from(cp);
            let left = (rest > 0 && wish.gpus.is_multiple_of(rest)).then(|| wish.gpus / rest);
            let Some(dp) = p.dp.or_else(|| left.and_then(|n| u32::try_from(n).ok())) else {
                continue;
            };
            let Some(global_batch_size) = batch(wish, dp, pp) else { continue };
            for &ep in &eps {
                for recompute in &recomputes {
                    let recompute = recompute.clone();
                    out.push(Candidate { tp, pp, cp, ep, dp, recompute, global_batch_size });
                }
            }
        }
    }
    out
}

/// A batch that fills the pipeline: at least [`TOKENS`], and a multiple of the stages.
fn batch(wish: &Wish, dp: u32, pp: u32) -> Option<u32> {
    if wish.global_batch_size.is_some() {
        return wish.global_batch_size;
    }
    let sequences = u64::from(wish.micro_batch_size) * u64::from(dp);
    let tokens = sequences.checked_mul(u64::from(wish.seq_len))?.max(1);
    let pp = u64::from(pp).max(1);
    let microbatches = TOKENS.div_ceil(tokens).max(2 * pp).next_multiple_of(pp);
    u32::try_from(microbatches.checked_mul(sequences)?).ok()
}
