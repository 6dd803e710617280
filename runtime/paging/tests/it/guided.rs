//! Paging that is guided: what is live travels, nothing else does, and nothing of it is lost.

mod objects;
mod soak;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use objects::{Object, PAGE, World, assert_same};
use yonder_heap::PageMap;
use yonder_paging::{Config, Deadlines, Liveness, Prefetch, Stats, Verify};
use yonder_units::{PAGE_BYTES, PageIndex, Vector};

const LOCAL: u64 = 4 << 20;
/// Pages of objects in most tests: they all have room beside one another.
const PAGES: usize = 256;
const OBJECT_BYTES: usize = 64;
const OBJECTS: usize = PAGE_BYTES / OBJECT_BYTES;
/// The fabric maps far memory, or reads into frames.
const FABRICS: [&str; 2] = ["", "&reads=frames"];

fn config(verify: Verify) -> Config {
    Config { verify, prefetch: Prefetch::None, ..Config::with_local(LOCAL) }
}

/// What has happened since `before`.
fn since(world: &World, before: &Stats, count: fn(&Stats) -> u64) -> u64 {
    count(&world.far.stats()) - count(before)
}

/// Pages full of objects, of which those that `is_kept` says stay, by page and place; the others are freed again.
fn some_objects(world: &World, is_kept: impl Fn(usize, usize) -> bool) -> Vec<Object> {
    let all: Vec<_> =
        (0..PAGES * OBJECTS).map(|number| world.make(OBJECT_BYTES, number as u64).expect("there is room")).collect();
    let (kept, freed): (Vec<_>, Vec<_>) = all
        .into_iter()
        .partition(|object| is_kept(object.page().index(), object.offset as usize % PAGE_BYTES / OBJECT_BYTES));
    freed.iter().for_each(|object| world.free(object.offset));
    kept
}

/// Up to three groups of objects a page, the same groups on every eighth page.
fn is_in_a_group(page: usize, place: usize) -> bool {
    match page % 8 {
        0 => place < 2,
        1 => place == OBJECTS - 1,
        2 => place == 5 || place == 6 || place == 40,
        _ => [1, 20, 50].contains(&place),
    }
}

#[test]
fn only_what_is_live_is_written_and_fetched() {
    for (fabric, verify) in [(FABRICS[0], Verify::Off), (FABRICS[0], Verify::On), (FABRICS[1], Verify::On)] {
        let Some(world) = World::new(fabric, 2 * LOCAL, config(verify)) else { return };
        let kept = some_objects(&world, is_in_a_group);
        let (live, pages) = world.live_bytes(&kept);
        assert!(pages == PAGES as u64 && live < pages * 4 * OBJECT_BYTES as u64);
        world.send_away();
        let stats = world.far.stats();
        assert_eq!((stats.written_bytes, stats.saved_written_bytes), (live, pages * PAGE - live), "{stats:?}");
        kept.iter().for_each(|object| world.check(object));
        let stats = world.far.stats();
        assert_eq!((stats.fetched_bytes, stats.saved_fetch_bytes), (live, pages * PAGE - live), "{stats:?}");
    }
}

/// Neither what the dead bytes became, nor what was freed since, nor how often a page went and came.
#[test]
fn a_page_of_which_nothing_live_has_changed_is_clean() {
    for fabric in FABRICS {
        let Some(world) = World::new(fabric, 2 * LOCAL, config(Verify::Off)) else { return };
        let mut kept = some_objects(&world, is_in_a_group);
        world.send_away();
        let before = world.far.stats();
        kept.iter().for_each(|object| world.check(object));
        // Dead bytes may become anything: here those behind the last object, on pages that have others.
        for page in (0..PAGES).filter(|page| page % 8 != 1) {
            world.region.write_u64((page as u64 + 1) * PAGE - 8, page as u64).unwrap();
        }
        world.send_away();
        assert_eq!(since(&world, &before, |s| s.written_bytes), 0);
        assert!(since(&world, &before, |s| s.clean_pages) >= PAGES as u64);
        for place in [1, 5] {
            kept.iter().for_each(|object| world.check(object));
            let goes = |object: &Object| object.offset as usize % PAGE_BYTES / OBJECT_BYTES == place;
            kept.iter().filter(|object| goes(object)).for_each(|object| world.free(object.offset));
            kept.retain(|object| !goes(object));
            world.send_away();
            assert_eq!(since(&world, &before, |s| s.written_bytes), 0, "frees have made pages dirty");
            let before = world.far.stats();
            kept.iter().for_each(|object| world.check(object));
            assert_eq!(since(&world, &before, |s| s.fetched_bytes), world.live_bytes(&kept).0);
        }
    }
}

