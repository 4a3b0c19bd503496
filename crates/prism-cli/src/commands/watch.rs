//! `prism watch`.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use prism_io::{IoError, LogEvent, PauseKind, StepLog, StepLogTail};
use prism_report::{
    Document, RequirementResult, WATCH_SCHEMA, WatchEnd, WatchLine, json_line, watch_csv,
    watch_end_document, watch_event_text,
};
use prism_run::{Event, WatchOptions, Watcher};
use prism_stats::interval::quantile_interval;
use prism_stats::quantile;

use crate::args::{Format, Requirement, Statistic, WatchArgs};
use crate::context::Context;
use crate::error::{CliError, Outcome, usage};
use crate::{input, logs, steps};

/// How often a growing file is looked at.
const POLL: Duration = Duration::from_millis(200);
/// Confidence of the intervals of observed quantiles.
const CONFIDENCE: f64 = 0.95;
/// Set when the user interrupts.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Watches a log.
pub(crate) fn run(args: &WatchArgs, context: &Context) -> Result<Outcome, CliError> {
    let (model, mut warnings) = steps::for_watch(&args.profile, context)?;
    warnings.extend(model.warnings.iter().cloned());
    let options = WatchOptions {
        alarms_per_10k: args.alarms,
        least: args.least,
        steps: args.steps,
        seed: context.seed,
    };
    let watcher = context.phase("simulate the profile", || Watcher::new(&model, options))?;
    let mut watch = Watch {
        args,
        context,
        threshold: watcher.threshold(),
        watcher,
        events: Vec::new(),
        steps_s: Vec::new(),
        warm_up: model.evidence.warm_up_rows,
        broken: vec![false; args.require.len()],
        averaged_over: model.evidence.averaged_over,
        warnings,
    };
    if args.follow {
        // A second interrupt ends the program at once, as without a handler.
        let set = ctrlc::set_handler(|| {
            if INTERRUPTED.swap(true, Ordering::SeqCst) {
                std::process::exit(130);
            }
        });
        if set.is_err() {
            context.printer.warning("an interrupt will end this without a summary");
        }
        watch.follow()?;
    } else {
        watch.whole()?;
    }
    watch.end()
}

/// Where a growing log is read from.
enum Source {
    Stdin,
    File { file: File, read: u64 },
}

impl Source {
    fn opened(file: File) -> Self {
        Source::File { file, read: 0 }
    }

    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Source::Stdin => std::io::stdin().lock().read(buffer),
            Source::File { file, read } => {
                let n = file.read(buffer)?;
                *read += n as u64;
                Ok(n)
            }
        }
    }

    /// Whether the file of this name is another one now, or shorter than what was read of it.
    fn is_gone(&self, path: &Path) -> bool {
        let Source::File { file, read } = self else { return false };
        let Ok(now) = std::fs::metadata(path) else { return false };
        now.len() < *read || is_other(file, &now)
    }
}

#[cfg(unix)]
fn is_other(file: &File, now: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    file.metadata().is_ok_and(|old| (old.ino(), old.dev()) != (now.ino(), now.dev()))
}

#[cfg(not(unix))]
fn is_other(_: &File, _: &std::fs::Metadata) -> bool {
    false
}

struct Watch<'a> {
    args: &'a WatchArgs,
    context: &'a Context,
    watcher: Watcher,
    threshold: f64,
    events: Vec<Event>,
    /// Step times after the warm-up, seconds.
    steps_s: Vec<f64>,
    warm_up: usize,
    broken: Vec<bool>,
    averaged_over: u32,
    warnings: Vec<String>,
}

