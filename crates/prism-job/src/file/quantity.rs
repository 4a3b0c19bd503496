//! Quantities with their units, as a job file writes them.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A unit: its name, the decimal exponent and the factor that turn it into the base unit.
type Unit = (&'static str, i32, f64);

/// What a quantity measures.
pub trait Dimension {
    /// Name in messages.
    const NAME: &'static str;
    /// Well-formed examples, for messages and the schema.
    const EXAMPLES: [&'static str; 2];
    /// Units, the preferred ones first; the base unit is among them and renders every value exactly.
    const UNITS: &'static [Unit];
}

/// Bytes per second; bits per second in files of network engineers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BandwidthUnit {}
/// Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeUnit {}
/// Seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeUnit {}
/// Floating-point operations per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateUnit {}
/// Seconds, of what takes minutes to weeks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanUnit {}

const GIB: f64 = 1_073_741_824.0;

impl Dimension for BandwidthUnit {
    const NAME: &'static str = "bandwidth";
    const EXAMPLES: [&'static str; 2] = ["400Gbps", "50GB/s"];
    const UNITS: &'static [Unit] = &[
        ("GB/s", 9, 1.0),
        ("Gbps", 9, 0.125),
        ("TB/s", 12, 1.0),
        ("MB/s", 6, 1.0),
        ("KB/s", 3, 1.0),
        ("kB/s", 3, 1.0),
        ("GiB/s", 0, GIB),
        ("TiB/s", 0, GIB * 1024.0),
        ("MiB/s", 0, GIB / 1024.0),
        ("KiB/s", 0, 1024.0),
        ("Tbps", 12, 0.125),
        ("Mbps", 6, 0.125),
        ("Kbps", 3, 0.125),
        ("kbps", 3, 0.125),
        ("Tb/s", 12, 0.125),
        ("Gb/s", 9, 0.125),
        ("Mb/s", 6, 0.125),
        ("Gbit/s", 9, 0.125),
        ("Tbit/s", 12, 0.125),
        ("Mbit/s", 6, 0.125),
        ("bps", 0, 0.125),
        ("bit/s", 0, 0.125),
        ("B/s", 0, 1.0),
    ];
}

impl Dimension for SizeUnit {
    const NAME: &'static str = "size";
    const EXAMPLES: [&'static str; 2] = ["80GiB", "80GB"];
    const UNITS: &'static [Unit] = &[
        ("GB", 9, 1.0),
        ("GiB", 0, GIB),
        ("TB", 12, 1.0),
        ("TiB", 0, GIB * 1024.0),
        ("MB", 6, 1.0),
        ("MiB", 0, GIB / 1024.0),
        ("KB", 3, 1.0),
        ("kB", 3, 1.0),
        ("KiB", 0, 1024.0),
        ("B", 0, 1.0),
    ];
}

impl Dimension for TimeUnit {
    const NAME: &'static str = "time";
    const EXAMPLES: [&'static str; 2] = ["5us", "1.5ms"];
    const UNITS: &'static [Unit] =
        &[("us", -6, 1.0), ("ms", -3, 1.0), ("µs", -6, 1.0), ("ns", -9, 1.0), ("s", 0, 1.0)];
}

impl Dimension for RateUnit {
    const NAME: &'static str = "arithmetic rate";
    const EXAMPLES: [&'static str; 2] = ["989TFLOPS", "2.5PFLOPS"];
    const UNITS: &'static [Unit] = &[
        ("TFLOPS", 12, 1.0),
        ("PFLOPS", 15, 1.0),
        ("GFLOPS", 9, 1.0),
        ("TFLOP/s", 12, 1.0),
        ("PFLOP/s", 15, 1.0),
        ("GFLOP/s", 9, 1.0),
        ("FLOPS", 0, 1.0),
        ("FLOP/s", 0, 1.0),
    ];
}

impl Dimension for SpanUnit {
    const NAME: &'static str = "duration";
    const EXAMPLES: [&'static str; 2] = ["30min", "3.09h"];
    const UNITS: &'static [Unit] = &[
        ("s", 0, 1.0),
        ("min", 0, 60.0),
        ("h", 0, 3_600.0),
        ("d", 0, 86_400.0),
        ("ms", -3, 1.0),
        ("us", -6, 1.0),
    ];
}

/// A finite number of at least 0 in the base unit: bytes per second, bytes, seconds, FLOP per
/// second. In a file it is text with a unit; a number alone is refused.
pub struct Quantity<D>(f64, PhantomData<D>);

/// Bytes per second, from text such as `400Gbps` or `50GB/s`.
pub type Bandwidth = Quantity<BandwidthUnit>;
/// Bytes, from text such as `80GiB` (2³⁰) or `80GB` (10⁹).
pub type Size = Quantity<SizeUnit>;
/// Seconds, from text such as `5us`.
pub type Time = Quantity<TimeUnit>;
/// FLOP per second, from text such as `989TFLOPS`.
pub type Rate = Quantity<RateUnit>;
/// Seconds, from text such as `30min`, `3.09h` or `14d`.
pub type Span = Quantity<SpanUnit>;

/// Text that is no quantity; the message names the units.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QuantityError {
    /// A number alone.
    #[error("{what} `{text}` has no unit; write for example {examples}")]
    NoUnit {
        /// What was read.
        text: String,
        /// What it should measure.
        what: &'static str,
        /// The number with units behind it.
        examples: String,
    },
    /// A number with something else.
    #[error("`{unit}` is no unit of {what}; {help}")]
    UnknownUnit {
        /// The unit read.
        unit: String,
        /// What it should measure.
        what: &'static str,
        /// The nearest unit, or those there are.
        help: String,
    },
    /// No number of at least 0.
    #[error("`{text}` is no {what} such as `{example}`")]
    NotANumber {
        /// What was read.
        text: String,
        /// What it should measure.
        what: &'static str,
        /// One that would do.
        example: &'static str,
    },
}

impl<D: Dimension> Quantity<D> {
    /// The value in the base unit.
    pub fn value(self) -> f64 {
        self.0
    }

    /// A quantity from a value in the base unit.
    pub fn new(value: f64) -> Self {
        Quantity(value, PhantomData)
    }

    /// From text with a unit, correctly rounded from its decimal digits.
    ///
    /// # Errors
    /// [`QuantityError`].
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        let text = text.trim();
        let split = number_end(text);
        let (digits, unit) = text.split_at(split);
        let unit = unit.trim();
        let digits = digits.trim().replace('_', "");
        let not = || QuantityError::NotANumber {
            text: text.to_owned(),
            what: D::NAME,
            example: D::EXAMPLES[0],
        };
        if digits.is_empty() || digits.starts_with('-') {
            return Err(not());
        }
        if unit.is_empty() {
            let examples = D::UNITS[..2].iter().map(|u| format!("`{digits}{}`", u.0));
            return Err(QuantityError::NoUnit {
                text: text.to_owned(),
                what: D::NAME,
                examples: examples.collect::<Vec<_>>().join(" or "),
            });
        }
        let Some(&(_, exponent, factor)) = D::UNITS.iter().find(|u| u.0 == unit) else {
            return Err(unknown_unit::<D>(unit));
        };
        scaled(&digits, exponent, factor).map(Self::new).ok_or_else(not)
    }
}

impl<D: Dimension> fmt::Display for Quantity<D> {
    /// Text that parses back to the same bits, in the first unit that allows it with a short number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut best: Option<String> = None;
        for &(name, exponent, factor) in D::UNITS {
            let value = self.0 / factor / 10f64.powi(exponent);
            for digits in [format!("{}", (value * 1e9).round() / 1e9), format!("{value}")] {
                let text = format!("{digits}{name}");
                let exact = Self::parse(&text).is_ok_and(|q| q.0.to_bits() == self.0.to_bits());
                if exact && best.as_ref().is_none_or(|b| text.len() < b.len()) {
                    best = Some(text);
                }
            }
        }
        match best {
            Some(text) => f.write_str(&text),
            None => write!(f, "{}", self.0),
        }
    }
}

