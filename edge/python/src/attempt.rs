//! [`attempt`]: a call of NumPy in a scope of its own, so that a page that cannot be had is an exception.
//!
//! A scope ends by a jump: C functions between it and the touch end where they are. That is sound only for calls that
//! hold no lock and are in the middle of nothing while they touch an array, which Python's interpreter is not. The
//! package lets ufuncs through alone, on arrays of numbers: between the scope and a touch there is NumPy's loop, and
//! what its frames own leaks. It may have let the interpreter's lock go, which is taken again here.
//!
//! UNSAFETY: a scope, and calls of Python's C interface that know nothing of it.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use yonder::{PagingCause, try_far};

use crate::error::of_paging;
use crate::place::Place;
use crate::signals;

/// Calls `function`, a ufunc or a reduction of one. A touch of far memory whose page cannot be had raises
/// `PagingError`; the outputs hold anything then.
#[pyfunction]
pub(crate) fn attempt<'py>(
    py: Python<'py>,
    function: &Bound<'py, PyAny>,
    arguments: &Bound<'py, PyTuple>,
    keywords: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyAny>> {
    signals::check()?;
    let (function, arguments, keywords) = (function.as_ptr(), arguments.as_ptr(), keywords.as_ptr());
    // SAFETY: the caller has the three objects. Frames that the jump forgets are NumPy's, as the package sees to: they
    // hold no lock of the C library's, and nothing in them has to be dropped but references, which leak.
    let called = unsafe { try_far(|| ffi::PyObject_Call(function, arguments, keywords)) };
    match called {
        // SAFETY: what a call returns is a new reference, or NULL with an exception set.
        Ok(result) => unsafe { Bound::from_owned_ptr_or_err(py, result) },
        Err(caught) => {
            attach_again();
            let node = Place::of(caught.address, 1).map_or_else(|| "unknown".into(), |place| place.far().url().into());
            let error = yonder::PagingError { address: caught.address, node, cause: PagingCause::of(caught) };
            Err(of_paging(py, &error))
        }
    }
}

/// Takes the interpreter's lock, if the loop that was left had let it go.
fn attach_again() {
    // SAFETY: the thread is Python's and has a state. The second call takes back what the first has counted, and as it
    // is told that the lock was held before, it does not let it go.
    unsafe {
        ffi::PyGILState_Ensure();
        ffi::PyGILState_Release(ffi::PyGILState_STATE::PyGILState_LOCKED);
    }
}
