//! The two hands of reclaim.
//!
//! First hand ([`Reclaimer::sweep`]): takes a block (installs wait), moves its resident pages to `Evicting`,
//! write-protects them (writers trap and wait, readers go on), copies and hashes each into a frame, unmaps them all, and
//! lets the block go. Two TLB flushes a block, whatever the number of pages. A sealed region's pages are unmapped
//! without a copy, several blocks with one flush.
//!
//! Second hand ([`Reclaimer::drain`]): takes the oldest standby pages; one whose hash is that of the node's copy is
//! forgotten, any other is written, and forgotten once the node has acknowledged it.
//!
//! The reclaimer is one thread behind one mutex; freeing ranges and sealing take the same mutex. It is the only writer
//! of remote hashes and the only one that posts writes, so two writes of a page are never in flight together.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use yonder_fabric::{Completion, QueuePair, Status, Vector, WorkId};
use yonder_mapping::Run;
use yonder_pagetable::{Event, State};
use yonder_reclaim::{Action, Policy, Standby, StandbyQueue, SweepHand};
use yonder_units::{BLOCK_PAGES, BlockIndex, FrameIndex, Nanos, PAGE_BYTES, PageIndex};

use crate::budget::Account;
use crate::damage;
use crate::digest::Digest;
use crate::pager::Pager;
use crate::region::RegionCore;
use crate::stats::Counter;

/// Sealed pages dropped with one flush.
const DROP_PAGES_MAX: usize = 128;
/// Blocks they may come from.
const DROP_BLOCKS_MAX: usize = 16;
/// First and longest pause before a failed write is posted again.
const BACKOFF_MIN: Nanos = 20_000;
const BACKOFF_MAX: Nanos = 20_000_000;
/// Shortest and longest sleep of a reclaimer with nothing to do. The longest bounds how late it sees a burst that starts
/// from rest; waiters wake it besides.
const SLEEP_MIN: Duration = Duration::from_micros(50);
const SLEEP_MAX: Duration = Duration::from_millis(5);
/// Time in which faults take one page of the margin, at the highest rate that is expected, in nanoseconds.
const PAGE_TAKEN_NS: u64 = 500;

/// What a step did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// There may be more to do at once.
    Worked,
    /// Only the node can make progress.
    Waiting,
    /// Nothing to do for this long.
    Idle(Duration),
}

/// Counters of reclaim, written by whoever holds the reclaimer and read by anyone.
#[derive(Debug, Default)]
pub(crate) struct ReclaimStats {
    pub(crate) swept_pages: Counter,
    pub(crate) swept_blocks: Counter,
    pub(crate) dropped_pages: Counter,
    pub(crate) clean_pages: Counter,
    pub(crate) dead_pages: Counter,
    pub(crate) written_bytes: Counter,
    pub(crate) saved_written_bytes: Counter,
    pub(crate) write_retries: Counter,
    pub(crate) flushed_by_age_pages: Counter,
    pub(crate) flushed_by_size_pages: Counter,
    pub(crate) quota_evicted_pages: Counter,
    pub(crate) advised_out_pages: Counter,
}

pub(crate) struct Reclaimer {
    pub(crate) regions: Vec<Option<Arc<RegionCore>>>,
    queue_pair: Box<dyn QueuePair>,
    standby: StandbyQueue,
    hand: SweepHand,
    writes: Box<[Option<Write>]>,
    free_writes: Vec<u16>,
    completions: Vec<Completion>,
    next_scan: Nanos,
    /// Whether reclaim has started and not reached the upper watermark.
    working: bool,
    taken: Vec<(PageIndex, FrameIndex)>,
    dead: Vec<PageIndex>,
    damaged: Vec<PageIndex>,
    runs: Vec<Run>,
    dropped: Vec<PageIndex>,
    swept: Vec<BlockIndex>,
}

/// One write in flight, or waiting to be posted again.
struct Write {
    region: u32,
    page: PageIndex,
    frame: FrameIndex,
    digest: Digest,
    generation: u32,
    attempts: u32,
    /// When it was posted, or when it will be.
    at: Nanos,
    posted: bool,
}

