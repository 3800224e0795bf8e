//! The protocol's promises, checked on its own code: every scenario is explored completely with all
//! rules kept, and each weakened rule breaks a promise.
//!
//! `cargo test -p protocol-model -- --nocapture` prints states and traces.

#![expect(clippy::print_stdout, reason = "tests print what they have counted")]

use std::collections::BTreeSet;
use std::num::NonZero;
use std::sync::Mutex;
use std::thread::{available_parallelism, scope};

use protocol_model::{
    Action, I1, I2, I3, I4, I5, I6, ProtocolModel, Scenario, State, Weakened, limits, scenario,
    scenarios,
};
use stateright::{Checker, HasDiscoveries, Model, Path};

const INVARIANTS: [&str; 6] = [I1, I2, I3, I4, I5, I6];

/// The steps of a trace, one to a line.
fn trace(model: &ProtocolModel, path: Path<State, Action>) -> String {
    let line = |(state, action): (State, Option<Action>)| {
        Some(format!("    {}\n", model.narrate(&state, action?)))
    };
    path.into_vec().into_iter().filter_map(line).collect()
}

/// Which of the invariants is violated, with the trace.
fn violation(checker: &impl Checker<ProtocolModel>, invariants: &[&'static str]) -> Option<String> {
    let (model, states) = (checker.model(), checker.unique_state_count());
    invariants.iter().find_map(|invariant| {
        let (name, trace) = (model.scenario().name(), trace(model, checker.discovery(invariant)?));
        Some(format!("violated: \"{invariant}\"\n  in {name}, after {states} states:\n{trace}"))
    })
}

/// Searches for a violation, and returns its trace.
fn find_violation(weakened: Weakened, scenario: Scenario, invariants: &[&'static str]) -> String {
    let name = scenario.name();
    let wanted = HasDiscoveries::AnyOf(BTreeSet::from_iter(invariants.iter().copied()));
    let checker =
        ProtocolModel::new(weakened, scenario).checker().finish_when(wanted).spawn_dfs().join();
    violation(&checker, invariants).unwrap_or_else(|| {
        let states = checker.unique_state_count();
        panic!(
            "{name}: all invariants held in all {states} states, so the rule makes no difference"
        )
    })
}

/// Searches a whole scenario, which must show what it is for.
fn explore(scenario: Scenario) {
    let name = scenario.name();
    let checker = ProtocolModel::new(Weakened::default(), scenario).checker().spawn_dfs().join();
    println!("{name}: {} states explored", checker.unique_state_count());
    if let Some(violation) = violation(&checker, &INVARIANTS) {
        panic!("{violation}");
    }
    checker.assert_properties();
}

/// Most scenarios are too small for several threads, so each has one.
#[test]
fn every_promise_holds_in_every_scenario() {
    let left = Mutex::new(scenarios().into_iter());
    let next = || left.lock().expect("no panic while it is locked").next();
    let threads = available_parallelism().map_or(1, NonZero::get);
    scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(scenario) = next() {
                    explore(scenario);
                }
            });
        }
    });
}

/// One test for each weakened rule: its name, the rule, the scenario, and the promises, one of
/// which breaks. Where either of two rules is enough, both are weakened.
macro_rules! weakened {
    ($($test:ident: $($rule:ident)&+, $scenario:literal, $($invariant:ident)|+;)+) => {
        $(
            #[test]
            fn $test() {
                let weakened = Weakened { $($rule: true,)+ ..Weakened::default() };
                let found = find_violation(weakened, scenario($scenario), &[$($invariant),+]);
                println!("{}: {found}", stringify!($test));
            }
        )+
    };
}

