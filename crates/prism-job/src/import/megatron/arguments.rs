//! Arguments by name, from a command line or a log.

use std::collections::{BTreeMap, BTreeSet};

use crate::import::ImportError;

/// Flags that set another name to false.
const NEGATIVE: [(&str, &str); 2] = [
    ("no_overlap_p2p_communication", "overlap_p2p_comm"),
    ("disable_bias_linear", "add_bias_linear"),
];

/// Flags whose value has another name in logs.
const RENAMED: [(&str, &str); 4] = [
    ("fp8_format", "fp8"),
    ("model_parallel_size", "tensor_model_parallel_size"),
    ("microbatch_size", "micro_batch_size"),
    ("moe_expert_parallel_size", "expert_model_parallel_size"),
];

/// Arguments by the names that logs print, and which were asked for.
pub(super) struct Arguments {
    values: BTreeMap<String, String>,
    used: BTreeSet<String>,
    from_log: bool,
}

impl Arguments {
    pub(super) fn read(text: &str) -> Result<Self, ImportError> {
        let from_log = log_lines(text);
        let is_log = from_log.len() >= 3;
        let mut values = BTreeMap::new();
        if is_log {
            values.extend(from_log);
        } else {
            command_line(text, &mut values);
        }
        if values.is_empty() {
            let cause = "neither `--flag value` nor `key ..... value` is in it".to_owned();
            return Err(ImportError::Format { format: "arguments of Megatron-LM", cause });
        }
        Ok(Arguments { values, used: BTreeSet::new(), from_log: is_log })
    }

    /// A name as the user wrote it.
    pub(super) fn name(&self, key: &str) -> String {
        if self.from_log { key.to_owned() } else { format!("--{}", key.replace('_', "-")) }
    }

    /// A value that is there and not `None`.
    pub(super) fn text(&mut self, key: &str) -> Option<String> {
        let value = self.values.get(key)?;
        self.used.insert(key.to_owned());
        (value != "None").then(|| value.clone())
    }

    /// A value that is neither absent nor off.
    pub(super) fn set(&mut self, key: &str) -> Option<String> {
        self.text(key).filter(|v| !matches!(v.as_str(), "False" | "0" | ""))
    }

    pub(super) fn flag(&mut self, key: &str) -> bool {
        self.flag_or(key, false)
    }

    pub(super) fn flag_or(&mut self, key: &str, default: bool) -> bool {
        self.text(key).map_or(default, |v| !matches!(v.to_lowercase().as_str(), "false" | "0"))
    }

    pub(super) fn int(&mut self, key: &str) -> Result<Option<u32>, ImportError> {
        let Some(value) = self.text(key) else { return Ok(None) };
        match value.parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(ImportError::Value { key: self.name(key), value }),
        }
    }

    pub(super) fn number(&mut self, key: &str) -> Result<Option<f64>, ImportError> {
        let Some(value) = self.text(key) else { return Ok(None) };
        match value.parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(Some(number)),
            _ => Err(ImportError::Value { key: self.name(key), value }),
        }
    }

    /// Flags that nothing asked for. A log prints every argument there is, so of those none is listed.
    pub(super) fn unused(&self) -> Vec<String> {
        if self.from_log {
            return Vec::new();
        }
        let unused = self.values.keys().filter(|k| !self.used.contains(*k));
        unused.map(|k| self.name(k)).collect()
    }
}

/// `key ........ value` of a log, whatever stands before the key.
fn log_lines(text: &str) -> Vec<(String, String)> {
    text.lines()
        .filter_map(|line| {
            let at = line.find(" ...")?;
            let key = line[..at].split_whitespace().last()?;
            let value = line[at..].trim_start_matches([' ', '.']).trim();
            let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let dotted = line[at..].trim_end().len() > value.len();
            (dotted && !key.is_empty() && key.chars().all(word) && !value.is_empty())
                .then(|| (key.to_owned(), value.to_owned()))
        })
        .collect()
}