impl Reclaimer {
    pub(crate) fn new(queue_pair: Box<dyn QueuePair>) -> Self {
        let depth = queue_pair.depth().min(usize::from(u16::MAX));
        Self {
            regions: Vec::new(),
            standby: StandbyQueue::default(),
            hand: SweepHand::default(),
            writes: (0..depth).map(|_| None).collect(),
            free_writes: (0..depth as u16).rev().collect(),
            completions: Vec::with_capacity(depth),
            queue_pair,
            next_scan: 0,
            working: false,
            taken: Vec::with_capacity(BLOCK_PAGES),
            dead: Vec::with_capacity(BLOCK_PAGES),
            damaged: Vec::with_capacity(BLOCK_PAGES),
            runs: Vec::with_capacity(BLOCK_PAGES),
            dropped: Vec::with_capacity(DROP_PAGES_MAX),
            swept: Vec::with_capacity(DROP_BLOCKS_MAX),
        }
    }

    /// One bounded piece of work.
    pub(crate) fn step(&mut self, pager: &Pager, now: Nanos) -> Step {
        let step = self.take_step(pager, now);
        pager.signals.at_work.store(self.working || pager.writing.load(Ordering::Acquire) > 0, Ordering::Relaxed);
        step
    }

    fn take_step(&mut self, pager: &Pager, now: Nanos) -> Step {
        self.poll_writes(pager, now);
        let policy = pager.policy();
        let usage = pager.usage();
        let starved = pager.signals.starved.swap(false, Ordering::AcqRel);
        if starved {
            pager.drop_ahead(now);
        }
        self.working |= starved || policy.is_low(&usage);
        if !self.working {
            return self.rest(&policy, pager);
        }
        match policy.decide(&usage) {
            Action::Rest => {
                self.working = false;
                self.rest(&policy, pager)
            }
            Action::Drain(pages) => self.drain(pager, pages, now),
            Action::Sweep(room) => {
                if self.sweep(pager, room as usize) {
                    Step::Worked
                } else {
                    // Every block is held or being installed into, or nothing is mapped: standby pages are what is left.
                    self.drain(pager, Policy::DRAIN_PAGES, now)
                }
            }
            Action::Trim(pages) => {
                let trimmed = pager.frames.trim(pages, &pager.budget, &mut self.runs);
                trimmed.expect("frames can always be given back");
                Step::Worked
            }
            Action::AwaitWrites => Step::Waiting,
        }
    }

    fn rest(&self, policy: &Policy, pager: &Pager) -> Step {
        if pager.writing.load(Ordering::Acquire) > 0 {
            return Step::Waiting;
        }
        let margin = policy.margin(&pager.usage());
        Step::Idle(Duration::from_nanos(margin * PAGE_TAKEN_NS).clamp(SLEEP_MIN, SLEEP_MAX))
    }

    /// First hand: puts the resident pages of the next block on standby, or as many as `room` allows. False if no block
    /// could be taken.
    fn sweep(&mut self, pager: &Pager, room: usize) -> bool {
        let blocks: Vec<usize> =
            self.regions.iter().map(|region| region.as_ref().map_or(0, |core| core.blocks())).collect();
        let regions = &self.regions;
        let found = self.hand.advance(&blocks, |region, block| {
            let core = regions[region].as_ref().expect("only regions that are there have blocks");
            let block = BlockIndex(block as u32);
            core.counts.resident_in(block) > 0 && core.block_gate(block).try_sweep()
        });
        let Some((region, block)) = found else { return false };
        let core = Arc::clone(self.regions[region].as_ref().expect("found"));
        let block = BlockIndex(block as u32);
        if core.is_sealed() && !core.owner.is_set() {
            self.drop_sealed(pager, &core, block)
        } else {
            let swept = self.sweep_block(pager, &core, block, room);
            core.block_gate(block).end_sweep();
            swept > 0
        }
    }