// Close, wait, open.
weakened! {
    without_a_wait_a_read_misses_a_put: wait_before_open, "grow | put | look query", I1;
    without_a_wait_a_scan_misses_an_item: wait_before_open, "grow | put | scan", I4;
    a_wait_from_sending_creates_twice: wait_from_response, "grow | create delete | create", I3 | I6;
    an_observer_that_opens_what_it_finds_skips_the_wait: closes_again, "grow to 2 and 4 | take over | put | look get", I1;
    a_view_aged_from_the_response_lives_too_long: aged_from_asking, "grow | create delete | create", I3 | I6;
    without_generation_a_change_undoes_another: generation, "grow to 2 | grow to 4 | put get", I1 | I6;
    without_generation_a_late_close_undoes_an_era: generation, "settle | shrink, drain", I1 | I6;
    writers_that_do_not_pause_create_twice: writers_pause, "grow | create delete | create", I3 | I6;
    a_width_to_come_without_places_hides_a_put: closing_is_place, "grow | put | look query", I1;
}

// Writes.
weakened! {
    a_write_acknowledged_without_a_lease_is_superseded: lease_at_acknowledgement, "grow | create delete | create", I3 | I6;
    without_the_era_a_fast_clock_hides_a_later_put: era_first, "grow | put | put get", I1 | I6;
    without_tombstones_an_old_copy_comes_back: tombstones, "grow | delete get | look get", I1 | I6;
    a_tombstone_without_a_write_id_is_created_again: tombstones_keep_write_id, "create, create again | get delete", I1 | I6;
    a_creation_that_does_not_read_overlooks_an_old_copy: create_reads, "grow | create delete | create", I3 | I6;
    a_refused_repetition_that_goes_above_takes_effect_twice: refused_repetition_is_unknown, "put, twice | put get", I1 | I6;
    a_late_first_attempt_brings_a_deleted_item_back: repetitions_are_marked, "put, twice | delete get", I1 | I6;
    a_repeated_delete_removes_a_later_put: deletes_once, "delete, twice | put", I1 | I6;
}

// Updates.
weakened! {
    an_update_of_what_has_changed_since_loses_the_other: update_needs_home_unchanged, "swap | swap", I1 | I6;
    an_update_that_reads_home_only_overlooks_an_old_copy: update_reads_all_places, "swap | swap, at an old place", I1 | I6;
    an_addition_to_a_copy_of_an_earlier_era_is_lost: additions_need_their_era, "add, home has an older copy | get", I1 | I6;
    a_repeated_addition_that_is_not_noted_takes_effect_twice: additions_are_noted, "add, twice | put get", I1 | I6;
}

// Reads.
weakened! {
    without_the_history_old_copies_are_lost: history_is_place, "late put | put get | query", I1 | I6;
    a_read_that_ends_at_any_time_misses_an_item: read_end, "settle | get", I1;
    a_query_that_returns_misplaced_copies_finds_another_item:
        query_ignores_misplaced, "an item where it has no place | put | query", I1 | I6;
}

// Drains.
weakened! {
    without_the_wait_for_reads_an_item_is_missed: wait_for_reads, "settle | get", I1;
    without_the_wait_for_signatures_a_late_move_undoes_a_delete:
        wait_for_signatures & deletions_after_a_settle_stay, "a dead drainer's move | settle | delete get", I1 | I6;
    an_unanswered_move_that_counts_as_failed_undoes_a_delete:
        unanswered_is_ambiguous & deletions_after_a_settle_stay, "settle, a move unanswered | delete", I1 | I6;
    without_the_wait_before_a_drain_a_late_put_is_lost: wait_before_a_drain, "settle | late put | get", I1 | I6;
    without_the_wait_before_a_look_a_late_put_is_seen_and_lost:
        wait_before_a_look, "settle | late put | look and delete, get", I1 | I6;
    without_the_wait_before_a_drain_a_late_delete_is_undone: wait_before_a_drain, "settle | late delete | get get", I1 | I6;
    without_the_wait_after_a_cut_off_a_late_delete_loses_an_item: wait_before_a_drain, "settle | shrink, drain", I1 | I6;
    tombstones_that_go_too_early_bring_an_item_back: tombstones_grow_old, "settle | delete get", I1;
    young_tombstones_that_go_let_a_duplicate_bring_an_item_back:
        tombstones_grow_old, "settle, purge | swap, twice, delete", I1 | I6;
    after_a_settle_a_duplicate_undoes_a_plain_deletion:
        deletions_after_a_settle_stay, "settle, purge | swap, twice, delete", I1 | I6;
    an_actor_that_resumes_without_a_pass_deletes_under_a_read: own_pass, "settle, crash | settle | get", I1;
    an_adopted_item_with_a_version_of_now_undoes_a_delete:
        adopted_are_lowest, "adopted: grow again, settle | delete get", I1 | I6;
    a_move_without_a_lease_deletes_what_is_home_again: moves_keep_lease, "settle | shrink, drain", I1 | I6;
}

