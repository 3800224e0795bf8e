//! The names of the attributes that the product stores. Those in items are short, because each item
//! pays for them.

/// The prefix of those in items. No other program uses it.
pub const RESERVED_PREFIX: &str = "_sh:";
/// The logical key, on every shard whose stored key is not the key itself.
pub const LOGICAL_KEY: &str = "_sh:k";
pub const VERSION: &str = "_sh:v";
/// Of the create-only write that stored the item. A tombstone keeps it.
pub const WRITE_ID: &str = "_sh:i";
/// The write width under which the item was placed, if not that of a key without metadata.
pub const WIDTH: &str = "_sh:w";
/// True on a tombstone.
pub const DELETED: &str = "_sh:d";
/// The younger generation of the updates that were recently applied.
pub const APPLIED: &str = "_sh:a";
/// The older generation, and the begin of both in epoch milliseconds, as a map.
pub const APPLIED_BEFORE: &str = "_sh:b";
/// The members of that map.
pub const BEGAN: &str = "began";
pub const KNOWN_SINCE: &str = "known_since";
pub const IDS: &str = "ids";
/// See [`Copy::late_until`](super::copies::Copy::late_until).
pub const LATE_UNTIL: &str = "_sh:l";

/// A constant for each attribute, and the list of all.
macro_rules! attribute_names {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        $($(#[$doc])* pub const $name: &str = $text;)*
        /// The attributes of the metadata table besides its key.
        pub const METADATA_ATTRIBUTES: &[&str] = &[$($name),*];
    };
}

attribute_names! {
    NUMBER_OF_SHARDS = "number_of_shards";
    READ_SHARDS = "read_shards";
    LAST_UPDATED = "last_updated";
    SHARD_HISTORY = "shard_history";
    ERA = "era";
    GENERATION = "generation";
    /// The width of the next era, while writers wait for it.
    CLOSING = "closing";
    DRAINING = "draining";
    /// Its form: docs/protocol.md, "Draining".
    DRAIN = "drain";
    DRAIN_STOPPED_AT = "drain_stopped_at";
    DRAINED_AT = "drained_at";
    SHRUNK_AT = "shrunk_at";
    UNMOVABLE_AT = "unmovable_at";
    SETTLED = "settled";
    /// Tombstones of a settled key are still to be removed.
    UNPURGED = "unpurged";
    REJECTED_PERCENT = "rejected_percent";
    FRUITLESS_GROWTHS = "fruitless_growths";
    LOAD_MINUTE = "load_minute";
    LOAD_UNITS = "load_units";
    LOAD_PER_SHARD = "load_per_shard";
    BUSY_AT = "busy_at";
    /// From here to `REBUILDING` in the table item: docs/protocol.md, "The directory".
    WRITES = "writes";
    PROTOCOL = "protocol";
    LAYOUT = "layout";
    PLACEMENT = "placement";
    KEYS = "keys";
    ARMED = "armed";
    PAGES = "pages";
    NEXT_PAGES = "next_pages";
    /// Also in a complete page.
    SEED = "seed";
    /// In a page whose entries are on a larger directory's pages: their number.
    MOVED_TO = "moved_to";
    /// Also in a page: how many copies may be read.
    COPIES = "copies";
    DIRECTORY_MADE = "directory_made";
    REBUILDING = "rebuilding";
    /// In a page, as `"write_units read_units"`.
    WARM_THROUGHPUT = "warm_throughput";
    /// From here on in an item of evidence. When the pool began, in milliseconds since 1970.
    BEGUN = "begun";
    ATTEMPTS = "attempts";
    THROTTLED = "throttled";
    ACCEPTED = "accepted";
    /// First attempts, by number.
    FIRST_WRITES = "first_writes";
    /// Of all throttled attempts.
    THROTTLES = "throttles";
    /// Write units a second of the instances that have added to it.
    RATE = "rate";
    /// Hashes of throttled items, and how many were added.
    ITEMS = "items";
    ADDED_ITEMS = "added_items";
    /// Until when the table counts as short of partitions for the key, in milliseconds since 1970.
    SHORT_UNTIL = "short_until";
    /// Of the key when the shortage was found.
    SHORT_GENERATION = "short_generation";
}

/// The digest of the key follows.
pub const ENTRY_PREFIX: &str = "key:";
