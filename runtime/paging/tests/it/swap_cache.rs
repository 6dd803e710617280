//! The swap cache, quotas and advice: what leaves local memory when, what is written back when, and what a touch costs
//! then.

use std::time::Duration;

use crate::emulated::{far, wait_for};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use yonder_paging::{
    ADVISED_PAGES_MAX, Access, Advice, AdviceError, Config, FarMemory, Prefetch, QUOTA_BYTES_MIN, Reads, Region, Verify,
};
use yonder_units::{BLOCK_BYTES, PAGE_BYTES};

const PAGE: u64 = PAGE_BYTES as u64;
const BLOCK: u64 = BLOCK_BYTES as u64;
/// So much that nothing presses.
const PLENTY: u64 = 64 << 20;
const NEVER: Duration = Duration::MAX;

fn word(page: u64, round: u64) -> u64 {
    (page + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ round
}

fn fill(region: &Region, pages: std::ops::Range<u64>, round: u64) {
    pages.for_each(|page| region.write_u64(page * PAGE + page % 500 * 8, word(page, round)).unwrap());
}

fn check(region: &Region, pages: std::ops::Range<u64>, round: u64) {
    pages.for_each(|page| {
        assert_eq!(region.read_u64(page * PAGE + page % 500 * 8), Ok(word(page, round)), "page {page}");
    });
}

fn resident(region: &Region, pages: std::ops::Range<u64>) -> u64 {
    pages.filter(|page| region.is_resident(page * PAGE)).count() as u64
}

/// So much local memory, for pages that are mapped by whatever touches them, as those of programs are.
fn local(bytes: u64) -> Config {
    Config { reads: Reads::Mapped, ..Config::with_local(bytes) }
}

/// Puts all of a region but a quota's worth on standby.
fn squeeze(far: &FarMemory, region: &Region) {
    let tuning = far.tuning();
    let id = tuning.regions().iter().find(|view| view.address == region.address()).unwrap().id;
    tuning.set_region_quota(id, Some(QUOTA_BYTES_MIN)).unwrap();
    // What is swept is charged until it is on standby.
    wait_for("the quota holds", || far.stats().resident_pages <= QUOTA_BYTES_MIN / PAGE);
}

#[test]
fn a_page_on_standby_needs_no_node() {
    let Some((far, control)) = far(local(PLENTY)) else { return };
    let region = far.region(8 * BLOCK).unwrap();
    let pages = region.bytes() / PAGE;
    // Neither before it is written back, nor while that fails.
    for age in [NEVER, Duration::from_millis(1)] {
        far.tuning().set_standby_age(age).unwrap();
        far.tuning().set_standby_pages(usize::MAX).unwrap();
        fill(&region, 0..pages, 1);
        control.set_dead(true);
        squeeze(&far, &region);
        if age != NEVER {
            wait_for("writes fail", || far.stats().write_retries > 0);
        }
        let before = far.stats();
        assert!(before.standby_pages + before.writing_pages >= pages - QUOTA_BYTES_MIN / PAGE, "{before:?}");
        far.tuning().set_region_quota(0, None).unwrap();
        check(&region, 0..pages, 1);
        let after = far.stats();
        assert!(after.rescues - before.rescues >= pages - QUOTA_BYTES_MIN / PAGE, "{after:?}");
        assert_eq!((after.major_faults, after.fetched_bytes, after.written_bytes), (0, 0, 0));
        control.set_dead(false);
        wait_for("writes end", || far.stats().writing_pages == 0);
    }
}

#[test]
fn dirty_pages_are_written_back_by_age_and_stay() {
    let Some((far, control)) = far(local(PLENTY)) else { return };
    let tuning = far.tuning();
    tuning.set_standby_age(NEVER).unwrap();
    tuning.set_standby_pages(usize::MAX).unwrap();
    let region = far.region(8 * BLOCK).unwrap();
    let pages = region.bytes() / PAGE;
    fill(&region, 0..pages, 1);
    squeeze(&far, &region);
    let standing = far.stats().standby_pages;
    assert_eq!((far.stats().written_bytes, tuning.counts().flushed_by_age_pages), (0, 0), "nothing is old enough");
    tuning.set_standby_age(Duration::from_millis(1)).unwrap();
    wait_for("all is on the node", || far.stats().written_bytes >= standing * PAGE && far.stats().writing_pages == 0);
    let stats = far.stats();
    assert_eq!((stats.flushed_by_age_pages, stats.flushed_by_size_pages), (standing, 0), "{stats:?}");
    assert_eq!(stats.standby_pages, standing, "what is clean stays until room is needed");
    // No touch needs the node, and what is not changed needs no second write.
    control.set_dead(true);
    tuning.set_region_quota(0, None).unwrap();
    check(&region, 0..pages, 1);
    assert_eq!(far.stats().major_faults, 0);
    control.set_dead(false);
    squeeze(&far, &region);
    // Once room is needed they leave, without another write of what has not changed.
    let before = far.stats();
    far.set_local(4 << 20).unwrap();
    wait_for("standby gives its frames", || far.stats().clean_pages > before.clean_pages);
    tuning.set_region_quota(0, None).unwrap();
    check(&region, 0..pages, 1);
    assert!(far.stats().major_faults > 0);
    assert!(far.stats().written_bytes < before.written_bytes + 2 * QUOTA_BYTES_MIN, "clean pages were written again");
}

#[test]
fn enough_dirty_pages_are_written_back_together() {
    let Some((far, _)) = far(local(PLENTY)) else { return };
    let tuning = far.tuning();
    tuning.set_standby_age(NEVER).unwrap();
    tuning.set_standby_pages(3000).unwrap();
    let region = far.region(8 * BLOCK).unwrap();
    fill(&region, 0..2048, 1);
    squeeze(&far, &region);
    assert_eq!(far.stats().flushed_by_size_pages, 0, "too few for a batch");
    tuning.set_region_quota(0, None).unwrap();
    fill(&region, 2048..4096, 1);
    squeeze(&far, &region);
    wait_for("a batch is written", || far.stats().flushed_by_size_pages >= 3000 && far.stats().writing_pages == 0);
    assert_eq!(far.stats().flushed_by_age_pages, 0);
    check(&region, 0..4096, 1);
}

/// A page that is touched and changed while it is being written back: the next write has the change.
#[test]
fn a_page_that_changes_while_it_is_written_back_is_not_lost() {
    let config = Config { verify: Verify::On, prefetch: Prefetch::None, ..local(8 << 20) };
    let Some((far, control)) = far(config) else { return };
    let tuning = far.tuning();
    tuning.set_standby_age(Duration::from_millis(1)).unwrap();
    tuning.set_standby_pages(64).unwrap();
    control.set_delay(2_000_000, 0.3);
    control.set_errors(0.05);
    let region = far.region(32 << 20).unwrap().with_access(Access::Trap);
    let pages = region.bytes() / PAGE;
    let (mut random, mut expected) = (StdRng::seed_from_u64(7), vec![0; pages as usize]);
    for step in 0..60_000u64 {
        if step % 1_000 == 0 {
            let quota = [None, Some(1 << 20), Some(3 << 20)][random.random_range(0..3)];
            tuning.set_process_quota(quota).unwrap();
            tuning
                .set_region_quota(0, [None, Some(QUOTA_BYTES_MIN), Some(2 << 20)][random.random_range(0..3)])
                .unwrap();
            let advice = if random.random() { Advice::Out } else { Advice::Ahead };
            region
                .advise(random.random_range(0..pages / 2) * PAGE, random.random_range(1..pages / 2) * PAGE, advice)
                .unwrap();
        }
        // Some pages often, so that they change under a write.
        let page = if random.random() { random.random_range(0..64) } else { random.random_range(0..pages) };
        let at = page * PAGE + page % 500 * 8;
        assert_eq!(region.read_u64(at), Ok(expected[page as usize]), "page {page} at step {step}");
        if random.random() {
            expected[page as usize] = step + 1;
            region.write_u64(at, step + 1).unwrap();
        }
    }
    for page in 0..pages {
        assert_eq!(
            region.read_u64(page * PAGE + page % 500 * 8),
            Ok(expected[page as usize]),
            "page {page} in the end"
        );
    }
    let stats = far.stats();
    assert!(
        stats.flushed_by_size_pages > 0 && stats.quota_evicted_pages > 0 && stats.advised_out_pages > 0,
        "{stats:?}"
    );
    assert!(stats.peak_pages <= (8 << 20) / PAGE, "{stats:?}");
}

#[test]
fn a_lowered_quota_takes_effect_without_a_fault() {
    let Some((far, _)) = far(local(PLENTY)) else { return };
    let tuning = far.tuning();
    let (one, other) = (far.region(4 * BLOCK).unwrap(), far.region(4 * BLOCK).unwrap());
    let pages = one.bytes() / PAGE;
    fill(&one, 0..pages, 1);
    fill(&other, 0..pages, 2);
    let of = |id: usize| far.tuning().regions()[id].resident_bytes;
    assert_eq!((of(0), of(1)), (4 * BLOCK, 4 * BLOCK));
    tuning.set_region_quota(0, Some(BLOCK)).unwrap();
    wait_for("the region's quota holds", || of(0) <= BLOCK);
    assert!(of(0) >= BLOCK / 2 && of(1) == 4 * BLOCK, "{} and {}", of(0), of(1));
    tuning.set_process_quota(Some(2 * BLOCK)).unwrap();
    wait_for("the process' quota holds", || of(0) + of(1) <= 2 * BLOCK);
    wait_for("it is counted", || far.stats().quota_evicted_pages >= 6 * BLOCK / PAGE);
    // It holds on while pages come and go, and faults go on.
    for round in 0..4 {
        check(&one, 0..pages, 1);
        check(&other, 0..pages, 2);
        wait_for("the quotas hold again", || of(0) <= BLOCK && of(0) + of(1) <= 2 * BLOCK);
        assert_eq!(far.stats().paging_errors, 0, "round {round}");
    }
    tuning.set_process_quota(None).unwrap();
    tuning.set_region_quota(0, None).unwrap();
    check(&one, 0..pages, 1);
    check(&other, 0..pages, 2);
    assert_eq!((of(0), of(1)), (4 * BLOCK, 4 * BLOCK), "without a quota all of it stays");
}

#[test]
fn quotas_hold_for_sealed_regions_and_wait_for_what_is_held() {
    let Some((far, _)) = far(local(PLENTY)) else { return };
    let mut region = far.region(4 * BLOCK).unwrap();
    let pages = region.bytes() / PAGE;
    fill(&region, 0..pages, 1);
    region.seal().unwrap();
    check(&region, 0..pages, 1);
    let of = || far.tuning().regions()[0].resident_bytes;
    let hold = region.hold(0, BLOCK as usize).unwrap();
    assert!(of() >= BLOCK);
    far.tuning().set_region_quota(0, Some(QUOTA_BYTES_MIN)).unwrap();
    wait_for("what is not held leaves", || of() <= BLOCK);
    assert_eq!(resident(&region, 0..BLOCK / PAGE), BLOCK / PAGE, "what is held stays");
    drop(hold);
    wait_for("the quota holds", || of() <= QUOTA_BYTES_MIN);
    check(&region, 0..pages, 1);
}

#[test]
fn what_was_advised_out_goes_first_and_at_once_where_a_quota_is_near() {
    let Some((far, _)) = far(local(PLENTY)) else { return };
    let tuning = far.tuning();
    let region = far.region(6 * BLOCK).unwrap();
    let (block, pages) = (BLOCK / PAGE, region.bytes() / PAGE);
    fill(&region, 0..pages, 1);
    // Nothing needs the room, and no quota is near.
    region.advise(2 * BLOCK, BLOCK, Advice::Out).unwrap();
    far.swap_advise(region.address() + 4 * BLOCK as usize, BLOCK, Advice::Out).unwrap();
    assert_eq!(resident(&region, 0..pages), pages);
    tuning.set_region_quota(0, Some(5 * BLOCK)).unwrap();
    let here = |index: u64| resident(&region, index * block..(index + 1) * block);
    wait_for("the blocks that were advised out are away", || here(2) + here(4) == 0);
    assert_eq!(resident(&region, 0..pages), 4 * block, "nothing else was taken");
    wait_for("it is counted", || tuning.counts().advised_out_pages == 2 * block);
    // Near its quota, and not over it.
    fill(&region, 2 * block..3 * block - 16, 1);
    let kept = resident(&region, 0..pages);
    region.advise(5 * BLOCK, PAGE, Advice::Out).unwrap();
    wait_for("the page leaves at once", || !region.is_resident(5 * BLOCK));
    assert_eq!(resident(&region, 0..pages), kept - 1);
    check(&region, 0..pages, 1);
}

#[test]
fn what_was_advised_out_goes_first_when_room_is_needed() {
    let Some((far, _)) = far(local(16 << 20)) else { return };
    let region = far.region(32 << 20).unwrap();
    let block = BLOCK / PAGE;
    fill(&region, 0..6 * block, 1);
    assert_eq!(resident(&region, 0..6 * block), 6 * block);
    region.advise(5 * BLOCK, BLOCK, Advice::Out).unwrap();
    // So much more that all of it has to leave, and whatever else leaves does so after it.
    let mut next = 6 * block;
    while resident(&region, 5 * block..6 * block) > 0 {
        assert!(next < 16 * block, "it is still here: {:?}", far.stats());
        fill(&region, next..next + 1, 1);
        next += 1;
        let is_all_else_here = resident(&region, 0..5 * block) == 5 * block;
        let left = || resident(&region, 5 * block..6 * block);
        assert!(is_all_else_here || left() == 0, "something else left before {} pages: {:?}", left(), far.stats());
    }
    wait_for("it is counted", || far.stats().advised_out_pages == block);
    check(&region, 0..next, 1);
}

#[test]
fn a_touch_fetches_what_was_advised_ahead() {
    let Some((far, _)) = far(local(PLENTY)) else { return };
    let mut region = far.region(4 * BLOCK).unwrap();
    let pages = region.bytes() / PAGE;
    fill(&region, 0..pages, 1);
    region.seal().unwrap();
    region.advise(100 * PAGE, 40 * PAGE, Advice::Ahead).unwrap();
    region.advise(600 * PAGE, 1000 * PAGE, Advice::Ahead).unwrap();
    let majors = || far.stats().major_faults;
    let before = far.stats();
    check(&region, 120..121, 1);
    let stats = far.stats();
    assert_eq!(
        (stats.advised_ahead_pages, stats.prefetched_pages - before.prefetched_pages),
        (39, 39),
        "the rest of it"
    );
    check(&region, 100..140, 1);
    assert_eq!(majors(), before.major_faults + 1, "none of the others is a miss");
    // A long range is fetched a piece at a time.
    check(&region, 600..601, 1);
    assert_eq!(far.stats().advised_ahead_pages, 39 + u64::from(ADVISED_PAGES_MAX));
    let before = majors();
    check(&region, 600..1600, 1);
    let most = 1000 / u64::from(ADVISED_PAGES_MAX) + 1;
    assert!(majors() - before <= most, "{} misses", majors() - before);
    // What is advised out is not ahead any more.
    region.advise(0, region.bytes(), Advice::Out).unwrap();
    far.tuning().set_region_quota(0, Some(QUOTA_BYTES_MIN)).unwrap();
    wait_for("all is away", || resident(&region, 0..pages) <= QUOTA_BYTES_MIN / PAGE);
    let before = far.stats().advised_ahead_pages;
    check(&region, 100..140, 1);
    assert_eq!(far.stats().advised_ahead_pages, before);
}

#[test]
fn advice_that_makes_no_sense_is_refused() {
    let Some((far, _)) = far(local(PLENTY)) else { return };
    let region = far.region(BLOCK).unwrap();
    for advice in [Advice::Out, Advice::Ahead] {
        assert_eq!(region.advise(0, 0, advice), Err(AdviceError::Empty));
        assert_eq!(far.swap_advise(region.address(), 0, advice), Err(AdviceError::Empty));
        for (offset, bytes) in [(0, BLOCK + 1), (BLOCK, 1), (u64::MAX, 2), (1, u64::MAX)] {
            assert!(
                matches!(region.advise(offset, bytes, advice), Err(AdviceError::TooLong { .. })),
                "{offset} {bytes}"
            );
        }
        let outside =
            [(region.address(), BLOCK + 1), (region.address() - 1, 1), (region.address() + BLOCK as usize, 1), (0, 1)];
        for (address, bytes) in outside {
            assert_eq!(far.swap_advise(address, bytes, advice), Err(AdviceError::Outside { address, bytes }));
        }
        assert_eq!(region.advise(BLOCK - 1, 1, advice), Ok(()));
    }
    // The advice ends with its region.
    let address = region.address();
    drop(region);
    assert!(far.swap_advise(address, 1, Advice::Out).is_err());
}

#[test]
fn what_nobody_touches_becomes_cold() {
    let Some((far, _)) = far(local(PLENTY)) else { return };
    let region = far.region(4 * BLOCK).unwrap();
    fill(&region, 0..1024, 1);
    let bytes_from = |from: u64| -> u64 {
        let bands = far.tuning().cold();
        bands.iter().filter(|band| band.untouched >= Duration::from_secs(from)).map(|band| band.resident_bytes).sum()
    };
    assert_eq!(bytes_from(0), 1024 * PAGE);
    wait_for("both blocks are cold", || bytes_from(1) == 1024 * PAGE);
    // A fault makes its block young again.
    fill(&region, 1024..1025, 1);
    assert_eq!((bytes_from(0), bytes_from(1)), (1025 * PAGE, 1024 * PAGE));
}

/// What a program uses all the time stays, whatever it scans through besides.
#[test]
fn hot_blocks_are_taken_rarely() {
    let Some((far, _)) = far(Config { prefetch: Prefetch::None, ..local(16 << 20) }) else { return };
    let region = far.region(64 << 20).unwrap();
    let (pages, hot, block) = (region.bytes() / PAGE, 3 * BLOCK / PAGE, BLOCK / PAGE);
    fill(&region, 0..pages, 1);
    let mut random = StdRng::seed_from_u64(3);
    for touch in 0..200_000u64 {
        let page = if touch % 8 != 0 { random.random_range(0..hot) } else { random.random_range(hot..pages) };
        check(&region, page..page + 1, 1);
    }
    // The hand has come round many times, and the hot blocks are there.
    let there = resident(&region, 0..hot);
    assert!(far.stats().swept_blocks > 10 * pages / block, "{:?}", far.stats());
    assert!(there * 2 > hot, "{there} of {hot} pages");
}
