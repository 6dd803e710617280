//! What threads call to drive a [`Pager`]: turns of reclaim, polls of ports, installs that were handed over, and how
//! regions begin.
//!
//! Threads themselves, and how they sleep, are the caller's: `runtime/paging` has those of programs.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::pagetable::PageHasher;
use crate::reclaim::{Policy, Shares};
use yonder_units::{BLOCK_PAGES_U32, BlockIndex, Nanos, Narrow, PAGE_BYTES, PageIndex};

use crate::delegation::Answer;
use crate::machine::Machine;
use crate::pager::{Pager, REGIONS_MAX};
use crate::port::PollMode;
use crate::queue_pair::RemoteAddress;
use crate::reclaimer::{Step, Victims};
use crate::region::RegionCore;
use crate::waiters::FaultCounts;

/// Sleep of the reclaimer's thread while only the node can make progress. Whoever waits for room ends it.
const WRITE_SLEEP: Duration = Duration::from_micros(20);
/// Time without a step of the host after which the thread makes one itself.
const HOST_TIMEOUT: Duration = Duration::from_millis(10);

/// Of a soft limit little is kept free: nobody waits for room there.
const SOFT_SHARES: Shares = Shares { start_percent: 1.0, least_percent: 1.0, end_percent: 1.5, standby_percent: 5.0 };

/// What the reclaimer's thread does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReclaimTurn {
    /// It takes another turn at once.
    Again,
    /// It lets others run before it does.
    Yield,
    /// It sleeps for so long, unless it is woken.
    Sleep(Duration),
}

/// The reclaimer's thread: what it remembers from one turn to the next.
#[derive(Debug, Default)]
pub struct ReclaimTurns {
    hosted_before: u64,
}

impl ReclaimTurns {
    /// One turn: a step, unless a host makes them.
    pub fn take<M: Machine>(&mut self, pager: &Pager<M>) -> ReclaimTurn {
        let hosted = pager.reclaim.signals.hosted_steps();
        if hosted != self.hosted_before {
            self.hosted_before = hosted;
            if hosted > 0 {
                return ReclaimTurn::Sleep(HOST_TIMEOUT);
            }
        } else if hosted > 0 && !pager.wants_reclaim(M::now()) {
            // The host makes no steps because there is nothing to do.
            return ReclaimTurn::Sleep(HOST_TIMEOUT);
        }
        let Some(mut reclaimer) = pager.reclaim.try_lock() else { return ReclaimTurn::Yield };
        match reclaimer.step(pager.pass(M::now())) {
            Step::Worked => ReclaimTurn::Again,
            Step::Waiting => ReclaimTurn::Sleep(WRITE_SLEEP),
            Step::Idle(time) => ReclaimTurn::Sleep(time),
        }
    }
}

impl<M: Machine> Pager<M> {
    /// A host takes reclaim over from its thread, until [`Pager::end_hosting`].
    pub fn begin_hosting(&self) {
        self.reclaim.signals.count_hosted_step();
    }

    /// One bounded step of reclaim, if there is something to do and nobody else is at it: whether there may be more.
    #[inline]
    pub fn reclaim_as_host(&self, now: Nanos) -> bool {
        if !self.wants_reclaim(now) {
            return false;
        }
        let start = M::now();
        let Some(mut reclaimer) = self.reclaim.try_lock() else { return false };
        let step = reclaimer.step(self.pass(start));
        drop(reclaimer);
        self.reclaim.signals.count_hosted_step();
        self.reclaim.signals.count_cpu(M::now() - start);
        step == Step::Worked
    }

    /// Reclaim is its thread's again.
    pub fn end_hosting(&self) {
        self.reclaim.signals.end_hosting();
        self.wake_reclaimer();
    }

    /// A thread of reclaim has used `cpu_ns` nanoseconds of its CPU.
    pub fn count_reclaim_cpu(&self, cpu_ns: u64) {
        self.reclaim.signals.count_cpu(cpu_ns);
    }

    /// Whether the pager's threads are to end.
    pub fn is_ending(&self) -> bool {
        self.threads.is_stopping()
    }

    /// From now on the pager's threads are to end, and are woken to see it.
    pub fn end_threads(&self) {
        self.threads.stop();
        self.wake_reclaimer();
        self.wake_discarder();
    }

    /// The thread that [`ReclaimTurns`] run on, which is woken when there is something to do.
    pub fn set_reclaimer_thread(&self, thread: M::Thread) {
        self.threads.set_reclaimer(thread);
    }

    /// Handles what has arrived at the port of a worker: appends to `ready` the unithreads whose pages are there, and
    /// to `retry` those that wait for something else and look again when they are resumed.
    #[inline]
    pub fn poll_worker(&self, port: u16, now: Nanos, mode: PollMode, ready: &mut Vec<u32>, retry: &mut Vec<u32>) {
        let port = self.port(port);
        let mut inner = port.lock();
        port.turn(self, now).poll_as(&mut inner, mode);
        ready.append(&mut inner.waiters.ready);
        retry.append(&mut inner.waiters.retry);
    }

    /// Faults of unithread `token` of the worker with `port`, since the last call.
    pub fn take_faults(&self, port: u16, token: u32) -> FaultCounts {
        self.port(port).lock().waiters.take_faults(token)
    }

