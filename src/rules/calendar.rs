//! Days, weeks, months and years of a time zone.

use jiff::Span;
use jiff::civil::{Date, Time};
use jiff::tz::TimeZone;

use crate::model::{CALENDAR_BOUNDS, Timestamp, Unit};

/// Beyond this instant, in the year 9990, the calendar stands still: later dates are out of the
/// date library's range.
const LATEST: i64 = 253_092_000_000_000_000;

/// Windows that begin with a calendar's day, week (on Monday), month or year at midnight in a
/// time zone, so their lengths vary.
#[derive(Debug, Clone, PartialEq)]
pub struct Calendar {
    step: Step,
    zone: TimeZone,
    name: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Day,
    Week,
    Month,
    Year,
}

impl Calendar {
    /// `zone`: an IANA name, in any case. `None` if the unit has no calendar (below a day) or the
    /// zone is unknown.
    pub fn try_new(unit: Unit, zone: &str) -> Option<Self> {
        let step = match unit {
            Unit::Second | Unit::Minute | Unit::Hour => return None,
            Unit::Day => Step::Day,
            Unit::Week => Step::Week,
            Unit::Month => Step::Month,
            Unit::Year => Step::Year,
        };
        let zone = TimeZone::get(zone).ok()?;
        let name = format!("{unit}@{}", zone.iana_name()?);
        Some(Self { step, zone, name })
    }

    /// Unit and zone, such as `month@Europe/Paris`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Window boundaries around `now`, see [`crate::model::Window::Calendar`].
    pub fn bounds(&self, now: Timestamp) -> [Timestamp; CALENDAR_BOUNDS] {
        let micros = i64::try_from(now.as_micros()).unwrap_or(LATEST).min(LATEST);
        let now = jiff::Timestamp::from_microsecond(micros).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
        let start = self.step.start(self.zone.to_datetime(now).date());
        [-1, 0, 1, 2].map(|steps| self.midnight(self.step.after(start, steps)))
    }

    /// The first instant of `date`. Where midnight is skipped it is the instant of the skip, where
    /// it comes twice the first of the two.
    fn midnight(&self, date: Date) -> Timestamp {
        let instant = self
            .zone
            .to_ambiguous_timestamp(date.to_datetime(Time::midnight()))
            .compatible()
            .unwrap_or(jiff::Timestamp::MAX);
        Timestamp::from_micros(u64::try_from(instant.as_microsecond()).unwrap_or(0))
    }
}

impl Step {
    /// The first day of the window that holds `date`.
    fn start(self, date: Date) -> Date {
        match self {
            Self::Day => date,
            Self::Week => {
                let days = i64::from(date.weekday().to_monday_zero_offset());
                date.saturating_sub(Span::new().days(days))
            }
            Self::Month => date.first_of_month(),
            Self::Year => date.first_of_year(),
        }
    }