/// Where the number at the start of a text ends: digits, a point, `_`, an exponent.
fn number_end(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut i = usize::from(text.starts_with(['+', '-']));
    while i < bytes.len() && (bytes[i].is_ascii_digit() || matches!(bytes[i], b'.' | b'_')) {
        i += 1;
    }
    if i < bytes.len() && matches!(bytes[i], b'e' | b'E') {
        let sign = usize::from(i + 1 < bytes.len() && matches!(bytes[i + 1], b'+' | b'-'));
        let mut j = i + 1 + sign;
        let first = j;
        while j < bytes.len() && bytes[j].is_ascii_digit() {
            j += 1;
        }
        if j > first {
            i = j;
        }
    }
    i
}

/// `digits` times `10^exponent` times `factor`; the power of ten goes into the digits, so that `5us`
/// is 5e-6 and not 5 times 1e-6.
fn scaled(digits: &str, exponent: i32, factor: f64) -> Option<f64> {
    let (mantissa, own) = match digits.find(['e', 'E']) {
        Some(at) => (&digits[..at], digits[at + 1..].parse::<i32>().ok()?),
        None => (digits, 0),
    };
    let value: f64 = format!("{mantissa}e{}", own.checked_add(exponent)?).parse().ok()?;
    Some(value * factor).filter(|v| v.is_finite())
}

