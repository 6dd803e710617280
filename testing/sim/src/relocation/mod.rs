//! Regions that move between nodes: the real controller and the real boards, and everything between them that can go
//! wrong.
//!
//! A run is a sequence of steps that its seed chooses: a message of a move arrives, once, again or never; a source
//! gives up; a node executes a command; the controller hears of it, or the connection is lost first; a node ends and
//! another begins in its place; the controller starts again from its records, also in the middle of making changes
//! durable; leases end; clients read and write where the controller or an older answer of it has said that a region is.
//!
//! After every step at most one node serves each region. A read sees the last write that was executed. In the end
//! nothing is lost any more: then each region whose data is alive is served by one node, the one that the controller
//! names, with the last writes; nothing moves; a node that is drained becomes empty; and when the address space ends,
//! all memory is free.
//!
//! Data is alive as long as the node does that has the region: the source until the target or the controller has heard
//! from it that it has closed the region for good, the target from then on.
//!
//! `host` is a node, `carrier` the source's part of a move, `world` the controller and the steps, `convergence` the end
//! of a run, `oracle` what must be true.

mod carrier;
mod convergence;
mod host;
mod oracle;
mod world;

use yonder_simulation::{Counts, Failure, Trace, caught};

use crate::counts::MoveCount;
use crate::settings::PAGE_BYTES;

/// Nodes at a time.
const HOSTS: usize = 3;
/// Pages of a region, and bytes.
const REGION_PAGES: u64 = 4;
const REGION_BYTES: u64 = REGION_PAGES * PAGE_BYTES;
/// Regions of the address space.
const REGIONS: u32 = 3;
/// Pages of the allocation in each region.
const ALLOCATED_PAGES: u64 = 3;

/// What is broken on purpose, to prove that the checker can fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MoveSabotage {
    /// The protocol of one phase: the target serves the region when it has all of it, the source closes it when it
    /// hears so, and opens it again if it does not.
    OnePhase,
    /// The target serves a region as soon as it is prepared.
    EagerTarget,
    /// The source closes a region for good without waiting until it is prepared.
    HastySource,
    /// A word of any move opens whatever range is on its way.
    AnyWord,
    /// The target does not look at the number of a move.
    AnyNumber,
    /// The target drops a prepared region of which it has heard nothing for a while.
    ForgetfulTarget,
    /// The controller does not tell the target that the source has closed a region.
    SilentController,
}

/// Runs `seed`, with `sabotage` if there is to be some. A panic of the code under test is a failure too.
pub fn simulate_moves(seed: u64, sabotage: Option<MoveSabotage>, trace: Trace) -> Result<Counts<MoveCount>, Failure> {
    caught(seed, || world::World::new(seed, sabotage, trace).run())
}
