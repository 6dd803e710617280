//! The fault path: from the touch of a page to the page being there.
//!
//! [`bring`] is called by the SIGBUS handler and, without a trap, by accesses that look at the page table first. It is
//! a loop over the entry's state; whatever it cannot do now it waits for and looks again. How it waits is the caller's
//! nature: a unithread of a bound worker parks (or spins, by policy), any other thread waits inline as a guest
//! (`guests`).

use std::cell::Cell;
use std::sync::Arc;

use crate::pagetable::{Entry, Event, Source, State};
use yonder_units::{Nanos, PageId, PageIndex};

use crate::config::FaultPolicy;
use crate::delegation::Installs;
use crate::error::PagingCause;
use crate::event::event;
use crate::forked;
use crate::guests::{self, GuestPort};
use crate::install::Local;
use crate::machine::{Machine, Rule};
use crate::pager::{GUEST_PORTS, Pager};
use crate::port::{FetchRequest, FetchReservation, Hit, PollMode, Port, PortInner};
use crate::range_fetch;
use crate::region::RegionCore;

/// Looks at an entry before a thread that waits for it lets others run.
const GUEST_SPINS: u32 = 256;
/// Time without a poll of a port after which another thread that waits for a page of it polls.
const UNPOLLED_MAX: Nanos = 100_000;

/// What a thread is held up for longer it has slept for, or another had its CPU.
const SPUN_MAX: Nanos = 100_000;

/// What was touched, and from where.
pub(crate) struct FaultTouch<'a, M: Machine> {
    pub(crate) region: &'a Arc<RegionCore<M>>,
    pub(crate) offset: u64,
    /// The registers at the instruction, if it had a fault.
    pub(crate) registers: Option<M::Registers<'a>>,
    pub(crate) wants: Wants,
    /// Whether its fetch was begun for it a moment ago, with others: it joins that, and is a major fault.
    pub(crate) is_in_range_fetch: Cell<bool>,
    /// Whether there was no trap, because the page is brought before it is touched.
    pub(crate) is_untrapped: bool,
    /// Whether `offset` is that of the byte, or only of its page.
    pub(crate) knows_byte: bool,
}

/// What a touch needs of its page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wants {
    /// To have it mapped.
    Mapping,
    /// To read it, wherever it is local.
    Bytes,
}

impl Wants {
    #[inline]
    fn are_met_by(self, state: State) -> bool {
        match state {
            State::Resident | State::Lent => true,
            State::Untouched | State::Standby(_) => self == Self::Bytes,
            State::Remote | State::Fetching { .. } | State::Installing(_) | State::Evicting | State::Poisoned(_) => {
                false
            }
        }
    }
}

impl<'a, M: Machine> FaultTouch<'a, M> {
    /// A touch without a fault.
    #[inline]
    pub(crate) fn of(region: &'a Arc<RegionCore<M>>, offset: u64, wants: Wants) -> Self {
        Self {
            region,
            offset,
            registers: None,
            wants,
            is_in_range_fetch: Cell::new(false),
            is_untrapped: false,
            knows_byte: true,
        }
    }

    pub(crate) fn page(&self) -> PageIndex {
        PageIndex::containing(self.offset)
    }
}

/// A touch that finds its page far.
pub(crate) struct Miss<'t, 'a, M: Machine> {
    pub(crate) touch: &'t FaultTouch<'a, M>,
    /// The page's entry as it was.
    pub(crate) seen: Entry,
    /// When the fault began, and when it fails.
    pub(crate) entered: Nanos,
    pub(crate) deadline: Nanos,
}