#[test]
fn what_is_made_and_changed_on_a_page_that_came_back_in_parts_is_kept() {
    for fabric in FABRICS {
        let Some(world) = World::new(fabric, 2 * LOCAL, config(Verify::On)) else { return };
        let mut kept = some_objects(&world, is_in_a_group);
        for round in 1..4u64 {
            world.send_away();
            // The lowest free places of the pages, whose other objects stay what they are.
            kept.extend((0..PAGES as u64).map(|number| world.make(OBJECT_BYTES, round << 32 | number).unwrap()));
            for object in kept.iter_mut().step_by(7) {
                object.number ^= round << 40;
                world.store(object);
            }
            world.send_away();
            kept.iter().for_each(|object| world.check(object));
        }
    }
}

/// Says of all pages the same.
struct Same(AtomicBool);

impl Liveness for Same {
    fn live(&self, _page: PageIndex) -> Option<Vector> {
        if self.0.load(Ordering::Acquire) { Some(Vector::WHOLE) } else { None }
    }
}

#[test]
fn a_page_of_which_nothing_is_live_is_forgotten_and_becomes_what_is_stored_next() {
    for fabric in FABRICS {
        let same = Arc::new(Same(AtomicBool::new(true)));
        let Some(world) = World::guided_by(|_| same.clone(), fabric, LOCAL, config(Verify::On)) else { return };
        let fill = |round: u64| (0..PAGES as u64).for_each(|page| world.region.write_u64(page * PAGE, round).unwrap());
        let check = |expected| (0..PAGES as u64).all(|page| world.region.read_u64(page * PAGE) == Ok(expected));
        for was_written in [false, true] {
            fill(7);
            if was_written {
                world.send_away();
                assert!(check(7), "the pages are local again");
                fill(8);
            }
            same.0.store(false, Ordering::Release);
            let before = world.far.stats();
            world.send_away();
            assert_eq!(since(&world, &before, |s| s.dead_pages), PAGES as u64);
            assert!(check(0), "what was forgotten has come back");
            let moved = |stats: &Stats| stats.written_bytes + stats.fetched_bytes;
            assert_eq!(since(&world, &before, moved), 0);
            same.0.store(true, Ordering::Release);
            // The node still has sevens, if it has anything: neither zeros nor sevens nor nines may be taken for those.
            for next in [0, 7, 9, 0, 7] {
                fill(next);
                world.send_away();
                assert!(check(next));
            }
        }
        world.region.discard(0, PAGES as u64 * PAGE).unwrap();
        assert!(check(0));
    }
}

#[test]
fn a_dead_page_is_not_forgotten_under_a_write() {
    const WRITES_MIN: u64 = 64;
    let same = Arc::new(Same(AtomicBool::new(true)));
    let Some(world) = World::guided_by(|_| same.clone(), FABRICS[0], LOCAL, config(Verify::On)) else { return };
    let fill = |round: u64| (0..PAGES as u64).for_each(|page| world.region.write_u64(page * PAGE, round).unwrap());
    let check =
        |expected| (0..PAGES as u64).for_each(|page| assert_eq!(world.region.read_u64(page * PAGE), Ok(expected)));
    fill(7);
    // Writes are lost, so they go on until the link is well again.
    world.control.set_drops(1.0);
    while world.far.stats().writing_pages < WRITES_MIN {
        world.press();
    }
    check(7);
    same.0.store(false, Ordering::Release);
    while world.region.mapped_pages().unwrap() > 0 {
        world.press();
    }
    let stats = world.far.stats();
    assert!(stats.writing_pages >= WRITES_MIN && stats.dead_pages <= PAGES as u64 - WRITES_MIN, "{stats:?}");
    world.control.set_drops(0.0);
    same.0.store(true, Ordering::Release);
    for round in 8..10 {
        fill(round);
        world.send_away();
        check(round);
    }
}

