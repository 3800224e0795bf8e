//! Many shards, one ordered page.
//!
//! Asking every shard for the whole page reads the page n times over. Here each shard is asked for its *share* of the page plus
//! some slack, and only a shard that runs dry before the page is full is asked again. The merge is sans-IO: it says which pages
//! it still needs, and is told what arrived.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use super::key::{ShardNumber, SortKey};
use super::query::Order;
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
    /// The most items to ask for.
    pub limit: usize,
}

/// What one shard answered.
#[derive(Debug, Clone, PartialEq)]
pub struct ShardPage<T> {
    /// In the query's order.
    pub items: Vec<Stored<T>>,
    /// Where the shard's next page starts; `None` at its end.
    pub next: Option<SortKey>,
}

#[derive(Debug)]
enum ShardState {
    /// Not asked yet, or asked and all that came is used up.
    Dry { after: Option<SortKey> },
    /// Asked; the answer is on its way.
    Asked,
    /// Its first unused item is in the heap; `next` as the shard said.
    Ready { next: Option<SortKey> },
    /// At its end.
    Exhausted,
}

#[derive(Debug)]
struct Shard<T> {
    state: ShardState,
    waiting: VecDeque<Stored<T>>,
}

/// Merges shard pages into one page.
#[derive(Debug)]
pub struct PageMerge<T> {
    limit: usize,
    order: Order,
    start: Option<SortKey>,
    shards: BTreeMap<ShardNumber, Shard<T>>,
    /// How many shards are dry or asked: while there is one, its next item may be the next of the page.
    unread: usize,
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
        let by_key = self.stored.sort_key.cmp(&other.stored.sort_key);
        let by_place = match self.order {
            Order::Ascending => by_key.reverse(),
            Order::Descending => by_key,
        };
        by_place.then_with(|| self.stored.version.cmp(&other.stored.version)).then_with(|| other.shard.cmp(&self.shard))
    }
}

impl<T> PageMerge<T> {
    /// An empty page of at most `limit` items that starts after `start`.
    #[must_use]
    pub fn new(limit: usize, order: Order, start: Option<SortKey>) -> Self {
        Self {
            limit,
            order,
            start,
            shards: BTreeMap::new(),
            unread: 0,
            heads: BinaryHeap::new(),
            page: Vec::new(),
            closed: false,
        }
    }

    /// Takes a shard in, as far as it is new. Only before the first item was merged, so that none of its items come too late.
    pub fn add_shards(&mut self, shards: impl IntoIterator<Item = ShardNumber>) {
        debug_assert!(self.page.is_empty(), "a shard was added to a page that has begun");
        for shard in shards {
            self.shards.entry(shard).or_insert_with(|| {
                self.unread += 1;
                Shard { state: ShardState::Dry { after: self.start.clone() }, waiting: VecDeque::new() }
            });
        }
    }

    /// The shards taken in so far.
    #[must_use]
    pub fn shard_count(&self) -> usize {
        self.shards.len()
    }

    /// The pages that are needed before the merge can go on; each is asked for once.
    pub fn requests(&mut self) -> Vec<ShardPageRequest> {
        let limit = share(self.limit - self.page.len(), self.shards.len());
        let mut requests = Vec::new();
        if self.is_full() {
            return requests;
        }
        for (number, shard) in &mut self.shards {
            if let ShardState::Dry { after } = &mut shard.state {
                requests.push(ShardPageRequest { shard: *number, after: after.take(), limit });
                shard.state = ShardState::Asked;
            }
        }
        requests
    }

    /// Takes in what a shard answered.
    pub fn supply(&mut self, number: ShardNumber, answer: ShardPage<T>) {
        if let Some(shard) = self.shards.get_mut(&number)
            && matches!(shard.state, ShardState::Asked)
        {
            shard.waiting.extend(answer.items);
            shard.state = ShardState::Ready { next: answer.next };
            self.unread -= 1;
            self.raise_head(number);
        }
    }

    /// Moves items to the page until it is full, a shard has run dry, or `more` says of an item that it is the page's last.
    pub fn advance(&mut self, mut more: impl FnMut(&Stored<T>) -> bool) {
        while !self.is_full() && self.unread == 0 {
            let Some(head) = self.heads.pop() else { return };
            let shard = head.shard;
            // The heap gives the highest version of a sort key first, and every shard's head is in it: what follows with the same key is an older copy.
            if self.page.last().is_none_or(|last| last.sort_key != head.stored.sort_key) {
                self.closed = !more(&head.stored);
                self.page.push(head.stored);
            }
            self.raise_head(shard);
        }
    }

    /// Whether nothing more is needed: the page is full or closed, or every shard is at its end.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.is_full() || self.shards.values().all(|shard| matches!(shard.state, ShardState::Exhausted))
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
            && self.shards.values().all(|shard| {
                shard.waiting.is_empty()
                    && matches!(shard.state, ShardState::Exhausted | ShardState::Ready { next: None })
            });
        let next = if at_end { None } else { last.or(self.start) };
        (self.page, next)
    }

    fn is_full(&self) -> bool {
        self.closed || self.page.len() >= self.limit
    }

    fn raise_head(&mut self, number: ShardNumber) {
        let Some(shard) = self.shards.get_mut(&number) else { return };
        match shard.waiting.pop_front() {
            Some(stored) => self.heads.push(Head { order: self.order, stored, shard: number }),
            None => {
                if let ShardState::Ready { next } = &mut shard.state {
                    shard.state = match next.take() {
                        Some(after) => {
                            self.unread += 1;
                            ShardState::Dry { after: Some(after) }
                        }
                        None => ShardState::Exhausted,
                    };
                }
            }
        }
    }
}

/// How many items to ask one of `shards` shards for, when `wanted` are wanted in all.
///
/// A hash spreads the items binomially, so a shard's part is about `wanted / shards`, give or take its square root. Two square
/// roots of slack make a second question rare, and cost less than it.
fn share(wanted: usize, shards: usize) -> usize {
    if shards <= 1 {
        return wanted.max(1);
    }
    let mean = wanted as f64 / shards as f64;
    let ask = (mean + 2.0 * mean.sqrt()).ceil() as usize;
    ask.clamp(1, wanted.max(1))
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

    fn read_all(table: &Table, shards: u32, order: Order, limit: usize, cap: usize) -> Vec<(SortKey, u32)> {
        let (mut all, mut start) = (Vec::new(), None);
        loop {
            let mut merge = PageMerge::new(limit, order, start);
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
            rows in proptest::collection::vec((1u32..8, 0u32..200, 1u32..1_000), 0..300),
            limit in 1usize..50, cap in 1usize..40, descending in any::<bool>(),
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
            prop_assert_eq!(read_all(&table, 8, order, limit, cap), expected);
        }
    }

    #[test]
    fn a_shard_is_asked_for_its_share_and_not_for_the_page() {
        let mut merge = PageMerge::<()>::new(100, Order::Ascending, None);
        merge.add_shards(ShardCount::new(16).unwrap().shards());
        let asked: Vec<_> = merge.requests().iter().map(|request| request.limit).collect();
        assert_eq!(asked, vec![12; 16]);
        assert!(merge.requests().is_empty(), "each page is asked for once");
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
