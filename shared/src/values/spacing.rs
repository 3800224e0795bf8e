//! The density of a key's items in sort-key order. It predicts where the next page ends.
//!
//! If the end is predicted, every shard is queried for exactly its part, in one round trip. Many
//! sort keys are evenly spaced, so the last page predicts the end of the next one. A wrong
//! prediction only affects the first requests, never the result.

use std::borrow::Cow;

use crate::values::key::{MAX_SORT_KEY_BYTES, SortKey};
use crate::values::query::Order;

/// Predictions with a larger error than this share of the distance are not used.
const MAX_ERROR_SHARE: f64 = 0.1;
/// Pages of fewer items are not informative enough.
const MIN_ITEMS: usize = 8;
/// The positions of a text that count as digits; fewer than 2^112 values.
const POSITIONS: usize = 14;
/// Positions before the first difference that are included, for carries.
const CARRIES: usize = 3;

#[derive(Debug, Clone, Default)]
pub(crate) struct Spacing {
    /// Where it started, its last sort key, and its number of items.
    last_page: Option<(SortKey, SortKey, usize)>,
    error: Option<f64>,
}

impl Spacing {
    /// What `items` items after a place will probably not exceed. `None` if the spacing is not
    /// known well enough.
    pub(crate) fn forecast(&self, order: Order, after: &SortKey, items: usize) -> Option<SortKey> {
        let error = self.error.filter(|error| *error <= MAX_ERROR_SHARE)?;
        let with_slack = (items as f64 * (1.0 + 2.0 * error)).ceil() + 1.0;
        let (begin, end, of_page) = self.last_page.as_ref()?;
        let scale = Scale::of(&[begin, end, after])?;
        let distance = scale.distance(begin, end) * with_slack / *of_page as f64;
        let place = scale.place(order, after, distance)?;
        (order.compare(after, &place).is_lt()).then_some(place)
    }

    /// From a page: where it started and ended, and its number of items.
    pub(crate) fn learn(&mut self, after: &SortKey, last: &SortKey, items: usize) {
        if items < MIN_ITEMS {
            return;
        }
        if let Some((begin, end, of_page)) = &self.last_page {
            let error = Scale::of(&[begin, end, after, last]).map_or(1.0, |scale| {
                let expected = scale.distance(begin, end) * items as f64 / *of_page as f64;
                let found = scale.distance(after, last);
                if expected > 0.0 { (found / expected - 1.0).abs().min(1.0) } else { 1.0 }
            });
            self.error = Some(self.error.map_or(error, |mean| (mean + error) / 2.0));
        }
        self.last_page = Some((after.clone(), last.clone(), items));
    }
}

/// A measure of distance on sort keys of one type. After the common prefix, each position of a text
/// counts as a digit; where all texts have the same non-digit, it has one possible value.
enum Scale {
    Numbers,
    Texts { prefix: String, positions: Vec<Cow<'static, [u8]>> },
}

const DECIMAL: &[u8] = b"0123456789";
const HEXADECIMAL: &[u8] = b"0123456789abcdef";
const PRINTABLE: &[u8] =
    br##" !"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\]^_`abcdefghijklmnopqrstuvwxyz{|}~"##;

impl Scale {
    fn of(sort_keys: &[&SortKey]) -> Option<Self> {
        if sort_keys.iter().all(|sort_key| matches!(sort_key, SortKey::Number(_))) {
            return Some(Self::Numbers);
        }
        let ascii = sort_keys.iter().map(|sort_key| match sort_key {
            SortKey::String(text) => Some(&**text).filter(|text| text.is_ascii()),
            SortKey::Number(_) => None,
        });
        let texts = ascii.collect::<Option<Vec<&str>>>()?;
        let (first, rest) = texts.split_first()?;
        let shared = first.bytes().enumerate().take_while(|(at, byte)| {
            rest.iter().all(|text| text.as_bytes().get(*at) == Some(byte))
        });
        let start = shared.count().saturating_sub(CARRIES);
        let longest = texts.iter().map(|text| text.len()).max()?.min(start + POSITIONS);
        let column =
            |at: usize| texts.iter().filter_map(move |text| text.as_bytes().get(at).copied());
        let differ =
            |at: usize| column(at).any(|byte| Some(byte) != first.as_bytes().get(at).copied());
        let all_that_differ: Vec<u8> =
            (start..longest).filter(|at| differ(*at)).flat_map(column).collect();
        let holds_all = |digits: &&[u8]| all_that_differ.iter().all(|byte| digits.contains(byte));
        let digits = [DECIMAL, HEXADECIMAL].into_iter().find(holds_all).unwrap_or(PRINTABLE);
        let positions = (start..longest).map(|at| match column(at).next() {
            Some(byte) if !differ(at) && (digits == PRINTABLE || !digits.contains(&byte)) => {
                Cow::Owned(vec![byte])
            }
            _ => Cow::Borrowed(digits),
        });
        Some(Self::Texts { prefix: first.get(..start)?.to_owned(), positions: positions.collect() })
    }

