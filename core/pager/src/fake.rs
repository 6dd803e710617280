//! [`Fake`]: a machine for this crate's own tests, where one thread does everything.
//!
//! Its memory is a vector of pages, its far side answers at the next poll, and its kernel refuses nothing but to
//! protect what a test says is somebody else's. What the pager does among threads, and when things go wrong, is for the
//! simulator (`testing/pager-sim`) to find.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::pagetable::{HASH_KEY_BYTES, PageHasher};
use yonder_guide::MakeGuide;
use yonder_units::{Nanos, PAGE_BYTES, PageIndex, Run};

use crate::config::{Config, ConfigError, FaultPolicy};
use crate::error::{PagingError, TooManyPorts};
use crate::machine::{CopyOutcome, Machine};
use crate::pager::Pager;
use crate::queue_pair::{
    Completion, Module, PageRead, PageWrite, PostError, QUEUE_DEPTH_MAX, QueuePair, ReadInto, RemoteAddress, Status,
    WorkId,
};
use crate::region::RegionCore;
use yonder_units::Vector;

/// The machine.
pub(crate) enum Fake {}

/// Why an operation failed: no test looks at it.
#[derive(Debug)]
pub(crate) struct Refused;

impl From<PagingError> for Refused {
    fn from(_: PagingError) -> Self {
        Self
    }
}

impl From<ConfigError> for Refused {
    fn from(_: ConfigError) -> Self {
        Self
    }
}

impl From<TooManyPorts> for Refused {
    fn from(_: TooManyPorts) -> Self {
        Self
    }
}

type Content = Box<[u8; PAGE_BYTES]>;

/// Pages, of which some are backed; the others read as zeros.
pub(crate) struct Memory {
    pages: Mutex<Vec<Option<Content>>>,
    /// Pages that are somebody else's.
    foreign: Mutex<Vec<usize>>,
}

impl Memory {
    pub(crate) fn new(pages: usize) -> Self {
        Self { pages: Mutex::new(vec![None; pages]), foreign: Mutex::default() }
    }

    fn pages(&self) -> MutexGuard<'_, Vec<Option<Content>>> {
        self.pages.lock().expect("no test goes on after a panic")
    }

    fn page(&self, offset: u64) -> Content {
        self.pages()[(offset / PAGE_BYTES as u64) as usize].clone().unwrap_or_else(|| Box::new([0; PAGE_BYTES]))
    }

    fn set_page(&self, offset: u64, content: Content) {
        self.pages()[(offset / PAGE_BYTES as u64) as usize] = Some(content);
    }

    /// Somebody maps a page of their own where nothing of the region is mapped.
    pub(crate) fn put_foreign(&self, page: PageIndex, content: Content) {
        self.foreign.lock().expect("no test goes on after a panic").push(page.index());
        self.set_page(page.offset(), content);
    }

    /// Maps a page, unless one is there.
    fn map(&self, offset: u64, content: Content) -> CopyOutcome {
        let mut pages = self.pages();
        let page = &mut pages[(offset / PAGE_BYTES as u64) as usize];
        if page.is_some() {
            return CopyOutcome::Exists;
        }
        *page = Some(content);
        CopyOutcome::Installed
    }

    fn copy_of(&self, vector: Vector, offset: u64, from: &Self, from_offset: u64) {
        let (mut content, source) = (self.page(offset), from.page(from_offset));
        vector.segments().for_each(|segment| content[segment.clone()].copy_from_slice(&source[segment]));
        self.set_page(offset, content);
    }

    /// Backed pages.
    pub(crate) fn backed(&self) -> usize {
        self.pages().iter().flatten().count()
    }

    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) {
        let at = offset as usize % PAGE_BYTES;
        into.copy_from_slice(&self.page(offset)[at..at + into.len()]);
    }

    pub(crate) fn write(&self, offset: u64, from: &[u8]) {
        let (at, mut content) = (offset as usize % PAGE_BYTES, self.page(offset));
        content[at..at + from.len()].copy_from_slice(from);
        self.set_page(offset, content);
    }
}

impl Machine for Fake {
    type Memory = Memory;
    type Space = ();
    type Fabric = Arc<Memory>;
    type Thread = ();
    type Registers<'a> = ();
    type Words = &'static [u64];
    type Refusal = String;
    type Error = Refused;

    /// A microsecond later at each look.
    fn now() -> Nanos {
        static CLOCK: AtomicU64 = AtomicU64::new(0);
        CLOCK.fetch_add(1_000, Ordering::Relaxed)
    }

    fn relax() {}

    fn yield_now() {}

    fn suspend() {
        unreachable!("no unithread runs here");
    }

