//! Which ranges of the node's address space are free, and who owns the others.
//!
//! [`Extents`] is pure bookkeeping. Neighbouring free ranges are one entry, and so are neighbouring ranges of one owner.
//! A range that is released passes through limbo: taken from its owner by [`Extents::withdraw`], it belongs to nobody
//! until its content is gone and [`Extents::recycle`] makes it free.
//!
//! Invariants: entries of both maps are whole pages, do not overlap, and with the ranges in limbo cover the address
//! space; owned bytes and bytes in limbo together never exceed the limit.

use std::collections::BTreeMap;

use yonder_units::PAGE_BYTES;

/// Who owns a range: one client, for as long as the node remembers it. Never reused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Owner(pub(crate) u64);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Owned {
    bytes: u64,
    owner: Owner,
}

/// The free and the owned ranges, by their start.
#[derive(Debug)]
pub(crate) struct Extents {
    free: BTreeMap<u64, u64>,
    owned: BTreeMap<u64, Owned>,
    /// Bytes owned or in limbo.
    used_bytes: u64,
    limit_bytes: u64,
}

impl Extents {
    /// An address space of `space_bytes`, of which at most `limit_bytes` are allocated at a time.
    pub(crate) fn new(space_bytes: u64, limit_bytes: u64) -> Self {
        Self { free: BTreeMap::from([(0, space_bytes)]), owned: BTreeMap::new(), used_bytes: 0, limit_bytes }
    }

    /// Bytes that are allocated, or released and not yet free.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    /// Most bytes that may be allocated.
    pub(crate) fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// The first free range of `bytes`, now owned by `owner`; `None` if the limit or the address space is exhausted.
    pub(crate) fn allocate(&mut self, owner: Owner, bytes: u64) -> Option<u64> {
        if !whole_pages(0, bytes) || bytes > self.limit_bytes - self.used_bytes {
            return None;
        }
        let (start, free_bytes) =
            self.free.iter().find(|(_, free)| **free >= bytes).map(|(start, free)| (*start, *free))?;
        self.free.remove(&start);
        if free_bytes > bytes {
            self.free.insert(start + bytes, free_bytes - bytes);
        }
        self.used_bytes += bytes;
        self.restore(owner, start, bytes);
        Some(start)
    }

    /// Whether `owner` owns every byte of the range, which is not empty.
    #[inline]
    pub(crate) fn owns(&self, owner: Owner, start: u64, bytes: u64) -> bool {
        self.enclosing(owner, start, bytes).is_some()
    }

    /// Takes a range of whole pages from its owner. The range stays used until [`Extents::recycle`]. False if `owner`
    /// does not own all of it.
    #[must_use]
    pub(crate) fn withdraw(&mut self, owner: Owner, start: u64, bytes: u64) -> bool {
        let Some((first, whole)) = self.enclosing(owner, start, bytes).filter(|_| whole_pages(start, bytes)) else {
            return false;
        };
        self.owned.remove(&first);
        let (before, after) = (start - first, first + whole.bytes - (start + bytes));
        if before > 0 {
            self.owned.insert(first, Owned { bytes: before, owner });
        }
        if after > 0 {
            self.owned.insert(start + bytes, Owned { bytes: after, owner });
        }
        true
    }

    /// Takes everything from `owner`, and returns the ranges.
    pub(crate) fn withdraw_all(&mut self, owner: Owner) -> Vec<(u64, u64)> {
        let ranges = |(start, owned): (&u64, &Owned)| (owned.owner == owner).then_some((*start, owned.bytes));
        let taken: Vec<_> = self.owned.iter().filter_map(ranges).collect();
        for (start, _) in &taken {
            self.owned.remove(start);
        }
        taken
    }

    /// Makes a range that was withdrawn and cleared free.
    pub(crate) fn recycle(&mut self, start: u64, bytes: u64) {
        self.used_bytes -= bytes;
        let (mut first, mut total) = (start, bytes);
        if let Some((&before, &length)) = self.free.range(..start).next_back()
            && before + length == start
        {
            (first, total) = (before, total + length);
        }
        if let Some(after) = self.free.remove(&(start + bytes)) {
            total += after;
        }
        self.free.insert(first, total);
    }

    /// Gives a range that is in limbo to `owner`.
    pub(crate) fn restore(&mut self, owner: Owner, start: u64, bytes: u64) {
        let (mut first, mut total) = (start, bytes);
        if let Some((&before, owned)) = self.owned.range(..start).next_back()
            && before + owned.bytes == start
            && owned.owner == owner
        {
            (first, total) = (before, total + owned.bytes);
        }
        if let Some(after) = self.owned.get(&(start + bytes)).filter(|owned| owned.owner == owner) {
            total += after.bytes;
            self.owned.remove(&(start + bytes));
        }
        self.owned.insert(first, Owned { bytes: total, owner });
    }

