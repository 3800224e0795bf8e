//! Many shards, one ordered page.
//!
//! Asking every shard for the whole page reads the page n times over. Here each shard is asked for about its *share* of the page, in
//! whole read units, and only the shards that will run dry before the page is full are asked again, up to the last sort key that
//! can still be on the page. The merge is sans-IO: it says which pages it still needs, and is told what arrived.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use super::key::{ShardNumber, SortKey};
use super::query::Order;
use super::share::Share;
use super::spacing::Spacing;
use super::version::Version;

/// An item on its way through the merge.
#[derive(Debug, Clone, PartialEq)]
pub struct Stored<T> {
    /// Its place in the order.
    pub sort_key: SortKey,
    /// Of two copies, the higher version is the item.
    pub version: Version,
    /// The item itself.
    pub item: T,
}

/// A page that one shard should be asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardPageRequest {
    /// The shard to query.
    pub shard: ShardNumber,
    /// Start after this sort key.
    pub after: Option<SortKey>,
    /// Go no further than this sort key, itself included: what lies beyond it cannot be on the page.
    pub until: Option<SortKey>,
    /// The most items to ask for.
    pub limit: usize,
}

/// What one shard answered.
#[derive(Debug, Clone, PartialEq)]
pub struct ShardPage<T> {
    /// In the query's order.
    pub items: Vec<Stored<T>>,
    /// Where the shard's next page starts; `None` at the end of what it was asked for.
    pub next: Option<SortKey>,
}

/// Where a shard's further items come from.
#[derive(Debug)]
enum Source {
    /// It was never asked.
    Fresh,
    /// It was asked; the answer is on its way. Before that it is known up to `after`.
    Asked { after: Option<SortKey>, until: Option<SortKey> },
    /// It is known up to this place, itself included; beyond it there may be more.
    More { after: SortKey },
    /// It is known to its end.
    End,
}

#[derive(Debug)]
struct Shard<T> {
    source: Source,
    /// Its first unused item is in the heap.
    has_head: bool,
    waiting: VecDeque<Stored<T>>,
}

/// How far the order is known: up to there, no shard has an item that has not arrived.
#[derive(Debug, PartialEq)]
enum Horizon {
    Nothing,
    UpTo(SortKey),
    Everything,
}

/// Where a page that starts after a place will end, as far as that can be foreseen.
#[derive(Debug, Clone, Default)]
pub(crate) struct Forecast {
    pub(crate) spacing: Spacing,
    /// The query's own end and prefix, which no forecast may leave.
    pub(crate) end: Option<SortKey>,
    pub(crate) prefix: Option<String>,
}

impl Forecast {
    /// Whether nothing of the query lies beyond this place.
    fn ends_at(&self, order: Order, place: &SortKey) -> bool {
        self.end.as_ref().is_some_and(|end| order.compare(place, end).is_ge())
    }

    fn until(&self, order: Order, after: Option<&SortKey>, wanted: usize) -> Option<SortKey> {
        let until = self.spacing.forecast(order, after?, wanted)?;
        let inside = self.end.as_ref().is_none_or(|end| order.compare(&until, end).is_lt());
        let prefixed = self.prefix.as_ref().is_none_or(|prefix| until.to_string().starts_with(prefix.as_str()));
        (inside && prefixed).then_some(until)
    }
}

/// Merges shard pages into one page.
#[derive(Debug)]
pub struct PageMerge<T> {
    limit: usize,
    order: Order,
    start: Option<SortKey>,
    items_per_unit: f64,
    /// The most items that are shared out at a time.
    most: usize,
    forecast: Forecast,
    shards: BTreeMap<ShardNumber, Shard<T>>,
    horizon: Horizon,
    heads: BinaryHeap<Head<T>>,
    page: Vec<Stored<T>>,
    closed: bool,
}

#[derive(Debug)]
struct Head<T> {
    order: Order,
    stored: Stored<T>,
    shard: ShardNumber,
}

