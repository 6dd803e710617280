//! Guests: threads that are not workers, and how they wait for their pages.
//!
//! All of them share a few ports. A guest has a port's lock for moments only: to start its fetch, to look what has
//! arrived, and to see that its own wait is over. In between it has a *token* there, as a unithread has one at its
//! worker's port, and a slot for its fetch; so as many guests fetch at a time as there are slots.
//!
//! **Who polls.** No page comes sooner than the quickest of late, so a guest sleeps until then, if a sleep is worth it.
//! From then on its page is *due*, and the first guest whose page is due polls for all; the others sleep until their
//! bell rings: because a poll has found their page, or because the guest that polled has its own, and hands the polling
//! on to the one whose page has been due for longest. A guest that polls and is held up, by whatever it may be, is
//! replaced ([`STALE_AFTER`]).
//!
//! All this happens in the handler of a fault: nothing allocates, and no wait is made with a lock in hand. A handler of
//! the program that interrupts a guest, and touches far memory itself, takes another port if its thread has this one's
//! lock.
//!
//! Invariants: whatever ends waits at a guest's port gives it up as [`GuestPort`], which rings the bells. A bell is
//! rung under the port's lock, and was reset under it by who sleeps, so no ring is lost.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::pagetable::State;
use yonder_units::{Nanos, Narrow};

use crate::error::PagingCause;
use crate::fault::{self, Attempt, FaultTouch, Miss};
use crate::machine::{Machine, Rule};
use crate::pager::{GUEST_PORTS, Pager};
use crate::port::{Hit, Port, PortInner};
use crate::waiters::Waiters;

/// Guests that wait at one port at a time.
pub(crate) const GUEST_TOKENS: usize = 512;
/// Polls before a guest lets other threads run: of one that is alone at its port, and of one that others want the lock
/// of.
const ALONE_POLLS: u32 = 256;
const SHARED_POLLS: u32 = 16;
/// Pauses of the CPU between two polls of a port that others want the lock of.
const SHARED_PAUSES: u32 = 16;
/// Looks at the port that a guest had before, until it takes another.
const LOCK_SPINS: u32 = 64;
/// Bells that are rung with one hold of the lock.
const BELLS_MAX: usize = 32;
/// Shortest sleep that is worth two switches between threads, and longest that an estimate decides.
const SLEEP_MIN: Nanos = 100_000;
const SLEEP_MAX: Nanos = 50_000_000;
/// How late the kernel ends a sleep.
const SLEEP_LATE: Nanos = 50_000;
/// Time without a poll after which another guest polls.
const STALE_AFTER: Nanos = 20_000_000;

/// A bell that has not been rung since its guest went to sleep, and one that has.
const SILENT: u32 = 0;
const RUNG: u32 = 1;

/// The guests of one port. Touched only under the port's lock.
pub(crate) struct Guests {
    tokens: usize,
    /// Tokens that no guest has.
    free: Vec<u32>,
    /// Guests that sleep though their pages are due, the longest first.
    due: VecDeque<u32>,
    /// The guest that polls for them, and when it did so last.
    poller: Option<u32>,
    polled: Nanos,
    /// The time that the quickest fetch of late has taken; 0 before the first.
    quickest: Nanos,
}

/// What a guest does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Action {
    Poll,
    /// Sleep so long, or until its bell rings.
    Sleep(Nanos),
}

impl Guests {
    /// Room for `tokens` guests; none at a worker's port.
    pub(crate) fn new(tokens: usize) -> Self {
        Self {
            tokens,
            free: (0..tokens.narrow_u32()).rev().collect(),
            due: VecDeque::with_capacity(tokens),
            poller: None,
            polled: 0,
            quickest: 0,
        }
    }

    /// Whether this is a guest's port, and no other guest waits here: one that waits with the lock in hand holds nobody
    /// up.
    #[inline]
    pub(crate) fn is_alone(&self) -> bool {
        self.tokens > 0 && self.free.len() + 1 >= self.tokens
    }

    /// When the page of a fetch that was posted at `posted` is due.
    #[inline]
    fn due_at(&self, posted: Nanos) -> Nanos {
        let sleep = self.quickest.saturating_sub(self.quickest / 128 + SLEEP_LATE);
        if sleep < SLEEP_MIN { posted } else { posted + sleep }
    }

    /// A fetch has taken so long.
    #[inline]
    fn observe(&mut self, time: Nanos) {
        let before = if self.quickest == 0 { Nanos::MAX } else { self.quickest + self.quickest / 64 + 1 };
        self.quickest = time.min(before).min(SLEEP_MAX);
    }

    /// The page of a guest was there when it had slept until it was due: perhaps for long.
    #[inline]
    fn overslept(&mut self) {
        self.quickest -= self.quickest / 8;
    }

