//! Following a growing log.

use super::feed::Feed;
use super::sink::What;
use super::{LogFormat, PauseKind, StepLogOptions};
use crate::error::IoError;
use crate::source;
use crate::violation::Violations;

/// Something a growing log says.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum LogEvent {
    /// What follows is of another run: a table goes on with another row's run, or the job was started anew.
    Run {
        /// Its name, where the log has one.
        run: Option<String>,
        /// What runs, where the log names it.
        system: Option<String>,
    },
    /// A step ended, or several whose mean is logged.
    Step {
        /// The step's id.
        step: i64,
        /// Its time, seconds.
        step_s: f64,
        /// Steps that the time is the mean of.
        averaged_over: u32,
    },
    /// Something other than training came before the next step.
    Pause {
        /// What.
        kind: PauseKind,
        /// How long, seconds, where the log says it.
        duration_s: Option<f64>,
    },
}

/// Reads a log of step times as it grows, in any format that [`crate::read_step_logs`] reads, and says the
/// same as it.
///
/// A line is read once it has ended; a pause is told once the next step is, because more lines may tell of
/// it. The first step of a log of means is told with the second, which says of how many steps it is the mean.
///
/// ```
/// use prism_io::{LogEvent, StepLogOptions, StepLogTail};
///
/// let mut tail = StepLogTail::new("run.csv", &StepLogOptions::default());
/// tail.push(b"step,step_s\n1,0.5\n2,0.")?;
/// assert_eq!(tail.drain(), [LogEvent::Step { step: 1, step_s: 0.5, averaged_over: 1 }]);
/// tail.push(b"25\n")?;
/// assert_eq!(tail.drain(), [LogEvent::Step { step: 2, step_s: 0.25, averaged_over: 1 }]);
/// # Ok::<(), prism_io::IoError>(())
/// ```
pub struct StepLogTail {
    file: String,
    feed: Feed,
    run: usize,
    begun: bool,
    head: Vec<u8>,
}

impl StepLogTail {
    /// Nothing read yet; `name` stands for the file in messages.
    pub fn new(name: &str, options: &StepLogOptions) -> Self {
        StepLogTail {
            file: name.to_owned(),
            feed: Feed::new(name, options),
            run: 0,
            begun: false,
            head: Vec::new(),
        }
    }

    /// What wrote the log, once it is known.
    pub fn format(&self) -> Option<LogFormat> {
        self.feed.format()
    }

    /// Takes what was appended to the log.
    ///
    /// # Errors
    /// [`IoError::Invalid`] if lines broke rules: they are left out, and one may go on. Other errors say
    /// why the log cannot be read, also not further on.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), IoError> {
        self.packed(bytes)?;
        self.feed.push(bytes)?;
        self.judge()
    }

    /// Takes the log as ended: its last line may lack an end.
    ///
    /// # Errors
    /// As [`StepLogTail::push`]; [`IoError::NotAStepLog`] if no line told the format.
    pub fn finish(&mut self) -> Result<(), IoError> {
        self.feed.finish()?;
        self.judge()
    }

    /// What was understood since the last call, in order.
    pub fn drain(&mut self) -> Vec<LogEvent> {
        let mut out = Vec::new();
        for event in std::mem::take(&mut self.feed.sink.events) {
            let of = &self.feed.sink.runs[event.run];
            let named = of.name.is_some() || of.system.is_some();
            if event.run != self.run || (!self.begun && named) {
                out.push(LogEvent::Run { run: of.name.clone(), system: of.system.clone() });
            }
            (self.run, self.begun) = (event.run, true);
            out.push(match event.what {
                What::Pause { kind, duration_s } => LogEvent::Pause { kind, duration_s },
                What::Step(s) => {
                    LogEvent::Step { step: s.id, step_s: s.seconds, averaged_over: s.averaged_over }
                }
            });
        }
        out
    }

    /// Refuses what is packed: it does not grow by lines.
    fn packed(&mut self, bytes: &[u8]) -> Result<(), IoError> {
        let missing = source::GZIP.len() - self.head.len();
        self.head.extend(bytes.iter().take(missing));
        if self.head == source::GZIP {
            let why = "it is gzipped, and so does not grow by lines";
            return Err(IoError::NotAStepLog { file: self.file.clone(), why });
        }
        Ok(())
    }

    fn judge(&mut self) -> Result<(), IoError> {
        let report = &mut self.feed.sink.report;
        if report.is_empty() {
            return Ok(());
        }
        let report = std::mem::replace(report, Violations::new(&self.file));
        Err(IoError::Invalid(Box::new(report)))
    }
}
