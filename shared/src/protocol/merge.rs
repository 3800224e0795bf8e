//! Merges many shards into one ordered page.
//!
//! Querying every shard for the whole page would read the page n times. Instead each is queried for
//! its *share*, in whole read units. Only the shards that run out before the page is full are
//! queried again, up to the last sort key that can be on the page.
//!
//! The order is that of the sort keys, or of another type of position, such as that in an index.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use crate::protocol::version::Version;
use crate::values::key::{ShardNumber, SortKey};
use crate::values::query::{Order, PageQuery};
use crate::values::spacing::Spacing;

/// The standard deviations of a shard's part of the page that are requested on top of the mean.
/// More would cost more than a second request.
const SLACK_DEVIATIONS: f64 = 0.4;
/// The same if the range of the request limits the cost.
const AMPLE_DEVIATIONS: f64 = 3.0;

/// An item on its way through the merge.
#[derive(Debug, Clone, PartialEq)]
pub struct Stored<T, K = SortKey> {
    /// Its position in the order.
    pub sort_key: K,
    /// Of two copies, the one with the higher version is the item.
    pub version: Version,
    /// `None` for a deleted item, which hides older copies on other shards.
    pub item: Option<T>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardPageRequest<K = SortKey> {
    pub shard: ShardNumber,
    /// Start after this sort key.
    pub after: Option<K>,
    /// Inclusive: items beyond it cannot be on the page.
    pub until: Option<K>,
    pub limit: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ShardPage<T, K = SortKey> {
    /// In the query's order.
    pub items: Vec<Stored<T, K>>,
    /// Where the shard's next page starts. `None` at the end of the requested range.
    pub next: Option<K>,
}

/// How far the order is known: up to there, inclusive, every item of a shard, or of every shard,
/// has arrived.
#[derive(Debug, PartialEq)]
enum Horizon<K> {
    Nothing,
    UpTo(K),
    Everything,
}

impl<K> Horizon<K> {
    const fn place(&self) -> Option<&K> {
        if let Self::UpTo(place) = self { Some(place) } else { None }
    }
}

#[derive(Debug)]
struct Shard<T, K> {
    /// `Nothing` before the response to the first query.
    horizon: Horizon<K>,
    is_asked: bool,
    /// Of the query in progress.
    until: Option<K>,
    /// Not merged yet. The first one is in the heap.
    waiting: VecDeque<Stored<T, K>>,
}

#[derive(Debug)]
pub struct PageMerge<T, K = SortKey> {
    limit: usize,
    order: Order,
    start: Option<K>,
    /// The items that the smallest billed amount pays for, as far as it is known. Requests are
    /// rounded up to it.
    pub items_per_unit: f64,
    /// The most items to request at a time: more would not fit into memory or into the page.
    pub most: usize,
    /// The predicted end of the page, and the query's own end.
    foreseen: Option<K>,
    end: Option<K>,
    shards: BTreeMap<ShardNumber, Shard<T, K>>,
    horizon: Horizon<K>,
    /// Each shard's next item. Of copies, the highest version comes first.
    heads: BinaryHeap<(Rank<K>, Version, Reverse<ShardNumber>)>,
    page: Vec<(T, Version)>,
    /// Of an item of the page, or of a deleted one.
    reached: Option<K>,
    closed: bool,
}

/// The greatest is the next one of the page.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank<K> {
    Ascending(Reverse<K>),
    Descending(K),
}

impl<T> PageMerge<T> {
    /// With the query's own end, and a predicted end of the page, each shard is queried for exactly
    /// its part.
    pub(crate) fn foresee(&mut self, spacing: &Spacing, query: &PageQuery) {
        let end = if self.order == Order::Ascending { &query.to } else { &query.from };
        let is_inside = |until: &SortKey| {
            let prefix = query.prefix.as_ref();
            !ends_at(self.order, end.as_ref(), until)
                && prefix.is_none_or(|prefix| until.to_string().starts_with(prefix))
        };
        let start = self.start.as_ref();
        let until = start.and_then(|start| spacing.forecast(self.order, start, self.limit));
        self.foreseen = until.filter(is_inside);
        self.end = end.clone();
    }
}

impl<T, K: Ord + Clone> PageMerge<T, K> {
    pub fn new(limit: usize, order: Order, start: Option<K>) -> Self {
        Self {
            limit,
            order,
            start,
            items_per_unit: 1.0,
            most: usize::MAX,
            foreseen: None,
            end: None,
            shards: BTreeMap::new(),
            horizon: Horizon::Everything,
            heads: BinaryHeap::new(),
            page: Vec::new(),
            reached: None,
            closed: false,
        }
    }

