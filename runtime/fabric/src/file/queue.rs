//! [`FileQueuePair`]: reads and writes of pages of a log on a disk.
//!
//! A page is read into a buffer of the ring and checked there, then copied to its frame; a write is copied into a batch
//! when it is posted. So the disk never has a frame, and an operation that is cancelled is over for its frame at once.
//!
//! Invariant: nothing is allocated after the queue pair was made.

use std::collections::VecDeque;
use std::sync::Arc;

use yonder_mapping::Mapping;
use yonder_ring::{Ring, RingError};
use yonder_store::{BufferIndex, Disk as _, Head, Posted, Read, Reader, Shape, Write, Writer, Written};
use yonder_units::{FrameIndex, Nanos, Narrow, PAGE_BYTES, PageIndex};

use super::gathering::{Found, Gathering};
use super::{RingDisk, Shared};
use crate::background::Waker;
use crate::vector::MoveBytes as _;
use crate::{
    Completion, Module, PageRead, PageWrite, PostError, Posting, QUEUE_DEPTH_MAX, QueuePair, ReadInto, RemoteAddress,
    Status, Vector, WorkId,
};

/// What a queue pair has for its transfers.
struct Sizes {
    reads: u16,
    writes: u16,
    buffer_bytes: usize,
}

/// Of those that read most of the time, a page at a time.
const READING: Sizes = Sizes { reads: 128, writes: 4, buffer_bytes: PAGE_BYTES };
/// Of write-back, in batches.
const WRITING: Sizes = Sizes { reads: 4, writes: 6, buffer_bytes: 256 << 10 };
/// Operations that a queue pair holds.
const DEPTH: usize = 256;

const _: () = assert!(DEPTH <= QUEUE_DEPTH_MAX && READING.reads as usize <= DEPTH);

/// A read that the disk has.
#[derive(Clone, Copy)]
struct Reading {
    id: WorkId,
    page: PageIndex,
    frame: FrameIndex,
    vector: Vector,
}

/// A queue pair over a ring.
pub(super) struct FileQueuePair {
    shared: Arc<Shared>,
    waker: Arc<Waker>,
    frames: Arc<Mapping>,
    disk: RingDisk,
    reader: Reader,
    writer: Writer,
    gathering: Gathering,
    first_write: u16,
    /// By buffer.
    reading: Box<[Option<Reading>]>,
    reads: usize,
    ended: VecDeque<Completion>,
}

impl FileQueuePair {
    pub(super) fn new(
        module: Module,
        shared: &Arc<Shared>,
        waker: Arc<Waker>,
        frames: Arc<Mapping>,
    ) -> Result<Self, RingError> {
        let Sizes { reads, writes, buffer_bytes } = match module {
            Module::Fault | Module::Prefetch | Module::Guide => READING,
            Module::WriteBack => WRITING,
        };
        let make = match module {
            // Who fetches ahead goes on with something else.
            Module::Prefetch | Module::Guide => Ring::unattended,
            Module::Fault | Module::WriteBack => Ring::new,
        };
        let ring = make(Arc::clone(&shared.file), reads + writes, buffer_bytes)?;
        Ok(Self {
            shared: Arc::clone(shared),
            waker,
            frames,
            disk: RingDisk { ring },
            reader: Reader::new(reads),
            writer: Writer::new(Head::Fresh, reads, writes, buffer_bytes),
            gathering: Gathering::default(),
            first_write: reads,
            reading: (0..reads).map(|_| None).collect(),
            reads: 0,
            ended: VecDeque::with_capacity(DEPTH),
        })
    }

    /// The page at `address`, if the store has it.
    fn page(&self, address: RemoteAddress) -> Option<PageIndex> {
        let page = address.0 / PAGE_BYTES as u64;
        let is_page = address.0.is_multiple_of(PAGE_BYTES as u64) && page < self.shared.index.pages() as u64;
        is_page.then(|| PageIndex(page.narrow_u32()))
    }

    fn end(&mut self, id: WorkId, status: Status) {
        self.ended.push_back(Completion { id, status });
    }

    /// Copies what was read of a page to its frame.
    fn deliver(&mut self, buffer: BufferIndex, reading: Reading) -> Status {
        let Reading { page, frame, vector, .. } = reading;
        let stored = Vector::from_word(self.shared.index.shape(page).0);
        if !stored.covers(vector) {
            // Nobody asks for bytes that he has not written.
            return Status::Failed;
        }
        stored.scatter(self.disk.buffer(buffer), vector, &self.frames, frame.offset());
        Status::Done
    }