fn command_line(text: &str, values: &mut BTreeMap<String, String>) {
    let tokens = tokens(text);
    let mut i = 0;
    while i < tokens.len() {
        let token = &tokens[i];
        i += 1;
        let Some(flag) = token.strip_prefix("--").filter(|f| !f.is_empty()) else { continue };
        let (name, value) = if let Some((name, value)) = flag.split_once('=') {
            (name, value.to_owned())
        } else {
            let start = i;
            while i < tokens.len() && !tokens[i].starts_with("--") && tokens[i] != ")" {
                i += 1;
            }
            (flag, tokens[start..i].join(" "))
        };
        let name = name.replace('-', "_");
        if let Some((_, other)) = NEGATIVE.iter().find(|n| n.0 == name) {
            values.insert((*other).to_owned(), "False".to_owned());
            continue;
        }
        let name = RENAMED.iter().find(|r| r.0 == name).map_or(name, |r| r.1.to_owned());
        let value = if value.is_empty() { "True".to_owned() } else { value };
        values.insert(name, value);
    }
}

/// A word that ends the values of the flag before it.
const END: &str = "--";

/// Words of shell text: quotes and continued lines undone, comments left out, variables filled in
/// where the text sets them.
fn tokens(text: &str) -> Vec<String> {
    let mut variables: BTreeMap<String, String> = BTreeMap::new();
    let mut out = Vec::new();
    for line in text.lines() {
        let (words, goes_on) = words(line);
        for raw in words {
            let word = expand(&raw, &variables);
            if let Some((name, value)) = word.split_once('=')
                && is_name(name)
            {
                // `ARGS=(` opens a list of flags; `ARGS="--a 1"` is one.
                let value = value.trim_start_matches('(');
                variables.insert(name.to_owned(), value.to_owned());
                if value.contains("--") {
                    out.extend(value.split_whitespace().map(str::to_owned));
                    out.push(END.to_owned());
                }
            } else if raw.contains('$') {
                out.extend(word.split_whitespace().map(str::to_owned));
            } else {
                out.push(word);
            }
        }
        if !goes_on {
            out.push(END.to_owned());
        }
    }
    out
}

fn is_name(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// The words of a line without its comment, and whether the next line goes on with it. A comment's
/// backslash continues nothing.
fn words(line: &str) -> (Vec<String>, bool) {
    let mut goes_on = false;
    let (mut out, mut word, mut quote, mut any) = (Vec::new(), String::new(), None, false);
    for c in line.chars() {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (None, '"' | '\'') => {
                quote = Some(c);
                any = true;
            }
            (None, '#') if word.is_empty() => break,
            (None, c) if c.is_whitespace() => {
                if any || !word.is_empty() {
                    out.push(std::mem::take(&mut word));
                }
                any = false;
            }
            (_, c) => word.push(c),
        }
    }
    if any || !word.is_empty() {
        out.push(word);
    }
    if let Some(last) = out.last_mut().filter(|w| w.ends_with('\\')) {
        last.pop();
        goes_on = true;
        if last.is_empty() {
            out.pop();
        }
    }
    (out, goes_on)
}

/// `$NAME`, `${NAME}` and `${NAME:-default}` filled in, where the text set the name.
fn expand(word: &str, variables: &BTreeMap<String, String>) -> String {
    let mut out = String::new();
    let mut rest = word;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        let (name, next) = if let Some(inner) = after.strip_prefix('{') {
            let Some(end) = inner.find('}') else { break };
            (&inner[..end], &inner[end + 1..])
        } else {
            let end = after.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
            after.split_at(end.unwrap_or(after.len()))
        };
        let (name, default) = name.split_once(":-").map_or((name, None), |(n, d)| (n, Some(d)));
        match variables.get(name).map(String::as_str).or(default) {
            Some(value) => out.push_str(value),
            None => out.push_str(&rest[at..rest.len() - next.len()]),
        }
        rest = next;
    }
    out.push_str(rest);
    out
}
