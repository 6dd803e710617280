//! [`Port`]: one thread's fetches.
//!
//! A port has a fault queue pair, a table of fetches in flight, and the unithreads that wait for them. A worker has one
//! to itself; ordinary threads, the guests, share a few (`guests`). A worker port's mutex is there for the visits of
//! others: of threads that touch what was fetched ahead here, or a page that its worker has not polled for, and of the
//! reclaimer that takes it back, which both only try it, and of a region's end. A worker holds it for moments, a
//! visitor for as long as it takes to map a window.
//!
//! Who waits for them is in `waiters`, what becomes of them in `completion`, what other threads install for them in
//! `delegation`, what is fetched before anybody waits for it in `ahead`, who says what to fetch so in `guided`, and
//! what programs have advised in `advised`.

mod advised;
mod ahead;
mod completion;
mod delegated;
mod end;
mod fetch;
mod guided;
mod known;
mod reservation;
mod windows;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use yonder_units::{Nanos, Narrow, PageIndex};

use crate::delegation::{Delegation, DelegationWindow, Installs};
use crate::guests::{Bells, Guests};
use crate::machine::Machine;
use crate::pager::{GUEST_PORTS, Pager, REGIONS_MAX};
use crate::queue_pair::{Completion, PageRead, PostError, Posting, QueuePair, RemoteAddress, WorkId};
use crate::region::RegionCore;
use crate::stats::{PortStages, PortStats};
use crate::turn::Turn;
use crate::waiters::Waiters;

use ahead::PrefetchWindows;
pub(crate) use ahead::{Hit, Prefetch};
use fetch::{Fetch, Phase};
pub(crate) use guided::GuideOf;
use guided::Guided;
use known::Known;
pub(crate) use reservation::FetchReservation;

/// How often fetches in flight are checked for lost completions.
const SCAN_INTERVAL: Nanos = 1_000_000;
/// Completions handled in one poll.
const COMPLETIONS_MAX: usize = 64;
/// Most fetches on demand.
const DEMAND_SLOTS_MAX: usize = 1 << 15;

/// How a thread polls its port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PollMode {
    /// Who makes the installs.
    pub installs: Installs,
    /// When the reads are begun that are posted until the next poll.
    pub posting: Posting,
}

impl PollMode {
    /// All is done at once, by the thread that polls.
    pub const ALL: Self = Self { installs: Installs::Own, posting: Posting::AtOnce };
}

/// One thread's fetches: see the head of this file.
///
/// A port's state is behind its lock. Code that has the lock works on [`PortInner`] with a [`Turn`]: it starts fetches
/// ([`PortInner::start`], then [`PortInner::join`] for each token that waits), or handles what has arrived
/// ([`Turn::poll`]). After either it publishes the number of fetches in flight ([`Port::publish`]), which a poll does
/// itself. What is posted is sent by a poll at the latest. A token waits for one fetch at a time; its wait is over when
/// [`Waiters::outcome`] says so, or when it is on the list of those that are ready, if it was parked. No call on a port
/// allocates or takes another port's lock, and none waits, but for a moment for room to fetch ahead for a guest that is
/// alone. The words beside the lock may be read at any time.
pub(crate) struct Port<M: Machine> {
    pub(crate) id: u16,
    inner: Mutex<PortInner<M>>,
    /// Fetches in flight, for page-fault-aware dispatch.
    outstanding: AtomicU32,
    pub(crate) stats: PortStats,
    pub(crate) stages: PortStages,
    pub(crate) delegation: Delegation<M>,
    pub(crate) bells: Bells,
}

pub(crate) struct PortInner<M: Machine> {
    id: u16,
    queue: Box<dyn QueuePair>,
    fetches: Box<[Fetch]>,
    free: Vec<u16>,
    /// Fetches to be tried again by a later poll: mapped when their block is no longer swept, or posted again.
    deferred: Vec<u16>,
    completions: Vec<Completion>,
    next_scan: Nanos,
    ahead: PrefetchWindows,
    /// None if there is no guide, or while it is asked.
    guided: Option<Box<Guided>>,
    pub(crate) waiters: Waiters,
    pub(crate) guests: Guests,
    /// The regions this port has fetched for, so that completions need no shared table.
    regions: Box<[Known<M>]>,
    window: DelegationWindow,
    /// Who will probably make the installs of the fetches that start now: what the last poll said.
    installs: Installs,
    /// What the queue pair was told last.
    posting: Posting,
    /// When the last poll was.
    pub(crate) polled: Nanos,
}

/// What a fetch needs to be started.
pub(crate) struct FetchRequest<'a, M: Machine> {
    pub(crate) region: &'a Arc<RegionCore<M>>,
    pub(crate) page: PageIndex,
    pub(crate) slot: u16,
    pub(crate) reservation: FetchReservation,
    pub(crate) entered: Nanos,
    pub(crate) deadline: Nanos,
}

