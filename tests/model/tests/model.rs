//! The protocol's promises I1 to I6, on a model of it: explored whole with all rules kept, and shown to break with each rule weakened.
//!
//! `MODEL_SIZE=large` explores longer worlds, in minutes. `cargo test -p protocol-model -- --nocapture` prints states and traces.

use std::collections::BTreeSet;

use protocol_model::{
    Action, I1, I2, I3, I4, I5, I6, Moving, ProtocolModel, Rules, Scenario, SignatureWait, Size, State, limits,
    scenario, scenarios,
};
use stateright::{Checker, HasDiscoveries, Model, Path};

fn size() -> Size {
    if std::env::var("MODEL_SIZE").is_ok_and(|size| size == "large") { Size::Large } else { Size::Small }
}

/// The steps of a trace, one to a line.
fn told(model: &ProtocolModel, path: Path<State, Action>) -> String {
    let steps = path.into_vec();
    steps
        .iter()
        .filter_map(|(state, action)| action.map(|action| format!("    {}\n", model.narrate(state, action))))
        .collect()
}

/// Explores a scenario whole, all rules kept; says what was explored.
fn explored(scenario: Scenario) -> String {
    let (name, about, shows) = (scenario.name(), scenario.about(), scenario.shows().to_vec());
    let checker = ProtocolModel::new(Rules::default(), scenario).checker().threads(2).spawn_bfs().join();
    for invariant in [I1, I2, I3, I4, I5, I6] {
        if let Some(path) = checker.discovery(invariant) {
            panic!("{name}: violated is \"{invariant}\":\n{}", told(checker.model(), path));
        }
    }
    assert!(checker.is_done(), "{name} was not explored whole");
    for shown in shows.iter().copied() {
        assert!(checker.discovery(shown).is_some(), "{name} is vacuous: never was it so that {shown}");
    }
    let seen = if shows.is_empty() { String::new() } else { format!("; seen: {}", shows.join(", ")) };
    format!("{name} ({about}): {} states explored, I1..I6 held{seen}", checker.unique_state_count())
}

/// Searches for a violation of an invariant; says what was found.
fn violation(rules: Rules, scenario: Scenario, invariant: &'static str) -> String {
    let name = scenario.name();
    let wanted = HasDiscoveries::AnyOf(BTreeSet::from([invariant]));
    let checker = ProtocolModel::new(rules, scenario).checker().finish_when(wanted).spawn_bfs().join();
    let states = checker.unique_state_count();
    let Some(path) = checker.discovery(invariant) else {
        panic!("in {name} \"{invariant}\" held in all of {states} states; the model has no teeth there")
    };
    format!("violated is \"{invariant}\"\n  in {name}, after {states} states:\n{}", told(checker.model(), path))
}

#[test]
fn every_promise_holds_in_every_scenario() {
    for scenario in scenarios(size()) {
        println!("{}", explored(scenario));
    }
}

/// One test for each weakened rule: its name, the scenario, the promise that breaks, and what is weakened.
macro_rules! weakened {
    ($($test:ident: $scenario:literal, $invariant:ident, { $($rule:ident: $value:expr),+ };)+) => {
        $(
            #[test]
            fn $test() {
                let rules = Rules { $($rule: $value,)+ ..Rules::default() };
                let found = violation(rules, scenario($scenario, Size::Small), $invariant);
                println!("{}: {found}", stringify!($test));
            }
        )+
    };
}

// Growing.
weakened! {
    without_the_wait_a_read_misses_an_append: "growing", I1, { wait_out_views: false };
    without_the_wait_a_scan_misses_an_item: "scanning while growing", I4, { wait_out_views: false };
    a_wait_from_sending_is_too_short: "growing", I1, { wait_from_answer: false };
    views_that_live_for_ever_miss_an_append: "growing", I1, { read_lease: false };
    views_aged_from_the_answer_live_too_long: "creating", I3, { aged_from_asking: false };
    without_generation_a_frozen_observer_activates_too_early:
        "growing, shrinking and growing again", I1, { generation: false };
    an_observer_that_activates_what_it_finds_skips_the_wait:
        "overtaken observer", I1, { activate_what_was_watched: false };
    expanding_again_puts_the_activation_off: "crowd", I6, { one_expansion: false };
    without_take_over_a_dead_actor_blocks_the_key: "taking over", I6, { take_over: false };
    without_cooldown_a_crowd_makes_two_changes: "crowd", I5, { cooldown: false };
    an_unconditional_registration_hides_new_shards: "registering", I6, { conditional_registration: false };
}

// Candidates.
weakened! {
    without_width_one_a_get_misses_the_first_items: "absent item", I1, { width_one_is_candidate: false };
    without_the_history_a_get_misses_old_homes: "old homes", I1, { history_is_candidate: false };
    without_the_read_width_two_creations_miss_each_other: "creating", I3, { read_width_is_candidate: false };
    a_history_dropped_too_early_hides_old_homes: "shrinking from old homes", I1, { history_kept: false };
}

// Point writes and versions.
weakened! {
    point_writes_without_a_lease_create_twice: "creating", I3, { point_lease: false, check_answer: false };
    a_lease_checked_only_before_sending_creates_twice: "creating", I3, { check_answer: false };
    a_creation_with_a_clocks_version_hides_a_later_one: "creating", I1, { create_below_all: false };
    a_repeated_creation_must_know_its_own_item:
        "repeating a creation", I3, { own_write: false, refusals_prove_nothing: false };
    a_late_creation_below_another_is_no_success:
        "repeating a creation while growing", I3, { own_is_highest: false };
    a_put_that_moves_an_item_hides_it_from_a_read: "putting in place", I1, { put_in_place: false };
    a_late_duplicate_wins_without_conditional_puts: "repeating", I1, { conditional_puts: false };
    a_refused_repetition_may_have_been_applied_before: "repeating", I1, { refusals_prove_nothing: false };
    a_repeated_delete_removes_a_later_put: "giving a delete up", I6, { deletes_once: false };
    a_put_that_gives_way_to_a_fast_clock_is_lost: "skewed clocks", I1, { put_goes_above: false };
    without_tie_breakers_two_copies_look_alike: "one instant", I2, { tie_breakers: false };
}

