//! One line of a log, and what a format is.

use std::borrow::Cow;

use super::sink::Sink;
use crate::error::IoError;
use crate::violation::Place;

/// One line of a log, or one update of a progress bar (ended by a carriage return), not blank.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line<'a> {
    /// The bytes, without the end of line.
    pub(super) bytes: &'a [u8],
    /// Number of the line, from 1.
    pub(super) number: u64,
    /// Whether its end was seen; otherwise it may have been cut.
    pub(super) whole: bool,
}

/// A format: what its lines say goes into the sink.
pub(super) trait LineFormat {
    /// Reads one line. Whatever is no line of the format's own is passed over.
    ///
    /// # Errors
    /// What makes all of the log unreadable. What is wrong with a line goes into the sink.
    fn line(&mut self, line: &Line<'_>, sink: &mut Sink) -> Result<(), IoError>;

    /// Reads on after the last line.
    ///
    /// # Errors
    /// As [`LineFormat::line`].
    fn end(&mut self, _sink: &mut Sink) -> Result<(), IoError> {
        Ok(())
    }
}

impl Line<'_> {
    /// Where it is.
    pub(super) fn place(&self) -> Place {
        Place::Line(self.number)
    }

    /// The text, without colours.
    pub(super) fn text(&self) -> Cow<'_, str> {
        plain(self.bytes)
    }

    /// The number after the first `key` of its text, with what it is written as; `None` without key, or
    /// where the number may have been cut.
    pub(super) fn number_after<'t>(&self, text: &'t str, key: &str) -> Option<&'t str> {
        let rest = &text[text.find(key)? + key.len()..];
        let token = token(rest);
        let cut = !self.whole && token.len() == rest.trim_start().len();
        (!token.is_empty() && !cut).then_some(token)
    }
}

/// What is written up to the next separator.
fn token(rest: &str) -> &str {
    let rest = rest.trim_start();
    let separates = |(at, c): (usize, char)| {
        let thousands = c == ',' && rest[at + 1..].starts_with(|d: char| d.is_ascii_digit());
        c.is_whitespace() || matches!(c, '|' | ']' | ')') || (c == ',' && !thousands)
    };
    let end = rest.char_indices().find(|&c| separates(c)).map_or(rest.len(), |(at, _)| at);
    &rest[..end]
}

/// The text of bytes, without escape sequences of terminals.
pub(super) fn plain(bytes: &[u8]) -> Cow<'_, str> {
    if !bytes.contains(&ESCAPE) {
        return String::from_utf8_lossy(bytes);
    }
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes.iter().copied().peekable();
    while let Some(b) = rest.next() {
        if b != ESCAPE {
            out.push(b);
        } else if rest.next_if_eq(&b'[').is_some() {
            // Parameters and intermediates, then one final byte.
            while rest.next_if(|b| (0x20..0x40).contains(b)).is_some() {}
            rest.next_if(|b| (0x40..0x7F).contains(b));
        }
    }
    Cow::Owned(String::from_utf8_lossy(&out).into_owned())
}

const ESCAPE: u8 = 0x1B;

/// An integer at the start of the text, after blanks, and what follows it.
pub(super) fn integer(text: &str) -> Option<(i64, &str)> {
    let text = text.trim_start();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, &text[end..]))
}

/// The integer after the first `key` that is followed by one, and the text after it.
pub(super) fn integer_after<'t>(text: &'t str, key: &str) -> Option<(i64, &'t str)> {
    text.match_indices(key).find_map(|(at, _)| integer(&text[at + key.len()..]))
}

/// The first time stamp (`2025-01-02 03:04:05`, also with `T` and fractions) of a text, in seconds since
/// 1970. Logs do not say which zone it is; differences are what counts.
pub(super) fn timestamp(text: &str) -> Option<f64> {
    let bytes = text.as_bytes();
    (0..bytes.len().saturating_sub(18)).find_map(|at| stamp_at(&bytes[at..]))
}

fn stamp_at(b: &[u8]) -> Option<f64> {
    const SHAPE: &[u8] = b"dddd-dd-dd dd:dd:dd";
    let fits = SHAPE.iter().zip(b).all(|(s, c)| match s {
        b'd' => c.is_ascii_digit(),
        b' ' => matches!(c, b' ' | b'T'),
        s => s == c,
    });
    if !fits {
        return None;
    }
    let digits =
        |from: usize, to: usize| b[from..to].iter().fold(0, |n, d| 10 * n + i64::from(d - b'0'));
    let days = days(digits(0, 4), digits(5, 7), digits(8, 10));
    let whole = ((days * 24 + digits(11, 13)) * 60 + digits(14, 16)) * 60 + digits(17, 19);
    let fraction = match b.get(19) {
        Some(b'.' | b',') => {
            b[20..]
                .iter()
                .take_while(|d| d.is_ascii_digit())
                .fold((0.0, 0.1), |(sum, unit), d| (sum + f64::from(d - b'0') * unit, unit * 0.1))
                .0
        }
        _ => 0.0,
    };
    Some(whole as f64 + fraction)
}

/// Days from 1970-01-01 to a date of the Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> i64 {
    // Years from March, so that the leap day is the last.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    y * 365 + y.div_euclid(4) - y.div_euclid(100) + y.div_euclid(400) + (m * 153 + 2) / 5 + day
        - 719_469
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_count_seconds() {
        assert_eq!(timestamp("1970-01-01 00:00:00"), Some(0.0));
        assert_eq!(timestamp("[2000-03-01T00:00:01] x"), Some(951_868_801.0));
        assert_eq!(timestamp("2024-02-29 12:00:00,5 - root"), Some(1_709_208_000.5));
        assert_eq!(timestamp("2024-2-29 12:00:00"), None);
        assert_eq!(timestamp("é2024-01-01 00:00:0"), None);
    }

    #[test]
    fn colours_go() {
        assert_eq!(plain(b"\x1b[31mstep: \x1b[1;32m7\x1b[0m\x1b"), "step: 7");
        assert_eq!(plain(b"\x1b[Aup"), "up");
    }

    #[test]
    fn numbers_end_at_separators() {
        let whole = Line { bytes: b"", number: 1, whole: true };
        let cut = Line { whole: false, ..whole };
        assert_eq!(whole.number_after("tps: 1,234  x", "tps:"), Some("1,234"));
        assert_eq!(whole.number_after("a=1.5, b=2]", "a="), Some("1.5"));
        assert_eq!(whole.number_after("a: 12", "a:"), Some("12"));
        assert_eq!(cut.number_after("a: 12", "a:"), None);
        assert_eq!(cut.number_after("a: 12 |", "a:"), Some("12"));
        assert_eq!(whole.number_after("a:  ", "a:"), None);
    }
}
