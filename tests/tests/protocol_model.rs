//! The protocol's model, searched exhaustively: every invariant holds in every scenario, and every weakened rule is caught.
//!
//! `MODEL_SIZE=large` explores longer scenarios.

use stateright::{Checker, Model};
use system_tests::model::{
    I1, I2, I3, I4, I5, I6, Moving, ProtocolModel, Rules, SignatureWait, Size, scenario, scenarios,
};

fn size() -> Size {
    match std::env::var("MODEL_SIZE").as_deref() {
        Ok("large") => Size::Large,
        Ok("small") | Err(_) => Size::Small,
        Ok(other) => panic!("MODEL_SIZE is {other:?}; allowed: small, large"),
    }
}

#[test]
fn every_invariant_holds_in_every_scenario() {
    let mut total = 0;
    for explored in scenarios(size()) {
        let (name, about, shows) = (explored.name(), explored.about(), explored.shows().to_vec());
        let model = ProtocolModel::new(Rules::default(), explored);
        let checker = model.checker().threads(2).spawn_bfs().join();
        let states = checker.unique_state_count();
        total += states;
        for invariant in [I1, I2, I3, I4, I5, I6] {
            assert!(checker.discovery(invariant).is_none(), "{name}: violates {invariant}");
        }
        checker.assert_properties();
        println!(
            "{name} ({about}): {states} states, I1 to I6 held; seen: {}",
            if shows.is_empty() { "-".into() } else { shows.join("; ") }
        );
    }
    println!("{total} states in all, every invariant held");
}

/// What is weakened, in which scenario, and which invariant it breaks.
type Variant = (&'static str, fn(&mut Rules), &'static str, &'static str);

const VARIANTS: [Variant; 23] = [
    ("skip the wait", |rules| rules.wait_out_views = false, "growing", I1),
    ("skip the wait, under a scan", |rules| rules.wait_out_views = false, "scanning while growing", I4),
    ("let views live for ever", |rules| rules.read_lease = false, "growing", I1),
    ("count a view's age from the answer", |rules| rules.aged_from_asking = false, "creating", I3),
    ("append on views without limit", |rules| rules.append_lease = false, "shrinking under appends", I6),
    (
        "repeat an append beyond its lease",
        |rules| rules.repeats_keep_lease = false,
        "shrinking under repeated appends",
        I6,
    ),
    ("check the lease only before sending", |rules| rules.check_answer = false, "creating", I3),
    ("check the lease before signing", |rules| rules.check_after_signing = false, "shrinking under appends", I6),
    ("move items by put and delete in one step", |rules| rules.moving = Moving::InOneStep, "shrinking under reads", I1),
    ("move items in one step, under a scan", |rules| rules.moving = Moving::InOneStep, "scanning while shrinking", I4),
    ("write home and delete the rest", |rules| rules.put_in_place = false, "putting in place", I1),
    ("drop the generation", |rules| rules.generation = false, "growing, shrinking and growing again", I1),
    ("shrink at once", |rules| rules.shrink_in_steps = false, "shrinking under reads", I6),
    ("put without a condition", |rules| rules.conditional_puts = false, "repeating", I1),
    ("expand while an expansion waits", |rules| rules.one_expansion = false, "crowd", I6),
    ("activate what was not watched", |rules| rules.activate_what_was_watched = false, "overtaken observer", I1),
    ("no mark on a shrink", |rules| rules.drain_marker = false, "shrinking beside observers", I5),
    ("register blindly", |rules| rules.conditional_registration = false, "registering", I6),
    ("no wait for signatures", |rules| rules.signature_wait = SignatureWait::Never, "shrinking under appends", I6),
    (
        "wait for signatures too late",
        |rules| rules.signature_wait = SignatureWait::AfterVerifying,
        "shrinking under creations",
        I6,
    ),
    ("no wait for reads", |rules| rules.wait_out_reads = false, "shrinking under reads", I1),
    ("no cooldown", |rules| rules.cooldown = false, "crowd", I5),
    ("nobody takes over", |rules| rules.take_over = false, "taking over", I6),
];

#[test]
fn every_weakened_rule_is_caught() {
    for (variant, weaken, name, expected) in VARIANTS {
        let mut rules = Rules::default();
        weaken(&mut rules);
        let model = ProtocolModel::new(rules, scenario(name, Size::Small));
        let checker = model.clone().checker().threads(2).spawn_bfs().join();
        let path = checker.discovery(expected);
        let path = path.unwrap_or_else(|| {
            panic!("{variant}: {expected} is not violated in {name}; found {:?}", checker.discoveries().keys())
        });
        println!("\n{variant}: violates {expected} (scenario {name})");
        for (state, action) in path.into_vec() {
            if let Some(action) = action {
                println!("    {}", model.narrate(&state, action));
            }
        }
    }
}
