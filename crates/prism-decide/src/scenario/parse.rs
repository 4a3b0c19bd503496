//! Scenarios from text.

use std::collections::BTreeMap;
use std::str::FromStr;

use prism_engine::predict::{Repack, Source};
use prism_model::{Signature, seconds_from_text};

use super::{Edit, Scenario, ScenarioError};
use crate::select::Selection;

/// Names of the edits.
const EDITS: [&str; 13] = [
    "scale",
    "set",
    "delay",
    "freeze",
    "spread",
    "ideal",
    "heal",
    "slow-node",
    "slow-link",
    "congestion",
    "rebalance",
    "repack",
    "swap",
];

impl FromStr for Scenario {
    type Err = ScenarioError;

    /// `name: edit; edit`, or the edits alone, which are then their own name.
    fn from_str(text: &str) -> Result<Scenario, ScenarioError> {
        let (name, rest) = match text.split_once(':') {
            // A colon inside an edit belongs to a file name.
            Some((name, rest)) if !name.contains('=') => (Some(name.trim()), rest),
            _ => (None, text),
        };
        if text.chars().any(char::is_control) {
            return Err(ScenarioError::Parse {
                text: text.chars().filter(|c| !c.is_control()).collect(),
                what: "it has control characters".to_owned(),
            });
        }
        let edits: Vec<Edit> = rest
            .split(';')
            .map(str::trim)
            .filter(|part| !part.is_empty())
            .map(str::parse)
            .collect::<Result<_, _>>()?;
        if edits.is_empty() || name == Some("") {
            let what = if edits.is_empty() { "it has no edit" } else { "its name is empty" };
            return Err(ScenarioError::Parse { text: text.to_owned(), what: what.to_owned() });
        }
        let mut scenario = Scenario { name: String::new(), edits };
        scenario.name = name.map_or_else(|| scenario.to_string(), str::to_owned);
        Ok(scenario)
    }
}

impl FromStr for Edit {
    type Err = ScenarioError;

    fn from_str(text: &str) -> Result<Edit, ScenarioError> {
        parse(text).map_err(|what| ScenarioError::Parse { text: text.trim().to_owned(), what })
    }
}

/// The words of an edit, sorted into what they are.
struct Words<'a> {
    verb: &'a str,
    factor: Option<f64>,
    time_s: Option<f64>,
    pairs: BTreeMap<&'a str, &'a str>,
}

fn parse(text: &str) -> Result<Edit, String> {
    let mut words = words(text)?;
    let verb = words.verb;
    let effect = words.take("effect").map(source).transpose()?;
    let probability = words.take("p").map(share).transpose()?;
    let over = words.take("over").map(repack).transpose()?;
    let profile = words.take("profile").map(str::to_owned);
    let from = words.take("from").map(signature).transpose()?;
    let mut on = Selection::default();
    for (key, value) in &words.pairs {
        on.set(key, value)?;
    }
    let needs = |what: &str| format!("`{verb}` needs {what}");
    let factor = words.factor.ok_or_else(|| needs("a factor such as `x1.2`"));
    let edit = match verb {
        "scale" => Edit::Scale { factor: factor.clone()?, on: on.clone() },
        "set" => {
            let work_s = words.time_s.ok_or_else(|| needs("a time such as `12ms`"))?;
            Edit::Set { work_s, on: on.clone() }
        }
        "delay" => Edit::Delay { factor: factor.clone()?, on: on.clone() },
        "freeze" => Edit::Spread { factor: 0.0, effect, on: on.clone() },
        "spread" => Edit::Spread { factor: factor.clone()?, effect, on: on.clone() },
        "ideal" => Edit::Ideal { on: on.clone() },
        "heal" => Edit::Heal { on: on.clone() },
        "slow-node" => Edit::SlowNode { factor: factor.clone()?, on: on.clone() },
        "slow-link" => Edit::SlowLink { factor: factor.clone()?, on: on.clone() },
        "congestion" => Edit::Congestion {
            factor: factor.clone()?,
            probability: probability.ok_or_else(|| needs("the share of steps, `p=0.05`"))?,
            on: on.clone(),
        },
        "rebalance" => Edit::Rebalance,
        "repack" => Edit::Repack { over: over.unwrap_or(Repack::Step) },
        "swap" => Edit::Swap {
            profile: profile.clone().ok_or_else(|| needs("a profile, `profile=other.json`"))?,
            from,
            on: on.clone(),
        },
        other => return Err(format!("no edit `{other}`; there are {}", EDITS.join(", "))),
    };
    // What was typed and is not part of the edit would be lost silently.
    let unused = [
        (words.factor.is_some() && !takes_factor(&edit, verb), "a factor"),
        (words.time_s.is_some() && verb != "set", "a time"),
        (effect.is_some() && !matches!(edit, Edit::Spread { .. }), "`effect=`"),
        (probability.is_some() && verb != "congestion", "`p=`"),
        (over.is_some() && verb != "repack", "`over=`"),
        (profile.is_some() && verb != "swap", "`profile=`"),
        (from.is_some() && verb != "swap", "`from=`"),
        (on != Selection::default() && edit.selection().is_none(), "a selection"),
    ];
    match unused.iter().find(|(is, _)| *is) {
        Some((_, what)) => Err(format!("`{verb}` does not take {what}")),
        None => Ok(edit),
    }
}

