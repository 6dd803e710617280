//! Far memory used by ordinary threads: content, limits, errors, freeing, sealing.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::emulated::{far, wait_for};
use yonder_paging::{Access, Config, Deadlines, Delivery, PagingCause, Region, Verify};
use yonder_units::PAGE_BYTES;

const PAGE: u64 = PAGE_BYTES as u64;
const LOCAL: u64 = 4 << 20;

fn impatient() -> Config {
    let deadlines = Deadlines { fault: Duration::from_millis(150), attempt: Duration::from_millis(5) };
    Config { deadlines, ..Config::with_local(LOCAL) }
}

/// A word that depends on the page and a round.
fn word(page: u64, round: u64) -> u64 {
    (page + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ round
}

fn fill(region: &Region, round: u64) {
    for page in 0..region.bytes() / PAGE {
        region.write_u64(page * PAGE + page % 500 * 8, word(page, round)).unwrap();
    }
}

/// As [`fill`], with a deadline that a busy machine can miss.
fn fill_in_the_end(region: &Region, round: u64) {
    for page in 0..region.bytes() / PAGE {
        while region.write_u64(page * PAGE + page % 500 * 8, word(page, round)).is_err() {}
    }
}

fn check(region: &Region, round: u64) {
    check_all_but(region, round, 0..0);
}

fn check_all_but(region: &Region, round: u64, left: Range<u64>) {
    for page in (0..region.bytes() / PAGE).filter(|page| !left.contains(page)) {
        assert_eq!(region.read_u64(page * PAGE + page % 500 * 8), Ok(word(page, round)), "page {page}");
    }
}

#[test]
fn five_times_the_local_memory_is_written_and_read_back() {
    for access in [Access::Probe, Access::Trap] {
        let Some((far, _)) = far(Config { verify: Verify::On, ..Config::with_local(LOCAL) }) else { return };
        let region = far.region(5 * LOCAL).unwrap().with_access(access);
        for round in 0..3 {
            fill(&region, round);
            check(&region, round);
        }
        let stats = far.stats();
        assert!(stats.peak_pages <= LOCAL / PAGE, "{} pages of {}", stats.peak_pages, LOCAL / PAGE);
        assert!(stats.major_faults > 0 && stats.written_bytes > 0, "{stats:?}");
    }
}

/// The thread sleeps in the kernel meanwhile, and others bring its pages.
#[test]
fn faults_can_be_messages() {
    if let Err(error) = yonder_uffd::Uffd::open_for(yonder_uffd::Delivery::Messages) {
        println!("SKIP: {error}");
        return;
    }
    let Some((far, _)) = far(Config { delivery: Delivery::Messages, ..Config::with_local(LOCAL) }) else { return };
    let region = far.region(5 * LOCAL).unwrap().with_access(Access::Trap);
    for round in 0..2 {
        fill(&region, round);
        std::thread::scope(|scope| {
            (0..3).for_each(|_| _ = scope.spawn(|| check(&region, round)));
        });
    }
    let stats = far.stats();
    assert!(stats.peak_pages <= LOCAL / PAGE && stats.major_faults > 0, "{stats:?}");
}

#[test]
fn a_region_is_where_its_owner_wants_it() {
    let Some((far, _)) = far(Config::with_local(LOCAL)) else { return };
    let wanted = 0x2000_0000_0000;
    let region = far.region_at(wanted, 5 * LOCAL).unwrap();
    assert_eq!(region.address(), wanted);
    assert!(far.region_at(wanted + 2 * LOCAL as usize, LOCAL).is_err(), "a region has taken another's place");
    fill(&region, 1);
    check(&region, 1);
    let (half, pages) = (region.bytes() / 2, region.bytes() / PAGE / 2);
    region.discard(half, half).unwrap();
    for page in 0..2 * pages {
        let expected = if page < pages { word(page, 1) } else { 0 };
        assert_eq!(region.read_u64(page * PAGE + page % 500 * 8), Ok(expected), "page {page}");
    }
}

#[test]
fn untouched_and_zeroed_pages_are_zero_and_need_no_node() {
    let Some((far, _)) = far(Config::with_local(LOCAL)) else { return };
    let region = far.region(5 * LOCAL).unwrap();
    for _ in 0..2 {
        for page in 0..5 * LOCAL / PAGE {
            assert_eq!(region.read_u64(page * PAGE), Ok(0));
        }
    }
    let stats = far.stats();
    assert_eq!((stats.fetched_bytes, stats.written_bytes), (0, 0), "{stats:?}");
}

#[test]
fn unaligned_copies_cross_pages() {
    let Some((far, _)) = far(Config::with_local(LOCAL)) else { return };
    let region = far.region(1 << 20).unwrap();
    let text: Vec<u8> = (0..20_000).map(|byte| byte as u8).collect();
    region.write(4090, &text).unwrap();
    let mut back = vec![0; text.len()];
    region.read(4090, &mut back).unwrap();
    assert!(back == text && region.matches(4090, &text).unwrap() && !region.matches(4091, &text).unwrap());
}

#[test]
fn a_dead_node_is_an_error_and_never_zeros() {
    let Some((far, control)) = far(impatient()) else { return };
    let region = far.region(5 * LOCAL).unwrap();
    fill_in_the_end(&region, 1);
    control.set_dead(true);
    let mut lost = 0;
    for page in (0..region.bytes() / PAGE).step_by(region.bytes() as usize / PAGE_BYTES / 12) {
        match region.read_u64(page * PAGE + page % 500 * 8) {
            Ok(value) => assert_eq!(value, word(page, 1), "page {page}"),
            Err(error) => {
                assert!(matches!(error.cause, PagingCause::NodeLost | PagingCause::LocalMemoryFull), "{error}");
                assert!(error.to_string().contains("emu://") && !error.to_string().contains('\n'));
                lost += 1;
            }
        }
    }
    assert!(lost > 0);
    control.set_dead(false);
    // The first touch after the node is back may still run into the short deadline, as any on a busy machine.
    wait_for("pages are written", || far.stats().writing_pages == 0);
    for page in 0..region.bytes() / PAGE {
        let found = (0..100).find_map(|_| region.read_u64(page * PAGE + page % 500 * 8).ok());
        assert_eq!(found, Some(word(page, 1)), "page {page}");
    }
}

#[test]
fn lost_and_failed_operations_are_tried_again() {
    let Some((far, control)) = far(Config {
        deadlines: Deadlines { attempt: Duration::from_millis(2), ..Deadlines::default() },
        ..Config::with_local(LOCAL)
    }) else {
        return;
    };
    let region = far.region(2 * LOCAL).unwrap();
    control.set_errors(0.05);
    control.set_drops(0.002);
    control.set_delay(20_000, 0.1);
    for round in 0..2 {
        fill(&region, round);
        check(&region, round);
    }
    let stats = far.stats();
    assert!(stats.fetch_retries > 0 && stats.write_retries > 0 && stats.paging_errors == 0, "{stats:?}");
}

#[test]
fn freed_ranges_read_as_zeros_and_leave_local_memory() {
    let Some((far, _)) = far(Config::with_local(LOCAL)) else { return };
    let region = far.region(2 * LOCAL).unwrap();
    let offset = region.alloc(LOCAL).unwrap();
    for page in 0..LOCAL / PAGE {
        region.write_u64(offset + page * PAGE, word(page, 7)).unwrap();
    }
    region.free(offset, LOCAL).unwrap();
    assert_eq!(region.alloc(LOCAL), Some(offset));
    for page in 0..LOCAL / PAGE {
        assert_eq!(region.read_u64(offset + page * PAGE), Ok(0), "page {page}");
    }
}

#[test]
fn after_the_first_deadline_a_lost_node_is_only_probed() {
    let deadlines = Deadlines { fault: Duration::from_secs(2), attempt: Duration::from_millis(5) };
    let Some((far, control)) = far(Config { deadlines, ..Config::with_local(LOCAL) }) else { return };
    let mut region = far.region(8 * LOCAL).unwrap();
    fill(&region, 1);
    // Sealed, so that nothing local has to be written and every touch of a page is a fetch.
    region.seal().unwrap();
    control.set_dead(true);
    let started = std::time::Instant::now();
    assert!((0..100).all(|page| region.read_u64(page * PAGE).is_err()));
    let took = started.elapsed();
    assert!((2..20).contains(&took.as_secs()), "100 touches of a lost node took {took:?}");
    control.set_dead(false);
    check(&region, 1);
}

#[test]
fn a_free_that_waits_for_a_dead_node_stops_nobody_else() {
    let deadlines = Deadlines { fault: Duration::from_secs(2), ..Deadlines::default() };
    let Some((far, control)) = far(Config { deadlines, ..Config::with_local(LOCAL) }) else { return };
    let (region, other) = (far.region(2 * LOCAL).unwrap(), far.region(LOCAL).unwrap());
    assert_eq!(region.alloc(2 * LOCAL), Some(0));
    // Dirty pages whose writes cannot end.
    control.set_dead(true);
    for page in 0.. {
        if far.stats().writing_pages > 0 {
            break;
        }
        // Fails where local memory is full of pages that cannot be written: what is wanted.
        let _ = region.write_u64(page * PAGE, word(page, 1));
    }
    std::thread::scope(|scope| {
        let free = scope.spawn(|| region.free(0, 2 * LOCAL));
        let offset = other.alloc(LOCAL).unwrap();
        for _ in 0..100 {
            assert!(far.stats().writing_pages > 0);
            other.free(offset, PAGE).unwrap();
            assert_eq!(other.alloc(PAGE), Some(offset));
        }
        assert!(!free.is_finished(), "others waited until the free had given up");
        control.set_dead(false);
        free.join().unwrap().unwrap();
    });
    assert_eq!(region.read_u64(0), Ok(0));
}

#[test]
fn a_sealed_region_keeps_its_content_and_is_never_written_back() {
    let Some((far, _)) = far(Config::with_local(LOCAL)) else { return };
    let mut region = far.region(4 * LOCAL).unwrap();
    fill(&region, 3);
    region.seal().unwrap();
    let sealed = far.stats();
    for _ in 0..3 {
        check(&region, 3);
    }
    let stats = far.stats();
    assert_eq!((stats.written_bytes, stats.swept_pages), (sealed.written_bytes, sealed.swept_pages));
    assert!(stats.dropped_pages > 0);
    let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| region.write_u64(0, 1)));
    assert!(refused.is_err());
}

