//! [`LeaseClock`], by which all leases run; and [`SpaceLeases`]: how long each address space is there without a word of
//! its owner.
//!
//! An address space ends when its lease is over, unless a request with the owner's key renews it, so that what a killed
//! program leaves behind is free again. Lengths are records; how far a lease has run is not, and a controller that
//! starts begins them all anew: while none serves, no owner can renew.
//!
//! For the same reason leases, those of nodes too, run by at most [`SPACE_LEASE_STEP_MAX`] between two looks at the
//! clock. A controller that stood still (SIGSTOP, a paused virtual machine, a slow store) has the renewals of all
//! owners, and the reports of all nodes, in its sockets, unread. And what is handled late is judged by when it came:
//! behind it are renewals that came in time: leases of nodes by what nodes have said, for nothing else renews them, and
//! what a tenant asks holds none of them up. A lease begins anew when that is said, and not when it was asked for: what
//! others have waiting is older, perhaps, than a lease is long.
//!
//! Invariants: a lease is in `order` once, at its end; leases run no faster than the clock, and behind it by no more
//! than what is handled has waited.

use std::collections::{BTreeMap, BTreeSet};

use yonder_units::Nanos;

use crate::names::Pid;

/// Longest time between two looks at the clock for which leases of address spaces and nodes run, as at a node. A
/// controller takes an event, if only [`Event::Tick`](crate::Event::Tick), more often than that.
pub const SPACE_LEASE_STEP_MAX: Nanos = 600_000_000;
/// Longest lease of an address space, and the one of those that were made without: a day, as at a node.
pub const SPACE_LEASE_MS_MAX: u32 = yonder_wire::LEASE_MS_MAX;

/// Shortest lease of an address space, unless [`Config::space_lease_ms_min`](crate::Config) says otherwise. An owner
/// renews once in a quarter of its lease. That is longer than two looks at the clock, and leaves it seconds to try
/// again on a busy machine, or where another controller has taken over.
pub const SPACE_LEASE_MS_MIN: u32 = 5000;

const NANOS_PER_MILLISECOND: Nanos = 1_000_000;

const _: () = assert!(SPACE_LEASE_MS_MIN as Nanos / 4 * NANOS_PER_MILLISECOND > 2 * SPACE_LEASE_STEP_MAX);

/// The length of the lease that an owner gets who asks for this one, where `lease_ms_min` is the shortest; 0 asks for
/// the longest.
pub(crate) fn granted(lease_ms: u32, lease_ms_min: u32) -> u32 {
    if lease_ms == 0 { SPACE_LEASE_MS_MAX } else { lease_ms.clamp(lease_ms_min, SPACE_LEASE_MS_MAX) }
}

/// When an event is handled, and what is still to be handled then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Times {
    /// What the clock shows.
    pub clock: Nanos,
    /// When the event came.
    pub came: Nanos,
    /// All that came before has been handled. It never goes back.
    pub heard_until: Nanos,
    /// All that nodes said before has been handled. It never goes back, and is not before `heard_until`.
    pub nodes_heard_until: Nanos,
}

impl Times {
    /// Of an event that has just come, behind which nothing waits.
    #[must_use]
    pub const fn at(now: Nanos) -> Self {
        Self { clock: now, came: now, heard_until: now, nodes_heard_until: now }
    }
}

/// How far leases have run, which is behind the clock by all that it has leaped.
#[derive(Debug)]
pub(crate) struct LeaseClock {
    /// What the clock showed at the last look.
    seen: Nanos,
    /// How far leases would have run then, if nothing had waited.
    run: Nanos,
    /// How far those of address spaces had.
    reached: Nanos,
    /// How far those of nodes had.
    reached_of_nodes: Nanos,
}

impl LeaseClock {
    pub(crate) fn new(now: Nanos) -> Self {
        Self { seen: now, run: 0, reached: 0, reached_of_nodes: 0 }
    }

    /// A look at the clock: leases run on.
    pub(crate) fn look(&mut self, times: Times) {
        let Times { clock, heard_until, nodes_heard_until, .. } = times;
        self.run += clock.saturating_sub(self.seen).min(SPACE_LEASE_STEP_MAX);
        self.seen = self.seen.max(clock);
        let reached = |heard_until| self.run.saturating_sub(clock.saturating_sub(heard_until));
        let [of_spaces, of_nodes] = [heard_until, nodes_heard_until].map(reached);
        self.reached = self.reached.max(of_spaces);
        self.reached_of_nodes = self.reached_of_nodes.max(of_nodes);
    }

    /// What the clock showed at the last look.
    pub(crate) fn shown(&self) -> Nanos {
        self.seen
    }

    /// The end of a lease of this length that begins now, in the time of leases.
    pub(crate) fn end_of(&self, length: Nanos) -> Nanos {
        self.run.saturating_add(length)
    }

    /// Whether a lease of an address space is over that ends then.
    pub(crate) fn is_over(&self, end: Nanos) -> bool {
        end <= self.reached
    }

    /// Whether a lease of a node is over that ends then.
    pub(crate) fn is_over_of_node(&self, end: Nanos) -> bool {
        end <= self.reached_of_nodes
    }

