//! [`Wait`]: one wait of the calling thread, light or not, and [`Waiter`]: what others hold of it.
//!
//! ```text
//!   let wait = Wait::begin();          queue.push(wait.waiter());      another thread: waiter.wake(..)
//!   wait.park() -> why it ended
//! ```
//!
//! How the caller waits: a light thread is suspended, and woken by its token in its worker. An ordinary thread blocks
//! in [`std::thread::park`]. So does a light thread that must not be left: one that unwinds, is in a no-yield section,
//! or is on a stack that is not its own. A unithread that serves a request ([`crate::serve`]) has no worker that could
//! be told of it, so it yields until its wait is over.
//!
//! Invariants: a wait ends once (`wait_word`), and only a parked waiter's wake-up is delivered, once. A parker outlives
//! its light thread and serves the next that has its token, whose tickets are different ones.

use std::rc::Rc;
use std::sync::Arc;
use std::thread::Thread;
use std::time::Duration;

use yonder_units::Nanos;

use super::local::{Local, WorkerShared};
use super::wait_word::{End, Signal, Ticket, WaitWord};
use crate::worker::{Suspension, may_suspend, suspend, yield_now};

thread_local! {
    /// The parker of an ordinary thread.
    static PARKER: Arc<Parker> = Arc::new(Parker::of_this_thread());
}

/// A thread that can wait, and how it is woken.
pub(super) struct Parker {
    word: WaitWord,
    owner: Owner,
}

enum Owner {
    LightThread { worker: Arc<WorkerShared>, token: u32 },
    Thread(Thread),
}

impl Parker {
    pub(super) fn of_light_thread(worker: &Arc<WorkerShared>, token: u32) -> Self {
        Self { word: WaitWord::default(), owner: Owner::LightThread { worker: Arc::clone(worker), token } }
    }

    fn of_this_thread() -> Self {
        Self { word: WaitWord::default(), owner: Owner::Thread(std::thread::current()) }
    }
}

/// The wait of somebody, in a queue of those who wait.
pub(super) struct Waiter {
    parker: Arc<Parker>,
    ticket: Ticket,
}

impl Waiter {
    /// Ends the wait because the waiter has got what it waits for. Returns whether it did: else the wait was over, and
    /// who hands something over finds another.
    #[must_use = "a waiter whose wait is over has got nothing"]
    pub(super) fn grant(&self) -> bool {
        self.end(Signal::Granted)
    }

    /// Ends the wait because the waiter will never get what it waits for.
    pub(super) fn close(&self) {
        self.end(Signal::Closed);
    }

    /// Ends the wait because its time is up.
    pub(super) fn time_out(&self) {
        self.end(Signal::TimedOut);
    }

    fn end(&self, signal: Signal) -> bool {
        let end = self.parker.word.end(self.ticket, signal);
        if end == End::OfParked {
            match &self.parker.owner {
                Owner::LightThread { worker, token } => worker.make_ready(*token),
                Owner::Thread(thread) => thread.unpark(),
            }
        }
        end != End::Stale
    }

    /// Whether this is that wait.
    pub(super) fn is(&self, wait: &Wait) -> bool {
        self.ticket == wait.ticket && Arc::ptr_eq(&self.parker, &wait.parker)
    }
}

/// One wait of the calling thread.
pub(super) struct Wait {
    parker: Arc<Parker>,
    ticket: Ticket,
    manner: Manner,
}

/// How the calling thread waits.
enum Manner {
    Suspended { local: Rc<Local>, token: u32 },
    Yielding,
    Blocking,
}

impl Wait {
    /// Begins a wait. Until it is over, or dropped without anybody having been told of it, the thread begins no other.
    pub(super) fn begin() -> Self {
        let blocked = || PARKER.try_with(Arc::clone).unwrap_or_else(|_| Arc::new(Parker::of_this_thread()));
        let (parker, manner) = match yonder_unithread::current() {
            Some(token) if may_suspend() => match Local::current() {
                Some(local) => (local.parker(token.0), Manner::Suspended { local, token: token.0 }),
                // The thread's own parker may serve another unithread's wait.
                None => (Arc::new(Parker::of_this_thread()), Manner::Yielding),
            },
            _ => (blocked(), Manner::Blocking),
        };
        let ticket = parker.word.begin();
        Self { parker, ticket, manner }
    }