    fn end_read(&mut self, buffer: BufferIndex, is_read: bool) {
        let slot = usize::from(buffer.0);
        let (index, disk) = (&self.shared.index, &mut self.disk);
        match self.reader.done(index, disk, buffer, is_read) {
            Read::Content { .. } => {
                let reading = self.reading[slot].take().expect("a read has a slot");
                let status = self.deliver(buffer, reading);
                self.reader.take_back(buffer);
                self.reads -= 1;
                self.end(reading.id, status);
            }
            Read::Damaged => self.end_in_vain(slot, Status::Lost),
            Read::Failed => self.end_in_vain(slot, Status::Failed),
            Read::Again | Read::Cancelled => {}
        }
    }

    fn end_in_vain(&mut self, slot: usize, status: Status) {
        let reading = self.reading[slot].take().expect("a read has a slot");
        self.reads -= 1;
        self.end(reading.id, status);
    }

    fn end_writes(&mut self, buffer: BufferIndex, is_written: bool) {
        let ended = &mut self.ended;
        let mut log = self.shared.log();
        self.writer.done(&self.shared.index, &mut log, buffer, is_written, &mut |Written { id, is_done }| {
            let status = if is_done { Status::Done } else { Status::Failed };
            ended.push_back(Completion { id: WorkId(id), status });
        });
    }
}

impl QueuePair for FileQueuePair {
    fn post_read_vector(&mut self, id: WorkId, read: PageRead, now: Nanos) -> Result<(), PostError> {
        let PageRead { from, into: ReadInto::Frame(frame), vector } = read else { panic!("a file is not mapped") };
        if self.outstanding() >= DEPTH {
            return Err(PostError::Full);
        }
        let Some(page) = self.page(from) else {
            self.end(id, Status::Failed);
            return Ok(());
        };
        match self.reader.post(&self.shared.index, &mut self.disk, page) {
            Ok(Posted::Zeros) => {
                vector.clear(&self.frames, frame.offset());
                self.end(id, Status::Done);
            }
            Ok(Posted::Reading(buffer)) => {
                self.reading[usize::from(buffer.0)] = Some(Reading { id, page, frame, vector });
                self.reads += 1;
                self.gathering.add(now);
            }
            Err(yonder_store::Full) => return Err(PostError::Full),
        }
        Ok(())
    }

    fn post_write_vector(&mut self, id: WorkId, write: PageWrite, _now: Nanos) -> Result<(), PostError> {
        if self.outstanding() >= DEPTH {
            return Err(PostError::Full);
        }
        let PageWrite { to, from, vector } = write;
        let Some(page) = self.page(to) else {
            self.end(id, Status::Failed);
            return Ok(());
        };
        let write = Write { id: id.0, page, shape: Shape(vector.to_word()), bytes: vector.bytes() };
        let frames = &self.frames;
        let fill = |into: &mut [u8]| {
            vector.gather(frames, from.offset(), into);
        };
        let mut log = self.shared.log();
        let posted = self.writer.post(&self.shared.index, &mut log, &mut self.disk, write, fill);
        if log.wants_cleaning() {
            drop(log);
            self.waker.wake();
        }
        posted.map_err(|yonder_store::Full| PostError::Full)
    }

    fn set_posting(&mut self, posting: Posting) {
        self.gathering.set_posting(posting);
    }

    fn poll(&mut self, now: Nanos, completions: &mut Vec<Completion>) {
        self.writer.flush(&mut self.disk);
        let ring = &mut self.disk.ring;
        let (begun, has_news) = (ring.begun(), ring.has_news());
        if self.gathering.is_due(Found { begun, under_way: ring.transfers() - begun, has_news }, now) {
            ring.submit();
        }
        while let Some(ended) = self.disk.ring.ended() {
            let buffer = BufferIndex(ended.buffer);
            if ended.buffer < self.first_write {
                self.end_read(buffer, ended.is_done);
            } else {
                self.end_writes(buffer, ended.is_done);
            }
        }
        while completions.len() < completions.capacity()
            && let Some(completion) = self.ended.pop_front()
        {
            completions.push(completion);
        }
    }

    fn cancel(&mut self, id: WorkId) {
        let slot = self.reading.iter().position(|slot| slot.is_some_and(|reading| reading.id == id));
        if let Some(slot) = slot {
            self.reading[slot] = None;
            self.reads -= 1;
            self.reader.cancel(BufferIndex(slot.narrow_u16()));
        } else if !self.writer.cancel(id.0) {
            self.ended.retain(|completion| completion.id != id);
        }
    }

    fn may_still_write(&self, _start: RemoteAddress, _bytes: u64) -> bool {
        // The index never hears of what was cancelled.
        false
    }

    fn outstanding(&self) -> usize {
        self.reads + self.writer.outstanding() + self.ended.len()
    }

    fn depth(&self) -> usize {
        DEPTH
    }
}
