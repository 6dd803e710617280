//! [`FarHeap`]: the far heap behind malloc: one lock, and a magazine for each thread.
//!
//! UNSAFETY: a thread-local that is a raw pointer, because one with a destructor would allocate when it is first used.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use yonder_heap::{Allocated, Class, Freed, Heap, Magazine, NotAllocated, PageMap, Resized, Retired};
use yonder_run::WINDOW;
use yonder_units::PAGE_BYTES;

use crate::far::Far;
use crate::signals;

/// Runs of at least so many pages are given back to the kernel and the node when they are freed; smaller ones may be used again
/// soon, and cost nothing if they are not: reclaim takes them like all pages.
const GIVE_BACK_PAGES: u32 = 1024;

/// The heap of this process.
pub(crate) struct FarHeap {
    heap: Mutex<Heap>,
    map: Arc<PageMap>,
    /// The key whose destructor gives a thread's magazine back when it ends.
    key: OnceLock<libc::pthread_key_t>,
    peak_bytes: AtomicU64,
}

thread_local! {
    static MAGAZINE: Cell<*mut Magazine> = const { Cell::new(std::ptr::null_mut()) };
}

impl FarHeap {
    pub(crate) fn new(heap: Mutex<Heap>) -> Self {
        let map = Arc::clone(heap.lock().expect("just made").map());
        Self { heap, map, key: OnceLock::new(), peak_bytes: AtomicU64::new(0) }
    }

    /// What every page is, for whoever pages it.
    pub(crate) fn map(&self) -> Arc<PageMap> {
        Arc::clone(&self.map)
    }

    /// Most bytes of far memory that were in use at a time, in whole pages, as far as anybody has looked.
    pub(crate) fn peak_bytes(&self) -> u64 {
        self.note_peak(&self.lock());
        self.peak_bytes.load(Ordering::Relaxed)
    }

    fn note_peak(&self, heap: &Heap) {
        let stats = heap.stats();
        self.peak_bytes.fetch_max((stats.object_pages + stats.run_pages) * PAGE_BYTES as u64, Ordering::Relaxed);
    }

