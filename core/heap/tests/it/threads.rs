//! Owners store into objects while a reclaimer takes pages away, keeps only what it is told is live, and puts noise in
//! place of the rest.
//!
//! A page of this far memory is a mutex: who holds it has closed the page, and a store to a closed page waits, as the
//! real one traps. The heap is behind a mutex too, but the reclaimer never takes that one.

use std::sync::{Arc, Mutex};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use yonder_heap::{Allocated, Class, Freed, Heap, Magazine, PageMap};
use yonder_units::{PAGE_BYTES, PageIndex, Vector};

const PAGES: usize = 256;
const OWNERS: u64 = 3;
const ROUNDS: usize = if cfg!(debug_assertions) { 30_000 } else { 100_000 };
const NOISE: u8 = 0xDD;

struct Far {
    heap: Mutex<Heap>,
    map: Arc<PageMap>,
    pages: Vec<Mutex<[u8; PAGE_BYTES]>>,
}

/// An object that holds one byte all over.
struct Object {
    offset: u64,
    bytes: u64,
    content: u8,
}

impl Far {
    /// Visits the bytes of an object, page by page.
    fn each_part(&self, offset: u64, bytes: u64, mut visit: impl FnMut(&mut [u8])) {
        let mut at = offset;
        while at < offset + bytes {
            let page = at as usize / PAGE_BYTES;
            let end = (offset + bytes).min((page as u64 + 1) * PAGE_BYTES as u64);
            visit(&mut self.pages[page].lock().unwrap()[at as usize % PAGE_BYTES..][..(end - at) as usize]);
            at = end;
        }
    }

    fn alloc(&self, magazine: &mut Magazine, bytes: u64) -> Option<u64> {
        let Some(class) = Class::fitting(bytes, 1) else { return self.heap.lock().unwrap().alloc(bytes, 1) };
        magazine.alloc(class).or_else(|| {
            self.heap.lock().unwrap().refill(magazine, class);
            magazine.alloc(class)
        })
    }

    fn free(&self, magazine: &mut Magazine, offset: u64) {
        match self.map.look_up(offset).unwrap() {
            Allocated::Object(class) => {
                if magazine.free(class, offset).is_err() {
                    self.heap.lock().unwrap().flush(magazine, class).unwrap();
                    magazine.free(class, offset).unwrap();
                }
            }
            Allocated::Run(_) => {
                let mut heap = self.heap.lock().unwrap();
                let Ok(Freed::Run(retired)) = heap.free(offset) else { panic!("a run was freed") };
                heap.release(retired);
            }
        }
    }

    /// Allocates, fills, checks and frees; now and then all at once, so that pages empty and change what they are.
    fn own(&self, seed: u64) {
        let (mut magazine, mut rng) = (Magazine::new(), SmallRng::seed_from_u64(seed));
        let mut objects: Vec<Object> = Vec::new();
        for round in 0..ROUNDS {
            if rng.random_bool(0.55) {
                let bytes =
                    if rng.random_bool(0.97) { rng.random_range(1..=2048) } else { rng.random_range(2049..20_000) };
                let Some(offset) = self.alloc(&mut magazine, bytes) else { continue };
                let bytes = self.map.look_up(offset).unwrap().bytes();
                let content = rng.random_range(0..NOISE);
                self.each_part(offset, bytes, |part| part.fill(content));
                objects.push(Object { offset, bytes, content });
            } else if !objects.is_empty() {
                self.check_and_free(&mut magazine, objects.swap_remove(rng.random_range(0..objects.len())));
            }
            if round % 2000 == 0 {
                objects.drain(..).for_each(|object| self.check_and_free(&mut magazine, object));
                self.heap.lock().unwrap().flush_all(&mut magazine).unwrap();
            }
        }
        objects.into_iter().for_each(|object| self.check_and_free(&mut magazine, object));
        self.heap.lock().unwrap().flush_all(&mut magazine).unwrap();
    }

    fn check_and_free(&self, magazine: &mut Magazine, object: Object) {
        let Object { offset, bytes, content } = object;
        self.each_part(offset, bytes, |part| {
            assert!(part.iter().all(|byte| *byte == content), "{bytes} bytes at {offset} lost their content")
        });
        self.free(magazine, offset);
    }

    /// Evicts pages, as many as owners make steps. Returns how many bytes were lost.
    fn reclaim(&self, seed: u64) -> usize {
        let mut rng = SmallRng::seed_from_u64(seed);
        (0..ROUNDS).map(|_| self.evict(rng.random_range(0..PAGES))).sum()
    }

    /// Writes a page back and fetches it: what is not live is lost. Returns how many bytes that were.
    fn evict(&self, page: usize) -> usize {
        let mut content = self.pages[page].lock().unwrap();
        let live = self.map.live(PageIndex(page as u32));
        let mut fetched = [NOISE; PAGE_BYTES];
        for bytes in live.into_iter().flat_map(Vector::segments) {
            fetched[bytes.clone()].copy_from_slice(&content[bytes]);
        }
        *content = fetched;
        PAGE_BYTES - live.map_or(0, Vector::bytes)
    }
}

#[test]
fn what_is_live_survives_an_eviction_without_the_heaps_lock() {
    let heap = Heap::new((PAGES * PAGE_BYTES) as u64);
    let map = Arc::clone(heap.map());
    let pages = (0..PAGES).map(|_| Mutex::new([NOISE; PAGE_BYTES])).collect();
    let far = Far { heap: Mutex::new(heap), map, pages };
    let lost: usize = std::thread::scope(|scope| {
        let far = &far;
        (0..OWNERS).for_each(|seed| drop(scope.spawn(move || far.own(seed))));
        let reclaimers = [9, 10].map(|seed| scope.spawn(move || far.reclaim(seed)));
        reclaimers.map(|reclaimer| reclaimer.join().unwrap()).into_iter().sum()
    });
    assert!(lost > 10 * PAGES * PAGE_BYTES, "only {lost} bytes were taken away");
    let stats = far.heap.lock().unwrap().stats();
    assert_eq!((stats.objects, stats.run_pages), (0, 0));
}
