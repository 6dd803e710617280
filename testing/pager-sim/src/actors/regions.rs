//! Regions: how they begin, whose they are, and what of them is live.

use std::ops::Range;
use std::sync::Arc;

use rand::Rng;
use yonder_pager::pagetable::{HASH_KEY_BYTES, PageHasher};
use yonder_pager::{Liveness, Pager};
use yonder_units::{GRANULE_BYTES, PageIndex, SEGMENTS_MAX, Vector};

use super::{Common, OWN_PAGES};
use crate::machine::Simulated;
use crate::memory::{Kind, Memory};
use crate::program::Region;
use crate::sabotage::Sabotage;
use crate::world::{chance, is_sabotaged, with};

/// A new region of so many pages.
pub(crate) fn begin_region(pager: &Arc<Pager<Simulated>>, pages: usize) -> Region {
    let (remote, address) = with(|world| {
        let remote = world.far.allocate(pages as u64);
        world.regions += 1;
        (remote, world.regions << 32)
    });
    let memory = Memory::new(Kind::Region, address, pages);
    let mut key = [0; HASH_KEY_BYTES];
    if !is_sabotaged(Sabotage::WeakDigest) {
        with(|world| world.rng.fill(&mut key[..]));
    }
    let begun = pager.begin_region(memory, remote, PageHasher::new(&key)).expect("the model registers");
    begun.expect("there are few regions")
}

/// A region that a thread has for itself.
pub(crate) struct Own {
    pub(crate) region: Region,
    /// Whether its paging will be guided and is not yet.
    awaits_guide: bool,
}

impl Own {
    /// Its paging is guided, if the seed says so: from now on, or once something is in it.
    pub(crate) fn begin(common: &Common) -> Self {
        let region = begin_region(&common.pager, OWN_PAGES);
        common.regions.lock().expect("no panic").push(Arc::clone(&region));
        let mut own = Self { region, awaits_guide: with(|world| world.settings.guides) };
        if chance(500) {
            own.guide(common);
        }
        own
    }

    /// Its paging is guided from now on, while others sweep it and write it back, if it is to be.
    pub(crate) fn guide(&mut self, common: &Common) {
        if std::mem::take(&mut self.awaits_guide) {
            let address = self.region.memory().address;
            with(|world| world.oracle.guide(address));
            common.pager.guide_paging(&self.region, Arc::new(Owner { address }));
        }
    }

    pub(crate) fn end(&self, common: &Common) {
        common.regions.lock().expect("no panic").retain(|other| !Arc::ptr_eq(other, &self.region));
        common.pager.end_region(&self.region);
    }
}

/// Knows what is live of a region: the words that were stored and not forgotten since.
struct Owner {
    address: usize,
}

impl Liveness for Owner {
    fn live(&self, page: PageIndex) -> Option<Vector> {
        let mut words = with(|world| world.oracle.live_words((self.address, page.0)));
        if is_sabotaged(Sabotage::ForgetfulOwner) {
            words.pop();
        }
        let mut segments: Vec<Range<usize>> = Vec::new();
        for word in words {
            let start = usize::from(word) / GRANULE_BYTES * GRANULE_BYTES;
            match segments.last_mut() {
                Some(last) if last.end >= start => last.end = start + GRANULE_BYTES,
                _ => segments.push(start..start + GRANULE_BYTES),
            }
        }
        match segments.len() {
            0 => None,
            1..=SEGMENTS_MAX => Some(Vector::new(segments)),
            _ => Some(Vector::WHOLE),
        }
    }

    /// Of every other region some pages are of one object.
    fn small_object_at(&self, offset: u64) -> Option<Range<u32>> {
        (self.address >> 32 & 1 == 0).then(|| object_at(offset))
    }
}

/// Knows of a region that all threads use what belongs together, and nothing of what is live.
pub(crate) struct SharedObjects;

impl Liveness for SharedObjects {
    fn live(&self, _page: PageIndex) -> Option<Vector> {
        Some(Vector::WHOLE)
    }

    fn small_object_at(&self, offset: u64) -> Option<Range<u32>> {
        Some(object_at(offset))
    }
}

/// A few pages with the byte at `offset`.
fn object_at(offset: u64) -> Range<u32> {
    const PAGES: u32 = 3;
    let first = PageIndex::containing(offset).0 / PAGES * PAGES;
    first..first + PAGES
}
