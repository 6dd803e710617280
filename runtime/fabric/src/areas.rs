//! [`Areas`]: a table for each allocation of a fabric that is a layer over others; [`View`]: how a queue pair finds
//! them.
//!
//! Who touches what: allocation and release change the list, under its lock. A queue pair finds an area in the list
//! that it has seen last, and takes the new one when the number of changes says that it is old: posting takes the lock
//! only after a change.
//!
//! Invariant: a queue pair frees no memory when it takes a new list, because that may be in a signal handler. Old lists
//! are kept until nobody else has them, and freed by who changes the list next.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use yonder_units::{Narrow, PAGE_BYTES};

use crate::RemoteAddress;

/// What is wrong below if areas overlap.
pub(crate) const GIVEN_TWICE: &str = "the node has given out the same memory twice: do not trust it";

/// What is known of the pages of one allocation.
pub(crate) struct Area<T> {
    start: RemoteAddress,
    pages: usize,
    pub(crate) table: T,
}

/// One page of an area.
pub(crate) struct AreaPage<T> {
    pub(crate) area: Arc<Area<T>>,
    pub(crate) page: usize,
}

/// All areas of a fabric.
pub(crate) struct Areas<T> {
    /// Changes when the list does.
    changes: AtomicU64,
    lists: Mutex<Lists<T>>,
}

struct Lists<T> {
    current: List<T>,
    /// Older ones that somebody may have.
    retired: Vec<List<T>>,
}

/// Areas in the order of their addresses.
pub(crate) type List<T> = Arc<[Arc<Area<T>>]>;

/// The areas as one thread knows them.
pub(crate) struct View<T> {
    areas: Arc<Areas<T>>,
    changes: u64,
    list: List<T>,
}

impl<T> Area<T> {
    pub(crate) fn new(start: RemoteAddress, bytes: u64, table: T) -> Self {
        Self { start, pages: (bytes / PAGE_BYTES as u64).narrow_usize(), table }
    }

    pub(crate) fn start(&self) -> RemoteAddress {
        self.start
    }

    pub(crate) fn pages(&self) -> usize {
        self.pages
    }

    /// Where the page with this number lies.
    pub(crate) fn address(&self, page: usize) -> RemoteAddress {
        RemoteAddress(self.start.0 + (page * PAGE_BYTES) as u64)
    }

    /// The address behind it, if there are so many.
    fn end(&self) -> Option<u64> {
        self.start.0.checked_add(self.pages as u64 * PAGE_BYTES as u64)
    }

    fn is_apart_from(&self, other: &Self) -> bool {
        let is_before = |one: &Self, two: &Self| one.end().is_some_and(|end| end <= two.start.0);
        is_before(self, other) || is_before(other, self)
    }

    /// The number of the page at `address`, if it is one of the area.
    fn page(&self, address: RemoteAddress) -> Option<usize> {
        let offset = address.0.checked_sub(self.start.0)?;
        let page = (offset / PAGE_BYTES as u64).narrow_usize();
        (offset.is_multiple_of(PAGE_BYTES as u64) && page < self.pages).then_some(page)
    }
}

impl<T> AreaPage<T> {
    /// Where the page lies.
    pub(crate) fn address(&self) -> RemoteAddress {
        self.area.address(self.page)
    }
}

impl<T> Clone for AreaPage<T> {
    fn clone(&self) -> Self {
        Self { area: Arc::clone(&self.area), page: self.page }
    }
}

impl<T> Areas<T> {
    pub(crate) fn new() -> Self {
        let lists = Lists { current: Arc::new([]), retired: Vec::new() };
        Self { changes: AtomicU64::new(0), lists: Mutex::new(lists) }
    }

    /// Adds an area; false if it has no whole pages, or overlaps another: what is below has given memory out twice, and
    /// two pages would be one.
    #[must_use]
    pub(crate) fn add(&self, area: Area<T>) -> bool {
        let mut is_apart = area.start.0.is_multiple_of(PAGE_BYTES as u64) && area.end().is_some();
        self.change(|list| {
            is_apart &= list.iter().all(|other| area.is_apart_from(other));
            if is_apart {
                list.push(Arc::new(area));
            }
        });
        is_apart
    }

    /// Takes the area out that begins at `start`.
    pub(crate) fn remove(&self, start: RemoteAddress) -> Option<Arc<Area<T>>> {
        let mut removed = None;
        self.change(|list| {
            if let Some(place) = list.iter().position(|area| area.start == start) {
                removed = Some(list.remove(place));
            }
        });
        removed
    }

    /// All areas, as they are now.
    pub(crate) fn all(&self) -> List<T> {
        Arc::clone(&self.lists().current)
    }

    fn lists(&self) -> MutexGuard<'_, Lists<T>> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Arc<Area<T>>>)) {
        let mut lists = self.lists();
        let mut areas = lists.current.to_vec();
        change(&mut areas);
        areas.sort_unstable_by_key(|area| area.start);
        let old = std::mem::replace(&mut lists.current, areas.into());
        lists.retired.push(old);
        lists.retired.retain(|list| Arc::strong_count(list) > 1);
        self.changes.fetch_add(1, Ordering::Release);
    }
}

impl<T> View<T> {
    pub(crate) fn new(areas: &Arc<Areas<T>>) -> Self {
        let lists = areas.lists();
        Self {
            areas: Arc::clone(areas),
            changes: areas.changes.load(Ordering::Acquire),
            list: Arc::clone(&lists.current),
        }
    }

