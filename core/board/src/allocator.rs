//! [`Allocator`]: gives out virtual ranges whose pages all find room in the page table.
//!
//! A bucket that is full is found here, at allocation, and never by a request: the allocator counts what each bucket
//! holds, and looks for another range when one would overflow a bucket (Clio, section 4.2). Each conflict moves the
//! start of the range behind the run of the page that had no room; an allocation gives up after [`RETRIES_MAX`] of
//! them, or when it has looked at [`FIND_PAGES_MAX`] pages in vain: a tenant whose address space is all gaps must not
//! make others wait.
//!
//! Freeing takes two steps, because requests look pages up without a lock. [`Allocator::free`] ends all new lookups of
//! the range; [`Allocator::release`], once no request can still have an old one, makes slots and addresses free for
//! others.
//!
//! One owner changes it (the node's slow path). Invariant: the count of a bucket is the number of its slots that have a
//! tag.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::address::{PhysicalPage, Pid, VirtualPage};
use crate::moved::ClosedRanges;
use crate::page_table::{PageTable, RUN_PAGES, SLOTS_PER_BUCKET, Service, Slot};
use crate::range::{Allocated, Exposed, FIRST_PAGE, Terms, Window};

/// Conflicts after which an allocation gives up.
const RETRIES_MAX: u32 = 4096;
/// Pages that an allocation looks at in vain before it gives up: a millisecond or two.
const FIND_PAGES_MAX: u64 = 1 << 18;
/// A look at a range on the way counts as looks at so many pages.
const RANGE_COST: u64 = 8;

/// Virtual ranges of all address spaces of a node.
#[derive(Debug)]
pub(crate) struct Allocator {
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
    /// Whether nothing is allocated in it any more, for good.
    has_ended: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Range {
    pages: u32,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Allocated(Terms),
    Freed,
}

/// A range that was freed, to be given to [`Allocator::release`] once no request can use it any more.
#[must_use = "its slots and addresses are lost"]
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Freed {
    pid: Pid,
    first: u32,
    slots: Vec<Slot>,
    /// The memory it had.
    pub(crate) memory: Vec<PhysicalPage>,
}

impl Freed {
    /// The address space that it was in.
    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// Its pages, with memory or without.
    pub(crate) fn pages(&self) -> u64 {
        self.slots.len() as u64
    }
}

/// What a search may still look at, in pages.
#[derive(Debug)]
struct Budget(u64);

impl Budget {
    fn spend(&mut self, pages: u64) {
        self.0 = self.0.saturating_sub(pages);
    }

    fn is_spent(&self) -> bool {
        self.0 == 0
    }
}

/// Why nothing was allocated: the page table has no room, or none for a range as long as this.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NoRoom;

impl Allocator {
    /// An allocator for a table that is empty.
    pub(crate) fn new(table: Arc<PageTable>) -> Self {
        let taken = vec![0; table.buckets()].into_boxed_slice();
        Self { table, taken, taken_total: 0, spaces: HashMap::new() }
    }

    /// Allocates `pages` pages, not 0, that follow one another inside `window`, and where no closed range is. They read
    /// as zeros and have no memory. Returns the first page, and how many ranges were tried that had a page without
    /// room.
    pub(crate) fn allocate(
        &mut self,
        pid: Pid,
        pages: u32,
        terms: Terms,
        window: Window,
        closed: &ClosedRanges,
    ) -> Result<(VirtualPage, u32), NoRoom> {
        assert!(pages > 0, "no page is allocated");
        self.has_slots(pages)?;
        let (first, retries) = self.find(pid, pages, window, closed).ok_or(NoRoom)?;
        self.insert(pid, first, pages, terms, Service::Open);
        self.spaces.entry(pid).or_default().next = first + pages;
        Ok((VirtualPage(first), retries))
    }

    /// Allocates exactly these pages, as such that move and so cannot be used yet.
    pub(crate) fn allocate_moving(&mut self, pid: Pid, first: u32, pages: u32, terms: Terms) -> Result<(), NoRoom> {
        self.has_slots(pages)?;
        let end = first.checked_add(pages).ok_or(NoRoom)?;
        let behind = |space: &Space| space.free_behind(first, &mut Budget(u64::MAX));
        let (free, next) = self.spaces.get(&pid).map_or((first, u32::MAX), behind);
        let occupied = free != first;
        if first < FIRST_PAGE || occupied || end > next || self.take_room(pid, first, pages).is_err() {
            return Err(NoRoom);
        }
        self.insert(pid, first, pages, terms, Service::Moving);
        Ok(())
    }

