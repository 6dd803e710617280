//! [`World`]: a heap and three magazines, and an oracle that knows every object by its interval.

use std::collections::BTreeMap;

use yonder_heap::SAVING_BYTES_MIN;
use yonder_heap::{Allocated, Class, Freed, Heap, Magazine, NotAllocated, PageMap, Resized, START_BYTES};
use yonder_units::{PAGE_BYTES, PageIndex, SEGMENTS_MAX, Vector};

const PAGE: u64 = PAGE_BYTES as u64;
const MAGAZINES: usize = 3;

/// One step, from numbers that mean something in any world.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    /// What to do.
    pub(crate) action: u8,
    /// How many bytes.
    pub(crate) bytes: u64,
    /// The power of two of the alignment.
    pub(crate) align_power: u32,
    /// Which object.
    pub(crate) which: u32,
    /// Which magazine.
    pub(crate) magazine: usize,
}

/// A heap beside its oracle.
pub(crate) struct World {
    pub(crate) heap: Heap,
    bytes: u64,
    magazines: [Magazine; MAGAZINES],
    /// Usable bytes by offset.
    objects: BTreeMap<u64, u64>,
    /// The offsets in no order, to choose from.
    offsets: Vec<u64>,
    /// Allocations that found no room.
    pub(crate) refused: u64,
}

impl World {
    pub(crate) fn new(bytes: u64) -> Self {
        let magazines = std::array::from_fn(|_| Magazine::new());
        Self { heap: Heap::new(bytes), bytes, magazines, objects: BTreeMap::new(), offsets: Vec::new(), refused: 0 }
    }

    pub(crate) fn objects(&self) -> usize {
        self.objects.len()
    }

    /// Makes one step and checks what it did.
    pub(crate) fn step(&mut self, step: Step) {
        match step.action {
            0..100 => self.alloc(step),
            100..180 => self.free(step),
            180..200 => self.resize(step),
            200..210 => self.refuse(step),
            210..240 => self.check_page(step),
            _ => self.flush(step.magazine),
        }
    }

    /// Frees everything, and checks that all of the range is one free run.
    pub(crate) fn end(mut self) {
        while let Some(which) = self.offsets.len().checked_sub(1) {
            let step = Step { action: 0, bytes: 0, align_power: 0, which: which as u32, magazine: which % MAGAZINES };
            self.free(step);
        }
        (0..MAGAZINES).for_each(|magazine| self.flush(magazine));
        let stats = self.heap.stats();
        assert_eq!((stats.objects, stats.run_pages, stats.retired_pages, stats.run_bytes), (0, 0, 0, 0));
        assert_eq!(stats.free_pages + stats.object_pages, self.bytes / PAGE);
        assert_eq!(self.heap.alloc(self.bytes, 1), Some(0), "what was freed does not come back in one piece");
        (0..self.bytes / PAGE)
            .for_each(|page| assert_eq!(self.heap.map().live(PageIndex(page as u32)), Some(Vector::WHOLE)));
    }

    /// Empties the magazines, and checks the live bytes of every page and the stated sums.
    pub(crate) fn check_all(&mut self) {
        (0..MAGAZINES).for_each(|magazine| self.flush(magazine));
        let mut pages: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
        let mut bytes = 0;
        for (offset, usable) in &self.objects {
            assert_eq!(self.heap.size_of(*offset), Ok(*usable));
            bytes += usable;
            // The pages inside a run are whole; its first and last ones are looked at.
            for page in [offset / PAGE, (offset + usable - 1) / PAGE] {
                let within = (*offset.max(&(page * PAGE)), (offset + usable).min((page + 1) * PAGE));
                let intervals = pages.entry(page).or_default();
                if intervals.last() != Some(&within) {
                    intervals.push(within);
                }
            }
        }
        for (page, intervals) in pages {
            check_live(self.heap.map(), page, &intervals);
        }
        let stats = self.heap.stats();
        assert_eq!(stats.object_bytes + stats.run_bytes, bytes);
        let pages = stats.free_pages + stats.object_pages + stats.run_pages + stats.retired_pages;
        assert_eq!(pages, self.bytes / PAGE);
    }

    fn alloc(&mut self, step: Step) {
        let align = 1 << step.align_power;
        let offset = match Class::fitting(step.bytes, align) {
            Some(class) if !step.which.is_multiple_of(4) => {
                let magazine = &mut self.magazines[step.magazine];
                magazine.alloc(class).or_else(|| {
                    self.heap.refill(magazine, class);
                    magazine.alloc(class)
                })
            }
            None if !step.which.is_multiple_of(4) && align <= START_BYTES => {
                let kept = self.magazines[step.magazine].alloc_run(step.bytes).map(|run| run.offset);
                kept.or_else(|| self.heap.alloc_large(step.bytes, align))
            }
            _ => self.heap.alloc(step.bytes, align),
        };
        let Some(offset) = offset else {
            self.refused += 1;
            return;
        };
        let usable = self.heap.size_of(offset).unwrap();
        assert!(
            usable >= step.bytes.max(1) && offset.is_multiple_of(align.max(16)),
            "{step:?} got {usable} at {offset}"
        );
        self.insert(offset, usable);
        self.offsets.push(offset);
    }

