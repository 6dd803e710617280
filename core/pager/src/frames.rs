//! [`FramePool`]: local page buffers for fetches and standby pages.
//!
//! Frames are page-sized parts of one mapping. A frame is *bare* (the kernel does not back it, nobody is charged),
//! *spare* (backed, unused) or *held*. Holders are counted, because a standby frame that is being written may be
//! rescued meanwhile: the write still needs the content. Both lists are bounded lock-free queues, so faults can use
//! them.
//!
//! A page that was fetched only to be read stays in its frame ([`FramePool::keep`]), and is read there without a hold
//! ([`FramePool::read`]): a frame has a number of its *turn*, which ends when the last hold does, and whoever reads
//! looks at it before and after. The reclaimer learns of such frames by a queue of their own; each is in it at most
//! once, so it never fills up. It learns so too of a frame whose page was about to be mapped and was not
//! ([`FramePool::restand`]): it may have looked meanwhile, and let go of what had left standby.
//!
//! Invariant: the content of a frame stays what it is from the moment an entry says `Standby` of it to the end of its
//! turn.

use std::sync::Arc;

use crate::pagetable::{Event, PageTable, State};
use crossbeam_queue::ArrayQueue;
use yonder_units::{FrameIndex, Narrow, PAGE_BYTES, PageId, PageIndex, Run};

use crate::atomic::{AtomicU64, Ordering, fence};
use crate::budget::{Account, Budget};
use crate::digest::{Digest, HASH_WORDS};
use crate::machine::{Machine, Rule};
use crate::region::RegionCore;
use yonder_units::Vector;

/// A frame's word: its holders in the low byte, two flags, and the number of its turn.
const HOLDERS: u64 = 0xFF;
/// Somebody has read the page that stands here since it was last asked. May be of an earlier turn: that costs one more
/// round.
const WAS_READ: u64 = 1 << 8;
/// The reclaimer will look who stands here.
const ANNOUNCED: u64 = 1 << 9;
/// Who stands here stood here before.
const RESTANDS: u64 = 1 << 10;
const TURN: u64 = 1 << 16;

pub(crate) struct FramePool<M: Machine> {
    mapping: Arc<M::Memory>,
    spare: ArrayQueue<u32>,
    bare: ArrayQueue<u32>,
    records: Box<[Record]>,
    /// Hashes of standby pages' contents, apart from the records: with them two records would not fit a cache line.
    hashes: Box<[[AtomicU64; HASH_WORDS]]>,
    /// Frames in which pages have stayed that the reclaimer has not heard of.
    arrivals: ArrayQueue<u32>,
    backed: AtomicU64,
}

/// What is known of a frame: two in a cache line, so that whoever needs one part has the others.
#[derive(Debug)]
#[repr(align(32))]
struct Record {
    word: AtomicU64,
    /// Vector of a standby page's digest, written by whoever puts the page here; its hash is in [`FramePool::hashes`].
    vector: AtomicU64,
    /// Whose page has stayed here.
    owner: AtomicU64,
}

/// A page that has stayed in a frame; it may have left again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Arrival {
    pub(crate) frame: FrameIndex,
    pub(crate) page_id: PageId,
    /// Whether it stood there before, and could not be mapped.
    pub(crate) restands: bool,
}

impl Record {
    fn free() -> Self {
        Self { word: AtomicU64::new(0), vector: AtomicU64::new(0), owner: AtomicU64::new(0) }
    }
}

impl<M: Machine> FramePool<M> {
    /// `frames` bare frames.
    pub(crate) fn new(frames: usize) -> Result<Self, M::Error> {
        let bare = ArrayQueue::new(frames);
        for frame in 0..frames.narrow_u32() {
            bare.push(frame).expect("the queue has room for every frame");
        }
        Ok(Self {
            mapping: Arc::new(M::frames(frames * PAGE_BYTES)?),
            spare: ArrayQueue::new(frames),
            bare,
            records: (0..frames).map(|_| Record::free()).collect(),
            hashes: (0..frames).map(|_| std::array::from_fn(|_| AtomicU64::new(0))).collect(),
            arrivals: ArrayQueue::new(frames),
            backed: AtomicU64::new(0),
        })
    }

    pub(crate) fn mapping(&self) -> &Arc<M::Memory> {
        &self.mapping
    }

