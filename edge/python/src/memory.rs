//! [`Far`]: one far memory and the heap in it, and what Python does with it.
//!
//! Who touches what: the list of [`memories`] is behind its lock, which is taken to open a memory, to find one by an
//! address, and around forks. A memory ends with its last `Arc`: Python's object has one until it is closed, and each
//! block, sealed region and handler has one.
//!
//! UNSAFETY: a heap that is dropped by hand.

use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyMemoryError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use yonder::alloc::FarHeap;
use yonder::units::{PAGE_BYTES, format_bytes, parse_bytes, parse_duration};
use yonder::{Config, Deadlines, FarError, FarMemory, Prefetch, Region};
use yonder_heap::HEAP_BYTES_MAX;
use yonder_mapping::allocator::Memory as _;
use yonder_trap::hold_back;

use crate::block::{Block, Owner};
use crate::error::of_far;
use crate::sealed::Sealed;
use crate::{forks, handler, signals};

/// What vector instructions want of an array.
const ALIGN: usize = 64;
static MEMORIES: Mutex<Memories> = Mutex::new(Memories { far: Vec::new(), sealed: Vec::new() });

/// The memories of this process that have not ended, and the sealed regions of them.
pub(crate) struct Memories {
    pub(crate) far: Vec<Weak<Far>>,
    pub(crate) sealed: Vec<Weak<Sealed>>,
}

/// The memories of this process.
pub(crate) fn memories() -> MutexGuard<'static, Memories> {
    // What panics while it is held has not changed it.
    MEMORIES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One far memory: its heap has all of its region.
pub(crate) struct Far {
    heap: ManuallyDrop<FarHeap>,
    /// The process that has opened it.
    process: u32,
}

impl Far {
    fn open(url: &str, bytes: u64, config: Config) -> Result<Arc<Self>, FarError> {
        // Signals are for Python's threads: those that begin here hold them back.
        let open = || -> Result<FarHeap, FarError> { Ok(FarHeap::new(FarMemory::open(url, config)?.region(bytes)?)) };
        forks::watch();
        let far = Arc::new(Self { heap: ManuallyDrop::new(hold_back(open)?), process: std::process::id() });
        let mut memories = memories();
        memories.far.retain(|far| far.strong_count() > 0);
        memories.far.push(Arc::downgrade(&far));
        Ok(far)
    }

    /// The address of new bytes, with any content. `None` if there is no room, or they would be the parent's.
    pub(crate) fn take(&self, bytes: usize) -> Option<usize> {
        if self.is_of_this_process() { self.heap.take(bytes.max(1), ALIGN) } else { None }
    }

    /// As [`Far::take`], and the bytes are zeros.
    pub(crate) fn take_zeroed(&self, bytes: usize) -> Option<usize> {
        if self.is_of_this_process() { self.heap.take_zeroed(bytes.max(1), ALIGN) } else { None }
    }

    /// Takes bytes back, but in a child of the process that has taken them.
    pub(crate) fn give(&self, address: usize) {
        if self.is_of_this_process() {
            self.heap.give(address);
        }
    }

    /// Whether what was taken now has `bytes` bytes where it is.
    pub(crate) fn resize(&self, address: usize, bytes: usize) -> bool {
        self.is_of_this_process() && self.heap.resize(address, bytes)
    }

    /// Bytes that the owner of what was taken may use.
    pub(crate) fn size_of(&self, address: usize) -> usize {
        self.heap.size_of(address)
    }

    /// Whether the byte at `address` is of its heap.
    pub(crate) fn contains(&self, address: usize) -> bool {
        // What lies before the region has an offset behind its end.
        (address.wrapping_sub(self.region().address()) as u64) < self.region().bytes()
    }

    /// The region that its heap has.
    pub(crate) fn region(&self) -> &Region {
        self.heap.region()
    }

    /// What it is a heap in.
    pub(crate) fn memory(&self) -> &FarMemory {
        self.heap.far()
    }

    pub(crate) fn url(&self) -> &str {
        self.heap.far().url()
    }

    /// Whether it may be taken from and given back to: a child may not.
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.process == std::process::id()
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        // A child has no threads to wait for, and nothing of its own at the node.
        if self.is_of_this_process() {
            // SAFETY: it is dropped here alone, and not used behind.
            unsafe { ManuallyDrop::drop(&mut self.heap) };
        }
    }
}

/// A size that Python says as a number of bytes or as text, such as `"1GiB"`.
#[derive(FromPyObject)]
pub(crate) enum Size {
    Number(u64),
    Text(String),
}

impl Size {
    pub(crate) fn bytes(&self) -> PyResult<u64> {
        match self {
            Self::Number(bytes) => Ok(*bytes),
            Self::Text(text) => parse_bytes(text).map_err(|error| PyValueError::new_err(error.to_string())),
        }
    }
}

/// The bytes of a size such as `"64KiB"`.
#[pyfunction]
pub(crate) fn bytes_of(size: Size) -> PyResult<u64> {
    size.bytes()
}