    /// A thread that calls [`Pager::install_for`] for `port` begins, or ends.
    pub fn help_port(&self, port: u16, begins: bool) {
        let helpers = &self.port(port).delegation.helpers;
        if begins {
            helpers.fetch_add(1, Ordering::Relaxed);
        } else {
            helpers.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether `port` has handed an install over that nobody has begun.
    #[inline]
    pub fn is_install_wanted(&self, port: u16) -> bool {
        self.port(port).delegation.is_wanted()
    }

    /// Makes one install that `port` has handed over, if there is one. Whether it did.
    pub fn install_for(&self, port: u16) -> bool {
        let delegation = &self.port(port).delegation;
        let Some(order) = delegation.take_back() else { return false };
        let is_installed = self.finish_fetch(&order.region, order.page, order.source, order.reservation);
        delegation.give_answer(Answer { order, is_installed, at: M::now() });
        true
    }

    /// Sets when dirty pages on standby are written back: after how long, and how many at once.
    pub fn set_flush(&self, age: Duration, pages: usize) {
        self.limits.set_standby_age(age);
        self.limits.set_standby_pages(pages);
        self.enforce_quotas_now();
    }

    /// Sets how many pages of all regions should be mapped at most.
    pub fn set_process_quota(&self, pages: Option<u64>) {
        self.limits.process.set(pages.map(|pages| pages * PAGE_BYTES as u64));
        self.enforce_quotas_now();
    }

    /// Sets how many pages reclaim keeps local at most, as far as it keeps up with faults, which do not wait for that;
    /// `None` is as many as the limit.
    pub fn set_soft_limit(&self, pages: Option<u64>) {
        let policy = |pages| Policy::new(pages, SOFT_SHARES).expect("the shares are in order");
        self.watermarks.set_soft_limit(pages.map(policy).as_ref());
        self.enforce_quotas_now();
    }

    /// Charged pages, and how many may be at most.
    pub fn charged(&self) -> (u64, u64) {
        (self.local.budget.charged(), self.local.budget.most())
    }

    /// Changes the limit of local memory, and returns when it holds: whether it did in time.
    pub fn set_limit(&self, policy: &Policy) -> bool {
        self.set_policy(policy);
        let deadline = M::now() + self.node.fault_deadline();
        loop {
            let reclaimer = self.lock_reclaimer();
            // With the reserve in force, which reclaim goes by: it is less where all fits below the limit.
            let in_force = self.watermarks.of_limit();
            if in_force.limit() != policy.limit() || self.local.budget.has_reached(&in_force) {
                return true;
            }
            drop(reclaimer);
            self.wake_reclaimer();
            if M::now() > deadline {
                return false;
            }
            M::yield_now();
        }
    }

    /// The region and the page that `address` is in: for a thread that may wait for a step of reclaim, and brings the
    /// page.
    pub fn page_at(&self, address: usize) -> Option<(Arc<RegionCore<M>>, PageIndex)> {
        let reclaimer = self.lock_reclaimer();
        reclaimer.regions.iter().flatten().find_map(|region| {
            let offset = address.checked_sub(M::address(&region.mapping))?;
            (offset < M::len(&region.mapping)).then(|| (Arc::clone(region), PageIndex::containing(offset as u64)))
        })
    }

    /// Takes what the evictor can take of a block, whether memory presses or not, and waits for whoever is inside.
    /// How many pages. For tests of what the kernel refuses.
    pub fn sweep_block(&self, core: &RegionCore<M>, block: BlockIndex) -> usize {
        let mut reclaimer = self.lock_reclaimer();
        while !core.block_gate(block).try_sweep() {
            M::relax();
        }
        reclaimer.take_block(core, block, usize::MAX, Victims::All)
    }

    /// Puts what is mapped of `pages` on standby, though memory does not press: their next touches are minor faults,
    /// which an observer sees. Passes over a block that somebody is inside, or that has no frames. How many pages.
    pub fn set_aside(&self, core: &RegionCore<M>, pages: Range<u32>) -> usize {
        let mut reclaimer = self.lock_reclaimer();
        let (mut start, mut taken) = (pages.start, 0);
        while start < pages.end {
            let block = PageIndex(start).block();
            let end = pages.end.min((block.0 + 1) * BLOCK_PAGES_U32);
            if core.block_gate(block).try_sweep() {
                taken += reclaimer.sweep_range(core, block, start..end);
            }
            start = end;
        }
        taken
    }

    /// A region begins, of `memory`, whose pages are on the node from `remote` on; `None` if there are too many.
    pub fn begin_region(
        self: &Arc<Self>,
        memory: M::Memory,
        remote: RemoteAddress,
        hasher: PageHasher,
    ) -> Result<Option<Arc<RegionCore<M>>>, M::Refusal> {
        let mut reclaimer = self.lock_reclaimer();
        let number = reclaimer.regions.iter().position(Option::is_none).unwrap_or(reclaimer.regions.len());
        if number >= REGIONS_MAX {
            return Ok(None);
        }
        let core = Arc::new(RegionCore::new(Arc::clone(self), number.narrow_u32(), memory, remote, hasher));
        M::register(&self.space, &core.mapping)?;
        if number == reclaimer.regions.len() {
            reclaimer.regions.push(None);
        }
        reclaimer.regions[number] = Some(Arc::clone(&core));
        self.region_table.enter(&core);
        self.local.add_metadata(core.metadata_bytes());
        Ok(Some(core))
    }
}
