//! [`FarHeap`]: a heap, its lock, and the region whose bytes it gives out.
//!
//! Who touches what: the heap is behind its lock; the map is for all threads, without one; a magazine is its thread's.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{Access, FarError, Region};
use yonder_heap::{
    Allocated, Class, Freed, Heap, MAGAZINE_RUN_PAGES_MAX, Magazine, NotAllocated, OBJECT_BYTES_MAX, PageMap, Resized,
    Retired, START_BYTES,
};
use yonder_units::{Narrow, PAGE_BYTES};

use crate::far_heap::quarantine::{Quarantine, Ranges};

/// Runs of at least so many pages are given back to the kernel and the node when they are freed; smaller ones may be
/// used again soon, and cost nothing if they are not: reclaim takes them like all pages.
pub const GIVE_BACK_PAGES: u32 = 1024;

/// Large objects that magazines keep have a multiple of this, so that one fits where another was.
const LARGE_STEP_BYTES: usize = 512;
/// Most bytes of those.
const KEPT_BYTES_MAX: usize = MAGAZINE_RUN_PAGES_MAX as usize * PAGE_BYTES;

/// Runs what it is given once, and no signal handler of the program on this thread meanwhile.
pub type Uninterrupted = fn(&mut dyn FnMut());

/// When no signal handler of the program may run on a thread.
#[derive(Clone, Copy, Debug)]
pub struct NoHandlers {
    /// Around each time that the heap's lock is held: a handler that maps far memory or forks in the middle of that
    /// would wait for its own thread.
    pub in_changes: Uninterrupted,
    /// Around each discard of far memory: a handler that touches far memory would.
    pub in_discards: Uninterrupted,
}

/// A program gave an address back, or asked for it, that is not allocated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("nothing is allocated at address {address:#x} of far memory: it was freed before, or never given out")]
pub struct Misuse {
    /// The address.
    pub address: usize,
}

impl Misuse {
    /// Ends the process with one line: its heap is not what the program thinks.
    #[cold]
    pub fn die(self) -> ! {
        eprintln!("yonder: {self}");
        std::process::abort()
    }
}

/// How full a heap is. What lies in magazines counts as used.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Usage {
    /// Bytes that can be given out.
    pub bytes: u64,
    /// Bytes of the pages that are in use.
    pub used_bytes: u64,
    /// Most bytes of pages that were in use at a time, as far as anybody has looked.
    pub peak_bytes: u64,
}

/// A heap that nobody changes. See [`FarHeap::freeze`].
pub struct Frozen<'a> {
    _heap: MutexGuard<'a, Heap>,
    _ranges: MutexGuard<'a, Ranges>,
}

/// The far heap of one region. See the crate for who keeps what.
pub struct FarHeap {
    heap: Mutex<Heap>,
    map: Arc<PageMap>,
    /// Address of offset 0.
    base: usize,
    no_handlers: NoHandlers,
    quarantine: Quarantine,
    peak_bytes: AtomicU64,
    /// The process that the heap was made in: a forked child may not have its memory.
    process: u32,
    region: Region,
}

impl FarHeap {
    /// A heap of all of a region, which nobody else uses.
    ///
    /// # Panics
    /// If the region is longer than [`yonder_heap::HEAP_BYTES_MAX`].
    #[must_use]
    pub fn new(region: Region) -> Self {
        Self::without_handlers(region, NoHandlers { in_changes: |code| code(), in_discards: |code| code() })
    }

    /// As [`FarHeap::new`], for a program whose signal handlers may need the heap or its memory.
    ///
    /// # Panics
    /// Likewise.
    #[must_use]
    pub fn without_handlers(region: Region, no_handlers: NoHandlers) -> Self {
        let heap = Heap::new(region.bytes());
        Self {
            map: Arc::clone(heap.map()),
            heap: Mutex::new(heap),
            base: region.address(),
            no_handlers,
            quarantine: Quarantine::new(),
            peak_bytes: AtomicU64::new(0),
            process: std::process::id(),
            region: region.with_access(Access::Trap),
        }
    }

    /// From now on only what is allocated of a page travels.
    ///
    /// # Panics
    /// If that was said before.
    pub fn guide_paging(&self) {
        self.region.guide_paging(Arc::<PageMap>::clone(&self.map));
    }

    /// The region whose bytes are given out.
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Whether the calling process made the heap, and is no child of that.
    #[must_use]
    pub fn is_of_this_process(&self) -> bool {
        self.process == std::process::id()
    }

    /// Runs `code`, which touches nothing far, with the heap itself, by offsets. No handler of a signal comes in
    /// between.
    pub fn with<T>(&self, code: impl FnOnce(&mut Heap) -> T) -> T {
        self.change(|| code(&mut self.lock()))
    }

