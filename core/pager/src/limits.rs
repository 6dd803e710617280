//! [`Limits`]: the settings that can be changed while far memory is used.
//!
//! Plain atomics: whoever tunes writes them, the reclaimer reads them at its next step. A quota is in pages, and no
//! quota is the largest number, so that a comparison needs no case of its own.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::reclaim::{FlushLimits, Policy};
use yonder_units::{Nanos, Narrow, PAGE_BYTES, saturating_nanos};

/// How long a dirty page stands before it is written back, if nobody says otherwise.
const STANDBY_AGE: Nanos = 1_000_000_000;
/// Fewest pages that are worth a batch, if nobody says otherwise.
const STANDBY_PAGES_MIN: u64 = 64;

/// What the quota of a region or of the process is.
#[derive(Debug)]
pub(crate) struct Quota(AtomicU64);

impl Default for Quota {
    fn default() -> Self {
        Self(AtomicU64::new(u64::MAX))
    }
}

impl Quota {
    /// In pages; more than there can be if there is none.
    #[inline]
    pub(crate) fn pages(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    pub(crate) fn bytes(&self) -> Option<u64> {
        let pages = self.pages();
        (pages < u64::MAX).then(|| pages * PAGE_BYTES as u64)
    }

    /// `bytes` are rounded down to pages.
    pub(crate) fn set(&self, bytes: Option<u64>) {
        self.0.store(bytes.map_or(u64::MAX, |bytes| bytes / PAGE_BYTES as u64), Ordering::Release);
    }
}

#[derive(Debug)]
pub(crate) struct Limits {
    standby_age: AtomicU64,
    standby_pages: AtomicU64,
    pub(crate) process: Quota,
    /// What reclaim keeps all local memory below, though there is room for more.
    pub(crate) soft: Quota,
}

impl Limits {
    /// As they are before anybody changes them. A batch is half of what stands under `policy`, so that the cleaner,
    /// which takes what is above that, finds most of it clean.
    pub(crate) fn new(policy: &Policy) -> Self {
        Self {
            standby_age: AtomicU64::new(STANDBY_AGE),
            standby_pages: AtomicU64::new((policy.standby_share() / 2).max(STANDBY_PAGES_MIN)),
            process: Quota::default(),
            soft: Quota::default(),
        }
    }

    /// When dirty pages are written back.
    #[inline]
    pub(crate) fn flush(&self) -> FlushLimits {
        FlushLimits {
            age: self.standby_age.load(Ordering::Acquire),
            pages: self.standby_pages.load(Ordering::Acquire).narrow_usize(),
        }
    }

    pub(crate) fn standby_age(&self) -> Duration {
        Duration::from_nanos(self.standby_age.load(Ordering::Acquire))
    }

    pub(crate) fn set_standby_age(&self, age: Duration) {
        self.standby_age.store(saturating_nanos(age), Ordering::Release);
    }

    pub(crate) fn set_standby_pages(&self, pages: usize) {
        self.standby_pages.store(pages as u64, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use crate::reclaim::Shares;

    use super::*;

    #[test]
    fn limits_are_what_was_set() {
        let policy = Policy::new(100_000, Shares::default()).unwrap();
        let limits = Limits::new(&policy);
        assert_eq!(limits.flush(), FlushLimits { age: 1_000_000_000, pages: 2_500 });
        limits.set_standby_age(Duration::MAX);
        limits.set_standby_pages(7);
        assert_eq!(limits.flush(), FlushLimits { age: u64::MAX, pages: 7 });
        assert_eq!(limits.process.bytes(), None);
        limits.process.set(Some(5 * PAGE_BYTES as u64 + 1));
        assert_eq!((limits.process.pages(), limits.process.bytes()), (5, Some(5 * PAGE_BYTES as u64)));
        limits.process.set(None);
        assert_eq!(limits.process.bytes(), None);
    }
}
