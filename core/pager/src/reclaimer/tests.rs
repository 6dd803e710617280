//! Orders of steps between the reclaimer and a fault that no thread can be made to take from outside.

use std::ops::Range;

use crate::pagetable::{Entry, Event, HASH_KEY_BYTES, PageHasher};

use super::*;
use crate::config::Config;
use crate::drive::{ReclaimTurn, ReclaimTurns};
use crate::fake::{self, Fake};
use crate::reclaim::Shares;

const PAGES: u32 = 64;

/// Puts all pages on standby.
fn sweep(reclaimer: &mut Reclaimer<Fake>, core: &RegionCore<Fake>) {
    let gate = core.block_gate(BlockIndex(0));
    while !gate.try_sweep() {}
    let swept = reclaimer.sweep_pages(core, core.pages_of(BlockIndex(0)), usize::MAX, Victims::All);
    gate.end_sweep();
    assert_eq!(swept, PAGES as usize);
}

/// A fault takes a page from standby to map it.
fn take(core: &RegionCore<Fake>, page: PageIndex) -> Entry {
    core.table.advance(page, core.table.load(page), Event::Install).expect("nobody else takes the page")
}

/// The kernel does not map it.
fn fail(core: &RegionCore<Fake>, page: PageIndex, taken: Entry) {
    let State::Installing(source) = taken.state() else { panic!("{taken:?}") };
    core.pager.stay_local(core, page, source);
}

/// Steps of the cleaner until nothing stands, or for long.
fn drain_all(reclaimer: &mut Reclaimer<Fake>, pager: &Pager<Fake>) {
    let deadline = Fake::now() + 5_000_000_000;
    while pager.local.counts.standby() > 0 && Fake::now() < deadline {
        let pass = pager.pass(Fake::now());
        reclaimer.poll_writes(pass);
        let _ = reclaimer.drain(PAGES.into(), pass);
    }
}

#[test]
fn the_frame_of_a_page_that_could_not_be_mapped_is_reclaimed() {
    let region = fake::region(PAGES);
    let (core, pager, page) = (&*region, &*region.pager, PageIndex(7));
    let mut reclaimer = pager.lock_reclaimer();
    sweep(&mut reclaimer, core);
    let taken = take(core, page);
    // The cleaner comes to the page, which is not on standby now, and lets go of it.
    while reclaimer.standby.pop().is_some_and(|standby| standby.page != page) {}
    fail(core, page, taken);
    assert!(matches!(core.table.load(page).state(), State::Standby(_)));
    // The others were taken out of the queue with it.
    let others = (0..PAGES).map(PageIndex).filter(|other| *other != page);
    others.for_each(|other| fail(core, other, take(core, other)));
    drain_all(&mut reclaimer, pager);
    assert_eq!(pager.local.counts.standby(), 0, "a page stands that the reclaimer has forgotten");
    drop(reclaimer);
    (0..PAGES).for_each(|page| assert_eq!(fake::word(&region, page), u64::from(page) + 1));
}

/// Each failure may add an entry to one that is still there.
#[test]
fn the_queue_does_not_grow_with_installs_that_fail() {
    let region = fake::region(PAGES);
    let (core, pager, page) = (&*region, &*region.pager, PageIndex(7));
    let mut reclaimer = pager.lock_reclaimer();
    sweep(&mut reclaimer, core);
    for _ in 0..20 * BLOCK_PAGES {
        fail(core, page, take(core, page));
        reclaimer.take_arrivals(pager.pass(Fake::now()));
        let most = 2 * pager.local.counts.standby() as usize + BLOCK_PAGES;
        assert!(reclaimer.standby.not_looked_at() <= most, "{} entries", reclaimer.standby.not_looked_at());
    }
    drain_all(&mut reclaimer, pager);
    assert_eq!(pager.local.counts.standby(), 0);
    drop(reclaimer);
    (0..PAGES).for_each(|page| assert_eq!(fake::word(&region, page), u64::from(page) + 1));
}

/// Where nothing of the region is mapped a program may have put something of its own, which the kernel refuses to
/// protect: it lies between pages that are swept, and stays.
#[test]
fn what_is_somebody_elses_stays_between_pages_that_are_swept() {
    let region = fake::region(PAGES);
    let (core, pager, foreign) = (&*region, &*region.pager, PageIndex(2));
    let mut reclaimer = pager.lock_reclaimer();
    sweep(&mut reclaimer, core);
    drain_all(&mut reclaimer, pager);
    let back = [1, 3];
    drop(reclaimer);
    back.iter().for_each(|page| region.bring(PageIndex(*page).offset()).expect("it is on the node"));
    core.memory().put_foreign(foreign, Box::new([9; 4096]));
    let gate = core.block_gate(BlockIndex(0));
    while !gate.try_sweep() {}
    let swept = pager.lock_reclaimer().sweep_pages(core, core.pages_of(BlockIndex(0)), usize::MAX, Victims::All);
    gate.end_sweep();
    let mut word = [0; 8];
    core.memory().read(foreign.offset(), &mut word);
    assert_eq!((swept, word), (back.len(), [9; 8]));
    back.iter().for_each(|page| assert_eq!(fake::word(&region, *page), u64::from(*page) + 1));
}

