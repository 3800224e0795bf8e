//! Pages while the key grows between them: of any limit, order and range, they return every item
//! that exists throughout once and in order.

use sharding::Order;
use sharding::internal::PageQuery;
use system_tests::{numbered, soon, sort_key};

use crate::one_key::{Fixture, fixture, key};

/// Reads all pages of a query. Between them, the key grows, and items with odd numbers are stored.
async fn read(fixture: &Fixture, mut query: PageQuery) -> Vec<String> {
    let (mut seen, mut widths) = (Vec::new(), [4, 9, 20].into_iter());
    let odd: Vec<_> = numbered(61..120).step_by(2).collect();
    for odd in odd.iter().cycle().take(200) {
        let page = fixture.table.query(&query, soon()).await.expect("a page");
        assert!(page.items.len() <= query.limit, "{query:?}");
        seen.extend(page.items.iter().map(|item| item.sort_key.to_string()));
        query.after = page.next;
        if query.after.is_none() {
            return seen;
        }
        fixture.store([odd.clone()]).await;
        if let Some(width) = widths.next() {
            fixture.grow(width).await;
        }
    }
    panic!("{query:?} does not end");
}

#[tokio::test(start_paused = true)]
async fn every_lasting_item_is_returned_once_and_in_order() {
    let all = || PageQuery::new(key());
    let between =
        PageQuery { from: Some(sort_key("order-0030")), to: Some(sort_key("order-0100")), ..all() };
    let prefixed = PageQuery { prefix: Some("order-004".to_owned()), ..all() };
    for (range, inside) in [(all(), 0..120), (between, 30..101), (prefixed, 40..50)] {
        for (limit, consistent) in [(2, true), (7, false), (25, true)] {
            for order in [Order::Ascending, Order::Descending] {
                let query = PageQuery { limit, consistent, order, ..range.clone() };
                let fixture = fixture(|_| {}).await;
                // Some are at their home under width 1, and the others under width 3.
                fixture.store(numbered(0..40).step_by(2)).await;
                fixture.grow(3).await;
                fixture.store(numbered(40..120).step_by(2)).await;
                let mut seen = read(&fixture, query.clone()).await;
                if order == Order::Descending {
                    seen.reverse();
                }
                assert!(seen.is_sorted_by(|one, next| one < next), "{query:?}: {seen:?}");
                let may_come: Vec<_> = numbered(inside.clone()).collect();
                assert!(seen.iter().all(|text| may_come.contains(text)), "{query:?}: {seen:?}");
                let missed = may_come.iter().step_by(2).find(|text| !seen.contains(text));
                assert_eq!(missed, None, "{query:?}");
            }
        }
    }
}