fn prefetch_of(text: &str) -> PyResult<Prefetch> {
    match text {
        "none" => Ok(Prefetch::None),
        "readahead" => Ok(Prefetch::Readahead),
        "trend" => Ok(Prefetch::Trend),
        _ => Err(PyValueError::new_err(format!("prefetch is '{text}': give none, readahead or trend"))),
    }
}

/// A far memory, until it is closed.
#[pyclass(frozen, module = "yonder._yonder", name = "Far")]
pub(crate) struct PythonMemory {
    url: String,
    open: Mutex<Option<Arc<Far>>>,
}

impl PythonMemory {
    /// The memory, unless it was closed.
    fn far(&self) -> PyResult<Arc<Far>> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.clone().ok_or_else(|| PyValueError::new_err("this far memory was closed: open another by yonder.open()"))
    }

    /// The memory, if something can be taken from it.
    fn own(&self) -> PyResult<Arc<Far>> {
        signals::check()?;
        let far = self.far()?;
        if far.is_of_this_process() {
            return Ok(far);
        }
        Err(PyRuntimeError::new_err(
            "this far memory is of the process that has forked this one: open another by yonder.open()",
        ))
    }
}

#[pymethods]
impl PythonMemory {
    #[new]
    fn new(py: Python<'_>, url: String, local: Size, memory: Size, prefetch: &str, deadline: &str) -> PyResult<Self> {
        signals::check()?;
        let (local, bytes) = (local.bytes()?, memory.bytes()?);
        if !(1..=HEAP_BYTES_MAX).contains(&bytes) {
            let most = format_bytes(HEAP_BYTES_MAX);
            return Err(PyValueError::new_err(format!("memory is {bytes} bytes: give 1 to {most}")));
        }
        let fault = parse_duration(deadline).map_err(|error| PyValueError::new_err(error.to_string()))?;
        let deadlines = Deadlines { fault, ..Deadlines::default() };
        let config = Config { prefetch: prefetch_of(prefetch)?, deadlines, ..Config::with_local(local) };
        let far = py.detach(|| Far::open(&url, bytes, config)).map_err(|error| of_far(py, &error))?;
        Ok(Self { url, open: Mutex::new(Some(far)) })
    }

    #[getter]
    fn url(&self) -> &str {
        &self.url
    }

    #[getter]
    fn closed(&self) -> bool {
        self.far().is_err()
    }

    /// Lets go of the memory. It ends now, or when its last array is gone.
    fn close(&self, py: Python<'_>) {
        let far = self.open.lock().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(|| drop(far));
    }

    /// New bytes of it, which are zeros if it is said so.
    #[pyo3(signature = (bytes, *, zeros))]
    fn take(&self, py: Python<'_>, bytes: usize, zeros: bool) -> PyResult<Block> {
        let far = self.own()?;
        let taken = py.detach(|| if zeros { far.take_zeroed(bytes) } else { far.take(bytes) });
        let Some(address) = taken else {
            let (usage, wanted) = (far.heap.usage(), format_bytes(bytes as u64));
            let (used, all) = (format_bytes(usage.used_bytes), format_bytes(usage.bytes));
            let message = format!("far memory has no room for {wanted}: {used} of {all} are used; open more of it");
            return Err(PyMemoryError::new_err(message));
        };
        Ok(Block::new(Owner::Taken(far), address, bytes))
    }

    /// A copy of a buffer in a region of its own, which is read-only for good.
    fn seal(&self, py: Python<'_>, from: PyBuffer<u8>) -> PyResult<Block> {
        let far = self.own()?;
        let bytes = from.len_bytes();
        let sealed = Sealed::copy_of(py, &far, &from)?;
        let address = sealed.region().address();
        Ok(Block::new(Owner::Sealed(sealed), address, bytes))
    }

    /// An allocator for NumPy.
    fn handler<'py>(&self, py: Python<'py>, far_bytes_min: usize) -> PyResult<Bound<'py, PyAny>> {
        handler::capsule(py, self.own()?, far_bytes_min)
    }

    /// What it has and did.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        // The heap's lock may be another thread's of the parent.
        let far = self.own()?;
        let (usage, stats) = (far.heap.usage(), far.heap.far().stats());
        let page = PAGE_BYTES as u64;
        let fields = [
            ("memory_bytes", usage.bytes),
            ("used_bytes", usage.used_bytes),
            ("used_bytes_max", usage.peak_bytes),
            ("local_limit_bytes", stats.limit_pages * page),
            ("local_bytes", stats.charged_pages * page),
            ("local_bytes_max", stats.peak_pages * page),
            ("major_faults", stats.major_faults),
            ("minor_faults", stats.minor_faults),
            ("fetched_bytes", stats.fetched_bytes),
            ("written_bytes", stats.written_bytes),
        ];
        let dict = PyDict::new(py);
        fields.into_iter().try_for_each(|(name, value)| dict.set_item(name, value))?;
        Ok(dict)
    }
}
