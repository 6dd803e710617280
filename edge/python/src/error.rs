//! The exceptions of the package, one for each reaction.

use pyo3::create_exception;
use pyo3::exceptions::{PyConnectionError, PyMemoryError, PyOSError, PyPermissionError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use yonder::clib::ClibError;
use yonder::{FabricError, FarError};

create_exception!(
    yonder,
    PagingError,
    PyOSError,
    "Far memory that cannot be had: its node is lost, or the page is. Has `address`, `node` and `cause`."
);

create_exception!(
    yonder,
    NodeError,
    PyOSError,
    "A node that does not answer, refuses, or has forgotten what it had. Has `node`."
);

/// The exception of a touch that failed.
pub(crate) fn of_paging(py: Python<'_>, error: &yonder::PagingError) -> PyErr {
    let exception = PagingError::new_err(error.to_string());
    let value = exception.value(py);
    let fields = [value.setattr("address", error.address), value.setattr("cause", error.cause.text())];
    let node = value.setattr("node", &*error.node);
    fields.into_iter().chain([node]).find_map(Result::err).unwrap_or(exception)
}

/// The exception of far memory that cannot be set up, or of an operation on it that failed.
pub(crate) fn of_far(py: Python<'_>, error: &FarError) -> PyErr {
    let text = error.to_string();
    match error {
        FarError::Paging(error) => of_paging(py, error),
        FarError::Config(_) | FarError::Fabric(FabricError::BadUrl(_)) => PyValueError::new_err(text),
        FarError::Fabric(FabricError::Unreachable { .. }) => PyConnectionError::new_err(text),
        FarError::Userfaultfd(_) => PyPermissionError::new_err(text),
        FarError::Limit(_) => PyRuntimeError::new_err(text),
        FarError::Fabric(_)
        | FarError::Region(_)
        | FarError::Memory(_)
        | FarError::Regions(_)
        | FarError::Thread(_)
        | FarError::Ports(_) => PyMemoryError::new_err(text),
    }
}

/// The exception of a call of a node at `url` that failed.
pub(crate) fn of_call(py: Python<'_>, url: &str, error: &ClibError) -> PyErr {
    let text = error.to_string();
    match error {
        ClibError::Unreachable(FabricError::BadUrl(_)) => PyValueError::new_err(text),
        // A datagram carries less than a stream.
        ClibError::BadRange(_) => PyValueError::new_err(format!(
            "key and value are too long for a message to {url}: give shorter ones, or name the node by tcp://"
        )),
        ClibError::Unreachable(_) => PyConnectionError::new_err(text),
        ClibError::NotAllowed(_) => PyPermissionError::new_err(text),
        ClibError::OutOfMemory => PyMemoryError::new_err(text),
        _ => of_node(py, url, &text),
    }
}

/// The exception of what a node at `url` does, in words.
pub(crate) fn of_node(py: Python<'_>, url: &str, text: &str) -> PyErr {
    let exception = NodeError::new_err(format!("{url}: {text}"));
    exception.value(py).setattr("node", url).err().unwrap_or(exception)
}
