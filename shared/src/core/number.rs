//! Numbers as DynamoDB keeps them: decimal, 38 significant digits.

use std::fmt;
use std::str::FromStr;

use bigdecimal::BigDecimal;

/// The most significant digits that DynamoDB keeps.
const MAX_DIGITS: u64 = 38;
/// The largest power of ten of the leading digit.
const MAX_MAGNITUDE: i64 = 125;
/// The smallest power of ten of the leading digit.
const MIN_MAGNITUDE: i64 = -130;
/// Longer spellings hold nothing but zeros that change no value.
const MAX_SPELLING: usize = 512;

/// A decimal number within DynamoDB's range, ordered by value.
///
/// Two spellings of one value are one number: `1e2` equals `100`.
///
/// ```
/// use sharding::Number;
/// let a: Number = "1e2".parse()?;
/// assert_eq!(a, "100.0".parse()?);
/// assert_eq!(a.to_string(), "100");
/// # Ok::<(), sharding::NumberError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Number(BigDecimal);

/// Why a text is not a number that DynamoDB can keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NumberError {
    /// Not a decimal number at all (NaN and infinity are not).
    #[error("it is not a decimal number")]
    Syntax,
    /// More than 38 significant digits.
    #[error("it has more than 38 significant digits")]
    Digits,
    /// Beyond the range of magnitudes.
    #[error("its magnitude is outside 1E-130 to 9.99E+125")]
    Magnitude,
}

impl FromStr for Number {
    type Err = NumberError;

    fn from_str(text: &str) -> Result<Self, NumberError> {
        let plain = text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'+' | b'-' | b'.' | b'e' | b'E'));
        if !plain || text.len() > MAX_SPELLING {
            return Err(if plain { NumberError::Digits } else { NumberError::Syntax });
        }
        let value = BigDecimal::from_str(text).map_err(|_| NumberError::Syntax)?.normalized();
        let (_, scale) = value.as_bigint_and_exponent();
        let digits = value.digits();
        if digits > MAX_DIGITS {
            return Err(NumberError::Digits);
        }
        let magnitude = i64::try_from(digits).unwrap_or(i64::MAX) - 1 - scale;
        if value != 0 && !(MIN_MAGNITUDE..=MAX_MAGNITUDE).contains(&magnitude) {
            return Err(NumberError::Magnitude);
        }
        Ok(Self(value))
    }
}

impl Number {
    /// Whether it is 0, however it is written.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.0 == 0
    }

    /// One text per value, for hashing: an integer without trailing zeros and a power of ten.
    #[must_use]
    pub fn canonical(&self) -> String {
        let (mantissa, scale) = self.0.as_bigint_and_exponent();
        format!("{mantissa}e{}", -scale)
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.to_plain_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_edges_of_the_range_are_kept_and_what_lies_beyond_is_refused() {
        let rows: &[(&str, Result<&str, NumberError>)] = &[
            ("0", Ok("0")),
            ("-0.0", Ok("0")),
            ("0e999", Ok("0")),
            ("007", Ok("7")),
            ("1E-130", Ok("1e-130")),
            ("9.9999999999999999999999999999999999999E+125", Ok("99999999999999999999999999999999999999e88")),
            ("1E126", Err(NumberError::Magnitude)),
            ("1E-131", Err(NumberError::Magnitude)),
            ("12345678901234567890123456789012345678", Ok("12345678901234567890123456789012345678e0")),
            ("123456789012345678901234567890123456789", Err(NumberError::Digits)),
            ("NaN", Err(NumberError::Syntax)),
            ("Infinity", Err(NumberError::Syntax)),
            ("1_000", Err(NumberError::Syntax)),
            ("", Err(NumberError::Syntax)),
            ("--1", Err(NumberError::Syntax)),
            ("1e99999999999999999999", Err(NumberError::Syntax)),
        ];
        for (text, expected) in rows {
            let got = text.parse::<Number>();
            match expected {
                Ok(value) => assert_eq!(got, value.parse(), "{text}"),
                Err(error) => assert_eq!(got, Err(*error), "{text}"),
            }
        }
    }

    proptest! {
        #[test]
        fn spellings_of_one_value_are_one_number(mantissa in -1_000_000i64..1_000_000, zeros in 0usize..20) {
            let long: Number = format!("{mantissa}{}", "0".repeat(zeros)).parse().unwrap();
            let short: Number = format!("{mantissa}e{zeros}").parse().unwrap();
            prop_assert_eq!(long.canonical(), short.canonical());
            prop_assert_eq!(&long, &short);
            prop_assert_eq!(&long.to_string().parse::<Number>().unwrap(), &long);
        }

        #[test]
        fn numbers_order_by_value(a in any::<i64>(), b in any::<i64>()) {
            let (x, y): (Number, Number) = (a.to_string().parse().unwrap(), b.to_string().parse().unwrap());
            prop_assert_eq!(a.cmp(&b), x.cmp(&y));
        }
    }
}
