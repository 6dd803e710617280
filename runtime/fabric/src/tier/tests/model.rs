//! A tiered store against a table of values, by seeds.
//!
//! Random reads and writes, some cancelled, while the node is away and back, operations fail and are lost, and the mover moves.
//! A page has the value of its last write that was done, or that of a later one that was given up. Whoever cancels, as paging
//! does, has waited before.

use std::collections::HashMap;

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

use super::*;

const PAGES: u64 = 24;
const SEEDS: u64 = 1500;
const STEPS: usize = 400;
/// Reads of each page in the end, some of which the fabric has no room for.
const ATTEMPTS: usize = 4;

struct Doing {
    page: u64,
    frame: u32,
    /// The value that is written; `None` for a read.
    writes: Option<u16>,
    /// The values that a read may have.
    may_be: Vec<u16>,
    is_guide: bool,
    since: Nanos,
}

struct Model {
    scene: Scene,
    guide: Box<dyn QueuePair>,
    random: SmallRng,
    /// The values that each page may have now.
    values: Vec<Vec<u16>>,
    doing: HashMap<WorkId, Doing>,
    next_value: u16,
    /// Reads that were right.
    checked: u64,
}

/// What a page of this value looks like: zeros, if it is 0.
fn content(page: u64, value: u16) -> [u8; PAGE_BYTES] {
    let word = if value == 0 { [0; 4] } else { [page as u8, value as u8, (value >> 8) as u8, 0xa5] };
    std::array::from_fn(|byte| word[byte % 4])
}

impl Model {
    fn new(seed: u64) -> Self {
        let mut random = SmallRng::seed_from_u64(seed);
        let scene = Scene::new(PAGES, random.random_range(2..=PAGES + 4), seed);
        let guide = scene.fabric.queue_pair(Module::Guide, Arc::clone(&scene.frames)).unwrap();
        let values = (0..PAGES).map(|_| vec![0]).collect();
        Self { scene, guide, random, values, doing: HashMap::new(), next_value: 0, checked: 0 }
    }

    /// A frame that nobody uses.
    fn frame(&mut self) -> Option<u32> {
        let frame = self.random.random_range(2..FRAMES as u32);
        (!self.doing.values().any(|doing| doing.frame == frame)).then_some(frame)
    }

    fn has(&self, page: u64, is_write: bool, with_guide: bool) -> bool {
        let is_one = |doing: &&Doing| {
            doing.page == page && doing.writes.is_some() == is_write && (with_guide || !doing.is_guide)
        };
        self.doing.values().any(|doing| is_one(&doing))
    }

    fn write(&mut self) {
        let page = self.random.random_range(0..PAGES);
        // As paging does: a page that is fetched is not written, and one write at a time.
        if self.has(page, true, true) || self.has(page, false, false) {
            return;
        }
        let Some(frame) = self.frame() else { return };
        self.next_value += 1;
        let (id, to, value) = (self.scene.id(), self.scene.page(page), self.next_value);
        self.scene.frames.write(FrameIndex(frame).offset(), &content(page, value));
        if self.scene.writes.post_write(id, to, FrameIndex(frame), self.scene.now).is_ok() {
            self.doing.values_mut().filter(|doing| doing.page == page).for_each(|doing| doing.may_be.push(value));
            let since = self.scene.now;
            let writes = Some(value);
            self.doing.insert(id, Doing { page, frame, writes, may_be: Vec::new(), is_guide: false, since });
        }
    }

    fn read(&mut self, is_guide: bool) {
        let page = self.random.random_range(0..PAGES);
        if self.has(page, true, true) && !is_guide {
            return;
        }
        let Some(frame) = self.frame() else { return };
        let (id, from, into) = (self.scene.id(), self.scene.page(page), ReadInto::Frame(FrameIndex(frame)));
        let mut may_be = self.values[page as usize].clone();
        may_be.extend(self.doing.values().filter(|doing| doing.page == page).filter_map(|doing| doing.writes));
        let queue = if is_guide { &mut self.guide } else { &mut self.scene.reads };
        if queue.post_read(id, from, into, self.scene.now).is_ok() {
            self.doing.insert(id, Doing { page, frame, writes: None, may_be, is_guide, since: self.scene.now });
        }
    }

    fn cancel(&mut self, patience: Nanos) {
        let limit = self.scene.now.saturating_sub(patience);
        let ids: Vec<WorkId> = self.doing.iter().filter(|(_, doing)| doing.since < limit).map(|(id, _)| *id).collect();
        for id in ids {
            let doing = self.doing.remove(&id).unwrap();
            match (doing.writes, doing.is_guide) {
                (Some(value), _) => {
                    self.scene.writes.cancel(id);
                    self.values[doing.page as usize].push(value);
                }
                (None, true) => self.guide.cancel(id),
                (None, false) => self.scene.reads.cancel(id),
            }
            self.scene.frames.write(FrameIndex(doing.frame).offset(), &[0xcc; PAGE_BYTES]);
        }
    }

