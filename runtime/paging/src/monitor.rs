//! Faults that are messages: for programs whose system calls reach far memory in ways that nobody can see.
//!
//! With [`Delivery::Messages`](crate::Delivery::Messages) a thread that misses a page sleeps in the kernel, also in the
//! middle of a system call, until one of these threads has brought it. That costs two switches between threads for each
//! fault, tens of microseconds, so it is a fallback and not the way (the probes: 18 us at best, against 1.1 us for a
//! signal).
//!
//! Invariant: a monitor touches no far memory, or it would wait for itself.

use crate::kernel::Pager;

/// Threads that bring pages: one can wait for a fetch while another maps what needs none.
pub(crate) const MONITORS: usize = 2;
/// How long a monitor sleeps before it looks whether it should end, in milliseconds.
const TIMEOUT_MS: i32 = 50;

/// Brings pages until the far memory ends.
pub(crate) fn monitor(pager: &Pager) {
    while !pager.is_ending() {
        match pager.space().next_fault(TIMEOUT_MS) {
            Ok(Some(address)) => serve(pager, address),
            Ok(None) => {}
            Err(error) => end(&format!("faults cannot be read: {error}")),
        }
    }
}

fn serve(pager: &Pager, address: usize) {
    // A region ends only when nobody can have faults in it any more.
    let Some((region, page)) = pager.page_at(address) else { return };
    if let Err(cause) = region.bring_page(page) {
        // The thread cannot be told otherwise: it is asleep, perhaps in a system call.
        end(&region.error(page.offset(), cause).to_string());
    }
    if let Err(error) = pager.space().wake(region.memory(), page.offset(), 1) {
        end(&error.to_string());
    }
}

/// Ends the process: a thread sleeps on a page that cannot be had.
fn end(what: &str) -> ! {
    eprintln!("yonder: paging error: {what}");
    std::process::abort()
}