fn unknown_unit<D: Dimension>(unit: &str) -> QuantityError {
    let same = D::UNITS.iter().find(|u| u.0.eq_ignore_ascii_case(unit));
    let help = if let Some(u) = same {
        format!("write `{}` (case tells bits from bytes)", u.0)
    } else {
        let all: Vec<_> = D::UNITS.iter().map(|u| format!("`{}`", u.0)).collect();
        format!("use one of {}", all.join(", "))
    };
    QuantityError::UnknownUnit { unit: unit.to_owned(), what: D::NAME, help }
}

impl<D> Clone for Quantity<D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D> Copy for Quantity<D> {}

impl<D: Dimension> fmt::Debug for Quantity<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl<D> PartialEq for Quantity<D> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

struct QuantityVisitor<D>(PhantomData<D>);

impl<D: Dimension> de::Visitor<'_> for QuantityVisitor<D> {
    type Value = Quantity<D>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a {} such as \"{}\"", D::NAME, D::EXAMPLES[0])
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Quantity<D>, E> {
        Quantity::parse(text).map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Quantity<D>, E> {
        self.visit_str(&value.to_string())
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Quantity<D>, E> {
        self.visit_str(&value.to_string())
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Quantity<D>, E> {
        self.visit_str(&value.to_string())
    }
}

impl<'de, D: Dimension> Deserialize<'de> for Quantity<D> {
    fn deserialize<T: Deserializer<'de>>(deserializer: T) -> Result<Self, T::Error> {
        deserializer.deserialize_any(QuantityVisitor(PhantomData))
    }
}

impl<D: Dimension> Serialize for Quantity<D> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<D: Dimension> JsonSchema for Quantity<D> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        D::NAME.into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let units: Vec<&str> = D::UNITS.iter().map(|u| u.0).collect();
        json_schema!({
            "type": "string",
            "description": format!("A {}: a number and one of {}", D::NAME, units.join(", ")),
            "examples": D::EXAMPLES,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bits_and_bytes_binary_and_decimal() {
        assert_eq!(Bandwidth::parse("400Gbps").unwrap().value(), 50e9);
        assert_eq!(Bandwidth::parse("400 Gb/s").unwrap().value(), 50e9);
        assert_eq!(Bandwidth::parse("50GB/s").unwrap().value(), 50e9);
        assert_eq!(Bandwidth::parse("3.35TB/s").unwrap().value(), 3.35e12);
        assert_eq!(Bandwidth::parse("1GiB/s").unwrap().value(), GIB);
        assert_eq!(Size::parse("80GiB").unwrap().value(), 80.0 * GIB);
        assert_eq!(Size::parse("80GB").unwrap().value(), 80e9);
        assert_eq!(Time::parse("5us").unwrap().value(), 5e-6);
        assert_eq!(Time::parse("1.5ms").unwrap().value(), 0.0015);
        assert_eq!(Time::parse("1e3us").unwrap().value(), 0.001);
        assert_eq!(Span::parse("30min").unwrap().value(), 1_800.0);
        assert_eq!(Span::parse("3.09h").unwrap().value(), 3.09 * 3_600.0);
        assert_eq!(Span::parse("14 d").unwrap().value(), 1_209_600.0);
        assert_eq!(Rate::parse("989TFLOPS").unwrap().value(), 989e12);
        assert_eq!(Rate::parse("2.5PFLOP/s").unwrap().value(), 2.5e15);
    }

    #[test]
    fn refusals_name_the_unit_to_write() {
        let text = |e: QuantityError| e.to_string();
        assert_eq!(
            text(Bandwidth::parse("400").unwrap_err()),
            "bandwidth `400` has no unit; write for example `400GB/s` or `400Gbps`"
        );
        assert!(text(Bandwidth::parse("400gbps").unwrap_err()).contains("write `Gbps`"));
        assert!(text(Size::parse("80Gb").unwrap_err()).contains("write `GB`"));
        assert!(text(Size::parse("80parsec").unwrap_err()).contains("use one of `GB`"));
        for bad in ["", "us", "-5us", "nanus", "1.2.3us", "1e999us", "1e99999999999us"] {
            assert!(Time::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn rendering_is_short() {
        assert_eq!(Bandwidth::new(50e9).to_string(), "50GB/s");
        assert_eq!(Size::new(80.0 * GIB).to_string(), "80GiB");
        assert_eq!(Time::new(5e-6).to_string(), "5us");
        assert_eq!(Rate::new(989e12).to_string(), "989TFLOPS");
    }

    proptest! {
        #[test]
        fn any_value_round_trips(value in 0.0f64..1e18) {
            prop_assert_eq!(Bandwidth::parse(&Bandwidth::new(value).to_string()).unwrap().value(), value);
            prop_assert_eq!(Span::parse(&Span::new(value).to_string()).unwrap().value(), value);
            prop_assert_eq!(Time::parse(&Time::new(value).to_string()).unwrap().value(), value);
        }

        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,12}") {
            let _ = Size::parse(&text);
        }
    }
}
