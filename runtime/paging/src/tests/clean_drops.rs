//! Pages that are dropped as clean, against a second copy of far memory.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{RngCore as _, SeedableRng as _};
use yonder_fabric::{Copies, EmuFabric, SecondCopy};
use yonder_mapping::Mapping;
use yonder_pager::pagetable::{HASH_KEY_BYTES, PageHasher, State};
use yonder_units::{PAGE_BYTES, PageIndex};

use crate::{Config, FarMemory, Region};

fn hasher() -> PageHasher {
    let mut key = [0; HASH_KEY_BYTES];
    SmallRng::seed_from_u64(42).fill_bytes(&mut key);
    PageHasher::new(&key)
}

/// Far memory that keeps a second copy, with room to press pages out, and a region whose pages `hasher` tells
/// apart.
fn copied(hasher: PageHasher) -> Option<(FarMemory, Region, Arc<Copies>)> {
    if let Err(error) = yonder_uffd::probe().userfaultfd {
        println!("SKIP: {error}");
        return None;
    }
    let below = EmuFabric::open("emu://?latency=1us&size=64MiB").unwrap();
    let fabric = SecondCopy::over(Arc::new(below));
    let copies = Arc::clone(fabric.copies());
    let far = FarMemory::new(Arc::new(fabric), Config::with_local(4 << 20)).unwrap();
    let region = far.region_of(Mapping::region(8 * PAGE_BYTES).unwrap(), hasher).unwrap();
    Some((far, region, copies))
}

/// Presses pages of other regions out until `is_done`: those that were wanted back of late stay for some rounds.
fn evict(far: &FarMemory, is_done: impl Fn() -> bool) {
    let room = far.region(16 << 20).unwrap();
    for round in 0..100 {
        if is_done() {
            return;
        }
        (0..16 << 20).step_by(PAGE_BYTES).for_each(|at| room.write_u64(at, round).unwrap());
    }
    panic!("the pages stay local: {:?}", far.stats());
}

/// A key of zeros makes a weak hash: a word beside a zero counts for nothing.
#[test]
fn a_second_copy_finds_what_a_weak_digest_loses() {
    let Some((far, region, copies)) = copied(PageHasher::new(&[0; HASH_KEY_BYTES])) else { return };
    // Page 0 is taken for zeros; page 2 for what it was.
    region.write_u64(8, 5).unwrap();
    for (at, value) in [(0, 3), (8, 4), (512, 1)] {
        region.write_u64(2 * PAGE_BYTES as u64 + at, value).unwrap();
    }
    evict(&far, || copies.mismatches() > 0);
    let first = copies.first_mismatch().expect("page 0 is lost");
    assert_eq!((first.place.page, copies.mismatches()), (PageIndex(0), 1));
    assert!(first.to_string().ends_with("at bytes 8..9"), "{first}");
    region.write_u64(2 * PAGE_BYTES as u64 + 512, 2).unwrap();
    evict(&far, || copies.mismatches() > 1);
    assert_eq!(region.read_u64(2 * PAGE_BYTES as u64 + 512), Ok(1), "it is lost indeed");
}

#[test]
fn a_second_copy_finds_nothing_wrong_with_what_is_dropped_as_clean() {
    let Some((far, mut region, copies)) = copied(hasher()) else { return };
    for page in 0..8 {
        region.write_u64(page * PAGE_BYTES as u64, page).unwrap();
    }
    let reads = |region: &Region| {
        for page in 0..8 {
            assert_eq!(region.read_u64(page * PAGE_BYTES as u64), Ok(page));
            assert_eq!(region.core.memory().try_read_u64(page * PAGE_BYTES as u64), Ok(page));
        }
    };
    let is_away = || region.core.state(PageIndex(7)) == State::Remote;
    evict(&far, is_away);
    reads(&region);
    evict(&far, is_away);
    assert!(copies.compared() >= 8, "{} pages were compared", copies.compared());
    region.seal().unwrap();
    reads(&region);
    evict(&far, || far.stats().dropped_pages > 0);
    // The reclaimer compares first and counts then, and may be at it.
    let is_each_compared = || copies.compared() == far.stats().clean_pages + far.stats().dropped_pages;
    let end = Instant::now() + Duration::from_secs(10);
    while !is_each_compared() {
        assert!(Instant::now() < end, "{} of {:?} were compared", copies.compared(), far.stats());
        std::thread::yield_now();
    }
    reads(&region);
    assert_eq!(copies.first_mismatch(), None);
}
