//! Regions that are sealed, and ranges that are given back, while others are used.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use yonder_units::PAGE_BYTES;

use crate::{Config, FarMemory};

/// Regions that are sealed: in each, many pages are on standby when they are read.
const ROUNDS: u64 = 8;
const PAGE: u64 = PAGE_BYTES as u64;

/// As a library does that has been given its address: what is on standby is mapped again, and was not written.
#[test]
fn what_is_read_while_its_region_is_sealed_is_not_lost() {
    if let Err(error) = yonder_uffd::probe().userfaultfd {
        println!("SKIP: {error}");
        return;
    }
    const LOCAL: u64 = 4 << 20;
    for round in 1..=ROUNDS {
        let far = FarMemory::open("emu://?latency=1us&size=64MiB", Config::with_local(LOCAL)).unwrap();
        let mut region = far.region(LOCAL / 2).unwrap();
        let pages = region.bytes() / PAGE;
        (0..pages).for_each(|page| region.write_u64(page * PAGE, page + round).unwrap());
        let (core, is_sealed) = (Arc::clone(&region.core), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for at in (0..).take_while(|_| !is_sealed.load(Ordering::Relaxed)) {
                    let page = at * 7919 % pages;
                    assert_eq!(core.memory().try_read_u64(page * PAGE), Ok(page + round));
                }
            });
            region.seal().unwrap();
            is_sealed.store(true, Ordering::Relaxed);
        });
        // Whatever is local goes.
        let other = far.region(4 * LOCAL).unwrap();
        (0..other.bytes() / PAGE).for_each(|page| other.write_u64(page * PAGE, 1).unwrap());
        (0..pages).for_each(|page| assert_eq!(region.read_u64(page * PAGE), Ok(page + round), "page {page}"));
    }
}

/// As the allocator does with the neighbours of a stack for signal handlers, which is held for good.
#[test]
fn pages_are_discarded_beside_one_that_is_held() {
    if let Err(error) = yonder_uffd::probe().userfaultfd {
        println!("SKIP: {error}");
        return;
    }
    let far = FarMemory::open("emu://?latency=1us&size=64MiB", Config::with_local(4 << 20)).unwrap();
    let region = far.region(2 << 20).unwrap();
    let pages = region.bytes() / PAGE;
    (0..pages).for_each(|page| region.write_u64(page * PAGE, page + 1).unwrap());
    let hold = region.hold(7 * PAGE, PAGE as usize).unwrap();
    region.discard(0, 7 * PAGE).unwrap();
    region.discard(8 * PAGE, (pages - 8) * PAGE).unwrap();
    assert_eq!(region.mapped_pages().unwrap(), 1, "what was discarded is the kernel's again");
    assert_eq!(region.far().stats().resident_pages, 1);
    (0..pages).filter(|page| *page != 7).for_each(|page| assert_eq!(region.read_u64(page * PAGE), Ok(0)));
    assert_eq!((region.is_resident(7 * PAGE), region.read_u64(7 * PAGE)), (true, Ok(8)));
    drop(hold);
    region.discard(0, region.bytes()).unwrap();
    assert_eq!((region.mapped_pages().unwrap(), region.read_u64(7 * PAGE)), (0, Ok(0)));
}
