//! Which method answers which situation.

use std::fmt;

use prism_stats::order::member_tail;

use super::error::{ComposeError, Result};

/// A way to obtain the law of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Method {
    /// Every member is simulated.
    BruteForce,
    /// Samples of one replica, raised to a power.
    OrderStatistics,
    /// The same, given a shared effect, averaged over it.
    SharedEffect,
    /// The slowest members of a known fleet, doubled until stable.
    SlowestMembers,
    /// Maximum per layer on a logarithmic histogram of the fleet, sums by FFT.
    LogHistogram,
    /// Gathers ahead of the layers: the slowest GPUs, doubled until stable.
    PrefetchWalk,
    /// Samples per number of rare events, weighted by its probability.
    Stratified,
    /// Tilted samples, weighted by the likelihood ratio, checked against plain ones.
    Importance,
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BruteForce => "brute force",
            Self::OrderStatistics => "order statistics",
            Self::SharedEffect => "order statistics given a shared effect",
            Self::SlowestMembers => "slowest members",
            Self::LogHistogram => "log histogram",
            Self::PrefetchWalk => "prefetch walk of the slowest GPUs",
            Self::Stratified => "stratified on rare events",
            Self::Importance => "importance sampling",
        })
    }
}

/// When members wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// Once, at the end of the step.
    StepEnd,
    /// After every layer.
    EveryLayer,
    /// Before a layer that is this many gathers ahead, at least one.
    Ahead(u32),
}

/// What is asked, and what is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Situation {
    /// Members that wait for each other: replicas, or GPUs where they wait at layers.
    pub members: u64,
    /// When they wait.
    pub waits: Waits,
    /// Whether each member's persistent speed is known.
    pub known_fleet: bool,
    /// Whether an effect is shared by all members of a step.
    pub shared_effect: bool,
    /// Expected number of rare, large delays per member and step; 0 where there are none.
    pub rare_events: f64,
    /// Whether the tail is driven by Gaussian log-factors that a tilt can shift.
    pub tiltable: bool,
    /// Samples of a member, or of the whole in a known fleet, that one can afford.
    pub samples: u64,
    /// Most extreme quantile wanted, above 0.5.
    pub quantile: f64,
    /// Simulations of one member in one step that brute force may cost.
    pub brute_force: u64,
}

/// A method and why it was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The method.
    pub method: Method,
    /// One sentence, with numbers.
    pub reason: String,
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.method, self.reason)
    }
}

/// Exceedances that an answer needs; as [`MaxOptions`](super::MaxOptions) by default.
const NEED: f64 = 10.0;

/// The method for a situation; callers may override it by calling another one.
///
/// # Errors
/// [`ComposeError::NoData`] where no method answers the quantile with the samples at hand;
/// [`ComposeError::Input`] for an impossible situation.
pub fn choose(situation: &Situation) -> Result<Choice> {
    let Situation { members, quantile, .. } = *situation;
    ComposeError::check(members > 0, "number of members", members as f64, "positive")?;
    let rare = situation.rare_events;
    ComposeError::check(
        rare >= 0.0 && rare.is_finite(),
        "rare_events",
        rare,
        "finite, at least 0",
    )?;
    let chosen = |method, reason| Ok(Choice { method, reason });
    match situation.waits {
        Waits::EveryLayer => {
            return chosen(
                Method::LogHistogram,
                format!("{members} GPUs wait at every layer: exact up to a bracket, at any number"),
            );
        }
        Waits::Ahead(depth) => {
            let walk = "lags carry over from layer to layer: no product form";
            return chosen(
                Method::PrefetchWalk,
                format!("gathers run {depth} ahead of {members} GPUs, {walk}"),
            );
        }
        Waits::StepEnd => {}
    }
    let cost = members.saturating_mul(situation.samples);
    if cost <= situation.brute_force && situation.known_fleet {
        return chosen(Method::BruteForce, format!("{cost} simulated members are affordable"));
    }
    if situation.known_fleet {
        let why = "the slowest decide the maximum, the rest can only delay it";
        return chosen(Method::SlowestMembers, format!("{members} members of known speed: {why}"));
    }
    exchangeable(situation, quantile, chosen)
}

/// The method for exchangeable members that wait at the end of a step.
fn exchangeable(
    situation: &Situation,
    quantile: f64,
    chosen: impl Fn(Method, String) -> Result<Choice>,
) -> Result<Choice> {
    let Situation { members, samples, rare_events, .. } = *situation;
    let tail = member_tail(members, quantile)?;
    let have = samples as f64 * tail;
    let needed = (NEED / tail).ceil();
    let rests = format!("quantile {quantile} of {members} is tail {tail:.2e} of one");
    // A delay that happens less often than ten times among the samples, yet more often than the tail.
    if rare_events > 0.0 && rare_events < 0.1 && rare_events > 0.1 * tail {
        return chosen(
            Method::Stratified,
            format!("{rests}, and {rare_events:.2e} rare events per member and step decide it"),
        );
    }
    if have < NEED {
        if situation.tiltable {
            return chosen(
                Method::Importance,
                format!("{rests}: plain samples would have to be {needed:.0}, {samples} are given"),
            );
        }
        let to = (1.0 - NEED / samples as f64).max(0.0).powf(members as f64);
        return Err(ComposeError::NoData { p: quantile, have, need: NEED, from: 0.0, to });
    }
    let method =
        if situation.shared_effect { Method::SharedEffect } else { Method::OrderStatistics };
    chosen(method, format!("{rests}: {have:.0} of {samples} samples lie beyond"))
}