#[test]
fn the_limit_changes_while_threads_write() {
    let Some((far, _)) = far(Config { local_bytes_max: 4 * LOCAL, ..Config::with_local(LOCAL) }) else { return };
    let region = far.region(5 * LOCAL).unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| (0..4).for_each(|round| fill(&region, round)));
        let mut turn = 0;
        while !writer.is_finished() {
            let limit = [LOCAL, 4 * LOCAL, 2 * LOCAL][turn % 3];
            far.set_local(limit).unwrap();
            assert!(far.stats().charged_pages <= limit / PAGE);
            turn += 1;
        }
    });
    check(&region, 3);
}

#[test]
fn held_pages_stay_resident_under_pressure() {
    let Some((far, _)) = far(Config::with_local(LOCAL)) else { return };
    let region = far.region(5 * LOCAL).unwrap();
    fill(&region, 1);
    let hold = region.hold(10 * PAGE, 20 * PAGE_BYTES).unwrap();
    check(&region, 1);
    assert!((10..30).all(|page| region.is_resident(page * PAGE)));
    drop(hold);
}

#[test]
fn a_hold_that_may_not_wait_is_had_of_what_is_resident_and_keeps_it_so() {
    let Some((far, _)) = far(Config::with_local(LOCAL)) else { return };
    let region = far.region(5 * LOCAL).unwrap();
    assert!(region.try_hold(0, 1).is_none(), "nothing was ever there");
    region.write(10 * PAGE, &[1; 2 * PAGE_BYTES]).unwrap();
    assert!(region.try_hold(9 * PAGE, 3 * PAGE_BYTES).is_none(), "its first page was never there");
    let hold = region.try_hold(10 * PAGE, 2 * PAGE_BYTES).unwrap();
    fill(&region, 1);
    assert!(region.is_resident(10 * PAGE) && region.is_resident(11 * PAGE));
    drop(hold);
    while region.is_resident(10 * PAGE) {
        fill(&region, 2);
    }
    assert!(region.try_hold(10 * PAGE, 1).is_none(), "it has left");
}

