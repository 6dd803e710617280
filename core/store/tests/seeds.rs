//! The whole store on a simulated disk, by seeds: writes, reads, cancellations and cleaning in any order of
//! completions, on a disk that works and on one that tears, loses, misdirects and damages what it is given, and says
//! that all is well.
//!
//! A page that is read must be the last that was written, or an error, and never an error on a disk that works.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use rand::rngs::SmallRng;
use rand::{Rng as _, RngCore as _, SeedableRng as _};
use yonder_store::{
    BufferIndex, Cleaner, Disk, GRAIN_BYTES, Geometry, Head, Index, Log, Posted, Read, Reader, Shape, Write, Writer,
    Written,
};
use yonder_units::{PAGE_BYTES, PageIndex};

const SEGMENT_BYTES: usize = 8 * PAGE_BYTES;
const SEGMENTS: usize = 24;
const BATCH_BYTES: usize = 4 * PAGE_BYTES;
const READS: u16 = 6;
const WRITES: u16 = 3;
/// Threads that write.
const WRITERS: usize = 2;
const CLEANER_BUFFERS: u16 = 3;
const STEPS: usize = 3_000;

/// How a disk fails.
#[derive(Clone, Copy)]
struct Faults {
    chance: f64,
    reads: &'static [Fault],
    writes: &'static [Fault],
}

#[derive(Clone, Copy)]
enum Fault {
    /// It says that it has failed, and has done nothing.
    Reported,
    /// It says that it has done what it has not.
    Lost,
    /// The right bytes but one bit; of a write, some of its grains.
    Torn,
    /// Another place.
    Misdirected,
}

impl Faults {
    const NONE: Self = Self { chance: 0.0, reads: &[], writes: &[] };
    const ALL: &'static [Fault] = &[Fault::Reported, Fault::Lost, Fault::Torn, Fault::Misdirected];

    /// Whether what was written stays on the disk.
    fn keeps_writes(self) -> bool {
        self.writes.iter().all(|fault| matches!(fault, Fault::Reported))
    }
}

/// What the disk keeps, and how it fails.
struct Platter {
    bytes: Vec<u8>,
    random: SmallRng,
    faults: Faults,
}

impl Platter {
    fn draw(&mut self, faults: &[Fault]) -> Option<Fault> {
        let fails = !faults.is_empty() && self.random.random_bool(self.faults.chance);
        fails.then(|| faults[self.random.random_range(0..faults.len())])
    }

    /// Any place where `bytes` fit.
    fn elsewhere(&mut self, bytes: usize) -> usize {
        self.random.random_range(0..=(self.bytes.len() - bytes) / GRAIN_BYTES) * GRAIN_BYTES
    }
}

enum Transfer {
    Read { offset: usize, bytes: usize },
    Write { offset: usize, bytes: usize },
}

/// One user's side of the disk.
struct SimulatedDisk {
    platter: Rc<RefCell<Platter>>,
    buffers: Vec<Vec<u8>>,
    begun: Vec<(BufferIndex, Transfer)>,
}

impl SimulatedDisk {
    fn new(platter: &Rc<RefCell<Platter>>, buffers: u16, bytes: usize) -> Self {
        Self { platter: Rc::clone(platter), buffers: (0..buffers).map(|_| vec![0; bytes]).collect(), begun: Vec::new() }
    }

