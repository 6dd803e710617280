//! The rules one by one.

use std::sync::Arc;

use yonder_paging::far_heap::{FarHeap, GIVE_BACK_PAGES, Magazine, Misuse, Share};

use super::{Block, LOCAL, heap, offset};

const PAGE: usize = 4096;
const GIVEN_BACK: usize = GIVE_BACK_PAGES as usize * PAGE;

fn mapped(heap: &FarHeap) -> usize {
    heap.region().mapped_pages().unwrap()
}

fn filled(heap: &FarHeap, magazine: &mut Magazine, bytes: usize) -> Block {
    let block = Block { address: heap.alloc(magazine, bytes, 16).unwrap(), bytes, seed: 7 };
    block.fill(heap);
    block
}

#[test]
fn large_runs_are_given_back_and_small_ones_are_kept() {
    let Some(heap) = heap(64 << 20) else { return };
    let mut magazine = Magazine::new();
    for bytes in [GIVEN_BACK, GIVEN_BACK + 1, 5 * GIVEN_BACK] {
        let block = filled(&heap, &mut magazine, bytes);
        assert!(mapped(&heap) > 0);
        heap.free(&mut magazine, block.address).unwrap();
        let seen = heap.region().far().stats();
        assert_eq!((mapped(&heap), seen.resident_pages, seen.standby_pages), (0, 0, 0), "{bytes} bytes are still here");
    }
    let block = filled(&heap, &mut magazine, GIVEN_BACK - PAGE);
    heap.free(&mut magazine, block.address).unwrap();
    assert!(mapped(&heap) > 0, "a run that is small is given back");
    assert!(heap.is_empty());
}

#[test]
fn pages_that_are_cut_off_are_given_back_and_the_others_stay() {
    let Some(heap) = heap(64 << 20) else { return };
    let mut magazine = Magazine::new();
    let block = filled(&heap, &mut magazine, 3 * GIVEN_BACK);
    assert_eq!(heap.resize_in_place(block.address, GIVEN_BACK), Ok(true));
    assert_eq!((heap.size_of(block.address), heap.usage().used_bytes), (Ok(GIVEN_BACK), GIVEN_BACK as u64));
    block.check_first(&heap, GIVEN_BACK);
    let mut behind = [1; 16];
    heap.region().read(offset(&heap, block.address) + 2 * GIVEN_BACK as u64, &mut behind).unwrap();
    assert_eq!(behind, [0; 16], "what was cut off is not given back");
    assert_eq!(heap.resize_in_place(block.address, 2 * GIVEN_BACK), Ok(true), "the pages behind are free again");
}

#[test]
fn small_objects_stay_while_at_least_half_is_used() {
    let Some(heap) = heap(1 << 20) else { return };
    let mut magazine = Magazine::new();
    let object = heap.alloc(&mut magazine, 1024, 16).unwrap();
    assert_eq!(heap.size_of(object), Ok(1024));
    let stays = [1024, 512, 1025, 511].map(|bytes| heap.resize_in_place(object, bytes).unwrap());
    assert_eq!(stays, [true, true, false, false]);
}

/// Who frees a run gets it again if it asks for about as much, at any multiple of 64 bytes, and others do when it ends.
#[test]
fn short_runs_stay_with_their_thread_until_it_ends() {
    let Some(heap) = heap(64 << 20) else { return };
    let mut magazine = Magazine::new();
    let block = filled(&heap, &mut magazine, 40_100);
    assert_eq!(heap.free(&mut magazine, block.address), Ok(()));
    assert_eq!(heap.free(&mut magazine, block.address), Err(Misuse { address: block.address }), "freed twice");
    assert!(!heap.is_empty());
    assert_ne!(heap.alloc(&mut Magazine::new(), 40_100, 16), Some(block.address), "it is in a magazine");
    assert_ne!(heap.alloc(&mut magazine, 40_100, 4096), Some(block.address), "it need not begin with a page");
    assert_eq!(heap.alloc(&mut magazine, 40_200, 64), Some(block.address));
    block.check(&heap);
    assert!(heap.size_of(block.address).unwrap() >= 40_200);
    assert_eq!(heap.free(&mut magazine, block.address), Ok(()));
    let used = heap.usage().used_bytes;
    assert_eq!(heap.flush_all(&mut magazine), Ok(()));
    assert_eq!(heap.usage().used_bytes, used - 10 * PAGE as u64);
    assert_eq!(heap.free(&mut magazine, block.address), Err(Misuse { address: block.address }));
}

