//! [`Sleeper`]: a thread that sleeps when there is no work, and is woken only if it does.
//!
//! The sleeper announces itself, looks for work once more, then sleeps; who brings work looks for the announcement
//! after. One of the two sees the other, so no wake-up is lost, and bringing work to a thread that is awake costs one
//! load.

use std::sync::atomic::{AtomicBool, Ordering, fence};

#[derive(Debug, Default)]
pub(crate) struct Sleeper {
    asleep: AtomicBool,
}

impl Sleeper {
    /// Sleeps by `sleep` unless `has_work` says that there is work now.
    pub(crate) fn sleep(&self, has_work: impl FnOnce() -> bool, sleep: impl FnOnce()) {
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if !has_work() {
            sleep();
        }
        self.asleep.store(false, Ordering::Relaxed);
    }

    /// Wakes the sleeper by `wake` if it sleeps. Called after the work has been made visible.
    #[inline]
    pub(crate) fn wake(&self, wake: impl FnOnce()) {
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::Relaxed) {
            wake();
        }
    }
}

#[cfg(test)]
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
