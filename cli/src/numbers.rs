//! Numbers formatted for people.

use indicatif::HumanCount;

/// Formats a count with separated thousands.
pub fn count(number: u64) -> String {
    HumanCount(number).to_string()
}

/// Rounds a number and formats it as a count.
pub fn whole(number: f64) -> String {
    count(number.round().max(0.0) as u64)
}

/// Formats a number with up to two decimals; large numbers have none.
pub fn decimal(number: f64) -> String {
    if number >= 100.0 || (number - number.round()).abs() < 0.005 {
        whole(number)
    } else {
        format!("{number:.2}")
    }
}

/// Formats a share from 0 to 1 as a percentage. A smaller share has more decimals.
pub fn percent(share: f64) -> String {
    match share * 100.0 {
        small if small < 0.000_1 => "0 %".to_owned(),
        small if small < 0.01 => "< 0.01 %".to_owned(),
        small if small < 2.0 => format!("{small:.2} %"),
        large => format!("{large:.1} %"),
    }
}

/// Formats a sum in US dollars.
pub fn dollars(usd: f64) -> String {
    if usd >= 100.0 || usd == 0.0 { format!("${}", whole(usd)) } else { format!("${usd:.2}") }
}

/// Formats a count and a noun, which gets an "s" unless the count is one.
pub fn counted(number: impl Into<u64>, one: &str) -> String {
    let number = number.into();
    format!("{} {one}{}", count(number), if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_readable() {
        assert_eq!([whole(61_299.4), decimal(12.5), decimal(500.0)], ["61,299", "12.50", "500"]);
        let shares = [1e-12, 0.000_05, 0.009_8, 0.221].map(percent);
        assert_eq!(shares, ["0 %", "< 0.01 %", "0.98 %", "22.1 %"]);
        assert_eq!([dollars(8_212.5), dollars(0.5)], ["$8,213", "$0.50"]);
        let shards = [counted(1_u32, "shard"), counted(1_200_u64, "shard")];
        assert_eq!(shards, ["1 shard", "1,200 shards"]);
    }
}
