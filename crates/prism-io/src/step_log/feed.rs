//! Bytes in, lines to the format that understands them.

use super::line::{Line, LineFormat};
use super::sink::Sink;
use super::{LogFormat, StepLogOptions, detect};
use crate::error::IoError;

/// Splits bytes into lines as they come, tells the format, and reads.
pub(super) struct Feed {
    file: String,
    options: StepLogOptions,
    state: State,
    /// What came after the last end of line.
    partial: Vec<u8>,
    /// Number of the line that is being read, from 1.
    number: u64,
    /// Whether nothing was read yet.
    fresh: bool,
    pub(super) sink: Sink,
}

enum State {
    /// Lines so far, none of which tells the format.
    Looking(Kept),
    Reading(LogFormat, Box<dyn LineFormat>),
}

/// Lines that are kept until the format is known.
#[derive(Default)]
struct Kept {
    bytes: Vec<u8>,
    /// Of each: its number, where it ends, whether it is whole.
    lines: Vec<(u64, usize, bool)>,
}

impl Feed {
    pub(super) fn new(file: &str, options: &StepLogOptions) -> Self {
        let state = match options.format {
            Some(format) => State::Reading(format, detect::reader(format, file, options)),
            None => State::Looking(Kept::default()),
        };
        Feed {
            file: file.to_owned(),
            options: options.clone(),
            state,
            partial: Vec::new(),
            number: 1,
            fresh: true,
            sink: Sink::new(file, options.limits),
        }
    }

    /// What wrote the log, once it is known.
    pub(super) fn format(&self) -> Option<LogFormat> {
        match &self.state {
            State::Looking(_) => None,
            State::Reading(format, _) => Some(*format),
        }
    }

    /// Takes more of the log.
    ///
    /// # Errors
    /// What makes all of it unreadable.
    pub(super) fn push(&mut self, mut bytes: &[u8]) -> Result<(), IoError> {
        while let Some(end) = bytes.iter().position(|b| matches!(b, b'\n' | b'\r')) {
            let (line, rest) = bytes.split_at(end);
            if self.partial.is_empty() {
                self.line(line, true)?;
            } else {
                let mut whole = std::mem::take(&mut self.partial);
                whole.extend_from_slice(line);
                self.line(&whole, true)?;
            }
            // A carriage return ends an update of a progress bar, not the line.
            self.number += u64::from(rest[0] == b'\n');
            bytes = &rest[1..];
        }
        self.partial.extend_from_slice(bytes);
        self.room(self.partial.len())
    }

    /// Takes what is left as the end of the log.
    ///
    /// # Errors
    /// As [`Feed::push`]; [`IoError::NotAStepLog`] if nothing told the format.
    pub(super) fn finish(&mut self) -> Result<(), IoError> {
        let rest = std::mem::take(&mut self.partial);
        self.line(&rest, false)?;
        if let State::Looking(kept) = &self.state {
            let first = kept.all().next().map(|l| l.bytes.to_vec());
            detect::not_a_log(&self.file, first.as_deref(), &self.options)?;
            // Something like a table: its reader says what it lacks.
            self.decide(LogFormat::Csv)?;
        }
        if let State::Reading(_, reader) = &mut self.state {
            reader.end(&mut self.sink)?;
        }
        self.sink.end();
        Ok(())
    }

    fn line(&mut self, bytes: &[u8], whole: bool) -> Result<(), IoError> {
        let fresh = std::mem::replace(&mut self.fresh, false);
        let bytes = if fresh { without_mark(bytes) } else { bytes };
        if bytes.trim_ascii().is_empty() {
            return Ok(());
        }
        let line = Line { bytes, number: self.number, whole };
        match &mut self.state {
            State::Reading(_, reader) => reader.line(&line, &mut self.sink),
            State::Looking(kept) => {
                let first = kept.lines.is_empty();
                kept.add(&line);
                let held = kept.bytes.len();
                match detect::tells(&line, first, &self.options) {
                    Some(format) => self.decide(format),
                    None => self.room(held),
                }
            }
        }
    }

    /// Reads what was kept.
    fn decide(&mut self, format: LogFormat) -> Result<(), IoError> {
        let mut reader = detect::reader(format, &self.file, &self.options);
        if let State::Looking(kept) =
            std::mem::replace(&mut self.state, State::Looking(Kept::default()))
        {
            for line in kept.all() {
                reader.line(&line, &mut self.sink)?;
            }
        }
        self.state = State::Reading(format, reader);
        Ok(())
    }

    fn room(&self, held: usize) -> Result<(), IoError> {
        let limit = self.options.limits.bytes;
        if held as u64 <= limit {
            return Ok(());
        }
        Err(IoError::TooLarge { file: self.file.clone(), limit, unit: "bytes" })
    }
}

impl Kept {
    fn add(&mut self, line: &Line<'_>) {
        self.bytes.extend_from_slice(line.bytes);
        self.lines.push((line.number, self.bytes.len(), line.whole));
    }

    fn all(&self) -> impl Iterator<Item = Line<'_>> {
        let mut from = 0;
        self.lines.iter().map(move |&(number, to, whole)| {
            let bytes = &self.bytes[from..to];
            from = to;
            Line { bytes, number, whole }
        })
    }
}

/// The beginning of a file without the byte order mark.
pub(super) fn without_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes)
}
