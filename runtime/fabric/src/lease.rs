//! [`Lease`]: until when an address space is there for certain, by this machine's clock.
//!
//! A node ends an address space of which it has heard nothing for the length of its lease. It counts from when a
//! renewal arrived; the client counts from when it was *sent*, and not quite as long, so the client's end is the
//! earlier one although clocks differ. Behind it nothing that the mapped memory of a node says counts, and nothing is
//! sent: a client that stood still (a debugger, SIGSTOP, suspend) fails, in place of reading zeros or another tenant's
//! bytes. An answered renewal makes it go on: the address space is there then, for a node never makes one with an old
//! number again.
//!
//! The clock is CLOCK_BOOTTIME, which goes on while the machine sleeps. The time stamp counter, which all else here
//! uses, may stand still or begin anew meanwhile. It is read without a system call, in some 30 ns.
//!
//! Any thread reads `end`; the thread that renews moves it, forwards only.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use yonder_units::Nanos;

/// One part in so many of a lease is not used: what the clocks of client and node may differ by in their pace.
const DRIFT_SHARE: Nanos = 32;
/// The end of a lease that has none.
const NEVER: Nanos = Nanos::MAX;

/// The client's view of a lease.
#[derive(Debug)]
pub(crate) struct Lease {
    /// How long it is used after a renewal was sent; 0 if it has no end.
    used: Nanos,
    /// Its end on the clock.
    end: AtomicU64,
}

impl Lease {
    /// A lease of `length`, or without an end if that is zero. It was asked for at `asked`.
    pub(crate) fn new(length: Duration, asked: Nanos) -> Self {
        let length = Nanos::try_from(length.as_nanos()).unwrap_or(NEVER);
        let used = length - length / DRIFT_SHARE;
        let end = if used == 0 { NEVER } else { asked.saturating_add(used) };
        Self { used, end: AtomicU64::new(end) }
    }

    /// The node has answered a renewal that was sent at `asked` or later.
    pub(crate) fn renew(&self, asked: Nanos) {
        if self.used > 0 {
            self.end.fetch_max(asked.saturating_add(self.used), Ordering::AcqRel);
        }
    }

    /// Whether the node may have ended the address space by now.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        let end = self.end.load(Ordering::Acquire);
        end != NEVER && now() >= end
    }
}

/// The clock by which leases are counted.
#[inline]
pub(crate) fn now() -> Nanos {
    yonder_clock::boottime()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_ends_before_the_node_ends_it_and_goes_on_when_it_is_renewed() {
        let length = Duration::from_secs(64);
        let asked = now() - 63_000_000_000;
        let lease = Lease::new(length, asked);
        assert!(lease.is_over(), "the node may be faster");
        lease.renew(asked + 10_000_000_000);
        assert!(!lease.is_over());
        lease.renew(asked);
        assert!(!lease.is_over(), "an answer that comes late ends nothing");
    }

    #[test]
    fn without_a_length_there_is_no_end() {
        let lease = Lease::new(Duration::ZERO, 0);
        lease.renew(0);
        assert!(!lease.is_over());
    }
}
