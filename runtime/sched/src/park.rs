//! [`Sleeper`]: a thread that sleeps when there is no work, and is woken only if it does.
//!
//! The sleeper announces itself, looks for work once more, then sleeps; who brings work looks for the announcement
//! after. One of the two sees the other, so no wake-up is lost, and bringing work to a thread that is awake costs one
//! load.

use crate::atomic::{AtomicBool, Ordering, fence};

#[derive(Debug, Default)]
pub(crate) struct Sleeper {
    asleep: AtomicBool,
}

impl Sleeper {
    /// Sleeps by `sleep` unless `has_work` says that there is work now.
    pub(crate) fn sleep(&self, has_work: impl FnOnce() -> bool, sleep: impl FnOnce()) {
        // A swap comes after every earlier swap in `wake`, so none of those hides the announcement. Who sees it sees
        // also how the sleeper is to be woken.
        self.asleep.swap(true, Ordering::Release);
        fence(Ordering::SeqCst);
        if !has_work() {
            sleep();
        }
        self.asleep.store(false, Ordering::Relaxed);
    }

    /// Whether it sleeps, or is about to. A hint.
    #[inline]
    pub(crate) fn is_asleep(&self) -> bool {
        self.asleep.load(Ordering::Relaxed)
    }

    /// Wakes the sleeper by `wake` if it sleeps. Called after the work has been made visible.
    #[inline]
    pub(crate) fn wake(&self, wake: impl FnOnce()) {
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::Acquire) {
            wake();
        }
    }
}

#[cfg(all(test, not(yonder_loom)))]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    #[test]
    fn no_wake_up_is_lost() {
        let (sleeper, work) = (Sleeper::default(), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let consumer = scope.spawn(|| {
                for wanted in 1..=20_000 {
                    while work.load(Ordering::Acquire) < wanted {
                        sleeper.sleep(|| work.load(Ordering::Acquire) >= wanted, std::thread::park);
                    }
                }
            });
            for _ in 0..20_000 {
                work.fetch_add(1, Ordering::Release);
                sleeper.wake(|| consumer.thread().unpark());
            }
        });
    }
}

#[cfg(all(test, yonder_loom))]
mod model {
    use loom::sync::atomic::AtomicU32;
    use loom::sync::{Arc, Condvar, Mutex};
    use loom::thread;

    use super::*;

    /// A consumer that sleeps by a token, as `std::thread::park` does, and what it waits for. A lost wake-up is a
    /// deadlock, which loom reports.
    #[derive(Default)]
    struct Workshop {
        sleeper: Sleeper,
        brought: AtomicU32,
        token: Mutex<bool>,
        token_given: Condvar,
    }

    impl Workshop {
        fn consume(&self, pieces: u32) {
            for done in 0..pieces {
                let has_work = || self.brought.load(Ordering::Acquire) > done;
                while !has_work() {
                    self.sleeper.sleep(has_work, || self.park());
                }
            }
        }

        /// The work itself is visible only as late as memory allows: its store orders nothing but what came before.
        fn bring(&self) {
            self.brought.fetch_add(1, Ordering::Release);
            self.sleeper.wake(|| self.unpark());
        }

        fn park(&self) {
            let mut token = self.token.lock().unwrap();
            while !*token {
                token = self.token_given.wait(token).unwrap();
            }
            *token = false;
        }

        fn unpark(&self) {
            *self.token.lock().unwrap() = true;
            self.token_given.notify_one();
        }
    }

    fn no_wake_up_is_lost(producers: u32, pieces_each: u32) {
        loom::model(move || {
            let workshop = Arc::new(Workshop::default());
            let threads: Vec<_> = (0..producers)
                .map(|_| {
                    let workshop = Arc::clone(&workshop);
                    thread::spawn(move || (0..pieces_each).for_each(|_| workshop.bring()))
                })
                .collect();
            workshop.consume(producers * pieces_each);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
    }

    #[test]
    fn one_producer_never_loses_a_wake_up() {
        no_wake_up_is_lost(1, 2);
    }

    #[test]
    fn two_producers_never_lose_a_wake_up() {
        no_wake_up_is_lost(2, 1);
    }
}
