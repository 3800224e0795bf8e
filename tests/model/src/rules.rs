//! The rules of the protocol, each of which can be weakened.

/// Which rules are kept. [`Rules::default`] keeps them all.
///
/// Every field is a rule that some trace made necessary; `tests/model/tests/model.rs` weakens one at a time, and the checker must find that trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Who has expanded waits out every view from before, and only then activates.
    pub wait_out_views: bool,
    /// That wait counts from the *answer* to the expansion, not from sending it.
    pub wait_from_answer: bool,
    /// Readers rely on a view for its lease only.
    pub read_lease: bool,
    /// A view's age counts from before its metadata was asked for, not from the answer.
    pub aged_from_asking: bool,
    /// Plain appends rely on a view for the append lease only.
    pub append_lease: bool,
    /// Where keys may be settled, an append without a usable view reads the metadata first, instead of going to shard 1 at once.
    pub settling_needs_views: bool,
    /// An append that is repeated on the shard of an unanswered attempt does so only while the view that led there may still be used.
    pub repeats_keep_lease: bool,
    /// A request is signed first and its lease checked then, so that a freeze between the two cannot make a late signature.
    pub check_after_signing: bool,
    /// Point writes go out only under a view within the lease.
    pub point_lease: bool,
    /// A point write looks at its lease again when the answer is in, and claims nothing if it has run out.
    pub check_answer: bool,
    /// A put overwrites the copies that stand where they stand, instead of writing home and deleting the rest.
    pub put_in_place: bool,
    /// Puts and appends are conditional on "absent, or a lower version".
    pub conditional_puts: bool,
    /// A put that meets a higher version goes above it, instead of calling itself superseded.
    pub put_goes_above: bool,
    /// Versions end in a tie-breaker.
    pub tie_breakers: bool,
    /// The version of a create-only write is below all others, ordered by the generation that it was planned under.
    pub create_below_all: bool,
    /// A repeated create-only write recognises the item of its own earlier attempt.
    pub own_write: bool,
    /// An own item counts only where none stands in a higher version: else the attempt came late, below another write.
    pub own_is_highest: bool,
    /// After an attempt without an answer a refusal proves nothing: the outcome is unknown.
    pub refusals_prove_nothing: bool,
    /// A delete whose attempt had no answer is not repeated.
    pub deletes_once: bool,
    /// Width 1 is a candidate for ever, and expanding an absent item writes its first history entry.
    pub width_one_is_candidate: bool,
    /// The homes under the widths of the history are candidates.
    pub history_is_candidate: bool,
    /// The home under the read width is a candidate.
    pub read_width_is_candidate: bool,
    /// In a table that is adopted, point writes name the bare key as a candidate.
    pub bare_is_candidate: bool,
    /// In a table that is adopted, every read looks at the bare key.
    pub reads_look_at_bare: bool,
    /// Registration is conditional on an absent item.
    pub conditional_registration: bool,
    /// Every update of the metadata checks and raises the generation, instead of checking widths and time only.
    pub generation: bool,
    /// Nobody expands while an expansion waits to be activated.
    pub one_expansion: bool,
    /// Anyone who has watched an expansion for the length of the wait may activate it.
    pub take_over: bool,
    /// An observer activates only what it has watched, not what it finds then.
    pub activate_what_was_watched: bool,
    /// Nobody changes a width within the cooldown of the last change.
    pub cooldown: bool,
    /// A shrink is marked, so that nobody takes it for an expansion.
    pub drain_marker: bool,
    /// A shrink names the width to come in the history, and waits out every view from before, ahead of its mark.
    pub announce_width: bool,
    /// Items are moved under a lease of what is known of the drain, which is looked at anew when it has run out.
    pub moves_keep_lease: bool,
    /// A shrink lowers the write width first and the read width last, instead of both at once.
    pub shrink_in_steps: bool,
    /// Where a shrink waits until no signed request can be applied any more.
    pub signature_wait: SignatureWait,
    /// A migration waits for writers, too.
    pub migrations_wait: bool,
    /// How a shrink moves an item.
    pub moving: Moving,
    /// Copying an item home checks that the original has not changed meanwhile.
    pub copy_checks_source: bool,
    /// Between copying and deleting, a shrink waits out the longest read.
    pub wait_out_reads: bool,
    /// The history keeps what a drain gives up until its end.
    pub history_kept: bool,
}

/// Where a shrink waits until no signed request can be applied any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignatureWait {
    /// As designed.
    BeforeCopying,
    /// Too late: what lands during the wait is not seen.
    AfterVerifying,
    /// Not at all.
    Never,
}

/// How a shrink moves an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moving {
    /// As designed: the copy first, the original's deletion when no read can need it.
    CopyThenDelete,
    /// One transaction that puts and deletes.
    InOneStep,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            wait_out_views: true,
            wait_from_answer: true,
            read_lease: true,
            aged_from_asking: true,
            append_lease: true,
            settling_needs_views: true,
            repeats_keep_lease: true,
            check_after_signing: true,
            point_lease: true,
            check_answer: true,
            put_in_place: true,
            conditional_puts: true,
            put_goes_above: true,
            tie_breakers: true,
            create_below_all: true,
            own_write: true,
            own_is_highest: true,
            refusals_prove_nothing: true,
            deletes_once: true,
            width_one_is_candidate: true,
            history_is_candidate: true,
            read_width_is_candidate: true,
            bare_is_candidate: true,
            reads_look_at_bare: true,
            conditional_registration: true,
            generation: true,
            one_expansion: true,
            take_over: true,
            activate_what_was_watched: true,
            cooldown: true,
            drain_marker: true,
            announce_width: true,
            moves_keep_lease: true,
            shrink_in_steps: true,
            signature_wait: SignatureWait::BeforeCopying,
            migrations_wait: true,
            moving: Moving::CopyThenDelete,
            copy_checks_source: true,
            wait_out_reads: true,
            history_kept: true,
        }
    }
}
