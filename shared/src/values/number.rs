//! Numbers as DynamoDB stores them: decimal, 38 significant digits.

use std::fmt;
use std::str::FromStr;

use bigdecimal::BigDecimal;

const MAX_DIGITS: u64 = 38;
const MAX_MAGNITUDE: i64 = 125;
const MIN_MAGNITUDE: i64 = -130;
/// Longer texts contain only zeros that change no value.
const MAX_SPELLING: usize = 512;

/// A decimal number within DynamoDB's range. Two spellings of one value are one number.
///
/// ```
/// use dynamodb_write_sharding::Number;
/// let a: Number = "1e2".parse()?;
/// assert_eq!(a, "100.0".parse()?);
/// assert_eq!(a.to_string(), "100");
/// # Ok::<(), dynamodb_write_sharding::NumberError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Number(BigDecimal);

/// Why DynamoDB cannot store a text as a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NumberError {
    /// Not a decimal number. NaN and infinity are not.
    #[error("it is not a decimal number")]
    Syntax,
    /// More than 38 significant digits.
    #[error("it has more than 38 significant digits")]
    Digits,
    /// The magnitude is out of range.
    #[error("its magnitude is outside 1E-130 to 9.99E+125")]
    Magnitude,
}

impl FromStr for Number {
    type Err = NumberError;

    fn from_str(text: &str) -> Result<Self, NumberError> {
        let is_plain = |byte| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
        if !text.bytes().all(is_plain) {
            return Err(NumberError::Syntax);
        }
        if text.len() > MAX_SPELLING {
            return Err(NumberError::Digits);
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

macro_rules! from_integer {
    ($($integer:ty),*) => {
        $(impl From<$integer> for Number {
            fn from(number: $integer) -> Self {
                Self(BigDecimal::from(number).normalized())
            }
        })*
    };
}
from_integer!(i32, u32, i64, u64);

impl Number {
    /// Whether the value is 0, in any spelling.
    pub fn is_zero(&self) -> bool {
        self.0 == 0
    }

    /// The exact sum.
    ///
    /// # Errors
    /// [`NumberError`] if the sum has too many digits, or is out of range.
    pub fn plus(&self, other: &Self) -> Result<Self, NumberError> {
        (&self.0 + &other.0).to_scientific_notation().parse()
    }

    /// One text per value, for hashing: an integer without trailing zeros and a power of ten.
    pub(crate) fn canonical(&self) -> String {
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
    fn the_edges_of_the_range_are_kept_and_all_beyond_is_refused() {
        for (text, value) in [
            ("-0.0", "0"),
            ("0e999", "0"),
            ("007", "7"),
            ("1E-130", "1e-130"),
            (
                "9.9999999999999999999999999999999999999E+125",
                "99999999999999999999999999999999999999e88",
            ),
            ("12345678901234567890123456789012345678", "12345678901234567890123456789012345678e0"),
        ] {
            let value: Number = value.parse().unwrap();
            assert_eq!(text.parse::<Number>(), Ok(value), "{text}");
        }
        let many_digits = "123456789012345678901234567890123456789";
        for (error, texts) in [
            (NumberError::Magnitude, &["1E126", "1E-131"][..]),
            (NumberError::Digits, &[many_digits][..]),
            (
                NumberError::Syntax,
                &["NaN", "Infinity", "1_000", "", "--1", "1e99999999999999999999"][..],
            ),
        ] {
            texts.iter().for_each(|text| assert_eq!(text.parse::<Number>(), Err(error), "{text}"));
        }
    }

    proptest! {
        #[test]
        fn spellings_of_one_value_are_one_number(
            mantissa in -1_000_000i64..1_000_000, zeros in 0usize..20,
        ) {
            let long: Number = format!("{mantissa}{}", "0".repeat(zeros)).parse().unwrap();
            let short: Number = format!("{mantissa}e{zeros}").parse().unwrap();
            prop_assert_eq!(long.canonical(), short.canonical());
            prop_assert_eq!(&long, &short);
            prop_assert_eq!(&long.to_string().parse::<Number>().unwrap(), &long);
        }

        #[test]
        fn numbers_order_by_value(a in any::<i64>(), b in any::<i64>()) {
            let (x, y): (Number, Number) =
                (a.to_string().parse().unwrap(), b.to_string().parse().unwrap());
            prop_assert_eq!(a.cmp(&b), x.cmp(&y));
        }
    }
}
