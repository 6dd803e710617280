//! Threads that free what others have allocated, and end in the middle.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex};

use yonder_paging::far_heap::{FarHeap, GIVE_BACK_PAGES, Share};

use super::{Block, LOCAL, heap};

const THREADS: u64 = 4;
const ROUNDS: u64 = 3000;
const PASSED_ON: usize = 512;

fn work(heap: &Arc<FarHeap>, passed_on: &Mutex<Vec<Block>>, thread: u64) {
    let mut share = Share::new(heap);
    let mut random = thread * 0x1234_5677 + 1;
    let mut next = |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    for round in 0..ROUNDS {
        let powers = if next(32) == 0 { 22 } else { 13 };
        let bytes = (1 << next(powers)) + next(64) as usize;
        let Some(address) = heap.alloc(share.magazine(), bytes, 16) else { continue };
        let block = Block { address, bytes, seed: round * THREADS + thread };
        if round % 3 == 0 {
            heap.zero(address).unwrap();
            block.check_zeros(heap);
        }
        block.fill(heap);
        let other = {
            let mut passed_on = passed_on.lock().unwrap();
            passed_on.push(block);
            let place = next(passed_on.len() as u64) as usize;
            (passed_on.len() >= PASSED_ON || next(3) == 0).then(|| passed_on.swap_remove(place))
        };
        if let Some(other) = other {
            other.check(heap);
            heap.free(share.magazine(), other.address).unwrap();
        }
    }
}

#[test]
fn blocks_keep_their_content_wherever_they_are_freed() {
    let Some(heap) = heap(64 << 20) else { return };
    let passed_on = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (heap, passed_on) = (&heap, &passed_on);
            scope.spawn(move || work(heap, passed_on, thread));
        }
    });
    let mut share = Share::new(&heap);
    for block in passed_on.into_inner().unwrap() {
        block.check(&heap);
        heap.free(share.magazine(), block.address).unwrap();
    }
    drop(share);
    assert!(heap.is_empty(), "threads have kept something");
    let stats = heap.region().far().stats();
    let (local, fetched) = (stats.peak_pages * 4096, stats.fetched_bytes);
    assert!(local <= LOCAL && fetched >= LOCAL, "{local} bytes were local, {fetched} were fetched");
}

/// There is room for one of them at a time: each is made of the pages of one that another thread is giving back.
#[test]
fn pages_are_nobodys_until_they_have_been_given_back() {
    const BYTES: usize = GIVE_BACK_PAGES as usize * 4096;
    const RUNS: usize = 100;
    let Some(heap) = heap(BYTES as u64) else { return };
    let churn = |thread: u64| {
        let mut share = Share::new(&heap);
        let mut runs = 0;
        while runs < RUNS {
            let Some(address) = heap.alloc(share.magazine(), BYTES, 16) else {
                std::thread::yield_now();
                continue;
            };
            runs += 1;
            let block = Block { address, bytes: BYTES, seed: thread + runs as u64 * 16 };
            block.fill(&heap);
            let intact = catch_unwind(AssertUnwindSafe(|| block.check(&heap)));
            // The others wait for it.
            heap.free(share.magazine(), address).unwrap();
            intact.unwrap_or_else(|damage| resume_unwind(damage));
        }
    };
    std::thread::scope(|scope| {
        (0..3).for_each(|thread| {
            _ = scope.spawn({
                let churn = &churn;
                move || churn(thread)
            })
        })
    });
}
