//! A job file's text with `--set` arguments merged into it, and where each key stands.

use std::borrow::Cow;
use std::ops::Range;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer};

use super::nearest::{listed, nearest};
use super::raw::RawJob;
use super::violation::Violation;

/// A file with more violations than this is no job file; the rest is not looked for.
const MOST_VIOLATIONS: usize = 100;

/// More parts than any dotted key has; tables nest no deeper.
const MOST_PARTS: usize = 8;

/// What a file says, and where.
pub(crate) struct Document<'t> {
    text: &'t str,
    table: Spanned<DeTable<'t>>,
    /// The `--set` arguments, each as `key=value`. Spans past the text number them.
    sets: Vec<String>,
    /// What was wrong so far.
    pub(crate) violations: Vec<Violation>,
    /// Keys that were refused, or misspelt with this one as the nearest: nothing follows from their
    /// absence.
    pub(crate) broken: Vec<String>,
}

impl<'t> Document<'t> {
    /// Parses the text and merges `key=value` pairs into it.
    pub(crate) fn new(text: &'t str, sets: &'t [(String, String)]) -> Self {
        let (table, errors) = DeTable::parse_recoverable(text);
        let mut document = Document {
            text,
            table,
            sets: sets.iter().map(|(key, value)| format!("{key}={value}")).collect(),
            violations: Vec::new(),
            broken: Vec::new(),
        };
        for error in errors.iter().take(MOST_VIOLATIONS) {
            document.violations.push(Violation {
                key: String::new(),
                rule: "toml",
                span: Some(clip(error.span().unwrap_or(0..0), text)),
                set: None,
                message: format!("no TOML: {}", error.message()),
                hint: None,
            });
        }
        if document.violations.is_empty() {
            for (i, (key, value)) in sets.iter().enumerate() {
                document.merge(i, key, value);
            }
        }
        document
    }

    /// The span of everything that the `i`-th `--set` argument brought.
    fn set_span(&self, i: usize) -> Range<usize> {
        let at = self.text.len() + 1 + i;
        at..at
    }

    fn merge(&mut self, i: usize, key: &'t str, value: &'t str) {
        let span = self.set_span(i);
        let parts: Vec<&str> = key.split('.').map(str::trim).collect();
        let Some((last, path)) = parts.split_last() else { return };
        if parts.iter().any(|p| p.is_empty()) || parts.len() > MOST_PARTS {
            let hint = "write `--set section.key=value`".to_owned();
            let message = format!("`{key}` is no dotted key");
            self.push(key, "set-key", span, message, Some(hint));
            return;
        }
        let value = set_value(value, &span);
        let mut table = self.table.get_mut();
        for (depth, part) in path.iter().enumerate() {
            // A table that the argument brings is the argument's.
            let name = Spanned::new(span.clone(), Cow::Owned((*part).to_owned()));
            let empty = Spanned::new(0..0, DeValue::Table(DeTable::new()));
            let DeValue::Table(inner) = table.entry(name).or_insert(empty).get_mut() else {
                let outer = parts[..=depth].join(".");
                let message = format!("`{outer}` is no table in the file");
                let hint = Some(format!("only tables have keys such as `{last}`"));
                self.push(key, "set-key", span, message, hint);
                return;
            };
            table = inner;
        }
        let name = Spanned::new(span, Cow::Owned((*last).to_owned()));
        // Removing first makes the key's own span that of the argument.
        table.remove(*last);
        table.insert(name, value);
    }

    /// Records a violation at a span of the text or of a `--set` argument.
    pub(crate) fn push(
        &mut self,
        key: &str,
        rule: &'static str,
        span: Range<usize>,
        message: String,
        hint: Option<String>,
    ) {
        let violation = self.violation(key, rule, span, message, hint);
        self.violations.push(violation);
    }

    /// A violation at a span of the text or of a `--set` argument.
    pub(crate) fn violation(
        &self,
        key: &str,
        rule: &'static str,
        span: Range<usize>,
        message: String,
        hint: Option<String>,
    ) -> Violation {
        let set = span.start.checked_sub(self.text.len() + 1).and_then(|i| self.sets.get(i));
        Violation {
            key: key.to_owned(),
            rule,
            span: if set.is_some() { None } else { Some(clip(span, self.text)) },
            set: set.cloned(),
            message,
            hint,
        }
    }

    /// The span of a dotted key's value, where a number is an index into an array; of the innermost
    /// value there is on its way where the key is absent.
    pub(crate) fn locate(&self, key: &str) -> Range<usize> {
        let mut found = 0..0;
        let mut outer = step(self.table.get_ref(), key);
        while let Some((value, rest)) = outer {
            if value.span() != (0..0) {
                found = value.span();
            }
            outer = match value.get_ref() {
                DeValue::Table(inner) => step(inner, rest),
                DeValue::Array(items) => {
                    let (index, rest) = rest.split_once('.').unwrap_or((rest, ""));
                    index.parse::<usize>().ok().and_then(|i| items.get(i)).map(|v| (v, rest))
                }
                _ => None,
            };
        }
        found
    }

    /// Whether the file, or a `--set` argument, has a dotted key.
    pub(crate) fn has(&self, key: &str) -> bool {
        let mut table = self.table.get_ref();
        let mut parts = key.split('.').peekable();
        while let Some(part) = parts.next() {
            match table.get(part).map(Spanned::get_ref) {
                Some(DeValue::Table(inner)) => table = inner,
                found => return found.is_some() && parts.peek().is_none(),
            }
        }
        true
    }

    /// Whether a key, or a table it is in, was refused.
    pub(crate) fn is_broken(&self, key: &str) -> bool {
        self.broken.iter().any(|b| {
            key == b || (key.starts_with(b.as_str()) && key.as_bytes().get(b.len()) == Some(&b'.'))
        })
    }

