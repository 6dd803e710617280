//! [`Spaces`]: which address spaces there are, and until when.
//!
//! An address space may have a lease: unless it is renewed, it ends when its time is over, so that what a client leaves
//! behind when it fails is freed. One that is moving does not end meanwhile.
//!
//! One owner, the slow path. Invariant: an address space with a lease is in `expiries` once, at its time.

use std::collections::{BTreeSet, HashMap, HashSet};

use yonder_wire::ErrorCode;

use crate::address::Pid;
use crate::capability::Capabilities;
use crate::lease_clock::LeaseClock;
use crate::recent::NodeTime;

const NANOS_PER_MILLISECOND: u64 = 1_000_000;

/// The address spaces of a node.
#[derive(Debug)]
pub(crate) struct Spaces {
    spaces: HashMap<Pid, Space>,
    /// Those that have ended and whose memory is being freed: their numbers are nobody's yet.
    ending: HashSet<Pid>,
    /// Ends of leases, on `clock`.
    expiries: BTreeSet<(NodeTime, Pid)>,
    clock: LeaseClock,
    spaces_max: usize,
    /// How many numbers have been drawn.
    turn: u64,
}

#[derive(Debug)]
struct Space {
    /// Its length, and its end on the clock of leases; `None` if it has no lease.
    lease: Option<(u64, NodeTime)>,
    /// Ranges that are moving.
    moves: u32,
}

impl Spaces {
    pub(crate) fn new(spaces_max: usize, lease_step_max: NodeTime) -> Self {
        let (spaces, ending, expiries) = (HashMap::new(), HashSet::new(), BTreeSet::new());
        Self { spaces, ending, expiries, clock: LeaseClock::new(lease_step_max), spaces_max, turn: 0 }
    }

    /// Makes an address space with the number `wanted`, or with one that is drawn. Without a lease if that is 0.
    pub(crate) fn create(
        &mut self,
        wanted: Option<Pid>,
        lease_ms: u32,
        now: NodeTime,
        numbers: &Capabilities,
    ) -> Result<Pid, ErrorCode> {
        if self.spaces.len() >= self.spaces_max {
            return Err(ErrorCode::OutOfMemory);
        }
        let pid = match wanted {
            Some(pid) if self.contains(pid) => return Err(ErrorCode::BadAddress),
            Some(pid) if self.ending.contains(&pid) => return Err(ErrorCode::Busy),
            Some(pid) => pid,
            None => self.draw(numbers).ok_or(ErrorCode::OutOfMemory)?,
        };
        let length = u64::from(lease_ms) * NANOS_PER_MILLISECOND;
        let now = self.clock.look(now);
        let lease = (length > 0).then(|| (length, now.saturating_add(length)));
        self.expiries.extend(lease.map(|(_, end)| (end, pid)));
        self.spaces.insert(pid, Space { lease, moves: 0 });
        Ok(pid)
    }

    /// All of them, in no order.
    pub(crate) fn each(&self) -> impl Iterator<Item = Pid> {
        self.spaces.keys().copied()
    }

    /// How many ranges of an address space move.
    pub(crate) fn moves_of(&self, pid: Pid) -> Result<u32, ErrorCode> {
        self.spaces.get(&pid).map(|space| space.moves).ok_or(ErrorCode::BadCapability)
    }

    pub(crate) fn contains(&self, pid: Pid) -> bool {
        self.spaces.contains_key(&pid)
    }

    /// Whether one has ended and still has something.
    pub(crate) fn is_ending(&self, pid: Pid) -> bool {
        self.ending.contains(&pid)
    }

    pub(crate) fn len(&self) -> usize {
        self.spaces.len()
    }

    /// Ends an address space, unless a range of it moves. Its number is used again after [`Spaces::has_ended`].
    pub(crate) fn remove(&mut self, pid: Pid) -> Result<(), ErrorCode> {
        let space = self.spaces.get(&pid).ok_or(ErrorCode::BadCapability)?;
        if space.moves > 0 {
            return Err(ErrorCode::Busy);
        }
        if let Some((_, end)) = space.lease {
            self.expiries.remove(&(end, pid));
        }
        self.spaces.remove(&pid);
        self.ending.insert(pid);
        Ok(())
    }

    /// An address space that was ended has nothing any more.
    pub(crate) fn has_ended(&mut self, pid: Pid) {
        assert!(self.ending.remove(&pid), "an address space ends once");
    }

    /// Begins the lease of an address space anew.
    pub(crate) fn renew(&mut self, pid: Pid, now: NodeTime) -> Result<(), ErrorCode> {
        let now = self.clock.look(now);
        let space = self.spaces.get_mut(&pid).ok_or(ErrorCode::BadCapability)?;
        if let Some((length, end)) = &mut space.lease {
            self.expiries.remove(&(*end, pid));
            *end = (*end).max(now.saturating_add(*length));
            self.expiries.insert((*end, pid));
        }
        Ok(())
    }

    /// When the next lease ends, if the node's clock neither leaps nor stops.
    pub(crate) fn next_expiry(&self) -> Option<NodeTime> {
        self.expiries.first().map(|(end, _)| self.clock.shows(*end))
    }

    /// An address space whose lease is over at `now`. One that moves gets another lease instead.
    pub(crate) fn expired(&mut self, now: NodeTime) -> Option<Pid> {
        let reached = self.clock.look(now);
        while let Some((_, pid)) = self.expiries.first().copied().filter(|(end, _)| *end <= reached) {
            if self.spaces[&pid].moves == 0 {
                return Some(pid);
            }
            self.renew(pid, now).ok()?;
            if self.expiries.first().is_some_and(|(end, _)| *end <= reached) {
                return None;
            }
        }
        None
    }

    /// Notes that a range of an address space begins to move.
    pub(crate) fn begin_move(&mut self, pid: Pid) {
        self.spaces.get_mut(&pid).expect("only a space that is there moves").moves += 1;
    }

    /// Notes that a range of an address space no longer moves.
    pub(crate) fn end_move(&mut self, pid: Pid) {
        self.spaces.get_mut(&pid).expect("a space that moves is not ended").moves -= 1;
    }

    /// A number that no address space had before; `None` once there are none.
    fn draw(&mut self, numbers: &Capabilities) -> Option<Pid> {
        self.turn += 1;
        let pid = numbers.draw(self.turn)?;
        assert!(!self.contains(pid) && !self.ending.contains(&pid), "a number is drawn once");
        Some(pid)
    }
}