impl<M: Machine> Port<M> {
    /// A port for `tokens` waiters, which fetches on demand over `queue` and ahead of it as `guide` and `prefetch` say.
    pub(crate) fn new(
        id: u16,
        queue: Box<dyn QueuePair>,
        prefetch: Option<Prefetch>,
        guide: Option<GuideOf>,
        tokens: usize,
    ) -> Self {
        let demand = queue.depth().min(DEMAND_SLOTS_MAX);
        let ahead = PrefetchWindows::new(prefetch, demand.narrow_u16());
        let slots = demand + ahead.slots();
        let guests = if usize::from(id) < GUEST_PORTS { tokens } else { 0 };
        let inner = PortInner {
            id,
            queue,
            fetches: (0..slots).map(|_| Fetch::free()).collect(),
            free: (0..demand.narrow_u16()).rev().collect(),
            deferred: Vec::with_capacity(slots),
            completions: Vec::with_capacity(COMPLETIONS_MAX),
            next_scan: 0,
            ahead,
            guided: guide.map(Guided::new),
            waiters: Waiters::new(tokens),
            guests: Guests::new(guests),
            regions: (0..REGIONS_MAX).map(|_| Known::default()).collect(),
            window: DelegationWindow::new(),
            installs: Installs::Own,
            posting: Posting::default(),
            polled: 0,
        };
        Self {
            id,
            inner: Mutex::new(inner),
            outstanding: AtomicU32::new(0),
            stats: PortStats::default(),
            stages: PortStages::default(),
            delegation: Delegation::new(),
            bells: Bells::new(guests),
        }
    }

    /// The port's state. Only a visit of another thread makes its owner wait: see the head of this file.
    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, PortInner<M>> {
        M::lock(&self.inner)
    }

    /// As [`Port::lock`], unless somebody has it.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, PortInner<M>>> {
        self.inner.try_lock().ok()
    }

    /// Fetches in flight.
    pub(crate) fn outstanding(&self) -> u32 {
        self.outstanding.load(Ordering::Relaxed)
    }

    /// A turn of this port at `now`.
    #[inline(always)]
    pub(crate) fn turn<'a>(&'a self, pager: &'a Pager<M>, now: Nanos) -> Turn<'a, M> {
        Turn { port: self, pager, now }
    }

    pub(crate) fn publish(&self, inner: &PortInner<M>) {
        self.outstanding.store(inner.in_flight().narrow_u32(), Ordering::Relaxed);
    }
}

impl<M: Machine> Turn<'_, M> {
    /// Handles what has arrived: maps pages, wakes waiters, posts failed reads again. Makes all installs and begins all
    /// reads, for who has nothing better to do.
    pub(crate) fn poll(self, inner: &mut PortInner<M>) {
        self.poll_as(inner, PollMode::ALL);
    }

    /// As [`Turn::poll`], for a thread that polls again soon.
    pub(crate) fn poll_as(self, inner: &mut PortInner<M>, mode: PollMode) {
        inner.set_posting(mode.posting);
        inner.polled = self.now;
        inner.poll(self, mode.installs);
        self.port.publish(inner);
    }
}

impl<M: Machine> PortInner<M> {
    /// By when the queue pairs need a poll, though nothing may have arrived.
    pub(crate) fn next_poll(&self) -> Nanos {
        if !self.deferred.is_empty() {
            return 0;
        }
        let guide = self.guided.as_ref().map_or(Nanos::MAX, |guided| guided.next_poll());
        self.queue.next_poll().min(self.ahead.next_poll()).min(guide)
    }

    /// Pages that are charged for fetches, on demand and ahead, and for reads of the guide.
    pub(crate) fn pages_held(&self) -> u64 {
        (self.in_flight() + self.ahead.in_use() + self.reads_of_guide()) as u64
    }

    /// Fetches on demand.
    fn in_flight(&self) -> usize {
        self.fetches.len() - self.ahead.slots() - self.free.len()
    }

    fn set_posting(&mut self, posting: Posting) {
        if self.posting != posting {
            self.posting = posting;
            self.queue.set_posting(posting);
        }
    }

    pub(crate) fn take_slot(&mut self) -> Option<u16> {
        self.free.pop()
    }

    pub(crate) fn return_slot(&mut self, slot: u16) {
        self.free.push(slot);
    }

    /// Starts the fetch of a page whose entry the caller has moved to `Fetching` with this port and slot.
    #[inline]
    pub(crate) fn start(&mut self, request: &FetchRequest<'_, M>, port: &Port<M>) {
        self.fill(request);
        let pager = &*request.region.pager;
        let now = M::now();
        if let (Installs::Own, FetchReservation::Page, Some(far)) =
            (self.installs, request.reservation, M::mapped(&pager.fabric))
        {
            // The bytes will be copied from where they are, by this CPU: a NIC would have put them into a cache by
            // then.
            M::prefetch_page(far, request.region.remote_address(request.page).0);
        }
        if !self.post(request.slot, port.turn(pager, now)) {
            self.deferred.push(request.slot);
        }
        port.stages.post.record(now.saturating_sub(request.entered));
        port.stats.major_faults.add(1);
    }

