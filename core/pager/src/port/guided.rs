//! [`Guided`]: a port's guide, and what it may do.
//!
//! The guide (`core/guide`) is told of misses and of the first touch of each of its batches. What it fetches ahead goes
//! into windows like the prefetcher's (`ahead`), so that a batch is mapped together when one of its pages is touched.
//! What it reads of pages that are here is copied at once; of others a few bytes are read over a queue pair of its own,
//! which neither delays fetches nor is delayed by them.
//!
//! Invariants: whatever a guide asks for, no entry of the page table is changed but by fetches ahead, so it can cost
//! time and not content. A read that is under way is charged like a page, and none is when its region ends.

use std::sync::Arc;

use crate::pagetable::State;
use crate::prefetch::{Plan, WINDOW_PAGES_MAX};
use yonder_guide::{
    Arrived, Cause, Guide, HISTORY_MAX, Payoff, READ_BYTES_MAX, READS_MAX, Reach, Reading, Touch, Verdict,
};
use yonder_units::{Nanos, Narrow, PAGE_BYTES, PageIndex};

use super::ahead::{Followed, MadeWindow, WantedBy, WindowStep};
use super::windows::await_room;
use super::{FetchReservation, Phase, PortInner};
use crate::fault::{FaultTouch, Wants};
use crate::install::Local;
use crate::machine::{Machine, Rule};
use crate::pager::Pager;
use crate::queue_pair::{PageRead, QueuePair, Status, WorkId};
use crate::region::RegionCore;
use crate::turn::Turn;
use yonder_units::Vector;

/// A guide, and a queue pair for its reads.
pub(crate) struct GuideOf {
    pub(crate) guide: Box<dyn Guide>,
    pub(crate) queue: Box<dyn QueuePair>,
}

/// A port's guide and its reads.
pub(super) struct Guided {
    guide: Box<dyn Guide>,
    host: Host,
}

/// All of a [`Guided`] but the guide.
struct Host {
    queue: Box<dyn QueuePair>,
    reads: [Read; READS_MAX],
    in_flight: usize,
    /// Addresses of the last misses, the latest first.
    history: [u64; HISTORY_MAX],
    misses: usize,
    payoff: Payoff,
    /// The window that takes what is asked for now.
    batch: Option<MadeWindow>,
    /// Steps of the batch that are taken.
    batch_steps: usize,
}

/// A place for a read that is under way.
#[derive(Clone, Copy)]
struct Read {
    is_posted: bool,
    generation: u32,
    region: u32,
    address: u64,
    bytes: u16,
    reservation: FetchReservation,
    note: u64,
    posted: Nanos,
}

impl Read {
    const FREE: Self = Self {
        is_posted: false,
        generation: 0,
        region: 0,
        address: 0,
        bytes: 0,
        reservation: FetchReservation::Page,
        note: 0,
        posted: 0,
    };

    #[inline]
    fn id(&self, place: usize) -> WorkId {
        WorkId(u64::from(self.generation) << 16 | place as u64)
    }
}

impl Guided {
    /// By when the queue pair of the guide's reads needs a poll.
    pub(super) fn next_poll(&self) -> Nanos {
        self.host.queue.next_poll()
    }

    pub(super) fn new(of: GuideOf) -> Box<Self> {
        let host = Host {
            queue: of.queue,
            reads: [Read::FREE; READS_MAX],
            in_flight: 0,
            history: [0; HISTORY_MAX],
            misses: 0,
            payoff: Payoff::default(),
            batch: None,
            batch_steps: 0,
        };
        Box::new(Self { guide: of.guide, host })
    }
}

impl<M: Machine> PortInner<M> {
    /// Whether a guide waits for reads.
    #[inline]
    pub(super) fn guide_reads(&self) -> bool {
        self.reads_of_guide() > 0
    }

    /// Reads of the guide that are under way.
    #[inline]
    pub(super) fn reads_of_guide(&self) -> usize {
        self.guided.as_ref().map_or(0, |guided| guided.host.in_flight)
    }

