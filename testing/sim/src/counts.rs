//! [`Counts`]: how often what happened in a run, to see that runs are about something.

use crate::history::End;

/// How often things happened.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Operations that were done.
    pub done: u64,
    /// Operations that were refused, by code.
    pub refused: [u64; 15],
    /// Operations of which nobody knows.
    pub unknown: u64,
    /// Operations that were cancelled.
    pub cancelled: u64,
    /// Requests that were sent.
    pub requests: u64,
    /// Requests that nodes had executed before.
    pub repeated: u64,
    /// Aborts that were answered.
    pub aborts: u64,
    /// Nodes that lost everything.
    pub restarts: u64,
    /// Events.
    pub events: u64,
    /// Leases that ran out.
    pub leases_over: u64,
    /// Leases that were renewed.
    pub renewals: u64,
    /// Processes that ended, and others that began in their place.
    pub process_restarts: u64,
    /// What a tenant sent that claims several times for one request.
    pub lies: u64,
    /// Frees and ends of address spaces that took several pieces.
    pub in_pieces: u64,
    /// Words that were judged by themselves.
    pub words: u64,
}

impl Counts {
    /// Counts what happened in another run too.
    pub fn add(&mut self, other: &Self) {
        for (sum, more) in self.refused.iter_mut().zip(other.refused) {
            *sum += more;
        }
        let sums = [
            (&mut self.done, other.done),
            (&mut self.unknown, other.unknown),
            (&mut self.cancelled, other.cancelled),
            (&mut self.requests, other.requests),
            (&mut self.repeated, other.repeated),
            (&mut self.aborts, other.aborts),
            (&mut self.restarts, other.restarts),
            (&mut self.events, other.events),
            (&mut self.leases_over, other.leases_over),
            (&mut self.renewals, other.renewals),
            (&mut self.process_restarts, other.process_restarts),
            (&mut self.lies, other.lies),
            (&mut self.in_pieces, other.in_pieces),
            (&mut self.words, other.words),
        ];
        for (sum, more) in sums {
            *sum += more;
        }
    }

    /// An operation has ended.
    pub(crate) fn count(&mut self, end: End) {
        match end {
            End::Done(_) => self.done += 1,
            End::Refused(code) => self.refused[code as usize] += 1,
            End::Unknown => self.unknown += 1,
            End::Cancelled => self.cancelled += 1,
        }
    }
}

/// How often things happened in a run of [`simulate_order`](crate::simulate_order).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct OrderCounts {
    /// Writes that were acknowledged.
    pub writes: u64,
    /// Reads that were compared.
    pub reads: u64,
    /// Writes that were left out because the node has the content.
    pub clean: u64,
    /// Discards and frees that the node agreed to.
    pub settled: u64,
    /// Discards and frees that were given up.
    pub given_up: u64,
    /// Times at which the slow path stood still.
    pub stalls: u64,
}

impl OrderCounts {
    /// Adds those of another run.
    pub fn add(&mut self, other: &Self) {
        self.writes += other.writes;
        self.reads += other.reads;
        self.clean += other.clean;
        self.settled += other.settled;
        self.given_up += other.given_up;
        self.stalls += other.stalls;
    }
}
