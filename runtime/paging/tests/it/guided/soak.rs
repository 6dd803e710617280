//! Threads that make, change, read and free objects of all sizes in a heap that is swept all the time, over a fabric
//! that fails: every byte of every object is what was stored last, here and in the end on the node.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use yonder_paging::{Config, Deadlines, Prefetch, Verify};

use crate::guided::objects::{Object, World, assert_same};

const LOCAL: u64 = 2 << 20;
const HEAP: u64 = 16 << 20;
const THREADS: u64 = 4;
const TURNS: usize = 32_000;
/// Turns in which a thread makes more than it frees, and then frees more than it makes.
const PHASE: usize = 16_000;
/// Bytes that a thread keeps at most.
const KEPT_BYTES_MAX: usize = 5 << 19;

/// One thread's objects.
struct Owner<'a> {
    world: &'a World,
    random: SmallRng,
    objects: Vec<Object>,
    bytes: usize,
    next_number: u64,
}

impl<'a> Owner<'a> {
    fn new(world: &'a World, thread: u64) -> Self {
        let random = SmallRng::seed_from_u64(thread);
        Self { world, random, objects: Vec::new(), bytes: 0, next_number: thread << 40 }
    }

    fn turn(&mut self, turn: usize) {
        let grows = turn % PHASE < PHASE / 2;
        match self.random.random_range(0..100) {
            0..10 => self.change(),
            10..40 => self.check(),
            40..85 if grows => self.make(),
            40..55 => self.make(),
            _ => self.free(),
        }
    }

    fn make(&mut self) {
        let bytes = match self.random.random_range(0..100) {
            0..75 => self.random.random_range(16..300),
            75..98 => self.random.random_range(300..1_500),
            _ => self.random.random_range(2_000..20_000),
        };
        if self.bytes + bytes > KEPT_BYTES_MAX {
            return self.free();
        }
        self.next_number += 1;
        let Some(object) = self.world.make(bytes, self.next_number) else { return self.free() };
        self.bytes += bytes;
        self.objects.push(object);
    }

    fn change(&mut self) {
        let Some(at) = self.any() else { return };
        self.world.check(&self.objects[at]);
        self.next_number += 1;
        self.objects[at].number = self.next_number;
        self.world.store(&self.objects[at]);
    }

    fn check(&mut self) {
        let Some(at) = self.any() else { return };
        self.world.check(&self.objects[at]);
    }

    fn free(&mut self) {
        let Some(at) = self.any() else { return };
        let object = self.objects.swap_remove(at);
        self.world.check(&object);
        self.world.free(object.offset);
        self.bytes -= object.bytes;
    }

    fn any(&mut self) -> Option<usize> {
        (!self.objects.is_empty()).then(|| self.random.random_range(0..self.objects.len()))
    }
}

fn soak(settings: &str, verify: Verify, prefetch: Prefetch, fails: bool) {
    let deadlines = Deadlines { attempt: Duration::from_millis(2), ..Deadlines::default() };
    let config = Config { verify, prefetch, deadlines, ..Config::with_local(LOCAL) };
    let Some(mut world) = World::new(settings, HEAP, config) else { return };
    if fails {
        world.control.set_errors(0.03);
        world.control.set_drops(0.001);
        world.control.set_delay(20_000, 0.1);
    }
    let work = |thread| {
        let mut owner = Owner::new(&world, thread);
        (0..TURNS).for_each(|turn| owner.turn(turn));
        owner.objects
    };
    let objects: Vec<Object> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    objects.iter().for_each(|object| world.check(object));
    let stats = world.far.stats();
    assert!(stats.saved_fetch_bytes > 0 && stats.saved_written_bytes > 0 && stats.paging_errors == 0, "{stats:?}");
    assert!(stats.peak_pages <= stats.limit_pages, "{stats:?}");
    let share = |saved: u64, moved: u64| 100 * saved / (saved + moved);
    println!(
        "{settings} fails {fails}: {} MiB fetched and {} % saved, {} MiB written and {} % saved, {} pages dead",
        stats.fetched_bytes >> 20,
        share(stats.saved_fetch_bytes, stats.fetched_bytes),
        stats.written_bytes >> 20,
        share(stats.saved_written_bytes, stats.written_bytes),
        stats.dead_pages
    );
    world.region.seal().unwrap();
    if let Some(node) = &world.node {
        for object in &objects {
            let mut found = vec![0; object.bytes];
            node.read(object.offset, &mut found);
            assert_same(object, &found);
        }
    }
}

#[test]
fn nothing_live_is_lost_where_far_memory_is_mapped() {
    soak("", Verify::Off, Prefetch::Trend, false);
    soak("", Verify::On, Prefetch::None, true);
}

#[test]
fn nothing_live_is_lost_where_it_is_read_into_frames() {
    soak("&reads=frames", Verify::Off, Prefetch::Trend, false);
    soak("&reads=frames", Verify::On, Prefetch::Readahead, true);
}

#[test]
fn nothing_live_is_lost_where_far_memory_is_compressed_or_tiered() {
    for layer in ["+lz4", "+tier"] {
        soak(layer, Verify::Off, Prefetch::Trend, false);
        soak(layer, Verify::On, Prefetch::Readahead, true);
    }
}