    /// Ends one transfer of those that were begun, any of them.
    fn end_one(&mut self) -> Option<(BufferIndex, bool)> {
        let platter = &mut *self.platter.borrow_mut();
        if self.begun.is_empty() {
            return None;
        }
        let (buffer, transfer) = self.begun.swap_remove(platter.random.random_range(0..self.begun.len()));
        let content = &mut self.buffers[usize::from(buffer.0)];
        match transfer {
            Transfer::Read { mut offset, bytes } => {
                let fault = platter.draw(platter.faults.reads);
                match fault {
                    Some(Fault::Reported) => return Some((buffer, false)),
                    Some(Fault::Lost) => return Some((buffer, true)),
                    Some(Fault::Misdirected) => offset = platter.elsewhere(bytes),
                    Some(Fault::Torn) | None => {}
                }
                content[..bytes].copy_from_slice(&platter.bytes[offset..offset + bytes]);
                if matches!(fault, Some(Fault::Torn)) {
                    content[platter.random.random_range(0..bytes)] ^= 1 << platter.random.random_range(0..8);
                }
            }
            Transfer::Write { mut offset, bytes } => {
                let fault = platter.draw(platter.faults.writes);
                match fault {
                    Some(Fault::Reported) => return Some((buffer, false)),
                    Some(Fault::Lost) => return Some((buffer, true)),
                    Some(Fault::Misdirected) => offset = platter.elsewhere(bytes),
                    Some(Fault::Torn) | None => {}
                }
                for grain in (0..bytes).step_by(GRAIN_BYTES) {
                    if !matches!(fault, Some(Fault::Torn)) || platter.random.random_bool(0.5) {
                        let to = &mut platter.bytes[offset + grain..][..GRAIN_BYTES];
                        to.copy_from_slice(&content[grain..grain + GRAIN_BYTES]);
                    }
                }
            }
        }
        Some((buffer, true))
    }
}

impl Disk for SimulatedDisk {
    fn read(&mut self, buffer: BufferIndex, offset: u64, bytes: usize) {
        assert!(self.begun.iter().all(|(begun, _)| *begun != buffer));
        self.begun.push((buffer, Transfer::Read { offset: offset as usize, bytes }));
    }

    fn write(&mut self, buffer: BufferIndex, offset: u64, bytes: usize) {
        assert!(self.begun.iter().all(|(begun, _)| *begun != buffer));
        let is_whole = (offset as usize).is_multiple_of(PAGE_BYTES) && bytes.is_multiple_of(PAGE_BYTES);
        assert!(is_whole, "{bytes} bytes at {offset} are written with a part of a page");
        self.begun.push((buffer, Transfer::Write { offset: offset as usize, bytes }));
    }

    fn buffer(&mut self, buffer: BufferIndex) -> &mut [u8] {
        assert!(self.begun.iter().all(|(begun, _)| *begun != buffer), "the disk has {buffer:?}");
        &mut self.buffers[usize::from(buffer.0)]
    }

    fn copy(&mut self, from: BufferIndex, start: usize, to: BufferIndex, to_start: usize, bytes: usize) {
        let content = self.buffer(from)[start..start + bytes].to_vec();
        self.buffer(to)[to_start..to_start + bytes].copy_from_slice(&content);
    }
}

/// What is being done to a page.
#[derive(Clone, Copy, PartialEq)]
enum Doing {
    Writing(u64),
    Reading(BufferIndex),
}

struct World {
    random: SmallRng,
    faults: Faults,
    platter: Rc<RefCell<Platter>>,
    index: Index,
    log: Log,
    reader: (Reader, SimulatedDisk),
    writers: [(Writer, SimulatedDisk); WRITERS],
    cleaner: (Cleaner, SimulatedDisk),
    /// The version of each page that was written last.
    written: HashMap<PageIndex, u64>,
    doing: HashMap<PageIndex, Doing>,
    pages: usize,
    next: u64,
    /// Reads that ended well, and those that did not.
    reads: [usize; 2],
}

/// What is written of a page in a version, which says how long it is.
fn content(page: PageIndex, version: u64) -> Vec<u8> {
    let mut random = SmallRng::seed_from_u64(version << 32 | u64::from(page.0));
    let bytes = if version.is_multiple_of(3) { random.random_range(1..=PAGE_BYTES) } else { PAGE_BYTES };
    let mut content = vec![0; bytes];
    random.fill_bytes(&mut content);
    content
}

impl World {
    fn new(seed: u64, faults: Faults) -> Self {
        let geometry = Geometry { segments: SEGMENTS, segment_grains: SEGMENT_BYTES / GRAIN_BYTES };
        let platter = Platter {
            bytes: vec![0xa5; geometry.bytes() as usize],
            random: SmallRng::seed_from_u64(seed ^ 0xd15c),
            faults,
        };
        let platter = Rc::new(RefCell::new(platter));
        let pages = geometry.pages_max();
        Self {
            random: SmallRng::seed_from_u64(seed),
            faults,
            platter: Rc::clone(&platter),
            index: Index::new(pages, seed),
            log: Log::new(geometry),
            reader: (Reader::new(READS), SimulatedDisk::new(&platter, READS, PAGE_BYTES)),
            writers: std::array::from_fn(|_| {
                let writer = Writer::new(Head::Fresh, 0, WRITES, BATCH_BYTES);
                (writer, SimulatedDisk::new(&platter, WRITES, BATCH_BYTES))
            }),
            cleaner: (
                Cleaner::new(geometry.segment_grains, CLEANER_BUFFERS, BATCH_BYTES),
                SimulatedDisk::new(&platter, CLEANER_BUFFERS, BATCH_BYTES),
            ),
            written: HashMap::new(),
            doing: HashMap::new(),
            pages,
            next: 1,
            reads: [0; 2],
        }
    }

