//! Numbers that DynamoDB cannot store, found before a request is sent.

use std::fmt::Display;

use crate::client::content::NotOfType;
use crate::values::number::Number;
use crate::values::value::Value;

const ALLOWED: &str = "up to 38 significant digits, and 0 or a magnitude of 1E-130 to 9.99E+125";
const SHOWN_DIGITS: usize = 60;

/// The first number in a value that DynamoDB cannot store, such as NaN: its path, for example
/// `.lines[2].price`, and the reason.
pub(super) fn wrong_number(value: &Value) -> Option<NotOfType> {
    let below = |segment: &dyn Display, value| {
        let NotOfType { attribute, why } = wrong_number(value)?;
        Some(NotOfType { attribute: format!("{segment}{attribute}"), why })
    };
    let here = |why| NotOfType { attribute: String::new(), why };
    match value {
        Value::N(number) => refusal(number).map(here),
        Value::Ns(set) => set.iter().find_map(|number| refusal(number)).map(here),
        Value::L(list) => list
            .iter()
            .enumerate()
            .find_map(|(index, value)| below(&format_args!("[{index}]"), value)),
        Value::M(map) => {
            map.iter().find_map(|(name, value)| below(&format_args!(".{name}"), value))
        }
        Value::S(_) | Value::B(_) | Value::Bool(_) | Value::Null | Value::Ss(_) | Value::Bs(_) => {
            None
        }
    }
}

fn refusal(number: &str) -> Option<String> {
    let digits = number.strip_prefix('-').unwrap_or(number);
    // Most numbers are integers that need no parser.
    if (1..=38).contains(&digits.len()) && digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let error = number.parse::<Number>().err()?;
    Some(format!("{error}: {number:.SHOWN_DIGITS$}; allowed: {ALLOWED}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_number_is_shown_in_part() {
        let long = "9".repeat(1_000);
        let why = wrong_number(&Value::N(long.clone())).unwrap().why;
        assert!(why.contains(&format!(": {};", &long[..60])), "{why}");
    }

    #[test]
    fn numbers_in_range_are_accepted() {
        let digits = "1".repeat(38);
        for number in ["0", "-7", "1.50", "1e-130", "-0.0", &digits, &format!("-{digits}")] {
            assert!(wrong_number(&Value::N(number.to_owned())).is_none(), "{number}");
        }
    }
}
