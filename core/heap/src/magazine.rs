//! [`Magazine`]: what a thread keeps ready, so that most allocations take no lock: small objects, and short runs that
//! it has freed.
//!
//! After Bonwick's magazines. One belongs to one thread. What is in it is live for the [`Heap`](crate::Heap) and for
//! the [`PageMap`](crate::PageMap), so taking something and putting it back changes nothing that others see. Any
//! thread's magazine takes any thread's objects and runs.

use yonder_units::{Narrow, PAGE_BYTES, pages_for};

use crate::NotAllocated;
use crate::class::{CLASSES, Class, OBJECT_BYTES_MAX};

/// Most objects of a class in a magazine.
pub const MAGAZINE_OBJECTS_MAX: usize = 64;
/// Most bytes of a class in a magazine. Each refill and each flush holds signals back, by two system calls, so half of
/// this should be some objects of any class.
pub const MAGAZINE_BYTES_MAX: usize = 48 << 10;
const _: () = assert!(MAGAZINE_BYTES_MAX / OBJECT_BYTES_MAX >= 4);

/// Most pages of a run in a magazine.
pub const MAGAZINE_RUN_PAGES_MAX: u32 = 32;
/// Most pages of all runs in a magazine: nobody else has them, so no more than help.
const RUN_PAGES_IN_ALL: u32 = 48;
/// Most runs of as many pages.
const RUNS_EACH: usize = 8;

/// A magazine has no room for the object, and did not take it: flush its class first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

/// Objects of each class that are ready to be used, and runs.
#[derive(Debug)]
pub struct Magazine {
    stacks: Box<[Stack; CLASSES]>,
    /// By their pages, less one.
    runs: Box<[Runs; MAGAZINE_RUN_PAGES_MAX as usize]>,
    run_pages: u32,
}

/// Runs of as many pages, the one that was freed last at the end.
#[derive(Debug)]
struct Runs {
    count: usize,
    runs: [ReadyRun; RUNS_EACH],
}

/// A run as it was for the heap when it was put back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadyRun {
    /// Where it begins.
    pub offset: u64,
    /// Its usable bytes.
    pub bytes: u64,
}

#[derive(Debug)]
struct Stack {
    count: usize,
    offsets: [u64; MAGAZINE_OBJECTS_MAX],
}

impl Magazine {
    /// An empty magazine.
    #[must_use]
    pub fn new() -> Self {
        const NONE: Runs = Runs { count: 0, runs: [ReadyRun { offset: 0, bytes: 0 }; RUNS_EACH] };
        Self {
            stacks: Box::new([const { Stack { count: 0, offsets: [0; MAGAZINE_OBJECTS_MAX] } }; CLASSES]),
            runs: Box::new([NONE; MAGAZINE_RUN_PAGES_MAX as usize]),
            run_pages: 0,
        }
    }

    /// Takes an object, the one that was put back last. With `None`, the caller [refills](crate::Heap::refill) the
    /// class and tries again.
    #[inline]
    pub fn alloc(&mut self, class: Class) -> Option<u64> {
        let stack = &mut self.stacks[class.index()];
        let top = stack.count.checked_sub(1)?;
        stack.count = top;
        stack.offsets.get(top).copied()
    }

    /// Puts back an object that [`PageMap::look_up`](crate::PageMap::look_up) says is of this class. If the class is
    /// full, the caller [flushes](crate::Heap::flush) it and tries again.
    #[inline]
    pub fn free(&mut self, class: Class, offset: u64) -> Result<(), Full> {
        let stack = &mut self.stacks[class.index()];
        if stack.count >= limit(class) {
            return Err(Full);
        }
        stack.offsets[stack.count] = offset;
        stack.count += 1;
        Ok(())
    }

    /// Whether `offset` lies ready, which means that it has been freed.
    #[must_use]
    #[inline]
    pub fn contains(&self, class: Class, offset: u64) -> bool {
        let stack = &self.stacks[class.index()];
        stack.offsets[..stack.count].contains(&offset)
    }

