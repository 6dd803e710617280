//! [`Allocator`]: gives out virtual ranges whose pages all find room in the page table.
//!
//! A bucket that is full is found here, at allocation, and never by a request: the allocator counts what each bucket
//! holds, and looks for another range when one would overflow a bucket (Clio, section 4.2). Each conflict moves the start
//! of the range behind the run of the page that had no room; an allocation gives up after [`RETRIES_MAX`] of them.
//!
//! Freeing takes two steps, because requests look pages up without a lock. [`Allocator::free`] ends all new lookups of the
//! range; [`Allocator::release`], once no request can still have an old one, makes slots and addresses free for others.
//!
//! One owner changes it (the node's slow path). Invariant: the count of a bucket is the number of its slots that have a tag.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::address::{Permission, PhysicalPage, Pid, VirtualPage};
use crate::page_table::{PageTable, RUN_PAGES, SLOTS_PER_BUCKET, Slot};

/// Conflicts after which an allocation gives up.
pub const RETRIES_MAX: u32 = 4096;
/// Address 0 is nobody's: it lies in the page before.
const FIRST_PAGE: u32 = 1;

/// Virtual ranges of all address spaces of a node.
#[derive(Debug)]
pub struct Allocator {
    table: Arc<PageTable>,
    /// Slots with a tag, by bucket.
    taken: Box<[u8]>,
    /// Slots with a tag, in all.
    taken_total: u64,
    spaces: HashMap<Pid, Space>,
}

#[derive(Debug, Default)]
struct Space {
    /// Ranges by their first page: allocated, or freed and not released.
    ranges: BTreeMap<u32, Range>,
    /// Where the search begins: behind the last allocation, so that addresses are not reused at once.
    next: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Range {
    pages: u32,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Allocated,
    Freed,
}

/// A range that was allocated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allocation {
    /// Its first page.
    pub first: VirtualPage,
    /// Ranges that were tried and had a page without room.
    pub retries: u32,
}

/// A range that was freed, to be given to [`Allocator::release`] once no request can use it any more.
#[must_use = "its slots and addresses are lost"]
#[derive(PartialEq, Eq, Debug)]
pub struct Freed {
    pid: Pid,
    first: u32,
    slots: Vec<Slot>,
    /// The memory it had.
    pub memory: Vec<PhysicalPage>,
}

/// Why nothing was allocated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AllocateError {
    /// No page was asked for, or more than an address space has.
    #[error("a range of {0} pages cannot be allocated")]
    Length(u32),
    /// The page table has no room, or none for a range as long as this.
    #[error("the node's page table has no room for {0} pages together: ask for less, or on another node")]
    NoRoom(u32),
}

/// Why nothing was freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FreeError {
    /// No range of this address space begins there.
    #[error("no allocated range begins at page {0}")]
    NotAllocated(u32),
}

impl Allocator {
    /// An allocator for a table that is empty.
    #[must_use]
    pub fn new(table: Arc<PageTable>) -> Self {
        let taken = vec![0; table.buckets()].into_boxed_slice();
        Self { table, taken, taken_total: 0, spaces: HashMap::new() }
    }

    /// Allocates `pages` pages that follow one another. They read as zeros and have no memory.
    pub fn allocate(&mut self, pid: Pid, pages: u32, permission: Permission) -> Result<Allocation, AllocateError> {
        if pages == 0 || pages == u32::MAX {
            return Err(AllocateError::Length(pages));
        }
        let slots = (self.taken.len() * SLOTS_PER_BUCKET) as u64;
        if self.taken_total + u64::from(pages) > slots {
            return Err(AllocateError::NoRoom(pages));
        }
        let (first, retries) = self.find(pid, pages).ok_or(AllocateError::NoRoom(pages))?;
        self.taken_total += u64::from(pages);
        for page in first..first + pages {
            self.table.insert(pid, VirtualPage(page), permission);
        }
        let space = self.spaces.entry(pid).or_default();
        space.ranges.insert(first, Range { pages, state: State::Allocated });
        space.next = first + pages;
        Ok(Allocation { first: VirtualPage(first), retries })
    }

    /// Pages of the range that begins at `first`, if it is allocated.
    #[must_use]
    pub fn pages_at(&self, pid: Pid, first: VirtualPage) -> Option<u32> {
        let range = self.spaces.get(&pid)?.ranges.get(&first.0)?;
        (range.state == State::Allocated).then_some(range.pages)
    }