    /// Call this only before the first item was merged, so that no item comes too late.
    pub fn add_shards(&mut self, shards: impl IntoIterator<Item = ShardNumber>) {
        debug_assert!(self.reached.is_none(), "a shard was added to a page that has begun");
        for shard in shards {
            let (horizon, waiting) = (Horizon::Nothing, VecDeque::new());
            let new = Shard { horizon, is_asked: false, until: None, waiting };
            self.shards.entry(shard).or_insert(new);
        }
        self.update_horizon();
    }

    pub fn shard_count(&self) -> usize {
        self.shards.len()
    }

    /// The pages to request now: from new shards, and after all responses from those that the page
    /// still needs.
    pub fn requests(&mut self) -> Vec<ShardPageRequest<K>> {
        if self.is_full() || self.next_shard().is_some() {
            return Vec::new();
        }
        let wanted = self.limit - self.page.len();
        let all_in = !self.shards.values().any(|shard| shard.is_asked);
        let (last, likely) = if all_in { self.reach(wanted) } else { (None, None) };
        let foreseen = &self.foreseen;
        let order = self.order;
        // Too few items have arrived to fill the page, so the next items of every shard are needed.
        let is_needed = |after: &K| {
            all_in && likely.as_ref().is_none_or(|likely| order.compare(after, likely).is_lt())
        };
        let asks = |shard: &Shard<T, K>| match &shard.horizon {
            Horizon::Nothing => !shard.is_asked,
            Horizon::UpTo(after) => is_needed(after),
            Horizon::Everything => false,
        };
        // New shards share the page with all others. The shards that are queried for the missing
        // rest share it.
        let askers = self.shards.values().filter(|shard| asks(shard)).count();
        let first = self.share(wanted, self.shards.len(), foreseen.is_some());
        let again = self.share(wanted, askers, false);
        let mut requests = Vec::new();
        for (number, shard) in self.shards.iter_mut().filter(|(_, shard)| asks(shard)) {
            let (after, until, limit) = match shard.horizon.place() {
                None => (self.start.clone(), foreseen.clone(), first),
                Some(after) => (Some(after.clone()), last.clone(), again),
            };
            (shard.is_asked, shard.until) = (true, until.clone());
            requests.push(ShardPageRequest { shard: *number, after, until, limit });
        }
        requests
    }

    pub fn supply(&mut self, number: ShardNumber, answer: ShardPage<T, K>) {
        let (order, end) = (self.order, self.end.as_ref());
        let Some(shard) = self.shards.get_mut(&number) else { return };
        if !std::mem::take(&mut shard.is_asked) {
            return;
        }
        let had_head = !shard.waiting.is_empty();
        shard.waiting.extend(answer.items);
        // At the query's own end nothing is left, and DynamoDB refuses to start there.
        let next = answer.next.or(shard.until.take()).filter(|place| !ends_at(order, end, place));
        shard.horizon = next.map_or(Horizon::Everything, Horizon::UpTo);
        if !had_head {
            self.raise_head(number);
        }
        self.update_horizon();
    }

    /// Moves items to the page until it is full, the order is not known any further, or `more`
    /// returns that an item is the page's last.
    pub fn advance(&mut self, mut more: impl FnMut(&T) -> bool) {
        while let Some(number) = self.next_shard() {
            self.heads.pop();
            let Some(stored) =
                self.shards.get_mut(&number).and_then(|shard| shard.waiting.pop_front())
            else {
                return;
            };
            // The highest version of a sort key comes first, and every shard's copy of it is there.
            // The following ones are older copies.
            if self.reached.as_ref() != Some(&stored.sort_key) {
                self.reached = Some(stored.sort_key);
                if let Some(item) = stored.item {
                    self.closed = !more(&item);
                    self.page.push((item, stored.version));
                }
            }
            self.raise_head(number);
        }
    }

    /// It is full or closed, or every shard is at its end.
    pub fn is_complete(&self) -> bool {
        self.is_full() || (self.heads.is_empty() && self.horizon == Horizon::Everything)
    }

    /// Whether anything was merged: the next page starts after it.
    pub const fn has_begun(&self) -> bool {
        self.reached.is_some()
    }

    /// The next page starts after the last merged sort key, unless every shard is at its end.
    pub fn finish(self) -> (Vec<(T, Version)>, Option<K>) {
        let last = self.reached;
        let is_copy = |stored: &Stored<T, K>| Some(&stored.sort_key) == last.as_ref();
        let is_at_end = |shard: &Shard<T, K>| {
            shard.horizon == Horizon::Everything && shard.waiting.iter().all(is_copy)
        };
        let next = if self.shards.values().all(is_at_end) { None } else { last.or(self.start) };
        let next = next.filter(|place| !ends_at(self.order, self.end.as_ref(), place));
        (self.page, next)
    }

