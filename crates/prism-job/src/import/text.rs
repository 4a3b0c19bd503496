//! A job file in the making.

use std::fmt::Write;

use crate::file::toml_text;

/// A job file as far as an import gives it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobText {
    /// The job file's text: each key with a comment that says what it came from, and a comment for
    /// each key that is still missing.
    pub toml: String,
    /// Dotted keys that the job still needs, each with what to write.
    pub missing: Vec<String>,
    /// Settings that mean nothing for the cost of a step.
    pub ignored: Vec<String>,
    /// Settings that were read in another sense than they have there, or left out though they may
    /// matter.
    pub warnings: Vec<String>,
}

/// Lines of a section in the making.
pub(super) struct Draft {
    sections: Vec<(&'static str, Vec<String>)>,
    missing: Vec<String>,
}

impl Draft {
    pub(super) fn new() -> Self {
        let names = ["model", "training", "parallelism", "parallelism.fsdp", "parallelism.overlap"];
        let sections = names.into_iter().chain(["cluster"]).map(|n| (n, Vec::new())).collect();
        Draft { sections, missing: Vec::new() }
    }

    fn push(&mut self, section: &str, line: String) {
        if let Some((_, lines)) = self.sections.iter_mut().find(|s| s.0 == section) {
            lines.push(line);
        }
    }

    /// `key = value  # from`; the value as TOML.
    pub(super) fn set(
        &mut self,
        section: &str,
        key: &str,
        value: impl std::fmt::Display,
        from: &str,
    ) {
        let from = from.replace(['\n', '\r'], " ");
        self.push(section, format!("{key} = {value}  # {from}"));
    }

    /// As [`Draft::set`] with a text value.
    pub(super) fn word(&mut self, section: &str, key: &str, value: &str, from: &str) {
        self.set(section, key, toml_text(value), from);
    }

    /// A key that the job still needs.
    pub(super) fn missing(&mut self, section: &str, key: &str, what: &str) {
        self.push(section, format!("# {key} = ...  # missing: {what}"));
        self.missing.push(format!("{section}.{key}: {what}"));
    }

    pub(super) fn finish(
        mut self,
        head: &str,
        ignored: Vec<String>,
        warnings: Vec<String>,
    ) -> JobText {
        if self.sections.last().is_some_and(|s| s.1.is_empty()) {
            self.missing("cluster", "preset", "a cluster such as \"h100-dgx\"");
        }
        let mut toml = format!("# {head}\nschema = \"{}\"\n", crate::JOB_SCHEMA);
        for warning in &warnings {
            let _ = writeln!(toml, "# Note: {}", warning.replace(['\n', '\r'], " "));
        }
        for (name, lines) in self.sections.iter().filter(|s| !s.1.is_empty()) {
            let _ = write!(toml, "\n[{name}]\n{}\n", lines.join("\n"));
        }
        JobText { toml, missing: self.missing, ignored, warnings }
    }
}
