//! [`Time`]: seconds since 1970, from the dispatcher's clock.

use yonder_units::Nanos;

/// When it is.
pub(super) struct Time {
    started_s: u64,
    started: Option<Nanos>,
    pub(super) now: Nanos,
}

impl Time {
    /// It is `started_s` seconds since 1970, at the first [`Time::note`].
    pub(super) fn new(started_s: u64) -> Self {
        Self { started_s, started: None, now: 0 }
    }

    pub(super) fn note(&mut self, now: Nanos) {
        self.started.get_or_insert(now);
        self.now = now;
    }

    pub(super) fn uptime_s(&self) -> u32 {
        (self.now.saturating_sub(self.started.unwrap_or(self.now)) / 1_000_000_000) as u32
    }

    pub(super) fn now_s(&self) -> u32 {
        (self.started_s as u32).wrapping_add(self.uptime_s())
    }
}
