//! How densely a key's items lie in sort-key order: where the next page will probably end.
//!
//! Who knows beforehand up to which sort key a page will reach can ask every shard for exactly its part, in one round trip. Many sort
//! keys are evenly spaced, times and counters above all, so the last page tells where the next one ends. Where they are not, the
//! forecasts turn out wrong, and are not used: this only ever decides what is asked first, never what is returned.

use super::key::{MAX_SORT_KEY_BYTES, SortKey};
use super::query::Order;

/// Forecasts that were this wrong are not used, as a part of the distance.
const TOLERATED_ERROR: f64 = 0.1;
/// Pages of fewer items say too little.
const FEWEST_ITEMS: usize = 8;
/// So many positions of a text are taken for digits; fewer than 2^112 values.
const POSITIONS: usize = 14;
/// So many positions before the first difference belong to them, for carries.
const CARRIES: usize = 3;

/// What the pages of a key have told of the distances between its items.
#[derive(Debug, Clone, Default)]
pub(crate) struct Spacing {
    last_page: Option<PageSpan>,
    /// The mean error of the forecasts so far.
    error: Option<f64>,
}

#[derive(Debug, Clone)]
struct PageSpan {
    after: SortKey,
    last: SortKey,
    items: usize,
}

impl Spacing {
    /// Up to where `items` items after a place will probably lie, and hardly more; `None` where that is not known well enough.
    pub(crate) fn forecast(&self, order: Order, after: &SortKey, items: usize) -> Option<SortKey> {
        let error = self.error.filter(|error| *error <= TOLERATED_ERROR)?;
        let with_slack = (items as f64 * (1.0 + 2.0 * error)).ceil() + 1.0;
        let span = self.last_page.as_ref()?;
        let scale = Scale::of(&[&span.after, &span.last, after])?;
        let distance = scale.distance(&span.after, &span.last) * with_slack / span.items as f64;
        let place = scale.place(order, after, distance)?;
        (order.compare(after, &place).is_lt()).then_some(place)
    }

    /// Learns from a page of so many items after a place, and from how far it was from where it was expected to end.
    pub(crate) fn learn(&mut self, after: &SortKey, last: &SortKey, items: usize) {
        if items < FEWEST_ITEMS {
            return;
        }
        if let Some(before) = &self.last_page {
            let error = Scale::of(&[&before.after, &before.last, after, last]).map_or(1.0, |scale| {
                let expected = scale.distance(&before.after, &before.last) * items as f64 / before.items as f64;
                let found = scale.distance(after, last);
                if expected > 0.0 { (found / expected - 1.0).abs().min(1.0) } else { 1.0 }
            });
            self.error = Some(self.error.map_or(error, |mean| (mean + error) / 2.0));
        }
        self.last_page = Some(PageSpan { after: after.clone(), last: last.clone(), items });
    }
}

/// A measure of distance on some sort keys of one type.
enum Scale {
    Numbers,
    Texts { prefix: String, positions: Vec<Position> },
}

/// What one position of the texts counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Position {
    /// The same in all, and no digit.
    Fixed(u8),
    Decimal,
    Hexadecimal,
    /// Anything between space and tilde.
    Printable,
}

impl Scale {
    fn of(sort_keys: &[&SortKey]) -> Option<Self> {
        let texts: Vec<&str> = sort_keys
            .iter()
            .filter_map(|sort_key| match sort_key {
                SortKey::String(text) => Some(&**text),
                SortKey::Number(_) => None,
            })
            .collect();
        match texts.as_slice() {
            [] => Some(Self::Numbers),
            all if all.len() == sort_keys.len() && all.iter().all(|text| text.is_ascii()) => Self::of_texts(all),
            _ => None,
        }
    }

    fn of_texts(texts: &[&str]) -> Option<Self> {
        let (first, rest) = texts.split_first()?;
        let shared = first
            .bytes()
            .enumerate()
            .take_while(|(at, byte)| rest.iter().all(|text| text.as_bytes().get(*at) == Some(byte)));
        let start = shared.count().saturating_sub(CARRIES);
        let longest = texts.iter().map(|text| text.len()).max()?.min(start + POSITIONS);
        let column = |at: usize| texts.iter().filter_map(move |text| text.as_bytes().get(at).copied());
        let differ = |at: usize| column(at).any(|byte| Some(byte) != first.as_bytes().get(at).copied());
        let all_that_differ: Vec<u8> = (start..longest).filter(|at| differ(*at)).flat_map(column).collect();
        let alphabet = [Position::Decimal, Position::Hexadecimal]
            .into_iter()
            .find(|alphabet| all_that_differ.iter().all(|byte| alphabet.digit(*byte).is_some()))
            .unwrap_or(Position::Printable);
        let positions = (start..longest).map(|at| match column(at).next() {
            Some(byte) if !differ(at) && alphabet.digit(byte).is_none_or(|_| alphabet == Position::Printable) => {
                Position::Fixed(byte)
            }
            _ => alphabet,
        });
        Some(Self::Texts { prefix: first.get(..start)?.to_owned(), positions: positions.collect() })
    }

    fn distance(&self, one: &SortKey, other: &SortKey) -> f64 {
        match self {
            Self::Numbers => (number(one) - number(other)).abs(),
            Self::Texts { .. } => self.value(one).abs_diff(self.value(other)) as f64,
        }
    }