impl<T> PartialEq for Head<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl<T> Eq for Head<T> {}
impl<T> PartialOrd for Head<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<T> Ord for Head<T> {
    /// The greatest head is the next item of the page; of copies, the highest version comes first.
    fn cmp(&self, other: &Self) -> Ordering {
        let by_place = self.order.compare(&other.stored.sort_key, &self.stored.sort_key);
        by_place.then_with(|| self.stored.version.cmp(&other.stored.version)).then_with(|| other.shard.cmp(&self.shard))
    }
}

/// How far the page may reach, judged by what has arrived.
#[derive(Default)]
struct Reach {
    /// The last sort key that can be on the page; `None` where too little has arrived to say.
    until: Option<SortKey>,
    /// About where the page will end.
    likely: Option<SortKey>,
}

impl<T> PageMerge<T> {
    /// An empty page of at most `limit` items that starts after `start`.
    #[must_use]
    pub fn new(limit: usize, order: Order, start: Option<SortKey>) -> Self {
        Self {
            limit,
            order,
            start,
            items_per_unit: 1.0,
            most: usize::MAX,
            forecast: Forecast::default(),
            shards: BTreeMap::new(),
            horizon: Horizon::Everything,
            heads: BinaryHeap::new(),
            page: Vec::new(),
            closed: false,
        }
    }

    /// How many items the smallest amount that is billed pays for, as far as is known: requests are rounded up to it.
    #[must_use]
    pub fn with_items_per_unit(mut self, items_per_unit: f64) -> Self {
        self.items_per_unit = items_per_unit;
        self
    }

    /// Shares out at most so many items at a time, where more would not fit in memory or in the page.
    #[must_use]
    pub fn sharing_at_most(mut self, items: usize) -> Self {
        self.most = items.max(1);
        self
    }

    /// With an idea of where the page will end, so that each shard is asked for exactly its part.
    #[must_use]
    pub(crate) fn with_forecast(mut self, forecast: Forecast) -> Self {
        self.forecast = forecast;
        self
    }

    /// Takes a shard in, as far as it is new. Only before the first item was merged, so that none of its items come too late.
    pub fn add_shards(&mut self, shards: impl IntoIterator<Item = ShardNumber>) {
        debug_assert!(self.page.is_empty(), "a shard was added to a page that has begun");
        for shard in shards {
            let new = || Shard { source: Source::Fresh, has_head: false, waiting: VecDeque::new() };
            self.shards.entry(shard).or_insert_with(new);
        }
        self.look_out();
    }

    /// The shards taken in so far.
    #[must_use]
    pub fn shard_count(&self) -> usize {
        self.shards.len()
    }

    /// The pages that should be asked for now; each is asked for once.
    ///
    /// New shards are asked at once. Once all answers are in and the page is not full, so are those that it still needs.
    pub fn requests(&mut self) -> Vec<ShardPageRequest> {
        let wanted = self.limit - self.page.len();
        if self.is_full() || self.heads.peek().is_some_and(|head| self.is_known(&head.stored.sort_key)) {
            return Vec::new();
        }
        let all_in = !self.shards.values().any(|shard| matches!(shard.source, Source::Asked { .. }));
        let reach = if all_in { self.reach(wanted) } else { Reach::default() };
        let foreseen = self.forecast.until(self.order, self.start.as_ref(), wanted);
        let order = self.order;
        // Where too little has arrived to fill the page, everybody's next items are needed.
        let is_needed =
            |after: &SortKey| all_in && reach.likely.as_ref().is_none_or(|likely| order.compare(after, likely).is_lt());
        let is_asked = |shard: &&Shard<T>| match &shard.source {
            Source::Fresh => true,
            Source::More { after } => is_needed(after),
            Source::Asked { .. } | Source::End => false,
        };
        // New shards share the page with all others; what is still missing is shared by those that are asked for it.
        let askers = self.shards.values().filter(is_asked).count();
        let of = |shards| Share { wanted: wanted.min(self.most), shards, items_per_unit: self.items_per_unit };
        let (first, again) = (of(self.shards.len()), of(askers));
        let mut requests = Vec::new();
        for (number, shard) in &mut self.shards {
            let (after, until, limit) = match &shard.source {
                Source::Fresh => {
                    let limit = if foreseen.is_some() { first.bounded() } else { first.unbounded() };
                    (self.start.clone(), foreseen.clone(), limit)
                }
                Source::More { after } if is_needed(after) => {
                    (Some(after.clone()), reach.until.clone(), again.unbounded())
                }
                Source::More { .. } | Source::Asked { .. } | Source::End => continue,
            };
            shard.source = Source::Asked { after: after.clone(), until: until.clone() };
            requests.push(ShardPageRequest { shard: *number, after, until, limit });
        }
        requests
    }

