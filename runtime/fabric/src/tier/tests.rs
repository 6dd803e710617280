//! A tiered store over tiers that do all that a fabric may do: never a wrong page.
//!
//! The mover's steps are the test's, and so is the time.

use std::sync::atomic::Ordering;

use yonder_units::FrameIndex;

use super::*;
use crate::adversarial::model::{Layers, PAGES, run_seeds};
use crate::adversarial::{AdversarialFabric, Reads};
use crate::vector::MoveBytes as _;
use crate::{Completion, PageRead, PageWrite, Posting, ReadInto, Status, Vector, WorkId};
use rand::Rng as _;

const PAGE: u64 = PAGE_BYTES as u64;
const FRAMES: usize = 64;
const SECOND: Nanos = 1_000_000_000;

/// A store without a thread, and one queue pair for each purpose.
struct Scene {
    near: Arc<AdversarialFabric>,
    far: Arc<AdversarialFabric>,
    fabric: TierFabric,
    frames: Arc<Mapping>,
    reads: Box<dyn QueuePair>,
    writes: Box<dyn QueuePair>,
    start: RemoteAddress,
    now: Nanos,
    next: u64,
}

impl Scene {
    /// `pages` pages, of which `near_pages` have room on the node.
    fn new(pages: u64, near_pages: u64, seed: u64) -> Self {
        let near = AdversarialFabric::new(near_pages as usize, seed, Reads::Halves);
        let far = AdversarialFabric::new(2 * pages as usize, seed + 1, Reads::Whole);
        let limit = Some(near_pages * PAGE);
        let fabric = TierFabric::without_thread("tier+", near.clone(), limit, far.clone()).unwrap();
        let frames = Arc::new(Mapping::anonymous(FRAMES * PAGE_BYTES).unwrap());
        let [reads, writes] =
            [Module::Fault, Module::WriteBack].map(|module| fabric.queue_pair(module, Arc::clone(&frames)).unwrap());
        let start = fabric.allocate(pages * PAGE).unwrap();
        Self { near, far, fabric, frames, reads, writes, start, now: yonder_clock::now(), next: 0 }
    }

    fn page(&self, page: u64) -> RemoteAddress {
        RemoteAddress(self.start.0 + page * PAGE)
    }

    fn id(&mut self) -> WorkId {
        self.next += 1;
        WorkId(self.next)
    }

    fn step(&mut self) {
        self.now += 1_000;
        lock(&self.fabric.mover).step(self.now);
    }

    /// Writes a page of `byte`, and waits for the end of it.
    fn write(&mut self, page: u64, byte: u8) -> Status {
        let (id, to) = (self.id(), self.page(page));
        self.frames.write(0, &[byte; PAGE_BYTES]);
        while self.writes.post_write(id, to, FrameIndex(0), self.now).is_err() {
            self.step();
        }
        self.finish(true, id)
    }

    /// Reads a page, which is of one byte.
    fn read(&mut self, page: u64) -> (Status, u8) {
        let (id, from) = (self.id(), self.page(page));
        self.frames.write(PAGE, &[0xee; PAGE_BYTES]);
        while self.reads.post_read(id, from, ReadInto::Frame(FrameIndex(1)), self.now).is_err() {}
        let status = self.finish(false, id);
        let mut bytes = [0; PAGE_BYTES];
        self.frames.read(PAGE, &mut bytes);
        if status == Status::Done {
            assert!(bytes.iter().all(|byte| *byte == bytes[0]), "page {page} is torn");
        }
        (status, bytes[0])
    }

    fn finish(&mut self, is_write: bool, id: WorkId) -> Status {
        let mut completions: Vec<Completion> = Vec::with_capacity(4);
        loop {
            self.now += 1_000;
            let queue = if is_write { &mut self.writes } else { &mut self.reads };
            queue.poll(self.now, &mut completions);
            if let Some(completion) = completions.pop() {
                assert_eq!(completion.id, id);
                return completion.status;
            }
        }
    }

    fn counter(&self, name: &str) -> u64 {
        let counters = self.fabric.counters();
        counters.iter().find(|counter| counter.name == name).expect("it is counted").value
    }

    fn location(&self, page: u64) -> Location {
        let place = View::new(&self.fabric.shared.areas).find(self.page(page)).unwrap();
        place.area.table.look(place.page).location()
    }

    fn is_near(&self, page: u64) -> bool {
        matches!(self.location(page), Location::Near(_))
    }
}

/// Of `near_pages` on the node, and `PAGES` in all.
pub(crate) fn layers(near: Arc<dyn Fabric>, near_pages: u64, far: Arc<dyn Fabric>) -> (Arc<dyn Fabric>, Layers) {
    let limit = Some(near_pages * PAGE);
    let fabric = Arc::new(TierFabric::without_thread("tier+", near, limit, far).unwrap());
    let mover = Arc::clone(&fabric.mover);
    let step = move |now| {
        lock(&mover).step(now);
    };
    (fabric, Layers { step: Box::new(step), ..Layers::default() })
}

