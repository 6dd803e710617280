//! [`Block`]: a piece of far memory that Python sees as a buffer, and an array has as its base.
//!
//! UNSAFETY: it fills a buffer's description with an address.

use std::ffi::c_int;
use std::sync::Arc;

use pyo3::ffi;
use pyo3::prelude::*;

use crate::memory::Far;

/// Bytes of a far memory. They go back when it is dropped, and no array, view or memoryview has it any more.
#[pyclass(frozen, module = "yonder._yonder")]
pub(crate) struct Block {
    far: Arc<Far>,
    address: usize,
    bytes: usize,
}

impl Block {
    /// What was taken from `far`.
    pub(crate) fn new(far: Arc<Far>, address: usize, bytes: usize) -> Self {
        Self { far, address, bytes }
    }
}

#[pymethods]
impl Block {
    fn __len__(&self) -> usize {
        self.bytes
    }

    fn __repr__(&self) -> String {
        format!("<{} bytes of far memory at {:#x}, on {}>", self.bytes, self.address, self.far.url())
    }

    /// # Safety
    /// `view` is NULL or a description to fill, as Python promises.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let block = slf.get();
        let first = std::ptr::with_exposed_provenance_mut(block.address);
        // A block is in a region, whose length fits.
        let bytes = block.bytes.cast_signed();
        // SAFETY: the bytes are the block's, which the description keeps.
        let outcome = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), first, bytes, 0, flags) };
        if outcome == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.far.give(self.address);
    }
}