    /// Tells the guide of a touch; unknown if there is no guide.
    #[inline]
    pub(super) fn guide_touch(&mut self, cause: Cause, touch: &FaultTouch<'_, M>, turn: Turn<'_, M>) -> Verdict {
        let region = touch.region;
        let Some(mut guided) = self.guided.take() else { return Verdict::Unknown };
        let Guided { guide, host } = &mut *guided;
        host.batch = None;
        if cause == Cause::Hit {
            host.payoff.hits += 1;
        }
        let address = M::address(&region.mapping) as u64 + touch.offset;
        let words = touch.registers.map(M::words);
        let history = host.history;
        let payoff = Payoff { unused_pages: self.ahead.unused_of_guide, ..host.payoff };
        let touch = Touch {
            cause,
            address,
            registers: words.as_deref().unwrap_or_default(),
            history: &history[..host.misses.min(HISTORY_MAX)],
            payoff,
        };
        let verdict = guide.touched(&touch, &mut Hands { inner: self, host, region, turn });
        if cause == Cause::Miss {
            host.history.rotate_right(1);
            host.history[0] = address;
            host.misses += 1;
        }
        self.guided = Some(guided);
        // What is posted is sent by a poll, and the next one may be long from now.
        self.poll_guide(turn);
        verdict
    }

    /// Hands the guide what has arrived for it.
    pub(super) fn poll_guide(&mut self, turn: Turn<'_, M>) {
        if !self.guide_reads() {
            return;
        }
        let Some(mut guided) = self.guided.take() else { return };
        let Guided { guide, host } = &mut *guided;
        let pager = turn.pager;
        host.queue.poll(turn.now, &mut self.completions);
        // What the guide does next may poll too.
        let mut arrived = [None; READS_MAX];
        arrived.iter_mut().zip(self.completions.drain(..)).for_each(|(place, completion)| *place = Some(completion));
        for completion in arrived.into_iter().flatten() {
            let place = (completion.id.0 & 0xffff) as usize;
            let read = host.reads[place];
            assert!(
                read.is_posted && read.id(place) == completion.id,
                "an answer to no read of the guide: {completion:?}"
            );
            let region = Arc::clone(self.region(read.region));
            let mut buffer = [0; READ_BYTES_MAX];
            let bytes = &mut buffer[..usize::from(read.bytes)];
            let offset = read.address - M::address(&region.mapping) as u64;
            if completion.status == Status::Done {
                let at = offset % PAGE_BYTES as u64;
                match read.reservation.arrives_in(pager) {
                    Some(frame) => M::read(pager.local.frames.mapping(), frame.offset() + at, bytes),
                    None => {
                        let mapped = M::mapped(&pager.fabric).expect("only mapping fabrics read without a frame");
                        M::read(mapped, region.remote_address(PageIndex::containing(offset)).0 + at, bytes);
                    }
                }
            }
            host.end(place, pager);
            if completion.status == Status::Done {
                let arrived = Arrived { address: read.address, bytes, note: read.note };
                guide.arrived(&arrived, &mut Hands { inner: self, host, region: &region, turn });
            }
        }
        self.guided = Some(guided);
    }

    /// Withdraws reads of the guide: those of `region`, or all that are overdue.
    pub(super) fn cancel_guide_reads(&mut self, pager: &Pager<M>, is_to_end: impl Fn(u32, Nanos) -> bool) {
        let Some(guided) = &mut self.guided else { return };
        let host = &mut guided.host;
        for place in 0..READS_MAX {
            let read = &host.reads[place];
            if read.is_posted && is_to_end(read.region, read.posted) {
                host.queue.cancel(read.id(place));
                host.end(place, pager);
            }
        }
    }
}

impl Host {
    /// Frees the place of a read that is over or withdrawn.
    fn end<M: Machine>(&mut self, place: usize, pager: &Pager<M>) {
        let read = &mut self.reads[place];
        read.reservation.give_back(pager);
        read.is_posted = false;
        self.in_flight -= 1;
    }
}

