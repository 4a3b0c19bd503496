//! Values that are more than a number.

use std::str::FromStr;

use prism_model::seconds_from_text;

/// A probability strictly inside (0, 1).
pub(crate) fn probability(text: &str) -> Result<f64, String> {
    let value = number(text)?;
    if value > 0.0 && value < 1.0 {
        Ok(value)
    } else {
        Err(format!("`{text}` is not strictly between 0 and 1"))
    }
}

/// A quantile: `0.95` or `p95`.
pub(crate) fn quantile(text: &str) -> Result<f64, String> {
    let Some(percent) = text.strip_prefix(['p', 'P']) else {
        return probability(text)
            .map_err(|e| format!("{e}; a quantile is written `0.95` or `p95`"));
    };
    let value = number(percent)?;
    // Through text, so that p95 is the same number as 0.95.
    let share = shifted(percent, value);
    if share > 0.0 && share < 1.0 {
        Ok(share)
    } else {
        Err(format!("`{text}` is not strictly between p0 and p100"))
    }
}

/// A positive share: `0.05` or `5%`.
pub(crate) fn share(text: &str) -> Result<f64, String> {
    let value = match text.strip_suffix('%') {
        Some(percent) => shifted(percent.trim_end(), number(percent.trim_end())?),
        None => number(text)?,
    };
    if value > 0.0 && value.is_finite() {
        Ok(value)
    } else {
        Err(format!("`{text}` is not a positive share such as `0.05` or `5%`"))
    }
}

/// A factor on a time: `x1.2` or `1.2`.
pub(crate) fn slow_factor(text: &str) -> Result<f64, String> {
    let value = number(text.strip_prefix(['x', 'X']).unwrap_or(text))?;
    if (1e-3..=1e3).contains(&value) {
        Ok(value)
    } else {
        Err(format!("`{text}` is not a factor from `x0.001` to `x1000`, such as `x1.2`"))
    }
}

/// Most samples: their memory must be affordable.
const MOST_SAMPLES: usize = 1 << 24;

/// A number of samples.
pub(crate) fn samples(text: &str) -> Result<usize, String> {
    match text.parse::<usize>() {
        Ok(n) if n <= MOST_SAMPLES => Ok(n),
        Ok(_) => Err(format!("more than {MOST_SAMPLES} samples are not drawn at once")),
        Err(_) => Err(format!("`{text}` is not a number of samples")),
    }
}

/// A number of threads.
pub(crate) fn threads(text: &str) -> Result<usize, String> {
    match text.parse::<usize>() {
        Ok(n) if n <= 512 => Ok(n),
        Ok(_) => Err("at most 512 threads are started".to_owned()),
        Err(_) => Err(format!("`{text}` is not a number of threads")),
    }
}

/// A number of bootstrap repetitions: none, or at least two.
pub(crate) fn repetitions(text: &str) -> Result<usize, String> {
    match text.parse::<usize>() {
        Ok(1) => Err("one repetition has no spread; give 0 for none, or at least 2".to_owned()),
        Ok(n) => Ok(n),
        Err(_) => Err(format!("`{text}` is not a number of repetitions")),
    }
}

/// A hundredth of a number, correctly rounded from its text.
fn shifted(text: &str, value: f64) -> f64 {
    let exact = if text.contains(['e', 'E']) { None } else { format!("{text}e-2").parse().ok() };
    exact.unwrap_or(value / 100.0)
}

/// A key of a job file and what replaces its value: `section.key=value`.
pub(crate) fn assignment(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => {
            Ok((key.trim().to_owned(), value.trim().to_owned()))
        }
        _ => Err(format!(
            "`{text}` is no `section.key=value`, such as `parallelism.tensor_parallel_degree=4`"
        )),
    }
}

/// A finite number.
pub(crate) fn number(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() => Ok(value),
        _ => Err(format!("`{text}` is not a number")),
    }
}

/// A time with its unit, in seconds.
pub(crate) fn duration(text: &str) -> Result<f64, String> {
    seconds_from_text(text).map_err(|e| e.to_string())
}

/// What a requirement is about.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Statistic {
    /// A quantile of step time.
    Quantile(f64),
    /// Mean step time.
    Mean,
    /// Standard deviation of step time.
    Sd,
}

/// How a statistic must lie to its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relation {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Relation {
    /// Whether `value relation limit` holds.
    pub(crate) fn holds(self, value: f64, limit: f64) -> bool {
        match self {
            Relation::Less => value < limit,
            Relation::LessOrEqual => value <= limit,
            Relation::Greater => value > limit,
            Relation::GreaterOrEqual => value >= limit,
        }
    }
}

/// What is left and right of a relation: `p95<8s` is `p95`, less, `8s`.
pub(crate) fn relation(text: &str) -> Option<(&str, Relation, &str)> {
    let (name, rest) = text.split_at(text.find(['<', '>', '='])?);
    let signs = [
        ("<=", Relation::LessOrEqual),
        (">=", Relation::GreaterOrEqual),
        ("<", Relation::Less),
        (">", Relation::Greater),
    ];
    let (sign, relation) = signs.into_iter().find(|s| rest.starts_with(s.0))?;
    Some((name.trim(), relation, rest[sign.len()..].trim()))
}