    /// The allocated range that begins at `first`.
    pub(crate) fn at(&self, pid: Pid, first: VirtualPage) -> Option<Allocated> {
        let range = self.spaces.get(&pid)?.ranges.get(&first.0)?;
        range.allocated(first.0)
    }

    /// The allocated range that `page` lies in.
    pub(crate) fn around(&self, pid: Pid, page: VirtualPage) -> Option<Allocated> {
        let (first, range) = self.spaces.get(&pid)?.ranges.range(..=page.0).next_back()?;
        range.allocated(*first).filter(|range| page.0 - range.first < range.pages)
    }

    /// The allocated ranges that have a page among `from..to`, in order.
    pub(crate) fn among(&self, pid: Pid, from: u32, to: u32) -> Vec<Allocated> {
        let Some(space) = self.spaces.get(&pid) else { return Vec::new() };
        let begins = self.around(pid, VirtualPage(from)).map_or(from, |range| range.first);
        space.ranges.range(begins..to).filter_map(|(first, range)| range.allocated(*first)).collect()
    }

    /// Notes that a client was told where the memory of the allocation is.
    pub(crate) fn expose(&mut self, pid: Pid, first: VirtualPage) {
        let range = self.spaces.get_mut(&pid).and_then(|space| space.ranges.get_mut(&first.0));
        if let Some(Range { state: State::Allocated(terms), .. }) = range {
            terms.exposed = Exposed::Yes;
        }
    }

    /// Frees the range that begins at `first`, if it is allocated. No lookup that begins after this finds it.
    pub(crate) fn free(&mut self, pid: Pid, first: VirtualPage) -> Option<Freed> {
        let pages = self.begin_free(pid, first)?;
        Some(self.unlink(pid, first, pages))
    }

    /// The range that begins at `first` is not allocated any more, if it was: how many pages it has. Lookups find its
    /// pages until [`Allocator::unlink`] has taken them out of the page table.
    pub(crate) fn begin_free(&mut self, pid: Pid, first: VirtualPage) -> Option<u32> {
        let range = self.at(pid, first)?;
        let space = self.spaces.get_mut(&pid).expect("it has the range");
        space.ranges.insert(first.0, Range { pages: range.pages, state: State::Freed });
        Some(range.pages)
    }

    /// Takes the first `pages` pages of a range that was freed out of the page table, and makes them a range of their
    /// own. No lookup that begins after this finds them.
    pub(crate) fn unlink(&mut self, pid: Pid, first: VirtualPage, pages: u32) -> Freed {
        let space = self.spaces.get_mut(&pid).expect("it has the freed range");
        let range = space.ranges.get_mut(&first.0).expect("the freed range begins there");
        assert!(range.state == State::Freed && range.pages >= pages, "pages are taken from a range that was freed");
        let rest = range.pages - pages;
        range.pages = pages;
        if rest > 0 {
            space.ranges.insert(first.0 + pages, Range { pages: rest, state: State::Freed });
        }
        let mut freed = Freed { pid, first: first.0, slots: Vec::with_capacity(pages as usize), memory: Vec::new() };
        for page in (first.0..first.0 + pages).map(VirtualPage) {
            let (slot, memory) = self.table.remove(pid, page);
            freed.slots.push(slot);
            freed.memory.extend(memory);
        }
        freed
    }

    /// The first range of an address space that is allocated and begins at page `from` or behind it.
    pub(crate) fn first_allocated(&self, pid: Pid, from: u32) -> Option<Allocated> {
        let ranges = &self.spaces.get(&pid)?.ranges;
        ranges.range(from..).find_map(|(first, range)| range.allocated(*first))
    }

    /// An address space has ended, and all its ranges are freed.
    pub(crate) fn end(&mut self, pid: Pid) {
        if let Some(space) = self.spaces.get_mut(&pid) {
            space.has_ended = true;
            if space.ranges.is_empty() {
                self.spaces.remove(&pid);
            }
        }
    }