/// What a guide can reach from a touch.
struct Hands<'a, M: Machine> {
    inner: &'a mut PortInner<M>,
    host: &'a mut Host,
    region: &'a Arc<RegionCore<M>>,
    turn: Turn<'a, M>,
}

impl<M: Machine> Hands<'_, M> {
    /// Offset in the region of `bytes` bytes at `address`, if they are of it.
    fn offset(&self, address: u64, bytes: u64) -> Option<u64> {
        let offset = address.checked_sub(M::address(&self.region.mapping) as u64)?;
        (bytes > 0 && offset.checked_add(bytes)? <= M::len(&self.region.mapping) as u64).then_some(offset)
    }

    /// Offset in the region of bytes that can be read at once.
    fn readable(&self, address: u64, into: &[u8]) -> Option<u64> {
        let offset = self.offset(address, into.len() as u64)?;
        let is_one_page = offset % PAGE_BYTES as u64 + into.len() as u64 <= PAGE_BYTES as u64;
        (is_one_page && into.len() <= READ_BYTES_MAX).then_some(offset)
    }

    /// Copies bytes of a page that is here, or says what to do instead.
    fn read_here(&self, offset: u64, into: &mut [u8]) -> Option<Reading> {
        let (region, page) = (&**self.region, PageIndex::containing(offset));
        loop {
            let seen = region.table.load(page);
            match seen.state() {
                State::Resident => return Some(self.read_resident(offset, into)),
                State::Untouched => {
                    into.fill(0);
                    return Some(Reading::Done);
                }
                State::Standby(_) => match self.turn.pager.map_local(region, page, seen) {
                    Local::Mapped(_) => self.turn.port.stats.rescues.add(1),
                    Local::Raced => {}
                    Local::NoRoom | Local::Later => return Some(Reading::Refused),
                },
                State::Fetching { port, slot } if port == self.inner.id => {
                    let phase = self.inner.fetches[usize::from(slot)].phase;
                    if !matches!(phase, Phase::Ready | Phase::Arrived) {
                        return None;
                    }
                    let (mapping, start) = self.turn.pager.resolve(self.inner.source(slot, self.turn.pager));
                    M::read(mapping, start + offset % PAGE_BYTES as u64, into);
                    return Some(Reading::Done);
                }
                State::Fetching { .. } | State::Remote => return None,
                // A lent page may have no memory yet, and a guide must not have a fault.
                State::Lent | State::Installing(_) | State::Evicting | State::Poisoned(_) => {
                    return Some(Reading::Refused);
                }
            }
        }
    }

    /// Copies bytes of a page that was resident a moment ago, so that the copy cannot have a fault: inside the gate,
    /// for which sweeps wait and also whoever marks unreadable the page, and not of a page that is unreadable.
    fn read_resident(&self, offset: u64, into: &mut [u8]) -> Reading {
        let page = PageIndex::containing(offset);
        let gate = self.region.gate(page);
        if !gate.enter() {
            return Reading::Refused;
        }
        let is_unreadable = self.region.unreadable.contains(page) && !M::breaks(Rule::GuidesKeepOut);
        let is_here = self.region.table.load(page).is_resident() && !is_unreadable;
        if is_here {
            M::read(&self.region.mapping, offset, into);
        }
        gate.leave();
        if is_here { Reading::Done } else { Reading::Refused }
    }

    /// Posts a read of bytes that are far.
    fn read_far(&mut self, offset: u64, bytes: usize, note: u64) -> Reading {
        let Some(place) = self.host.reads.iter().position(|read| !read.is_posted) else { return Reading::Refused };
        let Some(reservation) = FetchReservation::take(self.turn.pager, Wants::Mapping) else {
            return Reading::Refused;
        };
        self.inner.learn(self.region);
        let at = (offset % PAGE_BYTES as u64).narrow_usize();
        let vector = Vector::new(std::iter::once(at..at + bytes));
        let read = &mut self.host.reads[place];
        *read = Read {
            is_posted: true,
            generation: read.generation.wrapping_add(1),
            region: self.region.number,
            address: M::address(&self.region.mapping) as u64 + offset,
            bytes: bytes.narrow_u16(),
            reservation,
            note,
            posted: self.turn.now,
        };
        self.host.in_flight += 1;
        let from = self.region.remote_address(PageIndex::containing(offset));
        let (id, into) = (read.id(place), read.reservation.read_into(self.turn.pager));
        if self.host.queue.post_read_vector(id, PageRead { from, into, vector }, self.turn.now).is_err() {
            self.host.end(place, self.turn.pager);
            return Reading::Refused;
        }
        self.turn.port.stats.guide_reads.add(1);
        self.turn.port.stats.fetched_bytes.add(vector.bytes() as u64);
        Reading::Coming
    }
}