/// The node has sevens, the region has forgotten them and reads as zeros: so it does in the end.
#[test]
fn what_was_forgotten_does_not_come_back_where_nothing_is_stored_any_more() {
    for fabric in FABRICS {
        let same = Arc::new(Same(AtomicBool::new(true)));
        let Some(mut world) = World::guided_by(|_| same.clone(), fabric, LOCAL, config(Verify::Off)) else { return };
        (0..PAGES as u64).for_each(|page| world.region.write_u64(page * PAGE, 7).unwrap());
        world.send_away();
        (0..PAGES as u64).for_each(|page| assert_eq!(world.region.read_u64(page * PAGE), Ok(7)));
        same.0.store(false, Ordering::Release);
        world.send_away();
        same.0.store(true, Ordering::Release);
        world.region.seal().unwrap();
        for _ in 0..3 {
            (0..PAGES as u64).for_each(|page| assert_eq!(world.region.read_u64(page * PAGE), Ok(0)));
            world.send_away();
        }
    }
}

/// An allocator may know that it has never given out some bytes, and rely on their being zeros.
#[test]
fn bytes_that_nobody_has_ever_stored_stay_zeros() {
    for fabric in FABRICS {
        let Some(world) = World::new(fabric, 2 * LOCAL, config(Verify::Off)) else { return };
        // Stored whole, so that frames and what the fabric keeps have been used for something.
        let others: Vec<_> = (0..2 * PAGES as u64).map(|number| world.make(PAGE_BYTES, number).unwrap()).collect();
        world.send_away();
        others.iter().for_each(|object| world.check(object));
        let first = world.make(OBJECT_BYTES, 1 << 40).unwrap();
        let all: Vec<_> = (1..PAGES * OBJECTS).map(|_| world.place(OBJECT_BYTES).unwrap()).collect();
        let firsts: Vec<_> = all.iter().filter(|offset| offset.is_multiple_of(PAGE)).collect();
        assert_eq!((firsts.len(), first.offset % PAGE), (PAGES - 1, 0));
        all.iter().filter(|offset| !offset.is_multiple_of(PAGE)).for_each(|offset| world.free(*offset));
        firsts.iter().for_each(|offset| world.region.write(**offset, &[9; OBJECT_BYTES]).unwrap());
        for _ in 0..2 {
            world.send_away();
            // Whatever frames there are have held something else.
            others.iter().for_each(|object| world.check(object));
            let before = world.far.stats();
            for offset in &firsts {
                let mut page = [0; PAGE_BYTES];
                world.region.read(**offset, &mut page).unwrap();
                assert!(
                    page[..OBJECT_BYTES] == [9; OBJECT_BYTES] && page[OBJECT_BYTES..].iter().all(|byte| *byte == 0)
                );
            }
            assert_eq!(since(&world, &before, |s| s.fetched_bytes), (firsts.len() * OBJECT_BYTES) as u64);
        }
    }
}

/// Notes whether a page was open to stores when it was asked for.
struct Watch {
    map: Arc<PageMap>,
    /// Of this process: a word for each page of its memory.
    pages: File,
    address: usize,
    asked: AtomicUsize,
    open: AtomicUsize,
}

impl Liveness for Watch {
    fn live(&self, page: PageIndex) -> Option<Vector> {
        /// The page is mapped and its userfaultfd keeps writers away.
        const PRESENT_AND_PROTECTED: u64 = 1 << 63 | 1 << 57;
        let (mut word, at) = ([0; 8], (self.address / PAGE_BYTES + page.index()) * 8);
        self.pages.read_exact_at(&mut word, at as u64).unwrap();
        let is_open = u64::from_le_bytes(word) & PRESENT_AND_PROTECTED != PRESENT_AND_PROTECTED;
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.open.fetch_add(usize::from(is_open), Ordering::Relaxed);
        self.map.live(page)
    }
}