    /// What others are to hold of it.
    pub(super) fn waiter(&self) -> Waiter {
        Waiter { parker: Arc::clone(&self.parker), ticket: self.ticket }
    }

    /// The worker of a light thread that waits suspended.
    pub(super) fn worker(&self) -> Option<&Arc<WorkerShared>> {
        match &self.manner {
            Manner::Suspended { local, .. } => Some(&local.shared),
            Manner::Yielding | Manner::Blocking => None,
        }
    }

    /// Waits until another thread ends the wait.
    pub(super) fn park(self) -> Signal {
        self.park_until(None)
    }

    /// The same, until `deadline` at the latest.
    pub(super) fn park_until(&self, deadline: Option<Nanos>) -> Signal {
        match &self.manner {
            Manner::Suspended { local, token } => self.suspend(local, *token, deadline),
            Manner::Yielding => self.look_until(deadline, |_| yield_now()),
            Manner::Blocking if self.parker.word.park(self.ticket) => self.look_until(deadline, block()),
            Manner::Blocking => self.over(),
        }
    }

    fn suspend(&self, local: &Local, token: u32, deadline: Option<Nanos>) -> Signal {
        if let Some(deadline) = deadline {
            local.set_timer(deadline, token, Some(self.waiter()));
        }
        if self.parker.word.park(self.ticket) {
            assert!(suspend(Suspension::Parked), "a light thread that could be left still can");
        }
        if let Some(deadline) = deadline {
            local.cancel_timer(deadline, token);
        }
        self.over()
    }

    /// Looks at the word, and lets `pass` time, which is given how much is left.
    fn look_until(&self, deadline: Option<Nanos>, mut pass: impl FnMut(Option<Duration>)) -> Signal {
        loop {
            if let Some(signal) = self.parker.word.signal(self.ticket) {
                return signal;
            }
            let left = deadline.map(|deadline| deadline.saturating_sub(yonder_clock::now()));
            if left == Some(0) {
                self.waiter().time_out();
            } else {
                pass(left.map(Duration::from_nanos));
            }
        }
    }

    /// Why the wait ended.
    fn over(&self) -> Signal {
        self.parker.word.signal(self.ticket).expect("a thread goes on when its wait is over, and not before")
    }
}

/// How a thread passes time that blocks. A light thread blocks its worker by that, and perhaps for ever.
fn block() -> impl FnMut(Option<Duration>) {
    const LONG: Duration = Duration::from_secs(1);
    let mut warns = yonder_unithread::is_on_unithread();
    move |left| {
        if warns && left.is_none_or(|left| left > LONG) {
            std::thread::park_timeout(LONG);
            tracing::warn!(
                "a light thread waits in a no-yield section, while it unwinds, or on another stack than its own, and \
                 its worker with it"
            );
            warns = false;
        } else {
            left.map_or_else(std::thread::park, std::thread::park_timeout);
        }
    }
}

#[cfg(all(test, not(yonder_loom)))]
mod tests {
    use std::sync::Mutex;

    use yonder_unithread::{Pool, Resumed, Running, STACK_BYTES_DEFAULT};

    use super::*;
    use crate::threads::config::Config;
    use crate::worker::SUSPENSION;

    type Body = Box<dyn FnMut() + Send>;
    type Slot<T> = Arc<Mutex<Option<T>>>;

    /// A worker without far memory, whose light threads are resumed by hand. It leaves when it is dropped.
    struct Bench {
        pool: Pool<Body>,
        local: Rc<Local>,
    }

    impl Bench {
        /// With one light thread, so that its token is used again and again.
        fn new() -> Self {
            let config = Config { light_threads: 1, ..Config::default() };
            Self { pool: Pool::new(1, STACK_BYTES_DEFAULT).unwrap(), local: Local::enter_for_test(&config) }
        }

        fn start(&self, body: impl FnMut() + Send + 'static) -> Resumed<Body> {
            self.pool.take(Box::new(body)).ok().unwrap().start(|body| body()).resume()
        }