/// Who has touched the page.
enum Toucher<'a, M: Machine> {
    /// A unithread of a worker that is bound to this pager.
    Unithread { port: &'a Port<M>, token: u32, may_yield: MayYield },
    /// Any other thread.
    Thread,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum MayYield {
    Now,
    AfterSpinning(Nanos),
    /// Meanwhile installs are made as this says.
    Never(Installs),
}

/// How one attempt to fetch ended.
pub(crate) enum Attempt {
    Over(Result<(), PagingCause>),
    Raced,
    NoRoom,
    NoSlot,
}

/// Gives the touch what it wants of its page, or says why that is not possible before the deadline. The page may be
/// taken away again at any time after; the access that needs it is simply tried again.
pub(crate) fn bring<M: Machine>(touch: &FaultTouch<'_, M>) -> Result<(), PagingCause> {
    let (region, page) = (touch.region, touch.page());
    let pager = &*region.pager;
    if pager.child.is_one() {
        return forked::bring(region, page);
    }
    let entered = M::now();
    let toucher = Toucher::of_this_thread(pager);
    let before = region.table.load(page).state();
    let result = bring_for(toucher, touch, entered);
    if matches!(toucher, Toucher::Thread) {
        let stalled = M::now().saturating_sub(entered);
        pager.stalls.add::<M>(stalled, stalled.saturating_sub(SPUN_MAX));
        if touch.is_untrapped && !touch.wants.are_met_by(before) && result.is_ok() {
            pager.stalls.had_no_trap::<M>(matches!(before, State::Remote | State::Fetching { .. }));
        }
    }
    result
}

fn bring_for<M: Machine>(
    toucher: Toucher<'_, M>,
    touch: &FaultTouch<'_, M>,
    entered: Nanos,
) -> Result<(), PagingCause> {
    let (region, page) = (touch.region, touch.page());
    let pager = &*region.pager;
    let deadline = entered + pager.node.fault_timeout();
    let (mut waits_for, mut pauses, mut has_looked) = (PagingCause::Stuck, 0, !touch.knows_byte);
    loop {
        let seen = region.table.load(page);
        M::preempt();
        match seen.state() {
            // While it is lent or recalled, it may be that nobody maps it.
            State::Lent if region.gate(page).is_closed() => {}
            // Or it is write-protected, with others that are swept.
            State::Resident if touch.registers.is_some() && region.gate(page).is_closed() => {}
            state if touch.wants.are_met_by(state) => {
                touch.is_in_range_fetch.get().then(|| range_fetch::count(pager, entered));
                return Ok(());
            }
            State::Resident | State::Lent => unreachable!("whatever is wanted of a page can be had where it is mapped"),
            State::Poisoned(code) => return Err(PagingCause::of_page(code)),
            State::Untouched if pager.lend(region, page) => {
                toucher.count_local(pager, Source::Zeros, region.place(page));
                return Ok(());
            }
            State::Untouched | State::Standby(_) => match pager.map_local(region, page, seen) {
                Local::Mapped(source) => {
                    toucher.count_local(pager, source, region.place(page));
                    return Ok(());
                }
                Local::Raced => continue,
                Local::NoRoom => waits_for = PagingCause::LocalMemoryFull,
                Local::Later => {}
            },
            State::Remote if !has_looked => {
                has_looked = true;
                touch.is_in_range_fetch.set(matches!(toucher, Toucher::Thread) && range_fetch::fetch_object(touch));
                continue;
            }
            State::Remote => match toucher.fetch(&Miss { touch, seen, entered, deadline }) {
                Attempt::Over(result) => return result,
                Attempt::Raced => continue,
                Attempt::NoRoom => waits_for = PagingCause::LocalMemoryFull,
                Attempt::NoSlot => {}
            },
            State::Fetching { port, slot } => {
                match toucher.join(touch, port, slot) {
                    // It may have been fetched for somebody who wants less.
                    Some(Ok(())) => continue,
                    Some(Err(cause)) => return Err(cause),
                    None => {}
                }
            }
            State::Installing(_) | State::Evicting => {}
        }
        if M::now() > deadline {
            return Err(waits_for);
        }
        if waits_for == PagingCause::LocalMemoryFull {
            if pauses == 0 {
                event!(debug, region = region.number, page = page.0, "a fault waits for local memory");
            }
            pager.wake_reclaimer();
        }
        pauses += 1;
        toucher.pause(pager, pauses);
    }
}

impl<M: Machine> Clone for Toucher<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Machine> Copy for Toucher<'_, M> {}

impl<'a, M: Machine> Toucher<'a, M> {
    #[inline]
    fn of_this_thread(pager: &'a Pager<M>) -> Self {
        let Some((port, token, policy)) = M::bound_unithread(pager.id) else { return Self::Thread };
        let port = pager.port(port);
        let may_yield = match policy {
            _ if M::in_no_yield_section() && !M::breaks(Rule::SectionIsKept) => MayYield::Never(Installs::Own),
            FaultPolicy::Yield => MayYield::Now,
            FaultPolicy::Busy => MayYield::Never(Installs::Own),
            FaultPolicy::BusyDelegated => MayYield::Never(Installs::Delegated),
            FaultPolicy::Hybrid(spin) => MayYield::AfterSpinning(spin),
        };
        Self::Unithread { port, token, may_yield }
    }

    /// Fetches a remote page and waits for it.
    fn fetch(self, miss: &Miss<'_, '_, M>) -> Attempt {
        let Miss { touch, entered, .. } = *miss;
        match self {
            Self::Unithread { port, token, may_yield } => {
                let mut inner = port.lock();
                if let Err(why_not) = start(miss, port, &mut inner, token) {
                    return why_not;
                }
                inner.waiters.count_major_fault(token, touch.region.place(touch.page()));
                port.publish(&inner);
                drop(inner);
                let (result, mapped) = wait_as_unithread(&touch.region.pager, port, token, may_yield);
                let (now, stalled) = (M::now(), mapped.saturating_sub(entered));
                // Its worker ran others, if it could.
                let slept = if matches!(may_yield, MayYield::Never(_)) { 0 } else { stalled };
                touch.region.pager.stalls.add::<M>(stalled, slept);
                port.stages.resume.record(now.saturating_sub(mapped));
                port.stages.total.record(now.saturating_sub(entered));
                Attempt::Over(result)
            }
            Self::Thread => guests::fetch(miss),
        }
    }

    /// Waits for a fetch that this worker, or a guest, has in flight already; `None` if it is another's or just over.
    fn join(self, touch: &FaultTouch<'_, M>, port: u16, slot: u16) -> Option<Result<(), PagingCause>> {
        let region = touch.region;
        let (own, token, may_yield) = match self {
            Self::Unithread { port: own, token, may_yield } if own.id == port => (own, token, may_yield),
            Self::Unithread { port: own, token, .. } => {
                let result = touch_foreign(touch, port, slot);
                if result.is_some() {
                    own.lock().waiters.count_minor_fault(token, region.place(touch.page()));
                }
                return result;
            }
            Self::Thread if usize::from(port) < GUEST_PORTS => {
                return guests::join(touch, region.pager.port(port), slot);
            }
            Self::Thread => return touch_foreign(touch, port, slot),
        };
        let mut inner = own.lock();
        if region.table.load(touch.page()).state() != (State::Fetching { port, slot }) {
            return None;
        }
        if inner.is_ahead(slot) {
            match hit(&mut inner, slot, touch, own) {
                Hit::Mapped => {
                    inner.waiters.count_minor_fault(token, region.place(touch.page()));
                    return Some(Ok(()));
                }
                Hit::OnItsWay => {}
                Hit::Later | Hit::Over => return None,
            }
        }
        inner.join(slot, token);
        inner.waiters.count_minor_fault(token, region.place(touch.page()));
        drop(inner);
        own.stats.joins.add(1);
        Some(wait_as_unithread(&region.pager, own, token, may_yield).0)
    }

    /// Lets others run for a moment.
    fn pause(self, pager: &Pager<M>, pauses: u32) {
        match self {
            Self::Unithread { port, token, may_yield: MayYield::Now | MayYield::AfterSpinning(_) } => {
                port.lock().waiters.retry.push(token);
                M::suspend();
            }
            Self::Unithread { port, may_yield: MayYield::Never(_), .. } => {
                let mut inner = port.lock();
                port.turn(pager, M::now()).poll(&mut inner);
                drop(inner);
                M::yield_now();
            }
            Self::Thread if pauses < GUEST_SPINS => M::relax(),
            Self::Thread => M::yield_now(),
        }
    }

    fn count_local(self, pager: &Pager<M>, source: Source, page_id: PageId) {
        let count = |port: &Port<M>| match source {
            Source::Zeros => port.stats.zero_faults.add(1),
            Source::Frame(_) => port.stats.rescues.add(1),
        };
        match self {
            Self::Unithread { port, token, .. } => {
                count(port);
                port.lock().waiters.count_minor_fault(token, page_id);
            }
            Self::Thread => {
                // The counters of a port have one writer at a time: the thread that has its lock.
                count(GuestPort::borrow(pager).port());
            }
        }
    }
}

/// Takes everything a fetch needs, moves the entry to `Fetching` and posts the read; gives all back if any is missing.
pub(crate) fn start<M: Machine>(
    miss: &Miss<'_, '_, M>,
    port: &Port<M>,
    inner: &mut PortInner<M>,
    token: u32,
) -> Result<(), Attempt> {
    let Miss { touch, seen, entered, deadline } = *miss;
    let (region, page) = (touch.region, touch.page());
    let pager = &*region.pager;
    let Some(slot) = inner.take_slot() else { return Err(Attempt::NoSlot) };
    let Some(reservation) = FetchReservation::take(pager, touch.wants) else {
        inner.return_slot(slot);
        return Err(Attempt::NoRoom);
    };
    M::preempt();
    if region.table.advance(page, seen, Event::Fetch { port: port.id, slot }).is_err() {
        reservation.give_back(pager);
        inner.return_slot(slot);
        return Err(Attempt::Raced);
    }
    inner.start(&FetchRequest { region, page, slot, reservation, entered, deadline }, port);
    inner.join(slot, token);
    let turn = port.turn(pager, M::now());
    if !inner.fetch_advised(region, page, turn) {
        inner.missed(touch, turn);
    }
    Ok(())
}

/// Touches a page that another thread's port fetches. What was fetched ahead there is mapped, for that thread may not
/// look at it for long; what it waits for itself arrives if that thread does not poll, perhaps because it computes.
/// `None` if nothing was mapped by that.
fn touch_foreign<M: Machine>(touch: &FaultTouch<'_, M>, port: u16, slot: u16) -> Option<Result<(), PagingCause>> {
    let port = touch.region.pager.port(port);
    let mut inner = GuestPort::visit(port)?;
    if inner.is_ahead(slot) {
        let is_mapped = hit(&mut inner, slot, touch, port) == Hit::Mapped;
        return is_mapped.then_some(Ok(()));
    }
    let now = M::now();
    if now.saturating_sub(inner.polled) > UNPOLLED_MAX {
        port.turn(&touch.region.pager, now).poll(&mut inner);
    }
    None
}

/// Touches a page that is fetched ahead, after a look whether it has arrived.
pub(crate) fn hit<M: Machine>(inner: &mut PortInner<M>, slot: u16, touch: &FaultTouch<'_, M>, port: &Port<M>) -> Hit {
    let turn = port.turn(&touch.region.pager, M::now());
    match inner.hit(slot, touch, turn) {
        Hit::OnItsWay => {
            turn.poll(inner);
            inner.hit(slot, touch, turn)
        }
        seen => seen,
    }
}

/// Waits until the fetch that `token` has joined is over.
fn wait_as_unithread<M: Machine>(
    pager: &Pager<M>,
    port: &Port<M>,
    token: u32,
    may_yield: MayYield,
) -> (Result<(), PagingCause>, Nanos) {
    let (spin_until, installs) = match may_yield {
        MayYield::Now => (0, Installs::Own),
        MayYield::AfterSpinning(spin) => (M::now() + spin, Installs::Own),
        MayYield::Never(installs) => (Nanos::MAX, installs),
    };
    loop {
        let now = M::now();
        let mut inner = port.lock();
        if now >= spin_until {
            // Another thread that found a page here fetched ahead has looked at everything that has arrived.
            if let Some(outcome) = inner.waiters.outcome(token) {
                return outcome;
            }
            inner.waiters.park(token);
            drop(inner);
            M::suspend();
            return port.lock().waiters.outcome(token).expect("a parked unithread is resumed when its wait is over");
        }
        port.turn(pager, now).poll_as(&mut inner, PollMode { installs, ..PollMode::ALL });
        if let Some(outcome) = inner.waiters.outcome(token) {
            return outcome;
        }
        drop(inner);
        M::relax();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{self, Fake};

    /// A worker that computes for long does not see what it has fetched. Nobody else's fault fails by that.
    #[test]
    fn a_page_that_a_worker_fetches_arrives_though_the_worker_does_not_poll() {
        let (region, page) = (fake::region(64), PageIndex(0));
        let pager = &*region.pager;
        pager.seal(&region).unwrap();
        let port = pager.port(pager.add_port(1).unwrap());
        let (seen, now) = (region.table.load(page), Fake::now());
        let touch = &FaultTouch::of(&region, 0, Wants::Mapping);
        let miss = Miss { touch, seen, entered: now, deadline: Nanos::MAX };
        assert!(start(&miss, port, &mut port.lock(), 0).is_ok());
        assert!(matches!(region.table.load(page).state(), State::Fetching { .. }));
        assert_eq!((bring(touch), fake::word(&region, 0)), (Ok(()), 1));
        // The worker finds it when it comes.
        assert_eq!(wait_as_unithread(pager, port, 0, MayYield::Now).0, Ok(()));
    }

    /// Another thread that looks for what was fetched ahead here takes all completions, also that of a fetch whose
    /// unithread has joined it and not parked yet.
    #[test]
    fn a_wait_that_is_over_before_its_unithread_parks_is_not_parked() {
        let (region, page) = (fake::region(64), PageIndex(0));
        let pager = &*region.pager;
        // What is local leaves, and is not on standby then.
        pager.seal(&region).unwrap();
        let port = pager.port(pager.add_port(1).unwrap());
        let (seen, now) = (region.table.load(page), Fake::now());
        assert_eq!(seen.state(), State::Remote);
        {
            let mut inner = port.lock();
            let touch = &FaultTouch::of(&region, 0, Wants::Mapping);
            let miss = Miss { touch, seen, entered: now, deadline: Nanos::MAX };
            assert!(start(&miss, port, &mut inner, 0).is_ok());
            while inner.waiters.outcome(0).is_none() {
                port.turn(pager, Fake::now()).poll(&mut inner);
            }
        }
        let (result, _) = wait_as_unithread(pager, port, 0, MayYield::Now);
        assert_eq!((result, region.is_resident(page)), (Ok(()), true));
        assert_eq!(fake::word(&region, 0), 1);
    }
}