    fn is_full(&self) -> bool {
        self.closed || self.page.len() >= self.limit
    }

    /// The shard with the next item of the page, if no other shard can have an earlier one.
    fn next_shard(&self) -> Option<ShardNumber> {
        let (Rank::Ascending(Reverse(next)) | Rank::Descending(next), _, Reverse(shard)) =
            self.heads.peek()?;
        let is_known = match &self.horizon {
            Horizon::Nothing => false,
            Horizon::UpTo(horizon) => self.order.compare(next, horizon).is_le(),
            Horizon::Everything => true,
        };
        (is_known && !self.is_full()).then_some(*shard)
    }

    /// A hash spreads items binomially, so a shard's part is about `wanted / shards`, plus or minus
    /// its square root.
    fn share(&self, wanted: usize, shards: usize, is_bounded: bool) -> usize {
        let wanted = wanted.min(self.most).max(1);
        let mean = wanted as f64 / shards.max(1) as f64;
        let ask = if is_bounded {
            (mean + AMPLE_DEVIATIONS * mean.sqrt()).ceil() + 1.0
        } else {
            // Rounded up to whole read units, which are billed anyway.
            (((mean + SLACK_DEVIATIONS * mean.sqrt()) / self.items_per_unit).ceil()
                * self.items_per_unit)
                .floor()
        };
        if shards <= 1 { wanted } else { (ask as usize).clamp(1, wanted) }
    }

    /// A shard with an item in the heap hides nothing before that item.
    fn update_horizon(&mut self) {
        let open = || self.shards.values().filter(|shard| shard.waiting.is_empty());
        self.horizon = if open().any(|shard| shard.horizon == Horizon::Nothing) {
            Horizon::Nothing
        } else {
            let places = open().filter_map(|shard| shard.horizon.place());
            let nearest = places.min_by(|one, other| self.order.compare(one, other));
            nearest.cloned().map_or(Horizon::Everything, Horizon::UpTo)
        };
    }

    /// Puts the next item of a shard into the heap. Without one, the order may be known less far.
    fn raise_head(&mut self, number: ShardNumber) {
        let Some(next) = self.shards.get(&number).and_then(|shard| shard.waiting.front()) else {
            return self.update_horizon();
        };
        let rank = match self.order {
            Order::Ascending => Rank::Ascending(Reverse(next.sort_key.clone())),
            Order::Descending => Rank::Descending(next.sort_key.clone()),
        };
        self.heads.push((rank, next.version, Reverse(number)));
    }

