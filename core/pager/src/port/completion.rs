//! What becomes of a fetch once its read has ended: its page is installed, or the read is posted again, or given up.

use yonder_units::{Nanos, Narrow};

use super::{FetchReservation, Installs, Phase, PortInner};
use crate::error::PagingCause;
use crate::install::InstallSource;
use crate::machine::Machine;
use crate::pager::Pager;
use crate::pagetable::Event;
use crate::queue_pair::{Completion, Status};
use crate::turn::Turn;
use crate::waiters::Queue;

/// First and longest pause before a failed read is posted again.
const BACKOFF_MIN: Nanos = 10_000;
const BACKOFF_MAX: Nanos = 2_000_000;

impl<M: Machine> PortInner<M> {
    pub(super) fn complete(&mut self, completion: Completion, turn: Turn<'_, M>, installs: Installs) {
        let Turn { port, pager, now } = turn;
        let (slot, generation) = ((completion.id.0 & 0xffff).narrow_u16(), (completion.id.0 >> 16).narrow_u32());
        let fetch = &mut self.fetches[usize::from(slot)];
        assert!(
            fetch.phase == Phase::Posted && fetch.generation == generation,
            "a completion for a fetch that was cancelled or is over: {completion:?}"
        );
        match completion.status {
            Status::Done if self.verified(slot, pager) => {
                let fetch = &mut self.fetches[usize::from(slot)];
                (fetch.phase, fetch.arrived) = (Phase::Arrived, now);
                if self.ahead.has(slot) {
                    self.arrived_ahead(slot, port);
                    return;
                }
                port.stages.fetch.record(now.saturating_sub(fetch.posted));
                let has_little_to_do =
                    matches!(fetch.reservation, FetchReservation::Frame(_)) && pager.fetches_into_frames();
                if installs == Installs::Delegated && !has_little_to_do && self.window.has_room(now) {
                    self.delegate(slot, turn);
                } else {
                    self.finish_or_defer(slot, turn);
                }
            }
            Status::Done => self.failed(slot, PagingCause::Poisoned, turn),
            Status::Failed => self.failed(slot, PagingCause::NodeFailed, turn),
            Status::Lost => {
                // To ask again would help nobody.
                self.fetches[usize::from(slot)].deadline = now;
                self.failed(slot, PagingCause::Poisoned, turn);
            }
            Status::Disconnected => self.failed(slot, PagingCause::NodeLost, turn),
        }
    }

    /// Whether the bytes that arrived are those that were written, if the configuration asks.
    fn verified(&self, slot: u16, pager: &Pager<M>) -> bool {
        if !pager.verifies() {
            return true;
        }
        let fetch = &self.fetches[usize::from(slot)];
        let region = self.region(fetch.region);
        let (mapping, offset) = pager.resolve(self.source(slot, pager));
        M::with_page(mapping, offset, |bytes| region.digests.matches(fetch.page, bytes))
    }

    pub(super) fn source(&self, slot: u16, pager: &Pager<M>) -> InstallSource {
        let fetch = &self.fetches[usize::from(slot)];
        match fetch.reservation.arrives_in(pager) {
            Some(frame) => InstallSource::Frame(frame),
            None => InstallSource::Far(self.region(fetch.region).remote_address(fetch.page)),
        }
    }

    pub(super) fn finish_or_defer(&mut self, slot: u16, turn: Turn<'_, M>) {
        if !self.finish_fetch(slot, turn) {
            self.deferred.push(slot);
        }
    }

    /// Puts the page of an arrived fetch where its room is, and ends the fetch; false if the block is swept or the
    /// kernel has no page now.
    fn finish_fetch(&mut self, slot: u16, turn: Turn<'_, M>) -> bool {
        let source = self.source(slot, turn.pager);
        let fetch = &self.fetches[usize::from(slot)];
        if !turn.pager.finish_fetch(self.region(fetch.region), fetch.page, source, fetch.reservation) {
            return false;
        }
        self.fetch_finished(slot, M::now(), turn);
        true
    }

    /// Ends the fetch of a page that was installed at `at`.
    pub(super) fn fetch_finished(&mut self, slot: u16, at: Nanos, turn: Turn<'_, M>) {
        let Turn { port, pager, .. } = turn;
        let fetch = &self.fetches[usize::from(slot)];
        fetch.reservation.finished(pager);
        port.stats.kept_in_frames.add(u64::from(matches!(fetch.reservation, FetchReservation::Frame(_))));
        port.stages.install.record(at.saturating_sub(fetch.arrived));
        port.stats.count_fetched(fetch.vector.bytes());
        pager.node.answered();
        self.end(slot, Ok(()), at);
    }

