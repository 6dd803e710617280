//! The measurement, once, with a small server: no client notices that a node is killed or loses datagrams.

use std::time::Duration;

use yonder_e2e::Yonder;
use yonder_failures::{Fault, Load, Until, Wish, measure};

#[test]
fn nothing_is_noticed_of_a_node_that_is_killed_and_of_one_that_loses_datagrams() {
    if Yonder::ready().is_none() {
        return;
    }
    let wish = Wish {
        protection: "copies=2".parse().unwrap(),
        faults: vec![Fault::Kill, Fault::Loss],
        load: Load::Open,
        until: Until::Turns(2),
        each: Duration::from_secs(3),
        memory_bytes: 16 << 20,
        peak_for: Duration::from_millis(500),
    };
    let mut turns = Vec::new();
    let summary = measure(&wish, |turn| turns.push(turn.clone())).unwrap();
    assert_eq!(summary.noticed(), 0, "{turns:?}");
    assert_eq!(turns.iter().map(|turn| turn.fault).collect::<Vec<_>>(), wish.faults);
    assert!(turns.iter().all(|turn| turn.commands > 0 && turn.longest_gap_ms > 0.0), "{turns:?}");
    assert!(turns[0].protected_again_s.is_some() && turns[1].protected_again_s.is_none(), "{turns:?}");
    let rebuild = turns[0].rebuild.expect("the node had pages");
    assert!(rebuild.rebuild_bytes > 0 && turns[1].rebuild.is_none(), "{turns:?}");
}
