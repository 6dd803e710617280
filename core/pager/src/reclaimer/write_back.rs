//! The cleaner, the flusher, and the writes of both.
//!
//! The cleaner ([`Reclaimer::drain`]) needs frames: it takes the oldest standby pages out of the queue, and a page
//! leaves standby once it is clean. The flusher ([`Reclaimer::flush`]) needs none: it writes pages that have stood for
//! long, or many at once, and they stay on standby, clean, until the cleaner comes to them. A touch meanwhile needs
//! no fetch in either case. Each page has at most one write in flight; if the cleaner comes to one that the flusher
//! is writing, that write frees the frame too.

use std::sync::Arc;
use std::time::Duration;

use crate::pagetable::{Event, State};
use crate::reclaim::{FlushCause, Standby};
use yonder_units::{FrameIndex, Nanos, Narrow, PAGE_BYTES, PageIndex};

use super::{FarRange, Pass, Reclaimer, SLEEP_MAX, Step};
use crate::clean_drop::{CleanDrop, ReadsAs};
use crate::digest::Digest;
use crate::machine::{Machine, Rule};
use crate::pager::Pager;
use crate::queue_pair::{PageWrite, Status, WorkId};
use crate::region::RegionCore;
use yonder_units::Vector;

/// First and longest pause before a failed write is posted again.
const BACKOFF_MIN: Nanos = 20_000;
const BACKOFF_MAX: Nanos = 20_000_000;
/// Pages that the flusher looks at in one step.
const FLUSH_PAGES_MAX: usize = 64;

/// What becomes of a page once its write is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// Its frame is freed.
    Free,
    /// It stays on standby, clean.
    Clean,
}

/// One write in flight, or waiting to be posted again.
pub(super) struct Write {
    pub(super) region: u32,
    page: PageIndex,
    frame: FrameIndex,
    digest: Digest,
    generation: u32,
    attempts: u32,
    purpose: Purpose,
    /// When it was posted, or when it will be.
    at: Nanos,
    posted: bool,
}

impl<M: Machine> Reclaimer<M> {
    /// Cleaner: takes up to `pages` of the oldest standby pages, but for those that were read since they came
    /// there: their turn comes again.
    pub(crate) fn drain(&mut self, pages: u64, pass: Pass<'_, M>) -> Step {
        self.take_arrivals(pass);
        let (drained, spared) = self.drain_oldest(pages, pass);
        self.drained += drained;
        if drained + spared > 0 { Step::Worked } else { Step::Waiting }
    }

    /// See [`Reclaimer::drain`]. How many pages leave standby, or will once they are written, and how many have another
    /// turn.
    fn drain_oldest(&mut self, pages: u64, Pass { pager, now }: Pass<'_, M>) -> (u64, u64) {
        let (mut drained, mut spared) = (0, 0);
        // Each entry once: what is put back is what it was a moment ago, while the caller has the reclaimer.
        let (mut looked, most) = (0, (8 * pages).min(self.standby.entries() as u64));
        while drained < pages && looked < most {
            let Some(standby) = self.standby.pop() else { break };
            looked += 1;
            let Some(core) = self.regions[standby.region as usize].clone() else { continue };
            let seen = core.table.load(standby.page);
            if seen.state() != State::Standby(standby.frame) {
                continue;
            }
            if seen.write_in_flight() {
                if self.frees_by_write(pager, &standby) {
                    drained += 1;
                } else {
                    // An older content is being written: its turn comes again.
                    self.standby.push(standby);
                }
                continue;
            }
            if core.order.holds(standby.page) {
                // Neither written nor taken for what the node has: its turn comes again.
                self.standby.push(standby);
                continue;
            }
            let (digest, node) = (pager.local.frames.digest(standby.frame), core.digests.get(standby.page));
            M::preempt();
            let are_zeros = digest.is_zeros() && node.is_zeros();
            let is_clean = digest == node || are_zeros;
            if pager.local.frames.take_was_read(standby.frame) {
                self.standby.push(Standby { since: now, is_dirty: !is_clean, ..standby });
                spared += 1;
            } else if is_clean {
                let event = if are_zeros { Event::CleanZeros } else { Event::Clean };
                if core.table.advance(standby.page, seen, event).is_ok() {
                    compare_clean(&core, &standby, digest.vector, event);
                    core.probation.leaves(standby.page, &pager.reclaim.departures);
                    self.forget(pager, standby.frame);
                    pager.reclaim.stats.clean_pages.add(1);
                    drained += 1;
                }
            } else if !self.begin_write(&core, standby, digest, Purpose::Free, now) {
                self.standby.put_back(standby);
                break;
            } else {
                drained += 1;
            }
        }
        (drained, spared)
    }

    /// Whether the write in flight of a page is that of its content in this frame, which frees the frame from now on.
    fn frees_by_write(&mut self, pager: &Pager<M>, standby: &Standby) -> bool {
        let Some(write) = self.write_of(standby) else { return false };
        if write.purpose == Purpose::Clean {
            write.purpose = Purpose::Free;
            pager.local.counts.free_by_write();
        }
        true
    }