    /// The page at `address`, if there is one.
    #[inline]
    pub(crate) fn find(&mut self, address: RemoteAddress) -> Option<AreaPage<T>> {
        let changes = self.areas.changes.load(Ordering::Acquire);
        if changes != self.changes {
            self.list = Arc::clone(&self.areas.lists().current);
            self.changes = changes;
        }
        let after = self.list.partition_point(|area| area.start <= address);
        let area = self.list.get(after.checked_sub(1)?)?;
        area.page(address).map(|page| AreaPage { area: Arc::clone(area), page })
    }

    /// The pages that lie in `bytes` at `start`, if one area has them all.
    pub(crate) fn range(&mut self, start: RemoteAddress, bytes: u64) -> Option<(Arc<Area<T>>, std::ops::Range<usize>)> {
        let AreaPage { area, page } = self.find(start)?;
        let end = page + bytes.div_ceil(PAGE_BYTES as u64).narrow_usize();
        (end <= area.pages).then_some((area, page..end))
    }
}

/// The areas of `list` that have pages in `bytes` at `start`, each with those pages.
pub(crate) fn parts_of<T>(
    list: &List<T>,
    start: RemoteAddress,
    bytes: u64,
) -> impl Iterator<Item = (&Arc<Area<T>>, std::ops::Range<usize>)> {
    let end = start.0.saturating_add(bytes);
    let first = list.partition_point(|area| area.end().is_some_and(|end| end <= start.0));
    let pages = move |area: &Arc<Area<T>>| {
        let page = |address: u64| (address.saturating_sub(area.start.0).div_ceil(PAGE_BYTES as u64)).narrow_usize();
        (start.0.saturating_sub(area.start.0) / PAGE_BYTES as u64).narrow_usize()..page(end).min(area.pages)
    };
    list[first..].iter().take_while(move |area| area.start.0 < end).map(move |area| (area, pages(area)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = PAGE_BYTES as u64;

    #[test]
    fn a_view_follows_the_list() {
        let areas = Arc::new(Areas::new());
        let mut view = View::new(&areas);
        assert!(view.find(RemoteAddress(0)).is_none());
        assert!(areas.add(Area::new(RemoteAddress(10 * PAGE), 4 * PAGE, 'b')));
        assert!(areas.add(Area::new(RemoteAddress(2 * PAGE), 3 * PAGE, 'a')));
        let mut found = |address| view.find(RemoteAddress(address)).map(|place| (place.area.table, place.page));
        assert_eq!(
            (found(2 * PAGE), found(4 * PAGE), found(13 * PAGE)),
            (Some(('a', 0)), Some(('a', 2)), Some(('b', 3)))
        );
        for none in [0, PAGE, 2 * PAGE + 1, 5 * PAGE, 9 * PAGE, 14 * PAGE, u64::MAX] {
            assert_eq!(found(none), None, "{none}");
        }
        assert!(view.range(RemoteAddress(11 * PAGE), 3 * PAGE).is_some_and(|(_, pages)| pages == (1..4)));
        assert!(view.range(RemoteAddress(11 * PAGE), 4 * PAGE).is_none());
        assert!(areas.remove(RemoteAddress(PAGE)).is_none());
        assert_eq!(areas.remove(RemoteAddress(2 * PAGE)).map(|area| area.table), Some('a'));
        assert!(view.find(RemoteAddress(2 * PAGE)).is_none());
    }

    #[test]
    fn what_overlaps_is_refused() {
        let areas = Arc::new(Areas::new());
        let add = |start: u64, pages: u64| areas.add(Area::new(RemoteAddress(start), pages * PAGE, ()));
        assert!(add(4 * PAGE, 4));
        for (start, pages) in [(4, 4), (4, 1), (7, 1), (7, 9), (3, 2), (0, 100), (5, 2)] {
            assert!(!add(start * PAGE, pages), "{pages} pages at {start}");
        }
        assert!(!add(9 * PAGE + 16, 1) && !add(0_u64.wrapping_sub(PAGE), 2));
        assert!(add(8 * PAGE, 1) && add(0, 4));
        assert!(areas.remove(RemoteAddress(4 * PAGE)).is_some() && add(5 * PAGE, 2));
    }

    #[test]
    fn a_range_has_parts_in_areas() {
        let areas = Arc::new(Areas::new());
        for (start, pages, name) in [(0, 4, 'a'), (4, 4, 'b'), (9, 2, 'c')] {
            assert!(areas.add(Area::new(RemoteAddress(start * PAGE), pages * PAGE, name)));
        }
        let list = areas.all();
        let parts = |from: u64, pages: u64| {
            let parts = parts_of(&list, RemoteAddress(from * PAGE), pages * PAGE);
            parts.map(|(area, pages)| (area.table, pages)).collect::<Vec<_>>()
        };
        assert_eq!(parts(2, 9), [('a', 2..4), ('b', 0..4), ('c', 0..2)]);
        assert_eq!(parts(5, 2), [('b', 1..3)]);
        assert_eq!(parts(8, 1), []);
        assert_eq!(parts(10, 9), [('c', 1..2)]);
        assert_eq!(parts(2, 1), [('a', 2..3)]);
    }

    /// Says that it was freed.
    struct CountsDrops(Arc<AtomicU64>);

    impl Drop for CountsDrops {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn what_a_view_leaves_is_freed_by_the_next_change() {
        let (areas, freed) = (Arc::new(Areas::new()), Arc::new(AtomicU64::new(0)));
        assert!(areas.add(Area::new(RemoteAddress(0), PAGE, CountsDrops(Arc::clone(&freed)))));
        let mut view = View::new(&areas);
        assert!(view.find(RemoteAddress(0)).is_some());
        drop(areas.remove(RemoteAddress(0)));
        assert!(view.find(RemoteAddress(0)).is_none());
        assert_eq!(freed.load(Ordering::Relaxed), 0, "the view has freed it");
        areas.remove(RemoteAddress(0));
        assert_eq!(freed.load(Ordering::Relaxed), 1);
    }
}
