//! [`Heap`]: the one place where far memory is given out and taken back.
//!
//! Small objects come from [`Slabs`], of one class each; what is larger from [`Runs`] of whole pages. What a
//! page is stands in the [`PageMap`], which any thread may read. The heap itself has one user at a time: its caller's
//! lock.
//!
//! A run is freed in two steps, as its caller may want to give the pages back to the memory node, and nobody else may
//! use them meanwhile: [`Heap::free`] ends the run, [`Heap::release`] makes its pages free for others.

use std::sync::Arc;

use yonder_units::{Narrow, PAGE_BYTES, PageIndex, pages_for};

use crate::class::{CLASSES, Class, GRANULE_BYTES};
use crate::magazine::Magazine;
use crate::page_map::{Allocated, PageMap, Run};
use crate::runs::Runs;
use crate::slabs::Slabs;
use crate::{HEAP_BYTES_MAX, NotAllocated};

/// An allocator of byte offsets. The same calls give the same offsets.
#[derive(Debug)]
pub struct Heap {
    map: Arc<PageMap>,
    runs: Runs,
    slabs: [Slabs; CLASSES],
    pages: u32,
    /// Pages below this have been in use.
    used_below: u32,
    run_pages: u32,
    run_bytes: u64,
    retired_pages: u32,
    /// Where the next run begins in its first page, as a fraction of what is possible.
    next_start: u32,
}

/// Runs that may begin in their first page begin at multiples of this: a line of the caches.
pub const START_BYTES: u64 = 64;

/// What was freed.
#[must_use = "the pages of a run are lost"]
#[derive(PartialEq, Eq, Debug)]
pub enum Freed {
    /// A small object. Nothing is left to do.
    Object(Class),
    /// A run of pages, to be released.
    Run(Retired),
}

/// Pages that nobody uses and nobody gets before [`Heap::release`].
#[must_use = "the pages are lost"]
#[derive(PartialEq, Eq, Debug)]
pub struct Retired {
    first: u32,
    pages: u32,
}

impl Retired {
    /// The first of the pages.
    #[must_use]
    pub fn first(&self) -> PageIndex {
        PageIndex(self.first)
    }

    /// How many pages follow one another, at least one.
    #[must_use]
    pub fn pages(&self) -> u32 {
        self.pages
    }
}

/// Whether something could be resized where it is.
#[must_use = "pages that were cut off are lost"]
#[derive(PartialEq, Eq, Debug)]
pub enum Resized {
    /// It has the bytes that were asked for.
    Done,
    /// It has them, and these pages less than before, to be released.
    Shrunk(Retired),
    /// It is as it was: it has to move.
    Refused,
}

/// What a heap holds. Bytes and pages of magazines are counted as live.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Stats {
    /// Small objects.
    pub objects: u64,
    /// Their bytes, each as large as its class.
    pub object_bytes: u64,
    /// Pages that hold small objects, or are kept to.
    pub object_pages: u64,
    /// Usable bytes of runs.
    pub run_bytes: u64,
    /// Pages of runs.
    pub run_pages: u64,
    /// Pages that were freed and not released.
    pub retired_pages: u64,
    /// Pages that are free.
    pub free_pages: u64,
    /// Address space of the local bookkeeping, in bytes.
    pub metadata_reserved_bytes: u64,
    /// How much of that is backed by local memory, in bytes: about, and at most, the share of the pages up to the
    /// highest that was ever in use.
    pub metadata_bytes: u64,
}