    fn write_of(&mut self, standby: &Standby) -> Option<&mut Write> {
        let is_of = |write: &&mut Write| write.frame == standby.frame && write.page == standby.page;
        self.writes.iter_mut().flatten().find(|write| write.region == standby.region && is_of(write))
    }

    /// Writes back what has stood for long, or many at once; looks at no more than a batch at a time.
    pub(super) fn flush(&mut self, pass: Pass<'_, M>) {
        let Pass { pager, now } = pass;
        let limits = pager.limits.flush();
        for _ in 0..FLUSH_PAGES_MAX {
            let Some(cause) = self.flusher.due(&self.standby, limits, now) else { return };
            let standby = *self.standby.to_look_at().expect("a page is due only if there is one");
            if !self.clean(standby, cause, pass) {
                return;
            }
            self.flusher.look_on(&mut self.standby);
        }
    }

    /// Writes a page back if it is on standby and dirty; false if it has to be looked at again.
    fn clean(&mut self, standby: Standby, cause: FlushCause, Pass { pager, now }: Pass<'_, M>) -> bool {
        let Some(core) = self.regions[standby.region as usize].clone() else { return true };
        let seen = core.table.load(standby.page);
        if seen.state() != State::Standby(standby.frame) {
            return true;
        }
        if seen.write_in_flight() {
            // While an older content is being written, this one has to wait.
            return self.write_of(&standby).is_some();
        }
        if core.order.holds(standby.page) {
            // The cleaner looks at it again.
            return true;
        }
        let (digest, node) = (pager.local.frames.digest(standby.frame), core.digests.get(standby.page));
        if digest == node || digest.is_zeros() && node.is_zeros() {
            return true;
        }
        let before = pager.local.counts.writing();
        if !self.begin_write(&core, standby, digest, Purpose::Clean, now) {
            return false;
        }
        let flushed = pager.local.counts.writing() - before;
        match cause {
            FlushCause::Age => pager.reclaim.stats.flushed_by_age_pages.add(flushed),
            FlushCause::Size => pager.reclaim.stats.flushed_by_size_pages.add(flushed),
        }
        true
    }

    /// How long to wait for writes in flight: until one of them is posted again, if all have failed.
    pub(super) fn await_writes(&self, now: Nanos) -> Step {
        let mut writes = self.writes.iter().flatten();
        match writes.try_fold(Nanos::MAX, |at, write| (!write.posted).then_some(at.min(write.at))) {
            Some(at) => Step::Idle(Duration::from_nanos(at.saturating_sub(now)).clamp(super::SLEEP_MIN, SLEEP_MAX)),
            None => Step::Waiting,
        }
    }

    /// Frees the frame of a page that has left standby.
    fn forget(&self, pager: &Pager<M>, frame: FrameIndex) {
        pager.local.counts.leave();
        pager.local.frames.release(frame);
    }

    /// Posts the write of a dirty page; false if no write can be posted now.
    fn begin_write(
        &mut self,
        core: &RegionCore<M>,
        standby: Standby,
        digest: Digest,
        purpose: Purpose,
        now: Nanos,
    ) -> bool {
        let pager = &*core.pager;
        let Some(index) = self.free_writes.pop() else { return false };
        if !pager.local.frames.hold_for_write(&core.table, standby.page, standby.frame) {
            // The page was rescued just now: nothing to write.
            self.free_writes.push(index);
            return true;
        }
        pager.local.counts.begin_write(purpose);
        let Standby { region, page, frame, .. } = standby;
        self.writes[usize::from(index)] =
            Some(Write { region, page, frame, digest, generation: 0, attempts: 0, purpose, at: now, posted: false });
        self.post(index, now);
        true
    }

    fn post(&mut self, index: u16, now: Nanos) {
        let write = self.writes[usize::from(index)].as_mut().expect("a write is posted while it is there");
        let core = self.regions[write.region as usize].as_ref().expect("a region outlives its writes");
        core.order.assert_is_free(write.page);
        let id = WorkId(u64::from(write.generation) << 16 | u64::from(index));
        let (to, from, vector) = (core.remote_address(write.page), write.frame, write.digest.vector);
        write.posted = self.queue_pair.post_write_vector(id, PageWrite { to, from, vector }, now).is_ok();
        write.at = now;
    }

    /// Handles acknowledgements, and posts again what failed or was lost.
    pub(crate) fn poll_writes(&mut self, pass: Pass<'_, M>) {
        let Pass { pager, now } = pass;
        // Without polls the node never hears that a write was given up, and who keeps pages at several nodes does not
        // hear that it has.
        let is_at_rest = self.free_writes.len() == self.writes.len() && self.ended.is_empty();
        if is_at_rest && self.queue_pair.next_poll() == Nanos::MAX {
            return;
        }
        let mut completions = std::mem::take(&mut self.completions);
        self.queue_pair.poll(now, &mut completions);
        for completion in completions.drain(..) {
            let (index, generation) = ((completion.id.0 & 0xffff).narrow_u16(), (completion.id.0 >> 16).narrow_u32());
            let write = self.writes[usize::from(index)].as_mut().expect("a completion belongs to a write");
            assert!(
                write.posted && write.generation == generation,
                "a completion of a cancelled write: {completion:?}"
            );
            match completion.status {
                Status::Done => self.end_write(pager, index),
                Status::Failed | Status::Lost | Status::Disconnected if M::breaks(Rule::WriteIsRepeated) => {
                    self.end_write(pager, index);
                }
                Status::Failed | Status::Lost | Status::Disconnected => self.put_off(index, pass),
            }
        }
        self.completions = completions;
        if now >= self.next_scan {
            self.next_scan = now + BACKOFF_MIN;
            self.scan_writes(pass);
        }
    }

