//! The rules of the protocol, each of which can be weakened.

/// Each rule, and whether it is weakened; by default, none is.
///
/// The driver weakens a rule from outside: it passes false inputs to the product's code, or changes
/// the code's output. The code itself is always the code that ships.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weakened {
    /// Between close and open, an actor waits until every earlier view has expired.
    pub wait_before_open: bool,
    /// That wait counts from the response to the close, not from its sending.
    pub wait_from_response: bool,
    /// An actor that takes a closing over closes again and waits again. It never opens another
    /// actor's closing.
    pub closes_again: bool,
    /// A view's age counts from before its metadata was requested, not from the response.
    pub aged_from_asking: bool,
    /// Every update of the metadata is conditional on the generation.
    pub generation: bool,
    /// Writers do not write while the key's width is changing.
    pub writers_pause: bool,
    /// A write is acknowledged only under the lease, or after a newer view has shown the same era.
    pub lease_at_acknowledgement: bool,
    /// The era is the first part of a version.
    pub era_first: bool,
    /// A delete of an item with several places leaves a tombstone.
    pub tombstones: bool,
    /// A tombstone keeps the write id of what it hides.
    pub tombstones_keep_write_id: bool,
    /// A create-only write reads all places first.
    pub create_reads: bool,
    /// A rejected repetition does not get a version above the stored one.
    pub refused_repetition_is_unknown: bool,
    /// A delete without a response is not repeated.
    pub deletes_once: bool,
    /// The home under the next width is a place.
    pub closing_is_place: bool,
    /// The homes under all widths of the history are places.
    pub history_is_place: bool,
    /// A key is written by the product, and grows, once a pattern counts that arms it.
    pub growth_waits: bool,
    /// A pattern gets its time once every process can see it.
    pub counts_once_visible: bool,
    /// A process relies on patterns for a lease from before it read them.
    pub patterns_are_leased: bool,
    /// A pattern is removed only before it counts.
    pub disarmed_before_it_counts: bool,
    /// An item of another program goes home in the lowest version.
    pub adopted_are_lowest: bool,
    /// A read whose view has expired ends under a newer one.
    pub read_end: bool,
    /// A query ignores misplaced copies: those on a shard that is no place of their item.
    pub query_ignores_misplaced: bool,
    /// A drain waits for reads between copying an item and deleting the original.
    pub wait_for_reads: bool,
    /// A drain with a move that may be in flight waits for signed requests before its last read of
    /// the old places.
    pub wait_for_signatures: bool,
    /// A delete reads first only after the wait for writes of the previous era and for an
    /// interrupted drain.
    pub wait_before_a_look: bool,
    /// A drain waits before it begins, for the requests of an interrupted drain and for the writes
    /// of the previous era.
    pub wait_before_a_drain: bool,
    /// Tombstones are deleted only once no duplicate of an earlier request can arrive, and all
    /// earlier reads have ended.
    pub tombstones_grow_old: bool,
    /// An item that a repetition stored says until when a duplicate may arrive. Copies keep the
    /// mark, and a deletion leaves a tombstone.
    pub repetitions_are_marked: bool,
    /// After a settle, deletions leave tombstones for as long as duplicates of earlier updates may
    /// arrive.
    pub deletions_after_a_settle_stay: bool,
    /// A move without a response may still be in flight, even after its repetition has a response.
    pub unanswered_is_ambiguous: bool,
    /// An actor that takes a drain over makes its own pass before it deletes.
    pub own_pass: bool,
    /// A drain's moves are sent under a lease.
    pub moves_keep_lease: bool,
    /// An actor goes on after a change only when every copy of the page has it.
    pub all_copies_first: bool,
    /// The copies of a page are counted after each change.
    pub copies_counted_again: bool,
    /// A page is written until every copy of it says that its entries are elsewhere.
    pub moved_before_unwritten: bool,
    /// An entry of a page changes only to a higher generation.
    pub entries_go_up: bool,
    /// An entry is never removed, even when the key is back to one shard.
    pub entries_stay: bool,
    /// An incomplete page does not mean that no key has grown.
    pub missing_is_not_empty: bool,
    /// A response after the lease does not count under a view in which the key is closing, because
    /// the page may be behind an open.
    pub closing_confirms_nothing: bool,
    /// A read-modify-write update requires that the copy at home is unchanged.
    pub update_needs_home_unchanged: bool,
    /// An update reads all places.
    pub update_reads_all_places: bool,
    /// An update in place of an item with several places requires a copy of the current era.
    pub additions_need_their_era: bool,
    /// A repeatable update is applied only if the item does not list it as applied.
    pub additions_are_noted: bool,
    /// An update with an expression requires that there is no tombstone.
    pub expressions_refuse_tombstones: bool,
    /// A deletion with an expression has the protocol's part of the condition.
    pub expressed_deletions_have_base: bool,
    /// A pull has a version of its own, below the one of the write that follows.
    pub pulls_have_own_version: bool,
    /// A pull requires that the copy at home is as it was read.
    pub pulls_need_home_unchanged: bool,
    /// With several places, the first attempt of a write with an expression requires an item of the
    /// current era.
    pub expressions_need_their_era: bool,
    /// An update with an expression of an item of an earlier era gives it a version of the current
    /// one.
    pub expressions_leave_earlier_eras: bool,
}