    /// The owner's entry that holds the whole range.
    #[inline]
    fn enclosing(&self, owner: Owner, start: u64, bytes: u64) -> Option<(u64, Owned)> {
        let end = start.checked_add(bytes).filter(|_| bytes > 0)?;
        let (&first, &owned) = self.owned.range(..=start).next_back()?;
        (owned.owner == owner && end <= first + owned.bytes).then_some((first, owned))
    }
}

fn whole_pages(start: u64, bytes: u64) -> bool {
    bytes > 0 && start.is_multiple_of(PAGE_BYTES as u64) && bytes.is_multiple_of(PAGE_BYTES as u64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PAGE: u64 = PAGE_BYTES as u64;
    const SPACE_PAGES: u64 = 48;
    const LIMIT_PAGES: u64 = 32;

    #[derive(Clone, Debug)]
    enum Step {
        Allocate { owner: u64, pages: u64 },
        Release { owner: u64, page: u64, pages: u64 },
        Leave { owner: u64 },
    }

    fn step() -> impl Strategy<Value = Step> {
        let owner = 0u64..3;
        prop_oneof![
            4 => (owner.clone(), 0u64..12).prop_map(|(owner, pages)| Step::Allocate { owner, pages }),
            6 => (owner.clone(), 0..SPACE_PAGES, 0u64..6)
                .prop_map(|(owner, page, pages)| Step::Release { owner, page, pages }),
            1 => owner.prop_map(|owner| Step::Leave { owner }),
        ]
    }

    proptest! {
        /// The model is one entry per page: who owns it.
        #[test]
        fn agrees_with_a_page_by_page_model(steps in prop::collection::vec(step(), 1..120)) {
            let mut extents = Extents::new(SPACE_PAGES * PAGE, LIMIT_PAGES * PAGE);
            let mut model: Vec<Option<u64>> = vec![None; SPACE_PAGES as usize];
            for step in steps {
                match step {
                    Step::Allocate { owner, pages } => {
                        let used = model.iter().flatten().count() as u64;
                        let fits = pages > 0 && used + pages <= LIMIT_PAGES
                            && model.windows(pages as usize).any(|run| run.iter().all(Option::is_none));
                        let start = extents.allocate(Owner(owner), pages * PAGE);
                        prop_assert_eq!(start.is_some(), fits);
                        for page in start.iter().flat_map(|start| start / PAGE..start / PAGE + pages) {
                            prop_assert_eq!(model[page as usize].replace(owner), None);
                        }
                    }
                    Step::Release { owner, page, pages } => {
                        let range = page as usize..(page + pages).min(SPACE_PAGES) as usize;
                        let owns = pages > 0 && page + pages <= SPACE_PAGES
                            && model[range.clone()].iter().all(|entry| *entry == Some(owner));
                        prop_assert_eq!(extents.owns(Owner(owner), page * PAGE, pages * PAGE), owns);
                        prop_assert_eq!(extents.withdraw(Owner(owner), page * PAGE, pages * PAGE), owns);
                        if owns {
                            extents.recycle(page * PAGE, pages * PAGE);
                            model[range].fill(None);
                        }
                    }
                    Step::Leave { owner } => {
                        for (start, bytes) in extents.withdraw_all(Owner(owner)) {
                            extents.recycle(start, bytes);
                        }
                        model.iter_mut().filter(|entry| **entry == Some(owner)).for_each(|entry| *entry = None);
                    }
                }
                prop_assert_eq!(extents.used_bytes(), model.iter().flatten().count() as u64 * PAGE);
            }
        }
    }

    #[test]
    fn a_range_in_limbo_is_neither_owned_nor_free() {
        let mut extents = Extents::new(2 * PAGE, 2 * PAGE);
        assert_eq!(extents.allocate(Owner(1), 2 * PAGE), Some(0));
        assert!(extents.withdraw(Owner(1), 0, PAGE));
        assert!(!extents.owns(Owner(1), 0, 1));
        assert_eq!(extents.allocate(Owner(2), PAGE), None);
        extents.recycle(0, PAGE);
        assert_eq!(extents.allocate(Owner(2), PAGE), Some(0));
    }

    #[test]
    fn ranges_off_the_page_grid_are_refused() {
        let mut extents = Extents::new(4 * PAGE, 4 * PAGE);
        assert_eq!(extents.allocate(Owner(1), PAGE + 1), None);
        assert_eq!(extents.allocate(Owner(1), 4 * PAGE), Some(0));
        assert!(!extents.withdraw(Owner(1), 1, PAGE));
        assert!(!extents.withdraw(Owner(1), 0, u64::MAX));
        assert!(!extents.owns(Owner(1), u64::MAX, 2));
        assert!(extents.owns(Owner(1), 100, 200));
    }
}