/// Somebody wants to see the next touch of pages, though memory does not press.
#[test]
fn what_is_set_aside_stands_with_its_content_and_what_is_held_stays() {
    let region = fake::untouched_region(Config::with_local(64 << 20), 3 * BLOCK_PAGES as u32, None);
    let (core, pager) = (&region, &*region.pager);
    let pages = [3, 600, 601, 1100].map(PageIndex);
    for page in pages {
        assert_eq!(core.bring(page.offset()), Ok(()));
        core.memory().write(page.offset(), &u64::from(page.0 + 1).to_le_bytes());
    }
    let held = core.hold(pages[3].offset(), 1).unwrap();
    assert_eq!(pager.set_aside(core, 0..601), 2);
    let stands = |page: PageIndex| matches!(core.table.load(page).state(), State::Standby(_));
    assert_eq!(pages.map(stands), [true, true, false, false]);
    assert_eq!((pager.set_aside(core, 0..3 * BLOCK_PAGES as u32), stands(pages[3])), (1, false));
    core.unhold(held);
    assert_eq!(pager.set_aside(core, 1100..1101), 1);
    for page in pages {
        assert_eq!(core.bring(page.offset()), Ok(()));
        assert_eq!(fake::word(&region, page.0), u64::from(page.0) + 1);
    }
    pager.audit().unwrap();
}

/// The watermarks are for what was touched: whoever makes the steps of reclaim hears of more at once, and faults do not
/// find local memory full first.
#[test]
fn a_block_that_is_touched_for_the_first_time_asks_for_a_step() {
    let (region, mut turns) = (fake::lending_region(20 * BLOCK_PAGES as u32), ReclaimTurns::default());
    let pager = &*region.pager;
    let rest = |turns: &mut ReclaimTurns| while turns.take(pager) == ReclaimTurn::Again {};
    rest(&mut turns);
    assert!(!pager.wants_reclaim(Fake::now()));
    assert_eq!(pager.watermarks.start_above(), pager.limit(), "little was touched, and all of it fits");
    for block in 0..7 {
        for page in region.pages_of(BlockIndex(block)).map(PageIndex) {
            assert_eq!(region.bring(page.offset()), Ok(()));
            region.memory().write(page.offset(), &[1]);
        }
        assert!(pager.wants_reclaim(Fake::now()), "block {block}");
        rest(&mut turns);
    }
    assert_eq!(pager.watermarks.start_above(), pager.limit(), "a seventh of it is left");
    for page in region.pages_of(BlockIndex(7)).map(PageIndex) {
        if pager.wants_reclaim(Fake::now()) {
            rest(&mut turns);
        }
        assert_eq!(region.bring(page.offset()), Ok(()));
    }
    rest(&mut turns);
    assert!(pager.watermarks.start_above() < pager.limit(), "what was touched does not fit");
}

/// Brings so many pages of a block, and writes to them.
fn touch(region: &Arc<RegionCore<Fake>>, block: u32, pages: Range<u32>) {
    for page in pages {
        let offset = PageIndex(block * BLOCK_PAGES as u32 + page).offset();
        assert_eq!(region.bring(offset), Ok(()));
        region.memory().write(offset, &[1]);
    }
}

/// So do pages of blocks that were touched before. Pages that nobody touched need no room, whatever is beside them.
#[test]
fn what_is_touched_page_by_page_asks_for_a_step_and_for_no_more_room_than_it_has() {
    let region = fake::untouched_region(Config::with_local(16 << 20), 20 * BLOCK_PAGES as u32, None);
    let (pager, mut turns) = (&*region.pager, ReclaimTurns::default());
    let mut rest = || while turns.take(pager) == ReclaimTurn::Again {};
    let touch = |block: u32, pages: Range<u32>| touch(&region, block, pages);
    (0..8).for_each(|block| touch(block, 0..100));
    rest();
    assert_eq!(pager.watermarks.start_above(), pager.limit(), "800 pages of 4,096 are touched");
    (0..4).for_each(|block| touch(block, 100..229));
    assert!(pager.wants_reclaim(Fake::now()), "516 more are");
    rest();
    assert!(!pager.wants_reclaim(Fake::now()));
    (0..8).for_each(|block| touch(block, 100..490));
    rest();
    assert_eq!(pager.watermarks.start_above(), pager.limit(), "3,920 are, and the least reserve fits beside");
    assert_eq!(pager.local.budget.charged_of(), (3_920, pager.limit() - RESERVE_PAGES_MIN));
    (0..4).for_each(|block| touch(block, 490..512));
    assert!(pager.wants_reclaim(Fake::now()), "88 more are: the less room there is, the sooner it is told");
    rest();
    assert!(pager.watermarks.start_above() < pager.limit(), "4,008 are, and what may be touched next does not fit");
    // 40 are short: who sweeps has as many pages more than the least.
    assert_eq!(pager.local.budget.charged_of().1, pager.limit() - RESERVE_PAGES_MIN - 40);
    pager.audit().unwrap();
}