    /// The place at a distance from another one.
    fn place(&self, order: Order, from: &SortKey, distance: f64) -> Option<SortKey> {
        match self {
            Self::Numbers => {
                let place = match order {
                    Order::Ascending => number(from) + distance,
                    Order::Descending => number(from) - distance,
                };
                place.is_finite().then(|| place.to_string().parse().ok().map(SortKey::Number))?
            }
            Self::Texts { prefix, positions } => {
                let distance = distance as u128;
                let value = match order {
                    Order::Ascending => self.value(from).checked_add(distance),
                    Order::Descending => self.value(from).checked_sub(distance),
                };
                let mut value = value?;
                let mut bytes = Vec::with_capacity(positions.len() + 1);
                for position in positions.iter().rev() {
                    bytes.push(position.byte(value % position.radix()));
                    value /= position.radix();
                }
                if value > 0 {
                    return None;
                }
                bytes.reverse();
                // What follows in a text is not counted; upwards it belongs to the place.
                if order == Order::Ascending {
                    bytes.push(b'~');
                }
                let text = format!("{prefix}{}", String::from_utf8(bytes).ok()?);
                (text.len() <= MAX_SORT_KEY_BYTES).then(|| SortKey::String(text.into()))
            }
        }
    }

    fn value(&self, sort_key: &SortKey) -> u128 {
        let (Self::Texts { prefix, positions }, SortKey::String(text)) = (self, sort_key) else { return 0 };
        let bytes = text.as_bytes().get(prefix.len()..).unwrap_or_default();
        let digit = |(at, position): (usize, &Position)| {
            let byte = bytes.get(at).copied().unwrap_or_default();
            (position.radix(), position.digit(byte).unwrap_or_default())
        };
        positions.iter().enumerate().map(digit).fold(0, |value, (radix, digit)| value * radix + digit)
    }
}

impl Position {
    const fn radix(self) -> u128 {
        match self {
            Self::Fixed(_) => 1,
            Self::Decimal => 10,
            Self::Hexadecimal => 16,
            Self::Printable => (b'~' - b' ' + 1) as u128,
        }
    }

    fn digit(self, byte: u8) -> Option<u128> {
        match (self, byte) {
            (Self::Fixed(_), _) => Some(0),
            (Self::Decimal | Self::Hexadecimal, b'0'..=b'9') => Some(u128::from(byte - b'0')),
            (Self::Hexadecimal, b'a'..=b'f') => Some(u128::from(byte - b'a') + 10),
            (Self::Printable, b' '..=b'~') => Some(u128::from(byte - b' ')),
            _ => None,
        }
    }

    fn byte(self, digit: u128) -> u8 {
        let digit = u8::try_from(digit).unwrap_or_default();
        match self {
            Self::Fixed(byte) => byte,
            Self::Decimal => b'0' + digit,
            Self::Hexadecimal if digit < 10 => b'0' + digit,
            Self::Hexadecimal => b'a' + digit - 10,
            Self::Printable => b' ' + digit,
        }
    }
}

fn number(sort_key: &SortKey) -> f64 {
    match sort_key {
        SortKey::Number(number) => number.to_string().parse().unwrap_or(f64::NAN),
        SortKey::String(_) => f64::NAN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::key::SortKeyType;
    use proptest::prelude::*;

    fn text(text: &str) -> SortKey {
        SortKey::parse(SortKeyType::String, text).unwrap()
    }

    fn learnt(pages: &[(SortKey, SortKey)]) -> Spacing {
        let mut spacing = Spacing::default();
        for (after, last) in pages {
            spacing.learn(after, last, 100);
        }
        spacing
    }

    #[test]
    fn evenly_spaced_keys_are_foreseen() {
        let counters =
            learnt(&[(text("order-000100"), text("order-000200")), (text("order-000200"), text("order-000300"))]);
        assert_eq!(counters.forecast(Order::Ascending, &text("order-000951"), 100), Some(text("order-001052~")));
        assert_eq!(counters.forecast(Order::Descending, &text("order-000951"), 50), Some(text("order-000900")));
        let hex = learnt(&[(text("0a-00f0"), text("0a-0110")), (text("0a-0110"), text("0a-0130"))]);
        assert_eq!(hex.forecast(Order::Ascending, &text("0a-01f0"), 99), Some(text("0a-0210~")));
        let number = |n: f64| SortKey::parse(SortKeyType::Number, &n.to_string()).unwrap();
        let numbers = learnt(&[(number(10.0), number(60.0)), (number(60.0), number(110.0))]);
        assert_eq!(numbers.forecast(Order::Ascending, &number(200.0), 99), Some(number(250.0)));
    }

    #[test]
    fn what_is_not_evenly_spaced_is_not_foreseen() {
        let bursts =
            learnt(&[(text("00100"), text("00200")), (text("00200"), text("09000")), (text("09000"), text("09001"))]);
        assert_eq!(bursts.forecast(Order::Ascending, &text("09001"), 100), None);
        let one_page = learnt(&[(text("00100"), text("00200"))]);
        assert_eq!(one_page.forecast(Order::Ascending, &text("00200"), 100), None, "nothing was checked yet");
        let even = learnt(&[(text("a1"), text("a2")), (text("a2"), text("a3"))]);
        assert_eq!(even.forecast(Order::Ascending, &text("ä1"), 100), None, "only ASCII is measured");
    }

    proptest! {
        #[test]
        fn a_forecast_lies_ahead_and_nothing_panics(
            keys in proptest::collection::vec("\\PC{1,20}", 5), descending in any::<bool>(), items in 1usize..2_000,
        ) {
            let keys: Vec<SortKey> = keys.iter().map(|key| text(key)).collect();
            let order = if descending { Order::Descending } else { Order::Ascending };
            let mut spacing = Spacing::default();
            spacing.learn(&keys[0], &keys[1], 50);
            spacing.learn(&keys[2], &keys[3], 50);
            spacing.error = Some(0.0);
            if let Some(place) = spacing.forecast(order, &keys[4], items) {
                prop_assert!(order.compare(&keys[4], &place).is_lt());
            }
        }
    }
}
