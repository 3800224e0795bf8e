//! The rules of the protocol, each of which can be weakened.

/// Declares the rules. By default, all of them are kept.
macro_rules! rules {
    ($($(#[doc = $doc:literal])+ $rule:ident,)+) => {
        /// The rules that are kept. [`Rules::default`] keeps all of them.
        ///
        /// The driver weakens a rule from outside: it passes false inputs to the product's code, or
        /// changes the code's output. The code itself is always the code that ships.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct Rules {
            $($(#[doc = $doc])+ pub $rule: bool,)+
        }

        impl Default for Rules {
            fn default() -> Self {
                Self { $($rule: true,)+ }
            }
        }
    };
}

rules! {
    /// Between close and open, an actor waits until every earlier view has expired.
    wait_before_open,
    /// That wait counts from the response to the close, not from its sending.
    wait_from_response,
    /// An actor that takes a closing over closes again and waits again. It never opens another
    /// actor's closing.
    closes_again,
    /// A view's age counts from before its metadata was requested, not from the response.
    aged_from_asking,
    /// Every update of the metadata is conditional on the generation.
    generation,
    /// Writers do not write while the key's width is changing.
    writers_pause,
    /// A write is acknowledged only under the lease, or after a newer view has shown the same era.
    lease_at_acknowledgement,
    /// The era is the first part of a version.
    era_first,
    /// A delete of an item with several places leaves a tombstone.
    tombstones,
    /// A tombstone keeps the write id of what it hides.
    tombstones_keep_write_id,
    /// A create-only write reads all places first.
    create_reads,
    /// A rejected repetition does not get a version above the stored one.
    refused_repetition_is_unknown,
    /// A delete without a response is not repeated.
    deletes_once,
    /// The home under the next width is a place.
    closing_is_place,
    /// The homes under all widths of the history are places.
    history_is_place,
    /// A key is written by the product, and grows, once a pattern counts that arms it.
    growth_waits,
    /// A pattern gets its time once every process can see it.
    counts_once_visible,
    /// A process relies on patterns for a lease from before it read them.
    patterns_are_leased,
    /// A pattern is removed only before it counts.
    disarmed_before_it_counts,
    /// An item of another program goes home in the lowest version.
    adopted_are_lowest,
    /// A read whose view has expired ends under a newer one.
    read_end,
    /// A query ignores misplaced copies: those on a shard that is no place of their item.
    query_ignores_misplaced,
    /// A drain waits for reads between copying an item and deleting the original.
    wait_for_reads,
    /// A drain with a move that may be in flight waits for signed requests before its last read of
    /// the old places.
    wait_for_signatures,
    /// A delete reads first only after the wait for writes of the previous era and for an
    /// interrupted drain.
    wait_before_a_look,
    /// A drain waits before it begins, for the requests of an interrupted drain and for the writes
    /// of the previous era.
    wait_before_a_drain,
    /// Tombstones are deleted only once no duplicate of an earlier request can arrive, and all
    /// earlier reads have ended.
    tombstones_grow_old,
    /// An item that a repetition stored says until when a duplicate may arrive. Copies keep the
    /// mark, and a deletion leaves a tombstone.
    repetitions_are_marked,
    /// After a settle, deletions leave tombstones for as long as duplicates of earlier updates may
    /// arrive.
    deletions_after_a_settle_stay,
    /// A move without a response may still be in flight, even after its repetition has a response.
    unanswered_is_ambiguous,
    /// An actor that takes a drain over makes its own pass before it deletes.
    own_pass,
    /// A drain's moves are sent under a lease.
    moves_keep_lease,
    /// An actor goes on after a change only when every copy of the page has it.
    all_copies_first,
    /// The copies of a page are counted after each change.
    copies_counted_again,
    /// A page is written until every copy of it says that its entries are elsewhere.
    moved_before_unwritten,
    /// An entry of a page changes only to a higher generation.
    entries_go_up,
    /// An entry is never removed, even when the key is back to one shard.
    entries_stay,
    /// An incomplete page does not mean that no key has grown.
    missing_is_not_empty,
    /// A response after the lease does not count under a view in which the key is closing, because
    /// the page may be behind an open.
    closing_confirms_nothing,
    /// A read-modify-write update requires that the copy at home is unchanged.
    update_needs_home_unchanged,
    /// An update reads all places.
    update_reads_all_places,
    /// An update in place of an item with several places requires a copy of the current era.
    additions_need_their_era,
    /// A repeatable update is applied only if the item does not list it as applied.
    additions_are_noted,
    /// An update with an expression requires that there is no tombstone.
    expressions_refuse_tombstones,
    /// A deletion with an expression has the protocol's part of the condition.
    expressed_deletions_have_base,
    /// A pull has a version of its own, below the one of the write that follows.
    pulls_have_own_version,
    /// A pull requires that the copy at home is as it was read.
    pulls_need_home_unchanged,
    /// With several places, the first attempt of a write with an expression requires an item of the
    /// current era.
    expressions_need_their_era,
    /// An update with an expression of an item of an earlier era gives it a version of the current
    /// one.
    expressions_leave_earlier_eras,
}