/// What is neither held nor the reclaimer's is there for more holds, though frames for sweeps that do not come had it
/// last.
#[test]
fn all_but_the_reserve_can_be_held() {
    let deadlines = Deadlines { fault: Duration::from_secs(2), ..Deadlines::default() };
    let Some((far, _)) = far(Config { deadlines, ..Config::with_local(LOCAL) }) else { return };
    let region = far.region(5 * LOCAL).unwrap();
    fill(&region, 1);
    let mut holds = Vec::new();
    let full = (0..region.bytes() / PAGE).find_map(|page| match region.hold(page * PAGE, 1) {
        Ok(hold) => {
            holds.push(hold);
            None
        }
        Err(error) => Some(error.cause),
    });
    assert_eq!(full, Some(PagingCause::LocalMemoryFull));
    let pages = LOCAL / PAGE;
    assert!(holds.len() as u64 >= pages - pages / 8 - 16, "only {} of {pages} pages can be held", holds.len());
    drop(holds);
    check(&region, 1);
}

/// As programs do that protect their memory: all of it in the end, and much more than is local.
#[test]
fn what_is_unreadable_leaves_and_takes_no_room() {
    let Some((far, _)) = far(Config::with_local(LOCAL)) else { return };
    let region = far.region(5 * LOCAL).unwrap().with_access(Access::Trap);
    fill(&region, 1);
    let step = 100 * PAGE;
    for offset in (0..3 * LOCAL / step * step).step_by(step as usize) {
        // It is local for the most part.
        region.read(offset, &mut [0; 80 * PAGE_BYTES]).unwrap();
        region.mark_unreadable(offset, step);
        assert!((offset..offset + step).step_by(PAGE_BYTES).all(|page| !region.is_resident(page)), "at {offset}");
    }
    let rest = 4 * LOCAL..5 * LOCAL;
    for page in rest.clone().step_by(PAGE_BYTES).map(|offset| offset / PAGE) {
        region.write_u64(page * PAGE + page % 500 * 8, word(page, 1)).unwrap();
    }
    region.mark_readable(0, 3 * LOCAL);
    check(&region, 1);
}

