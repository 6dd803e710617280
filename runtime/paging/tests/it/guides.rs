//! Guides on real faults: a pointer that is far is followed by sub-page reads, what a batch has fetched is mapped
//! together, and whatever a guide asks for, every value that is read is the one that was written.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rand::rngs::SmallRng;
use rand::seq::SliceRandom as _;
use rand::{Rng as _, SeedableRng as _};
use yonder_guide::{Arrived, Cause, Guide, MakeGuide, READ_BYTES_MAX, READS_MAX, Reach, Reading, Touch, Verdict, word};
use yonder_paging::{Access, Config, FarMemory, Prefetch, Region, Shares};
use yonder_units::PAGE_BYTES;

use crate::emulated::wait_for;

const PAGE: u64 = PAGE_BYTES as u64;
const LOCAL: u64 = 4 << 20;
const PAGES: u64 = 4 * LOCAL / PAGE;
/// Far memory that is mapped, and far memory whose pages are read into frames.
const FABRICS: [&str; 2] = ["emu://?latency=2us&size=64MiB", "emu://?latency=2us&size=64MiB&reads=frames"];

/// Far memory with guides; `None`, and a line that says so, where there can be none.
fn far(url: &str, prefetch: Prefetch, make: MakeGuide) -> Option<FarMemory> {
    if let Err(error) = yonder_uffd::probe().userfaultfd {
        println!("SKIP: {error}");
        return None;
    }
    // Reclaim begins early, so that so little memory has room for what is fetched ahead.
    let shares = Shares { start_percent: 35.0, least_percent: 35.0, end_percent: 40.0, ..Shares::default() };
    Some(FarMemory::open_guided(url, Config { prefetch, shares, ..Config::with_local(LOCAL) }, Some(make)).unwrap())
}

/// Follows the pointer at the beginning of each page.
#[derive(Default)]
struct Follower {
    left: u32,
}

impl Follower {
    fn follow(&mut self, mut at: u64, reach: &mut dyn Reach) {
        while self.left > 0 {
            let mut pointer = [0; 8];
            match reach.read(at, &mut pointer, 7) {
                Reading::Done => at = self.take(&pointer, reach),
                Reading::Coming | Reading::Refused => return,
            }
        }
    }

    fn take(&mut self, pointer: &[u8], reach: &mut dyn Reach) -> u64 {
        let next = word(pointer);
        self.left = if next != 0 && reach.prefetch(next, 8) { self.left.saturating_sub(1) } else { 0 };
        next
    }
}

impl Guide for Follower {
    fn touched(&mut self, touch: &Touch<'_>, reach: &mut dyn Reach) -> Verdict {
        assert!(!touch.registers.is_empty(), "a fault has registers");
        self.left = 8;
        self.follow(touch.address / PAGE * PAGE, reach);
        Verdict::Known
    }

    fn arrived(&mut self, arrived: &Arrived<'_>, reach: &mut dyn Reach) {
        assert_eq!((arrived.note, arrived.bytes.len()), (7, 8));
        let next = self.take(arrived.bytes, reach);
        self.follow(next, reach);
    }
}

/// Pages in any order, each of which has the address of the next one, and a value.
fn linked(region: &Region) -> Vec<u64> {
    let mut pages: Vec<u64> = (0..PAGES).collect();
    pages.shuffle(&mut SmallRng::seed_from_u64(1));
    let address = |page: Option<&u64>| page.map_or(0, |page| region.address() as u64 + page * PAGE);
    for (at, page) in pages.iter().enumerate() {
        region.write_u64(page * PAGE, address(pages.get(at + 1))).unwrap();
        region.write_u64(page * PAGE + 2048, page * 3).unwrap();
    }
    wait_for("room", || region.far().stats().charged_pages <= LOCAL / PAGE * 66 / 100);
    pages
}

#[test]
fn pointers_are_followed_to_pages_that_are_far() {
    for url in FABRICS {
        let Some(far) = far(url, Prefetch::None, Arc::new(|| Box::new(Follower::default()))) else { return };
        let region = far.region(PAGES * PAGE).unwrap().with_access(Access::Trap);
        let order = linked(&region);
        let before = far.stats();
        let (mut at, mut seen) = (order[0], 0);
        loop {
            assert_eq!(region.read_u64(at * PAGE + 2048), Ok(at * 3), "page {at}");
            seen += 1;
            match region.read_u64(at * PAGE).unwrap() {
                0 => break,
                next => at = (next - region.address() as u64) / PAGE,
            }
        }
        assert_eq!(seen, PAGES);
        let after = far.stats();
        let (majors, reads) = (after.major_faults - before.major_faults, after.guide_reads - before.guide_reads);
        println!("{url}: {majors} major faults and {reads} reads of the guide for {PAGES} pages");
        assert!(majors < 3 * PAGES / 4 && reads > 0, "{majors} major faults, {reads} reads");
        assert!(after.peak_pages <= LOCAL / PAGE);
        drop(region);
        let stats = far.stats();
        assert_eq!(
            (stats.resident_pages, stats.standby_pages, stats.in_flight),
            (0, 0, 0),
            "something is not given back"
        );
    }
}

/// What a thread has stored last in each page, and how often the guide has looked.
struct Stored {
    values: Vec<AtomicU64>,
    looks: AtomicU64,
}

/// Looks at words whose value the writer knows.
struct Looker(Arc<Stored>);