fn takes_factor(edit: &Edit, verb: &str) -> bool {
    match edit {
        Edit::Scale { .. }
        | Edit::Delay { .. }
        | Edit::SlowNode { .. }
        | Edit::SlowLink { .. }
        | Edit::Congestion { .. } => true,
        Edit::Spread { .. } => verb == "spread",
        _ => false,
    }
}

fn words(text: &str) -> Result<Words<'_>, String> {
    let mut parts = text.split_whitespace();
    let verb = parts.next().ok_or("it is empty")?;
    let mut words = Words { verb, factor: None, time_s: None, pairs: BTreeMap::new() };
    for part in parts {
        if let Some((key, value)) = part.split_once('=') {
            if words.pairs.insert(key, value).is_some() {
                return Err(format!("`{key}=` is given twice"));
            }
        } else if let Some(factor) = part.strip_prefix(['x', 'X', '×']) {
            if words.factor.replace(positive(factor, part)?).is_some() {
                return Err("two factors are given".to_owned());
            }
        } else if part.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
            if words.time_s.replace(time(part)?).is_some() {
                return Err("two times are given".to_owned());
            }
        } else {
            return Err(format!(
                "`{part}` is neither a factor (`x1.2`), a time (`12ms`) nor `key=value`"
            ));
        }
    }
    Ok(words)
}

impl<'a> Words<'a> {
    fn take(&mut self, key: &str) -> Option<&'a str> {
        self.pairs.remove(key)
    }
}

fn positive(text: &str, shown: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(v) if v == 0.0 || (1e-6..=1e6).contains(&v) => Ok(v),
        Ok(v) if v > 0.0 => {
            Err(format!("`{shown}` is beyond what is computed: x0, or x1e-6 to x1e6"))
        }
        _ => Err(format!("`{shown}` is not a factor of at least 0, such as `x1.2`")),
    }
}

/// A time up to eleven days.
fn time(text: &str) -> Result<f64, String> {
    match seconds_from_text(text) {
        Ok(time_s) if time_s <= 1e6 => Ok(time_s),
        Ok(_) => Err(format!("`{text}` is beyond what is computed: at most 1000000s")),
        Err(e) => Err(e.to_string()),
    }
}

fn share(text: &str) -> Result<f64, String> {
    let (digits, exponent) = match text.strip_suffix('%') {
        Some(percent) => (percent, "e-2"),
        None => (text, "e0"),
    };
    match format!("{digits}{exponent}").parse::<f64>() {
        Ok(v) if (0.0..=1.0).contains(&v) => Ok(v),
        _ => Err(format!("`p={text}` is not a probability such as `0.05` or `5%`")),
    }
}

