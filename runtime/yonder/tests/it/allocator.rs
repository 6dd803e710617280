//! Collections that are larger than local memory, by the public API.

use std::sync::mpsc;

use allocator_api2::alloc::Allocator;
use allocator_api2::boxed::Box as FarBox;
use allocator_api2::vec::Vec as FarVec;
use hashbrown::{DefaultHashBuilder, HashMap};
use yonder::alloc::{FarAllocator, FarHeap};
use yonder::{Config, FarMemory};

const LOCAL: u64 = 2 << 20;

/// A heap of `bytes`, or `None` and a line that says why there is none.
fn heap(bytes: u64) -> Option<FarHeap> {
    if let Err(error) = yonder::abilities().userfaultfd {
        println!("SKIP: {error}");
        return None;
    }
    let far = FarMemory::open("emu://?latency=1us", Config::with_local(LOCAL)).unwrap();
    Some(FarHeap::new(far.region(bytes).unwrap()))
}

fn check_limits(heap: &FarHeap) {
    let stats = heap.far().stats();
    let (local, fetched) = (stats.peak_pages * 4096, stats.fetched_bytes);
    assert!(local <= LOCAL && fetched >= LOCAL, "{local} bytes were local, {fetched} were fetched");
}

fn text(allocator: &FarAllocator, number: u64) -> FarVec<u8, FarAllocator> {
    let mut text = FarVec::new_in(allocator.clone());
    (0..number % 40).for_each(|part| text.extend_from_slice(&(number * 41 + part).to_le_bytes()));
    text
}

#[test]
fn a_map_is_larger_than_local_memory() {
    const KEYS: u64 = 40_000;
    let Some(heap) = heap(64 << 20) else { return };
    let allocator = heap.allocator();
    let mut map: HashMap<u64, FarVec<u8, FarAllocator>, DefaultHashBuilder, FarAllocator> =
        HashMap::new_in(allocator.clone());
    for key in 0..KEYS {
        assert!(map.insert(key, text(&allocator, key)).is_none());
    }
    assert!(heap.usage().used_bytes > 4 * LOCAL, "{heap:?}");
    for key in (0..KEYS).step_by(3) {
        assert_eq!(map.remove(&key), Some(text(&allocator, key)), "{key}");
    }
    for key in (0..KEYS).filter(|key| key % 3 == 1) {
        map.get_mut(&key).unwrap().push(1);
    }
    for key in 0..KEYS {
        let mut expected = text(&allocator, key);
        if key % 3 == 1 {
            expected.push(1);
        }
        assert_eq!(map.get(&key), (key % 3 != 0).then_some(&expected), "{key}");
    }
    check_limits(&heap);
}

#[test]
fn what_one_thread_makes_another_drops() {
    let Some(heap) = heap(64 << 20) else { return };
    let (send, receive) = mpsc::sync_channel::<(u64, FarVec<u8, FarAllocator>)>(4096);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (send, allocator) = (send.clone(), heap.allocator());
            scope.spawn(move || {
                for number in (thread..60_000).step_by(3) {
                    send.send((number, text(&allocator, number))).unwrap();
                }
            });
        }
        drop(send);
        let mut kept = Vec::new();
        for (number, made) in receive {
            assert!(made == text(&heap.allocator(), number), "{number}");
            if number % 4 == 0 {
                kept.push((number, made));
            }
        }
        assert!(kept.iter().all(|(number, made)| *made == text(&heap.allocator(), *number)));
    });
    check_limits(&heap);
}

#[test]
fn large_vectors_grow_shrink_and_are_zeros() {
    let Some(heap) = heap(64 << 20) else { return };
    let mut words = FarVec::new_in(heap.allocator());
    (0..1u64 << 20).for_each(|word| words.push(word));
    words.truncate(1 << 18);
    words.shrink_to_fit();
    // What was smaller on the way lies ready for this thread, and empty slabs for all.
    assert!((2 << 20..(2 << 20) + (256 << 10)).contains(&heap.usage().used_bytes), "{heap:?}");
    assert!(words.iter().copied().eq(0..1 << 18));
    drop(words);
    let layout = std::alloc::Layout::from_size_align(12 << 20, 4096).unwrap();
    let zeros = heap.allocator().allocate_zeroed(layout).unwrap();
    assert_eq!((zeros.len(), zeros.addr().get() % 4096), (12 << 20, 0));
    let zeros = allocator_api2::vec![in heap.allocator(); 0u8; 12 << 20];
    assert!(zeros.iter().all(|byte| *byte == 0));
    check_limits(&heap);
}

#[test]
fn a_thread_uses_several_heaps() {
    let (Some(one), Some(other)) = (heap(4 << 20), heap(4 << 20)) else { return };
    for round in 0..3u64 {
        let boxes: Vec<_> = (0..500)
            .flat_map(|number| [&one, &other].map(|heap| (number, FarBox::new_in(number + round, heap.allocator()))))
            .collect();
        assert!(boxes.iter().all(|(number, boxed)| **boxed == number + round));
    }
    assert!([&one, &other].iter().all(|heap| heap.usage().peak_bytes >= 500 * 16), "{one:?} {other:?}");
}

#[test]
fn no_room_is_an_error() {
    let Some(heap) = heap(4 << 20) else { return };
    let mut bytes: FarVec<u8, FarAllocator> = FarVec::new_in(heap.allocator());
    assert!(bytes.try_reserve(5 << 20).is_err() && bytes.try_reserve(3 << 20).is_ok());
}

#[test]
fn the_region_is_there_as_long_as_something_in_it() {
    let Some(heap) = heap(16 << 20) else { return };
    let boxed = FarBox::new_in([7u64; 100], heap.allocator());
    let far = heap.far().clone();
    drop(heap);
    assert_eq!(*boxed, [7; 100]);
    assert!(far.stats().resident_pages > 0);
    drop(boxed);
    assert_eq!(far.stats().resident_pages, 0, "the region outlives its last owner");
}

/// What a thread still has when its thread-locals are dropped is taken back.
#[test]
fn a_thread_that_ends_may_still_free() {
    use std::cell::RefCell;
    type Kept = Option<FarVec<u64, FarAllocator>>;
    thread_local! { static KEPT: RefCell<Kept> = const { RefCell::new(None) } }

    let Some(heap) = heap(1 << 20) else { return };
    let all = || {
        let mut all = Vec::new();
        while let Ok(block) = FarBox::try_new_in([0u64; 256], heap.allocator()) {
            all.push(block);
        }
        all.len()
    };
    let room = all();
    for _ in 0..1000 {
        let allocator = heap.allocator();
        let keep = move || {
            KEPT.with(|kept| {
                // The thread-local of the heap is made after this one, so it is dropped before.
                let mut vector = FarVec::new_in(allocator);
                vector.extend(0..50);
                kept.replace(Some(vector));
            });
        };
        std::thread::spawn(keep).join().unwrap();
    }
    assert_eq!(all(), room, "threads that end lose memory");
}