/// A condition on the predicted distribution, such as `p95<8s`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Requirement {
    /// As typed.
    pub(crate) text: String,
    pub(crate) statistic: Statistic,
    pub(crate) relation: Relation,
    /// Seconds.
    pub(crate) limit_s: f64,
}

impl FromStr for Requirement {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = "a requirement is written `p95<8s`, `mean<=7.5s` or `sd<300ms`";
        let Some((name, relation, limit)) = relation(text) else {
            return Err(if text.contains('=') {
                format!("`=` never holds of a random number; {form}")
            } else {
                format!("no `<`, `<=`, `>` or `>=` in `{text}`; {form}")
            });
        };
        let statistic = match name {
            "mean" => Statistic::Mean,
            "sd" => Statistic::Sd,
            p if p.starts_with('p') => Statistic::Quantile(quantile(p)?),
            other => return Err(format!("unknown statistic `{other}`; {form}")),
        };
        let limit_s = duration(limit)?;
        Ok(Requirement { text: text.to_owned(), statistic, relation, limit_s })
    }
}

/// Which quantile to bound, and with what confidence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Guarantee {
    pub(crate) q: f64,
    pub(crate) confidence: f64,
}

impl FromStr for Guarantee {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = "a guarantee is written `q=0.95,conf=0.95`";
        let (mut q, mut confidence) = (None, None);
        for part in text.split(',') {
            let Some((key, value)) = part.split_once('=') else {
                return Err(format!("no `=` in `{part}`; {form}"));
            };
            let slot = match key.trim() {
                "q" => &mut q,
                "conf" => &mut confidence,
                other => return Err(format!("unknown key `{other}`; {form}")),
            };
            if slot.replace(value.trim()).is_some() {
                return Err(format!("`{}` is given twice; {form}", key.trim()));
            }
        }
        let (Some(q), Some(confidence)) = (q, confidence) else {
            return Err(format!("both `q` and `conf` are needed; {form}"));
        };
        let confidence = probability(confidence)?;
        if confidence < 0.5 {
            return Err(format!("a confidence of {confidence} is more doubt than confidence"));
        }
        Ok(Guarantee { q: quantile(q)?, confidence })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_to_write_a_quantile_give_the_same_bits() {
        for percent in 1..1000 {
            let share = f64::from(percent) / 1000.0;
            let text = format!("p{}.{}", percent / 10, percent % 10);
            assert_eq!(quantile(&text), quantile(&share.to_string()), "{text}");
        }
        assert_eq!(quantile("p99.99"), Ok(0.9999));
        for wrong in ["p0", "p100", "p", "pp5", "1", "0", "-0.1", "nan", "95%", ""] {
            assert!(quantile(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn shares_are_numbers_or_percent() {
        assert_eq!(share("5%"), Ok(0.05));
        assert_eq!(share("0.1 %"), Ok(0.001));
        assert_eq!(share("2e-4"), Ok(2e-4));
        assert_eq!(share("150%"), Ok(1.5));
        for wrong in ["0", "-1%", "inf", "%", "five", "5%%"] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn requirements_name_statistic_relation_and_limit() {
        let r: Requirement = "p95<8s".parse().unwrap();
        assert_eq!(r.statistic, Statistic::Quantile(0.95));
        assert_eq!((r.relation, r.limit_s), (Relation::Less, 8.0));
        let r: Requirement = "mean >= 300 ms".parse().unwrap();
        assert_eq!(r.statistic, Statistic::Mean);
        assert_eq!((r.relation, r.limit_s), (Relation::GreaterOrEqual, 0.3));
        let r: Requirement = "sd<=12.5us".parse().unwrap();
        assert_eq!((r.statistic, r.limit_s), (Statistic::Sd, 12.5e-6));
        for wrong in ["p95", "p95<8", "p95<8h", "p95=8s", "max<8s", "p0<8s", "p95<s", "p95<-8s"] {
            assert!(wrong.parse::<Requirement>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn relations_differ_at_the_limit_only_where_they_should() {
        let all =
            [Relation::Less, Relation::LessOrEqual, Relation::Greater, Relation::GreaterOrEqual];
        assert_eq!(all.map(|r| r.holds(1.0, 2.0)), [true, true, false, false]);
        assert_eq!(all.map(|r| r.holds(2.0, 2.0)), [false, true, false, true]);
        assert_eq!(all.map(|r| r.holds(3.0, 2.0)), [false, false, true, true]);
    }

    #[test]
    fn guarantees_need_both_numbers_once() {
        let g: Guarantee = "q=0.95,conf=0.9".parse().unwrap();
        assert_eq!((g.q, g.confidence), (0.95, 0.9));
        assert_eq!("conf=0.95, q=p99".parse::<Guarantee>().unwrap().q, 0.99);
        for wrong in [
            "",
            "0.95",
            "q=0.95",
            "conf=0.95",
            "q=0.95,q=0.9",
            "q=0.95,conf=1",
            "q=2,conf=0.9",
            "q=0.95,conf=0.3",
            "q=0.95,conf=0.9,n=3",
        ] {
            assert!(wrong.parse::<Guarantee>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn one_repetition_is_refused() {
        assert_eq!(repetitions("0"), Ok(0));
        assert_eq!(repetitions("2"), Ok(2));
        assert!(repetitions("1").is_err() && repetitions("-3").is_err());
    }
}
