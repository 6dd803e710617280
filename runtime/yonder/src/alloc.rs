//! Collections whose elements live in far memory.
//!
//! A [`FarHeap`] makes a region memory to allocate from; its [`FarAllocator`] is one of [`allocator_api2`], which
//! `allocator_api2`'s own `Vec` and `Box` take, and the maps and sets of `hashbrown`. What they hold is touched like
//! all memory, and fetched when it is not local. Allocating and freeing touches nothing far.
//!
//! ```
//! use allocator_api2::vec::Vec;
//! use yonder::alloc::FarHeap;
//! use yonder::{Config, FarMemory};
//!
//! # if yonder::abilities().userfaultfd.is_err() { println!("SKIP: no userfaultfd"); return Ok(()) }
//! // At most 4 MiB are local at a time.
//! let far = FarMemory::open("emu://?latency=2.5us&gbps=100", Config::with_local(4 << 20))?;
//! let heap = FarHeap::new(far.region(64 << 20)?);
//!
//! let mut squares: Vec<u64, _> = Vec::new_in(heap.allocator());
//! squares.extend((0..1 << 20).map(|number| number * number));
//! assert_eq!(squares[1000], 1_000_000);
//! assert!(far.stats().fetched_bytes > 0);
//! # Ok::<(), yonder::FarError>(())
//! ```
//!
//! Beware: the kernel does not fetch. A system call on far memory, such as reading a file straight into a far `Vec`,
//! fails with EFAULT; read into local memory and copy. A page that cannot be had until the deadline ends the process
//! with a message. A thread that touches far memory must not hold SIGBUS back, and signal handlers must not touch it.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

pub use allocator_api2;
use yonder_mapping::allocator::{Adaptor, Memory};
pub use yonder_paging::far_heap::Usage;
use yonder_paging::far_heap::{Magazine, Share};
use yonder_paging::{FarMemory, Region};

/// An allocator of far memory. Cheap to clone; clones are the same. The region is there as long as one of them is.
pub type FarAllocator = Adaptor<FarHeap>;

/// A region as memory to allocate from. Cheap to clone; clones are the same.
#[derive(Clone)]
pub struct FarHeap {
    heap: Arc<yonder_paging::far_heap::FarHeap>,
}

thread_local! {
    /// The magazines of this thread, of every heap that it has used.
    static SHARES: RefCell<Vec<Share>> = const { RefCell::new(Vec::new()) };
}

impl FarHeap {
    /// A heap of all of a region, of which only what is allocated travels.
    ///
    /// # Panics
    /// If the region is longer than 8 TiB, or its paging is guided already.
    #[must_use]
    pub fn new(region: Region) -> Self {
        let heap = yonder_paging::far_heap::FarHeap::new(region);
        heap.guide_paging();
        Self { heap: Arc::new(heap) }
    }

    /// Its allocator.
    #[must_use]
    pub fn allocator(&self) -> FarAllocator {
        Adaptor::new(self.clone())
    }

    /// How full it is.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.heap.usage()
    }

    /// The far memory that it is of.
    #[must_use]
    pub fn far(&self) -> &FarMemory {
        self.heap.region().far()
    }

    /// The region that it is of: what is allocated lies in it, at its address and an offset.
    #[must_use]
    pub fn region(&self) -> &Region {
        self.heap.region()
    }

    /// Bytes that the owner of what was allocated at `address` may use, at least as many as it asked for. Ends the
    /// process if nothing is.
    #[must_use]
    pub fn size_of(&self, address: usize) -> usize {
        self.heap.size_of(address).unwrap_or_else(|misuse| misuse.die())
    }

    /// Does something with this thread's magazine that does not touch far memory.
    fn with_magazine<T>(&self, work: impl Fn(&mut Magazine) -> T) -> T {
        let with_share = |shares: &RefCell<Vec<Share>>| {
            let mut shares = shares.borrow_mut();
            let place = shares.iter().position(|share| share.is_of(&self.heap)).unwrap_or_else(|| {
                shares.retain(Share::is_of_use);
                shares.push(Share::new(&self.heap));
                shares.len() - 1
            });
            work(shares[place].magazine())
        };
        // A thread that is ending has given its magazines back already.
        SHARES.try_with(with_share).unwrap_or_else(|_| work(Share::new(&self.heap).magazine()))
    }
}

impl Memory for FarHeap {
    #[inline]
    fn take(&self, bytes: usize, align: usize) -> Option<usize> {
        self.with_magazine(|magazine| self.heap.alloc(magazine, bytes, align))
    }

    fn take_zeroed(&self, bytes: usize, align: usize) -> Option<usize> {
        let address = self.take(bytes, align)?;
        if self.heap.zero(address).is_err() {
            // The node does not answer: there is no memory.
            self.give(address);
            return None;
        }
        Some(address)
    }

    #[inline]
    fn give(&self, address: usize) {
        if let Err(misuse) = self.with_magazine(|magazine| self.heap.free(magazine, address)) {
            misuse.die();
        }
    }

    fn resize(&self, address: usize, bytes: usize) -> bool {
        self.heap.resize_in_place(address, bytes).unwrap_or_else(|misuse| misuse.die())
    }
}

impl fmt::Debug for FarHeap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FarHeap").field("usage", &self.usage()).finish_non_exhaustive()
    }
}
