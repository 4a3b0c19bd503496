//! What is wrong with the content of a trace: rules, and the rows that break them.

use std::collections::BTreeMap;
use std::fmt;

/// How many violations of one rule are kept and printed; all are counted.
pub const SHOWN_PER_RULE: usize = 20;

/// A rule that the rows of a trace must keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Rule {
    /// Every line of a CSV file has as many fields as the header.
    FieldCount,
    /// Every cell has a value.
    NoNulls,
    /// Text is UTF-8.
    Utf8,
    /// Numbers are written as numbers.
    Number,
    /// Numbers fit the column: ids are not negative, stages fit 16 bits.
    Range,
    /// Times are finite.
    Finite,
    /// Starts and durations are not negative.
    NotNegative,
    /// A recorded end is start plus duration.
    EndAgrees,
    /// The kind of operation is known.
    KnownKind,
    /// The metadata's sizes multiply to its world size and agree with the rows.
    MetaAgrees,
    /// A rank is one cell of the plan, (dp, stage), and a cell is one rank.
    RankPlacement,
    /// An operation occurs once per (step, rank, kind, seq).
    UniqueKey,
    /// Within (step, rank, kind), seq ascends with start.
    SequenceOrder,
    /// Every step has every cell, and in each cell as many operations of a kind as the others.
    CompleteStep,
    /// Starts are relative to the step's earliest start.
    StepOrigin,
    /// Times are seconds.
    Seconds,
    /// Step times are positive.
    Positive,
    /// Step ids ascend, each once.
    StepsAscend,
    /// A line of a step has the step's number and its time.
    LogLine,
}

impl Rule {
    /// Short stable name, kebab case.
    pub const fn as_str(self) -> &'static str {
        match self {
            Rule::FieldCount => "field-count",
            Rule::NoNulls => "no-nulls",
            Rule::Utf8 => "utf8",
            Rule::Number => "number",
            Rule::Range => "range",
            Rule::Finite => "finite",
            Rule::NotNegative => "not-negative",
            Rule::EndAgrees => "end-agrees",
            Rule::KnownKind => "known-kind",
            Rule::MetaAgrees => "meta-agrees",
            Rule::RankPlacement => "rank-placement",
            Rule::UniqueKey => "unique-key",
            Rule::SequenceOrder => "sequence-order",
            Rule::CompleteStep => "complete-step",
            Rule::StepOrigin => "step-origin",
            Rule::Seconds => "seconds",
            Rule::Positive => "positive",
            Rule::StepsAscend => "steps-ascend",
            Rule::LogLine => "log-line",
        }
    }

    /// The rule in words.
    pub const fn sentence(self) -> &'static str {
        match self {
            Rule::FieldCount => "every line has as many fields as the header",
            Rule::NoNulls => "every cell has a value",
            Rule::Utf8 => "text is UTF-8",
            Rule::Number => "numbers are written as numbers",
            Rule::Range => "numbers fit their column",
            Rule::Finite => "times are finite",
            Rule::NotNegative => "starts and durations are not negative",
            Rule::EndAgrees => "a recorded end is start plus duration",
            Rule::KnownKind => "the kind of every operation is known",
            Rule::MetaAgrees => "the metadata agrees with itself and with the rows",
            Rule::RankPlacement => "a rank is one (dp, stage) cell, and a cell is one rank",
            Rule::UniqueKey => "an operation occurs once per (step, rank, kind, seq)",
            Rule::SequenceOrder => "seq ascends with start within (step, rank, kind)",
            Rule::CompleteStep => {
                "every step has every cell, and each cell as many operations of a kind as in most steps"
            }
            Rule::StepOrigin => "starts are relative to the step's earliest start",
            Rule::Seconds => "times are seconds",
            Rule::Positive => "step times are positive",
            Rule::StepsAscend => "step ids ascend, each once",
            Rule::LogLine => "a line of a step has its number and its time",
        }
    }

    /// What to do about it.
    pub const fn hint(self) -> &'static str {
        match self {
            Rule::FieldCount => {
                "quote fields that contain commas, close every quote; a short last line means a truncated file"
            }
            Rule::NoNulls => {
                "drop the rows that were not measured, or their steps, before exporting"
            }
            Rule::Utf8 => "export the file as UTF-8",
            Rule::Number => {
                "write integers without a fraction and times with a point as decimal separator"
            }
            Rule::Range => {
                "ids count from 0; -1 marks `not applicable` for chunk and microbatch only"
            }
            Rule::Finite => "NaN and infinity mean an operation that did not end: drop its step",
            Rule::NotNegative => {
                "negative times come from clocks that are not synchronised, or from a start that is not the step's earliest"
            }
            Rule::EndAgrees => "drop the column of ends: it is derived",
            Rule::KnownKind => "rename the operations to the kinds listed in the trace schema",
            Rule::MetaAgrees => {
                "world_size = dp_size * dsp_size * pp_size * tp_size; dp_size and pp_size count what was recorded"
            }
            Rule::RankPlacement => "record one rank per (dp, stage), under one number in all steps",
            Rule::UniqueKey => "remove repeated rows; number operations of one kind by start",
            Rule::SequenceOrder => "number operations of one kind on one rank by start, from 0",
            Rule::CompleteStep => {
                "drop these steps with `--allow-incomplete`, or export them whole"
            }
            Rule::StepOrigin => {
                "subtract each step's earliest start, over all ranks, from its starts"
            }
            Rule::Seconds => "divide milliseconds by 1e3, microseconds by 1e6, nanoseconds by 1e9",
            Rule::Positive => "drop steps that were not timed",
            Rule::StepsAscend => "give one run at a time, and only its training steps",
            Rule::LogLine => {
                "several programs wrote into one line, or it was cut: remove it from a copy of the log"
            }
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Where in a file a violation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// The file as a whole.
    File,
    /// The metadata, not the rows.
    Meta,
    /// Row of a columnar file, counted from 0 as data frames do.
    Row(u64),
    /// Line of a text file, counted from 1, the header included.
    Line(u64),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::File => f.write_str("file"),
            Place::Meta => f.write_str("metadata"),
            Place::Row(row) => write!(f, "row {row}"),
            Place::Line(line) => write!(f, "line {line}"),
        }
    }
}

