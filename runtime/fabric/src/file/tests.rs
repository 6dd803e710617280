//! A store on a real disk: what is written is read, whatever is cleaned meanwhile, and damage is never read.

use std::collections::HashMap;
use std::os::unix::fs::FileExt as _;

use rand::rngs::SmallRng;
use rand::{Rng as _, RngCore as _, SeedableRng as _};
use tempfile::TempDir;
use yonder_units::{FrameIndex, Nanos};

use super::*;
use crate::vector::MoveBytes as _;
use crate::{ALONE_AGE_MAX, Completion, GATHERED_MAX, PageRead, PageWrite, Posting, ReadInto, Status, Vector, WorkId};

const FRAMES: usize = 64;

struct World {
    fabric: FileFabric,
    frames: Arc<Mapping>,
    reads: Box<dyn QueuePair>,
    writes: Box<dyn QueuePair>,
    folder: TempDir,
    next: u64,
}

/// A store in a folder of its own; `None`, and a line that says why, where there is no io_uring or no direct access.
fn world(size: &str) -> Option<World> {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("file://{}/store?size={size}", folder.path().display());
    let fabric = match FileFabric::open(&url) {
        Ok(fabric) => fabric,
        Err(error) if error.to_string().contains("io_uring") || error.to_string().contains("direct access") => {
            println!("SKIP: {error}");
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    let frames = Arc::new(Mapping::anonymous(FRAMES * PAGE_BYTES).unwrap());
    let [reads, writes] =
        [Module::Fault, Module::WriteBack].map(|module| fabric.queue_pair(module, Arc::clone(&frames)).unwrap());
    Some(World { fabric, frames, reads, writes, folder, next: 0 })
}

fn poll(queue: &mut dyn QueuePair, count: usize) -> Vec<Completion> {
    let mut completions = Vec::with_capacity(count);
    while completions.len() < count {
        queue.poll(0, &mut completions);
        std::hint::spin_loop();
    }
    completions
}

/// What a page is filled with.
fn content(page: u64, version: u64) -> [u8; PAGE_BYTES] {
    let mut bytes = [0; PAGE_BYTES];
    SmallRng::seed_from_u64(page << 32 | version).fill_bytes(&mut bytes);
    bytes
}

impl World {
    fn id(&mut self) -> WorkId {
        self.next += 1;
        WorkId(self.next)
    }

    fn write(&mut self, to: RemoteAddress, frame: usize, bytes: &[u8; PAGE_BYTES]) {
        let (id, frame) = (self.id(), FrameIndex(frame as u32));
        self.frames.write(frame.offset(), bytes);
        while self.writes.post_write(id, to, frame, 0).is_err() {
            // The log is full until something was cleaned, or all batches are on their way.
            self.writes.poll(0, &mut Vec::new());
        }
    }

    fn read(&mut self, from: RemoteAddress) -> Option<[u8; PAGE_BYTES]> {
        let (id, frame) = (self.id(), FrameIndex(FRAMES as u32 - 1));
        self.reads.post_read(id, from, ReadInto::Frame(frame), 0).unwrap();
        let done = poll(&mut *self.reads, 1);
        assert_eq!(done[0].id, id);
        let mut bytes = [0; PAGE_BYTES];
        self.frames.read(frame.offset(), &mut bytes);
        (done[0].status == Status::Done).then_some(bytes)
    }

    fn page(start: RemoteAddress, page: u64) -> RemoteAddress {
        RemoteAddress(start.0 + page * PAGE_BYTES as u64)
    }
}

#[test]
fn pages_outlive_many_cleanings() {
    const PAGES: u64 = 4096;
    let Some(mut world) = world("64MiB") else { return };
    let start = world.fabric.allocate(PAGES * PAGE_BYTES as u64).unwrap();
    let mut random = SmallRng::seed_from_u64(3);
    let mut versions: HashMap<u64, u64> = HashMap::new();
    for round in 1..=1500 {
        let first = random.random_range(0..PAGES);
        let pages: Vec<u64> = (0..FRAMES as u64 / 2).map(|step| (first + step * 61) % PAGES).collect();
        for (frame, page) in pages.iter().enumerate() {
            world.write(World::page(start, *page), frame, &content(*page, round));
            versions.insert(*page, round);
        }
        let done = poll(&mut *world.writes, pages.len());
        assert!(done.iter().all(|completion| completion.status == Status::Done));
        let page = random.random_range(0..PAGES);
        let expected = versions.get(&page).map_or([0; PAGE_BYTES], |version| content(page, *version));
        assert!(world.read(World::page(start, page)) == Some(expected), "page {page} in round {round}");
    }
    let occupancy = world.fabric.shared.log().occupancy();
    assert!(occupancy.moved_bytes > 0 && occupancy.free_segments > 0, "{occupancy:?}");
    for page in 0..PAGES {
        let expected = versions.get(&page).map_or([0; PAGE_BYTES], |version| content(page, *version));
        assert!(world.read(World::page(start, page)) == Some(expected), "page {page}");
    }
    world.fabric.discard(start, PAGE_BYTES as u64).unwrap();
    assert!(world.read(start) == Some([0; PAGE_BYTES]));
    world.fabric.release(start).unwrap();
    assert_eq!(world.fabric.shared.log().occupancy().live_bytes, 0);
}

#[test]
fn segments_are_kept_alone() {
    let Some(mut world) = world("32MiB") else { return };
    let start = world.fabric.allocate(2 * PAGE_BYTES as u64).unwrap();
    let vector = Vector::new([16..32, 100..200, 4000..4096]);
    world.frames.write(0, &[1; PAGE_BYTES]);
    world.writes.post_write_vector(WorkId(1), PageWrite { to: start, from: FrameIndex(0), vector }, 0).unwrap();
    assert_eq!(poll(&mut *world.writes, 1), [Completion { id: WorkId(1), status: Status::Done }]);
    assert_eq!(world.fabric.shared.log().occupancy().live_bytes, 512, "less than a page");
    world.frames.write(PAGE_BYTES as u64, &[2; PAGE_BYTES]);
    let into = ReadInto::Frame(FrameIndex(1));
    world.reads.post_read_vector(WorkId(2), PageRead { from: start, into, vector }, 0).unwrap();
    assert_eq!(poll(&mut *world.reads, 1), [Completion { id: WorkId(2), status: Status::Done }]);
    let mut local = [9; PAGE_BYTES];
    world.frames.read(PAGE_BYTES as u64, &mut local);
    assert!(local == vector.filled(1, 2));
    let part = Vector::new([112..128, 4032..4096]);
    world.frames.write(PAGE_BYTES as u64, &[2; PAGE_BYTES]);
    world.reads.post_read_vector(WorkId(3), PageRead { from: start, into, vector: part }, 0).unwrap();
    assert_eq!(poll(&mut *world.reads, 1)[0].status, Status::Done);
    world.frames.read(PAGE_BYTES as u64, &mut local);
    assert!(local == part.filled(1, 2));
    assert_eq!(world.read(start), None, "nobody has written the rest");
    assert!(world.read(World::page(start, 1)) == Some([0; PAGE_BYTES]));
}

#[test]
fn what_was_cancelled_does_not_complete_and_is_not_kept() {
    let Some(mut world) = world("32MiB") else { return };
    let start = world.fabric.allocate(PAGE_BYTES as u64).unwrap();
    world.write(start, 0, &content(0, 1));
    poll(&mut *world.writes, 1);
    world.write(start, 1, &content(0, 2));
    let cancelled = WorkId(world.next);
    world.writes.poll(0, &mut Vec::new());
    world.writes.cancel(cancelled);
    assert_eq!(world.writes.outstanding(), 0);
    world.write(start, 2, &content(0, 3));
    assert_eq!(poll(&mut *world.writes, 1)[0].id, WorkId(world.next));
    world.reads.post_read(WorkId(1000), start, ReadInto::Frame(FrameIndex(3)), 0).unwrap();
    world.reads.poll(0, &mut Vec::new());
    world.reads.cancel(WorkId(1000));
    assert_eq!(world.reads.outstanding(), 0);
    assert!(world.read(start) == Some(content(0, 3)));
}

#[test]
fn gathered_reads_begin_with_a_later_poll_or_when_enough_are_posted() {
    const PAGES: usize = GATHERED_MAX + 1;
    const POSTED: Nanos = 1_000_000;
    let Some(mut world) = world("32MiB") else { return };
    let start = world.fabric.allocate((PAGES * PAGE_BYTES) as u64).unwrap();
    for page in 0..PAGES {
        world.write(World::page(start, page as u64), page, &content(page as u64, 1));
    }
    poll(&mut *world.writes, PAGES);
    let mut done = Vec::with_capacity(PAGES);
    let post = |reads: &mut dyn QueuePair, pages: usize| {
        for page in 0..pages {
            let (id, into) = (WorkId(page as u64), ReadInto::Frame(FrameIndex(page as u32)));
            reads.post_read(id, World::page(start, page as u64), into, POSTED).unwrap();
        }
    };
    let is_quiet = |reads: &mut dyn QueuePair, now: Nanos| {
        // As long as a disk takes for many reads: what had begun would be there.
        let begun = std::time::Instant::now();
        let mut none = Vec::with_capacity(1);
        while begun.elapsed() < std::time::Duration::from_millis(20) && none.is_empty() {
            reads.poll(now, &mut none);
        }
        none.is_empty()
    };
    let mut finish = |reads: &mut dyn QueuePair, now: Nanos, count: usize| {
        while done.len() < count {
            reads.poll(now, &mut done);
        }
        assert!(done.drain(..).all(|completion| completion.status == Status::Done));
    };
    let reads = &mut *world.reads;
    reads.set_posting(Posting::Alone);
    post(reads, 2);
    assert!(is_quiet(reads, POSTED + ALONE_AGE_MAX - 1));
    finish(reads, POSTED + ALONE_AGE_MAX, 2);
    post(reads, GATHERED_MAX);
    finish(reads, POSTED, GATHERED_MAX);
    // What was cancelled while it was gathered does not end, and keeps nothing from beginning.
    post(reads, 2);
    reads.cancel(WorkId(0));
    assert!(is_quiet(reads, POSTED));
    reads.set_posting(Posting::AtOnce);
    finish(reads, POSTED, 1);
    // A disk that has nothing to do does not wait for a second one.
    reads.set_posting(Posting::Together);
    post(reads, 1);
    finish(reads, POSTED, 1);
    assert_eq!(reads.outstanding(), 0);
}

#[test]
fn damage_on_the_disk_is_an_error() {
    const PAGES: u64 = 64;
    let Some(mut world) = world("32MiB") else { return };
    let start = world.fabric.allocate(PAGES * PAGE_BYTES as u64).unwrap();
    for page in 0..PAGES {
        world.write(World::page(start, page), 0, &content(page, 1));
        poll(&mut *world.writes, 1);
    }
    let file = std::fs::OpenOptions::new().write(true).open(world.folder.path().join("store")).unwrap();
    for page in (0..PAGES).step_by(2) {
        let location = world.fabric.shared.index.location(PageIndex(page as u32)).unwrap();
        file.write_all_at(b"other", LOG_OFFSET + location.start() * 512 + 99 * (page % 40)).unwrap();
    }
    file.sync_all().unwrap();
    for page in 0..PAGES {
        let expected = (page % 2 == 1).then(|| content(page, 1));
        assert!(world.read(World::page(start, page)) == expected, "page {page}");
    }
}

#[test]
fn a_store_begins_empty_and_gives_its_space_back() {
    let Some(mut first) = world("32MiB") else { return };
    let path = first.folder.path().join("store");
    let start = first.fabric.allocate(PAGE_BYTES as u64).unwrap();
    first.write(start, 0, &content(0, 1));
    poll(&mut *first.writes, 1);
    let url = first.fabric.url().to_owned();
    assert!(refused(&url).contains("in use by another process"));
    // As a process that was killed leaves it.
    let kept = std::fs::read(&path).unwrap();
    let World { fabric, reads, writes, folder: _folder, .. } = first;
    drop((reads, writes));
    drop(fabric);
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
    std::fs::write(&path, kept).unwrap();
    let again = FileFabric::open(&url).unwrap();
    let frames = Arc::new(Mapping::anonymous(PAGE_BYTES).unwrap());
    let mut queue = again.queue_pair(Module::Fault, Arc::clone(&frames)).unwrap();
    let start = again.allocate(PAGE_BYTES as u64).unwrap();
    frames.write(0, &[7; PAGE_BYTES]);
    queue.post_read(WorkId(1), start, ReadInto::Frame(FrameIndex(0)), 0).unwrap();
    assert_eq!(poll(&mut *queue, 1)[0].status, Status::Done);
    assert!(frames.with_page(0, |page| *page == [0; PAGE_BYTES]));
}

fn refused(url: &str) -> String {
    match FileFabric::open(url) {
        Err(error @ FabricError::BadUrl(_)) => error.to_string(),
        other => panic!("{url}: {:?}", other.err()),
    }
}

#[test]
fn what_cannot_be_a_store_is_refused_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("precious");
    std::fs::write(&path, "a letter").unwrap();
    let set_mode = |mode| std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    set_mode(0o600);
    let url = format!("file://{}", path.display());
    if world("32MiB").is_none() {
        return;
    }
    for (url, problem) in [
        (url.clone(), "holds something else"),
        (format!("file://{}/small?size=1MiB", folder.path().display()), "type a size of at least"),
        (format!("file://{}/large?size=1000TiB", folder.path().display()), "type a size of at most"),
    ] {
        let message = refused(&url);
        assert!(message.contains(problem) && !message.contains('\n'), "{message}");
    }
    set_mode(0o644);
    assert!(refused(&url).contains("type chmod 600"));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "a letter");
}