    /// Takes a frame, held once: a spare one, or a bare one for which `account` is charged. `None` if there is neither.
    pub(crate) fn take(&self, budget: &Budget, account: Account) -> Option<FrameIndex> {
        let frame = match self.spare.pop() {
            Some(frame) => frame,
            None => self.take_bare(budget, account)?,
        };
        let before = self.records[frame as usize].word.fetch_add(1, Ordering::AcqRel) & HOLDERS;
        assert!(before == 0, "frame {frame} was free but held {before} times");
        // The end of its last turn is seen by whoever sees anything that is written to it from here on.
        fence(Ordering::Release);
        Some(FrameIndex(frame))
    }

    fn take_bare(&self, budget: &Budget, account: Account) -> Option<u32> {
        if !budget.charge(account) && !M::breaks(Rule::FrameIsCharged) {
            return None;
        }
        let Some(frame) = self.bare.pop() else {
            budget.uncharge(1);
            return None;
        };
        self.backed.fetch_add(1, Ordering::AcqRel);
        Some(frame)
    }

    /// Holds a frame once more; false if nobody holds it any longer.
    fn try_hold(&self, frame: FrameIndex) -> bool {
        let once_more = |word| (word & HOLDERS > 0).then_some(word + 1);
        self.records[frame.index()].word.fetch_update(Ordering::AcqRel, Ordering::Acquire, once_more).is_ok()
    }

    /// Marks `page`, on standby in `frame`, as being written, with the frame held for the write; false if the page has
    /// left standby. The frame is held before the entry says so: a rescue may take the page, and give up its hold, at
    /// any moment.
    pub(crate) fn hold_for_write(&self, table: &PageTable, page: PageIndex, frame: FrameIndex) -> bool {
        let seen = table.load(page);
        if seen.state() != State::Standby(frame) || !self.try_hold(frame) {
            return false;
        }
        M::preempt();
        let begun = table.advance(page, seen, Event::Write).is_ok();
        if !begun || M::breaks(Rule::WriteHolds) {
            self.release(frame);
        }
        begun
    }

    /// Ends one hold; the last makes the frame spare.
    pub(crate) fn release(&self, frame: FrameIndex) {
        let before = self.records[frame.index()].word.fetch_sub(1, Ordering::AcqRel) & HOLDERS;
        assert!(before > 0, "frame {} released twice", frame.0);
        M::preempt();
        if before == 1 {
            if !M::breaks(Rule::TurnEnds) {
                self.records[frame.index()].word.fetch_add(TURN, Ordering::AcqRel);
            }
            self.spare.push(frame.0).expect("the queue has room for every frame");
        }
    }

    /// Leaves `page` of region `core`, which has arrived in `frame` and whose entry is the caller's, there on standby:
    /// it is what the node has.
    pub(crate) fn keep(&self, core: &RegionCore<M>, page: PageIndex, frame: FrameIndex) {
        self.set_digest(frame, core.digests.get(page));
        self.stand(&core.table, core.place(page), frame);
    }

    /// The entry of the page at `place` says that it stands in `frame`, and the reclaimer hears of it.
    pub(crate) fn stand(&self, table: &PageTable, page_id: PageId, frame: FrameIndex) {
        self.announce(table, page_id, frame, Event::Arrived(frame), ANNOUNCED);
    }

    /// The page at `place`, whose entry is the caller's and `Installing` from `frame`, stands there again: it could not
    /// be mapped. The reclaimer hears of it.
    #[cold]
    pub(crate) fn restand(&self, table: &PageTable, page_id: PageId, frame: FrameIndex) {
        self.announce(table, page_id, frame, Event::InstallFailed, ANNOUNCED | RESTANDS);
    }

    fn announce(&self, table: &PageTable, page_id: PageId, frame: FrameIndex, event: Event, flags: u64) {
        let record = &self.records[frame.index()];
        record.owner.store(u64::from(page_id.region) << 32 | u64::from(page_id.page.0), Ordering::Release);
        table.advance_owned(page_id.page, event);
        M::preempt();
        if flags & RESTANDS != 0 && M::breaks(Rule::RestandIsHeard) {
            return;
        }
        // Last: whoever takes the flag away from here on finds the owner and its entry.
        if record.word.fetch_or(flags, Ordering::AcqRel) & ANNOUNCED == 0 {
            self.arrivals.push(frame.0).expect("a frame is announced once");
        }
    }

    /// A frame in which a page has stayed since the last call.
    pub(crate) fn next_arrival(&self) -> Option<Arrival> {
        let frame = self.arrivals.pop()?;
        let record = &self.records[frame as usize];
        let before = record.word.fetch_and(!(ANNOUNCED | RESTANDS), Ordering::AcqRel);
        let owner = record.owner.load(Ordering::Acquire);
        let page_id = PageId { region: (owner >> 32) as u32, page: PageIndex((owner & 0xffff_ffff).narrow_u32()) };
        Some(Arrival { frame: FrameIndex(frame), page_id, restands: before & RESTANDS != 0 })
    }