    /// Takes a run with at least `bytes` usable bytes and no page more than they need, of those the one that was put
    /// back last. It begins at a multiple of [`START_BYTES`](crate::START_BYTES). A program that resizes what it has
    /// freed changes what lies ready: then [`PageMap::look_up`](crate::PageMap::look_up) says something else of it, and
    /// the caller asks for another one.
    #[inline]
    pub fn alloc_run(&mut self, bytes: u64) -> Option<ReadyRun> {
        let pages = pages_for(bytes).max(1);
        let Runs { count, runs } = self.runs.get_mut(usize::try_from(pages - 1).ok()?)?;
        let fitting = runs[..*count].iter().rposition(|run| run.bytes >= bytes)?;
        let run = runs[fitting];
        runs.copy_within(fitting + 1..*count, fitting);
        *count -= 1;
        self.run_pages -= pages.narrow_u32();
        Some(run)
    }

    /// Puts back a run of which [`PageMap::look_up`](crate::PageMap::look_up) says that it has so many bytes. Returns
    /// the offset of one that is not kept, which the caller [frees](crate::Heap::free): the one of as many pages that
    /// has lain here for longest, if there is no room beside it, or this one, if it is too long.
    #[inline]
    #[must_use = "a run that is not kept is lost"]
    pub fn free_run(&mut self, offset: u64, bytes: u64) -> Option<u64> {
        let pages = pages_of(offset, bytes);
        // One that was resized may have a page more than its bytes need, and nobody would ask for it.
        if pages == 0 || pages > MAGAZINE_RUN_PAGES_MAX || u64::from(pages) > pages_for(bytes) {
            return Some(offset);
        }
        let Runs { count, runs } = &mut self.runs[pages as usize - 1];
        let mut displaced = None;
        if *count == RUNS_EACH || self.run_pages + pages > RUN_PAGES_IN_ALL {
            if *count == 0 {
                return Some(offset);
            }
            displaced = Some(runs[0].offset);
            runs.copy_within(1..*count, 0);
            *count -= 1;
            self.run_pages -= pages;
        }
        runs[*count] = ReadyRun { offset, bytes };
        *count += 1;
        self.run_pages += pages;
        displaced
    }

    /// Whether the run at `offset` lies ready, which means that it has been freed.
    #[must_use]
    #[inline]
    pub fn contains_run(&self, offset: u64, bytes: u64) -> bool {
        // One that another thread has freed meanwhile may have none.
        let pages = pages_of(offset, bytes) as usize;
        let of_as_many_pages = pages.checked_sub(1).and_then(|less_one| self.runs.get(less_one));
        of_as_many_pages.is_some_and(|Runs { count, runs }| runs[..*count].iter().any(|run| run.offset == offset))
    }

    /// Takes all runs, and passes each on.
    pub(crate) fn drain_runs(&mut self, mut each: impl FnMut(u64)) {
        for Runs { count, runs } in self.runs.iter_mut() {
            runs[..*count].iter().for_each(|run| each(run.offset));
            *count = 0;
        }
        self.run_pages = 0;
    }

    /// Objects of a class that lie ready.
    #[must_use]
    pub fn objects(&self, class: Class) -> usize {
        self.stacks[class.index()].count
    }

    /// Objects that a refill adds and a flush takes: half of a magazine.
    pub(crate) fn batch(class: Class) -> usize {
        limit(class) / 2
    }

    /// Takes the `count` objects that lie deepest, or all, and passes each on. Returns the first error.
    pub(crate) fn drain(
        &mut self,
        class: Class,
        count: usize,
        mut each: impl FnMut(u64) -> Result<(), NotAllocated>,
    ) -> Result<(), NotAllocated> {
        let stack = &mut self.stacks[class.index()];
        let count = count.min(stack.count);
        let mut result = Ok(());
        for offset in &stack.offsets[..count] {
            result = result.and(each(*offset));
        }
        stack.offsets.copy_within(count..stack.count, 0);
        stack.count -= count;
        result
    }

    /// Turns the uppermost `count` objects round, so that the first that came is the first to go.
    pub(crate) fn reverse(&mut self, class: Class, count: usize) {
        let stack = &mut self.stacks[class.index()];
        stack.offsets[stack.count - count..stack.count].reverse();
    }
}

impl Default for Magazine {
    fn default() -> Self {
        Self::new()
    }
}

/// Pages of a run.
#[inline]
fn pages_of(offset: u64, bytes: u64) -> u32 {
    pages_for(offset % PAGE_BYTES as u64 + bytes).try_into().unwrap_or(u32::MAX)
}

