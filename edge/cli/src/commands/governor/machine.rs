//! [`Machine`]: how much memory there is for far programs, where nobody has said it.

use std::time::Instant;

use rustix::fs::Access;

/// Share of the time in which others may wait for memory before some is kept back from far programs.
const WAITING_MAX: f64 = 0.1;
/// Part of what there is that is kept back more at a look at which they wait, and less at one at which they do not.
const MORE_PART: u64 = 64;
const LESS_PART: u64 = 512;
/// At most so much of it is kept back.
const PART_MAX: u64 = 2;

/// What the kernel says of the machine's memory.
pub(super) struct Machine {
    before: Option<(Instant, u64)>,
    kept_back: u64,
}

impl Machine {
    pub(super) fn new() -> Self {
        Self { before: None, kept_back: 0 }
    }

    /// Memory for programs that have `local` bytes of it now, if `keep` bytes are to be available to others: less where
    /// others wait for memory.
    pub(super) fn room(&mut self, local: u64, keep: u64) -> u64 {
        let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let room = (available(&text("/proc/meminfo")) + local).saturating_sub(keep);
        let waited = waited_us(&text("/proc/pressure/memory")).map(|us| (Instant::now(), us));
        if let (Some((before, us_before)), Some((now, us))) = (self.before, waited) {
            let passed = now.duration_since(before).as_micros();
            self.kept_back = kept_back(self.kept_back, room, us.saturating_sub(us_before) as f64 / passed as f64);
        }
        self.before = waited;
        room - self.kept_back.min(room)
    }
}

/// Whether the kernel tells how long others wait for memory.
pub(super) fn tells_pressure() -> bool {
    rustix::fs::access("/proc/pressure/memory", Access::READ_OK).is_ok()
}

fn kept_back(before: u64, room: u64, waiting: f64) -> u64 {
    if waiting > WAITING_MAX { before + room / MORE_PART } else { before.saturating_sub(room / LESS_PART) }
        .min(room / PART_MAX)
}

/// `MemAvailable` in bytes.
fn available(meminfo: &str) -> u64 {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kibibytes.unwrap_or_default() * 1024
}

/// For how many microseconds some task has waited for memory so far.
fn waited_us(pressure: &str) -> Option<u64> {
    let some = pressure.lines().find_map(|line| line.strip_prefix("some "))?;
    some.split_whitespace().find_map(|word| word.strip_prefix("total="))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_writes_is_read() {
        assert_eq!(available("MemTotal: 8 kB\nMemAvailable:    4000 kB\n"), 4_096_000);
        assert_eq!(available(""), 0);
        let pressure =
            "some avg10=1.00 avg60=0.00 avg300=0.00 total=4711\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=9\n";
        assert_eq!((waited_us(pressure), waited_us("")), (Some(4711), None));
    }

    #[test]
    fn more_is_kept_back_while_others_wait_and_never_more_than_half() {
        let room = 1 << 30;
        let mut back = 0;
        for _ in 0..100 {
            back = kept_back(back, room, 0.5);
        }
        assert_eq!(back, room / 2);
        for _ in 0..300 {
            back = kept_back(back, room, 0.0);
        }
        assert_eq!(back, 0);
    }
}