/// Whatever else is mapped meanwhile.
#[test]
fn a_fetch_hides_nothing_of_what_is_touched() {
    let region = fake::untouched_region(Config::with_local(16 << 20), 20 * BLOCK_PAGES as u32, None);
    let (pager, mut turns) = (&*region.pager, ReclaimTurns::default());
    let touch = |block: u32, pages: Range<u32>| touch(&region, block, pages);
    (0..8).for_each(|block| touch(block, 0..100));
    assert_eq!(pager.sweep_block(&region, BlockIndex(0)), 100);
    while pager.local.counts.standby() > 0 {
        let (mut reclaimer, pass) = (pager.lock_reclaimer(), pager.pass(Fake::now()));
        reclaimer.poll_writes(pass);
        reclaimer.drain(Policy::DRAIN_PAGES, pass);
    }
    while turns.take(pager) == ReclaimTurn::Again {}
    touch(1, 100..411);
    touch(2, 100..300);
    assert!(!pager.wants_reclaim(Fake::now()), "511 more are mapped");
    (0..100).for_each(|page| assert_eq!(region.bring(PageIndex(page).offset()), Ok(())));
    assert!(pager.wants_reclaim(Fake::now()), "the last of them by fetches");
    pager.audit().unwrap();
}

#[test]
fn regions_together_grow_no_further_unheard_than_one() {
    let first = fake::untouched_region(Config::with_local(16 << 20), 2 * BLOCK_PAGES as u32, None);
    let pager = Arc::clone(&first.pager);
    let more = (1..6).map(|number| {
        let hasher = PageHasher::new(&[number; HASH_KEY_BYTES]);
        let far = RemoteAddress(u64::from(number) << 24);
        pager.begin_region(fake::Memory::new(2 * BLOCK_PAGES), far, hasher).unwrap().unwrap()
    });
    let regions: Vec<_> = std::iter::once(first).chain(more).collect();
    let touch = |page: u32| {
        regions.iter().for_each(|region| assert_eq!(region.bring(PageIndex(page).offset()), Ok(())));
    };
    (0..32).for_each(touch);
    let mut turns = ReclaimTurns::default();
    while turns.take(&pager) == ReclaimTurn::Again {}
    let more = (32..BLOCK_PAGES as u32).take_while(|page| {
        touch(*page);
        !pager.wants_reclaim(Fake::now())
    });
    let pages = more.count() * regions.len();
    assert!((BLOCK_PAGES / 2..BLOCK_PAGES).contains(&pages), "{pages} more pages before somebody asks for a step");
}

/// A lower limit holds for reclaim too once it is reached, also where all fits below it but for a block.
#[test]
fn a_lower_limit_into_which_all_just_fits_is_reached() {
    let region = fake::untouched_region(Config::with_local(16 << 20), 20 * BLOCK_PAGES as u32, None);
    let (pager, mut turns) = (&*region.pager, ReclaimTurns::default());
    for page in 0..3_000 {
        assert_eq!(region.bring(PageIndex(page).offset()), Ok(()));
        region.memory().write(PageIndex(page).offset(), &[1]);
    }
    let policy = Policy::new(3_200, Shares::default()).unwrap();
    pager.set_policy(&policy);
    assert_eq!((pager.limit(), pager.local.budget.most()), (3_200, 4_096));
    while turns.take(pager) == ReclaimTurn::Again {}
    assert_eq!((pager.local.budget.charged(), pager.local.budget.most()), (3_000, 3_200));
    assert!(pager.set_limit(&policy), "and nobody is told");
}