#[test]
fn pages_are_unreadable_while_others_touch_them() {
    let Some((far, _)) = far(Config::with_local(LOCAL)) else { return };
    let region = far.region(2 * LOCAL).unwrap().with_access(Access::Trap);
    fill(&region, 1);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for first in 0..2 {
            let (region, done) = (&region, &done);
            scope.spawn(move || {
                while !done.load(Ordering::Acquire) {
                    (first..64).step_by(2).for_each(|page| {
                        assert_eq!(region.read_u64(page * PAGE + page % 500 * 8), Ok(word(page, 1)), "page {page}");
                    });
                }
            });
        }
        for _ in 0..200 {
            region.mark_unreadable(0, 64 * PAGE);
            region.mark_readable(0, 64 * PAGE);
        }
        done.store(true, Ordering::Release);
    });
    check(&region, 1);
}

#[test]
fn what_comes_to_unreadable_pages_stays_until_they_are_readable() {
    let Some((far, _)) = far(Config::with_local(LOCAL)) else { return };
    let region = far.region(5 * LOCAL).unwrap().with_access(Access::Trap);
    fill(&region, 1);
    region.mark_unreadable(10 * PAGE, 20 * PAGE);
    let comes = [10, 11, 15, 29];
    comes.iter().for_each(|page| _ = region.read_u64(page * PAGE).unwrap());
    check_all_but(&region, 1, 10..30);
    assert!(comes.iter().all(|page| region.is_resident(page * PAGE)));
    region.mark_readable(10 * PAGE, 20 * PAGE);
    check(&region, 1);
    fill(&region, 2);
    assert!(comes.iter().all(|page| !region.is_resident(page * PAGE)), "they are swept like all others");
    check(&region, 2);
}

#[test]
fn accounting_matches_what_the_kernel_has_mapped() {
    let Some((far, _)) = far(Config::with_local(LOCAL)) else { return };
    let region = far.region(5 * LOCAL).unwrap();
    fill(&region, 1);
    check(&region, 1);
    assert!(region.mapped_pages().unwrap() as u64 <= far.stats().resident_pages);
}