/// A heap of 64 MiB and a magazine in which a run of 40,000 bytes lies.
fn with_a_freed_run() -> Option<(Arc<FarHeap>, Magazine, usize)> {
    let (heap, mut magazine) = (heap(64 << 20)?, Magazine::new());
    let run = heap.alloc(&mut magazine, 40_000, 16).unwrap();
    assert_eq!(heap.free(&mut magazine, run), Ok(()));
    Some((heap, magazine, run))
}

/// A program that resizes what it has freed has it again, and nobody gets the pages that it gave up twice.
#[test]
fn a_run_that_was_resized_after_it_was_freed_is_not_given_out_as_it_was() {
    let Some((heap, mut magazine, run)) = with_a_freed_run() else { return };
    assert_eq!(heap.resize_in_place(run, 9_000), Ok(true));
    let others = [40_000, 25_000].map(|bytes| (heap.alloc(&mut magazine, bytes, 16).unwrap(), bytes));
    for (address, bytes) in others {
        assert!(heap.size_of(address).unwrap() >= bytes, "others have a part of it");
    }
}

#[test]
fn what_a_thread_has_freed_is_not_in_its_own_way() {
    let Some((heap, mut magazine, _)) = with_a_freed_run() else { return };
    assert!(heap.alloc(&mut magazine, 64 << 20, 16).is_some(), "nothing is in use");
}

#[test]
fn zeros_are_zeros_where_something_was() {
    let Some(heap) = heap(64 << 20) else { return };
    let mut magazine = Magazine::new();
    for bytes in [1, 16, 100, 2048, 5000, 100_000, GIVEN_BACK, 3 * LOCAL as usize] {
        for _ in 0..2 {
            let block = filled(&heap, &mut magazine, bytes);
            heap.free(&mut magazine, block.address).unwrap();
        }
        let again = Block { address: heap.alloc(&mut magazine, bytes, 16).unwrap(), bytes, seed: 0 };
        heap.zero(again.address).unwrap();
        again.check_zeros(&heap);
        heap.free(&mut magazine, again.address).unwrap();
    }
}

/// Copies between blocks of which all begin at one place of a page are slow. What is mapped begins with its page.
#[test]
fn large_blocks_begin_anywhere_in_a_page_that_is_theirs_alone() {
    let Some(heap) = heap(64 << 20) else { return };
    let mut magazine = Magazine::new();
    let blocks: Vec<usize> = (0..8).map(|_| heap.alloc(&mut magazine, 100_000, 16).unwrap()).collect();
    let mut starts: Vec<usize> = blocks.iter().map(|address| address % PAGE).collect();
    starts.sort_unstable();
    starts.dedup();
    assert_eq!(starts.len(), blocks.len(), "{starts:?}");
    for address in blocks {
        let pages = heap.own_pages(address).unwrap();
        assert_eq!(pages, address - address % PAGE..(address + 100_000).next_multiple_of(PAGE));
    }
    let object = heap.alloc(&mut magazine, 100, 16).unwrap();
    assert!(heap.own_pages(object).unwrap().is_empty(), "others have parts of its page");
    assert_eq!(heap.own_pages(object + 16), Err(Misuse { address: object + 16 }));
    assert_eq!(heap.alloc_run(100_000, 16).unwrap() % PAGE, 0);
}