#[test]
fn stores_in_a_folder_are_apart_and_leave_nothing() {
    let Some(mut world) = world("32MiB") else { return };
    let folder = world.folder.path().to_owned();
    let url = format!("file://{}?size=32MiB", folder.display());
    let files = || std::fs::read_dir(&folder).unwrap().count();
    let before = files();
    let stores = [1, 2].map(|version| {
        let fabric = FileFabric::open(&url).unwrap();
        let start = fabric.allocate(PAGE_BYTES as u64).unwrap();
        let mut queue = fabric.queue_pair(Module::Fault, Arc::clone(&world.frames)).unwrap();
        world.frames.write(0, &content(0, version));
        queue.post_write(WorkId(1), start, FrameIndex(0), 0).unwrap();
        assert_eq!(poll(&mut *queue, 1)[0].status, Status::Done);
        (version, fabric, start, queue)
    });
    for (version, fabric, start, queue) in stores {
        assert_eq!(files(), before);
        world.reads = queue;
        assert!(world.read(start) == Some(content(0, version)));
        drop(fabric);
    }
}

#[test]
fn the_limit_holds() {
    let Some(world) = world("32MiB") else { return };
    let all = world.fabric.shared.index.pages() as u64 * PAGE_BYTES as u64;
    let start = world.fabric.allocate(all).unwrap();
    assert!(matches!(world.fabric.allocate(PAGE_BYTES as u64), Err(FabricError::OutOfMemory { .. })));
    let refused = world.fabric.allocate(1 << 30).unwrap_err().to_string();
    let (before, size) = refused.split_once("has no room for 1 GiB more: type a smaller --memory, or size=").unwrap();
    assert!(before.starts_with("'file://") && size.ends_with("MiB or more in the URL"), "{refused}");
    let mib: u64 = size.split_once("MiB").unwrap().0.parse().unwrap();
    let least = Geometry::fitting((mib << 20) - LOG_OFFSET, SEGMENT_BYTES).unwrap();
    let less = Geometry::fitting(((mib - 2) << 20) - LOG_OFFSET, SEGMENT_BYTES).unwrap();
    assert!(least.pages_max() >= 1 << 18 && less.pages_max() < 1 << 18, "{refused}");
    world.fabric.release(start).unwrap();
    world.fabric.allocate(PAGE_BYTES as u64).unwrap();
}