// Armed keys.
weakened! {
    a_growth_before_the_pattern_counts_loses_another_programs_write:
        growth_waits, "arm | grow, put | plain", I1 | I6;
    a_pattern_that_counts_from_before_it_was_visible_loses_a_write:
        counts_once_visible, "arm | grow, put | plain", I1 | I6;
    patterns_without_a_lease_let_a_frozen_program_write:
        patterns_are_leased, "arm | grow, put | plain", I1 | I6;
    a_pattern_that_is_removed_while_it_counts_loses_a_write:
        disarmed_before_it_counts, "disarm | put get | plain", I1 | I6;
}

// The directory.
weakened! {
    a_wait_that_begins_before_every_copy_is_written_hides_a_put: all_copies_first, "pages: grow | put | get", I1;
    an_observer_that_opens_what_one_copy_shows_loses_a_put: closes_again, "pages: grow, crash | put | look put", I1 | I6;
    a_late_entry_that_replaces_a_higher_one_loses_a_put: entries_go_up, "pages: a late open | grow again | put | put", I1 | I6;
    a_removed_entry_looks_like_one_that_is_still_to_come: entries_stay, "pages: shrink to one, drain | look put", I1 | I6;
    a_missing_page_that_is_read_as_empty_loses_a_put: missing_is_not_empty, "pages: one missing | grow | put | get", I1 | I6;
    a_copy_that_is_not_counted_misses_a_growth: copies_counted_again, "pages: add a copy | grow | put | get", I1;
    a_page_that_is_given_up_before_it_is_moved_hides_a_growth: moved_before_unwritten, "pages: more pages | grow | put | get", I1;
    larger_pages_that_are_not_counted_miss_a_growth: copies_counted_again, "pages: more pages | grow | put | get", I1;
    a_late_creation_that_a_page_behind_confirms_is_the_second: closing_confirms_nothing, "pages: grow | create | create", I3 | I6;
}

// Writes with an expression.
weakened! {
    an_expression_that_takes_a_tombstone_for_an_item_changes_nothing:
        expressions_refuse_tombstones, "expressed: a tombstone | update get | strip, put new", I1;
    an_expressed_deletion_of_an_older_copy_hides_the_item:
        expressed_deletions_have_base, "expressed: home has an older copy | update | take get", I1 | I6;
    a_write_with_the_version_of_its_pull_is_purged:
        pulls_have_own_version, "expressed: settle, purge | put new", I1 | I6;
    a_pull_over_a_copy_that_was_not_read_loses_a_write:
        pulls_need_home_unchanged, "expressed: at an old place | update | strip get", I1 | I6;
    an_expression_that_is_asked_of_an_older_copy_overlooks_the_item:
        expressions_need_their_era, "expressed: home has an older copy | update | take get", I1 | I6;
    an_update_that_stays_in_an_earlier_era_is_undone_by_a_late_pull:
        expressions_leave_earlier_eras, "expressed: late pull of an earlier era | strip | update get", I1 | I6;
    after_a_settle_a_late_pull_undoes_a_plain_deletion:
        deletions_after_a_settle_stay, "expressed: settle | update take", I1 | I6;
    an_expression_that_is_repeated_takes_effect_twice:
        refused_repetition_is_unknown, "expressed: update get | take | put", I1 | I6;
    an_expressed_tombstone_without_a_write_id_is_created_again:
        tombstones_keep_write_id, "expressed: create, create again | take get", I1 | I6;
}

/// The protocol's documented limits, found with all rules kept. If a limit is repaired, its test
/// fails, and the documentation must follow.
#[test]
fn the_documented_limits_are_real() {
    for scenario in limits() {
        println!("{}", find_violation(Weakened::default(), scenario, &INVARIANTS));
    }
}
