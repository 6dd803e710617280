//! [`Spaces`]: which address spaces there are, and until when; [`SpaceLimits`]: how many, and for how long.
//!
//! An address space may have a lease: unless it is renewed, it ends when its time is over, so that what a client leaves
//! behind when it fails is freed. One that is moving does not end meanwhile. What a client has made by message always
//! has one, and counts as its source's; a controller's and an offload's have none, and are counted apart.
//!
//! One owner, the slow path. Invariants: an address space with a lease is in `expiries` once, at its time; `of_source`
//! counts those that have a source.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use yonder_wire::ErrorCode;

use crate::accounts::AccountNumber;
use crate::address::Pid;
use crate::capability::Capabilities;
use crate::lease_clock::LeaseClock;
use crate::lives::{LIFE_MAX, Life, Lives};
use crate::recent::NodeTime;
use crate::source::{Share, Source};

const NANOS_PER_MILLISECOND: u64 = 1_000_000;
/// One source may have one of so many address spaces.
const SHARE_DIVISOR: usize = 8;
/// Most that it may have of the last quarter.
const FEW_MAX: usize = 16;
/// Numbers and lives of address spaces that one source may use up in an hour: they never come back.
const LIVES_PER_HOUR: u32 = 1 << 16;
const NANOS_PER_HOUR: NodeTime = 3_600_000_000_000;

/// How many address spaces there may be, and how long those last that nobody renews.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpaceLimits {
    /// Address spaces of clients at a time; and as many that the shell has made.
    pub spaces_max: usize,
    /// Lease of a client's address space that was made without one, in milliseconds.
    pub lease_default_ms: u32,
    /// Longest lease that a client may ask for, in milliseconds.
    pub lease_max_ms: u32,
}

impl SpaceLimits {
    /// So many address spaces, with leases of seven weeks: as good as none.
    #[must_use]
    pub const fn of(spaces_max: usize) -> Self {
        Self { spaces_max, lease_default_ms: u32::MAX, lease_max_ms: u32::MAX }
    }

    fn share(&self) -> Share {
        let of_one_max = self.spaces_max.div_ceil(SHARE_DIVISOR);
        Share { places_max: self.spaces_max, of_one_max, few_max: FEW_MAX }
    }
}

/// The address spaces of a node.
#[derive(Debug)]
pub(crate) struct Spaces {
    spaces: HashMap<Pid, Space>,
    /// Those that have ended and whose memory is being freed, and who pays for it: their numbers are nobody's yet.
    ending: HashMap<Pid, AccountNumber>,
    /// Ends of leases, on `clock`.
    expiries: BTreeSet<(NodeTime, Pid)>,
    clock: LeaseClock,
    limits: SpaceLimits,
    /// How many address spaces of clients there are, in all and by source.
    of_clients: usize,
    of_source: HashMap<Source, usize>,
    /// Lives that sources have begun in an hour.
    begun: (NodeTime, HashMap<Source, u32>),
    /// How many numbers have been drawn.
    turn: u64,
    /// The life that began last, and those that are present.
    last_life: Life,
    lives: Arc<Lives>,
}

#[derive(Debug)]
struct Space {
    /// Its length, and its end on the clock of leases; `None` if it has no lease.
    lease: Option<(u64, NodeTime)>,
    /// Where it was asked for; `None` if the shell has made it.
    source: Option<Source>,
    owner: Owner,
    /// Ranges that are moving.
    moves: u32,
    life: Life,
}

/// Whose an address space is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Owner {
    /// The tenant that alone may use it; 0 if anyone may who has the capability.
    pub(crate) tenant: u16,
    /// Who pays for what it has.
    pub(crate) payer: AccountNumber,
}

impl Spaces {
    pub(crate) fn new(limits: SpaceLimits, lease_step_max: NodeTime, lives: Arc<Lives>) -> Self {
        Self {
            spaces: HashMap::new(),
            ending: HashMap::new(),
            expiries: BTreeSet::new(),
            clock: LeaseClock::new(lease_step_max),
            limits,
            of_clients: 0,
            of_source: HashMap::new(),
            begun: (0, HashMap::new()),
            turn: 0,
            last_life: 0,
            lives,
        }
    }

    /// Makes an address space for a client at `source`, and says how long its lease is.
    ///
    /// # Errors
    /// `BadLength` if the lease would be longer than it may be, `OutOfMemory` if the source has its share.
    pub(crate) fn create_for(
        &mut self,
        source: Source,
        payer: AccountNumber,
        lease_ms: u32,
        now: NodeTime,
        numbers: &Capabilities,
    ) -> Result<(Pid, u32), ErrorCode> {
        let lease_ms = if lease_ms == 0 { self.limits.lease_default_ms } else { lease_ms };
        if lease_ms > self.limits.lease_max_ms {
            return Err(ErrorCode::BadLength);
        }
        let own = self.of_source.get(&source).copied().unwrap_or(0);
        if !self.limits.share().admits(self.of_clients, own) {
            return Err(ErrorCode::OutOfMemory);
        }
        self.may_begin(source, now)?;
        let pid = self.draw(numbers).ok_or(ErrorCode::OutOfMemory)?;
        let owner = Owner { tenant: source.tenant().unwrap_or(0), payer };
        self.insert(pid, lease_ms, Some(source), owner, now)?;
        Ok((pid, lease_ms))
    }