    fn poll(&mut self) {
        let mut completions = Vec::with_capacity(32);
        self.scene.now += 100_000;
        self.scene.writes.poll(self.scene.now, &mut completions);
        self.scene.reads.poll(self.scene.now, &mut completions);
        self.guide.poll(self.scene.now, &mut completions);
        for Completion { id, status } in completions {
            let doing = self.doing.remove(&id).expect("it ends once, and not after it was cancelled");
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
        self.scene.frames.read(FrameIndex(doing.frame).offset(), &mut found);
        let is_right = doing.may_be.iter().any(|value| found == content(doing.page, *value));
        let beginning = &found[..4];
        assert!(is_right, "page {} is {beginning:?} and not one of {:?}", doing.page, doing.may_be);
    }

    fn disturb(&mut self) {
        let (near, far) = (&self.scene.near.link, &self.scene.far.link);
        match self.random.random_range(0..6) {
            0 => near.is_away.store(true, Ordering::Relaxed),
            1 | 2 => {
                near.is_away.store(false, Ordering::Relaxed);
                self.scene.now += 2 * SECOND;
            }
            3 => near.failures.store(self.random.random_range(0..200), Ordering::Relaxed),
            4 => far.failures.store(self.random.random_range(0..200), Ordering::Relaxed),
            _ => {
                near.failures.store(0, Ordering::Relaxed);
                far.failures.store(0, Ordering::Relaxed);
            }
        }
    }

    fn discard(&mut self) {
        let page = self.random.random_range(0..PAGES);
        if !self.has(page, true, true) && !self.has(page, false, true) {
            self.scene.fabric.discard(self.scene.page(page), PAGE).unwrap();
            self.values[page as usize] = vec![0];
        }
    }

    fn run(&mut self) {
        for _ in 0..STEPS {
            match self.random.random_range(0..100) {
                0..40 => self.write(),
                40..65 => self.read(false),
                65..70 => self.read(true),
                70..72 => self.disturb(),
                72..74 => self.cancel(0),
                74..76 => self.discard(),
                76..88 => self.poll(),
                _ => self.scene.step(),
            }
            self.cancel(20_000_000);
        }
        self.end();
    }

    /// Everything is well again: every page is there, and right.
    fn end(&mut self) {
        for link in [&self.scene.near.link, &self.scene.far.link] {
            link.is_away.store(false, Ordering::Relaxed);
            link.failures.store(0, Ordering::Relaxed);
        }
        while !self.doing.is_empty() {
            self.poll();
            self.scene.step();
            self.cancel(20_000_000);
        }
        for page in 0..PAGES {
            let before = self.checked;
            for _ in 0..ATTEMPTS {
                self.read_page(page);
                while !self.doing.is_empty() {
                    self.poll();
                    self.scene.step();
                }
            }
            assert!(self.checked > before, "page {page} cannot be read");
        }
    }

    fn read_page(&mut self, page: u64) {
        let (id, from, frame) = (self.scene.id(), self.scene.page(page), 2);
        let may_be = self.values[page as usize].clone();
        let into = ReadInto::Frame(FrameIndex(frame));
        if self.scene.reads.post_read(id, from, into, self.scene.now).is_ok() {
            let doing = Doing { page, frame, writes: None, may_be, is_guide: false, since: self.scene.now };
            self.doing.insert(id, doing);
        }
    }
}

#[test]
fn by_seeds_never_a_wrong_page() {
    let seeds = match std::env::var("YONDER_TIER_SEED") {
        Ok(seed) => seed.parse().map(|seed: u64| seed..seed + 1).expect("a seed is a number"),
        Err(_) => 0..SEEDS,
    };
    let mut totals: HashMap<&str, u64> = HashMap::new();
    for seed in seeds.clone() {
        let mut model = Model::new(seed);
        let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| model.run()));
        if let Err(cause) = ran {
            eprintln!("seed {seed} fails: YONDER_TIER_SEED={seed} repeats it");
            std::panic::resume_unwind(cause);
        }
        for counter in model.scene.fabric.counters() {
            *totals.entry(counter.name).or_default() += counter.value;
        }
    }
    let everything_happens = totals.values().all(|total| *total > seeds.end - seeds.start);
    assert!(everything_happens || seeds.end - seeds.start < SEEDS, "{totals:?}");
    println!("{totals:?}");
}
