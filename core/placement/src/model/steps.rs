//! What happens in the model: [`Step`], drawn by [`step`].

use proptest::prelude::*;

use super::{NODES, REGION, SPACES};

#[derive(Clone, Debug)]
pub(super) enum Step {
    Create(u128),
    Renew(u128),
    Place {
        space: u128,
        bytes: u64,
    },
    /// Places of a new group; or of one that there is, beside the places that it has.
    PlaceGroup {
        space: u128,
        places: u32,
        is_new: bool,
    },
    /// One of the space's regions.
    GiveUp {
        space: u128,
        index: usize,
    },
    Destroy(u128),
    Drain(u64),
    Undrain(u64),
    /// The oldest command on a node's connection is executed and answered; or its answer is lost, with the connection.
    Execute {
        node: u64,
        end: End,
        is_heard: bool,
    },
    Report {
        node: u64,
        fills: bool,
    },
    Connect(u64),
    Disconnect(u64),
    Pass(u64),
    RestartController,
    /// The controller stops in the middle of the next event that changes records: this many are durable, nothing is
    /// sent.
    Crash(usize),
}

/// How a move ends, if that is what is executed.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    /// The source closes the region, and the target hears it from the source.
    Well,
    /// The same, and what the source has told the target is lost.
    Unheard,
    /// The source goes on to serve the region; the target has a part.
    Badly,
}

pub(super) fn step() -> impl Strategy<Value = Step> {
    let node = || 0..NODES;
    let end = || prop_oneof![2 => Just(End::Well), 2 => Just(End::Unheard), 1 => Just(End::Badly)];
    let space = || 0..SPACES;
    prop_oneof![
        1 => space().prop_map(Step::Create),
        1 => space().prop_map(Step::Renew),
        4 => (space(), 1..4 * REGION).prop_map(|(space, bytes)| Step::Place { space, bytes }),
        2 => (space(), 1..4u32, prop::bool::weighted(0.7))
            .prop_map(|(space, places, is_new)| Step::PlaceGroup { space, places, is_new }),
        2 => (space(), 0..8usize).prop_map(|(space, index)| Step::GiveUp { space, index }),
        1 => space().prop_map(Step::Destroy),
        2 => node().prop_map(Step::Drain),
        1 => node().prop_map(Step::Undrain),
        8 => (node(), end(), prop::bool::weighted(0.8))
            .prop_map(|(node, end, is_heard)| Step::Execute { node, end, is_heard }),
        4 => (node(), any::<bool>()).prop_map(|(node, fills)| Step::Report { node, fills }),
        2 => node().prop_map(Step::Connect),
        1 => node().prop_map(Step::Disconnect),
        1 => (1..2_000_000_000u64).prop_map(Step::Pass),
        1 => Just(Step::RestartController),
        1 => (0usize..4).prop_map(Step::Crash),
    ]
}