    /// `start` moved by a number of windows.
    fn after(self, start: Date, steps: i64) -> Date {
        start.saturating_add(match self {
            Self::Day => Span::new().days(steps),
            Self::Week => Span::new().weeks(steps),
            Self::Month => Span::new().months(steps),
            Self::Year => Span::new().years(steps),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Window;

    #[track_caller]
    fn check(unit: Unit, zone: &str, now: &str, want: [&str; CALENDAR_BOUNDS]) {
        let calendar = Calendar::try_new(unit, zone).unwrap();
        let micros = |text: &str| text.parse::<jiff::Timestamp>().unwrap().as_microsecond();
        let now = Timestamp::from_micros(u64::try_from(micros(now)).unwrap());
        let bounds = calendar.bounds(now);
        let got = bounds.map(|bound| i64::try_from(bound.as_micros()).unwrap());
        let show = |micros: i64| jiff::Timestamp::from_microsecond(micros).unwrap().to_string();
        assert_eq!(got.map(show), want.map(micros).map(show));
        let (start, end) = Window::Calendar(bounds).bounds(now);
        assert!(start <= now && now < end);
    }

    #[test]
    fn months_have_28_to_31_days() {
        check(
            Unit::Month,
            "UTC",
            "2023-02-28T23:59:59.999999Z",
            ["2023-01-01T00:00Z", "2023-02-01T00:00Z", "2023-03-01T00:00Z", "2023-04-01T00:00Z"],
        );
        check(
            Unit::Month,
            "UTC",
            "2024-02-29T12:00Z",
            ["2024-01-01T00:00Z", "2024-02-01T00:00Z", "2024-03-01T00:00Z", "2024-04-01T00:00Z"],
        );
        check(
            Unit::Month,
            "UTC",
            "2026-12-31T00:00Z",
            ["2026-11-01T00:00Z", "2026-12-01T00:00Z", "2027-01-01T00:00Z", "2027-02-01T00:00Z"],
        );
        check(
            Unit::Month,
            "UTC",
            "2026-05-01T00:00Z",
            ["2026-04-01T00:00Z", "2026-05-01T00:00Z", "2026-06-01T00:00Z", "2026-07-01T00:00Z"],
        );
    }

    #[test]
    fn weeks_start_on_monday() {
        let want =
            ["2026-11-23T00:00Z", "2026-11-30T00:00Z", "2026-12-07T00:00Z", "2026-12-14T00:00Z"];
        check(Unit::Week, "UTC", "2026-11-30T00:00Z", want);
        check(Unit::Week, "UTC", "2026-12-06T23:59:59Z", want);
    }

    #[test]
    fn years_may_be_leap_years() {
        check(
            Unit::Year,
            "UTC",
            "2024-12-31T23:59:59Z",
            ["2023-01-01T00:00Z", "2024-01-01T00:00Z", "2025-01-01T00:00Z", "2026-01-01T00:00Z"],
        );
    }

    #[test]
    fn days_follow_summer_time() {
        // Paris leaves summer time on 25 October 2026: that day has 25 hours.
        check(
            Unit::Day,
            "europe/paris",
            "2026-10-25T22:59:59Z",
            ["2026-10-23T22:00Z", "2026-10-24T22:00Z", "2026-10-25T23:00Z", "2026-10-26T23:00Z"],
        );
        check(
            Unit::Month,
            "Europe/Paris",
            "2026-03-31T22:00Z",
            ["2026-02-28T23:00Z", "2026-03-31T22:00Z", "2026-04-30T22:00Z", "2026-05-31T22:00Z"],
        );
        // Santiago skips the first hour of 6 September 2026.
        check(
            Unit::Day,
            "America/Santiago",
            "2026-09-06T12:00Z",
            ["2026-09-05T04:00Z", "2026-09-06T04:00Z", "2026-09-07T03:00Z", "2026-09-08T03:00Z"],
        );
    }

    #[test]
    fn names_carry_the_proper_case_of_the_zone() {
        let name = |unit, zone| Calendar::try_new(unit, zone).map(|it| it.name().to_owned());
        assert_eq!(name(Unit::Month, "EUROPE/paris").as_deref(), Some("month@Europe/Paris"));
        assert_eq!(name(Unit::Day, "UTC").as_deref(), Some("day@UTC"));
        assert_eq!(name(Unit::Day, "Mars/Olympus"), None);
        assert_eq!(name(Unit::Hour, "UTC"), None);
    }

    #[test]
    fn zones_need_no_files_of_the_machine() {
        assert!(jiff::tz::TimeZoneDatabase::bundled().get("America/Santiago").is_ok());
    }

    #[test]
    fn instants_out_of_range_do_no_harm() {
        let calendar = Calendar::try_new(Unit::Year, "UTC").unwrap();
        assert_eq!(calendar.bounds(Timestamp::default())[0], Timestamp::default());
        let late = calendar.bounds(Timestamp::from_micros(u64::MAX));
        assert!(late.is_sorted());
    }
}
