//! Waiting for a word of shared memory to change, in any process that maps it.
//!
//! UNSAFETY: system calls on words inside a mapping this crate owns.

use std::time::Duration;

use crate::Mapping;

impl Mapping {
    /// Waits while the lower half of the word at `offset` is `value`, until somebody calls [`Mapping::wake`] or the
    /// time is over; also for no reason. Allocates nothing.
    pub fn wait_while(&self, offset: u64, value: u32, at_most: Option<Duration>) {
        let time = at_most.map(|time| libc::timespec {
            tv_sec: time.as_secs().try_into().unwrap_or(libc::time_t::MAX),
            tv_nsec: time.subsec_nanos().into(),
        });
        let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: the word is in bounds, and aligned; the time lives as long as the call.
        let _ = unsafe { libc::syscall(libc::SYS_futex, self.half(offset), libc::FUTEX_WAIT, value, time) };
    }

    /// Wakes all who wait at the word at `offset`.
    pub fn wake(&self, offset: u64) {
        // SAFETY: the word is in bounds, and aligned.
        let _ = unsafe { libc::syscall(libc::SYS_futex, self.half(offset), libc::FUTEX_WAKE, libc::c_int::MAX) };
    }

    /// The lower half of a word, which has its address.
    fn half(&self, offset: u64) -> *mut u8 {
        assert!(offset.is_multiple_of(8), "offset {offset} is not a multiple of 8");
        self.checked(offset, 8)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;
    use std::time::Instant;

    use super::*;
    use crate::create_memfd;

    #[test]
    fn who_waits_is_woken_through_another_mapping() {
        const AT: u64 = 64;
        let file = create_memfd(c"waiting", 4096).unwrap();
        let [one, other] = [(); 2].map(|()| Mapping::shared(file.as_fd(), 4096).unwrap());
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| {
                while one.load_u64(AT) == 0 {
                    one.wait_while(AT, 0, None);
                }
            });
            other.update_u64(AT, |_| 1);
            other.wake(AT);
            waits.join().unwrap();
        });
    }

    #[test]
    fn nobody_waits_for_longer_than_he_wants_or_for_another_value() {
        const TIME: Duration = Duration::from_millis(20);
        let memory = Mapping::anonymous(4096).unwrap();
        let began = Instant::now();
        memory.wait_while(0, 0, Some(TIME));
        assert!(began.elapsed() >= TIME);
        memory.wait_while(0, 1, None);
    }
}