    /// What the guest with `token`, whose page is due at `due`, does now.
    #[inline]
    fn next_action(&mut self, token: u32, due: Nanos, now: Nanos) -> Action {
        if self.poller != Some(token) {
            if now < due {
                return Action::Sleep(due - now);
            }
            if self.poller.is_some() && now < self.polled + STALE_AFTER {
                if !self.due.contains(&token) {
                    self.due.push_back(token);
                }
                return Action::Sleep(STALE_AFTER);
            }
            self.leave_due(token);
            self.poller = Some(token);
        }
        self.polled = now;
        Action::Poll
    }

    /// The wait of `token` is over: another guest has the token next. Hands the polling on, and says to whom.
    #[inline]
    fn leave(&mut self, token: u32, waiters: &Waiters, now: Nanos) -> Option<u32> {
        self.leave_due(token);
        self.free.push(token);
        if self.poller != Some(token) {
            return None;
        }
        (self.poller, self.polled) = (None, now);
        while let Some(next) = self.due.pop_front() {
            if waiters.outcome(next).is_none() {
                self.poller = Some(next);
                return self.poller;
            }
        }
        None
    }

    #[inline]
    fn leave_due(&mut self, token: u32) {
        if let Some(place) = self.due.iter().position(|due| *due == token) {
            self.due.remove(place);
        }
    }
}

/// The bells of a port's guests, by their tokens: what a guest sleeps on.
pub(crate) struct Bells(Box<[AtomicU32]>);

impl Bells {
    pub(crate) fn new(tokens: usize) -> Self {
        Self((0..tokens).map(|_| AtomicU32::new(SILENT)).collect())
    }

    #[inline]
    fn of(&self, token: u32) -> &AtomicU32 {
        &self.0[token as usize]
    }

    /// Sleeps until the bell of `token` is rung, or for `time`; perhaps shorter. Who comes back for whatever reason
    /// looks what has become of its page.
    fn sleep<M: Machine>(&self, token: u32, time: Nanos) {
        M::sleep_on(self.of(token), SILENT, time);
    }

    fn wake<M: Machine>(&self, token: u32) {
        M::wake(self.of(token));
    }
}

/// A port's lock, held for a moment. When it is given up, the bells ring of those guests whose waits are over.
pub(crate) struct GuestPort<'a, M: Machine> {
    port: &'a Port<M>,
    inner: Option<MutexGuard<'a, PortInner<M>>>,
}

impl<'a, M: Machine> GuestPort<'a, M> {
    /// The port that this thread had before, because that knows what the thread reads, or else another guests' port.
    #[inline]
    pub(crate) fn borrow(pager: &'a Pager<M>) -> Self {
        let usual = M::guest_number();
        Self::visit(pager.port((usual % GUEST_PORTS).narrow_u16())).unwrap_or_else(|| Self::borrow_any(pager, usual))
    }

    #[cold]
    fn borrow_any(pager: &'a Pager<M>, usual: usize) -> Self {
        let port = |next: usize| pager.port(((usual + next) % GUEST_PORTS).narrow_u16());
        loop {
            for _ in 0..LOCK_SPINS {
                if let Some(found) = Self::visit(port(0)) {
                    return found;
                }
                M::relax();
            }
            if let Some(found) = (1..GUEST_PORTS).find_map(|next| Self::visit(port(next))) {
                return found;
            }
            M::yield_now();
        }
    }

    /// Any port, unless another thread has its lock.
    #[inline]
    pub(crate) fn visit(port: &'a Port<M>) -> Option<Self> {
        port.try_lock().map(|inner| Self { port, inner: Some(inner) })
    }

    fn lock(port: &'a Port<M>) -> Self {
        Self { port, inner: Some(port.lock()) }
    }

    pub(crate) fn port(&self) -> &'a Port<M> {
        self.port
    }
}

impl<M: Machine> Deref for GuestPort<'_, M> {
    type Target = PortInner<M>;

    fn deref(&self) -> &PortInner<M> {
        self.inner.as_ref().expect("it is given up by the drop alone")
    }
}

impl<M: Machine> DerefMut for GuestPort<'_, M> {
    fn deref_mut(&mut self) -> &mut PortInner<M> {
        self.inner.as_mut().expect("it is given up by the drop alone")
    }
}

impl<M: Machine> Drop for GuestPort<'_, M> {
    #[inline]
    fn drop(&mut self) {
        // A worker looks at its own list.
        if !self.waiters.ready.is_empty() && self.guests.tokens > 0 {
            self.ring();
        }
    }
}

