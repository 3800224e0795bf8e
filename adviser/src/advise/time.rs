//! Times in logs.

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// From this number on, a number is in milliseconds. In seconds it would be after the year 5138, in
/// milliseconds it is in 1973.
const FIRST_MILLISECONDS: f64 = 1e11;
/// The first second of the year 10000.
const END: i64 = 253_402_300_800;

/// Parses a time to an epoch second. The error names the allowed formats.
pub(super) fn epoch_second(text: &str) -> Result<i64, String> {
    let is_number = text.starts_with(|first: char| first.is_ascii_digit() || "-+.".contains(first));
    let second = match text.parse::<f64>() {
        // A float is exact for every second of the range that is checked below.
        Ok(number) if is_number && number.is_finite() => {
            let seconds = if number < FIRST_MILLISECONDS { number } else { number / 1_000.0 };
            Some(seconds.floor() as i64)
        }
        _ => OffsetDateTime::parse(text, &Rfc3339).ok().map(OffsetDateTime::unix_timestamp),
    };
    second.filter(|second| (0..END).contains(second)).ok_or_else(|| {
        "epoch seconds, epoch milliseconds or RFC 3339 (2014-07-09T12:00:00Z) of the years 1970 to 9999 are allowed"
            .into()
    })
}

pub(super) fn rfc3339(second: i64) -> String {
    // Formatted by hand, because the feature `formatting` of `time` would be compiled for every
    // function.
    let Ok(at) = OffsetDateTime::from_unix_timestamp(second) else { return second.to_string() };
    let ((year, month, day), (hour, minute, second)) = (at.to_calendar_date(), at.to_hms());
    let month = u8::from(month);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_allowed_spelling_is_read() {
        let rows = [
            ("1403710614", 1_403_710_614),
            ("1403710614.9", 1_403_710_614),
            ("1403710614999", 1_403_710_614),
            ("99999999999", 99_999_999_999),
            ("100000000000", 100_000_000),
            ("0", 0),
            ("2014-06-25T15:36:54Z", 1_403_710_614),
            ("2014-06-25T17:36:54.75+02:00", 1_403_710_614),
        ];
        for (text, second) in rows {
            assert_eq!(epoch_second(text), Ok(second), "{text}");
        }
    }

    #[test]
    fn a_text_that_is_not_a_time_is_refused() {
        let number = ["-1", "NaN", "inf", "1e400", "253402300800000", "1403710614s"];
        for text in number.into_iter().chain(["", "now", "2014-07-09", "12:00"]) {
            assert!(epoch_second(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(second in 0i64..END) {
            prop_assert_eq!(epoch_second(&rfc3339(second)), Ok(second));
            let late = second.max(100_000_000);
            prop_assert_eq!(epoch_second(&(late * 1_000 + 999).to_string()), Ok(late));
        }
    }
}