    /// Sweeps a block whose gate the caller has taken. Returns the number of pages that were put on standby or forgotten.
    pub(crate) fn sweep_block(&mut self, pager: &Pager, core: &RegionCore, block: BlockIndex, room: usize) -> usize {
        self.taken.clear();
        for page in pages_of(core, block) {
            let seen = core.table.load(page);
            if self.taken.len() == room || seen.state() != State::Resident {
                continue;
            }
            let Some(frame) = pager.frames.take(&pager.budget, Account::Reclaim) else { break };
            core.table.advance_owned(page, Event::Evict);
            self.taken.push((page, frame));
        }
        let (Some((first, _)), Some((last, _))) = (self.taken.first(), self.taken.last()) else { return 0 };
        let (start, pages) = (first.offset(), (last.0 - first.0 + 1) as usize);
        pager.uffd.write_protect(&core.mapping, start, pages).expect("a registered range can be protected");
        let (taken, dead, damaged) = (&mut self.taken, &mut self.dead, &mut self.damaged);
        let unmapped = taken.len();
        dead.clear();
        damaged.clear();
        taken.retain(|(page, frame)| {
            match copy_live(pager, core, *page, *frame) {
                Ok(Copied::Live) => return true,
                Ok(Copied::Dead) => dead.push(*page),
                Err(_) => damaged.push(*page),
            }
            pager.frames.release(*frame);
            false
        });
        core.mapping.discard(start, pages * PAGE_BYTES).expect("a mapped range can be dropped");
        core.counts.uncount(block, unmapped as u32);
        pager.standby.fetch_add(taken.len() as u64, Ordering::AcqRel);
        pager.budget.uncharge(unmapped as u64);
        for page in dead {
            core.table.advance_owned(*page, Event::Free);
        }
        for page in damaged {
            damage::poison(core, *page);
        }
        let now = yonder_clock::now();
        for (page, frame) in taken {
            core.table.advance_owned(*page, Event::Evicted(*frame));
            let is_dirty = pager.frames.digest(*frame) != core.digests.get(*page);
            self.standby.push(Standby { region: core.number, page: *page, frame: *frame, since: now, is_dirty });
        }
        pager.reclaimed.swept_pages.add(self.taken.len() as u64);
        pager.reclaimed.dead_pages.add(self.dead.len() as u64);
        pager.reclaimed.swept_blocks.add(1);
        let regions = &self.regions;
        self.standby.compact(pager.standby.load(Ordering::Acquire) as usize, |entry| {
            let core = regions[entry.region as usize].as_ref();
            core.is_some_and(|core| core.table.load(entry.page).state() == State::Standby(entry.frame))
        });
        unmapped
    }

    /// Unmaps resident pages of a sealed region with one flush: those of `block`, whose gate the caller has taken, and of
    /// the blocks behind it until there are enough. False if there were none.
    fn drop_sealed(&mut self, pager: &Pager, core: &RegionCore, block: BlockIndex) -> bool {
        self.dropped.clear();
        self.runs.clear();
        self.swept.clear();
        let blocks = core.blocks() as u32;
        for step in 0..blocks {
            let block = BlockIndex((block.0 + step) % blocks);
            let is_taken = step == 0 || (core.counts.resident_in(block) > 0 && core.block_gate(block).try_sweep());
            if is_taken {
                self.swept.push(block);
                self.take_sealed_pages(core, block);
            }
            if self.dropped.len() == DROP_PAGES_MAX || self.swept.len() == self.swept.capacity() {
                break;
            }
        }
        core.mapping.drop_runs(&self.runs).expect("a mapped range can be dropped");
        for page in &self.dropped {
            core.table.advance_owned(*page, Event::Dropped);
            core.counts.uncount(page.block(), 1);
        }
        self.swept.iter().for_each(|block| core.block_gate(*block).end_sweep());
        pager.budget.uncharge(self.dropped.len() as u64);
        pager.reclaimed.dropped_pages.add(self.dropped.len() as u64);
        !self.dropped.is_empty()
    }

    /// Takes resident pages of a swept block, and one run that covers them: whatever else the run covers is not mapped.
    fn take_sealed_pages(&mut self, core: &RegionCore, block: BlockIndex) {
        let before = self.dropped.len();
        for page in pages_of(core, block) {
            if self.dropped.len() == DROP_PAGES_MAX {
                break;
            }
            if core.table.load(page).is_resident() {
                core.table.advance_owned(page, Event::Evict);
                self.dropped.push(page);
            }
        }
        if let (Some(first), Some(last)) = (self.dropped.get(before), self.dropped.last()) {
            self.runs.push(Run { first_page: first.0, pages: last.0 - first.0 + 1 });
        }
    }