    fn free(&mut self, step: Step) {
        let Some(index) = (step.which as usize).checked_rem(self.offsets.len()) else { return };
        let offset = self.offsets.swap_remove(index);
        let usable = self.objects.remove(&offset).unwrap();
        match self.heap.map().look_up(offset).unwrap() {
            Allocated::Object(class) if !step.which.is_multiple_of(4) => {
                let magazine = &mut self.magazines[step.magazine];
                if magazine.free(class, offset).is_err() {
                    self.heap.flush(magazine, class).unwrap();
                    magazine.free(class, offset).unwrap();
                }
            }
            Allocated::Run(bytes) if !step.which.is_multiple_of(4) => {
                let not_kept = self.magazines[step.magazine].free_run(offset, bytes);
                assert_eq!(not_kept != Some(offset), self.magazines[step.magazine].contains_run(offset, bytes));
                if let Some(Freed::Run(retired)) = not_kept.map(|offset| self.heap.free(offset).unwrap()) {
                    self.heap.release(retired);
                }
            }
            _ => match self.heap.free(offset).unwrap() {
                Freed::Object(class) => assert_eq!(class.bytes() as u64, usable),
                Freed::Run(retired) => {
                    let pages = (offset / PAGE, pages_until(offset, usable) - offset / PAGE);
                    assert_eq!((u64::from(retired.first().0), u64::from(retired.pages())), pages);
                    assert_eq!(self.heap.map().live(retired.first()), None);
                    assert_eq!(self.heap.free(offset), Err(NotAllocated { offset }));
                    self.heap.release(retired);
                }
            },
        }
    }

    fn resize(&mut self, step: Step) {
        let Some(index) = (step.which as usize).checked_rem(self.offsets.len()) else { return };
        let offset = self.offsets[index];
        let before = self.objects.remove(&offset).unwrap();
        let resized = self.heap.resize_in_place(offset, step.bytes).unwrap();
        let usable = self.heap.size_of(offset).unwrap();
        match resized {
            Resized::Refused => assert!(step.bytes > before && usable == before),
            Resized::Done => {
                assert!(usable >= step.bytes && pages_until(offset, usable) >= pages_until(offset, before));
            }
            Resized::Shrunk(retired) => {
                let end = retired.first().offset() + u64::from(retired.pages()) * PAGE;
                assert!(usable >= step.bytes && end == (offset + before).next_multiple_of(PAGE));
                assert_eq!(retired.first().offset(), (offset + usable).next_multiple_of(PAGE));
                self.heap.release(retired);
            }
        }
        self.insert(offset, usable);
    }

    /// Frees what is not there.
    fn refuse(&mut self, step: Step) {
        let Some(index) = (step.which as usize).checked_rem(self.offsets.len()) else { return };
        let offset = self.offsets[index];
        let usable = self.objects[&offset];
        let is_run = matches!(self.heap.map().look_up(offset), Ok(Allocated::Run(_)));
        // Before a run there is nothing in its first page.
        let page_start = if is_run { offset - offset % PAGE } else { offset + 1 };
        for inside in [page_start, offset + 1, offset + 8, offset + usable / 2, offset + usable - 1] {
            if inside == offset {
                continue;
            }
            assert_eq!(self.heap.free(inside), Err(NotAllocated { offset: inside }));
        }
        assert_eq!(self.heap.free(self.bytes + offset).err(), Some(NotAllocated { offset: self.bytes + offset }));
        assert_eq!(self.heap.size_of(offset), Ok(usable), "a refused free changed something");
    }

    /// Whatever lies in magazines, what is live of an object's first page is said to be.
    fn check_page(&mut self, step: Step) {
        let Some(index) = (step.which as usize).checked_rem(self.offsets.len()) else { return };
        let page = self.offsets[index] / PAGE;
        let kept = kept(self.heap.map().live(PageIndex(page as u32)));
        for (offset, usable) in self.objects.range(page * PAGE..(page + 1) * PAGE) {
            let within = offset % PAGE;
            let end = (within + usable).min(PAGE);
            assert!(!kept[within as usize..end as usize].contains(&false), "{usable} bytes at {offset} are lost");
        }
    }

    fn flush(&mut self, magazine: usize) {
        self.heap.flush_all(&mut self.magazines[magazine]).unwrap();
    }

    fn insert(&mut self, offset: u64, usable: u64) {
        let before = self.objects.range(..offset).next_back().map_or(0, |(offset, usable)| offset + usable);
        let next = self.objects.range(offset..).next().map_or(self.bytes, |(offset, _)| *offset);
        assert!(before <= offset && offset + usable <= next, "{usable} bytes at {offset} overlap another object");
        self.objects.insert(offset, usable);
    }
}

/// The page behind the last of `bytes` bytes at `offset`.
fn pages_until(offset: u64, bytes: u64) -> u64 {
    (offset + bytes).div_ceil(PAGE)
}

/// Which bytes of a page are kept.
fn kept(live: Option<Vector>) -> Vec<bool> {
    let mut kept = vec![false; PAGE_BYTES];
    live.into_iter().flat_map(Vector::segments).for_each(|segment| kept[segment].fill(true));
    kept
}

/// The live bytes of a page are those of these intervals, and others only where there are too many.
fn check_live(map: &PageMap, page: u64, intervals: &[(u64, u64)]) {
    let mut live = vec![false; PAGE_BYTES];
    for (start, end) in intervals {
        live[(start - page * PAGE) as usize..(end - page * PAGE) as usize].fill(true);
    }
    let answer = map.live(PageIndex(page as u32));
    let kept = kept(answer);
    assert!(live.iter().zip(&kept).all(|(live, kept)| kept >= live), "page {page}: {intervals:?}, kept {answer:?}");
    let clusters = live.chunk_by(|a, b| a == b).filter(|chunk| chunk[0]).count();
    let dead = live.iter().filter(|live| !**live).count();
    if clusters <= SEGMENTS_MAX && dead >= SAVING_BYTES_MIN {
        assert_eq!(live, kept, "page {page}: {intervals:?}, kept {answer:?}");
    }
}