#[test]
fn the_node_first_and_the_disk_when_it_is_full() {
    let mut scene = Scene::new(40, 8, 1);
    for page in 0..40 {
        assert_eq!(scene.write(page, page as u8 + 1), Status::Done);
    }
    let near: Vec<u64> = (0..40).filter(|page| scene.is_near(*page)).collect();
    assert_eq!(near, (0..8).collect::<Vec<_>>());
    assert_eq!((scene.counter("tier_near_writes"), scene.counter("tier_far_writes")), (8, 32));
    for page in 0..40 {
        assert_eq!(scene.read(page), (Status::Done, page as u8 + 1));
    }
}

#[test]
fn pages_of_a_lost_node_are_errors_until_they_are_written_again() {
    let mut scene = Scene::new(16, 8, 2);
    for page in 0..16 {
        scene.write(page, 1);
    }
    // The far tier has older copies of pages that are near now.
    let near: Vec<u64> = (0..16).filter(|page| scene.is_near(*page)).collect();
    scene.near.link.is_away.store(true, Ordering::Relaxed);
    for page in 0..16 {
        let expected = if near.contains(&page) { (Status::Disconnected, 0xee) } else { (Status::Done, 1) };
        assert_eq!(scene.read(page), expected, "page {page}");
    }
    for page in 0..16 {
        while scene.write(page, 2) != Status::Done {}
        assert_eq!((scene.location(page), scene.read(page)), (Location::Far, (Status::Done, 2)));
    }
    scene.near.link.is_away.store(false, Ordering::Relaxed);
    scene.now += 2 * SECOND;
    assert_eq!(scene.write(3, 3), Status::Done);
    assert!(scene.is_near(3), "the node is back");
    assert_eq!(scene.read(3), (Status::Done, 3));
}

#[test]
fn an_older_copy_in_the_far_tier_is_never_read() {
    let mut scene = Scene::new(4, 4, 3);
    scene.near.link.is_away.store(true, Ordering::Relaxed);
    while scene.write(0, 1) != Status::Done {}
    assert_eq!(scene.location(0), Location::Far);
    scene.near.link.is_away.store(false, Ordering::Relaxed);
    scene.now += 2 * SECOND;
    assert_eq!(scene.write(0, 2), Status::Done);
    assert!(scene.is_near(0));
    scene.near.link.is_away.store(true, Ordering::Relaxed);
    assert_eq!(scene.read(0), (Status::Disconnected, 0xee));
    // Who comes while the node is away has the other tier only.
    scene.reads = scene.fabric.queue_pair(Module::Fault, Arc::clone(&scene.frames)).unwrap();
    assert_eq!(scene.read(0), (Status::Disconnected, 0xee));
    scene.writes = scene.fabric.queue_pair(Module::WriteBack, Arc::clone(&scene.frames)).unwrap();
    assert_eq!((scene.write(1, 4), scene.read(1)), (Status::Done, (Status::Done, 4)));
}

#[test]
fn pages_that_nobody_uses_make_room_and_pages_that_are_read_come_back() {
    let mut scene = Scene::new(64, 32, 4);
    for page in 0..32 {
        scene.write(page, 1);
    }
    // The hand comes by twice; what is read between stays.
    for round in 0..200 {
        scene.step();
        if round % 4 == 0 {
            (0..4).for_each(|page| assert_eq!(scene.read(page), (Status::Done, 1)));
        }
    }
    assert_eq!(scene.counter("tier_demoted_pages"), 2, "the reserve of 32 slots");
    assert!((0..4).all(|page| scene.is_near(page)));
    let cold = (0..32).find(|page| !scene.is_near(*page)).unwrap();
    for _ in 0..3 {
        assert_eq!(scene.read(cold), (Status::Done, 1));
    }
    (0..200).for_each(|_| scene.step());
    assert_eq!(scene.counter("tier_promoted_pages"), 1);
    assert!(scene.is_near(cold));
    for page in 0..64 {
        assert_eq!(scene.read(page), (Status::Done, u8::from(page < 32)));
    }
}

