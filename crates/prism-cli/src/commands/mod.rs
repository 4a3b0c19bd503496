//! One file a command.

mod about;
mod calibrate;
mod calibrate_run;
mod check;
mod diff;
mod explain;
mod fit_cluster;
mod fit_job;
mod init;
mod place;
mod predict;
mod predict_job;
mod replay;
mod run;
mod search;
mod synth;
mod trace;
mod validate;
mod watch;
mod whatif;
mod whatif_scenarios;

use prism_report::RequirementResult;

use crate::args::{Command, Requirement};
use crate::context::Context;
use crate::error::{CliError, Outcome};

/// Runs a command.
pub(crate) fn run(command: &Command, context: &mut Context) -> Result<Outcome, CliError> {
    match command {
        Command::Replay(args) => replay::run(args, context),
        Command::Calibrate(args) => calibrate::run(args, context),
        Command::CalibrateRun(args) => calibrate_run::run(args, context),
        Command::Run(args) => run::run(args, context),
        Command::Watch(args) => watch::run(args, context),
        Command::Predict(args) => predict::run(args, context),
        Command::Init(args) => init::run(args, context),
        Command::FitCluster(args) => fit_cluster::run(args, context),
        Command::FitJob(args) => fit_job::run(args, context),
        Command::Check(args) => check::run(args, context),
        Command::Place(args) => place::run(args, context),
        Command::Search(args) => search::run(args, context),
        Command::Validate(args) => validate::run(args, context),
        Command::Diff(args) => diff::run(args, context),
        Command::Synth(args) => synth::run(args, context),
        Command::Explain(args) => explain::run(args, context),
        Command::Whatif(args) => whatif::run(args, context),
        Command::Trace(args) => trace::run(args, context),
        Command::Schema(args) => about::schema(args, context),
        Command::Completions(args) => about::completions(args, context),
        Command::Man(args) => about::man(args, context),
    }
}

/// A requirement held against a statistic and the bounds of its interval, seconds; none where it has none.
fn held(requirement: &Requirement, value_s: f64, bounds: Option<(f64, f64)>) -> RequirementResult {
    let limit_s = requirement.limit_s;
    RequirementResult {
        requirement: requirement.text.clone(),
        value_s,
        limit_s,
        met: requirement.relation.holds(value_s, limit_s),
        clear: bounds.is_none_or(|(lower, upper)| !(lower <= limit_s && limit_s <= upper)),
    }
}
