//! Pages forwards and backwards: the page at a position, and the positions of its neighbours.

use crate::engine::error::ReadError;
use crate::engine::read::Page;
use crate::engine::{Deadline, TableEngine};
use crate::values::cursor::Position;
use crate::values::key::SortKey;
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
        let forwards = |after: Option<SortKey>| PageQuery { after, ..query.clone() };
        match position {
            None => {
                let page = self.query(query, deadline).await?;
                Ok(PageAt { page, is_reversed: false, is_first: query.after.is_none() })
            }
            Some(Position::First) => {
                let page = self.query(&forwards(None), deadline).await?;
                Ok(PageAt { page, is_reversed: false, is_first: true })
            }
            Some(Position::After(after)) => {
                let page = self.query(&forwards(Some(after)), deadline).await?;
                Ok(PageAt { page, is_reversed: false, is_first: false })
            }
            Some(Position::Before(before)) => self.page_before(query, Some(before), deadline).await,
            Some(Position::Last) => self.page_before(query, None, deadline).await,
        }
    }

    async fn page_before(
        &self,
        query: &PageQuery,
        before: Option<SortKey>,
        deadline: Deadline,
    ) -> Result<PageAt, ReadError> {
        let order = query.order.reversed();
        let mut back = PageQuery { after: before, order, ..query.clone() };
        loop {
            let page = self.query(&back, deadline).await?;
            if page.items.is_empty() && page.next.is_some() {
                back.after = page.next;
                continue;
            }
            return Ok(PageAt { page, is_reversed: true, is_first: false });
        }
    }
}

impl PageAt {
    /// The positions of the next page and of the previous one, in the query's order.
    #[must_use]
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