    /// A read has failed: it is posted again later, until its deadline.
    fn failed(&mut self, slot: u16, cause: PagingCause, turn: Turn<'_, M>) {
        let now = turn.now;
        let fetch = &mut self.fetches[usize::from(slot)];
        fetch.last_failure = cause;
        if self.ahead.has(slot) && fetch.queue == Queue::EMPTY {
            // Whoever touches the page will see to it.
            self.drop_ahead(slot, turn);
            return;
        }
        if now >= fetch.deadline {
            self.give_up(slot, turn);
            return;
        }
        let pause = (BACKOFF_MIN << fetch.attempts.min(16)).min(BACKOFF_MAX);
        fetch.attempts += 1;
        fetch.generation = fetch.generation.wrapping_add(1);
        fetch.phase = Phase::Backoff(now + pause);
        turn.port.stats.fetch_retries.add(1);
        self.deferred.push(slot);
    }

    fn give_up(&mut self, slot: u16, turn: Turn<'_, M>) {
        let Turn { port, pager, now } = turn;
        let fetch = &self.fetches[usize::from(slot)];
        let (page, cause) = (fetch.page, fetch.last_failure);
        // A page whose bytes are wrong every time is lost; any other failure may pass.
        let event = match cause {
            PagingCause::Poisoned => Event::Poison(cause.code().get()),
            _ => Event::FetchFailed,
        };
        self.region(fetch.region).table.advance_owned(page, event);
        if matches!(cause, PagingCause::NodeLost | PagingCause::TimedOut) {
            pager.node.lost();
        }
        self.fetches[usize::from(slot)].reservation.give_back(pager);
        port.stats.paging_errors.add(1);
        self.end(slot, Err(cause), now);
    }

    /// Gives back what a fetch has taken whose read is over or withdrawn: its page is on the node as before.
    pub(super) fn abandon(&self, slot: u16, pager: &Pager<M>) {
        let fetch = &self.fetches[usize::from(slot)];
        self.region(fetch.region).table.advance_owned(fetch.page, Event::FetchFailed);
        fetch.reservation.give_back(pager);
    }

    /// Frees the slot of a fetch whose room somebody else has now, and ends the waits for it.
    pub(super) fn end(&mut self, slot: u16, result: Result<(), PagingCause>, now: Nanos) {
        let fetch = &mut self.fetches[usize::from(slot)];
        fetch.phase = Phase::Free;
        fetch.generation = fetch.generation.wrapping_add(1);
        let queue = std::mem::replace(&mut fetch.queue, Queue::EMPTY);
        if self.ahead.has(slot) {
            self.ahead.ended(slot);
        } else {
            self.free.push(slot);
        }
        self.waiters.end(queue, result, now);
    }

    pub(super) fn retry_deferred(&mut self, turn: Turn<'_, M>) {
        let now = turn.now;
        for index in (0..self.deferred.len()).rev() {
            let slot = self.deferred[index];
            let fetch = &self.fetches[usize::from(slot)];
            let over = match fetch.phase {
                // With what has arrived of its window, and counted as that.
                Phase::Arrived if self.ahead.has(slot) => self.map_window(slot, turn),
                Phase::Arrived => self.finish_fetch(slot, turn),
                Phase::Backoff(_) if now >= fetch.deadline => {
                    self.give_up(slot, turn);
                    true
                }
                Phase::Backoff(at) => now >= at && self.post(slot, turn),
                Phase::Free | Phase::Posted | Phase::HandedOver | Phase::Ready => {
                    unreachable!("a deferred fetch is neither over nor under way")
                }
            };
            if over {
                self.deferred.swap_remove(index);
            }
        }
    }

    /// Posts reads again whose completion is overdue: the fabric has lost them.
    pub(super) fn scan_for_lost(&mut self, turn: Turn<'_, M>) {
        let Turn { pager, now, .. } = turn;
        self.cancel_guide_reads(pager, |_, posted| now >= posted + pager.node.patience());
        for slot in 0..self.fetches.len().narrow_u16() {
            let fetch = &self.fetches[usize::from(slot)];
            let overdue = now >= fetch.posted + pager.node.attempt_deadline() || now >= fetch.deadline;
            if fetch.phase == Phase::Posted && overdue {
                self.cancel(slot);
                self.failed(slot, PagingCause::TimedOut, turn);
            }
        }
    }
}
