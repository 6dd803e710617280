//! [`Ledger`]: what must be in a store while clients work on it, and the values that tell.
//!
//! Every object has one writer, so its writes have an order that the ledger knows: `begun` writes were sent, and those
//! up to `settled` were acknowledged to the writer or seen by a reader. A read that starts when `settled` is s and ends
//! when `begun` is b must return a version from s to b; that is what a register with one order of its operations does.
//!
//! Concurrency: `begun` is written by the object's writer alone, `settled` by all, and it only grows.

use std::sync::atomic::{AtomicU64, Ordering};

/// The versions of each object. The first write makes version 1.
#[derive(Debug)]
pub(crate) struct Ledger {
    objects: Vec<Versions>,
}

#[derive(Default, Debug)]
struct Versions {
    begun: AtomicU64,
    settled: AtomicU64,
}

impl Ledger {
    pub(crate) fn new(objects: u64) -> Self {
        Self { objects: (0..objects).map(|_| Versions::default()).collect() }
    }

    /// The version that the writer of an object writes next.
    pub(crate) fn begin_write(&self, object: u64) -> u64 {
        self.objects[object as usize].begun.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// The version was acknowledged, or read.
    pub(crate) fn settle(&self, object: u64, version: u64) {
        self.objects[object as usize].settled.fetch_max(version, Ordering::SeqCst);
    }

    /// The oldest version that a read which begins now may return.
    pub(crate) fn settled(&self, object: u64) -> u64 {
        self.objects[object as usize].settled.load(Ordering::SeqCst)
    }

    /// The newest version that a read which ends now may return.
    pub(crate) fn begun(&self, object: u64) -> u64 {
        self.objects[object as usize].begun.load(Ordering::SeqCst)
    }

    /// Whether a read that began when `oldest` was settled may return `version`; if so, it is settled now.
    pub(crate) fn accepts(&self, object: u64, oldest: u64, version: u64) -> bool {
        let accepted = (oldest..=self.begun(object)).contains(&version);
        if accepted {
            self.settle(object, version);
        }
        accepted
    }
}

/// Shortest value: it has object and version in 8 bytes each.
pub(crate) const VALUE_BYTES_MIN: usize = 16;

/// The value of a version: whose it is, and bytes that follow from that.
pub(crate) fn value_of(object: u64, version: u64, bytes: usize) -> Vec<u8> {
    let mut value = Vec::with_capacity(bytes + 8);
    value.extend(object.to_le_bytes());
    value.extend(version.to_le_bytes());
    let mut state = object.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ version.wrapping_mul(0xd1b5_4a32_d192_ed03) | 1;
    while value.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        value.extend(state.to_le_bytes());
    }
    value.truncate(bytes);
    value
}

/// The version that a value is of, or `None` if it is not wholly a value of this object.
pub(crate) fn version_of(object: u64, value: &[u8], bytes: usize) -> Option<u64> {
    let version = value.get(8..16)?.first_chunk().copied().map(u64::from_le_bytes)?;
    (value == value_of(object, version, bytes)).then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_tell_object_and_version() {
        for bytes in [16, 17, 100, 1024] {
            let mut value = value_of(7, 9, bytes);
            assert_eq!(value.len(), bytes);
            assert_eq!(version_of(7, &value, bytes), Some(9));
            assert_eq!(version_of(8, &value, bytes), None, "another object's");
            assert_eq!(version_of(7, &value[..bytes - 1], bytes), None, "too short");
            value[bytes - 1] ^= 1;
            assert_ne!(version_of(7, &value, bytes), Some(9), "torn");
        }
    }

    #[test]
    fn only_what_may_be_read_is_accepted() {
        let ledger = Ledger::new(2);
        assert_eq!((ledger.begin_write(1), ledger.begin_write(1)), (1, 2));
        ledger.settle(1, 1);
        let oldest = ledger.settled(1);
        assert!(!ledger.accepts(1, oldest, 0), "an old one");
        assert!(!ledger.accepts(1, oldest, 3), "one that was never written");
        assert!(ledger.accepts(1, oldest, 2), "one whose write is under way");
        assert!(!ledger.accepts(1, ledger.settled(1), 1), "older than what somebody has read");
        assert_eq!((ledger.settled(0), ledger.begun(0)), (0, 0));
    }
}