    /// Ends an acknowledged write. If its frame is needed, a page that was not rescued meanwhile is forgotten at once.
    fn end_write(&mut self, pager: &Pager<M>, index: u16) {
        let write = self.writes[usize::from(index)].take().expect("an acknowledged write is there");
        self.free_writes.push(index);
        let core = Arc::clone(self.regions[write.region as usize].as_ref().expect("a region outlives its writes"));
        core.order.assert_is_free(write.page);
        // The node's copy is known before the page can be judged again.
        core.digests.set(write.page, write.digest);
        if let State::Standby(frame) = core.table.load(write.page).state()
            && M::breaks(Rule::DigestIsOfWrite)
        {
            core.digests.set(write.page, pager.local.frames.digest(frame));
        }
        M::preempt();
        let ended = core.table.advance_owned(write.page, Event::WriteEnded);
        pager.local.counts.end_write(write.purpose);
        M::preempt();
        let bytes = write.digest.vector.bytes();
        pager.reclaim.stats.written_bytes.add(bytes as u64);
        pager.reclaim.stats.saved_written_bytes.add((PAGE_BYTES - bytes) as u64);
        let untouched = write.purpose == Purpose::Free && ended.state() == State::Standby(write.frame);
        if untouched && core.table.advance(write.page, ended, Event::Clean).is_ok() {
            core.probation.leaves(write.page, &pager.reclaim.departures);
            self.forget(pager, write.frame);
        }
        pager.local.frames.release(write.frame);
    }

    fn put_off(&mut self, index: u16, Pass { pager, now }: Pass<'_, M>) {
        let write = self.writes[usize::from(index)].as_mut().expect("only a write that is there fails");
        write.at = now + (BACKOFF_MIN << write.attempts.min(16)).min(BACKOFF_MAX);
        write.attempts += 1;
        write.generation = write.generation.wrapping_add(1);
        write.posted = false;
        pager.reclaim.stats.write_retries.add(1);
    }

    fn scan_writes(&mut self, pass: Pass<'_, M>) {
        let Pass { pager, now } = pass;
        for index in 0..self.writes.len().narrow_u16() {
            let Some(write) = &self.writes[usize::from(index)] else { continue };
            if write.posted && now >= write.at + pager.node.attempt_deadline() {
                self.queue_pair.cancel(WorkId(u64::from(write.generation) << 16 | u64::from(index)));
                self.put_off(index, pass);
            } else if !write.posted && now >= write.at {
                self.post(index, now);
            }
        }
    }

    /// Gives up the writes of a region whose content nobody will read again.
    pub(crate) fn abandon_writes(&mut self, pager: &Pager<M>, region: u32) {
        for index in 0..self.writes.len().narrow_u16() {
            let Some(write) = self.writes[usize::from(index)].take_if(|write| write.region == region) else { continue };
            if write.posted {
                self.queue_pair.cancel(WorkId(u64::from(write.generation) << 16 | u64::from(index)));
            }
            let core = self.regions[region as usize].as_ref().expect("a region outlives its writes");
            core.table.advance_owned(write.page, Event::WriteEnded);
            pager.local.counts.end_write(write.purpose);
            pager.local.frames.release(write.frame);
            self.free_writes.push(index);
        }
    }
}

impl<M: Machine> Reclaimer<M> {
    /// Whether a write that was given up may still reach far memory of a region that has ended.
    pub(crate) fn may_still_write(&self, range: FarRange) -> bool {
        self.queue_pair.may_still_write(range.start, range.bytes)
    }

    /// Takes a range that was kept for that reason, and that nothing can reach any more.
    pub(crate) fn take_quiescent(&mut self) -> Option<FarRange> {
        let quiescent = self.ended.iter().position(|range| !self.may_still_write(*range))?;
        Some(self.ended.swap_remove(quiescent))
    }
}

/// Compares a page that was found clean, and whose frame is still there, with the second copy of a fabric that keeps
/// one.
fn compare_clean<M: Machine>(core: &RegionCore<M>, standby: &Standby, vector: Vector, event: Event) {
    let pager = &*core.pager;
    if !M::compares_clean_drops(&pager.fabric) {
        return;
    }
    let (page_id, address) = (core.place(standby.page), core.remote_address(standby.page));
    let reads_as = if event == Event::CleanZeros { ReadsAs::Zeros } else { ReadsAs::Fetched };
    let dropped = CleanDrop { page_id, address, vector, reads_as };
    M::with_page(pager.local.frames.mapping(), standby.frame.offset(), |content| {
        M::compare_clean_drop(&pager.fabric, &dropped, content);
    });
}
