//! [`BlockGate`]: who may be inside a block.
//!
//! Installers enter for the moment of a `UFFDIO_COPY`; holds keep a block from being swept while a system call or a
//! device uses its pages; the sweeper takes the block only when both are absent, and installs wait for it. One word, so
//! that entering is one compare-and-swap.

use crate::atomic::{AtomicU32, Ordering};

const SWEPT: u32 = u32::MAX;
const HOLD: u32 = 1 << 16;
const INSTALLERS_MASK: u32 = HOLD - 1;

#[derive(Debug, Default)]
pub(crate) struct BlockGate {
    word: AtomicU32,
}

impl BlockGate {
    /// Enters to install; false while the block is swept.
    #[inline]
    pub(crate) fn enter(&self) -> bool {
        self.add(1)
    }

    /// Leaves after an install.
    #[inline]
    pub(crate) fn leave(&self) {
        let before = self.word.fetch_sub(1, Ordering::SeqCst);
        assert!(before != SWEPT && before & INSTALLERS_MASK > 0, "left a gate that was not entered");
    }

    /// Keeps the block from being swept; false while it is.
    pub(crate) fn hold(&self) -> bool {
        self.add(HOLD)
    }

    /// Ends a hold.
    pub(crate) fn unhold(&self) {
        let before = self.word.fetch_sub(HOLD, Ordering::SeqCst);
        assert!(before != SWEPT && before >= HOLD, "ended a hold that was not there");
    }

    /// Whether anybody holds the block now.
    pub(crate) fn is_held(&self) -> bool {
        let word = self.word.load(Ordering::SeqCst);
        word != SWEPT && word >= HOLD
    }

    /// Takes the block for a sweep; false if anybody is inside.
    pub(crate) fn try_sweep(&self) -> bool {
        self.word.compare_exchange(0, SWEPT, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Ends a sweep.
    pub(crate) fn end_sweep(&self) {
        let before = self.word.swap(0, Ordering::SeqCst);
        assert!(before == SWEPT, "ended a sweep that was not there");
    }

    #[inline]
    fn add(&self, amount: u32) -> bool {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            if word == SWEPT {
                return false;
            }
            let more =
                word.checked_add(amount).filter(|more| *more != SWEPT).expect("fewer than 2^16 holds of a block");
            match self.word.compare_exchange_weak(word, more, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(current) => word = current,
            }
        }
    }
}

#[cfg(all(test, yonder_loom))]
mod model;

#[cfg(all(test, not(yonder_loom)))]
mod tests {
    use super::*;

    #[test]
    fn sweeps_exclude_installs_and_holds() {
        let gate = BlockGate::default();
        assert!(gate.enter() && gate.hold());
        assert!(!gate.try_sweep());
        gate.leave();
        assert!(!gate.try_sweep());
        gate.unhold();
        assert!(gate.try_sweep() && !gate.enter() && !gate.hold());
        gate.end_sweep();
        assert!(gate.enter());
    }

    #[test]
    #[should_panic(expected = "fewer than 2^16 holds")]
    fn holds_that_would_look_like_none_are_our_bug() {
        let gate = BlockGate::default();
        (0..1 << 16).for_each(|_| assert!(gate.hold()));
    }
}
