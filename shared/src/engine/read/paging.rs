//! Pages forwards and backwards: the page at a position, and the positions of its neighbours.

use crate::engine::error::ReadError;
use crate::engine::read::Page;
use crate::engine::{Deadline, TableEngine};
use crate::values::cursor::Position;
use crate::values::query::PageQuery;

/// The page of a query at a position.
#[derive(Debug, Clone, PartialEq)]
pub struct PageAt {
    /// The items as they were read: a page that ends before a position is read in reverse.
    pub page: Page,
    /// The page was read in reverse.
    pub is_reversed: bool,
    is_first: bool,
}

impl TableEngine {
    /// Reads the page at a position: the first page without one. A page that ends before a sort key
    /// is empty only if there are no items before that.
    pub async fn page_at(
        &self,
        query: &PageQuery,
        position: Option<Position>,
        deadline: Deadline,
    ) -> Result<PageAt, ReadError> {
        let (after, is_reversed) = match position {
            None => (query.after.clone(), false),
            Some(Position::First) => (None, false),
            Some(Position::After(after)) => (Some(after), false),
            Some(Position::Before(before)) => (Some(before), true),
            Some(Position::Last) => (None, true),
        };
        let is_first = !is_reversed && after.is_none();
        let order = if is_reversed { query.order.reversed() } else { query.order };
        let mut query = PageQuery { after, order, ..query.clone() };
        loop {
            let page = self.query(&query, deadline).await?;
            if is_reversed && page.items.is_empty() && page.next.is_some() {
                query.after = page.next;
                continue;
            }
            return Ok(PageAt { page, is_reversed, is_first });
        }
    }
}

impl PageAt {
    /// The positions of the next page and of the previous one, in the query's order.
    pub fn neighbours(&self) -> (Option<Position>, Option<Position>) {
        let first = self.page.items.first().map(|item| item.sort_key.clone());
        let further = self.page.next.clone();
        if self.is_reversed {
            // An empty page before all items is followed by the first page.
            let next = first.map_or(Position::First, Position::After);
            (Some(next), further.map(Position::Before))
        } else {
            // An empty page after all items is preceded by the last page.
            let back = first.map_or(Position::Last, Position::Before);
            (further.map(Position::After), (!self.is_first).then_some(back))
        }
    }
}
