//! [`Nic`]: queue pairs, the link and the memory node, as one thread sees them (DiLOS, section 4.5: a queue for each
//! module).
//!
//! A read of a page arrives a fetch's latency after it was posted, or when the link has carried what was before it.
//! Reads ahead share a queue pair, which begins one in an interval; a read on demand has a queue pair of its own and is
//! behind none of them. The link carries both ways at a time. Pages of one queue pair follow one another on it, those
//! of two do not wait for each other: one thread, which waits for each page that it misses, never fills the link with
//! both.

use yonder_units::Nanos;

use crate::costs::{dilos, testbed};

/// Which queue pair a read is posted on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Queue {
    /// That of faults.
    Demand,
    /// The prefetcher's.
    Ahead,
}

/// When its parts are free again.
#[derive(Debug, Default)]
pub(super) struct Nic {
    ahead_free: Nanos,
    /// For each queue pair.
    inbound_free: [Nanos; 2],
    outbound_free: Nanos,
}

impl Nic {
    /// A page is asked for at `at`: when it is here.
    pub(super) fn read(&mut self, at: Nanos, queue: Queue) -> Nanos {
        let begin = match queue {
            Queue::Demand => at,
            Queue::Ahead => {
                let begin = at.max(self.ahead_free);
                self.ahead_free = begin + dilos::AHEAD.ns();
                begin
            }
        };
        let free = &mut self.inbound_free[queue as usize];
        let arrival = (begin + dilos::FETCH.ns()).max(*free + testbed::page_wire_ns());
        *free = arrival;
        arrival
    }

    /// A page is sent at `at`: when the node has acknowledged it.
    pub(super) fn write(&mut self, at: Nanos) -> Nanos {
        let begin = at.max(self.outbound_free);
        self.outbound_free = begin + testbed::page_wire_ns();
        begin + dilos::FETCH.ns()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_on_demand_is_not_behind_reads_ahead() {
        let mut nic = Nic::default();
        let ahead: Vec<Nanos> = (0..4).map(|_| nic.read(0, Queue::Ahead)).collect();
        let interval = dilos::AHEAD.ns();
        assert_eq!(ahead, (0..4).map(|step| dilos::FETCH.ns() + step * interval).collect::<Vec<_>>());
        let at = interval / 2;
        assert_eq!(nic.read(at, Queue::Demand), at + dilos::FETCH.ns());
        assert_eq!(
            nic.read(at, Queue::Demand),
            at + dilos::FETCH.ns() + testbed::page_wire_ns(),
            "the link carries one at a time"
        );
    }

    #[test]
    fn writes_follow_one_another_and_leave_reads_alone() {
        let mut nic = Nic::default();
        let acks: Vec<Nanos> = (0..3).map(|_| nic.write(7)).collect();
        assert_eq!(acks[2] - acks[0], 2 * testbed::page_wire_ns());
        assert_eq!(nic.read(7, Queue::Demand), 7 + dilos::FETCH.ns());
    }
}
