//! Orders of steps between the reclaimer and a fault that no thread can be made to take from outside.

use yonder_pagetable::Entry;

use super::*;
use crate::config::Config;
use crate::far_memory::FarMemory;
use crate::region::Region;

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

/// Puts all pages on standby.
fn sweep(reclaimer: &mut Reclaimer, core: &RegionCore) {
    let gate = core.block_gate(BlockIndex(0));
    while !gate.try_sweep() {}
    let swept = reclaimer.sweep_pages(&core.pager, core, core.pages_of(BlockIndex(0)), usize::MAX);
    gate.end_sweep();
    assert_eq!(swept as u64, PAGES);
}

/// A fault takes a page from standby to map it.
fn take(core: &RegionCore, page: PageIndex) -> Entry {
    core.table.advance(page, core.table.load(page), Event::Install).expect("nobody else takes the page")
}

/// The kernel does not map it.
fn fail(core: &RegionCore, page: PageIndex, taken: Entry) {
    let State::Installing(source) = taken.state() else { panic!("{taken:?}") };
    core.pager.stay_local(core, page, source);
}

/// Steps of the second hand until nothing stands, or for long.
fn drain_all(reclaimer: &mut Reclaimer, pager: &Pager) {
    let deadline = yonder_clock::now() + 5_000_000_000;
    while pager.standby.load(Ordering::Acquire) > 0 && yonder_clock::now() < deadline {
        let now = yonder_clock::now();
        reclaimer.poll_writes(pager, now);
        let _ = reclaimer.drain(pager, PAGES, now);
    }
}

#[test]
fn the_frame_of_a_page_that_could_not_be_mapped_is_reclaimed() {
    let Some(region) = region() else { return };
    let (core, pager, page) = (&*region.core, &*region.core.pager, PageIndex(7));
    let mut reclaimer = pager.lock_reclaimer();
    sweep(&mut reclaimer, core);
    let taken = take(core, page);
    // The second hand comes to the page, which is not on standby now, and lets go of it.
    while reclaimer.standby.pop().is_some_and(|standby| standby.page != page) {}
    fail(core, page, taken);
    assert!(matches!(core.table.load(page).state(), State::Standby(_)));
    // The others were taken out of the queue with it.
    let others = (0..PAGES as u32).map(PageIndex).filter(|other| *other != page);
    others.for_each(|other| fail(core, other, take(core, other)));
    drain_all(&mut reclaimer, pager);
    assert_eq!(pager.standby.load(Ordering::Acquire), 0, "a page stands that the reclaimer has forgotten");
    drop(reclaimer);
    (0..PAGES).for_each(|page| assert_eq!(region.read_u64(page * PAGE), Ok(page + 1)));
}

/// Each failure may add an entry to one that is still there.
#[test]
fn the_queue_does_not_grow_with_installs_that_fail() {
    let Some(region) = region() else { return };
    let (core, pager, page) = (&*region.core, &*region.core.pager, PageIndex(7));
    let mut reclaimer = pager.lock_reclaimer();
    sweep(&mut reclaimer, core);
    for _ in 0..20 * BLOCK_PAGES {
        fail(core, page, take(core, page));
        reclaimer.take_arrivals(pager, yonder_clock::now());
        let most = 2 * pager.standby.load(Ordering::Acquire) as usize + BLOCK_PAGES;
        assert!(reclaimer.standby.not_looked_at() <= most, "{} entries", reclaimer.standby.not_looked_at());
    }
    drain_all(&mut reclaimer, pager);
    assert_eq!(pager.standby.load(Ordering::Acquire), 0);
    drop(reclaimer);
    (0..PAGES).for_each(|page| assert_eq!(region.read_u64(page * PAGE), Ok(page + 1)));
}

/// Pages that a program has locked, which the kernel does not drop.
#[test]
fn what_cannot_be_unmapped_stays_resident_and_nothing_is_lost() {
    const LOCKED: std::ops::Range<u64> = 20..23;
    let Some(mut region) = region() else { return };
    let core = std::sync::Arc::clone(&region.core);
    if let Err(error) = core.mapping.lock_mapped(LOCKED.start * PAGE, (LOCKED.end - LOCKED.start) as usize * PAGE_BYTES)
    {
        println!("SKIP: {error}");
        return;
    }
    let locked = LOCKED.end - LOCKED.start;
    let sweep = || {
        let mut reclaimer = core.pager.lock_reclaimer();
        let gate = core.block_gate(BlockIndex(0));
        while !gate.try_sweep() {}
        let swept = reclaimer.sweep_pages(&core.pager, &core, core.pages_of(BlockIndex(0)), usize::MAX);
        gate.end_sweep();
        drop(reclaimer);
        assert_eq!(core.counts.resident_in(BlockIndex(0)), locked as u32);
        assert_eq!(core.mapping.resident_pages().unwrap() as u64, locked);
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
    core.mapping.unlock(0, core.mapping.len()).unwrap();
    region.seal().unwrap();
    (0..PAGES).for_each(|page| assert_eq!(region.read_u64(page * PAGE), Ok(page + 2)));
    core.mapping.lock_mapped(LOCKED.start * PAGE, locked as usize * PAGE_BYTES).unwrap();
    let mut reclaimer = core.pager.lock_reclaimer();
    let gate = core.block_gate(BlockIndex(0));
    while !gate.try_sweep() {}
    // What is fetched ahead is not mapped.
    let can_go = (0..PAGES).filter(|page| !LOCKED.contains(page) && region.is_resident(page * PAGE)).count();
    assert!(can_go > 0);
    assert_eq!(reclaimer.drop_sealed(&core.pager, &core, BlockIndex(0), usize::MAX), can_go);
    drop(reclaimer);
    LOCKED.for_each(|page| assert!(region.is_resident(page * PAGE)));
    (0..PAGES).for_each(|page| assert_eq!(region.read_u64(page * PAGE), Ok(page + 2)));
    core.mapping.unlock(0, core.mapping.len()).unwrap();
}
