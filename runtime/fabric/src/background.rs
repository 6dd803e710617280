//! [`Background`]: a thread that works when there is something to do, and sleeps otherwise.
//!
//! The cleaner of a log and the mover of a tiered store are such threads. A [`Waker`] is for whoever makes something to
//! do: it costs a system call once for each time that the thread sleeps.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

/// What a thread does after a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pace {
    /// The next step at once.
    Again,
    /// The next step after so long: nothing that others do makes it come sooner.
    After(Duration),
    /// The next step after so long, or when it is woken.
    Within(Duration),
    /// Nothing, until it is woken.
    Idle,
}

/// The thread.
pub(crate) struct Background {
    waker: Arc<Waker>,
    thread: Option<JoinHandle<()>>,
}

/// Wakes the thread.
pub(crate) struct Waker {
    thread: Thread,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    is_asleep: AtomicBool,
    is_over: AtomicBool,
}

impl Background {
    /// Starts a thread that makes one `step` after the other.
    pub(crate) fn start(name: &str, mut step: impl FnMut() -> Pace + Send + 'static) -> io::Result<Self> {
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        let work = move || {
            while !shared.is_over.load(Ordering::Acquire) {
                // Said before the step looks for something to do, so that who makes something to do afterwards wakes
                // the thread.
                shared.is_asleep.store(true, Ordering::Release);
                match step() {
                    Pace::Again => {}
                    Pace::After(pause) => {
                        shared.is_asleep.store(false, Ordering::Release);
                        thread::park_timeout(pause);
                    }
                    Pace::Within(pause) => thread::park_timeout(pause),
                    Pace::Idle => thread::park(),
                }
            }
        };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(work)?;
        let waker = Arc::new(Waker { thread: thread.thread().clone(), state });
        Ok(Self { waker, thread: Some(thread) })
    }

    pub(crate) fn waker(&self) -> Arc<Waker> {
        Arc::clone(&self.waker)
    }

    /// Ends the thread, when its step is over.
    pub(crate) fn stop(&mut self) {
        self.waker.state.is_over.store(true, Ordering::Release);
        self.waker.thread.unpark();
        if let Some(thread) = self.thread.take() {
            // It has nothing to report.
            let _ = thread.join();
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Waker {
    /// There is something to do.
    pub(crate) fn wake(&self) {
        if self.state.is_asleep.swap(false, Ordering::AcqRel) {
            self.thread.unpark();
        }
    }
}
