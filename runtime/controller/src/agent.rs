//! What a memory node does for a controller: [`NodeAgent`], which `runtime/node` implements and [`NodeLink`] calls.
//!
//! All calls come from one thread, in the order of the controller's commands. A command may come again after the
//! connection was lost; doing it again must be the same as doing it once.
//!
//! [`NodeLink`]: crate::NodeLink

use std::collections::BTreeMap;
use std::sync::mpsc::Sender;

use yonder_placement::{Capabilities, Command, MoveId, MoveOrder, NodeReport, Outcome, Pid};

/// Most moves whose end is remembered. The controller asks only for those under way, which are few.
const MOVES_REMEMBERED_MAX: usize = 1024;

/// A memory node, as its controller sees it.
///
/// Address spaces of a controller have numbers from [`Pid::FIRST`]; a node gives smaller ones to those that it makes by
/// itself. Region `r` of a space is the addresses from `r * region_bytes` up to `(r + 1) * region_bytes`.
pub trait NodeAgent: Send {
    /// How full the node is, and each region that has allocations. Called about three times in a lease.
    fn report(&mut self) -> NodeReport;

    /// All address spaces that the node has; those of others than the controller may be among them.
    fn spaces(&mut self) -> Vec<Pid>;

    /// Makes an address space, which `tenant` alone may use if there is one, or finds the one it made; the capabilities
    /// are the same every time. An error is one line
    /// that says why the node cannot.
    fn create_space(&mut self, pid: Pid, tenant: Option<&str>) -> Result<Capabilities, String>;

    /// Ends an address space and frees all its memory. Nothing, if there is none. A move of one of its regions fails.
    fn destroy_space(&mut self, pid: Pid);

    /// Serves a region that a move has brought here: its source has closed it for good. Nothing, if the source has said
    /// so here already. From then on [`NodeReport::arrived`] does not name it. An error is one line.
    fn open_region(&mut self, pid: Pid, region: u32, id: MoveId) -> Result<(), String>;

    /// Frees all allocations in a region that is not this node's: parts left by a move to here that failed. Nothing, if
    /// there are none. Refuses from then on what comes of moves with a smaller number than `before`. An error is one
    /// line.
    fn drop_region(&mut self, pid: Pid, region: u32, before: MoveId) -> Result<(), String>;

    /// Frees all allocations in a region that its owner does not use any more, also if this node serves them, or moves
    /// them away: then the move is called off. Refuses from then on what comes of moves with a smaller number than
    /// `before`. An error is one line; the controller asks again as long as a report names the region.
    fn give_up_region(&mut self, pid: Pid, region: u32, before: MoveId) -> Result<(), String>;

    /// Begins to move a region to another node, and returns at once. An order is never given twice. The node
    /// - refuses requests to the region as busy, and waits for those under way;
    /// - makes the region's allocations at the target, with their permissions, and copies what is not zero;
    /// - when the target has said that it has prepared all of it, ends the move well: from then on it refuses requests
    ///   to the region as moved, and has freed its memory. It says so for as long as the space lives, or until the
    ///   region moves back here. A region without allocations is moved too. Only now it tells the target to serve the
    ///   region, and goes on whether it hears an answer or not: the controller tells the target too;
    /// - or, if the target does not take all of it within a time, ends the move badly and serves the region again.
    fn start_move(&mut self, order: MoveOrder, end: MoveEnd);
}

/// How a move ends: exactly once, from any thread. Dropped, it ends badly.
#[derive(Debug)]
pub struct MoveEnd {
    id: MoveId,
    ended: Option<Sender<crate::link::Event>>,
}

impl MoveEnd {
    pub(crate) fn new(id: MoveId, ended: Sender<crate::link::Event>) -> Self {
        Self { id, ended: Some(ended) }
    }

    /// The target has prepared all of the region, and this node refuses it as moved, for good.
    pub fn moved(mut self) {
        self.end(Outcome::Moved { id: self.id });
    }

    /// This node has all of the region and serves it. The cause is one line.
    pub fn failed(mut self, cause: impl Into<String>) {
        self.end(Outcome::MoveFailed { id: self.id, cause: cause.into() });
    }

    fn end(&mut self, outcome: Outcome) {
        if let Some(ended) = self.ended.take() {
            // Without a link there is nobody to tell; the controller asks again when there is one.
            let _ = ended.send(crate::link::Event::MoveEnded(self.id, outcome));
        }
    }
}

impl Drop for MoveEnd {
    fn drop(&mut self) {
        self.end(Outcome::MoveFailed { id: self.id, cause: "the node has given the move up".to_owned() });
    }
}

/// Executes commands on an agent, each move once.
pub(crate) struct Executor {
    agent: Box<dyn NodeAgent>,
    /// Moves by name; `None` while under way.
    moves: BTreeMap<MoveId, Option<Outcome>>,
    ended: Sender<crate::link::Event>,
}

impl Executor {
    pub(crate) fn new(agent: Box<dyn NodeAgent>, ended: Sender<crate::link::Event>) -> Self {
        Self { agent, moves: BTreeMap::new(), ended }
    }

    pub(crate) fn report(&mut self) -> NodeReport {
        self.agent.report()
    }

    pub(crate) fn spaces(&mut self) -> Vec<Pid> {
        self.agent.spaces()
    }

    /// Executes a command. A move has no outcome yet, unless it was ordered before and has ended.
    pub(crate) fn execute(&mut self, command: Command) -> Option<Outcome> {
        match command {
            Command::CreateSpace { pid, tenant } => Some(match self.agent.create_space(pid, tenant.as_deref()) {
                Ok(capabilities) => Outcome::SpaceCreated { pid, capabilities },
                Err(cause) => Outcome::SpaceRefused { pid, cause },
            }),
            Command::DestroySpace { pid } => {
                self.agent.destroy_space(pid);
                Some(Outcome::SpaceDestroyed { pid })
            }
            Command::OpenRegion { pid, region, id } => match self.agent.open_region(pid, region, id) {
                Ok(()) => Some(Outcome::RegionOpened { pid, region, id }),
                Err(cause) => {
                    tracing::error!("region {region} of address space {pid} cannot be served: {cause}");
                    None
                }
            },
            Command::DropRegion { pid, region, before, is_given_up } => {
                let dropped = if is_given_up {
                    self.agent.give_up_region(pid, region, before)
                } else {
                    self.agent.drop_region(pid, region, before)
                };
                match dropped {
                    Ok(()) => Some(Outcome::RegionDropped { pid, region }),
                    Err(cause) => {
                        tracing::warn!("what is left of region {region} of address space {pid} is not freed: {cause}");
                        None
                    }
                }
            }
            Command::MoveRegion(order) => {
                if let Some(known) = self.moves.get(&order.id) {
                    return known.clone();
                }
                self.moves.insert(order.id, None);
                let end = MoveEnd::new(order.id, self.ended.clone());
                self.agent.start_move(order, end);
                None
            }
        }
    }

    /// Remembers how a move ended.
    pub(crate) fn ended(&mut self, id: MoveId, outcome: Outcome) {
        self.moves.insert(id, Some(outcome));
        while self.moves.len() > MOVES_REMEMBERED_MAX
            && let Some(oldest) = self.moves.iter().find(|(_, end)| end.is_some()).map(|(id, _)| *id)
        {
            self.moves.remove(&oldest);
        }
    }
}