    /// Takes in what a shard answered.
    pub fn supply(&mut self, number: ShardNumber, answer: ShardPage<T>) {
        let Some(shard) = self.shards.get_mut(&number) else { return };
        let Source::Asked { until, .. } = &mut shard.source else { return };
        let until = until.take();
        shard.waiting.extend(answer.items);
        // At the query's own end nothing is left to ask for, and DynamoDB refuses to start there.
        shard.source = match answer.next.or(until).filter(|place| !self.forecast.ends_at(self.order, place)) {
            Some(after) => Source::More { after },
            None => Source::End,
        };
        if !shard.has_head {
            self.raise_head(number);
        }
        self.look_out();
    }

    /// Moves items to the page until it is full, the order is not known any further, or `more` says of an item that it is the page's last.
    pub fn advance(&mut self, mut more: impl FnMut(&Stored<T>) -> bool) {
        while !self.is_full() && self.heads.peek().is_some_and(|head| self.is_known(&head.stored.sort_key)) {
            let Some(head) = self.heads.pop() else { return };
            let shard = head.shard;
            // The heap gives the highest version of a sort key first, and every shard's item of it is there: what follows with the same key is an older copy.
            if self.page.last().is_none_or(|last| last.sort_key != head.stored.sort_key) {
                self.closed = !more(&head.stored);
                self.page.push(head.stored);
            }
            if !self.raise_head(shard) {
                self.look_out();
            }
        }
    }

