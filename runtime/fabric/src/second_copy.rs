//! [`SecondCopy`]: a fabric over any other that keeps, in local memory, what far memory should hold; [`Copies`]: that.
//!
//! It finds mistakes of those who decide what need not be written: the pager shows each page that it forgets without
//! writing it ([`Copies::compare`]), and [`Copies`] keeps what it finds different. For tests and `bench soak --verify
//! full`: local memory holds as much as far memory.
//!
//! A page's copy is what was written last and acknowledged, as it was in its frame when the write was posted. What was
//! never written, or was discarded, is zeros.
//!
//! Who touches what: queue pairs that write put copies, when they are polled. Everybody asks.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use yonder_mapping::Mapping;
use yonder_units::{Nanos, PAGE_BYTES, PageId};

use crate::{
    CleanDrop, Completion, Counter, Credentials, Fabric, FabricError, Module, PageRead, PageWrite, PostError, Posting,
    QueuePair, ReadsAs, RemoteAddress, Status, WorkId,
};

type Content = [u8; PAGE_BYTES];

/// Ranges of bytes that a message names at most.
const NAMED_RANGES_MAX: usize = 8;

/// A fabric that keeps a second copy of what it is given.
pub struct SecondCopy {
    below: Arc<dyn Fabric>,
    copies: Arc<Copies>,
    /// Sizes of the allocations, by where they start.
    sizes: Mutex<HashMap<RemoteAddress, u64>>,
}

/// What far memory should hold, and what was found not to be that.
#[derive(Default)]
pub struct Copies {
    /// Pages that were written, by their addresses.
    pages: Mutex<BTreeMap<u64, Box<Content>>>,
    compared: AtomicU64,
    mismatches: AtomicU64,
    first: Mutex<Option<Mismatch>>,
}

/// A page that was forgotten, and is not what its next touch finds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mismatch {
    /// Which page.
    pub place: PageId,
    /// Where far memory has it.
    pub address: RemoteAddress,
    /// The bytes of the page that differ.
    pub ranges: Vec<Range<usize>>,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, address, ranges } = self;
        write!(f, "page {} of region {} (far address {:#x})", place.page.0, place.region, address.0)?;
        write!(f, " was dropped as clean, but its copy differs at bytes ")?;
        for (index, Range { start, end }) in ranges.iter().take(NAMED_RANGES_MAX).enumerate() {
            write!(f, "{}{start}..{end}", if index > 0 { ", " } else { "" })?;
        }
        match ranges.len().saturating_sub(NAMED_RANGES_MAX) {
            0 => Ok(()),
            more => write!(f, " and {more} ranges more"),
        }
    }
}

impl Copies {
    /// Compares the content of a page that is dropped with what its next touch will find.
    pub fn compare(&self, dropped: &CleanDrop, content: &Content) {
        const ZEROS: Content = [0; PAGE_BYTES];
        let pages = self.pages();
        let copy = match dropped.reads_as {
            ReadsAs::Zeros => &ZEROS,
            ReadsAs::Fetched => pages.get(&dropped.address.0).map_or(&ZEROS, Box::as_ref),
        };
        self.compared.fetch_add(1, Ordering::Relaxed);
        if dropped.vector.segments().all(|segment| content[segment.clone()] == copy[segment]) {
            return;
        }
        self.mismatches.fetch_add(1, Ordering::AcqRel);
        let differing = dropped.vector.segments().flatten().filter(|byte| content[*byte] != copy[*byte]);
        let mismatch = Mismatch { place: dropped.page_id, address: dropped.address, ranges: ranges(differing) };
        self.first.lock().expect("no code panics while it holds the mismatch").get_or_insert(mismatch);
    }

    /// Pages that were compared.
    #[must_use]
    pub fn compared(&self) -> u64 {
        self.compared.load(Ordering::Relaxed)
    }

    /// Those of them that differed.
    #[must_use]
    pub fn mismatches(&self) -> u64 {
        self.mismatches.load(Ordering::Acquire)
    }

    /// The first of these.
    #[must_use]
    pub fn first_mismatch(&self) -> Option<Mismatch> {
        self.first.lock().expect("no code panics while it holds the mismatch").clone()
    }

    fn put(&self, written: &Written) {
        let mut pages = self.pages();
        let Written { write: PageWrite { to, vector, .. }, content } = written;
        let copy = pages.entry(to.0).or_insert_with(|| Box::new([0; PAGE_BYTES]));
        vector.segments().for_each(|segment| copy[segment.clone()].copy_from_slice(&content[segment]));
    }

    fn forget(&self, start: RemoteAddress, bytes: u64) {
        let mut pages = self.pages();
        let mut beyond = pages.split_off(&start.0);
        pages.append(&mut beyond.split_off(&(start.0 + bytes)));
    }