    /// What the clock shows when that lease is over, if it goes on as it should.
    pub(crate) fn shows_at(&self, end: Nanos) -> Nanos {
        self.seen.saturating_add(end.saturating_sub(self.run))
    }
}

/// The leases of all address spaces.
#[derive(Debug)]
pub(crate) struct SpaceLeases {
    pub(crate) clock: LeaseClock,
    /// The end of each, in the time of leases.
    ends: BTreeMap<Pid, Nanos>,
    /// The same, the next one first.
    order: BTreeSet<(Nanos, Pid)>,
}

impl SpaceLeases {
    /// No leases yet.
    pub(crate) fn new(now: Nanos) -> Self {
        Self { clock: LeaseClock::new(now), ends: BTreeMap::new(), order: BTreeSet::new() }
    }

    /// Begins a lease, or begins it anew.
    pub(crate) fn renew(&mut self, pid: Pid, lease_ms: u32) {
        let end = self.clock.end_of(Nanos::from(lease_ms) * NANOS_PER_MILLISECOND);
        self.forget(pid);
        self.ends.insert(pid, end);
        self.order.insert((end, pid));
    }

    /// The address space has ended.
    pub(crate) fn forget(&mut self, pid: Pid) {
        if let Some(end) = self.ends.remove(&pid) {
            self.order.remove(&(end, pid));
        }
    }

    /// The next one that is over.
    pub(crate) fn over(&self) -> Option<Pid> {
        self.order.first().filter(|(end, _)| self.clock.is_over(*end)).map(|(_, pid)| *pid)
    }

    /// What the clock shows when the next one is over, if it goes on as it should.
    pub(crate) fn next_end(&self) -> Option<Nanos> {
        self.order.first().map(|(end, _)| self.clock.shows_at(*end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = NANOS_PER_MILLISECOND;

    fn late(heard_until: Nanos, clock: Nanos) -> Times {
        Times { heard_until, nodes_heard_until: heard_until, ..Times::at(clock) }
    }

    #[test]
    fn leases_end_in_their_order_and_later_if_they_are_renewed() {
        let (a, b) = (Pid::FIRST, Pid(Pid::FIRST.0 + 1));
        let mut leases = SpaceLeases::new(7);
        leases.renew(a, 100);
        leases.renew(b, 200);
        assert_eq!(leases.next_end(), Some(7 + 100 * MS));
        leases.clock.look(Times::at(7 + 99 * MS));
        assert_eq!(leases.over(), None);
        leases.renew(a, 150);
        leases.clock.look(Times::at(7 + 200 * MS));
        assert_eq!(leases.over(), Some(b));
        leases.forget(b);
        assert_eq!((leases.over(), leases.next_end()), (None, Some(7 + 249 * MS)));
        leases.clock.look(Times::at(7 + 249 * MS));
        assert_eq!(leases.over(), Some(a));
        leases.forget(a);
        leases.forget(a);
        assert_eq!((leases.over(), leases.next_end()), (None, None));
        assert!(leases.order.is_empty() && leases.ends.is_empty());
    }

    #[test]
    fn a_leap_of_the_clock_is_no_silence() {
        let mut leases = SpaceLeases::new(0);
        leases.renew(Pid::FIRST, 1000);
        leases.clock.look(Times::at(3600 * 1000 * MS));
        assert_eq!((leases.over(), leases.next_end()), (None, Some(3600 * 1000 * MS + 400 * MS)));
        leases.clock.look(Times::at(0));
        leases.clock.look(Times::at(3600 * 1000 * MS + 400 * MS));
        assert_eq!(leases.over(), Some(Pid::FIRST));
    }

    /// Requests that come in bursts, and each of which waits for those before it, hold no lease up.
    #[test]
    fn what_waits_delays_the_end_of_a_lease_by_as_long_and_no_longer() {
        let mut leases = SpaceLeases::new(0);
        leases.renew(Pid::FIRST, 10_000);
        let over_at = (0..).find(|burst| {
            (0..100).for_each(|request| leases.clock.look(late(burst * 100 * MS, (burst * 100 + request) * MS)));
            leases.over().is_some()
        });
        assert_eq!(over_at, Some(100));
    }

    /// One of another party, whose oldest word waits for long, while the owner's are heard at once: what waits is gone
    /// in the end, and by a lease that had begun when it came all owners were too late.
    #[test]
    fn a_lease_begins_when_it_is_renewed_whatever_waits() {
        let mut leases = SpaceLeases::new(0);
        for clock in (0..=100).map(|step| step * 250 * MS) {
            leases.clock.look(late(0, clock));
            leases.renew(Pid::FIRST, 1000);
        }
        leases.clock.look(Times::at(25_000 * MS));
        assert_eq!((leases.over(), leases.next_end()), (None, Some(26_000 * MS)));
        leases.clock.look(Times::at(25_500 * MS));
        leases.clock.look(Times::at(26_000 * MS));
        assert_eq!(leases.over(), Some(Pid::FIRST));
    }

    #[test]
    fn lengths_are_the_shortest_at_least_and_a_day_at_most() {
        let granted = |lease_ms| granted(lease_ms, 5000);
        assert_eq!([0, 1, 60_000, u32::MAX].map(granted), [SPACE_LEASE_MS_MAX, 5000, 60_000, SPACE_LEASE_MS_MAX]);
    }
}