impl Heap {
    /// A heap of the whole pages of `bytes` bytes. It costs nothing to speak of before its pages are used.
    ///
    /// # Panics
    /// If `bytes` is less than a page or more than [`HEAP_BYTES_MAX`], or the address space cannot hold the
    /// bookkeeping.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        assert!((PAGE_BYTES as u64..=HEAP_BYTES_MAX).contains(&bytes), "a heap of {bytes} bytes");
        let pages = (bytes / PAGE_BYTES as u64).narrow_u32();
        Self {
            map: Arc::new(PageMap::new(pages as usize)),
            runs: Runs::new(pages),
            slabs: std::array::from_fn(|class| Slabs::new(Class::at(class.narrow_u8()), pages)),
            pages,
            used_below: 0,
            run_pages: 0,
            run_bytes: 0,
            retired_pages: 0,
            next_start: 0,
        }
    }

    /// What every page is, for all threads.
    #[must_use]
    pub fn map(&self) -> &Arc<PageMap> {
        &self.map
    }

    /// Gives out `bytes` bytes, or one if that is 0, at a multiple of `align`. Their content is undefined. `None` if
    /// there is no room; objects in magazines may be in the way.
    ///
    /// # Panics
    /// If `align` is not a power of two.
    pub fn alloc(&mut self, bytes: u64, align: u64) -> Option<u64> {
        assert!(align.is_power_of_two(), "an alignment of {align} bytes");
        let Some(class) = Class::fitting(bytes, align) else { return self.alloc_large(bytes, align) };
        let mut object = None;
        self.take_objects(class, 1, |offset| object = Some(offset));
        // Where there are not so many pages together, fewer may do.
        object.or_else(|| if class.slab_pages() > 1 { self.alloc_large(bytes, align) } else { None })
    }

    /// Takes back what was given out at `offset`. Small objects may as well go into a [`Magazine`].
    pub fn free(&mut self, offset: u64) -> Result<Freed, NotAllocated> {
        match self.map.look_up(offset)? {
            Allocated::Object(class) => self.give_object(class, offset).map(|()| Freed::Object(class)),
            Allocated::Run(_) => {
                let run = self.map.run(PageIndex::containing(offset).0);
                self.map.close_run(run);
                self.run_bytes -= run.bytes;
                Ok(Freed::Run(self.retire(run.pages())))
            }
        }
    }

    /// Makes pages free for others.
    pub fn release(&mut self, retired: Retired) {
        let Retired { first, pages } = retired;
        assert!(pages <= self.retired_pages, "{pages} pages are released, and {} are retired", self.retired_pages);
        self.retired_pages -= pages;
        self.runs.give(first, pages);
        self.check();
    }

    /// Bytes that the owner of `offset` may use, at least as many as it asked for. The same as by [`PageMap::look_up`].
    pub fn size_of(&self, offset: u64) -> Result<u64, NotAllocated> {
        self.map.look_up(offset).map(Allocated::bytes)
    }

    /// Makes what is at `offset` hold `bytes` bytes without moving it, if it can be done: an object within its class; a
    /// run by cutting off pages, or by taking free ones behind it. New bytes are undefined.
    pub fn resize_in_place(&mut self, offset: u64, bytes: u64) -> Result<Resized, NotAllocated> {
        match self.map.look_up(offset)? {
            Allocated::Object(class) if bytes <= class.bytes() as u64 => Ok(Resized::Done),
            Allocated::Object(_) => Ok(Resized::Refused),
            Allocated::Run(_) => Ok(self.resize_run(self.map.run(PageIndex::containing(offset).0), bytes)),
        }
    }

    /// Makes two runs of the one at `offset`, which begins with its page: `bytes` of it, whole pages and not all, and
    /// the rest, which begins behind them.
    ///
    /// # Panics
    /// If `bytes` is not so.
    pub fn split(&mut self, offset: u64, bytes: u64) -> Result<(), NotAllocated> {
        let Allocated::Run(before) = self.map.look_up(offset)? else { return Err(NotAllocated { offset }) };
        let run = self.map.run(PageIndex::containing(offset).0);
        if run.start > 0 {
            return Err(NotAllocated { offset });
        }
        let is_inside = bytes > 0 && bytes < before && bytes.is_multiple_of(PAGE_BYTES as u64);
        assert!(is_inside, "a run of {before} bytes cannot be split after {bytes}");
        self.map.split_run(run, bytes);
        self.map.publish();
        Ok(())
    }

    /// Fills half of a class of `magazine`. Returns how many objects came: none if the heap is full, or
    /// the class half full already.
    pub fn refill(&mut self, magazine: &mut Magazine, class: Class) -> usize {
        let wanted = Magazine::batch(class).saturating_sub(magazine.objects(class));
        let came = self.take_objects(class, wanted, |offset| {
            magazine.free(class, offset).expect("half of a magazine has room");
        });
        magazine.reverse(class, came);
        came
    }

    /// Takes back half of a class of `magazine`, what lay in it for longest. An error names the first object that is
    /// not live because it was freed twice; all others are taken back nevertheless.
    pub fn flush(&mut self, magazine: &mut Magazine, class: Class) -> Result<(), NotAllocated> {
        magazine.drain(class, Magazine::batch(class), |offset| self.give_object(class, offset))
    }

    /// Takes back all of `magazine`, as when its thread ends. Errors are those of [`Heap::flush`].
    pub fn flush_all(&mut self, magazine: &mut Magazine) -> Result<(), NotAllocated> {
        let mut result = Ok(());
        for class in Class::all() {
            result = result.and(magazine.drain(class, usize::MAX, |offset| self.give_object(class, offset)));
        }
        magazine.drain_runs(|offset| {
            let freed = self.free(offset).map(|freed| match freed {
                Freed::Run(retired) => self.release(retired),
                Freed::Object(_) => {}
            });
            result = result.and(freed);
        });
        result
    }

    /// Pages that objects and runs have now.
    #[must_use]
    pub fn used_pages(&self) -> u64 {
        self.slabs.iter().map(|slabs| u64::from(slabs.pages())).sum::<u64>() + u64::from(self.run_pages)
    }

    /// What the heap holds now.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let sum = |each: fn(&Slabs) -> u64| self.slabs.iter().map(each).sum::<u64>();
        let reserved = self.map.bytes() + self.runs.bytes() + sum(Slabs::bytes);
        Stats {
            objects: sum(Slabs::live),
            object_bytes: sum(Slabs::live_bytes),
            object_pages: sum(|slabs| u64::from(slabs.pages())),
            run_bytes: self.run_bytes,
            run_pages: u64::from(self.run_pages),
            retired_pages: u64::from(self.retired_pages),
            free_pages: u64::from(self.runs.free()),
            metadata_reserved_bytes: reserved,
            metadata_bytes: (reserved * u64::from(self.used_below)).div_ceil(u64::from(self.pages)),
        }
    }

    /// As [`Heap::alloc`], as a run of whole pages however few the bytes are: for who resizes, splits and frees pages.
    /// It begins with its first page.
    ///
    /// # Panics
    /// If `align` is not a power of two.
    pub fn alloc_run(&mut self, bytes: u64, align: u64) -> Option<u64> {
        self.alloc_run_from(bytes, align, |_| 0)
    }

    /// As [`Heap::alloc_run`], but the bytes begin anywhere in the first page, without a page more for that.
    ///
    /// Copies between places whose addresses are nearly the same within a page are slow: the processor takes a load for
    /// one of what was just stored (4K aliasing). Of large objects that all began with a page, header and header,
    /// content and content would be such places.
    ///
    /// # Panics
    /// If `align` is not a power of two.
    pub fn alloc_large(&mut self, bytes: u64, align: u64) -> Option<u64> {
        if align > START_BYTES {
            return self.alloc_run(bytes, align);
        }
        // Multiples of the golden ratio are far from one another, however many of them there are.
        self.next_start = self.next_start.wrapping_add(0x9e37_79b9);
        let fraction = u64::from(self.next_start);
        self.alloc_run_from(bytes, 1, |room| ((fraction * (room / START_BYTES + 1)) >> u32::BITS) * START_BYTES)
    }

    /// A run that begins where `start` says, given how many bytes are left of its last page.
    fn alloc_run_from(&mut self, bytes: u64, align: u64, start: impl FnOnce(u64) -> u64) -> Option<u64> {
        assert!(align.is_power_of_two(), "an alignment of {align} bytes");
        let bytes = usable(bytes).filter(|bytes| pages_for(*bytes) <= u64::from(self.pages))?;
        let align = u32::try_from(align.div_ceil(PAGE_BYTES as u64)).ok()?;
        let pages = pages_for(bytes).narrow_u32();
        let first = self.take_pages(pages, align)?;
        let start = start(u64::from(pages) * PAGE_BYTES as u64 - bytes);
        let run = Run { first, start, bytes };
        debug_assert!(run.pages() == (first..first + pages), "{run:?} has more than {pages} pages");
        self.run_pages += pages;
        self.run_bytes += bytes;
        self.map.open_run(run);
        self.map.publish();
        self.check();
        Some(run.offset())
    }

    fn resize_run(&mut self, run: Run, bytes: u64) -> Resized {
        let room = u64::from(self.pages - run.first);
        let fits = |bytes: &u64| bytes.checked_add(run.start).is_some_and(|end| pages_for(end) <= room);
        let Some(bytes) = usable(bytes).filter(fits) else { return Resized::Refused };
        let (old, new) = (run.pages(), Run { bytes, ..run }.pages());
        if new.end > old.end {
            if !self.runs.take_at(old.end, new.end - old.end) {
                return Resized::Refused;
            }
            self.run_pages += new.end - old.end;
            self.used_below = self.used_below.max(new.end);
        }
        self.map.resize_run(run, bytes);
        self.map.publish();
        self.run_bytes = self.run_bytes - run.bytes + bytes;
        if new.end < old.end { Resized::Shrunk(self.retire(new.end..old.end)) } else { Resized::Done }
    }

    /// Makes up to `wanted` objects live and passes their offsets on.
    fn take_objects(&mut self, class: Class, wanted: usize, mut each: impl FnMut(u64)) -> usize {
        let mut taken = 0;
        loop {
            taken += self.slabs[class.index()].take(&self.map, wanted - taken, &mut each);
            if taken == wanted {
                break;
            }
            let pages = class.slab_pages();
            let Some(page) = self.take_pages(pages, pages) else { break };
            self.slabs[class.index()].open(&self.map, page);
        }
        self.map.publish();
        self.check();
        taken
    }

    fn give_object(&mut self, class: Class, offset: u64) -> Result<(), NotAllocated> {
        if let Some(page) = self.slabs[class.index()].give(&self.map, offset)? {
            self.runs.give(page, class.slab_pages());
        }
        self.check();
        Ok(())
    }

    /// Free pages; if there are none, slabs that are kept empty become such.
    fn take_pages(&mut self, pages: u32, align: u32) -> Option<u32> {
        let first = self.runs.take(pages, align).or_else(|| {
            for slabs in &mut self.slabs {
                while let Some(page) = slabs.close(&self.map) {
                    self.runs.give(page, slabs.slab_pages());
                }
            }
            self.runs.take(pages, align)
        })?;
        self.used_below = self.used_below.max(first + pages);
        Some(first)
    }

    fn retire(&mut self, pages: std::ops::Range<u32>) -> Retired {
        let count = pages.end - pages.start;
        self.run_pages -= count;
        self.retired_pages += count;
        self.check();
        Retired { first: pages.start, pages: count }
    }

    /// Each page is free, a slab, of a run, or retired.
    fn check(&self) {
        debug_assert!(
            {
                let slabs: u32 = self.slabs.iter().map(Slabs::pages).sum();
                self.runs.free() + slabs + self.run_pages + self.retired_pages == self.pages
            },
            "pages are lost, or counted twice: {:?}",
            self.stats()
        );
        debug_assert!(self.used_below <= self.pages);
    }
}

/// Bytes of a run that can be used when as many are asked for.
fn usable(bytes: u64) -> Option<u64> {
    bytes.max(1).checked_next_multiple_of(GRANULE_BYTES as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "pages are lost, or counted twice")]
    fn a_page_that_nobody_counts_is_our_bug() {
        let mut heap = Heap::new(64 * PAGE_BYTES as u64);
        let _ = heap.runs.take(1, 1);
        heap.alloc(8, 8);
    }

    #[test]
    #[should_panic(expected = "3 pages are released, and 0 are retired")]
    fn pages_of_another_heap_are_not_released() {
        let [mut one, mut other] = [(); 2].map(|()| Heap::new(64 * PAGE_BYTES as u64));
        let run = one.alloc(3 * PAGE_BYTES as u64, 1).unwrap();
        let Ok(Freed::Run(retired)) = one.free(run) else { panic!("three pages are a run") };
        other.release(retired);
    }
}