    /// Whether the reclaimer will look who stands in `frame`.
    pub(crate) fn is_announced(&self, frame: FrameIndex) -> bool {
        self.records[frame.index()].word.load(Ordering::Acquire) & ANNOUNCED != 0
    }

    /// Reads the page that stands in `frame`, if `stands` says that it does: `None` if not, or if that changed
    /// meanwhile.
    #[inline]
    pub(crate) fn read<T>(
        &self,
        frame: FrameIndex,
        stands: impl FnOnce() -> bool,
        read: impl FnOnce(&M::Memory) -> T,
    ) -> Option<T> {
        let word = &self.records[frame.index()].word;
        let turn = word.load(Ordering::Acquire) / TURN;
        // The turn first: it is that of the page which is found to stand here after it.
        if !stands() {
            return None;
        }
        let found = read(&self.mapping);
        M::preempt();
        fence(Ordering::Acquire);
        (word.load(Ordering::Relaxed) / TURN == turn).then_some(found)
    }

    /// The page that stands in `frame` has been read once more than it was fetched for.
    #[inline]
    pub(crate) fn note_read(&self, frame: FrameIndex) {
        let word = &self.records[frame.index()].word;
        // Written once a round only: who reads what many read shares the word with them.
        if word.load(Ordering::Relaxed) & WAS_READ == 0 {
            word.fetch_or(WAS_READ, Ordering::Relaxed);
        }
    }

    /// Whether the page that stands in `frame` was noted as read since the last call.
    pub(crate) fn take_was_read(&self, frame: FrameIndex) -> bool {
        let word = &self.records[frame.index()].word;
        word.load(Ordering::Relaxed) & WAS_READ != 0 && word.fetch_and(!WAS_READ, Ordering::Relaxed) & WAS_READ != 0
    }

    pub(crate) fn digest(&self, frame: FrameIndex) -> Digest {
        let vector = self.records[frame.index()].vector.load(Ordering::Acquire);
        Digest::from_words(vector, self.hashes[frame.index()].each_ref().map(|word| word.load(Ordering::Acquire)))
    }

    pub(crate) fn set_digest(&self, frame: FrameIndex, digest: Digest) {
        let (vector, hash) = digest.to_words();
        self.records[frame.index()].vector.store(vector, Ordering::Release);
        for (word, value) in self.hashes[frame.index()].iter().zip(hash) {
            word.store(value, Ordering::Release);
        }
    }

    /// Makes the bytes of a frame that `vector` does not have zeros.
    #[inline]
    pub(crate) fn clear_beside(&self, frame: FrameIndex, vector: Vector) {
        static ZEROS: [u8; PAGE_BYTES] = [0; PAGE_BYTES];
        if M::breaks(Rule::BesideIsCleared) {
            return;
        }
        for gap in vector.gaps() {
            M::write(&self.mapping, frame.offset() + gap.start as u64, &ZEROS[gap]);
        }
    }

    /// Gives the backing of up to `wanted` spare frames back to the kernel and uncharges them.
    pub(crate) fn trim(&self, wanted: u64, budget: &Budget, runs: &mut Vec<Run>) -> Result<u64, M::Error> {
        runs.clear();
        while (runs.len() as u64) < wanted && runs.len() < runs.capacity() {
            let Some(frame) = self.spare.pop() else { break };
            runs.push(Run { first_page: frame, pages: 1 });
        }
        M::drop_runs(&self.mapping, runs)?;
        for run in runs.iter() {
            self.bare.push(run.first_page).expect("the queue has room for every frame");
        }
        self.backed.fetch_sub(runs.len() as u64, Ordering::AcqRel);
        budget.uncharge(runs.len() as u64);
        Ok(runs.len() as u64)
    }

    /// Local memory that the pool's own tables take, in bytes.
    pub(crate) fn metadata_bytes(&self) -> u64 {
        const CELL_BYTES: usize = 16;
        let cells = self.spare.capacity() + self.bare.capacity() + self.arrivals.capacity();
        (size_of_val(&*self.records) + size_of_val(&*self.hashes) + cells * CELL_BYTES) as u64
    }

    /// Frames there are.
    pub(crate) fn count(&self) -> usize {
        self.records.len()
    }

