//! [`Delayed`]: a key-value handler some of whose requests wait as if for a page, as the poster emulates page faults.
//!
//! A fault has a part that keeps its worker busy (the exception, and asking for the page) and the time until the page
//! is there. A synchronous fault spins for both; an asynchronous one spins for the first and sleeps for the second, so
//! that it goes on as one whose page has come, ahead of new requests. Which requests wait is drawn by a number that
//! each gets, so that all ways of paging draw the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use yonder::clock;
use yonder::sched::{Handler, sleep_until};
use yonder::units::Nanos;
use yonder_kv::{KvReply, KvRequest};

/// How a request waits for its page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Waits {
    /// Not at all: no request has a fault.
    Never,
    /// Its worker spins.
    Synchronously,
    /// Its worker runs other requests.
    Asynchronously,
}

/// What a fault takes, and how many requests have one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delays {
    pub(super) waits: Waits,
    /// The part that keeps the worker busy in any case.
    pub(super) busy: Duration,
    /// The time until the page is there.
    pub(super) fetch: Duration,
    /// Share of the requests that have a fault, from 0 to 1.
    pub(super) share: f64,
}

/// What a benchmark shares with the handler.
#[derive(Debug, Default)]
pub(super) struct Switchboard {
    /// Whether requests wait: not while the store is filled.
    pub(super) is_on: AtomicBool,
    requests: AtomicU64,
    delayed: AtomicU64,
}

impl Switchboard {
    /// Requests so far while it was on, and those of them that have waited.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.requests.load(Ordering::Relaxed), self.delayed.load(Ordering::Relaxed))
    }
}

/// A handler whose requests wait, some of them.
pub(super) struct Delayed<H> {
    pub(super) inner: H,
    pub(super) delays: Delays,
    pub(super) switchboard: Arc<Switchboard>,
}

impl<H: Handler<Request = KvRequest, Reply = KvReply>> Handler for Delayed<H> {
    type Request = KvRequest;
    type Reply = KvReply;

    fn handle(&self, request: KvRequest) -> KvReply {
        // The server's own requests have no key.
        let counts = self.switchboard.is_on.load(Ordering::Relaxed) && self.inner.key(&request).is_some();
        if counts && self.delays.waits != Waits::Never {
            let number = self.switchboard.requests.fetch_add(1, Ordering::Relaxed);
            if has_fault(number, self.delays.share) {
                self.switchboard.delayed.fetch_add(1, Ordering::Relaxed);
                self.delays.wait();
            }
        }
        self.inner.handle(request)
    }

    fn key(&self, request: &KvRequest) -> Option<u64> {
        self.inner.key(request)
    }
}

impl Delays {
    fn wait(&self) {
        let until = |time: Duration| clock::now() + time.as_nanos() as Nanos;
        match self.waits {
            Waits::Never => {}
            Waits::Synchronously => spin(until(self.busy + self.fetch)),
            Waits::Asynchronously => {
                spin(until(self.busy));
                sleep_until(until(self.fetch));
            }
        }
    }
}

fn spin(until: Nanos) {
    while clock::now() < until {
        std::hint::spin_loop();
    }
}

/// Whether the request with this number has a fault: drawn at random, and the same in every run.
fn has_fault(number: u64, share: f64) -> bool {
    // SplitMix64.
    let mut mixed = number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((mixed ^ mixed >> 31) >> 11) as f64 / (1_u64 << 53) as f64 <= share
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_requests_that_was_asked_for_is_drawn() {
        let drawn = |share: f64| (0..100_000).filter(|number| has_fault(*number, share)).count() as f64 / 100_000.0;
        for share in [0.05, 0.3, 0.8] {
            assert!((drawn(share) - share).abs() < 0.01, "{} of {share}", drawn(share));
        }
        // Not every so many: two in a row are as likely as they are at random.
        let pairs = (0..100_000).filter(|number| has_fault(*number, 0.3) && has_fault(number + 1, 0.3)).count();
        assert!((8_000..10_000).contains(&pairs), "{pairs} pairs");
    }

    #[test]
    fn both_ways_take_as_long_as_a_fault() {
        for (waits, least) in [(Waits::Never, 0), (Waits::Synchronously, 5), (Waits::Asynchronously, 5)] {
            let (busy, fetch) = (Duration::from_millis(1), Duration::from_millis(4));
            let start = clock::now();
            Delays { waits, busy, fetch, share: 1.0 }.wait();
            assert!(clock::now() - start >= least * 1_000_000, "{waits:?}");
        }
    }
}