/// One breach of a [`Rule`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Where.
    pub place: Place,
    /// What was found there.
    pub found: String,
}

/// All breaches of one rule: the count, and the first [`SHOWN_PER_RULE`] of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Breaches {
    /// How many there are.
    pub count: u64,
    /// The first of them.
    pub shown: Vec<Violation>,
}

/// Everything that is wrong with the content of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Violations {
    /// The file's name as given.
    pub file: String,
    /// By rule, in the order of [`Rule`].
    pub by_rule: BTreeMap<Rule, Breaches>,
}

impl Violations {
    /// None yet.
    pub(crate) fn new(file: &str) -> Self {
        Violations { file: file.to_owned(), by_rule: BTreeMap::new() }
    }

    /// Counts a violation; `found` is only asked for text that will be kept.
    pub(crate) fn add(&mut self, rule: Rule, place: Place, found: impl FnOnce() -> String) {
        let breaches = self.by_rule.entry(rule).or_default();
        breaches.count += 1;
        if breaches.shown.len() < SHOWN_PER_RULE {
            breaches.shown.push(Violation { place, found: found() });
        }
    }

    /// Whether nothing is wrong.
    pub fn is_empty(&self) -> bool {
        self.by_rule.is_empty()
    }

    /// Number of violations of all rules.
    pub fn count(&self) -> u64 {
        self.by_rule.values().map(|b| b.count).sum()
    }
}

impl fmt::Display for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.count();
        write!(f, "{}: {count} violation{}", self.file, if count == 1 { "" } else { "s" })?;
        for (rule, breaches) in &self.by_rule {
            write!(f, "\n  [{rule}] {} ({})", rule.sentence(), breaches.count)?;
            for v in &breaches.shown {
                write!(f, "\n    {}: {}", v.place, v.found)?;
            }
            let rest = breaches.count - breaches.shown.len() as u64;
            if rest > 0 {
                write!(f, "\n    and {rest} more")?;
            }
            write!(f, "\n    hint: {}", rule.hint())?;
        }
        Ok(())
    }
}