impl<M: Machine> GuestPort<'_, M> {
    /// Rings the bells of those whose waits are over, and gives the port up.
    fn ring(&mut self) {
        let Self { port, inner } = self;
        let mut held = inner.take();
        while let Some(mut inner) = held.take() {
            let (mut ended, mut count) = ([0; BELLS_MAX], 0);
            while count < BELLS_MAX
                && let Some(token) = inner.waiters.ready.pop()
            {
                port.bells.of(token).store(RUNG, Ordering::Release);
                ended[count] = token;
                count += 1;
            }
            if M::breaks(Rule::EveryBellRings) {
                inner.waiters.ready.clear();
            }
            let has_more = !inner.waiters.ready.is_empty();
            drop(inner);
            ended[..count].iter().for_each(|token| port.bells.wake::<M>(*token));
            held = has_more.then(|| port.lock());
        }
    }
}

/// Fetches a remote page for a guest, and waits for it.
pub(crate) fn fetch<M: Machine>(miss: &Miss<'_, '_, M>) -> Attempt {
    let pager = &*miss.touch.region.pager;
    let mut inner = GuestPort::borrow(pager);
    let port = inner.port();
    let Some(token) = inner.guests.free.pop() else { return Attempt::NoSlot };
    if let Err(why_not) = fault::start(miss, port, &mut inner, token) {
        inner.guests.free.push(token);
        return why_not;
    }
    let started = M::now();
    let due = inner.guests.due_at(started).min(miss.deadline);
    let (result, inner) = wait(pager, inner, token, due, |guests, end| match end {
        End::At(end) => guests.observe(end.saturating_sub(started)),
        End::BeforeItWasDue => guests.overslept(),
    });
    // The counters of a port have one writer at a time: the thread that has its lock.
    port.stages.total.record(M::now().saturating_sub(miss.entered));
    drop(inner);
    Attempt::Over(result)
}

/// Waits for a fetch at `slot` of another guest's; `None` if it is over, or if that cannot be seen now.
pub(crate) fn join<M: Machine>(
    touch: &FaultTouch<'_, M>,
    port: &Port<M>,
    slot: u16,
) -> Option<Result<(), PagingCause>> {
    let pager = &*touch.region.pager;
    let mut inner = GuestPort::visit(port)?;
    if touch.region.table.load(touch.page()).state() != (State::Fetching { port: port.id, slot }) {
        return None;
    }
    if inner.is_ahead(slot) {
        match fault::hit(&mut inner, slot, touch, port) {
            Hit::Mapped => return Some(Ok(())),
            Hit::OnItsWay => {}
            Hit::Later | Hit::Over => return None,
        }
    }
    let token = inner.guests.free.pop()?;
    inner.join(slot, token);
    let posted = inner.posted_at(slot);
    let due = posted.map_or(0, |posted| inner.guests.due_at(posted));
    if !touch.is_in_range_fetch.get() {
        port.stats.joins.add(1);
        return Some(wait(pager, inner, token, due, |_, _| {}).0);
    }
    let observe = |guests: &mut Guests, end| match (end, posted) {
        (End::At(end), Some(posted)) => guests.observe(end.saturating_sub(posted)),
        (End::At(_), None) => {}
        (End::BeforeItWasDue, _) => guests.overslept(),
    };
    Some(wait(pager, inner, token, due, observe).0)
}

/// When the wait for a fetch has ended, as far as that is known.
#[derive(Clone, Copy)]
enum End {
    At(Nanos),
    BeforeItWasDue,
}

/// Waits until the fetch that `token` has joined is over, and tells `observe` when that was, if it went well. Gives the
/// port back as it is then.
fn wait<'a, M: Machine>(
    pager: &Pager<M>,
    mut inner: GuestPort<'a, M>,
    token: u32,
    due: Nanos,
    observe: impl FnOnce(&mut Guests, End),
) -> (Result<(), PagingCause>, GuestPort<'a, M>) {
    let port = inner.port();
    // What was posted is sent by a poll.
    port.turn(pager, M::now()).poll(&mut inner);
    let (mut polls, mut has_slept) = (0u32, false);
    let (result, end) = loop {
        if let Some((result, at)) = inner.waiters.outcome(token) {
            break (result, End::At(at));
        }
        let now = M::now();
        // Nobody else sends what is to be sent, or repeats what was lost.
        let due = due.min(inner.next_poll());
        match inner.guests.next_action(token, due, now) {
            Action::Poll => {
                port.turn(pager, now).poll(&mut inner);
                if let Some((result, at)) = inner.waiters.outcome(token) {
                    break (result, if has_slept { End::BeforeItWasDue } else { End::At(at) });
                }
                has_slept = false;
                polls += 1;
                let is_alone = inner.guests.is_alone();
                drop(inner);
                pause_between_polls::<M>(polls, is_alone);
            }
            Action::Sleep(time) => {
                inner.waiters.park(token);
                port.bells.of(token).store(SILENT, Ordering::Relaxed);
                drop(inner);
                port.bells.sleep::<M>(token, time);
                has_slept = now < due;
            }
        }
        inner = GuestPort::lock(port);
        inner.waiters.unpark(token);
    };
    let PortInner { guests, waiters, .. } = &mut *inner;
    if result.is_ok() {
        observe(guests, end);
    }
    if let Some(next) = guests.leave(token, waiters, M::now()) {
        waiters.ready.push(next);
    }
    (result, inner)
}

