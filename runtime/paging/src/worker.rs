//! [`WorkerPort`]: what binds a worker thread to a far memory, so that faults on its unithreads yield.
//!
//! The binding is thread-local and plain data: the fault handler reads it, and thread-locals with destructors would
//! allocate at their first use.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use yonder_pager::{FaultCounts, FaultPolicy, Installs, PollMode, Posting};
use yonder_trap::HeldBack;
use yonder_units::Nanos;

use crate::error::FarError;
use crate::far_memory::FarMemory;
use crate::kernel::Pager;

thread_local! {
    /// What this thread is a worker of.
    static BOUND: Cell<Option<Binding>> = const { Cell::new(None) };
    /// Number of this thread among those that have had a fault outside of a worker, from 1 on; 0 before the first.
    static GUEST: Cell<usize> = const { Cell::new(0) };
}

/// What binds a thread: the pager it is a worker of, its port there, and how its faults wait.
#[derive(Clone, Copy)]
struct Binding {
    pager: u32,
    port: u16,
    policy: FaultPolicy,
}

/// A worker thread's port. Made on the thread that uses it; the thread is bound until the drop, which gives up what is
/// under way here and gives the port back for the next thread that is bound.
///
/// The worker calls [`poll`](Self::poll) at each turn of its scheduler, with the time of that turn from `yonder-clock`,
/// and resumes every unithread that it names once. What unithreads of this worker wait for is sent, repeated and seen
/// to arrive by its polls, so a worker with nothing to run goes on polling while one of them is parked. The drop comes
/// when none is. No method but [`bind`](Self::bind) allocates, if `ready` and `retry` have room for all unithreads.
pub struct WorkerPort {
    pager: Arc<Pager>,
    id: u16,
    /// Keeps the far memory and its reclaimer running.
    _far: FarMemory,
    /// Where faults are handled with signals held back: unithreads are left in the middle of them.
    _held_back: Option<HeldBack>,
    /// The binding is thread-local.
    _not_send: PhantomData<*mut ()>,
}

/// Holds back on this thread what workers hold back, where they have to. Threads that it starts do so from their first
/// instruction to their last, whatever they are bound to in between.
pub fn hold_back_for_workers() -> Option<HeldBack> {
    yonder_trap::holds_signals().then(HeldBack::as_in_faults)
}

impl WorkerPort {
    /// Binds this thread to `far`. `unithreads` bounds the ids of the unithreads that will run on it.
    pub fn bind(far: &FarMemory, unithreads: usize, policy: FaultPolicy) -> Result<Self, FarError> {
        let pager = Arc::clone(far.pager());
        assert!(BOUND.get().is_none(), "this thread is bound to a far memory already");
        let held_back = hold_back_for_workers();
        let id = pager.add_port(unithreads)?;
        BOUND.set(Some(Binding { pager: pager.id(), port: id, policy }));
        Ok(Self { pager, id, _far: far.clone(), _held_back: held_back, _not_send: PhantomData })
    }

    /// The port's number, by which other threads ask for [`FarMemory::outstanding`].
    #[must_use]
    pub fn id(&self) -> u16 {
        self.id
    }

    /// Maps what has arrived, or hands it over as `installs` allows. Appends to `ready` the unithreads whose pages are
    /// there, and to `retry` those that wait for something else and look again when they are resumed. Reads are begun
    /// now or gathered, as `posting` says.
    #[inline]
    pub fn poll(&self, now: Nanos, installs: Installs, posting: Posting, ready: &mut Vec<u32>, retry: &mut Vec<u32>) {
        self.pager.poll_worker(self.id, now, PollMode { installs, posting }, ready, retry);
    }

    /// Faults of unithread `token` since the last call.
    #[must_use]
    pub fn take_faults(&self, token: u32) -> FaultCounts {
        self.pager.take_faults(self.id, token)
    }
}

impl Drop for WorkerPort {
    fn drop(&mut self) {
        BOUND.set(None);
        self.pager.return_port(self.id);
    }
}

/// The port and the token of the unithread that runs on this thread, and how its faults wait, if the thread is bound to
/// pager `pager`.
#[inline]
pub(crate) fn bound_unithread(pager: u32) -> Option<(u16, u32, FaultPolicy)> {
    let bound = BOUND.get()?;
    let token = yonder_unithread::current()?;
    (bound.pager == pager).then_some((bound.port, token.0, bound.policy))
}

/// A number of this thread that stays the same.
#[inline]
pub(crate) fn guest_number() -> usize {
    static GUESTS: AtomicUsize = AtomicUsize::new(1);
    if GUEST.get() == 0 {
        GUEST.set(GUESTS.fetch_add(1, Ordering::Relaxed));
    }
    GUEST.get()
}

/// The port that this thread is bound to, if it is a worker of pager `pager`.
pub(crate) fn bound_port(pager: u32) -> Option<u16> {
    BOUND.get().and_then(|bound| (bound.pager == pager).then_some(bound.port))
}
