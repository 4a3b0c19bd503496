//! A point in time, to the second.

use std::fmt;
use std::str::FromStr;

use toml::value::{Datetime, Offset};

/// Seconds after 1970-01-01 00:00:00 UTC, leap seconds not counted. Displays as RFC 3339 in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub i64);

/// Text that is no point in time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no date, such as `2026-03-01` or `2026-03-01T08:00:00Z`")]
pub struct MomentError {
    /// What was read.
    pub text: String,
}

const DAY: i64 = 86_400;

impl Moment {
    /// The moment some seconds later; fractions of a second are cut off.
    #[must_use]
    pub fn after(self, seconds: f64) -> Moment {
        Moment(self.0.saturating_add(seconds.floor() as i64))
    }

    /// Seconds since midnight UTC.
    pub fn time_of_day_s(self) -> f64 {
        self.0.rem_euclid(DAY) as f64
    }

    /// From a TOML date or date with a time; midnight where there is no time, UTC where there is no
    /// offset. Fractions of a second are cut off. `None` for a time without a date.
    pub(crate) fn from_toml(datetime: &Datetime) -> Option<Moment> {
        let date = datetime.date?;
        let days =
            days_from_civil(i64::from(date.year), i64::from(date.month), i64::from(date.day));
        let seconds = datetime.time.map_or(0, |t| {
            i64::from(t.hour) * 3_600
                + i64::from(t.minute) * 60
                + i64::from(t.second.unwrap_or(0).min(59))
        });
        let offset = match datetime.offset {
            Some(Offset::Custom { minutes }) => i64::from(minutes) * 60,
            Some(Offset::Z) | None => 0,
        };
        Some(Moment(days * DAY + seconds - offset))
    }
}

impl FromStr for Moment {
    type Err = MomentError;

    fn from_str(text: &str) -> Result<Self, MomentError> {
        let parsed = text.trim().parse::<Datetime>().ok();
        parsed
            .as_ref()
            .and_then(Moment::from_toml)
            .ok_or_else(|| MomentError { text: text.to_owned() })
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = civil_from_days(self.0.div_euclid(DAY));
        let second = self.0.rem_euclid(DAY);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
            second / 3_600,
            second / 60 % 60,
            second % 60
        )
    }
}

/// Days from 1970-01-01 to a date of the proleptic Gregorian calendar. Years begin in March here, so
/// that the leap day is the last; an era is 400 years, 146,097 days.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// The inverse of [`days_from_civil`].
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let m = (5 * of_year + 2) / 153;
    let day = of_year - (153 * m + 2) / 5 + 1;
    let month = if m < 10 { m + 3 } else { m - 9 };
    (era * 400 + year + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every day of four centuries, counted one by one.
    #[test]
    fn days_are_those_of_the_calendar() {
        let mut days = days_from_civil(1970, 1, 1);
        assert_eq!(days, 0);
        for year in 1970..2371 {
            let leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
            let february = if leap { 29 } else { 28 };
            let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
            for (month, length) in (1..).zip(lengths) {
                for day in 1..=length {
                    assert_eq!(days_from_civil(year, month, day), days);
                    assert_eq!(civil_from_days(days), (year, month, day));
                    days += 1;
                }
            }
        }
        assert_eq!(civil_from_days(-1), (1969, 12, 31));
        assert_eq!(civil_from_days(days_from_civil(0, 2, 29)), (0, 2, 29));
    }

    #[test]
    fn text_round_trips() {
        let read = |text: &str| text.parse::<Moment>().map(|m| m.to_string());
        assert_eq!(read("2026-03-01").unwrap(), "2026-03-01T00:00:00Z");
        assert_eq!(read("2026-03-01T08:30:15Z").unwrap(), "2026-03-01T08:30:15Z");
        assert_eq!(read("2026-03-01 08:30:15.9+02:00").unwrap(), "2026-03-01T06:30:15Z");
        assert_eq!("2001-09-09T01:46:40Z".parse::<Moment>().unwrap().0, 1_000_000_000);
        for bad in ["", "tomorrow", "2026-02-30", "08:30:00", "2026-13-01"] {
            assert!(bad.parse::<Moment>().is_err(), "{bad}");
        }
    }
}