#[test]
fn both_tiers_and_what_is_below_compression_gather_as_they_are_told() {
    let (near, far) = (AdversarialFabric::new(4, 1, Reads::Halves), AdversarialFabric::new(4, 2, Reads::Whole));
    let links = [&near, &far].map(|fabric| Arc::clone(&fabric.link));
    let tiers = TierFabric::without_thread("tier+", near, None, far).unwrap();
    let fabric = crate::Lz4Fabric::over(Arc::new(tiers)).unwrap();
    let frames = Arc::new(Mapping::anonymous(PAGE_BYTES).unwrap());
    let mut queue = fabric.queue_pair(Module::Fault, frames).unwrap();
    let postings = [Posting::Together, Posting::Alone, Posting::AtOnce];
    postings.into_iter().for_each(|posting| queue.set_posting(posting));
    assert!(links.iter().all(|link| *link.postings.lock().unwrap() == postings));
}

#[test]
fn a_node_that_takes_no_more_reads_is_asked_once_a_step() {
    const STEPS: u32 = 10;
    let mut scene = Scene::new(64, 32, 9);
    for page in 0..32 {
        scene.write(page, 1);
    }
    scene.near.link.is_full.store(true, Ordering::Relaxed);
    (0..STEPS).for_each(|_| scene.step());
    let refused = scene.near.link.refused_reads.load(Ordering::Relaxed);
    assert!((1..=STEPS).contains(&refused), "{refused} reads in {STEPS} steps");
    scene.near.link.is_full.store(false, Ordering::Relaxed);
    while scene.counter("tier_demoted_pages") < 2 {
        scene.step();
    }
}

#[test]
fn what_is_given_back_is_zeros_and_its_slots_are_free() {
    let mut scene = Scene::new(16, 8, 5);
    for page in 0..16 {
        scene.write(page, 1);
    }
    scene.fabric.discard(scene.page(4), 8 * PAGE).unwrap();
    for page in 0..16 {
        assert_eq!(scene.read(page), (Status::Done, u8::from(!(4..12).contains(&page))));
    }
    assert_eq!(scene.fabric.shared.near.free_slots(), 4);
    // Pages that move meanwhile are let go.
    scene.write(4, 2);
    (0..3).for_each(|_| scene.step());
    scene.fabric.release(scene.start).unwrap();
    assert_eq!(scene.fabric.shared.near.free_slots(), 8);
    let again = scene.fabric.allocate(16 * PAGE).unwrap();
    assert_eq!(again, scene.start);
    for page in 0..16 {
        assert_eq!(scene.read(page), (Status::Done, 0));
        assert_eq!(scene.write(page, 3), Status::Done);
    }
}

#[test]
fn memory_of_an_area_that_has_ended_is_nobodys_while_a_write_of_the_mover_may_come() {
    let mut scene = Scene::new(16, 8, 5);
    scene.far.link.is_away.store(true, Ordering::Relaxed);
    for page in 0..8 {
        scene.write(page, 1);
    }
    // The mover reads pages of the node and writes them far, where nothing arrives.
    (0..200).for_each(|_| scene.step());
    scene.fabric.release(scene.start).unwrap();
    assert_eq!(scene.fabric.shared.ended().len(), 1, "no write of the mover was under way");
    let other = scene.fabric.allocate(16 * PAGE).unwrap();
    assert_ne!(other, scene.start, "memory is given out that may still be written");
    scene.far.link.is_away.store(false, Ordering::Relaxed);
    while !scene.fabric.shared.ended().is_empty() {
        scene.now += SECOND;
        lock(&scene.fabric.mover).step(scene.now);
        scene.fabric.shared.release_ended(&scene.fabric.mover);
    }
    assert_eq!(scene.fabric.allocate(16 * PAGE).unwrap(), scene.start);
}

#[test]
fn parts_of_a_page_move_with_it() {
    let mut scene = Scene::new(8, 8, 6);
    let vector = Vector::new([16..32, 2000..2100]);
    scene.frames.write(0, &[7; PAGE_BYTES]);
    let (id, to) = (scene.id(), scene.page(0));
    let write = PageWrite { to, from: FrameIndex(0), vector };
    while scene.writes.post_write_vector(id, write, scene.now).is_err() {}
    assert_eq!(scene.finish(true, id), Status::Done);
    for page in 1..8 {
        scene.write(page, 1);
    }
    while scene.is_near(0) {
        scene.step();
        for page in 1..8 {
            scene.read(page);
        }
    }
    scene.frames.write(PAGE, &[9; PAGE_BYTES]);
    let id = scene.id();
    let read = PageRead { from: to, into: ReadInto::Frame(FrameIndex(1)), vector };
    while scene.reads.post_read_vector(id, read, scene.now).is_err() {}
    assert_eq!(scene.finish(false, id), Status::Done);
    let mut bytes = [0; PAGE_BYTES];
    scene.frames.read(PAGE, &mut bytes);
    assert!(bytes == vector.filled(7, 9));
    assert_eq!(scene.read(0).0, Status::Failed, "nobody has written the rest");
}