        /// Starts a light thread that parks until `deadline` at most, and leaves its waiter and why its wait ended.
        fn park(&self, deadline: Option<Nanos>) -> (Running<Body>, Waiter, Slot<Signal>) {
            let (waiter, ended) = (Slot::default(), Slot::default());
            let (leaves_waiter, leaves_end) = (Arc::clone(&waiter), Arc::clone(&ended));
            let resumed = self.start(move || {
                let wait = Wait::begin();
                *leaves_waiter.lock().unwrap() = Some(wait.waiter());
                *leaves_end.lock().unwrap() = Some(wait.park_until(deadline));
            });
            let Resumed::Suspended(running) = resumed else { panic!("it parks") };
            assert_eq!(SUSPENSION.take(), Suspension::Parked);
            let waiter = waiter.lock().unwrap().take().unwrap();
            (running, waiter, ended)
        }

        fn ready(&self) -> Vec<u32> {
            self.local.with_ready(|ready| ready.drain(..).collect())
        }
    }

    impl Drop for Bench {
        fn drop(&mut self) {
            Local::leave();
        }
    }

    #[track_caller]
    fn ends(running: Running<Body>, ended: &Slot<Signal>, wanted: Signal) {
        assert!(matches!(running.resume(), Resumed::Finished(_)));
        assert_eq!(ended.lock().unwrap().take(), Some(wanted));
    }

    #[test]
    fn a_wait_that_ends_before_its_thread_parks_delivers_nothing() {
        let bench = Bench::new();
        let resumed = bench.start(|| {
            let wait = Wait::begin();
            assert!(wait.waiter().grant());
            assert_eq!(wait.park(), Signal::Granted);
        });
        assert!(matches!(resumed, Resumed::Finished(_)));
        assert!(bench.ready().is_empty() && !bench.local.shared.inbox.has_post());
    }

    #[test]
    fn a_parked_thread_is_named_once() {
        let bench = Bench::new();
        let (running, waiter, ended) = bench.park(None);
        assert!(waiter.grant());
        assert!(!waiter.grant(), "the wait is over");
        waiter.close();
        assert_eq!(bench.ready(), [running.id().0]);
        ends(running, &ended, Signal::Granted);
    }

    #[test]
    fn another_thread_names_it_in_the_inbox() {
        let bench = Bench::new();
        let (running, waiter, ended) = bench.park(None);
        std::thread::spawn(move || waiter.close()).join().unwrap();
        assert!(bench.ready().is_empty());
        bench.local.with_ready(|ready| bench.local.shared.inbox.collect(ready));
        assert_eq!(bench.ready(), [running.id().0]);
        ends(running, &ended, Signal::Closed);
    }

    #[test]
    fn a_time_ends_a_wait_and_a_notification_that_comes_later_finds_it_over() {
        let bench = Bench::new();
        let (running, waiter, ended) = bench.park(Some(100));
        bench.local.fire_timers(99);
        assert!(bench.ready().is_empty());
        bench.local.fire_timers(100);
        assert!(!waiter.grant());
        assert_eq!(bench.ready(), [running.id().0]);
        ends(running, &ended, Signal::TimedOut);
    }

    #[test]
    fn a_notification_in_time_takes_the_time_back() {
        let bench = Bench::new();
        let (running, waiter, ended) = bench.park(Some(100));
        assert!(waiter.grant());
        bench.local.fire_timers(100);
        assert_eq!(bench.ready(), [running.id().0], "and not twice");
        ends(running, &ended, Signal::Granted);
        let (running, waiter, ended) = bench.park(Some(200));
        assert!(waiter.grant());
        ends(running, &ended, Signal::Granted);
        assert_eq!(bench.local.next_timer(), None);
    }

    #[test]
    fn a_waiter_of_an_earlier_thread_with_the_same_token_wakes_nothing() {
        let bench = Bench::new();
        let (running, late, ended) = bench.park(Some(1));
        bench.local.fire_timers(1);
        bench.ready();
        ends(running, &ended, Signal::TimedOut);
        let (running, waiter, ended) = bench.park(None);
        assert!(!late.grant());
        assert!(bench.ready().is_empty());
        assert!(waiter.grant());
        ends(running, &ended, Signal::Granted);
    }
}
