//! [`Announced`]: the leases of what is announced, each for as long as it lasts: names come and go, and are never used
//! again.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Leases of a store, by name.
#[derive(Debug, Default)]
pub(super) struct Announced {
    /// The store's number of each, and when it is over.
    leases: BTreeMap<String, (i64, Instant)>,
    /// When those that are over are forgotten.
    sweep_at: Option<Instant>,
}

impl Announced {
    /// The lease of a name, if it may not be over yet.
    pub(super) fn lease(&self, name: &str) -> Option<i64> {
        self.leases.get(name).map(|(lease, _)| *lease)
    }

    /// All of them.
    pub(super) fn leases(&self) -> impl Iterator<Item = i64> {
        self.leases.values().map(|(lease, _)| *lease)
    }

    /// A lease of this length was begun now, or begun anew.
    pub(super) fn note(&mut self, name: &str, lease: i64, length: Duration, now: Instant) {
        if self.sweep_at.is_none_or(|at| at <= now) {
            self.leases.retain(|_, (_, end)| *end > now);
            self.sweep_at = Some(now + length);
        }
        self.leases.insert(name.to_owned(), (lease, now + length));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each node that was started once was renewed no more, and known until the controller ended.
    #[test]
    fn what_is_announced_no_more_is_forgotten() {
        let (mut announced, begin, length) = (Announced::default(), Instant::now(), Duration::from_secs(3));
        for step in 0..100_u32 {
            let now = begin + Duration::from_secs(1) * step;
            announced.note("stays", 7, length, now);
            announced.note(&format!("goes {step}"), i64::from(step), length, now);
            assert_eq!((announced.lease("stays"), announced.leases().count() <= 8), (Some(7), true));
        }
        assert_eq!((announced.lease("goes 90"), announced.lease("goes 99")), (None, Some(99)));
    }
}