    /// Frees the range that begins at `first`. No lookup that begins after this finds it.
    pub fn free(&mut self, pid: Pid, first: VirtualPage) -> Result<Freed, FreeError> {
        let pages = self.pages_at(pid, first).ok_or(FreeError::NotAllocated(first.0))?;
        let mut freed = Freed { pid, first: first.0, slots: Vec::with_capacity(pages as usize), memory: Vec::new() };
        for page in first.0..first.0 + pages {
            let (slot, memory) = self.table.remove(pid, VirtualPage(page));
            freed.slots.push(slot);
            freed.memory.extend(memory);
        }
        let space = self.spaces.get_mut(&pid).expect("it has the range");
        space.ranges.insert(first.0, Range { pages, state: State::Freed });
        Ok(freed)
    }

    /// Frees every range of an address space.
    pub fn free_all(&mut self, pid: Pid) -> Vec<Freed> {
        let ranges = self.spaces.get(&pid).map(|space| &space.ranges);
        let allocated = ranges.into_iter().flatten().filter(|(_, range)| range.state == State::Allocated);
        let firsts: Vec<u32> = allocated.map(|(first, _)| *first).collect();
        let free = |first| self.free(pid, VirtualPage(first)).expect("it is allocated");
        firsts.into_iter().map(free).collect()
    }

    /// Makes the slots and the addresses of a freed range free for others. The caller knows that no request which began
    /// before the free is still under way.
    pub fn release(&mut self, freed: Freed) {
        let Freed { pid, first, slots, .. } = freed;
        let space = self.spaces.get_mut(&pid).expect("it has the freed range");
        let range = space.ranges.remove(&first).expect("a range is released once");
        assert!(
            range.state == State::Freed && range.pages as usize == slots.len(),
            "a range is freed before its release"
        );
        if space.ranges.is_empty() {
            self.spaces.remove(&pid);
        }
        for (page, slot) in (first..).zip(slots) {
            self.table.forget(slot);
            self.taken[self.table.bucket_of(pid, VirtualPage(page))] -= 1;
        }
        self.taken_total -= u64::from(range.pages);
    }