#[test]
fn many_threads_share_pages() {
    let Some((far, _)) = far(Config::with_local(LOCAL)) else { return };
    let region = far.region(3 * LOCAL).unwrap();
    fill(&region, 9);
    std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(|| check(&region, 9)))));
}

#[test]
fn what_fits_stays_and_what_almost_fits_stays_for_the_most_part() {
    const RESERVE: u64 = 512 * PAGE;
    let local = 48 * LOCAL;
    for (bytes, fetches_max) in [(local - RESERVE, 0), (local, local / PAGE / 10)] {
        let Some((far, _)) = far(Config::with_local(local)) else { return };
        let region = far.region(bytes).unwrap();
        fill(&region, 1);
        check(&region, 1);
        let pages = bytes / PAGE;
        // At random: any order that goes round would ask for just the pages that have left.
        let fetches_in = |round| {
            let before = far.stats().major_faults;
            for page in (0..pages).map(|draw| word(draw, round) % pages) {
                assert_eq!(region.read_u64(page * PAGE + page % 500 * 8), Ok(word(page, 1)), "page {page}");
            }
            far.stats().major_faults - before
        };
        fetches_in(7);
        let fetches = fetches_in(8);
        assert!(fetches <= fetches_max, "{fetches} fetches of {pages} pages");
    }
}

#[test]
fn a_lower_limit_holds_even_where_everything_fitted() {
    let Some((far, _)) = far(Config::with_local(16 * LOCAL)) else { return };
    let region = far.region(8 * LOCAL).unwrap();
    fill(&region, 1);
    for limit in [9 * LOCAL, 2 * LOCAL, 12 * LOCAL] {
        far.set_local(limit).unwrap();
        assert!(far.stats().charged_pages <= limit / PAGE);
        check(&region, 1);
    }
    far.set_local(16 * LOCAL).unwrap();
    check(&region, 1);
    drop(region);
    let region = far.region(15 * LOCAL).unwrap();
    fill(&region, 2);
    check(&region, 2);
}

#[test]
fn regions_that_are_refused_leave_nothing_behind() {
    let Some((far, _)) = far(Config::with_local(LOCAL)) else { return };
    let metadata = far.stats().metadata_bytes;
    let regions: Vec<_> = std::iter::repeat_with(|| far.region(PAGE)).take_while(Result::is_ok).collect();
    let error = far.region(PAGE).err().unwrap();
    assert!(error.to_string().contains("use fewer and larger ones"), "{error}");
    drop(regions);
    assert_eq!(far.stats().metadata_bytes, metadata);
    // All of the node's memory is free again, in one piece.
    drop(far.region(256 << 20).unwrap());
}

/// A node that says that it has lost a page is believed at once, whatever the deadline; the page is an address like any
/// other again when its content was given up.
#[test]
fn a_page_that_the_node_has_lost_is_a_paging_error() {
    let deadlines = Deadlines { fault: Duration::from_secs(60), ..Deadlines::default() };
    let Some((far, control)) = far(Config { deadlines, ..Config::with_local(LOCAL) }) else { return };
    let region = far.region(5 * LOCAL).unwrap();
    fill(&region, 1);
    let lost = (0..region.bytes() / PAGE).find(|page| !region.is_resident(page * PAGE)).unwrap();
    control.lose(region.remote_address(lost * PAGE));
    let begin = std::time::Instant::now();
    for _ in 0..2 {
        assert_eq!(region.read_u64(lost * PAGE).unwrap_err().cause, PagingCause::Poisoned);
    }
    assert!(begin.elapsed() < deadlines.fault, "{:?}", begin.elapsed());
    for page in (0..region.bytes() / PAGE).filter(|page| *page != lost) {
        assert_eq!(region.read_u64(page * PAGE + page % 500 * 8), Ok(word(page, 1)), "page {page}");
    }
    region.discard(lost * PAGE, PAGE).unwrap();
    region.write_u64(lost * PAGE, 5).unwrap();
    (0..region.bytes() / PAGE).for_each(|page| assert!(page == lost || region.read_u64(page * PAGE).is_ok()));
    assert_eq!(region.read_u64(lost * PAGE), Ok(5));
}
