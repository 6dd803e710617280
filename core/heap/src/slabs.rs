//! [`Slabs`]: the slabs that hold objects of one class, each a page or several, and known by the first.
//!
//! An object goes to the lowest slab that has room, so that high pages empty. Empty ones go back to the free pages, but
//! for a few. The live slots themselves are in the [`PageMap`].

use crate::NotAllocated;
use crate::class::Class;
use crate::page_map::PageMap;
use crate::page_set::PageSet;

/// Empty slabs of a class that are kept, the lowest ones, so that a page is not given back and taken again all the
/// time.
pub(crate) const EMPTY_SLABS_MAX: usize = 4;
/// The same of those of several pages.
const EMPTY_LARGE_SLABS_MAX: usize = 1;

/// The slabs of a class.
#[derive(Debug)]
pub(crate) struct Slabs {
    class: Class,
    /// Those with a slot that is not live.
    with_room: PageSet,
    /// Those of them without a live slot.
    empty: Vec<u32>,
    pages: u32,
    live: u64,
}

impl Slabs {
    /// No slabs yet, on pages below `limit`.
    pub(crate) fn new(class: Class, limit: u32) -> Self {
        let empty = Vec::with_capacity(EMPTY_SLABS_MAX + 1);
        Self { class, with_room: PageSet::new(limit as usize), empty, pages: 0, live: 0 }
    }

    /// Pages that are slabs.
    pub(crate) fn pages(&self) -> u32 {
        self.pages
    }

    /// Live objects.
    pub(crate) fn live(&self) -> u64 {
        self.live
    }

    /// Bytes of live objects.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.live * self.class.bytes() as u64
    }

    /// Makes up to `wanted` objects live, as many as there is room for, and passes their offsets on.
    pub(crate) fn take(&mut self, map: &PageMap, wanted: usize, mut each: impl FnMut(u64)) -> usize {
        let mut taken = 0;
        while taken < wanted
            && let Some(page) = self.with_room.first()
        {
            let came = map.set_slots(page, self.class, wanted - taken, &mut each);
            assert!(came > 0, "a slab with room has a slot that is not live");
            taken += came;
            self.empty.retain(|empty| *empty != page);
            if map.live_slots(page) as usize == self.class.slots() {
                self.with_room.remove(page);
            }
        }
        self.live += taken as u64;
        self.check();
        taken
    }

    /// Pages of a slab.
    pub(crate) fn slab_pages(&self) -> u32 {
        self.class.slab_pages()
    }

    /// Makes free pages a slab.
    pub(crate) fn open(&mut self, map: &PageMap, page: u32) {
        map.open_slab(page, self.class);
        self.with_room.insert(page);
        self.empty.push(page);
        self.pages += self.class.slab_pages();
    }

    /// Makes the object at `offset` dead. Returns the first page of what is no slab any more, if there is that now.
    pub(crate) fn give(&mut self, map: &PageMap, offset: u64) -> Result<Option<u32>, NotAllocated> {
        map.clear_slot(self.class, offset)?;
        self.live -= 1;
        let page = self.class.slab_of(yonder_units::PageIndex::containing(offset).0);
        self.with_room.insert(page);
        if map.live_slots(page) == 0 {
            debug_assert!(!self.empty.contains(&page), "slab {page} is empty twice");
            self.empty.push(page);
        }
        self.check();
        let most = if self.class.slab_pages() == 1 { EMPTY_SLABS_MAX } else { EMPTY_LARGE_SLABS_MAX };
        Ok(if self.empty.len() > most { self.close(map) } else { None })
    }

    /// Makes the highest empty slab free pages again, of which it returns the first.
    pub(crate) fn close(&mut self, map: &PageMap) -> Option<u32> {
        let (index, page) = self.empty.iter().copied().enumerate().max_by_key(|(_, page)| *page)?;
        self.empty.swap_remove(index);
        self.with_room.remove(page);
        map.close_slab(page, self.class);
        self.pages -= self.class.slab_pages();
        self.check();
        Some(page)
    }

    /// What is counted has room.
    fn check(&self) {
        let slabs = (self.pages / self.class.slab_pages()) as usize;
        debug_assert!(self.live <= (slabs * self.class.slots()) as u64, "more live than slots: {self:?}");
        debug_assert!(self.empty.len() <= slabs, "more empty slabs than slabs: {self:?}");
    }

    /// Bytes of address space that the bookkeeping has.
    pub(crate) fn bytes(&self) -> u64 {
        self.with_room.bytes()
    }
}
