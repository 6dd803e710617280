//! [`Place`]: where far bytes are, by their address; and what Python does with far bytes.
//!
//! UNSAFETY: slices of buffers that Python has given.

use std::sync::{Arc, Weak};

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::prelude::*;
use yonder::units::format_bytes;
use yonder::{Advice, Region};

use crate::error::of_paging;
use crate::memory::{Far, memories};
use crate::sealed::Sealed;

/// Bytes that are brought at once, before they are touched.
const BRING_BYTES_MAX: usize = 1 << 20;
/// The part of local memory that one call may bring: what it has brought first must not leave for the last.
const BRING_PART: u64 = 2;

/// Where far bytes are: in the heap of a memory, or in a sealed region.
pub(crate) struct Place {
    far: Arc<Far>,
    sealed: Option<Arc<Sealed>>,
}

impl Place {
    /// Where all of `bytes` at `address` are.
    pub(crate) fn of(address: usize, bytes: usize) -> Option<Self> {
        // The last of one may be dropped here, and that waits for its threads: not while the list is held.
        let (far, sealed): (Vec<_>, Vec<_>) = {
            let memories = memories();
            let sealed = memories.sealed.iter().filter_map(Weak::upgrade);
            (memories.far.iter().filter_map(Weak::upgrade).collect(), sealed.collect())
        };
        let in_heaps = far.into_iter().map(|far| Self { far, sealed: None });
        let in_sealed = sealed.into_iter().map(|sealed| Self { far: Arc::clone(sealed.far()), sealed: Some(sealed) });
        let found = in_heaps.chain(in_sealed).find(|place| place.offset(address) < place.region().bytes());
        found.filter(|place| place.offset(address) + bytes as u64 <= place.region().bytes())
    }

    /// Where an array is.
    fn of_array(address: usize, bytes: usize) -> PyResult<Self> {
        let message = "the array is not in far memory: make it by yonder.empty(), or inside 'with yonder.memory():'";
        Self::of(address, bytes).ok_or_else(|| PyValueError::new_err(message))
    }

    /// The memory that it is of.
    pub(crate) fn far(&self) -> &Far {
        &self.far
    }

    pub(crate) fn region(&self) -> &Region {
        self.sealed.as_deref().map_or_else(|| self.far.region(), Sealed::region)
    }

    /// What lies before the region has an offset behind its end.
    pub(crate) fn offset(&self, address: usize) -> u64 {
        address.wrapping_sub(self.region().address()) as u64
    }
}

/// Whether the byte at an address is far.
#[pyfunction]
pub(crate) fn is_far(address: usize) -> bool {
    Place::of(address, 1).is_some()
}

/// Advises on the pages that `bytes` at `address` are in.
#[pyfunction]
pub(crate) fn advise(address: usize, bytes: u64, advice: &str) -> PyResult<()> {
    let advice = match advice {
        "ahead" => Advice::Ahead,
        "random" => Advice::Random,
        "normal" => Advice::Normal,
        "out" => Advice::Out,
        _ => return Err(PyValueError::new_err(format!("advice is '{advice}': give ahead, random, normal or out"))),
    };
    let place = Place::of_array(address, 1)?;
    let advised = place.region().advise(place.offset(address), bytes, advice);
    advised.map_err(|error| PyValueError::new_err(error.to_string()))
}

/// Brings the pages that `bytes` at `address` are in.
#[pyfunction]
pub(crate) fn prefetch(py: Python<'_>, address: usize, bytes: usize) -> PyResult<()> {
    let place = Place::of_array(address, bytes)?;
    let most = place.far().memory().local() / BRING_PART;
    if bytes as u64 > most {
        let (bytes, most) = (format_bytes(bytes as u64), format_bytes(most));
        let message = format!("{bytes} are more than half of local memory: prefetch at most {most} at a time");
        return Err(PyValueError::new_err(message));
    }
    let start = place.offset(address);
    let bring = |at: usize| place.region().bring(start + at as u64, BRING_BYTES_MAX.min(bytes - at));
    let brought = py.detach(|| (0..bytes).step_by(BRING_BYTES_MAX).try_for_each(bring));
    brought.map_err(|error| of_paging(py, &error))
}

/// Copies far bytes to a buffer of as many.
#[pyfunction]
pub(crate) fn read(py: Python<'_>, from: PyBuffer<u8>, into: PyBuffer<u8>) -> PyResult<()> {
    let bytes = same_length(&from, &into)?;
    let address = from.buf_ptr().addr();
    let place = Place::of_array(address, bytes)?;
    // SAFETY: the buffer has so many bytes, in one piece, and keeps them; that other threads leave them alone is for
    // Python's code to see to, as with every array.
    let into = unsafe { std::slice::from_raw_parts_mut(into.buf_ptr().cast::<u8>(), bytes) };
    let done = py.detach(|| place.region().read(place.offset(address), into));
    done.map_err(|error| of_paging(py, &error))
}

/// Copies a buffer to as many far bytes.
#[pyfunction]
pub(crate) fn write(py: Python<'_>, into: PyBuffer<u8>, from: PyBuffer<u8>) -> PyResult<()> {
    let bytes = same_length(&from, &into)?;
    let address = into.buf_ptr().addr();
    let place = Place::of_array(address, bytes)?;
    // SAFETY: as in `read`.
    let from = unsafe { std::slice::from_raw_parts(from.buf_ptr().cast::<u8>(), bytes) };
    let done = py.detach(|| place.region().write(place.offset(address), from));
    done.map_err(|error| of_paging(py, &error))
}

/// The bytes of two buffers, which can be copied from one to the other.
fn same_length(from: &PyBuffer<u8>, into: &PyBuffer<u8>) -> PyResult<usize> {
    let are_whole = from.is_c_contiguous() && into.is_c_contiguous();
    if !are_whole || into.readonly() || from.len_bytes() != into.len_bytes() {
        return Err(PyBufferError::new_err("two buffers of one length are needed, and the second to be writable"));
    }
    Ok(from.len_bytes())
}