    fn step(&mut self) {
        let page = PageIndex(self.random.random_range(0..self.pages as u32));
        match self.random.random_range(0..100) {
            0..25 => self.write(page),
            25..45 => self.read(page),
            45..50 => self.flush(),
            50..65 => self.end_read(),
            65..80 => self.end_write(),
            80..85 => self.cancel(page),
            85..87 => self.forget(page),
            _ => _ = self.clean(),
        }
    }

    fn any_writer(&mut self) -> &mut (Writer, SimulatedDisk) {
        &mut self.writers[self.random.random_range(0..WRITERS)]
    }

    fn flush(&mut self) {
        let (writer, disk) = self.any_writer();
        writer.flush(disk);
    }

    fn write(&mut self, page: PageIndex) {
        if self.doing.contains_key(&page) {
            return;
        }
        let (id, bytes) = (self.next, content(page, self.next));
        self.next += 1;
        let (writer, disk) = &mut self.writers[self.random.random_range(0..WRITERS)];
        let write = Write { id, page, shape: Shape(bytes.len() as u64), bytes: bytes.len() };
        let posted = writer.post(&self.index, &mut self.log, disk, write, |into| into.copy_from_slice(&bytes));
        if posted.is_ok() {
            self.doing.insert(page, Doing::Writing(id));
        }
    }

    fn read(&mut self, page: PageIndex) {
        if self.doing.contains_key(&page) {
            return;
        }
        let (reader, disk) = &mut self.reader;
        match reader.post(&self.index, disk, page) {
            Ok(Posted::Zeros) => assert_eq!(self.written.get(&page), None, "{page:?} was written"),
            Ok(Posted::Reading(buffer)) => _ = self.doing.insert(page, Doing::Reading(buffer)),
            Err(_) => {}
        }
    }

    fn end_read(&mut self) {
        let (reader, disk) = &mut self.reader;
        let Some((buffer, is_read)) = disk.end_one() else { return };
        let page = self.doing.iter().find(|(_, doing)| **doing == Doing::Reading(buffer)).map(|(page, _)| *page);
        match (reader.done(&self.index, disk, buffer, is_read), page) {
            (Read::Content { bytes }, Some(page)) => {
                let expected = content(page, self.written[&page]);
                let (inside, padding) = disk.buffer(buffer)[..bytes].split_at(expected.len());
                assert!(inside == expected && padding.iter().all(|byte| *byte == 0), "{page:?} is wrong");
                assert_eq!(self.index.shape(page), Shape(expected.len() as u64));
                reader.take_back(buffer);
                self.doing.remove(&page);
                self.reads[0] += 1;
            }
            (Read::Damaged | Read::Failed, Some(page)) => {
                assert!(
                    self.platter.borrow().faults.chance > 0.0 || !self.faults.keeps_writes(),
                    "{page:?} is damaged"
                );
                self.doing.remove(&page);
                self.reads[1] += 1;
            }
            (Read::Again, Some(_)) | (Read::Cancelled, None) => {}
            (other, page) => panic!("{other:?} of {page:?}"),
        }
    }

    fn end_write(&mut self) {
        let (writer, disk) = &mut self.writers[self.random.random_range(0..WRITERS)];
        let Some((buffer, is_written)) = disk.end_one() else { return };
        let (doing, written, has_faults) = (&mut self.doing, &mut self.written, self.faults.chance > 0.0);
        writer.done(&self.index, &mut self.log, buffer, is_written, &mut |Written { id, is_done }| {
            let is_it = |doing: &Doing| *doing == Doing::Writing(id);
            let (page, _) = doing.iter().find(|(_, doing)| is_it(doing)).expect("the write is outstanding");
            let page = *page;
            assert!(is_done || has_faults);
            if is_done {
                written.insert(page, id);
            }
            doing.remove(&page);
        });
    }