impl Watch<'_> {
    /// A log that is there.
    fn whole(&mut self) -> Result<(), CliError> {
        let logs = logs::read(std::slice::from_ref(&self.args.log), &self.args.read, self.context)?;
        let runs: Vec<String> = self.args.run.iter().cloned().collect();
        let mut logs = logs::chosen(logs, self.args.system.as_deref(), &runs)?;
        if logs.len() > 1 {
            let names: Vec<&str> = logs.iter().filter_map(|l| l.run.as_deref()).collect();
            return Err(usage(
                format!("`{}` has {} runs", input::name(&self.args.log), logs.len()),
                format!("choose one with `--run`: {}", names.join(", ")),
            ));
        }
        let Some(log) = logs.pop() else { return Ok(()) };
        self.log(&log)
    }

    fn log(&mut self, log: &StepLog) -> Result<(), CliError> {
        let mut pauses = log.pauses.iter().peekable();
        for (i, (&step, &t)) in log.step.iter().zip(&log.step_s).enumerate() {
            while let Some(p) = pauses.next_if(|p| p.after <= i) {
                self.watcher.pause(p.kind);
            }
            self.step(step, t, log.averaged_over)?;
        }
        Ok(())
    }

    /// A log that grows.
    fn follow(&mut self) -> Result<(), CliError> {
        let path = self.args.log.clone();
        let file = input::name(&path);
        let failed = |source| CliError::Input { file: file.clone(), source };
        let new_tail = || StepLogTail::new(&file, &self.args.read.options());
        let mut tail = new_tail();
        let stdin = path == Path::new("-");
        let mut last = Instant::now();
        let mut source = if stdin { Some(Source::Stdin) } else { None };
        let mut buffer = vec![0_u8; 1 << 16];
        while !INTERRUPTED.load(Ordering::SeqCst) {
            let n = match &mut source {
                None => 0,
                Some(source) => match source.read(&mut buffer) {
                    Ok(n) => n,
                    Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                    Err(e) => return Err(failed(e)),
                },
            };
            if n > 0 {
                let pushed = tail.push(&buffer[..n]);
                let any = self.drain(&mut tail)?;
                self.odd_lines(pushed)?;
                if any {
                    last = Instant::now();
                }
                continue;
            }
            // Nothing more comes through a pipe that is closed.
            let idle = self.args.idle.is_some_and(|t| last.elapsed().as_secs_f64() >= t);
            if stdin || idle {
                break;
            }
            match &source {
                None => {
                    let opened = File::open(&path);
                    match opened {
                        Ok(opened) => source = Some(Source::opened(opened)),
                        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                        Err(e) => return Err(failed(e)),
                    }
                }
                Some(old) if old.is_gone(&path) => {
                    self.context.printer.warning(&format!(
                        "`{file}` was cut or replaced: it is read from its beginning, as a new start of the run"
                    ));
                    tail.finish()?;
                    self.drain(&mut tail)?;
                    tail = new_tail();
                    self.watcher.pause(PauseKind::Restart);
                    source = None;
                    continue;
                }
                Some(_) => {}
            }
            std::thread::sleep(POLL);
        }
        let finished = tail.finish();
        self.drain(&mut tail)?;
        self.odd_lines(finished)
    }

    /// Lines that make no sense are said and left out: a watch must outlive them.
    fn odd_lines(&self, read: Result<(), IoError>) -> Result<(), CliError> {
        match read {
            // A file with nothing in it yet is no error either.
            Ok(()) | Err(IoError::Empty { .. }) => Ok(()),
            Err(e @ IoError::Invalid(_)) => {
                self.context.printer.warning(&format!("left out: {e}"));
                Ok(())
            }
            Err(e) => Err(CliError::Log(e)),
        }
    }

    /// Takes what a growing log said; whether there were steps.
    fn drain(&mut self, tail: &mut StepLogTail) -> Result<bool, CliError> {
        let mut any = false;
        for event in tail.drain() {
            match event {
                LogEvent::Step { step, step_s, averaged_over } => {
                    any = true;
                    self.step(step, step_s, averaged_over)?;
                }
                LogEvent::Pause { kind, .. } => self.watcher.pause(kind),
                _ => self.watcher.pause(PauseKind::Restart),
            }
        }
        Ok(any)
    }

    fn step(&mut self, step: i64, step_s: f64, averaged_over: u32) -> Result<(), CliError> {
        if averaged_over != self.averaged_over {
            return Err(usage(
                format!(
                    "`{}` logs means over {averaged_over} steps, the profile is of means over {}",
                    input::name(&self.args.log),
                    self.averaged_over
                ),
                "calibrate with logs of the same interval",
            ));
        }
        for event in self.watcher.push(step, step_s) {
            self.say(event)?;
        }
        if self.warm_up > 0 {
            self.warm_up -= 1;
            return Ok(());
        }
        self.steps_s.push(step_s);
        if self.args.follow {
            self.bounds(step)?;
        }
        Ok(())
    }

    /// Prints an event at once where results are lines.
    fn say(&mut self, event: Event) -> Result<(), CliError> {
        match self.context.format {
            Format::Human if !self.context.printer.silent() => {
                let (text, tone) = watch_event_text(&event);
                let text = self.context.printer.style().paint(&text, tone);
                self.context.printer.result(&format!("{text}\n"))?;
            }
            Format::Json => {
                let schema = WATCH_SCHEMA.to_owned();
                let line = WatchLine::Event { schema, event: event.clone() };
                self.context.printer.result(&json_line(&line)?)?;
            }
            _ => {}
        }
        self.events.push(event);
        Ok(())
    }

    /// Bounds that are broken beyond doubt are said while the run goes on.
    fn bounds(&mut self, step: i64) -> Result<(), CliError> {
        let n = self.steps_s.len();
        // Each check sorts all steps: often at first, then every hundredth step.
        if n < 20 || (n > 200 && !n.is_multiple_of(100)) {
            return Ok(());
        }
        for i in 0..self.args.require.len() {
            if self.broken[i] {
                continue;
            }
            let bound = judge(&self.args.require[i], &self.steps_s)?;
            if bound.met || !bound.clear {
                continue;
            }
            self.broken[i] = true;
            let text = match self.context.format {
                Format::Human => format!("step {step}: {} is broken\n", bound.requirement),
                Format::Json => {
                    let schema = WATCH_SCHEMA.to_owned();
                    json_line(&WatchLine::Broken { schema, step, bound })?
                }
                _ => continue,
            };
            self.context.printer.result(&text)?;
        }
        Ok(())
    }

    fn end(mut self) -> Result<Outcome, CliError> {
        let (events, run) = self.watcher.clone().finish();
        for event in events {
            self.say(event)?;
        }
        if run.steps == 0 && INTERRUPTED.load(Ordering::SeqCst) {
            return Ok(Outcome::Interrupted);
        }
        if run.steps == 0 {
            return Err(usage(
                format!("no steps in `{}`", input::name(&self.args.log)),
                "say what wrote it with `--log-format`",
            ));
        }
        let requirements = self
            .args
            .require
            .iter()
            .map(|r| judge(r, &self.steps_s))
            .collect::<Result<Vec<_>, _>>()?;
        let alarms = self.events.iter().filter(|e| e.is_alarm()).count();
        let interrupted = INTERRUPTED.load(Ordering::SeqCst);
        let mut end = WatchEnd {
            schema: WATCH_SCHEMA.to_owned(),
            log: input::name(&self.args.log),
            profile: input::name(&self.args.profile),
            alarms_per_10k: self.args.alarms,
            threshold: self.threshold,
            run,
            alarms,
            others: self.events.len() - alarms,
            requirements,
            interrupted,
            warnings: std::mem::take(&mut self.warnings),
        };
        let ratio = end.run.total_s / end.run.expected_s;
        if !(0.67..1.5).contains(&ratio) {
            let profile = &end.profile;
            end.warnings.push(format!(
                "steps take {ratio:.2} times what `{profile}` says: is it another job's?"
            ));
        }
        let met = end.requirements.iter().all(|r| r.met);
        let document = self.document(&end);
        let json = || Ok(json_line(&WatchLine::Summary(end.clone()))?);
        self.context.deliver(None, &document, json, || Ok(watch_csv(&self.events)?))?;
        self.context.asides(&document);
        Ok(match (interrupted, met) {
            (true, _) => Outcome::Interrupted,
            (false, true) => Outcome::Yes,
            (false, false) => Outcome::No,
        })
    }

    fn document(&self, end: &WatchEnd) -> Document {
        let mut document = watch_end_document(end);
        if self.context.format == Format::Markdown {
            let lines = self.events.iter().map(watch_event_text);
            for (text, _) in lines {
                document.line(text);
            }
        }
        document
    }
}

