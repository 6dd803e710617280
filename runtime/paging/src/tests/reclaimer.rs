//! What the kernel does not let the reclaimer have.

use std::ops::Range;
use std::sync::Arc;

use yonder_units::{BlockIndex, PAGE_BYTES};

use crate::region::Region;
use crate::{Config, FarMemory};

const PAGE: u64 = PAGE_BYTES as u64;
const PAGES: u64 = 64;

/// A region whose pages hold something, or `None` (and a line that says so) where userfaultfd is missing.
fn region() -> Option<Region> {
    if let Err(error) = yonder_uffd::probe().userfaultfd {
        println!("SKIP: {error}");
        return None;
    }
    let far = FarMemory::open("emu://?latency=1us&size=64MiB", Config::with_local(4 << 20)).unwrap();
    let region = far.region(PAGES * PAGE).unwrap();
    (0..PAGES).for_each(|page| region.write_u64(page * PAGE, page + 1).unwrap());
    Some(region)
}

/// Pages that a program has locked, which the kernel does not drop.
#[test]
fn what_cannot_be_unmapped_stays_resident_and_nothing_is_lost() {
    const LOCKED: Range<u64> = 20..23;
    let Some(mut region) = region() else { return };
    let core = Arc::clone(&region.core);
    let memory = core.memory();
    if let Err(error) = memory.lock_mapped(LOCKED.start * PAGE, (LOCKED.end - LOCKED.start) as usize * PAGE_BYTES) {
        println!("SKIP: {error}");
        return;
    }
    let locked = LOCKED.end - LOCKED.start;
    let sweep = || {
        let swept = core.pager().sweep_block(&core, BlockIndex(0));
        assert_eq!(region.far().tuning().regions()[0].resident_bytes, locked * PAGE);
        assert_eq!(memory.resident_pages().unwrap() as u64, locked);
        (0..PAGES).for_each(|page| assert_eq!(region.is_resident(page * PAGE), LOCKED.contains(&page), "page {page}"));
        swept as u64
    };
    assert_eq!(sweep(), PAGES - locked);
    // Again, with nothing but those; they can be written as before.
    assert_eq!(sweep(), 0);
    for page in 0..PAGES {
        assert_eq!(region.read_u64(page * PAGE), Ok(page + 1));
        region.write_u64(page * PAGE, page + 2).unwrap();
    }
    assert_eq!(sweep(), PAGES - locked);
    (0..PAGES).for_each(|page| assert_eq!(region.read_u64(page * PAGE), Ok(page + 2)));
    // As a sealed region, whose pages are dropped without a copy.
    memory.unlock(0, memory.len()).unwrap();
    region.seal().unwrap();
    (0..PAGES).for_each(|page| assert_eq!(region.read_u64(page * PAGE), Ok(page + 2)));
    memory.lock_mapped(LOCKED.start * PAGE, locked as usize * PAGE_BYTES).unwrap();
    // What is fetched ahead is not mapped.
    let can_go = (0..PAGES).filter(|page| !LOCKED.contains(page) && region.is_resident(page * PAGE)).count();
    assert!(can_go > 0);
    assert_eq!(core.pager().sweep_block(&core, BlockIndex(0)), can_go);
    LOCKED.for_each(|page| assert!(region.is_resident(page * PAGE)));
    (0..PAGES).for_each(|page| assert_eq!(region.read_u64(page * PAGE), Ok(page + 2)));
    memory.unlock(0, memory.len()).unwrap();
}