    fn words((): ()) -> &'static [u64] {
        &[]
    }

    fn bound_unithread(_pager: u32) -> Option<(u16, u32, FaultPolicy)> {
        None
    }

    fn bound_port(_pager: u32) -> Option<u16> {
        None
    }

    fn in_no_yield_section() -> bool {
        false
    }

    fn guest_number() -> usize {
        0
    }

    fn sleep_on(_word: &AtomicU32, _value: u32, _time: Nanos) {}

    fn wake(_word: &AtomicU32) {}

    fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().expect("no test goes on after a panic")
    }

    fn unpark((): &()) {}

    fn frames(bytes: usize) -> Result<Memory, Refused> {
        Ok(Memory::new(bytes / PAGE_BYTES))
    }

    fn address(_memory: &Memory) -> usize {
        1 << 40
    }

    fn len(memory: &Memory) -> usize {
        memory.pages().len() * PAGE_BYTES
    }

    fn read(memory: &Memory, offset: u64, into: &mut [u8]) {
        memory.read(offset, into);
    }

    fn write(memory: &Memory, offset: u64, from: &[u8]) {
        memory.write(offset, from);
    }

    fn copy(to: &Memory, offset: u64, from: &Memory, from_offset: u64) {
        to.set_page(offset, from.page(from_offset));
    }

    fn try_copy(to: &Memory, offset: u64, from: &Memory, from_offset: u64) -> Result<(), NonZeroU32> {
        Self::copy(to, offset, from, from_offset);
        Ok(())
    }

    fn try_read(memory: &Memory, offset: u64, into: &mut [u8]) -> Result<(), NonZeroU32> {
        memory.read(offset, into);
        Ok(())
    }

    fn with_page<T>(memory: &Memory, offset: u64, visit: impl FnOnce(&[u8; PAGE_BYTES]) -> T) -> T {
        visit(&memory.page(offset))
    }

    fn prefetch_page(_memory: &Memory, _offset: u64) {}

    fn discard(memory: &Memory, offset: u64, bytes: usize) -> Result<(), Refused> {
        let first = (offset / PAGE_BYTES as u64) as usize;
        memory.pages()[first..first + bytes / PAGE_BYTES].fill(None);
        Ok(())
    }

    fn drop_runs(memory: &Memory, runs: &[Run]) -> Result<(), Refused> {
        let bytes = |run: &Run| run.pages as usize * PAGE_BYTES;
        runs.iter().try_for_each(|run| Self::discard(memory, PageIndex(run.first_page).offset(), bytes(run)))
    }

    fn copy_page(
        (): &(),
        region: &Memory,
        offset: u64,
        source: &Memory,
        source_offset: u64,
    ) -> Result<CopyOutcome, String> {
        Ok(region.map(offset, source.page(source_offset)))
    }

    fn copy_pages(
        space: &(),
        region: &Memory,
        offset: u64,
        source: &Memory,
        source_offset: u64,
        pages: usize,
    ) -> Result<(usize, CopyOutcome), String> {
        for page in 0..pages {
            let at = (page * PAGE_BYTES) as u64;
            let outcome = Self::copy_page(space, region, offset + at, source, source_offset + at)?;
            if outcome != CopyOutcome::Installed {
                return Ok((page, outcome));
            }
        }
        Ok((pages, CopyOutcome::Installed))
    }

    fn zero_page((): &(), region: &Memory, offset: u64) -> Result<CopyOutcome, String> {
        Ok(region.map(offset, Box::new([0; PAGE_BYTES])))
    }

    fn write_protect(
        (): &(),
        region: &Memory,
        offset: u64,
        pages: usize,
        refused: &mut dyn FnMut(usize),
    ) -> Result<(), String> {
        let (first, foreign) =
            (PageIndex::containing(offset).index(), region.foreign.lock().expect("no test goes on after a panic"));
        (0..pages).filter(|place| foreign.contains(&(first + place))).for_each(refused);
        Ok(())
    }

    fn unprotect((): &(), _region: &Memory, _offset: u64, _pages: usize) -> Result<(), String> {
        Ok(())
    }

    fn can_lend((): &()) -> bool {
        true
    }

    fn lend((): &(), _region: &Memory, _offset: u64, _pages: usize) -> Result<(), String> {
        Ok(())
    }

    fn recall(
        (): &(),
        region: &Memory,
        offset: u64,
        pages: usize,
        is_here: &mut dyn FnMut(usize),
    ) -> Result<(), String> {
        let first = (offset / PAGE_BYTES as u64) as usize;
        let backed = region.pages();
        (0..pages).filter(|place| backed[first + place].is_some()).for_each(is_here);
        Ok(())
    }

    fn populate(region: &Memory, offset: u64, pages: usize) -> bool {
        let offsets = (0..pages).map(|page| offset + (page * PAGE_BYTES) as u64);
        offsets.for_each(|offset| _ = region.map(offset, Box::new([0; PAGE_BYTES])));
        true
    }

    fn register((): &(), _region: &Memory) -> Result<(), String> {
        Ok(())
    }

    fn url(_fabric: &Arc<Memory>) -> &str {
        "fake://"
    }

    fn queue_pair(far: &Arc<Memory>, _: Module, frames: &Arc<Memory>) -> Result<Box<dyn QueuePair>, Refused> {
        Ok(Box::new(Queue { frames: Arc::clone(frames), far: Arc::clone(far), done: Vec::new() }))
    }

    fn loses_operations(_fabric: &Arc<Memory>) -> bool {
        false
    }

    fn is_inherited(_fabric: &Arc<Memory>) -> bool {
        false
    }

    fn mapped(_fabric: &Arc<Memory>) -> Option<&Arc<Memory>> {
        None
    }

    fn release_far(_fabric: &Arc<Memory>, _start: RemoteAddress) -> Result<(), Refused> {
        Ok(())
    }

    fn discard_far(far: &Arc<Memory>, start: RemoteAddress, bytes: u64) -> Result<(), Refused> {
        Self::discard(far, start.0, bytes as usize)
    }
}

