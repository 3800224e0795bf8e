//! Items as they are without the product: for keys that are disarmed.

use crate::protocol::names::{
    APPLIED, APPLIED_BEFORE, DELETED, LATE_UNTIL, LOGICAL_KEY, VERSION, WIDTH, WRITE_ID,
};
use crate::table::attributes::number;
use crate::table::condition::Expression;
use crate::table::error::TableError;
use crate::table::scan::ScannedItem;
use crate::table::{Table, Tables};

const OURS: [&str; 8] =
    [APPLIED, APPLIED_BEFORE, DELETED, LATE_UNTIL, LOGICAL_KEY, VERSION, WIDTH, WRITE_ID];

impl Tables {
    /// Removes the product's attributes from an item, or the item if it is a tombstone. It may be
    /// repeated. [`TableError::ConditionFailed`] if the item was changed since it was read.
    pub(crate) async fn make_plain(&self, item: &ScannedItem) -> Result<(), TableError> {
        let key = self.key(item.stored_key.clone(), &item.sort_key);
        let as_read = if item.is_tombstone {
            "attribute_not_exists(#p) OR #v = :v"
        } else {
            "attribute_exists(#p) AND (attribute_not_exists(#v) OR #v = :v)"
        };
        let as_read = Expression::of(as_read)
            .name("#p", &self.config.partition_key_name)
            .name("#v", VERSION)
            .value(":v", number(item.version));
        if item.is_tombstone {
            let (condition, names, values) = as_read.into_parts();
            let delete = self
                .client
                .delete_item()
                .table_name(&self.config.table_name)
                .set_key(Some(key))
                .condition_expression(condition)
                .set_expression_attribute_names(Some(names))
                .set_expression_attribute_values(values);
            return self.ask(Table::Main, delete.send()).await.map(drop);
        }
        let (update, as_read) = as_read.update(OURS.map(|name| (name, None)));
        let update = self.update(Table::Main, key, update, as_read);
        self.ask(Table::Main, update.send()).await.map(drop)
    }
}
