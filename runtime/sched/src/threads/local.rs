//! What a worker of light threads shares: [`WorkerShared`] with all threads, [`Local`] with its own light threads.
//!
//! Who touches what: inbox and sleeper are for all threads. What is in [`Local`] is touched on the worker's thread
//! alone, by the loop and by the light thread that runs, each for a moment. A page fault must not suspend a light
//! thread in such a moment (an allocator may have its memory far), so each is a no-yield section.
//!
//! Neighbours: `worker` runs the loop, `parker` waits and wakes, `run` starts workers.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::Duration;

use yonder_unithread::no_yield;
use yonder_units::Nanos;

use super::inbox::Inbox;
use super::net::Reactor;
use super::parker::{Parker, Waiter};
use super::run::Run;
use crate::park::Sleeper;

thread_local! {
    /// What this thread has as a worker of light threads.
    static LOCAL: RefCell<Option<Rc<Local>>> = const { RefCell::new(None) };
}

/// A worker as other threads see it.
pub(super) struct WorkerShared {
    pub(super) inbox: Inbox,
    pub(super) sleeper: Sleeper,
    /// Set before the worker's first turn.
    thread: OnceLock<Thread>,
    /// Made by the worker when one of its light threads first waits for a socket.
    reactor: OnceLock<Reactor>,
}

impl WorkerShared {
    pub(super) fn new(light_threads: usize) -> Self {
        Self {
            inbox: Inbox::new(light_threads),
            sleeper: Sleeper::default(),
            thread: OnceLock::new(),
            reactor: OnceLock::new(),
        }
    }

    /// Wakes the worker if it sleeps. Returns whether it did. Called after its work has been made visible.
    pub(super) fn wake(&self) -> bool {
        let mut slept = false;
        self.sleeper.wake(|| {
            slept = true;
            match (self.reactor.get(), self.thread.get()) {
                (Some(reactor), _) => reactor.interrupt(),
                (None, Some(thread)) => thread.unpark(),
                (None, None) => {}
            }
        });
        slept
    }

    /// Sleeps until the worker is woken, a socket is ready, or this time has passed. Called by the worker.
    pub(super) fn sleep(&self, span: Duration) {
        match self.reactor.get() {
            Some(reactor) => reactor.sleep(span),
            None => std::thread::park_timeout(span),
        }
    }

    /// The worker's reactor, if there is one.
    pub(super) fn reactor(&self) -> Option<&Reactor> {
        self.reactor.get()
    }

    /// The worker's reactor, which is made if there is none. Called on the worker's thread, so that a worker that
    /// sleeps without one gets none before it wakes.
    pub(super) fn reactor_or_make(&self) -> std::io::Result<&Reactor> {
        if let Some(reactor) = self.reactor.get() {
            return Ok(reactor);
        }
        let reactor = Reactor::new()?;
        Ok(self.reactor.get_or_init(|| reactor))
    }

    /// Lets light thread `token` of this worker go on. It has been suspended, or will be before the worker looks.
    pub(super) fn make_ready(self: &Arc<Self>, token: u32) {
        let push = |local: &RefCell<Option<Rc<Local>>>| match &*local.borrow() {
            Some(local) if Arc::ptr_eq(&local.shared, self) => {
                local.ready.borrow_mut().push_back(token);
                true
            }
            _ => false,
        };
        // A thread that ends has no thread-locals any more, and is no worker.
        if !no_yield(|| LOCAL.try_with(push).unwrap_or(false)) {
            no_yield(|| self.inbox.post(token));
            self.wake();
        }
    }
}

/// A worker as its own light threads see it.
pub(super) struct Local {
    pub(super) run: Arc<Run>,
    pub(super) shared: Arc<WorkerShared>,
    /// Suspended light threads that may go on, in the order in which that was seen. Each is there at most once, so
    /// there is room for all.
    ready: RefCell<VecDeque<u32>>,
    /// Light threads that go on at a time, and what they wait for until then, if it is more than the time.
    timers: RefCell<BTreeMap<(Nanos, u32), Option<Waiter>>>,
    /// The parkers of the light threads that have waited here, by their tokens.
    parkers: RefCell<Vec<Option<Arc<Parker>>>>,
}

impl Local {
    /// Makes this thread a worker; undone by [`leave`](Self::leave).
    pub(super) fn enter(run: Arc<Run>, shared: Arc<WorkerShared>) -> Rc<Self> {
        assert!(shared.thread.set(std::thread::current()).is_ok(), "a worker has one thread");
        let light_threads = run.light_threads();
        let local = Rc::new(Self {
            run,
            shared,
            ready: RefCell::new(VecDeque::with_capacity(light_threads)),
            timers: RefCell::default(),
            parkers: RefCell::new(vec![None; light_threads]),
        });
        LOCAL.set(Some(Rc::clone(&local)));
        local
    }

    /// Makes this thread the first worker of a new run.
    #[cfg(all(test, not(yonder_loom)))]
    pub(super) fn enter_for_test(config: &super::Config) -> Rc<Self> {
        let run = Arc::new(Run::new(config).unwrap());
        let shared = run.worker(0);
        Self::enter(run, shared)
    }

    /// This thread is no worker any more.
    pub(super) fn leave() {
        LOCAL.set(None);
    }

    /// The worker whose light thread is running here.
    pub(super) fn current() -> Option<Rc<Self>> {
        if !yonder_unithread::is_on_unithread() {
            return None;
        }
        LOCAL.with_borrow(Option::clone)
    }

    pub(super) fn with_ready<T>(&self, look: impl FnOnce(&mut VecDeque<u32>) -> T) -> T {
        no_yield(|| look(&mut self.ready.borrow_mut()))
    }

    /// The parker of light thread `token`, which runs here.
    pub(super) fn parker(&self, token: u32) -> Arc<Parker> {
        no_yield(|| {
            let mut parkers = self.parkers.borrow_mut();
            let parker = &mut parkers[token as usize];
            Arc::clone(parker.get_or_insert_with(|| Arc::new(Parker::of_light_thread(&self.shared, token))))
        })
    }

    /// Light thread `token` goes on at `time`; if it is a waiter, unless its wait has ended then.
    pub(super) fn set_timer(&self, time: Nanos, token: u32, waiter: Option<Waiter>) {
        let before = no_yield(|| self.timers.borrow_mut().insert((time, token), waiter));
        assert!(before.is_none(), "a light thread waits for one time");
    }

    /// Undoes [`set_timer`](Self::set_timer), if the time has not come.
    pub(super) fn cancel_timer(&self, time: Nanos, token: u32) {
        no_yield(|| self.timers.borrow_mut().remove(&(time, token)));
    }

    /// The time of the first timer.
    pub(super) fn next_timer(&self) -> Option<Nanos> {
        self.timers.borrow().first_key_value().map(|((time, _), _)| *time)
    }

    /// Lets those go on whose time is up.
    pub(super) fn fire_timers(&self, now: Nanos) {
        while self.next_timer().is_some_and(|time| time <= now) {
            let Some(((_, token), waiter)) = self.timers.borrow_mut().pop_first() else { return };
            match waiter {
                Some(waiter) => waiter.time_out(),
                None => self.with_ready(|ready| ready.push_back(token)),
            }
        }
    }
}
