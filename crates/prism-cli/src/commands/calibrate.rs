//! `prism calibrate`.

use std::path::Path;

use prism_engine::calibrate::CalibrateOptions;
use prism_engine::profile::profile;
use prism_io::write_atomic;
use prism_report::{calibrate_csv, calibrate_document};

use crate::args::{CalibrateArgs, Format};
use crate::context::Context;
use crate::error::{CliError, Outcome, usage};
use crate::input;

/// Calibrates a trace.
pub(crate) fn run(args: &CalibrateArgs, context: &Context) -> Result<Outcome, CliError> {
    let to_stdout = args.output.as_deref() == Some(Path::new("-"));
    if to_stdout && context.format == Format::Json {
        return Err(usage(
            "`-o -` and `--format json` both write the profile to standard output",
            "leave out one of them",
        ));
    }
    let file = input::name(&args.trace);
    let loaded = input::trace(&args.trace, &args.read, context)?;
    let choice = input::replayed(&args.trace, &loaded, context)?;
    let dropped: Vec<i64> = loaded.dropped.iter().map(|d| d.step).collect();
    let options = CalibrateOptions { alpha: args.alpha, laws: true };
    let profile = context
        .phase("calibrate", || profile(&loaded.table, &choice, &dropped, &options))
        .map_err(|source| CliError::Calibrate { file: file.clone(), source })?;
    let json = || {
        let mut text =
            profile.to_json().map_err(|source| CliError::Profile { file: file.clone(), source })?;
        text.push('\n');
        Ok(text)
    };
    if let Some(path) = &args.output {
        let text = json()?;
        context.phase("write", || write_atomic(path, |out| out.write_all(text.as_bytes())))?;
    }
    let mut document = calibrate_document(&profile, context.printer.verbose());
    document.hint = Some(match &args.output {
        Some(path) if !to_stdout => format!("prism predict {}", input::name(path)),
        _ => format!("prism calibrate {file} -o profile.json"),
    });
    let text = context.render(&document, json, || Ok(calibrate_csv(&profile)?))?;
    if let Some(text) = text {
        context.printer.result(&text)?;
    }
    context.asides(&document);
    Ok(Outcome::Yes)
}