    /// Second hand: takes up to `pages` of the oldest standby pages.
    pub(crate) fn drain(&mut self, pager: &Pager, pages: u64, now: Nanos) -> Step {
        let mut drained = 0;
        let mut looked = 0;
        while drained < pages && looked < 8 * pages {
            let Some(standby) = self.standby.pop() else { break };
            looked += 1;
            let Some(core) = self.regions[standby.region as usize].clone() else { continue };
            let seen = core.table.load(standby.page);
            if seen.state() != State::Standby(standby.frame) {
                continue;
            }
            if seen.write_in_flight() {
                // Its own write is out, or that of an older content: its turn comes again.
                if self.has_write(&standby) {
                    continue;
                }
                self.standby.push(standby);
                continue;
            }
            let (digest, node) = (pager.frames.digest(standby.frame), core.digests.get(standby.page));
            let are_zeros = digest.is_zeros() && node.is_zeros();
            if digest == node || are_zeros {
                let event = if are_zeros { Event::CleanZeros } else { Event::Clean };
                if core.table.advance(standby.page, seen, event).is_ok() {
                    self.forget(pager, standby.frame);
                    pager.reclaimed.clean_pages.add(1);
                    drained += 1;
                }
            } else if !self.begin_write(pager, &core, standby, digest, now) {
                self.standby.push(standby);
                return if drained > 0 { Step::Worked } else { Step::Waiting };
            } else {
                drained += 1;
            }
        }
        if drained > 0 { Step::Worked } else { Step::Waiting }
    }

    fn has_write(&self, standby: &Standby) -> bool {
        self.writes.iter().flatten().any(|write| write.frame == standby.frame && write.page == standby.page)
    }

    /// Frees the frame of a page that has left standby.
    fn forget(&self, pager: &Pager, frame: FrameIndex) {
        pager.standby.fetch_sub(1, Ordering::AcqRel);
        pager.frames.release(frame);
    }

    /// Posts the write of a dirty page; false if no write can be posted now.
    fn begin_write(&mut self, pager: &Pager, core: &RegionCore, standby: Standby, digest: Digest, now: Nanos) -> bool {
        let Some(index) = self.free_writes.pop() else { return false };
        if !pager.frames.hold_for_write(&core.table, standby.page, standby.frame) {
            // The page was rescued just now: nothing to write.
            self.free_writes.push(index);
            return true;
        }
        pager.writing.fetch_add(1, Ordering::AcqRel);
        let Standby { region, page, frame, .. } = standby;
        self.writes[usize::from(index)] =
            Some(Write { region, page, frame, digest, generation: 0, attempts: 0, at: now, posted: false });
        self.post(index, now);
        true
    }

    fn post(&mut self, index: u16, now: Nanos) {
        let write = self.writes[usize::from(index)].as_mut().expect("a write is posted while it is there");
        let core = self.regions[write.region as usize].as_ref().expect("a region outlives its writes");
        let id = WorkId(u64::from(write.generation) << 16 | u64::from(index));
        let (to, vector) = (core.remote_address(write.page), write.digest.vector);
        write.posted = self.queue_pair.post_write_vector(id, to, write.frame, vector, now).is_ok();
        write.at = now;
    }

    /// Handles acknowledgements, and posts again what failed or was lost.
    pub(crate) fn poll_writes(&mut self, pager: &Pager, now: Nanos) {
        if self.free_writes.len() == self.writes.len() {
            return;
        }
        let mut completions = std::mem::take(&mut self.completions);
        self.queue_pair.poll(now, &mut completions);
        for completion in completions.drain(..) {
            let (index, generation) = (completion.id.0 as u16, (completion.id.0 >> 16) as u32);
            let write = self.writes[usize::from(index)].as_mut().expect("a completion belongs to a write");
            assert!(
                write.posted && write.generation == generation,
                "a completion of a cancelled write: {completion:?}"
            );
            match completion.status {
                Status::Done => self.end_write(pager, index),
                Status::Failed | Status::Lost | Status::Disconnected => self.put_off(pager, index, now),
            }
        }
        self.completions = completions;
        if now >= self.next_scan {
            self.next_scan = now + BACKOFF_MIN;
            self.scan_writes(pager, now);
        }
    }

