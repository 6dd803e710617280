//! [`Block`]: a piece of far memory that Python sees as a buffer, and an array has as its base.
//!
//! UNSAFETY: it fills a buffer's description with an address.

use std::ffi::c_int;
use std::sync::Arc;

use pyo3::ffi;
use pyo3::prelude::*;

use crate::memory::Far;
use crate::sealed::Sealed;

/// Bytes of a far memory. They go back when it is dropped, and no array, view or memoryview has it any more.
#[pyclass(frozen, module = "yonder._yonder")]
pub(crate) struct Block {
    owner: Owner,
    address: usize,
    bytes: usize,
}

/// Where a block is from.
pub(crate) enum Owner {
    /// It was taken from the heap of a memory.
    Taken(Arc<Far>),
    /// It is a sealed region, and read-only.
    Sealed(Arc<Sealed>),
}

impl Block {
    pub(crate) fn new(owner: Owner, address: usize, bytes: usize) -> Self {
        Self { owner, address, bytes }
    }

    fn far(&self) -> &Far {
        match &self.owner {
            Owner::Taken(far) => far,
            Owner::Sealed(sealed) => sealed.far(),
        }
    }
}

#[pymethods]
impl Block {
    fn __len__(&self) -> usize {
        self.bytes
    }

    fn __repr__(&self) -> String {
        format!("<{} bytes of far memory at {:#x}, on {}>", self.bytes, self.address, self.far().url())
    }

    /// # Safety
    /// `view` is NULL or a description to fill, as Python promises.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let block = slf.get();
        let first = std::ptr::with_exposed_provenance_mut(block.address);
        // A block is in a region, whose length fits.
        let bytes = block.bytes.cast_signed();
        let is_read_only = c_int::from(matches!(block.owner, Owner::Sealed(_)));
        // SAFETY: the bytes are the block's, which the description keeps.
        let outcome = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), first, bytes, is_read_only, flags) };
        if outcome == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let Owner::Taken(far) = &self.owner {
            far.give(self.address);
        }
    }
}