fn pause_between_polls<M: Machine>(polls: u32, is_alone: bool) {
    let (polls_max, pauses) = if is_alone { (ALONE_POLLS, 1) } else { (SHARED_POLLS, SHARED_PAUSES) };
    if polls.is_multiple_of(polls_max) {
        M::yield_now();
    } else {
        (0..pauses).for_each(|_| M::relax());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waiters::Queue;

    const MS: Nanos = 1_000_000;

    /// Guests of a port whose fetches take `quickest`, of which the first `waiting` wait.
    fn guests(waiting: u32, quickest: Nanos) -> (Guests, Waiters, Vec<Queue>) {
        let (mut guests, mut waiters) = (Guests::new(8), Waiters::new(8));
        let mut queues = vec![Queue::EMPTY; waiting as usize];
        for token in 0..waiting {
            assert_eq!(guests.free.pop(), Some(token));
            waiters.join(&mut queues[token as usize], token);
        }
        guests.observe(quickest);
        (guests, waiters, queues)
    }

    #[test]
    fn one_guest_polls_and_hands_on_to_those_that_wait() {
        let (mut guests, mut waiters, queues) = guests(4, 5 * MS);
        assert_eq!(guests.next_action(0, 10, 10), Action::Poll);
        assert_eq!(guests.next_action(1, 10, 10), Action::Sleep(STALE_AFTER));
        assert_eq!(guests.next_action(2, 10, 10), Action::Sleep(STALE_AFTER));
        // The page of this one is not due, and it is not asked to poll.
        assert_eq!(guests.next_action(3, 30, 10), Action::Sleep(20));
        for token in [0, 1] {
            waiters.end(queues[token], Ok(()), 12);
        }
        assert_eq!(guests.leave(1, &waiters, 12), None);
        assert_eq!(guests.leave(0, &waiters, 12), Some(2));
        assert_eq!(
            (guests.next_action(2, 10, 12), guests.next_action(3, 30, 30)),
            (Action::Poll, Action::Sleep(STALE_AFTER))
        );
        waiters.end(queues[3], Ok(()), 31);
        waiters.end(queues[2], Ok(()), 31);
        // Nobody is left who needs a poll.
        assert_eq!(guests.leave(2, &waiters, 31), None);
        assert_eq!((guests.leave(3, &waiters, 31), guests.free.len()), (None, 8));
    }

    #[test]
    fn a_guest_that_stops_to_poll_is_replaced() {
        let (mut guests, ..) = guests(2, MS);
        assert_eq!(guests.next_action(0, 0, 5), Action::Poll);
        assert_eq!(guests.next_action(1, 0, 6), Action::Sleep(STALE_AFTER));
        assert_eq!(guests.next_action(1, 0, 5 + STALE_AFTER), Action::Poll);
        // It sleeps when it comes back, as any other.
        assert_eq!(guests.next_action(0, 0, 6 + STALE_AFTER), Action::Sleep(STALE_AFTER));
        assert_eq!(guests.next_action(1, 0, 7 + STALE_AFTER), Action::Poll);
    }

    #[test]
    fn a_guest_sleeps_only_as_long_as_the_quickest_fetch_takes() {
        let (mut guests, ..) = guests(0, 5 * MS);
        let slept = guests.due_at(100) - 100;
        assert!((49 * MS / 10..5 * MS).contains(&slept), "{slept} of 5 ms");
        (0..1_000).for_each(|_| guests.observe(6 * MS));
        assert_eq!(guests.quickest, 6 * MS);
        guests.observe(MS);
        assert_eq!(guests.quickest, MS);
        // A time that nobody knows, because all slept too long, is found.
        let mut too_long = Guests::new(8);
        too_long.observe(5_000 * MS);
        let mut sleeps = 0;
        while too_long.due_at(0) > MS {
            too_long.overslept();
            sleeps += 1;
        }
        assert!(sleeps < 40, "{sleeps} sleeps");
        (0..100).for_each(|_| too_long.overslept());
        assert_eq!(too_long.due_at(7), 7, "what takes this long is not slept for");
    }
}