fn source(text: &str) -> Result<Source, String> {
    Source::ALL.into_iter().find(|s| s.as_str() == text).ok_or_else(|| {
        let names: Vec<&str> = Source::ALL.iter().map(|s| s.as_str()).collect();
        format!("no effect `{text}`; there are {}", names.join(", "))
    })
}

fn repack(text: &str) -> Result<Repack, String> {
    match text {
        "step" => Ok(Repack::Step),
        "replica" => Ok(Repack::Replica),
        other => Err(format!("`over={other}` is neither `step` nor `replica`")),
    }
}

/// `forward-compute@3` or `forward-compute@3.1`: kind, stage, chunk.
fn signature(text: &str) -> Result<Signature, String> {
    let wrong = || format!("`{text}` is no signature such as `forward-compute@3` (kind@stage)");
    let (kind, place) = text.split_once('@').ok_or_else(wrong)?;
    let (stage, chunk) = place.split_once('.').unwrap_or((place, "0"));
    let kind: prism_model::OpKind = kind.parse().map_err(|_| wrong())?;
    let chunk: i16 = chunk.parse().map_err(|_| wrong())?;
    Ok(Signature { kind, stage: stage.parse().map_err(|_| wrong())?, chunk })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_read_back_as_written() {
        for text in [
            "scale x1.2 kind=forward-compute stage=3 dp=0",
            "set 0.012s kind=optimizer",
            "delay x0",
            "freeze kind=p2p",
            "freeze effect=microbatch",
            "spread x0.5 effect=step-worker stage=0-2",
            "ideal kind=collective step=3,7",
            "heal rank=12",
            "slow-node x1.5 node=1",
            "slow-link x3 stage=last",
            "congestion x3 p=0.05 kind=p2p",
            "rebalance",
            "repack over=replica",
            "swap profile=b.json from=forward-compute@1 kind=forward-compute stage=0",
        ] {
            let edit: Edit = text.parse().unwrap();
            assert_eq!(edit.to_string(), text);
            let again: Edit = serde_json::from_value(serde_json::to_value(&edit).unwrap()).unwrap();
            assert_eq!(again, edit);
        }
    }

    #[test]
    fn a_scenario_has_a_name_and_edits() {
        let scenario: Scenario = "slow: slow-node x1.5 dp=0; delay x0".parse().unwrap();
        assert_eq!((scenario.name.as_str(), scenario.edits.len()), ("slow", 2));
        let bare: Scenario = "delay x0".parse().unwrap();
        assert_eq!(bare.name, "delay x0");
    }

    #[test]
    fn what_cannot_be_meant_is_refused_in_words() {
        for (text, says) in [
            ("scale", "needs a factor"),
            ("scale x-1", "at least 0"),
            ("scale 1.2", "no unit"),
            ("scale x1.2 colour=red", "no selection by `colour`"),
            ("scale x1.2 stage=a", "not a number"),
            ("scale x1.2 x1.3", "two factors"),
            ("scale x1.2 dp=0 dp=1", "twice"),
            ("freeze x2", "does not take a factor"),
            ("scale x2 effect=step", "does not take `effect=`"),
            ("congestion x2", "share of steps"),
            ("congestion x2 p=2", "not a probability"),
            ("rebalance stage=0", "does not take a selection"),
            ("repack over=cluster", "neither"),
            ("swap kind=optimizer", "needs a profile"),
            ("set 5lightyears", "unknown unit"),
            ("freeze effect=magic", "no effect `magic`"),
            ("explode", "no edit `explode`"),
            ("scale x1e300", "beyond what is computed"),
            ("a\u{1b}b: repack", "control characters"),
            ("name:", "no edit"),
        ] {
            let error = text.parse::<Scenario>().unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