    /// Keeps the heap as it is until this is dropped, as while the process forks. For who keeps handlers of signals
    /// away.
    #[must_use]
    pub fn freeze(&self) -> Frozen<'_> {
        Frozen { _ranges: self.quarantine.lock(), _heap: self.lock() }
    }

    fn lock(&self) -> MutexGuard<'_, Heap> {
        // Nobody panics in the middle of a change of it: what asserts does so before.
        self.heap.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The address of `bytes` bytes, or one if that is 0, at a multiple of `align`. Their content is undefined. `None`
    /// if there is no room, or the region does not begin at such a multiple: it does at those of a block.
    ///
    /// # Panics
    /// If `align` is not a power of two.
    #[inline]
    pub fn alloc(&self, magazine: &mut Magazine, bytes: usize, align: usize) -> Option<usize> {
        let Some(class) = Class::fitting(bytes as u64, align as u64) else {
            return self.alloc_large(magazine, bytes, align);
        };
        let offset = magazine.alloc(class).or_else(|| {
            self.with(|heap| heap.refill(magazine, class));
            magazine.alloc(class)
        });
        match offset {
            Some(offset) => Some(self.address(offset)),
            None => self.alloc_large(magazine, bytes, align),
        }
    }

    fn alloc_large(&self, magazine: &mut Magazine, bytes: usize, align: usize) -> Option<usize> {
        let bytes = if bytes <= KEPT_BYTES_MAX { bytes.next_multiple_of(LARGE_STEP_BYTES) } else { bytes };
        let kept = if align as u64 <= START_BYTES { self.alloc_kept(magazine, bytes as u64) } else { None };
        let alloc = |heap: &mut Heap| heap.alloc_large(bytes as u64, align as u64);
        let address = kept.map(|offset| self.address(offset)).or_else(|| self.alloc_by(align, alloc));
        address.or_else(|| {
            // What this thread has freed may lie in its way.
            self.flush_all(magazine).unwrap_or_else(|misuse| misuse.die());
            self.alloc_by(align, alloc)
        })
    }

    /// A run that lies ready, unless the program has resized it there: then it is the program's again.
    fn alloc_kept(&self, magazine: &mut Magazine, bytes: u64) -> Option<u64> {
        std::iter::from_fn(|| magazine.alloc_run(bytes))
            .find(|run| self.map.look_up(run.offset) == Ok(Allocated::Run(run.bytes)))
            .map(|run| run.offset)
    }

    /// As [`FarHeap::alloc`], as a run of whole pages that begins with the first, without a magazine.
    ///
    /// # Panics
    /// Likewise.
    pub fn alloc_run(&self, bytes: usize, align: usize) -> Option<usize> {
        self.alloc_by(align, |heap| heap.alloc_run(bytes as u64, align as u64))
    }

    fn alloc_by(&self, align: usize, alloc: impl FnOnce(&mut Heap) -> Option<u64>) -> Option<usize> {
        if !self.base.is_multiple_of(align) {
            return None;
        }
        self.release_confirmed();
        let offset = self.with(alloc)?;
        Some(self.address(offset))
    }

    /// Makes what was just given out at `address` read as zeros. Whole pages are forgotten, so that nothing is fetched.
    ///
    /// # Panics
    /// If nothing is allocated there.
    pub fn zero(&self, address: usize) -> Result<(), FarError> {
        const ZEROS: [u8; OBJECT_BYTES_MAX] = [0; OBJECT_BYTES_MAX];
        let allocated = self.look_up(address).expect("what was given out is allocated");
        match allocated {
            Allocated::Object(class) => Ok(self.region.write(self.offset(address), &ZEROS[..class.bytes()])?),
            Allocated::Run(bytes) => self.clear(address, bytes),
        }
    }

    /// Makes all pages of `bytes` at `address` read as zeros. Nothing may touch them meanwhile.
    pub fn clear(&self, address: usize, bytes: u64) -> Result<(), FarError> {
        let start = self.offset(address);
        let offset = start - start % PAGE_BYTES as u64;
        let bytes = (start + bytes).next_multiple_of(PAGE_BYTES as u64) - offset;
        run(self.no_handlers.in_discards, || self.region.discard(offset, bytes))
    }

    fn change<T>(&self, code: impl FnOnce() -> T) -> T {
        run(self.no_handlers.in_changes, code)
    }

    /// Takes back what [`FarHeap::alloc`] gave out. The error may be of another address: of one that was freed a second
    /// time earlier, which is seen now.
    #[inline]
    pub fn free(&self, magazine: &mut Magazine, address: usize) -> Result<(), Misuse> {
        let offset = self.offset(address);
        let class = match self.look_up(address)? {
            Allocated::Object(class) => class,
            Allocated::Run(bytes) if magazine.contains_run(offset, bytes) => return Err(Misuse { address }),
            Allocated::Run(bytes) => {
                let not_kept = magazine.free_run(offset, bytes);
                return not_kept.map_or(Ok(()), |offset| self.free_run(self.address(offset)));
            }
        };
        if magazine.contains(class, offset) {
            return Err(Misuse { address });
        }
        if magazine.free(class, offset).is_err() {
            self.flush(magazine, class)?;
            magazine.free(class, offset).expect("there is room after a flush");
        }
        Ok(())
    }

    #[cold]
    fn flush(&self, magazine: &mut Magazine, class: Class) -> Result<(), Misuse> {
        let flushed = self.with(|heap| {
            self.note_peak(heap);
            heap.flush(magazine, class)
        });
        flushed.map_err(|error| Misuse { address: self.address(error.offset) })
    }

    fn free_run(&self, address: usize) -> Result<(), Misuse> {
        let freed = self.with(|heap| {
            self.note_peak(heap);
            let freed = heap.free(self.offset(address))?;
            let Freed::Run(retired) = freed else { return Ok(None) };
            if retired.pages() >= GIVE_BACK_PAGES {
                return Ok(Some(retired));
            }
            heap.release(retired);
            Ok(None)
        });
        if let Some(retired) = freed.map_err(|NotAllocated { .. }| Misuse { address })? {
            self.retire(retired);
        }
        Ok(())
    }

    /// Makes pages free for others. Many of them are given back to the node first; if it is not known whether the node
    /// will still forget them, they are given out again when it is.
    pub fn retire(&self, retired: Retired) {
        self.release_confirmed();
        if retired.pages() >= GIVE_BACK_PAGES {
            let bytes = u64::from(retired.pages()) * PAGE_BYTES as u64;
            if self.clear(self.address(retired.first().offset()), bytes).is_err() {
                return self.change(|| self.quarantine.keep(retired));
            }
        }
        self.with(|heap| heap.release(retired));
    }

    /// Bytes that were freed and are not given out, because it is not known yet whether the node will still forget
    /// them.
    #[must_use]
    pub fn quarantined_bytes(&self) -> u64 {
        self.release_confirmed();
        self.change(|| self.quarantine.bytes())
    }

    fn release_confirmed(&self) {
        if self.quarantine.is_empty() {
            return;
        }
        self.change(|| {
            self.quarantine.release_confirmed(&self.region, |retired| self.lock().release(retired));
        });
    }

    /// Takes back all of a magazine, as when its thread ends.
    pub fn flush_all(&self, magazine: &mut Magazine) -> Result<(), Misuse> {
        let flushed = self.with(|heap| {
            self.note_peak(heap);
            heap.flush_all(magazine)
        });
        flushed.map_err(|error| Misuse { address: self.address(error.offset) })
    }

    /// Bytes that the owner of `address` may use, at least as many as it asked for.
    #[inline]
    pub fn size_of(&self, address: usize) -> Result<usize, Misuse> {
        self.look_up(address).map(|allocated| allocated.bytes().narrow_usize())
    }

    /// The pages that are of what is at `address` and of nothing else, by their addresses: none if it shares all it
    /// has.
    pub fn own_pages(&self, address: usize) -> Result<Range<usize>, Misuse> {
        let (allocated, floor) = (self.look_up(address)?, |address: usize| address - address % PAGE_BYTES);
        let end = address + allocated.bytes().narrow_usize();
        Ok(match allocated {
            Allocated::Run(_) => floor(address)..end.next_multiple_of(PAGE_BYTES),
            Allocated::Object(_) => address.next_multiple_of(PAGE_BYTES)..floor(end),
        })
    }

    /// Whether what is at `address` now has `bytes` bytes where it is; else it is as it was and has to move. A small
    /// object that would be half empty has to move, to a smaller place; large memory is cut where it is.
    pub fn resize_in_place(&self, address: usize, bytes: usize) -> Result<bool, Misuse> {
        if let Allocated::Object(class) = self.look_up(address)? {
            return Ok((class.bytes() / 2..=class.bytes()).contains(&bytes));
        }
        let resized = self.with(|heap| heap.resize_in_place(self.offset(address), bytes as u64));
        match resized.map_err(|_| Misuse { address })? {
            Resized::Done => Ok(true),
            Resized::Shrunk(retired) => {
                self.retire(retired);
                Ok(true)
            }
            Resized::Refused => Ok(false),
        }
    }

    /// How full the heap is.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let used_bytes = self.with(|heap| self.note_peak(heap));
        Usage { bytes: self.region.bytes(), used_bytes, peak_bytes: self.peak_bytes.load(Ordering::Relaxed) }
    }

    /// Whether nothing is allocated, nor in any magazine.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let stats = self.with(|heap| heap.stats());
        stats.objects == 0 && stats.run_pages == 0 && stats.retired_pages == 0
    }

    /// Bytes of the pages that are in use.
    fn note_peak(&self, heap: &Heap) -> u64 {
        let used = heap.used_pages() * PAGE_BYTES as u64;
        self.peak_bytes.fetch_max(used, Ordering::Relaxed);
        used
    }

    #[inline]
    fn look_up(&self, address: usize) -> Result<Allocated, Misuse> {
        // What lies before the region has an offset behind its end.
        self.map.look_up(self.offset(address)).map_err(|_| Misuse { address })
    }

    #[inline]
    fn offset(&self, address: usize) -> u64 {
        address.wrapping_sub(self.base) as u64
    }

    #[inline]
    fn address(&self, offset: u64) -> usize {
        self.base.wrapping_add(offset.narrow_usize())
    }
}

fn run<T>(uninterrupted: Uninterrupted, code: impl FnOnce() -> T) -> T {
    let (mut code, mut result) = (Some(code), None);
    uninterrupted(&mut || result = code.take().map(|code| code()));
    result.expect("the code was run, once")
}