    fn distance(&self, one: &SortKey, other: &SortKey) -> f64 {
        match self {
            Self::Numbers => (number(one) - number(other)).abs(),
            Self::Texts { .. } => self.value(one).abs_diff(self.value(other)) as f64,
        }
    }

    fn place(&self, order: Order, from: &SortKey, distance: f64) -> Option<SortKey> {
        let up = order == Order::Ascending;
        match self {
            Self::Numbers => {
                let place = if up { number(from) + distance } else { number(from) - distance };
                place.is_finite().then(|| place.to_string().parse().ok().map(SortKey::Number))?
            }
            Self::Texts { prefix, positions } => {
                let (value, distance) = (self.value(from), distance as u128);
                let mut value =
                    if up { value.checked_add(distance)? } else { value.checked_sub(distance)? };
                // The rest of a text is not counted. Upwards, it belongs to the position.
                let mut bytes = if up { vec![b'~'] } else { Vec::new() };
                for digits in positions.iter().rev() {
                    let radix = digits.len() as u128;
                    bytes.push(*digits.get((value % radix) as usize)?);
                    value /= radix;
                }
                bytes.reverse();
                let text = format!("{prefix}{}", String::from_utf8(bytes).ok()?);
                (value == 0 && text.len() <= MAX_SORT_KEY_BYTES)
                    .then(|| SortKey::String(text.into()))
            }
        }
    }

    fn value(&self, sort_key: &SortKey) -> u128 {
        let (Self::Texts { prefix, positions }, SortKey::String(text)) = (self, sort_key) else {
            return 0;
        };
        let bytes = text.as_bytes().get(prefix.len()..).unwrap_or_default();
        positions.iter().enumerate().fold(0, |value, (at, digits)| {
            let digit =
                digits.iter().position(|digit| Some(digit) == bytes.get(at)).unwrap_or_default();
            value * digits.len() as u128 + digit as u128
        })
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
    use crate::values::key::tests::{number, text};
    use proptest::prelude::*;

    /// The state after pages of 100 items, each of which began where the one before ended.
    fn learnt<const N: usize>(ends: [SortKey; N]) -> Spacing {
        let mut spacing = Spacing::default();
        ends.windows(2).for_each(|page| spacing.learn(&page[0], &page[1], 100));
        spacing
    }

    #[test]
    fn evenly_spaced_keys_are_foreseen_and_no_others() {
        let (up, down) = (Order::Ascending, Order::Descending);
        let counters = learnt([text("order-000100"), text("order-000200"), text("order-000300")]);
        let hex = learnt([text("0a-00f0"), text("0a-0110"), text("0a-0130")]);
        let numbers = learnt([number(10), number(60), number(110)]);
        let bursts = learnt([text("00100"), text("00200"), text("09000"), text("09001")]);
        let one_page = learnt([text("00100"), text("00200")]);
        let even = learnt([text("a1"), text("a2"), text("a3")]);
        let rows = [
            (&counters, up, text("order-000951"), 100, Some(text("order-001052~"))),
            (&counters, down, text("order-000951"), 50, Some(text("order-000900"))),
            (&hex, up, text("0a-01f0"), 99, Some(text("0a-0210~"))),
            (&numbers, up, number(200), 99, Some(number(250))),
            (&bursts, up, text("09001"), 100, None),
            // Nothing was checked yet.
            (&one_page, up, text("00200"), 100, None),
            // Only ASCII is measured.
            (&even, up, text("ä1"), 100, None),
        ];
        for (spacing, order, after, items, expected) in rows {
            assert_eq!(spacing.forecast(order, &after, items), expected, "{order:?} {after}");
        }
    }

    proptest! {
        #[test]
        fn a_forecast_lies_ahead_and_nothing_panics(
            keys in proptest::collection::vec("\\PC{1,20}", 5),
            descending in any::<bool>(),
            items in 1usize..2_000,
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
