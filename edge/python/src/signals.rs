//! Whether SIGBUS still comes to the handler that serves faults.
//!
//! Python's `faulthandler` and `signal` replace handlers without asking those that are there. A fault would end the
//! process then, so what allocates and opens looks first.
//!
//! UNSAFETY: it asks the C library for the handler of a signal.

use std::sync::atomic::{AtomicUsize, Ordering};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// Address of the handler that was there when far memory was opened first; 0 before.
static HANDLER: AtomicUsize = AtomicUsize::new(0);

fn current() -> usize {
    // SAFETY: all zeros is a valid action; the call writes one, and changes nothing.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGBUS, std::ptr::null(), &raw mut action);
        action.sa_sigaction
    }
}

/// Far memory has just been opened: the handler that is there now is the one that serves faults.
pub(crate) fn remember() {
    let _ = HANDLER.compare_exchange(0, current(), Ordering::AcqRel, Ordering::Relaxed);
}

/// Refuses to go on where somebody has put another handler in its place.
pub(crate) fn check() -> PyResult<()> {
    let handler = HANDLER.load(Ordering::Acquire);
    if handler == 0 || handler == current() {
        return Ok(());
    }
    Err(PyRuntimeError::new_err(
        "the SIGBUS handler of far memory was replaced: call faulthandler.enable() and signal.signal() before \
         yonder.open(), and faulthandler.disable() never",
    ))
}
