//! [`BlockGate`]: who may be inside a block.
//!
//! Installers enter for the moment of a `UFFDIO_COPY`; holds keep a block from being swept while a system call or a
//! device uses its pages; the sweeper takes the block only when both are absent, and installs wait for it. A release of
//! pages closes the block to installers and to new holds, and leaves the holds that there are: they are of other pages,
//! and may last for good. So does the recall of a lent block, of which what is held is mapped. One word, so that
//! entering is one compare-and-swap.

use crate::atomic::{AtomicU32, Ordering};

const SWEPT: u32 = u32::MAX;
const HOLD: u32 = 1 << 16;
const INSTALLERS_MASK: u32 = HOLD - 1;
/// In the place of the number of installers: nobody may come in. A swept block is closed too.
const CLOSED: u32 = INSTALLERS_MASK;

const _: () = assert!(SWEPT & INSTALLERS_MASK == CLOSED);

#[derive(Debug, Default)]
pub(crate) struct BlockGate {
    word: AtomicU32,
}

impl BlockGate {
    /// Enters to install; false while the block is swept or closed.
    #[inline]
    pub(crate) fn enter(&self) -> bool {
        self.add(1)
    }

    /// Leaves after an install.
    #[inline]
    pub(crate) fn leave(&self) {
        let before = self.word.fetch_sub(1, Ordering::SeqCst);
        assert!(!is_closed(before) && before & INSTALLERS_MASK > 0, "left a gate that was not entered");
    }

    /// Keeps the block from being swept; false while it is, or while it is closed.
    #[inline]
    pub(crate) fn hold(&self) -> bool {
        self.add(HOLD)
    }

    /// Ends a hold.
    #[inline]
    pub(crate) fn unhold(&self) {
        let before = self.word.fetch_sub(HOLD, Ordering::SeqCst);
        assert!(before != SWEPT && before >= HOLD, "ended a hold that was not there");
    }

    /// Whether anybody holds the block now.
    #[inline]
    pub(crate) fn is_held(&self) -> bool {
        let word = self.word.load(Ordering::SeqCst);
        word != SWEPT && word >= HOLD
    }

    /// Takes the block for a sweep; false if anybody is inside.
    #[inline]
    pub(crate) fn try_sweep(&self) -> bool {
        self.word.compare_exchange(0, SWEPT, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Whether the block is being swept, lent, recalled or released.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        is_closed(self.word.load(Ordering::SeqCst))
    }

    /// Ends a sweep.
    #[inline]
    pub(crate) fn end_sweep(&self) {
        let before = self.word.swap(0, Ordering::SeqCst);
        assert!(before == SWEPT, "ended a sweep that was not there");
    }

    /// Closes the block for a release of pages that nobody holds, or for its recall; false while anybody installs or
    /// sweeps. Holds may end meanwhile.
    #[inline]
    pub(crate) fn try_close(&self) -> bool {
        let close = |word| (word & INSTALLERS_MASK == 0).then_some(word | CLOSED);
        self.word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, close).is_ok()
    }

    /// Opens a block that was closed.
    #[inline]
    pub(crate) fn open(&self) {
        let before = self.word.fetch_sub(CLOSED, Ordering::SeqCst);
        assert!(before != SWEPT && is_closed(before), "opened a gate that was not closed");
    }

    #[inline]
    fn add(&self, amount: u32) -> bool {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            if is_closed(word) {
                return false;
            }
            // Neither closed by one installer too many, nor like a swept block when a release closes it.
            let is_valid = |more: &u32| !is_closed(*more) && *more | CLOSED != SWEPT;
            let more = word.checked_add(amount).filter(is_valid).expect("fewer than 2^16 holds of a block");
            match self.word.compare_exchange_weak(word, more, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(current) => word = current,
            }
        }
    }
}

#[inline]
fn is_closed(word: u32) -> bool {
    word & INSTALLERS_MASK == CLOSED
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
    fn a_release_excludes_all_but_the_holds_that_are_there() {
        let gate = BlockGate::default();
        assert!(gate.hold() && gate.hold() && gate.try_close());
        assert!(!gate.enter() && !gate.hold() && !gate.try_sweep() && !gate.try_close());
        assert!(gate.is_held());
        gate.unhold();
        gate.open();
        assert!(gate.enter() && !gate.try_close());
        gate.leave();
        assert!(!gate.try_sweep(), "one hold is left");
        gate.unhold();
        assert!(gate.try_sweep() && !gate.try_close());
        gate.end_sweep();
        assert!(gate.try_close() && !gate.is_held());
        gate.open();
    }

    #[test]
    #[should_panic(expected = "fewer than 2^16 holds")]
    fn holds_that_would_look_like_none_are_our_bug() {
        let gate = BlockGate::default();
        (0..1 << 16).for_each(|_| assert!(gate.hold()));
    }
}
