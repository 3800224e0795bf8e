//! The time of a launch.

use std::fmt;
use std::str::FromStr;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::advise::rfc3339;

/// The first second of the year 2200: a cron expression has years up to 2199. (EventBridge
/// Scheduler user guide, "Schedule types".)
const END: i64 = 7_258_118_400;
/// The table is warmed, and the keys have their shards, this many seconds before the launch.
/// Warming takes minutes: others measured 388 to 514 seconds.
pub(super) const LEAD_SECONDS: u32 = 3_600;
/// The length of a date without a time.
const DATE: usize = "2027-03-01".len();

/// The time at which the demand starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LaunchTime {
    epoch_seconds: i64,
}

/// The text is not a [`LaunchTime`]. Use the format of one of the examples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "an RFC 3339 date (2027-03-01, from midnight UTC) or date-time (2027-03-01T17:00:00Z, 2027-03-01T18:00:00+01:00) \
     of the years 1970 to 2199 is allowed"
)]
pub struct LaunchTimeError;

impl FromStr for LaunchTime {
    type Err = LaunchTimeError;

    fn from_str(text: &str) -> Result<Self, LaunchTimeError> {
        let date_time =
            if text.len() == DATE { format!("{text}T00:00:00Z") } else { text.to_owned() };
        let at =
            OffsetDateTime::parse(&date_time, &Rfc3339).ok().map(OffsetDateTime::unix_timestamp);
        let at = at.filter(|at| (0..END).contains(at)).ok_or(LaunchTimeError)?;
        Ok(Self { epoch_seconds: at })
    }
}

/// Formats the time in RFC 3339, in UTC.
impl fmt::Display for LaunchTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&rfc3339(self.epoch_seconds))
    }
}

impl LaunchTime {
    /// Returns the seconds left until the launch; `None` if it is past.
    pub(super) fn seconds_from(self, now_seconds: u64) -> Option<u64> {
        u64::try_from(self.epoch_seconds).ok()?.checked_sub(now_seconds).filter(|left| *left > 0)
    }

    /// Returns the time this many seconds earlier.
    pub(super) fn earlier_by(self, seconds: u32) -> Self {
        Self { epoch_seconds: self.epoch_seconds - i64::from(seconds) }
    }

    /// Returns the cron expression of EventBridge Scheduler for this minute in UTC, once.
    pub(super) fn cron(self) -> String {
        let at = OffsetDateTime::from_unix_timestamp(self.epoch_seconds)
            .expect("its year has four digits");
        let (minute, hour, day, month) = (at.minute(), at.hour(), at.day(), u8::from(at.month()));
        format!("cron({minute} {hour} {day} {month} ? {})", at.year())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn dates_and_date_times_are_read_and_shown_in_utc() {
        let rows = [
            ("2027-03-01", "2027-03-01T00:00:00Z"),
            ("2027-03-01T17:00:00Z", "2027-03-01T17:00:00Z"),
            ("2027-03-01T18:30:00+01:00", "2027-03-01T17:30:00Z"),
            ("2028-02-29T23:59:59.9-05:00", "2028-03-01T04:59:59Z"),
            ("1970-01-01", "1970-01-01T00:00:00Z"),
            ("2199-12-31", "2199-12-31T00:00:00Z"),
        ];
        for (text, shown) in rows {
            assert_eq!(
                text.parse::<LaunchTime>().map(|at| at.to_string()),
                Ok(shown.to_owned()),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_neither_is_refused() {
        for text in [
            "",
            "soon",
            "1803920400",
            "2027-3-1",
            "2027-02-29",
            "2027-13-01",
            "2027-03-01T17:00",
            "2027-03-01T17:00:00",
            "2027-03-01T25:00:00Z",
            "1969-12-31",
            "2200-01-01",
            "é27-03-01",
        ] {
            assert_eq!(text.parse::<LaunchTime>(), Err(LaunchTimeError), "{text}");
        }
    }

    #[test]
    fn a_schedule_names_the_minute_in_utc() {
        let rows = [
            ("2027-03-01T17:00:00Z", "cron(0 17 1 3 ? 2027)"),
            ("2027-12-31T23:59:59-01:00", "cron(59 0 1 1 ? 2028)"),
            ("2027-03-01", "cron(0 0 1 3 ? 2027)"),
        ];
        for (text, cron) in rows {
            assert_eq!(text.parse::<LaunchTime>().unwrap().cron(), cron, "{text}");
        }
        let launch: LaunchTime = "2027-03-01T00:30:00Z".parse().unwrap();
        assert_eq!(launch.earlier_by(3_600).cron(), "cron(30 23 28 2 ? 2027)");
    }

    #[test]
    fn what_is_left_is_counted_from_now() {
        let launch: LaunchTime = "2027-03-01T17:00:00Z".parse().unwrap();
        let rows = [
            (0, Some(1_803_920_400)),
            (1_803_920_399, Some(1)),
            (1_803_920_400, None),
            (u64::MAX, None),
        ];
        for (now, left) in rows {
            assert_eq!(launch.seconds_from(now), left, "{now}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_again(epoch_seconds in 0..END) {
            let launch = LaunchTime { epoch_seconds };
            prop_assert_eq!(launch.to_string().parse::<LaunchTime>(), Ok(launch));
        }
    }
}
