//! All rules at once, under networks that misbehave in every way that they can.

use proptest::prelude::*;
use yonder_client::Transport;

use crate::world::{Action, Conditions, World, operation};

fn actions() -> impl Strategy<Value = Vec<(u64, Action)>> {
    let limit = prop::option::weighted(0.3, 1u64..20_000);
    let operate = (0u8..13, 0u64..1500, 0u64..600, limit)
        .prop_map(|(kind, place, length, limit)| operation(kind, place, length, limit));
    let action = prop_oneof![20 => operate, 1 => Just(Action::Fence), 3 => (0usize..6).prop_map(Action::Cancel)];
    prop::collection::vec((0u64..3000, action), 1..60)
}

fn datagrams() -> impl Strategy<Value = Conditions> {
    let chances = (0u64..30, 0u64..30, 0u64..15, 0u64..15);
    let limits =
        (1u64..30_000, prop_oneof![4usize..20, Just(1usize << 16)], prop_oneof![Just(0.2), 1f64..9.0], 64u64..1000);
    (chances, limits, any::<u64>()).prop_map(|((lose, repeat, corrupt, busy), limits, seed)| Conditions {
        transport: Transport::Datagram,
        lose,
        repeat,
        corrupt,
        busy,
        tear: 0,
        delay_max: limits.0,
        recent_max: limits.1,
        packets_initial: limits.2,
        incast_bytes: limits.3,
        seed,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 512 }))]

    #[test]
    fn datagrams_that_get_lost_and_mixed_up(conditions in datagrams(), actions in actions()) {
        World::new(conditions).run(&actions);
    }

    #[test]
    fn streams_that_break(conditions in datagrams(), tear in 0u64..15, actions in actions()) {
        World::new(Conditions { transport: Transport::Stream, tear, ..conditions }).run(&actions);
    }
}
