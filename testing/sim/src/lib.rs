//! The simulator: the real client (`core/client`), both real ends of sessions (`core/session`) and the real board
//! (`core/board`) under a network that drops, delays, duplicates, reorders and corrupts packets, under stops, cuts and
//! restarts, an attacker, and a checker that knows what must be true.
//!
//! A run depends on its seed alone. [`simulate`] does one run; [`Failure`] says what was wrong.
//!
//! Files, from the ground up: `network` is general, as is `research/simulation` (events, clocks, a node's memory);
//! `settings` is what a seed draws; `memory`, `node` and `moves` are the shell around the board, `guard` the one around
//! a node's doors, `lane` the one around a client and `sessions` the one around its protection; `workload`, `locks` and
//! `attacker` are what processes do, `homes` their address spaces and leases, and `revocation` what becomes void;
//! `faults` is what goes wrong, with `restarts` of processes; `world` is the loop, with `births` and `traffic`, and
//! `counts` what is counted. The checker is `oracle` (every answer is right when it is given, and nothing is executed
//! twice; what goes in pieces is there or not until it is over), `seals` (who has sealed what is let in or taken, and
//! under which counter), `history` (order, completeness, what clients were told), `words` (linearizability of words,
//! from what clients saw alone) and `locks`. `sabotage` breaks one thing on purpose, to prove that the checker sees it.
//! `order` is another simulation, of one process and the order between its lanes.
//!
//! `relocation` is a simulator of its own, for moves of regions between nodes: the real controller (`core/placement`)
//! and the real boards, with every message between them late, lost or doubled; [`simulate_moves`] does one run of it.
//!
//! Invariant: no clock, no threads, no randomness but the seed's, and no order of a hash map.

#![forbid(unsafe_code)]

mod attacker;
mod births;
mod counts;
mod faults;
mod guard;
mod history;
mod homes;
mod lane;
mod liar;
mod locks;
mod memory;
mod moves;
pub mod network;
mod node;
mod oracle;
mod order;
mod relocation;
mod restarts;
mod revocation;
mod sabotage;
mod seals;
mod sessions;
mod settings;
mod traffic;
mod words;
mod workload;
mod world;

pub use counts::{Count, MoveCount, OrderCount};
pub use order::simulate_order;
pub use relocation::{MoveSabotage, simulate_moves};
pub use sabotage::Sabotage;
use yonder_simulation::{Counts, Failure, Trace, caught};

use world::World;

/// What a run that went well has in common with each other run of its seed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// How often things happened.
    pub counts: Counts<Count>,
    /// A hash of all answers and the times at which they arrived.
    pub digest: u64,
}

/// Runs `seed`, with `sabotage` if there is to be some. A panic of the code under test is a failure too.
pub fn simulate(seed: u64, sabotage: Option<Sabotage>, trace: Trace) -> Result<Outcome, Failure> {
    let (counts, digest) = caught(seed, || World::new(seed, sabotage, trace).run())?;
    Ok(Outcome { counts, digest })
}