impl Guide for Looker {
    fn touched(&mut self, touch: &Touch<'_>, reach: &mut dyn Reach) -> Verdict {
        let page = touch.address / PAGE * PAGE;
        // The page of the miss before was stored to since, and is here unless it was swept: as it was left.
        if let Some(before) = touch.history.first().map(|address| address / PAGE * PAGE) {
            let mut value = [0; 8];
            if reach.peek(before + 2048, &mut value) {
                let index = (before / PAGE % PAGES) as usize;
                let stored = self.0.values[index].load(Ordering::Relaxed);
                assert_eq!(word(&value), stored, "the page is here, with another value than was stored last");
                self.0.looks.fetch_add(1, Ordering::Relaxed);
            }
        }
        let mut bytes = [0; READ_BYTES_MAX + 1];
        assert_eq!(reach.read(page, &mut bytes, 0), Reading::Refused, "too many bytes");
        assert_eq!(reach.read(page, &mut [], 0), Reading::Refused, "no bytes");
        assert_eq!(reach.read(page + PAGE - 8, &mut bytes[..9], 0), Reading::Refused, "bytes of two pages");
        assert_eq!(reach.read(8, &mut bytes[..8], 0), Reading::Refused, "bytes of nobody");
        assert!(!reach.prefetch(8, 8) && !reach.prefetch(page, u64::MAX) && !reach.prefetch(page, 0));
        assert!(touch.history.len() <= yonder_guide::HISTORY_MAX);
        Verdict::Unknown
    }

    fn arrived(&mut self, _: &Arrived<'_>, _: &mut dyn Reach) {
        panic!("nothing was asked for");
    }
}

#[test]
fn what_is_here_is_seen_as_it_is_and_nonsense_is_refused() {
    for url in FABRICS {
        let values = (0..PAGES).map(|_| AtomicU64::new(0)).collect();
        let stored = Arc::new(Stored { values, looks: AtomicU64::new(0) });
        let looked = Arc::clone(&stored);
        let make: MakeGuide = Arc::new(move || Box::new(Looker(Arc::clone(&looked))));
        let Some(far) = far(url, Prefetch::Readahead, make) else { return };
        let region = far.region(PAGES * PAGE).unwrap().with_access(Access::Trap);
        // The place of a page's value is its number modulo PAGES; the region begins at any page.
        let first = region.address() as u64 / PAGE % PAGES;
        let mut random = SmallRng::seed_from_u64(3);
        for step in 1..6 * PAGES {
            let page = random.random_range(0..PAGES);
            let value = &stored.values[((first + page) % PAGES) as usize];
            assert_eq!(region.read_u64(page * PAGE + 2048), Ok(value.load(Ordering::Relaxed)));
            region.write_u64(page * PAGE + 2048, step).unwrap();
            value.store(step, Ordering::Relaxed);
        }
        assert!(stored.looks.load(Ordering::Relaxed) > PAGES / 2, "{:?}", stored.looks);
    }
}

/// Asks for anything.
struct Nuisance(SmallRng);

impl Nuisance {
    fn ask(&mut self, around: u64, reach: &mut dyn Reach) {
        for _ in 0..self.0.random_range(0..2 * READS_MAX) {
            let at = around.wrapping_add_signed(self.0.random_range(-(PAGES as i64) * 4096..PAGES as i64 * 4096));
            match self.0.random_range(0..4) {
                0 => _ = reach.prefetch(at, self.0.random_range(0..200_000)),
                1 => _ = reach.peek(at, &mut [0; 64]),
                _ => _ = reach.read(at & !63, &mut [0; 64], at),
            }
        }
    }
}

impl Guide for Nuisance {
    fn touched(&mut self, touch: &Touch<'_>, reach: &mut dyn Reach) -> Verdict {
        self.ask(touch.address, reach);
        if touch.cause == Cause::Miss && self.0.random_ratio(1, 2) { Verdict::Unknown } else { Verdict::Known }
    }

    fn arrived(&mut self, arrived: &Arrived<'_>, reach: &mut dyn Reach) {
        assert_eq!(arrived.address, arrived.note & !63);
        if self.0.random_ratio(1, 8) {
            self.ask(arrived.address, reach);
        }
    }
}

/// Threads that store and load, regions that come and go, and a fabric that loses and fails reads of guides too.
#[test]
fn a_guide_that_asks_for_anything_changes_nothing() {
    let failing = FABRICS.map(|url| format!("{url}&error=0.01&drop=0.0005"));
    for url in &failing {
        let seeds = AtomicU64::new(0);
        let make: MakeGuide =
            Arc::new(move || Box::new(Nuisance(SmallRng::seed_from_u64(seeds.fetch_add(1, Ordering::Relaxed)))));
        let Some(far) = far(url, Prefetch::Readahead, make) else { return };
        for round in 0..3 {
            let region = far.region(PAGES * PAGE).unwrap().with_access(Access::Trap);
            std::thread::scope(|scope| {
                for thread in 0..3_u64 {
                    let region = &region;
                    scope.spawn(move || {
                        let mut random = SmallRng::seed_from_u64(thread);
                        let mut values = vec![0_u64; PAGES as usize];
                        for step in 0..6_000 {
                            // Each thread has words of its own in every page.
                            let page = random.random_range(0..PAGES);
                            let (at, value) = (page * PAGE + thread * 8 + 64, &mut values[page as usize]);
                            assert_eq!(region.read_u64(at), Ok(*value), "page {page} in round {round}");
                            if random.random_ratio(1, 3) {
                                *value = thread << 60 | round << 40 | step;
                                region.write_u64(at, *value).unwrap();
                            }
                        }
                    });
                }
            });
            assert!(far.stats().guide_reads > 0);
            drop(region);
            let stats = far.stats();
            assert_eq!((stats.resident_pages, stats.standby_pages, stats.in_flight), (0, 0, 0));
            assert!(stats.peak_pages <= LOCAL / PAGE);
        }
    }
}