    fn pages(&self) -> MutexGuard<'_, BTreeMap<u64, Box<Content>>> {
        self.pages.lock().expect("no code panics while it holds the copies")
    }
}

/// Ascending numbers, neighbours together.
fn ranges(numbers: impl Iterator<Item = usize>) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some(range) if range.end == number => range.end += 1,
            _ => ranges.push(number..number + 1),
        }
    }
    ranges
}

impl SecondCopy {
    /// Over a fabric of which nothing has been allocated.
    #[must_use]
    pub fn over(below: Arc<dyn Fabric>) -> Self {
        Self { below, copies: Arc::default(), sizes: Mutex::default() }
    }

    /// What far memory should hold.
    #[must_use]
    pub fn copies(&self) -> &Arc<Copies> {
        &self.copies
    }

    fn sizes(&self) -> MutexGuard<'_, HashMap<RemoteAddress, u64>> {
        self.sizes.lock().expect("no code panics while it holds the sizes")
    }
}

impl Fabric for SecondCopy {
    fn url(&self) -> &str {
        self.below.url()
    }

    fn queue_pair(&self, module: Module, frames: Arc<Mapping>) -> Result<Box<dyn QueuePair>, FabricError> {
        let below = self.below.queue_pair(module, Arc::clone(&frames))?;
        Ok(Box::new(CopyingQueuePair { below, copies: Arc::clone(&self.copies), frames, writes: HashMap::new() }))
    }

    fn allocate(&self, bytes: u64) -> Result<RemoteAddress, FabricError> {
        let start = self.below.allocate(bytes)?;
        self.sizes().insert(start, bytes);
        Ok(start)
    }

    fn release(&self, start: RemoteAddress) -> Result<(), FabricError> {
        // Before others are given the addresses.
        if let Some(bytes) = self.sizes().remove(&start) {
            self.copies.forget(start, bytes);
        }
        self.below.release(start)
    }

    fn discard(&self, start: RemoteAddress, bytes: u64) -> Result<(), FabricError> {
        // Whoever discards takes the range for zeros from now on, whatever the answer is.
        self.copies.forget(start, bytes);
        self.below.discard(start, bytes)
    }

    fn space(&self) -> Option<Credentials> {
        self.below.space()
    }

    fn is_inherited(&self) -> bool {
        self.below.is_inherited()
    }

    fn loses_operations(&self) -> bool {
        self.below.loses_operations()
    }

    fn counters(&self) -> Vec<Counter> {
        self.below.counters()
    }

    fn mapped(&self) -> Option<&Arc<Mapping>> {
        self.below.mapped()
    }

    fn copies(&self) -> Option<&Copies> {
        Some(&self.copies)
    }
}

struct CopyingQueuePair {
    below: Box<dyn QueuePair>,
    copies: Arc<Copies>,
    frames: Arc<Mapping>,
    writes: HashMap<WorkId, Written>,
}

/// A write whose end is not known.
struct Written {
    write: PageWrite,
    content: Box<Content>,
}

impl QueuePair for CopyingQueuePair {
    fn post_read_vector(&mut self, id: WorkId, read: PageRead, now: Nanos) -> Result<(), PostError> {
        self.below.post_read_vector(id, read, now)
    }

    /// Allocates, unlike others: only who writes back pays for that.
    fn post_write_vector(&mut self, id: WorkId, write: PageWrite, now: Nanos) -> Result<(), PostError> {
        self.below.post_write_vector(id, write, now)?;
        let content = self.frames.with_page(write.from.offset(), |content| Box::new(*content));
        self.writes.insert(id, Written { write, content });
        Ok(())
    }

    fn set_posting(&mut self, posting: Posting) {
        self.below.set_posting(posting);
    }

    fn poll(&mut self, now: Nanos, completions: &mut Vec<Completion>) {
        let before = completions.len();
        self.below.poll(now, completions);
        for completion in &completions[before..] {
            if let Some(written) = self.writes.remove(&completion.id)
                && completion.status == Status::Done
            {
                self.copies.put(&written);
            }
        }
    }

    fn cancel(&mut self, id: WorkId) {
        self.writes.remove(&id);
        self.below.cancel(id);
    }

    fn may_still_write(&self, start: RemoteAddress, bytes: u64) -> bool {
        self.below.may_still_write(start, bytes)
    }

    fn next_poll(&self) -> Nanos {
        self.below.next_poll()
    }

    fn outstanding(&self) -> usize {
        self.below.outstanding()
    }

    fn depth(&self) -> usize {
        self.below.depth()
    }
}

#[cfg(test)]
mod tests;