/// Most objects of a class.
#[inline]
fn limit(class: Class) -> usize {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "there are fewer than 256 classes, and at most 64 objects of each"
    )]
    const LIMITS: [u8; CLASSES] = {
        let mut limits = [0; CLASSES];
        let mut index = 0;
        while index < CLASSES {
            let objects = MAGAZINE_BYTES_MAX / Class::at(index as u8).bytes();
            limits[index] = if objects > MAGAZINE_OBJECTS_MAX { MAGAZINE_OBJECTS_MAX } else { objects } as u8;
            index += 1;
        }
        limits
    };
    LIMITS[class.index()] as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_in_is_first_out_and_the_deepest_leave() {
        let (mut magazine, of_eight) = (Magazine::new(), Class::all().find(|class| limit(*class) == 8));
        let class = of_eight.expect("some class has so many");
        assert_eq!(magazine.alloc(class), None);
        (0..8).for_each(|offset| magazine.free(class, offset).unwrap());
        assert_eq!(magazine.free(class, 99), Err(Full));
        assert!(magazine.contains(class, 0) && !magazine.contains(class, 99));
        let mut left = Vec::new();
        let refuse = |offset| {
            left.push(offset);
            if offset == 1 { Err(NotAllocated { offset }) } else { Ok(()) }
        };
        assert_eq!(magazine.drain(class, 3, refuse), Err(NotAllocated { offset: 1 }));
        assert_eq!((left, magazine.objects(class)), (vec![0, 1, 2], 8 - 3));
        assert!(!magazine.contains(class, 0));
        assert_eq!(magazine.alloc(class), Some(7));
        magazine.reverse(class, 2);
        assert_eq!([magazine.alloc(class), magazine.alloc(class), magazine.alloc(class)], [Some(5), Some(6), Some(4)]);
    }

    #[test]
    fn a_run_is_given_to_who_needs_no_page_less() {
        let (mut magazine, page) = (Magazine::new(), PAGE_BYTES as u64);
        for (offset, bytes) in [(10 * page, 2 * page + 100), (20 * page + 64, 2 * page + 1), (30 * page, 3 * page)] {
            assert_eq!(magazine.free_run(offset, bytes), None);
            assert!(magazine.contains_run(offset, bytes) && !magazine.contains_run(offset + page, bytes));
        }
        assert_eq!(magazine.free_run(40 * page - 64, page + 65), Some(40 * page - 64), "three pages for two");
        assert_eq!([magazine.alloc_run(2 * page), magazine.alloc_run(3 * page + 1)], [None, None]);
        let longest = ReadyRun { offset: 30 * page, bytes: 3 * page };
        assert_eq!(magazine.alloc_run(2 * page + 101), Some(longest), "the others have fewer bytes");
        let longer = ReadyRun { offset: 10 * page, bytes: 2 * page + 100 };
        assert_eq!(magazine.alloc_run(2 * page + 2), Some(longer), "the other has fewer bytes");
        let mut left = Vec::new();
        magazine.drain_runs(|offset| left.push(offset));
        assert_eq!((left, magazine.run_pages), (vec![20 * page + 64], 0));
    }

    #[test]
    fn a_magazine_keeps_few_runs_and_those_that_were_freed_last() {
        let (mut magazine, page) = (Magazine::new(), PAGE_BYTES as u64);
        let longest = u64::from(MAGAZINE_RUN_PAGES_MAX) * page;
        assert_eq!(magazine.free_run(0, longest + 1), Some(0));
        let mut put = |bytes, runs: std::ops::Range<u64>| {
            let not_kept = runs.filter_map(|at| magazine.free_run(at << 20, bytes)).map(|offset| offset >> 20);
            not_kept.collect::<Vec<u64>>()
        };
        assert_eq!(put(page, 0..10), [0, 1], "eight of as many pages");
        assert_eq!(put(longest, 0..3), [0, 1], "48 pages in all");
        assert_eq!(put(4 * page, 7..10), [7], "there is room for two");
        assert_eq!(put(2 * page, 9..10), [9]);
        assert_eq!(magazine.alloc_run(page), Some(ReadyRun { offset: 9 << 20, bytes: page }));
    }

    #[test]
    fn a_run_without_bytes_is_in_no_magazine() {
        let mut magazine = Magazine::new();
        assert!(!magazine.contains_run(4 << 20, 0));
        assert_eq!(magazine.free_run(4 << 20, 0), Some(4 << 20));
    }

    #[test]
    fn bounds_follow_the_size() {
        let bound = |bytes| limit(Class::fitting(bytes, 1).unwrap());
        assert_eq!([16, 128, 1024, 2048, 4096, 8192].map(bound), [64, 64, 48, 24, 12, 6]);
    }
}
