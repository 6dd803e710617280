//! [`FramePool`]: local page buffers for fetches and standby pages.
//!
//! Frames are page-sized parts of one mapping. A frame is *bare* (the kernel does not back it, nobody is charged),
//! *spare* (backed, unused) or *held*. Holders are counted, because a standby frame that is being written may be rescued
//! meanwhile: the write still needs the content. Both lists are bounded lock-free queues, so faults can use them.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crossbeam_queue::ArrayQueue;
use yonder_fabric::Vector;
use yonder_mapping::{MapError, Mapping, Run};
use yonder_pagetable::{Event, PageTable, State};
use yonder_units::{FrameIndex, PAGE_BYTES, PageIndex};

use crate::atomic::{AtomicU8, Ordering};
use crate::budget::{Account, Budget};
use crate::digest::Digest;

pub(crate) struct FramePool {
    mapping: Arc<Mapping>,
    spare: ArrayQueue<u32>,
    bare: ArrayQueue<u32>,
    holders: Box<[AtomicU8]>,
    /// Digest of a standby frame's content, in two words, written by the reclaimer when it copies.
    digests: Box<[[AtomicU64; 2]]>,
    backed: AtomicU64,
}

impl FramePool {
    pub(crate) fn new(frames: usize) -> Result<Self, MapError> {
        let bare = ArrayQueue::new(frames);
        for frame in 0..frames as u32 {
            bare.push(frame).expect("the queue has room for every frame");
        }
        Ok(Self {
            mapping: Arc::new(Mapping::anonymous(frames * PAGE_BYTES)?),
            spare: ArrayQueue::new(frames),
            bare,
            holders: (0..frames).map(|_| AtomicU8::new(0)).collect(),
            digests: (0..frames).map(|_| Default::default()).collect(),
            backed: AtomicU64::new(0),
        })
    }

    pub(crate) fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }

    /// Takes a frame, held once: a spare one, or a bare one for which `account` is charged. `None` if there is neither.
    pub(crate) fn take(&self, budget: &Budget, account: Account) -> Option<FrameIndex> {
        let frame = match self.spare.pop() {
            Some(frame) => frame,
            None => self.take_bare(budget, account)?,
        };
        let before = self.holders[frame as usize].swap(1, Ordering::AcqRel);
        assert!(before == 0, "frame {frame} was free but held {before} times");
        Some(FrameIndex(frame))
    }

    fn take_bare(&self, budget: &Budget, account: Account) -> Option<u32> {
        if !budget.charge(account) {
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
        let once_more = |holders| (holders > 0).then_some(holders + 1);
        self.holders[frame.index()].fetch_update(Ordering::AcqRel, Ordering::Acquire, once_more).is_ok()
    }

    /// Marks `page`, on standby in `frame`, as being written, with the frame held for the write; false if the page has left
    /// standby. The frame is held before the entry says so: a rescue may take the page, and give up its hold, at any
    /// moment.
    pub(crate) fn hold_for_write(&self, table: &PageTable, page: PageIndex, frame: FrameIndex) -> bool {
        let seen = table.load(page);
        if seen.state() != State::Standby(frame) || !self.try_hold(frame) {
            return false;
        }
        let begun = table.advance(page, seen, Event::Write).is_ok();
        if !begun {
            self.release(frame);
        }
        begun
    }

    /// Ends one hold; the last makes the frame spare.
    pub(crate) fn release(&self, frame: FrameIndex) {
        let before = self.holders[frame.index()].fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0, "frame {} released twice", frame.0);
        if before == 1 {
            self.spare.push(frame.0).expect("the queue has room for every frame");
        }
    }

    pub(crate) fn digest(&self, frame: FrameIndex) -> Digest {
        Digest::from_words(self.digests[frame.index()].each_ref().map(|word| word.load(Ordering::Acquire)))
    }

    pub(crate) fn set_digest(&self, frame: FrameIndex, digest: Digest) {
        for (word, value) in self.digests[frame.index()].iter().zip(digest.to_words()) {
            word.store(value, Ordering::Release);
        }
    }

    /// Makes the bytes of a frame that `vector` does not have zeros.
    #[inline]
    pub(crate) fn clear_beside(&self, frame: FrameIndex, vector: Vector) {
        static ZEROS: [u8; PAGE_BYTES] = [0; PAGE_BYTES];
        for gap in vector.gaps() {
            self.mapping.write(frame.offset() + gap.start as u64, &ZEROS[gap]);
        }
    }

    /// Gives the backing of up to `wanted` spare frames back to the kernel and uncharges them.
    pub(crate) fn trim(&self, wanted: u64, budget: &Budget, runs: &mut Vec<Run>) -> Result<u64, MapError> {
        runs.clear();
        while (runs.len() as u64) < wanted && runs.len() < runs.capacity() {
            let Some(frame) = self.spare.pop() else { break };
            runs.push(Run { first_page: frame, pages: 1 });
        }
        self.mapping.drop_runs(runs)?;
        for run in runs.iter() {
            self.bare.push(run.first_page).expect("the queue has room for every frame");
        }
        self.backed.fetch_sub(runs.len() as u64, Ordering::AcqRel);
        budget.uncharge(runs.len() as u64);
        Ok(runs.len() as u64)
    }

    /// Local memory that the pool's own tables take, in bytes.
    pub(crate) fn metadata_bytes(&self) -> u64 {
        /// Two queue cells, a holder count and a digest.
        const FRAME_BYTES: u64 = 2 * 16 + 1 + 16;
        self.holders.len() as u64 * FRAME_BYTES
    }

    /// Frames the kernel backs, used or not.
    pub(crate) fn backed(&self) -> u64 {
        self.backed.load(Ordering::Acquire)
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
    use yonder_reclaim::{Policy, Shares};

    use super::*;

    #[test]
    fn frames_are_charged_while_they_are_backed() {
        let budget = Budget::new(&Policy::new(512, Shares::default()).unwrap());
        let frames = FramePool::new(8).unwrap();
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
        assert_eq!((budget.charged(), frames.backed(), frames.mapping().resident_pages().unwrap()), (0, 0, 0));
    }

    #[test]
    fn a_free_frame_cannot_be_held() {
        assert!(!FramePool::new(1).unwrap().try_hold(FrameIndex(0)));
    }
}
