//! [`Sealed`]: a region of its own for one array, which is written once and read-only from then on.
//!
//! A heap's region cannot be sealed: others allocate in it. Of a sealed region the node has every page, so what leaves
//! local memory is dropped without being compared or copied.
//!
//! UNSAFETY: a region that is dropped by hand, and slices of buffers that Python has given.

use std::mem::ManuallyDrop;
use std::sync::Arc;

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use yonder::{FarError, Region};

use crate::error::of_far;
use crate::memory::{Far, memories};
use crate::place::Place;

/// Bytes that are copied at once.
const PIECE_BYTES: usize = 1 << 20;

/// A sealed region of a memory.
pub(crate) struct Sealed {
    region: ManuallyDrop<Region>,
    far: Arc<Far>,
}

impl Sealed {
    /// A sealed copy of a buffer, which may be far itself.
    pub(crate) fn copy_of(py: Python<'_>, far: &Arc<Far>, from: &PyBuffer<u8>) -> PyResult<Arc<Self>> {
        if !from.is_c_contiguous() {
            return Err(PyBufferError::new_err("a buffer in one piece is needed"));
        }
        let from: &[u8] = match from.len_bytes() {
            // It may have no address then.
            0 => &[],
            // SAFETY: the buffer has so many bytes, in one piece, and keeps them; that other threads leave them alone
            // is for Python's code to see to, as with every array.
            bytes => unsafe { std::slice::from_raw_parts(from.buf_ptr().cast::<u8>(), bytes) },
        };
        let make = || -> Result<Arc<Self>, FarError> {
            let mut region = far.memory().region(from.len() as u64)?;
            copy(from, &region)?;
            region.seal()?;
            let sealed = Arc::new(Self { region: ManuallyDrop::new(region), far: Arc::clone(far) });
            let mut memories = memories();
            memories.sealed.retain(|sealed| sealed.strong_count() > 0);
            memories.sealed.push(Arc::downgrade(&sealed));
            Ok(sealed)
        };
        py.detach(make).map_err(|error| of_far(py, &error))
    }

    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    /// The memory that it is of.
    pub(crate) fn far(&self) -> &Arc<Far> {
        &self.far
    }
}

/// Copies all of `from` to the start of a region. What is far is read by its own region, so that a page that cannot be
/// had is an error of that.
fn copy(from: &[u8], region: &Region) -> Result<(), FarError> {
    let place = Place::of(from.as_ptr().addr(), from.len());
    let mut piece = vec![0; PIECE_BYTES.min(from.len())];
    for (number, part) in from.chunks(PIECE_BYTES).enumerate() {
        let piece = &mut piece[..part.len()];
        match &place {
            Some(place) => place.region().read(place.offset(part.as_ptr().addr()), piece).map_err(FarError::Paging)?,
            None => piece.copy_from_slice(part),
        }
        region.write((number * PIECE_BYTES) as u64, piece).map_err(FarError::Paging)?;
    }
    Ok(())
}

impl Drop for Sealed {
    fn drop(&mut self) {
        // A child has nothing of its own at the node.
        if self.far.is_of_this_process() {
            // SAFETY: it is dropped here alone, and not used behind.
            unsafe { ManuallyDrop::drop(&mut self.region) };
        }
    }
}
