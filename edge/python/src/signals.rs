//! Whether SIGBUS still comes to the handler that serves faults.
//!
//! Python's `faulthandler` and `signal` replace handlers without asking those that are there. A fault would end the
//! process then, so what allocates and opens looks first.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// Refuses to go on where somebody has put another handler in its place.
pub(crate) fn check() -> PyResult<()> {
    if !yonder_trap::is_replaced() {
        return Ok(());
    }
    Err(PyRuntimeError::new_err(
        "the SIGBUS handler of far memory was replaced: call faulthandler.enable() and signal.signal() before \
         yonder.open(), and faulthandler.disable() never",
    ))
}