    /// Whether nothing more is needed: the page is full or closed, or every shard is at its end.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.is_full() || (self.heads.is_empty() && self.horizon == Horizon::Everything)
    }

    /// What the page holds so far.
    #[must_use]
    pub fn page(&self) -> &[Stored<T>] {
        &self.page
    }

    /// The page, and where the next one starts: after its last item, unless every shard is at its end.
    #[must_use]
    pub fn finish(self) -> (Vec<Stored<T>>, Option<SortKey>) {
        let last = self.page.last().map(|stored| stored.sort_key.clone());
        let copies_only = self.heads.iter().all(|head| Some(&head.stored.sort_key) == last.as_ref());
        let at_end = copies_only
            && self.shards.values().all(|shard| shard.waiting.is_empty() && matches!(shard.source, Source::End));
        let next = if at_end { None } else { last.or(self.start) };
        let next = next.filter(|place| !self.forecast.ends_at(self.order, place));
        (self.page, next)
    }

    fn is_full(&self) -> bool {
        self.closed || self.page.len() >= self.limit
    }

    fn is_known(&self, sort_key: &SortKey) -> bool {
        match &self.horizon {
            Horizon::Nothing => false,
            Horizon::UpTo(horizon) => self.order.compare(sort_key, horizon).is_le(),
            Horizon::Everything => true,
        }
    }

    /// Finds how far the order is known. A shard with an item in the heap hides nothing before that.
    fn look_out(&mut self) {
        let mut nearest = None::<&SortKey>;
        for shard in self.shards.values().filter(|shard| !shard.has_head) {
            match &shard.source {
                Source::Fresh | Source::Asked { after: None, .. } => {
                    self.horizon = Horizon::Nothing;
                    return;
                }
                Source::Asked { after: Some(after), .. } | Source::More { after } => {
                    if nearest.is_none_or(|nearest| self.order.compare(after, nearest).is_lt()) {
                        nearest = Some(after);
                    }
                }
                Source::End => {}
            }
        }
        self.horizon = nearest.map_or(Horizon::Everything, |nearest| Horizon::UpTo(nearest.clone()));
    }

    /// Raises the next item of a shard that has none in the heap; says whether there is one.
    fn raise_head(&mut self, number: ShardNumber) -> bool {
        let Some(shard) = self.shards.get_mut(&number) else { return false };
        let next = shard.waiting.pop_front();
        shard.has_head = next.is_some();
        self.heads.extend(next.map(|stored| Head { order: self.order, stored, shard: number }));
        shard.has_head
    }

    /// How far a page with `wanted` more items may reach.
    ///
    /// What has arrived of each shard covers the order up to some place. Beyond it the shard's items are missing, so an item there
    /// stands for more than itself: for n / (shards that cover its place) of n, as the placement spreads items evenly.
    fn reach(&self, wanted: usize) -> Reach {
        let mut arrived: Vec<&SortKey> = self.heads.iter().map(|head| &head.stored.sort_key).collect();
        arrived.extend(self.shards.values().flat_map(|shard| shard.waiting.iter().map(|stored| &stored.sort_key)));
        arrived.sort_unstable_by(|one, other| self.order.compare(one, other));
        arrived.dedup();
        // An older copy of the page's last item is none of the page's.
        if let Some(last) = self.page.last() {
            arrived.retain(|sort_key| **sort_key != last.sort_key);
        }
        let until = arrived.get(wanted - 1).map(|sort_key| (*sort_key).clone());
        let mut ends: Vec<&SortKey> = self
            .shards
            .values()
            .filter_map(|shard| match &shard.source {
                Source::More { after } => Some(after),
                Source::Fresh | Source::Asked { .. } | Source::End => None,
            })
            .collect();
        ends.sort_unstable_by(|one, other| self.order.compare(one, other));
        let shards = self.shards.len() as f64;
        let mut ended = 0;
        let mut count = 0.0;
        let likely = arrived.into_iter().find(|sort_key| {
            while ends.get(ended).is_some_and(|end| self.order.compare(end, sort_key) == Ordering::Less) {
                ended += 1;
            }
            count += shards / (shards - ended as f64).max(1.0);
            count >= wanted as f64
        });
        Reach { until, likely: likely.cloned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::key::{ShardCount, SortKeyType};
    use proptest::prelude::*;

    fn sort_key(i: u32) -> SortKey {
        SortKey::parse(SortKeyType::Number, &i.to_string()).unwrap()
    }

    /// A table of shards: (shard, sort key, version).
    type Table = Vec<(u32, u32, u32)>;

    fn query(table: &Table, order: Order, request: &ShardPageRequest, cap: usize) -> ShardPage<u32> {
        let mut rows: Vec<_> = table.iter().filter(|row| row.0 == request.shard.get()).collect();
        rows.sort_by_key(|row| row.1);
        if order == Order::Descending {
            rows.reverse();
        }
        let rows: Vec<_> = rows
            .into_iter()
            .filter(|row| request.until.as_ref().is_none_or(|until| order.compare(&sort_key(row.1), until).is_le()))
            .filter(|row| match (&request.after, order) {
                (None, _) => true,
                (Some(after), Order::Ascending) => sort_key(row.1) > *after,
                (Some(after), Order::Descending) => sort_key(row.1) < *after,
            })
            .collect();
        let taken = request.limit.min(cap);
        let items: Vec<_> = rows
            .iter()
            .take(taken)
            .map(|row| Stored { sort_key: sort_key(row.1), version: Version::new(u64::from(row.2), 0), item: row.2 })
            .collect();
        // As DynamoDB: a page that was cut has a next key, even where nothing follows it.
        let next = (rows.len() >= taken).then(|| items.last().map(|item| item.sort_key.clone())).flatten();
        ShardPage { items, next }
    }

    fn read_all(
        table: &Table,
        shards: u32,
        order: Order,
        limit: usize,
        cap: usize,
        per_unit: f64,
    ) -> Vec<(SortKey, u32)> {
        let (mut all, mut start, mut spacing) = (Vec::new(), None, Spacing::default());
        loop {
            let forecast = Forecast { spacing: spacing.clone(), ..Forecast::default() };
            let began_after = start.clone();
            let mut merge = PageMerge::new(limit, order, start).with_items_per_unit(per_unit).with_forecast(forecast);
            merge.add_shards(ShardCount::new(shards).unwrap().shards());
            while !merge.is_complete() {
                for request in merge.requests() {
                    let answer = query(table, order, &request, cap);
                    merge.supply(request.shard, answer);
                }
                merge.advance(|_| true);
            }
            let (page, next) = merge.finish();
            assert!(page.len() <= limit);
            if let (Some(after), Some(last)) = (began_after, page.last()) {
                spacing.learn(&after, &last.sort_key, page.len());
            }
            all.extend(page.into_iter().map(|stored| (stored.sort_key, stored.item)));
            match next {
                Some(next) => start = Some(next),
                None => return all,
            }
        }
    }

    proptest! {
        #[test]
        fn paging_by_any_limit_yields_every_item_once_in_order_and_newest(
            rows in prop_oneof![
                proptest::collection::vec((1u32..8, 0u32..200, 1u32..1_000), 0..300),
                // Evenly spaced, so that pages are foreseen.
                proptest::collection::vec(1u32..8, 0..300)
                    .prop_map(|shards| shards.into_iter().zip(0..).map(|(shard, key)| (shard, 3 * key, 1)).collect()),
            ],
            limit in 1usize..50, cap in 1usize..40, descending in any::<bool>(),
            per_unit in 0.2f64..30.0,
        ) {
            // One copy of a sort key per shard, as a table has.
            let table: Table = rows.into_iter().map(|(s, k, v)| ((s, k), v)).collect::<BTreeMap<_, _>>()
                .into_iter().map(|((s, k), v)| (s, k, v)).collect();
            let mut newest = BTreeMap::new();
            for (_, key, version) in &table {
                let entry = newest.entry(*key).or_insert(*version);
                *entry = (*entry).max(*version);
            }
            let mut expected: Vec<_> = newest.into_iter().map(|(key, version)| (sort_key(key), version)).collect();
            let order = if descending { Order::Descending } else { Order::Ascending };
            if descending {
                expected.reverse();
            }
            prop_assert_eq!(read_all(&table, 8, order, limit, cap, per_unit), expected);
        }
    }

    #[test]
    fn a_shard_is_asked_for_its_share_and_not_for_the_page() {
        let mut merge = PageMerge::<()>::new(100, Order::Ascending, None).with_items_per_unit(4.0);
        merge.add_shards(ShardCount::new(16).unwrap().shards());
        let asked: Vec<_> = merge.requests().iter().map(|request| request.limit).collect();
        assert_eq!(asked, vec![8; 16], "7.25 in whole units of four");
        assert!(merge.requests().is_empty(), "each page is asked for once");
    }

    #[test]
    fn nothing_is_asked_for_beyond_the_querys_own_end() {
        // Each shard's last item in the range is cut off with a place to go on from, as DynamoDB does.
        let table: Table = (0..8).map(|i| (i % 4 + 1, i, 1)).collect();
        let forecast = Forecast { end: Some(sort_key(7)), ..Forecast::default() };
        let mut merge = PageMerge::new(8, Order::Ascending, None).with_items_per_unit(2.0).with_forecast(forecast);
        merge.add_shards(ShardCount::new(4).unwrap().shards());
        while !merge.is_complete() {
            for request in merge.requests() {
                assert!(request.after.as_ref().is_none_or(|after| *after < sort_key(7)));
                let answer = query(&table, Order::Ascending, &request, 2);
                merge.supply(request.shard, answer);
            }
            merge.advance(|_| true);
        }
        let (page, next) = merge.finish();
        assert_eq!((page.len(), next), (8, None));
    }

    #[test]
    fn a_page_that_ends_early_goes_on_where_it_stopped() {
        let table: Table = (0..40).map(|i| (i % 4 + 1, i, 1)).collect();
        let mut merge = PageMerge::new(20, Order::Ascending, Some(sort_key(3)));
        merge.add_shards(ShardCount::new(4).unwrap().shards());
        assert_eq!(PageMerge::<u32>::new(20, Order::Ascending, Some(sort_key(3))).finish().1, None);
        for request in merge.requests() {
            let answer = query(&table, Order::Ascending, &request, 2);
            merge.supply(request.shard, answer);
        }
        merge.advance(|_| true);
        let (page, next) = merge.finish();
        assert_eq!(page.len(), 5);
        assert_eq!(next, Some(page[4].sort_key.clone()));
    }
}