    /// Makes the slots and the addresses of a freed range free for others, and returns the memory it had. The caller
    /// knows that no request which began before the free is still under way.
    pub(crate) fn release(&mut self, freed: Freed) -> Vec<PhysicalPage> {
        let Freed { pid, first, slots, memory } = freed;
        let space = self.spaces.get_mut(&pid).expect("it has the freed range");
        let range = space.ranges.remove(&first).expect("a range is released once");
        assert!(
            range.state == State::Freed && range.pages as usize == slots.len(),
            "a range is freed before its release"
        );
        if space.ranges.is_empty() && space.has_ended {
            self.spaces.remove(&pid);
        }
        for (page, slot) in (first..).zip(slots) {
            self.table.forget(slot);
            self.taken[self.table.bucket_of(pid, VirtualPage(page))] -= 1;
        }
        self.taken_total -= u64::from(range.pages);
        memory
    }

    /// Pages of all ranges, the freed ones that are not released among them.
    pub(crate) fn pages(&self) -> u64 {
        self.taken_total
    }

    fn has_slots(&self, pages: u32) -> Result<(), NoRoom> {
        let slots = (self.taken.len() * SLOTS_PER_BUCKET) as u64;
        if self.taken_total + u64::from(pages) > slots { Err(NoRoom) } else { Ok(()) }
    }

    /// Puts pages into the table for which room was taken.
    fn insert(&mut self, pid: Pid, first: u32, pages: u32, terms: Terms, service: Service) {
        self.taken_total += u64::from(pages);
        for page in first..first + pages {
            self.table.insert(pid, VirtualPage(page), terms.permission, service);
        }
        let space = self.spaces.entry(pid).or_default();
        space.has_ended = false;
        space.ranges.insert(first, Range { pages, state: State::Allocated(terms) });
    }

    /// A free range whose pages all have room, counted as taken; and the conflicts on the way. What lies behind the
    /// last allocation is tried first, then the whole window.
    fn find(&mut self, pid: Pid, pages: u32, window: Window, closed: &ClosedRanges) -> Option<(u32, u32)> {
        let closed: Vec<(u32, u32)> = closed.of(pid).map(|(from, to, _)| (from, to)).collect();
        let next = self.spaces.get(&pid).map_or(window.from, |space| space.next);
        let (mut retries, mut budget) = (0, Budget(FIND_PAGES_MAX));
        for from in [next.max(window.from), window.from] {
            let mut start = from;
            while let Some((free, end)) = self.gap(pid, start, window.to, &closed, &mut budget) {
                start = free;
                while end - start >= pages {
                    match self.take_room(pid, start, pages) {
                        Ok(()) => return Some((start, retries)),
                        // The rest of the conflict's run lies in buckets that are probably as full; the next run lies
                        // elsewhere.
                        Err(conflict) => {
                            budget.spend(u64::from(conflict - start) + 1);
                            start = (conflict / RUN_PAGES + 1).saturating_mul(RUN_PAGES).min(end);
                        }
                    }
                    retries += 1;
                    if retries > RETRIES_MAX || budget.is_spent() {
                        return None;
                    }
                }
                start = end;
            }
        }
        None
    }

    /// The first gap at `start` or behind it and before `limit`, as (first page, page behind).
    fn gap(
        &self,
        pid: Pid,
        mut start: u32,
        limit: u32,
        closed: &[(u32, u32)],
        budget: &mut Budget,
    ) -> Option<(u32, u32)> {
        loop {
            budget.spend(RANGE_COST);
            let space = self.spaces.get(&pid);
            let (free, mut end) = space.map_or((start, u32::MAX), |space| space.free_behind(start, budget));
            let behind = closed.partition_point(|(_, to)| *to <= free);
            match closed.get(behind) {
                Some((from, to)) if *from <= free => {
                    start = *to;
                    continue;
                }
                Some((from, _)) => end = end.min(*from),
                None => {}
            }
            end = end.min(limit);
            return (free < end && !budget.is_spent()).then_some((free, end));
        }
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

impl Range {
    fn allocated(self, first: u32) -> Option<Allocated> {
        match self.state {
            State::Allocated(terms) => Some(Allocated { first, pages: self.pages, terms }),
            State::Freed => None,
        }
    }
}

impl Space {
    /// The first page at `start` or behind it that lies in no range, and the first page of the next range. Anything, if
    /// the budget is spent.
    fn free_behind(&self, mut start: u32, budget: &mut Budget) -> (u32, u32) {
        if let Some((first, range)) = self.ranges.range(..=start).next_back() {
            start = start.max(first + range.pages);
        }
        for (first, range) in self.ranges.range(start..) {
            if *first > start || budget.is_spent() {
                return (start, *first);
            }
            budget.spend(RANGE_COST);
            start = first + range.pages;
        }
        (start, u32::MAX)
    }
}

#[cfg(test)]
mod tests;
