//! Layers over adversarial fabrics against a table of values, by seeds.
//!
//! Random reads and writes, some cancelled, while nodes are away and back, operations fail and are lost, and what works
//! in the background makes its steps. A page has the value of its last write that was done, or that of a later one that
//! was given up. Whoever reads a page waits until its write has ended, as paging does, except a guide.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rand::rngs::SmallRng;
use rand::{Rng as _, RngCore as _, SeedableRng as _};
use yonder_mapping::Mapping;
use yonder_units::{FrameIndex, Nanos, PAGE_BYTES};

use super::Link;
use crate::{Completion, Fabric, Module, QueuePair, ReadInto, RemoteAddress, Status, WorkId};

/// Pages of each run.
pub(crate) const PAGES: u64 = 24;
const PAGE: u64 = PAGE_BYTES as u64;
const FRAMES: u32 = 64;
const STEPS: usize = 400;
/// Reads of each page in the end, some of which the fabric has no room for.
const ATTEMPTS: usize = 5;
/// How long an operation may take. A tick is the time between two polls.
const TIMEOUT: Nanos = 20_000_000;
const TICK: Nanos = 100_000;
const SECOND: Nanos = 1_000_000_000;

/// What a run is disturbed and helped by.
pub(crate) struct Layers {
    /// The fabrics at the bottom.
    pub(crate) links: Vec<Arc<Link>>,
    /// A step of what works in the background.
    pub(crate) step: Box<dyn FnMut(Nanos)>,
    /// Whether a page is lost when a write of it fails.
    pub(crate) is_lost_by_failure: bool,
}

impl Default for Layers {
    fn default() -> Self {
        Self { links: Vec::new(), step: Box::new(|_| ()), is_lost_by_failure: false }
    }
}

struct Doing {
    page: u64,
    frame: u32,
    module: Module,
    /// The value that is written; `None` for a read.
    writes: Option<u16>,
    /// The values that a read may have.
    may_be: Vec<u16>,
    since: Nanos,
}

struct Model {
    layers: Layers,
    frames: Arc<Mapping>,
    /// For faults, write-back and a guide.
    queues: [Box<dyn QueuePair>; 3],
    fabric: Arc<dyn Fabric>,
    start: RemoteAddress,
    random: SmallRng,
    /// The values that each page may have now.
    values: Vec<Vec<u16>>,
    doing: BTreeMap<u64, Doing>,
    next_value: u16,
    next_id: u64,
    now: Nanos,
    /// Reads that were right.
    checked: u64,
}

const MODULES: [Module; 3] = [Module::Fault, Module::WriteBack, Module::Guide];

/// How a page of this value begins.
fn beginning(page: u64, value: u16) -> [u8; 4] {
    if value == 0 { [0; 4] } else { [page as u8, value as u8, (value >> 8) as u8, 0xa5] }
}

/// What a page of this value looks like. Some repeat their beginning, and others are noise.
fn content(page: u64, value: u16) -> [u8; PAGE_BYTES] {
    let mut content = [0; PAGE_BYTES];
    let (head, rest) = content.split_at_mut(4);
    head.copy_from_slice(&beginning(page, value));
    if value % 4 == 1 {
        SmallRng::seed_from_u64(page << 16 | u64::from(value)).fill_bytes(rest);
    } else {
        rest.chunks_exact_mut(4).for_each(|word| word.copy_from_slice(head));
    }
    content
}

impl Model {
    fn new(fabric: Arc<dyn Fabric>, layers: Layers, random: SmallRng) -> Self {
        let frames = Arc::new(Mapping::anonymous(FRAMES as usize * PAGE_BYTES).unwrap());
        let queues = MODULES.map(|module| fabric.queue_pair(module, Arc::clone(&frames)).unwrap());
        let start = fabric.allocate(PAGES * PAGE).unwrap();
        let values = (0..PAGES).map(|_| vec![0]).collect();
        let (doing, now) = (BTreeMap::new(), yonder_clock::now());
        Self {
            layers,
            frames,
            queues,
            fabric,
            start,
            random,
            values,
            doing,
            next_value: 0,
            next_id: 0,
            now,
            checked: 0,
        }
    }