    /// The heap, for a moment in which nothing far is touched.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Heap> {
        self.heap.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Far {
    /// The address of `bytes` bytes of far memory, or 0 if there is no room.
    #[inline]
    pub(crate) fn alloc(&self, bytes: usize, align: usize) -> usize {
        let Some(class) = Class::fitting(bytes as u64, align as u64) else { return self.alloc_run(bytes, align) };
        let magazine = self.magazine();
        let offset = magazine.alloc(class).or_else(|| {
            self.heap.lock().refill(magazine, class);
            magazine.alloc(class)
        });
        offset.map_or(0, address)
    }

    /// As [`Far::alloc`], and the bytes are zeros.
    pub(crate) fn alloc_zeroed(&self, bytes: usize) -> usize {
        let new = self.alloc(bytes, 16);
        if new == 0 {
            return 0;
        }
        match self.heap.map.look_up((new - WINDOW.start) as u64) {
            Ok(Allocated::Run(bytes)) => self.clear(new, bytes),
            // SAFETY: this many bytes at this address were just given out, and nobody else knows them.
            _ => unsafe { std::ptr::with_exposed_provenance_mut::<u8>(new).write_bytes(0, bytes) },
        }
        new
    }

    /// Makes a run read as zeros.
    pub(crate) fn clear(&self, address: usize, bytes: u64) {
        let bytes = bytes.next_multiple_of(PAGE_BYTES as u64);
        let cleared = signals::hold_back(|| self.region.discard((address - WINDOW.start) as u64, bytes));
        cleared.unwrap_or_else(|error| {
            crate::complain(&format!("memory could not be cleared: {error}"));
            std::process::abort()
        });
    }

    fn alloc_run(&self, bytes: usize, align: usize) -> usize {
        let offset = self.heap.lock().alloc(bytes as u64, align as u64);
        offset.map_or(0, address)
    }

    /// Takes back what [`Far::alloc`] gave out. An error if it did not.
    #[inline]
    pub(crate) fn free(&self, old: usize) -> Result<(), NotAllocated> {
        let offset = (old - WINDOW.start) as u64;
        match self.heap.map.look_up(offset)? {
            Allocated::Object(class) => {
                let magazine = self.magazine();
                if magazine.contains(class, offset) {
                    return Err(NotAllocated { offset });
                }
                if magazine.free(class, offset).is_err() {
                    let mut heap = self.heap.lock();
                    self.heap.note_peak(&heap);
                    heap.flush(magazine, class)?;
                    drop(heap);
                    magazine.free(class, offset).expect("there is room after a flush");
                }
                Ok(())
            }
            Allocated::Run(_) => {
                let mut heap = self.heap.lock();
                self.heap.note_peak(&heap);
                let freed = heap.free(offset)?;
                drop(heap);
                if let Freed::Run(retired) = freed {
                    self.retire(retired);
                }
                Ok(())
            }
        }
    }

    /// Makes pages free for others.
    pub(crate) fn retire(&self, retired: Retired) {
        if retired.pages() >= GIVE_BACK_PAGES {
            let bytes = u64::from(retired.pages()) * PAGE_BYTES as u64;
            self.clear(address(retired.first().offset()), bytes);
        }
        self.heap.lock().release(retired);
    }

    /// Bytes that the owner of `old` may use.
    #[inline]
    pub(crate) fn size_of(&self, old: usize) -> Result<usize, NotAllocated> {
        self.heap.map.look_up((old - WINDOW.start) as u64).map(|allocated| allocated.bytes() as usize)
    }

    /// Whether `old` now has `bytes` bytes where it is.
    pub(crate) fn resize_in_place(&self, old: usize, bytes: usize) -> Result<bool, NotAllocated> {
        let offset = (old - WINDOW.start) as u64;
        if let Allocated::Object(class) = self.heap.map.look_up(offset)? {
            return Ok(bytes <= class.bytes());
        }
        let resized = self.heap.lock().resize_in_place(offset, bytes as u64)?;
        match resized {
            Resized::Done => Ok(true),
            Resized::Shrunk(retired) => {
                self.retire(retired);
                Ok(true)
            }
            Resized::Refused => Ok(false),
        }
    }

    /// This thread's magazine.
    #[inline]
    fn magazine(&self) -> &'static mut Magazine {
        let mine = MAGAZINE.get();
        let mine = if mine.is_null() { self.make_magazine() } else { mine };
        // SAFETY: it is this thread's alone, and no call that uses it is entered again: signal handlers do not allocate.
        unsafe { &mut *mine }
    }

    #[cold]
    fn make_magazine(&self) -> *mut Magazine {
        let key = *self.heap.key.get_or_init(|| {
            let mut key = 0;
            // SAFETY: the key is a local, and the destructor takes what `pthread_setspecific` is given.
            let refused = unsafe { libc::pthread_key_create(&raw mut key, Some(end_of_thread)) };
            assert!(refused == 0, "the program has taken all thread keys");
            key
        });
        let mine = Box::into_raw(Box::new(Magazine::new()));
        MAGAZINE.set(mine);
        // SAFETY: the key was made above. If the value is not kept, the magazine is lost when the thread ends.
        let _ = unsafe { libc::pthread_setspecific(key, mine.cast()) };
        mine
    }
}

/// Gives the magazine of a thread that ends back.
unsafe extern "C" fn end_of_thread(magazine: *mut c_void) {
    MAGAZINE.set(std::ptr::null_mut());
    // SAFETY: it came from `Box::into_raw` in `make_magazine`, and only the thread that ends knew it.
    let mut magazine = unsafe { Box::from_raw(magazine.cast::<Magazine>()) };
    let Some(far) = crate::far::far() else { return };
    if let Err(error) = far.heap.lock().flush_all(&mut magazine) {
        crate::malloc::die_of(error);
    }
}

/// The address of what is at `offset`.
#[inline]
fn address(offset: u64) -> usize {
    WINDOW.start + offset as usize
}