    fn cancel(&mut self, page: PageIndex) {
        match self.doing.remove(&page) {
            Some(Doing::Writing(id)) => {
                assert_eq!(
                    self.writers.iter_mut().filter_map(|(writer, _)| writer.cancel(id).then_some(())).count(),
                    1
                );
                assert!(!self.writers.iter_mut().any(|(writer, _)| writer.cancel(id)));
            }
            Some(Doing::Reading(buffer)) => self.reader.0.cancel(buffer),
            None => {}
        }
    }

    fn forget(&mut self, page: PageIndex) {
        if self.doing.contains_key(&page) {
            return;
        }
        if let Some(location) = self.index.forget(page) {
            self.log.release(location);
        }
        self.written.remove(&page);
    }

    fn clean(&mut self) -> bool {
        let (cleaner, disk) = &mut self.cleaner;
        if let Some((buffer, is_done)) = disk.end_one() {
            cleaner.done(&self.index, &mut self.log, buffer, is_done);
        }
        cleaner.step(&self.index, &mut self.log, disk)
    }

    /// Ends all that was begun, and reads every page from a disk that does not fail any more.
    fn drain(&mut self) {
        self.platter.borrow_mut().faults = Faults::NONE;
        for _ in 0..10_000 {
            self.flush();
            self.end_write();
            self.end_read();
            self.clean();
        }
        assert!(self.doing.is_empty() && self.writers.iter().all(|(writer, _)| writer.is_idle()), "everything ends");
        for page in (0..self.pages as u32).map(PageIndex) {
            self.read(page);
            while self.doing.contains_key(&page) {
                self.end_read();
            }
        }
        let live: usize = (0..self.pages as u32)
            .filter_map(|page| self.index.location(PageIndex(page)))
            .map(|location| location.grains() * GRAIN_BYTES)
            .sum();
        assert_eq!(self.log.occupancy().live_bytes, live as u64, "the log counts what the index has");
    }
}

fn run(seed: u64, faults: Faults) -> World {
    let mut world = World::new(seed, faults);
    (0..STEPS).for_each(|_| world.step());
    world.drain();
    world
}

#[test]
fn a_disk_that_works_loses_nothing() {
    let mut moved = 0;
    for seed in 0..500 {
        let world = run(seed, Faults::NONE);
        assert_eq!(world.reads[1], 0);
        moved += world.log.occupancy().moved_bytes;
    }
    assert!(moved > 0, "nothing was cleaned");
}

#[test]
fn a_disk_that_lies_never_makes_a_wrong_page() {
    let (mut good, mut damaged) = (0, 0);
    for seed in 0..1_000 {
        let chance = [0.002, 0.02, 0.2][seed as usize % 3];
        let world = run(seed, Faults { chance, reads: Faults::ALL, writes: Faults::ALL });
        good += world.reads[0];
        damaged += world.reads[1];
    }
    assert!(good > damaged && damaged > 0, "{good} reads were good, {damaged} damaged");
}

/// A failed write leaves what was there, and the cleaner does not move what it has not read: once the disk works again,
/// every page can be read.
#[test]
fn what_is_told_loses_nothing() {
    let mut damaged = 0;
    for seed in 0..300 {
        let world = run(seed, Faults { chance: 0.1, reads: Faults::ALL, writes: &[Fault::Reported] });
        damaged += world.reads[1];
    }
    assert!(damaged > 0);
}

/// The log as full as it may be: every page is written over and over.
#[test]
fn a_full_log_goes_on() {
    let mut world = World::new(7, Faults::NONE);
    for round in 0..20 {
        for page in 0..world.pages as u32 {
            let (page, mut tries) = (PageIndex((page * 37 + round) % world.pages as u32), 0);
            let before = world.written.get(&page).copied();
            while world.written.get(&page).copied() == before {
                world.write(page);
                world.flush();
                world.end_write();
                world.clean();
                tries += 1;
                assert!(tries < 10_000, "the log is stuck in round {round}: {:?}", world.log.occupancy());
            }
        }
    }
    world.drain();
    assert_eq!(world.written.len(), world.pages);
}