#[test]
fn what_is_not_allocated_is_refused_by_its_address() {
    let Some(heap) = heap(1 << 20) else { return };
    let mut magazine = Magazine::new();
    let start = heap.region().address();
    let (object, run) = (heap.alloc(&mut magazine, 64, 16).unwrap(), heap.alloc(&mut magazine, 10_000, 16).unwrap());
    let local = Box::new(1);
    let wrong = [0, 16, start - 16, start + (1 << 20), object + 16, run + 16, run + PAGE, usize::MAX];
    for address in wrong.into_iter().chain([&raw const *local as usize]) {
        let refused = Err(Misuse { address });
        assert_eq!(heap.free(&mut magazine, address), refused);
        assert_eq!(heap.size_of(address).map(|_| ()), refused);
        assert_eq!(heap.resize_in_place(address, 1).map(|_| ()), refused);
    }
    assert_eq!([object, run].map(|address| heap.free(&mut magazine, address)), [Ok(()); 2]);
    assert_eq!([object, run].map(|address| heap.free(&mut magazine, address).is_err()), [true; 2]);
    assert!(Misuse { address: 0x10 }.to_string().contains("0x10"));
}

#[test]
fn what_two_threads_have_freed_is_found_when_the_second_gives_it_back() {
    let Some(heap) = heap(1 << 20) else { return };
    let mut magazines = [Magazine::new(), Magazine::new()];
    let address = heap.alloc(&mut magazines[0], 64, 16).unwrap();
    magazines.iter_mut().for_each(|magazine| heap.free(magazine, address).unwrap());
    assert_eq!(heap.flush_all(&mut magazines[0]), Ok(()));
    assert_eq!(heap.flush_all(&mut magazines[1]), Err(Misuse { address }));
}

#[test]
fn alignments_are_kept_or_refused() {
    let Some(heap) = heap(8 << 20) else { return };
    let mut magazine = Magazine::new();
    // Offset 0 is free, and would do.
    let unlike = 2 << heap.region().address().trailing_zeros();
    assert_eq!(heap.alloc(&mut magazine, 10, unlike), None);
    for align in (0..22).map(|power| 1 << power) {
        let address = heap.alloc(&mut magazine, 10, align);
        assert!(address.is_none_or(|address| address.is_multiple_of(align)), "{address:x?} for {align}");
        assert!(address.is_some(), "no room for an alignment of {align}");
    }
}

#[test]
fn a_full_heap_refuses_and_has_room_again() {
    let Some(heap) = heap(1 << 20) else { return };
    let mut magazine = Magazine::new();
    assert_eq!(heap.alloc(&mut magazine, (1 << 20) + 1, 16), None);
    assert_eq!(heap.alloc(&mut magazine, usize::MAX, 16), None);
    let all: Vec<usize> = std::iter::from_fn(|| heap.alloc(&mut magazine, 2048, 16)).collect();
    assert_eq!((all.len(), heap.usage().used_bytes), (512, 1 << 20));
    all.iter().for_each(|address| heap.free(&mut magazine, *address).unwrap());
    heap.flush_all(&mut magazine).unwrap();
    assert!(heap.alloc(&mut magazine, 1 << 20, 16).is_some());
    assert_eq!(heap.usage().peak_bytes, 1 << 20);
}

#[test]
fn a_share_goes_back_to_its_heap_and_does_not_keep_it() {
    let Some(heap) = heap(1 << 20) else { return };
    let mut share = Share::new(&heap);
    let address = heap.alloc(share.magazine(), 64, 16).unwrap();
    heap.free(share.magazine(), address).unwrap();
    assert!(share.is_of(&heap) && !heap.is_empty(), "a magazine is filled by halves");
    drop(share);
    assert!(heap.is_empty());
    let share = Share::new(&heap);
    drop(heap);
    assert!(!share.is_of_use());
}