#[test]
fn no_store_reaches_a_page_while_it_is_asked_for() {
    let pages = File::open("/proc/self/pagemap").unwrap();
    let mut watch = None;
    let watching = |world: &World| -> Arc<dyn Liveness> {
        let (asked, open) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let made = Arc::new(Watch { map: world.map.clone(), pages, address: world.region.address(), asked, open });
        watch = Some(made.clone());
        made
    };
    let Some(world) = World::guided_by(watching, FABRICS[0], 2 * LOCAL, config(Verify::Off)) else { return };
    let watch = watch.unwrap();
    some_objects(&world, is_in_a_group);
    world.send_away();
    let (asked, open) = (watch.asked.load(Ordering::Relaxed), watch.open.load(Ordering::Relaxed));
    assert!(asked >= PAGES && open == 0, "{open} of {asked} pages were open to stores");
}

#[test]
fn a_fetch_that_has_failed_fetches_the_same_bytes_later() {
    // What does not fail has to keep the deadline on a busy machine too.
    let deadlines = Deadlines { fault: Duration::from_secs(2), attempt: Duration::from_millis(5) };
    for fabric in FABRICS {
        let config = Config { deadlines, ..config(Verify::On) };
        let Some(world) = World::new(fabric, 2 * LOCAL, config) else { return };
        let kept = some_objects(&world, is_in_a_group);
        world.send_away();
        let before = world.far.stats();
        for set_failing in [
            |world: &World, fails| world.control.set_dead(fails),
            |world: &World, fails: bool| {
                world.control.set_errors(if fails { 1.0 } else { 0.0 });
            },
        ] {
            set_failing(&world, true);
            assert!(world.region.read_u64(kept[0].offset).is_err());
            set_failing(&world, false);
        }
        world.control.set_errors(0.2);
        world.control.set_drops(0.01);
        kept.iter().for_each(|object| while world.region.read_u64(object.offset).is_err() {});
        world.control.set_errors(0.0);
        world.control.set_drops(0.0);
        kept.iter().for_each(|object| world.check(object));
        assert_eq!(since(&world, &before, |s| s.fetched_bytes), world.live_bytes(&kept).0);
        assert!(since(&world, &before, |s| s.fetch_retries) > 0);
    }
}

#[test]
fn what_is_fetched_ahead_is_fetched_in_parts_too() {
    for fabric in FABRICS {
        let shares =
            yonder_paging::Shares { start_percent: 35.0, least_percent: 35.0, end_percent: 40.0, ..Default::default() };
        let config = Config { prefetch: Prefetch::Readahead, shares, ..config(Verify::On) };
        let Some(world) = World::new(fabric, 2 * LOCAL, config) else { return };
        let kept = some_objects(&world, is_in_a_group);
        world.send_away();
        let before = world.far.stats();
        kept.iter().for_each(|object| world.check(object));
        let fetched = since(&world, &before, |s| s.fetched_bytes);
        assert!(since(&world, &before, |s| s.prefetch_hits) > 0, "{:?}", world.far.stats());
        // What is given up before it is touched is fetched twice.
        assert!(fetched < 2 * world.live_bytes(&kept).0, "{fetched} bytes");
    }
}

#[test]
fn a_sealed_region_keeps_what_is_live() {
    for fabric in FABRICS {
        let Some(mut world) = World::new(fabric, 4 * LOCAL, config(Verify::On)) else { return };
        let kept = some_objects(&world, is_in_a_group);
        let more: Vec<_> = (0..2_000).map(|number| world.make(3_000, 1 << 40 | number).unwrap()).collect();
        world.region.seal().unwrap();
        if let Some(node) = &world.node {
            for object in kept.iter().chain(&more) {
                let mut found = vec![0; object.bytes];
                node.read(object.offset, &mut found);
                assert_same(object, &found);
            }
        }
        for _ in 0..2 {
            kept.iter().chain(&more).for_each(|object| world.check(object));
            world.send_away();
        }
    }
}

#[test]
#[should_panic(expected = "guided by one")]
fn paging_has_one_guide() {
    let Some(world) = World::new(FABRICS[0], LOCAL, config(Verify::Off)) else { panic!("guided by one: SKIP") };
    world.region.guide_paging(world.map.clone());
}