#[test]
fn a_slot_that_is_used_again_meanwhile_is_no_page() {
    let mut scene = Scene::new(4, 2, 7);
    scene.write(0, 1);
    let from = scene.page(0);
    while scene.reads.post_read(WorkId(1000), from, ReadInto::Frame(FrameIndex(1)), scene.now).is_err() {}
    // The page goes to the other slot, and another page to its own.
    scene.write(0, 2);
    scene.write(1, 3);
    assert_eq!(scene.finish(false, WorkId(1000)), Status::Done);
    assert!(scene.frames.with_page(PAGE, |bytes| *bytes == [2; PAGE_BYTES]));
    assert_eq!(scene.counter("tier_repeated_reads"), 1);
}

#[test]
fn addresses_outside_fail_and_the_depth_holds() {
    let mut scene = Scene::new(4, 2, 8);
    for address in [scene.page(4).0, scene.page(0).0 + 1, u64::MAX] {
        scene.reads.post_read(WorkId(address), RemoteAddress(address), ReadInto::Frame(FrameIndex(1)), 0).unwrap();
        assert_eq!(scene.finish(false, WorkId(address)), Status::Failed);
        scene.writes.post_write(WorkId(address), RemoteAddress(address), FrameIndex(1), 0).unwrap();
        assert_eq!(scene.finish(true, WorkId(address)), Status::Failed);
    }
    let depth = scene.reads.depth();
    for id in 0..depth as u64 {
        scene.reads.post_read(WorkId(id), scene.start, ReadInto::Frame(FrameIndex(1)), 0).unwrap();
    }
    assert_eq!(scene.reads.outstanding(), depth);
    let into = ReadInto::Frame(FrameIndex(1));
    assert!(scene.reads.post_read(WorkId(9999), scene.start, into, 0).is_err());
    let mut completions = Vec::with_capacity(5);
    scene.reads.poll(0, &mut completions);
    assert_eq!((completions.len(), completions.capacity(), scene.reads.outstanding()), (5, 5, depth - 5));
}

#[test]
fn by_seeds_never_a_wrong_page() {
    run_seeds(1500, |seed, random| {
        let near_pages = random.random_range(2..=PAGES + 4);
        let near = AdversarialFabric::new(near_pages as usize, seed, Reads::Halves);
        let far = AdversarialFabric::new(PAGES as usize, seed + 1, Reads::Whole);
        let links = vec![Arc::clone(&near.link), Arc::clone(&far.link)];
        let (fabric, layers) = layers(near, near_pages, far);
        (fabric, Layers { links, ..layers })
    });
}

/// With its thread, a file and a clock.
#[test]
fn a_file_has_what_the_node_has_no_room_for() {
    const PAGES: u64 = 2048;
    let folder = tempfile::tempdir().unwrap();
    let file = format!("file://{}/store?size=64MiB", folder.path().display());
    let fabric = match crate::open(&format!("lz4+tier+near=1MiB+emu://?size=64MiB+{file}")) {
        Ok(fabric) => fabric,
        Err(error) if error.to_string().contains("io_uring") || error.to_string().contains("direct access") => {
            println!("SKIP: {error}");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let frames = Arc::new(Mapping::anonymous(FRAMES * PAGE_BYTES).unwrap());
    let mut queue = fabric.queue_pair(Module::WriteBack, Arc::clone(&frames)).unwrap();
    let start = fabric.allocate(PAGES * PAGE).unwrap();
    let mut completions = Vec::with_capacity(1);
    let mut finish = |queue: &mut dyn QueuePair| loop {
        queue.poll(yonder_clock::now(), &mut completions);
        if let Some(completion) = completions.pop() {
            return completion.status;
        }
    };
    for page in 0..PAGES {
        let to = RemoteAddress(start.0 + page * PAGE);
        frames.write(0, &[page as u8; PAGE_BYTES]);
        while queue.post_write(WorkId(page), to, FrameIndex(0), yonder_clock::now()).is_err() {
            queue.poll(yonder_clock::now(), &mut Vec::new());
        }
        assert_eq!(finish(&mut *queue), Status::Done);
    }
    for page in (0..PAGES).chain((0..PAGES).rev()) {
        let from = RemoteAddress(start.0 + page * PAGE);
        queue.post_read(WorkId(page), from, ReadInto::Frame(FrameIndex(1)), yonder_clock::now()).unwrap();
        assert_eq!(finish(&mut *queue), Status::Done);
        assert!(frames.with_page(PAGE, |found| *found == [page as u8; PAGE_BYTES]), "page {page}");
    }
    let far: u64 = (fabric.counters().iter())
        .filter(|counter| ["tier_far_writes", "tier_demoted_pages"].contains(&counter.name))
        .map(|counter| counter.value)
        .sum();
    assert!(far >= PAGES - 256, "{:?}", fabric.counters());
    fabric.release(start).unwrap();
}
