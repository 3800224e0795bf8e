use protocol_model::*;
use stateright::Model;
#[test]
fn walk() {
    let m = ProtocolModel::new(
        Rules::default(),
        scenario("expressed: late pull of an earlier era | removing update get"),
    );
    let mut s = m.init_states()[0].clone();
    for _ in 0..40 {
        let mut acts = vec![];
        m.actions(&s, &mut acts);
        println!("   {acts:?}");
        // prefer anything of the actor, then the late request
        let pick = acts
            .iter()
            .copied()
            .find(|a| matches!(a, Action::Step(_) | Action::Receive(_) | Action::Read(..)))
            .or_else(|| acts.iter().copied().find(|a| matches!(a, Action::Apply(i) if *i==0)))
            .or_else(|| acts.iter().copied().find(|a| matches!(a, Action::Apply(_))));
        let Some(a) = pick else { break };
        println!("{}", m.narrate(&s, a));
        let Some(n) = m.next_state(&s, a) else {
            println!("none");
            break;
        };
        s = n;
    }
    println!("{s:?}");
}