    /// Takes a request into its slot, which is free.
    fn fill(&mut self, request: &FetchRequest<'_, M>) {
        let pager = &*request.region.pager;
        let region = request.region.number;
        self.learn(request.region);
        let fetch = &mut self.fetches[usize::from(request.slot)];
        assert!(fetch.phase == Phase::Free, "slot {} of port {} is in use", request.slot, self.id);
        let generation = fetch.generation.wrapping_add(1);
        let (page, reservation, deadline) = (request.page, request.reservation, request.deadline);
        // The entry is `Fetching`, so what the node has of the page stays the same.
        let vector = request.region.digests.vector(page);
        if let Some(frame) = reservation.arrives_in(pager) {
            pager.local.frames.clear_beside(frame, vector);
        }
        *fetch = Fetch {
            phase: Phase::Backoff(0),
            region,
            page,
            reservation,
            vector,
            generation,
            deadline,
            ..Fetch::free()
        };
    }

    fn learn(&mut self, region: &Arc<RegionCore<M>>) {
        self.regions[region.number as usize].learn(region);
    }

    /// When the read of `slot` was posted, if it is under way.
    pub(crate) fn posted_at(&self, slot: u16) -> Option<Nanos> {
        let fetch = &self.fetches[usize::from(slot)];
        (fetch.phase == Phase::Posted).then_some(fetch.posted)
    }

    /// Makes `token` wait for the fetch at `slot`.
    pub(crate) fn join(&mut self, slot: u16, token: u32) {
        self.waiters.join(&mut self.fetches[usize::from(slot)].queue, token);
    }

    /// Forgets a region that ends. Its fetches have ended before.
    pub(crate) fn forget_region(&mut self, region: u32, pager: &Pager<M>) {
        self.cancel_guide_reads(pager, |of, _| of == region);
        let busy = self.fetches.iter().any(|fetch| fetch.phase != Phase::Free && fetch.region == region);
        assert!(!busy, "a region ended with a fetch in flight");
        self.regions[region as usize] = Known::default();
        self.ahead.forget(region);
    }

    fn poll(&mut self, turn: Turn<'_, M>, installs: Installs) {
        let Turn { port, pager, now } = turn;
        // What is checked before it is mapped is mapped at once, so that nothing can change in between.
        let may_hand_over = port.delegation.has_delegate() && !pager.verifies();
        self.installs = if may_hand_over { installs } else { Installs::Own };
        if self.in_flight() == 0 && self.ahead.in_use() == 0 && !self.guide_reads() {
            return;
        }
        if self.window.out() > 0 {
            self.process_delegated(turn, self.installs);
        }
        let mut completions = std::mem::take(&mut self.completions);
        self.queue.poll(now, &mut completions);
        for completion in completions.drain(..) {
            self.complete(completion, turn, self.installs);
        }
        self.poll_ahead(&mut completions, turn);
        self.completions = completions;
        self.poll_guide(turn);
        if !self.deferred.is_empty() {
            self.retry_deferred(turn);
        }
        if now >= self.next_scan {
            self.next_scan = now + SCAN_INTERVAL;
            self.scan_for_lost(turn);
        }
    }

    /// Posts the read of `slot`; false if the queue pair is full.
    fn post(&mut self, slot: u16, turn: Turn<'_, M>) -> bool {
        let fetch = &self.fetches[usize::from(slot)];
        let id = WorkId(u64::from(fetch.generation) << 16 | u64::from(slot));
        let from: RemoteAddress = self.region(fetch.region).remote_address(fetch.page);
        let read = PageRead { from, into: fetch.reservation.read_into(turn.pager), vector: fetch.vector };
        let queue = if self.ahead.has(slot) { self.ahead.queue() } else { &mut *self.queue };
        match queue.post_read_vector(id, read, turn.now) {
            Ok(()) => {
                let fetch = &mut self.fetches[usize::from(slot)];
                (fetch.phase, fetch.posted) = (Phase::Posted, turn.now);
                true
            }
            Err(PostError::Full) => false,
        }
    }

    /// Withdraws the read of `slot`.
    fn cancel(&mut self, slot: u16) {
        let id = WorkId(u64::from(self.fetches[usize::from(slot)].generation) << 16 | u64::from(slot));
        let queue = if self.ahead.has(slot) { self.ahead.queue() } else { &mut *self.queue };
        queue.cancel(id);
    }

    fn region(&self, number: u32) -> &Arc<RegionCore<M>> {
        self.regions[number as usize].core.as_ref().expect("a region is known from its first fetch to its end")
    }
}
