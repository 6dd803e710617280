//! The slow path's thread: address spaces, allocation, freeing, leases, and pages for first writes.
//!
//! It takes requests from its desk, one after the other, runs the errands of other threads between them, and fills the ring of zeroed pages whenever it runs low. Freed
//! memory is zeroed here too, so that no data thread ever waits for the kernel to clear a page.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use yonder_board::{Handled, PageSource, PhysicalPage, Shell, SlowPath, Upkeep};
use yonder_wire::{MESSAGE_BYTES_MAX, split};

use crate::Shared;
use crate::serve::is_refusal;

/// Longest time between two looks at leases and at the ring.
const PAUSE_MAX: Duration = Duration::from_millis(500);

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
pub(crate) fn serve(shared: &Arc<Shared>, mut slow: SlowPath) {
    shared.slow.attend();
    let mut reply = vec![0; MESSAGE_BYTES_MAX].into_boxed_slice();
    while !shared.stop.load(Ordering::Acquire) {
        fill_ring(shared, &mut slow);
        loop {
            let mut janitor = Janitor { shared };
            let mut shell = Shell { memory: &shared.memory, pages: &shared.memory, upkeep: &mut janitor };
            if shared.errands.run_one(&mut slow, &mut shell) {
                fill_ring(shared, &mut slow);
                continue;
            }
            let Some(request) = shared.slow.take() else { break };
            let message = split(&request.bytes).ok().flatten().expect("a data thread has put a whole message here");
            match slow.execute(&message, yonder_clock::now(), &mut shell, &mut reply) {
                Handled::Reply(bytes) => {
                    shared.counters.answered(&message.header, is_refusal(&reply));
                    tell(shared, &mut slow);
                    request.answer_to.send(&reply[..bytes]);
                }
                Handled::Slow | Handled::Dropped => unreachable!("a data thread forwards only what is for this path"),
            }
            fill_ring(shared, &mut slow);
        }
        let now = yonder_clock::now();
        slow.expire(now);
        tell(shared, &mut slow);
        if slow.clean(&mut Janitor { shared }) {
            // There is more to clean, but requests come first.
            continue;
        }
        let lease = slow.next_expiry().map(|end| Duration::from_nanos(end.saturating_sub(now)));
        thread::park_timeout(lease.unwrap_or(PAUSE_MAX).min(PAUSE_MAX));
    }
    shared.errands.send_away();
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

/// Tells others what has changed: before a client knows of it, so that nobody is behind the client.
pub(crate) fn tell(shared: &Shared, slow: &mut SlowPath) {
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