    /// Frames the kernel backs, used or not.
    pub(crate) fn backed(&self) -> u64 {
        self.backed.load(Ordering::Acquire)
    }

    /// Frames that the kernel does not back.
    pub(crate) fn bare(&self) -> u64 {
        self.bare.len() as u64
    }

    /// Backed frames that nobody uses.
    pub(crate) fn spare(&self) -> u64 {
        self.spare.len() as u64
    }
}

#[cfg(all(test, yonder_loom))]
mod model;

#[cfg(all(test, not(yonder_loom)))]
mod tests {
    use crate::reclaim::{Policy, Shares};

    use super::*;
    use crate::fake::{Fake, Memory};

    #[test]
    fn frames_are_charged_while_they_are_backed() {
        let budget = Budget::new(&Policy::new(512, Shares::default()).unwrap());
        let frames = FramePool::<Fake>::new(8).unwrap();
        let (one, two) =
            (frames.take(&budget, Account::Reclaim).unwrap(), frames.take(&budget, Account::Reclaim).unwrap());
        frames.mapping().write(one.offset(), b"x");
        frames.mapping().write(two.offset(), b"x");
        assert!(frames.try_hold(one));
        frames.release(one);
        frames.release(two);
        assert_eq!((budget.charged(), frames.backed(), frames.spare()), (2, 2, 1));
        frames.release(one);
        assert_eq!(frames.trim(9, &budget, &mut Vec::with_capacity(9)).unwrap(), 2);
        assert_eq!((budget.charged(), frames.backed(), frames.mapping().backed()), (0, 0, 0));
    }

    /// A frame in which page 1 of region 2 stays.
    fn staying() -> (FramePool<Fake>, PageTable, FrameIndex) {
        let budget = Budget::new(&Policy::new(512, Shares::default()).unwrap());
        let (frames, table) = (FramePool::new(2).unwrap(), PageTable::new(2));
        let frame = frames.take(&budget, Account::Fault).unwrap();
        for event in [Event::Install, Event::Installed, Event::Evict, Event::Dropped, Event::Fetch { port: 0, slot: 0 }]
        {
            table.advance_owned(PageIndex(1), event);
        }
        frames.stand(&table, PageId { region: 2, page: PageIndex(1) }, frame);
        (frames, table, frame)
    }

    #[test]
    fn a_page_that_stays_is_announced_once_and_read_where_it_is() {
        let (frames, table, frame) = staying();
        frames.mapping().write(frame.offset(), b"stays");
        let stands = || table.load(PageIndex(1)).state() == State::Standby(frame);
        let read = |frames: &Memory| {
            let mut bytes = [0; 5];
            frames.read(frame.offset(), &mut bytes);
            bytes
        };
        assert_eq!(frames.read(frame, stands, read), Some(*b"stays"));
        let page_id = PageId { region: 2, page: PageIndex(1) };
        assert_eq!(frames.next_arrival(), Some(Arrival { frame, page_id, restands: false }));
        assert_eq!(frames.next_arrival(), None);
        // Another turn begins while it is read.
        assert_eq!(frames.read(frame, stands, |_| frames.release(frame)), None);
        assert_eq!(frames.read(frame, || false, read), None);
    }

    #[test]
    fn a_page_that_could_not_be_mapped_is_announced_again() {
        let (frames, table, frame) = staying();
        let page_id = PageId { region: 2, page: PageIndex(1) };
        let fail = || {
            table.advance_owned(page_id.page, Event::Install);
            frames.restand(&table, page_id, frame);
            assert_eq!(table.load(page_id.page).state(), State::Standby(frame));
        };
        // Once, however often it fails before the reclaimer looks.
        (0..3).for_each(|_| fail());
        assert_eq!(frames.next_arrival(), Some(Arrival { frame, page_id, restands: true }));
        assert_eq!(frames.next_arrival(), None);
        fail();
        assert_eq!(frames.next_arrival(), Some(Arrival { frame, page_id, restands: true }));
        assert_eq!(frames.next_arrival(), None);
    }

    #[test]
    fn a_second_read_is_noted_until_it_is_asked_for() {
        let (frames, _, frame) = staying();
        assert!(!frames.take_was_read(frame));
        frames.note_read(frame);
        frames.note_read(frame);
        assert!(frames.take_was_read(frame) && !frames.take_was_read(frame));
        frames.release(frame);
    }

    #[test]
    fn a_free_frame_cannot_be_held() {
        assert!(!FramePool::<Fake>::new(1).unwrap().try_hold(FrameIndex(0)));
    }
}