    /// The last sort key that can be on a page with `wanted` more items, and its predicted end:
    /// placement spreads items evenly, so an item stands for n / (shards of n that have arrived up
    /// to its position) items.
    fn reach(&self, wanted: usize) -> (Option<K>, Option<K>) {
        // An older copy of the last merged item is not on the page.
        let is_new = |place: &&K| self.reached.as_ref() != Some(*place);
        let waiting = self.shards.values().flat_map(|shard| &shard.waiting);
        let mut arrived: Vec<&K> = waiting.map(|stored| &stored.sort_key).filter(is_new).collect();
        arrived.sort_unstable_by(|one, other| self.order.compare(one, other));
        arrived.dedup();
        let until = arrived.get(wanted - 1).map(|sort_key| (*sort_key).clone());
        let mut ends: Vec<&K> =
            self.shards.values().filter_map(|shard| shard.horizon.place()).collect();
        ends.sort_unstable_by(|one, other| self.order.compare(one, other));
        let shards = self.shards.len() as f64;
        let mut ended = 0;
        let mut count = 0.0;
        let likely = arrived.into_iter().find(|sort_key| {
            while ends.get(ended).is_some_and(|end| self.order.compare(end, sort_key).is_lt()) {
                ended += 1;
            }
            count += shards / (shards - ended as f64).max(1.0);
            count >= wanted as f64
        });
        (until, likely.cloned())
    }
}

/// Whether the query has nothing beyond this position.
fn ends_at<K: Ord>(order: Order, end: Option<&K>, place: &K) -> bool {
    end.is_some_and(|end| order.compare(place, end).is_ge())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::key::tests::{count, key as partition_key, number};
    use proptest::prelude::*;

    /// A table of shards: (shard, sort key, version). Every seventh version is a deletion.
    type Table = Vec<(u32, u32, u32)>;

    fn query(
        table: &Table,
        order: Order,
        request: &ShardPageRequest,
        cap: usize,
    ) -> ShardPage<(u32, u32)> {
        let is_asked_for = |place: &SortKey| {
            request.after.as_ref().is_none_or(|after| order.compare(place, after).is_gt())
                && request.until.as_ref().is_none_or(|until| order.compare(place, until).is_le())
        };
        let rows =
            table.iter().filter(|row| row.0 == request.shard.get() && is_asked_for(&number(row.1)));
        let stored = |&(_, key, version): &(u32, u32, u32)| Stored {
            sort_key: number(key),
            version: Version::new(1, u64::from(version), 0),
            item: (version % 7 != 0).then_some((key, version)),
        };
        let mut items: Vec<_> = rows.map(stored).collect();
        items.sort_by(|one, other| order.compare(&one.sort_key, &other.sort_key));
        // As in DynamoDB, a truncated page has a next key even if nothing follows.
        let taken = request.limit.min(cap);
        let is_cut = items.len() >= taken;
        items.truncate(taken);
        let next = items.last().filter(|_| is_cut).map(|item| item.sort_key.clone());
        ShardPage { items, next }
    }

    /// At most `cap` items for each request.
    fn answer(merge: &mut PageMerge<(u32, u32)>, table: &Table, cap: usize) {
        for request in merge.requests() {
            let is_at_end = |after: &SortKey| ends_at(merge.order, merge.end.as_ref(), after);
            assert!(!request.after.as_ref().is_some_and(is_at_end));
            let page = query(table, merge.order, &request, cap);
            merge.supply(request.shard, page);
        }
        merge.advance(|_| true);
    }

    proptest! {
        #[test]
        fn paging_by_any_limit_yields_the_newest_items_once_in_order(
            rows in prop_oneof![
                proptest::collection::btree_map((1u32..8, 0u32..200), 1u32..1_000, 0..300),
                // Evenly spaced, so that pages are predictable.
                proptest::collection::vec(1u32..8, 0..300).prop_map(|shards| {
                    shards.into_iter().zip(0..).map(|(shard, key)| ((shard, 3 * key), 1)).collect()
                }),
            ],
            limit in 1usize..50, cap in 1usize..40, descending in any::<bool>(),
            per_unit in 0.2f64..30.0,
        ) {
            // One copy of a sort key per shard, as in a table.
            let table: Table =
                rows.into_iter().map(|((shard, key), version)| (shard, key, version)).collect();
            let mut newest = BTreeMap::new();
            for (_, key, version) in &table {
                let entry = newest.entry(*key).or_insert(*version);
                *entry = (*entry).max(*version);
            }
            let mut expected: Vec<_> =
                newest.into_iter().filter(|(_, version)| version % 7 != 0).collect();
            let order = if descending { Order::Descending } else { Order::Ascending };
            if descending {
                expected.reverse();
            }
            let (mut all, mut start, mut spacing) = (Vec::new(), None, Spacing::default());
            loop {
                let began_after: Option<SortKey> = start.clone();
                let mut merge = PageMerge::new(limit, order, start);
                merge.items_per_unit = per_unit;
                merge.foresee(&spacing, &PageQuery::new(partition_key("k")));
                merge.add_shards(count(8).shards());
                while !merge.is_complete() {
                    answer(&mut merge, &table, cap);
                }
                let (page, next) = merge.finish();
                prop_assert!(page.len() <= limit);
                if let (Some(after), Some(last)) = (began_after, page.last()) {
                    spacing.learn(&after, &number(last.0.0), page.len());
                }
                all.extend(page.into_iter().map(|(item, _)| item));
                start = next;
                if start.is_none() {
                    break;
                }
            }
            prop_assert_eq!(all, expected);
        }
    }

    #[test]
    fn nothing_is_asked_for_beyond_the_querys_own_end() {
        // Each shard's last item in the range is cut off with a position to continue from, as
        // DynamoDB does.
        let table: Table = (0..8).map(|i| (i % 4 + 1, i, 1)).collect();
        let query = PageQuery { to: Some(number(7)), ..PageQuery::new(partition_key("k")) };
        let mut merge = PageMerge::new(8, Order::Ascending, None);
        merge.items_per_unit = 2.0;
        merge.foresee(&Spacing::default(), &query);
        merge.add_shards(count(4).shards());
        while !merge.is_complete() {
            answer(&mut merge, &table, 2);
        }
        let (page, next) = merge.finish();
        assert_eq!((page.len(), next), (8, None));
    }

    #[test]
    fn a_page_that_ends_early_goes_on_where_it_stopped() {
        let table: Table = (0..40).map(|i| (i % 4 + 1, i, 1)).collect();
        let new = || PageMerge::new(20, Order::Ascending, Some(number(3)));
        assert_eq!(new().finish().1, None);
        let mut merge = new();
        merge.add_shards(count(4).shards());
        answer(&mut merge, &table, 2);
        let (page, next) = merge.finish();
        assert_eq!((page.len(), next), (5, Some(number(page[4].0.0))));
    }
}