// Shrinking.
weakened! {
    shrinking_at_once_loses_items: "shrinking under reads", I6, { shrink_in_steps: false };
    appends_on_views_without_limit_are_lost: "shrinking under appends", I6, { append_lease: false };
    a_signature_made_after_the_check_lives_too_long: "shrinking under appends", I6, { check_after_signing: false };
    a_repetition_that_ignores_the_append_lease_is_lost:
        "shrinking under repeated appends", I6, { repeats_keep_lease: false };
    without_the_wait_for_signatures_a_late_append_is_lost:
        "shrinking under appends", I6, { signature_wait: SignatureWait::Never };
    waiting_for_signatures_after_verifying_is_too_late:
        "shrinking under creations", I6, { signature_wait: SignatureWait::AfterVerifying };
    moving_in_one_step_hides_an_item_from_a_read: "shrinking under reads", I1, { moving: Moving::InOneStep };
    moving_in_one_step_hides_an_item_from_a_scan: "scanning while shrinking", I4, { moving: Moving::InOneStep };
    deleting_before_old_reads_have_ended_hides_an_item: "shrinking under reads", I1, { wait_out_reads: false };
    copying_what_was_deleted_meanwhile_brings_it_back: "shrinking under a delete", I1, { copy_checks_source: false };
    a_lower_width_without_announcement_hides_an_append: "shrinking to a new width", I1, { announce_width: false };
    a_lower_width_without_announcement_creates_twice:
        "shrinking to a new width under creations", I3, { announce_width: false };
    a_lower_width_without_announcement_survives_a_delete:
        "shrinking to a new width under a delete", I1, { announce_width: false };
    an_announcement_that_is_not_waited_out_comes_too_late:
        "shrinking to a new width", I1, { wait_out_views: false };
    a_frozen_settler_without_a_lease_loses_an_item:
        "shrinking beside a frozen settler", I6, { moves_keep_lease: false };
    an_unmarked_drain_is_activated_by_an_observer: "shrinking beside observers", I5, { drain_marker: false };
}

// Settling.
weakened! {
    settling_with_appends_without_views_hides_them: "settling under appends", I1, { settling_needs_views: false };
    settling_with_appends_without_views_creates_twice:
        "settling under a creation", I3, { settling_needs_views: false };
    a_history_reduced_before_the_move_hides_old_homes: "settling under reads", I1, { history_kept: false };
    settling_without_the_wait_for_writers_misses_a_late_append:
        "settling under appends", I1, { signature_wait: SignatureWait::Never };
    settling_without_the_wait_for_writers_creates_twice:
        "settling under a creation", I3, { signature_wait: SignatureWait::Never };
    settling_that_waits_for_writers_after_verifying_is_too_late:
        "settling under appends", I1, { signature_wait: SignatureWait::AfterVerifying };
    settling_with_appends_on_views_without_limit_misses_them: "settling under appends", I1, { append_lease: false };
    settling_without_the_wait_for_reads_hides_an_item: "settling under reads", I1, { wait_out_reads: false };
    settling_without_the_wait_for_reads_hides_an_item_from_a_scan: "scanning while settling", I4, { wait_out_reads: false };
    settling_in_one_step_hides_an_item_from_a_read: "settling under reads", I1, { moving: Moving::InOneStep };
    settling_what_was_deleted_meanwhile_brings_it_back: "settling under a delete", I1, { copy_checks_source: false };
}

// Adopting a table that was not sharded.
weakened! {
    a_bare_item_that_is_no_candidate_is_created_again: "migrating under a creation", I3, { bare_is_candidate: false };
    a_bare_item_that_is_no_candidate_survives_its_deletion:
        "migrating under a delete", I1, { bare_is_candidate: false };
    reads_that_do_not_look_at_the_bare_key_miss_its_items: "migrating under reads", I1, { reads_look_at_bare: false };
    a_put_that_moves_a_bare_item_hides_it_from_a_read: "migrating under a put", I1, { put_in_place: false };
    migrating_without_the_wait_for_reads_hides_an_item: "migrating under reads", I1, { wait_out_reads: false };
    migrating_without_the_wait_for_reads_hides_an_item_from_a_scan:
        "scanning while migrating", I4, { wait_out_reads: false };
    migrating_in_one_step_hides_an_item_from_a_read: "migrating under reads", I1, { moving: Moving::InOneStep };
    migrating_what_was_deleted_meanwhile_brings_it_back:
        "migrating under a delete", I1, { copy_checks_source: false };
    migrating_without_the_wait_for_writers_lets_a_late_creation_win:
        "creating while adopting", I1, { migrations_wait: false };
    migrating_without_the_wait_for_writers_brings_back_what_a_late_delete_has_hidden:
        "deleting while adopting", I1, { migrations_wait: false };
    a_frozen_migrator_without_a_lease_loses_an_item:
        "shrinking beside a frozen migrator", I6, { moves_keep_lease: false };
}

/// Not promises: what the protocol cannot do, found with all rules kept. If one of these is repaired, its test fails, and the
/// documentation must follow.
#[test]
fn the_documented_limits_are_real() {
    for scenario in limits() {
        println!("{}", violation(Rules::default(), scenario, I1));
    }
}