/// Holds a bound against observed steps.
fn judge(requirement: &Requirement, steps_s: &[f64]) -> Result<RequirementResult, CliError> {
    let failed = |source| {
        CliError::Steps(prism_run::StepsError::Statistics {
            what: format!("`--require '{}'`", requirement.text),
            source,
        })
    };
    let n = steps_s.len() as f64;
    let mean = steps_s.iter().sum::<f64>() / n;
    let sd = (steps_s.iter().map(|t| (t - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt();
    let reach = prism_stats::htest::normal_quantile(0.5 + CONFIDENCE / 2.0);
    let (value_s, low, high) = match requirement.statistic {
        Statistic::Mean => {
            let error = reach * sd / n.sqrt();
            (mean, mean - error, mean + error)
        }
        Statistic::Sd => {
            let error = reach * sd / (2.0 * (n - 1.0)).sqrt();
            (sd, sd - error, sd + error)
        }
        Statistic::Quantile(p) => {
            let sorted = quantile::sorted(steps_s);
            let q = quantile_interval(&sorted, p, CONFIDENCE).map_err(failed)?;
            (
                q.estimate,
                q.lower.map_or(f64::NEG_INFINITY, |b| b.value),
                q.upper.map_or(f64::INFINITY, |b| b.value),
            )
        }
    };
    if !value_s.is_finite() {
        return Err(usage(
            format!(
                "`--require '{}'` cannot be judged by {} steps",
                requirement.text,
                steps_s.len()
            ),
            "watch more steps",
        ));
    }
    // One step has no spread, and so no interval that would leave the limit out.
    let bounds = if low.is_nan() { (f64::NEG_INFINITY, f64::INFINITY) } else { (low, high) };
    Ok(super::held(requirement, value_s, Some(bounds)))
}