impl<M: Machine> Reach for Hands<'_, M> {
    fn prefetch(&mut self, address: u64, bytes: u64) -> bool {
        let Some(offset) = self.offset(address, bytes) else { return false };
        let (first, last) = (PageIndex::containing(offset), PageIndex::containing(offset + bytes - 1));
        if self.inner.guests.is_alone() {
            await_room(self.turn, (last.0 - first.0 + 1).min(WINDOW_PAGES_MAX));
        }
        let mut next = first.0;
        while next <= last.0 {
            let count = (last.0 - next + 1).min(WINDOW_PAGES_MAX);
            let plan = Plan { region: self.region.number, first: PageIndex(next), stride: 1, count };
            let open = self.host.batch.filter(|batch| self.inner.is_open(*batch));
            let made = match open {
                Some(made) if self.host.batch_steps + count as usize <= WINDOW_PAGES_MAX as usize => made,
                _ => {
                    let made = self.inner.begin_window(WantedBy::Guide, Some(Followed::ByGuide), self.turn);
                    let Some(made) = made else { return false };
                    (self.host.batch, self.host.batch_steps) = (Some(made), 0);
                    made
                }
            };
            let from = WindowStep { window: made.window, step: self.host.batch_steps };
            let extension = self.inner.extend_window(from, plan, self.region, self.turn);
            self.host.batch_steps += extension.steps;
            self.host.payoff.fetched_pages += extension.steps as u64;
            if extension.pages < count {
                return false;
            }
            next += count;
        }
        true
    }

    fn peek(&mut self, address: u64, into: &mut [u8]) -> bool {
        self.readable(address, into).is_some_and(|offset| self.read_here(offset, into) == Some(Reading::Done))
    }

    fn read(&mut self, address: u64, into: &mut [u8], note: u64) -> Reading {
        let Some(offset) = self.readable(address, into) else { return Reading::Refused };
        match self.read_here(offset, into) {
            Some(reading) => reading,
            None => self.read_far(offset, into.len(), note),
        }
    }
}

#[cfg(all(test, not(yonder_loom)))]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::fake;

    /// Peeks at the page behind that of a touch, and notes whether that can be read.
    struct Peeker(Arc<AtomicBool>);

    impl Guide for Peeker {
        fn touched(&mut self, touch: &Touch<'_>, reach: &mut dyn Reach) -> Verdict {
            self.0.store(reach.peek(touch.address + PAGE_BYTES as u64, &mut [0; 8]), Ordering::Relaxed);
            Verdict::Known
        }

        fn arrived(&mut self, _: &Arrived<'_>, _: &mut dyn Reach) {}
    }

    /// The simulator found it: a guide copied from a page that was protected against reading, in a handler of a signal.
    #[test]
    fn a_guide_does_not_read_what_is_unreadable() {
        let can_read = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&can_read);
        let region = fake::guided_region(8, Some(Arc::new(move || Box::new(Peeker(Arc::clone(&seen))))));
        // What is local leaves, and is not on standby then.
        region.pager.seal(&region).unwrap();
        let touch = |page: u32| {
            region.bring(PageIndex(page).offset()).unwrap();
            can_read.load(Ordering::Relaxed)
        };
        touch(1);
        assert!(touch(0), "page 1 is here");
        touch(5);
        region.pager.mark_unreadable(&region, 5..6);
        touch(5);
        assert!(region.is_resident(PageIndex(5)) && !touch(4), "page 5 is here and cannot be read");
    }
}