    /// Ends an acknowledged write. A page that was not rescued meanwhile is forgotten at once.
    fn end_write(&mut self, pager: &Pager, index: u16) {
        let write = self.writes[usize::from(index)].take().expect("an acknowledged write is there");
        self.free_writes.push(index);
        let core = Arc::clone(self.regions[write.region as usize].as_ref().expect("a region outlives its writes"));
        // The node's copy is known before the page can be judged again.
        core.digests.set(write.page, write.digest);
        let ended = core.table.advance_owned(write.page, Event::WriteEnded);
        pager.writing.fetch_sub(1, Ordering::AcqRel);
        let bytes = write.digest.vector.bytes();
        pager.reclaimed.written_bytes.add(bytes as u64);
        pager.reclaimed.saved_written_bytes.add((PAGE_BYTES - bytes) as u64);
        let untouched = ended.state() == State::Standby(write.frame);
        if untouched && core.table.advance(write.page, ended, Event::Clean).is_ok() {
            self.forget(pager, write.frame);
        }
        pager.frames.release(write.frame);
    }

    fn put_off(&mut self, pager: &Pager, index: u16, now: Nanos) {
        let write = self.writes[usize::from(index)].as_mut().expect("only a write that is there fails");
        write.at = now + (BACKOFF_MIN << write.attempts.min(16)).min(BACKOFF_MAX);
        write.attempts += 1;
        write.generation = write.generation.wrapping_add(1);
        write.posted = false;
        pager.reclaimed.write_retries.add(1);
    }

    fn scan_writes(&mut self, pager: &Pager, now: Nanos) {
        for index in 0..self.writes.len() as u16 {
            let Some(write) = &self.writes[usize::from(index)] else { continue };
            if write.posted && now >= write.at + pager.attempt_deadline {
                self.queue_pair.cancel(WorkId(u64::from(write.generation) << 16 | u64::from(index)));
                self.put_off(pager, index, now);
            } else if !write.posted && now >= write.at {
                self.post(index, now);
            }
        }
    }

    /// Gives up the writes of a region whose content nobody will read again.
    pub(crate) fn abandon_writes(&mut self, pager: &Pager, region: u32) {
        for index in 0..self.writes.len() as u16 {
            let Some(write) = self.writes[usize::from(index)].take_if(|write| write.region == region) else { continue };
            if write.posted {
                self.queue_pair.cancel(WorkId(u64::from(write.generation) << 16 | u64::from(index)));
            }
            let core = self.regions[region as usize].as_ref().expect("a region outlives its writes");
            core.table.advance_owned(write.page, Event::WriteEnded);
            pager.writing.fetch_sub(1, Ordering::AcqRel);
            pager.frames.release(write.frame);
            self.free_writes.push(index);
        }
    }

    /// Forgets a region that ends and has neither local pages nor writes.
    pub(crate) fn remove_region(&mut self, number: u32) {
        assert!(
            self.writes.iter().flatten().all(|write| write.region != number),
            "a region ended with a write in flight"
        );
        self.standby.remove_region(number);
        self.regions[number as usize] = None;
    }
}

/// What the first hand has found in a page.
enum Copied {
    /// Something that is kept, which is in the frame now.
    Live,
    /// Nothing that anybody needs.
    Dead,
}

/// Copies a write-protected page into a frame, with the digest of what is live of it. Fails if the memory is damaged.
fn copy_live(pager: &Pager, core: &RegionCore, page: PageIndex, frame: FrameIndex) -> Result<Copied, NonZeroU32> {
    let live = match core.owner.live(page) {
        // A page whose write has not ended is not forgotten, whatever becomes of its content.
        None if core.table.load(page).write_in_flight() => Vector::WHOLE,
        None => return Ok(Copied::Dead),
        Some(live) => live,
    };
    pager.frames.mapping().try_copy_from(frame.offset(), &core.mapping, page.offset(), PAGE_BYTES)?;
    pager.frames.mapping().with_page(frame.offset(), |content| {
        let digest = core.digests.of(live, content);
        core.digests.narrow(page, digest, content);
        pager.frames.set_digest(frame, digest);
    });
    Ok(Copied::Live)
}

/// The pages of a block; the last block of a region may be short.
pub(crate) fn pages_of(core: &RegionCore, block: BlockIndex) -> impl Iterator<Item = PageIndex> + use<> {
    let first = block.first_page().0;
    let end = (first + BLOCK_PAGES as u32).min(core.table.pages() as u32);
    (first..end).map(PageIndex)
}
