//! Memory that is damaged under far memory's pages: what is lost, what is not, and what becomes of the accounts.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::emulated::far;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use yonder_paging::{Access, Config, PagingCause, Region};
use yonder_units::PAGE_BYTES;

const PAGE: u64 = PAGE_BYTES as u64;
const LOCAL: u64 = 4 << 20;
const PAGES: u64 = 5 * LOCAL / PAGE;

#[test]
fn a_damaged_page_is_lost_and_nothing_beside_it() {
    for access in [Access::Probe, Access::Trap] {
        let Some((far, _)) = far(Config::with_local(LOCAL)) else { return };
        let region = far.region(LOCAL).unwrap().with_access(access);
        for page in 0..8 {
            region.write_u64(page * PAGE, page + 1).unwrap();
        }
        let before = far.stats().resident_pages;
        assert!(region.inject_damage(3 * PAGE + 100));
        assert!(!region.inject_damage(3 * PAGE), "it is lost already");
        assert!(!region.inject_damage(100 * PAGE), "it was never there");
        let stats = far.stats();
        assert_eq!((stats.resident_pages, stats.damaged_pages), (before - 1, 1));
        for page in 0..8 {
            let seen = region.read_u64(page * PAGE).map_err(|error| (error.cause, error.address));
            let lost = (PagingCause::HardwareError, region.address() + (3 * PAGE) as usize);
            assert_eq!(seen, if page == 3 { Err(lost) } else { Ok(page + 1) });
        }
        assert_eq!(region.write_u64(3 * PAGE, 1).unwrap_err().cause, PagingCause::HardwareError);
        // Its address is as good as any other, once its owner has given up what was there.
        region.discard(3 * PAGE, PAGE).unwrap();
        assert_eq!(region.read_u64(3 * PAGE), Ok(0));
        region.write_u64(3 * PAGE, 9).unwrap();
        assert_eq!(region.read_u64(3 * PAGE), Ok(9));
    }
}

#[test]
fn a_sealed_page_is_fetched_again() {
    let Some((far, _)) = far(Config::with_local(LOCAL)) else { return };
    let mut region = far.region(LOCAL).unwrap();
    (0..8).for_each(|page| region.write_u64(page * PAGE, page + 1).unwrap());
    region.seal().unwrap();
    assert_eq!(region.read_u64(5 * PAGE), Ok(6));
    assert!(!region.inject_damage(5 * PAGE));
    assert!(!region.is_resident(5 * PAGE));
    assert_eq!(region.read_u64(5 * PAGE), Ok(6));
    assert_eq!(far.stats().damaged_pages, 0);
}

/// Two writers, each of pages of its own, under reclaim, with a page damaged now and then: a page has its last word, or
/// is lost until it is given up.
#[test]
fn no_page_has_an_old_word_under_damage() {
    let Some((far, _)) = far(Config::with_local(LOCAL)) else { return };
    let region = far.region(PAGES * PAGE).unwrap().with_access(Access::Trap);
    let lost = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for part in 0..2 {
            let (region, lost) = (&region, &lost);
            scope.spawn(move || {
                let mut words = vec![0; PAGES as usize / 2];
                let mut random = SmallRng::seed_from_u64(part);
                for turn in 0..60_000 {
                    let index = random.random_range(0..words.len());
                    exercise(region, index as u64 * 2 + part, &mut words[index], lost);
                    if turn % 64 == 0 {
                        region.inject_damage(random.random_range(0..PAGES) * PAGE);
                    }
                }
            });
        }
    });
    let stats = far.stats();
    assert!(lost.load(Ordering::Relaxed) > 0 && stats.swept_pages > 0 && stats.major_faults > 0, "{stats:?}");
    assert!(stats.damaged_pages >= lost.load(Ordering::Relaxed), "{stats:?}");
    assert!(stats.peak_pages <= LOCAL / PAGE);
    drop(region);
    assert_eq!(far.stats().resident_pages, 0, "the damaged pages' shares of local memory are free");
}

/// Checks the page's word, then writes the next. A page that is lost is given up.
fn exercise(region: &Region, page: u64, word: &mut u64, lost: &AtomicU64) {
    let done = region.read_u64(page * PAGE).and_then(|seen| {
        assert_eq!(seen, *word, "page {page}");
        region.write_u64(page * PAGE, *word + 1)
    });
    match done {
        Ok(()) => *word += 1,
        Err(error) => {
            assert_eq!(error.cause, PagingCause::HardwareError, "{error}");
            lost.fetch_add(1, Ordering::Relaxed);
            region.discard(page * PAGE, PAGE).unwrap();
            *word = 0;
        }
    }
}

/// The kernel's own injection, where it is built with it and the user may.
#[test]
fn damage_by_the_kernel_is_a_paging_error() {
    let Some((far, _)) = far(Config::with_local(LOCAL)) else { return };
    let region = far.region(LOCAL).unwrap().with_access(Access::Trap);
    (0..8).for_each(|page| region.write_u64(page * PAGE, page + 1).unwrap());
    if let Err(error) = region.inject_damage_by_kernel(2 * PAGE) {
        println!("SKIP: {error}: it needs CAP_SYS_ADMIN and a kernel with CONFIG_MEMORY_FAILURE");
        return;
    }
    assert_eq!(region.read_u64(2 * PAGE).unwrap_err().cause, PagingCause::HardwareError);
    assert_eq!(region.read_u64(2 * PAGE).unwrap_err().cause, PagingCause::HardwareError);
    assert_eq!(region.read_u64(3 * PAGE), Ok(4));
    assert_eq!(far.stats().damaged_pages, 1);
}
