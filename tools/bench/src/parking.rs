//! How a front end without sockets waits: its thread parks, and workers unpark it.
//!
//! Neighbours: the front ends of `array` and `soak`.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Waits until the thread's waker is called, or for `timeout`.
pub(crate) fn park(timeout: Duration) {
    thread::park_timeout(timeout);
}

/// What ends [`park`] on the calling thread, from any other.
pub(crate) fn waker_of_this_thread() -> Arc<dyn Fn() + Send + Sync> {
    let thread = thread::current();
    Arc::new(move || thread.unpark())
}