/// Who divides memory among programs goes by that: what a program has given back it could not use.
#[test]
fn pages_count_as_touched_one_by_one_and_until_they_are_given_back() {
    let pages = 4 * BLOCK_PAGES as u32;
    let region = fake::untouched_region(Config::with_local(16 << 20), pages, None);
    for page in (0..pages).step_by(4) {
        assert_eq!(region.bring(PageIndex(page).offset()), Ok(()));
    }
    let touched = || region.pager.stats().touched_pages;
    assert_eq!(touched(), u64::from(pages) / 4);
    region.pager.release(&region, 0, PageIndex(pages / 2).offset()).unwrap();
    assert_eq!(touched(), u64::from(pages) / 8);
}

/// Reclaim works for a soft limit, and no fault waits for it.
#[test]
fn a_soft_limit_is_kept_by_reclaim_and_passed_by_faults() {
    let pages = 16 * BLOCK_PAGES as u32;
    let region = fake::untouched_region(Config::with_local(64 << 20), pages, None);
    let (pager, mut turns) = (&*region.pager, ReclaimTurns::default());
    let rest = |turns: &mut ReclaimTurns| {
        while pager.wants_reclaim(Fake::now()) || pager.local.counts.writing() > 0 {
            turns.take(pager);
        }
    };
    let touch = |pages: Range<u32>| {
        for page in pages {
            assert_eq!(region.bring(PageIndex(page).offset()), Ok(()));
            region.memory().write(PageIndex(page).offset(), &u64::from(page + 1).to_le_bytes());
        }
    };
    touch(0..pages / 2);
    rest(&mut turns);
    assert_eq!(pager.local.budget.charged(), u64::from(pages) / 2);
    pager.set_soft_limit(Some(2048));
    rest(&mut turns);
    assert!((1024..=2048).contains(&pager.local.budget.charged()), "{:?}", pager.local.usage());
    // Nobody reclaims meanwhile, and all of it has room.
    touch(0..pages / 2);
    assert!(pager.local.budget.charged() > u64::from(pages) / 4);
    rest(&mut turns);
    assert!(pager.local.budget.charged() <= 2048);
    pager.set_soft_limit(None);
    touch(0..pages / 2);
    rest(&mut turns);
    assert!(pager.local.usage().resident == u64::from(pages) / 2, "{:?}", pager.local.usage());
    (0..pages / 2).for_each(|page| assert_eq!(fake::word(&region, page), u64::from(page) + 1));
    pager.audit().unwrap();
}

/// With fewer frames than could stand by, less stands by.
#[test]
fn reclaim_gets_along_with_few_frames() {
    let pages = 40 * BLOCK_PAGES as u32;
    let config = Config { frames_max: 0, ..Config::with_local(64 << 20) };
    let region = fake::untouched_region(config, pages, None);
    let (pager, mut turns) = (&*region.pager, ReclaimTurns::default());
    for page in 0..pages {
        while pager.wants_reclaim(Fake::now()) {
            turns.take(pager);
        }
        assert_eq!(region.bring(PageIndex(page).offset()), Ok(()));
        region.memory().write(PageIndex(page).offset(), &u64::from(page + 1).to_le_bytes());
    }
    assert!(pager.local.frames.count() < 4 * BLOCK_PAGES + 1);
    pager.audit().unwrap();
    for page in 0..pages {
        while pager.wants_reclaim(Fake::now()) {
            turns.take(pager);
        }
        assert_eq!(region.bring(PageIndex(page).offset()), Ok(()));
        assert_eq!(fake::word(&region, page), u64::from(page) + 1);
    }
}

/// A fetch needs a frame where far memory is not mapped, and reclaim, which has done its work, must not have taken all.
#[test]
fn frames_are_left_for_fetches_where_reclaim_rests() {
    let pages = 88 * BLOCK_PAGES as u32;
    let config = Config { frames_max: 0, ..Config::with_local(256 << 20) };
    let region = fake::untouched_region(config, pages, None);
    let (pager, mut turns) = (&*region.pager, ReclaimTurns::default());
    for page in 0..pages {
        assert_eq!(region.bring(PageIndex(page).offset()), Ok(()));
        region.memory().write(PageIndex(page).offset(), &u64::from(page + 1).to_le_bytes());
    }
    // Its share of standby pages is more than there are frames.
    pager.set_soft_limit(Some(41_500));
    while pager.wants_reclaim(Fake::now()) || pager.local.counts.writing() > 0 {
        turns.take(pager);
    }
    let usage = pager.local.usage();
    assert!(usage.spare_frames + usage.headroom >= BLOCK_PAGES as u64, "{usage:?}");
    let is_remote = |page: &u32| region.table.load(PageIndex(*page)).state() == State::Remote;
    let remote: Vec<u32> = (0..pages).filter(is_remote).take(100).collect();
    assert_eq!(remote.len(), 100);
    for page in remote {
        assert_eq!(region.bring(PageIndex(page).offset()), Ok(()));
        assert_eq!(fake::word(&region, page), u64::from(page) + 1);
    }
}
