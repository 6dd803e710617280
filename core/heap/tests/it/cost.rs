//! What operations cost, printed: `cargo test --release -p yonder-heap cost -- --nocapture`.

use std::hint::black_box;
use std::time::Instant;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use yonder_heap::{Allocated, Class, Freed, Heap, Magazine};
use yonder_units::PageIndex;

/// In a debug build this only shows that it runs.
const SCALE: u64 = if cfg!(debug_assertions) { 1 } else { 100 };

/// Runs `operation` and prints the time of one, the best of five.
fn measure(what: &str, times: u64, mut operation: impl FnMut(u64)) {
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        let start = Instant::now();
        (0..times).for_each(&mut operation);
        best = best.min(start.elapsed().as_nanos() as f64 / times as f64);
    }
    println!("{what:<64} {best:>9.1} ns");
}

fn free_run(heap: &mut Heap, offset: u64) {
    let Ok(Freed::Run(retired)) = heap.free(offset) else { panic!("{offset} is no run") };
    heap.release(retired);
}

#[test]
fn cost_of_small_objects() {
    let mut heap = Heap::new(64 << 30);
    let map = heap.map().clone();
    let mut magazine = Magazine::new();
    let class = Class::fitting(64, 1).unwrap();
    heap.refill(&mut magazine, class);
    measure("magazine: alloc, free", 100_000 * SCALE, |_| {
        let offset = magazine.alloc(black_box(class)).unwrap();
        magazine.free(black_box(class), black_box(offset)).unwrap();
    });
    measure("magazine: class by size, alloc, class by offset, free", 100_000 * SCALE, |number| {
        let class = Class::fitting(black_box(49 + number % 16), 16).unwrap();
        let offset = black_box(magazine.alloc(class).unwrap());
        let Ok(Allocated::Object(class)) = map.look_up(offset) else { panic!() };
        magazine.free(class, offset).unwrap();
    });
    measure("the same, with a search for double frees", 100_000 * SCALE, |number| {
        let class = Class::fitting(black_box(49 + number % 16), 16).unwrap();
        let offset = black_box(magazine.alloc(class).unwrap());
        let Ok(Allocated::Object(class)) = map.look_up(offset) else { panic!() };
        assert!(!magazine.contains(class, offset));
        magazine.free(class, offset).unwrap();
    });
    let mut rng = SmallRng::seed_from_u64(1);
    let mut live: Vec<u64> = Vec::new();
    let churn = |heap: &mut Heap, magazine: &mut Magazine, slot: Option<&mut u64>, bytes: u64| {
        let class = Class::fitting(bytes, 1).unwrap();
        let new = magazine.alloc(class).or_else(|| {
            heap.refill(magazine, class);
            magazine.alloc(class)
        });
        let new = new.unwrap();
        let Some(slot) = slot else { return new };
        let old = std::mem::replace(slot, new);
        let Ok(Allocated::Object(class)) = map.look_up(old) else { panic!() };
        if magazine.free(class, old).is_err() {
            heap.flush(magazine, class).unwrap();
            magazine.free(class, old).unwrap();
        }
        new
    };
    for _ in 0..10_000 * SCALE {
        let bytes = rng.random_range(16..=512);
        live.push(churn(&mut heap, &mut magazine, None, bytes));
    }
    let count = live.len();
    measure(&format!("a random one of {count} objects replaced, 16 to 512 bytes"), 10_000 * SCALE, |_| {
        let (index, bytes) = (rng.random_range(0..count), rng.random_range(16..=512));
        churn(&mut heap, &mut magazine, Some(&mut live[index]), bytes);
    });
    println!("{:?}", heap.stats());
    measure("heap: alloc, free of 64 bytes", 10_000 * SCALE, |_| {
        let offset = heap.alloc(64, 1).unwrap();
        let _ = heap.free(offset).unwrap();
    });
    let pages = heap.stats().object_pages;
    measure("live bytes of pages of random objects", 10_000 * SCALE, |number| {
        black_box(map.live(PageIndex((number * 7919 % pages) as u32)));
    });
}

#[test]
fn cost_of_live_bytes_in_the_worst_page() {
    let mut heap = Heap::new(1 << 20);
    let objects: Vec<u64> = (0..256).map(|_| heap.alloc(16, 1).unwrap()).collect();
    measure("live bytes of a full page", 10_000 * SCALE, |_| {
        black_box(heap.map().live(PageIndex(0)));
    });
    objects.iter().step_by(2).for_each(|offset| assert!(heap.free(*offset).is_ok()));
    measure("live bytes of a page with every second slot of 16 bytes", 10_000 * SCALE, |_| {
        black_box(heap.map().live(PageIndex(0)));
    });
}

#[test]
fn cost_of_runs() {
    let mut heap = Heap::new(64 << 30);
    for (what, bytes) in
        [("12 KiB", 12 << 10), ("64 KiB", 64 << 10), ("2 MiB", 2 << 20), ("64 MiB", 64 << 20), ("1 GiB", 1 << 30)]
    {
        measure(&format!("a run of {what}, alloc, free, in an empty heap"), 50 * SCALE, |_| {
            let offset = heap.alloc(bytes, 1).unwrap();
            free_run(&mut heap, offset);
        });
    }
    let mut rng = SmallRng::seed_from_u64(1);
    let mut live: Vec<u64> =
        (0..2_000 * SCALE).map(|_| heap.alloc(rng.random_range(8193..=40_960), 1).unwrap()).collect();
    let count = live.len();
    measure(&format!("a random one of {count} runs replaced, 3 to 10 pages"), 1_000 * SCALE, |_| {
        let index = rng.random_range(0..count);
        free_run(&mut heap, live[index]);
        live[index] = heap.alloc(rng.random_range(8193..=40_960), 1).unwrap();
    });
    println!("{:?}", heap.stats());
    measure("a run of 1 GiB, alloc, free, beside them", 50 * SCALE, |_| {
        let offset = heap.alloc(1 << 30, 1).unwrap();
        free_run(&mut heap, offset);
    });
    measure("a run of 3 pages at a multiple of 2 MiB, beside them", 50 * SCALE, |_| {
        let offset = heap.alloc(3 << 12, 2 << 20).unwrap();
        free_run(&mut heap, offset);
    });
}
