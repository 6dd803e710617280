//! The slow path's thread: address spaces, allocation, freeing, leases, and pages for first writes.
//!
//! It takes requests from its queue, in turns of time of each sender, runs the errands of other threads between them,
//! and fills the ring of zeroed pages whenever it runs low. Once a second it looks at who was revoked. What takes long
//! goes in pieces, one between two requests, so that nobody waits for what another tenant gives back. Freed memory is
//! zeroed here too, so that no data thread ever waits for the kernel to clear a page.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use yonder_board::{Handled, LEASE_STEP_MAX, PageSource, PhysicalPage, Pid, Shell, SlowPath, Upkeep};
use yonder_units::Nanos;
use yonder_wire::{Header, Kind, MESSAGE_BYTES_MAX, PROOF_BYTES};

use crate::Shared;
use crate::forward::{AnswerTo, Peer};
use crate::gate::Gate;
use crate::serve::code_of;

/// Turns between two looks at leases, at clients that have gone, and at whether the node stops.
const TURNS_MAX: usize = 256;
/// Longest time between two looks at leases and at the ring.
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// Time between two looks at who was revoked.
const REVOKED_EVERY: Nanos = 1_000_000_000;

const _: () = assert!(PAUSE_MAX.as_nanos() < LEASE_STEP_MAX as u128, "leases run as fast as the clock of an idle node");

/// How freed memory becomes usable again.
pub(crate) struct Janitor<'a> {
    pub(crate) shared: &'a Shared,
}

impl Upkeep for Janitor<'_> {
    fn wait_until_quiet(&mut self) {
        self.shared.quiet.wait();
    }

    fn zero(&mut self, page: PhysicalPage) {
        self.shared.memory.zero(page);
    }
}

/// The body of the thread: serves until the node stops.
pub(crate) fn serve(shared: &Arc<Shared>, mut slow: SlowPath, mut gate: Gate) {
    shared.slow.serve_on_this_thread();
    let mut reply = vec![0; MESSAGE_BYTES_MAX].into_boxed_slice();
    let mut holders = Holders::default();
    let mut looked = yonder_clock::now();
    while !shared.stop.load(Ordering::Acquire) {
        holders.let_go(&mut slow);
        fill_ring(shared, &mut slow);
        let mut left = TURNS_MAX;
        while left > 0 && turn(shared, &mut slow, &mut holders, &mut gate, &mut reply) {
            fill_ring(shared, &mut slow);
            left -= 1;
        }
        let now = yonder_clock::now();
        if now.saturating_sub(looked) >= REVOKED_EVERY {
            shared.doors.end_revoked();
            looked = now;
        }
        slow.expire(now);
        publish_changes(shared, &mut slow);
        if left == 0 {
            continue;
        }
        if slow.clean(&mut Janitor { shared }) {
            // There is more to clean, but requests come first.
            continue;
        }
        let lease = slow.next_expiry().map(|end| Duration::from_nanos(end.saturating_sub(now)));
        thread::park_timeout(lease.unwrap_or(PAUSE_MAX).min(PAUSE_MAX));
    }
    shared.errands.send_away();
}

/// Which processes were told where memory of which address spaces is, so that they may have it mapped.
#[derive(Default)]
struct Holders(Vec<(Pid, Arc<Peer>)>);

impl Holders {
    /// Takes note of a request that was executed, before it is answered.
    fn note(&mut self, request: &Header, answer_to: &AnswerTo, slow: &mut SlowPath) {
        let (Kind::Translate, Some(pid), Some(peer)) = (request.kind, Pid::new(request.pid), answer_to.peer()) else {
            return;
        };
        if !self.0.iter().any(|(held, by)| *held == pid && Arc::ptr_eq(by, peer)) {
            self.0.push((pid, Arc::clone(peer)));
            slow.hold(pid);
        }
    }

    /// Forgets processes that have gone.
    fn let_go(&mut self, slow: &mut SlowPath) {
        for (pid, _) in self.0.extract_if(.., |(_, peer)| peer.has_gone()) {
            slow.let_go(pid);
        }
    }
}

/// A bounded amount of work: an errand, or a request and a piece of what earlier ones have begun. False if there was
/// nothing to do.
fn turn(shared: &Shared, slow: &mut SlowPath, holders: &mut Holders, gate: &mut Gate, reply: &mut [u8]) -> bool {
    let mut janitor = Janitor { shared };
    let mut shell = Shell { memory: &shared.memory, pages: &shared.memory, upkeep: &mut janitor };
    if shared.errands.run_one(slow, &mut shell) {
        return true;
    }
    let next = shared.slow.take();
    let mut has_worked = next.is_some();
    if let Some(request) = next {
        let message = request.message.get();
        let room = reply.len() - PROOF_BYTES;
        let source = request.answer_to.source();
        let began = yonder_clock::now();
        let sent = match slow.execute(&message, source, yonder_clock::now(), &mut shell, &mut reply[..room]) {
            Handled::Reply(bytes) => {
                shared.counters.answered(&message.header, code_of(reply));
                if code_of(reply) == 0 {
                    holders.note(&message.header, &request.answer_to, slow);
                }
                publish_changes(shared, slow);
                request.answer_to.send(gate, reply, bytes)
            }
            Handled::Slow | Handled::Dropped => unreachable!("a data thread forwards only what is for this path"),
        };
        shared.charge_work(&shared.slow, request.party, source, began, sent);
    }
    if slow.has_work() {
        has_worked = true;
        slow.work(yonder_clock::now(), &mut shell);
        publish_changes(shared, slow);
    }
    has_worked
}

/// Puts pages into the ring that data threads take from.
fn fill_ring(shared: &Shared, slow: &mut SlowPath) {
    let mut janitor = Janitor { shared };
    while !shared.memory.ring_is_full()
        && let Some(page) = slow.take_free_page(&mut janitor)
    {
        shared.memory.give_back(page);
    }
}

/// Publishes what has changed: before a client knows of it, so that nobody is behind the client.
pub(crate) fn publish_changes(shared: &Shared, slow: &mut SlowPath) {
    while let Some(pid) = slow.take_created() {
        shared.extend.created(pid);
    }
    while let Some(pid) = slow.take_ended() {
        tracing::debug!("address space {} has ended", pid.get());
        shared.extend.ended(pid);
    }
    let status = slow.status();
    shared.counters.spaces.store(status.spaces, Ordering::Relaxed);
    shared.counters.allocated_bytes.store(status.allocated_bytes, Ordering::Relaxed);
}
