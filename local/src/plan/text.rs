//! Numbers as people read them.

use indicatif::HumanCount;

/// A whole number with its thousands apart.
pub(super) fn whole(number: f64) -> String {
    HumanCount(number.round().max(0.0) as u64).to_string()
}

/// With up to two decimals, where they say something.
pub(super) fn decimal(number: f64) -> String {
    if number >= 100.0 || (number - number.round()).abs() < 0.005 { whole(number) } else { format!("{number:.2}") }
}

/// A part as a percentage, the more exact the smaller it is.
pub(super) fn percent(part: f64) -> String {
    let percent = part * 100.0;
    match percent {
        small if small < 0.000_1 => "0 %".to_owned(),
        small if small < 0.01 => "< 0.01 %".to_owned(),
        small if small < 2.0 => format!("{small:.2} %"),
        large => format!("{large:.1} %"),
    }
}

/// A sum of dollars.
pub(super) fn dollars(usd: f64) -> String {
    if usd >= 100.0 || usd == 0.0 { format!("${}", whole(usd)) } else { format!("${usd:.2}") }
}

/// So many of something.
pub(super) fn counted(number: u32, one: &str) -> String {
    format!("{} {one}{}", whole(f64::from(number)), if number == 1 { "" } else { "s" })
}

/// The same of a whole number of units.
pub(super) fn counted_units(number: f64, one: &str) -> String {
    format!("{} {one}{}", whole(number), if (number.round() - 1.0).abs() < 0.5 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_readable() {
        assert_eq!([whole(61_299.4), decimal(12.5), decimal(500.0)], ["61,299", "12.50", "500"]);
        assert_eq!([1e-12, 0.000_05, 0.009_8, 0.221].map(percent), ["0 %", "< 0.01 %", "0.98 %", "22.1 %"]);
        assert_eq!([dollars(8_212.5), dollars(0.5)], ["$8,213", "$0.50"]);
        assert_eq!([counted_units(1.0, "write"), counted_units(2.0, "write")], ["1 write", "2 writes"]);
        assert_eq!([counted(1, "shard"), counted(1_200, "shard")], ["1 shard", "1,200 shards"]);
    }
}
