//! Settings of one run of the command, its progress and its timing.

use std::path::Path;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use prism_io::write_atomic;
use prism_report::{Document, Style};

use crate::args::{Format, GlobalArgs};
use crate::error::CliError;
use crate::printer::Printer;

/// How often the progress indicator moves.
const TICK: Duration = Duration::from_millis(100);

/// What every command needs.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) printer: Printer,
    pub(crate) format: Format,
    pub(crate) seed: u64,
    /// 0 for all.
    pub(crate) threads: usize,
    show_progress: bool,
}

impl Context {
    pub(crate) fn new(global: &GlobalArgs, printer: Printer) -> Result<Context, CliError> {
        let threads = global.threads;
        if threads > 0 {
            rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .build_global()
                .map_err(|source| CliError::Threads { threads, source })?;
        }
        Ok(Context {
            show_progress: !global.no_progress && printer.may_show_progress(),
            format: global.format(),
            seed: global.seed,
            threads,
            printer,
        })
    }

    /// Runs one phase of the work: shown while it runs, timed under `-v`.
    pub(crate) fn phase<T>(&self, name: &'static str, work: impl FnOnce() -> T) -> T {
        let begin = Instant::now();
        let bar = self.show_progress.then(|| {
            let bar = ProgressBar::new_spinner().with_message(name);
            bar.set_style(ProgressStyle::default_spinner());
            bar.enable_steady_tick(TICK);
            bar
        });
        let result = work();
        if let Some(bar) = bar {
            bar.finish_and_clear();
        }
        let seconds = begin.elapsed().as_secs_f64();
        self.printer.detail(1, &format!("{name}: {seconds:.3} s"));
        result
    }

    /// A spinner whose message its caller changes; none where progress is not shown.
    pub(crate) fn counter(&self, name: &'static str) -> Option<ProgressBar> {
        let bar = self.show_progress.then(ProgressBar::new_spinner)?.with_message(name);
        bar.set_style(ProgressStyle::default_spinner());
        bar.enable_steady_tick(TICK);
        Some(bar)
    }

    /// The text of a result in the form that was asked for, `None` if it is not wanted at all.
    pub(crate) fn render(
        &self,
        document: &Document,
        json: impl FnOnce() -> Result<String, CliError>,
        csv: impl FnOnce() -> Result<String, CliError>,
    ) -> Result<Option<String>, CliError> {
        self.rendered(false, document, json, csv)
    }

    /// Writes a result to a file if one is named, however quiet; else to standard output.
    pub(crate) fn deliver(
        &self,
        file: Option<&Path>,
        document: &Document,
        json: impl FnOnce() -> Result<String, CliError>,
        csv: impl FnOnce() -> Result<String, CliError>,
    ) -> Result<(), CliError> {
        let text = self.rendered(file.is_some(), document, json, csv)?;
        match (file, text) {
            (Some(path), Some(text)) => {
                // A file keeps no colours.
                let text = match self.format {
                    Format::Human => document.human(Style::PLAIN),
                    _ => text,
                };
                write_atomic(path, |out| out.write_all(text.as_bytes()))?;
            }
            (None, Some(text)) => self.printer.result(&text)?,
            (_, None) => {}
        }
        Ok(())
    }

    fn rendered(
        &self,
        to_file: bool,
        document: &Document,
        json: impl FnOnce() -> Result<String, CliError>,
        csv: impl FnOnce() -> Result<String, CliError>,
    ) -> Result<Option<String>, CliError> {
        Ok(match self.format {
            Format::Human if self.printer.silent() && !to_file => None,
            Format::Human => Some(document.human(self.printer.style())),
            Format::Markdown => Some(document.markdown()),
            Format::Json => Some(json()?),
            Format::Csv => Some(csv()?),
        })
    }

    /// A document's warnings, and its hint where a person reads.
    pub(crate) fn asides(&self, document: &Document) {
        for warning in &document.warnings {
            self.printer.warning(warning);
        }
        if let Some(hint) = document.hint.as_deref().filter(|_| self.format == Format::Human) {
            self.printer.hint(hint);
        }
    }
}
