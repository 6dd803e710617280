//! Pages that are fetched before they are touched: who finds them, what becomes of those that nobody touches, and that
//! nothing is lost or counted wrong by it.

use std::sync::Arc;
use std::time::Duration;

use crate::emulated::{far, wait_for};
use yonder_paging::{
    Access, Config, Deadlines, FarMemory, FaultCounts, FaultPolicy, Installs, Liveness, Posting, Prefetch, Region,
    Shares, Stats, Verify, WorkerPort,
};
use yonder_unithread::{Pool, Resumed, STACK_BYTES_DEFAULT};
use yonder_units::{PAGE_BYTES, PageId, PageIndex};

const PAGE: u64 = PAGE_BYTES as u64;
const LOCAL: u64 = 4 << 20;
const PAGES: u64 = 5 * LOCAL / PAGE;

/// Reclaim begins early, so that so little memory has room for what is fetched ahead.
fn with(prefetch: Prefetch) -> Config {
    let shares = Shares { start_percent: 35.0, least_percent: 35.0, end_percent: 40.0, ..Shares::default() };
    Config { prefetch, shares, ..Config::with_local(LOCAL) }
}

/// A word that depends on the page.
fn word(page: u64) -> u64 {
    (page + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// A region of which every page was written, and most are on the node now.
fn filled(far: &FarMemory) -> Region {
    let region = far.region(PAGES * PAGE).unwrap();
    for page in 0..PAGES {
        region.write_u64(page * PAGE + page % 500 * 8, word(page)).unwrap();
    }
    // Nothing is fetched ahead while memory is short.
    wait_for("room", || far.stats().charged_pages <= LOCAL / PAGE * 66 / 100);
    region
}

fn check(region: &Region, pages: impl IntoIterator<Item = u64>) {
    for page in pages {
        assert_eq!(region.read_u64(page * PAGE + page % 500 * 8), Ok(word(page)), "page {page}");
    }
}

/// What has happened since `before`.
fn since(far: &FarMemory, before: &Stats, count: fn(&Stats) -> u64) -> u64 {
    count(&far.stats()) - count(before)
}

#[test]
fn a_sequence_is_fetched_ahead_and_everything_else_is_not() {
    for (access, verify) in [(Access::Trap, Verify::Off), (Access::Probe, Verify::On)] {
        for prefetch in [Prefetch::None, Prefetch::Readahead, Prefetch::Trend] {
            let Some((far, _)) = far(Config { verify, ..with(prefetch) }) else { return };
            let region = filled(&far).with_access(access);
            let before = far.stats();
            check(&region, 0..PAGES);
            let (major, hits) = (since(&far, &before, |s| s.major_faults), since(&far, &before, |s| s.prefetch_hits));
            if prefetch == Prefetch::None {
                assert_eq!((far.stats().prefetched_pages, hits), (0, 0));
            } else {
                assert!(major <= PAGES / 8 && hits > 0, "{prefetch:?}: {major} major faults, {hits} hits");
            }
            assert!(far.stats().peak_pages <= LOCAL / PAGE);
        }
    }
}

#[test]
fn strides_are_fetched_ahead_by_their_trend() {
    let Some((far, _)) = far(with(Prefetch::Trend)) else { return };
    let region = filled(&far);
    // Where the kernel gives others the CPU for long, pages go before they are touched: the best of a few passes
    // counts.
    let mut passes = std::iter::repeat_with(|| {
        let before = far.stats();
        check(&region, (0..7).flat_map(|first| (first..PAGES).step_by(7)));
        since(&far, &before, |s| s.major_faults)
    });
    assert!(passes.by_ref().take(5).any(|major| major <= PAGES / 8), "{} major faults", passes.next().unwrap());
}

/// The thread whose faults have fetched the pages may not look at them any more: others must find them all the same.
#[test]
fn another_thread_finds_what_was_fetched_ahead() {
    let Some((far, _)) = far(with(Prefetch::Readahead)) else { return };
    let region = filled(&far);
    let before = far.stats();
    check(&region, [0, 1]);
    let ahead = since(&far, &before, |s| s.prefetched_pages);
    assert!(ahead > 0);
    std::thread::scope(|scope| {
        scope.spawn(|| check(&region, 2..2 + ahead));
    });
    assert_eq!(since(&far, &before, |s| s.major_faults), 2, "{:?}", far.stats());
}

/// It is a fault of the request that touches the page, whoever has fetched that.
#[test]
fn what_another_thread_has_fetched_ahead_is_a_minor_fault_of_a_unithread() {
    let Some((far, _)) = far(with(Prefetch::Readahead)) else { return };
    let region = Arc::new(filled(&far));
    check(&region, [0, 1]);
    let port = WorkerPort::bind(&far, 1, FaultPolicy::Yield).unwrap();
    let pool = Pool::new(1, STACK_BYTES_DEFAULT).unwrap();
    let unithread = pool.take(Arc::clone(&region)).ok().expect("one is free");
    let token = unithread.id().0;
    let mut running = unithread.start(|region| check(region, [2]));
    while let Resumed::Suspended(again) = running.resume() {
        port.poll(yonder_clock::now(), Installs::Own, Posting::AtOnce, &mut Vec::new(), &mut Vec::new());
        running = again;
    }
    let page_id = Some(PageId { region: 0, page: PageIndex(2) });
    assert_eq!(port.take_faults(token), FaultCounts { major: 0, minor: 1, page_id });
}

/// What is held is wanted as a whole, so it is fetched together.
#[test]
fn a_hold_fetches_its_pages_together() {
    let Some((far, _)) = far(with(Prefetch::Readahead)) else { return };
    let region = filled(&far);
    let before = far.stats();
    drop(region.hold(64 * PAGE, 40 * PAGE as usize).unwrap());
    let (major, fetched) = (since(&far, &before, |s| s.major_faults), since(&far, &before, |s| s.fetched_bytes));
    assert!(major <= 2 && fetched >= 40 * PAGE, "{major} major faults for {fetched} bytes");
    check(&region, 64..104);
}

/// As is what is about to be copied, which then has no trap; what is here is not asked for.
#[test]
fn what_is_about_to_be_copied_is_fetched_together() {
    let Some((far, _)) = far(with(Prefetch::Readahead)) else { return };
    let region = filled(&far);
    let before = far.stats();
    let bytes = 20 * PAGE as usize + 2;
    region.bring(65 * PAGE - 1, bytes).unwrap();
    assert!(region.is_all_resident(65 * PAGE - 1, bytes));
    let (major, fetched) = (since(&far, &before, |s| s.major_faults), since(&far, &before, |s| s.fetched_bytes));
    assert!(major == 1 && fetched >= 22 * PAGE, "{major} major faults for {fetched} bytes");
    let (begun, untrapped) = (since(&far, &before, |s| s.range_faults), since(&far, &before, |s| s.untrapped_faults));
    assert!(begun == 1 && (1..=22).contains(&untrapped), "{begun} were begun, {untrapped} had no trap");
    check(&region, 64..86);
    let before = far.stats();
    region.bring(65 * PAGE - 1, bytes).unwrap();
    assert_eq!(since(&far, &before, |s| s.fetched_bytes + s.major_faults + s.minor_faults), 0);
}

/// Every 8 pages are an object.
struct Objects;

impl Liveness for Objects {
    fn live(&self, _page: PageIndex) -> Option<yonder_units::Vector> {
        Some(yonder_units::Vector::WHOLE)
    }

    fn object_at(&self, page: PageIndex) -> Option<u32> {
        page.0.is_multiple_of(8).then_some(8)
    }
}

#[test]
fn the_rest_of_an_object_is_fetched_with_its_first_page() {
    let Some((far, _)) = far(with(Prefetch::Readahead)) else { return };
    let region = filled(&far);
    region.guide_paging(Arc::new(Objects));
    let before = far.stats();
    check(&region, [80]);
    assert_eq!(since(&far, &before, |s| s.prefetched_pages), 7);
    check(&region, 81..88);
    assert_eq!(since(&far, &before, |s| s.major_faults), 1);
    check(&region, [163]);
    assert_eq!(since(&far, &before, |s| s.prefetched_pages), 7, "a touch within an object says nothing of it");
}

/// Every 3 pages are a small object.
struct SmallObjects;

impl Liveness for SmallObjects {
    fn live(&self, _page: PageIndex) -> Option<yonder_units::Vector> {
        Some(yonder_units::Vector::WHOLE)
    }

    fn small_object_at(&self, offset: u64) -> Option<std::ops::Range<u32>> {
        let first = PageIndex::containing(offset).0 / 3 * 3;
        Some(first..first + 3)
    }
}

/// A touch of any page of it maps them all, and those that follow one another are a sequence.
#[test]
fn a_small_object_is_fetched_as_a_whole() {
    let Some((far, _)) = far(with(Prefetch::Readahead)) else { return };
    let region = filled(&far);
    region.guide_paging(Arc::new(SmallObjects));
    for (touched, all) in [(90, 90..93), (121, 120..123), (152, 150..153)] {
        let before = far.stats();
        region.probe(touched * PAGE).unwrap();
        wait_for("the others", || region.is_all_resident(all.start * PAGE, 3 * PAGE as usize));
        assert_eq!(since(&far, &before, |s| s.prefetched_pages), 3, "of the object at {}", all.start);
        check(&region, all);
        assert_eq!(since(&far, &before, |s| s.major_faults), 1, "it waits once");
    }
    let before = far.stats();
    [201, 204].into_iter().for_each(|first| region.probe(first * PAGE).unwrap());
    assert!(since(&far, &before, |s| s.prefetched_pages) > 6);
    check(&region, 201..220);
    assert!(since(&far, &before, |s| s.major_faults) <= 3);
}

/// Where every window has pages of a sequence that went no further.
#[test]
fn an_object_takes_the_window_of_what_no_thread_has_touched() {
    let Some((far, _)) = far(with(Prefetch::Readahead)) else { return };
    let region = filled(&far);
    check(&region, (0..12).flat_map(|sequence| [40 * sequence, 40 * sequence + 1]));
    region.guide_paging(Arc::new(SmallObjects));
    for first in [600, 660, 720] {
        let before = far.stats();
        region.probe(first * PAGE).unwrap();
        wait_for("the others", || region.is_all_resident(first * PAGE, 3 * PAGE as usize));
        check(&region, first..first + 3);
        assert_eq!(since(&far, &before, |s| s.major_faults), 1, "it waits once, at {first}");
    }
}

#[test]
fn threads_share_sequences() {
    let Some((far, _)) = far(with(Prefetch::Readahead)) else { return };
    let region = filled(&far);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let region = &region;
            // Two at a time read the same pages, and all begin at different places.
            scope.spawn(move || check(region, (0..2 * PAGES).map(|step| (step + thread / 2 * 777) % PAGES)));
        }
    });
}