    /// Pages of all ranges, the freed ones that are not released among them.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.taken_total
    }

    /// A free range whose pages all have room, counted as taken; and the conflicts on the way.
    fn find(&mut self, pid: Pid, pages: u32) -> Option<(u32, u32)> {
        let mut retries = 0;
        for (mut start, end) in self.gaps(pid) {
            while end - start >= pages {
                match self.take_room(pid, start, pages) {
                    Ok(()) => return Some((start, retries)),
                    // The rest of the conflict's run lies in buckets that are probably as full; the next run lies elsewhere.
                    Err(conflict) => start = (conflict / RUN_PAGES + 1).saturating_mul(RUN_PAGES).min(end),
                }
                retries += 1;
                if retries > RETRIES_MAX {
                    return None;
                }
            }
        }
        None
    }

    /// Gaps between the ranges of an address space as (start, end), those behind the last allocation first.
    fn gaps(&self, pid: Pid) -> Vec<(u32, u32)> {
        let Some(space) = self.spaces.get(&pid) else { return vec![(FIRST_PAGE, u32::MAX)] };
        let mut gaps = Vec::with_capacity(space.ranges.len() + 1);
        let mut start = FIRST_PAGE;
        for (first, range) in &space.ranges {
            gaps.push((start, *first));
            start = first + range.pages;
        }
        gaps.push((start, u32::MAX));
        gaps.retain(|(start, end)| start < end);
        let behind = gaps.partition_point(|(start, _)| *start < space.next);
        gaps.rotate_left(behind);
        gaps
    }

    /// Counts a place for each page of a range, or none, and says which page had none.
    fn take_room(&mut self, pid: Pid, start: u32, pages: u32) -> Result<(), u32> {
        for page in start..start + pages {
            let taken = &mut self.taken[self.table.bucket_of(pid, VirtualPage(page))];
            if usize::from(*taken) < SLOTS_PER_BUCKET {
                *taken += 1;
                continue;
            }
            for counted in start..page {
                self.taken[self.table.bucket_of(pid, VirtualPage(counted))] -= 1;
            }
            return Err(page);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::Lookup;

    fn pid(number: u32) -> Pid {
        Pid::new(number).unwrap()
    }

    fn board(physical_pages: u32, seed: u64) -> (Arc<PageTable>, Allocator) {
        let table = Arc::new(PageTable::new(physical_pages, seed));
        (Arc::clone(&table), Allocator::new(table))
    }

    #[test]
    fn ranges_do_not_overlap_and_address_zero_is_nobodys() {
        let (_, mut allocator) = board(1024, 1);
        let first = allocator.allocate(pid(1), 3, Permission::ReadWrite).unwrap().first;
        let second = allocator.allocate(pid(1), 2, Permission::ReadWrite).unwrap().first;
        assert!(first.0 >= 1 && second.0 >= first.0 + 3);
        assert_eq!(allocator.pages_at(pid(1), first), Some(3));
        assert_eq!(allocator.pages_at(pid(2), first), None);
    }

    #[test]
    fn a_freed_range_is_gone_at_once_and_reused_only_after_its_release() {
        let (table, mut allocator) = board(8, 1);
        let first = allocator.allocate(pid(1), 2, Permission::ReadWrite).unwrap().first;
        let Some(Lookup::Reserved(slot, _)) = table.look_up(pid(1), first) else { panic!() };
        table.map(slot, PhysicalPage(4)).unwrap();
        let freed = allocator.free(pid(1), first).unwrap();
        assert_eq!(freed.memory, [PhysicalPage(4)]);
        assert_eq!((table.look_up(pid(1), first), allocator.pages()), (None, 2));
        assert_eq!(allocator.free(pid(1), first), Err(FreeError::NotAllocated(first.0)));
        allocator.release(freed);
        assert_eq!(allocator.pages(), 0);
        assert_eq!(allocator.allocate(pid(1), 2, Permission::Read).unwrap().first.0, 1);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let (_, mut allocator) = board(16, 1);
        assert_eq!(allocator.allocate(pid(1), 0, Permission::Read), Err(AllocateError::Length(0)));
        assert_eq!(allocator.allocate(pid(1), 33, Permission::Read), Err(AllocateError::NoRoom(33)));
        assert_eq!(allocator.free(pid(1), VirtualPage(1)), Err(FreeError::NotAllocated(1)));
        assert!(allocator.free_all(pid(1)).is_empty());
    }

    /// Fills a node of 64 Ki pages to 98 % with allocations of up to `longest` pages of many address spaces, and returns
    /// the most retries of one, and their mean over the last tenth.
    fn retries_near_full(longest: u32) -> (u32, f64) {
        const PAGES: u32 = 65_536;
        let (_, mut allocator) = board(PAGES, 3);
        let (mut most, mut late, mut count) = (0, 0u64, 0u64);
        let mut draw = 1u64;
        while allocator.pages() < u64::from(PAGES) * 98 / 100 {
            draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let pages =
                (1 + (draw >> 33) as u32 % longest).min((u64::from(PAGES) * 98 / 100 - allocator.pages()) as u32);
            let retries =
                allocator.allocate(pid(1 + (draw >> 20) as u32 % 100), pages, Permission::Read).unwrap().retries;
            most = most.max(retries);
            if allocator.pages() > u64::from(PAGES) * 88 / 100 {
                (late, count) = (late + u64::from(retries), count + 1);
            }
        }
        (most, late as f64 / count as f64)
    }

    #[test]
    fn retries_stay_few_up_to_98_percent() {
        for longest in [1, 16, 64, 256, 1024] {
            let (most, mean_late) = retries_near_full(longest);
            println!("up to {longest} pages: at most {most} retries, {mean_late:.2} on average near full");
            assert!(most <= 60, "{most} retries of allocations up to {longest} pages");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 128 }))]
        /// Against a model: a set of pages. Every allocated page is found, no other is, and no bucket overflows (which
        /// `insert` asserts), however full the node is.
        #[test]
        fn keeps_what_a_set_would_keep(
            seed in any::<u64>(), operations in prop::collection::vec((1u32..5, 1u32..40, any::<u8>()), 1..120),
        ) {
            let (table, mut allocator) = board(128, seed);
            let mut ranges: Vec<(Pid, u32, u32)> = Vec::new();
            let mut waiting = Vec::new();
            for (owner, pages, choice) in operations {
                match choice % 4 {
                    0 if !ranges.is_empty() => {
                        let (owner, first, _) = ranges.swap_remove(usize::from(choice) % ranges.len());
                        waiting.push(allocator.free(owner, VirtualPage(first)).unwrap());
                    }
                    1 => waiting.drain(..).for_each(|freed| allocator.release(freed)),
                    _ => if let Ok(allocation) = allocator.allocate(pid(owner), pages, Permission::ReadWrite) {
                        ranges.push((pid(owner), allocation.first.0, pages));
                    }
                }
                let model: BTreeSet<(Pid, u32)> = ranges.iter()
                    .flat_map(|(owner, first, pages)| (*first..first + pages).map(|page| (*owner, page))).collect();
                let wanted: u32 = ranges.iter().map(|(.., pages)| pages).sum();
                prop_assert_eq!(model.len() as u32, wanted, "two ranges overlap");
                for owner in 1..5 {
                    for page in 0..200 {
                        let found = table.look_up(pid(owner), VirtualPage(page)).is_some();
                        prop_assert_eq!(found, model.contains(&(pid(owner), page)));
                    }
                }
            }
            for (owner, ..) in ranges { waiting.extend(allocator.free_all(owner)); }
            waiting.drain(..).for_each(|freed| allocator.release(freed));
            prop_assert_eq!(allocator.pages(), 0);
            prop_assert!(allocator.taken.iter().all(|taken| *taken == 0));
        }
    }
}