    fn queue(&mut self, module: Module) -> &mut dyn QueuePair {
        let at = MODULES.iter().position(|other| *other == module).unwrap();
        &mut *self.queues[at]
    }

    fn page(&self, page: u64) -> RemoteAddress {
        RemoteAddress(self.start.0 + page * PAGE)
    }

    /// A new operation, if it is one that paging could post now and there is a frame for it.
    fn plan(&mut self, module: Module) -> Option<(u64, Doing)> {
        let (page, frame) = (self.random.random_range(0..PAGES), self.random.random_range(0..FRAMES));
        let others = || self.doing.values().filter(|doing| doing.page == page);
        let is_free = match module {
            Module::WriteBack => others().all(|other| other.module == Module::Guide),
            Module::Guide => true,
            _ => others().all(|other| other.writes.is_none()),
        };
        if !is_free || self.doing.values().any(|doing| doing.frame == frame) {
            return None;
        }
        self.next_id += 1;
        let mut may_be = self.values[page as usize].clone();
        may_be.extend(others().filter_map(|doing| doing.writes));
        let doing = Doing { page, frame, module, writes: None, may_be, since: self.now };
        Some((self.next_id, doing))
    }

    fn write(&mut self) {
        let Some((id, mut doing)) = self.plan(Module::WriteBack) else { return };
        self.next_value += 1;
        let (to, value, frame, now) = (self.page(doing.page), self.next_value, FrameIndex(doing.frame), self.now);
        self.frames.write(frame.offset(), &content(doing.page, value));
        if self.queue(Module::WriteBack).post_write(WorkId(id), to, frame, now).is_ok() {
            let beside = self.doing.values_mut().filter(|other| other.page == doing.page);
            beside.for_each(|other| other.may_be.push(value));
            doing.writes = Some(value);
            self.doing.insert(id, doing);
        }
    }

    fn read(&mut self, module: Module) {
        let Some((id, doing)) = self.plan(module) else { return };
        let (from, into, now) = (self.page(doing.page), ReadInto::Frame(FrameIndex(doing.frame)), self.now);
        if self.queue(module).post_read(WorkId(id), from, into, now).is_ok() {
            self.doing.insert(id, doing);
        }
    }

    /// Cancels what takes longer than this.
    fn cancel(&mut self, timeout: Nanos) {
        let is_late = |doing: &Doing| doing.since + timeout < self.now;
        let ids: Vec<u64> = self.doing.iter().filter(|(_, doing)| is_late(doing)).map(|(id, _)| *id).collect();
        for id in ids {
            let doing = self.doing.remove(&id).expect("it is there");
            self.queue(doing.module).cancel(WorkId(id));
            self.values[doing.page as usize].extend(doing.writes);
            self.frames.write(FrameIndex(doing.frame).offset(), &[0xcc; PAGE_BYTES]);
        }
    }

    fn poll(&mut self) {
        let mut completions = Vec::with_capacity(32);
        self.now += TICK;
        let now = self.now;
        self.queues.iter_mut().for_each(|queue| queue.poll(now, &mut completions));
        for Completion { id, status } in completions {
            let doing = self.doing.remove(&id.0).expect("it ends once, and not after it was cancelled");
            let values = &mut self.values[doing.page as usize];
            match doing.writes {
                Some(value) if status == Status::Done => *values = vec![value],
                Some(value) => values.push(value),
                None if status == Status::Done => self.check(&doing),
                None => {}
            }
        }
    }

    fn check(&mut self, doing: &Doing) {
        self.checked += 1;
        let mut found = [0; PAGE_BYTES];
        self.frames.read(FrameIndex(doing.frame).offset(), &mut found);
        let mut begins = doing.may_be.iter().filter(|value| found[..4] == beginning(doing.page, **value));
        let is_right = begins.any(|value| found == content(doing.page, *value));
        let head = &found[..4];
        assert!(is_right, "page {} is {head:?} and not one of {:?}", doing.page, doing.may_be);
    }