    /// The file as it is written. What does not fit is recorded, taken out, and the rest read again:
    /// serde stops at the first error, a user wants them all.
    pub(crate) fn raw(&mut self) -> RawJob {
        loop {
            let error = match RawJob::deserialize(Deserializer::from(self.table.clone())) {
                Ok(raw) => return raw,
                Err(error) => error,
            };
            let removed = error.span().and_then(|span| remove(self.table.get_mut(), &span));
            let (key, span) = match removed {
                Some((path, span)) => (path.join("."), span),
                None => (String::new(), 0..0),
            };
            let (rule, message, hint) = self.explain(&key, error.message());
            let at = error.span().unwrap_or(span);
            self.push(&key, rule, at, message, hint);
            if key.is_empty() || self.violations.len() >= MOST_VIOLATIONS {
                return RawJob::default();
            }
            self.broken.push(key);
        }
    }

    /// Serde's message in our words.
    fn explain(&mut self, key: &str, message: &str) -> (&'static str, String, Option<String>) {
        let words: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
        if message.starts_with("unknown field") && !words.is_empty() {
            let legal = &words[1..];
            let last = key.rsplit('.').next().unwrap_or(key);
            let found = nearest(last, legal);
            if let Some(best) = found.first() {
                let outer = key.rfind('.').map_or("", |dot| &key[..=dot]);
                self.broken.push(format!("{outer}{best}"));
            }
            let hint = if last == "local_batch_size" {
                "torchtitan's batch of a rank and step; write `micro_batch_size`, sequences of one \
                 microbatch"
                    .to_owned()
            } else if found.is_empty() {
                format!("use one of {}", listed(legal))
            } else {
                format!("did you mean {}?", listed(&found))
            };
            return ("unknown-key", format!("unknown key `{key}`"), Some(hint));
        }
        if message.starts_with("unknown variant") && !words.is_empty() {
            let legal = &words[1..];
            let found = nearest(words[0], legal);
            let hint = if found.is_empty() {
                format!("use one of {}", listed(legal))
            } else {
                format!("did you mean {}?", listed(&found))
            };
            return ("unknown-value", format!("`{key}` cannot be `{}`", words[0]), Some(hint));
        }
        let plain = message
            .replace("expected u8", "expected a whole number of at least 0")
            .replace("expected u32", "expected a whole number from 0 to 4294967295")
            .replace("expected u64", "expected a whole number of at least 0")
            .replace("expected i64", "expected a whole number")
            .replace("expected f64", "expected a number")
            .replace("expected struct", "expected a table,");
        let plain = if plain.contains("expected a table,") {
            plain.split("expected a table,").next().unwrap_or_default().to_owned()
                + "expected a table"
        } else {
            plain
        };
        ("value", format!("`{key}`: {plain}"), None)
    }
}

/// The value of a dotted key's first part, and the other parts.
fn step<'a, 't>(
    table: &'a DeTable<'t>,
    key: &'a str,
) -> Option<(&'a Spanned<DeValue<'t>>, &'a str)> {
    let (first, rest) = key.split_once('.').unwrap_or((key, ""));
    table.get(first).map(|value| (value, rest))
}

/// The span as far as it lies in the text, on character boundaries.
fn clip(span: Range<usize>, text: &str) -> Range<usize> {
    let floor = |mut at: usize| {
        at = at.min(text.len());
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        at
    };
    let start = floor(span.start);
    start..floor(span.end).max(start)
}

/// The value of a `--set` argument: TOML, or else text.
fn set_value<'t>(text: &'t str, span: &Range<usize>) -> Spanned<DeValue<'t>> {
    let parsed = DeValue::parse(text.trim()).ok().map(Spanned::into_inner);
    moved(parsed.unwrap_or(DeValue::String(Cow::Borrowed(text))), span)
}

/// The value with the argument's span all through.
fn moved<'t>(value: DeValue<'t>, span: &Range<usize>) -> Spanned<DeValue<'t>> {
    let value = match value {
        DeValue::Array(items) => {
            DeValue::Array(items.into_iter().map(|i| moved(i.into_inner(), span)).collect())
        }
        DeValue::Table(table) => {
            let mut out = DeTable::new();
            for (k, v) in table {
                let key = Spanned::new(span.clone(), k.into_inner());
                out.insert(key, moved(v.into_inner(), span));
            }
            DeValue::Table(out)
        }
        other => other,
    };
    Spanned::new(span.clone(), value)
}

/// Takes out the innermost entry that a span lies in; its dotted path and span.
fn remove(table: &mut DeTable<'_>, span: &Range<usize>) -> Option<(Vec<String>, Range<usize>)> {
    let inside = |outer: &Range<usize>| {
        outer.start <= span.start && span.end <= outer.end && (outer.start, outer.end) != (0, 0)
    };
    let mut hit = None;
    for (key, value) in table.iter_mut() {
        let name = key.get_ref().to_string();
        let inner = match value.get_mut() {
            DeValue::Table(inner) => remove(inner, span),
            DeValue::Array(items) => {
                items.iter_mut().enumerate().find_map(|(i, item)| match item.get_mut() {
                    DeValue::Table(inner) => remove(inner, span).map(|(mut path, at)| {
                        path.insert(0, i.to_string());
                        (path, at)
                    }),
                    _ => None,
                })
            }
            _ => None,
        };
        if let Some((mut path, at)) = inner {
            path.insert(0, name);
            return Some((path, at));
        }
        if hit.is_none() && (inside(&key.span()) || inside(&value.span())) {
            hit = Some((name, key.span()));
        }
    }
    let (name, at) = hit?;
    table.remove(name.as_str());
    Some((vec![name], at))
}
