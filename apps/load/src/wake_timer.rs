//! A timer that wakes a poll at a nanosecond's resolution; a poll's own timeout counts in milliseconds.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

/// A timer that is registered with one poll.
pub struct WakeTimer {
    timer: OwnedFd,
}

impl WakeTimer {
    /// A timer whose expiry is an event of `token`.
    ///
    /// # Errors
    /// If the system refuses a timer.
    pub fn new(registry: &Registry, token: Token) -> io::Result<Self> {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        registry.register(&mut SourceFd(&timer.as_raw_fd()), token, Interest::READABLE)?;
        Ok(Self { timer })
    }

    /// Wakes the poll after `delay`, and not at an earlier setting. Setting it again also clears an expiry, so it is
    /// never read.
    ///
    /// # Errors
    /// If the system refuses the time.
    pub fn set(&self, delay: Duration) -> io::Result<()> {
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        // A delay of zero would disarm the timer.
        let delay = delay.max(Duration::from_nanos(1));
        let value = Timespec { tv_sec: delay.as_secs() as i64, tv_nsec: i64::from(delay.subsec_nanos()) };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &Itimerspec { it_interval: zero, it_value: value })?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use mio::{Events, Poll};

    use super::*;

    #[test]
    fn it_wakes_a_poll_each_time_it_is_set() {
        let mut poll = Poll::new().unwrap();
        let timer = WakeTimer::new(poll.registry(), Token(7)).unwrap();
        let mut events = Events::with_capacity(4);
        for delay_us in [0, 50, 200] {
            timer.set(Duration::from_micros(delay_us)).unwrap();
            poll.poll(&mut events, Some(Duration::from_secs(60))).unwrap();
            assert_eq!(events.iter().map(|event| event.token()).collect::<Vec<_>>(), [Token(7)]);
        }
    }
}
