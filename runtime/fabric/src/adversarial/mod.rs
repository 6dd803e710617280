//! [`AdversarialFabric`]: far memory that does all that a fabric may do, and as late as it may; [`model`]: what layers
//! over it must keep.
//!
//! Operations end in any order. Some fail, some are lost, all are while the node is away. A write that was cancelled,
//! or that ended with the connection, may still be executed, at any time before a later write of the page on the same
//! queue pair is. A read may take half a page at a time ([`Reads`]).

pub(crate) mod model;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use rand::rngs::SmallRng;
use rand::seq::SliceRandom as _;
use rand::{Rng as _, SeedableRng as _};
use yonder_mapping::Mapping;
use yonder_units::{FrameIndex, Nanos, PAGE_BYTES};

use crate::ranges::Ranges;
use crate::{
    Completion, Fabric, FabricError, Module, PageRead, PageWrite, PostError, Posting, QueuePair, ReadInto,
    RemoteAddress, Status, Vector, WorkId,
};

pub(crate) struct AdversarialFabric {
    pub(crate) link: Arc<Link>,
    ranges: Mutex<Ranges>,
    seeds: Mutex<SmallRng>,
}

/// What a test changes while the fabric is used.
pub(crate) struct Link {
    memory: Arc<Mapping>,
    reads: Reads,
    pub(crate) is_away: AtomicBool,
    /// Of a thousand operations.
    pub(crate) failures: AtomicU32,
    /// Whether no read is taken, and how many were not for that.
    pub(crate) is_full: AtomicBool,
    pub(crate) refused_reads: AtomicU32,
    /// How its queue pairs were told to post, one after the other.
    pub(crate) postings: Mutex<Vec<Posting>>,
}

/// How a page is read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reads {
    /// At once: a write that nobody waits for comes before it or after it.
    Whole,
    /// In two steps, between which others write.
    Halves,
}

impl AdversarialFabric {
    pub(crate) fn new(pages: usize, seed: u64, reads: Reads) -> Arc<Self> {
        let memory = Arc::new(Mapping::anonymous(pages * PAGE_BYTES).unwrap());
        let link = Link {
            memory,
            reads,
            is_away: AtomicBool::new(false),
            failures: AtomicU32::new(0),
            is_full: AtomicBool::new(false),
            refused_reads: AtomicU32::new(0),
            postings: Mutex::default(),
        };
        let ranges = Mutex::new(Ranges::new((pages * PAGE_BYTES) as u64));
        Arc::new(Self { link: Arc::new(link), ranges, seeds: Mutex::new(SmallRng::seed_from_u64(seed)) })
    }
}

impl Fabric for AdversarialFabric {
    fn url(&self) -> &str {
        "adversarial://"
    }

    fn queue_pair(&self, _module: Module, frames: Arc<Mapping>) -> Result<Box<dyn QueuePair>, FabricError> {
        if self.link.is_away.load(Ordering::Relaxed) {
            let (url, cause) = (self.url().to_owned(), "it is away".to_owned());
            return Err(FabricError::Unreachable { url, cause });
        }
        let random = SmallRng::from_rng(&mut *self.seeds.lock().unwrap());
        Ok(Box::new(AdversarialQueuePair {
            link: Arc::clone(&self.link),
            frames,
            random,
            doing: Vec::new(),
            late: Vec::new(),
        }))
    }

    fn allocate(&self, bytes: u64) -> Result<RemoteAddress, FabricError> {
        let start = self.ranges.lock().unwrap().allocate(bytes);
        start.map(RemoteAddress).ok_or_else(|| FabricError::OutOfMemory { url: self.url().to_owned(), bytes })
    }

    fn release(&self, start: RemoteAddress) -> Result<(), FabricError> {
        self.ranges.lock().unwrap().release(start.0).expect("released once");
        Ok(())
    }

    fn discard(&self, _start: RemoteAddress, _bytes: u64) -> Result<(), FabricError> {
        Ok(())
    }
}

struct AdversarialQueuePair {
    link: Arc<Link>,
    frames: Arc<Mapping>,
    random: SmallRng,
    doing: Vec<Doing>,
    /// Writes that nobody waits for.
    late: Vec<Late>,
}

struct Doing {
    id: WorkId,
    at: RemoteAddress,
    frame: FrameIndex,
    vector: Vector,
    is_write: bool,
    is_half_read: bool,
    fate: Fate,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Done,
    Failed,
    Disconnected,
    Lost,
}

struct Late {
    at: RemoteAddress,
    content: Box<[u8; PAGE_BYTES]>,
    vector: Vector,
}

impl AdversarialQueuePair {
    fn post(&mut self, id: WorkId, at: RemoteAddress, frame: FrameIndex, vector: Vector, is_write: bool) {
        let failures = self.link.failures.load(Ordering::Relaxed);
        let fate = match self.random.random_range(0..1000) {
            number if number >= failures => Fate::Done,
            number => [Fate::Failed, Fate::Disconnected, Fate::Lost][number as usize % 3],
        };
        self.doing.push(Doing { id, at, frame, vector, is_write, is_half_read: false, fate });
    }