    fn disturb(&mut self) {
        let (choice, chance) = (self.random.random_range(0..4), self.random.random_range(0..200));
        let link = &self.layers.links[self.random.random_range(0..self.layers.links.len())];
        match choice {
            0 if Arc::ptr_eq(link, &self.layers.links[0]) => link.is_away.store(true, Ordering::Relaxed),
            0 | 1 => {
                self.layers.links.iter().for_each(|link| link.is_away.store(false, Ordering::Relaxed));
                self.now += 2 * SECOND;
            }
            2 => link.failures.store(chance, Ordering::Relaxed),
            _ => link.failures.store(0, Ordering::Relaxed),
        }
    }

    fn discard(&mut self) {
        let page = self.random.random_range(0..PAGES);
        if self.doing.values().all(|doing| doing.page != page) {
            self.fabric.discard(self.page(page), PAGE).unwrap();
            self.values[page as usize] = vec![0];
        }
    }

    fn run(&mut self) {
        for _ in 0..STEPS {
            match self.random.random_range(0..100) {
                0..40 => self.write(),
                40..65 => self.read(Module::Fault),
                65..70 => self.read(Module::Guide),
                70..72 => self.disturb(),
                72..74 => self.cancel(0),
                74..76 => self.discard(),
                76..88 => self.poll(),
                _ => (self.layers.step)(self.now),
            }
            self.cancel(TIMEOUT);
        }
        self.end();
    }

    /// Everything is well again: every page is there, and right.
    fn end(&mut self) {
        for link in &self.layers.links {
            link.is_away.store(false, Ordering::Relaxed);
            link.failures.store(0, Ordering::Relaxed);
        }
        self.finish();
        for page in 0..PAGES {
            let before = self.checked;
            for _ in 0..ATTEMPTS {
                self.next_id += 1;
                let (id, from, into, now) = (self.next_id, self.page(page), ReadInto::Frame(FrameIndex(0)), self.now);
                if self.queue(Module::Fault).post_read(WorkId(id), from, into, now).is_ok() {
                    let may_be = self.values[page as usize].clone();
                    let (module, since) = (Module::Fault, self.now);
                    self.doing.insert(id, Doing { page, frame: 0, module, writes: None, may_be, since });
                }
                self.finish();
            }
            let may_be_lost = self.layers.is_lost_by_failure && self.values[page as usize].len() > 1;
            assert!(self.checked > before || may_be_lost, "page {page} cannot be read");
        }
    }

    fn finish(&mut self) {
        while !self.doing.is_empty() {
            self.poll();
            (self.layers.step)(self.now);
            self.cancel(TIMEOUT);
        }
        assert!(self.queues.iter().all(|queue| queue.outstanding() == 0));
    }
}

/// Runs `seeds` models of what `make` makes; every counter of the fabric has to count about once in each. A seed is run
/// alone if `YONDER_FABRIC_SEED` names it.
pub(crate) fn run_seeds(seeds: u64, mut make: impl FnMut(u64, &mut SmallRng) -> (Arc<dyn Fabric>, Layers)) {
    let named = std::env::var("YONDER_FABRIC_SEED").ok().map(|seed| seed.parse().expect("a seed is a number"));
    let range = named.map_or(0..seeds, |seed: u64| seed..seed + 1);
    let mut totals: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in range {
        let mut random = SmallRng::seed_from_u64(seed);
        let (fabric, layers) = make(seed, &mut random);
        let mut model = Model::new(fabric, layers, random);
        let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| model.run()));
        if let Err(cause) = ran {
            eprintln!("seed {seed} fails: YONDER_FABRIC_SEED={seed} repeats it");
            std::panic::resume_unwind(cause);
        }
        for counter in model.fabric.counters() {
            *totals.entry(counter.name).or_default() += counter.value;
        }
    }
    println!("{totals:?}");
    assert!(named.is_some() || totals.values().all(|total| *total > seeds / 2), "{totals:?}");
}
