//! [`Group`]: a part of an allocation that lies in one place, and how much that place is doubted.
//!
//! A queue pair that hears from a node that it has a region no more, or nothing at all, says so here; the follower
//! asks the controller then, and puts a group with another place in its stead.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use super::nodes::NodeIndex;

/// Where the memory of a group is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    pub(super) node: NodeIndex,
    /// The region's number.
    pub(super) region: u32,
    /// Where its first byte is, in the address space.
    pub(super) address: u64,
}

/// What is thought of a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Standing {
    /// The node answers.
    Sound,
    /// The memory may be elsewhere.
    Doubted,
    /// The memory is gone, as the controller says.
    Lost,
}

/// A part of an allocation.
#[derive(Clone)]
pub(super) struct Group {
    pub(super) place: Place,
    standing: Arc<AtomicU8>,
}

impl Group {
    pub(super) fn new(place: Place) -> Self {
        Self { place, standing: Arc::new(AtomicU8::new(Standing::Sound as u8)) }
    }

    /// The same content in another place.
    pub(super) fn moved(&self, place: Place) -> Self {
        Self { place, standing: Arc::clone(&self.standing) }
    }

    pub(super) fn standing(&self) -> Standing {
        match self.standing.load(Ordering::Acquire) {
            0 => Standing::Sound,
            1 => Standing::Doubted,
            _ => Standing::Lost,
        }
    }

    /// The place is doubted. True if it was not before.
    pub(super) fn doubt(&self) -> bool {
        let (sound, doubted) = (Standing::Sound as u8, Standing::Doubted as u8);
        self.standing.compare_exchange(sound, doubted, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// The controller is about to be asked: who doubts the place from now on wants it asked again. False if nobody
    /// doubts it.
    pub(super) fn begin_look(&self) -> bool {
        let (sound, doubted) = (Standing::Sound as u8, Standing::Doubted as u8);
        self.standing.compare_exchange(doubted, sound, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// The controller says that the memory is gone.
    pub(super) fn lose(&self) {
        self.standing.store(Standing::Lost as u8, Ordering::Release);
    }
}