#[test]
fn freed_ranges_take_what_was_fetched_ahead_with_them() {
    let Some((far, control)) = far(with(Prefetch::Readahead)) else { return };
    let region = filled(&far);
    assert_eq!(region.alloc(PAGES * PAGE), Some(0));
    for first in [0, 64, 128] {
        check(&region, [first, first + 1]);
        // Those on their way are given up as well.
        control.set_delay(50_000_000, if first == 64 { 1.0 } else { 0.0 });
        region.free(first * PAGE, 64 * PAGE).unwrap();
        control.set_delay(0, 0.0);
        for page in first..first + 64 {
            assert_eq!(region.read_u64(page * PAGE + page % 500 * 8), Ok(0), "page {page}");
        }
    }
    check(&region, 192..PAGES);
    check(&region, [400, 401]);
    drop(region);
    let stats = far.stats();
    assert_eq!((stats.resident_pages, stats.standby_pages), (0, 0), "{stats:?}");
}

#[test]
fn failures_of_what_nobody_waits_for_are_nobodys_errors() {
    let deadlines = Deadlines { attempt: Duration::from_millis(2), ..Deadlines::default() };
    let Some((far, control)) = far(Config { deadlines, ..with(Prefetch::Readahead) }) else { return };
    let region = filled(&far);
    control.set_errors(0.1);
    control.set_drops(0.002);
    control.set_delay(20_000, 0.1);
    for _ in 0..2 {
        check(&region, 0..PAGES);
    }
    assert_eq!(far.stats().paging_errors, 0);
}

#[test]
fn a_lower_limit_takes_what_was_fetched_ahead() {
    let Some((far, _)) = far(with(Prefetch::Readahead)) else { return };
    let region = filled(&far);
    for first in (0..512).step_by(64) {
        check(&region, [first, first + 1]);
    }
    far.set_local(2 << 20).unwrap();
    let stats = far.stats();
    assert!(stats.charged_pages <= (2 << 20) / PAGE, "{stats:?}");
    check(&region, 0..PAGES);
}
