//! `prism schema`, `prism completions`, `prism man`: the command about itself.

use clap::CommandFactory;
use prism_engine::profile::Profile;
use prism_report::{
    CheckOutput, CrossOutput, DiffOutput, ExplainOutput, FitClusterOutput, FitJobOutput,
    InitOutput, PlaceOutput, PredictJobOutput, PredictOutput, PresetsOutput, ReplayOutput,
    RunOutput, SearchOutput, SynthOutput, TimelineOutput, ValidateOutput, WatchLine, WhatifOutput,
    WhatifReferenceOutput, schema_text,
};

use prism_run::{Prior, StepModel};

use crate::args::{Cli, CompletionsArgs, ManArgs, SchemaArgs, SchemaName};
use crate::context::Context;
use crate::error::{CliError, Outcome, usage};

/// Prints a JSON schema.
pub(crate) fn schema(args: &SchemaArgs, context: &Context) -> Result<Outcome, CliError> {
    let text = match args.name {
        SchemaName::Replay => schema_text::<ReplayOutput>(),
        SchemaName::Profile => schema_text::<Profile>(),
        SchemaName::Predict => schema_text::<PredictOutput>(),
        SchemaName::PredictJob => schema_text::<PredictJobOutput>(),
        SchemaName::Check => schema_text::<CheckOutput>(),
        SchemaName::Init => schema_text::<InitOutput>(),
        SchemaName::FitCluster => schema_text::<FitClusterOutput>(),
        SchemaName::FitJob => schema_text::<FitJobOutput>(),
        SchemaName::Presets => schema_text::<PresetsOutput>(),
        SchemaName::RunProfile => schema_text::<StepModel>(),
        SchemaName::RunPrior => schema_text::<Prior>(),
        SchemaName::CrossValidation => schema_text::<CrossOutput>(),
        SchemaName::Run => schema_text::<RunOutput>(),
        SchemaName::Watch => schema_text::<WatchLine>(),
        SchemaName::Job => Ok(prism_job::job_schema_text()),
        SchemaName::Place => schema_text::<PlaceOutput>(),
        SchemaName::Search => schema_text::<SearchOutput>(),
        SchemaName::Validate => schema_text::<ValidateOutput>(),
        SchemaName::Diff => schema_text::<DiffOutput>(),
        SchemaName::Synth => schema_text::<SynthOutput>(),
        SchemaName::Timeline => schema_text::<TimelineOutput>(),
        SchemaName::Whatif => schema_text::<WhatifOutput>(),
        SchemaName::Explain => schema_text::<ExplainOutput>(),
        SchemaName::WhatifReference => schema_text::<WhatifReferenceOutput>(),
    }?;
    context.printer.result(&text)?;
    Ok(Outcome::Yes)
}

/// Prints a completion script.
pub(crate) fn completions(args: &CompletionsArgs, context: &Context) -> Result<Outcome, CliError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "prism", &mut script);
    context.printer.result(&String::from_utf8_lossy(&script))?;
    Ok(Outcome::Yes)
}

/// Prints a manual page: of `prism` itself, or of one of its commands.
pub(crate) fn man(args: &ManArgs, context: &Context) -> Result<Outcome, CliError> {
    let mut command = Cli::command();
    command.build();
    let wanted = match &args.command {
        None => &command,
        Some(name) => command.find_subcommand(name).ok_or_else(|| {
            let names: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
            usage(format!("no command `{name}`"), format!("commands: {}", names.join(", ")))
        })?,
    };
    let mut page = Vec::new();
    clap_mangen::Man::new(wanted.clone())
        .render(&mut page)
        .map_err(|source| CliError::Stdout { source })?;
    context.printer.result(&String::from_utf8_lossy(&page))?;
    Ok(Outcome::Yes)
}