    /// Makes an address space for the shell, with the number `wanted`, or with one that is drawn. Without a lease if
    /// that is 0.
    pub(crate) fn create(
        &mut self,
        wanted: Option<Pid>,
        owner: Owner,
        lease_ms: u32,
        now: NodeTime,
        numbers: &Capabilities,
    ) -> Result<Pid, ErrorCode> {
        if self.spaces.len() - self.of_clients >= self.limits.spaces_max {
            return Err(ErrorCode::OutOfMemory);
        }
        let pid = match wanted {
            Some(pid) if self.contains(pid) => return Err(ErrorCode::BadAddress),
            Some(pid) if self.is_ending(pid) => return Err(ErrorCode::Busy),
            Some(pid) => pid,
            None => self.draw(numbers).ok_or(ErrorCode::OutOfMemory)?,
        };
        self.insert(pid, lease_ms, None, owner, now)?;
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
        self.ending.contains_key(&pid)
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
        if let Some(source) = space.source {
            self.of_clients -= 1;
            let own = self.of_source.get_mut(&source).expect("it counts this one");
            *own -= 1;
            if *own == 0 {
                self.of_source.remove(&source);
            }
        }
        self.ending.insert(pid, space.owner.payer);
        self.spaces.remove(&pid);
        self.lives.end(pid);
        Ok(())
    }

    /// An address space that was ended has nothing any more.
    pub(crate) fn has_ended(&mut self, pid: Pid) {
        assert!(self.ending.remove(&pid).is_some(), "an address space ends once");
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

    /// The present life of an address space; none that ever was if there is no such space.
    pub(crate) fn life_of(&self, pid: Pid) -> Life {
        self.spaces.get(&pid).map_or(0, |space| space.life)
    }

    /// The tenant that an address space is of, if it is one that is known by name; else 0.
    pub(crate) fn tenant_of(&self, pid: Pid) -> u16 {
        self.spaces.get(&pid).map_or(0, |space| space.owner.tenant)
    }

    /// Who pays for what an address space has, also while that is being freed.
    pub(crate) fn payer_of(&self, pid: Pid) -> AccountNumber {
        let living = self.spaces.get(&pid).map(|space| space.owner.payer);
        living.or_else(|| self.ending.get(&pid).copied()).unwrap_or(AccountNumber::SHARED)
    }

    /// Begins another life of an address space: all capabilities of the one before are void.
    pub(crate) fn revoke(&mut self, pid: Pid, now: NodeTime) -> Result<Life, ErrorCode> {
        if let Some(source) = self.spaces.get(&pid).and_then(|space| space.source) {
            self.may_begin(source, now)?;
        }
        let life = self.next_life()?;
        self.spaces.get_mut(&pid).ok_or(ErrorCode::BadCapability)?.life = life;
        self.lives.renew(pid, life);
        Ok(life)
    }

    /// Counts a life that a source begins.
    fn may_begin(&mut self, source: Source, now: NodeTime) -> Result<(), ErrorCode> {
        let (hour, begun) = &mut self.begun;
        if *hour != now / NANOS_PER_HOUR {
            *hour = now / NANOS_PER_HOUR;
            begun.clear();
        }
        let count = begun.entry(source).or_default();
        if *count >= LIVES_PER_HOUR {
            return Err(ErrorCode::OutOfMemory);
        }
        *count += 1;
        Ok(())
    }

    /// A life that none had before.
    fn next_life(&mut self) -> Result<Life, ErrorCode> {
        if self.last_life == LIFE_MAX {
            return Err(ErrorCode::OutOfMemory);
        }
        self.last_life += 1;
        Ok(self.last_life)
    }

    fn insert(
        &mut self,
        pid: Pid,
        lease_ms: u32,
        source: Option<Source>,
        owner: Owner,
        now: NodeTime,
    ) -> Result<(), ErrorCode> {
        let life = self.next_life()?;
        if !self.lives.begin(pid, life, owner.payer) {
            return Err(ErrorCode::OutOfMemory);
        }
        let length = u64::from(lease_ms) * NANOS_PER_MILLISECOND;
        let now = self.clock.look(now);
        let lease = (length > 0).then(|| (length, now.saturating_add(length)));
        self.expiries.extend(lease.map(|(_, end)| (end, pid)));
        if let Some(source) = source {
            self.of_clients += 1;
            *self.of_source.entry(source).or_default() += 1;
        }
        self.spaces.insert(pid, Space { lease, source, owner, moves: 0, life });
        Ok(())
    }

    /// A number that no address space had before; `None` once there are none.
    fn draw(&mut self, numbers: &Capabilities) -> Option<Pid> {
        self.turn += 1;
        let pid = numbers.draw(self.turn)?;
        assert!(!self.contains(pid) && !self.is_ending(pid), "a number is drawn once");
        Some(pid)
    }
}
