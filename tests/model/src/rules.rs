//! The rules of the protocol, each of which can be weakened.

/// Which rules are kept. [`Rules::default`] keeps them all.
///
/// A rule is weakened from outside: the driver passes the product's code something untrue, or changes what it returns. The code itself
/// is always the code that ships.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Between close and open, every view from before is waited out.
    pub wait_before_open: bool,
    /// That wait counts from the response to the close, not from sending it.
    pub wait_from_response: bool,
    /// Who takes a closing over closes again, and waits anew; nobody opens what he finds.
    pub closes_again: bool,
    /// A view's age counts from before its metadata was requested, not from the response.
    pub aged_from_asking: bool,
    /// Every update of the metadata is conditional on the generation.
    pub generation: bool,
    /// Writers do not write while the key's width is changing.
    pub writers_pause: bool,
    /// A write is acknowledged only under the lease, or once a newer view has shown the same era.
    pub lease_at_acknowledgement: bool,
    /// The era is the first part of a version.
    pub era_first: bool,
    /// A delete of an item with several places leaves a tombstone.
    pub tombstones: bool,
    /// A tombstone keeps the write id of what it hides.
    pub tombstones_keep_write_id: bool,
    /// A create-only write reads all places first.
    pub create_reads: bool,
    /// A repetition that is refused does not go above what stands.
    pub refused_repetition_is_unknown: bool,
    /// A delete that got no response is not repeated.
    pub deletes_once: bool,
    /// The home under the width to come is a place.
    pub closing_is_place: bool,
    /// The homes under the widths of the history are places.
    pub history_is_place: bool,
    /// In a table that is adopted, the bare key is a place.
    pub bare_is_place: bool,
    /// A read whose view has run out ends under a newer one.
    pub read_end: bool,
    /// A query ignores copies on shards that are no place of their item.
    pub query_ignores_misplaced: bool,
    /// A drain waits for reads between copying an item and deleting the original.
    pub wait_for_reads: bool,
    /// A drain of which a move may be under way waits for signed requests before its last look at the old places.
    pub wait_for_signatures: bool,
    /// A delete reads first only once the writes of the era before, and a drain that was cut off, are waited out.
    pub wait_before_a_look: bool,
    /// A drain waits before it begins: for the requests of one that was cut off, and for the writes of the era before.
    pub wait_before_a_drain: bool,
    /// Between the end of a drain and the deletion of its tombstones, every view from before is waited out.
    pub wait_before_purging: bool,
    /// A move that had no response may be under way, also once its repetition has had one.
    pub unanswered_is_in_doubt: bool,
    /// An actor that takes a drain over makes a pass of its own before it deletes.
    pub own_pass: bool,
    /// A drain deletes a copy only as it was seen.
    pub delete_as_seen: bool,
    /// A drain's moves are sent under a lease.
    pub moves_keep_lease: bool,
    /// Nobody goes on after a change before every copy of the page has it.
    pub all_copies_first: bool,
    /// The copies of a page are counted after each change.
    pub copies_counted_anew: bool,
    /// An entry of a page changes to a higher generation only.
    pub entries_go_up: bool,
    /// An entry is never removed, not even one that says one shard again.
    pub entries_stay: bool,
    /// A page that is not complete is not read as one on which nothing has grown.
    pub missing_is_not_empty: bool,
    /// A response that comes after the lease does not count by a view in which the key is closing: the page may be behind an open.
    pub closing_confirms_nothing: bool,
    /// An update of what was read needs home unchanged since.
    pub update_needs_home_unchanged: bool,
    /// An update reads all places.
    pub update_reads_all_places: bool,
    /// An update in place needs a copy of the present era, where an item has several places.
    pub additions_need_their_era: bool,
    /// An update that may be repeated is applied only where the item does not know it.
    pub additions_are_noted: bool,
    /// A delete of a key that is not listed does not read first: it may be that the key is migrated.
    pub unlisted_are_buried: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            wait_before_open: true,
            wait_from_response: true,
            closes_again: true,
            aged_from_asking: true,
            generation: true,
            writers_pause: true,
            lease_at_acknowledgement: true,
            era_first: true,
            tombstones: true,
            tombstones_keep_write_id: true,
            create_reads: true,
            refused_repetition_is_unknown: true,
            deletes_once: true,
            closing_is_place: true,
            history_is_place: true,
            bare_is_place: true,
            read_end: true,
            query_ignores_misplaced: true,
            wait_for_reads: true,
            wait_for_signatures: true,
            wait_before_a_look: true,
            wait_before_a_drain: true,
            wait_before_purging: true,
            unanswered_is_in_doubt: true,
            own_pass: true,
            delete_as_seen: true,
            moves_keep_lease: true,
            all_copies_first: true,
            copies_counted_anew: true,
            entries_go_up: true,
            entries_stay: true,
            missing_is_not_empty: true,
            closing_confirms_nothing: true,
            update_needs_home_unchanged: true,
            update_reads_all_places: true,
            additions_need_their_era: true,
            additions_are_noted: true,
            unlisted_are_buried: true,
        }
    }
}
