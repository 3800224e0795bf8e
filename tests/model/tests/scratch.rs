use protocol_model::*;
use stateright::{Checker, HasDiscoveries, Model};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
#[test]
fn scratch() {
    let want = std::env::var("WANT").unwrap_or_default();
    let bad = [I1, I2, I3, I4, I5, I6];
    for scenario in scenarios() {
        let (name, shows) = (scenario.name(), scenario.shows().to_vec());
        if !name.contains(&want) {
            continue;
        }
        let began = Instant::now();
        let checker = ProtocolModel::new(Rules::default(), scenario)
            .checker()
            .threads(2)
            .finish_when(HasDiscoveries::AnyOf(BTreeSet::from(bad)))
            .timeout(Duration::from_secs(30))
            .spawn_bfs()
            .join();
        println!(
            "{name}: {} states, {:.1} s, depth {}",
            checker.unique_state_count(),
            began.elapsed().as_secs_f32(),
            checker.max_depth()
        );
        for i in bad {
            if let Some(path) = checker.discovery(i) {
                println!("  VIOLATED {i}");
                for (state, action) in path.into_vec() {
                    if let Some(action) = action {
                        println!("    {}", checker.model().narrate(&state, action));
                    }
                }
            }
        }
        for s in shows {
            if checker.discovery(s).is_none() {
                println!("  VACUOUS {s}");
            }
        }
    }
}