    fn write(&self, late: &Late) {
        for segment in late.vector.segments() {
            self.link.memory.write(late.at.0 + segment.start as u64, &late.content[segment]);
        }
    }

    /// A write as it is now, since its frame may change.
    fn remember(&self, doing: &Doing) -> Late {
        let mut content = Box::new([0; PAGE_BYTES]);
        self.frames.read(doing.frame.offset(), &mut content[..]);
        Late { at: doing.at, content, vector: doing.vector }
    }

    /// Executes some of what nobody waits for.
    fn be_late(&mut self, is_due: impl Fn(&Late) -> bool, chance: f64) {
        let late = std::mem::take(&mut self.late);
        for late in late {
            if is_due(&late) && self.random.random_bool(chance) {
                self.write(&late);
            } else {
                self.late.push(late);
            }
        }
    }

    /// Takes one operation a step further. How it ended, if it has.
    fn advance(&mut self, at: usize) -> Option<Status> {
        let is_away = self.link.is_away.load(Ordering::Relaxed);
        let doing = &self.doing[at];
        let (page, is_write) = (doing.at, doing.is_write);
        let is_first = !self.doing[..at].iter().any(|other| other.at == page && (other.is_write || is_write));
        if !is_first {
            return None;
        }
        match if is_away { Fate::Disconnected } else { doing.fate } {
            Fate::Lost => None,
            Fate::Failed => Some(Status::Failed),
            Fate::Disconnected => {
                if is_write {
                    let late = self.remember(&self.doing[at]);
                    self.late.push(late);
                }
                Some(Status::Disconnected)
            }
            Fate::Done if is_write => {
                self.be_late(|late| late.at == page, 0.5);
                self.late.retain(|late| late.at != page);
                self.write(&self.remember(&self.doing[at]));
                Some(Status::Done)
            }
            Fate::Done => self.read(at),
        }
    }

    fn read(&mut self, at: usize) -> Option<Status> {
        let doing = &mut self.doing[at];
        let (part, is_over) = match (self.link.reads, doing.is_half_read) {
            (Reads::Whole, _) => (0..PAGE_BYTES, true),
            (Reads::Halves, false) => (0..PAGE_BYTES / 2, false),
            (Reads::Halves, true) => (PAGE_BYTES / 2..PAGE_BYTES, true),
        };
        doing.is_half_read = true;
        for segment in doing.vector.segments() {
            let (start, end) = (segment.start.max(part.start), segment.end.min(part.end));
            if start < end {
                let offset = doing.frame.offset() + start as u64;
                self.frames.copy_from(offset, &self.link.memory, doing.at.0 + start as u64, end - start);
            }
        }
        is_over.then_some(Status::Done)
    }
}

impl QueuePair for AdversarialQueuePair {
    fn post_read_vector(&mut self, id: WorkId, read: PageRead, _now: Nanos) -> Result<(), PostError> {
        let PageRead { from, into: ReadInto::Frame(frame), vector } = read else { panic!("nothing is mapped") };
        if self.link.is_full.load(Ordering::Relaxed) {
            self.link.refused_reads.fetch_add(1, Ordering::Relaxed);
            return Err(PostError::Full);
        }
        if self.random.random_ratio(1, 50) {
            return Err(PostError::Full);
        }
        self.post(id, from, frame, vector, false);
        Ok(())
    }

    fn post_write_vector(&mut self, id: WorkId, write: PageWrite, _now: Nanos) -> Result<(), PostError> {
        if self.random.random_ratio(1, 50) {
            return Err(PostError::Full);
        }
        let PageWrite { to, from, vector } = write;
        let is_written = |doing: &Doing| doing.is_write && doing.at == to;
        assert!(!self.doing.iter().any(is_written), "two writes of one page are outstanding");
        self.post(id, to, from, vector, true);
        Ok(())
    }

    fn set_posting(&mut self, posting: Posting) {
        self.link.postings.lock().unwrap().push(posting);
    }

    fn poll(&mut self, _now: Nanos, completions: &mut Vec<Completion>) {
        self.be_late(|_| true, 0.05);
        let mut order: Vec<WorkId> = self.doing.iter().map(|doing| doing.id).collect();
        order.shuffle(&mut self.random);
        for id in order {
            if completions.len() == completions.capacity() || self.random.random_bool(0.4) {
                continue;
            }
            let at = self.doing.iter().position(|doing| doing.id == id).unwrap();
            if let Some(status) = self.advance(at) {
                self.doing.remove(at);
                completions.push(Completion { id, status });
            }
        }
    }

    fn cancel(&mut self, id: WorkId) {
        let Some(at) = self.doing.iter().position(|doing| doing.id == id) else { return };
        let doing = self.doing.remove(at);
        if doing.is_write {
            let late = self.remember(&doing);
            self.late.push(late);
        }
    }

    fn may_still_write(&self, start: RemoteAddress, bytes: u64) -> bool {
        self.late.iter().any(|late| (start.0..start.0 + bytes).contains(&late.at.0))
    }

    fn outstanding(&self) -> usize {
        self.doing.len()
    }

    fn depth(&self) -> usize {
        64
    }
}
