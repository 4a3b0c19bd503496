//! Numbers for people.

/// A unit of time and a number of decimals, for a column of times that are read together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// Unit's name.
    pub unit: &'static str,
    /// Units in a second.
    pub per_second: f64,
    /// Decimals shown.
    pub decimals: usize,
}

impl Scale {
    /// The unit that suits the largest of the times, with decimals that show two digits of the
    /// finest difference; both in seconds. Four significant digits where there is no difference.
    ///
    /// ```
    /// use prism_report::Scale;
    ///
    /// let scale = Scale::new(7.954, 0.0031);
    /// assert_eq!(scale.show(7.95432), "7.9543");
    /// assert_eq!(Scale::new(0.0123, 0.0).show(0.0123456), "12.35");
    /// ```
    pub fn new(largest_s: f64, finest_s: f64) -> Scale {
        let (unit, per_second) = match largest_s.abs() {
            x if x < 0.999_95e-3 && x > 0.0 => ("µs", 1e6),
            x if x < 0.999_95 && x > 0.0 => ("ms", 1e3),
            _ => ("s", 1.0),
        };
        let finest = finest_s.abs() * per_second;
        let largest = (largest_s.abs() * per_second).max(1e-9);
        let wanted = if finest > 0.0 && finest.is_finite() {
            1.0 - finest.log10().floor()
        } else {
            3.0 - largest.log10().floor()
        };
        let most = (5.0 - largest.log10().floor()).clamp(0.0, 6.0);
        Scale { unit, per_second, decimals: wanted.clamp(0.0, most) as usize }
    }

    /// A time without its unit.
    pub fn show(&self, seconds: f64) -> String {
        if seconds.is_infinite() {
            return if seconds > 0.0 { "∞" } else { "-∞" }.to_owned();
        }
        format!("{:.*}", self.decimals, seconds * self.per_second)
    }

    /// A time with its unit.
    pub fn with_unit(&self, seconds: f64) -> String {
        format!("{} {}", self.show(seconds), self.unit)
    }
}

/// A time with four significant digits and a suitable unit.
///
/// ```
/// assert_eq!(prism_report::seconds(7.95), "7.950 s");
/// assert_eq!(prism_report::seconds(0.00042), "420.0 µs");
/// assert_eq!(prism_report::seconds(0.0), "0 s");
/// ```
pub fn seconds(value_s: f64) -> String {
    if value_s == 0.0 {
        return "0 s".to_owned();
    }
    Scale::new(value_s, 0.0).with_unit(value_s)
}

/// A share in percent with about three significant digits.
///
/// ```
/// assert_eq!(prism_report::percent(0.0523), "5.23 %");
/// assert_eq!(prism_report::percent(0.183), "18.3 %");
/// assert_eq!(prism_report::percent(0.00004), "0.0040 %");
/// ```
pub fn percent(share: f64) -> String {
    let value = 100.0 * share;
    let decimals = match value.abs() {
        x if x >= 99.95 => 0,
        x if x >= 9.995 => 1,
        x if x >= 0.1 || x == 0.0 => 2,
        x if x >= 0.01 => 3,
        _ => 4,
    };
    format!("{value:.decimals$} %")
}

/// A probability under the null hypothesis: three digits, or the power of ten.
///
/// ```
/// assert_eq!(prism_report::p_value(0.0312), "0.031");
/// assert_eq!(prism_report::p_value(3e-12), "3e-12");
/// assert_eq!(prism_report::p_value(0.0), "<1e-300");
/// ```
pub fn p_value(p: f64) -> String {
    match p {
        p if p < 1e-300 => "<1e-300".to_owned(),
        p if p < 1e-3 => format!("{p:.0e}"),
        p => format!("{p:.3}"),
    }
}

/// A count with thousands separated.
///
/// ```
/// assert_eq!(prism_report::count(10_752), "10,752");
/// ```
pub fn count(n: usize) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A large number with three significant digits and a letter.
///
/// ```
/// assert_eq!(prism_report::big(8_259_000.0), "8.26 M");
/// assert_eq!(prism_report::big(174.6e9), "175 G");
/// assert_eq!(prism_report::big(940.0), "940");
/// ```
pub fn big(value: f64) -> String {
    const UNITS: [(f64, &str); 6] =
        [(1e18, " E"), (1e15, " P"), (1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k")];
    // A number that three digits round up belongs to the next unit.
    let (unit, letter) =
        UNITS.into_iter().find(|(unit, _)| value >= 0.9995 * unit).unwrap_or((1.0, ""));
    let scaled = value / unit;
    let decimals = match scaled {
        _ if letter.is_empty() && scaled.fract() == 0.0 => 0,
        x if x >= 99.95 => 0,
        x if x >= 9.995 => 1,
        _ => 2,
    };
    format!("{scaled:.decimals$}{letter}")
}

/// Bytes of a GiB.
pub(crate) const GIB: f64 = 1_073_741_824.0;

/// Bytes in GiB with two decimals, without the unit.
pub(crate) fn gib(bytes: f64) -> String {
    format!("{:.2}", bytes / GIB)
}

/// `p95`, `p99.9`: the name of a quantile.
///
/// ```
/// assert_eq!(prism_report::quantile_name(0.95), "p95");
/// assert_eq!(prism_report::quantile_name(0.999), "p99.9");
/// ```
pub fn quantile_name(p: f64) -> String {
    format!("p{}", (p * 1e11).round() / 1e9)
}