/// Executes what is posted at once, and says so at the next poll.
struct Queue {
    frames: Arc<Memory>,
    far: Arc<Memory>,
    done: Vec<Completion>,
}

impl Queue {
    fn end(&mut self, id: WorkId) -> Result<(), PostError> {
        self.done.push(Completion { id, status: Status::Done });
        Ok(())
    }
}

impl QueuePair for Queue {
    fn post_read_vector(&mut self, id: WorkId, read: PageRead, _now: Nanos) -> Result<(), PostError> {
        let ReadInto::Frame(frame) = read.into else { unreachable!("far memory is not mapped here") };
        self.frames.copy_of(read.vector, frame.offset(), &self.far, read.from.0);
        self.end(id)
    }

    fn post_write_vector(&mut self, id: WorkId, write: PageWrite, _now: Nanos) -> Result<(), PostError> {
        self.far.copy_of(write.vector, write.to.0, &self.frames, write.from.offset());
        self.end(id)
    }

    fn poll(&mut self, _now: Nanos, completions: &mut Vec<Completion>) {
        let room = completions.capacity() - completions.len();
        completions.extend(self.done.drain(..room.min(self.done.len())));
    }

    fn cancel(&mut self, id: WorkId) {
        self.done.retain(|completion| completion.id != id);
    }

    fn may_still_write(&self, _start: RemoteAddress, _bytes: u64) -> bool {
        false
    }

    fn outstanding(&self) -> usize {
        self.done.len()
    }

    fn depth(&self) -> usize {
        QUEUE_DEPTH_MAX
    }
}

/// A region of `pages` pages, each of which begins with its number and one.
pub(crate) fn region(pages: u32) -> Arc<RegionCore<Fake>> {
    guided_region(pages, None)
}

/// A region of which nothing was touched, of a pager that lends blocks and has 4,096 pages of local memory.
pub(crate) fn lending_region(pages: u32) -> Arc<RegionCore<Fake>> {
    let config = Config { lends: true, ..Config::with_local(16 << 20) };
    untouched_region(config, pages, None)
}

/// A region of which nothing was touched.
pub(crate) fn untouched_region(config: Config, pages: u32, make_guide: Option<MakeGuide>) -> Arc<RegionCore<Fake>> {
    let far = Arc::new(Memory::new(pages as usize));
    let pager = Pager::<Fake>::new(config, (), Arc::new(far), make_guide).expect("a valid configuration");
    let hasher = PageHasher::new(&std::array::from_fn::<u8, HASH_KEY_BYTES, _>(|byte| (byte * 37 + 11) as u8));
    let begun = Arc::new(pager).begin_region(Memory::new(pages as usize), RemoteAddress(0), hasher);
    begun.expect("nothing is refused").expect("it is the first")
}

/// As [`region`], of a pager whose ports have guides.
pub(crate) fn guided_region(pages: u32, make_guide: Option<MakeGuide>) -> Arc<RegionCore<Fake>> {
    let region = untouched_region(Config::with_local(4 << 20), pages, make_guide);
    for page in (0..pages).map(PageIndex) {
        region.bring(page.offset()).expect("local memory has room");
        region.memory().write(page.offset(), &u64::from(page.0 + 1).to_le_bytes());
    }
    region
}

/// The word at the beginning of a page of a region.
pub(crate) fn word(region: &Arc<RegionCore<Fake>>, page: u32) -> u64 {
    let mut word = [0; 8];
    let read = |word: &mut [u8; 8], memory: &Memory, at| {
        memory.read(at, word);
        Ok(())
    };
    let looked = region.look(PageIndex(page).offset(), &mut word, read, |word| *word = [0; 8]);
    looked.expect("far memory always answers");
    u64::from_le_bytes(word)
}
